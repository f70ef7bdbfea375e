"""Launches of kernels written thread by thread: written memory, launch errors, and that these take no time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import errors, f32, grid, i32
from windtunnel.runtime.accelerator import Accelerator
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()


@windtunnel.kernel
def read(x: f32[:], out: f32[:], first: i32):  # type: ignore[no-untyped-def]
    i = grid(1)
    out[i] = x[first + i]


@pytest.fixture
def device() -> Accelerator:
    return windtunnel.device("l4", catalogue=KNOWN)


def reads(device: Accelerator, x: Any, first: int) -> bool:
    """Whether four elements from ``first`` may be read."""
    try:
        device.launch(read, 1, 4, x, device.empty(4), first)
    except errors.UninitializedRead:
        return False
    return True


@pytest.mark.parametrize("graph", [False, True])
def test_a_copy_within_carries_what_was_written_and_what_was_not(device: Accelerator, graph: bool) -> None:
    half, whole = device.empty(8), device.to_device(np.ones(4, np.float32))
    half.copy_from(np.ones(4, np.float32))
    of_whole, of_half = device.empty(8), device.empty(12)
    if graph:
        made = device.graph()
        made.copy_within(of_whole, whole)
        made.copy_within(of_half, half)
        made.compile().replay()
    else:
        of_whole.copy_within(whole)
        of_half.copy_within(half)
    for x in (half, of_whole, of_half):
        assert reads(device, x, 0)
        assert not reads(device, x, 4), "the copy was of four elements, not of sixteen"


def test_what_a_ring_writes_into_its_state_is_written(device: Accelerator) -> None:
    state = device.empty(4)

    def fill(message: Any, into: np.ndarray) -> None:
        into[:] = message

    with device.ring(fill, 1, 32, state, message=np.float32) as ring:
        ring.send(2.0)
    assert reads(device, state, 0)


@windtunnel.kernel
def big(out: f32[:]):  # type: ignore[no-untyped-def]
    part = windtunnel.shared.array(20_000, f32)
    part[windtunnel.threadIdx.x] = 1.0
    out[0] = part[0]


def test_a_launch_that_is_refused_takes_no_time(device: Accelerator) -> None:
    out = device.empty(4)
    before = device.clock_s
    with pytest.raises(errors.LaunchError, match="80,000 bytes of shared memory"):
        device.launch(big, 1, 32, out)
    device.synchronize()
    assert device.counters.launches == 0
    assert device.clock_s - before < 1e-5


@pytest.mark.parametrize("first", [2.5, 2**40, -(2**31) - 1, float("nan")])
def test_a_number_that_its_parameter_cannot_hold_is_refused(device: Accelerator, first: float) -> None:
    x = device.to_device(np.ones(8, np.float32))
    with pytest.raises(errors.InputError, match="'first' is"):
        device.launch(read, 1, 4, x, device.empty(4), first)
    device.launch(read, 1, 4, x, device.empty(4), 2.0)
