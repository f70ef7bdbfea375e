"""GEMM latency from one device's arrays: analytic base, learned residual, interval. NumPy alone.

``arrays`` is what ``fit_gemm.fit_device`` returns, or its ``npz`` read back: for each table i (one data type and clock)

    tables      (T,)    names "dtype/clock"
    sheet       (4,)    units, clock (Hz), memory bandwidth (B/s), last-level cache (B), as they were at the fit
    peak, size  (T,)    matrix peak (FLOP/s) and bytes of an operand element, as they were at the fit
    numbers     (T, 11) the base's numbers, in the order of ``NAMES``
    knots_i (52, B + 1)     quantiles of the features that cut each into B ramps from 0 to 1
    mean_i, spread_i (F,)   standardise the F = 52 + 52 B inputs: the features, then their ramps
    w0_i (F, H) int8, scale0_i (H,), b0_i (H,), w1_i (H, H), b1_i (H,), w2_i (H,), b2_i ()   the residual's net
    width_i     (8,)    90% half-width of log time by region
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.generic]]

TILES = (
    (256, 256),
    (256, 128),
    (128, 256),
    (128, 128),
    (128, 64),
    (64, 128),
    (64, 64),
    (16, 128),
    (128, 16),
    (32, 32),
)
SPLITS = (1, 2, 4, 8, 16)
NAMES = (
    "efficiency",
    "memory_efficiency",
    "floor_s",
    "l2_bytes_per_clock",
    "wave_s",
    "k_step_s",
    "cache_b",
    "cache_ac",
    "overlap",
    "split_s",
    "quantise_passes",
)
REGIONS = 8


def base_parts(
    m: Array, n: Array, k: Array, numbers: Array, sheet: Array, peak: float, size: float
) -> tuple[Array, Array, Array]:
    """Seconds of the whole, of the arithmetic and of the traffic. Not decreasing in m, n, k and in 1 / any rate."""
    units, clock, bandwidth, cache = (float(v) for v in sheet)
    p = [float(v) for v in numbers]
    rate, unit_l2 = peak * p[0], p[3] * clock
    compute = np.full(len(m), np.inf)
    reduction = 8.0 * m * n / (units * unit_l2)
    rows = {tile: np.ceil(m / tile) for tile in {a for a, _ in TILES}}
    columns = {tile: np.ceil(n / tile) for tile in {b for _, b in TILES}}
    for tm, tn in TILES:
        per_k = max(2.0 * tm * tn / (rate / units), (tm + tn) * size / unit_l2, p[5])
        tiles = rows[tm] * columns[tn]
        for parts in SPLITS:
            took = np.ceil(tiles * (parts / units))
            took *= k * (per_k / parts) + p[4]
            if parts > 1:
                took += parts * reduction + p[9]
            np.minimum(compute, took, out=compute)
    a, b, c = size * m * k, size * n * k, 2.0 * m * n
    drawn = b * b / (b + p[6] * cache) + (a + c) ** 2 / (a + c + p[7] * cache)
    memory = drawn / (bandwidth * p[1]) + (a + b + c) / (units * unit_l2)
    total = p[2] + (compute ** p[8] + memory ** p[8]) ** (1.0 / p[8])
    if size < 2.0:
        total = total + 0.5 * p[2] + p[10] * m * k * (2.0 + size) / (bandwidth * p[1])
    return total, compute, memory


def features(
    m: Array, n: Array, k: Array, numbers: Array, sheet: Array, peak: float, size: float
) -> tuple[Array, Array, NDArray[np.int64]]:
    """The residual's inputs (rows, 52), log of the base, and the region (0 to 7) of the interval."""
    units, _, bandwidth, cache = (float(v) for v in sheet)
    rate, bandwidth, floor = peak * float(numbers[0]), bandwidth * float(numbers[1]), float(numbers[2])
    total, compute, memory = base_parts(m, n, k, numbers, sheet, peak, size)
    log, log_total = np.log, np.log(total)
    f = [log(m), log(n), log(k), log_total - np.log(floor), log(floor + compute) - log_total]
    f += [log(floor + memory) - log_total, log(floor + 2.0 * m * n * k / rate) - log_total]
    rows = {tile: np.ceil(m / tile) for tile in (8, 16, 32, 64, 128, 256)}
    columns = {tile: np.ceil(n / tile) for tile in (64, 128, 256)}
    for tm, tn in ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (32, 64)):
        waves = np.ceil(rows[tm] * columns[tn] / units)
        f += [log(waves), log(floor + waves * k * (2.0 * tm * tn * units / rate)) - log_total]
    for tm, tn in ((256, 128), (128, 128), (64, 64)):
        share = rows[tm] * columns[tn] / units
        f += [log(share), share / np.ceil(share)]
        f += [log(floor + np.ceil(share * q) * k * (2.0 * tm * tn * units / q / rate)) - log_total for q in (2, 4, 8)]
    for part in (size * m * k, size * n * k, 2.0 * m * n):
        f += [log((1e6 + part) / cache), log(floor + part / bandwidth) - log_total]
    f += [log(m / (rows[q] * q)) for q in (64, 128, 256)]
    f += [log(rows[q]) for q in (8, 16, 64)] + [log(columns[128])]
    f.append(log(floor + (6.0 * m * k / bandwidth if size < 2.0 else 0.0 * m)) - log_total)
    launch = np.where(total < 2.5 * floor, 0, np.where(memory > compute, 1, np.where(total < 25.0 * floor, 2, 3)))
    return np.clip(np.stack(f, 1), -8.0, 16.0), log_total, 2 * launch + (m <= 16)


def encode(x: NDArray[np.floating], knots: NDArray[np.floating]) -> NDArray[np.float32]:
    """Features and their ramps (rows, F): ramp j of a feature climbs from 0 to 1 between its knots j and j + 1.

    Piecewise-linear encoding (Gorishniy et al., On Embeddings for Numerical Features in Tabular Deep Learning, 2022): a
    small net then turns as sharply as trees do where kernels switch.
    """
    x, low, span = x.astype(np.float32), knots[:, :-1].astype(np.float32), np.diff(knots, axis=1).astype(np.float32)
    ramps = x[:, :, None] - low
    ramps /= span
    np.clip(ramps, 0.0, 1.0, out=ramps)
    return np.concatenate([x, ramps.reshape(len(x), -1)], axis=1)


def residual(arrays: Arrays, index: int, x: Array) -> Array:
    """log(time / base) of table ``index`` at the features ``x`` (rows, 52): two hidden SiLU layers over the ramps."""
    a = {
        name: np.asarray(arrays[f"{name}_{index}"], dtype=np.float32)
        for name in ("knots", "mean", "spread", "scale0", "w0", "b0", "w1", "b1", "w2", "b2")
    }
    w0 = a["w0"] * (a["scale0"] / 127.0) / a["spread"][:, None]
    z = encode(x, a["knots"]) @ w0 + (a["b0"] - a["mean"] @ w0)
    h = z / (1.0 + np.exp(np.minimum(-z, 60.0)))
    z = h @ a["w1"] + a["b1"]
    h = z / (1.0 + np.exp(np.minimum(-z, 60.0)))
    return np.asarray(h @ a["w2"] + a["b2"], dtype=np.float64)


def table_index(arrays: Arrays, dtype: str, clock: str) -> int:
    """Number of the table of a type and clock; ``KeyError`` where the device has none."""
    names = [str(name) for name in arrays["tables"]]
    if f"{dtype}/{clock}" not in names:
        raise KeyError(f"no measurements of gemm {dtype} at clock {clock}; there are {', '.join(names)}")
    return names.index(f"{dtype}/{clock}")


def log_factor(
    arrays: Arrays, m: Array, n: Array, k: Array, dtype: str, clock: str = "burst", sheet: Array | None = None
) -> tuple[Array, Array]:
    """log(time / base) and its 90% half-width (rows,), at sizes ``m``, ``n``, ``k`` (rows,).

    A pure function of the sizes, type and clock: everything else is as it was frozen at the fit, so a changed datasheet
    acts through ``base_parts`` alone. ``sheet`` replaces the frozen one where another device borrows this residual.
    """
    i = table_index(arrays, dtype, clock)
    frozen = np.asarray(arrays["sheet"] if sheet is None else sheet, dtype=np.float64)
    peak, size = float(arrays["peak"][i]), float(arrays["size"][i])
    if sheet is not None and len(frozen) > 4:
        frozen, peak = frozen[:4], float(frozen[4])
    factor, width = np.empty(len(m)), np.empty(len(m))
    widths = np.asarray(arrays[f"width_{i}"], dtype=np.float64)
    for start in range(0, len(m), 4096):  # blocks stay in the processor's cache
        rows = slice(start, start + 4096)
        x, _, region = features(m[rows], n[rows], k[rows], arrays["numbers"][i], frozen, peak, size)
        factor[rows], width[rows] = residual(arrays, i, x), widths[region]
    return factor, width
