"""Duration of whole commands: start-up, one prediction, a table of them, and two runs that write their output files.

    python benchmarks/commands.py [--rounds 3] [--out DIR]

Measures the wall time of whole processes, and that of `python -c pass` with the same interpreter for comparison. The
absolute times depend on the machine; ratios depend on it less.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def table(path: Path, rows: int) -> Path:
    rng = random.Random(1)
    lines = ["m,n,k,dtype,clock"]
    for _ in range(rows):
        n, k = rng.choice([1024, 4096, 7168, 8192]), rng.choice([1024, 4096, 7168])
        lines.append(
            f"{rng.randint(1, 8192)},{n},{k},{rng.choice(['bfloat16', 'fp8'])},{rng.choice(['burst', 'sustained'])}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    windtunnel = [sys.executable, "-m", "windtunnel"]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        shapes = table(here / "shapes.csv", 100_000)
        predict = [
            "predict",
            "gemm",
            "--device",
            "h100-sxm-80gb",
            "--table",
            str(shapes),
            "--out",
            str(here / "out.csv"),
        ]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "windtunnel --help": [*windtunnel, "--help"],
            "windtunnel devices": [*windtunnel, "devices", "--format", "json"],
            "windtunnel predict, one operation": [
                *windtunnel, "predict", "gemm", "--device", "h100-sxm-80gb", "m=4096", "n=4096", "k=4096",
                "dtype=bfloat16",
            ],
            "windtunnel predict, a table of 100,000 rows": [*windtunnel, *predict],
            "windtunnel run azure-code, with output files": [
                *windtunnel, "run", "scenarios/azure-code.yaml", "--out", str(here / "run"),
            ],
            "windtunnel run mm64, a million jobs, with all jobs in the output files": [
                *windtunnel, "run", "scenarios/mm64.yaml", "--all-jobs", "--out", str(here / "mm64"),
            ],
        }  # fmt: skip
        lines = ["| command | median wall time (s) | runs |", "|---|---|---|"]
        for name, command in commands.items():
            seconds = []
            for _ in range(options.rounds):
                began = time.perf_counter()
                subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
                seconds.append(time.perf_counter() - began)
            lines.append(f"| {name} | {statistics.median(seconds):.2f} | {options.rounds} |")
    text = "\n".join(lines) + f"\n\n{os.cpu_count()} cores, Python {sys.version.split()[0]}.\n"
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "commands.md").write_text(
            "# Duration of whole commands\n\nWritten by `python benchmarks/commands.py`.\n\n" + text
        )


if __name__ == "__main__":
    main()
