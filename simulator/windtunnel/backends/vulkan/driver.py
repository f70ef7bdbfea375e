"""Vulkan's calls as a driver's, and a device of Vulkan's opened through them.

Kernels are emitted as GLSL and compiled by glslang. Streams share one queue, which does all work in the order in which
it is given: it neither overlaps streams nor copies. Events' times are the device's own time stamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import Found
from windtunnel.backends.common.context import RealContext
from windtunnel.backends.common.trials import KernelOperations
from windtunnel.backends.vulkan.api import RESULTS, Api, Physical, RefusedError, VulkanError
from windtunnel.backends.vulkan.device import Device, Kernel, Mark, Memory, Queue
from windtunnel.backends.vulkan.spirv import CompilerError, capabilities, compiled
from windtunnel.codegen import Buffer, Emitted, Value
from windtunnel.core.errors import DeviceError
from windtunnel.runtime.interface import DeviceInfo, Dims, Limits, MemoryKind

_LARGE = 2**31 - 1


def _info(found: Found, physical: Physical) -> DeviceInfo:
    columns, rows, layers = (min(side, _LARGE) for side in physical.grid)
    limits = Limits(
        threads_per_block=physical.threads,
        block=physical.block,
        grid=(columns, rows, layers),
        shared_bytes=physical.shared_bytes,
        warp=max(physical.subgroup, 1),
        source="the driver's own report",
        atomic_bits=64 if "shaderBufferInt64Atomics" in physical.features else 32,
    )
    narrow = {
        "int8": {"shaderInt8", "storageBuffer8BitAccess"},
        "float16": {"shaderFloat16", "storageBuffer16BitAccess"},
    }
    return DeviceInfo(
        name=found.label,
        kind=found.kind,
        api="vulkan",
        memory_bytes=found.memory_bytes,
        limits=limits,
        features=frozenset(name for name, needs in narrow.items() if needs <= physical.features),
        virtual=False,
        software=found.software,
        compute_units=physical.units,
        driver=found.driver,
    )


class VulkanDriver:
    """Vulkan's calls; see ``_context.Driver``.

    ``staged``: whether copies go through buffers of their own, as a card's must; None: as the device needs it.
    """

    target = "glsl"

    def __init__(self, vulkan: Api, physical: Physical, staged: bool | None = None) -> None:
        self.timed = False
        self.api, self.physical, self.staged = vulkan, physical, staged
        self._device: Device | None = Device(vulkan, physical, staged)
        self._count = 0

    @property
    def device(self) -> Device:
        """The open device; one that was given back is opened anew, and counts on from there."""
        if self._device is None:
            self._device = Device(self.api, self.physical, self.staged, self._count)
        return self._device

    def close(self) -> None:
        """See ``Driver``."""
        if self._device is not None:
            device, self._device = self._device, None
            self._count = device.submitted
            device.close()

    def allocate(self, size: int, kind: MemoryKind) -> Memory:
        """See ``Driver``."""
        return self.device.allocate(size)

    def free(self, memory: Memory) -> None:
        """See ``Driver``."""
        memory.device.free(memory)

    def write(self, memory: Memory, data: np.ndarray, queue: Queue, after: Sequence[Mark], *, hold: bool) -> Mark:
        """See ``Driver``. What is staged is taken at once, so that ``hold`` makes no difference."""
        self.device.write(memory, data)
        return self._given(queue)

    def read(self, data: np.ndarray, memory: Memory, queue: Queue, after: Sequence[Mark], *, hold: bool) -> Mark:
        """See ``Driver``. The host always waits."""
        self.device.read(data, memory)
        return self._given(queue)

    def copy(self, to: Memory, memory: Memory, size: int, queue: Queue, after: Sequence[Mark]) -> Mark:
        """See ``Driver``."""
        self.device.copy(to, 0, memory, 0, size)
        return self._given(queue)

    def build(self, emitted: Emitted) -> Kernel:
        """See ``Driver``."""
        module = compiled(emitted, self.physical.controls)
        lacks = self.physical.lacks(capabilities(module))
        if lacks is not None:
            raise RefusedError(lacks)
        signature = emitted.signature
        fields = [(one.name, one.passed.dtype if isinstance(one, Value) else np.int32) for one in signature.numbers]
        kernel = Kernel(
            emitted.signature.name,
            module,
            tuple(one.name for one in signature.buffers),
            np.dtype(fields, align=True) if fields else np.dtype([]),
        )
        for what, needs, most in (
            ("arrays", len(kernel.arrays), self.physical.buffers),
            ("bytes of numbers", kernel.numbers.itemsize, self.physical.push_bytes),
        ):
            if needs > most:
                raise RefusedError(f"kernel '{kernel.name}' takes {needs} {what}, of at most {most}")
        self.device.load(kernel)
        return kernel

    def launch(
        self, kernel: Kernel, emitted: Emitted, grid: Dims, block: Dims, values: Sequence[Any], queue: Queue,
        after: Sequence[Mark],
    ) -> Mark:  # fmt: skip
        """See ``Driver``."""
        given = list(zip(emitted.signature.arguments, values, strict=True))
        numbers = tuple(value for one, value in given if not isinstance(one, Buffer))
        pushed = np.array(numbers, kernel.numbers).tobytes() if numbers else b""
        memories = [value for one, value in given if isinstance(one, Buffer)]
        mark = self.device.launch(kernel, grid, block, memories, pushed, self.timed)
        queue.value = mark.value
        return mark

    def queue(self, *, non_blocking: bool) -> Queue:
        """See ``Driver``."""
        return Queue(self.device.submitted)

    def mark(self, queue: Queue, after: Sequence[Mark]) -> Mark:
        """See ``Driver``."""
        found = self.device.mark()
        queue.value = found.value
        return found

    def reached(self, mark: Mark) -> bool:
        """See ``Driver``."""
        return self.device.reached(mark.value)

    def wait(self, mark: Mark) -> None:
        """See ``Driver``."""
        self.device.wait(mark.value)

    def finish(self, queue: Queue) -> None:
        """See ``Driver``."""
        if self._device is not None:
            self._device.wait(queue.value)

    def elapsed_s(self, mark: Mark, since: Mark) -> float:
        """See ``Driver``: the device's own time stamps."""
        return self.device.elapsed_s(mark, since)

    def busy_s(self, mark: Mark) -> float | None:
        """See ``Driver``: of launches given while ``timed``."""
        return self.device.busy_s(mark)

    def host_view(self, memory: Memory, size: int) -> np.ndarray:
        """No memory of this back end is the host's."""
        raise NotImplementedError

    def problem(self, error: Exception) -> tuple[type[DeviceError] | None, str] | None:
        """See ``Driver``."""
        match error:
            case VulkanError(code=code):
                return RESULTS.get(code, ("", None))[1], str(error)
            case RefusedError(kind=kind):
                return kind, str(error)
            case CompilerError():
                return None, str(error)
        return None

    def energy_j(self) -> float | None:
        """Vulkan has no counter of energy."""
        return None

    def _given(self, queue: Queue) -> Mark:
        """The point after what was just given."""
        queue.value = self.device.submitted
        return Mark(queue.value)


def context(found: Found, vulkan: Api, physical: Physical, staged: bool | None = None) -> RealContext[Queue, Mark]:
    """The device, opened for a program."""
    return RealContext(VulkanDriver(vulkan, physical, staged), _info(found, physical))


def operations(opened: RealContext[Queue, Mark]) -> KernelOperations:
    """The device, as one that does operations."""
    return KernelOperations(opened, {"driver": opened.info.driver, "vulkan": version("vulkan")})
