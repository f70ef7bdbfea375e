"""Operations of serving language models on groups of devices: collectives, experts and latent attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from windtunnel.core.operation import (
    BYTES_PER_ELEMENT,
    Choices,
    Column,
    FloatArray,
    Numbers,
    Operation,
    choice,
    count,
    operation,
    real,
)

IMPLEMENTATIONS = ("nccl", "vllm", "sglang", "trtllm")

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
"""The operations between workers."""


class Collective(Operation):
    """Base of the operations between workers; ``bytes`` is the largest buffer of one worker, as nccl-tests count."""

    columns: ClassVar[tuple[Column, ...]] = (
        count("bytes", unit="B"),
        count("workers"),
        count("devices_per_node", 8),
        choice("implementation", ("nccl",), "nccl", doc="the vendor's library"),
        choice("dtype", ("float32", "float16", "bfloat16", "fp8", "int8"), "bfloat16"),
    )
    sums = ("bytes",)

    @classmethod
    def footprint_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the memory (bytes) of the operands."""
        return n["bytes"]


@operation
class AllReduce(Collective):
    """All-reduce: every worker receives the sum of ``bytes`` from each worker."""

    name = "all_reduce"
    columns = tuple(
        choice("implementation", IMPLEMENTATIONS, "nccl", doc="the vendor's library, or a serving engine's own kernels")
        if column.name == "implementation"
        else column
        for column in Collective.columns
    )
    # Engines record their steps, and so their own kernels, in graphs.
    follows: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]] = {
        "dispatch": ("implementation", dict.fromkeys(IMPLEMENTATIONS[1:], "graph"))
    }


@operation
class AllGather(Collective):
    """All-gather: every worker receives the parts of all workers, ``bytes`` together."""

    name = "all_gather"


@operation
class ReduceScatter(Collective):
    """Reduce-scatter: every worker receives its part of the sum over all workers of ``bytes`` each."""

    name = "reduce_scatter"


@operation
class AllToAll(Collective):
    """All-to-all: every worker sends an equal part of its ``bytes`` to each worker."""

    name = "all_to_all"


@operation
class SendRecv(Collective):
    """Sends ``bytes`` from one worker to another."""

    name = "send_recv"


@operation
class Moe(Operation):
    """The gated experts of a mixture-of-experts layer on its slowest rank, without routing and exchange.

    ``tokens`` enter the layer, of all ranks of ``expert`` together, before routing. ``experts`` is the model's number,
    before division. ``skew`` is the exponent of the power law of the experts' popularity. Without skew tokens are
    spread as evenly as possible (``routing`` balanced, as in the measurements), or choose independently.
    """

    name = "moe"
    columns = (
        count("tokens"),
        count("width"),
        count("expert_width"),
        count("experts"),
        count("experts_per_token"),
        choice("dtype", ("bfloat16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int4"), "bfloat16"),
        count("tensor", 1),
        count("expert", 1),
        real("skew", 0.0, unit="1", doc="exponent of the power law of the experts' popularity; 0 is balanced"),
        choice("routing", ("balanced", "independent"), "balanced", doc="how tokens without skew choose experts"),
    )
    sums = ("tokens",)

    UNGATED: ClassVar = ((2688.0, 1856.0),)
    """(width, expert_width) of published models whose experts have no gate, so two matrices (Nemotron 3 Nano)."""

    @classmethod
    def matrices(cls, n: Numbers) -> FloatArray:
        """Return the number of matrices of an expert: three, or two if the model with these widths has no gate."""
        plain = [(n["width"] == width) & (n["expert_width"] == inner) for width, inner in cls.UNGATED]
        return np.where(np.any(plain, axis=0), 2.0, 3.0)

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the multiplications plus additions of one of ``tensor`` x ``expert`` ranks with an equal share."""
        ranks = n["tensor"] * n["expert"]
        each = 2.0 * cls.matrices(n) * n["width"] * n["expert_width"]
        return each * n["tokens"] * n["experts_per_token"] / ranks

    @classmethod
    def distinct_experts(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the number of a rank's experts that any token selects.

        A balanced router selects min(experts, tokens x experts_per_token) of all. If each token selects independently,
        an expert is left out by T tokens with probability (1 - experts_per_token / experts)^T, so that the expected
        number is experts x (1 - that). With skew fewer experts are hit, so this is a bound from above.
        """
        if choices.get("routing") == "independent":
            share = np.minimum(n["experts_per_token"] / n["experts"], 1.0 - 1e-12)
            hit = -n["experts"] * np.expm1(n["tokens"] * np.log1p(-share))
        else:
            hit = np.minimum(n["experts"], n["tokens"] * n["experts_per_token"])
        return np.maximum(hit / n["expert"], 1.0)

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of the weights of the experts that are used, and of the tokens' inputs and outputs."""
        size, matrices = BYTES_PER_ELEMENT[choices["dtype"]], cls.matrices(n)
        weights = matrices * n["width"] * n["expert_width"] / n["tensor"] * cls.distinct_experts(choices, n) * size
        sent = n["tokens"] * n["experts_per_token"] / n["expert"]
        return weights + sent * (2.0 * n["width"] + matrices * n["expert_width"] / n["tensor"]) * 2.0

    @classmethod
    def footprint_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the memory (bytes) of all weights of a rank's experts, and of the tokens."""
        size = BYTES_PER_ELEMENT[choices["dtype"]]
        each = cls.matrices(n) * n["width"] * n["expert_width"] * size
        return each * n["experts"] / (n["expert"] * n["tensor"]) + 4.0 * n["tokens"] * n["width"]


@operation
class LatentAttention(Operation):
    """Multi-head latent attention in absorbed form (decode), or with expanded keys and values (prefill).

    ``heads`` are those of one rank. ``kv_rank`` + ``rope_dim`` values of each token are cached. In decode each sequence
    has ``query_tokens`` queries; in prefill it has ``kv_tokens`` queries, and the attention is causal.
    """

    name = "latent_attention"
    columns = (
        choice("phase", ("prefill", "decode")),
        count("batch"),
        count("heads"),
        count("kv_tokens"),
        count("kv_rank", 512),
        count("rope_dim", 64),
        count("query_tokens", 1),
        choice("dtype", ("float16", "bfloat16", "fp8"), "bfloat16"),
        choice("kv_dtype", ("float16", "bfloat16", "fp8"), "bfloat16"),
    )
    sums = ("batch",)

    HEAD_VALUES = 128
    """Values of a head without a position, of a key and of a value, once expanded (DeepSeek-V2 and later)."""

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the operations of both products for each score: with the latent, or with expanded keys and values."""
        if choices["phase"] == "prefill":
            scores = n["kv_tokens"] * (n["kv_tokens"] + 1) / 2
            each = 2.0 * (2.0 * cls.HEAD_VALUES + n["rope_dim"])
        else:
            scores = n["query_tokens"] * n["kv_tokens"]
            each = 2.0 * (2.0 * n["kv_rank"] + n["rope_dim"])
        return n["batch"] * n["heads"] * scores * each

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of queries, outputs, and of the cached values or the expanded keys and values, each once."""
        size, kv_size = BYTES_PER_ELEMENT[choices["dtype"]], BYTES_PER_ELEMENT[choices["kv_dtype"]]
        if choices["phase"] == "prefill":
            head = 4.0 * cls.HEAD_VALUES + 2.0 * n["rope_dim"]
            return n["batch"] * n["kv_tokens"] * n["heads"] * head * size
        latent = n["kv_rank"] + n["rope_dim"]
        queries = n["query_tokens"] * n["heads"] * (latent + n["kv_rank"]) * size
        return n["batch"] * (n["kv_tokens"] * latent * kv_size + queries)
