"""Preemption: a waiting job interrupts jobs in progress that come after it in the order of the policy.

A preemption is a consequence: after all other consequences of an event, the first jobs of the queues are compared with
the jobs in progress, until none of them can interrupt another. So it does not matter whether a job arrived, returned
after a failure, or was preempted itself.

A waiting job interrupts one job, unless jobs occupy several devices: then it interrupts as many as it needs beside the
idle devices of a class. These jobs are a list by ``victim`` in ``World.gangs``, the most urgent first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.engine.transitions.consequences import sweep_all
from windtunnel.engine.transitions.designs import stop_loading
from windtunnel.engine.transitions.features import DESIGNS, GANGS, INTERRUPTS, QUESTIONS, cold
from windtunnel.engine.transitions.gangs import disband, leader_of, size_of
from windtunnel.engine.transitions.jobs import interrupted, row_of, stops, waits_again
from windtunnel.engine.transitions.power import release
from windtunnel.engine.transitions.progress import keep_progress, lose_progress
from windtunnel.engine.transitions.queues import best_queue, first_idle_of, is_available, reindex
from windtunnel.engine.transitions.single import peak_watts
from windtunnel.engine.transitions.tables import NOT_CHOSEN, RESUMED, Records, World
from windtunnel.engine.transitions.work import halt


@cold
def preempt(w: World) -> None:
    """Interrupt jobs for the sake of a waiting one, or note that no waiting job can interrupt others."""
    r = w.run[0]
    device = _contested_device(w) if r.routed else _least_urgent(w)
    if device < 0:
        r.contested = 0
        return
    while device >= 0:
        following = _after(w, device)
        _interrupt(w, device)
        device = following
    if not r.routed:
        sweep_all(w)  # an idle device may accept an interrupted job, but not the other one


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
    """Return whether the waiting job comes before the job that the device executes or leads, which can be interrupted.

    All devices of the job in progress must be available.
    """
    d = w.devices[device]
    if d.slot < 0 or d.held or leader_of(w, device) != device:
        return False
    member = device
    while member >= 0:
        if not is_available(w, member):
            return False
        member = w.gangs[member].following if GANGS and w.run[0].ganging else -1
    return bool(w.slots[slot].key < w.slots[d.slot].key and not _ends_now(w, device))


@cold
def _has_power(w: World, victims: int, device: int, slot: int) -> bool:
    """Return whether a waiting job could start in place of the jobs of a list and of a device (see ``may_draw``).

    Args:
        w: The tables.
        victims: The first of the list, or -1.
        device: The device, which leads its job, or the first of the list.
        slot: The waiting job.
    """
    r = w.run[0]
    if not (INTERRUPTS and r.gated):
        return True
    paused, drawn_w = r.paused, r.drawn_w
    need = peak_watts(w, device, slot) * float(_devices_for(w, slot))
    in_turn = r.line_count == 0 or w.line[r.line_first] == device
    other = victims
    while True:
        if w.devices[device].paused:
            paused -= 1
        else:
            drawn_w -= w.devices[device].need
        if other < 0:
            break
        device, other = other, _after(w, other)
    return bool(paused == 0 and in_turn and drawn_w + need <= r.cap_w)


@cold
def _devices_for(w: World, slot: int) -> int:
    """Return the number of devices that a job occupies."""
    if GANGS and w.run[0].ganging:
        size: int = w.workloads[w.slots[slot].work].gang
        return size
    return 1


@cold
def _after(w: World, device: int) -> int:
    """Return the job that follows the one of a device in the list of those that are interrupted, by its device."""
    if not GANGS or not w.run[0].ganging:
        return -1
    following: int = w.gangs[device].victim
    return following


@cold
def _contested_device(w: World) -> int:
    """Return the first device whose queue has a job that may interrupt its job in progress; -1 if there is none."""
    for device in range(w.run[0].devices):
        head = w.queues[device].head
        if head >= 0 and _can_preempt(w, device, head) and _has_power(w, -1, device, head):
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
    """Return the first of the jobs, by their devices, that a job of the central queues interrupts; -1 if there is none.

    Of the classes on which the waiting job can run it is the one where the most urgent of these jobs comes last in the
    order of the policy.
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
            if GANGS and r.ganging and not r.backfill and best_queue(w, c.first, -math.inf, -1) != queue:
                continue  # the class waits for an earlier job
            if first_idle_of(w, c) >= 0 and (not GANGS or not r.ganging or c.idle >= _devices_for(w, slot)):
                _forget(w, best)
                return -1  # idle devices lack power, and no other job starts before the first one
            found, lacks = _victims(w, c, slot)
            lacks_power = lacks_power or lacks
            if found >= 0 and (best < 0 or _before(w, best, found)):
                _forget(w, best)
                best = found
            else:
                _forget(w, found)
        if best >= 0 or lacks_power:
            return best


@cold
def _victims(w: World, c: Records, slot: int) -> tuple[int, bool]:
    """Return the first of the jobs, by their devices, that a waiting job would interrupt on a class; -1 if it cannot.

    The least urgent ones are chosen first: the last in the order of the policy, of these the one that started last,
    then the one of the highest device. Those that prove unnecessary are spared, the most urgent first.

    Returns:
        The first job, and whether others could be interrupted, but would not free enough power.
    """
    size = _devices_for(w, slot)
    free = c.idle if GANGS and w.run[0].ganging else 0
    first, lacks_power = -1, False
    while free < size:
        best = -1
        for device in range(c.first, c.first + c.count):
            if _is_chosen(w, device) or not _can_preempt(w, device, slot):
                continue
            if free + size_of(w, device) >= size and not _has_power(w, first, device, slot):
                lacks_power = True
                continue
            if best < 0 or _before(w, best, device):
                best = device
        if best < 0:
            _forget(w, first)
            return -1, lacks_power
        free += size_of(w, best)
        if GANGS and w.run[0].ganging:
            w.gangs[best].victim = first
        first = best
    if GANGS and w.run[0].ganging:
        first = _spare(w, first, free - size, slot)
    return first, lacks_power


@cold
def _is_chosen(w: World, device: int) -> bool:
    """Return whether the job of a device is in a list of those that are interrupted."""
    return bool(GANGS and w.run[0].ganging and w.gangs[device].victim != NOT_CHOSEN)


@cold
def _forget(w: World, first: int) -> None:
    """Remove all jobs from a list."""
    while first >= 0 and GANGS and w.run[0].ganging:
        following = w.gangs[first].victim
        w.gangs[first].victim = NOT_CHOSEN
        first = following


@cold
def _spare(w: World, first: int, spare: int, slot: int) -> int:
    """Remove the jobs from a list that a waiting job does not need to interrupt, and return the new first one.

    Args:
        w: The tables.
        first: The first of the list.
        spare: How many devices more than necessary are free without the jobs of the list.
        slot: The waiting job.
    """
    before, device = -1, first
    while device >= 0:
        following = w.gangs[device].victim
        if size_of(w, device) <= spare and _has_power_without(w, first, before, device, slot):
            spare -= size_of(w, device)
            w.gangs[device].victim = NOT_CHOSEN
            if before < 0:
                first = following
            else:
                w.gangs[before].victim = following
        else:
            before = device
        device = following
    return first


@cold
def _has_power_without(w: World, first: int, before: int, device: int, slot: int) -> bool:
    """Return whether a waiting job could start if a job after ``before`` were removed from the list."""
    following = w.gangs[device].victim
    if before < 0:
        return following >= 0 and _has_power(w, w.gangs[following].victim, following, slot)
    w.gangs[before].victim = following
    enough = _has_power(w, w.gangs[first].victim, first, slot)
    w.gangs[before].victim = device
    return enough


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
    if GANGS and r.ganging:
        w.gangs[device].victim = NOT_CHOSEN
        disband(w, device)
    reindex(w, device)
    r.feeding = device
