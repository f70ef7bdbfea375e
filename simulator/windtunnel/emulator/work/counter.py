"""Counts what threads in lockstep do: operations of statements, and accesses to memory as warps make them.

Device memory is accessed in sectors of 32 bytes: a request of a warp touches as many sectors as its threads' elements
lie in (NVIDIA, Nsight Compute documentation, "Memory Tables"). Shared memory has 32 banks of 4 bytes: a request takes
as many passes as a bank has different words, and one for every 128 bytes of elements at least (CUDA C++ Programming
Guide, "Shared Memory").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.core.provenance import assumed
from windtunnel.emulator.common import lanes as lane_functions
from windtunnel.emulator.common.lanes import Lanes, Side, Value
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.common.layout import Chunk
from windtunnel.emulator.common.symbolic import each_position
from windtunnel.emulator.lockstep.arrays import GlobalArray, LockstepArray, SharedArray
from windtunnel.runtime.work_counts import SECTOR_BYTES, ArrayTraffic, Traffic, WorkCounts

_BANKS, _WORD_BYTES, _LINE_BYTES = 32, 4, 128
ATOMIC_TURN_CLOCKS = assumed(
    1.0,
    0.5,
    2.0,
    "an atomic operation on one address each clock, as NVIDIA's whitepaper on Kepler GK110 states; a sector each clock",
)
"""Clocks for which a cache line is busy with a sector of an atomic request, or with a thread of a warp at an element
that others of the warp change too."""
_FLOAT_TURNS = 2.0
"""Turns of such a thread that changes a float, assumed: an addition of floats takes longer than one of integers. With
the range of a turn these are 1 to 4 clocks."""
_SPAN = 1 << 44
"""More than any address or word, so that warp and address make one number."""


class CountedChunk(Chunk):
    """A chunk whose threads' work is counted."""

    def __init__(self, launch: Launch, first: int, blocks: int, counter: WorkCounter) -> None:
        super().__init__(launch, first, blocks)
        self.counter = counter
        per_block = -(-self.threads // self.warp)
        self.warps = self.layout.block_of_thread * per_block + self.layout.linear // self.warp
        """The number of each thread's warp within the chunk; shape (threads,)."""


class WorkCounter:
    """Adds up the work of the sampled blocks."""

    def __init__(self, counts: WorkCounts) -> None:
        self.counts = counts
        self.operations: dict[str, float] = defaultdict(float)
        self.busy: dict[str, np.ndarray] = {}
        """For each array of the device, the turns of atomic operations at each cache line; shape (lines,)."""
        self._stamps: dict[tuple[str, bool], np.ndarray] = {}
        """By array and whether it is stored to, the group that touched each sector last; shape (sectors,)."""
        self._group = 0
        self._warps: dict[int, tuple[Any, int]] = {}

    def begin_group(self) -> None:
        """Begin the next group of blocks."""
        self._group += 1

    def executed(self, lanes: Lanes, operations: Mapping[str, float]) -> None:
        """Count a statement."""
        for name, count in operations.items():
            if name != "instructions":
                self.operations[name] += count * lanes.size
        self.counts.instructions += operations["instructions"] * self._active_warps(lanes)
        self.counts.thread_instructions += operations["instructions"] * lanes.size

    def barrier(self, lanes: Lanes) -> None:
        """Count a barrier of warps."""
        self.counts.barriers += self._active_warps(lanes)

    def branch(self, lanes: Lanes, yes: Side, no: Side) -> None:
        """Count a branch."""
        count = self._active_warps(lanes)
        self.counts.branches += count
        if yes is not None and no is not None:
            self.counts.divergent_branches += self._active_warps(yes[1]) + self._active_warps(no[1]) - count

    def _active_warps(self, lanes: Lanes) -> int:
        known = self._warps.get(id(lanes))
        if known is None or known[0] is not lanes:
            if len(self._warps) > 256:
                self._warps.clear()
            known = self._warps[id(lanes)] = (lanes, len(np.unique(lanes.select(lanes.chunk.warps))))  # type: ignore[attr-defined]
        return known[1]

    def memory(
        self,
        array: LockstepArray,
        kind: str,
        lanes: Lanes,
        line: int,
        indices: Sequence[Value],
        *,
        is_combined: bool = False,
    ) -> None:
        """Count an access, before it is made.

        ``kind`` is ``load``, ``store`` or ``atomic``. ``is_combined``: threads of a warp that change one element by an
        atomic operation do so at once.
        """
        places = each_position(array.position(lanes, line, indices), lanes.size)
        warps = lanes.select(lanes.chunk.warps)  # type: ignore[attr-defined]
        counts, size = self.counts, array.flat.itemsize
        if isinstance(array, SharedArray):
            traffic = {"load": counts.shared_loads, "store": counts.shared_stores, "atomic": counts.shared_atomics}[
                kind
            ]
            self._shared(
                traffic, warps, places % max(array.size, 1), size, is_atomic=kind == "atomic" and not is_combined
            )
            return
        if not isinstance(array, GlobalArray):
            self._sectors(counts.local, warps, places, size)
            return
        traffic = {"load": counts.loads, "store": counts.stores, "atomic": counts.atomics}[kind]
        if kind != "atomic":
            self._sectors(traffic, warps, places, size)
        of_array = counts.arrays.setdefault(array.name, ArrayTraffic(array.flat.nbytes))
        if kind != "store":
            of_array.loaded += self._new_bytes(array, places, stored=False)
        if kind != "load":
            of_array.stored += self._new_bytes(array, places, stored=True)
        if kind == "atomic":
            self._atomic(array, warps, places, is_combined=is_combined)

    def _new_bytes(self, array: LockstepArray, places: np.ndarray, *, stored: bool) -> int:
        """Return the bytes of the sectors that this group of blocks has not touched before, and mark them."""
        stamps = self._stamps.get((array.name, stored))
        if stamps is None:
            stamps = self._stamps[array.name, stored] = np.zeros(array.flat.nbytes // SECTOR_BYTES + 1, np.int8)
        sectors = places * array.flat.itemsize // SECTOR_BYTES
        new = np.unique(sectors[stamps[sectors] != self._group])
        stamps[new] = self._group
        return len(new) * SECTOR_BYTES

    def _atomic(self, array: LockstepArray, warps: np.ndarray, places: np.ndarray, *, is_combined: bool) -> None:
        """Count atomic operations, and how long they keep their cache lines busy.

        A sector is accessed once for each thread of a warp at one of its elements, unless these are combined.
        """
        size, traffic = array.flat.itemsize, self.counts.atomics
        elements, repeats = np.unique(warps * _SPAN + places, return_counts=True)
        traffic.elements += len(places)
        traffic.requests += len(np.unique(warps))
        traffic.conflicts += float((repeats - 1).sum())
        if is_combined:
            repeats = np.ones_like(repeats)
        in_sectors = elements // _SPAN * _SPAN + elements % _SPAN * size // SECTOR_BYTES
        sectors, first = np.unique(in_sectors, return_index=True)
        traffic.sectors += float(np.maximum.reduceat(repeats, first).sum())
        lines = elements // _SPAN * _SPAN + elements % _SPAN * size // _LINE_BYTES
        requests, first = np.unique(lines, return_index=True)
        in_line = np.bincount(np.searchsorted(requests, sectors // _SPAN * _SPAN + sectors % _SPAN // 4))
        each = _FLOAT_TURNS if array.flat.dtype.kind == "f" else 1.0
        again = np.maximum.reduceat(repeats, first)
        turns = np.maximum(in_line, np.where(again > 1, each, 1.0) * again)
        busy = self.busy.setdefault(array.name, np.zeros(array.flat.nbytes // _LINE_BYTES + 1))
        np.add.at(busy, requests % _SPAN, turns)

    @staticmethod
    def _sectors(traffic: Traffic, warps: np.ndarray, places: np.ndarray, size: int) -> None:
        distinct = np.unique(warps * _SPAN + places * size // SECTOR_BYTES)
        traffic.requests += len(np.unique(distinct // _SPAN))
        traffic.sectors += len(distinct)
        traffic.elements += len(places)

    @staticmethod
    def _shared(traffic: Traffic, warps: np.ndarray, places: np.ndarray, size: int, *, is_atomic: bool) -> None:
        words = places * size // _WORD_BYTES
        keys = warps * _SPAN + words
        # Integer additions to one word are combined: NVRTC 12.9 makes ATOMS.POPC.INC of those of 1 (assumed for all).
        # It makes a loop with a compare-and-swap, ATOMS.CAST.SPIN, of additions of floats.
        distinct = np.sort(keys) if is_atomic else np.unique(keys)
        banks, in_bank = np.unique(distinct // _SPAN * _BANKS + distinct % _SPAN % _BANKS, return_counts=True)
        requests, first = np.unique(banks // _BANKS, return_index=True)
        passes = np.maximum.reduceat(in_bank, first) if len(first) else in_bank
        # Elements of 8 bytes are two words each, in neighbouring banks: half a warp at a time.
        width = max(size // _WORD_BYTES, 1)
        traffic.requests += len(requests)
        traffic.wavefronts += float(passes.sum()) * width
        traffic.conflicts += float((passes - 1).sum()) * width
        traffic.elements += len(places)


class CountedArray:
    """An array whose accesses are counted."""

    def __init__(self, array: LockstepArray, counter: WorkCounter) -> None:
        self._array, self._counter = array, counter

    def side(self, number: int) -> np.int32:
        """Return the length of a side."""
        return self._array.side(number)

    def load(self, lanes: Lanes, line: int, *indices: Value, copied: bool = False) -> Value:
        """Return elements."""
        self._counter.memory(self._array, "load", lanes, line, indices)
        return self._array.load(lanes, line, *indices, copied=copied)

    def store(self, lanes: Lanes, line: int, value: Value, *indices: Value) -> None:
        """Set elements."""
        self._counter.memory(self._array, "store", lanes, line, indices)
        self._array.store(lanes, line, value, *indices)

    def atomic(
        self,
        lanes: Lanes,
        line: int,
        op: str,
        values: Sequence[Value],
        used: bool,
        *indices: Value,
        of_block: bool = False,
    ) -> Value:
        """Change elements."""
        places = self._array.position(lanes, line, indices)
        # Where all threads change one element, NVRTC 12.9 makes one operation of a warp (VOTE, POPC or REDUX).
        is_integer = self._array.flat.dtype.kind != "f" and op not in ("exch", "cas")
        is_one = isinstance(places, int) or isinstance(self._array, SharedArray)
        self._counter.memory(self._array, "atomic", lanes, line, indices, is_combined=is_integer and is_one)
        return self._array.atomic(lanes, line, op, values, used, *indices)


def counted_branch(lanes: Any, condition: Value) -> tuple[Side, Side]:
    """Return the threads that take a branch and those that do not, and count it."""
    yes, no = lane_functions.branch(lanes, condition)
    lanes.chunk.counter.branch(lanes, yes, no)
    return yes, no
