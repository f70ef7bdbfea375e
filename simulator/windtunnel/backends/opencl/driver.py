"""pyopencl's calls, and a device of OpenCL's opened through them.

One in-order command queue a stream, with profiling; events' times are the device's own clock.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import Found
from windtunnel.backends.common.context import RealContext
from windtunnel.backends.common.trials import KernelOperations
from windtunnel.codegen import Emitted
from windtunnel.core.errors import DeviceError, DeviceOutOfMemory, InvalidArgument, LaunchError
from windtunnel.runtime.interface import DeviceInfo, Dims, Limits, MemoryKind

_LARGE = 2**31 - 1
_KINDS = {"MEM_OBJECT_ALLOCATION_FAILURE": DeviceOutOfMemory, "OUT_OF_RESOURCES": DeviceOutOfMemory,
          "INVALID_BUFFER_SIZE": DeviceOutOfMemory, "OUT_OF_HOST_MEMORY": DeviceOutOfMemory,
          "INVALID_WORK_GROUP_SIZE": LaunchError, "INVALID_WORK_ITEM_SIZE": LaunchError,
          "INVALID_GLOBAL_WORK_SIZE": LaunchError, "BUILD_PROGRAM_FAILURE": LaunchError,
          "INVALID_KERNEL_ARGS": InvalidArgument, "INVALID_VALUE": InvalidArgument}  # fmt: skip


def _info(found: Found, device: Any) -> DeviceInfo:
    sides = [min(int(side), _LARGE) for side in device.max_work_item_sizes]
    limits = Limits(
        threads_per_block=int(device.max_work_group_size),
        block=(sides[0], sides[1], sides[2]),
        # OpenCL bounds the grid's threads by an address alone; the emitted kernels count blocks in i32.
        grid=(_LARGE, 65535, 65535),
        shared_bytes=int(device.local_mem_size),
        warp=max(int(getattr(device, "preferred_work_group_size_multiple", 1) or 1), 1),
        source="the driver's own report",
    )
    extensions = device.extensions.split()
    return DeviceInfo(
        name=found.label,
        kind=found.kind,
        api="opencl",
        memory_bytes=found.memory_bytes,
        limits=limits,
        features=frozenset({"int8"} | ({"float16"} if "cl_khr_fp16" in extensions else set())),
        virtual=False,
        software=found.software,
        compute_units=int(device.max_compute_units),
        driver=found.driver,
    )


class OpenClDriver:
    """pyopencl's calls; see ``_context.Driver``."""

    target = "opencl"
    timed = True

    def __init__(self, device: Any) -> None:
        import pyopencl

        self.cl = pyopencl
        self.device = device
        self.context = pyopencl.Context([device])

    def allocate(self, size: int, kind: MemoryKind) -> Any:
        """See ``Driver``. The driver would allocate when the memory is first used: too late to say so."""
        if size > self.device.max_mem_alloc_size:
            problem = f"{size:,} bytes at once, of at most {self.device.max_mem_alloc_size:,}"
            raise self.cl.MemoryError(f"clCreateBuffer failed: INVALID_BUFFER_SIZE - {problem}")
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size)

    def free(self, memory: Any) -> None:
        """See ``Driver``."""
        memory.release()

    def write(self, memory: Any, data: np.ndarray, queue: Any, after: Sequence[Any], *, hold: bool) -> Any:
        """See ``Driver``."""
        return self.cl.enqueue_copy(queue, memory, data, is_blocking=hold, wait_for=self._flushed(after))

    def read(self, data: np.ndarray, memory: Any, queue: Any, after: Sequence[Any], *, hold: bool) -> Any:
        """See ``Driver``."""
        return self.cl.enqueue_copy(queue, data, memory, is_blocking=hold, wait_for=self._flushed(after))

    def copy(self, to: Any, memory: Any, size: int, queue: Any, after: Sequence[Any]) -> Any:
        """See ``Driver``."""
        return self.cl.enqueue_copy(queue, to, memory, byte_count=size, wait_for=self._flushed(after))

    def build(self, emitted: Emitted) -> Any:
        """See ``Driver``."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self.cl.CompilerWarning)  # PoCL's log of a build that went well
            program = self.cl.Program(self.context, emitted.source).build(options=list(emitted.options))
        return self.cl.Kernel(program, emitted.signature.name)

    def launch(
        self, kernel: Any, emitted: Emitted, grid: Dims, block: Dims, values: Sequence[Any], queue: Any,
        after: Sequence[Any],
    ) -> Any:  # fmt: skip
        """See ``Driver``."""
        for one, value in zip(emitted.signature.arguments, values, strict=True):
            kernel.set_arg(one.position, value)
        threads = tuple(blocks * side for blocks, side in zip(grid, block, strict=True))
        return self.cl.enqueue_nd_range_kernel(queue, kernel, threads, block, wait_for=self._flushed(after))

    def queue(self, *, non_blocking: bool) -> Any:
        """See ``Driver``."""
        profiling = self.cl.command_queue_properties.PROFILING_ENABLE
        return self.cl.CommandQueue(self.context, properties=profiling)

    def mark(self, queue: Any, after: Sequence[Any]) -> Any:
        """See ``Driver``."""
        return self.cl.enqueue_marker(queue, wait_for=self._flushed(after))

    def reached(self, mark: Any) -> bool:
        """See ``Driver``."""
        return bool(mark.command_execution_status == self.cl.command_execution_status.COMPLETE)

    def wait(self, mark: Any) -> None:
        """See ``Driver``."""
        mark.wait()

    def finish(self, queue: Any) -> None:
        """See ``Driver``."""
        queue.finish()

    def elapsed_s(self, mark: Any, since: Any) -> float:
        """See ``Driver``: nanoseconds of the device's counter, from end to end."""
        return float(mark.profile.end - since.profile.end) * 1e-9

    def busy_s(self, mark: Any) -> float | None:
        """See ``Driver``."""
        return float(mark.profile.end - mark.profile.start) * 1e-9

    def host_view(self, memory: Any, size: int) -> np.ndarray:
        """No memory of this back end is the host's."""
        raise NotImplementedError

    def problem(self, error: Exception) -> tuple[type[DeviceError] | None, str] | None:
        """See ``Driver``."""
        if not isinstance(error, self.cl.Error):
            return None
        words = str(error).strip()
        return next((kind for name, kind in _KINDS.items() if name in words), None), words

    def energy_j(self) -> float | None:
        """OpenCL has no counter of energy."""
        return None

    def close(self) -> None:
        """Nothing is to do: the package counts who holds what."""

    def _flushed(self, after: Sequence[Any]) -> Sequence[Any]:
        """A queue may wait for what another was given only once that has gone to the device."""
        for event in after:
            event.command_queue.flush()
        return after


def context(found: Found, device: Any) -> RealContext[Any, Any]:
    """The device, opened for a program."""
    return RealContext(OpenClDriver(device), _info(found, device))


def operations(found: Found, device: Any) -> KernelOperations:
    """The device, as one that does operations."""
    import pyopencl

    versions = {"driver": found.driver, "device": device.version, "pyopencl": pyopencl.VERSION_TEXT}
    return KernelOperations(context(found, device), versions)
