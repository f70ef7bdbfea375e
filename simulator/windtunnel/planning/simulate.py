"""Fleets as cases, each simulated through `simulation.run` and judged with confidence, side by side on processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from windtunnel.core.result import Recording
from windtunnel.planning.bounds import Counts, keep_up_s
from windtunnel.planning.judge import draws, judged, lengthened, repeats
from windtunnel.scenario.scenario import Scenario
from windtunnel.scenario.target import Target
from windtunnel.simulation import run as simulation
from windtunnel.simulation.run import Run, replication_seed
from windtunnel.sweep.workers import one_thread
from windtunnel_models.catalogue import Catalogue

_POOL_ABOVE_S = 0.4
"""A simulation shorter than this is not worth a process of its own."""
_PRELOAD = (
    "windtunnel.planning.simulate", "windtunnel.engine.process.engine", "windtunnel.engine.results.metrics",
    "windtunnel.engine.compiled", "scipy.special", "scipy.optimize",
)  # fmt: skip
"""What a simulation imports: once for all workers, which are forked from a server that has imported it."""


@dataclass(frozen=True)
class Case:
    """A fleet under a load (1: the scenario's) with each entry's devices so many times as fast as stated."""

    counts: Counts
    load: float = 1.0
    speeds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Setting:
    """What every simulation of a plan shares; sent to each worker once."""

    scenario: Scenario
    catalogue: Catalogue
    confidence: float
    replications: int
    """Runs of every fleet."""
    longest_s: float
    further: int = 5
    """Runs, or how many times as long a run, of a fleet that one run gives no interval, where ``replications`` is 1."""


def variant(scenario: Scenario, case: Case) -> Scenario:
    """The scenario with a case's fleet, load and speeds; entries of which there are none are left out."""
    fleet = [
        entry.model_copy(
            update={
                "count": count,
                "name": entry_name(scenario, i),
                "speed": entry.speed * (case.speeds[i] if case.speeds else 1.0),
            }
        )
        for i, (entry, count) in enumerate(zip(scenario.fleet, case.counts, strict=True))
        if count
    ]
    workload = [
        w.model_copy(update={"arrivals": w.arrivals if case.load == 1.0 else w.arrivals.scaled(case.load)})
        for w in scenario.workload
    ]
    # Whether a fleet keeps up is judged by jobs, which must not all be dropped.
    records = "sample" if scenario.records == "none" else scenario.records
    return scenario.changed(fleet=fleet, workload=workload, records=records)


def entry_name(scenario: Scenario, entry: int) -> str:
    """What an entry is called in a plan: its name or its device, with a number where several share that."""
    names = [e.name or e.device for e in scenario.fleet]
    name = names[entry]
    return name if names.count(name) == 1 else f"{name}.{names[: entry + 1].count(name)}"


# One simulation.


def simulate(setting: Setting, case: Case) -> dict[str, Any]:
    """What a fleet does, judged with confidence: plain data, the same wherever it is worked out.

    One run judges where it gives every target an interval that is needed. Else the fleet is looked at for longer, or
    by replications: see ``_further``. It must still hold in the first run, for which the bound is reckoned.
    """
    scenario = variant(setting.scenario, case)
    targets = scenario.parsed_targets()
    slowest = min([speed for speed, n in zip(case.speeds, case.counts, strict=bool(case.speeds)) if n], default=1.0)
    repeated, fixed = repeats(scenario), not draws(scenario)

    def run(asked: Scenario) -> tuple[dict[str, Any], tuple[float, bool]]:
        found = simulation.run(asked, catalogue=setting.catalogue)
        return found.result, _behind_s(asked, found, targets, setting.longest_s / slowest)

    def verdicts(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            judged(
                target, [r["targets"][i] for r in results], results, setting.confidence, repeats=repeated, fixed=fixed
            )
            for i, target in enumerate(targets)
        ]

    def fails(one: tuple[dict[str, Any], tuple[float, bool]]) -> bool:
        """Whether a run alone rules a fleet out, whatever others give: none may lack a value, and all must keep up."""
        return not one[1][1] or any(row["value"] is None for row in one[0]["targets"])

    runs = [run(scenario)]
    for one in _replicas(scenario, setting.replications):
        if fails(runs[-1]):
            break
        runs.append(run(one))
    results, found, by = [result for result, _ in runs], verdicts([result for result, _ in runs]), "run"
    if setting.replications > 1:
        by = "replications"
        if len(runs) < setting.replications:
            # It was not gone on with, so of the rest too little is known for a verdict.
            found = [t if t["value"] is None else t | _UNJUDGED for t in found]
    elif setting.further > 1 and runs[0][1][1] and {"unknown"} <= {t["verdict"] for t in found} <= {"unknown", "met"}:
        further, by = _further(scenario, setting.further)
        if further:
            more = [run(one) for one in further]
            results = [result for result, _ in (runs + more if by == "replications" else more)]
            found = verdicts(results)
            runs += more
            if by == "longer":
                found = [
                    t | {"why": f"{t['why']}, even in a run {setting.further} times as long"} if t["why"] else t
                    for t in found
                ]
    slack, keeps = runs[0][1][0], all(up for _, (_, up) in runs)
    told = {t["verdict"] for t in found}
    verdict = "fails" if not keeps or "missed" in told else ("unknown" if "unknown" in told else "meets")
    # Where more is simulated of some fleets than of others, what they draw is that of the run which all share: the
    # bound of an objective of power holds for that one.
    shared = results if setting.replications > 1 else [runs[0][0]]
    first = runs[0][0]

    def mean(of: Sequence[Mapping[str, Any]], pick: Callable[[Mapping[str, Any]], float | None]) -> float | None:
        known = [v for v in (pick(r) for r in of) if v is not None]
        return float(np.mean(known)) if known else None

    def site(key: str) -> Callable[[Mapping[str, Any]], float | None]:
        return lambda r: None if r["site"] is None else r["site"][key]

    return {
        "counts": list(case.counts),
        "met": verdict == "meets",
        "verdict": verdict,
        "judged_by": by,
        "runs": len(runs),
        "keeps_up": keeps,
        "keep_up_s": slack,
        "unstable": next((r["statistics"]["steady_state_reason"] for r in results if _grows(r)), None),
        "targets": found,
        "cost_usd_per_h": first["cost_usd_per_h"],
        "power_w": mean(shared, lambda r: r["average_power_w"]),
        "peak_power_w": max(r["peak_power_w"] for r in shared),
        "energy_cost_usd_per_h": mean(shared, site("energy_cost_usd_per_h")),
        "total_cost_usd_per_h": mean(shared, site("cost_usd_per_h")),
        "carbon_kg_per_h": mean(shared, site("carbon_kg_per_h")),
        "utilisation": mean(results, lambda r: r["utilisation"]),
        "p99_s": mean(results, lambda r: r["latency_s"]["p99"]["value"]),
        "p50_s": mean(results, lambda r: r["latency_s"]["p50"]["value"]),
        "engine": first["engine"],
        "model_accuracy": first["model_accuracy"],
    }


_UNJUDGED = {
    "met": False, "verdict": "unknown", "low": None, "high": None, "worst": None, "headroom": None, "interval": "none",
    "why": "the fleet fails by something else, and no more runs were made",
}  # fmt: skip


def _grows(result: Mapping[str, Any]) -> bool:
    return bool(result["statistics"]["steady_state"] == "unstable")


def _replicas(scenario: Scenario, replications: int) -> list[Scenario]:
    """The replications after the first."""
    return [scenario.reseeded(replication_seed(scenario.seed, i)) for i in range(1, replications)]


def _further(scenario: Scenario, times: int) -> tuple[list[Scenario], str]:
    """What else to simulate where one run gives no interval, and what that is called.

    A run that is too short to be sure of a queue near its capacity begins too empty as well, and so would each
    replication of it; so where nothing changes with time one run ``times`` as long is looked at. Else replications,
    where they draw anything new; else there is nothing.
    """
    longer = lengthened(scenario, times)
    if longer is not None:
        return [longer], "longer"
    if draws(scenario):
        return _replicas(scenario, times), "replications"
    return [], "run"


def _behind_s(scenario: Scenario, run: Run, targets: Sequence[Target], longest_s: float) -> tuple[float, bool]:
    """(how long after its arrival the last job may be done, whether it was)."""
    recording = run.recording
    assert isinstance(recording, Recording)  # noqa: S101  fleets are planned, not clusters
    arrival = recording.jobs.arrival
    last = int(arrival[-1]) if recording.tally is None else recording.tally.last_arrival
    slack = keep_up_s(float(last - arrival[0]) / 1e12, targets, longest_s)
    if scenario.stop is None or scenario.stop.time is None:
        return slack, recording.end / 1e12 <= float(last) / 1e12 + slack
    due = arrival <= recording.end - slack * 1e12
    return slack, bool((recording.jobs.finish[due] >= 0).all())


# Many simulations, side by side.

_shared: list[Setting] = []


def _begin(setting: Setting) -> None:
    _shared[:] = [setting]


def _in_worker(case: Case) -> dict[str, Any]:
    return simulate(_shared[0], case)


class Simulator:
    """Simulates cases, each once, on ``workers`` processes where a simulation is long enough to be worth it."""

    def __init__(self, setting: Setting, workers: int, progress: Callable[[int], None] | None) -> None:
        self.setting = setting
        self.workers = workers
        self.progress = progress
        self.known: dict[Case, dict[str, Any]] = {}
        self.longest_s = 0.0
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, cases: Sequence[Case]) -> list[dict[str, Any]]:
        new = [case for case in dict.fromkeys(cases) if case not in self.known]
        while new and (self.workers == 1 or len(new) == 1 or self.longest_s < _POOL_ABOVE_S):
            began = time.monotonic()
            self.keep(new[0], simulate(self.setting, new.pop(0)))
            self.longest_s = max(self.longest_s, time.monotonic() - began)
        if new:
            if self._pool is None:
                context = get_context("forkserver")
                context.set_forkserver_preload(list(_PRELOAD))
                self._pool = ProcessPoolExecutor(self.workers, context, initializer=_begin, initargs=(self.setting,))
            with one_thread():  # handing out the work is what starts processes
                coming = self._pool.map(_in_worker, new)
            for case, found in zip(new, coming, strict=True):
                self.keep(case, found)
        return [self.known[case] for case in cases]

    def keep(self, case: Case, found: dict[str, Any]) -> None:
        """Remember what a case does."""
        self.known[case] = found
        if self.progress is not None:
            self.progress(len(self.known))

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
