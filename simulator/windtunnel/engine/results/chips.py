"""Counts the power of a chip once, although several devices of the fleet reach it and each has a model of all of it.

At every instant the chip draws its idle power once, the power of an active chip once (the largest ``active_w`` of the
devices at work), and what the work of each device draws beyond that, at most up to the chip's power limit. What its
devices would draw above that, if each were a chip of its own, is saved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from windtunnel.core.recording import ChipRecord, IntervalTable
from windtunnel.core.ticks import FloatArray, TickArray, to_second_array
from windtunnel.engine.prepare.chips import Chip
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.programs import WATT_GRAIN


@dataclass
class ChipPower:
    """What the shared chips of a run draw less than their devices would alone.

    ``changes``: the changes (W) of the fleet's power at ticks. ``saved_j``: the energy (J) that counts less for each
    device; shape (devices,).
    """

    saved_j: FloatArray
    chips: list[ChipRecord] = field(default_factory=list)
    changes: list[tuple[TickArray, FloatArray]] = field(default_factory=list)


def chip_power(prepared: PreparedRun, table: IntervalTable) -> ChipPower:
    """Return the savings of all chips that several devices reach; ``table`` has all intervals of the run."""
    power = ChipPower(np.zeros(prepared.device_count))
    for chip in prepared.chips:
        _add(power, chip, prepared, table)
    return power


def _add(power: ChipPower, chip: Chip, prepared: PreparedRun, table: IntervalTable) -> None:
    class_of = prepared.class_of_device()
    classes = [prepared.classes[class_of[device]] for device in chip.devices]
    idle_w, limit_w = classes[0].idle_w, max(c.limit_w for c in classes)
    ticks = np.zeros(0, dtype=np.int64)
    of_device = [np.flatnonzero(table.device == device) for device in chip.devices]
    ticks = np.unique(np.concatenate([part for on in of_device for part in (table.start[on], table.end[on])]))
    drawn, working = np.zeros((2, len(chip.devices), len(ticks)))
    for row, on in enumerate(of_device):
        for at, sign in ((table.start[on], 1.0), (table.end[on], -1.0)):
            np.add.at(drawn[row], np.searchsorted(ticks, at), sign * table.watts[on])
            np.add.at(working[row], np.searchsorted(ticks, at), sign)
    drawn, at_work = np.cumsum(drawn, axis=1), np.cumsum(working, axis=1).any(axis=0)
    active = np.minimum(drawn, np.array([[c.active_w] for c in classes]))
    # Rounded down, so that every sum of powers remains exact.
    headroom_w = math.floor((limit_w - idle_w) / WATT_GRAIN) * WATT_GRAIN
    together = np.minimum(active.max(axis=0, initial=0.0) + (drawn - active).sum(axis=0), headroom_w)
    together = np.maximum(together, drawn.max(axis=0, initial=0.0))
    total = drawn.sum(axis=0)
    saved = total - together
    span = np.diff(ticks, append=ticks[-1:])
    shares = np.divide(drawn, total, out=np.zeros_like(drawn), where=total > 0)
    power.saved_j[list(chip.devices)] += (shares * (saved * to_second_array(span))).sum(axis=1)
    if saved.any():
        power.changes.append((ticks, -np.diff(saved, prepend=0.0)))
    power.chips.append(ChipRecord(chip.name, chip.devices, int(span[at_work].sum()), limit_w, idle_w))
