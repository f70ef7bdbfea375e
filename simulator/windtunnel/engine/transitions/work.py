"""Work in progress on a device: its remaining time at the device's speed, its power, and what is recorded of it.

The work is a segment of a job, a request-level batch, or a step of a continuous batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.engine.prepare.programs import WATT_GRAIN
from windtunnel.engine.transitions.clock import cancel_end, set_end
from windtunnel.engine.transitions.features import (
    DESIGNS,
    GANGS,
    INTERRUPTS,
    QUESTIONS,
    SERVERS,
    SINGLES,
    SPECULATION,
    STREAMS,
    cold,
    hot,
)
from windtunnel.engine.transitions.gangs import follow
from windtunnel.engine.transitions.jobs import record_first_token
from windtunnel.engine.transitions.tables import (
    BY_JOB,
    CONSTANT,
    LATEST,
    NEVER,
    NO_BATCH,
    PER_SECOND,
    STREAM,
    TOO_MANY,
    Records,
    World,
)
from windtunnel.engine.transitions.tasks import halt_tasks, resume_tasks

COMPUTE, DECODE, PREFILL, BOTH = range(4)
"""The names of the intervals of continuous batching, by number."""
SERVER_WORDS = ("compute", "decode", "prefill", "prefill + decode")


@hot
def way_of(w: World, device: int, slot: int) -> Records:
    """Return the job's variant of its program."""
    r, s = w.run[0], w.slots[slot]
    way = w.programs[w.devices[device].cls * r.workloads + s.work].ways
    choice = w.workloads[s.work].way_at
    return w.ways[way if choice < 0 else way + w.ints[choice + s.rank]]


@hot
def segment_ticks(w: World, segment: int, slot: int) -> Any:
    """Return the work of the job in a segment of its program (ticks at full speed); -1 if it is not representable."""
    r, g, s = w.run[0], w.segments[segment], w.slots[slot]
    if g.kind == CONSTANT:
        ticks = g.ticks
    elif g.kind == BY_JOB:
        ticks = w.ints[g.ticks_at + s.rank]
    else:
        scaled = np.rint(g.seconds * w.draws[slot, g.draw] * PER_SECOND)
        if scaled > TOO_MANY:
            return np.int64(-1)
        ticks = np.int64(scaled)
    if r.stretched:
        stretch = w.draws[slot, r.draws]
        if stretch != 1.0:
            scaled = np.rint(float(ticks) * stretch)
            if scaled > TOO_MANY:
                return np.int64(-1)
            ticks = np.int64(scaled)
    return ticks


@hot
def segment_watts(w: World, segment: int, slot: int) -> float:
    """Return the power of the job above idle in the segment (W)."""
    g = w.segments[segment]
    watts: float = g.watts if g.watts_at < 0 else w.numbers[g.watts_at + w.slots[slot].rank]
    return watts


@hot
def proceed(w: World, device: int, left: Any, full: float) -> None:
    """Continue the device's work from now, at its speed.

    A slowed work that would end after the last tick may become faster again before: its end is set to ``NEVER``.

    Args:
        w: The tables.
        device: The device.
        left: The remaining ticks at full speed.
        full: The power above idle at full speed (W).
    """
    r, d = w.run[0], w.devices[device]
    d.since = r.now
    ticks, watts = left, full
    if INTERRUPTS and r.careful:
        if d.rate != 1.0:
            watts = math.floor(full * d.rate / WATT_GRAIN) * WATT_GRAIN
            # The time of a watchdog does not depend on the device's speed.
            if not (QUESTIONS and w.extras[device].timed):
                slowed = math.ceil(float(left) / d.rate)
                ticks = np.int64(slowed) if slowed <= TOO_MANY else NEVER - r.now
                ticks = min(ticks, NEVER - r.now)
        d.left, d.full, d.watts = left, full, watts
    elif SERVERS:
        d.watts = watts
    if left > LATEST - r.now:
        r.too_long = 1
        return
    r.drawing_w += watts
    set_end(w, device, r.now + ticks)
    if GANGS and r.ganging:
        follow(w, device)


@cold
def _record_first_token(w: World, device: int, since: int) -> None:
    """Record the first tokens of the jobs in progress, if the work since the tick ``since`` produced them."""
    r, d = w.run[0], w.devices[device]
    tick: Any = since + np.int64(math.ceil(float(d.left - d.first_left) / d.rate))
    if tick > r.now:
        return
    d.first_left = -1
    slot = d.slot
    for _ in range(d.count):
        record_first_token(w, device, slot, tick)
        slot = w.slots[slot].next


@hot
def settle(w: World, device: int) -> None:
    """Record the work of the device, and of those that follow it, since it was last recorded, up to now."""
    _settle(w, device)
    if GANGS and w.run[0].ganging:
        member = w.gangs[device].following
        while member >= 0:
            _settle(w, member)
            member = w.gangs[member].following


@hot
def _settle(w: World, device: int) -> None:
    r, d = w.run[0], w.devices[device]
    watts = segment_watts(w, d.segment, d.slot) if SINGLES and not (r.serving or r.careful) else d.watts
    r.drawing_w -= watts
    span = r.now - d.since
    if span <= 0:
        return
    d.since = r.now
    d.busy += span
    joules = watts * (float(span) / PER_SECOND)
    d.energy += joules
    if DESIGNS and r.reconfigures and w.extras[device].loading:
        w.overhead[0].loading += span
    if SERVERS and r.serving:
        _record_step(w, device, r.now - span, watts, joules)
    if SINGLES and r.tokens and d.first_left >= 0:
        _record_first_token(w, device, r.now - span)
    if SINGLES and not r.serving:
        _record_segment(w, device, r.now - span, watts, joules)


@hot
def _record_segment(w: World, device: int, since: int, watts: float, joules: float) -> None:
    r, d = w.run[0], w.devices[device]
    if not r.write or w.programs[d.cls * r.workloads + w.slots[d.slot].work].own:
        return
    slot = d.slot
    for _ in range(d.count):
        w.slots[slot].energy += joules / d.count
        slot = w.slots[slot].next
    iv = w.intervals[r.written]
    r.written += 1
    iv.on, iv.start, iv.end, iv.watts = device, since, r.now, watts
    if r.batch == NO_BATCH:
        iv.lane, iv.name = w.segments[d.segment].lane, w.segments[d.segment].name
    else:
        iv.lane, iv.name = 0, -d.count
    if DESIGNS and r.reconfigures and w.extras[device].loading:
        iv.name = r.load_word + w.extras[device].loading - 1


@hot
def _record_step(w: World, device: int, since: int, watts: float, joules: float) -> None:
    """Record a part of the present step, and divide its energy by tokens."""
    r, v = w.run[0], w.servers[device]
    iv = w.intervals[r.written]
    r.written += 1
    iv.on, iv.lane, iv.start, iv.end, iv.watts = device, COMPUTE, since, r.now, watts
    decoding = 0 if v.pausing else v.decoding_count
    if v.chunks == 0:
        iv.name = DECODE
    elif decoding:
        iv.name = BOTH
    else:
        iv.name = PREFILL
    read = 0
    slot = v.reading
    for _ in range(v.chunks):
        read += w.sequences[slot].chunk
        slot = w.slots[slot].next
    queries = w.classes[w.devices[device].cls].queries if SPECULATION else 1
    share = joules / float(decoding * queries + read)
    if decoding:
        v.per_token += share * queries
    slot = v.reading
    for _ in range(v.chunks):
        w.slots[slot].energy += share * float(w.sequences[slot].chunk)
        slot = w.slots[slot].next


@cold
def remaining(w: World, device: int) -> Any:
    """Return the ticks that remain of the device's work now, at full speed."""
    d = w.devices[device]
    span = w.run[0].now - d.since
    is_timed = QUESTIONS and w.extras[device].timed != 0
    done = span if d.rate == 1.0 or is_timed else np.int64(math.floor(float(span) * d.rate))
    return max(d.left - done, 0)


@cold
def halt(w: World, device: int) -> None:
    """Stop the device's work, and keep its progress: ``left`` are its remaining ticks at full speed."""
    r, d = w.run[0], w.devices[device]
    if STREAMS and w.classes[d.cls].kind == STREAM:
        halt_tasks(w, device)
        return
    left = remaining(w, device)
    settle(w, device)
    d.left = left
    d.since = r.now
    cancel_end(w, device)


@cold
def resume(w: World, device: int) -> None:
    """Continue the device's work after a halt."""
    d = w.devices[device]
    if STREAMS and w.classes[d.cls].kind == STREAM:
        resume_tasks(w, device)
    else:
        proceed(w, device, d.left, d.full)
