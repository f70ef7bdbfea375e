"""Fitting a device to measurements of it: the formula's numbers with a prior, then a process over what is left.

What came before (a datasheet, other devices) is the prior, so a few rows move little and many rows move all. The
error and the interval that are reported come from rows left out (five folds, every step of the fit repeated), never
from rows that were fitted. A row far from what the others say of it is named and weighed down; equal rows are named
and count as repeated measurements of one point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from windtunnel.core.device import Device, Parameters
from windtunnel.core.errors import InputError, Where
from windtunnel.core.ops import FloatArray, Rows
from windtunnel.core.optable import OpTable
from windtunnel.core.provenance import Provenance, Sourced
from windtunnel_models.learned.law import LAWFUL, Law, fit_law
from windtunnel_models.learned.power import PowerFit, fit_power, robust
from windtunnel_models.learned.process import MOST_POINTS, Z90, Process, best_scales, merge
from windtunnel_models.learned.residuals import choice_key, coordinates, relatives_of

FEWEST_ROWS = 10
"""Distinct rows below which nothing is fitted: five folds of fewer than two rows say nothing of what is left out."""

FOLDS = 5

_LEAST_OWN_SHARE = 1.0 / 3.0
"""Share of a time that must be the device's own for the row to say something of the device rather than of the host."""

_TYPICAL_ERROR = 0.08
"""Size of a residual (log) that weighs as much as one standard deviation of the prior."""

_FAR = 5.0
"""Standard deviations from what the other rows say beyond which a row is an outlier, and at least by ``_FAR_LOG``."""
_FAR_LOG = 0.25

_HOST_NUMBERS = dict.fromkeys(
    ("round_trip_s", "dispatch_s", "graph_node_s", "framework_dispatch_s", "eager_gap_s"), 0.5
)
"""What rows timed by the host read beside the device's own numbers, and how far (log) hosts differ."""

_SURPRISE = 1.5
"""Standard deviations beyond which a row's noise is taken to be as large as its error (Huber's weights)."""

_NEIGHBOURS = 6
"""Rows nearest in size, by whose median a row is judged."""

_CLEAR = 1.0
"""Standard errors by which a law's rows left out must be nearer than the formula's before it stands in its place."""

_MANY_GROUPS = 5
"""Combinations of choices that are fitted with as many steps as it takes."""

_MOST_FITTED = 500
"""Rows the formula's numbers are fitted to; more are thinned, since a dozen numbers need no more."""


@dataclass(frozen=True)
class Outlier:
    """A row that the others contradict: its line, what was measured, and what the others say."""

    line: int
    measured_s: float
    expected_s: float


@dataclass(frozen=True)
class LearnedNumber:
    """One number of the formula: before and after, and one standard deviation of the latter as a factor."""

    path: str
    before: float
    after: float
    factor: float


@dataclass(frozen=True)
class FoundLaw:
    """A law that stands in place of the formula for some choices, and both errors on rows left out (fractions)."""

    key: str
    law: Law
    error_formula: float
    error_law: float


@dataclass
class Calibration:
    """What a fit found. ``error_before`` and ``error_after`` are mean absolute percentage errors (fractions).

    ``error_before``: of the uncalibrated model on these rows; ``error_after``: of the calibrated one on rows left out;
    ``inside``, ``half_width``: of its 90% intervals there, after their width was set so that 90% lie inside. Rows that
    are named as outliers count in none of these.
    """

    device: Device
    op: str
    rows: int
    distinct: int
    values: dict[str, Sourced] = field(default_factory=dict)
    numbers: list[LearnedNumber] = field(default_factory=list)
    laws: list[FoundLaw] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)
    repeat_outliers: list[Outlier] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    duplicates: list[tuple[int, ...]] = field(default_factory=list)
    error_before: float = math.nan
    error_after: float = math.nan
    inside: float = math.nan
    half_width: float = math.nan
    launch_bound: int = 0
    width: float = 1.0
    level_alone: bool = False
    """Whether what the formula leaves is taken as one factor for all sizes: what varies with them was no nearer."""
    points: list[Points] = field(default_factory=list)
    power: PowerFit | None = None

    def report(self) -> dict[str, Any]:
        """What was learned and how sure it is, as plain data (errors as fractions, times in seconds)."""
        return {
            "device": self.device.label,
            "op": self.op,
            "rows": self.rows,
            "distinct": self.distinct,
            "launch_bound": self.launch_bound,
            "warnings": self.warnings,
            "duplicates": [list(lines) for lines in self.duplicates],
            "outliers": [
                {"line": o.line, "measured_s": o.measured_s, "expected_s": o.expected_s} for o in self.outliers
            ],
            "numbers": [
                {"parameter": n.path, "before": n.before, "after": n.after, "sd_factor": n.factor} for n in self.numbers
            ],
            "laws": [
                {
                    "choices": one.key,
                    **one.law.numbers,
                    "error_left_out": one.error_law,
                    "error_left_out_of_formula": one.error_formula,
                }
                for one in self.laws
            ],
            "error_before": self.error_before,
            "error_left_out": self.error_after,
            "level_alone": self.level_alone,
            "better": self.error_after < self.error_before,
            "inside": self.inside,
            "half_width": self.half_width,
            "power": None
            if self.power is None
            else {"error_before": self.power.error_before, "error_left_out": self.power.error_after},
        }


@dataclass
class Group:
    """The distinct rows of one combination of choices, context included: medians of repeated measurements (s)."""

    rows: Rows
    seconds: FloatArray
    lines: npt.NDArray[np.int64]
    fold: npt.NDArray[np.int64]
    noise: FloatArray

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def bare(self) -> Rows:
        """The same rows as the device alone would time them."""
        if self.rows.choices.get("dispatch", "device") == "device":
            return self.rows
        return replace(self.rows, choices={**self.rows.choices, "dispatch": "device"})

    def take(self, index: npt.NDArray[np.int64]) -> Group:
        """Some of the rows."""
        numbers = {name: values[index] for name, values in self.rows.numbers.items()}
        rows = Rows(self.rows.op, self.rows.choices, numbers)
        return Group(rows, self.seconds[index], self.lines[index], self.fold[index], self.noise[index])


def calibrate(device: Device, table: OpTable, seconds: FloatArray, power_w: FloatArray | None = None) -> Calibration:
    """Fit ``device`` (as it is without measurements of its own) to ``seconds``, one for each row of ``table``.

    ``power_w``: average power of the same rows (W), to which the numbers that power depends on are fitted.

    Raises InputError for fewer than ``FEWEST_ROWS`` distinct rows.
    """
    found = Calibration(device, table.op.name, len(seconds), 0)
    found.groups = list(_groups(device, table, seconds, found))
    found.device = device = _with_own_numbers(device, found.groups)
    found.distinct = sum(len(group) for group in found.groups)
    if found.distinct < FEWEST_ROWS:
        raise InputError(
            f"{found.distinct} distinct measurements are too few for a fit",
            where=Where(table.table.file),
            expected=f"at least {FEWEST_ROWS}",
        )
    # Hundreds of small systems: threads would wait for each other longer than they work.
    with threadpool_limits(1):
        _fit(found)
        if power_w is not None:
            fitted = replace(device, values={**device.values, **found.values}, residuals={})
            found.power = fit_power(fitted, table, seconds, power_w)
            if found.power is not None:
                found.values.update(found.power.values)
    return found


def _with_own_numbers(device: Device, groups: Sequence[Group]) -> Device:
    """``device`` with a number of its own wherever the rows would read one that stands in."""
    own = device.kind.own_numbers.get(groups[0].rows.op.name) if groups else None
    values = dict(device.values)
    for group in groups if own is not None else ():
        assert own is not None  # noqa: S101  said by the condition above, which the type checker cannot follow
        values.update({path: v for path, v in own(Parameters(device), group.rows).items() if path not in values})
    return replace(device, values=values)


def _groups(device: Device, table: OpTable, seconds: FloatArray, found: Calibration) -> Iterator[Group]:
    """Rows by their choices, with repeated measurements merged."""
    for places, rows in table.groups():
        device.cost_function(rows.op.name)  # refuses what the kind does not run
        columns = np.stack([np.broadcast_to(values, rows.shape) for values in rows.numbers.values()], 1)
        distinct, which = np.unique(columns, axis=0, return_inverse=True)
        which = np.asarray(which).reshape(-1)
        lines = np.array([table.table.lines[place] for place in places])
        medians, first, noise = np.empty(len(distinct)), np.empty(len(distinct), dtype=np.int64), np.ones(len(distinct))
        for i in range(len(distinct)):
            members = np.flatnonzero(which == i)
            medians[i], first[i], noise[i] = _repeated(seconds[places][members], lines[members], found)
        numbers = {name: distinct[:, i] for i, name in enumerate(rows.numbers)}
        # Folds by place, not by a draw: the same table gives the same fit.
        fold = np.random.default_rng(len(distinct)).permutation(len(distinct)) % FOLDS
        yield Group(Rows(rows.op, rows.choices, numbers), medians, first, fold, noise)


def _repeated(seconds: FloatArray, lines: npt.NDArray[np.int64], found: Calibration) -> tuple[float, int, float]:
    """One point of repeated measurements: their median, the first line, and its noise over that of a single row.

    Repeats far from their median are named as outliers. However many there are, a point is never more than four times
    as sure as a row (the model itself is rough), and repeats that disagree make it less sure than one.
    """
    middle = float(np.median(seconds))
    if len(seconds) == 1:
        return middle, int(lines[0]), 1.0
    found.duplicates.append(tuple(int(line) for line in lines))
    apart = np.log(seconds / middle)
    for place in np.flatnonzero(np.abs(apart) > _FAR_LOG):
        found.repeat_outliers.append(Outlier(int(lines[place]), float(seconds[place]), middle))
    spread = 1.4826 * float(np.median(np.abs(apart)))
    return middle, int(lines[0]), max(1.0 / len(seconds), 0.25, (spread / _TYPICAL_ERROR) ** 2)


@dataclass(frozen=True)
class _Times:
    """What the formula says of rows: in their context, and of the device's own part of that (s)."""

    whole: FloatArray
    own: FloatArray

    def with_factor(self, log_factor: FloatArray) -> FloatArray:
        """The time in context when the device's part is ``exp(log_factor)`` as long."""
        return np.asarray(self.whole + self.own * np.expm1(log_factor))

    def own_of(self, seconds: FloatArray) -> FloatArray:
        """The device's own part of measured times: what the context is said to add is taken off."""
        return np.asarray(seconds - (self.whole - self.own))


def _formula(device: Device, group: Group, values: dict[str, Sourced]) -> _Times:
    """What the formula alone says."""
    bare = replace(device, values={**device.values, **values}, residuals={})
    own = bare.cost(group.bare, intervals=False).duration_s
    whole = own if group.bare is group.rows else bare.cost(group.rows, intervals=False).duration_s
    return _Times(whole, own)


def _beneath(device: Device, group: Group) -> FloatArray:
    """What the device's relatives say of the residual; zero where there are none."""
    return relatives_of(device.residuals.get(group.rows.op.name), group.bare)


def _movable(device: Device, groups: Sequence[Group]) -> dict[str, float]:
    """Paths of the parameters that the kind lets measurements of the operation move and that these rows read."""
    deviations = dict(device.kind.fits.get(groups[0].rows.op.name, {}))
    if any(group.bare is not group.rows for group in groups):
        deviations = {**_HOST_NUMBERS, **deviations}
    used: dict[str, Sourced] = {}
    for group in groups:
        parameters = Parameters(replace(device, residuals={}))
        device.cost_function(group.rows.op.name)(parameters, group.rows)
        used.update(parameters.used)
    return {path: deviations[path.partition(".")[0]] for path in sorted(used) if path.partition(".")[0] in deviations}


class _Formula:
    """The formula's numbers as shifts (log, in prior standard deviations) from where they start."""

    def __init__(self, device: Device, groups: Sequence[Group], beneath: Sequence[FloatArray]) -> None:
        self.device, self.groups = device, groups
        self.deviations = _movable(device, groups)
        self.start = {path: device.values[path] for path in self.deviations if device.values[path].value > 0.0}
        self.paths = list(self.start)
        self.beneath = beneath

    def values(self, shifts: FloatArray) -> dict[str, Sourced]:
        """The numbers at ``shifts``."""
        source = f"fitted to {sum(len(group) for group in self.groups)} measurements"
        moved = {}
        for path, shift in zip(self.paths, shifts, strict=True):
            value = self.start[path].value * math.exp(float(np.clip(shift, -6.0, 6.0)) * self.deviations[path])
            moved[path] = Sourced(value, Provenance.MEASURED, source)
        return moved

    def errors(self, shifts: FloatArray) -> FloatArray:
        """Every row's error and every number's shift, in standard deviations: what least squares brings down."""
        values = self.values(shifts)
        parts = []
        for group, beneath in zip(self.groups, self.beneath, strict=True):
            said = _formula(self.device, group, values).with_factor(beneath)
            error = np.log(np.maximum(said, 1e-15) / group.seconds) / _TYPICAL_ERROR
            parts.append(robust(error))
        return np.concatenate([*parts, shifts])

    def _reads(self) -> npt.NDArray[np.int8]:
        """Which errors depend on which numbers: numbers of different formats can be moved at once."""
        blocks = []
        for group in self.groups:
            parameters = Parameters(replace(self.device, residuals={}))
            self.device.cost_function(group.rows.op.name)(parameters, group.rows)
            read = np.array([path in parameters.used for path in self.paths], dtype=np.int8)
            blocks.append(np.tile(read, (len(group), 1)))
        return np.concatenate([*blocks, np.eye(len(self.paths), dtype=np.int8)])

    def fit(self, start: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
        """Shifts of least loss, looked for from ``start``, and one standard deviation of each (from the curvature)."""
        from scipy.optimize import least_squares

        if not self.paths:
            return np.zeros(0), np.zeros(0)
        first = np.array([start.get(path, 0.0) for path in self.paths])
        sparsity = self._reads() if len(self.groups) > 1 else None
        # Every combination of choices is priced by itself, so many of them leave fewer steps within the same time.
        steps = max(6, 30 * _MANY_GROUPS // max(len(self.groups), _MANY_GROUPS))
        found = least_squares(self.errors, first, diff_step=0.05, max_nfev=steps, jac_sparsity=sparsity)
        slopes = np.asarray(found.jac.todense() if sparsity is not None else found.jac)
        return np.asarray(found.x), np.sqrt(np.diag(np.linalg.pinv(slopes.T @ slopes)))


@dataclass(frozen=True)
class Points:
    """What a process keeps of a group: rows (all, or one for each merged cell), their residuals (clipped) and noise.

    ``of``: places of the rows in their group, before any were merged; rows that are nearly all launch are left out.
    ``law``: what residuals are over in place of the formula.
    """

    group: Group
    residual: FloatArray
    process: Process
    of: npt.NDArray[np.int64]
    law: Law | None = None

    def ask(self, frozen: Device, rows: Rows, beneath: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the time over the formula's, and 90% half-width, of ``rows`` as the device alone times them."""
        mean, spread = self.process(coordinates(frozen, rows), beneath)
        if self.law is None:
            return mean, spread
        return self.law.over(mean, spread, frozen, rows, self.process.calibration)


def _lawful(frozen: Device, group: Group, values: dict[str, Sourced]) -> Points | None:
    """The process over what a law leaves of a group's rows; None where rows are few or do not bear a law."""
    said = _formula(frozen, group, values)
    own = said.own_of(group.seconds)
    of = np.flatnonzero(own > _LEAST_OWN_SHARE * group.seconds)
    if len(of) < FEWEST_ROWS:
        return None
    group, own = group.take(of), own[of]
    law = fit_law(group.bare, own, group.noise)
    z, none = coordinates(frozen, group.bare), np.zeros(len(of))
    kept = _process(group, _clipped(np.log(own / law.seconds(group.bare)), none, z), none, z, level_alone=True)
    law = law.doubted(kept.group.bare, kept.group.noise, kept.process.scales)
    return replace(kept, law=law, of=of) if law.tells(kept.group.bare) else None


def _points(
    device: Device, frozen: Device, group: Group, under: FloatArray, values: dict[str, Sourced], *, flat: bool = False
) -> Points | None:
    """The process over what the formula leaves of a group's rows; None where no row says enough of the device.

    ``flat``: a level of all rows, whatever their sizes.
    """
    said = _formula(device, group, values)
    own = said.own_of(group.seconds)
    of = np.flatnonzero(own > _LEAST_OWN_SHARE * group.seconds)
    if not len(of):
        return None
    group, under = group.take(of), under[of]
    z = coordinates(frozen, group.bare)
    residual = _clipped(np.log(own[of] / said.own[of]), under, z)
    return replace(_process(group, residual, under, z, flat=flat), of=of)


def _process(
    group: Group,
    residual: FloatArray,
    under: FloatArray,
    z: FloatArray,
    *,
    level_alone: bool = False,
    flat: bool = False,
) -> Points:
    """The process over residuals at ``z``, of as many points as it may keep."""
    if len(group) > MOST_POINTS:
        cell = merge(z)
        kept = np.array([members[len(members) // 2] for members in _members(cell)])
        mean = np.array([float(np.mean((residual - under)[members])) for members in _members(cell)]) + under[kept]
        # Rows of a cell differ by more than their noise, so that a hundred of them are not a hundred times as sure.
        noise = np.array([max(float(np.mean(group.noise[m])) / len(m), 0.25) for m in _members(cell)])
        group, z, under, residual = group.take(kept), z[kept], under[kept], mean
        group.noise = noise
    scales = best_scales(z, residual, under, group.noise, level_alone=level_alone, flat=flat)
    process = Process(z, residual, under, group.noise, scales)
    # Rows are less alike than a normal distribution has it: those that surprise count for less, and the scales follow.
    error, deviation = process.left_out()
    group.noise = group.noise * np.maximum(1.0, np.abs(error) / (_SURPRISE * deviation)) ** 2
    scales = best_scales(z, residual, under, group.noise, level_alone=level_alone, flat=flat)
    return Points(group, residual, Process(z, residual, under, group.noise, scales), np.arange(len(group)))


def _members(cell: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    order = np.argsort(cell, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(cell[order])) + 1)


@dataclass
class _Fitted:
    """A fit of the formula's numbers, and a process a group over what they leave (None for a group without rows)."""

    device: Device
    frozen: Device
    values: dict[str, Sourced]
    numbers: list[LearnedNumber]
    points: list[Points | None]
    shifts: Mapping[str, float]

    def ask(self, points: Points | None, rest: Group) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the time and its 90% half-width of rows of a group by what is kept of the others."""
        said, beneath = _formula(self.device, rest, self.values), _beneath(self.device, rest)
        if points is None:
            return np.log(said.with_factor(beneath)), np.full(len(rest), 2.0 * _FAR_LOG)
        mean, spread = points.ask(self.frozen, rest.bare, beneath)
        whole = np.maximum(said.with_factor(mean), 1e-15)
        # The device's part is what is uncertain; the rest of the time still varies as measurements do.
        part = np.minimum(said.own * np.exp(mean) / whole, 1.0)
        return np.log(whole), np.maximum(spread * part, Z90 * points.process.scales.noise)


def _fit_once(device: Device, groups: Sequence[Group], start: Mapping[str, float] | None = None) -> _Fitted:
    """Numbers and processes on the rows given, the relatives' answer taken off first or not: whichever is likelier."""
    beneath = [_beneath(device, group) for group in groups]
    candidates = [0.0, 1.0] if any(np.any(b) for b in beneath) else [0.0]
    best: tuple[float, _Fitted] | None = None
    for share in candidates:
        thin = _thinned(groups)
        formula = _Formula(device, thin, [share * _beneath(device, group) for group in thin])
        shifts, deviations = formula.fit(start or {})
        values = formula.values(shifts)
        frozen = replace(device, values={**device.values, **values}, residuals={})
        likelihood = 0.0
        points: list[Points | None] = []
        for group, under in zip(groups, beneath, strict=True):
            kept = _points(device, frozen, group, under, values) if len(group) else None
            points.append(kept)
            likelihood += kept.process.log_likelihood if kept is not None else 0.0
        likelihood -= 0.5 * float(shifts @ shifts)
        if best is None or likelihood > best[0]:
            numbers = [
                LearnedNumber(
                    path, formula.start[path].value, values[path].value, math.exp(sd * formula.deviations[path])
                )
                for path, sd in zip(formula.paths, deviations, strict=True)
            ]
            best = (
                likelihood,
                _Fitted(device, frozen, values, numbers, points, dict(zip(formula.paths, shifts, strict=True))),
            )
    assert best is not None  # noqa: S101  there is always a first candidate
    return best[1]


def _fit(found: Calibration) -> None:
    """The whole fit: on all rows to find far ones, a fold at a time for the figures, and on all rows to ship."""
    device, groups = found.device, found.groups
    before = [np.log(device.cost(group.rows, intervals=False).duration_s / group.seconds) for group in groups]
    _look_for_units(found, np.concatenate(before))
    start = _weigh_down(found, device)
    named = {outlier.line for outlier in found.outliers if outlier not in found.repeat_outliers}
    usual = np.concatenate([~np.isin(group.lines, list(named)) for group in groups])
    usual = usual | ~usual.any()
    found.error_before = float(np.abs(np.expm1(np.concatenate(before)[usual])).mean())
    plain, level, lawful = _held_back(device, groups, start)
    final = _fit_once(device, groups, start)
    smooth, flat = (np.abs(np.concatenate([one[0] for one in held])[usual]).mean() for held in (plain, level))
    # Where rows are few, what they say of sizes that were left out may be worse than what they say of all alike.
    found.level_alone = bool(flat < smooth)
    if found.level_alone:
        plain, final.points = level, _flat(final, groups)
    parts = np.split(usual, np.cumsum([len(group) for group in groups])[:-1])
    held, kept = [], final.points
    for i, (group, counts) in enumerate(zip(groups, parts, strict=True)):
        mine, other = plain[i], lawful[i]
        held.append(mine)
        if other is None or not clearly_better(np.abs(other[0])[counts], np.abs(mine[0])[counts]):
            continue
        points = _lawful(final.frozen, group, final.values)
        if points is not None and points.law is not None:
            held[i], kept[i] = other, points
            missed = [float(np.abs(np.expm1(-one[0][counts])).mean()) for one in (mine, other)]
            found.laws.append(FoundLaw("/".join(choice_key(group.rows)), points.law, *missed))
    found.values, found.numbers = final.values, final.numbers
    errors, spreads = (np.concatenate([one[k] for one in held]) for k in (0, 1))
    # One width for all groups: a group of few rows has no quantile of its own. The quantile is that of a further row
    # (conformal prediction on rows left out), not of these.
    score = np.sort((np.abs(errors) / spreads)[usual])
    width = float(score[min(len(score) - 1, math.ceil(0.9 * (len(score) + 1)) - 1)])
    found.points = [points for points in kept if points is not None]
    found.launch_bound = found.distinct - sum(len(points.of) for points in found.points)
    found.width = width
    every, widths = errors[usual], width * spreads[usual]
    found.error_after = float(np.abs(np.expm1(-every)).mean())
    found.inside = float(np.mean(np.abs(every) <= widths))
    found.half_width = float(np.median(np.sinh(widths)))


def _flat(fitted: _Fitted, groups: Sequence[Group]) -> list[Points | None]:
    """The same fit with a level a group in place of what depends on size."""
    return [
        _points(fitted.device, fitted.frozen, one, _beneath(fitted.device, one), fitted.values, flat=True)
        if len(one)
        else None
        for one in groups
    ]


_Held = tuple[FloatArray, FloatArray]
"""Of every row of a group, by a fit that it was left out of: its error (log) and the 90% half-width that was told."""


def _held_back(
    device: Device, groups: Sequence[Group], start: Mapping[str, float]
) -> tuple[list[_Held], list[_Held], list[_Held | None]]:
    """What the fit says of rows left out, a fold at a time: over the formula, smooth in size or a level alone, and over
    a law where folds bear one.

    Groups that differ in how they were dispatched share what an overlay keeps of them, so they have no law.
    """
    keys = [choice_key(group.rows) for group in groups]
    may = [groups[0].rows.op.name in LAWFUL and keys.count(key) == 1 for key in keys]
    plain = [(np.zeros(len(group)), np.ones(len(group))) for group in groups]
    level = [(np.zeros(len(group)), np.ones(len(group))) for group in groups]
    lawful = [(np.zeros(len(group)), np.ones(len(group))) for group in groups]
    for fold in range(FOLDS):
        others = [group.take(np.flatnonzero(group.fold != fold)) for group in groups]
        fitted = _fit_once(device, others, start)
        flat = _flat(fitted, others)
        for i, group in enumerate(groups):
            asked = np.flatnonzero(group.fold == fold)
            if not len(asked):
                continue
            law = _lawful(fitted.frozen, others[i], fitted.values) if may[i] else None
            may[i] = law is not None
            for points, into in ((fitted.points[i], plain[i]), (flat[i], level[i]), (law, lawful[i])):
                said, into[1][asked] = fitted.ask(points, group.take(asked))
                into[0][asked] = np.log(group.seconds[asked]) - said
    return plain, level, [one if able else None for one, able in zip(lawful, may, strict=True)]


def clearly_better(errors: FloatArray, others: FloatArray) -> bool:
    """Whether ``errors`` of rows left out are smaller in the mean than ``others`` of the same rows, beyond chance."""
    gain = others - errors
    return bool(len(gain) > 1 and gain.mean() > _CLEAR * gain.std(ddof=1) / math.sqrt(len(gain)))


def _look_for_units(found: Calibration, before: FloatArray) -> None:
    """Warn where the model is off by a factor that a slip of the unit makes."""
    factor = math.exp(-float(np.median(before)))
    for name, size in (("milliseconds", 1e3), ("microseconds", 1e6), ("nanoseconds", 1e9)):
        if 0.1 < factor / size < 10.0:
            found.warnings.append(
                f"half of the rows took over {factor:.3g} times what was expected: is latency_s in {name}?"
            )
    if factor < 1e-2:
        found.warnings.append(
            f"half of the rows took less than {factor:.2g} of what was expected: is latency_s in seconds?"
        )


def _clipped(residual: FloatArray, beneath: FloatArray, z: FloatArray) -> FloatArray:
    """Residuals held near those of the rows nearest in size, so that a slip of the unit bends nothing.

    Near: within a factor of two of their median, and of what sizes that differ may add. Both a time and its formula
    grow with a size by a power of 0 to 1, so that their ratio changes by the sizes' ratio at most: a launch that the
    formula does not know is all of a short row's time and nothing of a long one's, and no slip of anybody's.
    """
    from scipy.spatial import cKDTree

    most = min(len(z) - 1, _NEIGHBOURS)
    if most < 1:
        return residual
    distance, near = cKDTree(z).query(z, k=most + 1)
    rows = np.arange(len(z))
    others = np.asarray(near).reshape(len(z), -1)
    apart = np.asarray(distance).reshape(len(z), -1)
    middle, reach = np.empty(len(z)), np.empty(len(z))
    for i in rows:
        kept = others[i] != i
        middle[i] = np.median((residual - beneath)[others[i][kept][:most]]) + beneath[i]
        reach[i] = math.log(2.0) + math.log(8.0) * np.median(apart[i][kept][:most])
    return np.asarray(np.clip(residual, middle - reach, middle + reach))


def _weigh_down(found: Calibration, device: Device) -> Mapping[str, float]:
    """Name the rows far from what all others say, and give them the noise that makes them plausible.

    Twice: a slip of the unit makes its neighbours look far too, until it counts for nothing itself. Returns where the
    numbers ended, for later fits to set out from (where they end does not depend on it, how soon does).
    """
    plain = [group.noise for group in found.groups]
    start: Mapping[str, float] = {}
    for _ in range(2):
        fitted = _fit_once(device, found.groups, start)
        start = fitted.shifts
        found.outliers = []
        for group, points, noise in zip(found.groups, fitted.points, plain, strict=True):
            if points is None:
                continue
            error, deviation = _errors_left_out(fitted, points, group)
            typical = 1.4826 * float(np.median(np.abs(error)))
            sigma = np.maximum(np.minimum(deviation, 2.0 * typical), 1e-3)
            far = (np.abs(error) > _FAR * sigma) & (np.abs(error) > _FAR_LOG)
            for place in np.flatnonzero(far):
                expected = float(group.seconds[place] * math.exp(-error[place]))
                found.outliers.append(Outlier(int(group.lines[place]), float(group.seconds[place]), expected))
            implied = (np.abs(error) / points.process.scales.noise) ** 2
            group.noise = np.where(far, np.maximum(noise, implied), noise)
        if not found.outliers:
            break
    found.outliers += found.repeat_outliers
    found.outliers.sort(key=lambda outlier: outlier.line)
    return start


def _errors_left_out(fitted: _Fitted, points: Points, group: Group) -> tuple[FloatArray, FloatArray]:
    """Each row's error (log) and deviation when the process is asked without it (merged rows: with their cell)."""
    said, beneath = _formula(fitted.device, group, fitted.values), _beneath(fitted.device, group)
    mean, spread = points.process(coordinates(fitted.frozen, group.bare), beneath)
    deviation = spread / Z90
    if len(points.group) == len(points.of):
        error, deviation[points.of] = points.process.left_out()
        mean[points.of] = points.residual - error
    return np.log(group.seconds / np.maximum(said.with_factor(mean), 1e-15)), deviation


def _thinned(groups: Sequence[Group]) -> list[Group]:
    """At most ``_MOST_FITTED`` rows in all, evenly from each group, in the order of their columns."""
    total = sum(len(group) for group in groups)
    if total <= _MOST_FITTED:
        return list(groups)
    step = total / _MOST_FITTED
    return [group.take(np.unique(np.arange(0.0, len(group), step).astype(np.int64))) for group in groups]
