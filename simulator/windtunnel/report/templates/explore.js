// The page of `windtunnel explore`: sends the values of controls over one connection, and shows what comes back.
// Names and messages reach the page as text only.
(() => {
  const { data, colour, trim, axis, base, live, rule, start } = report;
  const $ = id => document.getElementById(id);
  const SLOTS = ["A", "B"];
  const MARKS = report.marks;
  const byName = new Map(data.controls.map(control => [control.name, control]));
  const designs = { A: fresh({}), B: null };
  const inputs = { A: new Map(), B: new Map() };
  let metric = data.timed[0] || null, socket = null, count = 0, redraw = () => {};

  function fresh(changes) {
    return { changes, number: 0, waiting: false, again: false, sentAt: 0, seen: null, stage: "", refused: "", settings: [],
      values: {}, options: {}, curve: new Map(), curveOf: "", knees: {}, fine: false };
  }
  function make(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(properties))
      key.includes("-") || key === "for" || key === "role" || key === "list" ? node.setAttribute(key, value) : (node[key] = value);
    node.append(...children.filter(child => child != null));
    return node;
  }
  const valueOf = (slot, control) => {
    const { changes, values } = designs[slot], name = control.name;
    return name in changes ? changes[name] : name in values ? values[name] : control.value;
  };
  const same = (a, b) => a === b || (a != null && b != null && String(a) === String(b));

  // Controls.

  function build() {
    const sections = new Map();
    for (const control of data.controls) {
      if (!sections.has(control.section)) {
        const fieldset = make("fieldset", {}, make("legend", { textContent: control.section }));
        sections.set(control.section, { fieldset, more: null });
        $("sections").append(fieldset);
      }
      const part = sections.get(control.section);
      if (control.more && !part.more) {
        part.more = make("details", {}, make("summary", { textContent: "More" }));
        part.fieldset.append(part.more);
      }
      const row = make("div", { className: "row" }, make("span", { className: "name", textContent: control.label, title: control.hint, "aria-hidden": "true" }));
      for (const slot of SLOTS) row.append(cell(control, slot));
      (control.more ? part.more : part.fieldset).append(row);
    }
  }

  function cell(control, slot) {
    const label = `${control.section}, ${control.label}, design ${slot}`, box = make("div", { className: `cell ${slot.toLowerCase()}`, hidden: slot === "B" });
    const parts = { control, box };
    if (control.kind === "slider") {
      parts.range = make("input", { type: "range", min: 0, max: control.options.length - 1, step: 1, "aria-label": label });
      parts.range.addEventListener("input", () => set(slot, control, control.options[+parts.range.value][0], false));
      parts.range.addEventListener("change", () => remember());
      if (control.typed) {
        parts.text = make("input", { type: "text", "aria-label": `${label}, typed`, spellcheck: false });
        parts.text.addEventListener("change", () => { set(slot, control, typed(control, parts.text.value), true); });
      } else parts.output = make("output", {});
      box.append(make("div", { className: "slide" }, parts.range, parts.text || parts.output));
    } else if (control.kind === "text") {
      parts.text = make("input", { type: "text", "aria-label": label, placeholder: "none", title: control.hint, spellcheck: false });
      parts.text.addEventListener("change", () => set(slot, control, parts.text.value.trim() || null, true));
      box.append(parts.text);
    } else {
      parts.select = make("select", { "aria-label": label });
      parts.choices = [];
      let group = null;
      for (const [value, text, heading] of control.options) {
        if (heading && heading !== group?.label) parts.select.append((group = make("optgroup", { label: heading })));
        const option = make("option", { value: JSON.stringify(value), textContent: text });
        parts.choices.push([value, text, option]);
        (heading ? group : parts.select).append(option);
      }
      parts.select.addEventListener("change", () => set(slot, control, JSON.parse(parts.select.value), true));
      parts.why = make("details", { className: "why", hidden: true }, make("summary"), make("ul"));
      box.append(parts.select, parts.why);
    }
    inputs[slot].set(control.name, parts);
    return box;
  }

  // A typed text that one of the values has is that value. A number without a unit has the unit that is shown.
  function typed(control, text) {
    const known = control.options.find(([, shown]) => shown === text.trim());
    if (known) return known[0];
    return control.percent && /^[\d.]+(e[+-]?\d+)?$/i.test(text.trim()) ? text.trim() + "%" : text.trim();
  }
  function shown(control, value) {
    const known = control.options.find(([own]) => same(own, value));
    if (control.percent && typeof value === "number") return trim(value * 100) + "%";
    return known ? known[1] : value == null ? "" : String(value);
  }
  // Where a slider stands for a value that is none of its own: at the nearest one.
  function placeOf(control, value) {
    const exact = control.options.findIndex(([own]) => same(own, value));
    if (exact >= 0) return exact;
    const wanted = parseFloat(value) / (String(value).trim().endsWith("%") && control.percent ? 100 : 1);
    let best = 0, least = Infinity;
    control.options.forEach(([own], i) => {
      const distance = typeof own === "number" ? Math.abs(own - wanted) : Infinity;
      if (distance < least) [best, least] = [i, distance];
    });
    return best;
  }

  function show(slot) {
    if (!designs[slot]) return;
    for (const parts of inputs[slot].values()) {
      const { control } = parts, value = valueOf(slot, control), text = shown(control, value);
      if (parts.range) {
        parts.range.value = placeOf(control, value);
        parts.range.setAttribute("aria-valuetext", text);
      }
      if (parts.text && document.activeElement !== parts.text) parts.text.value = text;
      if (parts.output) parts.output.textContent = text;
      if (parts.select) {
        parts.select.value = JSON.stringify(value);
        refusals(parts, designs[slot].options[control.name], value);
      }
      parts.box.classList.toggle("changed", !same(value, control.value));
    }
  }

  function refusals(parts, refused, value) {
    const reasons = [];
    for (const [own, text, option] of parts.choices) {
      const why = refused?.[own === null ? "None" : String(own)];
      option.disabled = why != null && !same(own, value);
      option.title = why || "";
      if (why != null) reasons.push([text, why]);
    }
    parts.why.hidden = reasons.length === 0;
    if (parts.reasons === JSON.stringify(reasons)) return;
    parts.reasons = JSON.stringify(reasons);
    parts.why.firstChild.textContent = `${reasons.length} of ${parts.choices.length} do not fit: why`;
    parts.why.lastChild.replaceChildren(...reasons.map(([text, why]) => make("li", {}, make("b", { textContent: text }), ": " + why)));
  }

  function set(slot, control, value, done) {
    const design = designs[slot], follows = /\.(replicas|price)$/.test(control.name);
    if (same(value, control.value) && !follows) delete design.changes[control.name];
    else design.changes[control.name] = value;
    // A price belongs to a device.
    if (control.name.endsWith(".device")) delete design.changes[control.name.replace(/device$/, "price")];
    show(slot);
    ask(slot);
    if (done) remember();
  }

  // What is asked, and what comes back.

  function ask(slot) {
    const design = designs[slot];
    if (!socket || socket.readyState !== WebSocket.OPEN) return;
    // A first look takes a moment. Asking again before it is there would only delay what the user sees.
    if (design.waiting && performance.now() - design.sentAt < 1000) return void (design.again = true);
    Object.assign(design, { number: ++count, waiting: true, again: false, sentAt: performance.now() });
    socket.send(JSON.stringify({ slot, number: design.number, changes: design.changes }));
    $(`verdict-${slot}`).classList.add("waiting");
  }
  function answered(slot) {
    designs[slot].waiting = false;
    if (designs[slot].again) ask(slot);
  }

  const receive = {
    follows(design, message, slot) {
      Object.assign(design, { settings: message.settings, values: message.values });
      show(slot);
    },
    seen(design, message, slot) {
      Object.assign(design, { seen: message.seen, stage: message.stage, refused: "" });
      if (message.stage === "first") design.first = message.seen;
      const { load, ...others } = design.changes, of = JSON.stringify(others);
      if (design.curveOf !== of) {
        design.curveOf = of;
        design.fine = false;
        for (const point of design.curve.values()) point.old = true;
      }
      if (message.stage === "first") answered(slot);
      frame();
      if (message.stage !== "first") announce(slot);
    },
    stage(design, message) { design.stage = message.stage; frame(); },
    point(design, message) {
      const before = design.curve.get(message.load);
      if (before && !before.old && before.fine && !message.fine) return;
      design.curve.set(message.load, { values: message.values, rate: message.rate, fine: message.fine });
      design.fine = design.fine || message.fine;
      frame();
    },
    knees(design, message) {
      Object.assign(design, { knees: message.knees, curveJobs: message.jobs });
      for (const load of [...design.curve.keys()]) if (!message.loads.includes(load)) design.curve.delete(load);
      frame();
    },
    options(design, message, slot) { design.options[message.control] = message.refused; show(slot); },
    refused(design, message, slot) { design.refused = message.message; answered(slot); frame(); announce(slot); },
  };

  function connect() {
    socket = new WebSocket(location.href.replace(/^http/, "ws").replace(/[?#].*/, "") + "live");
    socket.addEventListener("open", () => SLOTS.forEach(slot => designs[slot] && ask(slot)));
    socket.addEventListener("message", event => {
      const message = JSON.parse(event.data), design = designs[message.slot];
      if (design && message.number === design.number) receive[message.kind](design, message, message.slot);
    });
    socket.addEventListener("close", () => {
      $("lost").textContent = "The program behind this page has ended. Run windtunnel explore again, and open the address that it prints.";
      $("lost").hidden = false;
    });
  }

  // Figures.

  let framed = false;
  function frame() {
    if (framed) return;
    framed = true;
    requestAnimationFrame(() => { framed = false; render(); });
  }
  // What is shown of a design. Two designs are shown by runs of the same jobs: by first looks until both are simulated whole.
  function current(slot) {
    const design = designs[slot];
    if (!design || design.refused) return null;
    const early = SLOTS.some(other => designs[other] && !designs[other].refused && designs[other].seen === designs[other].first);
    return designs.A && designs.B && early ? design.first : design.seen;
  }
  const STAGES = { curves: "finer curves", first: "first look", compiling: "loading the simulation engine (the first time it is compiled, for up to a few minutes)", whole: "simulating", intervals: "computing confidence intervals", done: "" };

  function render() {
    const two = designs.B != null;
    for (const slot of SLOTS) {
      verdict(slot);
      $("command-" + slot).textContent = designs[slot] ? command(designs[slot]) : "";
    }
    const of = SLOTS.filter(current).map(slot => {
      const seen = current(slot), { stage } = designs[slot], rate = seen.rate_per_s == null ? "" : `, ${(+seen.rate_per_s.toPrecision(3)).toLocaleString("en")}/s`;
      return [slot, `${seen.basis}${rate}${STAGES[stage] ? ` · ${STAGES[stage]}…` : ""}`];
    });
    const alike = of.length === 2 && of[0][1] === of[1][1];
    $("basis").textContent = (alike || !two ? of.slice(0, 1).map(([, text]) => text) : of.map(one => one.join(": "))).join("; ") || (designs.A.refused ? "not simulated" : "simulating…");
    table(two);
    const seen = current("A") || current("B");
    $("inputs").textContent = SLOTS.map(slot => designs[slot]?.seen?.inputs).filter(Boolean).map((text, i) => (two ? "AB"[i] + ": " : "") + text).join(". ");
    const notes = SLOTS.flatMap(slot => (current(slot)?.notes || []).map(note => (two ? slot + ": " : "") + note));
    $("notes-section").hidden = notes.length === 0;
    $("notes").replaceChildren(...notes.map(note => make("li", { textContent: note })));
    if (seen) metrics(seen);
    legend(two);
    redraw();
    glance(two);
  }

  function verdict(slot) {
    const design = designs[slot], box = $(`verdict-${slot}`);
    box.hidden = !design;
    if (!design) return;
    const { refused } = design, seen = current(slot), status = refused ? "missed" : seen?.status || "none";
    box.dataset.stage = refused ? "refused" : design.stage;
    box.className = `answer ${status}${design.waiting ? " waiting" : ""}`;
    const heading = make("h2", {}, make("span", { className: "mark", textContent: MARKS[status], "aria-hidden": "true" }), refused ? "This design cannot run" : seen?.verdict || "…");
    const which = make("p", { className: "which" }, `Design ${slot}`, make("span", { textContent: !refused && STAGES[design.stage] ? `· ${STAGES[design.stage]}…` : "" }));
    const parts = [which, heading];
    if (refused) parts.push(make("p", { className: "message", textContent: refused }));
    else if (seen?.targets.length) parts.push(make("ul", { className: "targets" }, ...seen.targets.map(target => make("li", { className: target.status },
      make("span", { className: "badge", textContent: `${MARKS[target.status]} ${target.label.split(" (")[0]}` }),
      make("span", { className: "target-text", textContent: target.text }),
      make("span", { className: "measured" }, make("b", { textContent: target.measured })),
      make("span", { className: "margin", textContent: [target.margin, (target.label.match(/\((.*)\)/) || [])[1]].filter(Boolean).join(" · ") })))));
    box.replaceChildren(...parts);
  }

  const command = design => ["windtunnel run", quoted(data.file), ...data.options.map(words => words.map(quoted).join(" ")), ...design.settings.map(text => "--set " + quoted(text))].join(" \\\n  ");
  const quoted = text => /^[\w@%+=:,./-]+$/.test(text) ? text : "'" + text.replaceAll("'", `'"'"'`) + "'";

  function table(two) {
    const seen = SLOTS.map(current), rows = [];
    const named = seen.map(run => new Map((run?.figures || []).map(figure => [figure.name, figure])));
    const names = [...new Map([...named[0], ...named[1]]).values()];
    let part = "";
    for (const figure of names) {
      if (figure.section !== part) {
        part = figure.section;
        rows.push(make("tr", { className: "part" }, make("th", { colSpan: two ? 4 : 2, scope: "colgroup", textContent: part })));
      }
      const [a, b] = named.map(map => map.get(figure.name));
      const row = make("tr", {}, make("th", { scope: "row", textContent: figure.label }), entry(a));
      row.dataset.figure = figure.name;
      if (two) row.append(entry(b), difference(a, b));
      rows.push(row);
    }
    const head = ["Figure", two ? "A" : "Design A", ...(two ? ["B", "B against A"] : [])];
    $("table").replaceChildren(
      make("thead", {}, make("tr", {}, ...head.map((text, i) => make("th", { scope: "col", textContent: text, className: i ? "n" : "" })))),
      make("tbody", {}, ...rows));
  }
  function entry(figure) {
    const cell = make("td", {}, figure ? figure.text : "–");
    if (figure?.chance) cell.append(make("small", { textContent: `95% by chance: ${figure.chance}` }));
    if (figure?.model) cell.append(make("small", { textContent: `90% by model error: ${figure.model}` }));
    return cell;
  }
  function difference(a, b) {
    if (a?.value == null || b?.value == null) return make("td", { textContent: "–" });
    if (a.value === b.value) return make("td", { textContent: "the same" });
    if (a.value === 0) return make("td", { textContent: "–" });
    const share = (b.value - a.value) / Math.abs(a.value), less = share < 0;
    const size = Math.abs(share) >= 2 ? `${trim(b.value / a.value)} times` : `${less ? "−" : "+"}${trim(+(Math.abs(share) * 100).toFixed(1))}%`;
    const told = a.better && Math.abs(share) >= 0.01, good = (a.better === "less") === less;
    return make("td", { className: told ? (good ? "good" : "less-good") : "" }, size, told ? make("small", { textContent: good ? "better" : "worse" }) : null);
  }

  function metrics(seen) {
    const times = seen.figures.filter(figure => figure.section === "Times");
    const key = times.map(figure => figure.name).join();
    if ($("metric").dataset.key === key) return;
    $("metric").dataset.key = key;
    if (!times.some(figure => figure.name === metric)) metric = (times.find(figure => figure.name.endsWith("p99")) || times[0])?.name;
    $("metric").replaceChildren(...times.map(figure => make("option", { value: figure.name, textContent: figure.label, selected: figure.name === metric })));
  }
  function legend(two) {
    const svg = style => {
      const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [key, value] of Object.entries({ class: "swatch", width: 26, height: 8, "aria-hidden": "true" })) drawing.setAttribute(key, value);
      for (const [key, value] of Object.entries({ class: "line-" + style, x1: 1, x2: 25, y1: 4, y2: 4 })) line.setAttribute(key, value);
      drawing.append(line);
      return drawing;
    };
    const items = [["a", "design A"], ...(two ? [["b", "design B"]] : []), ["limit", "limit of the target"], ["knee", "knee: the time rises steeply from here on"]];
    if ($("legend").dataset.key === String(two)) return;
    $("legend").dataset.key = String(two);
    $("legend").replaceChildren(...items.map(([style, text]) => make("li", {}, svg(style), text)));
  }
  function glance(two) {
    const figure = (seen, name) => seen?.figures.find(one => one.name === name);
    $("glance").replaceChildren(...SLOTS.filter(slot => designs[slot]).map(slot => {
      const { refused } = designs[slot], seen = current(slot), status = refused ? "missed" : seen?.status || "none";
      const texts = [metric, "power", "million"].map(name => figure(seen, name)).filter(Boolean).map((one, i) => i ? one.text : `${one.label} ${one.text}`);
      return make("p", { className: status }, make("b", { textContent: `${two ? slot + " " : ""}${MARKS[status]}` }), refused ? "cannot run" : texts.join(" · ") || "…");
    }));
  }
  let said = 0;
  function announce(slot) {
    clearTimeout(said);
    said = setTimeout(() => {
      const refused = designs[slot]?.refused, seen = current(slot);
      if (!seen && !refused) return;
      $("announce").textContent = `Design ${slot}: ` + (refused || [seen.verdict, ...seen.targets.map(target => `${target.text}: ${target.measured}`)].join(". "));
    }, 500);
  }

  // Charts.

  const loadOf = design => {
    const text = String(design.changes.load ?? 1);
    return text.includes("%") ? parseFloat(text) / 100 : parseFloat(text);
  };
  const STEPS = { s: [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1, ""]], W: [[1e6, "M"], [1e3, "k"], [1, ""], [1, ""]], J: [[1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1, ""]] };
  const amount = unit => { const scale = report.scaled(STEPS[unit], unit); return value => value == null ? "–" : scale(value); };
  const SHOWN = { time: amount("s"), power: amount("W"), energy: amount("J"), million: value => value == null ? "–" : trim(value) + " USD" };

  function chart(holder, width) {
    const name = holder.dataset.chart, seen = current("A") || current("B");
    const priced = SLOTS.some(slot => current(slot)?.figures.some(figure => figure.name === "million" && figure.value != null));
    const of = name === "time" ? metric : name === "power" ? "power" : priced ? "million" : "energy";
    const show = SHOWN[name === "time" ? "time" : of];
    const titled = seen?.figures.find(figure => figure.name === of);
    if (name === "time") $("curve-basis").textContent = basisOfCurves();
    if (name === "cost" && titled) $("cost-title").textContent = titled.label;
    const points = {}, here = {};
    for (const slot of SLOTS) {
      points[slot] = new Map();
      const design = designs[slot];
      if (!design || design.refused) continue;
      for (const [load, point] of design.curve) if (point.values[of] != null) points[slot].set(load, point.values[of]);
      const value = current(slot)?.figures.find(figure => figure.name === of)?.value;
      if (value != null) here[slot] = { load: loadOf(design), value };
    }
    const x = [...new Set([...points.A.keys(), ...points.B.keys(), ...Object.values(here).map(one => one.load)])].sort((a, b) => a - b);
    const columns = SLOTS.flatMap(slot => [x.map(load => points[slot].get(load) ?? null), x.map(load => load === here[slot]?.load ? here[slot].value : null)]);
    const all = columns.flat().filter(value => value != null), log = name === "time" && all.length > 0 && Math.min(...all) > 0;
    const limits = name !== "time" ? [] : SLOTS.map(slot => current(slot)?.targets.find(target => target.name === of)?.limit_value ?? null);
    const known = [...all, ...limits.filter(value => value != null)];
    const low = known.length ? Math.min(...known) : 1, high = known.length ? Math.max(...known) : 10;
    const range = log ? [down(low * 0.9), up(high * 1.1)] : [0, (high || 1) * 1.12];
    const line = (own, dash) => ({ stroke: colour(own), width: 2, dash, spanGaps: true, points: { show: true, size: 5, fill: colour(own), stroke: colour(own) } });
    const dot = own => ({ stroke: colour(own), paths: () => null, points: { show: true, size: 12, fill: colour("paper"), stroke: colour(own), width: 3 } });
    const ends = x.length ? [Math.min(...x) * 0.9, Math.max(...x) * 1.06] : [0.2, 2.2];
    return [{
      ...base(holder, width), padding: [10, 14, 0, 0],
      scales: { x: { time: false, range: () => ends }, y: log ? { distr: 3, log: 10, range: () => range } : { range: () => range } },
      axes: [
        axis({ label: "Load (100%: the scenario's)", values: (u, splits) => splits.map(v => Math.round(v * 100) + "%"), size: 28, space: 48 }),
        axis({ ...(log ? { splits: () => decades(...range), filter: (u, splits) => splits } : {}), values: (u, splits) => splits.map(all.length ? show : () => ""), size: 64, space: 30 }),
      ],
      series: [{}, line("c1", []), dot("c1"), line("c2", [7, 3]), dot("c2")],
      hooks: {
        draw: [u => {
          limits.forEach((limit, i) => { if (limit != null && limits.indexOf(limit) === i) rule(u, { y: u.valToPos(limit, "y", true) }, colour("ink")); });
          if (name !== "time") return;
          for (const slot of SLOTS) {
            const knee = designs[slot]?.knees[of];
            if (knee != null && !designs[slot].refused && x.includes(knee)) mark(u, u.valToPos(knee, "x", true), colour(slot === "A" ? "c1" : "c2"));
          }
        }],
        setCursor: [live(name, [(load, i) => Math.round(load * 100) + "%: " + SLOTS.filter((slot, k) => columns[2 * k][i] != null).map((slot, _, list) => (designs.B ? slot + " " : "") + show(columns[2 * SLOTS.indexOf(slot)][i])).join(", ")])],
      },
    }, [x.length ? x : [1], ...(x.length ? columns : columns.map(() => [null]))]];
  }
  function basisOfCurves() {
    const jobs = SLOTS.map(slot => designs[slot]?.curveJobs).filter(Boolean);
    if (!jobs.length) return "";
    return `Lines: the first ${Math.min(...jobs).toLocaleString("en")} ${(current("A") || current("B"))?.figures.some(figure => figure.name === "tokens") ? "requests, with the times of steps from a table whose entries are 5% apart" : "jobs"}, at each load. Ring: what the figures below are of.`;
  }
  function mark(u, x, style) {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio;
    ctx.save();
    ctx.strokeStyle = style;
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash([ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }
  const power = value => 10 ** Math.floor(Math.log10(value) + 1e-9);
  const down = value => { const p = power(value); return p * (value >= 5 * p ? 5 : value >= 2 * p ? 2 : 1); };
  const up = value => { const p = 10 ** Math.floor(Math.log10(value) - 1e-9); return p * (value <= 2 * p ? 2 : value <= 5 * p ? 5 : 10); };
  function decades(low, high) {
    const marks = [], wide = Math.log10(high / low) > 2.4;
    for (let p = Math.floor(Math.log10(low) - 1e-9); p <= Math.ceil(Math.log10(high)); p++)
      for (const digit of wide ? [1] : [1, 2, 5]) {
        const value = +(digit + "e" + p);
        if (value >= low * 0.999 && value <= high * 1.001) marks.push(value);
      }
    return marks;
  }

  // Two designs, the address, and files.

  function layout() {
    const two = designs.B != null;
    document.querySelector(".bench").classList.toggle("two", two);
    for (const node of document.querySelectorAll(".head.b, .cell.b, .kept.b")) node.hidden = !two;
  }
  function remember() {
    const kept = { A: designs.A.changes, ...(designs.B ? { B: designs.B.changes } : {}) };
    const hash = Object.keys(kept.A).length || kept.B ? "#" + encodeURIComponent(JSON.stringify(kept)) : "#";
    if (hash !== (location.hash || "#")) history.pushState(null, "", hash);
  }
  function recall() {
    let kept = {};
    try { kept = JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}"); } catch { /* an address that somebody cut */ }
    for (const slot of SLOTS) {
      const changes = kept[slot] && typeof kept[slot] === "object" ? Object.fromEntries(Object.entries(kept[slot]).filter(([name]) => byName.has(name))) : slot === "A" ? {} : null;
      if (!changes) { if (designs[slot]) forget(slot); continue; }
      if (!designs[slot]) designs[slot] = fresh(changes);
      else if (JSON.stringify(designs[slot].changes) === JSON.stringify(changes)) continue;
      designs[slot].changes = changes;
      show(slot);
      ask(slot);
    }
    layout();
    SLOTS.forEach(show);
    frame();
  }
  function forget(slot) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ slot, number: ++count, changes: null }));
    designs[slot] = null;
  }

  const actions = {
    compare() {
      designs.B = { ...fresh({ ...designs.A.changes }), options: { ...designs.A.options }, values: { ...designs.A.values } };
      layout();
      show("B");
      ask("B");
      remember();
      frame();
      inputs.B.values().next().value.range.focus();
    },
    remove() { forget("B"); layout(); remember(); frame(); $("compare").focus(); },
    reset(slot) { designs[slot].changes = {}; show(slot); ask(slot); remember(); },
    async write(slot) {
      const line = $("written-" + slot);
      try {
        const reply = await fetch("write", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ changes: designs[slot].changes }) });
        const answer = await reply.json();
        line.replaceChildren(...(reply.ok ? ["Wrote ", make("code", { textContent: answer.path })] : [answer.message]));
      } catch { line.textContent = "The program behind this page has ended."; }
    },
  };
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-do]");
    if (button) actions[button.dataset.do](button.dataset.slot);
  });
  $("controls").addEventListener("submit", event => event.preventDefault());
  $("metric").addEventListener("change", () => { metric = $("metric").value; frame(); });
  addEventListener("popstate", recall);

  build();
  redraw = start(chart);
  recall();
  connect();
})();
