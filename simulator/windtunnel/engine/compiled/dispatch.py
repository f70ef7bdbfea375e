"""Assigns jobs to devices and processes completed jobs, with the semantics of engine/process/dispatch.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.policy import Candidate
from windtunnel.engine.compiled.state import BY_TURN, NO_BATCH, Either, World
from windtunnel.engine.compiled.structures import NOT_HERE, cold, heap_push, hot
from windtunnel.engine.compiled.work import (
    begin,
    begin_batch,
    begin_segment,
    best_queue,
    may_draw,
    own_queue,
    push,
    reindex,
    release,
    row_of,
    segment_watts,
    settle,
    start_sweep,
    tally,
    way_of,
)
from windtunnel.engine.prepare.prepared import FAR

PER_SECOND = 1e12


# Dispatch.


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
            which = device if r.routed else s.job
            r.timer_count = heap_push(w.timers, r.timer_count, r.now + r.batch_wait - waited, which)
        return 0
    p = w.programs[d.cls * r.workloads + s.work]
    size, memory = 0, 0.0
    while size < count:
        need = p.footprint - (p.weights if size else 0.0)
        if size and memory + need > w.classes[d.cls].memory:
            break
        memory += need
        size += 1
    return size


@hot
def feed(w: World, device: int) -> bool:
    """Start the work that the device accepts; return False if it would end after the last tick."""
    r, d = w.run[0], w.devices[device]
    if d.slot >= 0 or d.up == 0 or d.linked == 0:
        return True
    after_key = -math.inf
    after_job: Any = np.int64(-1)
    need = 0.0
    while True:
        queue = best_queue(w, device, after_key, after_job)
        if queue < 0:
            return True
        head = w.queues[queue].head
        if r.batch == NO_BATCH:
            if r.gated:
                way = way_of(w, device, head)
                for segment in range(way.first, way.last + 1):
                    need = max(need, segment_watts(w, segment, head))
                if not may_draw(w, device, need):
                    return True
            good = begin(w, device, queue, need)
            break
        size = _batch_size(w, device, queue)
        if size > 0:
            if r.gated:
                p = w.programs[d.cls * r.workloads + w.slots[head].work]
                need = w.numbers[p.batch_at + r.batch_size + size - 1]
                if not may_draw(w, device, need):
                    return True
            good = begin_batch(w, device, queue, size, need)
            break
        after_key, after_job = w.slots[head].key, w.slots[head].job
    if not r.routed:
        c = w.classes[d.cls]
        if w.tree[c.leaf + device - c.first].load == 0:
            reindex(w, device)
    return good


@hot
def sweep(w: Either) -> None:
    """Offer work to the idle devices of the next class; a device that lacks power ends the class."""
    r = w.run[0]
    c = w.classes[w.ints[r.sweeping]]
    device = w.tree[c.tree].winner
    if r.refused:
        r.sweep_end = r.sweeping
    elif w.tree[c.tree].load >= NOT_HERE or r.tried == device or best_queue(w, device, -math.inf, -1) < 0:
        # The other devices of the class are identical, so they would not start either.
        r.sweeping += 1
    else:
        r.tried = device
        r.feeding = device
        return
    if r.sweeping == r.sweep_end:
        r.sweeping = -1
    r.tried = -1


@hot
def _near(first: float, second: float) -> bool:
    return first == second or abs(first - second) <= 1e-12 * max(abs(first), abs(second))


@hot
def _choose(w: Either, score: Any, slot: int) -> tuple[int, float]:
    """Return the device with the best score and the job's expected time there; -1 if none is available."""
    r, s = w.run[0], w.slots[slot]
    deadline = w.workloads[s.work].deadline
    slack = float(deadline) / PER_SECOND if deadline < FAR else math.inf
    best: Any = np.int64(-1)
    best_0 = best_1 = best_mean = best_estimate = 0.0
    for place in range(w.ints[r.signature_at + s.signature], w.ints[r.signature_at + s.signature + 1]):
        cls = w.ints[r.signature_classes + place]
        node = w.tree[w.classes[cls].tree]
        if node.load >= NOT_HERE:
            continue
        p = w.programs[cls * r.workloads + s.work]
        estimate = p.estimate if p.estimate_at < 0 else w.numbers[p.estimate_at + s.rank]
        energy = p.energy if p.energy_at < 0 else w.numbers[p.energy_at + s.rank]
        # In a large fleet each access to a device is a cache miss, so only devices that the score needs are read.
        present, backlog = node.load, 0.0
        if r.looks:
            d = w.devices[node.winner]
            present = np.int64(d.present)
            backlog = float(max(d.ready - r.now, 0)) / PER_SECOND
        score_0, score_1 = score(
            Candidate(present, backlog, estimate, p.mean, p.price * estimate, energy, slack, node.load, p.preference)
        )
        if best < 0:
            better = True
        elif not _near(score_0, best_0):
            better = score_0 < best_0
        elif not _near(score_1, best_1):
            better = score_1 < best_1
        elif not _near(p.mean, best_mean):
            better = p.mean < best_mean
        else:
            better = node.winner < best
        if better:
            best, best_0, best_1, best_mean, best_estimate = node.winner, score_0, score_1, p.mean, estimate
    return best, best_estimate


@hot
def place_next(w: Either, score: Any) -> None:
    """Assign the next unassigned job to a queue: a device's or the central one."""
    r = w.run[0]
    slot = r.placing
    s = w.slots[slot]
    r.placing = s.next
    r.waiting += 1
    if r.routed:
        device, estimate = _choose(w, score, slot)
        if device < 0:
            s.next = -1
            if r.limbo < 0:
                r.limbo = slot
            else:
                w.slots[r.limbo_end].next = slot
            r.limbo_end = slot
            return
        d = w.devices[device]
        d.present += 1
        d.ready = max(d.ready, r.now) + np.int64(np.rint(estimate * PER_SECOND))
        r.turn += 1
        if r.by == BY_TURN:
            d.turn = r.turn
        reindex(w, device)
        push(w, own_queue(w, device, slot), slot)
        r.feeding = device
        return
    push(w, own_queue(w, 0, slot), slot)
    if not r.paused:
        at = r.signature_at + s.signature
        start_sweep(w, r.signature_classes + w.ints[at], r.signature_classes + w.ints[at + 1])


@hot
def to_place(w: Either, slot: int) -> None:
    """Add a job to the list of unassigned jobs."""
    r = w.run[0]
    w.slots[slot].next = -1
    w.slots[slot].timed = 0
    if r.placing < 0:
        r.placing = slot
    else:
        w.slots[r.placing_end].next = slot
    r.placing_end = slot


@hot
def left(w: Either, device: int) -> None:
    """Remove a job that has completed, failed or moved from the device's jobs."""
    r, d = w.run[0], w.devices[device]
    d.present -= 1
    if d.present == 0:
        d.ready = 0
    if r.by != BY_TURN:
        reindex(w, device)


@hot
def end_job(w: World, device: int, slot: int, completed: bool) -> None:
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
        j.lost = 0 if completed else 1
    if r.tallying:
        if completed:
            tally(w, 0, s.work, s.job, r.now - s.arrival)
        tally(w, 1, s.work, s.job, s.start - s.arrival)
        w.counts[s.work, 0 if completed else 1] += 1
    if r.routed:
        left(w, device)
    s.next = r.free
    r.free = slot


@hot
def complete(w: World, device: int) -> None:
    """Complete the device's job or batch, whose result has been delivered."""
    r, d = w.run[0], w.devices[device]
    slot = d.slot
    d.slot = -1
    for _ in range(d.count):
        following = w.slots[slot].next
        end_job(w, device, slot, True)
        slot = following
    if r.gated and not d.held:
        release(w, device)
    d.held = 0
    if r.gated and not r.routed:
        # The device is considered again in the next round.
        reindex(w, device)
    else:
        r.feeding = device


@hot
def end_segment(w: World, device: int) -> bool:
    """End the present segment of the device."""
    d = w.devices[device]
    settle(w, device)
    if d.segment < d.last:
        d.segment += 1
        return begin_segment(w, device)
    if d.linked:
        complete(w, device)
    else:
        d.held = 1
        if w.run[0].gated:
            release(w, device)
    return True
