"""Sums, extremes and counts: trees in shared memory, warp shuffles, two stages, atomics; histograms; votes."""

import numpy as np
from tests.corpus.registry import Case, Empty, Program, Step, blocks

import windtunnel
from windtunnel import (
    all_sync,
    any_sync,
    atomic,
    ballot_sync,
    blockDim,
    blockIdx,
    clz,
    f32,
    f64,
    ffs,
    grid,
    gridDim,
    gridsize,
    i32,
    laneid,
    popc,
    shared,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
    syncthreads,
    syncwarp,
    threadfence,
    threadIdx,
    u8,
    u32,
)

FULL = 0xFFFFFFFF
BLOCK = 128
BINS = 64


@windtunnel.kernel
def block_sum(x: f32[:], partial: f32[:], n: i32):
    tile = shared.array(BLOCK, f32)
    t = threadIdx.x
    i = grid(1)
    tile[t] = x[i] if i < n else 0.0
    syncthreads()
    s = blockDim.x // 2
    while s > 0:
        if t < s:
            tile[t] += tile[t + s]
        syncthreads()
        s //= 2
    if t == 0:
        partial[blockIdx.x] = tile[0]


@windtunnel.kernel
def block_sum_interleaved(x: i32[:], partial: i32[:], n: i32):
    tile = shared.array(shape=BLOCK, dtype=i32)
    t = threadIdx.x
    i = blockIdx.x * blockDim.x + t
    if i < n:
        tile[t] = x[i]
    else:
        tile[t] = 0
    syncthreads()
    stride = 1
    while stride < blockDim.x:
        index = 2 * stride * t
        if index + stride < blockDim.x:
            tile[index] += tile[index + stride]
        syncthreads()
        stride *= 2
    if t == 0:
        partial[blockIdx.x] = tile[0]


@windtunnel.kernel
def sum_atomic(x: i32[:], total: i32[:], n: i32):
    i = grid(1)
    if i < n:
        atomic.add(total, 0, x[i])


def warp_sum(value):
    offset = 16
    while offset > 0:
        value += shfl_down_sync(FULL, value, offset)
        offset //= 2
    return value


@windtunnel.kernel
def block_sum_shuffle(x: f32[:], partial: f32[:], n: i32):
    warps = shared.array(32, f32)
    t = threadIdx.x
    total = f32(0.0)
    for i in range(grid(1), n, gridsize(1)):
        total += x[i]
    total = warp_sum(total)
    lane = t % 32
    warp = t // 32
    if lane == 0:
        warps[warp] = total
    syncthreads()
    if warp == 0:
        total = warps[lane] if lane < blockDim.x // 32 else f32(0.0)
        total = warp_sum(total)
        if lane == 0:
            partial[blockIdx.x] = total


@windtunnel.kernel
def sum_butterfly(x: i32[:], out: i32[:]):
    value = x[grid(1)]
    mask = 16
    while mask >= 1:
        value += shfl_xor_sync(FULL, value, mask)
        mask >>= 1
    out[grid(1)] = value


@windtunnel.kernel
def last_block_sums(x: i32[:], partial: i32[:], done: u32[:], total: i32[:], n: i32):
    tile = shared.array(BLOCK, i32)
    last = shared.array(1, i32)
    t = threadIdx.x
    mine = 0
    for i in range(grid(1), n, gridsize(1)):
        mine += x[i]
    tile[t] = mine
    syncthreads()
    s = BLOCK // 2
    while s > 0:
        if t < s:
            tile[t] += tile[t + s]
        syncthreads()
        s //= 2
    if t == 0:
        atomic.exch(partial, blockIdx.x, tile[0])
        threadfence()
        arrived = atomic.add(done, 0, 1)
        last[0] = 1 if arrived == u32(gridDim.x - 1) else 0
    syncthreads()
    if last[0] == 1 and t == 0:
        sum_of_all = 0
        for b in range(gridDim.x):
            sum_of_all += atomic.add(partial, b, 0)
        total[0] = sum_of_all


@windtunnel.kernel
def extremes(x: i32[:], out: i32[:], n: i32):
    low = shared.array(1, i32)
    high = shared.array(1, i32)
    if threadIdx.x == 0:
        low[0] = 2147483647
        high[0] = -2147483648
    syncthreads()
    i = grid(1)
    if i < n:
        atomic.min(low, 0, x[i])
        atomic.max(high, 0, x[i])
    syncthreads()
    if threadIdx.x == 0:
        atomic.min(out, 0, low[0])
        atomic.max(out, 1, high[0])


@windtunnel.kernel
def argmax_rows(m: f32[:, :], best: i32[:], columns: i32):
    values = shared.array(64, f32)
    places = shared.array(64, i32)
    t = threadIdx.x
    row = blockIdx.x
    value = m[row, 0]
    place = 0
    for c in range(t, columns, blockDim.x):
        if m[row, c] > value:
            value = m[row, c]
            place = c
    values[t] = value
    places[t] = place
    syncthreads()
    s = 32
    while s > 0:
        if t < s:
            other = values[t + s]
            if other > values[t] or (other == values[t] and places[t + s] < places[t]):
                values[t] = other
                places[t] = places[t + s]
        syncthreads()
        s //= 2
    if t == 0:
        best[row] = places[0]


@windtunnel.kernel
def dot(a: f64[:], b: f64[:], partial: f64[:], n: i32):
    cache = shared.array(BLOCK, f64)
    t = threadIdx.x
    acc = f64(0.0)
    i = grid(1)
    while i < n:
        acc += a[i] * b[i]
        i += gridsize(1)
    cache[t] = acc
    syncthreads()
    half = blockDim.x // 2
    while half != 0:
        if t < half:
            cache[t] = cache[t] + cache[t + half]
        syncthreads()
        half = half // 2
    if t == 0:
        partial[blockIdx.x] = cache[0]


@windtunnel.kernel
def histogram(data: u8[:], counts: u32[:], n: i32):
    i = grid(1)
    if i < n:
        atomic.add(counts, i32(data[i]) % BINS, 1)


@windtunnel.kernel
def histogram_private(data: u8[:], counts: u32[:], n: i32):
    mine = shared.array(BINS, u32)
    for b in range(threadIdx.x, BINS, blockDim.x):
        mine[b] = 0
    syncthreads()
    for i in range(grid(1), n, gridsize(1)):
        atomic.add(mine, i32(data[i]) % BINS, 1)
    syncthreads()
    for b in range(threadIdx.x, BINS, blockDim.x):
        if mine[b] > 0:
            atomic.add(counts, b, mine[b])


@windtunnel.kernel
def bit_masks(x: u32[:], either: u32[:], n: i32):
    i = grid(1)
    if i < n:
        atomic.or_(either, 0, x[i])
        atomic.and_(either, 1, x[i])
        atomic.xor(either, 2, x[i])


@windtunnel.kernel
def add_by_cas(x: f32[:], bits: i32[:], n: i32):
    i = grid(1)
    if i < n:
        scaled = i32(x[i] * 8.0)
        assumed = atomic.cas(bits, 0, 0, 0)
        while True:
            old = atomic.cas(bits, 0, assumed, assumed + scaled)
            if old == assumed:
                break
            assumed = old


@windtunnel.kernel
def ring_slots(slots: u32[:], visits: i32[:]):
    slot = atomic.inc(slots, 0, 9)
    atomic.add(visits, i32(slot), 1)
    atomic.dec(slots, 1, 6)
    atomic.sub(slots, 2, 3)


@windtunnel.kernel
def votes(x: i32[:], out: u32[:, :]):
    i = grid(1)
    odd = (x[i] & 1) == 1
    mask = ballot_sync(FULL, odd)
    every = all_sync(FULL, x[i] > 0)
    some = any_sync(FULL, x[i] > 90)
    if laneid() == 0:
        warp = i // 32
        out[warp, 0] = mask
        out[warp, 1] = 1 if every else 0
        out[warp, 2] = 1 if some else 0
        out[warp, 3] = popc(mask)


@windtunnel.kernel
def compact_by_ballot(x: i32[:], out: i32[:], length: i32[:], n: i32):
    i = grid(1)
    lane = threadIdx.x & 31
    keep = i < n and x[min(i, n - 1)] > 0
    mask = ballot_sync(FULL, keep)
    leader = i32(ffs(mask)) - 1
    base = 0
    if lane == leader:
        base = atomic.add(length, 0, i32(popc(mask)))
    base = shfl_sync(FULL, base, max(leader, 0))
    if keep:
        before = mask & ((u32(1) << u32(lane)) - 1)
        out[base + i32(popc(before))] = x[i]


@windtunnel.kernel
def warp_scan(x: i32[:], out: i32[:]):
    lane = threadIdx.x % 32
    value = x[grid(1)]
    offset = 1
    while offset < 32:
        other = shfl_up_sync(FULL, value, offset)
        if lane >= offset:
            value += other
        offset *= 2
    out[grid(1)] = value


@windtunnel.kernel
def warp_reverse(x: f32[:], out: f32[:]):
    i = grid(1)
    out[i] = shfl_sync(FULL, x[i], 31 - threadIdx.x % 32)


@windtunnel.kernel
def warp_through_shared(x: i32[:], out: i32[:]):
    row = shared.array((4, 32), i32)
    lane = threadIdx.x % 32
    warp = threadIdx.x // 32
    row[warp, lane] = x[grid(1)]
    syncwarp()
    out[grid(1)] = row[warp, (lane + 1) % 32]


@windtunnel.kernel
def highest_bit(x: u32[:], out: i32[:], n: i32):
    i = grid(1)
    if i < n:
        out[i] = 31 - i32(clz(x[i]))


def _block_sums(x: np.ndarray, grid_: int, n: int) -> np.ndarray:
    padded = np.zeros(grid_ * BLOCK, x.dtype)
    padded[:n] = x[:n]
    return padded.reshape(grid_, BLOCK).sum(axis=1, dtype=np.float64 if x.dtype.kind == "f" else np.int64)


def _f32_block_sums(x, partial, n):
    return {"partial": _block_sums(x, partial.size, n).astype(np.float32)}


def _stride_sums(x, partial, n):
    threads = partial.size * BLOCK
    sums = [x[b * BLOCK + np.arange(BLOCK)[:, None] + np.arange(0, n, threads)] for b in range(partial.size)]
    return {"partial": np.array([s.sum(dtype=np.float64) for s in sums], np.float32)}


def _voted(x, out):
    rows = x.reshape(-1, 32)
    masks = [(int("".join("1" if v % 2 else "0" for v in row[::-1]), 2)) for row in rows]
    return {
        "out": np.array(
            [[m, int((r > 0).all()), int((r > 90).any()), m.bit_count()] for m, r in zip(masks, rows, strict=True)],
            np.uint32,
        )
    }


def _two_stages(x, partial, total, n):
    yield Step(block_sum, 16, BLOCK, (x, partial, n))
    yield Step(block_sum, 1, BLOCK, (partial, total, 16))


ORDER = "sums of f32 depend on the order of their terms"

CASES = (
    Case(
        "reduce_tree", block_sum, 8, BLOCK,
        lambda rng: {"x": rng.standard_normal(1000, dtype=np.float32), "partial": Empty((8,), np.float32), "n": 1000},
        _f32_block_sums, exact=False, rtol=1e-5, atol=1e-5, reason=ORDER, notes="sequential addressing; the last block is ragged",
    ),
    Case(
        "reduce_interleaved", block_sum_interleaved, 5, BLOCK,
        lambda rng: {"x": rng.integers(-999, 999, 600, dtype=np.int32), "partial": Empty((5,), np.int32), "n": 600},
        lambda x, partial, n: {"partial": _block_sums(x, 5, n).astype(np.int32)},
    ),
    Case(
        "reduce_atomic", sum_atomic, 10, 100,
        lambda rng: {"x": rng.integers(-(2**31), 2**31, 950, dtype=np.int32), "total": np.array([7], np.int32), "n": 950},
        lambda x, total, n: {"total": (x.sum(dtype=np.int64) + 7).astype(np.int32).reshape(1)},
        notes="one address, every thread; the sum wraps",
    ),
    Case(
        "reduce_shuffle", block_sum_shuffle, 3, BLOCK,
        lambda rng: {"x": rng.standard_normal(1920, dtype=np.float32), "partial": Empty((3,), np.float32), "n": 1920},
        _stride_sums, exact=False, rtol=1e-5, atol=2e-5, reason=ORDER,
        notes="shuffles in a helper; the last four warps' sums through shared memory",
    ),
    Case(
        "reduce_butterfly", sum_butterfly, 2, 64,
        lambda rng: {"x": rng.integers(-999, 999, 128, dtype=np.int32), "out": Empty((128,), np.int32)},
        lambda x, out: {"out": np.repeat(x.reshape(-1, 32).sum(axis=1), 32).astype(np.int32)},
    ),
    Case(
        "reduce_last_block", last_block_sums, 6, BLOCK,
        lambda rng: {
            "x": rng.integers(-999, 999, 3000, dtype=np.int32), "partial": np.zeros(6, np.int32), "done": np.zeros(1, np.uint32),
            "total": np.zeros(1, np.int32), "n": 3000,
        },
        lambda x, partial, done, total, n: {
            "partial": np.array([x[(np.arange(n) // BLOCK) % 6 == b].sum() for b in range(6)], np.int32),
            "done": np.array([6], np.uint32), "total": np.array([x.sum()], np.int32),
        },
        notes="whichever block comes last adds up; what blocks say to each other goes through atomics",
    ),
    Case(
        "minimum_maximum", extremes, 7, 96,
        lambda rng: {
            "x": rng.integers(-(2**31), 2**31, 650, dtype=np.int32), "out": np.array([2**31 - 1, -(2**31)], np.int32), "n": 650,
        },
        lambda x, out, n: {"out": np.array([x.min(), x.max()], np.int32)}, notes="atomics on shared, then on global memory",
    ),
    Case(
        "argmax_rows", argmax_rows, 9, 64,
        lambda rng: {"m": rng.integers(0, 40, (9, 150)).astype(np.float32), "best": Empty((9,), np.int32), "columns": 150},
        lambda m, best, columns: {"best": np.argmax(m, axis=1).astype(np.int32)}, notes="ties go to the lowest index",
    ),
    Case(
        "dot_f64", dot, 4, BLOCK,
        lambda rng: {"a": rng.standard_normal(2000), "b": rng.standard_normal(2000), "partial": Empty((4,), np.float64), "n": 2000},
        lambda a, b, partial, n: {"partial": np.array([(a * b)[(np.arange(n) // BLOCK) % 4 == k].sum() for k in range(4)])},
        exact=False, rtol=1e-12, atol=1e-12, reason="sums depend on the order of their terms",
    ),
    Case(
        "histogram_global", histogram, 8, 128,
        lambda rng: {"data": rng.integers(0, 256, 1000, dtype=np.uint8), "counts": np.zeros(BINS, np.uint32), "n": 1000},
        lambda data, counts, n: {"counts": np.bincount(data % BINS, minlength=BINS).astype(np.uint32)},
    ),
    Case(
        "histogram_private", histogram_private, 4, 96,
        lambda rng: {
            "data": (rng.standard_normal(5000) * 9 + 30).astype(np.int64).astype(np.uint8),
            "counts": rng.integers(0, 9, BINS, dtype=np.uint32), "n": 5000,
        },
        lambda data, counts, n: {"counts": counts + np.bincount(data % BINS, minlength=BINS).astype(np.uint32)},
        notes="a histogram a block in shared memory; skewed data; more bins than some strides reach",
    ),
    Case(
        "atomic_bit_masks", bit_masks, 2, 64,
        lambda rng: {
            "x": rng.integers(0, 2**32, 99, dtype=np.uint32) & np.uint32(0x7FFFFF1F) | np.uint32(3),
            "either": np.array([0, 2**32 - 1, 0], np.uint32), "n": 99,
        },
        lambda x, either, n: {
            "either": np.array([np.bitwise_or.reduce(x), np.bitwise_and.reduce(x), np.bitwise_xor.reduce(x)], np.uint32)
        },
    ),
    Case(
        "add_by_compare_and_swap", add_by_cas, 3, 50,
        lambda rng: {"x": rng.integers(-40, 40, 140).astype(np.float32) / 8, "bits": np.zeros(1, np.int32), "n": 140},
        lambda x, bits, n: {"bits": np.array([(x * 8).sum()], np.int32)}, notes="each thread retries until its swap holds",
    ),
    Case(
        "atomic_inc_dec_sub", ring_slots, 2, 45,
        lambda rng: {"slots": np.array([0, 0, 5], np.uint32), "visits": np.zeros(10, np.int32)},
        # inc wraps to 0 past 9: ninety visits are nine rounds of ten. dec wraps to 6 from 0: ninety from 0 end at -90 mod 7.
        lambda slots, visits: {
            "slots": np.array([0, -90 % 7, (5 - 3 * 90) % 2**32], np.uint32), "visits": np.full(10, 9, np.int32),
        },
        notes="CUDA's wrapping inc and dec: at the bound back to 0, at 0 back to the bound",
    ),
    Case(
        "warp_votes", votes, 3, 64,
        lambda rng: {
            "x": np.concatenate([rng.integers(1, 80, 64), rng.integers(-9, 100, 128)]).astype(np.int32),
            "out": Empty((6, 4), np.uint32),
        },
        _voted,
    ),
    Case(
        "ballot_compaction_one_warp", compact_by_ballot, 1, 32,
        lambda rng: {
            "x": rng.integers(-5, 6, 27, dtype=np.int32), "out": np.zeros(27, np.int32), "length": np.zeros(1, np.int32), "n": 27,
        },
        lambda x, out, length, n: {
            "out": np.concatenate([x[x > 0], np.zeros((x <= 0).sum(), np.int32)]), "length": np.array([(x > 0).sum()], np.int32),
        },
        notes="one atomic a warp; one warp, so the order is kept; lanes past n vote no",
    ),
    Case(
        "warp_scan", warp_scan, 2, 96, lambda rng: {"x": rng.integers(-99, 99, 192, dtype=np.int32), "out": Empty((192,), np.int32)},
        lambda x, out: {"out": np.cumsum(x.reshape(-1, 32), axis=1, dtype=np.int32).reshape(-1)},
        notes="lanes below the offset keep their own",
    ),
    Case(
        "warp_reverse", warp_reverse, 3, 32,
        lambda rng: {"x": rng.standard_normal(96, dtype=np.float32), "out": Empty((96,), np.float32)},
        lambda x, out: {"out": x.reshape(-1, 32)[:, ::-1].reshape(-1).copy()},
    ),
    Case(
        "warp_through_shared", warp_through_shared, 2, 128,
        lambda rng: {"x": rng.integers(0, 99, 256, dtype=np.int32), "out": Empty((256,), np.int32)},
        lambda x, out: {"out": np.roll(x.reshape(-1, 32), -1, axis=1).reshape(-1)},
        notes="lanes exchange through shared memory; syncwarp orders them, no barrier of the block is needed",
    ),
    Case(
        "highest_bit", highest_bit, 2, 32,
        lambda rng: {"x": (2 ** np.arange(50).clip(max=31) + np.arange(50) % 2).astype(np.uint32), "out": Empty((50,), np.int32), "n": 50},
        lambda x, out, n: {"out": np.array([int(v).bit_length() - 1 for v in x], np.int32)},
    ),
)  # fmt: skip

PROGRAMS = (
    Program(
        "reduce_two_stages",
        lambda rng: {
            "x": rng.standard_normal(2000, dtype=np.float32), "partial": Empty((16,), np.float32), "total": Empty((1,), np.float32), "n": 2000,
        },
        _two_stages, lambda x, partial, total, n: {"total": x.sum(dtype=np.float64).astype(np.float32).reshape(1)},
        scratch=("partial",), exact=False, rtol=1e-5, atol=1e-4, reason=ORDER,
    ),
)  # fmt: skip
assert blocks(2000, BLOCK) == 16
