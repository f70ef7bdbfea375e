"""Linear cost models: the sum of launch, bytes and operations, in place of a formula of another shape.

t = launch_s + bytes / bytes_per_s + flops / flops_per_s, with numbers of zero or more. This is the time of an operation
whose parts do not overlap (for a transfer: R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko
CS-2", Parallel Computing 20 (1994); here with one more term). It grows with every size, also beyond the measured rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.ops import FloatArray, Rows
from windtunnel_models.learned.process import Z90, Scales

LINEAR_OPERATIONS = frozenset({"attention", "copy", "elementwise", "fft", "gemm", "kernel", "stencil", "vector_add"})
"""Operations whose counts all contribute to bytes or operations, so that the sum depends on each of them."""

UNITS = {"launch_s": "s", "bytes_per_s": "B/s", "flops_per_s": "FLOP/s"}
"""The numbers of a model as files state them, with their units. A term that is missing takes no time."""

_DIGITS = 6
_ROUNDS = 4
_SURPRISE = 1.5
"""Robust standard deviations beyond which the weight of a row is reduced (Huber's weights), as for residuals."""

_MIN_TIME_S = 1e-15
"""The time of an operation without any work if a launch takes no time (s), so that logarithms stay finite."""

_MIN_WORK_SHARE = 0.5
"""The share of some row's time that bytes and operations must take: launch-bound rows do not show how work grows."""

_MAX_TERM_ERROR = 0.1
"""The largest standard deviation of a term, relative to the row where it counts most, at which it is identified."""


def terms(rows: Rows) -> FloatArray:
    """Return the factors of the three numbers (n x 3): one, bytes, operations (zero where they grow as bytes do)."""
    n = rows.numbers
    moved = n["bytes"] if "bytes" in n else rows.footprint_bytes()
    flops = rows.op.flops(rows.choices, n)
    parts = [np.ones(rows.shape), np.broadcast_to(moved, rows.shape), np.broadcast_to(flops, rows.shape)]
    return np.stack(parts, -1).astype(np.float64)


@dataclass(frozen=True)
class LinearCostModel:
    """A linear cost model and its uncertainty.

    Attributes:
        each_s: The seconds of a launch, of a byte and of an operation.
        covariance: The covariance of the three (in squared seconds), as far as the fitted rows do not determine them.
    """

    each_s: tuple[float, float, float]
    covariance: FloatArray = field(default_factory=lambda: np.zeros((3, 3)))

    @classmethod
    def of(cls, numbers: Mapping[str, float]) -> LinearCostModel:
        """Return the model of numbers as files state them (see ``UNITS``).

        Raises:
            ValueError: unless there is at least one number and each is above zero.
        """
        if not numbers or not all(0.0 < value < np.inf for value in numbers.values()):
            raise ValueError("a linear model needs at least one number, and all of them above zero")
        byte, flop = (1.0 / numbers[name] if name in numbers else 0.0 for name in ("bytes_per_s", "flops_per_s"))
        return cls((numbers.get("launch_s", 0.0), byte, flop))

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers as files state them, in SI units."""
        launch, byte, flop = self.each_s
        numbers = {"launch_s": launch, "bytes_per_s": byte and 1.0 / byte, "flops_per_s": flop and 1.0 / flop}
        return {name: float(f"{value:.{_DIGITS}g}") for name, value in numbers.items() if value}

    def seconds(self, rows: Rows) -> FloatArray:
        """Return the device time of every row, in seconds."""
        return np.asarray(np.maximum(terms(rows) @ np.array(self.each_s), _MIN_TIME_S))

    def describe(self) -> str:
        """Return the sum as text, with the terms that take time."""
        over = {"launch_s": "", "bytes_per_s": "bytes / ", "flops_per_s": "operations / "}
        return " + ".join(f"{over[name]}{value:.4g} {UNITS[name]}" for name, value in self.numbers.items())

    def deviation(self, rows: Rows) -> FloatArray:
        """Return one standard deviation (log) of every row's time. It grows with the distance from the fitted rows."""
        share = _shares(self, rows)
        return np.asarray(np.sqrt(np.maximum(np.einsum("...i,ij,...j->...", share, self.covariance, share), 0.0)))

    def log_ratio(
        self, mean: FloatArray, spread: FloatArray, frozen: Device, rows: Rows, calibration: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the logarithm of the time over the formula's time, and its 90% half-width.

        Args:
            mean: The process's prediction of log(time / model), one per row.
            spread: Its 90% half-width.
            frozen: The device as it was fitted. A later change of a parameter acts through its formula.
            rows: The rows.
            calibration: The process's own factor on its standard deviation, which applies to the model's numbers too.
        """
        bare = replace(rows, choices={**rows.choices, "dispatch": "device"})
        formula = replace(frozen, residuals={}).cost(bare, intervals=False).duration_s
        model_spread = calibration * Z90 * self.deviation(rows)
        return mean + np.log(self.seconds(rows) / formula), np.hypot(spread, model_spread)

    def with_covariance(self, rows: Rows, noise: FloatArray, scales: Scales) -> LinearCostModel:
        """Return the model with the covariance that the fitted rows imply.

        The variance of the residual process counts as noise. The prior of each term is one whole row, where the term
        counts most.

        Args:
            rows: The fitted rows.
            noise: The noise variance of each row, relative to the common one.
            scales: The scales of the residual process.
        """
        share = _shares(self, rows)
        variance = scales.noise**2 * noise + scales.wide**2 + scales.narrow**2
        largest = share.max(0)
        used = largest > 0.0
        unit = share[:, used] / largest[used]
        inverse = np.linalg.inv(unit.T @ (unit / variance[:, None]) + np.eye(int(used.sum())))
        covariance = np.zeros((3, 3))
        covariance[np.ix_(used, used)] = inverse / np.outer(largest[used], largest[used])
        return replace(self, covariance=covariance)

    def is_identified(self, rows: Rows) -> bool:
        """Return whether rows determine the model: work takes enough of some row, and the terms are separable."""
        share = _shares(self, rows)
        errors = np.sqrt(np.diag(self.covariance)) * share.max(0)
        has_work = (1.0 - share[:, 0] * self.each_s[0]).max() >= _MIN_WORK_SHARE
        return bool(has_work and errors.max() <= _MAX_TERM_ERROR)


def _shares(model: LinearCostModel, rows: Rows) -> FloatArray:
    """Return the derivative of the log time by each number: its factor over the whole time."""
    return np.asarray(terms(rows) / model.seconds(rows)[..., None])


def fit_linear_model(rows: Rows, seconds: FloatArray, noise: FloatArray) -> LinearCostModel:
    """Return the model of least squares in relative error, with numbers of zero or more.

    The weight of outliers is reduced by Huber's weights.

    Args:
        rows: The measured rows.
        seconds: Their measured times.
        noise: The noise variance of each row, relative to that of a plain row.
    """
    from scipy.optimize import nnls

    values = terms(rows)
    size = np.maximum((values / seconds[:, None]).max(0), 1e-300)
    scale, numbers = seconds, np.zeros(3)
    weight = 1.0 / np.sqrt(noise)
    for _ in range(_ROUNDS):
        numbers = nnls(values / size / scale[:, None] * weight[:, None], seconds / scale * weight)[0] / size
        predicted = values @ numbers
        error = np.log(seconds / np.maximum(predicted, 1e-300))
        typical = max(1.4826 * float(np.median(np.abs(error))), 1e-4)
        weight = np.sqrt(np.minimum(1.0, _SURPRISE * typical / np.maximum(np.abs(error), 1e-12)) / noise)
        # Errors relative to the measured times would favour too short predictions; the bounds keep the weights stable.
        scale = np.clip(predicted, 0.5 * seconds, 2.0 * seconds)
    launch, byte, flop = numbers.tolist()
    return LinearCostModel((launch, byte, flop))
