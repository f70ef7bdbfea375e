"use strict";
// Draws the front and the load curve of a Windtunnel plan. Names reach the page as text only: nothing here writes markup.
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const FONT = "12px " + getComputedStyle(document.body).fontFamily;
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const trim = value => String(+value.toPrecision(3));
  const STEPS = { s: [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]], W: [[1e6, "M"], [1e3, "k"], [1, ""]] };
  const amount = unit => value => {
    if (value == null) return "–";
    const [scale, prefix] = STEPS[unit].find(([s]) => Math.abs(value) >= s * 0.9995) || [1, ""];
    return trim(value / scale) + " " + prefix + unit;
  };
  const seconds = amount("s");
  const axis = extra => ({ stroke: colour("soft"), font: FONT, labelFont: FONT, labelSize: 22, labelGap: 2, gap: 6, grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, ...extra });
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

  // Each dot's fleet beside it, where there is room: right, left, above or below, clear of dots and of other names.
  function label(u, chart) {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio, high = 14 * ratio, gap = 9 * ratio;
    const dots = chart.names.map((name, i) => [u.valToPos(chart.x[i], "x", true), u.valToPos(chart.front[i] ?? chart.other[i], "y", true)]);
    const taken = dots.map(([x, y]) => [x - 6 * ratio, y - 6 * ratio, x + 6 * ratio, y + 6 * ratio]);
    ctx.save();
    ctx.font = 12 * ratio + FONT.slice(FONT.indexOf("px"));
    ctx.fillStyle = colour("ink");
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    chart.names.forEach((name, i) => {
      const [x, y] = dots[i], wide = ctx.measureText(name).width;
      const places = [[x + gap, y], [x - gap - wide, y], [x - wide / 2, y - high], [x - wide / 2, y + high]];
      const at = places.map(([left, middle]) => [left, middle - high / 2, left + wide, middle + high / 2]).find(box =>
        box[0] >= bbox.left && box[2] <= bbox.left + bbox.width + 20 * ratio && box[1] >= bbox.top && box[3] <= bbox.top + bbox.height &&
        taken.every((other, j) => j === i || box[2] <= other[0] || box[0] >= other[2] || box[3] <= other[1] || box[1] >= other[3]));
      if (!at) return;
      taken.push(at);
      ctx.fillText(name, at[0], (at[1] + at[3]) / 2);
    });
    ctx.restore();
  }

  function front(chart, size) {
    const dots = (stroke, fill) => ({ stroke, paths: () => null, points: { show: true, size: 9, stroke, fill, width: 2 } });
    const all = chart.front.concat(chart.other).filter(value => value != null), said = amount(chart.unit);
    const x = chart.bound == null ? chart.x : chart.x.concat(chart.bound);
    return [{
      ...size, padding: [12, 26, 0, 0], legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: false, range: () => wide(Math.min(...x), Math.max(...x)) }, y: { range: () => wide(Math.min(...all), Math.max(...all)) } },
      axes: [axis({ label: "Rent (USD/h)", values: (u, splits) => splits.map(trim), space: 60, size: 30 }), axis({ label: chart.title, values: (u, splits) => splits.map(said), size: 62 })],
      series: [{}, dots(colour("c1"), colour("c1")), dots(colour("c1"), colour("paper"))],
      hooks: {
        draw: [u => { if (chart.bound != null) rule(u, false, u.valToPos(chart.bound, "x", true), colour("ink")); label(u, chart); }],
        setCursor: [live(chart.unit, i => chart.names[i] + ": " + trim(chart.x[i]) + " USD/h, " + said(chart.front[i] ?? chart.other[i]))],
      },
    }, [chart.x, chart.front, chart.other]];
  }
  function curve(chart, size) {
    const known = chart.value.concat(chart.high, chart.limit).filter(value => value != null);
    return [{
      ...size, padding: [12, 26, 0, 0], legend: { show: false }, cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: () => [0, Math.max(...known) * 1.1] } },
      axes: [axis({ label: "Load (jobs in the same time, 100%: the scenario's)", values: (u, splits) => splits.map(v => Math.round(v * 100) + "%"), size: 30 }), axis({ label: chart.title, values: (u, splits) => splits.map(seconds), size: 62 })],
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
