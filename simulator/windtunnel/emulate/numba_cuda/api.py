"""The functions of ``numba.cuda`` for the host: devices, memory, streams and events."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.emulate.common.memory import Allocation, free
from windtunnel.emulate.numba_cuda import hostmemory, interop, ndarray
from windtunnel.emulate.numba_cuda.cudadrv import devices
from windtunnel.emulate.numba_cuda.mapped import MappedNDArray
from windtunnel.emulate.numba_cuda.ndarray import DeviceNDArray

gpus = devices.gpus
require_context = devices.require_context
as_cuda_array = ndarray.as_cuda_array
from_cuda_array_interface = ndarray.from_cuda_array_interface
current_context = devices.get_context


def is_cuda_array(obj: Any) -> bool:
    """Return whether an object has the CUDA array interface."""
    return hasattr(obj, "__cuda_array_interface__")


def is_available() -> bool:
    """Return True: the emulated device is there."""
    return len(gpus) > 0  # which initialises CUDA, as asking the driver does


def is_supported_version() -> bool:
    """Return True."""
    return True


def cuda_error() -> None:
    """Return None: there was no error."""


def is_float16_supported() -> bool:
    """Return True."""
    return True


is_bfloat16_supported = is_float16_supported


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> DeviceNDArray:
    """Copy an array to the device, to a new array or to ``to``."""
    if to is None:
        made, _ = interop.auto_device(obj, stream=stream, copy=copy, user_explicit=True)
        return made
    if copy:
        to.copy_to_device(obj, stream=stream)
    return to  # type: ignore[no-any-return]


_auto_device = interop.auto_device


def _strides(shape: Any, dtype: Any, strides: Any, order: str) -> Any:
    del shape, dtype, order
    return strides


def device_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceNDArray:
    """Allocate an uninitialised array on the device."""
    return DeviceNDArray(shape, strides, dtype, stream, order=order)


def device_array_like(ary: Any, stream: Any = 0) -> DeviceNDArray:
    """Allocate an uninitialised array like another one."""
    shape, strides = ary.shape, _like_strides(ary)
    return DeviceNDArray(shape, strides, ary.dtype, stream)


def _like_strides(ary: Any) -> Any:
    """Return the strides of a contiguous array with an array's order of dimensions."""
    flags = getattr(ary, "flags", {"C_CONTIGUOUS": True, "F_CONTIGUOUS": False})
    if ary.ndim > 1 and not flags["C_CONTIGUOUS"]:
        order = sorted(range(ary.ndim), key=lambda axis: abs(ary.strides[axis]))
        strides, step = [0] * ary.ndim, ary.dtype.itemsize
        for axis in order:
            strides[axis] = step
            step *= ary.shape[axis]
        return tuple(strides)
    return None


def _host(shape: Any, dtype: Any, strides: Any, order: str, kind: Any, stream: Any = 0) -> MappedNDArray:
    side = DeviceNDArray(shape, strides, dtype, stream, order=order, kind=kind)
    side.allocation.mark_written()
    data = side.allocation.bytes()
    array = np.ndarray(side.shape, side.dtype, data, 0, side.strides).view(MappedNDArray)
    return array.on_device(side.allocation, stream)


def pinned_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C") -> np.ndarray:
    """Allocate a page-locked array of the host."""
    if strides is not None:
        template = DeviceNDArray(shape, strides, dtype, gpu_data=Allocation(0))
        made = np.ndarray(template.shape, template.dtype, bytearray(max(template._span(), 1)), 0, template.strides)
    else:
        made = np.empty(shape, dtype, order)  # type: ignore[call-overload]
    hostmemory.pin(made)
    return made


def pinned_array_like(ary: Any) -> np.ndarray:
    """Allocate a page-locked array like another one."""
    return pinned_array(ary.shape, ary.dtype, _like_strides(ary))


def mapped_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0, portable: bool = False,
    wc: bool = False,
) -> MappedNDArray:  # fmt: skip
    """Allocate an array of the host that the device accesses too."""
    del portable, wc
    return _host(shape, dtype, strides, order, "pinned", stream)


def mapped_array_like(ary: Any, stream: Any = 0, portable: bool = False, wc: bool = False) -> MappedNDArray:
    """Allocate a mapped array like another one."""
    return mapped_array(ary.shape, ary.dtype, _like_strides(ary), stream=stream, portable=portable, wc=wc)


def managed_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    attach_global: bool = True,
) -> MappedNDArray:
    """Allocate an array that both sides access."""
    del attach_global
    return _host(shape, dtype, strides, order, "unified", stream)


@contextmanager
def pinned(*arylist: Any) -> Iterator[None]:
    """Page-lock arrays of the host for the block."""
    for array in arylist:
        hostmemory.pin(array)
    try:
        yield
    finally:
        for array in arylist:
            hostmemory.unpin(array)


@contextmanager
def mapped(*arylist: Any, stream: Any = 0) -> Iterator[Any]:
    """Make arrays of the host accessible to the device for the block: both sides have the same bytes."""
    made = [interop.mapped_side(array, stream) for array in arylist]
    try:
        yield made[0] if len(made) == 1 else made
    finally:
        for side in made:
            side.allocation.bytes()  # waits for the device
            if side.allocation.buffer is not None:
                free(side.allocation.accelerator, side.allocation.buffer.memory)


@contextmanager
def defer_cleanup() -> Iterator[None]:
    """Do nothing: memory is freed when nothing refers to it."""
    yield


@contextmanager
def open_ipc_array(handle: Any, shape: Any, dtype: Any, strides: Any = None, offset: int = 0) -> Iterator[Any]:
    """Raise UnsupportedOperationError."""
    raise UnsupportedOperationError(devices.NO_HANDLES)
    yield  # pragma: no cover


def synchronize() -> None:
    """Wait for all work of the current device."""
    devices.current_accelerator().synchronize()


def select_device(device_id: int) -> Any:
    """Make a device the current one."""
    context = devices.get_context(device_id)
    return context.device


def get_current_device() -> devices.Device:
    """Return the current device."""
    return devices.gpus.current


def list_devices() -> Any:
    """Return the devices."""
    return devices.gpus


def close() -> None:
    """Free everything on the devices of the program."""
    devices.reset()


def detect() -> bool:
    """Print the devices."""
    out = sys.stdout
    out.write(f"Found {len(gpus)} CUDA devices{os.linesep}")
    for device in gpus:
        out.write(f"id {device.id}    {device.name!r}    [SUPPORTED: emulated by Windtunnel]{os.linesep}")
    return True


def profile_start() -> None:
    """Do nothing: the timeline of an emulated device is always there."""


profile_stop = profile_start


@contextmanager
def profiling() -> Iterator[None]:
    """Do nothing."""
    yield
