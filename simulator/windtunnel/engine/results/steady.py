"""Whether a run has a steady state, and where it begins: correlation, warm-up, growth without bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.core.ticks import FloatArray
from windtunnel.engine.results.sample import BatchedSample

LEAST_JOBS = 1000
"""With fewer values nothing is left out: too little is there to see a warm-up by."""

TOO_FEW = "too few jobs to tell"

_SPECTRAL_BATCHES = 512
_MOST_ORDER = 10
_LEAST_MEANS = 10
_UNCORRELATED = 1.28
"""Batch means are merged until their lag-1 correlation is below this many standard errors (90% of white noise)."""

_TIMES = 3.0
_MOST_BY_CORRELATION = 0.25
_MOST_LEFT_OUT = 0.5
_SURE = 4.0
_TREND_BATCHES = 20
_TREND = 0.75
_NO_RETURN = 0.6
_GROWN = 1.5
_SETTLED = 10.0


@dataclass(frozen=True)
class Correlation:
    """How sure a sum of correlated residuals is.

    ``error``: its standard error. ``effective``: how many independent batches would have varied as much. ``groups``:
    into how many batches of equal size they had to be merged before neighbours looked uncorrelated.
    """

    error: float
    effective: float
    groups: float = math.inf


UNBOUNDED = Correlation(0.0, math.inf)
"""What bounds nothing."""


def correlation(residuals: FloatArray, within: Correlation = UNBOUNDED) -> Correlation:
    """Of the sum of ``residuals`` (batches,), in order: the larger of two estimates that fail in different ways.

    The spectrum at frequency zero of an autoregression chosen by AICc (Heidelberger and Welch, 1981, by way of Fishman,
    1971); and nonoverlapping batch means, merged until neighbours look uncorrelated (von Neumann's test), with what
    correlation is left taken out as an AR(1)'s (Skart: Tafazzoli, Wilson, Lada, Steiger, 2011).

    ``within``: the correlation of a part of the same values whose swings are not slower than theirs: no more batches
    are used than it needed, and no more independent ones are found.
    """
    spread = float(residuals.var())
    if spread <= 0.0 or len(residuals) < _LEAST_MEANS + 3:
        return Correlation(0.0 if spread <= 0.0 else math.inf, math.inf if spread <= 0.0 else 0.0)
    by_means, groups = _batch_means_error(residuals, within.groups)
    error = max(autoregressive_error(residuals), by_means)
    return Correlation(error, min(len(residuals) ** 2 * spread / error**2, within.effective), groups)


def correlation_of(sample: BatchedSample) -> Correlation:
    """Of the sum of the sample's residuals from their mean; ``UNBOUNDED`` where nothing is in it."""
    if not len(sample):
        return UNBOUNDED
    return correlation((sample.sums - sample.mean * sample.counts) / sample.observations)


def merged(residuals: FloatArray, batches: int) -> FloatArray:
    """Sums of ``batches`` contiguous groups of nearly equal size; the same array where it has no more."""
    count = len(residuals)
    if count <= batches:
        return residuals
    return np.asarray(np.add.reduceat(residuals, np.arange(batches) * count // batches))


def autoregressive_error(residuals: FloatArray) -> float:
    """The standard error of the residuals' sum, by the spectrum of an autoregression at frequency zero.

    Levinson-Durbin on the sample autocovariances, the order (at most 10) by AICc (Hurvich and Tsai, 1989).
    """
    series = merged(residuals, _SPECTRAL_BATCHES)
    count = len(series)
    series = series - series.mean()
    covariance = [float(series[lag:] @ series[: count - lag]) / count for lag in range(_MOST_ORDER + 1)]
    noise = covariance[0]
    if noise <= 0.0:
        return 0.0
    weights = np.zeros(0)
    best, criterion = noise * count / (count - 1), count * math.log(noise) + 2.0
    for order in range(1, min(_MOST_ORDER, count - 4) + 1):
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
    """(standard error of the sum, batches it was found from)."""
    batches = int(min(len(residuals), max(at_most, _LEAST_MEANS)))
    while True:
        sums = merged(residuals, batches)
        centred = sums - sums.mean()
        total = float(centred @ centred)
        if total <= 0.0:
            return 0.0, batches
        lag1 = float(centred[1:] @ centred[:-1]) / total
        if lag1 < _UNCORRELATED / math.sqrt(batches) or batches <= _LEAST_MEANS:
            break
        batches = max(_LEAST_MEANS, int(batches / math.sqrt(2.0)))
    # A sample's lag-1 correlation is about 1/batches too low.
    left = min(max(lag1 + 1.0 / batches, 0.0), 0.9)
    return math.sqrt(total / (batches - 1) * batches * (1.0 + left) / (1.0 - left)), batches


@dataclass(frozen=True)
class WarmUp:
    """What to leave out at the start: ``batches`` of the sample, ``jobs`` in them; ``reason`` says why that many."""

    batches: int
    jobs: int
    reason: str


def warm_up(sample: BatchedSample) -> WarmUp:
    """How many leading batches of a stationary source's run still show that it began empty.

    Two rules; the longer counts. (1) Three times the correlation time (asymptotic variance over variance), at most a
    quarter of the run and at least one batch: how a start is forgotten is a matter of the whole run and not of its
    first values, so this hardly biases what is kept. (2) MSER (White, 1997) on the batches' means, at most half of the
    run, where what it would cut lies four standard errors from the rest. MSER alone cuts whatever is high at the start:
    on a stationary queue that biases the mean by more than the warm-up does (reports/benchmarks/coverage.md).
    """
    count = len(sample)
    if sample.size < LEAST_JOBS or count < 40:
        return WarmUp(0, 0, f"fewer than {LEAST_JOBS:,} jobs: nothing is left out")
    means = sample.batch_means()
    cut, sure = _mser(means, sample.counts)
    if sure and cut > count * _MOST_LEFT_OUT:
        return WarmUp(0, 0, "no steady state is seen: the values still change in the second half of the run")
    by_mser = cut if sure else 0
    rest = means[by_mser:]
    residuals = rest - rest.mean()
    spread = float(residuals.var())
    error = autoregressive_error(residuals) if spread > 0.0 else 0.0
    time = error**2 / (len(rest) * spread) if spread > 0.0 else 0.0
    by_correlation = round(_TIMES * time) if time > 1.2 else 1
    short = by_correlation > count * _MOST_BY_CORRELATION
    by_correlation = min(by_correlation, int(count * _MOST_BY_CORRELATION))
    batches = max(by_mser, by_correlation)
    if by_mser > by_correlation:
        reason = "MSER: until there the values lie apart from the rest"
    elif short:
        reason = "the run is shorter than 12 times the time over which its values are correlated"
    else:
        reason = "three times the time over which values are correlated"
    return WarmUp(batches, sample.jobs_in(batches), reason)


def _mser(means: FloatArray, counts: FloatArray) -> tuple[int, bool]:
    """(how many leading ``means`` MSER cuts, whether they differ from the rest beyond doubt)."""
    count = len(means)
    left = np.arange(count, 0, -1)
    centred = means - means.mean()
    tail = np.cumsum(centred[::-1])[::-1] / left
    tail_squares = np.cumsum((centred**2)[::-1])[::-1] / left
    marginal = (tail_squares - tail**2) / left
    cut = int(np.argmin(marginal[: count - _LEAST_MEANS]))
    if not cut:
        return 0, False
    rest = centred[max(cut, count // 2) :] if cut <= count // 2 else centred[: count // 2]
    residuals = rest - rest.mean()
    spread = float(residuals.var())
    if spread <= 0.0:
        return cut, bool(abs(centred[:cut].mean() - centred[cut:].mean()) > 0.0)
    asymptotic = autoregressive_error(residuals) ** 2 / len(rest)
    # A mean over less than the correlation time varies no more than a single value.
    error = math.sqrt(min(asymptotic / cut, spread) + asymptotic / (count - cut))
    return cut, abs(float(centred[:cut].mean() - centred[cut:].mean())) > _SURE * error


_RELAXATIONS = 8.0
"""Relaxation times that a run must span; below, its intervals hold too rarely (reports/benchmarks/coverage.md)."""


def jobs_to_settle(load: float, service_scv: float = 1.0) -> float:
    """How many jobs a run needs before one can tell how much its queue swings: ``_RELAXATIONS`` relaxation times.

    A queue forgets its state over the relaxation time; a run of a few of them sees too few swings to know how large
    they are, and cannot know that it does not know. In jobs it is load / (1 - sqrt(load))^2 for exponential
    services, whatever their length and however many the servers (Cohen, The Single Server Queue, 1982, section
    III.7.3 for one; in heavy traffic all), and ``(1 + service_scv) / 2`` times that for services of another squared
    coefficient of variation (Whitt, Planning queueing simulations, Management Science 35, 1989). Infinite from load 1.
    """
    if load >= 1.0:
        return math.inf
    return _RELAXATIONS * load * (1.0 + service_scv) / 2.0 / (1.0 - math.sqrt(load)) ** 2


@dataclass(frozen=True)
class Growth:
    """Whether a run settles: ``reached``, ``not shown`` or ``unstable``; and why."""

    settled: str
    reason: str | None = None


def growth(waits: BatchedSample) -> Growth:
    """Whether waiting times (or numbers waiting), in order of arrival, grow without bound.

    They do when all of this holds of twenty batches' means: they rise with time (Spearman's rank correlation above
    0.75), no batch of the second half falls back below 0.6 of the whole mean, and the last quarter's mean is 1.5 times
    the first's. A stable queue keeps returning towards empty. A system at exactly its capacity returns too, ever more
    rarely; then ``settled`` is ``not shown``: the run is worth fewer than ten independent ones of its batches.
    Rates of false alarm and detection are in reports/benchmarks/coverage.md.
    """
    if len(waits) < 2 * _TREND_BATCHES or waits.size < LEAST_JOBS:
        return Growth("not shown", TOO_FEW)
    sums, counts = merged(waits.sums, _TREND_BATCHES), merged(waits.counts, _TREND_BATCHES)
    means = sums / counts
    whole = waits.mean
    if whole <= 0.0 or float(means.max() - means.min()) <= 1e-9 * whole:
        return Growth("reached")
    ranks = np.argsort(np.argsort(means, kind="stable"), kind="stable")
    trend = float(np.corrcoef(np.arange(_TREND_BATCHES), ranks)[0, 1])
    quarter = _TREND_BATCHES // 4
    first, last = float(means[:quarter].mean()), float(means[-quarter:].mean())
    if trend > _TREND and float(means[_TREND_BATCHES // 2 :].min()) > _NO_RETURN * whole and last > _GROWN * first:
        return Growth("unstable", "waiting times grow to the end of the run: work arrives faster than it is done")
    worth = correlation_of(waits).effective
    if worth < _SETTLED:
        return Growth(
            "not shown",
            f"the run is worth about {worth:.0f} independent observations of the wait: "
            "too short, or too near capacity, to show a steady state",
        )
    return Growth("reached")
