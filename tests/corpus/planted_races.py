"""Planted data races: missing barriers, two writers, unordered blocks, atomic operations mixed with plain accesses."""

import math

import numpy as np
from tests.corpus.registry import Empty

import windtunnel
from windtunnel import atomic, blockIdx, f32, grid, i32, shared, syncthreads, threadIdx, u32

BLOCK = 128
TILE = 16
WIDTH = 64
RADIUS = 3


@windtunnel.kernel
def reduction_no_barrier_after_load(x: f32[:], partial: f32[:]):
    tile = shared.array(BLOCK, f32)
    t = threadIdx.x
    tile[t] = x[grid(1)]  # BUG
    s = BLOCK // 2
    while s > 0:
        if t < s:
            tile[t] += tile[t + s]  # BUG
        syncthreads()
        s //= 2
    if t == 0:
        partial[blockIdx.x] = tile[0]


@windtunnel.kernel
def reduction_no_barrier_in_loop(x: i32[:], partial: i32[:]):
    tile = shared.array(BLOCK, i32)
    t = threadIdx.x
    tile[t] = x[grid(1)]
    syncthreads()
    s = BLOCK // 2
    while s > 0:
        if t < s:
            tile[t] += tile[t + s]  # BUG
        s //= 2
    if t == 0:
        partial[blockIdx.x] = tile[0]


@windtunnel.kernel
def normalise_reads_sum_early(x: f32[:], out: f32[:]):
    tile = shared.array(BLOCK, f32)
    t = threadIdx.x
    i = grid(1)
    tile[t] = x[i]
    s = BLOCK // 2
    while s > 0:
        syncthreads()
        if t < s:
            tile[t] += tile[t + s]  # BUG
        s //= 2
    out[i] = x[i] / tile[0]  # BUG


@windtunnel.kernel
def last_warp_without_syncwarp(x: i32[:], partial: i32[:]):
    # The old idiom: "a warp runs in step". Since Volta it need not.
    tile = shared.array(64, i32)
    t = threadIdx.x
    tile[t] = x[grid(1)]
    syncthreads()
    if t < 32:
        s = 32
        while s > 0:
            tile[t] += tile[t + s]  # BUG
            s //= 2
    if t == 0:
        partial[blockIdx.x] = tile[0]


@windtunnel.kernel
def transpose_no_barrier(m: f32[:, :], out: f32[:, :]):
    tile = shared.array((TILE, TILE + 1), f32)
    x = blockIdx.x * TILE + threadIdx.x
    y = blockIdx.y * TILE + threadIdx.y
    tile[threadIdx.y, threadIdx.x] = m[y, x]  # BUG
    x = blockIdx.y * TILE + threadIdx.x
    y = blockIdx.x * TILE + threadIdx.y
    out[y, x] = tile[threadIdx.x, threadIdx.y]  # BUG


@windtunnel.kernel
def scan_one_barrier_a_round(x: i32[:], out: i32[:]):
    temp = shared.array(BLOCK, i32)
    t = threadIdx.x
    temp[t] = x[t]
    syncthreads()
    offset = 1
    while offset < BLOCK:
        if t >= offset:
            temp[t] += temp[t - offset]  # BUG
        syncthreads()
        offset *= 2
    out[t] = temp[t]


@windtunnel.kernel
def scan_halves_not_by_turns(x: i32[:], out: i32[:]):
    # Two halves spare the second barrier of a round, not the first.
    temp = shared.array((2, BLOCK), i32)
    t = threadIdx.x
    temp[0, t] = x[t]
    syncthreads()
    source = 0
    offset = 1
    while offset < BLOCK:
        total = temp[source, t]
        if t >= offset:
            total += temp[source, t - offset]  # BUG
        temp[1 - source, t] = total  # BUG
        source = 1 - source
        offset *= 2
    out[t] = temp[source, t]


@windtunnel.kernel
def halo_no_barrier(x: i32[:], out: i32[:], n: i32):
    temp = shared.array(WIDTH + 2 * RADIUS, i32)
    i = grid(1)
    s = threadIdx.x + RADIUS
    temp[s] = x[i]  # BUG
    if threadIdx.x < RADIUS:
        temp[s - RADIUS] = x[i - RADIUS] if i >= RADIUS else 0  # OR
        temp[s + WIDTH] = x[i + WIDTH] if i + WIDTH < n else 0  # OR
    total = 0
    for offset in range(-RADIUS, RADIUS + 1):
        total += temp[s + offset]  # BUG
    out[i] = total


@windtunnel.kernel
def matmul_no_barrier_at_the_back_edge(a: f32[:, :], b: f32[:, :], c: f32[:, :], size: i32):
    a_tile = shared.array((TILE, TILE), f32)
    b_tile = shared.array((TILE, TILE), f32)
    tx = threadIdx.x
    ty = threadIdx.y
    column, row = grid(2)
    total = f32(0.0)
    for k in range(0, size, TILE):
        a_tile[ty, tx] = a[row, k + tx]  # BUG
        b_tile[ty, tx] = b[k + ty, column]  # OR
        syncthreads()
        for kk in range(TILE):
            total += a_tile[ty, kk] * b_tile[kk, tx]  # BUG
    c[row, column] = total


@windtunnel.kernel
def softmax_reuses_shared(x: f32[:, :], out: f32[:, :]):
    partial = shared.array(WIDTH, f32)
    t = threadIdx.x
    row = blockIdx.x
    partial[t] = x[row, t]
    syncthreads()
    s = WIDTH // 2
    while s > 0:
        if t < s:
            partial[t] = max(partial[t], partial[t + s])
        syncthreads()
        s //= 2
    highest = partial[0]  # BUG
    e = math.exp(x[row, t] - highest)
    partial[t] = e  # BUG
    syncthreads()
    s = WIDTH // 2
    while s > 0:
        if t < s:
            partial[t] += partial[t + s]
        syncthreads()
        s //= 2
    out[row, t] = e / partial[0]


@windtunnel.kernel
def histogram_without_atomics(data: i32[:], counts: i32[:], n: i32):
    i = grid(1)
    if i < n:
        counts[data[i]] += 1  # BUG


@windtunnel.kernel
def histogram_merged_without_atomics(data: i32[:], counts: i32[:], n: i32):
    # Atomics within the block, and then every block adds its own to the one result.
    mine = shared.array(16, i32)
    t = threadIdx.x
    if t < 16:
        mine[t] = 0
    syncthreads()
    i = grid(1)
    if i < n:
        atomic.add(mine, data[i], 1)
    syncthreads()
    if t < 16:
        counts[t] += mine[t]  # BUG


@windtunnel.kernel
def whoever_finds_it(x: i32[:], wanted: i32, place: i32[:], n: i32):
    i = grid(1)
    if i < n and x[i] == wanted:
        place[0] = i  # BUG


@windtunnel.kernel
def overlapping_strides(x: i32[:], out: i32[:], n: i32):
    # Three elements a thread were meant, and four are written.
    i = grid(1)
    if i < n:
        for k in range(4):
            out[3 * i + k] = x[i] + k  # BUG


@windtunnel.kernel
def column_for_row(m: i32[:, :], sums: i32[:], rows: i32, columns: i32):
    x, y = grid(2)
    if x < columns and y < rows:
        sums[x] = m[y, x]  # BUG


@windtunnel.kernel
def smooth_in_place(x: f32[:], n: i32):
    i = grid(1)
    if i > 0 and i < n - 1:
        x[i] = 0.5 * (x[i - 1] + x[i + 1])  # BUG


@windtunnel.kernel
def smooth_between_blocks(x: f32[:], n: i32):
    # Right within a block; the halo is read while the neighbouring block writes it.
    tile = shared.array(WIDTH + 2, f32)
    t = threadIdx.x
    i = grid(1)
    tile[t + 1] = x[i]
    if t == 0:
        tile[0] = x[i - 1] if i > 0 else 0.0  # BUG
    if t == WIDTH - 1:
        tile[WIDTH + 1] = x[i + 1] if i < n - 1 else 0.0  # OR
    syncthreads()
    x[i] = 0.5 * (tile[t] + tile[t + 2])  # BUG


@windtunnel.kernel
def barrier_taken_for_the_grids(x: i32[:], squares: i32[:], out: i32[:], n: i32):
    i = grid(1)
    squares[i] = x[i] * x[i]  # BUG
    syncthreads()
    out[i] = squares[n - 1 - i]  # BUG


@windtunnel.kernel
def plain_read_of_a_counter(x: i32[:], count: i32[:], out: i32[:], n: i32):
    i = grid(1)
    if i < n:
        if x[i] > 0:
            atomic.add(count, 0, 1)  # BUG
        out[i] = count[0]  # BUG


@windtunnel.kernel
def plain_reset_of_a_counter(x: i32[:], count: i32[:], n: i32):
    # Thread 0 resets for everybody, and nobody waits for it.
    i = grid(1)
    if i == 0:
        count[0] = 0  # BUG
    if i < n and x[i] > 0:
        atomic.add(count, 0, 1)  # BUG


@windtunnel.kernel
def compaction_without_atomics(x: i32[:], out: i32[:], count: i32[:], n: i32):
    i = grid(1)
    if i < n and x[i] > 0:
        place = count[0]  # BUG
        out[place] = x[i]  # OR
        count[0] = place + 1  # BUG


@windtunnel.kernel
def plain_flag(data: i32[:], flag: i32[:], out: i32[:]):
    if blockIdx.x == 0:
        if threadIdx.x == 0:
            flag[0] = 1  # BUG
    elif threadIdx.x == 0 and flag[0] == 1:  # BUG
        out[blockIdx.x] = data[0]


@windtunnel.kernel
def unlocked_too_early(x: i32[:], lock: i32[:], total: i32[:]):
    if threadIdx.x == 0:
        while atomic.cas(lock, 0, 0, 1) != 0:
            pass
        value = total[0]  # BUG
        atomic.exch(lock, 0, 0)
        total[0] = value + x[blockIdx.x]  # BUG


@windtunnel.kernel
def shift(x: i32[:], out: i32[:], n: i32):
    i = grid(1)
    if i < n - 1:
        out[i + 1] = x[i]  # BUG


@windtunnel.kernel
def newtons_third_law(position: f32[:], force: f32[:], n: i32):
    # Each pair once, and both of it are pushed.
    i = grid(1)
    if i < n - 1:
        push = 1.0 / (position[i + 1] - position[i])
        force[i] -= push  # BUG
        force[i + 1] += push  # BUG


@windtunnel.kernel
def bin_chosen_by_a_hash(keys: u32[:], table: u32[:], n: i32):
    # Two keys that meet in one slot: the later write wins, if there is a later one.
    i = grid(1)
    if i < n:
        slot = i32((keys[i] * 2654435761) >> 27)
        if table[slot] == 0:  # OR
            table[slot] = keys[i]  # BUG


@windtunnel.kernel
def shared_flag_set_by_many(x: i32[:], out: i32[:]):
    found = shared.array(1, i32)
    if threadIdx.x == 0:
        found[0] = -1
    syncthreads()
    if x[grid(1)] > 0:
        found[0] = threadIdx.x  # BUG
    syncthreads()
    if threadIdx.x == 0:
        out[blockIdx.x] = found[0]


def _floats(rng, *shape):
    return rng.random(shape, dtype=np.float32)


def _ints(rng, n, low=-99, high=99):
    return rng.integers(low, high, n, dtype=np.int32)


def _blocks_of(name: str, out: int, dtype):
    def make(rng):
        x = _floats(rng, 2 * BLOCK) if dtype == np.float32 else _ints(rng, 2 * BLOCK)
        return {"x": x, name: Empty((out,), dtype)}

    return make


def _race(kernel, grid_, block, make, **rest):
    return {
        "name": kernel.__name__,
        "finding": "DataRace",
        "kernel": kernel,
        "grid": grid_,
        "block": block,
        "make": make,
        **rest,
    }


UNSET = {
    "instead": "UninitializedRead",
    "notes": "a thread that runs ahead reads what its neighbour has not written yet",
}

PLANTED = (
    _race(reduction_no_barrier_after_load, 2, BLOCK, _blocks_of("partial", 2, np.float32), **UNSET),
    _race(reduction_no_barrier_in_loop, 2, BLOCK, _blocks_of("partial", 2, np.int32)),
    _race(normalise_reads_sum_early, 2, BLOCK, _blocks_of("out", 2 * BLOCK, np.float32)),
    _race(
        last_warp_without_syncwarp, 2, 64, lambda rng: {"x": _ints(rng, 128), "partial": Empty((2,), np.int32)},
        notes="only between the lanes of a warp",
    ),
    _race(transpose_no_barrier, (2, 2), (TILE, TILE), lambda rng: {"m": _floats(rng, 32, 32), "out": Empty((32, 32), np.float32)}, **UNSET),
    _race(scan_one_barrier_a_round, 1, BLOCK, lambda rng: {"x": _ints(rng, BLOCK), "out": Empty((BLOCK,), np.int32)}),
    _race(scan_halves_not_by_turns, 1, BLOCK, lambda rng: {"x": _ints(rng, BLOCK), "out": Empty((BLOCK,), np.int32)}, **UNSET),
    _race(halo_no_barrier, 3, WIDTH, lambda rng: {"x": _ints(rng, 192), "out": Empty((192,), np.int32), "n": 192}, **UNSET),
    _race(
        matmul_no_barrier_at_the_back_edge, (2, 2), (TILE, TILE),
        lambda rng: {"a": _floats(rng, 32, 32), "b": _floats(rng, 32, 32), "c": Empty((32, 32), np.float32), "size": 32},
    ),
    _race(softmax_reuses_shared, 2, WIDTH, lambda rng: {"x": _floats(rng, 2, WIDTH), "out": Empty((2, WIDTH), np.float32)}),
    _race(histogram_without_atomics, 2, 64, lambda rng: {"data": _ints(rng, 100, 0, 8), "counts": np.zeros(8, np.int32), "n": 100}),
    _race(
        histogram_merged_without_atomics, 3, 64, lambda rng: {"data": _ints(rng, 150, 0, 16), "counts": np.zeros(16, np.int32), "n": 150},
        notes="only between blocks",
    ),
    _race(whoever_finds_it, 2, 64, lambda rng: {"x": _ints(rng, 128, 0, 4), "wanted": 2, "place": np.full(1, -1, np.int32), "n": 128}),
    _race(overlapping_strides, 2, 32, lambda rng: {"x": _ints(rng, 50), "out": Empty((151,), np.int32), "n": 50}),
    _race(
        column_for_row, (1, 2), (16, 8),
        lambda rng: {"m": np.arange(160, dtype=np.int32).reshape(10, 16), "sums": Empty((16,), np.int32), "rows": 10, "columns": 16},
        notes="every row writes its own value to the column's place",
    ),
    _race(smooth_in_place, 2, 64, lambda rng: {"x": _floats(rng, 100), "n": 100}),
    _race(smooth_between_blocks, 2, WIDTH, lambda rng: {"x": _floats(rng, 128), "n": 128}, notes="only between blocks"),
    _race(
        barrier_taken_for_the_grids, 2, 64,
        lambda rng: {"x": _ints(rng, 128), "squares": np.zeros(128, np.int32), "out": Empty((128,), np.int32), "n": 128},
        notes="only between blocks",
    ),
    _race(
        plain_read_of_a_counter, 2, 64, lambda rng: {"x": _ints(rng, 100), "count": np.zeros(1, np.int32), "out": Empty((100,), np.int32), "n": 100}
    ),
    _race(plain_reset_of_a_counter, 2, 64, lambda rng: {"x": _ints(rng, 100), "count": np.full(1, 9, np.int32), "n": 100}),
    _race(
        compaction_without_atomics, 2, 64,
        lambda rng: {"x": _ints(rng, 100), "out": np.zeros(100, np.int32), "count": np.zeros(1, np.int32), "n": 100},
    ),
    _race(
        plain_flag, 3, 32, lambda rng: {"data": _ints(rng, 1), "flag": np.zeros(1, np.int32), "out": np.zeros(3, np.int32)},
        notes="one thread a block",
    ),
    _race(
        unlocked_too_early, 4, 32, lambda rng: {"x": _ints(rng, 4, 1), "lock": np.zeros(1, np.int32), "total": np.zeros(1, np.int32)},
        notes="the lock orders the reads, not the writes",
    ),
    # One array under two names.
    _race(shift, 2, 64, lambda rng: dict.fromkeys(("x", "out"), _ints(rng, 100)) | {"n": 100}, notes="one buffer is given for both arguments"),
    _race(newtons_third_law, 2, 32, lambda rng: {"position": np.arange(60, dtype=np.float32), "force": np.zeros(60, np.float32), "n": 60}),
    _race(bin_chosen_by_a_hash, 2, 64, lambda rng: {"keys": np.arange(1, 101).astype(np.uint32), "table": np.zeros(32, np.uint32), "n": 100}),
    _race(shared_flag_set_by_many, 2, 64, lambda rng: {"x": _ints(rng, 128), "out": Empty((2,), np.int32)}),
)  # fmt: skip
