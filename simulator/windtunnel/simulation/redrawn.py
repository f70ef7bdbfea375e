"""Simulates redrawn runs of a scenario whose arrivals come in waves, for the intervals of its times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from windtunnel.core.forks import shared
from windtunnel.core.recording import Recording
from windtunnel.core.results.run import Measured, RedrawnRuns
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.scenario.scenario import Scenario

if TYPE_CHECKING:
    from windtunnel.engine.prepare.prepared import PreparedRun

When = Literal["short", "met", "decided", "unsure", "never"]
RUNS = 8
"""The number of redrawn runs, unless another one is requested."""
FIRST_RUNS = 3
"""The number of redrawn runs after which targets that are conclusively met are decided."""
FIRST_LOOK = 0.99
"""The confidence of the intervals by which they are decided then, and after ``RUNS`` runs if more are asked for. Two
looks at intervals of 95% err 1.6 times as often as one (``reports/benchmarks/coverage.md``)."""
_MOST_EVENTS = {"compiled": 1_250_000, "process": 25_000}
"""The number of jobs and intervals of a run above which it is redrawn only on request, by the engine that redraws it.
At the limit the redrawn runs take some seconds."""


def replication_seed(seed: int, replication: int) -> int:
    """Return an independent seed for each replication after the first, the same on every machine."""
    return int(np.random.SeedSequence(seed, spawn_key=(replication,)).generate_state(1, np.uint64)[0] >> 1)


def has_waves(scenario: Scenario) -> bool:
    """Return whether one run of a scenario contains few of the changes of its arrivals, so that it is redrawn."""
    return any(workload.arrivals.modulated for workload in scenario.workload) and not scenario.real_devices


def with_redrawn_runs(
    first: PreparedRun,
    recording: Recording,
    result: Measured,
    when: When,
    replications: int,
    processes: int = 1,
    runs: int = RUNS,
) -> tuple[Measured, list[str]]:
    """Return the result of a run with intervals from redrawn runs if its arrivals come in waves, and notes about them.

    The engine that ``auto`` selects makes these runs, so the intervals do not depend on the engine of the first one.

    Args:
        first: The run, prepared.
        recording: Its recording.
        result: Its result, which keeps all values.
        when: ``short``: the run is redrawn if it is not too long. ``met``: it is redrawn, however long it is, if its
            values meet every target; otherwise an interval could not change the verdict. Only the metrics of the
            targets get intervals then. ``decided``: as ``met``, and only until all targets are decided. ``unsure``: as
            ``decided``, and no longer than it may meet the targets for certain; the intervals are wider then.
            ``never``: it is not.
        replications: If it is above 1, the number of redrawn runs of a run of any length.
        processes: The number of processes that share the redrawn runs.
        runs: The number of redrawn runs, if ``replications`` is 1.
    """
    from windtunnel.engine.choice import choose
    from windtunnel.engine.results.statistics import MIN_VALUES

    waves = when != "never" and has_waves(first.scenario) and result.statistics.unstable_reason is None
    missed = when in ("met", "decided", "unsure") and not all(target.met for target in result.targets)
    if not waves or missed or result.jobs.arrived < MIN_VALUES:
        return result, []
    engine, _ = choose(first, "auto")
    events = int(result.jobs.arrived) + (0 if recording.intervals is None else len(recording.intervals))
    if when == "short" and replications == 1 and events > _MOST_EVENTS[engine]:
        return result, [
            f"the rate of arrivals changes, so that intervals need {RUNS} more runs, which for {events:,} jobs and "
            f"intervals are made on request: --replications {RUNS}"
        ]
    most = runs if replications == 1 else replications
    return _redrawn(first, result, engine, most, processes=sharing(events, processes), when=when)


_MOST_SHARED_EVENTS = 1_250_000
"""The number of jobs and intervals of the runs that several processes make at the same time, which bounds the memory;
two processes share runs of any length."""


def sharing(events: int, processes: int) -> int:
    """Return how many of ``processes`` share repeated runs that have ``events`` jobs and intervals each."""
    return min(processes, max(2, _MOST_SHARED_EVENTS // max(events, 1)))


def _redrawn(
    first: PreparedRun, result: Measured, engine: str, most: int, *, processes: int, when: When
) -> tuple[Measured, list[str]]:
    """Return the result with intervals from ``most`` redrawn runs, or fewer if they decide the targets (``when``)."""
    from windtunnel.engine.choice import run_on
    from windtunnel.engine.results import invariants
    from windtunnel.engine.results.redrawn import Part, is_beyond, values_of, with_redrawn

    decide = when in ("decided", "unsure")
    targets = first.scenario.parsed_targets()
    only = None if when == "short" else frozenset((target.workload, target.metric) for target in targets)
    windows_s = {
        w.workload.name: w.source.trace.window / TICKS_PER_SECOND for w in first.workloads if w.source.trace is not None
    }

    def values(number: int) -> list[Part]:
        prepared = replace(first.redrawn(replication_seed(first.scenario.seed, number)), times_only=True)
        redrawn = run_on(engine, prepared)
        invariants.check(redrawn, steps=False)
        return values_of(prepared, redrawn, only)

    runs: list[list[Part]] = []
    found = result
    for until in [*(number for number in (FIRST_RUNS, RUNS) if decide and number < most), most]:
        runs += shared(values, range(len(runs) + 1, until + 1), processes)
        about = RedrawnRuns(until, windows_s)
        found = with_redrawn(result, runs, about, targets)
        if when != "short" and _decides(found) and _decides(with_redrawn(result, runs, about, targets, FIRST_LOOK)):
            about = replace(about, settled=True)
            found = replace(found, statistics=replace(found.statistics, redrawn=about))
            break
        if when == "unsure" and any(is_beyond(t, result, runs, most, traced=bool(windows_s)) for t in targets):
            break
    return found, [_note(RedrawnRuns(len(runs), windows_s), first.scenario)]


def _decides(result: Measured) -> bool:
    """Return whether every target is met for certain."""
    return all(target.met and target.confidence == "conclusive" for target in result.targets)


def _note(about: RedrawnRuns, scenario: Scenario) -> str:
    """Return what the intervals come from, and what they are for."""
    runs = f"the intervals come from {about.runs:,} more runs"
    if all(workload.arrivals.stationary for workload in scenario.workload):
        return f"{runs} with other random arrivals, and are for the values of an endless run"
    windows = ", ".join(f"{seconds:.3g} s" for seconds in about.windows_s.values())
    how = f" (jobs of the trace are replaced by others that arrived within ±{windows})" if windows else ""
    return (
        f"{runs} with the same changes of the rate of arrivals{how}; they show how much this run would differ if it "
        "came again, and say nothing about other changes of the rate"
    )
