"""Shadow memory: records the accesses of an array, at next to no cost as long as no race is possible.

Races are impossible in an array that is only read, only changed atomically, accessed by each thread at elements that
formulas show to be disjoint, or accessed nowhere twice. The records of a block's own array begin again at each barrier
of all threads. If every block does the same, whether a block's threads overlap is computed once.

While races are impossible, accesses are only logged. The first access after which a race is possible causes all logged
accesses since the barrier to be replayed element by element by the `rule`: interpreted while there is little to do, and
compiled (`compiled_rule`) from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from windtunnel.core.errors import DataRace
from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.layout import BlockSubset, Layout, is_injective
from windtunnel.emulator.common.symbolic import AffinePositions, AffineValue, each_position
from windtunnel.emulator.races import rule
from windtunnel.emulator.races.findings import ATOMIC, FAILED, READ, WRITE, AccessReport, race
from windtunnel.emulator.races.rule import Access, CheckedArray
from windtunnel.runtime.interface import Dims

_MAX_LOGGED = 4096
"""Accesses that are logged before they are replayed."""
_MAX_POSITIONS = 1 << 20
"""Positions that the logged accesses may hold together."""
_PYTHON_WORK = 1_500_000
"""Work of a process that is not compiled: some 0.2 s, less than half of the time to import Numba. The unit is an access
by a single thread in NumPy."""
_CALL_WORK = 4_000
"""Work of one access in NumPy apart from its threads."""
_RULE_WORK = 15
"""Work of the interpreted rule for one thread."""
_CACHED_BYTES = 1 << 24
"""Size of a layout's block footprints above which they are dropped."""
_FLAGS: Final = ("C", "W")
"""What compiled functions require of arrays: contiguous and writeable."""
_LINE: Final = 64
"""Bytes of a cache line, and of a compiled record."""
_NO_PLACES = np.empty(0, np.int64)
_NO_ROWS = np.empty((0, rule.FIELDS), np.int32)

Changes = bool | np.ndarray | None
"""Which threads of a logged write change the value of their element: one flag for all or for each; None if the element
was not written before."""


class _PythonBudget:
    """The work that this process has done without compiled functions."""

    done = 0

    @classmethod
    def allows(cls, work: int) -> bool:
        """Return whether more work fits into the budget, and charge it."""
        if cls.done < _PYTHON_WORK:
            cls.done += work
        return cls.done < _PYTHON_WORK


class _Rows(dict[int, list[int]]):
    """Records of the elements that were accessed."""

    def __missing__(self, at: int) -> list[int]:
        row = self[at] = [0] * rule.FIELDS
        return row


class Records:
    """The records of an array's elements, to which the rule is applied: interpreted at first, then compiled."""

    def __init__(self, size: int, threads: int, warp: int) -> None:
        self.size, self.threads, self.warp = size, threads, warp
        self._is_compiled = False
        self._plain: Any = None
        self._atomic: Any = None

    def add(self, kind: str, array: CheckedArray, access: Access, value: Any, changes: Changes = None) -> None:
        """Check and record an access. Raises DataRace.

        ``value`` is what a plain write stores. A logged write states its ``changes`` instead, with no value.
        """
        number = rule.KINDS.index(kind)
        self._prepare(access.lanes.size, is_atomic=number in (rule.CHANGES, rule.FAILS))
        size, strict, begin = access.lanes.size, array.launch.strict, 0
        values: Any = _NO_PLACES
        before: Any = _NO_PLACES
        if number == rule.WRITES and value is None:
            before = np.zeros(size, np.int64)
            values = before if changes is None else np.require(np.broadcast_to(changes, size), np.int64, _FLAGS)
        outcome: Any = np.zeros(4, np.int64)
        who = self._arguments(access)
        function: Callable[..., int] = rule.access
        if self._is_compiled:
            function = _compiled_functions()[0]
        else:
            outcome = [0] * 4
            who = (who[0].tolist(), who[1], who[2].tolist(), *who[3:])
        plain, atomic = (_NO_ROWS if rows is None else rows for rows in (self._plain, self._atomic))
        records = (plain, atomic, self._plain is not None, self._atomic is not None, number, strict)
        while begin < size:
            begin = function(*records, begin, *who, values, before, outcome)
            if outcome[0] == rule.COMPARE:
                values, before = value_numbers(array.flat, each_position(access.position, size), value)
            elif outcome[0] == rule.RACE:
                raise self._race(array, access, kind, begin, outcome)

    def _prepare(self, threads: int, *, is_atomic: bool) -> None:
        """Create the records that an access of so many threads needs, compiled if there is much to do."""
        if not self._is_compiled and not _PythonBudget.allows(threads * _RULE_WORK):
            self._is_compiled = True
            self._plain, self._atomic = (
                None if rows is None else self._compiled_rows(rows) for rows in (self._plain, self._atomic)
            )
        if is_atomic and self._atomic is None:
            self._atomic = self._compiled_rows({}) if self._is_compiled else _Rows()
        elif not is_atomic and self._plain is None:
            self._plain = self._compiled_rows({}) if self._is_compiled else _Rows()

    def _compiled_rows(self, known: Mapping[int, Sequence[int]]) -> np.ndarray:
        """Return records for all elements, each in a cache line of its own."""
        buffer = np.zeros((self.size + 1) * _LINE, np.uint8)
        begin = -buffer.ctypes.data % _LINE
        rows = buffer[begin : begin + self.size * _LINE].view(np.int32).reshape(self.size, rule.FIELDS)
        for at, row in known.items():
            rows[at] = row
        return rows

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
        base = lanes.chunk.first * self.threads
        threads = (numbers, number, lanes.size, base, self.threads, self.warp)
        return (places, place, *threads, access.epochs, access.warp_epochs, access.line)

    @staticmethod
    def _race(array: CheckedArray, access: Access, kind: str, lane: int, outcome: Sequence[int]) -> DataRace:
        place = int(each_position(access.position, access.lanes.size)[lane])
        _, thread, line, other_kind = (int(number) for number in outcome)
        later = AccessReport(int(access.lanes.identities[lane]), kind, access.line)
        return race(
            array.launch, array.name, array.index_of(place), later, AccessReport(thread, rule.KINDS[other_kind], line)
        )


def _compiled_functions() -> tuple[Callable[..., int], Callable[[np.ndarray, np.ndarray], bool]]:
    from windtunnel.emulator.races import compiled_rule

    return compiled_rule.functions()


def value_numbers(flat: np.ndarray, positions: np.ndarray, value: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each thread's value, and for each of the elements' values: equal where the values are.

    NaN equals NaN.
    """
    before = flat[positions]
    values = np.broadcast_to(np.asarray(value).astype(flat.dtype), before.shape)
    if flat.dtype.kind in "iub":
        return values.astype(np.int64), before.astype(np.int64)
    both = np.concatenate([values, before])
    numbers = np.unique(both, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return np.ascontiguousarray(numbers[: len(values)]), np.ascontiguousarray(numbers[len(values) :])


def is_equal(a: Any, b: Any) -> Any:
    """Return whether values are equal. NaN equals NaN."""
    a, b = np.asarray(a), np.asarray(b)
    return (a == b) | ((a != a) & (b != b))  # noqa: PLR0124


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
_BITS = {READ: 1, WRITE: 2, ATOMIC: 4, FAILED: 8}
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
        places = np.require(each_position(access.position, access.lanes.size), np.int64, _FLAGS)
        last = self._last
        self.repeats = last is not None and _same_threads(access, last[0]) and np.array_equal(places, last[1])
        if self.repeats:
            return True
        self._last = (access, places)
        if _PythonBudget.allows(access.lanes.size + _CALL_WORK):
            is_new = not self._touched[places].any() and len(np.unique(places)) == len(places)
            self._touched[places] = True
            return is_new
        return _compiled_functions()[1](self._touched, places)


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
        self._records = Records(size, threads, warp)
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

    def read(self, array: CheckedArray, lanes: Lanes, line: int, position: Any) -> None:
        """Record that threads read elements. Raises DataRace."""
        self._access(READ, array, lanes, line, position, None)

    def write(self, array: CheckedArray, lanes: Lanes, line: int, position: Any, value: Any) -> None:
        """Record that threads write a ``value`` (one, or one for each) to elements, before they do. Raises DataRace."""
        self._access(WRITE, array, lanes, line, position, value)

    def change(self, array: CheckedArray, lanes: Lanes, line: int, position: Any, failed: np.ndarray | None) -> None:
        """Record that threads change elements atomically. Raises DataRace.

        ``failed`` are flags of the threads whose compare-and-swap did not succeed; None for another operation.
        """
        if failed is None or not failed.any():
            self._access(ATOMIC, array, lanes, line, position, None)
        elif failed.all():
            self._access(FAILED, array, lanes, line, position, None)
        else:
            places = each_position(position, lanes.size)
            for kind, flags in ((FAILED, failed), (ATOMIC, ~failed)):
                some = np.flatnonzero(flags)
                self._access(kind, array, lanes.sub(some), line, places[some], None)

    def _access(self, kind: str, array: CheckedArray, lanes: Lanes, line: int, position: Any, value: Any) -> None:
        chunk = lanes.chunk
        if line in array.launch.program.benign_lines:
            return
        epochs = chunk.epochs if self.own else chunk.global_epochs
        access = Access(lanes, line, position, epochs, chunk.warp_epochs)
        if self.own and chunk.interval != self._interval:
            # A barrier of all threads orders everything before it before everything after it.
            self._interval, self._replays, self._logged_positions = chunk.interval, False, 0
            self._log.clear()
        if not self._replays:
            if self._add_to_log(kind, array, access, value):
                return
            self._replays = True
            for logged_array, logged_kind, logged, changes in self._log:
                self._records.add(logged_kind, logged_array, logged, None, changes)
            self._log.clear()
        self._records.add(kind, array, access, value)

    def _add_to_log(self, kind: str, array: CheckedArray, access: Access, value: Any) -> bool:
        """Log an access if no race with the logged accesses is possible; return whether it was logged."""
        position = access.position
        index = position.index if isinstance(position, AffinePositions) else None
        if not self._log:
            self._kinds, self._footprint = _BITS[kind], None
            self._written.clear()
            self._patterns = DisjointPatterns(position) if isinstance(position, AffinePositions) else None
        else:
            self._kinds |= _BITS[kind]
            if self._patterns is not None and (index is None or not self._patterns.add(index)):
                self._patterns = None
        rewrites = index is not None and kind == WRITE and index.start in self._written
        if _MAY_RACE[self._kinds] and (self._patterns is None or not self._patterns.are_disjoint):
            if self.own:
                if not self._fits_footprint(kind, access):
                    return False
                rewrites = self._footprint is not None and self._footprint.rewrites
            else:
                if not self._is_single(access):
                    return False
                rewrites = self._single is not None and self._single.repeats
        elif index is None or access.lanes.selection is not None:
            self._logged_positions += access.lanes.size
        if len(self._log) >= _MAX_LOGGED or self._logged_positions > _MAX_POSITIONS:
            return False
        changes: Changes = None
        if kind == WRITE:
            if index is not None:
                self._written.add(index.start)
            if rewrites and not array.launch.strict:
                changes = self._changes(array, position, value)
        self._log.append((array, kind, access if self.own else _without_caches(access), changes))
        return True

    def _changes(self, array: CheckedArray, position: Any, value: Any) -> Changes:
        """Return which elements of an access a value changes."""
        is_affine = isinstance(position, AffinePositions)
        elements = position.take(array.flat, copied=False) if is_affine else array.flat[position]
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
