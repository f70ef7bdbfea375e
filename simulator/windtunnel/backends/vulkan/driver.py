"""The calls of Vulkan as a driver, and a Vulkan device opened with them.

Kernels are emitted as GLSL and compiled by glslang. All streams share one queue, which executes all work in the order
of submission: neither streams nor copies overlap. Times of events are the device's own timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.common.context import RealContext
from windtunnel.backends.common.driver import Problem
from windtunnel.backends.common.nvml import nvml_named, nvml_with_uuid
from windtunnel.backends.common.trials import KernelOperations
from windtunnel.backends.vulkan.api import RESULTS, Api, Physical, RefusedError, VulkanError
from windtunnel.backends.vulkan.device import Device, Kernel, Mark, Memory, Queue
from windtunnel.backends.vulkan.spirv import CompilerError, capabilities, compiled
from windtunnel.codegen import Buffer, Emitted, Value
from windtunnel.runtime.interface import DeviceInfo, Dims, Limits, MemoryKind

_LARGE = 2**31 - 1


def _info(detected: DetectedDevice, physical: Physical) -> DeviceInfo:
    columns, rows, layers = (min(side, _LARGE) for side in physical.grid)
    limits = Limits(
        threads_per_block=physical.threads,
        block=physical.block,
        grid=(columns, rows, layers),
        shared_bytes=physical.shared_bytes,
        warp=max(physical.subgroup, 1),
        source="reported by the driver",
        atomic_bits=64 if "shaderBufferInt64Atomics" in physical.features else 32,
    )
    narrow = {
        "int8": {"shaderInt8", "storageBuffer8BitAccess"},
        "float16": {"shaderFloat16", "storageBuffer16BitAccess"},
    }
    features = (name for name, needs in narrow.items() if needs <= physical.features)
    return detected.opened(limits, features, physical.units)


class VulkanDriver:
    """Implements `common.driver.Driver` with Vulkan.

    ``staged``: whether copies go through staging buffers, as on a card; None selects what the device requires.
    """

    target = "glsl"

    def __init__(self, vulkan: Api, physical: Physical, staged: bool | None = None) -> None:
        self.timed = False
        self.api, self.physical, self.staged = vulkan, physical, staged
        self._device: Device | None = Device(vulkan, physical, staged)
        self._count = 0

    @property
    def device(self) -> Device:
        """The open device. After a reset it is opened again, and the submission count continues."""
        if self._device is None:
            self._device = Device(self.api, self.physical, self.staged, self._count)
        return self._device

    def close(self) -> None:
        """Close the device. The next call opens it again."""
        if self._device is not None:
            device, self._device = self._device, None
            self._count = device.submitted
            device.close()

    def allocate(self, size: int, kind: MemoryKind) -> Memory:
        """Allocate ``size`` bytes."""
        return self.device.allocate(size)

    def free(self, memory: Memory) -> None:
        """Free memory."""
        memory.device.free(memory)

    def write(self, memory: Memory, data: np.ndarray, queue: Queue, after: Sequence[Mark], *, hold: bool) -> Mark:
        """Copy from host to device. The data are copied to the staging buffer at once, whatever ``hold`` is."""
        self.device.write(memory, data)
        return self._mark(queue)

    def read(self, data: np.ndarray, memory: Memory, queue: Queue, after: Sequence[Mark], *, hold: bool) -> Mark:
        """Copy from device to host. The host always waits."""
        self.device.read(data, memory)
        return self._mark(queue)

    def copy(self, to: Memory, memory: Memory, size: int, queue: Queue, after: Sequence[Mark]) -> Mark:
        """Copy within the device."""
        self.device.copy(to, 0, memory, 0, size)
        return self._mark(queue)

    def build(self, emitted: Emitted) -> Kernel:
        """Compile a kernel. Raises RefusedError if it needs a feature that the device lacks, or exceeds a limit."""
        module = compiled(emitted, self.physical.controls)
        missing = self.physical.missing_feature(capabilities(module))
        if missing is not None:
            raise RefusedError(missing)
        signature = emitted.signature
        fields = [(n.name, n.passed.dtype if isinstance(n, Value) else np.int32) for n in signature.numbers]
        kernel = Kernel(
            emitted.signature.name,
            module,
            tuple(buffer.name for buffer in signature.buffers),
            np.dtype(fields, align=True) if fields else np.dtype([]),
        )
        for what, count, limit in (
            ("arrays", len(kernel.arrays), self.physical.buffers),
            ("bytes of scalar arguments", kernel.numbers.itemsize, self.physical.push_bytes),
        ):
            if count > limit:
                raise RefusedError(f"kernel '{kernel.name}' takes {count} {what}; the limit is {limit}")
        self.device.load(kernel)
        return kernel

    def launch(
        self, kernel: Kernel, emitted: Emitted, grid: Dims, block: Dims, values: Sequence[Any], queue: Queue,
        after: Sequence[Mark],
    ) -> Mark:  # fmt: skip
        """Enqueue a kernel."""
        pairs = list(zip(emitted.signature.arguments, values, strict=True))
        numbers = tuple(value for argument, value in pairs if not isinstance(argument, Buffer))
        pushed = np.array(numbers, kernel.numbers).tobytes() if numbers else b""
        memories = [value for argument, value in pairs if isinstance(argument, Buffer)]
        mark = self.device.launch(kernel, grid, block, memories, pushed, self.timed)
        queue.value = mark.value
        return mark

    def queue(self, *, non_blocking: bool) -> Queue:
        """Create a queue. All queues are submitted to the device's one queue."""
        return Queue(self.device.submitted)

    def mark(self, queue: Queue, after: Sequence[Mark]) -> Mark:
        """Submit a timestamp after all work of the queue."""
        mark = self.device.mark()
        queue.value = mark.value
        return mark

    def reached(self, mark: Mark) -> bool:
        """Return whether the device has reached the mark."""
        return self.device.reached(mark.value)

    def wait(self, mark: Mark) -> None:
        """Wait until the device has reached the mark."""
        self.device.wait(mark.value)

    def finish(self, queue: Queue) -> None:
        """Wait until all work of the queue has completed."""
        if self._device is not None:
            self._device.wait(queue.value)

    def elapsed_s(self, mark: Mark, since: Mark) -> float:
        """Return the seconds between two marks by the device's timestamps."""
        return self.device.elapsed_s(mark, since)

    def busy_s(self, mark: Mark) -> float | None:
        """Return the device time of a launch; None if it was not enqueued while ``timed``."""
        return self.device.busy_s(mark)

    def host_view(self, memory: Memory, size: int) -> np.ndarray:
        """Raise NotImplementedError: there is no pinned or unified memory."""
        raise NotImplementedError

    def problem(self, error: Exception) -> Problem | None:
        """Return the kind of error and its description for an error of Vulkan or glslang; None for any other."""
        match error:
            case VulkanError(code=code):
                return Problem(RESULTS.get(code, ("", None))[1], str(error))
            case RefusedError(kind=kind):
                return Problem(kind, str(error))
            case CompilerError():
                return Problem(None, str(error))
        return None

    def energy_j(self) -> float | None:
        """Return None: Vulkan has no energy counter."""
        return None

    def _mark(self, queue: Queue) -> Mark:
        """Return the mark after the work that was just submitted."""
        queue.value = self.device.submitted
        return Mark(queue.value)


def open_context(
    detected: DetectedDevice, vulkan: Api, physical: Physical, staged: bool | None = None
) -> RealContext[Queue, Mark]:
    """Open the device for programs."""
    return RealContext(VulkanDriver(vulkan, physical, staged), _info(detected, physical))


def operations(context: RealContext[Queue, Mark]) -> KernelOperations:
    """Return the single operations of an open device."""
    driver: Any = context.driver
    physical: Physical = driver.physical
    nvml = nvml_with_uuid(physical.uuid) or nvml_named(physical.name) if physical.vendor == "NVIDIA" else None
    return KernelOperations(context, {"driver": context.info.driver, "vulkan": version("vulkan")}, nvml=nvml)
