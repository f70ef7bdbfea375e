"""The devices that serve a model together, and the largest step of a serving engine on them."""

from __future__ import annotations

from dataclasses import dataclass, field

from windtunnel.core.decoder_memory import GENERIC_RESERVES, LargestStep, Reserves
from windtunnel.core.device import Device
from windtunnel.core.group import Group
from windtunnel.core.policy import Batch
from windtunnel.core.serving_engine import ServingEngine

MOST_TOKENS, MOST_SEQUENCES = 131_072, 4096
"""The largest step that a scenario may state."""
_WITHOUT_BATCH = 8192
"""The tokens of a step in which prompts are read where nothing states them."""
_NO_LIMITS = Batch("continuous", 0, tokens=0, memory=0.0)


@dataclass(frozen=True)
class Replica:
    """The devices that serve a model together, as a fleet entry describes them.

    Args:
        device: One of the devices.
        group: How they divide a decoder.
        engine: The profile of the serving engine; None: none, as for devices that do not serve decoders.
        devices_per_node: The devices of a node; None for those of the SKU.
        limits: The limits of steps that the entry states; 0 where it states none.
    """

    device: Device
    group: Group = field(default_factory=Group)
    engine: ServingEngine | None = None
    devices_per_node: int | None = None
    limits: Batch = _NO_LIMITS

    @property
    def memory_bytes(self) -> float:
        """The memory of all devices (bytes)."""
        return self.device.memory_bytes * self.group.devices

    def largest_step(self, batch: Batch) -> LargestStep:
        """Return the largest step: what the entry or else ``batch`` states, or what the engine has on this device."""
        if batch.kind != "continuous":
            return LargestStep(_WITHOUT_BATCH, max(batch.size, 1))
        tokens, size = self.limits.tokens or batch.tokens, self.limits.size or batch.size
        if self.engine is None:
            return LargestStep(tokens or _WITHOUT_BATCH, size or 1)
        own = self.engine.limits_on(self.device)
        copies = self.group.attention_data if self.engine.limits_of_copy else 1
        return LargestStep(
            tokens or min(copies * int(own.tokens.value), MOST_TOKENS),
            size or min(copies * int(own.sequences.value), MOST_SEQUENCES),
        )

    def memory_share(self, batch: Batch) -> float:
        """Return the share of memory that may be used: what the entry or ``batch`` states, or that of the engine."""
        stated = self.limits.memory or batch.memory
        if stated or self.engine is None:
            return stated or 1.0
        return self.engine.memory_share.value

    @property
    def reserves(self) -> Reserves:
        """What the engine keeps of the memory."""
        return GENERIC_RESERVES if self.engine is None else self.engine.reserves
