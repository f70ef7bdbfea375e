"""What may go wrong, as a scenario states it: devices that fail, slow down or cannot be reached, jobs that straggle,
power.

Times are either drawn (``every`` and ``lasts`` are means of exponential distributions; ``mtbf`` and ``mttr`` for
failures) or stated (``at`` and ``lasts``, exact, the same for every device that is named).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.core.fields import Model, PositiveSeconds, Seconds, Text, Watts, as_custom, whole

Devices = Annotated[list[Text], Field(min_length=1)]
Times = Annotated[list[Seconds], Field(min_length=1, max_length=100_000)]


def _one_way(drawn: float | None, length: float | None, at: list[float] | None, names: str) -> None:
    if (drawn is None) == (at is None):
        raise as_custom(InputError("this fault's times are stated in no way, or in two", expected=names))
    if drawn is not None and length is None:
        raise as_custom(InputError("how long it lasts is missing", expected=names))


class Failure(Model):
    """Devices stop working, and are repaired. What they were doing is lost: it is tried again, moved or given up.

    ``retry``: from the beginning, in its old place in the queue (of the same device, where each has its own).
    ``migrate``: the job, and with it all that wait for that device, are routed anew. ``lose``: it counts as failed. A
    job is started at most ``attempts`` times.
    """

    kind: Literal["failure"]
    devices: Devices | None = Field(None, description="fleet entries, by name or SKU; all unless given")
    mtbf: PositiveSeconds | None = Field(None, description="mean time between a repair and the next failure")
    mttr: PositiveSeconds | None = Field(None, description="mean time to repair")
    at: Times | None = None
    lasts: PositiveSeconds | None = Field(
        None, description="time to repair, for failures at stated times; else for good"
    )
    jobs: Literal["retry", "migrate", "lose"] = "retry"
    attempts: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1000)] = 3

    @model_validator(mode="after")
    def _stated(self) -> Failure:
        _one_way(self.mtbf, self.mttr, self.at, "mtbf and mttr, or at (and lasts)")
        if self.mtbf is not None and self.lasts is not None:
            raise as_custom(InputError("lasts is for failures at stated times", expected="mttr"))
        return self


class Throttle(Model):
    """Devices run at ``speed`` for a while, as when too hot; their work takes the energy it would have taken."""

    kind: Literal["throttle"]
    devices: Devices | None = None
    every: PositiveSeconds | None = None
    at: Times | None = None
    lasts: PositiveSeconds
    speed: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _stated(self) -> Throttle:
        _one_way(self.every, self.lasts, self.at, "every, or at")
        return self


class LinkLoss(Model):
    """Devices cannot be reached: they go on with what they have, take nothing new, and deliver once they can again."""

    kind: Literal["link-loss"]
    devices: Devices | None = None
    every: PositiveSeconds | None = None
    at: Times | None = None
    lasts: PositiveSeconds

    @model_validator(mode="after")
    def _stated(self) -> LinkLoss:
        _one_way(self.every, self.lasts, self.at, "every, or at")
        return self


class Straggler(Model):
    """A share of the jobs take ``slowdown`` times as long as they should."""

    kind: Literal["straggler"]
    workloads: Annotated[list[Text], Field(min_length=1)] | None = None
    probability: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
    slowdown: Annotated[float, Field(gt=1, le=1e6, allow_inf_nan=False)]


class BrownOut(Model):
    """The fleet may draw no more than ``budget`` for a while; what was started last is paused until that holds."""

    kind: Literal["brown-out"]
    every: PositiveSeconds | None = None
    at: Times | None = None
    lasts: PositiveSeconds
    budget: Watts

    @model_validator(mode="after")
    def _stated(self) -> BrownOut:
        _one_way(self.every, self.lasts, self.at, "every, or at")
        return self


Fault = Annotated[Failure | Throttle | LinkLoss | Straggler | BrownOut, Field(discriminator="kind")]
