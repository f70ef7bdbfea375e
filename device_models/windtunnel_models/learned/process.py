"""A Gaussian process over the residual of a calibration.

log(time / formula) is modelled as a level, two smooth parts (wide and narrow) over the kind's coordinates, and a share
of the residual of the device's relatives. The scales maximise the marginal likelihood over a small grid, so that few
points have little influence.

Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006,
chapters 2.2 (prediction), 5.4.1 (likelihood) and 5.4.2 (leaving one out in closed form).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from windtunnel.core.ops import FloatArray

_MOST_JUDGED, _MOST_ROUNDS = 250, 4

MOST_POINTS = 500
"""The most points of a process. More rows are merged with their neighbours first, because time grows as the cube."""

_CHUNK = 20_000
"""Rows predicted at once, so that memory stays bounded (20,000 x 500 distances are 80 MB)."""

_LEVEL_SD = 0.3
_GRID: Mapping[str, tuple[float, ...]] = {
    "noise": (0.01, 0.02, 0.03, 0.045, 0.06, 0.08, 0.11, 0.15),
    "wide": (0.02, 0.05, 0.1, 0.18, 0.3, 0.6, 1.2, 2.5),
    "narrow": (0.01, 0.03, 0.06, 0.1, 0.16),
    "mix": (0.0, 0.25, 0.5, 0.75, 1.0),
}
_WIDE_LENGTH = 2.5
_NARROW_LENGTH = 0.7
"""Standard deviations of the logarithm, and lengths in the kind's coordinates (1 is about a factor of 8 in size)."""

Z90 = 1.6449
"""Standard deviations that contain 90% of a normal distribution."""


@dataclass(frozen=True)
class Scales:
    """A process's hyper-parameters: standard deviations (log) of its parts, and the share of the relatives."""

    wide: float
    narrow: float
    noise: float
    mix: float

    def covariance(self, squared: FloatArray) -> FloatArray:
        """Return the prior covariance of two points at a squared distance."""
        return np.asarray(
            _LEVEL_SD**2
            + self.wide**2 * np.exp(squared * (-0.5 / _WIDE_LENGTH**2))
            + self.narrow**2 * np.exp(squared * (-0.5 / _NARROW_LENGTH**2))
        )

    @property
    def prior_variance(self) -> float:
        """The variance of the residual far from all points."""
        return _LEVEL_SD**2 + self.wide**2 + self.narrow**2


def squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the squared distances between the rows of ``a`` (n x d) and of ``b`` (m x d), shape n x m."""
    cross = a @ b.T
    apart = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2.0 * cross
    return np.asarray(np.maximum(apart, 0.0))


class Process:
    """The posterior of a residual given points.

    Args:
        z: Coordinates (n x d).
        residual: log(time / formula) (n).
        relatives: The residual of relatives at the points (n), zero if there are none.
        noise_factor: The noise variance of each point relative to the common one (n): 1 for a plain row, less for
            merged rows, much more for an outlier.
        scales: The hyper-parameters.
        calibration: The factor on the half-width by which the interval contains 90% of rows left out (conformal
            prediction), or 1 before it is known.
    """

    def __init__(
        self,
        z: FloatArray,
        residual: FloatArray,
        relatives: FloatArray,
        noise_factor: FloatArray,
        scales: Scales,
        calibration: float = 1.0,
    ) -> None:
        self.z, self.scales, self.calibration = z, scales, calibration
        left = residual - scales.mix * relatives
        prior = scales.covariance(squared_distances(z, z))
        self._factor = np.linalg.cholesky(prior + np.diag(scales.noise**2 * noise_factor))
        self._half = np.linalg.solve(self._factor, left)
        self._weights = np.linalg.solve(self._factor.T, self._half)

    @cached_property
    def _whitener(self) -> FloatArray:
        return np.linalg.solve(self._factor, np.eye(len(self._half)))

    @property
    def log_likelihood(self) -> float:
        """The logarithm of the marginal likelihood, without its constant."""
        return float(-0.5 * self._half @ self._half - np.log(np.diag(self._factor)).sum())

    def leave_one_out(self) -> tuple[FloatArray, FloatArray]:
        """Return each point's error and standard deviation if the process is fitted without it (closed form)."""
        precision = (self._whitener**2).sum(0)
        return self._weights / precision, 1.0 / np.sqrt(precision)

    def __call__(self, z: FloatArray, relatives: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean residual and the 90% half-width of one measurement (m each), at coordinates ``z`` (m x d)."""
        mean, spread = np.empty(len(z)), np.empty(len(z))
        for start in range(0, len(z), _CHUNK):
            part = slice(start, start + _CHUNK)
            cross = self.scales.covariance(squared_distances(z[part], self.z))
            mean[part] = cross @ self._weights + self.scales.mix * relatives[part]
            explained = ((cross @ self._whitener.T) ** 2).sum(1)
            variance = np.maximum(self.scales.prior_variance - explained, 0.0) + self.scales.noise**2
            spread[part] = self.calibration * Z90 * np.sqrt(variance)
        return mean, spread


def best_scales(
    z: FloatArray,
    residual: FloatArray,
    relatives: FloatArray,
    noise_factor: FloatArray,
    *,
    may_be_flat: bool = False,
    flat: bool = False,
) -> Scales:
    """Return the scales of greatest marginal likelihood over the grid, by coordinate descent.

    Above ``_MOST_JUDGED`` points every k-th is used: four scales need no more.

    Args:
        z: As for ``Process``, with ``residual``, ``relatives`` and ``noise_factor``.
        residual: As above.
        relatives: As above.
        noise_factor: As above.
        may_be_flat: Whether the smooth parts may be zero, for a base that was fitted to the same points.
        flat: Whether they are zero.
    """
    step = max(1, -(-len(z) // _MOST_JUDGED))
    judged = (z[::step], residual[::step], relatives[::step], noise_factor[::step])
    smooth = ("wide", "narrow")
    names = [name for name in _GRID if (name != "mix" or np.any(relatives)) and not (flat and name in smooth)]
    best = Scales(0.0 if flat else 0.1, 0.0 if flat else 0.06, 0.06, 0.5 if np.any(relatives) else 0.0)
    likelihood = _log_likelihood(judged, best)
    for _ in range(_MOST_ROUNDS):
        before = best
        for name in names:
            for value in (0.0, *_GRID[name]) if may_be_flat and name in smooth else _GRID[name]:
                tried = replace(best, **{name: value})
                reached = _log_likelihood(judged, tried)
                if reached > likelihood:
                    best, likelihood = tried, reached
        if best == before:
            break
    return best


def _log_likelihood(judged: tuple[FloatArray, FloatArray, FloatArray, FloatArray], scales: Scales) -> float:
    try:
        return Process(*judged, scales).log_likelihood
    except np.linalg.LinAlgError:  # points too near to each other for this noise
        return -np.inf


def merge(z: FloatArray, most: int = MOST_POINTS) -> npt.NDArray[np.int64]:
    """Return the group of each row, where near rows are merged into at most ``most`` groups.

    Rows fall into cells of a grid over the coordinates, which grow until few enough are filled.
    """
    size = 0.05
    while True:
        _, group = np.unique(np.round(z / size), axis=0, return_inverse=True)
        group = np.asarray(group).reshape(-1)
        if group.max(initial=0) < most:
            return group.astype(np.int64)
        size *= 1.15
