"""Decoders by name and by a Hugging Face configuration: counts of parameters, caches, and what is refused."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windtunnel.cli.main import cli
from windtunnel.core.architecture import Architecture, GroupedAttention, LinearAttention
from windtunnel.core.errors import InputError, Location
from windtunnel_models.models import known_architecture, known_architectures, model_names
from windtunnel_models.models.hugging_face import FAMILIES, architecture

FOLDER = Path(__file__).parents[1] / "data" / "models"
CONFIGS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}

# Total and active parameters as the makers' model cards and reports state them, in billions, as they are printed there.
PUBLISHED: dict[str, tuple[str, str | None]] = {
    "codellama-34b": ("33.7", None),
    "deepseek-r1": ("671", "37"),
    "deepseek-v2-lite": ("15.7", "2.4"),
    "deepseek-v3": ("671", "37"),
    "gemma-4-26b-a4b": ("25.2", "3.8"),
    "glm-5": ("744", "40"),
    "gpt-oss-120b": ("116.83", "5.13"),
    "gpt-oss-20b": ("20.91", "3.61"),
    "kimi-k2": ("1026", "32"),
    "llama-2-7b": ("6.74", None),
    "llama-3.1-405b": ("405.9", None),
    "llama-3.1-70b": ("70.6", None),
    "llama-3.1-8b": ("8.03", None),
    "llama-3.2-1b": ("1.24", None),
    "llama-4-maverick": ("401", "17"),
    "llama-4-scout": ("108", "17"),
    "minimax-m2.5": ("229", "10"),
    "mistral-7b": ("7.25", None),
    "mistral-nemo-12b": ("12.2", None),
    "mixtral-8x22b": ("141", "39"),
    "mixtral-8x7b": ("46.7", "12.9"),
    "qwen2.5-7b": ("7.61", None),
    "qwen3-0.6b": ("0.6", None),
    "qwen3-14b": ("14.8", None),
    "qwen3-235b-a22b": ("235", "22"),
    "qwen3-30b-a3b": ("30.5", "3.3"),
    "qwen3-32b": ("32.8", None),
    "qwen3-8b": ("8.2", None),
    "qwen3-coder-480b-a35b": ("480", "35"),
    "qwen3.5-27b": ("27", None),
    "qwen3.5-397b-a17b": ("397", "17"),
}


def read(name: str, **changes: Any) -> Architecture:
    config = deepcopy(CONFIGS[name])
    (config.get("text_config") or config).update(changes)
    return architecture(name, config, Location("config.json"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_agree_with_the_published_counts(name: str) -> None:
    known = known_architecture(name)
    total, active = PUBLISHED[name]
    digits = len(total.partition(".")[2])
    assert known.parameters / 1e9 == pytest.approx(float(total), rel=0.005, abs=0.5 * 10**-digits)
    if active is None:
        assert known.active_parameters == known.parameters
        return
    # Makers round or truncate the figure to the digits that they print.
    one_digit = 10 ** -len(active.partition(".")[2])
    assert -0.5 * one_digit <= known.active_parameters / 1e9 - float(active) < one_digit


def test_every_shipped_model_equals_its_makers_configuration() -> None:
    """The shipped files have the fields that costs depend on, and a whole config.json gives the same."""
    assert set(CONFIGS) | {"mistral-7b"} == set(model_names())
    for name, config in CONFIGS.items():
        whole = architecture(name, config, Location(name))
        assert replace(known_architecture(name), source="") == whole, name


def test_kv_caches_are_exact() -> None:
    """Two values for each head of keys and values and layer; 576 for each layer with latent attention."""
    assert known_architecture("llama-3.1-70b").kv_bytes_per_token == 2 * 80 * 8 * 128 * 2
    assert known_architecture("deepseek-v3").kv_bytes_per_token == 61 * 576 * 2
    assert known_architecture("qwen3.5-27b").kv_bytes_per_token == 16 * 2 * 4 * 256 * 2
    gemma = 25 * 2 * 8 * 256 + 5 * 2 * 2 * 512
    assert known_architecture("gemma-4-26b-a4b").kv_bytes_per_token == gemma * 2


def test_linear_attention_has_a_state_and_no_cache() -> None:
    known = known_architecture("qwen3.5-27b")
    linear = [group for group in known.layers if isinstance(group.attention, LinearAttention)]
    assert [group.count for group in linear] == [48]
    assert known.state_bytes == 48 * (4 * 48 * 128 * 128 + 2 * (2 * 16 * 128 + 48 * 128) * 3)
    assert known_architecture("llama-3.1-8b").state_bytes == 0


def test_weights_take_what_the_published_checkpoints_take() -> None:
    """The makers' repositories: 60.8 GiB of gpt-oss-120b, 12.8 GiB of the small one, 141 GB of Llama 3.1 70B."""
    assert known_architecture("gpt-oss-120b").weight_bytes / 2**30 == pytest.approx(60.8, rel=0.005)
    assert known_architecture("gpt-oss-20b").weight_bytes / 2**30 == pytest.approx(12.8, rel=0.005)
    assert known_architecture("llama-3.1-70b").weight_bytes / 1e9 == pytest.approx(141.1, rel=0.005)
    assert known_architecture("kimi-k2.5").weight_bytes / 1e9 == pytest.approx(595, rel=0.01)


def test_windows_follow_the_pattern_of_the_family() -> None:
    windows = {
        name: {group.attention.window: group.count for group in known_architecture(name).layers}  # type: ignore[union-attr]
        for name in ("gpt-oss-120b", "gemma-4-26b-a4b", "llama-4-scout", "llama-3.1-8b")
    }
    assert windows == {
        "gpt-oss-120b": {128: 18, None: 18},
        "gemma-4-26b-a4b": {1024: 25, None: 5},
        "llama-4-scout": {8192: 36, None: 12},
        "llama-3.1-8b": {None: 32},
    }


def test_names_are_forgiving_in_case_and_suffix_and_fp8_changes_the_weights() -> None:
    plain = known_architecture("llama-3.1-8b")
    assert known_architecture("Llama-3.1-8B-Instruct").parameters == plain.parameters
    small = known_architecture("meta-llama/Llama-3.1-8B-Instruct-FP8")
    assert (small.weights.linear, small.weights.other) == ("fp8", "bfloat16")
    assert plain.weight_bytes / 2 < small.weight_bytes < plain.weight_bytes * 0.6
    assert known_architecture("deepseek-v3-fp8").weights.linear == "fp8_block"


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean 'llama-3\.1-70b'"):
        known_architecture("llama-3.1-70")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama-3.1-8b", {"model_type": "lama"}, "did you mean 'llama'"),
        ("llama-3.1-8b", {"num_hidden_layers": 0}, "expected a whole number above zero"),
        ("llama-3.1-8b", {"hidden_size": "wide"}, "hidden_size: this is 'wide'"),
        ("llama-3.1-8b", {"num_attention_heads": None}, "'num_attention_heads' is missing"),
        ("llama-3.1-8b", {"num_attention_heads": 33}, "not a multiple of 33 heads"),
        ("llama-3.1-8b", {"num_key_value_heads": 5}, "32 heads are not a multiple of 5"),
        ("llama-3.1-8b", {"mlp_bias": True}, "mlp_bias = True is not supported"),
        ("llama-3.1-8b", {"num_experts": 8}, "unknown field 'num_experts' of a 'llama' model"),
        ("llama-3.1-8b", {"ssm_state_size": 16}, "unknown field 'ssm_state_size'"),
        ("llama-3.1-8b", {"torch_dtype": "float8"}, "torch_dtype = 'float8' is not supported"),
        ("llama-3.1-8b", {"quantization_config": {"quant_method": "bitsandbytes"}}, "unknown method 'bitsandbytes'"),
        ("llama-3.1-8b", {"quantization_config": {"quant_method": "awq", "bits": 3}}, "bits = 3 is not supported"),
        ("qwen3-8b", {"use_sliding_window": True}, "use_sliding_window = True is not supported"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "it has 1 kinds for 24 layers"),
        ("gpt-oss-20b", {"layer_types": ["fill_attention"] * 24}, "did you mean 'full_attention'"),
        ("deepseek-v3", {"moe_layer_freq": 2}, "moe_layer_freq = 2 is not supported"),
    ],
    ids=str,
)
def test_a_configuration_that_would_give_wrong_costs_is_refused(
    name: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(name, **changes)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_fields_that_do_not_change_the_cost_are_ignored() -> None:
    changed = read("llama-3.1-8b", rope_theta=1.0, pad_token_id=3, my_note="mine", num_experts=None, moe_shared=False)
    assert changed == read("llama-3.1-8b")


def test_every_field_that_is_kept_changes_the_architecture() -> None:
    """Doubling any size of a shipped file changes what is read, so that no field is read and then ignored."""
    for name in model_names():
        base = CONFIGS.get(name)
        if base is None:
            continue
        fields = base.get("text_config") or base
        for field in ("hidden_size", "num_attention_heads", "vocab_size", "num_hidden_layers"):
            value = fields[field]
            if field == "num_hidden_layers" and "layer_types" in fields:
                continue
            changed = read(name, **{field: value * 2})
            assert changed.parameters != known_architecture(name).parameters, (name, field)


def test_formats_scale_the_weights_and_nothing_else() -> None:
    known = known_architecture("qwen3-30b-a3b")
    bits = {}
    for stored in ("bfloat16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int8", "int4"):
        weights = replace(known.weights, experts=stored)
        bits[stored] = 8 * (replace(known, weights=weights).weight_bytes - known.weight_bytes)
    experts = 48 * 128 * 3 * 2048 * 768
    expected = {"fp8": 8, "fp8_block": 8 + 32 / 2**14, "nvfp4": 4.5, "mxfp4": 4.25, "int8": 8, "int4": 4.125}
    for stored, of_weight in expected.items():
        assert bits[stored] == pytest.approx(experts * (of_weight - 16)), stored
    assert bits["bfloat16"] == 0


def test_the_command_lists_every_model() -> None:
    rows = json.loads(CliRunner().invoke(cli, ["models", "--format", "json"], catch_exceptions=False).stdout)
    assert [row["model"] for row in rows] == model_names()
    assert list(rows[0])[:6] == [
        "model", "parameters", "active_parameters", "weight_bytes", "kv_bytes_per_token", "source",
    ]  # fmt: skip
    by_name = {row["model"]: row for row in rows}
    assert by_name["llama-3.1-8b"]["kv_bytes_per_token"] == 131072
    assert all(math.isfinite(row["weight_bytes"]) and row["source"] for row in rows)
    text = CliRunner().invoke(cli, ["models"], catch_exceptions=False).stdout
    assert all(name in text for name in model_names())


def test_every_family_is_one_of_a_shipped_model() -> None:
    families = {(config.get("text_config") or config)["model_type"] for config in CONFIGS.values()}
    assert families == set(FAMILIES)
    for known in known_architectures():
        for group in known.layers:
            if isinstance(group.attention, GroupedAttention):
                assert group.attention.heads % group.attention.kv_heads == 0
