"""Selects what the charts of a run report show: percentile curves of times, and power, queue and devices over time.

The page's script draws the charts. The points, the workloads and the shaded intervals are chosen here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from windtunnel.core.recording import COMPLETED, DEGRADATION_CAUSES, Recording, Steps
from windtunnel.core.results.run import RunResult, TimeDistribution, distribution
from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.ticks import FloatArray, TickArray, to_second_array
from windtunnel.report.numbers import number, plural, quantity
from windtunnel.report.page import LegendItem
from windtunnel.report.run_text import METRICS, budget_text
from windtunnel.report.targets import target_line

TIME_POINTS = 480
"""Bins of a curve over time: about two pixels each on the widest chart."""

TAIL_POINTS = 240
"""Points of a percentile curve."""

FIRST_MARK = -math.log10(0.99)
"""Curves begin at p1, because the smallest of a million draws varies widely and would take half of a log axis."""

MAX_CURVES = 8
CURVES = ("latency", "ttft", "itl")


ChartData = Mapping[str, object]
"""What the script draws, as plain data."""


@dataclass(frozen=True)
class Chart:
    """A chart: the data that the script draws, its heading, its description for screen readers, and its legend.

    ``omitted`` is the number of workloads that have no curve.
    """

    data: ChartData
    heading: str
    label: str
    legend: list[LegendItem]
    omitted: int = 0


def charts(result: RunResult, recording: Recording) -> dict[str, Chart]:
    """Return the charts of a run by name, in the order in which they are shown."""
    drawn = {metric: chart for metric in CURVES if (chart := _percentile_chart(metric, result, recording)) is not None}
    if recording.end > 0:
        shades, items = _shades(result, recording)
        for name, chart in _over_time(result, recording).items():
            # A chart of the loads themselves is not shaded by them.
            own = {key: shade for key, shade in shades.items() if key != name}
            shown = [item for item in items if item.shade != name]
            drawn[name] = replace(chart, data={**chart.data, "shades": own}, legend=[*chart.legend, *shown])
    return drawn


def _over_time(result: RunResult, recording: Recording) -> dict[str, Chart]:
    """Return the charts of power, of waiting jobs, and of the devices of each scaled entry."""
    drawn: dict[str, Chart] = {}
    lines = [LegendItem("mean", line="mean", series=1), LegendItem("peak", line="peak", series=2)]
    if result.peak_power_w > 0:
        limit, limit_text = _limit(result)
        mean, peak = quantity(result.average_power_w, "W"), quantity(result.peak_power_w, "W")
        drawn["power"] = Chart(
            {**_time_chart(recording.power, "W"), "limit": limit},
            "Power of the fleet over time",
            f"Power of the fleet over time: average {mean}, peak {peak}{f', {limit_text}' if limit_text else ''}.",
            [*lines, *([LegendItem(limit_text, line="limit")] if limit_text else [])],
        )

    def counted(heading: str, steps: Steps, unit: str) -> Chart:
        text = f"mean {number(steps.mean())}, maximum {number(float(steps.values.max()))}"
        return Chart(_time_chart(steps, unit), heading, f"{heading}: {text}.", [*lines, LegendItem(text, quiet=True)])

    loading = _loading(recording)
    if loading is not None:
        drawn["loading"] = counted("Devices that load a design over time", loading, "devices")
    drawn["waiting"] = counted("Waiting jobs over time", recording.waiting, "jobs")
    for index, entry in enumerate(recording.scaling[:MAX_CURVES]):
        heading = f"Rented devices of {entry.entry} over time ({entry.min:,} to {entry.max:,})"
        drawn[f"scaling-{index}"] = counted(heading, entry.rented, "devices")
    return drawn


def _limit(result: RunResult) -> tuple[dict[str, list[float | None]] | None, str]:
    """Return the limit of the fleet's power as steps (``x`` in s, ``y`` in W) and in words.

    The limit is the power budget if there is one, and otherwise the sum of the devices' limits.
    """
    budget, of_devices = result.power_budget, result.power_limit_w
    if budget is not None:
        return {"x": list(budget.series.time_s), "y": list(budget.series.budget_w)}, budget_text(budget)
    if of_devices:
        return {"x": [0.0], "y": [of_devices]}, f"device limit {quantity(of_devices, 'W')}"
    return None, ""


def _shades(result: RunResult, recording: Recording) -> tuple[ChartData, list[LegendItem]]:
    """Return what is shaded behind every curve over time, and its legend: loads of designs, failures and brown-outs.

    ``loading`` and ``down`` are mean shares of the devices that loaded a design or were down, by bin; ``brown_out`` are
    intervals in s.
    """
    intervals, count = recording.degraded, len(recording.devices)
    shades: dict[str, object] = {}
    items: list[LegendItem] = []

    def shade(name: str, words: str, steps: Steps) -> None:
        shades[name] = _rounded(steps.sampled(TIME_POINTS)[1] / count)
        highest = int(steps.values.max())
        items.append(LegendItem(f"{words} (at most {highest:,} of {count:,} at once)", shade=name))

    loading = _loading(recording)
    if loading is not None:
        shade("loading", "devices that load a design", loading)
    if intervals is None:
        return shades, items
    failed = intervals.cause == DEGRADATION_CAUSES.index("down")
    if failed.any():
        shade("down", "devices down", _at_once(intervals.start[failed], intervals.end[failed], recording.end))
    lowered = intervals.cause == DEGRADATION_CAUSES.index("brown-out")
    if lowered.any():
        spans = np.stack([to_second_array(intervals.start[lowered]), to_second_array(intervals.end[lowered])], axis=1)
        shades["brown_out"] = spans[:TIME_POINTS].tolist()
        items.append(LegendItem(plural(int(lowered.sum()), "brown-out"), shade="brown-out"))
    return shades, items


def _loading(recording: Recording) -> Steps | None:
    """Return how many devices load a design over time; None where none does, or where intervals are not kept."""
    table = recording.intervals
    if table is None or recording.loads is None or not (loads := table.is_load).any():
        return None
    return _at_once(table.start[loads], table.end[loads], recording.end)


def _at_once(starts: TickArray, ends: TickArray, end: int) -> Steps:
    """Return how many of the intervals cover each time up to ``end`` (ticks)."""
    ticks, inverse = np.unique(np.concatenate([[0], starts, ends]), return_inverse=True)
    ones = np.ones(len(starts))
    change = np.bincount(inverse, weights=np.concatenate([[0.0], ones, -ones]))
    before = ticks < end
    return Steps(ticks[before], np.cumsum(change)[before].astype(np.float64), end)


def _percentile_chart(metric: str, result: RunResult, recording: Recording) -> Chart | None:
    """Return the percentile curves of all jobs and of the largest workloads; None if nothing was measured."""
    samples = {i: s for i in range(len(recording.workloads)) if (s := _sample(metric, recording, i)).total}
    if not samples:
        return None
    targets = [target for target in result.targets if target.metric == metric]
    # If there are too many, the workloads that a target names go before the larger ones.
    named = {target.workload for target in targets}
    order = sorted(samples, key=lambda i: (recording.workloads[i] not in named, -samples[i].total, i))
    drawn = sorted(order[:MAX_CURVES])
    # Most targets are about all jobs, so with several workloads the curve of all jobs comes first.
    curves = [(str(recording.workloads[i]), False, samples[i]) for i in drawn]
    if len(samples) > 1:
        curves.insert(0, ("all jobs", True, _sample(metric, recording, None)))
    u = _percentile_axis(max(sample.total for _, _, sample in curves))
    drawn_at = [sample.percentiles(u) for _, _, sample in curves]
    if all(value is None for values in drawn_at for value in values):
        return None
    shift = int(curves[0][1])
    items = [
        LegendItem(name, line="all" if is_all else str(i + 1 - shift), series=i + 1)
        for i, (name, is_all, _) in enumerate(curves)
    ]
    data = {
        "kind": "percentile",
        "x": _rounded(u),
        "series": [
            {"name": name, "all": is_all, "y": values}
            for (name, is_all, _), values in zip(curves, drawn_at, strict=True)
        ],
        "targets": [_limit_line(target) for target in targets if target.limit],
    }
    label = _describe(METRICS[metric], distribution(result, metric))
    return Chart(data, METRICS[metric], label, items, len(samples) - len(drawn))


def _percentile_axis(jobs: int) -> FloatArray:
    """Return the points of the axis u = -log10(1 - p), on which p90 to p99 is as wide as p99 to p99.9."""
    end = min(max(math.log10(jobs), 1.31), 5.0)
    marks = [-math.log10(1 - p) for p in (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)]
    return np.unique(np.concatenate([np.linspace(FIRST_MARK, end, TAIL_POINTS), [m for m in marks if m <= end]]))


def _describe(heading: str, times: TimeDistribution | None) -> str:
    named = times.by_name() if times is not None else {}
    values = (f"{name} {quantity(named[name].value if named else None, 's')}" for name in ("p50", "p95", "p99"))
    return f"{heading} by percentile: {', '.join(values)}."


def _limit_line(target: TargetVerdict) -> ChartData:
    """Return the line that the chart shows for a target."""
    line = target_line(target)
    of = f"of {target.workload}" if target.workload else ""
    label = " ".join(filter(None, [target.statistic, of, line.bound]))
    return {"at": _mark(str(target.statistic)), "limit": target.limit, "state": line.status, "label": label}


def _mark(statistic: str) -> float | None:
    """Return the place of a statistic on the percentile axis; None for the mean, which has none."""
    match = re.fullmatch(r"p(\d+(?:\.\d+)?)", statistic)
    if not match or not 0 <= float(match[1]) < 100:
        return None
    return -math.log10(1 - float(match[1]) / 100)


@dataclass(frozen=True)
class _Sample:
    """Times in s, sorted; how many there are up to each; and their number."""

    values: FloatArray
    cumulative: npt.NDArray[np.int64]
    total: int

    def percentiles(self, u: FloatArray) -> list[float | None]:
        """Return the percentiles at the places ``u`` of the axis; None beyond one in ``total``, and for zero."""
        rank = np.searchsorted(self.cumulative, (1 - 10.0**-u) * self.total, side="left")
        values = self.values[np.minimum(rank, len(self.values) - 1)]
        # There is no value beyond one in `total`, and a log axis cannot show zero.
        return _rounded(np.where((u <= math.log10(self.total) + 1e-9) & (values > 0), values, np.nan))


def _sample(metric: str, recording: Recording, workload: int | None) -> _Sample:
    """Return the times of one workload, or of all jobs."""
    jobs = recording.jobs
    mine: npt.NDArray[np.bool_]
    if metric == "itl":
        gaps = recording.token_gaps
        mine = (gaps.workload == workload) | (workload is None)
        ticks, weights = gaps.ticks[mine], gaps.weights[mine]
        order = np.argsort(ticks, kind="stable")
        cumulative = np.cumsum(weights[order])
        return _Sample(to_second_array(ticks[order]), cumulative, int(cumulative[-1]) if len(cumulative) else 0)
    until: TickArray = jobs.first if metric == "ttft" else jobs.finish
    mine = ((jobs.workload == workload) | (workload is None)) & (until >= 0)
    if metric == "latency":
        mine &= jobs.status == COMPLETED
    ticks = jobs.until_first(mine) if metric == "ttft" else jobs.until_finish(mine)
    values = np.sort(to_second_array(ticks))
    return _Sample(values, np.arange(1, len(values) + 1), len(values))


def _time_chart(steps: Steps, unit: str) -> ChartData:
    x, mean, peak = steps.sampled(TIME_POINTS)
    # A last point at the end of the run gives the last bin its width.
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
    """Return ``values`` with five significant digits, which is finer than a pixel and halves the size of the page."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]
