"""Laws of scaled fleets, whatever the fleet, the load and the rule. I1 to I10 are checked inside every `windtunnel.run`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import windtunnel
from windtunnel.core.recording import Recording, Steps
from windtunnel.core.results.data import result_json
from windtunnel.scenario.read import scenario_from_data

POLICIES = ["fifo", "priority", "least-loaded", "round-robin", "shortest-expected-completion"]


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    most = draw(st.integers(1, 6))
    least = draw(st.integers(1, most))
    scaled = {"device": "server", "name": "s", "count": draw(st.integers(least, most)), "price": "3.1 USD/h"}
    scaled |= {"power": {"idle": "11 W", "max": "70 W"}, "streams": draw(st.sampled_from([1, 1, 2]))}
    fleet: list[dict[str, Any]] = [scaled]
    if draw(st.booleans()):
        fleet.insert(draw(st.integers(0, 1)), {"device": "server", "name": "t", "speed": 2.0, "price": "1 USD/h"})
    arrivals = st.sampled_from(
        [
            {"process": "poisson", "rate": "3 /s"},
            {"process": "spikes", "rate": "1 /s", "factor": 12, "duration": "6 s", "mean_interval": "25 s"},
            {"process": "closed", "users": 12, "think": {"mean": "3 s"}},
            {"process": "burst", "rate": "0.3 /s", "burst_rate": "10 /s", "every": "30 s", "duration": "5 s"},
        ]
    )
    service = {"distribution": draw(st.sampled_from(["exponential", "deterministic"])), "mean": "1 s"}
    workload = [
        {"name": f"w{i}", "arrivals": draw(arrivals), "ops": [{"service": service}], "priority": i}
        for i in range(draw(st.integers(1, 2)))
    ]
    policy: Any = draw(st.sampled_from(POLICIES))
    if scaled["streams"] == 1 and draw(st.integers(0, 3)) == 0:
        policy = {"name": policy, "batch": {"kind": "request", "size": 3, "wait": "500 ms"}}
    up = draw(
        st.sampled_from(
            [{"queue_per_device": 1.5}, {"utilisation": "75%"}, {"queue_per_device": 3, "utilisation": 0.9}]
        )
    )
    down = draw(st.sampled_from([None, {"utilisation": "30%", "for": "4 s"}, {"queue_per_device": 0.5, "for": "0 s"}]))
    rule = {
        "entry": "s",
        "min": least,
        "max": most,
        "up": up,
        "down": down,
        "every": draw(st.sampled_from(["700 ms", "3 s"])),
        "provisioning": draw(st.sampled_from(["0 s", "2 s", "9 s"])),
    }
    return {
        "schema": 1,
        "name": "any",
        "seed": draw(st.integers(0, 1000)),
        "fleet": fleet,
        "workload": workload,
        "policy": policy,
        "autoscale": [rule],
        "stop": draw(st.sampled_from([{"jobs": 120}, {"time": "45 s"}])),
    }


def value_at(steps: Steps, ticks: np.ndarray) -> np.ndarray:
    return steps.values[np.searchsorted(steps.ticks, ticks, side="right") - 1]


@settings(max_examples=50)
@given(scenarios())
def test_scaling_keeps_its_bounds_loses_no_job_and_is_paid_for(data: dict[str, Any]) -> None:
    finished = windtunnel.run(scenario_from_data(data))
    recording, result = finished.recording, finished.result
    assert isinstance(recording, Recording)
    (rule,), (one,), (scaling,) = data["autoscale"], result.autoscale, recording.scaling
    jobs = result.jobs
    assert jobs.failed == jobs.dropped == 0
    if "jobs" in data["stop"]:
        assert jobs.completed == jobs.arrived == 120
    on, rented = scaling.in_service, scaling.rented
    assert rule["min"] <= on.values.min() and on.values.max() <= rented.values.max() <= rule["max"]
    every = round(float(data["autoscale"][0]["every"].split()[0]) * (1e9 if "ms" in rule["every"] else 1e12))
    # More are asked for, and a device that is on drains, at decisions alone.
    assert (np.array(rented.ticks)[1:][np.diff(rented.values) > 0] % every == 0).all()
    assert (np.array(on.ticks)[1:][np.diff(on.values) < 0] % every == 0).all()
    # Rent is the integral of what is rented, and so is idle power.
    assert abs(one.rented_s - rented.integral()) <= 1e-9 * max(1.0, one.rented_s)
    others = sum(result.simulated_s / 3600 for entry in data["fleet"] if entry["name"] == "t")
    assert abs(result.cost_usd - (one.rented_s * 3.1 / 3600 + others)) <= 1e-9 * max(1.0, result.cost_usd)
    # Never do more devices of the entry work than are rented.
    table = recording.intervals
    assert table is not None
    mine = np.isin(table.device, list(scaling.devices))
    if mine.any():
        at = np.unique(table.start[mine])
        working = [len(np.unique(table.device[mine & (table.start <= t) & (t < table.end)])) for t in at]
        assert (np.array(working) <= value_at(rented, at)).all()
    again = windtunnel.run(scenario_from_data(data))
    assert result_json(again.result) == result_json(result)


@settings(max_examples=20)
@given(scenarios())
def test_with_least_and_most_alike_nothing_is_scaled(data: dict[str, Any]) -> None:
    count = next(entry["count"] for entry in data["fleet"] if entry["name"] == "s")
    data["autoscale"][0] |= {"min": count, "max": count}
    runs = [windtunnel.run(scenario_from_data(data | more)).result for more in ({}, {"autoscale": []})]
    scaled, plain = (replace(run, autoscale=[], scenario={**run.scenario, "autoscale": []}) for run in runs)
    assert result_json(scaled) == result_json(plain)
