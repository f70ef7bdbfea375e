"""What devices do: queues of waiting jobs, segments in progress, and their power.

The semantics are those of engine/process/queues.py, engine/process/stations/single.py and the process engine's power
budget.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.engine.compiled.state import (
    BATCHES,
    BY_BACKLOG,
    BY_JOB,
    BY_PRESENT,
    CONSTANT,
    NO_BATCH,
    STRETCHES,
    Either,
    Records,
    World,
)
from windtunnel.engine.compiled.structures import (
    NOT_HERE,
    ROOT,
    cold,
    heap_push,
    heap_remove,
    hot,
    meld,
    sift_down,
    tree_set,
    without_root,
)
from windtunnel.engine.prepare.prepared import FAR
from windtunnel.engine.prepare.programs import WATT_GRAIN
from windtunnel.engine.results.sketch import BINS_PER_E

PER_SECOND = 1e12
TOO_MANY = 9.2e18
"""The number of ticks above which a span is not representable."""
LATEST = 2**63 - 2
NEVER_ENDS: Any = np.int64(2**63 - 1)


# Queues of waiting jobs.


@hot
def push(w: Either, queue: int, slot: int) -> None:
    """Add a job to a queue."""
    q, slots = w.queues[queue], w.slots
    q.number += 1
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
def pop(w: Either, queue: int) -> int:
    """Remove and return the next job of a queue."""
    q = w.queues[queue]
    slot = q.head
    q.number -= 1
    q.head = without_root(slot, w.slots) if w.run[0].keyed else w.slots[slot].next
    return slot


@hot
def own_queue(w: Either, device: int, slot: int) -> int:
    """Return the queue of the job: the device's own, or the central queue of the job's signature."""
    r = w.run[0]
    owner = device if r.routed else w.slots[slot].signature
    return owner if r.batch == NO_BATCH else owner * r.workloads + w.slots[slot].work


@hot
def best_queue(w: Either, device: int, after_key: float, after_job: int) -> int:
    """Return the queue whose next job the device should take, among heads after (key, job); -1 if there is none."""
    r = w.run[0]
    if r.routed and r.batch == NO_BATCH:
        return device if w.queues[device].head >= 0 else -1
    if r.routed:
        per_device = 1 if r.batch == NO_BATCH else r.workloads
        first, last = device * per_device, (device + 1) * per_device
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


# The tree's entry of a device.


@hot
def reindex(w: Either, device: int) -> None:
    """Update the device's entry in the tree of its class."""
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
    tree_set(w.tree, c.tree, c.leaf, device - c.first, load)


# Recorded times of jobs.


@hot
def row_of(w: World, job: int) -> int:
    """Return the row of the job's times; -1 if they are not kept."""
    stride = w.run[0].stride
    if stride == 0 or (stride > 1 and job % stride):
        return -1
    row = job // stride
    # A sample that would become too large is thinned before that (``MORE_ROWS``).
    return row if row < len(w.jobs) else -1


@hot
def tally(w: World, what: int, work: int, job: int, ticks: int) -> None:
    """Add a latency (``what`` 0) or a queueing delay (1) to the sums and histograms of its stretch of the run."""
    r = w.run[0]
    batch = job // r.batch_width
    place = 0 if ticks <= 0 else 1 + math.ceil(math.log(float(ticks)) * BINS_PER_E)
    series = 0
    while True:
        row = w.batches[series * BATCHES + batch]
        if what == 0:
            row.latency_n += 1
            row.latency_sum += float(ticks)
        else:
            row.waiting_n += 1
            row.waiting_sum += float(ticks)
        w.bins[what, series * STRETCHES + batch * STRETCHES // BATCHES, place] += 1
        if series or r.workloads == 1:
            break
        series = 1 + work


# Work in progress.


@hot
def way_of(w: World, device: int, slot: int) -> Records:
    """Return the job's variant of its program."""
    r, s = w.run[0], w.slots[slot]
    way = w.programs[w.devices[device].cls * r.workloads + s.work].ways
    choice = w.workloads[s.work].way_at
    return w.ways[way if choice < 0 else way + w.ints[choice + s.rank]]


@hot
def segment_watts(w: World, segment: int, slot: int) -> float:
    """Return the power of the job above idle in the segment (W)."""
    g = w.segments[segment]
    return g.watts if g.watts_at < 0 else w.numbers[g.watts_at + w.slots[slot].rank]


@hot
def ends_after(w: Either, device: int, ticks: int) -> None:
    """Schedule the end of the device's present work."""
    r = w.run[0]
    if r.stale == device + 1:
        r.stale = 0
        w.ends[ROOT].tick, w.ends[ROOT].which = r.now + ticks, device
        sift_down(w.ends, r.heap, ROOT)
    else:
        r.heap = heap_push(w.ends, r.heap, r.now + ticks, device)


@hot
def go(w: World, device: int, left: Any, full: float) -> bool:
    """Continue the present segment at the device's speed; return False if it would end after the last tick.

    A slowed segment that would end there may become faster again before: its end is set to ``NEVER_ENDS``.

    ``left``: its remaining ticks at full speed; ``full``: its power at full speed.
    """
    r, d = w.run[0], w.devices[device]
    d.since = r.now
    ticks, watts = left, full
    if r.careful:
        if d.rate != 1.0:
            watts = math.floor(full * d.rate / WATT_GRAIN) * WATT_GRAIN
            slowed = math.ceil(float(left) / d.rate)
            ticks = np.int64(slowed) if slowed <= TOO_MANY else NEVER_ENDS - r.now
            ticks = min(ticks, NEVER_ENDS - r.now)
        d.left, d.full, d.watts = left, full, watts
    if left > LATEST - r.now:
        return False
    r.drawing_w += watts
    ends_after(w, device, ticks)
    return True


@hot
def begin_segment(w: World, device: int) -> bool:
    """Begin the present segment of the device's job."""
    d = w.devices[device]
    g, s = w.segments[d.segment], w.slots[d.slot]
    if g.kind == CONSTANT:
        ticks = g.ticks
    elif g.kind == BY_JOB:
        ticks = w.ints[g.ticks_at + s.rank]
    else:
        scaled = np.rint(g.seconds * w.draws[d.slot, g.draw] * PER_SECOND)
        if scaled > TOO_MANY:
            return False
        ticks = np.int64(scaled)
    if w.run[0].stretched and w.draws[d.slot, w.run[0].draws] != 1.0:
        scaled = np.rint(float(ticks) * w.draws[d.slot, w.run[0].draws])
        if scaled > TOO_MANY:
            return False
        ticks = np.int64(scaled)
    return go(w, device, ticks, segment_watts(w, d.segment, d.slot))


@hot
def _started(w: World, device: int, slot: int) -> None:
    r, s = w.run[0], w.slots[slot]
    s.start = r.now
    s.starts += 1
    r.waiting -= 1
    r.running += 1
    row = row_of(w, s.job)
    if row >= 0:
        w.jobs[row].start, w.jobs[row].on = r.now, device


@hot
def begin(w: World, device: int, queue: int, need: float) -> bool:
    """Start the queue's next job on an idle device."""
    r, d = w.run[0], w.devices[device]
    slot = pop(w, queue)
    _started(w, device, slot)
    w.slots[slot].next = -1
    d.slot, d.count = slot, 1
    if r.careful:
        d.began, d.need = r.now, need
    way = way_of(w, device, slot)
    d.segment, d.last = way.first, way.last
    return begin_segment(w, device)


@cold
def begin_batch(w: World, device: int, queue: int, size: int, need: float) -> bool:
    """Start the first ``size`` jobs of a queue as one batch."""
    r, d = w.run[0], w.devices[device]
    first: Any = np.int64(-1)
    last: Any = np.int64(-1)
    longest, stretch = 0.0, 1.0
    for _ in range(size):
        slot = pop(w, queue)
        _started(w, device, slot)
        longest = max(longest, w.draws[slot, 0])
        if r.stretched:
            stretch = max(stretch, w.draws[slot, r.draws])
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
    if scaled > TOO_MANY:
        return False
    d.segment = d.last = 0
    return go(w, device, np.int64(scaled), w.numbers[p.batch_at + r.batch_size + size - 1])


@hot
def settle(w: World, device: int) -> None:
    """Record the device's work on its present segment up to now."""
    r, d = w.run[0], w.devices[device]
    watts = d.watts if r.careful else segment_watts(w, d.segment, d.slot)
    r.drawing_w -= watts
    span = r.now - d.since
    if span <= 0:
        return
    d.busy += span
    joules = watts * (float(span) / PER_SECOND)
    d.energy += joules
    if not r.write or w.programs[d.cls * r.workloads + w.slots[d.slot].work].own:
        return
    slot = d.slot
    for _ in range(d.count):
        w.slots[slot].energy += joules / d.count
        slot = w.slots[slot].next
    iv = w.intervals[r.written]
    r.written += 1
    iv.on, iv.start, iv.end, iv.watts = device, d.since, r.now, watts
    if r.batch == NO_BATCH:
        iv.lane, iv.name = w.segments[d.segment].lane, w.segments[d.segment].name
    else:
        iv.lane, iv.name = 0, -d.count


@cold
def pass_time(w: World, device: int) -> None:
    """Subtract the work done since the last update from the segment's remaining ticks."""
    r, d = w.run[0], w.devices[device]
    span = r.now - d.since
    done = span if d.rate == 1.0 else np.int64(math.floor(float(span) * d.rate))
    d.left = max(d.left - done, 0)
    d.since = r.now


# Power.


@hot
def start_sweep(w: Either, first: int, end: int) -> None:
    """Offer work to the idle devices of the classes listed from ``first`` up to ``end``, in their order."""
    r = w.run[0]
    r.sweeping, r.sweep_end, r.tried, r.refused = first, end, -1, 0


@cold
def may_draw(w: World, device: int, need: float) -> bool:
    """Return whether the power budget allows a start that needs ``need`` watts; otherwise the device waits in line."""
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
def release(w: World, device: int) -> None:
    """Release the power of the device's work."""
    r, d = w.run[0], w.devices[device]
    if d.paused:
        d.paused = 0
        r.paused -= 1
    else:
        r.drawn_w -= d.need
    d.need = 0.0
    r.draining = 1


@cold
def shed(w: World) -> None:
    """Pause the work that started last until the rest fits into the budget."""
    r = w.run[0]
    while r.drawn_w > r.cap_w:
        latest = -1
        for device in range(r.devices):
            d = w.devices[device]
            if d.slot >= 0 and not d.paused and not d.held and (latest < 0 or d.began >= w.devices[latest].began):
                latest = device
        if latest < 0:
            return
        settle(w, latest)
        pass_time(w, latest)
        r.heap = heap_remove(w.ends, r.heap, latest)
        w.devices[latest].paused = 1
        r.paused += 1
        r.drawn_w -= w.devices[latest].need


@cold
def drain(w: World) -> bool:
    """Give available power to the next consumer: first paused work, the oldest first, then devices in line."""
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
        return go(w, oldest, d.left, d.full)
    if not r.routed:
        r.draining = 0
        start_sweep(w, r.all_classes, r.all_classes + r.classes)
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
