"""The options of `windtunnel plan`: a scenario's ``plan`` key."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from windtunnel.core.errors import InputError
from windtunnel.core.units import parse_quantity
from windtunnel.scenario.fields import Count, Model, Text, as_custom, whole

Objective = Literal["cost", "power", "carbon", "throughput"]


def _confidence(value: Any) -> Any:
    try:
        confidence = parse_quantity(str(value), "1")
        if isinstance(value, bool) or not 0.5 <= confidence <= 0.999:
            raise InputError(f"{value!r} is not a valid confidence", expected="50% to 99.9%")
    except InputError as error:
        raise as_custom(error) from None
    return confidence


class Plan(Model):
    """The search space and the limits of `windtunnel plan`. Every key has a default."""

    max: Count | dict[Text, Count] | None = Field(
        None, description="largest number of devices of an entry: one number, or one for each entry's name"
    )
    max_entries: Annotated[int, BeforeValidator(whole), Field(ge=1, le=8)] = Field(
        2, description="largest number of entries in one fleet"
    )
    fleets: Annotated[int, BeforeValidator(whole), Field(ge=1, le=100)] = Field(
        5, description="largest number of fleets that the terminal and the report list"
    )
    confidence: Annotated[float, BeforeValidator(_confidence)] = Field(
        0.95, description="confidence of the interval whose worse bound must meet a target"
    )
    objective: Objective = "cost"
    search: dict[Text, list[Any]] = Field(
        default={},
        description="values to choose among, by the path of a key of the fleet, the models or the policy",
    )
    spare: Annotated[int, BeforeValidator(whole), Field(ge=0, le=1000)] = Field(
        0, description="devices of any one entry that may be out of service while targets on time must still be met"
    )
    simulations: Annotated[int, BeforeValidator(whole), Field(ge=1, le=100_000)] = Field(
        60, description="largest number of fleets that each of the two searches simulates"
    )
    replications: Annotated[int, BeforeValidator(whole), Field(ge=2, le=1000)] = Field(
        5, description="number of runs, or factor on the length of a run, if one run gives a target no interval"
    )
    loads: list[Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]] | None = Field(
        default=None,
        description="loads of the latency-load curve, 1 being the scenario's; empty for none; default: 0.3 to 1.2, and "
        "on to the first at which a target is missed",
    )
