import cupy as cp
import numpy as np
import pytest
import ripple
from cupy.testing import assert_allclose, shaped_random


def by_numpy(before, now, dt, speed):
    after = np.zeros_like(now)
    around = now[1:-1, :-2] + now[1:-1, 2:] + now[:-2, 1:-1] + now[2:, 1:-1] - 4 * now[1:-1, 1:-1]
    after[1:-1, 1:-1] = 2 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + speed**2 * dt**2 * around
    return after


@pytest.mark.parametrize("shape", [(3, 3), (20, 50), (64, 64)])
def test_a_step_agrees_with_numpy(shape):
    ripple.set_speed(1.5)
    before, now = shaped_random(shape, seed=1), shaped_random(shape, seed=2)
    expected = by_numpy(before.get(), now.get(), 0.1, 1.5)
    assert_allclose(ripple.step(before, now, 0.1), expected, rtol=2e-4, atol=2e-4)


def test_an_interior_view_is_a_pointer_into_the_grid():
    grid = shaped_random((8, 16))
    sums = cp.empty(1, cp.float32)
    ripple.MODULE.get_function("row_sums<float, 128>")((1,), (128,), (grid[3], sums, 16))
    assert_allclose(sums, grid[3].sum(keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_rows(dtype):
    values = shaped_random((5, 300), dtype=dtype)
    assert_allclose(ripple.row_sums(values), values.sum(axis=1), rtol=1e-5)


def test_energy_and_damping():
    before, now = shaped_random((4, 5), seed=1), shaped_random((4, 5), seed=2)
    assert float(ripple.energy_of(before, now)) == pytest.approx(float(0.5 * ((now - before) ** 2).sum()), rel=1e-5)
    assert_allclose(ripple.damped(now[:, ::2], 0.25), 0.75 * now[:, ::2], rtol=1e-6)


@pytest.mark.accelerator("h100-sxm-80gb", "l4", time_s=1e-3, launches=4)
def test_it_is_few_launches_and_fast_enough_on_both_devices():
    grid = cp.zeros((256, 256), cp.float32)
    ripple.step(grid, grid, 0.1)


@pytest.mark.accelerator(leaks="error")
def test_streams_are_ordered_and_nothing_is_left():
    a, b = shaped_random((32, 32), seed=1), shaped_random((32, 32), seed=2)
    ripple.set_speed(1.0)
    for mine, grid in zip(ripple.two_grids(a, b, 0.1), (a, b)):
        assert_allclose(mine, by_numpy(grid.get(), grid.get(), 0.1, 1.0), rtol=2e-4, atol=2e-4)


def test_the_device_is_there():
    assert cp.cuda.runtime.getDeviceCount() == 1
    start, end = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    cp.ones((1000, 1000)) @ cp.ones((1000, 1000))
    end.record()
    end.synchronize()
    assert cp.cuda.get_elapsed_time(start, end) > 0
