"""``cupy._core``: the names of it that programs and tests use."""

from __future__ import annotations

from typing import Any

from windtunnel.emulate.cupy.creation import array
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.elementwise_kernels import ElementwiseKernel
from windtunnel.emulate.cupy.fusion import fuse
from windtunnel.emulate.cupy.raw_kernels import RawKernel, RawModule
from windtunnel.emulate.cupy.reduction_kernels import ReductionKernel
from windtunnel.emulate.cupy.refusals import missing


def elementwise_copy(src: ndarray, dst: ndarray) -> None:
    """Copy the elements of an array to another one."""
    dst[...] = src


def __getattr__(name: str) -> Any:
    missing("cupy._core", name)


__all__ = [
    "ElementwiseKernel",
    "RawKernel",
    "RawModule",
    "ReductionKernel",
    "array",
    "elementwise_copy",
    "fuse",
    "ndarray",
]
