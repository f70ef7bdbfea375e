"""Grouped products of a mixture of experts on a GPU: the time of a rank's share of the layer.

Each expert that is hit (``_routing``) reads its weights once, at the lower of two rates: a share of the memory
bandwidth, and what the units can keep in flight. Rows are multiplied in tiles of 128. Both overlap; added are a floor,
a time for each expert, and the traffic of activations: of the rank's own choices, and of the choices of all ranks in
kernels that skip those of others one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.core.ops import FloatArray
from windtunnel_models.kinds._routing import Geometry
from windtunnel_models.kinds.gpu import fused
from windtunnel_models.kinds.gpu.fused import Numbers, NumberTable

ALIGNED = 16.0
"""A slice of the experts' width that is no multiple of this takes slower loads in some kernels."""

NUMBERS: NumberTable = {
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


@dataclass(frozen=True)
class Sheet(fused.Sheet):
    """Datasheet values, with the clock (Hz)."""

    clock: float


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
    return fused.whole_s(reading * read_factor, multiplying, rest, x)


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
