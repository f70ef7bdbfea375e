"""Threads side by side: which of them are active, what each one's indices are, and how their values come and go.

A value of a kernel is a NumPy array with an element for each active thread, a NumPy scalar where all have the same, or
a formula (`forms`): a `Ramp` where each has one more than the last, which turns most accesses of arrays into slices, or
an `Affine` of its indices. Blocks are taken a chunk at a time, so that values stay in the processor's cache.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from windtunnel.emulator.lockstep.forms import Affine, Form, Mask, Sides, layout, plain
from windtunnel.runtime.interface import Dims

Selection = slice | np.ndarray | None
"""Threads of a set: a stretch, some by their places, or (None) all."""
Value = Any


class Ramp(Form):
    """``start``, ``start + step``, ... for ``size`` threads, as i32."""

    __slots__ = ("size", "start", "step")

    def __init__(self, start: int, size: int, step: int = 1) -> None:
        self.start, self.size, self.step = start, size, step

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        found: np.ndarray = np.arange(self.size, dtype=np.int64) * self.step + self.start
        return found.astype(np.int32 if dtype is None else dtype)

    def taken(self, selection: Selection) -> Ramp | np.ndarray:
        """The values of some of the threads."""
        if selection is None:
            return self
        if isinstance(selection, slice):
            first, last, _ = selection.indices(self.size)
            return Ramp(self.start + first * self.step, max(last - first, 0), self.step)
        return np.asarray((self.start + selection * self.step).astype(np.int32))

    def _moved(self, by: Any, sign: int) -> Ramp | None:
        if not isinstance(by, np.int32):
            return None
        start = self.start + sign * int(by)
        end = start + (self.size - 1) * self.step
        fits = min(start, end) >= -(2**31) and max(start, end) < 2**31
        return Ramp(start, self.size, self.step) if fits else None

    def __add__(self, other: Any) -> Any:
        moved = self._moved(other, 1)
        return np.asarray(self) + plain(other) if moved is None else moved

    def __radd__(self, other: Any) -> Any:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Any:
        moved = self._moved(other, -1)
        return np.asarray(self) - plain(other) if moved is None else moved

    def __lt__(self, other: Any) -> Any:
        return self._before(int(other)) if isinstance(other, np.int32) else np.asarray(self) < plain(other)

    def __le__(self, other: Any) -> Any:
        return self._before(int(other) + 1) if isinstance(other, np.int32) else np.asarray(self) <= plain(other)

    def __ge__(self, other: Any) -> Any:
        if isinstance(other, np.int32) and self.step == 1:
            return Prefix(self.size, self._count(int(other)), after=True)
        return np.asarray(self) >= plain(other)

    def __gt__(self, other: Any) -> Any:
        if isinstance(other, np.int32) and self.step == 1:
            return Prefix(self.size, self._count(int(other) + 1), after=True)
        return np.asarray(self) > plain(other)

    def _count(self, limit: int) -> int:
        return min(max(limit - self.start, 0), self.size)

    def _before(self, limit: int) -> Any:
        if self.step == 1:
            return Prefix(self.size, self._count(limit))
        return np.asarray(self) < limit


class Prefix(Form):
    """A condition that holds for the first ``count`` of ``size`` threads, or (``after``) for those after them."""

    __slots__ = ("after", "count", "size")

    def __init__(self, size: int, count: int, *, after: bool = False) -> None:
        self.size, self.count, self.after = size, count, after

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        found = (np.arange(self.size) >= self.count) if self.after else (np.arange(self.size) < self.count)
        return found if dtype is None else found.astype(dtype)

    def halves(self) -> tuple[slice | None, slice | None, bool, bool]:
        """(those that hold, those that do not, whether any of each): a half that is all is None."""
        first, last = slice(0, self.count), slice(self.count, self.size)
        some, rest = self.count > 0, self.count < self.size
        whole_first, whole_last = (first if rest else None), (last if some else None)
        return (whole_last, whole_first, rest, some) if self.after else (whole_first, whole_last, some, rest)

    def __invert__(self) -> Prefix:
        return Prefix(self.size, self.count, after=not self.after)


_NONE: Final = (0, 0, 0)
_AXES: Final = ((1, 0, 0), (0, 1, 0), (0, 0, 1))


class Chunk:
    """Some blocks of a launch, thread by thread."""

    def __init__(self, grid: Dims, block: Dims, first: int, blocks: int, warp: int, launch: Any = None) -> None:
        self.grid, self.block, self.first, self.blocks, self.warp = grid, block, first, blocks, warp
        self.launch = launch
        """What findings say of it (``arrays.Launch``)."""
        self.threads = block[0] * block[1] * block[2]
        self.size = blocks * self.threads
        self.layout = layout(block, blocks)
        self.epochs = np.zeros(blocks, np.int32)
        """Barriers that each block has passed. Replaced, never changed: who keeps one knows how it was."""
        self.interval = 0
        """Barriers that all threads of the chunk have passed together."""
        self.exact = False
        """Whether stores are asked if they change anything: once a loop has gone on for long."""
        self.changes = 0
        """Stores so far, and atomic operations that changed something."""
        self.warp_epochs = self.layout.zeros
        """Meetings of its warp that each thread has passed. Replaced, never changed."""
        self.flat = block[1] == block[2] == grid[1] == grid[2] == 1
        self._along: dict[int, np.ndarray] = {}
        self._bounds: dict[int, tuple[int, int]] = {}

    @cached_property
    def gone(self) -> np.ndarray:
        """Which threads have returned, in kernels whose warps meet."""
        return np.zeros(self.size, bool)

    def leave(self, lanes: Lanes) -> None:
        """Threads return."""
        self.gone[slice(None) if lanes.selection is None else lanes.selection] = True

    def blocks_along(self, axis: int) -> np.ndarray:
        """The ``blockIdx`` of every block: i64."""
        found = self._along.get(axis)
        if found is None:
            inner = int(np.prod(self.grid[:axis], dtype=np.int64))
            numbers = np.arange(self.first, self.first + self.blocks, dtype=np.int64)
            found = self._along[axis] = numbers // inner % self.grid[axis]
        return found

    def block_bounds(self, axis: int) -> tuple[int, int]:
        """The smallest and the largest ``blockIdx``."""
        found = self._bounds.get(axis)
        if found is None:
            along = self.blocks_along(axis)
            found = self._bounds[axis] = (int(along.min()), int(along.max()))
        return found

    def beginning(self, jumps: Dims) -> int:
        """The sum of the first block's indices, each times its jump."""
        inner, found = self.first, 0
        for side, jump in zip(self.grid, jumps, strict=True):
            found += inner % side * jump
            inner //= side
        return found

    def apart(self, jumps: Dims) -> Sides | None:
        """How the blocks lie, each axis times its jump; None where the chunk is no whole rows of the grid."""
        row = self.grid[0]
        if self.first % row + self.blocks <= row:
            return ((self.blocks, jumps[0]),)
        rows = self.blocks // row
        if self.first % row or self.blocks % row or self.first // row % self.grid[1] + rows > self.grid[1]:
            return None
        return (rows, jumps[1]), (row, jumps[0])


class Lanes:
    """The active threads of a chunk."""

    __slots__ = ("_indices", "_linear", "_numbers", "_places", "chunk", "part", "selection", "size")

    def __init__(self, chunk: Chunk, selection: Selection = None) -> None:
        self.chunk, self.selection = chunk, selection
        self.part: Any = () if selection is None else None
        """What tells which threads of a block they are, where they are the same of every block; else None."""
        self._places: np.ndarray | None = None
        self._linear: np.ndarray | None = None
        self._numbers: np.ndarray | None = None
        self._indices: dict[tuple[Dims, Dims], Affine] = {}
        if selection is None:
            self.size = chunk.size
        elif isinstance(selection, slice):
            self.size = selection.stop - selection.start
        else:
            self.size = len(selection)

    def sub(self, selection: Selection) -> Lanes:
        """Some of them, by their places among them."""
        if selection is None:
            return self
        mine = self.selection
        if mine is None:
            return Lanes(self.chunk, selection)
        if isinstance(mine, slice):
            if isinstance(selection, slice):
                return Lanes(self.chunk, slice(mine.start + selection.start, mine.start + selection.stop))
            return Lanes(self.chunk, selection + mine.start)
        return Lanes(self.chunk, mine[selection])

    def of(self, values: np.ndarray) -> np.ndarray:
        """Of a value for every thread of the chunk, those of the active ones."""
        return values if self.selection is None else values[self.selection]

    def thread(self, axis: int) -> Value:
        """Their ``threadIdx``."""
        return self._index(_AXES[axis], _NONE)

    def block(self, axis: int) -> Value:
        """Their ``blockIdx``."""
        return self._index(_NONE, _AXES[axis])

    def _index(self, steps: Dims, jumps: Dims) -> Affine:
        found = self._indices.get((steps, jumps))
        if found is None:
            found = self._indices[steps, jumps] = Affine(self, steps, jumps, 0)
        return found

    def globally(self, axis: int) -> Value:
        """Their ``blockIdx * blockDim + threadIdx``."""
        chunk = self.chunk
        if axis == 0 and chunk.flat:
            return Ramp(chunk.first * chunk.threads, chunk.size).taken(self.selection)
        return self.block(axis) * np.int32(chunk.block[axis]) + self.thread(axis)

    @property
    def of_each_block(self) -> np.ndarray:
        """Their numbers within a block, where they are the same of every one (``part``)."""
        if self._numbers is None:
            threads = self.chunk.threads
            chosen = self.selection
            assert isinstance(chosen, np.ndarray)  # noqa: S101  a part of each block is chosen one by one
            self._numbers = chosen[: np.searchsorted(chosen, threads)]
        return self._numbers

    @property
    def places(self) -> np.ndarray:
        """Their blocks, counted within the chunk."""
        if self._places is None:
            self._places = self.of(self.chunk.layout.place)
        return self._places

    @property
    def linear(self) -> np.ndarray:
        """Their numbers within their blocks."""
        if self._linear is None:
            self._linear = self.of(self.chunk.layout.linear)
        return self._linear

    @property
    def numbers(self) -> np.ndarray:
        """Their numbers within the chunk."""
        if self.selection is None:
            return np.arange(self.chunk.size)
        if isinstance(self.selection, slice):
            return np.arange(self.selection.start, self.selection.stop)
        return self.selection

    @property
    def identities(self) -> np.ndarray:
        """Their numbers in the whole launch: block by block."""
        return self.numbers + self.chunk.first * self.chunk.threads


Side = tuple[Selection, Lanes] | None
EMPTY: Final = object()


def branch(lanes: Lanes, condition: Value) -> tuple[Side, Side]:
    """(who takes it, who does not), each None where nobody is."""
    if isinstance(condition, Prefix):
        yes, no, some, rest = condition.halves()
        return (yes, lanes.sub(yes)) if some else None, (no, lanes.sub(no)) if rest else None
    if isinstance(condition, Mask):
        yes_places, no_places = condition.halves()
        if not len(yes_places) or not len(no_places):
            return ((None, lanes), None) if len(yes_places) else (None, (None, lanes))
        yes_lanes, no_lanes = lanes.sub(yes_places), lanes.sub(no_places)
        yes_lanes.part, no_lanes.part = (condition.key, True), (condition.key, False)
        return (yes_places, yes_lanes), (no_places, no_lanes)
    condition = plain(condition)
    if not isinstance(condition, np.ndarray) or not condition.ndim:
        return ((None, lanes), None) if condition else (None, (None, lanes))
    yes_places = np.flatnonzero(condition)
    if len(yes_places) == len(condition):
        return (None, lanes), None
    if not len(yes_places):
        return None, (None, lanes)
    no_places = np.flatnonzero(~condition)
    return (yes_places, lanes.sub(yes_places)), (no_places, lanes.sub(no_places))


def holds(condition: Value) -> bool:
    """Whether it does for all."""
    if isinstance(condition, Prefix):
        return condition.count == (0 if condition.after else condition.size)
    return bool(np.all(plain(condition)))


def narrow(selection: Selection, condition: Value, size: int) -> Any:
    """Of the selected, those for which a condition holds; EMPTY where it does for none."""
    if isinstance(condition, Prefix):
        yes, _, some, _ = condition.halves()
        found: Selection = yes if some else np.empty(0, np.int64)
        if not some:
            return EMPTY
    else:
        condition = plain(condition)
        if not isinstance(condition, np.ndarray) or not condition.ndim:
            return selection if condition else EMPTY
        found = np.flatnonzero(condition)
        if not len(found):
            return EMPTY
    if selection is None:
        return found
    if isinstance(selection, slice):
        base = selection.start
        return slice(base + found.start, base + found.stop) if isinstance(found, slice) else found + base
    return selection[found] if found is not None else selection


def take(value: Value, selection: Selection, lanes: Lanes) -> Value:
    """The values of some, who are ``lanes``. Those of a stretch are a view."""
    if selection is None:
        return value
    if isinstance(value, Ramp):
        return value.taken(selection)
    if isinstance(value, Affine):
        return value.at(lanes)
    value = plain(value)
    return value[selection] if isinstance(value, np.ndarray) and value.ndim else value


def taken(value: Value, selection: Selection, lanes: Lanes) -> Value:
    """The values of some, as a copy."""
    found = take(value, selection, lanes)
    return found.copy() if isinstance(selection, slice) and isinstance(found, np.ndarray) else found


def full(value: Value, size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """An array of its own with a value for each of ``size``."""
    found = np.empty(size, dtype)
    found[...] = value
    return found


def put(value: Value, selection: Selection, some: Value, size: int, dtype: np.dtype[Any]) -> Value:
    """The values with those of some replaced; what was there stays as it is."""
    if selection is None:
        return some
    found = full(value, size, dtype)
    found[selection] = some
    return found


def put_into(value: np.ndarray, selection: Selection, some: Value, size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """The same, in an array that nobody else has."""
    if selection is None:
        return full(some, size, dtype)
    value[selection] = some
    return value


def convert(value: Value, dtype: np.dtype[Any]) -> Value:
    """A value in another type, as C converts: towards zero from floats, the low bits of wider integers."""
    if isinstance(value, Affine) and dtype == np.int32:
        return value
    value = plain(value)
    array = np.asarray(value)
    if dtype.kind == "u" and dtype.itemsize < 8 and array.dtype.kind not in "iub":
        # Out of range NumPy's own is one number for many values and another for one: through i64 it is the same.
        array = array.astype(np.int64)
    found = array.astype(dtype)
    return found if isinstance(value, np.ndarray) else found[()]


def chosen(condition: Value, yes: Value, no: Value) -> Value:
    """One value where a condition holds, the other where it does not."""
    if not isinstance(condition, (np.ndarray, Form)):
        return yes if condition else no
    return np.where(plain(condition), plain(yes), plain(no))[()]
