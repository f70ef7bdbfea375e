"""The architecture of a decoder-only transformer: layers, the shapes of their weights, and what each token caches.

An ``Architecture`` holds what costs depend on: the widths and heads of each kind of layer, and the formats of the
weights. Parameters are counted from the shapes of the tensors of the text decoder, with the embedding and the output
projection, and without layers for multi-token prediction and without encoders of images or sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

FORMAT_BITS = {
    "float32": 32.0,
    "float16": 16.0,
    "bfloat16": 16.0,
    "fp8": 8.0,
    "fp8_block": 8.0 + 32.0 / 128**2,
    "int8": 8.0,
    "nvfp4": 4.0 + 8.0 / 16,
    "mxfp4": 4.0 + 8.0 / 32,
    "int4": 4.0 + 16.0 / 128,
}
"""Bits of memory for each weight, with its share of the scales: a float32 for a block of 128 x 128 (``fp8_block``), an
FP8 number for 16 weights (NVFP4), an 8-bit exponent for 32 (MXFP4, OCP Microscaling 1.0), a 16-bit number for a group
of 128 (``int4``, the usual group of GPTQ and AWQ). A scale for a whole row or tensor is too small to count."""
STATE_BYTES = 4.0
"""The state of linear attention is kept in float32 (``mamba_ssm_dtype`` of the configurations that have it)."""


@dataclass(frozen=True)
class Indexer:
    """The small attention that selects ``top_k`` tokens for sparse attention (DeepSeek sparse attention)."""

    heads: int
    head_dim: int
    top_k: int

    def parameters(self, width: int, query_rank: int) -> int:
        """Return the number of weights: queries from the compressed ones, one key, the weights of heads, a norm."""
        return query_rank * self.heads * self.head_dim + width * self.head_dim + width * self.heads + 2 * self.head_dim


@dataclass(frozen=True)
class GroupedAttention:
    """Multi-head or grouped-query attention; ``kv_heads`` equals ``heads`` without groups.

    Args:
        heads: Query heads.
        kv_heads: Heads of keys and values.
        head_dim: Values of a head.
        window: The tokens that a query attends to at most; None without a limit.
        chunked: The window is a fixed chunk of the context instead of the last tokens.
        qkv_bias: Whether the projections to queries, keys and values have a bias.
        output_bias: Whether the output projection has a bias.
        qk_norm: The values that are normalised together, ``head`` or ``layer`` (all heads), or None.
        output_gate: Whether the queries' projection also gives a gate of the output.
        shared_kv: Whether values are the keys, without a projection of their own.
        sinks: Whether each head has a learned logit for attending to nothing.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None
    chunked: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: str | None = None
    output_gate: bool = False
    shared_kv: bool = False
    sinks: bool = False

    def parameters(self, width: int) -> int:
        """Return the number of weights of one layer of ``width``."""
        queries = self.heads * self.head_dim
        keys = self.kv_heads * self.head_dim
        projected = queries * (2 if self.output_gate else 1) + keys * (1 if self.shared_kv else 2)
        norms = {None: 0, "head": 2 * self.head_dim, "layer": queries + keys}[self.qk_norm]
        bias = (projected if self.qkv_bias else 0) + (width if self.output_bias else 0)
        return width * projected + queries * width + bias + norms + (self.heads if self.sinks else 0)

    @property
    def cached_values(self) -> int:
        """The values that one token adds to the cache of a layer: a key and a value of every head."""
        return 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: keys and values are projections of a compressed vector, which is cached.

    Args:
        heads: Query heads.
        query_rank: Values of the compressed queries; None if queries are projected directly.
        kv_rank: Values of the compressed keys and values.
        rope_dim: Values of a query and of the shared key with a rotary position.
        nope_dim: Values of a head's query and key without a position.
        value_dim: Values of a head's output.
        indexer: What selects tokens in sparse attention; None where all are attended to.
    """

    heads: int
    query_rank: int | None
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    indexer: Indexer | None = None

    def parameters(self, width: int) -> int:
        """Return the number of weights of one layer of ``width``."""
        queries = self.heads * (self.nope_dim + self.rope_dim)
        if self.query_rank is None:
            into = width * queries
        else:
            into = width * self.query_rank + self.query_rank + self.query_rank * queries
        compressed = width * (self.kv_rank + self.rope_dim) + self.kv_rank
        expanded = self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        index = 0 if self.indexer is None else self.indexer.parameters(width, self.query_rank or width)
        return into + compressed + expanded + self.heads * self.value_dim * width + index

    @property
    def cached_values(self) -> int:
        """The values that one token adds to the cache of a layer, without those of an indexer."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True)
class LinearAttention:
    """Linear attention with a gated delta rule and a short convolution (Gated DeltaNet): a state, and no cache.

    Args:
        key_heads: Heads of queries and of keys.
        value_heads: Heads of values.
        key_dim: Values of a head's query and key.
        value_dim: Values of a head's value.
        kernel: Tokens of the convolution.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def mixed(self) -> int:
        """The channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def parameters(self, width: int) -> int:
        """Return the number of weights of one layer: projections with gates, convolution, decay, norm, output."""
        values = self.value_heads * self.value_dim
        projected = self.mixed + values + 2 * self.value_heads
        return width * projected + self.mixed * self.kernel + 2 * self.value_heads + self.value_dim + values * width

    @property
    def cached_values(self) -> int:
        """No token adds to a cache."""
        return 0

    def state_bytes(self, element_bytes: float) -> float:
        """Return the state of one sequence in a layer (bytes): a matrix for each head, and the convolution's inputs."""
        return STATE_BYTES * self.value_heads * self.key_dim * self.value_dim + element_bytes * self.mixed * (
            self.kernel - 1
        )


Attention = GroupedAttention | LatentAttention | LinearAttention


@dataclass(frozen=True)
class FeedForward:
    """A dense feed-forward network; ``gated``: with a gate beside its up projection."""

    width: int
    gated: bool = True

    def parameters(self, width: int) -> int:
        """Return the number of weights of one layer of ``width``."""
        return width * self.width * (3 if self.gated else 2)


@dataclass(frozen=True)
class Experts:
    """A mixture of gated experts, of which a token uses ``per_token``, beside shared ones that every token uses.

    Args:
        count: Experts to choose from.
        per_token: Experts that a token is sent to.
        width: Values between the projections of one expert.
        shared_width: The same of all shared experts together; 0 without any.
        shared_gate: Whether the shared experts' output has a gate.
        bias: Whether the experts and the router have biases.
        router_bias: Whether the router has a correction for each expert.
    """

    count: int
    per_token: int
    width: int
    shared_width: int = 0
    shared_gate: bool = False
    bias: bool = False
    router_bias: bool = False

    def expert_parameters(self, width: int) -> int:
        """Return the number of weights of one expert."""
        return 3 * width * self.width + (2 * self.width + width if self.bias else 0)

    def other_parameters(self, width: int) -> int:
        """Return the number of weights that every token uses: the router and the shared experts."""
        router = width * self.count + (self.count if self.bias or self.router_bias else 0)
        return router + 3 * width * self.shared_width + (width if self.shared_gate else 0)


@dataclass(frozen=True)
class Layers:
    """``count`` layers that are alike; a layer may have a dense feed-forward network, experts, or both side by side."""

    count: int
    attention: Attention
    feed_forward: FeedForward | None = None
    experts: Experts | None = None
    norms: int = 2
    """Normalisations of the residual stream, with one weight for each of its values."""

    def dense_parameters(self, width: int) -> int:
        """Return the number of weights of one layer without its experts."""
        ahead = 0 if self.feed_forward is None else self.feed_forward.parameters(width)
        routed = 0 if self.experts is None else self.experts.other_parameters(width)
        return self.attention.parameters(width) + ahead + routed + self.norms * width


class Convention(Enum):
    """What a maker counts as active beside the layers: both the embedding and the output projection, or the latter."""

    EMBEDDING_AND_HEAD = "embedding_and_head"
    HEAD = "head"


@dataclass(frozen=True)
class Weights:
    """The formats of the weights: ``linear`` of attention and dense layers, ``experts`` of the experts.

    Embedding, output projection, router and norms are kept in ``other``.
    """

    linear: str = "bfloat16"
    experts: str = "bfloat16"
    other: str = "bfloat16"
    group: int = 128
    """The weights that share a scale in ``int4``."""

    def bits(self, stored: str) -> float:
        """Return the memory of a weight of the format ``stored`` (bits)."""
        return 4.0 + 16.0 / self.group if stored == "int4" else FORMAT_BITS[stored]


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer.

    Args:
        name: The model's name.
        width: Values of the residual stream of one token.
        vocabulary: Tokens of the vocabulary.
        layers: The layers, in order of their first appearance.
        max_context: The longest context that the model supports (tokens); None if unknown.
        tied: Whether the output projection is the embedding.
        weights: The formats of the weights.
        kv_dtype: The number format of the KV cache.
        source: Where the figures come from.
        convention: What the maker counts as active.
        mtp_layers: The layers for multi-token prediction of the checkpoint, which are not part of the decoder.
    """

    name: str
    width: int
    vocabulary: int
    layers: tuple[Layers, ...]
    max_context: int | None = None
    tied: bool = False
    weights: Weights = field(default_factory=Weights)
    kv_dtype: str = "bfloat16"
    source: str = ""
    convention: Convention = Convention.EMBEDDING_AND_HEAD
    mtp_layers: int = 0

    @property
    def layer_count(self) -> int:
        """The number of layers."""
        return sum(group.count for group in self.layers)

    @property
    def parameters(self) -> int:
        """The number of weights of the text decoder."""
        experts = sum(
            group.count * group.experts.count * group.experts.expert_parameters(self.width)
            for group in self._with_experts()
        )
        return self._dense_parameters() + experts + self._ends(1 if self.tied else 2)

    @property
    def active_parameters(self) -> int:
        """The number of weights that compute one token, counted as the model's maker counts them."""
        experts = sum(
            group.count * group.experts.per_token * group.experts.expert_parameters(self.width)
            for group in self._with_experts()
        )
        ends = 1 if self.tied or self.convention is Convention.HEAD else 2
        return self._dense_parameters() + experts + self._ends(ends)

    @property
    def weight_bytes(self) -> float:
        """The memory of the weights in their formats, with scales (bytes)."""
        total = self._ends(1 if self.tied else 2) * self.weights.bits(self.weights.other)
        for group in self.layers:
            total += group.count * 8.0 * self.layer_bytes(group)
        return total / 8.0

    def layer_bytes(self, layers: Layers) -> float:
        """Return the memory of the weights of one layer in their formats, with scales (bytes)."""
        routed = layers.experts
        other = layers.norms * self.width + (0 if routed is None else self.width * routed.count)
        linear = layers.dense_parameters(self.width) - other
        bits = linear * self.weights.bits(self.weights.linear) + other * self.weights.bits(self.weights.other)
        if routed is not None:
            bits += routed.count * routed.expert_parameters(self.width) * self.weights.bits(self.weights.experts)
        return bits / 8.0

    @property
    def kv_bytes_per_token(self) -> float:
        """The memory that one token adds to the KV cache of all layers (bytes), while it lies in every window."""
        values = sum(group.count * group.attention.cached_values for group in self.layers)
        return values * FORMAT_BITS[self.kv_dtype] / 8.0

    @property
    def state_bytes(self) -> float:
        """The memory of the states of linear attention for one sequence, whatever its length (bytes)."""
        element_bytes = self.weights.bits(self.weights.other) / 8.0
        return sum(
            group.count * group.attention.state_bytes(element_bytes)
            for group in self.layers
            if isinstance(group.attention, LinearAttention)
        )

    def _dense_parameters(self) -> int:
        return sum(group.count * group.dense_parameters(self.width) for group in self.layers)

    def _ends(self, tables: int) -> int:
        """Return the weights of the last norm and of ``tables`` tables of the vocabulary's size."""
        return tables * self.vocabulary * self.width + self.width

    def _with_experts(self) -> Iterator[_WithExperts]:
        for group in self.layers:
            if group.experts is not None:
                yield _WithExperts(group.count, group.experts)


@dataclass(frozen=True)
class _WithExperts:
    count: int
    experts: Experts
