"""What the fits of experts and of latent attention share: the fit of a family of kernels, its residual and its errors.

``Study`` says what differs between the two. A ``Table`` has the measurements of one device by one family of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.ops import Rows
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu.fused import NumberTable, Sheet
from windtunnel_models.kinds.gpu.local_residual import similarity
from windtunnel_models.kinds.gpu.serving import GEMM_SHARES
from windtunnel_models.learned.overlay import Fit
from windtunnel_models.learned.read import CALIBRATION
from windtunnel_models.learned.write import update_overlay

CENTRES = 300
"""Points that are kept for each family."""

TARGET = 0.92
"""Share of the rows left out that the 90% interval contains in cross-validation."""


class Table(Protocol):
    """The measurements of one device by one family of kernels: rows, log seconds and datasheet."""

    sku: str
    family: str
    sheet: Sheet
    rows: Rows
    y: np.ndarray

    def take(self, index: np.ndarray) -> Self:
        """Return some of the rows."""

    def formula(self, numbers: dict[str, float]) -> np.ndarray:
        """Return the logarithm of the formula's time."""


@dataclass(frozen=True)
class Study:
    """An operation whose kernels are fitted.

    Args:
        op: The operation.
        prefix: Of the names of its parameters.
        source: Of the measurements, for the calibration.
        numbers: The formula's numbers.
        high: The largest values of some of them.
        pull: Weight of the numbers' values before any measurement, over that of a row.
        evaluations: Evaluations of the residuals' slopes at most.
        place: Positions, regions and factors of rows for the residual.
        amplitude: Variance of the residual (logarithms).
        noise: Deviation of a measurement (logarithm).
    """

    op: str
    prefix: str
    source: str
    numbers: NumberTable
    high: dict[str, float]
    pull: float
    evaluations: int
    place: Callable[[Rows], tuple[np.ndarray, np.ndarray, np.ndarray]]
    amplitude: float
    noise: float

    def fit_numbers(self, t: Table) -> dict[str, float]:
        """The numbers of a family, pulled towards their values before any measurement.

        Large errors count linearly.
        """
        from scipy.optimize import least_squares

        names = tuple(self.numbers)
        start = np.log([self.numbers[name][0] for name in names])
        width = np.array([self.numbers[name][1] for name in names])
        high = np.log([self.high.get(name, 1e9) for name in names])

        def residual(x: np.ndarray) -> np.ndarray:
            error = t.formula(dict(zip(names, np.exp(x).tolist(), strict=True))) - t.y
            return np.r_[error, self.pull * (x - start) / width]

        with np.errstate(over="ignore"):  # far from the solution
            solved = least_squares(
                residual,
                start,
                bounds=(np.log(1e-12), high),
                loss="soft_l1",
                f_scale=0.05,
                max_nfev=self.evaluations,
                diff_step=1e-3,
            )
        return dict(zip(names, np.exp(solved.x).tolist(), strict=True))

    def fit_residual(self, t: Table, numbers: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """The centres of a Gaussian process, a subset of the rows, and their weights; outliers weigh less."""
        x, r = self.place(t.rows)[0], np.clip(t.y - t.formula(numbers), -0.5, 0.5)
        chosen = x[np.random.default_rng(0).permutation(len(x))[:CENTRES]].astype(np.float32).astype(float)
        inner = self.amplitude * similarity(chosen, chosen) + 1e-4 * self.amplitude * np.eye(len(chosen))
        outer = self.amplitude * similarity(x, chosen)
        weight = np.full(len(x), self.noise**-2)
        for _ in range(3):
            solved = np.linalg.solve(inner + outer.T @ (outer * weight[:, None]), outer.T @ (weight * r))
            weight = self.noise**-2 / np.maximum(1.0, np.abs(r - outer @ solved) / (2.0 * self.noise))
        return chosen.astype(np.float32), self.amplitude * solved

    def estimate(self, table: Table, folds: Iterable[np.ndarray], count: int | None = None) -> Held:
        """Estimates of the rows of each fold (a mask) by a fit to the others, of which ``count`` fit the numbers."""
        plain, whole, away = np.zeros((3, len(table.y)))
        for test in folds:
            train, mine = table.take(np.flatnonzero(~test)), table.take(np.flatnonzero(test))
            numbers = self.fit_numbers(thinned(train, count))
            centres, weights = self.fit_residual(train, numbers)
            near = similarity(self.place(mine.rows)[0], centres)
            plain[test] = mine.formula(numbers)
            whole[test], away[test] = plain[test] + near @ weights, 2.0 - near.max(1)
        return Held(plain, whole, away)

    def ship(
        self, sku: str, tables: Sequence[Table], arrays: dict[str, np.ndarray], fit: Fit, count: int | None = None
    ) -> None:
        """Write the calibration of a device from all its rows; ``arrays`` has what the residual needs besides."""
        device = Catalogue().device(sku)
        values: dict[str, float] = {}
        out: dict[str, np.ndarray] = {"families": np.array([t.family for t in tables]), **arrays}
        for i, t in enumerate(tables):
            numbers = self.fit_numbers(thinned(t, count))
            values |= {f"{self.prefix}_{name}.{t.family}": value for name, value in numbers.items()}
            for share in GEMM_SHARES.values():
                values[f"{self.prefix}_gemm_{share}.{t.family}"] = device.values[f"gemm_{share}.bfloat16"].value
            # Numbers as the file states them, so that the residual is that of the shipped formula.
            numbers = {name: float(f"{value:.6g}") for name, value in numbers.items()}
            out[f"centres_{i}"], weights = self.fit_residual(t, numbers)
            out[f"weights_{i}"] = weights.astype(np.float32)
        bare = Catalogue().device(sku, calibrated=False)
        update_overlay(CALIBRATION / f"{sku}.yaml", bare, self.op, self.source, values, fit=fit, arrays=out)
        print(sku, fit, arrays["width"].round(3).tolist())


@dataclass(frozen=True)
class Held:
    """Log estimates of rows left out of the fit, and the factor by which the interval grows away from the fit."""

    formula: np.ndarray
    model: np.ndarray
    away: np.ndarray


def thinned(table: Table, count: int | None) -> Table:
    """``count`` rows at random, or all."""
    return table if count is None else table.take(np.random.default_rng(0).permutation(len(table.y))[:count])


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


def roofline(t: Table) -> np.ndarray:
    """Logarithm of the longer of the operands over the specified bandwidth and the FLOPs over the peak."""
    op, choices, n = t.rows.op, t.rows.choices, t.rows.numbers
    moved, flops = op.operand_bytes(choices, n), op.flops(choices, n)
    return np.log(np.maximum(flops / t.sheet.peak, moved / t.sheet.bandwidth))


def without_own_rows(device: Device, tables: Sequence[Table]) -> list[str]:
    """The number of rows, and the errors of a device that was not calibrated to them."""
    more = {"dispatch": "device", "clock": "burst", "cache": "cold"}
    costs = [device.cost(replace(t.rows, choices={**t.rows.choices, **more})) for t in tables]
    y = np.concatenate([t.y for t in tables])
    seconds, low, high = (
        np.concatenate([getattr(cost, f"duration{end}_s") for cost in costs]) for end in ("", "_low", "_high")
    )
    inside = (y >= np.log(low)) & (y <= np.log(high))
    half = np.median((high - low) / 2.0 / seconds)
    return [str(len(y)), *cells(y, [np.log(seconds)], None), f"{inside.mean():.0%}", f"{half:.0%}"]
