"""Fits the few numbers that all GPUs share, and says how far the model errs on shapes that were held back.

    .venv/bin/python benchmarks/accuracy/fit_gpu_kind.py ../shared/truth

One value of each number for every device: nothing here is fitted to a SKU. Whole shapes are held back: half of the
(n, k) pairs of GEMM, half of the (heads, kv_heads, head_dim) triples of attention. The printed range of a number is
what it would be if fitted to each device alone, and the printed factor is what goes into ``KIND.errors``.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.provenance import Provenance, Sourced
from windtunnel_models.catalogue import Catalogue

CATALOGUE = Catalogue()
Table = list[dict[str, str]]
Group = tuple[str, Rows, np.ndarray, np.ndarray]  # device, operations, measured seconds, whether held back


def read(path: Path) -> Table:
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        return list(csv.DictReader(file))


def held_back(*key: str) -> bool:
    """Half of the shapes, by a hash of their name, so that a rerun holds back the same."""
    return zlib.crc32("/".join(key).encode()) % 2 == 1


def rows_of(op: str, table: Table, context: Mapping[str, str], held: Callable[[dict[str, str]], bool]) -> Iterable[Any]:
    """The rows of ``table`` by their choices, as the model takes them."""
    operation = OPERATIONS[op]
    columns = operation.columns
    choices = [c.name for c in columns if c.kind == "choice" and c.name in table[0]]
    groups: dict[tuple[str, ...], Table] = {}
    for row in table:
        groups.setdefault(tuple(row[c] for c in choices), []).append(row)
    for key, members in groups.items():
        numbers = {
            c.name: np.array([float(r.get(c.name) or c.default) for r in members])
            for c in columns
            if c.kind != "choice"
        }
        rows = Rows(operation, {**dict(zip(choices, key, strict=True)), **context}, numbers)
        measured = np.array([float(r["latency_s"]) for r in members])
        yield rows, measured, np.array([held(r) for r in members])


def overlay(values: Mapping[str, float]) -> dict[str, Sourced]:
    return {name: Sourced(value, Provenance.PUBLISHED, "trial") for name, value in values.items()}


def log_error(group: Group, values: Mapping[str, float]) -> np.ndarray:
    """Logarithm of modelled over measured time, row by row."""
    device, rows, measured, _ = group
    cost = CATALOGUE.device(device, overlay=overlay(values), calibrated=False).cost(rows, intervals=False)
    return np.log(cost.duration_s / measured)


def fit(groups: list[Group], start: Mapping[str, float]) -> dict[str, float]:
    """The values of least mean absolute log error on what is not held back, every group weighing the same."""
    names = list(start)

    def loss(x: np.ndarray) -> float:
        values = {name: start[name] * float(np.exp(v)) for name, v in zip(names, x, strict=True)}
        return float(np.mean([np.mean(np.abs(log_error(g, values)[~g[3]])) for g in groups]))

    simplex = np.vstack([np.zeros(len(names)), 0.25 * np.eye(len(names))])
    options = {"xatol": 0.01, "fatol": 1e-4, "maxiter": 300, "initial_simplex": simplex}
    best = minimize(loss, simplex[0], method="Nelder-Mead", options=options)
    return {name: start[name] * float(np.exp(v)) for name, v in zip(names, best.x, strict=True)}


def thin(table: Table, most: int) -> Table:
    return table[:: max(1, len(table) // most)]


def report(title: str, groups: list[Group], start: Mapping[str, float], *, each: bool = True) -> None:
    values = fit(groups, start)
    print(f"\n{title}\n  one value for all: " + ", ".join(f"{k} {v:.4g}" for k, v in values.items()))
    pooled = []
    for group in groups:
        error = log_error(group, values)[group[3]]
        pooled.append(np.abs(error))
        label = f"{group[0]} {group[1].choices.get('dtype', '')} {group[1].choices.get('phase', '')}".strip()
        alone = ""
        device = CATALOGUE.device(group[0], calibrated=False)
        cost = device.cost(group[1])
        inside = (group[2] >= cost.duration_low_s) & (group[2] <= cost.duration_high_s)
        if each:
            own = fit([group], values)
            alone = "  alone: " + ", ".join(f"{k} {v:.4g}" for k, v in own.items())
            rest = log_error(group, own)[group[3]]
            alone += f" -> {np.mean(np.abs(np.expm1(rest))):.1%}, factor {np.exp(np.quantile(np.abs(rest), 0.9)):.2f}"
        print(
            f"  {label:34s} held back {len(error):6d}: MAPE {np.mean(np.abs(np.expm1(error))):6.1%}, "
            f"median {np.median(np.abs(np.expm1(error))):6.1%}, bias {np.median(error):+.3f}, "
            f"as shipped {np.mean(inside[group[3]]):.0%} inside the interval{alone}"
        )
    tails = [float(np.quantile(e, 0.9)) for e in pooled]
    print(f"  factor that holds 90%: mean: {np.exp(np.mean(tails)):.2f}; worst {np.exp(max(tails)):.2f}")


def gemm_groups(
    folder: Path, dtypes: Iterable[str], skus: Iterable[str] | None = None, most: int = 3000
) -> list[Group]:
    table = [r for r in read(folder / "gemm.csv.gz") if r["clock"] == "burst" and r["dtype"] in dtypes]
    found = []
    for sku in skus or sorted({r["sku"] for r in table}):
        mine = [r for r in table if r["sku"] == sku]
        context = {"dispatch": "device", "clock": "burst", "cache": "cold"}
        if not mine:
            continue
        for rows, measured, held in rows_of("gemm", thin(mine, most), context, lambda r: held_back(r["n"], r["k"])):
            found.append((sku, rows, measured, held))
    return found


def attention_groups(folder: Path, phase: str) -> list[Group]:
    table = [r for r in read(folder / "attention.csv.gz") if r["phase"] == phase]
    context = {"dispatch": "device", "clock": "burst", "cache": "cold"}
    found = []
    for sku in sorted({r["sku"] for r in table}):
        mine = [r for r in table if r["sku"] == sku]
        for rows, measured, held in rows_of(
            "attention", mine, context, lambda r: held_back(r["heads"], r["kv_heads"], r["head_dim"])
        ):
            found.append((sku, rows, measured, held))
    return found


def memory_bound(folder: Path) -> None:
    """Lattice-Boltzmann sweeps move 153 bytes a cell in float32 (FluidX3D's own count)."""
    table = [r for r in read(folder / "membound_devices.csv") if r["vendor"] in ("NVIDIA", "AMD", "Intel", "Apple")]
    cpus = ("EPYC", "Xeon", "Threadripper", "Ryzen", "Core", "FX-", "Neoverse")
    share = np.array(
        [
            float(r["mlups32"]) * 153e-3 / float(r["bw"])
            for r in table
            if not any(word in r["device"] for word in cpus) and float(r["bw"]) > 150
        ]
    )
    print(f"\nmemory-bound, {len(share)} GPUs: share of specified bandwidth, 5/25/50/75/95 percentiles", end=" ")
    print(np.round(np.percentile(share, [5, 25, 50, 75, 95]), 3))


def main() -> None:
    folder = Path(sys.argv[1])
    wanted = set(sys.argv[2:])

    def on(name: str) -> bool:
        return not wanted or name in wanted

    if on("membound"):
        memory_bound(folder)
    start = {"matrix_efficiency": 0.8, "memory_efficiency": 0.8, "kernel_floor_s": 2.3e-6, "l2_bytes_per_clock": 40.0}
    start["wave_s"] = 1e-6
    datacentre = ["a100-sxm-80gb", "h100-sxm-80gb", "l40s", "b200-sxm-180gb"]
    if on("gemm"):
        report("GEMM bf16", gemm_groups(folder, ["bfloat16"], datacentre), start)
    if on("fp8"):
        report("GEMM fp8", gemm_groups(folder, ["fp8", "nvfp4"]), {"quantise_passes": 1.5})
        # Small products of this set wait for the host (a floor of 56 to 285 us): only the long ones are the device's.
        blocks = [
            (sku, Rows(rows.op, rows.choices, {k: v[long] for k, v in rows.numbers.items()}), t[long], held[long])
            for sku, rows, t, held in gemm_groups(folder, ["fp8_block"], most=10000)
            for long in [t > 1e-3]
        ]
        report("GEMM fp8_block above 1 ms", blocks, {"block_scale_efficiency": 0.8})
    if on("b60"):
        report("GEMM bf16, Arc Pro B60", gemm_groups(folder, ["bfloat16"], ["arc-pro-b60"]), start, each=False)
    if on("attention"):
        both = attention_groups(folder, "prefill") + attention_groups(folder, "decode")
        start = {"attention_efficiency": 0.7, "attention_floor_s": 8e-6, "attention_block_s": 3e-6}
        report("attention", both, start)


if __name__ == "__main__":
    main()
