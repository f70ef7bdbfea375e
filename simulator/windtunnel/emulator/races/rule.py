"""Data races: two threads that touch one element, at least one of them to write it, with nothing that orders them.

A thread's own accesses are ordered, and those of a block's threads by the barriers between them; blocks are not ordered
at all, and atomic operations only among each other. So of an element it is enough to know who wrote it last, in which
of the block's barrier intervals, and who has read it since: one reader, the last of its warp that has too in the same
interval, and one of another warp (in the same interval) or of another block. That is exact for what barriers order: an
access that is in order after the last write and the reads since is in order after all before them.

Threads that write the same value to one element do not disturb each other, and are let be, as other checkers do.

This is the rule itself, a step of NumPy after another, and what is said of a race. `tracks` has the same compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from windtunnel.core.errors import DataRace
from windtunnel.emulator.lockstep.forms import Pattern
from windtunnel.emulator.lockstep.lanes import Lanes
from windtunnel.emulator.races.findings import ATOMIC, READ, WRITE, Touch, race

_NOBODY = -1


class Access(NamedTuple):
    """Threads that read or write elements at once."""

    lanes: Lanes
    line: int
    position: Any
    """Of the elements, in the memory (``arrays.Position``)."""
    epochs: np.ndarray
    """Barriers that each block has passed by then."""
    meetings: np.ndarray
    """Meetings of its warp that each thread of the chunk has passed by then."""


class Plain:
    """Who has touched which element of an array, since the launch (or the block) began."""

    def __init__(self, size: int, threads: int, warp: int) -> None:
        self.threads, self.warp = threads, warp
        self.write_warp = np.zeros(size, np.int32)
        self.read_warp = np.zeros(size, np.int32)
        self.writer = np.full(size, _NOBODY, np.int64)
        self.write_epoch = np.zeros(size, np.int32)
        self.write_line = np.zeros(size, np.int32)
        self.atomic = np.zeros(size, bool)
        self.reader = np.full(size, _NOBODY, np.int64)
        self.read_epoch = np.zeros(size, np.int32)
        self.read_line = np.zeros(size, np.int32)
        self.beside = np.full(size, _NOBODY, np.int64)
        """Another reader, of the same warp and interval: the last."""
        self.beside_warp = np.zeros(size, np.int32)
        self.beside_line = np.zeros(size, np.int32)
        self.other = np.full(size, _NOBODY, np.int64)
        """Another reader, of another block, or else of another warp in the same interval."""
        self.other_line = np.zeros(size, np.int32)

    def read(self, memory: Any, access: Access) -> None:
        """Elements are read."""
        position, ids, epochs, blocks, meetings = self._who(access)
        lanes, line = access.lanes, access.line
        writer = self.writer[position]
        bad = (writer != _NOBODY) & (writer != ids)
        if bad.any():
            bad &= (writer // self.threads != blocks) | (self.write_epoch[position] >= epochs)
            if bad.any():
                bad &= ~self._met(meetings, ids, writer, self.write_warp[position])
            if bad.any():
                raise self._race(memory, lanes, line, position, ids, bad, READ, self.writer, self.write_line)
        reader = self.reader[position]
        mine = reader // self.threads == blocks
        older = self.read_epoch[position] < epochs
        fresh = (reader == _NOBODY) | (mine & older & ~self._afar(position))
        if fresh.any():
            self._first(_at(position, fresh), ids[fresh], epochs[fresh], line, meetings[fresh])
        again = ~fresh & (reader == ids)
        if again.any():
            self.read_line[_at(position, again)] = line
            self.read_warp[_at(position, again)] = meetings[again]
        # Of several that read one element at once one is remembered, and the others as others.
        kept = self.reader[position]
        crowd = kept != ids
        if crowd.any():
            self._others(position, ids, blocks, line, meetings, crowd, kept)

    def _others(
        self, position: Any, ids: Any, blocks: Any, line: int, meetings: Any, crowd: np.ndarray, kept: np.ndarray
    ) -> None:
        """Readers beside the one that is remembered."""
        near = crowd & (kept // self.threads == blocks)
        alike = near & (kept % self.threads // self.warp == ids % self.threads // self.warp)
        here = _at(position, alike)
        self.beside[here], self.beside_warp[here], self.beside_line[here] = ids[alike], meetings[alike], line
        for some in (near & ~alike & ~self._afar(position), crowd & ~near):
            self.other[_at(position, some)], self.other_line[_at(position, some)] = ids[some], line

    def _afar(self, position: Any) -> np.ndarray:
        """Whether a reader of another block than the one that is remembered is."""
        other = self.other[position]
        found: np.ndarray = (other != _NOBODY) & (other // self.threads != self.reader[position] // self.threads)
        return found

    def _first(self, position: Any, ids: Any, epochs: Any, line: int, warps: Any) -> None:
        self.reader[position], self.read_epoch[position], self.read_line[position] = ids, epochs, line
        self.read_warp[position] = warps
        self.beside[position] = self.other[position] = _NOBODY

    def write(self, memory: Any, access: Access, value: Any, *, atomic: bool) -> None:
        """Elements are written, atomically or a ``value`` (one, or one for each thread)."""
        position, ids, epochs, blocks, meetings = self._who(access)
        lanes, line = access.lanes, access.line
        how = ATOMIC if atomic else WRITE
        writer = self.writer[position]
        bad = (writer != _NOBODY) & (writer != ids)
        if bad.any():
            bad &= (writer // self.threads != blocks) | (self.write_epoch[position] >= epochs)
            if bad.any():
                bad &= ~self._met(meetings, ids, writer, self.write_warp[position])
            if atomic:
                bad &= ~self.atomic[position]
            elif bad.any():
                bad &= self.atomic[position] | ~equal(memory.flat[position], value)
            if bad.any():
                raise self._race(memory, lanes, line, position, ids, bad, how, self.writer, self.write_line)
        reader = self.reader[position]
        if (reader != _NOBODY).any():
            self._against_readers(memory, access, how, reader)
        self.writer[position] = ids
        self.write_epoch[position], self.write_line[position], self.atomic[position] = epochs, line, atomic
        self.write_warp[position] = meetings
        self.reader[position] = self.beside[position] = self.other[position] = _NOBODY
        if not atomic:
            self.together(memory, access, value)

    def _against_readers(self, memory: Any, access: Access, how: str, reader: np.ndarray) -> None:
        position, ids, epochs, blocks, meetings = self._who(access)
        lanes, line = access.lanes, access.line
        there = reader != _NOBODY
        mine = reader // self.threads == blocks
        now = mine & (self.read_epoch[position] >= epochs)
        beside, other = self.beside[position], self.other[position]
        met = self._met(meetings, ids, reader, self.read_warp[position])
        met_beside = self._met(meetings, ids, beside, self.beside_warp[position])
        afar = self._afar(position)
        for others, lines, bad in (
            (self.reader, self.read_line, there & (reader != ids) & (~mine | (now & ~met))),
            (self.beside, self.beside_line, there & now & (beside != _NOBODY) & (beside != ids) & ~met_beside),
            (self.other, self.other_line, there & (other != _NOBODY) & (now | afar)),
        ):
            if bad.any():
                raise self._race(memory, lanes, line, position, ids, bad, how, others, lines)

    def together(self, memory: Any, access: Access, value: Any) -> None:
        """Of several that have written one element at once, all but one find another's number there."""
        position, ids, *_ = self._who(access)
        bad = clash(self.writer[position], ids, value)
        if bad.any():
            lanes, line = access.lanes, access.line
            raise self._race(memory, lanes, line, position, ids, bad, WRITE, self.writer, self.write_line)

    def _met(self, meetings: np.ndarray, ids: np.ndarray, others: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Whether a thread and another are of one warp that has met (``syncwarp``) since."""
        mine, theirs = ids % self.threads // self.warp, others % self.threads // self.warp
        same = (ids // self.threads == others // self.threads) & (mine == theirs)
        found: np.ndarray = same & (before < meetings)
        return found

    def _who(self, access: Access) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        lanes, position = access.lanes, access.position
        if isinstance(position, Pattern):
            position = position.each
        if isinstance(position, int):
            position = np.full(lanes.size, position)
        places = lanes.places
        blocks = places + lanes.chunk.first
        return position, lanes.identities, access.epochs[places], blocks, lanes.of(access.meetings)

    def _race(
        self,
        memory: Any,
        lanes: Lanes,
        line: int,
        position: Any,
        ids: np.ndarray,
        bad: np.ndarray,
        how: str,
        others: np.ndarray,
        lines: np.ndarray,
    ) -> DataRace:
        first = int(np.flatnonzero(bad)[0])
        place = int(np.arange(position.start, position.stop)[first] if isinstance(position, slice) else position[first])
        one, other = int(ids[first]), int(others[place])
        before = int(lines[place])
        wrote = ATOMIC if self.atomic[place] else WRITE
        was = wrote if lines is self.write_line else READ
        return race(
            memory.launch, memory.name, memory.index_of(place), Touch(one, how, line), Touch(other, was, before)
        )


def _at(position: Any, some: np.ndarray) -> np.ndarray:
    """The positions of some of the threads."""
    if isinstance(position, slice):
        return np.asarray(np.flatnonzero(some) + position.start)
    found: np.ndarray = position[some]
    return found


def clash(kept: np.ndarray, ids: np.ndarray, value: Any) -> np.ndarray:
    """Of threads that wrote at once, whose element was left to another (``kept``) that wrote another value."""
    bad: np.ndarray = kept != ids
    if not bad.any():
        return bad
    values = np.broadcast_to(np.asarray(value), len(ids))
    bad &= ~equal(values[np.searchsorted(ids, kept)], values)
    return bad


def equal(one: Any, other: Any) -> Any:
    """Whether values are the same, NaN included."""
    one, other = np.asarray(one), np.asarray(other)
    return (one == other) | (np.isnan(one) & np.isnan(other))
