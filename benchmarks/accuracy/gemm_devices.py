"""Matrix products on a device left out: from its datasheet and the other devices' files, and after a few measurements.

    .venv/bin/python benchmarks/accuracy/gemm_devices.py ../shared/truth [OUT.md]

Every device's calibration file is fitted to that device alone. So what the catalogue answers with
``--calibration none`` is a device left out whole, and ``calibrate`` starts from there: this asks the shipped code.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import split as sp

from windtunnel.core.csvfile import Table as CsvTable
from windtunnel.core.device import Device
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.optable import OpTable
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.learned.calibrate import Calibration, calibrate
from windtunnel_models.learned.read import read_overlay
from windtunnel_models.learned.write import overlay_data, overlay_text

DEVICES = (*sp.FOUR, "arc-pro-b60")
DRAWS = 3
MOST_ASKED = 4000


def rows_of(t: sp.Table) -> Rows:
    choices = {"dtype": t.dtype, "dispatch": "device", "clock": t.clock, "cache": "cold"}
    return Rows(OPERATIONS["gemm"], choices, {"m": t.m, "n": t.n, "k": t.k, "batch": np.ones(len(t))})


def as_table(t: sp.Table) -> OpTable:
    """The rows as `windtunnel calibrate` reads them."""
    lines = [
        [f"{m:.0f}", f"{n:.0f}", f"{k:.0f}", t.dtype, t.clock]
        for m, n, k in zip(t.m.tolist(), t.n.tolist(), t.k.tolist(), strict=True)
    ]
    table = CsvTable("measurements.csv", ("m", "n", "k", "dtype", "clock"), lines, list(range(2, len(t) + 2)))
    return OpTable(OPERATIONS["gemm"], table)


def judge(device: Device, t: sp.Table) -> dict[str, float]:
    cost = device.cost(rows_of(t))
    figures = sp.metrics(t.seconds, cost.duration_s)
    inside, half = sp.interval_metrics(t.seconds, cost.duration_s, cost.duration_low_s, cost.duration_high_s)
    return figures | {"inside": inside, "half_width": half}


def roofline(t: sp.Table) -> float:
    s = t.sheet
    size = sp.BYTES[t.dtype]
    moved = size * (t.m * t.k + t.n * t.k) + 2.0 * t.m * t.n
    return float(
        np.mean(np.abs(np.maximum(2.0 * t.m * t.n * t.k / s.peak[t.dtype], moved / s.bandwidth) / t.seconds - 1))
    )


def calibrated_on(catalogue: Catalogue, sku: str, table: OpTable, seconds: np.ndarray) -> tuple[Device, Calibration]:
    """The device with the overlay that a calibration on these rows writes, and the calibration."""
    calibration = calibrate(catalogue.device(sku, calibrated=False), table, seconds)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "overlay.yaml"
        path.write_text(overlay_text(overlay_data(calibration, "a draw", "")), encoding="utf-8")
        return catalogue.device(sku, calibration=read_overlay(path, sku, "gpu")), calibration


def after(catalogue: Catalogue, t: sp.Table, count: int, draw: int) -> dict[str, float]:
    """The device calibrated on ``count`` rows drawn at random, asked for others."""
    drawn = sp.few(count, t, draw)
    rest = np.setdiff1d(np.arange(len(t)), drawn)
    rest = np.random.default_rng(draw).choice(rest, min(MOST_ASKED, len(rest)), replace=False)
    few = t.take(drawn)
    began = time.perf_counter()
    device, calibration = calibrated_on(catalogue, t.sku, as_table(few), few.seconds)
    took = time.perf_counter() - began
    return judge(device, t.take(rest)) | {"seconds": took, "said": calibration.cross_validation_error}


def main() -> None:
    data, known = sp.read(Path(sys.argv[1])), Catalogue()
    lines = [
        "# Matrix products on a device left out whole",
        "",
        "Made by `benchmarks/accuracy/gemm_devices.py`: bfloat16, bursts, cold, of ai-dynamo/aiconfigurator@095f58a",
        "(Apache-2.0). No row: `--calibration none`, so the datasheet and the other devices' files. After N rows: what",
        "`windtunnel calibrate` makes of N rows drawn at random, asked for rows it did not see; means of three draws.",
        "Errors are absolute, relative to what was measured; `said` is what the calibration reported from its folds.",
        "",
        "| device left out | rows | error | median | p90 | bias | under 10 us | inside | half-width | said | fit, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for sku in DEVICES:
        t = data[sku, "bfloat16", "burst"]
        print(f"{sku}: datasheet roofline {roofline(t):.1%}", file=sys.stderr)
        results = [(0, judge(known.device(sku, calibrated=False), t))]
        for count in (20, 100, 500):
            draws = [after(known, t, count, draw) for draw in range(DRAWS)]
            results.append((count, {name: float(np.mean([e[name] for e in draws])) for name in draws[0]}))
        for count, r in results:
            shown = [f"**{r['mape']:.1%}**", f"{r['median']:.1%}", f"{r['p90']:.1%}", f"{r['bias']:+.3f}"]
            shown += [f"{r['mape_short']:.1%}", f"{r['inside']:.0%}", f"{r['half_width']:.0%}"]
            shown += [f"{r['said']:.1%}", f"{r['seconds']:.1f}"] if count else ["–", "–"]
            lines.append(f"| {sku} | {count} | {' | '.join(shown)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
