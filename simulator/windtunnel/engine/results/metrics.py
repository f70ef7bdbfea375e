"""What a run is summed up in: latency, waiting, tokens, power, cost, targets. Defined in docs/metrics.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.core.result import COMPLETED, FAILED, SPELLS, STATUS, DeviceRecord, IntArray, Recording, distribution
from windtunnel.core.ticks import to_second_array
from windtunnel.core.units import to_unit
from windtunnel.engine.prepare.fault_schedule import is_straggler
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results.autoscaling import rented_devices, sections
from windtunnel.engine.results.economics import economics
from windtunnel.engine.results.power_budget import power_budget
from windtunnel.engine.results.statistics import (
    METHOD,
    STATISTICS,
    Estimate,
    estimates,
    no_surer_than,
    over_replications,
)
from windtunnel.engine.results.steady import TOO_FEW
from windtunnel.engine.results.times import Times, times_of
from windtunnel.scenario.faults import OperationFault, Straggler
from windtunnel.scenario.program import Generate
from windtunnel.scenario.target import METRICS, Target

_OF_DEVICES = ("utilisation", "rented_s", "energy_j", "availability")
_OF_THE_FIRST = ("autoscale", "power_budget")
"""Courses of one run, of which there is no mean."""
_ORDER = ("arrived", "completed", "dropped", "failed", "running", "queued")


def summarise(prepared: PreparedRun, recordings: Sequence[Recording], targets: Sequence[Target]) -> dict[str, Any]:
    """The measured part of result.json, from one recording or from several replications.

    With replications, job counts are totals over all of them, values are means over them (devices' too), and intervals
    are between them; what changes over time (scaled entries, budgets) is the first replication's. ``notes``: what a
    reader of the averages must know.
    """
    runs = [_one(prepared, recording) for recording in recordings]
    first = runs[0]
    result = first if len(runs) == 1 else _over(runs)
    result["targets"] = [_judge(target, result) for target in targets]
    result["notes"] = _notes(result["statistics"])
    return result


def _notes(statistics: Mapping[str, Any]) -> list[str]:
    notes = []
    if statistics["steady_state"] == "unstable":
        # There are no times, so there is no warm-up that they leave out.
        return [f"unstable: {statistics['steady_state_reason']}; no average is given"]
    if statistics["steady_state"] == "not shown" and statistics["steady_state_reason"] != TOO_FEW:
        notes.append(f"no steady state is shown: {statistics['steady_state_reason']}")
    cut = statistics["warmup_jobs"]
    if isinstance(cut, list):
        if any(cut):
            notes.append("times leave out the warm-up of each replication")
    elif cut:
        notes.append(f"times leave out the first {cut:,} jobs, the warm-up")
    return notes


def _one(prepared: PreparedRun, recording: Recording) -> dict[str, Any]:
    span_s = recording.end / 1e12
    devices = [
        {
            "name": d.name,
            "sku": d.label,
            "entry": prepared.classes[cls].name,
            "kind": d.kind,
            "utilisation": _utilisation(d, recording),
            "rented_s": _rented(d, recording) / 1e12,
            "energy_j": d.energy_j,
            "jobs": d.jobs,
            "power_limit_w": d.power_limit_w,
            "idle_power_w": d.idle_power_w,
            "availability": 1.0 - d.down_ticks / recording.end if recording.end else 1.0,
        }
        for d, cls in zip(recording.devices, prepared.class_of_device().tolist(), strict=True)
    ]
    prices = [c.price_usd_per_s for c in prepared.classes]
    rate = None
    if all(price is not None for price in prices):
        rate = sum(rented_devices(prepared, recording, c) * (c.price_usd_per_s or 0.0) for c in prepared.classes)
    times = times_of(prepared, recording)
    steady = times.steady
    whole = _times(times, None, prepared, recording)
    energy_j = math.fsum(d.energy_j for d in recording.devices) if recording.tally else recording.power.integral()
    peak_w = float(recording.power.values.max()) if recording.tally is None else recording.tally.peak_w
    alone = len(prepared.workloads) == 1
    by_hour_j = None if recording.tally is None else recording.tally.joules_by_hour
    site = economics(recording.power, prepared.scenario.site, rate, by_hour_j)
    return {
        "simulated_s": span_s,
        **whole,
        "statistics": {
            "method": METHOD,
            "stationary": steady.settled is not None,
            "warmup_jobs": steady.job,
            "warmup_reason": steady.reason,
            "steady_state": None if steady.settled is None else steady.settled.settled,
            "steady_state_reason": None if steady.settled is None else steady.settled.reason,
            "offered_load": None if steady.load is None else steady.load.offered,
            **whole["statistics"],
        },
        "throughput_per_s": whole["jobs"]["completed"] / span_s if span_s else 0.0,
        "workloads": [
            {
                "name": w.workload.name,
                "use_case": w.workload.use_case,
                **(whole if alone else _times(times, w.number, prepared, recording)),
            }
            for w in prepared.workloads
        ],
        "devices": devices,
        "faults": _faults(prepared, recording),
        "autoscale": sections(prepared, recording),
        "utilisation": _mean_utilisation(recording),
        "availability": float(np.mean([d["availability"] for d in devices])),
        "energy_j": energy_j,
        "average_power_w": energy_j / span_s if recording.tally else recording.power.mean(),
        "peak_power_w": peak_w,
        "power_limit_w": sum(c.count * c.limit_w for c in prepared.classes),
        "power_budget": power_budget(prepared, recording),
        "cost_usd": None if rate is None else rate * span_s,
        "cost_usd_per_h": None if rate is None else rate * 3600,
        "total_cost_usd": None if site is None else site["cost_usd"],
        "site": site,
    }


def _faults(prepared: PreparedRun, recording: Recording) -> dict[str, Any] | None:
    """What went wrong and what became of it; None where the scenario states no fault."""
    if not prepared.scenario.faults:
        return None
    spells, end_s = recording.spells, recording.end / 1e12
    class_of = prepared.class_of_device()
    entries: list[dict[str, Any]] = []
    events = dict.fromkeys(SPELLS, 0)
    if spells is not None:
        counts = np.bincount(spells.what, minlength=len(SPELLS))
        events = {name: int(count) for name, count in zip(SPELLS, counts, strict=True)}
        on_devices = spells.device >= 0
        lasted_s = np.zeros((len(prepared.classes), len(SPELLS)))
        struck = np.zeros((len(prepared.classes), len(SPELLS)), dtype=np.int64)
        place = class_of[spells.device[on_devices]], spells.what[on_devices]
        np.add.at(lasted_s, place, to_second_array(spells.end[on_devices] - spells.start[on_devices]))
        np.add.at(struck, place, 1)
        for fleet_class in prepared.classes:
            total_s, number = fleet_class.count * end_s, fleet_class.number
            entries.append(
                {
                    "name": fleet_class.name,
                    "devices": fleet_class.count,
                    "failures": int(struck[number, 0]),
                    "down_s": float(lasted_s[number, 0]),
                    "unreachable_s": float(lasted_s[number, 1]),
                    "throttled_s": float(lasted_s[number, 2]),
                    "availability": 1.0 - float(lasted_s[number, 0]) / total_s if total_s else 1.0,
                }
            )
    slow = _slow_jobs(prepared, recording)
    failed = recording.jobs.status == FAILED if recording.tally is None else recording.tally.counts[:, FAILED]
    return {
        "events": events,
        "stragglers": int(np.count_nonzero(np.any(list(slow.values()), axis=0))) if slow else None,
        "interrupted": recording.returned + int(failed.sum()),
        "restarts": recording.returned,
        "failed": int(failed.sum()),
        "corrupted_jobs": recording.corrupted,
        "entries": entries,
        "by_fault": _stated(prepared, recording, slow),
    }


def _stated(prepared: PreparedRun, recording: Recording, slow: Mapping[int, np.ndarray] | None) -> list[dict[str, Any]]:
    """Of each fault that the scenario states, in its order, how often it struck.

    Spells of each device apart, jobs that straggle (None where not every job is kept), and operations: of those also
    how many could have been struck.
    """
    found = []
    for number, fault in enumerate(prepared.scenario.faults):
        operations: int | None = None
        struck: int | None
        if isinstance(fault, OperationFault):
            operations, struck = recording.struck[number]
        elif isinstance(fault, Straggler):
            struck = None if slow is None else int(np.count_nonzero(slow[number]))
        else:
            assert prepared.faults is not None  # noqa: S101  it is part of a schedule
            struck = prepared.faults.count_begun(number, recording.end)
        found.append({"kind": fault.kind, "occurrences": struck, "eligible_operations": operations})
    return found


def _slow_jobs(prepared: PreparedRun, recording: Recording) -> dict[int, np.ndarray] | None:
    """By straggler's place in the list of faults, which jobs it slowed; None where not every job is kept."""
    if recording.tally is not None:
        return None
    scenario, workload = prepared.scenario, recording.jobs.workload
    rank = _ranks(workload)
    return {
        number: is_straggler(fault, number, scenario.seed, recording.workloads, workload, rank)
        for number, fault in enumerate(scenario.faults)
        if isinstance(fault, Straggler)
    }


def _ranks(workload: IntArray) -> IntArray:
    """Each job's place within its workload, of jobs in order of arrival."""
    order = np.argsort(workload, kind="stable")
    rank = np.empty(len(workload), dtype=np.int64)
    rank[order] = np.arange(len(workload)) - np.searchsorted(workload[order], workload[order])
    return rank


def _rented(device: DeviceRecord, recording: Recording) -> int:
    return recording.end if device.rented_ticks is None else device.rented_ticks


def _utilisation(device: DeviceRecord, recording: Recording) -> float:
    rented = _rented(device, recording)
    return device.busy_ticks / rented if rented else 0.0


def _mean_utilisation(recording: Recording) -> float:
    """The mean over devices, each by how long it was rented."""
    rented = [_rented(device, recording) for device in recording.devices]
    shares = [_utilisation(device, recording) for device in recording.devices]
    if min(rented) == max(rented):
        return float(np.mean(shares))
    return float(np.average(shares, weights=np.array(rented, dtype=np.float64)))


def _times(times: Times, work: int | None, prepared: PreparedRun, recording: Recording) -> dict[str, Any]:
    by_status = times.counts(work)
    counts = {"arrived": int(by_status.sum())} | {name: int(by_status[code]) for code, name in enumerate(STATUS)}
    samples, steady = times.samples(work), times.steady
    found: dict[str, dict[str, Estimate] | None] = {}
    for name, sample in samples.items():
        if sample is None:
            found[name] = None
        elif steady.settled is not None and steady.settled.settled == "unstable":
            # What grows without bound has no mean: how long the run was is all that one would tell.
            found[name] = dict.fromkeys(STATISTICS, Estimate(None, reason=steady.settled.reason))
        else:
            found[name] = estimates(sample, within=steady.correlation, reason=steady.too_short)
    waiting = found["waiting_s"]
    for name in ("latency_s", "ttft_s"):
        one = found[name]
        if one is not None and waiting is not None:
            found[name] = no_surer_than(one, waiting)
    return {
        "jobs": {name: counts[name] for name in _ORDER},
        **{name: _dicts_or_none(found[name]) for name in ("latency_s", "waiting_s")},
        "serving": _serving(found, work, prepared, recording),
        "statistics": {
            "effective_sample_size": {
                name: {statistic: e.effective for statistic, e in one.items()}
                for name, one in found.items()
                if one is not None
            },
            "batches": {
                name: {statistic: e.batches for statistic, e in one.items()}
                for name, one in found.items()
                if one is not None
            },
            "missing_interval_reasons": {
                name: {statistic: e.reason for statistic, e in one.items() if e.low is None}
                for name, one in found.items()
                if one is not None and any(e.low is None for e in one.values())
            },
        },
    }


def _serving(
    found: Mapping[str, Mapping[str, Estimate] | None], work: int | None, prepared: PreparedRun, recording: Recording
) -> dict[str, Any] | None:
    """Token times and rates of a workload, or of all; None where no job generates tokens."""
    if not any(
        isinstance(stage, Generate)
        for w in prepared.workloads
        if work is None or w.number == work
        for stage in w.program
    ):
        return None
    jobs, span_s = recording.jobs, recording.end / 1e12
    completed = jobs.status == COMPLETED
    if work is not None:
        completed &= jobs.workload == work
    tokens = int(jobs.tokens[completed].sum())
    return {
        "ttft_s": _dicts_or_none(found["ttft_s"]),
        "itl_s": _dicts_or_none(found["itl_s"]),
        "output_tokens_per_s": tokens / span_s if tokens and span_s else None,
    }


def _dicts_or_none(estimates: Mapping[str, Estimate] | None) -> dict[str, dict[str, float | None]] | None:
    return None if estimates is None else _dicts(estimates)


def _dicts(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {name: estimate.as_dict() for name, estimate in estimates.items()}


def _over(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Replications as one: see ``summarise``."""
    merged, missing = _merge_times(runs)
    for key in runs[0]:
        if key in merged or key in _OF_THE_FIRST or key in ("devices", "workloads", "statistics", "site", "faults"):
            continue
        merged[key] = _mean([run[key] for run in runs])
    site = runs[0]["site"]
    merged["site"] = None if site is None else {key: _mean([run["site"][key] for run in runs]) for key in site}
    merged["devices"] = [
        {
            **device,
            **{key: _mean([run["devices"][i][key] for run in runs]) for key in _OF_DEVICES},
            "jobs": sum(run["devices"][i]["jobs"] for run in runs),
        }
        for i, device in enumerate(runs[0]["devices"])
    ]
    merged |= {key: runs[0][key] for key in _OF_THE_FIRST}
    merged["faults"] = _over_faults([run["faults"] for run in runs if run["faults"] is not None])
    every = [run["statistics"] for run in runs]
    # The worst of them speaks for all: one replication that grows makes a mean over them mean nothing.
    worst = max(every, key=lambda one: ("reached", "not shown", "unstable").index(one["steady_state"] or "reached"))
    merged["statistics"] = {
        "method": "replications: Student's t over their values",
        "stationary": worst["stationary"],
        "warmup_jobs": [one["warmup_jobs"] for one in every],
        "warmup_reason": every[0]["warmup_reason"],
        "steady_state": worst["steady_state"],
        "steady_state_reason": _in_how_many(worst, every),
        "offered_load": worst["offered_load"],
        "replications": len(runs),
        "missing_interval_reasons": missing,
    }
    merged["workloads"] = []
    for i, w in enumerate(runs[0]["workloads"]):
        part, missing = _merge_times([run["workloads"][i] for run in runs])
        merged["workloads"].append(
            {"name": w["name"], "use_case": w["use_case"], **part, "statistics": {"missing_interval_reasons": missing}}
        )
    return merged


def _in_how_many(worst: Mapping[str, Any], every: Sequence[Mapping[str, Any]]) -> str | None:
    alike = sum(one["steady_state"] == worst["steady_state"] for one in every)
    if worst["steady_state_reason"] is None or alike == len(every):
        reason: str | None = worst["steady_state_reason"]
        return reason
    return f"in {alike:,} of {len(every):,} replications {worst['steady_state_reason']}"


def _over_faults(parts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Counts and times are totals over the replications, shares their means."""
    if not parts:
        return None
    first = parts[0]
    entries: list[dict[str, Any]] = []
    for i, entry in enumerate(first["entries"]):
        every = [part["entries"][i] for part in parts]
        totals = {key: sum(one[key] for one in every) for key in ("failures", "down_s", "unreachable_s", "throttled_s")}
        entries.append({**entry, **totals, "availability": _mean([one["availability"] for one in every])})
    return {
        "events": {name: sum(part["events"][name] for part in parts) for name in first["events"]},
        "stragglers": _total([part["stragglers"] for part in parts]),
        **{key: sum(part[key] for part in parts) for key in ("interrupted", "restarts", "failed")},
        "corrupted_jobs": _total([part["corrupted_jobs"] for part in parts]),
        "entries": entries,
        "by_fault": [
            {
                "kind": one["kind"],
                **{
                    key: _total([part["by_fault"][i][key] for part in parts])
                    for key in ("occurrences", "eligible_operations")
                },
            }
            for i, one in enumerate(first["by_fault"])
        ],
    }


def _total(values: Sequence[int | None]) -> int | None:
    """The sum, where each is known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _merge_times(parts: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """(jobs and times of replications as one; by metric and statistic why a value or an interval is missing)."""
    missing: dict[str, dict[str, str]] = {}
    merged: dict[str, Any] = {"jobs": {name: sum(part["jobs"][name] for part in parts) for name in _ORDER}}
    for metric in ("latency", "waiting", "ttft", "itl"):
        key = f"{metric}_s"
        distributions = [distribution(part, metric) for part in parts]
        if all(one is None for one in distributions):
            merged[key] = None
            continue
        values = {name: [None if one is None else one[name]["value"] for one in distributions] for name in STATISTICS}
        found = {name: over_replications(of) for name, of in values.items()}
        merged[key] = _dicts(found)
        if any(one.low is None for one in found.values()):
            missing[key] = {name: one.reason or "" for name, one in found.items() if one.low is None}
    token_times = {key: merged.pop(key) for key in ("ttft_s", "itl_s")}
    serving = [part["serving"] for part in parts if part["serving"] is not None]
    merged["serving"] = None
    if serving:
        merged["serving"] = {
            **token_times,
            "output_tokens_per_s": _mean([one["output_tokens_per_s"] for one in serving]),
        }
    return merged, missing


def _judge(target: Target, result: Mapping[str, Any]) -> dict[str, Any]:
    value, times, reason = measured(target, result), None, None
    unit = METRICS[target.metric].unit
    if METRICS[target.metric].per_workload:
        part = _part(target, result)
        times = (distribution(part, target.metric) or {}).get(str(target.statistic))
        reason = part["statistics"]["missing_interval_reasons"].get(f"{target.metric}_s", {}).get(target.statistic)
        if value is None and result["statistics"]["steady_state"] == "unstable":
            reason = f"unstable: {result['statistics']['steady_state_reason']}"
    low, high = (None, None) if times is None else (times["low"], times["high"])
    return {
        "text": target.text,
        "met": target.met_by(value),
        "confidence": target.confidence(value, low, high),
        "value": None if value is None else to_unit(value, unit),
        "low": None if low is None else to_unit(low, unit),
        "high": None if high is None else to_unit(high, unit),
        "reason": reason,
        "metric": target.metric,
        "statistic": target.statistic,
        "workload": target.workload,
        "comparison": target.comparison,
        "limit": to_unit(target.limit, unit),
        "unit": unit,
    }


def _part(target: Target, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The workload's share of the result that a target speaks of; all of it where it names none."""
    if target.workload is None:
        return result
    part: Mapping[str, Any] = next(w for w in result["workloads"] if w["name"] == target.workload)
    return part


def measured(target: Target, result: Mapping[str, Any]) -> float | None:
    """The value (SI) that a target speaks of; None when nothing was measured."""
    if METRICS[target.metric].per_workload:
        times = distribution(_part(target, result), target.metric)
        return None if times is None else times[str(target.statistic)]["value"]
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
