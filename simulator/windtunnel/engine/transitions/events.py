"""Events, their consequences, and the loop of the compiled engine.

Events of one tick are processed in this order: completions by device, ends of transfers, ends of resets, faults in the
order of their schedule, timers, devices that become ready, decisions, arrivals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.ticks import MAX_TICKS
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.transitions.consequences import ask, sweep_all
from windtunnel.engine.transitions.dispatch import arrive, feed, hand_next, place_next, sweep
from windtunnel.engine.transitions.faults import apply_fault, come_back
from windtunnel.engine.transitions.features import (
    GANGS,
    INTERRUPTS,
    PREFIXES,
    PROGRESS,
    QUESTIONS,
    SERVERS,
    SINGLES,
    STREAMS,
    TALLIES,
    TIERS,
    TRANSFERS,
    USERS,
    WAITS,
    cold,
    hot,
)
from windtunnel.engine.transitions.gangs import leader_of
from windtunnel.engine.transitions.handover import land, next_offer
from windtunnel.engine.transitions.heap import ROOT, heap_pop, prefetch
from windtunnel.engine.transitions.jobs import tally, unfinished
from windtunnel.engine.transitions.power import drain
from windtunnel.engine.transitions.preemption import preempt
from windtunnel.engine.transitions.prefixes import index_nodes
from windtunnel.engine.transitions.progress import note_position
from windtunnel.engine.transitions.queues import best_queue, first_idle_of
from windtunnel.engine.transitions.servers import end_step, note_use
from windtunnel.engine.transitions.single import end_segment
from windtunnel.engine.transitions.streams import close_streams, end_task
from windtunnel.engine.transitions.tables import (
    BATCHES,
    CHECK_SERVED,
    DECIDE,
    DECISION,
    DONE,
    ENTITIES,
    FAULT_EVENT,
    HOUR_TICKS,
    HOURS,
    LANDING,
    LEAVE,
    MORE_BATCHES,
    MORE_CAPACITY,
    MORE_CHANGES,
    MORE_FAULTS,
    MORE_GAPS,
    MORE_INTERVALS,
    MORE_JOBS,
    MORE_NODES,
    MORE_ROWS,
    MORE_SLOTS,
    MORE_THOUGHTS,
    MORE_TIMERS,
    MORE_TRANSFERS,
    NEVER,
    QUESTION,
    READINESS,
    RESET,
    RETURN,
    SPANS,
    STREAM,
    TIMER,
    TOO_LONG,
    Records,
    World,
)
from windtunnel.engine.transitions.users import next_arrival
from windtunnel.engine.transitions.waits import SLOTS, end_pause, leave
from windtunnel.engine.transitions.work import remaining, settle

# Time.


@hot
def elapse(w: World, tick: int) -> None:
    """Advance the clock to ``tick``, with constant power and constant numbers of waiting jobs."""
    r = w.run[0]
    if TALLIES and r.tallying and tick > r.now:
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
    return width * SPANS if width < NEVER // SPANS else NEVER


# Events.


@hot
def end_work(w: World, device: int) -> None:
    """End the device's present work."""
    if PROGRESS:
        w.run[0].contested = 1
    if SERVERS and w.run[0].serving:
        end_step(w, device)
    elif STREAMS and w.classes[w.devices[device].cls].kind == STREAM:
        end_task(w, device)
    elif SINGLES:
        end_segment(w, device)


@cold
def expire(w: World, order: int) -> None:
    """Process a timer, which is identified by the kind of its event and an entity."""
    r = w.run[0]
    kind, entity = order // ENTITIES, order % ENTITIES
    if kind == TIMER:
        if r.routed or r.serving:
            r.feeding = entity
        else:
            sweep_all(w)
    elif TRANSFERS and kind == LANDING:
        land(w, entity)
    elif INTERRUPTS and kind == RESET:
        w.devices[entity].outages -= 1
        come_back(w, entity)
    elif WAITS and kind == LEAVE:
        leave(w, entity % SLOTS)
    elif WAITS and kind == RETURN:
        end_pause(w, entity % SLOTS)
    elif QUESTIONS:
        ask(w, DECISION if kind == DECIDE else READINESS, entity)


@hot
def has_consequences(w: World) -> bool:
    """Return whether the last event has consequences that precede the next one."""
    r = w.run[0]
    follows: bool = r.feeding >= 0 or r.sweeping >= 0 or r.placing >= 0 or r.draining != 0
    if TRANSFERS and r.disaggregated:
        follows = follows or r.handing >= 0 or r.freed >= 0
    if PROGRESS and r.preempting and r.contested:
        return True
    return follows


@hot
def consequence(w: World, score: Any, decode_score: Any) -> None:
    """Execute the next consequence of the last event."""
    r = w.run[0]
    if r.feeding >= 0 or (TRANSFERS and r.freed >= 0):
        device = r.feeding
        r.feeding = -1
        if TRANSFERS and device < 0:
            device = next_offer(w)
        feed(w, device)
    elif TRANSFERS and r.handing >= 0:
        hand_next(w, decode_score)
    elif r.sweeping >= 0:
        sweep(w)
    elif r.placing >= 0:
        place_next(w, score)
    elif INTERRUPTS and r.draining:
        drain(w)
        if PROGRESS:
            r.contested = 1
    elif PROGRESS:
        preempt(w)


# Long: it names each table once.
@hot
def room(w: World) -> int:
    """Return which table may be too small at the next event; DONE if none is."""
    r = w.run[0]
    if r.write and r.written + 2 * r.devices + (2 + r.engines) * r.running + 2 + len(w.tasks) > len(w.intervals):
        return MORE_INTERVALS
    if SERVERS and r.serving and r.gaps + r.workloads + r.running + 2 > len(w.gaps):
        return MORE_GAPS
    # The end of a transfer, or of a step with prompts, lets both its sender and its receivers admit requests.
    filled = 2 if TRANSFERS and r.disaggregated else 1
    if PREFIXES and r.caching and r.nodes + filled * r.batch_size * r.longest_chain > len(w.nodes):
        return MORE_NODES
    if TRANSFERS and r.disaggregated and r.transfers >= len(w.transfers):
        return MORE_TRANSFERS
    if r.next >= len(w.arrivals) and not r.last:
        return MORE_JOBS
    if r.free < 0:
        return MORE_SLOTS
    if USERS and r.users:
        if r.exceeded:
            return MORE_CAPACITY
        if r.thoughts + 1 >= len(w.think_ticks):
            return MORE_THOUGHTS
    if QUESTIONS and r.scaling and r.changes + 2 * r.devices + 2 > len(w.changes):
        return MORE_CHANGES
    if TALLIES and r.tallying:
        if r.job >= r.batch_width * BATCHES:
            return MORE_BATCHES
        if r.stride > 0 and r.job >= r.stride * len(w.jobs):
            return MORE_ROWS
    return DONE


@cold
def check_served(r: Records, fault: int) -> bool:
    """Return whether to check that the waiting jobs can still be served: once after each relevant change."""
    ended = r.completed + r.failed + r.dropped + 1
    if fault <= r.gone and r.ended == ended:
        return False
    r.ended = ended
    return True


def never_served(prepared: PreparedRun, w: World, fault: int) -> bool:
    """Return whether no device works and all waiting jobs need devices that fail permanently before tick ``fault``.

    It notes the next tick at which a device fails permanently.
    """
    if prepared.faults is None:  # a failed operation resets devices, which return
        return False
    r = w.run[0]
    ticks = prepared.faults.gone(prepared.device_count)
    r.gone = int(ticks.min(initial=MAX_TICKS, where=ticks >= fault))
    if r.pausing or r.impatient:  # these jobs return or leave, and users submit others then
        return False
    gone = ticks < fault
    if not gone.any():
        return False
    if r.ganging:
        remaining = {c.first: c.count - int(gone[c.first : c.first + c.count].sum()) for c in prepared.classes}
        return not any(_may_start(w, first, count) for first, count in remaining.items())
    lost = {c.number for c in prepared.classes if gone[c.first : c.first + c.count].all()}
    if _decodable(prepared, w, lost):
        return False
    waiting = [number for number in range(len(w.queues)) if w.queues[number].head >= 0]
    per_owner = r.lines
    if r.routed:
        if not all(gone[number // per_owner] for number in waiting):
            return False
        signatures = set()
        slot = int(r.unassigned)
        while slot >= 0:
            if w.slots[slot].starts >= 0:
                signatures.add(int(w.slots[slot].signature))
            slot = int(w.slots[slot].next)
    else:
        signatures = {number // per_owner for number in waiting}
    return all(lost.issuperset(prepared.signatures[signature]) for signature in signatures)


def _decodable(prepared: PreparedRun, w: World, lost: set[int]) -> bool:
    """Return whether a class that is not ``lost`` could decode a request that waits for a device which does."""
    slot = int(w.run[0].stranded)
    while slot >= 0:
        if not lost.issuperset(prepared.decode_signatures[w.slots[slot].signature]):
            return True
        slot = int(w.handovers[slot].next)
    return False


def _may_start(w: World, device: int, remaining: int) -> bool:
    """Return whether a job that waits may start on the remaining devices of the class of ``device``."""
    key: Any = -math.inf
    job: Any = -1
    while (queue := best_queue(w, device, key, job)) >= 0:
        s = w.slots[w.queues[queue].head]
        if w.workloads[s.work].gang <= remaining:
            return True
        if not w.run[0].backfill:
            return False
        key, job = s.key, s.job
    return False


@hot
def _look_ahead(w: World) -> None:
    """Prefetch the records of the next events, because a large fleet does not fit into the cache.

    The devices that end next are at the root of the heap and among its children, and the following ones are below
    these. The next job goes to the best device of some class.
    """
    r = w.run[0]
    first = 4 * ROOT - 8
    for at in range(first, min(first + 4, ROOT + r.heap)):
        device = w.ends[at].which
        d, q = w.devices[device], w.queues[device if r.routed else 0]
        if d.slot >= 0:
            prefetch(w.slots, np.int64(d.slot))
            prefetch(w.draws, np.int64(d.slot))
        if q.head >= 0:
            prefetch(w.slots, np.int64(q.head))
            prefetch(w.draws, np.int64(q.head))
        if r.routed:
            c = w.classes[d.cls]
            prefetch(w.tree, c.leaf + device - c.first)
    first = 4 * first - 8
    for at in range(first, min(first + 16, ROOT + r.heap)):
        device = w.ends[at].which
        prefetch(w.devices, device)
        if r.routed:
            prefetch(w.queues, device)
    for cls in range(min(r.classes, 8)):
        c = w.classes[cls]
        if r.routed:
            winner = w.tree[c.tree].winner
            prefetch(w.devices, winner)
            prefetch(w.tree, c.leaf + winner - c.first)
            prefetch(w.queues, winner)
        else:
            idle = first_idle_of(w, c)
            if idle >= 0:
                prefetch(w.devices, idle)


@cold
def close(w: World) -> None:
    """End the run: record the work in progress of each device."""
    r = w.run[0]
    elapse(w, r.end)
    for device in range(r.devices):
        d = w.devices[device]
        if STREAMS and w.classes[d.cls].kind == STREAM:
            close_streams(w, device)
            continue
        if GANGS and leader_of(w, device) != device:
            continue
        if d.slot >= 0 and not d.held:
            left = d.left
            if PROGRESS and r.progresses and not d.paused:
                left = remaining(w, device)
            if not d.paused:
                settle(w, device)
            if PROGRESS and r.progresses:
                d.left = left
                note_position(w, device)
        if SERVERS and r.serving:
            if d.slot >= 0:
                note_use(w, device)
            _close_server(w, device)
        elif SINGLES and d.slot >= 0:
            _close_single(w, device)


@cold
def _close_single(w: World, device: int) -> None:
    r, d = w.run[0], w.devices[device]
    slot = d.slot
    for _ in range(d.count):
        s = w.slots[slot]
        unfinished(w, slot)
        if TALLIES and r.tallying:
            tally(w, 1, s.work, s.job // r.batch_width, s.start - s.arrival)
            w.counts[s.work, 2] += 1
        slot = s.next


@cold
def _close_server(w: World, device: int) -> None:
    v = w.servers[device]
    for first in (v.decoding, v.reading, v.loading, v.off, v.undelivered):
        slot = first
        while slot >= 0:
            s = w.slots[slot]
            if first == v.decoding:
                s.energy += v.per_token - w.sequences[slot].joules_at_birth
            unfinished(w, slot)
            slot = s.next
    if TRANSFERS and w.run[0].disaggregated:
        slot = w.ports[device].holding
        while slot >= 0:
            unfinished(w, slot)
            slot = w.slots[slot].next
        slot = w.ports[device].incoming
        for _ in range(w.ports[device].landed):
            unfinished(w, slot)
            slot = w.sequences[slot].later


# Long: Numba compiles it as one state machine, which is faster than calls between its parts.
@hot
def advance(w: World, score: Any, key: Any, decode_score: Any) -> int:
    """Process events until the run ends or the engine must do something; return which (compiled engine)."""
    r = w.run[0]
    if r.closing:
        close(w)
        return DONE
    if PREFIXES and r.reindexing:
        index_nodes(w)
    while True:
        if r.too_long:
            return TOO_LONG
        if QUESTIONS and r.asking:
            return QUESTION
        if has_consequences(w):
            consequence(w, score, decode_score)
            continue
        if r.stale:
            r.stale = 0
            r.heap = heap_pop(w.ends, r.heap)
        if r.far:
            _look_ahead(w)
        needed = room(w)
        if needed != DONE:
            return needed
        # Every batch that is offered may set a timer for its first job.
        # All jobs of a batch may pause.
        # The KV caches of all jobs may be sent.
        timers = (len(w.queues) if r.batch else 0) + (r.running if r.waits else 0)
        if TIERS and r.levels > 1:
            timers += r.devices  # each device may wait for a load
        if TRANSFERS and r.disaggregated:
            timers += r.running
        if (INTERRUPTS or TIERS or TRANSFERS) and ROOT + r.timer_count + timers + 8 > len(w.timers):
            return MORE_TIMERS
        arrival = next_arrival(w)
        timer = w.timers[ROOT].tick if r.timer_count else NEVER
        # The schedule of faults is known up to this tick; it is extended only as far as the run reaches.
        fault = w.faults[r.fault].tick if r.fault < len(w.faults) else r.faults_until
        # The earliest event is next, and at one tick completions are first.
        other = min(arrival, timer, fault)
        if r.heap and w.ends[ROOT].tick <= other:
            if w.ends[ROOT].tick > r.end:
                return TOO_LONG if w.ends[ROOT].tick == NEVER and r.end == NEVER - 1 else DONE
            elapse(w, w.ends[ROOT].tick)
            device = w.ends[ROOT].which
            # The entry stays at the root until it is known whether the device starts other work, as most do.
            r.stale = device + 1
            w.ends[ROOT].which = -1
            end_work(w, device)
        elif other > r.end or (arrival == NEVER and r.running + r.waiting == 0 and not r.continues):
            return DONE
        elif (
            (INTERRUPTS or TIERS or TRANSFERS)
            and timer == other
            and (timer < fault or w.timers[ROOT].which < FAULT_EVENT * ENTITIES)
        ):
            order = w.timers[ROOT].which
            decides = QUESTIONS and order // ENTITIES == DECIDE and not r.continues
            # Without this check the controller would decide for ever.
            if decides and arrival == NEVER and r.running == r.strandeds and check_served(r, fault):
                return CHECK_SERVED
            elapse(w, timer)
            r.timer_count = heap_pop(w.timers, r.timer_count)
            expire(w, order)
        elif INTERRUPTS and fault == other:
            if arrival == NEVER and r.running == r.strandeds and check_served(r, fault):
                return CHECK_SERVED
            if r.fault >= len(w.faults):
                return MORE_FAULTS
            elapse(w, fault)
            r.fault += 1
            apply_fault(w, w.faults[r.fault - 1])
        else:
            elapse(w, arrival)
            arrive(w, key)
