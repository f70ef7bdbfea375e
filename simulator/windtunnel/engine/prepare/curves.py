"""Curves of costs over tokens and contexts from some of their points, because pricing every point takes long."""

from __future__ import annotations

import numpy as np

from windtunnel.core.recording import IntArray
from windtunnel.core.ticks import FloatArray


def thinned(grid: FloatArray, dense: float) -> IntArray:
    """Return the indices of points of a grid that suffice for a curve without jumps.

    Every point is kept up to ``dense``, and then points about 6% apart.
    """
    last = len(grid) - 1
    near = max(int(np.searchsorted(grid, dense, side="right")) - 1, 0)
    further = np.geomspace(max(near, 1), last, max(int(np.log(last / max(near, 1)) / 0.06) + 2, 2))
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
