"""The memory of a decoder on a device of a group, against sums written out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import windtunnel
from windtunnel.core.architecture import Architecture, Attention, GroupedAttention, LatentAttention, Weights
from windtunnel.core.decoder_memory import (
    GENERIC_RESERVES,
    DecoderMemory,
    LargestStep,
    ShareOf,
    check_fits,
    decoder_memory,
    engine_memory_bytes,
    smallest_group,
)
from windtunnel.core.errors import InputError
from windtunnel.core.group import Group
from windtunnel.simulation.fleet import configure
from windtunnel_models.models import known_architecture, known_architectures

CATALOGUE = windtunnel.catalogue()
STEP = LargestStep(tokens=8192, sequences=256)
BIG = 1e15
"""A device (bytes) on which everything fits."""


def memory(name: str | Architecture, group: Group | None = None, **more: object) -> DecoderMemory:
    model = known_architecture(name) if isinstance(name, str) else name
    group = group or Group()
    group.check(model)
    return decoder_memory(model, group, BIG, STEP, **more)  # type: ignore[arg-type]


def rotated(attention: Attention) -> int:
    """The values of a head with a rotary position."""
    if isinstance(attention, LatentAttention):
        return attention.rope_dim
    return attention.head_dim if isinstance(attention, GroupedAttention) else 0


def rotary(name: str) -> float:
    """The table of rotary positions of a model with one kind of attention (bytes)."""
    model = known_architecture(name)
    return 2.0 * (model.max_context or 0) * rotated(model.layers[0].attention)


def test_vllm_holds_as_many_tokens_of_llama_8b_on_an_rtx_4090_as_it_reports() -> None:
    """vLLM 0.19 at its default share and its default step of 8,192 tokens: 41,408 tokens. No reserve is fitted to it."""
    device = CATALOGUE.device("rtx-4090")
    found = check_fits(known_architecture("llama-3.1-8b"), Group(), device, STEP)
    assert found.kv_capacity_tokens == pytest.approx(41_408, rel=0.03)
    assert found.kv_capacity_tokens % 16 == 0


def test_a_small_model_reserves_for_the_logits_of_its_large_vocabulary_what_vllm_does() -> None:
    """vLLM 0.19.1 logs 31.4 GiB, 0.53 GiB of weights and 26.87 GiB of cache for Qwen3-0.6B with 4-bit weights."""
    found = memory("qwen3-0.6b")
    reserved = found.activation_bytes + found.workspace_bytes
    assert reserved / 2**30 == pytest.approx(0.9 * 31.37 - 0.53 - 26.87, abs=0.05)


def test_each_part_of_llama_8b_is_the_sum_of_its_tensors() -> None:
    found = memory("llama-3.1-8b")
    # 8.03 billion weights of 2 bytes, and a sine or cosine of 128 values for each of 131,072 positions.
    assert found.weights_bytes == 2 * 8_030_261_248 + 2 * 131_072 * 128
    # Gate, up and their product of 14,336 values, beside the residual stream and its normalised copy.
    assert found.activation_bytes == 8192 * 2 * (3 * 14_336 + 2 * 4096)
    # A key and a value of 8 heads in 32 layers.
    assert found.kv_bytes_per_token == 2 * 8 * 128 * 32 * 2
    assert (found.communication_bytes, found.state_bytes_per_sequence) == (0, 0)
    assert found.kv_bytes == pytest.approx(
        0.9 * BIG - found.weights_bytes - found.activation_bytes - found.workspace_bytes, rel=1e-12
    )


def test_many_sequences_of_few_tokens_need_memory_for_sampling() -> None:
    model = known_architecture("llama-3.1-8b")
    found = decoder_memory(model, Group(), BIG, LargestStep(2048, 1024))
    logits = 1024 * 128_256 * (2 + 3 * 4)
    assert found.activation_bytes == logits + 80 * 2**20 + 2048 * 4096 * 2


@pytest.mark.parametrize("name", [model.name for model in known_architectures()])
def test_one_device_holds_all_weights_and_caches_every_layer(name: str) -> None:
    model = known_architecture(name)
    found = memory(name)
    # Beside the weights: tables of rotary positions, one of each kind, and at most 63 tokens of padding.
    tables = found.weights_bytes - model.weight_bytes
    kinds = {rotated(layers.attention) for layers in model.layers}
    assert -1 < tables - 2 * sum(kinds) * (model.max_context or 0) <= 2 * 63 * 2 * model.width
    indexers = [(n.count, n.attention.indexer) for n in model.layers if isinstance(n.attention, LatentAttention)]
    indexed = sum(count * (indexer.head_dim + 4) for count, indexer in indexers if indexer is not None)
    assert found.kv_bytes_per_token == pytest.approx(model.kv_bytes_per_token + indexed)
    assert found.state_bytes_per_sequence == pytest.approx(model.state_bytes)


def test_tensor_ranks_divide_the_weights_and_replicate_heads_of_keys_where_there_are_too_few() -> None:
    one = memory("llama-3.1-70b")
    for tensor in (2, 4, 8):
        each = memory("llama-3.1-70b", Group(tensor=tensor))
        assert each.kv_bytes_per_token == one.kv_bytes_per_token / tensor
        table = rotary("llama-3.1-70b")
        norms = (2 * 80 + 1) * 8192 * 2
        assert each.weights_bytes - table - norms == pytest.approx((one.weights_bytes - table - norms) / tensor)
    # 8 heads of keys and values on 16 ranks: one on each.
    assert memory("llama-3.1-405b", Group(16)).kv_bytes_per_token == 2 * 128 * 126 * 2
    assert memory("llama-3.1-405b", Group(16)).communication_bytes > 0


def test_a_latent_cache_is_whole_on_every_tensor_rank_and_divided_by_copies_of_attention() -> None:
    one, tensor = (memory("deepseek-v3", group) for group in (Group(), Group(8)))
    assert one.kv_bytes_per_token == tensor.kv_bytes_per_token == 576 * 61 * 2
    copies = memory("deepseek-v3", Group(attention_data=8, expert=8))
    assert copies.copies == 8 and copies.kv_bytes_per_token == one.kv_bytes_per_token
    # Attention is whole on every device of the copies, the experts are divided in both.
    assert tensor.weights_bytes < copies.weights_bytes < 0.2 * one.weights_bytes
    assert copies.kv_capacity_tokens == pytest.approx(8 * tensor.kv_capacity_tokens, rel=0.01)


def test_experts_take_the_same_memory_whole_on_some_devices_or_as_slices_on_all() -> None:
    whole, sliced = (memory("qwen3-235b-a22b", group) for group in (Group(4, expert=4), Group(4)))
    assert whole.weights_bytes == pytest.approx(sliced.weights_bytes)


def test_a_pipeline_stage_holds_its_layers_and_the_larger_end_decides() -> None:
    model = known_architecture("llama-3.1-70b")
    one, two = (memory("llama-3.1-70b", Group(pipeline=n)) for n in (1, 2))
    assert two.kv_bytes_per_token == one.kv_bytes_per_token / 2
    table = 2 * model.vocabulary * model.width
    layers = one.weights_bytes - rotary("llama-3.1-70b") - 2 * table - 2 * model.width
    assert two.weights_bytes == layers / 2 + table + 2 * model.width + rotary("llama-3.1-70b")
    # 80 layers on 3 stages: 27 on the largest.
    assert memory("llama-3.1-70b", Group(pipeline=3)).kv_bytes_per_token == one.kv_bytes_per_token * 27 / 80


def test_windows_limit_what_long_sequences_cache_and_linear_layers_keep_a_state() -> None:
    every = memory("gpt-oss-120b")
    long = memory("gpt-oss-120b", context=8192)
    # Half of the 36 layers keep 128 of 8,192 tokens.
    assert long.kv_bytes_per_token == every.kv_bytes_per_token / 2 * (1 + 128 / 8192)
    assert memory("gpt-oss-120b", context=64).kv_bytes_per_token == every.kv_bytes_per_token
    linear = memory("qwen3.5-27b")
    assert linear.state_bytes_per_sequence == known_architecture("qwen3.5-27b").state_bytes > 0
    assert (linear.state_tokens - 1) * linear.kv_bytes_per_token < linear.state_bytes_per_sequence
    assert linear.state_tokens * linear.kv_bytes_per_token >= linear.state_bytes_per_sequence
    halves = memory("qwen3.5-27b", Group(2))
    assert halves.state_bytes_per_sequence == pytest.approx(linear.state_bytes_per_sequence / 2)


def test_formats_of_weights_and_cache_change_their_memory() -> None:
    model = known_architecture("llama-3.1-8b")
    fp8 = memory(replace(model, weights=Weights("fp8", "fp8"), kv_dtype="fp8"))
    assert fp8.kv_bytes_per_token == memory(model).kv_bytes_per_token / 2
    ends = 2 * model.vocabulary * model.width + (2 * 32 + 1) * model.width
    assert memory(model).weights_bytes - fp8.weights_bytes == model.parameters - ends


def test_each_engine_reads_the_share_of_memory_in_its_own_way() -> None:
    model = known_architecture("llama-3.1-8b")
    found = {
        kind: decoder_memory(model, Group(), 80e9, STEP, reserves=replace(GENERIC_RESERVES, share_of=kind))
        for kind in ShareOf
    }
    m = found[ShareOf.DEVICE]
    held = m.weights_bytes + m.workspace_bytes
    assert m.kv_bytes == pytest.approx(72e9 - held - m.activation_bytes)
    assert found[ShareOf.STATIC].kv_bytes == pytest.approx(72e9 - held)
    assert found[ShareOf.FREE].kv_bytes == pytest.approx(0.9 * (80e9 - held - m.activation_bytes - m.graph_bytes))
    newer = decoder_memory(model, Group(), 80e9, STEP, reserves=replace(GENERIC_RESERVES, graphs_in_share=True))
    assert newer.kv_bytes == pytest.approx(m.kv_bytes - m.graph_bytes)
    # What lies outside the share has to fit as well.
    whole = decoder_memory(model, Group(), 80e9, STEP, memory_share=1.0)
    assert whole.kv_bytes == pytest.approx(80e9 - held - m.activation_bytes - m.graph_bytes)


def test_a_device_reports_less_than_its_nominal_memory_and_a_stated_memory_is_taken_as_it_is() -> None:
    assert engine_memory_bytes(CATALOGUE.device("rtx-4090")) == pytest.approx(25_252_724_736, rel=1e-4)
    for sku in ("h100-sxm-80gb", "b200-sxm-180gb", "a100-sxm-80gb", "mi300x"):
        device = CATALOGUE.device(sku)
        assert device.memory_bytes < engine_memory_bytes(device) <= device.memory_bytes * 2**30 / 1e9
    # Check bits take a sixteenth of an L40S: 45 of 48 GiB before what the driver keeps.
    assert engine_memory_bytes(CATALOGUE.device("l40s")) < 45 * 2**30
    assert engine_memory_bytes(configure(CATALOGUE.device("rtx-4090"), memory_bytes=20e9)) == 20e9
    assert engine_memory_bytes(CATALOGUE.device("tpu-v5e")) == CATALOGUE.device("tpu-v5e").memory_bytes


def test_a_model_that_does_not_fit_names_the_smallest_group_that_holds_it() -> None:
    device = CATALOGUE.device("h100-sxm-80gb")
    model = known_architecture("llama-3.1-70b")
    with pytest.raises(InputError) as caught:
        check_fits(model, Group(), device, STEP)
    assert "llama-3.1-70b does not fit: a device of tensor: 1 needs 141 GB of weights" in str(caught.value)
    assert "tensor: 2 or more (2 devices)" in str(caught.value)
    size = engine_memory_bytes(device)
    assert smallest_group(model, Group(), size, STEP) == Group(2)
    # A longer context needs more, and a group that does not divide the heads is no answer.
    assert smallest_group(model, Group(), size, STEP, tokens=100_000) == Group(4)
    assert smallest_group(known_architecture("deepseek-v3"), Group(expert=1), size, STEP) == Group(16)
    with pytest.raises(InputError, match="no group up to tensor: 64 holds it"):
        check_fits(known_architecture("deepseek-v3"), Group(), CATALOGUE.device("p4"), STEP)


def test_more_of_anything_leaves_fewer_tokens() -> None:
    model = known_architecture("llama-3.1-8b")
    base = decoder_memory(model, Group(), 80e9, STEP).kv_capacity_tokens
    for less in (
        decoder_memory(model, Group(), 79e9, STEP),
        decoder_memory(model, Group(), 80e9, LargestStep(16_384, 256)),
        decoder_memory(model, Group(), 80e9, LargestStep(8192, 2048)),
        decoder_memory(model, Group(), 80e9, STEP, memory_share=0.89),
    ):
        assert less.kv_capacity_tokens < base
    assert decoder_memory(model, Group(), 10e9, STEP).kv_capacity_tokens == 0
