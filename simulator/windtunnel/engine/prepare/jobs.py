"""The jobs of a run in blocks, from complete arrays or drawn while the run goes on.

Both give the same arrivals, random draws and slowdowns, independent of the sizes of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from windtunnel.core.rng import stream
from windtunnel.core.ticks import FloatArray, TickArray
from windtunnel.engine.arrivals import arrival_blocks, merged_blocks
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.source import ServiceTimeDraws
from windtunnel.scenario.faults import Straggler

BLOCK = 262_144
"""The number of jobs in a block that is taken from complete arrays."""


@dataclass(frozen=True)
class JobBlock:
    """Jobs in order of arrival: arrays of shape (jobs,), and ``draws`` of shape (jobs, columns)."""

    arrival: TickArray
    workload: np.ndarray
    rank: np.ndarray
    signature: np.ndarray
    slowdown: FloatArray | None
    draws: FloatArray


def draws(prepared: PreparedRun) -> dict[int, list[ServiceTimeDraws]]:
    """Return the random draws of each workload: one column for each random stage, then one for a random patience."""
    by_workload: dict[int, list[ServiceTimeDraws]] = {w.number: [] for w in prepared.workloads}
    for (_, work), compiled in prepared.compiled.items():
        columns = by_workload[work]
        for segment in compiled.segments():
            if segment.drawn is not None and not any(segment.drawn.variates is other for other in columns):
                columns.append(segment.drawn.variates)
    for job_class in prepared.workloads:
        if job_class.patience is not None:
            by_workload[job_class.number].append(job_class.patience)
    return by_workload


def draw_columns(prepared: PreparedRun) -> int:
    """Return the largest number of random draws of a job; at least 1."""
    return max(1, max((len(columns) for columns in draws(prepared).values()), default=0))


def job_blocks(prepared: PreparedRun, block: int = BLOCK) -> Iterator[JobBlock]:
    """Yield all jobs of the run in blocks; in blocks of ``block`` jobs where they are not drawn."""
    return _drawn(prepared) if prepared.streamed else _held(prepared, block)


def _held(prepared: PreparedRun, block: int) -> Iterator[JobBlock]:
    columns, by_workload = draw_columns(prepared), draws(prepared)
    for first in range(0, len(prepared.arrival), block):
        part = slice(first, first + block)
        workload, rank = prepared.workload_of[part], prepared.rank[part]
        drawn = np.ones((len(rank), columns))
        for work, variates in by_workload.items():
            members = slice(None) if len(by_workload) == 1 and len(prepared.workloads) == 1 else workload == work
            for column, values in enumerate(variates):
                drawn[members, column] = values.values[rank[members]]
        slowdown = None if prepared.slowdown is None else prepared.slowdown[part]
        yield JobBlock(prepared.arrival[part], workload, rank, prepared.eligible[part], slowdown, drawn)


def _drawn(prepared: PreparedRun) -> Iterator[JobBlock]:
    scenario = prepared.scenario
    columns = draw_columns(prepared)
    takers = {work: [column.drawing() for column in columns_of] for work, columns_of in draws(prepared).items()}
    slow = _slowing(prepared)
    streams = {
        w.number: arrival_blocks(
            w.workload,
            scenario.seed,
            scenario.stop,
            scenario.folder,
            partial(scenario.where, "workload", w.number, "arrivals"),
        )
        for w in prepared.workloads
    }
    limit = scenario.stop.jobs if scenario.stop is not None else None
    alone = len(prepared.workloads) == 1
    for arrival, workload, rank in merged_blocks(streams, limit):
        drawn = np.ones((len(arrival), columns))
        slowdown = np.ones(len(arrival)) if slow else None
        for work in (0,) if alone else np.unique(workload).tolist():
            members = workload == work
            count = len(arrival) if alone else int(np.count_nonzero(members))
            for column, take in enumerate(takers.get(work, [])):
                if alone:
                    drawn[:, column] = take(count)
                else:
                    drawn[members, column] = take(count)
            for take in slow.get(work, []):
                assert slowdown is not None  # noqa: S101  there is a slowdown
                slowdown[members] *= take(count)
        yield JobBlock(arrival, workload, rank, prepared.eligible[workload], slowdown, drawn)


def _slowing(prepared: PreparedRun) -> dict[int, list[Callable[[int], FloatArray]]]:
    """Return the factors of the slowdowns of each workload, as ``fault_schedule.straggler_slowdowns`` does."""
    by_workload: dict[int, list[Callable[[int], FloatArray]]] = {}
    for number, fault in enumerate(prepared.scenario.faults):
        if not isinstance(fault, Straggler):
            continue
        for job_class in prepared.workloads:
            name = job_class.workload.name
            if fault.workloads is None or name in fault.workloads:
                rng = stream(prepared.scenario.seed, "faults", str(number), name)
                by_workload.setdefault(job_class.number, []).append(partial(_slowed, rng, fault))
    return by_workload


def _slowed(rng: np.random.Generator, fault: Straggler, count: int) -> FloatArray:
    return np.where(rng.random(count) < fault.probability, fault.slowdown, 1.0)
