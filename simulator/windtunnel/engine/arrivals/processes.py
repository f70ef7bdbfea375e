"""Arrival times of random processes, in blocks; one registered function for each class of process.

Each function yields blocks of non-decreasing times (s) without end. It draws from streams that are named after the
workload, so that the i-th draw belongs to the i-th job (or switch, or batch), independent of the sizes of blocks.
A Poisson process with a varying rate is a process of rate 1 whose times are mapped through the inverse of the integral
of the rate.

Source: Çinlar, Introduction to Stochastic Processes (1975), section 4.7.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import numpy as np

from windtunnel.core.rng import stream
from windtunnel.core.ticks import MAX_SECONDS, FloatArray
from windtunnel.engine.arrivals.distributions import weibull_scale, weibull_shape
from windtunnel.scenario import arrivals as spec
from windtunnel.scenario.arrivals import DAY_S

FIRST_BLOCK, BLOCK = 1024, 16_384
"""The sizes of the first and of the largest block. No arrival time depends on them."""


@dataclass(frozen=True)
class Draws:
    """The named random streams of one process, including clocks that several workloads share."""

    seed: int
    name: tuple[str, ...]

    def stream(self, *purpose: str) -> np.random.Generator:
        """Return the stream for a purpose, or that of the jobs if no purpose is given."""
        return stream(self.seed, *self.name, *purpose)

    def clock(self, shared: str | None, *purpose: str) -> np.random.Generator:
        """Return the stream of the clock ``shared``, or of this process's own clock. No workload has an empty name."""
        return self.stream("clock", *purpose) if shared is None else stream(self.seed, "", "clock", shared, *purpose)

    def part(self, number: int) -> Draws:
        """Return the streams of one process of a mix."""
        return Draws(self.seed, (*self.name, str(number)))


Times = Iterator[FloatArray]
P = TypeVar("P", bound=spec.Process)
_FUNCTIONS: dict[type[spec.Process], Callable[[Any, Draws], Times]] = {}


def times(process: spec.Process, draws: Draws) -> Times:
    """Yield blocks of arrival times (s) of ``process``, non-decreasing and without end."""
    return _FUNCTIONS[type(process)](process, draws)


def _draws(kind: type[P]) -> Callable[[Callable[[P, Draws], Times]], Callable[[P, Draws], Times]]:
    def register(function: Callable[[P, Draws], Times]) -> Callable[[P, Draws], Times]:
        _FUNCTIONS[kind] = function
        return function

    return register


def _sizes() -> Iterator[int]:
    size = FIRST_BLOCK
    while True:
        yield size
        size = min(2 * size, BLOCK)


def _summed(gaps: Callable[[int], FloatArray]) -> Times:
    """Yield the cumulative sums of gaps, which do not depend on the sizes of blocks."""
    last = 0.0
    for size in _sizes():
        block = gaps(size)
        block[0] += last
        block = np.cumsum(block)
        last = float(block[-1])
        yield block


def _unit_poisson(draws: Draws) -> Times:
    rng = draws.stream()
    return _summed(lambda size: rng.exponential(1.0, size))


@_draws(spec.Poisson)
def _poisson(process: spec.Poisson, draws: Draws) -> Times:
    rng = draws.stream()
    return _summed(lambda size: rng.exponential(1.0 / process.rate, size))


@_draws(spec.Deterministic)
def _deterministic(process: spec.Deterministic, draws: Draws) -> Times:
    done = 0
    for size in _sizes():
        # Computed by multiplication, so that rounding errors do not accumulate.
        yield np.arange(done + 1, done + size + 1) / process.rate
        done += size


@_draws(spec.GammaRenewal)
def _gamma(process: spec.GammaRenewal, draws: Draws) -> Times:
    rng, shape = draws.stream(), process.cv**-2
    return _summed(lambda size: rng.gamma(shape, 1.0 / (shape * process.rate), size))


@_draws(spec.WeibullRenewal)
def _weibull(process: spec.WeibullRenewal, draws: Draws) -> Times:
    rng, shape = draws.stream(), weibull_shape(process.cv)
    scale_s = weibull_scale(shape) / process.rate
    return _summed(lambda size: scale_s * rng.weibull(shape, size))


@_draws(spec.Burst)
def _burst(process: spec.Burst, draws: Draws) -> Times:
    in_burst = process.burst_rate * process.duration
    a_period = in_burst + process.rate * (process.every - process.duration)
    for counts in _unit_poisson(draws):
        periods = np.floor(counts / a_period)
        rest = counts - periods * a_period
        later = process.duration + (rest - in_burst) / process.rate
        yield periods * process.every + np.where(rest <= in_burst, rest / process.burst_rate, later)


@dataclass(frozen=True)
class Pieces:
    """Consecutive pieces of a piecewise-linear rate: the end of each (s), and its first and last rate (1/s)."""

    end_s: FloatArray
    from_rate: FloatArray
    to_rate: FloatArray


def through_pieces(counts: Times, pieces: Iterator[Pieces]) -> Times:
    """Yield the times (s) at which the integral of a piecewise-linear rate, from time 0, reaches each of ``counts``.

    ``pieces`` are consecutive from time 0, and never end or end at infinity. In a piece with rate a and slope s, the
    time t for x more jobs solves a t + s t²/2 = x, so t = 2x / (a + √(a² + 2 s x)), which also holds for s = 0.
    """
    edge_s, edge_count = np.zeros(1), np.zeros(1)  # the ends of the current pieces, and the integral there
    start_rate, end_rate = np.empty(0), np.empty(0)
    latest = 0.0
    for block in counts:
        fresh: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]] = []
        last_s, reached = float(edge_s[-1]), float(edge_count[-1])
        while reached <= block[-1]:
            piece = _ENDLESS if last_s > 2 * MAX_SECONDS else next(pieces)
            span_s = np.diff(piece.end_s, prepend=last_s)
            added = (piece.from_rate + piece.to_rate) / 2 * span_s
            added[0] += reached
            fresh.append((piece.end_s, np.cumsum(added), piece.from_rate, piece.to_rate))
            last_s, reached = float(piece.end_s[-1]), float(fresh[-1][1][-1])
        if fresh:
            more_s, more_count, more_start, more_end = zip(*fresh, strict=True)
            edge_s, edge_count = np.concatenate([edge_s, *more_s]), np.concatenate([edge_count, *more_count])
            start_rate, end_rate = np.concatenate([start_rate, *more_start]), np.concatenate([end_rate, *more_end])
        # The last edge at or below each count; pieces without jobs share it with the next one and are skipped.
        at = np.searchsorted(edge_count, block, side="right") - 1
        rest, a, b = block - edge_count[at], start_rate[at], end_rate[at]
        span_s = edge_s[at + 1] - edge_s[at]
        # a² + 2 s x with s = (b - a) / span; rounding can make it negative if the rate ends at zero.
        root = np.sqrt(np.maximum(a * a + 2.0 * (b - a) / span_s * rest, 0.0))
        into_s = np.divide(2.0 * rest, a + root, out=np.zeros_like(rest), where=a + root > 0)
        arrivals_s = np.minimum(edge_s[at] + into_s, edge_s[at + 1])
        # Rounding must not change the order of jobs.
        arrivals_s[0] = max(latest, arrivals_s[0])
        arrivals_s = np.maximum.accumulate(arrivals_s)
        latest = float(arrivals_s[-1])
        yield arrivals_s
        first = int(at[-1])
        edge_s, edge_count = edge_s[first:], edge_count[first:]
        start_rate, end_rate = start_rate[first:], end_rate[first:]


# A last piece beyond the longest run. Its arrivals are never used, but the iteration must not end.
_ENDLESS = Pieces(np.array([math.inf]), np.ones(1), np.ones(1))


@_draws(spec.Mmpp)
def _mmpp(process: spec.Mmpp, draws: Draws) -> Times:
    return through_pieces(_unit_poisson(draws), _states(process, draws))


def _states(process: spec.Mmpp, draws: Draws) -> Iterator[Pieces]:
    """Yield the path of the Markov chain. The remainder of the first sojourn is exponential like any sojourn."""
    rates = np.array([state.rate for state in process.states])
    sojourns_s = np.array([state.sojourn for state in process.states])
    jumps = np.cumsum(process.jumps(), axis=1)
    jumps[jumps > 1.0 - 1e-12] = 1.0  # rounding must not permit a jump of probability 0
    choose, stay = draws.stream("state"), draws.stream("sojourn")
    shares = np.cumsum(process.stationary_shares())
    state = min(int(np.searchsorted(shares, choose.random(), side="right")), len(rates) - 1)
    last_s = 0.0
    rows: list[list[float]] = jumps.tolist()
    for size in _sizes():
        path = np.empty(size, dtype=np.int64)
        for i, u in enumerate(choose.random(size).tolist()):
            path[i] = state
            state = bisect_right(rows[state], u)
        end_s = stay.exponential(1.0, size) * sojourns_s[path]
        end_s[0] += last_s
        end_s = np.cumsum(end_s)
        last_s = float(end_s[-1])
        yield Pieces(end_s, rates[path], rates[path])


@_draws(spec.Diurnal)
def _diurnal(process: spec.Diurnal, draws: Draws) -> Times:
    if process.rates is not None:
        return through_pieces(_unit_poisson(draws), _days(process, process.rates))
    return _through_a_wave(_unit_poisson(draws), process)


def _days(process: spec.Diurnal, rates: Sequence[float]) -> Iterator[Pieces]:
    """Yield the pieces of each day; the first one begins at the start of the run."""
    hour_s = DAY_S / 24
    held = np.array(rates)
    at_end = held if process.shape == "step" else np.roll(held, -1)
    first = int(process.start_time // hour_s)
    part = process.start_time / hour_s - first
    for hours in (np.arange(begin, begin + 24) for begin in count(first, 24)):
        start, end = held[hours % 24].copy(), at_end[hours % 24]
        if hours[0] == first:
            start[0] += part * (end[0] - start[0])
        yield Pieces(np.asarray((hours + 1) * hour_s - process.start_time), start, end)


def _through_a_wave(counts: Times, process: spec.Diurnal) -> Times:
    """Yield the times (s) at which the integral of rate (1 + A cos(ω (t - peak))) reaches each of ``counts``.

    With x = ω (t - trough) the integral from the trough on is rate/ω (x - A sin x). This is Kepler's equation with mean
    anomaly M = count ω / rate and eccentricity A <= 1; safeguarded Newton steps solve it.
    """
    omega, amplitude = 2 * math.pi / DAY_S, process.amplitude or 0.0
    rate, trough_s = process.rate or 1.0, (process.peak or 0.0) + DAY_S / 2
    start = omega * (process.start_time - trough_s)
    passed = start - amplitude * math.sin(start)
    knots = np.linspace(0.0, 2 * math.pi, 4097)
    solved = _kepler(knots, amplitude, knots)
    latest = 0.0
    for block in counts:
        anomaly = passed + block * (omega / rate)
        turns = np.floor(anomaly / (2 * math.pi))
        within = anomaly - turns * (2 * math.pi)
        arrivals_s = (
            _kepler(within, amplitude, np.interp(within, knots, solved)) + turns * (2 * math.pi) - start
        ) / omega
        arrivals_s[0] = max(latest, arrivals_s[0])
        arrivals_s = np.maximum.accumulate(arrivals_s)
        latest = float(arrivals_s[-1])
        yield arrivals_s


def _kepler(mean: FloatArray, eccentricity: float, x: FloatArray) -> FloatArray:
    """Return the x with x - e sin x = ``mean`` for means in [0, 2π] and e in [0, 1]; ``x`` is the first guess."""
    low, high = np.maximum(mean - eccentricity, 0.0), np.minimum(mean + eccentricity, 2 * math.pi)
    for _ in range(200):
        x = np.clip(x, low, high)
        error = x - eccentricity * np.sin(x) - mean
        low, high = np.where(error <= 0, x, low), np.where(error >= 0, x, high)
        slope = 1.0 - eccentricity * np.cos(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = x - error / slope
        # Bisect if Newton's step leaves the bracket, or the slope is zero.
        better = np.where((step > low) & (step < high), step, (low + high) / 2)
        # A converged element stays unchanged, so that it does not depend on its neighbours.
        done = (np.abs(error) <= 1e-15) | (np.abs(better - x) <= 2e-15)
        if done.all():
            break
        x = np.where(done, x, better)
    return x


@_draws(spec.Spikes)
def _spikes(process: spec.Spikes, draws: Draws) -> Times:
    spikes = _given_spikes(process, process.at) if process.at is not None else _random_spikes(process, draws)
    return through_pieces(_unit_poisson(draws), spikes)


def _given_spikes(process: spec.Spikes, at: Sequence[float]) -> Iterator[Pieces]:
    begins = np.array(sorted(at))
    before = Pieces(begins[:1], np.array([process.rate]), np.array([process.rate]))
    yield before
    yield _after_each(process, begins, math.inf)


def _random_spikes(process: spec.Spikes, draws: Draws) -> Iterator[Pieces]:
    """Yield pieces from the last spike before time 0 on. Later spikes do not depend on that one."""
    every_s = process.mean_interval or math.inf
    age_s = float(draws.clock(process.clock, "past").exponential(every_s))
    clock = draws.clock(process.clock)
    begins = _summed(lambda size: clock.exponential(every_s, size))
    last_s = -age_s
    for block in begins:
        edges = np.concatenate([[last_s], block])
        yield _after_each(process, edges[:-1], float(edges[-1]))
        last_s = float(edges[-1])


def _after_each(process: spec.Spikes, begins_s: FloatArray, until_s: float) -> Pieces:
    """Return the pieces from each beginning to the next, the last to ``until_s``: a spike, then the base rate."""
    following = np.append(begins_s[1:], until_s)
    ends = np.maximum(np.stack([np.minimum(begins_s + process.duration, following), following], 1), 0.0).ravel()
    rates = np.tile([process.rate * process.factor, process.rate], len(begins_s))
    return Pieces(ends, rates, rates)


@_draws(spec.Batches)
def _batches(process: spec.Batches, draws: Draws) -> Times:
    """Yield the jobs of batches from ``spread`` before time 0 on, so that the rate is constant from time 0."""
    sizes, moments = draws.stream("size"), draws.stream("moment")
    waiting = np.empty(0)
    for begins in _batch_begins(process, draws):
        jobs = np.repeat(begins, sizes.geometric(1.0 / process.size, len(begins)))
        if process.spread:
            jobs = jobs + process.spread * moments.random(len(jobs))
        # Later batches have no job before they begin.
        waiting = np.sort(np.concatenate([waiting, jobs]))
        complete = int(np.searchsorted(waiting, begins[-1], side="right"))
        ready = waiting[np.searchsorted(waiting, 0.0) : complete]
        waiting = waiting[complete:]
        if len(ready):
            yield ready


def _batch_begins(process: spec.Batches, draws: Draws) -> Times:
    past = draws.clock(process.clock, "past")
    before: list[float] = []
    back_s = float(past.exponential(process.mean_interval))
    while back_s < process.spread:
        before.append(-back_s)
        back_s += float(past.exponential(process.mean_interval))
    if before:
        yield np.array(before[::-1])
    clock = draws.clock(process.clock)
    at_once = max(1, int(BLOCK / process.size))
    for block in _summed(lambda size: clock.exponential(process.mean_interval, size)):
        for first in range(0, len(block), at_once):
            yield block[first : first + at_once]


@_draws(spec.Mix)
def _mix(process: spec.Mix, draws: Draws) -> Times:
    parts = [times(part, draws.part(number)) for number, part in enumerate(process.processes)]
    waiting = [next(part) for part in parts]
    while True:
        complete_s = min(float(block[-1]) for block in waiting)
        cuts = [int(np.searchsorted(block, complete_s, side="right")) for block in waiting]
        yield np.sort(np.concatenate([block[:cut] for block, cut in zip(waiting, cuts, strict=True)]))
        waiting = [
            block[cut:] if cut < len(block) else next(part)
            for block, cut, part in zip(waiting, cuts, parts, strict=True)
        ]
