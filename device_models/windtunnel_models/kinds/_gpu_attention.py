"""Fused attention on a GPU: prefill by query blocks, decode by splitting keys and values."""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters, Raw
from windtunnel.core.ops import BYTES_PER_ELEMENT, Attention, Rows
from windtunnel_models.kinds._gpu_kernel import Work, kernel, product_rate, traffic_s, unit_l2_rate_of

_QUERY_TILE = 128
_KEY_TILE = 128
_MMA_ROWS = 16
"""Rows a matrix instruction needs: fewer queries that share a key are padded to it."""


def attention(p: Parameters, rows: Rows) -> Raw:
    """Fused attention: query tiles by heads over the units (prefill), or keys and values streamed once (decode)."""
    rate = product_rate(p, rows.choices["dtype"], "attention_efficiency")
    return (_prefill if rows.choices["phase"] == "prefill" else _decode)(p, rows, rate)


def _prefill(p: Parameters, rows: Rows, rate: float) -> Raw:
    """Blocks of 128 queries of one head walk over the keys before them, 128 at a time.

    A block's step takes 4 x 128 x 128 x head_dim operations and 128 x 128 exponentials. Steps fill the units in
    whole waves, and no schedule ends before the longest block, which sees every key. Keys and values are drawn again
    by every block, from the cache. A prompt of one token is decoded: the queries that share a key make one block.
    """
    n = rows.numbers
    units, unit_l2 = p("compute_units"), unit_l2_rate_of(p)
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
    memory = traffic_s(p, rows, traffic, traffic, heads * blocks)
    useful = Attention.flops(rows.choices, n) / rate
    return kernel(p, rows, Work(compute, memory, p("attention_floor_s"), useful))


def _decode(p: Parameters, rows: Rows, rate: float) -> Raw:
    """One query a head: every block streams a part of one key-value head's keys and values, once for all its queries.

    Sequences are split until the blocks fill the chip (Flash-Decoding), and a further kernel combines the parts.
    """
    n = rows.numbers
    units, unit_l2 = p("compute_units"), unit_l2_rate_of(p)
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
    memory = traffic_s(p, rows, traffic, traffic, blocks)
    useful = Attention.flops(rows.choices, n) / rate
    return kernel(p, rows, Work(compute, memory, p("attention_floor_s") + combine, useful))
