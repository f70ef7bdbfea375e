"""The rule for data races in lockstep execution.

Two threads race if both access one element, at least one of them writes, and nothing orders the accesses. A thread's
own accesses are ordered, and barriers order those of a block's threads. Blocks are not ordered at all, and atomic
operations only among each other. Therefore it is enough to record for each element the last writer, in which barrier
interval of its block it wrote, and the readers since: one reader, the last other reader of its warp in the same
interval, and one reader of another warp (in the same interval) or of another block. For orders made by barriers this is
exact: an access that is ordered after the last write and the recorded reads is ordered after all earlier accesses.

Threads that write the same value to one element are not reported, as in other race detectors.

This module applies the rule with NumPy and makes the findings. `compiled_rule` is the same rule compiled by Numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from windtunnel.core.errors import DataRace
from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.common.symbolic import AffinePositions, Position
from windtunnel.emulator.races.findings import ATOMIC, READ, WRITE, AccessReport, race

_NOBODY = -1


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


class NumpyRecords:
    """For each element of an array, the accesses since the launch or block began that later ones may race with."""

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
        """The last other reader of the same warp and interval."""
        self.beside_warp = np.zeros(size, np.int32)
        self.beside_line = np.zeros(size, np.int32)
        self.other = np.full(size, _NOBODY, np.int64)
        """Another reader: of another block, or of another warp in the same interval."""
        self.other_line = np.zeros(size, np.int32)

    def read(self, array: CheckedArray, access: Access) -> None:
        """Record that threads read elements. Raises DataRace."""
        position, ids, epochs, blocks, warp_epochs = self._unpack(access)
        line = access.line
        writer = self.writer[position]
        bad = (writer != _NOBODY) & (writer != ids)
        if bad.any():
            bad &= self._unordered_writes(position, ids, writer, epochs, blocks, warp_epochs)
            if bad.any():
                raise self._race(array, line, position, ids, bad, READ, self.writer, self.write_line)
        reader = self.reader[position]
        same_block = reader // self.threads == blocks
        is_older = self.read_epoch[position] < epochs
        replaces = (reader == _NOBODY) | (same_block & is_older & ~self._has_distant_reader(position))
        if replaces.any():
            self._set_reader(
                _positions_of(position, replaces), ids[replaces], epochs[replaces], line, warp_epochs[replaces]
            )
        repeats = ~replaces & (reader == ids)
        if repeats.any():
            self.read_line[_positions_of(position, repeats)] = line
            self.read_warp[_positions_of(position, repeats)] = warp_epochs[repeats]
        # If several threads read one element at once, one is recorded as the reader and the others as other readers.
        recorded = self.reader[position]
        is_other = recorded != ids
        if is_other.any():
            self._add_readers(position, ids, blocks, line, warp_epochs, is_other, recorded)

    def _add_readers(
        self,
        position: Any,
        ids: Any,
        blocks: Any,
        line: int,
        warp_epochs: Any,
        is_other: np.ndarray,
        reader: np.ndarray,
    ) -> None:
        """Record the threads that read beside the recorded reader."""
        same_block = is_other & (reader // self.threads == blocks)
        same_warp = same_block & (reader % self.threads // self.warp == ids % self.threads // self.warp)
        place = _positions_of(position, same_warp)
        self.beside[place], self.beside_warp[place] = ids[same_warp], warp_epochs[same_warp]
        self.beside_line[place] = line
        for chosen in (same_block & ~same_warp & ~self._has_distant_reader(position), is_other & ~same_block):
            self.other[_positions_of(position, chosen)], self.other_line[_positions_of(position, chosen)] = (
                ids[chosen],
                line,
            )

    def _has_distant_reader(self, position: Any) -> np.ndarray:
        """Return whether the other reader is of another block than the recorded reader."""
        other = self.other[position]
        is_distant: np.ndarray = (other != _NOBODY) & (other // self.threads != self.reader[position] // self.threads)
        return is_distant

    def _set_reader(self, position: Any, ids: Any, epochs: Any, line: int, warp_epochs: Any) -> None:
        self.reader[position], self.read_epoch[position], self.read_line[position] = ids, epochs, line
        self.read_warp[position] = warp_epochs
        self.beside[position] = self.other[position] = _NOBODY

    def write(self, array: CheckedArray, access: Access, value: Any, *, atomic: bool) -> None:
        """Record that threads write elements: atomically, or a ``value`` (one, or one for each). Raises DataRace."""
        position, ids, epochs, blocks, warp_epochs = self._unpack(access)
        line = access.line
        kind = ATOMIC if atomic else WRITE
        writer = self.writer[position]
        bad = (writer != _NOBODY) & (writer != ids)
        if bad.any():
            bad &= self._unordered_writes(position, ids, writer, epochs, blocks, warp_epochs)
            if atomic:
                bad &= ~self.atomic[position]
            elif bad.any():
                bad &= self.atomic[position] | ~equal(array.flat[position], value)
            if bad.any():
                raise self._race(array, line, position, ids, bad, kind, self.writer, self.write_line)
        reader = self.reader[position]
        if (reader != _NOBODY).any():
            self._check_readers(array, access, kind, reader)
        self.writer[position] = ids
        self.write_epoch[position], self.write_line[position], self.atomic[position] = epochs, line, atomic
        self.write_warp[position] = warp_epochs
        self.reader[position] = self.beside[position] = self.other[position] = _NOBODY
        if not atomic:
            self.check_same_access(array, access, value)

    def _unordered_writes(
        self, position: Any, ids: np.ndarray, writer: np.ndarray, epochs: Any, blocks: Any, warp_epochs: Any
    ) -> np.ndarray:
        """Return whether no barrier orders each last write before this access."""
        bad = (writer // self.threads != blocks) | (self.write_epoch[position] >= epochs)
        if bad.any():
            bad &= ~self._is_warp_ordered(warp_epochs, ids, writer, self.write_warp[position])
        return np.asarray(bad)

    def _check_readers(self, array: CheckedArray, access: Access, kind: str, reader: np.ndarray) -> None:
        position, ids, epochs, blocks, warp_epochs = self._unpack(access)
        was_read = reader != _NOBODY
        same_block = reader // self.threads == blocks
        same_interval = same_block & (self.read_epoch[position] >= epochs)
        beside, other = self.beside[position], self.other[position]
        after_reader = self._is_warp_ordered(warp_epochs, ids, reader, self.read_warp[position])
        after_beside = self._is_warp_ordered(warp_epochs, ids, beside, self.beside_warp[position])
        for readers, lines, bad in (
            (self.reader, self.read_line, was_read & (reader != ids) & (~same_block | (same_interval & ~after_reader))),
            (
                self.beside,
                self.beside_line,
                was_read & same_interval & (beside != _NOBODY) & (beside != ids) & ~after_beside,
            ),
            (
                self.other,
                self.other_line,
                was_read & (other != _NOBODY) & (same_interval | self._has_distant_reader(position)),
            ),
        ):
            if bad.any():
                raise self._race(array, access.line, position, ids, bad, kind, readers, lines)

    def check_same_access(self, array: CheckedArray, access: Access, value: Any) -> None:
        """Raise DataRace if several threads have written different values to one element in this access."""
        position, ids, *_ = self._unpack(access)
        bad = conflicts(self.writer[position], ids, value)
        if bad.any():
            raise self._race(array, access.line, position, ids, bad, WRITE, self.writer, self.write_line)

    def _is_warp_ordered(
        self, warp_epochs: np.ndarray, ids: np.ndarray, others: np.ndarray, before: np.ndarray
    ) -> np.ndarray:
        """Return whether two threads are of one warp that has synchronised (``syncwarp``) since."""
        warp, other_warp = ids % self.threads // self.warp, others % self.threads // self.warp
        same_warp = (ids // self.threads == others // self.threads) & (warp == other_warp)
        is_ordered: np.ndarray = same_warp & (before < warp_epochs)
        return is_ordered

    def _unpack(self, access: Access) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return (position, thread, barrier epoch, block in the launch, warp epoch) of each active thread."""
        lanes, position = access.lanes, access.position
        if isinstance(position, AffinePositions):
            position = position.expanded
        if isinstance(position, int):
            position = np.full(lanes.size, position)
        epochs = access.epochs[lanes.blocks]
        return position, lanes.identities, epochs, lanes.blocks + lanes.chunk.first, lanes.select(access.warp_epochs)

    def _race(
        self,
        array: CheckedArray,
        line: int,
        position: Any,
        ids: np.ndarray,
        bad: np.ndarray,
        kind: str,
        others: np.ndarray,
        lines: np.ndarray,
    ) -> DataRace:
        first = int(np.flatnonzero(bad)[0])
        place = int(np.arange(position.start, position.stop)[first] if isinstance(position, slice) else position[first])
        written = ATOMIC if self.atomic[place] else WRITE
        other_kind = written if lines is self.write_line else READ
        later = AccessReport(int(ids[first]), kind, line)
        earlier = AccessReport(int(others[place]), other_kind, int(lines[place]))
        return race(array.launch, array.name, array.index_of(place), later, earlier)


def _positions_of(position: Any, chosen: np.ndarray) -> Any:
    """Return the positions of some of the threads."""
    if isinstance(position, slice):
        return np.flatnonzero(chosen) + position.start
    return position[chosen]


def conflicts(recorded: np.ndarray, ids: np.ndarray, value: Any) -> np.ndarray:
    """Return which of the threads that wrote at once wrote another value than the thread recorded as the writer."""
    bad: np.ndarray = recorded != ids
    if not bad.any():
        return bad
    values = np.broadcast_to(np.asarray(value), len(ids))
    bad &= ~equal(values[np.searchsorted(ids, recorded)], values)
    return bad


def equal(a: Any, b: Any) -> Any:
    """Return whether values are equal. NaN equals NaN."""
    a, b = np.asarray(a), np.asarray(b)
    return (a == b) | (np.isnan(a) & np.isnan(b))
