"""A stand-in for the part of CuPy that `windtunnel.backends.cuda.driver` uses, on a host without a GPU. It is no GPU.

It is strict where CuPy is lenient: what it does not know it has not, numbers have to be Python's, and arguments of a
kernel have the sizes of its parameters. Source text is compiled by the real NVRTC (HIP's is checked by Clang), and then
by g++ for this host, so that what runs is the very text that a GPU would be given.

Nothing that is enqueued is done before somebody waits for it, and then no more than what that needs: whatever the
driver fails to order, or to wait for, is found out. Work in one stream is in order, streams wait for events, and the
legacy default stream and blocking streams wait for each other. The clock counts what was done, in microseconds.
"""

from __future__ import annotations

import ctypes
import math
import re
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.backends.fake_compilers import SIZES, built, hip_says, nvrtc_named
from tests.backends.fake_device import (
    Capture,
    CompileException,
    CUDADriverError,
    CUDARuntimeError,
    Device,
    NVRTCError,
    Op,
    OutOfMemoryError,
    ancestors,
)
from tests.backends.fake_libraries import MODULES, libraries, memory, whole

PROPERTIES: dict[str, Any] = {
    "name": b"Stand-in (no GPU)", "totalGlobalMem": 2**33, "sharedMemPerBlock": 49152, "sharedMemPerBlockOptin": 232448,
    "maxThreadsPerBlock": 1024, "maxThreadsDim": (1024, 1024, 64), "maxGridSize": (2**31 - 1, 65535, 65535),
    "warpSize": 32, "multiProcessorCount": 4, "major": 9, "minor": 0, "managedMemory": 1, "concurrentManagedAccess": 1,
    "canMapHostMemory": 1, "cooperativeLaunch": 1,
}  # fmt: skip


class FakeCupy:
    """The module ``cupy``: use it as such."""

    def __init__(self, *, devices: int = 1, hip: bool = False, driver: int = 12090, **properties: Any) -> None:
        unknown = set(properties) - set(PROPERTIES)
        assert not unknown, unknown
        self._lock = threading.RLock()
        self._devices = [Device(number) for number in range(devices)]
        self._properties = PROPERTIES | properties
        self._hip, self._driver_version = hip, driver
        self._current = threading.local()
        self._memory: dict[int, tuple[np.ndarray, str, int]] = {}
        """By address: bytes, what kind of memory, and whose."""
        self._streams: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._events: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._images: dict[bytes, str] = {}
        self._plain: dict[str, str] = {}
        """Kernels' names by those that the compiler mangles."""
        self._next = 0x1000
        self._clock = 0
        self.calls: list[str] = []
        """Names of what was called, in order, for tests."""
        self.options: list[tuple[str, ...]] = []
        """That the compiler was told."""
        self.unloaded_while_running = 0
        """Kernels that were still running when their module was freed."""
        self.stay: set[str] = set()
        """Names of kernels that stay: each runs at once, in a thread, and who waits for its stream waits for it."""
        self.fail: dict[str, int] = {}
        """By a function's name, what its next call fails with."""
        self.without: set[str] = set()
        """Libraries, ``cublas`` and ``cufft``, that are not installed."""
        self.late = 0
        """Times that an event is reached at once: as if the host had been slow."""
        self.library_fails: dict[str, int] = {}
        """By a library's function, the status that its next call ends with."""
        self.handles: dict[int, int] = {}
        """Of cuBLAS, each with its math mode."""
        self.plans = self.orphans = 0
        """Of cuFFT: those that there are, and those that outlived their working memory."""
        there = memory(self)
        self.ndarray = there.ndarray
        self.libraries = libraries(self, there)
        self.cuda = _cuda(self, there)

    # For tests.

    def break_next_kernel(self, status: int) -> None:
        """The next kernel that runs fails; the device is gone for good."""
        self._devices[self.device().number].break_with = status

    def allocated(self) -> int:
        """Pieces of memory that were not given back."""
        return len(self._memory)

    # Of all calls.

    def device(self) -> Device:
        if not self._devices:
            raise CUDARuntimeError(35 if self._driver_version < 12000 else 100)
        return self._devices[getattr(self._current, "number", 0)]

    def checked(self, name: str) -> None:
        self.calls.append(name)
        status = self.fail.pop(name, None)
        if status is None and self._devices:
            status = self.device().broken
        if status is not None:
            raise CUDARuntimeError(status)

    def current_stream(self) -> Any:
        """That CuPy gives a library."""
        streams = getattr(self._current, "streams", ())
        return streams[-1] if streams else self.cuda.Stream.null

    def number(self) -> int:
        self._next += 8
        return self._next

    def piece(self, address: int) -> tuple[int, np.ndarray, str, int] | None:
        """(where it begins, bytes, kind, device) of the memory that an address lies in."""
        for begin, (data, kind, owner) in self._memory.items():
            if begin <= address < begin + data.size:
                return begin, data, kind, owner
        return None

    def enqueue(
        self, stream: Any, run: Callable[[], None], uses: Iterable[int] = (), device: Device | None = None
    ) -> Op:
        used = tuple(piece[0] for at in uses if (piece := self.piece(at)) is not None)
        if stream.capture is not None:
            op = Op(run, list(stream.tail), used)
            stream.capture.nodes.append(op)
            stream.tail = [op]
            return op
        device = device or self.device()
        if stream.ptr and stream.device_id != device.number:
            raise CUDARuntimeError(400)
        after = [*stream.waits]
        if not stream.non_blocking or not stream.ptr:
            others = device.blocking if not stream.ptr else {0}
            after += [device.lasts[ptr] for ptr in others if ptr in device.lasts]
        if stream.ptr in device.lasts:
            after.append(device.lasts[stream.ptr])
        op = Op(run, after, used)
        stream.waits.clear()
        device.lasts[stream.ptr] = op
        device.pending.append(op)
        return op

    def force(self, op: Op | None, device: Device) -> None:
        """Do it, and what it comes after."""
        stack = [] if op is None else [op]
        while stack:
            one = stack[-1]
            waiting = [other for other in one.after if other.at is None]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if one.at is not None:
                continue
            if device.broken is not None:
                raise CUDARuntimeError(device.broken)
            self._clock += 1
            one.at = self._clock
            one.run()
            one.after = []
        device.pending = [one for one in device.pending if one.at is None]


def _cuda(fake: FakeCupy, there: SimpleNamespace) -> Any:
    """The module ``cupy.cuda``; ``there``: what has to do with memory."""

    class Cuda(SimpleNamespace):
        """It loads a library when it is first asked for it."""

        def __getattr__(self, name: str) -> Any:
            if name not in MODULES:
                raise AttributeError(name)
            if name in fake.without:
                raise ImportError(f'Failure finding "lib{name}.so.12": No such file: lib{name}.so.12\n')
            return fake.libraries[name]

    def call(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with fake._lock:
                fake.checked(function.__name__)
                return function(*args, **kwargs)

        return checked

    # The runtime.

    def getDeviceCount() -> int:
        fake.device()
        return len(fake._devices)

    def getDevice() -> int:
        return fake.device().number

    def setDevice(device: int) -> None:
        if not 0 <= whole(device, "device") < len(fake._devices):
            raise CUDARuntimeError(101)
        fake._current.number = device

    def getDeviceProperties(device: int) -> dict[str, Any]:
        if not 0 <= whole(device, "device") < len(fake._devices):
            raise CUDARuntimeError(101)
        return dict(fake._properties)

    def driverGetVersion() -> int:
        return fake._driver_version

    def deviceGetPCIBusId(device: int) -> str:
        return f"0000:{0x1B + whole(device, 'device'):02X}:00.0"

    def _allocate(size: int, kind: str) -> int:
        if whole(size, "size") > fake._properties["totalGlobalMem"]:
            raise CUDARuntimeError(2)
        data = np.full(size, 0xA5, np.uint8)
        address = int(data.ctypes.data)
        fake._memory[address] = data, kind, fake.device().number
        return address

    def malloc(size: int) -> int:
        return _allocate(size, "device")

    def mallocManaged(size: int, flags: int = 1) -> int:
        return _allocate(size, "managed")

    def hostAlloc(size: int, flags: int) -> int:
        assert whole(flags, "flags") & ~7 == 0
        return _allocate(size, "host")

    def _free(ptr: int, kinds: tuple[str, ...]) -> None:
        found = fake._memory.get(whole(ptr, "ptr"))
        if found is None or found[1] not in kinds:
            raise CUDARuntimeError(1)
        for device in fake._devices:
            assert not any(ptr in op.uses for op in device.pending), "memory is given back that work still uses"
        del fake._memory[ptr]

    def free(ptr: int) -> None:
        _free(ptr, ("device", "managed"))

    def freeHost(ptr: int) -> None:
        _free(ptr, ("host",))

    def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
        dst, src, size = whole(dst, "dst"), whole(src, "src"), whole(size, "size")
        sides = fake.piece(dst), fake.piece(src)
        device_side = {1: sides[:1], 2: sides[1:], 3: sides}[whole(kind, "kind")]
        for address, side in zip((dst, src), sides, strict=True):
            if side is None:
                continue
            if address + size > side[0] + side[1].size:
                raise CUDARuntimeError(1)
        if None in device_side:
            raise CUDARuntimeError(1)
        fake.enqueue(_stream(stream), lambda: ctypes.memmove(dst, src, size) and None, (dst, src))  # type: ignore[func-returns-value]

    def pointerGetAttributes(ptr: int) -> Any:
        side = fake.piece(whole(ptr, "ptr"))
        if side is None and fake._hip:
            raise CUDARuntimeError(1)
        kind = 0 if side is None else {"host": 1, "device": 2, "managed": 3}[side[2]]
        return SimpleNamespace(device=-2 if side is None else side[3], devicePointer=ptr, hostPointer=ptr, type=kind)

    def eventQuery(event: int) -> int:
        op = fake._events[whole(event, "event")].op
        if fake.late and op is not None and op.at is None:
            fake.late -= 1
            return 0
        return 0 if op is None or op.at is not None else 600

    # Streams and events.

    def _stream(ptr: int) -> Any:
        if not whole(ptr, "stream"):
            return Stream.null
        if ptr not in fake._streams:
            raise CUDARuntimeError(400)
        return fake._streams[ptr]

    class Stream:
        null: Any = None

        def __init__(
            self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
        ) -> None:
            assert not ptds and priority is None, "not used"
            self.non_blocking = non_blocking
            self.waits: list[Op] = []
            self.capture: Capture | None = None
            self.tail: list[Op] = []
            if null:
                self.ptr, self.device_id = 0, -1
                return
            with fake._lock:
                fake.checked("streamCreate")
                self.ptr, self.device_id = fake.number(), fake.device().number
                fake._streams[self.ptr] = self
                if not non_blocking:
                    fake._devices[self.device_id].blocking.add(self.ptr)

        @property
        def _device(self) -> Device:
            return fake._devices[self.device_id] if self.ptr else fake.device()

        def __enter__(self) -> Any:
            fake._current.streams = [*getattr(fake._current, "streams", ()), self]
            return self

        def __exit__(self, *_: object) -> None:
            assert fake._current.streams.pop() is self

        def synchronize(self) -> None:
            with fake._lock:
                fake.checked("streamSynchronize")
                if self.capture is not None:
                    raise CUDARuntimeError(900)
                fake.force(self._device.lasts.get(self.ptr), self._device)

        def wait_event(self, event: Event) -> None:
            assert isinstance(event, Event)
            with fake._lock:
                fake.checked("streamWaitEvent")
                if event.capture is not None:
                    if self.capture is None:
                        self.capture = event.capture
                        self.capture.streams.append(self)
                    assert self.capture is event.capture
                    self.tail = [*self.tail, *(op for op in event.tail if op not in self.tail)]
                elif event.op is not None and event.op.at is None:
                    assert self.capture is None, "a captured stream waits for work that is not captured"
                    self.waits.append(event.op)

        def begin_capture(self, mode: int | None = None) -> None:
            if not self.ptr or fake._hip:
                raise RuntimeError("cannot capture here")
            with fake._lock:
                fake.checked("streamBeginCapture")
                self.capture, self.tail = Capture(streams=[self]), []

        def end_capture(self) -> Graph:
            with fake._lock:
                fake.checked("streamEndCapture")
                capture = self.capture
                assert capture is not None
                assert capture.streams[0] is self
                joined = ancestors(self.tail)
                unjoined = any(op not in joined for op in capture.nodes)
                for stream in capture.streams:
                    stream.capture, stream.tail = None, []
                if unjoined:
                    raise CUDARuntimeError(904)
                return Graph(capture.nodes)

    class Event:
        def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
            self.disable_timing = disable_timing
            self.op: Op | None = None
            self.capture: Capture | None = None
            self.tail: list[Op] = []
            with fake._lock:
                fake.checked("eventCreate")
                self.ptr = fake.number()
                fake._events[self.ptr] = self

        def record(self, stream: Stream | None = None) -> None:
            assert isinstance(stream, Stream), "the driver names its stream"
            with fake._lock:
                fake.checked("eventRecord")
                self.capture, self.tail = stream.capture, list(stream.tail)
                if stream.capture is None:
                    self.op = fake.enqueue(stream, lambda: None)

        def synchronize(self) -> None:
            with fake._lock:
                fake.checked("eventSynchronize")
                if self.op is not None:
                    for device in fake._devices:
                        if self.op in device.pending:
                            fake.force(self.op, device)

    def get_elapsed_time(start_event: Event, end_event: Event) -> float:
        both = start_event, end_event
        if any(one.disable_timing or one.op is None for one in both):
            raise CUDARuntimeError(400)
        if any(one.op.at is None for one in both):  # type: ignore[union-attr]
            raise CUDARuntimeError(600)
        return (end_event.op.at - start_event.op.at) * 1e-3  # type: ignore[union-attr,operator]

    class Graph:
        def __init__(self, nodes: list[Op]) -> None:
            self._nodes = nodes

        def launch(self, stream: Stream | None = None) -> None:
            assert isinstance(stream, Stream)
            with fake._lock:
                fake.checked("graphLaunch")
                fake.enqueue(stream, self._run, [at for op in self._nodes for at in op.uses])

        def _run(self) -> None:
            """In the order that is least like the one in which they were captured."""
            left, done = list(self._nodes), set()
            while left:
                op = next(op for op in reversed(left) if all(id(other) in done for other in op.after))
                left.remove(op)
                done.add(id(op))
                op.run()

    # Modules.

    def compile_using_nvrtc(
        source: str,
        options: tuple[str, ...] = (),
        arch: str | None = None,
        filename: str = "kern.cu",
        name_expressions: Any = None,
        log_stream: Any = None,
        cache_in_memory: bool = False,
        jitify: Any = None,
        method: Any = None,
    ) -> tuple[bytes, dict[str, str] | None]:
        assert type(source) is str and type(options) is tuple and cache_in_memory
        fake.options.append(options)
        if fake._hip:
            code, said, names = source.encode(), hip_says(source), {}
        else:
            # CuPy adds these two.
            given = (*options, "-arch=sm_90", "--device-as-default-execution-space")
            code, said, names = nvrtc_named(source, given, tuple(name_expressions or ()))
        if said:
            raise CompileException(said, source, "", options, "hiprtc" if fake._hip else "nvrtc")
        fake._images[code] = source
        fake._plain |= {mangled: name for name, mangled in names.items()}
        return code, names if name_expressions else None

    class Module:
        def __init__(self) -> None:
            self.ptr = 0
            self.running: list[threading.Thread] = []

        def __del__(self) -> None:
            # Unloading a module waits for its kernels, so that one that stays would get no command until it gives up.
            fake.unloaded_while_running += sum(thread.is_alive() for thread in self.running)

        def load(self, cubin: bytes) -> None:
            assert type(cubin) is bytes
            with fake._lock:
                fake.checked("moduleLoadData")
                if cubin not in fake._images:
                    raise CUDADriverError(200)
                self.ptr, self.source = fake.number(), fake._images[cubin]

        def get_function(self, name: str) -> Function:
            assert self.ptr, "no module was loaded"
            return Function(self, name)

    class Function:
        def __init__(self, module: Module, funcname: str) -> None:
            funcname = fake._plain.get(funcname, funcname)
            if not re.search(rf"__global__ void {funcname}\(", module.source):
                raise CUDADriverError(500)
            self.module, self.ptr, self.device = module, fake.number(), fake.device().number
            self.dynamic = fake._properties["sharedMemPerBlock"]
            functions[self.ptr] = self
            self.static = sum(
                math.prod(int(n) for n in re.findall(r"\d+", sides)) * SIZES[kind]
                for kind, sides in re.findall(r"^ +__shared__ (.+?) \w+\[([\d *]+)\];", module.source, re.M)
            )
            self.name = funcname

        def __call__(
            self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared_mem: int = 0,
            stream: Stream | None = None, enable_cooperative_groups: bool = False,
        ) -> None:  # fmt: skip
            assert type(grid) is tuple and type(block) is tuple and type(args) is tuple
            for side in (*grid, *block):
                whole(side, "a side")
            assert isinstance(stream, Stream), "the driver names its stream"
            for one in args:
                assert isinstance(one, (np.generic, np.ndarray)), f"argument {one!r} is no scalar of NumPy's"
                assert one.size == 1, f"CuPy passes no array of shape {one.shape} by value"
            with fake._lock:
                fake.checked("launchKernel")
                if self.device != fake.device().number:
                    raise CUDARuntimeError(400)
                if whole(shared_mem, "shared_mem") + self.static > max(
                    self.dynamic + self.static, fake._properties["sharedMemPerBlock"]
                ) or (shared_mem + self.static > fake._properties["sharedMemPerBlockOptin"]):
                    raise CUDARuntimeError(1)
                cooperative = "this_grid()" in self.module.source
                assert cooperative == enable_cooperative_groups
                host = built(self.module.source, self.name, fake._hip)
                sizes = [one.nbytes for one in args]
                assert sizes == host.sizes, f"arguments of {sizes} bytes for parameters of {host.sizes}"
                device = fake.device()

                def run() -> None:
                    if device.break_with is not None:
                        device.broken, device.break_with = device.break_with, None
                        raise CUDARuntimeError(device.broken)
                    host.run(grid, block, args, shared_mem)

                if self.name in fake.stay:
                    thread = threading.Thread(target=run, daemon=True)
                    thread.start()
                    self.module.running.append(thread)
                    run = thread.join
                fake.enqueue(stream, run, [int(one) for one in args if one.dtype == np.uint64])

    functions: weakref.WeakValueDictionary[int, Function] = weakref.WeakValueDictionary()

    def funcGetAttribute(attribute: int, f: int) -> int:
        assert attribute == 1, "only the static bytes of shared memory are asked for"
        return functions[whole(f, "f")].static

    def funcSetAttribute(f: int, attribute: int, value: int) -> None:
        assert attribute == 8, "only the dynamic bytes of shared memory are set"
        if whole(value, "value") + functions[f].static > fake._properties["sharedMemPerBlockOptin"]:
            raise CUDADriverError(1)
        functions[whole(f, "f")].dynamic = value

    def occupancyMaxActiveBlocksPerMultiprocessor(func: int, blockSize: int, dynamicSMemSize: int) -> int:
        used = functions[whole(func, "func")].static + whole(dynamicSMemSize, "dynamicSMemSize")
        return min(2048 // whole(blockSize, "blockSize"), 233472 // max(used, 1), 32)

    def get_cuda_path() -> None:
        return None

    def get_rocm_path() -> None:
        return None

    Stream.null = Stream(null=True)
    runtime = {one.__name__: call(one) for one in (
        getDevice, setDevice, getDeviceProperties, driverGetVersion, deviceGetPCIBusId, malloc, mallocManaged,
        hostAlloc, free, freeHost, memcpyAsync, pointerGetAttributes, eventQuery, getDeviceCount,
    )}  # fmt: skip
    driver = (funcGetAttribute, funcSetAttribute, occupancyMaxActiveBlocksPerMultiprocessor)
    return Cuda(
        UnownedMemory=there.UnownedMemory,
        MemoryPointer=there.MemoryPointer,
        using_allocator=there.using_allocator,
        runtime=SimpleNamespace(
            **runtime,
            is_hip=fake._hip,
            CUDARuntimeError=CUDARuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            CUDA_R_32F=0,
            CUDA_R_16F=2,
            CUDA_R_8I=3,
            CUDA_R_16BF=14,
            hostAllocPortable=1,
            hostAllocMapped=2,
        ),
        driver=SimpleNamespace(
            **{one.__name__: call(one) for one in driver},
            CUDADriverError=CUDADriverError,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        ),
        compiler=SimpleNamespace(compile_using_nvrtc=call(compile_using_nvrtc), CompileException=CompileException),
        nvrtc=SimpleNamespace(NVRTCError=NVRTCError),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        Stream=Stream,
        Event=Event,
        Graph=Graph,
        Module=Module,
        Function=Function,
        get_elapsed_time=call(get_elapsed_time),
        get_cuda_path=get_cuda_path,
        get_rocm_path=get_rocm_path,
    )
