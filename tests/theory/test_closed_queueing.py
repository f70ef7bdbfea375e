"""Closed-loop users against the machine-repairman model, the response time law and the asymptotic bounds.

As in test_queueing.py, means are judged by a t-test over seeds, and a think time a few per cent off is shown to be
caught. The law and the bounds hold of every single run, whatever is drawn, up to what is cut off at its end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.theory.queueing import MachineRepairman, asymptotic_throughput_per_s, response_time_s

import windtunnel
from windtunnel.scenario.read import scenario_from_data

SEEDS = 12
FAR = 4.9
"""Student's t with 11 degrees of freedom is beyond it one time in 2,100."""


def scenario(users: int, think: dict[str, Any], servers: int, service: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "closed",
        "fleet": [{"device": "server", "count": servers}],
        "workload": [
            {
                "name": "people",
                "arrivals": {"process": "closed", "users": users, "think": think},
                "ops": [{"service": service}],
            }
        ],
    } | more


def of_runs(model: MachineRepairman, think: dict[str, Any], *, longer: float = 1.0) -> np.ndarray:
    """(SEEDS, 2): jobs a second and mean response (s) of independent runs, their first sixth left out."""
    found = []
    span_s = 3_000 / model.throughput_per_s()
    for seed in range(SEEDS):
        data = scenario(
            model.users,
            {"mean": f"{model.think_s * longer} s"} | think,
            model.servers,
            {"distribution": "exponential", "mean": f"{model.service_s} s"},
            seed=seed,
            stop={"time": f"{span_s} s"},
        )
        jobs = windtunnel.run(scenario_from_data(data)).recording.jobs
        begin = round(span_s / 6 * 1e12)
        ended = jobs.finish[(jobs.finish >= begin)]
        response = (jobs.finish - jobs.arrival)[jobs.finish >= begin] / 1e12
        found.append((len(ended) / (span_s * 5 / 6), float(response.mean())))
    return np.array(found)


def errors_off(values: np.ndarray, truth: float) -> float:
    return abs(float(values.mean()) - truth) / (float(values.std(ddof=1)) / math.sqrt(len(values)))


SYSTEMS = {
    "M/M/1//10, half busy": (MachineRepairman(10, 18.0, 1.0), {"distribution": "exponential"}),
    "M/M/1//10, saturated": (MachineRepairman(10, 4.0, 1.0), {"distribution": "exponential"}),
    "M/M/4//24": (MachineRepairman(24, 6.0, 1.0, 4), {"distribution": "exponential"}),
    "deterministic think times": (MachineRepairman(12, 12.0, 1.0), {"distribution": "deterministic"}),
    "lognormal think times": (MachineRepairman(8, 5.0, 1.0, 2), {"distribution": "lognormal", "cv": 2.0}),
}


@pytest.mark.parametrize(("model", "think"), SYSTEMS.values(), ids=SYSTEMS)
def test_throughput_and_response_are_the_machine_repairmans(model: MachineRepairman, think: dict[str, Any]) -> None:
    found = of_runs(model, think)
    assert errors_off(found[:, 0], model.throughput_per_s()) < FAR
    assert errors_off(found[:, 1], model.mean_response_s()) < FAR
    # The comparison means something: the runs together know the response well.
    assert float(found[:, 1].std(ddof=1)) / math.sqrt(SEEDS) < 0.04 * model.mean_response_s()


def test_a_think_time_a_few_per_cent_off_would_be_caught() -> None:
    model, think = SYSTEMS["M/M/1//10, half busy"]
    assert errors_off(of_runs(model, think, longer=1.05)[:, 0], model.throughput_per_s()) > FAR
    model, think = SYSTEMS["M/M/4//24"]
    assert errors_off(of_runs(model, think, longer=1.06)[:, 0], model.throughput_per_s()) > FAR


@settings(max_examples=30)
@given(
    st.integers(1, 30),
    st.floats(0.0, 20.0),
    st.integers(1, 4),
    st.sampled_from(["deterministic", "exponential", "lognormal"]),
    st.sampled_from(["fifo", "least-loaded", "shortest-job-first"]),
    st.integers(0, 1000),
)
def test_the_response_time_law_and_the_bounds_hold_of_every_run(
    users: int, think_s: float, servers: int, service: str, policy: str, seed: int
) -> None:
    span_s = 200.0
    think = {"distribution": "deterministic", "mean": f"{think_s} s"}
    stated = {"distribution": service, "mean": "1 s"}
    data = scenario(users, think, servers, stated, policy=policy, seed=seed, stop={"time": f"{span_s} s"})
    jobs = windtunnel.run(scenario_from_data(data)).recording.jobs
    done = jobs.finish >= 0
    response = (jobs.finish - jobs.arrival)[done] / 1e12
    # Each user's time is whole cycles of thinking and waiting, and one that was cut off.
    waited = (np.where(done, jobs.finish, round(span_s * 1e12)) - jobs.arrival) / 1e12
    cut = users * (think_s + float(waited.max(initial=0.0))) + 1e-6
    assert 0 <= users * span_s - float(response.sum()) - think_s * done.sum() + 1e-6 <= cut
    if done.sum() > 20 * users:
        law = response_time_s(users, float(done.sum()) / span_s, think_s)
        assert abs(law - float(response.mean())) <= cut / float(done.sum()) + 1e-9
    # No more users wait than there are.
    at = np.concatenate([jobs.arrival, jobs.finish[done]])
    change = np.concatenate([np.ones(len(jobs)), -np.ones(int(done.sum()))])
    order = np.lexsort((change, at))
    assert np.cumsum(change[order]).max(initial=0) <= users
    if service == "deterministic":
        assert done.sum() <= asymptotic_throughput_per_s(users, think_s, 1.0, servers) * span_s + 1e-6


def test_the_closed_form_meets_its_own_limits() -> None:
    # One user never waits; very many keep the servers busy; with hardly any thinking all but the served wait.
    assert MachineRepairman(1, 3.0, 2.0).mean_response_s() == pytest.approx(2.0, rel=1e-12)
    assert MachineRepairman(4, 3.0, 2.0, 4).mean_response_s() == pytest.approx(2.0, rel=1e-12)
    assert MachineRepairman(5000, 10.0, 1.0, 3).throughput_per_s() == pytest.approx(3.0, rel=1e-9)
    assert MachineRepairman(7, 1e-9, 1.0).mean_response_s() == pytest.approx(7.0, rel=1e-6)
    # Two users, one server, Z = S = 1, by hand: weights 1, 2, 2 for 0, 1, 2 at the server.
    assert MachineRepairman(2, 1.0, 1.0).numbers() == pytest.approx([0.2, 0.4, 0.4], rel=1e-12)
    for users in range(1, 40):
        model = MachineRepairman(users, 6.0, 1.0, 2)
        assert model.throughput_per_s() <= asymptotic_throughput_per_s(users, 6.0, 1.0, 2) * (1 + 1e-12)
