"""The result of a plan for a terminal: the answer, a table of fleets, the bounds, and the explanation."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from textwrap import wrap

from windtunnel.core.results.candidates import CandidateEntry
from windtunnel.core.results.objective import OBJECTIVES, amount
from windtunnel.core.results.plan import LoadCurve, PlannedFleet, PlanResult
from windtunnel.report.numbers import (
    NOTHING,
    plural,
    printable,
    quantity,
    share,
)
from windtunnel.report.plan_answer import (
    HOURS_A_MONTH,
    at_the_median,
    before_renting,
    objective_of,
    power_errors,
    replica_size,
    verdict,
)
from windtunnel.report.plan_sensitivity import assumption_rows, assumptions_summary, price_rows, prices_note
from windtunnel.report.plan_targets import how, measured
from windtunnel.report.targets import with_signs
from windtunnel.report.text import WIDTH, document, table_lines

_MAX_WIDTH = 120
"""Characters in a line of a table."""
_ENTRIES_NAMED = 6
"""Entries whose limits are listed one by one although they are equal."""

_PROOFS = {
    "exhaustive": "every fleet{limit}{better} was simulated or is excluded by the {bound}",
    "monotone": (
        "every fleet{limit}{better} was simulated, is excluded by the {bound}, or is part of a larger fleet that failed"
    ),
    "open": "the limit of simulated fleets was reached; some fleets{better} were not simulated",
}


def proof(plan: PlanResult) -> str:
    """Return which fleets could still be better; if no fleet meets the targets, which could still meet them."""
    objective, kind = OBJECTIVES[plan.objective], plan.search.proof
    better = f" that {objective.beats} the best fleet by value" if plan.fleets else ""
    return _PROOFS[kind].format(better=better, limit=plan.search.limit, bound=objective.bound_name)


def text(plan: PlanResult) -> str:
    """Return the plan as lines for a terminal."""
    lines = wrap(printable(f"{plan.name}: {verdict(plan)}"), width=_MAX_WIDTH, subsequent_indent="  ")
    if plan.explanation.price_of_confidence is not None:
        lines += wrap(printable(with_signs(plan.explanation.price_of_confidence.text)), width=WIDTH)
    for label, sentences in (("Before renting", before_renting(plan)), ("At the median", at_the_median(plan))):
        if sentences:
            lines += wrap(printable(f"{label}: {with_signs(sentences)}"), width=WIDTH)
    lines.append("")
    if plan.fleets:
        lines += [*fleet_table(listed(plan), plan), ""]
    if plan.choices:
        lines += [*table_lines(choice_rows(plan), "<<>"), ""]
    for label, sentence in bounds(plan):
        lines += wrap(f"{label:<12} {sentence}", width=WIDTH, subsequent_indent=" " * 13)
    lines.append("")
    for sentence in plan.explanation.sentences:
        lines += wrap(printable(with_signs(sentence)), width=WIDTH, subsequent_indent="  ")
    if plan.explanation.prices:
        header = ["price of", "now", "another simulated fleet is cheaper", "change", "fleet"]
        lines += ["", *table_lines([header, *price_rows(plan)], "<>>><"), *wrap(prices_note(), width=WIDTH)]
    summary, found = assumptions_summary(plan), plan.explanation.assumptions
    if summary is not None and found is not None and found.inputs:
        header = ["assumed input", "value (range)", "moves a step by", "at the ends", "meets at both"]
        lines += ["", *table_lines([header, *assumption_rows(plan)], "<>>><")]
        for name, what in {row.parameter: row.meaning for row in found.inputs}.items():
            lines += wrap(f"{name}: {what}", width=WIDTH, initial_indent="  ", subsequent_indent="    ")
        lines += ["", *wrap(summary, width=WIDTH)]
    for note in plan.notes:
        lines += wrap(printable(f"note: {note}"), width=WIDTH, subsequent_indent="  ")
    return document(lines)


def run_command(plan: PlanResult, scenario: str, options: Sequence[str] = ()) -> str:
    """Return the command that simulates the recommended fleet; ``options`` are those that the plan was given."""
    words = ["windtunnel", "run", scenario, *options, *(word for change in plan.changes for word in ("--set", change))]
    if plan.run_replications > 1:
        words += ["--replications", str(plan.run_replications)]
    return shlex.join(words)


def alone(plan: PlanResult) -> str:
    """Return what ``run_command`` simulates."""
    return "This fleet with all devices in service" if plan.spare else "This fleet alone"


def prices_source(plan: PlanResult) -> str:
    """Return where the prices of the recommended fleet's devices come from."""
    stated = plan.scenario.get("fleet")
    priced = isinstance(stated, Sequence) and all(isinstance(e, Mapping) and e.get("price") for e in stated)
    described = "" if priced else " and, where it states none, of the description of the device"
    return (
        f"Prices are those of the scenario{described}: inputs, and not offers of a vendor. State your own before you "
        "decide."
    )


def whole_nodes(plan: PlanResult) -> str:
    """Return as sentences, with a blank before them, what a fleet that does not fill its nodes costs in whole ones."""
    best, prices = plan.fleets[plan.recommended], {entry.name: entry.price_usd_per_h for entry in plan.entries}
    cost = None if plan.scenario.get("autoscale") else _in_whole_nodes(best, prices)
    if cost is None or cost <= best.cost_usd_per_h * (1 + 1e-9):
        return ""
    parts = " and ".join(
        f"{count:,} × {device} are {count / node:.3g} nodes of {node:,}"
        for (device, node), (count, _) in _in_nodes(best, prices).items()
        if count % node
    )
    text = f" {parts}: where only whole nodes are for rent, this fleet costs {cost:,.2f} USD/h."
    as_certain = [fleet for fleet in plan.fleets if fleet.meets.confidence or not best.meets.confidence]
    found = [(c, fleet) for fleet in as_certain if (c := _in_whole_nodes(fleet, prices)) is not None]
    how = f"with {plan.confidence * 100:.3g}% confidence" if best.meets.confidence else "by value"
    filling = [f for c, f in found if f.cost_usd_per_h >= cost * (1 - 1e-9) and c <= cost * (1 + 1e-9)]
    same = next((fleet for fleet in filling if set(fleet.entries) == set(best.entries)), None)
    if same is not None:
        text += f" At that cost {same.text} meets the targets {how} too{_headroom_of(same)}."
    least, other = min(found, key=lambda row: row[0])
    if least < cost * (1 - 1e-9):
        text += (
            f" The cheapest simulated one that meets the targets {how} is then {other.text}, at {least:,.2f} "
            f"USD/h{_headroom_of(other)}."
        )
    return text


def _headroom_of(fleet: PlannedFleet) -> str:
    """Return the least headroom of a fleet and from how many runs it is, as the end of a sentence."""
    least = min((target.headroom for target in fleet.targets if target.headroom is not None), default=None)
    runs = max((target.interval_runs or 0 for target in fleet.targets), default=0)
    judged = f" ({runs:,} more runs)" if runs else ""
    return "" if least is None or least < 0 else f", with {share(least)} of headroom{judged}"


def _in_nodes(fleet: PlannedFleet, prices: Mapping[str, float]) -> dict[tuple[str, int], tuple[int, float]]:
    """Return the devices in groups, which share nodes by device, and the highest price (USD/h) of one of them.

    Single devices are for rent, and are left out.
    """
    found: dict[tuple[str, int], tuple[int, float]] = {}
    for entry in fleet.configuration:
        if entry.node and replica_size(entry) > 1:
            count, price = found.get((entry.device, entry.node), (0, 0.0))
            found[entry.device, entry.node] = count + entry.count, max(price, prices[entry.entry])
    return found


def _in_whole_nodes(fleet: PlannedFleet, prices: Mapping[str, float]) -> float | None:
    """Return the rent (USD/h) of a fleet whose nodes are rented whole; None where a price is not known."""
    if any(entry.entry not in prices for entry in fleet.configuration):
        return None
    return fleet.cost_usd_per_h + sum(
        -count % node * price for (_, node), (count, price) in _in_nodes(fleet, prices).items()
    )


def work_text(plan: PlanResult) -> str:
    """Return the work that a plan is for: how many jobs in which time, and their mean numbers of tokens."""
    work = plan.work
    noun = "job" if work.output_tokens is None else "request"
    text = (
        plural(work.jobs, noun)
        if not work.last_arrival_s
        else (f"{plural(work.jobs, noun)} in {quantity(work.last_arrival_s, 's')}")
    )
    if work.prompt_tokens is None or work.output_tokens is None:
        return text
    lengths = f"{work.prompt_tokens:,.0f} prompt and {work.output_tokens:,.0f} output tokens"
    return f"{text}, with {lengths} each on average"


def listed(plan: PlanResult) -> list[PlannedFleet]:
    """Return the fleets that text and report list: the best, and always the recommended one."""
    return [plan.fleets[i] for i in plan.listed]


def fleet_table(fleets: Sequence[PlannedFleet], plan: PlanResult) -> list[str]:
    """Return a line for each fleet; if that is too wide, a line for each of its targets below it."""
    rows = fleet_rows(fleets, plan)
    lines = table_lines(rows, "<>")
    if max(map(len, lines)) <= _MAX_WIDTH:
        return lines
    targets = fleets[0].targets
    head, *fixed = table_lines([row[: len(row) - 2 * len(targets)] for row in rows], "<>")
    details = table_lines(
        [
            [
                with_signs(target.text),
                measured(target, plan),
                "" if target.headroom is None else f"headroom {share(target.headroom)}",
            ]
            for fleet in fleets
            for target in fleet.targets
        ],
        "<",
    )
    blocks = [head]
    for i, row in enumerate(fixed):
        blocks += [row, *(f"    {line}" for line in details[i * len(targets) : (i + 1) * len(targets)])]
    return blocks


def fleet_rows(fleets: Sequence[PlannedFleet], plan: PlanResult) -> list[list[str]]:
    """Return a header and a row for each fleet: its cost and power, and the value and headroom of each target.

    Where the fleets differ in how certainly they meet the targets, or none does with confidence, a column says so.
    """
    confidence = plan.confidence
    header = ["fleet", "cost", "power"]
    certain = all(fleet.meets.confidence for fleet in fleets)
    if not certain:
        header.insert(1, "meets targets")
    carbon = fleets[0].carbon_kg_per_h is not None
    if carbon:
        header.append("carbon")
    if plan.objective == "throughput":
        header.append("throughput")
    for target in fleets[0].targets:
        header += [with_signs(target.text), "headroom"]
    rows = [header]
    for fleet in fleets:
        row = [fleet.text, f"{fleet.cost_usd_per_h:,.2f} USD/h", quantity(fleet.power_w, "W")]
        if not certain:
            row.insert(1, how(fleet.meets, confidence))
        if carbon:
            row.append(f"{fleet.carbon_kg_per_h:.3g} kg CO₂e/h")
        if plan.objective == "throughput":
            row.append(amount(fleet.throughput_per_s_per_device, plan.lower_bound.objective_unit))
        for target in fleet.targets:
            row += [measured(target, plan), NOTHING if target.headroom is None else share(target.headroom)]
        rows.append(row)
    return rows


def _model_errors(entries: Sequence[CandidateEntry]) -> str:
    """Return the error factor of each entry's least certain operation; empty if all times are stated ones.

    Alternatives of a device that have the same factor are stated once.
    """
    by_device: dict[str, dict[str, str]] = {}
    for entry in entries:
        error = entry.time_error
        if error is not None:
            unmeasured = f", {error.unmeasured}" if error.unmeasured else ""
            text = f"{error.factor:.3g} ({error.op}{unmeasured})"
            by_device.setdefault(entry.device, {})[entry.name] = text
    parts = []
    for device, errors in by_device.items():
        alike = len(errors) > 1 and len(set(errors.values())) == 1
        parts += (
            [f"{device} {text}" for text in set(errors.values())]
            if alike
            else [f"{name} {text}" for name, text in errors.items()]
        )
    return "; ".join(parts)


def _numbers(most: Mapping[str, int], devices: Mapping[str, str]) -> str:
    """Return the largest number of devices of each entry as text.

    ``devices`` has the device of each entry, by which its alternatives are named together.
    """
    if len(most) > _ENTRIES_NAMED and len(set(most.values())) == 1:
        return f"up to {max(most.values()):,} of each of {len(most)} entries with their values"
    groups: dict[str, list[str]] = {}
    for name, n in most.items():
        device = devices.get(name, name)
        values = name.removeprefix(device).strip()
        alternative = bool(values) and name.startswith(device)
        groups.setdefault(device if alternative else name, []).append(
            f"{f'{values} ' if alternative else ''}up to {n:,}"
        )
    return "; ".join(f"{name} {', '.join(texts)}" for name, texts in groups.items())


def _settings(policy: object) -> str:
    """Return the settings of the policy that every fleet has in common."""
    if not isinstance(policy, Mapping):
        return f"policy {policy}"
    parts = []
    for key, value in policy.items():
        if isinstance(value, Mapping):
            parts += [
                part if part.startswith("policy ") else f"{key}.{part}" for part in _settings(value).split(", ") if part
            ]
        elif value not in (None, False):
            parts.append(f"policy {value}" if key == "name" else f"{key} {value}")
    return ", ".join(parts)


def held(plan: PlanResult) -> str:
    """Return what every fleet has in common: the policy, the formats of the models, and the other keys by name."""
    parts = [_settings(plan.held["policy"])] if "policy" in plan.held else []
    models, others = plan.held.get("models"), [key for key in plan.held if key not in ("policy", "models")]
    for name, model in models.items() if isinstance(models, Mapping) else ():
        formats = {key: model[key] for key in ("weights", "kv_dtype") if isinstance(model, Mapping) and model.get(key)}
        parts += [f"models.{name}.{part}" for part in _settings(formats).split(", ")] if formats else []
        if not formats:
            start = f"models.{name}."
            chosen = " and ".join(path.removeprefix(start) for path in plan.searched if path.startswith(start))
            parts.append(f"models.{name}{f' but for {chosen}' if chosen else ''}")
    changed = plan.held.get("with")
    for sku, values in changed.items() if isinstance(changed, Mapping) else ():
        parts += [f"with.{sku}.{key} {value}" for key, value in values.items()]
    return ", ".join([*parts, *(key for key in others if key != "with")])


# Long: one row for each kind of bound.
def bounds(plan: PlanResult) -> list[tuple[str, str]]:
    """Return (label, sentence) rows: what the confidence covers, lower bounds, the search, and the knee."""
    bound, objective = plan.lower_bound, plan.objective
    name = OBJECTIVES[objective].bound_name
    if bound.cost_usd_per_h is None:
        rows = [("lower bound", "no allowed fleet can meet the targets")]
    elif bound.objective is None:
        rows = [(name, f"none is known of the {objective}, which depends on the fleet")]
    else:
        unit = bound.objective_unit
        inverse = OBJECTIVES[objective].inverse
        line = f"{amount(bound.objective, unit)}{'' if objective == 'cost' else ' on average'}"
        if plan.gap is not None:
            best = amount(objective_of(plan, plan.fleets[0]), unit)
            limit = plan.search.limit
            line += f": no fleet{limit} can be {'higher' if inverse else 'lower'}"
            if plan.search.proof == "open":
                line += f". The best fleet ({best}) can be improved by at most {share(plan.gap)}"
            else:
                beats = OBJECTIVES[objective].beats
                which = "the best fleet by value" if plan.recommended else "the best fleet"
                line += f", and none{limit} that {beats} {which} ({best}) meets the targets"
        rows = [(name, line)]
        if objective != "cost" and bound.cost_usd_per_h is not None:
            rows.append(("cost bound", f"no fleet can cost less than {bound.cost_usd_per_h:,.2f} USD/h"))
    if plan.fleets:
        varied = "covers the random variation of arrivals and work, and not the error of the device models"
        prices = f"{prices_source(plan).removeprefix('Prices are ')}{whole_nodes(plan)}".removesuffix(".")
        rows[:0] = [("cost", _cost(plan)), ("prices", prices), ("confidence", varied)]
    rows.insert(0, ("work", work_text(plan)))
    rows += [*_intervals(plan), *_error_rows(plan)]
    inputs = plan.inputs
    rows.append(
        ("inputs", f"{inputs.assumed:,} of {plural(inputs.total, 'model input')} of all candidates are assumed")
    )
    if bound.autoscaler_usd_per_h:
        least = f"at least {bound.autoscaler_usd_per_h:,.2f} USD/h on average"
        text = f"if every device of any fleet were rented only while it is busy, the rent would be {least}"
        rows.append(("autoscaling", f"{text}; this is a lower bound: no policy that reaches it was simulated"))
    search = plan.search
    until_lost = f", {search.stopped_fleets:,} of them until a target was lost" if search.stopped_fleets else ""
    rows.append(
        (
            "search",
            f"{plural(search.simulated_fleets, 'fleet')} simulated{until_lost}; "
            f"{plural(search.simulations, 'run')} in all, with those for the intervals and for the explanation",
        )
    )
    devices = {entry.name: entry.device for entry in plan.entries}
    keys = ", ".join(path for path in plan.searched if path not in ("count", "max_entries"))
    rows.append(
        (
            "searched",
            f"fleets{search.limit or ' of any entries'}, with these numbers of devices: {_numbers(search.max, devices)}"
            + (f". Searched values: {keys}" if keys else "")
            + (f". The same in every fleet: {kept}" if (kept := held(plan)) else ""),
        )
    )
    rows += [("left out", line) for line in excluded_rows(plan)]
    curve = plan.curve
    if curve is not None:
        first, last = curve.points[0].load, curve.points[-1].load
        turn = f"no knee (a load from which it rises steeply) from {first:.0%} to {last:.0%} load"
        if curve.knee is not None:
            turn = f"it rises steeply from a load between {curve.knee:.0%} and {after_knee(curve):.0%} on (its knee)"
        if without := [f"{point.load:.0%}" for point in curve.points if point.value_s is None]:
            turn += f"; no value at {', '.join(without)}"
        rows.append(("load curve", f"{curve.of.replace('_', ' ')} of the recommended fleet: {turn}"))
    return rows


def _intervals(plan: PlanResult) -> list[tuple[str, str]]:
    """Return how many runs the intervals come from, where `run` may take another number of them."""
    if plan.replications > 1 and plan.fleets:
        return [("intervals", f"all of them come from {plan.replications:,} runs of each fleet")]
    runs = {t.interval_runs for fleet in plan.fleets for t in fleet.targets if t.interval_source == "run"} - {None}
    if not runs:
        return []
    counts = " or ".join(f"{n:,}" for n in sorted(filter(None, runs)))
    text = f"from {counts} more runs of a fleet with other arrivals, as stated beside each interval"
    if len(runs) > 1:
        text += ": few where they decide all targets"
    again = f", and {plan.run_replications:,} with --replications as below" if plan.run_replications > 1 else ""
    return [("intervals", f"{text}. `windtunnel run` makes 8{again}")]


def _error_rows(plan: PlanResult) -> list[tuple[str, str]]:
    """Return the error of the models of times and, where power decides, that of power."""
    rows = []
    if errors := _model_errors(plan.entries):
        step = " (a step is one iteration of a serving engine)" if "step" in errors else ""
        text = f"90% of times are within this factor for the least certain operation{step}: {errors}"
        if firsts := dict.fromkeys(f"{e.first_token_error.factor:.3g}" for e in plan.entries if e.first_token_error):
            text += f"; an engine's time to the first token {' or '.join(firsts)}"
        rows.append(("model error", text))
    if plan.fleets and (caveat := plan.fleets[plan.recommended].model_error_caveat):
        rows.append(("validation", caveat))
    if plan.fleets and plan.objective in ("power", "carbon") and (powers := power_errors(plan)):
        rows.append(("power error", "; ".join(powers)))
    return rows


def energy_a_month(plan: PlanResult) -> str:
    """Return what the energy of the recommended fleet costs in a month, with the PUE in it; empty if it is unknown."""
    usd = plan.fleets[plan.recommended].energy_cost_usd_per_h
    if usd is None:
        return ""
    site = plan.scenario.get("site")
    pue = site.get("pue", 1.0) if isinstance(site, Mapping) else 1.0
    contains = f", with the PUE of the site, {pue:g}" if pue != 1.0 else ""
    return f"{usd * HOURS_A_MONTH:,.0f} USD of energy (devices without their hosts{contains})"


def _cost(plan: PlanResult) -> str:
    """Return what the recommended fleet costs in a month and by tokens, and its power."""
    fleet = plan.fleets[plan.recommended]
    parts = [f"{fleet.cost_usd_per_h * HOURS_A_MONTH:,.0f} USD of rent a month of {HOURS_A_MONTH} hours"]
    if fleet.usd_per_million_output_tokens is not None:
        parts.append(f"{fleet.usd_per_million_output_tokens:,.2f} USD per million output tokens of this run")
    text = ", ".join(parts)
    if energy := energy_a_month(plan):
        text += f", and besides, unless the rent contains it, {energy} a month"
    return f"{text}; {quantity(fleet.power_w, 'W')} on average, {quantity(fleet.peak_power_w, 'W')} at the peak"


def choice_rows(plan: PlanResult, *, with_confidence: bool = False) -> list[list[str]]:
    """Return a header and a row for each combination of searched values that a whole fleet shares; empty if none.

    ``with_confidence``: two columns more have the best simulated fleets that meet the targets with confidence.
    """
    if not plan.choices:
        return []
    unit, rows = plan.lower_bound.objective_unit, [["values", "best fleet by value", plan.objective]]
    for choice in plan.choices:
        if choice.fleet is not None:
            fleet = plan.fleets[choice.fleet]
            rows.append(
                [choice.text, fleet.text.removesuffix(f"; {choice.text}"), amount(objective_of(plan, fleet), unit)]
            )
        elif choice.lower_bound is None:
            rows.append([choice.text, "no fleet can meet the targets", NOTHING])
        else:
            found = "none found that is better" if plan.fleets else "none found"
            rows.append([choice.text, found, f"{OBJECTIVES[plan.objective].bound} {amount(choice.lower_bound, unit)}"])
    if not with_confidence:
        return rows
    certain = [[f"best simulated at {plan.confidence * 100:.3g}%", plan.objective]]
    for choice in plan.choices:
        best = None if choice.confident is None else plan.fleets[choice.confident]
        cells = [NOTHING] * 2
        if best is not None:
            cells = [best.text.removesuffix(f"; {choice.text}"), amount(objective_of(plan, best), unit)]
        certain.append(cells)
    return [[*row, *more] for row, more in zip(rows, certain, strict=True)]


def excluded_rows(plan: PlanResult) -> list[str]:
    """Return a sentence for each combination of searched values with which nothing runs."""
    return [f"{', '.join(f'{path} {value}' for path, value in e.values.items())}: {e.reason}" for e in plan.excluded]


def after_knee(curve: LoadCurve) -> float:
    """Return the load of the curve after its knee; the curve turns up between the two."""
    return min((p.load for p in curve.points if p.load > (curve.knee or 0.0)), default=curve.points[-1].load)
