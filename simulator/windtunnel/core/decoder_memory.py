"""The memory of a decoder on a device of a group: what a serving engine keeps of it, and what is left for the KV cache.

Every device of a group holds its part of the weights of its pipeline stage. An engine keeps memory for the activations
of its largest step, for its own workspace and for exchanges, and gives the rest of its share to the KV cache. The
device with the least room decides how many tokens the group caches.

Sources: vLLM 0.19 (``determine_available_memory`` of the GPU worker: the share of the device's memory less weights, the
peak of a step of the largest size, and what is not allocated by PyTorch), SGLang (``mem_fraction_static``) and
TensorRT-LLM (``free_gpu_memory_fraction``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from windtunnel.core.adapters import Adapters, adapter_bytes
from windtunnel.core.architecture import (
    FORMAT_BITS,
    Architecture,
    Attention,
    Experts,
    GroupedAttention,
    LatentAttention,
    Layers,
    LinearAttention,
)
from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel.core.group import Group, padded, share
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.speculation import HEADS, Speculation
from windtunnel.core.units import format_quantity

_GIB = 2.0**30
_ACTIVATION_BYTES = 2.0
"""Activations, and logits before sampling, are 16-bit numbers."""
_INDEX_SCALE_BYTES = 4.0
"""The cached key of a sparse attention's indexer is FP8 with a float32 scale (vLLM, ``DeepseekV32IndexerCache``)."""
_LARGEST_TENSOR = 64
"""The largest ``tensor`` that is tried when a group is looked for."""


class ShareOf(Enum):
    """What an engine's memory share is a share of.

    ``DEVICE``: everything that the engine allocates, of the device's memory (vLLM). ``STATIC``: weights and cache
    alone, of the device's memory (SGLang). ``FREE``: the cache, of what everything else leaves (TensorRT-LLM).
    """

    DEVICE = "device"
    STATIC = "static"
    FREE = "free"


def _logged(value: float, low: float, high: float, source: str) -> SourcedValue:
    return SourcedValue(value, Provenance.PUBLISHED, source, low, high)


_WORKSPACE_BYTES = _logged(
    0.25 * _GIB,
    0.07 * _GIB,
    0.4 * _GIB,
    "non-torch memory in logs of vLLM: 0.07 GiB (vllm-project/vllm#21489, B200), 0.16 GiB (#12126, H100), 0.20 GiB "
    "(#14447), 0.28 GiB (#15039), 0.33 GiB (#14452), 0.39 GiB (#11251)",
)
_LOGIT_COPIES = _logged(
    3.0,
    2.0,
    9.5,
    "logits, probabilities and random numbers of vLLM's sampler; 384 MB for 256 x 131,072 logits with its Triton "
    "kernels, and 1.25 GB with a sort (vllm-project/vllm#32558)",
)
_SAMPLER_BYTES = _logged(
    80.0 * 2**20, 0.0, 128.0 * 2**20, "the buffer of vLLM's Triton sampler (vllm-project/vllm#33538)"
)
_COMMUNICATION_BYTES = assumed(
    0.3 * _GIB,
    0.1 * _GIB,
    1.0 * _GIB,
    "channels of the vendor's library and an engine's own all-reduce; of groups, 0.2 to 0.95 GiB of non-torch memory "
    "stand in logs of vLLM",
)
_GRAPH_BYTES = _logged(
    0.5 * _GIB,
    0.2 * _GIB,
    1.3 * _GIB,
    "graphs in logs of vLLM: 0.23 to 0.67 GiB (0.65 GiB in vllm-project/vllm#21489), 1.3 GB for Llama 4 Maverick",
)


@dataclass(frozen=True)
class Reserves:
    """What an engine keeps of a device's memory beside weights, activations and cache.

    Args:
        share_of: What the memory share of the policy is a share of.
        workspace_bytes: What the engine's libraries allocate after it has started: modules of kernels, workspaces.
        logit_copies: float32 copies of the logits of all sequences that exist at once while tokens are sampled.
        sampler_bytes: The sampler's own buffer.
        communication_bytes: Buffers of exchanges on each device of a group with more than one.
        graph_bytes: Captured graphs.
        graphs_in_share: Whether the share of ``ShareOf.DEVICE`` contains the graphs, as in vLLM from 0.21 on. Before,
            and in SGLang, they take what the share leaves.
        block_tokens: Tokens of a block of the cache; the capacity is a whole number of blocks.
    """

    share_of: ShareOf = ShareOf.DEVICE
    workspace_bytes: SourcedValue = _WORKSPACE_BYTES
    logit_copies: SourcedValue = _LOGIT_COPIES
    sampler_bytes: SourcedValue = _SAMPLER_BYTES
    communication_bytes: SourcedValue = _COMMUNICATION_BYTES
    graph_bytes: SourcedValue = _GRAPH_BYTES
    graphs_in_share: bool = False
    block_tokens: int = 16


GENERIC_RESERVES = Reserves()
"""The reserves of an engine that is not known: those of vLLM 0.19."""


@dataclass(frozen=True)
class LargestStep:
    """The largest step that an engine reserves memory for: tokens, and sequences that produce one, of a replica.

    ``query_tokens`` are those of each decoding sequence; above 1 with speculative decoding.
    """

    tokens: int
    sequences: int
    query_tokens: int = 1


@dataclass(frozen=True)
class Held:
    """What one device holds beside the decoder (bytes).

    ``weights_bytes`` of a draft and of adapters; what the cache of the draft takes for a token, and for a sequence.
    """

    weights_bytes: float = 0.0
    kv_bytes_per_token: float = 0.0
    state_bytes_per_sequence: float = 0.0


@dataclass(frozen=True)
class Beside:
    """What a replica holds beside its decoder: a draft, and the slots of adapters."""

    speculation: Speculation | None = None
    adapters: Adapters | None = None

    def on(self, model: Architecture, group: Group, context: int | None) -> Held:
        """Return what each device of ``group`` holds beside ``model``.

        Raises:
            InputError: if the draft cannot be divided among the group.
        """
        held = self._draft(group, context)
        if self.adapters is None:
            return held
        slots_bytes = self.adapters.slots * adapter_bytes(model, group, self.adapters.rank)
        return replace(held, weights_bytes=held.weights_bytes + slots_bytes)

    def _draft(self, group: Group, context: int | None) -> Held:
        if self.speculation is None or not self.speculation.tokens:
            return Held()
        draft, own = self.speculation.draft, self.speculation.group_of(group)
        if draft.model is None:
            return Held()
        if not draft.model.layers:
            return Held(draft.weight_bytes(own, self.speculation.tokens))
        whole = draft.name not in HEADS
        stage = _Stage(draft.model, own, first=whole, last=whole)
        weights = stage.weights_bytes() if whole else draft.weight_bytes(own, self.speculation.tokens)
        return Held(weights, stage.cache_bytes(context), stage.state_bytes())


@dataclass(frozen=True)
class DecoderMemory:
    """The memory of the device of a group with the least room for the cache (bytes).

    Args:
        device_bytes: The memory that the driver reports.
        weights_bytes: Weights with scales, and the tables of rotary positions.
        activation_bytes: The peak of the largest step.
        workspace_bytes: The engine's libraries.
        communication_bytes: Buffers of exchanges.
        graph_bytes: Captured graphs.
        kv_bytes: What is left for the cache; below zero if the model does not fit.
        kv_bytes_per_token: What one token takes of the device's cache.
        state_bytes_per_sequence: What one sequence takes of it, whatever its length.
        copies: Devices that cache different sequences (``attention_data``).
        block_tokens: Tokens of a block.
    """

    device_bytes: float
    weights_bytes: float
    activation_bytes: float
    workspace_bytes: float
    communication_bytes: float
    graph_bytes: float
    kv_bytes: float
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    copies: int
    block_tokens: int

    @property
    def kv_capacity_tokens(self) -> int:
        """The tokens that the group caches, in whole blocks, beside the state of one sequence on each device; or 0."""
        free_bytes = max(self.kv_bytes - self.state_bytes_per_sequence, 0.0)
        if not self.kv_bytes_per_token:
            return 0
        blocks = math.floor(free_bytes / (self.kv_bytes_per_token * self.block_tokens))
        return self.copies * blocks * self.block_tokens

    def parts(self) -> Iterator[tuple[str, float]]:
        """Yield the memory of the device by purpose (bytes), for messages and tables."""
        yield "weights", self.weights_bytes
        yield "activations", self.activation_bytes
        yield "workspace", self.workspace_bytes
        yield "exchanges", self.communication_bytes
        yield "graphs", self.graph_bytes
        yield "cache", self.kv_bytes

    @property
    def state_tokens(self) -> int:
        """The tokens whose place in the cache the state of one sequence takes."""
        return math.ceil(self.state_bytes_per_sequence / self.kv_bytes_per_token) if self.kv_bytes_per_token else 0


def engine_memory_bytes(device: Device) -> float:
    """Return the memory that the driver of ``device`` reports to an engine as its total (bytes).

    It is the nominal memory times ``reported_memory_share``, less one sixteenth where check bits are kept in the memory
    itself. A memory that a fleet entry states is taken as it is.
    """
    size_bytes, nominal = device.memory_bytes, device.spec.values.get("memory_bytes")
    reported = device.number("reported_memory_share")
    if reported is None or nominal is None or nominal.value != size_bytes:
        return size_bytes
    return size_bytes * reported * (15.0 / 16.0 if device.number("inband_ecc") else 1.0)


def decoder_memory(
    model: Architecture,
    group: Group,
    device_bytes: float,
    step: LargestStep,
    *,
    memory_share: float = 0.9,
    reserves: Reserves = GENERIC_RESERVES,
    context: int | None = None,
    beside: Beside | None = None,
) -> DecoderMemory:
    """Return the memory of the device of ``group`` that has the least room for the cache.

    Args:
        model: The decoder; its formats are those of its weights and of its cache.
        group: How devices divide it; it was checked.
        device_bytes: The memory of a device (``engine_memory_bytes``).
        step: The engine's largest step.
        memory_share: The engine's share of memory, as ``reserves.share_of`` reads it.
        reserves: What the engine keeps.
        context: Tokens of a typical sequence. Layers with a sliding window keep only their window of it, as the cache
            managers of vLLM and SGLang do. None: as if every token were in every window.
        beside: What else each device holds.
    """
    stages = [_Stage(model, group, first=True, last=group.pipeline == 1)]
    if group.pipeline > 1:
        stages.append(_Stage(model, group, first=False, last=True))
    more = None if beside is None else beside.on(model, group, context)
    found = [_memory(stage, device_bytes, step, memory_share, reserves, context, more or Held()) for stage in stages]
    return min(found, key=lambda memory: (memory.kv_capacity_tokens, memory.kv_bytes))


def smallest_group(
    model: Architecture,
    group: Group,
    device_bytes: float,
    step: LargestStep,
    *,
    memory_share: float = 0.9,
    reserves: Reserves = GENERIC_RESERVES,
    tokens: int = 1,
    beside: Beside | None = None,
) -> Group | None:
    """Return ``group`` with the smallest ``tensor`` with which ``tokens`` fit into the cache, or None up to 64.

    ``expert`` stays where it divides the devices of a stage, and is left to ``expert_tensor`` otherwise.
    """
    for tensor in range(1, _LARGEST_TENSOR + 1):
        expert = group.expert if tensor * group.attention_data % group.expert == 0 else 1
        candidate = Group(tensor, group.pipeline, group.attention_data, expert)
        try:
            candidate.check(model)
            memory = decoder_memory(
                model, candidate, device_bytes, step, memory_share=memory_share, reserves=reserves, beside=beside
            )
        except InputError:
            continue
        if memory.kv_capacity_tokens >= tokens:
            return candidate
    return None


def check_fits(
    model: Architecture,
    group: Group,
    device: Device,
    step: LargestStep,
    *,
    memory_share: float = 0.9,
    reserves: Reserves = GENERIC_RESERVES,
    tokens: int = 1,
    beside: Beside | None = None,
) -> DecoderMemory:
    """Return the memory of a group of ``device``; raises InputError if it does not cache ``tokens``.

    The error has the memory by purpose, and names the smallest group that would do.
    """
    size_bytes = engine_memory_bytes(device)
    memory = decoder_memory(model, group, size_bytes, step, memory_share=memory_share, reserves=reserves, beside=beside)
    if memory.kv_capacity_tokens >= tokens:
        return memory
    other = smallest_group(
        model, group, size_bytes, step, memory_share=memory_share, reserves=reserves, tokens=tokens, beside=beside
    )
    text = ", ".join(f"{_size(value)} of {name}" for name, value in memory.parts() if value > 0 and name != "cache")
    room = f"{memory.kv_capacity_tokens:,} tokens" if memory.kv_capacity_tokens else "no cache"
    raise InputError(
        f"{model.name} does not fit: a device of tensor: {group.tensor}"
        + (f", pipeline: {group.pipeline}" if group.pipeline > 1 else "")
        + f" needs {text}, and {device.label} has {_size(size_bytes)}"
        + (f" (memory: {memory_share:g})" if memory_share < 1.0 else "")
        + f", which leaves {room}"
        + (f" where {tokens:,} tokens are needed" if tokens > 1 else ""),
        expected=f"more pipeline stages, or a format with fewer bits; no group up to tensor: {_LARGEST_TENSOR} holds it"
        if other is None
        else f"tensor: {other.tensor} or more ({other.devices} devices), the smallest group that holds it",
    )


def _size(value: float) -> str:
    return format_quantity(value, "B")


@dataclass(frozen=True)
class _Stage:
    """The part of a decoder on one device of a pipeline stage.

    ``first`` stages hold the embedding, ``last`` ones the output projection.
    """

    model: Architecture
    group: Group
    first: bool
    last: bool
    layers: tuple[Layers, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Take a stage's layers, and divide each.

        A stage has its part of the layers of each kind, rounded up, because the order of kinds is not known here.
        """
        depth = self.model.layer_count
        part = math.ceil(depth / self.group.pipeline) / depth
        ranked = (
            replace(_ranked(layers, self.group), count=math.ceil(layers.count * part * (1.0 - 1e-12)))
            for layers in self.model.layers
        )
        object.__setattr__(self, "layers", tuple(ranked))

    def weights_bytes(self) -> float:
        """Return the memory of the weights, and of the table of sines and cosines of every kind of rotary position."""
        model, group = self.model, self.group
        other = model.weights.bits(model.weights.other) / 8.0
        tables = (1 if model.tied and self.first and self.last else self.first + self.last) * model.width
        total = tables * padded(model.vocabulary, group.tensor) * other + (model.width * other if self.last else 0.0)
        for layers, whole in zip(self.layers, model.layers, strict=True):
            total += layers.count * model.layer_bytes(layers)
            if layers.experts is not None and whole.experts is not None:
                # The router has all experts of the model.
                total += layers.count * model.width * (whole.experts.count - layers.experts.count) * other
        rotated = {_rotated(layers.attention) for layers in self.layers}
        return total + sum(rotated) * (model.max_context or 0) * other

    def cache_bytes(self, context: int | None) -> float:
        """Return what a token takes of the cache (bytes), on average over the tokens of a sequence."""
        element = FORMAT_BITS[self.model.kv_dtype] / 8.0
        total = 0.0
        for layers in self.layers:
            attention = layers.attention
            kept = 1.0
            if context is not None and isinstance(attention, GroupedAttention) and attention.window is not None:
                kept = min(attention.window / context, 1.0)
            total += layers.count * kept * attention.cached_values * element
            if isinstance(attention, LatentAttention) and attention.indexer is not None:
                total += layers.count * (attention.indexer.head_dim + _INDEX_SCALE_BYTES)
        return total

    def state_bytes(self) -> float:
        """Return the states of linear attention of a sequence (bytes)."""
        element = self.model.weights.bits(self.model.weights.other) / 8.0
        return sum(
            layers.count * layers.attention.state_bytes(element)
            for layers in self.layers
            if isinstance(layers.attention, LinearAttention)
        )

    def activation_bytes(self, step: LargestStep, reserves: Reserves) -> float:
        """Return the peak of a step (bytes): of the widest part of a layer, or of sampling after the last one.

        A layer keeps the residual stream and its normalised copy beside its own values. Sampling keeps the stream, the
        logits, and float32 copies of them.
        """
        tokens = math.ceil(step.tokens / self.group.attention_data)
        stream = 2.0 * self.model.width
        widest = max(self._widest(layers) for layers in self.layers)
        peak = tokens * (stream + widest) * _ACTIVATION_BYTES
        if not self.last:
            return peak
        sampled = math.ceil(min(step.sequences * step.query_tokens, step.tokens) / self.group.attention_data)
        logits = sampled * self.model.vocabulary * (_ACTIVATION_BYTES + 4.0 * reserves.logit_copies.value)
        sampling = logits + reserves.sampler_bytes.value + tokens * self.model.width * _ACTIVATION_BYTES
        return max(peak, sampling)

    def _widest(self, layers: Layers) -> float:
        """Return the most values that one token of this device has in a part of a layer."""
        widest = [_attention_values(layers.attention)]
        if layers.feed_forward is not None:
            widest.append((3.0 if layers.feed_forward.gated else 2.0) * layers.feed_forward.width)
        if layers.experts is not None:
            widest.append(self._expert_values(layers.experts))
        return max(widest)

    def _expert_values(self, experts: Experts) -> float:
        """Return the values of a token in fused experts: two buffers for the rows of all chosen experts.

        One holds the up projections and then the outputs, the other the activations (vLLM, ``fused_experts``). The
        experts of a device serve the tokens of all copies of the attention.
        """
        inner = experts.width
        rows = experts.per_token * self.group.attention_data / self.group.expert
        return rows * (max(2.0 * inner, self.model.width) + inner) + 3.0 * experts.shared_width


def _memory(
    stage: _Stage,
    device_bytes: float,
    step: LargestStep,
    memory_share: float,
    reserves: Reserves,
    context: int | None,
    more: Held,
) -> DecoderMemory:
    weights = stage.weights_bytes() + more.weights_bytes
    activations = stage.activation_bytes(step, reserves)
    workspace = reserves.workspace_bytes.value
    exchanges = reserves.communication_bytes.value if stage.group.devices > 1 else 0.0
    graphs = reserves.graph_bytes.value
    held = weights + workspace + exchanges
    left = device_bytes - held - activations - graphs
    kv_bytes = {
        ShareOf.DEVICE: memory_share * device_bytes
        - held
        - activations
        - (graphs if reserves.graphs_in_share else 0.0),
        ShareOf.STATIC: memory_share * device_bytes - held,
        ShareOf.FREE: memory_share * left,
    }[reserves.share_of]
    return DecoderMemory(
        device_bytes=device_bytes,
        weights_bytes=weights,
        activation_bytes=activations,
        workspace_bytes=workspace,
        communication_bytes=exchanges,
        graph_bytes=graphs,
        kv_bytes=min(kv_bytes, left),
        kv_bytes_per_token=stage.cache_bytes(context) + more.kv_bytes_per_token,
        state_bytes_per_sequence=stage.state_bytes() + more.state_bytes_per_sequence,
        copies=stage.group.attention_data,
        block_tokens=reserves.block_tokens,
    )


def _ranked(layers: Layers, group: Group) -> Layers:
    """Return the part of a layer on one device; compressions, routers, indexers and norms are replicated."""
    tensor, attention = group.tensor, layers.attention
    ranked: Attention
    if isinstance(attention, GroupedAttention):
        ranked = replace(attention, heads=share(attention.heads, tensor), kv_heads=share(attention.kv_heads, tensor))
    elif isinstance(attention, LatentAttention):
        ranked = replace(attention, heads=share(attention.heads, tensor))
    else:
        ranked = replace(
            attention,
            key_heads=share(attention.key_heads, tensor),
            value_heads=share(attention.value_heads, tensor),
        )
    ahead, experts = layers.feed_forward, layers.experts
    return replace(
        layers,
        attention=ranked,
        feed_forward=None if ahead is None else replace(ahead, width=share(ahead.width, tensor)),
        experts=None
        if experts is None
        else replace(
            experts,
            count=experts.count // group.expert,
            width=share(experts.width, group.experts_shared_by),
            shared_width=experts.shared_width // tensor,
        ),
    )


def _rotated(attention: Attention) -> int:
    """Return the values of a head with a rotary position; a table has a sine and a cosine for each pair of them."""
    if isinstance(attention, LatentAttention):
        return attention.rope_dim
    return attention.head_dim if isinstance(attention, GroupedAttention) else 0


def _attention_values(attention: Attention) -> float:
    """Return the values of a token in attention: what is projected, and the output of the heads."""
    if isinstance(attention, GroupedAttention):
        projected = attention.heads * (2 if attention.output_gate else 1) + 2 * attention.kv_heads
        return float((projected + attention.heads) * attention.head_dim)
    if isinstance(attention, LatentAttention):
        queries = attention.heads * (attention.nope_dim + attention.rope_dim)
        expanded = attention.heads * (attention.nope_dim + attention.rope_dim + 2 * attention.value_dim)
        compressed = attention.kv_rank + attention.rope_dim + (attention.query_rank or 0)
        return float(queries + expanded + compressed)
    return float(attention.mixed + 2 * attention.value_heads * attention.value_dim)
