"""The tiers below the prefix caches of each class: how many blocks they have room for, and how fast they load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel.core.ops import Copy, Rows
from windtunnel.core.policy import CacheTier, Policy
from windtunnel.core.units import format_quantity
from windtunnel.engine.prepare.programs import Compiled
from windtunnel.scenario.scenario import Scenario

MAX_BLOCKS = 2**30
"""The largest number of blocks of a tier."""
_COPIES = np.array([1e9, 2e9])
"""Two copies (bytes); the difference of their times is the time of a copy without its set-up."""


@dataclass(frozen=True)
class ReplicaTier:
    """A tier of one replica.

    Attributes:
        name: host or disk.
        blocks: The blocks that it has room for.
        bytes_per_token: What a token takes in it, in all layers and on all devices of the replica.
        bytes_per_s: The rate at which the replica loads from it.
        is_stated: Whether the scenario states that rate; else it is that of the host links of its devices.
    """

    name: str
    blocks: int
    bytes_per_token: float
    bytes_per_s: float
    is_stated: bool


def replica_tiers(
    scenario: Scenario, policy: Policy, compiled: Mapping[tuple[int, int], Compiled], block: int
) -> dict[int, Sequence[ReplicaTier]]:
    """Return the tiers of each class that serves a decoder, the one nearest to the device first.

    Raises:
        InputError: if a tier has no room for a block, or the rate of the host link is not known.
    """
    cache = policy.batch.prefix_cache
    found: dict[int, Sequence[ReplicaTier]] = {}
    for (cls, _), program in compiled.items():
        if cache is None or not cache.tiers or program.decoder is None or cls in found:
            continue
        costs = program.decoder
        # Each copy of the attention holds whole requests.
        devices = costs.group.devices / costs.group.attention_data
        per_token = costs.memory.kv_bytes_per_token * devices
        tiers = []
        for tier in cache.tiers:
            where = scenario.where("policy", "batch", "prefix_cache", tier.name)
            blocks = min(int(tier.size_bytes // (per_token * block)), MAX_BLOCKS) if per_token else MAX_BLOCKS
            if not blocks:
                raise InputError(
                    f"a block of {block} tokens of {costs.model.name} takes {format_quantity(per_token * block, 'B')}, "
                    f"and this tier has {format_quantity(tier.size_bytes, 'B')}",
                    where=where,
                    expected="room for at least one block",
                )
            try:
                rate = _rate(tier, costs.device, costs.group.devices)
            except InputError as error:
                raise error.at(where) from None
            tiers.append(ReplicaTier(tier.name, blocks, per_token, rate, tier.bytes_per_s is not None))
        found[cls] = tiers
    return found


def _rate(tier: CacheTier, device: Device, devices: int) -> float:
    """Return the rate at which a replica loads from a tier (bytes/s).

    Each device loads its part over its own host link, as pinned copies do.
    """
    if tier.bytes_per_s is not None:
        return tier.bytes_per_s
    choices = {"direction": "h2d", "memory": "pinned"}
    try:
        seconds = device.cost(Rows(Copy, choices, {"bytes": _COPIES}), intervals=False).duration_s
        rate = devices * float(_COPIES[1] - _COPIES[0]) / float(seconds[1] - seconds[0])
    except (InputError, ZeroDivisionError):
        rate = 0.0
    if not rate or not np.isfinite(rate):
        raise InputError(
            f"the host link of {device.label} is not known, or it shares the memory of the host",
            expected="the rate of this tier, such as `bandwidth: 50 GB/s`",
        )
    return rate
