"""What each fault does, to the tick, on both engines, on cases small enough to be worked out by hand."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.app import run as run_command
from windtunnel.core.errors import InputError
from windtunnel.core.recording import COMPLETED, FAILED, QUEUED, RUNNING, Recording
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.report.run_page import render
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run

MS = 10**9
ENGINES = {"process": process.run, "compiled": compiled.run}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def jobs_of(
    engine: str,
    faults: list[dict[str, Any]],
    *,
    arrivals: str = "0 1 2 3",
    service: str = "10 ms",
    count: int = 1,
    fleet: list[dict[str, Any]] | None = None,
    tmp: Path,
    **more: Any,
) -> Recording:
    """Jobs of ``service`` that arrive at the times of ``arrivals`` (ms)."""
    rows = "\n".join(f"{float(at) / 1000:.6f}" for at in arrivals.split())
    (tmp / "t.csv").write_text(f"at\n-0.0\n{rows}\n".replace("-0.0\n", "", 1))
    power = {"idle": "20 W", "max": "100 W"}
    data = {
        "schema": 1,
        "name": "by hand",
        "fleet": fleet or [{"device": "server", "count": count, "power": power}],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "trace", "file": "t.csv", "time": "at"},
                "ops": [{"service": {"distribution": "deterministic", "mean": service}}],
                "deadline": "1 s",
            }
        ],
        "faults": faults,
        **more,
    }
    scenario = scenario_from_data(data, str(tmp / "s.yaml"))
    recording = ENGINES[engine](prepare_run(scenario, windtunnel.catalogue()))
    invariants.check(recording)
    return recording


def milliseconds(values: np.ndarray) -> list[float]:
    return [value / MS if value >= 0 else -1 for value in values.tolist()]


def levels(recording: Recording) -> list[float]:
    """Power of the fleet, each level once as long as it holds."""
    values = recording.power.values.tolist()
    return [value for i, value in enumerate(values) if not i or value != values[i - 1]]


FAILURE = {"kind": "failure", "at": ["4 ms"], "duration": "3 ms"}


@pytest.mark.parametrize(
    "times", [{"at": ["4 ms"], "duration": "1 s"}, {"domain": 2, "mtbf": "3 ms", "mttr": "1000 s"}]
)
def test_a_job_that_moves_does_not_start_on_a_device_that_fails_at_that_tick(
    engine: str, times: dict[str, Any], tmp_path: Path
) -> None:
    """Both devices fail together. If the job moved from the first to the second, it would lose both attempts at once."""
    fault = {"kind": "failure", "on_failure": "migrate", "max_attempts": 2, **times}
    more: dict[str, Any] = {"policy": "least-loaded", "stop": {"time": "90 ms"}}
    recording = jobs_of(engine, [fault], count=2, arrivals="0", service="80 ms", tmp=tmp_path, **more)
    assert recording.returned == 1
    assert (recording.jobs.starts[0], recording.jobs.status[0]) == (1, QUEUED)


def test_a_retried_job_starts_again_from_the_beginning_in_its_old_place(engine: str, tmp_path: Path) -> None:
    recording = jobs_of(engine, [FAILURE], tmp=tmp_path)
    jobs = recording.jobs
    assert milliseconds(jobs.start) == [7, 17, 27, 37]
    assert milliseconds(jobs.finish) == [17, 27, 37, 47]
    assert jobs.starts.tolist() == [2, 1, 1, 1]
    # Four ms of work were lost, and are in the first job's energy all the same.
    assert np.allclose(jobs.energy_j, [0.014 * 80, 0.8, 0.8, 0.8])
    assert recording.devices[0].down_ticks == 3 * MS
    assert recording.devices[0].busy_ticks == 44 * MS
    # In its first attempt the job did not wait; while the device was down it did.
    ticks, values = recording.waiting.ticks, recording.waiting.values
    assert dict(zip(milliseconds(ticks), values.tolist(), strict=True)) == {
        0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 7: 3, 17: 2, 27: 1, 37: 0,
    }  # fmt: skip


def test_a_lost_job_is_failed_and_the_others_go_on(engine: str, tmp_path: Path) -> None:
    jobs = jobs_of(engine, [{**FAILURE, "on_failure": "fail"}], tmp=tmp_path).jobs
    assert jobs.status.tolist() == [FAILED, COMPLETED, COMPLETED, COMPLETED]
    assert milliseconds(jobs.start) == [0, 7, 17, 27]
    assert milliseconds(jobs.finish) == [4, 17, 27, 37]


def test_a_job_is_started_so_many_times_and_then_given_up(engine: str, tmp_path: Path) -> None:
    fault = {"kind": "failure", "at": ["4 ms", "9 ms", "14 ms"], "duration": "1 ms", "max_attempts": 2}
    jobs = jobs_of(engine, [fault], arrivals="0 1", tmp=tmp_path).jobs
    assert jobs.status.tolist() == [FAILED, COMPLETED]
    assert jobs.starts.tolist() == [2, 2]
    assert milliseconds(jobs.finish) == [9, 25]


def test_a_job_that_migrates_and_all_behind_it_are_routed_anew(engine: str, tmp_path: Path) -> None:
    fault = {"kind": "failure", "devices": ["a"], "at": ["4 ms"], "duration": "1 s", "on_failure": "migrate"}
    fleet = [{"device": "server", "name": name} for name in "ab"]
    jobs = jobs_of(engine, [fault], fleet=fleet, policy="least-loaded", tmp=tmp_path).jobs
    # 0 and 2 go to a, 1 and 3 to b; then 0 and 2, in this order, join 3 in b's queue. Order of arrival decides.
    assert jobs.device.tolist() == [1, 1, 1, 1]
    assert milliseconds(jobs.start) == [11, 1, 21, 31]
    assert jobs.starts.tolist() == [2, 1, 1, 1]


def test_a_job_that_retries_waits_for_the_device_it_was_routed_to(engine: str, tmp_path: Path) -> None:
    fault = {"kind": "failure", "devices": ["a"], "at": ["4 ms"], "duration": "96 ms"}
    fleet = [{"device": "server", "name": name} for name in "ab"]
    jobs = jobs_of(engine, [fault], fleet=fleet, policy="least-loaded", tmp=tmp_path).jobs
    assert jobs.device.tolist() == [0, 1, 0, 1]
    assert milliseconds(jobs.start) == [100, 1, 110, 11]


def test_under_one_queue_another_device_takes_what_was_interrupted(engine: str, tmp_path: Path) -> None:
    fault = {"kind": "failure", "devices": ["a"], "at": ["4 ms"], "duration": "96 ms"}
    fleet = [{"device": "server", "name": name} for name in "ab"]
    jobs = jobs_of(engine, [fault], fleet=fleet, arrivals="0 1 2", tmp=tmp_path).jobs
    assert jobs.device.tolist() == [1, 1, 1]
    assert milliseconds(jobs.start) == [11, 1, 21]


def test_a_batch_is_interrupted_as_a_whole(engine: str, tmp_path: Path) -> None:
    batch = {"route": "central", "batch": {"kind": "request", "size": 2, "wait": "2 ms"}}
    jobs = jobs_of(engine, [FAILURE], policy=batch, tmp=tmp_path).jobs
    whole = int(jobs.finish[0] - jobs.start[0])
    assert milliseconds(jobs.start[:2]) == [7, 7] and (jobs.start[2:] == jobs.start[0] + whole).all()
    assert jobs.starts.tolist() == [2, 2, 1, 1]


def test_several_failures_at_once_are_one(engine: str, tmp_path: Path) -> None:
    faults = [
        {"kind": "failure", "at": ["4 ms"], "duration": "3 ms", "on_failure": "fail"},
        {"kind": "failure", "at": ["5 ms", "10 ms"], "duration": "5 ms"},  # from 4 to 15 without a break
    ]
    recording = jobs_of(engine, faults, arrivals="0 1", tmp=tmp_path)
    assert recording.jobs.status.tolist() == [FAILED, COMPLETED]
    assert milliseconds(recording.jobs.start) == [0, 15]
    assert recording.devices[0].down_ticks == 11 * MS


def test_at_one_tick_a_finish_goes_before_a_failure_and_a_failure_before_an_arrival(
    engine: str, tmp_path: Path
) -> None:
    fault = {"kind": "failure", "at": ["0 ms", "20 ms"], "duration": "10 ms", "on_failure": "fail"}
    jobs = jobs_of(engine, [fault], arrivals="0 20", tmp=tmp_path).jobs
    # Down from 0: the first job waits until 10, is done at 20 just before the next failure; the second comes after it.
    assert milliseconds(jobs.start) == [10, 30]
    assert jobs.status.tolist() == [COMPLETED, COMPLETED]


def test_faults_after_the_end_change_nothing(engine: str, tmp_path: Path) -> None:
    late = {"kind": "failure", "at": ["240 h", "12000 h"]}
    assert jobs_of(engine, [late], tmp=tmp_path).end == jobs_of(engine, [], tmp=tmp_path).end == 40 * MS


@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
@pytest.mark.parametrize("becomes", ["retry", "migrate"])
def test_when_all_devices_fail_for_good_the_run_ends_and_the_jobs_are_queued(
    engine: str, tmp_path: Path, policy: str, becomes: str
) -> None:
    faults = [
        {"kind": "failure", "at": ["4 ms"], "on_failure": becomes},
        {"kind": "link-loss", "mean_interval": "1 ms", "duration": "1 ms"},  # which would go on for ever
    ]
    recording = jobs_of(engine, faults, count=2, policy=policy, tmp=tmp_path)
    assert (recording.jobs.status == QUEUED).all()
    assert recording.end == 4 * MS


def test_devices_that_come_back_are_waited_for_where_others_are_gone(engine: str, tmp_path: Path) -> None:
    faults = [
        {"kind": "failure", "devices": ["a"], "at": ["4 ms"]},
        {"kind": "failure", "devices": ["b"], "at": ["4 ms"], "duration": "720 h"},
        {"kind": "throttle", "mean_interval": "24 h", "duration": "1 s", "speed": 0.5},
    ]
    fleet = [{"device": "server", "name": name} for name in "ab"]
    jobs = jobs_of(engine, faults, fleet=fleet, tmp=tmp_path).jobs
    assert (jobs.status == COMPLETED).all() and (jobs.device == 1).all()
    assert jobs.start.min() == 30 * 86400 * 10**12 + 4 * MS


def test_a_throttled_device_takes_longer_and_as_much_energy(engine: str, tmp_path: Path) -> None:
    slow = {"kind": "throttle", "at": ["4 ms"], "duration": "8 ms", "speed": 0.25}
    recording = jobs_of(engine, [slow], arrivals="0", tmp=tmp_path)
    # 4 ms at full speed, 8 at a quarter, 4 at full speed.
    assert milliseconds(recording.jobs.finish) == [16]
    assert np.allclose(recording.jobs.energy_j, 0.8, rtol=1e-6)
    assert levels(recording) == [100, 40, 100]


def test_a_device_throttled_while_idle_is_slow_when_work_comes(engine: str, tmp_path: Path) -> None:
    faults = [
        {"kind": "throttle", "at": ["1 ms"], "duration": "19 ms", "speed": 0.5},
        {"kind": "throttle", "at": ["4 ms"], "duration": "4 ms", "speed": 0.25},  # the slower of two counts
    ]
    # Both are worked on at full speed for 1 ms; the second then has 1.5 ms done by 4, 2.5 by 8, 8.5 by 20.
    work = {"arrivals": "0 1", "count": 2, "tmp": tmp_path}
    assert milliseconds(jobs_of(engine, faults, **work).jobs.finish) == [20.5, 21.5]


def test_an_unreachable_device_goes_on_takes_nothing_new_and_delivers_late(engine: str, tmp_path: Path) -> None:
    lost = {"kind": "link-loss", "at": ["4 ms"], "duration": "20 ms"}
    recording = jobs_of(engine, [lost], arrivals="0 1", tmp=tmp_path)
    assert milliseconds(recording.jobs.finish) == [24, 34]
    assert milliseconds(recording.jobs.start) == [0, 24]
    assert recording.devices[0].busy_ticks == 20 * MS
    assert recording.devices[0].down_ticks == 0


def test_a_failure_loses_what_could_not_be_delivered(engine: str, tmp_path: Path) -> None:
    faults = [
        {"kind": "link-loss", "at": ["4 ms"], "duration": "20 ms"},
        {"kind": "failure", "at": ["12 ms"], "duration": "2 ms"},
    ]
    jobs = jobs_of(engine, faults, arrivals="0", tmp=tmp_path).jobs
    assert milliseconds(jobs.start) == [24] and milliseconds(jobs.finish) == [34]
    assert jobs.starts.tolist() == [2]
    assert np.allclose(jobs.energy_j, 1.6)


BROWN = {"kind": "brown-out", "at": ["4 ms"], "duration": "6 ms"}


def test_in_a_brown_out_what_was_started_last_is_paused_and_keeps_what_was_done(engine: str, tmp_path: Path) -> None:
    recording = jobs_of(engine, [{**BROWN, "budget": "120 W"}], arrivals="0 1", count=2, tmp=tmp_path)
    assert milliseconds(recording.jobs.start) == [0, 1]
    assert milliseconds(recording.jobs.finish) == [10, 17]
    assert recording.jobs.starts.tolist() == [1, 1]
    assert np.allclose(recording.jobs.energy_j, 0.8)
    # From 1 both work, from 4 one does, from 10 the other.
    assert levels(recording) == [120, 200, 120]


def test_of_jobs_of_one_tick_the_device_of_highest_number_pauses_first(engine: str, tmp_path: Path) -> None:
    recording = jobs_of(engine, [{**BROWN, "budget": "150 W"}], arrivals="0 0 0", count=3, tmp=tmp_path)
    assert milliseconds(recording.jobs.finish) == [10, 16, 16]


def test_a_paused_job_may_fail_and_starts_again(engine: str, tmp_path: Path) -> None:
    faults = [
        {**BROWN, "budget": "50 W"},
        {"kind": "failure", "devices": ["server"], "at": ["5 ms"], "duration": "1 ms"},
    ]
    recording = jobs_of(engine, faults, arrivals="0 1", count=2, tmp=tmp_path)
    assert milliseconds(recording.jobs.start) == [10, 10]
    assert recording.jobs.starts.tolist() == [2, 2]


def test_nothing_paused_and_a_brown_out_below_every_job_lets_nothing_start(engine: str, tmp_path: Path) -> None:
    recording = jobs_of(engine, [{**BROWN, "at": ["0 ms"], "budget": "20 W"}], arrivals="1 2", tmp=tmp_path)
    assert milliseconds(recording.jobs.start) == [6, 16]
    assert levels(recording) == [20, 100]


@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
def test_a_budget_for_one_makes_two_devices_take_turns(engine: str, tmp_path: Path, policy: str) -> None:
    recording = jobs_of(engine, [], count=2, policy=policy, power_budget="130 W", tmp=tmp_path)
    assert milliseconds(recording.jobs.start) == [0, 10, 20, 30]
    assert recording.power.values.max() == 120


@pytest.mark.parametrize("fault", ["failure", "link-loss"])
@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
def test_who_is_first_in_line_for_power_and_lost_holds_up_no_one(
    engine: str, tmp_path: Path, fault: str, policy: str
) -> None:
    """The big device waits for power that only comes at 50 ms, the small one behind it; then the big one is lost."""
    fleet = [
        {"device": "server", "name": "big", "speed": 1.01, "power": {"idle": "10 W", "max": "310 W"}},
        {"device": "server", "name": "small", "power": {"idle": "10 W", "max": "60 W"}},
    ]
    faults = [
        {"kind": "brown-out", "at": ["0 ms"], "duration": "50 ms", "budget": "100 W"},
        {"kind": fault, "devices": ["big"], "at": ["4 ms"], "duration": "1 s"},
    ]
    jobs = jobs_of(engine, faults, fleet=fleet, arrivals="0 1", policy=policy, tmp=tmp_path).jobs
    assert milliseconds(jobs.start)[1 if policy == "least-loaded" else 0] == 4


def test_stragglers_take_longer_and_no_one_else_does(engine: str, tmp_path: Path) -> None:
    always = {"kind": "straggler", "probability": 1, "slowdown": 2.5}
    assert milliseconds(jobs_of(engine, [always], arrivals="0", tmp=tmp_path).jobs.finish) == [25]
    twice = [always, {**always, "slowdown": 2}]
    assert milliseconds(jobs_of(engine, twice, arrivals="0", tmp=tmp_path).jobs.finish) == [50]


def test_a_run_that_stops_in_the_middle_of_it_all_is_accounted_for(engine: str, tmp_path: Path) -> None:
    for stop in range(1, 30):
        recording = jobs_of(
            engine,
            [FAILURE, {**BROWN, "budget": "120 W"}, {"kind": "link-loss", "at": ["12 ms"], "duration": "9 ms"}],
            count=2,
            stop={"time": f"{stop} ms"},
            tmp=tmp_path,
        )
        counts = np.bincount(recording.jobs.status, minlength=5)
        assert counts.sum() == len(recording.jobs) == min(4, stop)
        assert counts[RUNNING] <= 2


def test_the_result_says_what_struck_and_what_became_of_the_jobs(engine: str, tmp_path: Path) -> None:
    data = {
        "schema": 1,
        "name": "told",
        "fleet": [{"device": "server", "name": "a", "count": 2}, {"device": "server", "name": "b"}],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "deterministic", "rate": "1000 /s"},
                "ops": [{"service": {"distribution": "deterministic", "mean": "10 ms"}}],
            }
        ],
        "faults": [
            {"kind": "failure", "devices": ["a"], "at": ["5 ms"], "duration": "10 ms"},
            {"kind": "failure", "devices": ["b"], "at": ["6 ms", "20 ms"], "duration": "1 ms", "on_failure": "fail"},
            {"kind": "link-loss", "devices": ["b"], "at": ["30 ms"], "duration": "1 h"},
            {"kind": "throttle", "at": ["40 ms", "41 ms"], "duration": "3 ms", "speed": 0.5},
            {"kind": "brown-out", "at": ["0 ms"], "duration": "1 ms", "budget": "100 W"},
            {"kind": "straggler", "probability": 1, "slowdown": 1.5},
        ],
        "stop": {"time": "100 ms"},
        "targets": ["availability >= 0.9"],
    }
    run = windtunnel.run(scenario_from_data(data), engine=engine)
    faults = run.result.faults
    assert faults.events == {"down": 4, "unreachable": 1, "throttled": 3, "brown-out": 1}
    assert faults.stragglers == run.result.jobs.arrived == 99
    assert (faults.restarts, faults.failed, faults.interrupted) == (2, 2, 4)
    assert run.result.jobs.failed == 2
    assert [(e.name, e.devices, e.failures) for e in faults.entries] == [("a", 2, 2), ("b", 1, 2)]
    assert [e.down_s for e in faults.entries] == pytest.approx([0.02, 0.002])
    assert [e.unreachable_s for e in faults.entries] == pytest.approx([0, 0.07])
    assert [e.throttled_s for e in faults.entries] == pytest.approx([0.008, 0.004])
    assert [e.availability for e in faults.entries] == pytest.approx([0.9, 0.98])
    assert run.result.availability == pytest.approx(1 - 0.022 / 0.3)
    (target,) = run.result.targets
    assert target.met and target.value == pytest.approx(run.result.availability)
    page = render(run.result, run.recording)
    assert (
        '<table id="faults">' in page and "4 failures, 1 link loss, 3 throttlings, 1 brown-out, 99 stragglers" in page
    )
    run_command.save(run, tmp_path)
    with (tmp_path / "jobs.csv").open() as file:
        assert [int(row["attempts"]) for row in csv.DictReader(file)] == run.recording.jobs.starts.tolist()
    twice = windtunnel.run(scenario_from_data(data), engine=engine, replications=2).result.faults
    assert twice.events["down"] == 8 and twice.entries[0].availability == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("name", "change"),
    [("rack-power-cap", "power_budget=20 kW"), ("failures", "faults=[]")],
)
def test_shipped_scenarios_show_what_they_are_about(name: str, change: str) -> None:
    """They meet their targets, and would look otherwise without the budget or the faults."""
    path = Path(__file__).parents[2] / "scenarios" / f"{name}.yaml"
    run = windtunnel.run(path)
    assert all(target.met for target in run.result.targets)
    other = windtunnel.run(path, changes=[change, "targets=[]"]).result
    if name == "failures":
        assert run.result.faults.restarts > 0 and min(run.result.faults.events.values()) > 0
        assert other.faults is None
        assert run.result.latency_s.p95.value > 1.2 * other.latency_s.p95.value
    else:
        assert run.result.peak_power_w <= 8000 < other.peak_power_w
        assert run.result.waiting_s.mean.value > 3 * other.waiting_s.mean.value


MODEL = {"layers": 4, "width": 1024, "heads": 8, "feed_forward": 2048}
STREAMS = [
    {
        "streams": [
            [{"gemm": {"m": 1024, "n": 1024, "k": 1024, "dtype": "float16"}}],
            [{"copy": {"bytes": 3_000_000, "direction": "h2d"}}],
        ]
    }
]
GENERATE = [{"generate": {"model": "m", "prompt": 100, "output": 200}}]
CONTINUOUS = {"name": "fifo", "batch": {"kind": "continuous"}}


@pytest.mark.parametrize(
    ("entry", "ops", "policy"),
    [({}, STREAMS, "fifo"), ({"streams": 3}, STREAMS, "fifo"), ({}, GENERATE, "fifo"), ({}, GENERATE, CONTINUOUS)],
)
@pytest.mark.parametrize("on_failure", ["retry", "fail"])
def test_every_kind_of_device_loses_its_work_and_begins_again(
    entry: Any, ops: Any, policy: Any, on_failure: str, engine: str
) -> None:
    """Three jobs arrive together on one device, which is down in the middle of the first; then all begin again."""
    data = {
        "schema": 1,
        "name": "interrupted",
        "fleet": [{"device": "h100-sxm-80gb", **entry}],
        "models": {"m": MODEL},
        "workload": [{"name": "w", "arrivals": {"process": "deterministic", "rate": "1e8 /s"}, "ops": ops}],
        "policy": policy,
        "stop": {"jobs": 3},
    }
    whole = ENGINES[engine](prepare_run(scenario_from_data(data), windtunnel.catalogue()))
    middle = int(whole.jobs.finish[0]) // 2
    fault = {"kind": "failure", "at": [f"{middle} ps"], "duration": "1 s", "on_failure": on_failure}
    found = ENGINES[engine](prepare_run(scenario_from_data({**data, "faults": [fault]}), windtunnel.catalogue()))
    invariants.check(found)
    began = whole.jobs.start < middle
    if on_failure == "fail":
        assert (found.jobs.status == FAILED).tolist() == began.tolist()
        assert (found.jobs.finish[began] == middle).all()
        return
    assert found.jobs.starts.tolist() == (1 + began).tolist()
    repaired = middle + 10**12
    assert found.jobs.start.min() == repaired and (found.jobs.status == COMPLETED).all()
    if policy == "fifo" and not entry:  # one after another, as before
        assert (found.jobs.finish - repaired == whole.jobs.finish - whole.jobs.start[0]).all()
    later = found.intervals.start[found.intervals.start >= middle]
    assert later.min() == repaired


@pytest.mark.parametrize("policy", ["fifo", CONTINUOUS])
def test_tokens_are_delivered_when_the_link_is_back(policy: Any, engine: str) -> None:
    data = {
        "schema": 1,
        "name": "unreachable",
        "fleet": [{"device": "h100-sxm-80gb"}],
        "models": {"m": MODEL},
        "workload": [{"name": "w", "arrivals": {"process": "deterministic", "rate": "1000 /s"}, "ops": GENERATE}],
        "policy": policy,
        "stop": {"jobs": 1},
    }
    whole = ENGINES[engine](prepare_run(scenario_from_data(data), windtunnel.catalogue())).jobs
    first, start = int(whole.first[0]), int(whole.start[0])
    fault = {"kind": "link-loss", "at": [f"{start + 1} ps"], "duration": f"{first - start + 7} ps"}
    found = ENGINES[engine](prepare_run(scenario_from_data({**data, "faults": [fault]}), windtunnel.catalogue())).jobs
    assert found.first.tolist() == [first + 8] and found.finish.tolist() == whole.finish.tolist()


def test_a_throttled_request_produces_its_first_token_later(engine: str) -> None:
    """At half the speed from the start, every time doubles; the gaps between tokens too."""
    data = {
        "schema": 1,
        "name": "throttled",
        "fleet": [{"device": "h100-sxm-80gb"}],
        "models": {"m": MODEL},
        "workload": [{"name": "w", "arrivals": {"process": "deterministic", "rate": "1000 /s"}, "ops": GENERATE}],
        "stop": {"jobs": 1},
    }
    whole = ENGINES[engine](prepare_run(scenario_from_data(data), windtunnel.catalogue()))
    fault = {"kind": "throttle", "at": ["1 us"], "duration": "10 s", "speed": 0.5}
    found = ENGINES[engine](prepare_run(scenario_from_data({**data, "faults": [fault]}), windtunnel.catalogue()))
    start = int(whole.jobs.start[0])
    assert found.jobs.first[0] - start == 2 * (whole.jobs.first[0] - start)
    assert found.jobs.finish[0] - start == 2 * (whole.jobs.finish[0] - start)
    assert abs(found.token_gaps.ticks[0] - 2 * whole.token_gaps.ticks[0]) <= 1


# Near the last tick there is.


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "failure", "at": ["12 ms"], "duration": "300 d"},
        {"kind": "failure", "mtbf": "12 ms", "mttr": "10000000 d"},
        {"kind": "link-loss", "at": ["12 ms"], "duration": "106.8 d"},
        {"kind": "brown-out", "at": ["12 ms"], "duration": "300 d", "budget": "50 W"},
    ],
    ids=["failure", "drawn", "link", "brown-out"],
)
def test_what_lasts_longer_than_any_run_never_ends(engine: str, fault: dict[str, Any], tmp_path: Path) -> None:
    """It ended at 106.48 days, and the jobs that had waited so long were completed."""
    recording = jobs_of(engine, [fault], arrivals=" ".join(map(str, range(0, 400, 20))), tmp=tmp_path)
    assert (recording.jobs.status == QUEUED).any()
    assert recording.end < 86_400 * 10**12


def test_what_would_only_begin_after_any_run_never_does(engine: str, tmp_path: Path) -> None:
    late = [{"kind": "failure", "at": ["9300000 s"], "duration": "1 s"}]
    assert (jobs_of(engine, late, tmp=tmp_path).jobs.status == COMPLETED).all()


def test_what_is_slowed_beyond_the_last_tick_for_a_while_still_ends(engine: str, tmp_path: Path) -> None:
    slow = [{"kind": "throttle", "at": ["1 ms"], "duration": "2 ms", "speed": 1e-12}]
    assert milliseconds(jobs_of(engine, slow, arrivals="0", tmp=tmp_path).jobs.finish) == [12]
    long = [{"kind": "throttle", "at": ["1 d"], "duration": "1 h", "speed": 0.1}]
    recording = jobs_of(engine, long, arrivals="0", service="20 d", tmp=tmp_path)
    assert recording.jobs.finish.tolist() == [(20 * 24 * 60 + 54) * 60 * 10**12]


def test_what_is_slowed_beyond_the_last_tick_for_good_is_refused(engine: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="longer than the 106 days"):
        jobs_of(engine, [{"kind": "throttle", "at": ["1 ms"], "duration": "300 d", "speed": 1e-12}], tmp=tmp_path)


def test_jobs_that_are_lost_leave_their_work_undone() -> None:
    """Counted at all of their work they load the fleet to 1.28, and it was called unstable."""
    data = {
        "schema": 1,
        "name": "lose",
        "fleet": [{"device": "server", "count": 4}],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "poisson", "rate": "100 /s"},
                "ops": [{"service": {"distribution": "deterministic", "mean": "50 ms"}}],
            }
        ],
        "faults": [{"kind": "failure", "mtbf": "50 ms", "mttr": "1 ms", "on_failure": "fail"}],
        "stop": {"jobs": 5000},
    }
    result = windtunnel.run(scenario_from_data(data)).result
    assert result.statistics.offered_load is None
    assert result.statistics.steady_state == "reached"
    assert result.waiting_s.mean.value < 0.1
    data["faults"][0]["on_failure"] = "retry"
    data["faults"][0]["max_attempts"] = 1000
    assert windtunnel.run(scenario_from_data(data)).result.statistics.steady_state == "unstable"
