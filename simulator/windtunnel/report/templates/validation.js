"use strict";
// Draws model against measurement: a scatter with its diagonal, and residuals by size. Names reach the page as text only.
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const FONT = "12px " + getComputedStyle(document.body).fontFamily;
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const trim = value => String(+value.toPrecision(3));
  const amount = (steps, unit) => value => {
    if (value == null || !(value > 0)) return "";
    const [scale, prefix] = steps.find(([s]) => value >= s * 0.9995) || steps[steps.length - 1];
    return trim(value / scale) + " " + prefix + unit;
  };
  const seconds = amount([[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]], "s");
  const bytes = amount([[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"], [1, ""]], "B");
  const plain = amount([[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]], "");
  const times = ratio => ratio >= 1 ? "×" + trim(ratio) : "÷" + trim(1 / ratio);
  // Ratios whose lines are easy to read, both ways from as measured.
  const RATIOS = [1.001, 1.002, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 100, 1e3, 1e4, 1e5, 1e6];
  const axis = extra => ({
    stroke: colour("soft"), font: FONT, labelFont: FONT, labelSize: 22, labelGap: 2, gap: 6,
    grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, ...extra,
  });
  const wide = (values, least) => {
    const low = Math.min(...values), high = Math.max(...values), room = Math.max((high / low) ** 0.04, least);
    return [low / room, high * room];
  };
  const powers = base => (u, at, low, high) => {
    const found = [], first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9), last = Math.log(high) / Math.log(base) + 1e-9;
    const room = Math.max(2, Math.floor((at === 0 ? u.bbox.width / 72 : u.bbox.height / 36) / uPlot.pxRatio));
    const step = Math.max(1, Math.ceil((last - first) / room));
    for (let power = first; power <= last; power += step) found.push(base ** power);
    if (base === 10 && found.length < 4 && room > 2 * found.length) {
      // Few decades: twos and fives between them.
      const finer = [];
      for (let power = first - 1; power <= last; power++) for (const part of [1, 2, 5]) {
        const value = part * 10 ** power;
        if (value >= low && value <= high) finer.push(value);
      }
      return finer;
    }
    return found.length > 1 ? found : [low, Math.sqrt(low * high), high];
  };
  const drawn = new Map();

  // A shape in the plane of the axes, kept within the plot.
  function shape(u, corners, fill, stroke) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.beginPath();
    corners.forEach(([x, y], i) => ctx[i ? "lineTo" : "moveTo"](u.valToPos(x, "x", true), u.valToPos(y, "y", true)));
    if (fill) { ctx.fillStyle = fill; ctx.fill(); }
    if (stroke) { ctx.strokeStyle = stroke; ctx.lineWidth = 1.25 * uPlot.pxRatio; ctx.stroke(); }
    ctx.restore();
  }

  function draw(holder) {
    const chart = data[+holder.dataset.chart], scatter = holder.dataset.kind === "scatter", count = chart.measured.length;
    drawn.get(holder)?.destroy();
    const across = scatter ? chart.measured : chart.size;
    const up = scatter ? chart.modelled : chart.modelled.map((value, i) => Math.log(value / chart.measured[i]));
    const order = across.map((_, i) => i).sort((a, b) => across[a] - across[b]);
    const columns = [order.map(i => across[i])], series = [{}];
    chart.bounds.forEach((_, b) => {
      const ink = colour("c" + Math.min(b + 1, 8));
      columns.push(order.map(i => chart.bound[i] === b ? up[i] : null));
      series.push({ stroke: ink, paths: () => null, points: { show: true, size: count > 500 ? 4 : 7, width: 0, fill: ink + (count > 500 ? "99" : "cc") } });
    });
    const named = chart.size_unit === "B" ? bytes : plain;
    const floor = chart.noise_floor || 0, both = chart.measured.concat(chart.modelled);
    const far = Math.max(0.01, 1.5 * floor, ...up.map(Math.abs)) * 1.1;
    const square = wide(both, 1.1), sizes = wide(chart.size, 1.1);
    const ends = scatter ? square : sizes;
    const ratios = (u, at, low, high) => {
      const room = (high - low) * 30 / Math.max(u.bbox.height / uPlot.pxRatio, 60), found = [];
      for (const ratio of RATIOS) {
        const value = Math.log(ratio);
        if (value <= high && value - (found.length ? found[found.length - 1] : 0) >= room) found.push(value);
      }
      return [...found.map(value => -value).reverse(), 0, ...found];
    };
    const plot = new uPlot({
      width: holder.clientWidth, height: holder.clientHeight, padding: [12, 18, 0, 0], legend: { show: false },
      cursor: { x: false, y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: scatter
        ? { x: { time: false, distr: 3, range: () => square }, y: { distr: 3, range: () => square } }
        : { x: { time: false, distr: 3, range: () => sizes }, y: { range: () => [-far, far] } },
      axes: scatter
        ? [axis({ label: "Measured", splits: powers(10), filter: (u, s) => s, values: (u, s) => s.map(seconds), size: 30 }), axis({ label: "Modelled", splits: powers(10), filter: (u, s) => s, values: (u, s) => s.map(seconds), size: 62 })]
        : [axis({ label: holder.dataset.size[0].toUpperCase() + holder.dataset.size.slice(1), splits: powers(chart.size_unit === "B" ? 2 : 10), filter: (u, s) => s, values: (u, s) => s.map(named), size: 30 }),
           axis({ label: "Modelled over measured", splits: ratios, values: (u, s) => s.map(value => value === 0 ? "as measured" : times(Math.exp(value))), size: 86 })],
      series,
      hooks: {
        drawAxes: [u => {
          const [low, high] = ends, part = Math.exp(floor);
          if (floor) shape(u, scatter ? [[low, low / part], [low, low * part], [high, high * part], [high, high / part]] : [[low, -floor], [low, floor], [high, floor], [high, -floor]], colour("track"));
          shape(u, scatter ? [[low, low], [high, high]] : [[low, 0], [high, 0]], null, colour("ink"));
        }],
      },
    }, columns, holder);
    // The dot nearest to the pointer, in words: its row, both times, and what limits it.
    const output = document.querySelector(`[data-live="${holder.dataset.chart}"]`);
    const spot = i => [u => u.valToPos(across[i], "x"), u => u.valToPos(up[i], "y")].map(f => f(plot));
    plot.over.addEventListener("mousemove", event => {
      const at = plot.over.getBoundingClientRect(), x = event.clientX - at.left, y = event.clientY - at.top;
      let best = -1, reach = 24 ** 2;
      for (let i = 0; i < count; i++) {
        const [left, top] = spot(i), distance = (left - x) ** 2 + (top - y) ** 2;
        if (distance < reach) { reach = distance; best = i; }
      }
      output.textContent = best < 0 ? "\u00a0" : Object.entries(chart.numbers).map(([name, values]) => name + " " + values[best]).concat(chart.choices[chart.choice[best]]).filter(Boolean).join(", ") +
        ": measured " + seconds(chart.measured[best]) + ", modelled " + seconds(chart.modelled[best]) + " (" + times(chart.modelled[best] / chart.measured[best]) + "), " + chart.bounds[chart.bound[best]];
    });
    plot.over.addEventListener("mouseleave", () => { output.textContent = "\u00a0"; });
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
