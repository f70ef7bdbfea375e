"""Targets with the values of a run or a fleet, and how they are judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.data import OPTIONAL, Result


def stays_within(low: float | None, high: float | None, limit: float, comparison: str) -> bool:
    """Return whether an interval is on the allowed side of a limit throughout; an end that is None has no bound."""
    if comparison == "<=":
        return high is not None and high <= limit
    return low is not None and low >= limit


_VERDICTS = ("met", "unknown", "missed")
"""The verdicts of a fleet's targets, from the best to the worst."""


ENGINE_ERROR = "that of an engine's time to the first token"
"""What intervals for the error of the models also contain, as the end of a clause."""


@dataclass(frozen=True)
class TargetVerdict(Result):
    """A target, its value with the 95% interval, and whether it is met; numbers are in the target's ``unit``.

    ``confidence`` is a member of ``scenario.target.CONFIDENCE``; ``reason`` says why there is no interval or value.
    ``model_low`` and ``model_high`` are the ends of the 90% interval of the value for the error of the models; both are
    None if that is not known, and one of them if there is no such end.
    """

    text: str
    met: bool
    confidence: str
    value: float | None
    low: float | None
    high: float | None
    reason: str | None
    metric: str
    statistic: str | None
    workload: str | None
    comparison: str
    limit: float
    unit: str
    model_low: float | None = field(default=None, metadata=OPTIONAL)
    model_high: float | None = field(default=None, metadata=OPTIONAL)

    @property
    def may_be_missed(self) -> bool:
        """Whether the target is met by its value, and missed somewhere in the interval for the error of the models."""
        ends = self.model_low, self.model_high
        return self.met and ends != (None, None) and not stays_within(*ends, self.limit, self.comparison)


@dataclass(frozen=True)
class TargetValue(Result):
    """A target, and a fleet's value of it with an interval; numbers are in its ``unit``."""

    text: str
    value: float | None
    low: float | None
    high: float | None
    limit: float
    unit: str
    comparison: str
    metric: str
    statistic: str | None
    workload: str | None
    out_of_service: str | None = field(default=None, metadata=OPTIONAL, kw_only=True)
    """The devices of a plan's fleet that are out of service where it has this value, such as ``4 × h200``; None where
    all are in service."""

    @property
    def out_of_service_text(self) -> str:
        """The devices that are out of service as the end of a clause; empty where all are in service."""
        return f", without {self.out_of_service}" if self.out_of_service else ""

    def beyond(self, end: float | None) -> float:
        """Return how far an end of the interval is beyond the limit, which is negative within it; infinite for None."""
        if end is None:
            return math.inf
        return end - self.limit if self.comparison == "<=" else self.limit - end


@dataclass(frozen=True)
class JudgedTarget(TargetValue):
    """A target of a fleet, judged with confidence.

    ``verdict``: met (with confidence), unknown (by value only) or missed. ``worse_end`` is the end of the interval by
    which it is judged.
    ``interval_source``: run, replications, exact or none. ``headroom`` is the share of the limit between the two.
    ``interval_runs``: the runs from which the interval comes: all replications, or the redrawn runs beside the run
    itself; None where it comes from one run, or where there is none. ``run_length``: the length of that run, in runs of
    the scenario.
    """

    met: bool
    verdict: str
    worse_end: float | None
    interval_source: str
    confidence: float
    reason: str | None
    headroom: float | None
    interval_runs: int | None = None
    run_length: int = 1

    @property
    def badness(self) -> tuple[int, float]:
        """The place of the target in the order from those met best to those missed most."""
        end = self.value if self.worse_end is None else self.worse_end
        return _VERDICTS.index(self.verdict), self.beyond(end)

    @property
    def runs_text(self) -> str:
        """The runs from which the interval comes, such as ``8 more runs``; empty where it is that of the scenario."""
        longer = "" if self.run_length == 1 else f"a run {self.run_length:,} times as long"
        if self.interval_runs is None:
            return longer
        more = "" if self.interval_source == "replications" else "more "
        runs = f"{self.interval_runs:,} {more}run{'' if self.interval_runs == 1 else 's'}"
        return f"{longer} and {runs}" if longer else runs


@dataclass(frozen=True)
class ModelInterval(TargetValue):
    """The 90% interval for the error of the models of a target's value, as ``run`` states it of the same fleet.

    It contains the error of an engine's time to the first token. ``low`` and ``high`` are None where there is no such
    end: a fleet whose steps are as slow as the models allow may not complete its work.
    """

    @property
    def badness(self) -> float:
        """How far the worse end of the interval is beyond the limit."""
        return self.beyond(self.high if self.comparison == "<=" else self.low)

    @property
    def within(self) -> bool:
        """Whether the target is met throughout the interval."""
        return stays_within(self.low, self.high, self.limit, self.comparison)


def worst_intervals(of_fleets: Sequence[Sequence[ModelInterval]]) -> list[ModelInterval]:
    """Return the worst interval of each target over a fleet and what is left of it with devices out of service."""
    worst: dict[str, ModelInterval] = {}
    for interval in (interval for intervals in of_fleets for interval in intervals):
        known = worst.setdefault(interval.text, interval)
        if interval.badness > known.badness:
            worst[interval.text] = interval
    return list(worst.values())
