"""What distinguishes serving engines in the cost of a step.

This is the place for profiles of engines: whose kernels they use, and what they fuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.core.architecture import Architecture
from windtunnel.core.device import Device
from windtunnel.core.group import Group
from windtunnel.core.step import DividedDecoder


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

NODE_DEVICES = 8
"""The devices of a node of a SKU that does not state them."""


def divided_decoder(
    device: Device, model: Architecture, group: Group, engine: str, devices_per_node: int | None = None
) -> DividedDecoder:
    """Return a decoder on a group of ``device`` as a serving engine divides it.

    ``devices_per_node`` replaces the devices of a node that the SKU states. The group was checked.
    """
    profile = SERVING_ENGINES[engine]
    linked = device.number("scale_up_bytes_per_s") is not None
    return DividedDecoder(
        model,
        group,
        devices_per_node or int(device.number("devices_per_node") or NODE_DEVICES),
        profile.implementation,
        fused_norms=profile.fused_norms and linked,
    )
