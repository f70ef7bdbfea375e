"""A TPU chip: weight-stationary systolic arrays fed from VMEM and HBM, a vector unit, and a torus of links.

An array of R x C multipliers holds a tile of weights while the rows of the activations stream through it, so a GEMM
costs whole tiles: N = 129 on an array of width 128 costs the same as N = 256. Without a second set of weights the array
takes ``ceil(K/R) ceil(N/C) (2R + C + M - 2) - 1`` cycles, as in SCALE-Sim. Real arrays load the weights of the next
tile at the same time, and ``exposed_fill`` states how much of the load remains visible.

Rates that were measured on a chip are in that chip's overlay (``calibration/``). The defaults here are assumptions
about a chip of this sort without measurements.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Parameters, RawCost
from windtunnel.core.ops import BYTES_PER_ELEMENT, Attention, Elementwise, FloatArray, LatentAttention, Rows
from windtunnel_models.kinds._routing import geometry
from windtunnel_models.kinds._shared import (
    active_power_w,
    api_time_s,
    copy_engine,
    launched_s,
    limit,
    linked_s,
    need_library,
    service,
)
from windtunnel_models.kinds._tables import read_kind

MATRIX_DTYPES = ("bfloat16", "int8", "float32")
_EXPERT_DTYPES = ("bfloat16", "mxfp4", "int4")
"""Formats of the weights of experts: the arrays take bfloat16, and narrower weights are unpacked before them."""
_OPS_PER_ELEMENT = {
    "add": 1.0,
    "mul": 1.0,
    "relu": 1.0,
    "div": 6.0,
    "pow": 30.0,
    "gelu": 20.0,
    "tanh": 15.0,
    "softmax": 20.0,
    "ln": 8.0,
}
"""Vector instructions per element (divisions and transcendentals are polynomials); counts of the usual expansions."""


def systolic_cycles(
    m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, *, rows: float, columns: float, arrays: float = 1.0
) -> FloatArray:
    """Return the cycles of a weight-stationary array with one set of weights for C[m,n] = A[m,k] B[k,n].

    ``ceil(k/R) ceil(n/C) (2R + C + m - 2) - 1``: R to load a tile, m rows in, R + C - 2 to drain. The tiles are divided
    among ``arrays``. This equals SCALE-Sim's count without stalls for one array.
    """
    return (
        _tiles(n, k, rows=rows, columns=columns, batch=1.0, arrays=arrays)
        * (2.0 * rows + columns + np.asarray(m) - 2.0)
        - 1.0
    )


def _tiles(
    n: npt.ArrayLike, k: npt.ArrayLike, *, rows: float, columns: float, batch: npt.ArrayLike, arrays: float
) -> FloatArray:
    tiles: FloatArray = np.ceil(np.ceil(np.asarray(k) / rows) * np.ceil(np.asarray(n) / columns) * batch / arrays)
    return tiles


def _matrix_s(
    p: Parameters, m: FloatArray, n: FloatArray, k: FloatArray, *, batch: npt.ArrayLike, dtype: str
) -> FloatArray:
    """Return the time in the arrays (s) of ``batch`` GEMMs."""
    if dtype not in MATRIX_DTYPES:
        raise p.unsupported(
            f"does not run {dtype}: its arrays take bfloat16", expected="one of bfloat16, int8, float32"
        )
    rows, columns, exposed = p("array_rows"), p("array_columns"), p("exposed_fill")
    tiles = _tiles(n, k, rows=rows, columns=columns, batch=batch, arrays=p("arrays"))
    # With a second set of weights a tile takes as long as its rows, or as loading the next one, whichever is longer.
    tile_cycles = (1.0 - exposed) * np.maximum(m, rows) + exposed * (2.0 * rows + columns + m - 2.0)
    once = (1.0 - exposed) * (2.0 * rows + columns - 2.0)
    cycles = p("passes", dtype) * (tiles * tile_cycles + once) - 1.0
    seconds: FloatArray = cycles / (p("clock_hz") * p("issue_rate", dtype))
    return seconds


def _memory_rate(p: Parameters) -> float:
    return p("memory_bytes_s") * p("memory_efficiency")


def _memory_s(p: Parameters, rows: Rows, moved: FloatArray) -> FloatArray:
    """Return the time to move operands (s): from VMEM if they are warm and fit into the half that has no buffers."""
    seconds: FloatArray = moved / _memory_rate(p)
    if rows.choices["cache"] != "warm":
        return seconds
    return np.where(moved <= p("vmem_bytes") / 2.0, seconds / p("vmem_speedup"), seconds)


def _done(p: Parameters, rows: Rows, **terms: npt.ArrayLike) -> RawCost:
    """Return the cost of concurrent units: the slowest sets the time, and the API's overhead is added."""
    device_s, bound = limit(**terms)
    extra_s = api_time_s(p, rows)
    duration = device_s + extra_s
    names = {"compute": "matrix", "vector": "vector", "memory": "memory", "link": "link"}
    shares = {names[term]: np.asarray(seconds) / duration for term, seconds in terms.items()}
    return RawCost(duration, active_power_w(p, shares), np.where(extra_s > device_s, "launch", bound))


def _gemm(p: Parameters, rows: Rows) -> RawCost:
    v, dtype = rows.numbers, rows.choices["dtype"]
    compute_s = _matrix_s(p, v["m"], v["n"], v["k"], batch=v["batch"], dtype=dtype)
    size = BYTES_PER_ELEMENT[dtype]
    a, b, c = v["m"] * v["k"] * size, v["k"] * v["n"] * size, v["m"] * v["n"] * max(size, 2.0)
    # XLA keeps one operand in VMEM; half of VMEM buffers the blocks of the other. If neither fits, A is read again for
    # every panel of B that VMEM holds, and B for every block of rows of A.
    half = p("vmem_bytes") / 2.0
    fits = np.minimum(a, b) <= half
    panels, blocks = np.ceil(v["n"] * v["k"] / p("vmem_panel")), np.ceil(v["m"] / p("vmem_tile"))
    read = np.where(fits, a + b, a * panels + b * blocks)
    if rows.choices["cache"] == "warm":
        # Weights that fit stay in VMEM from the previous run; activations and results do not.
        read = np.where(b <= half, read - b * (1.0 - 1.0 / p("vmem_speedup")), read)
    memory_s = v["batch"] * (read + c) / _memory_rate(p)
    return _done(p, rows, compute=compute_s, memory=memory_s)


def _attention(p: Parameters, rows: Rows) -> RawCost:
    v, c = rows.numbers, rows.choices
    for column in ("dtype", "kv_dtype"):
        if c[column] not in MATRIX_DTYPES:
            raise p.unsupported(f"does not run {c[column]} attention", expected="one of bfloat16, int8, float32")
    group = np.ceil(v["heads"] / v["kv_heads"])
    products = v["batch"] * v["kv_heads"]
    prefill = c["phase"] == "prefill"
    queries = group * v["kv_tokens"] if prefill else group
    # With a causal mask the kernel skips the blocks above the diagonal; it computes half of them and the diagonal.
    share = (v["kv_tokens"] + 1.0) / (2.0 * v["kv_tokens"]) if prefill else 1.0
    compute_s = share * (
        _matrix_s(p, queries, v["kv_tokens"], v["head_dim"], batch=products, dtype=c["dtype"])
        + _matrix_s(p, queries, v["head_dim"], v["kv_tokens"], batch=products, dtype=c["dtype"])
    )
    scores = products * queries * v["kv_tokens"] * share
    vector_s = scores * _OPS_PER_ELEMENT["softmax"] / p("vector_ops_s")
    moved = Attention.operand_bytes(c, v)
    return _done(p, rows, compute=compute_s, vector=vector_s, memory=_memory_s(p, rows, moved))


def _latent_attention(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of latent attention: heads are the rows of two products with the latent, or of causal ones.

    Decode reads the latent of each cached token once, and multiplies the queries of all heads with it; the values are
    the part of it without positions. Prefill expands heads, as ``LatentAttention.flops`` counts them.
    """
    v, c = rows.numbers, rows.choices
    for column in ("dtype", "kv_dtype"):
        if c[column] != "bfloat16":
            raise p.unsupported(f"does not run latent_attention in {c[column]}", expected="bfloat16")
    keys, latent = v["kv_tokens"], v["kv_rank"] + v["rope_dim"]
    if c["phase"] == "prefill":
        share, queries, products = (keys + 1.0) / (2.0 * keys), keys, v["batch"] * v["heads"]
        depth, values = LatentAttention.HEAD_VALUES + v["rope_dim"], np.full_like(keys, LatentAttention.HEAD_VALUES)
    else:
        share, queries, products = np.ones_like(keys), v["query_tokens"] * v["heads"], v["batch"]
        depth, values = latent, v["kv_rank"]
    compute_s = share * (
        _matrix_s(p, queries, keys, depth, batch=products, dtype="bfloat16")
        + _matrix_s(p, queries, values, keys, batch=products, dtype="bfloat16")
    )
    vector_s = products * queries * keys * share * _OPS_PER_ELEMENT["softmax"] / p("vector_ops_s")
    moved = LatentAttention.operand_bytes(c, v)
    return _done(p, rows, compute=compute_s, vector=vector_s, memory=_memory_s(p, rows, moved))


def _moe(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of a rank's experts: every expert that is hit is a product of its own rows with its own weights.

    Each reads its weights once, and the arrays take whole tiles of weights for as many rows as it has on average.
    Activations are read and written around each of the two products.
    """
    dtype, shape = rows.choices["dtype"], rows.shape
    if dtype not in _EXPERT_DTYPES:
        raise p.unsupported(f"does not run experts in {dtype}", expected="one of " + ", ".join(_EXPERT_DTYPES))
    every = Rows(rows.op, rows.choices, {k: np.broadcast_to(x, shape).reshape(-1) for k, x in rows.numbers.items()})
    g = geometry(every, BYTES_PER_ELEMENT[dtype])
    each = g.own / g.hit
    up = (g.matrices - 1.0) * g.slice
    compute_s = _matrix_s(p, each, up, g.width, batch=g.hit, dtype="bfloat16") + _matrix_s(
        p, each, g.width, g.slice, batch=g.hit, dtype="bfloat16"
    )
    activations = 2.0 * g.own * (2.0 * g.width + g.matrices * g.slice)
    moved = g.hit * g.matrices * g.width * g.slice * g.weight_bytes + activations
    terms = {"compute": compute_s, "memory": moved / _memory_rate(p)}
    return _done(p, rows, **{name: seconds.reshape(shape) for name, seconds in terms.items()})


def _kernel(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of stated work: its bytes through HBM, and its operations in the vector unit."""
    if rows.choices["dtype"] == "float16":
        raise p.unsupported("does not run float16: its vector unit takes bfloat16 and float32")
    v = rows.numbers
    return _done(p, rows, vector=v["flops"] / p("vector_ops_s"), memory=_memory_s(p, rows, v["bytes"]))


def _elementwise(p: Parameters, rows: Rows) -> RawCost:
    v, c = rows.numbers, rows.choices
    if c["dtype"] == "float16":
        raise p.unsupported("does not run float16: its vector unit takes bfloat16 and float32")
    # An operation with the suffix u has one array operand: fewer bytes and the same instructions.
    ops_per_element = _OPS_PER_ELEMENT[c["op"] if c["op"] in _OPS_PER_ELEMENT else c["op"].removesuffix("u")]
    vector_s = v["rows"] * v["width"] * ops_per_element / p("vector_ops_s")
    moved = Elementwise.operand_bytes(c, v)
    return _done(p, rows, vector=vector_s, memory=_memory_s(p, rows, moved))


def _axes(p: Parameters, workers: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return axes, length of an axis, and directions of its links for the most cubic slice of ``workers`` chips."""
    if np.any(workers > p("devices_per_node")):
        raise p.unsupported(
            f"has {p('devices_per_node'):.0f} chips on its interconnect", expected="no more workers than that"
        )
    dimensions = p("torus_dimensions")
    axes = np.clip(np.ceil(np.log2(np.maximum(workers, 2.0))), 1.0, dimensions)
    length = np.ceil(np.maximum(workers, 2.0) ** (1.0 / axes) - 1e-9)
    ways = np.where(length >= p("wraps_at"), 2.0, 1.0)
    return axes, length, ways


def _ring(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of rings along all axes at once, twice for an all-reduce.

    Each moves (w-1)/w of the bytes over axes x ways links, length-1 hops an axis.
    """
    need_library(p, rows)
    workers, size = rows.numbers["workers"], rows.numbers["bytes"]
    axes, length, ways = _axes(p, workers)
    rate = axes * ways * p("link_bytes_s") * p("link_efficiency")
    times, passes = (2.0, 3.0) if rows.op.name == "all_reduce" else (1.0, 2.0)
    hops = times * axes * (length - 1.0) / ways
    link_s = np.where(workers > 1, times * (workers - 1.0) / workers * size / rate + hops * p("hop_s"), 0.0)
    return _done(p, rows, link=link_s, memory=passes * size / _memory_rate(p))


def _all_to_all(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of messages between all chips, limited by the busiest link of an axis.

    Half of the chips of an axis send to the other half. On an axis of L chips its busiest link carries L/4 of a chip's
    bytes in each direction, and L/8 if the axis closes to a ring.
    """
    workers, size = rows.numbers["workers"], rows.numbers["bytes"]
    axes, length, ways = _axes(p, workers)
    moving = size * length / (4.0 * ways) / (p("link_bytes_s") * p("link_efficiency"))
    link_s = np.where(workers > 1, moving + axes * (length - 1.0) / ways * p("hop_s"), 0.0)
    return _done(p, rows, link=link_s, memory=2.0 * size / _memory_rate(p))


def _send_recv(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of a transfer over one link, since communicating stages are neighbours."""
    workers, size = rows.numbers["workers"], rows.numbers["bytes"]
    _axes(p, workers)
    link_s = p("hop_s") + size / (p("link_bytes_s") * p("link_efficiency"))
    return _done(p, rows, link=link_s, memory=size / _memory_rate(p))


def _copy(p: Parameters, rows: Rows) -> RawCost:
    if rows.choices["direction"] == "d2d":
        memory_s = 2.0 * rows.numbers["bytes"] / _memory_rate(p)
        return _done(p, rows, memory=memory_s)
    if rows.choices["memory"] == "unified":
        raise p.unsupported("shares no memory with its host", expected="memory=pinned or memory=pageable")
    duration = linked_s(p, rows, p("host_link_bytes_s"))
    return RawCost(duration, active_power_w(p, {"memory": 0.05}), np.asarray("link"))


def _launch(p: Parameters, rows: Rows) -> RawCost:
    return RawCost(launched_s(p, rows), active_power_w(p, {}), np.asarray("launch"))


KIND = read_kind(
    "tpu",
    costs={
        "gemm": _gemm,
        "attention": _attention,
        "latent_attention": _latent_attention,
        "moe": _moe,
        "elementwise": _elementwise,
        "kernel": _kernel,
        **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter"), _ring),
        "all_to_all": _all_to_all,
        "send_recv": _send_recv,
        "copy": _copy,
        "launch": _launch,
        "service": service,
    },
    engine=copy_engine,
)
