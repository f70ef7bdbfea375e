"""What the report's charts show: percentile curves of times, and power, queues and rented devices over time.

The page's script draws them; which points, which workloads and what is shaded is chosen here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.result import COMPLETED, SPELLS, Recording, Steps, distribution
from windtunnel.core.ticks import FloatArray, TickArray, to_second_array
from windtunnel.report import words
from windtunnel.report.words import METRICS

TIME_POINTS = 480
"""Bins of a curve over time: about two pixels each on the widest chart."""

TAIL_POINTS = 240
"""Points of a percentile curve."""

FIRST_MARK = -math.log10(0.99)
"""Curves begin at p1: the very least of a million draws is an accident, and would take half of a log axis."""

MAX_CURVES = 8
CURVES = ("latency", "ttft", "itl")


def charts(result: Mapping[str, Any], recording: Recording) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """(what the script draws, what the page says around each drawing), by chart."""
    charts: dict[str, Any] = {}
    figures: dict[str, dict[str, Any]] = {}
    for metric in CURVES:
        drawn = _percentile_chart(metric, result, recording)
        if drawn is None:
            continue
        charts[metric], left_out = drawn
        figures[metric] = {
            "heading": METRICS[metric],
            "legend": [{"name": one["name"], "all": one["all"]} for one in charts[metric]["series"]],
            "shift": int(charts[metric]["series"][0]["all"]),
            "left_out": left_out,
            "label": _describe(METRICS[metric], distribution(result, metric)),
        }
    if recording.end > 0:
        shades, legend = _shades(result, recording)
        for name, (chart, figure) in _over_time(result, recording).items():
            charts[name] = chart | {"shades": shades}
            figures[name] = figure | {"shades": legend}
    return charts, figures


def _over_time(result: Mapping[str, Any], recording: Recording) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """(what is drawn, what is said around it) of power, of jobs waiting, and of each scaled entry's devices."""
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    if result["peak_power_w"] > 0:
        watts = words.quantity(result["average_power_w"], "W"), words.quantity(result["peak_power_w"], "W")
        limit, said = _limit(result)
        figure = {
            "heading": "Power of the fleet over time",
            "label": f"Line chart of power over time: average {', peak '.join(watts)}{f', {said}' if said else ''}.",
            "limit": said,
        }
        found["power"] = _time_chart(recording.power, "W") | {"limit": limit}, figure
    mean, most = words.number(recording.waiting.mean()), words.number(float(recording.waiting.values.max()))
    figure = {
        "heading": "Jobs waiting over time",
        "label": f"Line chart of jobs waiting over time: {mean} on average, {most} at most.",
        "mean": mean,
        "most": most,
    }
    found["waiting"] = _time_chart(recording.waiting, "jobs"), figure
    for number, one in enumerate(recording.scaling[:MAX_CURVES]):
        mean, most = words.number(one.rented.mean()), words.number(float(one.rented.values.max()))
        figure = {
            "heading": f"Devices of {one.entry} rented over time, {one.min:,} to {one.max:,}",
            "label": f"Line chart of devices rented over time: {mean} on average, {most} at most.",
            "mean": mean,
            "most": most,
        }
        found[f"scaling-{number}"] = _time_chart(one.rented, "devices"), figure
    return found


def _limit(result: Mapping[str, Any]) -> tuple[dict[str, list[float | None]] | None, str]:
    """The limit of the fleet's power as steps (``x`` in s, ``y`` in W), and in words: a budget, else the devices'."""
    budget, of_devices = result.get("power_budget"), result.get("power_limit_w")
    if budget is not None:
        series = budget["series"]
        return {"x": list(series["time_s"]), "y": list(series["budget_w"])}, words.budget_text(budget)
    if of_devices:
        return {"x": [0.0], "y": [of_devices]}, f"devices' limit {words.quantity(of_devices, 'W')}"
    return None, ""


def _shades(result: Mapping[str, Any], recording: Recording) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """What is shaded behind every curve over time, to explain it, and its legend: devices down, and brown-outs.

    ``down`` is the mean share of the devices that had failed, by bin; ``brown_out`` are spans (s).
    """
    spells = recording.spells
    shades: dict[str, Any] = {}
    legend: list[dict[str, str]] = []
    if spells is None:
        return shades, legend
    failed = spells.what == SPELLS.index("down")
    if failed.any():
        count = len(recording.devices)
        ticks, inverse = np.unique(np.concatenate([[0], spells.start[failed], spells.end[failed]]), return_inverse=True)
        ones = np.ones(int(failed.sum()))
        change = np.bincount(inverse, weights=np.concatenate([[0.0], ones, -ones]))
        before = ticks < recording.end
        down = Steps(ticks[before], np.cumsum(change)[before].astype(np.float64), recording.end)
        shades["down"] = _rounded(down.sampled(TIME_POINTS)[1] / count)
        most = int(down.values.max())
        legend.append({"word": "down", "text": f"devices down, at most {most:,} of {count:,} at once"})
    browned = spells.what == SPELLS.index("brown-out")
    if browned.any():
        spans = np.stack([to_second_array(spells.start[browned]), to_second_array(spells.end[browned])], axis=1)
        shades["brown_out"] = spans[:TIME_POINTS].tolist()
        legend.append({"word": "brown-out", "text": words.plural(int(browned.sum()), "brown-out")})
    return shades, legend


def _describe(heading: str, timed: Mapping[str, Any] | None) -> str:
    parts = [
        f"{name} {words.quantity(((timed or {}).get(name) or {}).get('value'), 's')}" for name in ("p50", "p95", "p99")
    ]
    return f"Percentile curve of {heading.lower()}: {', '.join(parts)}."


def _percentile_chart(
    metric: str, result: Mapping[str, Any], recording: Recording
) -> tuple[dict[str, Any], int] | None:
    """The percentile curve of every workload (the largest few) and of all, and how many workloads it leaves out."""
    count = len(recording.workloads)
    samples = {i: sample for i in range(count) if (sample := _sample(metric, recording, i))[1]}
    if not samples:
        return None
    # Where not all find room, those that a target names go before the larger ones.
    named = {target.get("workload") for target in result["targets"] if target.get("metric") == metric}
    order = sorted(samples, key=lambda i: (recording.workloads[i] not in named, -samples[i][1], i))
    drawn = sorted(order[:MAX_CURVES])
    # Targets are about all jobs, so with several workloads the curve they are met or missed on comes first.
    curves = [(str(recording.workloads[i]), False, samples[i]) for i in drawn]
    if len(samples) > 1:
        curves.insert(0, ("all jobs", True, _sample(metric, recording, None)))
    # Percentiles are spread by nines: u = -log10(1 - p), so that p99 gets as much room as p90.
    end = min(max(math.log10(max(total for _, _, (_, total, _) in curves)), 1.31), 5.0)
    marks = [-math.log10(1 - p) for p in (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)]
    u = np.unique(np.concatenate([np.linspace(FIRST_MARK, end, TAIL_POINTS), [mark for mark in marks if mark <= end]]))
    p = 1 - 10.0**-u
    series: list[dict[str, Any]] = []
    for name, of_all, (values, total, cumulative) in curves:
        rank = np.minimum(np.searchsorted(cumulative, p * total, side="left"), len(values) - 1)
        # Beyond one in `total` there is nothing to read; a log axis has no place for zero.
        seen = (u <= math.log10(total) + 1e-9) & (values[rank] > 0)
        series.append({"name": name, "all": of_all, "y": _rounded(np.where(seen, values[rank], np.nan))})
    if not any(value is not None for one in series for value in one["y"]):
        return None
    targets = [
        {"at": _mark(str(target.get("statistic"))), "limit": target["limit"], "state": state, "label": text}
        for target in result["targets"]
        if target.get("metric") == metric and target.get("limit")
        for text, state in [(_target_label(target), words.target_line(target).state)]
    ]
    return {"kind": "percentile", "x": _rounded(u), "series": series, "targets": targets}, len(samples) - len(drawn)


def _target_label(target: Mapping[str, Any]) -> str:
    of = f"of {target['workload']}" if target.get("workload") else ""
    return " ".join(filter(None, [str(target.get("statistic") or ""), of, words.target_line(target).bound]))


def _mark(statistic: str) -> float | None:
    """Where a statistic stands on the percentile axis; None for the mean, which has no place on it."""
    found = re.fullmatch(r"p(\d+(?:\.\d+)?)", statistic)
    if not found or not 0 <= float(found.group(1)) < 100:
        return None
    return -math.log10(1 - float(found.group(1)) / 100)


def _sample(metric: str, recording: Recording, workload: int | None) -> tuple[FloatArray, int, npt.NDArray[np.int64]]:
    """(sorted seconds, how many there are, how many are no longer than each), of one workload or of all."""
    jobs = recording.jobs
    mine: npt.NDArray[np.bool_]
    if metric == "itl":
        gaps = recording.token_gaps
        mine = (gaps.workload == workload) | (workload is None)
        ticks, weights = gaps.ticks[mine], gaps.weights[mine]
        order = np.argsort(ticks, kind="stable")
        cumulative = np.cumsum(weights[order])
        return to_second_array(ticks[order]), int(cumulative[-1]) if len(cumulative) else 0, cumulative
    until: TickArray = jobs.first if metric == "ttft" else jobs.finish
    mine = ((jobs.workload == workload) | (workload is None)) & (until >= 0)
    if metric == "latency":
        mine &= jobs.status == COMPLETED
    values = np.sort(to_second_array(until[mine] - jobs.arrival[mine]))
    return values, len(values), np.arange(1, len(values) + 1)


def _time_chart(steps: Steps, unit: str) -> dict[str, Any]:
    x, mean, peak = steps.sampled(TIME_POINTS)
    # The first point again at the end of the run, so that the last bin has its width.
    x = np.append(x, steps.end / 1e12)
    return {
        "kind": "time",
        "unit": unit,
        "x": _rounded(x),
        "mean": _rounded(np.append(mean, mean[-1])),
        "peak": _rounded(np.append(peak, peak[-1])),
        "limit": None,
    }


def _rounded(values: FloatArray) -> list[float | None]:
    """Five significant digits are finer than a pixel, and half the size of the page."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]
