"""Attention on unseen head sets: forms compared (experiment; NumPy alone, SciPy and LightGBM only for the comparisons).

python benchmarks/accuracy/attention_experiments.py ../shared/truth [constants|trees|mlp ...]
"""

from __future__ import annotations

import csv
import gzip
import sys
import time
from pathlib import Path

import numpy as np

DEV = {"a100-sxm-80gb": (108, 1.41e9, 2.039e12, 312e12, 40e6), "h100-sxm-80gb": (132, 1.98e9, 3.35e12, 989e12, 50e6)}
FOLDS = 6


def read(folder: Path) -> dict[str, np.ndarray]:
    with gzip.open(folder / "attention.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    out = {k: np.array([float(r[k]) for r in rows]) for k in ("batch", "heads", "kv_heads", "head_dim", "kv_tokens")}
    out["y"] = np.log([float(r["latency_s"]) for r in rows])
    out["sku"] = np.array([r["sku"] for r in rows])
    out["decode"] = np.array([r["phase"] == "decode" for r in rows])
    out["kvb"] = np.array([1.0 if r["kv_dtype"] == "fp8" else 2.0 for r in rows])
    for i, name in enumerate(("units", "clock", "bw", "peak", "l2")):
        out[name] = np.array([DEV[r["sku"]][i] for r in rows])
    return out


def take(d: dict[str, np.ndarray], i: np.ndarray) -> dict[str, np.ndarray]:
    return {k: v[i] for k, v in d.items()}


def head_folds(d: dict[str, np.ndarray]) -> np.ndarray:
    """Whole head sets; A100's six sets are in six folds, the rest dealt round."""
    sets = list(zip(d["heads"], d["kv_heads"], d["head_dim"], strict=True))
    a = sorted({s for s, k in zip(sets, d["sku"], strict=True) if k.startswith("a100")})
    rest = sorted(set(sets) - set(a))
    fold = {s: i % FOLDS for i, s in enumerate(a)} | {s: (5 * i) % FOLDS for i, s in enumerate(rest)}
    fold |= {s: i % FOLDS for i, s in enumerate(rest)}
    return np.array([fold[s] for s in sets])


NAMES = ("floor", "block", "eff", "mem", "l2", "special", "tok", "fp8", "walk", "warm", "fit", "p", "split", "wr")
START = np.log([9e-6, 2e-6, 0.65, 0.8, 70.0, 16.0, 2e-8, 1.0, 20.0, 1.3, 0.8, 3.0, 2e-6, 0.75])


def like(d: dict[str, np.ndarray]) -> np.ndarray:
    """Rows of one query a sequence: decode, and prompts of one token."""
    return d["decode"] | (d["kv_tokens"] <= 1.0)


def parts(d: dict[str, np.ndarray], x: np.ndarray) -> dict[str, np.ndarray]:
    """The analytic form with its constants x (logs), both phases; decode splits keys as the device's library does."""
    p = dict(zip(NAMES, np.exp(x), strict=True))
    one = like(d)
    u, T, D, g = d["units"], d["kv_tokens"], d["head_dim"], d["heads"] / d["kv_heads"]
    rate, l2 = d["peak"] * p["eff"] / u, p["l2"] * d["clock"]
    fp8 = np.where(d["kvb"] == 1.0, p["fp8"], 1.0)
    kv = 2.0 * d["batch"] * d["kv_heads"] * T * D * d["kvb"]
    qo = 4.0 * d["batch"] * d["heads"] * D * np.where(one, 1.0, T)
    # prefill
    blocks = np.ceil(T / 128.0)
    heads = d["batch"] * d["heads"]
    q = np.minimum(128.0, np.ceil(T / 16.0) * 16.0)
    steps = heads * blocks * (blocks + 1.0) / 2.0
    step = np.maximum(4.0 * q * q * D / rate, 2.0 * np.minimum(128.0, T) * D * d["kvb"] / l2)
    step = (step + q * q / (p["special"] * d["clock"])) * fp8
    waves_p = heads * blocks / u
    comp_p = np.maximum(np.ceil(steps / u), blocks) * step + (1.0 + waves_p) * p["block"]
    # decode
    pairs = d["batch"] * d["kv_heads"]
    splits = np.clip(np.floor(u / pairs), 1.0, np.ceil(T / 128.0))
    nosplit = (g == 1.0) & (d["sku"] == "a100-sxm-80gb")
    splits = np.where(nosplit, 1.0, splits)
    n_d = pairs * splits
    keys = T / splits
    gq = np.ceil(np.maximum(g, 1.0) / 64.0) * 64.0
    chain = keys * 2.0 * D * d["kvb"] / (p["walk"] * d["clock"]) * fp8
    comp_d = (
        np.maximum(4.0 * gq * pairs * T * D / (rate * np.minimum(n_d, u)) * fp8, chain) + (1 + n_d / u) * p["block"]
    )
    warm = 1.0 / (1.0 + (kv / (p["fit"] * d["l2"])) ** 6)
    speed = d["bw"] * p["mem"] * (1.0 + (p["warm"] - 1.0) * warm)
    comp = np.where(one, comp_d, comp_p)
    n = np.where(one, n_d, heads * blocks)
    mem = (np.where(one, kv, 0.0) + qo) / np.where(one, speed, np.minimum(np.minimum(n, u) * l2, d["bw"] * p["mem"]))
    tail = p["floor"] + p["tok"] * d["batch"] + np.where(one & (splits > 1), p["split"], 0.0)
    write = 2.0 * d["batch"] * d["kv_heads"] * np.where(one, 1.0, T) * D * (2.0 + d["kvb"]) / (d["bw"] * p["wr"])
    tail = tail + write  # the new keys and values go to the paged cache first
    return {
        "compute": comp,
        "memory": mem,
        "tail": tail,
        "blocks": n,
        "kv": kv,
        "qo": qo,
        "splits": splits,
        "chain": chain,
        "write": write,
        "nosplit": nosplit,
        "p": 1.0 + p["p"],
    }


def base(d: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    w = parts(d, x)
    hi, lo = np.maximum(w["compute"], w["memory"]), np.minimum(w["compute"], w["memory"])
    return np.log(w["tail"] + hi * (1.0 + (lo / hi) ** w["p"]) ** (1.0 / w["p"]))


def fit_constants(d: dict[str, np.ndarray]) -> np.ndarray:
    from scipy.optimize import least_squares

    def f(x: np.ndarray) -> np.ndarray:
        return np.r_[base(d, x) - d["y"], np.where(np.isin(NAMES, ("wr",)), 8.0, 0.3) * (x - START)]

    i = np.random.default_rng(0).permutation(len(d["y"]))[:1200]
    d = take(d, i)
    return least_squares(f, START, loss="soft_l1", f_scale=0.05, max_nfev=60, diff_step=1e-3).x


def features(d: dict[str, np.ndarray], b: np.ndarray, x: np.ndarray, kind: str) -> np.ndarray:
    w = parts(d, x)
    u, T, D, g = d["units"], d["kv_tokens"], d["head_dim"], d["heads"] / d["kv_heads"]
    lt = np.log2(np.maximum(T, 1.0))
    pairs, bh = d["batch"] * d["kv_heads"], d["batch"] * d["heads"]
    tiles = np.ceil(T / 128.0)
    cols = [
        lt,
        np.log2(pairs),
        np.log2(bh),
        np.log2(g),
        np.log2(D),
        b,
        np.log(w["compute"] / w["tail"]),
        np.log(w["memory"] / w["tail"]),
        np.log(w["compute"] / w["memory"]),
        np.log(w["memory"]),
        np.log(w["compute"]),
        (d["kvb"] == 1.0) * 1.0,
        (T <= 1.0) * 1.0,
        (g == 1.0) * 1.0,
        (D == 64) * 1.0,
        (D > 256) * 1.0,
    ]
    for count in (pairs * tiles, bh * tiles, pairs, bh, pairs * np.ceil(g * np.where(like(d), 1, T) / 128.0)):
        waves = count / u
        cols += [np.log(waves), np.log(np.ceil(waves) / waves), np.ceil(waves) == 1.0]
    cols += [
        np.log2(np.maximum(kv_fit := w["kv"] / d["l2"], 1e-3)),
        kv_fit > 1.0,
        np.minimum(T / 128.0, 1.0),
        np.log(w["qo"] / w["kv"]),
        np.log2(w["splits"]),
        np.log(np.maximum(w["chain"] / w["tail"], 1e-3)),
        w["nosplit"] * 1.0,
        d["decode"] * 1.0,
        np.log(w["write"] / w["tail"]),
    ]
    if kind == "phys":  # nothing that says grouped or multi-head by itself where one query a sequence is asked
        if like(d)[0]:
            cols = [
                lt,
                np.log2(pairs),
                np.minimum(np.log2(D), 7.0),
                b,
                np.log(w["compute"] / w["tail"]),
                np.log(w["memory"] / w["tail"]),
                np.log(w["memory"]),
                np.log(np.maximum(w["chain"] / w["tail"], 1e-3)),
                (d["kvb"] == 1.0) * 1.0,
                (T <= 1.0) * 1.0,
                np.log(pairs / u),
                np.log(w["blocks"] / u),
                np.log(np.ceil(w["blocks"] / u) / (w["blocks"] / u)),
                np.log2(np.maximum(kv_fit, 1e-3)),
                kv_fit > 1.0,
                np.log2(w["splits"]),
                w["nosplit"] * 1.0,
                (T > 128) * 1.0,
                np.ceil(g / 16.0),
                d["decode"] * 1.0,
                D > 256,
            ]
        else:
            cols = cols[1:4] + cols[:1] + cols[4:12] + cols[14:]
    if kind == "full":
        cols += [np.log2(d["batch"]), np.log2(d["heads"]), np.log2(d["kv_heads"])]
    out = np.stack([np.asarray(c, float) for c in cols], 1)
    h = np.where(d["sku"] == "h100-sxm-80gb", 1.0, 0.0)
    return np.c_[out, h]


def mlp(
    X: np.ndarray,
    r: np.ndarray,
    w: np.ndarray,
    Xt: np.ndarray,
    hidden: int = 48,
    steps: int = 1400,
    seed: int = 0,
    decay: float = 2e-4,
) -> np.ndarray:
    """Two hidden layers of SiLU; Adam on a smooth absolute error, minibatches of 1024, cosine rate; NumPy alone."""
    g = np.random.default_rng(seed)
    mu, sd = X.mean(0), X.std(0) + 1e-6
    X = np.clip((X - mu) / sd, -4, 4).astype(np.float32)
    Xt = np.clip((Xt - mu) / sd, -4, 4).astype(np.float32)
    scale = np.float32(np.std(r))
    r = (r / scale).astype(np.float32)[:, None]
    w = (w / w.mean()).astype(np.float32)[:, None]
    n = (X.shape[1], hidden, hidden, 1)
    P = []
    for a, b in zip(n[:-1], n[1:], strict=True):
        P += [(g.normal(size=(a, b)) / np.sqrt(a)).astype(np.float32), np.zeros(b, np.float32)]
    m, v = [0 * p for p in P], [0 * p for p in P]
    avg = [p.copy() for p in P]

    def forward(P: list[np.ndarray], x: np.ndarray) -> tuple:
        a1 = x @ P[0] + P[1]
        s1 = 1 / (1 + np.exp(-a1))
        h1 = a1 * s1
        a2 = h1 @ P[2] + P[3]
        s2 = 1 / (1 + np.exp(-a2))
        h2 = a2 * s2
        return a1, s1, h1, a2, s2, h2, h2 @ P[4] + P[5]

    for t in range(1, steps + 1):
        i = g.integers(0, len(X), 1024)
        x = X[i]
        a1, s1, h1, a2, s2, h2, o = forward(P, x)
        e = o - r[i]
        d = w[i] * e / np.sqrt(e * e + 0.01) / len(i)
        G = [None] * 6
        G[4], G[5] = h2.T @ d, d.sum(0)
        d2 = (d @ P[4].T) * (s2 + h2 * (1 - s2))
        G[2], G[3] = h1.T @ d2, d2.sum(0)
        d1 = (d2 @ P[2].T) * (s1 + h1 * (1 - s1))
        G[0], G[1] = x.T @ d1, d1.sum(0)
        lr = 6e-3 * 0.5 * (1 + np.cos(np.pi * t / steps)) * min(1, t / 50)
        for j in range(6):
            m[j] += 0.1 * (G[j] - m[j])
            v[j] += 0.01 * (G[j] ** 2 - v[j])
            P[j] = (
                P[j]
                - lr * (m[j] / (1 - 0.9**t)) / (np.sqrt(v[j] / (1 - 0.99**t)) + 1e-8)
                - lr * decay * 10 * P[j] * (j % 2 == 0)
            )
    return np.clip(
        forward(P, Xt)[-1][:, 0].astype(float) * scale, np.quantile(r, 0.002) * scale, np.quantile(r, 0.998) * scale
    )


def ridge(X: np.ndarray, r: np.ndarray, w: np.ndarray, Xt: np.ndarray, lam: float = 3.0) -> np.ndarray:
    mu, sd = X.mean(0), X.std(0) + 1e-6

    def ex(A: np.ndarray) -> np.ndarray:
        A = np.clip((A - mu) / sd, -4, 4)
        q = (A[:, :, None] * A[:, None, :])[:, *np.triu_indices(A.shape[1])]
        return np.c_[np.ones(len(A)), A, q]

    A = ex(X)
    return ex(Xt) @ np.linalg.solve(A.T @ (A * w[:, None]) + lam * w.mean() * np.eye(A.shape[1]), A.T @ (w * r))


def trees(X: np.ndarray, r: np.ndarray, w: np.ndarray, Xt: np.ndarray) -> np.ndarray:
    import lightgbm as lgb

    model = lgb.LGBMRegressor(
        n_estimators=400,
        learning_rate=0.05,
        num_leaves=31,
        min_child_samples=10,
        subsample=0.8,
        subsample_freq=1,
        colsample_bytree=0.6,
        objective="l1",
        n_jobs=1,
        verbose=-1,
    )
    return model.fit(X, r, sample_weight=w).predict(Xt)


def report(name: str, d: dict[str, np.ndarray], pred: np.ndarray, ok: np.ndarray) -> None:
    e = np.abs(np.exp(pred - d["y"]) - 1)
    cells, means = [], []
    for sku in DEV:
        for dec in (False, True):
            for kvb in (2.0, 1.0):
                i = ok & (d["sku"] == sku) & (d["decode"] == dec) & (d["kvb"] == kvb)
                if i.any():
                    cells.append(
                        f"{sku[:4]}/{'dec' if dec else 'pre'}/kv{kvb * 8:.0f} {e[i].mean():5.1%} (med {np.median(e[i]):.1%} p90 {np.quantile(e[i], 0.9):.1%})"
                    )
                    if kvb == 2.0:
                        means.append(e[i].mean())
    mha = d["heads"] == d["kv_heads"]
    print(
        f"{name:28s} mean4 {np.mean(means):.2%} | mha {e[ok & mha].mean():.1%} gqa {e[ok & ~mha].mean():.1%} | "
        + " | ".join(cells),
        flush=True,
    )


def fit_predict(d, tr, te, kinds, nets=1, feats="full"):
    out = {k: np.zeros(te.sum()) for k in kinds}
    b, bt, xs = np.zeros(tr.sum()), np.zeros(te.sum()), {}
    dtr, dte = take(d, tr), take(d, te)
    for dec in (False, True):
        X, Xt = [], []
        ii, jj = [], []
        for sku in DEV:
            i, j = (np.flatnonzero((like(q) == dec) & (q["sku"] == sku)) for q in (dtr, dte))
            x = fit_constants(take(dtr, i))
            xs[sku, dec] = x
            b[i] = base(take(dtr, i), x)
            X.append(features(take(dtr, i), b[i], x, feats))
            ii.append(i)
            if len(j):
                bt[j] = base(take(dte, j), x)
                Xt.append(features(take(dte, j), bt[j], x, feats))
                jj.append(j)
        X, ii = np.concatenate(X), np.concatenate(ii)
        if not jj:
            continue
        Xt, jj = np.concatenate(Xt), np.concatenate(jj)
        w = np.where(X[:, -1] == 0, 2.0, 1.0) * np.where(dtr["head_dim"][ii] > 256, 0.3, 1.0)
        r = dtr["y"][ii] - b[ii]
        for k in kinds:
            if k == "constants":
                out[k][jj] = bt[jj]
            elif k == "trees":
                out[k][jj] = bt[jj] + trees(X, r, w, Xt)
            elif k == "ridge2":
                out[k][jj] = bt[jj] + ridge(X, r, w, Xt)
            elif k.startswith("mlp"):
                out[k][jj] = bt[jj] + np.mean([mlp(X, r, w, Xt, seed=s) for s in range(nets)], 0)
    return out, xs


def main() -> None:
    d = read(Path(sys.argv[1]))
    kinds = sys.argv[2].split(",") if len(sys.argv) > 2 else ["constants", "trees", "ridge2", "mlp"]
    feats = sys.argv[3] if len(sys.argv) > 3 else "full"
    fold = head_folds(d)
    pred = {k: np.full(len(fold), np.nan) for k in kinds}
    t = time.time()
    for f in range(FOLDS):
        out, xs = fit_predict(d, fold != f, fold == f, kinds, feats=feats)
        for k in kinds:
            pred[k][fold == f] = out[k]
        print(f"{time.time() - t:.0f}s", flush=True)
    for key, x in xs.items():
        print(key, dict(zip(NAMES, np.exp(x).round(9), strict=True)))
    for k in kinds:
        report(f"{k} [{feats}]", d, pred[k], np.ones(len(fold), bool))
    np.savez("attention_predictions.npz", **pred)
    g = d["heads"] == d["kv_heads"]
    if "mha" in sys.argv:  # extrapolation: every multi-head set held back
        out, _ = fit_predict(d, ~g, g, kinds, feats=feats)
        for k in kinds:
            full = np.full(len(g), np.nan)
            full[g] = out[k]
            report(f"all multi-head out {k}", d, full, g)


main() if __name__ == "__main__" else None
