"""Windtunnel's compiled engine with the same fleet and jobs. Its CPU time includes the generation of the jobs."""

import json
import sys
import time

from common import high_water_mb

import windtunnel
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import simulate


def scenario(count, per_class=250, policy="shortest-expected-completion", records="none"):
    return scenario_from_data(
        {
            "schema": 1,
            "name": "four speeds",
            "records": records,
            "fleet": [
                {"device": "server", "count": per_class, "speed": speed, "power": {"idle": "60 W", "max": "300 W"}}
                for speed in (8, 4, 2, 1)
            ],
            "workload": [
                {
                    "name": "jobs",
                    "arrivals": {"process": "poisson", "rate": f"{0.85 * 15 * per_class} /s"},
                    "ops": [{"service": {"distribution": "lognormal", "mean": "1 s", "cv": 1.31}}],
                }
            ],
            "policy": policy,
            "stop": {"jobs": count},
        }
    )


def main():
    count = int(sys.argv[2])
    per_class = int(sys.argv[3]) if len(sys.argv) > 3 else 250
    policy = sys.argv[4] if len(sys.argv) > 4 else "shortest-expected-completion"
    known = windtunnel.catalogue()
    # Machine code is loaded before the clock starts, as are the interpreters and modules of the other programs.
    simulate(scenario(2000, 3, policy), 1, "compiled", known)
    asked = scenario(count, per_class, policy)
    began = time.process_time()
    result, _ = simulate(asked, 1, "compiled", known)
    cpu_s = time.process_time() - began
    latency = result.latency_s
    print(
        json.dumps(
            {
                "peer": "Windtunnel, compiled",
                "jobs": count,
                "devices": 4 * per_class,
                "cpu_s": cpu_s,
                "peak_mb": high_water_mb(),
                "mean_s": latency.mean.value,
                "p50_s": latency.p50.value,
                "p99_s": latency.p99.value,
                "energy_j": result.energy_j,
                "warm_up_jobs": result.statistics.warmup_jobs,
            }
        )
    )


if __name__ == "__main__":
    main()
