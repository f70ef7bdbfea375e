"""Shadow memory: records the accesses of an array, at next to no cost as long as no race is possible.

Races are impossible in an array that is only read, only changed atomically, accessed by each thread at elements that
formulas show to be disjoint, or accessed nowhere twice. The records of a block's own array begin again at each barrier
of all threads. If every block does the same, whether a block's threads overlap is computed once.

While races are impossible, accesses are only logged. The first access after which a race is possible causes all logged
accesses since the barrier to be replayed element by element: by NumPy (`rule`) while there is little to do, and
compiled (`compiled_rule`) from then on. Both find the same races.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.layout import BlockSubset, Layout, is_injective
from windtunnel.emulator.common.symbolic import AffinePositions, AffineValue, each_position
from windtunnel.emulator.races.findings import ATOMIC, READ, WRITE
from windtunnel.emulator.races.rule import Access, CheckedArray, NumpyRecords, conflicts, equal
from windtunnel.runtime.interface import Dims

_MAX_LOGGED = 4096
"""Accesses that are logged before they are replayed."""
_MAX_POSITIONS = 1 << 20
"""Positions that the logged accesses may hold together."""
_NUMPY_WORK = 1_000_000
"""Work of a process that NumPy does, in accesses by single threads: 0.1 s, a fifth of the time to import Numba."""
_CALL_WORK = 4_000
"""Work of one access apart from its threads, in the same unit."""
_CACHED_BYTES = 1 << 24
"""Size of a layout's block footprints above which they are dropped."""
_FLAGS: Final = ("C", "W")
"""What compiled functions require of arrays: contiguous and writeable."""
_NO_PLACES = np.empty(0, np.int64)
_NO_FLAGS = np.empty(0, bool)
_THREAD_FIELDS = ("writer", "reader", "beside", "other")
_OTHER_FIELDS = (
    "write_epoch", "read_epoch", "write_warp", "read_warp", "beside_warp", "write_line", "read_line", "beside_line",
    "other_line", "atomic",
)  # fmt: skip


class _NumpyBudget:
    """The work that this process has done with NumPy instead of compiled functions."""

    done = 0

    @classmethod
    def allows(cls, access: Access) -> bool:
        """Return whether one more access fits into the budget, and charge it."""
        if cls.done < _NUMPY_WORK:
            cls.done += access.lanes.size + _CALL_WORK
        return cls.done < _NUMPY_WORK


class CompiledRecords:
    """The same as ``NumpyRecords``, several times as fast."""

    def __init__(self, size: int, threads: int, warp: int) -> None:
        from windtunnel.emulator.races import compiled_rule

        self.rule = compiled_rule
        self.threads, self.warp = threads, warp
        # Each record lies in a cache line of its own.
        line = compiled_rule.RECORD.itemsize
        buffer = np.zeros((size + 1) * line, np.uint8)
        begin = -buffer.ctypes.data % line
        self.records = buffer[begin : begin + size * line].view(compiled_rule.RECORD)
        self._read, self._write, _ = compiled_rule.functions()
        self._stamp = 0

    @classmethod
    def from_numpy(cls, numpy_records: NumpyRecords) -> CompiledRecords:
        """Return a copy of NumPy records."""
        records = cls(len(numpy_records.writer), numpy_records.threads, numpy_records.warp)
        for name in _THREAD_FIELDS:
            records.records[name] = getattr(numpy_records, name) + 1
        for name in _OTHER_FIELDS:
            records.records[name] = getattr(numpy_records, name)
        return records

    def to_numpy(self) -> NumpyRecords:
        """Return a copy as NumPy records."""
        records = NumpyRecords(0, self.threads, self.warp)
        for name in _THREAD_FIELDS:
            setattr(records, name, self.records[name].astype(np.int64) - 1)
        for name in _OTHER_FIELDS:
            setattr(records, name, self.records[name].copy())
        return records

    def read(self, array: CheckedArray, access: Access) -> None:
        """Record that threads read elements. Raises DataRace."""
        if self._read(*self._arguments(access), np.empty(access.lanes.size, np.uint8)) == self.rule.RACE:
            self.to_numpy().read(array, access)
            raise AssertionError("the compiled rule found a race that the NumPy rule did not find")

    def write(self, array: CheckedArray, access: Access, value: Any, *, atomic: bool) -> None:
        """Record that threads write elements. Raises DataRace."""
        arguments = self._arguments(access)
        result = self._write(*arguments, atomic, _NO_FLAGS)
        if result == self.rule.COMPARE_VALUES:
            position = access.position.expanded if isinstance(access.position, AffinePositions) else access.position
            same = np.broadcast_to(equal(array.flat[position], value), access.lanes.size)
            result = self._write(*arguments, atomic, np.require(same, bool, _FLAGS))
        if result == self.rule.RACE:
            self.to_numpy().write(array, access, value, atomic=atomic)
            raise AssertionError("the compiled rule found a race that the NumPy rule did not find")
        if result == self.rule.REPEATED:
            recorded = self.records["writer"][each_position(access.position, access.lanes.size)] - 1
            if conflicts(recorded, access.lanes.identities, value).any():
                self.to_numpy().check_same_access(array, access, value)

    def _arguments(self, access: Access) -> tuple[Any, ...]:
        lanes, position, selection = access.lanes, access.position, access.lanes.selection
        places, place = _NO_PLACES, 0
        if isinstance(position, AffinePositions):
            places, place = position.with_offset
        elif isinstance(position, slice):
            place = position.start
        else:
            places = np.require(each_position(position, lanes.size), np.int64, _FLAGS)
        numbers, number = _NO_PLACES, 0
        if isinstance(selection, slice):
            number = selection.start
        elif selection is not None:
            numbers = np.require(selection, np.int64, _FLAGS)
        self._stamp += 1
        base = lanes.chunk.first * self.threads
        threads = (numbers, number, lanes.size, base, self.threads, self.warp)
        return (self.records, places, place, *threads, access.epochs, access.warp_epochs, access.line, self._stamp)


class DisjointPatterns:
    """Affine positions that differ only in their start, by which no two threads ever access the same element."""

    def __init__(self, position: AffinePositions) -> None:
        index, chunk = position.index, position.lanes.chunk
        self.steps, self.jumps, self.first = index.steps, index.jumps, index.start
        self._sides = [*zip(chunk.block, index.steps, strict=True)]
        if not position.size:  # an array of the grid: other blocks' threads count too
            self._sides += zip(chunk.grid, index.jumps, strict=True)
        self._starts = {index.start}
        self._low, self._high, self._gap = index.start, index.start, 0
        self.are_disjoint = is_injective(self._sides)

    def add(self, index: AffineValue) -> bool:
        """Add a formula and return whether all formulas are still disjoint."""
        if index.start in self._starts and index.steps == self.steps and index.jumps == self.jumps:
            return self.are_disjoint
        if index.steps != self.steps or index.jumps != self.jumps:
            self.are_disjoint = False
            return False
        start = index.start
        self._starts.add(start)
        self._low, self._high = min(self._low, start), max(self._high, start)
        self._gap = gcd(self._gap, start - self.first)
        starts = ((self._high - self._low) // self._gap + 1, self._gap)
        self.are_disjoint = self.are_disjoint and is_injective([*self._sides, starts])
        return self.are_disjoint


_NOBODY, _SEVERAL = -1, -2
_BITS = {READ: 1, WRITE: 2, ATOMIC: 4}


@dataclass
class _FootprintCache:
    """The block footprints of a layout, kept from launch to launch."""

    roots: dict[int, BlockFootprint] = field(default_factory=dict)
    """By the size of the array, the footprint of a block that has accessed nothing."""
    bytes: int = 0


_FOOTPRINTS: WeakKeyDictionary[Layout, _FootprintCache] = WeakKeyDictionary()


class BlockFootprint:
    """The elements that the threads of one block have accessed since a barrier, if every block does the same."""

    __slots__ = ("_kinds", "_next", "_owner")

    def __init__(self, owner: np.ndarray, kinds: np.ndarray) -> None:
        self._owner, self._kinds = owner, kinds
        self._next: dict[tuple[str, Dims, int, BlockSubset], BlockFootprint | None] = {}

    @staticmethod
    def empty(access: Access, size: int) -> BlockFootprint:
        """Return the footprint of a block that has accessed none of ``size`` elements."""
        cache = _FOOTPRINTS.setdefault(access.lanes.chunk.layout, _FootprintCache())
        if cache.bytes > _CACHED_BYTES:
            cache.roots.clear()
            cache.bytes = 0
        if size not in cache.roots:
            cache.roots[size] = BlockFootprint(np.full(size, _NOBODY, np.int16), np.zeros(size, np.uint8))
        return cache.roots[size]

    def after(self, kind: str, access: Access) -> BlockFootprint | None:
        """Return the footprint with one more access.

        None if two threads access an element, unless both read it or both change it atomically.
        """
        lanes, position = access.lanes, access.position
        if not isinstance(position, AffinePositions) or lanes.subset is None:
            return None
        key = (kind, position.index.steps, position.index.start, lanes.subset)
        if key not in self._next:
            _FOOTPRINTS[lanes.chunk.layout].bytes += self._owner.nbytes + self._kinds.nbytes
            self._next[key] = self._with(kind, lanes, position.index)
        return self._next[key]

    def _with(self, kind: str, lanes: Lanes, index: AffineValue) -> BlockFootprint | None:
        chunk = lanes.chunk
        numbers = lanes.subset_numbers if lanes.subset else np.arange(chunk.threads)
        places = chunk.layout.offsets(index.steps)[numbers] + index.start
        owner, kinds = self._owner.copy(), self._kinds.copy()
        before = owner[places]
        owner[places] = numbers
        is_shared = (owner[places] != numbers) | ((before != _NOBODY) & (before != numbers))
        owner[places[is_shared]] = _SEVERAL
        kinds[places] |= _BITS[kind]
        may_race = (owner == _SEVERAL) & (kinds != _BITS[READ]) & (kinds != _BITS[ATOMIC])
        return None if may_race.any() else BlockFootprint(owner, kinds)


class SingleAccess:
    """The elements of the grid's array that were accessed at all.

    No race is possible while no element is accessed again, except by the same thread in the directly following access.
    """

    def __init__(self, size: int) -> None:
        self._touched = np.zeros(size, bool)
        self._last: tuple[Access, np.ndarray] | None = None

    def add(self, access: Access) -> bool:
        """Add an access and return whether a race is still impossible. If not, the object is of no further use."""
        places = np.require(each_position(access.position, access.lanes.size), np.int64, _FLAGS)
        if self._last is not None and _same_threads(access, self._last[0]) and np.array_equal(places, self._last[1]):
            return True
        self._last = (access, places)
        if _NumpyBudget.allows(access):
            is_new = not self._touched[places].any() and len(np.unique(places)) == len(places)
            self._touched[places] = True
            return is_new
        from windtunnel.emulator.races import compiled_rule

        return compiled_rule.functions()[2](self._touched, places) == compiled_rule.CLEAN


def _same_threads(a: Access, b: Access) -> bool:
    left, right = a.lanes.selection, b.lanes.selection
    if a.lanes.chunk is not b.lanes.chunk:
        return False
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left is right or np.array_equal(left, right)
    return not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray) and left == right


class ShadowMemory:
    """The accesses of an array since the launch began, or since the block began for an array of the block's own.

    ``own`` is the number of elements of each block's own array; 0 stands for an array of the grid.
    """

    def __init__(self, size: int, threads: int, warp: int, *, own: int = 0) -> None:
        self.size, self.threads, self.warp, self.own = size, threads, warp, own
        self._records: NumpyRecords | CompiledRecords | None = None
        self._interval = -1
        self._log: list[tuple[CheckedArray, str, Access]] = []
        self._logged_positions = 0
        self._kind = ""
        """The kind of all logged accesses; empty if they differ."""
        self._patterns: DisjointPatterns | None = None
        """The formulas of all logged accesses; None if some have none or another."""
        self._footprint: BlockFootprint | None = None
        """For a block's array: the logged accesses, once neither kind nor formulas exclude a race."""
        self._single: SingleAccess | None = None
        """For the grid's array: the same."""
        self._replays = False
        """Whether accesses are recorded element by element at once."""

    def read(self, array: CheckedArray, lanes: Lanes, line: int, position: Any) -> None:
        """Record that threads read elements. Raises DataRace."""
        self._access(READ, array, self._make_access(lanes, line, position), None)

    def write(self, array: CheckedArray, lanes: Lanes, line: int, position: Any, value: Any, *, atomic: bool) -> None:
        """Record that threads write elements. Raises DataRace."""
        self._access(ATOMIC if atomic else WRITE, array, self._make_access(lanes, line, position), value)

    @staticmethod
    def _make_access(lanes: Lanes, line: int, position: Any) -> Access:
        return Access(lanes, line, position, lanes.chunk.epochs, lanes.chunk.warp_epochs)

    def _access(self, kind: str, array: CheckedArray, access: Access, value: Any) -> None:
        chunk = access.lanes.chunk
        if self.own and chunk.interval != self._interval:
            # A barrier of all threads orders everything before it before everything after it.
            self._interval, self._replays, self._logged_positions = chunk.interval, False, 0
            self._log.clear()
        if not self._replays:
            if self._add_to_log(kind, array, access):
                return
            self._replays = True
            for logged_array, logged_kind, logged in self._log:
                # No two of these accesses race, so the values that they write do not matter.
                self._record(logged_kind, logged_array, logged, None)
            self._log.clear()
        self._record(kind, array, access, value)

    def _add_to_log(self, kind: str, array: CheckedArray, access: Access) -> bool:
        """Log an access if no race with the logged accesses is possible; return whether it was logged."""
        position = access.position
        index = position.index if isinstance(position, AffinePositions) else None
        if not self._log:
            self._kind, self._footprint = kind, None
            self._patterns = DisjointPatterns(position) if isinstance(position, AffinePositions) else None
        else:
            self._kind = kind if kind == self._kind else ""
            if self._patterns is not None and (index is None or not self._patterns.add(index)):
                self._patterns = None
        if self._kind not in (READ, ATOMIC) and (self._patterns is None or not self._patterns.are_disjoint):
            if not (self._fits_footprint(kind, access) if self.own else self._is_single(access)):
                return False
        elif index is None or access.lanes.selection is not None:
            self._logged_positions += access.lanes.size
        if len(self._log) >= _MAX_LOGGED or self._logged_positions > _MAX_POSITIONS:
            return False
        self._log.append((array, kind, access if self.own else _without_caches(access)))
        return True

    def _fits_footprint(self, kind: str, access: Access) -> bool:
        footprint = self._footprint
        if footprint is None:
            footprint = BlockFootprint.empty(access, self.own)
            for _, logged_kind, logged in self._log:
                footprint = footprint.after(logged_kind, logged)
                if footprint is None:
                    return False
        self._footprint = footprint.after(kind, access)
        return self._footprint is not None

    def _is_single(self, access: Access) -> bool:
        if self._single is None:
            self._single = SingleAccess(self.size)
            if not all(self._single.add(logged) for _, _, logged in self._log):
                return False
        return self._single.add(access)

    def _record(self, kind: str, array: CheckedArray, access: Access, value: Any) -> None:
        if not isinstance(self._records, CompiledRecords):
            if _NumpyBudget.allows(access):
                self._records = self._records or NumpyRecords(self.size, self.threads, self.warp)
            elif self._records is None:
                self._records = CompiledRecords(self.size, self.threads, self.warp)
            else:
                self._records = CompiledRecords.from_numpy(self._records)
        if kind == READ:
            self._records.read(array, access)
        else:
            self._records.write(array, access, value, atomic=kind == ATOMIC)


def _without_caches(access: Access) -> Access:
    """Return an access without the arrays that its lanes and positions cache, since a launch may log many accesses."""
    lanes = Lanes(access.lanes.chunk, access.lanes.selection)
    lanes.subset = access.lanes.subset
    position = access.position
    if isinstance(position, AffinePositions):
        position = AffinePositions(position.index.at(lanes), position.size)
    return access._replace(lanes=lanes, position=position)
