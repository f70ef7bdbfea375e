"""Carries the error of the step model through a run: the model error intervals of the times of requests.

A 90% interval of the time of a step is known as a factor (``DecoderCosts.accuracy``). Tokens follow each other at the
rate of steps, but a time that includes queueing changes by more than the factor. So the run is repeated with the same
jobs and random numbers, once with every step faster by the factor and once with every step slower. The error of what
an engine does outside of its steps before the first token is added (``ServingEngine.with_first_token``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from windtunnel.core.architecture import Architecture
from windtunnel.core.forks import Shared, shared
from windtunnel.core.recording import Recording
from windtunnel.core.results.run import (
    Estimate,
    Measured,
    Serving,
    TimeDistribution,
    TokenEstimate,
    WorkloadResult,
    distribution,
)
from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.serving_engine import Bounds, ServingEngine
from windtunnel.core.units import to_unit
from windtunnel.simulation.redrawn import sharing

if TYPE_CHECKING:
    from windtunnel.engine.prepare.prepared import PreparedRun
    from windtunnel.engine.results.redrawn import Part

_MOST_EVENTS = {"compiled": 2_500_000, "process": 50_000}
"""The number of jobs and intervals of a run above which it is not repeated, by the engine that repeats it. At the limit
both runs together take some seconds."""
_QUEUED = ("ttft", "e2e")
"""Times that include queueing: they have no upper end if the slower fleet cannot do the work."""
_DIRECTIONS = (-1, 1)
"""The exponents of the error factor of a step in the faster and in the slower run."""
Ends = tuple[float | None, float | None]
METRICS = ("ttft", "itl", "tpot", "e2e")
"""The times of requests that have intervals for the error of the models."""
_Served = tuple[ServingEngine, Architecture]


_Repeated = tuple[Sequence["Part"], list[bool]]
"""The values of a repeated run, and which of its parts are unstable: the whole, and each workload."""


class ErrorRuns:
    """The repeated runs of a run: of the same requests, with every step faster and with every step slower.

    A copy of this process begins with them while it makes the run itself, if ``begin`` is called.

    Args:
        processes: The number of processes that share these runs.
    """

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes
        self._begun: Shared[_Repeated] | None = None

    def begin(self, first: PreparedRun) -> None:
        """Let a copy of this process begin, if a processor is left and the runs are needed and known to be short.

        Nothing begins while machine code is missing: the run itself has it compiled, and once is enough.
        """
        from windtunnel.engine.choice import choose, is_compiled

        if self._processes < 2 or not _is_served(first):
            return
        engine, _ = choose(first, "auto")
        if first.job_count <= _MOST_EVENTS[engine] and is_compiled(engine, first):
            self._begun = Shared(partial(_repeated, first), _DIRECTIONS, 1)

    def of(self, first: PreparedRun, events: int) -> list[_Repeated]:
        """Return the faster and the slower run of ``first``, which had ``events`` jobs and intervals."""
        if self._begun is not None:
            return self._begun.results()
        return shared(partial(_repeated, first), _DIRECTIONS, sharing(events, self._processes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._begun is not None:
            self._begun.__exit__()


def _is_served(first: PreparedRun) -> bool:
    """Return whether the times of a run have an error of the step model that a repeated run can tell."""
    return first.policy.batch.kind == "continuous" and bool(first.step_error_factors()) and not first.real


def _asked(first: PreparedRun) -> frozenset[tuple[str | None, str]]:
    """Return the metrics that have model error intervals, of the whole run and of each workload."""
    return frozenset(
        (name, metric) for name in (None, *(w.workload.name for w in first.workloads)) for metric in METRICS
    )


def _repeated(first: PreparedRun, direction: int) -> _Repeated:
    """Return a run where every step takes its time times its error factor, to the power of ``direction``."""
    from windtunnel.engine.choice import choose, run_on
    from windtunnel.engine.results import invariants
    from windtunnel.engine.results.redrawn import values_of
    from windtunnel.engine.results.times import times_of

    times = {cls: factor**direction for cls, factor in first.step_error_factors().items()}
    changed = replace(first.with_step_times(times), times_only=True)
    repeated = run_on(choose(first, "auto")[0], changed)
    invariants.check(repeated, steps=False)
    states = [times_of(changed, repeated).steady_of(work).state for work in (None, *range(len(first.workloads)))]
    unstable = [state is not None and state.verdict == "unstable" for state in states]
    return values_of(changed, repeated, _asked(first)), unstable


def with_model_error(
    first: PreparedRun, recording: Recording, result: Measured, runs: ErrorRuns | None
) -> tuple[Measured, list[str]]:
    """Return the result with model error intervals of the times of requests, and notes on where they come from.

    The ends are the values of the faster and of the slower run. With several replications they are in the same ratio to
    the value as in the first replication. If the run is too long, requests are not batched continuously, or there are
    no ``runs``, every time is multiplied and divided by the factor instead, which ignores that queues change by more.

    Args:
        first: The run, prepared; of several replications the first.
        recording: Its recording.
        result: The result, which keeps its values and its 95% intervals.
        runs: The repeated runs; None if none may be made.
    """
    factors = first.step_error_factors()
    if result.serving is None or not factors or first.real:
        return result, []
    largest = max(factors.values())
    of_first = (
        "; TTFT and end-to-end latency also have the error of the engine's first token" if _is_served(first) else ""
    )
    from windtunnel.engine.choice import choose
    from windtunnel.engine.results.redrawn import values_of

    events = int(recording.jobs.arrival.size) + (0 if recording.intervals is None else len(recording.intervals))
    if runs is None or not _is_served(first) or events > _MOST_EVENTS[choose(first, "auto")[0]]:
        note = (
            f"the model error intervals of token times are the values times and over {largest:.3g}, the error factor "
            "of a step; they ignore that queues change by more" + of_first
        )
        return _with_targets(_with_first_tokens(first, _scaled(result, largest))), [] if runs is None else [note]
    base = values_of(first, recording, _asked(first))
    (faster, _), (slower, overloaded) = runs.of(first, events)
    notes = [
        f"the model error intervals of token times come from two more runs of the same requests, with every step "
        f"{largest:.3g} times as fast and as slow{of_first}"
    ]
    if overloaded[0] and result.statistics.unstable_reason is None:
        notes.append(
            f"with every step {largest:.3g} times as slow, more work arrives than the fleet completes, so TTFT and "
            "end-to-end latency have no upper model error bound"
        )

    def of_part(part: Measured | WorkloadResult, number: int) -> Serving | None:
        index = number if len(base) > number else 0
        return _from_runs(part, base[index], faster[index], slower[index], overloaded[number])

    workloads = [replace(w, serving=of_part(w, 1 + i)) for i, w in enumerate(result.workloads)]
    changed = replace(result, serving=of_part(result, 0), workloads=workloads)
    return _with_targets(_with_first_tokens(first, changed)), notes


def _with_targets(result: Measured) -> Measured:
    """Return the result whose targets on times of requests have the ends of the intervals of these times."""

    def with_ends(target: TargetVerdict) -> TargetVerdict:
        parts = [result] if target.workload is None else [w for w in result.workloads if w.name == target.workload]
        times = distribution(parts[0], target.metric) if parts and target.metric in METRICS else None
        estimate = None if times is None or target.statistic is None else times.of(target.statistic)
        if not isinstance(estimate, TokenEstimate):
            return target
        low, high = (
            None if end is None else to_unit(end, target.unit) for end in (estimate.model_low, estimate.model_high)
        )
        return replace(target, model_low=low, model_high=high)

    return replace(result, targets=[with_ends(target) for target in result.targets])


def _with_first_tokens(first: PreparedRun, result: Measured) -> Measured:
    """Return the result whose intervals of TTFT and end-to-end latency contain the error of the first token.

    Where several engines serve a part, the widest ends count. Without continuous batching no engine serves.
    """
    if first.policy.batch.kind != "continuous":
        return result
    served: dict[int, list[_Served]] = {number: [] for number in range(len(result.workloads))}
    for (cls, work), program in first.compiled.items():
        engine = first.classes[cls].replica.engine
        if program.decoder is not None and engine is not None:
            served[work].append((engine, program.decoder.model))
    workloads = [
        replace(w, serving=_with_first_token(w.serving, served[number])) for number, w in enumerate(result.workloads)
    ]
    every = [engine for engines in served.values() for engine in engines]
    return replace(result, serving=_with_first_token(result.serving, every), workloads=workloads)


def _with_first_token(serving: Serving | None, engines: Sequence[_Served]) -> Serving | None:
    if serving is None or serving.ttft_s is None or serving.e2e_s is None or not engines:
        return serving
    ends: dict[str, dict[str, Ends]] = {"ttft": {}, "e2e": {}}
    for name, estimate in serving.ttft_s.by_name().items():
        ttft, e2e = _bounds(estimate), _bounds(serving.e2e_s.of(name))
        if ttft is None or e2e is None:
            continue
        wider = [engine.with_first_token(model, ttft, e2e) for engine, model in engines]
        for metric, found in zip(ends, zip(*wider, strict=True), strict=True):
            lows, highs = [b.low for b in found], [b.high for b in found]
            low = None if None in lows else min(low for low in lows if low is not None)
            ends[metric][name] = low, None if None in highs else max(high for high in highs if high is not None)
    return serving.with_times(
        {"ttft": _with_ends(serving.ttft_s, ends["ttft"]), "e2e": _with_ends(serving.e2e_s, ends["e2e"])}
    )


def _bounds(estimate: Estimate) -> Bounds | None:
    if not isinstance(estimate, TokenEstimate) or estimate.value is None:
        return None
    return Bounds(estimate.value, estimate.model_low, estimate.model_high)


def _scaled(result: Measured, factor: float) -> Measured:
    """Return the result with intervals from the value over ``factor`` to the value times ``factor``."""

    def of_part(part: Measured | WorkloadResult) -> Serving | None:
        changed: dict[str, TimeDistribution | None] = {}
        for metric in METRICS:
            times = distribution(part, metric)
            if times is not None:
                ends: dict[str, Ends] = {
                    name: (None, None) if e.value is None else (e.value / factor, e.value * factor)
                    for name, e in times.by_name().items()
                }
                changed[metric] = _with_ends(times, ends)
        return None if part.serving is None else part.serving.with_times(changed)

    workloads = [replace(w, serving=of_part(w)) for w in result.workloads]
    return replace(result, serving=of_part(result), workloads=workloads)


def _from_runs(
    part: Measured | WorkloadResult, base: Part, faster: Part, slower: Part, overloaded: bool
) -> Serving | None:
    """Return the requests of one part with intervals from the values of the three runs."""
    changed: dict[str, TimeDistribution | None] = {}
    for metric in METRICS:
        times = distribution(part, metric)
        if times is None or not all(metric in run for run in (base, faster, slower)):
            continue
        ends: dict[str, Ends] = {}
        for name, estimate in times.by_name().items():
            here, *others = (run[metric].by_statistic[name] for run in (base, faster, slower))
            low, high = (_like(estimate.value, here, other) for other in others)
            if estimate.value is None or low is None or high is None:
                ends[name] = None, None
            else:
                least, most = min(low, high, estimate.value), max(low, high, estimate.value)
                ends[name] = least, None if overloaded and metric in _QUEUED else most
        changed[metric] = _with_ends(times, ends)
    return None if part.serving is None else part.serving.with_times(changed)


def _like(value: float | None, here: float | None, other: float | None) -> float | None:
    """Return a value that has the ratio to ``value`` that ``other`` has to ``here``, the value of the same run."""
    if value is None or here is None or other is None:
        return None
    return other if here in (value, 0.0) else value * (other / here)


def _with_ends(times: TimeDistribution, ends: dict[str, Ends]) -> TimeDistribution:
    return TimeDistribution(
        **{
            name: replace(e, model_low=ends[name][0], model_high=ends[name][1])
            if name in ends and isinstance(e, TokenEstimate)
            else e
            for name, e in times.by_name().items()
        }
    )
