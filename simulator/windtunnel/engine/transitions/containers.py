"""Ordered data structures over tables: the tree of best devices of a class, and queues of waiting jobs by key."""

from __future__ import annotations

import numpy as np

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


def fill_tree(tree: Records, leaf: int) -> None:
    """Fill the inner nodes of a class's tree from its leaves, which begin at ``leaf``, level by level."""
    first, count = leaf, len(tree) - leaf
    while count > 1:
        loads = tree.load[first : first + count].reshape(-1, 4)
        best = np.arange(count).reshape(-1, 4)[np.arange(count // 4), loads.argmin(axis=1)] + first
        count //= 4
        first = (first + 8) >> 2
        tree.load[first : first + count], tree.winner[first : first + count] = tree.load[best], tree.winner[best]


# The index of idle devices of each class: a tree of words of 32 bits, where the children of word i begin at 32 * i + 1.
# A bit of the last level says whether a device is idle, a bit of another word whether the word below is not 0. The
# index of a large fleet fits into the cache, and few changes go further than the last level.


@hot
def lowest_bit(word: int) -> int:
    """Return the number of the lowest bit that is set in a word, which is not 0; compiled, it is one instruction."""
    return (word & -word).bit_length() - 1


@hot
def first_marked(words: np.ndarray, root: int, leaf: int) -> int:
    """Return the lowest place that is marked in the index with this root and first word of the last level; else -1."""
    if words[root] == 0:
        return -1
    node = 0
    while root + node < leaf:
        node = 32 * node + 1 + lowest_bit(words[root + node])
    return 32 * (root + node - leaf) + lowest_bit(words[root + node])


@hot
def is_marked(words: np.ndarray, leaf: int, place: int) -> bool:
    """Return whether a place is marked in the index."""
    marked: bool = (words[leaf + (place >> 5)] >> (place & 31)) & 1 != 0
    return marked


@hot
def mark(words: np.ndarray, root: int, leaf: int, place: int, marked: bool) -> None:
    """Mark a place in the index, or remove its mark."""
    node, bit = leaf + (place >> 5) - root, place & 31
    while True:
        before = words[root + node]
        after = before | (1 << bit) if marked else before & ~(1 << bit)
        words[root + node] = after
        if (before == 0) == (after == 0) or node == 0:
            return
        node, bit = (node - 1) >> 5, (node - 1) & 31


def index_size(count: int) -> tuple[int, int]:
    """Return the size of an index of ``count`` places and the first word of its last level, for a root at 0."""
    words = -(-count // 32)
    leaf, level = 0, 1
    while level < words:
        leaf += level
        level *= 32
    return leaf + words, leaf


def fill_index(words: np.ndarray, leaf: int, count: int) -> None:
    """Mark the first ``count`` places of an index of idle devices, whose last level begins at ``leaf``."""
    full = count // 32
    words[leaf : leaf + full] = 2**32 - 1
    if count % 32:
        words[leaf + full] = 2 ** (count % 32) - 1
    for word in range(leaf + -(-count // 32) - 1, 0, -1):
        if words[word]:
            words[(word - 1) // 32] |= 1 << ((word - 1) % 32)


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
