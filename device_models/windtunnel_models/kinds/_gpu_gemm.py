"""Matrix products on a GPU."""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters, Raw
from windtunnel.core.ops import BYTES_PER_ELEMENT, FloatArray, Gemm, Rows
from windtunnel_models.kinds._gpu_kernel import Work, kernel, memory_rate, product_rate, traffic_s, unit_l2_rate_of

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
    rate = product_rate(p, rows.choices["dtype"], "matrix_efficiency")
    units = p("compute_units")
    compute = gemm_compute_s(rows, units=units, rate=rate, unit_l2_rate=unit_l2_rate_of(p), wave_s=p("wave_s"))
    traffic = Gemm.operand_bytes(rows.choices, rows.numbers)
    memory = traffic_s(p, rows, traffic, traffic, np.asarray(units))
    return kernel(p, rows, Work(compute, memory, _quantise_s(p, rows), Gemm.flops(rows.numbers) / rate))


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
    return p("kernel_floor_s") + p("quantise_passes") * moved / memory_rate(p)
