"""Memory of the host: page-locked arrays, and which arrays are one region of memory."""

from __future__ import annotations

from typing import Any

from windtunnel.emulate.common.pinned import is_pinned, pin, unpin

__all__ = ["is_pinned", "pin", "unpin"]


def is_cuda_ndarray(value: Any) -> bool:
    """Return whether a value is one of Windtunnel's device arrays."""
    return bool(getattr(value, "__cuda_ndarray__", False))


def is_cuda_array(value: Any) -> bool:
    """Return whether a value has the CUDA array interface."""
    return is_cuda_ndarray(value) or hasattr(value, "__cuda_array_interface__")


errmsg_contiguous_buffer = (
    "Array contains non-contiguous buffer and cannot be transferred as a single memory region. Please ensure "
    "contiguous buffer with numpy .ascontiguousarray()"
)


def array_core(ary: Any) -> Any:
    """Return an array without the dimensions that are broadcast."""
    if not ary.strides or not ary.size:
        return ary
    return ary[tuple(0 if stride == 0 else slice(None) for stride in ary.strides)]


def is_contiguous(ary: Any) -> bool:
    """Return whether an array is one region of memory, in C or Fortran order."""
    return bool(ary.flags["C_CONTIGUOUS"] or ary.flags["F_CONTIGUOUS"])


def sentry_contiguous(ary: Any) -> None:
    """Raise ValueError if an array is not one region of memory."""
    core = array_core(ary)
    if not getattr(core, "flags", {"C_CONTIGUOUS": True})["C_CONTIGUOUS"] and not core.flags["F_CONTIGUOUS"]:
        raise ValueError(errmsg_contiguous_buffer)
