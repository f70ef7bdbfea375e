"""Lengths of requests that are drawn for each job, prefixes that prompts share, and sessions of several requests."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from windtunnel.core.errors import InputError
from windtunnel.scenario.arrivals import Think
from windtunnel.scenario.fields import Count, Model, Text, as_custom, whole

MAX_LENGTH = 10**9
Tokens = Annotated[int, BeforeValidator(whole), Field(ge=1, le=MAX_LENGTH)]
_OF_MEAN = ("deterministic", "exponential", "lognormal", "gamma", "weibull", "geometric")


def _refuse(problem: str, expected: str) -> Exception:
    return as_custom(InputError(problem, expected=expected))


class Length(Model):
    """A whole number of at least 1 that is drawn for each job: rounded, and then limited to ``min`` and ``max``."""

    distribution: Literal[
        "deterministic", "exponential", "lognormal", "gamma", "weibull", "geometric", "uniform", "empirical"
    ]
    mean: Annotated[float, Field(ge=1, le=MAX_LENGTH, allow_inf_nan=False)] | None = Field(
        None, description="mean before it is limited; not for uniform and empirical"
    )
    cv: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        None, description="standard deviation over mean, for lognormal, gamma and weibull; default: 1"
    )
    min: Tokens = Field(1, description="smallest value; a smaller one becomes this")
    max: Tokens | None = Field(None, description="largest value; a larger one becomes this; default: none")
    file: Text | None = Field(None, description="for empirical: a table in CSV, JSON lines or Parquet")
    column: Text | None = Field(None, description="for empirical: its column, of which each job takes a row at random")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        of_mean = self.distribution in _OF_MEAN
        if of_mean and self.mean is None:
            raise _refuse(f"'mean' is missing, for {self.distribution}", "mean: 500")
        if not of_mean and self.mean is not None:
            raise _refuse(f"mean is not a parameter of the {self.distribution} distribution", "no mean")
        if self.cv is not None and self.distribution not in ("lognormal", "gamma", "weibull"):
            raise _refuse(f"cv is not a parameter of the {self.distribution} distribution", "no cv")
        if self.distribution == "weibull" and self.cv is not None and self.cv < 0.001:
            raise _refuse(f"cv {self.cv:g} is too small for a Weibull distribution", "0.001 or more, or deterministic")
        if self.distribution == "uniform" and (self.max is None or "min" not in self.model_fields_set):
            raise _refuse("a uniform distribution lacks min or max", "min: 100, max: 900")
        if (self.distribution == "empirical") != (self.file is not None and self.column is not None):
            raise _refuse("file and column belong to the empirical distribution", "both with it, none without it")
        if self.max is not None and self.max < self.min:
            raise _refuse(f"max {self.max:,} is below min {self.min:,}", "min <= max")
        return self

    @property
    def typical(self) -> float:
        """The mean before the limits, or a value between the limits where the mean is not stated."""
        if self.mean is not None:
            return self.mean
        return (self.min + (self.max or self.min)) / 2.0

    @property
    def is_random(self) -> bool:
        """Whether the values of two jobs may differ."""
        return self.distribution != "deterministic" and (self.min != self.max)


class SharedPrefix(Model):
    """The tokens with which prompts begin alike, such as a system prompt: one for all, or one for each group."""

    tokens: Tokens | Length = Field(description="its length, one for each group")
    groups: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1_000_000)] = Field(
        1, description="number of different prefixes; each job, or each session, has one of them at random"
    )
    zipf: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = Field(
        0.0, description="exponent of Zipf's law: group i is chosen in proportion to 1 / i^zipf; 0: all alike"
    )
    beside_prompt: bool = Field(
        False, description="whether these tokens come before those of `prompt`, instead of being a part of them"
    )


class Session(Model):
    """A conversation of one user: each prompt holds the last one, its answer and new tokens.

    Every arrival is that of a session, whose first prompt is the program's. With users (``process: closed``) each one
    has a session after the other, and the process's think time is that between them.
    """

    turns: Count | Length = Field(description="the number of requests of a session")
    new_tokens: Tokens | Annotated[str, Field(pattern=r"^\$.+")] | Length = Field(
        description="tokens of the user in each prompt after the first one: a number, a distribution, or a column of "
        "`rows`"
    )
    think: Think = Field(description="time from the last token of an answer to the next prompt")
    max_context: Tokens | None = Field(
        None,
        description="longest prompt and output together; a session ends before a turn that would exceed it; default: "
        "what the model supports",
    )


class Rows(Model):
    """A table whose rows give the values of jobs: each job takes one at random, whatever the arrivals are."""

    file: Text
    format: Literal["csv", "azure-llm", "mooncake"] = "csv"
    columns: dict[Text, Text] = Field(
        default_factory=dict, description="name in the program: name of the column in the file"
    )
