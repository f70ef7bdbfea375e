"""One fit: the formula's numbers with a prior, then a Gaussian process over the residual of each group of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Device, Parameters
from windtunnel.core.ops import FloatArray
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.results.calibration import FittedNumber
from windtunnel_models.learned.calibration import Group, Points
from windtunnel_models.learned.least_squares import least_squares
from windtunnel_models.learned.linear_model import fit_linear_model
from windtunnel_models.learned.power import robust
from windtunnel_models.learned.process import MOST_POINTS, Z90, Process, best_scales, merge
from windtunnel_models.learned.residuals import TransferredResidual, coordinates, relatives_of

FEWEST_ROWS = 10
"""The least number of distinct rows for a fit: five folds of fewer than two rows cannot be cross-validated."""

FEWEST_OF_A_CURVE = 3
"""The same of a collective, whose curve over bytes is known but for its latency and its rate."""

TYPICAL_ERROR = 0.08
"""The residual (log) that has the weight of one standard deviation of the prior."""

FAR_LOG = 0.25
"""The least distance (log) of an outlier from what the other rows predict."""

_MIN_OWN_SHARE = 1.0 / 3.0
"""The least share of device time at which a row carries information about the device rather than the host."""

_HOST_NUMBERS = dict.fromkeys(
    ("round_trip_s", "dispatch_s", "graph_node_s", "framework_dispatch_s", "eager_share"), 0.5
)
"""The parameters that rows timed by the host read in addition, and the deviation (log) between hosts."""

_SAME_DIE_SHARE = 0.3
"""The deviation of a device's numbers from those of a similar board of its die, over that between devices.

From two campaigns on B200, of which the second was calibrated with 100 rows as if it were another SKU: an error of
5.6% with a share of 1, 5.4% with 0.3 and 5.5% with 0.1, and coverages of 89%, 92% and 91%.
"""

_SURPRISE = 1.5
"""Standard deviations beyond which a row's noise is set to its error (Huber's weights)."""

_NEIGHBOURS = 6
"""The number of rows nearest in size by whose median a row is clipped."""

_MANY_GROUPS = 5
"""Combinations of choices up to which a fit takes as many steps as it needs."""

_MAX_FITTED = 500
"""The number of rows to which the formula's numbers are fitted; more rows are thinned."""


@dataclass(frozen=True)
class _Times:
    """The formula's times of rows (s): in their context, and the device time within that."""

    whole: FloatArray
    own: FloatArray

    def with_factor(self, log_factor: FloatArray) -> FloatArray:
        """Return the time in context if the device time is multiplied by ``exp(log_factor)``."""
        return np.asarray(self.whole + self.own * np.expm1(log_factor))

    def own_of(self, seconds: FloatArray) -> FloatArray:
        """Return the device time within measured times: less what the context adds by the formula."""
        return np.asarray(seconds - (self.whole - self.own))


def formula_times(device: Device, group: Group, values: dict[str, SourcedValue]) -> _Times:
    """Return the times by the formula alone."""
    bare = replace(device, values={**device.values, **values}, residuals={})
    own = bare.cost(group.bare, intervals=False).duration_s
    whole = own if group.bare is group.rows else bare.cost(group.rows, intervals=False).duration_s
    return _Times(whole, own)


def transferred_factor(device: Device, group: Group) -> FloatArray:
    """Return the log factor that relatives predict, or zero if there are none."""
    return relatives_of(device.residuals.get(group.rows.op.name), group.bare)


def _movable(device: Device, groups: Sequence[Group]) -> dict[str, float]:
    """Return the prior deviation (log) of each parameter that the operation's measurements may move and rows read."""
    op = groups[0].rows.op.name
    relatives = device.residuals.get(op)
    share = _SAME_DIE_SHARE if isinstance(relatives, TransferredResidual) and relatives.relation == "die" else 1.0
    deviations = {name: share * deviation for name, deviation in device.kind.fits.get(op, {}).items()}
    if any(group.bare is not group.rows for group in groups):
        deviations = {**_HOST_NUMBERS, **deviations}
    used: dict[str, SourcedValue] = {}
    for group in groups:
        parameters = Parameters(replace(device, residuals={}))
        device.cost_function(op)(parameters, group.rows)
        used.update(parameters.used)
    return {path: deviations[path.partition(".")[0]] for path in sorted(used) if path.partition(".")[0] in deviations}


class _Formula:
    """The formula's numbers as shifts (log, in prior standard deviations) from their start values."""

    def __init__(self, device: Device, groups: Sequence[Group], base: Sequence[FloatArray]) -> None:
        self.device, self.groups = device, groups
        self.deviations = _movable(device, groups)
        self.start = {path: device.values[path] for path in self.deviations if device.values[path].value > 0.0}
        self.paths = list(self.start)
        self.base = base

    def values(self, shifts: FloatArray) -> dict[str, SourcedValue]:
        """Return the numbers at ``shifts``."""
        source = f"fitted to {sum(len(group) for group in self.groups)} measurements"
        moved = {}
        for path, shift in zip(self.paths, shifts, strict=True):
            value = self.start[path].value * math.exp(float(np.clip(shift, -6.0, 6.0)) * self.deviations[path])
            moved[path] = SourcedValue(value, Provenance.MEASURED, source)
        return moved

    def errors(self, shifts: FloatArray) -> FloatArray:
        """Return the errors of all rows for least squares, in standard deviations."""
        values = self.values(shifts)
        parts = []
        for group, base in zip(self.groups, self.base, strict=True):
            predicted = formula_times(self.device, group, values).with_factor(base)
            error = np.log(np.maximum(predicted, 1e-15) / group.seconds) / TYPICAL_ERROR
            parts.append(robust(error))
        return np.concatenate(parts)

    def _reads(self) -> npt.NDArray[np.bool_]:
        """Return which errors depend on which numbers, so that numbers of different formats are varied together."""
        blocks = []
        for group in self.groups:
            parameters = Parameters(replace(self.device, residuals={}))
            self.device.cost_function(group.rows.op.name)(parameters, group.rows)
            read = np.array([path in parameters.used for path in self.paths], dtype=bool)
            blocks.append(np.tile(read, (len(group), 1)))
        return np.concatenate(blocks)

    def fit(self, start: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
        """Return the shifts of least loss, searched from ``start``, and their standard deviations (by curvature)."""
        if not self.paths:
            return np.zeros(0), np.zeros(0)
        first = np.array([start.get(path, 0.0) for path in self.paths])
        reads = self._reads() if len(self.groups) > 1 else None
        # The cost of a step grows with the combinations of choices, so many of them get fewer steps.
        steps = max(6, 30 * _MANY_GROUPS // max(len(self.groups), _MANY_GROUPS))
        found = least_squares(self.errors, first, steps=steps, reads=reads)
        return found.shifts, np.sqrt(np.diag(np.linalg.pinv(found.slopes.T @ found.slopes)))


def linear_points(frozen: Device, group: Group, values: dict[str, SourcedValue]) -> Points | None:
    """Return the process of a group relative to a linear model, or None if its rows do not determine one."""
    own = formula_times(frozen, group, values).own_of(group.seconds)
    index = np.flatnonzero(own > _MIN_OWN_SHARE * group.seconds)
    if len(index) < FEWEST_ROWS:
        return None
    group, own = group.take(index), own[index]
    model = fit_linear_model(group.bare, own, group.noise)
    z, none = coordinates(frozen, group.bare), np.zeros(len(index))
    kept = _process(group, clipped(np.log(own / model.seconds(group.bare)), none, z), none, z, may_be_flat=True)
    model = model.with_covariance(kept.group.bare, kept.group.noise, kept.process.scales)
    return replace(kept, linear_model=model, index=index) if model.is_identified(kept.group.bare) else None


def formula_points(
    device: Device,
    frozen: Device,
    group: Group,
    base: FloatArray,
    values: dict[str, SourcedValue],
    *,
    flat: bool = False,
) -> Points | None:
    """Return the process of a group relative to the formula, or None if all rows are dominated by the host's time.

    ``flat``: the residual is one factor for all sizes.
    """
    predicted = formula_times(device, group, values)
    own = predicted.own_of(group.seconds)
    index = np.flatnonzero(own > _MIN_OWN_SHARE * group.seconds)
    if not len(index):
        return None
    group, base = group.take(index), base[index]
    z = coordinates(frozen, group.bare)
    residual = clipped(np.log(own[index] / predicted.own[index]), base, z)
    return replace(_process(group, residual, base, z, flat=flat), index=index)


def _process(
    group: Group,
    residual: FloatArray,
    base: FloatArray,
    z: FloatArray,
    *,
    may_be_flat: bool = False,
    flat: bool = False,
) -> Points:
    """Return the process over residuals at coordinates ``z``, with rows merged if there are too many."""
    if len(group) > MOST_POINTS:
        cell = merge(z)
        kept = np.array([members[len(members) // 2] for members in _members(cell)])
        mean = np.array([float(np.mean((residual - base)[members])) for members in _members(cell)]) + base[kept]
        # Rows of a cell differ by more than their noise, so the variance of their mean has a lower bound.
        noise = np.array([max(float(np.mean(group.noise[m])) / len(m), 0.25) for m in _members(cell)])
        group, z, base, residual = group.take(kept), z[kept], base[kept], mean
        group.noise = noise
    scales = best_scales(z, residual, base, group.noise, may_be_flat=may_be_flat, flat=flat)
    process = Process(z, residual, base, group.noise, scales)
    # Errors have heavier tails than a normal distribution: reduce the weight of outliers, and fit the scales again.
    error, deviation = process.leave_one_out()
    group.noise = group.noise * np.maximum(1.0, np.abs(error) / (_SURPRISE * deviation)) ** 2
    scales = best_scales(z, residual, base, group.noise, may_be_flat=may_be_flat, flat=flat)
    return Points(group, residual, Process(z, residual, base, group.noise, scales), np.arange(len(group)))


def _members(cell: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    order = np.argsort(cell, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(cell[order])) + 1)


def clipped(residual: FloatArray, base: FloatArray, z: FloatArray) -> FloatArray:
    """Return residuals clipped to those of the rows nearest in size, so that a wrong unit does not bend the fit.

    The limit is a factor of two around their median, and more where sizes differ. A time and its formula both grow with
    a size by a power between 0 and 1, so their ratio changes by the ratio of the sizes at most.
    """
    from scipy.spatial import cKDTree

    count = min(len(z) - 1, _NEIGHBOURS)
    if count < 1:
        return residual
    distance, near = cKDTree(z).query(z, k=count + 1)
    rows = np.arange(len(z))
    others = np.asarray(near).reshape(len(z), -1)
    apart = np.asarray(distance).reshape(len(z), -1)
    middle, reach = np.empty(len(z)), np.empty(len(z))
    for i in rows:
        kept = others[i] != i
        middle[i] = np.median((residual - base)[others[i][kept][:count]]) + base[i]
        reach[i] = math.log(2.0) + math.log(8.0) * np.median(apart[i][kept][:count])
    return np.asarray(np.clip(residual, middle - reach, middle + reach))


def thinned(groups: Sequence[Group]) -> list[Group]:
    """Return at most ``_MAX_FITTED`` rows in all, evenly from each group, in the order of their columns."""
    total = sum(len(group) for group in groups)
    if total <= _MAX_FITTED:
        return list(groups)
    step = total / _MAX_FITTED
    return [group.take(np.unique(np.arange(0.0, len(group), step).astype(np.int64))) for group in groups]


@dataclass
class Fitted:
    """A fit: the formula's numbers, and the residual process of each group (None for a group without rows)."""

    device: Device
    frozen: Device
    values: dict[str, SourcedValue]
    numbers: list[FittedNumber]
    points: list[Points | None]
    shifts: Mapping[str, float]

    def predict(self, points: Points | None, rest: Group) -> tuple[FloatArray, FloatArray]:
        """Return the predicted logarithm of the time of each row, and its 90% half-width."""
        formula, base = formula_times(self.device, rest, self.values), transferred_factor(self.device, rest)
        if points is None:
            return np.log(formula.with_factor(base)), np.full(len(rest), 2.0 * FAR_LOG)
        mean, spread = points.log_ratio(self.frozen, rest.bare, base)
        whole = np.maximum(formula.with_factor(mean), 1e-15)
        # The device time is uncertain; the rest of the time varies as measurements do.
        part = np.minimum(formula.own * np.exp(mean) / whole, 1.0)
        return np.log(whole), np.maximum(spread * part, Z90 * points.process.scales.noise)


def fit_once(device: Device, groups: Sequence[Group], start: Mapping[str, float] | None = None) -> Fitted:
    """Fit numbers and processes, with the relatives' factor before the formula or without it: whichever is likelier."""
    bases = [transferred_factor(device, group) for group in groups]
    candidates = [0.0, 1.0] if any(np.any(base) for base in bases) else [0.0]
    best: tuple[float, Fitted] | None = None
    for share in candidates:
        thin = thinned(groups)
        formula = _Formula(device, thin, [share * transferred_factor(device, group) for group in thin])
        shifts, deviations = formula.fit(start or {})
        values = formula.values(shifts)
        frozen = replace(device, values={**device.values, **values}, residuals={})
        likelihood = 0.0
        points: list[Points | None] = []
        for group, base in zip(groups, bases, strict=True):
            kept = formula_points(device, frozen, group, base, values) if len(group) else None
            points.append(kept)
            likelihood += kept.process.log_likelihood if kept is not None else 0.0
        likelihood -= 0.5 * float(shifts @ shifts)
        if best is None or likelihood > best[0]:
            numbers = [
                FittedNumber(
                    path, formula.start[path].value, values[path].value, math.exp(sd * formula.deviations[path])
                )
                for path, sd in zip(formula.paths, deviations, strict=True)
            ]
            best = (
                likelihood,
                Fitted(device, frozen, values, numbers, points, dict(zip(formula.paths, shifts, strict=True))),
            )
    assert best is not None  # noqa: S101  there is always a first candidate
    return best[1]
