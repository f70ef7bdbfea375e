"""What requests found in the tiers of prefix caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class PrefixTier(Result):
    """What completed requests found in the prefix caches of devices, or in a tier below them: host or disk.

    The shares and the tokens of all tiers add up to ``prefix_hit_rate`` and ``prefix_hit_tokens``.
    """

    tier: str
    hit_rate: float | None
    """The share of the blocks of the prompts that was found here and in no tier above."""
    hit_tokens: int
    loading: float | None
    """The share of the time in which the links of the replicas loaded from the tier; None for the devices."""
    bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    """The rate at which a replica loads from it, by fleet entry."""
