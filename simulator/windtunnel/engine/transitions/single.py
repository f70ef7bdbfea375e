"""Devices that execute one job, or one request-level batch, at a time; its segments run one after another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.engine.transitions.clock import set_timer
from windtunnel.engine.transitions.consequences import ask, sweep_all
from windtunnel.engine.transitions.designs import begin_loading, design_of, is_resident, loaded
from windtunnel.engine.transitions.features import (
    DESIGNS,
    GANGS,
    INTERRUPTS,
    OPERATION_FAULTS,
    PROGRESS,
    QUESTIONS,
    cold,
    hot,
)
from windtunnel.engine.transitions.gangs import all_linked, disband, first_idle, form, startable_queue
from windtunnel.engine.transitions.jobs import deliver_first_token, ended, started
from windtunnel.engine.transitions.operation_faults import affect_operation
from windtunnel.engine.transitions.power import may_draw, release
from windtunnel.engine.transitions.progress import begin_attempt, end_of_segment, with_checkpoints
from windtunnel.engine.transitions.queues import best_queue, pop, reindex
from windtunnel.engine.transitions.tables import (
    BATCH_COST,
    FAILED_OPERATION,
    NO_BATCH,
    OPERATION,
    PER_SECOND,
    TIMER,
    TOO_MANY,
    World,
)
from windtunnel.engine.transitions.work import proceed, segment_ticks, segment_watts, settle, way_of


@hot
def feed_single(w: World, device: int) -> None:
    """Start the next job or batch that the device accepts."""
    r, d = w.run[0], w.devices[device]
    if INTERRUPTS and r.batch != NO_BATCH:
        _feed_batch(w, device)
        return
    ganging = GANGS and r.ganging != 0
    queue = startable_queue(w, device) if GANGS and ganging else best_queue(w, device, -math.inf, -1)
    if queue < 0:
        return
    if GANGS and ganging:
        device = first_idle(w, device, queue)
        d = w.devices[device]
    need = 0.0
    if INTERRUPTS and r.gated:
        head = w.queues[queue].head
        need = peak_watts(w, device, head)
        if GANGS and ganging:
            need *= w.workloads[w.slots[head].work].gang
        if not may_draw(w, device, need):
            return
    slot = pop(w, queue)
    started(w, device, slot)
    w.slots[slot].next = -1
    d.slot, d.count = slot, 1
    if r.careful:
        d.began = r.now
    if QUESTIONS:
        w.extras[device].corrupted = 0
    way = way_of(w, device, slot)
    d.segment, d.last = way.first, way.last
    if GANGS and ganging:
        form(w, device)
    if PROGRESS and r.progresses:
        begin_attempt(w, device)
    begin_segment(w, device)


@hot
def peak_watts(w: World, device: int, slot: int) -> float:
    """Return the highest power of the job above idle on a device that executes one segment after another (W)."""
    peak = 0.0
    way = way_of(w, device, slot)
    for segment in range(way.first, way.last + 1):
        peak = max(peak, segment_watts(w, segment, slot))
        if DESIGNS and w.run[0].reconfigures and design_of(w, segment, slot) >= 0:
            peak = max(peak, w.classes[w.devices[device].cls].load_w)
    return peak


@hot
def begin_segment(w: World, device: int) -> None:
    """Begin the present segment of the device's job, after its design has been loaded."""
    r, d = w.run[0], w.devices[device]
    if DESIGNS and r.reconfigures and _begin_load(w, device):
        return
    g, s = w.segments[d.segment], w.slots[d.slot]
    ticks = segment_ticks(w, d.segment, d.slot)
    if ticks < 0:
        r.too_long = 1
        return
    if r.tokens:
        p = w.programs[d.cls * r.workloads + s.work]
        d.first_left = -1
        if p.first_at >= 0:
            stretch = w.draws[d.slot, r.draws] if r.stretched else 1.0
            d.first_left = ticks - np.int64(np.rint(float(w.ints[p.first_at + s.rank]) * stretch))
    if PROGRESS and r.progresses:
        ticks = with_checkpoints(w, device, ticks)
    if QUESTIONS and g.asks:
        d.left, d.full = ticks, segment_watts(w, d.segment, d.slot)
        ask(w, OPERATION, device)
        return
    if OPERATION_FAULTS and g.faults:
        ticks = affect_operation(w, device, ticks)
        if PROGRESS and r.progresses:
            w.progress[d.slot].scheduled = ticks
    proceed(w, device, ticks, segment_watts(w, d.segment, d.slot))


@cold
def _begin_load(w: World, device: int) -> bool:
    """Load the design that the present segment needs, if the device does not hold it; return whether it does so."""
    d = w.devices[device]
    design = design_of(w, d.segment, d.slot)
    if design < 0 or is_resident(w, device, design):
        return False
    c = w.classes[d.cls]
    begin_loading(w, device, design)
    d.first_left = -1
    proceed(w, device, c.load_ticks, c.load_w)
    return True


@cold
def _end_load(w: World, device: int) -> None:
    """Begin the work for which a design has been loaded."""
    r, e = w.run[0], w.extras[device]
    loaded(w, device)
    if r.batch == NO_BATCH:
        begin_segment(w, device)
    else:
        _begin_work_of_batch(w, device, e.then, e.then_w)


@cold
def _batch_size(w: World, device: int, queue: int) -> int:
    """Return how many jobs of the queue the device would batch now; 0 if they wait for others, and a timer is set."""
    r, d, slots = w.run[0], w.devices[device], w.slots
    s = slots[w.queues[queue].head]
    count = min(w.queues[queue].number, r.batch_size)
    waited = r.now - s.arrival
    if count < r.batch_size and waited < r.batch_wait:
        if not s.timed:
            s.timed = 1
            set_timer(w, TIMER, device if r.routed else s.job, r.now + r.batch_wait - waited)
        return 0
    p = w.programs[d.cls * r.workloads + s.work]
    if p.batch_at < 0:  # the memory of jobs that differ is part of the question about their cost
        return int(count)
    size, memory = 0, 0.0
    while size < count:
        need = p.footprint - (p.weights if size else 0.0)
        if size and memory + need > w.classes[d.cls].memory:
            break
        memory += need
        size += 1
    return size


@cold
def _feed_batch(w: World, device: int) -> None:
    """Start the first batch that is full or has waited long enough."""
    r, d = w.run[0], w.devices[device]
    after_key = -math.inf
    after_job: Any = np.int64(-1)
    while True:
        queue = best_queue(w, device, after_key, after_job)
        if queue < 0:
            return
        head = w.queues[queue].head
        size = _batch_size(w, device, queue)
        if size > 0:
            break
        after_key, after_job = w.slots[head].key, w.slots[head].job
    p = w.programs[d.cls * r.workloads + w.slots[head].work]
    if p.batch_at < 0 and not r.answered:
        # The jobs differ, so the cost depends on which ones are in the batch.
        if QUESTIONS:
            r.asked_queue, r.asked_size = queue, size
            ask(w, BATCH_COST, device)
        return
    r.answered = 0
    if p.batch_at < 0:
        size = r.asked_size
    watts = r.answer_w if p.batch_at < 0 else w.numbers[p.batch_at + r.batch_size + size - 1]
    if r.gated:
        peak = watts
        if DESIGNS and r.reconfigures and w.classes[d.cls].regions:
            peak = max(peak, w.classes[d.cls].load_w)
        if not may_draw(w, device, peak):
            return
    _begin_batch(w, device, queue, size, watts)


@cold
def _begin_batch(w: World, device: int, queue: int, size: int, watts: float) -> None:
    """Start the first ``size`` jobs of a queue as one batch."""
    r, d = w.run[0], w.devices[device]
    first: Any = np.int64(-1)
    last: Any = np.int64(-1)
    longest, stretch = 0.0, 1.0
    for _ in range(size):
        slot = pop(w, queue)
        started(w, device, slot)
        longest = max(longest, w.draws[slot, 0])
        if r.stretched:
            stretch = max(stretch, w.draws[slot, r.draws])
        if first < 0:
            first = slot
        else:
            w.slots[last].next = slot
        last = slot
    w.slots[last].next = -1
    d.slot, d.count, d.began = first, size, r.now
    p = w.programs[d.cls * r.workloads + w.slots[first].work]
    if p.batch_at < 0:
        scaled = float(r.answer_ticks)
    else:
        seconds = w.numbers[p.batch_at + size - 1]
        if p.batch_drawn:
            seconds = seconds * longest
        scaled = np.rint(seconds * PER_SECOND)
    if stretch != 1.0:
        scaled = np.rint(scaled * stretch)
    if scaled > TOO_MANY:
        r.too_long = 1
        return
    ticks = np.int64(scaled)
    if r.tokens:
        d.first_left = -1
        if p.first_at >= 0:
            d.first_left = ticks - np.int64(np.rint(float(r.answer_first) * stretch))
    d.segment = d.last = 0
    if QUESTIONS:
        w.extras[device].corrupted = 0
    if DESIGNS and r.reconfigures:
        # All operations of a batch that need a design need the same one.
        way = way_of(w, device, first)
        d.segment, d.last = way.first, way.last
        while d.segment < d.last and design_of(w, d.segment, first) < 0:
            d.segment += 1
        w.extras[device].then, w.extras[device].then_w = ticks, watts
        loads = _begin_load(w, device)
        d.segment = d.last = 0
        if loads:
            return
    _begin_work_of_batch(w, device, ticks, watts)


@cold
def _begin_work_of_batch(w: World, device: int, ticks: Any, watts: float) -> None:
    """Begin a batch that takes ``ticks`` at full speed and draws ``watts`` above idle."""
    d = w.devices[device]
    if QUESTIONS and w.classes[d.cls].asks:
        d.left, d.full = ticks, watts
        ask(w, OPERATION, device)
        return
    proceed(w, device, ticks, watts)


@hot
def end_segment(w: World, device: int) -> None:
    """End the present segment of the device."""
    r, d = w.run[0], w.devices[device]
    settle(w, device)
    if DESIGNS and r.reconfigures and w.extras[device].loading:
        _end_load(w, device)
        return
    if PROGRESS and r.progresses:
        end_of_segment(w, device)
    if QUESTIONS and w.extras[device].ending >= 0:
        ask(w, FAILED_OPERATION, device)
        return
    if d.segment < d.last:
        d.segment += 1
        begin_segment(w, device)
    elif d.linked and (not GANGS or not r.ganging or all_linked(w, device)):
        complete(w, device)
    else:
        d.held = 1
        if INTERRUPTS and r.gated:
            release(w, device)


@cold
def deliver_first_tokens(w: World, device: int) -> None:
    """Deliver the first tokens that the device produced while it was unreachable."""
    slot = w.devices[device].slot
    for _ in range(w.devices[device].count):
        deliver_first_token(w, slot)
        slot = w.slots[slot].next


@hot
def complete(w: World, device: int) -> None:
    """Complete the device's job or batch, whose result has been delivered."""
    r, d = w.run[0], w.devices[device]
    slot = d.slot
    d.slot = -1
    for _ in range(d.count):
        following = w.slots[slot].next
        ended(w, device, slot, True)
        slot = following
    if INTERRUPTS and r.gated and not d.held:
        release(w, device)
    d.held = 0
    if QUESTIONS:
        r.corrupted += w.extras[device].corrupted * d.count
    if GANGS and r.ganging and disband(w, device):
        if not r.gated:
            sweep_all(w)
    elif r.gated and not r.routed:
        # The device is considered again in the next round.
        reindex(w, device)
    else:
        r.feeding = device
