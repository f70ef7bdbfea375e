"""How the tokens of a mixture of experts meet its experts, whatever device computes them.

Without skew the tokens are spread as evenly as possible, so that T tokens of k choices meet min(E, T k) of E experts,
or E (1 - (1 - k/E)^T) on average if they choose independently. With skew s the experts' loads are drawn from a power
law with the density x^-s between one token and 0.8 T (between 0.01 and 2 while there are fewer choices than experts),
scaled to T k choices, at most T for one expert, and made whole by the largest remainders. This is how the measurements
of the fit were made (ai-dynamo/aiconfigurator@095f58a), with the exponents 1.01 and 1.2. Below and above these the
loads of the nearer one are raised to the power skew / exponent, so that 0 is balanced and more is more skewed: a
density with a larger exponent would be even again. The rank with the most choices decides. The features are means over
draws with a fixed seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from windtunnel.core.ops import FloatArray, Moe, Rows

TILE = 128.0
"""Rows of a tile of the kernels for many tokens."""

_DRAWS = 32
_STEPS = 2
"""Grid points in an octave of tokens, between which the features of skewed routing are interpolated."""

_OCTAVES = 20

_MEASURED_SKEW = (1.01, 1.2)
_MOST_SKEW = 20.0
"""Exponent from which the load does not change any more."""


@dataclass(frozen=True)
class Geometry:
    """The features of rows, each [rows].

    ``hit``: experts of the rank with a token. ``own``: choices of the rank. ``whole``: those in whole tiles.
    ``partial``: partial tiles. ``every``: choices of all ranks. ``slice``: the rank's part of the experts' width.
    """

    hit: FloatArray
    own: FloatArray
    whole: FloatArray
    partial: FloatArray
    every: FloatArray
    width: FloatArray
    slice: FloatArray
    matrices: FloatArray
    weight_bytes: float


@lru_cache(maxsize=32)
def _loads(experts: int, chosen: int, skew: float) -> list[FloatArray]:
    """Return the choices of each expert at each point of the grid of tokens, each [draws, experts]."""
    skew = min(skew, _MOST_SKEW)
    exponent = min(max(skew, _MEASURED_SKEW[0]), _MEASURED_SKEW[1])
    uniform = np.random.default_rng(0).random((_DRAWS, experts))
    power = 1.0 - exponent
    out = []
    for i in range(_OCTAVES * _STEPS + 1):
        tokens = 2.0 ** (i / _STEPS)
        low, high = (1.0, max(0.8 * tokens, 1.01)) if tokens * chosen > experts else (0.01, 2.0)
        x = ((high**power - low**power) * uniform + low**power) ** (1.0 / power * skew / exponent)
        load = x / x.sum(1, keepdims=True) * (tokens * chosen)
        for _ in range(8):  # what exceeds one choice of each token goes to the others
            over = np.maximum(load - tokens, 0.0).sum(1, keepdims=True)
            if not over.any():
                break
            free = load < tokens
            load = np.minimum(load, tokens)
            load = load + free * load * over / np.maximum((free * load).sum(1, keepdims=True), 1e-12)
        out.append(_whole_numbers(np.minimum(load, tokens), tokens * chosen))
    return out


def _whole_numbers(load: FloatArray, total: float) -> FloatArray:
    """Return loads as whole numbers with the total ``total``, by the largest remainders."""
    whole = np.floor(load)
    remainder = load - whole
    missing = np.clip(np.round(total - whole.sum(1, keepdims=True)), 0, load.shape[1]).astype(int)
    ordered = np.concatenate([np.sort(remainder, axis=1), np.full((len(load), 1), np.inf)], 1)
    return np.asarray(whole + (remainder >= np.take_along_axis(ordered, load.shape[1] - missing, 1)))


@lru_cache(maxsize=4096)
def _skewed(experts: int, chosen: int, ranks: int, skew: float) -> tuple[FloatArray, ...]:
    """Return (hit, own / tokens, whole / tokens, partial) of the slowest rank on the grid of tokens, each [grid]."""
    loads = _loads(experts, chosen, skew)
    out = np.empty((4, len(loads)))
    for i, load in enumerate(loads):
        groups = load.reshape(_DRAWS, ranks, experts // ranks)
        worst = np.take_along_axis(groups, groups.sum(2).argmax(1)[:, None, None], 1)[:, 0]
        tokens, tiles = 2.0 ** (i / _STEPS), np.floor(worst / TILE)
        parts = (worst > 0.0).sum(1), worst.sum(1) / tokens, tiles.sum(1) * TILE / tokens, (worst > tiles * TILE).sum(1)
        out[:, i] = [part.mean() for part in parts]
    return tuple(out)


def geometry(rows: Rows, weight_bytes: float) -> Geometry:
    """Return the features of flat rows."""
    n = rows.numbers
    tokens, experts, chosen, ranks = n["tokens"], n["experts"], n["experts_per_token"], n["expert"]
    pairs = tokens * chosen
    hit = Moe.distinct_experts(rows.choices, n)
    if rows.choices.get("routing") != "independent":
        hit = np.ceil(hit)
    own = np.maximum(pairs / ranks, 1.0)
    each = own / hit
    tiles = np.floor(each / TILE + 1e-9)
    whole, partial = hit * tiles * TILE, hit * (each > tiles * TILE + 1e-6)
    for key in {tuple(k) for k in np.stack([experts, chosen, ranks, n["skew"]], 1)[n["skew"] > 0.0].tolist()}:
        count, k, parts, skew = key
        index = np.flatnonzero((experts == count) & (chosen == k) & (ranks == parts) & (n["skew"] == skew))
        table = _skewed(int(count), int(k), int(parts), skew)
        at = np.clip(np.log2(tokens[index]) * _STEPS, 0.0, _OCTAVES * _STEPS)
        grid = np.arange(_OCTAVES * _STEPS + 1)
        of = [np.interp(at, grid, part) for part in table]
        hit[index], partial[index] = of[0], of[3]
        own[index], whole[index] = np.maximum(of[1] * tokens[index], 1.0), of[2] * tokens[index]
    return Geometry(
        hit, own, whole, partial, pairs, n["width"], n["expert_width"] / n["tensor"], Moe.matrices(n), weight_bytes
    )
