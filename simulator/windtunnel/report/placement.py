"""A placement run as a terminal summary, as a table of tasks, and as a timeline."""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from windtunnel.core.csvfile import write_table
from windtunnel.core.recording import STATUS
from windtunnel.core.results.placement import Placement, PlacementResult, ReplayPlacement
from windtunnel.placement.recording import NANO, PlacementRecording
from windtunnel.report.numbers import (
    NOTHING,
    exact_quantity,
    interval,
    number,
    plural,
    printable,
    quantity,
    share,
    share_interval,
)
from windtunnel.report.run_text import STATISTICS, unfinished
from windtunnel.report.targets import verdict_lines
from windtunnel.report.text import document, labelled, labelled_rows, labelled_table

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
"""The columns of jobs.csv. Times are empty for an inflation, which has no time."""

_FIELDS = ("workload", "node", "gpu_mask", "status", "arrival", "start", "finish", "gpus", "milli", "cpu", "memory")
_TIES = {
    "first": "the first of equal nodes",
    "shuffled": "the first of equal nodes in an order drawn once per run",
    "random": "a random one of equal nodes",
}
_MAX_SLICES = 200_000
_POINTS = 50_000
_DEMANDS = (0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2)
"""Arrived demand, over the cluster's GPU capacity, for which the summary shows a row."""


def placement_summary(result: PlacementResult) -> str:
    """Return the result of a placement run as aligned lines of plain text."""
    placed = result.placement
    span = "" if result.simulated_s is None else f" over {_span(result.simulated_s)}"
    lines = [
        *verdict_lines(result.targets),
        "",
        printable(
            f"{result.name}: {tasks_arrived(result)}{span} on {plural(placed.nodes, 'node')} with "
            f"{plural(placed.gpus, 'GPU')}, seed {result.seed}, placement engine"
        ),
        "",
        *labelled("policy", f"{placed.policy}, {_TIES[placed.ties]}"),
        *labelled("tasks", _outcomes(result)),
    ]
    if isinstance(placed, ReplayPlacement):
        lines += _over_time(result, placed)
        if len(placed.series) > 1:
            lines += [*labelled("", "without departures:"), *_by_demand(placed)]
    else:
        lines += _by_demand(placed)
    target = placed.target
    mix = f"the {target.classes} most frequent classes, {share(target.share)} of all tasks"
    lines += labelled("target mix", mix)
    if result.cost_usd_per_h is not None:
        lines += labelled("cost", f"{result.cost_usd_per_h:,.2f} USD per hour")
    for note in result.notes:
        lines += labelled("note", note)
    return document(lines)


def _span(seconds: float) -> str:
    return f"{number(seconds / 86_400)} days" if seconds >= 2 * 86_400 else exact_quantity(seconds, "s")


def tasks_arrived(result: PlacementResult) -> str:
    """Return how many tasks arrived; for several runs, the mean over the runs."""
    runs, arrived = result.placement.runs, result.jobs.arrived
    return f"{runs} runs of {arrived / runs:,.0f} tasks on average" if runs > 1 else plural(arrived, "task")


def _outcomes(result: PlacementResult) -> str:
    """Return how many tasks were placed or completed. Job counts are sums over the runs; their means are shown."""
    jobs, runs = result.jobs, result.placement.runs
    if isinstance(result.placement, ReplayPlacement):
        return ", ".join([f"{jobs.completed:,} of {jobs.arrived:,} completed", *unfinished(jobs)])
    running, arrived, dropped = (f"{count / runs:,.0f}" for count in (jobs.running, jobs.arrived, jobs.dropped))
    return f"{running} of {arrived} placed, {dropped} dropped{' (mean over the runs)' if runs > 1 else ''}"


def _by_demand(placed: Placement) -> list[str]:
    rows = [["arrived demand", "allocated", "95% CI", "fragmented", "95% CI", "fragmentation rate"]]
    chosen = [row for row in placed.series[:-1] if any(abs(row.demand - demand) < 1e-9 for demand in _DEMANDS)]
    rows += [
        [
            f"{row.demand:.0%}",
            share(row.allocated.value),
            share_interval(row.allocated),
            share(row.fragmented.value),
            share_interval(row.fragmented),
            share(row.fragmentation_rate.value),
        ]
        for row in [*chosen, placed.series[-1]]
    ]
    if not any(row[2] or row[4] for row in rows[1:]):  # one run has no confidence intervals
        rows = [[*row[:2], row[3], row[5]] for row in rows]
    return labelled_table("GPU capacity", rows)


def _over_time(result: PlacementResult, placed: ReplayPlacement) -> list[str]:
    mean_demand, peak_demand = share(placed.demand.value), share(placed.peak_demand)
    allocated, peak = share(placed.gpu_allocation.value), share(placed.peak_allocation)
    fragmented, rate = share(placed.fragmentation.value), share(placed.fragmentation_rate.value)
    all_tasks = f"all tasks together request {share(placed.arrived_demand)}"
    rows = [["", *STATISTICS, "95% CI of p99"]]
    for metric, timed in (("latency", result.latency_s), ("waiting", result.waiting_s)):
        rows.append([metric, *(quantity(timed.of(name).value, "s") for name in STATISTICS), interval(timed.p99)])
    power = NOTHING
    if result.energy_j is not None:
        average, highest = quantity(result.average_power_w, "W"), quantity(result.peak_power_w, "W")
        power = f"{average} average, {highest} peak (GPUs)"
    return [
        *labelled("demand", f"mean {mean_demand} of GPU capacity, maximum {peak_demand}; {all_tasks}"),
        *labelled("allocation", f"mean {allocated} of GPU capacity, maximum {peak}"),
        *labelled("fragmentation", f"mean {fragmented} of GPU capacity, {rate} of unallocated GPUs"),
        *labelled_rows(rows),
        *labelled("power", power),
    ]


def write_tasks(path: Path, recording: PlacementRecording, rows: npt.NDArray[np.int64] | None = None) -> None:
    """Write one row for each task (or for those whose indices are in ``rows``, a sample): CSV, or Parquet by its name.

    Times are decimal seconds, converted exactly from integer nanoseconds.

    Raises:
        InputError: The file cannot be written, or pyarrow, which writes Parquet, is not installed.
    """
    texts = dict.fromkeys(("name", "workload", "device", "gpu_indices", "status"), "string")
    write_table(path, COLUMNS, _task_rows(recording, rows), texts)


def _task_rows(recording: PlacementRecording, rows: npt.NDArray[np.int64] | None) -> Iterator[list[str | int]]:
    tasks = recording.tasks
    timed = recording.mode == "replay"
    chosen = np.arange(len(tasks)) if rows is None else rows
    columns = [chosen.tolist(), *(getattr(tasks, name)[chosen].tolist() for name in _FIELDS)]
    for i, workload, node, mask, status, arrival, start, finish, gpus, milli, cpu, memory in zip(*columns, strict=True):
        times = ["", "", "", "", ""]
        if timed:
            times = [
                _seconds(arrival),
                _seconds(start),
                _seconds(finish),
                _seconds(start - arrival if start >= 0 else -1),
                _seconds(finish - arrival if finish >= 0 else -1),
            ]
        yield [
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


def _seconds(ticks: int) -> str:
    if ticks < 0:
        return ""
    return f"{ticks // NANO}.{ticks % NANO:09d}".rstrip("0").rstrip(".")


def write_trace(path: Path, recording: PlacementRecording, *, name: str) -> None:
    """Write the run as gzipped Trace Event JSON for ui.perfetto.dev; the same recording gives the same bytes.

    Each node is a process, and each of its tasks that run at the same time is on its own thread. An inflation has no
    time: one microsecond represents one arrived task, and the file contains only counters.
    """
    about: dict[str, object] = {
        "title": f"Windtunnel: {name}",
        "tasks": len(recording.tasks),
        "nodes": len(recording.nodes),
    }
    if len(recording.tasks) > _MAX_SLICES:
        about["sample"] = (
            f"The slices show the first {_MAX_SLICES} tasks that started; nodes may be busy where no slice is shown."
        )
    if recording.mode == "inflate":
        about["time"] = "one microsecond represents one arrived task"
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write(b'{"displayTimeUnit":"ms","otherData":' + json.dumps(about).encode() + b',"traceEvents":[\n')
        for i, event in enumerate(_events(recording)):
            file.write(((",\n" if i else "") + event).encode())
        file.write(b"\n]}\n")


def _events(recording: PlacementRecording) -> Iterator[str]:
    per_tick = 1 if recording.mode == "inflate" else 1e-3
    timeline, capacity = recording.timeline, max(recording.capacity, 1)
    step = max(1, len(timeline.tick) // _POINTS)
    yield _json({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "cluster"}})
    for k in [*range(0, len(timeline.tick) - 1, step), len(timeline.tick) - 1]:
        at = int(timeline.tick[k]) * per_tick
        fragmented = int(timeline.fragmented[k]) / timeline.weight
        for label, value in (
            ("demand", timeline.demand[k] / capacity),
            ("allocated", timeline.allocated[k] / capacity),
            ("fragmented", fragmented / capacity),
            ("waiting", int(timeline.waiting[k])),
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


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
