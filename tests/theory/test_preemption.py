"""Preemption against closed forms of queueing theory, by t-tests over independent runs.

Preemptive-resume M/G/1: with arrival rates l_k, service times S_k, and s_k the load of the classes 1 to k (1 is the most
urgent), class k has the mean sojourn time

    E[S_k] / (1 - s_{k-1}) + (sum over i <= k of l_i E[S_i^2] / 2) / ((1 - s_{k-1}) (1 - s_k))

(R. W. Conway, W. L. Maxwell, L. W. Miller, "Theory of Scheduling", 1967, chapter 8; L. Kleinrock, "Queueing Systems",
volume 2, 1976, chapter 3). With restarts the same work is repeated (preemptive-repeat-identical): work of length s that
urgent jobs interrupt at rate l, each time for a busy period of mean b, takes (1/l + b) (E[exp(l s)] - 1) in the mean
(D. P. Gaver, J. R. Stat. Soc. B 24, 1962).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.differential.comparison import prepared

from windtunnel.engine.compiled import run as compiled

SEEDS = 16
FAR = 4.6
"""Standard errors; Student's t with 15 degrees of freedom is beyond them one time in 2,900."""

EXPONENTIAL = {"distribution": "exponential"}
SYSTEMS = {
    "M/M/1": [(0.3, 1.0, EXPONENTIAL, 1.0), (0.25, 1.0, EXPONENTIAL, 1.0), (0.2, 1.0, EXPONENTIAL, 1.0)],
    "M/G/1": [
        (0.2, 1.5, {"distribution": "deterministic"}, 0.0),
        (0.5, 0.5, {"distribution": "gamma", "cv": 0.5}, 0.5),
        (0.1, 2.0, {"distribution": "lognormal", "cv": 1.2}, 1.2),
    ],
}
"""Of each class, the most urgent first: arrivals in 1 s, mean service time (s), its distribution, its coefficient of
variation."""


def scenario(classes: list[Any], mode: str, seed: int, stop: Any, **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "theory",
        "seed": seed,
        "fleet": [{"device": "server"}],
        "workload": [
            {
                "name": f"class {number}",
                "priority": -number,
                "arrivals": {"process": "poisson", "rate": f"{rate} /s"},
                "ops": [{"service": {"mean": f"{mean_s} s", **drawn}}],
            }
            for number, (rate, mean_s, drawn, _) in enumerate(classes)
        ],
        "policy": {"name": "priority", "preemption": mode},
        "stop": stop,
        **more,
    }


def mean_sojourns_s(classes: list[Any]) -> list[float]:
    """Return the mean sojourn time of each class with preemptive-resume priorities."""
    times, load, residual = [], 0.0, 0.0
    for rate, mean_s, _, cv in classes:
        above = load
        load += rate * mean_s
        residual += rate * mean_s**2 * (1 + cv**2) / 2
        times.append(mean_s / (1 - above) + residual / ((1 - above) * (1 - load)))
    return times


@pytest.mark.parametrize("classes", SYSTEMS.values(), ids=SYSTEMS)
def test_mean_sojourn_times_with_resume_agree_with_theory(classes: list[Any]) -> None:
    found: list[list[float]] = [[] for _ in classes]
    for seed in range(SEEDS):
        jobs = compiled.run(prepared(scenario(classes, "resume", seed, {"jobs": 20_000}))).jobs
        kept = np.arange(len(jobs)) >= len(jobs) // 10
        for number, values in enumerate(found):
            mine = kept & (jobs.workload == number)
            values.append(float((jobs.finish[mine] - jobs.arrival[mine]).mean()) / 1e12)
    for values, truth in zip(found, mean_sojourns_s(classes), strict=True):
        error = np.std(values, ddof=1) / math.sqrt(SEEDS)
        assert abs(np.mean(values) - truth) < FAR * error


@pytest.mark.parametrize("mean_s", [0.5, 1.5])
def test_completion_times_with_restart_agree_with_theory(mean_s: float) -> None:
    """Work of lower priority is always present, and a completion finds no urgent job."""
    rate, urgent_s = 0.5, 0.6
    data = scenario([(rate, urgent_s, EXPONENTIAL, 1.0), (1, 1, {}, 0)], "restart", 3, {"time": "20000 s"})
    data["workload"][1]["arrivals"] = {"process": "deterministic", "rate": "2 /s"}
    data["workload"][1]["ops"] = [{"service": {"distribution": "deterministic", "mean": f"{mean_s} s"}}]
    jobs = compiled.run(prepared(data)).jobs
    finish = np.sort(jobs.finish[(jobs.workload == 1) & (jobs.finish >= 0)])
    times = np.diff(finish) / 1e12
    busy_s = urgent_s / (1 - rate * urgent_s)
    truth = (1 / rate + busy_s) * (math.exp(rate * mean_s) - 1)
    error = times.std(ddof=1) / math.sqrt(len(times))
    assert abs(times.mean() - truth) < 4.4 * error
    resumed = mean_s * (1 + rate * busy_s)
    assert abs(times.mean() - resumed) > 9 * error


@pytest.mark.parametrize("mode", ["resume", "restart"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_most_urgent_class_sees_a_queue_as_if_it_were_alone(mode: str, count: int) -> None:
    """Its jobs start and finish at the same ticks without the other classes."""
    for seed in range(10):
        classes = [(0.5 * count, 1.0, EXPONENTIAL, 1.0), (0.4 * count, 1.0, EXPONENTIAL, 1.0)]
        fleet = [{"device": "server", "count": count}]
        both = scenario(classes, mode, seed, {"time": "500 s"}, fleet=fleet)
        alone = scenario(classes[:1], mode, seed, {"time": "500 s"}, fleet=fleet)
        one, other = compiled.run(prepared(both)), compiled.run(prepared(alone))
        mine = one.jobs.workload == 0
        assert one.progress is not None and one.progress.preemptions > 20
        for name in ("arrival", "start", "finish"):
            assert np.array_equal(getattr(one.jobs, name)[mine], getattr(other.jobs, name))
