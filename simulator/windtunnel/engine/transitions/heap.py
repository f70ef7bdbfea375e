"""The heap of the compiled engine's events: entries (tick, which), least first.

Each node has four children, which gives few levels. Since the root is at index 3, the children begin at multiples of
four and share a cache line.
"""

from __future__ import annotations

from windtunnel.engine.transitions.features import cold, hot
from windtunnel.engine.transitions.tables import Records

ROOT = 3


@hot
def sift_up(heap: Records, at: int) -> None:
    """Move the entry at ``at`` towards the root until the heap is in order."""
    tick, which = heap[at].tick, heap[at].which
    while at > ROOT:
        up = (at + 8) >> 2
        if heap[up].tick < tick or (heap[up].tick == tick and heap[up].which < which):
            break
        heap[at].tick, heap[at].which = heap[up].tick, heap[up].which
        at = up
    heap[at].tick, heap[at].which = tick, which


@hot
def sift_down(heap: Records, size: int, at: int) -> None:
    """Move the entry at ``at`` towards the leaves of a heap of ``size`` entries until it is in order."""
    tick, which = heap[at].tick, heap[at].which
    end = ROOT + size
    while True:
        child = 4 * at - 8
        if child >= end:
            break
        least = child
        for other in range(child + 1, min(child + 4, end)):
            if heap[other].tick < heap[least].tick or (
                heap[other].tick == heap[least].tick and heap[other].which < heap[least].which
            ):
                least = other
        if heap[least].tick > tick or (heap[least].tick == tick and heap[least].which > which):
            break
        heap[at].tick, heap[at].which = heap[least].tick, heap[least].which
        at = least
    heap[at].tick, heap[at].which = tick, which


@hot
def heap_push(heap: Records, size: int, tick: int, which: int) -> int:
    """Add an entry and return the new size."""
    heap[ROOT + size].tick, heap[ROOT + size].which = tick, which
    sift_up(heap, ROOT + size)
    return size + 1


@hot
def heap_pop(heap: Records, size: int) -> int:
    """Remove the first entry and return the new size."""
    size -= 1
    if size:
        heap[ROOT].tick, heap[ROOT].which = heap[ROOT + size].tick, heap[ROOT + size].which
        sift_down(heap, size, ROOT)
    return size


@cold
def heap_remove(heap: Records, size: int, which: int) -> int:
    """Remove the entry of ``which`` at any index, which only faults need, and return the new size."""
    for at in range(ROOT, ROOT + size):
        if heap[at].which == which:
            size -= 1
            if at < ROOT + size:
                heap[at].tick, heap[at].which = heap[ROOT + size].tick, heap[ROOT + size].which
                sift_up(heap, at)
                sift_down(heap, size, at)
            return size
    return size
