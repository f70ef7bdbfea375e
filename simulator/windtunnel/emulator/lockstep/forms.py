"""Values of threads that are known by a formula: written out only where something needs a number for each thread.

Most indices of a kernel are sums of multiples of thread and block indices. Kept as such, their bounds, what two of them
have in common and where they lie in memory are known without looking at any thread, and accesses become views.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.runtime.interface import Dims

if TYPE_CHECKING:
    from windtunnel.emulator.lockstep.lanes import Lanes

_MASKS = 32
"""Conditions that a layout remembers; a loop's counter in one would make a new one each turn."""
_VIEWS = 1024
"""Views that a layout remembers."""
_FEW = 4
"""Threads are worked out one by one where fewer than one in so many are active."""


class Form:
    """A value that NumPy sees as an array; operators without a formula of their own work on that."""

    __slots__ = ()
    # An array, and NumPy's scalars, leave operators to the form on their right.
    __array_priority__ = 100.0

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        raise NotImplementedError

    def __invert__(self) -> Any:
        return ~np.asarray(self)


def plain(value: Any) -> Any:
    """A value, written out if it was a formula."""
    return np.asarray(value) if isinstance(value, Form) else value


def _forwarded(name: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, name)

    def method(self: Any, other: Any) -> Any:
        return function(np.asarray(self), plain(other))

    return method


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "lshift", "rlshift",
              "rshift", "rrshift", "and", "rand", "or", "ror", "xor", "rxor", "truediv", "rtruediv", "eq", "ne", "lt",
              "le", "gt", "ge"):  # fmt: skip
    setattr(Form, f"__{_name}__", _forwarded(f"__{_name}__"))


Sides = tuple[tuple[int, int], ...]
"""Along each side, outer first: how many there are, and how many elements lie between two."""


class View(NamedTuple):
    """Elements of a flat memory, seen side by side."""

    first: int
    """The first thread's, from where the formula has the block's first."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    injective: bool
    """Whether no element is there twice."""


class Layout:
    """So many blocks of a size, side by side, and what of threads' places depends on nothing else."""

    def __init__(self, block: Dims, blocks: int) -> None:
        self.block, self.blocks = block, blocks
        self.threads = block[0] * block[1] * block[2]
        number = np.arange(self.threads, dtype=np.int64)
        self.axes = (number % block[0], number // block[0] % block[1], number // (block[0] * block[1]))
        self._steps: dict[Dims, np.ndarray] = {}
        self._places: dict[tuple[int, Dims], np.ndarray] = {}
        self._views: dict[tuple[Sides, Dims, Any], View | None] = {}
        self.masks: dict[tuple[str, Dims, int], Mask] = {}
        self.known: dict[Any, Any] = {}
        """What `watch` has found out about the accesses of one block, which are those of every block."""
        self.place = np.repeat(np.arange(blocks, dtype=np.int64), self.threads)
        """The block of every thread."""
        self.linear = np.tile(number, blocks)
        """The thread's number within its block."""
        self.zeros = np.zeros(self.threads * blocks, np.int32)
        """A zero for every thread. Not to be changed."""

    def steps(self, steps: Dims) -> np.ndarray:
        """The sum of a block's thread indices, each times its step: i64, an element a thread of a block."""
        found = self._steps.get(steps)
        if found is None:
            found = sum((axis * step for axis, step in zip(self.axes, steps, strict=True)), np.zeros(1, np.int64))
            found = self._steps[steps] = np.broadcast_to(found, self.threads)
        return found

    def places(self, size: int, steps: Dims) -> np.ndarray:
        """The same for every thread of every block, each block ``size`` elements after the last. Not to be changed."""
        found = self._places.get((size, steps))
        if found is None:
            starts = np.arange(self.blocks, dtype=np.int64) * size
            found = self._places[size, steps] = (starts[:, None] + self.steps(steps)[None, :]).reshape(-1)
        return found

    def view(self, apart: Sides, steps: Dims, part: Any, numbers: np.ndarray | None) -> View | None:
        """The places of threads as a view of the memory; None where they are none.

        ``apart``: blocks, and how far each is from the last. ``part``: what tells the threads of each block that count
        from others, and ``numbers`` which they are (None: all).
        """
        key = (apart, steps, part)
        if key not in self._views:
            if len(self._views) >= _VIEWS:
                self._views.clear()
            self._views[key] = self._viewed(apart, steps, numbers)
        return self._views[key]

    def _viewed(self, apart: Sides, steps: Dims, numbers: np.ndarray | None) -> View | None:
        first = 0
        threads = [(self.block[axis], steps[axis]) for axis in (2, 1, 0)]
        if numbers is not None:
            inner = self.steps(steps)[numbers]
            gaps = inner[1:] - inner[:-1]
            if np.any(gaps != gaps[:1]):
                return None
            first, threads = int(inner[0]), [(len(inner), int(gaps[0]) if len(gaps) else 0)]
        joined: list[tuple[int, int]] = []
        for extent, stride in (*apart, *threads):
            if extent == 1:
                continue
            if joined and joined[-1][1] == extent * stride:
                joined[-1] = (joined[-1][0] * extent, stride)
            else:
                joined.append((extent, stride))
        joined = joined or [(1, 1)]
        shape, strides = tuple(extent for extent, _ in joined), tuple(stride for _, stride in joined)
        return View(first, shape, strides, one_to_one(joined))


@lru_cache(maxsize=4)
def layout(block: Dims, blocks: int) -> Layout:
    """The layout of so many blocks; kept, since chunk after chunk has the same."""
    return Layout(block, blocks)


def one_to_one(sides: Sequence[tuple[int, int]]) -> bool:
    """Whether sums of multiples differ for sure: ``sides`` are (how many there are, what each adds)."""
    reach = 0
    for extent, stride in sorted(sides, key=lambda side: abs(side[1])):
        if extent == 1:
            continue
        if abs(stride) <= reach:
            return False
        reach += (extent - 1) * abs(stride)
    return True


class Mask(Form):
    """A condition of a layout's threads, and who they are for whom it holds and for whom not."""

    __slots__ = ("_no", "_yes", "holding", "key")

    def __init__(self, key: Any, holding: np.ndarray) -> None:
        self.key, self.holding = key, holding
        self._yes: np.ndarray | None = None
        self._no: np.ndarray | None = None

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self.holding if dtype is None else self.holding.astype(dtype)

    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """(for whom it holds, for whom it does not), by number. Not to be changed."""
        if self._yes is None or self._no is None:
            self._yes, self._no = np.flatnonzero(self.holding), np.flatnonzero(~self.holding)
        return self._yes, self._no


class Affine(Form):
    """An i32 that is ``start`` and ``steps`` times the thread's indices and ``jumps`` times its block's."""

    __slots__ = ("_out", "jumps", "lanes", "start", "steps")

    def __init__(self, lanes: Lanes, steps: Dims, jumps: Dims, start: int) -> None:
        self.lanes, self.steps, self.jumps, self.start = lanes, steps, jumps, start
        self._out: np.ndarray | None = None

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if self._out is None:
            self._out = self._values(np.int32)
        return self._out if dtype is None or dtype == np.int32 else self._out.astype(dtype)

    def wide(self) -> np.ndarray:
        """The numbers in 64 bits."""
        return self._values(np.int64)

    def _values(self, dtype: npt.DTypeLike) -> np.ndarray:
        lanes, chunk = self.lanes, self.lanes.chunk
        # In 32 bits sums wrap, as a kernel's do.
        inner = chunk.layout.steps(self.steps).astype(dtype)
        starts = self.starts().astype(dtype)
        if lanes.part:
            return np.asarray((starts[:, None] + inner[lanes.of_each_block][None, :]).reshape(-1))
        if lanes.size * _FEW < chunk.size and not isinstance(lanes.selection, slice):
            return np.asarray(starts[lanes.places] + inner[lanes.linear])
        return np.asarray(lanes.of((starts[:, None] + inner[None, :]).reshape(-1)))

    def starts(self) -> np.ndarray:
        """The value of each block's first thread, as if it had one: i64, an element a block of the chunk."""
        found = np.full(self.lanes.chunk.blocks, self.start, np.int64)
        for axis, jump in enumerate(self.jumps):
            if jump:
                found += self.lanes.chunk.blocks_along(axis) * jump
        return found

    def bounds(self) -> tuple[int, int]:
        """Numbers that none is below and none above. Are the same threads of each block active, both are there."""
        low = high = self.start
        chunk = self.lanes.chunk
        if self.lanes.part:
            inner = chunk.layout.steps(self.steps)[self.lanes.of_each_block]
            low, high = low + int(inner.min()), high + int(inner.max())
        else:
            for side, step in zip(chunk.block, self.steps, strict=True):
                far = (side - 1) * step
                low, high = low + min(far, 0), high + max(far, 0)
        for axis, jump in enumerate(self.jumps):
            if jump:
                first, last = chunk.block_bounds(axis)
                low, high = low + min(first * jump, last * jump), high + max(first * jump, last * jump)
        return low, high

    def at(self, lanes: Lanes) -> Affine:
        """The values of some of the threads."""
        return Affine(lanes, self.steps, self.jumps, self.start)

    # Exact, as if numbers had no end.

    def moved(self, by: int) -> Affine:
        """With a number added."""
        return Affine(self.lanes, self.steps, self.jumps, self.start + by)

    def times(self, by: int) -> Affine:
        """Times a number."""
        (x, y, z), (u, v, w) = self.steps, self.jumps
        return Affine(self.lanes, (x * by, y * by, z * by), (u * by, v * by, w * by), self.start * by)

    def plus(self, other: Affine) -> Affine:
        """The sum of two."""
        (x, y, z), (u, v, w) = self.steps, self.jumps
        (i, j, k), (p, q, r) = other.steps, other.jumps
        return Affine(self.lanes, (x + i, y + j, z + k), (u + p, v + q, w + r), self.start + other.start)

    # As a kernel has it: in 32 bits.

    def _fitting(self, made: Affine) -> Any:
        low, high = made.bounds()
        return made if low >= -(2**31) and high < 2**31 else np.asarray(made)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, np.int32):
            return self._fitting(self.moved(int(other)))
        if isinstance(other, Affine) and other.lanes is self.lanes:
            return self._fitting(self.plus(other))
        return np.asarray(self) + plain(other)

    def __radd__(self, other: Any) -> Any:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, np.int32):
            return self._fitting(self.moved(-int(other)))
        if isinstance(other, Affine) and other.lanes is self.lanes:
            return self._fitting(self.plus(other.times(-1)))
        return np.asarray(self) - plain(other)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, np.int32):
            return self._fitting(self.times(-1).moved(int(other)))
        return plain(other) - np.asarray(self)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, np.int32):
            return self._fitting(self.times(int(other)))
        return np.asarray(self) * plain(other)

    def __rmul__(self, other: Any) -> Any:
        return self.__mul__(other)

    def __lt__(self, other: Any) -> Any:
        return self._compared("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._compared("ge", other)

    def __eq__(self, other: object) -> Any:
        return self._compared("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("ne", other)

    __hash__ = object.__hash__

    def _compared(self, name: str, other: Any) -> Any:
        """A comparison: decided by the bounds, or remembered where it is the same in every block."""
        if isinstance(other, np.int32):
            apart = self.moved(-int(other))
        elif isinstance(other, Affine) and other.lanes is self.lanes:
            apart = self.plus(other.times(-1))
        else:
            return getattr(operator, name)(np.asarray(self), plain(other))
        function = getattr(operator, name)
        low, high = apart.bounds()
        if low > 0 or high < 0 or low == high:
            return np.bool_(function(low, 0))
        if function(low, 0) and function(high, 0) and name in ("le", "ge"):
            return np.True_
        if not function(low, 0) and not function(high, 0) and name in ("lt", "gt"):
            return np.False_
        chunk = self.lanes.chunk
        if self.lanes.selection is not None or any(apart.jumps):
            return function(apart.wide(), 0)
        masks = chunk.layout.masks
        key = (name, apart.steps, apart.start)
        found = masks.get(key)
        if found is None:
            if len(masks) >= _MASKS:
                masks.clear()
            one = function(chunk.layout.steps(apart.steps), -apart.start)
            found = masks[key] = Mask(key, np.tile(one, chunk.blocks))
        return found


class Pattern:
    """Elements of an array by a formula: of one that each block has its own of (``size`` elements), or of the grid."""

    __slots__ = ("_each", "_view", "first", "index", "lanes", "size")

    def __init__(self, index: Affine, size: int = 0) -> None:
        self.index, self.lanes, self.size = index, index.lanes, size
        chunk = index.lanes.chunk
        self.first = index.start
        """The place of the chunk's first thread, active or not."""
        if size:
            apart: Sides | None = ((chunk.blocks, size),)
        else:
            apart = chunk.apart(index.jumps)
            self.first += chunk.beginning(index.jumps)
        lanes = self.lanes
        self._view: View | None = None
        if apart is not None and lanes.part is not None:
            self._view = chunk.layout.view(apart, index.steps, lanes.part, lanes.of_each_block if lanes.part else None)
        self._each: np.ndarray | None = None

    @property
    def stretch(self) -> slice | None:
        """The places, where each thread has the one after the last's."""
        view = self._view
        if view is None or view.strides != (1,):
            return None
        return slice(self.first + view.first, self.first + view.first + view.shape[0])

    @property
    def each(self) -> np.ndarray:
        """A place for each thread. Not to be changed."""
        if self._each is None:
            if self.size:
                lanes, steps = self.lanes, self.index.steps
                layout = lanes.chunk.layout
                if lanes.part:
                    inner = layout.steps(steps)[lanes.of_each_block] + self.first
                    starts = np.arange(layout.blocks, dtype=np.int64) * self.size
                    self._each = (starts[:, None] + inner[None, :]).reshape(-1)
                else:
                    found = lanes.of(layout.places(self.size, steps))
                    self._each = found + self.first if self.first else found
            else:
                self._each = self.index.wide()
        return self._each

    @property
    def listed(self) -> tuple[np.ndarray, int]:
        """Numbers, and one that added to each makes it the place of a thread. Not to be changed."""
        if not self.size or self._each is not None or self.lanes.selection is not None:
            return self.each, 0
        return self.lanes.chunk.layout.places(self.size, self.index.steps), self.first

    def _seen(self, flat: np.ndarray) -> np.ndarray | None:
        view = self._view
        if view is None:
            return None
        # As bytes, since not every type of element can be a buffer's.
        item = flat.itemsize
        strides = [stride * item for stride in view.strides]
        return np.ndarray(view.shape, flat.dtype, flat.view(np.uint8), (self.first + view.first) * item, strides)

    def take(self, flat: np.ndarray, *, copied: bool = True) -> np.ndarray:
        """The elements; an array of their own, or (unless it has to be ``copied``) perhaps a view."""
        stretch = self.stretch
        if stretch is not None and not copied:
            return flat[stretch]
        seen = self._seen(flat)
        return np.asarray(flat[self.each]) if seen is None else seen.flatten()

    def put(self, flat: np.ndarray, value: Any) -> None:
        """Set the elements; of several threads that set one, the last."""
        seen = self._seen(flat)
        if seen is None or self._view is None or not self._view.injective:
            flat[self.each] = value
        else:
            seen[...] = value.reshape(seen.shape) if isinstance(value, np.ndarray) and value.ndim else value

    def any(self, flags: np.ndarray) -> bool:
        """Whether one of the elements is set."""
        seen = self._seen(flags)
        return bool((flags[self.each] if seen is None else seen).any())
