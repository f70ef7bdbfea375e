"""The data of the charts of a plan's page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.core.results.plan import PlanResult, RatePoint, SimulatedFleet
from windtunnel.report.charts import ChartData
from windtunnel.report.run_text import METRICS


def meeting(plan: PlanResult) -> list[SimulatedFleet]:
    """Return the fleets that meet all targets by value, the cheapest first: those in the charts and in their table."""
    fleets = (fleet for fleet in plan.simulated if fleet.meets.value and fleet.time_s is not None)
    return sorted(fleets, key=lambda fleet: (fleet.cost_usd_per_h, fleet.text))


def title_of(metric: str) -> str:
    """Return the metric of a target, such as ``itl p99``, as the title of a chart: ``ITL p99``."""
    name, _, statistic = metric.partition(" ")
    return f"{METRICS.get(name, name[0].upper() + name[1:])} {statistic}".rstrip()


def charts(plan: PlanResult) -> dict[str, ChartData]:
    """Return the data that the script draws."""
    drawn: dict[str, ChartData] = {}
    fleets = meeting(plan)
    if fleets:
        drawn["time"] = _front_chart(plan, fleets, [fleet.time_s for fleet in fleets], "s", title_of(plan.time))
        drawn["power"] = _front_chart(plan, fleets, [fleet.power_w for fleet in fleets], "W", "Average power")
    if plan.rates:
        drawn["rates"] = _rate_chart(plan.rates, plan.fleets[plan.recommended].text if plan.fleets else "")
    curve = plan.curve
    if curve is not None:
        drawn["curve"] = {
            "kind": "curve",
            "title": title_of(curve.of),
            "x": [point.load for point in curve.points],
            "value": [point.value_s for point in curve.points],
            "low": [point.low_s for point in curve.points],
            "high": [point.high_s for point in curve.points],
            "limit": curve.limit_s,
            "knee": curve.knee,
        }
    return drawn


def _front_chart(
    plan: PlanResult, fleets: Sequence[SimulatedFleet], values: Sequence[float | None], unit: str, title: str
) -> ChartData:
    """Return a value of each fleet over its cost: those on the cost frontier, the others, and the recommended one."""
    front, best = {fleet.text for fleet in plan.front}, plan.fleets[plan.recommended].text
    on_front = [fleet.text in front for fleet in fleets]
    return {
        "kind": "front",
        "x": [fleet.cost_usd_per_h for fleet in fleets],
        "front": [value if is_on else None for value, is_on in zip(values, on_front, strict=True)],
        "other": [None if is_on else value for value, is_on in zip(values, on_front, strict=True)],
        "names": [fleet.text for fleet in fleets],
        "labels": [
            fleet.text if is_on or fleet.text == best else "" for fleet, is_on in zip(fleets, on_front, strict=True)
        ],
        "recommended": [fleet.text == best for fleet in fleets],
        "bound": plan.lower_bound.cost_usd_per_h,
        "unit": unit,
        "title": title,
    }


def _rate_chart(rates: Sequence[RatePoint], best: str) -> ChartData:
    """Return the points by tokens per user: fleets that meet the targets, those that do not, and the other loads.

    ``best``: the recommended fleet.
    """
    points = sorted(rates, key=lambda p: (p.per_user, -p.per_device))

    def of(chosen: Callable[[RatePoint], bool]) -> list[float | None]:
        return [p.per_device if chosen(p) else None for p in points]

    return {
        "kind": "rates",
        "x": [p.per_user for p in points],
        "met": of(lambda p: p.searched and p.meets),
        "missed": of(lambda p: p.searched and not p.meets),
        "loads": of(lambda p: not p.searched),
        "names": [p.fleet if p.searched else f"{p.fleet} at {p.load:.0%} load" for p in points],
        "labels": [
            p.fleet if p.searched and (p.on_frontier or p.fleet == best) else f"{p.load:.0%}" if not p.searched else ""
            for p in points
        ],
        "recommended": [p.searched and p.fleet == best for p in points],
    }
