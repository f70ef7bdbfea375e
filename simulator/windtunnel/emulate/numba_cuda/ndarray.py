"""Arrays in the memory of an emulated device, as ``numba.cuda.cudadrv.devicearray`` has them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.emulate.common.arrays import DeviceArray, contiguous_strides, set_geometry
from windtunnel.emulate.common.memory import Allocation, allocation_at
from windtunnel.emulate.numba_cuda import streams
from windtunnel.emulate.numba_cuda.cudadrv.devices import NO_HANDLES
from windtunnel.emulate.numba_cuda.cudadrv.error import CudaAPIError
from windtunnel.emulate.numba_cuda.hostmemory import is_cuda_array, is_pinned, sentry_contiguous
from windtunnel.emulate.numba_cuda.memory import MemoryView
from windtunnel.runtime.buffers import Position
from windtunnel.runtime.interface import MemoryKind


def _stream_of(stream: Any) -> Any:
    return getattr(stream, "raw", None) if stream else None


class DeviceNDArray(DeviceArray):
    """An array on a device. Slices of it are views of the same memory."""

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    mutable = True
    """Whether kernels may write to it; a copy of a host array that is read-only is not."""

    def __init__(
        self,
        shape: Any,
        strides: Any = None,
        dtype: Any = None,
        stream: Any = 0,
        gpu_data: Any = None,
        *,
        offset: int = 0,
        order: str = "C",
        kind: MemoryKind = "device",
    ) -> None:
        set_geometry(self, shape, strides, dtype, order)
        self.stream = stream
        self.offset = offset
        if isinstance(gpu_data, MemoryView):
            self.offset += gpu_data.offset
            gpu_data = gpu_data.allocation
        self.allocation: Allocation = Allocation(self._span(), kind) if gpu_data is None else gpu_data

    # What it is.

    @property
    def alloc_size(self) -> int:
        """The bytes of its memory."""
        return self.allocation.size

    @property
    def gpu_data(self) -> MemoryView:
        """Its memory."""
        return MemoryView(self.allocation, self.offset)

    @property
    def device_ctypes_pointer(self) -> Any:
        """The address of its first element, as a ctypes object."""
        import ctypes

        return ctypes.c_void_p(self.device_pointer)

    def device_memory(self) -> MemoryView:
        """Return its memory."""
        return self.gpu_data

    def get_ipc_handle(self) -> Any:
        """Raise UnsupportedOperationError: no other process has the memory of an emulated device."""
        raise UnsupportedOperationError(NO_HANDLES)

    def is_mapped(self) -> bool:
        """Return whether the host can access its memory too."""
        return self.allocation.kind != "device"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array interface, version 3."""
        stream = None
        if self.stream:
            stream = int(getattr(self.stream, "handle_value", 0)) or 1
        return self.interface(stream)

    @property
    def flags(self) -> dict[str, bool]:
        """Whether it is contiguous."""
        return {"C_CONTIGUOUS": self.is_c_contiguous(), "F_CONTIGUOUS": self.is_f_contiguous()}

    @property
    def _numba_type_(self) -> Any:
        from numba.core import types

        from windtunnel.emulate.numba_cuda.ext_types import type_of_dtype

        broadcast = 0 in self.strides
        layout = "A"
        if not broadcast:
            layout = "C" if self.is_c_contiguous() else "F" if self.is_f_contiguous() else "A"
        array: Any = types.Array
        return array(type_of_dtype(self.dtype), self.ndim, layout, readonly=not self.mutable)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"<DeviceNDArray {self.dtype} {self.shape} on {self.allocation.accelerator.name}>"

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return self.copy_to_host()

    # Copies.

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> np.ndarray:
        """Copy it to a new array of the host, or to a given one."""
        if any(stride < 0 for stride in self.strides):
            raise NotImplementedError(f"D->H copy not implemented for negative strides: {self.strides}")
        stream = stream or self.stream
        if ary is None:
            order = "C" if self.is_c_contiguous() or not self.is_f_contiguous() else "F"
            target: np.ndarray = np.empty(self.shape, self.dtype, order=order)  # type: ignore[call-overload]
        else:
            self._check_copy(ary)
            target = ary
        if not self.size:
            return target
        pinned = bool(stream) and is_pinned(target)
        if self._whole():
            order = "C" if self.is_c_contiguous() else "F"
            if target.flags["C_CONTIGUOUS" if order == "C" else "F_CONTIGUOUS"] and not target.dtype.hasobject:
                flat = target.reshape(-1, order=order).view(np.uint8)  # type: ignore[call-overload]
                assert self.allocation.buffer is not None  # noqa: S101  it has elements
                self.allocation.accelerator.copy_out(flat, self.allocation.buffer, _stream_of(stream), pinned=pinned)
                return target
        span = self._span()
        staged = np.empty(span, np.uint8)
        assert self.allocation.buffer is not None  # noqa: S101  it has elements
        accelerator, place = self.allocation.accelerator, self.allocation.buffer.memory
        part = Position(accelerator, place, (span,), np.dtype(np.uint8), self.offset)
        accelerator.copy_out(staged, part, _stream_of(stream))
        target[...] = np.ndarray(self.shape, self.dtype, staged, 0, self.strides)
        return target

    def _check_copy(self, ary: Any) -> None:
        if ary.shape != self.shape and (ary.ndim != self.ndim or ary.shape != self.shape):
            raise ValueError(f"incompatible shape: {self.shape} vs. {ary.shape}")
        if ary.dtype != self.dtype:
            raise TypeError(f"incompatible dtype: {self.dtype} vs. {ary.dtype}")

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copy an array of the host or of a device to it."""
        if not self.size:
            return
        sentry_contiguous(self)
        stream = stream or self.stream
        if is_cuda_array(ary):
            other = as_cuda_array(ary)
            sentry_contiguous(other)
            self._check_same(other)
            self._copy_from_device(other, stream)
            return
        order = "C" if self.is_c_contiguous() else "F"
        values = np.array(ary, order=order, copy=None, subok=True)  # type: ignore[call-overload]
        self._check_same(values)
        if self._whole():
            flat = values.reshape(-1, order=order)
            assert self.allocation.buffer is not None  # noqa: S101  it has elements
            self.allocation.accelerator.copy_in(
                self.allocation.buffer, flat.view(np.uint8), _stream_of(stream), pinned=bool(stream) and is_pinned(ary)
            )
            return
        view = self.host_view()
        view[...] = values
        self.allocation.mark_written(view)

    def _check_same(self, other: Any) -> None:
        if self.ndim != len(other.shape) or tuple(other.shape) != self.shape:
            raise ValueError(f"incompatible shape: {self.shape} vs. {tuple(other.shape)}")
        if other.dtype != self.dtype:
            raise TypeError(f"incompatible dtype: {self.dtype} vs. {other.dtype}")
        if tuple(other.strides) != self.strides and self.size > 1 and not isinstance(other, np.ndarray):
            raise ValueError(f"incompatible strides: {self.strides} vs. {tuple(other.strides)}")

    def _copy_from_device(self, other: DeviceNDArray, stream: Any) -> None:
        mine, theirs = self.allocation, other.allocation
        same = mine.accelerator is theirs.accelerator and mine is not theirs
        if same and self._whole() and other._whole():
            assert mine.buffer is not None and theirs.buffer is not None  # noqa: S101  both have elements
            mine.accelerator.copy_within(mine.buffer, theirs.buffer, _stream_of(stream))
            return
        view = self.host_view()
        view[...] = other.host_view()
        mine.mark_written(view)

    # Views.

    def _view(self, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: Any = None) -> DeviceNDArray:
        return DeviceNDArray(
            tuple(shape), tuple(strides), self.dtype if dtype is None else dtype, self.stream, self.allocation,
            offset=offset,
        )  # fmt: skip

    def __getitem__(self, index: Any) -> Any:
        return self.getitem(index)

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        """Return an element, as a number of the host, or a slice, as a view."""
        if isinstance(item, str):
            if not self.dtype.names or item not in self.dtype.names:
                raise ValueError(f"no field of name {item}")
            field, start = self.dtype.fields[item][:2]
            made = self._view(self.shape, self.strides, self.offset + start, field.base)
            if field.shape:
                extra = contiguous_strides(field.shape, field.base.itemsize, "C")
                made = self._view((*self.shape, *field.shape), (*self.strides, *extra), self.offset + start, field.base)
            return made
        part, offset = self._indexed(item)
        if part is None:
            shape, strides = offset[1], offset[2]
            return self._view(shape, strides, offset[0])
        del stream
        view = self._view((), (), part)
        value = view.copy_to_host()
        if self.dtype.names:
            return DeviceRecord(self.dtype, gpu_data=self.allocation, offset=part)
        return value[()]

    def _indexed(self, item: Any) -> Any:
        items = item if isinstance(item, tuple) else (item,)
        count = sum(one is not Ellipsis for one in items)
        if count > self.ndim:
            raise IndexError(f"too many indices: {count} for an array of {self.ndim} dimensions")
        full: list[Any] = []
        for one in items:
            full += [slice(None)] * (self.ndim - count) if one is Ellipsis else [one]
        full += [slice(None)] * (self.ndim - len(full))
        offset, shape, strides = self.offset, [], []
        for one, side, stride in zip(full, self.shape, self.strides, strict=True):
            if isinstance(one, slice):
                start, stop, step = one.indices(side)
                offset += start * stride if range(start, stop, step) else 0
                shape.append(len(range(start, stop, step)))
                strides.append(stride * step)
                continue
            if not hasattr(one, "__index__"):
                raise TypeError(f"device arrays are indexed by integers and slices, not by {one!r}")
            at = int(one)
            if not -side <= at < side:
                raise IndexError(f"index {at} is out of bounds for axis with size {side}")
            offset += (at % side) * stride
        if not shape and Ellipsis not in items:
            return offset, None
        return None, (offset, tuple(shape), tuple(strides))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.setitem(key, value)

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        """Assign a number or an array to a part of it."""
        del stream
        if isinstance(key, str):
            target = self.getitem(key)
        else:
            part, offset = self._indexed(key)
            target = self._view((), (), part) if part is not None else self._view(offset[1], offset[2], offset[0])
        source = as_cuda_array(value).host_view() if is_cuda_array(value) else np.asarray(value)
        if source.ndim > target.ndim and source.size > 1:
            raise ValueError(f"Can't assign {source.ndim}-D array to {target.ndim}-D self")
        for have, want in zip(reversed(source.shape), reversed(target.shape), strict=False):
            if have not in (1, want):
                raise ValueError(f"Can't copy sequence with size {have} to array axis 0 with dimension {want}")
        if is_cuda_array(value) and source.dtype != self.dtype:
            raise TypeError(f"incompatible dtype: {self.dtype} vs. {source.dtype}")
        view = target.host_view()
        view[...] = source
        self.allocation.mark_written(view)

    def __iter__(self) -> Iterator[Any]:
        for at in range(len(self)):
            yield self[at]

    @property
    def T(self) -> DeviceNDArray:  # noqa: N802  NumPy's name
        """The transposed array."""
        return self.transpose()

    def transpose(self, axes: Any = None) -> DeviceNDArray:
        """Return the transposed array."""
        if axes is not None and tuple(axes) == tuple(range(self.ndim)):
            return self
        if self.ndim > 2 and axes is None:
            raise NotImplementedError("transposing a non-2D DeviceNDArray isn't supported")
        if axes is not None and set(axes) != set(range(self.ndim)):
            raise ValueError(f"invalid axes list {axes!r}")
        order = tuple(reversed(range(self.ndim))) if axes is None else tuple(axes)
        if self.ndim > 2:
            raise NotImplementedError("transposing a non-2D DeviceNDArray isn't supported")
        if self.ndim == 2:
            made = DeviceNDArray(tuple(self.shape[axis] for axis in order), dtype=self.dtype, stream=self.stream)
            made.host_view()[...] = self.host_view().T
            made.allocation.mark_written()
            return made
        return self._view([self.shape[a] for a in order], [self.strides[a] for a in order], self.offset)

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceNDArray:
        """Return a view of another shape. Raises ValueError if the size differs."""
        shape = tuple(newshape[0]) if len(newshape) == 1 and isinstance(newshape[0], (tuple, list)) else newshape
        if shape == self.shape:
            return self
        sides = list(shape)
        if sides.count(-1) > 1:
            raise ValueError("can only specify one unknown dimension")
        if -1 in sides:
            known = math.prod(side for side in sides if side != -1)
            if not known or self.size % known:
                raise ValueError("reshape changes the size of the array")
            sides[sides.index(-1)] = self.size // known
        if math.prod(sides) != self.size:
            raise ValueError("reshape changes the size of the array")
        if (order == "C" and not self.is_c_contiguous()) or (order == "F" and not self.is_f_contiguous()):
            try:
                view = np.reshape(np.lib.stride_tricks.as_strided(np.empty(0, self.dtype), self.shape, self.strides),
                                  sides, order=order, copy=False)  # type: ignore[call-overload]  # fmt: skip
            except ValueError:
                raise NotImplementedError("reshape would require copy") from None
            return self._view(view.shape, view.strides, self.offset)
        return self._view(sides, contiguous_strides(sides, self.dtype.itemsize, order), self.offset)

    def ravel(self, order: str = "C", stream: Any = 0) -> DeviceNDArray:
        """Return a view of one dimension."""
        del stream
        if order not in tuple("CFA"):
            raise ValueError("order not C|F|A")
        if (order in "CA" and self.is_c_contiguous()) or (order in "FA" and self.is_f_contiguous()):
            return self._view((self.size,), (self.dtype.itemsize,), self.offset)
        raise NotImplementedError("ravel would require copy")

    def squeeze(self, axis: Any = None, stream: Any = 0) -> DeviceNDArray:
        """Return a view without dimensions of length 1."""
        del stream
        axes = tuple(range(self.ndim)) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        if axis is not None and any(self.shape[a] != 1 for a in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
        kept = [a for a in range(self.ndim) if not (self.shape[a] == 1 and a in axes)]
        return self._view([self.shape[a] for a in kept], [self.strides[a] for a in kept], self.offset)

    def view(self, dtype: Any) -> DeviceNDArray:
        """Return a view of the same bytes as another type."""
        kind = np.dtype(dtype)
        shape, strides = list(self.shape), list(self.strides)
        if kind.itemsize != self.dtype.itemsize:
            if not shape:
                raise ValueError("Changing the dtype of a 0d array is only supported if the itemsize is unchanged")
            if strides[-1] != self.dtype.itemsize:
                raise ValueError("To change to a dtype of a different size, the last axis must be contiguous")
            size = shape[-1] * self.dtype.itemsize
            if size % kind.itemsize:
                raise ValueError(
                    "When changing to a larger dtype, its size must be a divisor of the total size in bytes of the "
                    "last axis of the array."
                )
            shape[-1], strides[-1] = size // kind.itemsize, kind.itemsize
        return self._view(shape, strides, self.offset, kind)

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceNDArray]:
        """Yield parts of ``section`` elements."""
        del stream
        if self.ndim != 1:
            raise ValueError("only support 1d array")
        for start in range(0, self.size, section):
            yield self[start : start + section]

    def as_cuda_arg(self) -> DeviceNDArray:
        """Return the array."""
        return self

    def bind(self, stream: Any = 0) -> DeviceNDArray:
        """Return the array with a default stream."""
        made = self._view(self.shape, self.strides, self.offset)
        made.stream = stream
        return made


DeviceNDArrayBase = DeviceNDArray


class DeviceRecord(DeviceNDArray):
    """A record on a device."""

    def __init__(self, dtype: Any, stream: Any = 0, gpu_data: Any = None, *, offset: int = 0, **_: Any) -> None:
        super().__init__((), (), dtype, stream, gpu_data, offset=offset)

    @property
    def flags(self) -> dict[str, bool]:
        """Whether it is contiguous."""
        return {"C_CONTIGUOUS": True, "F_CONTIGUOUS": True}

    @property
    def _numba_type_(self) -> Any:
        from windtunnel.emulate.numba_cuda.ext_types import type_of_dtype

        return type_of_dtype(self.dtype)

    def __getitem__(self, item: Any) -> Any:
        field, start = self.dtype.fields[item][:2]
        extra = contiguous_strides(field.shape, field.base.itemsize, "C")
        made = DeviceNDArray(field.shape, extra, field.base, self.stream, self.allocation, offset=self.offset + start)
        return made if field.shape else made.copy_to_host()[()]

    def __setitem__(self, key: Any, value: Any) -> None:
        field, start = self.dtype.fields[key][:2]
        extra = contiguous_strides(field.shape, field.base.itemsize, "C")
        made = DeviceNDArray(field.shape, extra, field.base, self.stream, self.allocation, offset=self.offset + start)
        view = made.host_view()
        view[...] = value
        self.allocation.mark_written(view)


def as_cuda_array(value: Any, sync: bool = True) -> DeviceNDArray:
    """Return a device array for an object with the CUDA array interface."""
    if isinstance(value, DeviceNDArray):
        return value
    if not is_cuda_array(value):
        raise TypeError("*obj* doesn't implement the cuda array interface.")
    if hasattr(
        type(value), "device_side"
    ):  # of mapped or managed memory; the interface does not name fields of records
        return value.device_side  # type: ignore[no-any-return]
    return from_cuda_array_interface(value.__cuda_array_interface__, owner=value, sync=sync)


def from_cuda_array_interface(desc: dict[str, Any], owner: Any = None, sync: bool = True) -> DeviceNDArray:
    """Return the device array that a CUDA array interface describes; its memory must be of an emulated device."""
    if desc["version"] > 0 and desc.get("mask") is not None:
        raise NotImplementedError("Masked arrays are not supported")
    shape, strides = desc["shape"], desc.get("strides")
    dtype = np.dtype(desc["typestr"])
    address, _ = desc["data"]
    found = allocation_at(address)
    if found is None and address:
        raise CudaAPIError(1, f"the address {address:#x} of a CUDA array interface is not memory of an emulated device")
    if found is None:
        found = Allocation(0)
    stream: Any = 0
    if desc.get("version", 0) >= 3:
        handle = desc.get("stream")
        if handle is not None:
            stream = streams.external_stream(handle)
            if sync and synchronises():
                stream.synchronize()
    made = DeviceNDArray(shape, strides, dtype, stream, found, offset=address - found.address if address else 0)
    made.owner = owner  # type: ignore[attr-defined]
    return made


def memory_from(address: int, dtype: np.dtype[Any]) -> DeviceNDArray:
    """Return the memory of an allocation from an address on, for a pointer. Raises CudaAPIError if there is none."""
    found = allocation_at(address)
    if found is None:
        raise CudaAPIError(1, f"the address {address:#x} of a pointer is not memory of an emulated device")
    offset = address - found.address
    return DeviceNDArray(((found.size - offset) // dtype.itemsize,), dtype=dtype, gpu_data=found, offset=offset)


def synchronises() -> bool:
    """Return whether Numba waits for the stream of an array interface."""
    from numba.core import config

    return bool(getattr(config, "CUDA_ARRAY_INTERFACE_SYNC", True))
