"""Correct programs that resemble wrong ones: locks, fences, flags, warp barriers, and barriers in uniform branches.

A checker that knows only barriers calls some of these races, and one that runs blocks to their end one by one calls
some of them deadlocks; they are neither. Blocks that wait for others are few enough to be resident on any device.
"""

import numpy as np
from tests.corpus.registry import Case, Empty

import windtunnel
from windtunnel import (
    atomic,
    blockDim,
    blockIdx,
    grid,
    gridDim,
    i32,
    shared,
    syncthreads,
    syncwarp,
    threadfence,
    threadfence_block,
    threadIdx,
    u32,
)

BLOCK = 64


@windtunnel.kernel
def sum_under_a_lock(x: i32[:], lock: i32[:], total: i32[:]):
    # One thread a block takes the lock; what it guards is read and written plainly.
    if threadIdx.x == 0:
        while atomic.cas(lock, 0, 0, 1) != 0:
            pass
        threadfence()
        total[0] = total[0] + x[blockIdx.x]
        threadfence()
        atomic.exch(lock, 0, 0)


@windtunnel.kernel
def sum_by_tickets(x: i32[:], tickets: i32[:], serving: i32[:], order: i32[:], total: i32[:]):
    if threadIdx.x == 0:
        mine = atomic.add(tickets, 0, 1)
        while atomic.add(serving, 0, 0) != mine:
            pass
        threadfence()
        total[0] += x[blockIdx.x]
        order[mine] = total[0]
        threadfence()
        atomic.add(serving, 0, 1)


@windtunnel.kernel
def hand_over(x: i32[:], held: i32[:], flag: i32[:], out: i32[:], n: i32):
    # Block 0 writes plainly, fences, and raises a flag; block 1 waits for it and reads plainly.
    t = threadIdx.x
    if blockIdx.x == 0:
        for i in range(t, n, blockDim.x):
            held[i] = 2 * x[i]
        syncthreads()
        if t == 0:
            threadfence()
            atomic.exch(flag, 0, 1)
    else:
        if t == 0:
            while atomic.add(flag, 0, 0) == 0:
                pass
            threadfence()
        syncthreads()
        for i in range(t, n, blockDim.x):
            out[i] = held[n - 1 - i]


@windtunnel.kernel
def grid_barrier(x: i32[:], squares: i32[:], arrived: i32[:], out: i32[:], n: i32):
    i = grid(1)
    squares[i] = x[i] * x[i]
    syncthreads()
    if threadIdx.x == 0:
        threadfence()
        atomic.add(arrived, 0, 1)
        while atomic.add(arrived, 0, 0) < gridDim.x:
            pass
        threadfence()
    syncthreads()
    out[i] = squares[n - 1 - i]


@windtunnel.kernel
def chained_scan(x: i32[:], out: i32[:], prefixes: i32[:], ready: i32[:], turn: i32[:]):
    # In one pass: each block waits for the sum of those before it. Its place is by arrival, so none waits for a later one.
    temp = shared.array(BLOCK, i32)
    place = shared.array(1, i32)
    before = shared.array(1, i32)
    t = threadIdx.x
    if t == 0:
        place[0] = atomic.add(turn, 0, 1)
    syncthreads()
    b = place[0]
    temp[t] = x[b * BLOCK + t]
    syncthreads()
    offset = 1
    while offset < BLOCK:
        value = 0
        if t >= offset:
            value = temp[t - offset]
        syncthreads()
        temp[t] += value
        syncthreads()
        offset *= 2
    if t == 0:
        sum_before = 0
        if b > 0:
            while atomic.add(ready, b - 1, 0) == 0:
                pass
            threadfence()
            sum_before = prefixes[b - 1]
        prefixes[b] = sum_before + temp[BLOCK - 1]
        threadfence()
        atomic.exch(ready, b, 1)
        before[0] = sum_before
    syncthreads()
    out[b * BLOCK + t] = before[0] + temp[t]


@windtunnel.kernel
def last_block_by_fence(x: i32[:], partial: i32[:], done: u32[:], total: i32[:]):
    # CUDA's sample threadFenceReduction: plain stores, a fence, an atomic count, and the last block reads them plainly.
    tile = shared.array(BLOCK, i32)
    last = shared.array(1, i32)
    t = threadIdx.x
    tile[t] = x[grid(1)]
    syncthreads()
    s = BLOCK // 2
    while s > 0:
        if t < s:
            tile[t] += tile[t + s]
        syncthreads()
        s //= 2
    if t == 0:
        partial[blockIdx.x] = tile[0]
        threadfence()
        last[0] = 1 if atomic.inc(done, 0, u32(gridDim.x - 1)) == u32(gridDim.x - 1) else 0
    syncthreads()
    if last[0] == 1 and t == 0:
        threadfence()
        sum_of_all = 0
        for b in range(gridDim.x):
            sum_of_all += partial[b]
        total[0] = sum_of_all


@windtunnel.kernel
def last_warp_with_syncwarp(x: i32[:], partial: i32[:]):
    tile = shared.array(BLOCK, i32)
    t = threadIdx.x
    tile[t] = x[grid(1)]
    syncthreads()
    if t < 32:
        value = tile[t]
        s = 32
        while s > 0:
            value += tile[t + s]
            syncwarp()
            tile[t] = value
            syncwarp()
            s //= 2
    if t == 0:
        partial[blockIdx.x] = tile[0]


@windtunnel.kernel
def barrier_in_uniform_branches(x: i32[:], out: i32[:], rounds: i32[:]):
    # What decides is the same for all threads of a block, though not of the grid.
    tile = shared.array(BLOCK, i32)
    t = threadIdx.x
    i = grid(1)
    if blockIdx.x % 2 == 0:
        tile[t] = x[i]
        syncthreads()
        out[i] = tile[BLOCK - 1 - t]
        return
    value = x[i]
    for _ in range(rounds[blockIdx.x]):
        tile[t] = value
        syncthreads()
        value = tile[(t + 1) % BLOCK]
        syncthreads()
    out[i] = value


@windtunnel.kernel
def flag_within_a_block(x: i32[:], out: i32[:]):
    # The first warp waits for the second, which waits for nobody.
    slot = shared.array(1, i32)
    flag = shared.array(1, i32)
    t = threadIdx.x
    if t == 0:
        flag[0] = 0
    syncthreads()
    if t == 32:
        slot[0] = x[blockIdx.x]
        threadfence_block()
        atomic.exch(flag, 0, 1)
    if t == 0:
        while atomic.add(flag, 0, 0) == 0:
            pass
        threadfence_block()
        out[blockIdx.x] = slot[0] + 1


@windtunnel.kernel
def queue_of_eight(head: i32[:], tail: i32[:], items: i32[:], out: i32[:]):
    # Block 0 produces what blocks 1 and 2 consume, four each.
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            for k in range(8):
                items[k] = k * k
                threadfence()
                atomic.add(tail, 0, 1)
        else:
            for _ in range(4):
                place = atomic.add(head, 0, 1)
                while atomic.add(tail, 0, 0) <= place:
                    pass
                threadfence()
                out[place] = items[place] + 1


@windtunnel.kernel
def exchanged_places(x: i32[:], slots: i32[:], seen: i32[:]):
    # Every value is taken out exactly once, by whom is not said.
    taken = atomic.exch(slots, 0, x[grid(1)])
    atomic.add(seen, taken, 1)


def _zeros(n: int = 1) -> np.ndarray:
    return np.zeros(n, np.int32)


def _ints(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(-99, 99, n, dtype=np.int32)


def _turned(x, out, rounds):
    rows = x.reshape(-1, BLOCK)
    return {
        "out": np.concatenate([row[::-1] if b % 2 == 0 else np.roll(row, -rounds[b]) for b, row in enumerate(rows)])
    }


def _exchanged(x, slots, seen):
    # The first takes the 0 that was there, everybody after it a 5, and one 5 stays.
    seen[0] += 1
    seen[5] += x.size - 1
    return {"slots": np.array([5], np.int32), "seen": seen}


CASES = (
    Case(
        "sum_under_a_lock", sum_under_a_lock, 6, 32, lambda rng: {"x": _ints(rng, 6), "lock": _zeros(), "total": _zeros()},
        lambda x, lock, total: {"total": np.array([x.sum()], np.int32)}, notes="a lock orders plain accesses",
    ),
    Case(
        "sum_by_tickets", sum_by_tickets, 6, 32,
        lambda rng: {"x": np.full(6, 7, np.int32), "tickets": _zeros(), "serving": _zeros(), "order": Empty((6,), np.int32), "total": _zeros()},
        lambda x, **_: {
            "tickets": np.array([6], np.int32), "serving": np.array([6], np.int32), "order": np.cumsum(x, dtype=np.int32), "total": np.array([42], np.int32),
        },
        notes="the same number from all, so that their order does not tell",
    ),
    Case(
        "hand_over_between_blocks", hand_over, 2, 32,
        lambda rng: {"x": _ints(rng, 50), "held": Empty((50,), np.int32), "flag": _zeros(), "out": Empty((50,), np.int32), "n": 50},
        lambda x, **_: {"held": 2 * x, "flag": np.array([1], np.int32), "out": 2 * x[::-1]},
        notes="barrier, fence, atomic flag, atomic look, fence, barrier: plain writes of one block are plain reads of another",
    ),
    Case(
        "grid_barrier", grid_barrier, 4, BLOCK,
        lambda rng: {"x": _ints(rng, 256), "squares": Empty((256,), np.int32), "arrived": _zeros(), "out": Empty((256,), np.int32), "n": 256},
        lambda x, **_: {"squares": x * x, "arrived": np.array([4], np.int32), "out": (x * x)[::-1]}, notes="four blocks must be resident at once",
    ),
    Case(
        "chained_scan", chained_scan, 7, BLOCK,
        lambda rng: {"x": _ints(rng, 448), "out": Empty((448,), np.int32), "prefixes": Empty((7,), np.int32), "ready": _zeros(7), "turn": _zeros()},
        lambda x, **_: {
            "out": np.cumsum(x, dtype=np.int32), "prefixes": np.cumsum(x, dtype=np.int32)[BLOCK - 1 :: BLOCK], "ready": np.ones(7, np.int32),
            "turn": np.array([7], np.int32),
        },
        notes="blocks wait for those that began before them",
    ),
    Case(
        "last_block_by_fence", last_block_by_fence, 5, BLOCK,
        lambda rng: {"x": _ints(rng, 320), "partial": Empty((5,), np.int32), "done": np.zeros(1, np.uint32), "total": Empty((1,), np.int32)},
        lambda x, **_: {"partial": x.reshape(5, BLOCK).sum(1).astype(np.int32), "total": np.array([x.sum()], np.int32)},
        notes="done is back at 0 for the next launch",
    ),
    Case(
        "last_warp_with_syncwarp", last_warp_with_syncwarp, 3, BLOCK, lambda rng: {"x": _ints(rng, 192), "partial": Empty((3,), np.int32)},
        lambda x, partial: {"partial": x.reshape(3, BLOCK).sum(1).astype(np.int32)}, notes="as the CUDA guide has it for Volta and later",
    ),
    Case(
        "barrier_in_uniform_branches", barrier_in_uniform_branches, 4, BLOCK,
        lambda rng: {"x": _ints(rng, 256), "out": Empty((256,), np.int32), "rounds": np.array([9, 3, 9, 5], np.int32)}, _turned,
        notes="trip counts from memory, one a block; a return of whole blocks",
    ),
    Case(
        "flag_within_a_block", flag_within_a_block, 2, BLOCK, lambda rng: {"x": _ints(rng, 2), "out": Empty((2,), np.int32)},
        lambda x, out: {"out": x + 1}, notes="one warp spins while another works",
    ),
    Case(
        "queue_of_eight", queue_of_eight, 3, 32,
        lambda rng: {"head": _zeros(), "tail": _zeros(), "items": Empty((8,), np.int32), "out": Empty((8,), np.int32)},
        lambda **_: {
            "head": np.array([8], np.int32), "tail": np.array([8], np.int32), "items": np.arange(8, dtype=np.int32) ** 2,
            "out": np.arange(8, dtype=np.int32) ** 2 + 1,
        },
    ),
    Case(
        "exchanged_places", exchanged_places, 3, 50, lambda rng: {"x": np.full(150, 5, np.int32), "slots": _zeros(), "seen": _zeros(8)}, _exchanged,
        notes="every exchange gives what the one before it left",
    ),
)  # fmt: skip
