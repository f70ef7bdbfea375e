"""Operations on the host's processors as loops that Numba compiles and divides among threads.

NumPy's exponentials and powers are vectorised and those that Numba calls are not, so these functions are in `vectors`.

All arrays have one dimension. Floating point is not relaxed. Functions are compiled when they are first called, and the
result is cached on disk if Numba can.
"""

from __future__ import annotations

import numba
import numpy as np

# Iterations are divided evenly among Numba's threads, one for each processor that the process may use.
_parallel = numba.njit(parallel=True, cache=True, error_model="numpy")


@_parallel
def nothing(out):
    """Wake all threads, and wait for them."""
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
def relu(a, out):
    for i in numba.prange(a.size):
        out[i] = max(a[i], np.float32(0.0))


@_parallel
def stencil(a, out, nx, ny, nz):
    """Compute `common.kernels.stencil`. The ends of a line are separate, so that the inner loop can be vectorised."""
    for line in numba.prange(ny * nz):
        z, y = line // ny, line % ny
        here = line * nx
        north, south = (z * ny + max(y - 1, 0)) * nx, (z * ny + min(y + 1, ny - 1)) * nx
        down, up = (max(z - 1, 0) * ny + y) * nx, (min(z + 1, nz - 1) * ny + y) * nx
        half, part = np.float32(0.5), np.float32(0.0625)
        middle, above, below = a[here : here + nx], a[north : north + nx], a[south : south + nx]
        to = out[here : here + nx]
        if nz > 1:
            lower, upper = a[down : down + nx], a[up : up + nx]
            for x in range(1, nx - 1):
                sides = middle[x - 1] + middle[x + 1] + above[x] + below[x] + (lower[x] + upper[x])
                to[x] = half * middle[x] + part * sides
        else:
            for x in range(1, nx - 1):
                to[x] = half * middle[x] + part * (middle[x - 1] + middle[x + 1] + above[x] + below[x])
        for x in (0, nx - 1):
            sides = middle[max(x - 1, 0)] + middle[min(x + 1, nx - 1)] + above[x] + below[x]
            if nz > 1:
                sides += a[down + x] + a[up + x]
            to[x] = half * middle[x] + part * sides
