"""Laws and agreement of the models of experts and latent attention, each test named by what it proves."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from windtunnel.core.device import Cost
from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.ops import BYTES_PER_ELEMENT, OPERATIONS, Moe, Rows
from windtunnel.core.provenance import Provenance
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds._routing import geometry

CATALOGUE = Catalogue()
DATA = Path(__file__).resolve().parents[1] / "data" / "serving_ops"
CONTEXT = {"dispatch": "device", "clock": "burst", "cache": "cold"}
MODEL = {"width": 4096.0, "expert_width": 1536.0, "experts": 128.0, "experts_per_token": 8.0}
ONE_RANK = {"tensor": 1.0, "expert": 1.0, "skew": 0.0}
MEASURED = {
    "h100-sxm-80gb": ("bfloat16", "fp8", "fp8_block"),
    "b200-sxm-180gb": ("bfloat16", "fp8", "fp8_block", "nvfp4"),
}
DERIVED = {"h200-sxm-141gb": ("bfloat16", "fp8"), "l40s": ("bfloat16", "fp8"), "mi300x": ("bfloat16", "fp8")}
PAIRS = [(sku, dtype) for sku, dtypes in {**MEASURED, **DERIVED}.items() for dtype in dtypes]


def rows(op: str, choices: Mapping[str, str], **numbers: object) -> Rows:
    """Return rows of an operation; single numbers hold for all of them."""
    arrays = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in numbers.values()))
    return Rows(OPERATIONS[op], {**choices, **CONTEXT}, dict(zip(numbers, map(np.atleast_1d, arrays), strict=True)))


def experts(sku: str, dtype: str = "bfloat16", **numbers: object) -> Cost:
    return CATALOGUE.device(sku).cost(rows("moe", {"dtype": dtype}, **{**MODEL, **ONE_RANK, **numbers}))


def latent(sku: str, phase: str = "decode", dtype: str = "bfloat16", kv: str = "bfloat16", **numbers: object) -> Cost:
    shape = {"kv_rank": 512, "rope_dim": 64, "query_tokens": 1, "batch": 8, "heads": 16, "kv_tokens": 4096}
    choices = {"phase": phase, "dtype": dtype, "kv_dtype": kv}
    return CATALOGUE.device(sku).cost(rows("latent_attention", choices, **{**shape, **numbers}))


def features(**numbers: object) -> dict[str, np.ndarray]:
    return vars(geometry(rows("moe", {"dtype": "bfloat16"}, **{**MODEL, **ONE_RANK, **numbers}), 2.0))


# ---- how tokens meet experts


def test_a_balanced_router_hits_as_many_experts_as_it_can() -> None:
    found = features(tokens=[1, 2, 16, 17, 4096])
    assert found["hit"].tolist() == [8, 16, 128, 128, 128]
    assert found["own"].tolist() == [8, 16, 128, 136, 32768]


def test_ranks_divide_the_experts_and_the_tokens_of_a_balanced_router() -> None:
    found = features(tokens=[16, 4096, 4096], expert=[8, 8, 128])
    assert found["hit"].tolist() == [16, 16, 1]
    assert found["own"].tolist() == [16, 4096, 256]


@pytest.mark.parametrize("skew", [0.5, 1.0, 1.01, 1.2, 3.0, 100.0])
def test_a_skewed_router_hits_fewer_experts_with_the_same_number_of_choices(skew: float) -> None:
    tokens = np.array([1.0, 8, 32, 1000, 16384])
    even, skewed = features(tokens=tokens), features(tokens=tokens, skew=skew)
    assert skewed["own"] == pytest.approx(even["own"], rel=0.02)
    assert (skewed["hit"] <= even["hit"] + 1e-9).all()
    assert skewed["hit"][1] < even["hit"][1]
    assert (skewed["whole"] <= skewed["own"] * 1.02).all()


def test_the_slowest_rank_of_a_skewed_router_has_more_than_its_share_and_at_most_all_tokens() -> None:
    tokens = np.array([256.0, 4096, 16384])
    for ranks in (2, 8, 64, 128):
        own = features(tokens=tokens, skew=1.2, expert=ranks)["own"]
        assert (own > 1.1 * tokens * 8 / ranks).all()
        assert (own <= tokens * np.minimum(8, 128 / ranks) * 1.001).all()


def test_more_skew_means_a_slower_rank() -> None:
    skews = (0.0, 0.3, 0.7, 1.01, 1.1, 1.2, 2.0, 5.0)
    own = [float(features(tokens=8192, expert=16, skew=s)["own"][0]) for s in skews]
    hit = [float(features(tokens=8, skew=s)["hit"][0]) for s in skews]
    took = [float(experts("h100-sxm-80gb", tokens=8192, expert=16, skew=s).duration_s[0]) for s in skews]
    assert own == sorted(own)
    assert hit == sorted(hit, reverse=True)
    assert took[0] < took[1] < took[3] < took[-1]
    assert own[1] < 2.0 * own[0]


def test_a_slight_skew_is_almost_balanced() -> None:
    tokens = np.array([256.0, 16384])
    even, slight = (experts("b200-sxm-180gb", tokens=tokens, expert=8, skew=s).duration_s for s in (0.0, 0.01))
    assert slight == pytest.approx(even, rel=0.15)


def test_bytes_and_flops_count_the_matrices_of_an_expert() -> None:
    gated = {k: np.array([v]) for k, v in {**MODEL, **ONE_RANK, "tokens": 1000.0}.items()}
    plain = {**gated, "width": np.array([2688.0]), "expert_width": np.array([1856.0])}
    assert Moe.flops({"dtype": "fp8"}, gated)[0] == 6.0 * 1000 * 8 * 4096 * 1536
    assert Moe.flops({"dtype": "fp8"}, plain)[0] == 4.0 * 1000 * 8 * 2688 * 1856


# ---- the time of experts


@pytest.mark.parametrize(("sku", "dtype"), PAIRS)
def test_no_time_is_shorter_than_the_datasheet_allows(sku: str, dtype: str) -> None:
    device = CATALOGUE.device(sku)
    bandwidth = device.number("memory_bandwidth_bytes_per_s")
    peak = device.number("matrix_flops_per_s", "fp8" if dtype == "fp8_block" else dtype)
    assert bandwidth is not None and peak is not None
    tokens = 2.0 ** np.arange(0, 22)
    for expert, tensor in ((1, 1), (8, 1), (1, 8)):
        cost = experts(sku, dtype, tokens=tokens, expert=expert, tensor=tensor)
        hit = np.ceil(np.minimum(128, tokens * 8) / expert)
        weights = hit * 3 * 4096 * 1536 / tensor * BYTES_PER_ELEMENT[dtype]
        assert (cost.duration_s >= weights / bandwidth * (1 - 1e-9)).all()
        flops = 6 * tokens * 8 * 4096 * 1536 / (expert * tensor)
        assert (cost.duration_s >= flops / peak * (1 - 1e-9)).all()


@pytest.mark.parametrize(("sku", "dtype"), PAIRS)
def test_more_tokens_are_not_faster_beyond_noise(sku: str, dtype: str) -> None:
    tokens = np.unique(np.round(2.0 ** np.arange(0, 16, 0.25)))
    for numbers in ({}, {"expert": 8}, {"tensor": 4}, {"skew": 1.2, "expert": 8}):
        took = experts(sku, dtype, tokens=tokens, **numbers).duration_s
        # CUTLASS on Hopper is faster with full tiles than with partial ones: so were the measurements.
        noise = 0.75 if (dtype, sku[:2]) in (("fp8", "h1"), ("fp8", "h2")) else 0.9
        assert (took > noise * np.maximum.accumulate(took)).all()


@pytest.mark.parametrize(("sku", "dtype"), PAIRS)
def test_ranks_divide_the_work_but_not_the_floor(sku: str, dtype: str) -> None:
    for tokens in (16, 512, 16384):
        one = experts(sku, dtype, tokens=tokens).duration_s[0]
        for division in ({"expert": 8}, {"tensor": 8}):
            divided = experts(sku, dtype, tokens=tokens, **division).duration_s[0]
            assert one / 8.5 < divided < 0.75 * one


def test_h200_is_no_faster_than_h100_where_units_and_not_memory_limit_the_reads() -> None:
    tokens = np.array([1.0, 8, 64, 512])
    h100, h200 = (experts(sku, tokens=tokens).duration_s for sku in ("h100-sxm-80gb", "h200-sxm-141gb"))
    assert h200 == pytest.approx(h100, rel=0.03)


def test_slices_that_are_no_multiple_of_16_are_slower_on_hopper() -> None:
    shape = {"width": 2688, "expert_width": 1856, "experts_per_token": 6, "tokens": 4096}
    half, eighth = (experts("h100-sxm-80gb", tensor=t, **shape).duration_s[0] for t in (4, 8))  # 464 and 232
    assert eighth > half


@pytest.mark.parametrize("dtype", ["mxfp4", "int4"])
@pytest.mark.parametrize("sku", ["h100-sxm-80gb", "b200-sxm-180gb", "a100-sxm-80gb", "l40s"])
def test_weight_only_formats_read_less_and_multiply_the_same_and_are_marked_assumed(sku: str, dtype: str) -> None:
    tokens = np.array([64.0, 65536.0])
    narrow, wide = (experts(sku, d, tokens=tokens) for d in (dtype, "bfloat16"))
    assert narrow.duration_s[0] < 0.6 * wide.duration_s[0]
    # Units of Blackwell multiply MXFP4 with 8-bit activations.
    multiplied = "fp8" if (sku, dtype) == ("b200-sxm-180gb", "mxfp4") else "bfloat16"
    same = experts(sku, multiplied, tokens=tokens)
    assert narrow.duration_s[1] > 0.9 * same.duration_s[1]
    sources = CATALOGUE.device(sku).sources(rows("moe", {"dtype": dtype}, **{**MODEL, **ONE_RANK, "tokens": 64}))
    assert sources[f"moe_weight_only.{dtype}"].provenance is Provenance.ASSUMED
    spread = [np.log(cost.duration_high_s / cost.duration_s)[0] for cost in (narrow, same)]
    assert spread[0] >= spread[1] - 1e-9


def test_a_format_without_units_is_refused_by_name() -> None:
    for sku in ("h100-sxm-80gb", "l40s", "mi300x"):
        with pytest.raises(UnsupportedOperationError, match="nvfp4"):
            experts(sku, "nvfp4", tokens=1)


@pytest.mark.parametrize(
    ("numbers", "named"),
    [({"expert": 3}, "expert"), ({"tensor": 7}, "tensor"), ({"experts_per_token": 200}, "more experts")],
)
def test_what_does_not_divide_is_an_error_that_says_why(numbers: Mapping[str, object], named: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=named):
        experts("h100-sxm-80gb", tokens=8, **numbers)


@pytest.mark.parametrize("sku", ["epyc-9654", "alveo-u280", "bluefield-3", "qat-4xxx"])
def test_other_kinds_refuse_the_operations_by_name(sku: str) -> None:
    for run, op in ((lambda: experts(sku, tokens=8), "moe"), (lambda: latent(sku), "latent_attention")):
        with pytest.raises(InputError, match=f"does not run {op}"):
            run()


# ---- the time of latent attention


@pytest.mark.parametrize("sku", ["h100-sxm-80gb", "b200-sxm-180gb", "h200-sxm-141gb", "l40s"])
@pytest.mark.parametrize("kv", ["bfloat16", "fp8"])
def test_decode_reads_576_values_a_token_and_has_a_floor(sku: str, kv: str) -> None:
    keys = 2.0 ** np.arange(0, 20)
    took = latent(sku, kv=kv, kv_tokens=keys, batch=64).duration_s
    bandwidth = CATALOGUE.device(sku).number("memory_bandwidth_bytes_per_s")
    assert bandwidth is not None
    least = 64 * keys * 576 * BYTES_PER_ELEMENT[kv] / bandwidth
    assert (took >= least * (1 - 1e-9)).all()
    assert took[-1] < 2.0 * least[-1]
    assert 5e-6 < took[0] < 40e-6
    # Measured times of short contexts fall by an eighth on Hopper up to 64 keys.
    assert (took > 0.83 * np.maximum.accumulate(took)).all()


@pytest.mark.parametrize("sku", ["h100-sxm-80gb", "b200-sxm-180gb", "h200-sxm-141gb", "l40s"])
def test_heads_between_the_measured_ones_take_a_time_between(sku: str) -> None:
    heads = np.array([16.0, 24, 32, 48, 64, 96, 128])
    for phase, keys in (("decode", 8192), ("prefill", 4096)):
        took = latent(sku, phase, heads=heads, kv_tokens=keys, batch=16).duration_s
        assert (took > 0.93 * np.maximum.accumulate(took)).all()
        assert took[-1] > took[0]


def test_prefill_grows_with_the_square_of_the_prompt_and_with_the_heads() -> None:
    for sku in ("h100-sxm-80gb", "b200-sxm-180gb"):
        short, long = latent(sku, "prefill", kv_tokens=[8192, 16384], heads=128, batch=1).duration_s
        assert 3.3 < long / short < 4.5
        few, many = latent(sku, "prefill", kv_tokens=8192, heads=[16, 128], batch=4).duration_s
        assert 6.5 < many / few < 9.0


def test_h200_reads_the_cache_faster_than_h100() -> None:
    long = {"batch": 256, "kv_tokens": 32768}
    h100, h200 = (latent(sku, **long).duration_s[0] for sku in ("h100-sxm-80gb", "h200-sxm-141gb"))
    assert 1.2 < h100 / h200 < 1.45


# ---- agreement with measurements


def _sample(
    op: str, numbers: tuple[str, ...], words: tuple[str, ...], run: Callable[..., Cost]
) -> dict[str, np.ndarray]:
    """Return measured, estimated, low and high seconds of the committed sample, and the devices."""
    with (DATA / f"{op}.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    costs = [run(line["sku"], *(line[w] for w in words), **{n: float(line[n]) for n in numbers}) for line in lines]
    found = {
        n: np.array([getattr(c, n)[0] for c in costs]) for n in ("duration_s", "duration_low_s", "duration_high_s")
    }
    return {
        **found,
        "measured": np.array([float(x["latency_s"]) for x in lines]),
        "sku": np.array([x["sku"] for x in lines]),
    }


@pytest.mark.parametrize(
    ("op", "numbers", "words", "run", "mean", "median"),
    [
        ("experts", ("tokens", *MODEL, *ONE_RANK), ("dtype",), experts, 0.08, 0.05),
        (
            "latent_attention",
            ("batch", "heads", "kv_rank", "rope_dim", "query_tokens", "kv_tokens"),
            ("phase", "dtype", "kv_dtype"),
            latent,
            0.06,
            0.035,
        ),
    ],
)
def test_the_shipped_model_agrees_with_a_sample_of_measurements(
    op: str, numbers: tuple[str, ...], words: tuple[str, ...], run: Callable[..., Cost], mean: float, median: float
) -> None:
    found = _sample(op, numbers, words, run)
    error = np.abs(found["duration_s"] / found["measured"] - 1.0)
    for sku in MEASURED:
        mine = found["sku"] == sku
        assert error[mine].mean() < mean
        assert np.median(error[mine]) < median
    inside = (found["measured"] >= found["duration_low_s"]) & (found["measured"] <= found["duration_high_s"])
    assert inside.mean() > 0.88
