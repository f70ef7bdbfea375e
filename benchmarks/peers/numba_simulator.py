"""Kernels in Numba's CUDA simulator. The last line is the seconds of a launch. Requires NUMBA_ENABLE_CUDASIM=1.

python numba_simulator.py KERNEL '[GRID, BLOCK]'
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def saxpy(x, y, a, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]


@cuda.jit
def matmul(a, b, c, n):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    row = cuda.blockIdx.y * cuda.blockDim.y + ty
    column = cuda.blockIdx.x * cuda.blockDim.x + tx
    total = float32(0.0)
    for tile in range(n // TILE):
        left[ty, tx] = a[row, tile * TILE + tx]
        right[ty, tx] = b[tile * TILE + ty, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    c[row, column] = total


def main() -> None:
    name, (grid, block) = sys.argv[1], json.loads(sys.argv[2])
    numbers = np.random.default_rng(7)
    if name == "saxpy":
        n = grid[0] * block[0]
        kernel, arguments = saxpy, (numbers.random(n, np.float32), numbers.random(n, np.float32), 2.0, n)
    else:
        # A block loops over the whole inner dimension, so it does its share of the GEMM of 64.
        n = 64
        a, b = (numbers.random((n, n), np.float32) for _ in range(2))
        kernel, arguments = matmul, (a, b, np.zeros((n, n), np.float32), n)
    kernel[tuple(grid), tuple(block)](*arguments)
    began = time.perf_counter()
    kernel[tuple(grid), tuple(block)](*arguments)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
