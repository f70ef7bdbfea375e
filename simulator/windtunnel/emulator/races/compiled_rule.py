"""The rule of `races.rule`, compiled by Numba: record record for each element, updated by accesses of many threads.

Importing Numba takes half a second, so this module is imported only when there is much to check. Each function reports
only whether there is a race. `rule.NumpyRecords` makes the finding from the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numba import njit, types

RECORD: Final = np.dtype(
    [
        ("writer", "u4"),
        ("reader", "u4"),
        ("beside", "u4"),
        ("other", "u4"),
        ("write_epoch", "i4"),
        ("read_epoch", "i4"),
        ("write_warp", "i4"),
        ("read_warp", "i4"),
        ("beside_warp", "i4"),
        ("write_line", "i4"),
        ("read_line", "i4"),
        ("beside_line", "i4"),
        ("other_line", "i4"),
        ("stamp", "i4"),
        ("atomic", "?"),
    ],
    align=True,
)
"""What ``rule.NumpyRecords`` keeps of an element, and the stamp of the last access that changed the record.

Threads are counted from 1; 0 stands for none.
"""
CLEAN, RACE, COMPARE_VALUES, REPEATED = 0, 1, 2, 3
"""No race; a race; a race unless each value equals the stored record; no race, but elements were written repeatedly."""


def compiled(function: Callable[..., int], signature: types.Type) -> Callable[..., int]:
    """Compile a function. Its machine code is cached beside the source."""
    machine_code: Callable[..., int] = njit(signature, cache=True, _nrt=False, error_model="numpy")(function)
    return machine_code


def _is_outside(other: int, first: int, threads: int) -> bool:
    """Return whether a thread, counted from 1, is outside the block of ``threads`` threads whose first is ``first``."""
    return other != 0 and (other - 1 < first or other - 1 >= first + threads)


is_outside: Final = compiled(_is_outside, types.boolean(types.uint32, types.int64, types.int64))


@cache
def functions() -> tuple[Callable[..., int], Callable[..., int], Callable[..., int]]:
    """Return ``read``, ``write`` and ``mark_once``, compiled."""
    from numba import from_dtype

    records = types.Array(from_dtype(RECORD), 1, "C")
    places = types.Array(types.int64, 1, "C")
    counts = types.Array(types.int32, 1, "C")
    flags = types.Array(types.boolean, 1, "C")
    number = types.int64
    who = (records, places, number, places, number, number, number, number, number, counts, counts, number, number)
    return (
        compiled(read, types.int64(*who, types.Array(types.uint8, 1, "C"))),
        compiled(write, types.int64(*who, types.boolean, flags)),
        compiled(mark_once, types.int64(flags, places)),
    )


# Long: Numba compiles each rule as one flat loop over the threads, without calls on records.
def read(
    records: Any,
    places: np.ndarray,
    place: int,
    numbers: np.ndarray,
    number: int,
    size: int,
    base: int,
    threads: int,
    warp: int,
    epochs: np.ndarray,
    warp_epochs: np.ndarray,
    line: int,
    stamp: int,
    scratch: np.ndarray,
) -> int:
    """Record that ``size`` threads read elements.

    Thread ``numbers[i]`` of the chunk (or ``number + i`` if ``numbers`` is empty) reads element ``place + places[i]``
    (or ``place + i`` if ``places`` is empty).

    Args:
        records: One ``RECORD`` for each element of the array.
        places: Positions, or empty.
        place: Offset of the positions.
        numbers: Numbers of the threads within the chunk, or empty.
        number: Number of the first thread if ``numbers`` is empty.
        size: Number of threads.
        base: Number of the chunk's first thread in the launch.
        threads: Threads of a block.
        warp: Threads of a warp.
        epochs: Barriers that each block of the chunk has passed.
        warp_epochs: Warp barriers that each thread of the chunk has passed.
        line: Line of the access.
        stamp: A number that no earlier access has had.
        scratch: One byte for each of the threads.

    Returns:
        ``CLEAN`` or ``RACE``. After a race, the records are unchanged.
    """
    listed, numbered = len(places) > 0, len(numbers) > 0
    start, block = 0, 0
    first = True
    # First check all accesses. No record changes before all are known to be free of races.
    for i in range(size):
        me = numbers[i] if numbered else number + i
        if me < start or me >= start + threads:
            block = me // threads
            start = block * threads
        at = place + (places[i] if listed else i)
        record = records[at]
        writer = record.writer
        if writer != 0 and writer != base + me + 1:
            other = writer - 1 - base - start
            if other < 0 or other >= threads:
                return RACE
            if record.write_epoch >= epochs[block] and (
                other // warp != (me - start) // warp or record.write_warp >= warp_epochs[me]
            ):
                return RACE
        reader = record.reader
        kind = 0
        if reader != 0:
            other = reader - 1 - base - start
            if other < 0 or other >= threads:
                kind = 2
            elif record.read_epoch >= epochs[block] or is_outside(record.other, base + start, threads):
                kind = 1
            if kind != 0:
                first = False
        scratch[i] = kind
    has_others = not first
    for i in range(size):
        me = numbers[i] if numbered else number + i
        if me < start or me >= start + threads:
            block = me // threads
            start = block * threads
        at = place + (places[i] if listed else i)
        record = records[at]
        if scratch[i] != 0:
            if record.reader == base + me + 1:
                record.read_line = line
                record.read_warp = warp_epochs[me]
            continue
        if record.stamp == stamp:
            has_others = True
        record.stamp = stamp
        record.reader = base + me + 1
        record.read_epoch = epochs[block]
        record.read_line = line
        record.read_warp = warp_epochs[me]
        record.beside = 0
        record.other = 0
    if has_others:
        for i in range(size):
            me = numbers[i] if numbered else number + i
            if me < start or me >= start + threads:
                start = me // threads * threads
            at = place + (places[i] if listed else i)
            record = records[at]
            if record.reader == base + me + 1:
                continue
            other = record.reader - 1 - base - start
            if other < 0 or other >= threads:
                record.other = base + me + 1
                record.other_line = line
            elif other // warp == (me - start) // warp:
                record.beside = base + me + 1
                record.beside_warp = warp_epochs[me]
                record.beside_line = line
            elif not is_outside(record.other, base + start, threads):
                record.other = base + me + 1
                record.other_line = line
    return CLEAN


# Long: see `read`.
def write(
    records: Any,
    places: np.ndarray,
    place: int,
    numbers: np.ndarray,
    number: int,
    size: int,
    base: int,
    threads: int,
    warp: int,
    epochs: np.ndarray,
    warp_epochs: np.ndarray,
    line: int,
    stamp: int,
    atomic: bool,
    same: np.ndarray,
) -> int:
    """Record that threads write elements, atomically or not. Most arguments are those of ``read``.

    ``same`` states whether each thread writes the value that is stored already; it is empty if that is not known.
    """
    listed, numbered = len(places) > 0, len(numbers) > 0
    start, block = 0, 0
    compared = len(same) > 0
    values = False
    for i in range(size):
        me = numbers[i] if numbered else number + i
        if me < start or me >= start + threads:
            block = me // threads
            start = block * threads
        at = place + (places[i] if listed else i)
        record = records[at]
        mine = base + me + 1
        writer = record.writer
        if writer not in (0, mine):
            other = writer - 1 - base - start
            if (
                other < 0
                or other >= threads
                or (
                    record.write_epoch >= epochs[block]
                    and (other // warp != (me - start) // warp or record.write_warp >= warp_epochs[me])
                )
            ):
                if atomic:
                    if not record.atomic:
                        return RACE
                elif record.atomic:
                    return RACE
                elif not compared:
                    values = True
                elif not same[i]:
                    return RACE
        reader = record.reader
        if reader != 0:
            other = reader - 1 - base - start
            same_block = 0 <= other < threads
            same_warp = same_block and other // warp == (me - start) // warp
            same_interval = same_block and record.read_epoch >= epochs[block]
            if reader != mine and (
                not same_block or (same_interval and not (same_warp and record.read_warp < warp_epochs[me]))
            ):
                return RACE
            if (
                same_interval
                and record.beside not in (0, mine)
                and not (same_warp and record.beside_warp < warp_epochs[me])
            ):
                return RACE
            if record.other != 0 and (same_interval or is_outside(record.other, base + start, threads)):
                return RACE
    if values:
        return COMPARE_VALUES
    repeated = False
    for i in range(size):
        me = numbers[i] if numbered else number + i
        if me < start or me >= start + threads:
            block = me // threads
            start = block * threads
        at = place + (places[i] if listed else i)
        record = records[at]
        if record.stamp == stamp:
            repeated = True
        record.stamp = stamp
        record.writer = base + me + 1
        record.write_epoch = epochs[block]
        record.write_line = line
        record.write_warp = warp_epochs[me]
        record.atomic = atomic
        record.reader = 0
        record.beside = 0
        record.other = 0
    return REPEATED if repeated and not atomic else CLEAN


def mark_once(marked: np.ndarray, places: np.ndarray) -> int:
    """Mark elements. Returns ``RACE`` at the first that is already marked, and leaves the rest unmarked."""
    for place in places:
        if marked[place]:
            return RACE
        marked[place] = True
    return CLEAN
