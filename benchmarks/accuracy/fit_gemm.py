"""Fits the shipped GEMM model of one device to that device's own measurements.

    python benchmarks/accuracy/fit_gemm.py ../shared/truth SKU OUT.npz   fits; says the held-out accuracy (4 folds)
    python benchmarks/accuracy/fit_gemm.py ../shared/truth shapes        ten folds of whole shapes, four devices

Boosted trees on log(time / base) are the teacher; a net of two hidden layers learns from the measurements and from the
teacher at random products nobody measured, and pays for larger products that it calls cheaper. The net is what ships
(``gemm_serving``). Needs torch, lightgbm, scipy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import gemm_base
import lightgbm
import numpy as np
import split as sp
import torch
from gemm_serving import REGIONS, encode, features, log_factor

torch.set_num_threads(1)


def inputs(t: sp.Table, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    s = t.sheet
    sheet = np.array([s.units, s.clock, s.bandwidth, s.l2])
    return features(t.m, t.n, t.k, numbers, sheet, s.peak[t.dtype], sp.BYTES[t.dtype])


def teacher(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Mean of two boosted forests and of one with random cuts."""
    common = {"objective": "l1", "num_leaves": 31, "learning_rate": 0.06, "min_child_samples": 15, "n_jobs": 1}
    common |= {"feature_fraction": 0.5, "bagging_fraction": 0.8, "bagging_freq": 1, "lambda_l2": 1, "verbose": -1}
    kinds = ({"n_estimators": 400}, {"n_estimators": 400}, {"n_estimators": 600, "extra_trees": True})
    forests = [lightgbm.LGBMRegressor(**common, **kind, seed=i).fit(x, y) for i, kind in enumerate(kinds)]
    return lambda z: np.mean([forest.predict(z) for forest in forests], axis=0)


def unmeasured(t: sp.Table, count: int, rng: np.random.Generator) -> sp.Table:
    """Random products: half of the (n, k) of measured n and k, half free; m mostly of the measured ones."""
    half = count // 2
    free = np.round(np.exp(rng.uniform(np.log(32.0), np.log(65536.0), (2, count - half))) / 16.0) * 16.0
    n, k = (np.concatenate([rng.choice(np.unique(a), half), b]) for a, b in zip((t.n, t.k), free, strict=True))
    m = np.round(np.exp(rng.uniform(0.0, np.log(32768.0), count)))
    m = np.where(rng.random(count) < 0.6, rng.choice(np.unique(t.m), count), m)
    return sp.Table(t.sku, t.dtype, t.clock, m, n, k, np.ones(count))


def grown(t: sp.Table, rng: np.random.Generator) -> sp.Table:
    """Every product made larger along one of m, n and k, by one to a doubling: it must not cost less."""
    axis, factor = rng.integers(0, 3, len(t)), np.exp(rng.uniform(0.0, 0.7, len(t)) ** 2 * 1.4)
    m = np.where(axis == 0, np.maximum(t.m + 1.0, np.round(t.m * factor)), t.m)
    n = np.where(axis == 1, np.ceil((t.n * factor + 1.0) / 8.0) * 8.0, t.n)
    k = np.where(axis == 2, np.ceil((t.k * factor + 1.0) / 8.0) * 8.0, t.k)
    return sp.Table(t.sku, t.dtype, t.clock, m, n, k, t.seconds)


def cuts(values: np.ndarray, ramps: int) -> np.ndarray:
    """``ramps + 1`` knots at quantiles; where fewer differ, the rest lie out of reach and their ramps stay 0."""
    knots = np.unique(np.quantile(values, np.linspace(0.0, 1.0, ramps + 1)).astype(np.float32))
    return np.append(knots, 1e9 * (1.0 + np.arange(ramps + 1 - len(knots))))


def student(
    x: np.ndarray,
    y: np.ndarray,
    larger: np.ndarray,
    rise: np.ndarray,
    seed: int,
    hidden: int = 80,
    epochs: int = 30,
    monotone: float = 12.0,
    ramps: int = 6,
    batch: int = 512,
    rate: float = 8e-3,
) -> dict[str, np.ndarray]:
    """Weights of the net on targets ``y``; ``larger`` are inputs of grown products, ``rise`` the base's log rise."""
    torch.manual_seed(seed)
    knots = np.array([cuts(column, ramps) for column in x.T], dtype=np.float32)
    x, larger = encode(x, knots), encode(larger, knots)
    mean, spread = x.mean(0), np.maximum(x.std(0), 0.05)

    def tensor(a: np.ndarray) -> torch.Tensor:
        return torch.tensor(a, dtype=torch.float32)

    xs, gs, ys, rs = tensor((x - mean) / spread), tensor((larger - mean) / spread), tensor(y), tensor(rise)
    silu = torch.nn.SiLU
    layers = [torch.nn.Linear(x.shape[1], hidden), torch.nn.Linear(hidden, hidden), torch.nn.Linear(hidden, 1)]
    net = torch.nn.Sequential(layers[0], silu(), layers[1], silu(), layers[2])
    optimiser = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=1e-4)
    steps = len(y) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=epochs * steps, pct_start=0.1)
    for _ in range(epochs):
        order = torch.randperm(len(y))
        for i in range(steps):
            j = order[i * batch : (i + 1) * batch]
            both = net(torch.cat([xs[j], gs[j]]))[:, 0]
            got = both[:batch]
            error = got - ys[j]
            loss = torch.sqrt(error * error + 1e-4).mean() + monotone * torch.relu(got - both[batch:] - rs[j]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    out = {"knots": knots, "mean": mean.astype(np.float32), "spread": spread.astype(np.float32)}
    for i, layer in enumerate(layers):
        out[f"w{i}"] = layer.weight.detach().numpy().T.astype(np.float16)
        out[f"b{i}"] = layer.bias.detach().numpy().astype(np.float16)
    out["w2"], out["b2"] = out["w2"][:, 0], out["b2"][0]
    w0 = layers[0].weight.detach().numpy().T
    out["scale0"] = np.abs(w0).max(0).astype(np.float32)
    out["w0"] = np.round(w0 / out["scale0"] * 127.0).astype(np.int8)
    return out


def fit_table(t: sp.Table, seed: int = 0, extra: int = 30000, **options: float) -> dict[str, np.ndarray]:
    """Base numbers and net of one table, without interval."""
    rng = np.random.default_rng(seed)
    numbers = gemm_base.fit([t])
    x, log_base, _ = inputs(t, numbers)
    y = np.clip(np.log(t.seconds) - log_base, -1.5, 1.5)
    taught = teacher(x, y)
    more = unmeasured(t, extra, rng)
    xm, log_more, _ = inputs(more, numbers)
    every = sp.Table(
        *(t.sku, t.dtype, t.clock), *(np.append(getattr(t, a), getattr(more, a)) for a in "mnk"), np.ones(1)
    )
    larger, log_larger, _ = inputs(grown(every, rng), numbers)
    rise = log_larger - np.append(log_base, log_more)
    return student(np.vstack([x, xm]), np.append(y, taught(xm)), larger, rise, seed, **options) | {"numbers": numbers}


def pack(sku: str, fitted: dict[tuple[str, str], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of one device, as ``gemm_serving`` reads them, from the fits of its tables by (dtype, clock)."""
    s = sp.SHEETS[sku]
    out = {
        "tables": np.array([f"{dtype}/{clock}" for dtype, clock in fitted]),
        "sheet": np.array([s.units, s.clock, s.bandwidth, s.l2]),
        "peak": np.array([s.peak[dtype] for dtype, _ in fitted]),
        "size": np.array([sp.BYTES[dtype] for dtype, _ in fitted]),
        "numbers": np.array([f["numbers"] for f in fitted.values()]),
    }
    for i, f in enumerate(fitted.values()):
        out |= {f"{name}_{i}": value for name, value in f.items() if name != "numbers"}
        out.setdefault(f"width_{i}", np.full(REGIONS, np.nan))
    return out


def quantiles(score: np.ndarray, region: np.ndarray, level: float = 0.91) -> np.ndarray:
    """Quantile of the scores in each region, or over all where a region has under 100."""
    whole = np.quantile(score, level)
    picked = [score[region == r] for r in range(REGIONS)]
    return np.array([np.quantile(v, level) if len(v) >= 100 else whole for v in picked])


def held_out(
    t: sp.Table, folds: int, wanted: Sequence[int] | None = None, **options: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Log times predicted for shapes in no fit, their regions, folds, and (larger, cheaper) drops; NaN if unwanted."""
    fold, log_time = sp.shape_fold(t.n, t.k, folds), np.full(len(t), np.nan)
    region, drops = np.zeros(len(t), dtype=int), []
    for f in range(folds) if wanted is None else wanted:
        rows = np.flatnonzero(fold == f)
        fitted = fit_table(t.take(np.flatnonzero(fold != f)), seed=f, **options)
        arrays, some = pack(t.sku, {(t.dtype, t.clock): fitted}), t.take(rows)
        more = grown(some, np.random.default_rng(f))
        logs = []
        for part in (some, more):
            _, log_base, cell = inputs(part, fitted["numbers"])
            logs.append(log_base + log_factor(arrays, part.m, part.n, part.k, t.dtype, t.clock)[0])
            if part is some:
                region[rows] = cell
        log_time[rows] = logs[0]
        drops.append(logs[0] - logs[1])
    return log_time, region, fold, np.concatenate(drops)


def judge(t: sp.Table, log_time: np.ndarray, region: np.ndarray, fold: np.ndarray) -> dict[str, float]:
    """Metrics over held-out rows; each fold's interval comes from the other folds."""
    seen = np.isfinite(log_time)
    score, width = np.abs(np.log(t.seconds) - log_time), np.zeros(len(t))
    for f in np.unique(fold[seen]):
        others = seen & (fold != f)
        width[fold == f] = quantiles(score[others], region[others])[region[fold == f]]
    value, width, seconds = np.exp(log_time[seen]), width[seen], t.seconds[seen]
    inside, half = sp.interval_metrics(seconds, value, value * np.exp(-width), value * np.exp(width))
    return sp.metrics(seconds, value) | {"inside": inside, "half_width": half}


def fit_device(
    tables: Sequence[sp.Table], folds: int = 4, **options: float
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, float]]]:
    """Arrays of one device, with intervals from folds of whole shapes, and the held-out metrics of each table."""
    fitted, report = {}, {}
    for t in tables:
        log_time, region, fold, drops = held_out(t, folds, **options)
        name = f"{t.dtype}/{t.clock}"
        report[name] = judge(t, log_time, region, fold) | {"cheaper": float(np.mean(drops > 0.01))}
        widths = quantiles(np.abs(np.log(t.seconds) - log_time), region)
        fitted[t.dtype, t.clock] = fit_table(t, **options) | {"width": widths.astype(np.float32)}
    return pack(tables[0].sku, fitted), report


def main() -> None:
    data = sp.read(Path(sys.argv[1]))
    began = time.perf_counter()
    if sys.argv[2] == "shapes":
        for sku in sp.FOUR:
            t = data[sku, "bfloat16", "burst"]
            log_time, region, fold, drops = held_out(t, 10)
            print(sp.line(sku, t.seconds, np.exp(log_time)))
            numbers = judge(t, log_time, region, fold)
            print(
                f"    inside {numbers['inside']:.1%} half-width {numbers['half_width']:.1%}; cheaper by over 1% "
                f"{np.mean(drops > 0.01):.2%}, worst {np.expm1(drops.max()):.1%}",
                flush=True,
            )
        return
    arrays, report = fit_device([t for key, t in data.items() if key[0] == sys.argv[2]])
    np.savez_compressed(sys.argv[3], **arrays)
    for name, metrics in report.items():
        print(name, {key: round(value, 4) for key, value in metrics.items()})
    print(f"{Path(sys.argv[3]).stat().st_size / 1024:.0f} KiB, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
