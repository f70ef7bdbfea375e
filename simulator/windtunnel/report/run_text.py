"""Describes a run in words, for the terminal summary and for the report: jobs, faults, statistics, power and fleet."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.core.results.faults import FaultResult
from windtunnel.core.results.run import (
    BudgetResult,
    DeviceResult,
    JobCounts,
    RunResult,
    Timed,
    TimeDistribution,
    distribution,
)
from windtunnel.report.numbers import exact_quantity, is_finite, number, plural, quantity, share, usd, watt_hours

METRICS = {
    "latency": "Latency",
    "waiting": "Queueing delay",
    "ttft": "TTFT",
    "itl": "ITL",
    "tpot": "TPOT",
    "e2e": "End-to-end latency",
}
"""The timed metrics in the order in which they are shown, with their headings. ``<metric>_s`` is the result's key."""

MEANINGS = {
    "latency": "time from a job's arrival to its completion; completed jobs only",
    "waiting": "time from a job's arrival to its start on a device",
    "ttft": "time to first token: from a job's arrival to its first output token",
    "itl": "inter-token latency: time between two consecutive tokens of a job",
    "tpot": "time per output token: a request's mean time between tokens",
    "e2e": "time from a request's arrival to its last token",
}
"""What the timed metrics are."""

STATISTICS = ("mean", "p50", "p95", "p99")


def timed_metrics(part: Timed) -> list[tuple[str, TimeDistribution]]:
    """Return the times of a result (or of a workload) with their headings.

    The end-to-end latency of requests is left out where it is the latency of all jobs.
    """
    found = [(metric, heading, distribution(part, metric)) for metric, heading in METRICS.items()]
    return [(heading, times) for metric, heading, times in found if times is not None and not _repeats(part, metric)]


def _repeats(part: Timed, metric: str) -> bool:
    times = distribution(part, metric)
    return metric == "e2e" and times is not None and times.mean.value == part.latency_s.mean.value


def fleet_text(result: RunResult) -> str:
    """Return the size of the fleet: "2 devices (l4)", or "3 devices of 2 SKUs"."""
    skus = sorted({device.sku for device in result.devices})
    label = f" of {len(skus)} SKUs" if len(skus) > 1 else "".join(f" ({sku})" for sku in skus)
    return plural(device_count(result), "device") + label


def device_count(result: RunResult) -> int:
    """Return the number of devices of the fleet."""
    return sum((device.count or 1) * (device.group or 1) for device in result.devices)


def per_job(total: float | None, result: RunResult) -> float | None:
    """Return ``total`` (a run's joules or dollars) for one completed job; None if no job completed.

    The number of jobs is taken from the throughput: with replications, job counts are sums and all else is a mean.
    """
    jobs = result.throughput_per_s * result.simulated_s
    return total / jobs if total is not None and jobs else None


def unfinished(jobs: JobCounts) -> list[str]:
    """Return the counts of jobs that did not complete ("12 dropped", "3 running"); counts of zero are omitted."""
    counts = {"running": jobs.running, "queued": jobs.queued, "dropped": jobs.dropped, "failed": jobs.failed}
    return [f"{count:,} {status}" for status, count in counts.items() if count]


_FAULTS = {"down": "failure", "unreachable": "link loss", "throttled": "throttling", "brown-out": "brown-out"}
"""The name of a fault by the state that it causes; the plurals of two differ."""
_PLURALS = {"link loss": "link losses", "throttling": "throttlings"}


def injected_faults(faults: FaultResult) -> list[str]:
    """Return how often each kind of fault occurred: "3 failures", "1 brown-out", "1,200 stragglers", "3 ecc"."""
    counts = [(faults.events.get(state), name) for state, name in _FAULTS.items()]
    counts.append((faults.stragglers, "straggler"))
    operations: dict[str, int] = {}
    for fault in faults.by_fault:
        if fault.eligible_operations is not None:
            operations[fault.kind] = operations.get(fault.kind, 0) + (fault.occurrences or 0)
    return [plural(n, name, _PLURALS.get(name)) for n, name in counts if n] + [
        f"{n:,} {kind}" for kind, n in operations.items() if n
    ]


def unused_faults(faults: FaultResult) -> list[str]:
    """Return a sentence for each fault of the scenario that never occurred in the run."""
    sentences = []
    for index, fault in enumerate(faults.by_fault):
        if fault.occurrences == 0:
            count = fault.eligible_operations
            eligible = "" if count is None else f"; {plural(count, 'operation was', 'operations were')} eligible"
            sentences.append(f"faults[{index}] ({fault.kind}) never occurred{eligible}")
    return sentences


def fault_lines(result: RunResult) -> list[str]:
    """Return lines on the faults and on the jobs that they affected; none if the scenario states no fault."""
    faults = result.faults
    if faults is None:
        return []
    injected = injected_faults(faults)
    lines = [", ".join(injected)] if injected else []
    if faults.events.get("down") or faults.interrupted:
        lines.append(
            f"availability {share(result.availability)}; {plural(faults.interrupted, 'job')} interrupted: "
            f"{faults.restarts:,} retried, {faults.failed:,} failed"
        )
    if faults.corrupted_jobs:
        lines.append(f"{plural(faults.corrupted_jobs, 'job')} completed with silently corrupted data")
    return [*lines, *unused_faults(faults)] or ["no fault occurred"]


def progress_lines(result: RunResult) -> list[str]:
    """Return lines on checkpoints, preemptions and lost work; none without checkpoints and preemption."""
    found = result.progress
    if found is None:
        return []
    lines = [f"{plural(found.checkpoints, 'checkpoint')} in {quantity(found.checkpoint_s, 's')} of device time"]
    if found.restore_s:
        lines[0] += f", restores {quantity(found.restore_s, 's')}"
    lines.append(f"{plural(found.preemptions, 'preemption')}; {quantity(found.lost_s, 's')} of work lost")
    return lines


def design_lines(result: RunResult) -> list[str]:
    """Return a line on the loads of designs; none where no device held designs."""
    found = result.designs
    if found is None:
        return []
    if not found.loads:
        return ["no load: the designs that jobs need were resident"]
    line = f"{plural(found.loads, 'load')} in {quantity(found.load_s, 's')} of device time"
    return [f"{line} ({quantity(found.load_s / found.loads, 's')} each)"]


def unstable_reason(result: RunResult) -> str | None:
    """Return why the run's times have no mean ("unstable: ..."); None if the run is stable."""
    return result.statistics.unstable_reason if result.latency_s.mean.value is None else None


def notes(result: RunResult) -> list[str]:
    """Return the notes of the result, without the one on an unstable run that is shown in place of its times."""
    unstable = unstable_reason(result)
    return [note for note in result.notes if unstable is None or not note.startswith(unstable)]


def interval_runs(result: RunResult) -> str:
    """Return the runs from which the intervals of times come, such as ``8 more runs``; empty for one run."""
    redrawn = result.statistics.redrawn
    if redrawn is not None:
        return f"{plural(redrawn.runs, 'more run')}"
    return plural(result.replications, "run") if result.replications > 1 else ""


def certainty_rows(result: RunResult) -> list[tuple[str, str]]:
    """Return (label, text) rows on the steady state, the requested precision, and missing confidence intervals."""
    rows = []
    load, steady_state = result.statistics.offered_load, result.statistics.steady_state
    if steady_state is not None:
        budget = " (power budget not included)" if result.power_budget else ""
        rows.append(("steady state", steady_state + ("" if load is None else f"; offered load {number(load)}{budget}")))
    stopped = result.statistics.stopped
    if stopped is not None:
        achieved = stopped.achieved_error
        error = "no confidence interval" if achieved is None else f"error {achieved * 100:.3g}%"
        requested = f"{stopped.requested_error * 100:.3g}% requested"
        rows.append(("precision", f"{stopped.metric}: {error} after {stopped.jobs:,} jobs ({requested})"))
    if unstable_reason(result) is None:
        rows += [("no 95% CI" if i == 0 else "", line) for i, line in enumerate(missing_intervals(result))]
    return rows


_SAMPLE_SIZE = re.compile(r"(?<=effective sample size )about (\d+(?:\.\d+)?)")


def missing_intervals(part: Timed) -> list[str]:
    """Return which times of a result (or of a workload) have no confidence interval and why, grouped by reason."""
    reasons: dict[str, tuple[list[str], list[float]]] = {}
    for metric in METRICS:
        times = None if _repeats(part, metric) else distribution(part, metric)
        for statistic, estimate in (times.by_name() if times is not None else {}).items():
            if estimate.low is None and estimate.reason and is_finite(estimate.value):
                # Reasons that differ only in the effective sample size are one reason.
                pattern = _SAMPLE_SIZE.sub("about {}", estimate.reason, count=1)
                names, sizes = reasons.setdefault(pattern, ([], []))
                names.append(f"{metric if metric in ('latency', 'waiting') else metric.upper()} {statistic}")
                sizes += [float(match[1]) for match in [_SAMPLE_SIZE.search(estimate.reason)] if match]
    lines = []
    for pattern, (names, sizes) in reasons.items():
        low, high = (f"{bound(sizes):.1f}" for bound in (min, max)) if sizes else ("", "")
        about = f"about {low}" if low == high else f"about {low} to {high}"
        lines.append(f"{', '.join(_grouped(names))}: {pattern.replace('about {}', about)}")
    return lines


def _grouped(names: Sequence[str]) -> list[str]:
    """Return the statistics of one metric together: latency mean and p99, waiting p99."""
    statistics: dict[str, list[str]] = {}
    for name in names:
        metric, _, statistic = name.rpartition(" ")
        statistics.setdefault(metric, []).append(statistic)
    return [
        f"all of {metric}" if len(members) == len(STATISTICS) else f"{metric} {' and '.join(members)}"
        for metric, members in statistics.items()
    ]


def power_lines(result: RunResult) -> list[str]:
    """Return the fleet's power, what limits it, and the error of its model; a power budget gets a line of its own."""
    power = f"{quantity(result.average_power_w, 'W')} average, {quantity(result.peak_power_w, 'W')} peak"
    limits = power_limits(result)
    lines = [power, "; ".join(limits)] if len(limits) > 1 else [", ".join([power, *limits])]
    return lines + [f"model error: {error.text}" for error in result.power_error]


def power_limits(result: RunResult) -> list[str]:
    """Return the limits of the fleet's power: its power budget, if it has one, and the sum of the devices' limits."""
    limit, budget = result.power_limit_w, result.power_budget
    limits = [budget_text(budget)] if budget is not None else []
    return [*limits, f"device limit {quantity(limit, 'W')}"] if limit else limits


def budget_text(budget: BudgetResult) -> str:
    """Return the power budget and its lowest value: "power budget 5 kW, 3 kW in a brown-out"."""
    normal, lowest = budget.normal_w, budget.min_w
    low = f"{exact_quantity(lowest, 'W')} in a brown-out" if lowest is not None and lowest != normal else ""
    text = f"power budget {exact_quantity(normal, 'W')}" if normal is not None else "no power budget"
    return ", ".join(filter(None, [text, low]))


def idle_by_budget(result: RunResult) -> str:
    """Return how many devices never ran a job because of the power budget; empty if there are none."""
    active = result.power_budget.max_active_devices if result.power_budget is not None else None
    idle = sum(
        (not device.utilisation and not device.jobs) if device.unused is None else device.unused
        for device in result.devices
    )
    count = sum(device.count or 1 for device in result.devices)
    # The budget causes idle devices only if as many devices as it allows had work.
    if active is None or not idle or count - idle < active:
        return ""
    allowed = plural(active, "active device")
    return f"{idle:,} of {plural(count, 'device')} never ran a job: the power budget allows {allowed}"


def energy_text(result: RunResult) -> str:
    """Return the run's energy, in total and per completed job."""
    per_job_j = per_job(result.energy_j, result)
    text = f"{quantity(result.energy_j, 'J')} ({watt_hours(result.energy_j)})"
    return text if per_job_j is None else f"{text}, {quantity(per_job_j, 'J')} per job"


def cost_text(result: RunResult) -> str:
    """Return the rent of the run, per hour and per million jobs; or that it is unknown."""
    if result.cost_usd is None:
        return "unknown (a device has no price)"
    text = usd(result.cost_usd)
    if result.cost_usd_per_h is not None:
        text += f", {usd(result.cost_usd_per_h)} per hour"
    per_job_usd = per_job(result.cost_usd, result)
    return text if per_job_usd is None else f"{text}, {usd(per_job_usd * 1e6)} per million jobs"


@dataclass(frozen=True)
class EntryShare:
    """All devices of one fleet entry together. Power in W, energy in J, utilisation as a fraction of one."""

    name: str
    sku: str
    kind: str
    count: int
    """The devices, or the groups where the entry has groups of ``group`` devices."""
    group: int
    mean: float
    lowest: float
    highest: float
    energy_j: float
    jobs: int
    power_limit_w: float
    idle_power_w: float

    @property
    def label(self) -> str:
        """Return the entry's name, with its SKU if the name is a different one, and the size of its groups."""
        name = self.name if self.name == self.sku else f"{self.name} ({self.sku})"
        return name if self.group == 1 else f"{name}, groups of {self.group}"

    @property
    def unit(self) -> str:
        """Return what ``count`` counts."""
        return "device" if self.group == 1 else "group"


def _mean_utilisation(devices: Sequence[DeviceResult]) -> float:
    """Return the mean utilisation, each device weighted by the time for which it was rented."""
    if len({device.rented_s for device in devices}) == 1:
        return math.fsum(device.utilisation for device in devices) / len(devices)
    rented_s = math.fsum(device.rented_s for device in devices)
    return math.fsum(device.utilisation * device.rented_s for device in devices) / rented_s


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def by_entry(devices: Sequence[DeviceResult]) -> list[EntryShare]:
    """Return the fleet by entry, in the order of the scenario."""
    groups: dict[str, list[DeviceResult]] = {}
    for device in devices:
        groups.setdefault(device.entry, []).append(device)
    shares = []
    for name, members in groups.items():
        # A device that was never rented had no time to be utilised.
        rented = [device for device in members if device.rented_s] or members
        shares.append(
            EntryShare(
                name=name,
                sku=members[0].sku,
                kind=members[0].kind,
                count=sum(device.count or 1 for device in members),
                group=members[0].group or 1,
                mean=_mean_utilisation(rented),
                lowest=min(_or(device.utilisation_min, device.utilisation) for device in rented),
                highest=max(_or(device.utilisation_max, device.utilisation) for device in rented),
                energy_j=math.fsum(device.energy_j for device in members),
                jobs=sum(device.jobs for device in members),
                power_limit_w=math.fsum(device.power_limit_w for device in members),
                idle_power_w=math.fsum(device.idle_power_w for device in members),
            )
        )
    return shares
