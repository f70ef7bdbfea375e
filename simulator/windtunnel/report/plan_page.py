"""The HTML report of a plan, with the cost frontier and the load curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from windtunnel.core.results.plan import LoadPoint, PlannedFleet, PlanResult, SimulatedFleet
from windtunnel.report import deployment, page
from windtunnel.report.charts import ChartData
from windtunnel.report.numbers import plural, quantity, share, value_range
from windtunnel.report.plan import (
    after_knee,
    bounds,
    choice_rows,
    excluded_rows,
    fleet_rows,
    how,
    listed,
    proof,
    verdict,
)
from windtunnel.report.run_text import METRICS
from windtunnel.report.targets import with_signs

MIN_LOAD = "Minimum load: share of the fleet's time that the work of the busiest interval needs, by the lower bound."


def render(plan: PlanResult) -> str:
    """Return the plan as a complete HTML document."""
    engine = f"{plan.engine} engine · " if plan.engine else ""
    return page.render_page(
        kind="Windtunnel plan",
        title=str(plan.name),
        lead=plan.description,
        facts=[
            f"{plural(plan.search.simulated_fleets, 'fleet')} simulated",
            f"minimum {plan.objective}",
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
    rows = [page.remark(label[0].upper() + label[1:], line) for label, line in bounds(plan)]
    if plan.explanation.price_of_confidence is not None:
        rows.insert(0, page.remark("By value", with_signs(plan.explanation.price_of_confidence.text)))
    status = "missed"
    if plan.fleets:
        status = "met" if plan.fleets[plan.recommended].meets.confidence else "inconclusive"
    return page.answer(status, verdict(plan), (), *rows)


def _fleets(plan: PlanResult) -> Markup | None:
    if not plan.fleets:
        return None
    text = (
        f"Sorted by {plan.objective}. A fleet meets the targets by value if every value is within its limit, and with "
        "confidence if the worse bound of every confidence interval is. Fleets that contain one of these that is as "
        "certain, and further devices, are omitted. Headroom is the distance from the worse bound to the limit."
    )
    header, *rows = _page_rows(listed(plan), plan.confidence)
    table = page.table("Values with their confidence intervals", header, rows)
    return page.section("fleets", "Fleets that meet the targets", page.prose(text), table)


def _page_rows(fleets: Sequence[PlannedFleet], confidence: float) -> list[list[str]]:
    """Return the rows of ``fleet_rows``; with more than two targets, a row for each target, which is narrower."""
    rows = fleet_rows(fleets, confidence)
    targets = len(fleets[0].targets)
    if targets <= 2:
        return rows
    fixed = len(rows[0]) - 2 * targets
    by_target = [[*rows[0][:fixed], "target", "value", "headroom"]]
    for row in rows[1:]:
        for i in range(targets):
            value, headroom = row[fixed + 2 * i : fixed + 2 * i + 2]
            by_target.append([*(row[:fixed] if i == 0 else [""] * fixed), rows[0][fixed + 2 * i], value, headroom])
    return by_target


def _choices(plan: PlanResult) -> Markup | None:
    if not plan.choices:
        return None
    header, *rows = choice_rows(plan)
    text = "Values that a whole fleet shares. Combinations that cannot be better than the best fleet are not simulated."
    left_out = [page.remark("Left out", line) for line in excluded_rows(plan)]
    table = page.table("The best fleet for each combination of the searched values", header, rows, words=(0, 1))
    return page.section("choices", "Searched values", page.prose(text), table, *left_out)


def _explanation(plan: PlanResult) -> Markup:
    sentences = [with_signs(sentence) for sentence in plan.explanation.sentences]
    return page.section("why", "Explanation", page.notes(sentences, ""), page.notes(list(plan.notes)))


def _front(plan: PlanResult) -> Markup | None:
    rows = frontier_rows(plan)
    no_script = page.no_script("The charts need JavaScript; every figure that they show is also in the tables.")
    if not rows:
        return no_script if plan.curve else None
    time = plan.time
    title = _title(time)
    text = (
        "Each dot is a simulated fleet that meets all targets by value. Lower and further left is better. Full dots "
        f"are the cost frontier: no other fleet is better in cost, power and {time} together."
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
    table = page.table("Fleets in the charts", header, rows)
    return page.section("front", f"Cost, power and {time}", page.prose(text), no_script, *drawn, table)


def _curve(plan: PlanResult) -> Markup | None:
    curve = plan.curve
    if curve is None:
        return None
    of, title = curve.of, _title(curve.of)
    caption = (
        f"{title} of {curve.fleet}, with its confidence interval. A load of 120% is 1.2 times as many jobs in the "
        "same time. The dashed horizontal line is the limit. "
    )
    knee = "" if curve.knee is None else f"The knee is between {curve.knee:.0%} and {after_knee(curve):.0%}"
    caption += knee or "The curve has no knee"
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
        page.figure(
            "curve",
            f"{title} over load",
            f"Line chart of {of} over the load; the table below has the same figures.",
            caption=caption,
            live="curve",
        ),
        page.table(
            "Values over load",
            ["Load", title, f"{plan.confidence * 100:.3g}% CI", "Utilisation", "Minimum load", "Meets all targets"],
            [_point(point) for point in curve.points],
        ),
        page.hint(f"{busy} {MIN_LOAD}"),
    )


def _point(point: LoadPoint) -> list[str]:
    outcome = "yes" if point.meets.confidence else "by value" if point.meets.value else "no"
    return [
        f"{point.load:.0%}",
        quantity(point.value_s, "s"),
        value_range(point.low_s, point.high_s, "s"),
        share(point.utilisation),
        share(point.min_load),
        outcome + ("" if point.keeps_up else "; does not keep up"),
    ]


def _simulated(plan: PlanResult) -> Markup:
    rows = [
        [
            fleet.text,
            f"{fleet.cost_usd_per_h:,.2f} USD/h",
            share(fleet.min_load),
            "meets all targets" if fleet.meets.confidence else _not_with_confidence(fleet),
        ]
        for fleet in sorted(plan.simulated, key=lambda fleet: (fleet.cost_usd_per_h, fleet.text))
    ]
    statement = proof(plan)
    return page.section(
        "simulated",
        "All simulated fleets",
        page.prose(f"{statement[0].upper()}{statement[1:]}. {MIN_LOAD}"),
        page.table("Simulated fleets", ["Fleet", "Cost", "Minimum load", "Verdict"], rows, words=(0, 3)),
    )


def _not_with_confidence(fleet: SimulatedFleet) -> str:
    """Return what a fleet misses, or which targets it meets by value only."""
    return ("by value only: " if fleet.meets.value else "") + with_signs("; ".join(fleet.violations))


def _met(plan: PlanResult) -> list[SimulatedFleet]:
    """Return the fleets that meet all targets by value, the cheapest first: those in the charts and in their table."""
    met = (fleet for fleet in plan.simulated if fleet.meets.value and fleet.time_s is not None)
    return sorted(met, key=lambda fleet: (fleet.cost_usd_per_h, fleet.text))


def frontier_rows(plan: PlanResult) -> list[list[str]]:
    """Return a row for each fleet that meets all targets by value, and whether it is on the cost frontier."""
    front = {fleet.text for fleet in plan.front}
    return [
        [
            fleet.text,
            how(fleet, plan.confidence),
            f"{fleet.cost_usd_per_h:,.2f} USD/h",
            quantity(fleet.power_w, "W"),
            quantity(fleet.time_s, "s"),
            "yes" if fleet.text in front else "no",
        ]
        for fleet in _met(plan)
    ]


def _title(metric: str) -> str:
    """Return the metric of a target, such as ``itl p99``, as the title of a chart: ``ITL p99``."""
    name, _, statistic = metric.partition(" ")
    return f"{METRICS.get(name, name[0].upper() + name[1:])} {statistic}".rstrip()


def charts(plan: PlanResult) -> dict[str, ChartData]:
    """Return the data that the script draws."""
    drawn: dict[str, ChartData] = {}
    met = _met(plan)
    front = {fleet.text for fleet in plan.front}
    for name, unit, title in (("time", "s", _title(plan.time)), ("power", "W", "Average power")):
        if met:
            values = [fleet.time_s if name == "time" else fleet.power_w for fleet in met]
            on_front = [fleet.text in front for fleet in met]
            drawn[name] = {
                "kind": "front",
                "x": [fleet.cost_usd_per_h for fleet in met],
                "front": [value if best else None for value, best in zip(values, on_front, strict=True)],
                "other": [None if best else value for value, best in zip(values, on_front, strict=True)],
                "names": [fleet.text for fleet in met],
                "bound": plan.lower_bound.cost_usd_per_h,
                "unit": unit,
                "title": title,
            }
    curve = plan.curve
    if curve is not None:
        drawn["curve"] = {
            "kind": "curve",
            "title": _title(curve.of),
            "x": [point.load for point in curve.points],
            "value": [point.value_s for point in curve.points],
            "low": [point.low_s for point in curve.points],
            "high": [point.high_s for point in curve.points],
            "limit": curve.limit_s,
            "knee": curve.knee,
        }
    return drawn


SECTIONS: Sequence[Callable[[PlanResult], Markup | None]] = (
    _answer,
    _fleets,
    lambda plan: deployment.section(plan.deployment),
    _choices,
    _explanation,
    _front,
    _curve,
    _simulated,
)
"""The sections in order. A new section is one function, listed here."""
