"""The arrival processes of a scenario: their keys, their mean rate, and how they are scaled to another load.

Each process is a class. `windtunnel.engine.arrivals.processes` registers a generator of arrival times for each class. A
new process needs a class here, its name in ``_Drawn``, and a function there.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import (
    Count,
    Model,
    PositiveSeconds,
    Quantity,
    Seconds,
    Text,
    TimeOfDay,
    as_custom,
    whole,
)
from windtunnel.scenario.trace_formats import FORMATS

DAY_S = 86_400.0


Rate = Annotated[float, Quantity("/s", positive=True, most=1e12)]
RateOrNone = Annotated[float, Quantity("/s", most=1e12)]
"""At most one job per tick."""
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

MOST_SWITCHES_PER_JOB = 100
"""Largest mean number of rate changes between two jobs. Above it the process is indistinguishable from Poisson, and
slow to generate."""


def _refuse(problem: str, expected: str) -> Exception:
    return as_custom(InputError(problem, expected=expected))


class Process(Model, ABC):
    """Base of arrival processes that never end."""

    process: str

    @property
    def stationary(self) -> bool:
        """Return whether the rate is constant in time.

        A renewal process that begins with a complete inter-arrival time at time 0 counts as stationary, because this
        affects only its beginning.
        """
        return True

    @property
    def modulated(self) -> bool:
        """Return whether the rate changes, with time or at random, or jobs arrive in batches.

        A run contains few such changes, so its batches tell little about chance (docs/metrics.md).
        """
        return not self.stationary

    @abstractmethod
    def mean_rate_per_s(self) -> float:
        """Return the long-run mean rate (jobs/s)."""

    def expected_jobs(self, time_s: float) -> float:
        """Return the expected number of jobs in the first ``time_s`` of a run."""
        return self.mean_rate_per_s() * time_s

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """Return the same process with ``factor`` times the rate at every time."""


class _ConstantRate(Process):
    rate: Rate

    def mean_rate_per_s(self) -> float:
        """Return the long-run mean rate (jobs/s)."""
        return self.rate

    def scaled(self, factor: float) -> Self:
        """Return the same process with ``factor`` times the rate."""
        return self.model_copy(update={"rate": self.rate * factor})


class Poisson(_ConstantRate):
    """A Poisson process: exponential inter-arrival times."""

    process: Literal["poisson"]


class Deterministic(_ConstantRate):
    """Equal inter-arrival times; the first job arrives after one of them."""

    process: Literal["deterministic"]


class GammaRenewal(_ConstantRate):
    """Gamma-distributed inter-arrival times; ``cv`` is their standard deviation over their mean."""

    process: Literal["gamma"]
    cv: Annotated[float, Field(ge=1e-6, le=100, allow_inf_nan=False)]


class WeibullRenewal(_ConstantRate):
    """Weibull-distributed inter-arrival times; ``cv`` is their standard deviation over their mean."""

    process: Literal["weibull"]
    cv: Annotated[float, Field(ge=0.001, le=100, allow_inf_nan=False)]


class Burst(Process):
    """Poisson at ``rate``, and at ``burst_rate`` for the first ``duration`` of each period ``every``."""

    process: Literal["burst"]
    rate: Rate
    burst_rate: Rate
    every: PositiveSeconds
    duration: PositiveSeconds

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.duration > self.every:
            raise _refuse("a burst is longer than the time between bursts", "duration <= every")
        return self

    @property
    def stationary(self) -> bool:
        """Return False: the rate changes with time."""
        return False

    def mean_rate_per_s(self) -> float:
        """Return the time-weighted mean of the two rates (jobs/s)."""
        return self.rate + (self.burst_rate - self.rate) * self.duration / self.every

    def expected_jobs(self, time_s: float) -> float:
        """Return the expected number of jobs in the first ``time_s`` of a run, which begins with a burst."""
        periods, rest_s = divmod(time_s, self.every)
        burst_s = periods * self.duration + min(rest_s, self.duration)
        return self.rate * (time_s - burst_s) + self.burst_rate * burst_s

    def scaled(self, factor: float) -> Self:
        """Return the same process with both rates times ``factor``."""
        return self.model_copy(update={"rate": self.rate * factor, "burst_rate": self.burst_rate * factor})


class MmppState(Model):
    """A state of an MMPP: its arrival rate, its mean sojourn time, and the probabilities of the next state."""

    rate: RateOrNone
    sojourn: PositiveSeconds
    next: Annotated[list[Share], Field(min_length=2)] | None = Field(
        None,
        description="probability of each state, in the list's order, to be the next; default: uniform over the others",
    )


class Mmpp(Process):
    """A Markov-modulated Poisson process: Poisson at the rate of the current state of a Markov chain.

    The chain begins in its stationary distribution.
    """

    process: Literal["mmpp"]
    states: Annotated[list[MmppState], Field(min_length=2, max_length=1000)]

    @model_validator(mode="after")
    def _possible(self) -> Self:
        count = len(self.states)
        for number, state in enumerate(self.states):
            if state.next is None:
                continue
            if len(state.next) != count:
                raise _refuse(f"states[{number}].next has {len(state.next)} entries", f"{count}, one for each state")
            if state.next[number] or abs(math.fsum(state.next) - 1.0) > 1e-9:
                raise _refuse(
                    f"states[{number}].next is not a distribution over the other states",
                    "probabilities that add up to 1, and 0 for the state itself",
                )
        reachable = np.linalg.matrix_power(np.eye(count) + (self.jumps() > 0), count) > 0
        if not reachable.all():
            start, end = np.argwhere(~reachable)[0].tolist()
            raise _refuse(
                f"states[{end}] is not reachable from states[{start}]", "a chain in which every state is reachable"
            )
        if not any(state.rate for state in self.states):
            raise _refuse("no state has jobs", "a rate above zero in at least one state")
        switches = float(self.stationary_shares() @ [1.0 / state.sojourn for state in self.states])
        if switches > MOST_SWITCHES_PER_JOB * self.mean_rate_per_s():
            raise _refuse(
                f"the state changes {switches / self.mean_rate_per_s():,.0f} times per job",
                f"at most {MOST_SWITCHES_PER_JOB:,} times: longer sojourns, or higher rates",
            )
        return self

    @property
    def modulated(self) -> bool:
        """Return True: the rate changes at random."""
        return True

    def jumps(self) -> np.ndarray:
        """Return the transition matrix of the embedded chain; shape (states, states), rows are the current state."""
        count = len(self.states)
        uniform = [[float(i != j) / (count - 1) for j in range(count)] for i in range(count)]
        weights = np.array([state.next or uniform[i] for i, state in enumerate(self.states)])
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def stationary_shares(self) -> np.ndarray:
        """Return the share of time in each state: the embedded chain's stationary distribution weighted by sojourns."""
        count = len(self.states)
        balance = np.vstack([self.jumps().T - np.eye(count), np.ones(count)])
        visits = np.linalg.lstsq(balance, np.append(np.zeros(count), 1.0), rcond=None)[0]
        weights = np.clip(visits, 0.0, None) * np.array([state.sojourn for state in self.states])
        return np.asarray(weights / weights.sum())

    def mean_rate_per_s(self) -> float:
        """Return the time-weighted mean of the states' rates (jobs/s)."""
        return float(self.stationary_shares() @ [state.rate for state in self.states])

    def scaled(self, factor: float) -> Self:
        """Return the same chain with every state's rate times ``factor``."""
        states = [state.model_copy(update={"rate": state.rate * factor}) for state in self.states]
        return self.model_copy(update={"states": states})


class Diurnal(Process):
    """Poisson at a rate that repeats every day.

    The rate is either ``rates``, one for each full hour from midnight, interpolated linearly (``linear``) or constant
    during each hour (``step``); or a mean ``rate`` times 1 + ``amplitude`` cos(2π (time of day - ``peak``) / 24 h).
    """

    process: Literal["diurnal"]
    rates: Annotated[list[RateOrNone], Field(min_length=24, max_length=24)] | None = None
    shape: Literal["linear", "step"] | None = Field(None, description="with rates; default: linear")
    rate: Rate | None = None
    amplitude: Share | None = Field(None, description="with rate: amplitude, as a share of the rate")
    peak: TimeOfDay | None = Field(None, description="with rate: time of day of the highest rate")
    start_time: TimeOfDay = Field(0.0, description="the time of day at which the run begins")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        wave = (self.rate, self.amplitude, self.peak)
        if self.rates is None and None in wave:
            missing = next(name for name in ("rate", "amplitude", "peak") if getattr(self, name) is None)
            raise _refuse(f"a diurnal process needs rates, or rate, amplitude and peak; '{missing}' is missing", _DAY)
        if self.rates is not None and any(part is not None for part in wave):
            raise _refuse("a diurnal process has either rates, or rate, amplitude and peak, not both", _DAY)
        if self.rates is None and self.shape is not None:
            raise _refuse("shape is only for rates", "rates, or no shape")
        if self.rates is not None and not any(self.rates):
            raise _refuse("no hour has jobs", "a rate above zero in at least one hour")
        return self

    @property
    def stationary(self) -> bool:
        """Return False: the rate changes with time."""
        return False

    def mean_rate_per_s(self) -> float:
        """Return the mean rate of a day (jobs/s). With linear interpolation it equals the mean of the 24 rates."""
        return math.fsum(self.rates) / 24 if self.rates is not None else self.rate or 0.0

    def expected_jobs(self, time_s: float) -> float:
        """Return the expected number of jobs in the first ``time_s`` of a run: whole days, and the rest by minutes."""
        days, rest_s = divmod(time_s, DAY_S)
        minutes = max(1, math.ceil(rest_s / 60.0))
        middles_s = self.start_time + (np.arange(minutes) + 0.5) * rest_s / minutes
        return self.mean_rate_per_s() * days * DAY_S + float(self._rates_at(middles_s).mean()) * rest_s

    def _rates_at(self, times_s: np.ndarray) -> np.ndarray:
        """Return the rate (jobs/s) at times of day (s)."""
        if self.rates is None:
            assert self.rate is not None and self.amplitude is not None and self.peak is not None  # noqa: S101  checked
            wave: np.ndarray = np.cos(2.0 * math.pi * (times_s - self.peak) / DAY_S)
            return self.rate * (1.0 + self.amplitude * wave)
        hours, rates = times_s % DAY_S / 3600.0, np.array(self.rates)
        if self.shape == "step":
            return np.asarray(rates[hours.astype(np.int64)])
        return np.asarray(np.interp(hours, np.arange(25), np.append(rates, rates[0])))

    def scaled(self, factor: float) -> Self:
        """Return the same process with all rates times ``factor``."""
        if self.rates is not None:
            return self.model_copy(update={"rates": [rate * factor for rate in self.rates]})
        return self.model_copy(update={"rate": (self.rate or 0.0) * factor})


_DAY = "rates (24 of them), or rate, amplitude and peak"


class Spikes(Process):
    """Poisson at ``rate``, and at ``factor`` times the rate for ``duration`` from the start of each spike.

    Spikes begin at the times ``at``, or at random as a Poisson process with the mean interval ``mean_interval``. Where
    two spikes overlap, the factor applies once. Workloads that name the same ``clock`` have spikes at the same times.
    """

    process: Literal["spikes"]
    rate: Rate
    factor: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    duration: PositiveSeconds
    at: Annotated[list[Seconds], Field(min_length=1, max_length=100_000)] | None = None
    mean_interval: PositiveSeconds | None = None
    clock: Text | None = Field(None, description="name of a clock that several workloads share")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.at is None) == (self.mean_interval is None):
            raise _refuse("spikes need either at or mean_interval", "at: [10 s, ...], or mean_interval: 1 min")
        if self.clock is not None and self.mean_interval is None:
            raise _refuse("clock is only for random spikes", "the same `at` in each workload, or mean_interval: 1 min")
        if self.mean_interval is not None and 2 / self.mean_interval > MOST_SWITCHES_PER_JOB * self.mean_rate_per_s():
            raise _refuse("there are too many spikes per job", "a longer `mean_interval`, or a higher rate")
        return self

    @property
    def stationary(self) -> bool:
        """Return True for random spikes, whose rate is constant, and False for stated times."""
        return self.at is None

    @property
    def modulated(self) -> bool:
        """Return True: the rate changes in each spike."""
        return True

    def mean_rate_per_s(self) -> float:
        """Return the long-run mean rate (jobs/s): ``rate`` for stated times, else including the share in spikes.

        The share is 1 - e^(-duration/mean_interval), that of a busy M/G/∞ queue with constant service.
        """
        if self.mean_interval is None:
            return self.rate
        return self.rate * (1.0 + (self.factor - 1.0) * -math.expm1(-self.duration / self.mean_interval))

    def expected_jobs(self, time_s: float) -> float:
        """Return the expected number of jobs in the first ``time_s`` of a run."""
        if self.at is None:
            return self.mean_rate_per_s() * time_s
        in_spikes_s, end_s = 0.0, 0.0
        for begin_s in sorted(self.at):
            first_s, last_s = max(begin_s, end_s), min(begin_s + self.duration, time_s)
            in_spikes_s += max(0.0, last_s - first_s)
            end_s = max(end_s, last_s)
        return self.rate * (time_s + (self.factor - 1.0) * in_spikes_s)

    def scaled(self, factor: float) -> Self:
        """Return the same spikes with the rate times ``factor``."""
        return self.model_copy(update={"rate": self.rate * factor})


class Batches(Process):
    """Batches of jobs with mean size ``size`` (geometric, at least 1), as a Poisson process with ``mean_interval``.

    With ``spread`` each job arrives at a random time within ``spread`` after the start of its batch. Workloads that
    name the same ``clock`` have batches at the same times.
    """

    process: Literal["batches"]
    mean_interval: PositiveSeconds
    size: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)]
    spread: Seconds = 0.0
    clock: Text | None = Field(None, description="name of a clock that several workloads share")

    @model_validator(mode="after")
    def _overlap(self) -> Self:
        if self.spread * self.mean_rate_per_s() > 1e7:
            raise _refuse("more than ten million jobs overlap", "a shorter spread")
        return self

    @property
    def modulated(self) -> bool:
        """Return True: jobs arrive in batches."""
        return True

    def mean_rate_per_s(self) -> float:
        """Return the mean size over the mean interval (jobs/s)."""
        return self.size / self.mean_interval

    def scaled(self, factor: float) -> Self:
        """Return the process with ``factor`` times as many batches, or with a shared clock with larger batches.

        Raises:
            InputError: A batch would have less than one job.
        """
        if self.clock is None:
            return self.model_copy(update={"mean_interval": self.mean_interval / factor})
        if self.size * factor < 1:
            raise InputError(
                f"batches of {self.size:g} jobs on the clock '{self.clock}' cannot be made {factor:g} times as large",
                expected="a size of at least one job",
            )
        return self.model_copy(update={"size": self.size * factor})


_Drawn = Poisson | Deterministic | GammaRenewal | WeibullRenewal | Burst | Mmpp | Diurnal | Spikes | Batches

Single = Annotated[_Drawn, Field(discriminator="process")]


class Mix(Process):
    """The union of several processes, in order of time."""

    process: Literal["mix"]
    processes: Annotated[list[Single], Field(min_length=1, max_length=100)]

    @property
    def stationary(self) -> bool:
        """Return whether all its processes are stationary."""
        return all(process.stationary for process in self.processes)

    @property
    def modulated(self) -> bool:
        """Return whether any of its processes is modulated."""
        return any(process.modulated for process in self.processes)

    def mean_rate_per_s(self) -> float:
        """Return the sum of the mean rates of its processes (jobs/s)."""
        return math.fsum(process.mean_rate_per_s() for process in self.processes)

    def expected_jobs(self, time_s: float) -> float:
        """Return the expected number of jobs of all its processes in the first ``time_s`` of a run."""
        return math.fsum(process.expected_jobs(time_s) for process in self.processes)

    def scaled(self, factor: float) -> Self:
        """Return the union of its processes, each scaled by ``factor``."""
        return self.model_copy(update={"processes": [process.scaled(factor) for process in self.processes]})


class Knot(Model):
    """A point of ``time_map``: the time ``from`` in the trace becomes the time ``to`` in the run."""

    from_: Seconds = Field(alias="from")
    to: Seconds


class Trace(Model):
    """The rows of a file (CSV or JSON lines, plain or gzip), one job each, at the times in column ``time``.

    Times are ISO 8601 or seconds, relative to the first row. The other columns can be used as ``$Column``. Keys are
    applied in this order: ``columns`` renames columns, ``from`` and ``until`` select a window, ``time_map`` and
    ``speed`` transform times, ``repeat`` and ``scale`` multiply jobs.
    """

    process: Literal["trace"]
    file: Text
    format: Literal["csv", "azure-llm", "mooncake", "openb-pods"] = "csv"
    time: Text | None = Field(
        None, description="name of the arrival-time column; formats other than csv have a default"
    )
    columns: dict[Text, Text] = Field(
        default_factory=dict, description="name in the program: name of the column in the file"
    )
    from_: Seconds = Field(0.0, alias="from", description="start of the window, which becomes time 0")
    until: PositiveSeconds | None = Field(None, description="end of the window (exclusive)")
    time_map: Annotated[list[Knot], Field(max_length=10_000)] = Field(
        default_factory=list,
        description="a piecewise-linear map of time that starts from 0 to 0; slope 1 after its end",
    )
    speed: Factor = Field(1.0, description="times are divided by this")
    repeat: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1_000_000)] = Field(
        1, description="how many times the trace is played, one after the other"
    )
    scale: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] = Field(
        1.0, description="jobs for each row: below 1 rows are removed at random, above 1 rows are copied with jitter"
    )
    jitter: Seconds | None = Field(
        None, description="largest distance of a copy made by scale from its row; default: the mean inter-arrival time"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.format == "csv" and self.time is None:
            raise _refuse("'time' is missing", "`time`: name of the arrival-time column")
        if self.until is not None and self.until <= self.from_:
            raise _refuse("the window ends before it begins", "from < until")
        start, end = 0.0, 0.0
        for number, knot in enumerate(self.time_map):
            if (knot.from_ <= start or knot.to <= end) and (number or knot.from_ or knot.to):
                raise _refuse(f"time_map[{number}] does not increase both times", "times that increase, from 0")
            start, end = knot.from_, knot.to
        if self.jitter is not None and self.scale <= 1:
            raise _refuse("jitter is only for copies", "scale above 1, or no jitter")
        return self

    @property
    def stationary(self) -> bool:
        """Return False: a trace is not stationary."""
        return False

    @property
    def modulated(self) -> bool:
        """Return True: the rate of a trace changes with time."""
        return True

    @property
    def time_column(self) -> str:
        """The name of the arrival-time column."""
        return self.time if self.time is not None else FORMATS[self.format].time

    def scaled(self, factor: float) -> Self:
        """Return the same trace with ``factor`` times the jobs."""
        return self.model_copy(update={"scale": self.scale * factor})


class Think(Model):
    """The think time of a user between the completion of a job and the next job."""

    distribution: Literal["deterministic", "exponential", "lognormal", "gamma", "weibull"] = "exponential"
    mean: Seconds
    cv: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        None, description="standard deviation over mean, for lognormal, gamma and weibull; default: 1"
    )

    @model_validator(mode="after")
    def _one_cv(self) -> Self:
        if self.cv is not None and self.distribution in ("deterministic", "exponential"):
            raise _refuse(
                f"cv is not a parameter of the {self.distribution} distribution",
                "no cv, or lognormal, gamma or weibull",
            )
        if self.distribution == "weibull" and self.cv is not None and self.cv < 0.001:
            raise _refuse(f"cv {self.cv:g} is too small for a Weibull distribution", "0.001 or more, or deterministic")
        return self


class Closed(Model):
    """A closed loop: each of ``users`` thinks, submits a job, waits for its completion, and thinks again.

    The arrival rate depends on the latency, so it is not stated. All users begin to think at time 0, or one after the
    other within ``ramp``.
    """

    process: Literal["closed"]
    users: Count
    think: Think
    ramp: Seconds = Field(0.0, description="time within which the users begin, at equal distances; default: 0 s")

    @property
    def stationary(self) -> bool:
        """Return True: the behaviour of the users does not change with time."""
        return True

    @property
    def modulated(self) -> bool:
        """Return False: the users behave alike at all times."""
        return False

    def scaled(self, factor: float) -> Self:
        """Return the process with ``factor`` times as many users, rounded, and at least one."""
        return self.model_copy(update={"users": max(1, round(self.users * factor))})

    def most_jobs(self, time_s: float) -> float:
        """Return the mean number of jobs within ``time_s`` if all jobs took no time; infinite for a think time of 0."""
        return self.users * time_s / self.think.mean if self.think.mean else math.inf


Arrivals = Annotated[_Drawn | Mix | Trace | Closed, Field(discriminator="process")]


def shared_clocks(arrivals: Process | Trace | Closed) -> Iterator[tuple[tuple[str | int, ...], str, float]]:
    """Yield each named clock of ``arrivals``: the path to its ``mean_interval``, its name, and the value (s)."""
    parts = enumerate(arrivals.processes) if isinstance(arrivals, Mix) else [(None, arrivals)]
    for number, part in parts:
        if isinstance(part, Spikes | Batches) and part.clock is not None and part.mean_interval is not None:
            yield (
                (("processes", number) if number is not None else ()) + ("mean_interval",),
                part.clock,
                part.mean_interval,
            )
