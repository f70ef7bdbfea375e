"""Faults of single operations, on cases small enough to be worked out by hand, to the tick; and what is refused.

Jobs come every 10 ms, the first at 10 ms, and take 4 ms, so what a fault does to one is over before the next, or its
queue can be counted out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.recording import COMPLETED, FAILED, QUEUED, RUNNING, Recording
from windtunnel.core.results.faults import FaultCount
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.report.run_page import render
from windtunnel.report.summary import summary
from windtunnel.scenario.read import json_schema, scenario_from_data
from windtunnel.simulation.run import prepare_run

MS = 10**9
SERVER = {"device": "server", "power": {"idle": "20 W", "max": "100 W"}}
SERVICE = {"service": {"distribution": "deterministic", "mean": "4 ms"}}


def data(*faults: dict[str, Any], jobs: int = 5, ops: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    workload = {
        "name": "w",
        "arrivals": {"process": "deterministic", "rate": "100 /s"},
        "ops": ops or [SERVICE],
        "deadline": "1 s",
    }
    stated = {"schema": 1, "name": "by hand", "fleet": [SERVER], "workload": [workload], "stop": {"jobs": jobs}}
    return {**stated, "faults": list(faults), **more}


def run(*faults: dict[str, Any], **more: Any) -> Recording:
    scenario = scenario_from_data(data(*faults, **more))
    recording = process.run(prepare_run(scenario, windtunnel.catalogue()))
    invariants.check(recording)
    return recording


def milliseconds(values: np.ndarray) -> list[float]:
    return [value / MS if value >= 0 else -1 for value in values.tolist()]


def test_ecc_takes_the_operations_time_and_then_the_job_is_tried_again() -> None:
    found = run({"kind": "ecc", "call": 3})
    assert milliseconds(found.jobs.finish) == [14, 24, 38, 44, 54]
    assert found.jobs.starts.tolist() == [1, 1, 2, 1, 1]
    assert found.fault_occurrences == {0: (6, 1)}
    # The time that was lost is work and energy all the same.
    assert found.devices[0].busy_ticks == 24 * MS
    assert np.allclose(found.jobs.energy_j, [0.32, 0.32, 0.64, 0.32, 0.32])


@pytest.mark.parametrize("kind", ["out-of-memory", "queue-full", "launch-failure"])
def test_what_fails_at_its_start_takes_no_time(kind: str) -> None:
    found = run({"kind": kind, "call": 3, "times": 2})
    assert milliseconds(found.jobs.finish) == [14, 24, 34, 44, 54]
    assert found.jobs.starts.tolist() == [1, 1, 3, 1, 1]
    assert found.devices[0].busy_ticks == 20 * MS


def test_a_job_is_started_so_many_times_and_then_given_up() -> None:
    found = run({"kind": "out-of-memory", "call": 2, "times": 7, "max_attempts": 4})
    assert found.jobs.status.tolist() == [COMPLETED, FAILED, COMPLETED, COMPLETED, COMPLETED]
    assert found.jobs.starts.tolist() == [1, 4, 4, 1, 1]
    assert found.fault_occurrences == {0: (11, 7)}
    assert found.jobs.finish[1] == 20 * MS


def test_a_job_that_is_lost_has_failed_when_its_operation_did() -> None:
    found = run({"kind": "ecc", "call": 2, "on_failure": "fail"})
    assert found.jobs.status.tolist() == [COMPLETED, FAILED, COMPLETED, COMPLETED, COMPLETED]
    assert milliseconds(found.jobs.finish) == [14, 24, 34, 44, 54]


def test_a_hang_lasts_until_the_watchdog_ends_it() -> None:
    found = run({"kind": "hang", "call": 2, "watchdog_timeout": "15 ms"})
    assert milliseconds(found.jobs.start) == [10, 35, 39, 43, 50]
    assert milliseconds(found.jobs.finish) == [14, 39, 43, 47, 54]


def test_a_watchdogs_time_passes_however_slow_the_device_is() -> None:
    slow = {"kind": "throttle", "at": ["0 s"], "duration": "25 ms", "speed": 0.5}
    found = run(slow, {"kind": "hang", "call": 2, "watchdog_timeout": "15 ms"})
    assert milliseconds(found.jobs.finish) == [18, 39, 43, 47, 54]


def test_a_failure_ends_a_hang_too() -> None:
    found = run(
        {"kind": "hang", "call": 1, "watchdog_timeout": "20 ms"},
        {"kind": "failure", "at": ["15 ms"], "duration": "1 ms"},
    )
    assert milliseconds(found.jobs.finish) == [20, 24, 34, 44, 54]
    assert found.jobs.starts.tolist() == [2, 1, 1, 1, 1]


def test_a_lost_device_is_down_until_it_has_been_reset() -> None:
    found = run({"kind": "device-lost", "call": 2, "reset_time": "25 ms"})
    assert milliseconds(found.jobs.start) == [10, 45, 49, 53, 57]
    assert found.devices[0].down_ticks == 25 * MS
    assert found.degraded is not None
    assert [found.degraded.start.tolist(), found.degraded.end.tolist()] == [[20 * MS], [45 * MS]]


def test_ecc_may_need_a_reset_too() -> None:
    found = run({"kind": "ecc", "call": 2, "reset_time": "25 ms"})
    assert milliseconds(found.jobs.start) == [10, 49, 53, 57, 61]
    assert found.devices[0].down_ticks == 25 * MS


def test_a_failure_and_a_reset_that_overlap_are_one_outage() -> None:
    fault = {"kind": "device-lost", "call": 2, "reset_time": "25 ms"}
    found = run({"kind": "failure", "at": ["40 ms"], "duration": "20 ms"}, fault)
    assert milliseconds(found.jobs.start)[1] == 60
    assert found.devices[0].down_ticks == 40 * MS
    assert found.degraded is not None and len(found.degraded) == 1
    inside = run({"kind": "failure", "at": ["25 ms"], "duration": "5 ms"}, fault)
    assert milliseconds(inside.jobs.start)[1] == 45
    assert inside.devices[0].down_ticks == 25 * MS


def test_a_reset_that_outlasts_the_run_is_cut_at_its_end() -> None:
    found = run({"kind": "device-lost", "call": 2, "reset_time": "1 h"}, stop={"time": "50 ms"})
    assert found.devices[0].down_ticks == 30 * MS
    assert found.jobs.status.tolist() == [COMPLETED] + [QUEUED] * (len(found.jobs) - 1)


@pytest.mark.parametrize("times", [1, 2])
def test_what_fails_at_the_very_end_of_a_run_was_waiting_until_then(times: int) -> None:
    fast = data()["workload"][0] | {"arrivals": {"process": "deterministic", "rate": "1000 /s"}}
    fault = {"kind": "out-of-memory", "call": 2, "times": times, "max_attempts": 2}
    found = run(fault, workload=[fast], stop={"time": "5 ms"})
    # The second job starts at 5 ms, when the first is done, and fails at once.
    assert found.waiting.values[-1] == 3
    assert found.jobs.status.tolist()[:2] == [COMPLETED, RUNNING if times == 1 else FAILED]


def test_after_a_time_the_next_operation_is_struck() -> None:
    found = run({"kind": "ecc", "after": "20.5 ms", "times": 2})
    assert milliseconds(found.jobs.finish) == [14, 24, 42, 46, 54]
    assert run({"kind": "ecc", "after": "20 ms"}).jobs.starts.tolist() == [1, 2, 1, 1, 1]


def test_of_several_that_end_an_operation_only_the_soonest_has_struck() -> None:
    found = run({"kind": "ecc", "call": 2}, {"kind": "hang", "call": 2, "watchdog_timeout": "1 ms"})
    # The hang ends the second call after 1 ms, so ECC is still to come: it strikes the third.
    assert milliseconds(found.jobs.finish) == [14, 29, 34, 44, 54]
    assert found.fault_occurrences == {0: (7, 1), 1: (7, 1)}


def test_of_faults_that_end_an_operation_together_the_first_in_the_list_has_struck() -> None:
    found = run({"kind": "ecc", "call": 2, "on_failure": "fail"}, {"kind": "ecc", "call": 2})
    assert found.jobs.status.tolist() == [COMPLETED, FAILED, COMPLETED, COMPLETED, COMPLETED]
    assert found.jobs.starts.tolist() == [1, 1, 2, 1, 1]


def test_each_operation_of_a_program_is_a_call() -> None:
    twice = [{"repeat": {"times": 2, "ops": [SERVICE]}}]
    found = run({"kind": "ecc", "call": 4}, ops=twice)
    # The second job's second operation fails, and both are done again.
    assert milliseconds(found.jobs.finish) == [18, 36, 44, 52, 60]
    assert found.fault_occurrences == {0: (12, 1)}


COPIED = [{"copy": {"bytes": "1 MB", "direction": "h2d"}}, {"vector_add": {"n": 100_000}}]
L4 = [{"device": "l4", "calibration": "none"}]


def lengths(found: Recording) -> list[int]:
    table = found.intervals
    assert table is not None
    return (table.end - table.start).tolist()


def test_a_slow_copy_takes_so_many_times_as_long_and_nothing_else_does() -> None:
    copy, kernel = lengths(run(jobs=1, ops=COPIED, fleet=L4))
    found = run({"kind": "slow-copy", "call": 2, "factor": 2.5}, jobs=3, ops=COPIED, fleet=L4)
    assert lengths(found) == [copy, kernel, round(copy * 2.5), kernel, copy, kernel]
    assert found.fault_occurrences == {0: (3, 1)}


def test_a_copy_that_fails_has_taken_its_time() -> None:
    copy, kernel = lengths(run(jobs=1, ops=COPIED, fleet=L4))
    found = run({"kind": "copy-failure", "call": 2}, jobs=3, ops=COPIED, fleet=L4)
    assert lengths(found) == [copy, kernel, copy, copy, kernel, copy, kernel]
    assert found.jobs.starts.tolist() == [1, 2, 1]


def test_a_slow_copy_that_fails_fails_when_it_would_have_ended() -> None:
    copy, kernel = lengths(run(jobs=1, ops=COPIED, fleet=L4))
    slow = {"kind": "slow-copy", "call": 1}
    found = run(slow, {"kind": "copy-failure", "call": 1}, jobs=1, ops=COPIED, fleet=L4)
    assert lengths(found) == [4 * copy, copy, kernel]
    assert found.fault_occurrences == {0: (2, 1), 1: (2, 1)}


def test_a_copy_that_was_never_begun_was_not_slow() -> None:
    copy, kernel = lengths(run(jobs=1, ops=COPIED, fleet=L4))
    slow = {"kind": "slow-copy", "call": 1}
    found = run(slow, {"kind": "queue-full", "call": 1}, jobs=1, ops=COPIED, fleet=L4)
    assert lengths(found) == [4 * copy, kernel]
    assert found.fault_occurrences == {0: (2, 1), 1: (3, 1)}


def test_a_job_with_a_garbled_copy_completes_and_is_counted() -> None:
    clean = run(jobs=4, ops=COPIED, fleet=L4)
    found = run({"kind": "corrupt-copy", "call": 2, "times": 2}, jobs=4, ops=COPIED, fleet=L4)
    assert found.corrupted == 2 and clean.corrupted is None
    assert np.array_equal(found.jobs.finish, clean.jobs.finish)


def test_a_job_that_is_tried_again_copies_anew() -> None:
    garbled = {"kind": "corrupt-copy", "call": 1}
    found = run(garbled, {"kind": "ecc", "call": 1, "ops": ["vector_add"]}, jobs=2, ops=COPIED, fleet=L4)
    assert found.jobs.starts.tolist() == [2, 1]
    assert found.fault_occurrences[0] == (3, 1) and found.corrupted == 0


def test_kernels_and_copies_are_counted_apart() -> None:
    found = run({"kind": "hang", "call": 3, "watchdog_timeout": "1 ms"}, jobs=5, ops=COPIED, fleet=L4)
    assert found.jobs.starts.tolist() == [1, 1, 2, 1, 1]


def test_devices_and_workloads_that_are_not_named_are_spared() -> None:
    two = [{**SERVER, "name": name} for name in "ab"]
    both = [{**data()["workload"][0], "name": name, "devices": [device]} for name, device in (("v", "a"), ("w", "b"))]
    only = {"fleet": two, "workload": both, "jobs": 6}
    by_device = run({"kind": "ecc", "call": 1, "times": 2, "devices": ["b"]}, **only)
    by_name = run({"kind": "ecc", "call": 1, "times": 2, "workloads": ["w"]}, **only)
    for found in (by_device, by_name):
        assert found.jobs.starts[found.jobs.workload == 0].tolist() == [1, 1, 1]
        assert found.jobs.starts[found.jobs.workload == 1].tolist() == [3, 1, 1]


def test_a_job_that_migrates_is_routed_anew_and_those_behind_it_stay_unless_the_device_is_down() -> None:
    fleet = [{**SERVER, "name": name} for name in "ab"]
    fast = data()["workload"][0] | {"arrivals": {"process": "deterministic", "rate": "1000 /s"}}
    shared = {"fleet": fleet, "workload": [fast], "policy": "least-loaded", "jobs": 6}
    # In turn 0, 2 go to a and 1, 3 to b. The first goes wrong at 5 ms, before 4 arrives, and it is a's turn again.
    stays = run({"kind": "ecc", "call": 1, "on_failure": "migrate"}, **shared | {"policy": "round-robin"})
    assert stays.jobs.device.tolist() == [0, 1, 0, 1, 1, 0]
    assert stays.jobs.starts.tolist() == [2, 1, 1, 1, 1, 1]
    moves = run({"kind": "ecc", "call": 1, "on_failure": "migrate", "reset_time": "1 s"}, **shared)
    assert moves.jobs.device.tolist() == [1] * 6
    waits = run({"kind": "ecc", "call": 1, "on_failure": "retry", "reset_time": "1 s"}, **shared)
    assert waits.jobs.device.tolist()[:4] == [0, 1, 0, 1]
    assert milliseconds(waits.jobs.start)[0] == 1005


def test_under_one_queue_another_device_takes_what_a_lost_one_dropped() -> None:
    found = run({"kind": "device-lost", "call": 1, "reset_time": "1 s"}, fleet=[{**SERVER, "count": 2}])
    assert found.jobs.device.tolist() == [1] * 5
    assert milliseconds(found.jobs.finish) == [14, 24, 34, 44, 54]


@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
def test_watts_of_what_failed_are_free_again(policy: str) -> None:
    fleet = [{**SERVER, "count": 2}]
    fast = data()["workload"][0] | {"arrivals": {"process": "deterministic", "rate": "1000 /s"}}
    shared = {"fleet": fleet, "workload": [fast], "policy": policy, "power_budget": "120 W", "jobs": 4}
    found = run({"kind": "ecc", "call": 2}, {"kind": "out-of-memory", "call": 3}, **shared)
    assert (found.jobs.status == COMPLETED).all()
    # One at a time, as power suffices for one: five times 4 ms.
    assert found.end == 21 * MS and found.power.values.max() == 120.0


def test_an_unreachable_device_knows_at_once_that_its_operation_failed() -> None:
    lost = {"kind": "link-loss", "at": ["11 ms"], "duration": "50 ms"}
    found = run(lost, {"kind": "ecc", "call": 1, "on_failure": "fail"}, jobs=1)
    assert milliseconds(found.jobs.finish) == [14]


def test_users_who_wait_get_their_answer_when_a_job_is_given_up() -> None:
    people = data()["workload"][0] | {"arrivals": {"process": "closed", "users": 1, "think": {"mean": "0 s"}}}
    found = run({"kind": "ecc", "call": 2, "times": 3}, workload=[people], jobs=3)
    assert found.jobs.status.tolist() == [COMPLETED, FAILED, COMPLETED]
    assert found.jobs.starts.tolist() == [1, 3, 1]


def result_of(*faults: dict[str, Any], **more: Any) -> dict[str, Any]:
    return windtunnel.run(scenario_from_data(data(*faults, **more))).result


def test_the_result_says_how_often_each_fault_struck_and_the_summary_which_never_did() -> None:
    stated = (
        {"kind": "ecc", "call": 2, "times": 2},
        {"kind": "hang", "call": 1_000},
        {"kind": "throttle", "at": ["20 ms", "30 ms"], "duration": "1 ms", "speed": 0.5},
        {"kind": "straggler", "probability": 1, "slowdown": 2},
        {"kind": "link-loss", "at": ["1 h"], "duration": "1 s"},
    )
    done = windtunnel.run(scenario_from_data(data(*stated)))
    result = done.result
    assert result.faults.by_fault == [
        FaultCount("ecc", 2, 7),
        FaultCount("hang", 0, 7),
        FaultCount("throttle", 2, None),
        FaultCount("straggler", 5, None),
        FaultCount("link-loss", 0, None),
    ]
    assert (result.faults.interrupted, result.faults.restarts, result.faults.failed) == (2, 2, 0)
    said = " ".join(summary(result).split())
    assert "2 throttlings, 5 stragglers, 2 ecc" in said
    assert "faults[1] (hang) never occurred; 7 operations were eligible faults[4] (link-loss) never occurred" in said
    assert "faults[1] (hang) never occurred; 7 operations were eligible" in render(result, done.recording)


def test_jobs_of_users_that_straggle_are_counted_too() -> None:
    people = data()["workload"][0] | {"arrivals": {"process": "closed", "users": 2, "think": {"mean": "1 ms"}}}
    slow = [{"kind": "straggler", "probability": p, "slowdown": 3} for p in (0.2, 0.5)]
    done = windtunnel.run(scenario_from_data(data(*slow, workload=[people], jobs=400)))
    jobs, faults = done.recording.jobs, done.result.faults
    lengths = np.rint((jobs.finish - jobs.start) / (4 * MS)).astype(int)
    assert faults.stragglers == np.count_nonzero(lengths > 1)
    # Those that both slow are counted of each.
    both = np.count_nonzero(lengths == 9)
    assert sum(one.occurrences for one in faults.by_fault) == faults.stragglers + both and both


def test_a_reset_is_an_outage_of_the_entry_and_can_be_a_target() -> None:
    result = result_of({"kind": "device-lost", "call": 2, "reset_time": "30 ms"}, targets=["availability >= 10 %"])
    assert result.faults.entries[0].down_s == pytest.approx(0.030)
    assert result.availability == pytest.approx(1 - 0.030 / result.simulated_s)
    with pytest.raises(InputError, match="availability requires"):
        result_of({"kind": "ecc", "call": 2}, targets=["availability >= 10 %"])


def test_garbled_jobs_are_told() -> None:
    result = result_of({"kind": "corrupt-copy", "probability": 1}, jobs=3, ops=COPIED, fleet=L4)
    assert result.faults.corrupted_jobs == result.jobs.completed == 3
    assert "3 jobs completed with silently corrupted data" in summary(result)


def test_replications_add_up_what_struck() -> None:
    scenario = scenario_from_data(data({"kind": "ecc", "probability": 0.3}, jobs=200))
    result = windtunnel.run(scenario, replications=3).result
    (one,) = result.faults.by_fault
    assert one.eligible_operations == 600 + result.faults.restarts and one.occurrences == result.faults.interrupted


@pytest.mark.parametrize(
    ("fault", "problem", "expected"),
    [
        ({"kind": "out_of_memory", "call": 1}, "faults[0].kind: 'out_of_memory' is not a valid value", "did you mean 'out-of-"),
        ({"kind": "ecc"}, "faults[0]: a fault of operations needs exactly one of probability, call and after", "probability, call or after"),
        ({"kind": "ecc", "call": 1, "after": "1 s"}, "exactly one of", "probability, call or after"),
        ({"kind": "ecc", "call": 0}, "faults[0].call: this is 0", "at least 1"),
        ({"kind": "ecc", "call": 1, "times": 0}, "faults[0].times: this is 0", "at least 1"),
        ({"kind": "ecc", "probability": 0}, "faults[0].probability", "more than 0"),
        ({"kind": "ecc", "call": 1, "factor": 2}, "unknown key 'factor'", "reset_time"),
        ({"kind": "ecc", "calls": 1}, "unknown key 'calls'", "did you mean 'call'?"),
        ({"kind": "queue-full", "call": 1, "reset_time": "1 s"}, "unknown key 'reset_time'", "max_attempts"),
        ({"kind": "corrupt-copy", "call": 1, "on_failure": "fail"}, "unknown key 'on_failure'", "times"),
        ({"kind": "device-lost", "call": 1}, "'reset_time' is missing", "reset_time"),
        ({"kind": "slow-copy", "call": 1, "factor": 1}, "faults[0].factor", "more than 1"),
        ({"kind": "hang", "call": 1, "ops": ["servce"]}, "unknown operation 'servce'", "did you mean 'service'?"),
        ({"kind": "hang", "call": 1, "ops": ["fft"]}, "no workload of this fault runs 'fft'", "service"),
        ({"kind": "hang", "call": 1, "ops": ["copy"]}, "hang affects no copies; 'copy' is a copy", "another operation"),
        ({"kind": "slow-copy", "call": 1, "ops": ["service"]}, "affects only copies; 'service' is not a copy", "copy"),
        ({"kind": "slow-copy", "call": 1}, "faults[0].kind: slow-copy affects only copies; no workload", "a copy"),
        ({"kind": "ecc", "call": 1, "workloads": ["x"]}, "unknown workload 'x'", "w"),
        ({"kind": "ecc", "call": 1, "devices": ["serve"]}, "the fleet has no 'serve'", "did you mean 'server'?"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_fault_is_said(fault: dict[str, Any], problem: str, expected: str) -> None:
    with pytest.raises(InputError) as error:
        scenario_from_data(data(fault))
    assert problem in str(error.value) and expected in str(error.value)


def test_a_request_batch_fails_as_a_whole() -> None:
    """Jobs arrive at 10 and 20 ms; the batch of both starts at 20 ms, fails after 4 ms, and is executed again."""
    batch = {"name": "fifo", "batch": {"kind": "request", "size": 2, "wait": "1 s"}}
    found = run({"kind": "ecc", "call": 1}, jobs=4, policy=batch)
    assert milliseconds(found.jobs.finish) == [28, 28, 44, 44]
    assert found.jobs.starts.tolist() == [2, 2, 1, 1]
    assert found.fault_occurrences == {0: (3, 1)}


def test_with_streams_only_the_job_of_the_failed_operation_is_affected() -> None:
    """Two jobs, each a copy and a kernel of some 25 ms. The third operation is the copy of the second job."""
    ops = [
        {"copy": {"bytes": 1_000_000, "direction": "h2d"}},
        {"gemm": {"m": 16384, "n": 16384, "k": 16384, "dtype": "float16"}},
    ]
    more: dict[str, Any] = {"jobs": 2, "ops": ops, "fleet": [{"device": "h100-sxm-80gb", "streams": 2}]}
    whole = run({"kind": "ecc", "call": 99}, **more).jobs
    assert whole.start[1] < whole.finish[0]
    failed = run({"kind": "ecc", "call": 3, "on_failure": "fail"}, **more).jobs
    assert failed.status.tolist() == [COMPLETED, FAILED]
    assert failed.finish[0] == whole.finish[0] and failed.finish[1] < whole.finish[0]
    again = run({"kind": "launch-failure", "call": 2}, **more).jobs
    assert again.starts.tolist() == [1, 2] and again.finish[0] == whole.finish[0]
    lost = run({"kind": "device-lost", "call": 3, "reset_time": "100 ms", "on_failure": "fail"}, **more)
    assert lost.jobs.status.tolist() == [FAILED, FAILED]
    assert lost.jobs.finish.tolist() == [whole.start[1]] * 2


def test_a_failed_step_returns_all_requests_of_the_batch() -> None:
    """Both requests are in the batch when its fifth step fails, and both begin again; none of their tokens is lost."""
    model = {"layers": 4, "width": 1024, "heads": 8, "feed_forward": 2048}
    more: dict[str, Any] = {
        "ops": [{"generate": {"model": "m", "prompt": 100, "output": 20}}],
        "fleet": [{"device": "h100-sxm-80gb"}],
        "models": {"m": model},
        "policy": {"name": "fifo", "batch": {"kind": "continuous"}},
    }
    stated = data({"kind": "ecc", "call": 5}, jobs=2, **more)
    stated["workload"][0]["arrivals"]["rate"] = "1e7 /s"
    recording = process.run(prepare_run(scenario_from_data(stated), windtunnel.catalogue()))
    invariants.check(recording)
    assert recording.jobs.starts.tolist() == [2, 2]
    assert recording.jobs.status.tolist() == [COMPLETED, COMPLETED]
    assert recording.fault_occurrences[0][1] == 1
    # The attempt that failed took five steps; the second one starts at their end.
    steps = recording.intervals
    assert int(recording.jobs.start[0]) == int(np.sort(steps.end)[4])


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "ecc", "probability": 0.1},
        {"kind": "hang", "call": 3},
        {"kind": "out-of-memory", "after": "5 ms", "times": 4},
    ],
)
def test_both_engines_inject_the_same(fault: dict[str, Any]) -> None:
    prepared = prepare_run(scenario_from_data(data(fault, jobs=300)), windtunnel.catalogue())
    one, other = process.run(prepared), compiled.run(prepared)
    assert one.fault_occurrences == other.fault_occurrences and one.fault_occurrences[0][1] > 0
    for column in ("start", "finish", "device", "starts", "status"):
        assert getattr(one.jobs, column).tolist() == getattr(other.jobs, column).tolist()


def test_a_plan_is_refused_where_operations_end_jobs_for_good() -> None:
    from windtunnel.engine.prepare.offered_load import max_failed_jobs, offered_load

    def prepared(fault: dict[str, Any]) -> Any:
        return prepare_run(scenario_from_data(data(fault, jobs=1_000)), windtunnel.catalogue())

    assert max_failed_jobs(prepared({"kind": "ecc", "probability": 0.1, "on_failure": "fail"})) == pytest.approx(100)
    assert max_failed_jobs(prepared({"kind": "ecc", "probability": 0.1, "max_attempts": 2})) == pytest.approx(10)
    assert max_failed_jobs(prepared({"kind": "ecc", "call": 1, "times": 7, "max_attempts": 2})) == 3
    assert max_failed_jobs(prepared({"kind": "device-lost", "call": 1, "reset_time": "1 s"})) == 0
    # What chance adds is not known; what strikes so many times changes no rate.
    assert offered_load(prepared({"kind": "ecc", "probability": 0.1})) is None
    load = offered_load(prepared({"kind": "ecc", "call": 1}))
    assert load is not None and load.offered == pytest.approx(0.4)


def test_the_schema_has_every_kind() -> None:
    kinds = json_schema()["properties"]["faults"]["items"]["discriminator"]["mapping"]
    named = {
        "out-of-memory",
        "launch-failure",
        "device-lost",
        "ecc",
        "hang",
        "slow-copy",
        "corrupt-copy",
        "copy-failure",
    }
    assert named | {"queue-full", "throttle", "link-loss"} <= set(kinds)
