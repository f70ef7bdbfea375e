"""A workload's arrivals until the run stops, in blocks or whole, and several workloads' in one order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windtunnel.core.errors import InputError, Where
from windtunnel.core.ticks import MAX_SECONDS, MAX_TICKS, TICKS_PER_SECOND, TickArray, to_tick_array
from windtunnel.engine.arrivals.processes import BLOCK, Draws, times
from windtunnel.engine.arrivals.traces import MAX_JOBS, TraceRows, trace_jobs
from windtunnel.scenario.arrivals import Closed, Process, Trace
from windtunnel.scenario.scenario import Stop, Workload

JobBlock = tuple[TickArray, np.ndarray, np.ndarray]
"""Jobs in order: arrival tick, workload, and rank within the workload; three arrays of one length."""


@dataclass(frozen=True)
class Stream:
    """One workload's arrivals: ticks in order, the trace they came from, if any, and what is known of their rate.

    ``mean_rate_per_s`` is the process's in the long run, or that of the trace's jobs; ``stationary`` says whether the
    rate is the same at all times.
    """

    ticks: TickArray
    mean_rate_per_s: float
    stationary: bool
    trace: TraceRows | None = None


def arrivals(workload: Workload, seed: int, stop: Stop | None, folder: Path, where: Callable[..., Where]) -> Stream:
    """The arrivals of ``workload`` until ``stop`` (at most ``stop.jobs`` of them, or before ``stop.time``).

    ``where`` gives a place under the workload's ``arrivals``. Raises InputError for an endless source without a
    stop, for more than 200 million jobs, and for a trace that is missing, empty or broken.
    """
    process = workload.arrivals
    assert not isinstance(process, Closed)  # noqa: S101  those arrive as they are answered
    if isinstance(process, Trace):
        rows = _stopped_trace(process, workload.name, seed, stop, folder, where)
        return Stream(rows.ticks, rows.mean_rate_per_s, process.stationary, rows)
    blocks: list[TickArray] = []
    total = 0
    for block in arrival_blocks(workload, seed, stop, folder, where):
        blocks.append(block)
        total += len(block)
        if total > MAX_JOBS:
            raise InputError(
                f"'{workload.name}' would have more than {MAX_JOBS:,} jobs",
                where=where(),
                expected="a lower rate or an earlier stop",
            )
    ticks = np.concatenate([np.empty(0, dtype=np.int64), *blocks])
    return Stream(ticks, process.mean_rate_per_s(), process.stationary)


def arrival_blocks(
    workload: Workload, seed: int, stop: Stop | None, folder: Path, where: Callable[..., Where]
) -> Iterator[TickArray]:
    """The same arrivals in blocks of ticks, for runs too long to be held whole; errors as for `arrivals`.

    A process is held one block at a time; a trace, which must be sorted, whole.
    """
    process = workload.arrivals
    assert not isinstance(process, Closed)  # noqa: S101
    if isinstance(process, Trace):
        ticks = _stopped_trace(process, workload.name, seed, stop, folder, where).ticks
        return (ticks[first : first + BLOCK] for first in range(0, len(ticks), BLOCK))
    if stop is None:
        raise InputError(
            f"the {process.process} arrivals of '{workload.name}' never end",
            where=where(),
            expected="a stop, such as `stop: {jobs: 10000}` or `stop: {time: 10 s}`",
        )
    return _drawn(process, Draws(seed, (workload.name, "arrivals")), stop, workload.name, where)


def _drawn(process: Process, draws: Draws, stop: Stop, name: str, where: Callable[..., Where]) -> Iterator[TickArray]:
    end = MAX_TICKS if stop.time is None else round(stop.time * TICKS_PER_SECOND)
    done = 0
    for block in times(process, draws):
        wanted = block if stop.jobs is None else block[: stop.jobs - done]
        ticks = to_tick_array(wanted[wanted < MAX_SECONDS])
        ticks = ticks[ticks < end]
        over = len(ticks) < len(wanted)
        if over and stop.jobs is not None:
            raise InputError(
                f"{stop.jobs:,} jobs of '{name}' take longer than the 106 days a run may last",
                where=where(),
                expected="a higher rate or fewer jobs",
            )
        done += len(ticks)
        yield ticks
        if over or done == stop.jobs:
            return


def _stopped_trace(
    process: Trace, name: str, seed: int, stop: Stop | None, folder: Path, where: Callable[..., Where]
) -> TraceRows:
    rows = trace_jobs(process, folder, Draws(seed, (name, "arrivals")), where)
    if stop is not None and stop.jobs is not None:
        return rows.first(stop.jobs)
    if stop is not None and stop.time is not None:
        return rows.first(int(np.searchsorted(rows.ticks, round(stop.time * TICKS_PER_SECOND), side="left")))
    return rows


def merged(streams: Mapping[int, TickArray], limit: int | None) -> JobBlock:
    """All streams in one order; at most ``limit`` jobs. Ties go to the workload that is listed first."""
    if not streams:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing
    if len(streams) == 1:
        ((number, only),) = streams.items()
        return only, np.full(len(only), number, dtype=np.int64), np.arange(len(only), dtype=np.int64)
    ticks = np.concatenate(list(streams.values()))
    workload = np.concatenate([np.full(len(s), w, dtype=np.int64) for w, s in streams.items()])
    rank = np.concatenate([np.arange(len(s), dtype=np.int64) for s in streams.values()])
    order = np.lexsort((workload, ticks))[:limit]
    return ticks[order], workload[order], rank[order]


def merged_blocks(streams: Mapping[int, Iterator[TickArray]], limit: int | None) -> Iterator[JobBlock]:
    """What `merged` gives, in blocks, from streams in blocks; no more than a few blocks of each are held."""
    waiting = {number: np.empty(0, dtype=np.int64) for number in streams}
    rank = dict.fromkeys(streams, 0)
    open_streams = dict(streams)
    done = 0
    while True:
        # Before the earliest of the open streams' last known jobs nothing unknown can come.
        for number in [n for n in open_streams if not len(waiting[n])]:
            while not len(waiting[number]):
                more = next(open_streams[number], None)
                if more is None:
                    del open_streams[number]
                    break
                waiting[number] = more
        sure = min((int(waiting[number][-1]) for number in open_streams), default=MAX_TICKS)
        ready: dict[int, TickArray] = {}
        for number, ticks in waiting.items():
            cut = int(np.searchsorted(ticks, sure, side="right" if not open_streams else "left"))
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
        # At the tick `sure` itself a tie may still come from the streams that end there: look further.
        for number in [n for n in open_streams if len(waiting[n]) and int(waiting[n][-1]) == sure]:
            more = next(open_streams[number], None)
            if more is None:
                del open_streams[number]
            else:
                waiting[number] = np.concatenate([waiting[number], more])
