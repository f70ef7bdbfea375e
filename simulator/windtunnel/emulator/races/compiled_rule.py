"""The rule of `races.rule`, compiled by Numba.

Importing Numba takes half a second, so this module is imported only when there is much to check.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, types

from windtunnel.emulator.races import rule


def _compiled(function: Callable[..., Any], signature: types.Type, **names: Any) -> Callable[..., Any]:
    """Compile a function, with other functions in the place of some global names.

    Its machine code is cached beside the source.
    """
    assert isinstance(function, FunctionType)  # noqa: S101  the rule is made of plain functions
    plain = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
    plain.__module__, plain.__qualname__ = function.__module__, function.__qualname__
    machine_code: Callable[..., Any] = njit(signature, cache=True, _nrt=False, error_model="numpy")(plain)
    return machine_code


@cache
def functions() -> tuple[Callable[..., int], Callable[[np.ndarray, np.ndarray], bool]]:
    """Return ``rule.access`` and ``mark_once``, compiled."""
    row = types.Array(types.int32, 1, "C")
    rows = types.Array(types.int32, 2, "C")
    places = types.Array(types.int64, 1, "C")
    counts = types.Array(types.int32, 1, "C")
    flags = types.Array(types.boolean, 1, "C")
    number, flag = types.int64, types.boolean
    parts = {
        "unordered": _compiled(rule.unordered, number(row, *(number,) * 9)),
        "record": _compiled(rule.record, number(row, *(number,) * 10)),
        "witness": _compiled(rule.witness, types.UniTuple(number, 2)(row, number, number)),
        "values_after": _compiled(rule.values_after, number(row, number, flag, number, number)),
    }
    who = (places, number, places, number, number, number, number, number, counts, counts, number)
    signature = number(rows, rows, flag, flag, number, flag, flag, number, *who, places, places, places)
    return _compiled(rule.access, signature, **parts), _compiled(mark_once, flag(flags, places))


def mark_once(marked: np.ndarray, places: np.ndarray) -> bool:
    """Mark elements and return whether none was marked; it stops at the first that was."""
    for place in places:
        if marked[place]:
            return False
        marked[place] = True
    return True
