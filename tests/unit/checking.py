"""What tests of `windtunnel check` share: the command, and two kernels, one of which has a mistake."""

from __future__ import annotations

from collections.abc import Callable

Command = Callable[..., tuple[int, str, str]]
"""Takes a source, options and the name of a file; returns the exit code and what was printed."""

SAXPY = """
__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
NEIGHBOUR = """
#define NEXT(i) ((i) + 1)
__global__ void neighbour(int *data) {
    data[threadIdx.x] = data[NEXT(threadIdx.x)];
}
"""
