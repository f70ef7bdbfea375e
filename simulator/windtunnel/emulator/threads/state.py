"""The state of a launch that is executed thread by thread: its threads, their spin loops, and its resident blocks."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.races.findings import failed, infinite_loop, uninitialised_variable
from windtunnel.emulator.races.flights import Flights
from windtunnel.emulator.threads.arrays import MemoryRange, PolledRead
from windtunnel.emulator.threads.clocks import Clock
from windtunnel.emulator.threads.program import BarrierArrival
from windtunnel.emulator.threads.schedule import Schedule

_MAX_POLLED = 256
"""Reads in one iteration of a spin loop, above which the loop is not considered to wait."""


class LaunchState:
    """What the threads of a launch share."""

    def __init__(self, launch: Launch, ready: Schedule[Thread], resident: int, *, traced: bool) -> None:
        self.launch, self.ready, self.resident = launch, ready, resident
        self.trace: array[int] | None = array("q") if traced else None
        self.threads = launch.block[0] * launch.block[1] * launch.block[2]
        """Threads of a block."""
        self.blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        """Blocks of the grid."""
        self.block_size = tuple(np.int32(side) for side in launch.block)
        self.grid_size = tuple(np.int32(side) for side in launch.grid)
        self.flights = Flights()
        self.splits_barriers = False
        """Whether the kernel has barriers that order only shared memory, or only the grid's."""
        self.idle = 0
        """Repeated states of spin loops since any thread made progress."""
        self.live: dict[int, Block] = {}
        """The resident blocks, by number."""
        self.changed: dict[tuple[int, int], tuple[MemoryRange, int]] = {}
        """Elements that have changed and for which threads wait."""
        self.last_exited: Thread | None = None
        """The last thread of the block that ended last."""

    def state_repeated(self) -> None:
        """Record that a spin loop has returned to an earlier state. Raises Deadlock if there is no progress at all."""
        raise NotImplementedError


class Block:
    """A resident block of the grid."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.interval = 0
        """Barriers that the block has passed."""
        self.global_interval = 0
        """The same, of the barriers that order accesses of the grid's memory."""
        self.live: dict[int, Thread] = {}
        """Threads that have not ended, by their number in the block."""
        self.arrived: list[Thread] = []
        """Threads that wait at the block's barrier."""
        self.waiting_for_warp = 0
        """Threads that wait for their warps."""
        self.ended: list[Thread] = []
        self.same: dict[tuple[int, int], Any] = {}
        """Numbers that must be the same for all threads, by the line and how often a thread has come to it."""


class SpinLoop:
    """A spin loop of a thread: detects that an iteration cannot differ from the last one."""

    __slots__ = ("_changes", "_iterations", "_last_state", "_polled", "_saved_state", "line", "thread")

    def __init__(self, thread: Thread, line: int) -> None:
        self.thread, self.line = thread, line
        self._last_state: tuple[Any, ...] | None = None
        self._saved_state: tuple[Any, ...] | None = None
        self._changes, self._iterations = 0, 0
        self._polled: list[PolledRead] = []

    def record_poll(self, polled: PolledRead) -> None:
        """Record a read of the current iteration."""
        if len(self._polled) <= _MAX_POLLED:
            self._polled.append(polled)

    def iterate(self, state: tuple[Any, ...]) -> bool:
        """Begin an iteration whose effect is determined by ``state``.

        Returns whether the thread waits now, because the iteration would repeat the last one.
        """
        thread, polled = self.thread, self._polled
        self._iterations += 1
        # A state may repeat after several iterations (Brent: compare with the one kept at powers of two).
        if state == self._saved_state:
            thread.repeated_state = True
            thread.launch_state.state_repeated()
        elif self._iterations & (self._iterations - 1) == 0:
            self._saved_state = state
        is_same = state == self._last_state and thread.changes == self._changes and 0 < len(polled) <= _MAX_POLLED
        self._last_state, self._changes = state, thread.changes
        self._polled = []
        if not is_same or any(read.has_changed() for read in polled):
            return False
        thread.wait_for_change(polled)
        return True

    def leave(self) -> None:
        """Leave the loop."""
        self.thread.launch_state.idle = 0
        del self.thread.loops[self.thread.loops.index(self) :]


def _not_started() -> None:
    pass


class Thread:
    """One thread: its indices, its clock, and what it waits for."""

    __slots__ = (
        "arrival",
        "block",
        "block_index",
        "block_size",
        "came_to_end",
        "changes",
        "clock",
        "flights",
        "global_clock",
        "grid_size",
        "id",
        "index",
        "is_waiting",
        "lane",
        "launch_state",
        "loops",
        "number",
        "polled",
        "repeated_state",
        "result",
        "step",
        "take_turn",
        "trace",
        "turns",
        "warp",
        "warp_size",
    )

    def __init__(self, launch_state: LaunchState, block: Block, number: int) -> None:
        launch = launch_state.launch
        self.launch_state, self.block, self.number = launch_state, block, number
        self.take_turn = launch.take_turn
        self.id = block.number * launch_state.threads + number
        block_index, index = launch.thread(self.id)
        self.index = tuple(np.int32(i) for i in index)
        self.block_index = tuple(np.int32(i) for i in block_index)
        self.block_size, self.grid_size = launch_state.block_size, launch_state.grid_size
        self.lane = np.int32(number % launch.warp)
        self.warp_size = np.int32(launch.warp)
        self.warp = number // launch.warp
        self.clock = self.global_clock = Clock(self.id, block.number)
        if launch_state.splits_barriers:
            self.global_clock = Clock(self.id, block.number)
        self.flights = launch_state.flights
        self.loops: list[SpinLoop] = []
        """The spin loops that the thread is in, outermost first."""
        self.turns: dict[int, int] = {}
        """How often the thread has come to a line whose number must be the same in the block."""
        self.changes = 0
        """Elements whose value the thread has changed."""
        self.repeated_state = False
        """Whether a spin loop has returned to an earlier state since the schedule last picked the thread."""
        self.trace = launch_state.trace
        self.step: Callable[[], Any] = _not_started
        """Executes the thread until its next visible step."""
        self.arrival: BarrierArrival | None = None
        """The barrier, shuffle or vote at which the thread waits."""
        self.is_waiting = False
        """Whether the thread waits for one of the ``polled`` elements to change."""
        self.polled: list[PolledRead] = []
        self.result: Any = None
        """The result of the last shuffle or vote."""
        self.came_to_end = False
        """Whether the thread has come to the end of the kernel, and has not left it by a return before."""

    @property
    def line(self) -> int:
        """The line at which the thread waits; 0 if it does not wait."""
        if self.arrival is not None:
            return self.arrival.line
        return self.polled[0].line if self.polled else 0

    # What the emitted code calls.

    def require_assigned(self, line: int, name: str) -> None:
        """Raise UninitializedRead: the thread reads a variable that it has not assigned."""
        launch = self.launch_state.launch
        if launch.checked:
            raise uninitialised_variable(launch, name, self.id, line)

    def has_same(self, line: int, value: Any) -> bool:
        """Return whether a number is the one that the threads of the block before had at this line, at this turn."""
        turn = self.turns[line] = self.turns.get(line, 0) + 1
        return bool(self.block.same.setdefault((line, turn), value) == value)

    def fail(self, line: int, finding: str, message: str) -> None:
        """Raise a finding: a condition of the kernel does not hold."""
        raise failed(self.launch_state.launch, finding, message, self.id, line)

    def enter(self, line: int) -> SpinLoop:
        """Enter a spin loop."""
        loop = SpinLoop(self, line)
        self.loops.append(loop)
        return loop

    def fence(self, block: bool) -> None:
        """Order what the thread has done before what others do that see its later writes."""
        for clock in self.clocks:
            clock.fence(block=block)

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """The thread's clocks: one, or one for each kind of memory."""
        return (self.clock,) if self.clock is self.global_clock else (self.clock, self.global_clock)

    def check_progress(
        self, line: int, iterations: int, state: tuple[Any, ...], kept: tuple[Any, ...] | None
    ) -> tuple[Any, ...] | None:
        """Compare the state of a long loop that polls no memory, and return the state to keep.

        Raises Deadlock if the variables that decide about the exit are as in an earlier iteration.
        """
        if iterations & (iterations - 1) == 0:
            return state
        if state == kept:
            raise infinite_loop(self.launch_state.launch, self.id, line)
        return kept

    def report_zero_step(self, line: int) -> None:
        """Raise Deadlock: a loop counts in steps of 0."""
        raise infinite_loop(self.launch_state.launch, self.id, line)

    # What arrays call.

    def record_poll(self, polled: PolledRead) -> None:
        """Record that the thread has read an element in a spin loop."""
        for loop in self.loops:
            loop.record_poll(polled)

    def report_change(self, memory: MemoryRange, at: int) -> None:
        """Report that an element has changed for which threads wait."""
        self.launch_state.changed[id(memory), at] = (memory, at)

    # Waiting.

    def wait_for_change(self, polled: Sequence[PolledRead]) -> None:
        """Wait until one of the polled elements changes."""
        self.is_waiting, self.polled = True, [*polled]
        for read in polled:
            assert read.array.memory is not None  # noqa: S101  only memory that threads share is polled
            waiting = read.array.memory.waiting.setdefault(read.key, {})
            waiting.setdefault(read.value.tobytes(), deque()).append((self, read))

    def wake_if_polls(self, polled: PolledRead) -> bool:
        """Continue if the thread still waits for this element; return whether it does."""
        if not self.is_waiting or not any(read is polled for read in self.polled):
            return False
        self.is_waiting, self.polled = False, []
        self.launch_state.ready.add(self)
        return True
