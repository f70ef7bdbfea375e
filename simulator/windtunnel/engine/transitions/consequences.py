"""What an event causes is noted in the run's record, and executed before the next event (`events.consequence`).

So each transition is called from one place, and neither the reader nor the compiler meets recursion.
"""

from __future__ import annotations

from windtunnel.engine.transitions.features import cold, hot
from windtunnel.engine.transitions.tables import World


@hot
def sweep_classes(w: World, first: int, end: int) -> None:
    """Offer work to the idle devices of the classes listed from ``first`` up to ``end``, in their order."""
    r = w.run[0]
    r.sweeping, r.sweep_end, r.tried, r.refused = first, end, -1, 0


@cold
def sweep_all(w: World) -> None:
    """Offer work to all idle devices, unless work waits for power."""
    r = w.run[0]
    if not r.paused:
        sweep_classes(w, r.all_classes, r.all_classes + r.classes)


@hot
def to_place(w: World, slot: int) -> None:
    """Add a job to the list of unassigned jobs."""
    r = w.run[0]
    w.slots[slot].next = -1
    w.slots[slot].timed = 0
    if r.placing < 0:
        r.placing = slot
    else:
        w.slots[r.placing_end].next = slot
    r.placing_end = slot


@cold
def ask(w: World, question: int, subject: int) -> None:
    """Stop the engine until the question is answered in Python."""
    r = w.run[0]
    r.asking, r.subject = question, subject
