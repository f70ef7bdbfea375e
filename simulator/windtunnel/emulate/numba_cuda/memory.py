"""Memory of an emulated device, as ``numba.cuda`` has it."""

from __future__ import annotations

from typing import Any

from windtunnel.emulate.common.memory import Allocation, free
from windtunnel.emulate.numba_cuda.cudadrv import devices


class MemoryView:
    """A place in the memory of a device, as ``gpu_data`` and what ``memalloc`` returns.

    ``size``: the bytes from there on; by default to the end of the memory.
    """

    def __init__(self, allocation: Allocation, offset: int = 0, size: int | None = None) -> None:
        self.allocation, self.offset = allocation, offset
        self.size = allocation.size - offset if size is None else size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryView) and (other.allocation, other.offset) == (self.allocation, self.offset)

    def __hash__(self) -> int:
        return hash((self.allocation, self.offset))

    @property
    def device_pointer(self) -> int:
        """The address."""
        return self.allocation.address + self.offset

    device_pointer_value = device_pointer

    def own(self) -> MemoryView:
        """Return the memory, which is freed when nothing refers to it any more."""
        return self

    def view(self, start: int, stop: int | None = None) -> MemoryView:
        """Return the bytes from ``start`` to ``stop``, by default to the end. Raises RuntimeError if there are none."""
        size = (self.size if stop is None else stop) - start
        if size < 0:
            raise RuntimeError("size cannot be negative")
        return MemoryView(self.allocation, self.offset + start, size)

    def memset(self, byte: int, count: int | None = None, stream: Any = 0) -> None:
        """Set bytes, by default all."""
        del stream
        part = self.allocation.bytes()[self.offset : self.offset + (self.size if count is None else count)]
        part[...] = byte
        self.allocation.mark_written(part)

    def free(self) -> None:
        """Free the memory. Raises RuntimeError if it was freed before; a later use is a `UseAfterFree`."""
        buffer = self.allocation.buffer
        if buffer is not None and buffer.freed:
            raise RuntimeError("Freeing dead pointer")
        if buffer is not None:
            free(self.allocation.accelerator, buffer.memory)


def _memory(size: int, device: int) -> MemoryView:
    return MemoryView(Allocation(size, device=device))


devices.factories["memory"] = _memory
