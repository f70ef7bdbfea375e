"""Outliers of a calibration: rows far from what the other rows predict, and tables in a wrong unit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.ops import FloatArray
from windtunnel.core.results.calibration import Outlier
from windtunnel_models.learned.calibration import Calibration, Group, Points, Repeats
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

    This is done twice, because an outlier also moves the predictions of its neighbours until its weight is reduced. Of
    two measurements of one point that disagree, the one near the prediction of the other points replaces both.

    Returns the numbers' shifts, from which later fits start; the start changes their speed and not their result.
    """
    plain = [group.noise for group in result.groups]
    start: Mapping[str, float] = {}
    for _ in range(2):
        fitted = fit_once(device, result.groups, start)
        start = fitted.shifts
        result.outliers, result.repeat_outliers = [], []
        for group, points, noise in zip(result.groups, fitted.points, plain, strict=True):
            if points is None:
                result.repeat_outliers += [o for repeats in group.repeats.values() for o in repeats.outliers]
                continue
            _name_outliers(result, group, *_leave_one_out(fitted, points, group), noise, points.process.scales.noise)
        if not result.outliers and not result.repeat_outliers:
            break
    result.outliers += result.repeat_outliers
    result.outliers.sort(key=lambda outlier: outlier.line)
    return start


def _name_outliers(
    result: Calibration, group: Group, error: FloatArray, deviation: FloatArray, noise: FloatArray, scale: float
) -> None:
    """Record the outliers of a group, and set the noise of its rows and the times of its repeated points.

    Args:
        result: The calibration, to which the outliers are added.
        group: The rows.
        error: The error (log) of each row against the prediction of the other rows.
        deviation: The standard deviation of each prediction.
        noise: The noise variance of each row before outliers were known.
        scale: The noise (log) of a single measurement.
    """
    expected = group.seconds * np.exp(-error)
    typical = 1.4826 * float(np.median(np.abs(error)))
    limit = np.maximum(_FAR * np.maximum(np.minimum(deviation, 2.0 * typical), 1e-3), FAR_LOG)
    far = np.abs(error) > limit
    kept = noise.copy()
    for place, repeats in group.repeats.items():
        away = np.abs(np.log(repeats.seconds / expected[place])) > limit[place]
        if len(repeats.seconds) == 2 and away.any() and not away.all():
            # The other rows tell which of the two is right. It counts as a single measurement.
            good, bad = int(np.argmin(away)), int(np.argmax(away))
            group.seconds[place], group.lines[place] = repeats.seconds[good], repeats.lines[good]
            kept[place], far[place] = 1.0, False
            result.repeat_outliers.append(
                Outlier(int(repeats.lines[bad]), float(repeats.seconds[bad]), float(expected[place]))
            )
        elif len(repeats.seconds) == 2:
            far[place] = away.all()
        if not far[place]:
            result.repeat_outliers += repeats.outliers
    for index in np.flatnonzero(far).tolist():
        repeats = group.repeats.get(index) or Repeats(group.lines[[index]], group.seconds[[index]])
        result.outliers += [
            Outlier(int(line), float(seconds), float(expected[index]))
            for line, seconds in zip(repeats.lines, repeats.seconds, strict=True)
        ]
    group.noise = np.where(far, np.maximum(kept, (np.abs(error) / scale) ** 2), kept)


def _leave_one_out(fitted: Fitted, points: Points, group: Group) -> tuple[FloatArray, FloatArray]:
    """Return each row's error (log) and deviation of a process without it (merged rows: without their cell)."""
    formula, base = formula_times(fitted.device, group, fitted.values), transferred_factor(fitted.device, group)
    mean, spread = points.process(coordinates(fitted.frozen, group.bare), base)
    deviation = spread / Z90
    if len(points.group) == len(points.index):
        error, deviation[points.index] = points.process.leave_one_out()
        mean[points.index] = points.residual - error
    return np.log(group.seconds / np.maximum(formula.with_factor(mean), 1e-15)), deviation
