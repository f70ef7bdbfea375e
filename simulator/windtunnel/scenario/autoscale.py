"""Autoscaling rules of a scenario: how many devices of a fleet entry are in service, and when that changes.

Decisions follow the Kubernetes Horizontal Pod Autoscaler (Kubernetes documentation, "Horizontal Pod Autoscaling",
algorithm details): the number of devices that brings a metric per device to its target, rounded up; the largest number
of several metrics; and to scale down, the largest number within a stabilisation window. Kubernetes has one target with
a tolerance; here there is a target to scale up and a lower one to scale down.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Count, Model, PositiveSeconds, Quantity, Seconds, Text, as_custom

_SLACK = 1e-9
"""Tolerance for rounding errors in sums of shares of time, so that four devices at exactly 80% do not exceed 80%."""


def _share(value: Any) -> Any:
    """Accept a share as a number (0.8) or in per cent (80%)."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@dataclass(frozen=True)
class Signals:
    """What a decision is based on, summed over the devices of an entry.

    Args:
        waiting: Waiting jobs that the entry could execute.
        working: The share of the last interval in which the devices had a job.
        running: Sequences in the batches of continuous batching.
        kv_use: The share of the KV cache that is in use.
        tokens_per_s: Tokens of prompts and outputs that were processed in the last interval, by second.
    """

    waiting: int
    working: float
    running: int = 0
    kv_use: float = 0.0
    tokens_per_s: float = 0.0


METRICS = {
    "queue_per_device": "waiting",
    "utilisation": "working",
    "running_per_device": "running",
    "kv_use": "kv_use",
    "tokens_per_device": "tokens_per_s",
}
"""The metrics of `up` and `down`, and the signal that each is a target for."""
SERVING_METRICS = ("running_per_device", "kv_use", "tokens_per_device")
"""Those that only devices with continuous batching have."""


class Thresholds(Model):
    """Targets per device in service. At least one of them is required."""

    queue_per_device: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="jobs that wait for this entry, divided by its devices in service or being provisioned"
    )
    utilisation: Annotated[float, BeforeValidator(_share), Quantity("1", positive=True, most=1.0)] | None = Field(
        None, description="the share of the last `every` in which these devices had a job, such as 80%"
    )
    running_per_device: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="sequences in the batches of these devices, divided by their number; continuous batching only"
    )
    kv_use: Annotated[float, BeforeValidator(_share), Quantity("1", positive=True, most=1.0)] | None = Field(
        None, description="share of the KV cache of these devices that is in use, such as 80%; continuous batching only"
    )
    tokens_per_device: Annotated[float, Quantity("/s", positive=True)] | None = Field(
        None,
        description="tokens of prompts and outputs that a device processes in a second, over the last `every`, such as "
        "'5000 /s'; continuous batching only",
    )
    step: Count | None = Field(None, description="largest number of devices added or removed at one decision")

    @model_validator(mode="after")
    def _any(self) -> Self:
        if all(getattr(self, name) is None for name in METRICS):
            raise as_custom(InputError("no metric is given", expected=f"one or more of {', '.join(METRICS)}"))
        return self

    def wanted(self, signals: Signals) -> int:
        """Return the number of devices that brings every given metric to its target."""
        numbers: list[int] = [
            math.ceil(getattr(signals, signal) / target - _SLACK)
            for name, signal in METRICS.items()
            if (target := getattr(self, name)) is not None
        ]
        return max(numbers)

    def of_groups(self, size: int) -> Self:
        """Return the same targets for groups of ``size`` devices that count as one."""
        scaled = ("queue_per_device", "running_per_device", "tokens_per_device")
        update: dict[str, float | int | None] = {
            name: None if (target := getattr(self, name)) is None else target * size for name in scaled
        }
        return self.model_copy(update={**update, "step": None if self.step is None else self.step // size})


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
    weights_bandwidth: Annotated[float, Quantity("B/s", positive=True, most=1e18)] | None = Field(
        None,
        description="rate at which a replica then loads the weights of its models, such as 2 GB/s; default: loading is "
        "part of `provisioning`",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise as_custom(InputError(f"min ({self.min}) is greater than max ({self.max})", expected="min <= max"))
        for name in METRICS:
            high, low = getattr(self.up, name), getattr(self.down, name, None)
            if high is not None and low is not None and low >= high:
                raise as_custom(
                    InputError(
                        f"down.{name} ({low:g}) must be below up.{name} ({high:g}), to avoid oscillation",
                        expected="a lower target in down than in up",
                    )
                )
        return self
