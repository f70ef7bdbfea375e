"""WebGPU devices through wgpu-py: Vulkan, Metal and Direct3D 12 by the same code; lavapipe where there is no GPU.

Here is what finds them; `_wgpu_driver` opens one. WebGPU tells no device's memory. A processor's, and that of a GPU
that shares it, is the host's; of any other the largest buffer stands for it, which may be less (2 GiB on Mesa's
drivers) or far more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common.backend import Found, RealBackend
from windtunnel.backends.wgpu.native import library
from windtunnel.core.errors import DeviceNotPresentError

if TYPE_CHECKING:
    from windtunnel.runtime.interface import Context
    from windtunnel.runtime.trial import Operations

_LOCK = threading.Lock()
"""The library makes its one instance when it is first asked, without a lock of its own."""


def _adapters() -> list[Any]:
    with _LOCK:
        return _best(library()[0].gpu.enumerate_adapters_sync())


def _best(found: Sequence[Any]) -> list[Any]:
    """All that compute, software last; OpenGL's only of devices that nothing better reaches."""
    able = [one for one in found if one.limits["max-compute-invocations-per-workgroup"] > 0]
    better = [one.info["device"] for one in able if one.info["backend_type"] != "OpenGL"]
    # OpenGL calls a device what Vulkan does and more: "NVIDIA H200/PCIe/SSE2".
    kept = [
        one
        for one in able
        if one.info["backend_type"] != "OpenGL" or not any(one.info["device"].startswith(name) for name in better)
    ]
    return sorted(kept, key=_software)


def _software(adapter: Any) -> bool:
    return bool(adapter.info["adapter_type"] == "CPU")


def _memory(adapter: Any) -> float:
    """The host's, where the device's is in it; 0 where that is not known."""
    told = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})  # not by Windows
    if adapter.info["adapter_type"] not in ("CPU", "IntegratedGPU") or not told:
        return 0.0
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _driver(adapter: Any) -> str:
    from wgpu.backends import wgpu_native

    version = ".".join(map(str, wgpu_native.lib_version_info))
    words = [f"wgpu-native {version} on {adapter.info['backend_type']}", adapter.info["description"]]
    if "timestamp-query" not in adapter.features:
        words.append("no time stamps: events by the host's clock")
    return ", ".join(word for word in words if word)


def _found(index: int, adapter: Any) -> Found:
    return Found(
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


def _find() -> Sequence[Found]:
    return [_found(index, adapter) for index, adapter in enumerate(_adapters())]


def _open(index: int) -> tuple[Found, Any]:
    adapters = _adapters()
    if not 0 <= index < len(adapters):
        raise DeviceNotPresentError(f"wgpu has no device {index} here; it has {len(adapters)}")
    return _found(index, adapters[index]), adapters[index]


def _context(index: int) -> Context:
    from windtunnel.backends.wgpu.driver import context

    return context(*_open(index))


def _operations(index: int) -> Operations:
    from windtunnel.backends.wgpu.driver import operations

    return operations(*_open(index))


BACKEND = RealBackend(
    name="wgpu",
    reaches="GPUs through Vulkan, Metal or Direct3D 12, and processors behind Vulkan's software driver",
    install='pip install "windtunnel[wgpu]"; on Linux a Vulkan driver too: the GPU\'s, or mesa-vulkan-drivers',
    find=_find,
    packages=("wgpu",),
    operations=_operations,
    context=_context,
)
