"""The benchmark of the engines still runs: a renamed key of scenarios broke it unnoticed once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_engine_benchmark_runs_the_same_jobs_as_its_peer(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.bin"
    write = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import engines, pathlib; "
    write += f"engines.write_jobs(pathlib.Path({str(jobs)!r}), 2000)"
    subprocess.run([sys.executable, "-c", write], check=True)
    means = []
    for peer in ("windtunnel_fleet.py", "simpy_process.py"):
        command = [sys.executable, str(BENCHMARKS / "peers" / peer), str(jobs), "2000"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        assert answer["jobs"] == 2000
        means.append(answer["energy_j"])
    assert abs(means[0] / means[1] - 1) < 1e-9
