"""What the compiled engine keeps in order: the heap of ends, the tree of best devices, queues of waiting jobs.

Plain functions over arrays of records. Each runs as Python and compiled by Numba (`NUMBA_DISABLE_JIT=1` for the
former), and each answers exactly as its counterpart of the process engine does (`engine/queues.py`): one total order,
no ties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])
Records = np.ndarray


def hot(function: Function) -> Function:
    """Compile what every job passes through: inlined, since each function is passed all the arrays.

    Nothing here makes an array, so Numba need not count references to any (``_nrt``): that alone takes two thirds off
    the time of a job.
    """
    compiled: Function = njit(cache=True, _nrt=False, error_model="numpy", forceinline=True)(function)
    return compiled


def cold(function: Function) -> Function:
    """Compile what is rare: not inlined, to keep the time to compile down."""
    compiled: Function = njit(cache=True, _nrt=False, error_model="numpy")(function)
    return compiled


NOT_HERE = 2**62
"""The load of a device that cannot be chosen: larger than any that can."""

# The heap: entries (tick, which), least first. Four children a node: fewer levels, and the four lie side by side.


@hot
def sift_up(heap: Records, at: int) -> None:
    """Move the entry at ``at`` towards the root until it is in order."""
    tick, which = heap[at].tick, heap[at].which
    while at > 0:
        up = (at - 1) >> 2
        if heap[up].tick < tick or (heap[up].tick == tick and heap[up].which < which):
            break
        heap[at].tick, heap[at].which = heap[up].tick, heap[up].which
        at = up
    heap[at].tick, heap[at].which = tick, which


@hot
def sift_down(heap: Records, size: int, at: int) -> None:
    """Move the entry at ``at`` towards the leaves until it is in order."""
    tick, which = heap[at].tick, heap[at].which
    while True:
        child = 4 * at + 1
        if child >= size:
            break
        least = child
        for other in range(child + 1, min(child + 4, size)):
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
def heap_pop(heap: Records, size: int) -> int:
    """Take the first entry away; the new size."""
    size -= 1
    if size:
        heap[0].tick, heap[0].which = heap[size].tick, heap[size].which
        sift_down(heap, size, 0)
    return size


@cold
def heap_remove(heap: Records, size: int, which: int) -> int:
    """Take the entry of ``which`` out, wherever it is (only faults need it); the new size."""
    for at in range(size):
        if heap[at].which == which:
            size -= 1
            if at < size:
                heap[at].tick, heap[at].which = heap[size].tick, heap[size].which
                sift_up(heap, at)
                sift_down(heap, size, at)
            return size
    return size


# The tree: for each class a tournament over its devices; a node holds the least load below it and whose it is. The
# left child wins ties, and so does the lowest number.


@hot
def tree_set(tree: Records, root: int, leaves: int, place: int, load: int) -> None:
    """The device at ``place`` of the class, whose tree of ``leaves`` begins at ``root``, now has ``load``."""
    node = leaves + place
    tree[root + node].load = load
    while node > 1:
        left = root + (node & ~1)
        better = left if tree[left].load <= tree[left + 1].load else left + 1
        node >>= 1
        up = root + node
        if tree[up].load == tree[better].load and tree[up].winner == tree[better].winner:
            return
        tree[up].load, tree[up].winner = tree[better].load, tree[better].winner


@cold
def tree_build(tree: Records, root: int, leaves: int, first: int, count: int) -> None:
    """A class's tree from the loads of its leaves; its devices are ``first`` to ``first + count - 1``."""
    for place in range(leaves):
        tree[root + leaves + place].winner = first + place
        if place >= count:
            tree[root + leaves + place].load = NOT_HERE
    for node in range(leaves - 1, 0, -1):
        left = root + 2 * node
        better = left if tree[left].load <= tree[left + 1].load else left + 1
        tree[root + node].load, tree[root + node].winner = tree[better].load, tree[better].winner


# Queues without a key: linked lists in order of arrival. With one: pairing heaps (Fredman, Sedgewick, Sleator and
# Tarjan, 1986), of which there may be as many as devices; their nodes are the waiting jobs' own slots, so memory is in
# proportion to the jobs that are present.


@cold
def meld(one: int, other: int, slots: Records) -> int:
    """The root of two pairing heaps put together; -1 is the empty heap."""
    if one < 0:
        return other
    if other < 0:
        return one
    a, b = slots[one], slots[other]
    if b.key < a.key or (b.key == a.key and b.job < a.job):
        one, other = other, one
    slots[other].next = slots[one].child
    slots[one].child = other
    return one


@cold
def without_root(root: int, slots: Records) -> int:
    """The heap less its root: children melded in pairs from the left, the pairs then from the right."""
    pairs = -1
    at = slots[root].child
    while at >= 0:
        second = slots[at].next
        if second < 0:
            slots[at].next = pairs
            pairs = at
            break
        rest = slots[second].next
        slots[at].next = slots[second].next = -1
        pair = meld(at, second, slots)
        slots[pair].next = pairs
        pairs = pair
        at = rest
    merged = -1
    while pairs >= 0:
        rest = slots[pairs].next
        slots[pairs].next = -1
        merged = meld(merged, pairs, slots)
        pairs = rest
    return merged
