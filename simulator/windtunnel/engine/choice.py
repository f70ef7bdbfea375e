"""Chooses the simulation engine for a run, and states the reason."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.core.errors import InputError, Location, nearest
from windtunnel.core.recording import Recording
from windtunnel.engine.compiled.support import unsupported_feature
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.scenario import can_be_streamed, expected_jobs
from windtunnel.engine.process import engine as process
from windtunnel.scenario.scenario import Scenario

ENGINES = ("auto", "process", "compiled")
COMPILED_FROM_JOBS = 20_000
"""The number of jobs, or of devices, from which ``auto`` takes the compiled engine where it can.

Loading Numba and the compiled engine takes 0.7 to 0.9 s of CPU time. The process engine takes 3 to 25 us for a job, and
as much to set up a device, so a smaller run ends sooner there.
"""
COMPILED_FROM_STEPS = 100_000
"""The same number where jobs are batched continuously, in steps of single sequences (see ``sequence_steps``).

The process engine takes 2 to 6 us for each of them: 1.5 s for the 251,089 of ``scenarios/azure-code.yaml``.
"""
STREAMED_FROM_JOBS = 1_000_000
"""Above this number of jobs a run keeps only sums, histograms and a sample of the jobs' times by default."""


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

    ``auto`` takes the compiled engine wherever it supports the scenario, except for runs that are so small that the
    process engine ends before the compiled one is loaded. The choice depends on the scenario alone, and not on whether
    machine code is cached, because the result names the engine.

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
    size, is_small = _size(prepared)
    if requested == "auto" and is_small:
        return "process", size
    unsupported = unsupported_by_compiled(prepared)
    if unsupported is None:
        return "compiled", "requested" if requested == "compiled" else size
    if requested == "compiled":
        raise InputError(
            f"the compiled engine does not support {unsupported}",
            where=Location(field="--engine"),
            expected="--engine process, or auto",
        )
    return "process", f"only the process engine supports {unsupported}"


def _size(prepared: PreparedRun) -> tuple[str, bool]:
    """Return the size of a run in words, and whether it ends before the compiled engine would be loaded."""
    steps = sequence_steps(prepared)
    few_jobs = prepared.job_count < COMPILED_FROM_JOBS
    few_devices = prepared.device_count < COMPILED_FROM_JOBS
    few_steps = steps is None or steps < COMPILED_FROM_STEPS
    if few_jobs and few_devices and few_steps and not prepared.streamed:
        limit = f"fewer than {COMPILED_FROM_JOBS:,} jobs"
        return limit if steps is None else f"{limit} and fewer than {COMPILED_FROM_STEPS:,} steps", True
    size = f"{prepared.job_count:,} jobs"
    if steps is not None:
        size += f" of {steps:,} steps"
    if few_jobs and not few_devices:
        size += f" on {prepared.device_count:,} devices"
    return size, False


def sequence_steps(prepared: PreparedRun) -> int | None:
    """Return the steps that all jobs would take in continuous batches if each was served alone; None for other runs.

    A step produces one token, or processes as many prompt tokens as a step may hold.
    """
    if prepared.policy.batch.kind != "continuous":
        return None
    total = 0
    counted: set[int] = set()
    for (_, work), compiled in prepared.compiled.items():
        if work in counted or compiled.prompts is None or compiled.outputs is None:
            continue
        counted.add(work)
        ranks = prepared.rank[prepared.workload_of == work]
        chunks = -(-compiled.prompts[ranks] // prepared.policy.batch.tokens)
        total += int((compiled.outputs[ranks] + chunks - 1).sum())
    return total


def run_on(engine: str, prepared: PreparedRun, progress: Callable[[int], None] | None = None) -> Recording:
    """Run a prepared scenario on an engine that ``choose`` returned; ``progress`` receives the number of arrivals."""
    if engine == "process":
        return process.run(prepared, progress)
    from windtunnel.engine.compiled import run as compiled

    return compiled.run(prepared, progress)
