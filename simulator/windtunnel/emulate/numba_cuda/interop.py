"""Arrays of the host as device arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.emulate.common.memory import Allocation
from windtunnel.emulate.numba_cuda.hostmemory import array_core, is_cuda_ndarray, sentry_contiguous
from windtunnel.emulate.numba_cuda.ndarray import DeviceNDArray, DeviceRecord, as_cuda_array


def from_array_like(ary: Any, stream: Any = 0, gpu_data: Any = None) -> DeviceNDArray:
    """Return an uninitialised device array like another array."""
    return DeviceNDArray(ary.shape, ary.strides, ary.dtype, stream, gpu_data)


def from_record_like(record: Any, stream: Any = 0, gpu_data: Any = None) -> DeviceRecord:
    """Return an uninitialised record on the device like another record."""
    return DeviceRecord(record.dtype, stream, gpu_data)


def auto_device(
    obj: Any, stream: Any = 0, copy: bool = True, user_explicit: bool = False
) -> tuple[DeviceNDArray, bool]:
    """Return (a device array for a value, whether it is new and has the value's elements)."""
    if is_cuda_ndarray(obj):
        return obj, False
    if hasattr(obj, "__cuda_array_interface__"):
        return as_cuda_array(obj), False
    del user_explicit
    if isinstance(obj, np.void):
        made: DeviceNDArray = from_record_like(obj, stream)
        values = np.asarray(obj)
    else:
        values = np.array(obj, copy=None, subok=True)
        sentry_contiguous(values)
        core = array_core(values)
        if 0 in values.strides and values.size:
            inner = DeviceNDArray(core.shape, core.strides, core.dtype, stream)
            made = DeviceNDArray(values.shape, values.strides, values.dtype, stream, inner.allocation)
            if copy:
                inner.copy_to_device(core, stream)
            return made, True
        made = from_array_like(values, stream)
    if copy:
        made.copy_to_device(values, stream)
    return made, True


def mapped_side(array: np.ndarray, stream: Any = 0) -> DeviceNDArray:
    """Return a device array that has the bytes of an array of the host. Its memory is the caller's to free."""
    sentry_contiguous(array)
    if not array.flags.writeable:
        raise ValueError("buffer source array is read-only")
    flat = (array if array.flags["C_CONTIGUOUS"] else array.T).reshape(-1).view(np.uint8)
    shared = Allocation(array.nbytes, "pinned", owned=False, host=flat)
    shared.bytes()  # the host has a view of it, so what it changes while a kernel runs is found
    return from_array_like(array, stream, shared)
