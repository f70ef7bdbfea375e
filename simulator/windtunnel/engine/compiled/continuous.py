"""Continuous batching over arrays: sequences join and leave a device's batch at every step.

engine/process/stations/continuous.py defines each transition, and engine/prepare/decoding.py the cost of a step. This
module computes the same sums in the same order, so that both engines agree to the tick. dispatch.py dispatches the
jobs.

Sequences are slots in doubly linked lists of their device, so memory is proportional to the number of jobs present.
Decoding sequences are also in a list in the order in which they end. A sequence enters it once in hundreds of steps,
and each step examines only its first element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.policy import JobKey
from windtunnel.engine.compiled.dispatch import left, place_next, sweep, to_place
from windtunnel.engine.compiled.state import (
    DONE,
    MORE_GAPS,
    MORE_INTERVALS,
    MORE_JOBS,
    MORE_SLOTS,
    TOO_LONG,
    Records,
    Serving,
)
from windtunnel.engine.compiled.structures import ROOT, cold, heap_pop, hot
from windtunnel.engine.compiled.work import LATEST, PER_SECOND, TOO_MANY, best_queue, ends_after, pop, reindex
from windtunnel.engine.prepare.decoding import CONTEXT_GRAIN
from windtunnel.engine.prepare.programs import WATT_GRAIN

_NEVER: Any = np.int64(2**63 - 1)
COMPUTE, DECODE, PREFILL, BOTH = range(4)
"""The names of intervals, by number."""
WORDS = ("compute", "decode", "prefill", "prefill + decode")


# Lists of sequences.


@hot
def _now_reads(w: Serving, device: int, slot: int) -> None:
    """Append the sequence to those in prefill."""
    d, s = w.devices[device], w.slots[slot]
    s.next, s.before = -1, d.reading_end
    if d.reading_end < 0:
        d.reading = slot
    else:
        w.slots[d.reading_end].next = slot
    d.reading_end = slot
    d.reading_count += 1


@hot
def _now_decodes(w: Serving, device: int, slot: int) -> None:
    """Append the sequence to the decoding ones, and insert it after those that end after the same step."""
    d, s = w.devices[device], w.slots[slot]
    s.next, s.before = -1, d.decoding_end
    if d.decoding_end < 0:
        d.decoding = slot
    else:
        w.slots[d.decoding_end].next = slot
    d.decoding_end = slot
    d.decoding_count += 1
    before = d.ending_end
    while before >= 0 and w.slots[before].ends > s.ends:
        before = w.slots[before].earlier
    s.earlier = before
    if before < 0:
        s.later = d.ending
        d.ending = slot
    else:
        s.later = w.slots[before].later
        w.slots[before].later = slot
    if s.later < 0:
        d.ending_end = slot
    else:
        w.slots[s.later].earlier = slot
    w.decoding_of[device, s.work] += 1


@hot
def _decodes_no_more(w: Serving, device: int, slot: int) -> None:
    d, s = w.devices[device], w.slots[slot]
    if s.before < 0:
        d.decoding = s.next
    else:
        w.slots[s.before].next = s.next
    if s.next < 0:
        d.decoding_end = s.before
    else:
        w.slots[s.next].before = s.before
    d.decoding_count -= 1
    if s.earlier < 0:
        d.ending = s.later
    else:
        w.slots[s.earlier].later = s.later
    if s.later < 0:
        d.ending_end = s.earlier
    else:
        w.slots[s.later].earlier = s.earlier
    w.decoding_of[device, s.work] -= 1


# The cost of a step.


@hot
def _between(numbers: np.ndarray, table: int, apart: int, context: float) -> tuple[float, float]:
    """Return (seconds, joules) at ``context`` tokens. A table's joules are ``apart`` elements after its seconds."""
    place = context / CONTEXT_GRAIN
    low = np.int64(place)
    weight = place - low
    s, j = table + low, table + apart + low
    return (numbers[s] + (numbers[s + 1] - numbers[s]) * weight, numbers[j] + (numbers[j + 1] - numbers[j]) * weight)


@hot
def _prompt_attention(numbers: np.ndarray, c: Records, start: int, chunk: int) -> tuple[float, float]:
    """Return the same as ``DecoderCosts.prompt_attention``."""
    until_s, until_j = _between(numbers, c.prefill, c.columns, float(start + chunk))
    if start == 0:
        return until_s, until_j
    before_s, before_j = _between(numbers, c.prefill, c.columns, float(start))
    seconds = max(until_s - before_s, 0.0)
    most = seconds * c.above_idle
    return seconds, min(max(until_j - before_j, 0.0), most)


# Steps.


@cold
def _preempt_youngest(w: Serving, device: int) -> None:
    """Preempt the sequence that came last: release its memory; its tokens are recomputed later."""
    r, d = w.run[0], w.devices[device]
    r.preemptions += 1
    if d.reading_count:
        slot = d.reading_end
        s = w.slots[slot]
        d.reading_end = s.before
        if s.before < 0:
            d.reading = -1
        else:
            w.slots[s.before].next = -1
        d.reading_count -= 1
        d.cached -= s.prompt
    else:
        slot = d.decoding_end
        s = w.slots[slot]
        _decodes_no_more(w, device, slot)
        made = 1 + d.steps - s.born
        held = s.prompt + made
        d.attended -= held
        d.cached -= held
        s.energy += d.per_token - s.joules_at_birth
        s.last = r.now
        s.prompt, s.output = held, s.output - made
    s.read = 0
    s.next = d.off
    d.off = slot


@hot
def _admit(w: Serving, device: int, slot: int) -> None:
    r, d, s = w.run[0], w.devices[device], w.slots[slot]
    j = w.jobs[s.job]
    j.start, j.on = r.now, device
    r.waiting -= 1
    r.running += 1
    d.cached += s.prompt
    _now_reads(w, device, slot)


@hot
def _fill(w: Serving, device: int) -> None:
    """Admit sequences while there is memory: first the preempted ones, then those that wait."""
    r, d = w.run[0], w.devices[device]
    capacity = w.classes[d.cls].capacity
    while d.reading_count + d.decoding_count < r.batch_size:
        if d.off >= 0:
            slot = d.off
            s = w.slots[slot]
            if d.cached + s.prompt + d.decoding_count > capacity:
                break
            d.off = s.next
            d.cached += s.prompt
            _now_reads(w, device, slot)
            continue
        queue = best_queue(w, device, -math.inf, -1)
        if queue < 0:
            break
        if d.cached + w.slots[w.queues[queue].head].prompt + d.decoding_count > capacity:
            break
        _admit(w, device, pop(w, queue))
    while d.cached + d.decoding_count > capacity and (d.reading_count or d.decoding_count > 1):
        _preempt_youngest(w, device)


@hot
def _begin_step(w: Serving, device: int) -> bool:
    """Begin the device's next step if it has work; return False if the step ends after the last tick."""
    r, d = w.run[0], w.devices[device]
    c = w.classes[d.cls]
    _fill(w, device)
    decoding = d.decoding_count
    room = r.batch_tokens - decoding
    seconds = joules = 0.0
    chunks = ends = tokens = 0
    slot = d.reading
    while slot >= 0 and room > 0:
        s = w.slots[slot]
        chunk = min(room, s.prompt - s.read)
        more_s, more_j = _prompt_attention(w.numbers, c, s.read, chunk)
        seconds, joules = seconds + more_s, joules + more_j
        s.chunk = chunk
        chunks += 1
        room -= chunk
        tokens += chunk
        if s.read + chunk == s.prompt:
            ends += 1
        slot = s.next
    d.chunks = chunks
    if chunks == 0 and decoding == 0:
        return True
    linear, head = c.linear + decoding + tokens, c.head + decoding + ends
    step_s = w.numbers[linear] + w.numbers[head]
    step_j = w.numbers[linear + r.batch_tokens + 1] + w.numbers[head + r.batch_size + 1]
    if decoding:
        table, apart = c.decode + decoding * c.columns, (r.batch_size + 1) * c.columns
        more_s, more_j = _between(w.numbers, table, apart, float(d.attended) / float(decoding))
        step_s, step_j = step_s + more_s, step_j + more_j
    seconds, joules = seconds + step_s, joules + step_j
    scaled = np.rint(seconds * PER_SECOND)
    if scaled > TOO_MANY:
        return False
    ticks: Any = np.int64(scaled)
    if ticks > LATEST - r.now:
        return False
    d.began, d.watts = r.now, np.rint(joules / seconds / WATT_GRAIN) * WATT_GRAIN
    d.slot = 0
    ends_after(w, device, ticks)
    return True


@hot
def _draw(w: Serving, device: int) -> None:
    """Record the present step up to now, and divide its energy by tokens."""
    r, d = w.run[0], w.devices[device]
    read = 0
    slot = d.reading
    for _ in range(d.chunks):
        read += w.slots[slot].chunk
        slot = w.slots[slot].next
    if r.now > d.began:
        iv = w.intervals[r.written]
        r.written += 1
        iv.on, iv.lane, iv.start, iv.end, iv.watts = device, COMPUTE, d.began, r.now, d.watts
        if d.chunks == 0:
            iv.name = DECODE
        elif d.decoding_count:
            iv.name = BOTH
        else:
            iv.name = PREFILL
    share = d.watts * (float(r.now - d.began) / PER_SECOND) / float(d.decoding_count + read)
    d.per_token += share
    slot = d.reading
    for _ in range(d.chunks):
        s = w.slots[slot]
        s.energy += share * float(s.chunk)
        slot = s.next


@hot
def _gap(w: Serving, ticks: int, tokens: int, work: int) -> None:
    """Record that ``tokens`` tokens of a workload followed their predecessors after ``ticks``."""
    r = w.run[0]
    g = w.gaps[r.gaps]
    r.gaps += 1
    g.ticks, g.tokens, g.end, g.work = ticks, tokens, r.now, work


@hot
def _finished(w: Serving, device: int, slot: int) -> None:
    r, s = w.run[0], w.slots[slot]
    j = w.jobs[s.job]
    j.finish, j.energy = r.now, s.energy
    r.running -= 1
    r.completed += 1
    r.last_finish = r.now
    if r.routed:
        left(w, device)
    s.next = r.free
    r.free = slot


@hot
def _has_read(w: Serving, device: int, slot: int) -> None:
    """End the prefill of a sequence, which produces a token."""
    r, d, s = w.run[0], w.devices[device], w.slots[slot]
    j = w.jobs[s.job]
    if j.first < 0:
        j.first = r.now
    else:
        _gap(w, r.now - s.last, 1, s.work)
    d.cached += 1
    if s.output == 1:
        d.cached -= s.prompt + 1
        _finished(w, device, slot)
        return
    d.attended += s.prompt + 1
    s.joules_at_birth = d.per_token
    s.born = d.steps
    s.ends = d.steps + s.output - 1
    _now_decodes(w, device, slot)


@hot
def _stepped(w: Serving, device: int) -> None:
    """End the device's present step."""
    r, d = w.run[0], w.devices[device]
    _draw(w, device)
    decoding = d.decoding_count
    d.slot = -1
    d.steps += 1
    d.cached += decoding
    d.attended += decoding
    if decoding:
        for work in range(r.workloads):
            count = w.decoding_of[device, work]
            if count:
                _gap(w, r.now - d.began, count, work)
    while d.ending >= 0 and w.slots[d.ending].ends == d.steps:
        slot = d.ending
        s = w.slots[slot]
        _decodes_no_more(w, device, slot)
        held = s.prompt + s.output
        d.attended -= held
        d.cached -= held
        s.energy += d.per_token - s.joules_at_birth
        _finished(w, device, slot)
    for _ in range(d.chunks):
        slot = d.reading
        s = w.slots[slot]
        s.read += s.chunk
        if s.read == s.prompt:
            d.reading = s.next
            if s.next < 0:
                d.reading_end = -1
            else:
                w.slots[s.next].before = -1
            d.reading_count -= 1
            _has_read(w, device, slot)
    d.chunks = 0


# The loop.


@hot
def _feed(w: Serving, device: int) -> bool:
    """Begin a step of the device if none is in progress and there is work."""
    r, d = w.run[0], w.devices[device]
    if d.slot >= 0:
        return True
    if not _begin_step(w, device):
        return False
    if not r.routed:
        c = w.classes[d.cls]
        if (w.tree[c.leaf + device - c.first].load == 0) != (d.slot < 0):
            reindex(w, device)
    return True


@hot
def _arrive(w: Serving, key: Any) -> None:
    r = w.run[0]
    slot = r.free
    s, a = w.slots[slot], w.arrivals[r.next]
    r.free = s.next
    work = w.workloads[a.work]
    s.job, s.arrival, s.start, s.work, s.rank, s.signature = r.job, a.tick, -1, a.work, a.rank, a.signature
    s.prompt, s.output = w.ints[work.prompts + a.rank], w.ints[work.outputs + a.rank]
    s.timed, s.read, s.chunk, s.key, s.energy = 0, 0, 0, 0.0, 0.0
    r.next += 1
    r.job += 1
    r.arrived += 1
    if r.keyed:
        cls = w.ints[r.signature_classes + w.ints[r.signature_at + s.signature]]
        p = w.programs[cls * r.workloads + s.work]
        size = p.estimate if p.estimate_at < 0 else w.numbers[p.estimate_at + s.rank]
        s.key = key(JobKey(s.arrival, work.priority, s.arrival + work.deadline, size))
    to_place(w, slot)


@hot
def _room(w: Serving) -> int:
    """Return which array may be too small at the next event; DONE if none is."""
    r = w.run[0]
    if r.written + r.devices + 2 > len(w.intervals):
        return MORE_INTERVALS
    if r.gaps + r.workloads + min(r.batch_size, len(w.slots)) + 2 > len(w.gaps):
        return MORE_GAPS
    if r.next >= len(w.arrivals) and not r.last:
        return MORE_JOBS
    if r.free < 0:
        return MORE_SLOTS
    return DONE


def serve(w: Serving, score: Any, key: Any) -> int:
    """Process events until the run ends or the kernel needs something; return which, as ``kernel.advance`` does."""
    r = w.run[0]
    while True:
        if r.feeding >= 0:
            device = r.feeding
            r.feeding = -1
            if not _feed(w, device):
                return TOO_LONG
            continue
        if r.sweeping >= 0:
            sweep(w)
            continue
        if r.placing >= 0:
            place_next(w, score)
            continue
        if r.stale:
            r.stale = 0
            r.heap = heap_pop(w.ends, r.heap)
        needed = _room(w)
        if needed != DONE:
            return needed
        arrival = w.arrivals[r.next].tick if r.next < len(w.arrivals) else _NEVER
        if r.heap and w.ends[ROOT].tick <= arrival:
            if w.ends[ROOT].tick > r.end:
                return DONE
            r.now = w.ends[ROOT].tick
            device = w.ends[ROOT].which
            # The entry stays at the root until it is known whether the device begins another step, as most do.
            r.stale = device + 1
            w.ends[ROOT].which = -1
            _stepped(w, device)
            r.feeding = device
        elif arrival > r.end:
            return DONE
        else:
            r.now = arrival
            _arrive(w, key)


@cold
def close(w: Serving) -> None:
    """End the run: record the work in progress of each device."""
    r = w.run[0]
    r.now = r.end
    for device in range(r.devices):
        d = w.devices[device]
        if d.slot >= 0:
            _draw(w, device)
        for first in (d.decoding, d.reading, d.off):
            slot = first
            while slot >= 0:
                s = w.slots[slot]
                if first == d.decoding:
                    s.energy += d.per_token - s.joules_at_birth
                w.jobs[s.job].energy = s.energy
                slot = s.next
