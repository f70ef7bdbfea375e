"""Kernels that do operations of the registry on any device that takes the kernel language.

Plain forms, the same for every API, and no vendor's library: whoever measures with them says so. All arrays have one
dimension. Element types are the arrays'; floats narrower than 32 bits are added up in ``f32``.
"""

from __future__ import annotations

import math

from windtunnel.language.names import blockDim, blockIdx, fma, gridDim, local, shared, syncthreads, threadIdx
from windtunnel.language.types import f32, i32
from windtunnel.runtime.kernels import kernel

THREADS = 256
"""Of a block: what WebGPU allows by default."""
TILE, STEP, EACH = 64, 16, 4
"""A block makes TILE x TILE elements of a product, by 16 x 16 threads of EACH x EACH, in steps of STEP along k."""
SIDE = TILE // EACH
_SLICE = TILE * STEP


@kernel
def empty():
    """Nothing: what a launch costs."""
    _ = threadIdx.x


def element():
    """The number of a thread over a grid of blocks in rows: more of them than an axis of WebGPU's grid has."""
    return (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x


@kernel
def add(a, b, out, n: i32):
    i = element()
    if i < n:
        out[i] = a[i] + b[i]


@kernel
def mul(a, b, out, n: i32):
    i = element()
    if i < n:
        out[i] = a[i] * b[i]


@kernel
def div(a, b, out, n: i32):
    i = element()
    if i < n:
        out[i] = a[i] / b[i]


@kernel
def power(a, b, out, n: i32):
    i = element()
    if i < n:
        out[i] = math.pow(f32(a[i]), f32(b[i]))


@kernel
def addu(a, out, n: i32):
    i = element()
    if i < n:
        out[i] = f32(a[i]) + f32(1.5)


@kernel
def mulu(a, out, n: i32):
    i = element()
    if i < n:
        out[i] = f32(a[i]) * f32(1.5)


@kernel
def divu(a, out, n: i32):
    i = element()
    if i < n:
        out[i] = f32(a[i]) / f32(1.5)


@kernel
def powu(a, out, n: i32):
    i = element()
    if i < n:
        out[i] = math.pow(f32(a[i]), f32(1.5))


@kernel
def relu(a, out, n: i32):
    i = element()
    if i < n:
        out[i] = max(f32(a[i]), f32(0.0))


@kernel
def gelu(a, out, n: i32):
    """Its usual approximation by tanh (Hendrycks and Gimpel, 2016): not every language has erf."""
    i = element()
    if i < n:
        x = f32(a[i])
        inner = f32(0.7978845608028654) * (x + f32(0.044715) * x * x * x)
        out[i] = f32(0.5) * x * (f32(1.0) + math.tanh(inner))


@kernel
def tanh(a, out, n: i32):
    i = element()
    if i < n:
        out[i] = math.tanh(f32(a[i]))


@kernel
def softmax(a, out, width: i32):
    """A row a block."""
    part = shared.array(THREADS, f32)
    t = threadIdx.x
    begin = blockIdx.x * width
    most = f32(-math.inf)
    for c in range(t, width, THREADS):
        most = max(most, f32(a[begin + c]))
    part[t] = most
    syncthreads()
    s = THREADS // 2
    while s > 0:
        if t < s:
            part[t] = max(part[t], part[t + s])
        syncthreads()
        s //= 2
    most = part[0]
    syncthreads()
    total = f32(0.0)
    for c in range(t, width, THREADS):
        total += math.exp(f32(a[begin + c]) - most)
    part[t] = total
    syncthreads()
    s = THREADS // 2
    while s > 0:
        if t < s:
            part[t] += part[t + s]
        syncthreads()
        s //= 2
    total = part[0]
    for c in range(t, width, THREADS):
        out[begin + c] = math.exp(f32(a[begin + c]) - most) / total


@kernel
def layer_norm(a, out, width: i32):
    """A row a block: mean 0 and variance 1, with 1e-5 added to the variance; no weights."""
    part = shared.array(THREADS, f32)
    t = threadIdx.x
    begin = blockIdx.x * width
    total = f32(0.0)
    for c in range(t, width, THREADS):
        total += f32(a[begin + c])
    part[t] = total
    syncthreads()
    s = THREADS // 2
    while s > 0:
        if t < s:
            part[t] += part[t + s]
        syncthreads()
        s //= 2
    mean = part[0] / f32(width)
    syncthreads()
    total = f32(0.0)
    for c in range(t, width, THREADS):
        off = f32(a[begin + c]) - mean
        total += off * off
    part[t] = total
    syncthreads()
    s = THREADS // 2
    while s > 0:
        if t < s:
            part[t] += part[t + s]
        syncthreads()
        s //= 2
    scale = f32(1.0) / math.sqrt(part[0] / f32(width) + f32(1e-5))
    for c in range(t, width, THREADS):
        out[begin + c] = (f32(a[begin + c]) - mean) * scale


def _product(fused):
    @kernel
    def product(a, b, c, m: i32, n: i32, k: i32):
        """C[m,n] = A[m,k] @ B[k,n], row-major, ``gridDim.z`` of them; sums in f32."""
        of_a = shared.array(_SLICE, f32)
        of_b = shared.array(_SLICE, f32)
        sums = local.array((EACH, EACH), f32)
        x, y = threadIdx.x, threadIdx.y
        t = y * SIDE + x
        top, left = blockIdx.y * TILE, blockIdx.x * TILE
        in_a, in_b, in_c = blockIdx.z * m * k, blockIdx.z * k * n, blockIdx.z * m * n
        for i in range(EACH):
            for j in range(EACH):
                sums[i, j] = f32(0.0)
        for begin in range(0, k, STEP):
            for part in range(EACH):
                at = part * SIDE * SIDE + t
                row, column = top + at // STEP, begin + at % STEP
                held = f32(0.0)
                if row < m and column < k:
                    held = f32(a[in_a + row * k + column])
                of_a[at] = held
                row, column = begin + at // TILE, left + at % TILE
                held = f32(0.0)
                if row < k and column < n:
                    held = f32(b[in_b + row * n + column])
                of_b[at] = held
            syncthreads()
            for p in range(STEP):
                for i in range(EACH):
                    held = of_a[(y * EACH + i) * STEP + p]
                    for j in range(EACH):
                        other = of_b[p * TILE + x + j * SIDE]
                        sums[i, j] = fma(held, other, sums[i, j]) if fused else sums[i, j] + held * other
            syncthreads()
        for i in range(EACH):
            for j in range(EACH):
                row, column = top + y * EACH + i, left + x + j * SIDE
                if row < m and column < n:
                    c[in_c + row * n + column] = sums[i, j]

    return product


product, product_apart = _product(True), _product(False)
"""With fused multiply-adds, and without: a call of a library on processors (PoCL), an instruction on GPUs."""


@kernel
def product_int8(a, b, c, m: i32, n: i32, k: i32):
    """The same with 8-bit integers, and sums in i32."""
    of_a = shared.array(_SLICE, i32)
    of_b = shared.array(_SLICE, i32)
    sums = local.array((EACH, EACH), i32)
    x, y = threadIdx.x, threadIdx.y
    t = y * SIDE + x
    top, left = blockIdx.y * TILE, blockIdx.x * TILE
    in_a, in_b, in_c = blockIdx.z * m * k, blockIdx.z * k * n, blockIdx.z * m * n
    for i in range(EACH):
        for j in range(EACH):
            sums[i, j] = 0
    for begin in range(0, k, STEP):
        for part in range(EACH):
            at = part * SIDE * SIDE + t
            row, column = top + at // STEP, begin + at % STEP
            held = 0
            if row < m and column < k:
                held = i32(a[in_a + row * k + column])
            of_a[at] = held
            row, column = begin + at // TILE, left + at % TILE
            held = 0
            if row < k and column < n:
                held = i32(b[in_b + row * n + column])
            of_b[at] = held
        syncthreads()
        for p in range(STEP):
            for i in range(EACH):
                held = of_a[(y * EACH + i) * STEP + p]
                for j in range(EACH):
                    sums[i, j] += held * of_b[p * TILE + x + j * SIDE]
        syncthreads()
    for i in range(EACH):
        for j in range(EACH):
            row, column = top + y * EACH + i, left + x + j * SIDE
            if row < m and column < n:
                c[in_c + row * n + column] = sums[i, j]


@kernel
def stencil(a, out, nx: i32, ny: i32, nz: i32):
    """A cell and its six neighbours (four, where ``nz`` is 1); beyond the edge lies the edge's own cell."""
    x = blockIdx.x * blockDim.x + threadIdx.x
    y = blockIdx.y * blockDim.y + threadIdx.y
    z = blockIdx.z
    if x < nx and y < ny:
        plane = (z * ny + y) * nx
        west, east = plane + max(x - 1, 0), plane + min(x + 1, nx - 1)
        north, south = (z * ny + max(y - 1, 0)) * nx + x, (z * ny + min(y + 1, ny - 1)) * nx + x
        down, up = (max(z - 1, 0) * ny + y) * nx + x, (min(z + 1, nz - 1) * ny + y) * nx + x
        sides = f32(a[west]) + f32(a[east]) + f32(a[north]) + f32(a[south])
        if nz > 1:
            sides += f32(a[down]) + f32(a[up])
        out[plane + x] = f32(0.5) * f32(a[plane + x]) + f32(0.0625) * sides


@kernel
def transform(real, imaginary, to_real, to_imaginary, cosine, sine, n: i32, m: i32, count: i32):
    """One pass of Stockham's radix-2 Fourier transform, ``count`` butterflies over a batch of ``n`` points each.

    ``m``: 1, 2, 4 ... n / 2 from pass to pass. ``cosine`` and ``sine``: of 2 pi t / n for t below n / 2.
    """
    i = element()
    if i < count:
        half = n // 2
        begin, at = i // half * n, i % half
        j = at // m
        one_r, one_i = real[begin + at], imaginary[begin + at]
        two_r, two_i = real[begin + at + half], imaginary[begin + at + half]
        to = begin + at + j * m
        to_real[to] = one_r + two_r
        to_imaginary[to] = one_i + two_i
        c, s = cosine[j * m], sine[j * m]
        off_r, off_i = one_r - two_r, one_i - two_i
        to_real[to + m] = off_r * c + off_i * s
        to_imaginary[to + m] = off_i * c - off_r * s
