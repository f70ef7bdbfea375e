"""Laws of the CPU kind: SIMD, cores, shared memory, AES instructions, threads that must be woken; and the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.cases import check_all
from tests.conftest import AVX512

from windtunnel.core.device import Cost, Device
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.ops import ELEMENTWISE_OPS, OPERATIONS, one_row
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models import host
from windtunnel_models.catalogue import Catalogue

SKUS = [spec.sku for spec in Catalogue().specs() if spec.kind == "cpu"]
EXAMPLES = {
    "gemm": {"m": 2048, "n": 2048, "k": 2048, "dtype": "float32"},
    "attention": {"phase": "prefill", "batch": 1, "heads": 8, "kv_heads": 8, "head_dim": 64, "kv_tokens": 512},
    "elementwise": {"op": "softmax", "rows": 2048, "width": 2048},
    "vector_add": {"n": 1 << 26},
    "stencil": {"nx": 512, "ny": 512, "nz": 512},
    "fft": {"n": 4096, "batch": 64},
    "copy": {"bytes": 1 << 24, "direction": "d2d"},
    "launch": {},
    "all_reduce": {"bytes": 1 << 20, "workers": 4},
    "all_gather": {"bytes": 1 << 20, "workers": 4},
    "reduce_scatter": {"bytes": 1 << 20, "workers": 4},
    "all_to_all": {"bytes": 1 << 20, "workers": 4},
    "send_recv": {"bytes": 1 << 20, "workers": 16},
    "aes": {"bytes": 1 << 20},
    "compress": {"bytes": 65536},
    "decompress": {"bytes": 65536},
    "sign": {},
    "packets": {"count": 1000, "bytes": 64},
    "storage": {},
    "service": {"mean": 1e-3},
}


@pytest.fixture
def _small_host(describe_host: Callable[..., None]) -> None:
    """Two cores, like the machine on which the kernels behind drivers were measured."""
    describe_host()


def device(sku: str = "epyc-9654", **changed: float) -> Device:
    overlay = {
        path.replace("__", "."): SourcedValue(value, Provenance.DATASHEET, "the test")
        for path, value in changed.items()
    }
    return Catalogue().device(sku, overlay=overlay)


def cost(of: Device, op: str, /, **values: object) -> Cost:
    return of.cost(one_row(OPERATIONS.find(op), {**EXAMPLES[op], **values}))


@pytest.mark.parametrize("sku", SKUS)
@pytest.mark.parametrize("op", EXAMPLES)
def test_every_processor_answers_every_operation_with_a_finite_positive_cost(sku: str, op: str) -> None:
    answer = cost(device(sku), op)
    for column in (answer.duration_s, answer.power_w, answer.energy_j):
        assert np.all(np.isfinite(column)) and np.all(column > 0)
    assert np.all(answer.duration_low_s <= answer.duration_s) and np.all(answer.duration_s <= answer.duration_high_s)
    assert np.allclose(answer.energy_j, answer.power_w * answer.duration_s)


@pytest.mark.parametrize("op", ELEMENTWISE_OPS)
def test_every_elementwise_form_is_answered(op: str) -> None:
    assert cost(device(), "elementwise", op=op).duration_s[0] > 0


@pytest.mark.parametrize("api", ["native", "opencl", "wgpu", "vulkan"])
def test_the_host_is_reached_through_each_of_its_apis(api: str) -> None:
    processor = Catalogue().device(f"host@{api}")
    for op in ("gemm", "vector_add", "copy", "launch"):
        assert cost(processor, op, dispatch="eager").duration_s[0] > 0


def test_an_eager_call_through_opencl_pays_what_pocl_was_measured_at() -> None:
    native, opencl = (Catalogue().device(f"epyc-9654@{api}") for api in ("native", "opencl"))
    small = {"n": 1024, "dispatch": "eager"}
    extra = cost(opencl, "vector_add", **small).duration_s[0] - cost(native, "vector_add", **small).duration_s[0]
    assert extra == pytest.approx(107e-6, rel=0.01)


def test_twice_the_simd_width_halves_a_product() -> None:
    narrow, wide = (cost(device(simd_bits=bits, wake_s=0.0), "gemm").duration_s[0] for bits in (256.0, 512.0))
    assert narrow == pytest.approx(2 * wide)


def test_cores_multiply_arithmetic_but_share_memory_where_a_roofline_knows_neither() -> None:
    plain = {"wake_s": 0.0, "clock_hz__boost": 3e9, "clock_hz__all_core": 3e9}
    product = [cost(device(threads=threads, **plain), "gemm").duration_s[0] for threads in (1.0, 2.0, 96.0)]
    assert product[0] == pytest.approx(2 * product[1]) == pytest.approx(96 * product[2])
    stream = [cost(device(threads=threads, **plain), "vector_add").duration_s[0] for threads in (1.0, 2.0, 48.0, 96.0)]
    assert stream[0] == pytest.approx(2 * stream[1])
    assert stream[2] == stream[3]


def test_clock_falls_from_boost_to_all_cores_and_to_base_in_a_sustained_loop() -> None:
    burst, sustained = (cost(device(), "gemm", clock=clock).duration_s[0] for clock in ("burst", "sustained"))
    wake = device().number("wake_s") or 0.0
    assert (sustained - wake) / (burst - wake) == pytest.approx(3.3 / 2.4, rel=1e-6)
    single = [cost(device(threads=1.0), "sign", clock=clock).duration_s[0] for clock in ("burst", "sustained")]
    assert single[0] > 0 and single[1] > 0


def test_small_work_stays_on_one_thread_rather_than_wake_the_others() -> None:
    processor = device()
    wake = processor.number("wake_s") or 0.0
    assert cost(processor, "vector_add", n=1000).duration_s[0] < wake / 5
    assert cost(processor, "vector_add", n=1 << 26).duration_s[0] > wake
    assert cost(processor, "vector_add", n=1000).power_w[0] < cost(processor, "gemm").power_w[0]


def test_a_transform_takes_one_thread_and_many_take_as_many_as_they_are() -> None:
    def seconds_of(threads: int, batch: int) -> float:
        return float(cost(device(threads=threads, wake_s=0.0), "fft", n=1 << 18, batch=batch).duration_s[0])

    one = seconds_of(1, 1)
    assert seconds_of(64, 1) == one
    # Eight on 64 threads occupy eight of them, beside one another; the clock of more busy cores is lower.
    assert one <= seconds_of(64, 8) < 1.2 * one
    assert seconds_of(64, 8) == pytest.approx(seconds_of(8, 8))


def test_operands_in_the_last_level_cache_are_faster_only_if_they_fit() -> None:
    processor = device()
    fits, does_not = {"n": 1 << 22}, {"n": 1 << 28}
    cold, warm = (cost(processor, "vector_add", cache=state, **fits).duration_s[0] for state in ("cold", "warm"))
    assert warm < cold / 2
    cold, warm = (cost(processor, "vector_add", cache=state, **does_not).duration_s[0] for state in ("cold", "warm"))
    assert warm == cold


def test_aes_instructions_make_encryption_many_times_faster() -> None:
    with_them, without = cost(device(), "aes"), cost(device(aes_blocks_per_cycle=0.0), "aes")
    assert without.duration_s[0] > 20 * with_them.duration_s[0]


def test_a_chain_of_blocks_waits_out_each_round_while_a_counter_fills_the_units() -> None:
    processor = device(crypto_call_s=0.0)
    chain, counter = (cost(processor, "aes", mode=mode, cache="warm").duration_s[0] for mode in ("cbc", "ctr"))
    assert chain / counter == pytest.approx(4 * 4 * 0.62)
    short = cost(processor, "aes", mode="ctr", key_bits="128", cache="warm").duration_s[0]
    assert counter / short == pytest.approx(14 / 10)


def test_requests_in_flight_use_a_core_each_up_to_the_cores() -> None:
    processor = device(clock_hz__all_core=3.7e9)
    one, ten, all_of_them, more = (cost(processor, "sign", in_flight=n).duration_s[0] for n in (1, 10, 96, 500))
    assert one == pytest.approx(10 * ten) == pytest.approx(96 * all_of_them)
    assert more == all_of_them


def test_each_level_of_compression_costs_its_factor() -> None:
    processor = device(crypto_call_s=0.0)
    fast, deep = (cost(processor, "compress", level=level).duration_s[0] for level in (1, 6))
    assert deep / fast == pytest.approx(1.64**5)


def test_native_bfloat16_doubles_the_rate_of_a_product() -> None:
    processor = device(wake_s=0.0)
    float32, bfloat16 = (cost(processor, "gemm", dtype=dtype).duration_s[0] for dtype in ("float32", "bfloat16"))
    assert float32 == pytest.approx(2 * bfloat16)


@pytest.mark.parametrize("dtype", ["tf32", "fp8", "fp8_block", "nvfp4"])
def test_types_without_instructions_are_refused_by_name(dtype: str) -> None:
    with pytest.raises(UnsupportedOperationError, match=dtype):
        cost(device(), "gemm", dtype=dtype)


def test_rdma_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperationError, match="rdma"):
        device().cost_function("rdma")


def test_the_host_is_the_last_sku_and_is_probed_without_a_child_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Catalogue().skus()[-1] == "host"
    monkeypatch.setattr("subprocess.Popen", None)
    spec = host.host_spec.__wrapped__()
    assert spec.kind == "cpu" and spec.apis[0] == "native"
    assert spec.values["cores"].value >= 1
    assert spec.values["memory_bytes"].value > 1e8


def test_what_was_probed_says_so_and_the_rest_is_assumed_with_a_range() -> None:
    for value in Catalogue().spec("host").values.values():
        if value.provenance is Provenance.MEASURED:
            assert value.source == "probed on this host"
        else:
            assert value.provenance is Provenance.ASSUMED and value.low is not None and value.high is not None


@pytest.mark.parametrize("platform", ["linux", "darwin", "plan9"])
def test_a_host_that_says_nothing_is_still_described(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(host.sys, "platform", platform)
    monkeypatch.setattr(host, "_read", lambda _path: "")
    monkeypatch.setattr(host, "_allowed", lambda: None)
    monkeypatch.setattr(host, "_installed", lambda: None)
    spec = host.host_spec.__wrapped__()
    assert spec.values["cores"].provenance is Provenance.ASSUMED
    assert spec.values["memory_bytes"].provenance is Provenance.ASSUMED
    assert spec.name


# Behind drivers for GPUs: plain kernels, in cycles.

BEHIND = ("opencl", "vulkan", "wgpu")
PLAIN = {
    "vector_add": {"n": 1 << 20},
    "elementwise": {"op": "tanh", "rows": 1024, "width": 1024},
    "gemm": {"m": 512, "n": 512, "k": 512, "dtype": "float32"},
    "stencil": {"nx": 512, "ny": 512, "nz": 1},
    "fft": {"n": 4096, "batch": 64},
}


def seconds(of: Device, op: str, /, **values: object) -> float:
    return float(cost(of, op, **{**PLAIN.get(op, {}), **values}).duration_s[0])


@pytest.mark.usefixtures("_small_host")
@pytest.mark.parametrize("api", BEHIND)
def test_a_plain_kernel_takes_its_cycles_on_all_cores_and_its_launch(api: str) -> None:
    of = device(f"host@{api}")
    rate = of.values["cores"].value * of.values["clock_hz.all_core"].value
    cycles = {work: of.values[f"driver_cycles.{api}_{work}"].value for work in ("function", "product", "butterfly")}
    launch_s = of.values[f"driver_launch_s.{api}"].value
    elements = 1024 * 1024
    assert seconds(of, "elementwise") == pytest.approx(
        max(cycles["function"] * elements / rate, 0.0) + launch_s, rel=0.02
    )
    # What lies beyond the matrix within a tile of 64 is worked out all the same.
    product = cycles["product"] * 512**3 / rate + launch_s
    assert seconds(of, "gemm") == pytest.approx(product, rel=0.02)
    assert seconds(of, "gemm", m=449, n=510) == seconds(of, "gemm") > seconds(of, "gemm", m=448)
    transforms = cycles["butterfly"] * 64 * 4096 / 2 * 12 / rate + 12 * launch_s
    assert seconds(of, "fft") == pytest.approx(transforms, rel=0.02)


@pytest.mark.usefixtures("_small_host")
@pytest.mark.parametrize("api", BEHIND)
@pytest.mark.parametrize("op", PLAIN)
def test_on_two_cores_no_operation_behind_a_driver_is_quicker_than_natively(api: str, op: str) -> None:
    """On many cores it may be: the launch that was measured takes less than what is assumed for waking all threads."""
    assert seconds(device(f"host@{api}"), op) > seconds(device("host"), op)


MORE = {"vector_add": {"n": 1 << 22}, "elementwise": {"rows": 4096}, "gemm": {"k": 4096}, "stencil": {"ny": 4096},
        "fft": {"batch": 512}}  # fmt: skip


def test_on_any_host_more_work_behind_a_driver_takes_longer_and_never_less_than_memory_and_the_launch(
    describe_host: Callable[..., None],
) -> None:
    hosts = [
        (cores, clock_hz, llc_bytes, flags)
        for cores in (1, 2, 4, 16, 64, 192)
        for clock_hz in (1e9, 5e9)
        for llc_bytes in (1e6, 500e6)
        for flags in ((), AVX512)
    ]

    def check(stated: Any) -> None:
        describe_host(*stated)
        for api in BEHIND:
            of = device(f"host@{api}")
            launch_s = of.values[f"driver_launch_s.{api}"].value
            rate = of.values["memory_bytes_s"].value * of.values["memory_efficiency"].value
            for op, values in PLAIN.items():
                assert seconds(of, op, **MORE[op]) > seconds(of, op), (api, op)
                operands = OPERATIONS.find(op).operand_bytes
                row = one_row(OPERATIONS.find(op), {**EXAMPLES[op], **values})
                memory_s = float(operands(row.choices, row.numbers)[0]) / rate
                assert seconds(of, op) >= memory_s + launch_s, (api, op)

    check_all(hosts, check)


@pytest.mark.usefixtures("_small_host")
@pytest.mark.parametrize("api", BEHIND)
def test_a_softmax_of_short_rows_is_of_blocks_and_of_long_ones_of_elements(api: str) -> None:
    of, elements = device(f"host@{api}"), 1 << 20
    short, long = (seconds(of, "elementwise", op="softmax", rows=elements // w, width=w) for w in (64, 16384))
    row = of.values[f"driver_cycles.{api}_row"].value
    rate = of.values["cores"].value * of.values["clock_hz.all_core"].value
    assert short - long == pytest.approx(row * (elements / 64 - elements / 16384) / rate, rel=1e-6)


@pytest.mark.usefixtures("_small_host")
@pytest.mark.parametrize("api", BEHIND)
def test_a_copy_between_host_and_driver_costs_what_the_driver_charges_and_within_it_less(api: str) -> None:
    of = device(f"host@{api}")
    small = {way: seconds(of, "copy", bytes=4, direction=way, memory="pageable") for way in ("h2d", "d2h", "d2d")}
    assert small["h2d"] == small["d2h"] == pytest.approx(of.values[f"copy_setup_s.{api}"].value, rel=1e-3)
    assert small["d2d"] == pytest.approx(of.values[f"driver_copy_s.{api}"].value, rel=0.02)
    assert seconds(device("host"), "copy", bytes=4, direction="h2d") < 1e-6


@pytest.mark.usefixtures("_small_host")
def test_what_was_not_measured_behind_drivers_takes_the_library_s_share_as_before() -> None:
    assert seconds(device("host@opencl"), "attention") >= seconds(device("host"), "attention")
