"""WebGPU devices through wgpu-py: Vulkan, Metal and Direct3D 12 with the same code; lavapipe without a GPU.

This module finds the devices; `wgpu.driver` opens one. WebGPU does not report a device's memory. For a processor, and
for a GPU that shares the processor's memory, the host's memory is used. For any other GPU the largest buffer is used
instead, which may be less than the memory (2 GiB on Mesa's drivers) or far more.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common import system
from windtunnel.backends.common.backend import DetectedDevice, RealBackend, device_at
from windtunnel.backends.wgpu.native import library

if TYPE_CHECKING:
    from windtunnel.runtime.interface import Context
    from windtunnel.runtime.trial import Operations

_LOCK = threading.Lock()
"""The library creates its only instance at the first call, without a lock of its own."""


def _adapters() -> list[Any]:
    with _LOCK:
        return _best(library()[0].gpu.enumerate_adapters_sync())


def _best(adapters: Sequence[Any]) -> list[Any]:
    """Return all adapters that compute, software last; an OpenGL adapter only if no other API reaches its device."""
    able = [adapter for adapter in adapters if adapter.limits["max-compute-invocations-per-workgroup"] > 0]
    better = [adapter.info["device"] for adapter in able if adapter.info["backend_type"] != "OpenGL"]
    # OpenGL's name of a device begins with Vulkan's: "NVIDIA H200/PCIe/SSE2".
    kept = [
        adapter
        for adapter in able
        if adapter.info["backend_type"] != "OpenGL"
        or not any(adapter.info["device"].startswith(name) for name in better)
    ]
    return sorted(kept, key=_software)


def _software(adapter: Any) -> bool:
    return bool(adapter.info["adapter_type"] == "CPU")


def _memory(adapter: Any) -> float:
    """Return the host's memory (bytes) for adapters that use it; 0 if the size is unknown."""
    return system.memory_bytes() if adapter.info["adapter_type"] in ("CPU", "IntegratedGPU") else 0.0


def _driver(adapter: Any) -> str:
    from wgpu.backends import wgpu_native

    version = ".".join(map(str, wgpu_native.lib_version_info))
    parts = [f"wgpu-native {version} on {adapter.info['backend_type']}", adapter.info["description"]]
    if "timestamp-query" not in adapter.features:
        parts.append("no timestamps: events are timed by the host's clock")
    return ", ".join(part for part in parts if part)


def _detected(index: int, adapter: Any) -> DetectedDevice:
    return DetectedDevice(
        backend="wgpu",
        index=index,
        label=adapter.info["device"].strip(),
        kind="cpu" if _software(adapter) else "gpu",
        software=_software(adapter),
        driver=_driver(adapter),
        api="wgpu",
        vendor=adapter.info["vendor"].strip(),
        memory_bytes=_memory(adapter),
    )


def _find() -> Sequence[DetectedDevice]:
    return [_detected(index, adapter) for index, adapter in enumerate(_adapters())]


def _device(index: int) -> tuple[DetectedDevice, Any]:
    adapter = device_at(index, _adapters(), "wgpu")
    return _detected(index, adapter), adapter


def _context(index: int) -> Context:
    from windtunnel.backends.wgpu.driver import open_context

    return open_context(*_device(index))


def _operations(index: int) -> Operations:
    from windtunnel.backends.wgpu.driver import operations

    return operations(*_device(index))


BACKEND = RealBackend(
    name="wgpu",
    description="GPUs through Vulkan, Metal or Direct3D 12, and processors behind Vulkan's software driver",
    install='pip install "windtunnel[wgpu]"; on Linux a Vulkan driver too: the GPU\'s, or mesa-vulkan-drivers',
    find=_find,
    packages=("wgpu",),
    operations=_operations,
    context=_context,
)
