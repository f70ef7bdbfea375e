// Draws model predictions against measurements: a scatter plot with its diagonal, and residuals by size.
(() => {
  const { data, colour, trim, scaled, axis, base, start } = report;
  const positive = format => value => value > 0 ? format(value) : "";
  const seconds = positive(scaled([[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]], "s"));
  const bytes = positive(scaled([[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"], [1, ""]], "B"));
  const plain = positive(scaled([[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]], ""));
  const times = ratio => ratio >= 1 ? "×" + trim(ratio) : "÷" + trim(1 / ratio);
  // Ratios with round grid lines, above and below 1.
  const RATIOS = [1.001, 1.002, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 100, 1e3, 1e4, 1e5, 1e6];
  const wide = (values, least) => {
    const low = Math.min(...values), high = Math.max(...values), room = Math.max((high / low) ** 0.04, least);
    return [low / room, high * room];
  };
  const powers = root => (u, at, low, high) => {
    const marks = [], first = Math.ceil(Math.log(low) / Math.log(root) - 1e-9), last = Math.log(high) / Math.log(root) + 1e-9;
    const room = Math.max(2, Math.floor((at === 0 ? u.bbox.width / 72 : u.bbox.height / 36) / uPlot.pxRatio));
    const step = Math.max(1, Math.ceil((last - first) / room));
    for (let power = first; power <= last; power += step) marks.push(root ** power);
    if (root === 10 && marks.length < 4 && room > 2 * marks.length) {
      // Between few decades, also 2 and 5.
      const finer = [];
      for (let power = first - 1; power <= last; power++) for (const part of [1, 2, 5]) {
        const value = part * 10 ** power;
        if (value >= low && value <= high) finer.push(value);
      }
      return finer;
    }
    return marks.length > 1 ? marks : [low, Math.sqrt(low * high), high];
  };
  // A shape in the coordinates of the axes, clipped to the plot.
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

  function options(holder, width) {
    const chart = data[+holder.dataset.chart], scatter = holder.dataset.kind === "scatter", count = chart.measured.length;
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
      const room = (high - low) * 30 / Math.max(u.bbox.height / uPlot.pxRatio, 60), marks = [];
      for (const ratio of RATIOS) {
        const value = Math.log(ratio);
        if (value <= high && value - (marks.length ? marks[marks.length - 1] : 0) >= room) marks.push(value);
      }
      return [...marks.map(value => -value).reverse(), 0, ...marks];
    };
    // The point nearest to the pointer in words: its row, both times, and its bound.
    const output = document.querySelector(`[data-live="${holder.dataset.chart}"]`);
    const describe = i => Object.entries(chart.numbers).map(([name, values]) => name + " " + values[i]).concat(chart.choices[chart.choice[i]]).filter(Boolean).join(", ") +
      ": measured " + seconds(chart.measured[i]) + ", modelled " + seconds(chart.modelled[i]) + " (" + times(chart.modelled[i] / chart.measured[i]) + "), bound by " + chart.bounds[chart.bound[i]];
    const observe = plot => {
      plot.over.addEventListener("mousemove", event => {
        const at = plot.over.getBoundingClientRect(), x = event.clientX - at.left, y = event.clientY - at.top;
        let best = -1, reach = 24 ** 2;
        for (let i = 0; i < count; i++) {
          const distance = (plot.valToPos(across[i], "x") - x) ** 2 + (plot.valToPos(up[i], "y") - y) ** 2;
          if (distance < reach) { reach = distance; best = i; }
        }
        output.textContent = best < 0 ? "\u00a0" : describe(best);
      });
      plot.over.addEventListener("mouseleave", () => { output.textContent = "\u00a0"; });
    };
    return [{
      ...base(holder, width), padding: [12, 18, 0, 0],
      cursor: { x: false, y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: scatter
        ? { x: { time: false, distr: 3, range: () => square }, y: { distr: 3, range: () => square } }
        : { x: { time: false, distr: 3, range: () => sizes }, y: { range: () => [-far, far] } },
      axes: scatter
        ? [axis({ label: "Measured", splits: powers(10), filter: (u, s) => s, values: (u, s) => s.map(seconds), size: 30 }), axis({ label: "Modelled", splits: powers(10), filter: (u, s) => s, values: (u, s) => s.map(seconds), size: 62 })]
        : [axis({ label: holder.dataset.size[0].toUpperCase() + holder.dataset.size.slice(1), splits: powers(chart.size_unit === "B" ? 2 : 10), filter: (u, s) => s, values: (u, s) => s.map(named), size: 30 }),
           axis({ label: "Modelled over measured", splits: ratios, values: (u, s) => s.map(value => value === 0 ? "equal" : times(Math.exp(value))), size: 86 })],
      series,
      hooks: {
        ready: [observe],
        drawAxes: [u => {
          const [low, high] = ends, part = Math.exp(floor);
          if (floor) shape(u, scatter ? [[low, low / part], [low, low * part], [high, high * part], [high, high / part]] : [[low, -floor], [low, floor], [high, floor], [high, -floor]], colour("track"));
          shape(u, scatter ? [[low, low], [high, high]] : [[low, 0], [high, 0]], null, colour("ink"));
        }],
      },
    }, columns];
  }

  start(options);
})();
