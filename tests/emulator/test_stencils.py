"""Stencils: the same numbers as NumPy slices with and without a tile, no false findings, and errors with lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windtunnel
from windtunnel import (
    GridPos,
    atomic,
    errors,
    f16,
    f32,
    grid,
    i32,
    shared,
    sync_threads,
    sync_warp,
    thread_fence,
    thread_fence_block,
    thread_idx_x,
)
from windtunnel.language import ir
from windtunnel.language.infer import infer
from windtunnel.language.parameters import parameters_of
from windtunnel.language.parse import parse
from windtunnel.language.places import private
from windtunnel.language.source import KernelError
from windtunnel.language.types import Array
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.kernels import Kernel
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()
FOUR = np.float32(4)


@pytest.fixture(scope="module")
def device() -> Accelerator:
    return windtunnel.device("l4", catalogue=KNOWN)


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(dtype)


def covering(shape: tuple[int, ...], block: tuple[int, ...], halo: int) -> tuple[int, ...]:
    """Blocks along x, y and z for the interior; one where there is none."""
    sides = [max(side - 2 * halo, 1) for side in reversed(shape)]
    return tuple(math.ceil(side / threads) for side, threads in zip(sides, block, strict=False))


def shifted(a: np.ndarray, halo: int, *offsets: int) -> np.ndarray:
    """Of each cell of the interior, the cell so many steps away."""
    moved = zip(a.shape, offsets, strict=True)
    return a[tuple(slice(halo + by, max(side - halo + by, halo + by)) for side, by in moved)]


def interior(a: np.ndarray, halo: int) -> np.ndarray:
    return shifted(a, halo, *(0 for _ in a.shape))


def run(device: Accelerator, kernel: Any, a: np.ndarray, block: tuple[int, ...], halo: int = 1) -> np.ndarray:
    """What the second array is after a launch, when it began as -1 everywhere."""
    x, out = device.to_device(a), device.to_device(np.full_like(a, -1))
    device.launch(kernel, covering(a.shape, block, halo), block, x, out)
    return device.to_host(out)


def same(found: np.ndarray, halo: int, wanted: np.ndarray) -> None:
    """Bit for bit in the interior, and the halo untouched."""
    expected = np.full_like(found, -1)
    interior(expected, halo)[...] = wanted
    np.testing.assert_array_equal(found.view(f"u{found.itemsize}"), expected.view(f"u{found.itemsize}"))


@windtunnel.stencil(tile=(16, 16), halo=1)
def laplacian(a: f32[:, :], out: f32[:, :], pos: GridPos):  # type: ignore[no-untyped-def]
    out[pos.idx()] = pos.north(a) + pos.south(a) + pos.east(a) + pos.west(a) - 4.0 * a[pos.idx()]


@windtunnel.kernel
def untiled(pos: GridPos, a: f32[:, :], out: f32[:, :]):  # type: ignore[no-untyped-def]
    out[pos.idx()] = pos.north(a) + pos.south(a) + pos.east(a) + pos.west(a) - 4.0 * a[pos.idx()]


def plain(a, pos: GridPos, out):  # type: ignore[no-untyped-def]
    out[pos.idx()] = pos.north(a) + pos.south(a) + pos.east(a) + pos.west(a) - 4.0 * a[pos.idx()]


@pytest.mark.parametrize("shape", [(18, 18), (50, 70), (3, 3), (2, 9), (19, 17)])
@pytest.mark.parametrize("kernel", [laplacian, untiled, plain], ids=["tiled", "untiled", "plain"])
def test_two_sides_equal_numpys_slices(device: Accelerator, kernel: Any, shape: tuple[int, int]) -> None:
    a = numbers(*shape)
    around = shifted(a, 1, -1, 0) + shifted(a, 1, 1, 0) + shifted(a, 1, 0, 1) + shifted(a, 1, 0, -1)
    same(run(device, kernel, a, (16, 16)), 1, around - FOUR * interior(a, 1))


def line(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
    out[pos.idx()] = pos.west(a, 3) - pos.east(a, 2) + pos.at(a, -1)


def test_one_side_equals_numpys_slices_in_every_form(device: Accelerator) -> None:
    for dtype in (np.float32, np.int32, np.float16, np.float64):
        a = (numbers(1000) * 100).astype(dtype)
        wanted = shifted(a, 3, -3) - shifted(a, 3, 2) + shifted(a, 3, -1)
        for form in ({}, {"tile": 64}, {"tile": (64,)}, {"tile": (2,)}):
            kernel = windtunnel.stencil(halo=3, **form)(line)  # type: ignore[call-overload]
            block = kernel.function.__windtunnel_stencil__.block or (64, 1, 1)
            same(run(device, kernel, a, block, halo=3), 3, wanted)


def volume(a: f32[:, :, :], out: f32[:, :, :], pos: GridPos):  # type: ignore[no-untyped-def]
    sides = pos.down(a, 2) - pos.up(a) + pos.north(a) - pos.south(a, 2) + pos.west(a) - pos.east(a)
    out[pos.idx()] = sides + pos.at(a, 1, -2, 2) + (pos.z * 10000 + pos.y * 100 + pos.x)


@pytest.mark.parametrize("tile", [None, (2, 4, 8)])
def test_three_sides_equal_numpys_slices(device: Accelerator, tile: tuple[int, ...] | None) -> None:
    a = numbers(9, 12, 21)
    z, y, x = np.indices(a.shape, np.int32)
    sides = shifted(a, 2, -2, 0, 0) - shifted(a, 2, 1, 0, 0) + shifted(a, 2, 0, -1, 0) - shifted(a, 2, 0, 2, 0)
    sides = sides + shifted(a, 2, 0, 0, -1) - shifted(a, 2, 0, 0, 1)
    place = interior(z * 10000 + y * 100 + x, 2).astype(np.float32)
    kernel = windtunnel.stencil(tile=tile, halo=2)(volume)
    same(run(device, kernel, a, (8, 4, 2), halo=2), 2, sides + shifted(a, 2, 1, -2, 2) + place)


def weighted(tile: Any, halo: int, weights: list[np.float32], offsets: list[tuple[int, ...]], sides: int) -> Kernel:
    """A stencil of four terms."""
    w0, w1, w2, w3 = weights
    (z0, y0, x0), (z1, y1, x1), (z2, y2, x2) = [(0, 0, *one)[-3:] for one in offsets]

    def one(a: f32[:], out: f32[:], pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = w0 * a[pos.idx()] + w1 * pos.at(a, x0) + w2 * pos.at(a, x1) + w3 * pos.at(a, x2)

    def two(a: f32[:, :], out: f32[:, :], pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = w0 * a[pos.idx()] + w1 * pos.at(a, y0, x0) + w2 * pos.at(a, y1, x1) + w3 * pos.at(a, y2, x2)

    def three(a: f32[:, :, :], out: f32[:, :, :], pos: GridPos):  # type: ignore[no-untyped-def]
        first = w0 * a[pos.idx()] + w1 * pos.at(a, z0, y0, x0)
        out[pos.idx()] = first + w2 * pos.at(a, z1, y1, x1) + w3 * pos.at(a, z2, y2, x2)

    return windtunnel.stencil(tile=tile, halo=halo)((one, two, three)[sides - 1])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_stencil_equals_numpys_slices(device: Accelerator, data: st.DataObject) -> None:
    sides, halo = data.draw(st.integers(1, 3), "sides"), data.draw(st.integers(1, 3), "halo")
    shape = tuple(data.draw(st.lists(st.integers(1, 24), min_size=sides, max_size=sides), "shape"))
    block = tuple(data.draw(st.lists(st.integers(1, 7), min_size=sides, max_size=sides), "block"))
    tiled = data.draw(st.booleans(), "tiled")
    number = st.floats(-8, 8, width=32).map(np.float32)
    weights = data.draw(st.lists(number, min_size=4, max_size=4), "weights")
    step = st.tuples(*[st.integers(-halo, halo)] * sides)
    offsets = data.draw(st.lists(step, min_size=3, max_size=3), "offsets")
    kernel = weighted(tuple(reversed(block)) if tiled else None, halo, weights, offsets, sides)
    a = numbers(*shape)
    wanted = weights[0] * interior(a, halo)
    for weight, offset in zip(weights[1:], offsets, strict=True):
        wanted = wanted + weight * shifted(a, halo, *offset)
    same(run(device, kernel, a, block, halo), halo, wanted)


# More than the plain form.


def difference(a, pos):  # type: ignore[no-untyped-def]
    return pos.east(a) - pos.west(a)


def limited(a, pos, most):  # type: ignore[no-untyped-def]
    slope = pos.south(a) - pos.north(a)
    if slope > most:
        return most
    return slope


@windtunnel.stencil(tile=(4, 8))
def advected(a: f16[:, :], b: f16[:, :], scale: f32, table: f32[:], out: f32[:, :], pos: "GridPos"):  # type: ignore[no-untyped-def]  # noqa: UP037
    x = difference(a, pos) + limited(b, pos, 0.5)
    if pos.x == 1:
        return
    out[pos.idx()] += f32(x) * scale * table[pos.y % len(table)]
    atomic.add(out, pos.idx(), 1.0)


def test_functions_take_the_position_and_a_stencil_may_hold_what_a_kernel_does(device: Accelerator) -> None:
    a, b, start = numbers(11, 21, dtype=np.float16), numbers(11, 21, dtype=np.float16) * np.float16(2), numbers(11, 21)
    table, scale = numbers(3), np.float32(1.5)
    out = device.to_device(start)
    device.launch(
        advected, (3, 3), (8, 4), device.to_device(a), device.to_device(b), scale, device.to_device(table), out
    )
    x = shifted(a, 1, 0, 1) - shifted(a, 1, 0, -1)
    x = x + np.minimum(shifted(b, 1, 1, 0) - shifted(b, 1, -1, 0), np.float16(0.5))
    rows = (np.arange(1, 10) % 3)[:, None]
    expected = start.copy()
    inner = interior(expected, 1)
    inner[:, 1:] = (inner + x.astype(np.float32) * scale * table[rows] + np.float32(1))[:, 1:]
    np.testing.assert_array_equal(device.to_host(out), expected)


@windtunnel.stencil(tile=(4, 4), work={"op": "kernel", "threads": 1, "bytes": 1, "flops": 0.0})
@windtunnel.kernel
def both(a: f32[:, :], tx: f32[:, :], pos: GridPos):  # type: ignore[no-untyped-def]
    a_tile = 2.0
    x = 3.0
    tx[pos.idx()] = a[pos.idx()] * a_tile + x * pos.north(a)


def test_names_that_the_form_uses_may_be_the_kernels_own(device: Accelerator) -> None:
    a = numbers(9, 9)
    wanted = interior(a, 1) * np.float32(2) + np.float32(3) * shifted(a, 1, -1, 0)
    same(run(device, both, a, (4, 4)), 1, wanted)
    assert both.constant


def test_a_kernel_may_be_marked_over_a_stencil(device: Accelerator) -> None:
    a, work = numbers(30), {"op": "kernel", "threads": 1, "bytes": 1, "flops": 0.0}
    over = windtunnel.kernel(work=work)(windtunnel.stencil(tile=8, halo=3)(line))
    np.testing.assert_array_equal(
        run(device, over, a, (8,), 3), run(device, windtunnel.stencil(halo=3)(line), a, (5,), 3)
    )
    assert over.work is work
    with pytest.raises(errors.LaunchError, match="takes 8 x 1 x 1"):
        run(device, over, a, (16,), 3)


def test_one_function_is_several_stencils(device: Accelerator) -> None:
    a = numbers(30)
    wide, narrow = windtunnel.stencil(tile=16, halo=3)(line), windtunnel.stencil(tile=4, halo=3)(line)
    np.testing.assert_array_equal(run(device, wide, a, (16,), 3), run(device, narrow, a, (4,), 3))


# Findings.


@windtunnel.kernel
def in_place(a: f32[:, :], pos: GridPos):  # type: ignore[no-untyped-def]
    a[pos.idx()] = pos.north(a)


def test_a_stencil_in_place_is_a_race(device: Accelerator) -> None:
    with pytest.raises(errors.DataRace) as caught:
        device.launch(in_place, 1, (8, 8), device.to_device(numbers(10, 10)))
    at = in_place.function.__code__.co_firstlineno + 2
    assert caught.value.lines == (at,)
    assert caught.value.array == "a"


def test_a_tile_of_one_buffer_given_twice_is_a_race_between_blocks(device: Accelerator) -> None:
    a = device.to_device(numbers(40, 40))
    with pytest.raises(errors.DataRace, match="threads of two blocks"):
        device.launch(laplacian, (3, 3), (16, 16), a, a)


def test_a_halo_that_nobody_wrote_is_found_where_it_is_looked_at(device: Accelerator) -> None:
    for kernel in (laplacian, untiled):
        with pytest.raises(errors.UninitializedRead) as caught:
            device.launch(kernel, 1, (16, 16), device.empty((18, 18)), device.empty((18, 18)))
        assert caught.value.lines == (kernel.function.__code__.co_firstlineno + 2,)


def test_what_only_its_own_thread_touches_is_not_watched() -> None:
    given = {one.name: one.annotation for one in parameters_of(laplacian.function) if one.annotation}
    arrays = frozenset(name for name, kind in given.items() if isinstance(kind, Array))
    program = infer(parse(laplacian.function, arrays), given)
    assert private(program, ["out"]) == {"out": frozenset((0, 1))}
    moved = infer(parse(in_place.function, frozenset("a")), {"a": given["a"]})
    assert private(moved, ["a"]) == {}


# What is refused.


@pytest.mark.parametrize(
    ("kernel", "blocks", "block", "arrays", "message"),
    [
        (laplacian, (3, 3), (8, 8), ((40, 40), (40, 40)), r"a block of 8 x 8 x 1 threads.*tile of 16 x 16 cells.*takes 16 x 16 x 1"),
        (windtunnel.stencil(tile=(4, 8))(plain), (3, 3), (4, 8), ((9, 9), (9, 9)), r"tile of 4 x 8 cells, rows first, takes 8 x 4 x 1"),
        (untiled, (3, 3), (8, 8), ((40, 40), (40, 41)), r"'out' has 40 x 41 elements and 'a' 40 x 40; arrays of a stencil"),
        (untiled, (3, 3, 2), (8, 8), ((40, 40), (40, 40)), r"2 threads along z, where 'a' has 2 dimensions"),
    ],
)  # fmt: skip
def test_a_launch_that_does_not_fit_is_refused_before_anything_runs(
    device: Accelerator, kernel: Any, blocks: Any, block: Any, arrays: Any, message: str
) -> None:
    given = [device.to_device(np.zeros(shape, np.float32)) for shape in arrays]
    before = device.counters.launches
    with pytest.raises(errors.LaunchError, match=message):
        device.launch(kernel, blocks, block, *given)
    with pytest.raises(errors.LaunchError, match=message):
        graph = device.graph()
        graph.launch(kernel, blocks, block, *given)
        graph.compile().replay()
    assert device.counters.launches == before


def refusals() -> Mapping[str, tuple[Callable[..., None], int, str]]:
    """Of each wrong stencil: the line after its def that is named, and what is said."""
    half = 1.5

    def direction(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.nort(a)

    def dimension(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        x = pos.north(a)
        out[pos.idx()] = x + pos.up(a)

    def far(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.north(a, 2)

    def far_at(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.at(a, 0, -3)

    def few(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.at(a, 1)

    def backwards(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.north(a, -1)

    def many(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.north(a, 1, 1)

    def fraction(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.north(a, half)

    def counted(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        for k in range(2):
            out[pos.idx()] = pos.north(a, k)

    def kept(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        i = pos.idx()
        out[i] = a[i]

    def among(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx(), 0] = 1.0

    def number(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = a[pos.idx()] + pos

    def depth(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.z

    def called(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.x()

    def uncalled(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.north

    def argument(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx(a)] = 1.0

    def named(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.north(a=a)

    def unknown(aa, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.north(ab)  # type: ignore[name-defined]  # noqa: F821

    def of_nothing(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[pos.idx()] = pos.north()

    def meeting(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        sync_threads()
        out[pos.idx()] = pos.north(a)

    def own(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        part = shared.array((4, 4), f32)
        part[pos.idx()] = pos.north(a)

    def set_again(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        pos = 3
        out[pos.idx()] = 1.0  # type: ignore[attr-defined]

    def nowhere(a, out, pos: GridPos):  # type: ignore[no-untyped-def]
        out[0, 0] = pos.x

    def placeless(a, out):  # type: ignore[no-untyped-def]
        out[0, 0] = a[0, 0]

    return {
        "direction": (direction, 1, r"no 'nort'; expected one of west, .*; did you mean 'north'\?"),
        "dimension": (dimension, 2, r"no such direction in 'pos.up\(a\)': 'a' has 2 dimensions; expected one of west, east, n"),
        "far": (far, 1, r"'pos.north\(a, 2\)' looks 2 cells away, beyond the halo of 1; expected at most 1, or @wind"),
        "far_at": (far_at, 1, r"3 cells away, beyond the halo of 1"),
        "few": (few, 1, r"'pos.at\(a, 1\)' has one offset, and 'a' 2 dimensions; expected one for each: at\(a, dy, dx\)"),
        "backwards": (backwards, 1, r"a distance of -1.*the other way is south"),
        "many": (many, 1, r"of 3 values; expected an array and a distance: north\(a, 2\)"),
        "fraction": (fraction, 1, r"1.5 cells away; expected a whole number"),
        "counted": (counted, 2, r"which is known only while the kernel runs"),
        "kept": (kept, 1, r"'pos.idx\(\)' is not a number; expected it alone as an index, a\[pos.idx\(\)\]"),
        "among": (among, 1, r"'pos.idx\(\)' is not a number"),
        "number": (number, 1, r"'pos' alone is not a number"),
        "depth": (depth, 1, r"'pos.z': 'out' has 2 dimensions; expected one of pos.x, pos.y"),
        "called": (called, 1, r"'pos.x\(\)': it is a number"),
        "uncalled": (uncalled, 1, r"'pos.north' without its arguments"),
        "argument": (argument, 1, r"'pos.idx\(a\)' with an argument"),
        "named": (named, 1, r"an argument by its name"),
        "unknown": (unknown, 1, r"'ab' is not an array here; expected one of aa, out; did you mean 'aa'\?"),
        "of_nothing": (of_nothing, 1, r"'pos.north\(\)' of no array"),
        "meeting": (meeting, 1, r"a barrier in a stencil, which threads beyond the interior do not reach"),
        "own": (own, 2, r"'part' is the kernel's own"),
        "set_again": (set_again, 1, r"'pos' is the stencil's position"),
        "nowhere": (nowhere, 0, r"reaches no array through its position"),
        "placeless": (placeless, 0, r"'placeless' has no position; expected a parameter: pos: GridPos"),
    }  # fmt: skip


@pytest.mark.parametrize("name", refusals())
def test_what_is_wrong_is_said_at_its_line(device: Accelerator, name: str) -> None:
    function, after, message = refusals()[name]
    given = [device.to_device(numbers(10, 10)) for _ in range(2)]
    with pytest.raises(KernelError, match=message) as caught:
        device.launch(windtunnel.stencil(function), 1, (8, 8), *given)
    assert caught.value.where.line == function.__code__.co_firstlineno + after
    assert caught.value.where.file == __file__


@windtunnel.stencil(tile=(8, 8))
def staged_in_place(a: f32[:, :], pos: GridPos):  # type: ignore[no-untyped-def]
    north = pos.north(a)
    a[pos.idx()] = north


@windtunnel.stencil(tile=8)
def short_tile(a: f32[:, :], out: f32[:, :], pos: GridPos):  # type: ignore[no-untyped-def]
    out[pos.idx()] = pos.north(a)


@windtunnel.stencil
def two_ranks(a: f32[:, :], out: f32[:], pos: GridPos):  # type: ignore[no-untyped-def]
    out[pos.idx()] = pos.north(a)


@pytest.mark.parametrize(
    ("kernel", "after", "message", "sides"),
    [
        (staged_in_place, 2, r"'pos.north\(a\)' reads 'a', which line \d+ writes.*expected two arrays", 0),
        (short_tile, 1, r"a tile of one dimension, where 'a' has 2 dimensions", 2),
        (two_ranks, 2, r"'out' has one dimension, and 'a' 2 dimensions", 1),
    ],
)
def test_what_does_not_go_together_is_said_at_its_line(
    device: Accelerator, kernel: Kernel, after: int, message: str, sides: int
) -> None:
    given = [device.to_device(numbers(10, 10))]
    given += [device.to_device(numbers(*[10] * sides))] if sides else []
    with pytest.raises(KernelError, match=message) as caught:
        device.launch(kernel, 1, (8, 8), *given)
    assert caught.value.where.line == kernel.function.__code__.co_firstlineno + after


@pytest.mark.parametrize("tile", [(0,), (), (1, 2, 3, 4), (2.5,), "16", (True, 2)])
def test_a_tile_that_is_none_is_refused(tile: Any) -> None:
    with pytest.raises(errors.InputError, match="tile is .*rows first"):
        windtunnel.stencil(tile=tile)


@pytest.mark.parametrize("halo", [-1, 1.0, True])
def test_a_halo_that_is_none_is_refused(halo: Any) -> None:
    with pytest.raises(errors.InputError, match="halo is"):
        windtunnel.stencil(halo=halo)


def test_only_functions_are_stencils() -> None:
    with pytest.raises(errors.InputError, match="is not a stencil; expected a function"):
        windtunnel.stencil(np.add)


# The founding documents' spellings of what is no stencil's.


@windtunnel.kernel
def spelled(out: i32[:, :]):  # type: ignore[no-untyped-def]
    part = shared.array(64, i32)
    t = thread_idx_x() + windtunnel.block_dim_x() * (
        windtunnel.thread_idx_y() + windtunnel.block_dim_y() * windtunnel.thread_idx_z()
    )
    part[t] = t
    sync_threads()
    sync_warp()
    block = windtunnel.block_idx_x() + windtunnel.block_idx_y() * 10 + windtunnel.block_idx_z() * 100
    sizes = windtunnel.grid_dim_x() + windtunnel.grid_dim_y() * 10 + windtunnel.grid_dim_z() * 100
    row = (windtunnel.block_idx_z() * windtunnel.grid_dim_y() + windtunnel.block_idx_y()) * windtunnel.grid_dim_x()
    thread_fence()
    thread_fence_block()
    threads = windtunnel.block_dim_x() * windtunnel.block_dim_y() * windtunnel.block_dim_z()
    out[row + windtunnel.block_idx_x(), t] = part[threads - 1 - t] + 1000 * block + 1000000 * sizes


def test_the_founding_documents_spellings_mean_what_cudas_do(device: Accelerator) -> None:
    out = device.empty((24, 24), np.int32)
    device.launch(spelled, (2, 3, 4), (4, 3, 2), out)
    z, y, x = (one.reshape(-1) for one in np.indices((4, 3, 2)))
    blocks = (x + y * 10 + z * 100)[:, None]
    expected = np.arange(23, -1, -1) + 1000 * blocks + 1000000 * 432
    np.testing.assert_array_equal(device.to_host(out), expected)


def test_they_are_the_same_to_the_compiler() -> None:
    def cuda(out: i32[:]):  # type: ignore[no-untyped-def]
        windtunnel.syncthreads()
        windtunnel.syncwarp()
        windtunnel.threadfence()
        windtunnel.threadfence_block()
        out[grid(1)] = 1

    def seeds(out: i32[:]):  # type: ignore[no-untyped-def]
        windtunnel.sync_threads()
        windtunnel.sync_warp()
        windtunnel.thread_fence()
        windtunnel.thread_fence_block()
        out[grid(1)] = 1

    scopes = [
        [one.scope for one in parse(function, frozenset(("out",))).body if isinstance(one, ir.Barrier)]
        for function in (cuda, seeds)
    ]
    assert scopes[0] == scopes[1] == ["block", "warp", "fence.device", "fence.block"]
