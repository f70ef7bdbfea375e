"""Operations between GPUs: measured curves, what related devices take over, and the laws that both obey."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import windtunnel
from windtunnel.core.device import Arrays, Parameters
from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.ops import OPERATIONS, Rows, one_row
from windtunnel.core.optable import read_op_table
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu.collective_curves import MEASURED, LearnedCollective
from windtunnel_models.learned.calibrate import calibrate
from windtunnel_models.learned.read import CALIBRATION, read_overlay
from windtunnel_models.learned.write import overlay_data, overlay_text

KNOWN = Catalogue()
LINKED = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb")
MEASURED_SKUS = (*LINKED, "l40s")
SIZES = 2.0 ** np.arange(0, 33)


def rows(op: str, size: object, workers: float = 8, per_node: float = 8, **choices: str) -> Rows:
    one = one_row(OPERATIONS[op], {"bytes": 1, "workers": 2, "dispatch": "device", **choices})
    sizes = np.atleast_1d(np.asarray(size, dtype=np.float64))
    numbers = {"bytes": sizes, "workers": np.full(sizes.shape, workers)}
    return replace(one, numbers={**numbers, "devices_per_node": np.full(sizes.shape, per_node)})


def seconds(sku: str, *args: object, **choices: str) -> np.ndarray:
    return KNOWN.device(sku).cost(rows(*args, **choices), intervals=False).duration_s  # type: ignore[arg-type]


def arrays_of(sku: str, op: str) -> Arrays:
    with np.load(CALIBRATION / f"{sku}.npz") as file:
        return {name.removeprefix(f"{op}."): file[name] for name in file.files if name.startswith(f"{op}.")}


def curves_of(sku: str, op: str) -> Iterator[tuple[Rows, np.ndarray]]:
    arrays = arrays_of(sku, op)
    for i, workers in enumerate(arrays["workers"]):
        part = slice(arrays["start"][i], arrays["start"][i + 1])
        dtype = "fp8" if str(arrays["dtype"][i]) == "8" else "bfloat16"
        choices = {"implementation": str(arrays["implementation"][i]), "dtype": dtype}
        yield rows(op, arrays["bytes"][part], float(workers), **choices), arrays["seconds"][part].astype(float)


def test_a_quarter_of_a_mebibyte_takes_an_h100_what_its_libraries_take() -> None:
    """All-reduce of 256 KiB: NCCL was measured at 9 to 21 us, kernels of serving engines at 4 to 15 us."""
    for workers in (2, 4, 8):
        assert 8e-6 < seconds("h100-sxm-80gb", "all_reduce", 2**18, workers) < 21e-6
        for engine in ("vllm", "sglang", "trtllm"):
            choices = {"implementation": engine, "dispatch": "graph"}
            assert 3.5e-6 < seconds("h100-sxm-80gb", "all_reduce", 2**18, workers, **choices) < 15e-6


def test_every_curve_has_a_floor_above_zero_and_continues_at_its_rate() -> None:
    for sku in (*MEASURED_SKUS, "h200-sxm-141gb", "gb200", "rtx-pro-6000-server", "mi300x"):
        for op in (*MEASURED, "send_recv"):
            times = seconds(sku, op, [1, 64, 2**34, 2**36], 4)
            assert times[0] > 1e-6
            assert times[1] == pytest.approx(times[0], rel=0.1)
            assert times[3] == pytest.approx(4.0 * times[2], rel=0.02)


def test_a_gather_is_no_slower_than_an_all_reduce_of_the_same_bytes() -> None:
    for sku in (*MEASURED_SKUS, "h200-sxm-141gb", "v100-sxm-32gb", "mi300x", "rtx-4090"):
        for workers, per_node in ((2, 8), (4, 8), (8, 8), (16, 16), (16, 8), (64, 8)):
            gather = seconds(sku, "all_gather", SIZES, workers, per_node)
            reduce = seconds(sku, "all_reduce", SIZES, workers, per_node)
            assert workers > 8 or np.all(gather <= 1.25 * reduce), (sku, workers, per_node)
            assert np.exp(np.mean(np.log(gather / reduce))) < 1.0


def test_more_workers_are_not_faster_beyond_the_noise_of_the_curves() -> None:
    for sku in (*LINKED, "h200-sxm-141gb", "gb200"):
        for op in MEASURED:
            counts = (2, 3, 4, 5, 6, 8, 16, 32)
            inside = np.stack([seconds(sku, op, SIZES, w, 64) for w in counts])
            assert np.all(inside[1:] > 0.75 * inside[:-1]), (sku, op)
            across = np.stack([seconds(sku, op, SIZES, w, 8) for w in (8, 16, 32, 64)])
            assert np.all(across[1:] > 0.99 * across[:-1]), (sku, op)


def test_sizes_left_out_of_a_curve_lie_in_its_interval() -> None:
    errors, inside = [], []
    for sku in MEASURED_SKUS:
        bare = Parameters(KNOWN.device(sku))
        for op in MEASURED:
            arrays = arrays_of(sku, op)
            kept = np.ones(len(arrays["bytes"]), dtype=bool)
            for begin, end in zip(arrays["start"][:-1], arrays["start"][1:], strict=True):
                kept[begin + 2 : end - 2 : 3] = False
            start = np.array([kept[:end].sum() for end in arrays["start"]])
            thinned = {**arrays, "start": start, **{k: arrays[k][kept] for k in ("bytes", "seconds")}}
            whole, thin = LearnedCollective(arrays), LearnedCollective(thinned)
            for (table, _), begin in zip(curves_of(sku, op), arrays["start"], strict=False):
                left = ~kept[begin : begin + len(table.numbers["bytes"])]
                true, guess = whole(bare, table), thin(bare, table)
                assert true is not None and guess is not None
                error = np.abs(guess.log_factor - true.log_factor)[left]
                errors.append(error)
                inside.append(error <= guess.spread[left])
    assert np.concatenate(errors).mean() < 0.09
    assert np.concatenate(inside).mean() > 0.85


@pytest.mark.parametrize(("sku", "most"), list(zip(MEASURED_SKUS, (0.25, 0.5, 0.35, 0.6), strict=True)))
def test_a_device_left_out_lies_in_its_interval(sku: str, most: float) -> None:
    errors, inside = [], []
    device = KNOWN.device(sku, calibrated=False)
    for op in MEASURED:
        for table, times in curves_of(sku, op):
            cost = device.cost(table)
            errors.append(np.abs(cost.duration_s / times - 1.0))
            inside.append((cost.duration_low_s <= times) & (times <= cost.duration_high_s))
    assert np.concatenate(errors).mean() < most
    assert np.concatenate(inside).mean() > 0.85


def test_the_same_die_with_the_same_link_has_the_same_curves_in_a_narrow_interval() -> None:
    ratios = []
    for op in MEASURED:
        for table, times in curves_of("h100-sxm-80gb", op):
            cost = KNOWN.device("h200-sxm-141gb").cost(table)
            assert cost.duration_s == pytest.approx(times, rel=0.02)
            ratios.append(cost.duration_high_s / cost.duration_s)
    assert np.median(np.concatenate(ratios)) <= 1.25


def fake(sku: str, link: float, workers: tuple[int, ...], times: list[float]) -> LearnedCollective:
    count = len(times)
    return LearnedCollective(
        {
            "sku": np.array(sku),
            "link": np.array(link),
            "implementation": np.array(["nccl"] * len(workers)),
            "dtype": np.array(["any"] * len(workers)),
            "workers": np.array(workers),
            "start": np.arange(len(workers) + 1) * count,
            "bytes": np.tile(10.0 ** np.arange(3, 3 + count), len(workers)),
            "seconds": np.concatenate([np.array(times) * (i + 1) for i in range(len(workers))]),
        }
    )


def test_a_relative_keeps_the_least_latency_and_divides_the_rest_by_the_ratio_of_links() -> None:
    device = KNOWN.device("b200-sxm-180gb")  # 900 GB/s
    learned = fake("other", 450e9, (2,), [10e-6, 10e-6, 30e-6])
    table = rows("all_gather", [1e3, 1e5, 1e6], 2)
    correction = learned(Parameters(device), table)
    assert correction is not None
    own = replace(device, residuals={}).cost(table, intervals=False).duration_s
    assert own * np.exp(correction.log_factor) == pytest.approx([10e-6, 20e-6, 11e-5])


def test_over_the_hosts_bus_more_workers_stretch_the_curve_of_two_as_a_ring() -> None:
    device = KNOWN.device("rtx-pro-6000-server")  # 63 GB/s to the host
    learned = fake("other", 31.5e9, (2, 4), [10e-6, 10e-6, 30e-6])
    table = rows("all_reduce", [1e3, 1e5], 4)
    correction = learned(Parameters(device), table)
    assert correction is not None
    own = replace(device, residuals={}).cost(table, intervals=False).duration_s
    # Four workers keep their least time, 20 us. Above it come the 20 us of two workers, at twice the rate, times 1.5.
    assert own * np.exp(correction.log_factor) == pytest.approx([20e-6, 35e-6])


def test_devices_of_another_sort_of_link_and_of_another_maker_take_nothing_over() -> None:
    assert "l40s" in KNOWN.device("a100-pcie-80gb").accuracy_of("all_reduce").text
    assert "l40s" not in KNOWN.device("v100-sxm-32gb").accuracy_of("all_reduce").text
    device = KNOWN.device("mi300x")
    table = rows("all_reduce", SIZES)
    formula = replace(device, residuals={}).cost(table, intervals=False).duration_s
    cost = device.cost(table)
    assert cost.duration_s == pytest.approx(formula)
    assert cost.provenance_labels()[0] == "assumed" and np.all(cost.duration_high_s > 2.0 * cost.duration_s)


def test_engines_kernels_are_refused_where_there_are_none() -> None:
    for sku in ("tpu-v5p", "epyc-9654"):
        with pytest.raises(UnsupportedOperationError, match="no all_reduce of vllm.*implementation=nccl"):
            windtunnel.predict(
                "all_reduce", sku, {"bytes": 8, "workers": 2, "implementation": "vllm", "dispatch": "device"}
            )
    with pytest.raises(InputError, match="'vllm' is not a valid implementation"):
        windtunnel.predict("all_gather", "h100-sxm-80gb", {"bytes": 8, "workers": 2, "implementation": "vllm"})


def test_kernels_of_an_engine_are_in_a_graph_unless_stated(tmp_path: Path) -> None:
    op = OPERATIONS["all_reduce"]
    assert one_row(op, {"bytes": 8, "workers": 2}).choices["dispatch"] == "device"
    assert one_row(op, {"bytes": 8, "workers": 2, "implementation": "vllm"}).choices["dispatch"] == "graph"
    path = tmp_path / "t.csv"
    path.write_text("bytes,workers,implementation\n8,2,nccl\n8,2,vllm\n")
    assert [group.choices["dispatch"] for _, group in read_op_table(op, path).groups()] == ["device", "graph"]
    path.write_text("bytes,workers,implementation,dispatch\n8,2,vllm,\n8,2,vllm,eager\n8,2,,\n")
    found = [group.choices["dispatch"] for _, group in read_op_table(op, path).groups()]
    assert found == ["graph", "eager", "device"]


def test_rows_of_any_shape_have_the_same_times() -> None:
    sizes = 2.0 ** np.arange(0, 32).reshape(4, 8)
    flat = seconds("h200-sxm-141gb", "all_reduce", sizes.ravel(), 6)
    assert np.array_equal(seconds("h200-sxm-141gb", "all_reduce", sizes, 6), flat.reshape(4, 8))


def test_between_nodes_the_network_adds_to_the_time_inside_one() -> None:
    """Of 1 GiB, each of 16 workers sends 15/8 GiB through its node's ports, at most a twentieth as fast as NVLink."""
    for op in (*MEASURED, "send_recv"):
        inside = seconds("h100-sxm-80gb", op, SIZES, 8, 8)
        across = seconds("h100-sxm-80gb", op, SIZES, 16, 8)
        assert np.all(across > inside + 3e-6) or op == "send_recv"
        assert across[-1] > 4.0 * inside[-1]
        wide = KNOWN.device("h100-sxm-80gb").cost(rows(op, SIZES, 16, 8))
        narrow = KNOWN.device("h100-sxm-80gb").cost(rows(op, SIZES, 8, 8))
        assert np.median(wide.duration_high_s / wide.duration_s) >= np.median(
            narrow.duration_high_s / narrow.duration_s
        )


def test_three_rows_of_a_curve_calibrate_it(tmp_path: Path) -> None:
    """A bus whose ring attains a fourth of the expected rate: three sizes tell it, two are refused."""
    device = KNOWN.device("rtx-pro-6000-server", calibrated=False)
    table = rows("all_reduce", 2.0 ** np.arange(9, 30), 4)
    expected = device.cost(table, intervals=False).duration_s
    least = expected.min()
    true = least + 4.0 * (expected - least)
    path = tmp_path / "m.csv"

    def write(places: tuple[int, ...]) -> None:
        lines = [f"{table.numbers['bytes'][i]:.0f},4,{true[i]}" for i in places]
        path.write_text("\n".join(["bytes,workers,latency_s", *lines]) + "\n")

    write((2, 18))
    measured = read_op_table(OPERATIONS["all_reduce"], path)
    with pytest.raises(InputError, match="2 distinct measurements are too few for a fit; expected at least 3"):
        calibrate(device, measured, measured.measured("latency_s"))
    write((2, 10, 18))
    measured = read_op_table(OPERATIONS["all_reduce"], path)
    result = calibrate(device, measured, measured.measured("latency_s"))
    overlay = tmp_path / "o.yaml"
    overlay.write_text(overlay_text(overlay_data(result, "here", "test")))
    fitted = KNOWN.device(device.spec.sku, calibration=read_overlay(overlay, device.spec.sku, "gpu"))
    after = fitted.cost(table, intervals=False).duration_s
    assert np.abs(expected / true - 1.0).mean() > 0.35
    assert np.abs(after / true - 1.0).mean() < 0.2
