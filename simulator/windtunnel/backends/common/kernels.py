"""Kernels for operations of the registry, on any device that supports the kernel language.

The kernels are simple, the same for every API, and use no vendor library; a trial's note says so. All arrays have one
dimension. Floats narrower than 32 bits are summed in ``f32``.
"""

from __future__ import annotations

import math

from windtunnel.language.names import blockDim, blockIdx, fma, gridDim, local, shared, syncthreads, threadIdx
from windtunnel.language.types import f32, i32
from windtunnel.runtime.kernels import kernel

THREADS = 256
"""Threads of a block: WebGPU's default limit."""
TILE, STEP, EACH = 64, 16, 4
"""A block computes TILE x TILE elements of a GEMM with 16 x 16 threads, EACH x EACH per thread, STEP of k at a time."""
SIDE = TILE // EACH
_SLICE = TILE * STEP


@kernel
def empty():
    """Do nothing. It measures the cost of a launch."""
    _ = threadIdx.x


def element():
    """Return a thread's number in a grid of several rows, which can have more blocks than one axis of WebGPU's grid."""
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
    """GELU approximated with tanh (Hendrycks and Gimpel, 2016), because not every target language has erf."""
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
    """Softmax of each row of ``width`` elements; one block per row."""
    part = shared.array(THREADS, f32)
    t = threadIdx.x
    begin = blockIdx.x * width
    maximum = f32(-math.inf)
    for c in range(t, width, THREADS):
        maximum = max(maximum, f32(a[begin + c]))
    part[t] = maximum
    syncthreads()
    s = THREADS // 2
    while s > 0:
        if t < s:
            part[t] = max(part[t], part[t + s])
        syncthreads()
        s //= 2
    maximum = part[0]
    syncthreads()
    total = f32(0.0)
    for c in range(t, width, THREADS):
        total += math.exp(f32(a[begin + c]) - maximum)
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
        out[begin + c] = math.exp(f32(a[begin + c]) - maximum) / total


@kernel
def layer_norm(a, out, width: i32):
    """Normalise each row to mean 0 and variance 1, with 1e-5 added to the variance; one block per row, no weights."""
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


def _gemm(number, fused):
    @kernel
    def gemm(a, b, c, m: i32, n: i32, k: i32):
        """Compute C[m,n] = A[m,k] @ B[k,n] for a batch of ``gridDim.z`` row-major matrices, with sums in ``number``."""
        of_a = shared.array(_SLICE, number)
        of_b = shared.array(_SLICE, number)
        sums = local.array((EACH, EACH), number)
        x, y = threadIdx.x, threadIdx.y
        t = y * SIDE + x
        top, left = blockIdx.y * TILE, blockIdx.x * TILE
        in_a, in_b, in_c = blockIdx.z * m * k, blockIdx.z * k * n, blockIdx.z * m * n
        for i in range(EACH):
            for j in range(EACH):
                sums[i, j] = number(0)
        for begin in range(0, k, STEP):
            for part in range(EACH):
                at = part * SIDE * SIDE + t
                row, column = top + at // STEP, begin + at % STEP
                value = number(0)
                if row < m and column < k:
                    value = number(a[in_a + row * k + column])
                of_a[at] = value
                row, column = begin + at // TILE, left + at % TILE
                value = number(0)
                if row < k and column < n:
                    value = number(b[in_b + row * n + column])
                of_b[at] = value
            syncthreads()
            for p in range(STEP):
                for i in range(EACH):
                    left_factor = of_a[(y * EACH + i) * STEP + p]
                    for j in range(EACH):
                        factor = of_b[p * TILE + x + j * SIDE]
                        sums[i, j] = (
                            fma(left_factor, factor, sums[i, j]) if fused else sums[i, j] + left_factor * factor
                        )
            syncthreads()
        for i in range(EACH):
            for j in range(EACH):
                row, column = top + y * EACH + i, left + x + j * SIDE
                if row < m and column < n:
                    c[in_c + row * n + column] = sums[i, j]

    return gemm


gemm, gemm_unfused, gemm_int8 = _gemm(f32, True), _gemm(f32, False), _gemm(i32, False)
"""With fused multiply-adds for GPUs; without them for processors, where PoCL calls a library function; for int8."""


@kernel
def stencil(a, out, nx: i32, ny: i32, nz: i32):
    """Combine each cell with its six neighbours (four if ``nz`` is 1). Beyond an edge, the edge cell is used."""
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
def fft_pass(real, imaginary, to_real, to_imaginary, cosine, sine, n: i32, m: i32, count: i32):
    """Compute one pass of Stockham's radix-2 FFT: ``count`` butterflies over a batch of ``n`` points each.

    ``m`` is 1, 2, 4 ... n / 2 in successive passes. ``cosine`` and ``sine`` are those of 2 pi t / n for t below n / 2.
    """
    i = element()
    if i < count:
        half = n // 2
        begin, at = i // half * n, i % half
        j = at // m
        a_r, a_i = real[begin + at], imaginary[begin + at]
        b_r, b_i = real[begin + at + half], imaginary[begin + at + half]
        to = begin + at + j * m
        to_real[to] = a_r + b_r
        to_imaginary[to] = a_i + b_i
        c, s = cosine[j * m], sine[j * m]
        d_r, d_i = a_r - b_r, a_i - b_i
        to_real[to + m] = d_r * c + d_i * s
        to_imaginary[to + m] = d_i * c - d_r * s
