"""LoRA adapters of a decoder: what they take of memory, and what a step does for those of its sequences.

An adapter adds a product of two narrow matrices to each linear layer: x A B, with A of k x rank and B of rank x n.
Engines run two kernels beside a linear layer for all sequences of a step: the first one (shrink) multiplies each token
with the A of its adapter, the second one (expand) the result with B, and adds it to the output (Chen and others,
Punica, MLSys 2024; vLLM's Triton kernels). Slots have the largest rank, and the kernels compute all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from windtunnel.core.architecture import Architecture
from windtunnel.core.group import Group
from windtunnel.core.ops import OPERATIONS, FloatArray, Rows
from windtunnel.core.provenance import assumed
from windtunnel.core.step import DividedDecoder, Part

_BYTES, _PARTIAL_BYTES = 2.0, 4.0
"""Bytes of a weight or an activation, and of a value between the two kernels, which is a float32."""
_BYTES_OF_A_THREAD = 8.0

KERNEL_TIME = assumed(
    2.0,
    1.0,
    4.0,
    "the time of the kernels of adapters, relative to kernels that move the same bytes, because they gather the "
    "adapter of each token: between 1 and the 4 of vLLM 0.6, whose kernels took 7.2 of 35 s of a 7B decoder with rank "
    "64 on an A100 (vllm-project/vllm#10062); later kernels are faster",
)


@dataclass(frozen=True)
class Adapters:
    """The adapters of a decoder and where an engine keeps them.

    Args:
        count: How many there are; they are numbered from 1.
        rank: The rank of a slot (``--max-lora-rank``).
        slots: Adapters that a replica holds in the memory of its devices, and so the most of a batch (``--max-loras``).
        host: Adapters that it holds in the memory of its host (``--max-cpu-loras``).
        storage_bytes_s: The rate at which others are read; 0 if the host holds all.
        popularity: The exponent of the power law of the adapters' popularity (Zipf); 0: all are equally popular.
    """

    count: int
    rank: int = 16
    slots: int = 1
    host: int = 1
    storage_bytes_s: float = 0.0
    popularity: float = 0.0

    def drawn(self, uniform: FloatArray) -> np.ndarray:
        """Return the adapters of requests from numbers between 0 and 1."""
        weights = np.arange(1, self.count + 1, dtype=np.float64) ** -self.popularity
        edges = np.cumsum(weights) / weights.sum()
        return 1 + np.minimum(np.searchsorted(edges, uniform, side="right"), self.count - 1).astype(np.int64)


def adapted(divided: DividedDecoder) -> Iterator[tuple[Part, float, float]]:
    """Yield the linear layers of a decoder on one device, with their outputs and inputs; experts have no adapters."""
    for part in divided.parts():
        if part.slices:
            yield part, float(part.values["n"]), float(part.values["k"])


def adapter_bytes(model: Architecture, group: Group, rank: int) -> float:
    """Return the memory of one adapter on a device of the stage with most layers (bytes)."""
    depth = model.layer_count
    share = math.ceil(depth / group.pipeline) / depth
    linear = adapted(DividedDecoder(model, group))
    return share * _BYTES * rank * sum(part.times * (n + part.slices * k) for part, n, k in linear)


def adapter_rows(
    divided: DividedDecoder, rank: int, tokens: FloatArray, adapters: FloatArray, context: Mapping[str, str]
) -> Iterator[tuple[str, float, Rows]]:
    """Yield the kernels of steps with so many tokens of so many adapters: a name, how many are alike, and the rows.

    ``tokens`` are those of one microbatch, of all copies of the attention.
    """
    kernel = OPERATIONS["kernel"]
    mine = np.ceil(tokens / divided.group.attention_data)
    for part, n, k in adapted(divided):
        inner = part.slices * rank
        shrink = mine * (k * _BYTES + inner * _PARTIAL_BYTES) + adapters * k * inner * _BYTES
        expand = mine * (inner * _PARTIAL_BYTES + 2.0 * n * _BYTES) + adapters * rank * n * _BYTES
        for name, moved, flops in (
            ("adapters: shrink", shrink, 2.0 * mine * k * inner),
            ("adapters: expand", expand, 2.0 * mine * rank * n),
        ):
            names = {column.name for column in kernel.all_columns()}
            chosen = {key: value for key, value in context.items() if key in names}
            complete = kernel.complete({"threads": 1, "bytes": 1, "dtype": "bfloat16", **chosen})
            choices = {key: value for key, value in complete.items() if isinstance(value, str)}
            numbers = {"threads": np.ceil(moved / _BYTES_OF_A_THREAD), "bytes": np.ceil(moved), "flops": flops}
            yield name, KERNEL_TIME.value * part.times, Rows(kernel, choices, numbers)
