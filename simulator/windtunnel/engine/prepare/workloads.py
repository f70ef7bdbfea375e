"""The workloads of a run: their arrivals, and the sources of the values of their jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.rng import stream
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.arrivals import MAX_JOBS, JobLimit, arrivals, count_expected
from windtunnel.engine.prepare.lengths import drawn_rows, session_source
from windtunnel.engine.prepare.prepared import FAR, JobClass, PreparedRun
from windtunnel.engine.prepare.source import Source
from windtunnel.engine.prepare.users import first_capacity
from windtunnel.engine.prepare.waits import patience_draws
from windtunnel.scenario.arrivals import Closed, Trace
from windtunnel.scenario.program import OpStage
from windtunnel.scenario.scenario import Scenario, Workload


def drawn_workloads(scenario: Scenario, capacity: int | None, original: PreparedRun | None) -> list[JobClass]:
    """Return the workloads with all their jobs, or for users with as many as random numbers are drawn for.

    Args:
        scenario: The scenario.
        capacity: For how many jobs of each closed workload to draw; an estimate by default.
        original: A run of the same scenario with another seed, from whose traces the arrivals are redrawn.

    Raises:
        InputError: if arrivals are not valid, do not end or are too many, or if no job arrives.
    """
    workloads: list[JobClass] = []
    limit = JobLimit(MAX_JOBS, _job_bytes(scenario), scenario.stop.jobs if scenario.stop is not None else None)
    count_expected(scenario.workload, scenario.stop, limit, scenario.where)
    for number, (workload, program) in enumerate(zip(scenario.workload, scenario.programs, strict=True)):
        where = partial(scenario.where, "workload", number, "arrivals")
        if isinstance(workload.arrivals, Closed):
            count = first_capacity(workload, workload.arrivals, scenario, where()) if capacity is None else capacity
            limit.keep(count, workload.name, where())
            ticks, trace = np.zeros(count, dtype=np.int64), None
        else:
            whole = None if original is None else original.workloads[number].source.trace
            if whole is not None and isinstance(workload.arrivals, Trace):
                trace = whole.redrawn(stream(scenario.seed, workload.name, "redrawn"))
                if scenario.stop is not None and scenario.stop.jobs is not None:
                    trace = trace.first(scenario.stop.jobs)
                ticks = trace.ticks
            else:
                found = arrivals(workload, scenario.seed, scenario.stop, scenario.folder, where, limit)
                ticks, trace = found.ticks, found.trace
        source = Source(workload.name, scenario.seed, ticks, trace, place_of(scenario), scenario.folder)
        if workload.session is not None:
            source = session_source(scenario, number, source)
            limit.keep(source.count - len(ticks), workload.name, where())
        elif workload.rows is not None:
            source.trace = drawn_rows(scenario, number, source)
        deadline = FAR if workload.deadline is None else to_ticks(workload.deadline)
        patience = patience_draws(workload, scenario.seed, source.count)
        workloads.append(JobClass(number, workload, program, source, deadline, patience))
    if not any(job_class.source.count for job_class in workloads):
        raise InputError(
            "no job arrives before the run stops",
            where=scenario.where("stop"),
            expected="a later stop, or higher rates",
        )
    return workloads


def has_users(workload: Workload) -> bool:
    """Return whether the engine computes the arrivals of the jobs, because they follow the ends of others."""
    return isinstance(workload.arrivals, Closed) or workload.session is not None


_JOB_BYTES, _FURTHER_STAGE_BYTES, _GENERATE_BYTES = 400.0, 200.0, 1200.0
"""Peak memory of a run for each job that it keeps: for one stage, for each further stage, and for a `generate`.
Measured on the compiled engine, with 600,000 jobs: 402 bytes for a service, 851 for three operations, 1,650 for a
request."""


def _job_bytes(scenario: Scenario) -> float:
    """Return the memory that a run takes for each job that it keeps (bytes): of the longest of its programs."""
    return max(
        _JOB_BYTES
        + _FURTHER_STAGE_BYTES * (len(program) - 1)
        + _GENERATE_BYTES * any(not isinstance(stage, OpStage) for stage in program)
        for program in scenario.programs
    )


def place_of(scenario: Scenario) -> Callable[[tuple[str | int, ...]], Location]:
    """Return a function that returns the location of a path in the scenario."""
    return lambda path: scenario.where(*path)
