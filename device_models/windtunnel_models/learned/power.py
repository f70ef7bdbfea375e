"""Fitting the numbers of the power model to measured power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Device
from windtunnel.core.ops import FloatArray, Rows
from windtunnel.core.optable import OpTable
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.learned.least_squares import least_squares

POWER = "power"
"""The entry of a kind's ``fits`` for the numbers of the power model, for all operations."""

ERROR_FACTOR = "power_error_factor"
"""The parameter of the factor within which nine tenths of the measured powers are of the model's."""

SHORTEST_S = 1e-4
"""The shortest time that a board's power meter resolves; shorter rows show the power of other work."""

FEWEST_ROWS, FOLDS = 10, 5

_TYPICAL_ERROR = 0.08
"""The error of power (log) that has the weight of one standard deviation of the prior."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PowerFit:
    """The fitted numbers, and mean absolute relative errors (fractions) before the fit and in cross-validation."""

    values: dict[str, SourcedValue]
    error_before: float
    cross_validation_error: float


def robust(error: FloatArray) -> FloatArray:
    """Return the signed root of the pseudo-Huber loss, whose squares grow linearly for large errors."""
    return np.asarray(np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0)))


def fit_power(device: Device, table: OpTable, seconds: FloatArray, power_w: FloatArray) -> PowerFit | None:
    """Fit to the rows that last long enough for a power meter; return None if rows or numbers are too few."""
    return _Power(device, table, seconds, power_w).fit()


class _Power:
    def __init__(self, device: Device, table: OpTable, seconds: FloatArray, power_w: FloatArray) -> None:
        self.device = device
        self.parts: list[tuple[Rows, FloatArray]] = []
        for places, rows in table.groups():
            long = (seconds[places] > SHORTEST_S) & np.isfinite(power_w[places])
            if long.any():
                numbers = {name: np.broadcast_to(values, rows.shape)[long] for name, values in rows.numbers.items()}
                self.parts.append((Rows(rows.op, rows.choices, numbers), power_w[places][long]))
        deviations = device.kind.fits.get(POWER, {})
        self.deviations = {
            path: deviations[path.partition(".")[0]]
            for path in sorted(device.values)
            if path.partition(".")[0] in deviations and device.values[path].value > 0.0
        }
        self.count = sum(len(watts) for _, watts in self.parts)

    def fit(self) -> PowerFit | None:
        """See ``fit_power``."""
        if self.count < FEWEST_ROWS or not self.deviations:
            return None
        folds = [np.random.default_rng(len(watts)).permutation(len(watts)) % FOLDS for _, watts in self.parts]
        all_rows = [np.ones(len(watts), dtype=bool) for _, watts in self.parts]
        left_out = [
            self._errors(self._shifts([place != fold for place in folds]), [place == fold for place in folds])
            for fold in range(FOLDS)
        ]
        before, errors = self._errors(np.zeros(len(self.deviations)), all_rows), np.abs(np.concatenate(left_out))
        factor = math.exp(float(np.quantile(errors, 0.9)))
        source = f"cross-validation over {self.count} measurements"
        return PowerFit(
            self._moved(self._shifts(all_rows)) | {ERROR_FACTOR: SourcedValue(factor, Provenance.MEASURED, source)},
            float(np.abs(np.expm1(before)).mean()),
            float(np.abs(np.expm1(np.concatenate(left_out))).mean()),
        )

    def _moved(self, shifts: FloatArray) -> dict[str, SourcedValue]:
        source = f"fitted to the power of {self.count} measurements"
        return {
            path: SourcedValue(
                self.device.values[path].value * math.exp(float(np.clip(shift, -4.0, 4.0)) * deviation),
                Provenance.MEASURED,
                source,
            )
            for (path, deviation), shift in zip(self.deviations.items(), shifts, strict=True)
        }

    def _errors(self, shifts: FloatArray, kept: Sequence[Mask]) -> FloatArray:
        """Return log(modelled / measured) of the rows kept."""
        target = replace(self.device, values={**self.device.values, **self._moved(shifts)})
        errors = [
            np.log(target.cost(rows, intervals=False).power_w / watts)[mask]
            for (rows, watts), mask in zip(self.parts, kept, strict=True)
        ]
        return np.concatenate(errors)

    def _shifts(self, kept: Sequence[Mask]) -> FloatArray:
        def loss(shifts: FloatArray) -> FloatArray:
            return robust(self._errors(shifts, kept) / _TYPICAL_ERROR)

        return least_squares(loss, np.zeros(len(self.deviations)), steps=20).shifts
