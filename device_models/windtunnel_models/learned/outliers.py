"""Outliers of a calibration: rows far from what the other rows predict, and tables in a wrong unit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.ops import FloatArray
from windtunnel.core.results.calibration import Outlier
from windtunnel_models.learned.calibration import Calibration, Group, Points
from windtunnel_models.learned.fit import FAR_LOG, Fitted, fit_once, formula_times, transferred_factor
from windtunnel_models.learned.process import Z90
from windtunnel_models.learned.residuals import coordinates

_FAR = 5.0
"""Standard deviations from the other rows' prediction beyond which a row is an outlier, if also beyond ``FAR_LOG``."""


def warn_of_units(result: Calibration, before: FloatArray) -> None:
    """Add a warning if the median error of the model is a factor that a wrong unit explains."""
    factor = math.exp(-float(np.median(before)))
    for name, size in (("milliseconds", 1e3), ("microseconds", 1e6), ("nanoseconds", 1e9)):
        if 0.1 < factor / size < 10.0:
            result.warnings.append(
                f"half of the rows took over {factor:.3g} times what was expected: is latency_s in {name}?"
            )
    if factor < 1e-2:
        result.warnings.append(
            f"half of the rows took less than {factor:.2g} of what was expected: is latency_s in seconds?"
        )


def reduce_outliers(result: Calibration, device: Device) -> Mapping[str, float]:
    """Record the outliers, and raise their noise until they are plausible.

    This is done twice, because an outlier also moves the predictions of its neighbours until its weight is reduced.
    Returns the numbers' shifts, from which later fits start; the start changes their speed and not their result.
    """
    plain = [group.noise for group in result.groups]
    start: Mapping[str, float] = {}
    for _ in range(2):
        fitted = fit_once(device, result.groups, start)
        start = fitted.shifts
        result.outliers = []
        for group, points, noise in zip(result.groups, fitted.points, plain, strict=True):
            if points is None:
                continue
            error, deviation = _leave_one_out(fitted, points, group)
            typical = 1.4826 * float(np.median(np.abs(error)))
            sigma = np.maximum(np.minimum(deviation, 2.0 * typical), 1e-3)
            far = (np.abs(error) > _FAR * sigma) & (np.abs(error) > FAR_LOG)
            for place in np.flatnonzero(far):
                expected = float(group.seconds[place] * math.exp(-error[place]))
                result.outliers.append(Outlier(int(group.lines[place]), float(group.seconds[place]), expected))
            implied = (np.abs(error) / points.process.scales.noise) ** 2
            group.noise = np.where(far, np.maximum(noise, implied), noise)
        if not result.outliers:
            break
    result.outliers += result.repeat_outliers
    result.outliers.sort(key=lambda outlier: outlier.line)
    return start


def _leave_one_out(fitted: Fitted, points: Points, group: Group) -> tuple[FloatArray, FloatArray]:
    """Return each row's error (log) and deviation of a process without it (merged rows: without their cell)."""
    formula, base = formula_times(fitted.device, group, fitted.values), transferred_factor(fitted.device, group)
    mean, spread = points.process(coordinates(fitted.frozen, group.bare), base)
    deviation = spread / Z90
    if len(points.group) == len(points.index):
        error, deviation[points.index] = points.process.leave_one_out()
        mean[points.index] = points.residual - error
    return np.log(group.seconds / np.maximum(formula.with_factor(mean), 1e-15)), deviation
