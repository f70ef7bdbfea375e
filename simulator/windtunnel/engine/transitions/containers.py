"""Ordered data structures over tables: the tree of best devices of a class, and queues of waiting jobs by key."""

from __future__ import annotations

from windtunnel.engine.transitions.features import cold, hot
from windtunnel.engine.transitions.heap import ROOT
from windtunnel.engine.transitions.tables import Records

NOT_HERE = 2**62
"""The load of an unavailable device, which exceeds all others."""


# The tree: a tournament over the devices of each class, in the layout of the heap. A node holds the least load below
# it and the device that has it. Of equal loads the lowest device number wins.


@hot
def tree_set(tree: Records, top: int, leaf: int, place: int, load: int) -> None:
    """Set the load of the device at ``place`` of a class; its tree has the root ``top`` and the first leaf ``leaf``."""
    base = top - ROOT
    node = leaf + place - base
    tree[base + node].load = load
    while node > ROOT:
        first = base + (node & ~3)
        # A tournament of values that were read before compiles without branches, which no processor would predict.
        least, load_1, load_2, load_3 = (
            tree[first].load,
            tree[first + 1].load,
            tree[first + 2].load,
            tree[first + 3].load,
        )
        best = first
        if load_1 < least:
            best, least = first + 1, load_1
        other, load = first + 2, load_2
        if load_3 < load:
            other, load = first + 3, load_3
        if load < least:
            best, least = other, load
        node = (node + 8) >> 2
        up = base + node
        winner = tree[best].winner
        if tree[up].load == least and tree[up].winner == winner:
            return
        tree[up].load, tree[up].winner = least, winner


def tree_size(count: int) -> tuple[int, int]:
    """Return the size of a tree of ``count`` devices and the index of its first leaf, for a root at ROOT."""
    leaves = 4
    while leaves < count:
        leaves *= 4
    leaf = ROOT + (leaves - 1) // 3
    return leaf + leaves, leaf


# Queues without a key are linked lists in order of arrival. Queues with a key are pairing heaps (Fredman, Sedgewick,
# Sleator and Tarjan, 1986). There may be as many heaps as devices. Their nodes are the slots of the waiting jobs, so
# memory is proportional to the number of jobs present.


@cold
def meld(first: int, second: int, slots: Records) -> int:
    """Return the root of two pairing heaps merged into one; -1 is the empty heap."""
    if first < 0:
        return second
    if second < 0:
        return first
    a, b = slots[first], slots[second]
    if b.key < a.key or (b.key == a.key and b.job < a.job):
        first, second = second, first
    slots[second].next = slots[first].child
    slots[first].child = second
    return first


@cold
def without_root(root: int, slots: Records) -> int:
    """Return the heap without its root: children are merged in pairs from the left, then the pairs from the right."""
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
