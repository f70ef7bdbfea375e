"""The search of one choice of a plan: the checks, the lower bounds, and the fleets of its entries.

A plan without ``plan.search`` has one choice. `planner` compares the choices and makes the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.results.candidates import CandidateEntry
from windtunnel.core.results.objective import OBJECTIVES
from windtunnel.core.results.plan import LowerBound, ModelInputs
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.autoscaling import rules_by_entry
from windtunnel.engine.prepare.demand import Demand, minimum_demand
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.scenario import prepare
from windtunnel.planning.bounds import Bound, Counts, Replicated
from windtunnel.planning.candidates import Candidates, offered_per_s
from windtunnel.planning.choices import Choice
from windtunnel.planning.evaluation import Evaluation, violations
from windtunnel.planning.judge import draws
from windtunnel.planning.reasons import Reasons
from windtunnel.planning.search import Search, SearchResult, Space
from windtunnel.planning.simulate import Case, Redraws, Setting, preference, variant
from windtunnel.planning.workers import Simulator, Workers
from windtunnel.scenario.fields import MAX_COUNT
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.fleet import fleet_devices, policy_of
from windtunnel.simulation.redrawn import replication_seed
from windtunnel.simulation.sources import provenance
from windtunnel_models.catalogue import Catalogue

_OF_DEVICES = ("cost", "throughput")
"""The objectives that depend on the devices of a fleet that keeps up, and not on how they are used."""


@dataclass(frozen=True)
class LowerBounds:
    """The lower bounds on the rent (USD/h) and on the objective; infinite if no fleet is feasible."""

    cost: Bound
    objective: Bound


class ChoiceSearch:
    """The search of one choice; ``number`` is its place among the choices.

    Raises InputError for an invalid scenario before anything runs.
    """

    def __init__(
        self,
        choice: Choice,
        number: int,
        catalogue: Catalogue,
        workers: Workers,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.choice, self.number = choice, number
        self.scenario = choice.scenario
        self.catalogue = catalogue
        self.options = self.scenario.plan or Plan()
        self.targets = self.scenario.parsed_targets()
        self.entries = len(self.scenario.fleet)
        self.names = [alternative.name for alternative in choice.alternatives]
        self.bases = [alternative.base for alternative in choice.alternatives]
        self.devices = fleet_devices(self.scenario, catalogue)
        self._check()
        self.prices = self._prices()
        self.scaled = rules_by_entry(self.scenario)
        self.rents = np.where(np.isin(np.arange(self.entries), list(self.scaled)), 0.0, self.prices)
        self.workers, self.progress = workers, progress
        self.notes: list[str] = []
        for i, rule in sorted(self.scaled.items()):
            least, stated = rule.min * self.scenario.fleet[i].group_size, self.scenario.fleet[i].count
            start = f"{stated:,}, the `count` of the entry" if stated > least else f"{least:,}, the `min` of its rule"
            self.notes.append(
                f"{self.names[i]} is scaled: its number is the most that may be rented at once (at least {least:,}), "
                f"and the cost is the mean rent. It begins with {start}; `count` states the number at the start"
            )
        self.search = self.confident = SearchResult()

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
        policy_of(self.scenario)  # raises InputError for a name that is unknown
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
                if name not in self.bases:
                    raise InputError(
                        f"the fleet has no '{name}'",
                        where=self.scenario.where("plan", "max", name),
                        expected=list_choices(list(dict.fromkeys(self.bases))),
                        nearest=nearest(name, self.bases),
                    )

    # Preparation.

    def prepare(self) -> None:
        """Prepare the run and compute the lower bounds; raises InputError if a device cannot run what it is asked."""
        self.run = self.prepared(self.scenario)
        for fleet_class in self.run.classes:
            if self.options.objective in ("power", "carbon") and not fleet_class.limit_w:
                raise InputError(
                    f"the objective {self.options.objective} needs the power of every candidate; "
                    f"{fleet_class.name} has none",
                    where=self.scenario.where("fleet", fleet_class.number),
                    expected="power: {idle: 60 W, max: 300 W}",
                )
        demand = minimum_demand(self.run)
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
        self.notes += self._notes_of_roles(demand)
        setting = Setting(
            self.scenario, self.catalogue, self.options.confidence, 1, demand.longest_s, self.options.replications,
            offered_per_s(demand) if demand.complete and not demand.users else None,
            tuple(self.rents.tolist()) if self._costs_are_known else None,
        )  # fmt: skip
        self._bounds = Replicated([demand], self.targets)
        self.simulator = Simulator(setting, self.workers, self.progress)
        self._become_candidates()
        self._check_spare()

    def _check_spare(self) -> None:
        """Check that something remains of a fleet without the spare devices; note if only other entries do.

        Raises:
            InputError: Nothing remains of any fleet.
        """
        spare, most = self.options.spare, self.candidates.max_counts
        if not spare or spare < max(most):
            return
        sizes = self.candidates.sizes
        groups = [f" ({n:,} groups of {size})" if size > 1 else "" for n, size in zip(most, sizes, strict=True)]
        devices = zip(self.candidates.max_devices, self.names, groups, strict=True)
        largest = ", ".join(f"{n:,} of {name}{of}" for n, name, of in devices)
        if min(self.options.max_entries, self.entries) == 1:
            raise InputError(
                f"no fleet can do without {spare:,} spare devices or groups: at most {largest} are allowed",
                where=self.scenario.where("plan", "spare"),
                expected="fewer spare devices, or a larger plan.max",
            )
        self.notes.append(
            f"spare: {spare:,} takes all devices of an entry out of service, because at most {largest} are allowed; so "
            "a fleet must meet the targets without all devices of any one of its entries"
        )

    def _notes_of_roles(self, demand: Demand) -> list[str]:
        """Return which fleets are left out because of roles, where these are not all without a partner."""
        notes, bases = [], {c.number: (c.role, self.bases[c.number]) for c in self.run.classes}
        decoders = dict.fromkeys(base for role, base in bases.values() if role == "decode")
        if decoders and any(role == "both" for role, _ in bases.values()):
            senders = dict.fromkeys(base for role, base in bases.values() if role == "prefill")
            notes.append(
                f"fleets that have {' or '.join(decoders)} without {' or '.join(senders)} are left out: an entry with "
                "role: decode decodes only requests whose prompts an entry with role: prefill has read"
            )
        if demand.sets.apart:
            notes.append(
                "fleets that have an entry with a role beside one of another engine are left out: no engine takes the "
                "KV cache of another one"
            )
        return notes

    @property
    def _costs_are_known(self) -> bool:
        """Whether all that the search asks of a fleet that misses a target is its rent, which needs no simulation."""
        return self.options.objective == "cost" and not self.scaled and not self.options.spare

    def _become_candidates(self) -> None:
        """Make the candidates from the bounds."""
        self.candidates = Candidates(
            scenario=self.scenario,
            plan=self.options,
            names=self.names,
            devices=self.devices,
            prices=self.prices,
            rents=self.rents,
            scaled=self.scaled,
            demand=self._bounds.demand,
            bounds=self._bounds,
            max_counts=self._max_counts(self._bounds),
            simulator=self.simulator,
            notes=self.notes,
            choice=self.choice,
            number=self.number,
        )
        self.lower = self._lower_bounds()

    def replicate(self, replications: int) -> None:
        """Judge every fleet by so many runs; the lower bounds are then those of their mean."""
        if replications == 1:
            return
        seed = self.scenario.seed
        demands = [self._bounds.demand] + [
            minimum_demand(self.prepared(self.scenario.reseeded(replication_seed(seed, i))))
            for i in range(1, replications)
        ]
        longest = max(d.longest_s for d in demands)
        self.simulator.setting = replace(self.simulator.setting, replications=replications, longest_s=longest)
        self._bounds = Replicated(demands, self.targets)
        self._become_candidates()

    def prepared(self, scenario: Scenario) -> PreparedRun:
        """Return ``scenario`` with as many devices of each entry as one job occupies, prepared for a run."""
        largest = max(w.gang or 1 for w in scenario.workload)
        ones = variant(scenario, Case((largest,) * self.entries))
        copies = self.workers.copies
        return prepare(
            ones, self.devices, policy_of(scenario), preference, processes=copies, accuracies=False, candidates=True
        )

    def _max_counts(self, bounds: Replicated) -> Counts:
        """Return the largest count of each entry: the stated one, that of its rule, or four times the need."""
        stated = self.options.max
        counts = []
        for i, need in enumerate(self._needs(bounds)):
            if isinstance(stated, int):
                counts.append(self._groups(stated, i, "max"))
            elif isinstance(stated, dict) and self.bases[i] in stated:
                counts.append(self._groups(stated[self.bases[i]], i, "max", self.bases[i]))
            elif i in self.scaled:
                counts.append(self.scaled[i].max)
            else:
                most = MAX_COUNT // self.scenario.fleet[i].group_size
                counts.append(max(8, min(math.ceil(4 * need), most)) if math.isfinite(need) else 8)
        return tuple(counts)

    def _groups(self, devices: int, entry: int, *path: str) -> int:
        """Return how many groups of an entry so many devices are; raises InputError if they are not even one."""
        size = self.scenario.fleet[entry].group_size
        if devices < size:
            searched = bool(self.choice.alternatives[entry].values)
            raise InputError(
                f"{devices} devices are less than a group of {size}",
                where=self.scenario.where(*(("fleet", entry) if searched else ("plan", *path))),
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
        if not np.isfinite(alone).all():
            mixed = bounds.load((max(demand.gang),) * self.entries)[0] * max(demand.gang)
            alone = np.where(np.isfinite(alone), alone, mixed * self.entries)
        return alone + of_users

    def _only(self, entry: int, count: int) -> Counts:
        return tuple(count if i == entry else 0 for i in range(self.entries))

    def replications(self) -> int:
        """Return how many runs judge a fleet: more than one if a run of an ample fleet gives no interval."""
        simulator, bounds, max_counts = self.simulator, self._bounds, self.candidates.max_counts
        needs = self._needs(bounds)
        able = [i for i in range(self.entries) if math.isfinite(bounds.load(self._only(i, max_counts[i]))[0])]
        if able:
            entry = min(able, key=lambda i: (needs[i], i))
            ample = self._only(entry, min(max_counts[entry], max(1, math.ceil(2 * needs[entry]))))
        else:
            several = [min(most, max(2, *bounds.demand.gang)) for most in max_counts]
            sets = [[several[e] if e in found else 0 for e in range(self.entries)] for found in self._largest_sets()]
            ample = tuple(next((s for s in sets if math.isfinite(bounds.load(s)[0])), several))
        if not bounds.demand.fits(ample) or not math.isfinite(bounds.load(ample)[0]):
            return 1
        evaluation = simulator.here(replace(simulator.setting, further=1), Case(ample))
        without = [t.text for t in evaluation.targets if t.interval_source == "none"]
        if not without:
            simulator.keep(Case(ample), evaluation)
            return 1
        if not draws(self.scenario):
            return 1
        self.notes.append(
            f"one run gives no confidence interval for {'; '.join(without)}: every fleet was judged by "
            f"{self.options.replications} runs, with the same seeds for all fleets"
        )
        return self.options.replications

    def _largest_sets(self) -> list[list[int]]:
        """Return sets of entries that fleets may have together, one from each entry on; usually all are one."""
        sets = []
        for first in range(self.entries):
            chosen = [first]
            for entry in range(self.entries):
                if entry != first and self._bounds.demand.sets.go_together([*chosen, entry]):
                    chosen.append(entry)
            sets.append(sorted(chosen))
        return sets if self._bounds.demand.sets.apart else sets[:1]

    # The search.

    @property
    def budget(self) -> float:
        """The rent (USD/h) that no fleet may exceed, with an allowance for rounding."""
        return self.candidates.max_cost * (1 + 1e-9)

    @property
    def is_excluded(self) -> bool:
        """Whether the lower bound alone excludes every fleet; then nothing is simulated."""
        return not math.isfinite(self.lower.cost.value) or self.lower.cost.value > self.budget

    def by_value(self, below: float) -> None:
        """Search the best fleet that meets the targets by value and is better than ``below``."""
        self.space = self._space(self.candidates, self.budget)
        verdicts = partial(self.candidates.verdicts, goal="value")
        if self.is_excluded:
            self.search = Search(self.space, verdicts, 0).run_bound_only()
        else:
            self.search = Search(self.space, verdicts, self.options.simulations, below=below).run()
        self.confident = self.search

    def with_confidence(self, above: float, below: float) -> None:
        """Search the best fleet that meets the targets with confidence and is better than ``below``.

        No fleet that is better than ``above`` meets them by value.
        """
        if self.is_excluded:
            return
        verdicts = self.candidates.verdicts
        fleets = list(dict.fromkeys([*self.search.verdicts, *self.confident.verdicts]))
        # Those that are near enough to the best to matter were looked at again before.
        known = dict(zip(fleets, verdicts(fleets, "confidence", again=False), strict=True))
        self.confident = Search(
            self.space,
            partial(verdicts, goal="confidence"),
            self.options.simulations,
            known=known,
            above=above,
            below=below,
        ).run()

    def consider(self, counts: Counts, *, redraws: Redraws, announced: bool = False) -> None:
        """Simulate a fleet that the search may have left out, if the plan allows it and it may meet the targets.

        ``redraws``: see ``Candidates.judge``. ``announced``: it will be, and is only announced here.
        """
        within = all(n <= most for n, most in zip(counts, self.candidates.max_counts, strict=True))
        fits = within and not self.is_excluded and self.candidates.may_be_feasible(Case(counts))
        if fits and counts not in self.confident.verdicts and self.candidates.bounds.load(counts)[0] <= 1:
            if announced:
                self.candidates.announce([Case(counts, until_lost=True)], redraws=redraws)
            else:
                found = self.candidates.verdicts([counts], "value", redraws=redraws)
                self.search.verdicts[counts] = found[0]

    def alike(self, other: ChoiceSearch, counts: Counts) -> list[Counts]:
        """Return the fleets of this choice with the same devices as a fleet of ``other``, at the same prices.

        All devices of an entry have the same values. Where the objective depends on these, so that such fleets are not
        as good, only the fleet with the same values of its entries is returned.
        """
        per_entry: list[list[tuple[int, int]]] = []
        for name, key, size, n in zip(other.names, other.kinds, other.candidates.sizes, counts, strict=True):
            devices = n * size
            places = [
                (i, devices // mine)
                for i, mine in enumerate(self.candidates.sizes)
                if not devices % mine
                and (self.names[i] == name or (self.kinds[i] == key and self.options.objective in _OF_DEVICES))
            ]
            if n:
                per_entry.append(places)
        fleets = []
        for chosen in product(*per_entry):
            fleet = [0] * self.entries
            for i, n in chosen:
                fleet[i] += n
            fleets.append(tuple(fleet))
        return list(dict.fromkeys(fleets))

    @property
    def kinds(self) -> list[tuple[str, str, float]]:
        """What equal alternatives have in common: the entry of the scenario, the SKU, the price of a device (USD/h)."""
        prices = [float(f"{price / size:.9g}") for price, size in zip(self.prices, self.candidates.sizes, strict=True)]
        return [(base, d.label, price) for base, d, price in zip(self.bases, self.devices, prices, strict=True)]

    def meets_with_confidence(self, value: float) -> bool:
        """Return whether a simulated fleet with this value of the objective meets the targets with confidence."""
        objective = self.options.objective
        return any(e.meets.confidence and e.objective(objective) <= value for e in self.evaluations())

    def evaluations(self) -> list[Evaluation]:
        """Return what was simulated for the two searches."""
        simulated = dict.fromkeys([*self.search.verdicts, *self.confident.verdicts])
        return [self.candidates.evaluation(Case(counts, until_lost=True)) for counts in simulated]

    def complete(self) -> None:
        """Simulate to their ends the runs that were ended because a target was lost."""
        stopped = [e for e in self.evaluations() if e.stopped_after is not None]
        self.candidates.judge([Case(e.counts) for e in stopped])

    def notes_of_scaling(self, fleet: Evaluation) -> list[str]:
        """Return what the number of devices at the start does to a fleet with scaled entries.

        ``fleet`` is the recommended one or, where none meets the targets, the closest one. Of the latter, the largest
        fleet of its entries is simulated with all devices in service at the start.
        """
        scaled = [i for i in self.scaled if fleet.counts[i]]
        if not scaled:
            return []
        whole = float(self.prices @ np.array(fleet.counts))
        if fleet.meets.value:
            always = fleet.cost_usd_per_h >= whole * (1 - 1e-9)
            never = "all devices were rented all the time: no rule released one"
            return [f"{self.candidates.text(fleet.counts)}: {never}"] if always else []
        most = tuple(
            m if i in scaled else n
            for i, (m, n) in enumerate(zip(self.candidates.max_counts, fleet.counts, strict=True))
        )
        sizes = self.candidates.sizes
        entries = [
            entry.model_copy(update={"count": most[i] * sizes[i]}) if i in scaled else entry
            for i, entry in enumerate(self.scenario.fleet)
        ]
        candidates = self._of_scenario(self.scenario.changed(fleet=entries))
        found = candidates.judge([Case(most)])[0]
        outcome = "meets the targets" if found.meets.confidence else "meets the targets by value"
        if not found.meets.value:
            outcome = f"fails too ({'; '.join(violations(found))})"
        begun = " and ".join(f"{most[i] * sizes[i]:,} of {self.names[i]}" for i in scaled)
        return [f"{self.candidates.text(most)} that begins with {begun} (`count` of the entry) {outcome}"]

    def _of_scenario(self, scenario: Scenario) -> Candidates:
        """Return the candidates of a changed scenario, with simulations of their own."""
        simulator = Simulator(
            replace(self.candidates.simulator.setting, scenario=scenario), self.workers, self.progress
        )
        return replace(self.candidates, scenario=scenario, simulator=simulator)

    def _lower_bounds(self) -> LowerBounds:
        candidates, counts, entries = self.candidates, self.candidates.max_counts, self.options.max_entries
        cost = candidates.rent_lower_bound(candidates.bounds)
        if self.options.objective == "cost":
            return LowerBounds(cost, cost)
        weights, per_watt = candidates.weights
        return LowerBounds(cost, candidates.bounds.lower_bound(weights, counts, entries, work_w=per_watt))

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
            works=candidates.demand.sets.work,
        )

    def without_rent_limits(self) -> tuple[Evaluation, SearchResult] | None:
        """Return the cheapest fleet found that meets the targets other than limits on the rent, with its search."""
        texts = [t for t, parsed in zip(self.scenario.targets, self.targets, strict=True) if parsed.metric != "cost"]
        scenario = self.scenario.changed(targets=texts)
        plan = self.options.model_copy(update={"objective": "cost"})
        candidates = replace(self._of_scenario(scenario), plan=plan)
        # The fleets within the limit were searched before.
        above = 0.0 if self.scaled or self.options.objective != "cost" else self.candidates.max_cost
        space = self._space(candidates, math.inf)
        search = Search(space, partial(candidates.verdicts, goal="value"), self.options.simulations, above=above).run()
        return None if search.best is None else (candidates.evaluation(Case(search.best)), search)

    def _harm(self, search: SearchResult) -> list[str]:
        if search.larger_fleet_fails is None or search.best is None:
            return []
        text = self.candidates.text
        return [
            f"adding devices can worsen a target here: {text(search.larger_fleet_fails)} misses a target that "
            f"{text(search.best)} meets, so a fleet that was excluded because a larger one failed may meet the targets"
        ]

    # What is told of the choice.

    def notes_of_search(self) -> list[str]:
        """Return what a reader must know of how the choice was searched."""
        searches = [self.search, self.confident]
        return [
            *dict.fromkeys(note for search in searches for note in search.notes),
            *dict.fromkeys(note for search in searches for note in self._harm(search)),
        ]

    def lower_bound(self) -> LowerBound:
        """Return the lower bounds, and the rent if each device were rented only while it works."""
        lower = self.lower
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
            objective=_finite(OBJECTIVES[self.options.objective].shown(lower.objective.value)),
            objective_unit=self.candidates.unit,
            autoscaler_usd_per_h=self.candidates.autoscaled_usd_per_h(self.candidates.bounds) or None,
            autoscaler_by_window_usd_per_h=None if profile is None else [float(f"{v:.6g}") for v in profile],
            window_s=width,
        )

    def candidate_entries(self) -> list[CandidateEntry]:
        """Return each candidate, what its times rest on, and why no fleet of it alone meets the targets by value."""
        reasons = Reasons(self.candidates, self.targets)
        return reasons.of_entries(self.run, self.search.alone, self.evaluations(), self.space)

    def inputs(self) -> ModelInputs:
        """Return the number of inputs of the device models of all candidates, and how many of them are assumed."""
        rows = provenance(self.run.compiled, self.run.classes, self.run.designs, self.run.links)
        return ModelInputs(len(rows), sum(row.provenance == "assumed" for row in rows))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
