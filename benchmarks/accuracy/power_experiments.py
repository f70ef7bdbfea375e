"""Board power of kernels over 0.1 ms (sustained B200 rows): forms compared on held-out shapes and on held-out types.

python benchmarks/accuracy/power_experiments.py ../shared/truth      (SciPy for the fits; the forms need NumPy alone)
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from split import BYTES, SHEETS, shape_fold

S = SHEETS["b200-sxm-180gb"]


def read(folder: Path) -> dict[str, np.ndarray]:
    with gzip.open(folder / "gemm.csv.gz", "rt", newline="") as file:
        rows = [
            r
            for r in csv.DictReader(file)
            if r["clock"] == "sustained" and r["power_w"] and float(r["latency_s"]) > 1e-4
        ]
    d = {k: np.array([float(r[k]) for r in rows]) for k in ("m", "n", "k", "latency_s", "power_w")}
    d["dtype"] = np.array([r["dtype"] for r in rows])
    size = np.array([BYTES[t] for t in d["dtype"]])
    peak = np.array([S.peak[t] for t in d["dtype"]])
    d["c"] = 2 * d["m"] * d["n"] * d["k"] / peak / d["latency_s"]  # share of the matrix peak
    d["b"] = (size * (d["m"] * d["k"] + d["k"] * d["n"]) + 2 * d["m"] * d["n"]) / S.bandwidth / d["latency_s"]
    tiles = np.ceil(d["m"] / 128) * np.ceil(d["n"] / 128)
    d["l"] = size * 2 * 128 * d["k"] * tiles / (S.units * S.clock * 70.0) / d["latency_s"]  # share of the cache's rate
    d["tiles"] = np.minimum(1.0, tiles / S.units)
    d["y"] = d["power_w"] / S.power
    return d


def form(kind: str):
    """Demand in shares of max power, then the cap: share = softmin(demand, 1)."""

    def f(x: np.ndarray, d: dict[str, np.ndarray]) -> np.ndarray:
        e = np.exp(x)
        c = d["c"]
        if kind in ("dtype", "dtype_l2"):
            c = c * np.select([d["dtype"] == "fp8_block", d["dtype"] == "nvfp4"], [e[4], e[5]], 1.0)
        demand = e[0] + e[1] * (c ** e[6] if kind.startswith("exp") else c) + e[2] * d["b"]
        if kind.endswith("l2"):
            demand = demand + e[3] * d["l"]
        cap = e[7]
        p = e[8]
        return demand / (1 + (demand / cap) ** p) ** (1 / p)

    return f


X0 = np.log([0.25, 1.0, 0.4, 0.2, 1.0, 1.0, 0.8, 0.99, 8.0])


def fit(kind: str, d: dict[str, np.ndarray], weight: np.ndarray) -> np.ndarray:
    f = form(kind)
    return least_squares(
        lambda x: np.r_[weight * (np.log(f(x, d)) - np.log(d["y"])), 0.1 * (x - X0)],
        X0,
        loss="soft_l1",
        f_scale=0.05,
        max_nfev=60,
    ).x


def show(name: str, d: dict[str, np.ndarray], p: np.ndarray, ok: np.ndarray) -> None:
    e = np.abs(p / d["y"] - 1)
    low = ok & (d["y"] < 0.95)
    print(
        f"{name:34s} all {e[ok].mean():6.2%} med {np.median(e[ok]):5.1%} p90 {np.quantile(e[ok], 0.9):5.1%} | below cap {e[low].mean():6.2%} bias {np.median(np.log(p / d['y'])[low]):+.3f} n={low.sum()} | "
        + " ".join(f"{t} {e[ok & (d['dtype'] == t)].mean():.1%}" for t in sorted(set(d["dtype"]))),
        flush=True,
    )


def main() -> None:
    d = read(Path(sys.argv[1]))
    for t in sorted(set(d["dtype"])):
        i = d["dtype"] == t
        print(
            t,
            i.sum(),
            "c",
            np.quantile(d["c"][i], [0, 0.25, 0.5, 0.75, 1]).round(2),
            "b",
            np.quantile(d["b"][i], [0, 0.25, 0.5, 0.75, 1]).round(2),
            "y",
            np.quantile(d["y"][i], [0, 0.25, 0.5, 0.75, 1]).round(2),
        )
        A = np.c_[np.ones(i.sum()), d["c"][i], d["b"][i], d["l"][i]]
        low = d["y"][i] < 0.95
        print("   below cap linear", np.linalg.lstsq(A[low], d["y"][i][low], rcond=None)[0].round(3))
    fold = shape_fold(d["n"], d["k"], 5, "power")
    every = np.ones(len(fold), bool)
    for types in (("bfloat16",), ("bfloat16", "nvfp4"), ("bfloat16", "fp8_block", "nvfp4")):
        ok = np.isin(d["dtype"], types)
        show(f"constant 1 {'+'.join(types)}", d, every * 0.98, ok)
        for kind in ("plain", "plain_l2", "exp", "exp_l2", "dtype", "dtype_l2"):
            p = np.full(len(fold), np.nan)
            for f in range(5):
                tr = np.flatnonzero(ok & (fold != f))
                te = np.flatnonzero(ok & (fold == f))
                s = {k: v[tr] for k, v in d.items()}
                x = fit(kind, s, np.ones(len(tr)))
                p[te] = form(kind)(x, {k: v[te] for k, v in d.items()})
            show(f"{kind} {'+'.join(types)}", d, p, ok)
            print("     ", np.exp(x).round(3))


main() if __name__ == "__main__" else None
