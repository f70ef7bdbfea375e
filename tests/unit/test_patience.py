"""Patience and pauses between attempts: exact small cases, in both engines, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.app.run import save
from windtunnel.core.errors import InputError
from windtunnel.core.recording import COMPLETED, DROPPED, FAILED, Recording
from windtunnel.planning.planner import Planner
from windtunnel.scenario.read import scenario_from_data

MS = 10**9
ENGINES = ["process", "compiled"]


def scenario(at: list[int], service: str = "10 ms", tmp: Path | None = None, **more: Any) -> dict[str, Any]:
    """One server and jobs that arrive at these milliseconds."""
    assert tmp is not None
    (tmp / "rows.csv").write_text("\n".join(["t", *(f"{ms / 1000:.3f}" for ms in at)]) + "\n")
    work = {
        "name": "w",
        "arrivals": {"process": "trace", "file": str(tmp / "rows.csv"), "time": "t"},
        "ops": [{"service": {"distribution": "deterministic", "mean": service}}],
    }
    data = {"schema": 1, "name": "patience", "fleet": [{"device": "server"}], "workload": [work]}
    work |= more.pop("work", {})
    return data | more


def recording(data: dict[str, Any], engine: str) -> Recording:
    found = windtunnel.run(scenario_from_data(data), engine=engine).recording
    assert isinstance(found, Recording)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_leaves_at_the_end_of_its_patience_unless_it_can_start_at_that_tick(engine: str, tmp_path: Path) -> None:
    jobs = recording(scenario([0, 1, 2, 5], tmp=tmp_path, work={"patience": "9 ms"}), engine).jobs
    # The second one starts at 10 ms, where its patience ends; the third leaves at 11 ms; the last at 14 ms.
    assert jobs.status.tolist() == [COMPLETED, COMPLETED, DROPPED, DROPPED]
    assert jobs.start.tolist() == [0, 10 * MS, -1, -1]
    assert jobs.finish.tolist() == [10 * MS, 20 * MS, 11 * MS, 14 * MS]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", ["fifo", "least-loaded", "priority", "shortest-job-first"])
def test_without_patience_for_any_wait_only_those_who_find_an_idle_device_are_served(
    engine: str, policy: str, tmp_path: Path
) -> None:
    data = scenario([0, 0, 3, 10, 12], tmp=tmp_path, work={"patience": "0 s"}, policy=policy)
    assert recording(data, engine).jobs.status.tolist() == [COMPLETED, DROPPED, DROPPED, COMPLETED, DROPPED]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_interrupted_job_does_not_leave(engine: str, tmp_path: Path) -> None:
    fault = {"kind": "failure", "at": ["5 ms"], "duration": "30 ms"}
    jobs = recording(scenario([0], tmp=tmp_path, work={"patience": "1 ms"}, faults=[fault]), engine).jobs
    assert (jobs.status[0], jobs.start[0], jobs.finish[0]) == (COMPLETED, 35 * MS, 45 * MS)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_that_no_device_accepts_leaves_too(engine: str, tmp_path: Path) -> None:
    fault = {"kind": "failure", "at": ["0 s"], "duration": "30 ms"}
    data = scenario([0, 24], tmp=tmp_path, work={"patience": "8 ms"}, faults=[fault], policy="least-loaded")
    jobs = recording(data, engine).jobs
    assert jobs.status.tolist() == [DROPPED, COMPLETED]
    assert jobs.finish.tolist() == [8 * MS, 40 * MS]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
def test_pauses_grow_up_to_the_longest(engine: str, policy: str, tmp_path: Path) -> None:
    """Each attempt of 10 ms is interrupted until the fourth; the pauses are 3, 6 and 8 ms."""
    at, tick = [], 0
    for pause in (3, 6, 8):
        at.append(f"{tick + 5} ms")
        tick += 5 + pause
    pause = {"first": "3 ms", "factor": 2, "max": "8 ms"}
    fault = {"kind": "failure", "at": at, "duration": "1 ms", "max_attempts": 4, "pause": pause}
    jobs = recording(scenario([0], tmp=tmp_path, faults=[fault], policy=policy), engine).jobs
    assert (jobs.starts[0], jobs.start[0], jobs.finish[0]) == (4, tick * MS, (tick + 10) * MS)


@pytest.mark.parametrize("engine", ENGINES)
def test_others_are_served_during_a_pause_and_a_job_out_of_attempts_fails_at_once(engine: str, tmp_path: Path) -> None:
    fault = {"kind": "failure", "at": ["5 ms", "32 ms"], "duration": "1 ms", "max_attempts": 2, "pause": "20 ms"}
    jobs = recording(scenario([0, 1], tmp=tmp_path, faults=[fault]), engine).jobs
    # The first job pauses from 5 to 25 ms, and is interrupted for the second time.
    assert jobs.status.tolist() == [FAILED, COMPLETED]
    assert jobs.start.tolist() == [25 * MS, 6 * MS] and jobs.finish.tolist() == [32 * MS, 16 * MS]


def test_the_scenario_s_patience_is_that_of_the_i_th_job_whatever_the_fleet(tmp_path: Path) -> None:
    work = {"patience": {"distribution": "exponential", "mean": "5 ms"}}
    at = list(range(0, 400, 2))
    few = recording(scenario(at, tmp=tmp_path, work=work), "process").jobs
    more = recording(scenario(at, tmp=tmp_path, work=work, fleet=[{"device": "server", "count": 3}]), "process").jobs
    left = (few.status == DROPPED) & (more.status == DROPPED)
    assert left.sum() > 10
    assert np.array_equal((few.finish - few.arrival)[left], (more.finish - more.arrival)[left])


def test_what_left_is_reported(tmp_path: Path) -> None:
    data = scenario([0, 1, 2, 5], tmp=tmp_path, work={"patience": "9 ms"}, targets=["completed >= 99 %"])
    finished = windtunnel.run(scenario_from_data(data))
    result = finished.result
    assert (result.jobs.completed, result.jobs.dropped) == (2, 2)
    assert not result.targets[0].met and result.targets[0].value == 0.5
    save(finished, tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "jobs.csv").read_text().splitlines()))
    assert [row["status"] for row in rows] == ["completed", "completed", "dropped", "dropped"]
    assert [row["finish_s"] for row in rows][2:] == ["0.011", "0.014"] and rows[2]["latency_s"] == ""


def test_a_long_run_counts_what_left() -> None:
    data = {
        "schema": 1,
        "name": "long",
        "fleet": [{"device": "server", "count": 2}],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "poisson", "rate": "300 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "10 ms"}}],
                "patience": {"distribution": "exponential", "mean": "30 ms"},
            }
        ],
        "stop": {"jobs": 5_000},
    }
    whole = windtunnel.run(scenario_from_data(data), engine="compiled").result
    sums = windtunnel.run(scenario_from_data(data | {"records": "sample"}), engine="compiled").result
    assert whole.jobs.dropped > 500
    assert vars(sums.jobs) == vars(whole.jobs)
    assert sums.waiting_s.mean.value == pytest.approx(whole.waiting_s.mean.value, rel=0.05)


@pytest.mark.parametrize(
    ("work", "faults", "message"),
    [
        (
            {"patience": "0 s", "arrivals": {"process": "closed", "users": 1, "think": {"mean": "0 s"}}},
            [],
            "without end",
        ),
        ({"patience": "-1 s"}, [], "patience"),
        ({"patience": {"mean": "1 s", "distribution": "expo"}}, [], "patience"),
        ({}, [{"kind": "failure", "at": ["1 s"], "pause": {"first": "1 s", "factor": 0.5}}], "factor"),
        ({}, [{"kind": "throttle", "at": ["1 s"], "duration": "1 s", "speed": 0.5, "pause": "1 s"}], "pause"),
    ],
)
def test_bad_input_names_the_key(work: dict[str, Any], faults: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        scenario_from_data(scenario([0], tmp=tmp_path, work=work, faults=faults))
    assert message in str(caught.value)


def test_a_plan_for_jobs_that_may_leave_needs_a_target_on_those_that_stay(tmp_path: Path) -> None:
    data = scenario([0] * 6, tmp=tmp_path, work={"patience": "1 ms"}, targets=["latency p99 <= 10 s"])
    data["fleet"] = [{"device": "server", "price": "1 USD/h"}]
    with pytest.raises(InputError, match="targets: jobs of 'w' may give up waiting.*completed >= 99 %"):
        Planner(scenario_from_data(data), windtunnel.catalogue(), 1, None).run()
    data["targets"] = ["completed >= 50 %"]
    half = Planner(scenario_from_data(data), windtunnel.catalogue(), 1, None).run()
    data["targets"] = ["completed >= 99 %"]
    found = Planner(scenario_from_data(data), windtunnel.catalogue(), 1, None).run()
    assert [n.fleets[0].entries["server"] if n.fleets else None for n in (half, found)] == [3, 6]


def test_a_plan_for_jobs_that_may_be_rejected_needs_a_target_on_those_that_are_not(tmp_path: Path) -> None:
    data = scenario([0] * 6, tmp=tmp_path, work={"max_waiting": 1}, targets=["latency p99 <= 10 s"])
    data["fleet"] = [{"device": "server", "price": "1 USD/h"}]
    with pytest.raises(InputError, match="targets: jobs of 'w' may be rejected.*completed >= 99 %"):
        Planner(scenario_from_data(data), windtunnel.catalogue(), 1, None).run()
    data["targets"] = ["completed >= 99 %"]
    found = Planner(scenario_from_data(data), windtunnel.catalogue(), 1, None).run()
    # One of the six waits beside those that start.
    assert found.fleets[0].entries["server"] == 5
