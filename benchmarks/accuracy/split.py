"""Splits, error metrics and baselines for GEMM. A split leaves out whole shapes or whole devices, never single points.

    python benchmarks/accuracy/split.py ../shared/truth

prints the two baselines of the data's README (datasheet roofline, three fitted parameters) for each device.
Only NumPy is needed.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

FOUR = ("a100-sxm-80gb", "h100-sxm-80gb", "l40s", "b200-sxm-180gb")
"""The calibrated devices for which the accuracy targets are defined."""

BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int8": 1.0, "nvfp4": 0.5625}
"""Bytes of one operand element. nvfp4 has a one-byte scale for every 16 elements."""


@dataclass(frozen=True)
class Sheet:
    """Datasheet values: units, clock (Hz), memory bandwidth (B/s), last-level cache (B), power (W), peaks (FLOP/s)."""

    units: float
    clock: float
    bandwidth: float
    l2: float
    power: float
    peak: Mapping[str, float]


def _sheet(units: float, mhz: float, gbs: float, l2: float, power: float, **tflops: float) -> Sheet:
    peaks = {name: value * 1e12 for name, value in tflops.items()}
    if "fp8" in peaks:
        peaks["fp8_block"] = peaks["fp8"]
    return Sheet(units, mhz * 1e6, gbs * 1e9, l2 * 1e6, power, peaks)


SHEETS = {
    "a100-sxm-80gb": _sheet(108, 1410, 2039, 40, 400, bfloat16=312, float16=312, int8=624),
    "h100-sxm-80gb": _sheet(132, 1980, 3350, 50, 700, bfloat16=989, float16=989, fp8=1979, int8=1979),
    "l40s": _sheet(142, 2520, 864, 96, 350, bfloat16=362, float16=362, fp8=733, int8=733),
    "b200-sxm-180gb": _sheet(148, 1965, 8000, 126, 1000, bfloat16=2250, float16=2250, fp8=4500, int8=4500, nvfp4=9000),
    "arc-pro-b60": _sheet(20, 2400, 456, 18, 200, bfloat16=98.3, float16=98.3, int8=197),
    "h200-sxm-141gb": _sheet(132, 1980, 4800, 50, 700, bfloat16=989, float16=989, fp8=1979, int8=1979),
    "gb200": _sheet(148, 2062, 8000, 126, 1200, bfloat16=2500, float16=2500, fp8=5000, int8=5000, nvfp4=10000),
    "rtx-pro-6000-server": _sheet(188, 2430, 1792, 128, 600, bfloat16=467.8, fp8=935.6, int8=935.6, nvfp4=1871.2),
}
"""From device_models/windtunnel_models/catalog/gpu, where the conflicts between sources are noted."""


@dataclass(frozen=True)
class Table:
    """Rows of one device, data type and clock."""

    sku: str
    dtype: str
    clock: str
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    seconds: np.ndarray

    def __len__(self) -> int:
        return len(self.m)

    def take(self, index: np.ndarray) -> Table:
        return Table(self.sku, self.dtype, self.clock, self.m[index], self.n[index], self.k[index], self.seconds[index])

    @property
    def sheet(self) -> Sheet:
        return SHEETS[self.sku]


def read(folder: Path) -> dict[tuple[str, str, str], Table]:
    """All rows of ``gemm.csv.gz`` by device, data type and clock."""
    groups: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    with gzip.open(folder / "gemm.csv.gz", "rt", newline="") as file:
        for r in csv.DictReader(file):
            row = (float(r["m"]), float(r["n"]), float(r["k"]), float(r["latency_s"]))
            groups.setdefault((r["sku"], r["dtype"], r["clock"]), []).append(row)
    return {key: Table(*key, *np.array(rows).T) for key, rows in groups.items()}


def shape_fold(n: np.ndarray, k: np.ndarray, folds: int, salt: str = "gemm") -> np.ndarray:
    """The fold of each row, from a hash of its (n, k): a shape is in the same fold on every device and data type."""
    names = {pair: zlib.crc32(f"{salt}/{pair[0]:.0f}/{pair[1]:.0f}".encode()) for pair in set(zip(n, k, strict=True))}
    order = {pair: i % folds for i, pair in enumerate(sorted(names, key=lambda p: names[p]))}
    return np.array([order[pair] for pair in zip(n, k, strict=True)])


def random_rows(count: int, table: Table, seed: int) -> np.ndarray:
    """Indices of ``count`` measurements drawn at random from a device's table."""
    return np.random.default_rng(seed).choice(len(table), size=min(count, len(table)), replace=False)


def metrics(seconds: np.ndarray, estimated: np.ndarray) -> dict[str, float]:
    """Mean, median and 90th percentile of the absolute relative error, and the median of ln(estimated / measured).

    ``mape_short`` and ``mape_long`` are the MAPE of measurements under 10 us and of the others.
    """
    error = np.abs(estimated / seconds - 1.0)
    out = {
        "mape": float(error.mean()),
        "median": float(np.median(error)),
        "p90": float(np.quantile(error, 0.9)),
        "log_bias": float(np.median(np.log(estimated / seconds))),
    }
    short = seconds < 10e-6
    out["mape_short"] = float(error[short].mean()) if short.any() else float("nan")
    out["mape_long"] = float(error[~short].mean()) if (~short).any() else float("nan")
    return out


def interval_metrics(
    seconds: np.ndarray, estimated: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[float, float]:
    """Interval coverage, and the median of the interval's half-width relative to the estimate."""
    covered = (seconds >= low) & (seconds <= high)
    return float(covered.mean()), float(np.median((high - low) / 2.0 / estimated))


@dataclass(frozen=True)
class Estimates:
    """Measured and estimated seconds of rows, their intervals, and the groups that they belong to."""

    NAMES: ClassVar = ("seconds", "estimated", "low", "high", "clear", "op", "size")

    seconds: np.ndarray
    estimated: np.ndarray
    low: np.ndarray
    high: np.ndarray
    clear: np.ndarray
    op: np.ndarray
    size: np.ndarray

    def take(self, mask: np.ndarray) -> Estimates:
        return Estimates(*(getattr(self, name)[mask] for name in self.NAMES))

    def mape(self) -> float:
        return float(np.abs(self.estimated / self.seconds - 1.0).mean()) if len(self.seconds) else float("nan")

    def coverage(self) -> float:
        return interval_metrics(self.seconds, self.estimated, self.low, self.high)[0]


def pooled_factor(logs: list[np.ndarray]) -> float:
    """The factor that contains nine tenths of the absolute log errors, with equal weight for every device."""
    values = np.concatenate(logs)
    weights = np.concatenate([np.full(len(e), 1.0 / len(e)) for e in logs])
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(np.exp(values[order][np.searchsorted(share, 0.9)]))


def flops(t: Table) -> np.ndarray:
    return 2.0 * t.m * t.n * t.k


def traffic(t: Table) -> np.ndarray:
    """Bytes of A and B in their data type and of C in 16 bits."""
    return BYTES[t.dtype] * (t.m * t.k + t.k * t.n) + 2.0 * t.m * t.n


def roofline(t: Table) -> np.ndarray:
    return np.maximum(flops(t) / t.sheet.peak[t.dtype], traffic(t) / t.sheet.bandwidth)


def three_parameters(train: Table, test: Table) -> np.ndarray:
    """t0 + max(compute / a, memory / b), whose three parameters minimise the mean absolute log error.

    The parameters are found by a coordinate search.
    """
    c, b, t = flops(train) / train.sheet.peak[train.dtype], traffic(train) / train.sheet.bandwidth, train.seconds
    grid = np.exp(np.linspace(-0.35, 0.35, 15))
    x = np.array([0.75, 0.75, max(float(t.min()), 1e-6)])

    def loss(v: np.ndarray) -> float:
        return float(np.mean(np.abs(np.log((v[2] + np.maximum(c / v[0], b / v[1])) / t))))

    for _ in range(6):
        for i in range(3):
            trial = [np.where(np.arange(3) == i, x * g, x) for g in grid]
            x = min(trial, key=loss)
        grid = grid**0.7
    return x[2] + np.maximum(
        flops(test) / test.sheet.peak[test.dtype] / x[0], traffic(test) / test.sheet.bandwidth / x[1]
    )


Fit = Callable[[list[Table]], Callable[[Table], np.ndarray]]


def folds_of(tables: list[Table], folds: int) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Training and test rows of every table, for each fold. A shape is left out of all tables at once."""
    which = [shape_fold(t.n, t.k, folds) for t in tables]
    for f in range(folds):
        yield [np.flatnonzero(w != f) for w in which], [np.flatnonzero(w == f) for w in which]


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage, or a dash if it is not a number, as the error of a subset without rows."""
    return "–" if np.isnan(value) else f"{value:.{digits}%}"


def line(name: str, seconds: np.ndarray, estimated: np.ndarray) -> str:
    m = metrics(seconds, estimated)
    return (
        f"{name:34s} n={len(seconds):6d} MAPE {m['mape']:6.2%} median {m['median']:6.2%} p90 {m['p90']:6.1%} "
        f"log bias {m['log_bias']:+.3f} MAPE under 10 us {percent(m['mape_short'], 2):>6s} "
        f"others {percent(m['mape_long'], 2):>6s}"
    )


def main() -> None:
    tables = read(Path(sys.argv[1]))
    for key, table in tables.items():
        print(line("roofline " + "/".join(key), table.seconds, roofline(table)))
    for key, table in tables.items():
        out = np.empty(len(table))
        for train, test in folds_of([table], 5):
            out[test[0]] = three_parameters(table.take(train[0]), table.take(test[0]))
        print(line("three parameters " + "/".join(key), table.seconds, out))


if __name__ == "__main__":
    main()
