"""Fits the model of latent attention to measurements, and computes its errors on heads left out of the fit.

    python benchmarks/accuracy/latent_attention.py ../shared/truth [cross-validate|table OUT.md|ship]
"""

from __future__ import annotations

import csv
import gzip
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from experts import fit_residual, similar

from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu.latent_formula import NUMBERS, Sheet, features, total_s

NAMES = tuple(NUMBERS)
HIGH = {"bandwidth": 0.97, "overlap": 20.0, "start": 6.0}


@dataclass(frozen=True)
class Table:
    """The measurements of one device in one phase and format."""

    sku: str
    key: str
    sheet: Sheet
    rows: Rows
    y: np.ndarray

    def take(self, index: np.ndarray) -> Table:
        numbers = {name: values[index] for name, values in self.rows.numbers.items()}
        return replace(self, rows=replace(self.rows, numbers=numbers), y=self.y[index])

    def total(self, x: dict[str, float]) -> np.ndarray:
        return np.log(total_s(self.rows.choices, self.rows.numbers, self.sheet, x))


def read(folder: Path) -> list[Table]:
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    with gzip.open(folder / "latent_attention.csv.gz", "rt", newline="") as file:
        for line in csv.DictReader(file):
            groups.setdefault((line["sku"], line["phase"], line["kv_dtype"]), []).append(line)
    out = []
    names = ("batch", "heads", "kv_rank", "rope_dim", "query_tokens", "kv_tokens")
    for (sku, phase, kv), lines in sorted(groups.items()):
        values = Catalogue().device(sku, calibrated=False).values
        sheet = Sheet(
            *(values[p].value for p in ("compute_units", "memory_bandwidth_bytes_per_s", "matrix_flops_per_s.bfloat16"))
        )
        numbers = {name: np.array([float(line[name]) for line in lines]) for name in names}
        rows = Rows(OPERATIONS["latent_attention"], {"phase": phase, "dtype": "bfloat16", "kv_dtype": kv}, numbers)
        y = np.log([float(line["latency_s"]) for line in lines])
        out.append(Table(sku, f"{phase}_{kv}", sheet, rows, y))
    return out


def fit_numbers(t: Table, pull: float = 0.5) -> dict[str, float]:
    from scipy.optimize import least_squares

    start = np.log([NUMBERS[name][0] for name in NAMES])
    width = np.array([NUMBERS[name][1] for name in NAMES])
    high = np.log([HIGH.get(name, 1e9) for name in NAMES])

    def residual(x: np.ndarray) -> np.ndarray:
        return np.r_[t.total(dict(zip(NAMES, np.exp(x).tolist(), strict=True))) - t.y, pull * (x - start) / width / 3]

    s = least_squares(
        residual, start, bounds=(-np.inf, high), loss="soft_l1", f_scale=0.05, max_nfev=60, diff_step=1e-3
    )
    return dict(zip(NAMES, np.exp(s.x).tolist(), strict=True))


def cross_validate(table: Table, by: str = "heads"):
    group = table.rows.numbers[by]
    plain, whole = np.zeros_like(table.y), np.zeros_like(table.y)
    values = sorted(set(group.tolist()))
    folds = [[v] for v in values] if by == "heads" else [values[i::4] for i in range(4)]
    for fold in folds:
        test = np.isin(group, fold)
        train, mine = table.take(np.flatnonzero(~test)), table.take(np.flatnonzero(test))
        numbers = fit_numbers(train)
        c, w = fit_residual(features(train.rows), train.y - train.total(numbers), amp=0.03, noise=0.06)
        plain[test] = mine.total(numbers)
        whole[test] = plain[test] + similar(features(mine.rows), c) @ w
    return plain, whole


def main() -> None:
    sums = {}
    for table in read(Path(sys.argv[1])):
        numbers = fit_numbers(table)
        fitted = table.total(numbers)
        c, w = fit_residual(features(table.rows), table.y - fitted, amp=0.03, noise=0.06)
        results = [fitted, fitted + similar(features(table.rows), c) @ w]
        results += [*cross_validate(table, "heads"), *cross_validate(table, "kv_tokens"), *cross_validate(table, "batch")]
        e = [np.abs(np.exp(v - table.y) - 1) for v in results]
        print(table.sku[:4], table.key, len(table.y), [f"{x.mean():.3f}" for x in e], [f"{np.median(x):.3f}" for x in e])
        print("   ", {k: f"{v:.3g}" for k, v in numbers.items()}, flush=True)
        for i, x in enumerate(e):
            sums.setdefault((table.sku, i), []).append(x)
    for k, v in sums.items():
        print(k, f"{np.concatenate(v).mean():.4f}")


if __name__ == "__main__":
    main()
