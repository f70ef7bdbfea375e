"""``numba.cuda.errors``."""

from __future__ import annotations

from typing import Any

from numba.core.errors import LoweringError

__all__ = ["CudaLoweringError", "KernelRuntimeError", "missing_launch_config_msg", "normalize_kernel_dimensions"]


class KernelRuntimeError(RuntimeError):
    """A kernel failed while it ran."""


class CudaLoweringError(LoweringError):
    """A kernel cannot be compiled."""


_url = "https://numba.readthedocs.io/en/stable/cuda/kernels.html#kernel-invocation"
missing_launch_config_msg = f"""
Kernel launch configuration was not specified. Use the syntax:

kernel_function[blockspergrid, threadsperblock](arg0, arg1, ..., argn)

See {_url} for help.

"""


def normalize_kernel_dimensions(griddim: Any, blockdim: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the grid and the block with three sides. Raises ValueError or TypeError as Numba does."""
    if None in (griddim, blockdim):
        raise ValueError(missing_launch_config_msg)
    return _sides(griddim, "griddim"), _sides(blockdim, "blockdim")


def _sides(given: Any, name: str) -> tuple[int, ...]:
    sides = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(sides) > 3:
        raise ValueError(f"{name} must be a sequence of 1, 2 or 3 integers, got {sides!r}")
    for side in sides:
        if not hasattr(side, "__index__"):
            raise TypeError(f"{name} must be a sequence of integers, got {sides!r}")
    return tuple(int(side) for side in (*sides, 1, 1, 1)[:3])
