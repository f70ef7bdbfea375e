"""Rate of emulated calls, and the time that the plugin adds to the start of pytest.

    python benchmarks/runtime.py [--calls 100000] [--rounds 5] [--out DIR]

One Python thread makes the calls, with all checks. The result is the best of the rounds. The time of the plugin is the
difference between two `pytest` processes that collect one empty test, with and without the plugin. The processes run
alternately, and the result is the median difference of the pairs.
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
    """Calls per second for each kind of call."""
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
        "# Speed of the emulated runtime",
        "",
        "Written by `python benchmarks/runtime.py`. The absolute rates depend on the machine.",
        "",
        "| call | calls per second |",
        "|---|---|",
        *(f"| {name} | {max(result[name] for result in rounds):,.0f} |" for name in rounds[0]),
        "",
        f"The pytest plugin adds {1000 * added:.0f} ms to the {statistics.median(other for _, other in pairs):.2f} s "
        "that pytest takes without it.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "runtime.md").write_text(text)


if __name__ == "__main__":
    main()
