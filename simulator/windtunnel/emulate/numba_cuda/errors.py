"""``numba.cuda.errors``."""

from __future__ import annotations

from numba.core.errors import LoweringError

__all__ = ["KernelRuntimeError", "CudaLoweringError", "missing_launch_config_msg", "normalize_kernel_dimensions"]


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


def normalize_kernel_dimensions(griddim, blockdim):
    """Return the grid and the block with three sides. Raises ValueError or TypeError as Numba does."""

    def check_dim(dim, name):
        if not isinstance(dim, (tuple, list)):
            dim = [dim]
        else:
            dim = list(dim)
        if len(dim) > 3:
            raise ValueError(f"{name} must be a sequence of 1, 2 or 3 integers, got {dim!r}")
        for v in dim:
            if not hasattr(v, "__index__"):
                raise TypeError(f"{name} must be a sequence of integers, got {dim!r}")
        while len(dim) < 3:
            dim.append(1)
        return tuple(int(v) for v in dim)

    if None in (griddim, blockdim):
        raise ValueError(missing_launch_config_msg)
    return check_dim(griddim, "griddim"), check_dim(blockdim, "blockdim")
