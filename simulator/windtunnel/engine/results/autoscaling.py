"""What comes of devices that are rented for part of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.result import Recording, Scaling, Steps
from windtunnel.core.ticks import FloatArray, TickArray
from windtunnel.engine.prepare.autoscaling import OFF, ON

if TYPE_CHECKING:
    from windtunnel.engine.event_log import EventLog
    from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun

_POINTS = 400
"""Steps above this many are given as means over so many equal times."""


@dataclass(frozen=True)
class Rent:
    """When devices are rented.

    ``ticks``: for how long, by device. ``at``, ``device``, ``change``: 1 where one begins to be, -1 where it is given
    back, in order, until the end of the run.
    """

    ticks: TickArray
    at: TickArray
    device: np.ndarray
    change: np.ndarray


def rent_of(prepared: PreparedRun, log: EventLog, end: int) -> Rent:
    """When the run's devices are rented."""
    begin = np.concatenate([np.arange(c.count) < c.begin for c in prepared.classes])
    tick, device, before, after = log.changes_array()
    change = (after != OFF).astype(np.int64) - (before != OFF).astype(np.int64)
    kept = (change != 0) & (tick <= end)
    tick, device, change = tick[kept], device[kept], change[kept]
    # From each change on until the end: what was begun and not yet given back.
    ticks = begin * np.int64(end)
    np.add.at(ticks, device, change * (end - tick))
    return Rent(ticks, tick, device, change)


def scaling_of(
    prepared: PreparedRun,
    log: EventLog,
    rent: Rent,
    end: int,
    steps: Callable[[TickArray, FloatArray, float, int], Steps],
) -> list[Scaling]:
    """How each scaled entry's devices came and went; ``steps`` makes a step function of changes."""
    tick, device, before, after = log.changes_array()
    found = []
    for (c, rule), (ups, downs) in zip(prepared.scaled, log.scaled, strict=True):
        mine = (rent.device >= c.first) & (rent.device < c.first + c.count)
        served = (device >= c.first) & (device < c.first + c.count) & (tick <= end)
        on = (after[served] == ON).astype(np.int64) - (before[served] == ON).astype(np.int64)
        found.append(
            Scaling(
                entry=c.name,
                min=rule.min,
                max=rule.max,
                in_service=steps(tick[served], on, float(c.begin), end),
                devices=range(c.first, c.first + c.count),
                rented=steps(rent.at[mine], rent.change[mine], float(c.begin), end),
                scale_ups=ups,
                scale_downs=downs,
            )
        )
    return found


def sections(prepared: PreparedRun, recording: Recording) -> list[dict[str, Any]]:
    """The result's ``autoscale``: one object a scaled entry. Defined in docs/metrics.md."""
    found = []
    for (c, _), one in zip(prepared.scaled, recording.scaling, strict=True):
        ticks = sum(_rented(d.rented_ticks, recording.end) for d in recording.devices[c.first : c.first + c.count])
        price = c.price_usd_per_s
        times, on, rented, thinned = _series(one.in_service, one.rented)
        found.append(
            {
                "entry": one.entry,
                "min": one.min,
                "max": one.max,
                "scale_ups": one.scale_ups,
                "scale_downs": one.scale_downs,
                "mean_in_service": one.in_service.mean(),
                "min_in_service": int(one.in_service.values.min()),
                "max_in_service": int(one.in_service.values.max()),
                "mean_rented": one.rented.mean(),
                "max_rented": int(one.rented.values.max()),
                "rented_s": ticks / 1e12,
                "cost_usd": None if price is None else price * (ticks / 1e12),
                "series": {"time_s": times, "in_service": on, "rented": rented, "downsampled": thinned},
            }
        )
    return found


def rented_devices(prepared: PreparedRun, recording: Recording, c: FleetClass) -> float:
    """How many devices of a class were rented, on average over the run."""
    if not recording.end or not prepared.scaled:
        return float(c.begin)
    of_class = recording.devices[c.first : c.first + c.count]
    return sum(_rented(d.rented_ticks, recording.end) for d in of_class) / recording.end


def _rented(ticks: int | None, end: int) -> int:
    return end if ticks is None else ticks


def _series(on: Steps, rented: Steps) -> tuple[list[float], list[float], list[float], bool]:
    ticks = np.union1d(on.ticks, rented.ticks)
    if len(ticks) > _POINTS:
        times, mean_on, _ = on.sampled(_POINTS)
        return times.tolist(), mean_on.tolist(), rented.sampled(_POINTS)[1].tolist(), True
    at = [s.values[np.searchsorted(s.ticks, ticks, side="right") - 1].tolist() for s in (on, rented)]
    return (ticks / 1e12).tolist(), at[0], at[1], False
