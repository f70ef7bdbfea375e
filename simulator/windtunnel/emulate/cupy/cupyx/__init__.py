"""``cupyx``: page-locked arrays, scattered additions and the profiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from windtunnel.emulate.common.pinned import pin
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.functions import FUNCTIONS
from windtunnel.emulate.cupy.refusals import missing, not_available


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """Allocate an array in page-locked memory of the host."""
    made: np.ndarray = np.empty(shape, dtype, order)  # type: ignore[call-overload]
    pin(made)
    return made


def zeros_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """Return an array of zeros in page-locked memory of the host."""
    made = empty_pinned(shape, dtype, order)
    made[...] = 0
    return made


def empty_like_pinned(a: Any, dtype: Any = None, order: str = "C", subok: Any = None, shape: Any = None) -> np.ndarray:
    """Allocate a page-locked array like another one."""
    del subok
    return empty_pinned(a.shape if shape is None else shape, a.dtype if dtype is None else dtype, order)


def zeros_like_pinned(a: Any, dtype: Any = None, order: str = "C", subok: Any = None, shape: Any = None) -> np.ndarray:
    """Return a page-locked array of zeros like another one."""
    made = empty_like_pinned(a, dtype, order, subok, shape)
    made[...] = 0
    return made


def scatter_add(a: ndarray, slices: Any, value: Any) -> None:
    """Add values to elements in place, also to one that occurs several times."""
    FUNCTIONS["add"].at(a, slices, value)


def scatter_max(a: ndarray, slices: Any, value: Any) -> None:
    """Set elements to the maximum of them and values."""
    FUNCTIONS["maximum"].at(a, slices, value)


def scatter_min(a: ndarray, slices: Any, value: Any) -> None:
    """Set elements to the minimum of them and values."""
    FUNCTIONS["minimum"].at(a, slices, value)


def rsqrt(x: Any) -> Any:
    """Return one over the square root."""
    return FUNCTIONS["reciprocal"](FUNCTIONS["sqrt"](x))


@contextmanager
def errstate(**_: Any) -> Iterator[None]:
    """Do nothing: the device reports no errors of floating point."""
    yield


def __getattr__(name: str) -> Any:
    if name in ("jit", "scipy", "distributed", "tools", "linalg", "signal", "lapack", "cusparse", "cusolver"):
        raise not_available(f"cupyx.{name}")
    missing("cupyx", name)
