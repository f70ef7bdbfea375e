"""Groups of devices that serve a decoder together: what a group costs, how it fails, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.errors import InputError
from windtunnel.core.group import Group
from windtunnel.core.step import DividedDecoder
from windtunnel.core.step_cost import StepLoad, step_cost
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.fault_schedule import FAIL
from windtunnel.engine.prepare.replica import Replica
from windtunnel.scenario.decoder import ServedModel
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run, prepare_run
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.models import known_architecture

CATALOGUE = Catalogue()
CONTEXT = {"dispatch": "graph", "clock": "sustained"}


def served(entry: dict[str, Any], model: str = "llama-3.1-70b", **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "group",
        "fleet": [{"device": "h100-sxm-80gb", "price": "3 USD/h", **entry}],
        "models": {"chat": {"catalogue": model}},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "poisson", "rate": "2 /s"},
                "ops": [{"generate": {"model": "chat", "prompt": 800, "output": 60}}],
            }
        ],
        "policy": {"name": "fifo", "batch": {"kind": "continuous"}},
        "stop": {"jobs": 40},
        **more,
    }


def run(data: dict[str, Any]) -> Run:
    return windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE)


def test_eight_devices_in_groups_of_four_are_two_replicas() -> None:
    result = run(served({"count": 8, "group": {"tensor": 4}})).result
    assert [(device.name, device.group) for device in result.devices] == [
        ("h100-sxm-80gb-0", 4), ("h100-sxm-80gb-1", 4),
    ]  # fmt: skip
    assert result.jobs.completed == 40
    assert result.cost_usd_per_h == pytest.approx(8 * 3.0)
    limit = CATALOGUE.device("h100-sxm-80gb").power_limit_w
    assert result.power_limit_w == pytest.approx(8 * limit)
    assert all(device.power_limit_w == pytest.approx(4 * limit) for device in result.devices)


def test_an_idle_group_draws_the_idle_power_of_all_its_devices() -> None:
    data = served({"count": 4, "group": {"tensor": 4}}, stop={"jobs": 1})
    finished = run(data)
    device = CATALOGUE.device("h100-sxm-80gb")
    above = float(np.sum(finished.recording.jobs.energy_j))
    idle = finished.result.simulated_s * 4 * device.idle_power_w
    assert finished.result.energy_j == pytest.approx(above + idle, rel=1e-6)


def costs(group: Group, model: str = "llama-3.1-8b", sku: str = "h100-sxm-80gb", tokens: int = 512) -> DecoderCosts:
    served_model = ServedModel(known_architecture(model), "graph", "sustained")
    return DecoderCosts(Replica(CATALOGUE.device(sku), group), served_model, LargestStep(tokens, 64), 4096)


@pytest.mark.parametrize(
    "group",
    [
        Group(),
        Group(tensor=4),
        Group(tensor=2, pipeline=2),
        Group(attention_data=2),
        Group(pipeline=4),
    ],
    ids=str,
)
def test_tables_of_the_engine_give_the_cost_of_steps_that_predict_gives(group: Group) -> None:
    tables, divided = costs(group), DividedDecoder(known_architecture("llama-3.1-8b"), group)
    decode = np.array([1.0, 4.0, 48.0])
    # Contexts at points of the table, so that nothing is interpolated.
    context = np.array([64.0, 2048.0, 1024.0])
    none = np.zeros(3)
    expected = step_cost(tables.device, divided, StepLoad(decode, context, none, none), CONTEXT)
    for i in range(3):
        seconds, joules = tables.step(int(decode[i]), decode[i] * context[i], (), 0)
        assert seconds == pytest.approx(expected.duration_s[i], rel=0.02)
        assert joules + seconds * tables.idle_power_w == pytest.approx(expected.energy_j[i], rel=0.02)


@pytest.mark.parametrize("group", [Group(), Group(tensor=2, pipeline=2), Group(attention_data=4)], ids=str)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_prompts_that_are_read_alone_cost_the_sum_of_their_steps(model: str, group: Group) -> None:
    tables = costs(group, model, tokens=1024)
    prompts = np.array([1, 63, 64, 65, 128, 129, 255, 256, 257, 1000, 1024, 1025, 2049, 3999])
    first_s, _, first_j, _ = tables.alone(prompts.astype(np.float64), np.ones(len(prompts)))
    one_by_one = [tables.reading([int(prompt)]) for prompt in prompts]
    assert np.stack([first_s, first_j], axis=1) == pytest.approx(np.array(one_by_one), rel=1e-12)


@pytest.mark.parametrize("sku", ["h100-sxm-80gb", "l4"])
def test_large_steps_between_blocks_of_eight_tokens_cost_what_predict_gives(sku: str) -> None:
    """Up to 512 tokens every number is priced, and of larger ones the first and the last of each block of 8."""
    tables = costs(Group(), sku=sku, tokens=2048)
    tokens = np.array([511.0, 512.0, 513.0, 516.0, 520.0, 521.0, 1003.0, 1500.0, 2044.0, 2048.0])
    none = np.zeros(len(tokens))
    divided = DividedDecoder(known_architecture("llama-3.1-8b"), Group())
    expected = step_cost(tables.device, divided, StepLoad(none, none, tokens, none), CONTEXT).duration_s
    found = [tables.reading([int(count)])[0] for count in tokens]
    assert found == pytest.approx(expected, rel=0.02)


def test_a_chunk_of_a_prompt_costs_what_predict_gives() -> None:
    tables, divided = costs(Group(tensor=2)), DividedDecoder(known_architecture("llama-3.1-8b"), Group(tensor=2))
    prefill, before, none = np.array([512.0, 512.0]), np.array([0.0, 1536.0]), np.zeros(2)
    expected = step_cost(tables.device, divided, StepLoad(none, none, prefill, before), CONTEXT)
    for i in range(2):
        seconds, _ = tables.step(0, 0.0, [(int(before[i]), 512)], 1)
        assert seconds == pytest.approx(expected.duration_s[i], rel=0.02)


@pytest.mark.parametrize("stages", [2, 4])
def test_microbatches_of_a_prompt_attend_to_those_before_them(stages: int) -> None:
    group, model = Group(pipeline=stages), known_architecture("llama-3.1-8b")
    tables = costs(group, tokens=3072)
    load = StepLoad(*np.array([[0.0], [0.0], [3072.0], [0.0]]))
    alone, staged = (step_cost(tables.device, DividedDecoder(model, each), load, CONTEXT) for each in (Group(), group))
    seconds, joules = tables.step(0, 0.0, [(0, 3072)], 1)
    assert seconds == pytest.approx(staged.duration_s[0], rel=0.01)
    assert joules + seconds * tables.idle_power_w == pytest.approx(staged.energy_j[0], rel=0.01)
    # The microbatches together have the arithmetic of the whole prompt.
    whole, divided = (sum(part.flops[0] for part in cost.parts) * cost.microbatches[0] for cost in (alone, staged))
    assert divided == pytest.approx(whole, rel=1e-3)


def test_a_sliding_window_limits_the_cost_of_long_contexts() -> None:
    windowed, whole = costs(Group(), "gpt-oss-20b", "b200-sxm-180gb"), costs(Group(), "qwen3-30b-a3b", "b200-sxm-180gb")
    assert sorted(windowed.windows)[0] == 128 and len(windowed.windows) == 2
    assert len(whole.windows) == 1

    def growth(tables: DecoderCosts) -> float:
        return float(tables.decode[0, 32, -2] / tables.decode[0, 32, 8])

    assert growth(windowed) < growth(whole)


def test_a_device_that_fails_takes_its_group_down_and_groups_fail_as_often_as_their_devices() -> None:
    fault = {"kind": "failure", "mtbf": "2 h", "mttr": "1 min"}

    def failures(entry: dict[str, Any]) -> int:
        schedule = prepare_run(scenario_from_data(served(entry, faults=[fault])), CATALOGUE).faults
        assert schedule is not None
        events = schedule.until(int(400 * 3600e12))
        assert events["on"].max() < entry["count"] / (entry.get("group", {}).get("tensor", 1))
        return int((events["code"] == FAIL).sum())

    # 8 devices fail about 1,600 times in 400 hours. In a group some of these repairs overlap.
    grouped = failures({"count": 8, "group": {"tensor": 8}})
    assert 0.85 * 8 * 400 / 2 < grouped < 8 * 400 / 2 * 1.05


def test_a_scaled_entry_counts_devices_and_adds_whole_groups() -> None:
    rule = {"entry": "h100-sxm-80gb", "min": 4, "max": 8, "up": {"queue_per_device": 1}, "provisioning": "1 s"}
    data = served({"count": 4, "group": {"tensor": 4}}, autoscale=[rule], stop={"jobs": 400})
    data["workload"][0]["arrivals"]["rate"] = "60 /s"
    data["policy"]["batch"]["size"] = 4
    (scaled,) = run(data).result.autoscale
    assert (scaled.min, scaled.max, scaled.max_in_service) == (4, 8, 8)
    del rule["min"]
    assert run(data).result.autoscale[0].min == 4
    rule["max"] = 6
    with pytest.raises(InputError, match="6 devices.*groups of 4"):
        run(data)


@pytest.mark.parametrize(
    ("entry", "model", "message"),
    [
        ({"count": 6, "group": {"tensor": 4}}, "llama-3.1-70b", "6 devices are not a whole number of groups of 4"),
        ({"count": 6, "group": {"tensor": 6}}, "llama-3.1-70b", r"group.tensor: the 64 query heads.*tensor of 1, 2, 4"),
        ({"count": 2, "group": {"pipeline": 200}, }, "llama-3.1-70b", "whole number of groups of 200"),
        ({"count": 1}, "llama-3.1-70b", r"does not fit: .*141 GB of weights.*expected tensor: 2 or more \(2 devices\)"),
        ({"count": 4, "group": {"tensor": 2, "expert": 4}}, "mixtral-8x7b", "4 parts of the experts do not divide 2"),
        ({"count": 4, "group": {"tensr": 4}}, "llama-3.1-70b", "did you mean 'tensor'"),
        ({"count": 4, "group": {"tensor": 4}, "streams": 2}, "llama-3.1-70b", "a group with streams"),
        ({"count": 4, "group": {"tensor": 4}, "engine": "vllm", "device": "tpu-v6e"}, "llama-3.1-8b", "engine: generic"),
        ({"count": 1}, "lama-3.1-8b", "no model is known as 'lama-3.1-8b'.*`windtunnel models` lists; did you mean 'llama-3.1-8b'"),
    ],
)  # fmt: skip
def test_what_does_not_divide_or_fit_is_an_error_that_says_what_would(
    entry: dict[str, Any], model: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(served(entry, model))


def test_a_group_serves_generate_alone() -> None:
    data = served({"count": 4, "group": {"tensor": 4}})
    data["workload"][0]["ops"] = [{"gemm": {"m": 64, "n": 64, "k": 64, "dtype": "bfloat16"}}]
    data["policy"] = "fifo"
    with pytest.raises(InputError, match="groups of 4, which serve `generate` alone"):
        run(data)


def test_a_context_longer_than_the_model_supports_is_an_error() -> None:
    data = served({"count": 1}, "llama-2-7b")
    data["workload"][0]["ops"][0]["generate"]["prompt"] = 4090
    with pytest.raises(InputError, match="4,150 tokens, and llama-2-7b supports 4,096"):
        run(data)


def test_a_model_comes_from_a_configuration_file_beside_the_scenario(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "data" / "models"
    config = next(path for path in sorted(source.glob("*.json")) if "qwen3-8b" in path.name.lower())
    (tmp_path / "config.json").write_text(config.read_text())
    data = served({"count": 1})
    data["models"] = {"chat": {"config": "config.json", "weights": "fp8", "kv_dtype": "fp8"}}
    scenario = scenario_from_data(data, str(tmp_path / "s.yaml"))
    found, known = scenario.served_models["chat"].architecture, known_architecture("qwen3-8b")
    assert found.parameters == known.parameters
    assert (found.weights.linear, found.kv_dtype) == ("fp8", "fp8")
    (tmp_path / "config.json").write_text('{"model_type": "unheard"}')
    with pytest.raises(InputError, match=r"config.json: model_type: unknown model_type 'unheard'"):
        scenario_from_data(data, str(tmp_path / "s.yaml"))


def test_a_link_and_a_network_that_the_scenario_states_replace_those_of_the_sku() -> None:
    def first_token(**more: Any) -> float:
        entry = {"count": 16, "group": {"tensor": 8, "pipeline": 2}, **more.pop("entry", {})}
        found = run(served(entry, stop={"jobs": 1}, **more)).recording.jobs
        return float(found.first[0] - found.start[0])

    assert first_token(entry={"node": {"link": "45 GB/s"}}) > 1.2 * first_token()
    slow = first_token(entry={"node": {"devices": 4}}, network={"bandwidth": "5 GB/s", "latency": "20 us"})
    assert slow > first_token(entry={"node": {"devices": 4}})


def test_the_result_tells_how_many_tokens_a_replica_has_room_for() -> None:
    result = run(served({"count": 1, "device": "rtx-4090"}, "llama-3.1-8b", stop={"jobs": 2})).result
    assert result.serving is not None
    # vLLM 0.19 reports 41,408 tokens at its default share of memory.
    assert result.serving.kv_capacity_tokens["rtx-4090"] == pytest.approx(41_408, rel=0.03)
