"""Memory of an emulated device, as ``numba.cuda`` has it."""

from __future__ import annotations

from windtunnel.core.errors import DeviceOutOfMemory
from windtunnel.emulate.common import memory
from windtunnel.emulate.numba_cuda.cudadrv import devices
from windtunnel.emulate.numba_cuda.cudadrv.error import CudaAPIError
from windtunnel.runtime.interface import MemoryKind


class Allocation(memory.Allocation):
    """Memory of a device, which is freed when nothing refers to it any more."""

    def __init__(self, size: int, kind: MemoryKind = "device", device: int | None = None) -> None:
        try:
            super().__init__(size, kind, device)
        except DeviceOutOfMemory as error:
            raise CudaAPIError(2, f"Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY: {error}") from error


class MemoryView:
    """A place in the memory of a device, as ``gpu_data``."""

    def __init__(self, allocation: memory.Allocation, offset: int = 0) -> None:
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
