"""The result of a calibration: the fitted numbers and their accuracy. Errors are fractions, times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.data import INLINE, Result


@dataclass(frozen=True)
class Outlier(Result):
    """A row far from what the other rows predict: its line, its measured time and the predicted one (s)."""

    line: int
    measured_s: float
    expected_s: float


@dataclass(frozen=True)
class FittedNumber(Result):
    """A number of the formula before and after the fit (SI), and its standard deviation as a factor."""

    parameter: str
    before: float
    after: float
    sd_factor: float


@dataclass(frozen=True)
class FittedFormula(Result):
    """A linear model that replaces the formula for a combination of choices, and the errors of both.

    ``numbers``: ``launch_s``, ``bytes_per_s`` and ``flops_per_s``, as far as the model has them (SI).
    """

    combination: str
    numbers: Mapping[str, float] = field(metadata=INLINE)
    cross_validation_error: float
    formula_cross_validation_error: float


@dataclass(frozen=True)
class PowerErrors(Result):
    """The errors of the predicted power before and after the fit."""

    error_before: float
    cross_validation_error: float


@dataclass(frozen=True)
class BeyondDatasheet(Result):
    """A row that is faster than the datasheet of its device allows: the least time by it, and its arithmetic."""

    line: int
    measured_s: float
    least_s: float
    why: str


@dataclass(frozen=True)
class FitReport(Result):
    """A fit and its accuracy; see ``windtunnel_models.learned.calibration.Calibration``."""

    device: str
    op: str
    rows: int
    distinct: int
    launch_bound: int
    warnings: Sequence[str]
    duplicates: Sequence[Sequence[int]]
    outliers: Sequence[Outlier]
    numbers: Sequence[FittedNumber]
    linear_models: Sequence[FittedFormula]
    error_before: float
    cross_validation_error: float
    constant_factor_only: bool
    improves_on_prior: bool
    interval_coverage: float
    interval_half_width: float
    power: PowerErrors | None


@dataclass(frozen=True)
class CalibrationResult(FitReport):
    """A fit compared with the shipped model.

    ``shipped_error`` is the error of the shipped model on the same rows without the outliers. ``instead_of`` lists the
    operations of the shipped calibration, which the new one replaces. ``beyond_datasheet`` lists the rows that are
    faster than the datasheet allows. They are not in the fit, unless they are ``trusted``.
    """

    shipped_error: float
    instead_of: Sequence[str]
    beyond_datasheet: Sequence[BeyondDatasheet] = ()
    trusted: bool = False
