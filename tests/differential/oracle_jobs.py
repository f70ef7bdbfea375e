"""The jobs and devices of the independent simulation (`oracle.py`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from windtunnel.core.ticks import TICKS_PER_SECOND


@dataclass(eq=False)
class Job:
    """A job: what arrived, and what became of it."""

    number: int
    work: int
    rank: int
    classes: tuple[int, ...]
    arrival: int
    slow: float = 1.0
    user: int = -1
    start: int = -1
    finish: int = -1
    device: int = -1
    starts: int = 0
    failed: bool = False
    dropped: bool = False
    position: int = 0
    """Its work so far, of ``whole``."""
    saved: int = 0
    """Its work at its last checkpoint."""
    whole: int = 0
    restoring: bool = False
    preempted: bool = False
    on: tuple[Device, ...] = ()
    """The devices that execute it; the first one has its work."""


@dataclass(eq=False)
class Device:
    """A device: its queue, its job, and the work that remains."""

    number: int
    cls: int
    up: bool = True
    speed: float = 1.0
    job: Job | None = None
    segments: list[tuple[str, list[tuple[str, int]]]] | None = None
    """What follows the present segment: designs, and lists of work, checkpoints and restores, and their ticks."""
    pieces: list[tuple[str, int]] | None = None
    """The present segment."""
    left: int = 0
    since: int = 0
    process: Any = None
    ready: int = 0
    turn: int = 0
    holds: list[str] = field(default_factory=list)
    """Its designs, the most recently used one last."""
    expects: list[str] = field(default_factory=list)
    """What it will hold after its jobs."""
    loading: str = ""


def pause_ticks(pause: Any, starts: int) -> int:
    """Return how long a job pauses that was started this often."""
    if pause is None:
        return 0
    if isinstance(pause, float):
        return round(pause * TICKS_PER_SECOND)
    ticks = float(round(pause.first * TICKS_PER_SECOND))
    for _ in range(starts - 1):
        ticks *= pause.factor
    return min(round(ticks), 2**62 if pause.max is None else round(pause.max * TICKS_PER_SECOND))


def remaining_segments(
    job: Job, ticks: list[int], needs: list[str], checkpoint: Any
) -> list[tuple[str, list[tuple[str, int]]]]:
    """Return the remaining segments of a job and their designs, with the checkpoints that it will write."""
    every, cost, restore = (
        (0, 0, 0)
        if checkpoint is None
        else (round(s * TICKS_PER_SECOND) for s in (checkpoint.every, checkpoint.cost, checkpoint.restore))
    )
    whole = sum(ticks)
    if job.whole not in (0, whole):
        job.position = min(math.floor(float(job.position) / float(job.whole) * float(whole)), whole)
        job.saved = min(math.floor(float(job.saved) / float(job.whole) * float(whole)), whole)
    job.whole = whole
    begin, at, saved = 0, job.position, job.saved
    segments: list[tuple[str, list[tuple[str, int]]]] = []
    for number, span in enumerate(ticks):
        end = begin + span
        begin = end
        if job.position and end <= job.position and number < len(ticks) - 1:
            continue
        pieces = [("restore", restore)] if job.restoring and not segments else []
        while every and saved + every <= end and saved + every < whole:
            saved += every
            pieces += [("work", saved - at), ("checkpoint", cost)]
            at = saved
        segments.append((needs[number], [*pieces, ("work", end - at)]))
        at = end
    return segments
