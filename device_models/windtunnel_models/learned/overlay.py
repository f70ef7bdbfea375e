"""What an overlay contains: numbers fitted to one SKU, residuals learned on it, and the quality of the fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from windtunnel.core.device import ModelAccuracy
from windtunnel.core.provenance import SourcedValue
from windtunnel_models.learned.linear_model import LinearCostModel


@dataclass(frozen=True)
class Fit:
    """The quality of the fit of one operation.

    Attributes:
        op: The operation.
        rows: The number of fitted measurements.
        cross_validation_error: Mean absolute relative error (a fraction) on rows that the fit did not use.
        interval_coverage: The share of those rows inside the 90% prediction interval.
        interval_half_width: The interval's median half-width relative to the value.
        cross_validation_groups: How the rows were divided for cross-validation.
        note: How the fit was made.
    """

    OPTIONAL: ClassVar = (
        "cross_validation_error",
        "interval_coverage",
        "interval_half_width",
        "cross_validation_groups",
        "note",
    )

    op: str
    rows: int
    cross_validation_error: float | None = None
    interval_coverage: float | None = None
    interval_half_width: float | None = None
    cross_validation_groups: str = ""
    note: str = ""

    def accuracy(self) -> ModelAccuracy:
        """Return the same as a device reports it."""
        text = f"fitted to {self.rows:,} measurements of this SKU" + (f"; {self.note}" if self.note else "")
        return ModelAccuracy(
            self.op,
            "measured",
            text,
            self.rows,
            self.cross_validation_error,
            self.interval_coverage,
            self.interval_half_width,
            self.cross_validation_groups,
        )


@dataclass(frozen=True)
class LearnedEntry:
    """A residual as a file states it, before it is bound to a device.

    Attributes:
        form: ``points`` (rows with their log ratios, for a Gaussian process) or ``arrays`` (a compact file that the
            operation's own module reads).
        source: The number of measurements, and their origin.
        linear_models: The models that replace the formula for some choices, by the choices joined with slashes. The log
            ratios of these choices are relative to the model.
        points: The text of the points, for that form; it is read on first use.
        scales: The scales of their processes, by the choices joined with slashes; checked on first use.
        file: The name of the array file, for that form.
    """

    form: str
    source: SourcedValue
    linear_models: Mapping[str, LinearCostModel] = field(default_factory=dict)
    points: str = ""
    scales: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    file: str = ""


@dataclass(frozen=True)
class Overlay:
    """One calibration file.

    Attributes:
        sku: The SKU that was fitted.
        values: Parameters that replace those of the SKU file, by ``name`` or ``name.key``, in SI units.
        learned: Residuals by operation.
        fits: The quality of the fit, by operation.
        path: The file.
        api: The API through which the device was measured, if the file says so.
    """

    sku: str
    values: Mapping[str, SourcedValue] = field(default_factory=dict)
    learned: Mapping[str, LearnedEntry] = field(default_factory=dict)
    fits: Mapping[str, Fit] = field(default_factory=dict)
    path: Path | None = None
    api: str | None = None
