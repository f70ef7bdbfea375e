"""The origin of a number, kept beside the number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal


class Provenance(IntEnum):
    """Origins from the most to the least certain. A result has the least certain origin of all its inputs."""

    MEASURED = 0
    """Measured on this host by `windtunnel validate`."""
    PUBLISHED = 1
    """A published measurement."""
    DATASHEET = 2
    """A vendor's specification, or a secondary source that quotes it."""
    ASSUMED = 3
    """An assumption with a reason and a range, because no value is published."""

    @property
    def label(self) -> str:
        """Return the name that is shown and written to files."""
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> Provenance:
        """Return the member with this label; raises KeyError for any other text."""
        return cls[label.upper()]


PROVENANCES = tuple(member.label for member in Provenance)


@dataclass(frozen=True)
class SourcedValue:
    """A number with its origin. ``low`` and ``high`` bound an uncertain number (in SI units, like ``value``)."""

    value: float
    provenance: Provenance
    source: str
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.provenance is Provenance.ASSUMED and (self.low is None or self.high is None or not self.reason):
            raise ValueError(f"an assumed number needs a range and a reason: {self.value!r} ({self.source})")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ValueError(f"{self.value!r} lies outside its range {self.low!r} to {self.high!r}")

    def end(self, interval: Literal["low", "best", "high"]) -> float:
        """Return the best value or an end of the range; the value itself if there is no range."""
        value = {"low": self.low, "best": self.value, "high": self.high}[interval]
        return self.value if value is None else value

    def at(self, value: float) -> SourcedValue:
        """Return the same number with another ``value`` and no range, for sensitivity analysis."""
        return replace(self, value=value, low=value, high=value)


def assumed(value: float, low: float, high: float, reason: str) -> SourcedValue:
    """Return an assumed number with its SI value, its range and the reason."""
    return SourcedValue(value, Provenance.ASSUMED, "assumed", low, high, reason)
