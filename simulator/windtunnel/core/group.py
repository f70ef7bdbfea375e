"""How a group of devices divides a decoder: tensor, pipeline, data-parallel attention and expert parallelism.

The rules are those of vLLM, SGLang and TensorRT-LLM: query heads, feed-forward networks, experts and the vocabulary are
divided evenly; heads of keys and values are divided too, or replicated where there are fewer than ranks; the vocabulary
is padded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from windtunnel.core.architecture import Architecture, Experts, GroupedAttention, LatentAttention, LinearAttention
from windtunnel.core.errors import InputError, Location


@dataclass(frozen=True)
class Group:
    """The division of a decoder over devices; each number is 1 without that kind of division.

    Args:
        tensor: Devices that share every attention layer and dense layer.
        pipeline: Stages, each with a part of the layers.
        attention_data: Copies of the attention, each with a part of the sequences.
        expert: Devices that each hold a part of the experts, whole.
        expert_tensor: Devices that share every expert; None for what remains (tensor x attention_data / expert).

    Raises:
        InputError: if tensor x attention_data is not expert_tensor x expert.
    """

    tensor: int = 1
    pipeline: int = 1
    attention_data: int = 1
    expert: int = 1
    expert_tensor: int | None = None

    def __post_init__(self) -> None:
        stage = self.tensor * self.attention_data
        if self.expert_tensor is None and stage % self.expert:
            raise InputError(
                f"{self.expert} parts of the experts do not divide {stage} devices",
                where=Location(field="expert"),
                expected="a number of parts that divides tensor x attention_data",
            )
        if self.expert_tensor is not None and self.expert_tensor * self.expert != stage:
            raise InputError(
                f"expert_tensor x expert is {self.expert_tensor * self.expert}, and tensor x attention_data is {stage}",
                where=Location(field="expert_tensor"),
                expected="the same number of devices",
            )

    @property
    def stage_devices(self) -> int:
        """The devices of one pipeline stage."""
        return self.tensor * self.attention_data

    @property
    def devices(self) -> int:
        """The devices of the group."""
        return self.stage_devices * self.pipeline

    @property
    def experts_shared_by(self) -> int:
        """The devices that share every expert."""
        return self.expert_tensor or self.stage_devices // self.expert

    def check(self, model: Architecture) -> None:
        """Raise InputError if the group does not divide ``model``; it says what does not divide and what would."""
        if self.pipeline > model.layer_count:
            raise InputError(
                f"{self.pipeline} pipeline stages for {model.layer_count} layers of {model.name}",
                where=Location(field="pipeline"),
                expected=f"at most {model.layer_count} stages",
            )
        for layers in model.layers:
            for noun, size, by in _divided(self, layers.attention):
                _check(model, noun, size, self.tensor, "tensor", by)
            if layers.feed_forward is not None:
                _check(model, "values of the feed-forward network", layers.feed_forward.width, self.tensor, "tensor", 1)
            if layers.experts is not None:
                self._check_experts(model, layers.experts)

    def _check_experts(self, model: Architecture, experts: Experts) -> None:
        _check(model, "experts", experts.count, self.expert, "expert", 1)
        _check(model, "values of an expert", experts.width, self.experts_shared_by, "expert_tensor", 1)


def _divided(
    group: Group, attention: GroupedAttention | LatentAttention | LinearAttention
) -> list[tuple[str, int, int]]:
    """Return what ``tensor`` divides: a noun, a number, and the number of ranks that may share one of it."""
    if isinstance(attention, GroupedAttention):
        return [
            ("query heads", attention.heads, 1),
            ("heads of keys and values", attention.kv_heads, group.tensor),
        ]
    if isinstance(attention, LatentAttention):
        return [("query heads", attention.heads, 1)]
    return [("key heads", attention.key_heads, 1), ("value heads", attention.value_heads, 1)]


def _check(model: Architecture, noun: str, size: int, ranks: int, key: str, shared: int) -> None:
    if size % ranks == 0 or (shared > 1 and ranks % size == 0):
        return
    fitting = [n for n in range(1, size + 1) if size % n == 0 and n <= 4 * ranks]
    raise InputError(
        f"the {size} {noun} of {model.name} cannot be divided by {key}: {ranks}",
        where=Location(field=key),
        expected=f"{key} of " + ", ".join(map(str, fitting)),
    )


def share(size: int, ranks: int) -> int:
    """Return the part of one rank, at least 1: heads of keys and values are replicated where there are fewer."""
    return max(size // ranks, 1)


def padded(vocabulary: int, ranks: int, multiple: int = 64) -> int:
    """Return the vocabulary of one rank: padded to a multiple of 64 (vLLM, SGLang), then divided and rounded up."""
    return math.ceil(math.ceil(vocabulary / multiple) * multiple / ranks)


_EXPERT_TILES = {"fp8": (1, 16), "nvfp4": (1, 16), "int4": (1, 16), "mxfp4": (256, 128)}
"""Multiples to which engines pad the width of the model and that of a rank's slice of an expert, by format.

vLLM's kernels for MXFP4 need multiples of 256 and of 128 (Marlin; CUTLASS 128 and 128, TensorRT-LLM's 256 and 256:
``mxfp4_round_up_hidden_size_and_intermediate_size`` in fused_moe/oracle/mxfp4.py). Those of the other narrow formats
load 16 values at once. 16-bit experts are not padded, and block-scaled FP8 is divided in whole blocks of 128."""


def padded_expert(width: int, expert_width: int, ranks: int, weights: str) -> tuple[int, int]:
    """Return the width of the model and of an expert as engines store the experts that ``ranks`` devices share."""
    outer, inner = _EXPERT_TILES.get(weights, (1, 1))
    return math.ceil(width / outer) * outer, math.ceil(expert_width / ranks / inner) * inner * ranks
