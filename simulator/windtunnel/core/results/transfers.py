"""The section ``kv_transfers`` of a result: KV caches that were sent between replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class Spread(Result):
    """The mean and percentiles of times (s), without intervals."""

    FIGURES: ClassVar = ("mean", "p50", "p95", "p99")

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class KvPair(Result):
    """The KV caches that one fleet entry sent to another; ``bytes_per_s`` is the mean rate of a transfer."""

    sender: str
    receiver: str
    count: int
    bytes: float
    bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class KvTransferResult(Result):
    """The transfers of KV caches from replicas that read prompts to replicas that decode.

    Attributes:
        count: How many ended.
        tokens: The tokens that were sent. What the receiver's prefix cache had was not.
        bytes: The bytes that the receivers got.
        waiting_s: The time from the end of a prompt's prefill until its transfer began: for memory of the receiver, and
            for the links of both.
        transfer_s: The time of a transfer.
        busiest_link: The largest share of the run for which the link of one replica was busy in one direction; None for
            a single workload.
        pairs: The same by the fleet entries of sender and receiver.
    """

    count: int
    tokens: int
    bytes: float
    waiting_s: Spread | None
    transfer_s: Spread | None
    busiest_link: float | None
    pairs: Sequence[KvPair] = ()
