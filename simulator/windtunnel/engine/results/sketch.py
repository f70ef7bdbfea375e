"""Percentiles from histograms with the bins of DDSketch, for runs that are too long to keep every value.

A positive value x falls into bin ceil(log_gamma x) with gamma = (1 + a) / (1 - a), and every value of a bin differs
from the representative of the bin by at most the fraction a. Values of zero have a separate bin. The bins of several
sketches add up, so each part of a run can have its own histogram.

Source: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", PVLDB
12(12), 2019.
"""

from __future__ import annotations

import math

import numpy as np

from windtunnel.core.recording import IntArray
from windtunnel.core.ticks import FloatArray

RELATIVE_ERROR = 0.005
"""a: the largest relative error of a percentile that is read from bins."""

GAMMA = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR)
BINS_PER_E = 1.0 / math.log(GAMMA)
"""The number of bins over which values grow by a factor e."""


def bin_of(value: float) -> int:
    """Return the bin of a positive ``value`` in any unit. Numba can compile this function."""
    return math.ceil(math.log(value) * BINS_PER_E)


def value_of(index: float) -> float:
    """Return the representative of bin ``index``, which is within ``RELATIVE_ERROR`` of every value in the bin."""
    return float(GAMMA**index * (2.0 / (1.0 + GAMMA)))


def bins_of(values: FloatArray) -> IntArray:
    """Return ``bin_of`` of every element of ``values``, which must be positive; same shape."""
    return np.ceil(np.log(values) * BINS_PER_E).astype(np.int64)


def quantile_of_bins(counts: IntArray, lowest: int, zeros: int, fraction: float) -> float | None:
    """Return the value at ``fraction`` of a sketch, or None if the sketch is empty.

    Args:
        counts: The number of values in each bin, from bin ``lowest`` on; shape (bins,).
        lowest: The number of the first bin.
        zeros: The number of values that are zero.
        fraction: The percentile as a fraction. The rank is fraction * (n - 1), rounded down, as in the library.
    """
    total = int(counts.sum()) + zeros
    if not total:
        return None
    rank = fraction * (total - 1)
    if rank < zeros:
        return 0.0
    index = int(np.searchsorted(np.cumsum(counts), rank - zeros, side="right"))
    return value_of(lowest + index)
