"""Closed-loop users: when they submit, what their draws belong to, what ends them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases import search_alone

import windtunnel
from windtunnel.app import plan as planner
from windtunnel.core.errors import InputError
from windtunnel.core.results.data import result_json
from windtunnel.engine.arrivals import ThinkTimes
from windtunnel.engine.prepare import users
from windtunnel.scenario.arrivals import Closed
from windtunnel.scenario.read import scenario_from_data

SECOND = 10**12


def closed(count: int = 1, **think: Any) -> dict[str, Any]:
    return {"process": "closed", "users": count, "think": {"distribution": "deterministic", "mean": "2 s"} | think}


def work(
    name: str, arrivals: dict[str, Any], mean: str = "3 s", distribution: str = "deterministic", **more: Any
) -> Any:
    return {
        "name": name,
        "arrivals": arrivals,
        "ops": [{"service": {"distribution": distribution, "mean": mean}}],
    } | more


def scenario(*workload: Any, servers: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "closed",
        "fleet": [{"device": "server", "count": servers}],
        "workload": list(workload),
        "stop": {"jobs": 10},
    } | more


def jobs_of(data: dict[str, Any]) -> Any:
    return windtunnel.run(scenario_from_data(data)).recording.jobs


def test_a_user_thinks_submits_waits_and_thinks_again() -> None:
    jobs = jobs_of(scenario(work("one", closed()), stop={"jobs": 4}))
    assert (jobs.arrival // SECOND).tolist() == [2, 7, 12, 17]
    assert (jobs.finish // SECOND).tolist() == [5, 10, 15, 20]


def test_a_user_waits_for_those_before_it() -> None:
    jobs = jobs_of(scenario(work("two", closed(2)), stop={"jobs": 5}))
    # Both submit at 2; the second is done at 8; the first thinks until 7 and waits until 8.
    assert (jobs.arrival // SECOND).tolist() == [2, 2, 7, 10, 13]
    assert (jobs.finish // SECOND).tolist() == [5, 8, 11, 14, 17]


def test_jobs_of_one_tick_are_numbered_by_workload_then_user_after_what_ends_then() -> None:
    first = work("first", closed(2), priority=0)
    steady = work("steady", {"process": "deterministic", "rate": "0.5 /s"})
    last = work("last", closed(1, mean="2 s"))
    jobs = jobs_of(scenario(first, steady, last, servers=4, stop={"time": "9 s"}))
    assert jobs.arrival[:4].tolist() == [2 * SECOND] * 4
    assert jobs.workload[:4].tolist() == [0, 0, 1, 2]
    # What ends at a tick goes before what arrives then: the device of the first job is free for the ones at 7 s.
    assert jobs.device[:4].tolist() == [0, 1, 2, 3]
    at = jobs.arrival == 7 * SECOND
    assert jobs.workload[at].tolist() == [0, 0, 2] and (jobs.arrival[5:] >= jobs.arrival[4:-1]).all()


def test_no_thinking_keeps_every_user_waiting_always() -> None:
    jobs = jobs_of(scenario(work("busy", closed(3, mean="0 s")), servers=2, stop={"jobs": 50}))
    assert len(jobs) == 50
    one_after_another = np.sort(jobs.start)
    assert (one_after_another // SECOND).tolist() == sorted([3 * (i // 2) for i in range(50)])


@pytest.mark.parametrize("distribution", ["exponential", "lognormal", "gamma", "weibull"])
def test_think_times_have_their_mean_and_cv_and_no_user_moves_another(distribution: str) -> None:
    cv = {} if distribution == "exponential" else {"cv": 0.6}
    think = {"distribution": distribution, "mean": "4 s"} | cv

    def times(count: int) -> ThinkTimes:
        return ThinkTimes(Closed.model_validate(closed(count, **think)), 3, "people")

    few, many = times(3), times(200)
    # Asked for in another order, and with more users: the same.
    assert [few.ticks(2, k) for k in range(100)] == [many.ticks(2, k) for k in reversed(range(100))][::-1]
    assert many.first().tolist() == [many.ticks(user, 0) for user in range(200)]
    drawn = np.array([many.ticks(user, k) for user in range(200) for k in range(100)]) / 1e12
    assert drawn.mean() == pytest.approx(4.0, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(1.0 if not cv else 0.6, rel=0.05)
    other = ThinkTimes(Closed.model_validate(closed(3, **think)), 3, "others")
    assert other.ticks(0, 0) != few.ticks(0, 0)


def test_other_workloads_move_no_arrival() -> None:
    mine = work("mine", closed(5, distribution="exponential"), devices=["mine"])
    other = work("other", {"process": "poisson", "rate": "0.2 /s"}, devices=["other"])
    fleet = [{"device": "server", "name": "mine"}, {"device": "server", "name": "other"}]
    alone = jobs_of(scenario(mine, fleet=fleet[:1], stop={"time": "500 s"}))
    both = jobs_of(scenario(other, mine, fleet=fleet, stop={"time": "500 s"}))
    only = jobs_of(scenario(other, fleet=fleet[1:], stop={"time": "500 s"}))
    assert np.array_equal(alone.arrival, both.arrival[both.workload == 1])
    assert np.array_equal(only.arrival, both.arrival[both.workload == 0])
    assert (np.diff(both.arrival) >= 0).all()


def test_a_longer_run_begins_with_a_shorter_one() -> None:
    mine = work("mine", closed(5, distribution="exponential"), distribution="exponential", mean="1 s")
    short = jobs_of(scenario(mine, stop={"time": "100 s"}))
    long = jobs_of(scenario(mine, stop={"time": "300 s"}))
    counted = jobs_of(scenario(mine, stop={"jobs": len(long)}))
    assert np.array_equal(short.arrival, long.arrival[: len(short)])
    assert np.array_equal(counted.arrival, long.arrival)
    assert (short.arrival < 100 * SECOND).all()


def test_more_jobs_than_were_reckoned_with_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = work("mine", closed(5, distribution="exponential"), distribution="exponential", mean="1 s")
    slow = [{"kind": "straggler", "probability": 0.2, "slowdown": 3.0}]
    data = scenario(mine, stop={"time": "300 s"}, faults=slow)
    roomy = windtunnel.run(scenario_from_data(data))
    monkeypatch.setattr(users, "_FIRST_CAPACITY", 20)
    tight = windtunnel.run(scenario_from_data(data))
    assert len(roomy.recording.jobs) > 200
    assert result_json(roomy.result) == result_json(tight.result)


def test_a_stop_after_jobs_counts_all_of_them_and_drains() -> None:
    mine, other = work("mine", closed(4)), work("other", {"process": "poisson", "rate": "0.1 /s"})
    finished = windtunnel.run(scenario_from_data(scenario(mine, other, stop={"jobs": 60}))).result
    assert finished.jobs.arrived == finished.jobs.completed == 60
    assert all(w.jobs.arrived > 5 for w in finished.workloads)


def test_a_job_that_is_given_up_is_an_answer() -> None:
    fails = [{"kind": "failure", "at": ["4 s", "30 s"], "duration": "1 s", "on_failure": "fail"}]
    data = scenario(work("mine", closed(1)), stop={"time": "60 s"}, faults=fails)
    finished = windtunnel.run(scenario_from_data(data))
    jobs = finished.recording.jobs
    assert finished.result.jobs.failed >= 1
    # The job of 2 s is lost at 4 s; its user thinks until 6 s and goes on.
    assert (jobs.arrival[:3] // SECOND).tolist() == [2, 6, 11]


def test_a_job_that_is_tried_again_is_waited_for() -> None:
    fails = [{"kind": "failure", "at": ["4 s"], "duration": "1 s", "on_failure": "retry"}]
    jobs = jobs_of(scenario(work("mine", closed(1)), stop={"jobs": 3}, faults=fails))
    assert (jobs.arrival // SECOND).tolist() == [2, 10, 15] and jobs.starts.tolist() == [2, 1, 1]


def test_users_generate_too() -> None:
    chat = {
        "name": "chat",
        "arrivals": closed(4, mean="1 s", distribution="exponential"),
        "ops": [{"generate": {"model": "m", "prompt": 100, "output": 20}}],
    }
    data = scenario(
        chat,
        fleet=[{"device": "l4"}],
        models={"m": {"layers": 4, "width": 1024, "heads": 8, "feed_forward": 4096}},
        policy={"name": "fifo", "batch": {"kind": "continuous", "size": 8}},
        stop={"time": "20 s"},
    )
    finished = windtunnel.run(scenario_from_data(data)).result
    assert finished.jobs.completed > 30 and finished.serving.ttft_s.mean.value > 0


def test_many_users_wait_long_and_are_not_called_unstable() -> None:
    mine = work("mine", closed(3000, mean="100 s"), distribution="exponential", mean="1 s")
    statistics = windtunnel.run(scenario_from_data(scenario(mine, stop={"jobs": 3000}))).result.statistics
    assert statistics.steady_state == "not shown" and statistics.offered_load is None
    open_too = work("open", {"process": "poisson", "rate": "2 /s"}, distribution="exponential", mean="1 s")
    statistics = windtunnel.run(scenario_from_data(scenario(mine, open_too, stop={"jobs": 3000}))).result.statistics
    assert statistics.steady_state == "unstable" and statistics.offered_load == pytest.approx(2.0)


def test_more_users_are_a_heavier_load() -> None:
    process = Closed.model_validate(closed(10))
    assert process.scaled(1.26).users == 13 and process.scaled(0.01).users == 1 and process.stationary


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"workload": [work("mine", closed(0))]}, r"workload\[0\]\.arrivals.*users"),
        ({"workload": [work("mine", closed(1, mean="-1 s"))]}, "negative"),
        (
            {"workload": [work("mine", closed(1, distribution="exponential", cv=2.0))]},
            "cv is not a parameter of the exponential distribution",
        ),
        ({"workload": [work("mine", closed(1, distribution="lognorml"))]}, "lognormal"),
        ({"stop": None}, "without end"),
        ({"stop": {"time": "1 s"}}, "no job arrives"),
        ({"workload": [work("mine", {"process": "mix", "processes": [closed()]})]}, "closed"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        windtunnel.run(scenario_from_data(scenario(work("mine", closed())) | changes))


def test_both_engines_have_the_same_users() -> None:
    data = scenario(work("mine", closed()), targets=["latency p99 <= 5 s"])
    data["fleet"][0]["price"] = "1 USD/h"
    one, other = (windtunnel.run(scenario_from_data(data), engine=engine) for engine in ("process", "compiled"))
    for column in ("arrival", "start", "finish", "device", "workload"):
        assert getattr(one.recording.jobs, column).tolist() == getattr(other.recording.jobs, column).tolist()


@pytest.mark.parametrize("stop", [{"jobs": 4000}, {"time": "20 s"}])
def test_a_plan_for_users_has_a_bound_from_the_throughput(stop: dict[str, Any]) -> None:
    """20 users, 50 ms of work and no thinking: n devices complete 20 n jobs a second."""
    service = {"service": {"distribution": "deterministic", "mean": "50 ms"}}
    users = closed(mean="0 s") | {"users": 20}
    data = scenario(work("mine", users) | {"ops": [service]}, targets=["throughput >= 150 /s"], stop=stop)
    data["fleet"] = [{"device": "server", "price": "1 USD/h"}]
    with search_alone():
        found = planner.plan(scenario_from_data(data), workers=1)
    assert found.fleets[0].entries == {"server": 8} and found.search.proof == "exhaustive"
    assert 7.4 < found.lower_bound.cost_usd_per_h <= 8  # of 7.5 devices
    assert found.search.max == {"server": 50} or found.search.max["server"] >= 20


def test_users_who_would_take_longer_than_a_run_may_last_are_refused() -> None:
    endless = scenario(work("one", closed(mean="90 d")), stop={"jobs": 3})
    with pytest.raises(InputError, match="only 1 of 3 jobs would arrive within the 106 days"):
        jobs_of(endless)
