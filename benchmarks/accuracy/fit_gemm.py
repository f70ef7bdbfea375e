"""Fits the shipped GEMM model to the measurements of each device, and computes its cross-validation errors.

    python benchmarks/accuracy/fit_gemm.py ../shared/truth cross-validate [FOLDS]    errors of four devices in bfloat16
    python benchmarks/accuracy/fit_gemm.py ../shared/truth ship [SKU ...]    calibration files, and their errors
    python benchmarks/accuracy/fit_gemm.py ../shared/truth table OUT.md LOG [LOG ...]    the output of `ship` as a page

A device's calibration file is fitted to that device alone. First the parameters of the formula are fitted. Boosted
trees are then fitted to log(time / formula). They are the teacher (knowledge distillation) of a network with two hidden
layers, which is trained on the measurements and on the teacher's estimates for random GEMMs that were not measured. Its
loss has a penalty for a larger GEMM with a shorter estimated time. Only the network is shipped. The package evaluates
it (``windtunnel_models.kinds.gpu.gemm_learned``), and this script uses the same code. The script needs torch, lightgbm
and scipy in an environment of their own, with the package's two source roots on the path.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import lightgbm
import numpy as np
import split as sp
import torch
from scipy.optimize import minimize

from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu import gemm_learned as learned
from windtunnel_models.kinds.gpu.gemm import formula_s
from windtunnel_models.learned.overlay import Fit
from windtunnel_models.learned.read import CALIBRATION
from windtunnel_models.learned.write import update_overlay

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="X does not have valid feature names")

START = {
    "efficiency": 0.77,
    "memory_efficiency": 0.9,
    "floor_s": 2.4e-6,
    "l2_bytes_per_clock": 60.0,
    "wave_s": 1.2e-6,
    "wave_area": 0.8,
    "wave_spread": 0.3,
    "k_step_s": 1.2e-9,
    "cache_weights": 0.09,
    "cache_knee": 7.0,
    "cache_activations": 0.25,
    "overlap": 2.3,
    "sag": 0.08,
    "split_s": 2.2e-6,
    "quantise_passes": 3.4,
    "floor_overlap": 1.0,
}
"""Start values of every fit (SI units), towards which a penalty pulls it: rough values for all four devices."""

FEW_ROWS = 5000
FOR_FEW_ROWS = {"ramps": 14, "extra": 20000}
"""Options of a table with few rows: more and finer ramps, and fewer GEMMs that were not measured beside them."""

SOURCE = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), GEMM; fitted by benchmarks/accuracy/fit_gemm.py"


def rows_of(t: sp.Table) -> Rows:
    """The GEMMs of a table, in the context in which they were measured."""
    choices = {"dtype": t.dtype, "dispatch": "device", "clock": t.clock, "cache": "cold"}
    return Rows(OPERATIONS["gemm"], choices, {"m": t.m, "n": t.n, "k": t.k, "batch": np.ones(len(t))})


def model_arrays(t: sp.Table, parameters: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays, besides the network's, from which the package evaluates one table."""
    s = t.sheet
    return {
        "sheet": np.array([s.units, s.clock, s.bandwidth, s.l2]),
        "peak": np.array([s.peak[t.dtype]]),
        "size": np.array([sp.BYTES[t.dtype]]),
        "numbers": parameters[None],
    }


def inputs(t: sp.Table, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The network's inputs, the logarithm of the formula's time, and the region of every GEMM."""
    return learned.inputs(rows_of(t), learned.numbers_at(model_arrays(t, parameters), 0))


def fit_parameters(t: sp.Table, start: np.ndarray | None = None, penalty: float = 0.01, most: int = 1500) -> np.ndarray:
    """The formula's parameters that minimise the mean absolute log error and a penalty on the distance to ``start``.

    The penalty is on the squared log ratio of a parameter to its start value.
    """
    first = np.array([START[name] for name in learned.NAMES]) if start is None else start
    thin = t.take(np.random.default_rng(0).choice(len(t), min(most, len(t)), replace=False))
    rows, target = rows_of(thin), np.log(thin.seconds)

    def at(x: np.ndarray) -> np.ndarray:
        return first * np.exp(np.clip(x, -4.0, 4.0))

    def loss(x: np.ndarray) -> float:
        estimated = np.log(formula_s(rows, learned.numbers_at(model_arrays(thin, at(x)), 0))[0])
        return float(np.mean(np.abs(estimated - target)) + penalty * np.sum(x**2) / len(x))

    x = np.zeros(len(first))
    for _ in range(2):
        options = {"maxiter": 500, "xatol": 0.01, "fatol": 1e-4, "adaptive": True}
        options["initial_simplex"] = np.vstack([x, x + 0.3 * np.eye(len(x))])
        x = minimize(loss, x, method="Nelder-Mead", options=options).x
    return at(x)


def teacher(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The mean of two forests of boosted trees and of one with random splits."""
    common = {"objective": "l1", "num_leaves": 31, "learning_rate": 0.06, "min_child_samples": 15, "n_jobs": 1}
    common |= {"feature_fraction": 0.5, "bagging_fraction": 0.8, "bagging_freq": 1, "lambda_l2": 1, "verbose": -1}
    kinds = ({"n_estimators": 400}, {"n_estimators": 400}, {"n_estimators": 600, "extra_trees": True})
    forests = [lightgbm.LGBMRegressor(**common, **kind, seed=i).fit(x, y) for i, kind in enumerate(kinds)]
    return lambda z: np.mean([forest.predict(z) for forest in forests], axis=0)


def unmeasured(t: sp.Table, count: int, rng: np.random.Generator) -> sp.Table:
    """Random GEMMs that were not measured.

    Half of them have a measured m. n and k are measured values, multiples of 16, or any integers, a third each.
    """
    third = count // 3
    known = (rng.choice(np.unique(a), third) for a in (t.n, t.k))
    free = np.exp(rng.uniform(np.log(32.0), np.log(70000.0), (2, count - third)))
    free[:, :third] = np.round(free[:, :third] / 16.0) * 16.0
    n, k = (np.concatenate([a, np.maximum(np.round(b), 16.0)]) for a, b in zip(known, free, strict=True))
    m = np.round(np.exp(rng.uniform(0.0, np.log(70000.0), count)))
    m = np.where(rng.random(count) < 0.5, rng.choice(np.unique(t.m), count), m)
    return sp.Table(t.sku, t.dtype, t.clock, m, n, k, np.ones(count))


def enlarged(t: sp.Table, rng: np.random.Generator) -> sp.Table:
    """Every GEMM made larger along one of m, n and k, at least by one, at most by about a factor of two.

    Its estimated time should not be shorter.
    """
    axis, factor = rng.integers(0, 3, len(t)), np.exp(rng.uniform(0.0, 0.7, len(t)) ** 2 * 1.4)
    step = np.where(rng.random(len(t)) < 0.6, 8.0, 1.0)
    m = np.where(axis == 0, np.maximum(t.m + 1.0, np.round(t.m * factor)), t.m)
    n = np.where(axis == 1, np.ceil((t.n * factor + 1.0) / step) * step, t.n)
    k = np.where(axis == 2, np.ceil((t.k * factor + 1.0) / step) * step, t.k)
    return sp.Table(t.sku, t.dtype, t.clock, m, n, k, t.seconds)


def knots_of(values: np.ndarray, ramps: int) -> np.ndarray:
    """``ramps + 1`` knots at quantiles. If fewer are distinct, the others are so large that their ramps stay 0."""
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
    monotone: float = 30.0,
    ramps: int = 6,
    batch: int = 512,
    rate: float = 8e-3,
) -> dict[str, np.ndarray]:
    """The weights of a network trained on the targets ``y``.

    ``larger`` has the inputs of the enlarged GEMMs, ``rise`` the increase of the formula's log time.
    """
    torch.manual_seed(seed)
    knots = np.array([knots_of(column, ramps) for column in x.T], dtype=np.float32)
    x, larger = learned.encode(x, knots), learned.encode(larger, knots)
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
            output = both[:batch]
            error = output - ys[j]
            decrease = torch.relu(output - both[batch:] - rs[j])
            loss = torch.sqrt(error * error + 1e-4).mean() + monotone * decrease.mean()
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


def fit_table(t: sp.Table, seed: int = 0, extra: int = 45000, **options: float) -> dict[str, np.ndarray]:
    """The formula's parameters and the network of one table, without the width of the interval."""
    rng = np.random.default_rng(seed)
    parameters = fit_parameters(t)
    x, log_formula, _ = inputs(t, parameters)
    y = np.clip(np.log(t.seconds) - log_formula, -1.5, 1.5)
    teacher_estimate = teacher(x, y)
    added = unmeasured(t, extra, rng)
    xm, log_more, _ = inputs(added, parameters)
    sizes = (np.append(getattr(t, a), getattr(added, a)) for a in "mnk")
    all_rows = sp.Table(t.sku, t.dtype, t.clock, *sizes, np.ones(1))
    larger, log_larger, _ = inputs(enlarged(all_rows, rng), parameters)
    rise = log_larger - np.append(log_formula, log_more)
    targets = np.append(y, teacher_estimate(xm))
    return student(np.vstack([x, xm]), targets, larger, rise, seed, **options) | {"numbers": parameters}


def log_time(t: sp.Table, fitted: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The logarithms of the estimated time and of the formula's time, and the region, by the fit of a table."""
    arrays = {f"{name}_0": value for name, value in fitted.items() if name != "numbers"}
    x, log_formula, region = inputs(t, fitted["numbers"])
    return log_formula + learned.Network(arrays, 0)(x), log_formula, region


def pack(sku: str, fitted: dict[tuple[str, str], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of one device in the package's format, from the fits of its tables by (dtype, clock)."""
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
    return out


def quantiles(score: np.ndarray, region: np.ndarray, level: float = 0.91) -> np.ndarray:
    """The quantile of the scores in each region, or of all scores if the region has under 100."""
    whole = np.quantile(score, level)
    picked = [score[region == r] for r in range(learned.REGIONS)]
    return np.array([np.quantile(v, level) if len(v) >= 100 else whole for v in picked])


class CrossValidation:
    """Estimates for rows that were left out of the fit. A fold has all rows of an (n, k)."""

    def __init__(self, t: sp.Table, folds: int, **options: float) -> None:
        self.t, self.fold = t, sp.shape_fold(t.n, t.k, folds)
        self.log_time, self.log_formula = np.full(len(t), np.nan), np.full(len(t), np.nan)
        self.region, decreases = np.zeros(len(t), dtype=int), []
        for f in range(folds):
            rows = np.flatnonzero(self.fold == f)
            fitted = fit_table(t.take(np.flatnonzero(self.fold != f)), seed=f, **options)
            part = t.take(rows)
            self.log_time[rows], self.log_formula[rows], self.region[rows] = log_time(part, fitted)
            larger = enlarged(part, np.random.default_rng(f))
            decreases.append(self.log_time[rows] - log_time(larger, fitted)[0])
        self.decreases = np.concatenate(decreases)

    @property
    def score(self) -> np.ndarray:
        return np.abs(np.log(self.t.seconds) - self.log_time)

    def metrics(self) -> dict[str, float]:
        """Errors, and the coverage of intervals whose width comes from the other folds.

        ``non_monotone`` is the share of GEMMs whose enlarged form has an estimated time over 1% shorter, and
        ``largest_decrease`` the largest such difference.
        """
        width = np.zeros(len(self.t))
        for f in np.unique(self.fold):
            others = self.fold != f
            width[~others] = quantiles(self.score[others], self.region[others])[self.region[~others]]
        value, seconds = np.exp(self.log_time), self.t.seconds
        coverage, half = sp.interval_metrics(seconds, value, value * np.exp(-width), value * np.exp(width))
        formula = float(np.mean(np.abs(np.exp(self.log_formula) / seconds - 1.0)))
        figures = sp.metrics(seconds, value) | {"coverage": coverage, "half_width": half, "formula": formula}
        figures["non_monotone"] = float(np.mean(self.decreases > 0.01))
        return figures | {"largest_decrease": float(np.expm1(self.decreases.max()))}


def catalogue_values(t: sp.Table, parameters: np.ndarray) -> dict[str, float]:
    """The formula's parameters in the catalogue's units.

    Latencies are in clock cycles, and the cache's bandwidth is relative to the peak of its unit.
    """
    s, x = t.sheet, dict(zip(learned.NAMES, parameters.tolist(), strict=True))
    out = {
        f"gemm_{name}": value for name, value in x.items() if not name.endswith("_s") and name != "l2_bytes_per_clock"
    }
    for name in ("floor", "wave", "k_step", "split"):
        out[f"gemm_{name}_clocks"] = x[f"{name}_s"] * s.clock
    out["gemm_l2_bytes_per_flop"] = x["l2_bytes_per_clock"] * s.clock / (s.peak["bfloat16"] / s.units)
    return out


def run_ship(data: dict[tuple[str, str, str], sp.Table], skus: Sequence[str]) -> None:
    """Write every device's calibration. Its intervals and the reported errors come from cross-validation."""
    for sku in skus or dict.fromkeys(key[0] for key in data):
        fitted, values, report = {}, {}, {}
        for key, t in data.items():
            if key[0] != sku:
                continue
            began = time.perf_counter()
            main = t.dtype == "bfloat16" and t.clock == "burst"
            options: dict[str, int] = {} if main else {"hidden": 56, "ramps": 4}
            if main and len(t) < FEW_ROWS:
                options = FOR_FEW_ROWS
            validation = CrossValidation(t, 10 if main else 4, **options)
            report[f"{t.dtype}/{t.clock}"] = figures = validation.metrics()
            width = quantiles(validation.score, validation.region).astype(np.float32)
            table = fit_table(t, **options) | {"width": width}
            fitted[t.dtype, t.clock] = table
            name = t.dtype + ("_sustained" if t.clock == "sustained" else "")
            for parameter, value in catalogue_values(t, table["numbers"]).items():
                values[f"{parameter}.{name}"] = value
            shown = {name: round(value, 4) for name, value in figures.items()}
            print(sku, t.dtype, t.clock, len(t), json.dumps(shown), f"{time.perf_counter() - began:.0f} s", flush=True)
        rows = sum(len(t) for key, t in data.items() if key[0] == sku)
        first = report["bfloat16/burst"]
        others = ", ".join(f"{name} {100 * figures['mape']:.1f}%" for name, figures in report.items())
        note = f"cross-validation errors: {others}"
        fit = Fit("gemm", rows, first["mape"], first["coverage"], first["half_width"], "all shapes of one (n, k)", note)
        device = Catalogue().device(sku, calibrated=False)
        path = CALIBRATION / f"{sku}.yaml"
        update_overlay(path, device, "gemm", SOURCE, values, fit=fit, arrays=pack(sku, fitted))


def run_cross_validation(data: dict[tuple[str, str, str], sp.Table], folds: int) -> None:
    """Print the cross-validation errors of the four devices in bfloat16 bursts."""
    means = []
    for sku in sp.FOUR:
        figures = CrossValidation(data[sku, "bfloat16", "burst"], folds).metrics()
        means.append(figures["mape"])
        print(sku, json.dumps({name: round(value, 4) for name, value in figures.items()}), flush=True)
    print(f"mean of four devices: {np.mean(means):.2%}")


HEADER = """# GEMM: shapes left out of the fit

Generated by `benchmarks/accuracy/fit_gemm.py` from ai-dynamo/aiconfigurator@095f58a (Apache-2.0). Each row of the table is a
cross-validation: the rows of one (n, k), with all their m, are in the same fold. There are ten folds for bfloat16 in bursts,
and four for the other tables. Every step of the fit is repeated in each fold.

- `roofline`, `three parameters`, `formula`, `model`: MAPE of the estimated duration. `roofline` uses datasheet values only.
  `three parameters` is a fitted launch time, compute efficiency and memory efficiency (five folds). `formula` is the model's
  formula with its fitted parameters (15, or 16 where the shortest time is a host's), without the learned residual. `model` is the shipped model.
- `median`, `p90`: median and 90th percentile of the absolute percentage error of the model. `log bias`: median of
  ln(estimated / measured). `under 10 us`: MAPE of the measurements under 10 us ("–" if there are none).
- `coverage`: interval coverage of the 90% interval, whose width comes from the other folds. `half-width`: median half-width of that
  interval, relative to the estimate.
- `non-monotone`: each GEMM is compared with one that is larger in m, n or k. The share of pairs in which the larger one has an
  estimated duration over 1% shorter, and the largest such difference.

Noise floor: two sets of measurements of one device, with consecutive versions of one framework, differ by 2 to 4.4%.

The structure of the model (terms, inputs, width of the network) was chosen on the four bfloat16 tables, in part on these same
folds, so the errors on new shapes will be slightly larger. The fp8_block measurements of H100, L40S and B200 include a host floor of
56 to 285 us, and those of Arc Pro B60 one of 27 us. The fitted parameter `floor_s` of the formula contains this floor.

| device | type, clock | rows | roofline | three parameters | formula | **model** | median | p90 | log bias | under 10 us | coverage | half-width | non-monotone |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def run_table(data: dict[tuple[str, str, str], sp.Table], out: Path, logs: Sequence[str]) -> None:
    """Write the page from the lines that ``ship`` printed; tables that no log has keep the row that the page has.

    The baselines are computed here, the three parameters with five folds.
    """
    shown = (
        [line for line in out.read_text(encoding="utf-8").splitlines() if line.startswith("|")] if out.exists() else []
    )
    lines = {tuple(line.split(" | ")[:2]): line for line in shown[2:]}
    for line in sorted(line for log in logs for line in Path(log).read_text().splitlines()):
        sku, dtype, clock, rows = line.split()[:4]
        r = json.loads(line[line.index("{") : line.rindex("}") + 1])
        t, three = data[sku, dtype, clock], np.empty(int(rows))
        for train, test in sp.folds_of([t], 5):
            three[test[0]] = sp.three_parameters(t.take(train[0]), t.take(test[0]))
        plain = [float(np.mean(np.abs(x / t.seconds - 1.0))) for x in (sp.roofline(t), three)]
        short = sp.percent(r["mape_short"])
        cells = [sku, f"{dtype}, {clock}", rows, *(f"{x:.1%}" for x in (*plain, r["formula"])), f"**{r['mape']:.2%}**"]
        cells += [f"{r['median']:.1%}", f"{r['p90']:.1%}", f"{r['log_bias']:+.3f}", short]
        cells += [f"{r['coverage']:.0%}", f"{r['half_width']:.0%}"]
        cells.append(f"{r['non_monotone']:.2%}, at most {r['largest_decrease']:.0%}")
        line = f"| {' | '.join(cells)} |"
        lines[tuple(line.split(" | ")[:2])] = line
    main_errors = [float(lines[f"| {sku}", "bfloat16, burst"].split("**")[1].rstrip("%")) for sku in sp.FOUR]
    mean = f"\nMean MAPE of A100, H100, L40S and B200 in bfloat16 bursts: **{np.mean(main_errors):.2f}%**.\n"
    out.write_text(HEADER + "\n".join(lines[key] for key in sorted(lines)) + "\n" + mean, encoding="utf-8")


def main() -> None:
    data = sp.read(Path(sys.argv[1]))
    if sys.argv[2] == "ship":
        run_ship(data, sys.argv[3:])
    elif sys.argv[2] == "table":
        run_table(data, Path(sys.argv[3]), sys.argv[4:])
    else:
        run_cross_validation(data, int(sys.argv[3]) if len(sys.argv) > 3 else 10)


if __name__ == "__main__":
    main()
