"use strict";
// Draws the curves of a placement report: shares of GPU capacity against arrived demand, or over time.
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const DASHES = [[], [7, 3], [2, 2]];
  const FONT = "12px " + getComputedStyle(document.body).fontFamily;
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const trim = value => String(+value.toPrecision(3));
  const percent = value => value == null ? "–" : trim(value * 100) + "%";
  const moment = value => value >= 172800 ? trim(value / 86400) + " d" : value >= 7200 ? trim(value / 3600) + " h"
    : value >= 120 ? trim(value / 60) + " min" : trim(value) + " s";
  const axis = extra => ({
    stroke: colour("soft"), font: FONT, gap: 6,
    grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, ...extra,
  });
  const drawn = new Map();

  function draw(holder) {
    const name = holder.dataset.chart, chart = data[name], across = chart.time ? moment : percent;
    drawn.get(holder)?.destroy();
    const columns = [chart.x], series = [{}], bands = [];
    chart.curves.forEach((curve, i) => {
      columns.push(curve.y);
      series.push({ stroke: colour("c" + (i + 1)), width: curve.behind ? 6 : 2, alpha: curve.behind ? 0.35 : 1, dash: curve.behind ? [] : chart.time ? [] : DASHES[i], points: { show: false } });
    });
    chart.curves.forEach((curve, i) => {
      if (!curve.low) return;
      columns.push(curve.high, curve.low);
      series.push(...[0, 1].map(() => ({ stroke: "transparent", width: 0, points: { show: false } })));
      bands.push({ series: [series.length - 2, series.length - 1], fill: colour("c" + (i + 1)) + "2e" });
    });
    const top = Math.max(1e-4, ...columns.slice(1).flat().filter(value => value != null));
    const days = [60, 300, 900, 3600, 7200, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];
    const plot = new uPlot({
      width: holder.clientWidth, height: holder.clientHeight, padding: [12, 26, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: false }, y: { range: () => [0, top * 1.08] } },
      axes: [
        axis({ ...(chart.time ? { incrs: [1, 2, 5, 10, 30, ...days] } : {}), space: 70, values: (u, splits) => splits.map(v => v === 0 ? (chart.time ? "0 " + (chart.x[chart.x.length - 1] >= 172800 ? "d" : chart.x[chart.x.length - 1] >= 7200 ? "h" : "s") : "0%") : across(v)), size: 30 }),
        axis({ values: (u, splits) => splits.map(percent), size: 62, space: 36 }),
      ],
      series, bands,
      hooks: {
        setCursor: [u => {
          const index = u.cursor.idx;
          for (const output of document.querySelectorAll(`[data-live="${name}"]`)) {
            const at = +output.dataset.series;
            output.textContent = index == null ? "" : at === 0 ? "at " + across(u.data[0][index]) : percent(u.data[at][index]);
          }
        }],
      },
    }, columns, holder);
    // The drawing is decoration to a screen reader: its holder carries the words.
    plot.root.setAttribute("aria-hidden", "true");
    drawn.set(holder, plot);
  }

  const holders = [...document.querySelectorAll("[data-chart]")];
  const redraw = () => holders.forEach(draw);
  redraw();
  const watch = new ResizeObserver(entries => {
    for (const { target } of entries) if (drawn.get(target).width !== target.clientWidth && target.clientWidth) draw(target);
  });
  holders.forEach(holder => watch.observe(holder));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
