"""The report of a placement run: one HTML file that opens offline, with allocation and fragmentation as curves.

Its page may load nothing, as that of any other report (see ``html``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from windtunnel.placement.recording import PlacementRecording
from windtunnel.report import html, words
from windtunnel.report.placement import tasks_arrived

_MAX_NODES = 200

GLOSSARY = (
    (
        "Arrived demand",
        "GPUs asked for by tasks that have arrived (and, in a replay, not left), over the cluster's GPUs",
    ),
    ("Allocated", "GPUs that tasks hold, parts counted as parts, over the cluster's GPUs"),
    (
        "Fragmented",
        "idle GPU of no use to a task drawn from the target mix, in expectation, over the cluster's GPUs",
    ),
    ("Of what is idle", "the fragmented over the unallocated"),
    ("Target mix", "the most frequent classes of tasks, against which fragmentation is measured"),
    ("95% interval", "between independent runs (Student's t)"),
)


def render(result: Mapping[str, Any], recording: PlacementRecording) -> str:
    """The report as a complete HTML document. Names in ``result`` may hold anything: they are escaped."""
    placed = result["placement"]
    inflate = placed["mode"] == "inflate"
    charts = _charts(placed, inflate)
    scripts = {"uplot": html._vendored("uPlot.iife.min.js"), "app": html._template_text("placement.js")}
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {' '.join(html._hash(text) for text in scripts.values())}"
    )
    return (
        html._environment()
        .get_template("placement.html.j2")
        .render(
            policy=policy,
            scripts={name: Markup(text) for name, text in scripts.items()},  # noqa: S704 -- our own files
            styles=Markup(html._vendored("uPlot.min.css") + html._template_text("report.css")),  # noqa: S704 -- our own files
            data=html._embedded(charts),
            figures=charts,
            name=str(result["name"]),
            description=result.get("description"),
            ran=_ran(result),
            verdict=words.verdict(result["targets"]),
            state=html._state(result["targets"]),
            targets=[html._target(target) for target in result["targets"]],
            tiles=_tiles(result),
            rows=_table(placed) if len(placed["series"]) > 1 else [],
            inflate=inflate,
            times=[] if inflate else _times(result),
            models=_models(result["devices"]),
            nodes=_nodes(result["devices"]),
            total_nodes=len(result["devices"]),
            notes=list(result.get("notes") or ()),
            scenario=html._scenario(result["scenario"]),
            glossary=GLOSSARY,
            versions=result["versions"],
            seed=result["seed"],
            tasks=len(recording.tasks),
        )
    )


def _ran(result: Mapping[str, Any]) -> list[str]:
    placed = result["placement"]
    return [
        tasks_arrived(result),
        f"{words.plural(placed['nodes'], 'node')}, {words.plural(placed['gpus'], 'GPU')}",
        f"policy {placed['policy']}",
        "inflation" if placed["mode"] == "inflate" else "replay",
        f"seed {result['seed']}",
    ]


def _tiles(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    placed, jobs = result["placement"], result["jobs"]
    inflate = placed["mode"] == "inflate"
    runs = placed["runs"]
    of_runs = f", mean of {runs} runs" if runs > 1 else ""
    when = f"at {words.share(placed['arrived_demand'])} arrived demand" if inflate else "average over the time"
    tiles = [
        ("GPU allocated", words.share(placed["gpu_allocation"]["value"]), _interval(placed["gpu_allocation"]) or when),
        ("GPU fragmented", words.share(placed["fragmentation"]["value"]), _interval(placed["fragmentation"]) or when),
        ("Fragmented, of what is idle", words.share(placed["fragmentation_rate"]["value"]), when),
    ]
    if inflate:
        tiles.append(
            (
                "Tasks placed",
                f"{jobs['running'] / runs:,.0f}",
                f"of {jobs['arrived'] / runs:,.0f}; {jobs['dropped'] / runs:,.0f} had no room{of_runs}",
            )
        )
    else:
        tiles.append(("Tasks completed", f"{jobs['completed']:,}", f"of {jobs['arrived']:,}"))
        tiles.append(
            ("Demand", words.share(placed["demand"]["value"]), f"at most {words.share(placed['peak_demand'])}")
        )
        waited = result["waiting_s"]
        p99 = words.quantity(waited["p99"]["value"], "s")
        tiles.append(("Waiting, mean", words.quantity(waited["mean"]["value"], "s"), f"p99 {p99}"))
    return tiles


def _interval(estimate: Mapping[str, float | None]) -> str:
    low, high = estimate["low"], estimate["high"]
    return "" if low is None or high is None else f"95% interval {words.share(low)} to {words.share(high)}"


def _charts(placed: Mapping[str, Any], inflate: bool) -> dict[str, Any]:
    """What the script draws: shares of GPU capacity, each with its interval where there are several runs."""
    rows = placed["series"]
    staying = "" if inflate else ", if no task left"
    charts: dict[str, Any] = {}
    if not inflate:
        spans = placed["over_time"]
        # Apart: what is fragmented of an idle cluster dwarfs what is asked of it. Demand is a wide band behind what is
        # allocated of it, since the two are mostly the same.
        for chart, title, curves in (
            ("time", "Demand and allocated GPU over time", ("demand", "allocated")),
            ("fragmented", "Fragmented GPU over time", ("fragmented",)),
        ):
            charts[chart] = {
                "title": title,
                "label": f"Line chart of the {' and '.join(curves)} share of GPU capacity over time.",
                "time": True,
                "x": [span["time_s"] for span in spans],
                "curves": [
                    {"name": key, "y": [_short(span[key]) for span in spans], "behind": key == "demand"}
                    for key in curves
                ],
            }
    if len(rows) < 2:
        return charts
    charts["shares"] = {
        "title": f"Allocated and fragmented GPU against arrived demand{staying}",
        "label": f"Line chart of allocated and fragmented share of GPU capacity against arrived demand{staying}.",
        "time": False,
        "x": [row["demand"] for row in rows],
        "curves": [_curve(rows, "allocated", "allocated"), _curve(rows, "fragmented", "fragmented")],
    }
    charts["rate"] = {
        "title": f"Fragmented share of what is idle{staying}",
        "label": f"Line chart of the fragmented share of unallocated GPU against arrived demand{staying}.",
        "time": False,
        "x": [row["demand"] for row in rows],
        "curves": [_curve(rows, "fragmented, of what is idle", "fragmentation_rate")],
    }
    return charts


def _curve(rows: Sequence[Mapping[str, Any]], name: str, key: str) -> dict[str, Any]:
    def column(part: str) -> list[float | None]:
        return [_short(row[key][part]) for row in rows]

    several = rows[-1][key]["low"] is not None
    return {"name": name, "y": column("value"), **({part: column(part) for part in ("low", "high")} if several else {})}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _table(placed: Mapping[str, Any]) -> list[dict[str, str]]:
    rows = placed["series"]
    chosen = [row for i, row in enumerate(rows) if i % 10 == 0 or i == len(rows) - 1]
    return [
        {
            "demand": words.share(row["demand"]),
            "allocated": words.share(row["allocated"]["value"]),
            "allocated_interval": _interval(row["allocated"]),
            "fragmented": words.share(row["fragmented"]["value"]),
            "fragmented_interval": _interval(row["fragmented"]),
            "rate": words.share(row["fragmentation_rate"]["value"]),
        }
        for row in chosen
    ]


def _times(result: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    return [
        (name, [words.quantity(result[key][s]["value"], "s") for s in words.STATISTICS])
        for name, key in (("Latency", "latency_s"), ("Waiting", "waiting_s"))
    ]


def _models(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for device in devices:
        groups.setdefault(str(device["sku"]), []).append(device)
    return [
        {
            "sku": sku,
            "nodes": f"{len(members):,}",
            "gpus": f"{sum(d['gpus'] for d in members):,}",
            "utilisation": words.share(
                sum(d["utilisation"] * max(d["gpus"], 1) for d in members) / sum(max(d["gpus"], 1) for d in members)
            ),
            "tasks": f"{sum(d['jobs'] for d in members):,}",
        }
        for sku, members in groups.items()
    ]


def _nodes(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    order = sorted(range(len(devices)), key=lambda i: (-devices[i]["utilisation"], i))[:_MAX_NODES]
    return [
        {
            "name": str(devices[i]["name"]),
            "sku": str(devices[i]["sku"]),
            "gpus": f"{devices[i]['gpus']}",
            "utilisation": words.share(devices[i]["utilisation"]),
            "tasks": f"{devices[i]['jobs']:,}",
        }
        for i in order
    ]
