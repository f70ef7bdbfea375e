"""Kernels that are emitted for every target, compiled by real compilers and executed where a device is available.

Except for stencils they are plain functions, since transpiling needs no more. Each kernel tests one feature.
"""

import math

import windtunnel
from windtunnel import (
    GridPos,
    all_sync,
    any_sync,
    atomic,
    ballot_sync,
    bf16,
    blockDim,
    blockIdx,
    brev,
    cg,
    clz,
    f16,
    f32,
    f64,
    ffs,
    fma,
    grid,
    gridsize,
    i8,
    i16,
    i32,
    i64,
    laneid,
    local,
    popc,
    rsqrt,
    shared,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
    syncthreads,
    syncwarp,
    tf32,
    threadfence,
    threadfence_block,
    threadIdx,
    u8,
    u16,
    u32,
    u64,
    warpsize,
)

TILE = 8


def saxpy(x: f32[:], y: f32[:], n: i32, a: f32):
    """Compute y = a x + y, one element per thread.

    The result is rounded twice: after the product and after the sum.
    """
    i = grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]


def strided(x: f32[:], out: f32[:], scale: f32):
    """Process the elements of a thread with a constant stride."""
    start = grid(1)
    for i in range(start, len(x), gridsize(1)):
        out[i] = max(x[i], 0.0) * scale - min(x[i], -1.0)


def matmul(a: f32[:, :], b: f32[:, :], c: f32[:, :]):
    """Compute one tile of c per block, from tiles of a and b in shared memory."""
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
    """Sum the elements of each block in a tree."""
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
    """Count each value in shared memory first; also compute the largest value, and the sum of all as floats."""
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
    """Compute one step of heat flow; the edge keeps its temperature."""
    x, y = grid(2)
    height, width = field.shape
    if x >= width or y >= height:
        return
    if x == 0 or y == 0 or x == width - 1 or y == height - 1:
        out[y, x] = field[y, x]
        return
    around = field[y - 1, x] + field[y + 1, x] + field[y, x - 1] + field[y, x + 1]
    out[y, x] = field[y, x] + 0.1 * (around - 4.0 * field[y, x])


def grid_barrier(x: i32[:], squares: i32[:], out: i32[:], n: i32):
    """Write in one block before the grid barrier, and read in another block after it."""
    i = grid(1)
    if i < n:
        squares[i] = x[i] * x[i]
    cg.this_grid().sync()
    if i < n:
        out[i] = squares[n - 1 - i]


def warp_sum(x: i32[:], sums: i32[:], flags: u32[:]):
    """Compute sums of warps by shuffles, and votes of their threads."""
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


def warp_width(out: i32[:]):
    """Write the number of threads of a warp."""
    if threadIdx.x == 0:
        out[0] = warpsize


def collatz(x: i32[:], steps: i32[:]):
    """Count the steps to 1; -1 if 200 steps are not enough, -2 for numbers below 1."""
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
    """Compute with signed and unsigned integers that wrap around, and with bits."""
    i = grid(1)
    if i < len(x):
        h = u32(x[i]) ^ 2166136261
        for turn in range(4):
            h = (h ^ (h >> 15)) * 16777619
            h += turn << 3
        out[i] = h ^ (popc(h) + clz(h) + ffs(h))
        s = x[i] * 1103515245 + 12345
        s = s - (s << 13) + (s >> (i & 31)) * (-s)
        signed[i] = abs(s) + (s >> i) + (s << i) + x[i] ** 3 - s**2


def halves(x: f16[:], y: f16[:], a: f16, scale: f32):
    """Compute with 16-bit floats; every operation is rounded."""
    i = grid(1)
    if i < len(x):
        z = a * x[i] + y[i]
        z = z / (abs(x[i]) + 1.0) - f16(scale * 0.1)
        z = fma(z, a, math.sqrt(abs(y[i])) + z // 3.0)
        y[i] = max(min(z, f16(1000)), -x[i])


def floors(a: i32[:], b: i32[:], quotient: i32[:], rest: i32[:], x: f32[:], y: f32[:], fq: f32[:], fr: f32[:]):
    """Round // and % down, with signs, for zero, the smallest number and floats; indices use plain operators."""
    i = grid(1)
    if i < len(a):
        quotient[i] = a[i] // b[i] + threadIdx.x // 4
        rest[i] = a[i] % b[i] + i % 3
        fq[i] = x[i] // y[i]
        fr[i] = x[i] % y[i]


def scattered(x: f32[:], out: f32[:], rounds: i32):
    """Use variables across branches and iterations, local arrays, a loop that counts down, and else if."""
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


def wide(a: i64[:], b: i64[:], bits: u64[:], x: f64[:], out: f64[:], place: i64, scale: f64):
    """Compute with 64 bits: arithmetic, // and %, shifts, bits."""
    i = grid(1)
    if i < len(a):
        p = i + place
        a[p] = a[i] * 6364136223846793005 + 1442695040888963407 - b[i]
        b[i] = b[i] // 7 + b[i] % -5 + (b[i] >> 3) + abs(b[i]) + min(b[i], 5) + i64(popc(b[i]))
        bits[i] = (bits[i] << u64(i)) + brev(bits[i]) + u64(clz(bits[i]) + ffs(bits[i]))
        out[i] = math.sqrt(abs(x[i])) * scale + x[i] // 0.75 + 1e-300 + fma(x[i], x[i], -1.0)


def wide_atomics(a: i64[:], b: u64[:], x: f64[:]):
    """Execute every atomic operation on 64 bits that CUDA has, in one thread."""
    a[9] = atomic.add(a, 0, 7) + atomic.sub(a, 1, 7) + atomic.min(a, 2, -5) + atomic.exch(a, 3, 9)
    a[10] = atomic.and_(a, 4, 6) + atomic.or_(a, 5, 9) + atomic.xor(a, 6, 5) + atomic.cas(a, 7, 7, 70)
    b[9] = (
        atomic.add(b, 0, 7) + atomic.sub(b, 1, 7) + atomic.min(b, 2, 1) + atomic.max(b, 3, 9) + atomic.cas(b, 4, 3, 1)
    )
    x[9] = atomic.add(x, 0, 7.0) + atomic.sub(x, 1, 7.0) + atomic.min(x, 2, -5.0) + atomic.max(x, 3, 9.0)
    x[10] = atomic.exch(x, 4, 1.5) + atomic.cas(x, 5, 5.0, 70.0)


def narrow(a: i8[:], b: i16[:], c: u8[:], d: u16[:], flag: bool, out: i32[:]):
    """Wrap integers of 8 and 16 bits around in their own width."""
    i = grid(1)
    if i < len(a):
        x, y, z, w = a[i] * a[i], b[i] * b[i] + b[i], c[i] + c[i], d[i] * d[i] - d[i]
        a[i] = -x // 3 if flag else x % 7
        b[i] = abs(y) + (y >> 2) + min(y, 100)
        c[i] = ~z + (z << 1) + brev(z)
        d[i] = w // 7 + w % 5 + max(w, 9)
        out[i] = clz(x) + popc(y) * 100 + ffs(z) * 1000 + (w == d[i]) + (not flag)


def bfloats(x: bf16[:], y: bf16[:], a: bf16):
    """Compute with bfloat16; every operation is rounded."""
    held = local.array(2, bf16)
    i = grid(1)
    if i < len(x):
        held[i % 2] = x[i] * a
        y[i] = held[i % 2] / (abs(y[i]) + bf16(0.7)) - f32(0.1)


def functions(x: f32[:], out: f32[:, :]):
    """Evaluate every float function that all targets have."""
    i = grid(1)
    if i < len(x):
        v = abs(x[i]) + 0.5
        out[0, i] = math.sqrt(v) + rsqrt(v)
        out[1, i] = math.exp(-v) + math.exp2(-v) + math.log(v) + math.log2(v) + math.log10(v)
        out[2, i] = math.sin(v) + math.cos(v) + math.tan(v * 0.1) + math.atan(v) + math.atan2(v, 2.0)
        out[3, i] = math.asin(v * 0.1) + math.acos(v * 0.1) + math.sinh(v) + math.cosh(v) + math.tanh(v)
        out[4, i] = math.floor(x[i]) + math.ceil(x[i] * 3.0) + math.trunc(x[i] * 9.0) + math.fabs(x[i])
        out[5, i] = math.pow(v, 1.5) + v**2.5 + (v + 1.0) ** 2 + math.fmod(x[i], 0.3) + math.copysign(v, x[i])
        bad = math.isnan(x[i]) or math.isinf(x[i])
        out[6, i] = -1.0 if bad else 1.0 / 3.0


def atomics(a: i32[:], b: u32[:], x: f32[:], old: i32[:]):
    """Execute every atomic operation on 32 bits in both memories, in one thread."""
    here = shared.array(4, i32)
    there = shared.array((2, 2), f32)
    if threadIdx.x == 0:
        for k in range(4):
            here[k] = k
            there[k // 2, k % 2] = k
        old[0] = atomic.add(a, 0, 7) + atomic.sub(a, 1, 7) + atomic.min(a, 2, -5) + atomic.max(a, 3, 50)
        old[1] = atomic.and_(a, 4, 6) + atomic.or_(a, 5, 9) + atomic.xor(a, 6, 5) + atomic.exch(a, 7, 9)
        old[2] = atomic.cas(a, 8, 8, 80) + atomic.cas(a, 9, 8, 90)
        b[9] = (
            atomic.inc(b, 0, 7) + atomic.inc(b, 1, 0) + atomic.dec(b, 2, 9) + atomic.dec(b, 3, 1) + atomic.dec(b, 4, 9)
        )
        x[9] = atomic.add(x, 0, 7.5) + atomic.sub(x, 1, 7.5) + atomic.min(x, 2, -5.0) + atomic.max(x, 3, 50.0)
        x[8] = atomic.exch(x, 4, 1.5) + atomic.cas(x, 5, 5.0, 70.0) + atomic.cas(x, 6, 5.0, 70.0)
        old[3] = atomic.add(here, 1, 5) + atomic.cas(here, 2, 2, 9) + here[1] + here[2]
        x[7] = atomic.add(there, (1, 0), 2.5) + atomic.max(there, (1, 1), 9.0) + there[1, 0] + there[1, 1]


def lanes(x: f32[:], y: i32[:], out: f32[:], votes: u32[:]):
    """Use the other exchanges of warps, and fences, which only some targets have."""
    i = grid(1)
    out[i] = shfl_up_sync(0xFFFFFFFF, x[i], 1) + shfl_sync(0xFFFFFFFF, x[i], y[i])
    votes[i] = u32(all_sync(0xFFFFFFFF, x[i] > 0.0)) + u32(shfl_xor_sync(0xFFFFFFFF, y[i], 2))
    syncwarp()
    threadfence()
    threadfence_block()
    out[i] += x[i]


def awkward(out: f32[:], sampler: f32[:], kernel: i32, half: f32, out_shape0: i32):
    """Use reserved names, choices that must not be evaluated, and an evaluation in a condition."""
    i = grid(1)
    float4 = half
    if i < len(out):
        switch = sampler[i] if i < len(sampler) else 0.0
        while i < len(sampler) and (sampler[i] if switch > 0.25 else 0.0) > 0.5:
            switch *= half
            if switch < 0.1:
                break
            if switch < 0.2 or (sampler[i - 1] if i > 0 else 1.0) > 0.5:
                continue
            switch -= 0.01
        var = switch if switch > 0.0 else float4
        for half in range(kernel, out_shape0, 3 if kernel > 1 else 2):  # noqa: PLR1704
            var += half
            half += 1
        out[i] = var if half > 3.0 else var * 2.0


@windtunnel.stencil(halo=2)
def smoothed(x: f32[:], out: f32[:], pos: GridPos):
    """Compute a one-dimensional stencil without a tile."""
    near = pos.west(x) + pos.east(x)
    out[pos.idx()] = 0.5 * x[pos.idx()] + 0.25 * near - 0.0625 * (pos.west(x, 2) + pos.east(x, 2))


@windtunnel.stencil(tile=(8, 8))
def laplacian(a: f32[:, :], out: f32[:, :], pos: GridPos):
    """Compute a two-dimensional stencil in tiles."""
    out[pos.idx()] = pos.north(a) + pos.south(a) + pos.east(a) + pos.west(a) - 4.0 * a[pos.idx()]


@windtunnel.stencil
def laplacian_untiled(a: f32[:, :], out: f32[:, :], pos: GridPos):
    """Compute the same stencil without a tile."""
    out[pos.idx()] = pos.north(a) + pos.south(a) + pos.east(a) + pos.west(a) - 4.0 * a[pos.idx()]


@windtunnel.stencil(tile=(2, 4, 8), halo=2)
def diffused(heat: f32[:, :, :], rate: f16[:, :, :], out: f32[:, :, :], dt: f32, pos: GridPos):
    """Compute a three-dimensional stencil in tiles; arrays read only at the own cell are not copied to the tile."""
    here = heat[pos.idx()]
    around = pos.down(heat) + pos.up(heat) + pos.north(heat) + pos.south(heat) + pos.west(heat) + pos.east(heat)
    flow = f32(rate[pos.idx()]) * (around - 6.0 * here)
    if pos.z % 2 == 0:
        flow += 0.5 * (pos.at(heat, 2, -1, 0) - pos.up(heat, 2))
    out[pos.idx()] += here + dt * flow


@windtunnel.kernel
def diffused_untiled(heat: f32[:, :, :], out: f32[:, :, :], pos: GridPos):
    """Compute a three-dimensional stencil without a tile."""
    out[pos.idx()] = pos.up(heat) - pos.down(heat) + pos.at(heat, 1, -1, 1)
