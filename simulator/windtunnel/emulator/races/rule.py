"""The rule for data races in lockstep execution.

Two threads race if both access one element, the kinds of their accesses conflict, and nothing orders the accesses. A
thread's own accesses are ordered, `syncwarp` orders those of a warp's threads, and barriers those of a block's threads.
Blocks are not ordered at all.

=============== =================================================
kind            conflicts with
=============== =================================================
read            plain write, atomic change
plain write     everything; another plain write of an equal value only in strict mode
atomic change   read, plain write
atomic read     plain write (a compare-and-swap that fails is one)
=============== =================================================

For each kind, an element's record holds a `set` of accesses: two accesses that stand for all. Its level is the widest
scope within which the recorded accesses are unordered: one thread (level 0: the last access alone), one warp (1), one
block (2) or the grid (3). A later access is unordered with one of the two if and only if it is unordered with any
access of the set, because an access that is newer in the same scope is ordered after the older ones. So the rule is
exact, for any number of threads.

Plain writes conflict only if their values differ, so a newer write does not stand for an older one of another value.
The record therefore states in which scope the set has two values, with the last write of another value than the
element's. Within a scope that is unordered all values are equal, or a race was reported.

The functions are plain Python. They are interpreted on lists while there is little to do (`shadow_memory`), and
compiled by Numba from then on (`compiled_rule`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.common.symbolic import Position
from windtunnel.emulator.races.findings import ATOMIC, ATOMIC_READ, READ, WRITE


class CheckedArray(Protocol):
    """An array whose accesses are checked."""

    launch: Launch
    name: str
    flat: np.ndarray

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """Return the index of the element at a position of the flat array."""


class Access(NamedTuple):
    """One access of many threads."""

    lanes: Lanes
    line: int
    position: Position
    epochs: np.ndarray
    """Barriers that each block of the chunk has passed; shape (blocks,)."""
    warp_epochs: np.ndarray
    """Warp barriers that each thread of the chunk has passed; shape (threads,)."""


# A record is a row of numbers. `plain` records hold the sets of writes and of reads, `atomic` records those of atomic
# changes and of atomic reads. A set begins with its first access: thread (from 1; 0: none), barrier epoch, warp epoch
# and line. The second one's thread and line follow.
FIELDS: Final = 16
_FIRST, _EPOCH, _WARP_EPOCH, _LINE, _SECOND, _SECOND_LINE = 0, 1, 2, 3, 4, 5
_CHANGED: Final = 0
"""Where the set of writes or atomic changes begins."""
_READ: Final = 6
"""Where the set of reads or atomic reads begins."""
_LEVELS: Final = 12
"""Level of the set of changes, plus 4 times that of the set of reads."""
_VALUES: Final = 13
"""In which scope the plain writes have two values: 0 nowhere, 1 in all, 2 in the barrier epoch, 3 in the warp epoch.
Above these two bits, the line of the last write of another value than the element's."""
_OTHER: Final = 14
"""The thread of that write."""
_LANE: Final = 15
"""The lane, from 1, that wrote the element last in the access that wrote it last."""

KINDS: Final = (READ, WRITE, ATOMIC, ATOMIC_READ)
READS, WRITES, CHANGES, ATOMIC_READS = 0, 1, 2, 3
"""The kinds by their positions in ``KINDS``."""
CLEAN, RACE, COMPARE = 0, 1, 2
"""The outcome of an access: no race; a race; the values have to be known for the rest."""


def unordered(
    row: Any, base: int, level: int, me: int, start: int, threads: int, warp_start: int, warp: int, epoch: int,
    warp_epoch: int,
) -> int:  # fmt: skip
    """Return 0 if every access of a set is ordered before this one, else the scope and which of the two is not.

    The scope (1 grid, 2 block, 3 warp) is that of the accesses that are unordered with this one. The result is twice
    the scope, plus 1 if the unordered access is the second one.
    """
    one = row[base]
    if one == 0:
        return 0
    inside = start <= one < start + threads
    if level == 3:
        return 3 if inside else 2
    if not inside:
        return 2
    if row[base + _EPOCH] < epoch:
        return 0
    in_warp = warp_start <= one < warp_start + warp
    if level == 2:
        return 5 if in_warp else 4
    if not in_warp:
        return 4
    if row[base + _WARP_EPOCH] < warp_epoch:
        return 0
    if one != me:
        return 6
    return 7 if level == 1 else 0


def record(
    row: Any, base: int, level: int, me: int, start: int, threads: int, warp_start: int, warp: int, epoch: int,
    warp_epoch: int, line: int,
) -> int:  # fmt: skip
    """Add an access to a set, and return the new level."""
    one = row[base]
    if one != 0:
        if level == 3:
            return 3
        joins = 0
        if one < start or one >= start + threads:
            joins = 3
        elif row[base + _EPOCH] >= epoch:
            if level == 2:
                return 2
            if one < warp_start or one >= warp_start + warp:
                joins = 2
            elif row[base + _WARP_EPOCH] >= warp_epoch:
                if one == me:
                    row[base + _LINE] = line
                    return level
                joins = 1
        if joins > 0:
            row[base + _SECOND] = me
            row[base + _SECOND_LINE] = line
            return joins
    row[base] = me
    row[base + _EPOCH] = epoch
    row[base + _WARP_EPOCH] = warp_epoch
    row[base + _LINE] = line
    return 0


def witness(row: Any, base: int, found: int) -> tuple[int, int]:
    """Return thread (from 1) and line of the access that `unordered` has found."""
    if found & 1:
        return row[base + _SECOND], row[base + _SECOND_LINE]
    return row[base], row[base + _LINE]


def values_after(row: Any, level: int, differs: bool, epoch: int, warp_epoch: int) -> int:
    """Return in which scope the writes have two values after one more by a thread for which all are ordered or equal.

    ``level`` is that of the set of writes before.
    """
    mixed = int(row[_VALUES]) & 3
    if level == 3 or row[_EPOCH] > epoch:
        return mixed
    if row[_EPOCH] < epoch:
        return 1 if differs or mixed > 0 else 0
    if level < 2 and row[_WARP_EPOCH] < warp_epoch:
        return 2 if differs or mixed > 1 else mixed
    return 3 if differs else mixed


# Long: Numba compiles the rule as one flat loop over the threads.
def access(
    plain: Any,
    atomic: Any,
    has_plain: bool,
    has_atomic: bool,
    kind: int,
    strict: bool,
    alone: bool,
    begin: int,
    places: Any,
    place: int,
    numbers: Any,
    number: int,
    size: int,
    base: int,
    threads: int,
    warp: int,
    epochs: Any,
    warp_epochs: Any,
    line: int,
    values: Any,
    before: Any,
    outcome: Any,
) -> int:
    """Check and record an access of ``size`` threads, from the thread ``begin`` on.

    Thread ``numbers[i]`` of the chunk (or ``number + i`` if ``numbers`` is empty) accesses element
    ``place + places[i]`` (or ``place + i`` if ``places`` is empty).

    Args:
        plain: A record for each element of the array, of its plain accesses.
        atomic: The same of its atomic operations.
        has_plain: Whether there are any plain accesses.
        has_atomic: Whether there are any atomic operations.
        kind: ``READS``, ``WRITES``, ``CHANGES`` or ``ATOMIC_READS``.
        strict: Whether plain writes of equal values conflict.
        alone: Whether the threads of only one block access each element.
        begin: The first thread to check.
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
        values: For a write, a number for each thread's value, equal where the values are; empty if not known yet.
        before: The numbers of the elements' values before the access; empty if not known yet.
        outcome: Receives ``CLEAN``, ``RACE`` or ``COMPARE``; for a race also thread, line and kind of the other access.

    Returns:
        The thread at which the check stopped; ``size`` if it did not.
    """
    listed, numbered, compared = len(places) > 0, len(numbers) > 0, len(values) > 0
    outcome[0] = CLEAN
    block, start, warp_start, epoch = 0, -1, -1, 0
    for i in range(begin, size):
        me = base + 1 + (numbers[i] if numbered else number + i)
        if start < 0 or me < start or me >= start + threads:
            block = (me - 1 - base) // threads
            start = base + 1 + block * threads
            epoch = int(epochs[block])
            warp_start = -1
        if warp_start < 0 or me < warp_start or me >= warp_start + warp:
            warp_start = start + (me - start) // warp * warp
        warp_epoch = int(warp_epochs[me - 1 - base])
        at = place + (places[i] if listed else i)
        found, other, other_line, other_kind = 0, 0, 0, 0
        # First the atomic operations: if all are ordered, the element holds the value of the last plain write.
        if has_atomic and kind < CHANGES:
            row = atomic[at]
            found = unordered(row, _CHANGED, row[_LEVELS] & 3, me, start, threads, warp_start, warp, epoch, warp_epoch)
            other_kind = CHANGES
            if found > 0:
                other, other_line = witness(row, _CHANGED, found)
            elif kind == WRITES:
                level = row[_LEVELS] >> 2
                found = unordered(row, _READ, level, me, start, threads, warp_start, warp, epoch, warp_epoch)
                other_kind = ATOMIC_READS
                if found > 0:
                    other, other_line = witness(row, _READ, found)
        if found == 0 and has_plain:
            row = plain[at]
            level = row[_LEVELS] & 3
            found = unordered(row, _CHANGED, level, me, start, threads, warp_start, warp, epoch, warp_epoch)
            if kind == WRITES and not strict and row[_FIRST] != 0:
                if alone and found == 0 and row[_EPOCH] < epoch:
                    row[_VALUES] = 0  # no other block can tell this write from those before the barrier
                else:
                    if not compared:
                        outcome[0] = COMPARE
                        return i
                    lane = row[_LANE]
                    if 0 < lane <= i and place + (places[lane - 1] if listed else lane - 1) == at:
                        differs = values[i] != values[lane - 1]
                    else:
                        differs = values[i] != before[i]
                    if found > 0 and not differs:
                        if row[_VALUES] & 3 >= found >> 1:
                            other, other_line = row[_OTHER], row[_VALUES] >> 2
                        else:
                            found = 0
                    elif found == 0:
                        mixed = values_after(row, level, differs, epoch, warp_epoch)
                        if differs:
                            row[_VALUES] = mixed | row[_LINE] << 2
                            row[_OTHER] = row[_FIRST]
                        else:
                            row[_VALUES] = mixed | row[_VALUES] >> 2 << 2
            other_kind = WRITES
            if found > 0 and other == 0:
                other, other_line = witness(row, _CHANGED, found)
            if found == 0 and kind in (WRITES, CHANGES):
                level = row[_LEVELS] >> 2
                found = unordered(row, _READ, level, me, start, threads, warp_start, warp, epoch, warp_epoch)
                other_kind = READS
                if found > 0:
                    other, other_line = witness(row, _READ, found)
        if found > 0:
            outcome[0], outcome[1], outcome[2], outcome[3] = RACE, other - 1, other_line, other_kind
            return i
        row = plain[at] if kind < CHANGES else atomic[at]
        levels = row[_LEVELS]
        if kind in (WRITES, CHANGES):
            level = record(row, _CHANGED, levels & 3, me, start, threads, warp_start, warp, epoch, warp_epoch, line)
            row[_LEVELS] = levels >> 2 << 2 | level
            if kind == WRITES:
                row[_LANE] = i + 1
        else:
            level = record(row, _READ, levels >> 2, me, start, threads, warp_start, warp, epoch, warp_epoch, line)
            row[_LEVELS] = levels & 3 | level << 2
    return size
