"""Symbolic values: values of all threads that are kept as a formula and written out only where an array is needed.

Most indices of a kernel are affine functions of thread and block indices. The formula alone gives the bounds of an
index, the difference of two indices and their positions in memory, so that most array accesses become views.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from windtunnel.emulator.common.layout import Layout, Selection, Sides, ThreadSet, View
from windtunnel.runtime.interface import Dims

_MAX_MASKS = 32
"""Masks cached for a layout. A loop counter in a condition would add one in each iteration."""
Integer = type[np.int32] | type[np.int64]
_LIMITS = {np.int32: 2**31, np.int64: 2**63}
_SPARSE = 4
"""If fewer than one in this many threads is active, values are computed for the active threads only."""


class SymbolicValue:
    """A value that NumPy sees as an array. Operators without a rule of their own work on that array."""

    __slots__ = ()
    # Arrays and NumPy scalars leave an operator to the symbolic value on their right.
    __array_priority__ = 100.0

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        raise NotImplementedError

    def __invert__(self) -> Any:
        return ~np.asarray(self)


def materialise(value: Any) -> Any:
    """Return a symbolic value as an array, and any other value unchanged."""
    return np.asarray(value) if isinstance(value, SymbolicValue) else value


def _forwarded(name: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, name)

    def method(self: Any, other: Any) -> Any:
        return function(np.asarray(self), materialise(other))

    return method


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "lshift", "rlshift",
              "rshift", "rrshift", "and", "rand", "or", "ror", "xor", "rxor", "truediv", "rtruediv", "eq", "ne", "lt",
              "le", "gt", "ge"):  # fmt: skip
    setattr(SymbolicValue, f"__{_name}__", _forwarded(f"__{_name}__"))


def _fits(low: int, high: int, kind: Integer) -> bool:
    """Return whether values from ``low`` to ``high`` are of a type of integers."""
    return low >= -_LIMITS[kind] and high < _LIMITS[kind]


class Ramp(SymbolicValue):
    """The values ``start``, ``start + step``, ... of ``size`` threads, of type ``kind``: i32 or i64."""

    __slots__ = ("kind", "size", "start", "step")

    def __init__(self, start: int, size: int, step: int = 1, kind: Integer = np.int32) -> None:
        self.start, self.size, self.step, self.kind = start, size, step, kind

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        values: np.ndarray = np.arange(self.size, dtype=np.int64) * self.step + self.start
        return values.astype(self.kind if dtype is None else dtype)

    def of_kind(self, kind: Integer) -> Ramp | np.ndarray:
        """Return the values converted to a type of integers."""
        end = self.start + (self.size - 1) * self.step
        if _fits(min(self.start, end), max(self.start, end), kind):
            return Ramp(self.start, self.size, self.step, kind)
        return np.asarray(self).astype(kind)

    def take(self, selection: Selection) -> Ramp | np.ndarray:
        """Return the values of some of the threads."""
        if selection is None:
            return self
        if isinstance(selection, slice):
            first, last, _ = selection.indices(self.size)
            return Ramp(self.start + first * self.step, max(last - first, 0), self.step, self.kind)
        return np.asarray((self.start + selection * self.step).astype(self.kind))

    def _shifted(self, by: Any, sign: int) -> Ramp | None:
        if not isinstance(by, self.kind):
            return None
        start = self.start + sign * int(by)
        end = start + (self.size - 1) * self.step
        fits = _fits(min(start, end), max(start, end), self.kind)
        return Ramp(start, self.size, self.step, self.kind) if fits else None

    def __add__(self, other: Any) -> Any:
        shifted = self._shifted(other, 1)
        return np.asarray(self) + materialise(other) if shifted is None else shifted

    def __radd__(self, other: Any) -> Any:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Any:
        shifted = self._shifted(other, -1)
        return np.asarray(self) - materialise(other) if shifted is None else shifted

    def __lt__(self, other: Any) -> Any:
        return self._below(int(other)) if isinstance(other, self.kind) else np.asarray(self) < materialise(other)

    def __le__(self, other: Any) -> Any:
        return self._below(int(other) + 1) if isinstance(other, self.kind) else np.asarray(self) <= materialise(other)

    def __ge__(self, other: Any) -> Any:
        if isinstance(other, self.kind) and self.step == 1:
            return Prefix(self.size, self._count_below(int(other)), after=True)
        return np.asarray(self) >= materialise(other)

    def __gt__(self, other: Any) -> Any:
        if isinstance(other, self.kind) and self.step == 1:
            return Prefix(self.size, self._count_below(int(other) + 1), after=True)
        return np.asarray(self) > materialise(other)

    def __eq__(self, other: object) -> Any:
        return (
            np.bool_(self.start == other.start) if self._is_parallel(other) else np.asarray(self) == materialise(other)
        )

    def __ne__(self, other: object) -> Any:
        return (
            np.bool_(self.start != other.start) if self._is_parallel(other) else np.asarray(self) != materialise(other)
        )

    __hash__ = object.__hash__

    def _is_parallel(self, other: object) -> TypeGuard[Ramp]:
        """Return whether the values differ from other ones by the same number in all threads."""
        return isinstance(other, Ramp) and other.step == self.step and other.size == self.size

    def _count_below(self, limit: int) -> int:
        return min(max(limit - self.start, 0), self.size)

    def _below(self, limit: int) -> Any:
        if self.step == 1:
            return Prefix(self.size, self._count_below(limit))
        return np.asarray(self) < limit


class Prefix(SymbolicValue):
    """A condition that is true for the first ``count`` of ``size`` threads, or with ``after`` for the others."""

    __slots__ = ("after", "count", "size")

    def __init__(self, size: int, count: int, *, after: bool = False) -> None:
        self.size, self.count, self.after = size, count, after

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        flags = (np.arange(self.size) >= self.count) if self.after else (np.arange(self.size) < self.count)
        return flags if dtype is None else flags.astype(dtype)

    def split(self) -> tuple[slice | None, slice | None, bool, bool]:
        """Return (threads where it is true, threads where it is false, whether there are any of each).

        A selection is None if it holds all threads.
        """
        first, last = slice(0, self.count), slice(self.count, self.size)
        has_first, has_last = self.count > 0, self.count < self.size
        first_part, last_part = (first if has_last else None), (last if has_first else None)
        return (
            (last_part, first_part, has_last, has_first) if self.after else (first_part, last_part, has_first, has_last)
        )

    def __invert__(self) -> Prefix:
        return Prefix(self.size, self.count, after=not self.after)


class LaneMask(SymbolicValue):
    """A condition that is the same in every block of a layout, with the threads for which it is true and false."""

    __slots__ = ("_false", "_true", "flags", "key")

    def __init__(self, key: tuple[object, ...], flags: np.ndarray) -> None:
        self.key, self.flags = key, flags
        self._true: np.ndarray | None = None
        self._false: np.ndarray | None = None

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self.flags if dtype is None else self.flags.astype(dtype)

    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the threads for which it is true, and false. Callers must not change them."""
        if self._true is None or self._false is None:
            self._true, self._false = np.flatnonzero(self.flags), np.flatnonzero(~self.flags)
        return self._true, self._false


_MASKS: WeakKeyDictionary[Layout, dict[tuple[str, Dims, int], LaneMask]] = WeakKeyDictionary()


class AffineValue(SymbolicValue):
    """The value ``start + steps . threadIdx + jumps . blockIdx`` of each active thread, as i32 or i64 (``kind``)."""

    __slots__ = ("_array", "jumps", "kind", "lanes", "start", "steps")

    def __init__(self, lanes: ThreadSet, steps: Dims, jumps: Dims, start: int, kind: Integer = np.int32) -> None:
        self.lanes, self.steps, self.jumps, self.start, self.kind = lanes, steps, jumps, start, kind
        self._array: np.ndarray | None = None

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if self._array is None:
            self._array = self._values(self.kind)
        return self._array if dtype is None or dtype == self.kind else self._array.astype(dtype)

    def of_kind(self, kind: Integer) -> AffineValue | np.ndarray:
        """Return the values converted to a type of integers."""
        if kind is self.kind:
            return self
        if kind is np.int64 or _fits(*self.bounds(), kind):
            return AffineValue(self.lanes, self.steps, self.jumps, self.start, kind)
        return np.asarray(self).astype(kind)

    def wide(self) -> np.ndarray:
        """Return the values as i64, shape (active threads,)."""
        return self._values(np.int64)

    def _values(self, dtype: npt.DTypeLike) -> np.ndarray:
        lanes, chunk = self.lanes, self.lanes.chunk
        # Sums wrap around, as they do in a kernel.
        offsets = chunk.layout.offsets(self.steps).astype(dtype)
        starts = self.starts().astype(dtype)
        if lanes.subset:
            return np.asarray((starts[:, None] + offsets[lanes.subset_numbers][None, :]).reshape(-1))
        if lanes.size * _SPARSE < chunk.size and not isinstance(lanes.selection, slice):
            return np.asarray(starts[lanes.blocks] + offsets[lanes.linear])
        return np.asarray(lanes.select((starts[:, None] + offsets[None, :]).reshape(-1)))

    def starts(self) -> np.ndarray:
        """Return the value that thread 0 of each block has or would have: i64, shape (blocks,)."""
        starts = np.full(self.lanes.chunk.blocks, self.start, np.int64)
        for axis, jump in enumerate(self.jumps):
            if jump:
                starts += self.lanes.chunk.block_indices(axis) * jump
        return starts

    def bounds(self) -> tuple[int, int]:
        """Return a lower and an upper bound of all values.

        If the same threads are active in every block, both bounds are attained.
        """
        low = high = self.start
        chunk = self.lanes.chunk
        if self.lanes.subset:
            offsets = chunk.layout.offsets(self.steps)[self.lanes.subset_numbers]
            low, high = low + int(offsets.min()), high + int(offsets.max())
        else:
            for side, step in zip(chunk.block, self.steps, strict=True):
                far = (side - 1) * step
                low, high = low + min(far, 0), high + max(far, 0)
        for axis, jump in enumerate(self.jumps):
            if jump:
                first, last = chunk.block_bounds(axis)
                low, high = low + min(first * jump, last * jump), high + max(first * jump, last * jump)
        return low, high

    def at(self, lanes: ThreadSet) -> AffineValue:
        """Return the values of other active threads."""
        return AffineValue(lanes, self.steps, self.jumps, self.start, self.kind)

    # Exact arithmetic on unbounded integers.

    def shifted(self, by: int) -> AffineValue:
        """Return the sum with an integer, without overflow."""
        return AffineValue(self.lanes, self.steps, self.jumps, self.start + by, self.kind)

    def times(self, by: int) -> AffineValue:
        """Return the product with an integer, without overflow."""
        (x, y, z), (u, v, w) = self.steps, self.jumps
        steps, jumps = (x * by, y * by, z * by), (u * by, v * by, w * by)
        return AffineValue(self.lanes, steps, jumps, self.start * by, self.kind)

    def plus(self, other: AffineValue) -> AffineValue:
        """Return the sum with another affine value, without overflow."""
        (x, y, z), (u, v, w) = self.steps, self.jumps
        (i, j, k), (p, q, r) = other.steps, other.jumps
        steps, jumps = (x + i, y + j, z + k), (u + p, v + q, w + r)
        return AffineValue(self.lanes, steps, jumps, self.start + other.start, self.kind)

    # The kernel's arithmetic.

    def _or_array(self, value: AffineValue) -> Any:
        return value if _fits(*value.bounds(), self.kind) else np.asarray(value)

    def _like(self, other: Any) -> bool:
        return isinstance(other, AffineValue) and other.lanes is self.lanes and other.kind is self.kind

    def __add__(self, other: Any) -> Any:
        if isinstance(other, self.kind):
            return self._or_array(self.shifted(int(other)))
        if self._like(other):
            return self._or_array(self.plus(other))
        return np.asarray(self) + materialise(other)

    def __radd__(self, other: Any) -> Any:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, self.kind):
            return self._or_array(self.shifted(-int(other)))
        if self._like(other):
            return self._or_array(self.plus(other.times(-1)))
        return np.asarray(self) - materialise(other)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, self.kind):
            return self._or_array(self.times(-1).shifted(int(other)))
        return materialise(other) - np.asarray(self)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, self.kind):
            return self._or_array(self.times(int(other)))
        return np.asarray(self) * materialise(other)

    def __rmul__(self, other: Any) -> Any:
        return self.__mul__(other)

    def __lt__(self, other: Any) -> Any:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare("ge", other)

    def __eq__(self, other: object) -> Any:
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("ne", other)

    __hash__ = object.__hash__

    def _compare(self, name: str, other: Any) -> Any:
        """Compare: decided by the bounds where possible, and cached where the result is the same in every block."""
        function = getattr(operator, name)
        if isinstance(other, self.kind):
            difference = self.shifted(-int(other))
        elif self._like(other):
            difference = self.plus(other.times(-1))
        else:
            return function(np.asarray(self), materialise(other))
        low, high = difference.bounds()
        if low > 0 or high < 0 or low == high:
            return np.bool_(function(low, 0))
        if function(low, 0) and function(high, 0) and name in ("le", "ge"):
            return np.True_
        if not function(low, 0) and not function(high, 0) and name in ("lt", "gt"):
            return np.False_
        chunk = self.lanes.chunk
        if self.lanes.selection is not None or any(difference.jumps):
            return function(difference.wide(), 0)
        masks = _MASKS.setdefault(chunk.layout, {})
        key = (name, difference.steps, difference.start)
        mask = masks.get(key)
        if mask is None:
            if len(masks) >= _MAX_MASKS:
                masks.clear()
            flags = function(chunk.layout.offsets(difference.steps), -difference.start)
            mask = masks[key] = LaneMask(key, np.tile(flags, chunk.blocks))
        return mask


class AffinePositions:
    """Array elements given by an affine index, one for each active thread.

    ``size`` is the number of elements if every block has an array of its own, and these lie one after another. It is 0
    for one array of the whole grid.
    """

    __slots__ = ("_expanded", "_view", "first", "index", "lanes", "size")

    def __init__(self, index: AffineValue, size: int = 0) -> None:
        self.index, self.lanes, self.size = index, index.lanes, size
        chunk = index.lanes.chunk
        self.first = index.start
        """Position of the chunk's first thread, active or not."""
        if size:
            block_sides: Sides | None = ((chunk.blocks, size),)
        else:
            block_sides = chunk.block_sides(index.jumps)
            self.first += chunk.first_block_offset(index.jumps)
        lanes = self.lanes
        self._view: View | None = None
        if block_sides is not None and lanes.subset is not None:
            numbers = lanes.subset_numbers if lanes.subset else None
            self._view = chunk.layout.view(block_sides, index.steps, lanes.subset, numbers)
        self._expanded: np.ndarray | None = None

    @property
    def contiguous(self) -> slice | None:
        """The positions as a slice if each thread's element directly follows the last thread's; else None."""
        view = self._view
        if view is None or view.strides != (1,):
            return None
        return slice(self.first + view.first, self.first + view.first + view.shape[0])

    @property
    def expanded(self) -> np.ndarray:
        """One position for each active thread. Callers must not change the array."""
        if self._expanded is None:
            if self.size:
                lanes, steps = self.lanes, self.index.steps
                layout = lanes.chunk.layout
                if lanes.subset:
                    offsets = layout.offsets(steps)[lanes.subset_numbers] + self.first
                    starts = np.arange(layout.blocks, dtype=np.int64) * self.size
                    self._expanded = (starts[:, None] + offsets[None, :]).reshape(-1)
                else:
                    positions = lanes.select(layout.positions(self.size, steps))
                    self._expanded = positions + self.first if self.first else positions
            else:
                self._expanded = self.index.wide()
        return self._expanded

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return the positions of threads that are given by their numbers in the chunk."""
        layout = self.lanes.chunk.layout
        blocks = layout.block_of_thread[numbers]
        starts = blocks * self.size + self.first if self.size else self.index.starts()[blocks]
        return np.asarray(layout.offsets(self.index.steps)[layout.linear[numbers]] + starts)

    @property
    def with_offset(self) -> tuple[np.ndarray, int]:
        """An array and an integer whose sum is ``expanded``. Callers must not change the array."""
        if not self.size or self._expanded is not None or self.lanes.selection is not None:
            return self.expanded, 0
        return self.lanes.chunk.layout.positions(self.size, self.index.steps), self.first

    def _as_view(self, flat: np.ndarray) -> np.ndarray | None:
        view = self._view
        if view is None:
            return None
        # As bytes, because not every element type supports the buffer protocol.
        item = flat.itemsize
        strides = [stride * item for stride in view.strides]
        return np.ndarray(view.shape, flat.dtype, flat.view(np.uint8), (self.first + view.first) * item, strides)

    def take(self, flat: np.ndarray, *, copied: bool = True) -> np.ndarray:
        """Return the elements: a new array, or possibly a view if ``copied`` is false."""
        contiguous = self.contiguous
        if contiguous is not None and not copied:
            return flat[contiguous]
        view = self._as_view(flat)
        return np.asarray(flat[self.expanded]) if view is None else view.flatten()

    def put(self, flat: np.ndarray, value: Any) -> None:
        """Set the elements. If several threads set one element, the last thread's value remains."""
        view = self._as_view(flat)
        if view is None or self._view is None or not self._view.injective:
            flat[self.expanded] = value
        else:
            view[...] = value.reshape(view.shape) if isinstance(value, np.ndarray) and value.ndim else value

    def any(self, flags: np.ndarray) -> bool:
        """Return whether any of the elements is set."""
        view = self._as_view(flags)
        return bool((flags[self.expanded] if view is None else view).any())


Position = int | slice | np.ndarray | AffinePositions
"""Elements of a flat array: one for all threads, a contiguous range, one for each thread, or an affine index."""


def each_position(position: Position, size: int) -> np.ndarray:
    """Return one position for each of ``size`` threads. Callers must not change the array."""
    if isinstance(position, AffinePositions):
        return position.expanded
    if isinstance(position, slice):
        return np.arange(position.start, position.stop)
    return np.full(size, position) if isinstance(position, int) else position
