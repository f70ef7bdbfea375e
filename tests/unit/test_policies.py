"""Each policy does what its name says, on cases small enough to see."""

from __future__ import annotations

from typing import Any

import pytest

import windtunnel
from windtunnel.core.policy import ORDERS, POLICIES, ROUTES
from windtunnel.core.recommendation import MATRIX
from windtunnel.scenario.read import scenario_from_data


def devices_of(policy: Any, fleet: list[dict[str, Any]], count: int, **workload: Any) -> list[int]:
    data = {
        "schema": 1,
        "name": "p",
        "fleet": fleet,
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "deterministic", "rate": "1e6 /s"},
                "ops": [{"service": {"distribution": "deterministic", "mean": "1 s"}}],
            }
            | workload
        ],
        "policy": policy,
        "stop": {"jobs": count},
    }
    return windtunnel.run(scenario_from_data(data)).recording.jobs.device.tolist()


SERVER = {"device": "server"}


def test_fifo_takes_the_free_device_of_lowest_index_first() -> None:
    assert devices_of("fifo", [SERVER | {"count": 3}], 3) == [0, 1, 2]


def test_fifo_goes_on_to_a_later_class_when_an_earlier_one_is_full() -> None:
    fleet = [SERVER | {"streams": 2}, SERVER | {"count": 2}]
    assert devices_of("fifo", fleet, 6) == [0, 0, 1, 2, 0, 1]


def test_round_robin_takes_each_in_turn_across_classes() -> None:
    fleet = [SERVER | {"count": 2}, SERVER | {"speed": 100.0}]
    assert devices_of("round-robin", fleet, 7) == [0, 1, 2, 0, 1, 2, 0]


def test_least_loaded_counts_jobs_and_breaks_ties_for_the_faster_then_the_lower() -> None:
    fleet = [SERVER | {"count": 2}, SERVER | {"speed": 2.0}]
    assert devices_of("least-loaded", fleet, 6) == [2, 0, 1, 2, 0, 1]


def test_shortest_expected_completion_weighs_jobs_by_speed() -> None:
    fleet = [SERVER, SERVER | {"speed": 2.0}]
    # (present + 1) / speed: 0.5 and 1; 1 ties with 1 and the faster wins; then 1.5 against 1; ...
    assert devices_of("shortest-expected-completion", fleet, 6) == [1, 1, 0, 1, 1, 0]


def test_ties_that_rounding_would_break_go_to_the_faster() -> None:
    fleet = [SERVER | {"speed": 3.0}, SERVER | {"speed": 9.0}, SERVER]
    exact: list[int] = []
    present = [0, 0, 0]
    for _ in range(40):
        # (present + 1) / speed in ninths, an exact integer; then the faster, then the lower.
        chosen = min((1, 0, 2), key=lambda d: (present[d] + 1) * (3, 1, 9)[d])
        present[chosen] += 1
        exact.append(chosen)
    assert devices_of("shortest-expected-completion", fleet, 40) == exact


def test_cheapest_in_time_pays_for_speed_only_when_it_must() -> None:
    fleet = [SERVER | {"price": "1 USD/h"}, SERVER | {"speed": 2.0, "price": "5 USD/h"}]
    found = devices_of("cheapest-that-meets-the-deadline", fleet, 4, deadline="2.5 s")
    # The cheap one serves the first two in time (1 s and 2 s); the third would end at 3 s and goes to the dear one.
    assert found == [0, 0, 1, 1]


def test_a_job_that_nobody_serves_in_time_goes_where_it_ends_first() -> None:
    fleet = [SERVER | {"price": "1 USD/h"}, SERVER | {"speed": 2.0, "price": "5 USD/h"}]
    assert devices_of("cheapest-that-meets-the-deadline", fleet, 2, deadline="100 ms") == [1, 1]


def test_least_energy_in_time_prefers_the_frugal() -> None:
    fleet = [SERVER | {"power": {"idle": "10 W", "max": "400 W"}}, SERVER | {"power": {"idle": "10 W", "max": "90 W"}}]
    assert devices_of("least-energy-that-meets-the-deadline", fleet, 3, deadline="2.5 s") == [1, 1, 0]


def order_of(policy: str, workloads: list[dict[str, Any]]) -> list[str]:
    data = {
        "schema": 1,
        "name": "o",
        "fleet": [SERVER],
        "workload": [
            {
                "name": f"w{i}",
                "arrivals": {"process": "deterministic", "rate": f"{1000 - i} /s"},
                "ops": [{"service": {"distribution": "deterministic", "mean": "1 s"}}],
            }
            | workload
            for i, workload in enumerate(workloads)
        ],
        "policy": policy,
        "stop": {"jobs": 7},
    }
    jobs = windtunnel.run(scenario_from_data(data)).recording.jobs
    return [f"w{jobs.workload[j]}" for j in jobs.start.argsort(kind="stable")]


def test_priority_lets_the_higher_go_first_but_interrupts_nobody() -> None:
    assert order_of("priority", [{"priority": 1}, {"priority": 5}, {"priority": 3}]) == [
        "w0",
        "w1",
        "w1",
        "w2",
        "w2",
        "w0",
        "w0",
    ]


def test_earliest_deadline_goes_first() -> None:
    found = order_of("earliest-deadline-first", [{"deadline": "9 s"}, {"deadline": "1 s"}, {"deadline": "5 s"}])
    assert found == ["w0", "w1", "w1", "w2", "w2", "w0", "w0"]


def test_the_matrix_sends_each_use_to_its_primary_where_the_fleet_has_one() -> None:
    gemm = [{"gemm": {"m": 64, "n": 64, "k": 64, "dtype": "float32"}}]
    fleet = [{"device": "rtx-4090@vulkan"}, {"device": "tpu-v5e"}, {"device": "h100-sxm-80gb"}]
    assert devices_of("recommendation-matrix", fleet, 1, use_case="ml training", ops=gemm) == [2]
    assert devices_of("recommendation-matrix", fleet[:2], 1, use_case="ml training", ops=gemm) == [1]
    assert devices_of("recommendation-matrix", fleet[:1], 1, use_case="ml training", ops=gemm) == [0]


def test_a_use_whose_whole_row_is_missing_is_refused_not_served_by_something_else() -> None:
    from windtunnel.core.errors import InputError

    with pytest.raises(InputError, match="no device of the fleet is recommended for the use case 'apple devices'"):
        devices_of(
            "recommendation-matrix", [{"device": "h100-sxm-80gb"}], 1, use_case="apple devices", ops=[{"launch": {}}]
        )


def test_a_workload_that_names_its_devices_is_served_by_no_other() -> None:
    fleet = [SERVER | {"name": "a"}, SERVER | {"name": "b", "speed": 9.0}, SERVER | {"name": "c"}]
    assert devices_of("shortest-expected-completion", fleet, 4, devices=["a", "c"]) == [0, 2, 0, 2]
    assert devices_of("recommendation-matrix", fleet, 2, devices=["c"]) == [2, 2]


def test_the_matrix_is_the_seeds() -> None:
    rows = {use: (row.primary, row.alternative, row.fallback) for use, row in MATRIX.items()}
    assert rows["ml inference"] == (("cuda", "tpu"), ("metal",), ("wgpu",))
    assert rows["crypto/compression"] == (("qat",), ("gpu",), ("cpu",))
    assert rows["ultra-low latency"] == (("fpga",), ("qat",), ())
    assert len(rows) == 8


def test_every_part_says_what_it_does() -> None:
    for registry in (ROUTES, ORDERS):
        assert all(part.doc.endswith(".") for part in registry.values())
    assert {
        "fifo",
        "round-robin",
        "least-loaded",
        "shortest-expected-completion",
        "priority",
        "earliest-deadline-first",
    } <= set(POLICIES)
    assert {"cheapest-that-meets-the-deadline", "least-energy-that-meets-the-deadline", "recommendation-matrix"} <= set(
        POLICIES
    )
