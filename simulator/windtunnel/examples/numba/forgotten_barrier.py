"""A sum by a tree in shared memory, with Numba CUDA. A barrier is missing in it, and the data race is reported.

windtunnel emulate docs/examples/numba/forgotten_barrier.py          # exit code 1, with both lines
windtunnel emulate docs/examples/numba/forgotten_barrier.py mended   # exit code 0
"""

import sys

import numpy as np
from numba import cuda, float32

THREADS = 128


def kernel_of(mended):
    @cuda.jit
    def total(values, result):
        held = cuda.shared.array(THREADS, float32)
        t = cuda.threadIdx.x
        held[t] = values[cuda.grid(1)]
        cuda.syncthreads()
        step = THREADS // 2
        while step > 0:
            if t < step:
                held[t] += held[t + step]
            if mended:
                cuda.syncthreads()
            step //= 2
        if t == 0:
            cuda.atomic.add(result, 0, held[0])

    return total


def main():
    values = np.arange(4 * THREADS, dtype=np.float32)
    result = np.zeros(1, np.float32)
    kernel_of("mended" in sys.argv[1:])[4, THREADS](values, result)
    assert result[0] == values.sum()
    print(f"the sum is {result[0]:.0f}")


if __name__ == "__main__":
    main()
