"""The faults that a scenario states: of devices, links, power, jobs and single operations.

The times of a fault are random or stated. For random times, ``mean_interval`` and ``duration`` are means of
exponential distributions (for failures ``mtbf`` and ``mttr``). For stated times, ``at`` and ``duration`` are exact and
the same for all devices of the fault. Operations are affected at random, by their number, or from a time on. Faults of
calls in the runtime (runtime/faults.py) have the same keys.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Model, Natural, PositiveSeconds, Seconds, Text, Watts, as_custom, whole

Devices = Annotated[list[Text], Field(min_length=1)]
Times = Annotated[list[Seconds], Field(min_length=1, max_length=100_000)]
Names = Annotated[list[Text], Field(min_length=1)]
Attempts = Annotated[int, BeforeValidator(whole), Field(ge=1, le=1000)]
OnFailure = Literal["retry", "migrate", "fail"]


class BackOff(Model):
    """Pauses that grow: the n-th is ``first`` times ``factor`` to the power n - 1, and at most ``max``."""

    first: PositiveSeconds
    factor: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)] = 2.0
    max: PositiveSeconds | None = None


Pause = PositiveSeconds | BackOff
PAUSE: Any = Field(
    None, description="time before an interrupted job is tried again, or {first, factor, max}; default: none"
)


DOMAIN: Any = Field(
    None,
    description="number of consecutive devices of an entry that the fault affects together, such as those of a node, a "
    "rack or a switch; default: each device alone",
)


def _check_times(key: str, drawn: float | None, at: list[float] | None, duration: float | None, expected: str) -> None:
    """Check that a fault states either random times, by ``key``, or ``at``; random times need a duration."""
    if (drawn is None) == (at is None):
        problem = f"a fault needs either {key} or at" + ("" if drawn is None else ", not both")
        raise as_custom(InputError(problem, expected=expected))
    if drawn is not None and duration is None:
        raise as_custom(InputError("the duration is missing", expected=expected))


class Failure(Model):
    """Devices stop working and are repaired. Jobs that they were executing are interrupted.

    ``on_failure`` states what happens to an interrupted job. ``retry``: it starts again from the beginning, at its old
    position in the queue. ``migrate``: the job, and all jobs that wait for that device, are routed again. ``fail``: it
    counts as failed. A job is started at most ``max_attempts`` times. It waits for ``pause`` before it is tried again.
    """

    kind: Literal["failure"]
    devices: Devices | None = Field(None, description="fleet entries, by name or SKU; default: all")
    domain: Natural | None = DOMAIN
    mtbf: PositiveSeconds | None = Field(None, description="mean time between a repair and the next failure")
    mttr: PositiveSeconds | None = Field(None, description="mean time to repair")
    at: Times | None = None
    duration: PositiveSeconds | None = Field(
        None, description="time to repair, for failures at stated times; default: no repair"
    )
    on_failure: OnFailure = "retry"
    max_attempts: Attempts = 3
    pause: Pause | None = PAUSE

    @model_validator(mode="after")
    def _stated(self) -> Self:
        _check_times("mtbf", self.mtbf, self.at, self.mttr, "mtbf and mttr, or at (and duration)")
        if self.mtbf is not None and self.duration is not None:
            raise as_custom(InputError("duration is for failures at stated times", expected="mttr"))
        return self


class Throttle(Model):
    """Devices work at the factor ``speed`` for ``duration``, as when they overheat; operations use the same energy."""

    kind: Literal["throttle"]
    devices: Devices | None = None
    domain: Natural | None = DOMAIN
    mean_interval: PositiveSeconds | None = None
    at: Times | None = None
    duration: PositiveSeconds
    speed: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _stated(self) -> Self:
        _check_times("mean_interval", self.mean_interval, self.at, self.duration, "mean_interval, or at")
        return self


class LinkLoss(Model):
    """Devices cannot be reached: they continue their present jobs, and deliver results when the link is back."""

    kind: Literal["link-loss"]
    devices: Devices | None = None
    domain: Natural | None = DOMAIN
    mean_interval: PositiveSeconds | None = None
    at: Times | None = None
    duration: PositiveSeconds

    @model_validator(mode="after")
    def _stated(self) -> Self:
        _check_times("mean_interval", self.mean_interval, self.at, self.duration, "mean_interval, or at")
        return self


class Straggler(Model):
    """A share of the jobs take ``slowdown`` times as long as normal."""

    kind: Literal["straggler"]
    workloads: Names | None = None
    probability: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    slowdown: Annotated[float, Field(gt=1, le=1e6, allow_inf_nan=False)]


class BrownOut(Model):
    """The power budget of the fleet is lowered to ``budget`` for ``duration``; the jobs started last are paused."""

    kind: Literal["brown-out"]
    mean_interval: PositiveSeconds | None = None
    at: Times | None = None
    duration: PositiveSeconds
    budget: Watts

    @model_validator(mode="after")
    def _stated(self) -> Self:
        _check_times("mean_interval", self.mean_interval, self.at, self.duration, "mean_interval, or at")
        return self


COPIES = ("copy",)
"""The operations that are copies; all others run kernels."""


class OperationFault(Model):
    """Base of the faults of single operations of jobs: which operations are affected.

    An operation is eligible when it starts, in each attempt of its job. ``call`` affects the n-th eligible operation
    and those after it, and ``after`` those that start from that time on, until ``times`` operations were affected.
    ``probability`` affects each at random, at most ``times`` of them.
    """

    copies: ClassVar[bool | None] = None
    """Whether the fault affects copies (True), operations that run kernels (False), or both (None)."""

    devices: Devices | None = Field(None, description="fleet entries, by name or SKU; default: all")
    workloads: Names | None = Field(None, description="workloads, by name; default: all")
    ops: Names | None = Field(None, description="operations, by name; default: all that the kind can affect")
    probability: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = Field(
        None, description="probability with which an operation is affected"
    )
    call: Natural | None = Field(None, description="number of the first operation that is affected, from 1")
    after: Seconds | None = Field(None, description="time from which on operations that start are affected")
    times: Natural | None = Field(
        None, description="largest number of affected operations; default: 1, and unlimited with probability"
    )

    @model_validator(mode="after")
    def _stated(self) -> Self:
        if sum(key is not None for key in (self.probability, self.call, self.after)) != 1:
            raise as_custom(
                InputError(
                    "a fault of operations needs exactly one of probability, call and after",
                    expected="probability, call or after",
                )
            )
        return self

    @property
    def max_occurrences(self) -> int | None:
        """Return the largest number of affected operations; None without a limit."""
        return 1 if self.times is None and self.probability is None else self.times

    def affects(self, operation: str) -> bool:
        """Return whether operations of this name can be affected."""
        if self.copies is not None and self.copies != (operation in COPIES):
            return False
        return self.ops is None or operation in self.ops


class OperationError(OperationFault):
    """Base of the faults that end the operation, and with it this attempt of the job: see `Failure`."""

    on_failure: OnFailure = "retry"
    max_attempts: Attempts = 3
    pause: Pause | None = PAUSE
    reset_time: PositiveSeconds | None = Field(
        None, description="how long the device is down afterwards; default: not at all"
    )


class Refusal(OperationFault):
    """No memory is free, or the queue is full: the operation fails as it starts, and takes no time."""

    kind: Literal["out-of-memory", "queue-full"]
    on_failure: OnFailure = "retry"
    max_attempts: Attempts = 3
    pause: Pause | None = PAUSE
    reset_time: ClassVar[float | None] = None


class LaunchFailure(OperationError):
    """The kernel cannot be launched: the operation fails as it starts, and takes no time."""

    copies: ClassVar[bool | None] = False
    kind: Literal["launch-failure"]


class EccError(OperationError):
    """An uncorrectable memory error: the operation takes its normal time, and then fails."""

    kind: Literal["ecc"]


class CopyFailure(OperationError):
    """The copy takes its normal time, and then fails."""

    copies: ClassVar[bool | None] = True
    kind: Literal["copy-failure"]


class Hang(OperationError):
    """The kernel does not end; a watchdog ends it after ``watchdog_timeout``."""

    copies: ClassVar[bool | None] = False
    kind: Literal["hang"]
    watchdog_timeout: PositiveSeconds = Field(2.0, description="time until a watchdog ends it")


class DeviceLost(OperationError):
    """The device is lost as the operation starts, until it is reset."""

    kind: Literal["device-lost"]
    reset_time: PositiveSeconds = Field(description="how long the device is down")


class SlowCopy(OperationFault):
    """The copy takes ``factor`` times as long."""

    copies: ClassVar[bool | None] = True
    kind: Literal["slow-copy"]
    factor: Annotated[float, Field(gt=1, le=1e6, allow_inf_nan=False)] = 4.0


class CorruptCopy(OperationFault):
    """The copy corrupts its data silently: the job completes, with wrong results."""

    copies: ClassVar[bool | None] = True
    kind: Literal["corrupt-copy"]


Ending = Refusal | LaunchFailure | EccError | CopyFailure | Hang | DeviceLost
"""Faults that end the operation that they affect."""

Fault = Annotated[
    Failure | Throttle | LinkLoss | Straggler | BrownOut | Ending | SlowCopy | CorruptCopy, Field(discriminator="kind")
]


def takes_device_down(fault: Fault) -> bool:
    """Return whether the fault takes devices down."""
    return isinstance(fault, Failure) or (isinstance(fault, Ending) and fault.reset_time is not None)


def is_random(fault: Fault) -> bool:
    """Return whether the fault occurs at random."""
    if isinstance(fault, OperationFault):
        return fault.probability is not None
    return isinstance(fault, Straggler) or fault.at is None
