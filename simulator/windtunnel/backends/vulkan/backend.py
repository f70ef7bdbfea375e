"""Vulkan 1.2 devices through the `vulkan` package: GPUs behind their vendors' drivers, processors behind lavapipe.

This module finds the devices; `vulkan.driver` opens one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windtunnel.backends.common.backend import DetectedDevice, RealBackend, device_at
from windtunnel.backends.vulkan.api import Physical, api, instance, physical_devices
from windtunnel.core.errors import DeviceNotPresentError

if TYPE_CHECKING:
    from windtunnel.backends.common.context import RealContext
    from windtunnel.backends.vulkan.device import Mark, Queue
    from windtunnel.runtime.trial import Operations


def _physical() -> list[Physical]:
    vulkan = api()
    if vulkan is None:
        return []
    with instance(vulkan) as handle:
        return [] if handle is None else physical_devices(vulkan, handle)


def _find() -> Sequence[DetectedDevice]:
    return [_detected(index, physical) for index, physical in enumerate(_physical())]


def _detected(index: int, physical: Physical) -> DetectedDevice:
    return DetectedDevice(
        backend="vulkan",
        index=index,
        label=physical.name,
        kind="gpu" if physical.gpu else "cpu",
        software=physical.software,
        driver=physical.driver,
        api="vulkan",
        vendor=physical.vendor,
        memory_bytes=float(physical.heap_bytes),
    )


def open_device(index: int, staged: bool | None = None) -> RealContext[Queue, Mark]:
    """Open the device with this index for programs. Raises DeviceNotPresentError if there is none.

    ``staged`` selects copies through staging buffers, see `VulkanDriver`.
    """
    from windtunnel.backends.vulkan.driver import open_context

    physical, vulkan = device_at(index, _physical(), "vulkan"), api()
    assert vulkan is not None  # noqa: S101  it has just listed the device
    return open_context(_detected(index, physical), vulkan, physical, staged)


def _operations(index: int) -> Operations:
    from windtunnel.backends.vulkan.driver import operations
    from windtunnel.backends.vulkan.spirv import INSTALL, compiler

    if compiler() is None:
        raise DeviceNotPresentError(f"operations on vulkan:{index} are kernels and need glslang: {INSTALL}")
    return operations(open_device(index))


BACKEND = RealBackend(
    name="vulkan",
    description="GPUs with a Vulkan 1.2 driver, and processors through lavapipe",
    install='pip install "windtunnel[vulkan]", and the system\'s libvulkan1, glslang-tools and, for processors, '
    "mesa-vulkan-drivers; a GPU needs its vendor's driver too",
    find=_find,
    packages=("vulkan",),
    operations=_operations,
    context=open_device,
)
