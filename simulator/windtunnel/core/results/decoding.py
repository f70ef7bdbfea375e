"""The parts of a result on speculative decoding and on LoRA adapters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class SpeculationUse(Result):
    """How the drafted tokens of the steps of decoding sequences were accepted, also beyond the ends of outputs."""

    steps: int
    """In how many steps tokens were drafted, each sequence counted on its own."""
    drafted_tokens: int
    accepted_tokens: int
    acceptance_rate: float | None
    """The share of the drafted tokens that were accepted; None if none was drafted."""
    mean_acceptance_length: float | None
    """The mean number of tokens of a step: the accepted ones, and the one of the decoder itself."""
    acceptance_by_position: Sequence[float]
    """The share of the steps that accepted the token at each position, and so all before it."""


@dataclass(frozen=True)
class AdapterUse(Result):
    """How often requests found their LoRA adapter in a slot when they were admitted."""

    hits: int
    loads: int
    """How often an adapter was loaded into a slot."""
    storage_reads: int
    """How many of these loads the host did not hold."""
    hit_rate: float | None
    """Hits over hits and loads; None without either."""
