"""How many blocks a device holds at once: what waits for a block that has not begun waits for ever.

A compute unit holds as many as its threads, its places for blocks, its shared memory and its registers allow (NVIDIA,
CUDA C++ Programming Guide: technical specifications per compute capability, as the SKU files quote them).
"""

from __future__ import annotations

import math

from windtunnel.core.device import Device, Parameters
from windtunnel.runtime.interface import Dims, Limits


def resident_blocks(device: Device, limits: Limits, block: Dims, shared_bytes: int = 0, registers: int = 0) -> int:
    """Blocks of ``block`` threads that fit; 1 at least for each unit. ``registers``: of a thread, 0 if not known.

    A device whose SKU says nothing of its units' threads holds what fits into one block of the largest size.
    """
    threads = math.prod(block)
    p = Parameters(device)
    units = int(p.maybe("compute_units") or p.maybe("cores") or 1)
    held = p.maybe("unit_threads")
    if held is None:
        return units * max(limits.threads_per_block // threads, 1)
    # Threads come in whole warps.
    fits = [held // (math.ceil(threads / limits.warp) * limits.warp), p("unit_blocks")]
    if shared_bytes:
        fits.append(p("shared_memory_bytes") // shared_bytes)
    if registers:
        fits.append(p("unit_registers") // (registers * threads))
    return units * max(int(min(fits)), 1)


def registers_beyond(device: Device, block: Dims, registers: int) -> str | None:
    """In words, what a block asks for beyond a unit's registers; None where it fits, or nothing is known."""
    most = Parameters(device).maybe("unit_registers")
    asked = registers * math.prod(block)
    if not registers or most is None or asked <= most:
        return None
    return (
        f"{math.prod(block):,} threads of {registers} registers are {asked:,}, of at most {int(most):,} a compute unit"
    )
