"""Heat that spreads over a plate, with Numba CUDA: two arrays that are swapped, and a reduction.

    windtunnel emulate docs/examples/numba/heat.py

Nothing here imports Windtunnel. With a GPU and numba-cuda the same file runs with `python`.
"""

import numpy as np
from numba import cuda, float32

SIZE, STEPS, BLOCK = 64, 20, (16, 16)


@cuda.jit
def spread(before, after):
    row, column = cuda.grid(2)
    rows, columns = before.shape
    if row >= rows or column >= columns:
        return
    if row == 0 or column == 0 or row == rows - 1 or column == columns - 1:
        after[row, column] = before[row, column]
        return
    around = before[row - 1, column] + before[row + 1, column] + before[row, column - 1] + before[row, column + 1]
    after[row, column] = float32(0.25) * around


@cuda.reduce
def hottest(a, b):
    return max(a, b)


def main():
    plate = np.zeros((SIZE, SIZE), np.float32)
    plate[0, :] = 100
    before, after = cuda.to_device(plate), cuda.device_array_like(plate)
    grid = (SIZE // BLOCK[0], SIZE // BLOCK[1])
    for _ in range(STEPS):
        spread[grid, BLOCK](before, after)
        before, after = after, before
    found = before.copy_to_host()
    expected = plate.copy()
    for _ in range(STEPS):
        inner = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
        expected[1:-1, 1:-1] = np.float32(0.25) * inner
    assert np.allclose(found, expected, rtol=1e-5)
    print(f"the middle of the second row is at {found[1, SIZE // 2]:.2f}")
    print(f"the hottest inner point is at {hottest(found[1:-1, 1:-1].ravel()):.2f}")


if __name__ == "__main__":
    main()
