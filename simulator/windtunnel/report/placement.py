"""A placement run for a terminal, as a table of tasks, and as a timeline."""

from __future__ import annotations

import csv
import gzip
import heapq
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.result import STATUS
from windtunnel.placement.recording import NANO, PlacementRecording
from windtunnel.report.words import (
    NOTHING,
    badge,
    interval,
    number,
    plural,
    printable,
    quantity,
    share,
    stated,
    target_line,
    unfinished,
    verdict,
)

COLUMNS = (
    "job",
    "name",
    "workload",
    "device",
    "gpu_indices",
    "status",
    "arrival_s",
    "start_s",
    "finish_s",
    "waiting_s",
    "latency_s",
    "gpus",
    "gpu_milli",
    "cpu_milli",
    "memory_bytes",
)
"""Of jobs.csv. Times are empty when inflating, where there is none."""

_FIELDS = ("workload", "node", "gpu_mask", "status", "arrival", "start", "finish", "gpus", "milli", "cpu", "memory")
_MARGIN = 15
_WIDTH = 110
_TIES = {
    "first": "the first of equals",
    "shuffled": "the first of equals in an order drawn once a run",
    "random": "any of equals",
}
_MAX_SLICES = 200_000
_POINTS = 50_000


def placement_summary(result: Mapping[str, Any]) -> str:
    """``result`` (the content of result.json of a placement run) as aligned lines of plain text."""
    placed = result["placement"]
    inflate = placed["mode"] == "inflate"
    span = "" if inflate else f" over {_span(result['simulated_s'])}"
    lines = [
        printable(
            f"{result['name']}: {tasks_arrived(result)}{span} on {plural(placed['nodes'], 'node')} with "
            f"{plural(placed['gpus'], 'GPU')}, seed {result['seed']}, placement engine"
        ),
        "",
        printable(verdict(result["targets"]) + ("" if result["targets"] else "; nothing to meet or miss")),
    ]
    lines += [
        f"  {badge(target):<8}{printable(target.text)}   {target.measured}   {target.margin}"
        for target in map(target_line, result["targets"])
    ]
    lines += ["", _row("policy", f"{placed['policy']}, {_TIES[placed['ties']]}")]
    lines.append(_row("tasks", _became(result)))
    if inflate:
        lines += _against_demand(placed)
    else:
        lines += _over_time(result, placed)
        if len(placed["series"]) > 1:
            lines += [_row("", "if none of the tasks left:"), *_against_demand(placed)]
    lines.append(
        _row(
            "target mix",
            f"the {placed['target']['classes']} most frequent classes, {share(placed['target']['share'])} of all tasks",
        )
    )
    if result["cost_usd_per_h"] is not None:
        lines.append(_row("cost", f"{result['cost_usd_per_h']:,.2f} USD an hour"))
    for note in result.get("notes") or ():
        for i, line in enumerate(wrap(printable(str(note)), width=_WIDTH - _MARGIN)):
            lines.append(_row("note" if i == 0 else "", line))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _span(seconds: float) -> str:
    return f"{number(seconds / 86_400)} days" if seconds >= 2 * 86_400 else stated(seconds, "s")


def tasks_arrived(result: Mapping[str, Any]) -> str:
    """How many tasks arrived, in the mean of a run where there are several."""
    runs, arrived = result["placement"]["runs"], result["jobs"]["arrived"]
    return f"{runs} runs of {arrived / runs:,.0f} tasks on average" if runs > 1 else plural(arrived, "task")


def _became(result: Mapping[str, Any]) -> str:
    """What became of the tasks; job counts are sums over the runs, and means of them are what is shown."""
    placed, jobs = result["placement"], result["jobs"]
    if placed["mode"] != "inflate":
        return ", ".join([f"{jobs['completed']:,} of {jobs['arrived']:,} completed", *unfinished(jobs)]).replace(
            "dropped", "had no room"
        )
    runs = placed["runs"]
    running, arrived, dropped = (f"{jobs[key] / runs:,.0f}" for key in ("running", "arrived", "dropped"))
    return f"{running} of {arrived} placed, {dropped} had no room{', in the mean of the runs' if runs > 1 else ''}"


def _row(label: str, text: str) -> str:
    return f"{label:<{_MARGIN}}{text}"


def _against_demand(placed: Mapping[str, Any]) -> list[str]:
    rows = [["arrived", "allocated", "95% interval", "fragmented", "95% interval", "of what is idle"]]
    series = placed["series"]
    wanted = [0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2]
    chosen = [row for row in series[:-1] if any(abs(row["demand"] - mark) < 1e-9 for mark in wanted)] + [series[-1]]
    for row in chosen:
        a, f = row["allocated"], row["fragmented"]
        rows.append(
            [
                f"{row['demand']:.0%}",
                share(a["value"]),
                _between(a),
                share(f["value"]),
                _between(f),
                share(row["fragmentation_rate"]["value"]),
            ]
        )
    if not any(row[2] or row[4] for row in rows[1:]):  # one run has no intervals
        rows = [[*row[:2], row[3], row[5]] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _row("of capacity" if i == 0 else "", "  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)))
        for i, row in enumerate(rows)
    ]


def _between(estimate: Mapping[str, float | None]) -> str:
    low, high = estimate["low"], estimate["high"]
    return "" if low is None or high is None else f"{share(low)} to {share(high)}"


def _over_time(result: Mapping[str, Any], placed: Mapping[str, Any]) -> list[str]:
    lines = []
    for label, key, peak in (
        ("demand", "demand", "peak_demand"),
        ("allocation", "gpu_allocation", "peak_allocation"),
        ("fragmentation", "fragmentation", None),
    ):
        text = f"{share(placed[key]['value'])} of GPU capacity on average"
        if peak is not None:
            text += f", {share(placed[peak])} at most"
        else:
            text += f", {share(placed['fragmentation_rate']['value'])} of what is idle"
        lines.append(_row(label, text))
    lines[0] += f"; all tasks together ask for {share(placed['arrived_demand'])}"
    lines.append(_row("", "  ".join(f"{name:>9}" for name in ("mean", "p50", "p95", "p99")) + "   95% interval of p99"))
    for name in ("latency", "waiting"):
        timed = result[f"{name}_s"]
        cells = "  ".join(f"{quantity(timed[s]['value'], 's'):>9}" for s in ("mean", "p50", "p95", "p99"))
        lines.append(_row(name, f"{cells}   {interval(timed['p99'])}"))
    power = NOTHING
    if result["energy_j"] is not None:
        power = (
            f"{quantity(result['average_power_w'], 'W')} average, {quantity(result['peak_power_w'], 'W')} peak (GPUs)"
        )
    lines.append(_row("power", power))
    return lines


def write_tasks_csv(path: Path, recording: PlacementRecording, rows: npt.NDArray[np.int64] | None = None) -> None:
    """Every task (or those whose indices are in ``rows``, a sample), one row each.

    Times are decimal seconds made from integer nanoseconds, never through a float.
    """
    tasks = recording.tasks
    timed = recording.mode == "replay"
    chosen = np.arange(len(tasks)) if rows is None else rows
    columns: list[list[Any]] = [chosen.tolist(), *(getattr(tasks, name)[chosen].tolist() for name in _FIELDS)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for i, workload, node, mask, status, arrival, start, finish, gpus, milli, cpu, memory in zip(
            *columns, strict=True
        ):
            times = ["", "", "", "", ""]
            if timed:
                times = [
                    _seconds(arrival),
                    _seconds(start),
                    _seconds(finish),
                    _seconds(start - arrival if start >= 0 else -1),
                    _seconds(finish - arrival if finish >= 0 else -1),
                ]
            writer.writerow(
                [
                    i,
                    tasks.names[i],
                    recording.workloads[workload],
                    recording.nodes[node] if node >= 0 else "",
                    " ".join(str(g) for g in range(mask.bit_length()) if mask >> g & 1),
                    STATUS[status],
                    *times,
                    gpus,
                    milli if gpus else 0,
                    cpu,
                    memory,
                ]
            )


def _seconds(ticks: int) -> str:
    if ticks < 0:
        return ""
    return f"{ticks // NANO}.{ticks % NANO:09d}".rstrip("0").rstrip(".")


def write_trace(path: Path, recording: PlacementRecording, *, name: str) -> None:
    """The run as gzipped Trace Event JSON for ui.perfetto.dev; the same recording gives the same bytes.

    A process a node, a thread for each task that runs beside others. When inflating there is no time: a microsecond
    stands for a task arrived, and only the counters are there.
    """
    about: dict[str, Any] = {
        "title": f"Windtunnel: {name}",
        "tasks": len(recording.tasks),
        "nodes": len(recording.nodes),
    }
    if len(recording.tasks) > _MAX_SLICES:
        about["sample"] = (
            f"The slices are the first {_MAX_SLICES} tasks to start: nodes may have worked where none are."
        )
    if recording.mode == "inflate":
        about["time"] = "one microsecond is one task arrived"
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write(b'{"displayTimeUnit":"ms","otherData":' + json.dumps(about).encode() + b',"traceEvents":[\n')
        for i, event in enumerate(_events(recording)):
            file.write(((",\n" if i else "") + event).encode())
        file.write(b"\n]}\n")


def _events(recording: PlacementRecording) -> Iterator[str]:
    per_tick = 1 if recording.mode == "inflate" else 1e-3
    course, capacity = recording.course, max(recording.capacity, 1)
    step = max(1, len(course.tick) // _POINTS)
    yield _json({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "cluster"}})
    for k in [*range(0, len(course.tick) - 1, step), len(course.tick) - 1]:
        at = int(course.tick[k]) * per_tick
        fragmented = int(course.fragmented[k]) / course.weight
        for label, value in (
            ("demand", course.demand[k] / capacity),
            ("allocated", course.allocated[k] / capacity),
            ("fragmented", fragmented / capacity),
            ("waiting", int(course.waiting[k])),
        ):
            yield _json({"ph": "C", "pid": 0, "name": label, "ts": at, "args": {label: float(value)}})
    if recording.mode == "inflate":
        return
    tasks = recording.tasks
    began = [i for i in sorted(range(len(tasks)), key=lambda i: int(tasks.started[i])) if tasks.started[i] >= 0]
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[int, int]]] = {}
    lanes: dict[int, int] = {}
    for i in began[:_MAX_SLICES]:
        node, start = int(tasks.node[i]), int(tasks.start[i])
        finish = int(tasks.finish[i]) if tasks.finish[i] >= 0 else recording.end
        if node not in lanes:
            lanes[node], free[node], busy[node] = 0, [], []
            label = f"{recording.nodes[node]} ({recording.gpus[node]} {recording.models[node]})"
            yield _json({"ph": "M", "pid": node + 1, "name": "process_name", "args": {"name": label}})
        while busy[node] and busy[node][0][0] <= start:
            heapq.heappush(free[node], heapq.heappop(busy[node])[1])
        if not free[node]:
            lanes[node] += 1
            free[node].append(lanes[node])
        lane = heapq.heappop(free[node])
        heapq.heappush(busy[node], (finish, lane))
        yield _json(
            {
                "ph": "X",
                "pid": node + 1,
                "tid": lane,
                "name": tasks.names[i],
                "ts": start * per_tick,
                "dur": (finish - start) * per_tick,
                "args": {"gpus": int(tasks.gpus[i]), "milli": int(tasks.milli[i])},
            }
        )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
