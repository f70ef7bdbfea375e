"""Intervals from redrawn runs: the same scenario with other random numbers, and traces whose arrivals are redrawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from windtunnel.core.recording import Recording
from windtunnel.core.results.run import (
    Estimate,
    Measured,
    PartStatistics,
    RedrawnRuns,
    TimeDistribution,
    WorkloadResult,
    distribution,
    of_tokens,
)
from windtunnel.core.student import student
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results.metrics import METRICS, missing_reasons
from windtunnel.engine.results.serving import attainment, generates
from windtunnel.engine.results.statistics import FEW, STATISTICS, point, within_reason
from windtunnel.engine.results.times import Times, times_of
from windtunnel.scenario.judging import judge, measured, part_of
from windtunnel.scenario.target import Target

METHOD = "more runs with other arrivals: Student's t over the logarithms of their values"


@dataclass(frozen=True)
class Values:
    """The values of a time in one run.

    Attributes:
        by_statistic: The mean and the percentiles (s); None without observations.
        least: The smallest observation (s).
    """

    by_statistic: Mapping[str, float | None]
    least: float


ATTAINMENT = "slo_attainment"
"""The share of requests that meet their targets, among the values of a run; its only statistic is the mean."""

Part = Mapping[str, Values]
"""The values of a workload, or of all, by metric."""


def values_of(
    prepared: PreparedRun, recording: Recording, only: frozenset[tuple[str | None, str]] | None = None
) -> list[Part]:
    """Return the values of all jobs, and those of each workload if there are several.

    ``only``: the metrics that are asked for, each of a workload by name or of all (None); None for all of them.
    """
    times = times_of(prepared, recording)
    parts: list[tuple[str | None, int | None]] = [(None, None)]
    names = [w.workload.name for w in prepared.workloads]
    if len(names) > 1:
        parts += [(name, w.number) for name, w in zip(names, prepared.workloads, strict=True)]
    elif only is not None:
        only |= {(None, metric) for name, metric in only if name in names}
    values = []
    for name, work in parts:
        asked = None if only is None else frozenset(metric for of, metric in only if of == name)
        values.append({} if asked == frozenset() else _values(times, work, prepared, recording, asked))
    return values


def _values(
    times: Times, work: int | None, prepared: PreparedRun, recording: Recording, only: frozenset[str] | None
) -> Part:
    values = {
        name.removesuffix("_s"): Values(
            {statistic: point(sample, fraction) for statistic, fraction in STATISTICS.items()}, sample.least
        )
        for name, sample in times.samples(work).items()
        if sample is not None and (only is None or name.removesuffix("_s") in only)
    }
    if generates(prepared, work) and (only is None or ATTAINMENT in only):
        share = attainment(work, prepared, recording, times.steady_of(work)).value
        values[ATTAINMENT] = Values({"mean": share}, 0.0)
    return values


def with_redrawn(
    result: Measured,
    runs: Sequence[Sequence[Part]],
    about: RedrawnRuns,
    targets: Sequence[Target],
    confidence: float = 0.95,
) -> Measured:
    """Return a result with intervals from redrawn runs.

    Args:
        result: The result of one run, which keeps its values.
        runs: ``values_of`` each redrawn run.
        about: How the runs were redrawn.
        targets: The targets, which are judged again.
        confidence: That of the intervals.
    """
    of = partial(interval, traced=bool(about.windows_s), confidence=confidence)
    whole = _part("", result, [run[0] for run in runs], of)
    workloads = [
        replace(whole, name=workload.name, use_case=workload.use_case)
        if len(result.workloads) == 1
        else _part(workload.name, workload, [run[1 + i] for run in runs], of)
        for i, workload in enumerate(result.workloads)
    ]
    result = replace(
        result,
        latency_s=whole.latency_s,
        waiting_s=whole.waiting_s,
        serving=whole.serving,
        workloads=workloads,
        statistics=replace(
            result.statistics,
            method=METHOD,
            redrawn=about,
            effective_sample_size=None,
            batches=None,
            missing_interval_reasons=whole.statistics.missing_interval_reasons,
        ),
    )
    return replace(result, targets=[judge(target, measured(target, result)) for target in targets])


_Interval = Callable[[float, FloatArray, float], Estimate]


def _part(name: str, part: Measured | WorkloadResult, runs: Sequence[Part], of: _Interval) -> WorkloadResult:
    """Return the times of one workload, or of all, with intervals from redrawn runs."""
    found: dict[str, TimeDistribution] = {}
    for metric in METRICS:
        times = distribution(part, metric)
        if times is not None:
            redrawn = [run[metric] for run in runs if metric in run]
            found[metric] = _distribution(times, redrawn if len(redrawn) == len(runs) else [], of)
    serving = part.serving
    if serving is not None:
        serving = serving.with_times({metric: of_tokens(times) for metric, times in found.items()})
        serving = replace(serving, attainment=_attainment(serving.attainment, runs, of))
    reasons = missing_reasons({f"{metric}_s": times for metric, times in found.items()})
    return WorkloadResult(
        name=name,
        use_case=part.use_case if isinstance(part, WorkloadResult) else None,
        jobs=part.jobs,
        latency_s=found["latency"],
        waiting_s=found["waiting"],
        serving=serving,
        statistics=PartStatistics(missing_interval_reasons=reasons),
    )


def _attainment(found: Estimate, runs: Sequence[Part], of: _Interval) -> Estimate:
    """Return the share of requests that meet their targets with an interval from redrawn runs."""
    values = [run[ATTAINMENT].by_statistic["mean"] for run in runs if ATTAINMENT in run]
    known = [value for value in values if value is not None]
    if found.value is None or not runs or len(known) < len(runs):
        return found
    missed = of(1.0 - found.value, 1.0 - np.array(known), 1.0 - found.value)
    if missed.low is None or missed.high is None:
        return Estimate(found.value, reason=missed.reason)
    return Estimate(found.value, max(1.0 - missed.high, 0.0), min(1.0 - missed.low, 1.0))


def _distribution(times: TimeDistribution, runs: Sequence[Values], of: _Interval) -> TimeDistribution:
    mean = times.mean.value
    if not runs or mean is None:
        return times
    least = min(run.least for run in runs)
    by_name: dict[str, Estimate] = {}
    for name, estimate in times.by_name().items():
        few = estimate.reason is not None and estimate.reason.startswith(FEW)
        values = [value for run in runs if (value := run.by_statistic[name]) is not None]
        if not few and estimate.value is not None and len(values) == len(runs):
            by_name[name] = of(estimate.value, np.array(values), mean)
        else:
            by_name[name] = estimate
    return TimeDistribution(**within_reason(by_name, least))


_START = 0.1
"""Which part of the mean is added to a value before its logarithm is taken, so that a time may be zero."""
_SMOOTHED = 1.1
"""The factor on the half-width of traces. A window takes a part of the variation of its trace for a wave; chosen by
measurement (benchmarks/interval_coverage.py)."""
_LARGEST = 700.0
"""The logarithm of the largest end, which is still a finite number."""
_MAX_CHANGE = 1.25
"""The factor by which redrawing a trace may change a value by more than chance."""


def interval(value: float, redrawn: FloatArray, mean: float, *, traced: bool, confidence: float = 0.95) -> Estimate:
    """Return ``value`` with an interval that is as wide as the values of such runs differ from each other.

    The value of one run differs from that of endlessly many such runs as runs differ among themselves: log(value + c)
    is taken as normally distributed, with c a tenth of the metric's mean, and the interval is Student's for one value.

    Runs that are drawn anew from their process are like the run itself, which counts with them. The values of a redrawn
    trace may lie about another value than that of the trace, because a window flattens its shortest bursts. The
    interval then extends to both. There is none if they differ by more than chance and by more than a quarter.

    Args:
        value: The value of the run.
        redrawn: The values of the redrawn runs; shape (runs,).
        mean: The mean of the metric in the run, in the same unit.
        traced: Whether the arrivals of a trace were redrawn.
        confidence: That of the interval.
    """
    start = _START * (mean if mean > 0.0 else float(redrawn.max()))
    if start <= 0.0 or (redrawn == value).all():
        return Estimate(value, value, value)
    logs, log, bias = np.log(redrawn + start), math.log(value + start), 0.0
    if traced:
        half, bias = _SMOOTHED * student(len(logs) - 1, confidence) * float(logs.std(ddof=1)), float(logs.mean()) - log
    else:
        half = student(len(logs), confidence) * float(np.append(logs, log).std(ddof=1))
    if abs(bias) > max(half, math.log(_MAX_CHANGE)):
        change, than = math.expm1(bias), "higher" if bias > 0 else "lower"
        return Estimate(
            value,
            reason=f"runs with other jobs of the trace have a value {abs(change) * 100:.0f}% {than} on average, "
            "which is more than chance",
        )
    low, high = np.exp(np.minimum([log + min(bias, 0.0) - half, log + max(bias, 0.0) + half], _LARGEST)) - start
    return Estimate(value, max(float(low), 0.0), float(high))


# Long: what a time has to have for its interval to be known, and each statistic that bounds it.
def is_beyond(target: Target, result: Measured, runs: Sequence[Sequence[Part]], most: int, *, traced: bool) -> bool:
    """Return whether the 95% interval of a target's time is beyond its limit for certain after ``most`` runs.

    ``runs`` are the first of them. The interval of these runs alone is beyond the limit then too.
    """
    if target.comparison != "<=" or not target.is_distributed:
        return False
    names = [workload.name for workload in result.workloads]
    number = 0 if target.workload is None or len(names) == 1 else 1 + names.index(target.workload)
    times = distribution(part_of(target, result), target.metric)
    if times is None or times.mean.value is None or not all(target.metric in run[number] for run in runs):
        return False
    least = math.inf
    fraction = STATISTICS[target.statistic or "mean"]
    for name, other in STATISTICS.items():
        # An upper end is at most that of each larger percentile (``within_reason``).
        if name == target.statistic or (fraction is not None and other is not None and other > fraction):
            value, redrawn = times.of(name).value, [run[number][target.metric].by_statistic[name] for run in runs]
            known = [one for one in redrawn if one is not None]
            if value is None or len(known) < len(runs):
                return False
            end = least_upper_end(value, np.array(known), times.mean.value, most, traced=traced)
            least = min(least, end)
    return math.isfinite(least) and least > target.limit * (1.0 + 1e-9)


def least_upper_end(value: float, redrawn: FloatArray, mean: float, most: int, *, traced: bool) -> float:
    """Return a number that the upper end of ``interval`` is not below after ``most`` runs, of which some are known.

    Further values can only add to the sum of the squared deviations from the mean. Both Student's t and the divisor of
    the sum make the interval of fewer runs wider.
    """
    start = _START * mean
    if start <= 0.0:
        return value
    logs, log, smoothed = np.log(redrawn + start), math.log(value + start), _SMOOTHED
    if not traced:
        logs, most, smoothed = np.append(logs, log), most + 1, 1.0
    squares = float(((logs - logs.mean()) ** 2).sum())
    half = smoothed * student(most - 1, 0.95) * math.sqrt(squares / (most - 1))
    return math.exp(min(log + half, _LARGEST)) - start
