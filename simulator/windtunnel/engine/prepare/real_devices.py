"""Checks before the run that the real devices of a fleet can execute their work."""

from __future__ import annotations

import numpy as np

from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.executor import MOST_REAL_S, Executor
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.programs import Compiled

_CHECKED_JOBS = 1000
"""The number of jobs, evenly spaced, whose operations are checked."""


def check_executable(program: Compiled, executor: Executor, count: int) -> None:
    """Check that an executor supports the operations of a program.

    Raises:
        UnsupportedOperationError: if it does not, for any of the jobs.
    """
    if program.decoder is not None:
        raise UnsupportedOperationError(f"{executor.name} does not support 'generate'")
    checked: set[tuple[object, ...]] = set()
    for rank in np.unique(np.linspace(0, max(count - 1, 0), min(count, _CHECKED_JOBS)).astype(np.int64)).tolist():
        for phase in program.phases(rank):
            if len(phase) > 1:
                raise UnsupportedOperationError(f"{executor.name} does not support streams of a job")
            for segment in phase[0]:
                if segment.rows is None:
                    raise UnsupportedOperationError(f"{executor.name} does not support 'generate'")
                columns = segment.columns(rank)
                key = (segment.name, *columns.values())
                if key in checked:
                    continue
                checked.add(key)
                reason = executor.refusal(segment.name, columns)
                if reason is not None:
                    raise UnsupportedOperationError(f"{executor.name} does not support it: {reason}")


def check_real(prepared: PreparedRun) -> None:
    """Check that the policy supports real devices, and that they complete their work in an acceptable real time.

    Raises:
        InputError: if either is not the case.
    """
    scenario = prepared.scenario
    for fleet_class in prepared.classes:
        if fleet_class.executor is None:
            continue
        where = scenario.where("fleet", fleet_class.number, "real")
        if prepared.policy.batch.kind != "none":
            raise InputError(
                f"{fleet_class.executor.name} executes one job at a time and does not support batches",
                where=where,
                expected="a policy without batches, or only modelled devices",
            )
        if any(fleet_class is scaled for scaled, _ in prepared.scaled):
            raise InputError(
                "autoscale is not supported for real devices", where=where, expected="an entry without autoscale"
            )
        # Estimated for an equal share of the jobs; the run ends with an error if the policy assigns many more.
        job_counts = np.bincount(prepared.workload_of, minlength=len(prepared.workloads))
        whole_s = sum(
            job_counts[work] * program.mean_s
            for (number, work), program in prepared.compiled.items()
            if number == fleet_class.number
        )
        whole_s *= prepared.job_count / max(len(prepared.workload_of), 1)
        likely_s = whole_s / sum(c.count for c in prepared.classes)
        if likely_s > MOST_REAL_S:
            name = fleet_class.executor.name
            raise InputError(
                f"{prepared.job_count:,} jobs would take about {likely_s:,.0f} s of real time on {name}",
                where=where,
                expected=f"work for at most {MOST_REAL_S:g} s: fewer jobs, or smaller ones",
            )
