// Draws the charts of a placement report: shares of GPU capacity against arrived demand, or over time.
(() => {
  const { data, colour, trim, axis, base, live, start } = report;
  const DASHES = [[], [7, 3], [2, 2]];
  const percent = value => value == null ? "–" : trim(value * 100) + "%";
  const moment = value => value >= 172800 ? trim(value / 86400) + " d" : value >= 7200 ? trim(value / 3600) + " h"
    : value >= 120 ? trim(value / 60) + " min" : trim(value) + " s";
  const SPANS = [60, 300, 900, 3600, 7200, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];

  start((holder, width) => {
    const name = holder.dataset.chart, chart = data[name], across = chart.time ? moment : percent;
    const end = chart.x[chart.x.length - 1];
    const zero = chart.time ? "0 " + (end >= 172800 ? "d" : end >= 7200 ? "h" : "s") : "0%";
    const columns = [chart.x], series = [{}], bands = [];
    chart.curves.forEach((curve, i) => {
      columns.push(curve.y);
      const dash = curve.behind || chart.time ? [] : DASHES[i];
      series.push({ stroke: colour("c" + (i + 1)), width: curve.behind ? 6 : 2, alpha: curve.behind ? 0.35 : 1, dash, points: { show: false } });
    });
    chart.curves.forEach((curve, i) => {
      if (!curve.low) return;
      columns.push(curve.high, curve.low);
      series.push(...[0, 1].map(() => ({ stroke: "transparent", width: 0, points: { show: false } })));
      bands.push({ series: [series.length - 2, series.length - 1], fill: colour("c" + (i + 1)) + "2e" });
    });
    const top = Math.max(1e-4, ...columns.slice(1).flat().filter(value => value != null));
    return [{
      ...base(holder, width),
      scales: { x: { time: false }, y: { range: () => [0, top * 1.08] } },
      axes: [
        axis({ ...(chart.time ? { incrs: [1, 2, 5, 10, 30, ...SPANS] } : {}), space: 70, values: (u, splits) => splits.map(v => v === 0 ? zero : across(v)), size: 30 }),
        axis({ values: (u, splits) => splits.map(percent), size: 62, space: 36 }),
      ],
      series, bands,
      hooks: { setCursor: [live(name, [x => "at " + across(x), ...chart.curves.map(() => percent)])] },
    }, columns];
  });
})();
