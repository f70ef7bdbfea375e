"""The metrics of placement runs, as docs/placement.md defines them. Times and intervals follow docs/metrics.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from windtunnel.core.recording import COMPLETED, STATUS
from windtunnel.core.results.placement import (
    DemandShares,
    DemandState,
    IntervalState,
    NodeResult,
    Placement,
    PlacementMeasured,
    PlacementSetup,
    ReplayPlacement,
    TargetMix,
    TasksResult,
    TaskTimes,
)
from windtunnel.core.results.run import Estimate, JobCounts, TimeDistribution
from windtunnel.engine.results.statistics import STATISTICS, estimate_values, over_replications
from windtunnel.placement.nodes import MILLI, FloatArray, IntArray
from windtunnel.placement.recording import NANO, PlacementRecording
from windtunnel.placement.tasks import PlacementProblem
from windtunnel.scenario.judging import judge
from windtunnel.scenario.target import Target

_BINS = 240
_STEPS_PER_CAPACITY = 100
_STEPS = 500


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
) -> PlacementMeasured:
    """Return the measured part of the result.

    Of several runs, job counts are sums, all other values are means, and intervals are between the runs. ``filled``
    are the runs of ``fill_without_departures``, from which the values of a replay against arrived demand come.
    """
    setup = PlacementSetup(
        policy=policy,
        ties=ties,
        mode=recordings[0].mode,
        runs=len(recordings),
        nodes=len(problem.nodes.cpu),
        gpus=int(problem.nodes.gpus.sum()),
        classes=len(problem.classes.cpu),
        target=TargetMix(len(problem.target.weight), problem.covered),
    )
    placement = _placement(setup, recordings, filled)
    runs = [_single_run(problem, recording, power, placement) for recording in recordings]
    result = runs[0] if len(runs) == 1 else _merged(runs)
    return replace(result, targets=[judge(target, _measured(target, result)) for target in targets])


# Long: one case for each metric.
def _measured(target: Target, result: PlacementMeasured) -> Estimate:
    """Return the value (SI) that a target refers to; it is None if nothing was measured."""
    jobs, cost = result.jobs, result.cost_usd_per_h
    match target.metric:
        case "latency" | "waiting":
            times = result.latency_s if target.metric == "latency" else result.waiting_s
            return replace(times.of(target.statistic), reason=None)
        case "allocation":
            return replace(result.placement.gpu_allocation, reason=None)
        case "fragmentation":
            return replace(result.placement.fragmentation, reason=None)
        case "throughput":
            return Estimate(result.throughput_per_s)
        case "power":
            return Estimate(result.peak_power_w if target.statistic == "peak" else result.average_power_w)
        case "energy":
            return Estimate(result.energy_j)
        case "cost":
            return Estimate(None if cost is None else cost / 3600.0)
        case "utilisation":
            return Estimate(result.utilisation)
        case "completed":
            return Estimate(jobs.completed / jobs.arrived if jobs.arrived else None)
    raise AssertionError(f"a placement has no metric '{target.metric}'")


def _single_run(
    problem: PlacementProblem, recording: PlacementRecording, power: Sequence[NodePower], placement: Placement
) -> PlacementMeasured:
    tasks = recording.tasks
    timed = recording.mode == "replay"
    span_s = recording.end / NANO if timed else None
    whole = _times(recording, np.ones(len(tasks), dtype=bool))
    usage = _Usage(problem, recording)
    devices = usage.devices(power)
    energies = [device.energy_j for device in devices if device.energy_j is not None]
    energy = float(sum(energies)) if timed and len(energies) == len(devices) else None
    rent = _rent_usd_per_s(recording, power)
    return PlacementMeasured(
        simulated_s=span_s,
        **vars(whole),
        throughput_per_s=whole.jobs.completed / span_s if span_s else None,
        workloads=[
            TasksResult(name=name, **vars(_times(recording, tasks.workload == i)))
            for i, name in enumerate(recording.workloads)
        ],
        devices=devices,
        utilisation=float(np.mean([device.utilisation for device in devices])),
        energy_j=energy,
        average_power_w=energy / span_s if energy is not None and span_s else None,
        peak_power_w=usage.peak_power_w(power) if energy is not None else None,
        cost_usd=rent * span_s if rent is not None and span_s else None,
        cost_usd_per_h=None if rent is None else rent * 3600,
        placement=placement,
    )


def _merged(runs: Sequence[PlacementMeasured]) -> PlacementMeasured:
    """Return the mean over several runs, as ``summarise_placement`` describes."""
    workloads = zip(*(run.workloads for run in runs), strict=True)
    return replace(
        runs[0],
        **vars(_merged_times(runs)),
        simulated_s=_known_mean(run.simulated_s for run in runs),
        throughput_per_s=_known_mean(run.throughput_per_s for run in runs),
        utilisation=float(np.mean([run.utilisation for run in runs])),
        energy_j=_known_mean(run.energy_j for run in runs),
        average_power_w=_known_mean(run.average_power_w for run in runs),
        peak_power_w=_known_mean(run.peak_power_w for run in runs),
        cost_usd=_known_mean(run.cost_usd for run in runs),
        workloads=[TasksResult(name=parts[0].name, **vars(_merged_times(parts))) for parts in workloads],
    )


def _known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None if there is none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _rent_usd_per_s(recording: PlacementRecording, power: Sequence[NodePower]) -> float | None:
    """Return the rent of all GPUs; None if there is none, or a GPU has no price."""
    priced = [(gpus, node.price_usd_per_s) for node, gpus in zip(power, recording.gpus.tolist(), strict=True) if gpus]
    if not priced or any(price is None for _, price in priced):
        return None
    return float(sum(gpus * (price or 0.0) for gpus, price in priced))


def _times(recording: PlacementRecording, mine: np.ndarray) -> TaskTimes:
    tasks = recording.tasks
    counts = {name: int(np.sum(tasks.status[mine] == code)) for code, name in enumerate(STATUS)}
    timed = recording.mode == "replay"
    done = mine & (tasks.status == COMPLETED) & timed
    started = mine & (tasks.started >= 0) & timed
    return TaskTimes(
        jobs=JobCounts(arrived=int(mine.sum()), **counts),
        latency_s=TimeDistribution(**estimate_values((tasks.finish[done] - tasks.arrival[done]) / NANO)),
        waiting_s=TimeDistribution(**estimate_values((tasks.start[started] - tasks.arrival[started]) / NANO)),
    )


def _merged_times(parts: Sequence[TaskTimes]) -> TaskTimes:
    """Return the job counts and times of a result, or of a workload, over several runs."""

    def merged(times: Sequence[TimeDistribution]) -> TimeDistribution:
        return TimeDistribution(*(over_replications([part.of(name).value for part in times]) for name in STATISTICS))

    return TaskTimes(
        jobs=JobCounts(*map(sum, zip(*(astuple(part.jobs) for part in parts), strict=True))),
        latency_s=merged([part.latency_s for part in parts]),
        waiting_s=merged([part.waiting_s for part in parts]),
    )


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

    def devices(self, power: Sequence[NodePower]) -> list[NodeResult]:
        """Return a row of ``devices`` for each node."""
        return [
            NodeResult(
                name=name,
                sku=power[n].sku or self.models[n] or "cpu",
                kind="node",
                gpus=int(self.nodes.gpus[n]),
                utilisation=self._utilisation(n),
                energy_j=self._energy_j(n, power[n]),
                jobs=int(self.tasks[n]),
            )
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


def _placement(
    setup: PlacementSetup, recordings: Sequence[PlacementRecording], filled: Sequence[PlacementRecording]
) -> Placement:
    if setup.mode == "inflate":
        return Placement(**vars(setup), **vars(_against_demand(recordings)))
    means = [_mean_shares(recording) for recording in recordings]
    capacity = max(recordings[0].capacity, 1)
    return ReplayPlacement(
        **vars(setup),
        demand=over_replications([mean.demand for mean in means]),
        gpu_allocation=over_replications([mean.allocated for mean in means]),
        fragmentation=over_replications([mean.fragmented for mean in means]),
        fragmentation_rate=over_replications([mean.fragmentation_rate for mean in means]),
        peak_demand=max(int(r.timeline.demand.max()) for r in recordings) / capacity,
        peak_allocation=max(int(r.timeline.allocated.max()) for r in recordings) / capacity,
        arrived_demand=int((recordings[0].tasks.gpus * recordings[0].tasks.milli).sum()) / capacity,
        series=_against_demand(filled, 2.0).series if recordings[0].capacity else [],
        over_time=_series_over_time(recordings[0]),
    )


def _against_demand(recordings: Sequence[PlacementRecording], max_demand: float = math.inf) -> DemandShares:
    """Return allocation and fragmentation at each hundredth of arrived demand up to ``max_demand``, over the runs.

    Beyond five times the capacity there are 500 wider steps.
    """
    capacity = recordings[0].capacity
    max_demand = min(max_demand, min(int(r.timeline.demand[-1]) for r in recordings) / max(capacity, 1))
    step = max(1, math.ceil(max_demand * _STEPS_PER_CAPACITY / _STEPS))
    grid = np.arange(0, int(max_demand * _STEPS_PER_CAPACITY + 1e-9) + 1, step) / _STEPS_PER_CAPACITY
    reached = [int(r.timeline.demand[-1]) / capacity for r in recordings]
    allocated, fragmented, rate = _estimates(recordings, None)
    return DemandShares(
        demand=over_replications(reached),
        arrived_demand=float(np.mean(reached)),
        gpu_allocation=allocated,
        fragmentation=fragmented,
        fragmentation_rate=rate,
        series=[DemandState(demand, *_estimates(recordings, demand)) for demand in grid.tolist()],
    )


def _estimates(recordings: Sequence[PlacementRecording], demand: float | None) -> tuple[Estimate, Estimate, Estimate]:
    """Return ``_state`` over several runs."""
    allocated, fragmented, rate = zip(*(_state(recording, demand) for recording in recordings), strict=True)
    return over_replications(allocated), over_replications(fragmented), over_replications(rate)


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


@dataclass(frozen=True)
class _MeanShares:
    """Means over the time of one replay, as shares of GPU capacity; the rate is of the unallocated GPUs."""

    demand: float
    allocated: float
    fragmented: float

    @property
    def fragmentation_rate(self) -> float | None:
        return self.fragmented / (1 - self.allocated) if self.allocated < 1 else None


def _mean_shares(recording: PlacementRecording) -> _MeanShares:
    timeline, capacity = recording.timeline, max(recording.capacity, 1)
    mean = _averager(timeline.tick, recording.end)
    fragmented = mean(timeline.fragmented) / timeline.weight / capacity
    return _MeanShares(mean(timeline.demand) / capacity, mean(timeline.allocated) / capacity, fragmented)


def _averager(tick: IntArray, end: int) -> Callable[[IntArray], float]:
    widths = np.diff(np.append(tick, max(end, int(tick[-1])))).astype(np.float64)

    def mean(values: IntArray) -> float:
        return float(np.dot(widths, values) / widths.sum()) if widths.sum() else float(values[-1])

    return mean


def _series_over_time(recording: PlacementRecording) -> list[IntervalState]:
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
        IntervalState(
            time_s=float(edges[i] / NANO),
            demand=float(demand[i]),
            arrived=float(arrived[i]),
            allocated=float(allocated[i]),
            fragmented=float(fragmented[i]),
            fragmentation_rate=float(fragmented[i] / (1 - allocated[i])) if allocated[i] < 1 else None,
            waiting=float(waiting[i]),
        )
        for i in range(_BINS)
    ]
