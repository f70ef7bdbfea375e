"""The times of a run by workload, as samples for estimation: from every job, or from sums and histograms.

The samples exclude the jobs of the warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from windtunnel.core.recording import COMPLETED, IntArray, Recording, Tally
from windtunnel.core.ticks import to_second_array
from windtunnel.engine.prepare.offered_load import Load, offered_load
from windtunnel.engine.prepare.prepared import JobClass, PreparedRun
from windtunnel.engine.results.sample import BatchedSample, Histograms
from windtunnel.engine.results.steady import (
    MIN_JOBS,
    TOO_FEW,
    UNBOUNDED,
    Correlation,
    SteadyState,
    WarmUp,
    assess_steady_state,
    correlation_of,
    jobs_to_steady_state,
    warm_up,
)
from windtunnel.scenario.arrivals import Closed

Samples = dict[str, BatchedSample | None]
OF_TOKENS = ("ttft_s", "itl_s", "tpot_s", "e2e_s")
"""The times of requests; None where no job generates tokens."""
LATENCY, WAITING = range(2)
MIN_VALUES = 200
"""The smallest number of jobs of a workload by which it is assessed alone."""
_EVERY_JOB = "the scenario says that every job counts"
_CHANGING = "the arrival rate changes with time, so every job counts"
_NO_INTERVAL = "the arrival rate changes with time, and one run does not show which changes are chance"


@dataclass(frozen=True)
class Steady:
    """The part of a run that its time statistics include.

    Attributes:
        job: The first job that is included, in order of arrival.
        since: The tick at which that job arrived.
        reason: Why the warm-up ends there.
        correlation: The correlation of the queueing delays, which change more slowly than all other times.
        state: Whether the run reached a steady state; None if an arrival process is not stationary.
        load: The offered load, if it is known.
        no_interval: The reason why no confidence interval of the run can be trusted, or None.
    """

    job: int
    since: int
    reason: str
    correlation: Correlation
    state: SteadyState | None
    load: Load | None = None
    no_interval: str | None = None


class Times(Protocol):
    """The times of a run as samples."""

    steady: Steady

    def counts(self, work: int | None) -> IntArray:
        """Return the number of jobs in each state of ``STATUS``, of one workload or of all."""

    def samples(self, work: int | None) -> Samples:
        """Return latency, queueing delay and times of tokens (s) of one workload, or of all, without the warm-up."""

    def steady_of(self, work: int | None) -> Steady:
        """Return the part of the run that the statistics of one workload, or of all, include."""


def times_of(prepared: PreparedRun, recording: Recording) -> Times:
    """Return the times of a run."""
    if recording.tally is not None:
        return _SummedTimes(prepared, recording.tally)
    return _EveryTime(prepared, recording)


def _is_bounded(job_class: JobClass) -> bool:
    """Return whether the number of users, the patience of the jobs or an admission limit bounds the delays."""
    workload = job_class.workload
    limit = workload.rate_limit
    rejects = workload.max_waiting is not None or (limit is not None and limit.over == "reject")
    return isinstance(workload.arrivals, Closed) or workload.patience is not None or rejects


def _bounded(waits: BatchedSample, min_jobs: int = MIN_JOBS) -> SteadyState:
    """Return whether a run whose delays are bounded reached a steady state."""
    state = assess_steady_state(waits, min_jobs)
    if state.verdict == "unstable":
        return SteadyState("not shown", "queueing delays rise until the end of the run; the run is too short")
    return state


def _steady_state(prepared: PreparedRun, load: Load | None, waits: BatchedSample) -> SteadyState:
    """Return whether the run reached a steady state. A few jobs are a burst, and never count as unstable."""
    if all(map(_is_bounded, prepared.workloads)):
        return _bounded(waits)
    # The offered load does not know how many jobs an admission limit rejects.
    limited = any(w.workload.max_waiting is not None for w in prepared.workloads)
    if load is not None and load.excessive and waits.size >= MIN_JOBS and not limited:
        times = f"{load.offered:.3g}"
        if float(times) <= 1:  # rounded
            times = "slightly more than 1"
        return SteadyState("unstable", f"{times} times as much work arrives as the fleet can do")
    return assess_steady_state(waits)


def _too_short(load: Load | None, jobs: int, service_scv: float) -> str | None:
    """Return why ``jobs`` jobs are too few for confidence intervals at this load; None if they are enough."""
    if load is None or load.steady or load.excessive:
        return None
    needed = jobs_to_steady_state(load.offered, service_scv)
    if jobs >= needed:
        return None
    return (
        f"the run is too short: at offered load {load.offered:.3g} about {needed:,.0f} jobs are needed to estimate the "
        f"variance of queueing delays, and the run has {jobs:,}"
    )


class _EveryTime:
    """Takes the times from the record of every job."""

    def __init__(self, prepared: PreparedRun, recording: Recording) -> None:
        self.recording = recording
        self.steady = self._steady(prepared)
        self._workloads = prepared.workloads
        self._own: dict[int, Steady] = {}

    def steady_of(self, work: int | None) -> Steady:
        """Return the part of the run that the statistics of one workload, or of all, include.

        Workloads share devices, so the verdict on the whole run holds for each of them. Only where the run is unstable
        is each workload assessed by its own queueing delays: those of a class that goes first need not grow.
        """
        whole = self.steady
        if work is None or len(self._workloads) == 1 or whole.state is None or whole.state.verdict != "unstable":
            return whole
        if work not in self._own:
            self._own[work] = self._steady_alone(self._workloads[work], whole)
        return self._own[work]

    def _steady_alone(self, job_class: JobClass, whole: Steady) -> Steady:
        jobs = self.recording.jobs
        started = np.flatnonzero((jobs.start >= 0) & (jobs.workload == job_class.number))
        waits_s = to_second_array(jobs.start[started] - jobs.arrival[started])
        waits = BatchedSample.from_values(waits_s)
        assess = _bounded if _is_bounded(job_class) else assess_steady_state
        state = assess(waits, MIN_VALUES)
        if state.verdict == "unstable" or state.reason == TOO_FEW:
            return whole
        cut = warm_up(waits) if whole.reason != _EVERY_JOB else WarmUp(0, 0, _EVERY_JOB)
        job = int(started[cut.jobs])
        correlation = correlation_of(BatchedSample.from_values(waits_s[cut.jobs :]))
        return Steady(job, int(jobs.arrival[job]), cut.reason, correlation, state)

    def _steady(self, prepared: PreparedRun) -> Steady:
        jobs = self.recording.jobs
        if not all(w.workload.arrivals.stationary for w in prepared.workloads):
            return Steady(0, 0, _CHANGING, UNBOUNDED, None, no_interval=_NO_INTERVAL)
        started, done = np.flatnonzero(jobs.start >= 0), np.flatnonzero(jobs.status == COMPLETED)
        waits = BatchedSample.from_values(to_second_array(jobs.start[started] - jobs.arrival[started]))
        latencies = BatchedSample.from_values(to_second_array(jobs.until_finish(done)))
        first, reason = 0, _EVERY_JOB
        if prepared.scenario.warm_up == "auto":
            cuts = [(warm_up(waits), started), (warm_up(latencies), done)]
            ends = ((int(of[cut.jobs]) if cut.jobs else 0, cut.reason) for cut, of in cuts)
            first, reason = max(ends, key=lambda end: end[0])
        kept = started[started >= first]
        correlation = correlation_of(BatchedSample.from_values(to_second_array(jobs.start[kept] - jobs.arrival[kept])))
        since = int(jobs.arrival[first]) if len(jobs) else 0
        load = offered_load(prepared)
        services = to_second_array(jobs.finish[done] - jobs.start[done])
        mean = float(services.mean()) if len(services) else 0.0
        short = _too_short(load, len(jobs), float(services.var()) / mean**2 if mean else 0.0)
        return Steady(first, since, reason, correlation, _steady_state(prepared, load, waits), load, short)

    def counts(self, work: int | None) -> IntArray:
        """Return the number of jobs in each state of ``STATUS``, of one workload or of all."""
        jobs = self.recording.jobs
        return np.bincount(jobs.status if work is None else jobs.status[jobs.workload == work], minlength=5)

    def samples(self, work: int | None) -> Samples:
        """Return latency, queueing delay and times of tokens (s) of one workload, or of all, without the warm-up."""
        steady = self.steady_of(work)
        jobs, gaps = self.recording.jobs, self.recording.token_gaps
        included = np.ones(len(jobs), dtype=bool) if work is None else jobs.workload == work
        generating = bool((jobs.tokens[included] > 0).any())
        included[: steady.job] = False
        done, started = included & (jobs.status == COMPLETED), included & (jobs.start >= 0)
        samples: Samples = {
            "latency_s": BatchedSample.from_values(to_second_array(jobs.until_finish(done))),
            "waiting_s": BatchedSample.from_values(to_second_array(jobs.start[started] - jobs.arrival[started])),
            **dict.fromkeys(OF_TOKENS),
        }
        if generating:
            has_token = included & (jobs.first >= 0)
            ticks, weights = gaps.ticks, gaps.weights
            if steady.since > 0 or work is not None:
                late = gaps.end >= steady.since
                if work is not None:
                    late &= gaps.workload == work
                ticks, weights = ticks[late], weights[late]
            samples["ttft_s"] = BatchedSample.from_values(to_second_array(jobs.until_first(has_token)))
            samples["itl_s"] = BatchedSample.from_values(to_second_array(ticks), weights.astype(np.float64))
            answered = done & (jobs.tokens > 0) & (jobs.first >= 0)
            several = answered & (jobs.tokens > 1)
            decoding_s = to_second_array(jobs.finish[several] - jobs.first[several])
            samples["tpot_s"] = BatchedSample.from_values(decoding_s / (jobs.tokens[several] - 1))
            samples["e2e_s"] = BatchedSample.from_values(to_second_array(jobs.until_finish(answered)))
        return samples


class _SummedTimes:
    """Takes the times from sums and histograms of a run that is too long to keep every job."""

    def __init__(self, prepared: PreparedRun, tally: Tally) -> None:
        self.tally = tally
        self.steady = self._steady(prepared)

    def steady_of(self, _work: int | None) -> Steady:
        """Return the part of the run that all statistics include."""
        return self.steady

    def _steady(self, prepared: PreparedRun) -> Steady:
        nothing = Steady(0, 0, _CHANGING, UNBOUNDED, None)
        if not all(w.workload.arrivals.stationary for w in prepared.workloads):
            return replace(nothing, no_interval=_NO_INTERVAL)
        whole = self._sample(0, WAITING, 0)
        cut = WarmUp(0, 0, _EVERY_JOB)
        if prepared.scenario.warm_up == "auto":
            cut = max(warm_up(whole), warm_up(self._sample(0, LATENCY, 0)), key=lambda cut: cut.batches)
        # A histogram covers several batches, and the warm-up ends between two histograms.
        first = -(-cut.batches // self._batches_per_histogram) * self._batches_per_histogram
        load = offered_load(prepared)
        steady = replace(nothing, job=first * self.tally.width, reason=cut.reason)
        correlation = correlation_of(self._sample(0, WAITING, first))
        state = _steady_state(prepared, load, whole)
        # Sums do not show the variance of service times, so it is assumed to be that of exponential ones.
        short = _too_short(load, int(self.tally.counts.sum()), 1.0)
        return replace(steady, correlation=correlation, state=state, load=load, no_interval=short)

    @cached_property
    def _batches_per_histogram(self) -> int:
        return int(self.tally.batches.shape[1] // self.tally.bins.shape[2])

    @cached_property
    def _used(self) -> int:
        """The number of batches up to the last one that has a job."""
        row = self.tally.batches[0]
        filled = np.flatnonzero((row["latency_n"] > 0) | (row["waiting_n"] > 0))
        return int(filled[-1]) + 1 if len(filled) else 0

    def _sample(self, series: int, what: int, first: int) -> BatchedSample:
        name = ("latency", "waiting")[what]
        rows = self.tally.batches[series][first : self._used]
        edges = np.append(np.arange(first, self._used, self._batches_per_histogram), self._used) - first
        histogram = first // self._batches_per_histogram
        bins = self.tally.bins[what, series, histogram : histogram + len(edges) - 1]
        histograms = Histograms(bins[:, 1:].astype(np.int64), bins[:, 0].astype(np.int64), edges, 0, 1e-12)
        return BatchedSample.from_batches(rows[f"{name}_n"], rows[f"{name}_sum"], histograms, unit=1e-12)

    def counts(self, work: int | None) -> IntArray:
        """Return the number of jobs in each state of ``STATUS``, of one workload or of all."""
        counts: IntArray = self.tally.counts.sum(axis=0) if work is None else self.tally.counts[work]
        return counts

    def samples(self, work: int | None) -> Samples:
        """Return latency and queueing delay (s) of one workload, or of all, without the warm-up."""
        series = 0 if work is None or len(self.tally.batches) == 1 else 1 + work
        first = self.steady.job // self.tally.width
        return {
            "latency_s": self._sample(series, LATENCY, first),
            "waiting_s": self._sample(series, WAITING, first),
            **dict.fromkeys(OF_TOKENS),
        }
