"""Jobs that occupy all devices of a fleet against the M/G/1 queue, judged by a t-test over seeded runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import t
from tests.theory.queueing import MMc, mg1_mean_wait_s

import windtunnel
from windtunnel.scenario.read import scenario_from_data

SEEDS = 16
SERVICES = {
    "exponential": ({"distribution": "exponential"}, 1.0),
    "deterministic": ({"distribution": "deterministic"}, 0.0),
    "lognormal": ({"distribution": "lognormal", "cv": 1.5}, 1.5),
}


def mean_waits_s(devices: int, gang: int, load: float, service: dict[str, Any], slower: float = 1.0) -> np.ndarray:
    """Return the mean wait of each seeded run, of jobs of mean 1 s on fleets that fit devices // gang of them."""
    waits = []
    for seed in range(SEEDS):
        data = {
            "schema": 1,
            "name": "theory",
            "seed": seed,
            "fleet": [{"device": "server", "count": devices}],
            "workload": [
                {
                    "name": "calls",
                    "gang": gang,
                    "arrivals": {"process": "poisson", "rate": f"{load * (devices // gang)} /s"},
                    "ops": [{"service": {"mean": f"{slower} s"} | service}],
                }
            ],
            "stop": {"jobs": 6_000},
        }
        waits.append(windtunnel.run(scenario_from_data(data)).result.waiting_s.mean.value)
    return np.array(waits)


def agrees(waits: np.ndarray, expected_s: float) -> bool:
    """Return whether the runs' means agree with a mean, by a two-sided t-test of level 0.1%."""
    error = float(waits.std(ddof=1)) / len(waits) ** 0.5
    return abs(float(waits.mean()) - expected_s) <= float(t.ppf(0.9995, len(waits) - 1)) * error


@pytest.mark.parametrize("service", SERVICES)
def test_jobs_of_all_devices_wait_as_in_the_mg1_queue(service: str) -> None:
    stated, cv = SERVICES[service]
    expected_s = mg1_mean_wait_s(0.6, 1.0, cv)
    assert agrees(mean_waits_s(4, 4, 0.6, stated), expected_s)
    assert not agrees(mean_waits_s(4, 4, 0.6, stated, slower=1.15), expected_s)


def test_jobs_of_two_devices_on_five_wait_as_in_the_mm2_queue() -> None:
    expected_s = MMc(2 * 0.7, 1.0, 2).mean_wait_s()
    assert agrees(mean_waits_s(5, 2, 0.7, {"distribution": "exponential"}), expected_s)
    assert not agrees(mean_waits_s(6, 2, 0.7, {"distribution": "exponential"}), expected_s)
