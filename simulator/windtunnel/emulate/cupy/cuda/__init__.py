"""``cupy.cuda``: devices, streams, events, memory and the runtime."""

from __future__ import annotations

from typing import Any

from windtunnel.emulate.cupy.cuda import (
    compiler,
    device,
    driver,
    graph,
    memory,
    nvtx,
    pinned_memory,
    profiler,
    runtime,
    stream,
    texture,
)
from windtunnel.emulate.cupy.cuda.device import Device, get_device_id
from windtunnel.emulate.cupy.cuda.graph import Graph
from windtunnel.emulate.cupy.cuda.memory import (
    BaseMemory,
    ManagedMemory,
    Memory,
    MemoryAsync,
    MemoryAsyncPool,
    MemoryPointer,
    MemoryPool,
    PythonFunctionAllocator,
    UnownedMemory,
    alloc,
    get_allocator,
    malloc_async,
    malloc_managed,
    set_allocator,
    using_allocator,
)
from windtunnel.emulate.cupy.cuda.pinned_memory import (
    PinnedMemory,
    PinnedMemoryPointer,
    PinnedMemoryPool,
    alloc_pinned_memory,
    set_pinned_memory_allocator,
)
from windtunnel.emulate.cupy.cuda.profiler import profile
from windtunnel.emulate.cupy.cuda.stream import Event, ExternalStream, Stream, get_current_stream, get_elapsed_time
from windtunnel.emulate.cupy.refusals import missing


def is_available() -> bool:
    """Return True: the emulated device is there."""
    return True


def get_cuda_path() -> None:
    """Return None: CUDA is not used."""


def get_nvcc_path() -> None:
    """Return None: no compiler of NVIDIA is used."""


def __getattr__(name: str) -> Any:
    missing("cupy.cuda", name)


__all__ = [
    "BaseMemory",
    "Device",
    "Event",
    "ExternalStream",
    "Graph",
    "ManagedMemory",
    "Memory",
    "MemoryAsync",
    "MemoryAsyncPool",
    "MemoryPointer",
    "MemoryPool",
    "PinnedMemory",
    "PinnedMemoryPointer",
    "PinnedMemoryPool",
    "PythonFunctionAllocator",
    "Stream",
    "UnownedMemory",
    "alloc",
    "alloc_pinned_memory",
    "compiler",
    "device",
    "driver",
    "get_allocator",
    "get_cuda_path",
    "get_current_stream",
    "get_device_id",
    "get_elapsed_time",
    "get_nvcc_path",
    "graph",
    "is_available",
    "malloc_async",
    "malloc_managed",
    "memory",
    "nvtx",
    "pinned_memory",
    "profile",
    "profiler",
    "runtime",
    "set_allocator",
    "set_pinned_memory_allocator",
    "stream",
    "texture",
    "using_allocator",
]
