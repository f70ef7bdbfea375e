"""Functions that make arrays: from the host's values, of one value, and sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.emulate.common.pinned import is_pinned
from windtunnel.emulate.cupy.cuda.memory import enqueue
from windtunnel.emulate.cupy.cuda.stream import current_raw, get_current_stream
from windtunnel.emulate.cupy.device_array import check_dtype, known, ndarray
from windtunnel.emulate.cupy.operations import written


def array(
    obj: Any, dtype: Any = None, copy: Any = True, order: Any = "K", subok: bool = False, ndmin: int = 0,
    *, blocking: bool = False,
) -> ndarray:  # fmt: skip
    """Copy values to the device; a device array is copied unless ``copy`` is False."""
    del subok
    if not isinstance(obj, (ndarray, np.ndarray)) and hasattr(obj, "__cuda_array_interface__"):
        obj = ndarray.from_interface(obj)
    if isinstance(obj, ndarray):
        kind = obj.dtype if dtype is None else check_dtype(dtype)
        made = obj.astype(kind, order=order or "K", copy=bool(copy))
        return made if made.ndim >= ndmin else made.reshape((1,) * (ndmin - made.ndim) + made.shape)
    if isinstance(obj, (list, tuple)) and _has_device_arrays(obj):
        parts = [array(one, dtype) for one in obj]
        stacked: ndarray = known["stack"](parts)
        return stacked if dtype is None else stacked.astype(dtype, copy=False)
    values = np.array(obj, dtype=dtype, copy=None, ndmin=ndmin)
    check_dtype(values.dtype)
    kept = "F" if order in ("F", "K", "A") and values.flags.f_contiguous and not values.flags.c_contiguous else "C"
    kept = "F" if order == "F" else kept
    made = ndarray(values.shape, values.dtype, order=kept)
    if made.size:
        flat = np.asarray(values, order=kept).reshape(-1, order=kept).view(np.uint8)  # type: ignore[call-overload]
        pinned = is_pinned(flat)
        made.allocation.accelerator.copy_in(made._part(), flat, current_raw(), pinned=pinned)
        if blocking and pinned:
            get_current_stream().synchronize()
    return made


known["array"] = array


def _has_device_arrays(values: Any) -> bool:
    return any(
        isinstance(one, ndarray) or (isinstance(one, (list, tuple)) and _has_device_arrays(one)) for one in values
    )


def asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> ndarray:
    """Return an array of the device for values; a device array of this type is returned as it is."""
    return array(a, dtype, False, order, blocking=blocking)


def asanyarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> ndarray:
    """Return an array of the device for values."""
    return array(a, dtype, False, order, blocking=blocking)


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    """Return an array whose rows lie one after another."""
    made = asarray(a, dtype)
    return made if made.is_c_contiguous() else made.copy("C")


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    """Return an array whose columns lie one after another."""
    made = asarray(a, dtype)
    return made if made.is_f_contiguous() else made.copy("F")


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> np.ndarray:
    """Copy an array to the host."""
    if isinstance(a, ndarray):
        return a.get(stream, order, out, blocking)
    if hasattr(a, "__cuda_array_interface__"):
        return array(a).get(stream, order, out, blocking)
    if out is not None:
        np.copyto(out, a)
        return out  # type: ignore[no-any-return]
    return np.asarray(a, order=order)  # type: ignore[call-overload,no-any-return]


def copy(a: Any, order: str = "K") -> ndarray:
    """Return a copy of an array."""
    return asarray(a).copy(order)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Allocate an uninitialised array."""
    return ndarray(shape, dtype, order=order)


def _filled(shape: Any, value: Any, dtype: Any, order: str, name: str) -> ndarray:
    made = ndarray(shape, dtype, order=order)
    return written(name, made, lambda: value)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Return an array of zeros."""
    return _filled(shape, 0, dtype, order, "memset")


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """Return an array of ones."""
    return _filled(shape, 1, dtype, order, "fill")


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    """Return an array of one value."""
    if dtype is None:
        dtype = fill_value.dtype if isinstance(fill_value, ndarray) else np.array(fill_value).dtype
    made = ndarray(shape, dtype, order=order)
    made[...] = fill_value
    return made


def _like(a: Any, dtype: Any, order: str, shape: Any) -> ndarray:
    if not isinstance(a, (ndarray, np.ndarray)):
        raise TypeError(f"Unsupported type {type(a)}")
    kind = a.dtype if dtype is None else dtype
    if shape is not None:
        return ndarray(shape, kind, order="C" if order in ("K", "A") else order)
    base = np.lib.stride_tricks.as_strided(np.empty(0, a.dtype), a.shape, a.strides)
    template = np.empty_like(base, kind, order=order)  # type: ignore[call-overload]
    return ndarray(template.shape, template.dtype, strides=template.strides if template.size else None)


def empty_like(prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """Allocate an uninitialised array like another one."""
    del subok
    return _like(prototype, dtype, order, shape)


def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """Return an array of zeros like another one."""
    del subok
    return written("memset", _like(a, dtype, order, shape), lambda: 0)


def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """Return an array of ones like another one."""
    del subok
    return written("fill", _like(a, dtype, order, shape), lambda: 1)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    """Return an array of one value like another one."""
    del subok
    made = _like(a, dtype, order, shape)
    made[...] = fill_value
    return made


def _host(value: Any) -> Any:
    return value.get() if isinstance(value, ndarray) else value


def _sequence(name: str) -> Callable[..., Any]:
    """Return a function that computes an array from numbers on the device."""
    plain = getattr(np, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        given = [_host(one) for one in args]
        named = {key: _host(one) for key, one in kwargs.items()}
        values = plain(*given, **named)
        if isinstance(values, tuple) and name == "linspace":
            return made_from(name, values[0]), values[1]
        return made_from(name, values)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return the array of ``numpy.{name}``."
    return function


def made_from(name: str, values: np.ndarray) -> ndarray:
    """Return an array that an operation of the device computes without reading memory."""
    check_dtype(values.dtype)
    made = ndarray.like_result(values)
    target = made.device_view()
    if made.size:
        enqueue(name, lambda: np.copyto(target, values), [], [(made.allocation, target, None)])
    return made


arange, linspace, logspace, geomspace, eye, identity, tri, hanning, hamming, blackman, bartlett, kaiser = (
    _sequence(name)
    for name in (
        "arange", "linspace", "logspace", "geomspace", "eye", "identity", "tri", "hanning", "hamming", "blackman",
        "bartlett", "kaiser",
    )
)  # fmt: skip


def frombuffer(*args: Any, **kwargs: Any) -> ndarray:
    """Copy a buffer of the host to the device."""
    return array(np.frombuffer(*args, **kwargs))


def fromfile(*args: Any, **kwargs: Any) -> ndarray:
    """Copy a file to the device."""
    return array(np.fromfile(*args, **kwargs))


def loadtxt(*args: Any, **kwargs: Any) -> ndarray:
    """Copy a file of text to the device."""
    return array(np.loadtxt(*args, **kwargs))


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Copy a file of NumPy to the device."""
    values = np.load(file, *args, **kwargs)
    return array(values) if isinstance(values, np.ndarray) else values


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Copy an array to the host and write it to a file."""
    np.save(file, asnumpy(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, **kwargs: Any) -> None:
    """Copy arrays to the host and write them to a file."""
    arrays: Any = {key: asnumpy(one) for key, one in kwargs.items()}
    np.savez(file, *map(asnumpy, args), **arrays)


def savez_compressed(file: Any, *args: Any, **kwargs: Any) -> None:
    """Copy arrays to the host and write them to a compressed file."""
    arrays: Any = {key: asnumpy(one) for key, one in kwargs.items()}
    np.savez_compressed(file, *map(asnumpy, args), **arrays)


def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N803  NumPy's name
    """Copy an array to the host and write it to a file of text."""
    np.savetxt(fname, asnumpy(X), *args, **kwargs)
