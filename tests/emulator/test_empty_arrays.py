"""Arrays without elements: allocated, copied and passed to kernels, as NumPy's are; and shapes that do not fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import f32, f64, grid, i32, i64


@windtunnel.kernel
def doubled(a: f32[:], out: f32[:]):
    i = grid(1)
    if i < a.size:
        out[i] = a[i] * 2


@windtunnel.kernel
def rows(a: f32[:, :], out: i32[:]):
    out[0] = a.shape[0] * 100 + a.shape[1]


@windtunnel.kernel
def first(a: f32[:], out: i32[:]):
    out[0] = i32(a[0])


def whole(a: Any, b: Any) -> None:
    b[...] = a + 1


@pytest.mark.parametrize("schedule", [None, 3])
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_an_empty_array_goes_to_the_device_and_back(shape: tuple[int, ...], schedule: int | None) -> None:
    with windtunnel.device("l4", schedule=schedule, leaks="error") as accelerator:
        host = np.zeros(shape, np.float32)
        buffer = accelerator.to_device(host)
        other = accelerator.empty(shape)
        other.copy_within(buffer)
        buffer.copy_from(host)
        other.copy_to(host)
        accelerator.launch(whole, 1, 1, buffer, other)
        assert accelerator.to_host(other).shape == shape
        assert buffer.size == buffer.nbytes == accelerator.counters.copied_bytes == 0
        buffer.free()
        other.free()


@pytest.mark.parametrize("schedule", [None, 3])
def test_kernels_take_empty_arrays(schedule: int | None) -> None:
    with windtunnel.device("l4", schedule=schedule) as accelerator:
        empty, out = accelerator.to_device(np.zeros(0, np.float32)), accelerator.to_device(np.zeros(1, np.int32))
        accelerator.launch(doubled, *accelerator.configuration(0), empty, empty)
        assert accelerator.compute(doubled, np.zeros(0, np.float32)).shape == (0,)
        accelerator.launch(rows, 1, 1, accelerator.empty((0, 7)), out)
        assert accelerator.to_host(out) == [7]
        with pytest.raises(windtunnel.errors.OutOfBounds, match="index 0 is out of bounds for 'a' of 0 elements"):
            accelerator.launch(first, 1, 1, empty, out)


def test_a_graph_may_copy_nothing() -> None:
    with windtunnel.device("l4") as accelerator:
        empty, out = accelerator.empty(0), np.zeros(0, np.float32)
        with accelerator.capture() as captured:
            empty.copy_from(out)
        graph = accelerator.graph()
        graph.copy_out(out, empty, after=[graph.copy_in(empty, out)])
        for one in (captured, graph):
            one.compile().replay()


def test_the_first_rows_of_a_buffer_are_copied() -> None:
    with windtunnel.device("l4") as accelerator:
        buffer = accelerator.to_device(np.zeros((4, 3), np.float32))
        buffer.copy_from(np.ones((2, 3), np.float32))
        assert accelerator.to_host(buffer).sum() == 6


@windtunnel.kernel
def roots(a: i64[:], b: i32[:], out: f64[:]):
    out[0] = math.sqrt(a[0])
    out[1] = math.sqrt(b[0])
    out[2] = a[0] / a[1]
    out[3] = b[0] / b[1]


def test_functions_of_integers_have_the_documented_type() -> None:
    with windtunnel.device("l4") as accelerator:
        out = accelerator.to_device(np.zeros(4))
        numbers = np.array([3, 7])
        accelerator.launch(
            roots, 1, 1, accelerator.to_device(numbers), accelerator.to_device(numbers.astype(np.int32)), out
        )
        assert accelerator.to_host(out).tolist() == [
            math.sqrt(3), float(np.sqrt(np.float32(3))), 3 / 7, float(np.float32(3) / np.float32(7))
        ]  # fmt: skip
