"""The HTML report of a plan, with the cost frontier and the load curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from windtunnel.core.results.objective import OBJECTIVES, amount
from windtunnel.core.results.plan import LoadPoint, Meets, PlanResult, SimulatedFleet, StoppedFleet
from windtunnel.core.results.target import ENGINE_ERROR
from windtunnel.core.units import parse_unit
from windtunnel.report import deployment, page
from windtunnel.report.numbers import NOTHING, number, plural, quantity, share, value_range
from windtunnel.report.page import Cell, Tile
from windtunnel.report.plan import (
    after_knee,
    alone,
    bounds,
    choice_rows,
    energy_a_month,
    excluded_rows,
    fleet_rows,
    held,
    listed,
    prices_source,
    proof,
    run_command,
    whole_nodes,
    work_text,
)
from windtunnel.report.plan_answer import (
    HOURS_A_MONTH,
    at_the_median,
    before_renting,
    error_ends,
    objective_of,
    recommendation,
    status,
    uncertainty,
)
from windtunnel.report.plan_charts import charts, meeting, title_of
from windtunnel.report.plan_sensitivity import (
    assumption_rows,
    assumptions_summary,
    change_rows,
    no_price,
    price_rows,
    prices_note,
    widths_note,
)
from windtunnel.report.plan_targets import excess, how, measured, runs_of, target_line_of
from windtunnel.report.plan_terms import in_words, terms
from windtunnel.report.targets import TargetLine, with_signs

_ONE_RUN = "A point without an interval is one run, so it meets the targets by value at best."
MIN_LOAD = "Minimum load: share of the fleet's time that the work of the busiest interval needs, by the lower bound."


_COLUMNS, _CHARACTERS = 8, 110
"""Columns of a table, and characters in them, that are readable without scrolling sideways."""
_NAME = 24
"""Characters of a fleet's name in a line of a table; a longer one is wrapped."""


def render(plan: PlanResult) -> str:
    """Return the plan as a complete HTML document."""
    engine = f"{plan.engine} engine · " if plan.engine else ""
    return page.render_page(
        kind="Windtunnel plan",
        title=str(plan.name),
        lead=plan.description,
        facts=[
            work_text(plan),
            f"{plural(plan.search.simulated_fleets, 'fleet')} simulated",
            f"objective: {OBJECTIVES[plan.objective].sought}",
            f"{plan.confidence * 100:.3g}% confidence",
            f"seed {plan.seed}",
        ],
        sections=[section(plan) for section in SECTIONS],
        script="plan.js",
        charts=charts(plan),
        footer=[
            page.versions_line(plan.versions),
            f"{engine}seed {plan.seed} · the same scenario and seed give the same plan with any number of workers",
        ],
    )


def _answer(plan: PlanResult) -> Markup:
    """Return the recommendation in one sentence, and its targets."""
    targets: list[TargetLine] = []
    rows: list[Markup | None] = []
    if plan.fleets:
        targets = [target_line_of(target, plan) for target in plan.fleets[plan.recommended].targets]
        rows = [page.hint(terms(plan)), page.notes(uncertainty(plan), "Uncertainty")]
    rows += [page.remark("Not for sale", note) for note in plan.notes if " is not for sale: " in note]
    if plan.explanation.price_of_confidence is not None:
        rows.insert(0, page.remark("By value", with_signs(plan.explanation.price_of_confidence.text)))
    if median := at_the_median(plan):
        rows.insert(0, page.remark("At the median", with_signs(median)))
    if before := before_renting(plan):
        rows.insert(0, page.remark("Before renting", with_signs(before)))
    if not plan.fleets:
        rows += [page.remark("Why", with_signs(conflict.text)) for conflict in plan.explanation.conflicts]
        rows += [page.remark("Reach", with_signs(reach.sentence)) for reach in plan.explanation.reach]
    return page.answer(status(plan), recommendation(plan), targets, *rows)


def _figures(plan: PlanResult) -> Markup | None:
    """Return the figures of the recommended fleet: cost, power, what binds, headroom, how sure the model is."""
    if not plan.fleets:
        return None
    best, bound, objective = plan.fleets[plan.recommended], plan.explanation.binding, OBJECTIVES[plan.objective]
    month = best.cost_usd_per_h * HOURS_A_MONTH
    energy = energy_a_month(plan)
    rent = f"rent of {best.cost_usd_per_h:,.2f} USD/h for {HOURS_A_MONTH} hours"
    tiles = [Tile("Cost a month", f"{month:,.0f} USD", f"{rent}; not in it: {energy}" if energy else rent)]
    if best.usd_per_million_output_tokens is not None:
        million = f"{best.usd_per_million_output_tokens:,.2f} USD"
        tiles.append(
            Tile("Cost of a million output tokens", million, "rent of this run, to its last token, over its tokens")
        )
    if plan.objective != "cost":
        value = amount(objective_of(plan, best), plan.lower_bound.objective_unit)
        tiles.append(Tile(plan.objective.capitalize(), value, f"the objective: the {objective.least} fleet is sought"))
    tiles.append(
        Tile(
            "Average power",
            quantity(best.power_w, "W"),
            f"{quantity(best.peak_power_w, 'W')} at the peak of this run, of all devices without their hosts",
        )
    )
    if bound is not None:
        note = f"{with_signs(bound.text)}, the target nearest its limit{bound.out_of_service_text}"
        tiles.append(Tile("Binding target", target_line_of(bound, plan).measured, note))
        note = f"from the worse bound of the interval{runs_of(bound)} to the limit"
        tiles.append(Tile("Headroom", share(bound.headroom), note))
    if plan.curve is not None and plan.curve.most is not None:
        last = plan.curve.most == max(point.load for point in plan.curve.points)
        most, note = plan.curve.most, f"of the scenario's, by value in one run{'; no more was tried' if last else ''}"
        if plan.curve.most_certain is not None:
            judged = max(
                point.load for point in plan.curve.points if point.high_s is not None or point.meets.confidence
            )
            certainty = f"{plan.confidence * 100:.3g}% confidence, which was judged up to {judged:.0%}"
            note = f"of the scenario's, with {certainty}; {most:.0%} by value in one run"
            most = plan.curve.most_certain
        tiles.append(Tile("Load it can take", f"{most:.0%}", note))
    if best.prefix_hit_rate is not None:
        note = "of the blocks of prompts in this run; measured times depend on this share"
        tiles.append(Tile("Found in prefix caches", share(best.prefix_hit_rate), note))
    return page.section("figures", "The recommended fleet", page.tiles(tiles), _configuration(plan))


def _configuration(plan: PlanResult) -> Markup:
    rows, prices = [], {entry.name: entry.price_usd_per_h for entry in plan.entries}
    for entry in plan.fleets[plan.recommended].configuration:
        group = ", ".join(in_words(key, n) for key, n in (entry.group or {}).items() if n != 1)
        settings = ", ".join(in_words(path, value) for path, value in entry.settings.items())
        device = entry.device if entry.entry in ("", entry.device) else f"{entry.device} ({entry.entry})"
        replica = (group or "1 device") + (f"; role: {entry.role}" if entry.role in ("prefill", "decode") else "")
        price = NOTHING if entry.entry not in prices else f"{prices[entry.entry]:,.2f} USD/h"
        rows.append([device, f"{entry.count:,}", price, replica, settings or "as the scenario states"])
    header = ["Device", "Devices", "Price of one", "Replica", "Chosen settings"]
    table = page.table("What to rent", header, rows, words=(0, 3, 4))
    command = page.hint(f"{alone(plan)}: {run_command(plan, 'SCENARIO.yaml')}")
    return Markup("").join([table, page.hint(f"{prices_source(plan)}{whole_nodes(plan)}"), command])


def _fleets(plan: PlanResult) -> Markup | None:
    if not plan.fleets:
        return None
    text = (
        f"Sorted by {plan.objective}. A fleet meets the targets by value if every value is within its limit, and with "
        "confidence if the worse bound of every confidence interval is. The list has the best simulated fleets "
        f"(plan.fleets), the recommended one, and the next that is as certain; {_of_simulated(plan)}. Larger versions "
        "of a listed fleet that are no more certain are omitted. Headroom is the distance from the worse bound to the "
        "limit."
    )
    if plan.spare:
        text += " Values and headroom are the worst with all devices in service and with the spare ones out of service."
    header, rows = _page_rows(plan)
    table = page.table("Values with their confidence intervals", header, rows)
    return page.section("fleets", "Fleets that meet the targets", page.prose(text), table)


def _of_simulated(plan: PlanResult) -> str:
    """Return how many of the simulated fleets that meet the targets by value are listed, as a clause."""
    return f"{len(plan.listed):,} of {plural(len(plan.fleets), 'fleet')} found that meet them by value"


def _error(plan: PlanResult) -> Markup | None:
    """Return where the targets of the recommended fleet are within the error of the models."""
    intervals = plan.explanation.model_intervals
    if not intervals:
        return None
    best = plan.fleets[plan.recommended]
    rows = []
    for interval in intervals:
        target = next(target for target in best.targets if target.text == interval.text)
        line = target_line_of(target, plan)
        factor = parse_unit(interval.unit).factor
        value = None if interval.value is None else interval.value * factor
        shown = quantity(value, interval.unit, limit=interval.limit * factor)
        rows.append([line.text, line.label, error_ends(interval), shown])
    text = (
        f"90% intervals of the same requests for the error of the models, and {ENGINE_ERROR}. A target may be "
        "missed if its interval is not within the limit throughout. This is judged by the value: chance, which the "
        "confidence covers, is not added."
    )
    caveat = page.hint(f"{best.model_error_caveat}.") if best.model_error_caveat else None
    header = ["Target", "State", "90% model error interval", "Value"]
    table = page.table("Targets and the error of the models", header, rows, words=(0, 1))
    return page.section("error", "Error of the models", page.prose(text), table, caveat, _measured_first_tokens(plan))


def _measured_first_tokens(plan: PlanResult) -> Markup | None:
    """Return which simulated fleet would be the best if measured times to the first token were longer than modelled."""
    found = plan.explanation.first_tokens
    if not found:
        return None
    certainty = how(Meets(value=True, confidence=True), plan.confidence)
    header = ["Measured over modelled", "Best by value", f"Best {certainty}"]
    rows = [
        [f"{row.factor:.3g}", row.by_value or "none simulated", row.with_confidence or "none simulated"]
        for row in found
    ]
    text = (
        "Times to the first token of the simulated fleets and their intervals are multiplied by the factor, and other "
        "targets stay. Of fleets that cost more than the best one only a part was simulated, among them larger "
        "versions of it. A factor that was measured on one device tells nothing of another one."
    )
    table = page.table("The best fleet by measured times to the first token", header, rows, words=(1, 2))
    return Markup("").join([table, page.hint(text)])


def _cheaper(plan: PlanResult) -> Markup | None:
    """Return what the better fleets nearest in the objective and nearest to the limits miss, and by how much."""
    below, nearest = plan.explanation.next_cheapest, plan.explanation.nearest_miss
    found = [(f"Nearest in {plan.objective}", below), ("Misses by least", nearest)]
    if below is not None and nearest is not None and below.fleet == nearest.fleet:
        found = [(f"Nearest in {plan.objective}, and misses by least", below)]
    rows: list[list[str | Cell]] = []
    others: list[str] = []
    for which, fleet in found:
        if fleet is None:
            continue
        for i, target in enumerate(fleet.targets):
            first = Cell(fleet.fleet, note=f"{which}: {fleet.objective_text}") if i == 0 else ""
            rows.append([first, with_signs(target.text), measured(target, plan), excess(target) or NOTHING])
        named = [target.text for target in fleet.targets]
        others += [f"{fleet.fleet}: {text}" for text in fleet.violations if not text.startswith(tuple(named))]
    if not rows:
        return None
    less = OBJECTIVES[plan.objective].less
    header = ["Fleet", "Target", "Value", "Beyond the limit"]
    return page.section(
        "next",
        f"What {less} fleets break",
        page.prose(
            f"Of the {less} fleets that were simulated: the nearest in {plan.objective}, and the one that misses by "
            "least. One that meets all targets by value misses by less than one that does not."
        ),
        page.table(f"{less.capitalize()} fleets", header, rows, words=(0, 3)),
        page.notes(list(dict.fromkeys(others)), "") if others else None,
    )


def _page_rows(plan: PlanResult) -> tuple[list[str], Sequence[Sequence[str | Cell]]]:
    """Return the header and the rows of ``fleet_rows``; where these are too wide for a page, a row for each target."""
    rows = fleet_rows(listed(plan), plan)
    targets = len(plan.fleets[0].targets)
    longest = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    is_narrow = len(rows[0]) <= _COLUMNS and min(longest[0], _NAME) + sum(longest[1:]) <= _CHARACTERS
    if targets <= 1 or is_narrow:
        return rows[0], rows[1:]
    # What a fleet costs stands below its name, so that the headroom at the end is seen without scrolling.
    fixed = len(rows[0]) - 2 * targets
    named = 2 if "meets targets" in rows[0] else 1
    by_target: list[list[str | Cell]] = []
    for row in rows[1:]:
        first = [Cell(row[0], note=", ".join(row[named:fixed])), *row[1:named]]
        for i in range(targets):
            value, headroom = row[fixed + 2 * i : fixed + 2 * i + 2]
            by_target.append([*(first if i == 0 else [""] * named), rows[0][fixed + 2 * i], value, headroom])
    return [*rows[0][:named], "target", "value", "headroom"], by_target


def _choices(plan: PlanResult) -> Markup | None:
    if not plan.choices:
        return None
    header, *rows = choice_rows(plan, with_confidence=True)
    text = "Values that a whole fleet shares. Combinations that cannot be better than the best fleet are not simulated."
    left_out = [page.remark("Left out", line) for line in excluded_rows(plan)]
    table = page.table("The best fleets for each combination of the searched values", header, rows, words=(0, 1, 3))
    return page.section("choices", "Searched values", page.prose(text), table, *left_out)


def _changes(plan: PlanResult) -> Markup | None:
    """Return how the answer moves with load, model error, lengths and prices."""
    rows, prices = change_rows(plan), price_rows(plan)
    if not rows and not prices:
        return None
    text = (
        "The recommended fleet, simulated again under each change with the same seed. Where it no longer meets the "
        f"targets, or where a {OBJECTIVES[plan.objective].less} fleet might, the last column has the best fleet that "
        "was found among those tried."
    )
    of_prices = page.hint(no_price(plan)) if no_price(plan) else None
    if prices:
        header = ["Price of", "Now", "Another simulated fleet is cheaper", "Change", "Fleet"]
        of_table = page.table("Prices at which another simulated fleet is cheaper", header, prices, words=(0, 4))
        of_prices = Markup("").join([of_table, page.hint(prices_note())])
    header = ["Change", "This fleet", "Binding target", "Fleet found"]
    table = page.table("The answer under each change", header, rows, words=(0, 1, 2, 3)) if rows else None
    of_widths = page.hint(widths_note(plan)) if widths_note(plan) else None
    return page.section("moves", "How the answer moves", page.prose(text), table, of_widths, of_prices)


def _assumptions(plan: PlanResult) -> Markup | None:
    summary, found = assumptions_summary(plan), plan.explanation.assumptions
    if summary is None or found is None or not found.inputs:
        return None
    header = [
        "Assumed input",
        "What it is",
        "Value (range)",
        "Moves a step by",
        f"{with_signs(found.target)} at the ends",
        "Meets at both",
    ]
    reasons = [f"{row.device} {row.parameter}: {row.reason}" for row in found.inputs if row.reason]
    of_table = "Assumed inputs, the most influential first"
    rows = [
        [first, row.meaning, *rest] for row, (first, *rest) in zip(found.inputs, assumption_rows(plan), strict=True)
    ]
    return page.section(
        "assumptions",
        "Assumptions by influence",
        page.prose(summary),
        page.details(of_table, plural(len(rows), "input"), page.table(of_table, header, rows, words=(0, 1))),
        page.details("Reasons of these assumptions", plural(len(reasons), "reason"), page.notes(reasons, "")),
    )


def _search(plan: PlanResult) -> Markup:
    """Return what was searched and held, the lower bound, and the sentences of the explanation."""
    rows = [(label[0].upper() + label[1:], line) for label, line in bounds(plan) if label != "searched"]
    sentences = [with_signs(sentence) for sentence in plan.explanation.sentences]
    return page.section(
        "search",
        "What was searched, and how sure the answer is",
        page.details("Bounds, intervals and errors", plural(len(rows), "line"), page.definitions(rows)),
        _searched(plan),
        page.details("The explanation in sentences", plural(len(sentences), "sentence"), page.notes(sentences, "")),
        page.notes(list(plan.notes)),
    )


def _searched(plan: PlanResult) -> Markup:
    """Return the candidates with their limits and why none of them suffices alone, the values, and what is held."""
    reasons = {entry.name: entry for entry in plan.entries}
    candidates = []
    for name, most in plan.search.max.items():
        entry = reasons.get(name)
        price = NOTHING if entry is None else f"{entry.price_usd_per_h:,.2f} USD/h"
        reason = "" if entry is None or entry.reason is None else with_signs(entry.reason.text)
        alone = "; ".join(filter(None, [_best_alone(plan, name), reason]))
        candidates.append([name, price, f"{most:,}", alone])
    header = ["Entry", "Price of a device", "Devices at most", "Simulated fleets of it alone that meet the targets"]
    values = [
        [path, ", ".join(str(value) for value in found) if isinstance(found, (list, tuple)) else str(found)]
        for path, found in plan.searched.items()
        if path not in ("count", "max_entries")
    ]
    kept = held(plan)
    return page.details(
        f"Searched: fleets{plan.search.limit or ' of any entries'}",
        plural(len(candidates), "candidate entry", "candidate entries"),
        page.table("Candidate entries", header, candidates, words=(0, 3)),
        page.table("Searched values", ["Path", "Values"], values, words=(0, 1)) if values else None,
        page.hint(f"The same in every fleet: {kept}.") if kept else None,
    )


def _best_alone(plan: PlanResult, name: str) -> str:
    """Return the best simulated fleets of an entry alone: with confidence, and by value where that is another one."""
    fleets = [fleet for fleet in plan.fleets if list(fleet.entries) == [name]]
    if not fleets:
        return ""
    certain = next((fleet for fleet in fleets if fleet.meets.confidence), None)
    best = [certain] if certain is fleets[0] else [fleets[0], certain]
    parts = [f"{how(f.meets, plan.confidence)}: {f.text}, {f.cost_usd_per_h:,.2f} USD/h" for f in best if f is not None]
    parts += [] if certain else [f"none of those simulated {how(Meets(value=True, confidence=True), plan.confidence)}"]
    return "; ".join(parts)


def _no_script(plan: PlanResult, section: str) -> Markup | None:
    """Return what the first section with charts says where there are none; None in the others."""
    rated = any(point.on_frontier or point.searched for point in plan.rates)
    if section != ("curve" if plan.curve is not None else "rates" if rated else "front"):
        return None
    return page.no_script("The charts need JavaScript; every figure that they show is also in the tables.")


def _rates(plan: PlanResult) -> Markup | None:
    points = [point for point in plan.rates if point.on_frontier or point.searched]
    if not points:
        return None
    text = (
        "Output tokens per second and device against tokens per second and user. Further up and further "
        "right is better. Dots are simulated fleets at the scenario's load, full where all targets are met by value, "
        "with a ring around the recommended fleet; the line is this fleet under other loads. No other point beats one "
        "of the frontier in both, which the table names."
    )
    of_fleet = {fleet.text: fleet.meets for fleet in plan.simulated}
    of_load = {} if plan.curve is None else {point.load: point.meets for point in plan.curve.points}
    rows = []
    for p in plan.rates:
        meets = of_fleet.get(p.fleet) if p.searched else of_load.get(p.load)
        certainty = how(meets or Meets(value=p.meets, confidence=False), plan.confidence)
        on_frontier = "yes" if p.on_frontier else "no"
        rows.append([p.fleet, f"{p.load:.0%}", number(p.per_user), number(p.per_device), certainty, on_frontier])
    header = ["Fleet", "Load", "Tokens/s per user", "Tokens/s per device", "Meets targets", "On the frontier"]
    return page.section(
        "rates",
        "Tokens per device against tokens per user",
        page.prose(text),
        _no_script(plan, "rates"),
        page.figure(
            "rates",
            "The frontier of throughput and speed",
            "Scatter plot of tokens per second and device over tokens per second and user; the table has the figures.",
            tall=True,
            live="rates",
        ),
        page.details("The figures", plural(len(rows), "point"), page.table("Points of the chart", header, rows)),
    )


def _front(plan: PlanResult) -> Markup | None:
    rows = frontier_rows(plan)
    if not rows:
        return None
    time = plan.time
    title = title_of(time)
    text = (
        "Each dot is a simulated fleet that meets all targets by value. Lower and further left is better. Full dots "
        f"are the cost frontier: no other fleet is as good in cost, power and {time} and better in one. A ring is "
        "around the recommended fleet."
    )
    if plan.lower_bound.cost_usd_per_h is not None:
        text += " The dashed line is the lower bound of the cost."
    drawn = [
        page.figure(
            chart,
            f"{name} over cost",
            f"Scatter plot of {name.lower()} over cost; the table below has the same figures.",
            tall=True,
            live=unit,
        )
        for chart, name, unit in (("time", title, "s"), ("power", "Average power", "W"))
    ]
    header = ["Fleet", "Meets targets", "Cost", "Average power", title, "On the frontier"]
    table = page.details("The figures", plural(len(rows), "fleet"), page.table("Fleets in the charts", header, rows))
    return page.section("front", f"Cost, power and {time}", page.prose(text), _no_script(plan, "front"), *drawn, table)


def _curve(plan: PlanResult) -> Markup | None:
    curve = plan.curve
    if curve is None:
        return None
    of, title = curve.of, title_of(curve.of)
    with_interval = sum(point.low_s is not None for point in curve.points)
    bars = ", with a bar where it has a confidence interval" if with_interval else ""
    caption = (
        f"{title} of {curve.fleet}{bars}. A load of 120% is 1.2 times as many arrivals in the same time. The dashed "
        "horizontal line is the limit. "
    )
    knee = "The knee, the load from which the curve rises steeply, (vertical line), is between"
    knee += "" if curve.knee is None else f" {curve.knee:.0%} and {after_knee(curve):.0%}"
    caption += "The curve has no knee, a load from which it rises steeply" if curve.knee is None else knee
    caption += f" ({curve.rule})."
    busy = "Utilisation: share of the devices' time in which they are busy."
    if plan.has_continuous_batches:
        busy = (
            "Utilisation: share of the devices' time in which at least one sequence is in the batch. With continuous "
            "batching, a device at 100% may be able to take many more sequences."
        )
    return page.section(
        "curve",
        "The recommended fleet under load",
        _no_script(plan, "curve"),
        page.figure(
            "curve",
            f"{title} over load",
            f"Line chart of {of} over the load; the table below has the same figures.",
            caption=caption,
            live="curve",
        ),
        page.details(
            "The figures",
            plural(len(curve.points), "load"),
            page.table(
                "Values over load",
                ["Load", title, f"{plan.confidence * 100:.3g}% CI", "Utilisation", "Minimum load", "Meets targets"],
                [_point(point, plan.confidence) for point in curve.points],
            ),
            page.hint(f"{_ONE_RUN} {busy} {MIN_LOAD}" if with_interval < len(curve.points) else f"{busy} {MIN_LOAD}"),
        ),
    )


def _point(point: LoadPoint, confidence: float) -> list[str]:
    outcome = how(point.meets, confidence)
    return [
        f"{point.load:.0%}",
        quantity(point.value_s, "s"),
        value_range(point.low_s, point.high_s, "s"),
        share(point.utilisation),
        share(point.min_load),
        outcome + ("" if point.keeps_up else "; does not complete its work"),
    ]


def _simulated(plan: PlanResult) -> Markup:
    fleets: list[SimulatedFleet | StoppedFleet] = [*plan.simulated, *plan.stopped]
    rows = [
        [
            fleet.text,
            f"{fleet.cost_usd_per_h:,.2f} USD/h",
            share(fleet.min_load),
            _verdict(fleet, plan.confidence),
        ]
        for fleet in sorted(fleets, key=lambda fleet: (fleet.cost_usd_per_h, fleet.text))
    ]
    statement = proof(plan)
    return page.section(
        "simulated",
        "All simulated fleets",
        page.prose(f"{statement[0].upper()}{statement[1:]}. {MIN_LOAD}"),
        page.details(
            "The figures",
            plural(len(rows), "fleet"),
            page.table("Simulated fleets", ["Fleet", "Cost", "Minimum load", "Meets targets"], rows, words=(0, 3)),
        ),
    )


def _verdict(fleet: SimulatedFleet | StoppedFleet, confidence: float) -> str:
    """Return that a fleet meets all targets, what it misses, or which targets it meets by value only."""
    if isinstance(fleet, StoppedFleet):
        return with_signs("; ".join(fleet.violations))
    if fleet.meets.confidence:
        return how(fleet.meets, confidence)
    return (f"{how(fleet.meets, confidence)}: " if fleet.meets.value else "") + with_signs("; ".join(fleet.violations))


def frontier_rows(plan: PlanResult) -> list[list[str]]:
    """Return a row for each fleet that meets all targets by value, and whether it is on the cost frontier."""
    front = {fleet.text for fleet in plan.front}
    return [
        [
            fleet.text,
            how(fleet.meets, plan.confidence),
            f"{fleet.cost_usd_per_h:,.2f} USD/h",
            quantity(fleet.power_w, "W"),
            quantity(fleet.time_s, "s"),
            "yes" if fleet.text in front else "no",
        ]
        for fleet in meeting(plan)
    ]


SECTIONS: Sequence[Callable[[PlanResult], Markup | None]] = (
    _answer,
    _figures,
    _error,
    _cheaper,
    _changes,
    _curve,
    _fleets,
    _rates,
    _front,
    _choices,
    lambda plan: deployment.section(plan.deployment),
    _assumptions,
    _search,
    _simulated,
)
"""The sections in order: the answer, its cost, its risks, the alternatives, the configuration, and the method.

A new section is one function, listed here.
"""
