"""Devices that execute several jobs at a time, on streams, as far as their hardware engines allow.

Each hardware engine serves segments in the order of their requests. A segment takes its share of its engine, usually
all of it.
"""

from __future__ import annotations

import math

import numpy as np

from windtunnel.engine.transitions.consequences import ask
from windtunnel.engine.transitions.designs import clear_region, design_of, is_resident, use
from windtunnel.engine.transitions.features import DESIGNS, INTERRUPTS, OPERATION_FAULTS, QUESTIONS, cold
from windtunnel.engine.transitions.jobs import deliver_first_token, ended, record_first_token, started, unfinished
from windtunnel.engine.transitions.operation_faults import affect_task
from windtunnel.engine.transitions.power import may_draw
from windtunnel.engine.transitions.queues import best_queue, is_available, pop
from windtunnel.engine.transitions.tables import (
    BY_JOB,
    CONSTANT,
    FAILED_OPERATION,
    PER_SECOND,
    TOO_MANY,
    World,
)
from windtunnel.engine.transitions.tasks import balance, record_active, settle_task, share_active
from windtunnel.engine.transitions.work import segment_watts, way_of

_ALMOST_ALL = 1.0 + 1e-9
"""The sum of reciprocal shares needs a small tolerance."""


@cold
def has_room(w: World, device: int) -> bool:
    """Return whether the device can start another job now, as far as its streams go."""
    t = w.stations[device]
    return is_available(w, device) and t.jobs < t.streams and not w.devices[device].paused


@cold
def feed_streams(w: World, device: int) -> None:
    """Start the jobs for which the device has streams, memory and power."""
    r, d, t = w.run[0], w.devices[device], w.stations[device]
    while has_room(w, device):
        queue = best_queue(w, device, -math.inf, -1)
        if queue < 0:
            return
        slot = w.queues[queue].head
        p = w.programs[d.cls * r.workloads + w.slots[slot].work]
        memory = p.footprint if p.footprint_at < 0 else w.numbers[p.footprint_at + w.slots[slot].rank]
        if memory > t.memory:
            return
        peak = _peak(w, device, slot) if INTERRUPTS and r.gated else 0.0
        if INTERRUPTS and r.gated:
            # The device's limit bounds what its jobs draw together.
            more = min(t.peak_w + peak, t.active_w + t.headroom_w) - d.need
            if not may_draw(w, device, more):
                return
            t.peak_w += peak
        _begin(w, device, pop(w, queue), memory, peak)


@cold
def _peak(w: World, device: int, slot: int) -> float:
    """Return the highest power of a job above idle (W): of a phase, the sum over its parallel bodies."""
    way = way_of(w, device, slot)
    highest = phase = body = 0.0
    for segment in range(way.first, way.last + 1):
        body = max(body, segment_watts(w, segment, slot))
        if DESIGNS and w.run[0].reconfigures and design_of(w, segment, slot) >= 0:
            body = max(body, w.classes[w.devices[device].cls].load_w)
        if w.segments[segment].ends_body:
            phase, body = phase + body, 0.0
        if w.segments[segment].ends_phase:
            highest, phase = max(highest, phase), 0.0
    return highest


@cold
def _begin(w: World, device: int, slot: int, memory: float, peak: float) -> None:
    r, d, t = w.run[0], w.devices[device], w.stations[device]
    started(w, device, slot)
    job = w.stream_jobs[slot]
    way = way_of(w, device, slot)
    job.phase, job.last, job.memory, job.peak_w = way.first, way.last, memory, peak
    job.earlier, job.later, job.corrupted = t.newest, -1, 0
    if t.newest >= 0:
        w.stream_jobs[t.newest].later = slot
    else:
        t.oldest = slot
    t.newest = slot
    t.jobs += 1
    t.memory -= memory
    d.slot, d.began = slot, r.now
    _begin_phase(w, device, slot)
    balance(w, device)


@cold
def _begin_phase(w: World, device: int, slot: int) -> None:
    """Begin the bodies of the job's next phase."""
    job = w.stream_jobs[slot]
    segment = job.phase
    bodies = 0
    at = segment
    while True:
        if w.segments[at].ends_body:
            bodies += 1
        if w.segments[at].ends_phase:
            break
        at += 1
    job.open, job.phase = bodies, (at + 1 if at < job.last else -1)
    first = segment
    for _ in range(bodies):
        r = w.run[0]
        number = r.free_task
        task = w.tasks[number]
        r.free_task = task.next
        task.on, task.slot, task.segment = device, slot, first
        while not w.segments[first].ends_body:
            first += 1
        first += 1
        _request(w, number)


@cold
def _request(w: World, number: int) -> None:
    """Request the hardware engine of the task's present segment."""
    r, task = w.run[0], w.tasks[number]
    task.share = w.segments[task.segment].share
    _measure(w, number)
    if r.too_long:
        return
    e = w.engines[task.on * r.engines + w.segments[task.segment].engine]
    if e.waiting >= 0 or e.used + task.share > _ALMOST_ALL:
        task.next = -1
        if e.waiting < 0:
            e.waiting = number
        else:
            w.tasks[e.waiting_end].next = number
        e.waiting_end = number
    else:
        _occupy(w, number)


@cold
def _measure(w: World, number: int) -> None:
    """Set the time and the power of the task's present segment."""
    r, task = w.run[0], w.tasks[number]
    g, s = w.segments[task.segment], w.slots[task.slot]
    if g.kind == CONSTANT:
        ticks = float(g.ticks)
    elif g.kind == BY_JOB:
        ticks = float(w.ints[g.ticks_at + s.rank])
    else:
        ticks = float(np.rint(g.seconds * w.draws[task.slot, g.draw] * PER_SECOND))
    stretch = 1.0
    if r.stretched:
        stretch = w.draws[task.slot, r.draws]
        ticks = float(np.rint(ticks * stretch))
    if ticks > TOO_MANY:
        r.too_long = 1
        return
    task.first_left = -1.0
    if r.tokens:
        p = w.programs[w.devices[task.on].cls * r.workloads + s.work]
        if p.first_at >= 0:
            task.first_left = ticks - np.rint(float(w.ints[p.first_at + s.rank]) * stretch)
    task.left, task.rate, task.drawn = ticks, 0.0, 0.0
    task.watts = max(segment_watts(w, task.segment, task.slot) - w.stations[task.on].active_w, 0.0)


@cold
def _occupy(w: World, number: int) -> None:
    """Let the task take its share of its engine, on the lowest free lane."""
    r, task = w.run[0], w.tasks[number]
    t, engine = w.stations[task.on], task.on * r.engines + w.segments[task.segment].engine
    w.engines[engine].used += task.share
    w.engines[engine].working += 1
    lane = 0
    while w.lanes[engine, lane]:
        lane += 1
    w.lanes[engine, lane] = 1
    task.lane = lane
    share_active(w, task.on)
    task.next, task.before = -1, t.running_end
    if t.running_end < 0:
        t.running = number
    else:
        w.tasks[t.running_end].next = number
    t.running_end = number
    task.active_j = t.active_each_j
    task.since = r.now
    task.ending, task.timed, task.corrupted, task.loading = -1, 0, 0, 0
    if DESIGNS and r.reconfigures:
        _begin_load(w, number)
    t.demand_w += task.watts
    if OPERATION_FAULTS and w.segments[task.segment].faults and not task.loading:
        affect_task(w, number)


@cold
def _begin_load(w: World, number: int) -> None:
    """Let a task that occupies its engine load its design first, if the device does not hold it.

    One engine executes all operations that need a design, one at a time, so no other task uses the region.
    """
    task = w.tasks[number]
    design = design_of(w, task.segment, task.slot)
    if design < 0 or is_resident(w, task.on, design):
        return
    c = w.classes[w.devices[task.on].cls]
    clear_region(w, task.on, design)
    w.overhead[0].loads += 1
    task.left, task.first_left = float(c.load_ticks), -1.0
    task.watts = max(c.load_w - w.stations[task.on].active_w, 0.0)
    task.loading, task.timed = 1 + design, 1


@cold
def _end_load(w: World, number: int) -> None:
    """Begin the segment for which a task has loaded a design."""
    r, task = w.run[0], w.tasks[number]
    t = w.stations[task.on]
    settle_task(w, number)
    r.drawing_w -= task.drawn
    t.demand_w -= task.watts
    use(w, task.on, w.classes[w.devices[task.on].cls].regions, task.loading - 1)
    task.loading = task.timed = 0
    _measure(w, number)
    t.demand_w += task.watts
    if OPERATION_FAULTS and w.segments[task.segment].faults:
        affect_task(w, number)
    balance(w, task.on)


@cold
def _vacate(w: World, number: int) -> None:
    """Let a running task leave its engine."""
    r, task = w.run[0], w.tasks[number]
    t, engine = w.stations[task.on], task.on * r.engines + w.segments[task.segment].engine
    settle_task(w, number)
    share_active(w, task.on)
    w.slots[task.slot].energy += t.active_each_j - task.active_j
    if task.before < 0:
        t.running = task.next
    else:
        w.tasks[task.before].next = task.next
    if task.next < 0:
        t.running_end = task.before
    else:
        w.tasks[task.next].before = task.before
    r.drawing_w -= task.drawn
    t.demand_w = t.demand_w - task.watts if t.running >= 0 else 0.0
    e = w.engines[engine]
    w.lanes[engine, task.lane] = 0
    e.working -= 1
    # The share of an idle engine is exactly zero, without the rounding errors of earlier sums.
    e.used = e.used - task.share if e.working else 0.0


@cold
def _admit(w: World, engine: int) -> None:
    """Start the tasks that wait for a hardware engine, as far as it has room."""
    e = w.engines[engine]
    while e.waiting >= 0 and e.used + w.tasks[e.waiting].share <= _ALMOST_ALL:
        following = e.waiting
        e.waiting = w.tasks[following].next
        _occupy(w, following)


@cold
def _free(w: World, number: int) -> None:
    """Return a task to the list of free tasks."""
    w.tasks[number].next = w.run[0].free_task
    w.run[0].free_task = number


@cold
def end_task(w: World, device: int) -> None:
    """End the segment that ends now: continue those that wait for its engine, then the task itself."""
    r, t = w.run[0], w.stations[device]
    t.timed_end = -1
    number = t.running
    while w.tasks[number].end != r.now:
        number = w.tasks[number].next
    task = w.tasks[number]
    if DESIGNS and r.reconfigures and task.loading:
        _end_load(w, number)
        return
    slot, engine = task.slot, device * r.engines + w.segments[task.segment].engine
    _vacate(w, number)
    if task.first_left >= 0.0:  # a rounding error hid it
        record_first_token(w, device, slot, r.now)
    _admit(w, engine)
    job = w.stream_jobs[slot]
    if QUESTIONS:
        job.corrupted |= task.corrupted
        if task.ending >= 0:
            w.extras[device].ending, w.extras[device].failing = task.ending, slot
            _free(w, number)
            balance(w, device)
            ask(w, FAILED_OPERATION, device)
            return
    if not w.segments[task.segment].ends_body:
        task.segment += 1
        _request(w, number)
    else:
        _free(w, number)
        job.open -= 1
        if not job.open and job.phase >= 0:
            _begin_phase(w, device, slot)
    balance(w, device)
    if t.running < 0 and t.is_active:
        record_active(w, device)
    if not job.open:
        _end_job(w, device, slot)
        r.feeding = device


@cold
def _leave(w: World, device: int, slot: int) -> None:
    """Remove a job from the device's jobs, and release its memory and its power."""
    r, d, t, job = w.run[0], w.devices[device], w.stations[device], w.stream_jobs[slot]
    if job.earlier < 0:
        t.oldest = job.later
    else:
        w.stream_jobs[job.earlier].later = job.later
    if job.later < 0:
        t.newest = job.earlier
    else:
        w.stream_jobs[job.later].earlier = job.earlier
    t.jobs -= 1
    t.memory += job.memory
    d.slot = t.newest
    if INTERRUPTS and r.gated and d.need > 0.0:
        t.peak_w = t.peak_w - job.peak_w if t.jobs else 0.0
        less = d.need - min(t.peak_w, t.active_w + t.headroom_w)
        d.need -= less
        if not d.paused:
            r.drawn_w -= less
        r.draining = 1


@cold
def _end_job(w: World, device: int, slot: int) -> None:
    """Complete a job; an unreachable device holds it back."""
    _leave(w, device, slot)
    if QUESTIONS:
        w.run[0].corrupted += w.stream_jobs[slot].corrupted
    if w.devices[device].linked:
        ended(w, device, slot, True)
    else:
        w.slots[slot].next = w.stations[device].undelivered
        w.stations[device].undelivered = slot


@cold
def deliver_jobs(w: World, device: int) -> None:
    """Deliver what was produced while the device was unreachable."""
    t = w.stations[device]
    slot = t.oldest
    while slot >= 0 and w.run[0].tokens:
        deliver_first_token(w, slot)
        slot = w.stream_jobs[slot].later
    while t.undelivered >= 0:
        slot = t.undelivered
        t.undelivered = w.slots[slot].next
        if w.run[0].tokens:
            deliver_first_token(w, slot)
        ended(w, device, slot, True)


@cold
def take_job(w: World, device: int) -> int:
    """Remove a job from a device whose tasks have stopped, the oldest first; -1 if none is left."""
    r, d, t = w.run[0], w.devices[device], w.stations[device]
    while t.running >= 0:
        number = t.running
        _vacate(w, number)
        _free(w, number)
    if t.is_active:
        record_active(w, device)
    for engine in range(device * r.engines, (device + 1) * r.engines):
        e = w.engines[engine]
        while e.waiting >= 0:
            number = e.waiting
            e.waiting = w.tasks[number].next
            _free(w, number)
    slot: int = t.oldest
    if slot >= 0:
        _leave(w, device, slot)
        return slot
    slot = t.undelivered
    if slot >= 0:
        t.undelivered = w.slots[slot].next
    d.slot = -1
    return slot


@cold
def remove_job(w: World, device: int, slot: int) -> None:
    """Remove one job and its tasks from a device; the others continue."""
    r, t = w.run[0], w.stations[device]
    number = t.running
    while number >= 0:
        following = w.tasks[number].next
        if w.tasks[number].slot == slot:
            _vacate(w, number)
            _free(w, number)
        number = following
    for engine in range(device * r.engines, (device + 1) * r.engines):
        e = w.engines[engine]
        before, number = -1, e.waiting
        while number >= 0:
            following = w.tasks[number].next
            if w.tasks[number].slot != slot:
                before = number
            else:
                if before < 0:
                    e.waiting = following
                else:
                    w.tasks[before].next = following
                if following < 0:
                    e.waiting_end = before
                _free(w, number)
            number = following
    for engine in range(device * r.engines, (device + 1) * r.engines):
        _admit(w, engine)
    balance(w, device)
    if t.running < 0 and t.is_active:
        record_active(w, device)
    _leave(w, device, slot)


@cold
def close_streams(w: World, device: int) -> None:
    """End the run: record the tasks in progress of a device."""
    t = w.stations[device]
    if t.running >= 0:
        share_active(w, device)
    if t.is_active:
        record_active(w, device)
    number = t.running
    while number >= 0:
        task = w.tasks[number]
        settle_task(w, number)
        w.slots[task.slot].energy += t.active_each_j - task.active_j
        number = task.next
    slot = t.oldest
    while slot >= 0:
        unfinished(w, slot)
        slot = w.stream_jobs[slot].later
    slot = t.undelivered
    while slot >= 0:
        unfinished(w, slot)
        slot = w.slots[slot].next
