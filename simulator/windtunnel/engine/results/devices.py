"""Computes the devices of a result: one object for each, or for large fleets one for each fleet entry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from windtunnel.core.recording import Recording, sum_of_ticks
from windtunnel.core.results.run import ChipResult, DeviceResult
from windtunnel.core.ticks import FloatArray

EACH_UP_TO = 10_000
"""The number of devices up to which a result has an object for each device by default."""


def utilisation(recording: Recording) -> FloatArray:
    """Return the share of its rented time for which each device was busy; 0 if it was never rented."""
    devices = recording.devices
    shares: FloatArray = devices.busy_ticks / np.maximum(devices.rented_ticks, 1)
    return shares


def availability(recording: Recording) -> FloatArray:
    """Return the share of the run for which each device was up."""
    shares: FloatArray = 1.0 - recording.devices.down_ticks / max(recording.end, 1)
    return shares


def device_results(recording: Recording, each: bool) -> list[DeviceResult]:
    """Return the devices of a recording.

    Args:
        recording: The recording.
        each: Whether fleets of more than ``EACH_UP_TO`` devices too have an object for each device.
    """
    devices = recording.devices
    shares, up = utilisation(recording), availability(recording)
    if len(devices) > EACH_UP_TO and not each:
        return _entries(recording, shares, up)
    rented_s = devices.rented_ticks / 1e12
    columns = (shares, rented_s, devices.energy_j, devices.jobs, up)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        DeviceResult(
            name=entry.name_of(number),
            sku=entry.label,
            entry=entry.name,
            kind=entry.kind,
            utilisation=share,
            rented_s=rented,
            energy_j=energy_j,
            jobs=jobs,
            power_limit_w=entry.power_limit_w,
            idle_power_w=entry.idle_power_w,
            availability=available,
            group=entry.group if entry.group > 1 else None,
        )
        for entry, _ in devices.by_entry()
        for number, (share, rented, energy_j, jobs, available) in zip(range(entry.count), rows, strict=False)
    ]


def chip_results(recording: Recording) -> list[ChipResult]:
    """Return the chips that several devices reach."""
    if not recording.chips:
        return []
    names, energy_j = recording.devices.names(), recording.devices.energy_j
    return [
        ChipResult(
            name=chip.name,
            devices=[names[device] for device in chip.devices],
            utilisation=chip.busy_ticks / max(recording.end, 1),
            energy_j=math.fsum(energy_j[list(chip.devices)].tolist()),
            power_limit_w=chip.power_limit_w,
            idle_power_w=chip.idle_power_w,
        )
        for chip in recording.chips
    ]


def over_chips(runs: Sequence[Sequence[ChipResult]]) -> list[ChipResult]:
    """Return the means of the chips over replications."""
    return [
        replace(
            of_runs[0],
            utilisation=float(np.mean([chip.utilisation for chip in of_runs])),
            energy_j=float(np.mean([chip.energy_j for chip in of_runs])),
        )
        for of_runs in zip(*runs, strict=True)
    ]


def _entries(recording: Recording, shares: FloatArray, up: FloatArray) -> list[DeviceResult]:
    """Return one object for each fleet entry."""
    devices = recording.devices
    results = []
    for entry, members in devices.by_entry():
        rented = devices.rented_ticks[members]
        rented_ticks = float(sum_of_ticks(rented))
        # A device that was never rented had no time to be utilised.
        used = shares[members][rented > 0] if rented.any() else shares[members]
        results.append(
            DeviceResult(
                name=entry.name,
                sku=entry.label,
                entry=entry.name,
                kind=entry.kind,
                utilisation=float(sum_of_ticks(devices.busy_ticks[members])) / max(rented_ticks, 1.0),
                rented_s=rented_ticks / 1e12,
                energy_j=math.fsum(devices.energy_j[members].tolist()),
                jobs=int(devices.jobs[members].sum()),
                power_limit_w=entry.count * entry.power_limit_w,
                idle_power_w=entry.count * entry.idle_power_w,
                availability=float(up[members].mean()),
                group=entry.group if entry.group > 1 else None,
                count=entry.count,
                utilisation_min=float(used.min()),
                utilisation_max=float(used.max()),
                unused=int(((devices.busy_ticks[members] == 0) & (devices.jobs[members] == 0)).sum()),
            )
        )
    return results


def over_devices(runs: Sequence[Sequence[DeviceResult]]) -> list[DeviceResult]:
    """Return the devices over replications: numbers of jobs are totals, other values means."""
    merged = []
    for of_runs in zip(*runs, strict=True):
        first = of_runs[0]
        lowest = [device.utilisation_min for device in of_runs if device.utilisation_min is not None]
        highest = [device.utilisation_max for device in of_runs if device.utilisation_max is not None]
        unused = [device.unused for device in of_runs if device.unused is not None]
        merged.append(
            replace(
                first,
                utilisation=float(np.mean([device.utilisation for device in of_runs])),
                rented_s=float(np.mean([device.rented_s for device in of_runs])),
                energy_j=float(np.mean([device.energy_j for device in of_runs])),
                availability=float(np.mean([device.availability for device in of_runs])),
                jobs=sum(device.jobs for device in of_runs),
                utilisation_min=min(lowest, default=None),
                utilisation_max=max(highest, default=None),
                unused=min(unused, default=None),
            )
        )
    return merged
