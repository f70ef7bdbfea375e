"""Occupancy: how many blocks a device holds at once. A thread that waits for a block beyond them waits for ever.

A compute unit holds as many blocks as its threads, its block slots, its shared memory and its registers allow.

Source: NVIDIA, CUDA C++ Programming Guide, technical specifications per compute capability, as quoted in SKU files.
"""

from __future__ import annotations

import math

from windtunnel.core.device import Device, Parameters
from windtunnel.runtime.interface import Dims, Limits


def resident_blocks(device: Device, limits: Limits, block: Dims, shared_bytes: int = 0, registers: int = 0) -> int:
    """Return the number of blocks that fit on a device, at least 1 for each compute unit.

    A device whose SKU does not state the threads of its units holds as many threads as a block of the largest size.

    Args:
        device: The device model.
        limits: The limits of launches.
        block: Threads of a block along x, y and z.
        shared_bytes: Bytes of shared memory of a block.
        registers: Registers of a thread; 0 if unknown.
    """
    threads = math.prod(block)
    p = Parameters(device)
    units = int(p.get("compute_units") or p.get("cores") or 1)
    unit_threads = p.get("unit_threads")
    if unit_threads is None:
        return units * max(limits.threads_per_block // threads, 1)
    # Threads are allocated in whole warps.
    fits = [unit_threads // (math.ceil(threads / limits.warp) * limits.warp), p("unit_blocks")]
    if shared_bytes:
        fits.append(p("shared_memory_bytes") // shared_bytes)
    if registers:
        fits.append(p("unit_registers") // (registers * threads))
    return units * max(int(min(fits)), 1)


def exceeded_registers(device: Device, block: Dims, registers: int) -> str | None:
    """Return the message that a block needs more registers than a compute unit has; None if it fits or is unknown."""
    limit = Parameters(device).get("unit_registers")
    needed = registers * math.prod(block)
    if not registers or limit is None or needed <= limit:
        return None
    threads = math.prod(block)
    return f"{threads:,} threads of {registers} registers are {needed:,}, of at most {int(limit):,} a compute unit"
