"""Assertions and arrays for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.emulate import cupy
from windtunnel.emulate.cupy.creation import asnumpy


def _host(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_host(one) for one in value)
    return asnumpy(value) if hasattr(value, "__cuda_array_interface__") else value


def _assertion(name: str) -> Callable[..., None]:
    plain = getattr(np.testing, name)

    def function(x: Any, y: Any, *args: Any, **kwargs: Any) -> None:
        strict = kwargs.pop("strides_check", False)
        plain(_host(x), _host(y), *args, **kwargs)
        if strict and x.strides != y.strides:
            raise AssertionError(f"Strides are not equal:\nx: {x.strides}\ny: {y.strides}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Do what ``numpy.testing.{name}`` does, for arrays of the device too."
    return function


assert_array_almost_equal = _assertion("assert_array_almost_equal")
assert_array_almost_equal_nulp = _assertion("assert_array_almost_equal_nulp")
assert_array_max_ulp = _assertion("assert_array_max_ulp")
assert_array_equal = _assertion("assert_array_equal")
assert_array_less = _assertion("assert_array_less")


def assert_allclose(
    actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0, err_msg: str = "", verbose: bool = True
) -> None:
    """Raise AssertionError if values differ by more than the tolerances."""
    np.testing.assert_allclose(_host(actual), _host(desired), rtol, atol, err_msg=err_msg, verbose=verbose)


def assert_array_list_equal(xlist: Any, ylist: Any, err_msg: str = "", verbose: bool = True) -> None:
    """Raise AssertionError if the arrays of two lists differ."""
    if type(xlist) is not type(ylist) or len(xlist) != len(ylist):
        raise AssertionError(f"lists of {len(xlist)} and {len(ylist)} arrays")
    for x, y in zip(xlist, ylist, strict=True):
        np.testing.assert_array_equal(_host(x), _host(y), err_msg=err_msg, verbose=verbose)


def shaped_arange(shape: Any, xp: Any = cupy, dtype: Any = np.float32, order: str = "C") -> Any:
    """Return an array of the numbers from 1."""
    kind = np.dtype(dtype)
    values = np.arange(1, np.prod(shape) + 1, 1)
    if kind.kind == "b":
        values = values % 2 == 0
    elif kind.kind == "c":
        values = values + values * 1j
    return xp.array(values.astype(kind).reshape(shape), order=order)


def shaped_reverse_arange(shape: Any, xp: Any = cupy, dtype: Any = np.float32) -> Any:
    """Return an array of the numbers down to 1."""
    kind = np.dtype(dtype)
    values = np.arange(np.prod(shape), 0, -1)
    if kind.kind == "b":
        values = values % 2 == 0
    elif kind.kind == "c":
        values = values + values * 1j
    return xp.array(values.astype(kind).reshape(shape))


def shaped_random(
    shape: Any, xp: Any = cupy, dtype: Any = np.float32, scale: float = 10, seed: Any = 0, order: str = "C"
) -> Any:
    """Return an array of random numbers in [0, scale)."""
    rng, kind = np.random.RandomState(seed), np.dtype(dtype)
    if kind.kind == "b":
        return xp.asarray(rng.randint(2, size=shape), dtype=dtype, order=order)
    values = rng.rand(*shape) * scale
    if kind.kind == "c":
        values = values + 1j * (rng.rand(*shape) * scale)
    return xp.asarray(values.astype(kind), order=order)


def shaped_linspace(start: Any, stop: Any, shape: Any, xp: Any = cupy, dtype: Any = np.float32) -> Any:
    """Return an array of numbers at equal distances."""
    return xp.linspace(start, stop, int(np.prod(shape))).reshape(shape).astype(dtype)
