"""Tests that have to fail: each says what is wrong, and in which line of this file."""

import cupy as cp
import numpy as np
import pytest

beyond = cp.RawKernel(
    r"""
extern "C" __global__ void beyond(float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) a[i] += 1.0f;  // one too many
}
""",
    "beyond",
)


def test_out_of_bounds():
    beyond((1,), (32,), (cp.zeros(20, cp.float32), 20))


unsynchronised = cp.RawKernel(
    r"""
extern "C" __global__ void unsynchronised(const float* a, float* out) {
    __shared__ float held[64];
    held[threadIdx.x] = a[threadIdx.x];  // no barrier after this
    out[threadIdx.x] = held[63 - threadIdx.x];
}
""",
    "unsynchronised",
)


def test_race():
    unsynchronised((1,), (64,), (cp.arange(64, dtype=cp.float32), cp.zeros(64, cp.float32)))


def test_streams_that_nothing_orders():
    a = cp.zeros(1000)
    with cp.cuda.Stream(non_blocking=True):
        a += 1  # nothing waits for the zeros


shifted = cp.ElementwiseKernel("raw T x", "T y", "y = x[i + 1]", "shifted")


def test_a_snippet_reads_beyond_the_end():
    shifted(cp.arange(10.0), cp.empty(10))


def test_uninitialised():
    cp.empty(5).sum()


@pytest.mark.accelerator(time_s=1e-9)
def test_over_budget():
    cp.zeros(10)


KEPT = []


@pytest.mark.accelerator(leaks="error")
def test_leak():
    KEPT.append(cp.zeros(1000))  # stays in a list of the module


def test_a_number_of_another_size():
    beyond((1,), (32,), (cp.zeros(20, cp.float32), 20.0))


def test_an_array_of_the_host():
    cp.ones(3) + np.ones(3)


def test_a_library_that_is_not_there():
    from cupyx.scipy import ndimage

    ndimage.zoom(cp.ones((3, 3)), 2)
