"""Preemption: a waiting job interrupts a job in progress that comes after it in the order of the policy.

A preemption is a consequence: after all other consequences of an event, the first jobs of the queues are compared with
the jobs in progress, until none of them can interrupt another. So it does not matter whether a job arrived, returned
after a failure, or was preempted itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.engine.transitions.consequences import sweep_all
from windtunnel.engine.transitions.designs import stop_loading
from windtunnel.engine.transitions.features import DESIGNS, INTERRUPTS, QUESTIONS, cold
from windtunnel.engine.transitions.jobs import interrupted, row_of, stops, waits_again
from windtunnel.engine.transitions.power import release
from windtunnel.engine.transitions.progress import keep_progress, lose_progress
from windtunnel.engine.transitions.queues import is_available, reindex
from windtunnel.engine.transitions.single import peak_watts
from windtunnel.engine.transitions.tables import RESUMED, World
from windtunnel.engine.transitions.work import halt


@cold
def preempt(w: World) -> None:
    """Interrupt one job for the sake of a waiting one, or note that no waiting job can interrupt another."""
    r = w.run[0]
    device = _contested_device(w) if r.routed else _least_urgent(w)
    if device < 0:
        r.contested = 0
        return
    _interrupt(w, device)


@cold
def _ends_now(w: World, device: int) -> bool:
    """Return whether the present segment of the device ends at this tick: completions come before preemptions."""
    r, d = w.run[0], w.devices[device]
    if d.paused:
        return False
    ticks = float(d.left)
    if d.rate != 1.0 and not (QUESTIONS and w.extras[device].timed):
        ticks = math.ceil(ticks / d.rate)
    return float(r.now - d.since) >= ticks


@cold
def _can_preempt(w: World, device: int, slot: int) -> bool:
    """Return whether the waiting job comes before the job of the device, which can be interrupted."""
    d = w.devices[device]
    if d.slot < 0 or d.held or not is_available(w, device):
        return False
    return bool(w.slots[slot].key < w.slots[d.slot].key and not _ends_now(w, device))


@cold
def _has_power(w: World, device: int, slot: int) -> bool:
    """Return whether the waiting job could start in place of the job of the device (see ``power.may_draw``)."""
    r, d = w.run[0], w.devices[device]
    if not (INTERRUPTS and r.gated):
        return True
    paused, drawn_w = r.paused, r.drawn_w
    if d.paused:
        paused -= 1
    else:
        drawn_w -= d.need
    in_turn = r.line_count == 0 or w.line[r.line_first] == device
    return bool(paused == 0 and in_turn and drawn_w + peak_watts(w, device, slot) <= r.cap_w)


@cold
def _contested_device(w: World) -> int:
    """Return the first device whose queue has a job that may interrupt its job in progress; -1 if there is none."""
    for device in range(w.run[0].devices):
        head = w.queues[device].head
        if head >= 0 and _can_preempt(w, device, head) and _has_power(w, device, head):
            return device
    return -1


@cold
def _next_queue(w: World, after_key: float, after_job: int) -> int:
    """Return the central queue with the first of the first jobs that come after (key, job); -1 if there is none."""
    best = -1
    for queue in range(len(w.queues)):
        head = w.queues[queue].head
        if head < 0:
            continue
        s = w.slots[head]
        if s.key < after_key or (s.key == after_key and s.job <= after_job):
            continue
        if best < 0:
            best = queue
            continue
        b = w.slots[w.queues[best].head]
        if s.key < b.key or (s.key == b.key and s.job < b.job):
            best = queue
    return best


@cold
def _least_urgent(w: World) -> int:
    """Return the device whose job a job of the central queues interrupts; -1 if there is none.

    Of the devices that can run the waiting job, it is the one whose job is last in the order of the policy, of these
    the one that started last, then the one of the highest number.
    """
    r = w.run[0]
    key = -math.inf
    job: Any = np.int64(-1)
    while True:
        queue = _next_queue(w, key, job)
        if queue < 0:
            return -1
        slot = w.queues[queue].head
        key, job = w.slots[slot].key, w.slots[slot].job
        best, lacks_power = -1, False
        for place in range(w.ints[r.signature_at + queue], w.ints[r.signature_at + queue + 1]):
            c = w.classes[w.ints[r.signature_classes + place]]
            if w.tree[c.tree].load == 0:
                return -1  # an idle device lacks power, and no other job starts before the first one
            for device in range(c.first, c.first + c.count):
                if not _can_preempt(w, device, slot):
                    continue
                if not _has_power(w, device, slot):
                    lacks_power = True
                    continue
                if best < 0 or _before(w, best, device):
                    best = device
        if best >= 0 or lacks_power:
            return best


@cold
def _before(w: World, one: int, other: int) -> bool:
    """Return whether the job of another device is interrupted rather than that of one with a lower number."""
    d, e = w.devices[one], w.devices[other]
    key, other_key = w.slots[d.slot].key, w.slots[e.slot].key
    return bool(other_key > key or (other_key == key and e.began >= d.began))


@cold
def _interrupt(w: World, device: int) -> None:
    """Interrupt the job of the device, which waits again, and let the device start the next one."""
    r, d = w.run[0], w.devices[device]
    slot = d.slot
    if not d.paused:
        halt(w, device)
    if r.preempting == RESUMED:
        keep_progress(w, device)
    else:
        lose_progress(w, device)
    if INTERRUPTS and r.gated:
        release(w, device)
    if QUESTIONS:
        w.extras[device].ending, w.extras[device].timed = -1, 0
    if DESIGNS and r.reconfigures:
        stop_loading(w, device)
    d.slot = -1
    w.progress[slot].preempted = 1
    w.overhead[0].preemptions += 1
    row = row_of(w, w.slots[slot].job)
    first = w.jobs[row].first if row >= 0 else np.int64(-1)
    stops(w, device, slot, False)
    if row >= 0 and r.preempting == RESUMED:
        w.jobs[row].first = first
    waits_again(w, device, slot, False)
    interrupted(w, device, d.began, 1)
    reindex(w, device)
    r.feeding = device
    if not r.routed:
        sweep_all(w)  # an idle device may accept the interrupted job, but not the other one
