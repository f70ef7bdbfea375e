"""Memory-bound kernels on a GPU: elementwise operations, stencils and FFT.

Traffic and arithmetic overlap; if they are equal, neither hides the other completely: ``(memory^4 + compute^4)^(1/4)``.
Softmax and layer norm work on rows, whose phases wait for each other, so their exponent is 2. A block of threads takes
an additional time for each row, and long rows are read twice. The numbers were fitted to eager PyTorch on six GPUs
(benchmarks/accuracy/membound.py, with cross-validation over whole devices).
"""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters, RawCost
from windtunnel.core.ops import BYTES_PER_ELEMENT, Elementwise, Fft, FloatArray, Rows, Stencil, VectorAdd
from windtunnel_models.kinds.gpu.kernel import in_context, missing_share, need_type, unit_l2_rate_of, vector_rate
from windtunnel_models.kinds.gpu.power import Activity

_BLOCK_ELEMENTS = 4096
"""The number of elements of a block of a streaming kernel: 256 threads with four loads of four elements each."""

_FFT_POINTS_ON_CHIP = 4096
"""Points of one complex float32 pass that fit in a unit's shared memory (32 KiB)."""

_SHORT_ROW = 1024.0
"""Elements of a row that PyTorch's softmax keeps in the registers of one warp."""

_LONG_ROW = 2048.0
"""The number of elements of a row above which the second read of layer norm comes from memory."""

_OVERLAP = 4.0
_ROW_OVERLAP = 2.0
"""Exponents in ``(memory^x + compute^x)^(1/x)``."""

_ELEMENT_KEYS = {"pow": "pow", "powu": "pow", "gelu": "activation", "tanh": "activation"}

FRAMEWORK_KEYS = {
    **dict.fromkeys(("addu", "mulu", "divu"), "scalar"),
    **{op: op for op in ("powu", "relu", "gelu", "tanh", "softmax", "ln")},
}
"""The key of ``framework_factor`` by operation; operations on two tensors are the reference."""

_ROW_THREADS = 128.0
"""Threads of the block that normalises one row (PyTorch's layer norm)."""

_ROWS_KEPT = (0.3, 0.8)
"""Layer norm reads a long row a second time. If all rows in progress take less than the first share of the last-level
cache, the second read costs no memory traffic; above the second share it does for all rows. From T4 and A100."""

_CACHE_OVER_MEMORY = 1.5
"""The least rate of the last-level cache over that of memory in a streaming kernel: 1.45 on MI100, 1.54 on A100."""

MEMORY_CLASSES = ("hbm", "hbm2e", "early", "gddr", "gddr_ecc", "amd", "intel", "apple")
"""Groups of devices that attain about the same share of their specified bandwidth (see ``memory_class``)."""


def memory_class(p: Parameters) -> str:
    """Return the group of devices with the same attained share of bandwidth, from the datasheet.

    ``hbm``: NVIDIA with stacked memory since Volta; ``hbm2e``: such devices with HBM2e, whose dies were designed for
    slower stacks. ``early``: NVIDIA before Ampere without stacked memory, and Pascal with it, whose controllers attain
    less. ``gddr``: NVIDIA's later boards; ``gddr_ecc``: such boards with error-correction bits in the same memory.
    Others are grouped by vendor.
    """
    vendor = p.vendor.lower()
    if vendor != "nvidia":
        return vendor if vendor in MEMORY_CLASSES else "gddr"
    since = p.lineage.since or 2020
    if p.lineage.stacked_memory and since >= 2017:
        return "hbm2e" if (p.lineage.memory or "").upper() == "HBM2E" else "hbm"
    if since < 2020:
        return "early"
    return "gddr_ecc" if p("inband_ecc") >= 0.5 else "gddr"


def stream_rate(p: Parameters) -> float:
    """Return the attained bandwidth (B/s) of large memory-bound kernels."""
    return p("memory_bandwidth_bytes_per_s") * p("stream_efficiency", memory_class(p))


def cache_rate(p: Parameters, memory_rate: float) -> float:
    """Return the rate (B/s) of a memory-bound kernel whose operands are in the last-level cache."""
    units_rate = p("stream_l2_bytes_per_clock") * p("compute_units") * p("boost_clock_hz")
    return max(units_rate, _CACHE_OVER_MEMORY * memory_rate)


def lane_rate(p: Parameters) -> float:
    """Return the vector instructions per second in float32, over all lanes of all units."""
    return p("vector_flops_per_s", "float32") / 2.0 * p.api_cost("compute_efficiency")


def streaming(
    p: Parameters,
    rows: Rows,
    elements: FloatArray,
    traffic: FloatArray,
    arithmetic_s: FloatArray,
    *,
    rate: float | None = None,
    overlap: float = _OVERLAP,
    framework_factor: float = 1.0,
) -> RawCost:
    """Return the cost of a memory-bound kernel: overlapping arithmetic and traffic, in blocks of 4,096 elements.

    An eager framework runs each operation on tensors that the previous one has just accessed, and nothing flushes the
    cache in between. So in that context operands that fit are in the cache, independent of ``cache``.
    """
    blocks = np.ceil(elements / _BLOCK_ELEMENTS)
    warm = rows.choices["dispatch"] == "eager" or rows.choices["cache"] == "warm"
    footprint = rows.footprint_bytes()
    units = p("compute_units")
    memory_rate = rate or stream_rate(p)
    missing = missing_share(p, footprint) if warm else np.ones(rows.shape)
    memory = traffic * (missing / memory_rate + (1.0 - missing) / cache_rate(p, memory_rate))
    # The unit with the most blocks ends last. It reads whole blocks one after another over its own path to the cache.
    drawn = np.ceil(blocks / units) * np.minimum(elements, _BLOCK_ELEMENTS) * (traffic / elements)
    memory = np.maximum(memory, drawn / unit_l2_rate_of(p))
    compute = np.asarray(arithmetic_s, dtype=np.float64)
    longer = np.maximum(memory, compute)
    body = longer * ((memory / longer) ** overlap + (compute / longer) ** overlap) ** (1.0 / overlap)
    seconds = p("kernel_floor_s") + body
    bound = np.where(body < 0.5 * seconds, "launch", np.where(memory >= compute, "memory", "compute"))
    activity = Activity(peak_s=compute, moved_bytes=traffic, filled=blocks / units)
    return in_context(p, rows, seconds, activity, bound, framework_factor=framework_factor)


def elementwise(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of one pass over the operands; long softmax and layer norm also pay per row and read it again."""
    n, op = rows.numbers, rows.choices["op"]
    need_type(p, rows.choices["dtype"])
    elements = n["rows"] * n["width"]
    traffic = Elementwise.operand_bytes(rows.choices, n)
    clocks: FloatArray | float = 1.0
    row_clocks: FloatArray | float = 0.0
    overlap = _OVERLAP
    amd = p.vendor.lower() == "amd"
    if op == "softmax":
        overlap = _ROW_OVERLAP
        long = n["width"] > _SHORT_ROW
        traffic = traffic * np.where(long, 1.0 + p("reread", "softmax"), 1.0)
        clocks = np.where(long, p("element_clocks", "softmax_long"), p("element_clocks", "softmax"))
        row_clocks = np.where(long, p("row_clocks", "softmax_amd" if amd else "softmax"), 0.0)
    elif op == "ln":
        overlap = _ROW_OVERLAP
        traffic = traffic * (1.0 + p("reread", "ln") * _reread_share(p, n["width"]))
        clocks, row_clocks = p("element_clocks", "ln"), p("row_clocks", "ln")
    elif op in _ELEMENT_KEYS:
        key = _ELEMENT_KEYS[op]
        clocks = p("element_clocks", f"{key}_amd" if amd and key == "pow" else key)
    arithmetic = elements * clocks / lane_rate(p)
    arithmetic = arithmetic + n["rows"] * row_clocks / (p("compute_units") * p("boost_clock_hz"))
    host_key = FRAMEWORK_KEYS.get(op)
    eager = rows.choices["dispatch"] == "eager"
    host = p("framework_factor", host_key) if eager and host_key is not None else 1.0
    return streaming(p, rows, elements, traffic, arithmetic, overlap=overlap, framework_factor=host)


def _reread_share(p: Parameters, width: FloatArray) -> FloatArray:
    """Return the share of layer norm's second reads that reach memory, 0 to 1: long rows, unless the cache holds all.

    The rows in progress are one for each block that the compute units hold at once.
    """
    blocks = p("compute_units") * p("unit_threads") / _ROW_THREADS
    in_progress = blocks * width * BYTES_PER_ELEMENT["float32"] / p("l2_bytes")
    kept, lost = _ROWS_KEPT
    return np.minimum(width / _LONG_ROW, 1.0) * np.clip((in_progress - kept) / (lost - kept), 0.0, 1.0)


def vector_add(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of two reads, a write and an addition per element."""
    need_type(p, rows.choices["dtype"])
    elements = rows.numbers["n"]
    traffic = VectorAdd.operand_bytes(rows.choices, rows.numbers)
    return streaming(p, rows, elements, traffic, elements / lane_rate(p))


def kernel(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of stated traffic and arithmetic, which partly overlap, with one element per thread."""
    n = rows.numbers
    dtype = rows.choices["dtype"]
    need_type(p, dtype)
    return streaming(p, rows, n["threads"], n["bytes"], n["flops"] / vector_rate(p, dtype))


def stencil(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of a sweep: a read and a write per cell, and two more reads if three planes exceed the cache.

    Stencils attain less bandwidth than elementwise operations (``stencil_efficiency``, from lattice-Boltzmann codes).
    """
    n = rows.numbers
    need_type(p, rows.choices["dtype"])
    cells = Stencil.cells(n)
    size = BYTES_PER_ELEMENT[rows.choices["dtype"]]
    layers = np.where(n["nz"] > 1, 3.0 * n["nx"] * n["ny"], 3.0 * n["nx"]) * size
    traffic = Stencil.operand_bytes(rows.choices, n) * np.where(layers > p("l2_bytes"), 2.0, 1.0)
    rate = p("memory_bandwidth_bytes_per_s") * p("stencil_efficiency", memory_class(p))
    return streaming(p, rows, cells, traffic, 4.0 * cells / lane_rate(p), rate=rate)


def fft(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of an FFT: passes over memory with 4,096 points on chip at a time (four-step method)."""
    n = rows.numbers
    need_type(p, rows.choices["dtype"])
    passes = np.ceil(np.log2(np.maximum(n["n"], 2.0)) / np.log2(_FFT_POINTS_ON_CHIP))
    traffic = Fft.operand_bytes(rows.choices, n) * passes
    # Butterflies do not use fused multiply-adds, so they reach at most half of the peak.
    arithmetic = Fft.flops(rows.choices, n) / (0.5 * vector_rate(p, "float32"))
    return streaming(p, rows, n["n"] * n["batch"], traffic, arithmetic)
