"""Calls of CUDA and ROCm through CuPy, whose two builds have one interface. `cuda` and `hip` share this module.

CuPy's memory pool and current streams are not used: memory comes from ``cudaMalloc`` and its variants, and every call
names its stream. Kernels are compiled by ``compile_using_nvrtc`` and not by ``RawModule``, which passes ``-ftz=true``
to the compiler after all other options and so flushes the subnormal numbers that the emulator keeps.

The default stream is the legacy one. The device itself makes it and blocking streams wait for each other, so that
streams need an explicit wait only for events.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.backends.common.driver import Problem
from windtunnel.backends.common.nvml import Nvml
from windtunnel.codegen import Emitted
from windtunnel.core.errors import (
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceOutOfMemory,
    EccError,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
)
from windtunnel.runtime.interface import Dims, MemoryKind

NOT_READY = 600
_KINDS: dict[int, type[DeviceError]] = {
    1: InvalidArgument, 2: DeviceOutOfMemory, 3: DeviceLost, 9: LaunchError, 46: DeviceLost, 98: LaunchError,
    100: DeviceLost, 101: DeviceLost, 200: LaunchError, 201: DeviceLost, 209: LaunchError, 214: EccError,
    218: LaunchError, 222: LaunchError, 400: InvalidArgument, 600: InvalidArgument, 700: LaunchError, 701: LaunchError,
    702: DeviceHang, 710: LaunchError, 714: LaunchError, 715: LaunchError, 716: LaunchError, 717: LaunchError,
    718: LaunchError, 719: LaunchError, 720: LaunchError,
} | dict.fromkeys(range(900, 910), InvalidArgument)  # fmt: skip
"""Errors by cudaError_t (driver_types.h) and CUresult (cuda.h), whose numbers agree here; hipError_t follows them."""
_STATIC_SHARED = 48 * 1024
_HEADERS = ("nvidia.cuda_runtime", "nvidia.cuda_cccl", "nvidia.cu13")
"""Packages with the headers cuda_fp16.h and cooperative_groups.h, for hosts without a CUDA toolkit."""
_TOOLKIT = Path("/usr/local/cuda")
"""Where NVIDIA's installers put a link to the toolkit."""


class Allocation:
    """Memory of the API. It is freed by `release`, or when nobody refers to it any more."""

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
        self._finalizer = weakref.finalize(self, _free, driver.make_current, free, self.address)
        self._finalizer.atexit = False  # the end of the process frees everything

    def release(self) -> None:
        """Free the memory now."""
        if self._finalizer.detach() is not None:
            self._free(self.address)

    def view(self) -> np.ndarray:
        """Return the bytes as the host sees them. The array keeps the allocation alive."""
        memory: Any = (ctypes.c_uint8 * self.size).from_address(self.address)
        memory.allocation = self  # NumPy's array refers to the ctypes object, which refers to this
        return np.asarray(memory)


def _free(make_current: Any, free: Any, address: int) -> None:
    with suppress(RuntimeError):  # a device after a sticky error cannot free memory
        make_current()
        free(address)


@dataclass(eq=False)
class MemoryHandle:
    """Memory of a context, as its driver refers to it."""

    kind: MemoryKind
    address: int
    allocation: Allocation | None


@dataclass(frozen=True)
class BuiltKernel:
    """A compiled and loaded kernel. ``cooperative``: it has a grid barrier, so all blocks must be resident."""

    function: Any
    name: str
    cooperative: bool
    static_bytes: int
    """Shared memory (bytes) that the kernel declares itself."""


class CupyDriver:
    """Implements `common.context.Driver` with CuPy. Queues are CuPy's streams, and marks its events.

    Every call makes its device the calling thread's current device, and leaves it so.
    """

    def __init__(self, cupy: Any, index: int, nvml: Nvml | None = None) -> None:
        self.cupy, self.index, self.nvml = cupy, index, nvml
        self.timed = False
        self.runtime = cupy.cuda.runtime
        self.target = "hip" if self.runtime.is_hip else "cuda"
        properties = self.runtime.getDeviceProperties(index)
        self._files: weakref.WeakKeyDictionary[Any, tuple[Any, Mapping[str, str]]] = weakref.WeakKeyDictionary()
        """By loaded C file, the module of its own source, and what the compiler calls its kernels."""
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.max_shared_bytes = max_shared_bytes(properties)

    def make_current(self) -> None:
        """Make this device the calling thread's current device."""
        if self.runtime.getDevice() != self.index:
            self.runtime.setDevice(self.index)

    # Memory.

    def allocate(self, size: int, kind: MemoryKind) -> MemoryHandle:
        """Allocate ``size`` bytes."""
        self.make_current()
        allocation = Allocation(self, size, kind)
        return MemoryHandle(kind, allocation.address, allocation)

    def free(self, memory: MemoryHandle) -> None:
        """Free memory. Memory that the host sees is freed once nobody refers to it any more."""
        self.make_current()
        allocation, memory.allocation = memory.allocation, None
        if allocation is not None and memory.kind == "device":
            allocation.release()

    def host_view(self, memory: MemoryHandle, size: int) -> np.ndarray:
        """Return the host's view of pinned or unified memory."""
        if memory.allocation is None:
            raise ValueError("the memory was freed")
        return memory.allocation.view()[:size]

    def pinned(self, address: int, size: int) -> bool:
        """Return whether the device can access a whole host array asynchronously.

        Only the ends of the array are checked, because memory is registered in whole consecutive pages.
        """
        try:
            ends = [self.runtime.pointerGetAttributes(at) for at in (address, address + size - 1)]
        except self.runtime.CUDARuntimeError as error:
            if error.status == 1:  # ROCm, and CUDA up to 10, reject pageable addresses
                return False
            raise
        # 1: cudaMemoryTypeHost, 3: cudaMemoryTypeManaged; 0 is pageable memory.
        return all(int(end.type) in (1, 3) for end in ends)

    # Work.

    def follow(self, queue: Any, after: Sequence[Any]) -> None:
        """Make later work of ``queue`` wait for these events."""
        for event in after:
            queue.wait_event(event)

    def write(self, memory: MemoryHandle, data: np.ndarray, queue: Any, after: Sequence[Any], *, hold: bool) -> None:
        """Copy from host to device. The host always waits for a copy from pageable memory."""
        self.make_current()
        self.follow(queue, after)
        address, size = data.ctypes.data, data.nbytes
        self.runtime.memcpyAsync(memory.address, address, size, self.runtime.memcpyHostToDevice, queue.ptr)
        if hold or not self.pinned(address, size):
            queue.synchronize()

    def read(self, data: np.ndarray, memory: MemoryHandle, queue: Any, after: Sequence[Any], *, hold: bool) -> None:
        """Copy from device to host. The host always waits for a copy to pageable memory."""
        self.make_current()
        self.follow(queue, after)
        address, size = data.ctypes.data, data.nbytes
        self.runtime.memcpyAsync(address, memory.address, size, self.runtime.memcpyDeviceToHost, queue.ptr)
        if hold or not self.pinned(address, size):
            queue.synchronize()

    def copy(self, to: MemoryHandle, memory: MemoryHandle, size: int, queue: Any, after: Sequence[Any]) -> None:
        """Copy within the device."""
        self.make_current()
        self.follow(queue, after)
        self.runtime.memcpyAsync(to.address, memory.address, size, self.runtime.memcpyDeviceToDevice, queue.ptr)

    # Kernels.

    def build(self, emitted: Emitted) -> BuiltKernel:
        """Compile a kernel. Raises UnsupportedOperationError for a grid barrier on ROCm."""
        cooperative = "this_grid()" in emitted.source
        if cooperative and self.target == "hip":
            raise UnsupportedOperationError("CuPy's ROCm build does not launch kernels with a grid barrier")
        name, own = emitted.signature.name, emitted.own
        if own is None:
            return self.load(emitted.source, name, emitted.options, cooperative=cooperative)
        if own.file not in self._files:
            # One module for all kernels of the file, which share its variables.
            self._files[own.file] = self._module(emitted.source, emitted.options, own.kernels)
        module, names = self._files[own.file]
        return self._kernel(module, names[name], name, cooperative=cooperative)

    def load(self, source: str, name: str, options: Sequence[str], *, cooperative: bool = False) -> BuiltKernel:
        """Compile source text in the target's language for this device, and return its kernel ``name``.

        The kernel is ``extern "C"``.
        """
        module, _ = self._module(source, options)
        return self._kernel(module, name, name, cooperative=cooperative)

    def _module(
        self, source: str, options: Sequence[str], mangled: Sequence[str] = ()
    ) -> tuple[Any, Mapping[str, str]]:
        """Compile and load source text; return what the compiler calls ``mangled``, kernels that may be instances of
        templates, or functions that are not ``extern "C"``.
        """
        self.make_current()
        if self.target == "hip":
            # hipRTC has this header built in, and finds no file of its name.
            source = source.replace("#include <hip/hip_runtime.h>\n", "")
        if "#include <" in source:
            options = [*options, *(f"-I{folder}" for folder in self.headers())]
        more = {"name_expressions": tuple(mangled)} if mangled else {}
        code, names = self.cupy.cuda.compiler.compile_using_nvrtc(source, tuple(options), cache_in_memory=True, **more)
        module = self.cupy.cuda.Module()
        module.load(code)
        return module, names or {}

    def _kernel(self, module: Any, called: str, name: str, *, cooperative: bool) -> BuiltKernel:
        self.make_current()
        function = module.get_function(called)
        driver = self.cupy.cuda.driver
        static = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function.ptr)
        return BuiltKernel(function, name, cooperative, int(static))

    def headers(self) -> list[Path]:
        """Return the folders of the API's headers."""
        if self.target == "hip":
            installed = self.cupy.cuda.get_rocm_path()
            return [] if installed is None else [Path(installed) / "include"]
        # The path that CuPy finds may be that of a link to nvcc, outside of the toolkit, or of a package without CCCL.
        missing = {"cuda_runtime.h", "nv/target"}
        folders: list[Path] = []
        for installed in self._installations():
            # CUDA 13 has CCCL, as <cuda/atomic> and <nv/target>, in a folder of its own.
            own = [folder for folder in (installed / "include", installed / "include" / "cccl") if folder.is_dir()]
            brought = {header for header in missing if any((folder / header).is_file() for folder in own)}
            if brought:
                folders += own
                missing -= brought
        return folders

    def _installations(self) -> Iterator[Path]:
        """Yield the folders that may have an ``include`` of CUDA: CuPy's, those of packages, and toolkits."""
        if (installed := self.cupy.cuda.get_cuda_path()) is not None:
            yield Path(installed)
        with suppress(ModuleNotFoundError):  # without any of NVIDIA's packages
            for spec in [find_spec(name) for name in _HEADERS]:
                yield from map(Path, () if spec is None else spec.submodule_search_locations or ())
        yield from (Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name))
        if (compiler := shutil.which("nvcc")) is not None:
            yield Path(compiler).resolve().parents[1]
        yield _TOOLKIT

    def resident(self, kernel: BuiltKernel, threads: int, shared: int) -> int:
        """Return how many blocks of ``threads`` threads and ``shared`` dynamic bytes are resident at once."""
        occupancy = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        return self.multiprocessors * int(occupancy(kernel.function.ptr, threads, shared))

    def opt_in(self, kernel: BuiltKernel, shared: int) -> None:
        """Permit ``shared`` dynamic bytes to a kernel, which CUDA requires above 48 KiB in total."""
        if kernel.static_bytes + shared > _STATIC_SHARED and self.target == "cuda":
            driver = self.cupy.cuda.driver
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(kernel.function.ptr, attribute, shared)

    def launch(
        self, kernel: BuiltKernel, emitted: Emitted, grid: Dims, block: Dims, values: Sequence[Any], queue: Any,
        after: Sequence[Any], shared: int = 0,
    ) -> None:  # fmt: skip
        """Enqueue a kernel with ``shared`` dynamic bytes per block, for which `opt_in` was called."""
        self.make_current()
        self.follow(queue, after)
        self.start(kernel, grid, block, kernel_arguments(values), queue, shared)

    def start(
        self, kernel: BuiltKernel, grid: Dims, block: Dims, arguments: tuple[Any, ...], queue: Any, shared: int
    ) -> None:
        """Launch a kernel with ``arguments``, which are NumPy scalars."""
        if kernel.cooperative:
            kernel.function(grid, block, arguments, shared_mem=shared, stream=queue, enable_cooperative_groups=True)
        else:
            kernel.function(grid, block, arguments, shared_mem=shared, stream=queue)

    # Queues and marks.

    def queue(self, *, non_blocking: bool) -> Any:
        """Create a stream."""
        self.make_current()
        return self.cupy.cuda.Stream(non_blocking=non_blocking)

    def mark(self, queue: Any, after: Sequence[Any]) -> Any:
        """Record an event after all work that the queue was given so far."""
        self.make_current()
        self.follow(queue, after)
        event = self.cupy.cuda.Event()
        event.record(queue)
        return event

    def reached(self, mark: Any) -> bool:
        """Return whether the device has reached the event."""
        status = self.runtime.eventQuery(mark.ptr)
        if status not in (0, NOT_READY):  # CuPy returns the number and does not raise
            raise self.runtime.CUDARuntimeError(status)
        return bool(status == 0)

    def wait(self, mark: Any) -> None:
        """Wait for the event."""
        mark.synchronize()

    def finish(self, queue: Any) -> None:
        """Wait until all work of the queue has completed."""
        self.make_current()  # the default stream is the current device's
        queue.synchronize()

    def elapsed_s(self, mark: Any, since: Any) -> float:
        """Return the seconds between two events by the device's clock; resolution about 0.5 us (CUDA Runtime API)."""
        return float(self.cupy.cuda.get_elapsed_time(since, mark)) * 1e-3

    def busy_s(self, mark: Any) -> float | None:
        """Return None: the time between two events includes about the time of a short kernel. Graphs are better."""
        return None

    def close(self) -> None:
        """Do nothing: all resources are freed with this object."""

    def energy_j(self) -> float | None:
        """Return NVML's energy counter (J)."""
        return None if self.nvml is None else self.nvml.energy_j()

    def problem(self, error: Exception) -> Problem | None:
        """Return the kind of error and its description for an exception of CuPy; None for any other."""
        cuda = self.cupy.cuda
        message = str(error).strip()
        if isinstance(error, (cuda.compiler.CompileException, cuda.nvrtc.NVRTCError)):
            if "could not open source file" in message:
                message += (
                    "\n(headers: pip install nvidia-cuda-runtime-cu12 nvidia-cuda-cccl-cu12, or the CUDA toolkit)"
                )
            return Problem(LaunchError, message)
        if isinstance(error, cuda.memory.OutOfMemoryError):
            return Problem(DeviceOutOfMemory, message)
        status = self.status(error)
        return None if status is None else Problem(_KINDS.get(status), message)

    def status(self, error: Exception) -> int | None:
        """Return the API's error number; None for other exceptions."""
        if isinstance(error, (self.runtime.CUDARuntimeError, self.cupy.cuda.driver.CUDADriverError)):
            return int(error.status)
        return None


def kernel_arguments(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return kernel arguments as CuPy takes them: addresses as 64-bit numbers, the bytes of a struct as one element.

    Scalars are unchanged.
    """
    return tuple(map(_kernel_argument, values))


def _kernel_argument(value: Any) -> Any:
    if value is None or isinstance(value, MemoryHandle):
        return np.uint64(0 if value is None else value.address)
    if isinstance(value, np.ndarray):  # CuPy passes an array by value only if it has one element
        return np.ascontiguousarray(value).view(f"V{value.nbytes}")
    return value


def max_shared_bytes(properties: Mapping[str, int]) -> int:
    """Return the shared memory (bytes) that a block may have if its kernel opts in."""
    return max(int(properties["sharedMemPerBlock"]), int(properties.get("sharedMemPerBlockOptin", 0)))
