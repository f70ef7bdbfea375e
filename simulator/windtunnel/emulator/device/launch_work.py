"""The work of launches: their prices, and their counts for a profile.

The work of a kernel that states none is counted (`emulator.work`) while it is executed. Where no count depends on what
arrays contain, launches of equal shapes are counted once. On a GPU a launch takes as long as the longest of:

- Memory: each array's sectors (`WorkCounts.memory_bytes`), and local memory that the caches do not hold.
- The last-level cache: its slices serve accesses of up to 64 bytes; a sector that is written in part takes longer.
- Atomic operations on one part of the cache, one after another.
- Latency: waves of resident blocks that wait for memory, instructions that wait for the ones before, and the starts of
  blocks, one after another in each compute unit.
- Instructions of warps, 32 lanes each, so that inactive threads count; special functions at a quarter of the rate, and
  float64 at a half (stacked memory) or a 64th of it, unless the SKU states it (NVIDIA, CUDA C++ Programming Guide,
  "Arithmetic Instructions").
- L1 cache and shared memory: one line of 128 bytes, or one pass over the banks, in each clock and compute unit.

Memory and instructions are priced as the operation `kernel`. Where another part takes longer, the energy is that of the
operation, and of a chip that is awake and does nothing for the rest of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from windtunnel.core.device import Parameters
from windtunnel.core.provenance import Provenance, assumed
from windtunnel.core.ticks import to_ticks
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.device.base import EmulatedDevice
from windtunnel.emulator.device.costs import Price
from windtunnel.emulator.device.executable import CompiledKernel
from windtunnel.emulator.device.kernels import KernelLaunch
from windtunnel.emulator.device.occupancy import resident_blocks
from windtunnel.emulator.device.timeline import Span
from windtunnel.emulator.lockstep.compiler import LockstepKernel
from windtunnel.emulator.work.counter import ATOMIC_TURN_CLOCKS
from windtunnel.emulator.work.dependence import DATA, deciding
from windtunnel.emulator.work.launch import TURN_BYTES, CountedKernel, Counting, compile_counted
from windtunnel.language import ir
from windtunnel.runtime.interface import Interval
from windtunnel.runtime.kernels import Kernel, Work
from windtunnel.runtime.profile import LaunchProfile
from windtunnel.runtime.work_counts import SECTOR_BYTES, WorkCounts

_SPECIAL_SLOTS = 4
"""Lanes' turns of a special function, of which a compute unit has a quarter as many units as lanes."""
_FLOAT64_SLOTS = {True: 2, False: 64}
"""Turns of a float64 operation on GPUs with and without stacked memory whose SKU does not state its float64 rate: as
compute capabilities 8.0 and 9.0, and 8.6, 8.9 and 12.0 (CUDA C++ Programming Guide, "Arithmetic Instructions")."""
_RESIDENCE_S = assumed(
    0.6e-6,
    0.4e-6,
    1.0e-6,
    "a load from device memory takes 0.4 to 0.8 us in published microbenchmarks; a store follows",
)
"""The time for which a thread that loads an element and stores another is resident."""
_FURTHER_LOAD = assumed(
    0.25, 0.125, 0.5, "compilers unroll loops four times and issue the loads of these iterations together"
)
"""The time of every further load of a thread, over that of one alone."""
_DEPENDENT_CLOCKS = assumed(
    2.0,
    1.0,
    6.0,
    "an instruction begins 4 clocks after the one whose result it needs, 6 before Volta (Jia and others, Dissecting "
    "the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018); compilers put independent ones between",
)
"""Clocks from instruction to instruction of one warp."""
_BLOCK_S = assumed(
    100e-9, 40e-9, 200e-9, "a block begins some hundred clocks after another has ended; no published figure is known"
)
"""The time from block to block of a compute unit."""
_CACHE_ACCESS_CLOCKS = assumed(
    1.36,
    1.0,
    2.5,
    "a slice serves 64 bytes a clock; 5,120 bytes a clock for 108 units of A100 and 2,048 for 80 of V100 (NVIDIA, A100 "
    "whitepaper); the path of a unit is 64 bytes wide",
)
"""Clocks for which a compute unit's share of the last-level cache is busy with an access of up to 64 bytes."""
_PARTIAL_STORE = assumed(
    2.0, 1.0, 4.0, "check bits cover whole sectors, so a part is written after the sector was read; no published figure"
)
"""Accesses to the last-level cache of a store that writes a part of a sector."""
_BASE_REGISTERS = assumed(16, 8, 32, "addresses, indices and arguments that every kernel holds; compilers differ")
_REGISTERS_OF_VARIABLE = assumed(2, 1, 4, "a variable of 64 bits takes two registers; compilers copy and unroll")
"""Registers of a thread: so many, and so many for each variable of the kernel."""


class _CountedKernel:
    """What is known of the work of a kernel: the parameters that decide it, and the counts of its launches.

    Those of launches whose work does not depend on what arrays contain are kept, for all devices of the process.
    """

    def __init__(self, kernel: LockstepKernel) -> None:
        self._kernel = kernel
        self.deciding = deciding(kernel.program, kernel.body)
        self.counts: dict[tuple[Any, ...], WorkCounts] = {}

    @cached_property
    def counted(self) -> CountedKernel:
        """The kernel, compiled so that it counts."""
        return compile_counted(self._kernel)

    @classmethod
    def of(cls, kernel: LockstepKernel) -> _CountedKernel:
        """Return what is known of a kernel, or of one with the same text and types that another device executes."""
        program = kernel.program
        literals = [e.value for s in ir.walk(program.body) for e in ir.expressions(s) if isinstance(e, ir.Literal)]
        types = (
            program.arrays,
            program.scalars,
            program.variables,
            [(d.name, d.shape) for d in program.declared.values()],
        )
        key = (kernel.source, repr(literals), repr(types))
        known = _KNOWN.get(key)
        if known is None:
            if len(_KNOWN) >= _MAX_KNOWN:
                _KNOWN.clear()
            known = _KNOWN[key] = cls(kernel)
        return known


_KNOWN: dict[tuple[str, str, str], _CountedKernel] = {}
_MAX_KNOWN = 512
"""Kernels whose work is kept."""


def forget_counts() -> None:
    """Forget the counts of all kernels, as in a new process."""
    _KNOWN.clear()


_GROUP_THREADS = 1024
"""Threads of a counted group of blocks; half as many where each launch is counted."""


@dataclass(frozen=True)
class CountedTime:
    """What each part of a GPU takes for the counted work of a launch at its peak rate (s); the longest decides."""

    memory_s: float
    compute_s: float
    waits: Mapping[str, float]
    """The parts that the operation `kernel` does not know."""

    @property
    def longest(self) -> str:
        """The name of the longest part."""
        parts = {"Memory": self.memory_s, "Compute": self.compute_s, **self.waits}
        return max(parts, key=lambda name: parts[name])


class LaunchWork:
    """Prices launches, and profiles them while a profile is open.

    ``counted``: the work of kernels that state none is counted. Otherwise they move the contents of their arrays once.
    """

    def __init__(self, device: EmulatedDevice, *, counted: bool) -> None:
        self.device, self.counted = device, counted
        self.profile: list[LaunchProfile] | None = None
        """What a profile has recorded; None if none is open."""
        self._constant_prices: dict[Kernel, Price] = {}
        """The prices of kernels whose every launch is the same work."""
        self._kernels: dict[int, _CountedKernel] = {}
        self._shares: dict[tuple[Any, ...], float] = {}
        """The share of a block in the L1 cache."""
        self._prices: dict[tuple[Any, ...], Price] = {}
        """The prices of launches whose work does not depend on what arrays contain."""
        self._cache_size = Parameters(device.device).get("l2_bytes") or 0.0
        self._supports_kernels = device.costs.prices("kernel")

    def counting(self, launch: KernelLaunch) -> Counting | None:
        """Return what counts a launch that was checked while it is executed; None if its counts are known or unused."""
        if self.profile is None and not (self.counted and launch.function.work is None):
            return None
        kernel = launch.kernel
        if kernel is None:
            return None
        known = self._known(kernel)
        if self._key(launch, kernel) in known.counts:
            return None
        info = self.device.info
        form = Launch(kernel.program, launch.grid, launch.block, info.name, info.limits.warp)
        threads = _GROUP_THREADS if DATA not in known.deciding else _GROUP_THREADS // 2
        return Counting(known.counted, form, self._l1_sectors(launch, kernel), threads)

    def counts(self, launch: KernelLaunch, counting: Counting | None) -> WorkCounts | None:
        """Return the work of a launch that was executed; None if it could not be counted, or need not be."""
        kernel = launch.kernel
        if kernel is None or (self.profile is None and not (self.counted and launch.function.work is None)):
            return None
        known = self._known(kernel)
        if counting is None:
            counts = known.counts.get(self._key(launch, kernel))
        else:
            counts = counting.counts
            if counts is not None and DATA not in known.deciding:
                known.counts[self._key(launch, kernel)] = counts
        return None if counts is None else replace(counts, cache_size=self._cache_size)

    def _known(self, kernel: CompiledKernel) -> _CountedKernel:
        known = self._kernels.get(id(kernel))
        if known is None:
            known = self._kernels[id(kernel)] = _CountedKernel.of(kernel.lockstep)
        return known

    def _key(self, launch: KernelLaunch, kernel: CompiledKernel) -> tuple[Any, ...]:
        """Return what the counts of a launch depend on, if they do not depend on what its arrays contain."""
        decides = self._known(kernel).deciding
        arguments = tuple(
            a.shape if isinstance(a, np.ndarray) else a if parameter.name in decides else None
            for parameter, a in zip(kernel.program.parameters, launch.arrays, strict=True)
        )
        form = (launch.grid, launch.block, launch.shared, self.device.info.limits.warp)
        same = (id(kernel), launch.function.registers, *form)
        if same not in self._shares:
            self._shares[same] = self._l1_sectors(launch, kernel)
        return (*form, self._shares[same], arguments)

    def require_price(self, launch: KernelLaunch) -> None:
        """Raise UnsupportedOperationError if the device has no cost model for a kernel that states no work."""
        if launch.function.work is None and not self._supports_kernels:
            self.price(launch, None)

    def price(self, launch: KernelLaunch, counts: WorkCounts | None) -> Price:
        """Return the price of a launch, by its counts if its kernel states no work."""
        function, costs = launch.function, self.device.costs
        price = self._constant_prices.get(function)
        if price is not None:
            return price
        if counts is not None and self.counted and function.work is None:
            return self._known_price(launch, counts) or self._price_of_counts(launch, counts)
        price = costs.price_of_work(function.work_of(launch.grid, launch.block, launch.passed))
        if function.constant:
            self._constant_prices[function] = price
        return price

    def _known_price(self, launch: KernelLaunch, counts: WorkCounts) -> Price | None:
        """Return the price of a launch whose counts do not depend on what arrays contain; None for others."""
        kernel = launch.kernel
        if kernel is None or DATA in self._known(kernel).deciding:
            return None
        key = (id(kernel), launch.function.registers, *self._key(launch, kernel))
        if key not in self._prices:
            self._prices[key] = self._price_of_counts(launch, counts)
        return self._prices[key]

    def _price_of_counts(self, launch: KernelLaunch, counts: WorkCounts) -> Price:
        """Return the time of the longest part, and the energy of what is moved and computed."""
        costs, interval = self.device.costs, self.device.costs.interval
        work, waiting_s = self.work_of_counts(launch, counts, interval)
        price = costs.price_of_work([work])
        if not waiting_s:
            return price
        costs.note(Provenance.ASSUMED)
        ticks = max(to_ticks(self.seconds_of_counts(launch, counts, interval)), price.ticks)
        awake = costs.price_of_work([_NOTHING])
        joules = price.joules + (ticks - price.ticks) * awake.joules / max(awake.ticks, 1)
        return Price(ticks, joules, price.engine)

    def seconds_of_counts(self, launch: KernelLaunch, counts: WorkCounts, interval: Interval) -> float:
        """Return the time of counted work, or an end of its 90% interval (s).

        At an end, the assumed numbers of this module are at that end of their ranges and the counts at that end of
        theirs; the error of the operation `kernel` is a factor on all parts.
        """
        work, waiting_s = self.work_of_counts(launch, counts, interval)
        seconds = self.device.costs.seconds_of_work([work], interval)
        if not waiting_s:
            return seconds
        best_s, floor_s = (self.device.costs.seconds_of_work([one], "best") for one in (work, _NOTHING))
        return max(seconds, (floor_s + waiting_s) * seconds / best_s)

    def record(self, launch: KernelLaunch, span: Span, counts: WorkCounts | None) -> None:
        """Add a launch to the profile, if one is open."""
        if self.profile is None:
            return
        kernel = launch.kernel
        registers = launch.function.registers or self._registers(kernel, "best")
        is_gpu = self.device.device.kind.name == "gpu"
        is_priced = counts is not None and self.counted and launch.function.work is None
        ends = [self._seconds(launch, counts if is_priced else None, end) for end in _ENDS]
        limit = (
            self.time_of_counts(launch, counts, "best").longest if counts is not None and is_priced and is_gpu else ""
        )
        self.profile.append(
            LaunchProfile(
                launch.function.name,
                span.start / 1e12,
                (span.end - span.start) / 1e12,
                ends[0],
                ends[1],
                "nothing" if self.device.costs.provenance is None else self.device.costs.provenance.label,
                counts,
                self._occupancy(launch, kernel, registers),
                registers,
                not launch.function.registers,
                f"{span.engine} / stream {span.stream}",
                limit,
                "counted" if is_priced else "stated" if launch.function.work is not None else "arrays moved once",
            )
        )

    def _seconds(self, launch: KernelLaunch, counts: WorkCounts | None, interval: Interval) -> float:
        """Return an end of the 90% interval of the time of a launch (s)."""
        function = launch.function
        works: Sequence[Work] = function.work_of(launch.grid, launch.block, launch.passed) if counts is None else ()
        if counts is not None:
            return self.seconds_of_counts(launch, counts, interval)
        return self.device.costs.seconds_of_work(works, interval)

    @staticmethod
    def estimated_registers(names: Iterable[str], interval: Interval = "best") -> int:
        """Return the registers of a thread of a kernel with these variables."""
        # Those that lowering has added hold what a device's compiler keeps in predicates.
        variables = sum(not name.endswith("_") for name in names)
        return round(_BASE_REGISTERS.end(interval) + _REGISTERS_OF_VARIABLE.end(interval) * variables)

    def _registers(self, kernel: CompiledKernel | None, interval: Interval) -> int:
        return 0 if kernel is None else self.estimated_registers(kernel.program.variables, interval)

    def _resident(self, launch: KernelLaunch, kernel: CompiledKernel | None, interval: Interval) -> int:
        """Return the number of blocks that the device holds at once."""
        registers = launch.function.registers or self._registers(kernel, interval)
        shared = launch.shared + (0 if kernel is None else kernel.shared_bytes)
        return resident_blocks(self.device.device, self.device.info.limits, launch.block, shared, registers)

    def _occupancy(self, launch: KernelLaunch, kernel: CompiledKernel | None, registers: int) -> float | None:
        """Return the resident threads of a compute unit as a share of the most; None if the SKU does not say."""
        device, limits = self.device.device, self.device.info.limits
        unit_threads = Parameters(device).get("unit_threads")
        if kernel is None or unit_threads is None:
            return None
        shared = kernel.shared_bytes + launch.shared
        blocks = resident_blocks(device, limits, launch.block, shared, registers) / self.device.units
        threads = math.ceil(math.prod(launch.block) / limits.warp) * limits.warp
        return min(blocks * threads / unit_threads, 1.0)

    def _l1_bytes(self, launch: KernelLaunch, kernel: CompiledKernel | None, interval: Interval) -> tuple[float, float]:
        """Return the L1 cache of a compute unit beside the shared memory of its blocks, and the number of these."""
        blocks = min(self._resident(launch, kernel, interval), launch.blocks) / self.device.units
        blocks = max(blocks, 1.0)
        shared = launch.shared + (0 if kernel is None else kernel.shared_bytes)
        whole = Parameters(self.device.device).get("unit_cache_bytes") or 0.0
        return max(whole - shared * blocks, 0.0), blocks

    def _l1_sectors(self, launch: KernelLaunch, kernel: CompiledKernel) -> float:
        left, blocks = self._l1_bytes(launch, kernel, "best")
        return left / blocks / SECTOR_BYTES

    # What counted work takes.

    def work_of_counts(
        self, launch: KernelLaunch, counts: WorkCounts, interval: Interval
    ) -> tuple[dict[str, Any], float]:
        """Return counted work as an operation, and the time of the longest part that the operation does not know (s).

        On a GPU its bytes are those that pass memory, and its arithmetic takes as long as the instructions.
        """
        moved, flops, waiting_s = counts.memory_bytes, sum(counts.flops.values()), 0.0
        if self.device.device.kind.name == "gpu":
            p, time = Parameters(self.device.device), self.time_of_counts(launch, counts, interval)
            moved = time.memory_s * p("memory_bandwidth_bytes_per_s")
            flops = time.compute_s * p("vector_flops_per_s", "float32")
            waiting_s = max(time.waits.values())
        threads = math.prod(launch.grid) * math.prod(launch.block)
        return {"op": "kernel", "threads": threads, "bytes": max(round(moved), 1), "flops": flops}, waiting_s

    def time_of_counts(self, launch: KernelLaunch, counts: WorkCounts, interval: Interval) -> CountedTime:
        """Return what each part of a GPU takes for counted work at its peak rate."""
        kernel, p, units = launch.kernel, Parameters(self.device.device), self.device.units
        clock, bandwidth = p("boost_clock_hz"), p("memory_bandwidth_bytes_per_s")
        ends = {"low": -1.0, "best": 0.0, "high": 1.0}[interval]
        sampled = {name: max(1.0 + ends * width, 0.1) for name, width in counts.spread.items()}
        local, local_moved = self._local_sectors(launch, kernel, counts)
        moved = counts.moved_bytes(interval) * sampled.get("memory", 1.0) + local_moved
        slots = self._cache_slots(counts, interval) * sampled.get("cache", 1.0) + local / 2.0
        size = dict(zip(("low", "best", "high"), TURN_BYTES, strict=True))[interval]
        turns = counts.atomic_turns.get(size, 0.0)
        passes = sum(one.wavefronts for one in (counts.shared_loads, counts.shared_stores, counts.shared_atomics))
        lines = sum(one.lines for one in (counts.loads, counts.stores, counts.atomics, counts.local))
        instructions = self._instruction_slots(p, counts) * sampled.get("instructions", 1.0)
        return CountedTime(
            moved / bandwidth,
            instructions * 2.0 / p("vector_flops_per_s", "float32"),
            {
                "L2 Cache": slots * _CACHE_ACCESS_CLOCKS.end(interval) / (units * clock),
                "L1/TEX and Shared": (passes + lines) / (units * clock),
                "Atomics": turns * ATOMIC_TURN_CLOCKS.end(interval) / clock,
                "Latency": self._latency_s(launch, kernel, counts, interval),
                "Block Starts": launch.blocks / units * _BLOCK_S.end(interval),
            },
        )

    @staticmethod
    def _cache_slots(counts: WorkCounts, interval: Interval) -> float:
        """Return the accesses to slices of the last-level cache."""
        missed = 1.0 - counts.l1_hit_rate
        loads = missed * max(counts.loads.lines, counts.loads.sectors / 2.0)
        stores = max(counts.stores.lines, counts.stores.sectors / 2.0)
        partial = counts.stores.partial * (_PARTIAL_STORE.end(interval) - 1.0)
        return loads + stores + partial + counts.atomics.sectors

    def _local_sectors(
        self, launch: KernelLaunch, kernel: CompiledKernel | None, counts: WorkCounts
    ) -> tuple[float, float]:
        """Return the sectors of local memory that pass the L1 cache, and the bytes that pass the last-level cache.

        A cache that is smaller than the local memory of all resident threads holds its share of the accesses.
        """
        if not counts.local.sectors:
            return 0.0, 0.0
        left, blocks = self._l1_bytes(launch, kernel, "best")
        of_unit = counts.local_bytes * blocks * math.prod(launch.block)
        passed = counts.local.sectors * max(1.0 - left / of_unit, 0.0)
        lost = max(1.0 - counts.cache_size / (of_unit * self.device.units), 0.0)
        return passed, passed * lost * SECTOR_BYTES

    def _latency_s(
        self, launch: KernelLaunch, kernel: CompiledKernel | None, counts: WorkCounts, interval: Interval
    ) -> float:
        """Return the time for which resident blocks wait for loads, or their warps for instructions (s)."""
        waves = launch.blocks / self._resident(launch, kernel, interval)
        warps = launch.blocks * math.ceil(math.prod(launch.block) / self.device.info.limits.warp)
        missed = counts.loads.requests * (1.0 - counts.l1_hit_rate) / warps
        in_turn = max(missed - 1.0, 0.0) * _FURTHER_LOAD.end(interval)
        # A launch that is resident at once and loads once takes the floor of the model, which has one latency.
        loads = max(waves - 1.0, 0.0) * min(missed, 1.0) + max(waves, 1.0) * in_turn
        chain = counts.instructions / warps * max(waves, 1.0) * _DEPENDENT_CLOCKS.end(interval)
        clock = Parameters(self.device.device)("boost_clock_hz")
        return max(loads * _RESIDENCE_S.end(interval), chain / clock)

    def _instruction_slots(self, p: Parameters, counts: WorkCounts) -> float:
        """Return the turns of lanes that the instructions take, a fused multiply-add of float32 being one."""
        float64 = p.get("vector_flops_per_s", "float64")
        turns = p("vector_flops_per_s", "float32") / float64 if float64 else _FLOAT64_SLOTS[p.lineage.stacked_memory]
        operations = counts.operations
        doubles = sum(operations.get(name, 0.0) for name in ("dadd", "dmul", "dfma"))
        issued = counts.instructions * self.device.info.limits.warp
        return issued + doubles * (turns - 1) + operations.get("special", 0.0) * (_SPECIAL_SLOTS - 1)


_ENDS: tuple[Interval, Interval] = ("low", "high")
_NOTHING: Work = {"op": "kernel", "threads": 1, "bytes": 1, "flops": 0.0}
"""A kernel that does next to nothing: a chip that is awake."""
