"""The fields that scenario files are made of: quantities, times of day, whole numbers, and the model they sit in."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_quantity, to_unit

_MAX_COUNT = 1_000_000
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
DAY_S = 86_400.0


def as_custom(error: InputError) -> PydanticCustomError:
    """An error of ours as one that pydantic carries; `core.located` turns it back, with its place."""
    return PydanticCustomError(
        "windtunnel",
        "{problem}",
        {"problem": error.problem, "expected": error.expected, "nearest": error.nearest},
    )


class Quantity:
    """Makes a float field a quantity: SI here, text in ``unit`` or any unit of its dimension in files."""

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
        """Text with a unit to SI."""
        try:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise InputError(f"this is {value!r}", expected=f"a quantity such as '10 {self.unit}'")
            number = parse_quantity(str(value), self.unit)
            if number < 0 or (self.positive and number == 0):
                raise InputError(f"'{value}' is {'negative' if number < 0 else 'zero'}", expected="more than zero")
            if number > self.most:
                raise InputError(
                    f"'{value}' is too much", expected=f"at most {to_unit(self.most, self.unit):g} {self.unit}"
                )
        except InputError as error:
            raise as_custom(error) from None
        return number

    def write(self, value: float) -> str:
        """SI to text that reads back."""
        return f"{to_unit(value, self.unit)!r} {self.unit}"


class _TimeOfDay:
    """Makes a float field a time of day: seconds since midnight here, text such as ``08:30`` in files."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.read, handler(source), serialization=core_schema.plain_serializer_function_ser_schema(self.write)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "description": "a time of day", "pattern": _CLOCK.pattern, "examples": ["08:30"]}

    def read(self, value: Any) -> float:
        """Text to seconds since midnight."""
        match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise as_custom(InputError(f"{value!r} is not a time of day", expected="such as '08:30' or '08:30:00'"))
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return 3600.0 * hours + 60.0 * minutes + seconds

    def write(self, value: float) -> str:
        """Seconds since midnight to text that reads back."""
        minutes, seconds = divmod(int(value), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"


Seconds = Annotated[float, Quantity("s")]
PositiveSeconds = Annotated[float, Quantity("s", positive=True)]
PerSecond = Annotated[float, Quantity("/s", positive=True)]
PerSecondOrNone = Annotated[float, Quantity("/s")]
Bytes = Annotated[float, Quantity("B", positive=True, most=1e18)]
Watts = Annotated[float, Quantity("W", most=1e9)]
TimeOfDay = Annotated[float, _TimeOfDay()]
PricePerHour = Annotated[float, Quantity("USD/h", most=1e9)]


def whole(value: Any) -> Any:
    """Whole numbers are written as such: neither text nor 1.5 nor true."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise as_custom(InputError(f"this is {value!r}", expected="a whole number"))
    return value


Count = Annotated[int, BeforeValidator(whole), Field(ge=1, le=_MAX_COUNT)]
Natural = Annotated[int, BeforeValidator(whole), Field(ge=1, le=10**12)]
Text = Annotated[str, Field(min_length=1, max_length=200)]


class Model(BaseModel):
    """A mapping of a scenario file: keys that are not there are refused, and nothing is changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=False)
