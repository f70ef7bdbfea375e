"""A decoder divided over a group of devices, and the cost of its steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import windtunnel
from windtunnel.core.architecture import Architecture, Convention, Weights
from windtunnel.core.errors import InputError
from windtunnel.core.group import Group, padded, padded_expert
from windtunnel.core.ops import Moe, Rows
from windtunnel.core.serving_engine import divided_decoder
from windtunnel.core.step import Amount, DividedDecoder, FusedReduce, Part
from windtunnel.core.step_cost import StepCost, StepLoad, step_cost
from windtunnel_models.engines import serving_engine
from windtunnel_models.models import known_architecture, known_architectures

H100 = windtunnel.catalogue().device("h100-sxm-80gb")
CONTEXT = {"dispatch": "graph", "clock": "sustained"}


def work(decoder: DividedDecoder, of: set[str]) -> float:
    """The arithmetic of one token on one device of a stage, in the operations ``of``."""
    total = 0.0
    for part in decoder.parts():
        if part.op.name in of and part.amount in (Amount.TOKENS, Amount.HEADS):
            rows = part.rows(np.array([float(decoder.group.attention_data)]), CONTEXT)
            total += part.times * float(np.sum(part.op.flops(rows.choices, rows.numbers)))
    return total


def cost(
    name: str, group: Group, *, decode: float = 0, context: float = 0, prefill: float = 0, before: float = 0
) -> StepCost:
    decoder = DividedDecoder(known_architecture(name), group)
    group.check(decoder.model)
    load = StepLoad(*(np.array([float(value)]) for value in (decode, context, prefill, before)))
    return step_cost(H100, decoder, load, CONTEXT)


def test_a_token_takes_two_operations_for_each_active_weight_of_any_model() -> None:
    """Twice the active weights, without the embedding, which is looked up; norms and biases are no products."""
    for model in known_architectures():
        counted = model.active_parameters
        if not model.tied and model.convention is Convention.EMBEDDING_AND_HEAD:
            counted -= model.vocabulary * model.width
        found = work(DividedDecoder(model), {"gemm", "moe"})
        if model.weights.experts == "mxfp4":
            assert 2 * counted < found < 2.2 * counted  # these experts are padded
        else:
            assert found == pytest.approx(2 * counted, rel=2e-3), model.name


@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3", "qwen3.5-27b"])
def test_the_devices_of_a_group_share_the_arithmetic(name: str) -> None:
    model = known_architecture(name)
    whole = work(DividedDecoder(model), {"gemm", "moe"})
    divided = 4 * work(DividedDecoder(model, Group(tensor=4)), {"gemm", "moe"})
    # Routers, compressions and heads of keys and values that are replicated are done by every device.
    assert whole * (1 - 1e-9) <= divided < 1.1 * whole


def test_exchanges_are_there_where_devices_share_and_nowhere_else() -> None:
    model = known_architecture("qwen3-30b-a3b")
    names = {
        group: {part.name for part in DividedDecoder(model, group).parts() if part.link}
        for group in (Group(), Group(tensor=2), Group(attention_data=2, expert=2))
    }
    assert names[Group()] == set()
    assert names[Group(tensor=2)] == {"all-reduce of attention", "all-reduce of feed-forward", "gather logits"}
    assert names[Group(attention_data=2, expert=2)] == {"dispatch to experts", "combine experts"}
    assert DividedDecoder(model, Group(pipeline=2)).handover() is not None
    assert DividedDecoder(model).handover() is None


@pytest.mark.parametrize(
    ("name", "group", "message"),
    [
        ("llama-3.1-8b", {"tensor": 5}, "the 32 query heads of llama-3.1-8b cannot be divided by tensor: 5"),
        ("qwen2.5-7b", {"tensor": 8}, "28 query heads"),
        ("qwen3-30b-a3b", {"tensor": 1, "attention_data": 3, "expert": 3}, "the 128 experts"),
        ("llama-3.1-8b", {"pipeline": 33}, "33 pipeline stages for 32 layers"),
        ("mixtral-8x7b", {"tensor": 4, "expert": 3}, "3 parts of the experts do not divide 4 devices"),
        ("mixtral-8x7b", {"tensor": 4, "expert": 2, "expert_tensor": 4}, "expert_tensor x expert is 8"),
    ],
    ids=str,
)
def test_a_group_that_does_not_divide_says_what(name: str, group: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Group(**group).check(known_architecture(name))
    assert message in str(caught.value)


def test_fewer_heads_of_keys_than_devices_are_replicated_and_the_vocabulary_is_padded() -> None:
    Group(tensor=8).check(known_architecture("qwen3-235b-a22b"))  # 4 heads of keys and values
    assert padded(32_000, 1) == 32_000 and padded(100, 4) == 32


def test_a_step_is_longer_for_more_and_a_group_is_faster_than_one_device() -> None:
    small, large = (cost("llama-3.1-8b", Group(), decode=n, context=1024) for n in (8, 64))
    assert small.duration_s[0] < large.duration_s[0]
    assert large.duration_low_s[0] < large.duration_s[0] < large.duration_high_s[0]
    assert cost("llama-3.1-8b", Group(), decode=8, context=4096).duration_s[0] > small.duration_s[0]
    one, four = (cost("llama-3.1-8b", Group(tensor=n), decode=64, context=1024) for n in (1, 4))
    assert one.duration_s[0] / 4 < four.duration_s[0] < one.duration_s[0]
    assert 4 * H100.idle_power_w < four.power_w[0] < 4 * H100.power_limit_w
    assert one.energy_j[0] == pytest.approx(one.power_w[0] * one.duration_s[0])


def test_a_device_that_waits_for_the_host_within_a_step_stays_awake() -> None:
    decoder = divided_decoder(H100, known_architecture("llama-3.1-8b"), Group(), serving_engine("vllm"))
    load = StepLoad(*(np.array([value]) for value in (1.0, 64.0, 0.0, 0.0)))
    waits = step_cost(H100, decoder, load, CONTEXT)
    parts_j = sum(part.above_idle_j[0] for part in waits.parts)
    rest_j = waits.energy_j[0] - H100.idle_power_w * waits.duration_s[0] - parts_j
    assert waits.host_s[0] > 0.0
    assert rest_j == pytest.approx(H100.spin_power_w(0.0) * waits.host_s[0])
    assert H100.spin_power_w(0.0) > 50.0


def test_decoding_one_sequence_takes_at_least_the_time_to_read_the_weights() -> None:
    model = known_architecture("llama-3.1-8b")
    bandwidth = H100.number("memory_bandwidth_bytes_per_s")
    assert bandwidth is not None
    read = model.weight_bytes - 2 * model.vocabulary * model.width
    assert cost("llama-3.1-8b", Group(), decode=1, context=1).duration_s[0] > read / bandwidth


def test_pipeline_stages_save_no_time_for_one_sequence_and_some_for_many() -> None:
    lone = [cost("llama-3.1-8b", Group(pipeline=n), decode=1, context=512).duration_s[0] for n in (1, 2)]
    assert lone[0] < lone[1] < 1.1 * lone[0]
    many = [cost("llama-3.1-8b", Group(pipeline=n), decode=256, context=2048).duration_s[0] for n in (1, 2)]
    assert many[1] < many[0]


def test_chunks_of_a_prompt_take_together_about_what_the_prompt_takes() -> None:
    whole = cost("llama-3.1-8b", Group(), prefill=4096).parts
    chunks = [cost("llama-3.1-8b", Group(), prefill=1024, before=n * 1024).parts for n in range(4)]
    attention = [next(part for part in parts if part.name == "attention (prefill)") for parts in (whole, *chunks)]
    together = sum(float(part.duration_s[0]) for part in attention[1:])
    assert 0.8 < together / float(attention[0].duration_s[0]) < 2.0


def test_a_group_divides_a_step_and_sums_what_its_devices_draw() -> None:
    """Twice as many copies of the attention with twice the sequences take as long, and twice the energy."""
    one = cost("llama-3.1-8b", Group(), decode=32, context=1000)
    two = cost("llama-3.1-8b", Group(attention_data=2), decode=64, context=1000)
    # Each device samples its own sequences; nothing is exchanged between copies of a dense model.
    assert two.duration_s[0] == pytest.approx(one.duration_s[0], rel=1e-6)
    assert two.energy_j[0] == pytest.approx(2 * one.energy_j[0], rel=1e-6)


def test_activations_are_converted_by_the_kernel_before_a_product_except_after_attention() -> None:
    model = replace(known_architecture("llama-3.1-8b"), weights=Weights("fp8", "fp8", "bfloat16"))
    parts = {part.name: part for part in DividedDecoder(model).parts()}
    wide = {name for name, part in parts.items() if part.values.get("activations") == "wide"}
    assert wide == {"attention output"}
    plain = {part.name: part for part in DividedDecoder(known_architecture("llama-3.1-8b")).parts()}
    assert set(parts) == set(plain)
    saved = {
        name: plain[name].scale["bytes"] - parts[name].scale["bytes"] for name in ("norms", "feed-forward: activation")
    }
    assert saved == {"norms": 4096.0, "feed-forward: activation": 14336.0}


def test_norms_in_all_reduces_have_no_launch_of_their_own() -> None:
    model = known_architecture("llama-3.1-8b")
    fused = {part.name: part for part in DividedDecoder(model, Group(tensor=2), fused=FusedReduce("trtllm")).parts()}
    apart = {part.name: part for part in DividedDecoder(model, Group(tensor=2)).parts()}
    assert "norms" not in fused and fused["norms in all-reduces"].times == 1
    assert apart["norms"].times == 64
    assert fused["norms in all-reduces"].scale["bytes"] == 64 * apart["norms"].scale["bytes"]


def test_all_reduces_above_the_largest_fused_buffer_are_those_of_the_engine() -> None:
    model, most = known_architecture("llama-3.1-8b"), 64
    fused = FusedReduce("trtllm", most * model.width * 2.0)
    decoder = DividedDecoder(model, Group(tensor=8), 8, "vllm", fused)

    def parts(tokens: float) -> dict[str, list[Part]]:
        found: dict[str, list[Part]] = {}
        for part in decoder.parts():
            if part.runs(np.array([tokens]))[0]:
                found.setdefault(part.name, []).append(part)
        return found

    small, large = parts(most), parts(most + 1)
    assert all(len(several) == 1 for several in (*small.values(), *large.values()))
    assert small["all-reduce of attention"][0].values["implementation"] == "trtllm"
    assert large["all-reduce of attention"][0].values["implementation"] == "vllm"
    assert "norms" not in small and "norms in all-reduces" not in large and large["norms"][0].times == 64


def test_engines_take_fused_all_reduces_for_the_decoders_and_sizes_that_they_have_them_for() -> None:
    b200 = windtunnel.catalogue().device("b200-sxm-180gb")
    dense, experts = known_architecture("llama-3.1-8b"), known_architecture("qwen3-30b-a3b")

    def fused(engine: str, model: Architecture, **group: int) -> FusedReduce | None:
        return divided_decoder(b200, model, Group(**group), serving_engine(engine)).fused

    assert fused("vllm", dense, tensor=8) == FusedReduce("trtllm", 2.0**20)
    assert fused("vllm", dense, tensor=8, pipeline=2) is None
    assert fused("sglang", dense, tensor=8) is None
    assert fused("sglang", experts, tensor=8) == FusedReduce("trtllm", 2048 * 2.0 * experts.width)
    assert fused("sglang", experts, tensor=4, attention_data=2, expert=8) is None
    assert fused("trtllm", dense, tensor=8) == FusedReduce("trtllm")
    assert fused("generic", dense, tensor=8) is None


def test_narrow_experts_are_padded_as_engines_store_them() -> None:
    """Slices of 360 values take the time of 384, which no kernel reads slower than aligned ones."""
    assert padded_expert(2880, 2880, 8, "mxfp4") == (3072, 8 * 384)
    assert padded_expert(2880, 2880, 8, "nvfp4") == (2880, 8 * 368)
    assert padded_expert(2880, 2880, 8, "bfloat16") == (2880, 2880)
    eighth = next(
        p for p in DividedDecoder(known_architecture("gpt-oss-120b"), Group(tensor=8)).parts() if p.name == "experts"
    )
    b200 = windtunnel.catalogue().device("b200-sxm-180gb")
    rows = eighth.rows(np.array([64.0]), CONTEXT)
    bare = replace(rows, numbers={**rows.numbers, "width": np.array([2880.0]), "expert_width": np.array([2880.0])})
    assert b200.cost(rows).duration_s[0] < b200.cost(bare).duration_s[0]


def test_experts_exchange_tokens_only_between_copies_of_the_attention() -> None:
    model = known_architecture("qwen3-30b-a3b")

    def links(**group: int) -> dict[str, Part]:
        return {part.name: part for part in DividedDecoder(model, Group(**group)).parts() if part.link}

    assert {"all-reduce of attention", "all-reduce of feed-forward", "gather logits"} == set(links(tensor=4, expert=4))
    spread = links(attention_data=4, expert=4)
    assert set(spread) == {"dispatch to experts", "combine experts"}
    assert spread["combine experts"].op.name == "all_to_all"
    # Of 4 devices, 8 experts are on 4 (1 - (3/4)^8); each device sends the tokens of its own copy.
    assert spread["combine experts"].scale["bytes"] == pytest.approx(2048 * 2 * 4 * (1 - 0.75**8) / 4)
    shared = links(attention_data=4)
    assert {part.op.name for part in shared.values()} == {"all_gather", "reduce_scatter"}
    assert "gather tokens" in links(attention_data=2, tensor=2, expert=4)


def test_an_indexer_reads_and_multiplies_every_key_of_the_context() -> None:
    """DeepSeek-V3.2: 64 heads of 128 values and one 8-bit key of each token, in each of 61 layers."""
    parts = {part.name: part for part in cost("deepseek-v3.2", Group(tensor=8), decode=4, context=10_000).parts}
    index = parts["index scores (decode)"]
    assert index.flops[0] == pytest.approx(61 * 4 * 10_000 * 2 * 64 * 128)
    keys = 61 * 4 * 10_000 * 128
    assert keys < index.bytes[0] < 1.02 * keys


def test_tokens_that_choose_independently_hit_fewer_experts() -> None:
    (part,) = [p for p in DividedDecoder(known_architecture("qwen3-30b-a3b")).parts() if p.name == "experts"]
    rows = part.rows(np.array([1.0, 16.0, 1e6]), CONTEXT)
    assert np.all(rows.numbers["skew"] == 1.01)
    rows = replace(rows, numbers={**rows.numbers, "skew": np.zeros(3)})
    hit = Moe.distinct_experts(rows.choices, rows.numbers)
    assert hit == pytest.approx([8.0, 128 * (1 - (1 - 8 / 128) ** 16), 128.0])
    balanced = Moe.distinct_experts({**rows.choices, "routing": "balanced"}, rows.numbers)
    assert balanced == pytest.approx([8.0, 128.0, 128.0])
    seconds = [
        H100.cost(Rows(rows.op, {**rows.choices, "routing": word}, rows.numbers)).duration_s
        for word in ("independent", "balanced")
    ]
    assert seconds[0][1] < 0.85 * seconds[1][1] and seconds[0][2] == pytest.approx(seconds[1][2])
