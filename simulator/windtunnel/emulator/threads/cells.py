"""Arrays as a single thread sees them: bounds, unset elements, races by what threads know, and who waits for what."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.errors import OutOfBounds, UninitializedRead
from windtunnel.emulator.lockstep.arrays import change_one
from windtunnel.emulator.races.findings import ATOMIC, READ, WRITE, Touch, race
from windtunnel.emulator.threads.clocks import Access, Clock, Released

if TYPE_CHECKING:
    from windtunnel.emulator.lockstep.arrays import Launch
    from windtunnel.emulator.races.footprint import Trace
    from windtunnel.emulator.threads.deadlock import Look
    from windtunnel.emulator.threads.machine import Thread


class _Element:
    """Who has touched an element: the last plain write, the atomic operations and the reads since."""

    __slots__ = ("atomics", "reads", "write")

    def __init__(self) -> None:
        self.write: Access | None = None
        self.atomics: dict[int, Access] = {}
        self.reads: dict[int, Access] = {}


class Stretch:
    """Of a stretch of memory, whatever it is called by: who has touched, released, changed and waits for what."""

    def __init__(self) -> None:
        self.elements: dict[int, _Element] = {}
        self.released: dict[int, Released] = {}
        self.changed: dict[int, tuple[int, int]] = {}
        """Thread and line that changed an element last."""
        self.waiting: dict[int, dict[bytes, deque[tuple[Thread, Look]]]] = {}
        """Threads that wait until an element changes, by the bytes that they found there."""

    def change(self, at: int, thread: Thread, line: int) -> None:
        """An element has another value than before: whoever waits for that may go on."""
        self.changed[at] = (thread.id, line)
        thread.changes += 1
        if at in self.waiting:
            thread.machine.stirred[id(self), at] = (self, at)


class Cells:
    """An array of a kernel. ``touched`` is None for what no two threads can meet in."""

    def __init__(
        self,
        launch: Launch,
        name: str,
        shape: Sequence[int],
        flat: np.ndarray,
        *,
        number: int,
        missing: np.ndarray | None = None,
        touched: Stretch | None = None,
        watched: bool = False,
        noted: Trace | None = None,
    ) -> None:
        self.launch, self.name, self.shape, self.flat = launch, name, tuple(shape), flat
        self.number = number
        """What a trace calls it."""
        self.missing, self.touched, self.watched = missing, touched, watched
        self.noted = noted
        """What notes the elements that are touched, for work of other streams."""
        self.sides = [np.int32(side) for side in self.shape]

    def side(self, number: int) -> np.int32:
        """The length of a side."""
        return self.sides[number]

    # What a thread does with it.

    def load(self, me: Thread, line: int, *indices: Any) -> Any:
        """An element."""
        at = self._place(me, line, indices)
        if self.missing is not None and self.missing[at]:
            raise self._unset(me, line, at)
        if self.noted is not None:
            self.noted.mark(READ, at)
        value = self.flat[at]
        if self.touched is not None:
            if self.watched:
                self._read(me.clock, line, at)
            if me.loops:
                me.looked(self, at, value, line)
            if me.trace is not None:
                me.trace.extend((me.id, line, self.number, at, 0))
        return value

    def store(self, me: Thread, line: int, value: Any, *indices: Any) -> None:
        """Set an element."""
        at = self._place(me, line, indices)
        flat = self.flat
        touched = self.touched
        if self.noted is not None:
            self.noted.mark(WRITE, at)
        if touched is None:
            flat[at] = value
        else:
            if self.watched:
                self._write(me.clock, line, at, value)
            before = flat[at]
            flat[at] = value
            if before != flat[at]:
                touched.change(at, me, line)
            if me.trace is not None:
                me.trace.extend((me.id, line, self.number, at, 1))
        if self.missing is not None:
            self.missing[at] = False

    def atomic(self, me: Thread, line: int, op: str, values: Sequence[Any], *indices: Any) -> Any:
        """Change an element at once; what was there before."""
        at = self._place(me, line, indices)
        if self.missing is not None:
            if op != "exch" and self.missing[at]:
                raise self._unset(me, line, at)
            self.missing[at] = False
        if self.noted is not None:
            self.noted.mark(ATOMIC, at)
        flat, touched = self.flat, self.touched
        before = flat[at]
        if touched is not None:
            if self.watched:
                self._change(me.clock, line, at)
                released = touched.released.get(at)
                if released is None:
                    released = touched.released[at] = Released()
                released.meet(me.clock)
            if me.loops:
                me.looked(self, at, before, line)
            if me.trace is not None:
                me.trace.extend((me.id, line, self.number, at, 2))
        flat[at] = change_one(op, before, values)
        if touched is not None and before != flat[at]:
            touched.change(at, me, line)
        return before

    # Races.

    def _element(self, at: int) -> _Element:
        assert self.touched is not None  # noqa: S101  the caller has seen it
        found = self.touched.elements.get(at)
        if found is None:
            found = self.touched.elements[at] = _Element()
        return found

    def _read(self, clock: Clock, line: int, at: int) -> None:
        element = self._element(at)
        here = Access(clock.thread, clock.now, clock.block, clock.interval, line, READ)
        self._after(clock, element.write, at, here)
        for other in element.atomics.values():
            self._after(clock, other, at, here)
        element.reads[clock.thread] = here

    def _write(self, clock: Clock, line: int, at: int, value: Any) -> None:
        element = self._element(at)
        here = Access(clock.thread, clock.now, clock.block, clock.interval, line, WRITE)
        if not _same(self.flat[at], value):  # several that write the same do not disturb each other
            self._after(clock, element.write, at, here)
        for other in (*element.atomics.values(), *element.reads.values()):
            self._after(clock, other, at, here)
        element.write = here
        if element.atomics or element.reads:
            element.atomics, element.reads = {}, {}

    def _change(self, clock: Clock, line: int, at: int) -> None:
        element = self._element(at)
        here = Access(clock.thread, clock.now, clock.block, clock.interval, line, ATOMIC)
        self._after(clock, element.write, at, here)
        for other in element.reads.values():
            self._after(clock, other, at, here)
        element.atomics[clock.thread] = here

    def _after(self, clock: Clock, other: Access | None, at: int, here: Access) -> None:
        """DataRace where another access does not come before this one."""
        if other is None or clock.knows(other):
            return
        now, before = (Touch(one.thread, one.kind, one.line) for one in (here, other))
        raise race(self.launch, self.name, self.index_of(at), now, before)

    # Places.

    def _place(self, me: Thread, line: int, indices: Sequence[Any]) -> int:
        at = 0
        for index, side in zip(indices, self.shape, strict=True):
            one = int(index)
            if not 0 <= one < side:
                raise self._beyond(me, line, indices)
            at = at * side + one
        return at

    def index_of(self, at: int) -> int | tuple[int, ...]:
        """An element's index, as the source has it."""
        found = []
        for side in reversed(self.shape):
            found.append(at % side)
            at //= side
        return found[0] if len(found) == 1 else tuple(reversed(found))

    def _beyond(self, me: Thread, line: int, indices: Sequence[Any]) -> OutOfBounds:
        launch, where = self.launch, tuple(int(index) for index in indices)
        shown = where[0] if len(where) == 1 else where
        return OutOfBounds(
            f"{launch.where()}: index {shown} of '{self.name}', which has {' x '.join(map(str, self.shape))} elements, "
            f"at {launch.at(line)}: {launch.who(me.id)}",
            **launch.found_at(line),
            array=self.name,
            index=shown,
            threads=(launch.thread(me.id),),
        )

    def _unset(self, me: Thread, line: int, at: int) -> UninitializedRead:
        launch, index = self.launch, self.index_of(at)
        return UninitializedRead(
            f"{launch.where()}: element {index} of '{self.name}' is read at {launch.at(line)} by {launch.who(me.id)}, "
            "and nobody has written it",
            **launch.found_at(line),
            array=self.name,
            index=index,
            threads=(launch.thread(me.id),),
        )


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124  NaN is not itself
