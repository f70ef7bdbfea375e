"""The process engine compared with a SimPy program that simulates the same system with one process per job.

    python benchmarks/process_engine.py [--jobs 1000000] [--rounds 3] [--out DIR]

Both simulate M/M/64 at load 0.9, with different random numbers. Windtunnel records every job and the power of the fleet
at all times, checks its invariants and computes confidence intervals. The SimPy program keeps queueing delays only. The
ratio of CPU times is computed for each round, because it varies less than the times. Each program runs in its own
process, so its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

LOAD, SERVERS = 0.9, 64


def ours(jobs: int) -> dict[str, float]:
    import windtunnel
    from windtunnel.scenario.read import scenario_from_data

    data = {
        "schema": 1,
        "name": "mm64",
        "fleet": [{"device": "server", "count": SERVERS, "power": {"idle": "60 W", "max": "300 W"}}],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "poisson", "rate": f"{SERVERS * LOAD} /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 s"}}],
            }
        ],
        "stop": {"jobs": jobs},
    }
    scenario = scenario_from_data(data)
    began = time.process_time()
    result = windtunnel.run(scenario).result
    return {"cpu_s": time.process_time() - began, "mean_wait": result.waiting_s.mean.value}


def simpy_process_per_job(jobs: int) -> dict[str, float]:
    import numpy as np
    import simpy

    rng = np.random.default_rng(1)
    gaps = rng.exponential(1 / (SERVERS * LOAD), jobs).tolist()
    times = rng.exponential(1.0, jobs).tolist()
    waits: list[float] = []

    def customer(env: simpy.Environment, servers: simpy.Resource, service: float) -> object:
        arrived = env.now
        with servers.request() as request:
            yield request
            waits.append(env.now - arrived)
            yield env.timeout(service)

    def source(env: simpy.Environment, servers: simpy.Resource) -> object:
        for gap, service in zip(gaps, times, strict=True):
            yield env.timeout(gap)
            env.process(customer(env, servers, service))

    began = time.process_time()
    env = simpy.Environment()
    servers = simpy.Resource(env, SERVERS)
    env.process(source(env, servers))
    env.run()
    mean = float(np.mean(waits))
    np.quantile(waits, 0.99)
    return {"cpu_s": time.process_time() - began, "mean_wait": mean}


SIDES = {"windtunnel": ours, "simpy": simpy_process_per_job}


def measured(side: str, jobs: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--side", side, "--jobs", str(jobs)], capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", choices=SIDES)
    options = parser.parse_args()
    if options.side:
        result = SIDES[options.side](options.jobs)
        print(json.dumps(result | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    rows = [{side: measured(side, options.jobs) for side in SIDES} for _ in range(options.rounds)]
    ratios = [row["simpy"]["cpu_s"] / row["windtunnel"]["cpu_s"] for row in rows]
    lines = [
        "| round | SimPy, CPU time (s) | Windtunnel, CPU time (s) | ratio | Windtunnel, peak memory (MB) | mean "
        "queueing delay, SimPy / Windtunnel |",
        "|---|---|---|---|---|---|",
    ]
    for i, (row, ratio) in enumerate(zip(rows, ratios, strict=True), 1):
        a, b = row["simpy"], row["windtunnel"]
        lines.append(
            f"| {i} | {a['cpu_s']:.2f} | {b['cpu_s']:.2f} | {ratio:.2f} | {b['peak_mb']:.0f} "
            f"| {a['mean_wait']:.4f} / {b['mean_wait']:.4f} s |"
        )
    lines.append(f"\n{options.jobs:,} jobs of M/M/64 at load 0.9. The median ratio is {statistics.median(ratios):.2f}.")
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "process_engine.md").write_text(
            "# The process engine compared with a SimPy program with one process per job\n\n"
            "Written by `python benchmarks/process_engine.py`.\n\n" + text
        )


if __name__ == "__main__":
    main()
