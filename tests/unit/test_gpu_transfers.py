"""The GPU model of copies and collectives: links, engines, pageable memory, and messages between devices."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gpu import SKUS, device, seconds, with_values

from windtunnel.core.ops import OPERATIONS, Gemm, one_row


def test_host_copies_run_on_copy_engines_at_the_rate_of_the_link() -> None:
    d = device("a100-sxm-80gb")
    for direction, engine in (("h2d", "copy_h2d"), ("d2h", "copy_d2h"), ("d2d", "compute")):
        assert d.engine_of(one_row(OPERATIONS["copy"], {"bytes": 1, "direction": direction})) == engine
    assert d.engine_of(one_row(Gemm, {"m": 1, "n": 1, "k": 1, "dtype": "float32"})) == "compute"
    rate = 1e9 / seconds(d, "copy", bytes=1_000_000_000, direction="h2d")
    nominal = d.number("host_link_bytes_per_s") or 0.0
    assert rate == pytest.approx(nominal * (d.number("host_link_efficiency") or 0.0), rel=0.01)
    assert rate < nominal


def test_one_copy_engine_serves_both_directions() -> None:
    d = with_values("p4", copy_engines=1.0)
    engines = {d.engine_of(one_row(OPERATIONS["copy"], {"bytes": 1, "direction": x})) for x in ("h2d", "d2h")}
    assert engines == {"copy_h2d"}


def test_pageable_copies_are_slower_than_pinned_and_small_ones_cost_their_setup() -> None:
    pinned, pageable, small = (
        seconds("a100-sxm-80gb", "copy", bytes=n, direction="h2d", memory=memory)
        for n, memory in ((10**8, "pinned"), (10**8, "pageable"), (1, "pinned"))
    )
    assert pageable > 1.2 * pinned
    assert small == pytest.approx(device("a100-sxm-80gb").api.values["copy_setup_s"].value, rel=1e-3)


@settings(max_examples=80, deadline=None)
@given(
    sku=st.sampled_from(SKUS),
    size=st.integers(1, 10**10),
    more=st.integers(1, 10**10),
    direction=st.sampled_from(["h2d", "d2h"]),
)
def test_more_bytes_are_never_cheaper_and_pinned_memory_never_slower(
    sku: str, size: int, more: int, direction: str
) -> None:
    for api in device(sku).spec.apis:
        name = f"{sku}@{api}"
        took = {}
        for memory in ("pageable", "pinned", "unified"):
            if memory == "unified" and "unified" not in device(name).api.features:
                continue
            took[memory] = seconds(name, "copy", bytes=size, direction=direction, memory=memory)
            assert seconds(name, "copy", bytes=size + more, direction=direction, memory=memory) >= took[memory]
        assert took["pinned"] <= took["pageable"]
        assert took["pinned"] <= took.get("unified", math.inf)


def test_a_fast_link_does_not_speed_up_pageable_copies_beyond_the_host() -> None:
    rates = [
        10**9 / seconds(sku, "copy", bytes=10**9, direction="h2d", memory="pageable")
        for sku in ("v100-pcie-32gb", "a100-sxm-80gb", "h100-sxm-80gb")
    ]
    assert rates[0] < rates[1] < rates[2] < (device("h100-sxm-80gb").number("host_copy_bytes_per_s") or 0.0)
    assert rates[2] / rates[1] < 1.1


def test_a_vendors_driver_sets_the_round_trip_where_the_device_itself_was_not_measured() -> None:
    assert seconds("apple-m4-max@vulkan", "launch") == device("apple-m4-max").number("vendor_round_trip_s.vulkan_apple")
    assert seconds("mi210@opencl", "launch") > seconds("l40s@opencl", "launch")
    assert seconds("mi300x@opencl", "launch") == pytest.approx(28.1e-6)
    for count in (1, 2, 1000):
        each = [seconds(f"l40s@{api}", "launch", count=count) for api in ("cuda", "opencl", "vulkan")]
        assert each == sorted(each)


def test_unified_memory_maps_instead_of_copying() -> None:
    mapped = [seconds("apple-m1-pro", "copy", bytes=n, direction="h2d", memory="pinned") for n in (1, 10**9)]
    copied = seconds("apple-m1-pro", "copy", bytes=10**9, direction="h2d", memory="pageable")
    assert mapped[0] == mapped[1] == device("apple-m1-pro").api.values["copy_setup_s"].value
    assert copied > 2 * 10**9 / 200e9
    assert device("apple-m1-pro").engine_of(one_row(OPERATIONS["copy"], {"bytes": 1, "direction": "h2d"})) == "compute"


def test_collectives_cross_nodes_slower_and_one_worker_moves_nothing() -> None:
    shared = {"bytes": 10**9}
    inside = seconds("h100-sxm-80gb", "all_reduce", workers=8, devices_per_node=8, **shared)
    outside = seconds("h100-sxm-80gb", "all_reduce", workers=8, devices_per_node=4, **shared)
    assert outside > 5 * inside
    assert seconds("h100-sxm-80gb", "all_reduce", workers=1, **shared) == device("h100-sxm-80gb").number(
        "kernel_floor_s"
    )
    # A ring moves 2 (w-1)/w of the bytes; over a link without measurements at the attained share of others.
    d = device("mi300x")
    rate = 448e9 * (d.number("scale_up_efficiency", "all_reduce") or 0.0) * (d.number("protocol_share", "ll128") or 0.0)
    assert seconds("mi300x", "all_reduce", workers=8, **shared) == pytest.approx(1.75e9 / rate, rel=0.05)


def test_small_collectives_take_flagged_words_and_large_ones_whole_lines() -> None:
    shared = {"workers": 8, "devices_per_node": 8}
    d = device("mi300x")
    without = with_values("mi300x", collective_step_s__ll=1.0)
    assert seconds(d, "all_reduce", bytes=4096, **shared) < seconds(without, "all_reduce", bytes=4096, **shared)
    big = 10**8
    assert seconds(d, "all_reduce", bytes=big, **shared) == seconds(without, "all_reduce", bytes=big, **shared)
    # A tree's steps grow with the logarithm of the workers: eight times as many cost two further levels, not a ring.
    few, many = (seconds(d, "all_reduce", bytes=8, workers=w, devices_per_node=64) for w in (8, 64))
    assert many - few == pytest.approx(2 * 3 * (d.number("collective_step_s", "ll") or 0.0), rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    op=st.sampled_from(["all_reduce", "send_recv"]),
    size=st.integers(1, 10**9),
    more=st.integers(1, 10**9),
    workers=st.sampled_from([2, 4, 8, 16, 64]),
    per_node=st.sampled_from([1, 2, 4, 8]),
)
def test_more_bytes_and_nodes_never_make_a_collective_cheaper(
    op: str, size: int, more: int, workers: int, per_node: int
) -> None:
    shared = {"workers": workers, "devices_per_node": per_node}
    small = seconds("h100-sxm-80gb", op, bytes=size, **shared)
    # Measured times fall by up to a sixth where the library changes its protocol.
    assert seconds("h100-sxm-80gb", op, bytes=size + more, **shared) >= small / 1.2
    assert seconds("h100-sxm-80gb", op, bytes=size, workers=workers, devices_per_node=64) <= small * 1.2
