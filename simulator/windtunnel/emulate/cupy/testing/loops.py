"""Tests that run once for each type or order, and tests that compare the results of NumPy and CuPy."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from windtunnel.emulate import cupy
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.testing import arrays

_FLOATS = (np.float64, np.float32, np.float16)
_COMPLEX = (np.complex128, np.complex64)
_SIGNED = tuple(np.dtype(one).type for one in "bhilq")
_UNSIGNED = tuple(np.dtype(one).type for one in "BHILQ")
_INTS = (*_SIGNED, *_UNSIGNED)


def _without(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """Hide parameters that a decorator gives, so that pytest looks for no fixtures of these names."""
    signature = inspect.signature(function)
    kept = [one for key, one in signature.parameters.items() if key not in names]
    function.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return function


def _for_each(name: str, values: Sequence[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def function(*args: Any, **kwargs: Any) -> None:
            for value in values:
                try:
                    test(*args, **{**kwargs, name: value})
                except pytest.skip.Exception:
                    continue
                except BaseException as error:
                    error.add_note(f"{name} is {value}")
                    raise

        return _without(function, [name])

    return decorated


def for_dtypes(dtypes: Sequence[Any], name: str = "dtype") -> Any:
    """Run a test for some types."""
    return _for_each(name, [np.dtype(one).type for one in dtypes])


def _all(no_float16: bool, no_bool: bool, no_complex: bool) -> tuple[Any, ...]:
    floats = _FLOATS[:2] if no_float16 else _FLOATS
    return (*floats, *_INTS, *(() if no_bool else (np.bool_,)), *(() if no_complex else _COMPLEX))


def for_all_dtypes(
    name: str = "dtype", no_float16: bool = False, no_bool: bool = False, no_complex: bool = False,
    additional_args: Sequence[Any] = (), **_: Any,
) -> Any:  # fmt: skip
    """Run a test for all types."""
    return for_dtypes((*_all(no_float16, no_bool, no_complex), *additional_args), name)


def for_float_dtypes(name: str = "dtype", no_float16: bool = False, **_: Any) -> Any:
    """Run a test for the types of floating point."""
    return for_dtypes(_FLOATS[:2] if no_float16 else _FLOATS, name)


def for_signed_dtypes(name: str = "dtype") -> Any:
    """Run a test for the signed integers."""
    return for_dtypes(_SIGNED, name)


def for_unsigned_dtypes(name: str = "dtype") -> Any:
    """Run a test for the unsigned integers."""
    return for_dtypes(_UNSIGNED, name)


def for_int_dtypes(name: str = "dtype", no_bool: bool = False) -> Any:
    """Run a test for the integers."""
    return for_dtypes(_INTS if no_bool else (*_INTS, np.bool_), name)


def for_complex_dtypes(name: str = "dtype") -> Any:
    """Run a test for the complex types."""
    return for_dtypes(_COMPLEX, name)


def for_dtypes_combination(types: Sequence[Any], names: Sequence[str] = ("dtype",), full: bool | None = None) -> Any:
    """Run a test for combinations of types: for all if ``full``, else for as many as there are types."""
    listed = list(itertools.product(types, repeat=len(names)))
    if not full:
        shifted = [[types[(at + 3 * k) % len(types)] for k in range(len(names))] for at in range(len(types))]
        listed = [tuple(one) for one in shifted]

    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def function(*args: Any, **kwargs: Any) -> None:
            for chosen in listed:
                test(*args, **{**kwargs, **dict(zip(names, chosen, strict=True))})

        return _without(function, names)

    return decorated


def for_all_dtypes_combination(
    names: Sequence[str] = ("dtyes",), no_float16: bool = False, no_bool: bool = False, full: bool | None = None,
    no_complex: bool = False,
) -> Any:  # fmt: skip
    """Run a test for combinations of all types."""
    return for_dtypes_combination(_all(no_float16, no_bool, no_complex), names, full)


def for_signed_dtypes_combination(names: Sequence[str] = ("dtype",), full: bool | None = None) -> Any:
    """Run a test for combinations of the signed integers."""
    return for_dtypes_combination(_SIGNED, names, full)


def for_unsigned_dtypes_combination(names: Sequence[str] = ("dtype",), full: bool | None = None) -> Any:
    """Run a test for combinations of the unsigned integers."""
    return for_dtypes_combination(_UNSIGNED, names, full)


def for_int_dtypes_combination(
    names: Sequence[str] = ("dtype",), no_bool: bool = False, full: bool | None = None
) -> Any:
    """Run a test for combinations of the integers."""
    return for_dtypes_combination(_INTS if no_bool else (*_INTS, np.bool_), names, full)


def for_orders(orders: Sequence[Any], name: str = "order") -> Any:
    """Run a test for some orders."""
    return _for_each(name, list(orders))


def for_CF_orders(name: str = "order") -> Any:  # noqa: N802  CuPy's name
    """Run a test for the orders of C and Fortran."""
    return for_orders([None, "C", "F", "c", "f"], name)


def _compared(
    check: Callable[[Any, Any], None],
    name: str,
    *,
    type_check: bool = True,
    contiguous_check: bool = False,
    accept_error: Any = False,
) -> Any:
    """Return a decorator that runs a test with NumPy and with CuPy, and compares what it returns or raises."""
    accepted: Any = Exception if accept_error is True else accept_error or ()

    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def function(*args: Any, **kwargs: Any) -> None:
            results = [_outcome(test, args, {**kwargs, name: xp}, accepted) for xp in (cupy, np)]
            errors = [isinstance(one, BaseException) for one in results]
            if any(errors):
                if not all(errors):
                    raise AssertionError(f"only one of CuPy and NumPy raises: {results!r}")
                return
            ours, theirs = ([one] if not isinstance(one, (list, tuple)) else list(one) for one in results)
            for mine, plain in zip(ours, theirs, strict=True):
                if not isinstance(mine, ndarray):
                    raise AssertionError(f"cupy did not return an array: {type(mine)}")
                if type_check and mine.dtype != plain.dtype:
                    raise AssertionError(f"the types differ: {mine.dtype} of CuPy, {plain.dtype} of NumPy")
                if mine.shape != np.shape(plain):
                    raise AssertionError(f"the shapes differ: {mine.shape} of CuPy, {np.shape(plain)} of NumPy")
                if contiguous_check and isinstance(plain, np.ndarray):
                    for flag in ("c_contiguous", "f_contiguous"):
                        if getattr(plain.flags, flag) and not getattr(mine.flags, flag):
                            raise AssertionError(f"the state of {flag} is false")
                check(mine, plain)

        return _without(function, [name])

    return decorated


def _outcome(test: Callable[..., Any], args: Any, kwargs: Any, accepted: Any) -> Any:
    try:
        return test(*args, **kwargs)
    except accepted as error:
        return error


def numpy_cupy_allclose(
    rtol: Any = 1e-7, atol: float = 0, err_msg: str = "", verbose: bool = True, name: str = "xp",
    type_check: bool = True, accept_error: Any = False, sp_name: Any = None, scipy_name: Any = None,
    contiguous_check: bool = True, **_: Any,
) -> Any:  # fmt: skip
    """Compare the results of NumPy and CuPy, with tolerances."""
    del sp_name, scipy_name

    def check(mine: Any, plain: Any) -> None:
        chosen = rtol
        if isinstance(rtol, dict):
            chosen = rtol.get(np.dtype(mine.dtype).type, rtol.get("default", 1e-7))
        arrays.assert_allclose(mine, plain, chosen, atol, err_msg, verbose)

    return _compared(check, name, type_check=type_check, accept_error=accept_error, contiguous_check=contiguous_check)


def _comparison(assertion: Callable[..., None]) -> Callable[..., Any]:
    def comparison(
        *given: Any, err_msg: str = "", verbose: bool = True, name: str = "xp", type_check: bool = True,
        accept_error: Any = False, strides_check: bool = False, **_: Any,
    ) -> Any:  # fmt: skip
        def check(mine: Any, plain: Any) -> None:
            assertion(mine, plain, *given, err_msg=err_msg, verbose=verbose)
            if strides_check and mine.strides != plain.strides:
                raise AssertionError(f"the strides differ: {mine.strides} and {plain.strides}")

        return _compared(check, name, type_check=type_check, accept_error=accept_error)

    comparison.__doc__ = "Compare the results of NumPy and CuPy."
    return comparison


numpy_cupy_array_equal = _comparison(arrays.assert_array_equal)
numpy_cupy_array_almost_equal = _comparison(arrays.assert_array_almost_equal)


def numpy_cupy_array_list_equal(name: str = "xp", **_: Any) -> Any:
    """Compare lists of results of NumPy and CuPy."""
    return numpy_cupy_array_equal(name=name)


def numpy_cupy_equal(name: str = "xp", **_: Any) -> Any:
    """Compare results that are no arrays."""

    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def function(*args: Any, **kwargs: Any) -> None:
            ours, theirs = (test(*args, **{**kwargs, name: xp}) for xp in (cupy, np))
            if ours != theirs:
                raise AssertionError(f"the results differ: {ours!r} of CuPy, {theirs!r} of NumPy")

        return _without(function, [name])

    return decorated
