"""What placement runs are summed up in. Defined in docs/placement.md; times and intervals as in docs/metrics.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.core.result import COMPLETED, STATUS
from windtunnel.engine.results.statistics import Estimate, estimate_values, over_replications
from windtunnel.placement.nodes import MILLI, FloatArray, IntArray
from windtunnel.placement.recording import NANO, PlacementRecording
from windtunnel.placement.tasks import Placing
from windtunnel.scenario.judging import judge
from windtunnel.scenario.target import Target

_ORDER = ("arrived", "completed", "dropped", "failed", "running", "queued")
_BINS = 240
_STEPS_PER_CAPACITY = 100
_STEPS = 500


@dataclass(frozen=True)
class NodePower:
    """What one GPU of a node draws idle and at most (W), and rents for (USD/s); None where it is not known."""

    sku: str | None
    idle_w: float | None
    limit_w: float | None
    price_usd_per_s: float | None


def summarise_placing(
    placing: Placing,
    recordings: Sequence[PlacementRecording],
    held: Sequence[PlacementRecording],
    power: Sequence[NodePower],
    targets: Sequence[Target],
    policy: str,
    ties: str,
) -> dict[str, Any]:
    """The measured part of result.json. Of several runs: counts are totals, values means, intervals between them.

    ``held``: each replay's tasks if none left, which is where a replay's figures against arrived demand come from.
    """
    runs = [_one(placing, recording, power) for recording in recordings]
    result = dict(runs[0])
    if len(runs) > 1:
        result["jobs"] = {name: sum(run["jobs"][name] for run in runs) for name in _ORDER}
        for key in ("latency_s", "waiting_s"):
            result[key] = _merged([run[key] for run in runs])
        for key in (
            "simulated_s",
            "throughput_per_s",
            "utilisation",
            "energy_j",
            "average_power_w",
            "peak_power_w",
            "cost_usd",
        ):
            numbers = [run[key] for run in runs if run[key] is not None]
            result[key] = float(np.mean(numbers)) if numbers else None
        result["workloads"] = [
            {
                "name": workload["name"],
                "jobs": {name: sum(run["workloads"][i]["jobs"][name] for run in runs) for name in _ORDER},
                **{key: _merged([run["workloads"][i][key] for run in runs]) for key in ("latency_s", "waiting_s")},
            }
            for i, workload in enumerate(runs[0]["workloads"])
        ]
    result["placement"] = {
        "policy": policy,
        "ties": ties,
        "mode": recordings[0].mode,
        "runs": len(recordings),
        "nodes": len(placing.nodes.cpu),
        "gpus": int(placing.nodes.gpus.sum()),
        "classes": len(placing.classes.cpu),
        "target": {"classes": len(placing.target.weight), "share": placing.covered},
        **_placement(recordings, held),
    }
    result["targets"] = [judge(target, result) for target in targets]
    return result


def _one(placing: Placing, recording: PlacementRecording, power: Sequence[NodePower]) -> dict[str, Any]:
    tasks = recording.tasks
    timed = recording.mode == "replay"
    span_s = recording.end / NANO if timed else None
    whole = _times(recording, np.ones(len(tasks), dtype=bool))
    devices, peak_w = _devices(placing, recording, power)
    energies = [device["energy_j"] for device in devices]
    energy = float(sum(energies)) if timed and None not in energies else None
    prices = [p.price_usd_per_s for p, g in zip(power, recording.gpus.tolist(), strict=True) if g]
    rate = None
    if prices and None not in prices:
        rate = sum(g * (p.price_usd_per_s or 0.0) for p, g in zip(power, recording.gpus.tolist(), strict=True) if g)
    completed = whole["jobs"]["completed"]
    return {
        "simulated_s": span_s,
        **whole,
        "throughput_per_s": completed / span_s if span_s else None,
        "serving": None,
        "workloads": [
            {"name": name, **_times(recording, tasks.workload == i)} for i, name in enumerate(recording.workloads)
        ],
        "devices": devices,
        "utilisation": float(np.mean([device["utilisation"] for device in devices])),
        "energy_j": energy,
        "average_power_w": energy / span_s if energy is not None and span_s else None,
        "peak_power_w": peak_w if energy is not None else None,
        "cost_usd": rate * span_s if rate is not None and span_s else None,
        "cost_usd_per_h": None if rate is None else rate * 3600,
    }


def _times(recording: PlacementRecording, mine: np.ndarray) -> dict[str, Any]:
    tasks = recording.tasks
    status = np.bincount(tasks.status[mine], minlength=5)
    counts = {"arrived": int(mine.sum())} | {name: int(status[code]) for code, name in enumerate(STATUS)}
    timed = recording.mode == "replay"
    done = mine & (tasks.status == COMPLETED) & timed
    started = mine & (tasks.started >= 0) & timed
    return {
        "jobs": {name: counts[name] for name in _ORDER},
        "latency_s": _dicts(estimate_values((tasks.finish[done] - tasks.arrival[done]) / NANO)),
        "waiting_s": _dicts(estimate_values((tasks.start[started] - tasks.arrival[started]) / NANO)),
    }


def _dicts(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {name: estimate.as_dict() for name, estimate in estimates.items()}


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: over_replications([part[name]["value"] for part in parts]).as_dict() for name in parts[0]}


def _devices(
    placing: Placing, recording: PlacementRecording, power: Sequence[NodePower]
) -> tuple[list[dict[str, Any]], float | None]:
    """Every node, and the peak of all their GPUs' power."""
    tasks, nodes = recording.tasks, placing.nodes
    started = np.flatnonzero(tasks.started >= 0)
    node = tasks.node[started]
    timed = recording.mode == "replay"
    until = np.where(tasks.finish[started] >= 0, tasks.finish[started], recording.end)
    held_s = (until - tasks.start[started]) / NANO if timed else np.ones(len(started))
    gpu = (tasks.gpus * tasks.milli)[started] / MILLI
    span = recording.end / NANO if timed else 1.0
    size = len(nodes.cpu)
    gpu_s = np.bincount(node, gpu * held_s, size)
    core_s = np.bincount(node, tasks.cpu[started] * held_s, size)
    count = np.bincount(node, minlength=size)
    devices = []
    for n, (name, one) in enumerate(zip(nodes.names, power, strict=True)):
        gpus = int(nodes.gpus[n])
        full = gpus * span if gpus else float(nodes.cpu[n]) * span
        energy: float | None = None
        if timed and gpus == 0:
            energy = 0.0
        elif timed and one.idle_w is not None and one.limit_w is not None:
            energy = gpus * one.idle_w * span + (one.limit_w - one.idle_w) * float(gpu_s[n])
        devices.append(
            {
                "name": name,
                "sku": one.sku or recording.models[n] or "cpu",
                "kind": "node",
                "gpus": gpus,
                "utilisation": float((gpu_s if gpus else core_s)[n] / full) if full else 0.0,
                "energy_j": energy,
                "jobs": int(count[n]),
            }
        )
    if not timed or any(d["energy_j"] is None for d in devices):
        return devices, None
    above = np.array(
        [(p.limit_w or 0.0) - (p.idle_w or 0.0) if g else 0.0 for p, g in zip(power, nodes.gpus, strict=True)]
    )
    idle = sum((p.idle_w or 0.0) * int(g) for p, g in zip(power, nodes.gpus, strict=True))
    watts = gpu * above[node]
    ticks = np.concatenate([tasks.start[started], until])
    order = np.argsort(ticks, kind="stable")
    sums = np.cumsum(np.concatenate([watts, -watts])[order])
    settled = np.append(np.diff(ticks[order]) > 0, True)
    return devices, float(idle + max(0.0, float(sums[settled].max(initial=0.0))))


def _placement(recordings: Sequence[PlacementRecording], held: Sequence[PlacementRecording]) -> dict[str, Any]:
    if recordings[0].mode == "inflate":
        return _against_demand(recordings)
    shares = [_over_time(recording) for recording in recordings]
    found: dict[str, Any] = {}
    for key in ("demand", "gpu_allocation", "fragmentation", "fragmentation_rate"):
        found[key] = over_replications([share[key] for share in shares]).as_dict()
    capacity = max(recordings[0].capacity, 1)
    found["peak_demand"] = max(int(r.course.demand.max()) for r in recordings) / capacity
    found["peak_allocation"] = max(int(r.course.allocated.max()) for r in recordings) / capacity
    found["arrived_demand"] = shares[0]["arrived_demand"]
    found["series"] = _against_demand(held, 2.0)["series"] if recordings[0].capacity else []
    found["over_time"] = _series_over_time(recordings[0])
    return found


def _against_demand(recordings: Sequence[PlacementRecording], most: float = math.inf) -> dict[str, Any]:
    """Allocation and fragmentation at each hundredth of arrived demand (up to ``most``), over the runs.

    Beyond five times the capacity the steps are wider, 500 in all.
    """
    capacity = recordings[0].capacity
    most = min(most, min(int(r.course.demand[-1]) for r in recordings) / max(capacity, 1))
    step = max(1, math.ceil(most * _STEPS_PER_CAPACITY / _STEPS))
    grid = np.arange(0, int(most * _STEPS_PER_CAPACITY + 1e-9) + 1, step) / _STEPS_PER_CAPACITY
    rows = []
    for demand in [*grid.tolist(), None]:
        shares = [_state(recording, demand) for recording in recordings]
        row: dict[str, Any] = {"demand": demand}
        for i, key in enumerate(("allocated", "fragmented", "fragmentation_rate")):
            row[key] = over_replications([share[i] for share in shares]).as_dict()
        rows.append(row)
    last = rows.pop()
    reached = [int(r.course.demand[-1]) / capacity for r in recordings]
    return {
        "demand": over_replications(reached).as_dict(),
        "arrived_demand": float(np.mean(reached)),
        "gpu_allocation": last["allocated"],
        "fragmentation": last["fragmented"],
        "fragmentation_rate": last["fragmentation_rate"],
        "series": rows,
    }


def _state(recording: PlacementRecording, demand: float | None) -> tuple[float, float, float | None]:
    """Allocated and fragmented shares of the capacity once no more than ``demand`` has arrived (None: at the end)."""
    course, capacity = recording.course, recording.capacity
    at = len(course.tick) - 1
    if demand is not None:
        at = int(np.searchsorted(course.demand, round(demand * capacity), side="right")) - 1
    allocated, fragmented = int(course.allocated[at]), int(course.fragmented[at]) / course.weight
    idle = capacity - allocated
    return allocated / capacity, fragmented / capacity, fragmented / idle if idle else None


def _over_time(recording: PlacementRecording) -> dict[str, float | None]:
    course, capacity = recording.course, max(recording.capacity, 1)
    arrived = int((recording.tasks.gpus * recording.tasks.milli).sum()) / capacity
    mean = _averager(course.tick, recording.end)
    allocated = mean(course.allocated) / capacity
    fragmented = mean(course.fragmented) / course.weight / capacity
    return {
        "demand": mean(course.demand) / capacity,
        "gpu_allocation": allocated,
        "fragmentation": fragmented,
        "fragmentation_rate": fragmented / (1 - allocated) if allocated < 1 else None,
        "arrived_demand": arrived,
    }


def _averager(tick: IntArray, end: int) -> Callable[[IntArray], float]:
    widths = np.diff(np.append(tick, max(end, int(tick[-1])))).astype(np.float64)

    def mean(values: IntArray) -> float:
        return float(np.dot(widths, values) / widths.sum()) if widths.sum() else float(values[-1])

    return mean


def _series_over_time(recording: PlacementRecording) -> list[dict[str, float | None]]:
    """Time averages over equal spans of the run; ``arrived`` is everything that has come by a span's end."""
    course, capacity = recording.course, max(recording.capacity, 1)
    edges = np.linspace(0, recording.end, _BINS + 1)
    corners = np.append(course.tick, max(recording.end, int(course.tick[-1]))).astype(np.float64)
    width = max(recording.end / _BINS, 1e-300)

    def binned(values: IntArray) -> FloatArray:
        area = np.concatenate([[0.0], np.cumsum(np.diff(corners) * values)])
        found: FloatArray = np.diff(np.interp(edges, corners, area)) / width
        return found

    demand, allocated = binned(course.demand) / capacity, binned(course.allocated) / capacity
    fragmented, waiting = binned(course.fragmented) / course.weight / capacity, binned(course.waiting)
    each = np.concatenate([[0], np.cumsum(recording.tasks.gpus * recording.tasks.milli)])
    arrived = each[np.searchsorted(recording.tasks.arrival, edges[1:], side="right")] / capacity
    return [
        {
            "time_s": float(edges[i] / NANO),
            "demand": float(demand[i]),
            "arrived": float(arrived[i]),
            "allocated": float(allocated[i]),
            "fragmented": float(fragmented[i]),
            "fragmentation_rate": float(fragmented[i] / (1 - allocated[i])) if allocated[i] < 1 else None,
            "waiting": float(waiting[i]),
        }
        for i in range(_BINS)
    ]
