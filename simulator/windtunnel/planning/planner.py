"""The plan put together: what may be built, bounds, search, and the answer's rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, nearest, one_of
from windtunnel.core.recommendation import recommendation
from windtunnel.core.units import format_quantity
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.engine.prepare.offered_load import max_failed_jobs
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.scenario import prepare
from windtunnel.planning import explain
from windtunnel.planning.analysis import Explanation
from windtunnel.planning.bounds import Counts, Replicated
from windtunnel.planning.judge import draws
from windtunnel.planning.search import Found, Search, Space, Verdict
from windtunnel.planning.simulate import Case, Setting, Simulator, entry_name, simulate, variant
from windtunnel.planning.unreachable import unreachable
from windtunnel.scenario.arrivals import Closed
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation import versions as versions_module
from windtunnel.simulation.fleet import fleet_devices, policy_of
from windtunnel.simulation.run import replication_seed
from windtunnel_models.catalogue import Catalogue

OBJECTIVES: Mapping[str, str] = {"cost": "cost_usd_per_h", "power": "power_w", "carbon": "carbon_kg_per_h"}
_UNITS = {"cost": "USD/h", "power": "W", "carbon": "kg/h"}


_MOST_LOST = 0.5
"""Jobs that may be expected to be lost: the bound takes each of them to be done."""


class Planner:
    """One plan in the making; raises InputError for what is wrong with the scenario before anything runs."""

    def __init__(
        self, scenario: Scenario, catalogue: Catalogue, workers: int, progress: Callable[[int], None] | None
    ) -> None:
        self.scenario = scenario
        self.catalogue = catalogue
        self.asked = scenario.plan or Plan()
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
                    f"a plan needs the price of every candidate, and none is known for {self.names[i]}",
                    where=self.scenario.where("fleet", i),
                    expected="price: 2.5 USD/h",
                )
            prices.append(price * 3600)
        return np.array(prices)

    def _check(self) -> None:
        for i, entry in enumerate(self.scenario.fleet):
            if entry.real is not None:
                raise InputError(
                    f"{entry.real} is one device of this host, and a plan says how many to have",
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
                    f"the users of '{workload.name}' wait for answers, so how many jobs there are is a matter of the "
                    "fleet, and nothing bounds it from below",
                    where=self.scenario.where("workload", i, "arrivals"),
                    expected="arrivals that do not depend on the fleet; `windtunnel sweep` compares fleets with users",
                )
        if self.scenario.autoscale:
            raise InputError(
                "a plan finds how many devices are rented all the time, and autoscale changes that",
                where=self.scenario.where("autoscale"),
                expected="no autoscale; `windtunnel sweep` compares its settings",
            )
        site = self.scenario.site
        if self.asked.objective == "carbon" and (site is None or site.carbon is None):
            raise InputError(
                "the least carbon cannot be planned for without an intensity",
                where=self.scenario.where("plan", "objective"),
                expected="site: {carbon: 350 g/kWh}",
            )
        if isinstance(self.asked.max, dict):
            for name in self.asked.max:
                if name not in self.names:
                    raise InputError(
                        f"the fleet has no '{name}'",
                        where=self.scenario.where("plan", "max", name),
                        expected=one_of(self.names),
                        nearest=nearest(name, self.names),
                    )

    # Steps.

    def run(self) -> dict[str, Any]:
        """Bounds, search, explanation."""
        prepared = self._prepared(self.scenario)
        lost = max_failed_jobs(prepared)
        if lost > _MOST_LOST:
            raise InputError(
                f"failures may end some {lost:,.0f} of {prepared.job_count:,} jobs for good, so how much work there is "
                "is a matter of the fleet, and nothing bounds it from below",
                where=self.scenario.where("faults"),
                expected="jobs: retry or migrate and enough attempts; `windtunnel sweep` compares such fleets",
            )
        demand = minimum_demand(prepared)
        longest = float(np.where(demand.eligible, demand.alone_s, 0.0).max())
        setting = Setting(self.scenario, self.catalogue, self.asked.confidence, 1, longest, self.asked.replications)
        bounds = Replicated([demand], self.targets)
        most = self._most(bounds)
        simulator = Simulator(setting, self.workers, self.progress)
        try:
            setting = self._enough(simulator, bounds, most)
            if setting.replications > 1:
                demands = [demand] + [
                    minimum_demand(self._prepared(self.scenario.reseeded(replication_seed(self.scenario.seed, i))))
                    for i in range(1, setting.replications)
                ]
                longest = max(float(np.where(d.eligible, d.alone_s, 0.0).max()) for d in demands)
                simulator.setting = replace(setting, longest_s=longest)
                bounds = Replicated(demands, self.targets)
                most = self._most(bounds)
            self.simulator, self.bounds, self.most, self.demand = simulator, bounds, most, demand
            return self._searched(prepared)
        finally:
            simulator.close()

    def _prepared(self, scenario: Scenario) -> PreparedRun:
        ones = variant(scenario, Case((1,) * self.entries))

        def preference(use: str, api: str, kind: str) -> float:
            return recommendation(use).preference(api=api, kind=kind)

        return prepare(ones, self.devices, policy_of(scenario), preference)

    def _most(self, bounds: Replicated) -> Counts:
        """How many of each entry may be had: as stated, or four times what it would need at the very least."""
        stated = self.asked.max
        mixed, _ = bounds.load((1,) * self.entries)
        found = []
        for i in range(self.entries):
            if isinstance(stated, int):
                found.append(stated)
                continue
            if isinstance(stated, dict) and self.names[i] in stated:
                found.append(stated[self.names[i]])
                continue
            alone, _ = bounds.load(self._only(i, 1))
            need = alone if math.isfinite(alone) else mixed * self.entries
            found.append(max(8, math.ceil(4 * need)) if math.isfinite(need) else 8)
        return tuple(found)

    def _only(self, entry: int, count: int) -> Counts:
        return tuple(count if i == entry else 0 for i in range(self.entries))

    def _enough(self, simulator: Simulator, bounds: Replicated, most: Counts) -> Setting:
        """Whether one run gives every target an interval; if not, every fleet is judged by replications."""
        loads = [(bounds.load(self._only(i, 1))[0], i) for i in range(self.entries)]
        load, entry = min(loads)
        roomy = (
            self._only(entry, min(most[entry], max(1, math.ceil(2 * load))))
            if math.isfinite(load)
            else tuple(min(m, 2) for m in most)
        )
        if not math.isfinite(bounds.load(roomy)[0]):
            return simulator.setting
        found = simulate(replace(simulator.setting, further=1), Case(roomy))
        without = [t["text"] for t in found["targets"] if t["interval"] == "none"]
        if not without:
            simulator.keep(Case(roomy), found)
            return simulator.setting
        if draws(self.scenario):
            self.notes.append(
                f"one run gives no interval to {'; '.join(without)}: every fleet was judged by "
                f"{self.asked.replications} runs with seeds in common"
            )
            simulator.setting = replace(simulator.setting, replications=self.asked.replications)
        return simulator.setting

    def _searched(self, prepared: PreparedRun) -> dict[str, Any]:
        asked, key = self.asked, OBJECTIVES[self.asked.objective]
        weights, per_watt = self._objective()
        work = self.bounds.least(np.zeros(self.entries), self.most, self.entries, work_w=1.0, whole=False).value
        work = work if math.isfinite(work) else 0.0
        budget = self._most_cost() * (1 + 1e-9)

        def floor(fleets: np.ndarray) -> np.ndarray:
            counts = np.asarray(fleets, dtype=np.float64)
            return np.where(counts @ self.prices <= budget, counts @ weights + per_watt * work, math.inf)

        space = Space(
            most=tuple(
                int(min(n, budget / price)) if price else n for n, price in zip(self.most, self.prices, strict=True)
            ),
            kinds=asked.max_entries,
            floor=floor,
            load=self.bounds.load,
        )
        cost_bound = self.bounds.least(self.prices, self.most, asked.max_entries)
        # Where the bound alone rules every fleet out there is nothing to simulate.
        none = not math.isfinite(cost_bound.value) or cost_bound.value > budget
        found, looked = (Search(space, self.verdicts, 0).screened(), []) if none else self._search(space)
        evaluations = [self.evaluation(Case(counts)) for counts in looked]
        listed = explain.minimal(evaluations, key, asked.fleets)
        unconfirmed = explain.unconfirmed(evaluations, listed, key, asked.fleets)
        objective_bound = (
            cost_bound
            if asked.objective == "cost"
            else self.bounds.least(weights, self.most, asked.max_entries, work_w=per_watt)
        )
        scaled = self._autoscaler()
        best = listed[0] if listed else None
        gap = None
        if best is not None and best[key]:
            gap = max(0.0, 1 - objective_bound.value / best[key]) if math.isfinite(objective_bound.value) else None
        result: dict[str, Any] = {
            "name": self.scenario.name,
            "description": self.scenario.description,
            "objective": asked.objective,
            "seed": self.scenario.seed,
            "confidence": asked.confidence,
            "replications": self.simulator.setting.replications,
            "spare": asked.spare,
            "engine": evaluations[0]["engine"] if evaluations else None,
            "fleets": [self._fleet(e) for e in listed],
            "unconfirmed": [self._fleet(e) for e in unconfirmed],
            "lower_bound": {
                "cost_usd_per_h": _finite(cost_bound.value),
                "devices": None if cost_bound.counts is None else self.named(cost_bound.counts),
                "objective": _finite(objective_bound.value),
                "objective_unit": _UNITS[asked.objective],
                **scaled,
            },
            "gap": gap,
            "entries": self._entries(prepared, found.alone),
        }
        result["explanation"] = Explanation(self).of(best, evaluations, found, key)
        result["explanation"]["unreachable"] = [] if listed else unreachable(self, cost_bound)
        about = explain.time_that_binds(best)
        result["time"] = explain.time_name(about)
        result["front"] = [self._fleet(e) for e in explain.front(evaluations, about)]
        result["curve"] = None if best is None else Explanation(self).curve(best)
        result["search"] = {
            "simulated_fleets": len(looked),
            "simulations": sum(one["runs"] for one in self.simulator.known.values()),
            "rounds": found.rounds,
            "proof": found.proof,
            "cheaper_left": found.left,
            "considered": found.considered,
            "max": dict(zip(self.names, self.most, strict=True)),
            "max_entries": asked.max_entries,
        }
        result["notes"] = [*self.notes, *found.notes, *self._harm(found), *self.demand.notes]
        result["simulated"] = [
            self._fleet(e) | {"met": e["met"], "time_s": explain.time_s(e, about)} for e in evaluations
        ]
        result["explanation"]["sentences"] = explain.sentences(result)
        result["scenario"] = self.scenario.resolved()
        result["versions"] = versions_module.versions()
        return result

    def _most_cost(self) -> float:
        """The least limit (USD/h) that a target sets to the rent; infinite without one."""
        limits = [t.limit * 3600 for t in self.targets if t.metric == "cost" and t.comparison == "<="]
        return min(limits, default=math.inf)

    def _search(self, space: Space) -> tuple[Found, list[Counts]]:
        """The search, and every fleet that was looked at.

        Where no fleet can be confirmed, it searches again for those of which it cannot be told whether they do, so
        that the least of them is named.
        """
        found = Search(space, self.verdicts, self.asked.simulations).run()
        looked = list(found.verdicts)
        if found.best is None and any(not verdict.told for verdict in found.verdicts.values()):
            found = Search(space, self._possible, self.asked.simulations).run()
            looked = list(dict.fromkeys([*looked, *found.verdicts]))
        return found, looked

    def _possible(self, fleets: Sequence[Counts]) -> list[Verdict]:
        """Verdicts that let a fleet pass of which it cannot be told whether it does."""
        return [Verdict(v.met or not v.told, v.value) for v in self.verdicts(fleets)]

    def _harm(self, found: Found) -> list[str]:
        if found.harmed is None or found.best is None:
            return []
        return [
            f"more devices can do harm here: {self.text(found.harmed)} misses a target that {self.text(found.best)} "
            "meets, so a fleet that was ruled out because a larger one failed may yet do"
        ]

    def _objective(self) -> tuple[np.ndarray, float]:
        """(what each device adds, what each watt of work above idle adds) to the objective at the least."""
        if self.asked.objective == "cost":
            return self.prices, 0.0
        per_watt = 1.0
        if self.asked.objective == "carbon":
            site = self.scenario.site
            assert site is not None and site.carbon is not None  # noqa: S101  checked before
            # grams a joule at the cleanest hour, as kg in an hour
            per_watt = site.pue * min(site.carbon) * 3.6
        return self.demand.idle_w * per_watt, per_watt

    def _autoscaler(self) -> dict[str, Any]:
        """What renting only what is at work, from moment to moment, would cost: no scaling policy can do with less."""
        demand = self.demand
        least = np.full(len(demand), math.inf)
        for c in range(self.entries):
            need = np.zeros(len(demand))
            for resource in demand.resources:
                if resource.class_number == c:
                    need = np.maximum(need, resource.whole_s / resource.capacity)
            least = np.minimum(least, np.where(demand.eligible[c], need * self.prices[c], math.inf))
        bounds = self.bounds.first
        kept = bounds.counted
        windows = 60
        edges = np.linspace(bounds.start_s, float(demand.arrival_s[-1]) + 1e-12, windows + 1)
        of = np.clip(np.searchsorted(edges, demand.arrival_s[kept], side="right") - 1, 0, windows - 1)
        width = max((edges[-1] - edges[0]) / windows, 1e-12)
        profile = np.bincount(of, weights=least[kept], minlength=windows) / width
        return {
            "autoscaler_usd_per_h": float(least[kept].sum() / bounds.length_s * (1 - 1e-9)),
            "autoscaler_by_window_usd_per_h": [float(f"{v:.6g}") for v in profile],
            "window_s": float(width),
        }

    # Verdicts.

    def _cases(self, case: Case) -> list[Case]:
        """The fleet, and with `spare` the fleet without so many of each entry."""
        cases = [case]
        if self.asked.spare:
            for i, n in enumerate(case.counts):
                if n:
                    less = tuple(max(0, m - self.asked.spare) if i == j else m for j, m in enumerate(case.counts))
                    cases.append(replace(case, counts=less))
        return cases

    def can(self, case: Case) -> bool:
        return any(case.counts) and math.isfinite(self.bounds.load(case.counts)[0])

    def guess(self, counts: Sequence[int]) -> float:
        """The least of the objective that the fleet's devices come to whatever they do, by which fleets are ranked."""
        return float(np.asarray(counts, dtype=np.float64) @ self._objective()[0])

    def verdicts(self, fleets: Sequence[Counts]) -> list[Verdict]:
        found = []
        for evaluation in self.judge([Case(counts) for counts in fleets]):
            value = evaluation[OBJECTIVES[self.asked.objective]]
            told = evaluation["verdict"] != "unknown"
            found.append(Verdict(evaluation["met"], math.inf if value is None else value, told))
        return found

    def judge(self, cases: Sequence[Case]) -> list[dict[str, Any]]:
        """Simulate fleets, each under a load and with speeds; their evaluations."""
        self.simulator([part for case in cases for part in self._cases(case) if self.can(part)])
        return [self.evaluation(case) for case in cases]

    def evaluation(self, fleet: Case) -> dict[str, Any]:
        """What was simulated of a fleet; with `spare` also whether it does without that many of any entry."""
        whole, *less = self._cases(fleet)
        evaluation = dict(self.simulator.known[whole])
        for case in less:
            if evaluation["verdict"] == "fails":
                break
            lost = f"without {self.asked.spare} of {self.names[_differs(fleet.counts, case.counts)]}"
            if not self.can(case):
                evaluation |= {
                    "met": False, "verdict": "fails", "spare_breaks": f"{lost} nothing serves every job"
                }  # fmt: skip
                continue
            degraded = self.simulator.known[case]
            times = [t for t in degraded["targets"] if t["unit"] == "s" or t["metric"] in ("throughput", "completed")]
            if not degraded["keeps_up"] or not all(t["met"] for t in times):
                fails = not degraded["keeps_up"] or any(t["verdict"] == "missed" for t in times)
                evaluation |= {
                    "met": False, "verdict": "fails" if fails else "unknown",
                    "spare_breaks": f"{lost}: {'; '.join(explain.broken(degraded))}",
                }  # fmt: skip
        return evaluation

    # Words and rows.

    def named(self, counts: Sequence[int]) -> dict[str, int]:
        return {name: int(n) for name, n in zip(self.names, counts, strict=True) if n}

    def text(self, counts: Sequence[int]) -> str:
        return " + ".join(f"{n:,} × {name}" for name, n in self.named(counts).items())

    def least_load(self, counts: Sequence[int]) -> float | None:
        """The share of a fleet's time that the work of the busiest stretch takes at the least; None where it cannot."""
        return _finite(self.bounds.load(counts)[0])

    def value_text(self, evaluation: Mapping[str, Any]) -> str:
        objective = self.asked.objective
        value, unit = evaluation[OBJECTIVES[objective]], _UNITS[objective]
        if value is None:
            return "nothing measured"
        return f"{value:,.2f} {unit}" if unit != "W" else format_quantity(value, "W")

    def _fleet(self, evaluation: Mapping[str, Any]) -> dict[str, Any]:
        devices: dict[str, int] = {}
        for target, n in zip(self.devices, evaluation["counts"], strict=True):
            if n:
                devices[target.label] = devices.get(target.label, 0) + n
        kept = {
            key: evaluation[key]
            for key in (
                "cost_usd_per_h", "power_w", "peak_power_w", "energy_cost_usd_per_h", "total_cost_usd_per_h",
                "carbon_kg_per_h", "utilisation", "p50_s", "p99_s", "keeps_up", "verdict", "judged_by",
            )
        }  # fmt: skip
        return {
            "devices": devices,
            "entries": self.named(evaluation["counts"]),
            "text": self.text(evaluation["counts"]),
            **kept,
            "load_at_best": self.least_load(evaluation["counts"]),
            "targets": [dict(target) for target in evaluation["targets"]],
            "breaks": explain.broken(evaluation),
        }

    def _entries(self, prepared: PreparedRun, alone: Mapping[int, str]) -> list[dict[str, Any]]:
        """Each candidate, and why it was left out or not found to do it alone."""
        rows = []
        for i, name in enumerate(self.names):
            why = self._excluded(prepared, i)
            if why is None and alone.get(i) == "cannot":
                why = "alone it cannot serve every job in time, however many there are"
            elif why is None and alone.get(i) == "too few":
                why = f"alone it would take more than the {self.most[i]:,} that may be had"
            elif why is None and alone.get(i) == "most":
                why = f"alone, {self.most[i]:,} of them still fail"
            elif why is None and alone.get(i) == "dear":
                why = "alone it would cost far more than the best, and was not pursued"
            rows.append(
                {"name": name, "device": self.devices[i].label, "price_usd_per_h": float(self.prices[i]), "why": why}
            )
        return rows

    def _excluded(self, prepared: PreparedRun, entry: int) -> str | None:
        """Why an entry can run no job at all."""
        if self.demand.eligible[entry].any():
            return None
        mine = [c for (number, _), c in prepared.compiled.items() if number == entry]
        if not mine:
            return "it runs none of these jobs"
        need = min(float(c.footprint_bytes.min()) for c in mine)
        room = self.devices[entry].memory_bytes * prepared.policy.batch.memory
        return f"it holds {format_quantity(room, 'B')} of the {format_quantity(need, 'B')} that the least job needs"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _differs(one: Counts, other: Counts) -> int:
    return next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
