"""The geometry of arrays in the memory of an emulated device: shape, strides, and where their elements lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.emulate.common.memory import Allocation


def contiguous_strides(shape: Sequence[int], itemsize: int, order: str) -> tuple[int, ...]:
    """Return the strides (bytes) of a contiguous array, in C or Fortran order."""
    strides = [itemsize] * len(shape)
    axes = range(len(shape) - 2, -1, -1) if order == "C" else range(1, len(shape))
    for axis in axes:
        before = axis + 1 if order == "C" else axis - 1
        strides[axis] = strides[before] * max(shape[before], 1)
    return tuple(strides)


class DeviceArray:
    """An array on a device: ``offset`` bytes from the start of an allocation. Slices of it are views of the memory."""

    shape: Any
    strides: tuple[int, ...]
    dtype: Any
    offset: int
    allocation: Allocation
    ndim: int
    size: int

    def _span(self) -> int:
        if not self.size:
            return 0
        reach = sum((side - 1) * abs(stride) for side, stride in zip(self.shape, self.strides, strict=True))
        return int(reach + self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return int(self.size * self.dtype.itemsize)

    @property
    def device_pointer(self) -> int:
        """The address of its first element."""
        return self.allocation.address + self.offset

    def interface(self, stream: int | None) -> dict[str, Any]:
        """Return the CUDA array interface, version 3."""
        return {
            "shape": self.shape,
            "strides": None if self.is_c_contiguous() else self.strides,
            "data": (self.device_pointer if self.size else 0, False),
            "typestr": self.dtype.str,
            "stream": stream,
            "version": 3,
        }

    def _is_contiguous(self, order: str) -> bool:
        wanted = contiguous_strides(self.shape, self.dtype.itemsize, order)
        return not self.size or all(
            side == 1 or have == want for side, have, want in zip(self.shape, self.strides, wanted, strict=True)
        )

    def is_c_contiguous(self) -> bool:
        """Return whether its elements lie row after row."""
        return self._is_contiguous("C")

    def is_f_contiguous(self) -> bool:
        """Return whether its elements lie column after column."""
        return self._is_contiguous("F")

    def _whole(self) -> bool:
        return self.offset == 0 and self.nbytes == self.allocation.size

    def host_view(self) -> np.ndarray:
        """Return its elements as the emulator holds them."""
        return self._viewed(self.allocation.bytes)

    def device_view(self) -> np.ndarray:
        """Return its elements as the device sees them, without waiting for it."""
        return self._viewed(self.allocation.contents)

    def _viewed(self, contents: Any) -> np.ndarray:
        if not self.size:
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, contents(), self.offset, self.strides)


def set_geometry(array: DeviceArray, shape: Any, strides: Any, dtype: Any, order: str) -> None:
    """Set the shape, strides and type of an array. Raises ValueError if they are not those of an array."""
    array.shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(side) for side in shape)
    if min(array.shape, default=0) < 0:
        raise ValueError("negative dimensions are not allowed")
    array.dtype = np.dtype(dtype)
    given = (strides,) if isinstance(strides, (int, np.integer)) else strides
    array.strides = (
        contiguous_strides(array.shape, array.dtype.itemsize, order) if given is None else tuple(int(s) for s in given)
    )
    if len(array.strides) != len(array.shape):
        raise ValueError("strides not match ndim")
    array.ndim = len(array.shape)
    array.size = math.prod(array.shape)
