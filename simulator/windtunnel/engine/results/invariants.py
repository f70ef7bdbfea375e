"""The numbered invariants, checked at the end of every run. A run that breaks one is never reported.

I1 conservation   arrived = completed + running + queued + dropped + failed
I2 causality      arrival <= start <= first token <= finish <= end of the run
I3 exclusion      intervals of one engine of one device never overlap
I4 monotone time  every interval has length and lies within the run; steps increase strictly
I5 busy time      a device's busy time is the union of its engines' intervals, and never exceeds the run
I6 energy         the devices' energies add up to the integral of power, to 1e-12 relative
I7 attribution    the jobs' energies and idle power add up to the devices' energies, to 1e-9 relative
I8 limits         no device ever draws more than its limit
I9 waiting        the number waiting is never negative and ends as the jobs that are queued
I10 rent          of a scaled entry never more than its most are rented nor fewer than its least on; the time for which
                  its devices are rented is the integral of how many are; and none works for longer than that
Determinism (the same scenario and seed give the same recording) needs two runs, and is tested.
"""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from windtunnel.core.errors import InvariantError
from windtunnel.core.result import COMPLETED, QUEUED, Recording, Tally


def _broken(name: str, what: str) -> NoReturn:
    raise InvariantError(f"invariant {name} is broken: {what}. This is a bug of Windtunnel's; please report it.")


def check(recording: Recording) -> None:
    """Raise InvariantError for the first invariant that ``recording`` breaks."""
    if recording.tally is not None:
        _check_sums(recording, recording.tally)
        return
    jobs, table = recording.jobs, recording.intervals
    statuses = np.bincount(jobs.status, minlength=5)
    if len(statuses) != 5 or int(statuses.sum()) != len(jobs):
        _broken("I1", f"{len(jobs)} jobs arrived and {statuses.tolist()} are accounted for")
    started, finished, first = jobs.start >= 0, jobs.finish >= 0, jobs.first >= 0
    late = (
        (started & (jobs.start < jobs.arrival))
        | (finished & ((jobs.finish < jobs.start) | ~started | (jobs.finish > recording.end)))
        | (first & ((jobs.first < jobs.start) | (finished & (jobs.finish < jobs.first))))
    )
    if late.any():
        _broken("I2", f"job {int(np.argmax(late))} has its times out of order")
    if (np.diff(recording.power.ticks) <= 0).any() or (np.diff(recording.waiting.ticks) <= 0).any():
        _broken("I4", "a step function goes back in time")
    waiting = recording.waiting.values
    # The last step is what held just before the end: what started at that very tick was waiting until then, and what
    # was interrupted then was not.
    still = -int(recording.extra.get("interrupted_at_end", 0))
    still += int(((jobs.arrival < recording.end) & ((jobs.start < 0) | (jobs.start == recording.end))).sum())
    if waiting.min() < 0 or int(waiting[-1]) != still:
        _broken("I9", f"{int(waiting[-1])} wait at the end and {still} jobs do (least: {int(waiting.min())})")
    energy = math.fsum(device.energy_j for device in recording.devices)
    integral = recording.power.integral()
    if abs(energy - integral) > 1e-12 * max(abs(energy), abs(integral)):
        _broken("I6", f"the devices took {energy!r} J and the integral of power is {integral!r} J")
    idle = math.fsum(
        device.idle_power_w * (recording.end if device.rented_ticks is None else device.rented_ticks)
        for device in recording.devices
    )
    idle /= 1e12
    attributed = idle + math.fsum(jobs.energy_j.tolist()) if len(jobs) < 100_000 else idle + float(jobs.energy_j.sum())
    attributed += float(recording.extra.get("unattributed_j", 0.0))
    if abs(attributed - energy) > 1e-9 * max(abs(energy), 1e-300):
        _broken("I7", f"jobs and idling make {attributed!r} J of the devices' {energy!r} J")
    for device in recording.devices:
        if not 0 <= device.busy_ticks <= recording.end:
            _broken("I5", f"{device.name} was busy for {device.busy_ticks} of {recording.end} ticks")
    if table is not None and len(table):
        _check_intervals(recording)
    _check_rent(recording)


def _check_rent(recording: Recording) -> None:
    if not recording.scaling:
        return
    for one in recording.scaling:
        if (one.rented.values > one.max).any() or (one.in_service.values < one.min).any():
            _broken(
                "I10",
                f"of '{one.entry}' {one.in_service.values.min():g} were on and {one.rented.values.max():g} rented",
            )
        widths = np.diff(np.append(one.rented.ticks, one.rented.end))
        integral = int((widths * one.rented.values.astype(np.int64)).sum())
        by_device = sum(recording.devices[device].rented_ticks or 0 for device in one.devices)
        if integral != by_device:
            _broken("I10", f"'{one.entry}' was rented for {by_device} ticks, and its number says {integral}")
    for device in recording.devices:
        if device.rented_ticks is not None and device.busy_ticks > device.rented_ticks:
            _broken("I10", f"{device.name} was busy for {device.busy_ticks} ticks of {device.rented_ticks} rented")


def _check_sums(recording: Recording, tally: Tally) -> None:
    """What can be checked of a run of which only sums and a sample are left."""
    if (tally.counts < 0).any():
        _broken("I1", f"jobs are accounted for as {tally.counts.tolist()}")
    completed, ended = tally.counts[:, COMPLETED].sum(), tally.counts.sum() - tally.counts[:, QUEUED].sum()
    for what, name, expected in ((0, "latency", completed), (1, "waiting", ended)):
        counted = int(tally.batches[0][f"{name}_n"].sum())
        if counted != expected or int(tally.bins[what, 0].sum()) != expected:
            _broken("I1", f"{expected} jobs have a {name} and {counted} were counted")
    jobs = recording.jobs
    started, finished = jobs.start >= 0, jobs.finish >= 0
    if (started & (jobs.start < jobs.arrival)).any() or (finished & (jobs.finish < jobs.start)).any():
        _broken("I2", "a job has its times out of order")
    energy = math.fsum(device.energy_j for device in recording.devices)
    integral = recording.power.integral()
    if abs(energy - integral) > 1e-9 * max(abs(energy), abs(integral)):
        _broken("I6", f"the devices took {energy!r} J and the integral of power is {integral!r} J")
    for device in recording.devices:
        if not 0 <= device.busy_ticks <= recording.end:
            _broken("I5", f"{device.name} was busy for {device.busy_ticks} of {recording.end} ticks")


def _check_intervals(recording: Recording) -> None:
    table = recording.intervals
    assert table is not None  # noqa: S101
    if (table.start < 0).any() or (table.end <= table.start).any() or (table.end > recording.end).any():
        _broken("I4", "an interval has no length or lies outside the run")
    order = np.lexsort((table.start, table.lane, table.device))
    device, lane, start, end = (c[order] for c in (table.device, table.lane, table.start, table.end))
    same = (device[1:] == device[:-1]) & (lane[1:] == lane[:-1])
    overlap = same & (start[1:] < end[:-1])
    if overlap.any():
        at = int(np.argmax(overlap))
        _broken(
            "I3", f"{recording.devices[int(device[at])].name} does two things at once on {table.words[int(lane[at])]}"
        )
    limits = np.array([d.power_limit_w - d.idle_power_w for d in recording.devices])
    if len(np.unique(table.lane)) == 1:
        drawn = np.zeros(len(recording.devices))
        np.maximum.at(drawn, table.device, table.watts)
    else:
        drawn = _peak_by_device(recording)
    over = drawn > limits + 2.0**-18
    if over.any():
        at = int(np.argmax(over))
        _broken("I8", f"{recording.devices[at].name} draws {drawn[at]:.6f} W above idle, of {limits[at]:.6f}")


def _peak_by_device(recording: Recording) -> np.ndarray:
    table = recording.intervals
    assert table is not None  # noqa: S101
    ticks = np.concatenate([table.start, table.end])
    change = np.concatenate([table.watts, -table.watts])
    device = np.concatenate([table.device, table.device])
    # At one tick what ends goes before what begins: the step function has one value a tick.
    order = np.lexsort((change, ticks, device))
    device, change = device[order], change[order]
    total = np.cumsum(change)
    peak = np.zeros(len(recording.devices))
    np.maximum.at(peak, device, total)
    return peak
