"""Memory-bound operations on a device never seen: forms compared, leave one device out (SciPy for the fits).

python benchmarks/accuracy/membound_experiments.py ../shared/truth
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

# units, boost clock, B/s, L2, class (0 HBM NVIDIA from Volta on, 1 GDDR NVIDIA and Pascal, 2 AMD), FP32 FLOP/s
DEV = {
    "AMD Instinct MI100": (120, 1.502e9, 1.23e12, 8e6, 2, 23.1e12),
    "Tesla P100-PCIE-16GB": (56, 1.329e9, 0.732e12, 4e6, 1, 9.5e12),
    "Tesla P4": (20, 1.114e9, 0.1923e12, 2e6, 1, 5.7e12),
    "NVIDIA A100-PCIE-40GB": (108, 1.41e9, 1.555e12, 40e6, 0, 19.5e12),
    "Tesla V100-PCIE-32GB": (80, 1.38e9, 0.897e12, 6e6, 0, 14.1e12),
    "Tesla T4": (40, 1.59e9, 0.32e12, 4e6, 1, 8.1e12),
}
FLUID = {
    "AMD Instinct MI100": 0.75,
    "Tesla P100-PCIE-16GB": 0.689,
    "Tesla P4": 0.78,
    "NVIDIA A100-PCIE-40GB": 0.839,
    "Tesla V100-PCIE-32GB": 0.80,
    "Tesla T4": 0.648,
}
"""Lattice-Boltzmann share of specified bandwidth (membound_devices.csv, 153 B an update): the card or its die and memory; MI100 unknown."""
OPS = ("add", "mul", "div", "pow", "addu", "mulu", "divu", "powu", "relu", "gelu", "tanh", "softmax", "ln")


def read(folder: Path) -> dict[str, np.ndarray]:
    with gzip.open(folder / "elementwise.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    d = {"dev": np.array([r["device"] for r in rows]), "op": np.array([OPS.index(r["op"]) for r in rows])}
    d |= {k: np.array([float(r[k]) for r in rows]) for k in ("rows", "width", "latency_s")}
    floor = {v: np.quantile(d["latency_s"][d["dev"] == v], 0.02) for v in DEV}
    keep = d["latency_s"] > 3.0 * np.array([floor[v] for v in d["dev"]])
    d = {k: v[keep] for k, v in d.items()}
    for i, name in enumerate(("units", "clock", "bw", "l2", "class", "fp32")):
        d[name] = np.array([DEV[v][i] for v in d["dev"]])
    d["fluid"] = np.array([FLUID[v] for v in d["dev"]])
    d["n"] = d["rows"] * d["width"]
    d["bytes"] = 4.0 * d["n"] * np.where(d["op"] < 4, 3.0, 2.0)
    d["y"] = np.log(d["latency_s"])
    return d


NAMES = (
    "eff",
    "fix",
    "ln_row",
    "ln_pass",
    "sm_pass",
    "sm_row",
    "powu",
    "pow",
    "gddr",
    "amd",
    "l2",
    "sm_big",
    "amd_pow",
    "ln_lin",
    "fluid",
)
X0 = np.array(
    [
        np.log(0.85),
        np.log(4e-6),
        np.log(1.0),
        np.log(1.2),
        np.log(1.5),
        np.log(1.0),
        np.log(8.0),
        np.log(5.0),
        0.0,
        0.0,
        np.log(0.5),
        0.0,
        1.0,
        np.log(1.0),
        0.5,
    ]
)


def predict(x: np.ndarray, d: dict[str, np.ndarray], kind: str) -> np.ndarray:
    p = dict(zip(NAMES, x, strict=True))
    eff = p["eff"] + 0 * d["y"]
    if "class" in kind:
        eff = eff + p["gddr"] * (d["class"] == 1) + p["amd"] * (d["class"] == 2)
    if "fluid" in kind:
        eff = eff + p["fluid"] * np.log(d["fluid"] / 0.75)
    op, e = d["op"], np.exp
    passes = np.ones(len(op))
    if kind != "roofline":
        passes = np.where(op == 12, 1 + e(p["ln_pass"]) * 0.5, passes)
        big = 1 / (1 + (d["units"] * 0 + d["width"] / 1024.0) ** -4)
        passes = np.where(op == 11, 1 + 0.5 * e(p["sm_pass"]) * (1 + p["sm_big"] * big), passes)
    memory = d["bytes"] * passes / (d["bw"] * e(eff))
    lanes = d["fp32"] / 2
    work = np.where(op == 7, 40 * e(p["powu"]) / 8, np.where(op == 3, 40 * e(p["pow"]) / 5, 1.0)) * e(
        p["amd_pow"] * (d["class"] == 2) * ((op == 7) | (op == 3))
    )
    compute = d["n"] * work / lanes
    if "row" in kind:  # blocks of a row: a fixed time a row on a unit, and per-element work
        row = (
            d["rows"]
            / (d["units"] * d["clock"])
            * np.where(op == 12, 300 * e(p["ln_row"]), np.where(op == 11, 300 * e(p["sm_row"]), 0.0))
        )
        compute = np.where(
            op >= 11, row + np.where(op == 12, d["n"] / (d["units"] * d["clock"]) * 0.2 * e(p["ln_lin"]), 0.0), compute
        )
    body = (memory**4 + compute**4) ** 0.25
    return np.log(e(p["fix"]) + body)


def fit(d: dict[str, np.ndarray], kind: str) -> np.ndarray:
    g = np.random.default_rng(0)
    i = np.concatenate([g.choice(np.flatnonzero(d["dev"] == v), 500, replace=False) for v in sorted(set(d["dev"]))])
    s = {k: v[i] for k, v in d.items()}
    return least_squares(
        lambda x: np.r_[predict(x, s, kind) - s["y"], 1.0 * (x - X0)],
        X0,
        loss="soft_l1",
        f_scale=0.05,
        max_nfev=50,
        diff_step=1e-3,
    ).x


def show(name: str, d: dict[str, np.ndarray], p: np.ndarray) -> None:
    e = np.abs(np.exp(p - d["y"]) - 1)
    cells = []
    for v in DEV:
        q = d["dev"] == v
        cells.append(
            f"{v.split()[-1][:9]} {e[q].mean():.1%} ({np.median((p - d['y'])[q]):+.2f}; plain {e[q & (d['op'] < 11)].mean():.1%} sm {e[q & (d['op'] == 11)].mean():.0%} ln {e[q & (d['op'] == 12)].mean():.0%})"
        )
    print(
        f"{name:20s} mean of devices {np.mean([e[d['dev'] == v].mean() for v in DEV]):.2%} p90 {np.quantile(e, 0.9):.1%} | "
        + " | ".join(cells),
        flush=True,
    )


def main() -> None:
    d = read(Path(sys.argv[1]))
    show("roofline", d, np.log(d["bytes"] / d["bw"]))
    every = {}
    for kind in ("row class",):
        p = np.zeros(len(d["y"]))
        for v in DEV:
            tr = d["dev"] != v
            x = fit({k: a[tr] for k, a in d.items()}, kind)
            p[~tr] = predict(x, {k: a[~tr] for k, a in d.items()}, kind)
        show("one out: " + kind, d, p)
        for name in ("poly", "trees") if kind == "row class" else ():
            q = p.copy()
            for v in DEV:
                tr = d["dev"] != v
                x = fit({k: a[tr] for k, a in d.items()}, kind)
                r = d["y"] - predict(x, d, kind)
                for u in set(d["dev"][tr]):  # the other devices' shapes of softmax and ln, each device's mean taken out
                    z = tr & (d["dev"] == u) & (d["op"] < 11)
                    r[d["dev"] == u] -= np.median(r[z])
                lw, lr, lb = (
                    np.log2(d["width"]) - 10,
                    np.log2(d["rows"] / d["units"]) - 5,
                    np.log2(d["bytes"] / d["l2"]),
                )
                for op in (7, 11, 12):
                    if name == "poly":
                        X = np.stack(
                            [
                                lw**0,
                                lw,
                                lw**2,
                                lw**3,
                                lr,
                                lr**2,
                                lw * lr,
                                np.ceil(d["width"] / 1024) - d["width"] / 1024,
                                d["width"] > 1024,
                                lb,
                            ],
                            1,
                        )
                        z = tr & (d["op"] == op)
                        c = np.linalg.solve(X[z].T @ X[z] + 10 * np.eye(X.shape[1]), X[z].T @ r[z])
                        o = ~tr & (d["op"] == op)
                        q[o] += np.clip(0.8 * X[o] @ c, -0.25, 0.25)
                    else:
                        import lightgbm as lgb

                        X = np.stack([d["width"], d["rows"], lr, d["n"], lb], 1)
                        z, o = tr & (d["op"] == op), ~tr & (d["op"] == op)
                        q[o] += 0.8 * lgb.LGBMRegressor(
                            n_estimators=150, learning_rate=0.06, num_leaves=15, objective="l1", n_jobs=1, verbose=-1
                        ).fit(X[z], r[z]).predict(X[o])
            show("   + " + name, d, q)
        every[kind] = p
    x = fit(d, "row class")
    show("in sample row class", d, predict(x, d, "row class"))
    print(dict(zip(NAMES, x.round(3).tolist(), strict=True)))
    np.savez("membound_predictions.npz", **every)


if __name__ == "__main__":
    main()
