"""The metrics of placement runs, as docs/placement.md defines them. Times and intervals follow docs/metrics.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.core.recording import COMPLETED, STATUS
from windtunnel.core.results.run import Estimate
from windtunnel.engine.results.statistics import estimate_values, over_replications
from windtunnel.placement.nodes import MILLI, FloatArray, IntArray
from windtunnel.placement.recording import NANO, PlacementRecording
from windtunnel.placement.tasks import PlacementProblem
from windtunnel.scenario.judging import judge
from windtunnel.scenario.target import Target

_STATUSES = ("arrived", "completed", "dropped", "failed", "running", "queued")
_BINS = 240
_STEPS_PER_CAPACITY = 100
_STEPS = 500
_MEANS = ("simulated_s", "throughput_per_s", "utilisation", "energy_j", "average_power_w", "peak_power_w", "cost_usd")
_TIMES = ("latency_s", "waiting_s")


@dataclass(frozen=True)
class NodePower:
    """The idle power and the power limit (W) of one GPU of a node, and its rent (USD/s); None if unknown."""

    sku: str | None
    idle_w: float | None
    limit_w: float | None
    price_usd_per_s: float | None


def summarise_placement(
    problem: PlacementProblem,
    recordings: Sequence[PlacementRecording],
    filled: Sequence[PlacementRecording],
    power: Sequence[NodePower],
    targets: Sequence[Target],
    policy: str,
    ties: str,
) -> dict[str, Any]:
    """Return the measured part of result.json.

    Of several runs, job counts are sums, all other values are means, and intervals are between the runs. ``filled``
    are the runs of ``fill_without_departures``, from which the values of a replay against arrived demand come.
    """
    runs = [_single_run(problem, recording, power) for recording in recordings]
    result = dict(runs[0])
    if len(runs) > 1:
        result |= _merged_part(runs)
        for key in _MEANS:
            values = [run[key] for run in runs if run[key] is not None]
            result[key] = float(np.mean(values)) if values else None
        result["workloads"] = [
            {"name": workload["name"], **_merged_part([run["workloads"][i] for run in runs])}
            for i, workload in enumerate(runs[0]["workloads"])
        ]
    result["placement"] = {
        "policy": policy,
        "ties": ties,
        "mode": recordings[0].mode,
        "runs": len(recordings),
        "nodes": len(problem.nodes.cpu),
        "gpus": int(problem.nodes.gpus.sum()),
        "classes": len(problem.classes.cpu),
        "target": {"classes": len(problem.target.weight), "share": problem.covered},
        **_placement(recordings, filled),
    }
    result["targets"] = [judge(target, _measured(target, result)) for target in targets]
    return result


def _measured(target: Target, result: Mapping[str, Any]) -> Estimate:
    """Return the value (SI) that a target refers to; it is None if nothing was measured."""
    if target.is_distributed:
        return Estimate(**result[f"{target.metric}_s"][target.statistic])
    jobs, cost, placed = result["jobs"], result["cost_usd_per_h"], result["placement"]
    match target.metric:
        case "allocation":
            return Estimate(**placed["gpu_allocation"])
        case "fragmentation":
            return Estimate(**placed["fragmentation"])
        case "power":
            return Estimate(result[f"{target.statistic}_power_w"])
        case "cost":
            return Estimate(None if cost is None else cost / 3600.0)
        case "completed":
            return Estimate(jobs["completed"] / jobs["arrived"] if jobs["arrived"] else None)
    return Estimate(result[{"throughput": "throughput_per_s", "energy": "energy_j"}.get(target.metric, target.metric)])


def _single_run(problem: PlacementProblem, recording: PlacementRecording, power: Sequence[NodePower]) -> dict[str, Any]:
    tasks = recording.tasks
    timed = recording.mode == "replay"
    span_s = recording.end / NANO if timed else None
    whole = _times(recording, np.ones(len(tasks), dtype=bool))
    usage = _Usage(problem, recording)
    devices = usage.devices(power)
    energies = [device["energy_j"] for device in devices]
    energy = float(sum(energies)) if timed and None not in energies else None
    rent = _rent_usd_per_s(recording, power)
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
        "peak_power_w": usage.peak_power_w(power) if energy is not None else None,
        "cost_usd": rent * span_s if rent is not None and span_s else None,
        "cost_usd_per_h": None if rent is None else rent * 3600,
    }


def _rent_usd_per_s(recording: PlacementRecording, power: Sequence[NodePower]) -> float | None:
    """Return the rent of all GPUs; None if there is none, or a GPU has no price."""
    priced = [(gpus, node.price_usd_per_s) for node, gpus in zip(power, recording.gpus.tolist(), strict=True) if gpus]
    if not priced or any(price is None for _, price in priced):
        return None
    return float(sum(gpus * (price or 0.0) for gpus, price in priced))


def _times(recording: PlacementRecording, mine: np.ndarray) -> dict[str, Any]:
    tasks = recording.tasks
    status = np.bincount(tasks.status[mine], minlength=5)
    counts = {"arrived": int(mine.sum())} | {name: int(status[code]) for code, name in enumerate(STATUS)}
    timed = recording.mode == "replay"
    done = mine & (tasks.status == COMPLETED) & timed
    started = mine & (tasks.started >= 0) & timed
    return {
        "jobs": {name: counts[name] for name in _STATUSES},
        "latency_s": _dicts(estimate_values((tasks.finish[done] - tasks.arrival[done]) / NANO)),
        "waiting_s": _dicts(estimate_values((tasks.start[started] - tasks.arrival[started]) / NANO)),
    }


def _dicts(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {name: estimate.to_dict() for name, estimate in estimates.items()}


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: over_replications([part[name]["value"] for part in parts]).to_dict() for name in parts[0]}


def _merged_part(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the job counts and times of a result, or of a workload, over several runs."""
    jobs = {name: sum(part["jobs"][name] for part in parts) for name in _STATUSES}
    return {"jobs": jobs, **{key: _merged([part[key] for part in parts]) for key in _TIMES}}


class _Usage:
    """The GPU time and core time that tasks hold on each node."""

    def __init__(self, problem: PlacementProblem, recording: PlacementRecording) -> None:
        tasks = recording.tasks
        self.nodes, self.models = problem.nodes, recording.models
        self.timed = recording.mode == "replay"
        self.span_s = recording.end / NANO if self.timed else 1.0
        started = np.flatnonzero(tasks.started >= 0)
        self.node, self.start = tasks.node[started], tasks.start[started]
        self.until = np.where(tasks.finish[started] >= 0, tasks.finish[started], recording.end)
        held_s = (self.until - self.start) / NANO if self.timed else np.ones(len(started))
        self.gpus = (tasks.gpus * tasks.milli)[started] / MILLI
        size = len(self.nodes.cpu)
        self.gpu_s = np.bincount(self.node, self.gpus * held_s, size)
        self.core_s = np.bincount(self.node, tasks.cpu[started] * held_s, size)
        self.tasks = np.bincount(self.node, minlength=size)

    def devices(self, power: Sequence[NodePower]) -> list[dict[str, Any]]:
        """Return a row of ``devices`` for each node."""
        return [
            {
                "name": name,
                "sku": power[n].sku or self.models[n] or "cpu",
                "kind": "node",
                "gpus": int(self.nodes.gpus[n]),
                "utilisation": self._utilisation(n),
                "energy_j": self._energy_j(n, power[n]),
                "jobs": int(self.tasks[n]),
            }
            for n, name in enumerate(self.nodes.names)
        ]

    def _utilisation(self, n: int) -> float:
        """Return the share of the node's GPUs that tasks hold; of its CPU if it has no GPU."""
        gpus = int(self.nodes.gpus[n])
        full = gpus * self.span_s if gpus else float(self.nodes.cpu[n]) * self.span_s
        return float((self.gpu_s if gpus else self.core_s)[n] / full) if full else 0.0

    def _energy_j(self, n: int, power: NodePower) -> float | None:
        """Return the energy of the node's GPUs; None for an inflation, or if the power is unknown."""
        gpus = int(self.nodes.gpus[n])
        if self.timed and gpus == 0:
            return 0.0
        if not self.timed or power.idle_w is None or power.limit_w is None:
            return None
        return gpus * power.idle_w * self.span_s + (power.limit_w - power.idle_w) * float(self.gpu_s[n])

    def peak_power_w(self, power: Sequence[NodePower]) -> float:
        """Return the highest power of all GPUs together; the power of every model must be known."""
        gpus = self.nodes.gpus.tolist()
        idle = sum((node.idle_w or 0.0) * g for node, g in zip(power, gpus, strict=True))
        above_idle = np.array(
            [(node.limit_w or 0.0) - (node.idle_w or 0.0) if g else 0.0 for node, g in zip(power, gpus, strict=True)]
        )
        watts = self.gpus * above_idle[self.node]
        ticks = np.concatenate([self.start, self.until])
        order = np.argsort(ticks, kind="stable")
        sums = np.cumsum(np.concatenate([watts, -watts])[order])
        last_of_tick = np.append(np.diff(ticks[order]) > 0, True)
        return float(idle + max(0.0, float(sums[last_of_tick].max(initial=0.0))))


def _placement(recordings: Sequence[PlacementRecording], filled: Sequence[PlacementRecording]) -> dict[str, Any]:
    if recordings[0].mode == "inflate":
        return _against_demand(recordings)
    shares = [_over_time(recording) for recording in recordings]
    placed: dict[str, Any] = {}
    for key in ("demand", "gpu_allocation", "fragmentation", "fragmentation_rate"):
        placed[key] = over_replications([share[key] for share in shares]).to_dict()
    capacity = max(recordings[0].capacity, 1)
    placed["peak_demand"] = max(int(r.timeline.demand.max()) for r in recordings) / capacity
    placed["peak_allocation"] = max(int(r.timeline.allocated.max()) for r in recordings) / capacity
    placed["arrived_demand"] = shares[0]["arrived_demand"]
    placed["series"] = _against_demand(filled, 2.0)["series"] if recordings[0].capacity else []
    placed["over_time"] = _series_over_time(recordings[0])
    return placed


def _against_demand(recordings: Sequence[PlacementRecording], max_demand: float = math.inf) -> dict[str, Any]:
    """Return allocation and fragmentation at each hundredth of arrived demand up to ``max_demand``, over the runs.

    Beyond five times the capacity there are 500 wider steps.
    """
    capacity = recordings[0].capacity
    max_demand = min(max_demand, min(int(r.timeline.demand[-1]) for r in recordings) / max(capacity, 1))
    step = max(1, math.ceil(max_demand * _STEPS_PER_CAPACITY / _STEPS))
    grid = np.arange(0, int(max_demand * _STEPS_PER_CAPACITY + 1e-9) + 1, step) / _STEPS_PER_CAPACITY
    rows = []
    for demand in [*grid.tolist(), None]:
        shares = [_state(recording, demand) for recording in recordings]
        row: dict[str, Any] = {"demand": demand}
        for i, key in enumerate(("allocated", "fragmented", "fragmentation_rate")):
            row[key] = over_replications([share[i] for share in shares]).to_dict()
        rows.append(row)
    last = rows.pop()
    reached = [int(r.timeline.demand[-1]) / capacity for r in recordings]
    return {
        "demand": over_replications(reached).to_dict(),
        "arrived_demand": float(np.mean(reached)),
        "gpu_allocation": last["allocated"],
        "fragmentation": last["fragmented"],
        "fragmentation_rate": last["fragmentation_rate"],
        "series": rows,
    }


def _state(recording: PlacementRecording, demand: float | None) -> tuple[float, float, float | None]:
    """Return the allocated and fragmented shares of capacity, and the fragmentation rate, when ``demand`` has arrived.

    None means the end of the run.
    """
    timeline, capacity = recording.timeline, recording.capacity
    at = len(timeline.tick) - 1
    if demand is not None:
        at = int(np.searchsorted(timeline.demand, round(demand * capacity), side="right")) - 1
    allocated, fragmented = int(timeline.allocated[at]), int(timeline.fragmented[at]) / timeline.weight
    idle = capacity - allocated
    return allocated / capacity, fragmented / capacity, fragmented / idle if idle else None


def _over_time(recording: PlacementRecording) -> dict[str, float | None]:
    timeline, capacity = recording.timeline, max(recording.capacity, 1)
    arrived = int((recording.tasks.gpus * recording.tasks.milli).sum()) / capacity
    mean = _averager(timeline.tick, recording.end)
    allocated = mean(timeline.allocated) / capacity
    fragmented = mean(timeline.fragmented) / timeline.weight / capacity
    return {
        "demand": mean(timeline.demand) / capacity,
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
    """Return means over equal intervals of the run; ``arrived`` is the demand of all tasks until an interval's end."""
    timeline, capacity = recording.timeline, max(recording.capacity, 1)
    edges = np.linspace(0, recording.end, _BINS + 1)
    corners = np.append(timeline.tick, max(recording.end, int(timeline.tick[-1]))).astype(np.float64)
    width = max(recording.end / _BINS, 1e-300)

    def binned(values: IntArray) -> FloatArray:
        area = np.concatenate([[0.0], np.cumsum(np.diff(corners) * values)])
        means: FloatArray = np.diff(np.interp(edges, corners, area)) / width
        return means

    demand, allocated = binned(timeline.demand) / capacity, binned(timeline.allocated) / capacity
    fragmented, waiting = binned(timeline.fragmented) / timeline.weight / capacity, binned(timeline.waiting)
    cumulative_demand = np.concatenate([[0], np.cumsum(recording.tasks.gpus * recording.tasks.milli)])
    arrived = cumulative_demand[np.searchsorted(recording.tasks.arrival, edges[1:], side="right")] / capacity
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
