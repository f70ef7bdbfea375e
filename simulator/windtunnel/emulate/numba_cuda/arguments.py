"""Checks of the arguments of a launch: their number, and arrays that the kernel cannot have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import NumbaValueError


def check_count(function: Callable[..., Any], given: int) -> None:
    """Raise TypeError, in Numba's words, for a number of arguments that a kernel does not take."""
    code, defaults = function.__code__, len(function.__defaults__ or ())
    least = code.co_argcount - defaults
    if given > code.co_argcount and not code.co_flags & inspect.CO_VARARGS:
        raise TypeError(f"too many arguments: expected {code.co_argcount}, got {given}")
    if given < least:
        raise TypeError(f"not enough arguments: expected {'at least ' if defaults else ''}{least}, got {given}")


def check_dtypes(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Raise NumbaValueError for an array of Python objects."""
    for at, value in enumerate(args):
        dtype = getattr(value, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.hasobject:
            raise NumbaValueError(f"Unsupported array dtype: {dtype}, of {_argument(function, at)}")


def _argument(function: Callable[..., Any], at: int) -> str:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    which = f"argument '{names[at]}'" if at < len(names) else f"argument {at + 1}"
    return f"{which} of {function.__name__}"


def check_layouts(
    function: Callable[..., Any], stated: tuple[Any, ...], actual: tuple[Any, ...], values: tuple[Any, ...]
) -> None:
    """Raise TypeError for an array whose elements do not lie as the only signature of a kernel states."""
    if len(stated) != len(actual):
        raise TypeError(f"{function.__name__} takes {len(stated)} arguments, and {len(actual)} were given")
    signature = f"the signature ({', '.join(map(str, stated))})"
    for at, (want, have, value) in enumerate(zip(stated, actual, values, strict=True)):
        if not isinstance(want, types.Array) or not isinstance(have, types.Array):
            continue
        if want.ndim != have.ndim:
            problem = f"has another number of dimensions than {signature} states"
        elif want.layout in "CF" and not value.flags[f"{want.layout}_CONTIGUOUS"]:
            layouts = {"C": "row after row (C)", "F": "column after column (F)", "A": "with gaps or in other steps (A)"}
            problem = f"lies {layouts[have.layout]}, and {signature} states {want.layout}; expected "
            problem += f"np.asarray(a, order='{want.layout}'), or a signature with ':' for each dimension"
        else:
            continue
        raise TypeError(f"{_argument(function, at)}, {have}, {problem}")
