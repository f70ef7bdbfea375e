"""Serving engines: what distinguishes them in the cost of a step, in memory and in scheduling.

A ``ServingEngine`` is the profile of one engine. Its numbers come from a YAML file (``windtunnel_models.engines``). For
one decoder on one SKU it gives ``EngineTimes``, which turn the time of a step's operations into the time of the step:

    step = max(factor x operations, prompt_layer_s x layers if the step has a prompt) + host_s + host_sequence_s x n

``factor`` is ``decode`` for a step that only decodes, ``prefill`` for one that only reads prompts, and for parts of a
step that do both the mean of the two by tokens. ``n`` counts the sequences that produce a token. The factors exist
because operations are measured one at a time, with nothing in the caches; an engine fuses and overlaps them. A step
that reads a prompt is not replayed as one graph, so the host has to launch each of its layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from windtunnel.core.architecture import Architecture
from windtunnel.core.decoder_memory import Reserves
from windtunnel.core.device import Device
from windtunnel.core.group import Group
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.speculation import Speculation
from windtunnel.core.step import DividedDecoder, DraftPasses, EngineTimes, FusedReduce

ENGINE_NAMES = ("generic", "vllm", "sglang", "trtllm")
"""The serving engines that have a profile."""

NODE_DEVICES = 8
"""The devices of a node of a SKU that does not state them."""

OTHER = "other"
"""The key of a table for dies to which the profile was not fitted."""

EXPERTS = "experts"
"""The key of a table for mixtures of experts on any die."""

DENSE = "dense"
"""The key of a table for dense decoders on any die."""


class Admission(Enum):
    """When a waiting request is admitted. ``ON_DEMAND``: when the cache has room for its prompt; a sequence may later
    be preempted. ``WHOLE``: when it has room for the prompts and all outputs of the admitted requests, so that none is
    preempted (TensorRT-LLM's ``GUARANTEED_NO_EVICT``).
    """

    ON_DEMAND = "on-demand"
    WHOLE = "whole"


class FusedFor(Enum):
    """Which decoders an engine has all-reduces for that also normalise."""

    ALL = "all"
    EXPERTS = "experts"
    NONE = "none"


@dataclass(frozen=True)
class FusedNorms:
    """All-reduces that also add the residual and normalise, as TensorRT-LLM's ``RESIDUAL_RMS_NORM`` does.

    Args:
        of: The decoders that have them.
        implementation: Whose kernels they are. If they are not the engine's own, groups with pipeline stages or with
            copies of the attention do not have them (vLLM's ``fuse_allreduce_rms``, SGLang's FlashInfer fusion).
        tokens: The most tokens of a step, if there is such a limit.
        most_bytes: The largest buffer by architecture and devices, such as ``blackwell-8``; all if there is none.
    """

    of: FusedFor
    implementation: str
    tokens: SourcedValue | None = None
    most_bytes: Mapping[str, SourcedValue] = field(default_factory=dict, hash=False)

    def reduce(self, model: Architecture, group: Group, device: Device, own: str) -> FusedReduce | None:
        """Return the fused all-reduces of a decoder on a group of ``device``, if it has any.

        ``own`` is the engine's own implementation.
        """
        if self.of is FusedFor.NONE or (self.of is FusedFor.EXPERTS and not _has_experts(model)):
            return None
        if device.number("scale_up_bytes_per_s") is None:
            return None
        foreign = self.implementation != own
        if foreign and (group.pipeline > 1 or group.attention_data > 1):
            return None
        most = math.inf
        if self.most_bytes:
            architecture = (device.spec.lineage.architecture or "").lower()
            known = self.most_bytes.get(f"{architecture}-{group.tensor}")
            if known is None:
                return None
            most = known.value
        if self.tokens is not None:
            most = min(most, self.tokens.value * model.width * 2.0)
        return FusedReduce(self.implementation, most)


@dataclass(frozen=True)
class Limits:
    """The largest step of an engine on a device unless a scenario states it: tokens, and sequences.

    It applies to devices with at least ``from_bytes`` of memory.
    """

    tokens: SourcedValue
    sequences: SourcedValue
    from_bytes: float = 0.0


class Bounds(NamedTuple):
    """A time of requests (s) with the ends of a 90% interval for the error of the models; None: no end is known."""

    value: float
    low: float | None
    high: float | None

    def shifted(self, low_s: float | None, high_s: float | None) -> Bounds:
        """Return the same with ends that are so much further from the value, and no lower one below 0."""
        return Bounds(
            self.value,
            None if self.low is None or low_s is None else max(self.low - low_s, 0.0),
            None if self.high is None or high_s is None else self.high + high_s,
        )


@dataclass(frozen=True)
class ServingEngine:
    """A serving engine.

    Args:
        name: One of ``ENGINE_NAMES``.
        implementation: Whose all-reduce it uses.
        fused: Which of its all-reduces between devices with a link also add the residual and normalise.
        limits: The largest steps, by the memory of the device, the smallest first.
        limits_of_copy: Whether these limits are those of one copy of the attention, or of all copies together.
        smallest_on: The beginnings of names of SKUs that have the first of these whatever their memory is.
        memory_share: The share of memory, as ``reserves.share_of`` reads it.
        reserves: What the engine keeps of the memory.
        admission: When a request is admitted.
        chunked_prefill: Whether a prompt may begin in a step that has no room for the whole of it.
        prefill_first: Whether prompts are read in steps of their own, in which no sequence decodes (SGLang), or in the
            room that decoding sequences leave.
        prefix_cache_unless: The setting without which the engine itself has a prefix cache; empty: it has none.
        frontend_s: The time that a request spends outside of the engine's steps before its first token.
        late_prompts: How many times of reading its prompt alone also pass before the first token is delivered. An
            engine that prepares a step while the step before runs has the tokens of that one a step later.
        first_token_errors: The factor of the 90% interval of the time to the first token, by ``DENSE`` and ``EXPERTS``.
        first_token_medians: The median of measured over modelled times to the first token, likewise; may be empty.
        values: The numbers of ``EngineTimes`` by name and key, such as ``decode.GH100``. Keys are dies, for dense
            decoders, or ``EXPERTS`` or ``OTHER``.
        fitted: The SKUs whose measurements entered the numbers of a key.
        doc: The engine, in a few words.
    """

    name: str
    implementation: str
    fused: FusedNorms
    limits: Sequence[Limits]
    limits_of_copy: bool
    smallest_on: Sequence[str]
    memory_share: SourcedValue
    reserves: Reserves
    admission: Admission
    chunked_prefill: bool
    prefill_first: bool
    prefix_cache_unless: str
    frontend_s: SourcedValue
    late_prompts: SourcedValue
    first_token_errors: Mapping[str, SourcedValue] = field(hash=False)
    values: Mapping[str, SourcedValue] = field(default_factory=dict, hash=False)
    fitted: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    first_token_medians: Mapping[str, SourcedValue] = field(default_factory=dict, hash=False)
    doc: str = ""
    makers: Sequence[str] = ()
    """The makers of the devices on which it runs; empty: of any."""
    model: str | None = None
    """The one model whose measurements entered, if the profile was calibrated by a user."""

    def limits_on(self, device: Device) -> Limits:
        """Return the largest step on ``device``."""
        if device.spec.sku.startswith(tuple(self.smallest_on)):
            return self.limits[0]
        return next(limits for limits in reversed(self.limits) if device.memory_bytes >= limits.from_bytes)

    def key_of(self, model: Architecture, device: Device) -> str:
        """Return the key of a model on a device in ``values``; ``OTHER`` if the profile has no numbers for them."""
        key = key_of(model, device)
        return key if key in self.fitted else OTHER

    def is_fitted(self, model: Architecture, device: Device) -> bool:
        """Return whether measurements of such a model on this SKU entered the profile."""
        known = self.fitted.get(self.key_of(model, device), ())
        return device.spec.sku in known and (self.model is None or self.model == plain_name(model.name))

    def number(self, name: str, model: Architecture, device: Device) -> SourcedValue | None:
        """Return a number of ``EngineTimes`` for a model on a device; None if the profile has none."""
        return self.values.get(f"{name}.{self.key_of(model, device)}")

    def times(self, model: Architecture, device: Device) -> EngineTimes:
        """Return what the engine adds to the operations of a model on ``device``.

        The interval is that of the profile, or the one for other SKUs (``unseen_error``) if this one was not measured.
        """
        sourced = {name: self.number(name, model, device) for name in EngineTimes.NUMBERS}
        found = {name: value.value for name, value in sourced.items() if value is not None}
        seen = self.is_fitted(model, device)
        error = self.number("error" if seen else "unseen_error", model, device)
        return EngineTimes(
            **found,
            error_factor=1.0 if error is None else error.value,
            provenance=max((value.provenance for value in sourced.values() if value is not None), default=None),
        )

    def first_token_error(self, model: Architecture) -> SourcedValue:
        """Return the factor of the 90% interval of the time to the first token of a model."""
        return self.first_token_errors[EXPERTS if _has_experts(model) else DENSE]

    def first_token_median(self, model: Architecture) -> SourcedValue | None:
        """Return the median of measured over modelled times to the first token of a model; None if it is not known."""
        return self.first_token_medians.get(EXPERTS if _has_experts(model) else DENSE)

    def with_first_token(self, model: Architecture, first: Bounds, whole: Bounds) -> tuple[Bounds, Bounds]:
        """Return the bounds of a time to the first token and of an end-to-end latency with the error of the former.

        ``first`` and ``whole`` are bounds for the error of steps. The first token also comes earlier or later by what
        is not known of ``frontend_s``, and its measured times lie within a factor of ``first_token_error`` in 90% of
        configurations. The wider ends count. The latency contains the first token, so its ends move as far.
        """
        error, outside = self.first_token_error(model).value, self.frontend_s
        earlier_s = 0.0 if outside.low is None else outside.value - outside.low
        later_s = 0.0 if outside.high is None else outside.high - outside.value
        moved = first.shifted(earlier_s, later_s)
        wider = Bounds(
            first.value,
            None if moved.low is None else min(moved.low, first.value / error),
            None if moved.high is None else max(moved.high, first.value * error),
        )
        return wider, whole.shifted(
            None if first.low is None or wider.low is None else first.low - wider.low,
            None if first.high is None or wider.high is None else wider.high - first.high,
        )

    def sources(self, model: Architecture, device: Device) -> dict[str, SourcedValue]:
        """Return the numbers of ``EngineTimes`` for a model on a device with their origins, by name."""
        found = {name: self.number(name, model, device) for name in (*EngineTimes.NUMBERS, "error", "unseen_error")}
        return {f"{self.name}.{name}": value for name, value in found.items() if value is not None}


_SUFFIXES = ("-fp8", "-instruct", "-chat", "-it")


def plain_name(model: str) -> str:
    """Return the name of a decoder without what does not change its architecture."""
    for suffix in _SUFFIXES:
        model = model.removesuffix(suffix)
    return model


def key_of(model: Architecture, device: Device) -> str:
    """Return the key under which a profile keeps the numbers of a model on a device, if it has any.

    For dense decoders it is the die: the host that feeds it and the kernels that an engine has for it matter more than
    the format of the weights (reports/validation/published/engine_profiles.md).
    """
    if _has_experts(model):
        return EXPERTS
    return device.spec.lineage.die or device.spec.sku


def _has_experts(model: Architecture) -> bool:
    return any(layers.experts is not None for layers in model.layers)


def divided_decoder(
    device: Device,
    model: Architecture,
    group: Group,
    engine: ServingEngine | None,
    devices_per_node: int | None = None,
    speculation: Speculation | None = None,
) -> DividedDecoder:
    """Return a decoder on a group of ``device`` as a serving engine divides it; None: no engine, its operations alone.

    ``devices_per_node`` replaces the devices of a node that the SKU states. The group was checked. With
    ``speculation`` a step also drafts, with the factors that the engine has for the decoder, and verifies.
    """
    decoder = DividedDecoder(
        model,
        group,
        devices_per_node or int(device.number("devices_per_node") or NODE_DEVICES),
        "nccl" if engine is None else engine.implementation,
        fused=None if engine is None else engine.fused.reduce(model, group, device, engine.implementation),
        times=EngineTimes() if engine is None else engine.times(model, device),
    )
    if speculation is None or not speculation.tokens:
        return decoder
    return replace(decoder, query_tokens=speculation.query_tokens, passes=_passes(decoder, speculation))


def _passes(decoder: DividedDecoder, speculation: Speculation) -> tuple[DraftPasses, ...]:
    """Return the passes of a draft in a step; see ``core.speculation``."""
    draft, tokens = speculation.draft, speculation.tokens
    if draft.model is None:
        return ()
    one = replace(decoder, model=draft.model, group=speculation.group_of(decoder.group), joined=draft.joined)
    if not draft.reads_prompts:
        return (DraftPasses(one, tokens, reads_prompts=False),)
    first = DraftPasses(replace(one, query_tokens=speculation.query_tokens), 1, reads_prompts=True)
    return (first, DraftPasses(one, tokens - 1, reads_prompts=False)) if tokens > 1 else (first,)
