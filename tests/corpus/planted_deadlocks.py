"""Planted deadlocks: no thread can continue, in any order of blocks and threads.

Waiting threads look at memory with atomics, so that there is no race to report instead.
"""

import numpy as np

import windtunnel
from windtunnel import atomic, blockDim, blockIdx, grid, gridDim, i32, shared, syncthreads, syncwarp, threadIdx

BLOCKS = 8192


@windtunnel.kernel
def waits_for_the_last_block(flag: i32[:]):
    # More blocks than any device holds at once: the last begins only when another has ended.
    if blockIdx.x == gridDim.x - 1:
        atomic.exch(flag, 0, 1)
    else:
        while atomic.add(flag, 0, 0) == 0:  # BUG
            pass


@windtunnel.kernel
def lock_taken_twice(lock: i32[:], total: i32[:]):
    if grid(1) == 0:
        while atomic.cas(lock, 0, 0, 1) != 0:
            pass
        total[0] += 1
        while atomic.cas(lock, 0, 0, 1) != 0:  # BUG
            pass
        total[0] += 1
        atomic.exch(lock, 0, 0)


@windtunnel.kernel
def lock_never_released(lock: i32[:], total: i32[:]):
    if threadIdx.x == 0:
        while atomic.cas(lock, 0, 0, 1) != 0:  # BUG
            pass
        total[0] += 1


@windtunnel.kernel
def spins_within_a_warp(flag: i32[:], out: i32[:]):
    # Lane 0 waits for lane 1, and lane 1 at the warp's barrier for lane 0.
    lane = threadIdx.x
    if lane == 0:
        while atomic.add(flag, 0, 0) == 0:  # BUG
            pass
    syncwarp()  # OR
    if lane == 1:
        atomic.exch(flag, 0, 1)
    out[lane] = lane


@windtunnel.kernel
def spins_before_the_barrier(flag: i32[:], out: i32[:]):
    t = threadIdx.x
    if t == 0:
        while atomic.add(flag, 0, 0) == 0:  # BUG
            pass
    syncthreads()  # OR
    if t == 32:
        atomic.exch(flag, 0, 1)
    out[t] = t


@windtunnel.kernel
def lost_wake_up(flag: i32[:], ready: i32[:]):
    # The sleeper clears the flag after it was raised, and waits for it to be raised again.
    if blockIdx.x == 0:
        atomic.exch(flag, 0, 1)
        atomic.exch(ready, 0, 1)
    else:
        while atomic.add(ready, 0, 0) == 0:
            pass
        atomic.exch(flag, 0, 0)
        while atomic.add(flag, 0, 0) == 0:  # BUG
            pass


@windtunnel.kernel
def two_locks_crosswise(locks: i32[:], holding: i32[:]):
    # Each of two blocks holds one lock, and both know that, before they ask for the other.
    mine = blockIdx.x
    while atomic.cas(locks, mine, 0, 1) != 0:
        pass
    atomic.add(holding, 0, 1)
    while atomic.add(holding, 0, 0) < 2:
        pass
    while atomic.cas(locks, 1 - mine, 0, 1) != 0:  # BUG
        pass
    atomic.exch(locks, 1 - mine, 0)
    atomic.exch(locks, mine, 0)


@windtunnel.kernel
def grid_barrier_counts_threads(arrived: i32[:]):
    # A thread a block arrives; all threads of all blocks are waited for.
    if threadIdx.x == 0:
        atomic.add(arrived, 0, 1)
        while atomic.add(arrived, 0, 0) < gridDim.x * blockDim.x:  # BUG
            pass
    syncthreads()  # OR


@windtunnel.kernel
def ticket_lock_serves_no_next(tickets: i32[:], serving: i32[:], total: i32[:]):
    if threadIdx.x == 0:
        mine = atomic.add(tickets, 0, 1)
        while atomic.add(serving, 0, 0) != mine:  # BUG
            pass
        total[0] += mine
        atomic.exch(serving, 0, mine)


@windtunnel.kernel
def ring_of_waiting_blocks(done: i32[:]):
    # Each block waits for the one after it, the last for the first.
    after = (blockIdx.x + 1) % gridDim.x
    while atomic.add(done, after, 0) == 0:  # BUG
        pass
    atomic.exch(done, blockIdx.x, 1)


@windtunnel.kernel
def queue_consumer_without_producer(head: i32[:], tail: i32[:], items: i32[:], out: i32[:]):
    # Block 0 produces seven items, block 1 wants eight.
    taken = shared.array(1, i32)
    if blockIdx.x == 0:
        for k in range(7):
            atomic.exch(items, k, k + 1)
            atomic.add(tail, 0, 1)
    else:
        taken[0] = 0
        for _ in range(8):
            place = atomic.add(head, 0, 1)
            while atomic.add(tail, 0, 0) <= place:  # BUG
                pass
            taken[0] += atomic.add(items, place, 0)
        out[0] = taken[0]


def _zeros(**sizes: int):
    return lambda rng: {name: np.zeros(size, np.int32) for name, size in sizes.items()}


def _stuck(kernel, grid_, block, make, **rest):
    return {
        "name": kernel.__name__,
        "finding": "Deadlock",
        "kernel": kernel,
        "grid": grid_,
        "block": block,
        "make": make,
        **rest,
    }


PLANTED = (
    _stuck(
        waits_for_the_last_block, BLOCKS, 1, _zeros(flag=1),
        notes="8,192 blocks; an H100 holds 132 times 32. With few enough blocks to be resident it would end",
    ),
    _stuck(lock_taken_twice, 1, 32, _zeros(lock=1, total=1)),
    _stuck(lock_never_released, 4, 32, _zeros(lock=1, total=1)),
    _stuck(spins_within_a_warp, 1, 32, _zeros(flag=1, out=32)),
    _stuck(spins_before_the_barrier, 1, 64, _zeros(flag=1, out=64), notes="the other warp waits at the barrier"),
    _stuck(lost_wake_up, 2, 1, _zeros(flag=1, ready=1)),
    _stuck(two_locks_crosswise, 2, 1, _zeros(locks=2, holding=1)),
    _stuck(grid_barrier_counts_threads, 4, 32, _zeros(arrived=1)),
    _stuck(ticket_lock_serves_no_next, 3, 32, _zeros(tickets=1, serving=1, total=1)),
    _stuck(ring_of_waiting_blocks, 4, 1, _zeros(done=4)),
    _stuck(queue_consumer_without_producer, 2, 1, _zeros(head=1, tail=1, items=8, out=1)),
)  # fmt: skip
