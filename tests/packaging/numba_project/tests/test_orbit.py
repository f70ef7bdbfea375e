import numpy as np
import pytest
from numba import cuda
from orbit import TILE, accelerations_of, count_near, total

RNG = np.random.default_rng(5)


def bodies(n):
    return RNG.normal(size=(n, 3)).astype(np.float32), RNG.uniform(0.5, 2, n).astype(np.float32)


def by_numpy(positions, masses):
    d = positions[None, :, :] - positions[:, None, :]
    distance = (d**2).sum(-1) + 1e-3
    return (d * (masses / distance**1.5)[..., None]).sum(1)


@pytest.mark.parametrize("n", [1, TILE, 3 * TILE + 7])
def test_accelerations_agree_with_numpy(n):
    positions, masses = bodies(n)
    assert np.allclose(accelerations_of(positions, masses), by_numpy(positions, masses), rtol=2e-4, atol=2e-4)


@pytest.mark.accelerator("h100-sxm-80gb", "l4", time_s=1e-3, launches=1)
def test_it_is_one_launch_and_fast_enough_on_both_devices():
    accelerations_of(*bodies(256))


def test_bodies_are_counted_by_threads_of_several_blocks():
    positions, _ = bodies(1000)
    counts = np.zeros(1, np.int32)
    count_near[8, 128](positions, 1.5, counts)
    assert counts[0] == (np.linalg.norm(positions, axis=1) < 1.5).sum()


def test_a_reduction_on_the_device():
    values = np.arange(1000, dtype=np.float64)
    assert total(values) == values.sum()


def test_the_device_is_there():
    assert cuda.is_available() and len(cuda.gpus) == 1
    assert cuda.get_current_device().WARP_SIZE == 32
