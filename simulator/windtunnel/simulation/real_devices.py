"""The measured work of a run's real devices, with the times that their models predict for the same operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.recording import Recording
from windtunnel.core.results.run import ChipResult, RealDevice, RealWork

if TYPE_CHECKING:
    from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun

_SHOWN = 5
"""The number of failures of a real device that the notes list; the result has all of them."""


def real_devices(prepared: PreparedRun, recording: Recording) -> list[RealDevice]:
    """Return the executed operations of each real device, with their measured and modelled times (s)."""
    jobs = recording.jobs
    found = []
    for c in prepared.classes:
        if c.executor is None:
            continue
        work = c.executor.report()
        done = int(((jobs.device == c.first) & (jobs.finish >= 0)).sum())
        found.append(
            RealDevice(
                name=c.name,
                model=c.device.label,
                jobs=done,
                modelled_s=_modelled_s(c.device, c.executor.executed()),
                why_unused=None if work.operations else _why_unused(prepared, c, work),
                **vars(work),
            )
        )
    return found


def _why_unused(prepared: PreparedRun, of: FleetClass, work: RealWork) -> str:
    """Return why a real device executed no operation: for each workload that it cannot run, the reason."""
    if work.failures:
        return f"every attempt failed, {len(work.failures):,} in all"
    reasons: dict[str, list[str]] = {}
    for job_class in prepared.workloads:
        if not job_class.source.count:
            continue
        pair = of.number, job_class.number
        if pair in prepared.excluded:
            reason = prepared.excluded[pair]
        elif not any(of.number in classes for classes in prepared.signatures):
            reason = "its memory is too small for the jobs"
        else:
            reason = "it can run them, and the policy gave every job to other devices"
        reasons.setdefault(reason, []).append(f"'{job_class.workload.name}'")
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


def added(before: list[RealDevice], further: list[RealDevice]) -> list[RealDevice]:
    """Return the work of all replications so far; the state of a device is that of its first run."""
    if not before:
        return further
    return [
        replace(
            first,
            jobs=first.jobs + second.jobs,
            modelled_s=first.modelled_s + second.modelled_s,
            why_unused=first.why_unused and second.why_unused,
            operations=first.operations + second.operations,
            measured_s=first.measured_s + second.measured_s,
            failures=[*first.failures, *second.failures],
        )
        for first, second in zip(before, further, strict=True)
    ]


def real_device_notes(devices: Sequence[RealDevice]) -> list[str]:
    """Return the notes of a result about its real devices."""
    notes = []
    for device in devices:
        did = f"no job ran on it, so nothing was measured ({device.why_unused})"
        if device.operations:
            did = (
                f"the times of its {device.operations:,} operations were measured, {device.measured_s:.3g} s in all; "
                f"its model {device.model} predicts {device.modelled_s:.3g} s; its power is the model's"
            )
        notes.append(f"'{device.name}' is {device.real} ({device.label}, {device.driver}): {did}")
        notes += [f"'{device.name}' failed: {failure}" for failure in device.failures[:_SHOWN]]
    return notes


def chip_notes(chips: Sequence[ChipResult]) -> list[str]:
    """Return a note for each chip that several devices reach."""
    return [
        f"{', '.join(chip.devices)} reach one chip, '{chip.name}': its power is counted once, and their jobs do not "
        "slow each other down"
        for chip in chips
    ]


def _modelled_s(model: Device, executed: Mapping[tuple[str, tuple[tuple[str, float | str], ...]], int]) -> float:
    """Return the time (s) that a model predicts for operations; each counts as often as it was executed."""
    alike: dict[tuple[str, ...], list[tuple[dict[str, float | str], int]]] = {}
    for (op, columns), count in executed.items():
        choices = tuple(value for _, value in columns if isinstance(value, str))
        alike.setdefault((op, *choices), []).append((dict(columns), count))
    total_s = 0.0
    for (op, *_), operations in alike.items():
        first = operations[0][0]
        numbers = {
            name: np.array([columns[name] for columns, _ in operations], dtype=np.float64)
            for name, value in first.items()
            if not isinstance(value, str)
        }
        rows = Rows(OPERATIONS.find(op), {n: v for n, v in first.items() if isinstance(v, str)}, numbers)
        total_s += float(model.cost(rows, intervals=False).duration_s @ np.array([count for _, count in operations]))
    return total_s
