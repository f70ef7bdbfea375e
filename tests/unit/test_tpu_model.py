"""Laws of the TPU kind: whole tiles in systolic arrays, VMEM before HBM, a torus of links."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.core.device import Cost, Device
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.group import Group
from windtunnel.core.ops import ELEMENTWISE_OPS, OPERATIONS, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.step import DividedDecoder
from windtunnel.core.step_cost import StepLoad, step_cost
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.tpu import systolic_cycles
from windtunnel_models.models import known_architecture

SKUS = [spec.sku for spec in Catalogue().specs() if spec.kind == "tpu"]
PEAKS = {"tpu-v4": 275e12, "tpu-v5e": 197e12, "tpu-v5p": 459e12, "tpu-v6e": 918e12}
EXAMPLES: dict[str, dict[str, object]] = {
    "gemm": {"m": 1024, "n": 1024, "k": 1024, "dtype": "bfloat16"},
    "attention": {"phase": "decode", "batch": 8, "heads": 32, "kv_heads": 8, "head_dim": 128, "kv_tokens": 4096},
    "latent_attention": {"phase": "decode", "batch": 8, "heads": 16, "kv_tokens": 4096},
    "moe": {"tokens": 64, "width": 2048, "expert_width": 768, "experts": 128, "experts_per_token": 8},
    "kernel": {"threads": 1 << 20, "bytes": 1 << 24},
    "elementwise": {"op": "gelu", "rows": 4096, "width": 4096},
    "all_reduce": {"bytes": 1 << 24, "workers": 16},
    "all_gather": {"bytes": 1 << 24, "workers": 16},
    "reduce_scatter": {"bytes": 1 << 24, "workers": 16},
    "all_to_all": {"bytes": 1 << 24, "workers": 16},
    "send_recv": {"bytes": 1 << 24, "workers": 16},
    "copy": {"bytes": 1 << 24, "direction": "h2d"},
    "launch": {},
    "service": {"mean": 1e-3},
}


def device(sku: str, **changed: float) -> Device:
    overlay = {
        path.replace("__", "."): SourcedValue(value, Provenance.DATASHEET, "the test")
        for path, value in changed.items()
    }
    return Catalogue().device(sku, overlay=overlay)


def cost(of: Device, op: str, /, **values: object) -> Cost:
    return of.cost(one_row(OPERATIONS.find(op), {**EXAMPLES[op], **values}))


ONE_ARRAY = {
    "arrays": 1.0,
    "exposed_fill": 1.0,
    "issue_rate__bfloat16": 1.0,
    "clock_hz": 1e9,
    "memory_bytes_s": 1e18,
}


@pytest.mark.parametrize("sku", SKUS)
@pytest.mark.parametrize("op", EXAMPLES)
def test_every_chip_answers_every_operation_with_a_finite_positive_cost(sku: str, op: str) -> None:
    answer = cost(device(sku), op)
    for column in (answer.duration_s, answer.power_w, answer.energy_j):
        assert np.all(np.isfinite(column)) and np.all(column > 0)
    assert np.all(answer.duration_low_s <= answer.duration_s) and np.all(answer.duration_s <= answer.duration_high_s)
    assert np.allclose(answer.energy_j, answer.power_w * answer.duration_s)


@pytest.mark.parametrize("op", ELEMENTWISE_OPS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_elementwise_form_is_answered(op: str, dtype: str) -> None:
    assert cost(device("tpu-v5e"), "elementwise", op=op, dtype=dtype).duration_s[0] > 0


@pytest.mark.parametrize("sku", PEAKS)
def test_arrays_and_clock_multiply_to_the_published_peak(sku: str) -> None:
    chip = device(sku)
    parts = [chip.number(name) for name in ("arrays", "array_rows", "array_columns", "clock_hz")]
    assert 2.0 * np.prod([part or 0.0 for part in parts]) == pytest.approx(PEAKS[sku], rel=0.003)


@pytest.mark.parametrize(
    ("m", "n", "k", "expected"),
    [
        (32, 32, 32, 1 * 1 * (64 + 32 + 32 - 2) - 1),
        (256, 256, 256, 8 * 8 * (64 + 32 + 256 - 2) - 1),
        (100, 33, 65, 3 * 2 * (64 + 32 + 100 - 2) - 1),
        (1, 1, 1, 64 + 32 + 1 - 2 - 1),
    ],
)
def test_the_systolic_closed_form_is_that_of_scale_sim(m: int, n: int, k: int, expected: int) -> None:
    assert systolic_cycles(m, n, k, rows=32, columns=32) == expected


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 128), (1000, 129, 257), (7, 4096, 300)])
def test_an_array_with_one_set_of_weights_takes_exactly_the_closed_form(m: int, n: int, k: int) -> None:
    chip = device("tpu-v5e", **ONE_ARRAY)
    answer = cost(chip, "gemm", m=m, n=n, k=k)
    assert answer.duration_s[0] * 1e9 == pytest.approx(float(systolic_cycles(m, n, k, rows=128, columns=128)), rel=1e-9)


@pytest.mark.parametrize("axis", ["n", "k"])
def test_one_column_more_than_the_array_costs_a_whole_tile_where_a_roofline_would_charge_one_column(axis: str) -> None:
    chip = device("tpu-v5e", **ONE_ARRAY)
    shape = {"m": 4096, "n": 128, "k": 128}
    full, over, double = (cost(chip, "gemm", **{**shape, axis: size}).duration_s[0] for size in (128, 129, 256))
    assert over == double
    assert over == pytest.approx(2 * full, rel=1e-3)


def test_few_rows_cost_what_loading_the_next_weights_does() -> None:
    chip = device("tpu-v6e", memory_bytes_s=1e18)
    few, many, double = (cost(chip, "gemm", m=m, n=8192, k=8192).duration_s[0] for m in (1, 256, 512))
    assert few == many
    assert double == pytest.approx(2 * many, rel=0.01)


def test_operands_that_outgrow_vmem_are_read_again() -> None:
    chip = device("tpu-v6e")
    per_flop = [cost(chip, "gemm", dtype="float32", m=m, n=8192, k=8192).duration_s[0] / m for m in (2048, 4096)]
    assert per_flop[1] > 1.5 * per_flop[0]


def test_the_dispatch_floor_belongs_to_eager_calls_only() -> None:
    chip = device("tpu-v6e")
    small = {"m": 8, "n": 128, "k": 128}
    times = {d: cost(chip, "gemm", dispatch=d, **small).duration_s[0] for d in ("device", "graph", "eager")}
    assert times["device"] < 1e-6 < times["graph"] < 5e-6
    assert times["eager"] > 110e-6
    assert cost(chip, "gemm", dispatch="eager", **small).bound[0] == "launch"


def test_float32_takes_as_many_passes_as_its_precision_asks_for() -> None:
    shape = {"m": 8192, "n": 1024, "k": 1024, "dtype": "float32"}
    once, thrice = (cost(device("tpu-v5p", passes__float32=passes), "gemm", **shape) for passes in (1.0, 3.0))
    assert thrice.duration_s[0] / once.duration_s[0] == pytest.approx(3.0, rel=0.1)


def test_int8_doubles_the_rate_since_v5e_but_not_on_v4() -> None:
    shape = {"m": 65536, "n": 1024, "k": 1024}
    plain = {"memory_bytes_s": 1e18, "issue_rate__int8": 1.0, "issue_rate__bfloat16": 1.0}
    for sku, gain in (("tpu-v4", 1.0), ("tpu-v5e", 2.0)):
        chip = device(sku, **plain)
        times = [cost(chip, "gemm", dtype=dtype, **shape).duration_s[0] for dtype in ("bfloat16", "int8")]
        assert times[0] / times[1] == pytest.approx(gain, rel=1e-3)


def test_an_all_reduce_is_a_scatter_and_a_gather_and_an_all_to_all_crosses_the_middle() -> None:
    size = 1 << 30
    d = device("tpu-v5e")
    whole, gather, exchange = (
        cost(d, op, bytes=size, workers=16).duration_s for op in ("all_reduce", "all_gather", "all_to_all")
    )
    assert whole == pytest.approx(2.0 * gather, rel=1e-3)
    # 4 x 4 chips without wrap-around: L/4 = 1 of the bytes through the middle of an axis; a gather has 15/16 over 2 axes.
    assert exchange / gather == pytest.approx(1.0 / (15.0 / 16.0 / 2.0), rel=1e-2)


def test_a_ring_that_closes_doubles_the_rate_of_an_all_reduce() -> None:
    size = 1 << 30
    open_ring = device("tpu-v5e", wraps_at=16.0, hop_s=1e-9)
    closed = device("tpu-v5e", wraps_at=2.0, hop_s=1e-9)
    ratio = cost(open_ring, "all_reduce", bytes=size).duration_s / cost(closed, "all_reduce", bytes=size).duration_s
    assert ratio[0] == pytest.approx(2.0, rel=0.01)


def test_more_workers_than_a_pod_holds_are_refused() -> None:
    with pytest.raises(UnsupportedOperationError, match="256"):
        cost(device("tpu-v5e"), "all_reduce", workers=512)


@pytest.mark.parametrize("dtype", ["float16", "tf32", "fp8", "fp8_block", "nvfp4"])
def test_types_that_the_arrays_do_not_take_are_refused_by_name(dtype: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=dtype):
        cost(device("tpu-v5e"), "gemm", dtype=dtype)


@pytest.mark.parametrize("op", ["aes", "sign", "packets", "vector_add"])
def test_operations_that_no_tpu_runs_are_refused_by_name(op: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=op):
        device("tpu-v5e").cost_function(op)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32"])
def test_ignoring_what_was_fitted_to_a_v6e_changes_its_answer_and_widens_its_interval(dtype: str) -> None:
    shape = {"m": 4096, "n": 4096, "k": 4096, "dtype": dtype}
    fitted = cost(Catalogue().device("tpu-v6e"), "gemm", **shape)
    plain = cost(Catalogue().device("tpu-v6e", calibrated=False), "gemm", **shape)
    assert plain.duration_s[0] != fitted.duration_s[0]
    assert plain.duration_s[0] == pytest.approx(fitted.duration_s[0], rel=0.2)
    width = [answer.duration_high_s[0] / answer.duration_low_s[0] for answer in (fitted, plain)]
    assert width[0] < 1.2 < width[1]


def test_the_kind_knows_no_number_that_was_fitted_to_a_chip() -> None:
    overlay = Catalogue().device("tpu-v6e").values
    plain = Catalogue().device("tpu-v6e", calibrated=False).values
    fitted = [path for path in overlay if overlay[path] != plain[path]]
    assert {"issue_rate.bfloat16", "issue_rate.int8", "issue_rate.float32", "memory_efficiency"} <= set(fitted)
    for path in fitted:
        assert overlay[path].provenance is Provenance.PUBLISHED
        assert plain[path].provenance in (Provenance.ASSUMED, Provenance.DATASHEET)


def test_chips_that_nobody_timed_are_less_sure_than_the_one_that_somebody_did() -> None:
    shape = {"m": 8192, "n": 8192, "k": 8192}
    known, unknown = (cost(device(sku), "gemm", **shape) for sku in ("tpu-v6e", "tpu-v5e"))
    assert (
        unknown.duration_high_s[0] / unknown.duration_low_s[0]
        > 1.1 * known.duration_high_s[0] / known.duration_low_s[0]
    )


def test_experts_read_the_weights_of_those_that_are_hit_once_and_multiply_their_rows() -> None:
    chip = device("tpu-v5e", memory_efficiency=1.0, issue_rate__bfloat16=1.0)
    bandwidth, peak = chip.number("memory_bytes_s") or 0.0, PEAKS["tpu-v5e"]
    # 8 tokens with 8 choices hit 64 of 128 experts, each with 3 x 2048 x 768 weights of two bytes.
    few = cost(chip, "moe", tokens=8)
    weights = 64 * 3 * 2048 * 768 * 2
    assert few.bound[0] == "memory" and few.duration_s[0] == pytest.approx(weights / bandwidth, rel=0.01)
    # A quarter of the bytes leaves the time in which the arrays take all tiles of weights.
    narrow = cost(chip, "moe", tokens=8, dtype="int4")
    assert narrow.bound[0] == "compute" and 0.3 < narrow.duration_s[0] / few.duration_s[0] < 0.6
    # Half of the experts on each of two chips, and half of their tokens.
    assert cost(chip, "moe", tokens=8, expert=2).duration_s[0] == pytest.approx(few.duration_s[0] / 2, rel=0.02)
    many = cost(chip, "moe", tokens=1 << 16)
    assert many.bound[0] == "compute"
    assert many.duration_s[0] == pytest.approx((1 << 16) * 8 * 3 * 2 * 2048 * 768 / peak, rel=0.02)


def test_heads_of_latent_attention_are_rows_of_whole_tiles_and_prompts_are_causal() -> None:
    chip = device("tpu-v5e")
    one, full, double = (cost(chip, "latent_attention", batch=64, heads=n).duration_s[0] for n in (1, 128, 256))
    assert one == pytest.approx(full, rel=0.01) and double == pytest.approx(2 * full, rel=0.05)
    prompts = [
        cost(chip, "latent_attention", phase="prefill", batch=1, kv_tokens=n).duration_s[0] for n in (8192, 16384)
    ]
    assert prompts[1] / prompts[0] == pytest.approx(4, rel=0.05)


def test_a_slice_of_chips_runs_the_steps_of_a_decoder() -> None:
    """The chips share the weights, and the links of the torus carry two all-reduces of each layer."""
    model, chip = known_architecture("llama-3.1-8b"), Catalogue().device("tpu-v5e")
    load = StepLoad(*(np.array([value]) for value in (64.0, 1024.0, 0.0, 0.0)))
    context = {"dispatch": "graph", "clock": "sustained"}
    bandwidth = chip.number("memory_bytes_s") or 0.0
    times = {}
    for chips in (4, 8):
        step = step_cost(
            chip, DividedDecoder(model, Group(chips), int(chip.number("devices_per_node") or 0)), load, context
        )
        times[chips] = float(step.duration_s[0])
        assert times[chips] > (model.weight_bytes - 2 * model.vocabulary * model.width) / chips / bandwidth
        sent = sum(float(part.duration_s[0]) for part in step.parts if part.op == "all_reduce")
        each = cost(chip, "all_reduce", bytes=64 * model.width * 2, workers=chips, dispatch="graph", clock="sustained")
        assert sent == pytest.approx(64 * each.duration_s[0])
    assert times[8] < times[4]
    with pytest.raises(UnsupportedOperationError, match="256 chips"):
        cost(chip, "all_reduce", workers=512)
