"""Attention on a device left out: from its datasheet and the other device's file, and after a few measurements.

    .venv/bin/python benchmarks/accuracy/attention_devices.py ../shared/truth [OUT.md]

As ``gemm_devices.py``: each device's calibration file is fitted to it alone, so ``--calibration none`` is a device left
out whole, and ``calibrate`` starts from there. Only shipped code is asked.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import numpy as np
from gemm_devices import calibrated_on
from split import interval_metrics, metrics

from windtunnel.core.csvfile import Table
from windtunnel.core.device import Device
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.optable import OpTable
from windtunnel_models.catalogue import Catalogue

COLUMNS = ("phase", "batch", "heads", "kv_heads", "head_dim", "kv_tokens", "dtype", "kv_dtype")
DEVICES = ("a100-sxm-80gb", "h100-sxm-80gb")
DRAWS = 3
HEADER = """# Attention on a device left out whole

Made by `benchmarks/accuracy/attention_devices.py`, on ai-dynamo/aiconfigurator@095f58a (Apache-2.0). No row: `--calibration none`,
so the datasheet and the one other device that was measured, which runs another family of kernels. After 100 rows: what
`windtunnel calibrate` makes of 100 rows of the device drawn at random, asked for all others; means of three draws, each with rows of
most head sets. Errors are absolute, relative to what was measured.

| device left out | rows fitted | rows of | error | median | p90 | bias | inside | half-width |
|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def read(folder: Path, sku: str) -> tuple[list[list[str]], np.ndarray]:
    """The device's rows as a table has them, and their seconds."""
    with gzip.open(folder / "attention.csv.gz", "rt", newline="") as file:
        mine = [row for row in csv.DictReader(file) if row["sku"] == sku]
    return [[row[name] for name in COLUMNS] for row in mine], np.array([float(row["latency_s"]) for row in mine])


def table_of(lines: list[list[str]]) -> OpTable:
    """The rows as `windtunnel calibrate` reads them."""
    return OpTable(OPERATIONS["attention"], Table("measurements.csv", COLUMNS, lines, range(2, len(lines) + 2)))


def asked(device: Device, lines: list[list[str]], seconds: np.ndarray) -> dict[str, dict[str, float]]:
    """Metrics of each phase and type of keys."""
    value, low, high = (np.empty(len(seconds)) for _ in range(3))
    for places, rows in table_of(lines).groups():
        cost = device.cost(rows)
        value[places], low[places], high[places] = cost.duration_s, cost.duration_low_s, cost.duration_high_s
    by_kind = {}
    for name in sorted({(line[0], line[7]) for line in lines}, reverse=True):
        i = np.array([(line[0], line[7]) == name for line in lines])
        inside, half = interval_metrics(seconds[i], value[i], low[i], high[i])
        by_kind[f"{name[0]}, {name[1]} keys"] = metrics(seconds[i], value[i]) | {"inside": inside, "half_width": half}
    return by_kind


def main() -> None:
    known, out = Catalogue(), []
    for sku in DEVICES:
        lines, seconds = read(Path(sys.argv[1]), sku)
        results = [(0, asked(known.device(sku, calibrated=False), lines, seconds))]
        draws = []
        for draw in range(DRAWS):
            drawn = np.random.default_rng(draw).choice(len(lines), 100, replace=False)
            rest = np.setdiff1d(np.arange(len(lines)), drawn)
            fitted, _ = calibrated_on(known, sku, table_of([lines[i] for i in drawn]), seconds[drawn])
            draws.append(asked(fitted, [lines[i] for i in rest], seconds[rest]))
        results.append((100, {k: {m: float(np.mean([d[k][m] for d in draws])) for m in draws[0][k]} for k in draws[0]}))
        for count, by_kind in results:
            for name, r in by_kind.items():
                cells = [sku, str(count), name, f"**{r['mape']:.1%}**", f"{r['median']:.1%}", f"{r['p90']:.1%}"]
                cells += [f"{r['bias']:+.3f}", f"{r['inside']:.0%}", f"{r['half_width']:.0%}"]
                out.append(f"| {' | '.join(cells)} |")
                print(out[-1], flush=True)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(HEADER + "\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
