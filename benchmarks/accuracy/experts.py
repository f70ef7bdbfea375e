"""Fits the model of expert layers to measurements, and computes its errors on shapes left out of the fit.

    python benchmarks/accuracy/experts.py ../shared/truth [cross-validate|table OUT.md|ship]
"""

from __future__ import annotations

import csv
import gzip
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from windtunnel.core.ops import BYTES_PER_ELEMENT, OPERATIONS, Rows
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu.expert_formula import NUMBERS, Geometry, Sheet, features, geometry, total_s

COLUMNS = ("tokens", "width", "expert_width", "experts", "experts_per_token", "tensor", "expert")


@dataclass(frozen=True)
class Table:
    """The measurements of one device in one format, by one family of kernels."""

    sku: str
    dtype: str
    family: str
    sheet: Sheet
    numbers: dict[str, np.ndarray]
    y: np.ndarray
    g: Geometry

    def take(self, index: np.ndarray) -> Table:
        numbers = {name: values[index] for name, values in self.numbers.items()}
        return replace(self, numbers=numbers, y=self.y[index], g=self.g.take(index))

    def shapes(self) -> list[tuple[float, ...]]:
        n = self.numbers
        names = ("width", "expert_width", "experts", "experts_per_token")
        return list(zip(*(n[name].tolist() for name in names), strict=True))


def family_of(sku: str, dtype: str, kernel: str) -> str:
    if sku.startswith("h"):
        maker = "triton" if "triton" in kernel else "cutlass"
        return f"{maker}_{'fp8' if maker == 'triton' and dtype == 'fp8_block' else dtype}"
    return f"cutlass_{dtype}" if "cutlass" in kernel else f"trtllm_{dtype}"


def sheet_of(sku: str, dtype: str) -> Sheet:
    values = Catalogue().device(sku, calibrated=False).values
    key = "fp8" if dtype == "fp8_block" else dtype
    return Sheet(
        values["compute_units"].value,
        values["boost_clock_hz"].value,
        values["memory_bandwidth_bytes_per_s"].value,
        values[f"matrix_flops_per_s.{key}"].value,
    )


def read(folder: Path) -> list[Table]:
    """Return the rows of ``experts.csv.gz`` by device, format and family of kernels."""
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    with gzip.open(folder / "experts.csv.gz", "rt", newline="") as file:
        for line in csv.DictReader(file):
            key = line["sku"], line["dtype"], family_of(line["sku"], line["dtype"], line["kernel"])
            groups.setdefault(key, []).append(line)
    out = []
    for (sku, dtype, family), lines in sorted(groups.items()):
        numbers = {name: np.array([float(line[name]) for line in lines]) for name in COLUMNS}
        named = [line["distribution"] for line in lines]
        numbers["skew"] = np.array([0.0 if name == "balanced" else float(name.rpartition("_")[2]) for name in named])
        y = np.log([float(line["latency_s"]) for line in lines])
        g = geometry(Rows(OPERATIONS["moe"], {"dtype": dtype}, numbers), BYTES_PER_ELEMENT[dtype])
        out.append(Table(sku, dtype, family, sheet_of(sku, dtype), numbers, y, g))
    return out


NAMES = tuple(NUMBERS)
HIGH = {"bandwidth": 0.97, "efficiency": 0.95, "rest": 1.0, "overlap": 20.0, "start": 6.0}


def fit_numbers(table: Table, count: int = 1500, pull: float = 0.7) -> dict[str, float]:
    """Fit the numbers of a family to a table, pulled towards their values before any measurement."""
    from scipy.optimize import least_squares

    t = table.take(np.random.default_rng(0).permutation(len(table.y))[:count])
    start = np.log([NUMBERS[name][0] for name in NAMES])
    width = np.array([NUMBERS[name][1] for name in NAMES])
    high = np.log([HIGH.get(name, 1e9) for name in NAMES])

    def residual(x: np.ndarray) -> np.ndarray:
        numbers = dict(zip(NAMES, np.exp(x).tolist(), strict=True))
        return np.r_[np.log(total_s(t.g, t.sheet, numbers)) - t.y, pull * (x - start) / width / np.sqrt(10)]

    s = least_squares(
        residual, start, bounds=(-np.inf, high), loss="soft_l1", f_scale=0.05, max_nfev=40, diff_step=1e-3
    )
    return dict(zip(NAMES, np.exp(s.x).tolist(), strict=True))


def similar(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T, 0.0))


def fit_residual(x: np.ndarray, r: np.ndarray, centres: int = 300, amp: float = 0.02, noise: float = 0.08):
    r = np.clip(r, -0.5, 0.5)
    chosen = x[np.random.default_rng(0).permutation(len(x))[:centres]]
    inner = amp * similar(chosen, chosen) + 1e-4 * amp * np.eye(len(chosen))
    outer = amp * similar(x, chosen)
    weight = np.full(len(x), noise**-2)
    for _ in range(3):
        solved = np.linalg.solve(inner + outer.T @ (outer * weight[:, None]), outer.T @ (weight * r))
        weight = noise**-2 / np.maximum(1.0, np.abs(r - outer @ solved) / (2.0 * noise))
    return chosen, amp * solved


SCALE = 1.0


def cross_validate(table: Table):
    shapes = table.shapes()
    plain, whole = np.zeros_like(table.y), np.zeros_like(table.y)
    if len(set(shapes)) == 1:
        return table.y, table.y
    for shape in sorted(set(shapes)):
        test = np.array([s == shape for s in shapes])
        train = table.take(np.flatnonzero(~test))
        numbers = fit_numbers(train)
        mine = table.take(np.flatnonzero(test))
        r = train.y - np.log(total_s(train.g, train.sheet, numbers))
        c, w = fit_residual(features(train.g) * SCALE, r)
        plain[test] = np.log(total_s(mine.g, mine.sheet, numbers))
        whole[test] = plain[test] + similar(features(mine.g) * SCALE, c) @ w
    return plain, whole


def main() -> None:
    import time

    tables = read(Path(sys.argv[1]))
    sums = {}
    for table in tables:
        t0 = time.time()
        numbers = fit_numbers(table)
        fitted = np.log(total_s(table.g, table.sheet, numbers))
        plain, whole = cross_validate(table)
        e = [np.abs(np.exp(v - table.y) - 1) for v in (fitted, plain, whole)]
        shapes = table.shapes()
        by = {f"{s[0]:.0f}/{s[1]:.0f}": " ".join(f"{x[[q == s for q in shapes]].mean():.3f}" for x in e) for s in set(shapes)}
        print(table.sku[:4], table.dtype, table.family, len(table.y), [f"{x.mean():.3f}" for x in e], by, f"{time.time()-t0:.0f}s")
        print("   ", {k: f"{v:.3g}" for k, v in numbers.items()}, flush=True)
        for i, x in enumerate(e):
            sums.setdefault((table.sku, i), []).append(x)
    for k, v in sums.items():
        print(k, f"{np.concatenate(v).mean():.4f}")


if __name__ == "__main__":
    main()
