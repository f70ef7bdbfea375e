"""Autoscaling, as a scenario states it: how many devices of a fleet entry are in service, and when that changes.

Decisions follow the rule of the Kubernetes Horizontal Pod Autoscaler (Kubernetes documentation, "Horizontal Pod
Autoscaling", algorithm details): as many devices as bring a metric per device to its target, rounded up; the most of
several metrics; and for fewer devices the most that was wanted within a stabilisation window. Where that has one target
and a tolerance about it, this has a target upwards and a lower one downwards.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Count, Model, PositiveSeconds, Quantity, Seconds, Text, as_custom

_SLACK = 1e-9
"""What sums of shares of time may be off by rounding: four devices at exactly 80% are not more than that."""


def _share(value: Any) -> Any:
    """A share may be written bare (0.8) or in per cent (80%)."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Thresholds(Model):
    """Targets per device in service: jobs that wait, and the share of the time worked. At least one of them."""

    queue_per_device: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="jobs that wait for this entry over its devices in service or being provisioned"
    )
    utilisation: Annotated[float, BeforeValidator(_share), Quantity("1", positive=True, most=1.0)] | None = Field(
        None, description="the share of the last `every` that these devices worked, such as 80%"
    )
    step: Count | None = Field(None, description="devices more or fewer at one decision, at most")

    @model_validator(mode="after")
    def _any(self) -> Thresholds:
        if self.queue_per_device is None and self.utilisation is None:
            raise as_custom(
                InputError("this names no metric", expected="queue_per_device: 4, or utilisation: 80%, or both")
            )
        return self

    def wanted(self, waiting: int, working: float) -> int:
        """The devices that bring every metric named to its target: the most of them."""
        asked = [
            math.ceil(amount / target - _SLACK)
            for amount, target in ((float(waiting), self.queue_per_device), (working, self.utilisation))
            if target is not None
        ]
        return max(asked)


class Down(Thresholds):
    """When devices are taken out of service."""

    for_: Seconds = Field(
        300.0, alias="for", description="how long fewer must have been wanted: the stabilisation window"
    )


class Autoscale(Model):
    """Keeps between ``min`` and ``max`` devices of a fleet entry in service; its ``count`` are when the run begins.

    A device that is asked for is rented at once and in service after ``provisioning``. One that is no longer wanted
    drains: it takes no new job, ends what it has, and is given back.
    """

    entry: Text = Field(description="the fleet entry, by name or SKU")
    min: Count = 1
    max: Count
    up: Thresholds
    down: Down | None = Field(None, description="never fewer unless given")
    every: PositiveSeconds = Field(15.0, description="how often it is decided")
    provisioning: Seconds = Field(description="from when a device is asked for to when it is in service")

    @model_validator(mode="after")
    def _ordered(self) -> Autoscale:
        if self.min > self.max:
            raise as_custom(InputError(f"min ({self.min}) is greater than max ({self.max})", expected="min <= max"))
        for name in ("queue_per_device", "utilisation"):
            high, low = getattr(self.up, name), getattr(self.down, name, None)
            if high is not None and low is not None and low >= high:
                raise as_custom(
                    InputError(
                        f"down.{name} is {low:g} and up.{name} {high:g}: it would scale to and fro",
                        expected="a lower target downwards than upwards",
                    )
                )
        return self
