"""Arrivals of a workload until the stop condition, as one array or in blocks, and the merging of workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.ticks import MAX_SECONDS, MAX_TICKS, TICKS_PER_SECOND, TickArray, to_tick_array
from windtunnel.engine.arrivals.limits import MAX_JOBS, MAX_STREAMED_JOBS, JobLimit
from windtunnel.engine.arrivals.processes import BLOCK, Draws, times
from windtunnel.engine.arrivals.traces import TraceRows, trace_jobs
from windtunnel.scenario.arrivals import Closed, Process, Trace
from windtunnel.scenario.scenario import Stop, Workload

JobBlock = tuple[TickArray, np.ndarray, np.ndarray]
"""Jobs in order of arrival: ticks, workload numbers, and indices within the workload; three arrays of shape (jobs,)."""


@dataclass(frozen=True)
class Stream:
    """The arrivals of one workload.

    Attributes:
        ticks: Arrival times in order; shape (jobs,).
        mean_rate_per_s: The long-run rate of the process, or the mean rate of the trace.
        stationary: Whether the rate does not change with time.
        trace: The trace from which the arrivals come, or None.
    """

    ticks: TickArray
    mean_rate_per_s: float
    stationary: bool
    trace: TraceRows | None = None


def arrivals(
    workload: Workload,
    seed: int,
    stop: Stop | None,
    folder: Path,
    where: Callable[..., Location],
    limit: JobLimit | None = None,
) -> Stream:
    """Return the arrivals of ``workload``: at most ``stop.jobs``, or those before ``stop.time``.

    ``where`` returns the location of a key of the workload's ``arrivals``. ``limit`` counts the jobs of a trace; those
    of other processes are counted before, by ``count_expected``.

    Raises:
        InputError: if the arrivals do not end, if there are more than 200 million or too many for ``limit``, or if a
            trace is not valid.
    """
    process = workload.arrivals
    assert not isinstance(process, Closed)  # noqa: S101  the engine computes those arrivals
    if isinstance(process, Trace):
        rows = _stopped_trace(process, workload.name, seed, stop, folder, where, limit)
        if limit is not None:
            limit.keep(len(rows.ticks), workload.name, where())
        return Stream(rows.ticks, rows.mean_rate_per_s, process.stationary, rows)
    blocks = list(arrival_blocks(workload, seed, stop, folder, where, MAX_JOBS))
    ticks = np.concatenate([np.empty(0, dtype=np.int64), *blocks])
    return Stream(ticks, process.mean_rate_per_s(), process.stationary)


def count_expected(
    workloads: Sequence[Workload], stop: Stop | None, limit: JobLimit, where: Callable[..., Location]
) -> None:
    """Count the expected jobs of all random processes, before any of them is drawn.

    ``where`` returns the location of a path in the scenario.

    Raises:
        InputError: if they are too many for ``limit``.
    """
    if stop is None:
        return
    for number, workload in enumerate(workloads):
        process = workload.arrivals
        if isinstance(process, Trace | Closed):
            continue
        jobs = process.expected_jobs(stop.time or 0.0) if stop.jobs is None else float(stop.jobs)
        limit.draw(jobs, workload.name, where("workload", number, "arrivals"))
        limit.keep(jobs, workload.name, where("workload", number, "arrivals"))


def arrival_blocks(
    workload: Workload,
    seed: int,
    stop: Stop | None,
    folder: Path,
    where: Callable[..., Location],
    most: int = MAX_STREAMED_JOBS,
) -> Iterator[TickArray]:
    """Yield the arrivals of ``arrivals`` in blocks of ticks, for runs that are too long to be kept in memory.

    A trace is kept in memory as a whole, because it must be sorted. More than ``most`` arrivals are an error, because
    a random process may have many more than are expected.

    Raises:
        InputError: as ``arrivals`` does.
    """
    process = workload.arrivals
    assert not isinstance(process, Closed)  # noqa: S101
    if isinstance(process, Trace):
        ticks = _stopped_trace(process, workload.name, seed, stop, folder, where).ticks
        return (ticks[first : first + BLOCK] for first in range(0, len(ticks), BLOCK))
    if stop is None:
        raise InputError(
            f"the {process.process} arrivals of '{workload.name}' do not end",
            where=where(),
            expected="a stop, such as `stop: {jobs: 10000}` or `stop: {time: 10 s}`",
        )
    return _drawn(process, Draws(seed, (workload.name, "arrivals")), stop, workload.name, where, most)


def _drawn(
    process: Process, draws: Draws, stop: Stop, name: str, where: Callable[..., Location], most: int
) -> Iterator[TickArray]:
    end = MAX_TICKS if stop.time is None else round(stop.time * TICKS_PER_SECOND)
    done = 0
    for block in times(process, draws):
        times_s = block if stop.jobs is None else block[: stop.jobs - done]
        ticks = to_tick_array(times_s[times_s < MAX_SECONDS])
        ticks = ticks[ticks < end]
        is_over = len(ticks) < len(times_s)
        if is_over and stop.jobs is not None:
            raise InputError(
                f"{stop.jobs:,} jobs of '{name}' take longer than the 106 days a run may last",
                where=where(),
                expected="a higher rate or fewer jobs",
            )
        done += len(ticks)
        if done > most:
            raise InputError(
                f"'{name}' has more than {most:,} jobs", where=where(), expected="a lower rate or an earlier stop"
            )
        yield ticks
        if is_over or done == stop.jobs:
            return


def _stopped_trace(
    process: Trace,
    name: str,
    seed: int,
    stop: Stop | None,
    folder: Path,
    where: Callable[..., Location],
    limit: JobLimit | None = None,
) -> TraceRows:
    rows = trace_jobs(process, folder, Draws(seed, (name, "arrivals")), where, limit, name)
    if stop is not None and stop.jobs is not None:
        return rows.first(stop.jobs)
    if stop is not None and stop.time is not None:
        return rows.first(int(np.searchsorted(rows.ticks, round(stop.time * TICKS_PER_SECOND), side="left")))
    return rows


def merged(streams: Mapping[int, TickArray], limit: int | None) -> JobBlock:
    """Return all streams in order of arrival, at most ``limit`` jobs; ties go to the workload that is listed first."""
    if not streams:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    if len(streams) == 1:
        ((number, only),) = streams.items()
        return only, np.full(len(only), number, dtype=np.int64), np.arange(len(only), dtype=np.int64)
    ticks = np.concatenate(list(streams.values()))
    workload = np.concatenate([np.full(len(s), w, dtype=np.int64) for w, s in streams.items()])
    rank = np.concatenate([np.arange(len(s), dtype=np.int64) for s in streams.values()])
    order = np.lexsort((workload, ticks))[:limit]
    return ticks[order], workload[order], rank[order]


# Long: the merge keeps its state (waiting jobs, ranks, open streams) in local variables of one loop.
def merged_blocks(streams: Mapping[int, Iterator[TickArray]], limit: int | None) -> Iterator[JobBlock]:
    """Yield the jobs of ``merged`` in blocks, from streams in blocks, of which it keeps at most a few."""
    waiting = {number: np.empty(0, dtype=np.int64) for number in streams}
    rank = dict.fromkeys(streams, 0)
    open_streams = dict(streams)
    done = 0

    def extend(number: int) -> None:
        block = next(open_streams[number], None)
        if block is None:
            del open_streams[number]
        else:
            waiting[number] = np.concatenate([waiting[number], block])

    while True:
        for number in [n for n in open_streams if not len(waiting[n])]:
            while number in open_streams and not len(waiting[number]):
                extend(number)
        # All jobs before the earliest of the open streams' last jobs are complete.
        complete = min((int(waiting[number][-1]) for number in open_streams), default=MAX_TICKS)
        ready: dict[int, TickArray] = {}
        for number, ticks in waiting.items():
            cut = int(np.searchsorted(ticks, complete, side="right" if not open_streams else "left"))
            ready[number], waiting[number] = ticks[:cut], ticks[cut:]
        total = sum(len(ticks) for ticks in ready.values())
        if total:
            at, workload, place = merged(ready, None if limit is None else limit - done)
            place = place + np.array([rank.get(n, 0) for n in range(max(streams) + 1)])[workload]
            for number, ticks in ready.items():
                rank[number] += len(ticks)
            done += len(at)
            yield at, workload, place
        if not open_streams or done == limit:
            return
        # Streams whose last job is at the tick `complete` may have more jobs at this tick.
        for number in [n for n in open_streams if len(waiting[n]) and int(waiting[n][-1]) == complete]:
            extend(number)
