"""A histogram of random numbers, with Numba CUDA: random states, shared memory and atomic operations.

windtunnel emulate docs/examples/numba/histogram.py
"""

import numpy as np
from numba import cuda, int32
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

BINS, THREADS, BLOCKS, EACH = 16, 64, 4, 8


@cuda.jit
def count(states, counts):
    held = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        held[t] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    for _ in range(EACH):
        place = int(xoroshiro128p_uniform_float32(states, i) * BINS)
        cuda.atomic.add(held, place, 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, held[t])


def main():
    states = create_xoroshiro128p_states(THREADS * BLOCKS, seed=1)
    counts = np.zeros(BINS, np.int32)
    count[BLOCKS, THREADS](states, counts)
    assert counts.sum() == THREADS * BLOCKS * EACH
    for place, number in enumerate(counts):
        print(f"{place / BINS:.4f} {'#' * (number // 4)}")


if __name__ == "__main__":
    main()
