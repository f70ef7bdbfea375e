"""Atomic operations on array elements, by one thread or by many threads in the order of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_UFUNCS: Mapping[str, np.ufunc] = {
    "add": np.add, "sub": np.subtract, "max": np.fmax, "min": np.fmin, "and_": np.bitwise_and, "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "max": np.fmax,
    "min": np.fmin,
    # Of Numba: a NaN that is there stays, and one that is offered is not stored.
    "max_number": lambda old, x: x if x > old else old,
    "min_number": lambda old, x: x if x < old else old,
    "and_": lambda old, x: old & x,
    "or_": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "exch": lambda _old, x: x,
    "store": lambda _old, x: x,
    "load": lambda old: old,
    "cas": lambda old, expected, x: x if old == expected else old,
    # As in CUDA: inc wraps from x to 0, dec from 0 to x.
    "inc": lambda old, x: old.dtype.type(0) if old >= x else old + old.dtype.type(1),
    "dec": lambda old, x: x if old == 0 or old > x else old - old.dtype.type(1),
}


def change_one(op: str, old: Any, values: Sequence[Any]) -> Any:
    """Return the value that an atomic operation stores where ``old`` was."""
    return _FUNCTIONS[op](old, *values)


def change_many(flat: np.ndarray, positions: np.ndarray, op: str, values: Sequence[np.ndarray], used: bool) -> Any:
    """Apply an atomic operation to elements of ``flat``, in the order of the threads.

    Args:
        flat: The elements; changed in place.
        positions: One element for each thread; shape (threads,).
        op: Name of the operation.
        values: Its operands, each of shape (threads,).
        used: Whether the result is needed.

    Returns:
        The value that each thread found, of shape (threads,); None if it is not needed.
    """
    if not used and op in _UFUNCS:
        _UFUNCS[op].at(flat, positions, values[0])
        return None
    if len(positions) > 1 and op in ("add", "sub") and flat.dtype.kind in "iu":
        return _add(flat, positions, values[0] if op == "add" else (0 - values[0]).astype(flat.dtype))
    change = _FUNCTIONS[op]
    old_values = np.empty(len(positions), flat.dtype)
    if len(np.unique(positions)) == len(positions) and op in _UFUNCS:
        old_values[...] = flat[positions]
        flat[positions] = _UFUNCS[op](old_values, values[0])
        return old_values
    for number, (position, *operands) in enumerate(zip(positions.tolist(), *values, strict=True)):
        old = flat[position]
        old_values[number] = old
        flat[position] = change(old, *operands)
    return old_values


def _add(flat: np.ndarray, positions: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Add integers. Each thread finds the old value plus what the threads before it have added."""
    order = np.argsort(positions, kind="stable")
    sorted_positions, added = positions[order], values[order].astype(flat.dtype)
    before = np.cumsum(added, dtype=flat.dtype) - added
    begins_group = np.r_[True, sorted_positions[1:] != sorted_positions[:-1]]
    first = np.flatnonzero(begins_group)
    group = np.cumsum(begins_group) - 1
    old_values = np.empty(len(positions), flat.dtype)
    old_values[order] = flat[sorted_positions] + (before - before[first][group])
    np.add.at(flat, positions, values)
    return old_values
