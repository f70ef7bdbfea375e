"""Designs in RTL against NumPy bit for bit, their cycles against closed forms, and both against the FPGA kind's model."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.backends.discovery.registry import backend
from windtunnel.backends.fpga import trials as rtl
from windtunnel.backends.fpga.rtl import designs, icarus
from windtunnel.backends.fpga.rtl.designs import FLOATS, Build, Work, bits_equal
from windtunnel.backends.fpga.rtl.icarus import STEADY, Compiled, Flow, Run
from windtunnel.core.device import Device
from windtunnel.core.errors import (
    DeviceHang,
    DeviceNotPresentError,
    InputError,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
)
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.tpu import systolic_cycles

SMALL = Build(rows=4, columns=3, float_rows=3, float_columns=2)
ALL_FLOATS = tuple(FLOATS)
WARM = {"cache": "warm"}


def simulated(work: Work, flow: Flow = STEADY, runs: int = 1) -> list[Run]:
    compiled = Compiled(work.design, work.words, work.out_words)
    try:
        return compiled.simulate(runs, flow)
    finally:
        compiled.close()


def right(work: Work, flow: Flow = STEADY) -> Run:
    """One run, its numbers equal to NumPy's."""
    (run,) = simulated(work, flow)
    assert bits_equal(work.values(run.words), work.reference())
    return run


def work(op: str, build: Build = SMALL, **columns: Any) -> Work:
    complete = OPERATIONS.find(op).complete(columns)
    return designs.WORKS[op](complete, build, np.random.default_rng(3))


def floats(kind: np.dtype[Any], count: int, seed: int) -> np.ndarray:
    bits = np.random.default_rng(seed).integers(0, 1 << 8 * kind.itemsize, count, np.uint64)
    return bits.astype(f"uint{8 * kind.itemsize}").view(kind)


def edges(kind: np.dtype[Any], exponent: int, fraction: int) -> np.ndarray:
    """Zero, subnormals, the least and largest of normal numbers, one and its neighbours, halves, infinity, NaN; negative."""
    top, one = (1 << exponent) - 1, ((1 << (exponent - 1)) - 1) << fraction
    last = (1 << fraction) - 1
    positive = [0, 1, 2, 3, last - 1, last, 1 << fraction, (1 << fraction) + 1, (2 << fraction) - 1, 2 << fraction]
    positive += [
        one - 1,
        one,
        one + 1,
        one + last,
        one - (1 << fraction),
        one + (1 << fraction),
        one + (fraction << fraction),
    ]
    positive += [one - (fraction << fraction), one - ((fraction + 1) << fraction), one - ((fraction + 2) << fraction)]
    positive += [
        ((top - 1) << fraction) + last,
        (top - 1) << fraction,
        top << fraction,
        (top << fraction) + 1,
        (top << fraction) + last,
    ]
    bits = np.array(positive + [value | 1 << exponent + fraction for value in positive])
    return bits.astype(f"uint{8 * kind.itemsize}").view(kind)


def pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of edge values, any bits, and pairs that nearly cancel or lie within a rounding of each other."""
    kind, exponent, fraction = FLOATS[name]
    edge = edges(kind, exponent, fraction)
    a, b = (side.reshape(-1) for side in np.meshgrid(edge, edge))
    any_a, any_b = floats(kind, 6000, 1), floats(kind, 6000, 2)
    rng = np.random.default_rng(4)
    bits = f"uint{8 * kind.itemsize}"
    # The exponent moved by up to three more than the fraction is wide, other bits and the sign anew.
    moved = any_a.view(bits).astype(np.int64) + (rng.integers(-fraction - 3, fraction + 4, 6000) << fraction)
    noise = rng.integers(0, 1 << fraction, 6000) | (rng.integers(0, 2, 6000) << (exponent + fraction))
    near = ((moved ^ noise) & ((1 << 8 * kind.itemsize) - 1)).astype(bits).view(kind)
    close = (
        any_a.view(bits) ^ rng.integers(0, 4, 6000).astype(bits) ^ np.array(1 << exponent + fraction).astype(bits)
    ).view(kind)
    return np.concatenate([a, any_a, any_a, any_a]), np.concatenate([b, any_b, near, close])


@pytest.mark.parametrize("name", ALL_FLOATS)
def test_the_adder_in_rtl_is_numpys_sum_bit_for_bit_on_edges_and_random_bits(name: str) -> None:
    a, b = pairs(name)
    run = right(designs.vector_sum(a, b, 16, *FLOATS[name][1:]))
    assert run.first_out - run.first_in == designs.ADD


@pytest.mark.parametrize(
    ("name", "product"), [*zip(ALL_FLOATS, ALL_FLOATS, strict=True), ("float16", "float32"), ("bfloat16", "float32")]
)
def test_the_multiplier_in_rtl_is_the_correctly_rounded_product_bit_for_bit(name: str, product: str) -> None:
    a, b = pairs(name)
    run = right(designs.vector_product(a, b, 16, name, product))
    assert run.first_out - run.first_in == designs.MULTIPLY


def test_a_wrong_bit_is_seen_and_one_nan_is_as_good_as_another() -> None:
    a = np.array([1.0, np.nan, 0.0], np.float32)
    b = np.array([1.0, -np.nan, 0.0], np.float32)
    assert bits_equal(a, b)
    assert not bits_equal(a, np.array([1.0, np.nan, -0.0], np.float32))
    assert not bits_equal(a, np.array([1.0, 2.0, 0.0], np.float32))
    assert not bits_equal(a, a.astype(np.float64)) and not bits_equal(a, a[:2])


@given(
    words=st.integers(1, 40),
    port=st.integers(1, 8).map(lambda lanes: 4 * lanes),
    spare=st.integers(0, 31),
    dtype=st.sampled_from([*ALL_FLOATS, "int8"]),
)
@settings(max_examples=12)
def test_n_words_take_n_and_the_latency_less_one_cycles_and_start_every_cycle(
    words: int, port: int, spare: int, dtype: str
) -> None:
    lanes = port if dtype == "int8" else port // FLOATS[dtype][0].itemsize
    n = words * lanes - spare % lanes
    seen = rtl.measure_pipeline("vector_add", {"n": n, "dtype": dtype}, Build(port_bytes=port))
    assert seen.latency == (2 if dtype == "int8" else designs.ADD + 1)
    assert seen.cycles == words + seen.latency - 1
    assert seen.initiation_interval == 1.0 or (words == 1 and math.isnan(seen.initiation_interval))


# Long enough for words to go in while others come out.
FLOWING = {
    "vector_add": {"n": 300, "dtype": "float32"},
    "stencil": {"nx": 9, "ny": 4, "nz": 7},
    "gemm": {"m": 9, "n": 5, "k": 7, "dtype": "int8"},
    "fft": {"n": 8, "batch": 20},
}


@pytest.mark.parametrize("op", FLOWING)
@given(seed=st.integers(1, 1000), taken=st.integers(15, 100), offered=st.integers(15, 100))
@settings(max_examples=5)
def test_back_pressure_and_gaps_cost_cycles_and_change_no_number(op: str, seed: int, taken: int, offered: int) -> None:
    made = work(op, **FLOWING[op])
    steady, stalled = right(made), right(made, Flow(offered, taken, seed))
    assert stalled.cycles >= steady.cycles
    assert np.all(np.diff(stalled.outs) >= 1)


def test_a_sink_that_takes_a_third_of_the_cycles_sets_the_pace_of_the_whole_pipeline() -> None:
    made = work("vector_add", n=3000, dtype="int8", build=Build(port_bytes=4))
    run = right(made, Flow(out_percent=33))
    assert run.last_in - run.first_in + 1 > 2.7 * len(made.words)  # the source is held up, words are not stored
    assert run.cycles == pytest.approx(len(made.words) / 0.33, rel=0.1)


@pytest.mark.parametrize("op", FLOWING)
def test_the_second_run_takes_the_cycles_and_gives_the_numbers_of_the_first(op: str) -> None:
    made = work(op, **FLOWING[op])
    first, second, third = simulated(made, runs=3)
    assert first.cycles == second.cycles == third.cycles
    assert np.array_equal(first.words, second.words) and np.array_equal(first.words, third.words)


@given(nx=st.integers(1, 11), ny=st.integers(1, 5), nz=st.integers(1, 4), dtype=st.sampled_from(ALL_FLOATS))
@settings(max_examples=15)
def test_a_stencil_holds_one_plane_and_passes_a_word_of_cells_a_cycle(nx: int, ny: int, nz: int, dtype: str) -> None:
    made = work("stencil", nx=nx, ny=ny, nz=nz, dtype=dtype)
    run = right(made)
    row = math.ceil(nx / (SMALL.stencil_bytes // FLOATS[dtype][0].itemsize))
    held = row if nz == 1 else row * ny
    assert run.first_out - run.first_in == held + 1 + 4 * designs.ADD + designs.MULTIPLY
    assert run.cycles == row * ny * nz + run.first_out - run.first_in
    assert np.all(np.diff(run.outs) == 1)


def test_the_stencils_reference_is_the_convolution() -> None:
    grid = np.random.default_rng(0).standard_normal((5, 6, 7))
    weights = np.zeros((3, 3, 3))
    weights[1, 1, 1] = designs.CENTRE
    for axis in range(3):
        for end in (0, 2):
            weights[tuple(end if axis == each else 1 for each in range(3))] = designs.SIDES
    assert np.allclose(designs.stencil_reference(grid), scipy.ndimage.convolve(grid, weights, mode="constant"))


SHAPES = {
    "m": st.integers(3, 13),
    "n": st.integers(1, 9),
    "k": st.integers(1, 13),
    "batch": st.integers(1, 2),
    "rows": st.integers(1, 4),
    "columns": st.integers(1, 4),
}


@given(**SHAPES)
@settings(max_examples=15)
def test_an_output_stationary_array_takes_scale_sims_cycles_and_a_register_stage(
    m: int, n: int, k: int, batch: int, rows: int, columns: int
) -> None:
    build = Build(rows=rows, columns=columns, overlap=False)
    run = right(work("gemm", build, m=m, n=n, k=k, batch=batch, dtype="int8"))
    scale_sim = batch * math.ceil(m / rows) * math.ceil(n / columns) * (rows + columns + k - 2) - 1
    # SCALE-Sim names the last cycle, counted from 0; the result is in a register one cycle after its last product.
    assert run.cycles == scale_sim + 2


@given(**SHAPES)
@settings(max_examples=15)
def test_overlapping_tiles_of_an_output_stationary_array_take_k_cycles_each(
    m: int, n: int, k: int, batch: int, rows: int, columns: int
) -> None:
    run = right(work("gemm", Build(rows=rows, columns=columns), m=m, n=n, k=k, batch=batch, dtype="int8"))
    tiles = batch * math.ceil(m / rows) * math.ceil(n / columns)
    assert run.cycles == k + (tiles - 1) * max(k, rows) + rows + columns - 1


def weight_build(rows: int, columns: int, *, overlap: bool) -> Build:
    kept = {"int8": "weight", **dict.fromkeys(FLOATS, "weight")}
    return Build(rows=rows, columns=columns, float_rows=rows, float_columns=columns, dataflow=kept, overlap=overlap)


@given(**SHAPES)
@settings(max_examples=15)
def test_a_weight_stationary_array_takes_scale_sims_cycles_and_three_register_stages(
    m: int, n: int, k: int, batch: int, rows: int, columns: int
) -> None:
    build = weight_build(rows, columns, overlap=False)
    run = right(work("gemm", build, m=m, n=n, k=k, batch=batch, dtype="int8"))
    tiles = batch * math.ceil(k / rows) * math.ceil(n / columns)
    # One cycle of counting from 0, as above; sums over tiles of k are read, added and registered below the array.
    assert run.cycles == tiles * (2 * rows + columns + m - 2) - 1 + 4
    if batch == 1:
        assert run.cycles == float(systolic_cycles(m, n, k, rows=rows, columns=columns)) + 4


@given(**SHAPES, dtype=st.sampled_from(["int8", *ALL_FLOATS]), overlap=st.booleans())
@settings(max_examples=25)
def test_weights_loaded_beside_rows_cost_nothing_where_rows_are_enough_and_floats_cost_their_latency(
    m: int, n: int, k: int, batch: int, rows: int, columns: int, dtype: str, overlap: bool
) -> None:
    run = right(work("gemm", weight_build(rows, columns, overlap=overlap), m=m, n=n, k=k, batch=batch, dtype=dtype))
    add, multiply = (1, 0) if dtype == "int8" else (designs.ADD, designs.MULTIPLY)
    deep = math.ceil(k / rows)
    tiles = batch * deep * math.ceil(n / columns)
    filled = max(m, add + 2) if deep > 1 else m
    through = rows * add + multiply + columns - 1
    if overlap:
        each = max(filled, rows + (rows - 1) * (add - 1))
        assert run.cycles == rows + (tiles - 1) * each + filled + through + 1 + add
    else:
        assert run.cycles == tiles * (rows + filled + through - 1) + 2 + add


def test_rows_beyond_what_is_kept_below_the_array_come_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(designs, "PASS_ROWS", 8)
    right(work("gemm", weight_build(3, 2, overlap=True), m=21, n=5, k=7, dtype="float32"))


@pytest.mark.parametrize("op", ["int8", "float32"])
def test_starts_of_overlapping_products_are_a_cycle_apart(op: str) -> None:
    seen = rtl.measure_pipeline("gemm", {"m": 24, "n": 24, "k": 24, "dtype": op}, SMALL)
    assert seen.initiation_interval == 1.0
    one_by_one = Build(rows=4, columns=3, float_rows=3, float_columns=2, overlap=False)
    assert rtl.measure_pipeline("gemm", {"m": 24, "n": 24, "k": 24, "dtype": op}, one_by_one).initiation_interval > 1.1


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("n", "batch"), [(4, 1), (8, 3), (64, 2)])
def test_a_transform_is_out_half_its_points_after_it_is_in_and_others_follow_at_once(
    n: int, batch: int, dtype: str
) -> None:
    run = right(work("fft", n=n, batch=batch, dtype=dtype))
    steps = n.bit_length() - 1
    latency = designs.ADD * (2 * steps - 1) + designs.MULTIPLY * (steps - 1) + n // 2 - 1
    assert run.first_out - run.first_in == latency
    assert run.cycles == batch * n // 2 + latency


def test_the_transforms_reference_is_the_fourier_transform() -> None:
    points = np.random.default_rng(0).standard_normal((3, 64, 2))
    wanted = np.fft.fft(points[..., 0] + 1j * points[..., 1])
    found = designs.fft_reference(points)
    assert np.allclose(found[..., 0] + 1j * found[..., 1], wanted)


def card(**changed: float) -> Device:
    overlay = {
        path.replace("__", "."): SourcedValue(value, Provenance.MEASURED, "its RTL") for path, value in changed.items()
    }
    return Catalogue().device("alveo-u280", overlay=overlay)


def modelled_cycles(of: Device, op: str, clock: str, **columns: Any) -> float:
    hz = of.number("clock_hz", clock)
    assert hz is not None
    return float(of.cost(one_row(OPERATIONS.find(op), {**columns, **WARM})).duration_s[0] * hz)


MODELLED = [
    ("vector_add", {"n": 1000}, {"lanes__vector_add": 16, "pipeline_depth__vector_add": 6}),
    ("vector_add", {"n": 1000, "dtype": "int8"}, {"lanes__vector_add": 16, "pipeline_depth__vector_add": 2}),
    ("stencil", {"nx": 16, "ny": 6, "nz": 5}, {"lanes__stencil": 4, "pipeline_depth__stencil": 26}),
    ("stencil", {"nx": 16, "ny": 6, "nz": 1}, {"lanes__stencil": 4, "pipeline_depth__stencil": 26}),
    (
        "gemm",
        {"m": 16, "n": 24, "k": 32, "dtype": "int8"},
        {"lanes__gemm_int8": 64, "tile": 8, "pipeline_depth__gemm": 16},
    ),
    (
        "gemm",
        {"m": 32, "n": 12, "k": 16, "dtype": "float32"},
        {"lanes__gemm_float32": 16, "tile": 4, "pipeline_depth__gemm": 38},
    ),
    ("fft", {"n": 64, "batch": 3}, {"lanes__fft": 2, "pipeline_depth__fft": 75, "compute_units__fft": 1}),
]


@pytest.mark.parametrize(("op", "columns", "build"), MODELLED)
def test_the_model_given_a_designs_depth_and_lanes_counts_its_cycles(
    op: str, columns: dict[str, Any], build: dict[str, float]
) -> None:
    seen = rtl.measure_pipeline(op, columns, Build(rows=8, columns=8))
    assert modelled_cycles(card(**build), op, op, **columns) == pytest.approx(seen.cycles, abs=1e-6)


def test_rows_that_are_no_whole_words_cost_the_design_more_than_the_model_by_their_filling() -> None:
    columns = {"nx": 9, "ny": 5, "nz": 4}
    model = modelled_cycles(card(lanes__stencil=4, pipeline_depth__stencil=26), "stencil", "stencil", **columns)
    assert rtl.measure_pipeline("stencil", columns).cycles - model == pytest.approx(
        (3 * 5 * 4 - 45) + (3 * 5 - 12), abs=1e-6
    )


def test_a_depth_of_the_product_that_is_no_whole_tile_is_not_filled_up_by_the_design_as_the_model_has_it() -> None:
    columns = {"m": 16, "n": 16, "k": 20, "dtype": "int8"}
    model = modelled_cycles(card(lanes__gemm_int8=64, tile=8, pipeline_depth__gemm=16), "gemm", "gemm", **columns)
    assert model - rtl.measure_pipeline("gemm", columns, Build(rows=8, columns=8)).cycles == pytest.approx(
        4 * (24 - 20), abs=1e-6
    )


@pytest.mark.parametrize(("op", "columns"), FLOWING.items())
def test_the_first_result_of_a_pipeline_is_there_within_the_founding_documents_microsecond(
    op: str, columns: dict[str, Any]
) -> None:
    assert rtl.measure_pipeline(op, columns).latency / Build().clock_hz < 1e-6


def test_a_product_has_to_wait_for_all_of_k_so_that_no_microsecond_holds_for_it() -> None:
    seen = rtl.measure_pipeline("gemm", {"m": 2, "n": 2, "k": 400, "dtype": "int8"}, SMALL)
    assert seen.latency / SMALL.clock_hz > 1e-6


@pytest.fixture
def device() -> Iterator[rtl.RtlDevice]:
    opened = backend("fpga").operations(0)
    assert isinstance(opened, rtl.RtlDevice)
    yield opened
    opened.close()


def complete(op: str, **columns: Any) -> dict[str, Any]:
    return OPERATIONS.find(op).complete({**columns, **WARM})


@pytest.mark.parametrize("op", FLOWING)
def test_a_trial_tells_cycles_over_the_stated_clock_and_its_numbers_are_right(device: rtl.RtlDevice, op: str) -> None:
    trial = device.trial(op, complete(op, **FLOWING[op]))
    assert trial.timer == "device" and "300 MHz (assumed)" in trial.note and "operands on chip" in trial.note
    once = trial.run()
    assert once == trial.pipeline.cycles / 300e6
    assert trial.run(1000) == once
    assert trial.check() == 0.0
    trial.close()
    trial.close()
    with pytest.raises(InvalidArgument, match="is closed"):
        trial.run()


def test_another_clock_scales_the_time_and_not_the_cycles() -> None:
    columns = complete("vector_add", n=64)
    slow, fast = (rtl.RtlDevice(Build(clock_hz=hz)).trial("vector_add", columns) for hz in (100e6, 400e6))
    assert slow.run() == 4.0 * fast.run()
    assert slow.pipeline == fast.pipeline
    slow.close()
    fast.close()


def test_a_check_fails_where_a_number_is_not_numpys(device: rtl.RtlDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = device.trial("vector_add", complete("vector_add", n=50))
    result = trial.result().copy()
    result[17] = np.nextafter(result[17], np.float32(9), dtype=np.float32)
    monkeypatch.setattr(trial, "result", lambda: result)
    assert trial.check() == math.inf
    trial.close()


def test_a_design_whose_cycles_depend_on_what_was_before_is_no_measurement(
    device: rtl.RtlDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = device.trial("vector_add", complete("vector_add", n=50))
    first, second = trial._simulated(2)
    later = Run(second.first_in, second.last_in, second.first_out, second.last_out + 1, second.outs, second.words)
    monkeypatch.setattr(trial, "_simulated", lambda runs: [first, later])
    with pytest.raises(LaunchError, match=r"one run took 9 cycles and the next 10"):
        trial.run(2)
    trial.close()


@pytest.mark.parametrize(
    ("op", "columns", "said"),
    [
        ("launch", {}, "no RTL design for 'launch'; expected one of fft, gemm, stencil, vector_add"),
        ("copy", {"bytes": 64, "direction": "d2d"}, "no RTL design for 'copy'"),
        ("gemm", {"m": 4, "n": 4, "k": 4, "dtype": "fp8"}, "no RTL design for fp8; expected one of float32"),
        ("fft", {"n": 48}, "powers of two of at least 4 points, not 48 points"),
        ("fft", {"n": 2}, "powers of two of at least 4 points, not 2 points"),
        ("vector_add", {"n": 64, "dispatch": "eager"}, "dispatch=eager is not supported"),
        ("vector_add", {"n": 64, "cache": "cold"}, "card memory is not simulated"),
        ("vector_add", {"n": 10**8}, r"1e\+08 arithmetic operations of vector_add in float32 take about 5000 s"),
        ("gemm", {"m": 512, "n": 512, "k": 512, "dtype": "float32"}, r"the limit is 1.2e\+06, about 60 s"),
    ],
)
def test_what_no_design_does_is_refused_in_words(
    device: rtl.RtlDevice, op: str, columns: dict[str, Any], said: str
) -> None:
    asked = OPERATIONS.find(op).complete({**WARM, **columns})
    assert device.refusal(op, asked)
    with pytest.raises(UnsupportedOperationError, match=said):
        device.trial(op, asked)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"clock_hz": 0.0}, "clock_hz must be a frequency above 0 Hz, got 0.0"),
        ({"clock_hz": math.nan}, "clock_hz must be a frequency above 0 Hz, got nan"),
        ({"port_bytes": 2}, "port_bytes must be a multiple of 4, .*got 2"),
        ({"stencil_bytes": 6}, "stencil_bytes must be a multiple of 4, .*got 6"),
        ({"rows": 0}, "rows must be from 1 to 256, got 0"),
        ({"float_columns": 257}, "float_columns must be from 1 to 256, got 257"),
        ({"dataflow": {"int8": "input"}}, "dataflow of int8 must be 'output' or 'weight', got 'input'"),
        ({"dataflow": {"int8": "output"}}, "dataflow of float32 must be 'output' or 'weight', got 'nothing'"),
        (
            {"dataflow": {"int8": "output", **dict.fromkeys(FLOATS, "output")}},
            "float32 does not reach; expected dataflow 'weight' for float32",
        ),
    ],
)
def test_what_cannot_be_built_is_an_error_of_the_input(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Build(**wrong)


def test_columns_are_checked_against_the_registry() -> None:
    with pytest.raises(InputError, match="gemm needs 'm'"):
        rtl.measure_pipeline("gemm", {"dtype": "int8"})


def test_a_device_that_was_given_back_does_nothing_more() -> None:
    device = rtl.RtlDevice()
    trial = device.trial("vector_add", complete("vector_add", n=8))
    device.close()
    device.close()
    with pytest.raises(InvalidArgument, match="the device is closed"):
        trial.run()
    with pytest.raises(InvalidArgument, match="the device is closed"):
        device.trial("vector_add", complete("vector_add", n=8))
    trial.close()


def test_one_simulator_is_found_and_named_as_software() -> None:
    (found,) = backend("fpga").find()
    assert (found.name, found.kind, found.software, found.api) == ("fpga:0", "fpga", True, "xrt")
    assert found.label.startswith("Icarus Verilog ") and found.label.split()[-1][0].isdigit()
    assert backend("fpga").present()
    info = backend("fpga").operations(0).info
    assert info.software and not info.virtual and info.kind == "fpga" and info.name == found.label
    with pytest.raises(DeviceNotPresentError, match="fpga:1 not found"):
        backend("fpga").operations(1)


def test_without_icarus_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not backend("fpga").present()
    for call in (backend("fpga").find, lambda: backend("fpga").operations(0)):
        with pytest.raises(DeviceNotPresentError, match="apt install iverilog"):
            call()


def test_a_simulation_that_does_not_end_is_given_up_and_leaves_no_process_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled = Compiled(*(lambda made: (made.design, made.words, made.out_words))(work("vector_add", n=8)))
    slow = tmp_path / "vvp"
    slow.write_text("#!/bin/sh\necho $$ > pid\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert compiled._folder is not None
    pid = Path(compiled._folder.name) / "pid"
    limits_s = (0.1 * 2**doubling for doubling in range(12))  # longer, until the program had the time to begin
    while not pid.exists() or not pid.read_text():
        monkeypatch.setattr(icarus, "LIMIT_S", next(limits_s))
        with pytest.raises(DeviceHang, match=f"not finished after {icarus.LIMIT_S:g} s"):
            compiled.simulate()
    process = int(pid.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    compiled.close()


def test_a_design_that_gives_too_few_words_is_an_error_and_so_are_undefined_bits() -> None:
    made = work("vector_add", n=8, dtype="int8")
    with pytest.raises(LaunchError, match="did not return 9 words: late 1 of 1 in, 1 of 9 out"):
        simulated(Work(made.design, made.words, 9, made.values, made.reference, ""))
    # Without its table a transform turns points by what nobody wrote.
    made = work("fft", n=8)
    blank = icarus.Design("fft", made.design.parameters, made.design.in_bytes, made.design.out_bytes)
    with pytest.raises(LaunchError, match="undefined bits"):
        simulated(Work(blank, made.words, made.out_words, made.values, made.reference, ""))


def test_closing_takes_the_folder_away() -> None:
    made = work("vector_add", n=8)
    compiled = Compiled(made.design, made.words, made.out_words)
    assert compiled._folder is not None
    folder = Path(compiled._folder.name)
    assert folder.exists()
    compiled.close()
    assert not folder.exists()


@pytest.mark.parametrize("op", FLOWING)
def test_the_designs_compile_without_a_warning(op: str, tmp_path: Path) -> None:
    made = work(op, **FLOWING[op])
    parameters = [f"-P{made.design.module}.{name}={value}" for name, value in made.design.parameters.items()]
    sources = [str(path) for path in sorted(icarus.SOURCES.glob("*.v")) if path.name != "bench.v"]
    command = [
        "iverilog",
        "-g2005",
        "-Wall",
        "-s",
        made.design.module,
        *parameters,
        "-o",
        str(tmp_path / "out"),
        *sources,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
