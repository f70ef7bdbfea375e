"""The calls of pyopencl, and an OpenCL device opened with them.

Each stream is an in-order command queue with profiling. Times of events are those of the device's own clock.
"""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.common.context import RealContext
from windtunnel.backends.common.driver import Problem
from windtunnel.backends.common.nvml import nvml_named
from windtunnel.backends.common.trials import KernelOperations
from windtunnel.codegen import Emitted, LocalBytes
from windtunnel.core.errors import DeviceOutOfMemory, InvalidArgument, LaunchError
from windtunnel.runtime.interface import DeviceInfo, Dims, Limits, MemoryKind

_LARGE = 2**31 - 1
_KINDS = {"MEM_OBJECT_ALLOCATION_FAILURE": DeviceOutOfMemory, "OUT_OF_RESOURCES": DeviceOutOfMemory,
          "INVALID_BUFFER_SIZE": DeviceOutOfMemory, "OUT_OF_HOST_MEMORY": DeviceOutOfMemory,
          "INVALID_WORK_GROUP_SIZE": LaunchError, "INVALID_WORK_ITEM_SIZE": LaunchError,
          "INVALID_GLOBAL_WORK_SIZE": LaunchError, "BUILD_PROGRAM_FAILURE": LaunchError,
          "INVALID_KERNEL_ARGS": InvalidArgument, "INVALID_VALUE": InvalidArgument}  # fmt: skip


def _info(detected: DetectedDevice, device: Any) -> DeviceInfo:
    sides = [min(int(side), _LARGE) for side in device.max_work_item_sizes]
    limits = Limits(
        threads_per_block=int(device.max_work_group_size),
        block=(sides[0], sides[1], sides[2]),
        # OpenCL bounds the grid's threads only by the address width; the emitted kernels count blocks in i32.
        grid=(_LARGE, 65535, 65535),
        shared_bytes=int(device.local_mem_size),
        warp=max(int(getattr(device, "preferred_work_group_size_multiple", 1) or 1), 1),
        source="reported by the driver",
    )
    extensions = device.extensions.split()
    features = {"int8"} | ({"float16"} if "cl_khr_fp16" in extensions else set())
    return detected.opened(limits, features, int(device.max_compute_units))


class OpenClDriver:
    """Implements `common.driver.Driver` with pyopencl."""

    target = "opencl"
    timed = True

    def __init__(self, device: Any) -> None:
        import pyopencl

        self.cl = pyopencl
        self.device = device
        self.context = pyopencl.Context([device])
        self._files: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """By loaded C file, the program of its own source: its kernels share its variables."""

    @property
    def standard(self) -> Sequence[str]:
        """The option for OpenCL C 2.0, or 3.0, in which C11's atomic operations and generic pointers are."""
        found = re.match(r"OpenCL C (\d)\.\d", self.device.opencl_c_version)
        version = int(found[1]) if found is not None else 1
        if version < 3 and self.device.version.startswith("OpenCL 3"):
            version = 3
        return [f"-cl-std=CL{version}.0"] if version > 1 else []

    def allocate(self, size: int, kind: MemoryKind) -> Any:
        """Allocate ``size`` bytes. A size above the limit is rejected here: the driver reports it only at first use."""
        if size > self.device.max_mem_alloc_size:
            problem = f"{size:,} bytes exceed the largest buffer, {self.device.max_mem_alloc_size:,} bytes"
            raise self.cl.MemoryError(f"clCreateBuffer failed: INVALID_BUFFER_SIZE - {problem}")
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size)

    def free(self, memory: Any) -> None:
        """Free memory."""
        memory.release()

    def write(self, memory: Any, data: np.ndarray, queue: Any, after: Sequence[Any], *, hold: bool) -> Any:
        """Copy from host to device."""
        return self.cl.enqueue_copy(queue, memory, data, is_blocking=hold, wait_for=self._flushed(after))

    def read(self, data: np.ndarray, memory: Any, queue: Any, after: Sequence[Any], *, hold: bool) -> Any:
        """Copy from device to host."""
        return self.cl.enqueue_copy(queue, data, memory, is_blocking=hold, wait_for=self._flushed(after))

    def copy(self, to: Any, memory: Any, size: int, queue: Any, after: Sequence[Any]) -> Any:
        """Copy within the device."""
        return self.cl.enqueue_copy(queue, to, memory, byte_count=size, wait_for=self._flushed(after))

    def build(self, emitted: Emitted) -> Any:
        """Compile a kernel."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self.cl.CompilerWarning)  # PoCL writes a log for successful builds, too
            options = [*emitted.options, *(self.standard if emitted.own is not None else ())]
            program = None if emitted.own is None else self._files.get(emitted.own.file)
            if program is None:
                program = self.cl.Program(self.context, emitted.source).build(options=options)
            if emitted.own is not None:
                self._files[emitted.own.file] = program
        return self.cl.Kernel(program, emitted.signature.name)

    def launch(
        self, kernel: Any, emitted: Emitted, grid: Dims, block: Dims, values: Sequence[Any], queue: Any,
        after: Sequence[Any],
    ) -> Any:  # fmt: skip
        """Enqueue a kernel."""
        for argument, value in zip(emitted.signature.arguments, values, strict=True):
            is_size = isinstance(argument, LocalBytes)
            kernel.set_arg(argument.position, self.cl.LocalMemory(value) if is_size else value)
        threads = tuple(blocks * side for blocks, side in zip(grid, block, strict=True))
        # A kernel of its own source may ask for the number of axes.
        axes = 3 if threads[2] > 1 else 2 if threads[1] > 1 else 1
        return self.cl.enqueue_nd_range_kernel(
            queue, kernel, threads[:axes], block[:axes], wait_for=self._flushed(after)
        )

    def queue(self, *, non_blocking: bool) -> Any:
        """Create a command queue."""
        profiling = self.cl.command_queue_properties.PROFILING_ENABLE
        return self.cl.CommandQueue(self.context, properties=profiling)

    def mark(self, queue: Any, after: Sequence[Any]) -> Any:
        """Enqueue a marker after all work of the queue."""
        return self.cl.enqueue_marker(queue, wait_for=self._flushed(after))

    def reached(self, mark: Any) -> bool:
        """Return whether the event has completed."""
        return bool(mark.command_execution_status == self.cl.command_execution_status.COMPLETE)

    def wait(self, mark: Any) -> None:
        """Wait for the event."""
        mark.wait()

    def finish(self, queue: Any) -> None:
        """Wait until all work of the queue has completed."""
        queue.finish()

    def elapsed_s(self, mark: Any, since: Any) -> float:
        """Return the seconds between the ends of two events, by the device's counter."""
        return float(mark.profile.end - since.profile.end) * 1e-9

    def busy_s(self, mark: Any) -> float | None:
        """Return the seconds between start and end of the event."""
        return float(mark.profile.end - mark.profile.start) * 1e-9

    def host_view(self, memory: Any, size: int) -> np.ndarray:
        """Raise NotImplementedError: there is no pinned or unified memory."""
        raise NotImplementedError

    def problem(self, error: Exception) -> Problem | None:
        """Return the kind of error and its description for an exception of pyopencl; None for any other."""
        if not isinstance(error, self.cl.Error):
            return None
        message = str(error).strip()
        return Problem(next((kind for name, kind in _KINDS.items() if name in message), None), message)

    def energy_j(self) -> float | None:
        """Return None: OpenCL has no energy counter."""
        return None

    def close(self) -> None:
        """Do nothing: the package counts references."""

    def _flushed(self, after: Sequence[Any]) -> Sequence[Any]:
        """Flush the queues of these events: a queue can wait only for work that was submitted to the device."""
        for event in after:
            event.command_queue.flush()
        return after


def open_context(detected: DetectedDevice, device: Any) -> RealContext[Any, Any]:
    """Open the device for programs."""
    return RealContext(OpenClDriver(device), _info(detected, device))


def operations(detected: DetectedDevice, device: Any) -> KernelOperations:
    """Open the device for single operations."""
    import pyopencl

    versions = {"driver": detected.driver, "device": device.version, "pyopencl": pyopencl.VERSION_TEXT}
    nvml = None if detected.software else nvml_named(detected.label)
    return KernelOperations(open_context(detected, device), versions, nvml=nvml)
