"""The measured work of a run's real devices, with the times that their models predict for the same operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.result import Recording

if TYPE_CHECKING:
    from windtunnel.engine.prepare.prepared import PreparedRun

_SHOWN = 5
"""The number of failures of a real device that the notes list; the result has all of them."""
_SUMS = ("jobs", "modelled_s", "operations", "measured_s", "failures")


def real_device_rows(prepared: PreparedRun, recording: Recording) -> list[dict[str, Any]]:
    """Return the executed operations of each real device, with their measured and modelled times (s)."""
    rows = []
    jobs = recording.jobs
    for fleet_class in prepared.classes:
        if fleet_class.executor is None:
            continue
        row = {
            "name": fleet_class.name,
            "model": fleet_class.device.label,
            "jobs": int(((jobs.device == fleet_class.first) & (jobs.finish >= 0)).sum()),
            "modelled_s": _modelled_s(fleet_class.device, fleet_class.executor.executed()),
        }
        rows.append({**row, **fleet_class.executor.report()})
    return rows


def add_rows(before: list[dict[str, Any]], added: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of all replications so far; the state of a device is that of its first row."""
    if not before:
        return added
    return [
        {**first, **{name: first[name] + second[name] for name in _SUMS}}
        for first, second in zip(before, added, strict=True)
    ]


def real_device_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the notes of a result about its real devices."""
    notes = []
    for row in rows:
        did = "no job ran on it, so nothing was measured"
        if row["operations"]:
            did = (
                f"the times of its {row['operations']:,} operations were measured, {row['measured_s']:.3g} s in all; "
                f"its model {row['model']} predicts {row['modelled_s']:.3g} s; its power is the model's"
            )
        notes.append(f"'{row['name']}' is {row['real']} ({row['label']}, {row['driver']}): {did}")
        notes += [f"'{row['name']}' failed: {failure}" for failure in row["failures"][:_SHOWN]]
    return notes


def _modelled_s(model: Device, executed: Mapping[tuple[str, tuple[tuple[str, Any], ...]], int]) -> float:
    """Return the time (s) that a model predicts for operations; each counts as often as it was executed."""
    alike: dict[tuple[str, ...], list[tuple[dict[str, Any], int]]] = {}
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
