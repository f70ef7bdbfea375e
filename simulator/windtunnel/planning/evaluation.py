"""Reads evaluations: headroom, violations, the binding target, the cost frontier and the knee of a curve.

An evaluation is what the simulation of one fleet gives, as plain data (``planning.simulate.simulate``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.core.units import format_quantity, format_share, parse_unit

Evaluation = Mapping[str, Any]


def headroom(target: Mapping[str, Any]) -> float | None:
    """Return the distance from the worse end of the interval to the limit, as a share of the limit.

    It is negative where the target is missed, and None where there is no interval or the limit is zero.
    """
    worse, limit = target["worse_end"], target["limit"]
    if worse is None or not limit:
        return None
    share = float((limit - worse) / abs(limit))
    return share if target["comparison"] == "<=" else -share


def binding(evaluation: Evaluation) -> Mapping[str, Any] | None:
    """Return the target with the least headroom, the first of equals; None where no target has any."""
    measured = [(t["headroom"], i) for i, t in enumerate(evaluation["targets"]) if t["headroom"] is not None]
    return evaluation["targets"][min(measured)[1]] if measured else None


def least_headroom(evaluation: Evaluation) -> float:
    """Return the headroom of the binding target; minus infinity where no target has any."""
    target = binding(evaluation)
    return -math.inf if target is None else float(target["headroom"])


def violations(evaluation: Evaluation) -> list[str]:
    """Return in words which targets a fleet misses, or why they are inconclusive, the worst first.

    The list is empty for a fleet that meets every target.
    """
    missed = [t for t in evaluation["targets"] if t["verdict"] == "missed"]
    without_value: dict[str, list[str]] = {}
    for target in missed:
        if target["value"] is None:
            without_value.setdefault(target["reason"], []).append(target["text"])
    lines = [f"{reason}, so there is no value for {' and '.join(texts)}" for reason, texts in without_value.items()]
    measured = sorted((t for t in missed if t["value"] is not None), key=lambda t: t["headroom"] or -math.inf)
    lines += [f"{target['text']}: {value_text(target)}{_exceeds(target)}" for target in measured]
    # The missed targets are reason enough; inconclusive ones are listed only where none is missed.
    lines += [
        f"{target['text']} is inconclusive: {value_text(target)} ({target['reason']})"
        for target in evaluation["targets"]
        if target["verdict"] == "unknown" and not missed and evaluation["keeps_up"]
    ]
    if not evaluation["keeps_up"]:
        left = format_quantity(evaluation["keep_up_s"], "s")
        lines.append(f"it does not keep up: more than {left} of work remains at the end")
    if evaluation.get("spare_violations"):
        lines.append(evaluation["spare_violations"])
    return lines


# Words for values.


def shown(value: float, unit: str) -> str:
    """Return a value in the unit of its target as text; a share as a percentage."""
    if unit == "1":
        return format_share(value)
    factor = parse_unit(unit).factor
    if unit == "USD/h" or factor == 1.0:
        return format_quantity(value * factor, unit)
    return f"{value:.3g} {unit}"


def value_text(target: Mapping[str, Any]) -> str:
    """Return a target's value with its confidence interval as text."""
    unit, low, high = target["unit"], target["low"], target["high"]
    text = shown(target["value"], unit)
    if target["interval_source"] == "none":
        return f"{text}, no confidence interval"
    if target["interval_source"] == "exact" or low == high:
        return text
    first, last = shown(low, unit), shown(high, unit)
    number, _, rest = first.partition(" ")
    if rest and rest == last.partition(" ")[2]:
        first = number
    return f"{text}, {target['confidence'] * 100:.3g}% CI {first} to {last}"


def _judged_end(target: Mapping[str, Any]) -> str:
    """Return the end of the interval by which a target is judged; empty text for an exact value."""
    if target["interval_source"] in ("none", "exact") or target["low"] == target["high"]:
        return ""
    return "upper" if target["comparison"] == "<=" else "lower"


def _exceeds(target: Mapping[str, Any]) -> str:
    """Return a note if the value is within the limit and its interval is not."""
    value, limit, end = target["value"], target["limit"], _judged_end(target)
    within = value <= limit if target["comparison"] == "<=" else value >= limit
    return f", whose {end} bound misses the limit" if within and end else ""


def headroom_text(target: Mapping[str, Any]) -> str:
    """Return a target's value, and its headroom with the bound of the interval at which it is measured."""
    if target["headroom"] is None:
        return value_text(target)
    if target["headroom"] < 0:
        return f"{value_text(target)}{_exceeds(target)}"
    end = _judged_end(target)
    return f"{value_text(target)}; headroom {percent(target['headroom'])}{f' at the CI {end} bound' if end else ''}"


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return "an unknown share" if share is None else format_share(share)


def explained_by_interval(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether the headroom of a target changed mainly because its interval is wider, and not its value."""
    if None in (before["value"], before["worse_end"], after["value"], after["worse_end"]):
        return False
    moved = abs(after["value"] - before["value"])
    widened = abs(after["worse_end"] - before["worse_end"]) - moved
    return bool(widened > 2 * moved and widened > 0.1 * abs(before["limit"]))


# Choosing among evaluations.


def next_cheapest(evaluations: Sequence[Evaluation], best: Evaluation, objective: str) -> Evaluation | None:
    """Return the most expensive of the simulated fleets that cost less than ``best`` and fail."""
    failed = [e for e in evaluations if not e["met"] and e[objective] is not None and e[objective] < best[objective]]
    return max(failed, key=lambda e: (e[objective], tuple(e["counts"])), default=None)


def binding_time(evaluation: Evaluation | None) -> Mapping[str, Any] | None:
    """Return the target of a time with the least headroom; None where no target of a time has any."""
    targets = [] if evaluation is None else evaluation["targets"]
    timed = (t for t in targets if t["unit"] == "s" and t["headroom"] is not None)
    return min(timed, key=lambda t: t["headroom"], default=None)


def time_s(evaluation: Evaluation, target: Mapping[str, Any] | None) -> float | None:
    """Return a fleet's value (s) of ``target``, or its p99 latency where ``target`` is None."""
    if target is None:
        latency_s: float | None = evaluation["p99_s"]
        return latency_s
    value: float | None = next(t["value"] for t in evaluation["targets"] if t["text"] == target["text"])
    return value


def time_name(target: Mapping[str, Any] | None) -> str:
    """Return the name of what ``time_s`` returns."""
    if target is None:
        return "latency p99"
    of = f" of {target['workload']}" if target["workload"] else ""
    return f"{target['metric'].replace('_', ' ')} {target['statistic']}{of}"


def front(evaluations: Sequence[Evaluation], target: Mapping[str, Any] | None) -> list[Evaluation]:
    """Return the fleets that meet every target and that no other such fleet beats in cost, power and time together."""
    met = [e for e in evaluations if e["met"] and time_s(e, target) is not None]
    points = np.array([[e["cost_usd_per_h"], e["power_w"], time_s(e, target)] for e in met])
    kept = []
    for i, evaluation in enumerate(met):
        beaten = (points <= points[i]).all(axis=1) & (points < points[i]).any(axis=1)
        if not beaten.any():
            kept.append(evaluation)
    return sorted(kept, key=lambda e: (e["cost_usd_per_h"], e["power_w"], tuple(e["counts"])))


def minimal(evaluations: Sequence[Evaluation], objective: str, most: int) -> list[Evaluation]:
    """Return at most ``most`` of the best fleets that meet every target, none of which contains another one."""
    return _minimal([e for e in evaluations if e["met"]], (), objective)[:most]


def inconclusive(
    evaluations: Sequence[Evaluation], listed: Sequence[Evaluation], objective: str, most: int
) -> list[Evaluation]:
    """Return at most ``most`` fleets whose verdict is inconclusive, the best first.

    None of them contains another such fleet, or one of ``listed``.
    """
    unknown = [e for e in evaluations if e["verdict"] == "unknown" and e[objective] is not None]
    return _minimal(unknown, listed, objective)[:most]


def _minimal(evaluations: Sequence[Evaluation], smaller: Sequence[Evaluation], objective: str) -> list[Evaluation]:
    """Return the evaluations, the best first, without those that contain an earlier one or one of ``smaller``."""
    kept: list[Evaluation] = []
    for candidate in sorted(
        evaluations, key=lambda e: (e[objective], e["cost_usd_per_h"], sum(e["counts"]), tuple(e["counts"]))
    ):
        counts = candidate["counts"]
        if not any(all(a <= b for a, b in zip(e["counts"], counts, strict=True)) for e in (*kept, *smaller)):
            kept.append(candidate)
    return kept


KNEE_RULE = (
    "Kneedle (Satopaa et al., 2011): the load at which the curve, both axes scaled to 0..1, is furthest below the "
    "line from its first point to its last"
)
_STRAIGHT = 0.1
"""A curve that is nowhere further below the straight line than this has no knee."""


def knee(loads: Sequence[float], values: Sequence[float | None]) -> float | None:
    """Return the load after which a rising curve turns up; None where it does not, or has fewer than four points.

    Source: Kneedle (Satopaa et al., 2011), see ``KNEE_RULE``.
    """
    points = sorted((x, y) for x, y in zip(loads, values, strict=True) if y is not None and math.isfinite(y))
    if len(points) < 4:
        return None
    x, y = (np.array(column) for column in zip(*points, strict=True))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    distance = (x - x[0]) / np.ptp(x) - (y - y.min()) / np.ptp(y)
    place = int(np.argmax(distance))
    return float(x[place]) if distance[place] > _STRAIGHT else None
