"""Computes the measured part of result.json: times, tokens, power, cost and targets (docs/metrics.md defines them)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.core.result import (
    COMPLETED,
    DEGRADATION_CAUSES,
    FAILED,
    STATUS,
    DeviceRecord,
    IntArray,
    Recording,
    distribution,
)
from windtunnel.core.ticks import to_second_array
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
    over_replications,
    widen_to_waiting,
)
from windtunnel.engine.results.steady import TOO_FEW
from windtunnel.engine.results.times import Times, times_of
from windtunnel.scenario.faults import OperationFault, Straggler
from windtunnel.scenario.judging import judge
from windtunnel.scenario.program import Generate
from windtunnel.scenario.target import Target

_OF_DEVICES = ("utilisation", "rented_s", "energy_j", "availability")
_OF_FIRST_REPLICATION = ("autoscale", "power_budget")
"""Sections with series over time, which have no mean over replications."""
_ORDER = ("arrived", "completed", "dropped", "failed", "running", "queued")


def summarise(prepared: PreparedRun, recordings: Sequence[Recording], targets: Sequence[Target]) -> dict[str, Any]:
    """Return the measured part of result.json, from one recording or from several replications.

    With replications, job counts are totals, all other values are means, and confidence intervals come from the
    variance between replications. Series over time (scaled entries, budgets) are those of the first replication.
    ``notes`` has sentences that a reader of the averages must know.
    """
    runs = [_run_result(prepared, recording) for recording in recordings]
    first = runs[0]
    result = first if len(runs) == 1 else _over_replications(runs)
    result["targets"] = [judge(target, result) for target in targets]
    result["notes"] = _notes(result["statistics"])
    return result


def _notes(statistics: Mapping[str, Any]) -> list[str]:
    notes = []
    if statistics["steady_state"] == "unstable":
        # Without averages there is no warm-up that they exclude.
        return [f"unstable: {statistics['steady_state_reason']}; no average is given"]
    if statistics["steady_state"] == "not shown" and statistics["steady_state_reason"] != TOO_FEW:
        notes.append(f"a steady state is not shown: {statistics['steady_state_reason']}")
    cut = statistics["warmup_jobs"]
    if isinstance(cut, list):
        if any(cut):
            notes.append("time statistics exclude the warm-up of each replication")
    elif cut:
        notes.append(f"time statistics exclude the warm-up, the first {cut:,} jobs")
    return notes


# Long: it has one expression for each key of the result.
def _run_result(prepared: PreparedRun, recording: Recording) -> dict[str, Any]:
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
            "stationary": steady.state is not None,
            "warmup_jobs": steady.job,
            "warmup_reason": steady.reason,
            "steady_state": None if steady.state is None else steady.state.verdict,
            "steady_state_reason": None if steady.state is None else steady.state.reason,
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
    """Return the section ``faults`` of the result; None if the scenario has no fault."""
    if not prepared.scenario.faults:
        return None
    degraded, end_s = recording.degraded, recording.end / 1e12
    class_of = prepared.class_of_device()
    entries: list[dict[str, Any]] = []
    events = dict.fromkeys(DEGRADATION_CAUSES, 0)
    if degraded is not None:
        counts = np.bincount(degraded.cause, minlength=len(DEGRADATION_CAUSES))
        events = {name: int(count) for name, count in zip(DEGRADATION_CAUSES, counts, strict=True)}
        on_devices = degraded.device >= 0
        lasted_s = np.zeros((len(prepared.classes), len(DEGRADATION_CAUSES)))
        counts_of = np.zeros((len(prepared.classes), len(DEGRADATION_CAUSES)), dtype=np.int64)
        place = class_of[degraded.device[on_devices]], degraded.cause[on_devices]
        np.add.at(lasted_s, place, to_second_array(degraded.end[on_devices] - degraded.start[on_devices]))
        np.add.at(counts_of, place, 1)
        for fleet_class in prepared.classes:
            total_s, number = fleet_class.count * end_s, fleet_class.number
            entries.append(
                {
                    "name": fleet_class.name,
                    "devices": fleet_class.count,
                    "failures": int(counts_of[number, 0]),
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
        "by_fault": _by_fault(prepared, recording, slow),
    }


def _by_fault(
    prepared: PreparedRun, recording: Recording, slow: Mapping[int, np.ndarray] | None
) -> list[dict[str, Any]]:
    """Return how often each fault of the scenario occurred, in their order.

    An occurrence is an interval on one device, a straggling job (None if not every job is kept), or an operation. For
    faults of operations, the number of eligible operations is returned too.
    """
    rows = []
    for number, fault in enumerate(prepared.scenario.faults):
        operations: int | None = None
        occurrences: int | None
        if isinstance(fault, OperationFault):
            operations, occurrences = recording.fault_occurrences[number]
        elif isinstance(fault, Straggler):
            occurrences = None if slow is None else int(np.count_nonzero(slow[number]))
        else:
            assert prepared.faults is not None  # noqa: S101  the schedule has this fault
            occurrences = prepared.faults.count_begun(number, recording.end)
        rows.append({"kind": fault.kind, "occurrences": occurrences, "eligible_operations": operations})
    return rows


def _slow_jobs(prepared: PreparedRun, recording: Recording) -> dict[int, np.ndarray] | None:
    """Return which jobs each straggler fault slowed down, by fault index; None if not every job is kept."""
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
    """Return the index of each job within its workload; jobs are in order of arrival."""
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
    """Return the mean over devices, weighted by the time for which each was rented."""
    rented = [_rented(device, recording) for device in recording.devices]
    shares = [_utilisation(device, recording) for device in recording.devices]
    if min(rented) == max(rented):
        return float(np.mean(shares))
    return float(np.average(shares, weights=np.array(rented, dtype=np.float64)))


# Long: it has one expression for each key of the result.
def _times(times: Times, work: int | None, prepared: PreparedRun, recording: Recording) -> dict[str, Any]:
    by_status = times.counts(work)
    counts = {"arrived": int(by_status.sum())} | {name: int(by_status[code]) for code, name in enumerate(STATUS)}
    samples, steady = times.samples(work), times.steady
    by_metric: dict[str, dict[str, Estimate] | None] = {}
    for name, sample in samples.items():
        if sample is None:
            by_metric[name] = None
        elif steady.state is not None and steady.state.verdict == "unstable":
            # Delays that grow without bound have no mean: it would depend only on the length of the run.
            by_metric[name] = dict.fromkeys(STATISTICS, Estimate(None, reason=steady.state.reason))
        else:
            by_metric[name] = estimates(sample, within=steady.correlation, reason=steady.too_short)
    waiting = by_metric["waiting_s"]
    for name in ("latency_s", "ttft_s"):
        latency = by_metric[name]
        if latency is not None and waiting is not None:
            by_metric[name] = widen_to_waiting(latency, waiting)
    return {
        "jobs": {name: counts[name] for name in _ORDER},
        **{name: _dicts_or_none(by_metric[name]) for name in ("latency_s", "waiting_s")},
        "serving": _serving(by_metric, work, prepared, recording),
        "statistics": {
            "effective_sample_size": {
                name: {statistic: estimate.effective_sample_size for statistic, estimate in by_name.items()}
                for name, by_name in by_metric.items()
                if by_name is not None
            },
            "batches": {
                name: {statistic: estimate.batches for statistic, estimate in by_name.items()}
                for name, by_name in by_metric.items()
                if by_name is not None
            },
            "missing_interval_reasons": {
                name: {statistic: estimate.reason for statistic, estimate in by_name.items() if estimate.low is None}
                for name, by_name in by_metric.items()
                if by_name is not None and any(estimate.low is None for estimate in by_name.values())
            },
        },
    }


def _serving(
    by_metric: Mapping[str, Mapping[str, Estimate] | None],
    work: int | None,
    prepared: PreparedRun,
    recording: Recording,
) -> dict[str, Any] | None:
    """Return token times and rates of one workload, or of all; None if no job generates tokens."""
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
        "ttft_s": _dicts_or_none(by_metric["ttft_s"]),
        "itl_s": _dicts_or_none(by_metric["itl_s"]),
        "output_tokens_per_s": tokens / span_s if tokens and span_s else None,
    }


def _dicts_or_none(estimates: Mapping[str, Estimate] | None) -> dict[str, dict[str, float | None]] | None:
    return None if estimates is None else _dicts(estimates)


def _dicts(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {name: estimate.as_dict() for name, estimate in estimates.items()}


# Long: it states for each section of the result how replications are merged.
def _over_replications(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the results of replications, as ``summarise`` describes."""
    merged, missing = _merge_times(runs)
    for key in runs[0]:
        if (
            key in merged
            or key in _OF_FIRST_REPLICATION
            or key in ("devices", "workloads", "statistics", "site", "faults")
        ):
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
    merged |= {key: runs[0][key] for key in _OF_FIRST_REPLICATION}
    merged["faults"] = _over_faults([run["faults"] for run in runs if run["faults"] is not None])
    statistics = [run["statistics"] for run in runs]
    # The worst replication decides: if one is unstable, the mean over all has no meaning.
    worst = max(statistics, key=lambda s: ("reached", "not shown", "unstable").index(s["steady_state"] or "reached"))
    merged["statistics"] = {
        "method": "replications: Student's t over their values",
        "stationary": worst["stationary"],
        "warmup_jobs": [run["warmup_jobs"] for run in statistics],
        "warmup_reason": statistics[0]["warmup_reason"],
        "steady_state": worst["steady_state"],
        "steady_state_reason": _in_how_many(worst, statistics),
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


def _in_how_many(worst: Mapping[str, Any], statistics: Sequence[Mapping[str, Any]]) -> str | None:
    alike = sum(run["steady_state"] == worst["steady_state"] for run in statistics)
    if worst["steady_state_reason"] is None or alike == len(statistics):
        reason: str | None = worst["steady_state_reason"]
        return reason
    return f"in {alike:,} of {len(statistics):,} replications {worst['steady_state_reason']}"


def _over_faults(parts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Merge the section ``faults``: counts and times are totals over the replications, shares are means."""
    if not parts:
        return None
    first = parts[0]
    entries: list[dict[str, Any]] = []
    for i, entry in enumerate(first["entries"]):
        rows = [part["entries"][i] for part in parts]
        totals = {
            key: sum(part[key] for part in rows) for key in ("failures", "down_s", "unreachable_s", "throttled_s")
        }
        entries.append({**entry, **totals, "availability": _mean([part["availability"] for part in rows])})
    return {
        "events": {name: sum(part["events"][name] for part in parts) for name in first["events"]},
        "stragglers": _total([part["stragglers"] for part in parts]),
        **{key: sum(part[key] for part in parts) for key in ("interrupted", "restarts", "failed")},
        "corrupted_jobs": _total([part["corrupted_jobs"] for part in parts]),
        "entries": entries,
        "by_fault": [
            {
                "kind": fault["kind"],
                **{
                    key: _total([part["by_fault"][i][key] for part in parts])
                    for key in ("occurrences", "eligible_operations")
                },
            }
            for i, fault in enumerate(first["by_fault"])
        ],
    }


def _total(values: Sequence[int | None]) -> int | None:
    """Return the sum of the values; None if any of them is unknown."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _merge_times(parts: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Return the merged jobs and times of replications, and the reasons for missing values and intervals."""
    missing: dict[str, dict[str, str]] = {}
    merged: dict[str, Any] = {"jobs": {name: sum(part["jobs"][name] for part in parts) for name in _ORDER}}
    for metric in ("latency", "waiting", "ttft", "itl"):
        key = f"{metric}_s"
        distributions = [distribution(part, metric) for part in parts]
        if all(times is None for times in distributions):
            merged[key] = None
            continue
        by_name = {
            name: over_replications([None if times is None else times[name]["value"] for times in distributions])
            for name in STATISTICS
        }
        merged[key] = _dicts(by_name)
        if any(estimate.low is None for estimate in by_name.values()):
            missing[key] = {name: e.reason or "" for name, e in by_name.items() if e.low is None}
    token_times = {key: merged.pop(key) for key in ("ttft_s", "itl_s")}
    serving = [part["serving"] for part in parts if part["serving"] is not None]
    merged["serving"] = None
    if serving:
        merged["serving"] = {
            **token_times,
            "output_tokens_per_s": _mean([part["output_tokens_per_s"] for part in serving]),
        }
    return merged, missing
