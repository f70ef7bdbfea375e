"""``cupy.cuda.memory``: memory of a device, positions in it, allocators and pools.

The pools count bytes as CuPy's do (blocks of 512 bytes, reused when the arrays in them are gone). The memory itself is
the emulator's: each block has an address and bounds of its own, so that accesses beyond it are found.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from windtunnel.core.errors import DeviceOutOfMemory
from windtunnel.emulate.common.current import current_accelerator, current_index
from windtunnel.emulate.common.memory import Allocation, allocation_at
from windtunnel.emulate.common.pinned import is_pinned
from windtunnel.emulate.cupy.cuda import graph
from windtunnel.emulate.cupy.cuda.stream import current_raw
from windtunnel.emulate.cupy.refusals import missing, not_available
from windtunnel.runtime.buffers import Position
from windtunnel.runtime.interface import MemoryKind
from windtunnel.runtime.kernels import ArrayOperation, Kernel

_allocation_unit_size = ALLOCATION_UNIT_SIZE = 512
"""Bytes of which the blocks of a pool are multiples."""
factories: dict[str, Callable[..., Any]] = {}
"""What makes the objects of other modules; they fill it."""
_THREADS = 128
Access = tuple[Allocation, np.ndarray, Any]
"""Memory, a view of its contents, and an index of the elements of the view that are accessed; None for all."""


class OutOfMemoryError(MemoryError):
    """The device has not enough free memory, or the pool's limit is reached."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        self._size, self._total, self._limit = size, total, limit
        text = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        super().__init__(f"{text}, limit set to: {limit:,} bytes)." if limit else f"{text}).")

    def __reduce__(self) -> Any:
        return OutOfMemoryError, (self._size, self._total, self._limit)


class _DeviceOutOfMemory(OutOfMemoryError, DeviceOutOfMemory):
    """The device has not enough free memory: CuPy's error, and Windtunnel's."""

    def __init__(self, size: int, total: int, error: DeviceOutOfMemory) -> None:
        OutOfMemoryError.__init__(self, size, total)
        vars(self).update(vars(error))


_DeviceOutOfMemory.__name__ = _DeviceOutOfMemory.__qualname__ = OutOfMemoryError.__name__


class BaseMemory:
    """Memory of a device. ``allocation`` is the emulator's."""

    kind: MemoryKind = "device"

    def __init__(self, size: int, allocation: Allocation | None = None) -> None:
        self.size = int(size)
        if allocation is None:
            try:
                allocation = Allocation(self.size, self.kind)
            except DeviceOutOfMemory as error:
                raise _DeviceOutOfMemory(self.size, int(current_accelerator().allocated_bytes), error) from error
        self.allocation = allocation
        self.ptr, self.device_id = allocation.address, allocation.device

    @property
    def device(self) -> Any:
        """Its device."""
        return factories["device"](self.device_id)


class Memory(BaseMemory):
    """Memory that is freed when nothing refers to it."""


class MemoryAsync(BaseMemory):
    """Memory from the driver's own pool."""

    def __init__(self, size: int, stream: Any = None) -> None:
        super().__init__(size)
        self.stream = stream


class ManagedMemory(BaseMemory):
    """Memory that host and device access."""

    kind: MemoryKind = "unified"

    def prefetch(self, stream: Any, *, device_id: int = -1) -> None:
        """Do nothing: pages move when they are accessed."""
        del stream, device_id

    def advise(self, advise: int, dev: Any) -> None:
        """Do nothing."""
        del advise, dev


class UnownedMemory(BaseMemory):
    """Memory that something else owns; ``ptr`` must be an address of an emulated device."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        del device_id
        found = allocation_at(ptr)
        if found is None and ptr:
            raise not_available(f"memory at {ptr:#x}", "it is not memory of the emulated device")
        super().__init__(size, Allocation(0) if found is None else found)
        self._owner, self._shift = owner, 0 if found is None else ptr - found.address
        self.ptr = ptr


class PooledMemory(BaseMemory):
    """A block of a pool, which goes back to it when nothing refers to it."""

    def __init__(self, size: int, allocation: Allocation, release: Callable[[], None]) -> None:
        super().__init__(size, allocation)
        self._release = weakref.finalize(self, release)

    def free(self) -> None:
        """Give it back to the pool."""
        self._release()


class MemoryPointer:
    """A position in memory: ``offset`` bytes from its beginning."""

    def __init__(self, mem: BaseMemory, offset: int = 0) -> None:
        self.mem = mem
        self.offset = int(offset) + getattr(mem, "_shift", 0)
        self._first = getattr(mem, "_shift", 0)

    @property
    def ptr(self) -> int:
        """The address."""
        return self.mem.allocation.address + self.offset

    @property
    def allocation(self) -> Allocation:
        """The emulator's memory."""
        return self.mem.allocation

    @property
    def device_id(self) -> int:
        """The number of its device."""
        return self.mem.device_id

    @property
    def device(self) -> Any:
        """Its device."""
        return self.mem.device

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.offset - self._first + int(offset))

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -int(offset)

    def __isub__(self, offset: int) -> MemoryPointer:  # noqa: PYI034
        return self - offset

    def __iadd__(self, offset: int) -> MemoryPointer:  # noqa: PYI034
        return self + offset

    def _bytes(self, size: int) -> np.ndarray:
        return self.allocation.contents()[self.offset : self.offset + size]

    def _position(self, size: int) -> Position:
        assert self.allocation.buffer is not None  # noqa: S101  a copy of no bytes does not come here
        memory = self.allocation.buffer.memory
        return Position(self.allocation.accelerator, memory, (size,), np.dtype(np.uint8), self.offset)

    def copy_from_device(self, src: MemoryPointer, size: int) -> None:
        """Copy from memory of the device."""
        self.copy_from_device_async(src, size)

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """Copy from memory of the device."""
        if size:
            target, source = self._bytes(size), src._bytes(size)
            enqueue("copy", lambda: np.copyto(target, source.copy()), [(src.allocation, source, None)],
                    [(self.allocation, target, None)], stream, copies=True)  # fmt: skip

    def copy_from_host(self, mem: Any, size: int) -> None:
        """Copy from the host: an address, or a ctypes pointer."""
        if size:
            self.allocation.accelerator.copy_in(self._position(size), _host_bytes(mem, size), current_raw())

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """Copy from page-locked memory of the host."""
        if size:
            position, given = self._position(size), _host_bytes(mem, size)
            self.allocation.accelerator.copy_in(position, given, current_raw(stream), pinned=_is_page_locked(mem))

    def copy_from(self, mem: Any, size: int) -> None:
        """Copy from the host, or from memory of the device."""
        (self.copy_from_device if isinstance(mem, MemoryPointer) else self.copy_from_host)(mem, size)

    def copy_from_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """Copy from the host, or from memory of the device."""
        if isinstance(mem, MemoryPointer):
            self.copy_from_device_async(mem, size, stream)
        else:
            self.copy_from_host_async(mem, size, stream)

    def copy_to_host(self, mem: Any, size: int) -> None:
        """Copy to the host."""
        if size:
            self.allocation.accelerator.copy_out(_host_bytes(mem, size), self._position(size), current_raw())

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        """Copy to page-locked memory of the host."""
        if size:
            position, target = self._position(size), _host_bytes(mem, size)
            self.allocation.accelerator.copy_out(target, position, current_raw(stream), pinned=_is_page_locked(mem))

    def memset(self, value: int, size: int) -> None:
        """Set bytes."""
        self.memset_async(value, size)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """Set bytes."""
        if size:
            target = self._bytes(size)
            enqueue("memset", lambda: target.fill(value), [], [(self.allocation, target, None)], stream)


def enqueue(
    name: str,
    action: Callable[[], None],
    reads: Sequence[Access],
    writes: Sequence[Access],
    stream: Any = None,
    work: Any = None,
    *,
    copies: bool = False,
) -> None:
    """Enqueue an operation on whole arrays in a stream, by default the current one. Raises a finding.

    Args:
        name: The name of the operation.
        action: What it does.
        reads: What it reads.
        writes: What it writes.
        stream: The stream.
        work: Its cost (`runtime.kernels.Work`); by default it reads and writes its arrays once.
        copies: Whether it copies the elements of the first array, among which may be some that nothing has written.
    """
    accesses = (*reads, *writes)
    memories = list(dict.fromkeys(access[0] for access in accesses if access[0].buffer is not None))
    number = {allocation: at for at, allocation in enumerate(memories)}
    operation = ArrayOperation(
        name,
        action,
        [(number[a], view, index) for a, view, index in reads if view.size],
        [(number[a], view, index) for a, view, index in writes if view.size],
        copies,
    )
    elements = max((view.size for _, view, _ in accesses), default=1)
    if work is None:
        moved = sum(view.nbytes for _, view, _ in accesses)
        work = {"op": "kernel", "threads": max(elements, 1), "bytes": max(moved, 1), "flops": 0.0}
    graph.hold(*memories)
    accelerator = memories[0].accelerator if memories else current_accelerator()
    buffers = [allocation.buffer for allocation in memories]
    blocks = min(max(-(-elements // _THREADS), 1), 2**31 - 1)
    accelerator.launch(Kernel(operation, work), blocks, _THREADS, *buffers, stream=current_raw(stream))


def _host_address(mem: Any) -> int:
    given = getattr(mem, "value", mem)
    return int(getattr(given, "ptr", given) or 0)


def _host_bytes(mem: Any, size: int) -> np.ndarray:
    """Return memory of the host that a program names by its address."""
    if isinstance(mem, np.ndarray):
        return mem.reshape(-1).view(np.uint8)[:size]
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(_host_address(mem)))


def _is_page_locked(mem: Any) -> bool:
    return is_pinned(_host_bytes(mem, 1))


# Pools.


class MemoryPool:
    """A pool of memory: blocks that nothing uses are used again. The bytes are counted for each device."""

    def __init__(self, allocator: Callable[[int], MemoryPointer] | None = None) -> None:
        self._allocator = _malloc if allocator is None else allocator
        self._used: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self._limit: dict[int, int] = {}
        self._lock = threading.RLock()

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate memory. Raises OutOfMemoryError."""
        size = int(size)
        if not size:
            return MemoryPointer(Memory(0))
        device, rounded = current_index(), -(-size // ALLOCATION_UNIT_SIZE) * ALLOCATION_UNIT_SIZE
        with self._lock:
            blocks = self._free.setdefault(device, [])
            at = bisect.bisect_left(blocks, rounded)
            if at < len(blocks):
                rest = blocks.pop(at) - rounded
                if rest:
                    bisect.insort(blocks, rest)
            else:
                limit, total = self._limit.get(device, 0), self.total_bytes()
                if limit and total + rounded > limit:
                    self.free_all_blocks()
                    if self.total_bytes() + rounded > limit:
                        raise OutOfMemoryError(size, total, limit)
            self._used[device] = self._used.get(device, 0) + rounded
        try:
            inner = self._allocator(size)
        except BaseException:
            self._release(device, rounded, keep=False)
            raise
        return MemoryPointer(PooledMemory(size, inner.mem.allocation, _releasing(self, device, rounded, inner)))

    def _release(self, device: int, size: int, *, keep: bool = True) -> None:
        with self._lock:
            self._used[device] -= size
            if keep:
                bisect.insort(self._free.setdefault(device, []), size)

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give the blocks that nothing uses back to the device."""
        del stream
        self._free[current_index()] = []

    def free_all_free(self) -> None:
        """Do what `free_all_blocks` does, which is its name now."""
        self.free_all_blocks()

    def n_free_blocks(self) -> int:
        """Return the number of blocks that nothing uses."""
        return len(self._free.get(current_index(), ()))

    def used_bytes(self) -> int:
        """Return the bytes of blocks in use."""
        return self._used.get(current_index(), 0)

    def free_bytes(self) -> int:
        """Return the bytes of blocks that nothing uses."""
        return sum(self._free.get(current_index(), ()))

    def total_bytes(self) -> int:
        """Return the bytes of all blocks."""
        return self.used_bytes() + self.free_bytes()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Set the most bytes of the pool on the current device, in bytes or as a share of the device's memory."""
        if size is not None and fraction is not None:
            raise ValueError("size and fraction cannot be specified at one time")
        if fraction is not None:
            if not 0 <= fraction <= 1:
                raise ValueError(f"memory limit fraction out of range: {fraction}")
            size = int(current_accelerator().info.memory_bytes * fraction)
        if size is None:
            raise ValueError("either size or fraction must be specified")
        if size < 0:
            raise ValueError(f"memory limit size out of range: {size}")
        self._limit[current_index()] = int(size)

    def get_limit(self) -> int:
        """Return the most bytes of the pool; 0 if it has no limit."""
        return self._limit.get(current_index(), 0)


class MemoryAsyncPool(MemoryPool):
    """The pool of the driver, which is emulated as CuPy's own pool is."""

    def __init__(self, pool_handles: Any = "current") -> None:
        del pool_handles
        super().__init__(malloc_async)


def _releasing(pool: MemoryPool, device: int, size: int, inner: MemoryPointer) -> Callable[[], None]:
    """Return what gives a block back; it keeps the memory, but not the block, alive."""
    kept = [inner]

    def release() -> None:
        kept.clear()
        pool._release(device, size)

    return release


class PythonFunctionAllocator:
    """An allocator of two functions: ``malloc(size, device)`` returns an address, ``free(address, device)``."""

    def __init__(self, malloc_func: Callable[[int, int], int], free_func: Callable[[int, int], None]) -> None:
        self._malloc, self._free = malloc_func, free_func

    def malloc(self, size: int) -> MemoryPointer:
        """Allocate memory."""
        device = current_index()
        address = self._malloc(size, device)
        made = UnownedMemory(address, size, self)
        weakref.finalize(made, self._free, address, device)
        return MemoryPointer(made)


def _malloc(size: int) -> MemoryPointer:
    return MemoryPointer(Memory(size))


def malloc_managed(size: int) -> MemoryPointer:
    """Allocate memory that host and device access."""
    return MemoryPointer(ManagedMemory(size))


def malloc_async(size: int) -> MemoryPointer:
    """Allocate memory from the driver's pool."""
    return MemoryPointer(MemoryAsync(size))


default_pool = MemoryPool()
_local = threading.local()
_state: dict[str, Any] = {"allocator": default_pool.malloc}


def get_allocator() -> Callable[[int], MemoryPointer]:
    """Return the current allocator."""
    own: Callable[[int], MemoryPointer] | None = _local.__dict__.get("allocator")
    return own or _state["allocator"]


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    """Set the allocator of arrays; None for one without a pool."""
    if _local.__dict__.get("allocator") is not None:
        raise ValueError("Can't change the global allocator inside `using_allocator` context manager")
    _state["allocator"] = _malloc if allocator is None else allocator


@contextmanager
def using_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> Iterator[None]:
    """Set the allocator of arrays for a block."""
    before = _local.__dict__.get("allocator")
    _local.allocator = _malloc if allocator is None else allocator
    try:
        yield
    finally:
        _local.allocator = before


def alloc(size: int) -> MemoryPointer:
    """Allocate memory by the current allocator."""
    made = get_allocator()(size)
    if not isinstance(made, MemoryPointer):
        raise TypeError(f"the allocator returned {made!r}, not a MemoryPointer")
    return made


def __getattr__(name: str) -> Any:
    return missing("cupy.cuda.memory", name)
