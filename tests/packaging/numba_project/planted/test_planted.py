"""Tests that have to fail: each says what is wrong, and in which line of this file."""

import numpy as np
import pytest
from numba import cuda, float32
from orbit import accelerations_of


@cuda.jit
def beyond(a):
    i = cuda.grid(1)
    a[i] += 1


def test_out_of_bounds():
    beyond[1, 32](np.zeros(20))


@cuda.jit
def unsynchronised(a, out):
    held = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    held[t] = a[t]
    out[t] = held[63 - t]


def test_race():
    a = np.arange(64, dtype=np.float32)
    unsynchronised[1, 64](a, np.zeros_like(a))


@pytest.mark.accelerator(time_s=1e-9)
def test_over_budget():
    accelerations_of(np.zeros((4, 3), np.float32), np.ones(4, np.float32))


@cuda.jit
def with_a_list(a):
    held = [1.0, 2.0]
    a[0] = held[0]


def test_not_in_the_language():
    with_a_list[1, 1](np.zeros(1))
