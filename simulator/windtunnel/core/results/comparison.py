"""The result of comparing two scenarios on common random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from windtunnel.core.results.data import Result
from windtunnel.core.results.run import Estimate

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class BothSides(Result, Generic[_Value]):
    """A value of the baseline and of the candidate."""

    baseline: _Value
    candidate: _Value


@dataclass(frozen=True)
class FleetEntry(Result):
    """An entry of a fleet: the name of the device (SKU, with its API) and the number of them."""

    device: str
    count: int


@dataclass(frozen=True)
class ComparedMetric(Result):
    """A metric of both scenarios, and the mean difference of the candidate from the baseline."""

    metric: str
    baseline: Estimate
    candidate: Estimate
    difference: Estimate
    significant: bool
    """Whether the 95% interval of the difference excludes zero."""


@dataclass(frozen=True)
class Comparison(Result):
    """The differences of a candidate from a baseline, by metric. ``unstable`` is the number of unstable runs."""

    baseline: str
    candidate: str
    fleets: BothSides[Sequence[FleetEntry]]
    replications: int
    seed: int
    unstable: BothSides[int]
    metrics: Sequence[ComparedMetric]
    notes: Sequence[str]
