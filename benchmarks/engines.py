"""The compiled engine compared with SimPy, Ciw, salabim and a C++ loop: same jobs, fleet, policy and statistics.

Windtunnel generates the jobs once and writes them to a file that all other programs read. Windtunnel generates them
again within its own CPU time. The programs run in turn, each in its own process, for several rounds. The table has CPU
seconds (model, run, statistics). Ratios are computed within a round, because the speed of a machine varies more between
rounds than within one. Ciw and salabim are not dependencies of Windtunnel: --peers names a Python interpreter that has
them. Otherwise they are not in the table.

    python benchmarks/engines.py --out reports/benchmarks [--peers PYTHON] [--jobs 1000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
PEERS = HERE / "peers"
sys.path.insert(0, str(PEERS))

SHORT = {"ciw_fleet.py": 5_000, "salabim_fleet.py": 20_000}
"""Number of jobs for the programs that would take hours for a million."""


def write_jobs(path: Path, count: int) -> None:
    """Write the interarrival times and sizes that Windtunnel generates for the scenario."""
    from windtunnel_fleet import scenario

    import windtunnel
    from windtunnel.engine.prepare.jobs import job_blocks
    from windtunnel.simulation.run import prepare_run

    blocks = list(job_blocks(prepare_run(scenario(count), windtunnel.catalogue(), "compiled")))
    arrival_s = np.concatenate([b.arrival for b in blocks]) / 1e12
    sizes = np.concatenate([b.draws[:, 0] for b in blocks])
    np.concatenate([np.diff(arrival_s, prepend=0.0), sizes]).tofile(path)


def measured(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--peers", help="a Python interpreter that has simpy, ciw and salabim (default: this one)")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--long", type=int, default=100_000_000, help="jobs of the long run; 0: none")
    chosen = parser.parse_args()
    python = chosen.peers or sys.executable
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        jobs = folder / "jobs.bin"
        write_jobs(jobs, chosen.jobs)
        binary = folder / "fleet"
        subprocess.run(["g++", "-O3", "-std=c++17", str(PEERS / "fleet.cpp"), "-o", str(binary)], check=True)
        programs: dict[str, list[str]] = {
            "windtunnel": [sys.executable, str(PEERS / "windtunnel_fleet.py"), str(jobs), str(chosen.jobs)],
            "c++": [str(binary), str(jobs), str(chosen.jobs)],
            "simpy": [python, str(PEERS / "simpy_process.py"), str(jobs), str(chosen.jobs)],
            "callbacks": [python, str(PEERS / "simpy_callbacks.py"), str(jobs), str(chosen.jobs)],
        }
        for script, count in SHORT.items():
            module = script.partition("_")[0]
            if not subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
                programs[module] = [python, str(PEERS / script), str(jobs), str(min(count, chosen.jobs))]
        rounds: list[dict[str, dict[str, Any]]] = []
        for number in range(chosen.rounds):
            # Slow programs run in fewer rounds, since more would not improve the ratio much.
            names = [
                n
                for n in programs
                if number == 0 or n in ("windtunnel", "c++", "callbacks") or (number < 3 and n == "simpy")
            ]
            rounds.append({name: measured(programs[name]) for name in names})
            print({name: round(result["cpu_s"], 3) for name, result in rounds[-1].items()}, flush=True)
        fleets = [
            (per, policy)
            for policy in ("shortest-expected-completion", "least-loaded", "fifo")
            for per in (3, 25, 250, 2500, 25_000)
        ]
        scaling = []
        for per, policy in fleets:
            few, many = (
                measured([*programs["windtunnel"][:2], str(jobs), str(count), str(per), policy])
                for count in (chosen.jobs, 4 * chosen.jobs)
            )
            scaling.append((4 * per, policy, (many["cpu_s"] - few["cpu_s"]) / (3 * chosen.jobs), few["cpu_s"]))
        long = None
        if chosen.long:
            long = measured([*programs["windtunnel"][:2], str(jobs), str(chosen.long)])
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = table(rounds, scaling, long)
    (chosen.out / "engines.md").write_text(text, encoding="utf-8")
    print(text)


def table(rounds: list[dict[str, dict[str, Any]]], scaling: list[Any], long: dict[str, Any] | None) -> str:
    first = rounds[0]
    own = first["windtunnel"]
    lines = [
        "# The compiled engine compared with other simulators",
        "",
        f"Written by `benchmarks/engines.py`; {platform.python_implementation()} {platform.python_version()}, one "
        "process at a time. The scenario has 1,000 devices in four speed classes at load 0.85, the policy "
        "`shortest-expected-completion`, and lognormal job sizes. All programs simulate the same jobs. The CPU time "
        "includes model, run and statistics (mean, p50, p99, energy), and for Windtunnel also the generation of the "
        "jobs. A ratio is the median over the rounds in which both programs ran, with the smallest and the largest "
        "in parentheses.",
        "",
        "| program | jobs | CPU time per job (µs) | CPU time relative to Windtunnel | peak memory (MB) "
        "| difference of mean latency from C++ |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in first.items():
        job_us = [r[name]["cpu_s"] / r[name]["jobs"] * 1e6 for r in rounds if name in r]
        ratios = [
            (r[name]["cpu_s"] / r[name]["jobs"]) / (r["windtunnel"]["cpu_s"] / r["windtunnel"]["jobs"])
            for r in rounds
            if name in r
        ]
        same = result["jobs"] == own["jobs"]
        differs = f"{abs(result['mean_s'] / first['c++']['mean_s'] - 1):.1e}" if same else "not compared (fewer jobs)"
        if name == "windtunnel":
            differs += f" (without {own['warm_up_jobs']:,} warm-up jobs)"
        ratio = f"{statistics.median(ratios):.3g} ({min(ratios):.3g} to {max(ratios):.3g})"
        cells = (
            result["peer"],
            f"{result['jobs']:,}",
            f"{statistics.median(job_us):.3g}",
            ratio,
            f"{result['peak_mb']:.0f}",
            differs,
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "The relative difference of the energy between Windtunnel and C++ is "
        f"{abs(own['energy_j'] / first['c++']['energy_j'] - 1):.1e}.",
        "",
        "## CPU time of a job by size of the fleet",
        "",
        f"CPU time of each additional job (µs), from {own['jobs']:,} to {4 * own['jobs']:,} jobs at load 0.85. The "
        "last column is the CPU time that does not depend on the number of jobs, such as the name, the record and "
        "the row of the result for each device. It is a difference of two measurements, so small values can be "
        "negative.",
        "",
        "| devices | "
        + " | ".join(dict.fromkeys(policy for _, policy, _, _ in scaling))
        + " | CPU time of the fleet (s) |",
        "|---" * (2 + len({policy for _, policy, _, _ in scaling})) + "|",
    ]
    for devices in dict.fromkeys(d for d, _, _, _ in scaling):
        mine = [(job_s, few) for d, _, job_s, few in scaling if d == devices]
        cells = [f"{job_s * 1e6:.3g}" for job_s, _ in mine]
        cells.append(f"{min(few - job_s * own['jobs'] for job_s, few in mine):.2f}")
        lines.append(f"| {devices:,} | " + " | ".join(cells) + " |")
    if long is not None:
        lines += [
            "",
            "## A long run",
            "",
            f"{long['jobs']:,} jobs on 1,000 devices, without a record of each job: {long['cpu_s']:.0f} s of CPU time, "
            f"{long['peak_mb']:.0f} MB of memory at most.",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
