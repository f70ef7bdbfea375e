"""Derives the operations of a decoder-only transformer from its architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from windtunnel.core.columns import Columns
from windtunnel.core.ops import BYTES_PER_ELEMENT, OPERATIONS, Operation


@dataclass(frozen=True)
class OpCount:
    """An operation, its column values except the number of tokens, and how often one step executes it."""

    op: type[Operation]
    values: dict[str, float | str]
    times: int


@dataclass(frozen=True)
class Decoder:
    """Layers of attention and a feed-forward network, and a projection to the vocabulary.

    ``gated``: the feed-forward network has a gate beside its up projection, as in Llama. If ``kv_heads`` is less than
    ``heads``, attention is grouped-query attention.
    """

    layers: int
    width: int
    heads: int
    feed_forward: int
    vocabulary: int
    kv_heads: int
    head_dim: int
    dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"
    gated: bool = True
    dispatch: str = "graph"
    clock: str = "sustained"

    @property
    def parameters(self) -> int:
        """Return the number of weights: projections, feed-forward, norms, embedding and output projection."""
        attention = self.width * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        feed_forward = self.width * self.feed_forward * (3 if self.gated else 2)
        return self.layers * (attention + feed_forward + 2 * self.width) + 2 * self.vocabulary * self.width + self.width

    @property
    def weight_bytes(self) -> float:
        """Return the memory of the weights (bytes)."""
        return self.parameters * BYTES_PER_ELEMENT[self.dtype]

    @property
    def kv_bytes_per_token(self) -> float:
        """Return the KV cache of one token (bytes): a key and a value in every layer."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * BYTES_PER_ELEMENT[self.kv_dtype]

    def linear_operations(self) -> Iterator[OpCount]:
        """Yield the operations of one step over m tokens that apply to every token (column ``m`` or ``rows`` is m)."""
        gemm, elementwise = OPERATIONS["gemm"], OPERATIONS["elementwise"]
        attended = self.heads * self.head_dim
        shapes = [
            (attended + 2 * self.kv_heads * self.head_dim, self.width),
            (self.width, attended),
            (self.feed_forward * (2 if self.gated else 1), self.width),
            (self.width, self.feed_forward),
        ]
        for n, k in shapes:
            yield OpCount(gemm, self._with_context({"n": n, "k": k, "dtype": self.dtype}), self.layers)
        activation = self.dtype if self.dtype in ("float32", "float16", "bfloat16") else "bfloat16"
        passes = [
            ("ln", self.width, 2),
            ("mul" if self.gated else "gelu", self.feed_forward, 1),
            ("add", self.width, 2),
        ]
        for op, width, times in passes:
            values = self._with_context({"op": op, "width": width, "dtype": activation})
            yield OpCount(elementwise, values, times * self.layers)

    def head_operation(self) -> OpCount:
        """Return the projection to the vocabulary, for one token of each sequence that produces a token."""
        values: Columns = {"n": self.vocabulary, "k": self.width, "dtype": self.dtype}
        return OpCount(OPERATIONS["gemm"], self._with_context(values), 1)

    def attention_operation(self, phase: str) -> OpCount:
        """Return the attention of one phase, without the columns ``batch`` and ``kv_tokens``."""
        values: Columns = {
            "phase": phase,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "dtype": self.dtype if self.dtype in ("float32", "float16", "bfloat16", "fp8") else "bfloat16",
            "kv_dtype": self.kv_dtype,
        }
        return OpCount(OPERATIONS["attention"], self._with_context(values), self.layers)

    def _with_context(self, values: Columns) -> dict[str, float | str]:
        return {**values, "dispatch": self.dispatch, "clock": self.clock}
