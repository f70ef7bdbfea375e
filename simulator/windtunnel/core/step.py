"""The operations of one step of a serving engine: what a decoder runs on each device of a group.

A step decodes one token for each of some sequences and may process chunks of prompts. ``DividedDecoder`` lists its
parts on one device of one pipeline stage: each is an operation with fixed columns, and columns in proportion to an
amount, which is the number of tokens, of sequences that produce a token, or of sequences in attention. So a table of
steps, and the tables of the engines, are priced at once.

What is not one of the measured operations (norms with residuals, rotary positions, gated activations, embedding,
sampling, states of linear attention) is a ``kernel`` with the bytes that it must move. Engines fuse a norm with the
addition of the residual, rotary positions with the norm of queries and keys, and the conversion of activations to the
format of the weights with the norm or the activation function before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windtunnel.core.architecture import (
    Architecture,
    Experts,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layers,
    LinearAttention,
)
from windtunnel.core.group import Group, padded, padded_expert, share
from windtunnel.core.ops import OPERATIONS, FloatArray, Operation, Rows

BoolArray = npt.NDArray[np.bool_]

HANDOVER = "pipeline hand-over"
"""The name of the exchange between two pipeline stages."""

_ACTIVATION_BYTES = 2.0
"""Activations are 16-bit numbers in every engine."""
_LOGIT_PASSES = 3.0
"""Passes over the float32 logits of a sequence: temperature and softmax, selection, and the write before them."""
_GEMM_FORMATS = {"fp8_block": "fp8"}
"""Products of block-scaled FP8 are priced as those of FP8. Above 100 us both take the same time within 12%; below, the
measurements of the former contain 50 to 180 us of a host, which replays of a graph do not have."""
_NARROW_BYTES = {"fp8": 1.0, "fp8_block": 1.0 + 4.0 / 128, "nvfp4": 0.5 + 1.0 / 16, "int8": 1.0}
"""Bytes of an activation that was converted for weights of a format, with scales; others keep 16-bit activations."""


_POPULARITY = 1.01
"""Exponent of the power law of the experts' popularity: the smaller of the two with which the skewed loads of the
measured experts were made to resemble real routers (ai-dynamo/aiconfigurator@095f58a). Held back configurations of
serving campaigns have a smaller error with it than with equal popularity (decision 0039)."""


class Amount(Enum):
    """What a part of a step is in proportion to."""

    TOKENS = "tokens"
    HEADS = "heads"
    DECODING = "decoding"
    PROMPTS = "prompts"


@dataclass(frozen=True)
class Part:
    """An operation that a step runs ``times`` on one device.

    ``values`` are fixed columns. ``scale`` has the factors of the columns that are in proportion to ``amount``; the
    products are rounded up, because the slowest device decides. ``window`` limits the context of attention.
    """

    name: str
    op: type[Operation]
    values: Mapping[str, float | str]
    amount: Amount
    scale: Mapping[str, float] = field(default_factory=dict)
    times: float = 1.0
    window: int | None = None
    link: bool = False
    """Whether the part is an exchange between devices."""
    shared: bool = False
    """Whether it has the tokens of all copies of the attention; other parts of a copy have its own."""
    slices: int = 0
    """The linear layers that a product joins, each of which may have adapters; 0 for other parts."""
    above: float = 0.0
    """The part runs in steps with an amount above this,"""
    upto: float = math.inf
    """and with at most this."""

    def runs(self, amount: FloatArray) -> BoolArray:
        """Return which amounts the part has work for."""
        present: BoolArray = (amount > self.above) & (amount <= self.upto)
        return present

    def rows(
        self, amount: FloatArray, context: Mapping[str, str], more: Mapping[str, FloatArray] | None = None
    ) -> Rows:
        """Return the operation for amounts above zero; ``context`` has choices such as the dispatch, if it has them."""
        names = {column.name for column in self.op.all_columns()}
        stated = {**self.values, **{name: value for name, value in context.items() if name in names}}
        complete = self.op.complete({**dict.fromkeys((*self.scale, *(more or {})), 1), **stated})
        numbers = {
            name: np.asarray(value, dtype=np.float64) for name, value in complete.items() if not isinstance(value, str)
        }
        for name, factor in self.scale.items():
            numbers[name] = np.maximum(np.ceil(amount * factor * (1.0 - 1e-12)), 1.0)
        return Rows(
            self.op,
            {name: value for name, value in complete.items() if isinstance(value, str)},
            {**numbers, **(more or {})},
        )


@dataclass(frozen=True)
class EngineTimes:
    """What a serving engine adds to the operations of a step; see ``core.serving_engine``.

    Args:
        decode: The factor on the time of operations in steps that decode.
        prefill: That on the time of operations in steps that read prompts.
        prompt_layer_s: The least time of a layer in a step that reads a prompt (s).
        host_s: Time of the host in every step (s).
        host_sequence_s: Time of the host for each sequence that produces a token (s).
        error_factor: The factor of the 90% interval of a step.
        provenance: The least certain origin of these numbers; None without any.
    """

    NUMBERS: ClassVar[tuple[str, ...]] = ("decode", "prefill", "prompt_layer_s", "host_s", "host_sequence_s")

    decode: float = 1.0
    prefill: float = 1.0
    prompt_layer_s: float = 0.0
    host_s: float = 0.0
    host_sequence_s: float = 0.0
    error_factor: float = 1.0
    provenance: int | None = None

    def factor(self, decoding: FloatArray, read: FloatArray) -> FloatArray:
        """Return the factor on operations of steps with so many tokens of sequences and of prompts, shape (n,)."""
        tokens = np.maximum(decoding + read, 1.0)
        return (decoding * self.decode + read * self.prefill) / tokens


@dataclass(frozen=True)
class FusedReduce:
    """All-reduces that also add the residual and normalise.

    Args:
        implementation: Whose kernels they are; vLLM and SGLang take those of TensorRT-LLM from FlashInfer.
        most_bytes: The largest buffer; larger ones are reduced by the engine's own all-reduce, and normalised after it.
    """

    implementation: str
    most_bytes: float = math.inf


@dataclass(frozen=True)
class DraftPasses:
    """``times`` passes of a draft in each step that are alike; one of them also reads prompts or none does.

    A pass processes ``decoder.query_tokens`` tokens of each decoding sequence, and gives one token of each.
    """

    decoder: DividedDecoder
    times: int
    reads_prompts: bool

    def parts(self) -> Iterator[Part]:
        """Yield every part of the passes, on one device of those that share the draft."""
        for part in self.decoder.parts():
            if part.amount is not Amount.PROMPTS or self.reads_prompts:
                yield replace(part, name=f"draft: {part.name}", times=part.times * self.times)


@dataclass(frozen=True)
class DividedDecoder:
    """A decoder on a group of devices.

    Args:
        model: The architecture, with the formats of its weights and of its KV cache.
        group: How devices divide it; it was checked.
        devices_per_node: Devices of a node, for exchanges.
        implementation: Who implements all-reduce: ``nccl`` or a serving engine.
        fused: The all-reduces that also normalise, if there are any.
        times: What the serving engine adds.
        query_tokens: The tokens of each decoding sequence that a step processes: the last one, and drafted ones.
        joined: The hidden states that a projection joins into one before the first layer; see ``speculation.Draft``.
        passes: The passes of a draft that precede those of the decoder.
        adapter_rank: The rank of LoRA adapters; 0 without.
    """

    model: Architecture
    group: Group = field(default_factory=Group)
    devices_per_node: int = 8
    implementation: str = "nccl"
    fused: FusedReduce | None = None
    times: EngineTimes = field(default_factory=EngineTimes)
    query_tokens: int = 1
    joined: int = 0
    passes: tuple[DraftPasses, ...] = ()
    adapter_rank: int = 0

    @property
    def draft_passes(self) -> int:
        """The number of passes of the draft in a step."""
        return sum(some.times for some in self.passes)

    @property
    def prompt_layers(self) -> int:
        """The layers that read the prompts of a step, with those of a draft."""
        return self.model.layer_count + sum(p.decoder.model.layer_count for p in self.passes if p.reads_prompts)

    def every_part(self) -> Iterator[Part]:
        """Yield the parts of the decoder and of its draft."""
        yield from self.parts()
        for some in self.passes:
            yield from some.parts()

    def parts(self) -> Iterator[Part]:
        """Yield every part of the decoder in a step, over the whole depth, on one device of a stage."""
        model, group = self.model, self.group
        width_bytes = model.width * _ACTIVATION_BYTES
        yield self._kernel("embedding", 2.0 * width_bytes, Amount.TOKENS)
        if self.joined:
            yield self._gemm(
                "joined hidden states", model.width, self.joined * model.width, Amount.TOKENS, model.weights.linear, 1
            )
        for layers in model.layers:
            yield from self._attention(layers)
            yield from self._feed_forward(layers)
            yield from self._norms(layers)
        vocabulary = padded(model.vocabulary, group.tensor)
        yield self._gemm("output projection", vocabulary, model.width, Amount.HEADS, model.weights.other, 1)
        if group.tensor > 1:
            yield self._collective(
                "gather logits", "all_gather", vocabulary * group.tensor * _ACTIVATION_BYTES, Amount.HEADS, 1
            )
        yield self._kernel("sampling", _LOGIT_PASSES * 4.0 * model.vocabulary, Amount.HEADS)

    def handover(self) -> Part | None:
        """Return the exchange between two pipeline stages for tokens, or None without stages."""
        if self.group.pipeline == 1:
            return None
        values = {"workers": 2.0, "devices_per_node": float(self.devices_per_node)}
        size = self.model.width * _ACTIVATION_BYTES / self.group.attention_data
        return Part(HANDOVER, OPERATIONS["send_recv"], values, Amount.TOKENS, {"bytes": size}, link=True)

    # Layers.

    def _attention(self, layers: Layers) -> Iterator[Part]:
        attention, count = layers.attention, layers.count
        if isinstance(attention, GroupedAttention):
            yield from self._grouped(attention, count)
            inner = share(attention.heads, self.group.tensor) * attention.head_dim
        elif isinstance(attention, LatentAttention):
            yield from self._latent(attention, count)
            inner = share(attention.heads, self.group.tensor) * attention.value_dim
        else:
            yield from self._linear(attention, count)
            inner = share(attention.value_heads, self.group.tensor) * attention.value_dim
        # Attention writes 16-bit numbers, so the conversion for the output projection is a kernel of its own.
        yield from self._linear_layer("attention output", self.model.width, inner, count, fused=False)
        if self.group.tensor > 1:
            yield from self._reduce("all-reduce of attention", layers)

    def _grouped(self, attention: GroupedAttention, count: int) -> Iterator[Part]:
        heads = share(attention.heads, self.group.tensor)
        keys = share(attention.kv_heads, self.group.tensor)
        projected = heads * (2 if attention.output_gate else 1) + keys * (1 if attention.shared_kv else 2)
        joined = 2 if attention.shared_kv else 3
        yield from self._linear_layer(
            "queries, keys, values", projected * attention.head_dim, self.model.width, count, slices=joined
        )
        if attention.qk_norm == "layer":
            # The norm of all heads together: a pass for the squares, which devices add, before that of the rotation.
            yield self._kernel(
                "norm of queries and keys",
                (heads + keys) * attention.head_dim * _ACTIVATION_BYTES,
                Amount.TOKENS,
                count,
            )
            if self.group.tensor > 1:
                yield self._collective("all-reduce of squares", "all_reduce", 2.0 * 4.0, Amount.TOKENS, count)
        # Rotary positions read and write queries and keys; the cache is written.
        rotated = 2.0 * (heads + keys) * attention.head_dim * _ACTIVATION_BYTES
        written = 4.0 * keys * attention.head_dim * _ACTIVATION_BYTES
        yield self._kernel("rotary positions and cache", rotated + written, Amount.TOKENS, count)
        values: dict[str, float | str] = {
            "kv_heads": float(keys),
            "head_dim": float(attention.head_dim),
            "dtype": self._wide,
            "kv_dtype": self._kv_dtype,
        }
        op = OPERATIONS["attention"]
        scale = {"batch": 1.0 / self.group.attention_data}
        for phase, amount, queries in self._phases():
            whole = {**values, "phase": phase, "heads": float(heads * queries)}
            yield Part(f"attention ({phase})", op, whole, amount, scale, count, attention.window)

    def _latent(self, attention: LatentAttention, count: int) -> Iterator[Part]:
        width, tensor = self.model.width, self.group.tensor
        heads = share(attention.heads, tensor)
        queries = heads * (attention.nope_dim + attention.rope_dim)
        compressed = attention.kv_rank + attention.rope_dim
        if attention.query_rank is None:
            yield from self._linear_layer("queries and latent", queries + compressed, width, count)
        else:
            yield from self._linear_layer("compression", attention.query_rank + compressed, width, count)
            yield from self._linear_layer("queries", queries, attention.query_rank, count)
        # Absorbed projections of queries into the latent space, and of the output out of it, head by head.
        for name, n, k in (
            ("absorbed queries", attention.kv_rank, attention.nope_dim),
            ("absorbed output", attention.value_dim, attention.kv_rank),
        ):
            yield self._gemm(name, n, k, Amount.TOKENS, self._wide, count, batch=heads)
        moved = 2.0 * (queries + compressed) * _ACTIVATION_BYTES
        yield self._kernel("rotary positions and cache", moved, Amount.TOKENS, count)
        attended = None
        if attention.indexer is not None:
            index = attention.indexer
            attended = index.top_k
            rank = attention.query_rank or width
            yield from self._linear_layer("index queries", index.heads * index.head_dim, rank, count)
            yield from self._linear_layer("index keys and weights", index.head_dim + index.heads, width, count)
            yield from self._index_scores(index, count)
        values: dict[str, float | str] = {
            "heads": float(heads),
            "kv_rank": float(attention.kv_rank),
            "rope_dim": float(attention.rope_dim),
            "dtype": self._wide,
            "kv_dtype": self._kv_dtype,
        }
        scale = {"batch": 1.0 / self.group.attention_data}
        op = OPERATIONS["latent_attention"]
        for phase, amount, queries in self._phases():
            whole = {**values, "phase": phase, "query_tokens": float(queries)}
            yield Part(f"attention ({phase})", op, whole, amount, scale, count, attended)

    def _phases(self) -> Iterator[tuple[str, Amount, int]]:
        """Yield the phases of attention with the query tokens of a sequence as one kernel sees them.

        The queries of one sequence that a step verifies share its keys, so kernels process them like heads that share
        keys (FlashInfer, FlashAttention): the cache is read once, and the arithmetic is that of every query.
        """
        yield "decode", Amount.DECODING, self.query_tokens
        yield "prefill", Amount.PROMPTS, 1

    def _index_scores(self, index: Indexer, count: int) -> Iterator[Part]:
        """Yield the scores of an indexer, which every device computes for all heads and the whole context.

        It reads one 8-bit key of ``head_dim`` values for each token and multiplies it with the queries of all heads.
        Attention with half as many values in a head has the same arithmetic and reads the same bytes, as keys and
        values. No such kernel was measured; the selection of the largest scores is not counted.
        """
        values: dict[str, float | str] = {
            "kv_heads": 1.0,
            "head_dim": index.head_dim / 2.0,
            "dtype": self._wide,
            "kv_dtype": "fp8",
        }
        scale = {"batch": 1.0 / self.group.attention_data}
        op = OPERATIONS["attention"]
        for phase, amount, queries in self._phases():
            whole = {**values, "phase": phase, "heads": float(index.heads * queries)}
            yield Part(f"index scores ({phase})", op, whole, amount, scale, count)

    def _linear(self, attention: LinearAttention, count: int) -> Iterator[Part]:
        tensor = self.group.tensor
        values = share(attention.value_heads, tensor) * attention.value_dim
        mixed = attention.mixed // tensor
        yield from self._linear_layer(
            "projections of linear attention", mixed + values + 2 * share(attention.value_heads, tensor),
            self.model.width, count,
        )  # fmt: skip
        state_bytes = attention.state_bytes(_ACTIVATION_BYTES) / tensor
        # Every decoding sequence reads its state, and writes it after each of its tokens, because drafted ones may be
        # rejected. Tokens of a prompt share one pass for each chunk of 64.
        states = 1.0 + self.query_tokens
        yield self._kernel("state of linear attention", states * state_bytes, Amount.DECODING, count)
        update = 8.0 * share(attention.value_heads, tensor) * attention.key_dim * attention.value_dim
        moved = 2.0 * (mixed + values) * _ACTIVATION_BYTES
        yield self._kernel("linear attention", moved, Amount.TOKENS, count, flops=update)
        # The causal convolution before, and the gated norm after the recurrence, are kernels of their own.
        yield self._kernel("convolution of linear attention", 2.0 * mixed * _ACTIVATION_BYTES, Amount.TOKENS, count)
        yield self._kernel("gated norm", 3.0 * values * _ACTIVATION_BYTES, Amount.TOKENS, count)

    def _feed_forward(self, layers: Layers) -> Iterator[Part]:
        model, group, count = self.model, self.group, layers.count
        shared = 0 if layers.experts is None else layers.experts.shared_width
        dense = layers.feed_forward
        for name, width, gated in (
            ("feed-forward", 0 if dense is None else dense.width, dense is None or dense.gated),
            ("shared experts", shared, True),
        ):
            if not width:
                continue
            inner = share(width, group.tensor)
            ways = 2 if gated else 1
            yield from self._linear_layer(f"{name}: up", ways * inner, model.width, count, slices=ways)
            moved = inner * (ways * _ACTIVATION_BYTES + self._converted)
            yield self._kernel(f"{name}: activation", moved, Amount.TOKENS, count)
            yield from self._linear_layer(f"{name}: down", model.width, inner, count)
        if layers.experts is not None:
            yield from self._experts(layers.experts, count)
        if self._reduces(layers) == 2:
            yield from self._reduce("all-reduce of feed-forward", layers)

    def _experts(self, experts: Experts, count: int) -> Iterator[Part]:
        model, group = self.model, self.group
        yield self._gemm("router", experts.count, model.width, Amount.TOKENS, model.weights.other, count)
        # The scores are read and written, and the tokens are ordered by expert.
        routed = 3.0 * 4.0 * experts.count + 2.0 * experts.per_token * model.width * _ACTIVATION_BYTES
        yield self._kernel("routing", routed, Amount.TOKENS, count)
        width, expert_width = padded_expert(model.width, experts.width, group.experts_shared_by, model.weights.experts)
        values: dict[str, float | str] = {
            "width": float(width),
            "expert_width": float(expert_width),
            "experts": float(experts.count),
            "experts_per_token": float(experts.per_token),
            "dtype": model.weights.experts,
            "tensor": float(group.experts_shared_by),
            "expert": float(group.expert),
            "routing": "independent",
            "skew": _POPULARITY,
        }
        yield Part("experts", OPERATIONS["moe"], values, Amount.TOKENS, {"tokens": 1.0}, count, shared=True)
        if self.group.attention_data > 1:
            yield from self._exchange(experts, count)

    def _exchange(self, experts: Experts, count: int) -> Iterator[Part]:
        """Yield the exchange of tokens between the copies of the attention, which are all devices of a stage.

        Devices that hold whole experts receive the tokens that chose them: the devices of one copy have the same
        tokens, and each sends its part of them, once to each device that has any of a token's experts (DeepEP). Of R
        devices these are R (1 - (1 - 1/R)^k) for k experts that are chosen independently. Where all devices share every
        expert, all tokens are gathered, and the results are added and scattered.

        Without copies no token is sent: every device has all tokens and computes its experts, and an all-reduce adds
        the results, as vLLM, SGLang and TensorRT-LLM do.
        """
        group, width = self.group, self.model.width
        devices = group.stage_devices
        # Activations are converted before they are sent; results come back in 16 bits.
        sizes = (_NARROW_BYTES.get(self.model.weights.experts, _ACTIVATION_BYTES), _ACTIVATION_BYTES)
        if group.expert > 1:
            copies = group.expert * (1.0 - (1.0 - 1.0 / group.expert) ** experts.per_token)
            each, ops = copies * width / group.tensor, ("all_to_all", "all_to_all")
        else:
            each, ops = float(width * group.attention_data), ("all_gather", "reduce_scatter")
        for name, op, size in zip(("dispatch to experts", "combine experts"), ops, sizes, strict=True):
            exchange = self._collective(name, op, each * size, Amount.TOKENS, count, workers=devices)
            # All devices take part with all tokens, whoever has them.
            yield replace(exchange, shared=True)
        if group.tensor > 1:
            # Each device of a copy has the results of its part of the tokens.
            yield self._collective("gather tokens", "all_gather", width * _ACTIVATION_BYTES, Amount.TOKENS, count)

    def _norms(self, layers: Layers) -> Iterator[Part]:
        """Yield the norms of the residual stream.

        Each reads the stream and the residual and writes both, the stream in the format of the products that follow.
        The router reads a 16-bit copy beside it. Engines convert the activations of a product in the same kernel.
        """
        wide, narrow = _ACTIVATION_BYTES, self._converted
        routed = wide if narrow < wide and layers.experts is not None else 0.0
        # Norms after attention or feed-forward networks write 16-bit numbers.
        rest = max(layers.norms - 2, 0)
        moved = self.model.width * (2.0 * (3.0 * wide + narrow) + routed + rest * 4.0 * wide) / (2 + rest)
        fused, most = self._reduces(layers), self._most_fused(layers)
        if most:
            # The traffic of all layers together: fused norms have no launch of their own.
            all_s = fused * layers.count * moved
            yield self._kernel("norms in all-reduces", all_s, Amount.TOKENS, upto=most)
            if fused < layers.norms:
                yield self._kernel("norms", moved, Amount.TOKENS, (layers.norms - fused) * layers.count, upto=most)
        if most < math.inf:
            yield self._kernel("norms", moved, Amount.TOKENS, layers.norms * layers.count, above=most)

    def _most_fused(self, layers: Layers) -> float:
        """Return the most tokens of a step whose all-reduces also normalise; 0 without such all-reduces."""
        if self.fused is None or not self._reduces(layers) or layers.norms != 2:
            return 0.0
        return self.fused.most_bytes / (self.model.width * _ACTIVATION_BYTES) * self.group.attention_data

    def _reduces(self, layers: Layers) -> int:
        """Return the all-reduces of a layer: after attention, and after a feed-forward network without an exchange."""
        if self.group.tensor == 1:
            return 0
        return 1 if layers.experts is not None and self.group.attention_data > 1 else 2

    # Parts.

    @property
    def _wide(self) -> str:
        """The format of 16-bit activations."""
        return "float16" if self.model.weights.linear == "float16" else "bfloat16"

    @property
    def _kv_dtype(self) -> str:
        """The format of the cache, whose 16-bit numbers are those of the activations."""
        return self._wide if self.model.kv_dtype == "bfloat16" else self.model.kv_dtype

    @property
    def _converted(self) -> float:
        """The bytes of an activation that a norm or an activation function writes for the product that follows."""
        return _NARROW_BYTES.get(self.model.weights.linear, _ACTIVATION_BYTES)

    def _linear_layer(
        self, name: str, n: int, k: int, count: int, *, fused: bool = True, slices: int = 1
    ) -> Iterator[Part]:
        """Yield a GEMM with the weights' format, which joins ``slices`` layers.

        ``fused``: the kernel before it writes its input in that format.
        """
        product = self._gemm(name, n, k, Amount.TOKENS, self.model.weights.linear, count, fused=fused)
        yield replace(product, slices=slices)

    def _gemm(
        self, name: str, n: int, k: int, amount: Amount, stored: str, count: int, batch: int = 1, *, fused: bool = True
    ) -> Part:
        values: dict[str, float | str] = {
            "n": float(n),
            "k": float(k),
            "dtype": _GEMM_FORMATS.get(stored, stored),
            "batch": float(batch),
            "activations": "narrow" if fused else "wide",
        }
        return Part(name, OPERATIONS["gemm"], values, amount, {"m": 1.0 / self.group.attention_data}, count)

    def _kernel(
        self,
        name: str,
        moved: float,
        amount: Amount,
        times: float = 1.0,
        flops: float = 0.0,
        *,
        above: float = 0.0,
        upto: float = math.inf,
    ) -> Part:
        per = 1.0 / self.group.attention_data
        scale = {"bytes": moved * per, "threads": moved * per / 8.0}
        if flops:
            scale["flops"] = flops * per
        return Part(name, OPERATIONS["kernel"], {"dtype": self._wide}, amount, scale, times, above=above, upto=upto)

    def _reduce(self, name: str, layers: Layers) -> Iterator[Part]:
        size, most = self.model.width * _ACTIVATION_BYTES, self._most_fused(layers)
        own = self._collective(name, "all_reduce", size, Amount.TOKENS, layers.count)
        if most and self.fused is not None:
            fused = {**own.values, "implementation": self.fused.implementation}
            yield replace(own, values=fused, upto=most)
        if most < math.inf:
            yield replace(own, above=most)

    def _collective(
        self, name: str, op: str, size: float, amount: Amount, count: int, workers: int | None = None
    ) -> Part:
        values: dict[str, float | str] = {
            "workers": float(workers or self.group.tensor),
            "devices_per_node": float(self.devices_per_node),
        }
        if op == "all_reduce":
            values |= {"implementation": self.implementation, "dtype": self._wide}
        scale = {"bytes": size / self.group.attention_data}
        return Part(name, OPERATIONS[op], values, amount, scale, count, link=True)
