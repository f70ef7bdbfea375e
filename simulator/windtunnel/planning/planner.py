"""Makes a plan: the candidates, the lower bounds, the search, and the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

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
from windtunnel.engine.prepare.autoscaling import rules_by_entry
from windtunnel.engine.prepare.checks import doubtful_settings
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.scenario import prepare
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning import explanation
from windtunnel.planning.bounds import Bound, Counts, Replicated
from windtunnel.planning.candidates import UNITS, Candidates
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.judge import draws
from windtunnel.planning.reasons import Reasons
from windtunnel.planning.search import Search, SearchResult, Space
from windtunnel.planning.simulate import Case, Setting, Simulator, entry_name, simulate, variant
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.scenario import ContinuousBatch, Scenario
from windtunnel.simulation import versions as versions_module
from windtunnel.simulation.fleet import fleet_devices, policy_of
from windtunnel.simulation.redrawn import replication_seed
from windtunnel.simulation.sources import model_accuracy, provenance, widest_error
from windtunnel_models.catalogue import Catalogue


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
        self.scaled = rules_by_entry(scenario)
        self.rents = np.where(np.isin(np.arange(self.entries), list(self.scaled)), 0.0, self.prices)
        self.workers, self.progress = workers, progress
        self.notes: list[str] = []
        for i, rule in sorted(self.scaled.items()):
            self.notes.append(
                f"{self.names[i]} is scaled: its number is the most that may be rented at once (at least "
                f"{rule.min * scenario.fleet[i].group_size:,}), and the cost is the mean rent"
            )

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
            prices.append(price * 3600 * entry.group_size)
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
        demand = minimum_demand(prepared)
        if demand.losses:
            if not any(target.metric == "completed" for target in self.targets):
                raise InputError(
                    f"{' and '.join(demand.losses)}; times are those of completed jobs only, so the targets would "
                    "favour a fleet that loses jobs",
                    where=self.scenario.where("targets"),
                    expected="also a target on the share of completed jobs, such as 'completed >= 99 %'",
                )
            self.notes.append(
                f"{' and '.join(demand.losses)}: the work depends on the fleet; no lower bound on it is known and 0 is "
                "used"
            )
        longest = demand.longest_s
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
                longest = max(d.longest_s for d in demands)
                simulator.setting = replace(setting, longest_s=longest)
                bounds = Replicated(demands, self.targets)
                max_counts = self._max_counts(bounds)
            self.candidates = Candidates(
                scenario=self.scenario,
                plan=self.options,
                names=self.names,
                devices=self.devices,
                prices=self.prices,
                rents=self.rents,
                scaled=self.scaled,
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
        """Return ``scenario`` with as many devices of each entry as one job occupies, prepared for a run."""
        largest = max(w.gang or 1 for w in scenario.workload)
        ones = variant(scenario, Case((largest,) * self.entries))

        def preference(use: str, api: str, kind: str) -> float:
            return recommendation(use).preference(api=api, kind=kind)

        return prepare(ones, self.devices, policy_of(scenario), preference)

    def _max_counts(self, bounds: Replicated) -> Counts:
        """Return the largest count of each entry: the stated one, that of its rule, or four times the need."""
        stated = self.options.max
        counts = []
        for i, need in enumerate(self._needs(bounds)):
            size = self.scenario.fleet[i].group_size
            if isinstance(stated, int):
                counts.append(self._groups(stated, size, "max"))
            elif isinstance(stated, dict) and self.names[i] in stated:
                counts.append(self._groups(stated[self.names[i]], size, "max", self.names[i]))
            elif i in self.scaled:
                counts.append(self.scaled[i].max)
            else:
                counts.append(max(8, math.ceil(4 * need)) if math.isfinite(need) else 8)
        return tuple(counts)

    def _groups(self, devices: int, size: int, *path: str) -> int:
        """Return how many groups of ``size`` so many devices are; raises InputError if they are not even one."""
        if devices < size:
            raise InputError(
                f"{devices} devices are less than a group of {size}",
                where=self.scenario.where("plan", *path),
                expected=f"at least {size}",
            )
        return devices // size

    def _needs(self, bounds: Replicated) -> FloatArray:
        """Return how many devices of each entry alone may be needed: about what the work takes, and one for each user.

        An entry that cannot run some jobs may be needed for the others.
        """
        demand = bounds.demand
        if not demand.complete:
            bounds = Replicated([replace(demand, complete=True)], [])
        of_users = demand.users * max(demand.gang)
        alone = np.array(
            [bounds.load(self._only(i, max(demand.gang)))[0] * max(demand.gang) for i in range(self.entries)]
        )
        mixed = bounds.load((max(demand.gang),) * self.entries)[0] * max(demand.gang)
        return np.where(np.isfinite(alone), alone, mixed * self.entries) + of_users

    def _only(self, entry: int, count: int) -> Counts:
        return tuple(count if i == entry else 0 for i in range(self.entries))

    def _setting(self, simulator: Simulator, bounds: Replicated, max_counts: Counts) -> Setting:
        """Return the setting of the simulations, with replications if one run does not suffice for all intervals."""
        needs = self._needs(bounds)
        able = [i for i in range(self.entries) if math.isfinite(bounds.load(self._only(i, max_counts[i]))[0])]
        if able:
            entry = min(able, key=lambda i: (needs[i], i))
            ample = self._only(entry, min(max_counts[entry], max(1, math.ceil(2 * needs[entry]))))
        else:
            ample = tuple(min(most, max(2, *bounds.demand.gang)) for most in max_counts)
        if not bounds.demand.fits(ample) or not math.isfinite(bounds.load(ample)[0]):
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
        lower, budget = self._lower_bounds(), self.candidates.max_cost * (1 + 1e-9)
        space = self._space(candidates, budget)
        # If the lower bound alone excludes every fleet, nothing is simulated.
        if not math.isfinite(lower.cost.value) or lower.cost.value > budget:
            search = confident = Search(space, partial(candidates.verdicts, goal="value"), 0).run_bound_only()
        else:
            search, confident = self._search(space)
        simulated = list(dict.fromkeys([*search.verdicts, *confident.verdicts]))
        evaluations = [candidates.evaluation(Case(counts)) for counts in simulated]
        fleets = evaluating.feasible(evaluations, objective)
        recommended = evaluating.recommended(fleets)
        best = fleets[recommended] if fleets else None
        explained = explanation.explain(candidates, fleets, evaluations, [search, confident])
        reasons = Reasons(candidates, self.targets)
        if best is None:
            conflicts = reasons.by_search(evaluations, self._without_rent_limits) if evaluations else reasons.by_bound()
            explained = replace(explained, conflicts=conflicts)
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
            fleets=[candidates.planned(e) for e in fleets],
            recommended=recommended,
            lower_bound=self._lower_bound(lower),
            gap=self._gap(fleets[0] if fleets else None, lower),
            searched=self._searched(),
            held=self._held(),
            entries=self._entries(prepared, reasons, search, space),
            explanation=explained,
            inputs=self._inputs(prepared),
            time=evaluating.time_name(time),
            front=[candidates.planned(e) for e in evaluating.front(evaluations, time)],
            curve=None if best is None else explanation.load_curve(candidates, best),
            search=SearchSummary(
                simulated_fleets=len(simulated),
                simulations=sum(e.runs for e in candidates.simulator.evaluations.values()),
                rounds=search.rounds + (0 if confident is search else confident.rounds),
                proof=search.proof,
                unexplored_cheaper=search.unexplored,
                confidence_proof=confident.proof,
                confidence_unexplored=confident.unexplored,
                considered=search.considered,
                max=dict(zip(self.names, candidates.max_devices, strict=True)),
                max_entries=self.options.max_entries,
                limit=explanation.limit_phrase(self.options.max_entries, self.entries),
            ),
            notes=[
                *self.notes,
                *doubtful_settings(prepared),
                *dict.fromkeys([*search.notes, *confident.notes]),
                *dict.fromkeys([*self._harm(search), *self._harm(confident)]),
                *candidates.demand.notes,
            ],
            simulated=[
                SimulatedFleet(**vars(candidates.planned(e)), time_s=evaluating.time_s(e, time)) for e in evaluations
            ],
            scenario=self.scenario.resolved(),
            versions=versions_module.versions(),
            has_continuous_batches=not isinstance(policy, str) and isinstance(policy.batch, ContinuousBatch),
            listed=evaluating.notable(fleets, self.options.fleets),
        )
        return replace(plan, explanation=replace(explained, sentences=explanation.sentences(plan)))

    def _searched(self) -> dict[str, object]:
        """Return what the plan chooses among: the smallest and the largest number of each entry, and of entries."""
        counts = {name: [0, n] for name, n in zip(self.names, self.candidates.max_devices, strict=True)}
        return {"count": counts, "max_entries": min(self.options.max_entries, self.entries)}

    def _held(self) -> dict[str, object]:
        """Return the keys of the scenario that stay as they are in every fleet."""
        resolved = self.scenario.resolved()
        return {key: resolved[key] for key in ("policy", "power_budget", "autoscale") if resolved.get(key)}

    def _lower_bounds(self) -> _LowerBounds:
        candidates, counts, entries = self.candidates, self.candidates.max_counts, self.options.max_entries
        cost = candidates.rent_lower_bound(candidates.bounds)
        if self.options.objective == "cost":
            return _LowerBounds(cost, cost)
        weights, per_watt = candidates.weights
        return _LowerBounds(cost, candidates.bounds.lower_bound(weights, counts, entries, work_w=per_watt))

    def _space(self, candidates: Candidates, budget: float) -> Space:
        """Return the fleets to search: within ``budget`` (USD/h), with a lower bound on the objective of each."""
        weights, per_watt = candidates.weights
        work = candidates.bounds.lower_bound(
            np.zeros(self.entries), candidates.max_counts, self.entries, work_w=1.0, whole=False
        ).value
        work = work if math.isfinite(work) else 0.0
        of_rent = self.scaled and candidates.plan.objective == "cost"
        least = candidates.autoscaled_usd_per_h(candidates.bounds) if of_rent else 0.0

        def lower_bound(fleets: np.ndarray) -> FloatArray:
            counts = np.asarray(fleets, dtype=np.float64)
            value = np.maximum(counts @ weights + per_watt * work, least)
            return np.where(counts @ self.rents <= budget, value, math.inf)

        return Space(
            max_counts=candidates.max_counts,
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

    def _search(self, space: Space) -> tuple[SearchResult, SearchResult]:
        """Return the search of fleets that meet the targets by value, and that of fleets that do with confidence.

        The second begins with the best fleet of the first, because no better one meets the targets by value.
        """
        verdicts, most = self.candidates.verdicts, self.options.simulations
        search = Search(space, partial(verdicts, goal="value"), most).run()
        fleets = list(search.verdicts)
        known = dict(zip(fleets, verdicts(fleets, "confidence"), strict=True))
        if search.best is None or known[search.best].met:
            return search, search
        above = 0.0 if search.proof == "open" else search.value
        confident = Search(space, partial(verdicts, goal="confidence"), most, known=known, above=above).run()
        proofs = ("exhaustive", "monotone", "open")
        proof = max(search.proof, confident.proof, key=proofs.index)
        return search, replace(confident, proof=proof)

    def _without_rent_limits(self) -> tuple[Evaluation, SearchResult] | None:
        """Return the cheapest fleet found that meets the targets other than limits on the rent, with its search."""
        whole = self.candidates
        texts = [t for t, parsed in zip(self.scenario.targets, self.targets, strict=True) if parsed.metric != "cost"]
        scenario = self.scenario.changed(targets=texts)
        simulator = Simulator(replace(whole.simulator.setting, scenario=scenario), self.workers, self.progress)
        plan = self.options.model_copy(update={"objective": "cost"})
        candidates = replace(whole, scenario=scenario, plan=plan, simulator=simulator)
        # The fleets within the limit were searched before.
        above = 0.0 if self.scaled or self.options.objective != "cost" else self.candidates.max_cost
        try:
            space = self._space(candidates, math.inf)
            search = Search(
                space, partial(candidates.verdicts, goal="value"), self.options.simulations, above=above
            ).run()
            return None if search.best is None else (candidates.evaluation(Case(search.best)), search)
        finally:
            simulator.close()

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
        bounds, counts = self.candidates.bounds.first, lower.cost.counts
        profile, width = None, None
        if bounds.demand.complete and not bounds.demand.closed:
            windows = 60
            edges = np.linspace(bounds.start_s, float(bounds.demand.arrival_s[-1]) + 1e-12, windows + 1)
            arrival_s = bounds.demand.arrival_s[bounds.counted]
            of = np.clip(np.searchsorted(edges, arrival_s, side="right") - 1, 0, windows - 1)
            width = float(max((edges[-1] - edges[0]) / windows, 1e-12))
            rents = self.candidates.least_rent_usd(bounds)
            profile = np.bincount(of, weights=rents, minlength=windows) / width * 3600
        return LowerBound(
            cost_usd_per_h=_finite(lower.cost.value),
            devices=None if counts is None else self.candidates.named(counts),
            objective=_finite(lower.objective.value),
            objective_unit=UNITS[self.options.objective],
            autoscaler_usd_per_h=self.candidates.autoscaled_usd_per_h(self.candidates.bounds) or None,
            autoscaler_by_window_usd_per_h=None if profile is None else [float(f"{v:.6g}") for v in profile],
            window_s=width,
        )

    def _entries(
        self, prepared: PreparedRun, reasons: Reasons, search: SearchResult, space: Space
    ) -> list[CandidateEntry]:
        """Return each candidate, what its times rest on, and why no fleet of it alone meets the targets by value."""
        accuracies = model_accuracy(prepared.compiled, prepared.classes)
        entries = []
        for i, name in enumerate(self.names):
            label, alone = self.devices[i].label, search.alone.get(i)
            error = widest_error(accuracies, label)
            more = tuple((1 + alone.count if alone else 0) if i == j else 0 for j in range(self.entries))
            lower_bound = float(space.lower_bound(np.array([more]))[0])
            reason = reasons.of_entry(prepared, i, alone, error, lower_bound)
            entries.append(CandidateEntry(name, label, float(self.prices[i]) / self.candidates.sizes[i], reason, error))
        return entries

    def _inputs(self, prepared: PreparedRun) -> ModelInputs:
        """Return the number of inputs of the device models of all candidates, and how many of them are assumed."""
        rows = provenance(prepared.compiled, prepared.classes, prepared.designs, prepared.links)
        return ModelInputs(len(rows), sum(row.provenance == "assumed" for row in rows))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
