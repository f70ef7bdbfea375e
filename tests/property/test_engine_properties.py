"""Laws that hold for every fleet, workload and policy. Each run's invariants (I1-I9) are checked inside `windtunnel.run`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import FLEET_POLICIES, memory_of

import windtunnel
from windtunnel.core.results.data import result_json
from windtunnel.scenario.read import scenario_from_data

CATALOGUE = windtunnel.catalogue()


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    fleet = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "device": st.sampled_from(["server", "h100-sxm-80gb", "alveo-u280", "epyc-9654", "l4@vulkan"]),
                    "count": st.integers(1, 4),
                    "speed": st.sampled_from([0.5, 1.0, 3.0]),
                    "streams": st.sampled_from([1, 1, 3]),
                    "price": st.just("1 USD/h"),
                }
            ),
            min_size=1,
            max_size=3,
        )
    )
    stated = [
        {
            "service": {
                "distribution": draw(st.sampled_from(["exponential", "lognormal", "deterministic"])),
                "mean": "1 ms",
            }
        }
    ]
    mixed = [
        {"copy": {"bytes": 1_000_000, "direction": "h2d"}},
        {"repeat": {"times": 2, "ops": [{"launch": {}}]}},
        {"copy": {"bytes": 1_000_000, "direction": "d2h"}},
    ]
    side_by_side = [{"streams": [[{"copy": {"bytes": 4_000_000, "direction": "h2d"}}], [{"launch": {"count": 50}}]]}]
    accelerated = all(entry["device"] != "server" for entry in fleet)
    programs = [stated, mixed, side_by_side] if accelerated else [stated]
    workload = [
        {
            "name": f"w{i}",
            "arrivals": draw(
                st.sampled_from(
                    [
                        {"process": "poisson", "rate": "1500 /s"},
                        {"process": "deterministic", "rate": "1000 /s"},
                        {"process": "closed", "users": 40, "think": {"mean": "20 ms"}},
                        {
                            "process": "burst",
                            "rate": "100 /s",
                            "burst_rate": "5000 /s",
                            "every": "50 ms",
                            "duration": "10 ms",
                        },
                    ]
                )
            ),
            "ops": draw(st.sampled_from(programs)),
            "priority": i,
            "deadline": "20 ms",
        }
        for i in range(draw(st.integers(1, 3)))
    ]
    policy: Any = draw(st.sampled_from(FLEET_POLICIES))
    if (
        draw(st.booleans())
        and all(entry["streams"] == 1 for entry in fleet)
        and not any("streams" in op for w in workload for op in w["ops"])
    ):
        policy = {"name": policy, "batch": {"kind": "request", "size": 4, "wait": "2 ms"}}
    return {
        "schema": 1,
        "name": "any",
        "seed": draw(st.integers(0, 1000)),
        "fleet": fleet,
        "workload": workload,
        "policy": policy,
        "stop": draw(st.sampled_from([{"jobs": 300}, {"time": "100 ms"}])),
    }


@settings(max_examples=40)
@given(scenarios())
def test_every_run_keeps_its_invariants_and_repeats_exactly(data: dict[str, Any]) -> None:
    one = windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE)
    two = windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE)
    assert result_json(one.result) == result_json(two.result)
    jobs = one.recording.jobs
    if "jobs" in data["stop"]:
        assert one.result.jobs.completed == one.result.jobs.arrived == 300
    assert np.array_equal(jobs.start, two.recording.jobs.start)


@settings(max_examples=30)
@given(
    st.sampled_from(["fifo", "round-robin", "least-loaded", "shortest-expected-completion"]),
    st.integers(0, 100),
    st.integers(1, 4),
)
def test_one_device_serves_in_order_whatever_routes_there(policy: str, seed: int, doubling: int) -> None:
    def waits(count: int) -> float:
        data = {
            "schema": 1,
            "name": "q",
            "seed": seed,
            "fleet": [{"device": "server", "count": count}],
            "workload": [
                {
                    "name": "w",
                    "arrivals": {"process": "poisson", "rate": "900 /s"},
                    "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
                }
            ],
            "policy": policy,
            "stop": {"jobs": 500},
        }
        return float(windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE).result.waiting_s.mean.value)

    # The same draws on twice the servers never wait longer on average (the i-th job has the same size in both).
    assert waits(2**doubling) <= waits(1) + 1e-12


@settings(max_examples=25)
@given(st.integers(0, 1000), st.floats(1.0, 8.0))
def test_a_central_queue_never_idles_a_server_while_a_job_waits(seed: int, rate: float) -> None:
    data = {
        "schema": 1,
        "name": "q",
        "seed": seed,
        "fleet": [{"device": "server", "count": 3}, {"device": "server", "count": 2, "speed": 2.0}],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "poisson", "rate": f"{rate * 1000} /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
            }
        ],
        "stop": {"jobs": 400},
    }
    jobs = windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE).recording.jobs
    for arrival, start in zip(jobs.arrival.tolist(), jobs.start.tolist(), strict=True):
        if start > arrival:
            # All the while the job waited, five jobs were in service.
            working = (jobs.start <= arrival) & (jobs.finish > arrival)
            assert int(working.sum()) == 5


TINY = {"layers": 2, "width": 512, "heads": 8, "feed_forward": 1024, "vocabulary": 1000}


@st.composite
def serving(draw: st.DrawFn) -> dict[str, Any]:
    prompt, output = draw(st.integers(1, 600)), draw(st.integers(1, 80))
    # From memory for one such request and a little, to memory for hundreds.
    tokens = math.ceil((prompt + output + 1) * draw(st.sampled_from([1.2, 3.0, 300.0])))
    return {
        "schema": 1,
        "name": "serving",
        "seed": draw(st.integers(0, 1000)),
        "fleet": [
            {
                "device": draw(st.sampled_from(["l4", "h100-sxm-80gb", "tpu-v5e", "mi300x"])),
                "count": draw(st.integers(1, 2)),
                "price": "1 USD/h",
                "memory": memory_of(TINY, tokens, 8192, 64),
            }
        ],
        "models": {"tiny": TINY},
        "workload": [
            {
                "name": name,
                "arrivals": {"process": "poisson", "rate": draw(st.sampled_from(["50 /s", "5000 /s"]))},
                "ops": [{"generate": {"model": "tiny", "prompt": prompt, "output": output}}],
                "deadline": "1 s",
            }
            for name in ("chat", "code")
        ],
        "policy": {
            "name": draw(st.sampled_from(FLEET_POLICIES)),
            "batch": draw(
                st.sampled_from(
                    [
                        {"kind": "continuous", "size": 4, "tokens": 64},
                        {"kind": "continuous", "size": 64, "tokens": 2048},
                        {"kind": "request", "size": 8, "wait": "5 ms"},
                    ]
                )
            ),
        },
        "stop": draw(st.sampled_from([{"jobs": 60}, {"time": "50 ms"}])),
    }


@settings(max_examples=30)
@given(serving())
def test_serving_keeps_its_invariants_and_makes_every_token_once(data: dict[str, Any]) -> None:
    finished = windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE)
    output = data["workload"][0]["ops"][0]["generate"]["output"]
    if "jobs" in data["stop"]:
        assert finished.result.jobs.completed == 60
        assert int(finished.recording.token_gaps.weights.sum()) == 60 * (output - 1)
    assert result_json(finished.result) == result_json(
        windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE).result
    )
