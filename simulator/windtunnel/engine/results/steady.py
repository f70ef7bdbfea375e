"""Correlation, warm-up and steady state of one run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.core.ticks import FloatArray
from windtunnel.engine.results.sample import BatchedSample

MIN_JOBS = 1000
"""With fewer values no warm-up is excluded, because it could not be detected."""

TOO_FEW = "too few jobs to assess it"

_SPECTRAL_BATCHES = 512
_MAX_ORDER = 10
_MIN_MEANS = 10
_UNCORRELATED = 1.28
"""Batches are merged until the lag-1 correlation of their means is below this many standard errors (90% of noise)."""

_CORRELATION_TIMES = 3.0
_MAX_BY_CORRELATION = 0.25
_MAX_WARM_UP = 0.5
_SIGNIFICANT = 4.0
_TREND_BATCHES = 20
_TREND = 0.75
_NO_RETURN = 0.6
_MIN_RATIO = 1.5
_MIN_EFFECTIVE = 10.0


@dataclass(frozen=True)
class Correlation:
    """The standard error of a sum of correlated residuals, and what it implies.

    Attributes:
        error: The standard error of the sum.
        effective: The number of independent batches with the same variance (effective sample size).
        groups: The number of batches of equal size into which the residuals were merged to become uncorrelated.
    """

    error: float
    effective: float
    groups: float = math.inf


UNBOUNDED = Correlation(0.0, math.inf)
"""The correlation that restricts no other one."""


def correlation(residuals: FloatArray, within: Correlation = UNBOUNDED) -> Correlation:
    """Return the correlation of the sum of ``residuals`` in order; shape (batches,).

    The standard error is the larger of two estimates with different weaknesses. The first is the spectrum at frequency
    zero of an autoregression whose order minimises AICc. The second is that of non-overlapping batch means, which are
    merged until neighbours are uncorrelated (von Neumann's test), corrected for the remaining AR(1) correlation.

    Args:
        residuals: The residuals of the batches, in order.
        within: The correlation of a part of the same values that changes at least as slowly. No more batches are used,
            and no larger effective sample size is returned, than it has.

    Source: Heidelberger and Welch (1981), Fishman (1971); Skart: Tafazzoli, Wilson, Lada, Steiger (2011).
    """
    variance = float(residuals.var())
    if variance <= 0.0 or len(residuals) < _MIN_MEANS + 3:
        return Correlation(0.0 if variance <= 0.0 else math.inf, math.inf if variance <= 0.0 else 0.0)
    by_means, groups = _batch_means_error(residuals, within.groups)
    error = max(autoregressive_error(residuals), by_means)
    return Correlation(error, min(len(residuals) ** 2 * variance / error**2, within.effective), groups)


def correlation_of(sample: BatchedSample) -> Correlation:
    """Return the correlation of the sample's residuals from the mean; ``UNBOUNDED`` for an empty sample."""
    if not len(sample):
        return UNBOUNDED
    return correlation((sample.sums - sample.mean * sample.counts) / sample.observations)


def merged(residuals: FloatArray, batches: int) -> FloatArray:
    """Return the sums of ``batches`` contiguous groups of nearly equal size, or the array itself if it is no longer."""
    count = len(residuals)
    if count <= batches:
        return residuals
    return np.asarray(np.add.reduceat(residuals, np.arange(batches) * count // batches))


def autoregressive_error(residuals: FloatArray) -> float:
    """Return the standard error of the residuals' sum, estimated from an autoregressive fit.

    The estimate uses the fitted spectrum at frequency zero. The Levinson-Durbin recursion on the sample autocovariances
    gives the fit; its order, at most 10, minimises AICc.

    Args:
        residuals: The residuals of the batches, in order; shape (batches,).

    Source: Heidelberger and Welch (1981); order by AICc (Hurvich and Tsai, 1989).
    """
    series = merged(residuals, _SPECTRAL_BATCHES)
    count = len(series)
    series = series - series.mean()
    covariance = [float(series[lag:] @ series[: count - lag]) / count for lag in range(_MAX_ORDER + 1)]
    noise = covariance[0]
    if noise <= 0.0:
        return 0.0
    weights = np.zeros(0)
    best, criterion = noise * count / (count - 1), count * math.log(noise) + 2.0
    for order in range(1, min(_MAX_ORDER, count - 4) + 1):
        reflected = (covariance[order] - float(weights @ np.array(covariance[order - 1 : 0 : -1]))) / noise
        weights = np.append(weights - reflected * weights[::-1], reflected)
        noise *= 1.0 - reflected**2
        if noise <= covariance[0] * 1e-12:
            break
        score = count * math.log(noise) + 2.0 * (order + 1) * count / (count - order - 2)
        if score < criterion:
            best = noise * count / (count - order - 1) / float(1.0 - weights.sum()) ** 2
            criterion = score
    return math.sqrt(best * count)


def _batch_means_error(residuals: FloatArray, at_most: float = math.inf) -> tuple[float, int]:
    """Return the standard error of the sum, and the number of batches from which it was estimated."""
    batches = int(min(len(residuals), max(at_most, _MIN_MEANS)))
    while True:
        sums = merged(residuals, batches)
        centred = sums - sums.mean()
        total = float(centred @ centred)
        if total <= 0.0:
            return 0.0, batches
        lag1 = float(centred[1:] @ centred[:-1]) / total
        if lag1 < _UNCORRELATED / math.sqrt(batches) or batches <= _MIN_MEANS:
            break
        batches = max(_MIN_MEANS, int(batches / math.sqrt(2.0)))
    # The lag-1 correlation of a sample is about 1/batches too low.
    remaining = min(max(lag1 + 1.0 / batches, 0.0), 0.9)
    return math.sqrt(total / (batches - 1) * batches * (1.0 + remaining) / (1.0 - remaining)), batches


@dataclass(frozen=True)
class WarmUp:
    """The warm-up of a run: the leading ``batches`` of a sample, their ``jobs``, and the ``reason`` for this length."""

    batches: int
    jobs: int
    reason: str


def warm_up(sample: BatchedSample) -> WarmUp:
    """Return the warm-up of a run whose arrivals are stationary and whose system started empty.

    The longer of two rules counts. (1) Three times the correlation time (asymptotic variance over variance), at least
    one batch and at most a quarter of the run. It depends on the whole run and not on the first values, so it hardly
    biases the rest. (2) MSER on the means of the batches, at most half of the run, if the mean of what it would exclude
    differs by more than four standard errors from the rest. MSER alone excludes whatever is high at the start, which
    biases the mean of a stationary queue by more than the warm-up does (reports/benchmarks/coverage.md).

    Source: MSER: White (1997).
    """
    count = len(sample)
    if sample.size < MIN_JOBS or count < 40:
        return WarmUp(0, 0, f"fewer than {MIN_JOBS:,} jobs, so no warm-up is excluded")
    means = sample.batch_means()
    cut, is_significant = _mser(means)
    if is_significant and cut > count * _MAX_WARM_UP:
        return WarmUp(0, 0, "no steady state, because the values still change in the second half of the run")
    by_mser = cut if is_significant else 0
    rest = means[by_mser:]
    residuals = rest - rest.mean()
    variance = float(residuals.var())
    error = autoregressive_error(residuals) if variance > 0.0 else 0.0
    time = error**2 / (len(rest) * variance) if variance > 0.0 else 0.0
    by_correlation = round(_CORRELATION_TIMES * time) if time > 1.2 else 1
    is_short = by_correlation > count * _MAX_BY_CORRELATION
    by_correlation = min(by_correlation, int(count * _MAX_BY_CORRELATION))
    batches = max(by_mser, by_correlation)
    if by_mser > by_correlation:
        reason = "MSER: the values before it differ from the rest"
    elif is_short:
        reason = "a quarter of the run, which is shorter than 12 times the correlation time of its values"
    else:
        reason = "three times the correlation time of the values"
    return WarmUp(batches, sample.jobs_in(batches), reason)


def _mser(means: FloatArray) -> tuple[int, bool]:
    """Return how many leading ``means`` MSER excludes, and whether they differ significantly from the rest."""
    count = len(means)
    remaining = np.arange(count, 0, -1)
    centred = means - means.mean()
    tail = np.cumsum(centred[::-1])[::-1] / remaining
    tail_squares = np.cumsum((centred**2)[::-1])[::-1] / remaining
    marginal = (tail_squares - tail**2) / remaining
    cut = int(np.argmin(marginal[: count - _MIN_MEANS]))
    if not cut:
        return 0, False
    rest = centred[max(cut, count // 2) :] if cut <= count // 2 else centred[: count // 2]
    residuals = rest - rest.mean()
    variance = float(residuals.var())
    if variance <= 0.0:
        return cut, bool(abs(centred[:cut].mean() - centred[cut:].mean()) > 0.0)
    asymptotic = autoregressive_error(residuals) ** 2 / len(rest)
    # The mean over less than the correlation time has at most the variance of a single value.
    error = math.sqrt(min(asymptotic / cut, variance) + asymptotic / (count - cut))
    return cut, abs(float(centred[:cut].mean() - centred[cut:].mean())) > _SIGNIFICANT * error


_RELAXATIONS = 8.0
"""The number of relaxation times that a run must span for its intervals to reach their nominal coverage.

Source: reports/benchmarks/coverage.md.
"""


def jobs_to_steady_state(load: float, service_scv: float = 1.0) -> float:
    """Return how many jobs a run needs to estimate the variance of its queueing delays.

    They are ``_RELAXATIONS`` relaxation times. A queue forgets its state over the relaxation time, so a shorter run
    underestimates how much its delays vary. In jobs the relaxation time is load / (1 - sqrt(load))^2 for exponential
    services, independent of their mean and of the number of servers, and ``(1 + service_scv) / 2`` times that for
    services of another squared coefficient of
    variation. It is infinite from load 1 on.

    Source: Cohen, The Single Server Queue (1982), section III.7.3, for one server (for several in heavy traffic);
    Whitt, Planning queueing simulations, Management Science 35 (1989).
    """
    if load >= 1.0:
        return math.inf
    return _RELAXATIONS * load * (1.0 + service_scv) / 2.0 / (1.0 - math.sqrt(load)) ** 2


@dataclass(frozen=True)
class SteadyState:
    """Whether a run reached a steady state: ``reached``, ``not shown`` or ``unstable``, with the reason."""

    verdict: str
    reason: str | None = None


def assess_steady_state(waits: BatchedSample, min_jobs: int = MIN_JOBS) -> SteadyState:
    """Return whether queueing delays (or numbers of waiting jobs), in order of arrival, grow without bound.

    They do if the means of twenty batches meet three conditions: they rise with time (Spearman's rank correlation above
    0.75), no batch of the second half is below 0.6 of the overall mean, and the mean of the last quarter is 1.5 times
    that of the first. A stable queue returns towards empty again and again. A system at exactly its capacity does so
    ever more rarely; the verdict is then ``not shown``, because the effective sample size is below ten.
    reports/benchmarks/coverage.md has the rates of false alarms and of detections. With fewer than ``min_jobs`` delays
    it is not assessed.
    """
    if len(waits) < 2 * _TREND_BATCHES or waits.size < min_jobs:
        return SteadyState("not shown", TOO_FEW)
    sums, counts = merged(waits.sums, _TREND_BATCHES), merged(waits.counts, _TREND_BATCHES)
    means = sums / counts
    whole = waits.mean
    if whole <= 0.0 or float(means.max() - means.min()) <= 1e-9 * whole:
        return SteadyState("reached")
    ranks = np.argsort(np.argsort(means, kind="stable"), kind="stable")
    trend = float(np.corrcoef(np.arange(_TREND_BATCHES), ranks)[0, 1])
    quarter = _TREND_BATCHES // 4
    first, last = float(means[:quarter].mean()), float(means[-quarter:].mean())
    if trend > _TREND and float(means[_TREND_BATCHES // 2 :].min()) > _NO_RETURN * whole and last > _MIN_RATIO * first:
        return SteadyState(
            "unstable",
            "queueing delays grow until the end of the run, because work arrives faster than it is completed",
        )
    effective = correlation_of(waits).effective
    if effective < _MIN_EFFECTIVE:
        return SteadyState(
            "not shown",
            f"the effective sample size of the queueing delays is about {effective:.0f}; "
            "the run is too short, or too near its capacity, to show a steady state",
        )
    return SteadyState("reached")
