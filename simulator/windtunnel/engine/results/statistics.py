"""Estimates with intervals: means and percentiles of one run's correlated jobs, of replications, of differences.

Jobs of a run are correlated, so order statistics of a single run are no interval for a percentile, and the standard
error of independent values is none for a mean. Both are reduced here to one question, how sure the sum of correlated
batch residuals is (``steady.correlation``): for the mean, residuals of the values; for a percentile, residuals of the
share of values beyond it, turned into an interval of the value by the sample's own distribution (Woodruff, 1952).
Methods and their coverage: docs/metrics.md, reports/benchmarks/coverage.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.ticks import FloatArray
from windtunnel.engine.results.sample import BatchedSample
from windtunnel.engine.results.steady import UNBOUNDED, Correlation, correlation, merged

STATISTICS: Mapping[str, float | None] = {"mean": None, "p50": 0.5, "p95": 0.95, "p99": 0.99}
METHOD = "batch residuals: autoregression and batch means, skewness-adjusted"

LEAST_VALUES = 200
_LEAST_BATCHES = 40
_LEAST_BEYOND = 10
_LEAST_HISTOGRAMS = 20


@dataclass(frozen=True)
class _Care:
    """What normal theory leaves out, chosen by measurement (benchmarks/interval_coverage.py).

    ``per_degree``: independent observations that count as one degree of freedom of Student's t, since their spread is
    estimated from few busy spells, each far from normal. ``gain``: how many times the skewness that was seen is
    reckoned with, since a run without a rare long spell sees less of it than there is.
    """

    per_degree: float
    gain: float


_OF_MEANS, _OF_PERCENTILES = _Care(3.0, 5.0), _Care(2.5, 2.0)

_LEAST_EFFECTIVE = 2.0
_WIDEST = 3.0
_SKEW_BATCHES = 32
_SKEW_NOISE = 0.03
"""About half the standard error of the skewness of a sum of 32 symmetric batches."""


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval; None where there is nothing to estimate it from.

    ``reason``: why there is no interval. ``effective``: how many independent observations it rests on, of at most
    ``batches``, which is how many could be told apart.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    effective: float | None = None
    batches: int | None = None

    def as_dict(self) -> dict[str, float | None]:
        """For result.json."""
        return {"value": self.value, "low": self.low, "high": self.high}


def estimates(
    sample: BatchedSample, *, within: Correlation = UNBOUNDED, reason: str | None = None
) -> dict[str, Estimate]:
    """Mean and percentiles of ``sample``, each with its interval.

    ``within``: that of the waiting times, whose slow swings a short run of latencies hides under the noise of service
    times; see ``steady.correlation``. ``reason``: why none is to have an
    interval.
    """
    found = {name: _estimate(sample, fraction, within) for name, fraction in STATISTICS.items()}
    if reason is None:
        return found
    return {name: replace(one, low=None, high=None, reason=reason) for name, one in found.items()}


def no_surer_than(found: Mapping[str, Estimate], waiting: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """``found`` of times that contain a wait, each interval as wide as the mean of ``waiting`` leaves it.

    A queue that is longer by a second makes every such time longer by about a second, and how long it is is what a
    short run knows least: by luck it may see little waiting, and then latencies look as sure as their service times
    are. So the mean's interval reaches at least as far as that of the mean wait; a percentile's does by the share of
    the spread (p95 - p50) that is not the waits' own, since what their spread shows its interval has already.
    """
    mean = waiting["mean"]
    if mean.value is None or mean.low is None or mean.high is None:
        return dict(found)
    less, more = mean.value - mean.low, mean.high - mean.value
    whole, part = _spread(found), _spread(waiting)
    hidden = max(1.0 - part / whole, 0.0) if whole > 0.0 else 1.0
    reached: dict[str, Estimate] = {}
    for name, one in found.items():
        reached[name] = one
        if one.value is not None and one.low is not None and one.high is not None:
            share = 1.0 if STATISTICS[name] is None else hidden
            low, high = max(one.value - less * share, 0.0), one.value + more * share
            reached[name] = replace(one, low=min(one.low, low), high=max(one.high, high))
    return reached


def _spread(found: Mapping[str, Estimate]) -> float:
    return (found["p95"].value or 0.0) - (found["p50"].value or 0.0)


def spread(values: FloatArray, weights: FloatArray | None = None) -> dict[str, Estimate]:
    """``estimates`` of ``values`` in order of arrival (or of time); each stands for ``weights`` observations."""
    return estimates(BatchedSample.from_values(values, weights))


def _estimate(sample: BatchedSample, fraction: float | None, within: Correlation) -> Estimate:
    if not len(sample) or (fraction is not None and not sample.has_percentiles):
        return Estimate(None, reason="nothing was seen")
    value = sample.mean if fraction is None else sample.ordered.quantile(fraction)
    if sample.size < LEAST_VALUES or len(sample) < _LEAST_BATCHES:
        return Estimate(value, reason=f"fewer than {LEAST_VALUES} values")
    if fraction is None:
        return _of_mean(sample, value, within)
    return _of_percentile(sample, value, fraction, within)


def _of_mean(sample: BatchedSample, value: float, within: Correlation) -> Estimate:
    residuals = (sample.sums - value * sample.counts) / sample.observations
    found = correlation(residuals, within)
    if found.error == 0.0:
        return Estimate(value, value, value, effective=float(sample.size), batches=len(residuals))
    # What is large and noisy relative to its mean is skewed too: then fewer observations speak than are independent.
    effective = min(found.effective, (value / found.error) ** 2 if sample.positive else math.inf)
    if effective < _LEAST_EFFECTIVE:
        return Estimate(value, reason=_too_short(effective), effective=effective, batches=len(residuals))
    t = _student(effective / _OF_MEANS.per_degree)
    skew = _skewness(residuals) * _OF_MEANS.gain
    low, high = _ends(value, t * found.error, t, skew, sample.positive)
    if high is None:
        return Estimate(value, reason=_too_short(effective), effective=effective, batches=len(residuals))
    return Estimate(value, low, high, effective=effective, batches=len(residuals))


def _of_percentile(sample: BatchedSample, value: float, fraction: float, within: Correlation) -> Estimate:
    beyond = 1.0 - fraction
    if sample.size * beyond < _LEAST_BEYOND * (1 - 1e-9):
        return Estimate(value, reason=f"fewer than {_LEAST_BEYOND} values beyond it")
    ordered = sample.ordered
    counts, above = sample.above(value)
    if len(counts) < _LEAST_HISTOGRAMS:
        return Estimate(value, reason=f"fewer than {_LEAST_HISTOGRAMS} histograms")
    total = float(counts.sum())
    share = float(above.sum()) / total
    residuals = (above - share * counts) / total
    found = correlation(residuals, within)
    if found.error == 0.0:
        # Nothing varies: the percentile lies within a mass of equal values.
        return Estimate(
            value,
            value * (1 - ordered.error),
            value * (1 + ordered.error),
            effective=float(sample.size),
            batches=len(residuals),
        )
    effective = min(found.effective, (share / found.error) ** 2)
    if effective < _LEAST_EFFECTIVE:
        return Estimate(value, reason=_too_short(effective), effective=effective, batches=len(residuals))
    t = _student(effective / _OF_PERCENTILES.per_degree)
    skew = _skewness(residuals) * _OF_PERCENTILES.gain
    # On the scale of log-odds, where a share that is small can neither fall below zero nor be symmetric about itself.
    error = found.error / (share * (1.0 - share))
    odds = math.log(beyond / (1.0 - beyond))
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
            return Estimate(value, reason=_too_short(effective), effective=effective, batches=len(residuals))
        return Estimate(value, lower, upper * (1 + ordered.error), effective=effective, batches=len(residuals))
    low, high = _ends(value, t * slope * error, t, skew, sample.positive)
    if high is None and lower <= 0.0 and upper is not None:
        # Just above a mass at zero, where nothing is small relative to the value.
        low, high = lower, upper
    if high is None:
        return Estimate(value, reason=_too_short(effective), effective=effective, batches=len(residuals))
    low, high = min(low, lower), high if upper is None else max(high, upper)
    widened = (low * (1 - ordered.error), high * (1 + ordered.error))
    return Estimate(value, *(widened if ordered.error else (low, high)), effective=effective, batches=len(residuals))


def _ends(value: float, half: float, t: float, skew: float, positive: bool) -> tuple[float, float | None]:
    """The interval from a symmetric half-width; no upper end where the half-width is past ``_WIDEST`` values.

    For values that cannot be negative the interval is that of their inverse square (above) and of their inverse
    (below): in a queue the standard error grows as the square of the mean or faster, so that a run which by luck saw
    little waiting also believes itself sure of it. On these scales the error hardly depends on the value, and for small
    half-widths they make no difference. Beside them stands the adjustment for the skewness of batches (Hall, 1992; as
    in Skart), and on the side of the longer tail whichever reaches further counts.
    """
    up, down = _skewed(half, t, skew)
    if not positive or value <= 0.0:
        return value - down, value + up
    relative = half / value
    if relative > _WIDEST:
        return 0.0, None
    low = value / (1.0 + relative)
    if skew < 0.0:
        low = min(low, max(value - down, 0.0))
    return low, max(value + up, value * _inverse_square(relative))


def _inverse_square(relative: float) -> float:
    """(1 - 2r)^(-1/2), from r = 0.3 along its tangent, so that a wide interval is wide and not endless."""
    bend = 0.3
    if relative <= bend:
        return float((1.0 - 2.0 * relative) ** -0.5)
    return float((1.0 - 2.0 * bend) ** -0.5 + (1.0 - 2.0 * bend) ** -1.5 * (relative - bend))


def _skewed(half: float, t: float, skew: float) -> tuple[float, float]:
    """(up, down): the half-width on each side for a sum of skewness ``skew`` (Hall, 1992): longer towards the tail."""
    more = (2.0 * t * t + 1.0) / (6.0 * t) * abs(skew)
    far, near = half * (1.0 + more), half * max(1.0 - more / 3.0, 0.5)
    return (far, near) if skew > 0.0 else (near, far)


def _skewness(residuals: FloatArray) -> float:
    """The skewness of the residuals' sum, from that of 32 batches taken to be independent, less what noise makes."""
    sums = merged(residuals, _SKEW_BATCHES)
    centred = sums - sums.mean()
    variance = float((centred**2).mean())
    if variance <= 0.0:
        return 0.0
    seen = float((centred**3).mean()) / variance**1.5 / math.sqrt(len(sums))
    return math.copysign(max(abs(seen) - _SKEW_NOISE, 0.0), seen)


def _logistic(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(odds, -700.0), 700.0)))


def _too_short(effective: float) -> str:
    return f"the run is too short: it is worth about {effective:.1f} independent observations of this"


def over_replications(values: Sequence[float | None]) -> Estimate:
    """The mean of independent replications' values and its Student interval.

    None where any of them has no value: those that are left are the calm ones, and their mean too low.
    """
    known = np.array([value for value in values if value is not None])
    if len(known) < len(values):
        missing = len(values) - len(known)
        return Estimate(None, reason=f"{missing:,} of {len(values):,} replications have none")
    if not len(known):
        return Estimate(None, reason="nothing was seen")
    value = float(known.mean())
    if len(known) < 2:
        return Estimate(value, reason="one replication")
    half = _student(len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    low = value - half
    return Estimate(value, max(low, 0.0) if known.min() >= 0.0 else low, value + half, effective=float(len(known)))


def paired(one: Sequence[float], other: Sequence[float]) -> Estimate:
    """``one`` minus ``other``: two systems run with the same seeds, in the same order of seeds.

    Common random numbers (Law, Simulation Modeling and Analysis, section 11.2): what a seed does to both cancels, so
    the interval of the mean difference is narrower than that of two independent sets. ValueError for unequal lengths.
    """
    differences = np.subtract(np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64))
    if len(one) != len(other):
        raise ValueError(f"{len(one)} runs cannot be paired with {len(other)}")
    if not len(differences):
        return Estimate(None, reason="nothing was seen")
    value = float(differences.mean())
    if len(differences) < 2:
        return Estimate(value, reason="one pair")
    half = _student(len(differences) - 1) * float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return Estimate(value, value - half, value + half, effective=float(len(differences)))


# Running until precise.

_ENOUGH = 400.0
_MOST_BATCHES = 0.75
_MORE = 1.2
_LEAST_GROWTH, _MOST_GROWTH, _UNKNOWN_GROWTH = 1.5, 10.0, 4.0


def relative_error(estimate: Estimate) -> float | None:
    """The longer side of the interval over the value; None without an interval or with a value of zero."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    side = max(estimate.high - estimate.value, estimate.value - estimate.low)
    return 0.0 if side == 0.0 else side / abs(estimate.value) if estimate.value else None


def observations_needed(estimate: Estimate) -> float:
    """How many independent observations an estimate must rest on before a run may stop for it.

    400; where fewer batches than that are told apart, as in the histograms of a long run, most of them.
    """
    return _ENOUGH if estimate.batches is None else min(_ENOUGH, _MOST_BATCHES * estimate.batches)


def jobs_needed(estimate: Estimate, error: float, jobs_so_far: int) -> int:
    """How many jobs the next attempt needs for ``error`` (relative); ``jobs_so_far`` when they were enough.

    A run that is looked at again and again stops when it by chance looks precise (Chow and Robbins' bias). Against it:
    an attempt counts only if it rests on enough independent observations (``observations_needed``), the longer side of
    the interval decides, and every attempt aims a fifth beyond what the last suggests and is at least half as long
    again, so that there are few.
    """
    reached = relative_error(estimate)
    if reached is None:
        return math.ceil(jobs_so_far * _UNKNOWN_GROWTH)
    effective, enough = math.inf if estimate.effective is None else estimate.effective, observations_needed(estimate)
    if reached <= error and effective >= enough:
        return jobs_so_far
    factor = max((reached / error) ** 2, enough / effective) * _MORE
    return math.ceil(jobs_so_far * min(max(factor, _LEAST_GROWTH), _MOST_GROWTH))


def _student(degrees: float) -> float:
    from scipy.special import stdtrit

    quantile: Callable[[float, float], float] = stdtrit
    return float(quantile(max(degrees, 1.2), 0.975))
