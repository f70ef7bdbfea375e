"""NVIDIA GPUs through CuPy: NVRTC kernels, streams, graphs, pinned and managed memory, energy from NVML.

CuPy's build for ROCm has the same interface, so that the back end `hip` is declared by `cupy_backend`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common.backend import DetectedDevice, RealBackend

if TYPE_CHECKING:
    from windtunnel.backends.cuda.context import CupyContext
    from windtunnel.runtime.trial import Operations

_DRIVER_FILES = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
"""Signs of a driver on Linux, in a container and under WSL."""
_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "C:/Windows/System32/nvcuda.dll",
)  # fmt: skip


def cupy_backend(name: str, *, rocm: bool, description: str, install: str, present: Callable[[], bool]) -> RealBackend:
    """Declare a back end on CuPy's build for CUDA, or with ``rocm`` on its build for ROCm."""

    def load_cupy() -> Any:
        import cupy  # the ROCm build raises ImportError if ROCm itself is missing

        if cupy.cuda.runtime.is_hip != rocm:
            raise ImportError(f"the installed CuPy is the build for {'CUDA' if rocm else 'ROCm'}")
        return cupy

    def find() -> Sequence[DetectedDevice]:
        from windtunnel.backends.cuda.devices import detected_devices

        return detected_devices(load_cupy(), name)

    def context(index: int) -> CupyContext:
        from windtunnel.backends.cuda.context import open_context

        return open_context(load_cupy(), name, index)

    def operations(index: int) -> Operations:
        from windtunnel.backends.cuda.trials import CupyOperations

        opened = context(index)
        return CupyOperations(opened, {"driver": opened.info.driver, "cupy": load_cupy().__version__})

    return RealBackend(
        name=name,
        description=description,
        install=install,
        find=find,
        packages=("cupy",),
        operations=operations,
        context=context,
        present=present,
        timeout_s=30.0,
    )


BACKEND = cupy_backend(
    "cuda",
    rocm=False,
    description="NVIDIA GPUs",
    install='pip install "windtunnel[cuda]" and NVIDIA\'s driver, for CUDA 12 or later',
    present=lambda: any(Path(file).exists() for file in (*_DRIVER_FILES, *_LIBRARIES)),
)
