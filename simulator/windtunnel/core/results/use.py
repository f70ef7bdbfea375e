"""How requests used the replicas of a fleet entry, and what each tenant was served."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class EntryUse(Result):
    """How the replicas of one fleet entry were used: means over them and over the time for which they were rented.

    ``kv_mean`` and ``kv_peak`` are shares of the KV cache, None where requests are not batched continuously.
    """

    entry: str
    busy: float
    """The share of the time in which a replica had any sequence in a step."""
    mean_sequences: float | None
    kv_mean: float | None
    kv_peak: float | None
    peak_flops: float | None = None
    """The share of the peak arithmetic that steps used, each part of a step against the peak of its number format."""
    peak_bandwidth: float | None = None
    """The share of the peak bandwidth of memory, by the bytes of operands, each moved once."""


@dataclass(frozen=True)
class TenantUse(Result):
    """The requests of one tenant. Tokens are those of completed requests, and times those of requests that have one.

    ``weight`` is its share in fair queueing, None without it.
    """

    tenant: str
    weight: float | None
    arrived: int
    completed: int
    input_tokens: int
    output_tokens: int
    ttft_mean_s: float | None
    ttft_p95_s: float | None = None
    ttft_p99_s: float | None = None
