"""A processor: cores of a certain SIMD width and clock that share one memory, and threads that must be woken.

Work runs on one thread or on all of them, whichever is sooner: waking a pool costs microseconds, so small
operations stay on one core and see one core's bandwidth. Above that, cores multiply arithmetic and share memory.
Encryption is paced by the AES instructions: independent blocks (gcm, ctr) fill the pipelines, a chain (cbc) waits out
every round's latency.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Kind, Parameter, Parameters, Raw
from windtunnel.core.ops import (
    BYTES_PER_ELEMENT,
    CODECS,
    Attention,
    Elementwise,
    Fft,
    FloatArray,
    Gemm,
    Rows,
    Stencil,
    VectorAdd,
)
from windtunnel.core.provenance import Provenance, Sourced, assumed
from windtunnel_models.kinds._cpu_drivers import DRIVERS, driven_s
from windtunnel_models.kinds._cpu_drivers import PARAMETERS as DRIVER_PARAMETERS
from windtunnel_models.kinds._shared import (
    COMMON,
    EXACT,
    active_power_w,
    api_time_s,
    launched_s,
    limit,
    power_shares,
    service,
)

DTYPES = ("float32", "float16", "bfloat16", "int8")
SCHEMES = ("rsa2048", "ecdsa_p256")
CODEC_KEYS = tuple(f"{way}_{codec}" for way in ("compress", "decompress") for codec in CODECS)
KERNELS = ("gemm", "attention", "elementwise", "stencil", "fft")
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
"""Vector instructions an element: divisions at their reciprocal rate, transcendentals as polynomials."""

_HOST = "measured on the project's host (two virtual Zen 4 cores), BACKENDS.md"
_FLUID = (
    "ProjectPhysX/FluidX3D README: 153 bytes an update, median of nine server processors (0.39 to 0.74), "
    "the EPYC 9654 not among them"
)
_ISSUES = "intel/QAT_Engine issues 71, 132 and 232: 939 to 1316 sign/s in software, Xeons of 2014 to 2021"


def _published(value: float, source: str, low: float | None = None, high: float | None = None) -> Sourced:
    return Sourced(value, Provenance.PUBLISHED, source, low, high)


_PARAMETERS = (
    *COMMON,
    Parameter("cores", "1", "physical cores", required=True),
    Parameter("threads", "1", "threads that an operation may use; all cores unless given"),
    Parameter(
        "clock_hz",
        "Hz",
        "clock: guaranteed, of one busy core, of all",
        keys=("base", "boost", "all_core"),
        required=True,
    ),
    Parameter("simd_bits", "1", "width of the vector registers in use", required=True),
    Parameter("fma_units", "1", "vector multiply-adds of that width a core starts each cycle", required=True),
    Parameter(
        "dtype_rate",
        "1",
        "multiply-adds of a type a cycle, beside float32's",
        keys=DTYPES,
        defaults={
            "float32": Sourced(1.0, Provenance.DATASHEET, "by definition"),
            "float16": assumed(0.9, 0.5, 2.0, "converted to float32 in registers, unless AVX512-FP16 is there"),
            "bfloat16": assumed(1.0, 0.5, 2.0, "converted to float32 in registers, unless AVX512-BF16 is there"),
            "int8": assumed(1.0, 0.5, 4.0, "widened, unless VNNI is there"),
        },
    ),
    Parameter(
        "kernel_efficiency",
        "1",
        "attained fraction of the vector units' peak when data is at hand",
        keys=KERNELS,
        defaults={
            "gemm": assumed(
                0.75, 0.4, 0.92, "a tuned BLAS attains 0.8 to 0.9 on large squares, much less on thin ones"
            ),
            "attention": assumed(0.4, 0.15, 0.7, "softmax between two small products"),
            "elementwise": assumed(0.5, 0.2, 0.9, "loads and stores share issue slots with arithmetic"),
            "stencil": assumed(0.25, 0.1, 0.5, "eight operations for eight loads a cell"),
            "fft": assumed(0.15, 0.05, 0.3, "shuffles and strided passes"),
        },
    ),
    Parameter("memory_bytes", "B", "memory of the machine", required=True),
    Parameter("memory_bytes_s", "B/s", "peak rate of memory, all channels", required=True),
    Parameter(
        "memory_efficiency",
        "1",
        "attained fraction of it, all cores busy",
        default=_published(0.465, _FLUID, 0.385, 0.8),
    ),
    Parameter(
        "core_bytes_s",
        "B/s",
        "what one core draws from memory",
        default=assumed(20e9, 10e9, 40e9, "a core's outstanding misses over the latency of memory"),
    ),
    Parameter("llc_bytes", "B", "last-level cache", required=True),
    Parameter(
        "llc_core_bytes_s",
        "B/s",
        "what one core draws from the last-level cache",
        default=assumed(40e9, 20e9, 100e9, "10 to 30 bytes a cycle at 3 to 4 GHz"),
    ),
    Parameter(
        "wake_s",
        "s",
        "waking a pool of threads and meeting at its barrier",
        default=assumed(6e-6, 1e-6, 60e-6, "spinning pools answer in one microsecond, sleeping ones in fifty"),
    ),
    Parameter(
        "aes_blocks_per_cycle",
        "1",
        "AES rounds a core starts each cycle (AES-NI 1 or 2, VAES 4); 0 without the instructions",
        required=True,
    ),
    Parameter(
        "aes_latency_cycles",
        "1",
        "cycles from one round of a block to its next",
        default=assumed(4, 3, 7, "3 on recent Intel, 4 on Zen, 7 on Haswell and before"),
    ),
    Parameter(
        "aes_efficiency",
        "1",
        "attained fraction of the AES units, authentication included",
        default=_published(0.62, f"{_HOST}: AES-256-GCM 10.5 GB/s of 16.9 at 1 MiB", 0.4, 0.95),
    ),
    Parameter(
        "aes_software_bytes_s",
        "B/s",
        "one core without AES instructions, 256-bit keys",
        default=_published(
            0.2e9, "intel/QAT_Engine issue 132: 0.39 GB/s of two processes, AES-NI disabled", 0.1e9, 0.3e9
        ),
    ),
    Parameter(
        "crypto_call_s",
        "s",
        "entering a cryptographic library once",
        default=_published(0.78e-6, f"{_HOST}: 3.5 GB/s at 4 KiB against 10.5 at 1 MiB", 0.1e-6, 2e-6),
    ),
    Parameter(
        "codec_bytes_s",
        "B/s",
        "one core, level 1, uncompressed bytes",
        keys=CODEC_KEYS,
        defaults={
            "compress_deflate": _published(0.48e9, f"{_HOST}: isal", 0.2e9, 0.8e9),
            "compress_lz4": assumed(0.65e9, 0.4e9, 0.9e9, "lz4 claims 0.5 to 0.8 GB/s a core on mixed data"),
            "compress_zstd": assumed(0.45e9, 0.3e9, 0.6e9, "zstd claims 0.4 to 0.5 GB/s a core at level 1"),
            "decompress_deflate": assumed(0.45e9, 0.25e9, 1.2e9, "zlib 0.3 to 0.4, isal and libdeflate up to 1.2 GB/s"),
            "decompress_lz4": assumed(3.5e9, 2e9, 5e9, "lz4 claims 3 to 5 GB/s a core"),
            "decompress_zstd": assumed(1.3e9, 0.8e9, 2e9, "zstd claims 1 to 1.7 GB/s a core"),
        },
    ),
    Parameter(
        "level_growth",
        "1",
        "factor on the time of compression for each level above the first",
        keys=CODECS,
        defaults={
            "deflate": _published(1.64, f"{_HOST}: isal 0.48 GB/s, zlib at level 6 0.04", 1.3, 1.8),
            "lz4": assumed(1.3, 1.1, 1.6, "levels above 2 search as deeply as deflate does"),
            "zstd": assumed(1.35, 1.2, 1.5, "level 19 is some two hundred times slower than level 1"),
        },
    ),
    Parameter(
        "sign_rate",
        "/s",
        "signatures a second of one core",
        keys=SCHEMES,
        defaults={
            "rsa2048": _published(1316.0, _ISSUES, 900.0, 3000.0),
            "ecdsa_p256": assumed(40e3, 15e3, 70e3, "OpenSSL's assembly for P-256 on recent cores"),
        },
    ),
    Parameter(
        "packet_rate",
        "/s",
        "packets a second that one core forwards through the kernel",
        default=_published(0.56e6, f"{_HOST}: AF_PACKET over a veth pair; XDP 1.2 M/s", 0.3e6, 1.2e6),
    ),
    Parameter(
        "packet_cores",
        "1",
        "cores that forward packets",
        default=assumed(1, 1, 4, "one receive queue, unless the adapter is told to spread"),
    ),
    Parameter(
        "network_bytes_s",
        "B/s",
        "network adapter, each way",
        default=assumed(12.5e9, 1.25e9, 50e9, "100 Gbit/s: what servers of this class are sold with"),
    ),
    Parameter(
        "network_latency_s",
        "s",
        "a message from one machine to the next",
        default=assumed(15e-6, 2e-6, 50e-6, "kernel networking 10 to 50 us; RDMA 2"),
    ),
    Parameter(
        "round_trip_s",
        "s",
        "an empty kernel launched and waited for, by API",
        keys=("native", *DRIVERS),
        defaults={
            "native": _published(0.5e-6, f"{_HOST}: an empty compiled function called from Python", 0.05e-6, 1e-6),
            "opencl": _published(
                107e-6, "clpeak launch_transfer.csv: PoCL on EPYC 7662, 7663, 7A53 186, 107, 108 us", 24e-6, 186e-6
            ),
            "vulkan": _published(159e-6, f"{_HOST}: lavapipe, Mesa 22.3.6", 120e-6, 190e-6),
            "wgpu": _published(312e-6, f"{_HOST}: wgpu on lavapipe, Mesa 22.3.6", 100e-6, 400e-6),
        },
    ),
    Parameter(
        "compile_s",
        "s",
        "compiling a small kernel at first use, by API",
        keys=("opencl",),
        defaults={
            "opencl": _published(50e-3, f"{_HOST}: PoCL compiles 35 to 64 ms at the first enqueue", 35e-3, 64e-3)
        },
    ),
    *DRIVER_PARAMETERS,
    power_shares(base=0.2, cores=0.65, memory=0.15),
)


def threads_of(p: Parameters) -> float:
    """Threads an operation may use: as stated, else one a core."""
    stated = p.maybe("threads")
    cores = p("cores")
    return cores if stated is None else min(stated, cores)


def clock_hz(p: Parameters, rows: Rows, threads: npt.ArrayLike) -> FloatArray:
    """Clock (Hz) of ``threads`` busy cores: guaranteed if sustained, else from one core's boost down to all cores'."""
    if rows.choices.get("clock") == "sustained":
        return np.asarray(p("clock_hz", "base"))
    boost, all_core = p("clock_hz", "boost"), p("clock_hz", "all_core")
    busy = (np.asarray(threads, dtype=np.float64) - 1.0) / max(p("cores") - 1.0, 1.0)
    return np.asarray(boost + (all_core - boost) * busy)


def peak_flops(p: Parameters, rows: Rows, threads: npt.ArrayLike, dtype: str) -> FloatArray:
    """Peak of the vector units (FLOP/s): cores x clock x lanes x units x 2, float32 lanes of 32 bits."""
    if dtype not in DTYPES:
        raise p.refuse(f"does not run {dtype}: no instruction takes it", expected="one of " + ", ".join(DTYPES))
    lanes = p("simd_bits") / 32.0
    return 2.0 * np.asarray(threads) * clock_hz(p, rows, threads) * lanes * p("fma_units") * p("dtype_rate", dtype)


def _bandwidth(p: Parameters, rows: Rows, threads: npt.ArrayLike) -> FloatArray:
    """What ``threads`` draw together (B/s): their own limits, and the memory (or, warm, cache) that they share."""
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
) -> Raw:
    """Arithmetic beside memory traffic, on one thread or on as many as there are parts, whichever is sooner."""
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
    return Raw(duration, active_power_w(p, shares), np.where(extra_s > device_s, "launch", named))


def _driven(p: Parameters, rows: Rows, compute_s: FloatArray, launches_s: FloatArray, *, memory_s: FloatArray) -> Raw:
    """A plain kernel behind a software driver: all cores, its launches beside it."""
    busy, bound = limit(compute=compute_s, memory=memory_s)
    extra_s = launches_s + api_time_s(p, rows)
    duration = busy + extra_s
    shares = {"cores": threads_of(p) / p("cores") * busy / duration, "memory": memory_s / duration}
    return Raw(duration, active_power_w(p, shares), np.where(extra_s > busy, "launch", bound))


def _gemm(p: Parameters, rows: Rows) -> Raw:
    moved = Gemm.operand_bytes(rows.choices, rows.numbers)
    return _work(p, rows, "gemm", rows.choices["dtype"], flops=Gemm.flops(rows.numbers), moved=moved)


def _attention(p: Parameters, rows: Rows) -> Raw:
    c = rows.choices
    if c["kv_dtype"] not in DTYPES:
        raise p.refuse(f"does not run {c['kv_dtype']} keys and values", expected="one of " + ", ".join(DTYPES))
    moved = Attention.operand_bytes(c, rows.numbers)
    return _work(p, rows, "attention", c["dtype"], flops=Attention.flops(c, rows.numbers), moved=moved)


def _elementwise(p: Parameters, rows: Rows) -> Raw:
    c, n = rows.choices, rows.numbers
    # A form spelt with u takes one array operand: fewer bytes, the same instructions.
    op = c["op"] if c["op"] in _OPS_PER_ELEMENT else c["op"].removesuffix("u")
    # The peak counts a multiply-add as two; a vector instruction here is one.
    flops = 2.0 * n["rows"] * n["width"] * _OPS_PER_ELEMENT[op]
    return _work(p, rows, "elementwise", c["dtype"], flops=flops, moved=Elementwise.operand_bytes(c, n))


def _vector_add(p: Parameters, rows: Rows) -> Raw:
    c, n = rows.choices, rows.numbers
    return _work(p, rows, "elementwise", c["dtype"], flops=2.0 * n["n"], moved=VectorAdd.operand_bytes(c, n))


def _kernel(p: Parameters, rows: Rows) -> Raw:
    c, n = rows.choices, rows.numbers
    return _work(p, rows, "elementwise", c["dtype"], flops=n["flops"], moved=n["bytes"])


def _stencil(p: Parameters, rows: Rows) -> Raw:
    c, n = rows.choices, rows.numbers
    return _work(p, rows, "stencil", c["dtype"], flops=8.0 * Stencil.cells(n), moved=Stencil.operand_bytes(c, n))


def _fft(p: Parameters, rows: Rows) -> Raw:
    c, n = rows.choices, rows.numbers
    # One transform that outgrows the cache passes over memory twice (four-step algorithm).
    one = 2.0 * n["n"] * BYTES_PER_ELEMENT[c["dtype"]]
    passes = np.where(one > p("llc_bytes"), 2.0, 1.0)
    # pocketfft, which SciPy calls, gives its threads whole transforms: one alone is one thread's.
    return _work(
        p, rows, "fft", c["dtype"], flops=Fft.flops(n), moved=passes * Fft.operand_bytes(c, n), parts=n["batch"]
    )


def _copy(p: Parameters, rows: Rows) -> Raw:
    """A memory copy, whatever its direction: host and device are one; each byte is read and written.

    Between host and device an API charges for it all the same; on the host itself it is a call.
    """
    raw = _work(p, rows, "elementwise", "float32", flops=np.zeros(()), moved=2.0 * rows.numbers["bytes"])
    setup_s = p("driver_copy_s", p.api) if rows.choices["direction"] == "d2d" else p.api_cost("copy_setup_s")
    share = raw.duration_s / (raw.duration_s + setup_s)
    power_w = p("idle_power_w") + (raw.power_w - p("idle_power_w")) * share
    return Raw(raw.duration_s + setup_s, power_w, np.where(share < 0.5, "launch", raw.bound))


def _launch(p: Parameters, rows: Rows) -> Raw:
    return Raw(launched_s(p, rows), active_power_w(p, {"cores": 1.0 / p("cores")}), np.asarray("launch"))


def _between(p: Parameters, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Rate (B/s) and latency (s) from one worker to the next: through memory in one machine, else the network."""
    n = rows.numbers
    inside = n["workers"] <= n["devices_per_node"]
    memory = p("memory_bytes_s") * p("memory_efficiency") / 2.0
    rate = np.where(inside, memory / np.maximum(n["workers"], 1.0), p("network_bytes_s"))
    return rate, np.where(inside, p("wake_s"), p("network_latency_s"))


def _linked(p: Parameters, rows: Rows, link_s: FloatArray) -> Raw:
    extra_s = api_time_s(p, rows)
    shares: Mapping[str, npt.ArrayLike] = {"cores": 1.0 / p("cores"), "memory": 0.5}
    return Raw(link_s + extra_s, active_power_w(p, shares), np.asarray("link"))


def _all_reduce(p: Parameters, rows: Rows) -> Raw:
    """A ring: 2 (w-1) steps of bytes/w each; one worker has nothing to reduce but still reads its own."""
    n = rows.numbers
    rate, latency = _between(p, rows)
    steps = 2.0 * (n["workers"] - 1.0)
    own = n["bytes"] / (p("memory_bytes_s") * p("memory_efficiency"))
    return _linked(p, rows, own + steps * (latency + n["bytes"] / n["workers"] / rate))


def _send_recv(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    inside = n["workers"] <= n["devices_per_node"]
    _, latency = _between(p, rows)
    memory = np.minimum(p("core_bytes_s"), p("memory_bytes_s") * p("memory_efficiency")) / 2.0
    return _linked(p, rows, latency + n["bytes"] / np.where(inside, memory, p("network_bytes_s")))


def _requests(p: Parameters, rows: Rows, each: FloatArray, moved: npt.ArrayLike, bound: str) -> Raw:
    """``in_flight`` requests side by side, a thread each: the time one costs, unless they share memory's rate."""
    busy_threads = np.minimum(rows.numbers["in_flight"], threads_of(p))
    memory = np.asarray(moved) / _bandwidth(p, rows, busy_threads)
    device_s, named = limit(**{bound: each / busy_threads, "memory": memory})
    extra_s = api_time_s(p, rows) / busy_threads
    duration = device_s + extra_s
    shares = {"cores": busy_threads / p("cores"), "memory": memory / duration}
    return Raw(duration, active_power_w(p, shares), np.where(extra_s > device_s, "launch", named))


def aes_bytes_s(p: Parameters, rows: Rows, threads: npt.ArrayLike) -> FloatArray:
    """Encryption by one core (B/s): independent blocks units x 16 B x clock / rounds; a chain waits out each round."""
    rounds = _AES_ROUNDS[rows.choices["key_bits"]]
    units = p("aes_blocks_per_cycle")
    if units == 0.0:
        return np.asarray(p("aes_software_bytes_s") * _ROUNDS_256 / rounds)
    clock = clock_hz(p, rows, threads)
    if rows.choices["mode"] == "cbc":
        return _AES_BLOCK_BYTES * clock / (rounds * p("aes_latency_cycles"))
    return units * _AES_BLOCK_BYTES * clock / rounds * p("aes_efficiency")


def _aes(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    rate = aes_bytes_s(p, rows, np.minimum(n["in_flight"], threads_of(p)))
    return _requests(p, rows, p("crypto_call_s") + n["bytes"] / rate, 2.0 * n["bytes"], "compute")


def _codec(p: Parameters, rows: Rows) -> Raw:
    n, codec = rows.numbers, rows.choices["codec"]
    each = n["bytes"] / p("codec_bytes_s", f"{rows.op.name}_{codec}")
    if rows.op.name == "compress":
        each = each * p("level_growth", codec) ** (n["level"] - 1.0)
    return _requests(p, rows, p("crypto_call_s") + each, 1.5 * n["bytes"], "compute")


def _sign(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    return _requests(p, rows, n["count"] / p("sign_rate", rows.choices["scheme"]), 0.0, "compute")


def _packets(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    cores = min(p("packet_cores"), threads_of(p))
    busy, bound = limit(
        packets=n["count"] * (1.0 / p("packet_rate") + 2.0 * n["bytes"] / p("core_bytes_s")) / cores,
        link=n["count"] * (n["bytes"] + 20.0) / p("network_bytes_s"),
    )
    duration = busy + api_time_s(p, rows)
    return Raw(duration, active_power_w(p, {"cores": cores / p("cores")}), bound)


_SPREAD = "efficiencies vary with library, shape and neighbours; their ranges widen the interval further"

KIND = Kind(
    name="cpu",
    doc="cores, SIMD and AES instructions, shared memory, threads that must be woken",
    parameters=_PARAMETERS,
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
        "all_reduce": _all_reduce,
        "send_recv": _send_recv,
        "aes": _aes,
        "compress": _codec,
        "decompress": _codec,
        "sign": _sign,
        "packets": _packets,
        "service": service,
    },
    errors={
        **{
            op: assumed(1.4, 1.2, 2.5, _SPREAD)
            for op in (
                "gemm",
                "attention",
                "elementwise",
                "vector_add",
                "kernel",
                "stencil",
                "fft",
                "copy",
                "launch",
                "all_reduce",
                "send_recv",
                "packets",
            )
        },
        **{op: assumed(1.3, 1.1, 2.0, _SPREAD) for op in ("aes", "sign")},
        **{op: assumed(1.6, 1.2, 3.0, f"{_SPREAD}; data matters most") for op in ("compress", "decompress")},
        "service": EXACT,
    },
)
