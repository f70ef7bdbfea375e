"""The work of launches: their prices, and their counts for a profile.

A kernel that states no work moves the contents of its arrays once (``work_of``). On a device that was opened with
``counted=True`` its work is counted instead, at the first launch with such arguments, and priced as the operation
`kernel`: its bytes and arithmetic are those that take as long as the slowest part of the counted work.

- Memory: each array's sectors (`WorkCounts.memory_bytes`); or the sectors of all requests at the rate of the last-level
  cache; or the atomic operations on one cache line, one after another; or the latency of a load for each wave of
  resident blocks; or the starts of blocks, one after another in each compute unit.
- Arithmetic: instructions of warps, 32 lanes each, so that inactive threads count; special functions at a quarter of
  the rate, and float64 at a half (stacked memory) or a 64th of it, unless the SKU states it (NVIDIA, CUDA C++
  Programming Guide, "Arithmetic Instructions"); or passes over the banks of shared memory, one in each clock and
  compute unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.core.device import Parameters
from windtunnel.core.provenance import assumed
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.device.base import EmulatedDevice
from windtunnel.emulator.device.costs import Price
from windtunnel.emulator.device.executable import CompiledKernel, with_size
from windtunnel.emulator.device.kernels import KernelLaunch
from windtunnel.emulator.device.occupancy import resident_blocks
from windtunnel.emulator.device.timeline import Span
from windtunnel.emulator.work.counter import ATOMIC_TURN_CLOCKS
from windtunnel.emulator.work.launch import compile_counted, count_work
from windtunnel.runtime.interface import Interval
from windtunnel.runtime.kernels import Kernel, Work
from windtunnel.runtime.profile import LaunchProfile
from windtunnel.runtime.work_counts import WorkCounts

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
_BLOCK_S = assumed(
    100e-9, 40e-9, 200e-9, "a block begins some hundred clocks after another has ended; no published figure is known"
)
"""The time from block to block of a compute unit."""
_BASE_REGISTERS = assumed(16, 8, 32, "addresses, indices and arguments that every kernel holds; compilers differ")
_REGISTERS_OF_VARIABLE = assumed(2, 1, 4, "a variable of 64 bits takes two registers; compilers copy and unroll")
"""Registers of a thread: so many, and so many for each variable of the kernel."""


class LaunchWork:
    """Prices launches, and profiles them while a profile is open.

    ``counted``: the work of kernels that state none is counted.
    """

    def __init__(self, device: EmulatedDevice, *, counted: bool) -> None:
        self.device, self.counted = device, counted
        self.profile: list[LaunchProfile] | None = None
        """What a profile has recorded; None if none is open."""
        self._constant_prices: dict[Kernel, Price] = {}
        """The prices of kernels whose every launch is the same work."""
        self._compiled: dict[int, Any] = {}
        self._counts: dict[tuple[Any, ...], WorkCounts | None] = {}

    def price(self, launch: KernelLaunch) -> Price:
        """Return the price of a launch that was checked."""
        function, costs = launch.function, self.device.costs
        price = self._constant_prices.get(function)
        if price is not None:
            return price
        counts = self.counts(launch) if self.counted and function.work is None else None
        works: Sequence[Work]
        if counts is None:
            works = function.work_of(launch.grid, launch.block, launch.arrays)
        else:
            works = [self.work_of_counts(launch, counts)]
        price = costs.price_of_work(works)
        if function.constant:
            self._constant_prices[function] = price
        return price

    def record(self, launch: KernelLaunch, span: Span) -> None:
        """Add a launch to the profile, if one is open."""
        if self.profile is None:
            return
        kernel = launch.kernel
        registers = launch.function.registers or self._registers(kernel, "best")
        self.profile.append(
            LaunchProfile(
                launch.function.name,
                span.start / 1e12,
                (span.end - span.start) / 1e12,
                self.counts(launch),
                self._occupancy(launch, kernel, registers),
                registers,
                not launch.function.registers,
                f"{span.engine} / stream {span.stream}",
            )
        )

    def counts(self, launch: KernelLaunch) -> WorkCounts | None:
        """Return the work of a launch; None if it cannot be counted.

        It is counted once for a kernel, its configuration, the shapes of its arrays and its numbers.
        """
        kernel = launch.kernel
        if kernel is None:
            return None
        arguments = tuple((a.shape if isinstance(a, np.ndarray) else a) for a in launch.arrays)
        key = (id(kernel), launch.grid, launch.block, launch.shared, arguments)
        if key not in self._counts:
            run = self._compiled.get(id(kernel))
            if run is None:
                run = self._compiled[id(kernel)] = compile_counted(kernel.lockstep)
            info = self.device.info
            configuration = Launch(kernel.program, launch.grid, launch.block, info.name, info.limits.warp)
            counts = self._counts[key] = count_work(
                kernel.lockstep, run, configuration, launch.arrays, lambda declared: with_size(declared, launch.shared)
            )
            if counts is not None:
                counts.cache_size = Parameters(self.device.device).get("l2_bytes") or 0.0
        return self._counts[key]

    @staticmethod
    def _registers(kernel: CompiledKernel | None, interval: Interval) -> int:
        if kernel is None:
            return 0
        variables = len(kernel.program.variables)
        return round(_BASE_REGISTERS.end(interval) + _REGISTERS_OF_VARIABLE.end(interval) * variables)

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

    def work_of_counts(self, launch: KernelLaunch, counts: WorkCounts) -> Work:
        """Return the operation that takes as long as the counted work.

        At an end of the 90% interval, the assumed times of this module are at that end of their ranges, in addition to
        the interval of the operation.
        """
        threads = math.prod(launch.grid) * math.prod(launch.block)
        moved, flops = counts.memory_bytes, sum(counts.flops.values())
        device = self.device.device
        if device.kind.name == "gpu":
            p = Parameters(device)
            latency = self._latency_s(launch, counts) * p("memory_bandwidth_bytes_per_s")
            moved, flops = max(self._slowest_memory(p, counts), latency), self._slowest_arithmetic(p, counts)
        return {"op": "kernel", "threads": threads, "bytes": max(round(moved), 1), "flops": flops}

    def _latency_s(self, launch: KernelLaunch, counts: WorkCounts) -> float:
        """Return the time for which blocks begin, and in which resident blocks wait for one load each (s)."""
        kernel, interval = launch.kernel, self.device.costs.interval
        registers = launch.function.registers or self._registers(kernel, interval)
        shared = launch.shared + (0 if kernel is None else kernel.shared_bytes)
        device, limits = self.device.device, self.device.info.limits
        resident = resident_blocks(device, limits, launch.block, shared, registers)
        # A launch that is resident at once takes the floor of the model, which has one latency.
        waves = max(launch.blocks / resident - 1.0, 0.0) if counts.loads.requests else 0.0
        starts = launch.blocks / self.device.units
        return max(waves * _RESIDENCE_S.end(interval), starts * _BLOCK_S.end(interval))

    def _slowest_memory(self, p: Parameters, counts: WorkCounts) -> float:
        """Return the bytes that memory moves in the time of the slowest part."""
        clock, memory = p("boost_clock_hz"), p("memory_bandwidth_bytes_per_s")
        cache = p("l2_bytes_per_clock") * clock * self.device.units
        atomics_s = counts.atomic_turns * ATOMIC_TURN_CLOCKS.end(self.device.costs.interval) / clock
        return max(counts.memory_bytes, counts.cache_bytes * memory / cache, atomics_s * memory)

    def _slowest_arithmetic(self, p: Parameters, counts: WorkCounts) -> float:
        """Return the FLOP of float32 fused multiply-adds in the time of the slowest part."""
        peak = p("vector_flops_per_s", "float32")
        lanes = peak / (2.0 * self.device.units * p("boost_clock_hz"))
        float64 = p.get("vector_flops_per_s", "float64")
        turns = peak / float64 if float64 else _FLOAT64_SLOTS[p.lineage.stacked_memory]
        operations = counts.operations
        doubles = sum(operations.get(name, 0.0) for name in ("dadd", "dmul", "dfma"))
        issued = counts.instructions * self.device.info.limits.warp
        slots = issued + doubles * (turns - 1) + operations.get("special", 0.0) * (_SPECIAL_SLOTS - 1)
        wavefronts = sum(one.wavefronts for one in (counts.shared_loads, counts.shared_stores, counts.shared_atomics))
        return 2.0 * max(slots, wavefronts * lanes)
