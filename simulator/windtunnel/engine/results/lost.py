"""Ends a run whose fleet has lost a target for certain, so that a plan need not simulate its remaining requests.

A request that has its first token has a known TTFT, and one that has waited longer than the limit will exceed it. If
more of them are beyond the limit than a percentile of all requests allows, the target is missed whatever follows: the
percentile of the known times, with 0 for all others, is a lower bound on its value. The same holds for end-to-end
latencies and, with the number of all tokens, for the gaps between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.ticks import TICKS_PER_SECOND, FloatArray, to_second_array
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results.accounting import tokens_of
from windtunnel.engine.results.statistics import STATISTICS
from windtunnel.scenario.target import Target

CHECKS = 24
"""How often a run is checked while its jobs arrive."""
_FEWEST_JOBS = 64
"""The smallest number of jobs between two checks."""
_MARGIN = 1 + 1e-9
"""The factor by which a lower bound must exceed a limit, so that rounding does not decide."""
_EVENTS = {"ttft": "first", "latency": "finish", "e2e": "finish"}


@dataclass(frozen=True)
class LostTarget:
    """A target that a fleet misses: its value is at least ``least_s`` (s)."""

    text: str
    least_s: float


class TargetsLostError(Exception):
    """A run was ended after ``jobs`` arrivals, because it misses the targets ``lost`` whatever follows."""

    def __init__(self, jobs: int, lost: Sequence[LostTarget]) -> None:
        # SimPy makes the exception again, with the same arguments.
        super().__init__(jobs, lost)
        self.jobs, self.lost = jobs, lost


@dataclass
class _Gaps:
    """What is known of the gaps between tokens: the rows that were seen, and the tokens beyond the limit."""

    seen: int = 0
    beyond: int = 0


class Watch:
    """Looks at a run while it goes on, and ends it when a target is lost for certain."""

    def __init__(self, prepared: PreparedRun, targets: Sequence[Target]) -> None:
        self.arrival = prepared.arrival
        self.block = max(len(self.arrival) // CHECKS, _FEWEST_JOBS)
        """The number of jobs between two checks."""
        self._outputs = tokens_of(prepared, prepared.workload_of, prepared.rank)[1]
        self._names = [w.workload.name for w in prepared.workloads]
        self._workload = prepared.workload_of
        self._targets = [t for t in targets if _is_percentile(t)]
        self._gaps = {t.text: _Gaps() for t in self._targets}

    def check(self, now: int, jobs: np.ndarray, gaps: np.ndarray) -> None:
        """Raise TargetsLostError if a target is lost for certain.

        Args:
            now: The tick of the last event.
            jobs: The records of the jobs that have arrived (``tables.JOB``).
            gaps: The records of the gaps so far (``tables.GAP``); those of an earlier check are unchanged.
        """
        lost = []
        for target in self._targets:
            of_gaps = target.metric == "itl"
            least_s = self._least_gap_s(target, gaps) if of_gaps else self._least_s(target, now, jobs)
            if least_s is not None and least_s > target.limit * _MARGIN:
                lost.append(LostTarget(target.text, least_s))
        if lost:
            raise TargetsLostError(len(jobs), lost)

    def _mine(self, target: Target) -> np.ndarray:
        """Return the jobs that a target is about; shape (jobs,)."""
        mine = np.ones(len(self.arrival), dtype=bool) if target.metric == "latency" else self._outputs > 0
        if target.workload is not None:
            mine &= self._workload == self._names.index(target.workload)
        return mine

    def _least_s(self, target: Target, now: int, jobs: np.ndarray) -> float | None:
        """Return a lower bound (s) on a percentile of the times of jobs; None where it is within the limit."""
        mine, event = self._mine(target), jobs[_EVENTS[target.metric]]
        ticks = np.where(event >= 0, event, now) - self.arrival[: len(jobs)]
        ticks[jobs["lost"] != 0] = 0
        times_s = to_second_array(ticks[mine[: len(jobs)]])
        total, fraction = int(mine.sum()), _fraction(target)
        if np.count_nonzero(times_s > target.limit) < (1.0 - fraction) * (total - 1):
            return None
        least: FloatArray = np.zeros(total)
        least[: len(times_s)] = times_s
        return float(np.quantile(least, fraction))

    def _least_gap_s(self, target: Target, rows: np.ndarray) -> float | None:
        """Return a lower bound (s) on a percentile of the gaps between tokens; None where it is within the limit."""
        known, total = self._gaps[target.text], float(self._outputs[self._mine(target)].sum())
        if len(rows) < known.seen:  # the run was begun anew, by the other engine
            known.seen = known.beyond = 0
        new, known.seen = rows[known.seen :], len(rows)
        of = None if target.workload is None else self._names.index(target.workload)
        mine = np.ones(len(new), dtype=bool) if of is None else new["work"] == of
        beyond = mine & (new["ticks"] > target.limit * TICKS_PER_SECOND)
        known.beyond += int(new["tokens"][beyond].sum())
        allowed = (1.0 - _fraction(target)) * total
        if known.beyond <= allowed * _MARGIN:
            return None
        every = rows if of is None else rows[rows["work"] == of]
        order = np.argsort(-every["ticks"])
        # The largest gap of which fewer tokens than are allowed have a longer one.
        place = int(np.searchsorted(np.cumsum(every["tokens"][order]), allowed, side="right"))
        return float(every["ticks"][order][min(place, len(order) - 1)]) / TICKS_PER_SECOND


def watch_of(prepared: PreparedRun, targets: Sequence[Target]) -> Watch | None:
    """Return the watch of a run; None where what is known of a request may change, or no target can be lost early.

    Every job of the run must be judged and completed: it drains, and no fault, patience or preemption takes requests
    back. Where a warm-up may be left out of the times, it is not known before the end.
    """
    scenario = prepared.scenario
    drains = prepared.end is None and not prepared.users and not prepared.streamed
    certain = prepared.faults is None and not prepared.interrupts and not prepared.outranks
    patient = all(w.workload.patience is None for w in prepared.workloads)
    judged = scenario.warm_up != "auto" or not all(w.workload.arrivals.stationary for w in prepared.workloads)
    simple = not prepared.disaggregated and not prepared.drafted_tokens and not prepared.scaled
    serving = prepared.policy.batch.kind == "continuous"
    if not (drains and certain and patient and judged and simple and serving):
        return None
    watch = Watch(prepared, targets)
    return watch if any(map(_is_percentile, targets)) else None


def _is_percentile(target: Target) -> bool:
    known = target.metric in ("itl", *_EVENTS) and target.comparison == "<="
    return known and STATISTICS.get(target.statistic or "") is not None


def _fraction(target: Target) -> float:
    fraction = STATISTICS[target.statistic or ""]
    assert fraction is not None  # noqa: S101  only percentiles are watched
    return fraction
