"use strict";
// Shared by all reports: the chart data, colours, axes, and drawing again when the size or the colours change.
// Names reach the page as text only: nothing here or in a report's own script writes markup.
const report = (() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const FONT = "12px " + getComputedStyle(document.body).fontFamily;
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  // The sign and the colour of each state of a target or an answer; the signs are those of targets.py.
  const marks = { met: "✓", "may-be-missed": "!", inconclusive: "?", missed: "✗", none: "–" };
  const tones = { met: "met", "may-be-missed": "assumed", inconclusive: "assumed", missed: "missed", none: "soft" };
  const trim = value => String(+value.toPrecision(3));
  // A function that formats values in `unit`, given [scale, prefix] pairs from the largest scale to the smallest.
  const scaled = (steps, unit) => value => {
    const [scale, prefix] = steps.find(([s]) => Math.abs(value) >= s * 0.9995) || steps[steps.length - 1];
    return trim(value / scale) + " " + prefix + unit;
  };
  const axis = extra => ({
    stroke: colour("soft"), font: FONT, labelFont: FONT, labelSize: 22, labelGap: 2, gap: 6,
    grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, ...extra,
  });
  // Options that all charts have in common.
  const base = (holder, width) => ({
    width: width || holder.clientWidth, height: holder.clientHeight, padding: [12, 26, 0, 0], legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
  });
  // A hook that writes the values under the pointer: `formats[i](value, index)` for series i.
  const live = (name, formats) => u => {
    const index = u.cursor.idx;
    for (const output of document.querySelectorAll(`[data-live="${name}"]`)) {
      const series = +output.dataset.series;
      output.textContent = index == null ? "" : formats[series](u.data[series]?.[index], index);
    }
  };
  // A dashed line across the plot at y, or along it at x (both in canvas pixels).
  function rule(u, { x, y }, style) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = style;
    ctx.lineWidth = 1.5 * uPlot.pxRatio;
    ctx.setLineDash([5 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
    ctx.beginPath();
    ctx.moveTo(x ?? bbox.left, y ?? bbox.top);
    ctx.lineTo(x ?? bbox.left + bbox.width, y ?? bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }

  // Draws every chart of the page with `options(holder, width)`, which returns uPlot's options and columns.
  function start(options) {
    const drawn = new Map(), holders = [...document.querySelectorAll("[data-chart]")];
    function draw(holder, width) {
      drawn.get(holder)?.destroy();
      const plot = new uPlot(...options(holder, width), holder);
      // A screen reader reads the label of the holder instead of the drawing.
      plot.root.setAttribute("aria-hidden", "true");
      drawn.set(holder, plot);
      return plot;
    }
    const redraw = width => holders.forEach(holder => draw(holder, width));
    redraw();
    const observer = new ResizeObserver(entries => {
      for (const { target } of entries) if (drawn.get(target).width !== target.clientWidth && target.clientWidth) draw(target);
    });
    holders.forEach(holder => observer.observe(holder));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
    // For print: light colours, the width of a page, and nothing folded away.
    let opened = [];
    addEventListener("beforeprint", () => {
      document.documentElement.dataset.print = "";
      opened = [...document.querySelectorAll("details:not([open])")];
      opened.forEach(details => { details.open = true; });
      redraw(640);
    });
    addEventListener("afterprint", () => {
      delete document.documentElement.dataset.print;
      opened.forEach(details => { details.open = false; });
      redraw();
    });
    return redraw;
  }

  return { data, FONT, colour, marks, tones, trim, scaled, axis, base, live, rule, start };
})();

