"""Types of values in a scenario: quantities, whole numbers, text.

Quantities are text with units in files and SI floats here. An invalid value raises Pydantic's error, to which `located`
adds its place.
"""

import math
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_quantity, to_unit

MAX_COUNT = 1_000_000
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")


def as_custom(error: InputError) -> PydanticCustomError:
    """Return ``error`` as the exception that a Pydantic validator raises."""
    return PydanticCustomError(
        "windtunnel", "{problem}", {"problem": error.problem, "expected": error.expected, "nearest": error.nearest}
    )


class Quantity:
    """Annotates a float field as a quantity: SI here, text in ``unit`` or any unit of its dimension in files."""

    def __init__(self, unit: str, *, positive: bool = False, most: float = math.inf) -> None:
        self.unit = unit
        self.positive = positive
        self.most = most

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.read, handler(source), serialization=core_schema.plain_serializer_function_ser_schema(self.write)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "description": f"a quantity measured in {self.unit}", "examples": [f"10 {self.unit}"]}

    def read(self, value: Any) -> float:
        """Convert text with a unit to SI."""
        try:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise InputError(f"this is {value!r}", expected=f"a quantity such as '10 {self.unit}'")
            number = parse_quantity(str(value), self.unit)
            if number < 0 or (self.positive and number == 0):
                raise InputError(f"'{value}' is {'negative' if number < 0 else 'zero'}", expected="more than zero")
            if number > self.most:
                unit = "" if self.unit == "1" else f" {self.unit}"
                raise InputError(f"'{value}' is too large", expected=f"at most {to_unit(self.most, self.unit):g}{unit}")
        except InputError as error:
            raise as_custom(error) from None
        return number

    def write(self, value: float) -> str:
        """Convert an SI value to text that ``read`` accepts."""
        return f"{to_unit(value, self.unit)!r} {self.unit}"


Seconds = Annotated[float, Quantity("s")]
PositiveSeconds = Annotated[float, Quantity("s", positive=True)]
PerSecond = Annotated[float, Quantity("/s", positive=True)]
Bytes = Annotated[float, Quantity("B", positive=True, most=1e18)]
Watts = Annotated[float, Quantity("W", most=1e9)]
PricePerHour = Annotated[float, Quantity("USD/h", most=1e9)]


def whole(value: Any) -> Any:
    """Check that a value is a whole number, not text, 1.5 or true."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise as_custom(InputError(f"this is {value!r}", expected="a whole number"))
    return value


Count = Annotated[int, BeforeValidator(whole), Field(ge=1, le=MAX_COUNT)]
Natural = Annotated[int, BeforeValidator(whole), Field(ge=1, le=10**12)]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Stated = Annotated[str, Field(min_length=1, max_length=100)] | float
"""A value of hardware that is not for sale: text with a unit, a factor such as ``1.5x``, or a plain number."""


class _TimeOfDay:
    """Annotates a float field as a time of day: seconds since midnight here, text such as ``08:30`` in files."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.read, handler(source), serialization=core_schema.plain_serializer_function_ser_schema(self.write)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "description": "a time of day", "pattern": _CLOCK.pattern, "examples": ["08:30"]}

    def read(self, value: Any) -> float:
        """Convert text to seconds since midnight."""
        match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise as_custom(InputError(f"{value!r} is not a time of day", expected="such as '08:30' or '08:30:00'"))
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return 3600.0 * hours + 60.0 * minutes + seconds

    def write(self, value: float) -> str:
        """Convert seconds since midnight to text that ``read`` accepts."""
        minutes, seconds = divmod(int(value), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


TimeOfDay = Annotated[float, _TimeOfDay()]


class Model(BaseModel):
    """Base of the parts of a scenario: unknown keys are errors, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=False, defer_build=True)
