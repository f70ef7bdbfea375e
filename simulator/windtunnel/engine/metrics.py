"""What a run is summed up in: latency, waiting, tokens, power, cost, targets. Defined in docs/metrics.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.core.result import COMPLETED, STATUS, Recording
from windtunnel.core.target import METRICS, Target
from windtunnel.core.ticks import to_second_array
from windtunnel.core.units import to_unit
from windtunnel.engine.economics import economics
from windtunnel.engine.fleet import Prepared
from windtunnel.engine.sample import BatchedSample
from windtunnel.engine.statistics import METHOD, Estimate, estimates, over_replications
from windtunnel.engine.steady import TOO_FEW, Growth, effective, growth, warm_up

_ORDER = ("arrived", "completed", "dropped", "failed", "running", "queued")


def summarise(prepared: Prepared, recordings: Sequence[Recording], targets: Sequence[Target]) -> dict[str, Any]:
    """The measured part of result.json, from one recording or from several replications.

    With replications, job counts are totals over all of them, values are means over them, and intervals are
    between them; devices are the first replication's. ``notes``: what a reader of the averages must know.
    """
    runs = [_one(prepared, recording) for recording in recordings]
    first = runs[0]
    result = first if len(runs) == 1 else _over(runs)
    result["targets"] = [_judge(target, result) for target in targets]
    result["notes"] = _notes(result["statistics"])
    return result


@dataclass(frozen=True)
class _Steady:
    """What a run's times are taken over: jobs from ``job`` (in order of arrival) on, which arrived at tick ``since``.

    ``at_most``: independent observations that the slowest swings of the waiting times leave. ``settled``: whether the
    run has a steady state; None for a source that has none to reach.
    """

    job: int
    since: int
    reason: str
    at_most: float
    settled: Growth | None


def _steady(prepared: Prepared, recording: Recording) -> _Steady:
    jobs = recording.jobs
    if not all(w.workload.arrivals.stationary for w in prepared.workloads):
        return _Steady(0, 0, "arrivals change with time: every job counts", math.inf, None)
    started, done = np.flatnonzero(jobs.start >= 0), np.flatnonzero(jobs.status == COMPLETED)
    waits = BatchedSample.from_values(to_second_array(jobs.start[started] - jobs.arrival[started]))
    latencies = BatchedSample.from_values(to_second_array(jobs.finish[done] - jobs.arrival[done]))
    cuts = [(warm_up(waits), started), (warm_up(latencies), done)]
    first, reason = max(((int(of[cut.jobs]) if cut.jobs else 0, cut.reason) for cut, of in cuts), key=lambda x: x[0])
    kept = started[started >= first]
    at_most = effective(BatchedSample.from_values(to_second_array(jobs.start[kept] - jobs.arrival[kept])))
    since = int(jobs.arrival[first]) if len(jobs) else 0
    return _Steady(first, since, reason, at_most, growth(waits))


def _notes(statistics: Mapping[str, Any]) -> list[str]:
    notes = []
    if statistics["settled"] == "grows":
        notes.append(f"unstable: {statistics['settled_reason']}; the averages depend on how long the run was")
    elif statistics["settled"] == "not shown" and statistics["settled_reason"] != TOO_FEW:
        notes.append(f"no steady state is shown: {statistics['settled_reason']}")
    cut = statistics["warmup_jobs"]
    if isinstance(cut, list):
        if any(cut):
            notes.append("times leave out the warm-up of each replication")
    elif cut:
        notes.append(f"times leave out the first {cut:,} jobs, the warm-up")
    return notes


def _one(prepared: Prepared, recording: Recording) -> dict[str, Any]:
    jobs = recording.jobs
    span_s = recording.end / 1e12
    gaps = recording.token_gaps
    everything = np.ones(len(jobs), dtype=bool)
    devices = [
        {
            "name": d.name,
            "sku": d.label,
            "kind": d.kind,
            "utilisation": d.busy_ticks / recording.end if recording.end else 0.0,
            "energy_j": d.energy_j,
            "jobs": d.jobs,
            "power_limit_w": d.power_limit_w,
            "idle_power_w": d.idle_power_w,
        }
        for d in recording.devices
    ]
    prices = [c.price_usd_per_s for c in prepared.classes]
    rate = None
    if all(price is not None for price in prices):
        rate = sum(c.count * (c.price_usd_per_s or 0.0) for c in prepared.classes)
    completed = int((jobs.status == COMPLETED).sum())
    tokens = int(jobs.tokens[jobs.status == COMPLETED].sum())
    steady = _steady(prepared, recording)
    whole = _times(recording, everything, np.ones(len(gaps.ticks), dtype=bool), steady)
    alone = len(prepared.workloads) == 1
    site = economics(recording.power, prepared.scenario.site, rate)
    return {
        "span_s": span_s,
        **whole,
        "statistics": {
            "method": METHOD,
            "stationary": steady.settled is not None,
            "warmup_jobs": steady.job,
            "warmup_reason": steady.reason,
            "settled": None if steady.settled is None else steady.settled.settled,
            "settled_reason": None if steady.settled is None else steady.settled.reason,
            **whole["statistics"],
        },
        "throughput_per_s": completed / span_s if span_s else 0.0,
        "tokens_per_s": tokens / span_s if tokens and span_s else None,
        "workloads": [
            {
                "name": w.workload.name,
                "use": w.workload.use,
                **(whole if alone else _times(recording, jobs.workload == w.number, gaps.workload == w.number, steady)),
            }
            for w in prepared.workloads
        ],
        "devices": devices,
        "utilisation": float(np.mean([d["utilisation"] for d in devices])),
        "energy_j": recording.power.integral(),
        "average_power_w": recording.power.mean(),
        "peak_power_w": float(recording.power.values.max()),
        "power_limit_w": sum(c.count * c.limit_w for c in prepared.classes),
        "cost_usd": None if rate is None else rate * span_s,
        "cost_usd_per_h": None if rate is None else rate * 3600,
        "total_cost_usd": None if site is None else site["cost_usd"],
        "site": site,
    }


def _times(recording: Recording, mine: np.ndarray, gaps: np.ndarray, steady: _Steady) -> dict[str, Any]:
    jobs = recording.jobs
    status = np.bincount(jobs.status[mine], minlength=5)
    counts = {"arrived": int(mine.sum())} | {name: int(status[code]) for code, name in enumerate(STATUS)}
    warm = mine.copy()
    warm[: steady.job] = False
    done = warm & (jobs.status == COMPLETED)
    started = warm & (jobs.start >= 0)
    generating = bool((jobs.tokens[mine] > 0).any())
    samples: dict[str, BatchedSample | None] = {
        "latency_s": BatchedSample.from_values(to_second_array(jobs.finish[done] - jobs.arrival[done])),
        "waiting_s": BatchedSample.from_values(to_second_array(jobs.start[started] - jobs.arrival[started])),
        "first_token_s": None,
        "next_token_s": None,
    }
    if generating:
        spoke = warm & (jobs.first >= 0)
        table = recording.token_gaps
        late = gaps & (table.end >= steady.since)
        gap_s, weights = to_second_array(table.ticks[late]), table.weights[late].astype(np.float64)
        samples["first_token_s"] = BatchedSample.from_values(to_second_array(jobs.first[spoke] - jobs.arrival[spoke]))
        samples["next_token_s"] = BatchedSample.from_values(gap_s, weights)
    reason = None
    if steady.settled is not None and steady.settled.settled == "grows":
        reason = steady.settled.reason
    found = {
        name: None if sample is None else estimates(sample, at_most=steady.at_most, reason=reason)
        for name, sample in samples.items()
    }
    return {
        "jobs": {name: counts[name] for name in _ORDER},
        **{name: None if one is None else _dicts(one) for name, one in found.items()},
        "statistics": {
            "batches": {name: len(sample) for name, sample in samples.items() if sample is not None},
            "missing": {
                name: {statistic: e.reason for statistic, e in one.items() if e.low is None}
                for name, one in found.items()
                if one is not None and any(e.low is None for e in one.values())
            },
        },
    }


def _dicts(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {name: estimate.as_dict() for name, estimate in estimates.items()}


def _over(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Replications as one: see ``summarise``."""
    merged = _merge_times(runs)
    for key in runs[0]:
        if key in merged or key in ("devices", "workloads", "statistics", "site"):
            continue
        merged[key] = _mean([run[key] for run in runs])
    site = runs[0]["site"]
    merged["site"] = None if site is None else {key: _mean([run["site"][key] for run in runs]) for key in site}
    merged["devices"] = runs[0]["devices"]
    every = [run["statistics"] for run in runs]
    # The worst of them speaks for all: one replication that grows makes a mean over them mean nothing.
    worst = max(every, key=lambda one: ("yes", "not shown", "grows").index(one["settled"] or "yes"))
    merged["statistics"] = {
        "method": "replications: Student's t over their values",
        "stationary": worst["stationary"],
        "warmup_jobs": [one["warmup_jobs"] for one in every],
        "warmup_reason": every[0]["warmup_reason"],
        "settled": worst["settled"],
        "settled_reason": worst["settled_reason"],
        "replications": len(runs),
        "missing": {},
    }
    merged["workloads"] = [
        {"name": w["name"], "use": w["use"], **_merge_times([run["workloads"][i] for run in runs])}
        for i, w in enumerate(runs[0]["workloads"])
    ]
    return merged


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _merge_times(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {"jobs": {name: sum(part["jobs"][name] for part in parts) for name in _ORDER}}
    for key in ("latency_s", "waiting_s", "first_token_s", "next_token_s"):
        if parts[0][key] is None:
            merged[key] = None
            continue
        merged[key] = {
            name: over_replications([part[key][name]["value"] for part in parts if part[key]]).as_dict()
            for name in parts[0][key]
        }
    return merged


def _judge(target: Target, result: Mapping[str, Any]) -> dict[str, Any]:
    value = measured(target, result)
    unit = METRICS[target.metric].unit
    return {
        "text": target.text,
        "met": target.met_by(value),
        "value": None if value is None else to_unit(value, unit),
        "metric": target.metric,
        "statistic": target.statistic,
        "workload": target.workload,
        "comparison": target.comparison,
        "limit": to_unit(target.limit, unit),
        "unit": unit,
    }


def measured(target: Target, result: Mapping[str, Any]) -> float | None:
    """The value (SI) that a target speaks of; None when nothing was measured."""
    if METRICS[target.metric].per_workload:
        part = result
        if target.workload is not None:
            part = next(w for w in result["workloads"] if w["name"] == target.workload)
        times = part[f"{target.metric}_s"]
        return None if times is None else times[target.statistic]["value"]
    jobs, site = result["jobs"], result["site"] or {}

    def a_second(key: str, factor: float) -> float | None:
        return None if site.get(key) is None else site[key] * factor / 3600

    values: dict[str, float | None] = {
        "throughput": result["throughput_per_s"],
        "energy": result["energy_j"],
        "cost": None if result["cost_usd_per_h"] is None else result["cost_usd_per_h"] / 3600,
        "energy_cost": a_second("energy_cost_usd_per_h", 1.0),
        "total_cost": a_second("cost_usd_per_h", 1.0),
        "carbon": a_second("carbon_kg_per_h", 1e3),
        "availability": result.get("availability"),
        "utilisation": result["utilisation"],
        "completed": jobs["completed"] / jobs["arrived"] if jobs["arrived"] else None,
        "power": result["average_power_w"] if target.statistic == "average" else result["peak_power_w"],
    }
    return values[target.metric]
