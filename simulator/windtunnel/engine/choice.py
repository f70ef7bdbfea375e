"""Chooses the simulation engine for a run, and states the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from windtunnel.core.errors import InputError, Location, nearest
from windtunnel.core.recording import Recording
from windtunnel.engine.compiled.support import is_foreign, unsupported_feature
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.scenario import can_be_streamed, expected_jobs
from windtunnel.scenario.scenario import Scenario

if TYPE_CHECKING:
    from windtunnel.engine.results.lost import Watch

ENGINES = ("auto", "process", "compiled")
STREAMED_FROM_JOBS = 1_000_000
"""Above this number of jobs a run keeps only sums, histograms and a sample of the jobs' times by default."""

_UNCOMPILED_JOBS, _UNCOMPILED_DEVICES = 500_000, 10_000
"""The largest uncompiled run while the engine is being compiled: above it, the run waits for the machine code."""


def wants_streaming(scenario: Scenario, engine: str) -> bool:
    """Return whether jobs should be drawn only when the engine needs them, because the run is long or asks for it."""
    if engine == "process" or scenario.records == "all" or not can_be_streamed(scenario):
        return False
    return scenario.records is not None or expected_jobs(scenario) > STREAMED_FROM_JOBS


def unsupported_by_compiled(prepared: PreparedRun) -> str | None:
    """Return the part of a scenario that only the process engine supports; None where both engines can run it."""
    feature = unsupported_feature(prepared)
    if feature is not None:
        return feature
    from windtunnel.engine.compiled.run import policy_compile_error

    return policy_compile_error(prepared)


def choose(prepared: PreparedRun, requested: str) -> tuple[str, str]:
    """Return the engine that runs a prepared scenario, and the reason for the choice.

    ``auto`` takes the compiled engine wherever it supports the scenario. The choice depends on the scenario alone, and
    not on whether machine code is cached, because the result names the engine.

    Raises:
        InputError: if there is no such engine, or the compiled engine was requested and does not support the scenario.
    """
    if requested not in ENGINES:
        raise InputError(
            f"'{requested}' is not a valid engine",
            where=Location(field="--engine"),
            expected="auto, process or compiled",
            nearest=nearest(requested, ENGINES),
        )
    if requested == "process":
        return "process", "requested"
    unsupported = unsupported_by_compiled(prepared)
    if unsupported is None:
        return "compiled", "requested" if requested == "compiled" else "it supports the scenario"
    if requested == "compiled":
        raise InputError(
            f"the compiled engine does not support {unsupported}",
            where=Location(field="--engine"),
            expected="--engine process, or auto",
        )
    return "process", f"only the process engine supports {unsupported}"


def run_on(
    engine: str,
    prepared: PreparedRun,
    progress: Callable[[int], None] | None = None,
    watch: Watch | None = None,
    *,
    waits: bool = False,
) -> Recording:
    """Run a prepared scenario on an engine that ``choose`` returned; ``progress`` receives the number of arrivals.

    Where the compiled engine has no machine code for the run yet, it is compiled in another process, and the same
    transitions run uncompiled meanwhile. Their recording is the same. Whichever is ready first counts. Not so if
    ``waits`` is true, or if the uncompiled run would be very long or might differ (``_can_run_uncompiled``).
    ``watch`` may end the run with TargetsLostError.
    """
    if engine == "process":
        return _run_uncompiled(prepared, progress, watch)
    from windtunnel.engine.compiled import run as compiled
    from windtunnel.engine.compiled.background import started
    from windtunnel.engine.compiled.kernels import missing_code

    missing = {} if waits or not _can_run_uncompiled(prepared) else missing_code(prepared)
    if not missing or not started(tuple(missing)):
        return compiled.run(prepared, progress, watch)
    most = 0

    def report(jobs: int) -> None:
        nonlocal most
        if all(place.is_stored() for place in missing.values()):
            raise _CompiledError
        most = max(most, jobs)
        if progress is not None:
            progress(jobs)

    try:
        return _run_uncompiled(prepared, report, watch)
    except _CompiledError:
        # The compiled run soon overtakes what the other one has reached.
        return compiled.run(prepared, None if progress is None else lambda jobs: progress(max(most, jobs)), watch)


def is_compiled(engine: str, prepared: PreparedRun) -> bool:
    """Return whether a run on an engine that ``choose`` returned needs no machine code that is still missing."""
    if engine == "process":
        return True
    from windtunnel.engine.compiled.kernels import missing_code

    return not missing_code(prepared)


def _run_uncompiled(prepared: PreparedRun, progress: Callable[[int], None] | None, watch: Watch | None) -> Recording:
    from windtunnel.engine.process import engine as process  # SimPy is not imported where it is not needed

    return process.run(prepared, progress, watch)


class _CompiledError(Exception):
    """The machine code that a run waited for is there."""


def _can_run_uncompiled(prepared: PreparedRun) -> bool:
    """Return whether the process engine may run what was prepared for the compiled one, and needs not much more memory.

    A user's function may give another number when it is compiled, for example where an integer overflows.
    """
    policy = prepared.policy
    own = [f for f in (policy.route.score, policy.order.key, prepared.decode_score) if is_foreign(f)]
    return (
        not prepared.streamed
        and not own
        and prepared.job_count <= _UNCOMPILED_JOBS
        and prepared.device_count <= _UNCOMPILED_DEVICES
    )
