"""The life of a job: it starts, ends or waits again; and what is recorded of it."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.engine.prepare.autoscaling import DRAINING, OFF, ON
from windtunnel.engine.results.sketch import BINS_PER_E
from windtunnel.engine.transitions.adapters import forget_adapters
from windtunnel.engine.transitions.consequences import to_place
from windtunnel.engine.transitions.designs import provide_designs
from windtunnel.engine.transitions.features import (
    ADAPTERS,
    DESIGNS,
    PREFIXES,
    QUESTIONS,
    SERVERS,
    TALLIES,
    TRANSFERS,
    USERS,
    WAITS,
    cold,
    hot,
)
from windtunnel.engine.transitions.prefixes import forget_prefixes
from windtunnel.engine.transitions.queues import left, own_queue, push
from windtunnel.engine.transitions.tables import BATCHES, LOST, STRETCHES, World
from windtunnel.engine.transitions.users import end_session, think


@hot
def row_of(w: World, job: int) -> int:
    """Return the row of the job's times; -1 if they are not kept."""
    stride = w.run[0].stride
    if stride == 0:
        return -1
    row = job
    if stride > 1:  # a division takes as long as twenty additions
        row = job // stride
        if row * stride != job:
            return -1
    # A sample that would become too large is thinned before that (``MORE_ROWS``).
    return row if row < len(w.jobs) else -1


@hot
def tally(w: World, what: int, work: int, batch: int, ticks: int) -> None:
    """Add a latency (``what`` 0) or a queueing delay (1) to the sums of its batch and the histogram of its stretch."""
    r = w.run[0]
    place = 0 if ticks <= 0 else 1 + math.ceil(math.log(float(ticks)) * BINS_PER_E)
    series = 0
    while True:
        row = w.batches[series * BATCHES + batch]
        if what == 0:
            row.latency_n += 1
            row.latency_sum += float(ticks)
        else:
            row.waiting_n += 1
            row.waiting_sum += float(ticks)
        w.bins[what, series * STRETCHES + batch * STRETCHES // BATCHES, place] += 1
        if series or r.workloads == 1:
            break
        series = 1 + work


@hot
def started(w: World, device: int, slot: int) -> None:
    """Record that the job starts now on the device."""
    r, s = w.run[0], w.slots[slot]
    s.start = r.now
    s.starts += 1
    r.waiting -= 1
    r.running += 1
    if WAITS and r.waits and w.waits[slot].gives_up >= 0:
        w.waits[slot].gives_up = -1
        r.impatient -= 1
    row = row_of(w, s.job)
    if row >= 0:
        w.jobs[row].start, w.jobs[row].on = r.now, device
    if TRANSFERS and r.disaggregated:
        w.handovers[slot].sender = device
    if QUESTIONS and r.scaling:
        count_running(w, device, 1)


HELD = -2
"""The first token of a job that an unreachable device has produced and not delivered."""


@hot
def record_first_token(w: World, device: int, slot: int, tick: int) -> None:
    """Record that the job produced its first token at a tick; an unreachable device holds it back."""
    w.jobs[row_of(w, w.slots[slot].job)].first = tick if w.devices[device].linked else HELD


@cold
def deliver_first_token(w: World, slot: int) -> None:
    """Deliver the first token of a job whose device is reachable again."""
    j = w.jobs[row_of(w, w.slots[slot].job)]
    if j.first == HELD:
        j.first = w.run[0].now


@hot
def outside_of_steps(w: World, device: int, slot: int) -> int:
    """Return the ticks that a request spends outside of the steps of a device with continuous batching.

    They are those of the engine's front end, and of the times of reading its prompt alone that pass before its first
    token is delivered. A request that moves has the front end of the device that decodes, from which its tokens come.
    """
    reader = device
    if TRANSFERS and w.run[0].disaggregated:
        reader = w.handovers[slot].sender
    s, cls = w.slots[slot], w.devices[reader].cls
    c, by, p = w.classes[w.devices[device].cls], w.classes[cls], w.programs[cls * w.run[0].workloads + s.work]
    if c.frontend_s == 0.0 and by.late_prompts == 0.0:
        return 0
    alone_s = p.estimate if p.estimate_at < 0 else w.numbers[p.estimate_at + s.rank]
    return int(np.rint((c.frontend_s + by.late_prompts * alone_s) * TICKS_PER_SECOND))


@hot
def ended(w: World, device: int, slot: int, completed: bool) -> None:
    """Record that a job has completed or failed now."""
    r, s = w.run[0], w.slots[slot]
    r.running -= 1
    r.last_finish = r.now
    if completed:
        r.completed += 1
        w.devices[device].done += 1
    else:
        r.failed += 1
    row = row_of(w, s.job)
    if row >= 0:
        j = w.jobs[row]
        j.finish, j.starts, j.energy = r.now, s.starts, s.energy
        j.lost = 0 if completed else LOST
        if j.first == HELD:
            j.first = -1
    after = 0
    if SERVERS and ((USERS and r.users) or (TALLIES and r.tallying)):
        after = outside_of_steps(w, device, slot)
    if TALLIES and r.tallying:
        batch = s.job // r.batch_width
        if completed:
            tally(w, 0, s.work, batch, r.now - s.arrival + after)
        tally(w, 1, s.work, batch, s.start - s.arrival)
        w.counts[s.work, 0 if completed else 1] += 1
    left(w, device)
    if QUESTIONS and r.scaling:
        count_running(w, device, -1)
    if USERS and r.users:
        if not completed:
            end_session(w, slot)
        think(w, slot, after)
    s.next = r.free
    r.free = slot


@cold
def unfinished(w: World, slot: int) -> None:
    """Record a job that is in progress at the end of the run."""
    s = w.slots[slot]
    row = row_of(w, s.job)
    if row >= 0:
        j = w.jobs[row]
        j.starts, j.energy = s.starts, s.energy
        if j.first == HELD:
            j.first = -1


@cold
def stops(w: World, device: int, slot: int, moving: bool) -> None:
    """Record that an attempt of a job was interrupted; if the job moves, it leaves the device's jobs."""
    r, s = w.run[0], w.slots[slot]
    r.last_finish = r.now
    r.running -= 1
    s.start = -1
    row = row_of(w, s.job)
    if row >= 0:
        j = w.jobs[row]
        j.start, j.on, j.first, j.starts, j.energy = -1, -1, -1, s.starts, s.energy
    if QUESTIONS and r.scaling:
        count_running(w, device, -1)
    if moving:
        left(w, device)


@cold
def waits_again(w: World, device: int, slot: int, moving: bool) -> None:
    """Let an interrupted job wait again: at its old position, or if it moves, to be assigned anew."""
    if moving:
        to_place(w, slot)
    else:
        w.run[0].waiting += 1
        push(w, own_queue(w, device, slot), slot)


@cold
def interrupted(w: World, device: int, began: int, jobs: int) -> None:
    """Record that ``jobs`` jobs were executed since ``began``, were interrupted and wait again."""
    r = w.run[0]
    r.returned += jobs
    if r.write and jobs:
        # These entries are not work of a hardware engine: their jobs wait again.
        iv = w.intervals[r.written]
        r.written += 1
        iv.on, iv.lane, iv.name, iv.start, iv.end, iv.watts = device, -1, jobs, began, r.now, 0.0


# Autoscaling.


@cold
def count_working(w: World, cls: int, change: int) -> None:
    """Change the number of devices of a class that are in service and have a job, from now on."""
    r, c = w.run[0], w.classes[cls]
    c.worked += c.working * (r.now - c.counted)
    c.counted = r.now
    c.working += change


@cold
def count_running(w: World, device: int, change: int) -> None:
    """Change the number of jobs in progress on a device; one that drains is off without any."""
    cls, e = w.devices[device].cls, w.extras[device]
    before = e.running
    e.running += change
    if w.classes[cls].scaled and (before == 0) != (e.running == 0):
        if e.state == ON:
            count_working(w, cls, change)
        elif e.running == 0 and e.state == DRAINING:
            become(w, device, OFF)


@cold
def become(w: World, device: int, state: int) -> None:
    """Change the state of a scaled device; a device that is off draws no power."""
    r, e = w.run[0], w.extras[device]
    change = w.changes[r.changes]
    r.changes += 1
    change.tick, change.on, change.before, change.after = r.now, device, e.state, state
    idle_w = w.classes[w.devices[device].cls].idle_w
    if e.state == OFF and state != OFF:
        r.drawn_w += idle_w
        r.idle_w += idle_w
    elif e.state != OFF and state == OFF:
        r.drawn_w -= idle_w
        r.idle_w -= idle_w
        r.draining = r.gated
        if PREFIXES and r.caching:
            forget_prefixes(w, device, r.levels)
        if ADAPTERS and r.adapting:
            forget_adapters(w, device)
        if DESIGNS and r.reconfigures:
            provide_designs(w, device)  # the next device that is rented in its place is set up like those at the start
    e.state = state
