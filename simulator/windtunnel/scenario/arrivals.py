"""How jobs may arrive: what a scenario says of it, its mean rate, and how it is made heavier or lighter.

One class a process. How each is drawn is registered, by class, in `windtunnel.engine.arrivals.processes`; a new process
is a class here, its name in ``_Drawn``, and a function there.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Count, Model, PositiveSeconds, Quantity, Seconds, Text, as_custom, whole

DAY_S = 86_400.0
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")


class _TimeOfDay:
    """Makes a float field a time of day: seconds since midnight here, text such as ``08:30`` in files."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.read, handler(source), serialization=core_schema.plain_serializer_function_ser_schema(self.write)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "description": "a time of day", "pattern": _CLOCK.pattern, "examples": ["08:30"]}

    def read(self, value: Any) -> float:
        """Text to seconds since midnight."""
        match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise as_custom(InputError(f"{value!r} is not a time of day", expected="such as '08:30' or '08:30:00'"))
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return 3600.0 * hours + 60.0 * minutes + seconds

    def write(self, value: float) -> str:
        """Seconds since midnight to text that reads back."""
        minutes, seconds = divmod(int(value), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


TimeOfDay = Annotated[float, _TimeOfDay()]
Rate = Annotated[float, Quantity("/s", positive=True, most=1e12)]
RateOrNone = Annotated[float, Quantity("/s", most=1e12)]
"""At most a job a tick."""
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

MOST_SWITCHES_PER_JOB = 100
"""How often a modulated rate may change between two jobs on average: beyond it the process is Poisson to the eye, and
only slow to draw."""


def _refuse(problem: str, expected: str) -> Exception:
    return as_custom(InputError(problem, expected=expected))


class Process(Model, ABC):
    """A source of jobs that never ends."""

    process: str

    @property
    def stationary(self) -> bool:
        """Whether the rate is the same at all times.

        A renewal process begins with a whole distance at time 0 and counts as stationary all the same: it forgets that.
        """
        return True

    @abstractmethod
    def mean_rate_per_s(self) -> float:
        """Jobs per second in the long run."""

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """The same process with ``factor`` times the rate at every moment."""


class _AtARate(Process):
    rate: Rate

    def mean_rate_per_s(self) -> float:
        """Jobs per second in the long run."""
        return self.rate

    def scaled(self, factor: float) -> Self:
        """The same process with ``factor`` times the rate."""
        return self.model_copy(update={"rate": self.rate * factor})


class Poisson(_AtARate):
    """Arrivals without memory, at a rate."""

    process: Literal["poisson"]


class Deterministic(_AtARate):
    """Arrivals at equal distances, the first after one of them."""

    process: Literal["deterministic"]


class GammaRenewal(_AtARate):
    """Gamma-distributed distances between arrivals; ``cv`` is their standard deviation over their mean."""

    process: Literal["gamma"]
    cv: Annotated[float, Field(ge=1e-6, le=100, allow_inf_nan=False)]


class WeibullRenewal(_AtARate):
    """Weibull-distributed distances between arrivals; ``cv`` is their standard deviation over their mean."""

    process: Literal["weibull"]
    cv: Annotated[float, Field(ge=0.001, le=100, allow_inf_nan=False)]


class Burst(Process):
    """Poisson at ``rate``, and at ``burst_rate`` for the first ``duration`` of every ``every``."""

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
        """No."""
        return False

    def mean_rate_per_s(self) -> float:
        """The two rates, each for its share of the time."""
        return self.rate + (self.burst_rate - self.rate) * self.duration / self.every

    def scaled(self, factor: float) -> Self:
        """Both rates times ``factor``."""
        return self.model_copy(update={"rate": self.rate * factor, "burst_rate": self.burst_rate * factor})


class MmppState(Model):
    """A state of an MMPP: the rate while in it, how long it lasts on average, and where it leads."""

    rate: RateOrNone
    sojourn: PositiveSeconds
    next: Annotated[list[Share], Field(min_length=2)] | None = Field(
        None, description="probability of each state, in the list's order, as the next; every other alike unless given"
    )


class Mmpp(Process):
    """A Markov-modulated Poisson process: Poisson at the rate of the state that a Markov chain is in.

    It begins in the chain's stationary distribution.
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
                raise _refuse(f"states[{number}].next has {len(state.next)} entries", f"{count}, one a state")
            if state.next[number] or abs(math.fsum(state.next) - 1.0) > 1e-9:
                raise _refuse(
                    f"states[{number}].next is not where this state leads", "probabilities that add up to 1, its own 0"
                )
        reached = np.linalg.matrix_power(np.eye(count) + (self.jumps() > 0), count) > 0
        if not reached.all():
            start, end = np.argwhere(~reached)[0].tolist()
            raise _refuse(
                f"from states[{start}] there is no way to states[{end}]", "a chain in which every state leads to all"
            )
        if not any(state.rate for state in self.states):
            raise _refuse("no state has jobs", "a rate above zero in one state at least")
        switches = float(self.stationary_shares() @ [1.0 / state.sojourn for state in self.states])
        if switches > MOST_SWITCHES_PER_JOB * self.mean_rate_per_s():
            raise _refuse(
                f"the state changes {switches / self.mean_rate_per_s():,.0f} times a job",
                f"at most {MOST_SWITCHES_PER_JOB:,} times: longer sojourns, or higher rates",
            )
        return self

    def jumps(self) -> np.ndarray:
        """Where each state (row) leads: the embedded chain's matrix, of shape (states, states)."""
        count = len(self.states)
        alike = [[float(i != j) / (count - 1) for j in range(count)] for i in range(count)]
        ways = np.array([state.next or alike[i] for i, state in enumerate(self.states)])
        return np.asarray(ways / ways.sum(axis=1, keepdims=True))

    def stationary_shares(self) -> np.ndarray:
        """The share of time in each state: the embedded chain's stationary distribution weighed by sojourns."""
        count = len(self.states)
        balance = np.vstack([self.jumps().T - np.eye(count), np.ones(count)])
        visits = np.linalg.lstsq(balance, np.append(np.zeros(count), 1.0), rcond=None)[0]
        weights = np.clip(visits, 0.0, None) * np.array([state.sojourn for state in self.states])
        return np.asarray(weights / weights.sum())

    def mean_rate_per_s(self) -> float:
        """The states' rates, each for its share of the time."""
        return float(self.stationary_shares() @ [state.rate for state in self.states])

    def scaled(self, factor: float) -> Self:
        """Every state's rate times ``factor``; the chain stays."""
        states = [state.model_copy(update={"rate": state.rate * factor}) for state in self.states]
        return self.model_copy(update={"states": states})


class Diurnal(Process):
    """Poisson at a rate that goes through the same day again and again.

    Either ``rates``, one for each full hour from midnight, with straight lines between them (``linear``) or each held
    for its hour (``step``); or a mean ``rate`` times 1 + ``amplitude`` cos(2π (time of day - ``peak``) / 24 h).
    """

    process: Literal["diurnal"]
    rates: Annotated[list[RateOrNone], Field(min_length=24, max_length=24)] | None = None
    shape: Literal["linear", "step"] | None = Field(None, description="with rates: linear unless given")
    rate: Rate | None = None
    amplitude: Share | None = Field(None, description="with rate: how far it swings, as a share of it")
    peak: TimeOfDay | None = Field(None, description="with rate: when it is highest")
    start_time: TimeOfDay = Field(0.0, description="the time of day at which the run begins")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        wave = (self.rate, self.amplitude, self.peak)
        if self.rates is None and None in wave:
            missing = next(name for name in ("rate", "amplitude", "peak") if getattr(self, name) is None)
            raise _refuse(f"a day is described by rates, or by a wave, and this has no '{missing}'", _DAY)
        if self.rates is not None and any(part is not None for part in wave):
            raise _refuse("a day is described in two ways", _DAY)
        if self.rates is None and self.shape is not None:
            raise _refuse("a wave has no shape", "rates, or no shape")
        if self.rates is not None and not any(self.rates):
            raise _refuse("no hour has jobs", "a rate above zero in one hour at least")
        return self

    @property
    def stationary(self) -> bool:
        """No."""
        return False

    def mean_rate_per_s(self) -> float:
        """The day's mean: with straight lines between full hours it is that of the hours too."""
        return math.fsum(self.rates) / 24 if self.rates is not None else self.rate or 0.0

    def scaled(self, factor: float) -> Self:
        """The whole day times ``factor``."""
        if self.rates is not None:
            return self.model_copy(update={"rates": [rate * factor for rate in self.rates]})
        return self.model_copy(update={"rate": (self.rate or 0.0) * factor})


_DAY = "rates (24 of them), or rate, amplitude and peak"


class Spikes(Process):
    """Poisson at ``rate``, and at ``factor`` times that for ``duration`` from the beginning of each spike.

    Spikes begin at the times ``at``, or at random, with the mean time ``mean_interval`` between two of them (a Poisson
    process; where two spikes overlap the factor counts once). Workloads that name the same ``clock`` have theirs at the
    same times.
    """

    process: Literal["spikes"]
    rate: Rate
    factor: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    duration: PositiveSeconds
    at: Annotated[list[Seconds], Field(min_length=1, max_length=100_000)] | None = None
    mean_interval: PositiveSeconds | None = None
    clock: Text | None = Field(None, description="the name of a clock that several workloads go by")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.at is None) == (self.mean_interval is None):
            raise _refuse("spikes come at given times or at random", "at: [10 s, ...], or mean_interval: 1 min")
        if self.clock is not None and self.mean_interval is None:
            raise _refuse("given times need no shared clock", "the same `at` in each workload, or mean_interval: 1 min")
        if self.mean_interval is not None and 2 / self.mean_interval > MOST_SWITCHES_PER_JOB * self.mean_rate_per_s():
            raise _refuse("there are hundreds of spikes to a job", "a longer `mean_interval`, or a higher rate")
        return self

    @property
    def stationary(self) -> bool:
        """At random there is always the same chance of a spike; given times come once."""
        return self.at is None

    def mean_rate_per_s(self) -> float:
        """``rate`` where times are given, since spikes end; else with the share of time in a spike.

        The share is 1 - e^(-duration/mean_interval), that of a busy M/G/∞ queue with constant service.
        """
        if self.mean_interval is None:
            return self.rate
        return self.rate * (1.0 + (self.factor - 1.0) * -math.expm1(-self.duration / self.mean_interval))

    def scaled(self, factor: float) -> Self:
        """The rate times ``factor``; the spikes stay."""
        return self.model_copy(update={"rate": self.rate * factor})


class Batches(Process):
    """Jobs in batches of ``size`` on average (geometric, at least 1), with the mean time
    ``mean_interval`` between two batches (Poisson).

    With ``spread`` each job of a batch comes at a random moment within that time after its beginning. Workloads that
    name the same ``clock`` have their batches at the same times.
    """

    process: Literal["batches"]
    mean_interval: PositiveSeconds
    size: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)]
    spread: Seconds = 0.0
    clock: Text | None = Field(None, description="the name of a clock that several workloads go by")

    @model_validator(mode="after")
    def _overlap(self) -> Self:
        if self.spread * self.mean_rate_per_s() > 1e7:
            raise _refuse("more than ten million jobs overlap", "a shorter spread")
        return self

    def mean_rate_per_s(self) -> float:
        """Mean size over mean distance."""
        return self.size / self.mean_interval

    def scaled(self, factor: float) -> Self:
        """Batches ``factor`` times as often; on a shared clock, which goes its own way, ``factor`` times as large.

        Raises InputError where that would make a batch smaller than a job.
        """
        if self.clock is None:
            return self.model_copy(update={"mean_interval": self.mean_interval / factor})
        if self.size * factor < 1:
            raise InputError(
                f"batches of {self.size:g} jobs on the clock '{self.clock}' cannot be made {factor:g} times as large",
                expected="one job or more in each",
            )
        return self.model_copy(update={"size": self.size * factor})


class Mix(Process):
    """Several processes at once: all their jobs, in order of time."""

    process: Literal["mix"]
    processes: Annotated[list[Single], Field(min_length=1, max_length=100)]

    @property
    def stationary(self) -> bool:
        """Whether all of them are."""
        return all(process.stationary for process in self.processes)

    def mean_rate_per_s(self) -> float:
        """The sum of theirs."""
        return math.fsum(process.mean_rate_per_s() for process in self.processes)

    def scaled(self, factor: float) -> Self:
        """Each of them times ``factor``."""
        return self.model_copy(update={"processes": [process.scaled(factor) for process in self.processes]})


class Knot(Model):
    """A point of a map of time: the time ``from`` in the trace becomes the time ``to`` in the run."""

    from_: Seconds = Field(alias="from")
    to: Seconds


class TraceFormat(NamedTuple):
    """What a file of a known format holds."""

    time: str
    """The column of the arrival."""
    columns: tuple[str, ...]
    """Every column that there must be."""


_POD_COLUMNS = (
    "name cpu_milli memory_mib num_gpu gpu_milli gpu_spec qos pod_phase creation_time deletion_time scheduled_time"
)
FORMATS = {
    "azure-llm": TraceFormat("TIMESTAMP", ("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    "openb-pods": TraceFormat("creation_time", tuple(_POD_COLUMNS.split())),
}
"""Trace formats known by name."""


class Trace(Model):
    """The rows of a CSV file (plain or gzip), one job each, at the times in column ``time``.

    Times are ISO 8601 or seconds; the first row's is zero. The other columns can be used as ``$Column``. In this order:
    ``columns`` renames, ``from`` and ``until`` cut, ``time_map`` and ``speed`` map time, ``repeat`` and ``scale``
    multiply.
    """

    process: Literal["trace"]
    file: Text
    format: Literal["csv", "azure-llm", "openb-pods"] = "csv"
    time: Text | None = Field(None, description="the column of the arrival; a format other than csv knows its own")
    columns: dict[Text, Text] = Field(
        default_factory=dict, description="column to use in the program: column of the file that it is"
    )
    from_: Seconds = Field(0.0, alias="from", description="leave out what comes before; this becomes time 0")
    until: PositiveSeconds | None = Field(None, description="leave out what comes at this time or later")
    time_map: Annotated[list[Knot], Field(max_length=10_000)] = Field(
        default_factory=list, description="a piecewise-linear map of time from 0 to 0; as fast as before after its end"
    )
    speed: Factor = Field(1.0, description="time is divided by this")
    repeat: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1_000_000)] = Field(
        1, description="how often the whole comes, one after the other"
    )
    scale: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] = Field(
        1.0, description="jobs for each row: rows left out at random below 1, copies with jitter above"
    )
    jitter: Seconds | None = Field(
        None, description="how far a copy made by scale may lie from its row; the mean distance of rows unless given"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.format == "csv" and self.time is None:
            raise _refuse("'time' is missing", "the key 'time': the column of the arrival")
        if self.until is not None and self.until <= self.from_:
            raise _refuse("the window ends before it begins", "from < until")
        start, end = 0.0, 0.0
        for number, knot in enumerate(self.time_map):
            if (knot.from_ <= start or knot.to <= end) and (number or knot.from_ or knot.to):
                raise _refuse(f"time_map[{number}] does not increase both times", "times that increase, from 0")
            start, end = knot.from_, knot.to
        if self.jitter is not None and self.scale <= 1:
            raise _refuse("there are no copies to jitter", "scale above 1, or no jitter")
        return self

    @property
    def stationary(self) -> bool:
        """No: what was recorded once is what it was."""
        return False

    @property
    def time_column(self) -> str:
        """The column that holds the arrival."""
        return self.time if self.time is not None else FORMATS[self.format].time

    def scaled(self, factor: float) -> Self:
        """The same trace with ``factor`` times the jobs."""
        return self.model_copy(update={"scale": self.scale * factor})


class Think(Model):
    """How long a user thinks between an answer and the next job."""

    distribution: Literal["deterministic", "exponential", "lognormal", "gamma", "weibull"] = "exponential"
    mean: Seconds
    cv: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        None, description="standard deviation over mean, of a lognormal, gamma or Weibull time; 1 unless given"
    )

    @model_validator(mode="after")
    def _one_cv(self) -> Self:
        if self.cv is not None and self.distribution in ("deterministic", "exponential"):
            raise _refuse(f"a {self.distribution} time has a cv of its own", "no cv, or lognormal, gamma or weibull")
        if self.distribution == "weibull" and self.cv is not None and self.cv < 0.001:
            raise _refuse(f"no Weibull distribution here has cv {self.cv:g}", "0.001 or more, or deterministic")
        return self


class Closed(Model):
    """A closed loop: each of ``users`` thinks, submits a job, waits for its end, and thinks again.

    How often jobs come depends on how soon they are answered, so there is no rate to state. All users begin thinking at
    time 0.
    """

    process: Literal["closed"]
    users: Count
    think: Think

    @property
    def stationary(self) -> bool:
        """Nothing about the users changes with time."""
        return True

    def scaled(self, factor: float) -> Self:
        """``factor`` times as many users, to the nearest whole number and at least one."""
        return self.model_copy(update={"users": max(1, round(self.users * factor))})

    def most_jobs(self, time_s: float) -> float:
        """About how many jobs come within ``time_s`` if every job is answered at once; infinite without thinking."""
        return self.users * time_s / self.think.mean if self.think.mean else math.inf


_Drawn = Poisson | Deterministic | GammaRenewal | WeibullRenewal | Burst | Mmpp | Diurnal | Spikes | Batches

Single = Annotated[_Drawn, Field(discriminator="process")]
Arrivals = Annotated[_Drawn | Mix | Trace | Closed, Field(discriminator="process")]
Mix.model_rebuild()


def shared_clocks(arrivals: Process | Trace | Closed) -> Iterator[tuple[tuple[str | int, ...], str, float]]:
    """Each named clock that ``arrivals`` goes by: the path to its ``mean_interval``, its name, and the value (s)."""
    parts = enumerate(arrivals.processes) if isinstance(arrivals, Mix) else [(None, arrivals)]
    for number, part in parts:
        if isinstance(part, Spikes | Batches) and part.clock is not None and part.mean_interval is not None:
            yield (
                (("processes", number) if number is not None else ()) + ("mean_interval",),
                part.clock,
                part.mean_interval,
            )
