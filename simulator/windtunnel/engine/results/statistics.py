"""Estimates with 95% confidence intervals: means and percentiles of one run, of replications, and of differences.

The jobs of a run are correlated, so formulas for independent values underestimate the interval. Both kinds of estimates
are reduced to the standard error of a sum of correlated batch residuals (``steady.correlation``). For the mean they are
residuals of the values. For a percentile they are residuals of the share of values above it, and the distribution of
the sample turns the interval of the share into an interval of the value (Woodruff, 1952). docs/metrics.md describes the
methods, and reports/benchmarks/coverage.md the measured interval coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.results.run import Estimate
from windtunnel.core.student import student
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.results.sample import BatchedSample
from windtunnel.engine.results.steady import UNBOUNDED, Correlation, correlation, merged

STATISTICS: Mapping[str, float | None] = {"mean": None, "p50": 0.5, "p95": 0.95, "p99": 0.99}
METHOD = "batch residuals: autoregression and batch means, skewness-adjusted"

MIN_VALUES = 200
FEW = "fewer than"
"""How the reason begins where there are too few values for any interval."""

_MIN_BATCHES = 40
_MIN_ABOVE = 10
_MIN_HISTOGRAMS = 20


@dataclass(frozen=True)
class _Correction:
    """Corrections of normal theory that were chosen by measurement (benchmarks/interval_coverage.py).

    Attributes:
        per_degree: The number of independent observations that count as one degree of freedom of Student's t. Their
            variance is estimated from few busy periods, which are not normally distributed.
        gain: The factor on the observed skewness. A run without a rare long busy period underestimates it.
    """

    per_degree: float
    gain: float


_OF_MEANS, _OF_PERCENTILES = _Correction(3.0, 5.0), _Correction(2.5, 2.0)

_MIN_EFFECTIVE = 2.0
_FEWEST_DEGREES = 1.2
_MAX_RELATIVE_HALF_WIDTH = 3.0
_SKEW_BATCHES = 32
_SKEW_NOISE = 0.03
"""About half the standard error of the skewness of a sum of 32 symmetric batches."""


def estimates(
    sample: BatchedSample, *, within: Correlation = UNBOUNDED, reason: str | None = None
) -> dict[str, Estimate]:
    """Return the mean and the percentiles of ``sample``, each with its interval.

    Args:
        sample: The values in order.
        within: The correlation of the queueing delays. In a short run the noise of service times hides the slow changes
            of latencies; see ``steady.correlation``.
        reason: If it is given, no estimate has an interval, for this reason.
    """
    return {name: _estimate(sample, fraction, within, reason) for name, fraction in STATISTICS.items()}


def within_reason(by_name: Mapping[str, Estimate], least: float) -> dict[str, Estimate]:
    """Return the estimates of one time with intervals that contain only possible values.

    No end is below ``least``, the smallest value that was observed. A lower end is at least that of each smaller
    percentile, and an upper end at most that of each larger one, because percentiles are in order. Every interval
    contains its value.
    """
    possible = dict(by_name)
    for name, e in by_name.items():
        if e.value is not None and e.low is not None and e.high is not None:
            possible[name] = replace(e, low=min(max(e.low, least), e.value))
    percentiles = [name for name in possible if STATISTICS[name] is not None and possible[name].low is not None]
    low, high = -math.inf, math.inf
    for name in percentiles:
        low = max(low, _known(possible[name].low))
        possible[name] = replace(possible[name], low=min(low, _known(possible[name].value)))
    for name in reversed(percentiles):
        high = min(high, _known(possible[name].high))
        possible[name] = replace(possible[name], high=max(high, _known(possible[name].value)))
    return possible


def _known(number: float | None) -> float:
    assert number is not None  # noqa: S101  an estimate with an interval has both ends
    return number


def point(sample: BatchedSample, fraction: float | None) -> float | None:
    """Return the mean of ``sample``, or its percentile at ``fraction``; None without observations."""
    if not len(sample) or (fraction is not None and not sample.has_percentiles):
        return None
    return sample.mean if fraction is None else sample.ordered.quantile(fraction)


def widen_to_waiting(latency: Mapping[str, Estimate], waiting: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the estimates of times that include a queueing delay, with intervals at least as wide as the delay's.

    If the mean queueing delay is one second longer, every latency is about one second longer. A short run may by chance
    observe little waiting, and its latencies then seem as certain as the service times. The interval of the mean
    therefore extends at least as far as that of the mean delay. The interval of a percentile extends by the share of
    the dispersion (p95 - p50) that is not due to the delays, because its own interval shows the rest already.
    """
    mean = waiting["mean"]
    if mean.value is None or mean.low is None or mean.high is None:
        return dict(latency)
    below, above = mean.value - mean.low, mean.high - mean.value
    whole, part = _dispersion(latency), _dispersion(waiting)
    hidden = max(1.0 - part / whole, 0.0) if whole > 0.0 else 1.0
    widened: dict[str, Estimate] = {}
    for name, estimate in latency.items():
        widened[name] = estimate
        if estimate.value is not None and estimate.low is not None and estimate.high is not None:
            share = 1.0 if STATISTICS[name] is None else hidden
            low, high = max(estimate.value - below * share, 0.0), estimate.value + above * share
            widened[name] = replace(estimate, low=min(estimate.low, low), high=max(estimate.high, high))
    return widened


def _dispersion(by_name: Mapping[str, Estimate]) -> float:
    return (by_name["p95"].value or 0.0) - (by_name["p50"].value or 0.0)


def estimate_values(values: FloatArray, weights: FloatArray | None = None) -> dict[str, Estimate]:
    """Return ``estimates`` of ``values`` in order of arrival (or of time); each represents ``weights`` observations."""
    return estimates(BatchedSample.from_values(values, weights))


def _estimate(sample: BatchedSample, fraction: float | None, within: Correlation, reason: str | None) -> Estimate:
    value = point(sample, fraction)
    if value is None:
        return Estimate(None, reason="no observations")
    if sample.size < MIN_VALUES or len(sample) < _MIN_BATCHES:
        return Estimate(value, reason=f"{FEW} {MIN_VALUES} values")
    if fraction is not None and sample.size * (1.0 - fraction) < _MIN_ABOVE * (1 - 1e-9):
        return Estimate(value, reason=f"{FEW} {_MIN_ABOVE} values above it")
    if reason is not None:
        return Estimate(value, reason=reason)
    if fraction is None:
        return _of_mean(sample, value, within)
    return _of_percentile(sample, value, fraction, within)


def _of_mean(sample: BatchedSample, value: float, within: Correlation) -> Estimate:
    residuals = (sample.sums - value * sample.counts) / sample.observations
    total = correlation(residuals, within)
    if total.error == 0.0:
        return Estimate(value, value, value, effective_sample_size=float(sample.size), batches=len(residuals))
    # Values with a large error relative to their mean are skewed too, and then fewer observations have information.
    effective = min(total.effective, (value / total.error) ** 2 if sample.positive else math.inf)
    if effective < _MIN_EFFECTIVE:
        return Estimate(value, reason=_too_short(effective), effective_sample_size=effective, batches=len(residuals))
    t = student(max(effective / _OF_MEANS.per_degree, _FEWEST_DEGREES))
    skew = _skewness(residuals) * _OF_MEANS.gain
    low, high = _interval(value, t * total.error, t, skew, sample.positive)
    if high is None:
        return Estimate(value, reason=_too_short(effective), effective_sample_size=effective, batches=len(residuals))
    return Estimate(value, low, high, effective_sample_size=effective, batches=len(residuals))


def _of_percentile(sample: BatchedSample, value: float, fraction: float, within: Correlation) -> Estimate:
    above_share = 1.0 - fraction
    ordered = sample.ordered
    counts, above = sample.above(value)
    if len(counts) < _MIN_HISTOGRAMS:
        return Estimate(value, reason=f"{FEW} {_MIN_HISTOGRAMS} histograms")
    total = float(counts.sum())
    share = float(above.sum()) / total
    residuals = (above - share * counts) / total
    sum_of_residuals = correlation(residuals, within)
    if sum_of_residuals.error == 0.0:
        # Nothing varies, because the percentile lies within a mass of equal values.
        return Estimate(
            value,
            value * (1 - ordered.error),
            value * (1 + ordered.error),
            effective_sample_size=float(sample.size),
            batches=len(residuals),
        )
    effective = min(sum_of_residuals.effective, (share / sum_of_residuals.error) ** 2)
    if effective < _MIN_EFFECTIVE:
        return Estimate(value, reason=_too_short(effective), effective_sample_size=effective, batches=len(residuals))
    t = student(max(effective / _OF_PERCENTILES.per_degree, _FEWEST_DEGREES))
    skew = _skewness(residuals) * _OF_PERCENTILES.gain
    # The interval of the share is computed on a logit scale, on which it cannot become negative.
    error = sum_of_residuals.error / (share * (1.0 - share))
    odds = math.log(above_share / (1.0 - above_share))
    narrow = min(max(t * error, 0.02), 0.7)
    slope = (ordered.exceeded_by(_logistic(odds - narrow)) - ordered.exceeded_by(_logistic(odds + narrow))) / (
        2 * narrow
    )
    up, down = _skewed(t * error, t, skew)
    lower = ordered.exceeded_by(_logistic(odds + down))
    share_above = _logistic(odds - up)
    upper = ordered.exceeded_by(share_above) if sample.size * share_above >= 3 else None
    if value <= 0.0 and sample.positive:
        if upper is None:
            return Estimate(
                value, reason=_too_short(effective), effective_sample_size=effective, batches=len(residuals)
            )
        return Estimate(
            value, lower, upper * (1 + ordered.error), effective_sample_size=effective, batches=len(residuals)
        )
    low, high = _interval(value, t * slope * error, t, skew, sample.positive)
    if high is None and lower <= 0.0 and upper is not None:
        # The percentile is just above a mass at zero, where no error is small relative to the value.
        low, high = lower, upper
    if high is None:
        return Estimate(value, reason=_too_short(effective), effective_sample_size=effective, batches=len(residuals))
    low, high = min(low, lower), high if upper is None else max(high, upper)
    widened = (low * (1 - ordered.error), high * (1 + ordered.error))
    return Estimate(
        value, *(widened if ordered.error else (low, high)), effective_sample_size=effective, batches=len(residuals)
    )


def _interval(value: float, half: float, t: float, skew: float, positive: bool) -> tuple[float, float | None]:
    """Return the ends of the interval with a symmetric half-width ``half``.

    There is no upper end if the half-width exceeds ``_MAX_RELATIVE_HALF_WIDTH`` times the value. For values that cannot
    be negative the interval is that of their inverse square (upper end) and of their inverse (lower end). In a queue
    the standard error grows at least as the square of the mean, so a run that by chance observed little waiting also
    underestimates its error. On these scales the error hardly depends on the value; small half-widths do not change.
    The adjustment for the skewness of batches (Hall, 1992; as in Skart) applies too, and on the side of the longer tail
    the wider of both ends counts.
    """
    up, down = _skewed(half, t, skew)
    if not positive or value <= 0.0:
        return value - down, value + up
    relative = half / value
    if relative > _MAX_RELATIVE_HALF_WIDTH:
        return 0.0, None
    low = value / (1.0 + relative)
    if skew < 0.0:
        low = min(low, max(value - down, 0.0))
    return low, max(value + up, value * _inverse_square(relative))


def _inverse_square(relative: float) -> float:
    """Return (1 - 2r)^(-1/2) up to r = 0.3, and its tangent above, so that a wide interval remains finite."""
    bend = 0.3
    if relative <= bend:
        return float((1.0 - 2.0 * relative) ** -0.5)
    return float((1.0 - 2.0 * bend) ** -0.5 + (1.0 - 2.0 * bend) ** -1.5 * (relative - bend))


def _skewed(half: float, t: float, skew: float) -> tuple[float, float]:
    """Return the half-widths above and below for a sum of skewness ``skew``; the longer one is on the side of the tail.

    Source: Hall (1992).
    """
    correction = (2.0 * t * t + 1.0) / (6.0 * t) * abs(skew)
    far, near = half * (1.0 + correction), half * max(1.0 - correction / 3.0, 0.5)
    return (far, near) if skew > 0.0 else (near, far)


def _skewness(residuals: FloatArray) -> float:
    """Return the skewness of the residuals' sum, from 32 batches that are assumed independent, minus that of noise."""
    sums = merged(residuals, _SKEW_BATCHES)
    centred = sums - sums.mean()
    variance = float((centred**2).mean())
    if variance <= 0.0:
        return 0.0
    observed = float((centred**3).mean()) / variance**1.5 / math.sqrt(len(sums))
    return math.copysign(max(abs(observed) - _SKEW_NOISE, 0.0), observed)


def _logistic(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(odds, -700.0), 700.0)))


def _too_short(effective: float) -> str:
    about = f"the run is too short (effective sample size about {effective:.1f}"
    if effective < _MIN_EFFECTIVE:
        return f"{about}, at least {_MIN_EFFECTIVE:.0f} needed)"
    return f"{about}, so the interval has no upper end)"


def over_replications(values: Sequence[float | None]) -> Estimate:
    """Return the mean of the values of independent replications, with Student's interval.

    There is no estimate if any replication has no value, because the mean of the others would be biased low.
    """
    numbers = np.array([value for value in values if value is not None])
    if len(numbers) < len(values):
        missing = len(values) - len(numbers)
        return Estimate(None, reason=f"{missing:,} of {len(values):,} replications have no value")
    if not len(numbers):
        return Estimate(None, reason="no observations")
    value, count = float(numbers.mean()), len(numbers)
    if count < 2:
        return Estimate(value, reason="only one replication")
    half = student(count - 1) * float(numbers.std(ddof=1)) / math.sqrt(count)
    low = value - half
    return Estimate(value, max(low, 0.0) if numbers.min() >= 0.0 else low, value + half, effective_sample_size=count)


def paired(candidate: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """Return the mean of ``candidate`` minus ``baseline``: runs of two systems with the same seeds, in the same order.

    With common random numbers the effect of a seed on both systems cancels, so the interval of the mean difference is
    narrower than that of two independent sets of runs.

    Raises:
        ValueError: if the lengths differ.

    Source: Law, Simulation Modeling and Analysis, section 11.2.
    """
    if len(candidate) != len(baseline):
        raise ValueError(f"{len(candidate)} runs cannot be paired with {len(baseline)}")
    differences = np.subtract(np.asarray(candidate, dtype=np.float64), np.asarray(baseline, dtype=np.float64))
    if not len(differences):
        return Estimate(None, reason="no observations")
    value = float(differences.mean())
    if len(differences) < 2:
        return Estimate(value, reason="only one pair")
    half = student(len(differences) - 1) * float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return Estimate(value, value - half, value + half, effective_sample_size=len(differences))


# Runs that stop at a precision.

_ENOUGH = 400.0
_MAX_SHARE_OF_BATCHES = 0.75
_MARGIN = 1.2
_MIN_GROWTH, _MAX_GROWTH, _UNKNOWN_GROWTH = 1.5, 10.0, 4.0


def relative_error(estimate: Estimate) -> float | None:
    """Return the longer side of the interval over the value; None without an interval or for a value of zero."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    side = max(estimate.high - estimate.value, estimate.value - estimate.low)
    return 0.0 if side == 0.0 else side / abs(estimate.value) if estimate.value else None


def observations_needed(estimate: Estimate) -> float:
    """Return the effective sample size that an estimate needs before a run may stop because of it.

    It is 400, or three quarters of the batches if there are fewer, as in the histograms of a long run.
    """
    return _ENOUGH if estimate.batches is None else min(_ENOUGH, _MAX_SHARE_OF_BATCHES * estimate.batches)


def jobs_needed(estimate: Estimate, error: float, jobs_so_far: int) -> int:
    """Return how many jobs the next attempt needs for the relative error ``error``; ``jobs_so_far`` if they sufficed.

    A run that is examined repeatedly tends to stop when it looks precise by chance (Chow and Robbins). To limit this
    bias, an attempt counts only if its effective sample size is sufficient (``observations_needed``), the longer side
    of the interval decides, and every attempt is 20% longer than the last one suggests and at least 50% longer than it.
    """
    achieved = relative_error(estimate)
    if achieved is None:
        return math.ceil(jobs_so_far * _UNKNOWN_GROWTH)
    size = estimate.effective_sample_size
    effective, enough = math.inf if size is None else size, observations_needed(estimate)
    if achieved <= error and effective >= enough:
        return jobs_so_far
    factor = max((achieved / error) ** 2, enough / effective) * _MARGIN
    return math.ceil(jobs_so_far * min(max(factor, _MIN_GROWTH), _MAX_GROWTH))
