"""The process engine against closed forms: judged jointly over seeds, never by one run.

Formulas: Kleinrock, Queueing Systems I (1975): M/M/c by Erlang C (3.40), M/G/1 by Pollaczek-Khinchine (5.69).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from windtunnel import app
from windtunnel.core.scenario import scenario_from_data


def erlang_c(servers: int, offered: float) -> float:
    b = 1.0
    for k in range(1, servers + 1):
        b = offered * b / (k + offered * b)
    rho = offered / servers
    return b / (1 - rho * (1 - b))


def waits(servers: int, load: float, service: dict[str, Any], seeds: int, jobs: int) -> np.ndarray:
    """Mean waits (in service times) of independent runs, the first tenth of each left out."""
    means = []
    for seed in range(seeds):
        data = {
            "schema": 1,
            "name": "theory",
            "seed": seed,
            "fleet": [{"device": "server", "count": servers}],
            "workload": [
                {
                    "name": "calls",
                    "arrivals": {"process": "poisson", "rate": f"{servers * load} /s"},
                    "ops": [{"service": {"mean": "1 s"} | service}],
                }
            ],
            "stop": {"jobs": jobs},
        }
        recorded = app.run(scenario_from_data(data)).recording.jobs
        kept = slice(jobs // 10, None)
        means.append(float((recorded.start[kept] - recorded.arrival[kept]).mean()) / 1e12)
    return np.array(means)


@pytest.mark.parametrize(
    ("servers", "load", "service", "expected"),
    [
        (1, 0.7, {"distribution": "exponential"}, 0.7 / 0.3),
        (4, 0.8, {"distribution": "exponential"}, erlang_c(4, 3.2) / (4 * 0.2)),
        (1, 0.6, {"distribution": "deterministic"}, 0.6 / (2 * 0.4)),
        (1, 0.5, {"distribution": "lognormal", "cv": 1.5}, 0.5 * (1 + 1.5**2) / (2 * 0.5)),
        (1, 0.5, {"distribution": "gamma", "cv": 0.5}, 0.5 * (1 + 0.5**2) / (2 * 0.5)),
        (1, 0.5, {"distribution": "weibull", "cv": 2.0}, 0.5 * (1 + 2.0**2) / (2 * 0.5)),
    ],
)
def test_mean_wait_agrees_with_theory(servers: int, load: float, service: dict[str, Any], expected: float) -> None:
    found = waits(servers, load, service, seeds=16, jobs=12_000)
    error = found.std(ddof=1) / math.sqrt(len(found))
    # Four standard errors of the mean over seeds: a correct engine misses one time in some thousands.
    assert abs(found.mean() - expected) < 4 * error + 0.002
    # And the standard error is small enough for the comparison to mean something.
    assert error < 0.12 * expected


def test_a_wrong_service_time_would_be_caught() -> None:
    found = waits(1, 0.7, {"distribution": "exponential", "mean": "1.05 s"}, seeds=16, jobs=12_000)
    error = found.std(ddof=1) / math.sqrt(len(found))
    assert abs(found.mean() - 0.7 / 0.3) > 4 * error


def test_intervals_of_single_runs_hold_the_truth_about_as_often_as_they_say() -> None:
    """M/M/1 at load 0.5: the mean latency is 2 s. Ninety-five of a hundred intervals should hold it."""
    held = 0
    for seed in range(60):
        data = {
            "schema": 1,
            "name": "coverage",
            "seed": 1000 + seed,
            "fleet": [{"device": "server"}],
            "workload": [
                {
                    "name": "calls",
                    "arrivals": {"process": "poisson", "rate": "0.5 /s"},
                    "ops": [{"service": {"mean": "1 s", "distribution": "exponential"}}],
                }
            ],
            "stop": {"jobs": 6000},
        }
        mean = app.run(scenario_from_data(data)).result["latency_s"]["mean"]
        assert mean["high"] - mean["low"] < 0.6  # and they are narrow enough to say something
        held += mean["low"] <= 2.0 <= mean["high"]
    # Of 60 at 95%, 51 to 60 hold in all but one case in a thousand.
    assert 51 <= held <= 60
