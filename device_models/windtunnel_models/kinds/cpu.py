"""A processor: cores with a SIMD width and a clock, a shared memory, and threads that must be woken.

Work runs on one thread or on all of them, whichever is faster. Waking a pool takes microseconds, so small operations
stay on one core and get the bandwidth of one core. With all threads, arithmetic is proportional to the cores and memory
is shared. The AES instructions limit encryption: independent blocks (gcm, ctr) fill the pipelines, and a chain (cbc)
waits for the latency of every round.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Parameters, RawCost
from windtunnel.core.ops import (
    BYTES_PER_ELEMENT,
    Attention,
    Elementwise,
    Fft,
    FloatArray,
    Gemm,
    Rows,
    Stencil,
    VectorAdd,
)
from windtunnel_models.kinds._cpu_drivers import DRIVERS, driven_s
from windtunnel_models.kinds._shared import active_power_w, api_time_s, launched_s, limit, need_library, service
from windtunnel_models.kinds._tables import read_kind

DTYPES = ("float32", "float16", "bfloat16", "int8")
_AES_ROUNDS = {"128": 10.0, "192": 12.0, "256": 14.0}
_ROUNDS_256 = _AES_ROUNDS["256"]
_AES_BLOCK_BYTES = 16.0
_OPS_PER_ELEMENT = {
    "add": 1.0,
    "mul": 1.0,
    "relu": 1.0,
    "div": 5.0,
    "pow": 60.0,
    "gelu": 40.0,
    "tanh": 30.0,
    "softmax": 30.0,
    "ln": 8.0,
}
"""Vector instructions per element: divisions at their reciprocal rate, transcendentals as polynomials."""


def threads_of(p: Parameters) -> float:
    """Return the threads that an operation may use: as stated, or else one per core."""
    stated = p.get("threads")
    cores = p("cores")
    return cores if stated is None else min(stated, cores)


def clock_hz(p: Parameters, rows: Rows, threads: npt.ArrayLike) -> FloatArray:
    """Return the clock (Hz) with ``threads`` busy cores: guaranteed if sustained, else between boost and all-core."""
    if rows.choices.get("clock") == "sustained":
        return np.asarray(p("clock_hz", "base"))
    boost, all_core = p("clock_hz", "boost"), p("clock_hz", "all_core")
    busy = (np.asarray(threads, dtype=np.float64) - 1.0) / max(p("cores") - 1.0, 1.0)
    return np.asarray(boost + (all_core - boost) * busy)


def peak_flops(p: Parameters, rows: Rows, threads: npt.ArrayLike, dtype: str) -> FloatArray:
    """Return the peak of the vector units (FLOP/s): cores x clock x lanes x units x 2, float32 lanes of 32 bits."""
    if dtype not in DTYPES:
        raise p.unsupported(f"does not run {dtype}: no instruction takes it", expected="one of " + ", ".join(DTYPES))
    lanes = p("simd_bits") / 32.0
    return 2.0 * np.asarray(threads) * clock_hz(p, rows, threads) * lanes * p("fma_units") * p("dtype_rate", dtype)


def _bandwidth(p: Parameters, rows: Rows, threads: npt.ArrayLike) -> FloatArray:
    """Return the bandwidth (B/s) of ``threads``: limited by each core and by memory (or by the cache, if warm)."""
    shared = np.minimum(np.asarray(threads) * p("core_bytes_s"), p("memory_bytes_s") * p("memory_efficiency"))
    if rows.choices.get("cache") != "warm":
        return np.asarray(shared)
    fits = rows.footprint_bytes() <= p("llc_bytes")
    return np.where(fits, np.asarray(threads) * p("llc_core_bytes_s"), shared)


def _work(
    p: Parameters,
    rows: Rows,
    kernel: str,
    dtype: str,
    *,
    flops: FloatArray,
    moved: FloatArray,
    parts: npt.ArrayLike = np.inf,
) -> RawCost:
    """Return the cost of overlapping arithmetic and memory traffic, on one thread or on all, whichever is faster."""
    threads = threads_of(p)
    driven = driven_s(p, rows, threads, clock_hz(p, rows, threads)) if p.api in DRIVERS else None
    if driven is not None:
        return _driven(p, rows, *driven, memory_s=moved / _bandwidth(p, rows, threads))
    runs = []
    shared = np.minimum(threads, parts)
    for busy_threads, wake in ((1.0, 0.0), (shared, p("wake_s"))):
        attained = peak_flops(p, rows, busy_threads, dtype) * p("kernel_efficiency", kernel)
        compute = flops / (attained * p.api_cost("compute_efficiency"))
        memory = moved / _bandwidth(p, rows, busy_threads)
        busy, bound = limit(compute=compute, memory=memory)
        runs.append((busy + wake, np.where(wake > busy, "wake", bound), memory))
    (alone, alone_bound, alone_memory), (together, bound, memory) = runs
    single = alone <= together
    device_s = np.where(single, alone, together)
    extra_s = api_time_s(p, rows)
    duration = device_s + extra_s
    shares = {
        "cores": np.where(single, 1.0, shared) / p("cores") * device_s / duration,
        "memory": np.where(single, alone_memory, memory) / duration,
    }
    named = np.where(single, alone_bound, bound)
    return RawCost(duration, active_power_w(p, shares), np.where(extra_s > device_s, "launch", named))


def _driven(
    p: Parameters, rows: Rows, compute_s: FloatArray, launches_s: FloatArray, *, memory_s: FloatArray
) -> RawCost:
    """Return the cost of a plain kernel behind a software driver: on all cores, plus its launches."""
    busy, bound = limit(compute=compute_s, memory=memory_s)
    extra_s = launches_s + api_time_s(p, rows)
    duration = busy + extra_s
    shares = {"cores": threads_of(p) / p("cores") * busy / duration, "memory": memory_s / duration}
    return RawCost(duration, active_power_w(p, shares), np.where(extra_s > busy, "launch", bound))


def _gemm(p: Parameters, rows: Rows) -> RawCost:
    moved = Gemm.operand_bytes(rows.choices, rows.numbers)
    return _work(p, rows, "gemm", rows.choices["dtype"], flops=Gemm.flops(rows.choices, rows.numbers), moved=moved)


def _attention(p: Parameters, rows: Rows) -> RawCost:
    c = rows.choices
    if c["kv_dtype"] not in DTYPES:
        raise p.unsupported(f"does not run {c['kv_dtype']} keys and values", expected="one of " + ", ".join(DTYPES))
    moved = Attention.operand_bytes(c, rows.numbers)
    return _work(p, rows, "attention", c["dtype"], flops=Attention.flops(c, rows.numbers), moved=moved)


def _elementwise(p: Parameters, rows: Rows) -> RawCost:
    c, n = rows.choices, rows.numbers
    # An operation with the suffix u has one array operand: fewer bytes and the same instructions.
    op = c["op"] if c["op"] in _OPS_PER_ELEMENT else c["op"].removesuffix("u")
    # The peak counts a multiply-add as two operations. A vector instruction here is one.
    flops = 2.0 * n["rows"] * n["width"] * _OPS_PER_ELEMENT[op]
    return _work(p, rows, "elementwise", c["dtype"], flops=flops, moved=Elementwise.operand_bytes(c, n))


def _vector_add(p: Parameters, rows: Rows) -> RawCost:
    c, n = rows.choices, rows.numbers
    return _work(p, rows, "elementwise", c["dtype"], flops=2.0 * n["n"], moved=VectorAdd.operand_bytes(c, n))


def _kernel(p: Parameters, rows: Rows) -> RawCost:
    c, n = rows.choices, rows.numbers
    return _work(p, rows, "elementwise", c["dtype"], flops=n["flops"], moved=n["bytes"])


def _stencil(p: Parameters, rows: Rows) -> RawCost:
    c, n = rows.choices, rows.numbers
    return _work(p, rows, "stencil", c["dtype"], flops=8.0 * Stencil.cells(n), moved=Stencil.operand_bytes(c, n))


def _fft(p: Parameters, rows: Rows) -> RawCost:
    c, n = rows.choices, rows.numbers
    # A transform that exceeds the cache passes over memory twice (four-step algorithm).
    signal_bytes = 2.0 * n["n"] * BYTES_PER_ELEMENT[c["dtype"]]
    passes = np.where(signal_bytes > p("llc_bytes"), 2.0, 1.0)
    # pocketfft, which SciPy uses, gives each thread whole transforms, so a single one uses one thread.
    return _work(
        p, rows, "fft", c["dtype"], flops=Fft.flops(c, n), moved=passes * Fft.operand_bytes(c, n), parts=n["batch"]
    )


def _copy(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of a memory copy in any direction: host and device share memory; each byte is read and written.

    An API charges for a copy between host and device as well; on the host itself it is a call.
    """
    raw = _work(p, rows, "elementwise", "float32", flops=np.zeros(()), moved=2.0 * rows.numbers["bytes"])
    setup_s = p("driver_copy_s", p.api) if rows.choices["direction"] == "d2d" else p.api_cost("copy_setup_s")
    share = raw.duration_s / (raw.duration_s + setup_s)
    power_w = p("idle_power_w") + (raw.power_w - p("idle_power_w")) * share
    return RawCost(raw.duration_s + setup_s, power_w, np.where(share < 0.5, "launch", raw.bound))


def _launch(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of empty calls; a persistent kernel polls on one core."""
    one_core = 1.0 / p("cores")
    persistent = rows.choices["mode"] == "persistent"
    power_w = p.spinning_w(one_core) if persistent else active_power_w(p, {"cores": one_core})
    return RawCost(launched_s(p, rows), np.asarray(power_w), np.asarray("launch"))


def _between(p: Parameters, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Return rate (B/s) and latency (s) from one worker to the next: through memory or the network."""
    n = rows.numbers
    inside = n["workers"] <= n["devices_per_node"]
    memory = p("memory_bytes_s") * p("memory_efficiency") / 2.0
    rate = np.where(inside, memory / np.maximum(n["workers"], 1.0), p("network_bytes_s"))
    return rate, np.where(inside, p("wake_s"), p("network_latency_s"))


def _linked(p: Parameters, rows: Rows, link_s: FloatArray) -> RawCost:
    extra_s = api_time_s(p, rows)
    shares: Mapping[str, npt.ArrayLike] = {"cores": 1.0 / p("cores"), "memory": 0.5}
    return RawCost(link_s + extra_s, active_power_w(p, shares), np.asarray("link"))


def _collective(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of w-1 steps of bytes/w each, twice for an all-reduce; one worker still reads its own data."""
    need_library(p, rows)
    n = rows.numbers
    rate, latency = _between(p, rows)
    steps = (2.0 if rows.op.name == "all_reduce" else 1.0) * (n["workers"] - 1.0)
    own = n["bytes"] / (p("memory_bytes_s") * p("memory_efficiency"))
    return _linked(p, rows, own + steps * (latency + n["bytes"] / n["workers"] / rate))


def _send_recv(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    inside = n["workers"] <= n["devices_per_node"]
    _, latency = _between(p, rows)
    memory = np.minimum(p("core_bytes_s"), p("memory_bytes_s") * p("memory_efficiency")) / 2.0
    return _linked(p, rows, latency + n["bytes"] / np.where(inside, memory, p("network_bytes_s")))


def _requests(p: Parameters, rows: Rows, request_s: FloatArray, moved: npt.ArrayLike, bound: str) -> RawCost:
    """Return the cost of one of ``in_flight`` concurrent requests, one thread each, limited by the shared memory."""
    busy_threads = np.minimum(rows.numbers["in_flight"], threads_of(p))
    memory = np.asarray(moved) / _bandwidth(p, rows, busy_threads)
    device_s, named = limit(**{bound: request_s / busy_threads, "memory": memory})
    extra_s = api_time_s(p, rows) / busy_threads
    duration = device_s + extra_s
    shares = {"cores": busy_threads / p("cores"), "memory": memory / duration}
    return RawCost(duration, active_power_w(p, shares), np.where(extra_s > device_s, "launch", named))


def aes_bytes_s(p: Parameters, rows: Rows, threads: npt.ArrayLike) -> FloatArray:
    """Return the rate (B/s) of encryption on one core: units x 16 B x clock / rounds; a chain waits for every round."""
    rounds = _AES_ROUNDS[rows.choices["key_bits"]]
    units = p("aes_blocks_per_cycle")
    if units == 0.0:
        return np.asarray(p("aes_software_bytes_s") * _ROUNDS_256 / rounds)
    clock = clock_hz(p, rows, threads)
    if rows.choices["mode"] == "cbc":
        return _AES_BLOCK_BYTES * clock / (rounds * p("aes_latency_cycles"))
    return units * _AES_BLOCK_BYTES * clock / rounds * p("aes_efficiency")


def _aes(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    rate = aes_bytes_s(p, rows, np.minimum(n["in_flight"], threads_of(p)))
    return _requests(p, rows, p("crypto_call_s") + n["bytes"] / rate, 2.0 * n["bytes"], "compute")


def _codec(p: Parameters, rows: Rows) -> RawCost:
    n, codec = rows.numbers, rows.choices["codec"]
    stream_s = n["bytes"] / p("codec_bytes_s", f"{rows.op.name}_{codec}")
    if rows.op.name == "compress":
        stream_s = stream_s * p("level_growth", codec) ** (n["level"] - 1.0)
    return _requests(p, rows, p("crypto_call_s") + stream_s, 1.5 * n["bytes"], "compute")


def _sign(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    return _requests(p, rows, n["count"] / p("sign_rate", rows.choices["scheme"]), 0.0, "compute")


def _packets(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    cores = min(p("packet_cores"), threads_of(p))
    busy, bound = limit(
        packets=n["count"] * (1.0 / p("packet_rate") + 2.0 * n["bytes"] / p("core_bytes_s")) / cores,
        link=n["count"] * (n["bytes"] + 20.0) / p("network_bytes_s"),
    )
    duration = busy + api_time_s(p, rows)
    return RawCost(duration, active_power_w(p, {"cores": cores / p("cores")}), bound)


def _storage(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of requests of a software initiator (NVMe over TCP), with one core per request in flight.

    A core handles each request, and copies its data once between the socket and the page cache.
    """
    n = rows.numbers
    cores = np.minimum(n["in_flight"], threads_of(p))
    core_s = 1.0 / p("storage_request_rate") + 2.0 * n["bytes"] / p("core_bytes_s")
    wire_s = n["bytes"] / p("network_bytes_s")
    alone_s = p("network_latency_s") + core_s + wire_s
    request_s, bound = limit(latency=alone_s / n["in_flight"], compute=core_s / cores, link=wire_s)
    # Fewer requests than may be outstanding take at least the time of one.
    device_s = np.maximum(n["count"] * request_s, alone_s)
    duration = device_s + api_time_s(p, rows)
    busy = {"cores": np.minimum(n["count"] * core_s / duration, cores) / p("cores")}
    return RawCost(duration, active_power_w(p, busy), np.where(n["count"] * request_s < alone_s, "latency", bound))


KIND = read_kind(
    "cpu",
    costs={
        "gemm": _gemm,
        "attention": _attention,
        "elementwise": _elementwise,
        "vector_add": _vector_add,
        "kernel": _kernel,
        "stencil": _stencil,
        "fft": _fft,
        "copy": _copy,
        "launch": _launch,
        **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), _collective),
        "send_recv": _send_recv,
        "aes": _aes,
        "compress": _codec,
        "decompress": _codec,
        "sign": _sign,
        "packets": _packets,
        "storage": _storage,
        "service": service,
    },
)
