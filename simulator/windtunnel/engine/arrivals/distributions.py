"""Parameters of distributions for a given mean and coefficient of variation (CV)."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.ticks import FloatArray


def weibull_shape(cv: float) -> float:
    """Return the Weibull shape k with coefficient of variation ``cv``: Γ(1+2/k) / Γ(1+1/k)² = 1 + cv².

    Raises:
        InputError: if ``cv`` is outside of the range in which the equation is solved.
    """
    from scipy.optimize import brentq
    from scipy.special import gammaln

    def excess(log_k: float) -> float:
        k = np.exp(log_k)
        return float(gammaln(1 + 2 / k) - 2 * gammaln(1 + 1 / k) - np.log1p(cv**2))

    try:
        return float(np.exp(brentq(excess, np.log(0.05), np.log(1e4))))
    except ValueError:
        raise InputError(
            f"the cv of a Weibull distribution must not be {cv:g}", expected="about 0.0002 to 1e4"
        ) from None


def weibull_scale(shape: float) -> float:
    """Return the scale for which a Weibull distribution of ``shape`` k has mean 1: 1 / Γ(1 + 1/k)."""
    return math.exp(-math.lgamma(1 + 1 / shape))


def unit_variates(rng: np.random.Generator, distribution: str, cv: float, count: int) -> FloatArray:
    """Return ``count`` draws with mean 1 and coefficient of variation ``cv``; shape (count,).

    The exponential and the deterministic distribution ignore ``cv``.
    """
    if distribution == "exponential":
        return rng.exponential(1.0, count)
    if distribution == "deterministic" or cv == 0.0:
        return np.ones(count)
    if distribution == "lognormal":
        variance = np.log1p(cv**2)
        return rng.lognormal(-variance / 2, np.sqrt(variance), count)
    if distribution == "gamma":
        return rng.gamma(cv**-2, cv**2, count)
    shape = weibull_shape(cv)
    from scipy.special import gamma as gamma_function

    return rng.weibull(shape, count) / float(gamma_function(1 + 1 / shape))
