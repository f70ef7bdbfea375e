"""Fleets as cases, each simulated through `app.run` and judged with confidence, side by side on processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from windtunnel import app, running
from windtunnel.core.result import Recording
from windtunnel.core.scenario import Scenario
from windtunnel.core.target import METRICS, Target
from windtunnel.core.units import to_unit
from windtunnel.planning import explain
from windtunnel.planning.bounds import Counts, keep_up_s
from windtunnel_models.catalogue import Catalogue

_EXACT = ("cost",)
_POOL_ABOVE_S = 0.4
"""A simulation shorter than this is not worth a process of its own."""


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
    known: Catalogue
    confidence: float
    replications: int
    longest_s: float


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
    records = "sample" if scenario.records == "drop" else scenario.records
    return scenario.changed(fleet=fleet, workload=workload, records=records)


def entry_name(scenario: Scenario, entry: int) -> str:
    """What an entry is called in a plan: its name or its device, with a number where several share that."""
    names = [e.name or e.device for e in scenario.fleet]
    name = names[entry]
    return name if names.count(name) == 1 else f"{name}.{names[: entry + 1].count(name)}"


# One simulation.


def simulate(setting: Setting, case: Case) -> dict[str, Any]:
    """What a fleet does, judged with confidence: plain data, the same wherever it is worked out."""
    scenario = variant(setting.scenario, case)
    targets = scenario.parsed_targets()
    runs = [app.run(scenario, known=setting.known)]
    for i in range(1, setting.replications):
        seed = running.replication_seed(scenario.seed, i)
        runs.append(app.run(scenario.reseeded(seed), known=setting.known))
    results = [run.result for run in runs]
    judged = [
        _judged(target, [r["targets"][i] for r in results], results[0], setting) for i, target in enumerate(targets)
    ]
    slowest = min([speed for speed, n in zip(case.speeds, case.counts, strict=bool(case.speeds)) if n], default=1.0)
    late = [_behind_s(scenario, run, targets, setting.longest_s / slowest) for run in runs]
    slack, keeps = late[0][0], all(up for _, up in late)

    def mean(pick: Callable[[Mapping[str, Any]], float | None]) -> float | None:
        values = [pick(r) for r in results]
        known = [v for v in values if v is not None]
        return float(np.mean(known)) if known else None

    def site(key: str) -> Callable[[Mapping[str, Any]], float | None]:
        return lambda r: None if r["site"] is None else r["site"][key]

    return {
        "counts": list(case.counts),
        "met": keeps and all(t["met"] for t in judged),
        "keeps_up": keeps,
        "keep_up_s": slack,
        "targets": judged,
        "cost_usd_per_h": results[0]["cost_usd_per_h"],
        "power_w": mean(lambda r: r["average_power_w"]),
        "peak_power_w": max(r["peak_power_w"] for r in results),
        "energy_cost_usd_per_h": mean(site("energy_cost_usd_per_h")),
        "total_cost_usd_per_h": mean(site("cost_usd_per_h")),
        "carbon_kg_per_h": mean(site("carbon_kg_per_h")),
        "utilisation": mean(lambda r: r["utilisation"]),
        "p99_s": mean(lambda r: r["latency_s"]["p99"]["value"]),
        "p50_s": mean(lambda r: r["latency_s"]["p50"]["value"]),
        "engine": results[0]["engine"],
        "models": results[0]["models"],
    }


def _behind_s(scenario: Scenario, run: app.Run, targets: Sequence[Target], longest_s: float) -> tuple[float, bool]:
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


def _judged(
    target: Target, rows: Sequence[Mapping[str, Any]], result: Mapping[str, Any], setting: Setting
) -> dict[str, Any]:
    """A target with its interval; the interval's worse end must be within the limit."""
    values = [row["value"] for row in rows]
    value = None if any(v is None for v in values) else float(np.mean(values))
    low = high = None
    interval = "none"
    if target.metric in _EXACT:
        low = high = value
        interval = "exact"
    elif len(values) > 1 and value is not None:
        half = _student(len(values) - 1, setting.confidence) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
        low, high, interval = value - half, value + half, "replications"
    elif value is not None:
        found = _interval(target, result, rows[0])
        if found is not None:
            # Given for 95%; for another confidence in proportion of Student's t with the fewest batches or the normal.
            widen = 1.0
            if setting.confidence != 0.95:
                widen = max(_student(n, setting.confidence) / _student(n, 0.95) for n in (9, 10**6))
            low, high = value - (value - found[0]) * widen, value + (found[1] - value) * widen
            interval = "run"
    worst = value if low is None or high is None else (high if target.comparison == "<=" else low)
    limit = to_unit(target.limit, target.unit)
    met = worst is not None and (worst <= limit if target.comparison == "<=" else worst >= limit)
    judged = {
        "text": target.text, "met": met, "value": value, "low": low, "high": high, "worst": worst, "limit": limit,
        "unit": target.unit, "comparison": target.comparison, "metric": target.metric, "statistic": target.statistic,
        "workload": target.workload, "interval": interval,
    }  # fmt: skip
    return judged | {"headroom": explain.headroom(judged)}


def _interval(target: Target, result: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[float, float] | None:
    """The run's own 95% interval for a target's value, in the target's unit; None where it has none."""
    if METRICS[target.metric].per_workload:
        part = result
        if target.workload is not None:
            part = next(w for w in result["workloads"] if w["name"] == target.workload)
        found = part[f"{target.metric}_s"][target.statistic]
        if found["low"] is None or found["high"] is None:
            return None
        return to_unit(found["low"], target.unit), to_unit(found["high"], target.unit)
    if row.get("low") is None or row.get("high") is None:
        return None
    return float(row["low"]), float(row["high"])


def _student(degrees: int, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))


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
            self._keep(new[0], simulate(self.setting, new.pop(0)))
            self.longest_s = max(self.longest_s, time.monotonic() - began)
        if new:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    self.workers, get_context("spawn"), initializer=_begin, initargs=(self.setting,)
                )
            for case, found in zip(new, self._pool.map(_in_worker, new), strict=True):
                self._keep(case, found)
        return [self.known[case] for case in cases]

    def _keep(self, case: Case, found: dict[str, Any]) -> None:
        self.known[case] = found
        if self.progress is not None:
            self.progress(len(self.known))

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
