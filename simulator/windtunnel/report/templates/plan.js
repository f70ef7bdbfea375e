// Draws the cost frontier, the load curve, and the frontier of tokens per device and per user of a plan.
(() => {
  const { data, FONT, colour, trim, scaled, axis, base, live, rule, start } = report;
  const STEPS = { s: [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1, ""]], W: [[1e6, "M"], [1e3, "k"], [1, ""]] };
  const amount = unit => value => value == null ? "–" : scaled(STEPS[unit], unit)(value);
  const seconds = amount("s");
  const wide = (low, high) => { const room = (high - low || Math.abs(high) || 1) * 0.08; return [Math.max(0, low - room), high + room]; };

  // The labels of dots to their right, left, top or bottom: that of the recommended fleet over other dots if it must be,
  // and the others wherever they overlap no dot and no other label.
  function label(u, chart) {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio, high = 14 * ratio, gap = 12 * ratio;
    const dots = chart.names.map((name, i) => [u.valToPos(chart.x[i], "x", true), u.valToPos(chart.front[i] ?? chart.other[i], "y", true)]);
    const taken = dots.map(([x, y]) => [x - 6 * ratio, y - 6 * ratio, x + 6 * ratio, y + 6 * ratio]);
    ctx.save();
    ctx.font = 12 * ratio + FONT.slice(FONT.indexOf("px"));
    ctx.fillStyle = colour("ink");
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    const order = chart.labels.map((_, i) => i).sort((a, b) => chart.recommended[b] - chart.recommended[a]);
    order.forEach(i => {
      const name = chart.labels[i];
      if (!name) return;
      const [x, y] = dots[i], wide = ctx.measureText(name).width;
      const places = [[x + gap, y], [x - gap - wide, y], [x - wide / 2, y - high], [x - wide / 2, y + high]];
      const inside = places.map(([left, middle]) => [left, middle - high / 2, left + wide, middle + high / 2]).filter(box =>
        box[0] >= bbox.left && box[2] <= bbox.left + bbox.width + 20 * ratio && box[1] >= bbox.top && box[3] <= bbox.top + bbox.height);
      const covers = box => taken.filter((other, j) => j !== i && box[2] > other[0] && box[0] < other[2] && box[3] > other[1] && box[1] < other[3]).length;
      const free = inside.find(box => !covers(box));
      const at = free ?? (chart.recommended[i] ? inside.sort((a, b) => covers(a) - covers(b))[0] : null);
      if (!at) return;
      taken.push(at);
      if (!free) {
        ctx.globalAlpha = 0.85;
        ctx.fillStyle = colour("paper");
        ctx.fillRect(at[0], at[1], wide, high);
        ctx.globalAlpha = 1;
        ctx.fillStyle = colour("ink");
      }
      ctx.fillText(name, at[0], (at[1] + at[3]) / 2);
    });
    ctx.restore();
  }

  // A ring around the dot of the recommended fleet.
  function ring(u, chart) {
    const { ctx } = u, ratio = uPlot.pxRatio;
    ctx.save();
    ctx.strokeStyle = colour("ink");
    ctx.lineWidth = 1.5 * ratio;
    chart.recommended.forEach((is, i) => {
      if (!is) return;
      ctx.beginPath();
      ctx.arc(u.valToPos(chart.x[i], "x", true), u.valToPos(chart.front[i] ?? chart.other[i], "y", true), 8.5 * ratio, 0, 2 * Math.PI);
      ctx.stroke();
    });
    ctx.restore();
  }

  function front(chart, options) {
    const dots = (stroke, fill) => ({ stroke, paths: () => null, points: { show: true, size: 9, stroke, fill, width: 2 } });
    const all = chart.front.concat(chart.other).filter(value => value != null), show = amount(chart.unit);
    const x = chart.bound == null ? chart.x : chart.x.concat(chart.bound);
    return [{
      ...options,
      scales: { x: { time: false, range: () => wide(Math.min(...x), Math.max(...x)) }, y: { range: () => wide(Math.min(...all), Math.max(...all)) } },
      axes: [axis({ label: "Cost (USD/h)", values: (u, splits) => splits.map(trim), space: 60, size: 30 }), axis({ label: chart.title, values: (u, splits) => splits.map(show), size: 62 })],
      series: [{}, dots(colour("c1"), colour("c1")), dots(colour("c1"), colour("paper"))],
      hooks: {
        draw: [u => { if (chart.bound != null) rule(u, { x: u.valToPos(chart.bound, "x", true) }, colour("ink")); ring(u, chart); label(u, chart); }],
        setCursor: [live(chart.unit, [(x, i) => chart.names[i] + ": " + trim(x) + " USD/h, " + show(chart.front[i] ?? chart.other[i])])],
      },
    }, [chart.x, chart.front, chart.other]];
  }
  function rates(chart, options) {
    const dots = (stroke, fill) => ({ stroke, paths: () => null, points: { show: true, size: 9, stroke, fill, width: 2 } });
    const all = chart.met.concat(chart.missed, chart.loads).filter(value => value != null);
    const label_chart = { ...chart, front: chart.met.map((v, i) => v ?? chart.missed[i] ?? chart.loads[i]), other: chart.x };
    return [{
      ...options,
      scales: { x: { time: false, range: () => wide(Math.min(...chart.x), Math.max(...chart.x)) }, y: { range: () => wide(Math.min(...all), Math.max(...all)) } },
      axes: [axis({ label: "Tokens per second and user", values: (u, splits) => splits.map(trim), space: 60, size: 30 }), axis({ label: "Tokens per second and device", values: (u, splits) => splits.map(trim), size: 62 })],
      series: [{}, dots(colour("c1"), colour("c1")), dots(colour("c1"), colour("paper")),
        { stroke: colour("c2"), width: 2, spanGaps: true, points: { show: true, size: 6, stroke: colour("c2"), fill: colour("c2") } }],
      hooks: {
        draw: [u => { ring(u, label_chart); label(u, label_chart); }],
        setCursor: [live("rates", [(x, i) => chart.names[i] + ": " + trim(x) + " tokens/s per user, " + trim(label_chart.front[i]) + " per device"])],
      },
    }, [chart.x, chart.met, chart.missed, chart.loads]];
  }
  // The confidence interval of a point.
  function bar(u, x, low, high) {
    if (low == null || high == null) return;
    const at = u.valToPos(x, "x", true), ends = [low, high].map(value => u.valToPos(value, "y", true)), half = 4 * uPlot.pxRatio;
    u.ctx.save();
    u.ctx.strokeStyle = colour("c1");
    u.ctx.lineWidth = 1.5 * uPlot.pxRatio;
    u.ctx.beginPath();
    u.ctx.moveTo(at, ends[0]);
    u.ctx.lineTo(at, ends[1]);
    for (const end of ends) { u.ctx.moveTo(at - half, end); u.ctx.lineTo(at + half, end); }
    u.ctx.stroke();
    u.ctx.restore();
  }
  function curve(chart, options) {
    const values = chart.value.concat(chart.high, chart.limit).filter(value => value != null);
    return [{
      ...options,
      scales: { x: { time: false }, y: { range: () => [0, Math.max(...values) * 1.1] } },
      axes: [axis({ label: "Load (100%: arrivals of the scenario)", values: (u, splits) => splits.map(v => Math.round(v * 100) + "%"), size: 30 }), axis({ label: chart.title, values: (u, splits) => splits.map(seconds), size: 62 })],
      series: [{}, { stroke: colour("c1"), width: 2, points: { show: true, size: 7 } }],
      hooks: {
        draw: [u => {
          if (chart.limit != null) rule(u, { y: u.valToPos(chart.limit, "y", true) }, colour("ink"));
          chart.x.forEach((load, i) => bar(u, load, chart.low[i], chart.high[i]));
          if (chart.knee != null) rule(u, { x: u.valToPos(chart.knee, "x", true) }, colour("c2"));
        }],
        setCursor: [live("curve", [(x, i) => Math.round(x * 100) + "% load: " + seconds(chart.value[i])])],
      },
    }, [chart.x, chart.value]];
  }

  start((holder, width) => {
    const chart = data[holder.dataset.chart];
    return { front, rates, curve }[chart.kind](chart, base(holder, width));
  });
})();
