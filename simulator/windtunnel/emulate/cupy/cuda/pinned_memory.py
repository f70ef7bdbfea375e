"""``cupy.cuda.pinned_memory``: page-locked memory of the host."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from windtunnel.emulate.common.pinned import pin, unpin_address


class PinnedMemory:
    """Page-locked memory of the host."""

    def __init__(self, size: int, flags: int = 0) -> None:
        del flags
        self.size = int(size)
        self.array = np.zeros(max(self.size, 1), np.uint8)
        self.ptr = int(self.array.__array_interface__["data"][0])
        pin(self.array)
        weakref.finalize(self.array, unpin_address, self.ptr)


class PinnedMemoryPointer(np.ndarray):
    """A position in page-locked memory: its bytes from there on, as ``numpy.frombuffer`` takes them."""

    mem: PinnedMemory
    offset: int
    ptr: int

    def __new__(cls, mem: PinnedMemory, offset: int = 0) -> Self:
        """Return the position."""
        made = mem.array[offset : mem.size].view(cls)
        made.mem, made.offset, made.ptr = mem, offset, mem.ptr + offset
        return made

    def __array_finalize__(self, other: Any) -> None:
        """Do nothing: a part of the bytes is an array."""

    def size(self) -> int:  # type: ignore[override]
        """Return the bytes from here on."""
        return self.mem.size - self.offset

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: Any) -> Any:
        return PinnedMemoryPointer(self.mem, self.offset + int(offset))


class PinnedMemoryPool:
    """A pool of page-locked memory."""

    def __init__(self, allocator: Callable[[int], PinnedMemoryPointer] | None = None) -> None:
        self._allocator = _malloc if allocator is None else allocator

    def malloc(self, size: int) -> PinnedMemoryPointer:
        """Allocate memory."""
        return self._allocator(size)

    def free_all_blocks(self) -> None:
        """Do nothing: memory that nothing refers to is freed."""

    def n_free_blocks(self) -> int:
        """Return 0: memory that nothing refers to is freed."""
        return 0


def _malloc(size: int) -> PinnedMemoryPointer:
    return PinnedMemoryPointer(PinnedMemory(size))


default_pool = PinnedMemoryPool()
_state: dict[str, Callable[[int], PinnedMemoryPointer]] = {"allocator": default_pool.malloc}


def set_pinned_memory_allocator(allocator: Callable[[int], PinnedMemoryPointer] | None = None) -> None:
    """Set the allocator of page-locked memory."""
    _state["allocator"] = _malloc if allocator is None else allocator


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    """Allocate page-locked memory."""
    return _state["allocator"](size)
