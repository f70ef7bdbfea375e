"""The result of a validation, as validation.json holds it. docs/validation.md defines the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from windtunnel.core.columns import Columns
from windtunnel.core.results.calibration import CalibrationResult
from windtunnel.core.results.data import INLINE, OPTIONAL, Result


@dataclass(frozen=True)
class Conditions(Result):
    """The state of a device, as far as it reports it."""

    power_w: float | None = field(default=None, metadata=OPTIONAL)
    sm_clock_hz: float | None = field(default=None, metadata=OPTIONAL)
    memory_clock_hz: float | None = field(default=None, metadata=OPTIONAL)
    temperature_c: float | None = field(default=None, metadata=OPTIONAL)
    held_back: Sequence[str] | None = field(default=None, metadata=OPTIONAL)
    """The reasons why the clocks are below their maximum; empty if there are none."""
    power_limit_w: float | None = field(default=None, metadata=OPTIONAL)
    application_clock_hz: float | None = field(default=None, metadata=OPTIONAL)
    """The SM clock that the device has under load if nothing limits it."""


@dataclass(frozen=True)
class ConditionsSeen(Result):
    """The state of a device at the beginning and at the end of its measurements, and the extremes in between."""

    begin: Conditions = Conditions()
    end: Conditions = Conditions()
    lowest: Conditions = Conditions()
    highest: Conditions = Conditions()

    def by_name(self) -> Mapping[str, Conditions]:
        """Return the states by the names of the fields."""
        return {"begin": self.begin, "end": self.end, "lowest": self.lowest, "highest": self.highest}


@dataclass(frozen=True)
class Environment(Result):
    """The environment of measurements. What is unknown is empty."""

    host: str = ""
    """Processor and operating system."""
    driver: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Libraries and their versions."""
    clocks: Mapping[str, float] = field(default_factory=dict)
    """Clocks reported by the driver (Hz), by name and time: at the beginning and end, lowest and highest."""
    date: str = ""
    """ISO 8601, UTC."""
    command: str = ""
    conditions: Mapping[str, ConditionsSeen] = field(default_factory=dict)
    """Clocks, power, temperature and throttle reasons by device."""


@dataclass(frozen=True, kw_only=True)
class ErrorFigures(Result):
    """The number of rows and their error statistics, as fractions; None if there is no row.

    ``coverage`` is the share of the measurements inside the model's 90% interval. ``noise_floor`` is the MAPE that a
    correct model would show; None if no point was measured twice.
    """

    n: int
    mape: float | None
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    coverage: float | None
    noise_floor: float | None = None


@dataclass(frozen=True, kw_only=True)
class Figures(ErrorFigures):
    """The same with the number of points that were measured repeatedly."""

    noise_points: int


@dataclass(frozen=True)
class BoundFigures(Result):
    """The figures of the rows with one bound."""

    bound: str
    figures: Figures = field(metadata=INLINE)


@dataclass(frozen=True)
class DtypeFigures(Result):
    """The figures of the rows of one number format."""

    dtype: str
    figures: Figures = field(metadata=INLINE)


@dataclass(frozen=True)
class ModelBasis(Result):
    """What a model is based on, in the words of ``core.device.ModelAccuracy``, and its least certain input."""

    basis: str
    text: str
    fitted_rows: int
    provenance: str


@dataclass(frozen=True)
class ComparedRow(Result):
    """A row with its prediction (s), its relative error, and whether the measurement is inside the 90% interval."""

    columns: Columns
    measured_s: float
    modelled_s: float
    error: float
    bound: str
    inside: bool
    source: str
    line: int | None
    file: str = ""


@dataclass(frozen=True)
class ReferencePoint(Result):
    """A reference point with its measured and its predicted time (s)."""

    columns: Columns
    measured_s: float
    modelled_s: float
    low_s: float | None
    high_s: float | None
    source: str
    timer: str
    note: str


@dataclass(frozen=True)
class SuspectRow(Result):
    """A measurement (s) that is excluded from all figures, and why."""

    columns: Columns
    measured_s: float
    why: str
    line: int | None
    file: str = ""


@dataclass(frozen=True)
class UnsupportedPart(Result):
    """The number of rows that the model does not support, why, the line of the first, and up to 20 of their lines."""

    n: int
    why: str
    line: int | None
    file: str = ""
    lines: Sequence[int] = ()


@dataclass(frozen=True)
class PowerFigures(Result):
    """The errors of the predicted power, over the ``n`` rows whose power was measured.

    ``coverage`` is the share of them within ``error_factor`` of the prediction, which 90% of measurements should be.
    ``provenance`` is that of the factor.
    """

    n: int
    mape: float
    bias: float
    coverage: float
    error_factor: float
    provenance: str


@dataclass(frozen=True)
class TooLarge(Result):
    """The number of rows that take more memory than there is, and up to 20 of their lines in ``file``."""

    n: int
    file: str
    lines: Sequence[int]


_LEAD = (
    "device", "op", "n", "mape", "median_ape", "p90_ape", "bias", "noise_floor", "coverage", "noise_points", "sources",
)  # fmt: skip
"""The first keys of a result; scripts of users rely on them."""


@dataclass(frozen=True, kw_only=True)
class _OfDevice(ErrorFigures):
    """The errors of a model of ``device``, and the measured devices or files."""

    device: str
    op: str
    sources: Sequence[str]

    def _keys(self) -> Sequence[str]:
        """Return the keys in their order."""
        names = [attribute.name for attribute in fields(self)]
        return [*(name for name in _LEAD if name in names), *(name for name in names if name not in _LEAD)]


@dataclass(frozen=True, kw_only=True)
class OperationResult(_OfDevice, Figures):
    """The errors of the model of one operation on one device."""

    model: ModelBasis
    by_bound: Sequence[BoundFigures]
    by_dtype: Sequence[DtypeFigures]
    worst: Sequence[ComparedRow]
    """The rows with the largest ratio of modelled and measured time, largest first."""
    reference_points: Sequence[ReferencePoint]
    suspect: Sequence[SuspectRow]
    unsupported: Sequence[UnsupportedPart]
    power: PowerFigures | None = None
    """None if no row has a measured power."""
    too_large: TooLarge | None = None
    """None if all rows fit into the memory of the device, or of the group."""
    software: Sequence[str] = ()
    """The measured devices that are programs on the host's processor, although the model is that of another device."""


@dataclass(frozen=True)
class HeldOutFit(Result):
    """A fit to half of the shapes, compared with the other half.

    ``before`` and ``after`` have the errors on the other half, of the model without measurements of this SKU and with
    the overlay. ``not_fitted`` has the reason if there is no fit.
    """

    device: str
    op: str
    split: str
    fitted: int
    held_out: int
    before: Figures | None = None
    after: Figures | None = None
    overlay: str | None = None
    calibration: CalibrationResult | None = None
    not_fitted: str | None = None


@dataclass(frozen=True, kw_only=True)
class CalibratedResult(OperationResult):
    """A result with the fit to half of its rows; None if no row can be used."""

    calibrated: HeldOutFit | None


@dataclass(frozen=True)
class Makespan(Result):
    """A scenario on a real device and on its model: its jobs, its operations, and the time of the whole (s)."""

    jobs: int
    operations: int
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, kw_only=True)
class MakespanResult(_OfDevice):
    """The error of a predicted makespan."""

    op: str = "makespan"
    by_bound: tuple[()] = ()
    by_dtype: tuple[()] = ()
    worst: tuple[()] = ()
    suspect: tuple[()] = ()
    unsupported: tuple[()] = ()
    makespan: Makespan = field(metadata=INLINE)


ValidationResult = OperationResult | MakespanResult


@dataclass(frozen=True)
class OmittedPoints(Result):
    """How many points of an operation were not measured on a device, why, and whether a call hung.

    ``over_budget``: the reason is that the budget was too small.
    """

    source: str
    op: str
    why: str
    points: int
    hung: bool
    over_budget: bool = False


@dataclass(frozen=True)
class ChartPoints(Result):
    """A sample of the points of a comparison, for the charts of the page. Times are in seconds.

    ``bound`` has indices into ``bounds`` (the most frequent first), ``choice`` indices into ``choices``; ``numbers``
    are the operation's counts. ``shown`` of ``all`` rows are in the sample.
    """

    device: str
    op: str
    measured: Sequence[float]
    modelled: Sequence[float]
    size: Sequence[float]
    size_unit: str
    bounds: Sequence[str]
    bound: Sequence[int]
    choices: Sequence[str]
    choice: Sequence[int]
    numbers: Mapping[str, Sequence[float]]
    noise_floor: float | None
    shown: int
    all: int
