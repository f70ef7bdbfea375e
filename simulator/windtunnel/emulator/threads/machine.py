"""The execution of a launch thread by thread: residency of blocks, barriers, and threads that wait for memory.

As many blocks are resident as the device holds; another begins when one has ended. A thread runs until it waits for a
barrier, for its warp, or (in a spin loop whose state repeats) for memory. If no thread can continue, that is a finding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.core.errors import BarrierDivergence, DataRace, Finding, UninitializedRead
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.races.findings import UNNAMED
from windtunnel.emulator.threads import clocks
from windtunnel.emulator.threads.arrays import MemoryRange, ReadBeforeWriteError, ThreadArray
from windtunnel.emulator.threads.deadlock import deadlock_error, divergence_error, livelock_error
from windtunnel.emulator.threads.program import WAIT, BarrierArrival, ThreadProgram
from windtunnel.emulator.threads.schedule import Schedule
from windtunnel.emulator.threads.state import Block, LaunchState, Thread
from windtunnel.emulator.threads.undefined import Undefined, number_of
from windtunnel.language import ir

_LIVELOCK_REPEATS = 1000
"""Repeated states for each thread, without any progress, after which a livelock is reported."""


class Machine(LaunchState):
    """A launch that is executed thread by thread.

    Args:
        program: The kernel.
        launch: The launch.
        arrays: The kernel's parameters that are arrays, by name.
        scalars: The kernel's other parameters, by name.
        ready: The schedule, with no threads.
        resident: Blocks that the device holds at once.
        checked: Whether uninitialised reads and races are detected.
        traced: Whether the visible steps are recorded.
        sized: Returns a declared array with the size that the launch gives it.
    """

    def __init__(
        self,
        program: ThreadProgram,
        launch: Launch,
        arrays: Mapping[str, ThreadArray],
        scalars: Mapping[str, np.generic],
        *,
        ready: Schedule[Thread],
        resident: int,
        checked: bool,
        traced: bool,
        sized: Callable[[ir.Declare], ir.Declare],
    ) -> None:
        super().__init__(launch, ready, resident, traced=traced)
        scopes = {one.scope for one in ir.walk(program.program.body) if isinstance(one, ir.Barrier)}
        self.splits_barriers = any(scope.startswith("block.") for scope in scopes)
        self._program, self._arrays, self._scalars, self._checked = program, dict(arrays), scalars, checked
        self._at_grid_barrier: list[Thread] = []
        self._sized = sized
        self._unset: UninitializedRead | None = None
        """The first read of what no thread has written so far."""
        self._numbers = {name: -number for number, name in enumerate(program.program.declared, start=1)}

    def run(self) -> None:
        """Execute all blocks to their end. Raises the first finding.

        A thread that reads what none has written stops there, and the others show whether one writes it without order.
        Then the finding is the race.
        """
        try:
            self._run()
        except DataRace:
            raise
        except Finding as found:
            raise self._unset or found from None

    def _run(self) -> None:
        waiting = self.ready.order_blocks(list(range(self.blocks)))
        waiting.reverse()
        ready, live = self.ready, self.live
        while waiting or live:
            while waiting and len(live) < self.resident:
                self._begin_block(waiting.pop())
            while len(ready) or self._wake_one():
                if self.changed:
                    self._wake_one()
                thread = ready.pick()
                try:
                    event = thread.step()
                except StopIteration:
                    if self._end(thread):
                        break  # another block can begin
                    continue
                except ReadBeforeWriteError as unset:
                    self._unset = self._unset or unset.found
                    continue
                if event is None:
                    ready.add(thread)
                    if not thread.loops:
                        self.idle = 0  # it makes progress, and may change what the spinning threads wait for
                elif event is not WAIT:
                    thread.arrival = event
                    self._arrive(thread, event)
                elif thread.block.waiting_for_warp:
                    self._check_warp(thread)  # lanes that ask which of them are there need not wait for this one
            else:
                if live:
                    raise self._unset or deadlock_error(self, self._live_threads(), waiting)
        self.flights.finish(self._program.program, checked=self._checked)

    def hash(self) -> str:
        """Return a hash of all visible steps in their order."""
        return hashlib.blake2b(self.trace.tobytes() if self.trace is not None else b"", digest_size=16).hexdigest()

    def state_repeated(self) -> None:
        """Record that a spin loop has returned to an earlier state. Raises Deadlock if there is no progress at all."""
        self.idle += 1
        if self.idle % _LIVELOCK_REPEATS == 0:
            threads = self._live_threads()
            if self.idle > _LIVELOCK_REPEATS * (len(threads) + 10):
                raise livelock_error(self.launch, threads)

    def _live_threads(self) -> list[Thread]:
        return [thread for block in self.live.values() for thread in block.live.values()]

    def _begin_block(self, number: int) -> None:
        block = self.live[number] = Block(number)
        shared = self._declared_arrays(block, "shared")
        for thread_number in range(self.threads):
            thread = Thread(self, block, thread_number)
            arrays = {**self._arrays, **shared, **self._declared_arrays(block, "local")}
            thread.step = self._program.run(thread, arrays, self._scalars).__next__
            block.live[thread_number] = thread
            self.ready.add(thread)

    def _declared_arrays(self, block: Block, space: str) -> dict[str, ThreadArray]:
        """Return new, uninitialised arrays of a block or a thread."""
        arrays = {}
        is_shared = space == "shared"
        for name, declared in self._program.program.declared.items():
            if declared.space != space:
                continue
            sized = self._sized(declared)
            size = int(np.prod(sized.shape))
            arrays[name] = ThreadArray(
                self.launch,
                name,
                sized.shape,
                np.zeros(size, sized.element.dtype),
                number=self._numbers[name] - block.number * len(self._numbers),
                uninitialised=np.ones(size, bool) if self._checked else None,
                memory=MemoryRange() if is_shared else None,
                checked=is_shared and self._checked,
                is_shared=is_shared,
                is_own=not is_shared,
            )
        return arrays

    def _wake_one(self) -> bool:
        """Let one thread continue that waits for an element that has changed; return whether there is one.

        Only one at each step: the first thread that waits for a lock has often taken it before the next would read it.
        """
        while self.changed:
            key, (memory, at) = next(iter(self.changed.items()))
            by_value = memory.waiting.get(at, {})
            for value, waiting in list(by_value.items()):
                while waiting and (read := waiting[0][1]).array.flat[read.at].tobytes() != value:
                    thread, polled = waiting.popleft()
                    if thread.wake_if_polls(polled):
                        return True
                if not waiting:
                    del by_value[value]
            if not by_value:
                memory.waiting.pop(at, None)
            del self.changed[key]
        return False

    def _end(self, thread: Thread) -> bool:
        """Record that a thread has ended; return whether its block has."""
        self.idle = 0
        block = thread.block
        del block.live[thread.number]
        block.ended.append(thread)
        if not block.live:
            del self.live[block.number]
            self.last_exited = thread
            return True
        if block.waiting_for_warp:
            self._check_warp(thread)
        self._check_barrier(block)
        return False

    # Barriers.

    def _arrive(self, thread: Thread, arrival: BarrierArrival) -> None:
        if arrival.kind.startswith("block"):
            thread.block.arrived.append(thread)
            if thread.block.waiting_for_warp:
                self._check_warp(thread)
            self._check_barrier(thread.block)
        elif arrival.kind == "grid":
            self._at_grid_barrier.append(thread)
            self._check_grid_barrier()
        else:
            if self._checked and not _is_named(arrival.mask, int(thread.lane)):
                thread.fail(arrival.line, BarrierDivergence.__name__, UNNAMED)
            thread.block.waiting_for_warp += 1
            self._check_warp(thread)

    def _check_barrier(self, block: Block) -> None:
        """Let a block's threads continue if all that have not ended have arrived."""
        if not block.arrived or len(block.arrived) < len(block.live):
            return
        lines = {thread.line for thread in block.arrived}
        if block.ended or len(lines) > 1:
            counts = (len(block.arrived), self.threads)
            raise divergence_error(self.launch, block.arrived, block.ended, "the barrier", "of a block", counts)
        kind = block.arrived[0].arrival.kind if block.arrived[0].arrival is not None else "block"
        if kind in ("block", "block.shared"):
            block.interval += 1
            clocks.barrier(block.number, block.interval, (thread.clock for thread in block.arrived))
        if self.splits_barriers and kind in ("block", "block.global"):
            block.global_interval += 1
            clocks.barrier(block.number, block.global_interval, (thread.global_clock for thread in block.arrived))
        block.arrived, arrived = [], block.arrived
        self._resume(arrived)

    def _check_grid_barrier(self) -> None:
        if len(self._at_grid_barrier) < self.blocks * self.threads:
            return
        arrived, self._at_grid_barrier = self._at_grid_barrier, []
        for block in self.live.values():
            block.interval += 1
            block.global_interval += 1
        for number, column in enumerate(zip(*(thread.clocks for thread in arrived), strict=True)):
            intervals = {b.number: b.global_interval if number else b.interval for b in self.live.values()}
            clocks.grid_barrier(intervals, column)
        self._resume(arrived)

    def _check_warp(self, thread: Thread) -> None:
        """Let threads of a warp continue if all threads that their mask names have arrived or ended."""
        width = self.launch.warp
        first = thread.warp * width
        block = thread.block
        live = [block.live[n] for n in range(first, min(first + width, self.threads)) if n in block.live]
        for waiting in live:
            arrival = waiting.arrival
            if arrival is None or not arrival.is_of_warp or arrival.kind == "active":
                continue
            named = [other for other in live if _is_named(arrival.mask, int(other.lane)) or other is waiting]
            if any(
                other.arrival is None or other.arrival.line != arrival.line or other.arrival.kind != arrival.kind
                for other in named
            ):
                continue
            self._require_lanes(thread, arrival.mask, named)
            if arrival.kind == "warp":
                for column in zip(*(other.clocks for other in named), strict=True):
                    clocks.synchronise(column)
            else:
                exchange(named, arrival.kind, width, follows=self._checked)
            break
        else:
            named = _together(live)
        if named:
            block.waiting_for_warp -= len(named)
            self._resume(named)
            self._check_warp(thread)

    def _require_lanes(self, thread: Thread, mask: int, here: Sequence[Thread]) -> None:
        """Raise BarrierDivergence if a lane that a mask names went past the operation to the end of the kernel.

        A lane that has left the kernel by a return before is not waited for, as CUDA has it.
        """
        past = [
            ended for ended in thread.block.ended
            if ended.warp == thread.warp and ended.came_to_end and _is_named(mask, int(ended.lane))
        ]  # fmt: skip
        if past:
            counts = (len(here), len(here) + len(past))
            raise divergence_error(self.launch, here, past, "the warp operation", "that its mask names", counts)

    def _resume(self, threads: Sequence[Thread]) -> None:
        self.idle = 0
        for thread in sorted(threads, key=lambda waiting: waiting.id):
            thread.arrival = None
            self.ready.add(thread)


def _together(live: Sequence[Thread]) -> list[Thread]:
    """Let lanes that ask which of them are there continue once the others of their warp have to wait; return them."""
    asking = [one for one in live if one.arrival is not None and one.arrival.kind == "active"]
    if not asking or any(one.arrival is None and not one.is_waiting for one in live):
        return []
    here = [one for one in asking if one.line == asking[0].line]
    lanes = np.uint32(sum(1 << int(one.lane) for one in here if one.lane < 32))
    for one in here:
        one.result = lanes
    return here


def _is_named(mask: int, lane: int) -> bool:
    """Return whether a mask names a lane. It has 32 bits; lanes beyond them always take part."""
    return lane >= 32 or bool(mask >> lane & 1)


def exchange(threads: Sequence[Thread], kind: str, width: int, *, follows: bool) -> None:
    """Set the result that each of the threads of a warp gets from a shuffle or a vote.

    ``follows``: what a shuffle reads of a lane that takes no part is undefined, and otherwise the thread's own value.
    """
    values = {int(t.lane): t.arrival.value for t in threads if t.arrival is not None}
    operation, _, mode = kind.partition(".")
    if operation == "vote":
        lanes = [lane for lane, value in values.items() if value]
        result: Any = len(lanes) > 0
        if mode == "all":
            result = len(lanes) == len(values)
        elif mode == "ballot":
            result = np.uint32(sum(1 << lane for lane in lanes if lane < 32))
        for thread in threads:
            thread.result = result
        return
    for thread in threads:
        assert thread.arrival is not None  # noqa: S101  it has arrived
        lane, argument = int(thread.lane), thread.arrival.argument
        sources = {"index": argument % width, "up": lane - argument, "down": lane + argument, "xor": lane ^ argument}
        source = sources[mode]
        own = thread.arrival.value
        if source in values:
            thread.result = values[source]
        elif 0 <= source < width and follows:
            thread.result = Undefined(number_of(own), thread.arrival.line, thread.id, source)
        else:  # beyond the warp, a thread reads its own value
            thread.result = own
