"""Numba's type of bfloat16, which numba-cuda adds, and the NumPy types of Numba's types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numba.core import types as _types
from numba.core import typing
from numba.core.errors import NumbaNotImplementedError, NumbaValueError
from numba.np import numpy_support

nb: Any = _types  # its names are made at run time


class _Brain(nb.Number):  # type: ignore[misc]
    """The type of bfloat16."""

    def __init__(self) -> None:
        super().__init__(name="bfloat16")

    def __call__(self, value: Any) -> Any:
        """Return a number, or a signature with this type as its result."""
        if isinstance(value, nb.Type):
            return typing.signature(self, value)
        return _BRAIN(value)


_Brain.__module__ = "numba.cuda.types"
_BRAIN = ml_dtypes.bfloat16
bfloat16 = _Brain()


def is_bfloat16(value: Any) -> bool:
    """Return whether a value is a number of bfloat16."""
    return isinstance(value, _BRAIN)


def dtype_of(kind: Any) -> np.dtype[Any]:
    """Return the NumPy type of one of Numba's types."""
    return np.dtype(_BRAIN) if kind == bfloat16 else numpy_support.as_dtype(kind)


def type_of_dtype(dtype: np.dtype[Any]) -> Any:
    """Return Numba's type of a NumPy type."""
    if dtype == _BRAIN:
        return bfloat16
    try:
        return numpy_support.from_dtype(dtype)
    except NumbaNotImplementedError:
        raise NumbaValueError(f"Unsupported array dtype: {dtype}") from None
