"""Computes the measured part of a result: times, tokens, power, cost and targets (docs/metrics.md defines them)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import numpy as np

from windtunnel.core.recording import (
    DEGRADATION_CAUSES,
    FAILED,
    STATUS,
    IntArray,
    Recording,
)
from windtunnel.core.results.faults import EntryFaults, FaultCount, FaultResult, ProgressResult
from windtunnel.core.results.run import (
    DesignsResult,
    EntryDesigns,
    Estimate,
    JobCounts,
    Measured,
    PartStatistics,
    RunStatistics,
    SiteResult,
    Timed,
    TimeDistribution,
    WorkloadResult,
    distribution,
)
from windtunnel.core.ticks import FloatArray, to_second_array
from windtunnel.engine.prepare.fault_schedule import is_straggler
from windtunnel.engine.prepare.prepared import JobClass, PreparedRun
from windtunnel.engine.results.autoscaling import rented_devices, scaled_entries
from windtunnel.engine.results.devices import (
    availability,
    chip_results,
    device_results,
    over_chips,
    over_devices,
    utilisation,
)
from windtunnel.engine.results.economics import economics
from windtunnel.engine.results.power_budget import power_budget
from windtunnel.engine.results.serving import merged_serving, serving_of
from windtunnel.engine.results.statistics import (
    METHOD,
    STATISTICS,
    estimates,
    over_replications,
    widen_to_waiting,
    within_reason,
)
from windtunnel.engine.results.steady import TOO_FEW
from windtunnel.engine.results.times import Samples, Steady, Times, times_of
from windtunnel.scenario.faults import OperationFault, Straggler
from windtunnel.scenario.judging import judge, measured
from windtunnel.scenario.target import Target

METRICS = ("latency", "waiting", "ttft", "itl", "tpot", "e2e")


def summarise(
    prepared: PreparedRun,
    recordings: Sequence[Recording],
    targets: Sequence[Target],
    each_device: bool = False,
    asked_only: bool = False,
) -> Measured:
    """Return the measured part of a result, from one recording or from several replications.

    ``each_device``: large fleets too have a result for each device, and not one for each entry. ``asked_only``: it has
    the parts of workloads only if a target names one, and the attainment of requests only if a target is on it.

    With replications, job counts are totals, all other values are means, and confidence intervals come from the
    variance between replications. Series over time (scaled entries, budgets) are those of the first replication.
    """
    by_workload = not asked_only or any(target.workload is not None for target in targets)
    attained = not asked_only or any(target.metric == "slo_attainment" for target in targets)
    runs = [_run_result(prepared, recording, each_device, by_workload, attained) for recording in recordings]
    result = runs[0] if len(runs) == 1 else _over_replications(runs)
    return replace(result, targets=[judge(target, measured(target, result)) for target in targets])


_LONG_DRAIN = 0.05
"""The share of a run after its last arrival above which a note says so."""


def drain_share(recording: Recording) -> float:
    """Return the share of a run that follows its last arrival; 0 without arrivals."""
    arrivals, tally = recording.jobs.arrival, recording.tally
    if not len(arrivals) or not recording.end:
        return 0.0
    last = int(arrivals.max()) if tally is None else tally.last_arrival
    return 1.0 - last / recording.end


def notes_of_drain(share: float, of: str = "") -> list[str]:
    """Return which figures of a run are not those of a sustained load, if much of it follows its last arrival.

    ``of``: the fleet, if there are others.
    """
    if share < _LONG_DRAIN:
        return []
    return [
        f"{share:.0%} of the run{of and f' of {of}'} follows the last arrival, when the devices have less and less to "
        "do: average power, energy, utilisation, throughput and the cost of a token or of a job are those of the whole "
        "run, not those of a sustained load; a longer run, or one that ends with its arrivals (`stop: {time: ...}`), "
        "is nearer to the latter"
    ]


def notes_of(statistics: RunStatistics, workloads: Sequence[WorkloadResult]) -> list[str]:
    """Return sentences that a reader of the averages must know."""
    notes = []
    if statistics.unstable_reason is not None:
        stable = [w.name for w in workloads if w.statistics.steady_state in ("reached", "not shown")]
        but = f" except those of {', '.join(stable)}, whose own queueing delays do not grow" if stable else ""
        # Without averages there is no warm-up that they exclude.
        return [f"{statistics.unstable_reason}; no average is given{but}"]
    if statistics.steady_state == "not shown" and statistics.steady_state_reason != TOO_FEW:
        notes.append(f"a steady state is not shown: {statistics.steady_state_reason}")
    cut = statistics.warmup_jobs
    if not isinstance(cut, int):
        if any(cut):
            notes.append("time statistics exclude the warm-up of each replication")
    elif cut:
        notes.append(f"time statistics exclude the warm-up, the first {cut:,} jobs")
    return notes


# Long: it has one expression for each key of the result.
def _run_result(prepared: PreparedRun, recording: Recording, each: bool, by_workload: bool, attained: bool) -> Measured:
    span_s = recording.end / 1e12
    prices = [c.price_usd_per_s for c in prepared.classes]
    rate = None
    if all(price is not None for price in prices):
        rate = sum(rented_devices(prepared, recording, c) * (c.price_usd_per_s or 0.0) for c in prepared.classes)
    times = times_of(prepared, recording)
    steady = times.steady
    energy_j = math.fsum(recording.devices.energy_j.tolist()) if recording.tally else recording.power.integral()
    totals = None if rate is None else rate * span_s, energy_j
    whole = _part(times, None, prepared, recording, totals, attained)
    by_hour_j = None if recording.tally is None else recording.tally.joules_by_hour
    site = economics(recording.power, prepared.scenario.site, rate, by_hour_j)
    return Measured(
        simulated_s=span_s,
        jobs=whole.jobs,
        latency_s=whole.latency_s,
        waiting_s=whole.waiting_s,
        serving=whole.serving,
        statistics=RunStatistics(
            method=METHOD,
            stationary=steady.state is not None,
            warmup_jobs=steady.job,
            warmup_reason=steady.reason,
            steady_state=None if steady.state is None else steady.state.verdict,
            steady_state_reason=None if steady.state is None else steady.state.reason,
            offered_load=None if steady.load is None else steady.load.offered,
            effective_sample_size=whole.statistics.effective_sample_size,
            batches=whole.statistics.batches,
            missing_interval_reasons=whole.statistics.missing_interval_reasons,
        ),
        throughput_per_s=whole.jobs.completed / span_s if span_s else 0.0,
        workloads=[
            replace(whole, name=w.workload.name, use_case=w.workload.use_case)
            if len(prepared.workloads) == 1
            else _part(times, w, prepared, recording, totals, attained)
            for w in (prepared.workloads if by_workload or len(prepared.workloads) == 1 else ())
        ],
        devices=device_results(recording, each),
        chips=chip_results(recording) or None,
        faults=_faults(prepared, recording),
        progress=_progress(recording),
        designs=_designs(prepared, recording),
        autoscale=scaled_entries(prepared, recording),
        utilisation=float(np.average(utilisation(recording), weights=_weights(recording.devices.rented_ticks))),
        availability=float(availability(recording).mean()),
        energy_j=energy_j,
        average_power_w=energy_j / span_s if recording.tally or span_s else recording.power.mean(),
        peak_power_w=float(recording.power.values.max()) if recording.tally is None else recording.tally.peak_w,
        power_limit_w=sum(c.count * c.limit_w for c in prepared.classes) - _counted_again_w(recording),
        power_budget=power_budget(prepared, recording),
        cost_usd=None if rate is None else rate * span_s,
        cost_usd_per_h=None if rate is None else rate * 3600,
        total_cost_usd=None if site is None else site.cost_usd,
        site=site,
        targets=(),
    )


def _counted_again_w(recording: Recording) -> float:
    """Return what the power limits of devices on one chip add up to beyond the chip's own limit (W)."""
    if not recording.chips:
        return 0.0
    limits_w = recording.devices.watts()[0]
    return sum(float(limits_w[list(chip.devices)].sum()) - chip.power_limit_w for chip in recording.chips)


def _faults(prepared: PreparedRun, recording: Recording) -> FaultResult | None:
    """Return the section ``faults`` of the result; None if the scenario has no fault."""
    if not prepared.scenario.faults:
        return None
    degraded, end_s = recording.degraded, recording.end / 1e12
    class_of = prepared.class_of_device()
    entries: list[EntryFaults] = []
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
                EntryFaults(
                    name=fleet_class.name,
                    devices=fleet_class.devices,
                    failures=int(counts_of[number, 0]),
                    down_s=float(lasted_s[number, 0]),
                    unreachable_s=float(lasted_s[number, 1]),
                    throttled_s=float(lasted_s[number, 2]),
                    availability=1.0 - float(lasted_s[number, 0]) / total_s if total_s else 1.0,
                )
            )
    slow = _slow_jobs(prepared, recording)
    failed = recording.jobs.status == FAILED if recording.tally is None else recording.tally.counts[:, FAILED]
    return FaultResult(
        events=events,
        stragglers=int(np.count_nonzero(np.any(list(slow.values()), axis=0))) if slow else None,
        interrupted=recording.returned + int(failed.sum()),
        restarts=recording.returned,
        failed=int(failed.sum()),
        corrupted_jobs=recording.corrupted,
        entries=entries,
        by_fault=_by_fault(prepared, recording, slow),
    )


def _progress(recording: Recording) -> ProgressResult | None:
    """Return the section ``progress`` of the result; None without checkpoints and preemption."""
    found = recording.progress
    if found is None:
        return None
    return ProgressResult(
        checkpoints=found.checkpoints,
        checkpoint_s=found.checkpoint_ticks / 1e12,
        restore_s=found.restore_ticks / 1e12,
        lost_s=found.lost_ticks / 1e12,
        preemptions=found.preemptions,
    )


def _designs(prepared: PreparedRun, recording: Recording) -> DesignsResult | None:
    """Return the section ``designs`` of the result; None where no job needs a design."""
    if recording.loads is None:
        return None
    entries = [
        EntryDesigns(
            name=prepared.classes[number].name,
            regions=designs.regions,
            load_each_s=designs.load_ticks / 1e12,
            needed=list(designs.needed),
            resident_at_start=list(designs.resident),
        )
        for number, designs in prepared.designs.items()
    ]
    return DesignsResult(recording.loads.count, recording.loads.ticks / 1e12, entries)


def _by_fault(prepared: PreparedRun, recording: Recording, slow: Mapping[int, np.ndarray] | None) -> list[FaultCount]:
    """Return how often each fault of the scenario occurred, in their order.

    An occurrence is an interval on one device, a straggling job (None if not every job is kept), or an operation. For
    faults of operations, the number of eligible operations is returned too.
    """
    counts = []
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
        counts.append(FaultCount(fault.kind, occurrences, operations))
    return counts


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


def _weights(rented: IntArray) -> FloatArray | None:
    """Return the weights of the devices in the mean utilisation: the time for which each was rented."""
    return None if rented.min() == rented.max() else rented.astype(np.float64)


def _estimates(samples: Samples, steady: Steady) -> dict[str, dict[str, Estimate]]:
    """Return the estimates of each time that has a sample, by its key in the result and by statistic."""
    by_metric: dict[str, dict[str, Estimate]] = {}
    for name, sample in samples.items():
        if sample is None:
            continue
        if steady.state is not None and steady.state.verdict == "unstable":
            # Delays that grow without bound have no mean: it would depend only on the length of the run.
            by_metric[name] = dict.fromkeys(STATISTICS, Estimate(None, reason=steady.state.reason))
        else:
            by_metric[name] = estimates(sample, within=steady.correlation, reason=steady.no_interval)
    for name in ("latency_s", "ttft_s", "e2e_s"):
        if name in by_metric:
            by_metric[name] = widen_to_waiting(by_metric[name], by_metric["waiting_s"])
    for name, sample in samples.items():
        if sample is not None and len(sample):
            by_metric[name] = within_reason(by_metric[name], sample.least)
    return by_metric


def _part(
    times: Times,
    of: JobClass | None,
    prepared: PreparedRun,
    recording: Recording,
    totals: tuple[float | None, float],
    attained: bool,
) -> WorkloadResult:
    """Return the jobs and times of one workload, or of all, which then have no name.

    ``totals`` are the rent (USD) and the energy (J) of the whole fleet. ``attained``: the share of requests that meet
    their targets is measured.
    """
    work = None if of is None else of.number
    counts = {name: int(count) for name, count in zip(STATUS, times.counts(work).tolist(), strict=True)}
    steady = times.steady_of(work)
    by_metric = _estimates(times.samples(work), steady)
    distributions = {name: TimeDistribution(**by_name) for name, by_name in by_metric.items()}
    state, whole = steady.state, times.steady.state
    # Where the run is unstable each workload has a verdict of its own.
    assessed = of is not None and whole is not None and whole.verdict == "unstable"
    return WorkloadResult(
        name="" if of is None else of.workload.name,
        use_case=None if of is None else of.workload.use_case,
        jobs=JobCounts(arrived=sum(counts.values()), **counts),
        latency_s=distributions["latency_s"],
        waiting_s=distributions["waiting_s"],
        serving=serving_of(distributions, work, prepared, recording, steady, totals, attained),
        statistics=PartStatistics(
            effective_sample_size={
                name: {statistic: estimate.effective_sample_size for statistic, estimate in by_name.items()}
                for name, by_name in by_metric.items()
            },
            batches={
                name: {statistic: estimate.batches for statistic, estimate in by_name.items()}
                for name, by_name in by_metric.items()
            },
            missing_interval_reasons=missing_reasons(distributions),
            steady_state=state.verdict if assessed and state is not None else None,
            steady_state_reason=state.reason if assessed and state is not None else None,
        ),
    )


def missing_reasons(distributions: Mapping[str, TimeDistribution]) -> dict[str, dict[str, str | None]]:
    """Return the reason for each estimate without an interval, by metric and statistic."""
    missing = {
        name: {statistic: e.reason for statistic, e in times.by_name().items() if e.low is None}
        for name, times in distributions.items()
    }
    return {name: reasons for name, reasons in missing.items() if reasons}


# Long: it states for each section of the result how replications are merged.
def _over_replications(runs: Sequence[Measured]) -> Measured:
    """Merge the results of replications, as ``summarise`` describes."""
    first = runs[0]
    whole = _merged("", None, runs)
    statistics = [run.statistics for run in runs]
    # The worst replication decides: if one is unstable, the mean over all has no meaning.
    worst = max(statistics, key=lambda s: ("reached", "not shown", "unstable").index(s.steady_state or "reached"))
    sites = [run.site for run in runs if run.site is not None]
    return replace(
        first,
        simulated_s=_mean([run.simulated_s for run in runs]),
        jobs=whole.jobs,
        latency_s=whole.latency_s,
        waiting_s=whole.waiting_s,
        serving=whole.serving,
        statistics=replace(
            worst,
            method="replications: Student's t over their values",
            warmup_jobs=[run.warmup_jobs for run in statistics if isinstance(run.warmup_jobs, int)],
            warmup_reason=statistics[0].warmup_reason,
            steady_state_reason=_in_how_many(worst, statistics),
            replications=len(runs),
            effective_sample_size=None,
            batches=None,
            missing_interval_reasons=whole.statistics.missing_interval_reasons,
        ),
        throughput_per_s=_mean([run.throughput_per_s for run in runs]),
        workloads=[
            _merged(workload.name, workload.use_case, [run.workloads[i] for run in runs])
            for i, workload in enumerate(first.workloads)
        ],
        devices=over_devices([run.devices for run in runs]),
        chips=over_chips([run.chips for run in runs if run.chips is not None]) or None,
        faults=_over_faults([run.faults for run in runs if run.faults is not None]),
        progress=_over_progress([run.progress for run in runs if run.progress is not None]),
        designs=_over_designs([run.designs for run in runs if run.designs is not None]),
        utilisation=_mean([run.utilisation for run in runs]),
        availability=_mean([run.availability for run in runs]),
        energy_j=_mean([run.energy_j for run in runs]),
        average_power_w=_mean([run.average_power_w for run in runs]),
        peak_power_w=_mean([run.peak_power_w for run in runs]),
        power_limit_w=_mean([run.power_limit_w for run in runs]),
        cost_usd=_known_mean([run.cost_usd for run in runs]),
        cost_usd_per_h=_known_mean([run.cost_usd_per_h for run in runs]),
        total_cost_usd=_known_mean([run.total_cost_usd for run in runs]),
        site=_over_sites(sites) if sites else None,
    )


def _over_progress(parts: Sequence[ProgressResult]) -> ProgressResult | None:
    """Return the sums over the replications."""
    return ProgressResult(*map(sum, zip(*(astuple(part) for part in parts), strict=True))) if parts else None


def _over_designs(parts: Sequence[DesignsResult]) -> DesignsResult | None:
    """Return the sums over the replications."""
    if not parts:
        return None
    return replace(parts[0], loads=sum(part.loads for part in parts), load_s=sum(part.load_s for part in parts))


def _over_sites(sites: Sequence[SiteResult]) -> SiteResult:
    return SiteResult(
        pue=_mean([site.pue for site in sites]),
        energy_kwh=_mean([site.energy_kwh for site in sites]),
        energy_cost_usd=_known_mean([site.energy_cost_usd for site in sites]),
        energy_cost_usd_per_h=_known_mean([site.energy_cost_usd_per_h for site in sites]),
        carbon_kg=_known_mean([site.carbon_kg for site in sites]),
        carbon_kg_per_h=_known_mean([site.carbon_kg_per_h for site in sites]),
        cost_usd=_known_mean([site.cost_usd for site in sites]),
        cost_usd_per_h=_known_mean([site.cost_usd_per_h for site in sites]),
    )


def _in_how_many(worst: RunStatistics, statistics: Sequence[RunStatistics]) -> str | None:
    alike = sum(run.steady_state == worst.steady_state for run in statistics)
    if worst.steady_state_reason is None or alike == len(statistics):
        return worst.steady_state_reason
    return f"in {alike:,} of {len(statistics):,} replications {worst.steady_state_reason}"


def _over_faults(parts: Sequence[FaultResult]) -> FaultResult | None:
    """Merge the section ``faults``: counts and times are totals over the replications, shares are means."""
    if not parts:
        return None
    first = parts[0]
    entries = [
        replace(
            rows[0],
            failures=sum(row.failures for row in rows),
            down_s=sum(row.down_s for row in rows),
            unreachable_s=sum(row.unreachable_s for row in rows),
            throttled_s=sum(row.throttled_s for row in rows),
            availability=_mean([row.availability for row in rows]),
        )
        for rows in zip(*(part.entries for part in parts), strict=True)
    ]
    return FaultResult(
        events={name: sum(part.events[name] for part in parts) for name in first.events},
        stragglers=_total([part.stragglers for part in parts]),
        interrupted=sum(part.interrupted for part in parts),
        restarts=sum(part.restarts for part in parts),
        failed=sum(part.failed for part in parts),
        corrupted_jobs=_total([part.corrupted_jobs for part in parts]),
        entries=entries,
        by_fault=[
            FaultCount(
                kind=counts[0].kind,
                occurrences=_total([count.occurrences for count in counts]),
                eligible_operations=_total([count.eligible_operations for count in counts]),
            )
            for counts in zip(*(part.by_fault for part in parts), strict=True)
        ],
    )


def _total(values: Sequence[int | None]) -> int | None:
    """Return the sum of the values; None if any of them is unknown."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _known_mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known; None if none is."""
    numbers = [value for value in values if value is not None]
    return _mean(numbers) if numbers else None


def _merged(name: str, use_case: str | None, parts: Sequence[Timed]) -> WorkloadResult:
    """Return the merged jobs and times of replications, and the reasons for missing values and intervals."""
    merged: dict[str, TimeDistribution] = {}
    for metric in METRICS:
        found = [distribution(part, metric) for part in parts]
        if any(times is not None for times in found):
            values = ([None if times is None else times.of(s).value for times in found] for s in STATISTICS)
            by_name = dict(zip(STATISTICS, map(over_replications, values), strict=True))
            merged[f"{metric}_s"] = TimeDistribution(**within_reason(by_name, 0.0))
    serving = [part.serving for part in parts if part.serving is not None]
    own = [part.statistics for part in parts if isinstance(part, WorkloadResult) and part.statistics.steady_state]
    worst = max(
        own, key=lambda s: ("reached", "not shown", "unstable").index(s.steady_state or "reached"), default=None
    )
    return WorkloadResult(
        name=name,
        use_case=use_case,
        jobs=JobCounts(*map(sum, zip(*(astuple(part.jobs) for part in parts), strict=True))),
        latency_s=merged["latency_s"],
        waiting_s=merged["waiting_s"],
        serving=merged_serving(serving, merged),
        statistics=PartStatistics(
            missing_interval_reasons=missing_reasons(merged),
            steady_state=None if worst is None else worst.steady_state,
            steady_state_reason=None if worst is None else worst.steady_state_reason,
        ),
    )
