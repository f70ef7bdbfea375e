"""Laws of the DPU kind: packets a second or the wire, engines or Arm cores."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.core.device import Cost, Device
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue

SKUS = [spec.sku for spec in Catalogue().specs() if spec.kind == "dpu"]
EXAMPLES = {
    "packets": {"count": 10_000_000, "bytes": 64},
    "rdma": {"bytes": 65536, "count": 100},
    "storage": {},
    "aes": {"bytes": 65536},
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


@pytest.mark.parametrize("sku", SKUS)
@pytest.mark.parametrize("op", EXAMPLES)
def test_every_card_answers_every_operation_with_a_finite_positive_cost(sku: str, op: str) -> None:
    answer = cost(device(sku), op)
    for column in (answer.duration_s, answer.power_w, answer.energy_j):
        assert np.all(np.isfinite(column)) and np.all(column > 0)
    assert np.all(answer.duration_low_s <= answer.duration_s) and np.all(answer.duration_s <= answer.duration_high_s)
    assert np.allclose(answer.energy_j, answer.power_w * answer.duration_s)


@pytest.mark.parametrize("sku", SKUS)
@pytest.mark.parametrize(("op", "codec"), [(op, c) for op in ("compress", "decompress") for c in ("deflate", "lz4")])
def test_every_card_runs_deflate_and_lz4_on_an_engine_or_on_its_cores(sku: str, op: str, codec: str) -> None:
    assert cost(device(sku), op, codec=codec).duration_s[0] > 0


@pytest.mark.parametrize("sku", SKUS)
def test_small_packets_are_bound_by_packets_a_second_and_large_ones_by_the_wire_with_its_framing(sku: str) -> None:
    card = device(sku, packet_latency_s=1e-12)
    count = int(EXAMPLES["packets"]["count"])
    small, large = cost(card, "packets", bytes=64), cost(card, "packets", bytes=1514)
    assert small.bound[0] == "packets" and large.bound[0] == "link"
    assert count / small.duration_s[0] == pytest.approx(card.number("packet_rate"))
    wire = card.number("line_rate_bytes_s") or 0.0
    assert count / large.duration_s[0] == pytest.approx(wire / (1514 + 20))


def test_below_the_packet_limit_size_does_not_matter_where_a_roofline_over_bytes_would_say_it_does() -> None:
    card = device("bluefield-2")
    assert cost(card, "packets", bytes=64).duration_s[0] == cost(card, "packets", bytes=100).duration_s[0]


def test_a_few_packets_wait_out_the_latency_of_the_pipeline() -> None:
    answer = cost(device("bluefield-3"), "packets", count=1)
    assert answer.bound[0] == "latency"
    assert answer.duration_s[0] == pytest.approx(1e-6, rel=0.05)


def test_rdma_costs_latency_once_then_messages_or_the_line() -> None:
    card = device("bluefield-2")
    alone = cost(card, "rdma", bytes=8, count=1)
    assert alone.bound[0] == "latency" and alone.duration_s[0] == pytest.approx(card.number("rdma_latency_s"), rel=0.02)
    assert cost(card, "rdma", bytes=8, count=10**6).bound[0] == "messages"
    large = cost(card, "rdma", bytes=1 << 20, count=1000)
    assert large.bound[0] == "link"
    assert 0.9 * 25e9 < (1 << 20) * 1000 / large.duration_s[0] < 25e9


@pytest.mark.parametrize("sku", SKUS)
def test_storage_waits_for_one_request_then_serves_many_up_to_its_rate_or_its_links(sku: str) -> None:
    card = device(sku)
    one = cost(card, "storage")
    assert one.bound[0] == "latency"
    least = (card.number("storage_latency_s") or 0.0) + (card.number("rdma_latency_s") or 0.0)
    assert least < one.duration_s[0] < 1.1 * least
    # A single request gains nothing from the room for others; a thousand do, until the card is busy.
    assert cost(card, "storage", in_flight=64).duration_s[0] == one.duration_s[0]
    few, deep, deeper = (cost(card, "storage", count=10**6, in_flight=depth) for depth in (4, 256, 512))
    assert few.duration_s[0] == pytest.approx(10**6 / 4 * one.duration_s[0])
    assert 10**6 / deep.duration_s[0] == pytest.approx(card.number("storage_request_rate"))
    assert deep.bound[0] == "requests" and deeper.duration_s[0] == deep.duration_s[0]
    large = cost(card, "storage", bytes=1 << 20, count=10**4, in_flight=64)
    assert large.bound[0] in ("link", "host_link")
    assert (1 << 20) * 10**4 / large.duration_s[0] <= (card.number("line_rate_bytes_s") or 0.0)
    assert cost(card, "storage", direction="write").duration_s[0] == one.duration_s[0]


def test_a_card_serves_more_block_requests_than_a_core_and_fewer_than_it_would_without_its_network() -> None:
    card, host = device("bluefield-3"), Catalogue().device("epyc-9654")
    shape = {"count": 10**5, "in_flight": 1}
    assert cost(card, "storage", **shape).duration_s[0] < cost(host, "storage", **shape).duration_s[0]
    faster = device("bluefield-3", line_rate_bytes_s=1e15, host_link_bytes_s=1e15)
    large = {"bytes": 1 << 20, "count": 1000, "in_flight": 64}
    assert cost(faster, "storage", **large).duration_s[0] < cost(card, "storage", **large).duration_s[0]


def test_an_engine_serves_requests_in_flight_up_to_its_rate() -> None:
    card = device("bluefield-2")
    rate = card.number("engine_bytes_s", "aes_gcm") or 0.0
    one, four, many = (65536 / cost(card, "aes", in_flight=n).duration_s[0] for n in (1, 4, 64))
    assert one < four <= many
    assert many == pytest.approx(rate)


def test_what_has_no_engine_runs_on_the_arm_cores_one_core_a_request() -> None:
    card = device("bluefield-3")
    one, two, full, more = (cost(card, "compress", in_flight=n) for n in (1, 2, 16, 64))
    assert one.bound[0] == "arm"
    assert one.duration_s[0] == pytest.approx(2 * two.duration_s[0])
    assert full.duration_s[0] == more.duration_s[0]
    with_engine = cost(device("bluefield-2"), "compress", in_flight=8)
    assert with_engine.bound[0] == "engine" and with_engine.duration_s[0] < one.duration_s[0]


def test_a_large_deflate_runs_at_what_was_measured() -> None:
    size = 86_000_000
    assert size / cost(device("bluefield-2"), "compress", bytes=size).duration_s[0] == pytest.approx(
        5.46e9 / 8, rel=0.01
    )


def test_eager_tasks_pay_a_round_trip() -> None:
    card = device("bluefield-2")
    extra = cost(card, "aes", dispatch="eager").duration_s[0] - cost(card, "aes").duration_s[0]
    assert extra == pytest.approx(8e-6)


@pytest.mark.parametrize("op", ["compress", "decompress"])
def test_zstd_is_refused_by_name(op: str) -> None:
    with pytest.raises(UnsupportedOperationError, match="zstd"):
        cost(device("bluefield-3"), op, codec="zstd")


@pytest.mark.parametrize("op", ["gemm", "fft", "all_reduce"])
def test_operations_that_no_dpu_runs_are_refused_by_name(op: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=op):
        device("bluefield-2").cost_function(op)
