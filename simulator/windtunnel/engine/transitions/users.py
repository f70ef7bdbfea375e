"""Closed loops and sessions: users who each submit a job, wait for its end, and think.

The requests of a session have consecutive ranks. A session that arrives is a user who does not come again after it.

At one tick the workload that is listed first comes first, and of the users of a workload the one with the lowest
number.
"""

from __future__ import annotations

from windtunnel.engine.transitions.features import SIMPY, USERS, cold, hot
from windtunnel.engine.transitions.heap import ROOT, heap_pop, heap_push
from windtunnel.engine.transitions.tables import NEVER, Records, World

OF_WORKLOAD = 2**32
"""A submission is identified by workload * OF_WORKLOAD + user."""


@hot
def next_arrival(w: World) -> int:
    """Return the tick of the next arrival that is known now; NEVER if there is none."""
    r = w.run[0]
    tick: int = w.arrivals[r.next].tick if r.next < len(w.arrivals) else NEVER
    if USERS and r.users:
        if r.arrived >= r.limit:
            return int(NEVER)
        if r.submits:
            tick = min(tick, w.submits[ROOT].tick)
    return tick


@cold
def is_submitted(w: World) -> bool:
    """Return whether the next arrival is that of a user."""
    r = w.run[0]
    if not r.submits:
        return False
    if r.next >= len(w.arrivals):
        return True
    submit, known = w.submits[ROOT], w.arrivals[r.next]
    listed_first: bool = submit.tick == known.tick and submit.which // OF_WORKLOAD < known.work
    return submit.tick < known.tick or listed_first


@cold
def take_submission(w: World, slot: int) -> None:
    """Let the user whose turn it is submit a job, in a slot."""
    r, s = w.run[0], w.slots[slot]
    submit = w.submits[ROOT]
    work = submit.which // OF_WORKLOAD
    x = w.workloads[work]
    w.user_of[slot] = x.first_user + submit.which % OF_WORKLOAD
    s.arrival, s.work = submit.tick, work
    r.submits = heap_pop(w.submits, r.submits)
    rank = _next_rank(w, x, w.user_of[slot])
    if rank < 0:
        r.exceeded = 1 + work
        return
    s.rank, s.signature = rank, w.ints[x.signatures + rank]
    for draw in range(r.draws):
        w.draws[slot, draw] = w.numbers[x.draws_at + rank * r.draws + draw]
    if r.stretched:
        w.draws[slot, r.draws] = 1.0 if x.stretch_at < 0 else w.numbers[x.stretch_at + rank]


@cold
def _next_rank(w: World, x: Records, user: int) -> int:
    """Return the rank of the next job of a user of a workload; -1 if random numbers were drawn for too few jobs."""
    rank: int = x.taken
    if x.sessions < 0:
        if x.taken >= x.capacity:
            return -1
        x.taken += 1
        return rank
    u = w.users[user]
    if u.left == 0:  # another session begins
        if x.taken >= x.session_count:
            return -1
        u.rank = w.ints[x.sessions + x.taken]
        u.left = w.ints[x.sessions + x.taken + 1] - u.rank
        x.taken += 1
    rank = u.rank
    u.rank += 1
    u.left -= 1
    return rank


@cold
def end_session(w: World, slot: int) -> None:
    """End the session of the user who waits for the job of a slot, because the job will not complete."""
    if w.user_of[slot] >= 0:
        w.users[w.user_of[slot]].left = 0


@cold
def think(w: World, slot: int, after: int) -> None:
    """Let the user who waits for the job of a slot have its result after some ticks, think, and submit the next one."""
    r, user = w.run[0], w.user_of[slot]
    if user < 0:
        return
    w.user_of[slot] = -1
    u = w.users[user]
    x = w.workloads[u.work]
    if u.left > 0:
        ticks = w.ints[x.thinks + u.rank] + after
    elif not x.comes_again:
        return
    else:
        u.thoughts += 1
        r.thoughts = max(r.thoughts, u.thoughts)
        ticks = w.think_ticks[u.thoughts, user] + after
    # With a stated end, users who would submit at it or later do not.
    if ticks < r.end - r.now:
        which = u.work * OF_WORKLOAD + user - x.first_user
        r.submits = heap_push(w.submits, r.submits, r.now + ticks, which)
        if SIMPY and w.clock is not None:
            w.clock.arrivals_changed()
