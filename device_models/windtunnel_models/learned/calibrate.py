"""Fitting a device to measurements of one operation.

The datasheet and other devices give the prior, so few rows move the numbers little and many rows determine them. Error
and interval come from five-fold cross-validation, in which every step of the fit is repeated. A row far from what the
other rows predict is reported and its weight is reduced; equal rows count as repeated measurements of one point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from windtunnel.core.device import Device, Parameters
from windtunnel.core.errors import InputError, Location
from windtunnel.core.ops import FloatArray, Rows
from windtunnel.core.optable import OpTable
from windtunnel.core.results.calibration import Outlier
from windtunnel.core.serving_ops import Collective
from windtunnel_models.learned.calibration import Calibration, FittedLinearModel, Group, Points, Repeats
from windtunnel_models.learned.fit import (
    FAR_LOG,
    FEWEST_OF_A_CURVE,
    FEWEST_ROWS,
    TYPICAL_ERROR,
    Fitted,
    fit_once,
    formula_points,
    linear_points,
    transferred_factor,
)
from windtunnel_models.learned.linear_model import LINEAR_OPERATIONS
from windtunnel_models.learned.outliers import reduce_outliers, warn_of_units
from windtunnel_models.learned.power import fit_power
from windtunnel_models.learned.residuals import choice_key

FOLDS = 5

_CLEAR = 1.0
"""Standard errors by which the cross-validation error must improve before a linear model replaces the formula."""

_Predictions = tuple[FloatArray, FloatArray]
"""For every row of a group, by a fit that did not use it: the error (log) and the predicted 90% half-width."""


def calibrate(device: Device, table: OpTable, seconds: FloatArray, power_w: FloatArray | None = None) -> Calibration:
    """Fit a device to measurements of one operation.

    Args:
        device: The device without measurements of its own.
        table: The measured rows.
        seconds: The measured time of each row.
        power_w: The average power of each row (W), to which the numbers of the power model are fitted.

    Raises:
        InputError: for fewer than ``FEWEST_ROWS`` distinct rows (``FEWEST_OF_A_CURVE`` of a collective).
    """
    result = Calibration(device, table.op.name, len(seconds), 0)
    result.groups = list(_groups(device, table, seconds, result))
    result.device = device = _with_own_numbers(device, result.groups)
    result.distinct = sum(len(group) for group in result.groups)
    fewest = FEWEST_OF_A_CURVE if issubclass(table.op, Collective) else FEWEST_ROWS
    if result.distinct < fewest:
        raise InputError(
            f"{result.distinct} distinct measurements are too few for a fit",
            where=Location(table.table.file),
            expected=f"at least {fewest}",
        )
    # The fit solves hundreds of small systems, for which threads cost more than they save.
    with threadpool_limits(1):
        _fit(result)
        if power_w is not None:
            fitted = replace(device, values={**device.values, **result.values}, residuals={})
            result.power = fit_power(fitted, table, seconds, power_w)
            if result.power is not None:
                result.values.update(result.power.values)
    return result


def _with_own_numbers(device: Device, groups: Sequence[Group]) -> Device:
    """Return the device with its own numbers where the rows would read those of a similar number format."""
    own = device.kind.own_numbers.get(groups[0].rows.op.name) if groups else None
    values = dict(device.values)
    for group in groups if own is not None else ():
        assert own is not None  # noqa: S101  by the condition above
        values.update({path: v for path, v in own(Parameters(device), group.rows).items() if path not in values})
    return replace(device, values=values)


def _groups(device: Device, table: OpTable, seconds: FloatArray, result: Calibration) -> Iterator[Group]:
    """Yield the rows by their choices, with repeated measurements merged."""
    for places, rows in table.groups():
        device.cost_function(rows.op.name)  # raises for an operation that the kind does not run
        columns = np.stack([np.broadcast_to(values, rows.shape) for values in rows.numbers.values()], 1)
        distinct, which = np.unique(columns, axis=0, return_inverse=True)
        which = np.asarray(which).reshape(-1)
        lines = np.array([table.table.lines[place] for place in places])
        medians, first, noise = np.empty(len(distinct)), np.empty(len(distinct), dtype=np.int64), np.ones(len(distinct))
        repeats: dict[int, Repeats] = {}
        for i in range(len(distinct)):
            members = np.flatnonzero(which == i)
            medians[i], first[i] = np.median(seconds[places][members]), lines[members[0]]
            if len(members) > 1:
                result.duplicates.append(tuple(int(line) for line in lines[members]))
                repeats[i], noise[i] = _merged(lines[members], seconds[places][members])
        numbers = {name: distinct[:, i] for i, name in enumerate(rows.numbers)}
        # The folds depend on the number of rows alone, so that the same table gives the same fit.
        fold = np.random.default_rng(len(distinct)).permutation(len(distinct)) % FOLDS
        yield Group(Rows(rows.op, rows.choices, numbers), medians, first, fold, noise, repeats)


def _merged(lines: npt.NDArray[np.int64], seconds: FloatArray) -> tuple[Repeats, float]:
    """Return repeated measurements of one point, and their noise variance relative to one row.

    Of three or more, those far from their median are outliers. Two that disagree do not show which of them is wrong:
    what the other rows predict decides it (``reduce_outliers``). The variance is at least a quarter of that of a row,
    because the model has errors of its own, and it is larger if the repeats disagree.
    """
    middle = float(np.median(seconds))
    apart = np.log(seconds / middle)
    far = np.flatnonzero(np.abs(apart) > FAR_LOG) if len(seconds) > 2 else ()
    outliers = tuple(Outlier(int(lines[place]), float(seconds[place]), middle) for place in far)
    spread = 1.4826 * float(np.median(np.abs(apart)))
    noise = max(1.0 / len(seconds), 0.25, (spread / TYPICAL_ERROR) ** 2)
    return Repeats(lines, seconds, outliers), noise


def _fit(result: Calibration) -> None:
    """Fit all rows to find outliers, each fold for cross-validation, and all rows for the result."""
    device, groups = result.device, result.groups
    start, usual = _without_outliers(result)
    formula, flat, linear = _cross_validate(device, groups, start)
    final = fit_once(device, groups, start)
    smooth_error, flat_error = (
        np.abs(np.concatenate([errors for errors, _ in predictions])[usual]).mean() for predictions in (formula, flat)
    )
    # With few rows a residual that depends on size can be worse on other sizes than one constant factor.
    result.constant_factor_only = bool(flat_error < smooth_error)
    if result.constant_factor_only:
        formula, final.points = flat, _flat_points(final, groups)
    parts = np.split(usual, np.cumsum([len(group) for group in groups])[:-1])
    chosen, kept = [], final.points
    for i, (group, counts) in enumerate(zip(groups, parts, strict=True)):
        mine, other = formula[i], linear[i]
        chosen.append(mine)
        if other is None or not clearly_better(np.abs(other[0])[counts], np.abs(mine[0])[counts]):
            continue
        points = linear_points(final.frozen, group, final.values)
        if points is not None and points.linear_model is not None:
            chosen[i], kept[i] = other, points
            errors_of = [float(np.abs(np.expm1(-errors[counts])).mean()) for errors, _ in (mine, other)]
            key = "/".join(choice_key(group.rows))
            result.linear_models.append(FittedLinearModel(key, points.linear_model, *errors_of))
    result.values, result.numbers = final.values, final.numbers
    errors, spreads = (np.concatenate([prediction[k] for prediction in chosen]) for k in (0, 1))
    # All groups share one width, because a group of few rows has no quantile of its own. The quantile is that of one
    # further row (conformal prediction on rows left out).
    score = np.sort((np.abs(errors) / spreads)[usual])
    width = float(score[min(len(score) - 1, math.ceil(0.9 * (len(score) + 1)) - 1)])
    result.points = [points for points in kept if points is not None]
    result.launch_bound = result.distinct - sum(len(points.index) for points in result.points)
    result.width = width
    held_out_errors, widths = errors[usual], width * spreads[usual]
    result.cross_validation_error = float(np.abs(np.expm1(-held_out_errors)).mean())
    result.interval_coverage = float(np.mean(np.abs(held_out_errors) <= widths))
    result.interval_half_width = float(np.median(np.sinh(widths)))


def _without_outliers(result: Calibration) -> tuple[Mapping[str, float], npt.NDArray[np.bool_]]:
    """Find the outliers; return the shifts from which fits start, and which rows are none (all if every row is one)."""
    device, groups = result.device, result.groups
    prior = np.concatenate([device.cost(group.rows, intervals=False).duration_s for group in groups])
    warn_of_units(result, np.log(prior / np.concatenate([group.seconds for group in groups])))
    start = reduce_outliers(result, device)
    before = prior / np.concatenate([group.seconds for group in groups]) - 1.0
    named = {outlier.line for outlier in result.outliers if outlier not in result.repeat_outliers}
    usual = np.concatenate([~np.isin(group.lines, list(named)) for group in groups])
    usual = usual | ~usual.any()
    result.error_before = float(np.abs(before[usual]).mean())
    return start, usual


def _flat_points(fitted: Fitted, groups: Sequence[Group]) -> list[Points | None]:
    """Return the processes of the same fit with one constant factor per group."""
    return [
        formula_points(
            fitted.device, fitted.frozen, group, transferred_factor(fitted.device, group), fitted.values, flat=True
        )
        if len(group)
        else None
        for group in groups
    ]


def _cross_validate(
    device: Device, groups: Sequence[Group], start: Mapping[str, float]
) -> tuple[list[_Predictions], list[_Predictions], list[_Predictions | None]]:
    """Return the predictions of rows left out, by fold: by the formula with a smooth residual, by the formula with a
    constant factor, and by a linear model where every fold determines one.

    Groups that differ only in their dispatch share one entry of an overlay, so they have no linear model.
    """
    keys = [choice_key(group.rows) for group in groups]
    may = [groups[0].rows.op.name in LINEAR_OPERATIONS and keys.count(key) == 1 for key in keys]
    smooth, constant, linear = ([(np.zeros(len(group)), np.ones(len(group))) for group in groups] for _ in range(3))
    for fold in range(FOLDS):
        others = [group.take(np.flatnonzero(group.fold != fold)) for group in groups]
        fitted = fit_once(device, others, start)
        flat = _flat_points(fitted, others)
        for i, group in enumerate(groups):
            index = np.flatnonzero(group.fold == fold)
            if not len(index):
                continue
            model = linear_points(fitted.frozen, others[i], fitted.values) if may[i] else None
            may[i] = model is not None
            for points, into in ((fitted.points[i], smooth[i]), (flat[i], constant[i]), (model, linear[i])):
                predicted, into[1][index] = fitted.predict(points, group.take(index))
                into[0][index] = np.log(group.seconds[index]) - predicted
    return smooth, constant, [errors if able else None for errors, able in zip(linear, may, strict=True)]


def clearly_better(errors: FloatArray, others: FloatArray) -> bool:
    """Return whether the mean of ``errors`` is smaller than that of ``others`` on the same rows by ``_CLEAR`` SE."""
    gain = others - errors
    return bool(len(gain) > 1 and gain.mean() > _CLEAR * gain.std(ddof=1) / math.sqrt(len(gain)))
