"""CUDA's and ROCm's devices through CuPy, whose two builds are one interface: what `cuda` and `hip` share.

Nothing of CuPy's own pool of memory or of its current streams is used: memory is what ``cudaMalloc`` and its kin give,
and every call names its stream. Kernels are compiled by ``compile_using_nvrtc``, not by ``RawModule``, which tells the
compiler ``-ftz=true`` after all that it is given, and so flushes the subnormal numbers that the emulator keeps.

The default stream is the legacy one. That it and blocking streams wait for each other is then the device's own doing,
and what streams have to be told are events alone.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.backends.common.context import RealContext, RealFunction, RealMemory, RealStream
from windtunnel.backends.cuda.devices import found, nvml
from windtunnel.backends.cuda.graphs import Captured
from windtunnel.backends.cuda.nvml import Nvml
from windtunnel.codegen import Emitted
from windtunnel.core.errors import (
    ApiCode,
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    EccError,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
    caller,
)
from windtunnel.runtime.graph import Node
from windtunnel.runtime.interface import DeviceInfo, Dims, Limits, MemoryKind

NOT_READY = 600
_KINDS: dict[int, type[DeviceError]] = {
    1: InvalidArgument, 2: DeviceOutOfMemory, 3: DeviceLost, 9: LaunchError, 46: DeviceLost, 98: LaunchError,
    100: DeviceLost, 101: DeviceLost, 200: LaunchError, 201: DeviceLost, 209: LaunchError, 214: EccError,
    218: LaunchError, 222: LaunchError, 400: InvalidArgument, 600: InvalidArgument, 700: LaunchError, 701: LaunchError,
    702: DeviceHang, 710: LaunchError, 714: LaunchError, 715: LaunchError, 716: LaunchError, 717: LaunchError,
    718: LaunchError, 719: LaunchError, 720: LaunchError,
} | dict.fromkeys(range(900, 910), InvalidArgument)  # fmt: skip
"""By cudaError_t (driver_types.h) and CUresult (cuda.h), which agree here, and hipError_t, which follows them."""
_FOR_GOOD = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})
"""After these, says the CUDA Runtime API, the process has to be ended and launched anew: all calls fail alike."""
_STATIC_SHARED = 48 * 1024
_HEADERS = ("nvidia.cuda_runtime", "nvidia.cuda_cccl")
"""Packages whose folder ``include`` has cuda_fp16.h and cooperative_groups.h where no toolkit is installed."""


class Piece:
    """Memory that the API gave. It goes back when it is released, or with the last who holds it."""

    def __init__(self, driver: CupyDriver, size: int, kind: MemoryKind) -> None:
        runtime = driver.runtime
        if kind == "pinned":
            flags = runtime.hostAllocPortable | runtime.hostAllocMapped
            self.address, free = runtime.hostAlloc(size, flags), runtime.freeHost
        elif kind == "unified":
            self.address, free = runtime.mallocManaged(size), runtime.free
        else:
            self.address, free = runtime.malloc(size), runtime.free
        self.size = size
        self._free = free
        self._finalizer = weakref.finalize(self, _given_back, driver.make_current, free, self.address)
        self._finalizer.atexit = False  # the process's end gives everything back

    def release(self) -> None:
        """Give it back now."""
        if self._finalizer.detach() is not None:
            self._free(self.address)

    def view(self) -> np.ndarray:
        """Its bytes as the host sees them; they hold it."""
        memory: Any = (ctypes.c_uint8 * self.size).from_address(self.address)
        memory.piece = self  # NumPy's array holds the ctypes object, and that this
        return np.asarray(memory)


def _given_back(make_current: Any, free: Any, address: int) -> None:
    with suppress(RuntimeError):  # of a device that failed for good nothing can be given back
        make_current()
        free(address)


@dataclass(eq=False)
class Handle:
    """Memory of a context, as its driver holds it."""

    kind: MemoryKind
    address: int
    piece: Piece | None


@dataclass(frozen=True)
class Built:
    """A kernel, compiled and loaded. ``wide``: with a barrier of the grid, so that all blocks must be resident."""

    function: Any
    name: str
    wide: bool
    static_bytes: int
    """Of shared memory that the kernel declares itself."""


class CupyDriver:
    """CuPy's calls; see ``_context.Driver``. Queues are CuPy's streams, marks its events.

    Every call makes its device the calling thread's current one, and leaves it so.
    """

    def __init__(self, cupy: Any, index: int, nvml: Nvml | None = None) -> None:
        self.cupy, self.index, self.nvml = cupy, index, nvml
        self.timed = False
        self.runtime = cupy.cuda.runtime
        self.target = "hip" if self.runtime.is_hip else "cuda"
        properties = self.runtime.getDeviceProperties(index)
        self.units = int(properties["multiProcessorCount"])
        self.most_shared = _most_shared(properties)

    def make_current(self) -> None:
        """Make this device the calling thread's."""
        if self.runtime.getDevice() != self.index:
            self.runtime.setDevice(self.index)

    # Memory.

    def allocate(self, size: int, kind: MemoryKind) -> Handle:
        """See ``Driver``."""
        self.make_current()
        piece = Piece(self, size, kind)
        return Handle(kind, piece.address, piece)

    def free(self, memory: Handle) -> None:
        """See ``Driver``. Memory that the host sees goes back once nobody looks at it any more."""
        self.make_current()
        piece, memory.piece = memory.piece, None
        if piece is not None and memory.kind == "device":
            piece.release()

    def host_view(self, memory: Handle, size: int) -> np.ndarray:
        """See ``Driver``."""
        if memory.piece is None:
            raise ValueError("the memory was given back")
        return memory.piece.view()[:size]

    def pinned(self, address: int, size: int) -> bool:
        """Whether all of an array of the host's lies in memory that the device may read while the host goes on.

        Asked of its ends: what is registered is whole pages side by side.
        """
        try:
            ends = [self.runtime.pointerGetAttributes(at) for at in (address, address + size - 1)]
        except self.runtime.CUDARuntimeError as error:
            if error.status == 1:  # ROCm, and CUDA up to 10, refuse what they do not know
                return False
            raise
        # 1: cudaMemoryTypeHost, 3: cudaMemoryTypeManaged; 0 is pageable memory.
        return all(int(one.type) in (1, 3) for one in ends)

    # Work.

    def follow(self, queue: Any, after: Sequence[Any]) -> None:
        """What ``queue`` is given from now on begins after these events."""
        for event in after:
            queue.wait_event(event)

    def write(self, memory: Handle, data: np.ndarray, queue: Any, after: Sequence[Any], *, hold: bool) -> None:
        """See ``Driver``. From pageable memory the host waits, whatever it is told."""
        self.make_current()
        self.follow(queue, after)
        address, size = data.ctypes.data, data.nbytes
        self.runtime.memcpyAsync(memory.address, address, size, self.runtime.memcpyHostToDevice, queue.ptr)
        if hold or not self.pinned(address, size):
            queue.synchronize()

    def read(self, data: np.ndarray, memory: Handle, queue: Any, after: Sequence[Any], *, hold: bool) -> None:
        """See ``Driver``. To pageable memory the host waits, whatever it is told."""
        self.make_current()
        self.follow(queue, after)
        address, size = data.ctypes.data, data.nbytes
        self.runtime.memcpyAsync(address, memory.address, size, self.runtime.memcpyDeviceToHost, queue.ptr)
        if hold or not self.pinned(address, size):
            queue.synchronize()

    def copy(self, to: Handle, memory: Handle, size: int, queue: Any, after: Sequence[Any]) -> None:
        """See ``Driver``."""
        self.make_current()
        self.follow(queue, after)
        self.runtime.memcpyAsync(to.address, memory.address, size, self.runtime.memcpyDeviceToDevice, queue.ptr)

    # Kernels.

    def build(self, emitted: Emitted) -> Built:
        """See ``Driver``."""
        wide = "this_grid()" in emitted.source
        if wide and self.target == "hip":
            raise UnsupportedOperationError("CuPy's ROCm build launches no kernel with a barrier of the whole grid")
        return self.load(emitted.source, emitted.signature.name, emitted.options, wide=wide)

    def load(self, source: str, name: str, options: Sequence[str], *, wide: bool = False) -> Built:
        """Source text of the target's language, compiled for this device, and the kernel of it that is ``name``."""
        self.make_current()
        if self.target == "hip":
            # hipRTC has this one built in, and finds no other of its name.
            source = source.replace("#include <hip/hip_runtime.h>\n", "")
        if "#include <" in source:
            options = [*options, *(f"-I{folder}" for folder in self.headers())]
        code, _ = self.cupy.cuda.compiler.compile_using_nvrtc(source, tuple(options), cache_in_memory=True)
        module = self.cupy.cuda.Module()
        module.load(code)
        function = module.get_function(name)
        driver = self.cupy.cuda.driver
        static = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function.ptr)
        return Built(function, name, wide, int(static))

    def headers(self) -> list[Path]:
        """Folders of the API's own headers."""
        if self.target == "hip":
            installed = self.cupy.cuda.get_rocm_path()
            return [] if installed is None else [Path(installed) / "include"]
        installed = self.cupy.cuda.get_cuda_path()
        if installed is not None:
            return [Path(installed) / "include"]
        with suppress(ModuleNotFoundError):  # without any of NVIDIA's packages
            specs = [find_spec(name) for name in _HEADERS]
            places = [place for spec in specs if spec is not None for place in spec.submodule_search_locations or ()]
            return [Path(place) / "include" for place in places]
        return []

    def resident(self, kernel: Built, threads: int, shared: int) -> int:
        """How many blocks of ``threads`` the device holds at once, with ``shared`` dynamic bytes each."""
        occupancy = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        return self.units * int(occupancy(kernel.function.ptr, threads, shared))

    def opt_in(self, kernel: Built, shared: int) -> None:
        """Let a kernel have ``shared`` dynamic bytes, which it has to be asked for beyond 48 KiB in all."""
        if kernel.static_bytes + shared > _STATIC_SHARED and self.target == "cuda":
            driver = self.cupy.cuda.driver
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(kernel.function.ptr, attribute, shared)

    def launch(
        self, kernel: Built, emitted: Emitted, grid: Dims, block: Dims, values: Sequence[Any], queue: Any,
        after: Sequence[Any], shared: int = 0,
    ) -> None:  # fmt: skip
        """See ``Driver``. ``shared``: dynamic bytes of a block, for which `opt_in` was called."""
        self.make_current()
        self.follow(queue, after)
        self.start(kernel, grid, block, arguments_of(values), queue, shared)

    def start(
        self, kernel: Built, grid: Dims, block: Dims, arguments: tuple[Any, ...], queue: Any, shared: int
    ) -> None:
        """The launch itself. ``arguments``: NumPy scalars."""
        if kernel.wide:
            kernel.function(grid, block, arguments, shared_mem=shared, stream=queue, enable_cooperative_groups=True)
        else:
            kernel.function(grid, block, arguments, shared_mem=shared, stream=queue)

    # Queues and marks.

    def queue(self, *, non_blocking: bool) -> Any:
        """See ``Driver``."""
        self.make_current()
        return self.cupy.cuda.Stream(non_blocking=non_blocking)

    def mark(self, queue: Any, after: Sequence[Any]) -> Any:
        """See ``Driver``."""
        self.make_current()
        self.follow(queue, after)
        event = self.cupy.cuda.Event()
        event.record(queue)
        return event

    def reached(self, mark: Any) -> bool:
        """See ``Driver``."""
        status = self.runtime.eventQuery(mark.ptr)
        if status not in (0, NOT_READY):  # CuPy gives the number, and raises nothing
            raise self.runtime.CUDARuntimeError(status)
        return bool(status == 0)

    def wait(self, mark: Any) -> None:
        """See ``Driver``."""
        mark.synchronize()

    def finish(self, queue: Any) -> None:
        """See ``Driver``."""
        self.make_current()  # the default stream is the current device's
        queue.synchronize()

    def elapsed_s(self, mark: Any, since: Any) -> float:
        """See ``Driver``: by the device's clock, of a resolution of about half a microsecond (CUDA Runtime API)."""
        return float(self.cupy.cuda.get_elapsed_time(since, mark)) * 1e-3

    def busy_s(self, mark: Any) -> float | None:
        """CUDA times what lies between events, which takes as long as a short kernel: graphs tell more."""
        return None

    def close(self) -> None:
        """See ``Driver``: all that it holds goes with it."""

    def energy_j(self) -> float | None:
        """See ``Driver``: NVML's counter."""
        return None if self.nvml is None else self.nvml.energy_j()

    def problem(self, error: Exception) -> tuple[type[DeviceError] | None, str] | None:
        """See ``Driver``."""
        cuda = self.cupy.cuda
        words = str(error).strip()
        if isinstance(error, (cuda.compiler.CompileException, cuda.nvrtc.NVRTCError)):
            if "could not open source file" in words:
                words += "\n(its headers: pip install nvidia-cuda-runtime-cu12 nvidia-cuda-cccl-cu12, or the toolkit)"
            return LaunchError, words
        if isinstance(error, cuda.memory.OutOfMemoryError):
            return DeviceOutOfMemory, words
        status = self.status(error)
        return None if status is None else (_KINDS.get(status), words)

    def status(self, error: Exception) -> int | None:
        """The API's number for it; None where the error is none of the API's."""
        if isinstance(error, (self.runtime.CUDARuntimeError, self.cupy.cuda.driver.CUDADriverError)):
            return int(error.status)
        return None


def arguments_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """What a kernel is given, as CuPy takes it: addresses as numbers of 64 bits, and scalars as they are."""
    return tuple(np.uint64(one.address) if isinstance(one, Handle) else one for one in values)


class CupyContext(RealContext[Any, Any]):
    """A device behind CuPy; see `RealContext`."""

    driver: CupyDriver

    def __init__(self, driver: CupyDriver, info: DeviceInfo) -> None:
        self.broken = False
        """Whether it failed so that nothing works any more in this process."""
        self._graphs: weakref.WeakKeyDictionary[Node, Captured] = weakref.WeakKeyDictionary()
        """By a compiled graph's first node, which no other has."""
        super().__init__(driver, info)

    def default_queue(self) -> Any:
        """The legacy default stream; all contexts of a device share it."""
        return self.driver.cupy.cuda.Stream.null

    def after(self, stream: RealStream[Any, Any]) -> list[Any]:
        """Events that the stream's next work waits for: the legacy rule is the device's own."""
        return self.events_before(stream)

    @contextmanager
    def driving(self, operation: str, usual: type[DeviceError] = LaunchError) -> Iterator[None]:
        """See `RealContext`. The code is the API's own of what happened, not its kind's."""
        try:
            with super().driving(operation, usual):
                yield
        except DeviceError as error:
            cause = error.__cause__
            status = self.driver.status(cause) if isinstance(cause, Exception) else None
            if status is None:
                raise
            self.broken = self.broken or status in _FOR_GOOD
            code = ApiCode(self.info.api, str(cause).partition(":")[0], status)
            raise type(error)(error.problem, operation=operation, device=self.info.name, code=code) from cause

    def free(self, memory: RealMemory) -> None:
        """See `RealContext`. Once the device failed for good, what it held went with it, and nothing is raised."""
        if self.broken and self.memories.pop(memory.address, None) is memory:
            memory.freed, memory.freed_at = True, caller()
            return
        super().free(memory)

    def launch(
        self,
        function: RealFunction,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        stream: RealStream[Any, Any] | None,
        shared: int,
    ) -> None:
        """See `RealContext`."""
        queue = self.stream_of(stream)
        kernel, emitted, values = self.ready(function, grid, block, arguments, shared)
        with self.driving(f"launch {function.name}"):
            self.driver.launch(kernel, emitted, grid, block, values, queue.native, self.after(queue), shared)

    def ready(
        self, function: RealFunction, grid: Dims, block: Dims, arguments: Sequence[Any], shared: int
    ) -> tuple[Built, Emitted, list[Any]]:
        """A kernel that may be launched so, and what it is given."""
        kernel, emitted = self.built(function, grid, block, arguments)
        values = [self._value(one, emitted, arguments, grid) for one in emitted.signature.arguments]
        operation = f"launch {function.name}"
        if shared or kernel.static_bytes:
            both = kernel.static_bytes + shared
            if both > self.driver.most_shared:
                problem = (
                    f"{both:,} bytes of shared memory, {kernel.static_bytes:,} of them the kernel's own, "
                    f"of at most {self.driver.most_shared:,}"
                )
                raise self.error(LaunchError, operation, problem, "configuration")
            with self.driving(operation):
                self.driver.opt_in(kernel, shared)
        if kernel.wide:
            with self.driving(operation):
                most = self.driver.resident(kernel, int(np.prod(block)), shared)
            blocks = int(np.prod([float(side) for side in grid]))
            if blocks > most:
                problem = f"a barrier of the whole grid needs all {blocks:,} blocks at once; {most:,} are resident"
                raise self.error(LaunchError, operation, problem, "cooperative")
        return kernel, emitted, values

    def replay(self, nodes: Sequence[Node], stream: RealStream[Any, Any] | None) -> None:
        """See ``Context``: one launch of a graph of the API's own, captured when it is first replayed."""
        if "graphs" not in self.info.features:
            super().replay(nodes, stream)
        queue = self.stream_of(stream)
        if not nodes:
            return
        captured = self._graphs.get(nodes[0])
        if captured is None:
            works = {
                node.number: self.ready(node.function, node.grid, node.block, node.arguments, node.shared)
                for node in nodes
                if node.what == "launch"
            }
            with self.driving("replay a graph"):
                self.driver.make_current()
                given = {at: (kernel, arguments_of(values)) for at, (kernel, _, values) in works.items()}
                captured = self._graphs[nodes[0]] = Captured(self.driver, nodes, given)
        with self.driving("replay a graph"):
            self.driver.make_current()
            self.driver.follow(queue.native, self.after(queue))
            captured.launch(queue.native)


# What is here.


def _most_shared(properties: dict[str, Any]) -> int:
    """Bytes of shared memory that a block may have once a kernel asks for it."""
    return max(int(properties["sharedMemPerBlock"]), int(properties.get("sharedMemPerBlockOptin", 0)))


def features_of(properties: dict[str, Any], *, hip: bool) -> frozenset[str]:
    """What a device can do, by its properties: compute capability by the CUDA Programming Guide's table of them."""
    features = {"float16", "int8"}  # both are stored as such, and worked with in 32 bits
    if properties["canMapHostMemory"]:
        features.add("pinned")
    # Without concurrent access the host may not touch it while any kernel runs, and is killed if it does.
    if properties["managedMemory"] and properties["concurrentManagedAccess"]:
        features.add("unified")
    if hip:
        return frozenset(features | {"bfloat16"})
    features.add("graphs")
    capability = (int(properties["major"]), int(properties["minor"]))
    for least, name in (((7, 0), "matrix"), ((8, 0), "bfloat16"), ((8, 9), "fp8"), ((10, 0), "fp4")):
        if capability >= least:
            features.add(name)
    return frozenset(features)


def context(cupy: Any, backend: str, index: int) -> CupyContext:
    """Device ``index``, opened. DeviceNotPresentError where there is none."""
    devices = found(cupy, backend)
    if not 0 <= index < len(devices):
        raise DeviceNotPresentError(f"{backend} has no device {index} here; it has {len(devices)}")
    properties = cupy.cuda.runtime.getDeviceProperties(index)
    sides, blocks = properties["maxThreadsDim"], properties["maxGridSize"]
    limits = Limits(
        threads_per_block=int(properties["maxThreadsPerBlock"]),
        block=(int(sides[0]), int(sides[1]), int(sides[2])),
        grid=(int(blocks[0]), int(blocks[1]), int(blocks[2])),
        shared_bytes=_most_shared(properties),
        warp=int(properties["warpSize"]),
        source="the driver's own report",
    )
    one = devices[index]
    info = DeviceInfo(
        name=one.label,
        kind=one.kind,
        api=backend,
        memory_bytes=one.memory_bytes,
        limits=limits,
        features=features_of(properties, hip=backend == "hip"),
        virtual=False,
        compute_units=int(properties["multiProcessorCount"]),
        driver=one.driver,
    )
    return CupyContext(CupyDriver(cupy, index, nvml(cupy, index)), info)
