"""Autoscaling worked by hand: when it is decided, what devices then do, what is paid, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cases import search_alone

import windtunnel
from windtunnel.app import plan as planner
from windtunnel.app import run as run_command
from windtunnel.core.errors import InputError, InvariantError
from windtunnel.core.recording import Devices, Recording
from windtunnel.core.results.data import result_json
from windtunnel.engine.prepare.fault_schedule import FAIL
from windtunnel.engine.results import invariants
from windtunnel.report.summary import summary
from windtunnel.scenario.autoscale import Signals, Thresholds
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run


def rule(**changes: Any) -> dict[str, Any]:
    return {
        "entry": "s",
        "max": 4,
        "up": {"queue_per_device": 2},
        "down": {"utilisation": "40%", "for": "20 s"},
        "every": "10 s",
        "provisioning": "15 s",
    } | changes


def scenario(at: list[float], seconds: float, rules: list[Any], tmp: Any, **more: Any) -> Any:
    (tmp / "jobs.csv").write_text("t\n" + "".join(f"{t}\n" for t in [0.0, *at]))
    data = {
        "schema": 1,
        "name": "scaled",
        "fleet": [
            {"device": "server", "name": "s", "price": "36 USD/h", "power": {"idle": "10 W", "max": "30 W"}},
        ],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "trace", "file": "jobs.csv", "time": "t"},
                "ops": [{"service": {"distribution": "deterministic", "mean": f"{seconds} s"}}],
            }
        ],
        "autoscale": rules,
        "stop": {"time": "100 s"},
    } | more
    return scenario_from_data(data, str(tmp / "s.yaml"))


def series(finished: Any) -> list[tuple[float, int, int]]:
    one = finished.result.autoscale[0].series
    return list(zip(one.time_s, map(int, one.in_service), map(int, one.rented), strict=True))


def test_a_queue_brings_devices_and_quiet_takes_them_away(tmp_path: Any) -> None:
    finished = windtunnel.run(scenario([0.0] * 8, 10.0, [rule()], tmp_path))
    # Nine jobs of 10 s at once. At 10 s seven wait: ceil(7 / 2) = 4 are wanted, and three come at 25 s.
    assert series(finished)[:3] == [(0.0, 1, 1), (10.0, 1, 4), (25.0, 4, 4)]
    jobs = finished.recording.jobs
    assert sorted((jobs.start // 10**12).tolist()) == [0, 10, 20, 25, 25, 25, 30, 35, 35]
    # Devices that worked, in the mean, from 20 to 30 s: 2.5, to 40 s: 3.5, to 50 s: 1.0, of which at 40% that is to say
    # 7, 9 and 3 are wanted, and then none. The window of 20 s holds two decisions.
    assert series(finished)[3:] == [(60.0, 3, 3), (70.0, 1, 1)]
    one = finished.result.autoscale[0]
    assert (one.scale_ups, one.scale_downs, one.max_in_service, one.max_rented) == (1, 2, 4, 4)
    # Rented: one all the time, three from 10 s to 60 s, and two of them to 70 s.
    rented_s = 100 + 3 * 50 + 2 * 10
    assert one.rented_s == rented_s
    assert finished.result.cost_usd == pytest.approx(0.01 * rented_s, rel=1e-12)
    assert finished.result.energy_j == pytest.approx(10 * rented_s + 20 * 90, rel=1e-12)
    assert finished.result.utilisation == pytest.approx(90 / rented_s, rel=1e-12)
    assert finished.result.jobs.completed == 9
    assert "(1 to 4 of 4); scaled up 1 time, down 2 times" in summary(finished.result)


def test_utilisation_and_step(tmp_path: Any) -> None:
    up = {"utilisation": "50%", "step": 1}
    finished = windtunnel.run(scenario([0.0] * 30, 10.0, [rule(up=up, down=None, provisioning="0 s")], tmp_path))
    # Always busy: twice as many are wanted, one comes at each decision, and at once.
    assert series(finished) == [(0.0, 1, 1), (10.0, 2, 2), (20.0, 3, 3), (30.0, 4, 4)]
    assert (np.sort(finished.recording.jobs.start)[:10] // 10**12).tolist() == [0, 10, 10, 20, 20, 20, 30, 30, 30, 30]


def test_a_request_is_withdrawn_before_anything_is_drained(tmp_path: Any) -> None:
    # Five wait at 10 s, and three devices are asked for, which take 60 s; by 40 s all is done.
    down = {"utilisation": "40%", "for": "10 s"}
    finished = windtunnel.run(
        scenario([9.0] * 4, 6.0, [rule(down=down, provisioning="60 s", up={"queue_per_device": 1})], tmp_path)
    )
    assert series(finished)[:2] == [(0.0, 1, 1), (10.0, 1, 3)]
    assert all(on == 1 for _, on, _ in series(finished))
    assert series(finished)[-1][2] == 1
    assert finished.result.autoscale[0].scale_downs >= 1 and finished.result.jobs.completed == 5


def test_a_device_that_drains_ends_what_it_has_and_can_be_called_back(tmp_path: Any) -> None:
    # A job of 45 s on each of two devices; downwards only what waits counts here.
    down = {"queue_per_device": 0.5, "for": "0 s"}
    late = [0.0] + [25.0] * 8
    fleet = [{"device": "server", "name": "s", "count": 2, "power": {"idle": "10 W", "max": "30 W"}}]
    finished = windtunnel.run(scenario(late, 45.0, [rule(down=down)], tmp_path, fleet=fleet))
    # At 10 s nothing waits, so one is wanted: device 1 (of those that work alike, the highest number) drains, rented.
    # At 30 s eight wait: four are wanted; device 1 comes back at once, two more after 15 s. At 90 s the last have begun.
    assert series(finished) == [(0.0, 2, 2), (10.0, 1, 2), (30.0, 2, 4), (45.0, 4, 4), (90.0, 1, 4)]
    jobs = finished.recording.jobs
    assert jobs.finish[:2].tolist() == [45 * 10**12] * 2
    assert jobs.device[:2].tolist() == [0, 1] and (jobs.start[2:6] == 45 * 10**12).all()


@pytest.mark.parametrize("policy", ["least-loaded", "round-robin", "shortest-expected-completion"])
def test_jobs_that_wait_for_a_drained_device_are_routed_anew(policy: str, tmp_path: Any) -> None:
    fleet = [{"device": "server", "name": "s", "count": 2, "power": {"idle": "10 W", "max": "30 W"}}]
    down = {"queue_per_device": 100, "for": "0 s"}
    data = scenario(
        [0.0] * 5, 30.0, [rule(up={"queue_per_device": 200}, down=down)], tmp_path, fleet=fleet, policy=policy
    )
    finished = windtunnel.run(data.changed(stop=None))
    jobs = finished.recording.jobs
    # Three to each; at 10 s device 1 drains, ends its first at 30 s, and its other two go behind device 0's.
    assert jobs.device.tolist() == [0, 1, 0, 0, 0, 0]
    assert (jobs.start // (30 * 10**12)).tolist() == [0, 0, 1, 2, 3, 4]
    assert series(finished) == [(0.0, 2, 2), (10.0, 1, 2), (30.0, 1, 1)]


@pytest.mark.parametrize("batch", [None, {"kind": "request", "size": 2, "wait": "3 s"}])
@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
def test_with_no_room_to_scale_it_is_the_run_without(policy: str, batch: Any, tmp_path: Any) -> None:
    fleet = [
        {"device": "server", "name": "s", "count": 3, "price": "1.7 USD/h", "power": {"idle": "7 W", "max": "31 W"}},
        {"device": "server", "name": "t", "speed": 2.0, "price": "0.3 USD/h"},
    ]
    rng = np.random.default_rng(3)
    at = np.cumsum(rng.exponential(1.0, 60)).tolist()
    named = {"name": policy, "batch": batch} if batch else policy
    plain = windtunnel.run(scenario(at, 3.7, [], tmp_path, fleet=fleet, policy=named))
    scaled = windtunnel.run(scenario(at, 3.7, [rule(min=3, max=3, every="0.9 s")], tmp_path, fleet=fleet, policy=named))
    assert plain.result.autoscale == []
    assert scaled.result.autoscale[0].mean_in_service == 3
    one, other = (
        replace(r, autoscale=[], scenario={**r.scenario, "autoscale": []}) for r in (plain.result, scaled.result)
    )
    assert result_json(one) == result_json(other)


def test_streams_and_continuous_batches_drain_too() -> None:
    spikes = {"process": "spikes", "rate": "1 /s", "factor": 40, "duration": "5 s", "at": ["5 s"]}
    shared = {"schema": 1, "name": "drains", "stop": {"time": "60 s"}}
    scale = {"entry": "l4", "max": 4, "up": {"queue_per_device": 2}, "down": {"utilisation": 0.6, "for": "6 s"}}
    chat = {"name": "w", "arrivals": spikes, "ops": [{"generate": {"model": "m", "prompt": 200, "output": 100}}]}
    copies = {
        "name": "w",
        "arrivals": spikes,
        "ops": [{"copy": {"bytes": 3_000_000_000, "direction": "h2d"}}, {"fft": {"n": 4096}}],
    }
    for workload, more in (
        (chat, {"policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 4}},
                "models": {"m": {"layers": 16, "width": 2048, "heads": 16, "feed_forward": 8192}}}),
        (copies, {"fleet": [{"device": "l4", "streams": 3}]}),
    ):  # fmt: skip
        data = {"fleet": [{"device": "l4"}], "workload": [workload]} | shared | more
        data["autoscale"] = [scale | {"every": "2 s", "provisioning": "3 s"}]
        finished = windtunnel.run(scenario_from_data(data))
        (one,) = finished.result.autoscale
        assert one.max_in_service > 1 and one.scale_downs > 0 and finished.result.jobs.queued == 0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"max": 3}, "4 rented"),
        ({"min": 2}, "1 devices in service"),
        ({"devices": range(1)}, "the integral of its number"),
    ],
)
def test_the_invariant_of_rent_bites(changes: dict[str, Any], what: str, tmp_path: Any) -> None:
    recording = windtunnel.run(scenario([0.0] * 8, 10.0, [rule()], tmp_path)).recording
    assert isinstance(recording, Recording)
    invariants.check(recording)
    with pytest.raises(InvariantError, match=f"I10.*{what}"):
        invariants.check(replace(recording, scaling=[replace(recording.scaling[0], **changes)]))
    idle = replace(
        recording.devices[0], rented_ticks=recording.devices[0].busy_ticks - 1, idle_power_w=0.0, energy_j=0.0
    )
    with pytest.raises(InvariantError, match="I[67]|I10"):
        invariants.check(replace(recording, devices=Devices.of([idle, *recording.devices[1:]])))


def test_replications_and_closed_loops_go_with_it() -> None:
    data = {
        "schema": 1,
        "name": "both",
        "fleet": [{"device": "server", "name": "s", "price": "1 USD/h"}],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "closed", "users": 30, "think": {"mean": "2 s"}},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 s"}}],
            }
        ],
        "autoscale": [rule(max=20, every="2 s", up={"utilisation": "80%"})],
        "stop": {"jobs": 2000},
    }
    result = windtunnel.run(scenario_from_data(data), replications=3).result
    assert result.jobs.completed == 6000
    # Thirty users keep about ten busy; with fewer devices they wait, with all the cost would be twenty's.
    assert 10 < result.autoscale[0].mean_in_service < 16
    assert result.cost_usd < 0.8 * 20 * result.simulated_s / 3600


def test_a_report_draws_how_many_were_rented(tmp_path: Any) -> None:
    (tmp_path / "out").mkdir()
    finished = windtunnel.run(scenario([0.0] * 8, 10.0, [rule()], tmp_path))
    run_command.save(finished, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Rented devices of s over time" in page and 'data-chart="scaling-0"' in page


def test_thresholds_are_per_device_and_the_most_of_them_counts() -> None:
    both = Thresholds.model_validate({"queue_per_device": 4, "utilisation": "80%"})
    assert [both.wanted(Signals(q, w)) for q, w in ((0, 0.0), (4, 0.0), (5, 0.0), (0, 3.2), (0, 3.3), (9, 3.3))] == [
        0,
        1,
        2,
        4,
        5,
        5,
    ]
    # Sums of shares that are exact but for rounding do not count as more.
    assert both.wanted(Signals(0, 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.3)) == 1


def test_its_values_read_back() -> None:
    data = {
        "schema": 1, "name": "x", "fleet": [{"device": "server", "name": "s"}], "stop": {"jobs": 1},
        "workload": [{"name": "w", "arrivals": {"process": "poisson", "rate": "1 /s"}, "ops": [{"service": {"mean": "1 s"}}]}],
        "autoscale": [rule(up={"utilisation": "80%"})],
    }  # fmt: skip
    data["workload"][0]["ops"] = [{"service": {"mean": "1 s", "distribution": "exponential"}}]
    once = scenario_from_data(data)
    again = scenario_from_data(once.resolved())
    assert again.autoscale == once.autoscale and once.autoscale[0].up.utilisation == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("rules", "more", "problem"),
    [
        ([rule(entry="S")], {}, r"the fleet has no 'S'.*did you mean 's'"),
        ([rule(), rule()], {}, r"autoscale\[0\] is about 's' too"),
        ([rule(min=5)], {}, r"min \(5\) is greater than max \(4\)"),
        ([rule(min=2)], {}, r"fleet\[0\].*begins with 1, which is not from 2 to 4"),
        ([rule(up={})], {}, "no metric is given"),
        ([rule(up={"utilisation": "30%"})], {}, "to avoid oscillation"),
        ([rule(up={"utilization": "30%"})], {}, "did you mean 'utilisation'"),
        ([rule(up={"utilisation": "130%"})], {}, "too large"),
        ([rule(every="0 s")], {}, "zero"),
        ([rule(every="1 ps")], {}, r"autoscale\[0\].every: the autoscaling interval of s is too short: 100,000,000,000,000 decisions"),
        ([rule(every="30 d")], {}, r"every: the autoscaling interval of s is too long: 4 devices together work for more than 106 days"),
        ([rule()], {"power_budget": "59 W"}, "'w' on s could never start: it draws 20.0 W above the idle 40.0 W of the fleet"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_place(rules: Any, more: Any, problem: str, tmp_path: Any) -> None:
    with pytest.raises(InputError, match=problem):
        windtunnel.run(scenario([0.0], 1.0, rules, tmp_path, **more))


def test_another_device_is_provisioned_for_one_that_failed(tmp_path: Any) -> None:
    """One of two devices fails. It is replaced at the next decision, and the replacement serves 15 s later."""
    faults = [{"kind": "failure", "mtbf": "100 s", "mttr": "1000 h"}]
    fleet = [{"device": "server", "name": "s", "count": 2, "power": {"idle": "10 W", "max": "30 W"}}]
    stated = scenario([0.0], 20.0, [rule(min=2, down=None)], tmp_path, faults=faults, fleet=fleet, seed=45)
    finished = windtunnel.run(stated)
    events = prepare_run(stated, windtunnel.catalogue()).faults.until(100 * 10**12)
    failed = [int(event["tick"]) for event in events if event["code"] == FAIL and event["on"] < 2]
    assert len(failed) == 1
    decision = -(-failed[0] // 10**13) * 10
    assert series(finished)[:3] == [(0.0, 2, 2), (decision, 2, 3), (decision + 15.0, 3, 3)]


@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
def test_a_device_that_failed_while_it_drained_returns_its_job(policy: str, tmp_path: Any) -> None:
    """Two jobs start at 49 s. The second device drains from 50 s on, and both fail at 60 s for 5 s.

    The job of the device that drained then runs on the other one, after that one's own job.
    """
    faults = [{"kind": "failure", "at": ["60 s"], "duration": "5 s"}]
    rules = [rule(every="50 s", down={"utilisation": "90%", "for": "0 s"}, up={"utilisation": "95%"}, max=2)]
    fleet = [{"device": "server", "name": "s", "count": 2, "power": {"idle": "10 W", "max": "30 W"}}]
    more = {"faults": faults, "fleet": fleet, "policy": policy, "stop": {"jobs": 3}}
    jobs = windtunnel.run(scenario([49.0, 49.0], 40.0, rules, tmp_path, **more)).recording.jobs
    assert jobs.device.tolist()[1:] == [0, 0]
    assert sorted(jobs.start.tolist()[1:]) == [65 * 10**12, 105 * 10**12]


def test_provisioned_devices_draw_idle_power_from_the_budget(tmp_path: Any) -> None:
    """Seven jobs of 20 W above the idle 10 W of each device. With three devices in service, 70 W suffice for two jobs."""
    rules = [rule(down=None, max=4)]
    finished = windtunnel.run(scenario([0.0] * 6, 30.0, rules, tmp_path, power_budget="70 W"))
    assert max(rented for _, _, rented in series(finished)) == 3
    assert finished.recording.power.values.max() == 70
    free = windtunnel.run(scenario([0.0] * 6, 30.0, rules, tmp_path))
    assert free.recording.power.values.max() == 90


def test_a_fault_elsewhere_and_stragglers_go_with_it(tmp_path: Any) -> None:
    fleet = [{"device": "server", "name": "s"}, {"device": "server", "name": "t"}]
    faults = [
        {"kind": "failure", "devices": ["t"], "at": ["5 s"], "duration": "50 s"},
        {"kind": "straggler", "probability": 0.5, "slowdown": 2.0},
    ]
    finished = windtunnel.run(scenario([0.0] * 8, 10.0, [rule()], tmp_path, fleet=fleet, faults=faults, stop=None))
    assert finished.result.jobs.completed == 9 and finished.result.autoscale[0].scale_ups == 1
    # A device that fails for good keeps its job for ever; the controller does not keep the run alive.
    only = [{"kind": "failure", "devices": ["t"], "at": ["5 s"]}]
    more = {"fleet": fleet, "faults": only, "stop": None, "policy": "round-robin"}
    stuck = windtunnel.run(scenario([0.0] * 8, 10.0, [rule(every="10 h")], tmp_path, **more))
    assert stuck.result.jobs.queued > 0


def test_both_engines_scale_alike(tmp_path: Any) -> None:
    data = scenario([0.0] * 8, 10.0, [rule()], tmp_path, targets=["latency p99 <= 50 s"])
    one, other = (windtunnel.run(data, engine=engine) for engine in ("process", "compiled"))
    assert one.result.autoscale == other.result.autoscale and one.result.autoscale[0].scale_ups == 1
    assert one.recording.jobs.finish.tolist() == other.recording.jobs.finish.tolist()


def test_a_plan_finds_the_largest_number_that_a_scaled_entry_needs(tmp_path: Any) -> None:
    data = scenario([0.0], 1.0, [rule(max=6)], tmp_path, targets=["latency p95 <= 8 s"], seed=1)
    poisson = {"process": "poisson", "rate": "1.8 /s"}
    service = {"service": {"distribution": "deterministic", "mean": "1 s"}}
    data = scenario_from_data(
        data.resolved()
        | {"workload": [{"name": "calls", "arrivals": poisson, "ops": [service]}], "stop": {"jobs": 8000}}
        | {"fleet": [{"device": "server", "name": "s", "price": "1 USD/h"}]}
    )
    with search_alone():
        found = planner.plan(data, workers=1)
    best = found.fleets[found.recommended]
    (simulated,) = [f for f in found.simulated if f.entries == best.entries]
    number = best.entries["s"]
    assert 2 <= number < 6 and best.text == f"1 to {number} × s"

    def with_most(most: int) -> Any:
        rules = [data.autoscale[0].model_copy(update={"max": most})]
        return windtunnel.run(data.changed(autoscale=rules)).result

    assert simulated.meets.confidence and with_most(number).latency_s.p95.value <= 8
    fewer = with_most(number - 1)
    assert fewer.latency_s.p95.value is None or fewer.latency_s.p95.high > 8
    assert found.lower_bound.cost_usd_per_h <= best.cost_usd_per_h < number
    assert any("is scaled" in note for note in found.notes)
