"""Memory of an emulated device, as ``numba.cuda`` has it."""

from __future__ import annotations

from windtunnel.emulate.common.memory import Allocation
from windtunnel.emulate.numba_cuda.cudadrv import devices


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
