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
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fused_kernels import TARGET, Held, Study, cells, roofline, without_own_rows

from windtunnel.core.ops import BYTES_PER_ELEMENT, OPERATIONS, Rows
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds._routing import Geometry, geometry
from windtunnel_models.kinds.gpu import fused
from windtunnel_models.kinds.gpu.expert_formula import NUMBERS, Sheet, total_s
from windtunnel_models.kinds.gpu.serving import DESIGNS, expert_families, place_experts
from windtunnel_models.learned.overlay import Fit

SOURCE = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), vLLM 0.24; fitted by benchmarks/accuracy/experts.py"
COLUMNS = ("tokens", "width", "expert_width", "experts", "experts_per_token", "tensor", "expert")
DESIGN_OF = {"h100-sxm-80gb": "hopper", "b200-sxm-180gb": "blackwell"}

STUDY = Study(
    op="moe",
    prefix="moe",
    source=SOURCE,
    numbers=NUMBERS,
    high={"bandwidth": 0.97, "efficiency": 0.95, "rest": 1.0, "overlap": 20.0, "start": 6.0, "wide": 2.0},
    pull=0.22,
    evaluations=40,
    place=place_experts,
    amplitude=0.02,
    noise=0.1,
)
COUNT = 2000
"""Rows of a family that its numbers are fitted to."""


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
        return replace(self, rows=replace(self.rows, numbers=numbers), y=self.y[index], g=fused.take(self.g, index))

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
    paths = ("compute_units", "memory_bandwidth_bytes_per_s", f"matrix_flops_per_s.{key}", "boost_clock_hz")
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


def cross_validate(table: Table) -> Held:
    """Estimates of each shape by a fit to the others; a family with one shape leaves out divisions among ranks."""
    groups = table.shapes()
    if len(set(groups)) == 1:
        n = table.rows.numbers
        groups = np.array([f"{t:.0f}/{e:.0f}" for t, e in zip(n["tensor"], n["expert"], strict=True)])
    return STUDY.estimate(table, [groups == group for group in sorted(set(groups.tolist()))], COUNT)


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


def ship(tables: list[Table], held: list[Held]) -> None:
    """Write the calibration of each device from all its rows. Half-widths and errors come from cross-validation."""
    for sku, kernels in DESIGN_OF.items():
        mine = [(t, h) for t, h in zip(tables, held, strict=True) if t.sku == sku]
        widths, errors, inside, half = [], [], [], []
        for t, h in mine:
            _, region, _ = place_experts(t.rows)
            widths.append(half_widths(h.model - t.y, h.away, region))
            nested = nested_widths(h.model - t.y, h.away, region, t.shapes())
            errors.append(np.abs(np.exp(h.model - t.y) - 1.0))
            inside.append(np.abs(h.model - t.y) <= nested)
            half.append(np.sinh(nested))
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
        arrays = {"design": np.array(DESIGNS.index(kernels)), "width": np.array(widths)}
        STUDY.ship(sku, [t for t, _ in mine], arrays, fit, COUNT)


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
            lines.append(f"| {sku} | {dtype} | {' | '.join(without_own_rows(device, mine))} |")
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
