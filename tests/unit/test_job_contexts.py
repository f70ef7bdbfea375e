"""A job pays the launch of its operations, unless its scenario says otherwise, and the result names the context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import windtunnel
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.results.run import OperationContext
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run, prepare_run
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()
SMALL = {"n": 1003}
LAUNCHING = [
    ("alveo-u50", "vector_add", SMALL),
    ("l4", "vector_add", SMALL),
    ("l4", "all_reduce", {"bytes": 4096, "workers": 2}),
    ("rtx-4090@vulkan", "vector_add", SMALL),
    ("host@opencl", "vector_add", SMALL),
    ("tpu-v6e", "gemm", {"m": 8, "n": 128, "k": 128, "dtype": "bfloat16"}),
]
WITHOUT_LAUNCH = [
    ("epyc-9654", "vector_add", SMALL),
    ("host@native", "vector_add", SMALL),
    ("qat-8970", "sign", {}),
    ("bluefield-3", "rdma", {"bytes": 4096}),
    ("l4", "copy", {"bytes": 4096, "direction": "h2d"}),
    ("l4", "launch", {}),
]
CHAT = {"layers": 2, "width": 1024, "heads": 8, "feed_forward": 4096}


def scenario(device: str, ops: list[Any], **more: Any) -> Any:
    return scenario_from_data(
        {
            "schema": 1,
            "name": "contexts",
            "fleet": [{"device": device}],
            "workload": [{"name": "w", "arrivals": {"process": "deterministic", "rate": "1 /s"}, "ops": ops}],
            "stop": {"jobs": 3},
        }
        | more
    )


def run(*args: Any, engine: str = "process", **more: Any) -> Run:
    finished = windtunnel.run(scenario(*args, **more), engine=engine, catalogue=KNOWN)
    assert isinstance(finished, Run)
    return finished


def one_s(device: str, ops: list[Any], **more: Any) -> float:
    return float(run(device, ops, **more).result.latency_s.mean.value or 0.0)


def predicted_s(device: str, op: str, columns: Mapping[str, Any], **context: str) -> float:
    return float(windtunnel.predict(op, device, {**columns, **context}, catalogue=KNOWN).duration_s)


def contexts(finished: Run) -> dict[str, OperationContext]:
    return {row.operation: row for row in finished.result.contexts}


def test_a_loose_operation_costs_its_launch_where_its_api_launches() -> None:
    for device, op, columns in LAUNCHING:
        eager = predicted_s(device, op, columns, dispatch="eager")
        assert eager > 1.2 * predicted_s(device, op, columns), (device, op)
        finished = run(device, [{op: columns}])
        assert finished.result.latency_s.mean.value == pytest.approx(eager, rel=1e-6), (device, op)
        assert contexts(finished)[op].dispatch == "eager"
    assert one_s("alveo-u50", [{"vector_add": SMALL}]) == pytest.approx(91.1e-6, rel=0.01)
    assert one_s("l4", [{"vector_add": SMALL}]) == pytest.approx(26.6e-6, rel=0.01)


def test_an_operation_without_a_launch_of_its_own_costs_the_device_s_time() -> None:
    for device, op, columns in WITHOUT_LAUNCH:
        finished = run(device, [{op: columns}])
        assert finished.result.latency_s.mean.value == pytest.approx(predicted_s(device, op, columns), rel=1e-6)
        row = contexts(finished).get(op)
        assert (row is None) != OPERATIONS.find(op).launched, op
        if row is not None:
            assert row.dispatch == "device"
            assert row.reason == KNOWN.device(device).api.no_launch


def test_a_stated_dispatch_is_kept_everywhere() -> None:
    for device in ("l4", "alveo-u50", "epyc-9654"):
        for dispatch in ("device", "eager"):
            finished = run(device, [{"vector_add": {**SMALL, "dispatch": dispatch}}])
            expected = predicted_s(device, "vector_add", SMALL, dispatch=dispatch)
            assert finished.result.latency_s.mean.value == pytest.approx(expected, rel=1e-6)
            assert contexts(finished)["vector_add"].dispatch == dispatch
            assert contexts(finished)["vector_add"].reason == "the scenario states it"


def test_both_engines_batches_and_the_lower_bound_of_plans_pay_the_launch() -> None:
    eager = predicted_s("l4", "vector_add", SMALL, dispatch="eager")
    for engine in ("process", "compiled"):
        assert one_s("l4", [{"vector_add": SMALL}], engine=engine) == pytest.approx(eager, rel=1e-6)
    batched = run("l4", [{"vector_add": SMALL}], policy={"name": "fifo", "batch": {"kind": "request", "size": 4}})
    assert batched.result.latency_s.mean.value == pytest.approx(eager, rel=1e-6)
    demand = minimum_demand(prepare_run(scenario("l4", [{"vector_add": SMALL}]), KNOWN))
    assert demand.alone_s[0] == pytest.approx([eager] * 3, rel=1e-6)


def test_a_fleet_of_several_kinds_has_a_row_for_each_dispatch() -> None:
    fleet = [{"device": name} for name in ("l4", "epyc-9654", "alveo-u50")]
    result = run("l4", [{"vector_add": SMALL}], fleet=fleet).result
    assert [(row.dispatch, row.devices) for row in result.contexts] == [
        ("device", ["epyc-9654"]),
        ("eager", ["l4", "alveo-u50"]),
    ]
    assert all(row.workloads == ["w"] for row in result.contexts)
    assert result.to_dict()["contexts"][1]["dispatch"] == "eager"


def test_generate_is_priced_in_graphs_at_the_sustained_clock_unless_its_model_says_otherwise() -> None:
    generate = [{"generate": {"model": "chat", "prompt": 4096, "output": 2}}]
    large = {**CHAT, "width": 8192, "feed_forward": 32768}
    took = {
        clock: run("h100-sxm-80gb", generate, models={"chat": {**large, **stated}})
        for clock, stated in (("default", {}), ("sustained", {"clock": "sustained"}), ("burst", {"clock": "burst"}))
    }
    row = contexts(took["default"])["generate"]
    assert (row.dispatch, row.clock) == ("graph", "sustained")
    times = {clock: finished.result.latency_s.mean.value for clock, finished in took.items()}
    assert times["default"] == times["sustained"]
    assert times["sustained"] > times["burst"], "a board at its power cap is slower than a short run"
