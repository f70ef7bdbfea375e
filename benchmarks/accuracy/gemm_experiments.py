"""Experiments towards the shipped GEMM model: shapes held back, devices held back, few measurements of a new device.

    python benchmarks/accuracy/gemm_experiments.py ../shared/truth shapes|types|devices

Needs torch, scipy and lightgbm in a virtual environment of its own; none is a dependency of the project. Seeded;
every figure is of rows whose (n, k), or whose device, was in no fit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import lightgbm
import numpy as np
import split as sp
import torch
from gemm_base import base, features, fit

torch.set_num_threads(1)
Key = tuple[str, str, str]
Predict = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


class Net(torch.nn.Module):
    """log time over base: hidden SiLU layers whose units each task (device, type, clock) shifts and scales."""

    def __init__(self, inputs: int, tasks: int, hidden: int = 96, embedding: int = 8) -> None:
        super().__init__()
        self.embedding = torch.nn.Parameter(0.3 * torch.randn(tasks, embedding))
        self.weight, self.bias, self.shift, self.scale = (torch.nn.ParameterList() for _ in range(4))
        for a, b in ((inputs, hidden), (hidden, hidden)):
            self.weight.append(torch.nn.Parameter(torch.randn(a, b) / a**0.5))
            self.bias.append(torch.nn.Parameter(0.5 * torch.randn(b)))
            self.shift.append(torch.nn.Parameter(0.3 * torch.randn(embedding, b)))
            self.scale.append(torch.nn.Parameter(0.1 * torch.randn(embedding, b)))
        self.out = torch.nn.Parameter(torch.randn(hidden) / hidden**0.5)
        self.level = torch.nn.Parameter(torch.zeros(tasks))

    def forward(self, x: torch.Tensor, task: torch.Tensor) -> torch.Tensor:
        e = self.embedding[task]
        for w, b, v, g in zip(self.weight, self.bias, self.shift, self.scale, strict=True):
            x = torch.nn.functional.silu((x @ w) * torch.exp((e @ g).clamp(-2, 2)) + b + e @ v)
        return x @ self.out + self.level[task]


def grown(t: sp.Table, rng: np.random.Generator) -> sp.Table:
    """Every product made larger along one of m, n and k by 3% to 100%: it must not cost less."""
    axis, factor = rng.integers(0, 3, len(t)), np.exp(rng.uniform(0.03, 0.7, len(t)))
    m = np.where(axis == 0, np.ceil(t.m * factor), t.m)
    n = np.where(axis == 1, np.ceil(t.n * factor / 8.0) * 8.0, t.n)
    k = np.where(axis == 2, np.ceil(t.k * factor / 8.0) * 8.0, t.k)
    return sp.Table(t.sku, t.dtype, t.clock, m, n, k, t.seconds)


def train(
    tables: Sequence[sp.Table],
    parameters: Sequence[np.ndarray],
    seed: int,
    epochs: int = 60,
    hidden: int = 96,
    decay: float = 1e-4,
    monotone: float = 2.0,
    rate: float = 8e-3,
) -> tuple[Predict, Net, np.ndarray, np.ndarray]:
    """A net on the residual of the base; ``monotone`` weighs the penalty on larger products that cost less."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)

    def gather(ts: Sequence[sp.Table]) -> tuple[np.ndarray, np.ndarray]:
        parts = [features(t, p) for t, p in zip(ts, parameters, strict=True)]
        return np.concatenate([f for f, _ in parts]), np.concatenate([b for _, b in parts])

    x, lb = gather(tables)
    y = np.concatenate([np.log(t.seconds) for t in tables]) - lb
    task = torch.tensor(np.concatenate([np.full(len(t), i) for i, t in enumerate(tables)]))
    mean, spread = x.mean(0), x.std(0) + 1e-6

    def tensor(a: np.ndarray) -> torch.Tensor:
        return torch.tensor(a, dtype=torch.float32)

    larger = []
    for _ in range(3 if monotone else 0):
        gx, gl = gather([grown(t, rng) for t in tables])
        larger.append((tensor((gx - mean) / spread), tensor(gl - lb)))
    xs, ys = tensor((x - mean) / spread), tensor(y)
    net = Net(x.shape[1], len(tables), hidden)
    optimiser = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=decay)
    batch, count = 512, len(y)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, rate, total_steps=epochs * (count // batch) + 1, pct_start=0.1
    )
    for _ in range(epochs):
        order = torch.randperm(count)
        for i in range(count // batch):
            j = order[i * batch : (i + 1) * batch]
            penalty: torch.Tensor | float = 0.0
            if larger:
                vx, vl = larger[int(torch.randint(len(larger), (1,)))]
                both = net(torch.cat([xs[j], vx[j]]), torch.cat([task[j], task[j]]))
                got = both[: len(j)]
                penalty = torch.relu(got - both[len(j) :] - vl[j]).mean()
            else:
                got = net(xs[j], task[j])
            error = got - ys[j]
            loss = torch.sqrt(error * error + 1e-4).mean() + monotone * penalty
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()

    def predict(f: np.ndarray, log_base: np.ndarray, number: int) -> np.ndarray:
        with torch.no_grad():
            tasks = torch.full((len(f),), number)
            return net(tensor((f - mean) / spread), tasks).numpy().astype(float) + log_base

    return predict, net, mean, spread


def boosted(x: np.ndarray, y: np.ndarray) -> lightgbm.LGBMRegressor:
    return lightgbm.LGBMRegressor(
        objective="l1",
        num_leaves=31,
        learning_rate=0.06,
        n_estimators=400,
        min_child_samples=15,
        feature_fraction=0.5,
        bagging_fraction=0.8,
        bagging_freq=1,
        lambda_l2=1,
        n_jobs=1,
        verbose=-1,
    ).fit(x, y)


def widths(score: np.ndarray, cell: np.ndarray, count: int, q: float) -> np.ndarray:
    """The ``q`` quantile of the scores in each cell, or over all where a cell has few."""
    whole = np.quantile(score, q)
    return np.array([np.quantile(score[cell == c], q) if (cell == c).sum() > 100 else whole for c in range(count)])


def cells(t: sp.Table, p: np.ndarray) -> np.ndarray:
    """Region of each row for the interval: launch-, memory- or compute-bound by the base, and few or many waves."""
    total, compute, memory = base(t, p)
    return np.where(total < 2.5 * p[2], 0, np.where(memory > compute, 1, np.where(total < 25.0 * p[2], 2, 3)))


def shapes(data: dict[Key, sp.Table], keys: Sequence[Key], folds: int, members: int, epochs: int, trees: bool) -> None:
    """Folds of whole (n, k), held back on every table at once; intervals conformal over the folds beside."""
    tables = [data[q] for q in keys]
    out = {name: [np.zeros(len(t)) for t in tables] for name in ("base", "one net", "nets", "trees", "nets+trees")}
    region = [np.zeros(len(t), dtype=int) for t in tables]
    fold_of = [sp.shape_fold(t.n, t.k, folds) for t in tables]
    broken, began = [], time.perf_counter()
    for f, (train_rows, test_rows) in enumerate(sp.folds_of(tables, folds)):
        some = [t.take(i) for t, i in zip(tables, train_rows, strict=True)]
        ps = [fit([t]) for t in some]
        nets = [train(some, ps, seed=100 * f + s, epochs=epochs)[0] for s in range(members)]
        for i, (t, rows) in enumerate(zip(tables, test_rows, strict=True)):
            x, lb = features(t.take(rows), ps[i])
            each = [net(x, lb, i) for net in nets]
            out["base"][i][rows], out["one net"][i][rows], out["nets"][i][rows] = lb, each[0], np.mean(each, axis=0)
            region[i][rows] = cells(t.take(rows), ps[i])
            gx, gl = features(grown(t.take(rows), np.random.default_rng(f)), ps[i])
            broken.append(out["nets"][i][rows] - np.mean([net(gx, gl, i) for net in nets], axis=0))
            if trees:
                fx, fl = features(some[i], ps[i])
                out["trees"][i][rows] = boosted(fx, np.log(some[i].seconds) - fl).predict(x) + lb
                out["nets+trees"][i][rows] = 0.6 * out["nets"][i][rows] + 0.4 * out["trees"][i][rows]
        if f == 1:
            print(f"  (two folds took {time.perf_counter() - began:.0f} s)", flush=True)
    for name, predicted in out.items():
        if "trees" in name and not trees:
            continue
        rows = [sp.metrics(t.seconds, np.exp(o))["mape"] for t, o in zip(tables, predicted, strict=True)]
        print(f"\n{name}: mean over tables {np.mean(rows):.2%}")
        for key, t, o in zip(keys, tables, predicted, strict=True):
            print("  " + sp.line("/".join(key), t.seconds, np.exp(o)))
    drop = np.concatenate(broken)
    print(
        f"\nlarger product cheaper by over 1%: {np.mean(drop > 0.01):.2%}; over 3%: {np.mean(drop > 0.03):.2%}", end=""
    )
    print(f"  worst {np.expm1(drop.max()):.1%}")
    for i, (key, t) in enumerate(zip(keys, tables, strict=True)):
        score = np.abs(np.log(t.seconds) - out["nets"][i])
        width = np.zeros(len(t))
        for f in range(folds):
            other = fold_of[i] != f
            width[~other] = widths(score[other], region[i][other], 4, 0.91)[region[i][~other]]
        value = np.exp(out["nets"][i])
        inside, half = sp.interval_metrics(t.seconds, value, value * np.exp(-width), value * np.exp(width))
        print(f"  interval {'/'.join(key):34s} inside {inside:.1%} median half-width {half:.1%}")
    print(f"took {time.perf_counter() - began:.0f} s")


def process_inputs(t: sp.Table, p: np.ndarray) -> np.ndarray:
    """What the Gaussian process over a new device's residual measures distance in."""
    total, compute, memory = base(t, p)
    balance = np.log((p[2] + compute) / (p[2] + memory)) / 1.5
    parts = [np.log2(t.m) / 3.0, np.log2(t.n) / 2.0, np.log2(t.k) / 2.0, np.log(total / p[2]) / 1.5, balance]
    return np.stack(parts, 1)


def process(
    z: np.ndarray, experts: np.ndarray, r: np.ndarray, zq: np.ndarray, expertsq: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of the residual at ``zq``: level + two smooth parts + a mix of experts; scales by likelihood."""
    r = np.clip(r, np.median(r) - 0.6, np.median(r) + 0.6)
    apart = ((z[:, None] - z[None]) ** 2).sum(-1)
    apartq = (zq**2).sum(1)[:, None] + (z**2).sum(1)[None] - 2.0 * zq @ z.T
    mixed, mixedq = experts @ experts.T, expertsq @ experts.T
    best: tuple[float, np.ndarray, np.ndarray, Callable[[np.ndarray, np.ndarray], np.ndarray], float] | None = None
    for wide in (0.03, 0.1, 0.2):
        for narrow in (0.02, 0.06, 0.12):
            for noise in (0.03, 0.06, 0.12):
                for mix in (0.0, 0.5):

                    def kernel(
                        d: np.ndarray, e: np.ndarray, a: float = wide, b: float = narrow, c: float = mix
                    ) -> np.ndarray:
                        return 0.01 + a**2 * np.exp(-d / 12.0) + b**2 * np.exp(-d / 1.0) + c**2 * e

                    chol = np.linalg.cholesky(kernel(apart, mixed) + noise**2 * np.eye(len(r)))
                    half = np.linalg.solve(chol, r)
                    likelihood = float(-0.5 * half @ half - np.log(np.diag(chol)).sum())
                    if best is None or likelihood > best[0]:
                        best = (likelihood, chol, np.linalg.solve(chol.T, half), kernel, noise)
    assert best is not None
    _, chol, weights, kernel, noise = best
    cross = kernel(apartq, mixedq)
    reduced = np.linalg.solve(chol, cross.T)
    own = kernel(np.zeros(len(zq)), (expertsq**2).sum(1))
    return cross @ weights, np.sqrt(np.maximum(own - (reduced**2).sum(0), 0.0) + noise**2)


def devices(data: dict[Key, sp.Table], seeds: int) -> None:
    """Each device left out: from its datasheet and the others, then with 20, 100 and 500 measurements at random."""
    train_keys = [(s, "bfloat16", "burst") for s in sp.FOUR]
    own = {q: fit([data[q]], penalty=0.02) for q in train_keys}
    for held in [*train_keys, ("arc-pro-b60", "bfloat16", "burst")]:
        keys = [q for q in train_keys if q != held]
        tables, t, y = [data[q] for q in keys], data[held], np.log(data[held].seconds)
        pool = fit(tables, penalty=0.02)
        options = {"epochs": 20, "hidden": 48, "decay": 1e-2, "monotone": 0.0, "rate": 6e-3}
        cold = [train(tables, [pool] * len(keys), s, **options)[0] for s in range(2)]
        warm = [train(tables, [own[q] for q in keys], s, **options)[0] for s in range(2)]

        def ask(nets: Sequence[Predict], p: np.ndarray, t: sp.Table, count: int) -> tuple[np.ndarray, np.ndarray]:
            x, lb = features(t, p)
            each = [np.stack([net(x, lb, i) for i in range(count)], 1) for net in nets]
            return np.mean(each, axis=0), lb

        print(f"\n{held[0]}: no measurement")
        guesses, lb = ask(cold, pool, t, len(keys))
        print("  " + sp.line("base", t.seconds, np.exp(lb)))
        print("  " + sp.line("base and mean of experts", t.seconds, np.exp(guesses.mean(1))))
        print("  " + sp.line("half of their residual", t.seconds, np.exp(0.5 * guesses.mean(1) + 0.5 * lb)))
        for q, g in zip(keys, guesses.T, strict=True):
            print("  " + sp.line(f"expert {q[0]}", t.seconds, np.exp(g)))
        for count in (20, 100, 500):
            table = []
            for seed in range(seeds):
                drawn = sp.few(count, t, seed)
                some = t.take(drawn)
                rest = np.setdiff1d(np.arange(len(t)), drawn)
                rest = np.random.default_rng(seed).choice(rest, min(3000, len(rest)), replace=False)
                p = fit([some], start=pool, penalty={20: 0.1, 100: 0.03, 500: 0.01}[count], most=500)
                es, ls = ask(warm, p, some, len(keys))
                eq, lq = ask(warm, p, t.take(rest), len(keys))
                z, zq = process_inputs(some, p), process_inputs(t.take(rest), p)
                ms, mq = es.mean(1), eq.mean(1)
                spread_s, spread_q = es - ms[:, None], eq - mq[:, None]
                alone, spread0 = process(z, 0 * spread_s, y[drawn] - ls, zq, 0 * spread_q)
                mixed, spread1 = process(z, spread_s, y[drawn] - ms, zq, spread_q)
                both = 0.5 * (lq + alone + mq + mixed)
                width = 1.75 * 0.5 * (spread0 + spread1)
                errors = [np.mean(np.abs(np.expm1(g - y[rest]))) for g in (lq, mq, lq + alone, mq + mixed, both)]
                inside = np.mean(np.abs(both - y[rest]) <= width)
                table.append([*errors, inside, np.median(np.sinh(width))])
            m = np.mean(table, axis=0)
            print(
                f"  {count:4d} rows: base {m[0]:.2%}, experts {m[1]:.2%}, base+process {m[2]:.2%}, experts+process "
                f"{m[3]:.2%}, both {m[4]:.2%}; inside {m[5]:.1%}, half-width {m[6]:.1%}",
                flush=True,
            )


def main() -> None:
    data = sp.read(Path(sys.argv[1]))
    wanted = sys.argv[2:] or ["shapes", "types", "devices"]
    four = [(s, "bfloat16", "burst") for s in sp.FOUR]
    if "shapes" in wanted:
        shapes(data, four, folds=10, members=2, epochs=45, trees=True)
    if "types" in wanted:
        shapes(data, [q for q in data if q not in four], folds=4, members=1, epochs=25, trees=False)
    if "devices" in wanted:
        devices(data, seeds=3)


if __name__ == "__main__":
    main()
