"""The error figures of a comparison. ``docs/validation.md`` has the formulas.

The relative error of a row is ``e = modelled / measured - 1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from windtunnel.core.ops import FloatArray
from windtunnel.core.results.validation import ErrorFigures

_SINGLE = math.sqrt(2.0)
"""The ratio of the difference of two measurements to the error of one (normal errors)."""


def relative_errors(modelled: FloatArray, measured: FloatArray) -> FloatArray:
    """Return ``modelled / measured - 1`` of each row."""
    return np.asarray(modelled / measured - 1.0)


def figures(modelled: FloatArray, measured: FloatArray, low: FloatArray, high: FloatArray) -> ErrorFigures:
    """Return the error figures of rows, without their noise floor.

    Args:
        modelled: The predicted times (s), one per row.
        measured: The measured times (s).
        low: The lower end of the model's 90% interval for one measurement (s).
        high: The upper end (s).
    """
    if not len(measured):
        return ErrorFigures(n=0, mape=None, median_ape=None, p90_ape=None, bias=None, coverage=None)
    error = relative_errors(modelled, measured)
    absolute = np.abs(error)
    return ErrorFigures(
        n=len(measured),
        mape=float(absolute.mean()),
        median_ape=float(np.median(absolute)),
        p90_ape=float(np.quantile(absolute, 0.9)),
        bias=float(error.mean()),
        coverage=float(np.mean((measured >= low) & (measured <= high))),
    )


def mean_difference(times: Sequence[float]) -> float:
    """Return the mean absolute difference of logarithms over all pairs of ``times`` (at least two)."""
    values = np.sort(np.asarray(times, dtype=np.float64))
    logs = np.log(values / values[0])  # exactly zero for equal times
    count = len(logs)
    # Sorted, the pair differences add up to each value times (those below it - those above it).
    ranks = 2.0 * np.arange(count) - (count - 1.0)
    return float(2.0 * (ranks @ logs) / (count * (count - 1.0)))


def noise_floor(points: Iterable[tuple[Sequence[float], int]]) -> tuple[float | None, int]:
    """Return the MAPE that a correct model would show against single measurements, and the number of points used.

    With normal errors ``d`` of the logarithm, two measurements differ by ``E|d1 - d2| = sqrt(2) E|d|``. So the mean
    difference over pairs divided by ``sqrt(2)`` is an unbiased estimate of ``E|d|`` for any number of repetitions. The
    absolute relative error of a row under a correct model is ``|d|`` to second order in ``d``.

    Args:
        points: The repeated measurements of each point (s), and the number of its rows in the comparison. A point with
            one measurement does not count.

    Returns:
        None if no point was measured twice.
    """
    total, rows, count = 0.0, 0, 0
    for times, weight in points:
        if len(times) > 1:
            total += weight * mean_difference(times)
            rows += weight
            count += 1
    return (total / rows / _SINGLE if rows else None), count
