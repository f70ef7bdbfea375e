"""Fitting the numbers of a serving engine to measured times per output token.

The residuals are the logarithms of modelled over measured times. Every number has a prior: a normal distribution about
its value in the profile from which the fit starts, for factors of their logarithm. So one row moves the numbers a
little, and many rows decide. Residuals beyond two standard deviations have a reduced weight (Huber, 1964).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from windtunnel.core.step import EngineTimes

FloatArray = npt.NDArray[np.float64]

NOISE = 0.1
"""The standard deviation of a measured time, relative: two versions of an engine differ by 11 to 18%, two engines in
the same configuration by 17%, and rows of one campaign by less."""

SPREADS = {
    "decode": 0.11,
    "prefill": 0.11,
    "prompt_layer_s": 0.33e-3,
    "host_s": 1.1e-3,
    "host_sequence_s": 33e-6,
}
"""The standard deviation of each number's prior: of the logarithm of a factor, of a time in seconds. Assumed: with half
or twice of them the error on configurations held back is up to half a percentage point larger."""

_FACTORS = ("decode", "prefill")
_STARTS_S = (0.0, 0.6e-3)
"""Starts of ``prompt_layer_s``, below which the times of many rows do not depend on it."""
_HUBER = 2.0


@dataclass(frozen=True)
class FittedNumber:
    """A fitted number: its value, and 90% bounds of it from the curvature of the fit."""

    value: float
    low: float
    high: float
    learned: float
    """How much the rows narrowed the prior: 0 nothing, 1 all."""


@dataclass(frozen=True)
class EngineFit:
    """The result of a fit, by the names of ``EngineTimes.NUMBERS``."""

    numbers: dict[str, FittedNumber]

    @property
    def times(self) -> EngineTimes:
        """The numbers for a step."""
        return times_of({name: number.value for name, number in self.numbers.items()})


def times_of(numbers: Mapping[str, float]) -> EngineTimes:
    """Return the numbers of an engine by the names of ``EngineTimes.NUMBERS``."""
    return EngineTimes(
        decode=numbers["decode"],
        prefill=numbers["prefill"],
        prompt_layer_s=numbers["prompt_layer_s"],
        host_s=numbers["host_s"],
        host_sequence_s=numbers["host_sequence_s"],
    )


def fit_times(errors: Callable[[EngineTimes], FloatArray], prior: EngineTimes, weights: FloatArray) -> EngineFit:
    """Return the most probable numbers of an engine.

    Args:
        errors: The logarithms of modelled over measured times of all rows, for some numbers; shape (rows,).
        prior: The numbers from which the fit starts.
        weights: The weight of each row, at most 1; rows that are not independent share one.
    """
    names = list(SPREADS)
    spread = np.array([SPREADS[name] for name in names])
    centre = np.array([_to_free(name, getattr(prior, name)) for name in names])

    def times(z: FloatArray) -> EngineTimes:
        return times_of({n: _from_free(n, float(v)) for n, v in zip(names, centre + z * spread, strict=True)})

    def residuals(z: FloatArray) -> FloatArray:
        of_rows = np.sqrt(weights) * _huber(errors(times(z)) / NOISE)
        return np.concatenate([of_rows, z])

    # Times are not negative.
    low = np.array([-20.0 if name in _FACTORS else -c / s for name, c, s in zip(names, centre, spread, strict=True)])
    found = []
    for start in _STARTS_S:
        first = np.maximum(np.zeros(len(names)), low)
        place = names.index("prompt_layer_s")
        first[place] = max((start - centre[place]) / spread[place], low[place])
        found.append(least_squares(residuals, np.maximum(first, low + 1e-6), bounds=(low, np.full(len(names), 20.0))))
    best = min(found, key=lambda result: float(result.cost))
    covariance = np.linalg.inv(best.jac.T @ best.jac)
    deviation = np.sqrt(np.diag(covariance))
    numbers = {}
    for k, name in enumerate(names):
        at, width = float(centre[k] + best.x[k] * spread[k]), 1.645 * float(deviation[k] * spread[k])
        numbers[name] = FittedNumber(
            _from_free(name, at),
            _from_free(name, at - width),
            _from_free(name, at + width),
            max(0.0, 1.0 - float(deviation[k])),
        )
    return EngineFit(numbers)


def _huber(scaled: FloatArray) -> FloatArray:
    """Return residuals whose squares grow linearly beyond ``_HUBER`` standard deviations."""
    size = np.abs(scaled)
    outer = np.sqrt(np.maximum(2.0 * _HUBER * size - _HUBER**2, 0.0))
    return np.sign(scaled) * np.where(size <= _HUBER, size, outer)


def _to_free(name: str, value: float) -> float:
    return float(np.log(value)) if name in _FACTORS else value


def _from_free(name: str, value: float) -> float:
    return float(np.exp(value)) if name in _FACTORS else max(value, 0.0)
