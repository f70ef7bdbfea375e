"use strict";
// Draws the front and the load curve of a Windtunnel plan. Names reach the page as text only: nothing here writes markup.
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const FONT = "12px " + getComputedStyle(document.body).fontFamily;
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const trim = value => String(+value.toPrecision(3));
  function seconds(value) {
    if (value == null) return "–";
    const [scale, prefix] = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]].find(([s]) => Math.abs(value) >= s * 0.9995) || [1, ""];
    return trim(value / scale) + " " + prefix + "s";
  }
  const axis = extra => ({ stroke: colour("soft"), font: FONT, gap: 6, grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, ...extra });
  const live = (name, words) => u => {
    const index = u.cursor.idx;
    for (const output of document.querySelectorAll(`[data-live="${name}"]`)) output.textContent = index == null ? "" : words(index);
  };
  function rule(u, across, at, style) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = style;
    ctx.lineWidth = 1.5 * uPlot.pxRatio;
    ctx.setLineDash([5 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
    ctx.beginPath();
    if (across) { ctx.moveTo(bbox.left, at); ctx.lineTo(bbox.left + bbox.width, at); }
    else { ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); }
    ctx.stroke();
    ctx.restore();
  }
  const wide = (low, high) => { const room = (high - low || Math.abs(high) || 1) * 0.08; return [Math.max(0, low - room), high + room]; };

  function front(chart, size) {
    const dots = (stroke, fill) => ({ stroke, paths: () => null, points: { show: true, size: 9, stroke, fill, width: 2 } });
    const all = chart.front.concat(chart.other).filter(value => value != null);
    const x = chart.bound == null ? chart.x : chart.x.concat(chart.bound);
    return [{
      ...size, padding: [12, 26, 0, 0], legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: false, range: () => wide(Math.min(...x), Math.max(...x)) }, y: { range: () => wide(Math.min(...all), Math.max(...all)) } },
      axes: [axis({ values: (u, splits) => splits.map(v => trim(v) + " USD/h"), space: 90, size: 30 }), axis({ values: (u, splits) => splits.map(seconds), size: 62 })],
      series: [{}, dots(colour("c1"), colour("c1")), dots(colour("c1"), colour("paper"))],
      hooks: {
        draw: [u => { if (chart.bound != null) rule(u, false, u.valToPos(chart.bound, "x", true), colour("ink")); }],
        setCursor: [live("front", i => chart.names[i] + ": " + trim(chart.x[i]) + " USD/h, p99 " + seconds(chart.front[i] ?? chart.other[i]))],
      },
    }, [chart.x, chart.front, chart.other]];
  }
  function curve(chart, size) {
    const known = chart.value.concat(chart.high, chart.limit).filter(value => value != null);
    return [{
      ...size, padding: [12, 26, 0, 0], legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: () => [0, Math.max(...known) * 1.1] } },
      axes: [axis({ values: (u, splits) => splits.map(v => Math.round(v * 100) + "%"), size: 30 }), axis({ values: (u, splits) => splits.map(seconds), size: 62 })],
      series: [{}, { stroke: colour("c1"), width: 2, points: { show: true, size: 7 } },
        { stroke: colour("c1"), width: 0.75, points: { show: false } }, { stroke: colour("c1"), width: 0.75, points: { show: false } }],
      bands: [{ series: [3, 2], fill: colour("c1") + "2e" }],
      hooks: {
        draw: [u => {
          if (chart.limit != null) rule(u, true, u.valToPos(chart.limit, "y", true), colour("ink"));
          if (chart.knee != null) rule(u, false, u.valToPos(chart.knee, "x", true), colour("c2"));
        }],
        setCursor: [live("curve", i => Math.round(chart.x[i] * 100) + "% of the load: " + seconds(chart.value[i]))],
      },
    }, [chart.x, chart.value, chart.low, chart.high]];
  }

  const drawn = new Map();
  function draw(holder, width) {
    const chart = data[holder.dataset.chart];
    drawn.get(holder)?.destroy();
    const [options, columns] = (chart.kind === "front" ? front : curve)(chart, { width: width || holder.clientWidth, height: holder.clientHeight });
    const plot = new uPlot(options, columns, holder);
    plot.root.setAttribute("aria-hidden", "true");
    drawn.set(holder, plot);
  }
  const holders = [...document.querySelectorAll("[data-chart]")];
  holders.forEach(holder => draw(holder));
  const watch = new ResizeObserver(entries => {
    for (const { target } of entries) if (drawn.get(target).width !== target.clientWidth && target.clientWidth) draw(target);
  });
  holders.forEach(holder => watch.observe(holder));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => holders.forEach(holder => draw(holder)));
})();
