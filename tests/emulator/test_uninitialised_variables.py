"""Reads of variables and memory that nothing has written: both ways of execution find them, without false findings."""

from __future__ import annotations

import sys

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


@windtunnel.kernel
def inner(a: f32[:]) -> None:
    i = grid(1)
    if 0 < i < a.size - 1:
        a[i] = 1.0


def test_a_copy_to_the_host_of_memory_that_nothing_has_written_is_found_with_its_line() -> None:
    with windtunnel.device("l4") as accelerator:
        buffer, array = accelerator.empty(64), np.zeros(64, np.float32)
        line = sys._getframe().f_lineno + 2
        with pytest.raises(errors.UninitializedRead) as found:
            buffer.copy_to(array)
        assert found.value.lines == (line,) and found.value.file == __file__
        assert f"copies 256 bytes, which nothing has written; the memory is that of line {line - 3}" in str(found.value)
        assert np.isnan(array).all() and accelerator.findings == [found.value]
        copied = accelerator.empty(64)
        copied.copy_within(buffer)
        with pytest.raises(errors.UninitializedRead):
            accelerator.to_host(copied)
        graph = accelerator.graph()
        graph.copy_out(array, buffer)
        with pytest.raises(errors.UninitializedRead):
            graph.compile().replay()
        with windtunnel.device("l4", checked=False) as unchecked:
            assert np.isnan(unchecked.to_host(unchecked.empty(3))).all()


def test_a_copy_of_an_array_that_was_written_in_part_is_a_finding_only_when_strict() -> None:
    for strict in (False, True):
        with windtunnel.device("l4", strict=strict) as accelerator:
            buffer = accelerator.empty(64)
            accelerator.launch(inner, 1, 64, buffer)
            if strict:
                with pytest.raises(
                    errors.UninitializedRead, match="of which nothing has written 8, the first at byte 0"
                ):
                    accelerator.to_host(buffer)
                buffer.copy_from(np.ones(1, np.float32))
                with pytest.raises(
                    errors.UninitializedRead, match="of which nothing has written 4, the first at byte 252"
                ):
                    accelerator.to_host(buffer)
            else:
                found = accelerator.to_host(buffer)
                assert np.isnan(found[[0, -1]]).all() and (found[1:-1] == 1).all()
            for start in (0, 5):
                prefix = accelerator.empty(64)
                prefix.copy_from(np.ones(start + 1, np.float32))
                if not strict:
                    assert np.isnan(accelerator.to_host(prefix)).sum() == 63 - start
