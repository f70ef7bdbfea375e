"""The direction of the GPU model: more work is never faster, and a better number of the device never slower."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gpu import device, seconds, with_values

from windtunnel.core.ops import ELEMENTWISE_OPS

BETTER = st.sampled_from(
    [
        "memory_bandwidth_bytes_per_s",
        "boost_clock_hz",
        "matrix_flops_per_s.bfloat16",
        "vector_flops_per_s.float32",
        "memory_efficiency",
        "l2_bytes",
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    parameter=BETTER,
    factor=st.floats(1.0, 4.0),
    sides=st.tuples(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000)),
    cache=st.sampled_from(["cold", "warm"]),
)
def test_a_better_number_is_never_slower(
    parameter: str, factor: float, sides: tuple[int, int, int], cache: str
) -> None:
    m, n, k = sides
    base = device("a100-sxm-80gb")
    better = with_values("a100-sxm-80gb", **{parameter: base.values[parameter].value * factor})
    for op, values in (
        ("gemm", {"m": m, "n": n, "k": k, "dtype": "bfloat16"}),
        ("elementwise", {"op": "softmax", "rows": m, "width": n}),
        ("stencil", {"nx": m, "ny": n, "nz": 8}),
        ("attention", {"phase": "decode", "batch": m, "heads": 32, "kv_heads": 8, "head_dim": 128, "kv_tokens": k}),
    ):
        assert seconds(better, op, cache=cache, **values) <= seconds(base, op, cache=cache, **values) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(m=st.integers(1, 5000), n=st.integers(1, 5000), k=st.integers(1, 5000), more=st.integers(1, 3000))
def test_more_work_is_never_faster(m: int, n: int, k: int, more: int) -> None:
    formula = replace(device("a100-sxm-80gb"), residuals={})  # the rest: tests/property/test_gpu_monotone.py
    small = seconds(formula, "gemm", m=m, n=n, k=k, dtype="bfloat16")
    for grown in ({"m": m + more, "n": n, "k": k}, {"m": m, "n": n + more, "k": k}, {"m": m, "n": n, "k": k + more}):
        assert seconds(formula, "gemm", dtype="bfloat16", **grown) >= small * (1 - 1e-9)


@settings(max_examples=80, deadline=None)
@given(
    sku=st.sampled_from(["a100-sxm-80gb", "l4", "mi100", "arc-b580", "apple-m2-ultra"]),
    op=st.sampled_from(ELEMENTWISE_OPS),
    rows=st.integers(1, 20_000),
    width=st.integers(1, 5000),
    more=st.integers(1, 5000),
    dispatch=st.sampled_from(["device", "eager"]),
    clock=st.sampled_from(["burst", "sustained"]),
    factor=st.floats(1.0, 4.0),
)
def test_passes_over_more_data_or_at_less_bandwidth_are_never_faster(
    sku: str, op: str, rows: int, width: int, more: int, dispatch: str, clock: str, factor: float
) -> None:
    context = {"op": op, "dispatch": dispatch, "clock": clock}
    small = seconds(sku, "elementwise", rows=rows, width=width, **context)
    for grown in ({"rows": rows + more, "width": width}, {"rows": rows, "width": width + more}):
        assert seconds(sku, "elementwise", **grown, **context) >= small * (1 - 1e-9)
    bandwidth = device(sku).number("memory_bandwidth_bytes_per_s") or 0.0
    faster = with_values(sku, memory_bandwidth_bytes_per_s=bandwidth * factor)
    assert seconds(faster, "elementwise", rows=rows, width=width, **context) <= small * (1 + 1e-9)
