"""Elementwise kernels, priced by their counted work, against eager PyTorch on six GPUs.

    python benchmarks/accuracy/counted_elementwise.py --truth elementwise.csv.gz --out reports/validation/published

The kernels are written as a CUDA programmer writes them, one element a thread. Their counted work is priced as the
operation `kernel` launched by an eager framework, as the measurements were (sitar-lab/NeuSight@6945927).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import windtunnel
from windtunnel import f32, grid, i32
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.emulator.device.context import EmulatedContext
from windtunnel.runtime.interface import Interval
from windtunnel.runtime.kernels import Kernel
from windtunnel_models.catalogue import shipped_catalogue

SKUS = {
    "AMD Instinct MI100": "mi100",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
}
EVERY = 120
"""One in so many rows of each device and operation is compared."""
CLEAR = 3
"""Rows of more than this factor of the shortest one show the kernel, and not only the framework's launch."""


@windtunnel.kernel
def add(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] + b[i]


@windtunnel.kernel
def mul(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] * b[i]


@windtunnel.kernel
def div(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] / b[i]


@windtunnel.kernel
def power(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = math.pow(a[i], b[i])


@windtunnel.kernel
def addu(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] + 1.5


@windtunnel.kernel
def mulu(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] * 1.5


@windtunnel.kernel
def divu(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] / 1.5


@windtunnel.kernel
def powu(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = math.pow(a[i], 1.5)


@windtunnel.kernel
def relu(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = max(a[i], 0.0)


@windtunnel.kernel
def gelu(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = 0.5 * a[i] * (1.0 + math.erf(a[i] * 0.70710678))


@windtunnel.kernel
def tanh(a: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = math.tanh(a[i])


KERNELS: dict[str, Kernel] = {
    "add": add, "mul": mul, "div": div, "pow": power, "addu": addu, "mulu": mulu, "divu": divu, "powu": powu,
    "relu": relu, "gelu": gelu, "tanh": tanh,
}  # fmt: skip


INTERVALS: tuple[Interval, ...] = ("low", "best", "high")


def priced(contexts: Mapping[Interval, EmulatedContext], kernel: Kernel, n: int) -> tuple[float, float, float]:
    """Return the low, best and high time of a launch (s)."""
    two = len(kernel.function.__annotations__) == 4
    arrays: list[Any] = [np.zeros(n, np.float32) for _ in range(3 if two else 2)]
    arrays.append(n)
    best, counts = contexts["best"], None
    launch = best.kernels.launch(kernel, (-(-n // 256), 1, 1), (256, 1, 1), arrays, 0)
    best.kernels.check(launch)
    counting = best.work.counting(launch)
    if counting is not None:
        compiled = launch.kernel
        assert compiled is not None
        counting.on_copies(compiled.lockstep, arrays, lambda declared: declared, may_change=True)
    counts = best.work.counts(launch, counting)
    assert counts is not None
    found = {}
    for interval, context in contexts.items():
        work, waiting_s = context.work.work_of_counts(launch, counts, interval)
        columns = {**work, "dispatch": "eager"}
        columns.pop("op")
        cost = context.device.cost(one_row(OPERATIONS.find("kernel"), columns))
        ends = {"low": cost.duration_low_s, "best": cost.duration_s, "high": cost.duration_high_s}
        # What waits for caches and blocks takes as long as the emulator says, if that is longer.
        found[interval] = max(float(ends[interval][0]), waiting_s * float(ends[interval][0] / cost.duration_s[0]))
    return found["low"], found["best"], found["high"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    groups: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    with gzip.open(given.truth, "rt") as file:
        for row in csv.DictReader(file):
            if row["op"] in KERNELS:
                size = int(row["rows"]) * int(row["width"])
                groups[SKUS[row["device"]], row["op"]].append((size, float(row["latency_s"])))
    catalogue = shipped_catalogue()
    contexts = {
        sku: {one: EmulatedContext(catalogue.device(sku), None, one) for one in INTERVALS} for sku in SKUS.values()
    }
    lines, every, clear, inside, total = [], [], [], 0, 0
    for (sku, op), rows in sorted(groups.items()):
        factors, covered = [], 0
        floor = min(measured for _, measured in rows)
        for size, measured in rows[::EVERY]:
            low, best, high = priced(contexts[sku], KERNELS[op], size)
            factors.append(max(best / measured, measured / best))
            covered += low <= measured <= high
            clear += factors[-1:] if measured > CLEAR * floor else []
        every += factors
        inside, total = inside + covered, total + len(factors)
        worst = max(factors)
        within = sum(factor <= 2 for factor in factors) / len(factors)
        lines.append(
            f"| {sku} | {op} | {len(factors)} | {statistics.median(factors):.2f} | {worst:.2f} | {within:.0%} | "
            f"{covered / len(factors):.0%} |"
        )
    text = f"""# Elementwise kernels by their counted work

Written by `python benchmarks/accuracy/counted_elementwise.py`: one in {EVERY} of the rows of eager PyTorch on six GPUs
(sitar-lab/NeuSight@6945927) for the operations that are one element a thread. The device models are the
shipped ones, whose calibrations contain elementwise operations of these devices, and no kernels. The factor is that
between the predicted and the measured time.

All {total:,} rows: median factor {statistics.median(every):.2f}, within a factor of two {sum(f <= 2 for f in every) / total:.1%}, in the 90% interval {inside / total:.1%}.
The {len(clear):,} rows of more than {CLEAR} times the shortest: median factor {statistics.median(clear):.2f}, largest {max(clear):.2f}, within a factor of two {sum(f <= 2 for f in clear) / len(clear):.1%}.

| device | operation | rows | median factor | largest factor | within a factor of two | in the interval |
|---|---|---|---|---|---|---|
"""  # noqa: E501
    (given.out / "counted-elementwise.md").write_text(text + "\n".join(lines) + "\n")
    print(text)


if __name__ == "__main__":
    main()
