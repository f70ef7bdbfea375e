"""Laws of the FPGA kind: a fixed pipeline at a fixed clock, and nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from windtunnel.core.device import Cost, Device
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.ops import OPERATIONS, Rows, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue

SKUS = [spec.sku for spec in Catalogue().specs() if spec.kind == "fpga"]
EXAMPLES = {
    "gemm": {"m": 256, "n": 256, "k": 256, "dtype": "float32"},
    "vector_add": {"n": 1 << 20},
    "stencil": {"nx": 128, "ny": 128, "nz": 64},
    "fft": {"n": 4096, "batch": 16},
    "copy": {"bytes": 1 << 24, "direction": "h2d"},
    "launch": {},
    "service": {"mean": 1e-3},
}
U50_GEMV_CYCLES = {
    (512, 256): 4827,
    (512, 512): 6951,
    (1024, 1024): 22154,
    (2048, 2048): 82692,
    (4096, 4096): 299643,
    (8192, 8192): 1109516,
}
"""Execution cycles at 333 MHz of Vitis BLAS's gemvStreamCh16 on an Alveo U50: not used to fit anything."""


def device(sku: str, **changed: float) -> Device:
    overlay = {
        path.replace("__", "."): SourcedValue(value, Provenance.DATASHEET, "the test")
        for path, value in changed.items()
    }
    return Catalogue().device(sku, overlay=overlay)


def cost(of: Device, op: str, /, **values: object) -> Cost:
    return of.cost(one_row(OPERATIONS.find(op), {**EXAMPLES[op], **values}))


def cycles(of: Device, op: str, design: str, /, **values: object) -> float:
    clock = of.number("clock_hz", design)
    assert clock is not None
    return float(cost(of, op, **values).duration_s[0] * clock)


@pytest.mark.parametrize("sku", SKUS)
@pytest.mark.parametrize("op", EXAMPLES)
def test_every_card_answers_every_operation_with_a_finite_positive_cost(sku: str, op: str) -> None:
    answer = cost(device(sku), op)
    for column in (answer.duration_s, answer.power_w, answer.energy_j):
        assert np.all(np.isfinite(column)) and np.all(column > 0)
    assert np.all(answer.duration_low_s <= answer.duration_s) and np.all(answer.duration_s <= answer.duration_high_s)
    assert np.allclose(answer.energy_j, answer.power_w * answer.duration_s)


@pytest.mark.parametrize(
    ("op", "design"), [("gemm", "gemm"), ("vector_add", "vector_add"), ("stencil", "stencil"), ("fft", "fft")]
)
def test_a_deeper_pipeline_adds_exactly_its_cycles_where_a_roofline_would_add_none(op: str, design: str) -> None:
    shallow = device("alveo-u250", **{f"pipeline_depth__{design}": 500.0})
    deep = device("alveo-u250", **{f"pipeline_depth__{design}": 1000.0})
    assert cycles(deep, op, design) - cycles(shallow, op, design) == pytest.approx(500.0, abs=1e-3)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000, 12345, 1 << 20])
def test_time_is_a_whole_number_of_clock_periods_and_the_same_every_time(n: int) -> None:
    card = device("alveo-u250")
    count = cycles(card, "vector_add", "vector_add", n=n)
    assert count == pytest.approx(round(count), abs=1e-6 * count)
    assert len({float(cost(card, "vector_add", n=n).duration_s[0]) for _ in range(5)}) == 1


def test_items_start_in_groups_of_lanes_one_group_each_initiation_interval() -> None:
    plain = {"pipeline_depth__vector_add": 10.0, "lanes__vector_add": 4.0, "bank_bytes_s": 1e15}
    card = device("alveo-u250", **plain)
    assert [round(cycles(card, "vector_add", "vector_add", n=n)) for n in (1, 4, 5, 8, 9)] == [10, 10, 11, 11, 12]
    slower = device("alveo-u250", **plain, initiation_interval__vector_add=3.0)
    assert [round(cycles(slower, "vector_add", "vector_add", n=n)) for n in (4, 8, 12)] == [12, 15, 18]


def test_a_kernel_uses_no_more_banks_than_it_has_ports() -> None:
    narrow = device("alveo-u280", memory_ports__vector_add=1.0, lanes__vector_add=1024.0)
    wide = device("alveo-u280", memory_ports__vector_add=3.0, lanes__vector_add=1024.0)
    work = {"n": 1 << 24}
    assert cost(narrow, "vector_add", **work).bound[0] == "memory"
    ratio = cost(narrow, "vector_add", **work).duration_s / cost(wide, "vector_add", **work).duration_s
    assert ratio[0] == pytest.approx(3.0, rel=1e-3)


def test_a_batch_is_dealt_out_among_the_compute_units() -> None:
    card = device("alveo-u250")
    times = [cost(card, "gemm", batch=batch).duration_s[0] for batch in (1, 4, 5)]
    assert times[0] == times[1]
    assert times[2] == pytest.approx(2 * times[0], rel=0.01)


def test_a_card_left_out_of_the_fit_is_predicted_within_a_tenth() -> None:
    card = device("alveo-u50")
    errors = [
        cycles(card, "gemm", "gemv", m=m, n=1, k=k) / measured - 1 for (m, k), measured in U50_GEMV_CYCLES.items()
    ]
    assert np.max(np.abs(errors)) < 0.105
    assert np.mean(np.abs(errors)) < 0.05


@pytest.mark.parametrize("edge", [512, 4096])
def test_short_bursts_of_blocks_cost_a_row_of_memory_each_where_a_roofline_would_be_bound_by_compute(edge: int) -> None:
    shape = {"m": edge, "n": edge, "k": edge}
    known, open_rows = device("alveo-u250"), device("alveo-u250", row_cycle_s=1e-12)
    assert cost(known, "gemm", **shape).bound[0] == "memory"
    assert cost(open_rows, "gemm", **shape).bound[0] == "compute"
    assert cost(open_rows, "gemm", **shape).duration_s[0] < 0.8 * cost(known, "gemm", **shape).duration_s[0]


def test_the_blocks_of_a_product_are_filled_up_to_whole_ones() -> None:
    card = device("alveo-u250")
    sizes = (64, 65, 128)
    full, over, double = (cost(card, "gemm", m=64, n=64, k=k).duration_s[0] for k in sizes)
    assert full < over == double


@pytest.mark.parametrize(("sku", "values"), [("alveo-u250", {}), ("alveo-u280", {"n": 1})])
def test_ignoring_what_was_fitted_to_a_card_changes_its_answer_and_widens_its_interval(
    sku: str, values: dict[str, int]
) -> None:
    fitted, plain = (
        cost(Catalogue().device(sku, calibrated=calibrated), "gemm", **values) for calibrated in (True, False)
    )
    assert plain.duration_s[0] != fitted.duration_s[0]
    width = [answer.duration_high_s[0] / answer.duration_low_s[0] for answer in (fitted, plain)]
    assert width[0] < 1.3 < width[1]


def test_a_command_costs_the_less_the_more_of_them_are_in_flight() -> None:
    counts = [1, 2, 10, 100, 10_000, 1_000_000]
    rates = [count / cost(device("alveo-u250"), "launch", count=count).duration_s[0] for count in counts]
    assert all(fewer < more for fewer, more in itertools.pairwise(rates))
    assert rates[0] == pytest.approx(11_000, rel=0.05) and rates[-1] == pytest.approx(359_184, rel=0.02)


def test_a_thin_product_runs_in_the_design_that_is_done_sooner() -> None:
    card = device("alveo-u280")
    small = {"m": 1, "n": 64, "k": 55, "dtype": "int8", "cache": "warm"}
    assert cost(card, "gemm", **small).duration_s[0] <= cost(card, "gemm", **{**small, "m": 4}).duration_s[0]
    large, square = (cost(card, "gemm", m=4096, n=n, k=4096).duration_s[0] for n in (1, 64))
    assert large < 0.2 * square


def test_dispatch_adds_the_api_to_the_pipeline_and_clocks_do_not_boost() -> None:
    card = device("alveo-u250")
    times = {d: cost(card, "gemm", dispatch=d).duration_s[0] for d in ("device", "graph", "eager")}
    assert times["graph"] - times["device"] == pytest.approx(3.08e-6)
    assert times["eager"] - times["device"] == pytest.approx(card.number("round_trip_s", "xrt"))
    assert cost(card, "gemm", clock="sustained").duration_s == cost(card, "gemm", clock="burst").duration_s


def test_operands_held_on_chip_leave_memory_out_of_it() -> None:
    card = device("alveo-u250", memory_ports__vector_add=1.0)
    cold, warm = (cost(card, "vector_add", n=1 << 18, cache=state) for state in ("cold", "warm"))
    assert cold.bound[0] == "memory" and warm.bound[0] == "compute"
    assert warm.duration_s[0] < cold.duration_s[0]


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32", "fp8", "nvfp4"])
def test_types_without_a_design_are_refused_by_name(dtype: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=dtype):
        cost(device("alveo-u250"), "gemm", dtype=dtype)


@pytest.mark.parametrize("op", ["attention", "aes", "sign", "packets", "all_reduce"])
def test_operations_that_no_fpga_runs_are_refused_by_name(op: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=op):
        device("alveo-u250").cost_function(op)


def test_a_table_answers_as_its_rows_do_one_by_one() -> None:
    card = device("alveo-u280")
    m, n, k = np.array([64.0, 512.0, 1.0, 300.0]), np.array([64.0, 1.0, 512.0, 7.0]), np.array([64.0, 512.0, 9.0, 11.0])
    choices = {"dtype": "float32", "dispatch": "device", "clock": "burst", "cache": "cold"}
    table = card.cost(Rows(OPERATIONS.find("gemm"), choices, {"m": m, "n": n, "k": k, "batch": np.ones(4)}))
    alone = [cost(card, "gemm", m=int(a), n=int(b), k=int(c)).duration_s[0] for a, b, c in zip(m, n, k, strict=True)]
    assert table.duration_s == pytest.approx(alone)
