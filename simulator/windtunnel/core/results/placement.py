"""The result of a placement run. Fields have the names and the units of result.json (docs/placement.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from windtunnel.core.results.data import Result
from windtunnel.core.results.run import Estimate, JobCounts, ModelInput, TimeDistribution
from windtunnel.core.results.target import TargetVerdict


@dataclass(frozen=True)
class NodeResult(Result):
    """One node over the run. ``energy_j`` is None for an inflation, or if the power of its GPUs is unknown."""

    name: str
    sku: str
    kind: str
    gpus: int
    utilisation: float
    energy_j: float | None
    jobs: int


@dataclass(frozen=True)
class TaskTimes(Result):
    """The tasks of a run, and their times (s), which an inflation does not have."""

    jobs: JobCounts
    latency_s: TimeDistribution
    waiting_s: TimeDistribution


@dataclass(frozen=True)
class TasksResult(TaskTimes):
    """The tasks of one workload."""

    name: str

    def _keys(self) -> Sequence[str]:
        """Return the keys in their order."""
        return ["name", "jobs", "latency_s", "waiting_s"]


@dataclass(frozen=True)
class TargetMix(Result):
    """The most frequent classes of tasks, for which fragmentation is measured, and their share of all tasks."""

    classes: int
    share: float


@dataclass(frozen=True)
class DemandState(Result):
    """The cluster when a ``demand`` has arrived. All values but the rate are shares of its GPU capacity."""

    demand: float
    allocated: Estimate
    fragmented: Estimate
    fragmentation_rate: Estimate
    """Fragmented over unallocated GPUs."""


@dataclass(frozen=True)
class IntervalState(Result):
    """Means over an interval of a replay that begins at ``time_s``, as shares of GPU capacity.

    ``arrived`` is the demand of all tasks until the end of the interval; ``waiting`` is a number of tasks.
    """

    time_s: float
    demand: float
    arrived: float
    allocated: float
    fragmented: float
    fragmentation_rate: float | None
    waiting: float


@dataclass(frozen=True, kw_only=True)
class PlacementSetup(Result):
    """The policy, the cluster and the tasks of a placement."""

    policy: str
    ties: str
    mode: str
    runs: int
    nodes: int
    gpus: int
    classes: int
    target: TargetMix


@dataclass(frozen=True, kw_only=True)
class DemandShares(Result):
    """Demand, allocation and fragmentation as shares of GPU capacity: at the end of an inflation, or means over time.

    ``series`` has them against the arrived demand.
    """

    demand: Estimate
    arrived_demand: float
    gpu_allocation: Estimate
    fragmentation: Estimate
    fragmentation_rate: Estimate
    series: Sequence[DemandState]


@dataclass(frozen=True, kw_only=True)
class Placement(DemandShares, PlacementSetup):
    """The section ``placement`` of the result of an inflation."""


@dataclass(frozen=True, kw_only=True)
class ReplayPlacement(Placement):
    """The section ``placement`` of the result of a replay."""

    peak_demand: float
    peak_allocation: float
    over_time: Sequence[IntervalState]

    def _keys(self) -> Sequence[str]:
        """Return the keys in their order."""
        setup = ["policy", "ties", "mode", "runs", "nodes", "gpus", "classes", "target"]
        means = ["demand", "gpu_allocation", "fragmentation", "fragmentation_rate", "peak_demand", "peak_allocation"]
        return [*setup, *means, "arrived_demand", "series", "over_time"]


@dataclass(frozen=True, kw_only=True)
class PlacementMeasured(TaskTimes):
    """The measured part of a result: of one run, or of several.

    Of several runs, job counts are sums, nodes are those of the first, and other values are means. An inflation has no
    time, so that it has no throughput and no energy.
    """

    simulated_s: float | None
    throughput_per_s: float | None
    serving: None = None
    """No task generates tokens."""
    workloads: Sequence[TasksResult]
    devices: Sequence[NodeResult]
    utilisation: float
    energy_j: float | None
    average_power_w: float | None
    peak_power_w: float | None
    cost_usd: float | None
    cost_usd_per_h: float | None
    placement: Placement | ReplayPlacement
    targets: Sequence[TargetVerdict] = ()


_BEFORE = ("name", "description", "engine", "seed", "replications", "policy", "simulated_s")
"""The first keys."""


@dataclass(frozen=True, kw_only=True)
class PlacementResult(PlacementMeasured):
    """The result of a placement run, as result.json holds it."""

    name: str
    description: str | None
    engine: str = "placement"
    seed: int
    replications: int
    policy: str
    provenance: Sequence[ModelInput]
    model_accuracy: tuple[()] = ()
    """No operation is modelled."""
    notes: Sequence[str]
    scenario: Mapping[str, object]
    """The complete scenario, with all defaults."""
    versions: Mapping[str, str]

    def _keys(self) -> Sequence[str]:
        """Return the keys of result.json in their order."""
        return [*_BEFORE, *(field.name for field in fields(self) if field.name not in _BEFORE)]

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return all(target.met for target in self.targets)
