"""Targets of a plan's fleets as text: values with their intervals, how certainly they are met, and what they miss."""

from __future__ import annotations

from windtunnel.core.results.plan import Meets, PlanResult
from windtunnel.core.results.target import JudgedTarget, ModelInterval
from windtunnel.core.units import parse_unit
from windtunnel.report.numbers import NOTHING, exact_quantity, quantity, share, value_range
from windtunnel.report.plan_answer import error_ends
from windtunnel.report.targets import INCONCLUSIVE, TargetLine, with_signs


def how(meets: Meets, confidence: float) -> str:
    """Return how certainly a fleet meets the targets: the same words in every table."""
    return f"at {confidence * 100:.3g}%" if meets.confidence else "by value" if meets.value else "no"


def target_line_of(target: JudgedTarget, plan: PlanResult) -> TargetLine:
    """Return a target of the recommended fleet as a line of the report: its value, its limit and its headroom."""
    error = next((i for i in plan.explanation.model_intervals if i.text == target.text), None)
    unit, factor = ("%", 1.0) if target.unit == "1" else (target.unit, parse_unit(target.unit).factor)
    limit, value = exact_quantity(target.limit * factor, unit), target.value
    return TargetLine(
        text=with_signs(target.text),
        met=target.verdict != "missed",
        doubt=""
        if target.verdict != "unknown"
        else "no interval"
        if target.interval_source == "none"
        else INCONCLUSIVE,
        measured=NOTHING if value is None else quantity(value * factor, unit, limit=target.limit * factor),
        limit=limit,
        bound=f"{'≤' if target.comparison == '<=' else '≥'} {limit}",
        margin=_margin(target, error),
        ratio_to_limit=value / target.limit if value is not None and target.limit else None,
        may_be_missed=error is not None and target.verdict != "missed" and not error.within,
    )


def _margin(target: JudgedTarget, error: ModelInterval | None) -> str:
    """Return the headroom of a target with the runs of its interval, and how far the error of the models reaches."""
    text = (target.reason or "") if target.headroom is None else f"headroom {share(target.headroom)}{runs_of(target)}"
    text += target.out_of_service_text
    if error is not None:
        text += f", model error {error_ends(error)}"
    return text


def runs_of(target: JudgedTarget) -> str:
    """Return the runs from which the interval of a target comes, in brackets after a blank."""
    return f" ({target.runs_text})" if target.runs_text else ""


def excess(target: JudgedTarget) -> str:
    """Return how far the value of a target is beyond its limit, or why it is not met with confidence.

    Empty text if it is met with confidence.
    """
    if target.value is None:
        return "no value"
    if target.verdict == "unknown":
        if target.headroom is None:
            return "by value only: it has no interval"
        return f"by value only: the end of its interval is {share(-target.headroom)} beyond the limit"
    beyond = (target.value - target.limit) * (1 if target.comparison == "<=" else -1)
    if beyond <= 0 or not target.limit:
        return ""
    ratio = target.value / target.limit
    return f"{ratio:.3g} times the limit" if ratio >= 2 else f"{share(beyond / abs(target.limit))} beyond the limit"


def measured(target: JudgedTarget, plan: PlanResult) -> str:
    """Return a target's value with its confidence interval, and its runs unless all fleets have as many."""
    value, unit = target.value, target.unit
    if value is None:
        return NOTHING
    # A value without a unit is a share.
    factor, unit = (1.0, "%") if unit == "1" else (parse_unit(unit).factor, unit)
    limit = target.limit * factor
    text = quantity(value * factor, unit, limit=limit)
    low, high = target.low, target.high
    if low is None or high is None or low == high or target.interval_source not in ("run", "replications"):
        none = " (no interval)" if target.interval_source == "none" else ""
        return f"{text}{none}{target.out_of_service_text}"
    ends = value_range(low * factor, high * factor, unit, limit)
    return f"{text} ({', '.join(filter(None, [ends, _how_far(target, plan)]))}){target.out_of_service_text}"


def _how_far(target: JudgedTarget, plan: PlanResult) -> str:
    """Return the runs of an interval, unless all fleets have as many, and its confidence where it is another one."""
    other = "" if target.confidence == plan.confidence else f"{target.confidence * 100:.4g}%"
    runs = "" if plan.replications > 1 and target.interval_runs == plan.replications else target.runs_text
    return ", ".join(filter(None, [other, runs]))
