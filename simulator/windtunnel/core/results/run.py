"""The result of a run. Fields have the names and the units of result.json, which docs/metrics.md defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from windtunnel.core.device import ModelAccuracy
from windtunnel.core.results.data import HIDDEN, INLINE, OPTIONAL, Result
from windtunnel.core.results.decoding import AdapterUse, SpeculationUse
from windtunnel.core.results.faults import FaultResult, ProgressResult
from windtunnel.core.results.prefix_tiers import PrefixTier
from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.results.transfers import KvTransferResult
from windtunnel.core.results.use import EntryUse, TenantUse


@dataclass(frozen=True)
class Estimate(Result):
    """A value and its 95% confidence interval; both are None if there is nothing to estimate them from.

    Attributes:
        value: The estimate, in the unit of the sample.
        low: The lower end of the interval, or None.
        high: The upper end of the interval, or None.
        reason: Why there is no interval, or None.
        effective_sample_size: The number of independent observations with the same variance, if it is known.
        batches: The number of batches, which is the largest effective sample size that could be observed.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = field(default=None, metadata=HIDDEN)
    effective_sample_size: float | None = field(default=None, metadata=HIDDEN)
    batches: int | None = field(default=None, metadata=HIDDEN)


@dataclass(frozen=True)
class TokenEstimate(Estimate):
    """An estimate of a time of requests, which also has a 90% interval for the error of the device models.

    The two intervals are independent: ``low`` and ``high`` are about chance in the traffic.

    Attributes:
        model_low: The lower end of the model error interval, or None.
        model_high: The upper end of the model error interval, or None.
    """

    model_low: float | None = None
    model_high: float | None = None


@dataclass(frozen=True)
class TimeDistribution(Result):
    """The mean and the percentiles (s) of a time of single jobs."""

    mean: Estimate
    p50: Estimate
    p95: Estimate
    p99: Estimate

    def by_name(self) -> Mapping[str, Estimate]:
        """Return the estimates by the names of their statistics, as targets name them."""
        return {"mean": self.mean, "p50": self.p50, "p95": self.p95, "p99": self.p99}

    def of(self, statistic: str | None) -> Estimate:
        """Return the estimate of the statistic with this name."""
        return self.by_name()[str(statistic)]


@dataclass(frozen=True)
class JobCounts(Result):
    """The number of jobs that arrived, and how many of them are in each state at the end of the run."""

    arrived: int
    completed: int
    dropped: int
    failed: int
    running: int
    queued: int


@dataclass(frozen=True)
class CostPerMillion(Result):
    """The whole rent over millions of prompt tokens, of output tokens, and of both (USD); None if it is not known."""

    input: float | None = None
    output: float | None = None
    total: float | None = None


@dataclass(frozen=True, kw_only=True)
class Serving(Result):
    """Token times (s), rates and costs of the jobs that generate tokens; ``TokenEstimate`` has both intervals."""

    ttft_s: TimeDistribution | None = None
    itl_s: TimeDistribution | None = None
    """The gaps between tokens of all requests."""
    tpot_s: TimeDistribution | None = None
    """The mean gap of each request."""
    e2e_s: TimeDistribution | None = None
    input_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    slo_attainment: float | None = None
    """The share of the arrived requests that meet all targets on times of single requests; None without a target."""
    goodput_per_s: float | None = None
    prefix_hit_rate: float | None = None
    """The share of looked-up blocks that the prefix cache had; None without one."""
    prefix_hit_tokens: int | None = None
    prefix_tiers: Sequence[PrefixTier] = ()
    """What was found in each tier; empty without tiers below the prefix caches."""
    kv_peak: float | None = None
    """The largest share of a replica's KV cache that was needed; None without continuous batching."""
    kv_capacity_tokens: Mapping[str, int] = field(default_factory=dict)
    """The tokens that the KV cache of a replica has room for, by fleet entry."""
    preemptions: int = 0
    rejected: int = 0
    cost_per_million_usd: CostPerMillion = CostPerMillion()
    energy_per_output_token_j: float | None = None
    speculation: SpeculationUse | None = None
    """None without speculative decoding; so are ``adapters`` and ``kv_transfers`` without what they are about."""
    adapters: AdapterUse | None = None
    entries: Sequence[EntryUse] = ()
    kv_transfers: KvTransferResult | None = None
    tenants: Sequence[TenantUse] = ()
    """The tenants of all workloads, those with most tokens first; empty where no workload and no policy states any."""
    attainment: Estimate = field(default=Estimate(None), metadata=HIDDEN)
    """``slo_attainment`` with its interval."""

    def with_times(self, times: Mapping[str, TimeDistribution | None]) -> Serving:
        """Return the same with other times, by the names of targets: ttft, itl, tpot, e2e."""
        return replace(
            self,
            ttft_s=times.get("ttft", self.ttft_s),
            itl_s=times.get("itl", self.itl_s),
            tpot_s=times.get("tpot", self.tpot_s),
            e2e_s=times.get("e2e", self.e2e_s),
        )


class Timed(Protocol):
    """A result, or the part of one workload: jobs and their times (s)."""

    @property
    def jobs(self) -> JobCounts:
        """The numbers of jobs."""

    @property
    def latency_s(self) -> TimeDistribution:
        """The time from arrival to completion."""

    @property
    def waiting_s(self) -> TimeDistribution:
        """The queueing delay."""

    @property
    def serving(self) -> Serving | None:
        """The times of tokens; None if no job generates tokens."""


def distribution(part: Timed, metric: str) -> TimeDistribution | None:
    """Return the mean and percentiles (s) of a timed metric, named as in targets, such as latency or ttft.

    None where there is none, such as ``ttft`` where no job generates tokens.
    """
    if metric in ("latency", "waiting"):
        return part.latency_s if metric == "latency" else part.waiting_s
    serving = part.serving
    if serving is None:
        return None
    by_name = {"ttft": serving.ttft_s, "itl": serving.itl_s, "tpot": serving.tpot_s, "e2e": serving.e2e_s}
    return by_name.get(metric)


def of_tokens(times: TimeDistribution | None) -> TimeDistribution | None:
    """Return the distribution of a time of requests, whose estimates have a model error interval (None at first)."""
    if times is None:
        return None
    estimates = {
        name: e if isinstance(e, TokenEstimate) else TokenEstimate(**vars(e)) for name, e in times.by_name().items()
    }
    return TimeDistribution(**estimates)


ByStatistic = Mapping[str, Mapping[str, float | None]]
"""A number for each statistic of each timed metric, by the metric's key in the result."""


@dataclass(frozen=True, kw_only=True)
class PartStatistics(Result):
    """How certain the times of one workload are; with replications only the reasons are known."""

    effective_sample_size: ByStatistic | None = field(default=None, metadata=OPTIONAL)
    batches: ByStatistic | None = field(default=None, metadata=OPTIONAL)
    missing_interval_reasons: Mapping[str, Mapping[str, str | None]]
    steady_state: str | None = field(default=None, metadata=OPTIONAL)
    """That of this workload alone, where the run as a whole is unstable; otherwise the run's holds for all."""
    steady_state_reason: str | None = field(default=None, metadata=OPTIONAL)

    @property
    def unstable_reason(self) -> str | None:
        """Why the times have no mean ("unstable: ..."); None if the workload is not unstable."""
        return f"unstable: {self.steady_state_reason}" if self.steady_state == "unstable" else None


@dataclass(frozen=True)
class Stopped(Result):
    """The precision at which a run stopped. ``achieved_error`` is None without a confidence interval."""

    metric: str
    requested_error: float
    achieved_error: float | None
    jobs: int
    attempts: int


@dataclass(frozen=True)
class RedrawnRuns(Result):
    """The runs from which the intervals come if the rate of arrivals changes.

    Attributes:
        runs: The number of redrawn runs.
        windows_s: For each workload from a trace, half the window within which its arrivals were redrawn (s).
        settled: Whether every target is met by intervals of 99% too, where only targets are judged.
    """

    runs: int
    windows_s: Mapping[str, float]
    settled: bool = field(default=False, metadata=HIDDEN)


@dataclass(frozen=True, kw_only=True)
class RunStatistics(Result):
    """The statistical method of a run, its warm-up and steady state, and how certain its times are."""

    method: str
    stationary: bool
    warmup_jobs: int | Sequence[int]
    """The first jobs, which the times exclude; of each replication, if there are several."""
    warmup_reason: str
    steady_state: str | None
    """``reached``, ``not shown`` or ``unstable``; None if arrivals are not stationary."""
    steady_state_reason: str | None
    offered_load: float | None
    replications: int | None = field(default=None, metadata=OPTIONAL)
    effective_sample_size: ByStatistic | None = field(default=None, metadata=OPTIONAL)
    batches: ByStatistic | None = field(default=None, metadata=OPTIONAL)
    missing_interval_reasons: Mapping[str, Mapping[str, str | None]]
    stopped: Stopped | None = field(default=None, metadata=OPTIONAL)
    redrawn: RedrawnRuns | None = field(default=None, metadata=OPTIONAL)
    """None if the intervals come from batches of one run, or from replications."""

    @property
    def unstable_reason(self) -> str | None:
        """Why the times have no mean ("unstable: ..."); None for a run that is not unstable."""
        return f"unstable: {self.steady_state_reason}" if self.steady_state == "unstable" else None


@dataclass(frozen=True)
class WorkloadResult(Result):
    """The jobs of one workload."""

    name: str
    use_case: str | None
    jobs: JobCounts
    latency_s: TimeDistribution
    waiting_s: TimeDistribution
    serving: Serving | None
    statistics: PartStatistics


@dataclass(frozen=True)
class DeviceResult(Result):
    """One device over the run."""

    name: str
    sku: str
    entry: str
    """The name of its fleet entry."""
    kind: str
    utilisation: float
    rented_s: float
    energy_j: float
    jobs: int
    power_limit_w: float
    idle_power_w: float
    availability: float
    count: int | None = field(default=None, metadata=OPTIONAL)
    """The number of devices, if the object stands for all devices of an entry: then energy, jobs, rented time and
    powers are sums, and utilisation and availability are means."""
    group: int | None = field(default=None, metadata=OPTIONAL)
    """The number of devices of a group, if the entry has groups: then an object, or each of ``count``, is a group."""
    utilisation_min: float | None = field(default=None, metadata=OPTIONAL)
    utilisation_max: float | None = field(default=None, metadata=OPTIONAL)
    unused: int | None = field(default=None, metadata=OPTIONAL)
    """Devices of the entry that never worked."""


@dataclass(frozen=True)
class ChipResult(Result):
    """A chip that several devices of the fleet reach. Its powers (W) and its energy (J) are counted once."""

    name: str
    devices: Sequence[str]
    utilisation: float
    """The share of the run in which at least one of its devices is busy."""
    energy_j: float
    power_limit_w: float
    idle_power_w: float


@dataclass(frozen=True)
class EntryDesigns(Result):
    """The designs of the reconfigurable devices of one fleet entry."""

    name: str
    regions: int
    """How many designs each device holds at once."""
    load_each_s: float
    needed: Sequence[str]
    """The designs that its jobs need."""
    resident_at_start: Sequence[str]


@dataclass(frozen=True)
class DesignsResult(Result):
    """The loads of designs into reconfigurable devices."""

    loads: int
    """Loads that began."""
    load_s: float
    """Device time for which designs were loaded, including loads that an interruption left incomplete."""
    entries: Sequence[EntryDesigns]


@dataclass(frozen=True)
class ScalingSeries(Result):
    """The devices of a scaled entry over time; means over equal intervals if ``downsampled``."""

    time_s: Sequence[float]
    in_service: Sequence[float]
    rented: Sequence[float]
    downsampled: bool


@dataclass(frozen=True)
class ScaledEntry(Result):
    """A fleet entry whose number of devices changes during the run."""

    entry: str
    min: int
    max: int
    scale_ups: int
    scale_downs: int
    mean_in_service: float
    min_in_service: int
    max_in_service: int
    mean_rented: float
    max_rented: int
    rented_s: float
    cost_usd: float | None
    series: ScalingSeries


@dataclass(frozen=True)
class BudgetSeries(Result):
    """The power budget over time; None where no limit applies. Minima of intervals if ``downsampled``."""

    time_s: Sequence[float]
    budget_w: Sequence[float | None]
    downsampled: bool


@dataclass(frozen=True)
class BudgetResult(Result):
    """The power budget of the fleet. ``normal_w`` is None if only brown-outs limit the power."""

    normal_w: float | None
    min_w: float | None
    max_active_devices: int | None
    series: BudgetSeries


@dataclass(frozen=True)
class SiteResult(Result):
    """Energy, its cost and its emissions at the site of the fleet. ``cost_usd`` includes the rent. None if unknown."""

    pue: float
    energy_kwh: float
    energy_cost_usd: float | None
    energy_cost_usd_per_h: float | None
    carbon_kg: float | None
    carbon_kg_per_h: float | None
    cost_usd: float | None
    cost_usd_per_h: float | None


@dataclass(frozen=True)
class ModelInput(Result):
    """A number on which the result depends, in ``unit``, with its provenance, source and range."""

    device: str
    parameter: str
    value: float
    unit: str
    provenance: str
    source: str | None
    low: float | None
    high: float | None
    reason: str | None


@dataclass(frozen=True)
class OperationContext(Result):
    """The context in which an operation of jobs is priced, on the fleet entries ``devices`` for ``workloads``.

    ``reason`` says why the dispatch is what it is. Operations without a launch of their own (``service``, ``copy``,
    ``launch``) have no row.
    """

    operation: str
    dispatch: str
    clock: str
    cache: str
    workloads: Sequence[str]
    devices: Sequence[str]
    reason: str


@dataclass(frozen=True)
class DeviceAccuracy(Result):
    """The accuracy of the model of one operation on one device."""

    device: str
    accuracy: ModelAccuracy = field(metadata=INLINE)
    part_of: str | None = field(default=None, metadata=OPTIONAL)
    """``step`` for an operation that runs only as a part of the steps of a decoder."""


@dataclass(frozen=True)
class PowerError(Result):
    """The factor within which nine tenths of the powers of operations on a device are of its model's.

    ``provenance`` is that of the factor: measured or published for a device whose power was measured, else assumed.
    """

    device: str
    factor: float
    provenance: str

    @property
    def text(self) -> str:
        """The error as a clause."""
        basis = "assumed: its power was not measured" if self.provenance == "assumed" else self.provenance
        return f"90% of the powers of operations on {self.device} are within a factor of {self.factor:.3g} ({basis})"


@dataclass(frozen=True, kw_only=True)
class RealWork(Result):
    """The measured work of a real device."""

    real: str
    label: str
    api: str
    software: bool
    driver: str
    versions: Mapping[str, str]
    operations: int
    measured_s: float
    timer: Sequence[str]
    checked: int
    worst_error_share: float | None
    failures: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RealDevice(RealWork):
    """The measured work of a real device of a fleet, with the time that its model predicts for it (s)."""

    name: str
    model: str
    jobs: int
    modelled_s: float
    why_unused: str | None
    """Why it executed no operation; None if it did."""

    def _keys(self) -> Sequence[str]:
        """Return the keys in their order."""
        return ["name", "model", "jobs", "modelled_s", "why_unused", *(field.name for field in fields(RealWork))]


@dataclass(frozen=True, kw_only=True)
class Measured(Result):
    """The measured part of a result: of one run, or of several replications.

    With replications, job counts are totals, other values are means, and series are those of the first replication.
    """

    simulated_s: float
    jobs: JobCounts
    latency_s: TimeDistribution
    waiting_s: TimeDistribution
    serving: Serving | None
    statistics: RunStatistics
    throughput_per_s: float
    workloads: Sequence[WorkloadResult]
    devices: Sequence[DeviceResult]
    chips: Sequence[ChipResult] | None = field(default=None, metadata=OPTIONAL)
    """None if every device is a chip of its own."""
    faults: FaultResult | None
    """None if the scenario has no fault."""
    progress: ProgressResult | None = field(default=None, metadata=OPTIONAL)
    """None without checkpoints and preemption."""
    designs: DesignsResult | None = field(default=None, metadata=OPTIONAL)
    """None where no job needs a design of a reconfigurable device."""
    autoscale: Sequence[ScaledEntry]
    utilisation: float
    availability: float
    energy_j: float
    average_power_w: float
    peak_power_w: float
    power_limit_w: float
    power_budget: BudgetResult | None
    cost_usd: float | None
    cost_usd_per_h: float | None
    total_cost_usd: float | None
    site: SiteResult | None
    targets: Sequence[TargetVerdict]


_BEFORE = ("name", "description", "engine", "engine_reason", "seed", "replications", "policy")
"""The keys that stand before the measured part."""
_REPLICATED = (
    "jobs", "latency_s", "waiting_s", "serving", "simulated_s", "throughput_per_s", "utilisation", "availability",
    "energy_j", "average_power_w", "peak_power_w", "power_limit_w", "cost_usd", "cost_usd_per_h", "total_cost_usd",
    "site", "devices", "chips", "autoscale", "power_budget", "faults", "progress", "designs", "statistics", "workloads",
    "targets",
)  # fmt: skip
"""The order of the measured part with replications."""


@dataclass(frozen=True, kw_only=True)
class RunResult(Measured):
    """The result of a run, as result.json holds it."""

    name: str
    description: str | None
    engine: str
    engine_reason: str
    seed: int
    replications: int
    policy: str
    contexts: Sequence[OperationContext]
    provenance: Sequence[ModelInput]
    model_accuracy: Sequence[DeviceAccuracy]
    power_error: Sequence[PowerError] = ()
    """One for each model of a device; none for a device whose power is stated."""
    real: Sequence[RealDevice] | None = field(default=None, metadata=OPTIONAL)
    """The real devices of the fleet; None if there are none."""
    notes: Sequence[str]
    scenario: Mapping[str, object]
    """The complete scenario, with all defaults."""
    versions: Mapping[str, str]

    def _keys(self) -> Sequence[str]:
        """Return the keys of result.json in their order, which differs with replications."""
        measured = _REPLICATED if self.replications > 1 else tuple(f.name for f in fields(Measured))
        own = (f.name for f in fields(self) if f.name not in _BEFORE and f.name not in measured)
        return [*_BEFORE, *measured, *own]

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return all(target.met for target in self.targets)
