"""``cupy.cuda.runtime``: functions of CUDA's runtime, under their names there."""

# ruff: noqa: N802, N803, N816  the names are CUDA's

from __future__ import annotations

from typing import Any

from windtunnel.emulate import session
from windtunnel.emulate.common import current
from windtunnel.emulate.common.memory import Allocation, allocation_at
from windtunnel.emulate.common.streams import new_handle, stream_at
from windtunnel.emulate.cupy.cuda import device as devices
from windtunnel.emulate.cupy.cuda import graph, memory, pinned_memory
from windtunnel.emulate.cupy.cuda.runtime_error import CUDARuntimeError
from windtunnel.emulate.cupy.refusals import missing
from windtunnel.runtime.interface import MemoryKind

session.forked = lambda: CUDARuntimeError(3)

is_hip = False
__all__ = ["CUDARuntimeError"]
CUDA_VERSION = 12090
"""The version of CUDA whose interface this is."""
memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice, memcpyDefault = range(5)
streamDefault, streamNonBlocking, streamLegacy, streamPerThread = 0, 1, 1, 2
eventDefault, eventBlockingSync, eventDisableTiming, eventInterprocess = 0, 1, 2, 4
hostAllocDefault, hostAllocPortable, hostAllocMapped, hostAllocWriteCombined = 0, 1, 2, 4
memAttachGlobal, memAttachHost, memAttachSingle = 1, 2, 4
streamCaptureModeGlobal, streamCaptureModeThreadLocal, streamCaptureModeRelaxed = 0, 1, 2
_allocated: dict[int, Allocation] = {}
"""What the program has allocated itself, by address."""
_pinned: dict[int, pinned_memory.PinnedMemory] = {}
_streams: dict[int, Any] = {}
_events: dict[int, Any] = {}


def __getattr__(name: str) -> Any:
    missing("cupy.cuda.runtime", name)


def getDeviceCount() -> int:
    """Return the number of devices."""
    session.current.initialise()
    return session.current.count


def getDevice() -> int:
    """Return the number of the current device."""
    return current.current_index()


def setDevice(device: int) -> None:
    """Make a device the current one."""
    _check_device(device)
    current.select(device)


def getDeviceProperties(device: int) -> dict[str, Any]:
    """Return the properties of a device that the emulator knows."""
    _check_device(device)
    return devices.properties(device)


def _check_device(device: int) -> None:
    if not 0 <= device < session.current.count:
        raise CUDARuntimeError(101)


_ATTRIBUTES = {
    1: ("MaxThreadsPerBlock", "maxThreadsPerBlock"), 8: ("MaxSharedMemoryPerBlock", "sharedMemPerBlock"),
    9: ("TotalConstantMemory", "totalConstMem"), 10: ("WarpSize", "warpSize"),
    12: ("MaxRegistersPerBlock", "regsPerBlock"), 16: ("MultiProcessorCount", "multiProcessorCount"),
    31: ("ConcurrentKernels", "concurrentKernels"), 39: ("MaxThreadsPerMultiProcessor", "maxThreadsPerMultiProcessor"),
    40: ("AsyncEngineCount", "asyncEngineCount"), 41: ("UnifiedAddressing", "unifiedAddressing"),
    75: ("ComputeCapabilityMajor", "major"), 76: ("ComputeCapabilityMinor", "minor"),
    83: ("ManagedMemory", "managedMemory"), 89: ("ConcurrentManagedAccess", "concurrentManagedAccess"),
    95: ("CooperativeLaunch", "cooperativeLaunch"), 97: ("MaxSharedMemoryPerBlockOptin", "sharedMemPerBlockOptin"),
    115: ("MemoryPoolsSupported", "memoryPoolsSupported"),
}  # fmt: skip
"""Attributes of a device by number (CUDA Runtime API, ``cudaDeviceAttr``): the name, and that of the property."""
globals().update({f"cudaDevAttr{name}": number for number, (name, _) in _ATTRIBUTES.items()})


def deviceGetAttribute(attrib: int, device: int) -> int:
    """Return an attribute of a device by its number."""
    if attrib not in _ATTRIBUTES:
        missing("cupy.cuda.runtime", f"deviceGetAttribute({attrib}, ...)")
    return int(getDeviceProperties(device)[_ATTRIBUTES[attrib][1]])


def deviceSynchronize() -> None:
    """Wait for all work of the current device."""
    graph.forbid()
    current.current_accelerator().synchronize()


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
    """Return 0: the devices have memory of their own."""
    _check_device(device)
    _check_device(peerDevice)
    return 0


def driverGetVersion() -> int:
    """Return the version of CUDA whose interface this is."""
    return CUDA_VERSION


def runtimeGetVersion() -> int:
    """Return the version of CUDA whose interface this is."""
    return CUDA_VERSION


def deviceGetPCIBusId(device: int) -> str:
    """Return the address of a device on the PCI bus."""
    _check_device(device)
    return f"0000:{device:02X}:00.0"


def memGetInfo() -> tuple[int, int]:
    """Return the free and the total memory (bytes) of the current device."""
    accelerator = current.current_accelerator()
    total = int(accelerator.info.memory_bytes)
    return total - int(accelerator.allocated_bytes), total


# Memory that the program frees itself.


def _allocate(size: int, kind: MemoryKind) -> int:
    made = Allocation(int(size), kind, owned=False)
    if made.address:
        _allocated[made.address] = made
    return made.address


def malloc(size: int) -> int:
    """Allocate memory, which is freed by `free` only."""
    return _allocate(size, "device")


def mallocManaged(size: int, flags: int = memAttachGlobal) -> int:
    """Allocate memory that host and device access."""
    del flags
    return _allocate(size, "unified")


def mallocAsync(size: int, stream: int) -> int:
    """Allocate memory, which is freed by `freeAsync` or `free` only."""
    del stream
    return _allocate(size, "device")


def free(ptr: int) -> None:
    """Free memory."""
    if not ptr:
        return
    held = _allocated.pop(int(ptr), None)
    if held is None or held.buffer is None:
        raise CUDARuntimeError(1)
    held.accelerator.context.free(held.buffer.memory)


def freeAsync(ptr: int, stream: int) -> None:
    """Free memory."""
    del stream
    free(ptr)


def hostAlloc(size: int, flags: int = 0) -> int:
    """Allocate page-locked memory of the host."""
    made = pinned_memory.PinnedMemory(size, flags)
    _pinned[made.ptr] = made
    return made.ptr


mallocHost = hostAlloc


def freeHost(ptr: int) -> None:
    """Free page-locked memory of the host."""
    if _pinned.pop(int(ptr), None) is None:
        raise CUDARuntimeError(1)


def _position(ptr: int, size: int) -> memory.MemoryPointer:
    found = allocation_at(int(ptr))
    if found is None:
        raise CUDARuntimeError(17)
    return memory.MemoryPointer(memory.UnownedMemory(int(ptr), size, found))


def memcpy(dst: int, src: int, size: int, kind: int) -> None:
    """Copy memory, and wait for it."""
    memcpyAsync(dst, src, size, kind, 0, _waits=True)


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int, *, _waits: bool = False) -> None:
    """Copy memory in a stream."""
    if kind == memcpyDefault:
        kind = (2 if allocation_at(int(src)) else 0) + (1 if allocation_at(int(dst)) else 0)
    if kind == memcpyHostToHost:
        memory._host_bytes(int(dst), size)[...] = memory._host_bytes(int(src), size)
    elif kind == memcpyHostToDevice:
        target = _position(dst, size)
        if _waits:
            target.copy_from_host(int(src), size)
        else:
            target.copy_from_host_async(int(src), size, int(stream))
    elif kind == memcpyDeviceToHost:
        source = _position(src, size)
        if _waits:
            source.copy_to_host(int(dst), size)
        else:
            source.copy_to_host_async(int(dst), size, int(stream))
    elif kind == memcpyDeviceToDevice:
        _position(dst, size).copy_from_device_async(_position(src, size), size, int(stream))
    else:
        raise CUDARuntimeError(1)


def memset(ptr: int, value: int, size: int) -> None:
    """Set bytes."""
    _position(ptr, size).memset(value, size)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    """Set bytes in a stream."""
    _position(ptr, size).memset_async(value, size, int(stream))


# Streams and events.


def streamCreate() -> int:
    """Create a stream."""
    return streamCreateWithFlags(streamDefault)


def streamCreateWithFlags(flags: int) -> int:
    """Create a stream."""
    raw = current.current_accelerator().stream(non_blocking=bool(flags & streamNonBlocking))
    handle = new_handle(raw)
    _streams[handle] = raw
    return handle


def streamDestroy(stream: int) -> None:
    """Forget a stream."""
    if _streams.pop(int(stream), None) is None:
        raise CUDARuntimeError(400)


def streamSynchronize(stream: int) -> None:
    """Wait for the work of a stream."""
    raw = stream_at(stream)
    if raw is None:
        deviceSynchronize()
    else:
        raw.synchronize()


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:
    """Make later work of a stream wait for an event."""
    del flags
    raw = stream_at(stream)
    (current.current_accelerator().context.default if raw is None else raw).wait(_event(event))


def _event(event: int) -> Any:
    if int(event) not in _events:
        raise CUDARuntimeError(400)
    return _events[int(event)]


def eventCreate() -> int:
    """Create an event."""
    return eventCreateWithFlags(eventDefault)


def eventCreateWithFlags(flags: int) -> int:
    """Create an event."""
    del flags
    raw = current.current_accelerator().event()
    _events[id(raw)] = raw
    return id(raw)


def eventDestroy(event: int) -> None:
    """Forget an event."""
    _event(event)
    del _events[int(event)]


def eventRecord(event: int, stream: int) -> None:
    """Record the current position of a stream."""
    _event(event).record(stream_at(stream))


def eventSynchronize(event: int) -> None:
    """Wait for the work before an event."""
    _event(event).synchronize()


def eventElapsedTime(start: int, end: int) -> float:
    """Return the time between two events (ms)."""
    return float(_event(end).elapsed_s(_event(start))) * 1e3


class PointerAttributes:
    """What an address points into: its device, and the kind of memory (1 host, 2 device, 3 managed)."""

    def __init__(self, device: int, ptr: int, kind: int) -> None:
        self.device, self.type = device, kind
        self.devicePointer = ptr if kind > 1 else 0
        self.hostPointer = ptr if kind != 2 else 0


def pointerGetAttributes(ptr: int) -> PointerAttributes:
    """Return what an address points into."""
    found = allocation_at(int(ptr))
    if found is None:
        return PointerAttributes(-1, int(ptr), 1 if int(ptr) in _pinned else 0)
    return PointerAttributes(found.device, int(ptr), 2 if found.kind == "device" else 3)


def profilerStart() -> None:
    """Do nothing: the timeline of an emulated device is always there."""


profilerStop = profilerStart


def _no_error() -> int:
    return 0


getLastError = peekAtLastError = _no_error
