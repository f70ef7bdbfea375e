"""What a launch of a kernel does, counted: the result of `emulator.work`, and the lines of a profile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from windtunnel.runtime.interface import Dims, Interval

SECTOR_BYTES = 32
"""Bytes of a sector, the unit of traffic between the L1 cache, the L2 cache and memory of NVIDIA GPUs."""
FLOPS_OF = {
    "float16": {"hadd": 1, "hmul": 1, "hfma": 2},
    "float32": {"fadd": 1, "fmul": 1, "ffma": 2},
    "float64": {"dadd": 1, "dmul": 1, "dfma": 2},
}
"""Operations of a type that instructions stand for: a fused multiply-add is two."""


@dataclass
class Traffic:
    """Accesses to one kind of memory by warps.

    Attributes:
        requests: Accesses of whole warps.
        sectors: For device memory, sectors of 32 bytes that the requests touch.
        lines: For device memory, lines of 128 bytes that the requests touch.
        hits: For loads, sectors that the L1 cache holds.
        partial: For stores, lines of requests that write only a part of some sector.
        wavefronts: For shared memory, passes over the banks.
        conflicts: For shared memory, passes beyond those that the request's bytes need. For atomic operations, further
            threads of a warp at the same element.
        elements: Accesses of single threads.
    """

    requests: float = 0.0
    sectors: float = 0.0
    lines: float = 0.0
    hits: float = 0.0
    partial: float = 0.0
    wavefronts: float = 0.0
    conflicts: float = 0.0
    elements: float = 0.0

    def plus(self, other: Traffic, factor: float) -> Traffic:
        """Return this traffic and so many times the other."""
        return Traffic(
            *(mine + theirs * factor for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True))
        )


@dataclass
class ArrayTraffic:
    """The bytes of one array that a group of blocks moves between the last-level cache and memory, and its size.

    Attributes:
        size: Bytes of the array.
        loaded: Sectors that are loaded, each once in a group.
        fetched: The same, if memory is read in pairs of sectors (64 bytes).
        stored: Sectors that are stored, each once in a group.
        filled: Sectors that are stored in part and not loaded: they are read before they are written.
    """

    size: int
    loaded: float = 0.0
    fetched: float = 0.0
    stored: float = 0.0
    filled: float = 0.0


@dataclass
class WorkCounts:
    """What a launch did, counted in ``sampled`` of its ``blocks`` and scaled to all of them.

    ``operations`` are by threads, in the words of Nsight Compute (``ffma``: fused multiply-add of float32), and
    ``integer`` and ``special`` (function unit). ``instructions`` are those of warps: operations of the kernel language,
    not of a device's machine code.
    """

    grid: Dims
    block: Dims
    blocks: int
    sampled: int
    operations: dict[str, float] = field(default_factory=dict)
    instructions: float = 0.0
    thread_instructions: float = 0.0
    branches: float = 0.0
    divergent_branches: float = 0.0
    barriers: float = 0.0
    loads: Traffic = field(default_factory=Traffic)
    stores: Traffic = field(default_factory=Traffic)
    atomics: Traffic = field(default_factory=Traffic)
    local: Traffic = field(default_factory=Traffic)
    shared_loads: Traffic = field(default_factory=Traffic)
    shared_stores: Traffic = field(default_factory=Traffic)
    shared_atomics: Traffic = field(default_factory=Traffic)
    arrays: dict[str, ArrayTraffic] = field(default_factory=dict)
    local_bytes: float = 0.0
    """Bytes of local memory of a thread."""
    atomic_turns: dict[int, float] = field(default_factory=dict)
    """Atomic operations that the part of the cache with the most of them executes one after another, by the bytes that
    lie in one part."""
    spread: dict[str, float] = field(default_factory=dict)
    """For `instructions`, `cache` and `memory`, half the width of the 90% interval for all blocks, relative to the
    estimate, from the differences between the sampled groups; 0 if all blocks were counted."""
    cache_size: float = 0.0
    """Bytes of the device's last-level cache."""

    @property
    def flops(self) -> Mapping[str, float]:
        """Operations by type: an addition and a multiplication each are one, a fused multiply-add is two."""
        return {
            kind: sum(factor * self.operations.get(name, 0.0) for name, factor in names.items())
            for kind, names in FLOPS_OF.items()
        }

    @property
    def threads_per_instruction(self) -> float:
        """Active threads of a warp, on average over its instructions."""
        return self.thread_instructions / self.instructions if self.instructions else 0.0

    @property
    def branch_efficiency(self) -> float:
        """The share of branches of warps in which all threads go the same way; 1 if there are none."""
        return 1.0 - self.divergent_branches / self.branches if self.branches else 1.0

    @property
    def memory_bytes(self) -> float:
        """Bytes to and from the device's memory.

        Caches keep what a group of neighbouring blocks accesses again. Arrays that fit into the last-level cache
        together are loaded once and stored once at most; others again for each group. Memory is read in pairs of
        sectors, and a sector of which a part is written is read before (`ArrayTraffic`).
        """
        return self.moved_bytes("best")

    def moved_bytes(self, interval: Interval) -> float:
        """Return ``memory_bytes``, or the low end of its range, at which memory is read in single sectors."""
        fits = sum(one.size for one in self.arrays.values()) <= self.cache_size
        total = 0.0
        for one in self.arrays.values():
            most = one.size if fits else math.inf
            loaded = one.loaded if interval == "low" else one.fetched
            total += min(loaded, most) + min(one.stored, most) + min(one.filled, most)
        return total

    @property
    def cache_sectors(self) -> float:
        """Sectors that pass between the L1 caches and the last-level cache."""
        loaded = self.loads.sectors - self.loads.hits
        return loaded + self.stores.sectors + self.atomics.sectors

    @property
    def l1_hit_rate(self) -> float:
        """The share of loaded sectors that the L1 cache holds; 0 if there are none."""
        return self.loads.hits / self.loads.sectors if self.loads.sectors else 0.0
