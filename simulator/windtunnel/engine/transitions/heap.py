"""The heap of the compiled engine's events: entries (tick, which), least first.

Each node has four children, which gives few levels. Since the root is at index 3, the children begin at multiples of
four and share a cache line.
"""

from __future__ import annotations

from typing import Any

from windtunnel.engine.transitions.features import cold, hot
from windtunnel.engine.transitions.tables import Records

ROOT = 3
DEEP = 4096
"""The number of entries above which a heap is assumed not to fit into the cache."""


@hot
def prefetch(rows: Records, at: Any) -> None:
    """Do nothing; in the compiled engine this prefetches the cache line at which record ``at`` of ``rows`` begins."""


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
def _before(tick: Any, which: Any, other_tick: Any, other_which: Any) -> Any:
    """Return whether an entry precedes another one. It has no branches, because no processor would predict them."""
    return (tick < other_tick) | ((tick == other_tick) & (which < other_which))


@hot
def sift_down(heap: Records, size: int, at: int) -> None:
    """Move the entry at ``at`` towards the leaves of a heap of ``size`` entries until it is in order."""
    tick, which = heap[at].tick, heap[at].which
    end = ROOT + size
    while True:
        child = 4 * at - 8
        if child >= end:
            break
        if size > DEEP:  # the next level, while this one is compared
            for group in range(4):
                prefetch(heap, min(4 * (child + group) - 8, size))
        least, least_tick, least_which = child, heap[child].tick, heap[child].which
        if child + 4 <= end:
            tick_1, which_1 = heap[child + 1].tick, heap[child + 1].which
            second, second_tick, second_which = child + 2, heap[child + 2].tick, heap[child + 2].which
            tick_3, which_3 = heap[child + 3].tick, heap[child + 3].which
            if _before(tick_1, which_1, least_tick, least_which):
                least, least_tick, least_which = child + 1, tick_1, which_1
            if _before(tick_3, which_3, second_tick, second_which):
                second, second_tick, second_which = child + 3, tick_3, which_3
            if _before(second_tick, second_which, least_tick, least_which):
                least, least_tick, least_which = second, second_tick, second_which
        else:
            for other in range(child + 1, end):
                if _before(heap[other].tick, heap[other].which, least_tick, least_which):
                    least, least_tick, least_which = other, heap[other].tick, heap[other].which
        if _before(tick, which, least_tick, least_which):
            break
        heap[at].tick, heap[at].which = least_tick, least_which
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
