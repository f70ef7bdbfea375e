"""The result of a plan. Fields have the names and the units of plan.json, which docs/planning.md defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.data import HIDDEN, OPTIONAL, Result


@dataclass(frozen=True)
class JudgedTarget(Result):
    """A target of a fleet, judged with confidence; numbers are in its ``unit``.

    ``verdict``: met, missed or unknown. ``worse_end`` is the end of the interval by which it is judged.
    ``interval_source``: run, replications, exact or none. ``headroom`` is the share of the limit between the two.
    """

    text: str
    met: bool
    verdict: str
    value: float | None
    low: float | None
    high: float | None
    worse_end: float | None
    limit: float
    unit: str
    comparison: str
    metric: str
    statistic: str | None
    workload: str | None
    interval_source: str
    confidence: float
    reason: str | None
    headroom: float | None


@dataclass(frozen=True)
class PlannedFleet(Result):
    """A fleet: its devices by SKU and by entry, its cost and measured values, and its targets."""

    devices: Mapping[str, int]
    entries: Mapping[str, int]
    text: str
    cost_usd_per_h: float
    power_w: float
    peak_power_w: float
    energy_cost_usd_per_h: float | None
    total_cost_usd_per_h: float | None
    carbon_kg_per_h: float | None
    utilisation: float
    p50_s: float | None
    p99_s: float | None
    keeps_up: bool
    verdict: str
    """``meets``, ``unknown`` or ``fails``."""
    judged_by: str
    min_load: float | None
    """A lower bound on the load in the busiest interval; None if the fleet cannot do the work."""
    targets: Sequence[JudgedTarget]
    violations: Sequence[str]


@dataclass(frozen=True)
class SimulatedFleet(PlannedFleet):
    """A fleet that the search simulated. ``time_s`` is its value of the binding time of the best fleet."""

    met: bool
    time_s: float | None


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
class TimeError(Result):
    """The factor by which the time of ``op`` may exceed its model's (90%), and the ``basis`` of that model."""

    factor: float
    op: str
    basis: str


@dataclass(frozen=True)
class CandidateEntry(Result):
    """A candidate entry. ``reason`` says why it was excluded, or why no fleet of it alone was found."""

    name: str
    device: str
    price_usd_per_h: float
    reason: str | None
    time_error: TimeError | None


@dataclass(frozen=True)
class CheaperFleet(Result):
    """The most expensive simulated fleet that costs less than the best and fails."""

    fleet: str
    objective_text: str
    verdict: str
    violations: Sequence[str]


@dataclass(frozen=True)
class ClosestFleet(Result):
    """The fleet that is nearest to meeting the targets if none meets them."""

    fleet: str
    violations: Sequence[str]


@dataclass(frozen=True)
class ChangeEffect(Result):
    """The best fleet under a change of the load or of the devices' speeds, and the cheapest fleet found for it."""

    change: str
    load: float
    speeds: Mapping[str, float]
    increases_load: bool
    still_meets: bool
    verdict: str
    headroom: float | None
    binding: JudgedTarget | None
    explained_by_interval: bool
    violations: Sequence[str]
    candidates_tried: int
    fleet: str | None
    devices: Mapping[str, int] | None
    objective_text: str | None


@dataclass(frozen=True, kw_only=True)
class Explanation(Result):
    """Why the best fleet is the answer, or why there is none."""

    binding: JudgedTarget | None
    headroom: Mapping[str, float | None] | None = field(default=None, metadata=OPTIONAL)
    """The headroom of the best fleet by target; None if no fleet meets the targets."""
    next_cheapest: CheaperFleet | None
    changes: Sequence[ChangeEffect]
    closest: ClosestFleet | None
    search: Sequence[str]
    unreachable: Sequence[str] = ()
    sentences: Sequence[str] = ()


@dataclass(frozen=True)
class ModelInputs(Result):
    """The number of inputs of the device models, and how many of them are assumed."""

    total: int
    assumed: int


@dataclass(frozen=True)
class LoadPoint(Result):
    """The best fleet at one load: a factor on the number of jobs in the same time."""

    load: float
    value_s: float | None
    low_s: float | None
    high_s: float | None
    utilisation: float
    min_load: float | None
    met: bool
    verdict: str
    keeps_up: bool


@dataclass(frozen=True)
class LoadCurve(Result):
    """A time (``of``) of the best fleet over the load; ``knee`` is the load from which it rises steeply."""

    fleet: str
    of: str
    limit_s: float | None
    points: Sequence[LoadPoint]
    knee: float | None
    rule: str


@dataclass(frozen=True)
class SearchSummary(Result):
    """The extent of the search, and what it proves: exhaustive, monotone or open."""

    simulated_fleets: int
    simulations: int
    rounds: int
    proof: str
    unexplored_cheaper: int
    considered: int
    max: Mapping[str, int]
    max_entries: int
    limit: str


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
    """The best fleets that meet every target."""
    inconclusive: Sequence[PlannedFleet]
    lower_bound: LowerBound
    gap: float | None
    entries: Sequence[CandidateEntry]
    explanation: Explanation
    inputs: ModelInputs
    time: str
    """The name of the time in ``simulated`` and in the charts."""
    front: Sequence[PlannedFleet]
    curve: LoadCurve | None
    search: SearchSummary
    notes: Sequence[str]
    simulated: Sequence[SimulatedFleet]
    scenario: Mapping[str, object]
    versions: Mapping[str, str]
    has_continuous_batches: bool = field(metadata=HIDDEN)
