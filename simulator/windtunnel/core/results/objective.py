"""What a plan optimises: the objectives, and their values as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.core.units import format_quantity

GIVE_UP = 1.5
"""The search of a plan for a fleet of a single entry stops when it must cost this many times the best."""


@dataclass(frozen=True)
class Objective:
    """What a plan optimises: its unit, and the words with which fleets are compared.

    A search minimises. ``inverse``: it minimises devices over throughput, and what is shown is the inverse of that.
    """

    unit: str
    sought: str
    """What is sought, such as ``least cost``."""
    less: str
    """Of a fleet that is better, before the noun."""
    beats: str
    """The same as a verb, before the other fleet."""
    more: str
    least: str
    inverse: bool = False

    def shown(self, value: float) -> float:
        """Return the value to show, in ``unit``, for one that a search minimises; also the other way round."""
        return value if not self.inverse else 1 / value if value else math.inf

    @property
    def bound_name(self) -> str:
        """The name of a bound on the objective."""
        return "upper bound" if self.inverse else "lower bound"

    @property
    def bound(self) -> str:
        """The words before a value that none can be better than."""
        return "at most" if self.inverse else "at least"


OBJECTIVES: Mapping[str, Objective] = {
    "cost": Objective("USD/h", "least cost", "cheaper", "costs less than", "more expensive", "cheapest"),
    "power": Objective("W", "least power", "lower-power", "draws less power than", "higher-power", "lowest-power"),
    "carbon": Objective(
        "kg/h", "least carbon", "lower-carbon", "emits less carbon than", "higher-carbon", "lowest-carbon"
    ),
    "throughput": Objective(
        "/s per device",
        "most throughput per device",
        "more productive",
        "has a higher throughput per device than",
        "less productive",
        "most productive",
        inverse=True,
    ),
}
"""The objectives by name. That of throughput counts output tokens or, where nothing generates, jobs."""


def amount(value: float, unit: str) -> str:
    """Return a value of an objective as text, in its unit."""
    if not math.isfinite(value):
        return "nothing measured"
    if unit == "W":
        return format_quantity(value, "W")
    return f"{value:,.2f} {unit}" if unit == "USD/h" else f"{format_significant(value)} {unit}"


def format_significant(value: float) -> str:
    """Return a number with three significant digits and no exponent, such as ``1,230``."""
    digits = 3 if not value else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 9)}f}"
