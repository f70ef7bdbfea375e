"""The GPU model of power: units without work, short kernels, the power cap, and boards held below their die."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gpu import CATALOGUE, device, seconds, watts, with_values

from windtunnel.core.device import Parameters
from windtunnel_models.kinds.gpu.power import Activity, power_w, sustained_s


def test_units_without_work_draw_no_power_for_it() -> None:
    full = watts("h100-sxm-80gb", "gemm", m=8192, n=8192, k=8192, dtype="bfloat16")
    thin = watts("h100-sxm-80gb", "gemm", m=16, n=128, k=1_000_000, dtype="bfloat16")
    assert full > 600
    assert thin < 0.7 * full


def test_a_short_kernel_draws_less_on_average_than_a_long_one_at_the_same_rates() -> None:
    for sku in ("b200-sxm-180gb", "h200-sxm-141gb", "l4"):
        p = Parameters(device(sku))
        duration = np.array([2e-6, 20e-6, 200e-6, 2e-3, 2e-2])
        watts = power_w(p, duration, Activity(peak_s=0.3 * duration, moved_bytes=0.2e12 * duration))
        assert (np.diff(watts) > 0).all()
        assert watts[0] < 0.75 * watts[-1]
        assert watts[-2] == pytest.approx(watts[-1], rel=0.01)
        assert watts[0] >= p("idle_power_w")


def test_what_a_meter_shows_less_of_a_long_reduction_does_not_spare_it_the_power_cap() -> None:
    # B200 slowed down as much at k = 65,536 as at other k (1.12 against 1.05 to 1.18), though its meter showed 0.84 kW.
    p = Parameters(CATALOGUE.device("b200-sxm-180gb"))
    burst = np.array([1e-3])
    plain, long = (Activity(0.7 * burst, 1e9, units="bfloat16", settle_s=s) for s in (0.0, p("long_k_settle_s")))
    assert sustained_s(p, burst, long) == sustained_s(p, burst, plain)
    assert power_w(p, burst, long) < 0.95 * power_w(p, burst, plain)
    longer = Activity(14.0 * burst, 20e9, units="bfloat16", settle_s=p("long_k_settle_s"))
    assert power_w(p, 20 * burst, longer) > 1.05 * power_w(p, burst, long)


def test_sustained_products_slow_down_at_the_power_cap_and_streams_do_not() -> None:
    big = {"m": 8192, "n": 8192, "k": 8192, "dtype": "bfloat16"}
    slow = seconds("b200-sxm-180gb", "gemm", clock="sustained", **big) / seconds("b200-sxm-180gb", "gemm", **big)
    assert 1.03 < slow < 1.2
    stream = {"n": 500_000_000}
    assert seconds("b200-sxm-180gb", "vector_add", clock="sustained", **stream) == pytest.approx(
        seconds("b200-sxm-180gb", "vector_add", **stream), rel=0.01
    )


def test_idle_units_draw_less_power() -> None:
    assert watts("h100-sxm-80gb", "vector_add", n=1) < watts("h100-sxm-80gb", "vector_add", n=10**9)
    assert watts("h100-sxm-80gb", "launch") < watts("h100-sxm-80gb", "gemm", m=8192, n=8192, k=8192, dtype="bfloat16")


@settings(max_examples=60, deadline=None)
@given(
    sku=st.sampled_from(["b200-sxm-180gb", "gb200", "a100-pcie-40gb", "l40s", "mi300x"]),
    sides=st.tuples(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 70_000)),
    factor=st.floats(1.0, 4.0),
)
def test_a_loop_at_the_cap_is_slower_than_a_burst_and_draws_no_more_than_the_limit(
    sku: str, sides: tuple[int, int, int], factor: float
) -> None:
    m, n, k = sides
    values = {"m": m, "n": n, "k": k, "dtype": "bfloat16"}
    burst, loop = (seconds(sku, "gemm", clock=clock, **values) for clock in ("burst", "sustained"))
    # Where loops were measured themselves (B200, and its die), another campaign with other kernels answers for them.
    measured = device(sku).number("gemm_efficiency", "bfloat16_sustained") is not None
    assert burst * (0.6 if measured else 1 - 1e-12) <= loop < 2.0 * burst
    assert watts(sku, "gemm", clock="sustained", **values) <= (device(sku).number("max_power_w") or 0.0)
    peak = device(sku).number("matrix_flops_per_s", "bfloat16") or 0.0
    faster = with_values(sku, matrix_flops_per_s__bfloat16=peak * factor)
    assert seconds(faster, "gemm", clock="sustained", **values) <= loop * (1 + 1e-9)


def test_a_board_held_below_the_first_of_its_die_slows_down_more() -> None:
    values = {"m": 8192, "n": 8192, "k": 8192, "dtype": "bfloat16"}

    def slower(sku: str) -> float:
        return seconds(sku, "gemm", clock="sustained", **values) / seconds(sku, "gemm", **values)

    assert slower("a100-pcie-40gb") > 1.05 * slower("a100-sxm-40gb")
