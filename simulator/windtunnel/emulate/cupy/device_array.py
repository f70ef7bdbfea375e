"""``cupy.ndarray``: an array in the memory of the emulated device."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from windtunnel.emulate.common.arrays import DeviceArray, set_geometry
from windtunnel.emulate.common.pinned import is_pinned
from windtunnel.emulate.common.streams import stream_at
from windtunnel.emulate.cupy.cuda import memory
from windtunnel.emulate.cupy.cuda.memory import MemoryPointer, enqueue
from windtunnel.emulate.cupy.cuda.stream import current_raw, get_current_stream
from windtunnel.emulate.cupy.refusals import missing, not_available
from windtunnel.runtime.buffers import Position

known: dict[str, Any] = {}
"""The functions of ``cupy`` by their names; the modules of these fill it."""
_IMPLICIT = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """Return a type of elements. Raises ValueError for one that a device does not have."""
    made: np.dtype[Any] = np.dtype(dtype)
    if made.hasobject or made.kind in "USMm" or (made.kind == "V" and made.names is None):
        raise ValueError(f"Unsupported dtype {made}")
    return made


class Flags:
    """How an array lies in memory."""

    def __init__(self, c_contiguous: bool, f_contiguous: bool, owndata: bool) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = c_contiguous, f_contiguous, owndata
        self.fnc, self.forc = f_contiguous and not c_contiguous, f_contiguous or c_contiguous

    def __getitem__(self, name: str) -> bool:
        known = {"C": "c_contiguous", "F": "f_contiguous", "O": "owndata"}
        attribute = known.get(name, name.lower())
        if attribute not in ("c_contiguous", "f_contiguous", "owndata"):
            raise KeyError(f"{name} is not defined for cupy.ndarray.flags")
        return bool(getattr(self, attribute))

    def __repr__(self) -> str:
        return "\n".join(f"  {n.upper()} : {getattr(self, n)}" for n in ("c_contiguous", "f_contiguous", "owndata"))


class ndarray(DeviceArray):  # noqa: N801  CuPy's name
    """An array on the device. Slices of it are views of the same memory."""

    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        strides: Any = None,
        order: str = "C",
    ) -> None:
        set_geometry(self, shape, strides, check_dtype(dtype), order or "C")
        if memptr is None:
            memptr = memory.alloc(self._span())
        self._place(memptr.mem, memptr.offset, None)

    def _place(self, mem: memory.BaseMemory, offset: int, base: ndarray | None) -> None:
        self._mem, self.offset, self.base = mem, offset, base
        self.allocation = mem.allocation

    def view_at(self, shape: Any, strides: Any, offset: int, dtype: Any) -> ndarray:
        """Return an array of the same memory, ``offset`` bytes from its beginning."""
        made: ndarray = type(self).__new__(type(self))
        set_geometry(made, shape, strides, dtype, "C")
        made._place(self._mem, offset, self if self.base is None else self.base)
        made.__array_finalize__(self)
        return made

    @classmethod
    def like_result(cls, value: np.ndarray) -> ndarray:
        """Return an uninitialised array with the shape, type and order of a result of NumPy."""
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        return ndarray(value.shape, value.dtype, order=order)

    @classmethod
    def from_interface(cls, value: Any) -> ndarray:
        """Return an array for an object with the CUDA array interface; its memory must be of an emulated device."""
        desc = value.__cuda_array_interface__
        if desc.get("mask") is not None:
            raise ValueError("CuPy does not support the mask of a CUDA array interface")
        address = desc["data"][0]
        mem = memory.UnownedMemory(address, 0, value)
        made = ndarray(desc["shape"], desc["typestr"], MemoryPointer(mem), desc.get("strides"))
        stream = desc.get("stream")
        if stream is not None:
            raw = stream_at(stream)
            event = made.allocation.accelerator.event()
            event.record(raw)
            own = current_raw()
            context: Any = made.allocation.accelerator.context
            (context.default if own is None else own).wait(event)
        return made

    def __array_finalize__(self, obj: Any) -> None:
        """Do nothing; a subclass copies its attributes here."""

    # What it is.

    @property
    def data(self) -> MemoryPointer:
        """Its position in memory."""
        return MemoryPointer(self._mem, self.offset - getattr(self._mem, "_shift", 0))

    @property
    def device(self) -> Any:
        """Its device."""
        return self._mem.device

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def flags(self) -> Flags:
        """How it lies in memory."""
        return Flags(self.is_c_contiguous(), self.is_f_contiguous(), self.base is None)

    @property
    def _c_contiguous(self) -> bool:
        return self.is_c_contiguous()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array interface, version 3."""
        return self.interface(get_current_stream().ptr or 1)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(_IMPLICIT)

    def __dlpack__(self, *_: Any, **__: Any) -> NoReturn:
        raise not_available("cupy.ndarray.__dlpack__", "other libraries cannot access emulated memory")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        for at in range(len(self)):
            yield self[at]

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec) if self.shape else format(self.item(), spec)

    def __reduce__(self) -> Any:
        return known["array"], (self.get(),)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        del memo
        return self.copy()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __index__(self) -> int:
        return int(self.get().__index__())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return missing("cupy.ndarray", name)

    # Copies.

    def _part(self) -> Position:
        assert self.allocation.buffer is not None  # noqa: S101  it has elements
        place = self.allocation.buffer.memory
        return Position(self.allocation.accelerator, place, (self.nbytes,), np.dtype(np.uint8), self.offset)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        """Copy it to the host. The host waits for the copy unless it is not ``blocking`` and ``out`` is page-locked."""
        order = order.upper()
        if order in ("A", "K"):
            order = "F" if self.is_f_contiguous() and not self.is_c_contiguous() else "C"
        source: ndarray = self
        if out is not None:
            if not isinstance(out, np.ndarray):
                raise TypeError(f"Only numpy.ndarray can be obtained from cupy.ndarray, not {type(out)}")
            if out.dtype != self.dtype:
                raise TypeError(f"{out.dtype} array cannot be obtained from {self.dtype} array")
            if out.shape != self.shape:
                raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, actual shape: {out.shape}")
            if not (out.flags.c_contiguous or out.flags.f_contiguous):
                raise RuntimeError("`out` cannot be specified when copying to non-contiguous ndarray")
            order = "C" if out.flags.c_contiguous else "F"
        target: np.ndarray = np.empty(self.shape, self.dtype, order) if out is None else out  # type: ignore[call-overload]
        if not self.size:
            return target
        if not (source.is_c_contiguous() if order == "C" else source.is_f_contiguous()):
            source = self.copy(order)
        flat = target.reshape(-1, order=order).view(np.uint8)  # type: ignore[call-overload]
        raw, pinned = current_raw(stream), is_pinned(target)
        self.allocation.accelerator.copy_out(flat, source._part(), raw, pinned=pinned)
        if pinned and blocking:
            (get_current_stream() if stream is None else stream).synchronize()
        return target

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy an array of the host to it."""
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if self.dtype != arr.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if self.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        order = "C" if self.is_c_contiguous() else "F"
        if order == "F" and not self.is_f_contiguous():
            raise RuntimeError("Cannot set to non-contiguous array")
        if self.size:
            values = np.asarray(arr, order=order).reshape(-1, order=order)  # type: ignore[call-overload]
            same = values.__array_interface__["data"][0] == arr.__array_interface__["data"][0]
            pinned = is_pinned(arr) and same
            self.allocation.accelerator.copy_in(self._part(), values.view(np.uint8), current_raw(stream), pinned=pinned)

    def copy(self, order: str = "C") -> ndarray:
        """Return a copy on the device."""
        return self.astype(self.dtype, order=order or "C")

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        """Return its elements as another type."""
        del casting, subok
        kind = check_dtype(dtype)
        view = self.device_view()
        template = np.lib.stride_tricks.as_strided(np.empty(0, kind), self.shape, [
            stride // max(self.dtype.itemsize, 1) * kind.itemsize for stride in self.strides])  # fmt: skip
        strides = None
        if order in ("K", "A"):
            strides = np.empty_like(template, order=order).strides  # type: ignore[call-overload]
            order = "C"
        fits = strides is not None or self._is_contiguous(order)
        if not copy and kind == self.dtype and fits:
            return self
        made = ndarray(self.shape, kind, strides=strides, order=order)
        target = made.device_view()

        def action() -> None:
            with np.errstate(all="ignore"):
                np.copyto(target, view if view.dtype.kind != "c" or kind.kind == "c" else view.real, casting="unsafe")

        if self.size:
            enqueue(
                "copy" if kind == self.dtype else "astype",
                action,
                [(self.allocation, view, None)],
                [(made.allocation, target, None)],
                copies=kind == self.dtype,
            )
        return made

    def item(self, *args: Any) -> Any:
        """Copy an element to the host."""
        return (
            (self[args if len(args) > 1 else args[0]] if args and self.ndim > 1 else self)
            .get()
            .item(*(args if args and self.ndim <= 1 else ()))
        )

    def tolist(self) -> Any:
        """Copy it to the host, as lists."""
        return self.get().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """Copy it to the host, as bytes."""
        return self.get().tobytes(order)  # type: ignore[arg-type]

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:  # noqa: A002  NumPy's name
        """Copy it to the host and write it to a file."""
        self.get().tofile(fid, sep, format)

    def fill(self, value: Any) -> None:
        """Set all elements."""
        self[...] = value

    # Views.

    def view(self, dtype: Any = None, type: Any = None) -> ndarray:  # noqa: A002  NumPy's name
        """Return a view, of the same bytes as another type, or as a subclass."""
        cls = type
        if inspect.isclass(dtype) and issubclass(dtype, ndarray):
            dtype, cls = None, dtype
        view = self.device_view() if dtype is None else self.device_view().view(check_dtype(dtype))
        made = self.view_at(view.shape, view.strides, self.offset, view.dtype)
        if cls is not None:
            made.__class__ = cls
            made.__array_finalize__(self)
        return made

    def _viewed_as(self, view: np.ndarray) -> ndarray:
        """Return the array of a view of its elements."""
        start = view.__array_interface__["data"][0] if view.size else 0
        begin = self.allocation.contents().__array_interface__["data"][0] if view.size else 0
        return self.view_at(view.shape, view.strides, start - begin if view.size else self.offset, view.dtype)

    @property
    def T(self) -> ndarray:  # noqa: N802  NumPy's name
        """The transposed array."""
        return self._viewed_as(self.device_view().T)

    @property
    def mT(self) -> ndarray:  # noqa: N802  NumPy's name
        """The transposed matrices."""
        return self._viewed_as(self.device_view().mT)

    @property
    def real(self) -> ndarray:
        """The real part, as a view."""
        return self._viewed_as(self.device_view().real)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> ndarray:
        """The imaginary part, as a view; zeros for real numbers."""
        if self.dtype.kind == "c":
            return self._viewed_as(self.device_view().imag)
        made = ndarray(self.shape, self.dtype)
        made[...] = 0
        return made

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("cupy.ndarray does not have imaginary part to set")
        self.imag[...] = value

    def reduced_view(self) -> ndarray:
        """Return it with as few dimensions as its strides allow: itself."""
        return self

    # Elements.

    def __getitem__(self, key: Any) -> Any:
        index, arrays, waits = self._index(key)
        if not arrays:
            return self._viewed_as(self._basic(index))
        view = self.device_view()
        if waits:
            get_current_stream().synchronize()
        made = ndarray.like_result(view[index])
        target = made.device_view()
        reads: list[memory.Access] = [(self.allocation, view, index)]
        reads += [(one.allocation, one.device_view(), None) for one in arrays if one is not _HOST]
        enqueue("take", lambda: np.copyto(target, view[index]), reads, [(made.allocation, target, None)])
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        index, arrays, _ = self._index(key)
        view = self.device_view()
        if isinstance(value, (np.ndarray, list, tuple)):
            if np.size(value) != 1:
                raise ValueError(f"non-scalar {type(value).__name__} of the host cannot be used for fill")
            value = np.asarray(value).reshape(())[()]
        if not isinstance(value, (ndarray, np.generic)) and hasattr(value, "__cuda_array_interface__"):
            value = ndarray.from_interface(value)
        reads = [(one.allocation, one.device_view(), None) for one in arrays if one is not _HOST]
        source: Any = value
        if isinstance(value, ndarray):
            source = value.device_view()
            reads.append((value.allocation, source, None))
            while source.ndim > view[index].ndim and source.shape[0] == 1:
                source = source[0]
        target = view if arrays else self._basic(index)
        shape = view[index].shape if arrays else target.shape
        np.broadcast_to(source, shape)
        selected = index if arrays else None

        def action() -> None:
            with np.errstate(all="ignore"):
                kept = source.copy() if isinstance(source, np.ndarray) else source
                kept = kept.real if np.iscomplexobj(kept) and target.dtype.kind != "c" else kept
                if selected is None:
                    np.copyto(target, kept, casting="unsafe")
                else:
                    target[selected] = kept

        if math.prod(shape):
            is_array = isinstance(value, ndarray)
            enqueue("copy" if is_array else "fill", action, reads, [(self.allocation, target, selected)],
                    copies=is_array and selected is None and source.shape == shape
                    and source.dtype == self.dtype)  # fmt: skip

    def _basic(self, index: Any) -> np.ndarray:
        """Return a view of a part, also of a single element."""
        parts = index if isinstance(index, tuple) else (index,)
        view = self.device_view()
        if isinstance(index, (str, list)):
            return view[index]
        return view[parts if any(one is Ellipsis for one in parts) else (*parts, Ellipsis)]

    def _index(self, key: Any) -> tuple[Any, list[Any], bool]:
        """Return (an index for NumPy, the arrays in it, whether the host has to know their values)."""
        if _is_field(key):
            return key, [], False
        parts = key if isinstance(key, tuple) else (key,)
        arrays: list[Any] = []
        waits, made = False, []
        consumed = sum(map(_consumed, parts))
        axis = 0
        for part in parts:
            one = part
            if part is Ellipsis:
                axis += self.ndim - consumed
            elif isinstance(part, (list, np.ndarray)):
                arrays.append(_HOST)
                one = np.asarray(part, None if np.size(part) else np.intp)
            elif isinstance(part, ndarray):
                arrays.append(part)
                one = part.device_view()
            if isinstance(one, np.ndarray):
                waits = waits or one.dtype.kind == "b"
                one = self._wrapped(one, axis)
            made.append(one)
            axis += _consumed(one)
        return (tuple(made) if isinstance(key, tuple) else made[0]), arrays, waits

    def _wrapped(self, places: np.ndarray, axis: int) -> np.ndarray:
        """Return indices of a dimension; CuPy wraps around those that are out of bounds."""
        if places.dtype.kind == "b" or axis >= self.ndim or not self.shape[axis]:
            return places
        if places.dtype.kind not in "iu":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        wrapped: np.ndarray = places % self.shape[axis]
        return wrapped

    def take(self, indices: Any, axis: Any = None, out: Any = None) -> ndarray:
        """Return the elements at some places. Places out of bounds wrap around."""
        source = self.ravel() if axis is None else self
        along = 0 if axis is None else axis % max(self.ndim, 1)
        if not isinstance(indices, ndarray):
            indices = np.asarray(indices)
        made: ndarray = source[(*(slice(None),) * along, indices)]
        if out is not None:
            out[...] = made
            return out  # type: ignore[no-any-return]
        return made

    def put(self, indices: Any, values: Any, mode: str = "wrap") -> None:
        """Set the elements at some places of the flat array."""
        if mode != "wrap":
            raise not_available(f"mode={mode!r} of put", "places out of bounds wrap around")
        flat = self.ravel()
        flat[indices if isinstance(indices, ndarray) else np.asarray(indices)] = values
        if flat.base is not self and flat.base is not self.base:
            self[...] = flat.reshape(self.shape)

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        """Sort it in place."""
        if kind not in (None, "stable"):
            raise ValueError("kind can only be None or 'stable'")
        if not self.ndim:
            raise np.exceptions.AxisError("Sorting arrays with the rank of zero is not supported")
        view = self.device_view()
        enqueue("sort", lambda: view.sort(axis), [(self.allocation, view, None)], [(self.allocation, view, None)])

    # NumPy's protocols.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        own = known.get(ufunc.__name__)
        if own is None:
            return NotImplemented
        if kwargs.get("out") is not None and len(kwargs["out"]) == 1:
            kwargs["out"] = kwargs["out"][0]
        if method == "__call__":
            return own(*inputs, **kwargs)
        return getattr(own, method)(*inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        package = func.__module__.partition(".")[2].partition(".")[0]
        if package in ("linalg", "fft"):
            own = getattr(import_module(f"windtunnel.emulate.cupy.{package}"), func.__name__, None)
        else:
            own = known.get(func.__name__)
        if own is None:
            raise TypeError(f"numpy.{func.__name__} of a cupy.ndarray is not part of Windtunnel's cupy")
        return own(*args, **kwargs)


_HOST: Any = object()
"""Stands for an array of the host in an index."""


def _is_field(key: Any) -> bool:
    """Return whether an index names fields of records."""
    return isinstance(key, str) or (isinstance(key, list) and bool(key) and all(isinstance(one, str) for one in key))


def _consumed(part: Any) -> int:
    """Return how many dimensions a part of an index selects from."""
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, (ndarray, np.ndarray)) and part.dtype.kind == "b":
        return part.ndim
    return 1


def add_methods(methods: dict[str, Callable[..., Any]]) -> None:
    """Give the class the operators and methods that are functions of NumPy."""
    for name, method in methods.items():
        if name not in vars(ndarray):
            setattr(ndarray, name, method)
