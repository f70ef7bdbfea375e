"""Functions over arrays with NumPy's vector code, divided among threads. NumPy releases Python's lock while it works.

The arrays are processed in pieces that stay in a core's cache, because most functions take several passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

_PIECE = 131_072
"""Elements of a piece. With intermediate results it takes about 200 KiB, less than a core's second-level cache."""
_ALONE = 65_536
"""Up to this many elements one thread does all the work: dividing it takes about 50 us."""
_CUBED, _SCALE = np.float32(0.044715), np.float32(math.sqrt(2.0 / math.pi))
_FACTOR = np.float32(1.5)


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers)


def _divided(rows: int, width: int, work: Callable[[int, int], object], workers: int) -> None:
    """Call ``work(begin, end)`` for pieces of all rows; every thread gets an equal share of them."""
    step = max(_PIECE // width, 1)

    def share(begin: int, end: int) -> None:
        for at in range(begin, end, step):
            work(at, min(at + step, end))

    if workers == 1 or rows * width <= _ALONE or rows < workers:
        share(0, rows)
        return
    bounds = [rows * number // workers for number in range(workers + 1)]
    list(_pool(workers).map(share, bounds[:-1], bounds[1:]))


def tanh(a: np.ndarray, out: np.ndarray, workers: int) -> None:
    """Compute hyperbolic tangents."""
    _divided(a.size, 1, lambda low, high: np.tanh(a[low:high], out=out[low:high]), workers)


def power(a: np.ndarray, b: np.ndarray, out: np.ndarray, workers: int) -> None:
    """Compute powers ``a ** b``."""
    _divided(a.size, 1, lambda low, high: np.power(a[low:high], b[low:high], out=out[low:high]), workers)


def powu(a: np.ndarray, out: np.ndarray, workers: int) -> None:
    """Compute ``a ** 1.5``."""
    _divided(a.size, 1, lambda low, high: np.power(a[low:high], _FACTOR, out=out[low:high]), workers)


def gelu(a: np.ndarray, out: np.ndarray, workers: int) -> None:
    """Compute GELU by the formula of `common.kernels.gelu`."""

    def work(low: int, high: int) -> None:
        x, to = a[low:high], out[low:high]
        np.multiply(x, x, out=to)
        np.multiply(to, _CUBED, out=to)
        np.add(to, np.float32(1.0), out=to)
        np.multiply(to, x, out=to)
        np.multiply(to, _SCALE, out=to)
        np.tanh(to, out=to)
        np.add(to, np.float32(1.0), out=to)
        np.multiply(to, x, out=to)
        np.multiply(to, np.float32(0.5), out=to)

    _divided(a.size, 1, work, workers)


def softmax(a: np.ndarray, out: np.ndarray, width: int, workers: int) -> None:
    """Compute the softmax of each row of ``width`` elements."""
    rows, to_rows = a.reshape(-1, width), out.reshape(-1, width)

    def work(low: int, high: int) -> None:
        x, to = rows[low:high], to_rows[low:high]
        np.subtract(x, x.max(axis=1, keepdims=True), out=to)
        np.exp(to, out=to)
        np.divide(to, to.sum(axis=1, keepdims=True), out=to)

    _divided(len(rows), width, work, workers)


def layer_norm(a: np.ndarray, out: np.ndarray, width: int, workers: int) -> None:
    """Normalise each row of ``width`` elements, as `common.kernels.layer_norm` does."""
    rows, to_rows = a.reshape(-1, width), out.reshape(-1, width)

    def work(low: int, high: int) -> None:
        x, to = rows[low:high], to_rows[low:high]
        np.subtract(x, x.mean(axis=1, keepdims=True), out=to)
        scale = np.einsum("ij,ij->i", to, to)[:, None] / np.float32(width) + np.float32(1e-5)
        np.divide(to, np.sqrt(scale), out=to)

    _divided(len(rows), width, work, workers)
