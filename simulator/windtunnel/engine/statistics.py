"""Estimates with intervals: means and percentiles of one run's correlated jobs, by batches or replications.

Jobs of a run are correlated, so order statistics of a single run are no interval for a percentile. The run is cut
into batches in order of arrival, and the spread of the batches' estimates about the whole run's gives the
interval (sectioning: Asmussen and Glynn, Stochastic Simulation, 2007, section III.5a), with Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from windtunnel.core.ticks import FloatArray

STATISTICS: Mapping[str, float | None] = {"mean": None, "p50": 0.5, "p95": 0.95, "p99": 0.99}
_BATCHES = (20, 10)


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval; None where there is nothing to estimate it from."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        """For result.json."""
        return {"value": self.value, "low": self.low, "high": self.high}


def spread(values: FloatArray, weights: FloatArray | None = None) -> dict[str, Estimate]:
    """Mean and percentiles of ``values`` in order of arrival (or of time), each with its interval.

    ``weights``: how many observations each value stands for.
    """
    return {name: _estimate(values, weights, fraction) for name, fraction in STATISTICS.items()}


def _estimate(values: FloatArray, weights: FloatArray | None, fraction: float | None) -> Estimate:
    if not len(values):
        return Estimate(None)
    whole = _point(values, weights, fraction)
    # A batch must hold a few observations beyond the percentile for its own estimate to mean anything.
    least = 20 if fraction is None else max(20, int(np.ceil(5 / (1 - fraction))))
    for batches in _BATCHES:
        if len(values) >= batches * least:
            edges = np.linspace(0, len(values), batches + 1).astype(int)
            parts = [
                _point(values[i:j], None if weights is None else weights[i:j], fraction) for i, j in pairwise(edges)
            ]
            spread_ = float(np.sqrt(np.sum((np.array(parts) - whole) ** 2) / (batches - 1)))
            half = _student(batches - 1) * spread_ / math.sqrt(batches)
            return Estimate(whole, max(whole - half, 0.0), whole + half)
    return Estimate(whole)


def _point(values: FloatArray, weights: FloatArray | None, fraction: float | None) -> float:
    if fraction is None:
        return float(np.average(values, weights=weights))
    if weights is None:
        return float(np.quantile(values, fraction))
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, fraction * reached[-1])])


def over_replications(estimates: Sequence[float | None]) -> Estimate:
    """The mean of independent replications' values and its Student interval."""
    known = np.array([value for value in estimates if value is not None])
    if not len(known):
        return Estimate(None)
    value = float(known.mean())
    if len(known) < 2:
        return Estimate(value)
    half = _student(len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return Estimate(value, max(value - half, 0.0), value + half)


def _student(degrees: int) -> float:
    from scipy.special import stdtrit

    quantile: Callable[[int, float], float] = stdtrit
    return float(quantile(degrees, 0.975))
