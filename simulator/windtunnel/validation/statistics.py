"""The figures of a comparison of model and measurement. ``docs/validation.md`` has the formulas.

The relative error of a row is ``e = modelled / measured - 1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from windtunnel.core.ops import FloatArray

_SINGLE = math.sqrt(2.0)
"""Two measurements of one point differ by this many times what one differs from the truth (normal errors)."""


def relative_errors(modelled: FloatArray, measured: FloatArray) -> FloatArray:
    """``modelled / measured - 1`` of each row."""
    return np.asarray(modelled / measured - 1.0)


def figures(
    modelled: FloatArray, measured: FloatArray, low: FloatArray, high: FloatArray
) -> dict[str, float | int | None]:
    """n, mape, median_ape, p90_ape, bias and coverage, as fractions; None of all where there is no row.

    ``low`` and ``high``: the model's 90% interval for one measurement.
    """
    if not len(measured):
        return {"n": 0, **dict.fromkeys(("mape", "median_ape", "p90_ape", "bias", "coverage"))}
    error = relative_errors(modelled, measured)
    absolute = np.abs(error)
    return {
        "n": len(measured),
        "mape": float(absolute.mean()),
        "median_ape": float(np.median(absolute)),
        "p90_ape": float(np.quantile(absolute, 0.9)),
        "bias": float(error.mean()),
        "coverage": float(np.mean((measured >= low) & (measured <= high))),
    }


def mean_difference(times: Sequence[float]) -> float:
    """Mean absolute difference of logarithms over all pairs of ``times`` (at least two)."""
    values = np.sort(np.asarray(times, dtype=np.float64))
    logs = np.log(values / values[0])  # of equal times exactly nothing
    count = len(logs)
    # Sorted, the pair differences add up to each value times (those below it - those above it).
    ranks = 2.0 * np.arange(count) - (count - 1.0)
    return float(2.0 * (ranks @ logs) / (count * (count - 1.0)))


def noise_floor(points: Iterable[tuple[Sequence[float], int]]) -> tuple[float | None, int]:
    """The MAPE that a perfect model would show against single measurements, and how many points say so.

    ``points``: repeated measurements of one point (s), and how many rows of the comparison it stands for. Points of
    one measurement say nothing. With errors ``d`` of the logarithm, normal and of any width, two measurements differ
    by ``E|d1 - d2| = sqrt(2) E|d|``, so the mean difference over pairs, over ``sqrt(2)``, is an unbiased estimate
    of ``E|d|``, however few the repetitions; a row's absolute relative error under a model that is right is ``|d|`` to
    second order in ``d``. None where no point was measured twice.
    """
    total, rows, count = 0.0, 0, 0
    for times, weight in points:
        if len(times) > 1:
            total += weight * mean_difference(times)
            rows += weight
            count += 1
    return (total / rows / _SINGLE if rows else None), count
