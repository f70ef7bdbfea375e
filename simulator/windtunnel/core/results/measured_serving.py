"""Results of `windtunnel validate serving` and `windtunnel calibrate serving`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.data import Result

TIMES = ("ttft_s", "tpot_s", "e2e_s")
"""The compared times: to the first token, per later output token, and of the whole request (s)."""


@dataclass(frozen=True)
class ServingRow(Result):
    """A row of measured serving and its simulation; times are means in seconds, None where unknown.

    ``row`` counts from 1. ``measured`` and ``error`` (signed, relative) have the keys of ``TIMES``; so have
    ``model_low`` and ``model_high``, a 90% interval for the error of the models. ``problem`` says why the models refuse
    a configuration; its times are then None.
    """

    row: int
    engine: str
    model: str
    sku: str
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    measured: Mapping[str, float | None]
    error: Mapping[str, float | None]
    model_low: Mapping[str, float | None]
    model_high: Mapping[str, float | None]
    problem: str | None = field(default=None, metadata={"json": "optional"})


@dataclass(frozen=True)
class Statistics(Result):
    """The mean and percentiles of a time over all requests (s), or their relative errors."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class ReplayResult(Result):
    """A replayed request log: times of the log and of the simulation, and the signed relative errors of the latter."""

    requests: int
    measured: Mapping[str, Statistics]
    modelled: Mapping[str, Statistics]
    error: Mapping[str, Statistics]


@dataclass(frozen=True)
class LearnedNumber(Result):
    """A number of a profile: in the profile from which a fit started, fitted, and its 90% bounds.

    ``learned`` is the share of the prior uncertainty that the rows removed: 0 nothing, 1 all.
    """

    name: str
    profile: float
    value: float
    low: float
    high: float
    learned: float


@dataclass(frozen=True)
class EngineCalibration(Result):
    """The result of `windtunnel calibrate serving`.

    ``shipped_error`` and ``error`` are mean absolute relative errors of the time per output token, with the shipped
    profile and with the fitted one; ``held_out_error`` is that of each row by a fit to the others, None for one row.
    ``error_factor`` is the factor of the 90% interval.
    """

    rows: int
    engine: str
    model: str
    sku: str
    key: str
    numbers: Sequence[LearnedNumber]
    frontend_s: float | None
    shipped_error: float
    error: float
    held_out_error: float | None
    error_factor: float
    notes: Sequence[str]
