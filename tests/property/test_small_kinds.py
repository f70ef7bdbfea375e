"""Laws that every answer of the TPU, FPGA, QAT and DPU kinds obeys, whatever is asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.device import Device
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.catalogue import Catalogue

CATALOGUE = Catalogue()
TPUS = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e")
FPGAS = ("alveo-u50", "alveo-u250", "alveo-u280", "stratix10-520n")
QATS = ("qat-8950", "qat-8970", "qat-4xxx")
DPUS = ("bluefield-2", "bluefield-3", "pensando-elba")
ROUNDING = 1.0 + 1e-9

edges = st.one_of(st.integers(1, 70), st.integers(1, 20_000))
growth = st.integers(0, 5_000)


def seconds(device: Device, op: str, /, **values: object) -> float:
    cost = device.cost(one_row(OPERATIONS.find(op), values))
    found = float(cost.duration_s[0])
    assert 0.0 < cost.duration_low_s[0] <= found <= cost.duration_high_s[0] < np.inf
    assert 0.0 < cost.power_w[0] < np.inf
    return found


def scaled(device: str, path: str, factor: float) -> Device:
    value = CATALOGUE.device(device).number(*path.split("."))
    assert value is not None
    return CATALOGUE.device(device, overlay={path: SourcedValue(value * factor, Provenance.DATASHEET, "the test")})


@given(
    sku=st.sampled_from(TPUS + FPGAS),
    m=edges,
    n=edges,
    k=edges,
    axis=st.sampled_from("mnk"),
    more=growth,
    cache=st.sampled_from(["cold", "warm"]),
    calibrated=st.booleans(),
    data=st.data(),
)
def test_a_larger_product_is_never_cheaper(
    sku: str, m: int, n: int, k: int, axis: str, more: int, cache: str, calibrated: bool, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(["float32", "int8", "bfloat16" if sku in TPUS else "float16"]))
    device = CATALOGUE.device(sku, calibrated=calibrated)
    shape = {"m": m, "n": n, "k": k}
    larger = {**shape, axis: shape[axis] + more}
    context = {"dtype": dtype, "cache": cache}
    assert seconds(device, "gemm", **shape, **context) <= seconds(device, "gemm", **larger, **context) * ROUNDING


@given(
    which=st.sampled_from(
        [
            *((sku, path) for sku in TPUS for path in ("memory_bytes_s", "clock_hz", "vmem_bytes")),
            *((sku, path) for sku in FPGAS for path in ("bank_bytes_s", "port_bytes", "memory_ports.gemm")),
        ]
    ),
    m=edges,
    n=edges,
    k=edges,
    factor=st.floats(1.0, 8.0),
)
def test_more_bandwidth_is_never_dearer(which: tuple[str, str], m: int, n: int, k: int, factor: float) -> None:
    sku, path = which
    shape = {"m": m, "n": n, "k": k, "dtype": "float32"}
    faster = seconds(scaled(sku, path, factor), "gemm", **shape)
    assert faster <= seconds(CATALOGUE.device(sku), "gemm", **shape) * ROUNDING


@given(sku=st.sampled_from(FPGAS), count=st.integers(1, 10**6), more=st.integers(1, 10**6))
def test_commands_in_flight_take_longer_together_and_no_longer_each(sku: str, count: int, more: int) -> None:
    device = CATALOGUE.device(sku)
    few, many = (seconds(device, "launch", count=n) for n in (count, count + more))
    assert few <= many * ROUNDING
    assert many / (count + more) <= few / count * ROUNDING


def _requests(sku: str) -> list[tuple[str, dict[str, object], str]]:
    """Operation, choices and the parameter of the engines' rate of what the device has an engine for."""
    device = CATALOGUE.device(sku)
    prefix = "bulk_bytes_s." if sku in QATS else "engine_bytes_s."
    signs = "sign_rate." if sku in QATS else "engine_sign_rate."
    found: list[tuple[str, dict[str, object], str]] = []
    for path in device.values:
        service = path.removeprefix(prefix)
        if path.startswith(prefix):
            op, _, word = service.partition("_")
            found.append((op, {"mode" if op == "aes" else "codec": word}, path))
        elif path.startswith(signs):
            found.append(("sign", {"scheme": path.removeprefix(signs)}, path))
    return found


REQUESTS = [(sku, *request) for sku in QATS + DPUS for request in _requests(sku)]


@given(
    request=st.sampled_from(REQUESTS),
    size=st.integers(1, 1 << 24),
    in_flight=st.integers(1, 2000),
    more=st.integers(0, 2000),
    dispatch=st.sampled_from(["device", "graph", "eager"]),
)
def test_rate_never_falls_with_requests_in_flight_and_never_exceeds_the_engines(
    request: tuple[str, str, dict[str, object], str], size: int, in_flight: int, more: int, dispatch: str
) -> None:
    sku, op, choices, path = request
    device = CATALOGUE.device(sku)
    amount: dict[str, object] = {"count": size} if op == "sign" else {"bytes": size}
    fewer, deeper = (
        seconds(device, op, **choices, **amount, in_flight=depth, dispatch=dispatch)
        for depth in (in_flight, in_flight + more)
    )
    assert deeper <= fewer * ROUNDING
    rated = device.number(*path.split("."))
    assert rated is not None
    assert size / deeper <= rated * ROUNDING


@given(
    request=st.sampled_from([*REQUESTS, *((sku, op, {}, "") for sku in DPUS for op in ("packets", "rdma", "storage"))]),
    size=st.integers(1, 1 << 24),
    more=st.integers(0, 1 << 20),
    in_flight=st.integers(1, 500),
)
def test_more_bytes_or_more_of_them_never_take_less(
    request: tuple[str, str, dict[str, object], str], size: int, more: int, in_flight: int
) -> None:
    sku, op, choices, _path = request
    device = CATALOGUE.device(sku)
    amounts: list[dict[str, object]]
    if op in ("packets", "rdma", "storage"):
        amounts = [
            {"count": 1000, "bytes": size},
            {"count": 1000, "bytes": size + more},
            {"count": 1999, "bytes": size},
        ]
    elif op == "sign":
        amounts = [{"count": size, "in_flight": in_flight}, {"count": size + more, "in_flight": in_flight}]
    else:
        amounts = [{"bytes": size, "in_flight": in_flight}, {"bytes": size + more, "in_flight": in_flight}]
    first, *larger = (seconds(device, op, **choices, **amount) for amount in amounts)
    assert all(first <= other * ROUNDING for other in larger)


@pytest.mark.parametrize(
    ("sku", "dispatch"),
    [*((sku, "eager") for sku in TPUS + FPGAS), *((sku, "graph") for sku in (*TPUS, "alveo-u250"))],
)
def test_what_a_context_adds_is_the_api_s_and_the_same_for_every_size(sku: str, dispatch: str) -> None:
    device = CATALOGUE.device(sku)
    added = []
    for edge in (64, 512, 4096):
        shape = {"m": edge, "n": edge, "k": edge, "dtype": "float32"}
        added.append(seconds(device, "gemm", **shape, dispatch=dispatch) - seconds(device, "gemm", **shape))
    assert added[0] > 0
    assert added == pytest.approx([added[0]] * 3, rel=1e-6)
