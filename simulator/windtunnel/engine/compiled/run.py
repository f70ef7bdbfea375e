"""Drives the kernel: supplies blocks of arrivals and larger arrays, and returns the recording."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numba import config
from numba.core.errors import NumbaError, UnsupportedBytecodeError

from windtunnel.core.errors import InputError, Location
from windtunnel.core.policy import OwnFunction
from windtunnel.core.result import Recording
from windtunnel.core.signals import HeldSignals
from windtunnel.core.ticks import LONGEST, MAX_TICKS
from windtunnel.engine.compiled import state
from windtunnel.engine.compiled.build import Words, blank_rows, build, compiled_key, compiled_score, kernel
from windtunnel.engine.compiled.continuous import close as close_serving
from windtunnel.engine.compiled.kernel import close
from windtunnel.engine.compiled.serving import build_serving, serving_event_log, serving_kernel
from windtunnel.engine.compiled.state import Records, Serving, World, records
from windtunnel.engine.compiled.streamed import streamed_recording
from windtunnel.engine.event_log import EventLog
from windtunnel.engine.prepare.fault_schedule import initial_horizon
from windtunnel.engine.prepare.jobs import JobBlock, job_blocks
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results import accounting

Progress = Callable[[int], None]
_SLOTS = 1024


def policy_compile_error(prepared: PreparedRun) -> str | None:
    """Return which part of the policy Numba cannot compile, with its message; None if all compiles."""
    policy = prepared.policy
    for part, compile_part, function in (
        ("route", compiled_score, policy.route.score),
        ("order", compiled_key, policy.order.key),
    ):
        try:
            compile_part(function)
        except (NumbaError, UnsupportedBytecodeError) as error:
            message = " ".join(str(error).split())
            return f"the {part} of '{policy.name}', which does not compile ({message[:300]})"
    return None


def run(prepared: PreparedRun, progress: Progress | None = None) -> Recording:
    """Run a prepared scenario to its end and return its recording, which equals the process engine's to the tick."""
    if prepared.policy.batch.kind == "continuous":
        served = _drive(prepared, build_serving(prepared, slots=_SLOTS), serving_kernel(), progress)
        close_serving(served)
        return accounting.record(prepared, serving_event_log(prepared, served), int(served.run[0].end))
    words = Words({})
    if prepared.policy.batch.kind == "request":
        words("compute")
    world = _drive(prepared, build(prepared, words, slots=_SLOTS), kernel(), progress)
    close(world)
    if prepared.streamed:
        return streamed_recording(prepared, world, words)
    return accounting.record(prepared, _event_log(prepared, world, words), int(world.run[0].end))


def _own_error(prepared: PreparedRun, error: Exception) -> Exception:
    """Return an error of a user's own policy as an error of its file; other errors are returned unchanged."""
    own = [f for f in (prepared.policy.route.score, prepared.policy.order.key) if isinstance(f, OwnFunction)]
    if not own:
        return error
    return InputError(
        f"{' or '.join(repr(f.text) for f in own)} fails: {type(error).__name__}: {error}",
        where=Location(own[0].file, own[0].function.__code__.co_firstlineno),
        expected="an answer to every question; --engine process says which question and which line",
    )


# Long: it has one branch for each request of the kernel.
def _drive(prepared: PreparedRun, world: Any, advance: Callable[..., int], progress: Progress | None) -> Any:
    """Run the kernel until the run is over and supply what it requests; return the world with its end recorded."""
    score = compiled_score(prepared.policy.route.score)
    key = compiled_key(prepared.policy.order.key)
    blocks = _records(prepared)
    horizon, arrived = initial_horizon(prepared.arrival, prepared.end), 0
    while True:
        try:
            # Numba looks for attributes of the functions in Python and discards what that raises.
            with HeldSignals():
                code = advance(world, score, key)
        except (ArithmeticError, LookupError, ValueError) as error:
            raise _own_error(prepared, error) from error
        if code == state.DONE or (code == state.CHECK_SERVED and _never_served(prepared, world)):
            break
        if code == state.MORE_JOBS:
            if len(world.arrivals):
                arrived = int(world.arrivals.tick[-1])
            world = _next_block(world, next(blocks, None))
            if progress is not None:
                progress(int(world.run[0].arrived))
        elif code == state.MORE_SLOTS:
            world = _more_slots(world)
        elif code == state.MORE_INTERVALS:
            world = world._replace(intervals=_larger(world.intervals))
        elif code == state.MORE_GAPS:
            world = world._replace(gaps=_larger(world.gaps))
        elif code == state.MORE_FAULTS:
            world = _more_faults(prepared, world, horizon)
            horizon = min(2 * horizon, MAX_TICKS)
        elif code == state.MORE_TIMERS:
            world = world._replace(timers=_larger(world.timers))
        elif code == state.MORE_BATCHES:
            _merge_batches(world)
        elif code == state.MORE_ROWS:
            _thin_sample(world)
        elif code == state.TOO_LONG:
            raise InputError(
                f"the work takes longer than the {LONGEST} a run may last",
                where=prepared.scenario.where("workload"),
                expected="fewer or shorter jobs, more devices, or stop: {time: ...}",
            )
    r = world.run[0]
    r.end = max(r.last_finish, arrived) if prepared.end is None else prepared.end
    if prepared.streamed and prepared.end is None:
        r.end = max(r.end, r.now)  # sums up to that tick are already final
    if progress is not None:
        progress(int(r.arrived))
    return world


def _records(prepared: PreparedRun) -> Iterator[tuple[Records, np.ndarray]]:
    """Yield blocks of jobs as the kernel reads them. A thread prepares the next block while the kernel works.

    With ``NUMBA_NUM_THREADS=1`` there is no such thread, because the process shares the machine with others.
    """
    blocks = job_blocks(prepared)
    if config.NUMBA_NUM_THREADS == 1:
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
    rows = records(len(block.arrival), state.ARRIVAL)
    rows.tick, rows.work, rows.rank, rows.signature = block.arrival, block.workload, block.rank, block.signature
    rows.stretch = 1.0 if block.slowdown is None else block.slowdown
    return rows, block.draws


def _next_block(world: Any, block: tuple[Records, np.ndarray] | None) -> Any:
    world.run[0].next = 0
    if block is None:
        world.run[0].last = 1
        block = world.arrivals[:0], np.ones((0, world.run[0].draws))
    if isinstance(world, Serving):
        return world._replace(arrivals=block[0])
    return world._replace(arrivals=block[0], arrival_draws=block[1])


def _merge_batches(world: World) -> None:
    """Merge pairs of batches and of stretches, because more jobs arrive than expected."""
    series = len(world.batches) // state.BATCHES
    rows = world.batches.reshape(series, state.BATCHES)
    for name in state.BATCH_OF_JOBS.names or ():
        pairs = rows[name].reshape(series, -1, 2).sum(axis=2)
        rows[name][:, : state.BATCHES // 2], rows[name][:, state.BATCHES // 2 :] = pairs, 0
    bins = world.bins.reshape(2, series, state.STRETCHES, -1)
    merged = bins[:, :, 0::2] + bins[:, :, 1::2]
    bins[:, :, : state.STRETCHES // 2], bins[:, :, state.STRETCHES // 2 :] = merged, 0
    world.run[0].batch_width *= 2


def _thin_sample(world: World) -> None:
    """Keep every second job of the sample, because more jobs arrive than expected."""
    rows = world.jobs
    kept = rows[::2].copy()
    blank = blank_rows(len(rows) - len(kept))
    rows[: len(kept)], rows[len(kept) :] = kept, blank
    world.run[0].stride *= 2


def _more_faults(prepared: PreparedRun, world: World, horizon: int) -> World:
    assert prepared.faults is not None  # noqa: S101  the kernel requests this only with a schedule of faults
    world.run[0].faults_until = MAX_TICKS if horizon == prepared.end else horizon
    return world._replace(faults=prepared.faults.until(horizon).view(np.recarray))


def _never_served(prepared: PreparedRun, world: World) -> bool:
    """Return whether no device works and all waiting jobs need devices that have failed permanently."""
    assert prepared.faults is not None  # noqa: S101  only faults lead here
    r = world.run[0]
    following = world.faults.tick[r.fault] if r.fault < len(world.faults) else r.faults_until
    ticks = prepared.faults.gone(prepared.device_count)
    r.gone = ticks.min(initial=MAX_TICKS, where=ticks >= following)
    gone = ticks < following
    lost = {c.number for c in prepared.classes if gone[c.first : c.first + c.count].all()}
    waiting = np.flatnonzero(world.queues.head >= 0)
    per_device = len(prepared.workloads) if prepared.policy.batch.kind == "request" else 1
    if r.routed:
        if not gone[waiting // per_device].all():
            return False
        signatures = set()
        slot = int(r.limbo)
        while slot >= 0:
            signatures.add(int(world.slots[slot].signature))
            slot = int(world.slots[slot].next)
    else:
        signatures = set((waiting // per_device).tolist())
    return all(lost.issuperset(prepared.signatures[signature]) for signature in signatures)


def _larger(rows: Records) -> Records:
    grown = np.zeros(2 * len(rows), dtype=rows.dtype).view(np.recarray)
    grown[: len(rows)] = rows
    return grown


def _more_slots(world: Any) -> Any:
    count = len(world.slots)
    slots = _larger(world.slots)
    slots.next[count:] = np.append(np.arange(count + 1, 2 * count), -1)
    world.run[0].free = count
    if isinstance(world, Serving):
        return world._replace(slots=slots)
    draws = np.ones((2 * count, world.draws.shape[1]))
    draws[:count] = world.draws
    return world._replace(slots=slots, draws=draws)


def _event_log(prepared: PreparedRun, world: World, words: Words) -> EventLog:
    """Return the kernel's records as an event log."""
    log = EventLog(prepared)
    jobs = world.jobs
    log.start, log.finish, log.device = (_plain(a) for a in (jobs.start, jobs.finish, jobs.on))
    log.energy = array("d", np.ascontiguousarray(jobs.energy).tobytes())
    log.starts, log.failed = _plain(jobs.starts), bytearray(jobs.lost.astype(np.uint8).tobytes())
    log.own_interval = {key for key, program in prepared.compiled.items() if prepared.is_own_interval(program)}
    written = world.intervals[: world.run[0].written]
    for row in written[written.lane < 0]:
        log.add_interrupted(int(row.name), int(row.start), int(row.end))
    written = written[written.lane >= 0]
    table = log.intervals
    table.words = dict(words.numbers)
    names = written.name
    if prepared.policy.batch.kind == "request":
        sizes = np.unique(-names) if len(names) else np.zeros(0, dtype=np.int64)
        spelled = {int(size): table.word(f"batch of {size}") for size in sizes}
        names = np.array([spelled[-int(name)] for name in names], dtype=np.int64)
    table.device, table.lane, table.name = _plain(written.on), _plain(written.lane), _plain(names)
    table.start, table.end = _plain(written.start), _plain(written.end)
    table.watts = array("d", np.ascontiguousarray(written.watts).tobytes())
    _add_tokens(prepared, log)
    return log


def _plain(values: np.ndarray) -> array[int]:
    return array("q", np.ascontiguousarray(values).tobytes())


def _add_tokens(prepared: PreparedRun, log: EventLog) -> None:
    """Add first tokens and gaps of requests that were served one at a time, in the order of their ends."""
    generating = [(key, compiled) for key, compiled in prepared.compiled.items() if compiled.first_ticks is not None]
    if not generating:
        return
    start, finish, device = (np.frombuffer(a, dtype=np.int64) for a in (log.start, log.finish, log.device))
    class_of = prepared.class_of_device()
    first = np.full(log.count, -1, dtype=np.int64)
    which = np.full(log.count, -1, dtype=np.int64)
    for number, ((cls, work), compiled) in enumerate(generating):
        mine = np.flatnonzero((device >= 0) & (prepared.workload_of == work) & (class_of[device] == cls))
        assert compiled.first_ticks is not None  # noqa: S101
        first[mine] = start[mine] + compiled.first_ticks[prepared.rank[mine]]
        which[mine] = number
    log.first = _plain(first)
    done = np.flatnonzero((which >= 0) & (finish >= 0))
    for job in done[np.lexsort((device[done], finish[done]))].tolist():
        log.add_gaps_of_request(job, generating[which[job]][1])
