"""Blocks and threads of a launch, one step at a time: who is resident, who meets whom, and who waits for what.

As many blocks are resident as the device holds; another begins when one has ended. A thread runs until it waits for a
barrier, for its warp, or (in a loop in which nothing changes) for memory. If nobody can go on, that is a finding.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.emulator.lockstep.arrays import Launch
from windtunnel.emulator.threads import clocks
from windtunnel.emulator.threads.cells import Cells, Stretch
from windtunnel.emulator.threads.deadlock import Look, endless, livelock, parted, stuck
from windtunnel.emulator.threads.program import WAIT, Meeting, Threaded
from windtunnel.emulator.threads.schedule import Schedule
from windtunnel.language import ir

_ROUNDS = 1000
"""Turns for each thread that nothing comes of, after which they are said to run for ever."""
_LOOKS = 256
"""What a turn of a waiting loop looks at, at most: one that looks at more is not waiting for one thing."""


class Loop:
    """A loop of a thread that may wait: whether another turn can do anything else than the last."""

    __slots__ = ("_changes", "_looks", "_saved", "_state", "_turns", "line", "thread")

    def __init__(self, thread: Thread, line: int) -> None:
        self.thread, self.line = thread, line
        self._state: tuple[Any, ...] | None = None
        self._saved: tuple[Any, ...] | None = None
        self._changes, self._turns = 0, 0
        self._looks: list[Look] = []

    def looked(self, look: Look) -> None:
        """The thread has looked at an element, and found a value."""
        if len(self._looks) <= _LOOKS:
            self._looks.append(look)

    def turn(self, state: tuple[Any, ...]) -> bool:
        """A turn begins. Whether it would be the same as the last, as long as nobody changes what that looked at."""
        thread, looks = self.thread, self._looks
        self._turns += 1
        # A state that comes again, maybe after several turns (Brent: compare with one kept at powers of two).
        if state == self._saved:
            thread.turned = True
            thread.machine.turned()
        elif self._turns & (self._turns - 1) == 0:
            self._saved = state
        still = state == self._state and thread.changes == self._changes and 0 < len(looks) <= _LOOKS
        self._state, self._changes = state, thread.changes
        self._looks = []
        if not still or any(_other(look.value, look.cells.flat[look.at]) for look in looks):
            return False
        thread.wait(self, looks)
        return True

    def leave(self) -> None:
        """The loop is left."""
        self.thread.machine.idle = 0
        del self.thread.loops[self.thread.loops.index(self) :]


def _nothing() -> None:
    pass


def _other(one: Any, now: Any) -> bool:
    return bool(one != now)


class Thread:
    """One thread: what it is, what it knows of others, and what it waits for."""

    __slots__ = (
        "block",
        "block_index",
        "block_size",
        "changes",
        "clock",
        "go",
        "grid_size",
        "id",
        "index",
        "lane",
        "looks",
        "loops",
        "machine",
        "meeting",
        "number",
        "result",
        "trace",
        "turned",
        "waits",
        "warp",
        "warp_size",
    )

    def __init__(self, machine: Machine, block: Block, number: int) -> None:
        launch = machine.launch
        self.machine, self.block, self.number = machine, block, number
        self.id = block.number * machine.threads + number
        where, index = launch.thread(self.id)
        self.index = tuple(np.int32(i) for i in index)
        self.block_index = tuple(np.int32(i) for i in where)
        self.block_size, self.grid_size = machine.block_size, machine.grid_size
        self.lane = np.int32(number % launch.warp)
        self.warp_size = np.int32(launch.warp)
        self.warp = number // launch.warp
        self.clock = clocks.Clock(self.id, block.number)
        self.loops: list[Loop] = []
        self.changes = 0
        """Elements whose value it has changed."""
        self.turned = False
        """Whether it has gone round a waiting loop, to where it was before, since it was last asked."""
        self.trace = machine.trace
        self.go: Callable[[], Any] = _nothing
        self.meeting: Meeting | None = None
        self.waits: Loop | None = None
        self.looks: list[Look] = []
        """What it waits for: any of these elements to change."""
        self.result: Any = None
        """What the last shuffle or vote gave."""

    # What the generator calls.

    def unset(self, line: int, name: str) -> None:
        """It reads a variable to which it has assigned nothing."""
        if self.machine.launch.checked:
            raise self.machine.launch.unset(self.id, line, name)

    def enter(self, line: int) -> Loop:
        """A loop begins that may wait."""
        loop = Loop(self, line)
        self.loops.append(loop)
        return loop

    def looked(self, cells: Cells, at: int, value: Any, line: int) -> None:
        """It has looked at an element, within such a loop."""
        look = Look(cells, at, value, line)
        for loop in self.loops:
            loop.looked(look)

    def fence(self, block: bool) -> None:
        """What it has done before comes before what others do that see what it does after."""
        self.clock.fence(block=block)

    def endless(self, line: int, turns: int, state: tuple[Any, ...], kept: tuple[Any, ...] | None) -> Any:
        """A loop that asks no memory that changes goes round for long: what to keep of it (``turns`` has how).

        Deadlock where what decides is as it was in an earlier turn.
        """
        if turns & (turns - 1) == 0:
            return state
        if state == kept:
            raise endless(self.machine, self, line)
        return kept

    def stands(self, line: int) -> None:
        """A loop counts in steps of 0: Deadlock."""
        raise endless(self.machine, self, line)

    # Waiting.

    def wait(self, loop: Loop, looks: list[Look]) -> None:
        """It goes on when an element changes."""
        self.waits, self.looks = loop, looks
        for look in looks:
            assert look.cells.touched is not None  # noqa: S101  only what threads can meet in is looked at so
            found = look.cells.touched.waiting.setdefault(look.at, {})
            found.setdefault(look.value.tobytes(), deque()).append((self, look))

    def wakes(self, look: Look) -> bool:
        """What it looked at has changed. Whether it goes on, or has done so already."""
        if self.waits is None or not any(one is look for one in self.looks):
            return False
        self.waits, self.looks = None, []
        self.machine.ready.add(self)
        return True


class Block:
    """A resident block: its threads that have not ended, and who of them has come to a barrier."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine, self.number = machine, number
        self.interval = 0
        self.live: dict[int, Thread] = {}
        self.came: list[Thread] = []
        self.at_warps = 0
        """Threads that wait for their warps."""
        self.ended: list[Thread] = []
        """Threads that have ended."""

    def begin(self) -> None:
        """Make its threads and its shared arrays."""
        machine = self.machine
        shared = machine.declared(self, "shared")
        for number in range(machine.threads):
            thread = Thread(machine, self, number)
            cells = {**machine.cells, **shared, **machine.declared(self, "local")}
            thread.go = machine.kernel.run(thread, cells, machine.scalars).__next__
            self.live[number] = thread
            machine.ready.add(thread)


class Machine:
    """A launch, executed. See the module."""

    def __init__(
        self,
        kernel: Threaded,
        launch: Launch,
        cells: Mapping[str, Cells],
        scalars: Mapping[str, Any],
        *,
        ready: Schedule,
        resident: int,
        checked: bool,
        traced: bool,
        sized: Callable[[ir.Declare], ir.Declare],
    ) -> None:
        self.kernel, self.launch, self.cells, self.scalars = kernel, launch, dict(cells), scalars
        self.ready, self.resident, self.checked = ready, resident, checked
        self.trace: array[int] | None = array("q") if traced else None
        self.threads = launch.block[0] * launch.block[1] * launch.block[2]
        self.blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        self.block_size = tuple(np.int32(side) for side in launch.block)
        self.grid_size = tuple(np.int32(side) for side in launch.grid)
        self.idle = 0
        """Turns of waiting loops that came to a state that had been before, since a thread got anywhere else."""
        self.live: dict[int, Block] = {}
        self.stirred: dict[tuple[int, int], tuple[Stretch, int]] = {}
        """Elements that have changed, for which threads wait."""
        self.grid_came: list[Thread] = []
        self.gone: Thread | None = None
        """The last thread of the block that ended last."""
        self._sized = sized
        self._numbers = {name: -number for number, name in enumerate(kernel.program.declared, start=1)}

    def declared(self, block: Block, space: str) -> dict[str, Cells]:
        """A block's, or a thread's, own arrays: unset."""
        found = {}
        for name, stated in self.kernel.program.declared.items():
            if stated.space != space:
                continue
            one = self._sized(stated)
            size = int(np.prod(one.shape))
            shared = space == "shared"
            found[name] = Cells(
                self.launch,
                name,
                one.shape,
                np.zeros(size, one.element.dtype),
                number=self._numbers[name] - block.number * len(self._numbers),
                missing=np.ones(size, bool) if self.checked else None,
                touched=Stretch() if shared else None,
                watched=shared and self.checked,
            )
        return found

    def run(self) -> None:
        """Run all blocks to their end. Raises what is found."""
        waiting = self.ready.shuffle(list(range(self.blocks)))
        waiting.reverse()
        ready, live = self.ready, self.live
        while waiting or live:
            while waiting and len(live) < self.resident:
                block = Block(self, waiting.pop())
                live[block.number] = block
                block.begin()
            while len(ready) or self._rouse():
                if self.stirred:
                    self._rouse()
                thread = ready.pick()
                try:
                    event = thread.go()
                except StopIteration:
                    if self._end(thread):
                        break  # room for another block
                    continue
                if event is None:
                    ready.add(thread)
                    if not thread.loops:
                        self.idle = 0  # it gets somewhere, and may be what the others go round and round for
                elif event is not WAIT:
                    thread.meeting = event
                    self._meet(thread, event)
            else:
                if live:
                    raise stuck(self, self._all(), waiting)

    def _rouse(self) -> bool:
        """Let one thread go on that waits for what has changed; whether there is one.

        One at a step: of those that wait for a lock the first has often taken it before the next would have looked.
        """
        while self.stirred:
            key, (touched, at) = next(iter(self.stirred.items()))
            by_value = touched.waiting.get(at, {})
            for value, waiting in list(by_value.items()):
                while waiting and waiting[0][1].cells.flat[at].tobytes() != value:
                    one, look = waiting.popleft()
                    if one.wakes(look):
                        return True
                if not waiting:
                    del by_value[value]
            if not by_value:
                touched.waiting.pop(at, None)
            del self.stirred[key]
        return False

    def turned(self) -> None:
        """A waiting loop has come to a state that it was in before. Deadlock where none is ever left."""
        self.idle += 1
        if self.idle % _ROUNDS == 0:
            threads = self._all()
            if self.idle > _ROUNDS * (len(threads) + 10):
                raise livelock(self, threads)

    def _all(self) -> list[Thread]:
        return [thread for block in self.live.values() for thread in block.live.values()]

    def hash(self) -> str:
        """Of all steps that threads could see of each other, in their order."""
        return hashlib.blake2b(self.trace.tobytes() if self.trace is not None else b"", digest_size=16).hexdigest()

    def _end(self, thread: Thread) -> bool:
        """A thread has ended; whether its block has."""
        self.idle = 0
        block = thread.block
        del block.live[thread.number]
        block.ended.append(thread)
        if not block.live:
            del self.live[block.number]
            self.gone = thread
            return True
        if block.at_warps:
            self._warp(thread)
        self._barrier(block)
        return False

    # Meetings.

    def _meet(self, thread: Thread, meeting: Meeting) -> None:
        if meeting.what == "block":
            thread.block.came.append(thread)
            self._barrier(thread.block)
        elif meeting.what == "grid":
            self.grid_came.append(thread)
            self._grid()
        else:
            thread.block.at_warps += 1
            self._warp(thread)

    def _barrier(self, block: Block) -> None:
        """Let a block's threads go on when all that have not ended have come."""
        if not block.came or len(block.came) < len(block.live):
            return
        lines = {thread.meeting.line for thread in block.came if thread.meeting is not None}
        if block.ended or len(lines) > 1:
            raise parted(
                self.launch, block.came, block.ended, "the barrier", "of a block", (len(block.came), self.threads)
            )
        block.interval += 1
        clocks.barrier(block.number, block.interval, (thread.clock for thread in block.came))
        block.came, came = [], block.came
        self._on(came)

    def _grid(self) -> None:
        if len(self.grid_came) < self.blocks * self.threads:
            return
        came, self.grid_came = self.grid_came, []
        known = clocks.merged(thread.clock.told() for thread in came)
        for block in self.live.values():
            block.interval += 1
        for thread in came:
            thread.clock.known, thread.clock.interval = known, thread.block.interval
        self._on(came)

    def _warp(self, thread: Thread) -> None:
        """Let a warp's threads go on whose meeting is complete: all that are named and have not ended have come."""
        width = self.launch.warp
        first = thread.warp * width
        live = [thread.block.live[n] for n in range(first, min(first + width, self.threads)) if n in thread.block.live]
        for one in live:
            meeting = one.meeting
            if meeting is None or meeting.what in ("block", "grid"):
                continue
            named = [other for other in live if _named(meeting.mask, int(other.lane)) or other is one]
            if any(
                other.meeting is None or other.meeting.line != meeting.line or other.meeting.what != meeting.what
                for other in named
            ):
                continue
            if meeting.what == "warp":
                clocks.together(other.clock for other in named)
            else:
                exchange(named, meeting.what, width)
            thread.block.at_warps -= len(named)
            self._on(named)
            return self._warp(thread)
        return None

    def _on(self, threads: Sequence[Thread]) -> None:
        self.idle = 0
        for thread in sorted(threads, key=lambda one: one.id):
            thread.meeting = None
            self.ready.add(thread)


def _named(mask: int, lane: int) -> bool:
    """Whether a mask names a lane. It has 32 bits: lanes beyond take part."""
    return lane >= 32 or bool(mask >> lane & 1)


def exchange(threads: Sequence[Thread], what: str, width: int) -> None:
    """What each of the threads of a warp gets from a shuffle or a vote."""
    given = {int(one.lane): one.meeting.value for one in threads if one.meeting is not None}
    kind, _, how = what.partition(".")
    if kind == "vote":
        holding = [lane for lane, value in given.items() if value]
        found: Any = len(holding) > 0
        if how == "all":
            found = len(holding) == len(given)
        elif how == "ballot":
            found = np.uint32(sum(1 << lane for lane in holding if lane < 32))
        for one in threads:
            one.result = found
        return
    for one in threads:
        assert one.meeting is not None  # noqa: S101  it has come
        lane, argument = int(one.lane), one.meeting.argument
        source = {"index": argument % width, "up": lane - argument, "down": lane + argument, "xor": lane ^ argument}[
            how
        ]
        # From a lane that is not there each gets its own.
        one.result = given.get(source, one.meeting.value) if 0 <= source < width else one.meeting.value
