"""Compare the counted work of emulated kernels, and the times by it, with what an H200 did.

    python benchmarks/gpu/compare.py --recorded reports/validation/h200-sxm-141gb/2026-11-26/kernels

The launches are those of measure.py, and the kernels those of twins.py. Writes `counted.csv` and `counted.md` beside
Nsight Compute's `counters.csv` and the measured `times.csv`. No GPU is needed.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import numpy as np
import twins

from windtunnel.emulator.device.context import EmulatedContext
from windtunnel.emulator.device.executable import with_size
from windtunnel.runtime.interface import Interval
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.work_counts import WorkCounts
from windtunnel_models.catalogue import shipped_catalogue

SKU = "h200-sxm-141gb"
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
INTERVALS: tuple[Interval, ...] = ("best", "low", "high")
Recorded = Callable[[str], float]


def _nsight_flop(of: Recorded) -> float:
    return sum(of(SASS.format(p + op)) * (2 if op == "fma" else 1) for p in "fd" for op in ("add", "mul", "fma"))


METRICS: dict[str, tuple[Callable[[WorkCounts], float], Callable[[Recorded], float]]] = {
    "FLOP": (lambda c: sum(c.flops.values()), _nsight_flop),
    "sectors loaded": (lambda c: c.loads.sectors, lambda of: of(SECTORS.format("ld"))),
    "L1 hits": (lambda c: c.loads.hits, lambda of: of(SECTORS.format("ld").replace(".sum", "_lookup_hit.sum"))),
    "sectors stored": (lambda c: c.stores.sectors, lambda of: of(SECTORS.format("st"))),
    "sectors of atomics": (
        lambda c: c.atomics.sectors,
        lambda of: of(SECTORS.format("atom")) + of(SECTORS.format("red")),
    ),
    "shared wavefronts loaded": (lambda c: c.shared_loads.wavefronts, lambda of: of(WAVEFRONTS.format("ld"))),
    "shared wavefronts stored": (lambda c: c.shared_stores.wavefronts, lambda of: of(WAVEFRONTS.format("st"))),
    "threads per warp": (
        lambda c: c.threads_per_instruction,
        lambda of: of("smsp__thread_inst_executed_per_inst_executed.ratio"),
    ),
}
"""By name: the counted figure, and that of Nsight Compute."""


def buffers() -> dict[str, Any]:
    """Return arrays like those of measure.py. The values of floats do not matter."""
    numbers = np.random.default_rng(5)
    f, g, h = (np.zeros(measure.N, np.float32) for _ in range(3))
    made = {"f": f, "g": g, "h": h, "d": f.view(np.float64), "e": g.view(np.float64), "z": np.zeros(1 << 20, np.int32)}
    made["x"] = numbers.integers(0, measure.N, measure.N, dtype=np.int32)
    made["i"] = numbers.integers(0, 1 << 30, measure.N, dtype=np.int32)
    made["o"] = np.full(measure.N, 7, np.int32)
    return made


def arguments_for(kernel: Kernel, given: Any) -> list[Any]:
    """Return the arguments with each array as one of the kernel's element type."""
    hints = typing.get_type_hints(kernel.function)
    pairs = zip(hints.values(), given, strict=True)
    return [value.view(hint.element.dtype) if isinstance(value, np.ndarray) else value for hint, value in pairs]


def sides(given: Any) -> tuple[int, int, int]:
    return (*((given,) if isinstance(given, int) else given), 1, 1)[:3]


def counted(row: measure.Row) -> tuple[WorkCounts, float, float, float] | None:
    """Return the counts of a launch, and its modelled time: low, best, high. None if it has no twin."""
    _, name, grid, block, shared, given, *_ = row
    kernel = getattr(twins, name, None)
    if not isinstance(kernel, Kernel):
        return None
    arguments = arguments_for(kernel, given)
    seconds, counts = {}, None
    for interval in INTERVALS:
        context = EmulatedContext(shipped_catalogue().device(SKU), None, interval)
        launch = context.kernels.launch(kernel, sides(grid), sides(block), arguments, shared)
        context.kernels.check(launch)
        counting = context.work.counting(launch) if counts is None else None
        if counting is not None:
            compiled = launch.kernel
            assert compiled is not None
            # The arrays are larger than an emulated launch would need, so only the counted blocks are executed.
            counting.on_copies(
                compiled.lockstep, arguments, lambda declared: with_size(declared, shared), may_change=True
            )
            counts = context.work.counts(launch, counting)
        assert counts is not None
        seconds[interval] = context.work.seconds_of_counts(launch, counts, interval)
    assert counts is not None
    return counts, seconds["low"], seconds["best"], seconds["high"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", type=Path, required=True)
    folder = parser.parse_args().recorded
    with (folder / "counters.csv").open() as file:
        counters = {row["name"]: {k.split(" [")[0]: v for k, v in row.items()} for row in csv.DictReader(file)}
    with (folder / "times.csv").open() as file:
        times = {row["name"]: float(row["median_s"]) for row in csv.DictReader(file)}
    found: list[dict[str, Any]] = []
    for row in measure.rows(buffers()):
        result = counted(row)
        if result is None:
            continue
        counts, low_s, best_s, high_s = result
        nsight = counters[row[0]]
        entry: dict[str, Any] = {"name": row[0]}
        for name, (ours, theirs) in METRICS.items():
            entry[name] = ours(counts)
            entry[f"{name} (Nsight Compute)"] = theirs(lambda key, nsight=nsight: float(nsight[key]))
        device_s = float(nsight["gpu__time_duration.sum"]) * 1e-9
        entry |= {"time_s": best_s, "time_low_s": low_s, "time_high_s": high_s}
        entry |= {"device_time_s (Nsight Compute)": device_s, "measured_s": times[row[0]]}
        found.append(entry)
        print(f"{row[0]:45} {best_s * 1e6:10.1f} us of {device_s * 1e6:10.1f}", flush=True)
    with (folder / "counted.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in found)
    (folder / "counted.md").write_text(report(found))


def report(found: list[dict[str, Any]]) -> str:
    """Return the comparison as a page."""
    lines = [
        "# Counted work of emulated kernels, and Nsight Compute's counts",
        "",
        "Written by `python benchmarks/gpu/compare.py`; all figures are in [counted.csv](counted.csv). The kernels are "
        "[kernels.cu](../../../../../benchmarks/gpu/kernels.cu) and their twins in the language of the emulator "
        "([twins.py](../../../../../benchmarks/gpu/twins.py)). A cell is the counted figure divided by Nsight "
        "Compute's; 0 = 0 is shown as `=`. The last column is the time by the counted work divided by the device's.",
        "",
        "| launch | " + " | ".join(METRICS) + " | time |",
        "|---|" + "---|" * (len(METRICS) + 1),
    ]
    for row in found:
        cells = [_ratio(row[name], row[f"{name} (Nsight Compute)"]) for name in METRICS]
        cells.append(f"{row['time_s'] / row['device_time_s (Nsight Compute)']:.2f}")
        lines.append(f"| {row['name']} | " + " | ".join(cells) + " |")
    lines += ["", "| figure | launches where either is not 0 | within 1% | within 10% |", "|---|---|---|---|"]
    for name in METRICS:
        pairs = [(row[name], row[f"{name} (Nsight Compute)"]) for row in found]
        pairs = [(ours, theirs) for ours, theirs in pairs if ours or theirs]
        within = [sum(abs(ours - theirs) <= share * theirs for ours, theirs in pairs) for share in (0.01, 0.1)]
        lines.append(f"| {name} | {len(pairs)} | {within[0]} | {within[1]} |")
    ratios = [row["time_s"] / row["device_time_s (Nsight Compute)"] for row in found]
    factors = [max(ratio, 1 / ratio) for ratio in ratios]
    inside = sum(row["time_low_s"] <= row["device_time_s (Nsight Compute)"] <= row["time_high_s"] for row in found)
    lines += [
        "",
        f"Times: within a factor of two in {sum(factor <= 2 for factor in factors)} of {len(found)} launches; the "
        f"median factor is {statistics.median(factors):.2f}, and {inside} device times lie in the 90% interval of the "
        "model.",
    ]
    return "\n".join(lines) + "\n"


def _ratio(ours: float, theirs: float) -> str:
    if not theirs:
        return "=" if not ours else f"{ours:.3g} : 0"
    return f"{ours / theirs:.3g}"


if __name__ == "__main__":
    main()
