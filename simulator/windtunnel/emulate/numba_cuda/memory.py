"""Memory of an emulated device, which is freed when nothing refers to it any more."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from windtunnel.core.errors import DeviceOutOfMemory
from windtunnel.emulate import session
from windtunnel.emulate.numba_cuda.cudadrv import devices
from windtunnel.emulate.numba_cuda.cudadrv.error import CudaAPIError
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.interface import MemoryKind

ALLOCATIONS: weakref.WeakSet[Allocation] = weakref.WeakSet()
"""The memory of the program that is in use."""


class Allocation:
    """Memory of a device, which is freed when nothing refers to it any more."""

    def __init__(self, size: int, kind: MemoryKind = "device", device: int | None = None) -> None:
        self.device = devices.current_index() if device is None else device
        self.accelerator: Accelerator = session.current.accelerator(self.device)
        self.size, self.kind = size, kind
        ALLOCATIONS.add(self)
        self.buffer: Buffer | None = None
        if size:
            try:
                self.buffer = self.accelerator.empty(size, np.uint8, kind=kind)
            except DeviceOutOfMemory as error:
                raise CudaAPIError(2, f"Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY: {error}") from error
            weakref.finalize(self, _free, self.accelerator, self.buffer.memory)

    @property
    def address(self) -> int:
        """The address of its first byte."""
        return 0 if self.buffer is None else int(self.buffer.memory.address)

    def bytes(self) -> np.ndarray:
        """Return its contents."""
        if self.buffer is None:
            return np.empty(0, np.uint8)
        memory = self.buffer.memory
        if memory.kind != "device":
            view: np.ndarray = self.accelerator.context.host_view(memory, np.dtype(np.uint8), (self.size,))
            return view
        self.buffer.check_not_freed("access")
        data: np.ndarray = self.accelerator.context.view(memory, np.dtype(np.uint8), (self.size,))
        return data

    def mark_written(self) -> None:
        """Record that its elements have values."""
        if self.buffer is not None and hasattr(self.buffer.memory, "mark_written"):
            self.buffer.memory.mark_written(self.size)


def _free(accelerator: Accelerator, memory: Any) -> None:
    if not accelerator.closed and not memory.freed:
        accelerator.context.free(memory)


class MemoryView:
    """A place in the memory of a device, as ``gpu_data``."""

    def __init__(self, allocation: Allocation, offset: int = 0) -> None:
        self.allocation, self.offset = allocation, offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryView) and (other.allocation, other.offset) == (self.allocation, self.offset)

    def __hash__(self) -> int:
        return hash((self.allocation, self.offset))

    @property
    def size(self) -> int:
        """The bytes from here on."""
        return self.allocation.size - self.offset

    @property
    def device_pointer(self) -> int:
        """The address."""
        return self.allocation.address + self.offset

    device_pointer_value = device_pointer


def _memory(size: int, device: int) -> MemoryView:
    return MemoryView(Allocation(size, device=device))


devices.factories["memory"] = _memory
