"""The records of an array's elements, to which the rule is applied: interpreted at first, then compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from windtunnel.core.errors import DataRace
from windtunnel.emulator.common.symbolic import AffinePositions, each_position
from windtunnel.emulator.races import rule
from windtunnel.emulator.races.findings import AccessReport, race
from windtunnel.emulator.races.rule import Access, CheckedArray

_PYTHON_WORK = 1_500_000
"""Work of a process that is not compiled: some 0.2 s, less than half of the time to import Numba. The unit is an access
by a single thread in NumPy."""
_RULE_WORK = 15
"""Work of the interpreted rule for one thread."""
FLAGS: Final = ("C", "W")
"""What compiled functions require of arrays: contiguous and writeable."""
_LINE: Final = 64
"""Bytes of a cache line, and of a compiled record."""
_MAX_ITEM: Final = 8
"""Bytes of the largest number whose bits are compared."""
_NO_PLACES = np.empty(0, np.int64)
_NO_ROWS = np.empty((0, rule.FIELDS), np.int32)

Changes = bool | np.ndarray | None
"""Which threads of a logged write change the value of their element: one flag for all or for each; None if the element
was not written before."""


class PythonBudget:
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

    def __init__(self, size: int, threads: int, warp: int, *, own: bool) -> None:
        self.size, self.threads, self.warp = size, threads, warp
        self.own = own
        """Whether the elements are those of blocks' own arrays."""
        self._is_compiled = False
        self._plain: Any = None
        self._atomic: Any = None

    def add(
        self,
        kind: str,
        array: CheckedArray,
        access: Access,
        value: Any,
        changes: Changes = None,
        *,
        before: np.ndarray | None = None,
    ) -> None:
        """Check and record an access. Raises DataRace.

        ``value`` is what a plain write stores, and ``before`` what the writes before it have stored in the array. A
        logged write states its ``changes`` instead, with no value.
        """
        number = rule.KINDS.index(kind)
        self._prepare(access.lanes.size, is_atomic=number in (rule.CHANGES, rule.ATOMIC_READS))
        size, strict, begin = access.lanes.size, array.launch.strict, 0
        values: Any = _NO_PLACES
        old: Any = _NO_PLACES
        if number == rule.WRITES and value is None:
            old = values = _zeros(size)
            if changes is not None:
                values = np.require(np.broadcast_to(changes, size), np.int64, FLAGS)
        outcome: Any = np.zeros(4, np.int64)
        who = self._arguments(access)
        function: Callable[..., int] = rule.access
        if self._is_compiled:
            function = compiled_functions()[0]
        else:
            outcome = [0] * 4
            who = (who[0].tolist(), who[1], who[2].tolist(), *who[3:])
        plain, atomic = (_NO_ROWS if rows is None else rows for rows in (self._plain, self._atomic))
        records = (plain, atomic, self._plain is not None, self._atomic is not None, number, strict, self.own)
        while begin < size:
            begin = function(*records, begin, *who, values, old, outcome)
            if outcome[0] == rule.COMPARE:
                assert before is not None  # noqa: S101  a write with a value has it
                values, old = value_numbers(before, each_position(access.position, size), value)
            elif outcome[0] == rule.RACE:
                raise self._race(array, access, kind, begin, outcome)

    def _prepare(self, threads: int, *, is_atomic: bool) -> None:
        """Create the records that an access of so many threads needs, compiled if there is much to do."""
        if not self._is_compiled and not PythonBudget.allows(threads * _RULE_WORK):
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
            places = np.require(each_position(position, lanes.size), np.int64, FLAGS)
        numbers, number = _NO_PLACES, 0
        if isinstance(selection, slice):
            number = selection.start
        elif selection is not None:
            numbers = np.require(selection, np.int64, FLAGS)
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


def compiled_functions() -> tuple[Callable[..., int], Callable[[np.ndarray, np.ndarray], bool]]:
    """Return the functions of `compiled_rule`, which imports Numba."""
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
    if flat.dtype.kind == "f" and flat.dtype.itemsize <= _MAX_ITEM:
        return _bits(values), _bits(before)
    both = np.concatenate([values, before])
    numbers = np.unique(both, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return np.ascontiguousarray(numbers[: len(values)]), np.ascontiguousarray(numbers[len(values) :])


def _bits(values: np.ndarray) -> np.ndarray:
    """Return the bits of floats as numbers, the same for all NaN and for both zeros."""
    values = values + values.dtype.type(0)
    values[np.isnan(values)] = np.nan
    return values.view(f"i{values.itemsize}").astype(np.int64)


@cache
def _all_zeros(size: int) -> np.ndarray:
    return np.zeros(size, np.int64)


def _zeros(size: int) -> np.ndarray:
    """Return so many zeros, which callers must not change."""
    return _all_zeros(1 << max(size - 1, 0).bit_length())[:size]


def is_equal(a: Any, b: Any) -> Any:
    """Return whether values are equal. NaN equals NaN."""
    a, b = np.asarray(a), np.asarray(b)
    return (a == b) | ((a != a) & (b != b))  # noqa: PLR0124
