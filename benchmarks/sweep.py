"""Speed-up of a sweep with two workers over one, for a grid of equal points, including start-up and checks.

    python benchmarks/sweep.py [--points 12] [--jobs 1000000 10000000] [--rounds 3] [--patience 60]
                               [--out DIR]

Measures the wall time of whole `windtunnel sweep` processes, alternately with one and with two workers. The result is
the minimum of all rounds, because other work of the machine can only add time. Absolute times depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def sweep(workers: int, points: int, jobs: int, out: Path) -> float:
    words = [sys.executable, "-m", "windtunnel", "sweep", "scenarios/mm64.yaml", "--over", f"seed=1..{points}"]
    words += ["--set", f"stop.jobs={jobs}", "--workers", str(workers), "--out", str(out)]
    began = time.perf_counter()
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - began


def idle_share(seconds: float = 1.0) -> float:
    """Share of idle processor time of the machine over a while (Linux)."""

    def counters() -> tuple[int, int]:
        numbers = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return numbers[3] + numbers[4], sum(numbers)

    idle, whole = counters()
    time.sleep(seconds)
    later, total = counters()
    return (later - idle) / (total - whole)


def wait_for_quiet(patience_s: float) -> None:
    """Wait until the machine is nearly idle, or until the time limit."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end and idle_share() < 0.95:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=12)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine, each time")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    took: dict[tuple[int, int], list[float]] = {(jobs, workers): [] for jobs in options.jobs for workers in (1, 2)}
    loads: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for (jobs, workers), times in took.items():
                wait_for_quiet(options.patience)
                loads.append(os.getloadavg()[0])
                times.append(sweep(workers, options.points, jobs, Path(folder) / f"{jobs}-{workers}-{number}"))
            for jobs in options.jobs:
                tables = {
                    (Path(folder) / f"{jobs}-{workers}-{number}" / "sweep.csv").read_bytes() for workers in (1, 2)
                }
                assert len(tables) == 1, "the number of workers changed the table"
        nothing = [sweep(2, 1, 1, Path(folder) / f"nothing-{number}") for number in range(options.rounds)]
    busy = min(loads) > 2.5  # two workers alone give a load average of 2
    rows = []
    for jobs in options.jobs:
        single, two = (took[jobs, workers] for workers in (1, 2))
        listed = "; ".join(", ".join(f"{t:.1f}" for t in times) for times in (single, two))
        rows.append(f"| {jobs:,} | {min(single):.2f} | {min(two):.2f} | **{min(single) / min(two):.2f}** | {listed} |")
    lines = [
        "# Speed-up of a sweep with two workers",
        "",
        "Written by `python benchmarks/sweep.py`. The absolute times depend on the machine; the ratio depends on it "
        "less.",
        "",
        f"The sweep has {options.points} points of `scenarios/mm64.yaml`, with `engine: auto`, on {os.cpu_count()} "
        f"processors. Each time is the wall time of the whole command, the minimum of {options.rounds} rounds. Each "
        "worker uses one processor.",
        "",
        "| jobs per point | one worker (s) | two workers (s) | speed-up | all rounds (s; one worker; two workers) |",
        "|---|---|---|---|---|",
        *rows,
        "",
        f"Load average before each command: {min(loads):.1f} to {max(loads):.1f}.",
        *(["**Other programs used the processors, so the speed-ups are not valid. Repeat the benchmark.**"] * busy),
        "",
        "The tables of one worker and of two workers are identical. A sweep with almost no work (two workers, one "
        f"point of one job) takes {min(nothing):.2f} s for start-up, checks and imports. A second worker does not "
        "reduce this time.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "sweep.md").write_text(text)


if __name__ == "__main__":
    main()
