"""Targets, such as ``latency p99 <= 20 ms`` or ``power peak <= 3 kW``: limits that `run` checks and `plan` meets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.renamed import renamed_error
from windtunnel.core.units import parse_quantity
from windtunnel.scenario.fields import as_custom

SPREAD = ("mean", "p50", "p95", "p99")

OF_REQUESTS = ("ttft", "tpot", "itl", "e2e")
"""The times of single requests, whose limits each request has to meet for ``slo_attainment``."""

CONFIDENCE = ("conclusive", "inconclusive", "no interval")
"""The 95% interval does not contain the limit, contains it, or is not known."""


@dataclass(frozen=True)
class Metric:
    """A metric of targets: its unit, its statistics (empty: a single number), and its description."""

    unit: str
    statistics: tuple[str, ...]
    doc: str
    per_workload: bool = False
    share: bool = False
    """Whether the value lies between 0 and 1."""
    positive: bool = False
    """Whether no run can have a value of zero."""


METRICS: Mapping[str, Metric] = {
    "latency": Metric("s", SPREAD, "from a job's arrival to its completion", per_workload=True, positive=True),
    "waiting": Metric("s", SPREAD, "from a job's arrival to its start", per_workload=True),
    "ttft": Metric("s", SPREAD, "from arrival to the first token", per_workload=True, positive=True),
    "itl": Metric("s", SPREAD, "between consecutive tokens of a request", per_workload=True, positive=True),
    "tpot": Metric("s", SPREAD, "a request's mean time between tokens", per_workload=True, positive=True),
    "e2e": Metric("s", SPREAD, "from a request's arrival to its last token", per_workload=True, positive=True),
    "slo_attainment": Metric(
        "1",
        (),
        "requests that meet all targets on ttft, tpot, itl and e2e over arrived ones",
        per_workload=True,
        share=True,
    ),
    "cost_per_million_output_tokens": Metric("USD", (), "rent of the whole fleet over millions of output tokens"),
    "throughput": Metric("/s", (), "jobs completed a second"),
    "power": Metric("W", ("average", "peak"), "power of the whole fleet", positive=True),
    "energy": Metric("J", (), "energy of the whole fleet over the run"),
    "cost": Metric("USD/h", (), "rent of the whole fleet"),
    "energy_cost": Metric("USD/h", (), "cost of the site's energy"),
    "total_cost": Metric("USD/h", (), "rent and energy together"),
    "carbon": Metric("kg/h", (), "carbon emissions of the site's energy"),
    "availability": Metric("1", (), "share of device time without outages", share=True),
    "utilisation": Metric("1", (), "share of the rented time in which devices work", share=True),
    "completed": Metric("1", (), "jobs completed over jobs arrived", share=True),
}


@dataclass(frozen=True)
class Target:
    """A limit (SI) on a metric's statistic, of one workload or of all."""

    text: str
    metric: str
    statistic: str | None
    workload: str | None
    comparison: str
    limit: float
    unit: str
    """The metric's unit."""

    @property
    def is_rarely_meant(self) -> bool:
        """Whether the target asks for a value that is no better, such as a time of at least its limit."""
        if self.metric == "utilisation":
            return False
        more_is_better = self.metric in ("throughput", "slo_attainment", "completed", "availability")
        return (self.comparison == ">=") != more_is_better

    @property
    def is_distributed(self) -> bool:
        """Return whether the metric is a time of single jobs, with a mean and percentiles."""
        return self.statistic in SPREAD

    @property
    def is_of_requests(self) -> bool:
        """Return whether the target is an upper limit on a time of single requests."""
        return self.metric in OF_REQUESTS and self.comparison == "<="

    def met_by(self, value: float | None) -> bool:
        """Return whether ``value`` (SI) meets the target; None never does."""
        if value is None:
            return False
        return value <= self.limit if self.comparison == "<=" else value >= self.limit

    def confidence(self, value: float | None, low: float | None, high: float | None) -> str:
        """Return the member of ``CONFIDENCE`` for ``value`` and its 95% interval (all in SI units)."""
        if value is None or low is None or high is None:
            return "no interval"
        return "conclusive" if self.met_by(low) == self.met_by(high) == self.met_by(value) else "inconclusive"


_FIGURE = (
    r"\s*(?P<metric>[A-Za-z_][A-Za-z0-9_]*)(?:\s+(?P<statistic>[A-Za-z][A-Za-z0-9.]*))?(?:\s+of\s+(?P<workload>\S+))?"
)
_PATTERN = re.compile(_FIGURE + r"\s*(?P<comparison><=|>=|<|>|==|=)\s*(?P<limit>.+?)\s*")
_FIGURE_ALONE = re.compile(_FIGURE + r"\s*")


@dataclass(frozen=True)
class Figure:
    """A metric's statistic, of one workload or of all."""

    metric: str
    statistic: str | None
    workload: str | None


def parse_figure(text: str, metrics: Mapping[str, Metric] = METRICS) -> Figure:
    """Return the figure written as ``METRIC [STATISTIC] [of WORKLOAD]``, of one of ``metrics``.

    Raises:
        InputError: The text is not valid; it states what was expected and the nearest right name.
    """
    match = _FIGURE_ALONE.fullmatch(text)
    if match is None:
        raise InputError(f"'{text}' is not a figure", expected="a figure such as 'latency p99'")
    return _figure(match, text, metrics)


def parse_target(text: str, metrics: Mapping[str, Metric] = METRICS) -> Target:
    """Return the target written as ``METRIC [STATISTIC] [of WORKLOAD] <=|>= QUANTITY``, of one of ``metrics``.

    Raises:
        InputError: The text is not valid; it states what was expected and the nearest right name.
    """
    expected = "a target such as 'latency p99 <= 20 ms'"
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise InputError(f"'{text}' is not a target", expected=expected)
    figure = _figure(match, text, metrics)
    metric, comparison = metrics[figure.metric], match["comparison"]
    if comparison not in ("<=", ">="):
        raise InputError(f"'{comparison}' in '{text}'", expected="<= or >=")
    limit = parse_quantity(match["limit"], metric.unit)
    zero = metric.positive and comparison == "<=" and limit == 0.0
    if limit < 0.0 or zero:
        raise InputError(
            f"{figure.metric} is never {'zero' if zero else 'negative'}, but the limit is '{match['limit']}'",
            expected="a limit above zero" if metric.positive else "a limit of zero or more",
        )
    if metric.share and limit > 1.0:
        suggestion = f"{limit:g} %" if limit <= 100.0 else None
        raise InputError(
            f"{figure.metric} is a share, and '{match['limit']}' is more than 100%",
            expected="a number from 0 to 1, or a percentage such as 80 %",
            nearest=suggestion,
        )
    return Target(text, figure.metric, figure.statistic, figure.workload, comparison, limit, metric.unit)


def _figure(match: re.Match[str], text: str, metrics: Mapping[str, Metric]) -> Figure:
    name, statistic, workload = match["metric"], match["statistic"], match["workload"]
    if statistic == "of" and workload is None:
        raise InputError(f"'{text}' does not name a workload", expected=f"'{name} of' a workload's name")
    if name not in metrics:
        if (error := renamed_error("target", name)) is not None:
            raise error
        raise InputError(f"unknown metric '{name}'", expected=list_choices(metrics), nearest=nearest(name, metrics))
    metric = metrics[name]
    if metric.statistics and statistic not in metric.statistics:
        problem = f"{name} has no '{statistic}'" if statistic else f"'{text}' has no statistic"
        raise InputError(
            problem, expected=list_choices(metric.statistics), nearest=nearest(statistic or "", metric.statistics)
        )
    if not metric.statistics and statistic is not None:
        raise InputError(f"{name} has no '{statistic}'", expected=f"'{name}' alone")
    if workload is not None and not metric.per_workload:
        raise InputError(f"{name} is a metric of the fleet, not of one workload", expected=f"'{name}' without 'of'")
    return Figure(name, statistic, workload)


def _target(value: Any) -> Any:
    try:
        if not isinstance(value, str):
            raise InputError(f"{value!r} is not a target", expected="text such as 'latency p99 <= 20 ms'")
        parse_target(value)
    except InputError as error:
        raise as_custom(error) from None
    return value


TargetText = Annotated[str, BeforeValidator(_target)]
