"""Which engine runs a scenario, and why."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.core.errors import InputError, Where, nearest
from windtunnel.core.result import Recording
from windtunnel.engine.prepare.prepare import can_be_streamed, expected_jobs
from windtunnel.engine.prepare.prepared import Prepared
from windtunnel.engine.process import engine as process
from windtunnel.scenario.scenario import Scenario

ENGINES = ("auto", "process", "compiled")
COMPILED_ABOVE = 20_000
"""Jobs, or devices, from which starting the compiled engine (half a second, and some ten once to compile it) is
worth it: the process engine takes some 30 us for a job and as much to set up a device."""
COMPILED_ABOVE_STEPS = 300_000
"""As much, counted in steps of single sequences, where jobs are batched continuously.

The process engine takes some 7 us for a step of a device, and one step serves between one and some ten sequences:
half a second is 70,000 to 700,000 of these.
"""

KEPT_UP_TO = 1_000_000
"""Jobs above which no more than sums, histograms and a sample of their times are kept, unless asked for."""


def wants_streaming(scenario: Scenario, engine: str) -> bool:
    """Whether a run is long enough, or asks, for its jobs to be drawn as they are needed, and can be run so."""
    if engine == "process" or scenario.records == "all" or not can_be_streamed(scenario):
        return False
    return scenario.records is not None or expected_jobs(scenario) > KEPT_UP_TO


def choose(prepared: Prepared, asked: str) -> tuple[str, str]:
    """(engine, why): the one that was asked for, or for ``auto`` the one that suits.

    Raises InputError for an engine that is not there, or that cannot run this.
    """
    if asked not in ENGINES:
        raise InputError(
            f"the engine '{asked}' is not here",
            where=Where(field="--engine"),
            expected="auto, process or compiled",
            nearest=nearest(asked, ENGINES),
        )
    if asked == "process":
        return "process", "asked for"
    steps = sequence_steps(prepared)
    few = prepared.job_count < COMPILED_ABOVE and prepared.device_count < COMPILED_ABOVE
    if asked == "auto" and not prepared.streamed and few:
        if steps is None:
            return "process", f"fewer than {COMPILED_ABOVE:,} jobs"
        if steps < COMPILED_ABOVE_STEPS:
            return "process", f"fewer than {COMPILED_ABOVE:,} jobs, of fewer than {COMPILED_ABOVE_STEPS:,} steps"
    from windtunnel.engine.compiled.run import refusal

    cannot = refusal(prepared)
    if cannot is None:
        if asked == "compiled":
            return "compiled", "asked for"
        of = "" if steps is None else f" of {steps:,} steps"
        many = prepared.device_count >= COMPILED_ABOVE > prepared.job_count
        on = f" on {prepared.device_count:,} devices" if many else ""
        return "compiled", f"{prepared.job_count:,} jobs{of}{on}, none beyond it"
    if asked == "compiled":
        raise InputError(
            f"the compiled engine does not do {cannot}",
            where=Where(field="--engine"),
            expected="--engine process, or auto",
        )
    return "process", f"only it does {cannot}"


def sequence_steps(prepared: Prepared) -> int | None:
    """Steps that jobs take in continuous batches, were each served alone; None for other runs.

    A token made is a step, and so are as many tokens of a prompt as a step may read.
    """
    if prepared.policy.batch.kind != "continuous":
        return None
    total = 0
    counted: set[int] = set()
    for (_, work), compiled in prepared.compiled.items():
        if work in counted or compiled.prompts is None or compiled.outputs is None:
            continue
        counted.add(work)
        mine = prepared.rank[prepared.workload_of == work]
        chunks = -(-compiled.prompts[mine] // prepared.policy.batch.tokens)
        total += int((compiled.outputs[mine] + chunks - 1).sum())
    return total


def run_on(engine: str, prepared: Prepared, progress: Callable[[int], None] | None = None) -> Recording:
    """Run a prepared scenario on the engine that was chosen."""
    if engine == "process":
        return process.run(prepared, progress)
    from windtunnel.engine.compiled import run as compiled

    return compiled.run(prepared, progress)
