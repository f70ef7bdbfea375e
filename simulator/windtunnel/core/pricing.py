"""What prices rows of an operation, and which of the rows it refuses."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Cost, ModelAccuracy
from windtunnel.core.errors import InputError
from windtunnel.core.ops import Rows
from windtunnel.core.provenance import SourcedValue


class Pricing(Protocol):
    """What predicts rows: a device, or for steps of a serving engine groups of a device."""

    def cost(self, rows: Rows, *, intervals: bool = True) -> Cost:
        """Return the cost of every row; raises InputError for rows that are not supported."""

    def accuracy_of(self, op: str) -> ModelAccuracy:
        """Return the basis of the predictions of an operation."""

    def exceeds_memory(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which rows take more memory than there is."""

    @property
    def power_error(self) -> SourcedValue:
        """The factor within which nine tenths of the measured powers are of the predicted ones."""


_ALIKE, _TRIED = 64, 4_000
"""Rows of a refused group that are tried alone: if all are refused for one reason, so is the whole group. Otherwise the
group is divided, with at most this many trials."""


def part_of(rows: Rows, begin: int, end: int) -> Rows:
    """Return the rows from ``begin`` to before ``end``."""
    numbers = {name: np.broadcast_to(values, rows.shape)[begin:end] for name, values in rows.numbers.items()}
    return Rows(rows.op, rows.choices, numbers)


def refused_rows(target: Pricing, group: Rows) -> dict[int, InputError]:
    """Return the error of each row of a group that is refused, by its index in the group."""
    count = group.shape[0]
    some = {int(i): _error_of(target, group, int(i), int(i) + 1) for i in np.linspace(0, count - 1, min(count, _ALIKE))}
    first = next(iter(some.values()))
    if first is not None and {None if e is None else e.problem for e in some.values()} == {first.problem}:
        return dict.fromkeys(range(count), first)
    found: dict[int, InputError] = {}
    parts, tried = [(0, count)], 0
    while parts:
        begin, end = parts.pop()
        error, tried = _error_of(target, group, begin, end), tried + 1
        if error is None:
            continue
        if end - begin == 1 or tried > _TRIED:
            found |= dict.fromkeys(range(begin, end), error)
        else:
            parts += [(begin, (begin + end) // 2), ((begin + end) // 2, end)]
    return found


def _error_of(target: Pricing, group: Rows, begin: int, end: int) -> InputError | None:
    try:
        target.cost(part_of(group, begin, end), intervals=False)
    except InputError as error:
        return error
    return None
