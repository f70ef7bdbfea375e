"""Windtunnel: a hardware simulation and emulation testbed for accelerator fleets.

The names a user needs are attributes of this package and are imported on first use, so that
``import windtunnel`` itself (and so the pytest plugin) stays quick.

PYTEST_DONT_REWRITE: this module has no assertions, and a worker of pytest-xdist under ``--emulate`` has imported it
before pytest begins, of which pytest would warn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from windtunnel.core.version import __version__

if TYPE_CHECKING:
    from windtunnel import errors
    from windtunnel.emulator.device.timeline import Host
    from windtunnel.library.c_kernels import load
    from windtunnel.library.devices import explore, select
    from windtunnel.library.devices import open_device as device
    from windtunnel.library.predict import catalogue, predict
    from windtunnel.runtime.accelerator import Accelerator
    from windtunnel.runtime.buffers import Buffer
    from windtunnel.runtime.kernels import kernel, stencil
    from windtunnel.runtime.pool import DevicePool
    from windtunnel.runtime.reload import KernelFile
    from windtunnel.runtime.worker import AcceleratedWorker, ComputeTask, WorkerGroup
    from windtunnel.simulation.run import run

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
    "explore",
    "kernel",
    "load",
    "predict",
    "run",
    "select",
    "stencil",
]

_LAZY = {
    "Accelerator": ("windtunnel.runtime.accelerator", "Accelerator"),
    "AcceleratedWorker": ("windtunnel.runtime.worker", "AcceleratedWorker"),
    "Buffer": ("windtunnel.runtime.buffers", "Buffer"),
    "ComputeTask": ("windtunnel.runtime.worker", "ComputeTask"),
    "DevicePool": ("windtunnel.runtime.pool", "DevicePool"),
    "Host": ("windtunnel.emulator.device.timeline", "Host"),
    "KernelFile": ("windtunnel.runtime.reload", "KernelFile"),
    "WorkerGroup": ("windtunnel.runtime.worker", "WorkerGroup"),
    "catalogue": ("windtunnel.library.predict", "catalogue"),
    "device": ("windtunnel.library.devices", "open_device"),
    "explore": ("windtunnel.library.devices", "explore"),
    "kernel": ("windtunnel.runtime.kernels", "kernel"),
    "load": ("windtunnel.library.c_kernels", "load"),
    "predict": ("windtunnel.library.predict", "predict"),
    "run": ("windtunnel.simulation.run", "run"),
    "select": ("windtunnel.library.devices", "select"),
    "stencil": ("windtunnel.runtime.kernels", "stencil"),
}
_WORDS = (
    "threadIdx", "blockIdx", "blockDim", "gridDim", "shared", "local", "atomic", "grid", "gridsize",
    "syncthreads", "cg", "syncwarp", "threadfence", "threadfence_block", "laneid", "warpsize", "shfl_sync",
    "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync", "all_sync", "any_sync", "ballot_sync", "popc", "clz",
    "ffs", "brev", "fma", "rsqrt", "tf32", "thread_idx_x", "thread_idx_y", "thread_idx_z", "block_idx_x",
    "block_idx_y", "block_idx_z", "block_dim_x", "block_dim_y", "block_dim_z", "grid_dim_x", "grid_dim_y",
    "grid_dim_z", "sync_threads", "sync_warp", "thread_fence", "thread_fence_block", "GridPos",
)  # fmt: skip
_TYPES = (
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "float16", "float32",
    "float64", "bfloat16", "boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64",
)  # fmt: skip
_LAZY |= {name: ("windtunnel.language.names", name) for name in _WORDS}
_LAZY |= {name: ("windtunnel.language.types", name) for name in _TYPES}
# A star import has the names of the kernel language. None of them is that of a builtin of Python.
__all__ += _WORDS  # noqa: PLE0605  a tuple of names
__all__ += _TYPES  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("windtunnel.errors")
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'windtunnel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})
