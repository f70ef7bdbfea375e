"""Reads the architecture of a decoder from a Hugging Face ``config.json``.

Each family of models (``model_type``) has one function, which takes the fields that it needs. Fields that do not change
costs, such as token ids, are ignored. A field that looks like a part of the architecture and is not known is an error,
because ignoring it would give wrong costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from windtunnel.core.architecture import (
    Architecture,
    Attention,
    Convention,
    Experts,
    FeedForward,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layers,
    LinearAttention,
    Weights,
)
from windtunnel.core.errors import InputError, Location, list_choices, nearest

Plan = tuple[Attention, FeedForward | None, Experts | None]
"""One layer: its attention, and its feed-forward network, its experts, or both."""

_ARCHITECTURAL = re.compile(
    r"(^|_)(heads?|hidden|intermediate|layers?|experts?|rank|window|attn|attention|attentions|conv|state|ssm|mlp|moe|dim|"
    r"size|width|kv|latent|indexe?r?|topk|quantization|quant|block|gate|recurrent|rnn)(_|$)"
)
"""Names that mean a part of the architecture."""

_IGNORED = frozenset(
    {
        # Numerics, training and generation.
        "_name_or_path", "architectures", "auto_map", "model_type", "initializer_range", "hidden_act",
        "hidden_activation", "rms_norm_eps", "attention_dropout", "hidden_dropout", "aux_loss_alpha",
        "router_aux_loss_coef", "output_router_logits", "output_attentions", "output_hidden_states", "seq_aux",
        "pretraining_tp", "use_cache", "ep_size", "swiglu_limit", "final_logit_softcapping",
        "hidden_size_per_layer_input", "vocab_size_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp",
        "use_bidirectional_attention", "chunk_size_feed_forward", "add_cross_attention",
        "cross_attention_hidden_size",
        # Positions: their cost does not depend on these.
        "rope_scaling", "rope_theta", "rope_parameters", "rope_interleave", "indexer_rope_interleave",
        "initial_context_length", "rotary_dim", "partial_rotary_factor",
        # How experts are chosen.
        "norm_topk_prob", "n_group", "topk_group", "topk_method", "scoring_func", "routed_scaling_factor",
        "experts_per_token",
        # Of the layers for multi-token prediction only the number counts; see ``_mtp_layers``.
        "mtp_use_dedicated_embeddings",
        # Parts of models that read images or sound.
        "vision_config", "audio_config", "text_config", "mamba_ssm_dtype", "kv_cache_scheme",
    }
)  # fmt: skip


class Fields:
    """The fields of a configuration; it knows which of them were used.

    Args:
        data: The fields.
        where: The file, for messages.
    """

    def __init__(self, data: Mapping[str, Any], where: Location) -> None:
        self._data = data
        self._where = where
        self._used: set[str] = set()

    def error(self, field: str, problem: str, expected: str | None = None, near: str | None = None) -> InputError:
        """Return an error about a field."""
        where = Location(self._where.file, self._where.line, self._where.column, field)
        return InputError(problem, where=where, expected=expected, nearest=near)

    def has(self, field: str) -> bool:
        """Return whether a field is there with a value other than null."""
        self._used.add(field)
        return self._data.get(field) is not None

    def whole(self, field: str, default: int | None = None) -> int:
        """Return a whole number above zero; raises InputError if it is missing without a default."""
        if not self.has(field):
            if default is None:
                raise self.error(field, f"'{field}' is missing", "a whole number above zero")
            return default
        value = self._data[field]
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise self.error(field, f"this is {value!r}", "a whole number above zero")
        return value

    def optional(self, field: str) -> int | None:
        """Return a whole number above zero, or None if the field is missing, null or 0."""
        if not self.has(field) or self._data[field] == 0:
            return None
        return self.whole(field)

    def flag(self, field: str, default: bool = False) -> bool:
        """Return a truth value."""
        value = self._data[field] if self.has(field) else default
        if not isinstance(value, bool):
            raise self.error(field, f"this is {value!r}", "true or false")
        return value

    def items(self, field: str) -> Sequence[Any]:
        """Return a list; an empty one if the field is missing."""
        value = self._data[field] if self.has(field) else []
        if not isinstance(value, list):
            raise self.error(field, f"this is {value!r}", "a list")
        return value

    def text(self, field: str, default: str = "") -> str:
        """Return a text."""
        return str(self._data[field]) if self.has(field) else default

    def ignore(self, *fields: str) -> None:
        """Note that fields are known, and do not change the cost."""
        self._used.update(fields)

    def part(self, field: str) -> Fields | None:
        """Return an object as fields of its own, or None if the field is missing."""
        if not self.has(field):
            return None
        value = self._data[field]
        if not isinstance(value, dict):
            raise self.error(field, f"this is {value!r}", "an object")
        return Fields(value, self._where)

    def only(self, field: str, *values: object) -> None:
        """Check that a field is missing, null or one of ``values``; raises InputError for another value."""
        if self.has(field) and self._data[field] not in values:
            raise self.error(field, f"{field} = {self._data[field]!r} is not supported", list_choices(map(str, values)))

    def check_unused(self) -> None:
        """Raise InputError for a field that looks like a part of the architecture and was not used."""
        for field, value in self._data.items():
            unknown = (
                field not in self._used and field not in _IGNORED and not field.endswith(("token_id", "token_index"))
            )
            if unknown and value not in (None, False, 0, [], {}, "") and _ARCHITECTURAL.search(field):
                raise self.error(
                    field,
                    f"unknown field '{field}' of a '{self.text('model_type')}' model, which may change the cost",
                    near=nearest(field, self._used),
                )


Family = Callable[[Fields, int], list[Plan]]


def _grouped(c: Fields, **more: Any) -> GroupedAttention:
    heads = c.whole("num_attention_heads")
    width = c.whole("hidden_size")
    if not c.has("head_dim") and width % heads:
        raise c.error("num_attention_heads", f"hidden_size {width} is not a multiple of {heads} heads", "head_dim")
    kv_heads = c.whole("num_key_value_heads", heads)
    if heads % kv_heads:
        raise c.error("num_key_value_heads", f"{heads} heads are not a multiple of {kv_heads} heads of keys and values")
    return GroupedAttention(heads, kv_heads, c.whole("head_dim", width // heads), **more)


def _llama(c: Fields, layers: int) -> list[Plan]:
    c.only("mlp_bias", False)
    bias = c.flag("attention_bias")
    attention = _grouped(c, window=c.optional("sliding_window"), qkv_bias=bias, output_bias=bias)
    return [(attention, FeedForward(c.whole("intermediate_size")), None)] * layers


def _qwen(c: Fields, layers: int) -> list[Plan]:
    c.only("use_sliding_window", False)
    c.ignore("sliding_window", "max_window_layers", "layer_types")
    second = c.text("model_type") == "qwen2"
    bias = c.flag("attention_bias", second) or c.flag("qkv_bias", second)
    attention = _grouped(c, qkv_bias=bias, qk_norm=None if second else "head")
    return [(attention, FeedForward(c.whole("intermediate_size")), None)] * layers


def _qwen_experts(c: Fields, layers: int) -> list[Plan]:
    (attention, dense, _), *_rest = _qwen(c, 1)
    c.ignore("use_qk_norm")
    experts = Experts(
        c.whole("num_experts"),
        c.whole("num_experts_per_tok"),
        c.whole("moe_intermediate_size"),
        shared_width=c.optional("shared_expert_intermediate_size") or 0,
    )
    step, only = c.whole("decoder_sparse_step", 1), set(c.items("mlp_only_layers"))
    return [
        (attention, None, experts) if i not in only and (i + 1) % step == 0 else (attention, dense, None)
        for i in range(layers)
    ]


def _mixtral(c: Fields, layers: int) -> list[Plan]:
    experts = Experts(c.whole("num_local_experts"), c.whole("num_experts_per_tok"), c.whole("intermediate_size"))
    return [(_grouped(c, window=c.optional("sliding_window")), None, experts)] * layers


def _gpt_oss(c: Fields, layers: int) -> list[Plan]:
    bias = c.flag("attention_bias", True)
    full = _grouped(c, qkv_bias=bias, output_bias=bias, sinks=True)
    sliding = _grouped(c, qkv_bias=bias, output_bias=bias, sinks=True, window=c.whole("sliding_window"))
    experts = Experts(
        c.whole("num_local_experts"), c.whole("num_experts_per_tok"), c.whole("intermediate_size"), bias=True
    )
    kinds = _kinds(c, layers, ["sliding_attention", "full_attention"])
    return [(sliding if kind == "sliding_attention" else full, None, experts) for kind in kinds]


def _kinds(c: Fields, layers: int, repeated: Sequence[str]) -> list[str]:
    """Return the kind of attention of each layer: ``layer_types``, or the family's pattern."""
    kinds = [str(kind) for kind in c.items("layer_types")] or [repeated[i % len(repeated)] for i in range(layers)]
    for kind in kinds:
        if kind not in repeated:
            raise c.error("layer_types", f"unknown kind '{kind}'", list_choices(set(repeated)), nearest(kind, repeated))
    if len(kinds) != layers:
        raise c.error("layer_types", f"it has {len(kinds)} kinds for {layers} layers", f"{layers} kinds")
    return kinds


def _latent(c: Fields, layers: int) -> list[Plan]:
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    c.only("attention_bias", False)
    index = c.optional("index_topk")
    attention = LatentAttention(
        heads=c.whole("num_attention_heads"),
        query_rank=c.optional("q_lora_rank"),
        kv_rank=c.whole("kv_lora_rank"),
        rope_dim=c.whole("qk_rope_head_dim"),
        nope_dim=c.whole("qk_nope_head_dim"),
        value_dim=c.whole("v_head_dim"),
        indexer=None if index is None else Indexer(c.whole("index_n_heads"), c.whole("index_head_dim"), index),
    )
    width = c.whole("moe_intermediate_size")
    experts = Experts(
        c.whole("n_routed_experts"),
        c.whole("num_experts_per_tok"),
        width,
        shared_width=width * (c.optional("n_shared_experts") or 0),
        router_bias=c.text("topk_method") == "noaux_tc",
    )
    c.only("moe_layer_freq", 1)
    first = c.optional("first_k_dense_replace") or 0
    dense = FeedForward(c.whole("intermediate_size"))
    return [(attention, dense, None) if i < first else (attention, None, experts) for i in range(layers)]


def _minimax(c: Fields, layers: int) -> list[Plan]:
    c.only("qk_norm_type", "per_layer")
    c.only("shared_intermediate_size", 0)
    attention = _grouped(c, qk_norm="layer" if c.flag("use_qk_norm") else None)
    experts = Experts(
        c.whole("num_local_experts"),
        c.whole("num_experts_per_tok"),
        c.whole("intermediate_size"),
        router_bias=c.flag("use_routing_bias"),
    )
    return [(attention, None, experts)] * layers


_NO_ROPE_EVERY = 4
"""In Llama 4 every fourth layer attends to the whole context, without rotary positions (``no_rope_layers``)."""


def _llama4(c: Fields, layers: int) -> list[Plan]:
    c.only("attention_bias", False)
    (
        c.has("use_qk_norm"),
        c.has("no_rope_layers"),
        c.has("moe_layers"),
    )  # the norm has no weights; the rest is the pattern
    full = _grouped(c)
    chunked = _grouped(c, window=c.whole("attention_chunk_size"), chunked=True)
    width = c.whole("intermediate_size")
    experts = Experts(c.whole("num_local_experts"), c.whole("num_experts_per_tok"), width, shared_width=width)
    dense = FeedForward(c.whole("intermediate_size_mlp"))
    step = c.whole("interleave_moe_layer_step", 1)
    return [
        (
            full if (i + 1) % _NO_ROPE_EVERY == 0 else chunked,
            None if (i + 1) % step == 0 else dense,
            experts if (i + 1) % step == 0 else None,
        )
        for i in range(layers)
    ]


def _gemma4(c: Fields, layers: int) -> list[Plan]:
    c.only("attention_bias", False)
    c.only("hidden_size_per_layer_input", 0)
    c.only("num_kv_shared_layers", 0)
    sliding = _grouped(c, qk_norm="head", window=c.whole("sliding_window"))
    full = GroupedAttention(
        sliding.heads,
        c.whole("num_global_key_value_heads", sliding.kv_heads),
        c.whole("global_head_dim", sliding.head_dim),
        qk_norm="head",
        shared_kv=c.flag("attention_k_eq_v"),
    )
    dense, experts = FeedForward(c.whole("intermediate_size")), None
    if c.flag("enable_moe_block"):
        experts = Experts(c.whole("num_experts"), c.whole("top_k_experts"), c.whole("moe_intermediate_size"))
    kinds = _kinds(c, layers, ["sliding_attention"] * 5 + ["full_attention"])
    return [(sliding if kind == "sliding_attention" else full, dense, experts) for kind in kinds]


def _qwen35(c: Fields, layers: int) -> list[Plan]:
    full = _grouped(c, qk_norm="head", output_gate=c.flag("attn_output_gate"), qkv_bias=c.flag("attention_bias"))
    linear = LinearAttention(
        c.whole("linear_num_key_heads"),
        c.whole("linear_num_value_heads"),
        c.whole("linear_key_head_dim"),
        c.whole("linear_value_head_dim"),
        c.whole("linear_conv_kernel_dim"),
    )
    every = c.whole("full_attention_interval", 4)
    kinds = _kinds(c, layers, ["linear_attention"] * (every - 1) + ["full_attention"])
    c.only("mlp_only_layers", [])
    if c.has("num_experts"):
        shared = c.optional("shared_expert_intermediate_size") or 0
        counts = (c.whole("num_experts"), c.whole("num_experts_per_tok"), c.whole("moe_intermediate_size"))
        dense, experts = None, Experts(*counts, shared_width=shared, shared_gate=shared > 0)
    else:
        dense, experts = FeedForward(c.whole("intermediate_size")), None
    return [(linear if kind == "linear_attention" else full, dense, experts) for kind in kinds]


FAMILIES: Mapping[str, Family] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "qwen3_moe": _qwen_experts,
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "deepseek_v2": _latent,
    "deepseek_v3": _latent,
    "deepseek_v32": _latent,
    "kimi_k2": _latent,
    "glm_moe_dsa": _latent,
    "minimax_m2": _minimax,
    "llama4_text": _llama4,
    "gemma4_text": _gemma4,
    "qwen3_5_text": _qwen35,
    "qwen3_5_moe_text": _qwen35,
}
"""The function of each ``model_type`` that returns the layers of a model."""
_NORMS = {"gemma4_text": 7}
"""Normalisations of a layer where they are not two: Gemma 4 has them before and after each part and its experts."""
_KEPT = frozenset({"float32", "float16", "bfloat16"})
_HEAD_ALONE = frozenset(
    {"gpt_oss", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "minimax_m2"}
)
"""Families whose makers count the output projection as active, and not the embedding table: it is only looked up. This
follows from their published counts, such as 5.13 billion of gpt-oss-120b and 37 billion of DeepSeek-V3."""


def architecture(name: str, config: Mapping[str, Any], where: Location, source: str = "") -> Architecture:
    """Return the architecture that a configuration describes.

    Args:
        name: The model's name.
        config: The content of a Hugging Face ``config.json``.
        where: The file, for messages.
        source: Where the configuration comes from.

    Raises:
        InputError: for an unknown family or number format, a missing field, an impossible value, or an unknown field
            that may change the cost.
    """
    outer = Fields(config, where)
    inner = outer.part("text_config")
    c = inner or outer
    family = c.text("model_type")
    if family not in FAMILIES:
        raise c.error(
            "model_type", f"unknown model_type '{family}'", list_choices(FAMILIES, 30), nearest(family, FAMILIES)
        )
    count = c.whole("num_hidden_layers")
    planned = FAMILIES[family](c, count)
    native = _number_format(c, outer)
    found = Architecture(
        name=name,
        width=c.whole("hidden_size"),
        vocabulary=c.whole("vocab_size"),
        layers=_grouped_layers(planned, _NORMS.get(family, 2)),
        max_context=c.optional("max_position_embeddings"),
        tied=c.flag("tie_word_embeddings", outer.flag("tie_word_embeddings")),
        weights=_weights(c.part("quantization_config") or outer.part("quantization_config"), native),
        kv_dtype=native,
        source=source,
        convention=Convention.HEAD if family in _HEAD_ALONE else Convention.EMBEDDING_AND_HEAD,
        mtp_layers=_mtp_layers(c),
    )
    c.check_unused()
    return found


def _mtp_layers(c: Fields) -> int:
    """Return the layers for multi-token prediction: DeepSeek and GLM, Qwen 3.5, and MiniMax name them differently."""
    found = (c.optional("num_nextn_predict_layers") or 0) + (c.optional("mtp_num_hidden_layers") or 0)
    modules, each = c.optional("num_mtp_modules") or 0, c.optional("mtp_transformer_layers") or 0
    return found + modules * each * c.flag("use_mtp")


def _number_format(*fields: Fields) -> str:
    for c in fields:
        for field in ("torch_dtype", "dtype"):
            if c.has(field):
                c.only(field, *sorted(_KEPT))
                return c.text(field)
    return "bfloat16"


def _grouped_layers(planned: Iterable[Plan], norms: int) -> tuple[Layers, ...]:
    counts: dict[Plan, int] = {}
    for plan in planned:
        counts[plan] = counts.get(plan, 0) + 1
    return tuple(Layers(count, *plan, norms=norms) for plan, count in counts.items())


def _weights(quantized: Fields | None, native: str) -> Weights:
    """Return the formats of the weights that ``quantization_config`` states."""
    if quantized is None:
        return Weights(native, native, native)
    method = quantized.text("quant_method")
    if method == "fp8":
        stored = "fp8_block" if quantized.items("weight_block_size") else "fp8"
        return Weights(stored, stored, native)
    if method == "mxfp4":
        return Weights(native, "mxfp4", native)
    if method in ("awq", "gptq"):
        quantized.only("bits", 4)
        return Weights("int4", "int4", native, group=quantized.whole("group_size", 128))
    if method == "compressed-tensors":
        return _compressed(quantized, native)
    known = ("fp8", "mxfp4", "awq", "gptq", "compressed-tensors")
    raise quantized.error(
        "quantization_config.quant_method", f"unknown method '{method}'", list_choices(known), nearest(method, known)
    )


def _compressed(quantized: Fields, native: str) -> Weights:
    """Return the formats of a configuration of compressed-tensors with one group: FP8, or 4-bit integers in groups."""
    groups = quantized.part("config_groups")
    group = None if groups is None else groups.part("group_0")
    weights = None if group is None else group.part("weights")
    if weights is None:
        raise quantized.error(
            "quantization_config.config_groups", "the format is not stated", "group_0: {weights: ...}"
        )
    kind, bits = weights.text("type"), weights.whole("num_bits")
    if (kind, bits) not in (("int", 4), ("float", 8)):
        raise quantized.error(
            "quantization_config.config_groups", f"{kind} weights of {bits} bits are not supported", "int 4, float 8"
        )
    stored = "int4" if bits == 4 else "fp8"
    attention_kept = any("self_attn" in str(pattern) for pattern in quantized.items("ignore"))
    return Weights(native if attention_kept else stored, stored, native, group=weights.whole("group_size", 128))
