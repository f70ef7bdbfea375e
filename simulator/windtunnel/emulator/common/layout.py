"""Positions of threads in a chunk of blocks: their indices, and the views of memory that regular positions form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, Self

import numpy as np

from windtunnel.emulator.common.launch import Launch
from windtunnel.runtime.interface import Dims

Selection = slice | np.ndarray | None
"""Threads of a set: a contiguous range, an array of their numbers, or None for all."""
BlockSubset = tuple[object, ...] | None
"""A key that identifies which threads of each block are active, if they are the same in every block; else None.

The empty tuple stands for all threads.
"""
Sides = tuple[tuple[int, int], ...]
"""(extent, stride in elements) of each dimension, outermost first."""
_MAX_VIEWS = 1024
"""Views that a layout caches."""
NO_AXIS: Final = (0, 0, 0)
AXES: Final = ((1, 0, 0), (0, 1, 0), (0, 0, 1))


def index_in(shape: Sequence[int], number: int) -> int | tuple[int, ...]:
    """Return the index of the element with a row-major number, as the source states it."""
    index = []
    for side in reversed(shape):
        index.append(number % side)
        number //= side
    return index[0] if len(index) == 1 else tuple(reversed(index))


class View(NamedTuple):
    """Elements of a flat array as a strided view."""

    first: int
    """Offset of the first thread's element from the block's first element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    injective: bool
    """Whether no element occurs twice."""


class Layout:
    """A number of blocks of one size, and everything about thread positions that depends on nothing else."""

    def __init__(self, block: Dims, blocks: int) -> None:
        self.block, self.blocks = block, blocks
        self.threads = block[0] * block[1] * block[2]
        number = np.arange(self.threads, dtype=np.int64)
        self.axes = (number % block[0], number // block[0] % block[1], number // (block[0] * block[1]))
        self._offsets: dict[Dims, np.ndarray] = {}
        self._positions: dict[tuple[int, Dims], np.ndarray] = {}
        self._views: dict[tuple[Sides, Dims, BlockSubset], View | None] = {}
        self.block_of_thread = np.repeat(np.arange(blocks, dtype=np.int64), self.threads)
        """Block number of every thread; shape (threads,)."""
        self.linear = np.tile(number, blocks)
        """Linear index of every thread within its block; shape (threads,)."""
        self.zeros = np.zeros(self.threads * blocks, np.int32)
        """A zero for every thread. Callers must not change it."""

    def offsets(self, steps: Dims) -> np.ndarray:
        """Return the dot product of ``threadIdx`` and ``steps`` for the threads of one block: i64, shape (threads,)."""
        offsets = self._offsets.get(steps)
        if offsets is None:
            total = sum((axis * step for axis, step in zip(self.axes, steps, strict=True)), np.zeros(1, np.int64))
            offsets = self._offsets[steps] = np.broadcast_to(total, self.threads)
        return offsets

    def positions(self, size: int, steps: Dims) -> np.ndarray:
        """Return the offsets of every block's threads, with ``size`` elements from block to block.

        Callers must not change the array.
        """
        positions = self._positions.get((size, steps))
        if positions is None:
            starts = np.arange(self.blocks, dtype=np.int64) * size
            positions = (starts[:, None] + self.offsets(steps)[None, :]).reshape(-1)
            self._positions[size, steps] = positions
        return positions

    def view(self, block_sides: Sides, steps: Dims, subset: BlockSubset, numbers: np.ndarray | None) -> View | None:
        """Return the positions of threads as a view of memory, or None if they do not form one.

        ``block_sides`` states how the blocks are spaced, ``steps`` the elements per unit of ``threadIdx`` along each
        axis. ``numbers`` are the linear indices of the active threads (None: all), and ``subset`` is their key.
        """
        key = (block_sides, steps, subset)
        if key not in self._views:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            self._views[key] = self._make_view(block_sides, steps, numbers)
        return self._views[key]

    def _make_view(self, block_sides: Sides, steps: Dims, numbers: np.ndarray | None) -> View | None:
        first = 0
        threads = [(self.block[axis], steps[axis]) for axis in (2, 1, 0)]
        if numbers is not None:
            offsets = self.offsets(steps)[numbers]
            gaps = offsets[1:] - offsets[:-1]
            if np.any(gaps != gaps[:1]):
                return None
            first, threads = int(offsets[0]), [(len(offsets), int(gaps[0]) if len(gaps) else 0)]
        merged: list[tuple[int, int]] = []
        for extent, stride in (*block_sides, *threads):
            if extent == 1:
                continue
            if merged and merged[-1][1] == extent * stride:
                merged[-1] = (merged[-1][0] * extent, stride)
            else:
                merged.append((extent, stride))
        merged = merged or [(1, 1)]
        shape, strides = tuple(extent for extent, _ in merged), tuple(stride for _, stride in merged)
        return View(first, shape, strides, is_injective(merged))


@lru_cache(maxsize=4)
def layout_of(block: Dims, blocks: int) -> Layout:
    """Return the layout of so many blocks. It is cached because consecutive chunks have the same layout."""
    return Layout(block, blocks)


def is_injective(sides: Sequence[tuple[int, int]]) -> bool:
    """Return whether distinct indices certainly give distinct sums; ``sides`` are (extent, stride)."""
    reach = 0
    for extent, stride in sorted(sides, key=lambda side: abs(side[1])):
        if extent == 1:
            continue
        if abs(stride) <= reach:
            return False
        reach += (extent - 1) * abs(stride)
    return True


class Chunk:
    """Consecutive blocks of a launch that are executed together, from block number ``first`` on."""

    def __init__(self, launch: Launch, first: int, blocks: int) -> None:
        self.launch, self.first, self.blocks = launch, first, blocks
        self.grid, self.block, self.warp = launch.grid, launch.block, launch.warp
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.size = blocks * self.threads
        self.layout = layout_of(self.block, blocks)
        self.epochs = np.zeros(blocks, np.int32)
        """Barriers that each block has passed. It is replaced and never changed in place."""
        self.global_epochs = self.epochs
        """The same, of the barriers that order accesses of the grid's memory."""
        self.grid_barriers = 0
        """Barriers of the whole grid that all threads have passed."""
        self.flights: Any = None
        """The asynchronous copies in flight (`races.flights.Flights`)."""
        self.interval = 0
        """Barriers that all threads of the chunk have passed together."""
        self.compares_stores = False
        """Whether a store checks if it changes anything. A loop that has run for long sets it."""
        self.changes = 0
        """Stores so far that may have changed an element."""
        self.warp_epochs = self.layout.zeros
        """Warp barriers that each thread has passed. It is replaced and never changed in place."""
        self.one_dimensional = self.block[1] == self.block[2] == self.grid[1] == self.grid[2] == 1
        self._block_indices: dict[int, np.ndarray] = {}
        self._bounds: dict[int, tuple[int, int]] = {}

    @cached_property
    def exited(self) -> np.ndarray:
        """Flags of the threads that have returned; kept for kernels with warp barriers only."""
        return np.zeros(self.size, bool)

    def leave(self, lanes: ThreadSet) -> None:
        """Record that threads return."""
        self.exited[slice(None) if lanes.selection is None else lanes.selection] = True

    def block_indices(self, axis: int) -> np.ndarray:
        """Return the ``blockIdx`` of every block along an axis: i64, shape (blocks,)."""
        indices = self._block_indices.get(axis)
        if indices is None:
            inner = int(np.prod(self.grid[:axis], dtype=np.int64))
            numbers = np.arange(self.first, self.first + self.blocks, dtype=np.int64)
            indices = self._block_indices[axis] = numbers // inner % self.grid[axis]
        return indices

    def block_bounds(self, axis: int) -> tuple[int, int]:
        """Return the smallest and the largest ``blockIdx`` along an axis."""
        bounds = self._bounds.get(axis)
        if bounds is None:
            indices = self.block_indices(axis)
            bounds = self._bounds[axis] = (int(indices.min()), int(indices.max()))
        return bounds

    def first_block_offset(self, jumps: Dims) -> int:
        """Return the dot product of the first block's ``blockIdx`` and ``jumps``."""
        remaining, offset = self.first, 0
        for side, jump in zip(self.grid, jumps, strict=True):
            offset += remaining % side * jump
            remaining //= side
        return offset

    def block_sides(self, jumps: Dims) -> Sides | None:
        """Return how the blocks are spaced, or None if the chunk is not made of whole rows of the grid."""
        row = self.grid[0]
        if self.first % row + self.blocks <= row:
            return ((self.blocks, jumps[0]),)
        rows = self.blocks // row
        if self.first % row or self.blocks % row or self.first // row % self.grid[1] + rows > self.grid[1]:
            return None
        return (rows, jumps[1]), (row, jumps[0])


class ThreadSet:
    """The active threads of a chunk, as positions."""

    __slots__ = ("_blocks", "_linear", "_numbers", "chunk", "sample", "selection", "size", "subset")

    def __init__(self, chunk: Chunk, selection: Selection = None) -> None:
        self.chunk, self.selection = chunk, selection
        self.subset: BlockSubset = () if selection is None else None
        self._blocks: np.ndarray | None = None
        self._linear: np.ndarray | None = None
        self._numbers: np.ndarray | None = None
        self.sample: Any = None
        """Those of them whose work is counted (`work.counter.Sample`); None until it is known."""
        if selection is None:
            self.size = chunk.size
        elif isinstance(selection, slice):
            self.size = selection.stop - selection.start
        else:
            self.size = len(selection)

    def sub(self, selection: Selection) -> Self:
        """Return some of the threads, selected by their positions in this set."""
        if selection is None:
            return self
        own = self.selection
        if own is None:
            return type(self)(self.chunk, selection)
        if isinstance(own, slice):
            if isinstance(selection, slice):
                return type(self)(self.chunk, slice(own.start + selection.start, own.start + selection.stop))
            return type(self)(self.chunk, selection + own.start)
        return type(self)(self.chunk, own[selection])

    def select(self, values: np.ndarray) -> np.ndarray:
        """Return the active threads' values, from an array with one value for each thread of the chunk."""
        return values if self.selection is None else values[self.selection]

    @property
    def subset_numbers(self) -> np.ndarray:
        """Linear indices of the active threads of a block; only if they are the same in every block (``subset``)."""
        if self._numbers is None:
            threads = self.chunk.threads
            selection = self.selection
            assert isinstance(selection, np.ndarray)  # noqa: S101  a subset of each block is selected by numbers
            self._numbers = selection[: np.searchsorted(selection, threads)]
        return self._numbers

    @property
    def blocks(self) -> np.ndarray:
        """Block numbers of the active threads within the chunk; shape (size,)."""
        if self._blocks is None:
            self._blocks = self.select(self.chunk.layout.block_of_thread)
        return self._blocks

    @property
    def linear(self) -> np.ndarray:
        """Linear indices of the active threads within their blocks; shape (size,)."""
        if self._linear is None:
            self._linear = self.select(self.chunk.layout.linear)
        return self._linear

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of the active threads within the chunk; shape (size,)."""
        if self.selection is None:
            return np.arange(self.chunk.size)
        if isinstance(self.selection, slice):
            return np.arange(self.selection.start, self.selection.stop)
        return self.selection

    @property
    def identities(self) -> np.ndarray:
        """Numbers of the active threads within the launch, block by block; shape (size,)."""
        return self.numbers + self.chunk.first * self.chunk.threads
