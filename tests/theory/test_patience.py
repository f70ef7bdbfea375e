"""Jobs that give up waiting: the Erlang-A queue M/M/c+M, and M/M/1+D, against closed forms.

The numbers of waiting jobs form a birth-death process: with n jobs present the death rate is min(n, c) mu + max(n - c,
0) theta (Palm, 1943; Garnett, Mandelbaum and Reiman, "Designing a call center with impatient customers", 2002).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

import windtunnel
from windtunnel.core.recording import DROPPED
from windtunnel.scenario.read import scenario_from_data

SEEDS, JOBS = 12, 6_000
FAR = 4.9
"""Student's t with 11 degrees of freedom is beyond it one time in 2,100."""


def erlang_a(rate_per_s: float, service_s: float, servers: int, patience_s: float) -> tuple[float, float]:
    """Return the share of jobs that leave, and the mean number of waiting jobs."""
    weights, weight = [1.0], 1.0
    for present in range(1, 2_000):
        leaving = min(present, servers) / service_s + max(present - servers, 0) / patience_s
        weight *= rate_per_s / leaving
        weights.append(weight)
    shares = np.array(weights) / np.sum(weights)
    waiting = float((np.maximum(np.arange(2_000) - servers, 0) * shares).sum())
    return waiting / patience_s / rate_per_s, waiting


def constant_patience(rate_per_s: float, service_s: float, patience_s: float) -> float:
    """Return the share of jobs that leave one server if each waits exactly ``patience_s``.

    The work that an arriving job finds has the density proportional to exp((lambda - mu) w) for w below the patience and
    exp(-mu w) times a constant above it (Barrer, 1957; Baccelli and Hebuterne, 1981). A job leaves if it finds more.
    """
    arrival, service = rate_per_s, 1 / service_s
    below, _ = quad(lambda work: arrival * math.exp((arrival - service) * work), 0, patience_s)
    above = arrival * math.exp(arrival * patience_s) * math.exp(-service * patience_s) / service
    return above / (1 + below + above)


def of_runs(rate: float, servers: int, patience: object, late: float = 1.0) -> np.ndarray:
    """(SEEDS, 2): the share of jobs that left, and the mean number of waiting jobs; the first sixth is left out."""
    found = []
    for seed in range(SEEDS):
        data = {
            "schema": 1,
            "name": "patience",
            "seed": seed,
            "fleet": [{"device": "server", "count": servers}],
            "workload": [
                {
                    "name": "calls",
                    "arrivals": {"process": "poisson", "rate": f"{rate} /s"},
                    "ops": [{"service": {"distribution": "exponential", "mean": f"{10 * late} ms"}}],
                    "patience": patience,
                }
            ],
            "stop": {"jobs": JOBS},
        }
        recording = windtunnel.run(scenario_from_data(data)).recording
        kept = recording.jobs.status[JOBS // 6 :]
        found.append((float((kept == DROPPED).mean()), recording.waiting.mean()))
    return np.array(found)


def t_value(values: np.ndarray, expected: float) -> float:
    return float((values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values))))


@pytest.mark.parametrize(
    ("rate", "servers", "patience_s"), [(80, 1, 0.02), (380, 4, 0.01), (500, 4, 0.02), (1500, 4, 0.05)]
)
def test_jobs_leave_as_often_as_the_erlang_a_queue_says(rate: float, servers: int, patience_s: float) -> None:
    share, waiting = erlang_a(rate, 0.01, servers, patience_s)
    found = of_runs(rate, servers, {"distribution": "exponential", "mean": f"{patience_s} s"})
    assert abs(t_value(found[:, 0], share)) < FAR
    assert abs(t_value(found[:, 1], waiting)) < FAR


@pytest.mark.parametrize(("rate", "patience_s"), [(80, 0.02), (120, 0.03)])
def test_jobs_of_constant_patience_leave_as_often_as_theory_says(rate: float, patience_s: float) -> None:
    found = of_runs(rate, 1, f"{patience_s} s")
    assert abs(t_value(found[:, 0], constant_patience(rate, 0.01, patience_s))) < FAR


def test_a_service_time_a_few_per_cent_off_would_be_caught() -> None:
    share, _ = erlang_a(500, 0.01, 4, 0.02)
    found = of_runs(500, 4, {"distribution": "exponential", "mean": "20 ms"}, late=1.05)
    assert abs(t_value(found[:, 0], share)) > FAR
