"""A run's jobs block after block, from arrays that hold them all, or drawn as they are needed.

Both give the same jobs: the same arrivals, draws and slowdowns, whoever asks and in whatever blocks.
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
from windtunnel.engine.prepare.programs import ServiceTimeDraws
from windtunnel.scenario.faults import Straggler

BLOCK = 262_144
"""Jobs of a block, where they are held in arrays."""


@dataclass(frozen=True)
class JobBlock:
    """Jobs in order of arrival; arrays of one length, ``draws`` by (job, draw)."""

    arrival: TickArray
    workload: np.ndarray
    rank: np.ndarray
    signature: np.ndarray
    slowdown: FloatArray | None
    draws: FloatArray


def draws(prepared: PreparedRun) -> dict[int, list[ServiceTimeDraws]]:
    """Each workload's columns of draws, one for every stated time that is drawn."""
    found: dict[int, list[ServiceTimeDraws]] = {}
    for (_, work), compiled in prepared.compiled.items():
        columns = found.setdefault(work, [])
        for segment in compiled.segments():
            if segment.drawn is not None and not any(segment.drawn.variates is known for known in columns):
                columns.append(segment.drawn.variates)
    return found


def draw_columns(prepared: PreparedRun) -> int:
    """How many draws a job may have; at least one."""
    return max(1, max((len(columns) for columns in draws(prepared).values()), default=0))


def job_blocks(prepared: PreparedRun) -> Iterator[JobBlock]:
    """All jobs of the run."""
    return _drawn(prepared) if prepared.streamed else _held(prepared)


def _held(prepared: PreparedRun) -> Iterator[JobBlock]:
    columns, known = draw_columns(prepared), draws(prepared)
    for first in range(0, len(prepared.arrival), BLOCK):
        part = slice(first, first + BLOCK)
        workload, rank = prepared.workload_of[part], prepared.rank[part]
        drawn = np.ones((len(rank), columns))
        for work, variates in known.items():
            mine = slice(None) if len(known) == 1 and len(prepared.workloads) == 1 else workload == work
            for column, one in enumerate(variates):
                drawn[mine, column] = one.values[rank[mine]]
        slowdown = None if prepared.slowdown is None else prepared.slowdown[part]
        yield JobBlock(prepared.arrival[part], workload, rank, prepared.eligible[part], slowdown, drawn)


def _drawn(prepared: PreparedRun) -> Iterator[JobBlock]:
    scenario = prepared.scenario
    columns = draw_columns(prepared)
    takers = {work: [one.drawing() for one in known] for work, known in draws(prepared).items()}
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
            mine = workload == work
            count = len(arrival) if alone else int(np.count_nonzero(mine))
            for column, take in enumerate(takers.get(work, [])):
                if alone:
                    drawn[:, column] = take(count)
                else:
                    drawn[mine, column] = take(count)
            for take in slow.get(work, []):
                assert slowdown is not None  # noqa: S101  there is a slowdown
                slowdown[mine] *= take(count)
        yield JobBlock(arrival, workload, rank, prepared.eligible[workload], slowdown, drawn)


def _slowing(prepared: PreparedRun) -> dict[int, list[Callable[[int], FloatArray]]]:
    """For each workload, what its jobs' slowdowns are multiplied from (as in ``faults.straggler_slowdowns``)."""
    found: dict[int, list[Callable[[int], FloatArray]]] = {}
    for number, fault in enumerate(prepared.scenario.faults):
        if not isinstance(fault, Straggler):
            continue
        for job_class in prepared.workloads:
            name = job_class.workload.name
            if fault.workloads is None or name in fault.workloads:
                rng = stream(prepared.scenario.seed, "faults", str(number), name)
                found.setdefault(job_class.number, []).append(partial(_slowed, rng, fault))
    return found


def _slowed(rng: np.random.Generator, fault: Straggler, count: int) -> FloatArray:
    return np.where(rng.random(count) < fault.probability, fault.slowdown, 1.0)
