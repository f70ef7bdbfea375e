"""Variables that a thread reads before it assigns them: both ways of execution find them, without false findings."""

from __future__ import annotations

import numpy as np
import pytest

import windtunnel
from windtunnel import errors, f32, grid, i32

BOTH = pytest.mark.parametrize("schedule", [None, 3])


@windtunnel.kernel
def one_branch(x: f32[:], n: i32):
    i = grid(1)
    if i < n:
        scale = 2.0
    x[i] = x[i] * scale  # here


@windtunnel.kernel
def uniform_branch(x: f32[:], n: i32):
    if n > 1000:
        scale = 2.0
    x[grid(1)] = scale  # here


@windtunnel.kernel
def no_turn(x: f32[:], n: i32):
    i = grid(1)
    for k in range(i - n):
        last = k
    if i >= n:
        x[i] = last  # here


@windtunnel.kernel
def left_early(x: f32[:], n: i32):
    i = grid(1)
    k = 0
    while k < 4:
        if i == n:
            break
        found = k
        k += 1
    x[i] = found  # here


def _half(value, n):  # noqa: RET503  what it gives elsewhere is the matter
    if value < n:
        return value * 0.5


@windtunnel.kernel
def helper(x: f32[:], n: i32):
    i = grid(1)
    x[i] = _half(f32(i), n)  # here


@windtunnel.kernel
def lazily(x: f32[:], n: i32):
    i = grid(1)
    if i < n:
        scale = 2.0
    x[i] = scale if i <= n else 1.0  # here


@BOTH
@pytest.mark.parametrize(
    ("kernel", "name", "first"),
    [
        (one_branch, "scale", 40),
        (uniform_branch, "scale", 0),
        (no_turn, "last", 40),
        (left_early, "found", 40),
        (helper, "_half_1", 40),
        (lazily, "scale", 40),
    ],
)
def test_a_read_of_what_was_not_assigned_names_line_variable_and_thread(
    kernel, name: str, first: int, schedule: int | None
) -> None:
    with windtunnel.device("l4", schedule=schedule) as accelerator:
        x = accelerator.to_device(np.ones(64, np.float32))
        with pytest.raises(errors.UninitializedRead, match=rf"reads '{name}' at line .*# here\) before any") as found:
            accelerator.launch(kernel, 2, 32, x, 40)
    (((block, _, _), (thread, _, _)),) = found.value.threads
    if schedule is None:
        assert block * 32 + thread == first
    assert block * 32 + thread >= first


@windtunnel.kernel
def together(x: f32[:], n: i32):
    i = grid(1)
    if i < n:
        scale = 2.0
    else:
        shift = 1.0
    if i < n:
        x[i] = x[i] * scale
    else:
        x[i] = x[i] + shift + 7.0


@windtunnel.kernel
def guarded(x: f32[:], n: i32):
    i = grid(1)
    if i < n:
        scale = 2.0
    x[i] = x[i] * scale if i < n else x[i] + 8.0
    if i < n and scale > 1.0:
        x[i] += 0.0


@windtunnel.kernel
def in_loops(x: f32[:], n: i32):
    i = grid(1)
    for k in range(2):
        if k == 0:
            scale = 2.0 if i < n else 9.0
        else:
            x[i] = x[i] * scale
    while True:
        done = i
        if done >= 0:
            break
    x[i] += 0 * done
    if i > 1000:
        return
    for turn in range(3):
        last = turn
    x[i] += 0 * last + 0 * turn


@BOTH
@pytest.mark.parametrize("kernel", [together, guarded, in_loops])
def test_what_is_assigned_wherever_it_is_read_is_no_finding(kernel, schedule: int | None) -> None:
    with windtunnel.device("l4", schedule=schedule) as accelerator:
        x = accelerator.to_device(np.ones(64, np.float32))
        accelerator.launch(kernel, 2, 32, x, 40)
        assert (accelerator.to_host(x) == np.where(np.arange(64) < 40, 2, 9)).all()


def test_a_device_that_does_not_check_lets_it_be() -> None:
    with windtunnel.device("l4", checked=False) as accelerator:
        x = accelerator.to_device(np.ones(64, np.float32))
        accelerator.launch(one_branch, 2, 32, x, 40)
        assert (accelerator.to_host(x)[:40] == 2).all()
