"""A run's times, workload by workload, ready to be estimated: from every job, or from sums and histograms.

Jobs of the warm-up are left out of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from windtunnel.core.result import COMPLETED, IntArray, Recording, Tally
from windtunnel.core.ticks import to_second_array
from windtunnel.engine.prepare.offered_load import Load, offered_load
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results.sample import BatchedSample, Histograms
from windtunnel.engine.results.steady import (
    LEAST_JOBS,
    UNBOUNDED,
    Correlation,
    Growth,
    WarmUp,
    correlation_of,
    growth,
    jobs_to_settle,
    warm_up,
)
from windtunnel.scenario.arrivals import Closed

Samples = dict[str, BatchedSample | None]
LATENCY, WAITING = range(2)
_EVERY_JOB = "the scenario says that every job counts"


@dataclass(frozen=True)
class Steady:
    """What a run's times are taken over: jobs from ``job`` (in order of arrival) on, which arrived at tick ``since``.

    ``correlation``: that of the waiting times, the slowest swings of all. ``settled``: whether the
    run has a steady state; None for a source that has none to reach. ``load``: what was offered over what can be done.
    ``too_short``: why no interval can be trusted.
    """

    job: int
    since: int
    reason: str
    correlation: Correlation
    settled: Growth | None
    load: Load | None = None
    too_short: str | None = None


class Times(Protocol):
    """The times of a run."""

    steady: Steady

    def counts(self, work: int | None) -> IntArray:
        """Jobs by status (``STATUS``) of a workload, or of all."""

    def samples(self, work: int | None) -> Samples:
        """Latency, waiting, first and next token (s) of a workload, or of all, without the warm-up."""


def times_of(prepared: PreparedRun, recording: Recording) -> Times:
    """The times of a run."""
    if recording.tally is not None:
        return _SummedTimes(prepared, recording.tally)
    return _EveryTime(prepared, recording)


def _settled(prepared: PreparedRun, load: Load | None, waits: BatchedSample) -> Growth:
    """Whether the run can have, and shows, a steady state. A few jobs are a burst and not a system that grows."""
    if all(isinstance(w.workload.arrivals, Closed) for w in prepared.workloads):
        found = growth(waits)
        if found.settled == "unstable":
            # No more can wait than there are users.
            return Growth("not shown", "waiting times rise to the end of the run: too short for these users to settle")
        return found
    if load is not None and load.excessive and waits.size >= LEAST_JOBS:
        return Growth("unstable", f"{load.offered:.3g} times as much work arrives as the fleet can do")
    return growth(waits)


def _too_short(load: Load | None, jobs: int, service_scv: float) -> str | None:
    """Why ``jobs`` at this load are too few for intervals; None where they are enough or the load is not known."""
    if load is None or load.steady or load.excessive:
        return None
    needed = jobs_to_settle(load.offered, service_scv)
    if jobs >= needed:
        return None
    return (
        f"the run is too short: at load {load.offered:.3g} a queue's swings show from about {needed:,.0f} jobs on, "
        f"and it has {jobs:,}"
    )


class _EveryTime:
    """From every job's times."""

    def __init__(self, prepared: PreparedRun, recording: Recording) -> None:
        self.recording = recording
        self.steady = self._steady(prepared)

    def _steady(self, prepared: PreparedRun) -> Steady:
        jobs = self.recording.jobs
        if not all(w.workload.arrivals.stationary for w in prepared.workloads):
            return Steady(0, 0, "arrivals change with time: every job counts", UNBOUNDED, None)
        started, done = np.flatnonzero(jobs.start >= 0), np.flatnonzero(jobs.status == COMPLETED)
        waits = BatchedSample.from_values(to_second_array(jobs.start[started] - jobs.arrival[started]))
        latencies = BatchedSample.from_values(to_second_array(jobs.finish[done] - jobs.arrival[done]))
        first, reason = 0, _EVERY_JOB
        if prepared.scenario.warm_up == "auto":
            cuts = [(warm_up(waits), started), (warm_up(latencies), done)]
            found = ((int(of[cut.jobs]) if cut.jobs else 0, cut.reason) for cut, of in cuts)
            first, reason = max(found, key=lambda x: x[0])
        kept = started[started >= first]
        correlation = correlation_of(BatchedSample.from_values(to_second_array(jobs.start[kept] - jobs.arrival[kept])))
        since = int(jobs.arrival[first]) if len(jobs) else 0
        load = offered_load(prepared)
        services = to_second_array(jobs.finish[done] - jobs.start[done])
        mean = float(services.mean()) if len(services) else 0.0
        short = _too_short(load, len(jobs), float(services.var()) / mean**2 if mean else 0.0)
        return Steady(first, since, reason, correlation, _settled(prepared, load, waits), load, short)

    def counts(self, work: int | None) -> IntArray:
        """Jobs by status (``STATUS``) of a workload, or of all."""
        jobs = self.recording.jobs
        return np.bincount(jobs.status if work is None else jobs.status[jobs.workload == work], minlength=5)

    def samples(self, work: int | None) -> Samples:
        """Latency, waiting, first and next token (s) of a workload, or of all, without the warm-up."""
        jobs, gaps = self.recording.jobs, self.recording.token_gaps
        mine = np.ones(len(jobs), dtype=bool) if work is None else jobs.workload == work
        generating = bool((jobs.tokens[mine] > 0).any())
        mine[: self.steady.job] = False
        done, started = mine & (jobs.status == COMPLETED), mine & (jobs.start >= 0)
        found: Samples = {
            "latency_s": BatchedSample.from_values(to_second_array(jobs.finish[done] - jobs.arrival[done])),
            "waiting_s": BatchedSample.from_values(to_second_array(jobs.start[started] - jobs.arrival[started])),
            "ttft_s": None,
            "itl_s": None,
        }
        if generating:
            spoke = mine & (jobs.first >= 0)
            late = gaps.end >= self.steady.since
            if work is not None:
                late &= gaps.workload == work
            gap_s, weights = to_second_array(gaps.ticks[late]), gaps.weights[late].astype(np.float64)
            found["ttft_s"] = BatchedSample.from_values(to_second_array(jobs.first[spoke] - jobs.arrival[spoke]))
            found["itl_s"] = BatchedSample.from_values(gap_s, weights)
        return found


class _SummedTimes:
    """From sums and histograms of a run too long to keep every job's times."""

    def __init__(self, prepared: PreparedRun, tally: Tally) -> None:
        self.tally = tally
        self.steady = self._steady(prepared)

    def _steady(self, prepared: PreparedRun) -> Steady:
        nothing = Steady(0, 0, "arrivals change with time: every job counts", UNBOUNDED, None)
        if not all(w.workload.arrivals.stationary for w in prepared.workloads):
            return nothing
        whole = self._sample(0, WAITING, 0)
        cut = WarmUp(0, 0, _EVERY_JOB)
        if prepared.scenario.warm_up == "auto":
            cut = max(warm_up(whole), warm_up(self._sample(0, LATENCY, 0)), key=lambda one: one.batches)
        # Histograms are of several batches each, and are left out whole.
        first = -(-cut.batches // self._per_stretch) * self._per_stretch
        load = offered_load(prepared)
        steady = replace(nothing, job=first * self.tally.width, reason=cut.reason)
        correlation = correlation_of(self._sample(0, WAITING, first))
        settled = _settled(prepared, load, whole)
        # Sums do not tell how services vary; as exponential ones do is the middle of what is seen.
        short = _too_short(load, int(self.tally.counts.sum()), 1.0)
        return replace(steady, correlation=correlation, settled=settled, load=load, too_short=short)

    @cached_property
    def _per_stretch(self) -> int:
        return int(self.tally.batches.shape[1] // self.tally.bins.shape[2])

    @cached_property
    def _used(self) -> int:
        """Batches that any job fell into."""
        row = self.tally.batches[0]
        filled = np.flatnonzero((row["latency_n"] > 0) | (row["waiting_n"] > 0))
        return int(filled[-1]) + 1 if len(filled) else 0

    def _sample(self, series: int, what: int, first: int) -> BatchedSample:
        name = ("latency", "waiting")[what]
        rows = self.tally.batches[series][first : self._used]
        edges = np.append(np.arange(first, self._used, self._per_stretch), self._used) - first
        stretch = first // self._per_stretch
        bins = self.tally.bins[what, series, stretch : stretch + len(edges) - 1]
        histograms = Histograms(bins[:, 1:].astype(np.int64), bins[:, 0].astype(np.int64), edges, 0, 1e-12)
        return BatchedSample.from_batches(rows[f"{name}_n"], rows[f"{name}_sum"], histograms, unit=1e-12)

    def counts(self, work: int | None) -> IntArray:
        """Jobs by status (``STATUS``) of a workload, or of all."""
        counts: IntArray = self.tally.counts.sum(axis=0) if work is None else self.tally.counts[work]
        return counts

    def samples(self, work: int | None) -> Samples:
        """Latency and waiting (s) of a workload, or of all, without the warm-up."""
        series = 0 if work is None or len(self.tally.batches) == 1 else 1 + work
        first = self.steady.job // self.tally.width
        return {
            "latency_s": self._sample(series, LATENCY, first),
            "waiting_s": self._sample(series, WAITING, first),
            "ttft_s": None,
            "itl_s": None,
        }
