"""Kernels that are written out for every target, compiled by real compilers and run where something runs them.

They are plain functions: transpiling needs nothing else. Each is small and is there for one thing.
"""

import math

from windtunnel import (
    any_sync,
    atomic,
    ballot_sync,
    bf16,
    blockDim,
    blockIdx,
    clz,
    f16,
    f32,
    ffs,
    fma,
    grid,
    gridsize,
    i32,
    i64,
    laneid,
    local,
    popc,
    shared,
    shfl_down_sync,
    shfl_sync,
    shfl_xor_sync,
    syncthreads,
    tf32,
    threadIdx,
    u32,
    warpsize,
)

TILE = 8


def saxpy(x: f32[:], y: f32[:], n: i32, a: f32):
    """y = a x + y, an element a thread.

    Rounded twice: the product, then the sum.
    """
    i = grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]


def strided(x: f32[:], out: f32[:], scale: f32):
    """Each thread takes every so many-th element."""
    start = grid(1)
    for i in range(start, len(x), gridsize(1)):
        out[i] = max(x[i], 0.0) * scale - min(x[i], -1.0)


def matmul(a: f32[:, :], b: f32[:, :], c: f32[:, :]):
    """A tile of c a block, by tiles of a and b in shared memory."""
    left = shared.array((TILE, TILE), f32)
    right = shared.array((TILE, TILE), f32)
    x, y = threadIdx.x, threadIdx.y
    column, row = grid(2)
    total = f32(0)
    for first in range(0, a.shape[1], TILE):
        left[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else 0.0
        right[y, x] = b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else 0.0
        syncthreads()
        for k in range(TILE):
            total += left[y, k] * right[k, x]
        syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def reduction(x: i32[:], out: i32[:]):
    """The sum of each block's elements, by halves."""
    part = shared.array(256, i32)
    t = threadIdx.x
    i = grid(1)
    part[t] = x[i] if i < len(x) else 0
    syncthreads()
    stride = blockDim.x // 2
    while stride > 0:
        if t < stride:
            part[t] += part[t + stride]
        syncthreads()
        stride //= 2
    if t == 0:
        out[blockIdx.x] = part[0]


def histogram(values: i32[:], bins: u32[:], largest: i32[:], total: f32[:]):
    """How many of each, counted in shared memory first; the largest; the sum of all as floats."""
    counts = shared.array(16, u32)
    t = threadIdx.x
    if t < 16:
        counts[t] = 0
    syncthreads()
    i = grid(1)
    if i < len(values):
        atomic.add(counts, values[i] % 16, 1)
        atomic.max(largest, 0, values[i])
        atomic.add(total, 0, values[i])
        atomic.max(total, 1, f32(values[i]))
    syncthreads()
    if t < 16:
        atomic.add(bins, t, counts[t])


def stencil(field: f32[:, :], out: f32[:, :]):
    """A step of heat flow; the edge keeps its temperature."""
    x, y = grid(2)
    height, width = field.shape
    if x >= width or y >= height:
        return
    if x == 0 or y == 0 or x == width - 1 or y == height - 1:
        out[y, x] = field[y, x]
        return
    around = field[y - 1, x] + field[y + 1, x] + field[y, x - 1] + field[y, x + 1]
    out[y, x] = field[y, x] + 0.1 * (around - 4.0 * field[y, x])


def warp_sum(x: i32[:], sums: i32[:], flags: u32[:]):
    """Sums of warps by shuffles, and what its threads say."""
    i = grid(1)
    value = x[i]
    distance = warpsize // 2
    while distance > 0:
        value += shfl_down_sync(0xFFFFFFFF, value, distance)
        distance //= 2
    first = shfl_sync(0xFFFFFFFF, value, 0)
    other = shfl_xor_sync(0xFFFFFFFF, i, 1)
    sums[i] = first + (other - i)
    votes = ballot_sync(0xFFFFFFFF, x[i] > 0)
    flags[i] = votes if any_sync(0xFFFFFFFF, x[i] > 5) else u32(0)
    if laneid == 0:
        flags[i] += 1


def collatz(x: i32[:], steps: i32[:]):
    """How many steps to 1; -1 where 200 are not enough, -2 for what has none."""
    i = grid(1)
    if i >= len(x):
        return
    n = x[i]
    if n <= 0:
        steps[i] = -2
        return
    count = 0
    while True:
        if n == 1:
            break
        if count >= 200:
            count = -1
            break
        count += 1
        if n % 2 == 0:
            n //= 2
            continue
        n = 3 * n + 1
    steps[i] = count


def hashing(x: i32[:], out: u32[:], signed: i32[:]):
    """Integers that wrap around, of both kinds, and bits."""
    i = grid(1)
    if i < len(x):
        h = u32(x[i]) ^ 2166136261
        for round in range(4):
            h = (h ^ (h >> 15)) * 16777619
            h += round << 3
        out[i] = h ^ (popc(h) + clz(h) + ffs(h))
        s = x[i] * 1103515245 + 12345
        s = s - (s << 13) + (s >> (i & 31)) * (-s)
        signed[i] = abs(s) + (s >> i) + (s << i) + x[i] ** 3 - s**2


def halves(x: f16[:], y: f16[:], a: f16, scale: f32):
    """16-bit floats: every operation is rounded."""
    i = grid(1)
    if i < len(x):
        z = a * x[i] + y[i]
        z = z / (abs(x[i]) + 1.0) - f16(scale * 0.1)
        y[i] = max(min(z, f16(1000)), -x[i])


def floors(a: i32[:], b: i32[:], quotient: i32[:], rest: i32[:], x: f32[:], y: f32[:], fq: f32[:], fr: f32[:]):
    """// and % round down: with signs, of zero, of the smallest number; of floats too. Plain for indices."""
    i = grid(1)
    if i < len(a):
        quotient[i] = a[i] // b[i] + threadIdx.x // 4
        rest[i] = a[i] % b[i] + i % 3
        fq[i] = x[i] // y[i]
        fr[i] = x[i] % y[i]


def scattered(x: f32[:], out: f32[:], rounds: i32):
    """Variables that live across branches and turns, local arrays, a loop that counts down, else if."""
    i = grid(1)
    if i >= len(x):
        return
    window = local.array(4, f32)
    for k in range(4):
        window[k] = x[(i + k) % len(x)]
    rounds = min(rounds, 6)
    for k in range(rounds, 0, -2):
        if x[i] > 0.5 and (window[k % 4] > 0.25 or k > 3):
            last = window[k % 4]
            sign = 1.0
        elif x[i] > 0.25:
            last = x[i] * 2.0
            sign = -1.0
        else:
            last, sign = 0.0, 0.5
        window[(k + 1) % 4] += last * sign
    total = 0.0
    for k in range(4):
        if window[k] < 0.0:
            continue
        total += window[k]
    out[i] = fma(total, 2.0, tf32(x[i])) + math.floor(total)
