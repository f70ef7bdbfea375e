"""A kernel's arrays in lockstep execution: many threads load, store and change elements at once.

An index is a kernel value (`common.lanes`): the same for all threads, symbolic, or one for each thread. Every access
states its line in the source, so that findings can name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from windtunnel.core.errors import OutOfBounds
from windtunnel.emulator.common.atomics import change_many
from windtunnel.emulator.common.lanes import Lanes, Value
from windtunnel.emulator.common.launch import Launch, LockstepStalledError
from windtunnel.emulator.common.layout import Chunk, index_in
from windtunnel.emulator.common.symbolic import (
    AffinePositions,
    AffineValue,
    Position,
    Ramp,
    SymbolicValue,
    each_position,
    materialise,
)
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
from windtunnel.emulator.races.flights import Copies, check_flights
from windtunnel.emulator.races.footprint import FootprintRecorder
from windtunnel.emulator.races.shadow_memory import ShadowMemory
from windtunnel.language import ir


class AccessCounter(Protocol):
    """What counts the accesses to arrays."""

    def access(
        self, array: LockstepArray, kind: str, lanes: Lanes, line: int, position: Position, op: str = ""
    ) -> None:
        """Count an access, before it is made. ``kind`` is ``load``, ``store`` or ``atomic``, with the operation."""


class LockstepArray:
    """An array of a kernel.

    ``flat`` has its elements. Where every block or thread has an array of its own, these lie one after another.
    """

    def __init__(self, launch: Launch, name: str, shape: Sequence[int], flat: np.ndarray) -> None:
        self.launch, self.name, self.shape, self.flat = launch, name, tuple(shape), flat
        self.size = int(np.prod(self.shape, dtype=np.int64))
        self.uninitialised: np.ndarray | None = None
        """Flags of the elements that nothing has written; None if there are none."""
        self._writes_until_recount = 0
        """Writes by single threads before it is worth counting the uninitialised elements again."""
        self.copies_reads = True
        """Whether loaded values must not change when the elements are written later."""
        self.recorder: FootprintRecorder | None = None
        """Records the accessed elements, for work of other streams."""
        self.shadow: ShadowMemory | None = None
        """The records for race detection; None if no two threads can race in this array."""
        self.scopes: np.ndarray | None = None
        """For each element the last thread that changed it, or else the first that read it, atomically in its block
        only, the line, and whether it changed it; -1 for none. Shape (3, elements)."""
        self.counter: AccessCounter | None = None
        """Counts the accesses, for the work of the launch."""
        self.copies: list[Copies] = []
        """The asynchronous copies in flight that read or write elements."""

    def side(self, number: int) -> np.int32:
        """Return the length of a side."""
        return np.int32(self.shape[number])

    # What a kernel does with it.

    def load(self, lanes: Lanes, line: int, *indices: Value, copied: bool = False, moved: bool = False) -> Value:
        """Return elements. Raises OutOfBounds, UninitializedRead (unless they are only ``copied``) or DataRace.

        Raises LockstepStalledError for elements that were never set and that lanes pass on (``moved``): execution by
        thread follows them.
        """
        position = self.position(lanes, line, indices)
        if self.counter is not None:
            self.counter.access(self, "load", lanes, line, position)
        if self.uninitialised is not None and not copied:
            self._check_initialised(lanes, line, position, moved=moved)
        if self.copies:
            check_flights(self, READ, each_position(position, lanes.size), lanes.identities, line)
        if self.recorder is not None:
            self.recorder.mark(READ, position)
        if self.shadow is not None:
            self.shadow.read(self, lanes, line, position)
        if isinstance(position, AffinePositions):
            return position.take(self.flat, copied=self.copies_reads)
        elements = self.flat[position]
        return elements.copy() if self.copies_reads and isinstance(position, slice) else elements

    def store(self, lanes: Lanes, line: int, value: Value, *indices: Value) -> None:
        """Set elements; if several threads set one, the last one's value remains. Raises OutOfBounds or DataRace."""
        position, value = self.position(lanes, line, indices), materialise(value)
        if self.counter is not None:
            self.counter.access(self, "store", lanes, line, position)
        if self.copies:
            check_flights(self, WRITE, each_position(position, lanes.size), lanes.identities, line)
        if self.recorder is not None:
            self.recorder.mark(WRITE, position)
        if self.shadow is not None:
            self.shadow.write(self, lanes, line, position, value)
        positions = each_position(position, lanes.size) if lanes.chunk.compares_stores else None
        before = None if positions is None else self.flat[positions].copy()
        if isinstance(position, AffinePositions):
            position.put(self.flat, value)
        elif isinstance(position, int) and isinstance(value, np.ndarray) and value.ndim:
            self.flat[position] = value[-1]
        else:
            self.flat[position] = value
        lanes.chunk.changes += before is None or not np.array_equal(before, self.flat[positions])
        if self.uninitialised is not None:
            self._mark_initialised(lanes, position)

    def atomic(
        self,
        lanes: Lanes,
        line: int,
        op: str,
        values: Sequence[Value],
        used: bool,
        *indices: Value,
        of_block: bool = False,
    ) -> Value:
        """Change elements, one thread after another; ``of_block``: atomically among the threads of a block only.

        Returns the values before the change, or None if they are not ``used``. Raises OutOfBounds, UninitializedRead or
        DataRace.
        """
        position = self.position(lanes, line, indices)
        if self.counter is not None:
            self.counter.access(self, "atomic", lanes, line, position, op)
        if self.uninitialised is not None and op not in ("exch", "store"):
            self._check_initialised(lanes, line, position)
        if of_block or self.scopes is not None:
            kind = ATOMIC_READ if op == "load" else ATOMIC
            self._check_scope(lanes, line, each_position(position, lanes.size), kind, of_block=of_block)
        if self.copies:
            kind = READ if op == "load" else ATOMIC
            check_flights(self, kind, each_position(position, lanes.size), lanes.identities, line)
        if self.recorder is not None:
            self.recorder.mark(READ if op == "load" else ATOMIC, position)
        positions = each_position(position, lanes.size)
        if op == "load":
            if self.shadow is not None:
                self.shadow.change(self, lanes, line, position, np.ones(lanes.size, bool))
            return self.flat[positions].copy()
        if self.uninitialised is not None:
            self._mark_initialised(lanes, position)
        before = self.flat[positions].copy()
        operands = [np.broadcast_to(np.asarray(value), lanes.size) for value in values]
        old_values = change_many(self.flat, positions, op, operands, used or op == "cas")
        if self.shadow is not None:
            self.shadow.change(self, lanes, line, position, old_values != operands[0] if op == "cas" else None)
        lanes.chunk.changes += not np.array_equal(before, self.flat[positions])
        return old_values

    def _check_scope(self, lanes: Lanes, line: int, positions: np.ndarray, kind: str, *, of_block: bool) -> None:
        """Raise DataRace if atomic operations of two blocks meet, one of which is atomic in its block only."""
        if not self.launch.checked:
            return
        if self.scopes is None:
            self.scopes = np.full((3, self.flat.size), -1, np.int64)
        threads, size = lanes.identities, lanes.chunk.threads
        changes = kind == ATOMIC
        for recorded in (False, True):
            if recorded and of_block:
                kept = np.ones(positions.size, bool) if changes else self.scopes[0, positions] < 0
                self.scopes[:, positions[kept]] = threads[kept], np.full(kept.sum(), line), np.full(kept.sum(), changes)
            others, _, changed = self.scopes[:, positions]
            met = np.flatnonzero((others >= 0) & (others // size != threads // size) & (changes | (changed > 0)))
            if len(met):
                at = int(met[0])
                place = int(positions[at])
                other, other_line, other_changes = self.scopes[:, place].tolist()
                later = AccessReport(int(threads[at]), kind, line)
                earlier = AccessReport(other, OF_BLOCK if other_changes else OF_BLOCK_READ, other_line)
                raise race(self.launch, self.name, self.index_of(place), later, earlier)

    def begin_copy(self, lanes: Lanes, line: int, writes: bool, *indices: Value) -> None:
        """Record that an asynchronous copy of each thread reads or writes an element from now on."""
        positions = each_position(self.position(lanes, line, indices), lanes.size)
        if not self.launch.checked:
            return
        lanes.chunk.flights.begin(self, positions, lanes.identities, line, writes=writes)

    # What its kinds differ in.

    def position(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Position:
        """Return the positions of elements in the flat array. Raises OutOfBounds."""
        raise NotImplementedError

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """Return the index of the element at a position of the flat array, as the source states it."""
        raise NotImplementedError

    # Checks.

    def linear(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Value:
        """Return the row-major number of elements within the array, after checking the index of each side."""
        linear: Value = None
        for index, side in zip(indices, self.shape, strict=True):
            if not within(index, side):
                raise self._out_of_bounds(lanes, line, indices)
            linear = index if linear is None else _row_major(linear, side, index)
        return linear

    def _out_of_bounds(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> OutOfBounds:
        broadcast = [np.broadcast_to(np.asarray(index).astype(np.int64), lanes.size) for index in indices]
        bad = np.zeros(lanes.size, bool)
        for index, side in zip(broadcast, self.shape, strict=True):
            bad |= (index < 0) | (index >= side)
        first = int(np.flatnonzero(bad)[0])
        index_of_first = tuple(int(index[first]) for index in broadcast)
        thread, others = int(lanes.identities[first]), int(bad.sum()) - 1
        return out_of_bounds(self.launch, self.name, self.shape, index_of_first, thread, line, others)

    def _check_initialised(self, lanes: Lanes, line: int, position: Position, *, moved: bool = False) -> None:
        assert self.uninitialised is not None  # noqa: S101  the caller has checked it
        if isinstance(position, AffinePositions):
            if not position.any(self.uninitialised):
                return
            position = position.expanded
        bad = self.uninitialised[position]
        if not bad.any():
            return
        if moved and self.launch.follows_moved and not isinstance(self, GlobalArray):
            raise LockstepStalledError
        first = int(np.flatnonzero(np.atleast_1d(bad))[0])
        place = int(each_position(position, lanes.size)[first])
        raise uninitialised_element(self.launch, self.name, self.index_of(place), int(lanes.identities[first]), line)

    def _mark_initialised(self, lanes: Lanes, position: Position) -> None:
        assert self.uninitialised is not None  # noqa: S101  the caller has checked it
        if isinstance(position, AffinePositions):
            position.put(self.uninitialised, False)
        else:
            self.uninitialised[position] = False
        self._writes_until_recount -= lanes.size
        if self._writes_until_recount <= 0:
            # Each thread writes at most one element, so fewer writes cannot have reached all that were left.
            self._writes_until_recount = int(np.count_nonzero(self.uninitialised))
            if not self._writes_until_recount:
                self.uninitialised = None


class GlobalArray(LockstepArray):
    """An array in the device's memory."""

    def position(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Position:
        """Return the positions of elements in the flat array. Raises OutOfBounds."""
        linear = self.linear(lanes, line, indices)
        if isinstance(linear, Ramp):
            return slice(linear.start, linear.start + linear.size) if linear.step == 1 else np.asarray(linear)
        if isinstance(linear, AffineValue):
            return AffinePositions(linear)
        return linear if isinstance(linear, np.ndarray) and linear.ndim else int(linear)

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """Return the index of the element at a position of the flat array, as the source states it."""
        return index_in(self.shape, position)


class SharedArray(LockstepArray):
    """An array that each block has its own of, uninitialised when the block begins."""

    def __init__(self, launch: Launch, declared: ir.Declare, chunk: Chunk, *, checked: bool) -> None:
        size = int(np.prod(declared.shape))
        super().__init__(launch, declared.name, declared.shape, np.zeros(chunk.blocks * size, declared.element.dtype))
        if checked:
            self.uninitialised = np.ones(self.flat.size, bool)
            self.shadow = ShadowMemory(self.flat.size, chunk.threads, chunk.warp, own=size)

    def position(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Position:
        """Return the positions of elements in the flat array. Raises OutOfBounds."""
        linear = self.linear(lanes, line, indices)
        if not isinstance(linear, SymbolicValue) and not np.ndim(linear):
            linear = AffineValue(lanes, (0, 0, 0), (0, 0, 0), int(linear))
        if isinstance(linear, AffineValue) and not any(linear.jumps):
            return AffinePositions(linear, self.size)
        return np.asarray(lanes.blocks * self.size + _wide(linear))

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """Return the index of the element at a position of the flat array, as the source states it."""
        return index_in(self.shape, position % self.size)


class LocalArray(LockstepArray):
    """An array that each thread has its own of, uninitialised when the thread begins."""

    def __init__(self, launch: Launch, declared: ir.Declare, chunk: Chunk, *, checked: bool) -> None:
        size = int(np.prod(declared.shape))
        super().__init__(launch, declared.name, declared.shape, np.zeros(chunk.size * size, declared.element.dtype))
        self.threads = chunk.size
        if checked:
            self.uninitialised = np.ones(self.flat.size, bool)

    def position(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Position:
        """Return the positions of elements in the flat array. Raises OutOfBounds.

        Elements of one index lie side by side for all threads, so that reading them at once is a slice.
        """
        linear = self.linear(lanes, line, indices)
        if isinstance(linear, SymbolicValue) or (isinstance(linear, np.ndarray) and linear.ndim):
            return np.asarray(_wide(linear) * self.threads + lanes.numbers)
        first = int(linear) * self.threads
        if lanes.selection is None:
            return slice(first, first + self.threads)
        if isinstance(lanes.selection, slice):
            return slice(first + lanes.selection.start, first + lanes.selection.stop)
        return first + lanes.selection

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """Return the index of the element at a position of the flat array, as the source states it."""
        return index_in(self.shape, position // self.threads)

    def forget(self, lanes: Lanes) -> None:
        """Let no element of some threads be set, as when the variable begins or ends its life."""
        if not self.launch.checked:
            return
        if self.uninitialised is None:
            self.uninitialised = np.zeros(self.flat.size, bool)
        self.uninitialised.reshape(-1, self.threads)[:, slice(None) if lanes.selection is None else lanes.selection] = (
            True
        )
        self._writes_until_recount += lanes.size * (self.flat.size // self.threads)


def within(index: Value, side: int) -> bool:
    """Return whether all values of an index are from 0 to ``side`` - 1."""
    if isinstance(index, Ramp):
        last = index.start + (index.size - 1) * index.step
        return not index.size or (min(index.start, last) >= 0 and max(index.start, last) < side)
    if isinstance(index, AffineValue):
        low, high = index.bounds()
        if low >= 0 and high < side:
            return True
        index = index.wide()
    if not isinstance(index, np.ndarray) or not index.ndim:
        return bool(0 <= index < side)
    if not len(index):
        return True
    # As unsigned numbers, negative ones are very large, so that one comparison is enough.
    kind = index.dtype
    if kind.kind == "i":
        index = index.view(f"u{kind.itemsize}")
    return bool(index.max() < side)


def _wide(index: Value) -> Value:
    """Return an index as i64."""
    if isinstance(index, AffineValue):
        return index.wide()
    index = materialise(index)
    return index.astype(np.int64) if isinstance(index, np.ndarray) else np.int64(index)


def _row_major(outer: Value, side: int, inner: Value) -> Value:
    """Return ``outer * side + inner`` without overflow; symbolic if both are."""
    if isinstance(outer, AffineValue) and isinstance(inner, AffineValue) and outer.lanes is inner.lanes:
        return outer.times(side).plus(inner)
    if isinstance(outer, AffineValue) and not isinstance(inner, (np.ndarray, SymbolicValue)):
        return outer.times(side).shifted(int(inner))
    if isinstance(inner, AffineValue) and not isinstance(outer, (np.ndarray, SymbolicValue)):
        return inner.shifted(int(outer) * side)
    return _wide(outer) * side + _wide(inner)
