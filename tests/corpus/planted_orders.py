"""Programs that are correct in some schedules and wrong in others, and the finding that a wrong schedule gives.

All that threads share is touched with atomic operations, so there is no race to report: only the order is wrong. Each
has a right program beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import windtunnel
from windtunnel import atomic, blockIdx, i32, shared, syncthreads, threadfence, threadIdx


@windtunnel.kernel
def lost_update(total: i32[:]):
    # Looked at and written in two steps: what came between is lost.
    seen = atomic.add(total, 0, 0)
    atomic.exch(total, 0, seen + 1)


@windtunnel.kernel
def kept_update(total: i32[:]):
    atomic.add(total, 0, 1)


@windtunnel.kernel
def locks_in_two_orders(locks: i32[:], total: i32[:]):
    first = blockIdx.x
    second = 1 - first
    while atomic.cas(locks, first, 0, 1) != 0:
        pass
    while atomic.cas(locks, second, 0, 1) != 0:
        pass
    atomic.add(total, 0, 1)
    atomic.exch(locks, second, 0)
    atomic.exch(locks, first, 0)


@windtunnel.kernel
def locks_in_one_order(locks: i32[:], total: i32[:]):
    while atomic.cas(locks, 0, 0, 1) != 0:
        pass
    while atomic.cas(locks, 1, 0, 1) != 0:
        pass
    atomic.add(total, 0, 1)
    atomic.exch(locks, 1, 0)
    atomic.exch(locks, 0, 0)


@windtunnel.kernel
def philosophers(forks: i32[:], meals: i32[:], n: i32):
    left = blockIdx.x
    right = (blockIdx.x + 1) % n
    while atomic.cas(forks, left, 0, 1) != 0:
        pass
    while atomic.cas(forks, right, 0, 1) != 0:
        pass
    atomic.add(meals, 0, 1)
    atomic.exch(forks, right, 0)
    atomic.exch(forks, left, 0)


@windtunnel.kernel
def philosophers_by_number(forks: i32[:], meals: i32[:], n: i32):
    left = min(blockIdx.x, (blockIdx.x + 1) % n)
    right = max(blockIdx.x, (blockIdx.x + 1) % n)
    while atomic.cas(forks, left, 0, 1) != 0:
        pass
    while atomic.cas(forks, right, 0, 1) != 0:
        pass
    atomic.add(meals, 0, 1)
    atomic.exch(forks, right, 0)
    atomic.exch(forks, left, 0)


@windtunnel.kernel
def flag_before_the_data(data: i32[:], flag: i32[:], out: i32[:]):
    if blockIdx.x == 0:
        atomic.exch(flag, 0, 1)
        atomic.exch(data, 0, 42)
    else:
        while atomic.add(flag, 0, 0) == 0:
            pass
        out[0] = atomic.add(data, 0, 0)


@windtunnel.kernel
def flag_after_the_data(data: i32[:], flag: i32[:], out: i32[:]):
    if blockIdx.x == 0:
        atomic.exch(data, 0, 42)
        threadfence()
        atomic.exch(flag, 0, 1)
    else:
        while atomic.add(flag, 0, 0) == 0:
            pass
        out[0] = atomic.add(data, 0, 0)


@windtunnel.kernel
def wakes_nobody(sleeping: i32[:], woken: i32[:], work: i32[:]):
    # Whether there is work is looked at, and then sleep begins: a waker in between finds nobody asleep.
    if blockIdx.x == 0:
        if atomic.add(work, 0, 0) == 0:
            atomic.exch(sleeping, 0, 1)
            while atomic.add(woken, 0, 0) == 0:
                pass
    else:
        atomic.exch(work, 0, 1)
        if atomic.add(sleeping, 0, 0) == 1:
            atomic.exch(woken, 0, 1)


@windtunnel.kernel
def wakes_whoever_looks(woken: i32[:], work: i32[:]):
    if blockIdx.x == 0:
        while atomic.add(work, 0, 0) == 0:
            pass
        atomic.exch(woken, 0, 1)
    else:
        atomic.exch(work, 0, 1)


@windtunnel.kernel
def two_that_are_last(left: i32[:], last: i32[:]):
    # Who counts down and who asks whether it is the last are two steps.
    atomic.sub(left, 0, 1)
    if atomic.add(left, 0, 0) == 0:
        atomic.add(last, 0, 1)


@windtunnel.kernel
def one_that_is_last(left: i32[:], last: i32[:]):
    if atomic.sub(left, 0, 1) == 1:
        atomic.add(last, 0, 1)


@windtunnel.kernel
def first_of_a_warp(place: i32[:], out: i32[:]):
    # It is taken for granted that thread 0 comes first.
    mine = atomic.add(place, 0, 1)
    if threadIdx.x == 0:
        out[0] = mine


@windtunnel.kernel
def barrier_before_the_first(place: i32[:], out: i32[:]):
    won = shared.array(1, i32)
    if threadIdx.x == 0:
        won[0] = atomic.add(place, 0, 1)
    syncthreads()
    if threadIdx.x != 0:
        atomic.add(place, 0, 1)
    else:
        out[0] = won[0]


@dataclass(frozen=True)
class Ordered:
    """``kernel`` on zeros of these sizes leaves ``expected`` in ``out`` in some orders; ``right`` does in all.

    ``finding``: what other orders end in, where it is not another number.
    """

    kernel: Any
    right: Any
    grid: int
    block: int
    sizes: Callable[[], dict[str, Any]]
    out: str
    expected: int
    finding: str = ""

    @property
    def name(self) -> str:
        return str(self.kernel.name)

    def run(self, accelerator: Any, kernel: Any) -> None:
        """Launch it and look at what it left."""
        given = self.sizes()
        names = kernel.function.__code__.co_varnames[: kernel.function.__code__.co_argcount]
        buffers = {n: accelerator.to_device(v) if isinstance(v, np.ndarray) else v for n, v in given.items()}
        accelerator.launch(kernel, self.grid, self.block, *(buffers[n] for n in names))
        assert accelerator.to_host(buffers[self.out])[0] == self.expected


def _zeros(**sizes: int) -> Callable[[], dict[str, Any]]:
    return lambda: {name: np.zeros(size, np.int32) for name, size in sizes.items()}


def _table(n: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"forks": np.zeros(n, np.int32), "meals": np.zeros(1, np.int32), "n": n}


ORDERED = (
    Ordered(lost_update, kept_update, 1, 4, _zeros(total=1), "total", 4),
    Ordered(locks_in_two_orders, locks_in_one_order, 2, 1, _zeros(locks=2, total=1), "total", 2, "Deadlock"),
    Ordered(philosophers, philosophers_by_number, 3, 1, _table(3), "meals", 3, "Deadlock"),
    Ordered(flag_before_the_data, flag_after_the_data, 2, 1, _zeros(data=1, flag=1, out=1), "out", 42),
    Ordered(wakes_nobody, wakes_whoever_looks, 2, 1, _zeros(sleeping=1, woken=1, work=1), "work", 1, "Deadlock"),
    Ordered(
        two_that_are_last, one_that_is_last, 2, 2, lambda: {"left": np.full(1, 4, np.int32), "last": np.zeros(1, np.int32)}, "last", 1
    ),
    Ordered(first_of_a_warp, barrier_before_the_first, 1, 4, _zeros(place=1, out=1), "out", 0),
)  # fmt: skip
