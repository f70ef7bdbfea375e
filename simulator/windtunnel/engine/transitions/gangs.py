"""Gangs: the devices of one class that execute a job of several devices together, from its start to its end.

The device of the lowest number leads: only it has the event of the end, and functions that act on work act on the
leader. The others follow: they have the job's slot, so they are not idle, and their own busy time, energy and
intervals. All work at the speed of the slowest.
"""

from __future__ import annotations

import math

from windtunnel.engine.transitions.consequences import sweep_all
from windtunnel.engine.transitions.features import DESIGNS, GANGS, cold, hot
from windtunnel.engine.transitions.queues import best_queue, first_idle_of, reindex
from windtunnel.engine.transitions.tables import World


@hot
def leader_of(w: World, device: int) -> int:
    """Return the leader of the device's gang; the device itself if it is in none."""
    if GANGS and w.run[0].ganging and w.gangs[device].leader >= 0:
        leader: int = w.gangs[device].leader
        return leader
    return device


@cold
def size_of(w: World, device: int) -> int:
    """Return the number of devices that execute the job of a device."""
    if not GANGS or not w.run[0].ganging:
        return 1
    size: int = w.workloads[w.slots[w.devices[device].slot].work].gang
    return size


@cold
def startable_queue(w: World, device: int) -> int:
    """Return the queue whose next job can start on idle devices of the class of ``device``, which is idle; else -1.

    Only the first job of the policy's order may start; with ``backfill`` later ones may, if those before them need more
    devices than are idle.
    """
    r, c = w.run[0], w.classes[w.devices[device].cls]
    reindex(w, device)
    queue = best_queue(w, device, -math.inf, -1)
    while queue >= 0:
        s = w.slots[w.queues[queue].head]
        if w.workloads[s.work].gang <= c.idle:
            return queue
        if not r.backfill:
            return -1
        queue = best_queue(w, device, s.key, s.job)
    return -1


@cold
def first_idle(w: World, device: int, queue: int) -> int:
    """Return the device that leads the next job of a queue, which starts in the class of ``device``."""
    if w.workloads[w.slots[w.queues[queue].head].work].gang == 1:
        return device
    return first_idle_of(w, w.classes[w.devices[device].cls])


@cold
def form(w: World, leader: int) -> None:
    """Let the idle devices of the lowest numbers follow a device that starts a job of several devices."""
    d = w.devices[leader]
    size = w.workloads[w.slots[d.slot].work].gang
    if size == 1:
        return
    c = w.classes[d.cls]
    reindex(w, leader)
    w.gangs[leader].leader, w.gangs[leader].rate = leader, d.rate
    before, slowest = leader, d.rate
    for _ in range(1, size):
        member = first_idle_of(w, c)
        m = w.devices[member]
        m.slot, m.count, m.first_left = d.slot, 1, -1
        reindex(w, member)
        w.gangs[member].leader, w.gangs[member].rate = leader, m.rate
        w.gangs[before].following = member
        before, slowest = member, min(slowest, m.rate)
    _work_at(w, leader, slowest)
    # Other classes may have waited for this job to start.
    sweep_all(w)


@cold
def _work_at(w: World, leader: int, speed: float) -> None:
    """Set the speed at which all devices of a gang work."""
    member = leader
    while member >= 0:
        w.devices[member].rate = speed
        member = w.gangs[member].following


@cold
def change_speed(w: World, device: int, speed: float) -> None:
    """Note the speed of a device, whose work does not proceed at present."""
    g = w.gangs[device]
    if g.leader < 0:
        w.devices[device].rate = speed
        return
    g.rate = speed
    slowest, member = speed, g.leader
    while member >= 0:
        slowest = min(slowest, w.gangs[member].rate)
        member = w.gangs[member].following
    _work_at(w, g.leader, slowest)


@cold
def follow(w: World, leader: int) -> None:
    """Let the devices that follow do the work that their leader has begun."""
    r, d = w.run[0], w.devices[leader]
    member = w.gangs[leader].following
    while member >= 0:
        m = w.devices[member]
        m.since, m.segment, m.watts = r.now, d.segment, d.watts
        r.drawing_w += d.watts
        member = w.gangs[member].following


@cold
def all_linked(w: World, leader: int) -> bool:
    """Return whether all devices of the gang, or the single device, are reachable."""
    member = leader
    while member >= 0:
        if w.devices[member].linked == 0:
            return False
        member = w.gangs[member].following
    return True


@cold
def any_down(w: World, leader: int) -> bool:
    """Return whether a device of the gang, or the single device, is down: its work has stopped."""
    if not GANGS or not w.run[0].ganging:
        return bool(w.devices[leader].outages > 0)
    member = leader
    while member >= 0:
        if w.devices[member].outages > 0:
            return True
        member = w.gangs[member].following
    return False


@cold
def disband(w: World, leader: int) -> bool:
    """Free all devices of the gang that a device leads; return whether it leads one."""
    if w.gangs[leader].leader < 0:
        return False
    member = leader
    while member >= 0:
        g, d = w.gangs[member], w.devices[member]
        following = g.following
        d.slot, d.rate = -1, g.rate
        if DESIGNS:
            w.extras[member].loading = w.extras[member].timed = 0
        g.leader = g.following = -1
        reindex(w, member)
        member = following
    return True
