"""Work on devices that fail, against closed forms: judged over thousands of independent completions.

A job that is retried does the same work again (preemptive-repeat-identical). While work of length s goes on, failures
come at rate f, and each costs what was done and a repair of mean r. The number of starts is geometric with mean
E[exp(f s)], and the time from the first start to the finish has mean (1/f + r)(E[exp(f s)] - 1) (Gaver, "A waiting line
with interrupted service, including priorities", J. R. Stat. Soc. B 24, 1962, repeat-identical). Were the work drawn
anew at every attempt (repeat-different), exponential work of rate m would take (1 + f r)/m, which is less: told apart
here.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import windtunnel
from windtunnel.engine.compiled import run as compiled
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run

JOBS = 8_000

CASES = {
    "short work": ("deterministic", 0.05, 5.0),
    "work as long as the device holds": ("deterministic", 1.0, 0.5),
    "long work": ("deterministic", 2.0, 1.0),
    "exponential work": ("exponential", 0.2, 1.0),
    "exponential work, long repairs": ("exponential", 0.2, 5.0),
}


def completions(
    distribution: str, failures_per_s: float, repair_s: float, seed: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """(seconds from each job's first start to its finish, starts): all are there from the beginning, one at a time.

    When one is done the device is up, and how long it has been so does not matter: completions are independent.
    """
    data = {
        "schema": 1,
        "name": "breakdowns",
        "seed": seed,
        "fleet": [{"device": "server"}],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "deterministic", "rate": "1000000000 /s"},
                "ops": [{"service": {"distribution": distribution, "mean": "1 s"}}],
            }
        ],
        "faults": [{"kind": "failure", "mtbf": f"{1 / failures_per_s!r} s", "mttr": f"{repair_s} s", "max_attempts": 1000}],
        "stop": {"jobs": JOBS},
    }  # fmt: skip
    jobs = compiled.run(prepare_run(scenario_from_data(data), windtunnel.catalogue())).jobs
    return np.diff(jobs.finish) / 1e12, jobs.starts[1:]


def repeats(distribution: str, failures_per_s: float) -> float:
    """E[exp(f s)] of work of mean 1 s."""
    return math.exp(failures_per_s) if distribution == "deterministic" else 1 / (1 - failures_per_s)


def off_by(values: np.ndarray, mean: float) -> float:
    """How many standard errors the mean of independent values lies from ``mean``."""
    return float((values.mean() - mean) / (values.std(ddof=1) / math.sqrt(len(values))))


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {name: completions(*case) for name, case in CASES.items()}


def test_completion_times_and_starts_agree_with_theory(measured: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Ten standard scores, none beyond what one in ten thousand of ten would be."""
    scores = []
    for name, (distribution, rate, repair) in CASES.items():
        times, starts = measured[name]
        repeat = repeats(distribution, rate)
        scores += [off_by(times, (1 / rate + repair) * (repeat - 1)), off_by(starts, repeat)]
    assert np.abs(scores).max() < 4.4, scores
    assert np.square(scores).sum() < 35.6  # chi-squared of 10, one in ten thousand; times and starts go together


def test_work_drawn_anew_would_be_told_apart(measured: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for name, (distribution, rate, repair) in CASES.items():
        if distribution == "exponential":
            assert off_by(measured[name][0], 1 + rate * repair) > 5


def test_of_deterministic_work_the_starts_are_geometric(measured: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """The whole distribution, by Pearson's chi-squared."""
    starts = measured["work as long as the device holds"][1]
    success = math.exp(-1.0)
    seen = np.bincount(np.minimum(starts, 8), minlength=9)[1:]
    share = np.array([success * (1 - success) ** k for k in range(7)] + [(1 - success) ** 7])
    assert ((seen - share * len(starts)) ** 2 / (share * len(starts))).sum() < 29.9  # of 7 degrees, one in ten thousand
