"""Kernels that several examples launch."""

from __future__ import annotations

from functools import cache

import numpy as np

import windtunnel
from windtunnel.core.columns import Columns
from windtunnel.runtime.kernels import Kernel


@cache
def _curve(terms: int) -> np.ndarray:
    """Return a polynomial of ``terms`` multiply-adds at each of the 256 values of a sample (Horner, float32)."""
    x = np.linspace(0.0, 1.0, 256, dtype=np.float32)
    y = np.zeros_like(x)
    ratio = np.float32(0.5)
    for _ in range(terms):
        before = y
        y = y * x * ratio + ratio
        if np.array_equal(y, before):
            break  # further terms do not change them
    return np.asarray(np.round(255.0 * np.clip(2.0 * y - 1.0, 0.0, 1.0)), dtype=np.uint8)


def _work(samples: np.ndarray, _out: np.ndarray, terms: int) -> Columns:
    return {"op": "kernel", "threads": samples.size, "bytes": 2 * samples.size, "flops": 2.0 * terms * samples.size}


@windtunnel.kernel(work=_work)
def grade(samples: np.ndarray, out: np.ndarray, terms: int) -> None:
    """Apply a tone curve to 8-bit samples: a polynomial of ``terms`` multiply-adds for each sample.

    A device evaluates it for every sample. Here it is evaluated for the 256 possible values and looked up, which gives
    the same numbers.
    """
    values = samples.tobytes().translate(_curve(terms).tobytes())
    out[...] = np.frombuffer(values, np.uint8).reshape(samples.shape)


@cache
def graded_twice(terms: int) -> Kernel:
    """Return a kernel that applies ``grade`` twice; its arguments are the samples and the result."""

    def work(samples: np.ndarray, out: np.ndarray) -> Columns:
        return _work(samples, out, 2 * terms)

    @windtunnel.kernel(work=work)
    def grade_twice(samples: np.ndarray, out: np.ndarray) -> None:
        grade(samples, out, terms)
        grade(out, out, terms)

    return grade_twice
