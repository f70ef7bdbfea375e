"""The HTML report of a placement run, with allocation and fragmentation as curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

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
class PlacementReport:
    """What the sections show: ``result`` is the content of result.json, ``charts`` the data of the charts by name."""

    result: Mapping[str, Any]
    charts: Mapping[str, Mapping[str, Any]]

    @property
    def placement(self) -> Mapping[str, Any]:
        """Return the placement part of the result."""
        placement: Mapping[str, Any] = self.result["placement"]
        return placement

    @property
    def inflates(self) -> bool:
        """Return whether the run inflates the cluster's demand instead of replaying a trace."""
        return bool(self.placement["mode"] == "inflate")


def render(result: Mapping[str, Any], recording: PlacementRecording) -> str:
    """Return the report as a complete HTML document. Names in ``result`` may hold any text: they are escaped."""
    placed = result["placement"]
    report = PlacementReport(result, _charts(placed))
    tasks = plural(len(recording.tasks), "task")
    return page.render_page(
        kind="Windtunnel placement report",
        title=str(result["name"]),
        lead=result.get("description"),
        facts=[
            tasks_arrived(result),
            f"{plural(placed['nodes'], 'node')}, {plural(placed['gpus'], 'GPU')}",
            f"policy {placed['policy']}",
            "inflation" if report.inflates else "replay",
            f"seed {result['seed']}",
        ],
        sections=[section(report) for section in SECTIONS],
        script="placement.js",
        charts=report.charts,
        footer=[
            page.versions_line(result["versions"]),
            f"placement engine · seed {result['seed']} · {tasks} in the first run · "
            "the same scenario and seed give the same result",
        ],
    )


def _answer(report: PlacementReport) -> Markup:
    targets = report.result["targets"]
    return page.answer(overall_status(targets), verdict(targets), [target_line(target) for target in targets])


def _key_figures(report: PlacementReport) -> Markup:
    times = None
    if not report.inflates:
        rows = [
            [METRICS[metric], *(quantity(report.result[f"{metric}_s"][name]["value"], "s") for name in STATISTICS)]
            for metric in ("latency", "waiting")
        ]
        times = page.table("All tasks", ["Metric", *STATISTICS], rows)
    notes = page.notes(list(report.result.get("notes") or ()))
    return page.section("figures", "Key figures", page.tiles(_tiles(report)), times, notes)


def _tiles(report: PlacementReport) -> list[Tile]:
    placed, jobs, runs = report.placement, report.result["jobs"], report.placement["runs"]
    when = f"at {share(placed['arrived_demand'])} arrived demand" if report.inflates else "mean over the run"

    def with_interval(key: str) -> str:
        between = share_interval(placed[key])
        return f"95% CI {between}" if between else when

    items = [
        Tile("GPU allocation", share(placed["gpu_allocation"]["value"]), with_interval("gpu_allocation")),
        Tile("GPU fragmentation", share(placed["fragmentation"]["value"]), with_interval("fragmentation")),
        Tile("Fragmentation rate", share(placed["fragmentation_rate"]["value"]), f"of unallocated GPUs, {when}"),
    ]
    if report.inflates:
        running, arrived, dropped = (f"{jobs[key] / runs:,.0f}" for key in ("running", "arrived", "dropped"))
        over_runs = f", mean of {runs} runs" if runs > 1 else ""
        return [*items, Tile("Tasks placed", running, f"of {arrived}; {dropped} dropped{over_runs}")]
    waiting = report.result["waiting_s"]
    p99 = quantity(waiting["p99"]["value"], "s")
    return [
        *items,
        Tile("Tasks completed", f"{jobs['completed']:,}", f"of {jobs['arrived']:,}"),
        Tile("Demand", share(placed["demand"]["value"]), f"maximum {share(placed['peak_demand'])}"),
        Tile("Queueing delay, mean", quantity(waiting["mean"]["value"], "s"), f"p99 {p99}"),
    ]


def _charts(placed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the script draws: shares of GPU capacity, with confidence intervals if there are several runs."""
    rows, inflates = placed["series"], placed["mode"] == "inflate"
    without_departures = "" if inflates else ", without departures"
    drawn: dict[str, Any] = {}
    if not inflates:
        spans = placed["over_time"]
        # Fragmentation has its own chart, because in an idle cluster it is far larger than the demand. The demand is a
        # wide band behind the allocation, since the two are mostly equal.
        for chart, title, curves in (
            ("time", "Demand and allocated GPUs over time", ("demand", "allocated")),
            ("fragmented", "Fragmented GPUs over time", ("fragmented",)),
        ):
            drawn[chart] = {
                "title": title,
                "label": f"{title}, as a share of GPU capacity.",
                "time": True,
                "x": [span["time_s"] for span in spans],
                "curves": [
                    {"name": key, "y": [_rounded(span[key]) for span in spans], "behind": key == "demand"}
                    for key in curves
                ],
            }
    if len(rows) < 2:
        return drawn
    for chart, title, keys in (
        ("shares", "Allocated and fragmented GPUs", ("allocated", "fragmented")),
        ("rate", "Fragmentation rate", ("fragmentation_rate",)),
    ):
        heading = f"{title} against arrived demand{without_departures}"
        drawn[chart] = {
            "title": heading,
            "label": f"{heading}.",
            "time": False,
            "x": [row["demand"] for row in rows],
            "curves": [_curve(rows, key) for key in keys],
        }
    return drawn


def _curve(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    def column(part: str) -> list[float | None]:
        return [_rounded(row[key][part]) for row in rows]

    ends = {part: column(part) for part in ("low", "high")} if rows[-1][key]["low"] is not None else {}
    return {"name": key.replace("_", " "), "y": column("value"), **ends}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _curves(report: PlacementReport) -> Markup:
    figures = []
    for i, (name, chart) in enumerate(report.charts.items()):
        legend = [
            LegendItem(curve["name"], line=str(k + 1), style=_line_style(chart, curve), series=k + 1)
            for k, curve in enumerate(chart["curves"])
        ]
        figures.append(page.figure(name, chart["title"], chart["label"], legend, tall=i == 0, live=name))
    return page.section(
        "curves",
        "Allocation and fragmentation",
        page.no_script("The curves need JavaScript; result.json contains every point of them."),
        *figures,
        _demand_table(report),
    )


def _line_style(chart: Mapping[str, Any], curve: Mapping[str, Any]) -> str:
    if not chart["time"]:
        return ""
    return "stroke-dasharray: none" + ("; stroke-width: 6; opacity: .35" if curve.get("behind") else "")


def _demand_table(report: PlacementReport) -> Markup | None:
    series = report.placement["series"]
    if len(series) < 2:
        return None
    rows: list[list[str | Cell]] = [
        [
            share(row["demand"]),
            *(Cell(share(row[key]["value"]), share_interval(row[key])) for key in ("allocated", "fragmented")),
            share(row["fragmentation_rate"]["value"]),
        ]
        for i, row in enumerate(series)
        if i % 10 == 0 or i == len(series) - 1
    ]
    without_departures = "" if report.inflates else ", without departures"
    caption = f"By arrived demand{without_departures}, as shares of GPU capacity, with 95% confidence intervals"
    if report.placement["runs"] == 1:
        caption = caption.removesuffix(", with 95% confidence intervals")
    return page.table(caption, ["Arrived demand", "Allocated", "Fragmented", "Fragmentation rate"], rows)


def _tables(report: PlacementReport) -> Markup:
    devices = report.result["devices"]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for device in devices:
        groups.setdefault(str(device["sku"]), []).append(device)
    models: list[list[str]] = []
    for sku, members in groups.items():
        weights = [max(device["gpus"], 1) for device in members]
        used = sum(device["utilisation"] * w for device, w in zip(members, weights, strict=True)) / sum(weights)
        gpus, tasks = (sum(device[key] for device in members) for key in ("gpus", "jobs"))
        models.append([sku, f"{len(members):,}", f"{gpus:,}", share(used), f"{tasks:,}"])
    order = sorted(range(len(devices)), key=lambda i: (-devices[i]["utilisation"], i))[:_MAX_NODES]
    nodes = [
        [
            str(devices[i]["name"]),
            str(devices[i]["sku"]),
            f"{devices[i]['gpus']}",
            share(devices[i]["utilisation"]),
            f"{devices[i]['jobs']:,}",
        ]
        for i in order
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
    return page.scenario(report.result["scenario"])


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
