"""Fits the model of latent attention to measurements, and computes its errors on what was left out of the fit.

    python benchmarks/accuracy/latent_attention.py ../shared/truth [table OUT.md|ship]

``table`` leaves out the heads of a rank, lengths and batches, and each device in turn. ``ship`` writes the
calibrations. The script needs the package's two source roots on the path.
"""

from __future__ import annotations

import csv
import gzip
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fused_kernels import TARGET, Held, Study, cells, roofline, without_own_rows

from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.kinds.gpu.fused import Sheet
from windtunnel_models.kinds.gpu.latent_formula import NUMBERS, total_s
from windtunnel_models.kinds.gpu.serving import place_latent
from windtunnel_models.learned.overlay import Fit

SOURCE = (
    "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), TensorRT-LLM 1.3; fitted by benchmarks/accuracy/latent_attention.py"
)
DEVICES = ("h100-sxm-80gb", "b200-sxm-180gb")
HEADS_TARGET = 0.87
"""Share of the rows of heads left out that the 90% interval contains in cross-validation."""

STUDY = Study(
    op="latent_attention",
    prefix="latent",
    source=SOURCE,
    numbers=NUMBERS,
    high={"bandwidth": 0.97, "overlap": 20.0, "start": 6.0},
    pull=0.17,
    evaluations=60,
    place=place_latent,
    amplitude=0.03,
    noise=0.06,
)

SPLITS = {"heads": "heads", "kv_tokens": "lengths", "batch": "batches"}


@dataclass(frozen=True)
class Table:
    """The measurements of one device in one phase and format: rows and log seconds."""

    sku: str
    family: str
    sheet: Sheet
    rows: Rows
    y: np.ndarray

    def take(self, index: np.ndarray) -> Table:
        numbers = {name: values[index] for name, values in self.rows.numbers.items()}
        return replace(self, rows=replace(self.rows, numbers=numbers), y=self.y[index])

    def formula(self, x: dict[str, float]) -> np.ndarray:
        """The logarithm of the formula's time."""
        return np.log(total_s(self.rows.choices, self.rows.numbers, self.sheet, x))


def read(folder: Path) -> list[Table]:
    """The rows of ``latent_attention.csv.gz`` by device, phase and format of the cache."""
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    with gzip.open(folder / "latent_attention.csv.gz", "rt", newline="") as file:
        for line in csv.DictReader(file):
            groups.setdefault((line["sku"], line["phase"], line["kv_dtype"]), []).append(line)
    out = []
    names = ("batch", "heads", "kv_rank", "rope_dim", "query_tokens", "kv_tokens")
    paths = ("compute_units", "memory_bandwidth_bytes_per_s", "matrix_flops_per_s.bfloat16")
    for (sku, phase, kv), lines in sorted(groups.items()):
        values = Catalogue().device(sku, calibrated=False).values
        numbers = {name: np.array([float(line[name]) for line in lines]) for name in names}
        rows = Rows(OPERATIONS["latent_attention"], {"phase": phase, "dtype": "bfloat16", "kv_dtype": kv}, numbers)
        y = np.log([float(line["latency_s"]) for line in lines])
        out.append(Table(sku, f"{phase}_{kv}", Sheet(*(values[path].value for path in paths)), rows, y))
    return out


def cross_validate(table: Table, by: str) -> Held:
    """Estimates of rows whose ``by`` was left out: each of the two numbers of heads, else every fourth value."""
    values = sorted(set(table.rows.numbers[by].tolist()))
    folds = [[v] for v in values] if by == "heads" else [values[i::4] for i in range(4)]
    return STUDY.estimate(table, [np.isin(table.rows.numbers[by], fold) for fold in folds])


def widths_of(table: Table, held: dict[str, Held]) -> np.ndarray:
    """The half-widths of measured heads, from lengths left out, and of others, from heads left out.

    Heads left out are extrapolated by a factor of 8 from a single number, and others lie between two measured ones, so
    a smaller share of the former is enough.
    """

    def width(by: str, target: float) -> float:
        return float(np.quantile(np.abs(held[by].model - table.y) / held[by].away, target))

    return np.array([width("kv_tokens", TARGET), max(width("heads", HEADS_TARGET), width("kv_tokens", TARGET))])


def ship(tables: list[Table], held: list[dict[str, Held]]) -> None:
    """Write the calibration of each device from all its rows. Half-widths and errors come from cross-validation."""
    for sku in DEVICES:
        mine = [(t, h) for t, h in zip(tables, held, strict=True) if t.sku == sku]
        width = np.array([widths_of(t, h) for t, h in mine])
        errors = {by: [np.abs(np.exp(h[by].model - t.y) - 1.0) for t, h in mine] for by in SPLITS}
        inside, half = [], []
        for (t, h), (lengths, _) in zip(mine, width, strict=True):
            inside.append(np.abs(h["kv_tokens"].model - t.y) <= lengths * h["kv_tokens"].away)
            half.append(np.sinh(lengths * h["kv_tokens"].away))
        each = ", ".join(f"{SPLITS[by]} {np.concatenate(e).mean():.1%}" for by, e in errors.items())
        fit = Fit(
            "latent_attention",
            sum(len(t.y) for t, _ in mine),
            float(np.concatenate(errors["heads"]).mean()),
            float(np.concatenate(inside).mean()),
            float(np.median(np.concatenate(half))),
            "one of two numbers of heads",
            f"cross-validation errors by what is left out: {each}; coverage of lengths left out",
        )
        STUDY.ship(sku, [t for t, _ in mine], {"width": width}, fit)


HEADER = """# Latent attention: heads, lengths and devices left out of the fit

Generated by `benchmarks/accuracy/latent_attention.py` from ai-dynamo/aiconfigurator@095f58a (Apache-2.0), TensorRT-LLM 1.3, with
16 and 128 heads of a rank. `left out`: `heads` estimates 16 heads from 128 and 128 from 16, a factor of eight away from the only
measured number; other heads lie between the two. `lengths` and `batches` leave out every fourth value of `kv_tokens` and `batch`.

- `roofline`, `formula`, `model`: MAPE. `roofline` uses datasheet values only, `formula` the fitted numbers without the residual.
- `median`, `p90`: of the absolute percentage error of the model. `bias`: median of ln(estimated / measured).
- `coverage`, `half-width`: of the 90% interval that rows of such heads or lengths get, without what each fold changes.

Times of B200 lie on a grid of 2.048 us, which is 10% to 20% of the shortest ones. Single rows are far from their neighbours (up
to 20 times); they are in these errors.

| device | rows of | left out | rows | roofline | formula | **model** | median | p90 | bias | coverage | half-width |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501

LEFT_OUT = """
## Devices left out of the fit

Each device estimated from its datasheet and the calibration of the other one (`--calibration none`).

| device | rows of | rows | **MAPE** | median | p90 | bias | coverage | half-width |
|---|---|---|---|---|---|---|---|---|
"""


def write_table(tables: list[Table], held: list[dict[str, Held]], out: Path) -> None:
    lines = []
    for sku in DEVICES:
        for by, name in SPLITS.items():
            gathered = []
            for t, h in zip(tables, held, strict=True):
                if t.sku != sku:
                    continue
                width = widths_of(t, h)[int(by == "heads")] * h[by].away
                parts = (t.y, roofline(t), h[by].formula, h[by].model, width)
                gathered.append(parts)
                y, *estimates, w = parts
                lines.append(f"| {sku} | {t.family} | {name} | {len(y)} | {' | '.join(cells(y, estimates, w))} |")
            y, *estimates, w = (np.concatenate(part) for part in zip(*gathered, strict=True))
            lines.append(f"| {sku} | all | {name} | {len(y)} | {' | '.join(cells(y, estimates, w))} |")
    lines += LEFT_OUT.rstrip("\n").split("\n")
    for sku in DEVICES:
        device = Catalogue().device(sku, calibrated=False)
        for t in (t for t in tables if t.sku == sku):
            lines.append(f"| {sku} | {t.family} | {' | '.join(without_own_rows(device, [t]))} |")
    out.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    tables = read(Path(sys.argv[1]))
    held = [{by: cross_validate(table, by) for by in SPLITS} for table in tables]
    what = sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "ship":
        ship(tables, held)
    elif what == "table":
        write_table(tables, held, Path(sys.argv[3]))
    else:
        for t, h in zip(tables, held, strict=True):
            for by, one in h.items():
                print(t.sku, t.family, by, len(t.y), *cells(t.y, [roofline(t), one.formula, one.model], None))


if __name__ == "__main__":
    main()
