"""Windtunnel: a hardware simulation and emulation testbed for accelerator fleets.

The names a user needs are attributes of this package and are imported on first use, so that
``import windtunnel`` itself (and so the pytest plugin) stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from windtunnel import errors
    from windtunnel.app import accelerator as device
    from windtunnel.app import catalogue, predict, run, select
    from windtunnel.emulator.timeline import Host
    from windtunnel.runtime.accelerator import Accelerator
    from windtunnel.runtime.buffers import Buffer
    from windtunnel.runtime.kernels import kernel
    from windtunnel.runtime.pool import DevicePool
    from windtunnel.runtime.reload import KernelFile
    from windtunnel.runtime.worker import AcceleratedWorker, ComputeTask, WorkerGroup

__all__ = [
    "AcceleratedWorker",
    "Accelerator",
    "Buffer",
    "ComputeTask",
    "DevicePool",
    "Host",
    "KernelFile",
    "WorkerGroup",
    "__version__",
    "catalogue",
    "device",
    "errors",
    "kernel",
    "predict",
    "run",
    "select",
]

_LAZY = {
    "Accelerator": ("windtunnel.runtime.accelerator", "Accelerator"),
    "AcceleratedWorker": ("windtunnel.runtime.worker", "AcceleratedWorker"),
    "Buffer": ("windtunnel.runtime.buffers", "Buffer"),
    "ComputeTask": ("windtunnel.runtime.worker", "ComputeTask"),
    "DevicePool": ("windtunnel.runtime.pool", "DevicePool"),
    "Host": ("windtunnel.emulator.timeline", "Host"),
    "KernelFile": ("windtunnel.runtime.reload", "KernelFile"),
    "WorkerGroup": ("windtunnel.runtime.worker", "WorkerGroup"),
    "catalogue": ("windtunnel.app", "catalogue"),
    "device": ("windtunnel.app", "accelerator"),
    "kernel": ("windtunnel.runtime.kernels", "kernel"),
    "predict": ("windtunnel.app", "predict"),
    "run": ("windtunnel.app", "run"),
    "select": ("windtunnel.app", "select"),
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("windtunnel.errors")
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'windtunnel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
