"""What a run said when it was last looked at. A change here is a change of meaning: regenerate only on purpose.

WINDTUNNEL_REGENERATE=1 pytest tests/golden
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.cases import FLEET_POLICIES

import windtunnel
from windtunnel.scenario.read import read_scenario, scenario_from_data

HERE = Path(__file__).parent


def canonical_log(policy: Any, late_ticks: int = 0) -> str:
    """Job, workload, device, start, end (ns) and energy (mJ), one line a job.

    Nanoseconds, because the last digits of exp and log, and so of a draw, differ between processors. The first job
    starts ``late_ticks`` later than it was simulated to.
    """
    data = {
        "schema": 1,
        "name": "golden",
        "seed": 42,
        "fleet": [
            {"device": "server", "count": 2, "power": {"idle": "50 W", "max": "150 W"}, "price": "1 USD/h"},
            {"device": "server", "speed": 2.5, "power": {"idle": "80 W", "max": "400 W"}, "price": "4 USD/h"},
        ],
        "workload": [
            {
                "name": "short",
                "arrivals": {"process": "poisson", "rate": "2500 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
                "deadline": "3 ms",
            },
            {
                "name": "long",
                "arrivals": {"process": "gamma", "rate": "300 /s", "cv": 2.0},
                "ops": [{"service": {"distribution": "lognormal", "mean": "3 ms", "cv": 1.5}}],
                "deadline": "30 ms",
                "priority": 1,
            },
        ],
        "policy": policy,
        "stop": {"jobs": 60},
    }
    recording = windtunnel.run(scenario_from_data(data)).recording
    jobs = recording.jobs
    jobs.start[0] += late_ticks
    lines = ["job workload device start end energy_mj"]
    lines += [
        f"{j} {recording.workloads[jobs.workload[j]]} {jobs.device[j]} {jobs.start[j] // 1000} {jobs.finish[j] // 1000} {jobs.energy_j[j] * 1e3:.6f}"
        for j in range(len(jobs))
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("policy", FLEET_POLICIES)
def test_the_canonical_log_is_what_it_was(policy: str) -> None:
    path = HERE / f"{policy}.txt"
    log = canonical_log(policy)
    if os.environ.get("WINDTUNNEL_REGENERATE"):
        path.write_text(log)
        pytest.fail("written again; run without WINDTUNNEL_REGENERATE")
    assert log == path.read_text()


def test_a_changed_rule_and_a_nanosecond_of_error_would_be_seen() -> None:
    log = canonical_log("fifo")
    assert log == (HERE / "fifo.txt").read_text()
    assert canonical_log("fifo", late_ticks=1000) != log
    assert canonical_log("least-loaded") != log


def errors_of_devices(**changes: Any) -> str:
    """What became of the jobs of scenarios/device-errors.yaml, and how often each of its faults struck."""
    scenario = read_scenario(HERE.parents[1] / "scenarios" / "device-errors.yaml")
    result = windtunnel.run(scenario.changed(**changes)).result
    faults = result.faults
    lines = [f"{name} {count}" for name, count in vars(result.jobs).items()]
    lines += [f"{name} {getattr(faults, name)}" for name in ("interrupted", "restarts", "failed", "corrupted_jobs")]
    lines += [f"{one.kind} {one.occurrences} of {one.eligible_operations}" for one in faults.by_fault]
    return "\n".join(lines) + "\n"


def test_the_errors_of_devices_are_what_they_were() -> None:
    path = HERE / "device-errors.txt"
    log = errors_of_devices()
    if os.environ.get("WINDTUNNEL_REGENERATE"):
        path.write_text(log)
        pytest.fail("written again; run without WINDTUNNEL_REGENERATE")
    assert log == path.read_text()
    assert errors_of_devices(seed=4) != log
