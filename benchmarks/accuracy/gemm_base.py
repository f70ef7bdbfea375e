"""The analytic base of GEMM latency that the experiments settle on, its fit, and the features of the residual.

The base is what ``kinds/gpu.py`` has (best tile and split-k factor in whole waves) with four things more: a last-level
cache that keeps part of small operands even in a cold context (A and C apart from the rotated weights B), a least time
of a step over k, a fixed cost of splitting k, and a soft maximum of arithmetic and traffic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import split as sp
from scipy.optimize import minimize

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
    "efficiency",  # attained fraction of the matrix peak inside a full wave
    "memory_efficiency",
    "floor_s",
    "l2_bytes_per_clock",  # of one unit
    "wave_s",
    "k_step_s",  # least time per element of k of a tile
    "cache_b",  # fraction of the last-level cache that weights find in it, cold
    "cache_ac",  # the same for activations and results
    "overlap",  # exponent of the soft maximum
    "split_s",
    "quantise_passes",  # narrow types only
)
START = np.array([0.77, 0.9, 2.4e-6, 60.0, 0.6e-6, 1.2e-9, 0.08, 0.25, 2.3, 2.2e-6, 3.4])


def base(t: sp.Table, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds of the whole, of the arithmetic and of the traffic. Not decreasing in m, n, k and in 1 / any rate."""
    s, size = t.sheet, sp.BYTES[t.dtype]
    u, rate, unit_l2 = s.units, s.peak[t.dtype] * p[0], p[3] * s.clock
    compute = np.full(len(t), np.inf)
    reduction = 8.0 * t.m * t.n / (u * unit_l2)
    for tm, tn in TILES:
        per_k = max(2.0 * tm * tn / (rate / u), (tm + tn) * size / unit_l2, p[5])
        tiles = np.ceil(t.m / tm) * np.ceil(t.n / tn)
        for parts in SPLITS:
            took = np.ceil(tiles * (parts / u)) * (t.k * (per_k / parts) + p[4])
            if parts > 1:
                took += parts * reduction + p[9]
            np.minimum(compute, took, out=compute)
    a, b, c = size * t.m * t.k, size * t.n * t.k, 2.0 * t.m * t.n
    drawn = b * b / (b + p[6] * s.l2) + (a + c) ** 2 / (a + c + p[7] * s.l2)
    memory = drawn / (s.bandwidth * p[1]) + (a + b + c) / (u * unit_l2)
    total = p[2] + (compute ** p[8] + memory ** p[8]) ** (1.0 / p[8])
    if size < 2.0:
        total = total + 0.5 * p[2] + p[10] * t.m * t.k * (2.0 + size) / (s.bandwidth * p[1])
    return total, compute, memory


def fit(
    tables: Sequence[sp.Table],
    start: np.ndarray = START,
    penalty: float = 0.01,
    most: int = 1200,
    rounds: int = 2,
    seed: int = 0,
) -> np.ndarray:
    """The numbers of least mean absolute log error, drawn towards ``start`` by ``penalty`` per squared log ratio."""
    rng = np.random.default_rng(seed)
    thin = [t.take(rng.choice(len(t), min(most, len(t)), replace=False)) for t in tables]
    logs = [np.log(t.seconds) for t in thin]

    def loss(x: np.ndarray) -> float:
        p = start * np.exp(np.clip(x, -4.0, 4.0))
        errors = [np.mean(np.abs(np.log(base(t, p)[0]) - y)) for t, y in zip(thin, logs, strict=True)]
        return float(np.mean(errors) + penalty * np.sum(x**2) / len(x))

    x = np.zeros(len(start))
    for _ in range(rounds):
        options = {"maxiter": 280, "xatol": 0.01, "fatol": 1e-4, "adaptive": True}
        options["initial_simplex"] = np.vstack([x, x + 0.3 * np.eye(len(x))])
        x = minimize(loss, x, method="Nelder-Mead", options=options).x
    return start * np.exp(np.clip(x, -4.0, 4.0))


def features(t: sp.Table, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The residual's inputs, a row each, and the logarithm of the base. Times enter as shares of the base."""
    s, size = t.sheet, sp.BYTES[t.dtype]
    u, rate, bandwidth, floor = s.units, s.peak[t.dtype] * p[0], s.bandwidth * p[1], p[2]
    m, n, k, log = t.m, t.n, t.k, np.log
    total, compute, memory = base(t, p)
    f = [log(m), log(n), log(k), log(total / floor), log((floor + compute) / total), log((floor + memory) / total)]
    f.append(log((floor + 2.0 * m * n * k / rate) / total))
    for tm, tn in ((256, 256), (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (32, 64)):
        waves = np.ceil(np.ceil(m / tm) * np.ceil(n / tn) / u)
        f += [log(waves), log((floor + waves * k * 2.0 * tm * tn * u / rate) / total)]
    for tm, tn in ((256, 128), (128, 128), (64, 64)):
        share = np.ceil(m / tm) * np.ceil(n / tn) / u
        f += [log(share), share / np.ceil(share)]
        f += [log((floor + np.ceil(share * q) * k / q * 2.0 * tm * tn * u / rate) / total) for q in (2, 4, 8)]
    for part in (size * m * k, size * n * k, 2.0 * m * n):
        f += [log((1e6 + part) / s.l2), log((floor + part / bandwidth) / total)]
    f += [log(m / np.ceil(m / q) / q) for q in (64, 128, 256)]
    f += [log(np.ceil(m / q)) for q in (8, 16, 64)] + [log(np.ceil(n / 128))]
    f.append(log((floor + (6.0 * m * k / bandwidth if size < 2.0 else 0.0 * m)) / total))
    return np.clip(np.stack(f, 1), -8.0, 16.0), log(total)
