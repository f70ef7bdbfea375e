"""AMD GPUs through CuPy's build for ROCm: the modules of `cuda`, with kernels in HIP C++ compiled by hipRTC.

This build of CuPy captures no graphs and launches no kernel with a grid barrier.
"""

from __future__ import annotations

from pathlib import Path

from windtunnel.backends.cuda.backend import cupy_backend

BACKEND = cupy_backend(
    "hip",
    rocm=True,
    description="AMD GPUs",
    install='pip install "windtunnel[hip]" and ROCm 7',
    present=lambda: Path("/dev/kfd").exists(),
)
