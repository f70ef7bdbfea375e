"""The duration of attention on a GPU, from the block structure of its kernels.

There are two kernel families, according to their published source (Dao-AILab/flash-attention, BSD-3-Clause):

- FlashAttention-2 (Dao, arXiv:2307.08691). A block has 64 queries of a head and processes 256, 128 or 64 keys at a time
  (head_dim up to 64, up to 128, above). A unit holds as many blocks as its shared memory allows, at most two. With one
  query per sequence, the queries that share a key-value head are the rows of one block, and ``num_splits_heuristic``
  splits the keys over twice the units. If heads == kv_heads they are not split, and a block pads one query to 64 rows.
- FlashAttention-3 (Shah et al., arXiv:2407.08608). A unit has one persistent block of 192 or 128 rows. Queries that
  share a key-value head are packed in rows. Keys are split so that a unit gets ceil(1.1 x all blocks / units) parts
  (``prepare_varlen_num_blocks``), at most 32, and not above 992 sequences.

Both first write the new keys and values to the paged cache, with one thread block per token. The data of the fits and
the errors on head sets that were left out are in benchmarks/accuracy/NOTES-attention-membound-power.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windtunnel.core.ops import BYTES_PER_ELEMENT, FloatArray, Rows
from windtunnel_models.kinds.gpu.fused import IntArray, Numbers, NumberTable, take

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Datasheet:
    """Numbers of a datasheet: units, clock (Hz), memory (B/s), last-level cache (B), matrix peak (FLOP/s).

    ``shared``: shared memory of a unit (B). ``hopper``: whether units have warpgroup matrix instructions, which
    FlashAttention-3 needs.
    """

    units: float
    clock: float
    bandwidth: float
    l2: float
    peak: float
    shared: float
    hopper: bool


_MAX_SPLITS = 128
_MAX_DYNAMIC_SPLITS = 32
_SCHEDULED = 992.0
"""The maximum number of sequences of FlashAttention-3's scheduler; above it, keys are not split by another kernel."""


@dataclass(frozen=True)
class Geometry:
    """Blocks, steps and bytes, which depend on the shape and the datasheet alone; all arrays [rows]."""

    decodes: BoolArray
    """one query per sequence: decode, and prompts of one token"""
    wide: BoolArray
    """head_dim above 256: these families have no fused kernel, and another one runs"""
    group: FloatArray
    """query heads per key-value head"""
    rows: FloatArray
    keys: FloatArray
    """keys in a block's step"""
    blocks: FloatArray
    """thread blocks, including splits"""
    longest: FloatArray
    mean: FloatArray
    """steps of the longest block and of the mean block"""
    splits: FloatArray
    resident: FloatArray
    """blocks that a unit holds at once"""
    pairs: FloatArray
    repack: BoolArray
    """queries and output are copied to group them by key-value head"""
    fp8: BoolArray
    kv: FloatArray
    queries: FloatArray
    fresh: FloatArray
    """bytes: all keys and values; queries (the output has as many); new keys and values, read and written"""
    tokens: FloatArray
    batch: FloatArray
    heads: FloatArray
    kv_heads: FloatArray
    head_dim: FloatArray
    length: FloatArray
    kv_size: FloatArray
    """bytes of one element of keys and values"""


def _heuristic_splits(blocks: FloatArray, key_blocks: FloatArray, slots: float) -> FloatArray:
    """Return the splits by FlashAttention-2's ``num_splits_heuristic``.

    This is the smallest number of parts that fills the last wave to 85% of the best one.

    It applies to blocks that fill less than 80% of the slots; others are not split.
    """
    efficiency = np.zeros((_MAX_SPLITS, len(blocks)))
    before = key_blocks
    for parts in range(1, _MAX_SPLITS + 1):
        now = np.ceil(key_blocks / parts)
        waves = blocks * parts / slots
        useful = (parts <= np.minimum(slots, key_blocks)) & ((now != before) | (parts == 1))
        efficiency[parts - 1] = np.where(useful, waves / np.ceil(waves), 0.0)
        before = now
    return np.asarray(np.argmax(efficiency >= 0.85 * efficiency.max(0), 0) + 1.0)


def geometry(rows: Rows, sheet: Datasheet) -> Geometry:
    """Return the blocks, steps and bytes of each row; the rows' arrays have one shape."""
    n = rows.numbers
    batch, heads, kv_heads, dim, length = (n[k] for k in ("batch", "heads", "kv_heads", "head_dim", "kv_tokens"))
    dtype_bytes, kv_bytes = BYTES_PER_ELEMENT[rows.choices["dtype"]], BYTES_PER_ELEMENT[rows.choices["kv_dtype"]]
    decodes = np.full(dim.shape, rows.choices["phase"] == "decode") | (length <= 1.0)
    fp8 = np.full(dim.shape, kv_bytes < 2.0)
    group = heads / kv_heads
    narrow, usual = dim <= 64, dim <= 128
    if sheet.hopper:
        tile = np.where(narrow, 192.0, 128.0)
        packed = np.where(decodes, group, length * group)
        tile = np.where((dim == 128) & (packed <= 64), 64.0, tile)
        prefill_keys = np.where(usual, 128.0, np.where(dim <= 192, 96.0, 80.0))
        keys = np.where(decodes & narrow, 160.0, prefill_keys)
        keys = np.where(fp8, np.where(dim > 192, 128.0, np.where(decodes & ~narrow, 96.0, 160.0)), keys)
        row_blocks = np.ceil(packed / tile)
        advance = tile / group
        many = batch * kv_heads * row_blocks
        key_blocks = np.ceil(length / keys)
        share = np.ceil(1.1 * many * key_blocks / sheet.units)
        splits = np.where(batch > _SCHEDULED, 1.0, np.clip(np.ceil(key_blocks / share), 1.0, _MAX_DYNAMIC_SPLITS))
        resident = np.ones_like(dim)
        repack = np.zeros(decodes.shape, dtype=bool)
    else:
        tile = np.full_like(dim, 64.0)
        keys = np.where(narrow, 256.0, np.where(usual, 128.0, 64.0))
        row_blocks = np.where(decodes, np.where(group > 1, np.ceil(group / 64.0), 1.0), np.ceil(length / 64.0))
        advance = tile
        many = batch * np.where(decodes & (group > 1), kv_heads, heads) * row_blocks
        key_blocks = np.ceil(length / keys)
        splits = np.ones_like(dim)
        divided = decodes & (group > 1) & (many < 0.8 * 2.0 * sheet.units)
        splits[divided] = _heuristic_splits(many[divided], key_blocks[divided], 2.0 * sheet.units)
        resident = np.clip(np.floor(sheet.shared / (2.0 * dim * (tile + 2.0 * keys))), 1.0, 2.0)
        repack = decodes & (kv_heads > 1) & (batch > 1) & (group > 1)
    longest = np.ceil(key_blocks / splits)
    # causal: the i-th block of rows sees i x advance keys, in whole tiles (half a tile too many on average)
    part = advance / keys
    triangle = (row_blocks + 1.0) / 2.0 * part + 0.5 * (1.0 - np.minimum(part, 1.0))
    mean = np.where(decodes, longest, np.clip(triangle / splits, 1.0, longest))
    tokens = batch * np.where(decodes, 1.0, length)
    return Geometry(
        decodes=decodes,
        wide=dim > 256,
        group=group,
        rows=tile,
        keys=keys,
        blocks=many * splits,
        longest=longest,
        mean=mean,
        splits=splits,
        resident=resident,
        pairs=many,
        repack=repack,
        fp8=fp8,
        kv=2.0 * batch * kv_heads * length * dim * kv_bytes,
        queries=tokens * heads * dim * dtype_bytes,
        fresh=2.0 * tokens * kv_heads * dim * (dtype_bytes + kv_bytes),
        tokens=tokens,
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        length=length,
        kv_size=np.full(dim.shape, kv_bytes),
    )


NUMBERS: NumberTable = {
    "floor_s": (10e-6, 1.0, "s", "time of the launches of a call without work"),
    "floor_dim_s": (0.7e-6, 0.5, "s", "time added for each doubling of head_dim over 64"),
    "prompt_s": (1e-6, 1.0, "s", "time added for a prompt over one query"),
    "group_s": (1.5e-6, 1.0, "s", "time added by FlashAttention-2 for grouped queries with one query a sequence"),
    "efficiency": (0.65, 0.3, "1", "attained share of the peak of the matrix units in a step of a block"),
    "efficiency_dim": (1.0, 0.15, "1", "factor on that share for each e-fold of head_dim over 128"),
    "exponentials": (24.0, 0.2, "1", "exponentials that one compute unit computes in a clock"),
    "block_s": (0.7e-6, 1.0, "s", "time in which a block starts and ends"),
    "block_dim": (
        1.0,
        0.2,
        "1",
        "factor on the time of starting and ending a block for each e-fold of head_dim over 128",
    ),
    "block_one": (1.0, 0.3, "1", "factor on the time of starting and ending a block where a sequence has one query"),
    "row_bytes": (6.4, 1.0, "1", "bytes a clock at which a block reads and writes its rows"),
    "row_bytes_many": (0.4, 1.0, "1", "cost of a row over 992 sequences, relative"),
    "chain": (1.1, 0.2, "1", "time of a step of a block alone on a unit over that of one of several blocks"),
    "chain_dim": (1.0, 0.15, "1", "factor on the time of a block alone for each e-fold of head_dim over 128"),
    "tail": (0.7, 0.7, "1", "share of the longest block that is idle time at the end of a prompt"),
    "even": (2.0, 0.3, "1", "exponent by which rounds of blocks count as whole ones as blocks become alike"),
    "stream_bytes": (60.0, 0.7, "1", "bytes of keys and values that one compute unit reads in a clock"),
    "fp8_turn_s": (0.1e-9, 0.7, "s", "time of transposing one fp8 value of a tile"),
    "fp8": (1.0, 0.3, "1", "time of a step in fp8 over one in bfloat16"),
    "fp8_dim": (1.0, 0.2, "1", "factor on the time of a step in fp8 for each e-fold of head_dim over 128"),
    "fp8_s": (1e-6, 1.0, "s", "time of quantising the queries"),
    "bandwidth": (0.85, 0.2, "1", "attained share of the specified memory bandwidth in reading keys and values"),
    "spill_s": (2e-6, 1.0, "s", "time added where keys and values are just larger than the cache"),
    "warm": (
        1.5,
        0.5,
        "1",
        "speed of reading keys and values that the step before left in the cache, over that of memory",
    ),
    "warm_fit": (0.8, 0.3, "1", "share of the last-level cache that holds keys and values from the step before"),
    "knee": (12.0, 0.3, "1", "how sharply the cache stops to hold keys and values as they grow"),
    "overlap": (
        3.0,
        0.4,
        "1",
        "how completely arithmetic and memory overlap with one query (exponent of a soft maximum)",
    ),
    "overlap_prompt": (
        1.5,
        0.5,
        "1",
        "how completely arithmetic and memory overlap in prompts (exponent of a soft maximum)",
    ),
    "write": (0.85, 0.08, "1", "attained share of the bandwidth in writing the KV cache"),
    "write_warm": (2.0, 0.5, "1", "speed of writing the KV cache while it fits the last-level cache"),
    "write_fit": (0.7, 0.3, "1", "share of the last-level cache in which writes fit"),
    "token_s": (1e-9, 1.0, "s", "time of the block that writes the keys and values of one token"),
    "token_fp8": (1.5, 0.3, "1", "factor on the time of writing a token where keys and values become fp8"),
    "split_s": (2e-6, 1.0, "s", "time of the kernel that combines parts of the keys"),
    "part_s": (0.05e-6, 1.0, "s", "time of combining each part of the keys"),
    "part_bytes": (0.6, 0.3, "1", "attained share of the bandwidth for parts and copies"),
    "copy_s": (5e-6, 0.5, "s", "time of the copies in which FlashAttention-2 regroups queries and outputs"),
    "sequence_s": (60e-9, 1.0, "s", "time of scheduling a sequence, which limits the rate of blocks (Hopper)"),
    "sequence_many_s": (30e-9, 1.0, "s", "time of scheduling a sequence beyond 992 sequences"),
    "bound": (
        4.0,
        0.2,
        "1",
        "how completely the scheduling of sequences and the starts of blocks overlap (exponent of a soft maximum)",
    ),
    "wide_step": (2.0, 0.5, "1", "factor on the time of a step with head_dim above 256"),
    "wide_floor": (1.5, 0.3, "1", "factor on the time without work with head_dim above 256"),
    "wide_sequence_s": (2e-6, 0.5, "s", "time of a sequence and key-value head with head_dim above 256"),
    "wide_sequence_many_s": (
        0.16e-6,
        0.5,
        "s",
        "time of a sequence and key-value head with head_dim above 256 beyond 992 sequences",
    ),
}
"""By name: the value without measurements, the spread among devices (standard deviation of the logarithm), unit, and
description. Bytes per clock and exponentials per clock are those of one unit."""


def _soft_max(a: FloatArray, b: FloatArray, power: float) -> FloatArray:
    high, low = np.maximum(a, b), np.minimum(a, b)
    return np.asarray(high * (1.0 + (low / high) ** power) ** (1.0 / power))


@dataclass(frozen=True)
class TimeComponents:
    """Times (s), [rows]: starts and ends of blocks, their steps, memory, work in series with them, and the total."""

    blocks: FloatArray
    steps: FloatArray
    memory: FloatArray
    serial: FloatArray
    total: FloatArray


def parts(g: Geometry, sheet: Datasheet, p: Numbers) -> TimeComponents:
    """Return the times of rows of one regime, from its numbers (see ``NUMBERS``).

    More bandwidth, peak or clock never increases the time, because each only divides a term of sums and maxima.
    """
    units, decodes, clock = sheet.units, g.decodes, sheet.clock
    dim = np.log(g.head_dim / 128.0)

    def power(name: str) -> FloatArray:
        return np.asarray(np.exp(np.log(p[name]) * dim))

    rate = sheet.peak / units * p["efficiency"] * power("efficiency_dim")
    step = g.rows * g.keys * (4.0 * g.head_dim / rate + 1.0 / (p["exponentials"] * clock))
    step = np.where(g.fp8, step * p["fp8"] * power("fp8_dim") + p["fp8_turn_s"] * g.keys * g.head_dim, step)
    step = step + np.where(decodes, 2.0 * g.keys * g.head_dim * g.kv_size / (p["stream_bytes"] * clock), 0.0)
    step = step * np.where(g.wide, p["wide_step"], 1.0)
    row = g.head_dim * 8.0 / (p["row_bytes"] * clock) * np.where(g.batch > _SCHEDULED, p["row_bytes_many"], 1.0)
    block = p["block_s"] * power("block_dim") * np.where(decodes, p["block_one"], 1.0)
    block = block + np.where(decodes, np.minimum(g.group, g.rows) * row, 0.0)
    longest = block + g.longest * step * np.where(decodes, 1.0, p["chain"] * power("chain_dim"))
    waves = np.where(g.blocks <= units, 1.0, g.resident * np.ceil(g.blocks / (g.resident * units)))
    alike = (g.mean / g.longest) ** p["even"]
    idle = alike * (waves - g.blocks / units) + (1.0 - alike) * p["tail"]
    busy = np.maximum(longest, g.blocks * (block + g.mean * step) / units + longest * idle)
    starts = block * np.where(decodes, waves, np.maximum(1.0, g.blocks / units))
    steps = np.maximum(busy - starts, 1e-9)
    if sheet.hopper:
        many = g.batch > _SCHEDULED
        turn = np.where(many, p["sequence_many_s"], p["sequence_s"]) * g.batch
        wide = np.where(many, p["wide_sequence_many_s"], p["wide_sequence_s"]) * g.pairs
        starts = _soft_max(starts, np.where(g.wide & decodes, wide, turn), p["bound"])
    foot = np.where(decodes, g.kv, g.fresh * g.kv_size / (2.0 + g.kv_size)) + 2.0 * g.queries
    warm = 1.0 / (1.0 + (foot / (p["warm_fit"] * sheet.l2)) ** p["knee"])
    memory = foot / (sheet.bandwidth * p["bandwidth"] * (1.0 + (p["warm"] - 1.0) * warm))
    memory = memory + np.where(decodes, p["spill_s"] * (1.0 - warm), 0.0)
    body = np.where(decodes, _soft_max(steps, memory, p["overlap"]), _soft_max(steps, memory, p["overlap_prompt"]))
    held = 1.0 / (1.0 + ((g.fresh + 2.0 * g.queries) / (p["write_fit"] * sheet.l2)) ** p["knee"])
    write = sheet.bandwidth * p["write"] * (1.0 + (p["write_warm"] - 1.0) * held)
    threads = np.minimum(g.kv_heads * g.head_dim, 512.0) / 512.0
    serial = p["floor_s"] * np.where(g.wide, p["wide_floor"], 1.0) + p["floor_dim_s"] * np.log2(g.head_dim / 64.0)
    serial = serial + g.fresh / write + g.tokens * p["token_s"] * threads * np.where(g.fp8, p["token_fp8"], 1.0)
    serial = serial + np.where(decodes, 0.0, p["prompt_s"]) + np.where(g.fp8, p["fp8_s"] + 1.5 * g.queries / write, 0.0)
    slow = sheet.bandwidth * p["part_bytes"]
    partial = 8.0 * g.splits * g.tokens * g.heads * g.head_dim / slow
    serial = serial + np.where(g.splits > 1.0, p["split_s"] + p["part_s"] * g.splits + partial, 0.0)
    if not sheet.hopper:
        serial = serial + np.where(decodes & (g.group > 1.0), p["group_s"], 0.0)
    serial = np.maximum(serial + np.where(g.repack, p["copy_s"] + 4.0 * g.queries / slow, 0.0), 1e-6)
    return TimeComponents(starts, steps, memory, serial, serial + starts + body)


REGIMES = ("one", "prompt", "one_fp8", "prompt_fp8", "one_wide", "prompt_wide")
"""Kinds of rows with separate numbers and residuals: one query per sequence or a prompt, 8-bit keys and values,
head_dim above 256 (another kernel)."""


def regime(g: Geometry) -> IntArray:
    """Return the index of each row's regime in REGIMES, [rows]."""
    return np.asarray(np.where(g.wide, 4, np.where(g.fp8, 2, 0)) + np.where(g.decodes, 0, 1), dtype=np.int64)


def formula(g: Geometry, sheet: Datasheet, numbers: Callable[[int], Numbers]) -> TimeComponents:
    """Return the times of rows; ``numbers`` returns the numbers of the regime with an index in REGIMES."""
    kind = regime(g)
    out = {name: np.empty(len(kind)) for name in ("blocks", "steps", "memory", "serial", "total")}
    for r in np.unique(kind).tolist():
        index = np.flatnonzero(kind == r)
        for name, value in vars(parts(take(g, index), sheet, numbers(r))).items():
            out[name][index] = value
    return TimeComponents(**out)


# inputs of the residual; scales are lengths over which it may change (octaves, or natural logarithms)
FEATURES = {
    "log2 kv_tokens": 4.5,
    "log2 batch x kv_heads": 4.5,
    "log2 head_dim": 3.0,
    "fp8": 2.25,
    "log seconds": 3.0,
    "log memory / steps": 2.25,
    "log steps / serial": 2.25,
    "log2 blocks / units": 3.0,
    "split": 3.0,
    "log2 longest": 4.5,
}


def features(g: Geometry, p: TimeComponents, sheet: Datasheet) -> FloatArray:
    """Return the features of rows for a residual, [rows, features], each over its length scale."""
    columns = (
        np.log2(g.length),
        np.log2(g.batch * g.kv_heads),
        np.log2(g.head_dim),
        g.fp8 * 1.0,
        np.log(p.total),
        np.clip(np.log(p.memory / p.steps), -3.0, 3.0),
        np.clip(np.log(p.steps / p.serial), -3.0, 3.0),
        np.log2(np.clip(g.blocks / sheet.units, 0.1, 64.0)),
        (g.splits > 1.0) * 1.0,
        np.clip(np.log2(g.longest), 0.0, 8.0),
    )
    return np.asarray(np.stack(columns, 1) / np.array(list(FEATURES.values())))
