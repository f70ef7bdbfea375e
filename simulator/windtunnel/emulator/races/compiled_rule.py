"""The rule of `races`, compiled by Numba: a record for each element, and what an access of many threads does to them.

A launch may not need it: it is imported when there is much to watch, since Numba takes half a second to import. Each
function says only whether there is a race; what it is, `races.Plain` says, from the same records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
from numba import njit, types

TRACK: Final = np.dtype(
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
"""What ``races.Plain`` keeps of an element, threads counted from 1 (0: nobody), and the last access that wrote here."""
CLEAN, RACE, VALUES, SEVERAL = 0, 1, 2, 3
"""An access is in order; races; races unless the values are those that are there; was of one element several times."""


def compiled(function: Callable[..., int], signature: types.Type) -> Callable[..., int]:
    """The function, compiled; its machine code is kept beside the source."""
    made: Callable[..., int] = njit(signature, cache=True, _nrt=False, error_model="numpy")(function)
    return made


def _away(other: int, first: int, threads: int) -> bool:
    """Whether a thread, counted from 1, is none of the ``threads`` of a block, counted from 0."""
    return other != 0 and (other - 1 < first or other - 1 >= first + threads)


away: Final = compiled(_away, types.boolean(types.uint32, types.int64, types.int64))


@cache
def functions() -> tuple[Callable[..., int], Callable[..., int], Callable[..., int]]:
    """(``read``, ``write``, ``once``), compiled."""
    from numba import from_dtype

    records = types.Array(from_dtype(TRACK), 1, "C")
    places = types.Array(types.int64, 1, "C")
    counts = types.Array(types.int32, 1, "C")
    flags = types.Array(types.boolean, 1, "C")
    number = types.int64
    who = (records, places, number, places, number, number, number, number, number, counts, counts, number, number)
    return (
        compiled(read, types.int64(*who, types.Array(types.uint8, 1, "C"))),
        compiled(write, types.int64(*who, types.boolean, flags)),
        compiled(once, types.int64(flags, places)),
    )


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
    meetings: np.ndarray,
    line: int,
    stamp: int,
    scratch: np.ndarray,
) -> int:
    """Elements are read by ``size`` threads: ``place + places[i]`` (or ``place + i``) by thread ``numbers[i]`` (or
    ``number + i``) of the chunk, whose first is thread ``base`` of the launch. ``scratch``: a byte each.
    """
    listed, given = len(places) > 0, len(numbers) > 0
    start, block = 0, 0
    first = True
    # First whether all are in order, and what each finds; nothing is changed before that is known.
    for i in range(size):
        me = numbers[i] if given else number + i
        if me < start or me >= start + threads:
            block = me // threads
            start = block * threads
        at = place + (places[i] if listed else i)
        one = records[at]
        writer = one.writer
        if writer != 0 and writer != base + me + 1:
            other = writer - 1 - base - start
            if other < 0 or other >= threads:
                return RACE
            if one.write_epoch >= epochs[block] and (
                other // warp != (me - start) // warp or one.write_warp >= meetings[me]
            ):
                return RACE
        reader = one.reader
        kind = 0
        if reader != 0:
            other = reader - 1 - base - start
            if other < 0 or other >= threads:
                kind = 2
            elif one.read_epoch >= epochs[block] or away(one.other, base + start, threads):
                kind = 1
            if kind != 0:
                first = False
        scratch[i] = kind
    crowd = not first
    for i in range(size):
        me = numbers[i] if given else number + i
        if me < start or me >= start + threads:
            block = me // threads
            start = block * threads
        at = place + (places[i] if listed else i)
        one = records[at]
        if scratch[i] != 0:
            if one.reader == base + me + 1:
                one.read_line = line
                one.read_warp = meetings[me]
            continue
        if one.stamp == stamp:
            crowd = True
        one.stamp = stamp
        one.reader = base + me + 1
        one.read_epoch = epochs[block]
        one.read_line = line
        one.read_warp = meetings[me]
        one.beside = 0
        one.other = 0
    if crowd:
        for i in range(size):
            me = numbers[i] if given else number + i
            if me < start or me >= start + threads:
                start = me // threads * threads
            at = place + (places[i] if listed else i)
            one = records[at]
            if one.reader == base + me + 1:
                continue
            other = one.reader - 1 - base - start
            if other < 0 or other >= threads:
                one.other = base + me + 1
                one.other_line = line
            elif other // warp == (me - start) // warp:
                one.beside = base + me + 1
                one.beside_warp = meetings[me]
                one.beside_line = line
            elif not away(one.other, base + start, threads):
                one.other = base + me + 1
                one.other_line = line
    return CLEAN


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
    meetings: np.ndarray,
    line: int,
    stamp: int,
    atomic: bool,
    same: np.ndarray,
) -> int:
    """Elements are written; see ``read``. ``same``: who writes what is there already; empty where nobody has looked."""
    listed, given = len(places) > 0, len(numbers) > 0
    start, block = 0, 0
    looked = len(same) > 0
    values = False
    for i in range(size):
        me = numbers[i] if given else number + i
        if me < start or me >= start + threads:
            block = me // threads
            start = block * threads
        at = place + (places[i] if listed else i)
        one = records[at]
        mine = base + me + 1
        writer = one.writer
        if writer not in (0, mine):
            other = writer - 1 - base - start
            if (
                other < 0
                or other >= threads
                or (
                    one.write_epoch >= epochs[block]
                    and (other // warp != (me - start) // warp or one.write_warp >= meetings[me])
                )
            ):
                if atomic:
                    if not one.atomic:
                        return RACE
                elif one.atomic:
                    return RACE
                elif not looked:
                    values = True
                elif not same[i]:
                    return RACE
        reader = one.reader
        if reader != 0:
            other = reader - 1 - base - start
            near = 0 <= other < threads
            alike = near and other // warp == (me - start) // warp
            now = near and one.read_epoch >= epochs[block]
            if reader != mine and (not near or (now and not (alike and one.read_warp < meetings[me]))):
                return RACE
            if now and one.beside not in (0, mine) and not (alike and one.beside_warp < meetings[me]):
                return RACE
            if one.other != 0 and (now or away(one.other, base + start, threads)):
                return RACE
    if values:
        return VALUES
    several = False
    for i in range(size):
        me = numbers[i] if given else number + i
        if me < start or me >= start + threads:
            block = me // threads
            start = block * threads
        at = place + (places[i] if listed else i)
        one = records[at]
        if one.stamp == stamp:
            several = True
        one.stamp = stamp
        one.writer = base + me + 1
        one.write_epoch = epochs[block]
        one.write_line = line
        one.write_warp = meetings[me]
        one.atomic = atomic
        one.reader = 0
        one.beside = 0
        one.other = 0
    return SEVERAL if several and not atomic else CLEAN


def once(touched: np.ndarray, places: np.ndarray) -> int:
    """Touch elements: a race may be (``RACE``) where one was touched already, and then not all of them are touched."""
    for place in places:
        if touched[place]:
            return RACE
        touched[place] = True
    return CLEAN
