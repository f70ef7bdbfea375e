"""Profiles of the kernels of a program, in the words of Nsight Compute: a table, and counters on a timeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from windtunnel.core.units import format_quantity
from windtunnel.runtime.work_counts import Traffic, WorkCounts


@dataclass(frozen=True)
class LaunchProfile:
    """A launch of a kernel.

    Attributes:
        name: Name of the kernel.
        start_s: Its start on the device's clock (s).
        duration_s: Its duration (s).
        duration_low_s, duration_high_s: The 90% interval of the model for its duration (s).
        provenance: The least certain provenance of the duration.
        counts: What it did; None if its work cannot be counted.
        theoretical_occupancy: Resident warps of a compute unit, as a share of the most; None if the SKU does not say.
        registers: The 32-bit registers of a thread.
        registers_are_estimated: Whether their number is an estimate, as no ``@kernel(registers=...)`` states it.
        engine: The hardware engine and the stream.
        limited_by: The part of the device that takes the longest; empty if the work was not counted.
        basis: What the duration follows from: ``counted`` work, work that the kernel has ``stated``, or ``arrays moved
            once``.
    """

    name: str
    start_s: float
    duration_s: float
    duration_low_s: float
    duration_high_s: float
    provenance: str
    counts: WorkCounts | None
    theoretical_occupancy: float | None
    registers: int
    registers_are_estimated: bool
    engine: str
    limited_by: str = ""
    basis: str = "stated"

    @property
    def metrics(self) -> dict[str, float]:
        """The figures of the launch by the names of Nsight Compute. Rates are per second of the modelled duration."""
        counts = self.counts
        if counts is None:
            return {}
        seconds = self.duration_s or 1.0
        found = {
            "Memory Throughput [B/s]": counts.memory_bytes / seconds,
            "L1/TEX Sectors/Req (load)": _per_request(counts.loads),
            "L1/TEX Sectors/Req (store)": _per_request(counts.stores),
            "L1/TEX Hit Rate [%]": 100.0 * counts.l1_hit_rate,
            "L2 Sectors": counts.cache_sectors,
            "Shared Bank Conflicts": sum(
                one.conflicts for one in (counts.shared_loads, counts.shared_stores, counts.shared_atomics)
            ),
            "Atomic Conflicts": counts.atomics.conflicts,
            "Avg. Active Threads Per Warp": counts.threads_per_instruction,
            "Branch Efficiency [%]": 100.0 * counts.branch_efficiency,
        }
        for kind, flops in counts.flops.items():
            if flops:
                found[f"{kind} [FLOP/s]"] = flops / seconds
        if self.theoretical_occupancy is not None:
            found["Theoretical Occupancy [%]"] = 100.0 * self.theoretical_occupancy
        return found


def _per_request(traffic: Traffic) -> float:
    return traffic.sectors / traffic.requests if traffic.requests else 0.0


_COLUMNS = (
    "Kernel", "Launches", "Duration", "90% Interval", "Limited by", "FLOP", "Memory", "Sectors/Req", "L1 Hit Rate",
    "Bank Conflicts", "Atomic Conflicts", "Threads/Warp", "Branch Eff.", "Occupancy",
)  # fmt: skip


@dataclass
class Profile:
    """The launches inside of ``with accelerator.profile() as profile:``, in order."""

    device: str
    launches: list[LaunchProfile] = field(default_factory=list)

    def table(self) -> str:
        """Return a table with a line for each kernel and launch configuration; durations and counts are sums."""
        groups: dict[object, list[LaunchProfile]] = {}
        for launch in self.launches:
            counts = launch.counts
            groups.setdefault((launch.name, None if counts is None else (counts.grid, counts.block)), []).append(launch)
        rows = [_COLUMNS, *(_row(group) for group in groups.values())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        if any(launch.registers_are_estimated for launch in self.launches):
            lines.append(
                "Occupancy with an estimated number of registers. Only @windtunnel.kernel(registers=...) can state it."
            )
        if any(launch.counts is None for launch in self.launches):
            lines.append(
                "Kernels without counts work on whole arrays, or their threads wait for each other; unless they state "
                "their work, they are assumed to move their arrays once."
            )
        if any(launch.basis == "counted" for launch in self.launches):
            lines.append(
                "Durations follow from the counted work and the device model; 90% intervals contain the ranges of "
                "assumed numbers and the error of sampled blocks."
            )
        return "\n".join(lines)

    def write_trace(self, path: str | Path) -> None:
        """Write a timeline for Perfetto: the launches, and each figure of their kernels as a counter."""
        events: list[dict[str, object]] = []
        for launch in self.launches:
            start_us, end_us = launch.start_s * 1e6, (launch.start_s + launch.duration_s) * 1e6
            where = {"pid": self.device, "tid": launch.engine, "ts": start_us, "dur": end_us - start_us}
            events.append({"name": launch.name, "ph": "X", **where, "args": launch.metrics})
            for name, value in launch.metrics.items():
                for at, shown in ((start_us, value), (end_us, 0.0)):
                    events.append({"name": name, "ph": "C", "ts": at, "pid": self.device, "args": {launch.name: shown}})
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


def _row(launches: Sequence[LaunchProfile]) -> tuple[str, ...]:
    first = launches[0]
    seconds = format_quantity(sum(launch.duration_s for launch in launches), "s", 4)
    ends = (sum(launch.duration_low_s for launch in launches), sum(launch.duration_high_s for launch in launches))
    interval = " to ".join(format_quantity(end, "s", 3) for end in ends)
    counts, number = first.counts, len(launches)
    limit = first.limited_by or {"stated": "stated work", "counted": "-"}.get(first.basis, first.basis)
    if counts is None:
        return (first.name, f"{number:,}", seconds, interval, limit, *["-"] * (len(_COLUMNS) - 5))
    metrics, occupancy = first.metrics, first.theoretical_occupancy
    return (
        first.name,
        f"{number:,}",
        seconds,
        interval,
        limit,
        format_quantity(sum(counts.flops.values()) * number, "FLOP", 3),
        format_quantity(counts.memory_bytes * number, "B", 3),
        f"{metrics['L1/TEX Sectors/Req (load)']:.3g} / {metrics['L1/TEX Sectors/Req (store)']:.3g}",
        f"{metrics['L1/TEX Hit Rate [%]']:.3g}%",
        f"{metrics['Shared Bank Conflicts'] * number:,.0f}",
        f"{counts.atomics.conflicts * number:,.0f}",
        f"{counts.threads_per_instruction:.3g}",
        f"{100 * counts.branch_efficiency:.3g}%",
        "-" if occupancy is None else f"{100 * occupancy:.3g}%",
    )
