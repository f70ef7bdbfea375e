"""Operations on the host's processors, as loops that Numba compiles and divides among threads.

Arrays have one dimension (rows of ``width`` elements where it matters). Nothing relaxes floating point. Compiled when
first called, and kept on disk between programs where Numba can.
"""

from __future__ import annotations

import math

import numba
import numpy as np

# Each call's iterations are divided evenly among Numba's threads, one for each processor that the process may use.
_parallel = numba.njit(parallel=True, cache=True, error_model="numpy")


@_parallel
def nothing(out):
    """Wakes all threads, and waits for them."""
    for i in numba.prange(out.size):
        out[i] = i


@_parallel
def copy(a, out):
    for i in numba.prange(a.size):
        out[i] = a[i]


@_parallel
def add(a, b, out):
    for i in numba.prange(a.size):
        out[i] = a[i] + b[i]


@_parallel
def mul(a, b, out):
    for i in numba.prange(a.size):
        out[i] = a[i] * b[i]


@_parallel
def div(a, b, out):
    for i in numba.prange(a.size):
        out[i] = a[i] / b[i]


@_parallel
def power(a, b, out):
    for i in numba.prange(a.size):
        out[i] = a[i] ** b[i]


@_parallel
def addu(a, out):
    for i in numba.prange(a.size):
        out[i] = a[i] + np.float32(1.5)


@_parallel
def mulu(a, out):
    for i in numba.prange(a.size):
        out[i] = a[i] * np.float32(1.5)


@_parallel
def divu(a, out):
    for i in numba.prange(a.size):
        out[i] = a[i] / np.float32(1.5)


@_parallel
def powu(a, out):
    for i in numba.prange(a.size):
        out[i] = a[i] ** np.float32(1.5)


@_parallel
def relu(a, out):
    for i in numba.prange(a.size):
        out[i] = max(a[i], np.float32(0.0))


@_parallel
def gelu(a, out):
    for i in numba.prange(a.size):
        x = a[i]
        inner = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)
        out[i] = np.float32(0.5) * x * (np.float32(1.0) + math.tanh(inner))


@_parallel
def tanh(a, out):
    for i in numba.prange(a.size):
        out[i] = math.tanh(a[i])


@_parallel
def softmax(a, out, width):
    for row in numba.prange(a.size // width):
        begin = row * width
        most = a[begin]
        for c in range(1, width):
            most = max(most, a[begin + c])
        total = np.float32(0.0)
        for c in range(width):
            e = math.exp(a[begin + c] - most)
            out[begin + c] = e
            total += e
        for c in range(width):
            out[begin + c] /= total


@_parallel
def layer_norm(a, out, width):
    for row in numba.prange(a.size // width):
        begin = row * width
        total = np.float32(0.0)
        for c in range(width):
            total += a[begin + c]
        mean = total / np.float32(width)
        total = np.float32(0.0)
        for c in range(width):
            total += (a[begin + c] - mean) ** 2
        scale = np.float32(1.0) / math.sqrt(total / np.float32(width) + np.float32(1e-5))
        for c in range(width):
            out[begin + c] = (a[begin + c] - mean) * scale


@_parallel
def stencil(a, out, nx, ny, nz):
    """See ``_kernels.stencil``."""
    for line in numba.prange(ny * nz):
        z, y = line // ny, line % ny
        here = line * nx
        north, south = (z * ny + max(y - 1, 0)) * nx, (z * ny + min(y + 1, ny - 1)) * nx
        down, up = (max(z - 1, 0) * ny + y) * nx, (min(z + 1, nz - 1) * ny + y) * nx
        for x in range(nx):
            sides = a[here + max(x - 1, 0)] + a[here + min(x + 1, nx - 1)] + a[north + x] + a[south + x]
            if nz > 1:
                sides += a[down + x] + a[up + x]
            out[here + x] = np.float32(0.5) * a[here + x] + np.float32(0.0625) * sides
