"""Fits the model of expert layers to measurements, and computes its errors on shapes and devices left out of the fit.

    python benchmarks/accuracy/experts.py ../shared/truth [table OUT.md|ship]

A shape is (width, expert_width, experts, experts_per_token), with all its divisions among ranks. ``table`` leaves out
whole shapes, and each device in turn. ``ship`` writes the calibrations. The script needs the package's two source roots
on the path.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from windtunnel.core.ops import BYTES_PER_ELEMENT, OPERATIONS, Rows
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu.attention import similarity
from windtunnel_models.kinds.gpu.expert_formula import NUMBERS, Geometry, Sheet, geometry, total_s
from windtunnel_models.kinds.gpu.serving import DESIGNS, GEMM_SHARES, expert_families, place_experts
from windtunnel_models.learned.overlay import Fit
from windtunnel_models.learned.read import CALIBRATION
from windtunnel_models.learned.write import update_overlay

SOURCE = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), vLLM 0.24; fitted by benchmarks/accuracy/experts.py"
COLUMNS = ("tokens", "width", "expert_width", "experts", "experts_per_token", "tensor", "expert")
NAMES = tuple(NUMBERS)
HIGH = {"bandwidth": 0.97, "efficiency": 0.95, "rest": 1.0, "overlap": 20.0, "start": 6.0, "wide": 2.0}
DESIGN_OF = {"h100-sxm-80gb": "hopper", "b200-sxm-180gb": "blackwell"}

AMPLITUDE, NOISE, CENTRES = 0.02, 0.1, 300
"""Variance of the residual, deviation of a measurement (logarithms), and points that are kept for each family."""

TARGET = 0.92
"""Share of the rows left out that the 90% interval contains in cross-validation."""


@dataclass(frozen=True)
class Table:
    """The measurements of one device by one family of kernels: rows, log seconds, datasheet and features."""

    sku: str
    dtype: str
    family: str
    sheet: Sheet
    rows: Rows
    y: np.ndarray
    g: Geometry

    def take(self, index: np.ndarray) -> Table:
        numbers = {name: values[index] for name, values in self.rows.numbers.items()}
        return replace(self, rows=replace(self.rows, numbers=numbers), y=self.y[index], g=self.g.take(index))

    def shapes(self) -> np.ndarray:
        """The shape of each row, as text."""
        n = self.rows.numbers
        names = ("width", "expert_width", "experts", "experts_per_token")
        return np.array(["/".join(f"{v:.0f}" for v in row) for row in zip(*(n[k] for k in names), strict=True)])

    def formula(self, numbers: dict[str, float]) -> np.ndarray:
        """The logarithm of the formula's time."""
        return np.log(total_s(self.g, self.sheet, numbers))


def sheet_of(sku: str, dtype: str) -> Sheet:
    values = Catalogue().device(sku, calibrated=False).values
    key = "fp8" if dtype == "fp8_block" else dtype
    paths = ("compute_units", "boost_clock_hz", "memory_bandwidth_bytes_per_s", f"matrix_flops_per_s.{key}")
    return Sheet(*(values[path].value for path in paths))


def read(folder: Path) -> list[Table]:
    """The rows of ``experts.csv.gz`` by device and family of kernels."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    with gzip.open(folder / "experts.csv.gz", "rt", newline="") as file:
        for line in csv.DictReader(file):
            groups.setdefault((line["sku"], line["dtype"]), []).append(line)
    out = []
    for (sku, dtype), lines in sorted(groups.items()):
        numbers = {name: np.array([float(line[name]) for line in lines]) for name in COLUMNS}
        named = [line["distribution"] for line in lines]
        numbers["skew"] = np.array([0.0 if name == "balanced" else float(name.rpartition("_")[2]) for name in named])
        rows = Rows(OPERATIONS["moe"], {"dtype": dtype}, numbers)
        y = np.log([float(line["latency_s"]) for line in lines])
        table = Table(sku, dtype, "", sheet_of(sku, dtype), rows, y, geometry(rows, BYTES_PER_ELEMENT[dtype]))
        families = expert_families(DESIGN_OF[sku], rows)
        for family in sorted(set(families.tolist())):
            kernels = {lines[i]["kernel"] for i in np.flatnonzero(families == family)}
            if not all(family.partition("_")[0] in kernel for kernel in kernels):
                raise ValueError(f"{family} on {sku} was measured with {kernels}")
            out.append(replace(table.take(np.flatnonzero(families == family)), family=family))
    return out


def fit_numbers(table: Table, count: int = 2000) -> dict[str, float]:
    """The numbers of a family, pulled towards their values before any measurement. Large errors count linearly."""
    from scipy.optimize import least_squares

    t = table.take(np.random.default_rng(0).permutation(len(table.y))[:count])
    start = np.log([NUMBERS[name][0] for name in NAMES])
    width = np.array([NUMBERS[name][1] for name in NAMES])
    high = np.log([HIGH.get(name, 1e9) for name in NAMES])

    def residual(x: np.ndarray) -> np.ndarray:
        return np.r_[t.formula(dict(zip(NAMES, np.exp(x).tolist(), strict=True))) - t.y, 0.22 * (x - start) / width]

    with np.errstate(over="ignore"):  # far from the solution
        solved = least_squares(
            residual, start, bounds=(np.log(1e-12), high), loss="soft_l1", f_scale=0.05, max_nfev=40, diff_step=1e-3
        )
    return dict(zip(NAMES, np.exp(solved.x).tolist(), strict=True))


def fit_residual(
    x: np.ndarray, r: np.ndarray, amplitude: float = AMPLITUDE, noise: float = NOISE
) -> tuple[np.ndarray, np.ndarray]:
    """The centres of a Gaussian process, a subset of the rows, and their weights. Outliers have a reduced weight."""
    r = np.clip(r, -0.5, 0.5)
    chosen = x[np.random.default_rng(0).permutation(len(x))[:CENTRES]].astype(np.float32).astype(float)
    inner = amplitude * similarity(chosen, chosen) + 1e-4 * amplitude * np.eye(len(chosen))
    outer = amplitude * similarity(x, chosen)
    weight = np.full(len(x), noise**-2)
    for _ in range(3):
        solved = np.linalg.solve(inner + outer.T @ (outer * weight[:, None]), outer.T @ (weight * r))
        weight = noise**-2 / np.maximum(1.0, np.abs(r - outer @ solved) / (2.0 * noise))
    return chosen.astype(np.float32), amplitude * solved


@dataclass(frozen=True)
class Held:
    """Log estimates of rows left out of the fit, and the factor by which the interval grows away from the fit."""

    formula: np.ndarray
    model: np.ndarray
    away: np.ndarray


def cross_validate(table: Table) -> Held:
    """Estimates of each shape by a fit to the others; a family with one shape leaves out divisions among ranks."""
    groups = table.shapes()
    if len(set(groups)) == 1:
        n = table.rows.numbers
        groups = np.array([f"{t:.0f}/{e:.0f}" for t, e in zip(n["tensor"], n["expert"], strict=True)])
    plain, whole, away = np.zeros((3, len(table.y)))
    for group in sorted(set(groups.tolist())):
        test = groups == group
        train, mine = table.take(np.flatnonzero(~test)), table.take(np.flatnonzero(test))
        numbers = fit_numbers(train)
        centres, weights = fit_residual(place_experts(train.rows)[0], train.y - train.formula(numbers))
        near = similarity(place_experts(mine.rows)[0], centres)
        plain[test] = mine.formula(numbers)
        whole[test], away[test] = plain[test] + near @ weights, 2.0 - near.max(1)
    return Held(plain, whole, away)


def half_widths(error: np.ndarray, away: np.ndarray, region: np.ndarray, target: float = TARGET) -> np.ndarray:
    """The half-width of each region with which a share ``target`` of the log errors is inside."""
    score = np.abs(error) / away
    every = np.quantile(score, target)
    return np.array([np.quantile(score[region == k], target) if (region == k).sum() > 30 else every for k in (0, 1)])


def nested_widths(error: np.ndarray, away: np.ndarray, region: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The half-width of each row, with the region's width from the rows of other groups."""
    out = np.zeros(len(error))
    for group in sorted(set(groups.tolist())):
        mine = groups == group
        others = mine if mine.all() else ~mine
        out[mine] = half_widths(error[others], away[others], region[others])[region[mine]] * away[mine]
    return out


def cells(y: np.ndarray, estimates: Sequence[np.ndarray], width: np.ndarray | None) -> list[str]:
    """MAPE of each estimate, then median, 90th percentile, bias, coverage and half-width of the last one."""
    errors = [np.abs(np.exp(e - y) - 1.0) for e in estimates]
    out = [f"{error.mean():.1%}" for error in errors]
    out[-1] = f"**{out[-1]}**"
    out += [f"{np.median(errors[-1]):.1%}", f"{np.quantile(errors[-1], 0.9):.1%}"]
    out.append(f"{np.median(estimates[-1] - y):+.3f}")
    if width is not None:
        covered = np.abs(estimates[-1] - y) <= width
        out += [f"{covered.mean():.0%}", f"{np.median(np.sinh(width)):.0%}"]
    return out


def roofline(table: Table) -> np.ndarray:
    """Logarithm of the longer of weights and activations over the specified bandwidth and FLOPs over the peak."""
    n, choices = table.rows.numbers, {"dtype": table.dtype}
    op = OPERATIONS["moe"]
    moved, flops = op.operand_bytes(choices, n), op.flops(choices, n)
    return np.log(np.maximum(flops / table.sheet.peak, moved / table.sheet.bandwidth))


def ship(tables: list[Table], held: list[Held]) -> None:
    """Write the calibration of each device from all its rows. Half-widths and errors come from cross-validation."""
    for sku, kernels in DESIGN_OF.items():
        mine = [(t, h) for t, h in zip(tables, held, strict=True) if t.sku == sku]
        device = Catalogue().device(sku)
        values: dict[str, float] = {}
        arrays: dict[str, np.ndarray] = {"families": np.array([t.family for t, _ in mine])}
        arrays["design"] = np.array(DESIGNS.index(kernels))
        widths, errors, inside, half = [], [], [], []
        for i, (t, h) in enumerate(mine):
            numbers = fit_numbers(t)
            values |= {f"moe_{name}.{t.family}": value for name, value in numbers.items()}
            for share in GEMM_SHARES.values():
                values[f"moe_gemm_{share}.{t.family}"] = device.values[f"gemm_{share}.bfloat16"].value
            # Numbers as the file states them, so that the residual is that of the shipped formula.
            numbers = {name: float(f"{value:.6g}") for name, value in numbers.items()}
            x, region, _ = place_experts(t.rows)
            arrays[f"centres_{i}"], weights = fit_residual(x, t.y - t.formula(numbers))
            arrays[f"weights_{i}"] = weights.astype(np.float32)
            widths.append(half_widths(h.model - t.y, h.away, region))
            nested = nested_widths(h.model - t.y, h.away, region, t.shapes())
            errors.append(np.abs(np.exp(h.model - t.y) - 1.0))
            inside.append(np.abs(h.model - t.y) <= nested)
            half.append(np.sinh(nested))
        arrays["width"] = np.array(widths)
        each = ", ".join(f"{t.family} {e.mean():.1%}" for (t, _), e in zip(mine, errors, strict=True))
        fit = Fit(
            "moe",
            sum(len(t.y) for t, _ in mine),
            float(np.concatenate(errors).mean()),
            float(np.concatenate(inside).mean()),
            float(np.median(np.concatenate(half))),
            "whole shapes",
            f"cross-validation errors: {each}",
        )
        bare = Catalogue().device(sku, calibrated=False)
        update_overlay(CALIBRATION / f"{sku}.yaml", bare, "moe", SOURCE, values, fit=fit, arrays=arrays)
        print(sku, fit)


HEADER = """# Experts: shapes left out of the fit

Generated by `benchmarks/accuracy/experts.py` from ai-dynamo/aiconfigurator@095f58a (Apache-2.0), vLLM 0.24. A shape is (width,
expert_width, experts, experts_per_token); all its rows, with every division among ranks, are in the same fold. H100 and B200
have four to six shapes a format. Families with one shape (`cutlass_bfloat16`, `cutlass_nvfp4` on B200) leave out divisions
among ranks instead, and are not in the rows `all`.

- `roofline`, `formula`, `model`: MAPE. `roofline` uses datasheet values only, `formula` the fitted numbers without the residual.
- `median`, `p90`: of the absolute percentage error of the model. `bias`: median of ln(estimated / measured).
- `coverage`: of the 90% interval, whose width comes from other shapes. `half-width`: its median half-width over the estimate.

Each point was measured once, by the kernels that vLLM selects; that measurement is the latency of the row, spikes included.
The form of the formula and the scales of the residual were chosen while the errors of all shapes were visible. With 4 to 6 shapes
the errors of a further shape may be larger.

| device | family | load | rows | roofline | formula | **model** | median | p90 | bias | coverage | half-width |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def write_table(tables: list[Table], held: list[Held], out: Path) -> None:
    lines = []
    for sku in DESIGN_OF:
        gathered: list[list[np.ndarray]] = []
        for t, h in zip(tables, held, strict=True):
            if t.sku != sku:
                continue
            _, region, _ = place_experts(t.rows)
            width = nested_widths(h.model - t.y, h.away, region, t.shapes())
            parts = [t.y, roofline(t), h.formula, h.model, width, t.rows.numbers["skew"]]
            if len(set(t.shapes().tolist())) > 1:
                gathered.append(parts)
            for name, index in (("balanced", parts[5] == 0.0), ("skewed", parts[5] > 0.0)):
                y, *estimates, w, _ = (part[index] for part in parts)
                lines.append(f"| {sku} | {t.family} | {name} | {index.sum()} | {' | '.join(cells(y, estimates, w))} |")
        y, *estimates, w, _ = (np.concatenate(part) for part in zip(*gathered, strict=True))
        lines.append(f"| {sku} | all | all | {len(y)} | {' | '.join(cells(y, estimates, w))} |")
    out.write_text(HEADER + "\n".join(lines) + "\n" + left_out(tables), encoding="utf-8")


LEFT_OUT = """
## Devices left out of the fit

Each device estimated from its datasheet and the numbers of the other one (`--calibration none`), which has other
kernels.

| device | format | rows | **MAPE** | median | p90 | bias | coverage | half-width |
|---|---|---|---|---|---|---|---|---|
"""


def left_out(tables: list[Table]) -> str:
    """The errors of each device without its own measurements, as a section of the report."""
    lines = []
    for sku in DESIGN_OF:
        device = Catalogue().device(sku, calibrated=False)
        for dtype in sorted({t.dtype for t in tables if t.sku == sku}):
            mine = [t for t in tables if t.sku == sku and t.dtype == dtype]
            choices = {"dtype": dtype, "dispatch": "device", "clock": "burst", "cache": "cold"}
            costs = [device.cost(replace(t.rows, choices=choices)) for t in mine]
            y = np.concatenate([t.y for t in mine])
            estimate = np.log(np.concatenate([c.duration_s for c in costs]))
            low, high = (np.concatenate([getattr(c, f"duration_{e}_s") for c in costs]) for e in ("low", "high"))
            inside = (np.exp(y) >= low) & (np.exp(y) <= high)
            half = np.median((high - low) / 2.0 / np.exp(estimate))
            found = [*cells(y, [estimate], None), f"{inside.mean():.0%}", f"{half:.0%}"]
            lines.append(f"| {sku} | {dtype} | {len(y)} | {' | '.join(found)} |")
    return LEFT_OUT + "\n".join(lines) + "\n"


def main() -> None:
    tables = read(Path(sys.argv[1]))
    held = [cross_validate(table) for table in tables]
    what = sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "ship":
        ship(tables, held)
    elif what == "table":
        write_table(tables, held, Path(sys.argv[3]))
    else:
        for t, h in zip(tables, held, strict=True):
            print(t.sku, t.family, len(t.y), *cells(t.y, [roofline(t), h.formula, h.model], None), flush=True)


if __name__ == "__main__":
    main()
