"""Makes a plan: the candidates, the lower bounds, the search, and the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.recommendation import recommendation
from windtunnel.core.results.plan import (
    CandidateEntry,
    LowerBound,
    ModelInputs,
    PlanResult,
    SearchSummary,
    SimulatedFleet,
)
from windtunnel.core.ticks import FloatArray
from windtunnel.core.units import format_quantity
from windtunnel.engine.prepare.checks import doubtful_settings
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.engine.prepare.offered_load import max_failed_jobs
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.scenario import prepare
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning import explanation
from windtunnel.planning.bounds import Bound, Counts, Replicated
from windtunnel.planning.candidates import UNITS, Candidates
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.judge import draws
from windtunnel.planning.search import Search, SearchResult, Space
from windtunnel.planning.simulate import Case, Setting, Simulator, entry_name, simulate, variant
from windtunnel.scenario.arrivals import Closed
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.scenario import ContinuousBatch, Scenario
from windtunnel.simulation import versions as versions_module
from windtunnel.simulation.fleet import fleet_devices, policy_of
from windtunnel.simulation.run import replication_seed
from windtunnel.simulation.sources import model_accuracy, provenance, widest_error
from windtunnel_models.catalogue import Catalogue

_MAX_FAILED_JOBS = 0.5
"""The largest expected number of failed jobs: the lower bound assumes that every job completes."""

_ALONE = {
    "cannot": "by its model, it alone cannot serve every job in time, however many there are",
    "too few allowed": "alone it would take more than the {max:,} that are allowed",
    "maximum fails": "alone, {max:,} of them still fail",
    "too expensive": "not searched further: alone it costs at least 1.5 times the best fleet",
}
"""The reasons of `Search` why there is no fleet of one entry, as text."""


@dataclass(frozen=True)
class _LowerBounds:
    """The lower bounds on the rent (USD/h) and on the objective; infinite if no fleet is feasible."""

    cost: Bound
    objective: Bound


class Planner:
    """Makes one plan. Raises InputError for an invalid scenario before anything runs."""

    def __init__(
        self, scenario: Scenario, catalogue: Catalogue, workers: int, progress: Callable[[int], None] | None
    ) -> None:
        self.scenario = scenario
        self.catalogue = catalogue
        self.options = scenario.plan or Plan()
        self.targets = scenario.parsed_targets()
        self.entries = len(scenario.fleet)
        self.names = [entry_name(scenario, i) for i in range(self.entries)]
        self.devices = fleet_devices(scenario, catalogue)
        self._check()
        self.prices = self._prices()
        self.workers, self.progress = workers, progress
        self.notes: list[str] = []

    def _prices(self) -> np.ndarray:
        prices = []
        for i, (entry, device) in enumerate(zip(self.scenario.fleet, self.devices, strict=True)):
            price = entry.price if entry.price is not None else device.number("price_usd_per_h")
            if price is None:
                raise InputError(
                    f"a plan needs the price of every candidate; {self.names[i]} has none",
                    where=self.scenario.where("fleet", i),
                    expected="price: 2.5 USD/h",
                )
            prices.append(price * 3600)
        return np.array(prices)

    def _check(self) -> None:
        for i, entry in enumerate(self.scenario.fleet):
            if entry.real is not None:
                raise InputError(
                    f"{entry.real} is a single device of this host; a plan chooses how many devices to rent",
                    where=self.scenario.where("fleet", i, "real"),
                    expected=f"its model: device: {entry.device}",
                )
        if not self.targets:
            raise InputError(
                "there is no target to plan for",
                where=self.scenario.where("targets"),
                expected="targets such as 'latency p99 <= 20 ms'",
            )
        for i, workload in enumerate(self.scenario.workload):
            if isinstance(workload.arrivals, Closed):
                raise InputError(
                    f"the users of '{workload.name}' form a closed loop; the number of jobs depends on the fleet, so "
                    "no lower bound exists",
                    where=self.scenario.where("workload", i, "arrivals"),
                    expected="arrivals that do not depend on the fleet; `windtunnel sweep` compares fleets with users",
                )
        for i, workload in enumerate(self.scenario.workload):
            if workload.gang is not None and workload.gang > 1:
                raise InputError(
                    f"the jobs of '{workload.name}' occupy {workload.gang:,} devices each, and the search of a plan "
                    "assumes that any number of devices is of use",
                    where=self.scenario.where("workload", i, "gang"),
                    expected="no gang; `windtunnel sweep` compares fleets with gangs",
                )
            if workload.patience is not None:
                raise InputError(
                    f"jobs of '{workload.name}' may give up waiting; the amount of work then depends on the fleet, so "
                    "no lower bound exists",
                    where=self.scenario.where("workload", i, "patience"),
                    expected="no patience; `windtunnel sweep` compares fleets",
                )
        if self.scenario.autoscale:
            raise InputError(
                "a plan chooses a constant number of devices, and autoscale changes it",
                where=self.scenario.where("autoscale"),
                expected="no autoscale; `windtunnel sweep` compares its settings",
            )
        site = self.scenario.site
        if self.options.objective == "carbon" and (site is None or site.carbon is None):
            raise InputError(
                "the objective carbon needs the carbon intensity of the site",
                where=self.scenario.where("plan", "objective"),
                expected="site: {carbon: 350 g/kWh}",
            )
        if isinstance(self.options.max, dict):
            for name in self.options.max:
                if name not in self.names:
                    raise InputError(
                        f"the fleet has no '{name}'",
                        where=self.scenario.where("plan", "max", name),
                        expected=list_choices(self.names),
                        nearest=nearest(name, self.names),
                    )

    # Steps.

    def run(self) -> PlanResult:
        """Compute the bounds, search, and explain."""
        prepared = self.prepared(self.scenario)
        failed = max_failed_jobs(prepared)
        if failed > _MAX_FAILED_JOBS:
            raise InputError(
                f"faults may end about {failed:,.0f} of {prepared.job_count:,} jobs for good; the amount of work then "
                "depends on the fleet, so no lower bound exists",
                where=self.scenario.where("faults"),
                expected="on_failure: retry or migrate, and enough max_attempts; `windtunnel sweep` compares fleets",
            )
        demand = minimum_demand(prepared)
        longest = float(np.where(demand.eligible, demand.alone_s, 0.0).max())
        setting = Setting(self.scenario, self.catalogue, self.options.confidence, 1, longest, self.options.replications)
        bounds = Replicated([demand], self.targets)
        max_counts = self._max_counts(bounds)
        simulator = Simulator(setting, self.workers, self.progress)
        try:
            setting = self._setting(simulator, bounds, max_counts)
            if setting.replications > 1:
                demands = [demand] + [
                    minimum_demand(self.prepared(self.scenario.reseeded(replication_seed(self.scenario.seed, i))))
                    for i in range(1, setting.replications)
                ]
                longest = max(float(np.where(d.eligible, d.alone_s, 0.0).max()) for d in demands)
                simulator.setting = replace(setting, longest_s=longest)
                bounds = Replicated(demands, self.targets)
                max_counts = self._max_counts(bounds)
            self.candidates = Candidates(
                scenario=self.scenario,
                plan=self.options,
                names=self.names,
                devices=self.devices,
                prices=self.prices,
                demand=demand,
                bounds=bounds,
                max_counts=max_counts,
                simulator=simulator,
                notes=self.notes,
            )
            return self._answer(prepared)
        finally:
            simulator.close()

    def prepared(self, scenario: Scenario) -> PreparedRun:
        """Return ``scenario`` with one device of each entry, prepared for a run."""
        ones = variant(scenario, Case((1,) * self.entries))

        def preference(use: str, api: str, kind: str) -> float:
            return recommendation(use).preference(api=api, kind=kind)

        return prepare(ones, self.devices, policy_of(scenario), preference)

    def _max_counts(self, bounds: Replicated) -> Counts:
        """Return the largest count of each entry: the stated one, or four times that of the lower bound."""
        stated = self.options.max
        mixed, _ = bounds.load((1,) * self.entries)
        counts = []
        for i in range(self.entries):
            if isinstance(stated, int):
                counts.append(stated)
                continue
            if isinstance(stated, dict) and self.names[i] in stated:
                counts.append(stated[self.names[i]])
                continue
            alone, _ = bounds.load(self._only(i, 1))
            need = alone if math.isfinite(alone) else mixed * self.entries
            counts.append(max(8, math.ceil(4 * need)) if math.isfinite(need) else 8)
        return tuple(counts)

    def _only(self, entry: int, count: int) -> Counts:
        return tuple(count if i == entry else 0 for i in range(self.entries))

    def _setting(self, simulator: Simulator, bounds: Replicated, max_counts: Counts) -> Setting:
        """Return the setting of the simulations, with replications if one run does not suffice for all intervals."""
        loads = [(bounds.load(self._only(i, 1))[0], i) for i in range(self.entries)]
        load, entry = min(loads)
        ample = (
            self._only(entry, min(max_counts[entry], max(1, math.ceil(2 * load))))
            if math.isfinite(load)
            else tuple(min(m, 2) for m in max_counts)
        )
        if not math.isfinite(bounds.load(ample)[0]):
            return simulator.setting
        evaluation = simulate(replace(simulator.setting, further=1), Case(ample))
        without = [t.text for t in evaluation.targets if t.interval_source == "none"]
        if not without:
            simulator.keep(Case(ample), evaluation)
            return simulator.setting
        if draws(self.scenario):
            self.notes.append(
                f"one run gives no confidence interval for {'; '.join(without)}: every fleet was judged by "
                f"{self.options.replications} runs with common seeds"
            )
            simulator.setting = replace(simulator.setting, replications=self.options.replications)
        return simulator.setting

    # Long: it has one expression for each key of the plan.
    def _answer(self, prepared: PreparedRun) -> PlanResult:
        candidates, objective = self.candidates, self.options.objective
        lower = self._lower_bounds()
        budget = self._max_cost() * (1 + 1e-9)
        space = self._space(budget)
        # If the lower bound alone excludes every fleet, nothing is simulated.
        if not math.isfinite(lower.cost.value) or lower.cost.value > budget:
            search = Search(space, candidates.verdicts, 0).run_bound_only()
            simulated: list[Counts] = []
        else:
            search, simulated = self._search(space)
        evaluations = [candidates.evaluation(Case(counts)) for counts in simulated]
        listed = evaluating.minimal(evaluations, objective, self.options.fleets)
        inconclusive = evaluating.inconclusive(evaluations, listed, objective, self.options.fleets)
        best = listed[0] if listed else None
        explained = explanation.explain(candidates, best, evaluations, search)
        if best is None:
            unreachable = explanation.explain_infeasibility(candidates, self.targets, lower.cost)
            explained = replace(explained, unreachable=unreachable)
        time, policy = evaluating.binding_time(best), self.scenario.policy
        plan = PlanResult(
            name=self.scenario.name,
            description=self.scenario.description,
            objective=objective,
            seed=self.scenario.seed,
            confidence=self.options.confidence,
            replications=candidates.simulator.setting.replications,
            spare=self.options.spare,
            engine=evaluations[0].engine if evaluations else None,
            fleets=[candidates.planned(e) for e in listed],
            inconclusive=[candidates.planned(e) for e in inconclusive],
            lower_bound=self._lower_bound(lower),
            gap=self._gap(best, lower),
            entries=self._entries(prepared, search.single_entry_reasons),
            explanation=explained,
            inputs=self._inputs(prepared),
            time=evaluating.time_name(time),
            front=[candidates.planned(e) for e in evaluating.front(evaluations, time)],
            curve=None if best is None else explanation.load_curve(candidates, best),
            search=SearchSummary(
                simulated_fleets=len(simulated),
                simulations=sum(e.runs for e in candidates.simulator.evaluations.values()),
                rounds=search.rounds,
                proof=search.proof,
                unexplored_cheaper=search.unexplored,
                considered=search.considered,
                max=dict(zip(self.names, candidates.max_counts, strict=True)),
                max_entries=self.options.max_entries,
                limit=explanation.limit_phrase(self.options.max_entries, self.entries),
            ),
            notes=[
                *self.notes,
                *doubtful_settings(prepared),
                *search.notes,
                *self._harm(search),
                *candidates.demand.notes,
            ],
            simulated=[
                SimulatedFleet(**vars(candidates.planned(e)), met=e.met, time_s=evaluating.time_s(e, time))
                for e in evaluations
            ],
            scenario=self.scenario.resolved(),
            versions=versions_module.versions(),
            has_continuous_batches=not isinstance(policy, str) and isinstance(policy.batch, ContinuousBatch),
        )
        return replace(plan, explanation=replace(explained, sentences=explanation.sentences(plan)))

    def _lower_bounds(self) -> _LowerBounds:
        candidates, counts, entries = self.candidates, self.candidates.max_counts, self.options.max_entries
        cost = candidates.bounds.lower_bound(self.prices, counts, entries)
        if self.options.objective == "cost":
            return _LowerBounds(cost, cost)
        weights, per_watt = candidates.weights
        return _LowerBounds(cost, candidates.bounds.lower_bound(weights, counts, entries, work_w=per_watt))

    def _space(self, budget: float) -> Space:
        """Return the fleets to search: within ``budget`` (USD/h), with a lower bound on the objective of each."""
        candidates = self.candidates
        weights, per_watt = candidates.weights
        work = candidates.bounds.lower_bound(
            np.zeros(self.entries), candidates.max_counts, self.entries, work_w=1.0, whole=False
        ).value
        work = work if math.isfinite(work) else 0.0

        def lower_bound(fleets: np.ndarray) -> FloatArray:
            counts = np.asarray(fleets, dtype=np.float64)
            return np.where(counts @ self.prices <= budget, counts @ weights + per_watt * work, math.inf)

        return Space(
            max_counts=tuple(
                int(min(n, budget / price)) if price else n
                for n, price in zip(candidates.max_counts, self.prices, strict=True)
            ),
            max_entries=self.options.max_entries,
            lower_bound=lower_bound,
            load=candidates.bounds.load,
        )

    def _gap(self, best: Evaluation | None, lower: _LowerBounds) -> float | None:
        """Return the largest possible excess of the best fleet over the optimum, relative to the best fleet."""
        value = 0.0 if best is None else best.objective(self.options.objective)
        if not value or not math.isfinite(lower.objective.value):
            return None
        return max(0.0, 1 - lower.objective.value / value)

    def _max_cost(self) -> float:
        """Return the smallest limit (USD/h) that a target sets on the rent; infinite without one."""
        limits = [t.limit * 3600 for t in self.targets if t.metric == "cost" and t.comparison == "<="]
        return min(limits, default=math.inf)

    def _search(self, space: Space) -> tuple[SearchResult, list[Counts]]:
        """Return the result of the search, and every fleet that was simulated.

        If no fleet meets the targets conclusively, a second search finds the best of the inconclusive fleets.
        """
        search = Search(space, self.candidates.verdicts, self.options.simulations).run()
        simulated = list(search.verdicts)
        if search.best is None and any(not verdict.conclusive for verdict in search.verdicts.values()):
            search = Search(space, self.candidates.possible_verdicts, self.options.simulations).run()
            simulated = list(dict.fromkeys([*simulated, *search.verdicts]))
        return search, simulated

    def _harm(self, search: SearchResult) -> list[str]:
        if search.larger_fleet_fails is None or search.best is None:
            return []
        text = self.candidates.text
        return [
            f"adding devices can worsen a target here: {text(search.larger_fleet_fails)} misses a target that "
            f"{text(search.best)} meets, so a fleet that was excluded because a larger one failed may meet the targets"
        ]

    def _lower_bound(self, lower: _LowerBounds) -> LowerBound:
        """Return the lower bounds, and the rent if each device were rented only while it works."""
        demand, bounds = self.candidates.demand, self.candidates.bounds.first
        least = np.full(len(demand), math.inf)
        for c in range(self.entries):
            need = np.zeros(len(demand))
            for resource in demand.resources:
                if resource.class_number == c:
                    need = np.maximum(need, resource.whole_s / resource.capacity)
            least = np.minimum(least, np.where(demand.eligible[c], need * self.prices[c], math.inf))
        kept = bounds.counted
        windows = 60
        edges = np.linspace(bounds.start_s, float(demand.arrival_s[-1]) + 1e-12, windows + 1)
        of = np.clip(np.searchsorted(edges, demand.arrival_s[kept], side="right") - 1, 0, windows - 1)
        width = max((edges[-1] - edges[0]) / windows, 1e-12)
        profile = np.bincount(of, weights=least[kept], minlength=windows) / width
        counts = lower.cost.counts
        return LowerBound(
            cost_usd_per_h=_finite(lower.cost.value),
            devices=None if counts is None else self.candidates.named(counts),
            objective=_finite(lower.objective.value),
            objective_unit=UNITS[self.options.objective],
            autoscaler_usd_per_h=float(least[kept].sum() / bounds.length_s * (1 - 1e-9)),
            autoscaler_by_window_usd_per_h=[float(f"{v:.6g}") for v in profile],
            window_s=float(width),
        )

    def _entries(self, prepared: PreparedRun, alone: Mapping[int, str]) -> list[CandidateEntry]:
        """Return each candidate, what its times rest on, and why it was excluded or no fleet of it alone was found."""
        accuracies = model_accuracy(prepared.compiled, prepared.classes)
        entries = []
        for i, name in enumerate(self.names):
            reason = self._excluded(prepared, i)
            if reason is None and i in alone:
                reason = _ALONE[alone[i]].format(max=self.candidates.max_counts[i])
            label = self.devices[i].label
            entries.append(CandidateEntry(name, label, float(self.prices[i]), reason, widest_error(accuracies, label)))
        return entries

    def _inputs(self, prepared: PreparedRun) -> ModelInputs:
        """Return the number of inputs of the device models of all candidates, and how many of them are assumed."""
        rows = provenance(prepared.compiled, prepared.classes)
        return ModelInputs(len(rows), sum(row.provenance == "assumed" for row in rows))

    def _excluded(self, prepared: PreparedRun, entry: int) -> str | None:
        """Return why an entry can run no job; None if it can run one."""
        if self.candidates.demand.eligible[entry].any():
            return None
        programs = [c for (number, _), c in prepared.compiled.items() if number == entry]
        if not programs:
            return "it cannot run any of these jobs"
        need = min(float(c.footprint_bytes.min()) for c in programs)
        memory = self.devices[entry].memory_bytes * prepared.policy.batch.memory
        return f"its memory is {format_quantity(memory, 'B')}; the smallest job needs {format_quantity(need, 'B')}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
