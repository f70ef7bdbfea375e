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


def launch_configuration(elements: int, limits: Limits, block: int = 256) -> tuple[Dims, Dims]:
    """Return (grid, block) of one-dimensional blocks with one thread for each of ``elements``.

    ``block`` is reduced to the device's limit and rounded to a multiple of the warp. If the grid exceeds the limit, the
    kernel must loop over several elements per thread. Raises ValueError for fewer than one element.
    """
    if elements < 1:
        raise ValueError(f"{elements} elements need no launch")
    max_threads = min(limits.threads_per_block, limits.block[0])
    threads = min(block, max_threads, math.ceil(elements / limits.warp) * limits.warp)
    threads = max(threads // limits.warp * limits.warp, min(limits.warp, max_threads))
    blocks = min(math.ceil(elements / threads), limits.grid[0])
    return (blocks, 1, 1), (threads, 1, 1)


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
