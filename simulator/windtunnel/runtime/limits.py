"""What each API lets a launch ask for, and the helper that fits a number of elements into it.

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
_NONE = Limits(1024, (1024, 1024, 1024), (_LARGE, _LARGE, _LARGE), 65536, 1, "no API limits launches here")


def limits_of(api: str) -> Limits:
    """The limits of launches through ``api``."""
    return _APIS.get(api, _NONE)


def dims(value: int | Sequence[int]) -> Dims:
    """A grid or block as three numbers; ValueError for what is none."""
    try:
        numbers = tuple(index(v) for v in (value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        numbers = ()
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise ValueError(f"{value!r} is not a size of a grid or block: one to three numbers from 1")
    return (*numbers, *(1,) * (3 - len(numbers)))  # type: ignore[return-value]


def launch_configuration(elements: int, limits: Limits, block: int = 256) -> tuple[Dims, Dims]:
    """(grid, block) of one-dimensional blocks that cover ``elements`` with one thread each.

    ``block`` is cut to what the device allows, a multiple of its warp; where the grid would be too long the kernel has
    to stride (every thread takes several elements). ValueError for fewer than one element.
    """
    if elements < 1:
        raise ValueError(f"{elements} elements need no launch")
    most = min(limits.threads_per_block, limits.block[0])
    threads = min(block, most, math.ceil(elements / limits.warp) * limits.warp)
    threads = max(threads // limits.warp * limits.warp, min(limits.warp, most))
    blocks = min(math.ceil(elements / threads), limits.grid[0])
    return (blocks, 1, 1), (threads, 1, 1)


def exceeded(limits: Limits, grid: Dims, block: Dims, shared: int) -> str | None:
    """What a launch asks for beyond the limits, in words; None where it fits."""
    threads = math.prod(block)
    if threads > limits.threads_per_block:
        return f"{threads:,} threads a block, of at most {limits.threads_per_block:,}"
    for name, asked, most in (("block", block, limits.block), ("grid", grid, limits.grid)):
        for axis, one, limit in zip("xyz", asked, most, strict=True):
            if one > limit:
                return f"{name}.{axis} is {one:,}, of at most {limit:,}"
    if shared < 0:
        return f"{shared:,} bytes of shared memory"
    if shared > limits.shared_bytes:
        return f"{shared:,} bytes of shared memory, of at most {limits.shared_bytes:,}"
    return None
