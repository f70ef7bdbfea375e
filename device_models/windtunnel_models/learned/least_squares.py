"""Least squares over the numbers of a formula with bends: their shifts from start values, with a prior.

A formula of a device is continuous in its numbers but not smooth: it has maxima, minima and bounds, and a number may
start at one of them. Slopes over a distance that is not small show how the formula continues. The differences of SciPy
take steps relative to the number instead. These are as small as rounding errors where a shift is near zero, so that a
fit depends on the processor: the overlap of a GEMM's shortest time, which starts at its bound of 1, stayed there or not
by the sign of an error of 1e-9, and the errors on other rows were 16.7% or 11.7%.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windtunnel.core.ops import FloatArray

_STEP = 0.05
"""The distance (in prior standard deviations) over which slopes are taken."""

_STILL = 1e-6
"""The change of an error (in standard deviations) over this distance below which it counts as none, or as rounding."""

_TOLERANCE = 1e-6
"""The relative change of the loss, or of the shifts, at which a search ends. Neither changes a prediction visibly."""


@dataclass(frozen=True)
class Solution:
    """The shifts of least squares, and the slopes of all errors there by all shifts, those of the prior at the end."""

    shifts: FloatArray
    slopes: FloatArray


def least_squares(
    errors: Callable[[FloatArray], FloatArray],
    first: FloatArray,
    *,
    steps: int,
    reads: npt.NDArray[np.bool_] | None = None,
) -> Solution:
    """Return the shifts for which the squares of the errors and of the shifts are least, as far as a search finds them.

    Args:
        errors: The errors of the rows at given shifts, in standard deviations.
        first: The shifts from which the search starts, in prior standard deviations.
        steps: The most steps of the search. The slopes at each step are not counted.
        reads: Which errors (rows) depend on which shifts (columns), by default all. Shifts on which no common error
            depends are varied together.
    """
    from scipy import optimize

    problem = _Problem(errors, first, reads)
    # SciPy's first step is as long as the vector that it starts from, but of length 1 from zero.
    solved = optimize.least_squares(
        problem.errors, np.zeros(len(first)), jac=problem.slopes, max_nfev=steps, ftol=_TOLERANCE, xtol=_TOLERANCE
    )
    return Solution(first + solved.x, np.asarray(solved.jac))


class _Problem:
    """The errors and slopes at a distance from the first shifts, those of the prior at the end."""

    def __init__(
        self, errors: Callable[[FloatArray], FloatArray], first: FloatArray, reads: npt.NDArray[np.bool_] | None
    ) -> None:
        self._errors, self._first, self._reads = errors, first, reads
        self._sets = [[place] for place in range(len(first))] if reads is None else _apart(reads)
        self._last: tuple[FloatArray, FloatArray] | None = None
        self._side, self._begun = np.ones(len(first)), False

    def errors(self, distance: FloatArray) -> FloatArray:
        """Return the errors of the rows, and the shifts as errors against the prior."""
        shifts = self._first + distance
        self._last = shifts, self._errors(shifts)
        return np.concatenate([self._last[1], shifts])

    def slopes(self, distance: FloatArray) -> FloatArray:
        """Return the slopes of ``errors``: upwards, but downwards of a number whose increase changed nothing."""
        shifts = self._first + distance
        if self._last is None or not np.array_equal(self._last[0], shifts):
            self.errors(distance)
        assert self._last is not None  # noqa: S101  set by the line above
        base = self._last[1]
        found = np.zeros((len(base), len(shifts)))
        for places in self._sets:
            still = self._vary(found, base, shifts, places)
            # At the start both sides are tried. Later a number that changes nothing on one side is tried on the other
            # at the next step, as most of these numbers change nothing on either side.
            self._side[still] *= -1.0
            if still and not self._begun:
                self._vary(found, base, shifts, still)
        self._begun = True
        return np.concatenate([found, np.eye(len(shifts))])

    def _vary(self, found: FloatArray, base: FloatArray, shifts: FloatArray, places: list[int]) -> list[int]:
        """Set the slopes at ``places``, and return those of them that change no error."""
        moved = shifts.copy()
        moved[places] += _STEP * self._side[places]
        change = self._errors(moved) - base
        for place in places:
            own = change if self._reads is None else np.where(self._reads[:, place], change, 0.0)
            found[:, place] = own / (_STEP * self._side[place])
        return [place for place in places if (np.abs(found[:, place]) < _STILL / _STEP).all()]


def _apart(reads: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Return the columns in sets of which no two are read by the same row."""
    sets: list[list[int]] = []
    taken: list[npt.NDArray[np.bool_]] = []
    for place in range(reads.shape[1]):
        free = next((i for i, rows in enumerate(taken) if not (rows & reads[:, place]).any()), len(sets))
        if free == len(sets):
            sets.append([])
            taken.append(np.zeros(len(reads), dtype=bool))
        sets[free].append(place)
        taken[free] |= reads[:, place]
    return sets
