"""Fits the attention model to measurements, and prints what it is worth on head sets and devices held back.

    python benchmarks/accuracy/fit_attention.py ../shared/truth [held|table OUT.md|ship|transfer|monotone]

``held`` (and ``table``) holds back whole head sets, (heads, kv_heads, head_dim); ``ship`` writes the calibrations;
``transfer`` predicts each device from the other's fit; ``monotone`` counts pairs where more work costs less. Fitting
needs SciPy, and the package's two source roots on the path.
"""

from __future__ import annotations

import csv
import gzip
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from attention_model import (
    AMPLITUDE,
    NAMES,
    PRIOR,
    REGIMES,
    SHEETS,
    Arrays,
    Datasheet,
    Geometry,
    Rows,
    base,
    features,
    geometry,
    log_factor,
    parts,
    prior,
    regime,
    seconds,
    similar,
)

from windtunnel_models.catalogue import Catalogue
from windtunnel_models.learned.overlay import Fit
from windtunnel_models.learned.read import CALIBRATION
from windtunnel_models.learned.write import update_overlay

SOURCE = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), attention; fitted by benchmarks/accuracy/fit_attention.py"

_NOISE = 0.03
_CENTRES = 400
_SHARES = ("efficiency", "bandwidth", "write", "part_bytes", "warm_fit", "write_fit")
"""Numbers that are shares of what the datasheet says: never over one."""
_WIDTHS = np.array([[0.08, 0.12], [0.11, 0.13]])
"""Half-widths of 90% (logarithm) before calibration: one query, prompt by grouped, multi-head; wide ones five times."""


def _fit_numbers(
    g: Geometry, sheet: Datasheet, y: np.ndarray, start: np.ndarray, pull: float, count: int
) -> np.ndarray:
    from scipy.optimize import least_squares

    index = np.random.default_rng(0).permutation(len(y))[:count]
    g, y = g.take(index), y[index]
    width = np.array([w for _, w in PRIOR.values()])

    def residual(x: np.ndarray) -> np.ndarray:
        return np.r_[np.log(parts(g, sheet, x).total) - y, pull * (x - start) / width]

    high = np.where(np.isin(NAMES, _SHARES), 0.0, np.inf)
    start = np.minimum(start, high - 1e-3)
    solution = least_squares(
        residual, start, bounds=(-np.inf, high), loss="soft_l1", f_scale=0.05, max_nfev=30, diff_step=1e-3
    )
    return np.asarray(solution.x)


def fit_numbers(g: Geometry, sheet: Datasheet, y: np.ndarray, count: int = 1500) -> np.ndarray:
    """A device's numbers from log seconds ``y``: all usual rows, then each regime near that, [regimes, numbers]."""
    kind = regime(g)
    usual = np.flatnonzero(kind < 4)
    both = _fit_numbers(g.take(usual), sheet, y[usual], prior(sheet), 0.3, count)
    out = np.stack([both] * len(REGIMES))
    for r in range(len(REGIMES)):
        index = np.flatnonzero(kind == r)
        start = out[r % 2] if r > 1 else both
        out[r] = _fit_numbers(g.take(index), sheet, y[index], start, 0.4, count) if len(index) else start
    return out


def _fit_rest(x: np.ndarray, r: np.ndarray, centres: int = _CENTRES) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian process on a subset of rows as centres, outliers weighed down; the centres and their weights."""
    r = np.clip(r, -0.5, 0.5)
    chosen = x[np.random.default_rng(0).permutation(len(x))[:centres]]
    inner = AMPLITUDE * similar(chosen, chosen).astype(float)
    inner += 1e-5 * AMPLITUDE * np.eye(len(chosen))
    outer = AMPLITUDE * similar(x, chosen).astype(float)
    weight = np.full(len(x), _NOISE**-2)
    for _ in range(3):
        solved = np.linalg.solve(inner + outer.T @ (outer * weight[:, None]), outer.T @ (weight * r))
        weight = _NOISE**-2 / np.maximum(1.0, np.abs(r - outer @ solved) / (2.0 * _NOISE))
    return chosen.astype(np.float32), (AMPLITUDE * solved).astype(np.float32)


def fit_device(rows: Rows, sheet: Datasheet, y: np.ndarray, count: int = 1500, centres: int = _CENTRES) -> Arrays:
    """Numbers and rest of one device from log seconds ``y`` [rows] of its own rows."""
    g = geometry(rows, sheet)
    numbers = fit_numbers(g, sheet, y, count)
    p = base(g, sheet, numbers)
    x, r, kind = features(rows, g, p, sheet), y - np.log(p.total), regime(g)
    out: Arrays = {
        "names": np.array(NAMES),
        "numbers": numbers,
        "sheet": np.array([float(v) for v in vars(sheet).values()]),
    }
    out["halfwidth"] = (
        np.tile(_WIDTHS, (len(REGIMES) // 2, 1)) * np.where(np.arange(len(REGIMES)) > 3, 5.0, 1.0)[:, None]
    )
    for k in np.unique(kind):
        index = np.flatnonzero(kind == k)
        out[f"centres_{k}"], out[f"weights_{k}"] = _fit_rest(x[index], r[index], centres)
    return out


# ---- measurements, splits and tables


@dataclass(frozen=True)
class Table:
    """One device's rows and their log seconds."""

    sku: str
    rows: dict[str, np.ndarray]
    y: np.ndarray

    def take(self, index: np.ndarray) -> Table:
        return replace(self, rows={k: v[index] for k, v in self.rows.items()}, y=self.y[index])

    @property
    def sheet(self) -> Datasheet:
        return SHEETS[self.sku]

    def sets(self) -> list[tuple[float, float, float]]:
        r = self.rows
        return list(zip(r["heads"].tolist(), r["kv_heads"].tolist(), r["head_dim"].tolist(), strict=True))


def read(folder: Path) -> list[Table]:
    """``attention.csv.gz`` by device."""
    with gzip.open(folder / "attention.csv.gz", "rt", newline="") as file:
        lines = list(csv.DictReader(file))
    out = []
    for sku in SHEETS:
        mine = [line for line in lines if line["sku"] == sku]
        rows = {
            k: np.array([float(m[k]) for m in mine]) for k in ("batch", "heads", "kv_heads", "head_dim", "kv_tokens")
        }
        rows["decode"] = np.array([m["phase"] == "decode" for m in mine])
        rows["dtype_bytes"] = np.full(len(mine), 2.0)
        rows["kv_bytes"] = np.array([1.0 if m["kv_dtype"].startswith("fp8") else 2.0 for m in mine])
        out.append(Table(sku, rows, np.log([float(m["latency_s"]) for m in mine])))
    return out


def set_fold(table: Table, folds: int, seed: int = 0) -> np.ndarray:
    """The fold of each row: whole head sets, dealt at random."""
    sets = sorted(set(table.sets()))
    order = np.random.default_rng(seed).permutation(len(sets))
    fold = {sets[j]: i % folds for i, j in enumerate(order)}
    return np.array([fold[s] for s in table.sets()])


def _cells(table: Table) -> list[tuple[str, np.ndarray]]:
    decode, fp8, wide = table.rows["decode"], table.rows["kv_bytes"] < 2, table.rows["head_dim"] > 256
    mha = table.rows["heads"] == table.rows["kv_heads"]
    out = []
    for phase, mine in (("prefill", ~decode), ("decode", decode)):
        out += [
            (phase, mine & ~fp8 & ~wide),
            (phase + " grouped", mine & ~fp8 & ~wide & ~mha),
            (phase + " multi-head", mine & ~fp8 & ~wide & mha),
            (phase + " fp8 kv", mine & fp8),
            (phase + " head_dim 512", mine & wide),
        ]
    return [(name, index) for name, index in out if index.any()]


def show(table: Table, predicted: np.ndarray, width: np.ndarray | None = None) -> None:
    """MAPE, median, p90, bias, coverage and half-width of log predictions, by phase and kind of head set."""
    error = np.abs(np.exp(predicted - table.y) - 1.0)
    for name, i in _cells(table):
        line = (
            f"{table.sku[:4]} {name:22s} n={i.sum():5d} MAPE {error[i].mean():6.2%} median {np.median(error[i]):6.2%} "
            f"p90 {np.quantile(error[i], 0.9):6.1%} bias {np.median((predicted - table.y)[i]):+.3f}"
        )
        if width is not None:
            inside = np.abs(predicted - table.y)[i] <= width[i]
            line += f" inside {inside.mean():.1%} half-width {np.median(np.sinh(width[i])):.1%}"
        print(line, flush=True)


def show_sets(table: Table, predicted: np.ndarray) -> None:
    error, sets = np.abs(np.exp(predicted - table.y) - 1.0), np.array(table.sets())
    for phase in (False, True):
        cells = []
        for s in sorted(set(table.sets())):
            i = (sets == s).all(1) & (table.rows["decode"] == phase)
            if i.any():
                cells.append(f"{s[0]:.0f}/{s[1]:.0f}/{s[2]:.0f} {error[i].mean():.1%}")
        print("  decode" if phase else "  prefill", ", ".join(cells))


FOLDS = {"a100-sxm-80gb": 6, "h100-sxm-80gb": 11}
"""A100 has six head sets, H100 22."""


def held_out(table: Table, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log prediction of base and whole, and half-width before calibration; each row from a fit without its head set."""
    fold = set_fold(table, FOLDS[table.sku], seed)
    plain, whole, width = np.zeros_like(table.y), np.zeros_like(table.y), np.zeros_like(table.y)
    for f in range(FOLDS[table.sku]):
        train, test = table.take(np.flatnonzero(fold != f)), table.take(np.flatnonzero(fold == f))
        arrays = fit_device(train.rows, train.sheet, train.y)
        plain[fold == f] = np.log(seconds(arrays, test.rows, rest=False))
        factor, width[fold == f] = log_factor(arrays, test.rows)
        whole[fold == f] = plain[fold == f] + factor
    return plain, whole, width


def calibrated(table: Table, whole: np.ndarray, width: np.ndarray, target: float = 0.93) -> np.ndarray:
    """Factor on each half-width that puts ``target`` of the held-out rows inside, [regimes, 2]; none for wide ones."""
    g = geometry(table.rows, table.sheet)
    kind, alone = regime(g), (g.group == 1.0).astype(int)
    score = np.abs(whole - table.y) / width
    out = np.ones((len(REGIMES), 2))
    for k in range(4):
        for a in range(2):
            i = (kind == k) & (alone == a)
            out[k, a] = np.quantile(score[i], target) if i.sum() > 100 else 1.5
    return out


def nested_width(table: Table, whole: np.ndarray, width: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Half-widths where each fold's factor comes from the other folds' held-out rows."""
    out = width.copy()
    g = geometry(table.rows, table.sheet)
    kind, alone = regime(g), (g.group == 1.0).astype(int)
    for f in np.unique(fold):
        others, mine = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        out[mine] *= calibrated(table.take(others), whole[others], width[others])[kind[mine], alone[mine]]
    return out


def run_held(tables: list[Table]) -> None:
    means = []
    for table in tables:
        start = time.time()
        plain, whole, width = held_out(table)
        width = nested_width(table, whole, width, set_fold(table, FOLDS[table.sku]))
        print("base alone")
        show(table, plain)
        print(f"with the rest ({time.time() - start:.0f} s)")
        show(table, whole, width)
        show_sets(table, whole)
        error, fp8 = np.abs(np.exp(whole - table.y) - 1.0), table.rows["kv_bytes"] < 2
        wide = table.rows["head_dim"] > 256
        for phase in (False, True):
            i = table.rows["decode"] == phase
            means.append([error[i & ~fp8 & ~wide].mean(), error[i & ~fp8].mean(), error[i].mean()])
    for name, value in zip(("bf16 keys and values", "with head_dim 512", "all rows"), np.mean(means, 0), strict=True):
        print(f"mean of prefill and decode on two devices, {name}: {value:.2%}")


HEADER = """# Attention on head sets held back

Made by `benchmarks/accuracy/fit_attention.py`, on ai-dynamo/aiconfigurator@095f58a (Apache-2.0). Every figure is of head sets
(heads, kv_heads, head_dim) that no fit saw: A100 has six of them, in six folds; H100 22, in eleven. Errors are absolute,
relative to what was measured; bias is the median logarithm of modelled over measured. `formula`: the kernels' block
structure with its fitted numbers, without the learned rest. `inside`: measurements within the 90% interval, whose width
comes from the other folds.

The formula's form and the values it starts from were found by looking at the errors of all head sets of both devices;
only its fitted numbers and the learned rest are truly held out, so expect the true figures somewhat worse. There is one
head set over head_dim 256, (1, 1, 512), which another kernel runs: its interval was set by hand after seeing it.

| device | rows of | rows | roofline | formula | **model** | median | p90 | bias | inside | half-width |
|---|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def roofline(table: Table) -> np.ndarray:
    """Logarithm of the longest of arithmetic at the datasheet's peak and of each operand moved once."""
    r, sheet = table.rows, table.sheet
    queries = np.where(r["decode"], 1.0, r["kv_tokens"])
    scores = np.where(r["decode"], r["kv_tokens"], r["kv_tokens"] * (r["kv_tokens"] + 1.0) / 2.0)
    flops = 4.0 * r["batch"] * r["heads"] * r["head_dim"] * scores
    moved = 2.0 * queries * r["heads"] * r["head_dim"] * r["dtype_bytes"]
    moved = r["batch"] * (moved + 2.0 * r["kv_tokens"] * r["kv_heads"] * r["head_dim"] * r["kv_bytes"])
    return np.log(np.maximum(flops / sheet.peak, moved / sheet.bandwidth))


def run_table(tables: list[Table], out: Path) -> None:
    lines, means = [], []
    for table in tables:
        plain, whole, width = held_out(table)
        width = nested_width(table, whole, width, set_fold(table, FOLDS[table.sku]))
        simple = roofline(table)
        for name, i in _cells(table):
            errors = [np.abs(np.exp(predicted - table.y) - 1.0)[i] for predicted in (simple, plain, whole)]
            cells = [table.sku, name, str(int(i.sum())), *(f"{e.mean():.1%}" for e in errors[:2])]
            cells += [
                f"**{errors[2].mean():.2%}**",
                f"{np.median(errors[2]):.1%}",
                f"{np.quantile(errors[2], 0.9):.1%}",
            ]
            inside = np.abs(whole - table.y)[i] <= width[i]
            cells += [f"{np.median((whole - table.y)[i]):+.3f}", f"{inside.mean():.0%}"]
            lines.append(f"| {' | '.join([*cells, f'{np.median(np.sinh(width[i])):.0%}'])} |")
            if name in ("prefill", "decode"):
                means.append(errors[2].mean())
    mean = f"\nMean of prefill and decode on the two devices, 16-bit keys, head_dim to 256: **{np.mean(means):.2%}**.\n"
    out.write_text(HEADER + "\n".join(lines) + "\n" + mean, encoding="utf-8")


def run_ship(tables: list[Table]) -> None:
    """Each device's calibration from all its rows; half-widths and reported figures from head sets held back."""
    for table in tables:
        _, whole, width = held_out(table)
        arrays = fit_device(table.rows, table.sheet, table.y, count=3000)
        arrays["halfwidth"] = arrays["halfwidth"] * calibrated(table, whole, width)
        family = "fa3" if table.sheet.hopper else "fa2"
        values: dict[str, float] = {}
        measured = np.unique(regime(geometry(table.rows, table.sheet)))
        for r, regime_name in enumerate(REGIMES):
            for name, value in zip(NAMES, np.exp(arrays["numbers"][r]).tolist(), strict=True):
                if r not in measured:
                    continue
                values[f"attention_{name}.{family}_{regime_name}"] = value
        inner = nested_width(table, whole, width, set_fold(table, FOLDS[table.sku]))
        error = np.abs(np.exp(whole - table.y) - 1.0)
        usual = table.rows["head_dim"] <= 256
        cells = [f"{name} {100 * error[index].mean():.1f}%" for name, index in _cells(table)]
        fit = Fit(
            "attention",
            len(table.y),
            float(error[usual].mean()),
            float((np.abs(whole - table.y) <= inner)[usual].mean()),
            float(np.median(np.sinh(inner[usual]))),
            "whole head sets",
            f"cross-validation errors: {', '.join(cells)}; the mean excludes head_dim 512",
        )
        path = CALIBRATION / f"{table.sku}.yaml"
        device = Catalogue().device(table.sku, calibrated=False)
        update_overlay(path, device, "attention", SOURCE, values, fit=fit, arrays=arrays)
        print(path.name, fit, "half-widths", arrays["halfwidth"].round(3).tolist())


def run_transfer(tables: list[Table]) -> None:
    """Each device from the other's fit and its own sheet; then with 100 of its rows."""
    for table in tables:
        other = next(t for t in tables if t.sku != table.sku)
        arrays = fit_device(other.rows, other.sheet, other.y)
        g = geometry(table.rows, table.sheet)
        print(f"{table.sku} before any measurement (numbers of PRIOR)")
        show(table, np.log(base(g, table.sheet, np.stack([prior(table.sheet)] * len(REGIMES))).total))
        plain = np.log(seconds(arrays, table.rows, table.sheet, rest=False))
        factor, _ = log_factor(arrays, table.rows)
        for weight in (0.0, 0.5, 1.0):
            print(f"{table.sku} from {other.sku}, share of the rest {weight}")
            show(table, plain + weight * factor)
        for seed in range(2):
            chosen = np.random.default_rng(seed).choice(len(table.y), 100, replace=False)
            left = np.setdiff1d(np.arange(len(table.y)), chosen)
            few = table.take(chosen)
            mine = fit_device(few.rows, few.sheet, few.y, centres=100)
            rest = table.take(left)
            print(f"{table.sku} from 100 of its own rows, seed {seed}")
            show(rest, np.log(seconds(mine, rest.rows)))


def run_monotone(tables: list[Table], count: int = 20000) -> None:
    """Random pairs in which the second asks for more; the share where it costs over 1% less.

    Prompts of one token and head dims over 256 are left out: other kernels run there, and are slower.
    """
    g = np.random.default_rng(0)
    for table in tables:
        arrays = fit_device(table.rows, table.sheet, table.y)
        usual = np.flatnonzero((table.rows["head_dim"] <= 256) & (table.rows["kv_tokens"] > 1))
        index = g.choice(usual, count)
        rows = {k: v[index].copy() for k, v in table.rows.items()}
        jitter = np.where(g.random(count) < 0.5, np.exp2(g.random(count)), 1.0)
        rows["kv_tokens"] = np.maximum(1.0, np.round(rows["kv_tokens"] * jitter))
        rows["batch"] = np.maximum(1.0, np.round(rows["batch"] * np.where(g.random(count) < 0.5, jitter, 1.0)))
        start = time.time()
        plain_s, plain = seconds(arrays, rows), seconds(arrays, rows, rest=False)
        print(f"{table.sku} {count} rows {time.time() - start:.2f} s, twice base and once the rest")
        steps: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
            "batch x 2": lambda r: r | {"batch": r["batch"] * 2},
            "kv_tokens x 2": lambda r: r | {"kv_tokens": r["kv_tokens"] * 2},
            "heads, kv_heads x 2": lambda r: r | {"heads": r["heads"] * 2, "kv_heads": r["kv_heads"] * 2},
            "heads x 2": lambda r: r | {"heads": r["heads"] * 2},
            "batch + 1": lambda r: r | {"batch": r["batch"] + 1},
            "kv_tokens x 1.1": lambda r: r | {"kv_tokens": np.ceil(r["kv_tokens"] * 1.1)},
        }
        for name, change in steps.items():
            larger = change(dict(rows))
            low, low_plain = seconds(arrays, larger) / plain_s - 1.0, seconds(arrays, larger, rest=False) / plain - 1.0
            print(
                f"  {name:20s} over 1% cheaper: {(low < -0.01).mean():6.2%} (base {(low_plain < -0.01).mean():6.2%}), "
                f"by over 5%: {(low < -0.05).mean():6.2%}, worst {low.min():+.1%}"
            )


def main() -> None:
    tables = read(Path(sys.argv[1]))
    what = sys.argv[2] if len(sys.argv) > 2 else "held"
    if what == "held":
        run_held(tables)
    elif what == "table":
        run_table(tables, Path(sys.argv[3]))
    elif what == "ship":
        run_ship(tables)
    elif what == "transfer":
        run_transfer(tables)
    else:
        run_monotone(tables)


if __name__ == "__main__":
    main()
