"""Jobs that are not admitted, jobs that give up waiting, and pauses of interrupted jobs before their next attempt.

A job that leaves is removed from its queue when it would be next, because a queue has no index of its jobs. So that
every reader of a queue can ignore this, the head of a queue is never a job that has left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.engine.transitions.clock import set_timer
from windtunnel.engine.transitions.consequences import sweep_all, to_place
from windtunnel.engine.transitions.fairness import leaves
from windtunnel.engine.transitions.features import CLASSES, PROGRESS, USERS, cold
from windtunnel.engine.transitions.jobs import row_of
from windtunnel.engine.transitions.queues import left, own_queue, push, reindex, remove_left
from windtunnel.engine.transitions.tables import (
    LEAVE,
    LEFT,
    LIMITED,
    PER_SECOND,
    REJECTED,
    RETURN,
    TOO_MANY,
    World,
)
from windtunnel.engine.transitions.users import end_session, think

SLOTS = 2**24
"""An event of a job is identified by job * SLOTS + slot, so that those of one tick come in the order of arrival."""
_JOBS = 2**28


@cold
def entity_of(w: World, slot: int) -> int:
    """Return the number that identifies an event of a job (see ``SLOTS``)."""
    entity: int = w.slots[slot].job % _JOBS * SLOTS + slot
    return entity


@cold
def _grow_impatient(w: World, slot: int) -> None:
    """Schedule the tick at which a job that has arrived now leaves, unless it has started."""
    r, s = w.run[0], w.slots[slot]
    x, wait = w.workloads[s.work], w.waits[slot]
    wait.gives_up, wait.queue, wait.returns_to = -1, -1, -1
    if x.patience < 0.0:
        return
    factor = 1.0 if x.patience_draw < 0 else w.draws[slot, x.patience_draw]
    scaled = np.rint(x.patience * factor * PER_SECOND)
    if scaled > TOO_MANY or np.int64(scaled) > r.end - r.now:
        return
    wait.gives_up = r.now + np.int64(scaled)
    r.impatient += 1
    set_timer(w, LEAVE, entity_of(w, slot), wait.gives_up)


@cold
def _reject(w: World, slot: int) -> None:
    """Do not admit a job that has arrived now, because as many jobs wait as its workload allows."""
    r, s = w.run[0], w.slots[slot]
    r.dropped += 1
    r.last_finish = r.now
    w.workloads[s.work].rejected += 1
    row = row_of(w, s.job)
    if row >= 0:
        w.jobs[row].finish, w.jobs[row].lost = r.now, REJECTED
    if r.tallying:
        w.counts[s.work, 4] += 1
    if USERS and r.users:
        end_session(w, slot)
        think(w, slot, 0)
    s.next = r.free
    r.free = slot


@cold
def admits(w: World, slot: int) -> bool:
    """Return whether a job that has arrived now is admitted at once; from then on it may give up waiting."""
    most = w.workloads[w.slots[slot].work].max_waiting
    if 0 <= most <= w.run[0].waiting:
        _reject(w, slot)
        return False
    x = w.workloads[w.slots[slot].work]
    if x.limit_tokens == 0:
        _grow_impatient(w, slot)
        return True
    ticks = _over_limit(w, slot)
    if ticks > 0 and not x.limit_waits:
        _reject(w, slot)
        return False
    _grow_impatient(w, slot)
    if ticks > 0:
        pause(w, LIMITED, slot, ticks)
    return bool(ticks <= 0)


@cold
def _over_limit(w: World, slot: int) -> Any:
    """Charge the tenant of a request with its tokens; return after how many ticks the rate limit admits it.

    The tokens of a tenant are a bucket that fills at a constant rate. It is known by the tick at which it is full
    again, so requests that wait are admitted in their order. A request that is rejected is not charged.
    """
    r, s = w.run[0], w.slots[slot]
    x = w.workloads[s.work]
    tokens = w.ints[x.prompts + s.rank] + w.ints[x.outputs + s.rank]
    bucket = x.buckets if x.tenants < 0 else x.buckets + w.ints[x.tenants + s.rank]
    # In floats, because the product of ticks and tokens may not be representable; both engines round alike.
    takes = np.int64(np.rint(float(x.limit_ticks) * (float(tokens) / float(x.limit_tokens))))
    full = max(w.buckets[bucket], r.now) + takes
    over: Any = full - r.now - x.limit_ticks
    if over <= 0 or x.limit_waits:
        w.buckets[bucket] = full
    return over


@cold
def leave(w: World, slot: int) -> None:
    """Let a job leave that has not started within its patience; do nothing if it has."""
    r, s, wait = w.run[0], w.slots[slot], w.waits[slot]
    if wait.gives_up != r.now:
        return
    wait.gives_up = -1
    r.impatient -= 1
    s.starts = -1
    r.waiting -= 1
    r.dropped += 1
    r.last_finish = r.now
    row = row_of(w, s.job)
    if row >= 0:
        w.jobs[row].finish, w.jobs[row].lost = r.now, LEFT
    if r.tallying:
        w.counts[s.work, 4] += 1
    if USERS and r.users:
        end_session(w, slot)
        think(w, slot, 0)
    queue = wait.queue
    if wait.returns_to == LIMITED:
        r.pausing -= 1
        return
    if queue < 0:  # it is removed when a device becomes available
        return
    w.queues[queue].number -= 1
    if CLASSES and r.fair:
        leaves(w, queue)
    remove_left(w, queue)
    # A job that waited behind it may start, or interrupt another one.
    if PROGRESS:
        r.contested = 1
    if r.gated:
        r.draining = 1
    if not r.routed:
        sweep_all(w)
        return
    device = queue // r.lines
    left(w, device)
    r.feeding = device


@cold
def pause_ticks(w: World, rule: int, starts: int) -> Any:
    """Return the pause before the next attempt of a job that was started ``starts`` times (ticks)."""
    x = w.rules[rule]
    if x.first == 0:
        return np.int64(0)
    scaled = np.rint(float(x.first) * x.factor ** float(starts - 1))
    return x.longest if scaled >= float(x.longest) else np.int64(scaled)


@cold
def pause(w: World, device: int, slot: int, ticks: int) -> None:
    """Let a job pause, and return to the queue of ``device`` then; below 0 if it is assigned anew (see ``WAIT``)."""
    r = w.run[0]
    r.waiting += 1
    r.pausing += 1
    w.waits[slot].returns_to = device
    if ticks < r.end - r.now:
        set_timer(w, RETURN, entity_of(w, slot), r.now + ticks)


@cold
def end_pause(w: World, slot: int) -> None:
    """Let a job wait for its next attempt, or for its first one after a rate limit let it wait."""
    r = w.run[0]
    if w.slots[slot].starts < 0:  # it has left
        w.slots[slot].next = r.free
        r.free = slot
        return
    r.pausing -= 1
    r.ended = 0  # whether waiting jobs can be served must be checked again
    device = w.waits[slot].returns_to
    w.waits[slot].returns_to = -1
    if device >= 0 and w.devices[device].enlisted == 0 and r.routed:
        # A device that drains accepts no job any more.
        left(w, device)
        device = -1
    if device < 0:
        r.waiting -= 1
        to_place(w, slot)
        return
    push(w, own_queue(w, device, slot), slot)
    if r.routed:
        reindex(w, device)
        r.feeding = device
    else:
        sweep_all(w)
    if r.gated:
        r.draining = 1
