"""Judges a fleet's targets with confidence: met, missed or unknown; and finds what else can be simulated to decide."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from windtunnel.core.results.run import Measured
from windtunnel.core.results.target import JudgedTarget, TargetVerdict
from windtunnel.core.student import student
from windtunnel.core.units import to_unit
from windtunnel.planning import looks
from windtunnel.planning.evaluation import headroom
from windtunnel.scenario.arrivals import Closed, Deterministic, Mix, Trace
from windtunnel.scenario.faults import is_random
from windtunnel.scenario.judging import measured
from windtunnel.scenario.lengths import Length
from windtunnel.scenario.program import Branch, Generate, OpStage, Stage, Streams, flattened
from windtunnel.scenario.scenario import Scenario, Stop
from windtunnel.scenario.target import METRICS, Target

_EXACT = ("cost",)


# Long: one case for each source of an interval; splitting them would pass the same five values around.
def judged(
    target: Target,
    verdicts: Sequence[TargetVerdict],
    results: Sequence[Measured],
    confidence: float,
    *,
    repeats: bool = False,
    fixed: bool = False,
    scaled: bool = False,
    times: int = 1,
) -> JudgedTarget:
    """Return a target with its value and interval (both in its unit), and its ``verdict``.

    ``met``: the worse end of the interval is within the limit. ``missed``: the value is not, or there is none.
    ``unknown``: the value is within the limit, and the worse end is not or there is no interval, for the reason
    ``reason``. So a target is met by value unless it is missed, and with confidence if it is met. ``verdicts``
    and ``results`` are those of one run, or of several replications, whose mean is the value and whose Student
    interval is the interval. ``repeats``: nothing is random, so every further run would be the same. ``fixed``: nothing
    is random and arrivals come from a trace: totals of the whole fleet are exact, and its times are a sample.
    ``scaled``: the number of devices changes with the load, so the rent is not exact. ``times``: the length of a single
    run, in runs of the scenario.
    """
    values = [verdict.value for verdict in verdicts if verdict.value is not None]
    value = float(np.mean(values)) if len(values) == len(verdicts) else None
    low = high = None
    source, reason, runs = "none", None, None
    if target.metric in _EXACT and not scaled:
        low = high = value
        source = "exact"
    elif value is None:
        result = next(r for r, v in zip(results, verdicts, strict=True) if v.value is None)
        reason = _no_value(target, result)
        if len(verdicts) > 1:
            reason = f"in {len(verdicts) - len(values):,} of {len(verdicts):,} replications {reason}"
    elif len(values) > 1:
        half = student(len(values) - 1, confidence) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
        # No metric of a target is negative, and a share is at most 1.
        low, high, source, runs = max(value - half, 0.0), value + half, "replications", len(values)
        if METRICS[target.metric].unit == "1":
            high = min(high, 1.0)
    else:
        interval = _interval(target, results[0])
        if interval is not None:
            widen = looks.widening(confidence)  # intervals are given for 95%
            low, high, source = value - (value - interval[0]) * widen, value + (interval[1] - value) * widen, "run"
            redrawn = results[0].statistics.redrawn
            runs = None if redrawn is None else redrawn.runs
        elif repeats or (fixed and not METRICS[target.metric].per_workload):
            low = high = value
            source = "exact"
        else:
            reason = _missing(target, results[0])
    limit = to_unit(target.limit, target.unit)
    worse_end = value if low is None or high is None else (high if target.comparison == "<=" else low)

    def within(end: float | None) -> bool:
        return end is not None and (end <= limit if target.comparison == "<=" else end >= limit)

    verdict = "missed" if not within(value) else ("met" if source != "none" and within(worse_end) else "unknown")
    judged_end = None if verdict == "unknown" and source == "none" else worse_end
    found = _judged_target(target, verdict, confidence, value, low, high, judged_end, source, reason)
    return replace(found, interval_runs=runs, run_length=times if source == "run" else 1)


def lost(target: Target, least_s: float | None, jobs: int, confidence: float) -> JudgedTarget:
    """Return a target of a fleet whose run was ended after ``jobs`` arrivals.

    It is missed by at least ``least_s``, which is then its value; or it is not judged, where ``least_s`` is None.
    """
    value = None if least_s is None else to_unit(least_s, target.unit)
    which, verdict = ("another", "unknown") if least_s is None else ("this", "missed")
    reason = f"the run was ended after {jobs:,} jobs, because {which} target is missed whatever follows"
    return _judged_target(target, verdict, confidence, value, None, None, value, "none", reason)


def _judged_target(
    target: Target,
    verdict: str,
    confidence: float,
    value: float | None,
    low: float | None,
    high: float | None,
    judged_end: float | None,
    source: str,
    reason: str | None,
) -> JudgedTarget:
    """Return a judged target; ``judged_end`` is the end of its interval by which its headroom is measured."""
    limit = to_unit(target.limit, target.unit)
    return JudgedTarget(
        text=target.text,
        met=verdict == "met",
        verdict=verdict,
        value=value,
        low=low,
        high=high,
        worse_end=judged_end,
        limit=limit,
        unit=target.unit,
        comparison=target.comparison,
        metric=target.metric,
        statistic=target.statistic,
        workload=target.workload,
        interval_source=source,
        confidence=confidence,
        reason=reason,
        headroom=headroom(judged_end, limit, target.comparison),
    )


def _interval(target: Target, result: Measured) -> tuple[float, float] | None:
    """Return the run's own 95% interval for a target's value, in the target's unit; None if it has none."""
    if not METRICS[target.metric].per_workload:
        return None
    estimate = measured(target, result)
    if estimate.low is None or estimate.high is None:
        return None
    return to_unit(estimate.low, target.unit), to_unit(estimate.high, target.unit)


def _missing(target: Target, result: Measured) -> str:
    """Return the reason why a run has no interval for a target."""
    if not METRICS[target.metric].per_workload:
        return f"one run gives {target.metric.replace('_', ' ')} no interval"
    return measured(target, result).reason or "no reason is known"


def _no_value(target: Target, result: Measured) -> str:
    """Return the reason why a run has no value for a target."""
    unstable = result.statistics.unstable_reason
    return unstable if METRICS[target.metric].per_workload and unstable else "nothing was seen of it in the run"


# Further simulations.


def _operations(stages: Sequence[Stage]) -> Iterator[OpStage]:
    for stage in stages:
        if isinstance(stage, OpStage):
            yield stage
        elif isinstance(stage, Branch):
            for body in (*stage.cases.values(), stage.default or ()):
                yield from _operations(body)
        elif isinstance(stage, Streams):
            for body in stage.bodies:
                yield from _operations(body)


def draws(scenario: Scenario) -> bool:
    """Return whether another seed gives other jobs or other faults.

    The copies and omissions of ``scale`` in a trace are random too, but the bursts of the trace, which determine its
    percentiles, are the same for every seed. So they do not count.
    """

    def drawn(arrivals: object) -> bool:
        if isinstance(arrivals, Mix):
            return any(drawn(part) for part in arrivals.processes)
        if isinstance(arrivals, Closed):
            return arrivals.think.distribution != "deterministic"
        return not isinstance(arrivals, Trace | Deterministic)

    services = (
        op.choices.get("distribution", "deterministic") for program in scenario.programs for op in _operations(program)
    )
    return (
        any(drawn(w.arrivals) or w.session is not None or w.rows is not None for w in scenario.workload)
        or any(_draws_lengths(stage) for program in scenario.programs for stage in flattened(program))
        or any(distribution != "deterministic" for distribution in services)
        or any(is_random(fault) for fault in scenario.faults)
    )


def _draws_lengths(stage: Stage) -> bool:
    """Return whether the lengths of the requests of a stage are random."""
    if not isinstance(stage, Generate):
        return False
    grouped = stage.shared_prefix is not None and stage.shared_prefix.groups > 1
    return grouped or any(isinstance(value, Length) and value.is_random for value in (stage.prompt, stage.output))


def repeats(scenario: Scenario) -> bool:
    """Return whether every further run would be the same, and arrivals are not a trace: all is deterministic."""
    return not draws(scenario) and not any(isinstance(w.arrivals, Trace) for w in scenario.workload)


def change_of_length(scenario: Scenario, times: int) -> str | None:
    """Return the ``PATH=VALUE`` that makes a scenario's run ``times`` as long; None if ``lengthened`` is None."""
    longer = lengthened(scenario, times)
    if longer is None or longer.stop is None:
        return None
    return f"stop.jobs={longer.stop.jobs}" if longer.stop.jobs else f"stop.time={longer.stop.time:g} s"


def lengthened(scenario: Scenario, times: int) -> Scenario | None:
    """Return the scenario with ``times`` as many jobs or as much time; None if its targets would not be comparable.

    They are comparable only if nothing changes with time: arrivals have one rate, and there are no faults, which occur
    at fixed times or whose number would change.
    """
    stop = scenario.stop
    still = all(not isinstance(w.arrivals, Trace | Closed) and w.arrivals.stationary for w in scenario.workload)
    if stop is None or not still or scenario.faults or not draws(scenario):
        return None
    if stop.jobs is not None:
        return scenario.changed(stop=Stop(jobs=min(stop.jobs * times, 10**9)))
    if stop.time is not None:
        return scenario.changed(stop=stop.model_copy(update={"time": stop.time * times}))
    return None
