"""The site of a fleet: what it takes from the grid for each joule of computing, and what that costs and emits.

Prices and intensities go by the hour of day and repeat every day. Tick 0 of a run is at the clock time ``start_time``.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Model, Quantity, as_custom

HOURS = 24


def _hourly(value: Any) -> Any:
    """One quantity for every hour, or a list of 24."""
    if not isinstance(value, list):
        return [value] * HOURS
    if len(value) != HOURS:
        raise as_custom(
            InputError(f"this list has {len(value)} values", expected="one quantity, or 24: one an hour from midnight")
        )
    return value


def _clock(value: Any) -> Any:
    """Text such as 08:00, kept as text."""
    if not isinstance(value, str) or not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", value):
        raise as_custom(InputError(f"{value!r} is not a time of day", expected="hours and minutes, such as '08:00'"))
    return value


PricePerEnergy = Annotated[float, Quantity("USD/kWh")]
CarbonPerEnergy = Annotated[float, Quantity("g/kWh")]


class Site(Model):
    """Where the fleet stands: overhead of power, and price and carbon of energy by the hour of day."""

    pue: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = Field(
        1.0, description="power usage effectiveness: what the site draws over what its devices draw"
    )
    energy_price: Annotated[list[PricePerEnergy], BeforeValidator(_hourly)] | None = Field(
        None, description="price of energy: one, or 24 by the hour of day"
    )
    carbon: Annotated[list[CarbonPerEnergy], BeforeValidator(_hourly)] | None = Field(
        None, description="carbon intensity of energy: one, or 24 by the hour of day"
    )
    start_time: Annotated[str, BeforeValidator(_clock)] = Field(
        "00:00", description="time of day at which a run starts"
    )

    @property
    def start_time_s(self) -> int:
        """Seconds after midnight at which a run starts."""
        hours, minutes, *seconds = (int(part) for part in self.start_time.split(":"))
        return hours * 3600 + minutes * 60 + (seconds[0] if seconds else 0)
