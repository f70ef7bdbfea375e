"""Counts what threads in lockstep do while a launch is executed: statements, and accesses to memory as warps make them.

Some groups of blocks are counted and stand for all (`Plan`). Of the statements in loops every iteration is counted; of
the accesses of one line the first ones, and later ones in windows that become rarer (`Site`).

Device memory is accessed in sectors of 32 bytes: a request of a warp touches as many sectors as its threads' elements
lie in (NVIDIA, Nsight Compute documentation, "Memory Tables"). Shared memory has 32 banks of 4 bytes: a request takes
as many passes as a bank has different words, and one for every 128 bytes of elements at least (CUDA C++ Programming
Guide, "Shared Memory"). A loaded sector stays in the L1 cache until its block's share of the cache was filled with
others; stores pass through it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.provenance import assumed
from windtunnel.emulator.common import lanes as lane_functions
from windtunnel.emulator.common.lanes import Lanes, Side, Value
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.common.layout import Chunk, ThreadSet
from windtunnel.emulator.common.symbolic import AffinePositions, Position
from windtunnel.emulator.lockstep.arrays import GlobalArray, LockstepArray, SharedArray
from windtunnel.runtime.work_counts import SECTOR_BYTES

GROUPS = 5
"""Groups of consecutive blocks that are counted in a larger launch: its begin and its end, and some between them."""
LINE_BYTES = 128
_BANKS, _WORD_BYTES = 32, 4
ATOMIC_TURN_CLOCKS = assumed(
    1.0,
    0.5,
    2.0,
    "an atomic operation on one address each clock, as NVIDIA's whitepaper on Kepler GK110 states; a sector each clock",
)
"""Clocks for which a part of the cache is busy with a sector of an atomic request, or with a thread of a warp at an
element that others of the warp change too."""
_FLOAT_TURNS = 2.0
"""Turns of such a thread that changes a float, assumed: an addition of floats takes longer than one of integers. With
the range of a turn these are 1 to 4 clocks."""
_SPAN = 1 << 44
"""More than any address or word, so that warp and address make one number."""
_SLOTS = 20
"""The L1 caches are a table of 2 to this power entries; of two sectors of one entry, the earlier one counts as lost."""
_WINDOW, _LONG_WINDOW = 8, 16
"""Consecutive executions of a line that are counted: of statements, and of accesses to device memory, which caches hold
from one to the next."""
TRAFFIC = ("elements", "requests", "sectors", "lines", "hits", "partial", "wavefronts", "conflicts")
"""What is counted of an access."""
_SECTORS, _WAVEFRONTS, _CONFLICTS = (TRAFFIC.index(name) for name in ("sectors", "wavefronts", "conflicts"))


_TABLES: list[tuple[np.ndarray, int]] = []
"""Tables of L1 caches that are not in use, and the sectors that were loaded into each."""


@dataclass(frozen=True)
class Group:
    """Consecutive blocks that are counted, and the number of blocks for which each of them stands."""

    first: int
    blocks: int
    weight: float


def plan_of(blocks: int, threads: int, group_threads: int) -> list[Group]:
    """Return the groups of a launch of so many blocks, of ``threads`` each.

    A group has at most ``group_threads`` threads, and at least one block.
    Few blocks are all counted. Otherwise the first and the last group stand for themselves, because their threads are
    often special: at the end of an array they are idle. The groups between them stand for all other blocks.
    """
    size = max(group_threads // threads, 1)
    if blocks <= GROUPS * size:
        return [Group(0, blocks, 1.0)]
    inner, between = GROUPS - 2, blocks - 2 * size
    firsts = [size + group * (between - size) // (inner - 1) for group in range(inner)]
    weight = between / (inner * size)
    return [Group(0, size, 1.0), *(Group(first, size, weight) for first in firsts), Group(blocks - size, size, 1.0)]


class CountedChunk(Chunk):
    """A chunk some of whose blocks are counted.

    Attributes:
        counter: What counts them.
        ranges: First and last thread number (exclusive) of each group within the chunk.
        group: Number of the first of these groups in the plan.
    """

    def __init__(
        self, launch: Launch, first: int, blocks: int, counter: WorkCounter, groups: list[tuple[int, int, int]]
    ) -> None:
        super().__init__(launch, first, blocks)
        self.counter = counter
        self.group, self.groups = groups[0][0], len(groups)
        self.ranges = [(start * self.threads, end * self.threads) for _, start, end in groups]
        self.bounds = np.array(self.ranges).reshape(-1)
        self.warps_of_block = -(-self.threads // self.warp)
        self._whole_warps = self.threads % self.warp == 0
        self.group_of_block, self.ordinals = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
        """For each counted block the number of its group in the chunk, and its own number among the counted ones."""
        for number, start, end in groups:
            self.group_of_block[start:end] = number - self.group
            before = sum(group.blocks for group in counter.groups[:number])
            self.ordinals[start:end] = np.arange(start, end) + first - counter.groups[number].first + before
        self.counted_blocks = sum(end - start for _, start, end in groups)

    def warp_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the numbers of the warps of threads."""
        if self._whole_warps:
            return np.asarray(numbers // self.warp)
        return np.asarray(numbers // self.threads * self.warps_of_block + numbers % self.threads // self.warp)


class Sample:
    """The counted ones of some active threads.

    Attributes:
        size: How many there are.
        threads: How many there are in each group of the chunk.
        active_warps: Warps of them in each group of the chunk.
        memo: What regular accesses to shared memory of these threads count.
    """

    __slots__ = ("_chunk", "_parts", "_places", "_selection", "active_warps", "memo", "size", "threads")

    def __init__(self, lanes: ThreadSet, chunk: CountedChunk) -> None:
        selection = lanes.selection
        self._selection, self._chunk = selection, chunk
        self._places: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self.memo: dict[object, np.ndarray] = {}
        if isinstance(selection, np.ndarray):
            ends = np.searchsorted(selection, chunk.bounds).tolist()
            self._parts = list(zip(ends[::2], ends[1::2], strict=True))
            warps = [_changes(chunk.warp_of(selection[a:b])) if a < b else 0 for a, b in self._parts]
        else:
            low, high = (0, chunk.size) if selection is None else (selection.start, selection.stop)
            ranges = [(max(a, low), min(b, high)) for a, b in chunk.ranges]
            self._parts = [(a - low, max(a, b) - low) for a, b in ranges]
            ends = chunk.warp_of(np.array([(a, b - 1) for a, b in ranges]))
            warps = [int(ends[i, 1] - ends[i, 0]) + 1 if a < b else 0 for i, (a, b) in enumerate(ranges)]
        lanes.sample = self
        self.threads = np.array([b - a for a, b in self._parts], float)
        self.active_warps = np.array(warps, float)
        self.size = sum(b - a for a, b in self._parts)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each thread, its position among the active threads, its number in the chunk and its warp's number."""
        if self._places is None:
            where = np.concatenate([np.arange(a, b) for a, b in self._parts])
            selection, chunk = self._selection, self._chunk
            if isinstance(selection, np.ndarray):
                numbers = selection[where]
            else:
                numbers = where if selection is None else where + selection.start
            self._places = where, numbers, chunk.warp_of(numbers)
        return self._places


def _changes(values: np.ndarray) -> int:
    """Return the number of different values, of which equal ones follow each other; at least one."""
    return int(np.count_nonzero(values[1:] != values[:-1])) + 1


def _begins(values: np.ndarray) -> np.ndarray:
    """Return flags of the elements that differ from the one before."""
    flags = np.empty(len(values), bool)
    flags[:1] = True
    np.not_equal(values[1:], values[:-1], out=flags[1:])
    return flags


def _lengths(begins: np.ndarray, end: int) -> np.ndarray:
    """Return the lengths of the parts that begin at these positions, of which the last one ends at ``end``."""
    lengths = np.empty(len(begins), np.int64)
    lengths[:-1], lengths[-1] = begins[1:] - begins[:-1], end - begins[-1]
    return lengths


def _ordered(values: np.ndarray) -> np.ndarray:
    """Return the values in order."""
    return np.sort(values) if (values[1:] < values[:-1]).any() else values


def _distinct(values: np.ndarray) -> np.ndarray:
    """Return the values in order, each once."""
    ordered = _ordered(values)
    return np.asarray(ordered[_begins(ordered)])


class Site:
    """What is executed again and again: a run of statements, a branch, or the accesses of one line to one array.

    The first executions are all counted. Later ones are counted in windows of consecutive ones, so that what one loads
    is still in the cache at the next; of windows about as many are counted whenever their number doubles. Each chunk
    begins anew. A window stands for as many as there are until the next one, on average.

    Args:
        figures: Number of the figures that are counted. The first one is the number of threads.
        groups: Number of the groups.
        window: Executions of a window; twice as many are counted at first.
    """

    __slots__ = ("_all", "_chunk", "_counted", "_found", "_groups", "_number", "_window", "pace", "total", "weight")

    def __init__(self, figures: int, groups: int, window: int = _WINDOW) -> None:
        self.total = np.zeros((figures, groups))
        """The figures of each group."""
        self._window = window
        self.weight = 1
        """For how many executions the one that is being counted stands."""
        self.pace = 0.0
        """Sectors that the L1 cache loaded for each active thread, at the last execution that was counted."""
        self._chunk: CountedChunk | None = None
        self._all, self._counted, self._number = 0, 0, 0

    def begin(self, lanes: ThreadSet, *, always: bool = False) -> Sample | None:
        """Record an execution by these threads; return the counted ones if it is one that is counted."""
        chunk = lanes.chunk
        if chunk is not self._chunk:
            self.flush()
            assert isinstance(chunk, CountedChunk)  # noqa: S101  only such chunks are counted
            self._chunk, self._groups = chunk, slice(chunk.group, chunk.group + chunk.groups)
            self._found = np.zeros((len(self.total), chunk.groups))
        self._all += lanes.size
        self._number = number = self._number + 1
        if number <= 2 * self._window or always:
            self.weight = 1
        elif number % self._window == 0 or number == 2 * self._window + 1:
            self.weight = self._weight_of_window()
        if not self.weight:
            return None
        self._counted += lanes.size * self.weight
        sample: Sample = lanes.sample or Sample(lanes, chunk)
        if not sample.size:
            return None
        self.add(0, sample.threads[None])
        return sample

    def _weight_of_window(self) -> int:
        """Return for how many windows the present one stands; 0 if it is not counted."""
        window = self._number // self._window
        rare = max(window.bit_length() - 2, 0)
        return 1 << rare if (window * 0x9E3779B1 & 0xFFFFFFFF) >> (32 - rare) == 0 else 0

    def add(self, first: int, figures: np.ndarray) -> None:
        """Add figures of each group, from the figure of number ``first`` on."""
        self._found[first : first + len(figures)] += figures if self.weight == 1 else figures * self.weight

    def flush(self) -> None:
        """Add what was counted in a chunk to the totals."""
        if self._chunk is not None and self._counted:
            self.total[:, self._groups] += self._found * (self._all / self._counted)
        self._chunk, self._all, self._counted, self._number = None, 0, 0, 0


class MovedSectors:
    """The sectors of one array that each group has loaded and stored."""

    def __init__(self, array: LockstepArray, number: int, groups: int) -> None:
        self.number, self.size = number, array.flat.nbytes
        self.sectors = self.size // SECTOR_BYTES + 1
        self._groups = groups
        self._marks: dict[bool, np.ndarray] = {}
        self._touched: dict[bool, list[tuple[np.ndarray, int]]] = {False: [], True: []}
        """By whether they are stored: numbers of group and sector as one, each once, and for how many each stands."""
        self._written: np.ndarray | None = None
        self.turns: np.ndarray | None = None
        """Turns of atomic operations at each line, for each group; shape (groups, lines)."""

    def mark(self, keys: np.ndarray, weight: int, *, stored: bool) -> None:
        """Record that sectors are moved, given as group x ``sectors`` + sector; new ones stand for ``weight``."""
        marks = self._marks.get(stored)
        if marks is None:
            marks = self._marks[stored] = np.zeros(self._groups * self.sectors, bool)
        new: np.ndarray = keys[~marks[keys]]
        if len(new):
            marks[new] = True
            self._touched[stored].append((_distinct(new), weight))

    def write(self, keys: np.ndarray, sizes: np.ndarray) -> None:
        """Record that bytes of sectors are written."""
        if self._written is None:
            self._written = np.zeros(self._groups * self.sectors, np.int32)
        np.add.at(self._written, keys, sizes)  # warps of one request may write parts of one sector

    def totals(self) -> dict[str, np.ndarray]:
        """Return the bytes that are moved, of each group (see `runtime.work_counts.ArrayTraffic`)."""
        (loaded, loaded_weights), (stored, stored_weights) = (self._all_touched(stored=kind) for kind in (False, True))
        is_filled = np.zeros(len(stored), bool)
        if self._written is not None:
            loads = self._marks.get(False)
            is_filled = self._written[stored] < SECTOR_BYTES
            is_filled &= True if loads is None else ~loads[stored]
        _, pairs = np.unique(loaded // self.sectors * _SPAN + loaded % self.sectors // 2, return_index=True)
        counts = {
            "loaded": (loaded, loaded_weights),
            "fetched": (loaded[pairs], loaded_weights[pairs] * 2.0),
            "stored": (stored, stored_weights),
            "filled": (stored[is_filled], stored_weights[is_filled]),
        }
        return {
            name: np.bincount(keys // self.sectors, weights, minlength=self._groups) * SECTOR_BYTES
            for name, (keys, weights) in counts.items()
        }

    def _all_touched(self, *, stored: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return all sectors, and for how many each stands."""
        parts = self._touched[stored]
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0)
        lengths = [len(keys) for keys, _ in parts]
        return np.concatenate([keys for keys, _ in parts]), np.repeat([float(w) for _, w in parts], lengths)


class WorkCounter:
    """Counts the work of the groups of a launch.

    Args:
        groups: The groups that are counted.
        operations: What a thread executes in each run of statements.
        l1_sectors: Sectors that a block's share of the L1 cache holds.
    """

    def __init__(self, groups: list[Group], operations: Sequence[Mapping[str, float]], l1_sectors: float) -> None:
        self.groups, self.operations, self._l1_sectors = groups, operations, l1_sectors
        count = len(groups)
        self.runs = [Site(2, count) for _ in operations]
        """For each run of statements, how often threads, and warps, have executed it."""
        self.branches: dict[int, Site] = {}
        """By number, how often threads, and warps, have come to a branch, and in how many of these warps they part."""
        self.barriers = Site(2, count)
        self.sites: dict[tuple[str, str, int], tuple[str, Site]] = {}
        """By kind of access, array and line: the kind of memory, and the accesses (`TRAFFIC`)."""
        self.moved: dict[str, MovedSectors] = {}
        self._blocks = sum(group.blocks for group in groups)
        table, clock = _TABLES.pop() if _TABLES else (np.zeros((2, 1 << _SLOTS), np.int64), 0)
        self._slots: np.ndarray | None = table
        """For each entry of the L1 caches the sector, and the number of sectors that had been loaded before it."""
        self._loaded = (
            clock + math.ceil(l1_sectors * self._blocks) + 1
        )  # later than all caches keep what is in the table

    def chunk(self, launch: Launch, first: int, blocks: int) -> CountedChunk | None:
        """Return a chunk of blocks of the launch as it is executed, if some of them are counted."""
        found = [
            (number, max(group.first - first, 0), min(group.first + group.blocks - first, blocks))
            for number, group in enumerate(self.groups)
            if group.first < first + blocks and first < group.first + group.blocks
        ]
        return CountedChunk(launch, first, blocks, self, found) if found else None

    def by_group(self, chunk: CountedChunk, warps: np.ndarray) -> np.ndarray:
        """Return how many of these warps, given by number and possibly several times, are in each group of a chunk."""
        if chunk.groups == 1:
            return np.array([float(len(warps))])
        groups = chunk.group_of_block[warps // chunk.warps_of_block]
        return np.bincount(groups, minlength=chunk.groups).astype(float)

    def flush(self) -> None:
        """Add what was counted in the last chunk to the totals."""
        for site in (*self.runs, *self.branches.values(), self.barriers, *(site for _, site in self.sites.values())):
            site.flush()
        if self._slots is not None:
            _TABLES.append((self._slots, self._loaded))
            self._slots = None

    # What the emitted code calls.

    def executed(self, lanes: Lanes, run: int) -> None:
        """Count a run of statements."""
        site = self.runs[run]
        sample = site.begin(lanes)
        if sample is not None:
            site.add(1, sample.active_warps[None])

    def barrier(self, lanes: Lanes) -> None:
        """Count a barrier of warps."""
        sample = self.barriers.begin(lanes)
        if sample is not None:
            self.barriers.add(1, sample.active_warps[None])

    def branch(self, lanes: Lanes, number: int, yes: Side, no: Side) -> None:
        """Count a branch."""
        site = self.branches.get(number)
        if site is None:
            site = self.branches[number] = Site(3, len(self.groups))
        sample = site.begin(lanes)
        if sample is None:
            return
        warps = sample.active_warps
        parted = np.zeros_like(warps)
        if yes is not None and no is not None:
            chunk: CountedChunk = lanes.chunk  # type: ignore[assignment]
            for _, side in (yes, no):
                parted = parted + (side.sample or Sample(side, chunk)).active_warps
            parted = parted - warps
        site.add(1, np.stack((warps, parted)))

    # What arrays call.

    def access(
        self, array: LockstepArray, kind: str, lanes: Lanes, line: int, position: Position, op: str = ""
    ) -> None:
        """Count an access to known positions. ``kind`` is ``load``, ``store`` or ``atomic``, with the operation."""
        key = (kind, array.name, line)
        found = self.sites.get(key)
        if found is None:
            is_global, is_shared = isinstance(array, GlobalArray), isinstance(array, SharedArray)
            memory = "global" if is_global else "shared" if is_shared else "local"
            window = _LONG_WINDOW if is_global else _WINDOW
            found = self.sites[key] = memory, Site(len(TRAFFIC), len(self.groups), window)
        memory, site = found
        # What keeps a line busy does not follow from a part of the operations.
        sample = site.begin(lanes, always=memory == "global" and kind == "atomic")
        if sample is None:
            self._loaded += round(site.pace * lanes.size)
            return
        chunk: CountedChunk = lanes.chunk  # type: ignore[assignment]
        site.add(1, sample.active_warps[None])
        if memory == "shared":
            site.add(_WAVEFRONTS, self._shared(array, kind, chunk, sample, position, op))
            return
        places = _places(position, sample).astype(np.int64, copy=False)  # indices of C may be unsigned
        if memory == "local":
            # The elements of one index lie one after another for all threads, as on a device for those of a warp.
            traffic, *_ = self._requests(chunk, sample, places, array.flat.itemsize)
        else:
            before = self._loaded
            traffic = self._global(array, kind, chunk, sample, places, site.weight)
            site.pace = (self._loaded - before) / lanes.size
            if kind == "atomic":
                is_combined = _is_combined(array, op, is_one=isinstance(position, int))
                traffic[0], conflicts = self._atomic(array, chunk, sample, places, is_combined=is_combined)
                site.add(_CONFLICTS, conflicts[None])
        site.add(_SECTORS, traffic)

    def _requests(
        self, chunk: CountedChunk, sample: Sample, places: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return what is counted, and for each sector of a request: the warp, the sector, and the threads at it."""
        sectors = places * size // SECTOR_BYTES if size < SECTOR_BYTES else places * (size // SECTOR_BYTES)
        keys = sample.places[2] * _SPAN + sectors
        keys = _ordered(keys)
        begins = np.flatnonzero(_begins(keys))
        distinct = keys[begins]
        warps = distinct // _SPAN
        threads = _lengths(begins, len(keys))
        traffic = np.zeros((4, chunk.groups))
        traffic[0] = self.by_group(chunk, warps)
        lines = _begins(distinct * SECTOR_BYTES // LINE_BYTES)
        traffic[1] = self.by_group(chunk, warps[lines])
        return traffic, warps, distinct - warps * _SPAN, threads

    def _global(
        self, array: LockstepArray, kind: str, chunk: CountedChunk, sample: Sample, places: np.ndarray, weight: int
    ) -> np.ndarray:
        moved = self.moved.get(array.name)
        if moved is None:
            moved = self.moved[array.name] = MovedSectors(array, len(self.moved) + 1, len(self.groups))
        size = array.flat.itemsize
        traffic, warps, sectors, threads = self._requests(chunk, sample, places, size)
        blocks = warps // chunk.warps_of_block
        keys = (chunk.group_of_block[blocks] + chunk.group) * moved.sectors + sectors
        if kind == "load":
            missed = self._missed(chunk, moved, blocks, sectors)
            traffic[2] = traffic[0] - self.by_group(chunk, warps[missed])
            moved.mark(keys[missed], weight, stored=False)
            return traffic
        if kind == "atomic":
            moved.mark(keys, weight, stored=False)
        moved.mark(keys, weight, stored=True)
        if kind == "store":
            partial = threads * size < SECTOR_BYTES
            if partial.any():
                lines = _distinct(warps[partial] * _SPAN + sectors[partial] * SECTOR_BYTES // LINE_BYTES)
                traffic[3] = self.by_group(chunk, lines // _SPAN)
            moved.write(keys, np.minimum(threads * size, SECTOR_BYTES))
        else:
            moved.write(keys, np.full(len(keys), SECTOR_BYTES))
        return traffic

    def _missed(self, chunk: CountedChunk, moved: MovedSectors, blocks: np.ndarray, sectors: np.ndarray) -> np.ndarray:
        """Return the positions of the sectors that the blocks' L1 caches do not hold, each once, and load them."""
        assert self._slots is not None  # noqa: S101  nothing is counted after the last chunk
        known, since = self._slots
        keys = (moved.number * 65_536 + blocks + chunk.first) * (1 << 32) + sectors
        # Each block has a part of the table, in which neighbouring sectors have neighbouring entries.
        part = (1 << _SLOTS) // self._blocks
        slots = (sectors + chunk.ordinals[blocks] * part + moved.number * (part // 4)) & ((1 << _SLOTS) - 1)
        kept = self._l1_sectors * chunk.counted_blocks
        missed = np.flatnonzero((known[slots] != keys) | (self._loaded - since[slots] > kept))
        if len(missed):
            _, first = np.unique(keys[missed], return_index=True)
            missed = missed[first]
            known[slots[missed]] = keys[missed]
            self._loaded += len(missed)
        since[slots] = self._loaded
        return missed

    def _atomic(
        self, array: LockstepArray, chunk: CountedChunk, sample: Sample, places: np.ndarray, *, is_combined: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the sectors and conflicts of atomic operations, and count how long they keep lines busy.

        A sector is accessed once for each thread of a warp at one of its elements, unless these are combined.
        """
        size, moved = array.flat.itemsize, self.moved[array.name]
        elements = _ordered(sample.places[2] * _SPAN + places)
        firsts = np.flatnonzero(_begins(elements))
        repeats, elements = _lengths(firsts, len(elements)), elements[firsts]
        warps, places = elements // _SPAN, elements % _SPAN
        conflicts = np.zeros(chunk.groups)
        groups = chunk.group_of_block[warps // chunk.warps_of_block]
        np.add.at(conflicts, groups, repeats - 1.0)
        if is_combined:
            repeats = np.ones_like(repeats)
        at_sector = np.flatnonzero(_begins(warps * _SPAN + places * size // SECTOR_BYTES))
        each_sector = np.maximum.reduceat(repeats, at_sector)
        sectors = np.zeros(chunk.groups)
        np.add.at(sectors, groups[at_sector], each_sector)
        lines = warps * _SPAN + places * size // LINE_BYTES
        at_line = np.flatnonzero(_begins(lines))
        in_line = np.bincount(np.searchsorted(at_line, at_sector, side="right") - 1)
        each = _FLOAT_TURNS if array.flat.dtype.kind == "f" else 1.0
        again = np.maximum.reduceat(repeats, at_line)
        turns = np.maximum(in_line, np.where(again > 1, each, 1.0) * again)
        if moved.turns is None:
            moved.turns = np.zeros((len(self.groups), moved.size // LINE_BYTES + 1))
        np.add.at(moved.turns, (groups[at_line] + chunk.group, lines[at_line] % _SPAN), turns)
        return sectors, conflicts

    def _shared(
        self, array: LockstepArray, kind: str, chunk: CountedChunk, sample: Sample, position: Position, op: str
    ) -> np.ndarray:
        """Return the passes over banks, and those beyond what the bytes need."""
        is_atomic, size, key = kind == "atomic" and not _is_combined(array, op, is_one=True), array.flat.itemsize, None
        if isinstance(position, AffinePositions) and position.size:
            start = position.index.start % _BANKS if size < _WORD_BYTES else 0
            key = (position.index.steps, start, size, is_atomic)
            known = sample.memo.get(key)
            if known is not None:
                return known
        words = _places(position, sample).astype(np.int64, copy=False) % max(array.size, 1) * size // _WORD_BYTES
        keys = np.sort(sample.places[2] * _SPAN + words)
        # Integer additions to one word are combined: NVRTC 12.9 makes ATOMS.POPC.INC of those of 1 (assumed for all).
        # It makes a loop with a compare-and-swap, ATOMS.CAST.SPIN, of additions of floats.
        if not is_atomic:
            keys = keys[_begins(keys)]
        banks = np.sort(keys // _SPAN * _BANKS + keys % _BANKS)
        firsts = np.flatnonzero(_begins(banks))
        in_bank, banks = _lengths(firsts, len(banks)), banks[firsts]
        requests = np.flatnonzero(_begins(banks // _BANKS))
        passes = np.maximum.reduceat(in_bank, requests)
        groups = chunk.group_of_block[banks[requests] // _BANKS // chunk.warps_of_block]
        # Elements of 8 bytes are two words each, in neighbouring banks: half a warp at a time.
        width = max(size // _WORD_BYTES, 1)
        found = np.zeros((2, chunk.groups))
        np.add.at(found[0], groups, passes * float(width))
        np.add.at(found[1], groups, (passes - 1.0) * width)
        if key is not None:
            sample.memo[key] = found
        return found


def _is_combined(array: LockstepArray, op: str, *, is_one: bool) -> bool:
    """Return whether threads of a warp that change one element do so at once.

    Where all threads change one element, NVRTC 12.9 makes one operation of a warp (VOTE, POPC or REDUX).
    """
    return is_one and array.flat.dtype.kind != "f" and op not in ("exch", "cas", "load", "store")


def _places(position: Position, sample: Sample) -> np.ndarray:
    """Return the positions of the counted threads."""
    if isinstance(position, AffinePositions):
        return position.at(sample.places[1])
    if isinstance(position, slice):
        return np.asarray(sample.places[0] + position.start)
    return np.full(sample.size, position) if isinstance(position, int) else np.asarray(position[sample.places[0]])


def counted_branch(lanes: Lanes, condition: Value, number: int) -> tuple[Side, Side]:
    """Return the threads that take a branch and those that do not, and count the branch of this number."""
    yes, no = lane_functions.branch(lanes, condition)
    lanes.chunk.counter.branch(lanes, number, yes, no)  # type: ignore[attr-defined]
    return yes, no
