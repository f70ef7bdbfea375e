"""Attention on a GPU: the kernels' own block structure, fitted numbers of a device, and a learned rest (NumPy alone).

The base follows two kernel families, from their published source (Dao-AILab/flash-attention, BSD-3-Clause):

- FlashAttention-2 (NVIDIA GPUs before Hopper). Blocks of 64 queries of a head against 256, 128 or 64 keys at a time
  (head_dim to 64, to 128, over), as many resident on a unit as shared memory allows, two at most. One query a
  sequence: the queries that share a key-value head are one block's rows and keys are split by ``num_splits_heuristic``
  over twice the units; with heads == kv_heads they are not split, so a block pads one query to 64 rows.
- FlashAttention-3 (Hopper). One persistent block a unit, 192 or 128 rows, queries that share a key-value head packed
  in rows; keys are split so that a unit gets ceil(1.1 x all blocks / units) of them (``prepare_varlen_num_blocks``),
  32 parts at most, not over 992 sequences.

Both write the new keys and values to the paged cache first, one thread block a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Rows: TypeAlias = Mapping[str, np.ndarray]
"""Equal-length arrays: batch, heads, kv_heads, head_dim, kv_tokens, decode (bool), dtype_bytes, kv_bytes."""


@dataclass(frozen=True)
class Sheet:
    """What a datasheet says: units, clock (Hz), memory (B/s), last-level cache (B), matrix peak (FLOP/s).

    ``shared``: shared memory of a unit (B). ``hopper``: units have warpgroup matrix instructions, so the framework
    takes FlashAttention-3.
    """

    units: float
    clock: float
    bandwidth: float
    l2: float
    peak: float
    shared: float
    hopper: bool


SHEETS = {
    "a100-sxm-80gb": Sheet(108, 1.41e9, 2.039e12, 40e6, 312e12, 164 * 1024, False),
    "h100-sxm-80gb": Sheet(132, 1.98e9, 3.35e12, 50e6, 989e12, 228 * 1024, True),
}

_MAX_SPLITS = 128
_MAX_DYNAMIC_SPLITS = 32
_SCHEDULED = 992.0
"""Sequences that FlashAttention-3's scheduler kernel handles; beyond, keys are not split and another kernel runs."""


@dataclass(frozen=True)
class Geometry:
    """What follows from the shape and the sheet alone; all arrays [rows]."""

    one: np.ndarray
    """one query a sequence: decode, and prompts of one token"""
    wide: np.ndarray
    """head_dim over 256: no fused kernel of these families, another one runs"""
    group: np.ndarray
    """query heads of a key-value head"""
    rows: np.ndarray
    keys: np.ndarray
    """tile of a block's step"""
    blocks: np.ndarray
    """thread blocks, splits counted"""
    longest: np.ndarray
    mean: np.ndarray
    """steps of the longest and of the mean block"""
    splits: np.ndarray
    resident: np.ndarray
    """blocks a unit holds at once"""
    pairs: np.ndarray
    repack: np.ndarray
    """queries and output are copied to group them by key-value head"""
    fp8: np.ndarray
    kv: np.ndarray
    queries: np.ndarray
    fresh: np.ndarray
    """bytes: all keys and values; queries (as many again as output); new keys and values, read and written"""
    tokens: np.ndarray
    batch: np.ndarray
    heads: np.ndarray
    kv_heads: np.ndarray
    head_dim: np.ndarray

    def take(self, index: np.ndarray) -> Geometry:
        return Geometry(**{name: value[index] for name, value in vars(self).items()})


def _heuristic_splits(blocks: np.ndarray, key_blocks: np.ndarray, slots: float) -> np.ndarray:
    """FlashAttention-2's ``num_splits_heuristic``: the fewest parts that fill the last wave to 85% of the best.

    For blocks that fill less than 80% of the slots; more are not split.
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


def geometry(rows: Rows, sheet: Sheet) -> Geometry:
    """The blocks, steps and bytes of each row."""
    batch, heads, kv_heads, dim, length = (
        rows[name] for name in ("batch", "heads", "kv_heads", "head_dim", "kv_tokens")
    )
    one = rows["decode"].astype(bool) | (length <= 1.0)
    fp8 = rows["kv_bytes"] < 2.0
    group = heads / kv_heads
    narrow, usual = dim <= 64, dim <= 128
    if sheet.hopper:
        tile = np.where(narrow, 192.0, 128.0)
        packed = np.where(one, group, length * group)
        tile = np.where((dim == 128) & (packed <= 64), 64.0, tile)
        prefill_keys = np.where(usual, 128.0, np.where(dim <= 192, 96.0, 80.0))
        keys = np.where(one & narrow, 160.0, prefill_keys)
        keys = np.where(fp8, np.where(dim > 192, 128.0, np.where(one & ~narrow, 96.0, 160.0)), keys)
        row_blocks = np.ceil(packed / tile)
        advance = tile / group
        many = batch * kv_heads * row_blocks
        key_blocks = np.ceil(length / keys)
        share = np.ceil(1.1 * many * key_blocks / sheet.units)
        splits = np.where(batch > _SCHEDULED, 1.0, np.clip(np.ceil(key_blocks / share), 1.0, _MAX_DYNAMIC_SPLITS))
        resident = np.ones_like(dim)
        repack = np.zeros_like(one)
    else:
        tile = np.full_like(dim, 64.0)
        keys = np.where(narrow, 256.0, np.where(usual, 128.0, 64.0))
        row_blocks = np.where(one, np.where(group > 1, np.ceil(group / 64.0), 1.0), np.ceil(length / 64.0))
        advance = tile
        many = batch * np.where(one & (group > 1), kv_heads, heads) * row_blocks
        key_blocks = np.ceil(length / keys)
        splits = np.ones_like(dim)
        some = one & (group > 1) & (many < 0.8 * 2.0 * sheet.units)
        splits[some] = _heuristic_splits(many[some], key_blocks[some], 2.0 * sheet.units)
        resident = np.clip(np.floor(sheet.shared / (2.0 * dim * (tile + 2.0 * keys))), 1.0, 2.0)
        repack = one & (kv_heads > 1) & (batch > 1) & (group > 1)
    longest = np.ceil(key_blocks / splits)
    # causal: the i-th block of rows sees i x advance keys, in whole tiles (half a tile too many on average)
    part = advance / keys
    triangle = (row_blocks + 1.0) / 2.0 * part + 0.5 * (1.0 - np.minimum(part, 1.0))
    mean = np.where(one, longest, np.clip(triangle / splits, 1.0, longest))
    tokens = batch * np.where(one, 1.0, length)
    return Geometry(
        one=one,
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
        kv=2.0 * batch * kv_heads * length * dim * rows["kv_bytes"],
        queries=tokens * heads * dim * rows["dtype_bytes"],
        fresh=2.0 * tokens * kv_heads * dim * (rows["dtype_bytes"] + rows["kv_bytes"]),
        tokens=tokens,
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
    )


PRIOR: dict[str, tuple[float, float]] = {
    # name: value before any measurement, and how far a fit may leave it (standard deviation of the logarithm)
    "floor_s": (10e-6, 1.0),  # launches
    "floor_dim_s": (0.7e-6, 0.5),  # more for each doubling of head_dim over 64
    "prompt_s": (1e-6, 1.0),  # more for a prompt than for one query
    "group_s": (1.5e-6, 1.0),  # FlashAttention-2: grouped queries, one query a sequence
    "efficiency": (0.65, 0.3),  # of the matrix peak in a step
    "efficiency_dim": (1.0, 0.15),  # factor on it a doubling ... of head_dim (e-fold of head_dim / 128)
    "exponentials": (24.0, 0.2),  # a clock and unit
    "block_s": (0.7e-6, 1.0),  # prologue and epilogue of a block
    "block_dim": (1.0, 0.2),
    "block_one": (1.0, 0.3),  # the same, times this, where a sequence has one query
    "row_bytes": (6.4, 1.0),  # a clock at which a block reads and writes its rows
    "row_bytes_many": (0.4, 1.0),  # cost of a row over 992 sequences, relative
    "chain": (1.1, 0.2),  # a lone block's step over a full unit's
    "chain_dim": (1.0, 0.15),
    "tail": (0.7, 0.7),  # of the longest block is idle time at the end, causal
    "even": (2.0, 0.3),  # how fast waves count whole as blocks become alike
    "stream_bytes": (60.0, 0.7),  # a clock that one unit draws of keys and values
    "fp8_turn_s": (0.1e-9, 0.7),  # turning one fp8 value of a tile
    "fp8": (1.0, 0.3),  # fp8 step over bf16 step
    "fp8_dim": (1.0, 0.2),
    "fp8_s": (1e-6, 1.0),  # quantising the queries
    "bandwidth": (0.85, 0.2),  # attained share of specified
    "spill_s": (2e-6, 1.0),  # keys and values just over the cache
    "warm": (1.5, 0.5),  # speed of keys and values left in the cache by the step before
    "warm_fit": (0.8, 0.3),  # share of the cache that holds them
    "knee": (12.0, 0.3),
    "overlap": (3.0, 0.4),  # power of the soft maximum of steps and memory, one query
    "overlap_prompt": (1.5, 0.5),
    "write": (0.85, 0.08),  # share of bandwidth in writing the cache
    "write_warm": (2.0, 0.5),
    "write_fit": (0.7, 0.3),
    "token_s": (1e-9, 1.0),  # a 512-thread block that writes one token's keys and values
    "token_fp8": (1.5, 0.3),
    "split_s": (2e-6, 1.0),  # the kernel that combines parts
    "part_s": (0.05e-6, 1.0),  # each part in it
    "part_bytes": (0.6, 0.3),  # share of bandwidth for parts and copies
    "copy_s": (5e-6, 0.5),  # FlashAttention-2: two copies that regroup queries and output
    "sequence_s": (60e-9, 1.0),  # scheduling a sequence (Hopper), bounds the blocks' rate
    "sequence_many_s": (30e-9, 1.0),
    "bound": (4.0, 0.2),
    "wide_step": (2.0, 0.5),  # head_dim over 256
    "wide_floor": (1.5, 0.3),
    "wide_sequence_s": (2e-6, 0.5),
    "wide_sequence_many_s": (0.16e-6, 0.5),
}
NAMES = tuple(PRIOR)
_HOPPER_TAIL = 0.15
"""FlashAttention-3 starts long blocks first, so little idles at the end."""


def prior(sheet: Sheet) -> np.ndarray:
    """Logarithms of the numbers before any measurement, [numbers]."""
    out = np.log([value for value, _ in PRIOR.values()])
    if sheet.hopper:
        out[NAMES.index("tail")] = np.log(_HOPPER_TAIL)
    return out


def _soft_max(a: np.ndarray, b: np.ndarray, power: float) -> np.ndarray:
    high, low = np.maximum(a, b), np.minimum(a, b)
    return np.asarray(high * (1.0 + (low / high) ** power) ** (1.0 / power))


@dataclass(frozen=True)
class Parts:
    """Seconds, [rows]: blocks' starts and ends, their steps, memory, all that is in series with them, and the whole."""

    blocks: np.ndarray
    steps: np.ndarray
    memory: np.ndarray
    serial: np.ndarray
    total: np.ndarray


def parts(g: Geometry, sheet: Sheet, numbers: np.ndarray) -> Parts:
    """The analytic base with one vector of numbers (logarithms, in the order of NAMES).

    More bandwidth, peak or clock never costs more: each only divides a term of sums and maxima.
    """
    p = dict(zip(NAMES, np.exp(numbers).tolist(), strict=True))
    units, one, clock = sheet.units, g.one, sheet.clock
    dim = np.log(g.head_dim / 128.0)

    def power(name: str) -> np.ndarray:
        return np.asarray(np.exp(np.log(p[name]) * dim))

    rate = sheet.peak / units * p["efficiency"] * power("efficiency_dim")
    step = g.rows * g.keys * (4.0 * g.head_dim / rate + 1.0 / (p["exponentials"] * clock))
    step = np.where(g.fp8, step * p["fp8"] * power("fp8_dim") + p["fp8_turn_s"] * g.keys * g.head_dim, step)
    kv_size = np.where(g.fp8, 1.0, 2.0)
    step = step + np.where(one, 2.0 * g.keys * g.head_dim * kv_size / (p["stream_bytes"] * clock), 0.0)
    step = step * np.where(g.wide, p["wide_step"], 1.0)
    row = g.head_dim * 8.0 / (p["row_bytes"] * clock) * np.where(g.batch > _SCHEDULED, p["row_bytes_many"], 1.0)
    block = p["block_s"] * power("block_dim") * np.where(one, p["block_one"], 1.0)
    block = block + np.where(one, np.minimum(g.group, g.rows) * row, 0.0)
    longest = block + g.longest * step * np.where(one, 1.0, p["chain"] * power("chain_dim"))
    waves = np.where(g.blocks <= units, 1.0, g.resident * np.ceil(g.blocks / (g.resident * units)))
    alike = (g.mean / g.longest) ** p["even"]
    idle = alike * (waves - g.blocks / units) + (1.0 - alike) * p["tail"]
    busy = np.maximum(longest, g.blocks * (block + g.mean * step) / units + longest * idle)
    starts = block * np.where(one, waves, np.maximum(1.0, g.blocks / units))
    steps = np.maximum(busy - starts, 1e-9)
    if sheet.hopper:
        many = g.batch > _SCHEDULED
        turn = np.where(many, p["sequence_many_s"], p["sequence_s"]) * g.batch
        wide = np.where(many, p["wide_sequence_many_s"], p["wide_sequence_s"]) * g.pairs
        starts = _soft_max(starts, np.where(g.wide & one, wide, turn), p["bound"])
    foot = np.where(one, g.kv, g.fresh * kv_size / (2.0 + kv_size)) + 2.0 * g.queries
    warm = 1.0 / (1.0 + (foot / (p["warm_fit"] * sheet.l2)) ** p["knee"])
    memory = foot / (sheet.bandwidth * p["bandwidth"] * (1.0 + (p["warm"] - 1.0) * warm))
    memory = memory + np.where(one, p["spill_s"] * (1.0 - warm), 0.0)
    body = np.where(one, _soft_max(steps, memory, p["overlap"]), _soft_max(steps, memory, p["overlap_prompt"]))
    held = 1.0 / (1.0 + ((g.fresh + 2.0 * g.queries) / (p["write_fit"] * sheet.l2)) ** p["knee"])
    write = sheet.bandwidth * p["write"] * (1.0 + (p["write_warm"] - 1.0) * held)
    threads = np.minimum(g.kv_heads * g.head_dim, 512.0) / 512.0
    serial = p["floor_s"] * np.where(g.wide, p["wide_floor"], 1.0) + p["floor_dim_s"] * np.log2(g.head_dim / 64.0)
    serial = serial + g.fresh / write + g.tokens * p["token_s"] * threads * np.where(g.fp8, p["token_fp8"], 1.0)
    serial = serial + np.where(one, 0.0, p["prompt_s"]) + np.where(g.fp8, p["fp8_s"] + 1.5 * g.queries / write, 0.0)
    slow = sheet.bandwidth * p["part_bytes"]
    partial = 8.0 * g.splits * g.tokens * g.heads * g.head_dim / slow
    serial = serial + np.where(g.splits > 1.0, p["split_s"] + p["part_s"] * g.splits + partial, 0.0)
    if not sheet.hopper:
        serial = serial + np.where(one & (g.group > 1.0), p["group_s"], 0.0)
    serial = np.maximum(serial + np.where(g.repack, p["copy_s"] + 4.0 * g.queries / slow, 0.0), 1e-6)
    return Parts(starts, steps, memory, serial, serial + starts + body)


REGIMES = ("one query", "prompt", "one query, fp8", "prompt, fp8", "one query, wide", "prompt, wide")
"""Kinds of rows with a vector of numbers and a learned rest each; wide: head_dim over 256."""


def regime(g: Geometry) -> np.ndarray:
    """The row's place in REGIMES, [rows]."""
    return np.where(g.wide, 4, np.where(g.fp8, 2, 0)) + np.where(g.one, 0, 1)


def base(g: Geometry, sheet: Sheet, numbers: np.ndarray) -> Parts:
    """The base with each row's own vector; ``numbers`` [regimes, numbers]."""
    kind = regime(g)
    out = {name: np.empty(len(kind)) for name in ("blocks", "steps", "memory", "serial", "total")}
    for r in np.unique(kind):
        index = np.flatnonzero(kind == r)
        for name, value in vars(parts(g.take(index), sheet, numbers[r])).items():
            out[name][index] = value
    return Parts(**out)


# what the learned rest sees; scales are lengths over which it may change (octaves, or natural logarithms)
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


def features(rows: Rows, g: Geometry, p: Parts, sheet: Sheet) -> np.ndarray:
    """[rows, features], each over its length."""
    columns = (
        np.log2(rows["kv_tokens"]),
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


AMPLITUDE = 0.01
"""Variance of the rest before it is learned: 10% of the base."""


def similar(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared-exponential similarity of the rows of a and b, [a, b], float32."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    distance = np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2.0 * (a @ b.T), 0.0)
    return np.asarray(np.exp(-0.5 * distance))


Arrays: TypeAlias = dict[str, np.ndarray]
"""One device's fit: ``numbers`` [regimes, numbers]; ``sheet`` [7]; ``halfwidth`` [regimes, 2], grouped and multi-head;
``centres_r`` [centres, features] and ``weights_r`` [centres] of regime r, where it had rows."""


def frozen_sheet(arrays: Arrays) -> Sheet:
    """The sheet that the fit was made with."""
    units, clock, bandwidth, l2, peak, shared, hopper = arrays["sheet"].tolist()
    return Sheet(units, clock, bandwidth, l2, peak, shared, bool(hopper))


def log_factor(arrays: Arrays, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of measured over base and its half-width of 90%, [rows] each; of the rows alone, all else as fitted."""
    sheet = frozen_sheet(arrays)
    g = geometry(rows, sheet)
    x, kind = features(rows, g, base(g, sheet, arrays["numbers"]), sheet), regime(g)
    factor, width = np.zeros(len(x)), np.array(arrays["halfwidth"], float)[kind, (g.group == 1.0).astype(int)]
    for k in np.unique(kind):
        if f"centres_{k}" not in arrays:
            continue
        index = np.flatnonzero(kind == k)
        near = similar(x[index], arrays[f"centres_{k}"])
        factor[index] = near @ arrays[f"weights_{k}"]
        # twice as wide where nothing like the row was measured
        width[index] *= 2.0 - near.max(1)
    return factor, width


def seconds(arrays: Arrays, rows: Rows, sheet: Sheet | None = None, rest: bool = True) -> np.ndarray:
    """Predicted seconds on ``sheet`` (that of the fit if None), with or without the learned rest."""
    sheet = sheet or frozen_sheet(arrays)
    total = base(geometry(rows, sheet), sheet, arrays["numbers"]).total
    return np.asarray(total * np.exp(log_factor(arrays, rows)[0])) if rest else total
