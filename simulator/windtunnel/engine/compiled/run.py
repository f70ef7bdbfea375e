"""Drives the compiled transitions: supplies blocks of arrivals and larger tables, and returns the recording."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.policy import OwnFunction
from windtunnel.core.recording import Recording
from windtunnel.core.ticks import LONGEST, MAX_TICKS
from windtunnel.engine.compiled.kernels import Loop, compiled_key, compiled_score, kernel, variant_of
from windtunnel.engine.compiled.streamed import streamed_recording
from windtunnel.engine.compiled.support import is_foreign
from windtunnel.engine.prepare.fault_schedule import initial_horizon
from windtunnel.engine.prepare.jobs import BLOCK, JobBlock, job_blocks
from windtunnel.engine.prepare.prepared import PreparedRun, with_capacity
from windtunnel.engine.prepare.users import CapacityExceededError
from windtunnel.engine.results import accounting
from windtunnel.engine.results.lost import Watch
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.answers import Answers
from windtunnel.engine.transitions.build import Words, blank_jobs, build
from windtunnel.engine.transitions.event_log import event_log
from windtunnel.engine.transitions.events import never_served
from windtunnel.engine.transitions.prefix_tables import index_of, more_nodes
from windtunnel.engine.transitions.tables import Records, World, records, unwritten_records
from windtunnel.engine.transitions.user_tables import think_ticks

Progress = Callable[[int], None]


def policy_compile_error(prepared: PreparedRun) -> str | None:
    """Return which part of the policy Numba cannot compile, with its message; None if all compiles.

    Only functions that are not part of Windtunnel are compiled for this (``is_foreign``).
    """
    policy = prepared.policy
    for part, compile_part, function in (
        ("route", compiled_score, policy.route.score),
        ("order", compiled_key, policy.order.key),
        ("decode_route", compiled_score, prepared.decode_score),
    ):
        if not is_foreign(function):
            continue
        from windtunnel.engine.compiled.compile import ERRORS

        try:
            compile_part(function)
        except ERRORS as error:
            message = " ".join(str(error).split())
            return f"the {part} of '{policy.name}', which does not compile ({message[:300]})"
    return None


def run(prepared: PreparedRun, progress: Progress | None = None, watch: Watch | None = None) -> Recording:
    """Run a prepared scenario to its end and return its recording, which equals the process engine's to the tick.

    Raises:
        TargetsLostError: ``watch`` found that a target is lost for certain.
    """
    return with_capacity(partial(_run, progress=progress, watch=watch), prepared)


def _run(prepared: PreparedRun, progress: Progress | None, watch: Watch | None) -> Recording:
    words, answers = Words(), Answers(prepared)
    world = _drive(prepared, _with_room(build(prepared, words)), answers, progress, watch)
    _rows_before[:] = [len(world.intervals), len(world.gaps)]
    if prepared.streamed:
        return streamed_recording(prepared, world, words)
    log = event_log(prepared, world, words, answers)
    return accounting.record(prepared, log, int(world.run[0].end))


_rows_before = [0, 0]
"""The rows of intervals and of gaps that the last run of this process had room for."""


def _with_room(world: World) -> World:
    """Return the tables at tick 0 with as many rows for events as the last run needed.

    Runs of one process are often alike: those that are redrawn, or repeated with other times of steps. So their tables
    are not copied while they grow. Rows that are not written take no memory.
    """
    intervals, gaps = _rows_before
    if intervals > len(world.intervals) > 1:
        world = world._replace(intervals=unwritten_records(intervals, world.intervals.dtype))
    if gaps > len(world.gaps) > 1:
        world = world._replace(gaps=unwritten_records(gaps, world.gaps.dtype))
    return world


def _own_error(prepared: PreparedRun, error: Exception) -> Exception:
    """Return an error of a user's own policy as an error of its file; other errors are returned unchanged."""
    policy = prepared.policy
    functions = (policy.route.score, policy.order.key, prepared.decode_score)
    own = [f for f in functions if isinstance(f, OwnFunction)]
    if not own:
        return error
    return InputError(
        f"{' or '.join(repr(f.text) for f in own)} fails: {type(error).__name__}: {error}",
        where=Location(own[0].file, own[0].function.__code__.co_firstlineno),
        expected="an answer to every question; --engine process says which question and which line",
    )


# Long: it has one branch for each request of the kernel.
def _drive(
    prepared: PreparedRun, world: World, answers: Answers, progress: Progress | None, watch: Watch | None
) -> World:
    """Run the kernel until the run is over and supply what it requests; return the tables with the end recorded."""
    advance = Loop(
        kernel(variant_of(prepared)),
        compiled_score(prepared.policy.route.score),
        compiled_key(prepared.policy.order.key),
        compiled_score(prepared.decode_score),
    )
    blocks = _records(prepared, BLOCK if watch is None else watch.block)
    horizon, arrived = initial_horizon(prepared.arrival, prepared.end), 0
    answers.begin(world)
    while True:
        try:
            code = advance(world)
        except (ArithmeticError, LookupError, ValueError) as error:
            raise _own_error(prepared, error) from error
        if code == tables.DONE or (code == tables.CHECK_SERVED and _is_never_served(prepared, world)):
            break
        if code == tables.MORE_JOBS:
            if len(world.arrivals):
                arrived = int(world.arrivals.tick[-1])
                if watch is not None:
                    r = world.run[0]
                    watch.check(int(r.now), _plain(world.jobs, r.arrived), _plain(world.gaps, r.gaps))
            world = _next_block(world, next(blocks, None))
            if progress is not None:
                progress(int(world.run[0].arrived))
        elif code == tables.QUESTION:
            answers.answer(world)
        elif code == tables.MORE_SLOTS:
            world = _more_slots(world)
        elif code == tables.MORE_INTERVALS:
            world = world._replace(intervals=_longer(world.intervals))
        elif code == tables.MORE_GAPS:
            world = world._replace(gaps=_longer(world.gaps))
        elif code == tables.MORE_FAULTS:
            world = _more_faults(prepared, world, horizon)
            horizon = min(2 * horizon, MAX_TICKS)
        elif code == tables.MORE_TIMERS:
            world = world._replace(timers=_larger(world.timers))
        elif code == tables.MORE_NODES:
            grown = np.append(world.nodes, more_nodes(world.run[0], len(world.nodes))).view(np.recarray)
            world = world._replace(nodes=grown, node_index=index_of(len(grown)))
        elif code == tables.MORE_TRANSFERS:
            world = world._replace(transfers=_larger(world.transfers, 4))
        elif code == tables.MORE_CHANGES:
            world = world._replace(changes=_larger(world.changes))
        elif code == tables.MORE_THOUGHTS:
            world = world._replace(think_ticks=think_ticks(prepared, 2 * len(world.think_ticks)))
        elif code == tables.MORE_CAPACITY:
            raise CapacityExceededError(2 * int(world.workloads[world.run[0].exceeded - 1].capacity))
        elif code == tables.MORE_BATCHES:
            _merge_batches(world)
        elif code == tables.MORE_ROWS:
            _thin_sample(world)
        elif code == tables.TOO_LONG:
            raise InputError(
                f"the work takes longer than the {LONGEST} a run may last",
                where=prepared.scenario.where("workload"),
                expected="fewer or shorter jobs, more devices, or stop: {time: ...}",
            )
    r = world.run[0]
    if prepared.users:
        arrived = max(arrived, int(world.jobs.arrival[: r.arrived].max(initial=0)))
    r.end = max(r.last_finish, arrived) if prepared.end is None else prepared.end
    if prepared.streamed and prepared.end is None:
        r.end = max(r.end, r.now)  # sums up to that tick are already final
    r.closing = 1
    advance(world)
    if progress is not None:
        progress(int(r.arrived))
    return world


def _records(prepared: PreparedRun, size: int) -> Iterator[tuple[Records, np.ndarray]]:
    """Yield blocks of jobs as the kernel reads them. A thread prepares the next block while the kernel works.

    With ``NUMBA_NUM_THREADS=1`` there is no such thread, because the process shares the machine with others.
    """
    blocks = job_blocks(prepared, size)
    if os.environ.get("NUMBA_NUM_THREADS") == "1":
        yield from iter(partial(_record, blocks), None)
        return
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(_record, blocks)
        while True:
            block = following.result()
            if block is None:
                return
            following = pool.submit(_record, blocks)
            yield block


def _record(blocks: Iterator[JobBlock]) -> tuple[Records, np.ndarray] | None:
    block = next(blocks, None)
    if block is None:
        return None
    rows = unwritten_records(len(block.arrival), tables.ARRIVAL)
    rows.tick, rows.work, rows.rank, rows.signature = block.arrival, block.workload, block.rank, block.signature
    rows.stretch = 1.0 if block.slowdown is None else block.slowdown
    return rows, block.draws


def _next_block(world: World, block: tuple[Records, np.ndarray] | None) -> World:
    world.run[0].next = 0
    if block is None:
        world.run[0].last = 1
        block = world.arrivals[:0], np.ones((0, world.run[0].draws))
    return world._replace(arrivals=block[0], arrival_draws=block[1])


def _merge_batches(world: World) -> None:
    """Merge pairs of batches and of stretches, because more jobs arrive than expected."""
    series = len(world.batches) // tables.BATCHES
    rows = world.batches.reshape(series, tables.BATCHES)
    for name in tables.BATCH_OF_JOBS.names or ():
        pairs = rows[name].reshape(series, -1, 2).sum(axis=2)
        rows[name][:, : tables.BATCHES // 2], rows[name][:, tables.BATCHES // 2 :] = pairs, 0
    bins = world.bins.reshape(2, series, tables.STRETCHES, -1)
    merged = bins[:, :, 0::2] + bins[:, :, 1::2]
    bins[:, :, : tables.STRETCHES // 2], bins[:, :, tables.STRETCHES // 2 :] = merged, 0
    world.run[0].batch_width *= 2


def _thin_sample(world: World) -> None:
    """Keep every second job of the sample, because more jobs arrive than expected."""
    rows = world.jobs
    kept = rows[::2].copy()
    blank = blank_jobs(len(rows) - len(kept))
    rows[: len(kept)], rows[len(kept) :] = kept, blank
    world.run[0].stride *= 2


def _more_faults(prepared: PreparedRun, world: World, horizon: int) -> World:
    assert prepared.faults is not None  # noqa: S101  the kernel requests this only with a schedule of faults
    world.run[0].faults_until = MAX_TICKS if horizon == prepared.end else horizon
    return world._replace(faults=prepared.faults.until(horizon).view(np.recarray))


def _is_never_served(prepared: PreparedRun, world: World) -> bool:
    r = world.run[0]
    fault = world.faults.tick[r.fault] if r.fault < len(world.faults) else r.faults_until
    return never_served(prepared, world, int(fault))


def _larger(rows: Records, times: int = 2) -> Records:
    """Return rows in a larger table. Memory that is not written is not allocated, so tables of events grow fast."""
    grown = np.zeros(times * len(rows), dtype=rows.dtype).view(np.recarray)
    grown[: len(rows)] = rows
    return grown


def _plain(rows: Records, count: int) -> np.ndarray:
    """Return the first records as a plain array, whose fields are read faster."""
    return rows.view(np.ndarray)[: int(count)]


def _longer(rows: Records) -> Records:
    """Return events in a table of eight times the size, whose new rows have no values until an event writes them."""
    grown = unwritten_records(8 * len(rows), rows.dtype)
    # NumPy copies records one by one, and bytes all at once.
    grown.view(np.ndarray).view(np.uint8)[: rows.nbytes] = rows.view(np.ndarray).view(np.uint8)
    return grown


def _more_slots(world: World) -> World:
    count = len(world.slots)
    slots = records(2 * count, tables.SLOT)
    slots[:count] = world.slots
    slots.next[count:] = np.append(np.arange(count + 1, 2 * count), -1)
    world.run[0].free = count
    draws = np.ones((2 * count, world.draws.shape[1]))
    draws[:count] = world.draws
    sequences = _larger(world.sequences) if len(world.sequences) else world.sequences
    loads = _larger(world.loads) if len(world.loads) else world.loads
    user_of = np.append(world.user_of, np.full(count, -1)) if len(world.user_of) else world.user_of
    stream_jobs = _larger(world.stream_jobs) if len(world.stream_jobs) else world.stream_jobs
    waits = _larger(world.waits) if len(world.waits) else world.waits
    progress = _larger(world.progress) if len(world.progress) else world.progress
    handovers = _larger(world.handovers) if len(world.handovers) else world.handovers
    return world._replace(
        slots=slots,
        draws=draws,
        sequences=sequences,
        loads=loads,
        user_of=user_of,
        stream_jobs=stream_jobs,
        waits=waits,
        progress=progress,
        handovers=handovers,
    )
