"""Attention on a GPU: the kernels' own block structure, fitted numbers of a device, and a learned rest (NumPy alone).

    python benchmarks/accuracy/fit_attention.py ../shared/truth [held|fit FOLDER|transfer|monotone]

``held`` holds back whole head sets, (heads, kv_heads, head_dim); ``fit`` writes one array file a device; ``transfer``
predicts each device from the other's fit; ``monotone`` counts pairs where more work costs less. Fitting needs SciPy.

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

import csv
import gzip
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

Rows: TypeAlias = Mapping[str, np.ndarray]
"""Equal-length arrays: batch, heads, kv_heads, head_dim, kv_tokens, decode (bool), dtype_bytes, kv_bytes."""


@dataclass(frozen=True)
class Sheet:
    """What a datasheet says: units, clock (Hz), memory (B/s), last-level cache (B), matrix peak (FLOP/s).

    ``shared``: shared memory of a unit (B). ``hopper``: the unit runs warpgroup matrix instructions, so the framework takes FlashAttention-3.
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
    """FlashAttention-2's ``num_splits_heuristic``: the fewest parts that fill the last wave to 85% of the best."""
    efficiency = np.zeros((_MAX_SPLITS, len(blocks)))
    before = key_blocks
    for parts in range(1, _MAX_SPLITS + 1):
        now = np.ceil(key_blocks / parts)
        waves = blocks * parts / slots
        useful = (parts <= np.minimum(slots, key_blocks)) & ((now != before) | (parts == 1))
        efficiency[parts - 1] = np.where(useful, waves / np.ceil(waves), 0.0)
        before = now
    first = np.argmax(efficiency >= 0.85 * efficiency.max(0), 0) + 1.0
    return np.where(blocks >= 0.8 * slots, 1.0, first)


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
        some = one & (group > 1)
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


def _regime(g: Geometry) -> np.ndarray:
    """0 one query a sequence, 1 prompts, 2 and 3 the same with head_dim over 256."""
    return np.where(g.wide, 2, 0) + np.where(g.one, 0, 1)


def base(g: Geometry, sheet: Sheet, numbers: np.ndarray) -> Parts:
    """The base with each row's own vector; ``numbers`` [4, numbers], in the order of regimes."""
    regime = _regime(g)
    out = {name: np.empty(len(regime)) for name in ("blocks", "steps", "memory", "serial", "total")}
    for r in np.unique(regime):
        index = np.flatnonzero(regime == r)
        for name, value in vars(parts(g.take(index), sheet, numbers[r])).items():
            out[name][index] = value
    return Parts(**out)


def _fit_numbers(g: Geometry, sheet: Sheet, y: np.ndarray, start: np.ndarray, pull: float, count: int) -> np.ndarray:
    from scipy.optimize import least_squares

    index = np.random.default_rng(0).permutation(len(y))[:count]
    g, y = g.take(index), y[index]
    width = np.array([w for _, w in PRIOR.values()])

    def residual(x: np.ndarray) -> np.ndarray:
        return np.r_[np.log(parts(g, sheet, x).total) - y, pull * (x - start) / width]

    found = least_squares(residual, start, loss="soft_l1", f_scale=0.05, max_nfev=100, diff_step=1e-3)
    return np.asarray(found.x)


def fit_numbers(g: Geometry, sheet: Sheet, y: np.ndarray, count: int = 1500) -> np.ndarray:
    """The numbers of one device from log seconds ``y``: all rows, then each regime near that, [4, numbers]."""
    regime = _regime(g)
    usual = np.flatnonzero(regime < 2)
    both = _fit_numbers(g.take(usual), sheet, y[usual], prior(sheet), 0.3, count)
    out = np.stack([both] * 4)
    for r in range(4):
        index = np.flatnonzero(regime == r)
        start = out[r - 2] if r > 1 else both
        out[r] = _fit_numbers(g.take(index), sheet, y[index], start, 0.4, count) if len(index) else start
    return out


# what the learned rest sees; scales are lengths over which it may change (octaves, or natural logarithms)
FEATURES = {
    "log2 kv_tokens": 3.0,
    "log2 batch x kv_heads": 3.0,
    "log2 head_dim": 2.0,
    "fp8": 1.5,
    "log seconds": 2.0,
    "log memory / steps": 1.5,
    "log steps / serial": 1.5,
    "log2 blocks / units": 2.0,
    "split": 2.0,
    "log2 longest": 3.0,
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
    return np.stack(columns, 1) / np.array(list(FEATURES.values()))


_AMPLITUDE = 0.01
"""Variance of the rest before it is learned: 10% of the base."""
_NOISE = 0.03
_CENTRES = 500


def _similar(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared-exponential similarity of the rows of a and b, [a, b], float32."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    distance = np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2.0 * (a @ b.T), 0.0)
    return np.asarray(np.exp(-0.5 * distance))


def _fit_rest(x: np.ndarray, r: np.ndarray, centres: int = _CENTRES) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian process on a subset of rows as centres, outliers weighed down; the centres and their weights."""
    r = np.clip(r, -0.5, 0.5)
    chosen = x[np.random.default_rng(0).permutation(len(x))[:centres]]
    inner = _AMPLITUDE * _similar(chosen, chosen).astype(float)
    inner += 1e-5 * _AMPLITUDE * np.eye(len(chosen))
    outer = _AMPLITUDE * _similar(x, chosen).astype(float)
    weight = np.full(len(x), _NOISE**-2)
    for _ in range(3):
        solved = np.linalg.solve(inner + outer.T @ (outer * weight[:, None]), outer.T @ (weight * r))
        weight = _NOISE**-2 / np.maximum(1.0, np.abs(r - outer @ solved) / (2.0 * _NOISE))
    return chosen.astype(np.float32), (_AMPLITUDE * solved).astype(np.float32)


Arrays: TypeAlias = dict[str, np.ndarray]
"""One device's fit: ``numbers`` [4, numbers], ``sheet`` [7], ``halfwidth`` [4], ``centres_r`` and ``weights_r`` of regime r."""

_HALFWIDTH = (0.10, 0.12, 0.5, 0.5)
"""Half-widths of 90% (logarithm) where a fit has not been calibrated on head sets held back."""


def frozen_sheet(arrays: Arrays) -> Sheet:
    """The sheet that the fit was made with."""
    *numbers, hopper = arrays["sheet"].tolist()
    return Sheet(*numbers, hopper=bool(hopper))


def fit_device(rows: Rows, sheet: Sheet, y: np.ndarray, count: int = 1500, centres: int = _CENTRES) -> Arrays:
    """Numbers and rest of one device from log seconds ``y`` [rows] of its own rows."""
    g = geometry(rows, sheet)
    numbers = fit_numbers(g, sheet, y, count)
    p = base(g, sheet, numbers)
    x, r, regime = features(rows, g, p, sheet), y - np.log(p.total), _regime(g)
    out: Arrays = {"numbers": numbers, "sheet": np.array([float(v) for v in vars(sheet).values()])}
    out["halfwidth"] = np.array(_HALFWIDTH)
    for k in np.unique(regime):
        index = np.flatnonzero(regime == k)
        out[f"centres_{k}"], out[f"weights_{k}"] = _fit_rest(x[index], r[index], centres)
    return out


def log_factor(arrays: Arrays, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of measured over base and its half-width of 90%, [rows] each; of the rows alone, all else as fitted."""
    sheet = frozen_sheet(arrays)
    g = geometry(rows, sheet)
    x, regime = features(rows, g, base(g, sheet, arrays["numbers"]), sheet), _regime(g)
    factor, width = np.zeros(len(x)), np.array(arrays["halfwidth"], float)[regime]
    for k in np.unique(regime):
        if f"centres_{k}" not in arrays:
            continue
        index = np.flatnonzero(regime == k)
        near = _similar(x[index], arrays[f"centres_{k}"])
        factor[index] = near @ arrays[f"weights_{k}"]
        # twice as wide where nothing like the row was measured
        width[index] *= 2.0 - near.max(1)
    return factor, width


def seconds(arrays: Arrays, rows: Rows, sheet: Sheet | None = None, rest: bool = True) -> np.ndarray:
    """Predicted seconds on ``sheet`` (that of the fit if None), with or without the learned rest."""
    sheet = sheet or frozen_sheet(arrays)
    total = base(geometry(rows, sheet), sheet, arrays["numbers"]).total
    return np.asarray(total * np.exp(log_factor(arrays, rows)[0])) if rest else total


# ---- measurements, splits and tables


@dataclass(frozen=True)
class Table:
    """One device's rows and their log seconds."""

    sku: str
    rows: dict[str, np.ndarray]
    y: np.ndarray

    def take(self, index: np.ndarray) -> Table:
        return replace(self, rows={k: v[index] for k, v in self.rows.items()}, y=self.y[index])

    @property
    def sheet(self) -> Sheet:
        return SHEETS[self.sku]

    def sets(self) -> list[tuple[float, float, float]]:
        r = self.rows
        return list(zip(r["heads"].tolist(), r["kv_heads"].tolist(), r["head_dim"].tolist(), strict=True))


def read(folder: Path) -> list[Table]:
    """``attention.csv.gz`` by device."""
    with gzip.open(folder / "attention.csv.gz", "rt", newline="") as file:
        lines = list(csv.DictReader(file))
    out = []
    for sku in SHEETS:
        mine = [line for line in lines if line["sku"] == sku]
        rows = {
            k: np.array([float(m[k]) for m in mine]) for k in ("batch", "heads", "kv_heads", "head_dim", "kv_tokens")
        }
        rows["decode"] = np.array([m["phase"] == "decode" for m in mine])
        rows["dtype_bytes"] = np.full(len(mine), 2.0)
        rows["kv_bytes"] = np.array([1.0 if m["kv_dtype"].startswith("fp8") else 2.0 for m in mine])
        out.append(Table(sku, rows, np.log([float(m["latency_s"]) for m in mine])))
    return out


def set_fold(table: Table, folds: int, seed: int = 0) -> np.ndarray:
    """The fold of each row: whole head sets, dealt at random."""
    sets = sorted(set(table.sets()))
    order = np.random.default_rng(seed).permutation(len(sets))
    fold = {sets[j]: i % folds for i, j in enumerate(order)}
    return np.array([fold[s] for s in table.sets()])


def _cells(table: Table) -> list[tuple[str, np.ndarray]]:
    decode, fp8, wide = table.rows["decode"], table.rows["kv_bytes"] < 2, table.rows["head_dim"] > 256
    mha = table.rows["heads"] == table.rows["kv_heads"]
    out = []
    for phase, mine in (("prefill", ~decode), ("decode", decode)):
        out += [
            (phase, mine & ~fp8 & ~wide),
            (phase + " grouped", mine & ~fp8 & ~wide & ~mha),
            (phase + " multi-head", mine & ~fp8 & ~wide & mha),
            (phase + " fp8 kv", mine & fp8),
            (phase + " head_dim 512", mine & wide),
        ]
    return [(name, index) for name, index in out if index.any()]


def show(table: Table, predicted: np.ndarray, width: np.ndarray | None = None) -> None:
    """MAPE, median, p90, bias, coverage and half-width of log predictions, by phase and kind of head set."""
    error = np.abs(np.exp(predicted - table.y) - 1.0)
    for name, i in _cells(table):
        line = (
            f"{table.sku[:4]} {name:22s} n={i.sum():5d} MAPE {error[i].mean():6.2%} median {np.median(error[i]):6.2%} "
            f"p90 {np.quantile(error[i], 0.9):6.1%} bias {np.median((predicted - table.y)[i]):+.3f}"
        )
        if width is not None:
            inside = np.abs(predicted - table.y)[i] <= width[i]
            line += f" inside {inside.mean():.1%} half-width {np.median(np.sinh(width[i])):.1%}"
        print(line, flush=True)


def show_sets(table: Table, predicted: np.ndarray) -> None:
    error, sets = np.abs(np.exp(predicted - table.y) - 1.0), np.array(table.sets())
    for phase in (False, True):
        cells = []
        for s in sorted(set(table.sets())):
            i = (sets == s).all(1) & (table.rows["decode"] == phase)
            if i.any():
                cells.append(f"{s[0]:.0f}/{s[1]:.0f}/{s[2]:.0f} {error[i].mean():.1%}")
        print("  decode" if phase else "  prefill", ", ".join(cells))


FOLDS = {"a100-sxm-80gb": 6, "h100-sxm-80gb": 11}
"""A100 has six head sets, H100 22."""


def held_out(table: Table, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log prediction of base and whole, and half-width before calibration; each row from a fit without its head set."""
    fold = set_fold(table, FOLDS[table.sku], seed)
    plain, whole, width = np.zeros_like(table.y), np.zeros_like(table.y), np.zeros_like(table.y)
    for f in range(FOLDS[table.sku]):
        train, test = table.take(np.flatnonzero(fold != f)), table.take(np.flatnonzero(fold == f))
        arrays = fit_device(train.rows, train.sheet, train.y)
        plain[fold == f] = np.log(seconds(arrays, test.rows, rest=False))
        factor, width[fold == f] = log_factor(arrays, test.rows)
        whole[fold == f] = plain[fold == f] + factor
    return plain, whole, width


def calibrated(table: Table, whole: np.ndarray, width: np.ndarray, target: float = 0.92) -> np.ndarray:
    """Factor on each regime's half-width that puts ``target`` of the held-out rows inside, [4]."""
    out = np.ones(4)
    regime = _regime(geometry(table.rows, table.sheet))
    for k in range(2):
        i = regime == k
        out[k] = np.quantile(np.abs(whole - table.y)[i] / width[i], target)
    return out


def nested_width(table: Table, whole: np.ndarray, width: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Half-widths where each fold's factor comes from the other folds' held-out rows."""
    out = width.copy()
    regime = _regime(geometry(table.rows, table.sheet))
    for f in np.unique(fold):
        others = np.flatnonzero(fold != f)
        factor = calibrated(table.take(others), whole[others], width[others])
        out[fold == f] *= factor[regime[fold == f]]
    return out


def run_held(tables: list[Table]) -> None:
    means = []
    for table in tables:
        start = time.time()
        plain, whole, width = held_out(table)
        width = nested_width(table, whole, width, set_fold(table, FOLDS[table.sku]))
        print("base alone")
        show(table, plain)
        print(f"with the rest ({time.time() - start:.0f} s)")
        show(table, whole, width)
        show_sets(table, whole)
        error, fp8 = np.abs(np.exp(whole - table.y) - 1.0), table.rows["kv_bytes"] < 2
        wide = table.rows["head_dim"] > 256
        for phase in (False, True):
            i = table.rows["decode"] == phase
            means.append([error[i & ~fp8 & ~wide].mean(), error[i & ~fp8].mean(), error[i].mean()])
    for name, value in zip(("bf16 keys and values", "with head_dim 512", "all rows"), np.mean(means, 0), strict=True):
        print(f"mean of prefill and decode on two devices, {name}: {value:.2%}")


def run_fit(tables: list[Table], folder: Path) -> None:
    """One array file a device from all its rows; half-widths from head sets held back."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        _, whole, width = held_out(table)
        arrays = fit_device(table.rows, table.sheet, table.y, count=3000)
        arrays["halfwidth"] = arrays["halfwidth"] * calibrated(table, whole, width)
        np.savez_compressed(folder / f"attention-{table.sku}.npz", **arrays)
        for r, name in enumerate(("one query", "prompt", "one query, wide", "prompt, wide")):
            print(
                table.sku,
                name,
                {n: float(f"{v:.3g}") for n, v in zip(NAMES, np.exp(arrays["numbers"][r]), strict=True)},
            )
        print(table.sku, "half-widths", arrays["halfwidth"].round(3))


def run_transfer(tables: list[Table]) -> None:
    """Each device from the other's fit and its own sheet; then with 100 of its rows."""
    for table in tables:
        other = next(t for t in tables if t.sku != table.sku)
        arrays = fit_device(other.rows, other.sheet, other.y)
        g = geometry(table.rows, table.sheet)
        print(f"{table.sku} before any measurement (numbers of PRIOR)")
        show(table, np.log(base(g, table.sheet, np.stack([prior(table.sheet)] * 4)).total))
        plain = np.log(seconds(arrays, table.rows, table.sheet, rest=False))
        factor, _ = log_factor(arrays, table.rows)
        for weight in (0.0, 0.5, 1.0):
            print(f"{table.sku} from {other.sku}, share of the rest {weight}")
            show(table, plain + weight * factor)
        for seed in range(2):
            chosen = np.random.default_rng(seed).choice(len(table.y), 100, replace=False)
            left = np.setdiff1d(np.arange(len(table.y)), chosen)
            few = table.take(chosen)
            mine = fit_device(few.rows, few.sheet, few.y, centres=100)
            rest = table.take(left)
            print(f"{table.sku} from 100 of its own rows, seed {seed}")
            show(rest, np.log(seconds(mine, rest.rows)))


def run_monotone(tables: list[Table], count: int = 20000) -> None:
    """Random pairs in which the second asks for more; the share where it costs over 1% less."""
    g = np.random.default_rng(0)
    for table in tables:
        arrays = fit_device(table.rows, table.sheet, table.y)
        index = g.integers(0, len(table.y), count)
        rows = {k: v[index].copy() for k, v in table.rows.items()}
        jitter = np.where(g.random(count) < 0.5, np.exp2(g.random(count)), 1.0)
        rows["kv_tokens"] = np.maximum(1.0, np.round(rows["kv_tokens"] * jitter))
        rows["batch"] = np.maximum(1.0, np.round(rows["batch"] * np.where(g.random(count) < 0.5, jitter, 1.0)))
        start = time.time()
        one, plain = seconds(arrays, rows), seconds(arrays, rows, rest=False)
        print(f"{table.sku} {count} rows {time.time() - start:.2f} s, twice base and once the rest")
        steps: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
            "batch x 2": lambda r: r | {"batch": r["batch"] * 2},
            "kv_tokens x 2": lambda r: r | {"kv_tokens": r["kv_tokens"] * 2},
            "heads, kv_heads x 2": lambda r: r | {"heads": r["heads"] * 2, "kv_heads": r["kv_heads"] * 2},
            "heads x 2": lambda r: r | {"heads": r["heads"] * 2},
            "batch + 1": lambda r: r | {"batch": r["batch"] + 1},
            "kv_tokens x 1.1": lambda r: r | {"kv_tokens": np.ceil(r["kv_tokens"] * 1.1)},
        }
        for name, change in steps.items():
            more = change(dict(rows))
            low, low_plain = seconds(arrays, more) / one - 1.0, seconds(arrays, more, rest=False) / plain - 1.0
            print(
                f"  {name:20s} over 1% cheaper: {(low < -0.01).mean():6.2%} (base {(low_plain < -0.01).mean():6.2%}), "
                f"by over 5%: {(low < -0.05).mean():6.2%}, worst {low.min():+.1%}"
            )


def main() -> None:
    tables = read(Path(sys.argv[1]))
    what = sys.argv[2] if len(sys.argv) > 2 else "held"
    if what == "held":
        run_held(tables)
    elif what == "fit":
        run_fit(tables, Path(sys.argv[3]))
    elif what == "transfer":
        run_transfer(tables)
    else:
        run_monotone(tables)


if __name__ == "__main__":
    main()
