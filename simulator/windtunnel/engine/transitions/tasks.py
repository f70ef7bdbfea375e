"""Work in progress on a device with streams: tasks that share its hardware engines, and its power.

The power of an active device is counted once, on a lane of its own, and divided among the running tasks. If the engines
together would exceed the device's power limit, all of them slow down in proportion, so that the device stays at its
limit and each segment uses the same energy.
"""

from __future__ import annotations

import math

import numpy as np

from windtunnel.engine.prepare.programs import WATT_GRAIN
from windtunnel.engine.transitions.clock import cancel_end, set_end
from windtunnel.engine.transitions.features import DESIGNS, QUESTIONS, cold
from windtunnel.engine.transitions.jobs import record_first_token
from windtunnel.engine.transitions.tables import LANE_BASE, LANES, LATEST, NEVER, PER_SECOND, World


@cold
def share_active(w: World, device: int) -> None:
    """Divide the energy for being active since the last call among the tasks that ran."""
    r, t = w.run[0], w.stations[device]
    if t.running >= 0:
        count = 0
        task = t.running
        while task >= 0:
            count += 1
            task = w.tasks[task].next
        t.active_each_j += t.active_w * (float(r.now - t.active_since) / PER_SECOND) / float(count)
    if not t.is_active:
        t.is_active, t.active_from = 1, r.now
        r.drawing_w += t.active_w
    t.active_since = r.now


@cold
def record_active(w: World, device: int) -> None:
    """Record the time for which the device was active, which ends now."""
    r, t = w.run[0], w.stations[device]
    t.is_active = 0
    r.drawing_w -= t.active_w
    span = r.now - t.active_from
    w.devices[device].energy += t.active_w * (float(span) / PER_SECOND)
    w.devices[device].busy += span
    if r.write and t.active_w > 0.0 and span > 0:
        iv = w.intervals[r.written]
        r.written += 1
        iv.on, iv.lane, iv.name, iv.start, iv.end, iv.watts = device, 0, 1, t.active_from, r.now, t.active_w


@cold
def settle_task(w: World, number: int) -> None:
    """Record the task's progress since the last call."""
    r, task = w.run[0], w.tasks[number]
    span = r.now - task.since
    if span > 0 and task.rate > 0.0:
        if task.first_left >= 0.0 and task.left - float(span) * task.rate <= task.first_left:
            tick = task.since + np.int64(math.ceil((task.left - task.first_left) / task.rate))
            record_first_token(w, task.on, task.slot, min(tick, r.now))
            task.first_left = -1.0
        task.left = max(task.left - float(span) * task.rate, 0.0)
        joules = task.drawn * (float(span) / PER_SECOND)
        w.slots[task.slot].energy += joules
        w.devices[task.on].energy += joules
        if DESIGNS and task.loading:
            w.overhead[0].loading += span
        if r.write:
            g = w.segments[task.segment]
            iv = w.intervals[r.written]
            r.written += 1
            iv.on, iv.lane, iv.name = task.on, LANE_BASE + g.lane * LANES + task.lane, g.name
            iv.start, iv.end, iv.watts = task.since, r.now, task.drawn
            if DESIGNS and task.loading:
                iv.name = r.load_word + task.loading - 1
    task.since = r.now


@cold
def balance(w: World, device: int) -> None:
    """Continue all running tasks at the rate that the device's speed and its power limit allow now."""
    r, d, t = w.run[0], w.devices[device], w.stations[device]
    demand = t.demand_w * d.rate
    rate = d.rate if demand <= t.headroom_w or demand == 0.0 else d.rate * (t.headroom_w / demand)
    first = NEVER
    number = t.running
    while number >= 0:
        task = w.tasks[number]
        # The time of a watchdog does not depend on the device's speed.
        own = 1.0 if QUESTIONS and task.timed else rate
        # Shares of the power are rounded down to the grain, so that their sum never exceeds the limit.
        drawn = task.watts if rate == 1.0 else math.floor(task.watts * rate / WATT_GRAIN) * WATT_GRAIN
        if task.rate != own or task.drawn != drawn:
            settle_task(w, number)
            r.drawing_w += drawn - task.drawn
            task.rate, task.drawn = own, drawn
            ticks = np.rint(task.left) if own == 1.0 else math.ceil(task.left / own)
            if ticks > float(LATEST - r.now):
                r.too_long = 1
                return
            task.end = r.now + np.int64(ticks)
        first = min(first, task.end)
        number = task.next
    if t.timed_end >= 0:
        cancel_end(w, device)
    t.timed_end = -1
    if first != NEVER:
        t.timed_end = first
        set_end(w, device, first)


@cold
def halt_tasks(w: World, device: int) -> None:
    """Stop all running tasks, and keep their progress."""
    r, t = w.run[0], w.stations[device]
    number = t.running
    if number >= 0:
        share_active(w, device)
    while number >= 0:
        task = w.tasks[number]
        settle_task(w, number)
        r.drawing_w -= task.drawn
        task.rate = task.drawn = 0.0
        number = task.next
    if t.is_active:
        record_active(w, device)
    if t.timed_end >= 0:
        cancel_end(w, device)
        t.timed_end = -1


@cold
def resume_tasks(w: World, device: int) -> None:
    """Continue all running tasks after a halt."""
    if w.stations[device].running >= 0:
        w.stations[device].active_since = w.run[0].now
        share_active(w, device)
    balance(w, device)
