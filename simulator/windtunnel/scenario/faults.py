"""What may go wrong, as a scenario states it: devices that fail, slow down or cannot be reached, jobs that straggle,
power, and single operations of jobs.

Times are either drawn or stated. If they are drawn, ``mean_interval`` and ``duration`` are means of exponential
distributions (for failures ``mtbf`` and ``mttr``). If they are stated, ``at`` and ``duration`` are exact and the same
for every device that is named. Operations are chosen at random, by their number, or from a time on. The runtime's
faults of calls (runtime/faults.py) use the same words.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Model, Natural, PositiveSeconds, Seconds, Text, Watts, as_custom, whole

Devices = Annotated[list[Text], Field(min_length=1)]
Times = Annotated[list[Seconds], Field(min_length=1, max_length=100_000)]
Names = Annotated[list[Text], Field(min_length=1)]
Attempts = Annotated[int, BeforeValidator(whole), Field(ge=1, le=1000)]
OnFailure = Literal["retry", "migrate", "fail"]


def _one_way(drawn: float | None, length: float | None, at: list[float] | None, names: str) -> None:
    if (drawn is None) == (at is None):
        raise as_custom(InputError("this fault's times are stated in no way, or in two", expected=names))
    if drawn is not None and length is None:
        raise as_custom(InputError("how long it lasts is missing", expected=names))


class Failure(Model):
    """Devices stop working, and are repaired. What they were doing is lost: it is tried again, moved or given up.

    ``retry``: from the beginning, in its old place in the queue (of the same device, where each has its own).
    ``migrate``: the job, and with it all that wait for that device, are routed anew. ``fail``: it counts as failed. A
    job is started at most ``max_attempts`` times.
    """

    kind: Literal["failure"]
    devices: Devices | None = Field(None, description="fleet entries, by name or SKU; all unless given")
    mtbf: PositiveSeconds | None = Field(None, description="mean time between a repair and the next failure")
    mttr: PositiveSeconds | None = Field(None, description="mean time to repair")
    at: Times | None = None
    duration: PositiveSeconds | None = Field(
        None, description="time to repair, for failures at stated times; else for good"
    )
    on_failure: OnFailure = "retry"
    max_attempts: Attempts = 3

    @model_validator(mode="after")
    def _stated(self) -> Failure:
        _one_way(self.mtbf, self.mttr, self.at, "mtbf and mttr, or at (and duration)")
        if self.mtbf is not None and self.duration is not None:
            raise as_custom(InputError("duration is for failures at stated times", expected="mttr"))
        return self


class Throttle(Model):
    """Devices run at ``speed`` for a while, as when too hot; their work takes the energy it would have taken."""

    kind: Literal["throttle"]
    devices: Devices | None = None
    mean_interval: PositiveSeconds | None = None
    at: Times | None = None
    duration: PositiveSeconds
    speed: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _stated(self) -> Throttle:
        _one_way(self.mean_interval, self.duration, self.at, "mean_interval, or at")
        return self


class LinkLoss(Model):
    """Devices cannot be reached: they go on with what they have, take nothing new, and deliver once they can again."""

    kind: Literal["link-loss"]
    devices: Devices | None = None
    mean_interval: PositiveSeconds | None = None
    at: Times | None = None
    duration: PositiveSeconds

    @model_validator(mode="after")
    def _stated(self) -> LinkLoss:
        _one_way(self.mean_interval, self.duration, self.at, "mean_interval, or at")
        return self


class Straggler(Model):
    """A share of the jobs take ``slowdown`` times as long as they should."""

    kind: Literal["straggler"]
    workloads: Names | None = None
    probability: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    slowdown: Annotated[float, Field(gt=1, le=1e6, allow_inf_nan=False)]


class BrownOut(Model):
    """The fleet may draw no more than ``budget`` for a while; what was started last is paused until that holds."""

    kind: Literal["brown-out"]
    mean_interval: PositiveSeconds | None = None
    at: Times | None = None
    duration: PositiveSeconds
    budget: Watts

    @model_validator(mode="after")
    def _stated(self) -> BrownOut:
        _one_way(self.mean_interval, self.duration, self.at, "mean_interval, or at")
        return self


COPIES = ("copy",)
"""The operations that are copies; all others run kernels."""


class OperationFault(Model):
    """Base of the faults of single operations of jobs: which operations they strike.

    An operation counts when it starts, in each attempt of its job anew. ``call`` strikes the n-th that is concerned and
    those after it, ``after`` those that start from that time on, until there were ``times`` strikes; ``probability``
    each by chance, and at most ``times``.
    """

    copies: ClassVar[bool | None] = None
    """Whether it strikes copies (True), or what runs kernels (False); None: both."""

    devices: Devices | None = Field(None, description="fleet entries, by name or SKU; all unless given")
    workloads: Names | None = Field(None, description="workloads, by name; all unless given")
    ops: Names | None = Field(None, description="operations, by name; all that the kind strikes unless given")
    probability: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = Field(
        None, description="with which an operation is struck"
    )
    call: Natural | None = Field(None, description="the number of the first operation that is struck, from 1")
    after: Seconds | None = Field(None, description="time from which on operations that start are struck")
    times: Natural | None = Field(
        None, description="strikes at most; one unless given, and without bound by probability"
    )

    @model_validator(mode="after")
    def _stated(self) -> OperationFault:
        if sum(key is not None for key in (self.probability, self.call, self.after)) != 1:
            raise as_custom(
                InputError(
                    "what this fault strikes is stated in no way, or in two", expected="probability, call or after"
                )
            )
        return self

    @property
    def most(self) -> int | None:
        """Strikes at most; None without a bound."""
        return 1 if self.times is None and self.probability is None else self.times

    def strikes(self, operation: str) -> bool:
        """Whether operations of this name can be struck."""
        if self.copies is not None and self.copies != (operation in COPIES):
            return False
        return self.ops is None or operation in self.ops


class OperationError(OperationFault):
    """Base of those that end the operation, and with it this attempt of the job: see Failure."""

    on_failure: OnFailure = "retry"
    max_attempts: Attempts = 3
    reset_time: PositiveSeconds | None = Field(
        None, description="for how long the device is down afterwards; not at all unless given"
    )


class Refusal(OperationFault):
    """No memory is free, or the queue takes no more work: the operation fails as it starts and takes no time."""

    kind: Literal["out-of-memory", "queue-full"]
    on_failure: OnFailure = "retry"
    max_attempts: Attempts = 3
    reset_time: ClassVar[float | None] = None


class LaunchFailure(OperationError):
    """The kernel cannot be launched: the operation fails as it starts and takes no time."""

    copies: ClassVar[bool | None] = False
    kind: Literal["launch-failure"]


class EccError(OperationError):
    """An uncorrectable memory error: the operation takes its time and has failed then."""

    kind: Literal["ecc"]


class CopyFailure(OperationError):
    """The copy takes its time and has failed then."""

    copies: ClassVar[bool | None] = True
    kind: Literal["copy-failure"]


class Hang(OperationError):
    """The kernel does not end: a watchdog ends it after ``watchdog_timeout``."""

    copies: ClassVar[bool | None] = False
    kind: Literal["hang"]
    watchdog_timeout: PositiveSeconds = Field(2.0, description="time until a watchdog ends it; 2 s unless given")


class DeviceLost(OperationError):
    """The device is gone as the operation starts, until it has been reset."""

    kind: Literal["device-lost"]
    reset_time: PositiveSeconds = Field(description="for how long the device is down")


class SlowCopy(OperationFault):
    """The copy takes ``factor`` times as long."""

    copies: ClassVar[bool | None] = True
    kind: Literal["slow-copy"]
    factor: Annotated[float, Field(gt=1, le=1e6, allow_inf_nan=False)] = 4.0


class CorruptCopy(OperationFault):
    """The copy garbles what it copies and nobody notices: the job completes, with wrong results."""

    copies: ClassVar[bool | None] = True
    kind: Literal["corrupt-copy"]


Ending = Refusal | LaunchFailure | EccError | CopyFailure | Hang | DeviceLost
"""Faults that end the operation they strike."""

Fault = Annotated[
    Failure | Throttle | LinkLoss | Straggler | BrownOut | Ending | SlowCopy | CorruptCopy,
    Field(discriminator="kind"),
]


def ends_service(fault: Fault) -> bool:
    """Whether devices are down because of it."""
    return isinstance(fault, Failure) or (isinstance(fault, Ending) and fault.reset_time is not None)


def is_drawn(fault: Fault) -> bool:
    """Whether chance has a say in when it strikes."""
    if isinstance(fault, OperationFault):
        return fault.probability is not None
    return isinstance(fault, Straggler) or fault.at is None
