"""Where a number comes from, carried beside the number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum


class Provenance(IntEnum):
    """From the strongest to the weakest; a result is as strong as the weakest number that entered it."""

    MEASURED = 0
    """Measured here, by `windtunnel validate` on the device in question."""
    PUBLISHED = 1
    """A measurement somebody else published."""
    DATASHEET = 2
    """A vendor's specification, or a secondary source quoting one."""
    ASSUMED = 3
    """Nobody published it; a stated assumption with a reason and a range."""

    @property
    def label(self) -> str:
        """The word shown to people and written to files."""
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> Provenance:
        """The member written as ``label``; KeyError for any other word."""
        return cls[label.upper()]


PROVENANCES = tuple(member.label for member in Provenance)


@dataclass(frozen=True)
class Sourced:
    """A number with its origin. ``low`` and ``high`` bound it where it is uncertain (SI, like ``value``)."""

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

    def at(self, value: float) -> Sourced:
        """The same number moved to ``value`` within its range, to see what that does to a result."""
        return replace(self, value=value, low=value, high=value)


def assumed(value: float, low: float, high: float, reason: str) -> Sourced:
    """A stated assumption: SI value, the range it may lie in, and why."""
    return Sourced(value, Provenance.ASSUMED, "assumed", low, high, reason)
