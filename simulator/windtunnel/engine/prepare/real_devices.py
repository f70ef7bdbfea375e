"""What real devices of a fleet can be given: checked before anything runs."""

from __future__ import annotations

import numpy as np

from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.executor import MOST_REAL_S, Executor
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.programs import Compiled

_MOST_ASKED = 1000
"""Jobs whose columns a device is asked about, spread over all."""


def check_executable(program: Compiled, executor: Executor, count: int) -> None:
    """UnsupportedOperationError where an executor does not do what a program is made of, for every job or for some."""
    if program.decoder is not None:
        raise UnsupportedOperationError(f"{executor.name} does operations, and no 'generate' of a model")
    asked: set[tuple[object, ...]] = set()
    for rank in np.unique(np.linspace(0, max(count - 1, 0), min(count, _MOST_ASKED)).astype(np.int64)).tolist():
        for phase in program.phases(rank):
            if len(phase) > 1:
                raise UnsupportedOperationError(
                    f"{executor.name} does one operation at a time, and no streams of a job"
                )
            for segment in phase[0]:
                if segment.rows is None:
                    raise UnsupportedOperationError(f"{executor.name} does operations, and no 'generate' of a model")
                columns = segment.columns(rank)
                key = (segment.name, *columns.values())
                if key in asked:
                    continue
                asked.add(key)
                refused = executor.refusal(segment.name, columns)
                if refused is not None:
                    raise UnsupportedOperationError(f"{executor.name} does not do it: {refused}")


def check_real(prepared: PreparedRun) -> None:
    """InputError for what no fleet with real devices can do, and for what would take too long."""
    scenario = prepared.scenario
    for fleet_class in prepared.classes:
        if fleet_class.executor is None:
            continue
        where = scenario.where("fleet", fleet_class.number, "real")
        if prepared.policy.batch.kind != "none":
            raise InputError(
                f"{fleet_class.executor.name} does one job at a time, and the policy makes batches",
                where=where,
                expected="a policy without, or modelled devices alone",
            )
        if any(fleet_class is scaled for scaled, _ in prepared.scaled):
            raise InputError("a real device comes and goes for nobody", where=where, expected="no autoscale of it")
        # Its share of all jobs, as if each device had as many: where a policy gives it more, the run is ended later.
        each = np.bincount(prepared.workload_of, minlength=len(prepared.workloads))
        whole_s = sum(
            each[work] * program.mean_s
            for (number, work), program in prepared.compiled.items()
            if number == fleet_class.number
        )
        whole_s *= prepared.job_count / max(len(prepared.workload_of), 1)
        likely_s = whole_s / sum(c.count for c in prepared.classes)
        if likely_s > MOST_REAL_S:
            name = fleet_class.executor.name
            raise InputError(
                f"{prepared.job_count:,} jobs would keep {name} busy for some {likely_s:,.0f} s of real time",
                where=where,
                expected=f"work for at most {MOST_REAL_S:g} s: fewer jobs, or smaller ones",
            )
