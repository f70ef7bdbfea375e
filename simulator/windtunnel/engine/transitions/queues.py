"""Queues of waiting jobs, and the index of the devices of each class.

Queues without a key are linked lists in order of arrival, and queues with a key are pairing heaps. There is one queue
for each device, or a central one for each set of classes that can run a job; with request-level batches, one of these
for each workload.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.engine.prepare.prepared import FAR
from windtunnel.engine.transitions.containers import (
    NOT_HERE,
    first_marked,
    is_marked,
    mark,
    meld,
    tree_set,
    without_root,
)
from windtunnel.engine.transitions.designs import copy_row, expected_row
from windtunnel.engine.transitions.fairness import flow_of, joins, leaves, share_of
from windtunnel.engine.transitions.features import CLASSES, DESIGNS, GANGS, PROGRESS, STREAMS, WAITS, cold, hot
from windtunnel.engine.transitions.tables import (
    BY_BACKLOG,
    BY_EACH,
    BY_PRESENT,
    BY_TURN,
    NO_BATCH,
    STREAM,
    Records,
    World,
)


@hot
def push(w: World, queue: int, slot: int) -> None:
    """Add a job to a queue."""
    if CLASSES and w.run[0].fair:
        joins(w, queue)
    insert(w, queue, slot)


@hot
def insert(w: World, queue: int, slot: int) -> None:
    """Add a job to a queue without counting it as one that begins to wait."""
    q, slots = w.queues[queue], w.slots
    if PROGRESS:
        w.run[0].contested = 1
    q.number += 1
    if WAITS and w.run[0].waits:
        w.waits[slot].queue = queue
    slots[slot].next = -1
    if w.run[0].keyed:
        slots[slot].child = -1
        q.head = meld(q.head, slot, slots)
    elif q.head < 0:
        q.head = q.tail = slot
    elif not w.run[0].careful or slots[slot].job > slots[q.tail].job:
        slots[q.tail].next = slot
        q.tail = slot
    else:
        # A job that returns after a failure takes its position in the order of arrival.
        before, at = -1, q.head
        while slots[at].job < slots[slot].job:
            before, at = at, slots[at].next
        slots[slot].next = at
        if before < 0:
            q.head = slot
        else:
            slots[before].next = slot


@hot
def pop(w: World, queue: int) -> int:
    """Remove and return the next job of a queue."""
    if CLASSES and w.run[0].fair:
        leaves(w, queue)
    return take_head(w, queue)


@hot
def take_head(w: World, queue: int) -> int:
    """Remove and return the next job of a queue without counting it as one that does not wait any more."""
    q = w.queues[queue]
    slot: int = q.head
    q.number -= 1
    q.head = without_root(slot, w.slots) if w.run[0].keyed else w.slots[slot].next
    if WAITS and w.run[0].waits:
        w.waits[slot].queue = -1
        remove_left(w, queue)
    return slot


@cold
def remove_left(w: World, queue: int) -> None:
    """Remove the jobs at the head of a queue that have left it."""
    r, q = w.run[0], w.queues[queue]
    while q.head >= 0 and w.slots[q.head].starts < 0:
        slot = q.head
        q.head = without_root(slot, w.slots) if r.keyed else w.slots[slot].next
        w.slots[slot].next = r.free
        r.free = slot


@hot
def own_queue(w: World, device: int, slot: int) -> int:
    """Return the queue of the job: the device's own, or the central queue of the job's signature."""
    r = w.run[0]
    owner = device if r.routed else w.slots[slot].signature
    queue: int = owner
    if r.lines > 1:
        queue = owner * r.lines + (flow_of(w, slot) if CLASSES and r.fair else w.slots[slot].work)
    return queue


@hot
def best_queue(w: World, device: int, after_key: float, after_job: int) -> int:
    """Return the queue whose next job the device should take, among heads after (key, job); -1 if there is none."""
    r = w.run[0]
    if r.routed and r.batch == NO_BATCH and r.lines == 1:
        return device if w.queues[device].head >= 0 else -1
    if r.routed:
        first, last = device * r.lines, (device + 1) * r.lines
    else:
        at = r.queue_at + w.devices[device].cls
        first, last = w.ints[at], w.ints[at + 1]
    best = -1
    best_key, best_job = math.inf, np.int64(FAR)
    served: Any = np.int64(0)
    best_served: Any = np.int64(0)
    for place in range(first, last):
        queue = place if r.routed else w.ints[r.queues_of + place]
        head = w.queues[queue].head
        if head < 0:
            continue
        s = w.slots[head]
        if s.key < after_key or (s.key == after_key and s.job <= after_job):
            continue
        if CLASSES and r.fair:
            served = w.shares[share_of(w, queue)].served
        earlier = served < best_served or (served == best_served and s.job < best_job)
        if best < 0 or s.key < best_key or (s.key == best_key and earlier):
            best, best_key, best_job, best_served = queue, s.key, s.job, served
    return best


@cold
def precedes(w: World, slot: int, other: int) -> bool:
    """Return whether a job comes before another one in the order of the policy, and with equal keys, of arrival."""
    s, t = w.slots[slot], w.slots[other]
    return bool(s.key < t.key or (s.key == t.key and s.job < t.job))


@hot
def is_available(w: World, device: int) -> bool:
    """Return whether the device is up, reachable and in service."""
    d = w.devices[device]
    available: bool = d.outages == 0 and d.linked != 0 and d.enlisted != 0
    return available


@hot
def is_idle(w: World, device: int) -> bool:
    """Return whether the index of idle devices has the device; only a central queue keeps it."""
    c = w.classes[w.devices[device].cls]
    return is_marked(w.idle, c.leaf, device - c.first)


@hot
def first_idle_of(w: World, c: Records) -> int:
    """Return the idle device of the lowest number of a class; -1 if none is idle."""
    place = first_marked(w.idle, c.tree, c.leaf)
    return c.first + place if place >= 0 else -1


@hot
def _reindex_idle(w: World, device: int) -> None:
    d = w.devices[device]
    c = w.classes[d.cls]
    idle = is_available(w, device)
    if STREAMS and c.kind == STREAM:
        idle = idle and w.stations[device].jobs < w.stations[device].streams
    else:
        idle = idle and d.slot < 0
    if GANGS and w.run[0].ganging:
        c.idle += int(idle) - int(is_idle(w, device))
    mark(w.idle, c.tree, c.leaf, device - c.first, idle)


@hot
def reindex(w: World, device: int) -> None:
    """Update the device's entry in the index of its class: of idle devices, or of loads."""
    r, d = w.run[0], w.devices[device]
    if not r.routed:
        _reindex_idle(w, device)
        return
    if not is_available(w, device):
        load = NOT_HERE
    elif r.by in (BY_PRESENT, BY_EACH):
        load = d.present
    elif r.by == BY_BACKLOG:
        load = d.ready
    else:
        load = d.turn
    c = w.classes[d.cls]
    tree_set(w.tree, c.tree, c.leaf, device - c.first, load)


@hot
def left(w: World, device: int) -> None:
    """Remove a job that has ended or moved from the device's jobs; a central queue does not count them."""
    r, d = w.run[0], w.devices[device]
    if not r.routed:
        return
    d.present -= 1
    if d.present == 0:
        d.ready = 0
        if DESIGNS and r.reconfigures:
            copy_row(w, expected_row(w, device), device)
    if r.by != BY_TURN:
        reindex(w, device)
