// Draws the charts of a run report.
(() => {
  const { data, FONT, colour, trim, axis, base, live, rule, start } = report;
  const DASHES = [[], [7, 3], [2, 2], [9, 2, 2, 2], [4, 2], [12, 4], [2, 4], [6, 2, 2, 2, 2, 2]];
  // In the order of their priority on a narrow axis.
  const PERCENTILES = [99, 50, 90, 99.9, 95, 99.99, 99.999];
  const place = percentile => -Math.log10(1 - percentile / 100);

  function quantity(value, unit) {
    if (value == null) return "–";
    if (value === 0) return "0 " + unit;
    if (unit === "s" && value >= 60) return value >= 172800 ? trim(value / 86400) + " d" : value >= 3600 ? trim(value / 3600) + " h" : trim(value / 60) + " min";
    const steps = unit === "s" ? [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]]
      : [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"]];
    const [scale, prefix] = steps.find(([scale]) => Math.abs(value) >= scale * 0.9995) || steps[steps.length - 1];
    return trim(value / scale) + " " + prefix + unit;
  }
  const plain = value => value == null ? "–" : value >= 1000 ? Math.round(value).toLocaleString("en") : trim(value);

  // 1, 2 and 5 in every decade between two bounds, or powers of ten alone if these are too many. From a minute on,
  // round numbers of minutes, hours or days.
  const LONG = [[60, 1], [120, 0], [300, 0], [600, 1], [1800, 0], [3600, 1], [7200, 0], [18000, 0], [36000, 1], [86400, 0], [172800, 0], [432000, 1], [864000, 0]];
  function decades(low, high) {
    const marks = LONG.filter(([mark, main]) => mark >= low * 0.999 && mark <= high * 1.001 && (main || Math.log10(high / low) <= 3.2)).map(([mark]) => mark);
    for (let power = Math.floor(Math.log10(low) + 1e-9); power <= Math.ceil(Math.log10(high)); power++)
      for (const digit of Math.log10(high / low) > 3.2 ? [1] : [1, 2, 5]) {
        const mark = +(digit + "e" + power);
        if (mark >= low * 0.999 && mark <= high * 1.001 && mark < 60) marks.push(mark);
      }
    return marks.sort((a, b) => a - b);
  }
  const roundDown = value => { const p = 10 ** Math.floor(Math.log10(value) + 1e-9); return p * (value >= 5 * p ? 5 : value >= 2 * p ? 2 : 1); };
  const roundUp = value => { const p = 10 ** Math.floor(Math.log10(value) - 1e-9); return p * (value <= 2 * p ? 2 : value <= 5 * p ? 5 : 10); };

  // Text at the left end of a line, `gap` pixels above it (below it if negative). A plate in the colour of the page
  // keeps it readable across curves and grid lines.
  function label(u, y, content, style, gap) {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio, x = bbox.left + 4 * ratio;
    const text = content.length > 44 ? content.slice(0, 30) + "…" + content.slice(-12) : content;
    ctx.save();
    ctx.font = "600 " + 12 * ratio + "px " + FONT.slice(5);
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    const middle = y - (gap + Math.sign(gap) * 7) * ratio;
    ctx.globalAlpha = 0.85;
    ctx.fillStyle = colour("paper");
    ctx.fillRect(x - 2 * ratio, middle - 7 * ratio, ctx.measureText(text).width + 4 * ratio, 14 * ratio);
    ctx.globalAlpha = 1;
    ctx.fillStyle = style;
    ctx.fillText(text, x, middle);
    ctx.restore();
  }

  // A limit that may change with time, as steps; there is a gap where there is no limit.
  function limit(u, steps) {
    if (!steps) return;
    const { ctx, bbox } = u, ratio = uPlot.pxRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.strokeStyle = colour("ink");
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash([5 * ratio, 4 * ratio]);
    ctx.beginPath();
    let drawing = false;
    steps.y.forEach((value, i) => {
      if (value == null) return void (drawing = false);
      const y = u.valToPos(value, "y", true), from = u.valToPos(steps.x[i], "x", true);
      const to = i + 1 < steps.x.length ? u.valToPos(steps.x[i + 1], "x", true) : bbox.left + bbox.width;
      drawing ? ctx.lineTo(from, y) : ctx.moveTo(from, y);
      ctx.lineTo(to, y);
      drawing = true;
    });
    ctx.stroke();
    ctx.restore();
  }

  // Loads of designs, failures and brown-outs behind the curves: the darker, the larger the share of the devices.
  function shade(u, chart) {
    const { ctx, bbox } = u, { loading, down, brown_out: spans } = chart.shades;
    const across = value => Math.min(Math.max(u.valToPos(value, "x", true), bbox.left), bbox.left + bbox.width);
    const band = (from, to, name, alpha) => {
      ctx.globalAlpha = alpha;
      ctx.fillStyle = colour(name);
      ctx.fillRect(across(from), bbox.top, Math.max(across(to) - across(from), to > from ? uPlot.pxRatio : 0), bbox.height);
    };
    ctx.save();
    (loading || []).forEach((share, i) => { if (share) band(chart.x[i], chart.x[i + 1], "c3", 0.06 + 0.3 * share); });
    (down || []).forEach((share, i) => { if (share) band(chart.x[i], chart.x[i + 1], "missed", 0.06 + 0.5 * share); });
    (spans || []).forEach(([from, to]) => band(from, to, "assumed", 0.22));
    ctx.restore();
  }

  function drawTargets(u, targets) {
    const ratio = uPlot.pxRatio, { ctx, bbox } = u;
    const placed = targets.map(target => ({
      ...target, y: u.valToPos(target.limit, "y", true), style: colour(report.tones[target.state]),
      x: target.at != null && target.at <= u.scales.x.max ? u.valToPos(target.at, "x", true) : null,
    }));
    placed.forEach(({ y, style }) => rule(u, { y }, style));
    for (const { x, y, style } of placed) {
      if (x == null) continue;
      // The point of the curve that the target limits: the curve must pass below it.
      ctx.save();
      ctx.setLineDash([]);
      ctx.beginPath();
      ctx.arc(x, y, 4.5 * ratio, 0, 2 * Math.PI);
      ctx.fillStyle = colour("paper");
      ctx.strokeStyle = style;
      ctx.lineWidth = 2 * ratio;
      ctx.fill();
      ctx.stroke();
      ctx.restore();
    }
    for (const target of placed) {
      const beside = target.x != null && target.x < bbox.left + 160 * ratio;
      const crowded = target.y < bbox.top + 24 * ratio
        || placed.some(other => other !== target && other.y <= target.y && target.y - other.y < 24 * ratio);
      label(u, target.y, `${report.marks[target.state]} ${target.label}`, target.style, (crowded ? -1 : 1) * (beside ? 7 : 3));
    }
  }

  function percentileChart(name, chart, options) {
    const values = chart.series.flatMap(series => series.y).filter(value => value != null).concat(chart.targets.map(t => t.limit));
    const low = roundDown(Math.min(...values)), high = roundUp(Math.max(...values) * 1.05);
    const end = chart.x[chart.x.length - 1];
    const across = p => place(p) / end * (options.width - 88), marks = [];
    // A percentile that a target limits has priority on the axis.
    const named = chart.targets.filter(target => target.at != null).map(target => +(100 * (1 - 10 ** -target.at)).toFixed(6));
    for (const p of [...named, ...PERCENTILES])
      if (place(p) <= end + 1e-6 && marks.every(other => Math.abs(across(p) - across(other)) > (p > 99.9 ? 46 : 38))) marks.push(p);
    marks.sort((a, b) => a - b);
    const seconds = value => quantity(value, "s"), shift = chart.series[0].all ? 1 : 0;
    return {
      ...options, padding: [10, 26, 0, 0],
      scales: { x: { time: false, range: () => [0, end] }, y: { distr: 3, log: 10, range: () => [low, high] } },
      axes: [
        axis({ splits: () => marks.map(place), values: () => marks.map(p => "p" + p), size: 30 }),
        axis({ splits: () => decades(low, high), filter: (u, splits) => splits, values: (u, splits) => splits.map(seconds), size: 62 }),
      ],
      series: [{}, ...chart.series.map((series, i) => ({
        stroke: colour(series.all ? "ink" : "c" + (i + 1 - shift)), width: series.all ? 2.5 : 1.75,
        dash: series.all ? [] : DASHES[i - shift], pxAlign: 0, points: { show: false },
      }))],
      hooks: {
        draw: [u => drawTargets(u, chart.targets)],
        setCursor: [live(name, [x => "at p" + +(100 * (1 - 10 ** -x)).toFixed(3), ...chart.series.map(() => seconds)])],
      },
    };
  }

  function timeChart(name, chart, options) {
    const top = Math.max(...(chart.limit?.y || []).filter(value => value != null), ...chart.peak) || 1;
    const show = ["jobs", "devices"].includes(chart.unit) ? plain : value => quantity(value, chart.unit);
    const steps = [];
    for (let power = -9; power < 2; power++) for (const digit of [1, 2, 5]) steps.push(+(digit + "e" + power));
    steps.splice(steps.indexOf(50), 1, 30);
    steps.pop(), steps.pop();
    steps.push(60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000, 1728000);
    // One unit for the whole axis, with steps that are round in it.
    const end = chart.x[chart.x.length - 1];
    const [size, unit] = end >= 345600 ? [86400, "d"] : end >= 7200 ? [3600, "h"] : end >= 120 ? [60, "min"] : end >= 1 ? [1, "s"] : end >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
    const round = steps.filter(step => size < 60 || (step >= size / 2 && !(size > 3600 && step < 43200)));
    const moment = value => +(value / size).toPrecision(6) + " " + unit;
    const stepped = uPlot.paths.stepped({ align: 1 });
    return {
      ...options, cursor: { y: false, sync: { key: "time" }, drag: { x: true, y: false }, points: { size: 7 } },
      scales: { x: { time: false }, y: { range: () => [0, top * 1.1] } },
      axes: [
        axis({ incrs: round, space: 70, values: (u, splits) => splits.map(moment), size: 30 }),
        axis({ values: (u, splits) => splits.map(show), size: 62, space: 36 }),
      ],
      series: [
        {},
        { stroke: colour("c1"), width: 2, paths: stepped, points: { show: false } },
        { stroke: colour("c1"), width: 0.75, paths: stepped, points: { show: false }, alpha: 0.8 },
      ],
      bands: [{ series: [2, 1], fill: colour("c1") + "2e" }],
      hooks: {
        drawClear: [u => shade(u, chart)],
        draw: [u => limit(u, chart.limit)],
        setCursor: [live(name, [x => "at " + quantity(x, "s"), show, show])],
      },
    };
  }

  start((holder, width) => {
    const name = holder.dataset.chart, chart = data[name], options = base(holder, width);
    return chart.kind === "percentile"
      ? [percentileChart(name, chart, options), [chart.x, ...chart.series.map(series => series.y)]]
      : [timeChart(name, chart, options), [chart.x, chart.mean, chart.peak]];
  });

  const filter = document.getElementById("filter");
  if (!filter) return;
  const groups = [...document.querySelectorAll("details.origin")].map(details => ({
    details, name: details.querySelector("summary").textContent.toLowerCase(), open: details.open,
    rows: [...details.querySelectorAll("tbody tr")].map(row => ({ row, text: row.textContent.toLowerCase(), word: row.dataset.word })),
  }));
  const boxes = [...document.querySelectorAll("input[data-word]")];
  function apply() {
    const wanted = filter.value.trim().toLowerCase(), words = new Set(boxes.filter(box => box.checked).map(box => box.dataset.word));
    const filtering = wanted !== "" || boxes.some(box => !box.checked);
    let shown = 0;
    for (const group of groups) {
      let here = 0;
      for (const { row, text, word } of group.rows) {
        const fits = words.has(word) && (text.includes(wanted) || group.name.includes(wanted));
        row.hidden = !fits;
        here += fits;
      }
      group.details.hidden = here === 0;
      group.details.open = filtering ? here > 0 : group.open;
      shown += here;
    }
    document.getElementById("filtered").textContent = filtering ? shown + " shown" : "";
  }
  filter.addEventListener("input", apply);
  boxes.forEach(box => box.addEventListener("change", apply));
})();
