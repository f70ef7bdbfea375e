"""Shadow memory: records the accesses of an array, at next to no cost as long as no race is possible.

Races are impossible in an array that is only read, only changed atomically, accessed by each thread at elements that
formulas show to be disjoint, or accessed nowhere twice. The records of a block's own array begin again at each barrier
of all threads. If every block does the same, whether a block's threads overlap is computed once.

While races are impossible, accesses are only logged. The first access after which a race is possible causes all logged
accesses since the barrier to be replayed element by element by the `rule`: interpreted while there is little to do, and
compiled (`compiled_rule`) from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.layout import BlockSubset, Layout, is_injective
from windtunnel.emulator.common.symbolic import AffinePositions, AffineValue, each_position
from windtunnel.emulator.races.findings import ATOMIC, ATOMIC_READ, READ, WRITE
from windtunnel.emulator.races.records import FLAGS, Changes, PythonBudget, Records, compiled_functions, is_equal
from windtunnel.emulator.races.rule import Access, CheckedArray
from windtunnel.runtime.interface import Dims

_MAX_LOGGED = 4096
"""Accesses that are logged before they are replayed."""
_MAX_POSITIONS = 1 << 20
"""Positions that the logged accesses may hold together."""
_CALL_WORK = 4_000
"""Work of one access in NumPy apart from its threads."""
_CACHED_BYTES = 1 << 24
"""Size of a layout's block footprints above which they are dropped."""


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
_BITS = {READ: 1, WRITE: 2, ATOMIC: 4, ATOMIC_READ: 8}
_MAY_RACE = np.array([not (kinds in (1, 8, 9) or kinds & ~12 == 0) for kinds in range(16)])
"""For each union of kinds, whether accesses of several threads may race: not if all only read or all are atomic."""


@dataclass
class _FootprintCache:
    """The block footprints of a layout, kept from launch to launch."""

    roots: dict[int, BlockFootprint] = field(default_factory=dict)
    """By the size of the array, the footprint of a block that has accessed nothing."""
    bytes: int = 0


_FOOTPRINTS: WeakKeyDictionary[Layout, _FootprintCache] = WeakKeyDictionary()


class BlockFootprint:
    """The elements that the threads of one block have accessed since a barrier, if every block does the same."""

    __slots__ = ("_kinds", "_next", "_owner", "rewrites")

    def __init__(self, owner: np.ndarray, kinds: np.ndarray, *, rewrites: bool = False) -> None:
        self._owner, self._kinds = owner, kinds
        self.rewrites = rewrites
        """Whether the last access wrote elements that had been written."""
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
        rewrites = kind == WRITE and bool((kinds[places] & _BITS[WRITE]).any())
        before = owner[places]
        owner[places] = numbers
        is_shared = (owner[places] != numbers) | ((before != _NOBODY) & (before != numbers))
        owner[places[is_shared]] = _SEVERAL
        kinds[places] |= _BITS[kind]
        may_race = (owner == _SEVERAL) & _MAY_RACE[kinds]
        return None if may_race.any() else BlockFootprint(owner, kinds, rewrites=rewrites)


class SingleAccess:
    """The elements of the grid's array that were accessed at all.

    No race is possible while no element is accessed again, except by the same thread in the directly following access.
    """

    def __init__(self, size: int) -> None:
        self._touched = np.zeros(size, bool)
        self._last: tuple[Access, np.ndarray] | None = None
        self.repeats = False
        """Whether the last access was to the same elements by the same threads as the one before."""

    def add(self, access: Access) -> bool:
        """Add an access and return whether a race is still impossible. If not, the object is of no further use."""
        places = np.require(each_position(access.position, access.lanes.size), np.int64, FLAGS)
        last = self._last
        self.repeats = last is not None and _same_threads(access, last[0]) and np.array_equal(places, last[1])
        if self.repeats:
            return True
        self._last = (access, places)
        if PythonBudget.allows(access.lanes.size + _CALL_WORK):
            is_new = not self._touched[places].any() and len(np.unique(places)) == len(places)
            self._touched[places] = True
            return is_new
        return compiled_functions()[1](self._touched, places)


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
        self.size, self.own = size, own
        self._records = Records(size, threads, warp, own=own > 0)
        self._interval = -1
        self._log: list[tuple[CheckedArray, str, Access, Changes]] = []
        self._logged_positions = 0
        self._kinds = 0
        """The kinds of all logged accesses."""
        self._patterns: DisjointPatterns | None = None
        """The formulas of all logged accesses; None if some have none or another."""
        self._written: set[int] = set()
        """Of the formulas by which elements were written, the starts."""
        self._footprint: BlockFootprint | None = None
        """For a block's array: the logged accesses, once neither kind nor formulas exclude a race."""
        self._single: SingleAccess | None = None
        """For the grid's array: the same."""
        self._replays = False
        """Whether accesses are recorded element by element at once."""
        self._values: np.ndarray | None = None
        """What the recorded writes have stored, if other writes are benign; otherwise that is what memory holds."""

    def read(self, array: CheckedArray, lanes: Lanes, line: int, position: Any) -> None:
        """Record that threads read elements. Raises DataRace."""
        self._access(READ, array, lanes, line, position, None)

    def write(self, array: CheckedArray, lanes: Lanes, line: int, position: Any, value: Any) -> None:
        """Record that threads write a ``value`` (one, or one for each) to elements, before they do. Raises DataRace."""
        self._access(WRITE, array, lanes, line, position, value)

    def change(self, array: CheckedArray, lanes: Lanes, line: int, position: Any, failed: np.ndarray | None) -> None:
        """Record that threads change or read elements atomically. Raises DataRace.

        ``failed`` are flags of the threads that only read: those whose compare-and-swap did not succeed, and all of an
        atomic load. None if all change their elements.
        """
        if failed is None or not failed.any():
            self._access(ATOMIC, array, lanes, line, position, None)
        elif failed.all():
            self._access(ATOMIC_READ, array, lanes, line, position, None)
        else:
            places = each_position(position, lanes.size)
            for kind, flags in ((ATOMIC_READ, failed), (ATOMIC, ~failed)):
                some = np.flatnonzero(flags)
                self._access(kind, array, lanes.sub(some), line, places[some], None)

    def _access(self, kind: str, array: CheckedArray, lanes: Lanes, line: int, position: Any, value: Any) -> None:
        chunk = lanes.chunk
        benign = array.launch.program.benign_lines
        if line in benign:
            return
        if benign and self._values is None:
            self._values = array.flat.copy()
        epochs = chunk.epochs if self.own else chunk.global_epochs
        access = Access(lanes, line, position, epochs, chunk.warp_epochs)
        if self.own and chunk.interval != self._interval:
            # A barrier of all threads orders everything before it before everything after it.
            self._interval, self._replays, self._logged_positions = chunk.interval, False, 0
            self._log.clear()
        elif not self.own and chunk.grid_barriers != self._interval:
            self._interval = chunk.grid_barriers
            if self._log or self._replays:
                self._clear()
        if self._replays or not self._add_to_log(kind, array, access, value):
            self._replays = True
            for logged_array, logged_kind, logged, changes in self._log:
                self._records.add(logged_kind, logged_array, logged, None, changes)
            self._log.clear()
            self._records.add(kind, array, access, value, before=self._stored(array))
        if kind == WRITE and self._values is not None:
            self._values[each_position(position, lanes.size)] = value

    def _clear(self) -> None:
        """Forget all accesses: a barrier of the grid orders them before everything after it."""
        records = self._records
        if self._replays:
            self._records = Records(records.size, records.threads, records.warp, own=records.own)
        self._replays, self._logged_positions, self._single = False, 0, None
        self._log.clear()

    def _stored(self, array: CheckedArray) -> np.ndarray:
        """Return the values that the recorded writes have stored."""
        return array.flat if self._values is None else self._values

    def _add_to_log(self, kind: str, array: CheckedArray, access: Access, value: Any) -> bool:
        """Log an access if no race with the logged accesses is possible; return whether it was logged."""
        position = access.position
        index = position.index if isinstance(position, AffinePositions) else None
        self._add_pattern(kind, position)
        if _MAY_RACE[self._kinds] and (self._patterns is None or not self._patterns.are_disjoint):
            if not self._touches_alone(kind, access):
                return False
            rewrites = self._rewrites
        else:
            rewrites = index is not None and index.start in self._written
            if index is None or access.lanes.selection is not None:
                self._logged_positions += access.lanes.size
        if len(self._log) >= _MAX_LOGGED or self._logged_positions > _MAX_POSITIONS:
            return False
        changes = self._changes(array, position, value) if kind == WRITE and rewrites else None
        if kind == WRITE and index is not None:
            self._written.add(index.start)
        self._log.append((array, kind, access if self.own else _without_caches(access), changes))
        return True

    def _add_pattern(self, kind: str, position: Any) -> None:
        """Add the kind and the formula of an access to those of the logged ones."""
        is_affine = isinstance(position, AffinePositions)
        if not self._log:
            self._kinds, self._footprint = _BITS[kind], None
            self._written.clear()
            self._patterns = DisjointPatterns(position) if is_affine else None
            return
        self._kinds |= _BITS[kind]
        if self._patterns is not None and not (is_affine and self._patterns.add(position.index)):
            self._patterns = None

    def _touches_alone(self, kind: str, access: Access) -> bool:
        return self._fits_footprint(kind, access) if self.own else self._is_single(access)

    @property
    def _rewrites(self) -> bool:
        """Whether the last access may have written elements that had been written, as footprint or single access."""
        if self.own:
            return self._footprint is not None and self._footprint.rewrites
        return self._single is not None and self._single.repeats

    def _changes(self, array: CheckedArray, position: Any, value: Any) -> Changes:
        """Return which elements of an access a value changes; None in strict mode, in which values do not matter."""
        if array.launch.strict:
            return None
        stored = self._stored(array)
        elements = position.take(stored, copied=False) if isinstance(position, AffinePositions) else stored[position]
        changed = ~np.asarray(is_equal(elements, value))
        if not changed.any():
            return None
        if changed.all():
            return True
        self._logged_positions += changed.size
        return changed

    def _fits_footprint(self, kind: str, access: Access) -> bool:
        footprint = self._footprint
        if footprint is None:
            footprint = BlockFootprint.empty(access, self.own)
            for _, logged_kind, logged, _ in self._log:
                footprint = footprint.after(logged_kind, logged)
                if footprint is None:
                    return False
        self._footprint = footprint.after(kind, access)
        return self._footprint is not None

    def _is_single(self, access: Access) -> bool:
        if self._single is None:
            self._single = SingleAccess(self.size)
            if not all(self._single.add(logged) for _, _, logged, _ in self._log):
                return False
        return self._single.add(access)


def _without_caches(access: Access) -> Access:
    """Return an access without the arrays that its lanes and positions cache, since a launch may log many accesses."""
    lanes = Lanes(access.lanes.chunk, access.lanes.selection)
    lanes.subset = access.lanes.subset
    position = access.position
    if isinstance(position, AffinePositions):
        position = AffinePositions(position.index.at(lanes), position.size)
    return access._replace(lanes=lanes, position=position)
