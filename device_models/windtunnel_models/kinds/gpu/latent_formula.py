"""Multi-head latent attention on a GPU: the time of decode with absorbed projections, and of causal prefill.

Decode reads the latent of each cached token once for all heads, and multiplies it twice: the scores take all of it, the
values the part without positions. Few heads do not fill the rows of a matrix instruction. Keys are split over the
units, which takes the longer the more there are. Prefill is causal attention of expanded heads in blocks of 128
queries; one block is the shortest time. Both add the traffic of queries and outputs, and a floor.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windtunnel.core.ops import BYTES_PER_ELEMENT, Choices, FloatArray, LatentAttention, Rows
from windtunnel_models.kinds.gpu.fused import Numbers, NumberTable, Sheet, whole_s

BLOCK = 128.0
"""Queries of a block in prefill."""

NUMBERS: NumberTable = {
    "floor_s": (12e-6, 0.4, "s", "time without work: the kernels of one attention in a row"),
    "bandwidth": (0.85, 0.1, "1", "attained share of the specified bandwidth by cached latents"),
    "efficiency": (0.6, 0.2, "1", "attained share of the 16-bit peak"),
    "least_rows": (64.0, 0.5, "1", "decode: rows that are multiplied at least; prefill: the same in queries"),
    "split_s": (0.5e-6, 0.7, "s", "time of each doubling of the keys above 256"),
    "sequence_s": (20e-9, 0.8, "s", "time of each sequence"),
    "row_s": (1e-9, 0.8, "s", "time of each query of a head"),
    "traffic": (1.0, 0.7, "1", "traffic of queries, outputs and expanded keys and values, over each once"),
    "overlap": (4.0, 0.4, "1", "exponent by which reading and multiplying overlap"),
    "start": (1.5, 0.3, "1", "exponent by which the floor overlaps with the rest"),
    "ramp_keys": (500.0, 0.7, "1", "keys of a prompt that its kernels take in addition"),
}
"""Numbers of a phase and format: value before any measurement, deviation of its logarithm, unit, meaning."""


def parts(
    choices: Choices, n: Mapping[str, FloatArray], sheet: Sheet, x: Numbers
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the times (s) of reading what is cached, of multiplying, and of the rest without the floor; flat rows."""
    prefill = choices["phase"] == "prefill"
    batch, heads, keys = n["batch"], n["heads"], n["kv_tokens"]
    queries = keys if prefill else n["query_tokens"]
    size = BYTES_PER_ELEMENT[choices["kv_dtype"]]
    rate, peak = sheet.bandwidth * x["bandwidth"], sheet.peak * x["efficiency"]
    latent = n["kv_rank"] + n["rope_dim"]
    reading = batch * keys * latent * size / rate
    rows = batch * queries * heads
    if prefill:
        score = 2.0 * (2.0 * LatentAttention.HEAD_VALUES + n["rope_dim"])
        length = np.maximum(keys, x["least_rows"])
        blocks = batch * heads * np.ceil(length / BLOCK)
        multiplying = batch * heads * length * (length / 2.0 + x["ramp_keys"]) * score / peak
        single = np.minimum(length, BLOCK) * (length + x["ramp_keys"]) * score * sheet.units / peak
        multiplying = np.maximum(multiplying, single)
        moved = rows * (4.0 * LatentAttention.HEAD_VALUES + 2.0 * n["rope_dim"]) * 2.0
        rest = x["sequence_s"] * blocks + x["row_s"] * rows
    else:
        score = 2.0 * (latent + n["kv_rank"])
        least = np.maximum(queries * heads, x["least_rows"])
        multiplying = batch * least * keys * score / peak
        moved = rows * (latent + n["kv_rank"]) * 2.0
        rest = x["sequence_s"] * batch + x["row_s"] * rows
    rest = rest + x["split_s"] * np.log2(1.0 + keys / 256.0) + x["traffic"] * moved / sheet.bandwidth
    return reading, multiplying, rest


def total_s(choices: Choices, n: Mapping[str, FloatArray], sheet: Sheet, x: Numbers) -> FloatArray:
    """Return the time (s) of flat rows."""
    return whole_s(*parts(choices, n, sheet, x), x)


def features(rows: Rows) -> FloatArray:
    """Return the coordinates of rows for a residual, [rows, features], scaled to about one unit each."""
    n = rows.numbers
    columns = (
        np.log2(n["batch"]) / 4.0,
        np.log2(n["kv_tokens"]) / 3.0,
        np.log2(n["batch"] * n["heads"]) / 6.0,
        np.log2(n["batch"] * n["kv_tokens"]) / 4.0,
        np.log2(n["query_tokens"]) / 3.0 if rows.choices["phase"] == "decode" else np.zeros(len(n["batch"])),
    )
    return np.stack(columns, 1)
