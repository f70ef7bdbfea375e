"""Typed results as JSON: attributes have the names of the keys, and the keys of result.json do not change."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

import windtunnel
from windtunnel.core.results.data import HIDDEN, INLINE, OPTIONAL, Result, result_json, to_data
from windtunnel.core.results.run import Estimate, RunResult
from windtunnel.scenario.read import scenario_from_data

KEYS = [
    "name",
    "description",
    "engine",
    "engine_reason",
    "seed",
    "replications",
    "policy",
    "simulated_s",
    "jobs",
    "latency_s",
    "waiting_s",
    "serving",
    "statistics",
    "throughput_per_s",
    "workloads",
    "devices",
    "faults",
    "autoscale",
    "utilisation",
    "availability",
    "energy_j",
    "average_power_w",
    "peak_power_w",
    "power_limit_w",
    "power_budget",
    "cost_usd",
    "cost_usd_per_h",
    "total_cost_usd",
    "site",
    "targets",
    "contexts",
    "provenance",
    "model_accuracy",
    "power_error",
    "notes",
    "scenario",
    "versions",
]


@dataclass(frozen=True)
class Inner(Result):
    a: int
    b: float | None = None


@dataclass(frozen=True)
class Outer(Result):
    first: tuple[Inner, ...]
    inner: Inner = field(metadata=INLINE)
    absent: int | None = field(default=None, metadata=OPTIONAL)
    zero: int | None = field(default=0, metadata=OPTIONAL)
    own: str = field(default="not written", metadata=HIDDEN)


def test_a_field_can_be_left_out_inlined_or_hidden() -> None:
    outer = Outer((Inner(1),), Inner(2, 3.0))
    assert outer.to_dict() == {"first": [{"a": 1, "b": None}], "a": 2, "b": 3.0, "zero": 0}
    assert to_data({"nested": [outer]}) == {"nested": [outer.to_dict()]}
    assert Estimate(1.0, 0.5, 2.0, "a reason").to_dict() == {"value": 1.0, "low": 0.5, "high": 2.0}


def ran(queue: Any, replications: int) -> RunResult:
    finished = windtunnel.run(scenario_from_data(queue(stop={"jobs": 500})), replications=replications)
    assert isinstance(finished.result, RunResult)
    return finished.result


def test_the_keys_of_result_json_are_the_attributes_in_a_fixed_order(queue: Any) -> None:
    single, repeated = ran(queue, 1), ran(queue, 2)
    assert list(single.to_dict()) == KEYS
    assert sorted(repeated.to_dict()) == sorted(KEYS)
    assert list(repeated.to_dict())[7:11] == ["jobs", "latency_s", "waiting_s", "serving"]
    assert set(single.to_dict()["statistics"]) ^ set(repeated.to_dict()["statistics"]) == {
        "effective_sample_size", "batches", "replications"
    }  # fmt: skip


def test_result_json_is_the_text_of_the_attributes(queue: Any) -> None:
    result = ran(queue, 1)
    data = json.loads(result_json(result))
    assert data == result.to_dict()
    assert data["latency_s"]["p99"]["value"] == result.latency_s.p99.value
    assert data["workloads"][0]["jobs"] == vars(result.jobs)


def test_a_large_fleet_has_a_row_for_each_entry_unless_every_device_is_asked_for() -> None:
    """The times of its devices together are longer than an int64 of picoseconds reaches."""
    data = {
        "schema": 1,
        "name": "large",
        "fleet": [{"device": "l4", "count": 10_000, "price": "1 USD/h"}, {"device": "server", "name": "one"}],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "poisson", "rate": "0.3 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "20 s"}}],
            }
        ],
        "policy": "round-robin",
        "stop": {"jobs": 300},
    }
    scenario = scenario_from_data(data)
    summed = windtunnel.run(scenario).result
    each = windtunnel.run(scenario, all_devices=True).result
    assert [(row.name, row.count) for row in summed.devices] == [("l4", 10_000), ("one", 1)]
    assert len(each.devices) == 10_001 and {row.count for row in each.devices} == {None}
    assert summed.devices[0].rented_s > 2**63 / 1e12
    for row in summed.devices:
        members = [device for device in each.devices if device.entry == row.entry]
        assert row.jobs == sum(device.jobs for device in members)
        assert row.energy_j == pytest.approx(sum(device.energy_j for device in members), rel=1e-12)
        assert row.rented_s == pytest.approx(sum(device.rented_s for device in members))
        assert row.power_limit_w == pytest.approx(sum(device.power_limit_w for device in members))
        assert row.utilisation == pytest.approx(sum(device.utilisation for device in members) / len(members))
        assert row.utilisation_max == max(device.utilisation for device in members)
        assert row.unused == sum(not device.jobs for device in members)
    assert "count" not in each.to_dict()["devices"][0] and summed.to_dict()["devices"][0]["count"] == 10_000
    rest = {key: value for key, value in each.to_dict().items() if key != "devices"}
    assert {key: value for key, value in summed.to_dict().items() if key != "devices"} == rest
