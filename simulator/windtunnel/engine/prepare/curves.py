"""Curves of costs over tokens and contexts from some of their points, because pricing every point takes long."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.core.recording import IntArray
from windtunnel.core.ticks import FloatArray


def thinned(grid: FloatArray, dense: float, apart: float = 0.06) -> IntArray:
    """Return the indices of points of a grid that suffice for a curve without jumps.

    Every point is kept up to ``dense``, and then points about 6% (``apart``) apart.
    """
    last = len(grid) - 1
    near = max(int(np.searchsorted(grid, dense, side="right")) - 1, 0)
    further = np.geomspace(max(near, 1), last, max(int(np.log(last / max(near, 1)) / apart) + 2, 2))
    return np.unique([*range(near + 1), *np.rint(further).astype(np.int64)])


def block_ends(tokens: FloatArray) -> IntArray:
    """Return the indices of numbers of tokens that suffice for the time of a matrix product.

    Every number is kept up to 512 tokens. Kernels compute tiles of at least 8 tokens, so the time jumps between blocks
    of 8, of which the first and the last number are kept.
    """
    block = np.ceil(tokens / 8.0)
    jumps = np.flatnonzero(np.diff(block))
    dense = np.flatnonzero(tokens <= 512.0)
    return np.unique(np.concatenate([dense, jumps, jumps + 1, [0, len(tokens) - 1]]))


def interpolated(priced: FloatArray, points: IntArray, grid: FloatArray) -> FloatArray:
    """Return a curve at every place of ``grid`` from its values at the indices ``points``, along the last axis."""
    at = grid[points]
    after = np.clip(np.searchsorted(at, grid, side="right"), 1, max(len(at) - 1, 1))
    before, after = after - 1, np.minimum(after, len(at) - 1)
    weight = (grid - at[before]) / np.maximum(at[after] - at[before], 1.0)
    curve: FloatArray = priced[..., before] + (priced[..., after] - priced[..., before]) * weight
    return curve


_DENSE = 16.0
"""In coarse tables every number of tokens and of sequences up to this one is priced."""


def coarsely(price: Callable[[FloatArray], FloatArray], amounts: FloatArray, apart: float) -> FloatArray:
    """Return the costs of amounts from those of amounts that are ``apart`` by this share of them.

    Args:
        price: Returns costs, whose second axis has the amounts that it is given.
        amounts: Increasing numbers of tokens or sequences, along the first axis.
        apart: The share.
    """
    every = amounts.reshape(-1)
    if len(every) <= _DENSE:
        return price(amounts)
    points = thinned(every, _DENSE, apart)
    # `interpolated` works along the last axis.
    return np.moveaxis(interpolated(np.moveaxis(price(amounts[points]), 1, -1), points, every), -1, 1)


def between(table: FloatArray, place: float) -> tuple[float, float]:
    """Return the two curves of ``table``, shape (2, points), at a place between two points."""
    low = int(place)
    weight = place - low
    seconds, joules = table
    high = low + 1
    return (
        float(seconds[low] + (seconds[high] - seconds[low]) * weight),
        float(joules[low] + (joules[high] - joules[low]) * weight),
    )


def prompt_scores(tokens: float, window: float) -> float:
    """Return what ``causal_scores`` does for one prompt, without the time that an array takes."""
    inside = min(tokens, window)
    return inside * (inside + 1.0) / 2.0 + (tokens - inside) * inside


class ByNumber:
    """The values of a function of whole numbers, which are kept for those that were asked for last.

    Redrawn runs have the lengths of the requests of their first run, and so ask for no others.
    """

    _MOST = 2**20
    """The largest number for which a value is kept."""

    def __init__(self) -> None:
        self._place = np.zeros(0, dtype=np.int64)
        """Where the value of each number is, or -1."""
        self._values = np.zeros((2, 0))

    def __call__(self, numbers: IntArray, function: Callable[[IntArray], FloatArray]) -> FloatArray:
        """Return ``function`` of ``numbers``, shape (2, numbers)."""
        if len(numbers) and numbers.max() < len(self._place):
            places = self._place[numbers]
            if (places >= 0).all():
                return self._values[:, places]
        different, places = np.unique(numbers, return_inverse=True)
        values = function(different)
        if len(numbers) and different[-1] < self._MOST:
            self._place, self._values = np.full(different[-1] + 1, -1), values
            self._place[different] = np.arange(len(different))
        return values[:, places]
