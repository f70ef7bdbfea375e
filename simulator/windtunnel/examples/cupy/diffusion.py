"""Diffusion on a plate, with CuPy: a kernel in CUDA C with shared memory, an elementwise and a reduction kernel.

windtunnel emulate docs/examples/cupy/diffusion.py
"""

import cupy as cp

TILE = 16
spread = cp.RawKernel(
    r"""
extern "C" __global__
void spread(const float* now, float* after, int n, float rate) {
    __shared__ float tile[TILE + 2][TILE + 2];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    int column = min(x, n - 1), row = min(y, n - 1);
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    tile[ty][tx] = now[row * n + column];
    if (threadIdx.x == 0) tile[ty][0] = now[row * n + max(column - 1, 0)];
    if (threadIdx.x == TILE - 1) tile[ty][TILE + 1] = now[row * n + min(column + 1, n - 1)];
    if (threadIdx.y == 0) tile[0][tx] = now[max(row - 1, 0) * n + column];
    if (threadIdx.y == TILE - 1) tile[TILE + 1][tx] = now[min(row + 1, n - 1) * n + column];
    __syncthreads();
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1) {
        float around = tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] + tile[ty + 1][tx];
        after[y * n + x] = tile[ty][tx] + rate * (around - 4.0f * tile[ty][tx]);
    }
}
""",
    "spread",
    options=(f"-DTILE={TILE}",),
)
heated = cp.ElementwiseKernel("T plate, T source, T dt", "T after", "after = plate + source * dt", "heated")
largest_change = cp.ReductionKernel(
    "T a, T b", "T change", "abs(a - b)", "max(a, b)", "change = a", "0", "largest_change"
)


def main():
    n = 64
    plate = cp.zeros((n, n), cp.float32)
    source = cp.zeros_like(plate)
    source[n // 2, n // 4 : n // 2] = 5
    grid = (-(-n // TILE),) * 2
    start, end = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    for _ in range(50):
        warm = heated(plate, source, cp.float32(0.1))
        after = warm.copy()
        spread(grid, (TILE, TILE), (warm, after, n, cp.float32(0.2)))
        change = largest_change(plate, after)
        plate = after
    end.record()
    end.synchronize()
    print(f"the hottest point is at {float(plate.max()):.3f}, the last change was {float(change):.4f}")
    print(f"the plate holds {float(plate.sum()):.1f}")
    print(f"200 kernels took {cp.cuda.get_elapsed_time(start, end):.2f} ms")


if __name__ == "__main__":
    main()
