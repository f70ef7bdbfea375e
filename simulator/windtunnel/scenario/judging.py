"""Judges targets of fleets and of placement: the value in a result, its interval, and whether the target is met."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windtunnel.core.result import distribution
from windtunnel.core.units import to_unit
from windtunnel.scenario.target import Target

Result = Mapping[str, Any]


def judge(target: Target, result: Result) -> dict[str, Any]:
    """Return a target as result.json holds it: its value with the interval, both in its unit, and whether it is met."""
    value, reason = measured(target, result), None
    low, high = _interval(target, result)
    if target.is_distributed:
        statistics = part_of(target, result).get("statistics") or {}
        missing = statistics.get("missing_interval_reasons") or {}
        reason = missing.get(f"{target.metric}_s", {}).get(target.statistic)
        if value is None and (result.get("statistics") or {}).get("steady_state") == "unstable":
            reason = f"unstable: {result['statistics']['steady_state_reason']}"

    def in_unit(number: float | None) -> float | None:
        return None if number is None else to_unit(number, target.unit)

    return {
        "text": target.text,
        "met": target.met_by(value),
        "confidence": target.confidence(value, low, high),
        "value": in_unit(value),
        "low": in_unit(low),
        "high": in_unit(high),
        "reason": reason,
        "metric": target.metric,
        "statistic": target.statistic,
        "workload": target.workload,
        "comparison": target.comparison,
        "limit": in_unit(target.limit),
        "unit": target.unit,
    }


def part_of(target: Target, result: Result) -> Result:
    """Return the part of a result that a target refers to: that of its workload, or the whole result."""
    if target.workload is None:
        return result
    part: Result = next(w for w in result["workloads"] if w["name"] == target.workload)
    return part


def measured(target: Target, result: Result) -> float | None:
    """Return the value (SI) that a target refers to; None if nothing was measured."""
    if target.is_distributed:
        times = distribution(part_of(target, result), target.metric)
        value: float | None = None if times is None else times[str(target.statistic)]["value"]
        return value
    if target.metric == "power":
        power_w: float | None = result[f"{target.statistic}_power_w"]
        return power_w
    return _VALUES[target.metric](result)


def _interval(target: Target, result: Result) -> tuple[float | None, float | None]:
    """Return the 95% interval (SI) of a target's value; None for ends that the result does not have."""
    estimate: Mapping[str, Any] = {}
    if target.is_distributed:
        estimate = (distribution(part_of(target, result), target.metric) or {}).get(str(target.statistic)) or {}
    elif target.metric in _PLACEMENT:
        estimate = result["placement"][_PLACEMENT[target.metric]]
    return estimate.get("low"), estimate.get("high")


def _at(*path: str, factor: float = 1.0, seconds: float = 1.0) -> Callable[[Result], float | None]:
    """Return a function that returns the number at ``path`` times ``factor`` over ``seconds``; None if missing."""

    def read(result: Result) -> float | None:
        value: Any = result
        for key in path:
            value = None if value is None else value.get(key)
        return None if value is None else value * factor / seconds

    return read


def _completed(result: Result) -> float | None:
    jobs = result["jobs"]
    return jobs["completed"] / jobs["arrived"] if jobs["arrived"] else None


_PLACEMENT = {"allocation": "gpu_allocation", "fragmentation": "fragmentation"}
"""The metrics of placement, and their keys in a result."""
_VALUES: Mapping[str, Callable[[Result], float | None]] = {
    "throughput": _at("throughput_per_s"),
    "energy": _at("energy_j"),
    "cost": _at("cost_usd_per_h", seconds=3600.0),
    "energy_cost": _at("site", "energy_cost_usd_per_h", seconds=3600.0),
    "total_cost": _at("site", "cost_usd_per_h", seconds=3600.0),
    "carbon": _at("site", "carbon_kg_per_h", factor=1e3, seconds=3600.0),
    "availability": _at("availability"),
    "utilisation": _at("utilisation"),
    "completed": _completed,
    **{metric: _at("placement", key, "value") for metric, key in _PLACEMENT.items()},
}
"""The value (SI) of each metric without statistics; results state USD and kg per hour."""
