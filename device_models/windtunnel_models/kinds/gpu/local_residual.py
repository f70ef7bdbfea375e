"""The residual of the operations of serving: a Gaussian process for each family of kernels, from compact arrays.

The arrays of one operation, for each family i: ``families`` (names), ``centres_i`` (points, features) and ``weights_i``
(points), and ``width`` (families, regions), the 90% half-widths of the logarithm of a time. The positions of rows
depend on the rows alone, so that a device of the same die can use them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.device import Arrays, Correction, Parameters, StrArray
from windtunnel.core.ops import FloatArray, Rows

_BLOCK = 20_000
"""Rows that are evaluated at once, which bounds the memory."""

_NEAR = 128
"""Rows that are compared with all points at once, so that the similarities stay in the cache of a processor core."""


def flat(rows: Rows) -> Rows:
    """Return ``rows`` with every column broadcast to one dimension."""
    shape = rows.shape
    numbers = {name: np.broadcast_to(values, shape).reshape(-1) for name, values in rows.numbers.items()}
    return replace(rows, numbers=numbers)


def similarity(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the squared-exponential similarity of the rows of a and b, [a, b]."""
    # In place, because new arrays of this size take as long as what is computed. Halves are exact.
    near = a @ b.T
    near -= 0.5 * (a * a).sum(1)[:, None] + 0.5 * (b * b).sum(1)[None]
    np.minimum(near, 0.0, out=near)
    return np.asarray(np.exp(near, out=near))


@dataclass(frozen=True)
class Points:
    """The measured points that a Gaussian process keeps, [points, features], and their weights, [points]."""

    centres: FloatArray
    weights: FloatArray

    @classmethod
    def of(cls, arrays: Arrays, key: int) -> Points:
        """Return the points ``key`` of a file of arrays, in float64."""
        return cls(arrays[f"centres_{key}"].astype(np.float64), arrays[f"weights_{key}"].astype(np.float64))

    def at(self, positions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log(measured / formula) at positions, and a factor on its interval.

        The interval is twice as wide for rows that are unlike all measured ones.
        """
        value, wider = np.empty(len(positions)), np.empty(len(positions))
        for start in range(0, len(positions), _NEAR):
            some = slice(start, start + _NEAR)
            near = similarity(positions[some], self.centres)
            value[some], wider[some] = near @ self.weights, 2.0 - near.max(1)
        return value, wider


def _part(rows: Rows, index: slice) -> Rows:
    """Return some of flat rows."""
    return replace(rows, numbers={name: values[index] for name, values in rows.numbers.items()})


class LocalResidual:
    """A correction that depends on the rows alone.

    Args:
        arrays: See the module.
        families: Returns the family of each of flat rows.
        place: Returns the positions of flat rows, [rows, features], their regions, and factors on the half-widths.
    """

    def __init__(
        self,
        arrays: Arrays,
        families: Callable[[Rows], StrArray],
        place: Callable[[Rows], tuple[FloatArray, FloatArray, FloatArray]],
    ) -> None:
        self._families, self._place = families, place
        self._width = np.asarray(arrays["width"], dtype=np.float64)
        self._known = {str(name): (i, Points.of(arrays, i)) for i, name in enumerate(arrays["families"])}

    def __call__(self, _p: Parameters, rows: Rows) -> Correction | None:
        """Return the correction of ``rows``, or None if a family of theirs was not measured."""
        all_rows = flat(rows)
        families = self._families(all_rows)
        if not set(np.unique(families).tolist()) <= set(self._known):
            return None
        factor, width = np.zeros(len(families)), np.zeros(len(families))
        for start in range(0, len(families), _BLOCK):
            some = slice(start, start + _BLOCK)
            positions, region, wider = self._place(_part(all_rows, some))
            for name in np.unique(families[some]).tolist():
                i, points = self._known[name]
                index = np.flatnonzero(families[some] == name)
                factor[start + index], away = points.at(positions[index])
                width[start + index] = self._width[i, region[index]] * wider[index] * away
        return Correction(factor.reshape(rows.shape), width.reshape(rows.shape))
