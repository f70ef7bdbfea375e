"""A kernel's arrays in execution thread by thread: bounds, uninitialised elements, races, and waiting threads."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from windtunnel.core.errors import UninitializedRead
from windtunnel.emulator.common.atomics import change_one
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.common.layout import index_in
from windtunnel.emulator.races.findings import (
    ATOMIC,
    ATOMIC_READ,
    OF_BLOCK,
    OF_BLOCK_READ,
    READ,
    WRITE,
    AccessReport,
    out_of_bounds,
    race,
    uninitialised_element,
)
from windtunnel.emulator.races.flights import Copies, Flights, check_flights
from windtunnel.emulator.races.footprint import FootprintRecorder
from windtunnel.emulator.threads.clocks import Clock, ClockedAccess, Releases
from windtunnel.emulator.threads.undefined import Undefined, require_defined

_READS_TO_PRUNE = 16
"""Reads of an element above which those are looked for that a later one stands for."""


class Accessor(Protocol):
    """What an array needs to know of the thread that accesses it."""

    id: int
    clock: Clock
    global_clock: Clock
    """Its clock for the grid's memory: another one if barriers order shared memory or the grid's memory alone."""
    flights: Flights
    changes: int
    """Elements whose value the thread has changed."""
    trace: array[int] | None

    @property
    def loops(self) -> Sequence[object]:
        """The spin loops that the thread is in."""

    def record_poll(self, polled: PolledRead) -> None:
        """Record that the thread has read an element in a spin loop."""

    def report_change(self, memory: MemoryRange, at: int) -> None:
        """Report that an element has changed for which threads wait."""


class Waiter(Protocol):
    """A thread that waits for elements to change."""

    def wake_if_polls(self, polled: PolledRead) -> bool:
        """Continue if the thread still waits for this element; return whether it does."""


class ReadBeforeWriteError(Exception):
    """A thread cannot continue, because it reads an element that threads share and none has written so far.

    Attributes:
        found: The finding, if no other thread writes the element without order.
    """

    def __init__(self, found: UninitializedRead) -> None:
        super().__init__(found)
        self.found = found


class PolledRead(NamedTuple):
    """A read in a spin loop: the element, the value that was read, and the line."""

    array: ThreadArray
    at: int
    value: Any
    line: int

    @property
    def key(self) -> int:
        """The element's place in the records of its memory."""
        return self.at * self.array.parts

    def has_changed(self) -> bool:
        """Return whether the element holds another value now."""
        return bool(self.value != self.array.flat[self.at])


class _Generation:
    """The accesses of an element since some point, of each thread the last one of each kind.

    Of plain writes, also the thread's last one of another value: each entry is (the last, its value, the other one).
    """

    __slots__ = ("atomic_reads", "atomics", "leader", "reads", "reads_to_prune", "writes")

    def __init__(self, leader: Any = None) -> None:
        self.leader = leader
        """The value that the first write stored; None for the accesses before any write."""
        self.writes: dict[int, tuple[ClockedAccess, Any, ClockedAccess | None]] = {}
        self.atomics: dict[int, ClockedAccess] = {}
        self.atomic_reads: dict[int, ClockedAccess] = {}
        self.reads: dict[int, ClockedAccess] = {}
        self.reads_to_prune = _READS_TO_PRUNE


class _ElementRecord:
    """The accesses of an element that later ones may race with.

    A write that is ordered after all recorded accesses begins a generation. Two such writes of different values stand
    for everything before them: what is unordered with an earlier access is unordered with both, and conflicts with at
    least one. So two generations are kept.
    """

    __slots__ = ("atomic_operations", "current", "earlier")

    def __init__(self) -> None:
        self.atomic_operations = 0
        """Atomic operations so far."""
        self.current = _Generation()
        self.earlier: _Generation | None = None

    @property
    def generations(self) -> tuple[_Generation, ...]:
        return (self.current,) if self.earlier is None else (self.current, self.earlier)


class MemoryRange:
    """The records of a range of memory, whichever arrays refer to it."""

    def __init__(self) -> None:
        self.elements: dict[int, _ElementRecord] = {}
        self.releases: dict[int, Releases] = {}
        self.last_change: dict[int, tuple[int, int]] = {}
        """For each element, the thread and the line that changed it last."""
        self.waiting: dict[int, dict[bytes, deque[tuple[Waiter, PolledRead]]]] = {}
        """For each element, the threads that wait until it changes, by the bytes that they have read."""

    def record_change(self, at: int, thread: Accessor, line: int) -> None:
        """Record that an element has another value than before."""
        self.last_change[at] = (thread.id, line)
        thread.changes += 1
        if at in self.waiting:
            thread.report_change(self, at)


class ThreadArray:
    """An array of a kernel.

    Args:
        launch: The launch.
        name: Name of the array in the kernel.
        shape: Its shape.
        flat: Its elements.
        number: The number that stands for it in a trace.
        uninitialised: Flags of the elements that nothing has written; None if they are not checked.
        memory: The records of its memory; None if no two threads access the same element of it.
        checked: Whether races are detected.
        recorder: Records the accessed elements, for work of other streams.
        is_shared: Whether it is in a block's shared memory.
        is_own: Whether the thread has it alone.
        parts: The pieces of an element that have records of their own in its memory: several if another parameter is
            the same memory with smaller elements.
    """

    def __init__(
        self,
        launch: Launch,
        name: str,
        shape: Sequence[int],
        flat: np.ndarray,
        *,
        number: int,
        uninitialised: np.ndarray | None = None,
        memory: MemoryRange | None = None,
        checked: bool = False,
        recorder: FootprintRecorder | None = None,
        is_shared: bool = False,
        is_own: bool = False,
        parts: int = 1,
    ) -> None:
        self.is_shared, self.is_own, self.parts = is_shared, is_own, parts
        self.scopes: dict[int, AccessReport] = {}
        """For each element the last change, or else the first read, that was atomic in its block only."""
        self.copies: list[Copies] = []
        """The asynchronous copies in flight that read or write elements."""
        self.launch, self.name, self.shape, self.flat = launch, name, tuple(shape), flat
        self.number, self.uninitialised, self.memory = number, uninitialised, memory
        self.checked, self.recorder = checked, recorder
        self.sides = [np.int32(side) for side in self.shape]

    def side(self, number: int) -> np.int32:
        """Return the length of a side."""
        return self.sides[number]

    # What a thread does with it.

    def load(self, thread: Accessor, line: int, *indices: Any, copied: bool = False, moved: bool = False) -> Any:
        """Return an element. Raises OutOfBounds, UninitializedRead (unless it is only ``copied``) or DataRace.

        One that lanes pass on (``moved``) is undefined if it was never set.
        """
        at = self._position(thread, line, indices)
        if self.copies:
            check_flights(self, READ, np.array([at]), np.array([thread.id]), line)
        moved = moved and (self.is_own or self.is_shared)
        is_unset = self.uninitialised is not None and bool(self.uninitialised[at])
        if is_unset and not copied and not moved:
            raise self._unset(thread, line, at, READ)
        if self.recorder is not None:
            self.recorder.mark(READ, at)
        value = self.flat[at]
        if self.memory is not None:
            if self.checked:
                self._check(thread, line, at, READ)
            if thread.loops:
                thread.record_poll(PolledRead(self, at, value, line))
            if thread.trace is not None:
                thread.trace.extend((thread.id, line, self.number, at, 0))
        return Undefined(value, line, thread.id) if moved and is_unset else value

    def store(self, thread: Accessor, line: int, value: Any, *indices: Any) -> None:
        """Set an element. Raises OutOfBounds or DataRace."""
        at = self._position(thread, line, indices)
        flat, memory = self.flat, self.memory
        undefined = isinstance(value, Undefined)
        if undefined:
            if not self.is_own and not self.is_shared:
                require_defined(self.launch, thread.id, line, value)
            value = value.value
        if self.copies:
            check_flights(self, WRITE, np.array([at]), np.array([thread.id]), line)
        if self.recorder is not None:
            self.recorder.mark(WRITE, at)
        if memory is None:
            flat[at] = value
        else:
            if self.checked:
                self._check(thread, line, at, WRITE, flat.dtype.type(value))
            before = flat[at]
            flat[at] = value
            if before != flat[at]:
                memory.record_change(at * self.parts, thread, line)
            if thread.trace is not None:
                thread.trace.extend((thread.id, line, self.number, at, 1))
        if self.uninitialised is not None:
            self.uninitialised[at] = undefined and self.is_shared

    def _set_atomically(self, thread: Accessor, line: int, at: int, op: str) -> None:
        """Record that an atomic operation sets an element, which it may have to read first."""
        assert self.uninitialised is not None  # noqa: S101  the caller has checked it
        if op not in ("exch", "store") and self.uninitialised[at]:
            raise self._unset(thread, line, at, ATOMIC_READ if op == "load" else ATOMIC)
        self.uninitialised[at] = False

    def _unset(self, thread: Accessor, line: int, at: int, kind: str) -> Exception:
        """Return the error that a thread reads an element that was never set. Raises DataRace.

        The read is recorded, so that a write by another thread that nothing orders with it is a race.
        """
        found = uninitialised_element(self.launch, self.name, self.index_of(at), thread.id, line)
        if self.memory is None:
            return found
        self._check(thread, line, at, kind)
        return ReadBeforeWriteError(found)

    def forget(self) -> None:
        """Let no element be set, as when the variable begins or ends its life."""
        if self.uninitialised is not None:
            self.uninitialised[:] = True

    def atomic(
        self,
        thread: Accessor,
        line: int,
        op: str,
        values: Sequence[Any],
        *indices: Any,
        of_block: bool = False,
        relaxed: bool = False,
    ) -> Any:
        """Change an element and return the value before. Raises OutOfBounds, UninitializedRead or DataRace."""
        at = self._position(thread, line, indices)
        require_defined(self.launch, thread.id, line, *values)
        if (of_block or self.scopes) and self.checked:
            self._check_scope(thread, line, at, ATOMIC_READ if op == "load" else ATOMIC, of_block=of_block)
        if self.copies:
            check_flights(self, READ if op == "load" else ATOMIC, np.array([at]), np.array([thread.id]), line)
        if self.uninitialised is not None:
            self._set_atomically(thread, line, at, op)
        if self.recorder is not None:
            self.recorder.mark(READ if op == "load" else ATOMIC, at)
        flat, memory = self.flat, self.memory
        before = flat[at]
        if memory is not None:
            if self.checked:
                only_reads = op == "load" or (op == "cas" and before != values[0])
                self._order_atomic(
                    memory, thread, line, at, only_reads=only_reads, stores=op == "store", relaxed=relaxed
                )
            if thread.loops:
                thread.record_poll(PolledRead(self, at, before, line))
            if thread.trace is not None:
                thread.trace.extend((thread.id, line, self.number, at, 2))
        flat[at] = change_one(op, before, values)
        if memory is not None and before != flat[at]:
            memory.record_change(at * self.parts, thread, line)
        return before

    def _order_atomic(
        self,
        memory: MemoryRange,
        thread: Accessor,
        line: int,
        at: int,
        *,
        only_reads: bool,
        stores: bool,
        relaxed: bool,
    ) -> None:
        """Check an atomic operation, release what the thread has prepared, and acquire. Raises DataRace."""
        self._check(thread, line, at, ATOMIC_READ if only_reads else ATOMIC)
        releases = memory.releases.get(at * self.parts)
        if releases is None or stores:  # who reads what it stores acquires nothing of earlier operations
            releases = memory.releases[at * self.parts] = Releases()
        releases.apply(self._clock(thread), acquires_only=only_reads, relaxed=relaxed)

    def _check_scope(self, thread: Accessor, line: int, at: int, kind: str, *, of_block: bool) -> None:
        """Raise DataRace if atomic operations of two blocks meet, one of which is atomic in its block only."""
        last = self.scopes.get(at)
        changes = kind == ATOMIC or (last is not None and last.kind == OF_BLOCK)
        if last is not None and changes and self.launch.block_of(last.thread) != self.launch.block_of(thread.id):
            raise race(self.launch, self.name, self.index_of(at), AccessReport(thread.id, kind, line), last)
        if of_block and (last is None or kind == ATOMIC):
            self.scopes[at] = AccessReport(thread.id, OF_BLOCK if kind == ATOMIC else OF_BLOCK_READ, line)

    def begin_copy(self, thread: Accessor, line: int, writes: bool, *indices: Any) -> None:
        """Record that an asynchronous copy of the thread reads or writes an element from now on."""
        positions = np.array([self._position(thread, line, indices)])
        if not self.launch.checked:
            return
        thread.flights.begin(self, positions, np.array([thread.id]), line, writes=writes)

    # Races.

    def _record_of(self, at: int) -> _ElementRecord:
        assert self.memory is not None  # noqa: S101  the caller has checked it
        record = self.memory.elements.get(at)
        if record is None:
            record = self.memory.elements[at] = _ElementRecord()
        return record

    def _check(self, thread: Accessor, line: int, at: int, kind: str, value: Any = None) -> None:
        """Record an access of the element ``at`` by a thread. Raises DataRace.

        ``value`` is what a plain write is about to store.
        """
        if line in self.launch.program.benign_lines:
            return
        clock = self._clock(thread)
        if self.parts > 1:
            pieces = np.atleast_1d(value).view(np.uint8).reshape(self.parts, -1) if value is not None else None
            for part in range(self.parts):
                piece = None if pieces is None else pieces[part].tobytes()
                self._check_part(clock, line, at * self.parts + part, kind, piece)
            return
        self._check_part(clock, line, at, kind, value)

    def _check_part(self, clock: Clock, line: int, at: int, kind: str, value: Any) -> None:
        """Record an access of the piece ``at`` of the memory: of an element, if it has one piece."""
        record = self._record_of(at)
        fence = number = 0
        if kind in (ATOMIC, ATOMIC_READ):
            number = record.atomic_operations = record.atomic_operations + 1
            fence = clock.last_fence
        access = ClockedAccess(clock.thread, clock.now, clock.block, clock.interval, line, kind, fence, number)
        current = record.current
        if kind == WRITE:
            self._check_write(clock, record, at, access, value)
            return
        for generation in record.generations:
            for write, _, _ in generation.writes.values():
                self._require_order(clock, write, at, access)
            if kind == ATOMIC:
                for other in generation.reads.values():
                    self._require_order(clock, other, at, access)
        if kind == READ:
            self._check_atomics(clock, record, at, access)
            current.reads[clock.thread] = access
            if len(current.reads) > current.reads_to_prune:
                # What is unordered with a read before this one is unordered with this one.
                current.reads = {t: read for t, read in current.reads.items() if not clock.happens_after(read)}
                current.reads[clock.thread] = access
                current.reads_to_prune = 2 * len(current.reads) + _READS_TO_PRUNE
        else:
            (current.atomics if kind == ATOMIC else current.atomic_reads)[clock.thread] = access

    def _check_atomics(self, clock: Clock, record: _ElementRecord, at: int, access: ClockedAccess) -> None:
        """Check a plain access against the changes by atomic operations.

        A change that a later atomic operation of this thread has acquired is ordered with the access, as in a last
        block that sets its counter back to 0, or a thread that reads the flag that it has waited for. By the PTX memory
        model it is so because the change was observed, and what was observed precedes in causality order what follows.
        The fence before a change covers only what was before the fence.
        """
        own = [
            mine.number
            for generation in record.generations
            for kept in (generation.atomics, generation.atomic_reads)
            if (mine := kept.get(clock.thread)) is not None
        ]
        last = max(own, default=0)
        for generation in record.generations:
            for other in generation.atomics.values():
                if not (other.number < last and clock.has_acquired(other)):
                    self._require_order(clock, other, at, access)

    def _clock(self, thread: Accessor) -> Clock:
        """Return the thread's clock for memory of the array's space."""
        return thread.clock if self.is_shared else thread.global_clock

    def _check_write(self, clock: Clock, record: _ElementRecord, at: int, access: ClockedAccess, value: Any) -> None:
        strict, leads = self.launch.strict, True
        for generation in record.generations:
            for last, stored, another in generation.writes.values():
                if clock.happens_after(last):
                    continue
                leads = False
                conflicting = last if strict or not _equal(stored, value) else another
                self._require_order(clock, conflicting, at, access)
            for others in (generation.reads, generation.atomic_reads):
                for other in others.values():
                    self._require_order(clock, other, at, access)
        self._check_atomics(clock, record, at, access)
        current = record.current
        if leads and (current.leader is None or not _equal(current.leader, value)):
            record.earlier, record.current = current, _Generation(value)
            record.current.writes[clock.thread] = (access, value, None)
            return
        if leads:  # what is unordered with an earlier write of this value is unordered with this one
            current.writes = {
                thread: write
                for thread, write in current.writes.items()
                if write[2] is not None or not _equal(write[1], value)
            }
        before = current.writes.get(clock.thread)
        another = None if before is None else before[2] if _equal(before[1], value) else before[0]
        current.writes[clock.thread] = (access, value, another)

    def _require_order(self, clock: Clock, earlier: ClockedAccess | None, at: int, access: ClockedAccess) -> None:
        """Raise DataRace if an earlier access does not happen before this one."""
        if earlier is None or clock.happens_after(earlier):
            return
        reports = (AccessReport(a.thread, a.kind, a.line) for a in (access, earlier))
        raise race(self.launch, self.name, self.index_of(at // self.parts), *reports)

    # Positions.

    def _position(self, thread: Accessor, line: int, indices: Sequence[Any]) -> int:
        """Return the position of an element in the flat array. Raises OutOfBounds."""
        at = 0
        require_defined(self.launch, thread.id, line, *indices)
        for index, side in zip(indices, self.shape, strict=True):
            number = int(index)
            if not 0 <= number < side:
                stated = tuple(int(i) for i in indices)
                raise out_of_bounds(self.launch, self.name, self.shape, stated, thread.id, line)
            at = at * side + number
        return at

    def index_of(self, at: int) -> int | tuple[int, ...]:
        """Return the index of the element at a position of the flat array, as the source states it."""
        return index_in(self.shape, at)


def _equal(a: Any, b: Any) -> bool:
    """Return whether values are equal. NaN equals NaN."""
    return bool(a == b or (a != a and b != b))  # noqa: PLR0124
