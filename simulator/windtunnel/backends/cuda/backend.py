"""NVIDIA's devices through CuPy: kernels by NVRTC, streams, graphs, pinned and managed memory, NVML's energy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common.backend import Found, RealBackend

if TYPE_CHECKING:
    from windtunnel.backends.cuda.driver import CupyContext
    from windtunnel.runtime.trial import Operations

_SIGNS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
"""Of a driver: on Linux, in a container, and under Windows."""
_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "C:/Windows/System32/nvcuda.dll",
)  # fmt: skip


def _present() -> bool:
    return any(Path(sign).exists() for sign in (*_SIGNS, *_LIBRARIES))


def _cupy_here() -> Any:
    import cupy

    if cupy.cuda.runtime.is_hip:
        raise ImportError("the CuPy that is installed is the build for ROCm")
    return cupy


def _find() -> Sequence[Found]:
    from windtunnel.backends.cuda.devices import found

    return found(_cupy_here(), "cuda")


def _context(index: int) -> CupyContext:
    from windtunnel.backends.cuda.driver import context

    return context(_cupy_here(), "cuda", index)


def _operations(index: int) -> Operations:
    from windtunnel.backends.cuda.trials import CupyOperations

    context = _context(index)
    return CupyOperations(context, {"driver": context.info.driver, "cupy": _cupy_here().__version__})


BACKEND = RealBackend(
    name="cuda",
    reaches="NVIDIA GPUs",
    install='pip install "windtunnel[cuda]" and NVIDIA\'s driver, for CUDA 12 or later',
    find=_find,
    packages=("cupy",),
    operations=_operations,
    context=_context,
    present=_present,
    timeout_s=30.0,
)
