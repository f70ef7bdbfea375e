"""The comparison of two scenarios for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from windtunnel.core.results.comparison import ComparedMetric, Comparison, FleetEntry
from windtunnel.report.numbers import NOTHING, plural, quantity, rate, share, usd

_FORMATS: Mapping[str, Callable[[float | None], str]] = {
    "throughput_per_s": lambda value: rate(value, "jobs"),
    "utilisation": share,
    "average_power_w": lambda value: quantity(value, "W"),
    "peak_power_w": lambda value: quantity(value, "W"),
    "slo_attainment": share,
    "goodput_per_s": lambda value: rate(value, "requests"),
    "output_tokens_per_s": lambda value: rate(value, "tokens"),
    "energy_per_output_token_j": lambda value: quantity(value, "J"),
    "cost_per_million_output_tokens_usd": usd,
    "energy_per_job_j": lambda value: quantity(value, "J"),
    "cost_usd_per_h": lambda value: f"{usd(value)}/h",
    "total_cost_per_million_jobs_usd": usd,
    "availability": share,
    "completed": lambda value: f"{value or 0.0:,.0f}",
}


def _seconds(value: float | None) -> str:
    return quantity(value, "s")


def comparison_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return a header and a row for each metric: both values, the change with its 95% CI, and the conclusion."""
    rows = []
    for metric in comparison.metrics:
        show = _FORMATS.get(metric.metric, _seconds)
        values = [show(estimate.value) for estimate in (metric.baseline, metric.candidate)]
        rows.append([_label(metric.metric), *values, *_change(metric)])
    return ["", "baseline", "candidate", "change (95% CI)", ""], rows


def _label(metric: str) -> str:
    name, _, statistic = metric.partition(".")
    if statistic:
        return f"{name.removesuffix('_s')} {statistic}".replace("_", " ")
    name = metric
    for unit in ("_w", "_j", "_usd", "_usd_per_h", "_per_s"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _change(metric: ComparedMetric) -> tuple[str, str]:
    """Return the relative change with its confidence interval, and the conclusion."""
    baseline, value = metric.baseline.value, metric.difference.value or 0.0
    low, high = metric.difference.low, metric.difference.high
    direction = "higher" if value > 0 else "lower"
    if value == 0.0 and low in (None, 0.0) and low == high:
        return "0%", "identical"
    if not baseline:
        return NOTHING, direction
    if low is None or high is None:
        return _signed(value / baseline), ""
    text = f"{_signed(value / baseline)} ({_signed(low / baseline)} to {_signed(high / baseline)})"
    return text, direction if metric.significant else "no significant difference"


def _signed(relative: float) -> str:
    """Return a relative difference with its sign: two significant digits below 1%, one decimal above."""
    percent = relative * 100
    if abs(percent) >= 0.95:
        return f"{percent:+.1f}%"
    return f"{percent:+.2g}%" if abs(percent) >= 0.01 else f"{percent:+.1e}%" if percent else "0%"


def _fleet_text(entries: Sequence[FleetEntry]) -> str:
    return " + ".join(f"{entry.count:,} × {entry.device}" for entry in entries)


def headline(comparison: Comparison) -> str:
    """Return what was compared, and how."""
    lines = [
        f"baseline   {comparison.baseline}: {_fleet_text(comparison.fleets.baseline)}",
        f"candidate  {comparison.candidate}: {_fleet_text(comparison.fleets.candidate)}",
        f"{plural(comparison.replications, 'pair')} of runs with common random numbers, first seed {comparison.seed}",
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in comparison.notes)])
