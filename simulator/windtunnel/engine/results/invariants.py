"""The numbered invariants, which are checked at the end of every run. A run that violates one is not reported.

I1 conservation   arrived = completed + running + queued + dropped + failed
I2 causality      arrival <= start <= first token <= finish <= end of the run (a preempted job may have produced its
                  first token before its last start)
I3 exclusion      intervals of one hardware engine of one device never overlap
I4 monotone time  every interval has a positive length and lies within the run; steps are strictly increasing
I5 busy time      a device's busy time is the union of its engines' intervals, and never exceeds the run
I6 energy         the devices' energies add up to the integral of power, to 1e-12 relative
I7 attribution    the jobs' energies and idle power, less what shared chips save, add up to the devices' energies, to
                  1e-9 relative
I8 limits         no device ever draws more than its power limit
I9 waiting        the number of waiting jobs is never negative, and at the end equals the number of queued jobs
I10 rent          a scaled entry never rents more than ``max`` devices, nor has fewer than ``min`` in service; the
                  rented time of its devices is the integral of the number rented, and bounds their busy time
Determinism (the same scenario and seed give the same recording) needs two runs, and is covered by tests.
"""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from windtunnel.core.errors import InvariantError
from windtunnel.core.recording import COMPLETED, DROPPED, FAILED, RUNNING, Recording, Tally
from windtunnel.core.ticks import TickArray


def _violated(name: str, what: str) -> NoReturn:
    raise InvariantError(f"internal error: invariant {name} is violated: {what}. Please report it.")


def check(recording: Recording, *, steps: bool = True) -> None:
    """Check all invariants; without ``steps`` only those that need no step function (not I6, I7 and I9).

    Raises:
        InvariantError: for the first invariant that ``recording`` violates.
    """
    if recording.tally is not None:
        _check_sums(recording, recording.tally)
        return
    _check_jobs(recording)
    if steps:
        _check_steps(recording)


def _check_jobs(recording: Recording) -> None:
    jobs, table = recording.jobs, recording.intervals
    statuses = np.bincount(jobs.status, minlength=5)
    if len(statuses) != 5 or int(statuses.sum()) != len(jobs):
        _violated("I1", f"{len(jobs)} jobs arrived and {statuses.tolist()} are accounted for")
    started, finished, first = jobs.start >= 0, jobs.finish >= 0, jobs.first >= 0
    dropped = jobs.status == DROPPED
    late = (
        (started & (jobs.start < jobs.arrival))
        | (finished & ((jobs.finish < jobs.start) | (started == dropped) | (jobs.finish > recording.end)))
        | (dropped & (jobs.finish < jobs.arrival))
        | (first & ((jobs.first < _first_possible(recording)) | (finished & (jobs.finish < jobs.first))))
    )
    if late.any():
        _violated("I2", f"job {int(np.argmax(late))} has its times out of order")
    _check_busy(recording)
    if table is not None and len(table):
        _check_intervals(recording)
    _check_rent(recording)


def _check_steps(recording: Recording) -> None:
    jobs = recording.jobs
    dropped = jobs.status == DROPPED
    if (np.diff(recording.power.ticks) <= 0).any() or (np.diff(recording.waiting.ticks) <= 0).any():
        _violated("I4", "a step function goes back in time")
    waiting = recording.waiting.values
    # The last step holds until just before the end: jobs that started or left at that tick were still waiting, and jobs
    # that were interrupted at that tick were not yet waiting.
    waited = ((jobs.start < 0) & (~dropped | (jobs.finish == recording.end))) | (jobs.start == recording.end)
    still = int(((jobs.arrival < recording.end) & waited).sum()) - recording.interrupted_at_end
    if waiting.min() < 0 or int(waiting[-1]) != still:
        _violated(
            "I9", f"the count of waiting jobs ends at {int(waiting[-1])}, {still} wait (minimum {int(waiting.min())})"
        )
    energy = math.fsum(recording.devices.energy_j.tolist())
    integral = recording.power.integral()
    if abs(energy - integral) > 1e-12 * max(abs(energy), abs(integral)):
        _violated("I6", f"the devices took {energy!r} J and the integral of power is {integral!r} J")
    idle = math.fsum((recording.devices.idle_w * recording.devices.rented_ticks).tolist()) / 1e12 - recording.saved_j
    attributed = idle + math.fsum(jobs.energy_j.tolist()) if len(jobs) < 100_000 else idle + float(jobs.energy_j.sum())
    if abs(attributed - energy) > 1e-9 * max(abs(energy), 1e-300):
        _violated("I7", f"jobs and idle power account for {attributed!r} J of the devices' {energy!r} J")


def _first_possible(recording: Recording) -> TickArray:
    """Return the tick before which no job can have produced its first token.

    It is that of its last start; a job that was preempted, or a request whose device was lost, may have produced it
    before that.
    """
    preempted = recording.progress is not None and recording.progress.preemptions > 0
    preempted = preempted or (recording.use is not None and recording.returned > 0)
    return recording.jobs.arrival if preempted else recording.jobs.start


def _check_rent(recording: Recording) -> None:
    if not recording.scaling:
        return
    for scaling in recording.scaling:
        if (scaling.rented.values > scaling.max).any() or (scaling.in_service.values < scaling.min).any():
            _violated(
                "I10",
                f"'{scaling.entry}' had {scaling.in_service.values.min():g} devices in service and "
                f"{scaling.rented.values.max():g} rented",
            )
        widths = np.diff(np.append(scaling.rented.ticks, scaling.rented.end))
        integral = int((widths * scaling.rented.values.astype(np.int64)).sum())
        by_device = int(recording.devices.rented_ticks[scaling.devices.start : scaling.devices.stop].sum())
        if integral != by_device:
            _violated(
                "I10",
                f"'{scaling.entry}' was rented for {by_device} ticks, and the integral of its number is {integral}",
            )
    too_busy = recording.devices.busy_ticks > recording.devices.rented_ticks
    if too_busy.any():
        device = recording.devices[int(np.argmax(too_busy))]
        _violated("I10", f"{device.name} was busy for {device.busy_ticks} ticks of {device.rented_ticks} rented")


def _check_sums(recording: Recording, tally: Tally) -> None:
    """Check the invariants that sums and a sample of the jobs can show."""
    if (tally.counts < 0).any():
        _violated("I1", f"jobs are accounted for as {tally.counts.tolist()}")
    completed, started = tally.counts[:, COMPLETED].sum(), tally.counts[:, [COMPLETED, FAILED, RUNNING]].sum()
    for what, name, expected in ((0, "latency", completed), (1, "waiting", started)):
        counted = int(tally.batches[0][f"{name}_n"].sum())
        if counted != expected or int(tally.bins[what, 0].sum()) != expected:
            _violated("I1", f"{expected} jobs have a {name} and {counted} were counted")
    jobs = recording.jobs
    started, finished = jobs.start >= 0, jobs.finish >= 0
    if (started & (jobs.start < jobs.arrival)).any() or (finished & (jobs.finish < jobs.start)).any():
        _violated("I2", "a job has its times out of order")
    energy = math.fsum(recording.devices.energy_j.tolist())
    integral = recording.power.integral()
    if abs(energy - integral) > 1e-9 * max(abs(energy), abs(integral)):
        _violated("I6", f"the devices took {energy!r} J and the integral of power is {integral!r} J")
    _check_busy(recording)


def _check_busy(recording: Recording) -> None:
    busy = recording.devices.busy_ticks
    wrong = (busy < 0) | (busy > recording.end)
    if wrong.any():
        device = recording.devices[int(np.argmax(wrong))]
        _violated("I5", f"{device.name} was busy for {device.busy_ticks} of {recording.end} ticks")


def _check_intervals(recording: Recording) -> None:
    table = recording.intervals
    assert table is not None  # noqa: S101
    if (table.start < 0).any() or (table.end <= table.start).any() or (table.end > recording.end).any():
        _violated("I4", "an interval has no length or lies outside the run")
    one_lane = bool((table.lane == table.lane[0]).all())
    lane = table.lane
    if one_lane:
        device, start, end = table.by_device
        same = device[1:] == device[:-1]
    else:
        order = np.lexsort((table.start, lane, table.device))
        device, lane, start, end = (c[order] for c in (table.device, lane, table.start, table.end))
        same = (device[1:] == device[:-1]) & (lane[1:] == lane[:-1])
    overlap = same & (start[1:] < end[:-1])
    if overlap.any():
        at = int(np.argmax(overlap))
        _violated(
            "I3", f"{recording.devices[int(device[at])].name} has overlapping intervals on {table.words[int(lane[at])]}"
        )
    limits_w, idle_w = recording.devices.watts()
    limits = limits_w - idle_w
    if one_lane:
        drawn = np.zeros(len(recording.devices))
        np.maximum.at(drawn, table.device, table.watts)
    else:
        drawn = _peak_by_device(recording)
    over = drawn > limits + 2.0**-18
    if over.any():
        at = int(np.argmax(over))
        _violated("I8", f"{recording.devices[at].name} draws {drawn[at]:.6f} W above idle, of {limits[at]:.6f}")


def _peak_by_device(recording: Recording) -> np.ndarray:
    table = recording.intervals
    assert table is not None  # noqa: S101
    ticks = np.concatenate([table.start, table.end])
    change = np.concatenate([table.watts, -table.watts])
    device = np.concatenate([table.device, table.device])
    # At one tick, ends come before beginnings, because the step function has one value at each tick.
    order = np.lexsort((change, ticks, device))
    device, change = device[order], change[order]
    total = np.cumsum(change)
    peak = np.zeros(len(recording.devices))
    np.maximum.at(peak, device, total)
    return peak
