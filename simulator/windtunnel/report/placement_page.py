"""The HTML report of a placement run, with allocation and fragmentation as curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from windtunnel.core.results.data import OPTIONAL, Result, to_data
from windtunnel.core.results.placement import NodeResult, Placement, PlacementResult, ReplayPlacement
from windtunnel.core.results.run import Estimate
from windtunnel.placement.recording import PlacementRecording
from windtunnel.report import page
from windtunnel.report.numbers import plural, quantity, share, share_interval
from windtunnel.report.page import Cell, LegendItem, Tile
from windtunnel.report.placement import tasks_arrived
from windtunnel.report.run_text import METRICS, STATISTICS
from windtunnel.report.targets import overall_status, target_line, verdict

_MAX_NODES = 200

GLOSSARY = (
    (
        "Arrived demand",
        "GPUs requested by tasks that have arrived (and, in a replay, have not left), over the cluster's GPUs",
    ),
    ("Allocated", "GPUs that tasks hold, including fractions of GPUs, over the cluster's GPUs"),
    (
        "Fragmented",
        "expected unallocated GPUs that a task drawn from the target mix cannot use, over the cluster's GPUs",
    ),
    ("Fragmentation rate", "fragmented GPUs over unallocated GPUs"),
    ("Target mix", "the most frequent classes of tasks, for which fragmentation is measured"),
    ("95% CI", "95% confidence interval over independent runs (Student's t)"),
)


@dataclass(frozen=True)
class Curve(Result):
    """A curve of a chart, with its confidence interval if ``low`` and ``high`` have values.

    ``behind``: whether it is drawn as a wide band behind the others.
    """

    name: str
    y: Sequence[float | None]
    low: Sequence[float | None] | None = field(default=None, metadata=OPTIONAL)
    high: Sequence[float | None] | None = field(default=None, metadata=OPTIONAL)
    behind: bool | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Chart(Result):
    """The data of one chart, as the script draws it: shares of GPU capacity over the time (s) or over the demand."""

    title: str
    label: str
    time: bool
    x: Sequence[float]
    curves: Sequence[Curve]


@dataclass(frozen=True)
class PlacementReport:
    """What the sections show, with the charts by name."""

    result: PlacementResult
    charts: Mapping[str, Chart]

    @property
    def placement(self) -> Placement:
        """Return the placement part of the result."""
        return self.result.placement

    @property
    def inflates(self) -> bool:
        """Return whether the run inflates the cluster's demand instead of replaying a trace."""
        return not isinstance(self.placement, ReplayPlacement)


def render(result: PlacementResult, recording: PlacementRecording) -> str:
    """Return the report as a complete HTML document. Names in ``result`` may hold any text: they are escaped."""
    placed = result.placement
    report = PlacementReport(result, _charts(placed))
    tasks = plural(len(recording.tasks), "task")
    return page.render_page(
        kind="Windtunnel placement report",
        title=result.name,
        lead=result.description,
        facts=[
            tasks_arrived(result),
            f"{plural(placed.nodes, 'node')}, {plural(placed.gpus, 'GPU')}",
            f"policy {placed.policy}",
            "inflation" if report.inflates else "replay",
            f"seed {result.seed}",
        ],
        sections=[section(report) for section in SECTIONS],
        script="placement.js",
        charts=to_data(report.charts),
        footer=[
            page.versions_line(result.versions),
            f"placement engine · seed {result.seed} · {tasks} in the first run · "
            "the same scenario and seed give the same result",
        ],
    )


def _answer(report: PlacementReport) -> Markup:
    targets = report.result.targets
    return page.answer(overall_status(targets), verdict(targets), [target_line(target) for target in targets])


def _key_figures(report: PlacementReport) -> Markup:
    times, result = None, report.result
    if not report.inflates:
        rows = [
            [METRICS[metric], *(quantity(timed.of(name).value, "s") for name in STATISTICS)]
            for metric, timed in (("latency", result.latency_s), ("waiting", result.waiting_s))
        ]
        times = page.table("All tasks", ["Metric", *STATISTICS], rows)
    return page.section("figures", "Key figures", page.tiles(_tiles(report)), times, page.notes(list(result.notes)))


def _tiles(report: PlacementReport) -> list[Tile]:
    placed, jobs, runs = report.placement, report.result.jobs, report.placement.runs
    when = f"at {share(placed.arrived_demand)} arrived demand" if report.inflates else "mean over the run"

    def with_interval(estimate: Estimate) -> str:
        between = share_interval(estimate)
        return f"95% CI {between}" if between else when

    items = [
        Tile("GPU allocation", share(placed.gpu_allocation.value), with_interval(placed.gpu_allocation)),
        Tile("GPU fragmentation", share(placed.fragmentation.value), with_interval(placed.fragmentation)),
        Tile("Fragmentation rate", share(placed.fragmentation_rate.value), f"of unallocated GPUs, {when}"),
    ]
    if not isinstance(placed, ReplayPlacement):
        running, arrived, dropped = (f"{count / runs:,.0f}" for count in (jobs.running, jobs.arrived, jobs.dropped))
        over_runs = f", mean of {runs} runs" if runs > 1 else ""
        return [*items, Tile("Tasks placed", running, f"of {arrived}; {dropped} dropped{over_runs}")]
    waiting = report.result.waiting_s
    return [
        *items,
        Tile("Tasks completed", f"{jobs.completed:,}", f"of {jobs.arrived:,}"),
        Tile("Demand", share(placed.demand.value), f"maximum {share(placed.peak_demand)}"),
        Tile("Queueing delay, mean", quantity(waiting.mean.value, "s"), f"p99 {quantity(waiting.p99.value, 's')}"),
    ]


def _charts(placed: Placement) -> dict[str, Chart]:
    """Return what the script draws: shares of GPU capacity, with confidence intervals if there are several runs."""
    drawn: dict[str, Chart] = {}
    if isinstance(placed, ReplayPlacement):
        spans = placed.over_time
        demand, allocated, fragmented = (
            [_rounded(value) for value in values]
            for values in zip(*((span.demand, span.allocated, span.fragmented) for span in spans), strict=True)
        )
        # Fragmentation has its own chart, because in an idle cluster it is far larger than the demand. The demand is a
        # wide band behind the allocation, since the two are mostly equal.
        both = [Curve("demand", demand, behind=True), Curve("allocated", allocated, behind=False)]
        for name, title, curves in (
            ("time", "Demand and allocated GPUs over time", both),
            ("fragmented", "Fragmented GPUs over time", [Curve("fragmented", fragmented, behind=False)]),
        ):
            label = f"{title}, as a share of GPU capacity."
            drawn[name] = Chart(title, label, True, [span.time_s for span in spans], curves)
    rows = placed.series
    if len(rows) < 2:
        return drawn
    without_departures = "" if placed.mode == "inflate" else ", without departures"
    shares = [
        _curve("allocated", [row.allocated for row in rows]),
        _curve("fragmented", [row.fragmented for row in rows]),
    ]
    for name, title, curves in (
        ("shares", "Allocated and fragmented GPUs", shares),
        ("rate", "Fragmentation rate", [_curve("fragmentation rate", [row.fragmentation_rate for row in rows])]),
    ):
        heading = f"{title} against arrived demand{without_departures}"
        drawn[name] = Chart(heading, f"{heading}.", False, [row.demand for row in rows], curves)
    return drawn


def _curve(name: str, estimates: Sequence[Estimate]) -> Curve:
    values = [_rounded(estimate.value) for estimate in estimates]
    if estimates[-1].low is None:
        return Curve(name, values)
    return Curve(name, values, [_rounded(e.low) for e in estimates], [_rounded(e.high) for e in estimates])


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _curves(report: PlacementReport) -> Markup:
    figures = []
    for i, (name, chart) in enumerate(report.charts.items()):
        legend = [
            LegendItem(curve.name, line=str(k), style=_line_style(chart, curve), series=k)
            for k, curve in enumerate(chart.curves, 1)
        ]
        figures.append(page.figure(name, chart.title, chart.label, legend, tall=i == 0, live=name))
    return page.section(
        "curves",
        "Allocation and fragmentation",
        page.no_script("The curves need JavaScript; result.json contains every point of them."),
        *figures,
        _demand_table(report),
    )


def _line_style(chart: Chart, curve: Curve) -> str:
    if not chart.time:
        return ""
    return "stroke-dasharray: none" + ("; stroke-width: 6; opacity: .35" if curve.behind else "")


def _demand_table(report: PlacementReport) -> Markup | None:
    series = report.placement.series
    if len(series) < 2:
        return None
    rows: list[list[str | Cell]] = [
        [
            share(row.demand),
            *(Cell(share(part.value), share_interval(part)) for part in (row.allocated, row.fragmented)),
            share(row.fragmentation_rate.value),
        ]
        for i, row in enumerate(series)
        if i % 10 == 0 or i == len(series) - 1
    ]
    without_departures = "" if report.inflates else ", without departures"
    caption = f"By arrived demand{without_departures}, as shares of GPU capacity, with 95% confidence intervals"
    if report.placement.runs == 1:
        caption = caption.removesuffix(", with 95% confidence intervals")
    return page.table(caption, ["Arrived demand", "Allocated", "Fragmented", "Fragmentation rate"], rows)


def _tables(report: PlacementReport) -> Markup:
    devices = report.result.devices
    groups: dict[str, list[NodeResult]] = {}
    for device in devices:
        groups.setdefault(device.sku, []).append(device)
    models: list[list[str]] = []
    for sku, members in groups.items():
        weights = [max(device.gpus, 1) for device in members]
        used = sum(device.utilisation * w for device, w in zip(members, weights, strict=True)) / sum(weights)
        gpus, tasks = sum(device.gpus for device in members), sum(device.jobs for device in members)
        models.append([sku, f"{len(members):,}", f"{gpus:,}", share(used), f"{tasks:,}"])
    shown = sorted(devices, key=lambda device: -device.utilisation)[:_MAX_NODES]
    nodes = [
        [device.name, device.sku, f"{device.gpus}", share(device.utilisation), f"{device.jobs:,}"] for device in shown
    ]
    cut = f"The {len(nodes)} nodes with the highest allocation; result.json contains all of them."
    return page.section(
        "tables",
        "GPU models and nodes",
        page.table("By GPU model", ["Model", "Nodes", "GPUs", "Allocated", "Tasks"], models),
        page.details(
            "Each node",
            f"{len(devices):,}",
            page.hint(cut) if len(nodes) < len(devices) else None,
            page.table(
                "Nodes", ["Node", "Model", "GPUs", "Allocated", "Tasks"], nodes, words=(0, 1), hidden_caption=True
            ),
        ),
    )


def _scenario(report: PlacementReport) -> Markup:
    return page.scenario(report.result.scenario)


def _glossary(_: PlacementReport) -> Markup:
    return page.glossary(GLOSSARY)


SECTIONS: Sequence[Callable[[PlacementReport], Markup | None]] = (
    _answer,
    _key_figures,
    _curves,
    _tables,
    _scenario,
    _glossary,
)
"""The sections in order. A new section is one function, listed here."""
