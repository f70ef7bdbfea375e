"""States in words whether targets are met, by how much, and how certain that is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.units import parse_unit
from windtunnel.report.numbers import NOTHING, exact_quantity, number, quantity, share, value_range
from windtunnel.report.text import table_lines

_SIGNS = {"<=": "≤", ">=": "≥"}
MET, MAY_BE_MISSED, INCONCLUSIVE, MISSED = "met", "may-be-missed", "inconclusive", "missed"
NO_TARGETS = "none"
"""The states of a target and of an answer. They are also the classes of `report.css` that colour them."""
MARKS = {MET: "✓", MAY_BE_MISSED: "!", INCONCLUSIVE: "?", MISSED: "✗", NO_TARGETS: "–"}
"""The sign of each state. `common.js` has the same."""
WITHIN_ERROR = "within the error of the models"
_TIMED = ("latency", "waiting", "ttft", "itl", "tpot", "e2e")
"""Metrics for which one run can give a confidence interval."""


@dataclass(frozen=True)
class TargetLine:
    """One target as text.

    ``limit`` is the limit, and ``bound`` the limit with its sign. ``doubt`` says why chance leaves the outcome open:
    the confidence interval of the value contains the limit, or a time of single jobs has no interval; it is empty
    otherwise. ``may_be_missed``: the value is within the limit, but not all of its interval for the error of the
    models is. ``ratio_to_limit`` is value over limit, or None if nothing was measured.
    """

    text: str
    met: bool
    doubt: str
    measured: str
    limit: str
    bound: str
    margin: str
    ratio_to_limit: float | None
    may_be_missed: bool = False

    @property
    def status(self) -> str:
        """Return the state of the target. What chance leaves open is stated before the error of the models."""
        if self.doubt:
            return INCONCLUSIVE
        return MISSED if not self.met else MAY_BE_MISSED if self.may_be_missed else MET

    @property
    def mark(self) -> str:
        """Return the sign of the state."""
        return MARKS[self.status]

    @property
    def outcome(self) -> str:
        """Return whether the value is within the limit, in a word."""
        return MET if self.met else MISSED

    @property
    def caveat(self) -> str:
        """Return why the outcome is uncertain, in a few words; empty if it is not."""
        return self.doubt or ("may be missed" if self.may_be_missed else "")

    @property
    def label(self) -> str:
        """Return the outcome in a few words."""
        return self.outcome + (f" ({self.caveat})" if self.caveat else "")

    @property
    def meter(self) -> float | None:
        """Return how far the value fills its bar, in percent: the limit is at two thirds of the bar."""
        return None if self.ratio_to_limit is None else min(max(self.ratio_to_limit, 0.0), 1.5) / 1.5 * 100

    @property
    def overflows(self) -> bool:
        """Return whether the value does not fit on its bar."""
        return self.ratio_to_limit is not None and self.ratio_to_limit > 1.5


def target_line(target: TargetVerdict) -> TargetLine:
    """Return a target as text: the value, the limit, the margin, and whether it is conclusive."""
    # The result gives all numbers in the target's own unit; numbers are formatted from SI.
    unit, to_si = target.unit, parse_unit(target.unit).factor
    value, low, high = (None if n is None else n * to_si for n in (target.value, target.low, target.high))
    limit = target.limit * to_si
    if unit == "1" and "%" in target.text:
        unit = "%"
    if value is None:
        measured, margin = (NOTHING, target.reason) if target.reason else ("nothing measured", "")
    else:
        worse = None if target.confidence != "conclusive" else high if target.comparison == "<=" else low
        measured, margin = quantity(value, unit, limit=limit), _margin(target, value, worse, limit) if limit else ""
        if target.confidence == "inconclusive":
            upper = target.met == (target.comparison == "<=")
            margin = (
                f"95% CI {'upper' if upper else 'lower'} bound {quantity(high if upper else low, unit, limit=limit)}"
            )
        if target.may_be_missed:
            margin += f", model error {ends_text(target.model_low, target.model_high, target.unit, target.limit)}"
    return TargetLine(
        text=re.sub(r"(?<=\d) %", "%", with_signs(target.text)),
        met=target.met,
        doubt=doubt_of(target),
        measured=measured,
        limit=exact_quantity(limit, unit),
        bound=f"{_SIGNS[target.comparison]} {exact_quantity(limit, unit)}",
        margin=margin,
        ratio_to_limit=value / limit if value is not None and limit else None,
        may_be_missed=target.may_be_missed,
    )


def doubt_of(target: TargetVerdict) -> str:
    """Return why the outcome of a target is uncertain, in a few words; empty if it is not."""
    if target.confidence == "inconclusive":
        return "inconclusive"
    untold = target.confidence == "no interval" and target.metric in _TIMED
    return "no interval" if untold and target.value is not None else ""


def ends_text(low: float | None, high: float | None, unit: str, limit: float) -> str:
    """Return the interval of a target's value for the error of the models; all numbers are in the target's unit."""
    factor = parse_unit(unit).factor
    if low is None or high is None:
        end = "an unknown value" if low is None else quantity(low * factor, unit, limit=limit * factor)
        return f"{end} or more"
    return value_range(low * factor, high * factor, unit, limit * factor)


def with_signs(text: str) -> str:
    """Return ``text`` with ≤ and ≥ in place of <= and >=."""
    return text.replace("<=", "≤").replace(">=", "≥")


def _margin(target: TargetVerdict, value: float, worse_end: float | None, limit: float) -> str:
    """Return the headroom of a target that is met, or how far the value of one that is missed is beyond its limit.

    The headroom is that of `plan`: the distance from the worse bound of the interval, or else from the value.
    """
    if value == limit:
        return "on the limit"
    if target.met:
        return f"headroom {share(abs(limit - (value if worse_end is None else worse_end)) / abs(limit))}"
    if value / limit >= 2:
        return f"{number(value / limit, 2)} times the limit"
    return f"{share(abs(value - limit) / abs(limit))} beyond the limit"


def all_of(count: int) -> str:
    """Return the words for all of ``count`` targets: "The target", "Both targets", "All 3 targets"."""
    return {1: "The target", 2: "Both targets"}.get(count, f"All {count} targets")


def verdict(targets: Sequence[TargetVerdict]) -> str:
    """Return the answer in one line: how many targets are met, and how many of these outcomes are uncertain."""
    if not targets:
        return "No targets were set"
    missed = sum(not target.met for target in targets)
    doubts = [doubt_of(target) for target in targets]
    if missed in (0, len(targets)):
        answer = f"{all_of(len(targets))}{' is' if len(targets) == 1 else ''} {'missed' if missed else 'met'}"
    else:
        answer = f"{missed} of {len(targets)} targets missed"
    for doubt, words in (("inconclusive", "inconclusive at 95%"), ("no interval", "without a confidence interval")):
        if number_of := doubts.count(doubt):
            answer += f"; {'' if len(targets) == 1 else f'{number_of} '}{words}"
    if number_of := sum(target.may_be_missed for target in targets):
        answer += f"; {WITHIN_ERROR} {'it' if len(targets) == 1 else number_of} may be missed"
    return answer


def overall_status(targets: Sequence[TargetVerdict]) -> str:
    """Return the state of an answer: that of its worst target, or that there is none."""
    return worst(target_line(target).status for target in targets)


def worst(states: Iterable[str]) -> str:
    """Return the worst of the states of targets: one that is conclusively missed decides the answer."""
    found = set(states)
    return next((state for state in (MISSED, INCONCLUSIVE, MAY_BE_MISSED, MET) if state in found), NO_TARGETS)


def verdict_lines(targets: Sequence[TargetVerdict]) -> list[str]:
    """Return the verdict and a line for each target, for a terminal."""
    rows = []
    for line in map(target_line, targets):
        label = line.label if line.met else line.label.replace("missed", "MISSED")
        rows.append([label, line.text, line.measured, line.margin])
    return [verdict(targets), *(f"  {line}" for line in table_lines(rows, "<<><", "   "))]
