"""Graphics processors: compute units behind caches, copy engines beside them, and an API in front.

A kernel takes a floor (its own launch and drain on the device), then the longest of what it does at the same
time: arithmetic, quantised in tiles and waves over the compute units, and traffic to memory or to the last-level
cache. The context adds what the host puts in front: nothing, a node of a replayed graph, or an eager launch.
A whole number of waves is what makes a GPU unlike a roofline: one tile more than the units can hold costs a
whole further wave.

Sources of the forms: tile and wave quantisation, NVIDIA, "Matrix Multiplication Background User's Guide"; roofline,
Williams et al., CACM 52(4), 2009; split key-value decoding, Dao et al., "Flash-Decoding", 2023; ring collectives,
Patarasu and Yuan, JPDC 69(2), 2009. The few fitted numbers come from benchmarks/accuracy/fit_gpu_kind.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.core.device import Kind, Parameters, Raw
from windtunnel.core.ops import (
    BYTES_PER_ELEMENT,
    Attention,
    Copy,
    Elementwise,
    Fft,
    FloatArray,
    Gemm,
    Rows,
    Stencil,
    VectorAdd,
)
from windtunnel.core.provenance import assumed
from windtunnel_models.kinds._gpu_parameters import (
    ATTENTION_DATA,
    COLLECTIVE_DATA,
    EAGER_DATA,
    GEMM_DATA,
    MEMBOUND_DATA,
    PARAMETERS,
    fitted,
)
from windtunnel_models.kinds._shared import (
    EXACT,
    active_power_w,
    limit,
    service,
)

_TILES = (
    (256, 256),
    (256, 128),
    (128, 256),
    (128, 128),
    (128, 64),
    (64, 128),
    (64, 64),
    (16, 128),
    (128, 16),
)
_SPLITS = (1, 2, 4, 8)
"""Tile shapes and split-k factors a library chooses from; the cost is that of its best choice."""

_QUERY_TILE = 128
_KEY_TILE = 128
_MMA_ROWS = 16
"""Rows a matrix instruction needs: fewer queries that share a key are padded to it."""

_BLOCK_ELEMENTS = 4096
"""Elements one block of a streaming kernel handles: 256 threads with four 4-element loads each."""

_FFT_POINTS_ON_CHIP = 4096
"""Points of one complex float32 pass that fit in a unit's shared memory (32 KiB)."""

_TYPE_FEATURES = {
    "tf32": "matrix",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "nvfp4": "fp4",
    "int8": "int8",
}

_ARITHMETIC = {
    "add": (1.0, 0.0),
    "mul": (1.0, 0.0),
    "relu": (1.0, 0.0),
    "div": (8.0, 1.0),
    "pow": (24.0, 2.0),
    "tanh": (10.0, 2.0),
    "gelu": (16.0, 1.0),
    "softmax": (6.0, 1.0),
    "ln": (8.0, 0.0),
}
"""Vector and special-function instructions an element, counted from the usual polynomial forms."""


def _need_type(p: Parameters, dtype: str) -> None:
    """Refuses a number format that the API cannot express."""
    feature = _TYPE_FEATURES.get(dtype)
    if feature is not None and not p.feature(feature):
        raise p.refuse(f"does not run {dtype}: the API '{p.api}' has no '{feature}'")


def _vector_rate(p: Parameters, dtype: str) -> float:
    """Attained vector FLOP/s in a type; 16-bit floats are at least as fast as float32 (converted on load)."""
    base = p("vector_flops_per_s", "float32")
    own = p.maybe("vector_flops_per_s", dtype) if dtype != "float32" else base
    return max(base, own or 0.0) * p("vector_efficiency") * p.api_cost("compute_efficiency")


def _product_rate(p: Parameters, dtype: str, efficiency: str) -> float:
    """Attained FLOP/s of matrix products in a type: the matrix units where the API reaches them, else the vector units.

    Refuses a type for which the silicon has neither (its file gives no rate), naming it.
    """
    _need_type(p, dtype)
    key = "fp8" if dtype == "fp8_block" else dtype
    if p.feature("matrix"):
        rate = p.maybe("matrix_flops_per_s", key)
        if rate is not None:
            blocks = p("block_scale_efficiency") if dtype in ("fp8_block", "nvfp4") else 1.0
            return rate * p(efficiency) * blocks
    if p.maybe("vector_flops_per_s", key) is None:
        raise p.refuse(
            f"does not run products in {dtype} through {p.api}: neither matrix nor vector units that the API reaches "
            "have a stated rate in it"
        )
    return _vector_rate(p, key)


def _memory_rate(p: Parameters) -> float:
    """Attained memory bandwidth (B/s)."""
    return p("memory_bandwidth_bytes_per_s") * p("memory_efficiency")


def _unit_l2_rate(p: Parameters) -> float:
    """What one compute unit draws from the last-level cache (B/s)."""
    return p("l2_bytes_per_clock") * p("boost_clock_hz")


def _traffic_s(p: Parameters, rows: Rows, traffic: FloatArray, footprint: FloatArray, blocks: FloatArray) -> FloatArray:
    """Time of ``traffic`` (bytes): from the cache where the context is warm and ``footprint`` fits, else from memory.

    Few ``blocks`` leave units idle, and each unit draws no more than its path to the cache carries.
    """
    units = p("compute_units")
    supply = np.minimum(blocks, units) * _unit_l2_rate(p)
    limit_per_s: FloatArray | float = _memory_rate(p)
    if rows.choices["cache"] == "warm":
        limit_per_s = np.where(footprint <= p("l2_bytes"), np.inf, limit_per_s)
    return traffic / np.minimum(supply, limit_per_s)


@dataclass(frozen=True)
class _Work:
    """What a kernel does side by side (seconds at full clock), and after it (``tail_s``, serial).

    ``useful_s``: what the arithmetic alone would take on all units; less than ``compute_s`` where units wait for a last
    wave, for operands or have no tile at all, and draw accordingly less. ``compute_s`` unless given.
    """

    compute_s: FloatArray
    memory_s: FloatArray
    tail_s: FloatArray | float = 0.0
    useful_s: FloatArray | None = None


def _kernel(p: Parameters, rows: Rows, work: _Work) -> Raw:
    """One kernel in its context: floor, then the longest of arithmetic and traffic, then the tail.

    ``dispatch``: ``device`` is the kernel alone; ``graph`` adds the gap to the next node of a replayed graph; in
    ``eager`` the host issues one operation after another, so an operation takes the longer of its kernel and of the
    host's part (the API's dispatch and the framework around it).

    ``clock``: in a ``sustained`` loop whose demand exceeds the board's limit the clock of the compute units falls
    until the demand meets it, with their dynamic power going as clock to ``power_clock_exponent``; traffic keeps
    its rate. A burst is over before the board reacts.
    """
    floor = p("kernel_floor_s")
    compute = np.asarray(work.compute_s, dtype=np.float64)
    memory = np.asarray(work.memory_s, dtype=np.float64)
    busy = compute if work.useful_s is None else np.minimum(work.useful_s, compute)
    activity = np.ones(())
    if rows.choices["clock"] == "sustained":
        whole = floor + np.maximum(compute, memory) + work.tail_s
        calm = p("power_share", "base") + p("power_share", "memory") * memory / whole
        hot = p("power_share", "compute") * busy / whole
        room = np.maximum(1.0 - calm, 0.1)
        clock = np.where(hot > room, room / np.maximum(hot, 1e-300), 1.0) ** (1.0 / p("power_clock_exponent"))
        compute, busy = compute / clock, busy / clock
        activity = clock ** p("power_clock_exponent")
    body, bound = limit(compute=compute, memory=memory)
    kernel = floor + body + work.tail_s
    duration = kernel
    dispatch = rows.choices["dispatch"]
    if dispatch == "graph":
        if not p.feature("graphs"):
            raise p.refuse(f"does not replay graphs: the API '{p.api}' has no 'graphs'")
        duration = kernel + p.api_cost("graph_node_s")
    elif dispatch == "eager":
        duration = np.maximum(kernel, p.api_cost("dispatch_s") + p("framework_dispatch_s"))
    power = active_power_w(p, {"compute": busy / duration * activity, "memory": memory / duration})
    return Raw(duration, power, np.where(body < 0.5 * duration, "launch", bound))


def gemm_compute_s(rows: Rows, *, units: float, rate: float, unit_l2_rate: float, wave_s: float) -> FloatArray:
    """Time (s) the compute units need for a product, in tiles and waves, for the best tile and split-k factor.

    ``rate``: attained FLOP/s of the whole chip; ``unit_l2_rate``: B/s that one unit draws from the cache. A tile of
    tm x tn over k / split takes the longer of 2 tm tn k / split / (rate / units) and the time to draw its operands;
    ``ceil(tiles * split / units)`` waves follow each other, the last as long as a full one. Partial sums of a split
    are written and read once in float32. After NVIDIA's "Matrix Multiplication Background User's Guide".
    """
    n = rows.numbers
    size = BYTES_PER_ELEMENT[rows.choices["dtype"]]
    m, columns, k, batch = np.broadcast_arrays(n["m"], n["n"], n["k"], n["batch"])
    reduction = 8.0 * m * columns * batch / (units * unit_l2_rate)
    best = np.full(m.shape, np.inf)
    for tm, tn in _TILES:
        per_k = max(2.0 * tm * tn / (rate / units), (tm + tn) * size / unit_l2_rate)
        tiles = np.ceil(m / tm) * np.ceil(columns / tn) * batch
        for split in _SPLITS:
            took = np.ceil(tiles * (split / units)) * (k * (per_k / split) + wave_s)
            if split > 1:
                took += split * reduction
            np.minimum(best, took, out=best)
    return best


def gemm(p: Parameters, rows: Rows) -> Raw:
    """C = A B: tiles and waves over the units against each operand moved once."""
    rate = _product_rate(p, rows.choices["dtype"], "matrix_efficiency")
    units = p("compute_units")
    compute = gemm_compute_s(rows, units=units, rate=rate, unit_l2_rate=_unit_l2_rate(p), wave_s=p("wave_s"))
    traffic = Gemm.operand_bytes(rows.choices, rows.numbers)
    memory = _traffic_s(p, rows, traffic, traffic, np.asarray(units))
    return _kernel(p, rows, _Work(compute, memory, _quantise_s(p, rows), Gemm.flops(rows.numbers) / rate))


def _quantise_s(p: Parameters, rows: Rows) -> FloatArray | float:
    """Time (s) of the kernel that turns 16-bit activations into a narrow type before their product.

    Activations leave the layer before in 16 bits, so a product in 8 or 4 bits is preceded by a pass over A; the
    published campaigns measure the two together. The pass reads 16 bits and writes the narrow type,
    ``quantise_passes`` times over.
    """
    size = BYTES_PER_ELEMENT[rows.choices["dtype"]]
    if size >= 2.0:
        return 0.0
    n = rows.numbers
    moved = n["batch"] * n["m"] * n["k"] * (2.0 + size)
    return p("kernel_floor_s") + p("quantise_passes") * moved / _memory_rate(p)


def attention(p: Parameters, rows: Rows) -> Raw:
    """Fused attention: query tiles by heads over the units (prefill), or keys and values streamed once (decode)."""
    rate = _product_rate(p, rows.choices["dtype"], "attention_efficiency")
    return (_prefill if rows.choices["phase"] == "prefill" else _decode)(p, rows, rate)


def _prefill(p: Parameters, rows: Rows, rate: float) -> Raw:
    """Blocks of 128 queries of one head walk over the keys before them, 128 at a time.

    A block's step takes 4 x 128 x 128 x head_dim operations and 128 x 128 exponentials. Steps fill the units in
    whole waves, and no schedule ends before the longest block, which sees every key. Keys and values are drawn again
    by every block, from the cache. A prompt of one token is decoded: the queries that share a key make one block.
    """
    n = rows.numbers
    units, unit_l2 = p("compute_units"), _unit_l2_rate(p)
    blocks = np.ceil(n["kv_tokens"] / _QUERY_TILE)
    heads = n["batch"] * np.where(n["kv_tokens"] > 1, n["heads"], n["kv_heads"])
    queries = np.minimum(_QUERY_TILE, np.ceil(n["kv_tokens"] / _MMA_ROWS) * _MMA_ROWS)
    steps = heads * blocks * (blocks + 1.0) / 2.0
    kv_size = BYTES_PER_ELEMENT[rows.choices["kv_dtype"]]
    step = np.maximum(
        4.0 * queries * np.minimum(_KEY_TILE, queries) * n["head_dim"] / (rate / units),
        2.0 * np.minimum(_KEY_TILE, n["kv_tokens"]) * n["head_dim"] * kv_size / unit_l2,
    ) + queries * np.minimum(_KEY_TILE, queries) / (p("special_ops_per_clock") * p("boost_clock_hz"))
    compute = np.maximum(np.ceil(steps / units), blocks) * step
    compute = compute + np.ceil(heads * blocks / units) * p("attention_block_s")
    traffic = Attention.operand_bytes(rows.choices, n)
    memory = _traffic_s(p, rows, traffic, traffic, heads * blocks)
    useful = Attention.flops(rows.choices, n) / rate
    return _kernel(p, rows, _Work(compute, memory, p("attention_floor_s"), useful))


def _decode(p: Parameters, rows: Rows, rate: float) -> Raw:
    """One query a head: every block streams a part of one key-value head's keys and values, once for all its queries.

    Sequences are split until the blocks fill the chip (Flash-Decoding), and a further kernel combines the parts.
    """
    n = rows.numbers
    units, unit_l2 = p("compute_units"), _unit_l2_rate(p)
    pairs = n["batch"] * n["kv_heads"]
    splits = np.clip(np.floor(units / pairs), 1.0, np.ceil(n["kv_tokens"] / _KEY_TILE))
    blocks = pairs * splits
    keys = np.ceil(n["kv_tokens"] / splits)
    kv_size = BYTES_PER_ELEMENT[rows.choices["kv_dtype"]]
    queries = np.ceil(np.maximum(n["heads"] / n["kv_heads"], 1.0) / _MMA_ROWS) * _MMA_ROWS
    step = np.maximum(
        4.0 * queries * keys * n["head_dim"] / (rate / units),
        2.0 * keys * n["head_dim"] * kv_size / unit_l2,
    )
    traffic = Attention.operand_bytes(rows.choices, n)
    partials = 8.0 * splits * n["batch"] * n["heads"] * n["head_dim"]
    combine = np.where(splits > 1.0, partials / (units * unit_l2), 0.0)
    compute = np.ceil(blocks / units) * (step + p("attention_block_s"))
    memory = _traffic_s(p, rows, traffic, traffic, blocks)
    useful = Attention.flops(rows.choices, n) / rate
    return _kernel(p, rows, _Work(compute, memory, p("attention_floor_s") + combine, useful))


def _streaming(p: Parameters, rows: Rows, elements: FloatArray, traffic: FloatArray, arithmetic_s: FloatArray) -> Raw:
    """A kernel that passes over arrays: arithmetic beside traffic, in blocks of 4,096 elements."""
    blocks = np.ceil(elements / _BLOCK_ELEMENTS)
    return _kernel(p, rows, _Work(arithmetic_s, _traffic_s(p, rows, traffic, rows.footprint_bytes(), blocks)))


def elementwise(p: Parameters, rows: Rows) -> Raw:
    """One pass over the operands; softmax and layer norm read their rows ``row_reads`` times."""
    n, op = rows.numbers, rows.choices["op"]
    _need_type(p, rows.choices["dtype"])
    elements = n["rows"] * n["width"]
    traffic = Elementwise.operand_bytes(rows.choices, n)
    if op in ("softmax", "ln"):
        traffic = traffic * (p("row_reads") + 1.0) / 2.0
    plain, special = _ARITHMETIC[op if op in _ARITHMETIC else op.removesuffix("u")]
    arithmetic = elements * 2.0 * plain / _vector_rate(p, "float32")
    if special:
        arithmetic = arithmetic + elements * special / (
            p("special_ops_per_clock") * p("boost_clock_hz") * p("compute_units")
        )
    return _streaming(p, rows, elements, traffic, arithmetic)


def vector_add(p: Parameters, rows: Rows) -> Raw:
    """Two reads and a write an element; one addition."""
    _need_type(p, rows.choices["dtype"])
    elements = rows.numbers["n"]
    traffic = VectorAdd.operand_bytes(rows.choices, rows.numbers)
    return _streaming(p, rows, elements, traffic, 2.0 * elements / _vector_rate(p, "float32"))


def stencil(p: Parameters, rows: Rows) -> Raw:
    """One sweep: a read and a write a cell while three planes fit in the cache, two reads more where they do not."""
    n = rows.numbers
    _need_type(p, rows.choices["dtype"])
    cells = Stencil.cells(n)
    size = BYTES_PER_ELEMENT[rows.choices["dtype"]]
    layers = np.where(n["nz"] > 1, 3.0 * n["nx"] * n["ny"], 3.0 * n["nx"]) * size
    traffic = Stencil.operand_bytes(rows.choices, n) * np.where(layers > p("l2_bytes"), 2.0, 1.0)
    return _streaming(p, rows, cells, traffic, 8.0 * cells / _vector_rate(p, "float32"))


def fft(p: Parameters, rows: Rows) -> Raw:
    """As many passes over memory as it takes with 4,096 points of a transform on chip at a time (four-step method)."""
    n = rows.numbers
    _need_type(p, rows.choices["dtype"])
    passes = np.ceil(np.log2(np.maximum(n["n"], 2.0)) / np.log2(_FFT_POINTS_ON_CHIP))
    traffic = Fft.operand_bytes(rows.choices, n) * passes
    # Butterflies use additions and multiplications apart, so half of the fused peak is what they can reach.
    arithmetic = Fft.flops(n) / (0.5 * _vector_rate(p, "float32"))
    return _streaming(p, rows, n["n"] * n["batch"], traffic, arithmetic)


def _is_unified(p: Parameters) -> bool:
    return p("unified_memory") >= 0.5


def copy(p: Parameters, rows: Rows) -> Raw:
    """Between host and device over the link, within the device through memory, or by mapping where memory is shared.

    On a unified-memory device ``pinned`` and ``unified`` cost what the API charges for a mapping and move nothing;
    ``pageable`` is a copy within the one memory. Elsewhere the link's attained rate carries ``pinned``, and
    ``pageable`` and ``unified`` run at the API's fraction of it.
    """
    size, choices = rows.numbers["bytes"], rows.choices
    if choices["direction"] == "d2d":
        return _streaming(p, rows, size / 4.0, 2.0 * size, np.zeros_like(size))
    memory = choices["memory"]
    if memory != "pageable" and not p.feature(memory):
        raise p.refuse(f"has no {memory} memory: the API '{p.api}' does not offer it")
    setup = p.api_cost("copy_setup_s")
    if _is_unified(p):
        if memory != "pageable":
            return Raw(setup + 0.0 * size, active_power_w(p, {}) + 0.0 * size, np.full(size.shape, "launch"))
        moving, share = 2.0 * size / _memory_rate(p), "memory"
    else:
        rate = p("host_link_bytes_per_s") * p("host_link_efficiency")
        if memory != "pinned":
            rate *= p.api_cost(f"{memory}_fraction")
        moving, share = size / rate, "link"
    duration = setup + moving
    return Raw(duration, active_power_w(p, {share: moving / duration}), np.where(moving < setup, "launch", share))


def launch(p: Parameters, rows: Rows) -> Raw:
    """``count`` empty kernels and one wait for the last.

    ``stream``: each is enqueued by the host, the first costs the whole round trip. ``graph``: one launch of a recorded
    graph of ``count`` nodes. ``persistent``: commands written to memory that a running kernel polls, one answer
    awaited; refused by an API that cannot share such memory with a running kernel. The operation is the API's own
    cost, so the dispatch context does not change it.
    """
    count, mode = rows.numbers["count"], rows.choices["mode"]
    if mode == "persistent":
        if not p.feature("persistent"):
            raise p.refuse(f"runs no persistent kernel: the API '{p.api}' has no 'persistent'")
        duration = count * p.api_cost("persistent_write_s") + p.api_cost("persistent_poll_s")
    elif mode == "graph":
        if not p.feature("graphs"):
            raise p.refuse(f"does not replay graphs: the API '{p.api}' has no 'graphs'")
        duration = p.api_cost("round_trip_s") + (count - 1.0) * p.api_cost("graph_node_s")
    else:
        each = max(p.api_cost("dispatch_s"), p("kernel_floor_s"))
        duration = p.api_cost("round_trip_s") + (count - 1.0) * each
    return Raw(duration, active_power_w(p, {}), np.asarray("launch"))


def _links(p: Parameters, rows: Rows) -> FloatArray:
    """Attained rate (B/s) of the slowest link between the workers.

    Inside a node: the link between devices, or the host's bus where there is none. The network once workers span
    nodes; a device that shares its memory with the host is a node of its own.
    """
    n = rows.numbers
    nominal = p.maybe("scale_up_bytes_per_s")
    alone = nominal is None and _is_unified(p)
    outside = n["workers"] > (1.0 if alone else n["devices_per_node"])
    if np.all(outside):
        return np.asarray(p("scale_out_bytes_per_s"))
    if nominal is not None:
        inside = nominal * p("scale_up_efficiency", rows.op.name)
    elif alone:
        inside = _memory_rate(p)
    else:
        inside = p("host_link_bytes_per_s") * p("host_link_efficiency")
    return np.where(outside, p("scale_out_bytes_per_s"), inside) if np.any(outside) else np.asarray(inside)


def all_reduce(p: Parameters, rows: Rows) -> Raw:
    """The better of a ring (2 (w-1) steps, 2 (w-1)/w of the bytes) and a tree (2 log2 w steps, twice the bytes)."""
    n = rows.numbers
    workers, size, rate, step = n["workers"], n["bytes"], _links(p, rows), p("collective_step_s", rows.op.name)
    ring_s, tree_s = 2.0 * (workers - 1.0) * step, 2.0 * np.ceil(np.log2(workers)) * step
    ring, tree = 2.0 * (workers - 1.0) / workers * size / rate, 2.0 * size / rate
    shorter = ring_s + ring <= tree_s + tree
    return _collective(
        p, rows, np.where(shorter, ring_s, tree_s), np.where(workers > 1, np.where(shorter, ring, tree), 0.0)
    )


def send_recv(p: Parameters, rows: Rows) -> Raw:
    """One step over the link."""
    return _collective(
        p, rows, np.asarray(p("collective_step_s", rows.op.name)), rows.numbers["bytes"] / _links(p, rows)
    )


def _collective(p: Parameters, rows: Rows, steps_s: FloatArray, moving_s: FloatArray) -> Raw:
    raw = _kernel(p, rows, _Work(np.zeros_like(moving_s), np.zeros_like(moving_s), steps_s + moving_s))
    busy = moving_s / raw.duration_s
    bound = np.where(busy > 0.5, "link", "launch")
    return Raw(raw.duration_s, active_power_w(p, {"link": busy}), bound)


def aes(p: Parameters, rows: Rows) -> Raw:
    """AES by table look-up on data in device memory; the time of one request when ``in_flight`` share a kernel.

    Counter modes spread their blocks over the chip. CBC chains them: a request is one lane, and only requests in
    flight run side by side. Rounds: 10, 12 or 14 by key.
    """
    n, choices = rows.numbers, rows.choices
    size, flying = n["bytes"], n["in_flight"]
    rounds = {"128": 10.0, "192": 12.0, "256": 14.0}[choices["key_bits"]]
    units, clock = p("compute_units"), p("boost_clock_hz")
    unit_rate = p("aes_bytes_per_clock") * clock * 10.0 / rounds * p.api_cost("compute_efficiency")
    if choices["mode"] == "gcm":
        unit_rate /= p("ghash_factor")
    lanes = flying if choices["mode"] == "cbc" else np.ceil(flying * size / 16.0)
    # A unit hides the latency of look-ups only with its lanes full: 256 blocks of 16 bytes.
    active = np.minimum(units, np.ceil(lanes / 256.0))
    compute = flying * size / (active * unit_rate)
    if choices["mode"] == "cbc":
        compute = np.maximum(compute, np.ceil(size / 16.0) * rounds * p("aes_round_clocks") / clock)
    traffic = 2.0 * flying * size
    raw = _kernel(p, rows, _Work(compute, _traffic_s(p, rows, traffic, traffic, np.asarray(units))))
    return Raw(raw.duration_s / flying, raw.power_w, raw.bound)


def engine(p: Parameters, rows: Rows) -> str:
    """Copies between host and device run on copy engines, beside kernels; one engine serves both directions."""
    direction = rows.choices.get("direction")
    engines = p("copy_engines")
    if rows.op is not Copy or direction == "d2d" or direction is None or engines < 1 or _is_unified(p):
        return "compute"
    return "copy_h2d" if direction == "h2d" or engines < 2 else "copy_d2h"


KIND = Kind(
    name="gpu",
    doc="compute units behind caches, copy engines beside them, an API in front",
    parameters=PARAMETERS,
    costs={
        "gemm": gemm,
        "attention": attention,
        "elementwise": elementwise,
        "vector_add": vector_add,
        "stencil": stencil,
        "fft": fft,
        "copy": copy,
        "launch": launch,
        "all_reduce": all_reduce,
        "send_recv": send_recv,
        "aes": aes,
        "service": service,
    },
    errors={
        "gemm": fitted(1.6, 1.3, 2.5, GEMM_DATA + "; residuals of shapes held back, device by device"),
        "attention": fitted(1.5, 1.2, 1.7, ATTENTION_DATA + "; residuals of shapes held back, device by device"),
        "elementwise": fitted(1.4, 1.13, 2.3, EAGER_DATA + "; residuals of shapes held back, device by device"),
        "stencil": fitted(1.4, 1.1, 2.0, MEMBOUND_DATA + "; spread between devices"),
        "all_reduce": fitted(1.6, 1.3, 2.0, COLLECTIVE_DATA + "; residuals of sizes held back"),
        "send_recv": fitted(1.26, 1.1, 1.6, COLLECTIVE_DATA + "; residuals of sizes held back"),
        "vector_add": assumed(1.3, 1.1, 1.6, "a plain stream varies less than the stencils measured on many devices"),
        "fft": assumed(1.6, 1.2, 2.5, "libraries differ in radix and passes; no measurement at hand"),
        "copy": assumed(1.25, 1.1, 1.6, "links attain 0.65 to 0.92 of their rate, by host and driver"),
        "launch": assumed(1.5, 1.2, 3.0, "launch times differ between hosts and driver versions by half"),
        "aes": assumed(2.0, 1.3, 4.0, "carried over from one published implementation on one design"),
        "service": EXACT,
    },
    engine=engine,
)
