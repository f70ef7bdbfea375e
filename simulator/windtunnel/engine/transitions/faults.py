"""Faults of devices, links and power, and what happens to the jobs of a device that cannot complete them."""

from __future__ import annotations

import math

from windtunnel.engine.prepare.fault_schedule import CAP, FAIL, INTERRUPT, LINK_DOWN, LINK_UP, LOSE, MIGRATE, SPEED
from windtunnel.engine.transitions.consequences import sweep_all, to_place
from windtunnel.engine.transitions.designs import lose_designs, stop_loading
from windtunnel.engine.transitions.features import (
    DESIGNS,
    GANGS,
    PROGRESS,
    QUESTIONS,
    SERVERS,
    SINGLES,
    STREAMS,
    TRANSFERS,
    WAITS,
    cold,
)
from windtunnel.engine.transitions.gangs import all_linked, any_down, change_speed, disband, leader_of
from windtunnel.engine.transitions.handover import hand_again, hand_stranded
from windtunnel.engine.transitions.jobs import ended, interrupted, row_of, stops, waits_again
from windtunnel.engine.transitions.losses import cut_off, deliver, take_sequence
from windtunnel.engine.transitions.power import release, shed
from windtunnel.engine.transitions.progress import discard_progress, lose_progress
from windtunnel.engine.transitions.queues import best_queue, is_available, left, pop, reindex
from windtunnel.engine.transitions.single import complete, deliver_first_tokens
from windtunnel.engine.transitions.streams import deliver_jobs, remove_job, take_job
from windtunnel.engine.transitions.tables import DECODES, SINGLE, STREAM, Records, World
from windtunnel.engine.transitions.waits import pause, pause_ticks
from windtunnel.engine.transitions.work import halt, resume


@cold
def _try_again(w: World, device: int, slot: int, rule: int) -> bool:
    """Retry, migrate or fail an interrupted job; return whether it waits again."""
    x = w.rules[rule]
    if x.becomes == LOSE or w.slots[slot].starts >= x.attempts:
        if PROGRESS and w.run[0].progresses:
            discard_progress(w, slot)
        ended(w, device, slot, False)
        return False
    # A device that drains accepts no job any more, not even one that it had.
    moving = (x.becomes == MIGRATE or w.devices[device].enlisted == 0) and w.run[0].routed != 0
    # One that only decodes does not read its prompt again.
    if TRANSFERS and w.classes[w.devices[device].cls].role == DECODES:
        moving = w.run[0].routed != 0
    stops(w, device, slot, moving)
    ticks = pause_ticks(w, rule, w.slots[slot].starts) if WAITS else 0
    if ticks > 0:
        pause(w, -1 if moving else device, slot, ticks)
    else:
        waits_again(w, device, slot, moving)
    return True


@cold
def _return_single(w: World, device: int, rule: int) -> None:
    """Return the job or batch of a device."""
    d = w.devices[device]
    slot, count = d.slot, d.count
    d.slot = -1
    d.held = 0
    again = 0
    for _ in range(count):
        following = w.slots[slot].next
        if _try_again(w, device, slot, rule):
            again += 1
        slot = following
    interrupted(w, device, d.began, again)
    if GANGS and w.run[0].ganging:
        disband(w, device)


@cold
def _return_sequences(w: World, device: int, rule: int) -> None:
    """Return all sequences of a device."""
    w.devices[device].slot = -1
    while True:
        slot, delivered = take_sequence(w, device)
        if slot < 0:
            return
        start, row = w.slots[slot].start, row_of(w, w.slots[slot].job)
        first = w.jobs[row].first
        if _try_again(w, device, slot, rule):
            interrupted(w, device, start, 1)
            if delivered:  # its tokens are not delivered again
                w.jobs[row].first = first


@cold
def _return_jobs(w: World, device: int, rule: int) -> None:
    """Return all jobs of a device with streams."""
    while True:
        slot = take_job(w, device)
        if slot < 0:
            return
        start = w.slots[slot].start
        if _try_again(w, device, slot, rule):
            interrupted(w, device, start, 1)


@cold
def _forget_end(w: World, device: int) -> None:
    """Forget how the work of the device would have ended, and that it loads a design."""
    if QUESTIONS:
        w.extras[device].ending, w.extras[device].timed = -1, 0
    if DESIGNS and w.run[0].reconfigures:
        stop_loading(w, device)


@cold
def return_work(w: World, device: int, rule: int) -> None:
    """Retry, migrate or fail the jobs that the device cannot complete. Its work in progress must have stopped.

    If the device is down and the rule migrates jobs, those that wait for it are migrated too.
    """
    r, device = w.run[0], leader_of(w, device)
    d = w.devices[device]
    if r.gated and d.slot >= 0 and not d.held:
        release(w, device)
    if PROGRESS and r.progresses and d.slot >= 0 and w.classes[d.cls].kind == SINGLE:
        lose_progress(w, device)
    _forget_end(w, device)
    if SERVERS and r.serving:
        if TRANSFERS and r.disaggregated:
            hand_again(w, device)
        _return_sequences(w, device, rule)
    elif STREAMS and w.classes[d.cls].kind == STREAM:
        w.stations[device].peak_w = 0.0
        _return_jobs(w, device, rule)
    elif SINGLES and d.slot >= 0:
        _return_single(w, device, rule)
    while w.rules[rule].becomes == MIGRATE and r.routed and d.outages:
        queue = best_queue(w, device, -math.inf, -1)
        if queue < 0:
            break
        slot = pop(w, queue)
        r.waiting -= 1
        left(w, device)
        to_place(w, slot)
    _offer_again(w, device)


@cold
def fail_job(w: World, device: int, slot: int, rule: int) -> None:
    """Retry, migrate or fail one job of a device with streams, whose operation failed; the others continue."""
    start = w.slots[slot].start
    remove_job(w, device, slot)
    if _try_again(w, device, slot, rule):
        interrupted(w, device, start, 1)
    _offer_again(w, device)


@cold
def _offer_again(w: World, device: int) -> None:
    """Offer work to the device whose jobs were interrupted, and to the devices that may take these."""
    r = w.run[0]
    reindex(w, device)
    if PROGRESS:
        r.contested = 1  # other devices of a gang are idle now
    if not r.routed:
        sweep_all(w)  # an interrupted job may start at once on another device
    elif w.devices[device].outages == 0:
        r.feeding = device
    if r.gated:
        r.draining = 1


@cold
def go_down(w: World, device: int) -> None:
    """Take the device down: its work in progress stops."""
    leader = leader_of(w, device)
    d = w.devices[leader]
    if d.slot >= 0 and not d.held and not d.paused and not any_down(w, leader):
        halt(w, leader)
    w.devices[device].outages += 1
    if DESIGNS and w.run[0].reconfigures:
        lose_designs(w, device)


@cold
def come_back(w: World, device: int) -> None:
    """Return the device to service if it is up and reachable."""
    r, d = w.run[0], w.devices[device]
    if d.outages or d.linked == 0:
        return
    if SERVERS and r.serving:
        deliver(w, device)
    elif STREAMS and w.classes[d.cls].kind == STREAM:
        deliver_jobs(w, device)
    elif SINGLES and d.slot >= 0:
        if r.tokens:
            deliver_first_tokens(w, device)
        leader = leader_of(w, device)
        if w.devices[leader].held and (not GANGS or not r.ganging or all_linked(w, leader)):
            complete(w, leader)
    reindex(w, device)
    if not is_available(w, device):
        return
    if PROGRESS:
        r.contested = 1  # the job that it executes may be preempted again
    if r.gated and not r.routed:
        r.draining = 1
    else:
        r.feeding = device
    _assign_again(w)


@cold
def _assign_again(w: World) -> None:
    """Assign the jobs that no available device accepted so far."""
    r = w.run[0]
    hand_stranded(w)
    while r.unassigned >= 0:
        slot = r.unassigned
        r.unassigned = w.slots[slot].next
        if WAITS and w.slots[slot].starts < 0:  # it has given up waiting
            w.slots[slot].next = r.free
            r.free = slot
        else:
            r.waiting -= 1
            to_place(w, slot)


@cold
def set_speed(w: World, device: int, speed: float) -> None:
    """Let the device work at this share of the full speed from now on."""
    leader = leader_of(w, device)
    d = w.devices[leader]
    under_way = d.slot >= 0 and not d.paused and not d.held
    if under_way:
        halt(w, leader)
    if GANGS and w.run[0].ganging:
        change_speed(w, device, speed)
    else:
        d.rate = speed
    if under_way:
        resume(w, leader)


@cold
def _set_link(w: World, device: int, linked: int) -> None:
    """Connect or disconnect the device. What it has produced until now is recorded with its present link."""
    # The job of a gang has no tokens.
    if w.run[0].tokens and (not GANGS or not w.run[0].ganging or w.gangs[device].leader < 0):
        set_speed(w, device, w.devices[device].rate)
    if SERVERS and w.run[0].serving and w.devices[device].linked and not linked:
        cut_off(w, device)
    w.devices[device].linked = linked


@cold
def apply_fault(w: World, fault: Records) -> None:
    """Apply an event of the schedule of faults."""
    r = w.run[0]
    if fault.code == FAIL:
        go_down(w, fault.on)
        reindex(w, fault.on)
    elif fault.code == INTERRUPT:
        return_work(w, fault.on, fault.rule)
    elif fault.code == CAP:
        r.cap_w = fault.value
        shed(w)
        r.draining = 1
    elif fault.code == SPEED:
        set_speed(w, fault.on, fault.value)
    elif fault.code == LINK_DOWN:
        _set_link(w, fault.on, 0)
        reindex(w, fault.on)
        if r.gated:
            # The device may have been first in line for power, which the following ones can use now.
            r.draining = 1
    else:
        if fault.code == LINK_UP:
            _set_link(w, fault.on, 1)
        else:
            w.devices[fault.on].outages -= 1
        come_back(w, fault.on)
