"""Fits the attention model to measurements, and computes its errors on head sets and devices left out of the fit.

    python benchmarks/accuracy/fit_attention.py ../shared/truth [cross-validate|table OUT.md|ship|transfer|monotone]

``cross-validate`` (the default) and ``table`` leave out whole head sets, (heads, kv_heads, head_dim). ``ship`` writes
the calibrations. ``transfer`` estimates each device from the fit of the other. ``monotone`` counts pairs in which more
work has a shorter estimated time. The script needs the package's two source roots on the path.
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
    features,
    formula_times,
    geometry,
    log_factor,
    parts,
    prior,
    regime,
    seconds,
    similar,
)

from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu.fused import take
from windtunnel_models.learned.overlay import Fit
from windtunnel_models.learned.read import CALIBRATION
from windtunnel_models.learned.write import update_overlay

SOURCE = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), attention; fitted by benchmarks/accuracy/fit_attention.py"

_NOISE = 0.03
_CENTRES = 400
_SHARES = ("efficiency", "bandwidth", "write", "part_bytes", "warm_fit", "write_fit")
"""Parameters that are shares of datasheet values, so at most 1."""
_WIDTHS = np.array([[0.08, 0.12], [0.11, 0.13]])
"""Half-widths of the 90% interval (logarithm) before their calibration: [one query, prompt] by [grouped, multi-head].

They are multiplied by five for head_dim over 256.
"""


def _fit_parameters(
    g: Geometry, sheet: Datasheet, y: np.ndarray, start: np.ndarray, pull: float, count: int
) -> np.ndarray:
    from scipy.optimize import least_squares

    index = np.random.default_rng(0).permutation(len(y))[:count]
    g, y = take(g, index), y[index]
    width = np.array([w for _, w in PRIOR.values()])

    def residual(x: np.ndarray) -> np.ndarray:
        return np.r_[np.log(parts(g, sheet, x).total) - y, pull * (x - start) / width]

    high = np.where(np.isin(NAMES, _SHARES), 0.0, np.inf)
    start = np.minimum(start, high - 1e-3)
    solution = least_squares(
        residual, start, bounds=(-np.inf, high), loss="soft_l1", f_scale=0.05, max_nfev=30, diff_step=1e-3
    )
    return np.asarray(solution.x)


def fit_parameters(g: Geometry, sheet: Datasheet, y: np.ndarray, count: int = 1500) -> np.ndarray:
    """A device's parameters fitted to the log seconds ``y``, [regimes, parameters].

    The first fit is to all rows with head_dim up to 256. Each regime's fit starts from it and is pulled towards it.
    """
    kind = regime(g)
    usual = np.flatnonzero(kind < 4)
    both = _fit_parameters(take(g, usual), sheet, y[usual], prior(sheet), 0.3, count)
    out = np.stack([both] * len(REGIMES))
    for r in range(len(REGIMES)):
        index = np.flatnonzero(kind == r)
        start = out[r % 2] if r > 1 else both
        out[r] = _fit_parameters(take(g, index), sheet, y[index], start, 0.4, count) if len(index) else start
    return out


def _fit_residual(x: np.ndarray, r: np.ndarray, centres: int = _CENTRES) -> tuple[np.ndarray, np.ndarray]:
    """The centres of a Gaussian process, which are a subset of the rows, and their weights.

    Outliers have a reduced weight.
    """
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
    """The parameters and the residual of one device, fitted to the log seconds ``y`` [rows] of its own rows."""
    g = geometry(rows, sheet)
    parameters = fit_parameters(g, sheet, y, count)
    p = formula_times(g, sheet, parameters)
    x, r, kind = features(rows, g, p, sheet), y - np.log(p.total), regime(g)
    out: Arrays = {
        "names": np.array(NAMES),
        "numbers": parameters,
        "sheet": np.array([float(v) for v in vars(sheet).values()]),
    }
    out["halfwidth"] = (
        np.tile(_WIDTHS, (len(REGIMES) // 2, 1)) * np.where(np.arange(len(REGIMES)) > 3, 5.0, 1.0)[:, None]
    )
    for k in np.unique(kind):
        index = np.flatnonzero(kind == k)
        out[f"centres_{k}"], out[f"weights_{k}"] = _fit_residual(x[index], r[index], centres)
    return out


# ---- measurements, splits and tables


@dataclass(frozen=True)
class Table:
    """The rows of one device, and their log seconds."""

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
    """The rows of ``attention.csv.gz``, by device."""
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
    """The fold of each row. Whole head sets are assigned to folds at random."""
    sets = sorted(set(table.sets()))
    order = np.random.default_rng(seed).permutation(len(sets))
    fold = {sets[j]: i % folds for i, j in enumerate(order)}
    return np.array([fold[s] for s in table.sets()])


def _subsets(table: Table) -> list[tuple[str, np.ndarray]]:
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


def show(table: Table, estimated: np.ndarray, width: np.ndarray | None = None) -> None:
    """Print MAPE, median, p90, log bias, coverage and half-width of log estimates, by phase and kind of head set."""
    error = np.abs(np.exp(estimated - table.y) - 1.0)
    for name, i in _subsets(table):
        line = (
            f"{table.sku[:4]} {name:22s} n={i.sum():5d} MAPE {error[i].mean():6.2%} median {np.median(error[i]):6.2%} "
            f"p90 {np.quantile(error[i], 0.9):6.1%} log bias {np.median((estimated - table.y)[i]):+.3f}"
        )
        if width is not None:
            covered = np.abs(estimated - table.y)[i] <= width[i]
            line += f" coverage {covered.mean():.1%} half-width {np.median(np.sinh(width[i])):.1%}"
        print(line, flush=True)


def show_sets(table: Table, estimated: np.ndarray) -> None:
    error, sets = np.abs(np.exp(estimated - table.y) - 1.0), np.array(table.sets())
    for phase in (False, True):
        cells = []
        for s in sorted(set(table.sets())):
            i = (sets == s).all(1) & (table.rows["decode"] == phase)
            if i.any():
                cells.append(f"{s[0]:.0f}/{s[1]:.0f}/{s[2]:.0f} {error[i].mean():.1%}")
        print("  decode" if phase else "  prefill", ", ".join(cells))


FOLDS = {"a100-sxm-80gb": 6, "h100-sxm-80gb": 11}
"""A100 has six head sets, H100 22."""


def cross_validate(table: Table, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log estimates of the formula and of the model, and the interval's half-widths before their calibration.

    Each row is estimated from a fit without its head set.
    """
    fold = set_fold(table, FOLDS[table.sku], seed)
    plain, whole, width = np.zeros_like(table.y), np.zeros_like(table.y), np.zeros_like(table.y)
    for f in range(FOLDS[table.sku]):
        train, test = table.take(np.flatnonzero(fold != f)), table.take(np.flatnonzero(fold == f))
        arrays = fit_device(train.rows, train.sheet, train.y)
        plain[fold == f] = np.log(seconds(arrays, test.rows, residual=False))
        factor, width[fold == f] = log_factor(arrays, test.rows)
        whole[fold == f] = plain[fold == f] + factor
    return plain, whole, width


def calibrated(table: Table, whole: np.ndarray, width: np.ndarray, target: float = 0.93) -> np.ndarray:
    """The factors on the half-widths with which the interval coverage is ``target``, [regimes, 2].

    The factor is 1 for head_dim over 256.
    """
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
    """Half-widths in which the factor of each fold comes from the rows of the other folds."""
    out = width.copy()
    g = geometry(table.rows, table.sheet)
    kind, alone = regime(g), (g.group == 1.0).astype(int)
    for f in np.unique(fold):
        others, mine = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        out[mine] *= calibrated(table.take(others), whole[others], width[others])[kind[mine], alone[mine]]
    return out


def run_cross_validation(tables: list[Table]) -> None:
    means = []
    for table in tables:
        start = time.time()
        plain, whole, width = cross_validate(table)
        width = nested_width(table, whole, width, set_fold(table, FOLDS[table.sku]))
        print("formula alone")
        show(table, plain)
        print(f"formula and residual ({time.time() - start:.0f} s)")
        show(table, whole, width)
        show_sets(table, whole)
        error, fp8 = np.abs(np.exp(whole - table.y) - 1.0), table.rows["kv_bytes"] < 2
        wide = table.rows["head_dim"] > 256
        for phase in (False, True):
            i = table.rows["decode"] == phase
            means.append([error[i & ~fp8 & ~wide].mean(), error[i & ~fp8].mean(), error[i].mean()])
    for name, value in zip(("bf16 keys and values", "with head_dim 512", "all rows"), np.mean(means, 0), strict=True):
        print(f"mean MAPE of prefill and decode on two devices, {name}: {value:.2%}")


HEADER = """# Attention: head sets left out of the fit

Generated by `benchmarks/accuracy/fit_attention.py` from ai-dynamo/aiconfigurator@095f58a (Apache-2.0). The table is a
cross-validation in which all rows of a head set (heads, kv_heads, head_dim) are in the same fold. A100 has six head sets, in
six folds; H100 has 22, in eleven folds.

- `roofline`, `formula`, `model`: MAPE of the estimated duration. `roofline` uses datasheet values only. `formula` is the block
  structure of the kernels with fitted parameters, without the learned residual. `model` is the shipped model.
- `median`, `p90`: median and 90th percentile of the absolute percentage error of the model. `log bias`: median of
  ln(estimated / measured).
- `coverage`: interval coverage of the 90% interval, whose width comes from the other folds. `half-width`: median half-width of
  that interval, relative to the estimate.

The structure of the formula and the start values of its parameters were chosen while the errors of all head sets of both
devices were visible. Only the fitted parameters and the learned residual are cross-validated, so the errors on new head sets
will be somewhat larger. Only one head set has a head_dim over 256: (1, 1, 512). Another kernel executes it, and its interval was
set by hand after its measurements had been seen.

| device | subset | rows | roofline | formula | **model** | median | p90 | log bias | coverage | half-width |
|---|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def roofline(table: Table) -> np.ndarray:
    """Logarithm of the roofline: the longer of arithmetic at the datasheet's peak and of moving each operand once."""
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
        plain, whole, width = cross_validate(table)
        width = nested_width(table, whole, width, set_fold(table, FOLDS[table.sku]))
        simple = roofline(table)
        for name, i in _subsets(table):
            errors = [np.abs(np.exp(estimated - table.y) - 1.0)[i] for estimated in (simple, plain, whole)]
            cells = [table.sku, name, str(int(i.sum())), *(f"{e.mean():.1%}" for e in errors[:2])]
            cells += [
                f"**{errors[2].mean():.2%}**",
                f"{np.median(errors[2]):.1%}",
                f"{np.quantile(errors[2], 0.9):.1%}",
            ]
            covered = np.abs(whole - table.y)[i] <= width[i]
            cells += [f"{np.median((whole - table.y)[i]):+.3f}", f"{covered.mean():.0%}"]
            lines.append(f"| {' | '.join([*cells, f'{np.median(np.sinh(width[i])):.0%}'])} |")
            if name in ("prefill", "decode"):
                means.append(errors[2].mean())
    subset = "prefill and decode on the two devices, 16-bit keys and values, head_dim up to 256"
    mean = f"\nMean MAPE of {subset}: **{np.mean(means):.2%}**.\n"
    out.write_text(HEADER + "\n".join(lines) + "\n" + mean, encoding="utf-8")


def run_ship(tables: list[Table]) -> None:
    """Write the calibration of each device from all its rows. Half-widths and errors come from cross-validation."""
    for table in tables:
        _, whole, width = cross_validate(table)
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
        cells = [f"{name} {100 * error[index].mean():.1f}%" for name, index in _subsets(table)]
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
    """Print the errors of each device from the other's fit and its own datasheet, then with 100 of its own rows."""
    for table in tables:
        other = next(t for t in tables if t.sku != table.sku)
        arrays = fit_device(other.rows, other.sheet, other.y)
        g = geometry(table.rows, table.sheet)
        print(f"{table.sku} without any measurement (parameters of PRIOR)")
        show(table, np.log(formula_times(g, table.sheet, np.stack([prior(table.sheet)] * len(REGIMES))).total))
        plain = np.log(seconds(arrays, table.rows, table.sheet, residual=False))
        factor, _ = log_factor(arrays, table.rows)
        for weight in (0.0, 0.5, 1.0):
            print(f"{table.sku} from {other.sku}, weight of the residual {weight}")
            show(table, plain + weight * factor)
        for seed in range(2):
            chosen = np.random.default_rng(seed).choice(len(table.y), 100, replace=False)
            train = table.take(chosen)
            test = table.take(np.setdiff1d(np.arange(len(table.y)), chosen))
            mine = fit_device(train.rows, train.sheet, train.y, centres=100)
            print(f"{table.sku} from 100 of its own rows, seed {seed}")
            show(test, np.log(seconds(mine, test.rows)))


def run_monotone(tables: list[Table], count: int = 20000) -> None:
    """Print the share of random pairs in which the larger operation has an estimated time over 1% shorter.

    Prompts of one token and head_dim over 256 are excluded, because other kernels execute them, which are slower.
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
        plain_s, plain = seconds(arrays, rows), seconds(arrays, rows, residual=False)
        print(f"{table.sku} {count} rows {time.time() - start:.2f} s for two formulas and one residual")
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
            change_full = seconds(arrays, larger) / plain_s - 1.0
            change_formula = seconds(arrays, larger, residual=False) / plain - 1.0
            print(
                f"  {name:20s} over 1% shorter: {(change_full < -0.01).mean():6.2%} "
                f"(formula {(change_formula < -0.01).mean():6.2%}), "
                f"over 5% shorter: {(change_full < -0.05).mean():6.2%}, largest decrease {change_full.min():+.1%}"
            )


def main() -> None:
    tables = read(Path(sys.argv[1]))
    what = sys.argv[2] if len(sys.argv) > 2 else "cross-validate"
    if what == "cross-validate":
        run_cross_validation(tables)
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
