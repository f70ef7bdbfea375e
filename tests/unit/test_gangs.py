"""Jobs that occupy several devices at once: the key `gang`, its errors, and what it does to times, energy and results."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import search_alone
from tests.differential.comparison import assert_same, prepared

import windtunnel
from windtunnel.app import plan as planner
from windtunnel.app.run import save
from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.core.ticks import MAX_TICKS
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.engine.prepare.fault_schedule import FAIL, INTERRUPT
from windtunnel.engine.prepare.offered_load import offered_load
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.scenario.read import scenario_from_data

EXAMPLE = Path(__file__).parents[2] / "scenarios" / "training-beside-inference.yaml"
SERVICE = {"service": {"mean": "1 ms", "distribution": "exponential"}}
FIXED = {"service": {"mean": "10 ms", "distribution": "deterministic"}}


def scenario(count: int, *jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a scenario of servers; each of ``jobs`` replaces keys of a workload."""
    return {
        "schema": 1,
        "name": "gangs",
        "fleet": [{"device": "server", "count": count, "power": {"idle": "20 W", "max": "100 W"}}],
        "workload": [
            {"name": f"w{i}", "arrivals": {"process": "poisson", "rate": "300 /s"}, "ops": [SERVICE], **one}
            for i, one in enumerate(jobs)
        ],
        "stop": {"jobs": 300},
        **more,
    }


def both(data: dict[str, Any]) -> Recording:
    """Return the recording of a scenario, which is the same from both engines."""
    ready = prepared(data)
    one = process.run(ready)
    assert_same(one, compiled.run(ready))
    invariants.check(one)
    return one


def times(recording: Recording) -> list[tuple[int, int]]:
    return list(zip(recording.jobs.start.tolist(), recording.jobs.finish.tolist(), strict=True))


def error(data: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        prepared(data)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_gang_of_one_device_is_a_job_without_a_gang() -> None:
    plain = scenario(
        3, {}, {"priority": 1}, policy="priority", faults=[{"kind": "failure", "mtbf": "50 ms", "mttr": "5 ms"}]
    )
    stated = {**plain, "workload": [{**one, "gang": 1} for one in plain["workload"]]}
    results = [windtunnel.run(scenario_from_data(data)).result.to_dict() for data in (plain, stated)]
    assert [result.pop("scenario") for result in results][0] is not None
    assert json.dumps(results[0]) == json.dumps(results[1])


@pytest.mark.parametrize(("count", "gang", "servers"), [(4, 4, 1), (8, 4, 2), (11, 3, 3)])
def test_devices_in_gangs_of_one_size_are_as_many_servers_as_gangs_fit(count: int, gang: int, servers: int) -> None:
    arrivals = {"process": "poisson", "rate": f"{800 * servers} /s"}
    many = both(scenario(count, {"arrivals": arrivals, "gang": gang}))
    few = both(scenario(servers, {"arrivals": arrivals}))
    assert times(many) == times(few)
    assert np.array_equal(many.waiting.values, few.waiting.values)
    assert sum(d.busy_ticks for d in many.devices) == gang * sum(d.busy_ticks for d in few.devices)
    assert np.allclose(many.jobs.energy_j, gang * few.jobs.energy_j, rtol=1e-12)


def test_an_all_reduce_among_the_gang_takes_as_long_as_predicted() -> None:
    data = scenario(8, {"gang": 8, "ops": [{"all_reduce": {"bytes": 10**9}}]}, stop={"jobs": 1})
    data["fleet"] = [{"device": "h100-sxm-80gb", "count": 8}]
    for stated, workers in ((None, 8), (4, 4)):
        if stated is not None:
            data["workload"][0]["ops"] = [{"all_reduce": {"bytes": 10**9, "workers": stated}}]
        ((start, finish),) = times(both(data))
        launched = {"bytes": 10**9, "workers": workers, "dispatch": "eager"}
        predicted = windtunnel.predict("all_reduce", "h100-sxm-80gb", launched)
        assert finish - start == pytest.approx(predicted.duration_s * 1e12, abs=1)


def test_a_job_is_on_every_device_of_its_gang_in_the_timeline(tmp_path: Path) -> None:
    run = windtunnel.run(scenario_from_data(scenario(3, {"gang": 3}, stop={"jobs": 2})))
    save(run, tmp_path)
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    lanes = {event["pid"] for event in events if event.get("ph") == "X" and event["name"] == "service"}
    assert len(lanes) == 3
    rows = (tmp_path / "jobs.csv").read_text().splitlines()
    assert [row.split(",")[2] for row in rows[1:]] == ["server-0", "server-0"]
    assert [device.jobs for device in run.result.devices] == [2, 0, 0]


def test_a_failure_of_any_device_interrupts_the_job_and_frees_the_others() -> None:
    """Five devices fail again and again; none of them works while it is down."""
    faults = [{"kind": "failure", "mtbf": "20 ms", "mttr": "3 ms", "max_attempts": 100}]
    recording = both(scenario(5, {"gang": 3}, {}, faults=faults))
    assert recording.returned > 5
    assert recording.degraded is not None
    table, down = recording.intervals, recording.degraded
    for device, start, end in zip(down.device.tolist(), down.start.tolist(), down.end.tolist(), strict=True):
        mine = table.device == device
        assert not (mine & (table.start < end) & (table.end > start)).any()


def test_a_result_is_held_back_until_every_device_is_reachable() -> None:
    faults = [{"kind": "link-loss", "mean_interval": "30 ms", "duration": "7 ms"}]
    work = {"gang": 3, "ops": [FIXED], "arrivals": {"process": "poisson", "rate": "60 /s"}}
    recording = both(scenario(3, work, faults=faults, stop={"jobs": 100}))
    assert recording.degraded is not None
    cut = recording.degraded
    held = 0
    for start, finish in times(recording):
        assert not ((cut.start < finish) & (cut.end > finish)).any()
        assert not ((cut.start <= start) & (cut.end > start)).any()
        held += finish > start + 10 * 10**9
        assert finish == start + 10 * 10**9 or (cut.end == finish).any()
    assert held > 10


def test_a_gang_reserves_the_power_of_all_its_devices_and_pauses_as_a_whole() -> None:
    """A brown-out to 200 W leaves room for one device of 80 W above the idle 100 W: the gang of three pauses."""
    faults = [{"kind": "brown-out", "at": ["5 ms"], "duration": "20 ms", "budget": "200 W"}]
    work = {"gang": 3, "ops": [FIXED], "arrivals": {"process": "deterministic", "rate": "1000 /s"}}
    data = scenario(5, work, faults=faults, power_budget="400 W", stop={"jobs": 1})
    ((start, finish),) = times(both(data))
    assert finish - start == 30 * 10**9
    assert "could never start" in error({**data, "power_budget": "300 W"})


def test_a_failed_operation_resets_the_leader_alone() -> None:
    faults = [{"kind": "device-lost", "call": 1, "times": 1, "reset_time": "50 ms", "max_attempts": 3}]
    data = scenario(
        3,
        {"gang": 2, "ops": [{"gemm": {"m": 512, "n": 512, "k": 512, "dtype": "float16"}}]},
        faults=faults,
        stop={"jobs": 1},
    )
    data["fleet"] = [{"device": "l4", "count": 3}]
    recording = both(data)
    assert recording.jobs.starts.tolist() == [2]
    assert recording.jobs.device.tolist() == [1]
    assert [device.down_ticks > 0 for device in recording.devices] == [True, False, False]


def test_users_of_a_closed_loop_wait_for_jobs_of_several_devices() -> None:
    users = {"process": "closed", "users": 3, "think": {"distribution": "exponential", "mean": "1 ms"}}
    recording = both(scenario(4, {"gang": 4, "arrivals": users}, {"arrivals": users}))
    assert len(recording.jobs) == 300


def test_a_run_ends_when_too_few_devices_are_left_for_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three devices fails for good, so the gang never starts, nor do the jobs behind it."""
    faults = [
        {"kind": "failure", "at": ["20 ms"]},
        {"kind": "throttle", "mean_interval": "1 s", "duration": "1 ms", "speed": 0.5},
    ]
    ready = prepared(scenario(3, {"gang": 3}, {}, faults=faults))
    schedule = ready.faults
    assert schedule is not None
    until, gone = schedule.until, schedule.gone

    def of_first(tick: int) -> np.ndarray:
        events = until(tick)
        return events[~np.isin(events["code"], (FAIL, INTERRUPT)) | (events["on"] == 0)]

    monkeypatch.setattr(schedule, "until", of_first)
    monkeypatch.setattr(schedule, "gone", lambda count: np.where(np.arange(count) == 0, gone(count), MAX_TICKS))
    recording = process.run(ready)
    assert_same(recording, compiled.run(ready))
    assert 0 < (recording.jobs.start < 0).sum() < 300
    assert recording.jobs.workload[recording.jobs.start < 0].min() == 0


def test_backfill_lets_later_jobs_start_while_a_gang_waits() -> None:
    jobs = (
        {"gang": 4, "arrivals": {"process": "poisson", "rate": "100 /s"}},
        {"arrivals": {"process": "poisson", "rate": "1500 /s"}},
    )
    waits = []
    for backfill in (False, True):
        recording = both(scenario(4, *jobs, policy={"order": "arrival", "backfill": backfill}))
        wait = recording.jobs.start - recording.jobs.arrival
        waits.append([float(wait[recording.jobs.workload == work].mean()) for work in (0, 1)])
    assert waits[1][0] > waits[0][0] and waits[1][1] < waits[0][1]


def test_the_load_and_the_minimum_demand_count_every_device_of_a_gang() -> None:
    one, four = (
        prepared(scenario(8, {"gang": gang, "arrivals": {"process": "poisson", "rate": "1000 /s"}})) for gang in (1, 4)
    )
    loads = [offered_load(ready) for ready in (one, four)]
    assert loads[0] is not None and loads[1] is not None
    assert loads[1].offered == pytest.approx(4 * loads[0].offered)
    first, second = minimum_demand(one), minimum_demand(four)
    assert np.array_equal(second.resources[0].whole_s, 4 * first.resources[0].whole_s)
    assert np.array_equal(second.energy_j, 4 * first.energy_j)
    assert np.array_equal(second.alone_s, first.alone_s)


REDUCE = {"bytes": 10**9}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"gang": 9},
            "workload[0].gang: 'w0' needs 9 devices of one fleet entry, and no entry has so many; expected at most 8",
        ),
        (
            {"gang": 6, "devices": ["few"]},
            "'w0' needs 6 devices of one fleet entry, and no entry has so many; expected at most 4",
        ),
        ({"gang": 0}, "workload[0].gang"),
        ({"gang": 2.5}, "workload[0].gang"),
        (
            {"gang": 4, "ops": [{"all_reduce": {**REDUCE, "workers": 8}}]},
            "workload[0].ops[0].all_reduce.workers: 8 workers in a gang of 4; expected at most 4",
        ),
        (
            {"gang": 4, "ops": [{"all_reduce": {**REDUCE, "workers": "$n"}}]},
            "workers: the workers of a gang cannot come from a column",
        ),
        ({"ops": [{"all_reduce": REDUCE}]}, "all_reduce needs 'workers'"),
    ],
)
def test_an_invalid_gang_is_an_error_with_its_place(change: dict[str, Any], says: str) -> None:
    data = scenario(8, change)
    data["fleet"] = [{"device": "h100-sxm-80gb", "count": 8}, {"device": "l4", "count": 4, "name": "few"}]
    assert says in error(data)


def test_the_example_interrupts_training_and_completes_it() -> None:
    run = windtunnel.run(EXAMPLE)
    assert run.result.faults is not None and run.result.faults.interrupted > 5
    assert run.result.jobs.failed == 0 and run.result.jobs.completed > 9_000


def test_a_plan_has_as_many_devices_of_one_entry_as_a_gang_occupies() -> None:
    data = scenario(8, {"gang": 4}, targets=["latency p99 <= 20 s"])
    first = data["fleet"][0]
    data["fleet"] = [first | {"name": "a", "price": "1 USD/h"}, first | {"name": "b", "price": "2 USD/h"}]
    with search_alone():
        found = planner.plan(scenario_from_data(data), workers=1)
    assert all(max(fleet.entries.values()) >= 4 for fleet in [*found.fleets, *found.simulated])
    assert found.fleets[0].entries["a"] >= 4 and found.lower_bound.cost_usd_per_h >= 4 * (1 - 1e-6)
