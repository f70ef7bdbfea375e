"""Speculative decoding: what a step that drafts and verifies costs, and how many tokens it gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.errors import InputError
from windtunnel.core.group import Group
from windtunnel.core.results.decoding import SpeculationUse
from windtunnel.core.serving_engine import divided_decoder
from windtunnel.core.speculation import Draft, Speculation, draft_of
from windtunnel.core.step_cost import StepLoad, step_cost
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.replica import Replica
from windtunnel.scenario.decoder import ServedModel
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run, prepare_run
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.engines import serving_engine
from windtunnel_models.models import known_architecture, model_names

CATALOGUE = Catalogue()
CONTEXT = {"dispatch": "graph", "clock": "sustained"}
TARGET = known_architecture("llama-3.1-8b")
MODEL = {"layers": 4, "width": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1024, "vocabulary": 2000}
SMALL = Draft("llama-3.2-1b", known_architecture("llama-3.2-1b"), owns_ends=True)


def data(speculation: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    """Return requests of 41 output tokens at a replica of one H100."""
    return {
        "schema": 1,
        "name": "speculation",
        "fleet": [{"device": "h100-sxm-80gb", "engine": "vllm"}],
        "models": {"chat": MODEL | ({"speculation": speculation} if speculation else {})},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "poisson", "rate": "2000 /s"},
                "ops": [{"generate": {"model": "chat", "prompt": 100, "output": 41}}],
            }
        ],
        "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 16, "tokens": 256}},
        "stop": {"jobs": 60},
        **more,
    }


def drafting(tokens: int, acceptance: Any, draft: str = "eagle", **more: Any) -> dict[str, Any]:
    return {"draft": draft, "tokens": tokens, "acceptance": acceptance, **more}


def run(scenario: dict[str, Any]) -> Run:
    return windtunnel.run(scenario_from_data(scenario), catalogue=CATALOGUE, engine="process")


def use_of(finished: Run) -> SpeculationUse:
    serving = finished.result.serving
    assert serving is not None and serving.speculation is not None
    return serving.speculation


DRAFTS = {
    "a decoder": Speculation(SMALL, 3),
    "a decoder on one device": Speculation(SMALL, 2, tensor=1),
    "EAGLE": Speculation(draft_of("eagle", TARGET), 3),
    "MTP": Speculation(draft_of("mtp", replace(TARGET, mtp_layers=1)), 1),
    "Medusa": Speculation(draft_of("medusa", TARGET), 4),
    "n-grams": Speculation(draft_of("ngram", TARGET), 4),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_tables_of_the_engine_give_the_cost_of_drafting_and_verifying_that_predict_gives(name: str) -> None:
    speculation, group, engine = DRAFTS[name], Group(tensor=2), serving_engine("vllm")
    device = CATALOGUE.device("h100-sxm-80gb")
    served = ServedModel(TARGET, "graph", "sustained", speculation)
    step = LargestStep(300, 10, speculation.query_tokens)
    tables = DecoderCosts(Replica(device, group, engine), served, step, 2048)
    divided = divided_decoder(device, TARGET, group, engine, speculation=speculation)
    decode, context = np.array([1.0, 4.0, 10.0, 8.0]), np.array([64.0, 2048.0, 1024.0, 512.0])
    prefill = np.array([0.0, 0.0, 0.0, 256.0])
    expected = step_cost(device, divided, StepLoad(decode, context, prefill, np.zeros(4)), CONTEXT)
    for i in range(4):
        chunks = [(0, int(prefill[i]))] if prefill[i] else []
        seconds, joules = tables.step(int(decode[i]), decode[i] * context[i], chunks, len(chunks))
        assert seconds == pytest.approx(expected.duration_s[i], rel=0.02)
        assert joules + seconds * tables.idle_power_w == pytest.approx(expected.energy_j[i], rel=0.02)


def test_a_step_costs_its_passes_of_the_draft_and_one_of_the_decoder() -> None:
    """One by one: a pass over the tokens of the last step, two over one token each, and the verification of four."""
    device, context = CATALOGUE.device("h100-sxm-80gb"), np.array([1024.0])
    load = StepLoad(np.array([16.0]), context, np.zeros(1), np.zeros(1))

    def cost(model: str, speculation: Speculation | None = None) -> float:
        divided = divided_decoder(device, known_architecture(model), Group(), None, speculation=speculation)
        return float(step_cost(device, divided, load, CONTEXT).duration_s[0])

    silent = Speculation(draft_of("ngram", TARGET), 3)
    whole = cost("llama-3.1-8b", Speculation(SMALL, 3))
    verify = cost("llama-3.1-8b", silent)
    one, four = cost("llama-3.2-1b"), cost("llama-3.2-1b", silent)
    assert verify > cost("llama-3.1-8b")
    assert whole - verify - 2 * one == pytest.approx(four, rel=0.1)  # the first pass gives logits of one token alone
    assert whole - verify - 2 * one < four


def test_the_arithmetic_of_verification_is_that_of_all_its_tokens_and_the_cache_is_read_once() -> None:
    device, load = CATALOGUE.device("h100-sxm-80gb"), StepLoad(*(np.array([v]) for v in (16.0, 1024.0, 0.0, 0.0)))
    for model in ("llama-3.1-8b", "deepseek-v2-lite"):
        parts = []
        for tokens in (1, 4):
            found = known_architecture(model)
            silent = Speculation(draft_of("ngram", found), tokens - 1)
            divided = divided_decoder(device, found, Group(), None, speculation=silent)
            parts.append({part.name: part for part in step_cost(device, divided, load, CONTEXT).parts})
        one, four = (each["attention (decode)"] for each in parts)
        assert four.flops[0] == pytest.approx(4 * one.flops[0], rel=1e-6), model
        assert one.bytes[0] < four.bytes[0] < 1.5 * one.bytes[0], model


def test_the_mean_acceptance_length_is_one_and_the_products_of_the_conditional_probabilities() -> None:
    speculation = Speculation(SMALL, 4, (0.9, 0.5))
    assert speculation.expected_tokens == pytest.approx(1 + 0.9 + 0.45 + 0.225 + 0.1125)
    scenario = data(drafting(4, [0.9, 0.5]), stop={"jobs": 300})
    use = use_of(run(scenario))
    assert use.acceptance_by_position == pytest.approx([0.9, 0.45, 0.225, 0.1125], abs=0.03)
    assert use.mean_acceptance_length == pytest.approx(speculation.expected_tokens, abs=0.06)
    assert use.mean_acceptance_length == pytest.approx(1 + sum(use.acceptance_by_position))
    assert use.drafted_tokens == 4 * use.steps
    assert use.acceptance_rate == pytest.approx(use.accepted_tokens / use.drafted_tokens)


@pytest.mark.parametrize(("acceptance", "steps"), [(0, 40), (1, 10)])
def test_without_acceptance_a_step_gives_one_token_and_with_certain_acceptance_all(acceptance: int, steps: int) -> None:
    """41 tokens: the first one ends the prompt, and the others come one by one or four by four."""
    finished = run(data(drafting(3, acceptance)))
    use, gaps = use_of(finished), finished.recording.token_gaps
    assert use.steps == 60 * steps and use.accepted_tokens == 60 * steps * 3 * acceptance
    # A gap is the time between two deliveries.
    assert gaps.weights.sum() == 60 * steps
    assert finished.result.jobs.completed == 60
    assert finished.recording.jobs.tokens.sum() == 60 * 41


def test_no_output_is_longer_than_requested() -> None:
    """Of 41 tokens 40 follow the first one: seven steps of six tokens accept two tokens too many, and give 41."""
    finished = run(data(drafting(5, 1)))
    assert use_of(finished).steps == 60 * 7
    assert finished.recording.jobs.tokens.sum() == 60 * 41
    served = finished.result.serving
    assert served is not None and served.kv_peak is not None and served.kv_peak <= 1


def test_what_is_accepted_depends_on_neither_the_order_of_events_nor_the_fleet_nor_the_draft() -> None:
    base = data(drafting(3, [0.8, 0.6, 0.4]))
    alone = use_of(run(base))
    others = [
        {**base, "fleet": [{"device": "h100-sxm-80gb", "engine": "sglang", "count": 3}]},
        data(drafting(3, [0.8, 0.6, 0.4], "ngram")),
        {**base, "policy": {"name": "fifo", "batch": {"kind": "continuous", "size": 2, "tokens": 64}}},
        {**base, "faults": [{"kind": "failure", "at": ["20 ms"], "duration": "10 ms", "on_failure": "migrate"}]},
    ]
    for other in others[:3]:
        assert use_of(run(other)) == alone
    # Interrupted requests keep what they have delivered: the prefill of it gives a token without a draft.
    again = use_of(run(others[3]))
    assert again.steps != alone.steps
    for mine, theirs in zip(again.acceptance_by_position, alone.acceptance_by_position, strict=True):
        assert mine == pytest.approx(theirs, abs=0.01)
    assert use_of(run({**base, "seed": 7})) != alone


def test_preempted_sequences_accept_what_they_would_have_accepted() -> None:
    free = use_of(run(data(drafting(3, 0.7))))
    tight = data(drafting(3, 0.7))
    capacity = 420
    decoder = next(iter(prepare_run(scenario_from_data(tight), CATALOGUE, "process").compiled.values())).decoder
    assert decoder is not None
    memory = decoder.memory
    spare = (memory.kv_capacity_tokens - capacity) * memory.kv_bytes_per_token
    tight["policy"]["batch"]["memory"] = 0.9 - spare / memory.device_bytes
    finished = run(tight)
    assert finished.result.serving is not None and finished.result.serving.preemptions > 0
    assert finished.recording.jobs.tokens.sum() == 60 * 41
    # After a preemption a prompt is read again and gives one token, whose step does not draft.
    assert use_of(finished).steps < free.steps


def test_the_draft_takes_memory_of_its_weights_and_of_its_cache() -> None:
    device = CATALOGUE.device("h100-sxm-80gb")

    def memory(speculation: Speculation | None) -> Any:
        queries = 1 if speculation is None else speculation.query_tokens
        served = ServedModel(TARGET, "graph", "sustained", speculation)
        return DecoderCosts(Replica(device), served, LargestStep(64, 8, queries), 1024).memory

    plain, drafted = memory(None), memory(Speculation(SMALL, 3))
    assert SMALL.model is not None
    assert drafted.weights_bytes - plain.weights_bytes == pytest.approx(SMALL.model.weight_bytes, rel=0.02)
    assert drafted.kv_bytes_per_token - plain.kv_bytes_per_token == SMALL.model.kv_bytes_per_token
    eagle, medusa, ngram = (memory(Speculation(draft_of(name, TARGET), 3)) for name in ("eagle", "medusa", "ngram"))
    layer = TARGET.layer_bytes(TARGET.layers[0])
    assert eagle.weights_bytes - plain.weights_bytes == pytest.approx(layer + 2 * 4096**2 * 2, rel=1e-6)
    assert eagle.kv_bytes_per_token == pytest.approx(plain.kv_bytes_per_token * 33 / 32)
    assert medusa.weights_bytes - plain.weights_bytes == pytest.approx(3 * 2 * 4096 * (4096 + 128_256), rel=1e-6)
    assert medusa.kv_bytes_per_token == ngram.kv_bytes_per_token == plain.kv_bytes_per_token


def test_no_token_drafted_is_no_speculative_decoding() -> None:
    plain, none = run(data(None)), run(data(drafting(0, 0.5)))
    assert none.result.latency_s == plain.result.latency_s
    assert none.result.serving is not None and none.result.serving.speculation is None


def test_speculation_combines_with_prefix_caches_scaling_power_and_closed_loops() -> None:
    base = data(drafting(3, 0.6), stop={"time": "500 ms"})
    base["workload"][0]["arrivals"] = {"process": "closed", "users": 12, "think": {"mean": "5 ms"}}
    base["workload"][0]["ops"][0]["generate"]["shared_prefix"] = 64
    base["policy"]["batch"]["prefix_cache"] = {}
    base["fleet"][0] |= {"name": "gpu", "power": {"max": "400 W"}}
    base["autoscale"] = [{"entry": "gpu", "max": 3, "up": {"running_per_device": 4}, "provisioning": "50 ms"}]
    result = run(base).result
    assert result.serving is not None and result.serving.speculation is not None
    assert result.serving.prefix_hit_tokens and result.jobs.completed > 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draft": "eagel"}, "eagle"),
        ({"tokens": 99}, "at most 16"),
        ({"acceptance": [0.5, 1.5]}, "at most 1"),
        ({"acceptance": "much"}, "number"),
        ({"draft_tensor": 3}, "3 devices share the draft"),
    ],
)
def test_a_wrong_speculation_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        run(data({**drafting(3, 0.6), **change}))
    assert message in str(raised.value) and f"speculation.{next(iter(change))}" in str(raised.value)


def test_a_draft_needs_the_vocabulary_of_the_model_as_in_vllm() -> None:
    served = {"catalogue": "qwen3-8b"}
    for draft, vocabularies in (("llama-3.2-1b", "128,256"), ("own", "2,000"), ("qwen2.5-7b", "152,064")):
        scenario = data(None, models={"chat": served | {"speculation": drafting(2, 0.5, draft)}, "own": MODEL})
        with pytest.raises(InputError, match="models.chat.speculation.draft.*one of 151,936") as raised:
            run(scenario)
        assert f"{draft} has a vocabulary of {vocabularies}" in raised.value.problem
    scenario_from_data(data(None, models={"chat": served | {"speculation": drafting(2, 0.5, "qwen3-0.6b")}}))
    with pytest.raises(InputError, match="draft.*vocabulary"):
        windtunnel.predict(
            "step", "h100-sxm-80gb", {"model": "qwen3-8b", "decode": 1, "query_tokens": 2, "draft": "llama-3.2-1b"}
        )


def test_only_models_with_layers_for_it_have_multi_token_prediction() -> None:
    has = {name for name in model_names() if known_architecture(name).mtp_layers}
    assert has == {
        "deepseek-r1", "deepseek-v3", "deepseek-v3.2", "glm-5", "minimax-m2.5", "qwen3.5-27b", "qwen3.5-397b-a17b"
    }  # fmt: skip
    for model in ("llama-3.1-8b", "kimi-k2"):
        with pytest.raises(InputError, match=f"models.chat.speculation.draft: {model} has no layers for multi-token"):
            scenario_from_data(
                data(None, models={"chat": {"catalogue": model, "speculation": drafting(1, 0.8, "mtp")}})
            )
    served = scenario_from_data(
        data(None, models={"chat": {"catalogue": "deepseek-v3", "speculation": drafting(1, 0.8, "mtp")}})
    ).served_models["chat"]
    assert served.speculation is not None and served.speculation.draft.name == "mtp"


def test_drafted_tokens_need_room_in_a_step() -> None:
    with pytest.raises(InputError, match="no room for 16 sequences of 17 tokens"):
        run(data(drafting(16, 0.6)))


def test_predict_adds_verification_and_the_draft_and_refuses_one_that_drafts_nothing() -> None:
    stated = {"model": "llama-3.1-8b", "decode": 8, "context": 512}

    def duration_s(**more: Any) -> float:
        return windtunnel.predict("step", "h100-sxm-80gb", {**stated, **more}).duration_s

    assert duration_s() < duration_s(query_tokens=4) < duration_s(query_tokens=4, draft="eagle")
    with pytest.raises(InputError, match="nothing is drafted by 'eagle'"):
        duration_s(draft="eagle")
