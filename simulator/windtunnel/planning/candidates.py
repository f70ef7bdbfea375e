"""The candidate entries of a plan: their names, prices and bounds, and the simulated evaluations of fleets of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.results.objective import OBJECTIVES, amount
from windtunnel.core.results.plan import ConfiguredEntry, OfferedWork, PlannedFleet, StoppedFleet, TraceWindow
from windtunnel.core.results.target import ModelInterval, worst_intervals
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.arrivals.traces import other_windows
from windtunnel.engine.prepare.demand import Demand
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.planning import looks
from windtunnel.planning.bounds import Bound, Bounds, Counts, Replicated
from windtunnel.planning.choices import Choice
from windtunnel.planning.evaluation import Evaluation, binding, headroom_text, violations, with_reduced
from windtunnel.planning.search import Verdict
from windtunnel.planning.simulate import USUAL, Case, Redraws, Setting, fleet_text
from windtunnel.planning.workers import Simulator
from windtunnel.scenario.arrivals import Trace
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.scenario import Scenario
from windtunnel.scenario.target import Target
from windtunnel.simulation.model_error import METRICS

PER_MILLION = "cost_per_million_output_tokens"


def _most_tokens_per_s(demand: Demand) -> float:
    """Return an upper bound on the output tokens of a run over its length; infinite where none is known."""
    # `following` does not count the first token of a request.
    return _per_s(demand, float(demand.following.sum() + len(demand)))


def offered_per_s(demand: Demand) -> float:
    """Return an upper bound on the throughput: of output tokens, or of jobs where nothing generates tokens.

    Where jobs arrive by themselves, it is the throughput of every fleet that keeps up. Where users submit them, each
    user has one job at a time, which takes no less than it takes alone.
    """
    generating = np.isin(demand.workload, np.unique(demand.workload[demand.following > 0]))
    work = demand.following + generating if generating.any() else np.ones(len(demand))
    if not demand.closed:
        return _per_s(demand, float(work.sum()))
    alone_s = np.where(demand.eligible, demand.alone_s, math.inf).min(axis=0)
    with np.errstate(divide="ignore"):
        return float(demand.users * (work / alone_s).max())


def work_of(demand: Demand) -> str:
    """Return what the throughput of a run counts."""
    return "tokens" if demand.following.any() else "jobs"


def _trace_windows(scenario: Scenario) -> list[TraceWindow]:
    windows = []
    for number, workload in enumerate(scenario.workload):
        arrivals = workload.arrivals
        if isinstance(arrivals, Trace) and arrivals.until is not None:
            where = partial(scenario.where, "workload", number, "arrivals")
            rows = other_windows(arrivals, scenario.folder, where)
            if rows is not None:
                windows.append(TraceWindow(workload.name, arrivals.until - arrivals.from_, *rows))
    return windows


def _per_s(demand: Demand, number: float) -> float:
    last = demand.end_s if demand.end_s is not None else float(demand.arrival_s.max(initial=0.0))
    return math.inf if demand.closed or not last else number / last


@dataclass(frozen=True, eq=False)
class Candidates:
    """The entries that a plan may use, and what is known of fleets made of them.

    ``prices`` are in USD/h, one for each entry, and ``rents`` are those that a fleet pays whatever the load: 0 for an
    entry that is scaled. ``scaled`` has the rules of such entries by number. ``max_counts`` is how many devices of
    each entry a fleet may have.
    ``notes`` collects what a reader of the plan must know. ``choice`` has the values that were chosen for all these
    fleets, and ``number`` is its place among the choices.
    """

    scenario: Scenario
    plan: Plan
    names: Sequence[str]
    devices: Sequence[Device]
    prices: FloatArray
    rents: FloatArray
    scaled: Mapping[int, Autoscale]
    demand: Demand
    bounds: Replicated
    max_counts: Counts
    simulator: Simulator
    choice: Choice
    number: int
    notes: list[str] = field(default_factory=list)

    @property
    def entries(self) -> int:
        """The number of candidate entries."""
        return len(self.names)

    @cached_property
    def windows(self) -> Sequence[TraceWindow]:
        """The windows of traces that are the work, with how busy others of the same length are."""
        return _trace_windows(self.scenario)

    @property
    def busiest_window(self) -> TraceWindow | None:
        """The window of the only workload if another one of its trace has more rows."""
        only = self.windows[0] if len(self.scenario.workload) == 1 and self.windows else None
        return only if only is not None and only.most_rows > only.rows else None

    def offered_work(self, prepared: PreparedRun) -> OfferedWork:
        """Return the jobs that a fleet must serve, which ``prepared`` has."""
        demand, programs = self.demand, {work: program for (_, work), program in prepared.compiled.items()}.values()
        prompts = [program.prompts for program in programs if program.prompts is not None]
        outputs = [program.outputs for program in programs if program.outputs is not None]
        output = float(np.concatenate(outputs).mean()) if outputs else None
        mean = median = longest = None
        if prompts:
            of_all = np.concatenate(prompts)
            mean, median, longest = float(of_all.mean()), *map(float, np.percentile(of_all, (50, 95)))
        last_s = 0.0 if demand.closed else float(demand.arrival_s.max(initial=0.0))
        return OfferedWork(len(demand), last_s, mean, median, longest, output, self.windows)

    @cached_property
    def max_cost(self) -> float:
        """The smallest limit (USD/h) that a target sets on the rent; infinite without one."""
        return min(map(self.rent_limit, self.scenario.parsed_targets()), default=math.inf)

    def rent_limit(self, target: Target) -> float:
        """Return the rent (USD/h) above which no fleet meets a target; infinite where it does not limit the rent.

        The cost per million output tokens is the rent times the length of the run over its tokens. A run is no shorter
        than its last arrival, and completes no more tokens than all jobs have. Over replications a mean is within a
        limit only if that of one of them is.
        """
        if target.comparison == "<=" and target.metric == "cost":
            return target.limit * 3600
        if target.comparison == "<=" and target.metric == PER_MILLION:
            return max(target.limit * _most_tokens_per_s(demand) / 1e6 * 3600 for demand in self.bounds.demands)
        return math.inf

    @cached_property
    def weights(self) -> tuple[FloatArray, float]:
        """Return the least that each device, and each watt of work above idle power, adds to the objective."""
        if self.plan.objective == "cost":
            return self.rents, 0.0
        if self.plan.objective == "throughput":
            rate = max(map(offered_per_s, self.bounds.demands))
            fixed = np.array([0.0 if i in self.scaled else float(size) for i, size in enumerate(self.sizes)])
            return fixed / rate, 0.0
        per_watt = 1.0
        if self.plan.objective == "carbon":
            site = self.scenario.site
            assert site is not None and site.carbon is not None  # noqa: S101  checked before
            # Grams per joule in the hour with the least carbon, as kg in an hour.
            per_watt = site.pue * min(site.carbon) * 3.6
        return self.demand.idle_w * per_watt, per_watt

    @cached_property
    def sizes(self) -> Counts:
        """The devices of a group of each entry; 1 for an entry without groups."""
        return tuple(entry.group_size for entry in self.scenario.fleet)

    @property
    def max_devices(self) -> Counts:
        """The largest number of devices of each entry."""
        return tuple(n * size for n, size in zip(self.max_counts, self.sizes, strict=True))

    def node_devices(self, entry: int) -> int | None:
        """Return how many devices of an entry are in a node, as the scenario or the SKU has it; None if neither has."""
        stated = self.scenario.fleet[entry].node.devices or self.devices[entry].number("devices_per_node")
        return None if stated is None else int(stated)

    # Results of the bounds.

    def may_be_feasible(self, case: Case) -> bool:
        """Return whether every job can run on some devices of the fleet."""
        return any(case.counts) and self.bounds.fits(case.counts) and math.isfinite(self.bounds.load(case.counts)[0])

    def min_load(self, counts: Sequence[int]) -> float | None:
        """Return a lower bound on the load of a fleet in its busiest period; None where it cannot do the work."""
        load = self.bounds.load(tuple(counts))[0]
        return load if math.isfinite(load) else None

    def objective_lower_bound(self, counts: Sequence[int]) -> float:
        """Return what the devices of a fleet add to the objective at least; fleets are ranked by it."""
        return float(np.asarray(counts, dtype=np.float64) @ self.weights[0])

    def rent_lower_bound(self, bounds: Replicated, most: int | None = None) -> Bound:
        """Return the lower bound on the mean rent (USD/h) of a fleet with at most ``most`` devices of each entry.

        Where ``most`` is None, the limits of the plan on devices and entries hold. Infinite if no fleet is feasible.
        """
        counts = self.max_counts if most is None else (most,) * self.entries
        cost = bounds.lower_bound(self.rents, counts, self.plan.max_entries if most is None else self.entries)
        if self.scaled and math.isfinite(cost.value):
            return replace(cost, value=max(cost.value, self.autoscaled_usd_per_h(bounds), 0.0))
        return cost

    def least_rent_usd(self, run: Bounds) -> FloatArray:
        """Return what each job of a run that counts costs if devices are rented only while they work; shape (jobs,)."""
        demand = run.demand
        least = np.full(len(demand), math.inf)
        for c in range(self.entries):
            need_s = np.zeros(len(demand))
            for resource in demand.resources:
                if resource.class_number == c:
                    need_s = np.maximum(need_s, resource.whole_s / resource.capacity)
            least = np.minimum(least, np.where(demand.eligible[c], need_s * self.prices[c] / 3600, math.inf))
        return np.asarray(least[run.counted])

    def autoscaled_usd_per_h(self, bounds: Replicated) -> float:
        """Return a lower bound on the mean rent of any fleet, scaled or not; 0 where the work has no lower bound.

        Of several replications, each may miss a target that their mean meets, so none is ended by its throughput.
        """
        lengths = [run.run_s if len(bounds.runs) == 1 else run.latest_s for run in bounds.runs]
        if not self.demand.complete or not all(map(math.isfinite, lengths)):
            return 0.0
        rents = [self.least_rent_usd(run).sum() / length for run, length in zip(bounds.runs, lengths, strict=True)]
        return float(np.mean(rents) * 3600 * (1 - 1e-9))

    # Results of the simulation.

    def _cases(self, case: Case) -> dict[Case, str]:
        """Return the fleet, and with ``spare`` also the fleet without that many devices of each entry.

        Each has the devices that are out of service as text, which is empty for the whole fleet.
        """
        cases = {case: ""}
        if self.plan.spare:
            for i, n in enumerate(case.counts):
                if n:
                    lost = min(self.plan.spare, n)
                    less = tuple(m - lost if i == j else m for j, m in enumerate(case.counts))
                    devices = f"{lost * self.sizes[i]:,} × {self.names[i]}"
                    cases[replace(case, counts=less)] = f"all {devices}" if lost == n > 1 else devices
        return cases

    def _simulated(self, cases: Sequence[Case]) -> list[Case]:
        """Return what is simulated to judge the cases."""
        return [part for case in cases for part in self._cases(case) if self.may_be_feasible(part)]

    def announce(self, cases: Sequence[Case], *, redraws: Redraws = USUAL) -> None:
        """Say that these cases will be judged, so that they are simulated whenever a worker is free."""
        self.simulator.announce(self._simulated(cases), redraws=redraws)

    def unknown(self, cases: Sequence[Case]) -> list[tuple[Setting, Case]]:
        """Return what would be simulated to judge cases."""
        simulator = self.simulator
        return [(simulator.setting, part) for part in self._simulated(cases) if simulator.found(part) is None]

    def judge(self, cases: Sequence[Case], goal: str = "value", *, redraws: Redraws = USUAL) -> list[Evaluation]:
        """Simulate fleets, each under a load and with speeds, and return their evaluations.

        Where they are to meet the targets with ``confidence``, fleets that this leaves open are looked at again.
        ``redraws``: the redrawn runs of those that are not known yet.
        """
        self.simulator(self._simulated(cases), redraws=redraws)
        if goal == "confidence":
            self.look_again(cases)
        return [self.evaluation(case) for case in cases]

    def look_again(self, cases: Sequence[Case]) -> None:
        """Look again at simulated fleets while a longer run, or more replications, may decide them (see ``looks``)."""
        for _ in looks.TIMES:
            parts: dict[Case, Case] = {}
            for case in dict.fromkeys(cases):
                found, setting = self.evaluation(case), self.simulator.setting
                times, runs = found.further, setting.replications
                if runs == 1 and found.judged_by == "replications":
                    runs = setting.further
                own = [] if times is None else self._simulated([case.whole])
                if times is not None and self.simulator.workers.spend(times * runs * len(own)):
                    parts |= {part: replace(part, times=times) for part in own}
            self.simulator.look_again(list(parts), list(parts.values()))

    def redraw(self, counts: Counts, redraws: Redraws, *, announced: bool = False, same_verdict: bool = False) -> None:
        """Have a fleet that fewer redrawn runs judged judged by ``redraws``.

        ``announced``: it will be asked for, and is only announced here. ``same_verdict``: unless the verdict changes.
        """
        parts = self._simulated([Case(counts)])
        further = [replace(part, redraws=redraws) for part in parts]
        if announced:
            self.simulator.announce(further)
        else:
            self.simulator.look_again(parts, further, same_verdict=same_verdict)

    def verdicts(
        self, fleets: Sequence[Counts], goal: str, *, again: bool = True, redraws: Redraws = USUAL
    ) -> list[Verdict]:
        """Simulate fleets and return whether each meets the targets by ``value``, or with ``confidence``.

        ``again``: fleets that may be decided by a further look are looked at again for the latter. ``redraws``: see
        ``judge``.
        """
        cases = [Case(counts, until_lost=True) for counts in fleets]
        return [
            Verdict(e.reaches(goal), e.objective(self.plan.objective), goal == "value" or e.decided)
            for e in self.judge(cases, goal if again else "value", redraws=redraws)
        ]

    def whole(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation of a fleet from a whole run, which is simulated if that of ``evaluation`` was ended."""
        return evaluation if evaluation.stopped_after is None else self.judge([Case(evaluation.counts)])[0]

    def model_error_cases(self, evaluation: Evaluation) -> dict[Case, str]:
        """Return the cases that give the intervals of a fleet's targets for the error of the models.

        With ``spare`` they are also those of the reduced fleets, each judged as it was. Each case has the devices that
        are out of service as text. Empty if no target is on a time of requests, so that none can have any.
        """
        if not any(target.metric in METRICS for target in evaluation.targets):
            return {}
        cases = {}
        for case, lost in self._cases(Case(evaluation.counts)).items():
            judged = (self.simulator.found(case) if lost else None) or evaluation
            cases[replace(case, error_of=judged.judged_by, times=judged.times)] = lost
        return cases

    def model_intervals(self, evaluation: Evaluation) -> Sequence[ModelInterval]:
        """Return the intervals of a fleet's targets for the error of the models; empty where they have none.

        With ``spare`` that of a target is the worst one over the whole and the reduced fleets.
        """
        cases = self.model_error_cases(evaluation)
        return worst_intervals(
            [
                [replace(interval, out_of_service=lost or None) for interval in found.model_intervals]
                for found, lost in zip(self.simulator(list(cases)), cases.values(), strict=True)
            ]
        )

    def evaluation(self, fleet: Case) -> Evaluation:
        """Return what was simulated of a fleet; with ``spare`` its targets are the worst without that many devices."""
        (whole, _), *reduced = self._cases(fleet).items()
        found = replace(self.simulator.evaluation(whole), choice=self.number)
        for case, lost in reduced:
            left = self.simulator.evaluation(case) if self.may_be_feasible(case) else None
            found = with_reduced(found, left, lost)
        return found if found.meets.value else replace(found, further=None)

    # Texts and rows.

    def notes_of_spare(self, evaluation: Evaluation) -> list[str]:
        """Return the binding target of the whole fleet and of each reduced one, where devices are spare."""
        cases = self._cases(Case(evaluation.counts))
        notes = []
        for case, lost in cases.items() if len(cases) > 1 else ():
            binds = binding(self.simulator.evaluation(case)) if self.may_be_feasible(case) else None
            if binds is not None:
                which = f"without {lost}" if lost else "with all devices in service"
                notes.append(f"{self.text(evaluation.counts)} {which}: {binds.text}: {headroom_text(binds)}")
        return notes

    def replicas_text(self, entry: int, replicas: int) -> str:
        """Return one replica of an entry, or those of a node, as text, such as ``one replica of h200 (4 devices)``."""
        size, name = self.sizes[entry], self.names[entry]
        if replicas == 1:
            return f"one {name}" if size == 1 else f"one replica of {name} ({size:,} devices)"
        parts = f"{replicas:,} devices" if size == 1 else f"{replicas:,} replicas of {size:,} devices"
        return f"one node of {name} ({parts})"

    def named(self, counts: Sequence[int]) -> dict[str, int]:
        """Return the devices of a fleet by entry, without entries of which it has none."""
        return {name: int(n) * size for name, n, size in zip(self.names, counts, self.sizes, strict=True) if n}

    def priced(self, counts: Sequence[int]) -> dict[tuple[str, float], int]:
        """Return the devices of a fleet by the entry of the scenario that states their price, and by the price."""
        devices: dict[tuple[str, float], int] = {}
        for alternative, price, n, size in zip(self.choice.alternatives, self.prices, counts, self.sizes, strict=True):
            if n:
                key = alternative.base, float(f"{price / size:.9g}")
                devices[key] = devices.get(key, 0) + n * size
        return devices

    def text(self, counts: Sequence[int]) -> str:
        """Return a fleet as text, such as ``2 × large + 1 to 3 × small``, where the entry ``small`` is scaled."""
        devices = [n * size for n, size in zip(counts, self.sizes, strict=True)]
        numbers = [f"{n:,}" for n in devices]
        for i, rule in self.scaled.items():
            least = min(rule.min * self.sizes[i], devices[i])
            numbers[i] = f"{least:,} to {devices[i]:,}" if least < devices[i] else numbers[i]
        fleet = fleet_text(self.names, numbers)
        return f"{fleet}; {self.choice.text}" if self.choice.values else fleet

    def objective_text(self, evaluation: Evaluation) -> str:
        """Return the value of the objective of a fleet as text."""
        return self.amount(evaluation.objective(self.plan.objective))

    @property
    def unit(self) -> str:
        """The unit of the objective as it is shown."""
        unit = OBJECTIVES[self.plan.objective].unit
        return f"{work_of(self.demand)}{unit}" if self.plan.objective == "throughput" else unit

    def amount(self, value: float) -> str:
        """Return a value that the search minimises as text."""
        return amount(OBJECTIVES[self.plan.objective].shown(value), self.unit)

    def _by_sku(self, counts: Sequence[int]) -> dict[str, int]:
        """Return the devices of a fleet by SKU."""
        devices: dict[str, int] = {}
        for device, n, size in zip(self.devices, counts, self.sizes, strict=True):
            if n:
                devices[device.label] = devices.get(device.label, 0) + n * size
        return devices

    def _configuration(self, counts: Sequence[int]) -> list[ConfiguredEntry]:
        """Return how the devices of each entry of a fleet are used."""
        entries = self.scenario.fleet
        return [
            ConfiguredEntry(
                entry=self.names[i],
                device=self.devices[i].label,
                count=int(n) * self.sizes[i],
                group=None if (group := entries[i].group) is None else group.model_dump(exclude_none=True),
                role=entries[i].role if self.scenario.models else None,
                node=self.node_devices(i),
                settings=self.choice.settings(i),
            )
            for i, n in enumerate(counts)
            if n
        ]

    def stopped(self, evaluation: Evaluation) -> StoppedFleet:
        """Return a fleet whose run was ended as the plan lists it."""
        return StoppedFleet(
            devices=self._by_sku(evaluation.counts),
            entries=self.named(evaluation.counts),
            configuration=self._configuration(evaluation.counts),
            text=self.text(evaluation.counts),
            cost_usd_per_h=evaluation.cost_usd_per_h,
            min_load=self.min_load(evaluation.counts),
            jobs=evaluation.stopped_after or 0,
            least={t.text: t.value for t in evaluation.targets if t.value is not None},
            violations=violations(evaluation),
        )

    def planned(self, evaluation: Evaluation) -> PlannedFleet:
        """Return a fleet as the plan lists it."""
        return PlannedFleet(
            devices=self._by_sku(evaluation.counts),
            entries=self.named(evaluation.counts),
            configuration=self._configuration(evaluation.counts),
            text=self.text(evaluation.counts),
            cost_usd_per_h=evaluation.cost_usd_per_h,
            power_w=evaluation.power_w,
            peak_power_w=evaluation.peak_power_w,
            energy_cost_usd_per_h=evaluation.energy_cost_usd_per_h,
            total_cost_usd_per_h=evaluation.total_cost_usd_per_h,
            carbon_kg_per_h=evaluation.carbon_kg_per_h,
            usd_per_million_output_tokens=evaluation.usd_per_million_output_tokens,
            throughput_per_s_per_device=evaluation.throughput_per_s / evaluation.devices,
            output_tokens_per_s_per_user=None if not evaluation.tpot_mean_s else 1 / evaluation.tpot_mean_s,
            prefix_hit_rate=evaluation.prefix_hit_rate,
            utilisation=evaluation.utilisation,
            p50_s=evaluation.p50_s,
            p99_s=evaluation.p99_s,
            keeps_up=evaluation.keeps_up,
            meets=evaluation.meets,
            judged_by=evaluation.judged_by,
            times=evaluation.times,
            min_load=self.min_load(evaluation.counts),
            targets=evaluation.targets,
            violations=violations(evaluation),
        )
