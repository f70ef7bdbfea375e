"""Autoscaling rules of a scenario: how many devices of a fleet entry are in service, and when that changes.

Decisions follow the Kubernetes Horizontal Pod Autoscaler (Kubernetes documentation, "Horizontal Pod Autoscaling",
algorithm details): the number of devices that brings a metric per device to its target, rounded up; the largest number
of several metrics; and to scale down, the largest number within a stabilisation window. Kubernetes has one target with
a tolerance; here there is a target to scale up and a lower one to scale down.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Count, Model, PositiveSeconds, Quantity, Seconds, Text, as_custom

_SLACK = 1e-9
"""Tolerance for rounding errors in sums of shares of time, so that four devices at exactly 80% do not exceed 80%."""


def _share(value: Any) -> Any:
    """Accept a share as a number (0.8) or in per cent (80%)."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Thresholds(Model):
    """Targets per device in service: waiting jobs, and utilisation. At least one of them is required."""

    queue_per_device: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="jobs that wait for this entry, divided by its devices in service or being provisioned"
    )
    utilisation: Annotated[float, BeforeValidator(_share), Quantity("1", positive=True, most=1.0)] | None = Field(
        None, description="the share of the last `every` in which these devices had a job, such as 80%"
    )
    step: Count | None = Field(None, description="largest number of devices added or removed at one decision")

    @model_validator(mode="after")
    def _any(self) -> Thresholds:
        if self.queue_per_device is None and self.utilisation is None:
            raise as_custom(
                InputError("no metric is given", expected="queue_per_device: 4, or utilisation: 80%, or both")
            )
        return self

    def wanted(self, waiting: int, working: float) -> int:
        """Return the number of devices that brings every given metric to its target."""
        numbers = [
            math.ceil(amount / target - _SLACK)
            for amount, target in ((float(waiting), self.queue_per_device), (working, self.utilisation))
            if target is not None
        ]
        return max(numbers)


class Down(Thresholds):
    """When devices are removed from service."""

    for_: Seconds = Field(
        300.0, alias="for", description="the stabilisation window: how long fewer devices must have been sufficient"
    )


class Autoscale(Model):
    """Keeps between ``min`` and ``max`` devices of a fleet entry in service; a run begins with its ``count``.

    A requested device is rented at once, and in service after ``provisioning``. A device that is no longer required
    drains: it accepts no new job, completes the jobs that it has, and is no longer rented.
    """

    entry: Text = Field(description="the fleet entry, by name or SKU")
    min: Count = 1
    max: Count
    up: Thresholds
    down: Down | None = Field(None, description="default: devices are never removed")
    every: PositiveSeconds = Field(15.0, description="the interval between decisions")
    provisioning: Seconds = Field(description="the time from requesting a device until it is in service")

    @model_validator(mode="after")
    def _ordered(self) -> Autoscale:
        if self.min > self.max:
            raise as_custom(InputError(f"min ({self.min}) is greater than max ({self.max})", expected="min <= max"))
        for name in ("queue_per_device", "utilisation"):
            high, low = getattr(self.up, name), getattr(self.down, name, None)
            if high is not None and low is not None and low >= high:
                raise as_custom(
                    InputError(
                        f"down.{name} ({low:g}) must be below up.{name} ({high:g}), to avoid oscillation",
                        expected="a lower target in down than in up",
                    )
                )
        return self
