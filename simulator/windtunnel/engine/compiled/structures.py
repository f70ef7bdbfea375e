"""Ordered data structures of the compiled engine: the heap of ends, the tree of best devices, queues of waiting jobs.

Plain functions over arrays of records. Numba compiles them, and with `NUMBA_DISABLE_JIT=1` they run as Python. Each
returns the same as its counterpart in the process engine (`engine/process/queues.py`): the order is total.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])
Records = np.ndarray


def hot(function: Function) -> Function:
    """Compile a function that every job executes: it is inlined, since each function is passed all the arrays.

    No such function allocates an array, so Numba need not count references (``_nrt``). That reduces the time of a job
    by two thirds.
    """
    compiled: Function = njit(cache=True, _nrt=False, error_model="numpy", forceinline=True)(function)
    return compiled


def cold(function: Function) -> Function:
    """Compile a rarely used function: it is not inlined, which reduces the compile time."""
    compiled: Function = njit(cache=True, _nrt=False, error_model="numpy")(function)
    return compiled


NOT_HERE = 2**62
"""The load of an unavailable device, which exceeds all others."""


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_typing: Any, rows: Any, at: Any) -> Any:
    """Prefetch the cache line at which record ``at`` of ``rows`` begins, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = [arguments[1]] + [context.get_constant(types.intp, 0)] * (kind.ndim - 1)
        pointer = cgutils.get_item_pointer(context, builder, kind, array, place)
        anywhere = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind_of = ir.FunctionType(ir.VoidType(), [anywhere, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind_of, "llvm.prefetch.p0")
        # Arguments: read access, all cache levels, data.
        builder.call(function, [builder.bitcast(pointer, anywhere), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(rows, at), generate


# The heap: entries (tick, which), least first, from index ROOT. Each node has four children, which gives few levels.
# Since the root is at index 3, the children begin at multiples of four and share a cache line.

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
        best = first
        for other in range(first + 1, first + 4):
            if tree[other].load < tree[best].load:
                best = other
        node = (node + 8) >> 2
        up = base + node
        if tree[up].load == tree[best].load and tree[up].winner == tree[best].winner:
            return
        tree[up].load, tree[up].winner = tree[best].load, tree[best].winner


def tree_size(count: int) -> tuple[int, int]:
    """Return the size of a tree of ``count`` devices and the index of its first leaf, for a root at ROOT."""
    leaves = 4
    while leaves < count:
        leaves *= 4
    leaf = ROOT + (leaves - 1) // 3
    return leaf + leaves, leaf


@cold
def tree_build(tree: Records, top: int, leaf: int, end: int, first: int, count: int) -> None:
    """Build a class's tree from the loads of its leaves up to ``end``; its devices are numbered from ``first``."""
    for at in range(leaf, end):
        tree[at].winner = first + at - leaf
        if at - leaf >= count:
            tree[at].load = NOT_HERE
    base = top - ROOT
    for node in range(leaf - base - 1, ROOT - 1, -1):
        child = base + 4 * node - 8
        best = child
        for other in range(child + 1, child + 4):
            if tree[other].load < tree[best].load:
                best = other
        tree[base + node].load, tree[base + node].winner = tree[best].load, tree[best].winner


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
