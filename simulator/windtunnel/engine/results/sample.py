"""Samples from which confidence intervals are computed: the values of one run in order, or sums and histograms.

A run of a few million jobs keeps every value. A run of a hundred million keeps a count and a sum for each of at most a
few thousand contiguous batches, and a histogram for each of some tens of longer parts. Both are a ``BatchedSample``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windtunnel.core.recording import IntArray
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.results.sketch import GAMMA, RELATIVE_ERROR, quantile_of_bins

MAX_BATCHES = 2048
_MIN_BATCH_SIZE = 5
"""As in MSER-5 (White, Cobb, Spratt, 2000)."""


@dataclass(frozen=True)
class Histograms:
    """Histograms of contiguous parts of a run; each part consists of whole batches.

    Attributes:
        counts: The number of values in each bin, from bin ``lowest`` of ``sketch.bin_of`` on; shape (parts, bins).
        zeros: The number of values that are zero; shape (parts,).
        edges: The batches at which the parts begin and end; shape (parts + 1,).
        lowest: The number of the first bin.
        unit: The SI value of one unit of the binned values (1e-12 for ticks).
    """

    counts: IntArray
    zeros: IntArray
    edges: IntArray
    lowest: int
    unit: float = 1.0

    def without(self, batches: int) -> Histograms:
        """Return the parts that begin at ``batches`` or later; the new ``edges`` count from there."""
        first = int(np.searchsorted(self.edges[:-1], batches))
        return Histograms(
            self.counts[first:], self.zeros[first:], self.edges[first:] - self.edges[first], self.lowest, self.unit
        )


@dataclass(frozen=True)
class BatchedSample:
    """The values of a run in contiguous batches.

    Attributes:
        counts: The (weighted) number of values in each batch; shape (batches,).
        sums: The (weighted) sum of the values in each batch (SI); shape (batches,).
        edges: The values at which batches begin and end; shape (batches + 1,); None without ``values``.
        values: Every value in order (SI); shape (n,); None if only sums are kept.
        weights: The number of observations that each value represents; shape (n,); None for one each.
        histograms: Histograms that replace ``values`` for percentiles, or None.
    """

    counts: FloatArray
    sums: FloatArray
    edges: IntArray | None = None
    values: FloatArray | None = None
    weights: FloatArray | None = None
    histograms: Histograms | None = None

    @classmethod
    def from_values(
        cls, values: FloatArray, weights: FloatArray | None = None, *, max_batches: int = MAX_BATCHES
    ) -> BatchedSample:
        """Return the sample of ``values`` in order, in at most ``max_batches`` batches of at least five values."""
        count = len(values)
        batches = max(min(max_batches, count // _MIN_BATCH_SIZE), 1 if count else 0)
        edges = np.arange(batches + 1, dtype=np.int64) * count // max(batches, 1)
        if weights is None:
            return cls(np.diff(edges).astype(np.float64), _sums(values, edges), edges, values)
        return cls(_sums(weights, edges), _sums(values * weights, edges), edges, values, weights)

    @classmethod
    def from_batches(
        cls, counts: np.ndarray, sums: np.ndarray, histograms: Histograms | None = None, *, unit: float = 1.0
    ) -> BatchedSample:
        """Return the sample of batches with these ``counts`` and ``sums``, both of shape (batches,).

        ``unit`` is the SI value of one unit of the sums (1e-12 for ticks). An empty batch is merged with the one before
        it, so that every batch has a mean. Without ``histograms`` the sample has no percentiles.
        """
        total = counts.astype(np.float64)
        if (total > 0).all():
            return cls(total, sums.astype(np.float64) * unit, histograms=histograms)
        full = np.flatnonzero(total > 0)
        starts = np.concatenate([[0], full[1:]]).astype(np.int64) if len(full) else full
        if histograms is not None and len(full):
            edges = np.searchsorted(starts, histograms.edges)
            # A part without values has no information, and would leave two edges at one batch.
            kept = np.diff(edges) > 0
            histograms = Histograms(
                histograms.counts[kept],
                histograms.zeros[kept],
                np.append(edges[:-1][kept], edges[-1]),
                histograms.lowest,
                histograms.unit,
            )
        return cls(_add_up(total, starts), _add_up(sums.astype(np.float64), starts) * unit, histograms=histograms)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.counts)

    @cached_property
    def observations(self) -> float:
        """The number of observations, counting each value by its weight."""
        return float(self.counts.sum())

    @property
    def size(self) -> int:
        """The number of values, counting each value once."""
        return len(self.values) if self.values is not None else int(self.observations)

    @property
    def exact(self) -> bool:
        """Whether percentiles are computed from the values themselves."""
        return self.values is not None

    @property
    def has_percentiles(self) -> bool:
        """Whether the sample has values or histograms, from which percentiles can be computed."""
        return self.values is not None or self.histograms is not None

    @cached_property
    def positive(self) -> bool:
        """Whether no value is negative. Binned values never are."""
        return True if self.values is None else not len(self.values) or bool(self.values.min() >= 0.0)

    @property
    def mean(self) -> float:
        """The weighted mean of all values."""
        return float(self.sums.sum()) / self.observations

    @cached_property
    def least(self) -> float:
        """The smallest value (the lower end of its bin); 0 if neither values nor histograms are kept."""
        if self.values is not None:
            return float(self.values.min()) if len(self.values) else 0.0
        if self.histograms is None or self.histograms.zeros.any():
            return 0.0
        found = np.flatnonzero(self.histograms.counts.any(axis=0))
        return GAMMA ** (self.histograms.lowest + int(found[0]) - 1) * self.histograms.unit if len(found) else 0.0

    def batch_means(self) -> FloatArray:
        """Return the mean of each batch; shape (batches,)."""
        return self.sums / self.counts

    def without(self, batches: int) -> BatchedSample:
        """Return the sample without its first ``batches``, rounded up to the next histogram if there are any."""
        if self.histograms is not None:
            edges = self.histograms.edges
            batches = int(edges[np.searchsorted(edges[:-1], batches)])
        if not batches:
            return self
        rest = self.histograms.without(batches) if self.histograms is not None else None
        counts, sums = self.counts[batches:], self.sums[batches:]
        if self.edges is None or self.values is None:
            return BatchedSample(counts, sums, histograms=rest)
        start = int(self.edges[batches])
        weights = None if self.weights is None else self.weights[start:]
        return BatchedSample(counts, sums, self.edges[batches:] - start, self.values[start:], weights)

    def jobs_in(self, batches: int) -> int:
        """Return the number of values in the first ``batches``."""
        return int(self.edges[batches]) if self.edges is not None else round(float(self.counts[:batches].sum()))

    @cached_property
    def ordered(self) -> Ordered:
        """The values, or bins, in increasing order."""
        return Ordered(self)

    def above(self, value: float) -> tuple[FloatArray, FloatArray]:
        """Return, for each batch or histogram, the number of values and the number of values above ``value``."""
        if self.values is not None:
            beyond = self.values > value
            weighed = beyond.astype(np.float64) if self.weights is None else beyond * self.weights
            assert self.edges is not None  # noqa: S101  values come with edges
            return self.counts, _sums(weighed, self.edges)
        histograms = self.histograms
        assert histograms is not None  # noqa: S101  asked for only where there are percentiles
        totals = histograms.counts.sum(axis=1) + histograms.zeros
        bin_values = self.ordered.sizes[1:]
        return totals.astype(np.float64), histograms.counts[:, bin_values > value].sum(axis=1).astype(np.float64)


_BITS = 41
"""The low bits of a number that its coarse size leaves out: numbers of one size differ by at most 0.05%."""


class _WeightedSizes:
    """Values of at least 0 by their coarse size, from which a percentile follows without sorting all of them."""

    def __init__(self, values: FloatArray, weights: FloatArray) -> None:
        self._values, self._weights = values, weights
        # The bits of numbers of at least 0 are in the order of the numbers; adding 0 makes -0 one of them.
        self._size = (values + 0.0).view(np.int64) >> _BITS
        self._size -= self._size.min()
        self._reached = np.cumsum(np.bincount(self._size, weights))

    def value_at(self, weight: float) -> float:
        """Return the smallest value at which the cumulative weight reaches ``weight``."""
        size = int(np.searchsorted(self._reached, weight))
        here = np.flatnonzero(self._size == size)
        here = here[np.argsort(self._values[here])]
        before = float(self._reached[size - 1]) if size else 0.0
        return float(self._values[here[np.searchsorted(before + np.cumsum(self._weights[here]), weight)]])


def _interpolated(ordered: FloatArray, fraction: float) -> float:
    """Return ``np.quantile`` of values in increasing order, which it would order again; equal to the last bit."""
    last = len(ordered) - 1
    place = last * fraction
    below = min(int(place), last)
    low, high = float(ordered[below]), float(ordered[min(below + 1, last)])
    part = place - below
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1.0 - part)


class Ordered:
    """A sample in increasing order: ``sizes``, and in ``reached`` how many observations are at most each of them."""

    def __init__(self, sample: BatchedSample) -> None:
        self.exact = sample.values is not None
        self._weighted = sample.weights is not None
        self._sample, self._histograms = sample, sample.histograms

    @cached_property
    def total(self) -> float:
        """The number of observations."""
        weights = self._sample.weights
        if self.exact and weights is not None:
            return float(weights.sum())  # weights count, so their sums are exact in any order
        return float(len(self.sizes)) if self.exact else float(self.reached[-1])

    @cached_property
    def sizes(self) -> FloatArray:
        """The values in increasing order, or the representatives of the bins."""
        return self._sorted[0]

    @cached_property
    def reached(self) -> FloatArray:
        """How many observations are at most each of ``sizes``; empty for values without weights."""
        return self._sorted[1]

    @cached_property
    def _sorted(self) -> tuple[FloatArray, FloatArray]:
        sample = self._sample
        if sample.values is not None:
            if sample.weights is None:
                return np.sort(sample.values), np.zeros(0)
            # The order of equal values does not matter.
            order = np.argsort(sample.values)
            return sample.values[order], np.cumsum(sample.weights[order])
        histograms = sample.histograms
        assert histograms is not None  # noqa: S101  asked for only where there are percentiles
        indices = histograms.lowest + np.arange(histograms.counts.shape[1])
        sizes = np.concatenate([[0.0], GAMMA**indices * (2.0 / (1.0 + GAMMA))]) * histograms.unit
        counts = np.concatenate([[histograms.zeros.sum()], histograms.counts.sum(axis=0)])
        return sizes, np.cumsum(counts.astype(np.float64))

    @cached_property
    def _by_size(self) -> _WeightedSizes | None:
        """The weighted values by their coarse size; None for negative ones."""
        values, weights = self._sample.values, self._sample.weights
        assert values is not None and weights is not None  # noqa: S101  asked for only with both
        return _WeightedSizes(values, weights) if self._sample.positive else None

    def quantile(self, fraction: float) -> float:
        """Return the percentile that is reported.

        For values without weights it is NumPy's, which interpolates linearly between order statistics. For weighted
        values it is the smallest value at which the cumulative weight reaches ``fraction`` of the total. For histograms
        it is the representative of the bin of that rank.
        """
        if self.exact and not self._weighted:
            return _interpolated(self.sizes, fraction)
        if self.exact:
            if self._by_size is not None:
                return self._by_size.value_at(fraction * self.total)
            return float(self.sizes[np.searchsorted(self.reached, fraction * self.total)])
        histograms = self._histograms
        assert histograms is not None  # noqa: S101  not exact: there are bins
        quantile = quantile_of_bins(
            histograms.counts.sum(axis=0), histograms.lowest, int(histograms.zeros.sum()), fraction
        )
        return 0.0 if quantile is None else quantile * histograms.unit

    def exceeded_by(self, share: float) -> float:
        """Return the value that the fraction ``share`` of the observations exceeds; continuous in it for bins."""
        rank = (1.0 - share) * self.total
        if self.exact and not self._weighted:
            return float(self.sizes[min(max(int(np.ceil(rank)) - 1, 0), len(self.sizes) - 1)])
        place = min(int(np.searchsorted(self.reached, rank)), len(self.sizes) - 1)
        if self.exact or place == 0:
            return float(self.sizes[place])
        # The values within a bin are assumed to be uniformly distributed on a logarithmic scale.
        held = self.reached[place] - self.reached[place - 1]
        within = (rank - self.reached[place - 1]) / held if held else 0.5
        return float(self.sizes[place] * GAMMA ** (min(max(within, 0.0), 1.0) - 0.5))

    @property
    def error(self) -> float:
        """The relative error of a percentile: 0 for values, that of the sketch for bins."""
        return 0.0 if self.exact else RELATIVE_ERROR


def _sums(values: FloatArray, edges: IntArray) -> FloatArray:
    return _add_up(values, edges[:-1])


def _add_up(values: FloatArray, starts: IntArray) -> FloatArray:
    """Return the sums of the parts of ``values`` that begin at ``starts``, which must be strictly increasing."""
    if not len(starts) or not len(values):
        return np.zeros(0)
    return np.asarray(np.add.reduceat(values, starts), dtype=np.float64)
