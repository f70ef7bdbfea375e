"""The site of a fleet: its power usage effectiveness, and the price and carbon intensity of energy.

Prices and intensities depend on the hour of day. Tick 0 of a run is at the clock time ``start_time``.
"""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from windtunnel.core.errors import InputError
from windtunnel.scenario.fields import Model, Quantity, as_custom

HOURS = 24


def _hourly(value: Any) -> Any:
    """Accept one quantity for all hours, or a list of 24."""
    if not isinstance(value, list):
        return [value] * HOURS
    if len(value) != HOURS:
        raise as_custom(
            InputError(
                f"this list has {len(value)} values", expected="one quantity, or 24: one for each hour from midnight"
            )
        )
    return value


def _clock(value: Any) -> Any:
    """Check that the value is text such as 08:00."""
    if not isinstance(value, str) or not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", value):
        raise as_custom(InputError(f"{value!r} is not a time of day", expected="hours and minutes, such as '08:00'"))
    return value


PricePerEnergy = Annotated[float, Quantity("USD/kWh")]
CarbonPerEnergy = Annotated[float, Quantity("g/kWh")]


class Site(Model):
    """The site of the fleet: power overhead, and price and carbon intensity of energy by the hour of day."""

    pue: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = Field(
        1.0, description="power usage effectiveness: power of the site over power of its devices"
    )
    energy_price: Annotated[list[PricePerEnergy], BeforeValidator(_hourly)] | None = Field(
        None, description="price of energy: one quantity, or 24 by the hour of day"
    )
    carbon: Annotated[list[CarbonPerEnergy], BeforeValidator(_hourly)] | None = Field(
        None, description="carbon intensity of energy: one quantity, or 24 by the hour of day"
    )
    start_time: Annotated[str, BeforeValidator(_clock)] = Field(
        "00:00", description="time of day at which a run starts"
    )

    @property
    def start_time_s(self) -> int:
        """Return the time of day at which a run starts (seconds after midnight)."""
        hours, minutes, *seconds = (int(part) for part in self.start_time.split(":"))
        return hours * 3600 + minutes * 60 + (seconds[0] if seconds else 0)
