"""Assigns jobs to devices, from one central queue or from a queue for each device and a route that chooses it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.policy import Candidate, JobKey
from windtunnel.engine.prepare.prepared import FAR
from windtunnel.engine.transitions.adapters import has_adapter
from windtunnel.engine.transitions.consequences import sweep_classes, to_place
from windtunnel.engine.transitions.containers import NOT_HERE
from windtunnel.engine.transitions.designs import expected_row, loads_of, loads_on, with_fewest_loads
from windtunnel.engine.transitions.features import (
    ADAPTERS,
    DESIGNS,
    PREFIXES,
    PROGRESS,
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
from windtunnel.engine.transitions.handover import await_room, strand
from windtunnel.engine.transitions.jobs import row_of
from windtunnel.engine.transitions.loading import admitted
from windtunnel.engine.transitions.prefixes import cached_tokens, hashed
from windtunnel.engine.transitions.progress import forget_progress
from windtunnel.engine.transitions.queues import (
    best_queue,
    first_idle_of,
    is_available,
    is_idle,
    own_queue,
    push,
    reindex,
)
from windtunnel.engine.transitions.sequences import has_room, sequences_of
from windtunnel.engine.transitions.servers import begin_step
from windtunnel.engine.transitions.single import feed_single
from windtunnel.engine.transitions.streams import feed_streams
from windtunnel.engine.transitions.tables import BY_EACH, BY_TURN, PER_SECOND, PREFILLS, STREAM, Records, World
from windtunnel.engine.transitions.users import is_submitted, take_submission
from windtunnel.engine.transitions.waits import admits


@hot
def feed(w: World, device: int) -> None:
    """Let the device start the work that it accepts."""
    r, d = w.run[0], w.devices[device]
    if STREAMS and w.classes[d.cls].kind == STREAM:
        feed_streams(w, device)
        if not r.routed:
            reindex(w, device)
        return
    if d.slot >= 0:
        return
    if SERVERS and r.serving:
        if d.outages == 0:
            begin_step(w, device)
    elif SINGLES and is_available(w, device):
        feed_single(w, device)
    if not r.routed:
        # The device may have been idle, or may be idle now.
        idle = d.slot < 0 and is_available(w, device)
        if is_idle(w, device) != idle:
            reindex(w, device)


@hot
def sweep(w: World) -> None:
    """Offer work to the idle devices of the next class that has some; a device that lacks power ends its class."""
    r = w.run[0]
    while r.sweeping >= 0:
        c = w.classes[w.ints[r.sweeping]]
        device = first_idle_of(w, c)
        differ = (STREAMS and c.kind == STREAM) or (TIERS and r.levels > 1) or (TRANSFERS and c.role == PREFILLS)
        if differ and r.tried >= c.first:
            # Devices with streams, with sequences that wait for loads, or with KV caches that wait, differ in the
            # memory that is free, so the next one is tried too.
            device = _next_with_room(w, c, r.tried)
        if r.refused:
            r.sweep_end = r.sweeping
        elif device < 0 or r.tried == device or best_queue(w, device, -math.inf, -1) < 0:
            # The other devices of the class are identical, so they would not start either.
            r.sweeping += 1
        else:
            r.tried = device
            r.feeding = device
            return
        if r.sweeping == r.sweep_end:
            r.sweeping = -1
        r.tried = -1


@cold
def _next_with_room(w: World, c: Records, tried: int) -> int:
    """Return the first device of a class after ``tried`` that has room; -1 if there is none."""
    for device in range(tried + 1, c.first + c.count):
        if is_idle(w, device):
            return device
    return -1


@hot
def _near(first: float, second: float) -> bool:
    return first == second or abs(first - second) <= 1e-12 * max(abs(first), abs(second))


@hot
def _available_after(w: World, cls: int, device: int) -> int:
    """Return the first available device of a class after ``device``; -1 if there is none."""
    for other in range(device + 1, w.classes[cls].first + w.classes[cls].count):
        if is_available(w, other):
            return other
    return -1


@hot
def _of_server(w: World, device: int, slot: int) -> tuple[int, int, int, int, int, int, int]:
    """Return what a route sees of a device with continuous batching: the last fields of ``Candidate``."""
    r, v, s = w.run[0], w.servers[device], w.slots[slot]
    hit: Any = np.int64(0)
    home: Any = np.int64(s.job)
    if PREFIXES and r.caching:
        hit = cached_tokens(w, device, slot)
        home = w.ints[w.workloads[s.work].homes + s.rank]
    if USERS and r.users and w.user_of[slot] >= 0:
        home = w.user_of[slot]
    home = hashed(home) % r.devices
    running = admitted(v)
    room = w.classes[w.devices[device].cls].capacity
    adapter: Any = np.int64(1)
    if ADAPTERS and r.adapting and not has_adapter(w, device, slot):
        adapter = np.int64(0)
    return w.sequences[slot].prompt, hit, v.cached, room, running, (device - home) % r.devices, adapter


# Long: every candidate of every job passes through it, and a call takes time.
@hot
def _choose(w: World, score: Any, slot: int) -> tuple[int, float]:
    """Return the device with the best score and the job's expected time there; -1 if none is available.

    Scores that differ only by rounding are equal: three jobs at speed 3 take as long as one at speed 1, but 3 * (1 / 3)
    need not be 1.0. Of a class whose devices load designs, the device that needs the fewest loads is scored too.
    """
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
        own_energy = p.energy if p.energy_at < 0 else w.numbers[p.energy_at + s.rank]
        energy = own_energy
        device, load, load_s = node.winner, node.load, 0.0
        other = device
        if DESIGNS and r.reconfigures and w.classes[cls].regions:
            other = with_fewest_loads(w, cls, slot)
        if SERVERS and r.by == BY_EACH:
            device = _available_after(w, cls, w.classes[cls].first - 1)
        while True:
            if DESIGNS and r.reconfigures and w.classes[cls].regions:
                c = w.classes[cls]
                load = w.tree[c.leaf + device - c.first].load
                loads = float(loads_on(w, device, slot))
                load_s = loads * (float(c.load_ticks) / PER_SECOND)
                energy = own_energy + load_s * (c.load_w + c.idle_w)
            # In a large fleet each access to a device is a cache miss, so only devices that the score needs are read.
            present, backlog = load, 0.0
            if r.looks:
                d = w.devices[device]
                present = np.int64(d.present)
                backlog = float(max(d.ready - r.now, 0)) / PER_SECOND
            zero: Any = np.int64(0)
            prompt = hit = kv = kv_room = running = turns = adapter = zero
            if SERVERS and r.by == BY_EACH and r.serving:
                prompt, hit, kv, kv_room, running, turns, adapter = _of_server(w, device, slot)
            cost = p.price * (estimate + load_s)
            score_0, score_1 = score(
                Candidate(
                    present, backlog, estimate, p.mean, cost, energy, slack, load, p.preference, load_s,
                    prompt, hit, kv, kv_room, running, turns, adapter,
                )
            )  # fmt: skip
            if best < 0:
                better = True
            elif not _near(score_0, best_0):
                better = score_0 < best_0
            elif not _near(score_1, best_1):
                better = score_1 < best_1
            elif not _near(p.mean, best_mean):
                better = p.mean < best_mean
            else:
                better = device < best
            if better:
                best, best_0, best_1, best_mean, best_estimate = device, score_0, score_1, p.mean, estimate
            if SERVERS and r.by == BY_EACH:
                device = _available_after(w, cls, device)
                if device < 0:
                    break
            elif device == other:
                break
            else:
                device = other
    return best, best_estimate


@cold
def _choose_to_decode(w: World, score: Any, slot: int) -> int:
    """Return the device that decodes a request whose prompt has been read; -1 if none is available.

    Devices that have memory for it now come before others, and among these the one with the best score.
    """
    r, s = w.run[0], w.slots[slot]
    deadline = w.workloads[s.work].deadline
    slack = float(deadline) / PER_SECOND if deadline < FAR else math.inf
    zero: Any = np.int64(0)
    best: Any = np.int64(-1)
    best_0 = best_1 = best_mean = 0.0
    best_full = False
    for place in range(w.ints[r.decode_at + s.signature], w.ints[r.decode_at + s.signature + 1]):
        cls = w.ints[r.decode_classes + place]
        c, p = w.classes[cls], w.programs[cls * r.workloads + s.work]
        estimate = p.estimate if p.estimate_at < 0 else w.numbers[p.estimate_at + s.rank]
        energy = p.energy if p.energy_at < 0 else w.numbers[p.energy_at + s.rank]
        for device in range(c.first, c.first + c.count):
            if not is_available(w, device):
                continue
            port, d = w.ports[device], w.devices[device]
            full = port.awaiting >= 0 or sequences_of(w, device) >= c.most_sequences
            full = full or not has_room(w, device, slot, w.sequences[slot].prompt)
            prompt, hit, kv, kv_room, running, turns, adapter = _of_server(w, device, slot)
            present = zero + (d.present if r.routed else sequences_of(w, device) + port.waiting)
            backlog = float(max(d.ready - r.now, 0)) / PER_SECOND
            score_0, score_1 = score(
                Candidate(
                    present, backlog, estimate, p.mean, p.price * estimate, energy, slack, zero + port.turn,
                    p.preference, 0.0, prompt, hit, kv, kv_room, running, turns,
                    adapter,
                )
            )  # fmt: skip
            if best < 0 or full != best_full:
                better = best < 0 or best_full
            elif not _near(score_0, best_0):
                better = score_0 < best_0
            elif not _near(score_1, best_1):
                better = score_1 < best_1
            else:
                better = not _near(p.mean, best_mean) and p.mean < best_mean
            if better:
                best, best_0, best_1, best_mean, best_full = zero + device, score_0, score_1, p.mean, full
    return int(best)


@cold
def hand_next(w: World, score: Any) -> None:
    """Choose the device that decodes the next request whose prompt has been read."""
    r = w.run[0]
    slot = r.handing
    r.handing = w.handovers[slot].next
    device = _choose_to_decode(w, score, slot)
    if device < 0:
        strand(w, slot)
        return
    r.turn += 1
    w.ports[device].turn = r.turn
    await_room(w, device, slot)
    r.feeding = device


@hot
def place_next(w: World, score: Any) -> None:
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
            if r.unassigned < 0:
                r.unassigned = slot
            else:
                w.slots[r.unassigned_end].next = slot
            r.unassigned_end = slot
            return
        d = w.devices[device]
        d.present += 1
        d.ready = max(d.ready, r.now) + np.int64(np.rint(estimate * PER_SECOND))
        if DESIGNS and r.reconfigures and w.classes[d.cls].regions:
            d.ready += loads_of(w, expected_row(w, device), device, slot) * w.classes[d.cls].load_ticks
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
        sweep_classes(w, r.signature_classes + w.ints[at], r.signature_classes + w.ints[at + 1])


# Long: every job passes through it, and a call takes time.
@hot
def arrive(w: World, key: Any) -> None:
    """Let the next job of the block of arrivals arrive."""
    r = w.run[0]
    slot = r.free
    s = w.slots[slot]
    r.free = s.next
    s.job, s.start = r.job, -1
    s.starts, s.timed, s.key, s.energy = 0, 0, 0.0, 0.0
    if PROGRESS and r.progresses:
        forget_progress(w, slot)
    if USERS and r.users and is_submitted(w):
        take_submission(w, slot)
        if r.exceeded:
            return
    else:
        a = w.arrivals[r.next]
        s.arrival, s.work, s.rank, s.signature = a.tick, a.work, a.rank, a.signature
        if r.stretched:
            w.draws[slot, r.draws] = a.stretch
        for draw in range(r.draws):
            w.draws[slot, draw] = w.arrival_draws[r.next, draw]
        r.next += 1
    if TALLIES and r.tallying:
        row = row_of(w, s.job)
        if row >= 0:
            w.jobs[row].arrival, w.jobs[row].work = s.arrival, s.work
        w.counts[s.work, 3] += 1
        r.last_arrival = s.arrival
    if USERS and r.users:
        j = w.jobs[s.job]
        j.arrival, j.work, j.rank, j.signature = s.arrival, s.work, s.rank, s.signature
    work = w.workloads[s.work]
    if SERVERS and r.serving:
        q = w.sequences[slot]
        q.prompt, q.output = w.ints[work.prompts + s.rank], w.ints[work.outputs + s.rank]
        q.read = q.chunk = 0
    r.job += 1
    r.arrived += 1
    if r.keyed:
        cls = w.ints[r.signature_classes + w.ints[r.signature_at + s.signature]]
        p = w.programs[cls * r.workloads + s.work]
        size = p.estimate if p.estimate_at < 0 else w.numbers[p.estimate_at + s.rank]
        s.key = key(JobKey(s.arrival, work.priority, s.arrival + work.deadline, size))
    if WAITS and r.waits and not admits(w, slot):
        return
    to_place(w, slot)
