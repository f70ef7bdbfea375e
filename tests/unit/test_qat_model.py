"""Laws of the QAT kind: throughput comes from requests in flight."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.core.device import Cost, Device
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue

SKUS = [spec.sku for spec in Catalogue().specs() if spec.kind == "qat"]
EXAMPLES = {
    "aes": {"bytes": 4096},
    "compress": {"bytes": 65536},
    "decompress": {"bytes": 65536},
    "sign": {},
    "copy": {"bytes": 1 << 20, "direction": "h2d"},
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


def signatures_per_s(of: Device, in_flight: int) -> float:
    return 1.0 / float(cost(of, "sign", in_flight=in_flight).duration_s[0])


@pytest.mark.parametrize("sku", SKUS)
@pytest.mark.parametrize("op", EXAMPLES)
@pytest.mark.parametrize("in_flight", [1, 64])
def test_every_device_answers_every_operation_with_a_finite_positive_cost(sku: str, op: str, in_flight: int) -> None:
    takes = {"in_flight": in_flight} if op in ("aes", "compress", "decompress", "sign") else {}
    answer = cost(device(sku), op, **takes)
    for column in (answer.duration_s, answer.power_w, answer.energy_j):
        assert np.all(np.isfinite(column)) and np.all(column > 0)
    assert np.all(answer.duration_low_s <= answer.duration_s) and np.all(answer.duration_s <= answer.duration_high_s)
    assert np.allclose(answer.energy_j, answer.power_w * answer.duration_s)


def test_the_measured_signatures_a_second_follow_from_latency_queue_pair_and_engines() -> None:
    card = device("qat-8970")
    assert signatures_per_s(card, 1) == pytest.approx(2310.2, rel=1e-3)
    assert signatures_per_s(card, 72) == pytest.approx(65901.3, rel=1e-3)
    assert signatures_per_s(card, 9 * 72) == pytest.approx(101492, rel=1e-3)


@pytest.mark.parametrize("sku", SKUS)
def test_rate_grows_with_requests_in_flight_then_saturates_where_a_roofline_would_be_flat(sku: str) -> None:
    card = device(sku)
    one = signatures_per_s(card, 1)
    for in_flight in (2, 4, 8):
        assert signatures_per_s(card, in_flight) == pytest.approx(in_flight * one, rel=1e-9)
    full = card.number("sign_rate", "rsa2048")
    assert signatures_per_s(card, 1000) == pytest.approx(full)
    assert signatures_per_s(card, 2000) == pytest.approx(full)
    assert cost(card, "sign", in_flight=1).bound[0] == "latency"
    assert cost(card, "sign", in_flight=1000).bound[0] == "engine"


def test_little_s_law_sets_the_knee_at_latency_times_engine_rate() -> None:
    card = device("qat-4xxx", queue_pair_sign_rate__rsa2048=1e9)
    latency, rate = card.number("request_latency_s", "rsa2048"), card.number("sign_rate", "rsa2048")
    assert latency is not None and rate is not None
    knee = latency * rate
    below, above = int(np.floor(knee)), int(np.ceil(knee))
    assert signatures_per_s(card, below) < rate
    assert signatures_per_s(card, above) == pytest.approx(rate)


@pytest.mark.parametrize("sku", SKUS)
@pytest.mark.parametrize("op", ["aes", "compress"])
def test_bulk_rate_rises_with_size_and_with_requests_in_flight_to_the_rated_one(sku: str, op: str) -> None:
    card = device(sku)
    rated = card.number("bulk_bytes_s", "aes_gcm" if op == "aes" else "compress_deflate") or 0.0

    def rate(size: int, in_flight: int) -> float:
        return size / float(cost(card, op, bytes=size, in_flight=in_flight).duration_s[0])

    assert rate(1024, 1) < rate(16384, 1) < rate(65536, 1) < rated
    assert rate(65536, 1) < rate(65536, 4)
    assert rate(65536, 512) == pytest.approx(rated)
    assert rate(1 << 30, 1) == pytest.approx(rated, rel=0.05)


def test_a_gigabyte_of_aes_takes_no_less_than_the_card_s_rated_speed_allows() -> None:
    answer = cost(device("qat-8970"), "aes", bytes=10**9, in_flight=64)
    assert answer.duration_s[0] == pytest.approx(0.08, rel=0.01)


def test_the_bus_bounds_engines_that_are_faster_than_it() -> None:
    card = device("qat-8950", host_link_bytes_s=1e9)
    answer = cost(card, "aes", bytes=1 << 20, in_flight=64)
    assert answer.bound[0] == "link"
    assert answer.duration_s[0] == pytest.approx((1 << 20) / 1e9)


def test_deeper_levels_take_longer() -> None:
    card = device("qat-8950")
    times = [cost(card, "compress", level=level, in_flight=512).duration_s[0] for level in (1, 2, 6)]
    assert times[0] < times[1] < times[2]


def test_eager_calls_overlap_across_requests_in_flight() -> None:
    card = device("qat-8970")
    extra = [
        cost(card, "aes", in_flight=n, dispatch="eager").duration_s[0]
        - cost(card, "aes", in_flight=n, dispatch="device").duration_s[0]
        for n in (1, 10)
    ]
    assert extra[0] == pytest.approx(10 * extra[1])


@pytest.mark.parametrize(
    ("sku", "op", "codec"),
    [
        ("qat-8950", "compress", "lz4"),
        ("qat-8950", "compress", "zstd"),
        ("qat-8970", "decompress", "lz4"),
        ("qat-4xxx", "decompress", "zstd"),
    ],
)
def test_codecs_that_a_generation_lacks_are_refused_by_name(sku: str, op: str, codec: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=codec):
        cost(device(sku), op, codec=codec)


@pytest.mark.parametrize(("op", "codec"), [("compress", "lz4"), ("compress", "zstd"), ("decompress", "lz4")])
def test_the_fourth_generation_runs_what_it_has(op: str, codec: str) -> None:
    assert cost(device("qat-4xxx"), op, codec=codec).duration_s[0] > 0


def test_copies_within_a_device_without_memory_are_refused() -> None:
    with pytest.raises(UnsupportedOperationError, match="memory"):
        cost(device("qat-8950"), "copy", direction="d2d")


@pytest.mark.parametrize("op", ["gemm", "packets", "fft"])
def test_operations_that_no_qat_runs_are_refused_by_name(op: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=op):
        device("qat-8950").cost_function(op)
