"""The linear program of the lower bounds: its construction, and the minimum load of a fleet with a cut for others.

Its variables are the shares of jobs on each class of devices, late jobs, and the count of each class. `bounds` states
what the rows mean, and docs/planning.md derives them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from windtunnel.core.ticks import FloatArray

SHRINK = 1 - 1e-9
"""Factor on bounds that prevents rounding errors from making them too large."""
_ROUNDING = 1e-13
"""The worth of a share, relative to the largest dual value, that counts as a rounding error; ``SHRINK`` covers it."""
_NO_LIMIT = 1e290
"""The weight of a class in a cut that says nothing about fleets with it; its products with counts are finite."""


@dataclass
class LinearProgram:
    """A sparse linear program under construction; once it is solved, nothing may be added.

    Each row has an upper limit on its sum. A row on device time also has a class of devices and the seconds that one
    device of it offers. All shares in such a row are of that class and were added together, as one block.
    """

    classes: int
    upper: list[float] = field(default_factory=list)
    """The largest value of each column; the smallest is 0."""
    data: list[float] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)
    """The upper limit of each row's sum."""
    _blocks: list[int] = field(default_factory=list)
    """The block of each column."""
    _class_of_block: list[int] = field(default_factory=list)
    """The class of the shares of each block; -1 for other columns."""
    _class_of_row: list[int] = field(default_factory=list)
    """The class of each row on device time; -1 for other rows."""
    _seconds: list[float] = field(default_factory=list)

    def columns(self, number: int, upper: float | FloatArray, of_class: int = -1) -> np.ndarray:
        """Add a block of columns, which are shares on devices of a class unless that is -1; return their numbers."""
        first = len(self.upper)
        self.upper += np.broadcast_to(np.asarray(upper, dtype=np.float64), (number,)).tolist()
        self._blocks += [len(self._class_of_block)] * number
        self._class_of_block.append(of_class)
        return np.arange(first, first + number)

    def at_most(
        self, columns: np.ndarray, values: np.ndarray, limit: float, of_class: int = -1, seconds: float = 0.0
    ) -> None:
        """Add a row: ``columns`` times ``values`` is at most ``limit``, plus ``seconds`` of each device of a class."""
        number = len(self.limit)
        self.column += columns.tolist()
        self.data += np.broadcast_to(values, columns.shape).tolist()
        self.row += [number] * len(columns)
        self.limit.append(limit)
        self._class_of_row.append(of_class)
        self._seconds.append(seconds)

    @cached_property
    def _matrix(self) -> Any:
        """The rows without the offered seconds; shape (rows, columns)."""
        from scipy.sparse import coo_matrix

        cells = np.asarray(self.row, dtype=np.int64), np.asarray(self.column, dtype=np.int64)
        return coo_matrix((self.data, cells), shape=(len(self.limit), len(self.upper))).tocsc()

    @cached_property
    def _offered(self) -> Any:
        """The seconds that one device of each class offers; shape (rows, classes)."""
        from scipy.sparse import coo_matrix

        rows = np.flatnonzero(np.asarray(self._class_of_row) >= 0)
        cells = rows, np.asarray(self._class_of_row)[rows]
        shape = len(self.limit), self.classes
        return coo_matrix((np.asarray(self._seconds)[rows], cells), shape=shape).tocsc()

    def matrix(self) -> Any:
        """Return the rows, with minus the offered seconds of each class; shape (rows, columns + classes)."""
        from scipy.sparse import hstack

        return hstack([self._matrix, -self._offered])

    def load(self, counts: Sequence[int]) -> tuple[float, FloatArray]:
        """Return (theta, w): the minimum load of a fleet, and the weights of a bound on the load of other fleets.

        A fleet with theta above 1 is infeasible. By the dual of the program, the load of every other fleet m is at
        least theta / (w . m), so w . m < theta rules out m too. theta is infinite, and w zero, if no counts are
        feasible.
        """
        from scipy.optimize import linprog
        from scipy.sparse import csc_matrix, hstack

        if not self.limit:
            return 0.0, np.zeros(self.classes)
        devices = np.asarray(counts, dtype=np.float64)
        # The last element stands for columns and rows without a class.
        present = np.append(devices > 0, True)
        rows = np.flatnonzero(present[np.asarray(self._class_of_row)])
        columns = np.flatnonzero(present[self._class_of_column])
        offered = (self._offered @ devices)[rows]
        objective = np.zeros(len(columns) + 1)
        objective[-1] = 1.0
        answer = linprog(
            objective,
            A_ub=hstack([self._matrix[:, columns][rows], csc_matrix(-offered[:, None])]).tocsc(),
            b_ub=np.asarray(self.limit)[rows],
            bounds=np.stack([np.zeros(len(columns) + 1), np.append(np.asarray(self.upper)[columns], np.inf)], axis=1),
            method="highs",
        )
        if answer.status != 0:
            return math.inf, np.zeros(self.classes)
        dual = np.zeros(len(self.limit))
        dual[rows] = -np.asarray(answer.ineqlin.marginals)
        absent = self._weights_of_absent(dual)
        return float(answer.fun) * SHRINK, np.where(devices > 0, self._offered.T @ dual, absent)

    @cached_property
    def _class_of_column(self) -> np.ndarray:
        return np.asarray(self._class_of_block, dtype=np.int64)[np.asarray(self._blocks, dtype=np.int64)]

    @cached_property
    def _cells(self) -> _Cells:
        return _Cells(self)

    def _weights_of_absent(self, dual: FloatArray) -> FloatArray:
        """Return the least weights of classes whose rows on device time have no dual values yet.

        The dual value of such a row costs nothing, because its limit and its devices are 0. So the rows of a class need
        values only so that no share of the class is worth more than 0 in ``dual``, the values of the other rows. A row
        of a block with the value y makes each of its shares worth ``a y`` less, and adds y times its seconds to the
        weight. For each block, one row covers all shares that it has; rows on the presence of a device, which have one
        share each, cover those that it does not have.
        """
        cells = self._cells
        worth = -(self._matrix.T @ dual)
        worth = np.where(worth > _ROUNDING * np.abs(dual).max(), worth, 0.0)
        # A share without a row on its presence needs another row.
        has_own = np.isfinite(cells.presence)
        alone = worth * np.where(has_own, cells.presence, 0.0)
        open_ = (worth > 0) & ~has_own
        blocks = len(self._class_of_block)
        price, left = (np.bincount(cells.block, weights=w, minlength=blocks) for w in (alone, open_))
        least = np.where(left > 0, _NO_LIMIT, price)
        if len(cells.rows):
            highest = np.maximum.reduceat(worth[cells.column] / cells.value, cells.starts)
            own = cells.block_of_row
            rest = price[own] - np.add.reduceat(alone[cells.column], cells.starts)
            open_left = left[own] - np.add.reduceat(open_[cells.column].astype(np.float64), cells.starts)
            cost = highest * cells.seconds + np.maximum(rest, 0.0)
            np.minimum.at(least, own, np.where(open_left > 0, _NO_LIMIT, cost))
        of_class = np.asarray(self._class_of_block)
        weights = np.bincount(of_class[of_class >= 0], weights=least[of_class >= 0], minlength=self.classes)
        return np.minimum(weights, _NO_LIMIT)


class _Cells:
    """The cells of rows on device time, by row.

    ``presence`` is, for each column, the seconds that the row on the presence of a device asks for a unit of it,
    infinite where there is none.
    """

    def __init__(self, program: LinearProgram) -> None:
        row, column = np.asarray(program.row, dtype=np.int64), np.asarray(program.column, dtype=np.int64)
        value, of_row = np.asarray(program.data), np.asarray(program._class_of_row)
        self.block = np.asarray(program._blocks, dtype=np.int64)
        timed = (of_row[row] >= 0) & (value > 0)
        row, column, value = row[timed], column[timed], value[timed]
        number = np.bincount(row, minlength=len(program.limit))
        single = number[row] == 1
        seconds = np.asarray(program._seconds)
        self.presence = np.full(len(program.upper), np.inf)
        np.minimum.at(self.presence, column[single], seconds[row[single]] / value[single])
        self.rows, self.starts = np.unique(row, return_index=True)
        self.column, self.value = column, value
        self.seconds = seconds[self.rows]
        self.block_of_row = self.block[column[self.starts]]
