"""A comparison of two scenarios as the terminal shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windtunnel.report.words import plural, quantity, rate, share, usd

_SHOWN: Mapping[str, Callable[[float], str]] = {
    "throughput_per_s": lambda value: rate(value, "jobs"),
    "utilisation": share,
    "average_power_w": lambda value: quantity(value, "W"),
    "peak_power_w": lambda value: quantity(value, "W"),
    "energy_j": lambda value: quantity(value, "J"),
    "cost_usd_per_h": lambda value: f"{usd(value)}/h",
    "total_cost_usd": usd,
    "availability": share,
    "completed": lambda value: f"{value:,.0f}",
}


def _seconds(value: float) -> str:
    return quantity(value, "s")


def comparison_table(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: both figures, what the second differs by with its 95% interval, and what that says."""
    rows = []
    for row in found["metrics"]:
        name, one, difference = row["metric"], row["baseline"]["value"], row["difference"]
        show = _SHOWN.get(name, _seconds)
        low, high = difference["low"], difference["high"]
        if difference["value"] == 0.0 and low in (None, 0.0) and low == high:
            said, by = "identical", "0%"
        elif not one:
            said, by = "higher" if difference["value"] > 0 else "lower", "–"
        elif low is None or high is None:
            by, said = _change(difference["value"] / one), ""
        else:
            by = f"{_change(difference['value'] / one)} ({_change(low / one)} to {_change(high / one)})"
            said = (
                ("higher" if difference["value"] > 0 else "lower")
                if row["significant"]
                else "no significant difference"
            )
        metric, _, statistic = name.partition(".")
        label = f"{metric.removesuffix('_s')} {statistic}".replace("_", " ") if statistic else name.partition("_per")[0]
        label = label.removesuffix("_w").removesuffix("_j").removesuffix("_usd").replace("_", " ").strip()
        rows.append([label, show(one), show(row["candidate"]["value"]), by, said])
    return ["", "baseline", "candidate", "change", ""], rows


def _change(relative: float) -> str:
    """A relative difference with its sign: two significant digits below a percent, one decimal above."""
    percent = relative * 100
    if abs(percent) >= 0.95:
        return f"{percent:+.1f}%"
    return f"{percent:+.2g}%" if abs(percent) >= 0.01 else f"{percent:+.1e}%" if percent else "0%"


def headline(found: Mapping[str, Any]) -> str:
    """What was compared, and how."""
    pairs = plural(found["replications"], "pair")
    lines = [
        f"baseline   {found['baseline']}",
        f"candidate  {found['candidate']}",
        f"{pairs} of runs with the same seeds, from {found['seed']}; differences with their 95% intervals",
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in found["notes"])])
