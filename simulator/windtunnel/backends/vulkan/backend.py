"""Vulkan 1.2 devices through the `vulkan` package: GPUs behind their vendors' drivers, processors behind lavapipe.

Here is what finds them; `_vulkan_driver` opens one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windtunnel.backends.common.backend import Found, RealBackend
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
    with instance(vulkan) as made:
        return [] if made is None else physical_devices(vulkan, made)


def _find() -> Sequence[Found]:
    return [_found(index, physical) for index, physical in enumerate(_physical())]


def _found(index: int, physical: Physical) -> Found:
    return Found(
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


def opened(index: int, staged: bool | None = None) -> RealContext[Queue, Mark]:
    """Device ``index``; ``staged`` as `VulkanDriver` has it. DeviceNotPresentError where it is not here."""
    from windtunnel.backends.vulkan.driver import context

    found = _physical()
    vulkan = api()
    if vulkan is None or not 0 <= index < len(found):
        raise DeviceNotPresentError(f"Vulkan has no device {index} here; it has {len(found)}")
    return context(_found(index, found[index]), vulkan, found[index], staged)


def _operations(index: int) -> Operations:
    from windtunnel.backends.vulkan.driver import operations
    from windtunnel.backends.vulkan.spirv import INSTALL, compiler

    if compiler() is None:
        raise DeviceNotPresentError(f"operations on vulkan:{index} are kernels, and glslang is not here: {INSTALL}")
    return operations(opened(index))


BACKEND = RealBackend(
    name="vulkan",
    reaches="GPUs with a Vulkan 1.2 driver, and processors through lavapipe",
    install='pip install "windtunnel[vulkan]", and the system\'s libvulkan1, glslang-tools and, for processors, '
    "mesa-vulkan-drivers; a GPU needs its vendor's driver too",
    find=_find,
    packages=("vulkan",),
    operations=_operations,
    context=opened,
)
