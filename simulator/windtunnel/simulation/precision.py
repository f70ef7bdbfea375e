"""Repeats a run with more jobs until the confidence interval of a metric is narrow enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.core.results.run import Estimate, RunResult, Stopped, distribution
from windtunnel.scenario.scenario import Scenario, Stop
from windtunnel.scenario.target import parse_figure

FIRST_JOBS, MAX_JOBS = 20_000, 50_000_000
"""The number of jobs of the first run, and the default of ``stop.max``."""

Simulate = Callable[[Scenario], tuple[RunResult, Recording]]


def until_precise(scenario: Scenario, stop: Stop, simulate: Simulate) -> tuple[RunResult, Recording]:
    """Return the result and recording of a run long enough that the interval of a metric is as narrow as requested.

    Each run repeats the previous one with the same seed and more jobs. It gives up at ``stop.max`` jobs or if the
    system is unstable, which a note of the result says.

    Raises:
        InputError: Arrivals change with time, so that a longer run is no better, or no job has the metric.
    """
    from windtunnel.engine.results.statistics import jobs_needed, relative_error

    for i, workload in enumerate(scenario.workload):
        if not workload.arrivals.stationary:
            raise InputError(
                f"the arrivals of '{workload.name}' change with time, so a longer run is not more precise",
                where=scenario.where("workload", i, "arrivals"),
                expected="stop: {jobs: ...} or {time: ...}, and --replications",
            )
    metric, requested = parse_figure(stop.figure), float(stop.relative_error or 0.0)
    max_jobs = stop.max or MAX_JOBS
    jobs, attempts = min(FIRST_JOBS, max_jobs), 0
    while True:
        attempts += 1
        result, recording = simulate(scenario.changed(stop=Stop(jobs=jobs)))
        part = next((w for w in result.workloads if w.name == metric.workload), result)
        times = distribution(part, metric.metric)
        if times is None:
            where = scenario.where("stop", "relative_error")
            raise InputError(f"no job has a {metric.metric}", where=where, expected="metric: latency mean")
        estimate = times.of(metric.statistic)
        needed = jobs_needed(estimate, requested, jobs)
        if needed <= jobs or jobs >= max_jobs or result.statistics.steady_state == "unstable":
            break
        jobs = min(needed, max_jobs)
    achieved = relative_error(estimate)
    stopped = Stopped(stop.figure, requested, achieved, jobs, attempts)
    shortfall = [f"stopped after {jobs:,} jobs with {_shortfall(stop, achieved, estimate)}"] if needed > jobs else []
    return replace(
        result,
        statistics=replace(result.statistics, stopped=stopped),
        notes=[*result.notes, *shortfall],
        scenario={**(result.scenario or {}), "stop": scenario.resolved()["stop"]},
    ), recording


def _shortfall(stop: Stop, achieved: float | None, estimate: Estimate) -> str:
    """Return what a run that ended too early has reached."""
    from windtunnel.engine.results.statistics import observations_needed

    requested = f"{stop.relative_error:.2%} of {stop.figure}"
    if achieved is None:
        return f"no confidence interval for {stop.figure}; {requested} was requested"
    if achieved > float(stop.relative_error or 0.0):
        return f"a relative error of {achieved:.2%}; {requested} was requested"
    return (
        f"{achieved:.2%} of {stop.figure} as requested, but with an effective sample size of "
        f"{estimate.effective_sample_size or 0.0:,.0f}, and at least {observations_needed(estimate):,.0f} is needed"
    )
