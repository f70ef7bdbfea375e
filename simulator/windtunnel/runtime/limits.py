"""The limits of launches through each API, and launch configurations within them.

CUDA: Programming Guide, table of technical specifications (compute capability 5.2 and later; 48 KiB of shared memory
without opting in). HIP: the same names on AMD hardware (64 KiB of LDS). WebGPU: the specification's default limits.
Metal: feature set tables (Apple7 and later). Vulkan and OpenCL: what desktop drivers of the vendors report; a device
behind another API than its own is bound by the API.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import index

from windtunnel.runtime.interface import Dims, Limits

_LARGE = 2**31 - 1
_APIS: Mapping[str, Limits] = {
    "cuda": Limits(1024, (1024, 1024, 64), (_LARGE, 65535, 65535), 49152, 32, "CUDA Programming Guide"),
    "hip": Limits(1024, (1024, 1024, 1024), (_LARGE, 65535, 65535), 65536, 64, "HIP hardware capabilities"),
    "opencl": Limits(1024, (1024, 1024, 64), (_LARGE, 65535, 65535), 49152, 32, "desktop drivers' reports"),
    "vulkan": Limits(1024, (1024, 1024, 64), (_LARGE, 65535, 65535), 49152, 32, "desktop drivers' reports"),
    "metal": Limits(1024, (1024, 1024, 1024), (_LARGE, _LARGE, _LARGE), 32768, 32, "Metal feature set tables"),
    "wgpu": Limits(256, (256, 256, 64), (65535, 65535, 65535), 16384, 32, "WebGPU default limits", atomic_bits=32),
}
_NONE = Limits(1024, (1024, 1024, 1024), (_LARGE, _LARGE, _LARGE), 65536, 1, "no API limits")


def limits_of(api: str) -> Limits:
    """Return the limits of launches through ``api``."""
    return _APIS.get(api, _NONE)


def dims(value: int | Sequence[int]) -> Dims:
    """Return a grid or block as three numbers; ValueError if it is not valid."""
    try:
        numbers = tuple(index(v) for v in (value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        numbers = ()
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise ValueError(f"{value!r} is not a size of a grid or block: one to three numbers from 1")
    return (*numbers, *(1,) * (3 - len(numbers)))  # type: ignore[return-value]


def launch_configuration(elements: int, limits: Limits, block: int = 256, *, loops: bool = False) -> tuple[Dims, Dims]:
    """Return (grid, block) of one-dimensional blocks with at least one thread for each of ``elements``.

    ``block`` is reduced to the device's limit and rounded to a multiple of the warp. The grid has the axis x alone,
    because a kernel that takes its element from ``grid(1)`` would repeat the same elements along y and z.

    Args:
        elements: The number of elements.
        limits: The limits of the device.
        block: The largest number of threads in a block.
        loops: Whether the kernel loops over its elements in steps of ``gridsize(1)``, so that fewer threads suffice.

    Raises:
        ValueError: The number is negative; or the axis x does not have enough threads for all elements and ``loops`` is
            false. The message names launches that cover them.
    """
    if elements < 0:
        raise ValueError(f"{elements} elements")
    elements = max(elements, 1)  # a grid has a block, also for an empty array
    max_threads = min(limits.threads_per_block, limits.block[0])
    threads = _threads(min(block, max_threads, math.ceil(elements / limits.warp) * limits.warp), limits)
    blocks = math.ceil(elements / threads)
    if blocks > limits.grid[0] and not loops:
        raise ValueError(_too_many(elements, threads, limits))
    return (min(blocks, limits.grid[0]), 1, 1), (threads, 1, 1)


def _threads(wanted: int, limits: Limits) -> int:
    """Return ``wanted`` threads of a block rounded down to a multiple of the warp, and at least one warp."""
    most = min(limits.threads_per_block, limits.block[0])
    return max(wanted // limits.warp * limits.warp, min(limits.warp, most))


def _too_many(elements: int, threads: int, limits: Limits) -> str:
    """Return why a one-dimensional grid does not cover ``elements``, and what does."""
    most = limits.grid[0]
    problem = (
        f"{elements:,} elements need {math.ceil(elements / threads):,} blocks of {threads} threads, of at most {most:,}"
        f" along x, which cover {most * threads:,} elements"
    )
    ways = []
    widest = _threads(min(limits.threads_per_block, limits.block[0]), limits)
    if math.ceil(elements / widest) <= most:
        ways.append(f"block={widest}")
    ways.append("loops=True, with a kernel that loops over its elements in steps of gridsize(1)")
    rows = math.ceil(elements / (most * threads))
    if rows <= limits.grid[1]:
        columns = math.ceil(math.ceil(elements / threads) / rows)
        ways.append(
            f"the grid ({columns}, {rows}, 1), with a kernel whose element is grid(1) + blockIdx.y * gridsize(1)"
        )
    return f"{problem}; expected {', or '.join(ways)}"


def exceeded(limits: Limits, grid: Dims, block: Dims, shared: int) -> str | None:
    """Return in words which limit a launch exceeds; None if it is within the limits."""
    threads = math.prod(block)
    if threads > limits.threads_per_block:
        return f"{threads:,} threads a block, of at most {limits.threads_per_block:,}"
    for name, sides, maxima in (("block", block, limits.block), ("grid", grid, limits.grid)):
        for axis, side, limit in zip("xyz", sides, maxima, strict=True):
            if side > limit:
                return f"{name}.{axis} is {side:,}, of at most {limit:,}"
    if shared < 0:
        return f"{shared:,} bytes of shared memory"
    if shared > limits.shared_bytes:
        return f"{shared:,} bytes of shared memory, of at most {limits.shared_bytes:,}"
    return None
