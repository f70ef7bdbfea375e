"""The result of a calibration, and the rows and processes that it consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Device
from windtunnel.core.ops import FloatArray, Rows
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.results.calibration import FitReport, FittedFormula, FittedNumber, Outlier, PowerErrors
from windtunnel_models.learned.linear_model import LinearCostModel
from windtunnel_models.learned.power import PowerFit
from windtunnel_models.learned.process import Process
from windtunnel_models.learned.residuals import coordinates


@dataclass(frozen=True)
class Repeats:
    """The repeated measurements of one point: their lines and times (s), and those that are known to be outliers."""

    lines: npt.NDArray[np.int64]
    seconds: FloatArray
    outliers: tuple[Outlier, ...] = ()


@dataclass
class Group:
    """The distinct rows of one combination of choices, context included.

    Attributes:
        rows: The rows.
        seconds: The median of the measurements of each row.
        lines: The line of each row in the table; of repeated measurements that of the first one that counts.
        fold: The cross-validation fold of each row.
        noise: The noise variance of each row, relative to that of a single measurement.
        repeats: The repeated measurements of each row that has some, by the index of the row.
    """

    rows: Rows
    seconds: FloatArray
    lines: npt.NDArray[np.int64]
    fold: npt.NDArray[np.int64]
    noise: FloatArray
    repeats: dict[int, Repeats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def bare(self) -> Rows:
        """The same rows with ``dispatch=device``."""
        if self.rows.choices.get("dispatch", "device") == "device":
            return self.rows
        return replace(self.rows, choices={**self.rows.choices, "dispatch": "device"})

    def take(self, index: npt.NDArray[np.int64]) -> Group:
        """Return the rows at ``index``."""
        numbers = {name: values[index] for name, values in self.rows.numbers.items()}
        rows = Rows(self.rows.op, self.rows.choices, numbers)
        return Group(rows, self.seconds[index], self.lines[index], self.fold[index], self.noise[index])


@dataclass(frozen=True)
class Points:
    """The residual process of a group.

    Attributes:
        group: Its rows: all, or one for each merged cell.
        residual: Their residuals (log), clipped.
        process: The process.
        index: The indices of the rows in their group before merging. Rows dominated by the launch are left out.
        linear_model: The model to which residuals refer, if it replaces the formula.
    """

    group: Group
    residual: FloatArray
    process: Process
    index: npt.NDArray[np.int64]
    linear_model: LinearCostModel | None = None

    def log_ratio(self, frozen: Device, rows: Rows, base: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log(time / formula) of rows with ``dispatch=device``, and its 90% half-width."""
        mean, spread = self.process(coordinates(frozen, rows), base)
        if self.linear_model is None:
            return mean, spread
        return self.linear_model.log_ratio(mean, spread, frozen, rows, self.process.calibration)


@dataclass(frozen=True)
class FittedLinearModel:
    """A linear model that replaces the formula for some choices, and the cross-validation errors of both."""

    key: str
    model: LinearCostModel
    formula_error: float
    model_error: float


@dataclass
class Calibration:
    """The result of a fit. Errors are mean absolute relative errors (fractions); outliers count in none of them.

    Attributes:
        device: The device without measurements of its own, with the numbers that its rows read.
        op: The operation.
        rows: The number of measurements.
        distinct: The number of distinct points among them.
        values: The fitted parameters, by path, in SI units.
        numbers: The same with their values before the fit and their standard deviations.
        linear_models: The linear models that replace the formula.
        groups: The distinct rows, by combination of choices.
        outliers: All outliers, by line.
        repeat_outliers: Those among repeated measurements whose other repeats are none.
        warnings: Messages about the table.
        duplicates: The lines of each repeated point.
        error_before: The error of the uncalibrated model.
        cross_validation_error: The error of the calibrated model on rows that the fit did not use.
        interval_coverage: The share of those rows inside the 90% interval, after its width was calibrated.
        interval_half_width: The median half-width of those intervals relative to the value.
        launch_bound: The number of distinct rows that are dominated by the launch.
        width: The factor on all intervals by which they contain 90% of the rows left out.
        constant_factor_only: Whether the residual is one factor for all sizes.
        points: The residual processes, by combination of choices.
        power: The fit of power, if power was measured.
    """

    device: Device
    op: str
    rows: int
    distinct: int
    values: dict[str, SourcedValue] = field(default_factory=dict)
    numbers: list[FittedNumber] = field(default_factory=list)
    linear_models: list[FittedLinearModel] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)
    repeat_outliers: list[Outlier] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    duplicates: list[tuple[int, ...]] = field(default_factory=list)
    error_before: float = math.nan
    cross_validation_error: float = math.nan
    interval_coverage: float = math.nan
    interval_half_width: float = math.nan
    launch_bound: int = 0
    width: float = 1.0
    constant_factor_only: bool = False
    points: list[Points] = field(default_factory=list)
    power: PowerFit | None = None

    def report(self) -> FitReport:
        """Return the fit and its accuracy (errors as fractions, times in seconds)."""
        power = self.power
        return FitReport(
            device=self.device.label,
            op=self.op,
            rows=self.rows,
            distinct=self.distinct,
            launch_bound=self.launch_bound,
            warnings=self.warnings,
            duplicates=self.duplicates,
            outliers=self.outliers,
            numbers=self.numbers,
            linear_models=[
                FittedFormula(fitted.key, fitted.model.numbers, fitted.model_error, fitted.formula_error)
                for fitted in self.linear_models
            ],
            error_before=self.error_before,
            cross_validation_error=self.cross_validation_error,
            constant_factor_only=self.constant_factor_only,
            improves_on_prior=self.cross_validation_error < self.error_before,
            interval_coverage=self.interval_coverage,
            interval_half_width=self.interval_half_width,
            power=None if power is None else PowerErrors(power.error_before, power.cross_validation_error),
        )
