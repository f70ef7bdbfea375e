"""The kernels of kernels.cu in the language of emulated kernels, by the same names.

`wt_copy4` is not here (the language has no vector types), nor `wt_cas_lock`, whose threads wait for each other.
"""

from __future__ import annotations

import math

import numpy as np

import windtunnel
from windtunnel import (
    atomic,
    blockDim,
    blockIdx,
    f32,
    f64,
    grid,
    gridsize,
    i32,
    i64,
    local,
    shared,
    shfl_down_sync,
    syncthreads,
    threadIdx,
    u8,
)


@windtunnel.kernel
def wt_copy(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i]


@windtunnel.kernel
def wt_copy_offset(a: f32[:], c: f32[:], n: i32, offset: i32):
    i = grid(1)
    if i < n - offset:
        c[i] = a[i + offset]


@windtunnel.kernel
def wt_read_stride(a: f32[:], c: f32[:], n: i32, stride: i32):
    i = grid(1)
    if i < n // stride:
        c[i] = a[i64(i) * stride]


@windtunnel.kernel
def wt_write_stride(a: f32[:], c: f32[:], n: i32, stride: i32):
    i = grid(1)
    if i < n // stride:
        c[i64(i) * stride] = a[i]


@windtunnel.kernel
def wt_gather(a: f32[:], index: i32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[index[i]]


@windtunnel.kernel
def wt_add(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] + b[i]


@windtunnel.kernel
def wt_add_grid_stride(a: f32[:], b: f32[:], c: f32[:], n: i32):
    for i in range(grid(1), n, gridsize(1)):
        c[i] = a[i] + b[i]


@windtunnel.kernel
def wt_add_bytes(a: u8[:], b: u8[:], c: u8[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] + b[i]


@windtunnel.kernel
def wt_add_double(a: f64[:], b: f64[:], c: f64[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] + b[i]


@windtunnel.kernel
def wt_gelu(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = 0.5 * a[i] * (1.0 + math.erf(a[i] * 0.70710678))


@windtunnel.kernel
def wt_tanh(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = math.tanh(a[i])


@windtunnel.kernel
def wt_pow(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = math.pow(a[i], b[i])


@windtunnel.kernel
def wt_divide(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] / b[i]


@windtunnel.kernel
def wt_fma_f32(c: f32[:], n: i32, rounds: i32):
    i = grid(1)
    w = i * f32(1e-9)
    x = w + 1
    y = w + 2
    z = w + 3
    for _ in range(rounds):
        w = w * 0.999 + 1e-3
        x = x * 0.999 + 1e-3
        y = y * 0.999 + 1e-3
        z = z * 0.999 + 1e-3
    if i < n:
        c[i] = w + x + y + z


@windtunnel.kernel
def wt_fma_f64(c: f64[:], n: i32, rounds: i32):
    i = grid(1)
    w = i * f64(1e-9)
    x = w + 1
    y = w + 2
    z = w + 3
    for _ in range(rounds):
        w = w * 0.999 + 1e-3
        x = x * 0.999 + 1e-3
        y = y * 0.999 + 1e-3
        z = z * 0.999 + 1e-3
    if i < n:
        c[i] = w + x + y + z


@windtunnel.kernel
def wt_mad_i32(c: i32[:], n: i32, rounds: i32):
    i = grid(1)
    w = i
    x = i + 1
    y = i + 2
    z = i + 3
    for k in range(rounds):
        w = w * w + k
        x = x * x + k
        y = y * y + k
        z = z * z + k
    if i < n:
        c[i] = w ^ x ^ y ^ z


@windtunnel.kernel
def wt_latency_chain(c: f32[:], n: i32, rounds: i32):
    i = grid(1)
    w = i * f32(1e-9)
    for _ in range(rounds):
        w = w * 0.999 + 1e-3
    if i < n:
        c[i] = w


@windtunnel.kernel
def wt_reduce_tree(a: f32[:], c: f32[:], n: i32):
    held = shared.array(256, f32)
    t = threadIdx.x
    i = grid(1)
    held[t] = a[i] if i < n else 0.0
    syncthreads()
    step = 128
    while step > 0:
        if t < step:
            held[t] += held[t + step]
        syncthreads()
        step >>= 1
    if t == 0:
        c[blockIdx.x] = held[0]


@windtunnel.kernel
def wt_reduce_interleaved(a: f32[:], c: f32[:], n: i32):
    held = shared.array(256, f32)
    t = threadIdx.x
    i = grid(1)
    held[t] = a[i] if i < n else 0.0
    syncthreads()
    step = 1
    while step < 256:
        at = 2 * step * t
        if at < 256:
            held[at] += held[at + step]
        syncthreads()
        step *= 2
    if t == 0:
        c[blockIdx.x] = held[0]


@windtunnel.kernel
def wt_reduce_modulo(a: f32[:], c: f32[:], n: i32):
    held = shared.array(256, f32)
    t = threadIdx.x
    i = grid(1)
    held[t] = a[i] if i < n else 0.0
    syncthreads()
    step = 1
    while step < 256:
        if t % (2 * step) == 0:
            held[t] += held[t + step]
        syncthreads()
        step *= 2
    if t == 0:
        c[blockIdx.x] = held[0]


@windtunnel.kernel
def wt_reduce_shuffle(a: f32[:], c: f32[:], n: i32):
    sums = shared.array(32, f32)
    t = threadIdx.x
    i = grid(1)
    v = a[i] if i < n else f32(0.0)
    step = 16
    while step > 0:
        v += shfl_down_sync(0xFFFFFFFF, v, step)
        step //= 2
    if t % 32 == 0:
        sums[t // 32] = v
    syncthreads()
    if t < 32:
        v = sums[t] if t < blockDim.x // 32 else 0.0
        step = 16
        while step > 0:
            v += shfl_down_sync(0xFFFFFFFF, v, step)
            step //= 2
        if t == 0:
            c[blockIdx.x] = v


@windtunnel.kernel
def wt_atomic_one_address(c: i32[:], n: i32):
    i = grid(1)
    if i < n:
        atomic.add(c, 0, i)


@windtunnel.kernel
def wt_atomic_one_address_old(c: i32[:], old: i32[:], n: i32):
    i = grid(1)
    if i < n:
        old[i] = atomic.add(c, 0, 1)


@windtunnel.kernel
def wt_atomic_spread(c: i32[:], n: i32, addresses: i32):
    i = grid(1)
    if i < n:
        atomic.add(c, i % addresses, 1)


@windtunnel.kernel
def wt_atomic_float_spread(c: f32[:], n: i32, addresses: i32):
    i = grid(1)
    if i < n:
        atomic.add(c, i % addresses, 1.0)


@windtunnel.kernel
def wt_histogram_global(a: i32[:], c: i32[:], n: i32):
    i = grid(1)
    if i < n:
        atomic.add(c, a[i] & 255, 1)


@windtunnel.kernel
def wt_histogram_shared(a: i32[:], c: i32[:], n: i32):
    held = shared.array(256, i32)
    held[threadIdx.x] = 0
    syncthreads()
    for i in range(grid(1), n, gridsize(1)):
        atomic.add(held, a[i] & 255, 1)
    syncthreads()
    atomic.add(c, threadIdx.x, held[threadIdx.x])


@windtunnel.kernel
def wt_transpose_naive(a: f32[:], c: f32[:], side: i32):
    x = blockIdx.x * 32 + threadIdx.x
    y = blockIdx.y * 32 + threadIdx.y
    for k in range(0, 32, 8):
        c[x * side + y + k] = a[(y + k) * side + x]


@windtunnel.kernel
def wt_transpose_conflicts(a: f32[:], c: f32[:], side: i32):
    tile = shared.array((32, 32), f32)
    x = blockIdx.x * 32 + threadIdx.x
    y = blockIdx.y * 32 + threadIdx.y
    for k in range(0, 32, 8):
        tile[threadIdx.y + k, threadIdx.x] = a[(y + k) * side + x]
    syncthreads()
    x = blockIdx.y * 32 + threadIdx.x
    y = blockIdx.x * 32 + threadIdx.y
    for k in range(0, 32, 8):
        c[(y + k) * side + x] = tile[threadIdx.x, threadIdx.y + k]


@windtunnel.kernel
def wt_transpose_padded(a: f32[:], c: f32[:], side: i32):
    tile = shared.array((32, 33), f32)
    x = blockIdx.x * 32 + threadIdx.x
    y = blockIdx.y * 32 + threadIdx.y
    for k in range(0, 32, 8):
        tile[threadIdx.y + k, threadIdx.x] = a[(y + k) * side + x]
    syncthreads()
    x = blockIdx.y * 32 + threadIdx.x
    y = blockIdx.x * 32 + threadIdx.y
    for k in range(0, 32, 8):
        c[(y + k) * side + x] = tile[threadIdx.x, threadIdx.y + k]


@windtunnel.kernel
def wt_banks(c: f32[:], n: i32, stride: i32, rounds: i32):
    held = shared.array(1024, f32)
    for k in range(threadIdx.x, 1024, blockDim.x):
        held[k] = k
    syncthreads()
    i = grid(1)
    total = f32(0.0)
    for k in range(rounds):
        total += held[((threadIdx.x + k) * stride) & 1023]
    if i < n:
        c[i] = total


@windtunnel.kernel
def wt_divergent(c: f32[:], n: i32, ways: i32, rounds: i32):
    i = grid(1)
    way = i % ways
    w = i * f32(1e-9)
    for path in range(ways):
        if path == way:
            for _ in range(rounds):
                w = w * 0.999 + (path + 1) * f32(1e-3)
    if i < n:
        c[i] = w


@windtunnel.kernel
def wt_uneven_loop(c: f32[:], n: i32, longest: i32):
    i = grid(1)
    w = i * f32(1e-9)
    for _ in range((i % 32 + 1) * longest // 32):
        w = w * 0.999 + 1e-3
    if i < n:
        c[i] = w


@windtunnel.kernel
def wt_stencil_naive(a: f32[:], c: f32[:], side: i32):
    x, y = grid(2)
    if x > 0 and y > 0 and x < side - 1 and y < side - 1:
        at = y * side + x
        c[at] = 0.2 * (a[at] + a[at - 1] + a[at + 1] + a[at - side] + a[at + side])


@windtunnel.kernel
def wt_stencil_shared(a: f32[:], c: f32[:], side: i32):
    held = shared.array((10, 34), f32)
    x = blockIdx.x * 32 + threadIdx.x
    y = blockIdx.y * 8 + threadIdx.y
    tx = threadIdx.x + 1
    ty = threadIdx.y + 1
    at = y * side + x
    held[ty, tx] = a[at]
    if threadIdx.x == 0:
        held[ty, 0] = a[at - 1] if x > 0 else 0.0
    if threadIdx.x == 31:
        held[ty, 33] = a[at + 1] if x < side - 1 else 0.0
    if threadIdx.y == 0:
        held[0, tx] = a[at - side] if y > 0 else 0.0
    if threadIdx.y == 7:
        held[9, tx] = a[at + side] if y < side - 1 else 0.0
    syncthreads()
    if x > 0 and y > 0 and x < side - 1 and y < side - 1:
        around = held[ty, tx] + held[ty, tx - 1] + held[ty, tx + 1] + held[ty - 1, tx] + held[ty + 1, tx]
        c[at] = 0.2 * around


@windtunnel.kernel
def wt_matmul_naive(a: f32[:], b: f32[:], c: f32[:], side: i32):
    x, y = grid(2)
    total = f32(0.0)
    for k in range(side):
        total += a[y * side + k] * b[k * side + x]
    c[y * side + x] = total


@windtunnel.kernel
def wt_matmul_tiled(a: f32[:], b: f32[:], c: f32[:], side: i32):
    left = shared.array((32, 32), f32)
    right = shared.array((32, 32), f32)
    x = blockIdx.x * 32 + threadIdx.x
    y = blockIdx.y * 32 + threadIdx.y
    total = f32(0.0)
    for tile in range(side // 32):
        left[threadIdx.y, threadIdx.x] = a[y * side + tile * 32 + threadIdx.x]
        right[threadIdx.y, threadIdx.x] = b[(tile * 32 + threadIdx.y) * side + x]
        syncthreads()
        for k in range(32):
            total += left[threadIdx.y, k] * right[k, threadIdx.x]
        syncthreads()
    c[y * side + x] = total


@windtunnel.kernel
def wt_softmax_rows(a: f32[:], c: f32[:], width: i32):
    held = shared.array(256, f32)
    row = blockIdx.x * width
    t = threadIdx.x
    most = f32(-1e30)
    for k in range(t, width, 256):
        most = max(most, a[row + k])
    held[t] = most
    syncthreads()
    step = 128
    while step > 0:
        if t < step:
            held[t] = max(held[t], held[t + step])
        syncthreads()
        step >>= 1
    most = held[0]
    syncthreads()
    total = f32(0.0)
    for k in range(t, width, 256):
        total += np.exp(a[row + k] - most)
    held[t] = total
    syncthreads()
    step = 128
    while step > 0:
        if t < step:
            held[t] += held[t + step]
        syncthreads()
        step >>= 1
    for k in range(t, width, 256):
        c[row + k] = np.exp(a[row + k] - most) / held[0]


@windtunnel.kernel
def wt_local_array(index: i32[:], c: f32[:], n: i32):
    held = local.array(32, f32)
    i = grid(1)
    if i < n:
        for k in range(32):
            held[k] = i * f32(0.5) + k
        total = f32(0.0)
        for k in range(8):
            total += held[(index[i] + 5 * k) & 31]
        c[i] = total


@windtunnel.kernel
def wt_occupancy(a: f32[:], c: f32[:], n: i32):
    held = shared.array(0, f32)
    i = grid(1)
    held[threadIdx.x] = a[i] if i < n else 0.0
    syncthreads()
    if i < n:
        c[i] = held[blockDim.x - 1 - threadIdx.x]


@windtunnel.kernel
def wt_barriers(c: f32[:], n: i32, rounds: i32):
    held = shared.array(256, f32)
    t = threadIdx.x
    i = grid(1)
    held[t] = i
    for _ in range(rounds):
        syncthreads()
        v = held[(t + 1) & 255]
        syncthreads()
        held[t] = v + 1.0
    if i < n:
        c[i] = held[t]
