"""The result of a plan. Fields have the names and the units of plan.json, which docs/planning.md defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.candidates import CandidateEntry, Conflict
from windtunnel.core.results.data import HIDDEN, OPTIONAL, Result
from windtunnel.core.results.deployment import Deployment
from windtunnel.core.results.reach import TargetReach
from windtunnel.core.results.target import JudgedTarget, ModelInterval
from windtunnel.core.validated import DISAGGREGATED


@dataclass(frozen=True)
class Meets(Result):
    """Whether a fleet meets every target by ``value``, and with ``confidence``: each interval is within its limit."""

    value: bool
    confidence: bool


@dataclass(frozen=True)
class ConfiguredEntry(Result):
    """The devices of one entry of a fleet, and how they are used.

    ``group`` is None for an entry without groups, ``role`` (prefill, decode or both) where nothing generates tokens.
    ``node`` is the number of devices of a node, None where it is not known. ``settings`` has the values that the plan
    chose.
    """

    entry: str
    device: str
    count: int
    group: Mapping[str, int] | None = None
    role: str | None = None
    node: int | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedFleet(Result):
    """A fleet: its devices by SKU and by entry, its cost and measured values, and its targets."""

    devices: Mapping[str, int]
    entries: Mapping[str, int]
    configuration: Sequence[ConfiguredEntry]
    meets: Meets
    text: str
    cost_usd_per_h: float
    power_w: float
    peak_power_w: float
    energy_cost_usd_per_h: float | None
    total_cost_usd_per_h: float | None
    carbon_kg_per_h: float | None
    usd_per_million_output_tokens: float | None
    """The rent of the fleet over the output tokens of the run; None where nothing generates tokens."""
    throughput_per_s_per_device: float
    """Output tokens per second and device, or jobs where nothing generates tokens; see docs/planning.md."""
    output_tokens_per_s_per_user: float | None
    """The inverse of the mean time per output token (TPOT); None where nothing generates several tokens."""
    prefix_hit_rate: float | None
    """The share of looked-up blocks that the prefix caches had; None without any."""
    utilisation: float
    p50_s: float | None
    p99_s: float | None
    keeps_up: bool
    judged_by: str
    times: int
    """The factor on the length of the run, or on the number of replications, by which it is judged."""
    min_load: float | None
    """A lower bound on the load in the busiest interval; None if the fleet cannot do the work."""
    targets: Sequence[JudgedTarget]
    violations: Sequence[str]

    @property
    def model_error_caveat(self) -> str:
        """What published measurements show of its intervals for the error of the models; empty if nothing."""
        moves = any(entry.role in ("prefill", "decode") for entry in self.configuration)
        return DISAGGREGATED.text if moves else ""


@dataclass(frozen=True)
class SimulatedFleet(PlannedFleet):
    """A fleet that the search simulated. ``time_s`` is its value of the binding time of the recommended fleet."""

    time_s: float | None


@dataclass(frozen=True)
class StoppedFleet(Result):
    """A fleet whose run was ended after ``jobs`` arrivals, because it misses a target whatever follows.

    ``least`` has a lower bound on the value of each target that it misses for certain, in the unit of the target.
    """

    devices: Mapping[str, int]
    entries: Mapping[str, int]
    configuration: Sequence[ConfiguredEntry]
    text: str
    cost_usd_per_h: float
    min_load: float | None
    jobs: int
    least: Mapping[str, float]
    violations: Sequence[str]


@dataclass(frozen=True)
class LowerBound(Result):
    """What no fleet can go below; None if no fleet is feasible.

    ``autoscaler_usd_per_h`` is the rent if each device were rented only while it works, also for each window of time.
    It is None where the work or the length of the run depends on the fleet.
    """

    cost_usd_per_h: float | None
    devices: Mapping[str, int] | None
    objective: float | None
    objective_unit: str
    autoscaler_usd_per_h: float | None
    autoscaler_by_window_usd_per_h: Sequence[float] | None
    window_s: float | None


@dataclass(frozen=True)
class CheaperFleet(Result):
    """A simulated fleet that costs less than the recommended one and is not as certain.

    The explanation has the most expensive of them (``next_cheapest``), and that which misses by least
    (``nearest_miss``): of those simulated whole, the one whose worst target is least beyond its limit.
    """

    fleet: str
    objective_text: str
    cost_usd_per_h: float
    targets: Sequence[JudgedTarget]
    meets: Meets
    violations: Sequence[str]


@dataclass(frozen=True)
class PriceEffect(Result):
    """The price of an entry at which another simulated fleet costs as much as the recommended one.

    ``price`` and ``break_even`` are in USD/h of a device. ``fleet`` has the least of the costs beyond it: above
    ``break_even`` for an entry of the recommended fleet, below it for another one.
    """

    entry: str
    price: float
    break_even: float
    fleet: str

    @property
    def change(self) -> float | None:
        """The relative change of the price; None for a price of zero."""
        return self.break_even / self.price - 1 if self.price else None


@dataclass(frozen=True)
class AssumedInput(Result):
    """An assumed input of a device model, and what the recommended fleet does at the two ends of its range.

    ``step_low`` and ``step_high`` are relative changes of the time of a representative step there, by which inputs are
    ranked. ``value_low`` and ``value_high`` are those of the binding target, in its unit.
    """

    device: str
    parameter: str
    meaning: str
    """What the parameter is, in words."""
    value: float
    low: float
    high: float
    unit: str
    reason: str | None
    step_low: float
    step_high: float
    value_low: float | None
    value_high: float | None
    meets: bool
    """Whether the fleet meets every target by value at both ends."""

    @property
    def step(self) -> float:
        """The largest relative change of the time of a representative step."""
        return max(abs(self.step_low), abs(self.step_high))

    def is_within(self, low: float | None, high: float | None) -> bool:
        """Return whether the values at both ends are between ``low`` and ``high``."""
        ends = (self.value_low, self.value_high)
        return None not in (low, high) and all(end is not None and (low or 0.0) <= end <= (high or 0.0) for end in ends)


@dataclass(frozen=True)
class Assumptions(Result):
    """The assumed inputs of the recommended fleet, ranked by how far each moves the time of a representative step.

    ``inputs`` were simulated at the ends of their ranges, by ``simulations`` runs. Each of the ``others`` moves the
    time of a representative step by at most ``others_step``. ``value``, with the interval from ``low`` to ``high``, is
    that of the binding target with the stated inputs.
    """

    target: str
    value: float
    low: float | None
    high: float | None
    unit: str
    inputs: Sequence[AssumedInput]
    others: int
    others_step: float
    simulations: int


@dataclass(frozen=True)
class PriceOfConfidence(Result):
    """The best fleet by value where it does not meet the targets with confidence for its ``doubts``, and what does."""

    fleet: str
    objective_text: str
    recommended: str | None
    """None if no fleet meets the targets with confidence."""
    recommended_objective_text: str | None
    doubts: Sequence[str]
    text: str = ""


@dataclass(frozen=True)
class ClosestFleet(Result):
    """The fleet that is nearest to meeting the targets if none meets them."""

    fleet: str
    violations: Sequence[str]


@dataclass(frozen=True)
class ChangeEffect(Result):
    """The recommended fleet under a change of load, speeds or lengths, and the cheapest fleet found for it.

    ``prompt`` and ``output`` are factors on the tokens of each request. ``device``: the device whose speed alone
    changes, by its label; None for changes of all. ``lost``: the entry of which ``lost_replicas``, with
    ``lost_devices``, are out of service; no other fleet is sought for that, because ``plan.spare`` does so. The
    recommended fleet is judged by ``goal``: by value where one device changes alone, because the error of the models is
    judged so, and else with confidence if it meets the targets so. ``fleet`` is always judged as the recommended one is
    without the change.
    """

    change: str
    load: float
    speeds: Mapping[str, float]
    prompt: float
    output: float
    increases_load: bool
    goal: str
    still_meets: bool
    meets: Meets
    headroom: float | None
    binding: JudgedTarget | None
    explained_by_interval: bool
    violations: Sequence[str]
    candidates_tried: int
    device: str | None
    fleet: str | None
    devices: Mapping[str, int] | None
    objective_text: str | None
    model_intervals: Sequence[ModelInterval] = ()
    """Those of ``fleet`` for the error of its own models, where one device changes alone."""
    lost: str | None = None
    lost_replicas: int = 0
    lost_devices: int = 0
    window: Sequence[float] | None = None
    """Where another window of the trace begins and ends (s), if it is the work."""


@dataclass(frozen=True)
class FirstTokenOutcome(Result):
    """The best simulated fleets, with what they cost, if times to the first token are ``factor`` times the modelled.

    Intervals are scaled likewise, and other targets stay. None where no simulated fleet meets the targets so.
    """

    factor: float
    by_value: str | None
    with_confidence: str | None
    confident_usd_per_h: float | None


@dataclass(frozen=True, kw_only=True)
class Explanation(Result):
    """Why the recommended fleet is the answer, or why there is none."""

    binding: JudgedTarget | None
    headroom: Mapping[str, float | None] | None = field(default=None, metadata=OPTIONAL)
    """The headroom of the recommended fleet by target; None if no fleet meets the targets."""
    price_of_confidence: PriceOfConfidence | None
    next_cheapest: CheaperFleet | None
    nearest_miss: CheaperFleet | None = None
    changes: Sequence[ChangeEffect]
    model_intervals: Sequence[ModelInterval] = ()
    """Those of the recommended fleet's targets of times of requests; empty where nothing generates tokens."""
    first_tokens: Sequence[FirstTokenOutcome] = ()
    """Empty unless a target on the time to the first token may be missed within the error of the models."""
    prices: Sequence[PriceEffect] = ()
    """Empty unless the objective is the cost."""
    assumptions: Assumptions | None = None
    """None if no assumed input with a range can be varied."""
    closest: ClosestFleet | None
    search: Sequence[str]
    conflicts: Sequence[Conflict] = ()
    reach: Sequence[TargetReach] = ()
    """Where no fleet meets the targets: what no number of devices can go below."""
    sentences: Sequence[str] = ()


@dataclass(frozen=True)
class ModelInputs(Result):
    """The number of inputs of the device models, and how many of them are assumed."""

    total: int
    assumed: int


@dataclass(frozen=True)
class TraceWindow(Result):
    """The window of a trace that a workload uses: its length (s) and its ``rows``, one job each.

    ``most_rows`` is the largest number of rows in any window of that length in the file, and ``mean_rows`` the mean.
    ``busiest_from_s`` is where the busiest one begins.
    """

    workload: str
    length_s: float
    rows: int
    most_rows: int
    mean_rows: float
    busiest_from_s: float


@dataclass(frozen=True)
class OfferedWork(Result):
    """The jobs that a fleet must serve, at the scenario's load.

    Attributes:
        jobs: Their number.
        last_arrival_s: When the last one arrives (s); 0 where users submit all of them.
        prompt_tokens: The mean number of tokens of a prompt, over the jobs that generate tokens; None without any.
        prompt_tokens_p50: Their median; None as above.
        prompt_tokens_p95: Their 95th percentile; None as above.
        output_tokens: The mean number of tokens that they generate; None as above.
        windows: Of each workload whose jobs are a window of a trace, how busy other windows of it are.
    """

    jobs: int
    last_arrival_s: float
    prompt_tokens: float | None = field(default=None, metadata=OPTIONAL)
    prompt_tokens_p50: float | None = field(default=None, metadata=OPTIONAL)
    prompt_tokens_p95: float | None = field(default=None, metadata=OPTIONAL)
    output_tokens: float | None = field(default=None, metadata=OPTIONAL)
    windows: Sequence[TraceWindow] = ()


@dataclass(frozen=True)
class LoadPoint(Result):
    """The best fleet at one load: a factor on the number of jobs in the same time."""

    load: float
    value_s: float | None
    low_s: float | None
    high_s: float | None
    utilisation: float
    min_load: float | None
    meets: Meets
    keeps_up: bool
    power_w: float
    throughput_per_s: float
    throughput_per_s_per_device: float
    output_tokens_per_s_per_user: float | None
    targets: Sequence[JudgedTarget]


@dataclass(frozen=True)
class LoadCurve(Result):
    """A time (``of``) of a fleet over the load; ``knee`` is the load from which it rises steeply.

    ``most`` is the largest of these loads at which the fleet meets every target by value, and ``most_certain`` the
    largest of those with intervals at which it meets them with confidence.
    """

    fleet: str
    of: str
    limit_s: float | None
    points: Sequence[LoadPoint]
    knee: float | None
    rule: str
    most: float | None
    most_certain: float | None


@dataclass(frozen=True)
class RatePoint(Result):
    """A fleet under a load: its output tokens per second and device, and per second and user.

    ``on_frontier``: no other of the points is better in both. ``searched``: it is a fleet of the search, and not the
    recommended one under another load.
    """

    fleet: str
    load: float
    per_device: float
    per_user: float
    meets: bool
    searched: bool
    on_frontier: bool


@dataclass(frozen=True)
class SearchSummary(Result):
    """The extent of the search, and what it proves: exhaustive, monotone or open.

    ``proof`` and ``unexplored_cheaper`` are about fleets that might meet the targets by value and be better than the
    best of them; ``confidence_proof`` and ``confidence_unexplored`` about those that might with confidence.
    """

    simulated_fleets: int
    stopped_fleets: int
    """How many of them are in ``stopped``."""
    simulations: int
    further_runs: int
    """The runs that further looks at open fleets took; a run 16 times as long counts as 16."""
    rounds: int
    proof: str
    unexplored_cheaper: int
    confidence_proof: str
    confidence_unexplored: int
    considered: int
    max: Mapping[str, int]
    max_entries: int
    limit: str


@dataclass(frozen=True, kw_only=True)
class ComparedChoice(Result):
    """What is known of the fleets with one combination of the searched values that a whole fleet shares.

    ``fleet`` is the index of the best of them that meets the targets by value; None if none was found, or none that
    would be better than those with other values was sought. ``confident`` is that of the best simulated one that meets
    them with confidence; None if there is none. No fleet with these values is below ``lower_bound``, in
    the unit of the objective; None if none can meet the targets.
    """

    values: Mapping[str, object]
    text: str
    fleet: int | None
    confident: int | None
    lower_bound: float | None
    simulated: int


@dataclass(frozen=True)
class ExcludedValues(Result):
    """Searched values with which nothing runs, and why: a model does not fit or does not divide, for example."""

    values: Mapping[str, object]
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlanResult(Result):
    """The result of a plan, as plan.json holds it."""

    name: str
    description: str | None
    objective: str
    seed: int
    confidence: float
    replications: int
    spare: int
    engine: str | None
    """None if nothing was simulated."""
    fleets: Sequence[PlannedFleet]
    """The simulated fleets that meet every target by value, the best first."""
    recommended: int
    """The index of the first of ``fleets`` that meets every target with confidence; 0 where there is none."""
    lower_bound: LowerBound
    gap: float | None
    searched: Mapping[str, object]
    """What the plan chose among: the values or the range of each key."""
    held: Mapping[str, object]
    """What was held: the keys of the scenario that the plan does not vary and that the answer depends on."""
    choices: Sequence[ComparedChoice]
    """The combinations of the searched values that a whole fleet shares; empty if there are none."""
    excluded: Sequence[ExcludedValues]
    entries: Sequence[CandidateEntry]
    explanation: Explanation
    inputs: ModelInputs
    work: OfferedWork
    time: str
    """The name of the time in ``simulated`` and in the charts."""
    front: Sequence[PlannedFleet]
    curve: LoadCurve | None
    rates: Sequence[RatePoint]
    """Empty where nothing generates several tokens."""
    search: SearchSummary
    notes: Sequence[str]
    simulated: Sequence[SimulatedFleet]
    stopped: Sequence[StoppedFleet]
    """Fleets that the search simulated only until a target was lost for certain."""
    deployment: Deployment | None
    """The configuration of the recommended fleet; None without one, and where nothing serves a decoder."""
    scenario: Mapping[str, object]
    versions: Mapping[str, str]
    has_continuous_batches: bool = field(metadata=HIDDEN)
    run_replications: int = field(metadata=HIDDEN)
    """The number of replications with which ``run`` judges the recommended fleet as it was judged; 1 for the usual."""
    changes: Sequence[str]
    """The ``PATH=VALUE`` of ``--set`` that make the scenario that of the recommended fleet; empty without one."""
    listed: Sequence[int] = field(metadata=HIDDEN)
    """The indices of the fleets that text and report list."""
