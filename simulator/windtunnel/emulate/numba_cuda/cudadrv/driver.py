"""``numba.cuda.cudadrv.driver``: errors, the version of the driver, and functions on device memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.emulate.numba_cuda.cudadrv.devices import Device, MemoryInfo, gpus
from windtunnel.emulate.numba_cuda.cudadrv.error import CudaAPIError, CudaDriverError, CudaSupportError
from windtunnel.emulate.numba_cuda.streams import Event, Stream, event_elapsed_time
from windtunnel.runtime.buffers import Position

__all__ = [
    "CudaAPIError", "CudaDriverError", "CudaSupportError", "Event", "LinkerError", "MemoryInfo", "Stream", "driver",
    "event_elapsed_time",
]  # fmt: skip
USE_NV_BINDING = False


class LinkerError(RuntimeError):
    """Code cannot be linked; Windtunnel links none."""


class _Driver:
    """The driver of an emulated device."""

    is_available = True
    initialization_error = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"numba.cuda.cudadrv.driver.driver.{name} is not part of Windtunnel's numba.cuda")

    def get_version(self) -> tuple[int, int]:
        """Return the version of CUDA."""
        return 12, 8

    def get_device(self, devnum: int = 0) -> Device:
        """Return a device."""
        return gpus[devnum]

    def get_device_count(self) -> int:
        """Return the number of devices."""
        return len(gpus)


driver = _Driver()
get_version = driver.get_version


def _refused(name: str) -> Any:
    class Refused:
        """Something of the driver that an emulated device does not have."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise UnsupportedOperationError(f"{name} is not available on an emulated device")

    Refused.__name__ = name
    return Refused


BaseCUDAMemoryManager, HostOnlyCUDAMemoryManager = (
    _refused(n) for n in ("BaseCUDAMemoryManager", "HostOnlyCUDAMemoryManager")
)
GetIpcHandleMixin, IpcHandle, MemoryPointer = (_refused(n) for n in ("GetIpcHandleMixin", "IpcHandle", "MemoryPointer"))
MappedMemory, PinnedMemory, ManagedMemory = (_refused(n) for n in ("MappedMemory", "PinnedMemory", "ManagedMemory"))
Linker, NvrtcProgram = (_refused(n) for n in ("Linker", "NvrtcProgram"))


def set_memory_manager(mm_plugin: Any) -> None:
    """Raise UnsupportedOperationError: memory managers allocate memory of a real device."""
    raise UnsupportedOperationError(f"the memory manager {mm_plugin!r} is not available on an emulated device")


def device_memory_size(devmem: Any) -> int:
    """Return the bytes of an array."""
    return int(getattr(devmem, "alloc_size", None) or getattr(devmem, "nbytes", 0) or 0)


def device_pointer(obj: Any) -> int:
    """Return the address of an array."""
    return int(getattr(obj, "device_pointer", 0))


def host_pointer(obj: Any, readonly: bool = False) -> int:
    """Return the address of an array of the host."""
    del readonly
    return int(np.asarray(obj).__array_interface__["data"][0])


def host_memory_extents(obj: Any) -> tuple[int, int]:
    """Return the addresses of the first byte of an array of the host, and of that after the last."""
    array = np.asarray(obj)
    last = [(side - 1) * stride for side, stride in zip(array.shape, array.strides, strict=True)]
    start = host_pointer(array)
    if not array.size:
        return start, start
    return start + sum(step for step in last if step < 0), start + sum(s for s in last if s > 0) + array.itemsize


def host_memory_size(obj: Any) -> int:
    """Return the bytes between the first and the last of an array of the host."""
    first, end = host_memory_extents(obj)
    return end - first


def device_memory_depends(devmem: Any, *objs: Any) -> None:
    """Keep objects as long as memory of the device."""
    devmem._depends_ = [*getattr(devmem, "_depends_", ()), *objs]


def is_device_memory(obj: Any) -> bool:
    """Return whether a value is memory of a device."""
    return bool(getattr(obj, "__cuda_memory__", False))


def device_to_host(dst: Any, src: Any, size: int, stream: Any = 0) -> None:
    """Copy from the device."""
    del stream
    if size:
        part = Position(
            src.allocation.accelerator, src.allocation.buffer.memory, (size,), np.dtype(np.uint8), src.offset
        )
        part.owner.copy_out(np.asarray(dst).reshape(-1).view(np.uint8)[:size], part)


def host_to_device(dst: Any, src: Any, size: int, stream: Any = 0) -> None:
    """Copy to the device."""
    del stream
    view = dst.allocation.bytes()[dst.offset : dst.offset + size]
    view[...] = np.ascontiguousarray(src).reshape(-1).view(np.uint8)[:size]
    dst.allocation.mark_written(view)


def device_memset(dst: Any, val: int, size: int, stream: Any = 0) -> None:
    """Set bytes on the device."""
    del stream
    memory = getattr(dst, "gpu_data", dst)
    view = memory.allocation.bytes()[memory.offset : memory.offset + size]
    view[...] = val
    memory.allocation.mark_written(view)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"numba.cuda.cudadrv.driver.{name} is not part of Windtunnel's numba.cuda")


def _have_nvjitlink() -> bool:
    """Return False: there is no linker."""
    return False
