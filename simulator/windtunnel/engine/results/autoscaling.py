"""Rented time and the section ``autoscale`` of the result, for devices that are in service during part of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.recording import Recording, Scaling, Steps, sum_of_ticks
from windtunnel.core.results.run import ScaledEntry, ScalingSeries
from windtunnel.core.ticks import FloatArray, TickArray
from windtunnel.engine.event_log import EventLog
from windtunnel.engine.prepare.autoscaling import OFF, ON
from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun

_POINTS = 400
"""The largest number of points of a series; a longer one is replaced by its means over as many equal intervals."""


@dataclass(frozen=True)
class RentalLog:
    """The times for which devices are rented.

    Attributes:
        ticks: The rented time of each device; shape (devices,).
        at: The ticks at which a device is rented or returned, in order, until the end of the run.
        device: The device of each change.
        change: 1 if the device is rented, -1 if it is returned.
    """

    ticks: TickArray
    at: TickArray
    device: np.ndarray
    change: np.ndarray


def rental_log_of(prepared: PreparedRun, log: EventLog, end: int) -> RentalLog:
    """Return the times for which the devices of a run are rented, until tick ``end``."""
    begin = np.concatenate([np.arange(c.count) < c.begin for c in prepared.classes])
    changes = log.changes
    tick, device, before, after = changes.tick, changes.device, changes.before, changes.after
    change = (after != OFF).astype(np.int64) - (before != OFF).astype(np.int64)
    kept = (change != 0) & (tick <= end)
    tick, device, change = tick[kept], device[kept], change[kept]
    # Each change counts from its tick until the end of the run.
    ticks = begin * np.int64(end)
    np.add.at(ticks, device, change * (end - tick))
    return RentalLog(ticks, tick, device, change)


def scaling_of(
    prepared: PreparedRun,
    log: EventLog,
    rent: RentalLog,
    end: int,
    steps: Callable[[Sequence[tuple[TickArray, float | FloatArray]], float, int], Steps],
) -> list[Scaling]:
    """Return the number of devices in service and rented over time, for each scaled entry. A group counts once.

    ``steps`` makes a step function from pairs of ticks and changes, the initial value and the end.
    """
    changes = log.changes
    tick, device, before, after = changes.tick, changes.device, changes.before, changes.after
    records = []
    for (c, rule), (ups, downs) in zip(prepared.scaled, log.scaled, strict=True):
        of_entry = (rent.device >= c.first) & (rent.device < c.first + c.count)
        served = (device >= c.first) & (device < c.first + c.count) & (tick <= end)
        on = (after[served] == ON).astype(np.int64) - (before[served] == ON).astype(np.int64)
        records.append(
            Scaling(
                entry=c.name,
                min=rule.min,
                max=rule.max,
                in_service=steps([(tick[served], on)], float(c.begin), end),
                devices=range(c.first, c.first + c.count),
                rented=steps([(rent.at[of_entry], rent.change[of_entry])], float(c.begin), end),
                scale_ups=ups,
                scale_downs=downs,
            )
        )
    return records


def scaled_entries(prepared: PreparedRun, recording: Recording) -> list[ScaledEntry]:
    """Return the section ``autoscale`` of the result: one object for each scaled entry, as docs/metrics.md defines.

    All devices of a group count.
    """
    entries = []
    for (c, _), scaling in zip(prepared.scaled, recording.scaling, strict=True):
        ticks = sum_of_ticks(recording.devices.rented_ticks[c.first : c.first + c.count])
        price, size = c.price_usd_per_s, c.members
        entries.append(
            ScaledEntry(
                entry=scaling.entry,
                min=scaling.min * size,
                max=scaling.max * size,
                scale_ups=scaling.scale_ups,
                scale_downs=scaling.scale_downs,
                mean_in_service=scaling.in_service.mean() * size,
                min_in_service=int(scaling.in_service.values.min()) * size,
                max_in_service=int(scaling.in_service.values.max()) * size,
                mean_rented=scaling.rented.mean() * size,
                max_rented=int(scaling.rented.values.max()) * size,
                rented_s=size * ticks / 1e12,
                cost_usd=None if price is None else price * (ticks / 1e12),
                series=_series(scaling.in_service, scaling.rented, size),
            )
        )
    return entries


def rented_devices(prepared: PreparedRun, recording: Recording, c: FleetClass) -> float:
    """Return the mean number of devices of a class that were rented during the run."""
    if not recording.end or not prepared.scaled:
        return float(c.begin)
    return sum_of_ticks(recording.devices.rented_ticks[c.first : c.first + c.count]) / recording.end


def _series(on: Steps, rented: Steps, size: int) -> ScalingSeries:
    ticks = np.union1d(on.ticks, rented.ticks)
    if len(ticks) > _POINTS:
        times, mean_on, _ = on.sampled(_POINTS)
        mean_rented = rented.sampled(_POINTS)[1]
        return ScalingSeries(times.tolist(), (size * mean_on).tolist(), (size * mean_rented).tolist(), True)
    at = [(size * s.values[np.searchsorted(s.ticks, ticks, side="right") - 1]).tolist() for s in (on, rented)]
    return ScalingSeries((ticks / 1e12).tolist(), at[0], at[1], False)
