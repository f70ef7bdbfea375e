"""Autoscaling of serving replicas by what their batches hold."""

from __future__ import annotations

from typing import Any

import pytest

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.scenario.autoscale import Signals, Thresholds
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.models import known_architecture

CATALOGUE = Catalogue()


def scaled(up: dict[str, Any], down: dict[str, Any] | None = None, **rule: Any) -> dict[str, Any]:
    """One replica of a small decoder, whose load rises twelvefold for 20 s."""
    rule = {"entry": "l4", "max": 6, "up": up, "every": "5 s", "provisioning": "2 s", **rule}
    return {
        "schema": 1,
        "name": "scaled",
        "fleet": [{"device": "l4", "count": 1}],
        "models": {"chat": {"catalogue": "qwen3-0.6b"}},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "spikes", "rate": "2 /s", "factor": 12, "duration": "20 s", "at": ["20 s"]},
                "ops": [{"generate": {"model": "chat", "prompt": 600, "output": 100}}],
            }
        ],
        "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 64}},
        "autoscale": [rule | ({"down": down} if down else {})],
        "stop": {"time": "90 s"},
    }


def run(data: dict[str, Any], engine: str = "auto") -> Run:
    return windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE, engine=engine)


def test_each_metric_asks_for_the_devices_that_bring_it_to_its_target() -> None:
    signals = Signals(waiting=9, working=2.0, running=50, kv_use=1.5, tokens_per_s=10_000.0)
    for keys, wanted in (
        ({"queue_per_device": 4}, 3),
        ({"running_per_device": 16}, 4),
        ({"kv_use": "75%"}, 2),
        ({"tokens_per_device": "2500 /s"}, 4),
        ({"running_per_device": 16, "queue_per_device": 1}, 9),
    ):
        assert Thresholds(**keys).wanted(signals) == wanted


@pytest.mark.parametrize(
    ("up", "down"),
    [
        ({"running_per_device": 12}, {"running_per_device": 4, "for": "15 s"}),
        ({"kv_use": "6%"}, {"kv_use": "2%", "for": "15 s"}),
        ({"tokens_per_device": "4000 /s"}, {"tokens_per_device": "2000 /s", "for": "15 s"}),
    ],
    ids=["running", "kv", "tokens"],
)
def test_replicas_are_added_in_a_rush_and_go_when_it_is_over(up: dict[str, Any], down: dict[str, Any]) -> None:
    finished = run(scaled(up, down))
    (entry,) = finished.result.autoscale
    assert entry.scale_ups >= 1 and entry.scale_downs >= 1
    assert entry.max_in_service > 1
    assert entry.series.in_service[-1] < entry.max_in_service


def test_both_engines_scale_serving_replicas_alike() -> None:
    data = scaled({"running_per_device": 8, "kv_use": "50%"}, {"tokens_per_device": "1000 /s", "for": "10 s"})
    data["stop"] = {"time": "50 s"}
    compiled, process = (run(data, engine).recording for engine in ("compiled", "process"))
    assert compiled.scaling[0].scale_ups >= 1
    assert (compiled.jobs.finish == process.jobs.finish).all()


def test_busy_time_adds_replicas_for_a_few_sequences_and_running_sequences_do_not() -> None:
    def most(up: dict[str, Any]) -> int:
        data = scaled(up)
        data["workload"][0]["arrivals"] = {"process": "deterministic", "rate": "3 /s"}
        (entry,) = run(data).result.autoscale
        return entry.max_in_service

    assert most({"running_per_device": 12}) == 1
    assert most({"utilisation": "80%"}) > 1


def test_a_replica_loads_its_weights_before_it_serves() -> None:
    def ready_s(**rule: Any) -> float:
        scaling = run(scaled({"running_per_device": 12}, **rule)).recording.scaling[0]
        rented = int(scaling.rented.ticks[scaling.rented.values > 1][0])
        return (int(scaling.in_service.ticks[scaling.in_service.values > 1][0]) - rented) / TICKS_PER_SECOND

    assert ready_s() == pytest.approx(2.0)
    weight_bytes = known_architecture("qwen3-0.6b").weight_bytes
    assert ready_s(weights_bandwidth="0.1 GB/s") == pytest.approx(2.0 + weight_bytes / 1e8)


def test_metrics_of_batches_need_batches() -> None:
    data = scaled({"running_per_device": 12})
    data["policy"] = "fifo"
    with pytest.raises(InputError, match=r"autoscale\[0\].up.running_per_device: running_per_device needs devices"):
        run(data)
