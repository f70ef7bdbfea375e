"""The details of a run, as tables: workloads, fleet entries, faults, checkpoints, designs, and each device."""

from __future__ import annotations

from markupsafe import Markup

from windtunnel.core.results.run import Estimate, RunResult, distribution
from windtunnel.report import page, run_text
from windtunnel.report.numbers import NOTHING, interval, is_finite, number, quantity, share, watt_hours
from windtunnel.report.page import Cell
from windtunnel.report.run_text import METRICS, by_entry

MANY_DEVICES = 24
"""Above this number of devices, charts show fleet entries instead, and the table of devices is closed."""
MAX_DEVICE_ROWS = 200


def section(result: RunResult) -> Markup:
    """Return the section."""
    return page.section(
        "tables",
        "Details",
        _workloads(result),
        _entries(result),
        _faults(result),
        _progress(result),
        _designs(result),
        _real(result),
        _devices(result),
    )


def _workloads(result: RunResult) -> Markup:
    columns = [("latency", "p50"), ("latency", "p95"), ("latency", "p99")]
    columns += [
        (metric, "p99")
        for metric in ("waiting", "ttft", "itl", "tpot")
        if any(distribution(workload, metric) is not None for workload in result.workloads)
    ]
    rows = [
        [
            Cell(workload.name, workload.use_case or ""),
            Cell(
                f"{workload.jobs.completed:,}",
                ", ".join(run_text.unfinished(workload.jobs)),
                f"of {workload.jobs.arrived:,}",
            ),
            *(
                timed_cell(None if (times := distribution(workload, metric)) is None else times.of(statistic))
                for metric, statistic in columns
            ),
        ]
        for workload in result.workloads
    ]
    heads = [f"{METRICS[metric]} {statistic}" for metric, statistic in columns]
    return page.table("Workloads", ["Workload", "Completed", *heads], rows)


def _entries(result: RunResult) -> Markup | None:
    if run_text.device_count(result) < 2:
        return None
    rows = [
        [
            entry.name,
            entry.sku,
            entry.kind,
            f"{entry.count * entry.group:,}" + (f" in groups of {entry.group}" if entry.group > 1 else ""),
            share(entry.mean),
            f"{share(entry.lowest)} to {share(entry.highest)}" if entry.count > 1 else NOTHING,
            f"{entry.jobs:,}",
            watt_hours(entry.energy_j),
            quantity(entry.idle_power_w, "W"),
            quantity(entry.power_limit_w, "W"),
        ]
        for entry in by_entry(result.devices)
    ]
    header = [
        "Fleet entry",
        "SKU",
        "Kind",
        "Devices",
        "Utilisation",
        "Range",
        "Jobs",
        "Energy",
        "Idle power",
        "Power limit",
    ]
    return page.table("Devices by fleet entry", header, rows, words=(0, 1, 2))


def _faults(result: RunResult) -> Markup | None:
    """Return the injected faults, the affected jobs, and each fleet entry's share of the faults."""
    faults = result.faults
    if faults is None:
        return None
    rows = [
        [
            entry.name,
            f"{entry.devices:,}",
            f"{entry.failures:,}",
            *(quantity(time_s or None, "s") for time_s in (entry.down_s, entry.unreachable_s, entry.throttled_s)),
            share(entry.availability),
        ]
        for entry in faults.entries
    ]
    header = ["Fleet entry", "Devices", "Failures", "Down", "Unreachable", "Throttled", "Availability"]
    return page.table(f"Faults: {'; '.join(run_text.fault_lines(result))}", header, rows, name="faults")


def _progress(result: RunResult) -> Markup | None:
    """Return what checkpoints and interruptions cost; None without checkpoints and preemption."""
    found = result.progress
    if found is None:
        return None
    times = (quantity(time_s or None, "s") for time_s in (found.checkpoint_s, found.restore_s, found.lost_s))
    header = ["Checkpoints", "Writing checkpoints", "Restores", "Work lost", "Preemptions"]
    row = [f"{found.checkpoints:,}", *times, f"{found.preemptions:,}"]
    return page.table("Checkpoints and preemption (device time)", header, [row], name="progress")


def _designs(result: RunResult) -> Markup | None:
    """Return the designs of reconfigurable devices and their loads; None where no job needs a design."""
    found = result.designs
    if found is None:
        return None
    rows = [
        [e.name, f"{e.regions:,}", quantity(e.load_each_s, "s"), ", ".join(e.needed), ", ".join(e.resident_at_start)]
        for e in found.entries
    ]
    header = ["Fleet entry", "Designs held at once", "Load time", "Designs that jobs need", "Resident at the start"]
    return page.table(f"Designs: {'; '.join(run_text.design_lines(result))}", header, rows, name="designs")


def _real(result: RunResult) -> Markup | None:
    """Return the time that each device of this host took, beside the time that its model predicts for the same jobs."""
    rows: list[list[str | Cell]] = [
        [
            device.name,
            Cell(f"{device.real}, {device.label}", device.why_unused or ""),
            f"{device.operations:,}" + (f", {len(device.failures):,} failed" if device.failures else ""),
            quantity(device.measured_s, "s"),
            quantity(device.modelled_s, "s"),
            f"×{number(device.measured_s / device.modelled_s)}" if device.modelled_s else NOTHING,
            device.model,
            ", ".join(device.timer) or NOTHING,
            share(device.worst_error_share),
        ]
        for device in result.real or ()
    ]
    header = [
        "Fleet entry",
        "Device",
        "Operations",
        "Measured",
        "Modelled",
        "Ratio",
        "Model",
        "Timer",
        "Error over tolerance",
    ]
    caption = "Real devices (their times are measured)"
    return page.table(caption, header, rows, words=(0, 1, 6, 7), name="real") if rows else None


def _devices(result: RunResult) -> Markup | None:
    """Return every device, or the most and the least utilised ones of a large fleet; None if entries were summed."""
    devices = result.devices
    if any(device.count is not None for device in devices):
        return None
    shown, half, cut = list(devices), MAX_DEVICE_ROWS // 2, None
    if len(devices) > MAX_DEVICE_ROWS:
        order = sorted(range(len(devices)), key=lambda i: -devices[i].utilisation)
        shown = [devices[i] for i in (*order[:half], *order[-half:])]
        cut = page.hint(
            f"The {half} busiest and the {half} least busy of {len(devices):,}; result.json contains all of them."
        )
    rows = [
        [
            device.name,
            device.sku,
            device.kind,
            share(device.utilisation),
            f"{device.jobs:,}",
            watt_hours(device.energy_j),
            quantity(device.idle_power_w, "W"),
            quantity(device.power_limit_w, "W"),
        ]
        for device in shown
    ]
    header = ["Device", "SKU", "Kind", "Utilisation", "Jobs", "Energy", "Idle power", "Power limit"]
    table = page.table("Devices", header, rows, words=(0, 1, 2), hidden_caption=True)
    return page.details("Each device", f"{len(devices):,}", cut, table, is_open=len(devices) <= MANY_DEVICES)


def timed_cell(estimate: Estimate | None) -> Cell:
    """Return a time with its confidence interval."""
    if estimate is None or not is_finite(estimate.value):
        return Cell(NOTHING)
    return Cell(quantity(estimate.value, "s"), interval(estimate) or "no 95% CI")
