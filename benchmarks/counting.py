"""The cost of counting the work of emulated launches, over the kernels of kernels.py.

    python benchmarks/counting.py --out reports/benchmarks [--rounds 3] [--only NAME ...]

Each kernel is launched through an accelerator with all detectors, with and without counting, in turn: on a device that
was just opened, where the first launch compiles the kernel, and on a second one. Times are processor times, because
other work on the machine does not change them much, and the least of all rounds.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from pathlib import Path

import kernels
import numpy as np

import windtunnel
from windtunnel.emulator.device import launch_work

LAUNCHES = 5
"""Launches on each device: a first one, and later ones, of which the fastest counts."""


def seconds(case: kernels.Case, *, counted: bool) -> list[float]:
    """Return the time of the first launch and of later ones on one device, and on another one."""
    launch_work.forget_counts()
    found = []
    for _ in range(2):
        with windtunnel.device(kernels.DEVICE, counted=counted) as accelerator:
            given = [accelerator.to_device(a) if isinstance(a, np.ndarray) else a for a in case.arguments.values()]
            times = []
            for _ in range(LAUNCHES):
                began = time.process_time()
                accelerator.launch(case.kernel, case.grid, case.block, *given)
                times.append(time.process_time() - began)
            found += [times[0], min(times[1:])]
    return found


def measured(case: kernels.Case, rounds: int) -> tuple[list[float], list[float]]:
    """Return the least times without and with counting."""
    seconds(case, counted=True)
    plain, counted = zip(
        *((seconds(case, counted=False), seconds(case, counted=True)) for _ in range(rounds)), strict=True
    )
    return [min(times) for times in zip(*plain, strict=True)], [min(times) for times in zip(*counted, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="beginnings of the names of the kernels")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows, logs = [], np.zeros(4)
    chosen = [case for case in kernels.cases() if not options.only or case.name.startswith(tuple(options.only))]
    for case in chosen:
        plain, counted = measured(case, options.rounds)
        ratios = [c / p for c, p in zip(counted, plain, strict=True)]
        logs += np.log(ratios)
        cells = [f"{1e3 * plain[0]:.1f}", f"{1e3 * plain[1]:.1f}", *(f"{ratio:.2f}" for ratio in ratios)]
        rows.append(f"| {case.name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    mean = " | ".join(f"{math.exp(log / len(chosen)):.2f}" for log in logs)
    text = f"""# Emulated kernels: cost of counting their work

Written by `python benchmarks/counting.py`: CPython {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}. Processor times of launches with all detectors, the least of
{options.rounds} rounds; the machine had other work, and ratios differ by a fifth from run to run. The first launch on a device contains the compilation of the kernel. Where nothing that arrays contain decides the work, the counts
are used again, on later devices too; otherwise each launch is counted.

| kernel | first launch, not counted (ms) | later launch, not counted (ms) | counted over not counted: first launch | later launches | first launch on another device | later ones there |
|---|---|---|---|---|---|---|
"""  # noqa: E501
    (options.out / "counting.md").write_text(text + "\n".join(rows) + f"\n| geometric mean | | | {mean} |\n")


if __name__ == "__main__":
    main()
