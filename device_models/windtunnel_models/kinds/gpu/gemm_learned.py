"""The residual of a GPU's GEMM: a small neural network for each format, evaluated with NumPy.

The network was fitted to measurements of one device (benchmarks/accuracy/fit_gemm.py describes the fit and its errors
on shapes that were left out). Its inputs are logarithms of sizes, waves and component times, computed with the device's
numbers at the time of the fit. The arrays of one device, for each table i (one number format at one clock):

    tables      (T,)    names "dtype/clock"
    sheet       (4,)    units, clock (Hz), memory bandwidth (B/s), last-level cache (B)
    peak, size  (T,)    matrix peak (FLOP/s) and bytes of an operand element
    numbers     (T, 16) the formula's numbers, in the order of ``NAMES``; without the last in files of earlier fits
    knots_i (52, B + 1)     quantiles of the inputs that cut each into B ramps from 0 to 1
    mean_i, spread_i (F,)   standardise F = 52 + 52 B inputs: the 52, then their ramps
    w0_i (F, H) int8, scale0_i (H,), b0_i (H,), w1_i (H, H), b1_i (H,), w2_i (H,), b2_i ()   the network
    width_i     (8,)    90% half-width of the logarithm of a time, by region
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from windtunnel.core.device import Arrays, Correction, Parameters
from windtunnel.core.ops import BYTES_PER_ELEMENT, FloatArray, Rows, arithmetic
from windtunnel_models.kinds.gpu.gemm import MOST_SPREAD, STAND_INS, Numbers, formula_s

NAMES = (
    "efficiency",
    "memory_efficiency",
    "floor_s",
    "l2_bytes_per_clock",
    "wave_s",
    "wave_area",
    "wave_spread",
    "k_step_s",
    "cache_weights",
    "cache_knee",
    "cache_activations",
    "overlap",
    "sag",
    "split_s",
    "quantise_passes",
    "floor_overlap",
)
"""The formula's numbers in the order of the arrays, in SI units (in ``gemm`` times are in clocks)."""

REGIONS = 8

_BLOCK = 4096
"""The number of rows that are evaluated at once, whose inputs fit into the processor's cache."""

_NEAR = 128
"""The number of rows that are encoded at once, so that they stay in the cache of a processor core."""

_ROUNDED = 1e-4
"""A file has six digits of each number, so a device's formula differs by less than this (log) from that of the fit."""

_WAVES = ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (32, 64))
_PARTS = ((256, 128), (128, 128), (64, 64))


def numbers_at(arrays: Arrays, table: int) -> Numbers:
    """Return the formula's numbers as they were at the fit of a table."""
    units, clock, bandwidth, cache = (float(v) for v in arrays["sheet"])
    x = dict(zip(NAMES, (float(v) for v in arrays["numbers"][table]), strict=False))
    return Numbers(
        rate=float(arrays["peak"][table]) * x["efficiency"],
        memory_rate=bandwidth * x["memory_efficiency"],
        floor_s=x["floor_s"],
        unit_l2_rate=x["l2_bytes_per_clock"] * clock,
        wave_s=x["wave_s"],
        wave_area=x["wave_area"],
        wave_spread=min(x["wave_spread"], MOST_SPREAD),
        k_step_s=x["k_step_s"],
        kept_weights_bytes=x["cache_weights"] * cache,
        cache_knee=x["cache_knee"],
        kept_activations_bytes=x["cache_activations"] * cache,
        overlap=x["overlap"],
        sag=x["sag"],
        split_s=x["split_s"],
        quantise_passes=x["quantise_passes"] if float(arrays["size"][table]) < 2.0 else 0.0,
        units=units,
        l2_bytes=cache,
        floor_overlap=max(x.get("floor_overlap", 1.0), 1.0),
    )


def inputs(rows: Rows, x: Numbers) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64]]:
    """Return the network's inputs (n x 52), log of the formula's time (n), and the region of the interval (n).

    A batch counts as that many times the rows, because its tiles fill the units alike. Times are shares of the total.
    Regions: launch-bound, memory-bound, few waves, many waves; each is separate for up to 16 rows of activations.
    """
    numbers = rows.numbers
    m, n, k = np.broadcast_arrays(numbers["m"] * numbers["batch"], numbers["n"], numbers["k"])
    size = BYTES_PER_ELEMENT[rows.choices["dtype"]]
    whole, compute, memory = formula_s(rows, x)
    log, log_whole, floor = np.log, np.log(whole), x.floor_s
    f = [log(m), log(n), log(k), log_whole - np.log(floor), log(floor + compute) - log_whole]
    f += [log(floor + memory) - log_whole, log(floor + 2.0 * m * n * k / x.rate) - log_whole]
    down = {tile: np.ceil(m / tile) for tile in (8, 16, 32, 64, 128, 256)}
    across = {tile: np.ceil(n / tile) for tile in (64, 128, 256)}
    for tm, tn in _WAVES:
        waves = np.ceil(down[tm] * across[tn] / x.units)
        f += [log(waves), log(floor + waves * k * (2.0 * tm * tn * x.units / x.rate)) - log_whole]
    for tm, tn in _PARTS:
        share = down[tm] * across[tn] / x.units
        f += [log(share), share / np.ceil(share)]
        tile_s = 2.0 * tm * tn * x.units / x.rate
        f += [log(floor + np.ceil(share * split) * k * (tile_s / split)) - log_whole for split in (2, 4, 8)]
    for part in (size * m * k, size * n * k, 2.0 * m * n):
        f += [log((1e6 + part) / x.l2_bytes), log(floor + part / x.memory_rate) - log_whole]
    f += [log(m / (down[tile] * tile)) for tile in (64, 128, 256)]
    f += [log(down[tile]) for tile in (8, 16, 64)] + [log(across[128])]
    quantise = 6.0 * m * k / x.memory_rate if size < 2.0 else 0.0 * m
    f.append(log(floor + quantise) - log_whole)
    waves_region = np.where(whole < 25.0 * floor, 2, 3)
    region = np.where(whole < 2.5 * floor, 0, np.where(memory > compute, 1, waves_region))
    return np.clip(np.stack(f, 1), -8.0, 16.0), log_whole, np.asarray(2 * region + (m <= 16), dtype=np.int64)


def encode(x: npt.NDArray[Any], knots: npt.NDArray[Any]) -> FloatArray:
    """Return inputs and their ramps (n x F): ramp j of an input rises from 0 to 1 between its knots j and j + 1.

    This is piecewise-linear encoding (Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep
    Learning", 2022). With it a small network can change as sharply as trees, which is needed where a library changes
    kernels.
    """
    values, cuts = x.astype(np.float64), knots.astype(np.float64)
    low, width, ramps = cuts[:, :-1].reshape(-1), np.diff(cuts, axis=1).reshape(-1), knots.shape[1] - 1
    count, count_in = values.shape
    encoded = np.empty((count, count_in * (1 + ramps)))
    encoded[:, :count_in] = values
    for start in range(0, count, _NEAR):
        some = encoded[start : start + _NEAR, count_in:]
        np.subtract(np.repeat(values[start : start + _NEAR], ramps, axis=1), low, out=some)
        some /= width
        np.clip(some, 0.0, 1.0, out=some)
    return encoded


def _silu(x: FloatArray) -> FloatArray:
    return np.asarray(x / (1.0 + np.exp(np.minimum(-x, 60.0))))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


class Network:
    """The network of one table: log(time / formula) at the inputs ``x`` (n x 52), two hidden layers of SiLU.

    All arithmetic is in float64. In float32, results that a report shows would depend on the order of a processor's
    sums.
    """

    def __init__(self, arrays: Arrays, table: int) -> None:
        names = ("knots", "mean", "spread", "scale0", "w0", "b0", "w1", "b1", "w2", "b2")
        a = {name: np.asarray(arrays[f"{name}_{table}"], dtype=np.float64) for name in names}
        self._knots = a["knots"]
        self._first = a["w0"] * (a["scale0"] / 127.0) / a["spread"][:, None]
        self._first_bias = a["b0"] - a["mean"] @ self._first
        self._second, self._second_bias = a["w1"], a["b1"]
        self._last, self._last_bias = a["w2"], a["b2"]

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return log(time / formula) for each row of ``x``."""
        # The number of threads of the linear algebra library changes the last digits of a product.
        with _libraries().limit(limits=1, user_api="blas"):
            hidden = _silu(encode(x, self._knots) @ self._first + self._first_bias)
            hidden = _silu(hidden @ self._second + self._second_bias)
            return np.asarray(hidden @ self._last + self._last_bias)


class LearnedGemm:
    """The correction of GEMM, which depends on sizes, format and clock alone.

    It never makes a product faster than the peak of the device as it was at the fit.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._tables: dict[int, tuple[Numbers, Network, FloatArray, float]] = {}

    def __call__(self, _p: Parameters, rows: Rows) -> Correction | None:
        """Return the correction of ``rows``, or None for a format without a table."""
        index = self._table_of(rows.choices["dtype"], rows.choices["clock"])
        if index is None:
            return None
        # Factors are those of what was measured: 16-bit weights, and activations that are converted beforehand.
        dtype = arithmetic(rows.choices["dtype"])
        rows = replace(rows, choices={**rows.choices, "dtype": dtype, "activations": "wide"})
        if index not in self._tables:
            widths = np.asarray(self._arrays[f"width_{index}"], dtype=np.float64)
            network, peak = Network(self._arrays, index), float(self._arrays["peak"][index])
            self._tables[index] = numbers_at(self._arrays, index), network, widths, peak
        x, network, widths, peak = self._tables[index]
        shape = rows.shape
        numbers = {name: np.broadcast_to(values, shape).reshape(-1) for name, values in rows.numbers.items()}
        count = len(next(iter(numbers.values())))
        factor, spread = np.empty(count), np.empty(count)
        for start in range(0, count, _BLOCK):
            part = slice(start, start + _BLOCK)
            block = Rows(rows.op, rows.choices, {name: values[part] for name, values in numbers.items()})
            features, log_whole, region = inputs(block, x)
            at_peak = np.log(block.op.flops(block.choices, block.numbers) / peak) - log_whole + _ROUNDED
            factor[part], spread[part] = np.maximum(network(features), at_peak), widths[region]
        return Correction(factor.reshape(shape), spread.reshape(shape))

    def _table_of(self, dtype: str, clock: str) -> int | None:
        """Return the table for a format and clock: its own, that of bursts, or that of a similar format."""
        names = [str(name) for name in self._arrays["tables"]]
        for name in (dtype, *STAND_INS.get(dtype, ())):
            for held in dict.fromkeys((clock, "burst")):
                if f"{name}/{held}" in names:
                    return names.index(f"{name}/{held}")
        return None
