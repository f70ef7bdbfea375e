"""The fleet's semantics as one state machine over arrays: arrive, route, start, end, fail, repair, slow, wait for
power.

What each transition means is the process engine's (engine/dispatch.py, engine/stations/single.py), which is written for
reading; this one is for speed, and the differential tests hold them to the same ticks. Of the events of one tick ends
come first, by device; then faults, in the order of their schedule; then timers; then arrivals.

An event does not call what follows from it: it notes it in the run's record (``feeding``, ``sweeping``, ``placing``,
``draining``), and the loop does that before the next event. So each function is called from one place, which keeps
both the reader and the compiler from going around in circles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.policy import Candidate, JobKey
from windtunnel.engine.compiled.state import (
    BY_BACKLOG,
    BY_JOB,
    BY_PRESENT,
    BY_TURN,
    CONSTANT,
    DONE,
    MORE_FAULTS,
    MORE_INTERVALS,
    MORE_JOBS,
    MORE_SLOTS,
    MORE_TIMERS,
    NO_BATCH,
    TOO_LONG,
    Records,
    World,
)
from windtunnel.engine.compiled.structures import (
    NOT_HERE,
    cold,
    heap_pop,
    heap_remove,
    hot,
    meld,
    sift_down,
    sift_up,
    tree_set,
    without_root,
)
from windtunnel.engine.faults import CAP, FAIL, LINK_DOWN, LINK_UP, LOSE, MIGRATE, SPEED
from windtunnel.engine.fleet import FAR
from windtunnel.engine.programs import WATT_GRAIN

PER_SECOND = 1e12
_TOO_MANY = 9.2e18
"""Ticks beyond which no span is kept."""
_NEVER = 2**63 - 1
_LATEST = 2**63 - 2


# Queues of waiting jobs.


@hot
def _push(w: World, queue: int, slot: int) -> None:
    q, slots = w.queues[queue], w.slots
    q.number += 1
    slots[slot].next = -1
    if w.run[0].keyed:
        slots[slot].child = -1
        q.head = meld(q.head, slot, slots)
    elif q.head < 0:
        q.head = q.tail = slot
    elif slots[slot].job > slots[q.tail].job:
        slots[q.tail].next = slot
        q.tail = slot
    else:
        # A job that comes back from a failure goes to its place in the order of arrival.
        before, at = -1, q.head
        while slots[at].job < slots[slot].job:
            before, at = at, slots[at].next
        slots[slot].next = at
        if before < 0:
            q.head = slot
        else:
            slots[before].next = slot


@hot
def _pop(w: World, queue: int) -> int:
    q = w.queues[queue]
    slot = q.head
    q.number -= 1
    q.head = without_root(slot, w.slots) if w.run[0].keyed else w.slots[slot].next
    return slot


@hot
def _own_queue(w: World, device: int, slot: int) -> int:
    """The queue that the job waits in: the device's, or where there is one for all, that of its signature."""
    r = w.run[0]
    owner = device if r.routed else w.slots[slot].signature
    return owner if r.batch == NO_BATCH else owner * r.workloads + w.slots[slot].work


@hot
def _best_queue(w: World, device: int, after_key: float, after_job: int) -> int:
    """The queue whose next job the device should take, of those whose heads come after (key, job); -1 without one."""
    r = w.run[0]
    if r.routed:
        each = 1 if r.batch == NO_BATCH else r.workloads
        first, last = device * each, (device + 1) * each
    else:
        at = r.queue_at + w.devices[device].cls
        first, last = w.ints[at], w.ints[at + 1]
    best = -1
    best_key, best_job = math.inf, np.int64(FAR)
    for place in range(first, last):
        queue = place if r.routed else w.ints[r.queues_of + place]
        head = w.queues[queue].head
        if head < 0:
            continue
        s = w.slots[head]
        if s.key < after_key or (s.key == after_key and s.job <= after_job):
            continue
        if best < 0 or s.key < best_key or (s.key == best_key and s.job < best_job):
            best, best_key, best_job = queue, s.key, s.job
    return best


# What the tree of a class says of a device.


@hot
def _reindex(w: World, device: int) -> None:
    r, d = w.run[0], w.devices[device]
    if d.up == 0 or d.linked == 0:
        load = NOT_HERE
    elif not r.routed:
        load = 0 if d.slot < 0 else NOT_HERE
    elif r.by == BY_PRESENT:
        load = d.present
    elif r.by == BY_BACKLOG:
        load = d.ready
    else:
        load = d.turn
    c = w.classes[d.cls]
    tree_set(w.tree, c.root, c.leaves, device - c.first, load)


# Work under way.


@hot
def _way(w: World, device: int, slot: int) -> Records:
    """The job's way through its program."""
    r, s = w.run[0], w.slots[slot]
    way = w.programs[w.devices[device].cls * r.workloads + s.work].ways
    choice = w.workloads[s.work].way_at
    return w.ways[way if choice < 0 else way + w.ints[choice + s.rank]]


@hot
def _segment_watts(w: World, segment: int, slot: int) -> float:
    g = w.segments[segment]
    return g.watts if g.watts_at < 0 else w.numbers[g.watts_at + w.slots[slot].rank]


@hot
def _go(w: World, device: int) -> bool:
    """Let the present segment go on from now, at the device's speed; False beyond the last tick there is."""
    r, d = w.run[0], w.devices[device]
    d.since = r.now
    ticks = d.left
    d.watts = d.full
    if d.rate != 1.0:
        d.watts = math.floor(d.full * d.rate / WATT_GRAIN) * WATT_GRAIN
        slowed = math.ceil(float(d.left) / d.rate)
        if slowed > _TOO_MANY:
            return False
        ticks = np.int64(slowed)
    if ticks > _LATEST - r.now:
        return False
    if r.stale == device + 1:
        r.stale = 0
        w.ends[0].tick, w.ends[0].which = r.now + ticks, device
        sift_down(w.ends, r.heap, 0)
    else:
        w.ends[r.heap].tick, w.ends[r.heap].which = r.now + ticks, device
        r.heap += 1
        sift_up(w.ends, r.heap - 1)
    return True


@hot
def _segment(w: World, device: int) -> bool:
    """Begin the present segment of the device's job."""
    d = w.devices[device]
    g, s = w.segments[d.segment], w.slots[d.slot]
    if g.kind == CONSTANT:
        ticks = g.ticks
    elif g.kind == BY_JOB:
        ticks = w.ints[g.ticks_at + s.rank]
    else:
        scaled = np.rint(g.seconds * w.draws[d.slot, g.draw] * PER_SECOND)
        if scaled > _TOO_MANY:
            return False
        ticks = np.int64(scaled)
    if s.stretch != 1.0:
        scaled = np.rint(float(ticks) * s.stretch)
        if scaled > _TOO_MANY:
            return False
        ticks = np.int64(scaled)
    d.left = ticks
    d.full = _segment_watts(w, d.segment, d.slot)
    return _go(w, device)


@hot
def _started(w: World, device: int, slot: int) -> None:
    r, s = w.run[0], w.slots[slot]
    s.start = r.now
    s.starts += 1
    r.waiting -= 1
    r.running += 1
    if r.record:
        w.jobs[s.job].start, w.jobs[s.job].on = r.now, device


@hot
def _begin(w: World, device: int, queue: int, need: float) -> bool:
    """Start the queue's next job on an idle device."""
    r, d = w.run[0], w.devices[device]
    slot = _pop(w, queue)
    _started(w, device, slot)
    w.slots[slot].next = -1
    d.slot, d.count, d.began, d.need = slot, 1, r.now, need
    way = _way(w, device, slot)
    d.segment, d.last = way.first, way.last
    return _segment(w, device)


@cold
def _begin_batch(w: World, device: int, queue: int, size: int, need: float) -> bool:
    """Start the first ``size`` jobs of a queue as one."""
    r, d = w.run[0], w.devices[device]
    first: Any = np.int64(-1)
    last: Any = np.int64(-1)
    longest, stretch = 0.0, 1.0
    for _ in range(size):
        slot = _pop(w, queue)
        _started(w, device, slot)
        longest = max(longest, w.draws[slot, 0])
        stretch = max(stretch, w.slots[slot].stretch)
        if first < 0:
            first = slot
        else:
            w.slots[last].next = slot
        last = slot
    w.slots[last].next = -1
    d.slot, d.count, d.began, d.need = first, size, r.now, need
    p = w.programs[d.cls * r.workloads + w.slots[first].work]
    seconds = w.numbers[p.batch_at + size - 1]
    if p.batch_drawn:
        seconds = seconds * longest
    scaled = np.rint(seconds * PER_SECOND)
    if stretch != 1.0:
        scaled = np.rint(scaled * stretch)
    if scaled > _TOO_MANY:
        return False
    d.segment = d.last = 0
    d.left = np.int64(scaled)
    d.full = w.numbers[p.batch_at + r.batch_size + size - 1]
    return _go(w, device)


@hot
def _settle(w: World, device: int) -> None:
    """Write down what the device has done of its present segment until now."""
    r, d = w.run[0], w.devices[device]
    span = r.now - d.since
    if span <= 0:
        return
    d.busy += span
    joules = d.watts * (float(span) / PER_SECOND)
    d.energy += joules
    if not r.write or w.programs[d.cls * r.workloads + w.slots[d.slot].work].own:
        return
    slot = d.slot
    for _ in range(d.count):
        w.slots[slot].energy += joules / d.count
        slot = w.slots[slot].next
    iv = w.intervals[r.written]
    r.written += 1
    iv.on, iv.start, iv.end, iv.watts = device, d.since, r.now, d.watts
    if r.batch == NO_BATCH:
        iv.lane, iv.name = w.segments[d.segment].lane, w.segments[d.segment].name
    else:
        iv.lane, iv.name = 0, -d.count


@cold
def _pass_time(w: World, device: int) -> None:
    """Take what was done since the segment was last looked at off what is left of it."""
    r, d = w.run[0], w.devices[device]
    span = r.now - d.since
    done = span if d.rate == 1.0 else np.int64(math.floor(float(span) * d.rate))
    d.left = max(d.left - done, 0)
    d.since = r.now


# Power.


@cold
def _start_sweep(w: World, first: int, end: int) -> None:
    """Offer work to the idle devices of the classes listed from ``first`` up to ``end``, in their order."""
    r = w.run[0]
    r.sweeping, r.sweep_end, r.tried, r.refused = first, end, -1, 0


@cold
def _may_draw(w: World, device: int, need: float) -> bool:
    """Whether the power budget lets the device start what needs ``need`` watts; otherwise it stands in line for it."""
    r, d = w.run[0], w.devices[device]
    first = not r.routed or r.line_count == 0 or w.line[r.line_first] == device
    if r.paused == 0 and first and r.drawn_w + need <= r.cap_w:
        r.drawn_w += need
        return True
    r.refused = 1
    if r.routed and not d.in_line:
        w.line[(r.line_first + r.line_count) % len(w.line)] = device
        r.line_count += 1
        d.in_line = 1
    return False


@cold
def _release(w: World, device: int) -> None:
    """The device's work no longer needs its watts."""
    r, d = w.run[0], w.devices[device]
    if d.paused:
        d.paused = 0
        r.paused -= 1
    else:
        r.drawn_w -= d.need
    d.need = 0.0
    r.draining = 1


@cold
def _shed(w: World) -> None:
    """Pause what was started last until the rest keeps within the budget."""
    r = w.run[0]
    while r.drawn_w > r.cap_w:
        latest = -1
        for device in range(r.devices):
            d = w.devices[device]
            if d.slot >= 0 and not d.paused and not d.held and (latest < 0 or d.began >= w.devices[latest].began):
                latest = device
        if latest < 0:
            return
        _settle(w, latest)
        _pass_time(w, latest)
        r.heap = heap_remove(w.ends, r.heap, latest)
        w.devices[latest].paused = 1
        r.paused += 1
        r.drawn_w -= w.devices[latest].need


@cold
def _drain(w: World) -> bool:
    """One step of giving away power that may have become free: to paused work, oldest first, then along the line."""
    r = w.run[0]
    if r.paused:
        oldest = -1
        for device in range(r.devices):
            d = w.devices[device]
            if d.paused and (oldest < 0 or d.began < w.devices[oldest].began):
                oldest = device
        d = w.devices[oldest]
        if r.drawn_w + d.need > r.cap_w:
            r.draining = 0
            return True
        r.drawn_w += d.need
        d.paused = 0
        r.paused -= 1
        return _go(w, oldest)
    if not r.routed:
        r.draining = 0
        _start_sweep(w, r.all_classes, r.all_classes + r.classes)
        return True
    if r.line_count == 0:
        r.draining = 0
        return True
    device = w.line[r.line_first]
    d = w.devices[device]
    if r.tried != device and d.slot < 0 and d.up and d.linked:
        r.tried, r.refused = device, 0
        r.feeding = device
        return True
    if r.tried == device and r.refused:
        r.draining = 0
    else:
        r.line_first = (r.line_first + 1) % len(w.line)
        r.line_count -= 1
        d.in_line = 0
    r.tried = -1
    return True


# Dispatch.


@cold
def _batch_size(w: World, device: int, queue: int) -> int:
    """How many jobs of the queue the device would take as one now; 0: they wait for company, and a timer is set."""
    r, d, slots = w.run[0], w.devices[device], w.slots
    s = slots[w.queues[queue].head]
    count = min(w.queues[queue].number, r.batch_size)
    waited = r.now - s.arrival
    if count < r.batch_size and waited < r.batch_wait:
        if not s.timed:
            s.timed = 1
            timer = w.timers[r.timer_count]
            timer.tick, timer.which = r.now + r.batch_wait - waited, device if r.routed else s.job
            r.timer_count += 1
            sift_up(w.timers, r.timer_count - 1)
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
def _feed(w: World, device: int) -> bool:
    """Give the device what it can take; False when time runs out of ticks."""
    r, d = w.run[0], w.devices[device]
    if d.slot >= 0 or d.up == 0 or d.linked == 0:
        return True
    after_key = -math.inf
    after_job: Any = np.int64(-1)
    need = 0.0
    while True:
        queue = _best_queue(w, device, after_key, after_job)
        if queue < 0:
            return True
        head = w.queues[queue].head
        if r.batch == NO_BATCH:
            if r.gated:
                way = _way(w, device, head)
                for segment in range(way.first, way.last + 1):
                    need = max(need, _segment_watts(w, segment, head))
                if not _may_draw(w, device, need):
                    return True
            good = _begin(w, device, queue, need)
            break
        size = _batch_size(w, device, queue)
        if size > 0:
            if r.gated:
                p = w.programs[d.cls * r.workloads + w.slots[head].work]
                need = w.numbers[p.batch_at + r.batch_size + size - 1]
                if not _may_draw(w, device, need):
                    return True
            good = _begin_batch(w, device, queue, size, need)
            break
        after_key, after_job = w.slots[head].key, w.slots[head].job
    if not r.routed:
        c = w.classes[d.cls]
        if w.tree[c.root + c.leaves + device - c.first].load == 0:
            _reindex(w, device)
    return good


@cold
def _sweep(w: World) -> None:
    """One step of offering work to idle devices, class after class; a refusal for power ends it."""
    r = w.run[0]
    c = w.classes[w.ints[r.sweeping]]
    device = w.tree[c.root + 1].winner
    if r.refused:
        r.sweep_end = r.sweeping
    elif w.tree[c.root + 1].load >= NOT_HERE or r.tried == device or _best_queue(w, device, -math.inf, -1) < 0:
        # Its other devices would refuse what this one has refused: they are alike.
        r.sweeping += 1
    else:
        r.tried = device
        r.feeding = device
        return
    if r.sweeping == r.sweep_end:
        r.sweeping = -1
    r.tried = -1


@hot
def _near(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= 1e-12 * max(abs(one), abs(other))


@hot
def _choose(w: World, score: Any, slot: int) -> tuple[int, float]:
    """The device that the policy's score likes best, and the job's expected time there; -1 when none of its is up."""
    r, s = w.run[0], w.slots[slot]
    deadline = w.workloads[s.work].deadline
    slack = float(deadline) / PER_SECOND if deadline < FAR else math.inf
    best: Any = np.int64(-1)
    best_0 = best_1 = best_mean = best_estimate = 0.0
    for place in range(w.ints[r.signature_at + s.signature], w.ints[r.signature_at + s.signature + 1]):
        cls = w.ints[r.signature_classes + place]
        node = w.tree[w.classes[cls].root + 1]
        if node.load >= NOT_HERE:
            continue
        d = w.devices[node.winner]
        p = w.programs[cls * r.workloads + s.work]
        estimate = p.estimate if p.estimate_at < 0 else w.numbers[p.estimate_at + s.rank]
        energy = p.energy if p.energy_at < 0 else w.numbers[p.energy_at + s.rank]
        backlog = float(max(d.ready - r.now, 0)) / PER_SECOND
        score_0, score_1 = score(
            Candidate(d.present, backlog, estimate, p.mean, p.price * estimate, energy, slack, node.load, p.preference)
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
def _place(w: World, score: Any) -> None:
    """Find a place for the next of the jobs that need one: a device's queue, or the one for all."""
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
        d.turn = r.turn
        _reindex(w, device)
        _push(w, _own_queue(w, device, slot), slot)
        r.feeding = device
        return
    _push(w, _own_queue(w, 0, slot), slot)
    if not r.paused:
        at = r.signature_at + s.signature
        _start_sweep(w, r.signature_classes + w.ints[at], r.signature_classes + w.ints[at + 1])


@hot
def _to_place(w: World, slot: int) -> None:
    r = w.run[0]
    w.slots[slot].next = -1
    w.slots[slot].timed = 0
    if r.placing < 0:
        r.placing = slot
    else:
        w.slots[r.placing_end].next = slot
    r.placing_end = slot


@hot
def _left(w: World, device: int) -> None:
    """A job has left the device, done, moved or lost."""
    r, d = w.run[0], w.devices[device]
    d.present -= 1
    if d.present == 0:
        d.ready = 0
    if r.by != BY_TURN:
        _reindex(w, device)


@hot
def _end_job(w: World, device: int, slot: int, completed: bool) -> None:
    r, s = w.run[0], w.slots[slot]
    r.running -= 1
    r.last_finish = r.now
    if completed:
        r.completed += 1
        w.devices[device].done += 1
    else:
        r.failed += 1
    if r.record:
        j = w.jobs[s.job]
        j.finish, j.starts, j.energy = r.now, s.starts, s.energy
        if not completed:
            j.lost = 1
    if r.routed:
        _left(w, device)
    s.next = r.free
    r.free = slot


@hot
def _complete(w: World, device: int) -> None:
    """The device's job, or batch, is done and delivered."""
    r, d = w.run[0], w.devices[device]
    slot = d.slot
    d.slot = -1
    for _ in range(d.count):
        following = w.slots[slot].next
        _end_job(w, device, slot, True)
        slot = following
    if r.gated and not d.held:
        _release(w, device)
    d.held = 0
    if r.gated and not r.routed:
        # It takes its turn in the round that follows.
        _reindex(w, device)
    else:
        r.feeding = device


@hot
def _end(w: World, device: int) -> bool:
    """The present segment of the device has come to its end."""
    d = w.devices[device]
    _settle(w, device)
    if d.segment < d.last:
        d.segment += 1
        return _segment(w, device)
    if d.linked:
        _complete(w, device)
    else:
        d.held = 1
        if w.run[0].gated:
            _release(w, device)
    return True


# Faults.


@cold
def _fail(w: World, fault: Records) -> None:
    """A device stops: its work is interrupted, and tried again, moved or lost."""
    r, device = w.run[0], fault.on
    d = w.devices[device]
    d.up = 0
    moving = fault.jobs == MIGRATE and r.routed
    slot, count = d.slot, d.count
    if slot >= 0:
        if not d.held and not d.paused:
            _settle(w, device)
            r.heap = heap_remove(w.ends, r.heap, device)
        d.slot = -1
        if r.gated and not d.held:
            _release(w, device)
        d.held = 0
        for _ in range(count):
            s = w.slots[slot]
            following = s.next
            if fault.jobs == LOSE or s.starts >= fault.attempts:
                _end_job(w, device, slot, False)
            else:
                r.running -= 1
                s.start = -1
                if r.record:
                    j = w.jobs[s.job]
                    j.start, j.on, j.starts, j.energy = -1, -1, s.starts, s.energy
                if moving:
                    _left(w, device)
                    _to_place(w, slot)
                else:
                    r.waiting += 1
                    _push(w, _own_queue(w, device, slot), slot)
            slot = following
    while moving:
        queue = _best_queue(w, device, -math.inf, -1)
        if queue < 0:
            break
        slot = _pop(w, queue)
        r.waiting -= 1
        _left(w, device)
        _to_place(w, slot)
    _reindex(w, device)
    if not r.routed and not r.paused:
        # What was interrupted may start again at once on another device.
        _start_sweep(w, r.all_classes, r.all_classes + r.classes)


@cold
def _back(w: World, device: int) -> None:
    """The device can be used again, if it is up and can be reached."""
    r, d = w.run[0], w.devices[device]
    if d.up == 0 or d.linked == 0:
        return
    if d.held:
        _complete(w, device)
    _reindex(w, device)
    if r.gated and not r.routed:
        r.draining = 1
    else:
        r.feeding = device
    while r.limbo >= 0:
        slot = r.limbo
        r.limbo = w.slots[slot].next
        r.waiting -= 1
        _to_place(w, slot)


@cold
def _fault(w: World) -> bool:
    """The next fault of the schedule happens."""
    r = w.run[0]
    fault = w.faults[r.fault]
    r.fault += 1
    if fault.code == FAIL:
        _fail(w, fault)
    elif fault.code == CAP:
        r.cap_w = fault.value
        _shed(w)
        r.draining = 1
    elif fault.code == SPEED:
        d = w.devices[fault.on]
        under_way = d.slot >= 0 and not d.paused and not d.held
        if under_way:
            _settle(w, fault.on)
            _pass_time(w, fault.on)
            r.heap = heap_remove(w.ends, r.heap, fault.on)
        d.rate = fault.value
        if under_way:
            return _go(w, fault.on)
    elif fault.code == LINK_DOWN:
        w.devices[fault.on].linked = 0
        _reindex(w, fault.on)
    else:
        if fault.code == LINK_UP:
            w.devices[fault.on].linked = 1
        else:
            w.devices[fault.on].up = 1
        _back(w, fault.on)
    return True


# Time.


@hot
def _arrive(w: World, key: Any) -> None:
    r = w.run[0]
    slot = r.free
    s, a = w.slots[slot], w.arrivals[r.next]
    r.free = s.next
    s.job, s.arrival, s.start, s.work, s.rank, s.signature = r.job, a.tick, -1, a.work, a.rank, a.signature
    s.starts, s.timed, s.key, s.energy, s.stretch = 0, 0, 0.0, 0.0, a.stretch
    for draw in range(r.draws):
        w.draws[slot, draw] = w.arrival_draws[r.next, draw]
    r.next += 1
    r.job += 1
    r.arrived += 1
    if r.keyed:
        work = w.workloads[s.work]
        cls = w.ints[r.signature_classes + w.ints[r.signature_at + s.signature]]
        p = w.programs[cls * r.workloads + s.work]
        size = p.estimate if p.estimate_at < 0 else w.numbers[p.estimate_at + s.rank]
        s.key = key(JobKey(s.arrival, work.priority, s.arrival + work.deadline, size))
    _to_place(w, slot)


@hot
def _room(w: World) -> int:
    """What the kernel might run out of at the next event; DONE when nothing."""
    r = w.run[0]
    if r.write and r.written + r.devices + 2 > len(w.intervals):
        return MORE_INTERVALS
    if r.batch != NO_BATCH and r.timer_count + len(w.queues) + 2 > len(w.timers):
        return MORE_TIMERS
    if r.next >= len(w.arrivals) and not r.last:
        return MORE_JOBS
    if r.free < 0:
        return MORE_SLOTS
    if r.fault >= len(w.faults) and not r.faults_end:
        return MORE_FAULTS
    return DONE


def advance(w: World, score: Any, key: Any) -> int:
    """Let events happen until the run is over or something is needed; says which."""
    r = w.run[0]
    while True:
        # What follows from the last event comes before the next one.
        if r.feeding >= 0:
            device = r.feeding
            r.feeding = -1
            if not _feed(w, device):
                return TOO_LONG
            if not r.routed and w.devices[device].slot < 0:
                _reindex(w, device)
            continue
        if r.sweeping >= 0:
            _sweep(w)
            continue
        if r.placing >= 0:
            _place(w, score)
            continue
        if r.draining:
            if not _drain(w):
                return TOO_LONG
            continue
        if r.stale:
            r.stale = 0
            r.heap = heap_pop(w.ends, r.heap)
        needed = _room(w)
        if needed != DONE:
            return needed
        arrival = w.arrivals[r.next].tick if r.next < len(w.arrivals) else np.int64(_NEVER)
        timer = w.timers[0].tick if r.timer_count else np.int64(_NEVER)
        fault = w.faults[r.fault].tick if r.fault < len(w.faults) else np.int64(_NEVER)
        # The least tick goes first; at one tick an end, then a fault, then a timer, then an arrival.
        other = min(arrival, timer, fault)
        if r.heap and w.ends[0].tick <= other:
            if w.ends[0].tick > r.end:
                return DONE
            r.now = w.ends[0].tick
            device = w.ends[0].which
            # Its entry stays where it is, before all others, until it is known whether the device goes on: most do.
            r.stale = device + 1
            w.ends[0].which = -1
            if not _end(w, device):
                return TOO_LONG
        elif other > r.end or (other == fault and arrival == _NEVER and r.running + r.waiting == 0):
            return DONE
        elif other == fault:
            r.now = fault
            if not _fault(w):
                return TOO_LONG
        elif other == timer:
            r.now = timer
            which = w.timers[0].which
            r.timer_count = heap_pop(w.timers, r.timer_count)
            if r.routed:
                r.feeding = which
            else:
                _start_sweep(w, r.all_classes, r.all_classes + r.classes)
        else:
            r.now = arrival
            _arrive(w, key)


@cold
def close(w: World) -> None:
    """The run has stopped at its end: write down what was still going on, device by device."""
    r = w.run[0]
    r.now = r.end
    for device in range(r.devices):
        d = w.devices[device]
        if d.slot < 0:
            continue
        if not d.held and not d.paused:
            _settle(w, device)
        if r.record:
            slot = d.slot
            for _ in range(d.count):
                s = w.slots[slot]
                w.jobs[s.job].starts, w.jobs[s.job].energy = s.starts, s.energy
                slot = s.next
