"""``cupy.cuda.driver``."""

from __future__ import annotations

from typing import Any

from windtunnel.emulate.cupy.cuda.runtime import CUDA_VERSION
from windtunnel.emulate.cupy.cuda.runtime_error import CUDADriverError
from windtunnel.emulate.cupy.refusals import missing

__all__ = ["CUDADriverError", "get_build_version"]


def get_build_version() -> int:
    """Return the version of CUDA whose interface this is."""
    return CUDA_VERSION


def __getattr__(name: str) -> Any:
    missing("cupy.cuda.driver", name)
