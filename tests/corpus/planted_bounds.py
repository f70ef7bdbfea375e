"""Planted out-of-bounds accesses, uninitialised reads, and divergent barriers."""

import numpy as np
from tests.corpus.registry import Empty

import windtunnel
from windtunnel import atomic, blockDim, blockIdx, f32, grid, i32, local, shared, syncthreads, threadIdx, u8

WIDTH = 64
RADIUS = 3


@windtunnel.kernel
def one_past_the_end(a: f32[:], b: f32[:], n: i32):
    i = grid(1)
    if i <= n:
        b[i] = 2.0 * a[i]  # BUG


@windtunnel.kernel
def no_guard(a: i32[:], b: i32[:]):
    i = grid(1)
    value = a[i]  # BUG
    b[i] = value


@windtunnel.kernel
def left_of_the_first(x: f32[:], out: f32[:], n: i32):
    i = grid(1)
    if i < n:
        out[i] = x[i] - x[i - 1]  # BUG


@windtunnel.kernel
def bin_from_data(data: u8[:], counts: i32[:], n: i32):
    i = grid(1)
    if i < n:
        atomic.add(counts, i32(data[i]) // 16, 1)  # BUG


@windtunnel.kernel
def swapped_indices(m: f32[:, :], out: f32[:, :], rows: i32, columns: i32):
    x, y = grid(2)
    if x < columns and y < rows:
        out[y, x] = m[x, y]  # BUG


@windtunnel.kernel
def last_row_has_no_south(source: f32[:, :], target: f32[:, :], height: i32, width: i32):
    x, y = grid(2)
    if x < width and y < height:
        target[y, x] = source[y + 1, x] - source[y, x]  # BUG


@windtunnel.kernel
def shared_for_half_the_block(x: i32[:], out: i32[:]):
    tile = shared.array(WIDTH, i32)
    t = threadIdx.x
    tile[t] = x[grid(1)]  # BUG
    syncthreads()
    out[grid(1)] = tile[blockDim.x - 1 - t]


@windtunnel.kernel
def halo_on_one_side_only(x: i32[:], out: i32[:], n: i32):
    # Room for one halo, and two are stored.
    temp = shared.array(WIDTH + RADIUS, i32)
    i = grid(1)
    s = threadIdx.x + RADIUS
    temp[s] = x[i]
    if threadIdx.x < RADIUS:
        temp[s - RADIUS] = x[i - RADIUS] if i >= RADIUS else 0
        temp[s + WIDTH] = x[i + WIDTH] if i + WIDTH < n else 0  # BUG
    syncthreads()
    out[i] = temp[s - RADIUS] + temp[s]


@windtunnel.kernel
def local_too_small(x: i32[:], out: i32[:], n: i32):
    last = local.array(4, i32)
    i = grid(1)
    if i < n:
        for k in range(5):
            last[k] = x[i] * k  # BUG
        out[i] = last[3]


@windtunnel.kernel
def insertion_runs_off_the_left(x: i32[:, :], n: i32):
    # The guard comes after what it guards.
    held = local.array(8, i32)
    row = grid(1)
    if row < n:
        for c in range(8):
            held[c] = x[row, c]
        for c in range(1, 8):
            value = held[c]
            k = c - 1
            while held[k] > value and k >= 0:  # BUG
                held[k + 1] = held[k]
                k -= 1
            held[k + 1] = value
        for c in range(8):
            x[row, c] = held[c]


def following(x, i):
    return x[i + 1]  # BUG


@windtunnel.kernel
def difference_by_helper(x: f32[:], out: f32[:], n: i32):
    i = grid(1)
    if i < n:
        out[i] = following(x, i) - x[i]


@windtunnel.kernel
def rows_without_their_end(starts: i32[:], values: f32[:], out: f32[:], rows: i32):
    # starts has an element a row; the last row's end is missing.
    row = grid(1)
    if row < rows:
        begin = starts[row]
        end = starts[row + 1]  # BUG
        total = f32(0.0)
        for k in range(begin, end):
            total += values[k]
        out[row] = total


@windtunnel.kernel
def product_wraps(x: i32[:], out: i32[:], stride: i32, n: i32):
    # 32 bits: the product is negative long before the remainder could help.
    i = grid(1)
    if i < n:
        at = i * stride
        if at < n:
            out[i] = x[at]  # BUG
        else:
            out[i] = 0


@windtunnel.kernel
def stride_steps_over_the_end(x: i32[:], out: i32[:], n: i32):
    i = grid(1) * 4
    if i < n:
        total = 0
        for k in range(4):
            total += x[i + k]  # BUG
        out[i // 4] = total


@windtunnel.kernel
def bits_of_a_wide_index(image: u8[:, :], out: i32[:], height: i32, width: i32):
    # Flat to two dimensions with the wrong divisor.
    i = grid(1)
    if i < height * width:
        out[i] = i32(image[i // height, i % height])  # BUG


@windtunnel.kernel
def halo_left_unset(x: i32[:], out: i32[:], n: i32):
    temp = shared.array(WIDTH + 2 * RADIUS, i32)
    i = grid(1)
    s = threadIdx.x + RADIUS
    temp[s] = x[i]
    if threadIdx.x < RADIUS:
        if i >= RADIUS:
            temp[s - RADIUS] = x[i - RADIUS]
        if i + WIDTH < n:
            temp[s + WIDTH] = x[i + WIDTH]
    syncthreads()
    total = 0
    for offset in range(-RADIUS, RADIUS + 1):
        total += temp[s + offset]  # BUG
    out[i] = total


@windtunnel.kernel
def accumulates_into_nothing(a: f32, x: f32[:], y: f32[:], n: i32):
    i = grid(1)
    if i < n:
        y[i] += a * x[i]  # BUG


@windtunnel.kernel
def local_sums_not_zeroed(x: i32[:, :], out: i32[:, :], rows: i32):
    sums = local.array(4, i32)
    row = grid(1)
    if row < rows:
        for c in range(16):
            sums[c % 4] += x[row, c]  # BUG
        for k in range(4):
            out[row, k] = sums[k]


@windtunnel.kernel
def shared_counts_not_zeroed(data: i32[:], counts: i32[:], n: i32):
    mine = shared.array(16, i32)
    i = grid(1)
    if i < n:
        atomic.add(mine, data[i], 1)  # BUG
    syncthreads()
    if threadIdx.x < 16:
        atomic.add(counts, threadIdx.x, mine[threadIdx.x])  # OR


@windtunnel.kernel
def ragged_reduction(x: f32[:], partial: f32[:], n: i32):
    # What lies past n is added, and nobody set it.
    tile = shared.array(WIDTH, f32)
    t = threadIdx.x
    i = grid(1)
    if i < n:
        tile[t] = x[i]
    syncthreads()
    s = WIDTH // 2
    while s > 0:
        if t < s:
            tile[t] += tile[t + s]  # BUG
        syncthreads()
        s //= 2
    if t == 0:
        partial[blockIdx.x] = tile[0]


@windtunnel.kernel
def reads_the_output_of_others(x: f32[:], out: f32[:], n: i32):
    # A recurrence taken for a map: in the one thread's order the next is not there yet.
    if grid(1) == 0:
        for i in range(n - 1):
            out[i] = x[i] + out[i + 1]  # BUG
        out[n - 1] = x[n - 1]


@windtunnel.kernel
def barrier_in_a_branch(x: i32[:], out: i32[:]):
    tile = shared.array(WIDTH, i32)
    t = threadIdx.x
    tile[t] = x[grid(1)]
    if t < 32:
        syncthreads()  # BUG
        out[grid(1)] = tile[t]
    else:
        out[grid(1)] = 0


@windtunnel.kernel
def barrier_in_a_branch_of_lanes(x: i32[:], out: i32[:]):
    # Lanes of one warp part.
    total = shared.array(1, i32)
    t = threadIdx.x
    if t == 0:
        total[0] = x[0]
        syncthreads()  # BUG
    out[t] = x[t]


@windtunnel.kernel
def barrier_after_early_return(x: i32[:], out: i32[:], n: i32):
    tile = shared.array(WIDTH, i32)
    t = threadIdx.x
    i = grid(1)
    if i >= n:
        return  # OR
    tile[t] = x[i]
    syncthreads()  # BUG
    out[i] = tile[t]


@windtunnel.kernel
def barrier_in_a_loop_of_own_length(x: i32[:], out: i32[:]):
    tile = shared.array(WIDTH, i32)
    t = threadIdx.x
    tile[t] = x[grid(1)]
    syncthreads()
    for _ in range(t // 32 + 1):
        tile[t] += 1
        syncthreads()  # BUG
    out[grid(1)] = tile[t]


@windtunnel.kernel
def barrier_in_both_branches(x: i32[:], out: i32[:]):
    tile = shared.array(WIDTH, i32)
    t = threadIdx.x
    if x[t] > 0:
        tile[t] = 1
        syncthreads()  # BUG
    else:
        tile[t] = 0
        syncthreads()  # BUG
    out[t] = tile[t]


@windtunnel.kernel
def barrier_after_a_break(x: i32[:], out: i32[:]):
    tile = shared.array(WIDTH, i32)
    t = threadIdx.x
    tile[t] = x[t]
    while True:
        if tile[t] <= 0:
            break  # OR
        tile[t] -= 1
        syncthreads()  # BUG
    out[t] = tile[t]


@windtunnel.kernel
def barrier_in_a_strided_loop(x: i32[:], out: i32[:], n: i32):
    # The last round has work for some threads only.
    tile = shared.array(WIDTH, i32)
    t = threadIdx.x
    for i in range(t, n, WIDTH):
        tile[t] = x[i]
        syncthreads()  # BUG
        out[i] = tile[t]


def meet():
    syncthreads()  # BUG


@windtunnel.kernel
def barrier_in_a_helper(x: i32[:], out: i32[:]):
    if threadIdx.x % 2 == 0:
        meet()
    out[threadIdx.x] = x[threadIdx.x]


def _ints(rng, *shape):
    return rng.integers(1, 99, shape, dtype=np.int32)


def _floats(rng, *shape):
    return rng.random(shape, dtype=np.float32)


def _row(finding):
    def row(kernel, grid_, block, make, **rest):
        return {
            "name": kernel.__name__,
            "finding": finding,
            "kernel": kernel,
            "grid": grid_,
            "block": block,
            "make": make,
            **rest,
        }

    return row


_outside, _unset, _parted = _row("OutOfBounds"), _row("UninitializedRead"), _row("BarrierDivergence")


def _one_to_one(n: int, size: int | None = None):
    return lambda rng: {"x": _ints(rng, size or n), "out": Empty((size or n,), np.int32), "n": n}


def _pair(n: int):
    return lambda rng: {"x": _ints(rng, n), "out": Empty((n,), np.int32)}


def _signs(rng):
    return {"x": np.where(np.arange(WIDTH) % 3 == 0, -1, 2).astype(np.int32), "out": Empty((WIDTH,), np.int32)}


PLANTED = (
    _outside(one_past_the_end, 2, 64, lambda rng: {"a": _floats(rng, 100), "b": Empty((100,), np.float32), "n": 100}),
    _outside(no_guard, 2, 64, lambda rng: {"a": _ints(rng, 100), "b": Empty((100,), np.int32)}),
    _outside(left_of_the_first, 2, 64, lambda rng: {"x": _floats(rng, 100), "out": Empty((100,), np.float32), "n": 100}, notes="index -1 is no last element"),
    _outside(bin_from_data, 2, 64, lambda rng: {"data": np.arange(100, 200).astype(np.uint8), "counts": np.zeros(12, np.int32), "n": 100}, notes="an atomic"),
    _outside(
        swapped_indices, (2, 2), (16, 16),
        lambda rng: {"m": _floats(rng, 20, 30), "out": Empty((20, 30), np.float32), "rows": 20, "columns": 30},
    ),
    _outside(
        last_row_has_no_south, (2, 2), (16, 16),
        lambda rng: {"source": _floats(rng, 20, 30), "target": Empty((20, 30), np.float32), "height": 20, "width": 30},
    ),
    _outside(shared_for_half_the_block, 1, 128, _pair(128)),
    _outside(halo_on_one_side_only, 2, WIDTH, _one_to_one(128)),
    _outside(local_too_small, 1, 32, _one_to_one(20)),
    _outside(insertion_runs_off_the_left, 1, 16, lambda rng: {"x": np.arange(80, dtype=np.int32)[::-1].reshape(10, 8).copy(), "n": 10}),
    _outside(difference_by_helper, 2, 32, lambda rng: {"x": _floats(rng, 50), "out": Empty((50,), np.float32), "n": 50}, within=(following,)),
    _outside(
        rows_without_their_end, 1, 32,
        lambda rng: {"starts": np.arange(0, 100, 5, dtype=np.int32), "values": _floats(rng, 100), "out": Empty((20,), np.float32), "rows": 20},
    ),
    _outside(
        product_wraps, 1, 64, lambda rng: {"x": _ints(rng, 60), "out": Empty((60,), np.int32), "stride": 100_000_000, "n": 60},
        notes="from thread 22 on the product is above 2**31",
    ),
    _outside(stride_steps_over_the_end, 1, 32, lambda rng: {"x": _ints(rng, 102), "out": Empty((26,), np.int32), "n": 102}),
    _outside(
        bits_of_a_wide_index, 3, 64,
        lambda rng: {"image": rng.integers(0, 256, (8, 20), dtype=np.uint8), "out": Empty((160,), np.int32), "height": 8, "width": 20},
    ),
    _unset(halo_left_unset, 2, WIDTH, _one_to_one(128)),
    _unset(accumulates_into_nothing, 2, 64, lambda rng: {"a": 2.0, "x": _floats(rng, 100), "y": Empty((100,), np.float32), "n": 100}),
    _unset(local_sums_not_zeroed, 1, 16, lambda rng: {"x": _ints(rng, 10, 16), "out": Empty((10, 4), np.int32), "rows": 10}),
    _unset(shared_counts_not_zeroed, 2, 64, lambda rng: {"data": _ints(rng, 100) % 16, "counts": np.zeros(16, np.int32), "n": 100}),
    _unset(ragged_reduction, 2, WIDTH, lambda rng: {"x": _floats(rng, 100), "partial": Empty((2,), np.float32), "n": 100}),
    _unset(reads_the_output_of_others, 1, 32, lambda rng: {"x": _floats(rng, 10), "out": Empty((10,), np.float32), "n": 10}),
    _parted(barrier_in_a_branch, 2, WIDTH, _pair(128), notes="whole warps part"),
    _parted(barrier_in_a_branch_of_lanes, 1, 32, _pair(32)),
    _parted(barrier_after_early_return, 2, WIDTH, _one_to_one(100), notes="the second block only"),
    _parted(barrier_in_a_loop_of_own_length, 1, WIDTH, _pair(WIDTH)),
    _parted(barrier_in_both_branches, 1, WIDTH, _signs, notes="as many barriers in each, but not the same ones"),
    _parted(barrier_after_a_break, 1, WIDTH, _signs),
    _parted(barrier_in_a_strided_loop, 1, WIDTH, _one_to_one(100)),
    _parted(barrier_in_a_helper, 1, 32, _pair(32), within=(meet,)),
)  # fmt: skip
