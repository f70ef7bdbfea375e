"""Executes the semantics of the fleet as one state machine over arrays: arrivals, dispatch, faults and power.

The process engine (engine/process/dispatch.py, engine/process/stations/single.py) defines each transition and is
written for readability. This module is written for speed; differential tests compare their ticks. Events of one tick
are processed in this order: ends by device, faults in the order of their schedule, timers, arrivals.

An event does not call its consequences. It records them in the run's record (``feeding``, ``sweeping``, ``placing``,
``draining``), and the loop executes them before the next event. So each function is called from one place, and
neither the reader nor the compiler meets recursion.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.policy import JobKey
from windtunnel.engine.compiled.dispatch import complete, end_job, end_segment, feed, left, place_next, sweep, to_place
from windtunnel.engine.compiled.state import (
    BATCHES,
    CHECK_SERVED,
    DONE,
    HOUR_TICKS,
    HOURS,
    MORE_BATCHES,
    MORE_FAULTS,
    MORE_INTERVALS,
    MORE_JOBS,
    MORE_ROWS,
    MORE_SLOTS,
    MORE_TIMERS,
    NO_BATCH,
    SPANS,
    TOO_LONG,
    Records,
    World,
)
from windtunnel.engine.compiled.structures import ROOT, cold, heap_pop, heap_remove, hot, prefetch
from windtunnel.engine.compiled.work import (
    NEVER_ENDS,
    best_queue,
    drain,
    go,
    own_queue,
    pass_time,
    pop,
    push,
    reindex,
    release,
    row_of,
    settle,
    shed,
    start_sweep,
    tally,
)
from windtunnel.engine.prepare.fault_schedule import CAP, FAIL, LINK_DOWN, LINK_UP, LOSE, MIGRATE, SPEED

# Faults.


@cold
def _fail(w: World, fault: Records) -> None:
    """Make a device fail: its work is interrupted, and then retried, migrated or failed."""
    r, device = w.run[0], fault.on
    d = w.devices[device]
    d.up = 0
    moving = fault.jobs == MIGRATE and r.routed
    slot, count = d.slot, d.count
    again = 0
    if slot >= 0:
        if not d.held and not d.paused:
            settle(w, device)
            r.heap = heap_remove(w.ends, r.heap, device)
        d.slot = -1
        if r.gated and not d.held:
            release(w, device)
        d.held = 0
        for _ in range(count):
            s = w.slots[slot]
            following = s.next
            if fault.jobs == LOSE or s.starts >= fault.attempts:
                end_job(w, device, slot, False)
            else:
                again += 1
                r.last_finish = r.now
                r.running -= 1
                s.start = -1
                row = row_of(w, s.job)
                if row >= 0:
                    j = w.jobs[row]
                    j.start, j.on, j.starts, j.energy = -1, -1, s.starts, s.energy
                if moving:
                    left(w, device)
                    to_place(w, slot)
                else:
                    r.waiting += 1
                    push(w, own_queue(w, device, slot), slot)
            slot = following
    r.returned += again
    if r.write and again:
        # These entries are not work of a hardware engine: their jobs wait again.
        iv = w.intervals[r.written]
        r.written += 1
        iv.on, iv.lane, iv.name, iv.start, iv.end, iv.watts = device, -1, again, d.began, r.now, 0.0
    while moving:
        queue = best_queue(w, device, -math.inf, -1)
        if queue < 0:
            break
        slot = pop(w, queue)
        r.waiting -= 1
        left(w, device)
        to_place(w, slot)
    reindex(w, device)
    if not r.routed and not r.paused:
        # An interrupted job may start at once on another device.
        start_sweep(w, r.all_classes, r.all_classes + r.classes)
    if r.gated:
        r.draining = 1


@cold
def _back(w: World, device: int) -> None:
    """Return the device to service if it is up and reachable."""
    r, d = w.run[0], w.devices[device]
    if d.up == 0 or d.linked == 0:
        return
    if d.held:
        complete(w, device)
    reindex(w, device)
    if r.gated and not r.routed:
        r.draining = 1
    else:
        r.feeding = device
    while r.limbo >= 0:
        slot = r.limbo
        r.limbo = w.slots[slot].next
        r.waiting -= 1
        to_place(w, slot)


@cold
def _fault(w: World) -> bool:
    """Process the next fault of the schedule."""
    r = w.run[0]
    fault = w.faults[r.fault]
    r.fault += 1
    if fault.code == FAIL:
        _fail(w, fault)
    elif fault.code == CAP:
        r.cap_w = fault.value
        shed(w)
        r.draining = 1
    elif fault.code == SPEED:
        d = w.devices[fault.on]
        under_way = d.slot >= 0 and not d.paused and not d.held
        if under_way:
            settle(w, fault.on)
            pass_time(w, fault.on)
            r.heap = heap_remove(w.ends, r.heap, fault.on)
        d.rate = fault.value
        if under_way:
            return go(w, fault.on, d.left, d.full)
    elif fault.code == LINK_DOWN:
        w.devices[fault.on].linked = 0
        reindex(w, fault.on)
        if r.gated:
            r.draining = 1
    else:
        if fault.code == LINK_UP:
            w.devices[fault.on].linked = 1
        else:
            w.devices[fault.on].up = 1
        _back(w, fault.on)
    return True


# Time.


@hot
def elapse(w: World, tick: int) -> None:
    """Advance the clock to ``tick``, with constant power and constant numbers of waiting jobs."""
    r = w.run[0]
    if r.tallying and tick > r.now:
        watts = r.idle_w + r.drawing_w
        r.peak_w = max(r.peak_w, watts)
        _elapse_hours(w, tick, watts)
        if tick > r.spans_end:
            _merge_spans(w, tick)
        while True:
            until = min(tick, r.span_until)
            span = w.spans[r.span]
            span.power += watts * (until - r.now)
            span.waiting += float(r.waiting) * (until - r.now)
            r.now = until
            if until == tick:
                break
            r.span += 1
            r.span_until += r.span_width
    r.now = tick


@hot
def _elapse_hours(w: World, tick: int, watts: float) -> None:
    """Add energy by hour of day, which prices depend on. It is exact although bins of time do not end at full hours."""
    r, now = w.run[0], w.run[0].now
    while tick > r.hour_until:
        w.hours[r.hour] += watts * (r.hour_until - now)
        now = r.hour_until
        r.hour_until += HOUR_TICKS
        r.hour = (r.hour + 1) % HOURS
    w.hours[r.hour] += watts * (tick - now)


@cold
def _merge_spans(w: World, tick: int) -> None:
    """Merge pairs of time bins until ``tick`` lies in a bin, because the run lasts longer than expected."""
    r, spans = w.run[0], w.spans
    while (tick - 1) // r.span_width >= SPANS:
        for i in range(SPANS // 2):
            spans[i].power = spans[2 * i].power + spans[2 * i + 1].power
            spans[i].waiting = spans[2 * i].waiting + spans[2 * i + 1].waiting
        for i in range(SPANS // 2, SPANS):
            spans[i].power = spans[i].waiting = 0.0
        r.span //= 2
        r.span_width *= 2
    r.span_until = (r.span + 1) * r.span_width
    r.spans_end = spans_end(r.span_width)


@hot
def spans_end(width: int) -> int:
    """Return the last tick that the time bins cover, or the last tick that exists."""
    return width * SPANS if width < NEVER_ENDS // SPANS else NEVER_ENDS


@hot
def _arrive(w: World, key: Any) -> None:
    r = w.run[0]
    slot = r.free
    s, a = w.slots[slot], w.arrivals[r.next]
    r.free = s.next
    s.job, s.arrival, s.start, s.work, s.rank, s.signature = r.job, a.tick, -1, a.work, a.rank, a.signature
    s.starts, s.timed, s.key, s.energy = 0, 0, 0.0, 0.0
    if r.stretched:
        w.draws[slot, r.draws] = a.stretch
    if r.tallying:
        row = row_of(w, s.job)
        if row >= 0:
            w.jobs[row].arrival, w.jobs[row].work = a.tick, a.work
        w.counts[a.work, 3] += 1
        r.last_arrival = a.tick
    for draw in range(r.draws):
        w.draws[slot, draw] = w.arrival_draws[r.next, draw]
    r.next += 1
    r.job += 1
    r.arrived += 1
    if r.keyed:
        work = w.workloads[s.work]
        cls = w.ints[r.signature_classes + w.ints[r.signature_at + s.signature]]
        p = w.programs[cls * r.workloads + s.work]
        size = p.estimate if p.estimate_at < 0 else w.numbers[p.estimate_at + s.rank]
        s.key = key(JobKey(s.arrival, work.priority, s.arrival + work.deadline, size))
    to_place(w, slot)


@hot
def _room(w: World) -> int:
    """Return which array may be too small at the next event; DONE if none is."""
    r = w.run[0]
    if r.write and r.written + r.devices + 2 > len(w.intervals):
        return MORE_INTERVALS
    if r.batch != NO_BATCH and ROOT + r.timer_count + len(w.queues) + 2 > len(w.timers):
        return MORE_TIMERS
    if r.next >= len(w.arrivals) and not r.last:
        return MORE_JOBS
    if r.free < 0:
        return MORE_SLOTS
    if r.tallying:
        if r.job >= r.batch_width * BATCHES:
            return MORE_BATCHES
        if r.stride > 0 and r.job // r.stride >= len(w.jobs):
            return MORE_ROWS
    return DONE


@cold
def _check_served(r: Records, fault: int) -> bool:
    """Return whether to check that the waiting jobs can still be served: once after each relevant change."""
    if fault <= r.gone and r.ended == r.completed + r.failed + 1:
        return False
    r.ended = r.completed + r.failed + 1
    return True


@hot
def _look_ahead(w: World) -> None:
    """Prefetch the records of the next events, because a large fleet does not fit into the cache.

    The device that ends next is at the heap's root, and the following one is among the root's children. The next job
    goes to the best device of some class.
    """
    r = w.run[0]
    if r.heap:
        device = w.ends[ROOT].which
        if device >= 0:
            d, q = w.devices[device], w.queues[device if r.routed else 0]
            if d.slot >= 0:
                prefetch(w.slots, np.int64(d.slot))
            if q.head >= 0:
                prefetch(w.slots, np.int64(q.head))
                prefetch(w.draws, np.int64(q.head))
            c = w.classes[d.cls]
            prefetch(w.tree, c.leaf + device - c.first)
        for child in range(4 * ROOT - 8, min(4 * ROOT - 4, ROOT + r.heap)):
            device = w.ends[child].which
            if device >= 0:
                prefetch(w.devices, device)
                if r.routed:
                    prefetch(w.queues, device)
    for cls in range(min(r.classes, 8)):
        c = w.classes[cls]
        winner = w.tree[c.tree].winner
        prefetch(w.devices, winner)
        prefetch(w.tree, c.leaf + winner - c.first)
        if r.routed:
            prefetch(w.queues, winner)


# Long: Numba compiles it as one state machine, which is faster than calls between its parts.
def advance(w: World, score: Any, key: Any) -> int:
    """Process events until the run ends or the kernel needs something; return which."""
    r = w.run[0]
    while True:
        # The consequences of the last event precede the next event.
        if r.feeding >= 0:
            device = r.feeding
            r.feeding = -1
            if not feed(w, device):
                return TOO_LONG
            if not r.routed and w.devices[device].slot < 0:
                reindex(w, device)
            continue
        if r.sweeping >= 0:
            sweep(w)
            continue
        if r.placing >= 0:
            place_next(w, score)
            continue
        if r.draining:
            if not drain(w):
                return TOO_LONG
            continue
        if r.stale:
            r.stale = 0
            r.heap = heap_pop(w.ends, r.heap)
        if r.far:
            _look_ahead(w)
        needed = _room(w)
        if needed != DONE:
            return needed
        arrival = w.arrivals[r.next].tick if r.next < len(w.arrivals) else NEVER_ENDS
        timer = w.timers[ROOT].tick if r.timer_count else NEVER_ENDS
        # The schedule of faults is known up to this tick; it is extended only as far as the run reaches.
        fault = w.faults[r.fault].tick if r.fault < len(w.faults) else r.faults_until
        # The earliest event is next. At the same tick the order is: ends, faults, timers, arrivals.
        other = min(arrival, timer, fault)
        if r.heap and w.ends[ROOT].tick <= other:
            if w.ends[ROOT].tick > r.end:
                return TOO_LONG if w.ends[ROOT].tick == NEVER_ENDS and r.end == NEVER_ENDS - 1 else DONE
            elapse(w, w.ends[ROOT].tick)
            device = w.ends[ROOT].which
            # The entry stays at the root until it is known whether the device starts other work, as most do.
            r.stale = device + 1
            w.ends[ROOT].which = -1
            if not end_segment(w, device):
                return TOO_LONG
        elif other > r.end or (arrival == NEVER_ENDS and r.running + r.waiting == 0):
            return DONE
        elif other == fault and arrival == NEVER_ENDS and r.running == 0 and _check_served(r, fault):
            return CHECK_SERVED
        elif other == fault:
            if r.fault >= len(w.faults):
                return MORE_FAULTS
            elapse(w, fault)
            if not _fault(w):
                return TOO_LONG
        elif other == timer:
            elapse(w, timer)
            which = w.timers[ROOT].which
            r.timer_count = heap_pop(w.timers, r.timer_count)
            if r.routed:
                r.feeding = which
            else:
                start_sweep(w, r.all_classes, r.all_classes + r.classes)
        else:
            elapse(w, arrival)
            _arrive(w, key)


@cold
def close(w: World) -> None:
    """End the run: record the work in progress of each device."""
    r = w.run[0]
    elapse(w, r.end)
    for device in range(r.devices):
        d = w.devices[device]
        if d.slot < 0:
            continue
        if not d.held and not d.paused:
            settle(w, device)
        slot = d.slot
        for _ in range(d.count):
            s = w.slots[slot]
            row = row_of(w, s.job)
            if row >= 0:
                w.jobs[row].starts, w.jobs[row].energy = s.starts, s.energy
            if r.tallying:
                tally(w, 1, s.work, s.job, s.start - s.arrival)
                w.counts[s.work, 2] += 1
            slot = s.next
