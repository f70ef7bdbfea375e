"""The active threads of a chunk, and values for each of them.

A value of a kernel is a NumPy scalar if all threads have the same, a symbolic value (`symbolic`) such as a ``Ramp``,
which turns most array accesses into slices, or a NumPy array with one element for each active thread. Blocks are
executed in chunks, so that values stay in the processor's cache.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from windtunnel.emulator.common.layout import AXES, NO_AXIS, Chunk, Selection, ThreadSet
from windtunnel.emulator.common.symbolic import AffineValue, Integer, LaneMask, Prefix, Ramp, SymbolicValue, materialise
from windtunnel.runtime.interface import Dims

Value = Any


class Lanes(ThreadSet):
    """The active threads of a chunk, with their indices as symbolic values."""

    __slots__ = ("_indices",)

    def __init__(self, chunk: Chunk, selection: Selection = None) -> None:
        super().__init__(chunk, selection)
        self._indices: dict[tuple[Dims, Dims], AffineValue] = {}

    def thread(self, axis: int) -> Value:
        """Return ``threadIdx`` along an axis."""
        return self._index(AXES[axis], NO_AXIS)

    def block(self, axis: int) -> Value:
        """Return ``blockIdx`` along an axis."""
        return self._index(NO_AXIS, AXES[axis])

    def _index(self, steps: Dims, jumps: Dims) -> AffineValue:
        index = self._indices.get((steps, jumps))
        if index is None:
            index = self._indices[steps, jumps] = AffineValue(self, steps, jumps, 0)
        return index

    def globally(self, axis: int, kind: Integer = np.int32) -> Value:
        """Return ``blockIdx * blockDim + threadIdx`` along an axis, computed in a type of integers."""
        chunk = self.chunk
        if axis == 0 and chunk.one_dimensional:
            return Ramp(chunk.first * chunk.threads, chunk.size, 1, kind).take(self.selection)
        return self.block(axis).of_kind(kind) * kind(chunk.block[axis]) + self.thread(axis).of_kind(kind)


Side = tuple[Selection, Lanes] | None
EMPTY: Final = object()
"""The selection of no threads."""


def branch(lanes: Lanes, condition: Value) -> tuple[Side, Side]:
    """Return the threads that take a branch and those that do not, each None if there are none."""
    if isinstance(condition, Prefix):
        yes, no, has_yes, has_no = condition.split()
        return (yes, lanes.sub(yes)) if has_yes else None, (no, lanes.sub(no)) if has_no else None
    if isinstance(condition, LaneMask):
        yes_numbers, no_numbers = condition.split()
        if not len(yes_numbers) or not len(no_numbers):
            return ((None, lanes), None) if len(yes_numbers) else (None, (None, lanes))
        yes_lanes, no_lanes = lanes.sub(yes_numbers), lanes.sub(no_numbers)
        yes_lanes.subset, no_lanes.subset = (condition.key, True), (condition.key, False)
        return (yes_numbers, yes_lanes), (no_numbers, no_lanes)
    condition = materialise(condition)
    if not isinstance(condition, np.ndarray) or not condition.ndim:
        return ((None, lanes), None) if condition else (None, (None, lanes))
    yes_numbers = np.flatnonzero(condition)
    if len(yes_numbers) == len(condition):
        return (None, lanes), None
    if not len(yes_numbers):
        return None, (None, lanes)
    no_numbers = np.flatnonzero(~condition)
    return (yes_numbers, lanes.sub(yes_numbers)), (no_numbers, lanes.sub(no_numbers))


def holds(condition: Value) -> bool:
    """Return whether a condition is true for all threads."""
    if isinstance(condition, Prefix):
        return condition.count == (0 if condition.after else condition.size)
    return bool(np.all(materialise(condition)))


def narrow(selection: Selection, condition: Value) -> Any:
    """Return those of the selected threads for which a condition is true; ``EMPTY`` if there are none."""
    if isinstance(condition, Prefix):
        yes, _, has_yes, _ = condition.split()
        if not has_yes:
            return EMPTY
        chosen: Selection = yes
    else:
        condition = materialise(condition)
        if not isinstance(condition, np.ndarray) or not condition.ndim:
            return selection if condition else EMPTY
        chosen = np.flatnonzero(condition)
        if not len(chosen):
            return EMPTY
    if selection is None:
        return chosen
    if isinstance(selection, slice):
        base = selection.start
        return slice(base + chosen.start, base + chosen.stop) if isinstance(chosen, slice) else chosen + base
    return selection[chosen] if chosen is not None else selection


def take(value: Value, selection: Selection, lanes: Lanes) -> Value:
    """Return the values of the selected threads, which are ``lanes``. It may be a view."""
    if selection is None:
        return value
    if isinstance(value, Ramp):
        return value.take(selection)
    if isinstance(value, AffineValue):
        return value.at(lanes)
    value = materialise(value)
    return value[selection] if isinstance(value, np.ndarray) and value.ndim else value


def take_copy(value: Value, selection: Selection, lanes: Lanes) -> Value:
    """Return the values of the selected threads, never as a view."""
    values = take(value, selection, lanes)
    return values.copy() if isinstance(selection, slice) and isinstance(values, np.ndarray) else values


def full(value: Value, size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return a new array with a value for each of ``size`` threads."""
    values = np.empty(size, dtype)
    values[...] = value
    return values


def put(value: Value, selection: Selection, selected: Value, size: int, dtype: np.dtype[Any]) -> Value:
    """Return the values with those of the selected threads replaced. ``value`` does not change."""
    if selection is None:
        return selected
    values = full(value, size, dtype)
    values[selection] = selected
    return values


def put_into(value: np.ndarray, selection: Selection, selected: Value, size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Replace the values of the selected threads in place, in an array that nothing else refers to."""
    if selection is None:
        return full(selected, size, dtype)
    value[selection] = selected
    return value


def convert(value: Value, dtype: np.dtype[Any]) -> Value:
    """Convert a value to another type: truncate floats towards zero, keep the low bits of integers.

    Floats that are out of range, which C leaves undefined, give the nearest integer, as the instructions of GPUs do;
    those for 8 bits convert to 16 and keep the low ones. NaN gives 0, or the highest bit alone where either has 64
    bits (measured on an NVIDIA H200).
    """
    if isinstance(value, (AffineValue, Ramp)) and dtype.kind == "i" and dtype.itemsize >= 4:
        return value.of_kind(np.int32 if dtype.itemsize == 4 else np.int64)
    value = materialise(value)
    array = np.asarray(value)
    truncates = dtype.kind in "iu" and array.dtype.kind not in "iub"
    converted = _truncated(array, dtype) if truncates else array.astype(dtype)
    return converted if isinstance(value, np.ndarray) else converted[()]


def _truncated(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    wide = dtype if dtype.itemsize > 1 else np.dtype(f"{dtype.kind}2")
    limits = np.iinfo(wide)
    value = array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        inside = (value > limits.min - 1.0) & (value < limits.max + 1.0)
        if inside.all():
            return value.astype(wide).astype(dtype)
        made = np.where(inside, value, 0.0).astype(wide)
    made = np.where(value >= limits.max + 1.0, limits.max, made)
    made = np.where(value <= limits.min - 1.0, limits.min, made)
    if 8 in (wide.itemsize, array.dtype.itemsize):
        made = np.where(np.isnan(value), wide.type(limits.min if wide.kind == "i" else limits.max // 2 + 1), made)
    return made.astype(wide).astype(dtype)


def select_values(condition: Value, yes: Value, no: Value) -> Value:
    """Return ``yes`` where a condition is true and ``no`` elsewhere."""
    if not isinstance(condition, (np.ndarray, SymbolicValue)):
        return yes if condition else no
    return np.where(materialise(condition), materialise(yes), materialise(no))[()]
