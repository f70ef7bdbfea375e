"""Percentiles from bins: DDSketch's mapping, for runs too long to keep every value.

Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", PVLDB 12(12),
2019: a positive value x falls into bin ceil(log_gamma x) with gamma = (1 + a) / (1 - a), and every value of a bin is
within the fraction a of the bin's representative. Values of zero have a bin of their own. Bins of several sketches
add up, so a run may be cut into batches with a histogram each.
"""

from __future__ import annotations

import math

import numpy as np

from windtunnel.core.result import IntArray
from windtunnel.core.ticks import FloatArray

RELATIVE_ERROR = 0.005
"""a: how far a percentile read from bins may lie from the value of that rank, relative to it."""

GAMMA = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR)
BINS_PER_E = 1.0 / math.log(GAMMA)
"""Bins in which a value grows e times as large."""


def bin_of(value: float) -> int:
    """The bin of a positive ``value``, in whatever unit. Plain enough for Numba to compile."""
    return math.ceil(math.log(value) * BINS_PER_E)


def value_of(index: float) -> float:
    """The representative of bin ``index``: within ``RELATIVE_ERROR`` of every value in the bin."""
    return float(GAMMA**index * (2.0 / (1.0 + GAMMA)))


def bins_of(values: FloatArray) -> IntArray:
    """``bin_of`` for every element of ``values``, all positive; shape kept."""
    return np.ceil(np.log(values) * BINS_PER_E).astype(np.int64)


def quantile_of_bins(counts: IntArray, lowest: int, zeros: int, fraction: float) -> float | None:
    """The value at ``fraction`` of a sketch: ``counts`` (bins,) from bin ``lowest`` up, and ``zeros`` values of zero.

    The rank is fraction * (n - 1), rounded down, as in the authors' library. None for an empty sketch.
    """
    total = int(counts.sum()) + zeros
    if not total:
        return None
    rank = fraction * (total - 1)
    if rank < zeros:
        return 0.0
    index = int(np.searchsorted(np.cumsum(counts), rank - zeros, side="right"))
    return value_of(lowest + index)
