"""Grouped products of a mixture of experts: how tokens meet experts, and the time of a rank's share of the layer.

Routing. Without skew the tokens are spread as evenly as possible, so that T tokens of k choices meet min(E, T k) of E
experts, or E (1 - (1 - k/E)^T) on average if they choose independently. With skew s the experts' loads are drawn from a
power law with the density x^-s between one token and 0.8 T (between 0.01 and 2 while there are fewer choices than
experts), scaled to T k choices, at most T for one expert, and made whole by the largest remainders. This is how the
measurements of the fit were made (ai-dynamo/aiconfigurator@095f58a), with the exponents 1.01 and 1.2. Below and above
these the loads of the nearer one are raised to the power skew / exponent, so that 0 is balanced and more is more
skewed: a density with a larger exponent would be even again. The rank with the most choices decides. The features are
means over draws with a fixed seed.

Time. Each expert that is hit reads its weights once, at the lower of two rates: a share of the memory bandwidth, and
what the units can keep in flight. Rows are multiplied in tiles of 128. Both overlap; added are a floor, a time for each
expert, and the traffic of activations: of the rank's own choices, and of the choices of all ranks in kernels that skip
those of others one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from windtunnel.core.ops import FloatArray, Moe, Rows

IntArray = npt.NDArray[np.int64]

TILE = 128.0
"""Rows of a tile of the kernels for many tokens."""

_DRAWS = 32
_STEPS = 2
"""Grid points in an octave of tokens, between which the features of skewed routing are interpolated."""

_OCTAVES = 20

_MEASURED_SKEW = (1.01, 1.2)
_MOST_SKEW = 20.0
"""Exponent from which the load does not change any more."""

ALIGNED = 16.0
"""A slice of the experts' width that is no multiple of this takes slower loads in some kernels."""

NUMBERS: dict[str, tuple[float, float, str, str]] = {
    "floor_s": (25e-6, 0.5, "s", "time of a layer without work: its kernels in a row"),
    "unit_bytes_per_clock": (12.0, 0.3, "B", "weights that one compute unit keeps in flight, in a clock"),
    "bandwidth": (0.96, 0.01, "1", "largest attained share of the specified bandwidth by weights"),
    "efficiency": (0.6, 0.2, "1", "attained share of the peak of the matrix units in whole tiles"),
    "rest": (0.5, 0.5, "1", "cost of a row of a partial tile over that of one in a whole tile"),
    "partial_rows": (40.0, 0.5, "1", "rows that a partial tile costs in addition"),
    "grow_rows": (4.0, 0.7, "1", "rows of a partial tile from which it costs most of these"),
    "wide": (0.15, 0.7, "1", "exponent by which slices wider than 4,096 multiply more slowly"),
    "expert_s": (0.1e-6, 1.0, "s", "time of each expert that is hit"),
    "slice_values": (16.0, 0.7, "1", "values added to the slice of an expert's width, by tiles and loads"),
    "own_traffic": (0.7, 0.5, "1", "traffic of a rank's choices, over inputs, intermediates and outputs once each"),
    "all_traffic": (0.1, 1.0, "1", "the same for the choices of all ranks"),
    "overlap": (3.0, 0.3, "1", "exponent by which reading and multiplying overlap"),
    "misaligned": (1.8, 0.2, "1", "factor on reading where a slice is no multiple of 16"),
    "misaligned_compute": (2.5, 0.3, "1", "factor on multiplying where a slice is no multiple of 16"),
    "start": (1.5, 0.3, "1", "exponent by which the floor overlaps with the rest"),
    "thin": (0.3, 0.7, "1", "share of the units that the tiles of one expert and 1,024 values of its width fill"),
}
"""Numbers of a kernel family: value before any measurement, deviation of its logarithm, unit, meaning."""

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Sheet:
    """Datasheet values: units, clock (Hz), memory bandwidth (B/s), peak of the products (FLOP/s)."""

    units: float
    clock: float
    bandwidth: float
    peak: float


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

    def take(self, index: IntArray) -> Geometry:
        """Return the features of some rows."""
        arrays = {name: value[index] for name, value in vars(self).items() if name != "weight_bytes"}
        return Geometry(**arrays, weight_bytes=self.weight_bytes)


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


def parts(g: Geometry, sheet: Sheet, x: Numbers) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the times (s) of reading weights, of multiplying, and of everything else."""
    odd = np.abs(g.slice / ALIGNED - np.round(g.slice / ALIGNED)) > 1e-6
    slice_ = g.slice + x["slice_values"]
    values = g.matrices * g.width * slice_
    rate = min(x["unit_bytes_per_clock"] * sheet.units * sheet.clock, x["bandwidth"] * sheet.bandwidth)
    filled = np.minimum(1.0, (g.hit * slice_ / 1024.0 * x["thin"]))
    reading = g.hit * values * g.weight_bytes / rate * np.where(odd, x["misaligned"], 1.0) / filled**0.5
    left = np.maximum(g.own - g.whole, 0.0)
    padding = g.partial * (1.0 - np.exp(-left / np.maximum(g.partial, 1e-9) / x["grow_rows"]))
    rows = g.whole + x["rest"] * left + x["partial_rows"] * padding
    wide = np.maximum(g.slice / 4096.0, 1.0) ** x["wide"]
    multiplying = 2.0 * rows * values / (sheet.peak * x["efficiency"]) * np.where(odd, x["misaligned_compute"], 1.0)
    multiplying = multiplying * wide / filled**0.5
    moved = 2.0 * (2.0 * g.width + g.matrices * g.slice)
    traffic = moved * (x["own_traffic"] * g.own + x["all_traffic"] * g.every) / sheet.bandwidth
    return reading, multiplying, x["expert_s"] * g.hit + traffic


def total_s(g: Geometry, sheet: Sheet, x: Numbers, read_factor: float = 1.0) -> FloatArray:
    """Return the time (s) of rows; ``read_factor``: on the time of reading weights."""
    reading, multiplying, rest = parts(g, sheet, x)
    reading = reading * read_factor
    work = rest + summed(reading, multiplying, x["overlap"])
    return summed(np.asarray(x["floor_s"]), work, x["start"])


def summed(a: FloatArray, b: FloatArray, power: float) -> FloatArray:
    """Return (a^power + b^power)^(1/power), without overflow: the sum for 1, the larger for large powers."""
    return np.asarray(np.exp(np.logaddexp(power * np.log(a), power * np.log(b)) / power))


def features(g: Geometry) -> FloatArray:
    """Return the coordinates of rows for a residual, [rows, features], scaled to about one unit each."""
    columns = (
        np.log2(g.own / g.hit) / 3.0,
        np.log2(g.hit) / 3.0,
        np.log2(g.slice) / 3.0,
        np.log2(g.width) / 2.0,
        np.log2(g.every / g.own) / 4.0,
    )
    return np.stack(columns, 1)
