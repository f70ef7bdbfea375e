"""Emulated calls a second, and what the plugin adds to pytest's start.

    python benchmarks/runtime.py [--calls 100000] [--rounds 5] [--out DIR]

Calls come from one Python thread, each with all of its checks; the best of the rounds counts. The plugin's cost is the
difference of two whole `pytest` processes that collect one empty test, one with the plugin and one without, taken in
turn; the median of the pairs' differences counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import windtunnel


@windtunnel.kernel(work={"op": "kernel", "threads": 1, "bytes": 1})
def nothing() -> None:
    pass


@windtunnel.kernel(work={"op": "kernel", "threads": 256, "bytes": 8000})
def double(a: np.ndarray) -> None:
    a *= 2


def calls_per_second(calls: int) -> dict[str, float]:
    """By what is called."""
    device = windtunnel.device("h100-sxm-80gb")
    a, array = device.empty(1000), np.ones(1000, np.float32)
    streams = [device.stream() for _ in range(4)]
    buffers = [device.empty(1000) for _ in streams]
    programs = {
        "launch, empty kernel": lambda i: device.launch(nothing, 1, 1),
        "launch on one of four streams": lambda i: device.launch(double, 4, 256, buffers[i % 4], stream=streams[i % 4]),
        "copy in, 4 kB": lambda i: a.copy_from(array),
        "synchronize": lambda i: device.synchronize(),
    }
    rates = {}
    for name, program in programs.items():
        program(0)
        began = time.perf_counter()
        for i in range(calls):
            program(i)
        rates[name] = calls / (time.perf_counter() - began)
    return rates


def pytest_seconds(folder: Path, *options: str) -> float:
    began = time.perf_counter()
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *options]
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rounds = [calls_per_second(options.calls) for _ in range(options.rounds)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        pytest_seconds(folder, "-p", "windtunnel.pytest_plugin")
        pairs = [
            (pytest_seconds(folder, "-p", "windtunnel.pytest_plugin"), pytest_seconds(folder))
            for _ in range(4 * options.rounds)
        ]
    added = statistics.median(explicit - other for explicit, other in pairs)
    lines = [
        "# The runtime's own speed",
        "",
        "Written by `python benchmarks/runtime.py`. Absolute figures are this machine's.",
        "",
        "| call | a second |",
        "|---|---|",
        *(f"| {name} | {max(result[name] for result in rounds):,.0f} |" for name in rounds[0]),
        "",
        f"The plugin adds {1000 * added:.0f} ms to pytest's {statistics.median(other for _, other in pairs):.2f} s.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "runtime.md").write_text(text)


if __name__ == "__main__":
    main()
