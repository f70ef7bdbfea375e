"""What an interval is made from: one run's values in order, or sums and histograms of its batches.

A run of a few million jobs keeps every value; a run of a hundred million keeps, for each of at most a few thousand
contiguous batches, a count and a sum, and for some tens of longer ones a histogram. Both are a ``BatchedSample``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from windtunnel.core.result import IntArray
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.results.sketch import GAMMA, RELATIVE_ERROR, quantile_of_bins

MOST_BATCHES = 2048
_LEAST_IN_A_BATCH = 5
"""As in MSER-5 (White, Cobb, Spratt, 2000)."""


@dataclass(frozen=True)
class Histograms:
    """Sketches of contiguous stretches of a run, each as long as some whole batches.

    ``counts``: (stretches, bins), from bin ``lowest`` of ``sketch.bin_of`` up. ``zeros``: (stretches,) values of zero.
    ``edges``: (stretches + 1,), the batches at which the stretches begin and end. ``unit``: what one unit of the binned
    values is in SI (1e-12 for ticks).
    """

    counts: IntArray
    zeros: IntArray
    edges: IntArray
    lowest: int
    unit: float = 1.0

    def without(self, batches: int) -> Histograms:
        """Only the stretches that begin at ``batches`` or later; ``edges`` count from there."""
        first = int(np.searchsorted(self.edges[:-1], batches))
        return Histograms(
            self.counts[first:], self.zeros[first:], self.edges[first:] - self.edges[first], self.lowest, self.unit
        )


@dataclass(frozen=True)
class BatchedSample:
    """A run's values by contiguous batches, in order.

    ``counts``, ``sums``: (batches,) floats; the (weighted) number of values in each batch, and their sum (SI).
    ``values``, ``weights``: (n,) every value in order and how many observations it stands for (None: one each), with
    ``edges`` (batches + 1,) where batches begin and end; or None, and then ``histograms`` may stand in.
    """

    counts: FloatArray
    sums: FloatArray
    edges: IntArray | None = None
    values: FloatArray | None = None
    weights: FloatArray | None = None
    histograms: Histograms | None = None

    @classmethod
    def from_values(
        cls, values: FloatArray, weights: FloatArray | None = None, *, most: int = MOST_BATCHES
    ) -> BatchedSample:
        """From every value in order (of arrival, or of time): at most ``most`` batches of at least five values."""
        count = len(values)
        batches = max(min(most, count // _LEAST_IN_A_BATCH), 1 if count else 0)
        edges = np.arange(batches + 1, dtype=np.int64) * count // max(batches, 1)
        if weights is None:
            return cls(np.diff(edges).astype(np.float64), _sums(values, edges), edges, values)
        return cls(_sums(weights, edges), _sums(values * weights, edges), edges, values, weights)

    @classmethod
    def from_batches(
        cls,
        counts: np.ndarray,
        sums: np.ndarray,
        histograms: Histograms | None = None,
        *,
        unit: float = 1.0,
    ) -> BatchedSample:
        """From summaries: ``counts`` and ``sums`` (batches,) in order, sums in ``unit`` (1e-12: ticks).

        Empty batches are joined to the one before, so that a batch always has a mean. Without ``histograms`` there are
        no percentiles.
        """
        total = counts.astype(np.float64)
        if (total > 0).all():
            return cls(total, sums.astype(np.float64) * unit, histograms=histograms)
        full = np.flatnonzero(total > 0)
        starts = np.concatenate([[0], full[1:]]).astype(np.int64) if len(full) else full
        if histograms is not None and len(full):
            edges = np.searchsorted(starts, histograms.edges)
            # A stretch without a value says nothing, and would leave two edges at one batch.
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
        """The number of batches."""
        return len(self.counts)

    @cached_property
    def observations(self) -> float:
        """Values in all; what a weighted value stands for counts in full."""
        return float(self.counts.sum())

    @property
    def size(self) -> int:
        """Values in all, each once whatever its weight."""
        return len(self.values) if self.values is not None else int(self.observations)

    @property
    def exact(self) -> bool:
        """Whether percentiles come from the values themselves."""
        return self.values is not None

    @property
    def has_percentiles(self) -> bool:
        """Whether there is anything to take percentiles from."""
        return self.values is not None or self.histograms is not None

    @cached_property
    def positive(self) -> bool:
        """Whether no value can be negative: what bins hold never is."""
        return True if self.values is None else not len(self.values) or bool(self.values.min() >= 0.0)

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return float(self.sums.sum()) / self.observations

    def batch_means(self) -> FloatArray:
        """(batches,)."""
        return self.sums / self.counts

    def without(self, batches: int) -> BatchedSample:
        """All but the first ``batches``; with histograms, as many more as the stretch they end in has."""
        if self.histograms is not None:
            edges = self.histograms.edges
            batches = int(edges[np.searchsorted(edges[:-1], batches)])
        if not batches:
            return self
        left = self.histograms.without(batches) if self.histograms is not None else None
        counts, sums = self.counts[batches:], self.sums[batches:]
        if self.edges is None or self.values is None:
            return BatchedSample(counts, sums, histograms=left)
        start = int(self.edges[batches])
        weights = None if self.weights is None else self.weights[start:]
        return BatchedSample(counts, sums, self.edges[batches:] - start, self.values[start:], weights)

    def jobs_in(self, batches: int) -> int:
        """How many values the first ``batches`` hold."""
        return int(self.edges[batches]) if self.edges is not None else round(float(self.counts[:batches].sum()))

    # Percentiles. `Ordered` below is made once for each sample.

    @cached_property
    def ordered(self) -> Ordered:
        """The values, or bins, in order of size."""
        return Ordered(self)

    def above(self, value: float) -> tuple[FloatArray, FloatArray]:
        """For each batch (or stretch with a histogram): how many values it has, and how many exceed ``value``."""
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


class Ordered:
    """A sample in order of size: ``sizes`` increase, ``reached`` is how many observations lie at or below each."""

    def __init__(self, sample: BatchedSample) -> None:
        self.exact = sample.values is not None
        self._weighted = sample.weights is not None
        self._histograms = sample.histograms
        if sample.values is not None:
            if sample.weights is None:
                self.sizes = np.sort(sample.values)
                self.reached = np.zeros(0)
                self.total = float(len(self.sizes))
                return
            order = np.argsort(sample.values, kind="stable")
            self.sizes = sample.values[order]
            self.reached = np.cumsum(sample.weights[order])
        else:
            histograms = sample.histograms
            assert histograms is not None  # noqa: S101  asked for only where there are percentiles
            indices = histograms.lowest + np.arange(histograms.counts.shape[1])
            self.sizes = np.concatenate([[0.0], GAMMA**indices * (2.0 / (1.0 + GAMMA))]) * histograms.unit
            counts = np.concatenate([[histograms.zeros.sum()], histograms.counts.sum(axis=0)])
            self.reached = np.cumsum(counts.astype(np.float64))
        self.total = float(self.reached[-1])

    def quantile(self, fraction: float) -> float:
        """The percentile as it is reported.

        NumPy's (linear between order statistics) of plain values; of weighted ones the least value at which the
        cumulated weight reaches ``fraction`` of the whole; of bins the representative of the rank's bin.
        """
        if self.exact and not self._weighted:
            return float(np.quantile(self.sizes, fraction))
        if self.exact:
            return float(self.sizes[np.searchsorted(self.reached, fraction * self.total)])
        histograms = self._histograms
        assert histograms is not None  # noqa: S101  not exact: there are bins
        found = quantile_of_bins(
            histograms.counts.sum(axis=0), histograms.lowest, int(histograms.zeros.sum()), fraction
        )
        return 0.0 if found is None else found * histograms.unit

    def exceeded_by(self, share: float) -> float:
        """The value that the fraction ``share`` of observations exceeds; smooth in ``share`` for bins too."""
        rank = (1.0 - share) * self.total
        if self.exact and not self._weighted:
            return float(self.sizes[min(max(int(np.ceil(rank)) - 1, 0), len(self.sizes) - 1)])
        place = min(int(np.searchsorted(self.reached, rank)), len(self.sizes) - 1)
        if self.exact or place == 0:
            return float(self.sizes[place])
        # Within a bin its values are taken to be spread evenly in the logarithm.
        held = self.reached[place] - self.reached[place - 1]
        within = (rank - self.reached[place - 1]) / held if held else 0.5
        return float(self.sizes[place] * GAMMA ** (min(max(within, 0.0), 1.0) - 0.5))

    @property
    def error(self) -> float:
        """The stated relative error of a percentile: none for values, the sketch's for bins."""
        return 0.0 if self.exact else RELATIVE_ERROR


def _sums(values: FloatArray, edges: IntArray) -> FloatArray:
    return _add_up(values, edges[:-1])


def _add_up(values: FloatArray, starts: IntArray) -> FloatArray:
    """Sums of the stretches of ``values`` that begin at ``starts`` (increasing strictly); empty for none."""
    if not len(starts) or not len(values):
        return np.zeros(0)
    return np.asarray(np.add.reduceat(values, starts), dtype=np.float64)
