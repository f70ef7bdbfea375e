"""The progress of jobs that are interrupted: checkpoints, and what a preemption keeps.

A position is an amount of work of a job: ticks at the full speed of its device, without checkpoints and restores. A
checkpoint is due after every `every` ticks of work since the last one, and none is due at the end of the job. There are
no events for checkpoints: a segment takes longer by those that fall into it, and how far they came is computed when the
job is interrupted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.engine.transitions.features import DESIGNS, QUESTIONS, cold
from windtunnel.engine.transitions.tables import TOO_MANY, World
from windtunnel.engine.transitions.work import segment_ticks, way_of


@cold
def forget_progress(w: World, slot: int) -> None:
    """Note that the job of the slot has not done any work."""
    p = w.progress[slot]
    p.kept = p.saved = p.whole = p.restoring = p.preempted = 0


@cold
def _on_this_class(kept: int, before: int, whole: int) -> Any:
    """Return the position that is the same share of ``whole`` as ``kept`` is of ``before`` (ticks)."""
    if before == whole or kept == 0:
        return np.int64(kept)
    return min(np.int64(math.floor(float(kept) / float(before) * float(whole))), np.int64(whole))


@cold
def begin_attempt(w: World, device: int) -> None:
    """Go to the segment of the program in which the job of the device continues."""
    d = w.devices[device]
    slot = d.slot
    p, s = w.progress[slot], w.slots[slot]
    way = way_of(w, device, slot)
    whole: Any = np.int64(0)
    for segment in range(way.first, way.last + 1):
        ticks = segment_ticks(w, segment, slot)
        if ticks < 0 or float(whole) + float(ticks) > TOO_MANY:
            w.run[0].too_long = 1
            return
        whole += ticks
    p.kept, p.saved = _on_this_class(p.kept, p.whole, whole), _on_this_class(p.saved, p.whole, whole)
    p.whole = whole
    if p.preempted:
        # The start after a preemption continues the same attempt.
        p.preempted = 0
        s.starts -= 1
    before: Any = np.int64(0)
    if p.kept:
        while d.segment < d.last:
            ticks = segment_ticks(w, d.segment, slot)
            if before + ticks > p.kept:
                break
            before += ticks
            d.segment += 1
    p.skipped, p.position = p.kept - before, p.kept


@cold
def with_checkpoints(w: World, device: int, ticks: Any) -> Any:
    """Return how long the present segment takes, of which the job may have done a part before (ticks).

    Args:
        w: The tables.
        device: The device.
        ticks: The work of the whole segment.
    """
    r, d = w.run[0], w.devices[device]
    s, p = w.slots[d.slot], w.progress[d.slot]
    c = w.checkpoints[s.work]
    p.work = max(ticks - p.skipped, 0)
    p.restore = c.restore if p.restoring else 0
    p.due = 0
    if c.every:
        p.due = max((min(p.position + p.work, p.whole - 1) - p.saved) // c.every, 0)
    planned = float(p.work) + float(p.restore) + float(p.due) * float(c.cost)
    if planned > TOO_MANY:
        r.too_long = 1
        p.due = 0
    p.planned = p.restore + p.work + p.due * c.cost
    p.scheduled = p.planned
    if r.tokens and d.first_left >= 0 and p.skipped:
        # The job may have produced its first token before it was preempted.
        d.first_left = min(d.first_left, p.planned) if w.jobs[s.job].first < 0 else -1
    p.skipped = 0
    return p.planned


@cold
def _divide(w: World, slot: int, through: Any) -> None:
    """Divide the time of the present segment up to now into restore, work and checkpoints, and note the position.

    Args:
        w: The tables.
        slot: The job.
        through: How much of the planned time of the segment has passed (ticks at full speed).
    """
    p, c, o = w.progress[slot], w.checkpoints[w.slots[slot].work], w.overhead[0]
    restored = min(through, p.restore)
    o.restore += restored
    if restored == p.restore:
        p.restoring = 0
    rest = through - restored
    first = p.saved + c.every - p.position
    if p.due == 0 or rest < first:
        p.position += rest
        return
    rest -= first
    cycles = min(rest // (c.every + c.cost), p.due)
    rest -= cycles * (c.every + c.cost)
    complete, written, done = cycles, cycles * c.cost, first + cycles * c.every
    if cycles < p.due:
        done += max(rest - c.cost, 0)
        written += min(rest, c.cost)
        if rest >= c.cost:
            complete += 1
    o.checkpoint += written
    o.checkpoints += complete
    p.saved += complete * c.every
    p.position += done


@cold
def end_of_segment(w: World, device: int) -> None:
    """Note that the present segment of the device's job has passed as scheduled."""
    d = w.devices[device]
    d.left = 0
    note_position(w, device)
    p = w.progress[d.slot]
    p.work = p.restore = p.due = p.planned = p.scheduled = 0


@cold
def note_position(w: World, device: int) -> None:
    """Note how far the device's job has come, whose work has stopped; ``left`` is what remains of its segment.

    An operation that faults slow down makes progress in proportion. One that a fault ends after a stated time, such as
    a hang, makes none.
    """
    d = w.devices[device]
    if DESIGNS and w.extras[device].loading:
        return  # its segment has not begun
    p = w.progress[d.slot]
    through = p.scheduled - d.left
    if QUESTIONS and w.extras[device].timed:
        w.overhead[0].lost += through
        through = np.int64(0)
    elif p.scheduled != p.planned:
        through = np.int64(math.floor(float(p.planned) * (float(through) / float(p.scheduled))))
        through = min(through, p.planned)
    _divide(w, d.slot, through)


@cold
def lose_progress(w: World, device: int) -> None:
    """Return the device's job, whose work has stopped, to its last complete checkpoint."""
    d = w.devices[device]
    note_position(w, device)
    p = w.progress[d.slot]
    w.overhead[0].lost += p.position - p.saved
    p.kept = p.saved
    p.restoring = 1 if p.saved else 0


@cold
def keep_progress(w: World, device: int) -> None:
    """Keep what the device's job has done, whose work has stopped."""
    note_position(w, device)
    p = w.progress[w.devices[device].slot]
    p.kept = p.position


@cold
def discard_progress(w: World, slot: int) -> None:
    """Note that the job has failed, so that all its work is lost."""
    w.overhead[0].lost += w.progress[slot].kept
