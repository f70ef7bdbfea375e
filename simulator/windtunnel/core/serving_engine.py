"""What distinguishes serving engines in the cost of a step.

This is the place for profiles of engines: whose kernels they use, and what they fuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ServingEngine:
    """A serving engine.

    Args:
        implementation: Whose all-reduce it uses.
        fused_norms: Whether its all-reduce between devices with a link also adds the residual and normalises, as
            vLLM's ``fuse_allreduce_rms`` and TensorRT-LLM's ``RESIDUAL_RMS_NORM`` do.
    """

    implementation: str
    fused_norms: bool = False


SERVING_ENGINES: Mapping[str, ServingEngine] = {
    "generic": ServingEngine("nccl"),
    "vllm": ServingEngine("vllm", fused_norms=True),
    "sglang": ServingEngine("sglang"),
    "trtllm": ServingEngine("trtllm", fused_norms=True),
}
"""Serving engines by name; ``generic`` has no kernels of its own."""
