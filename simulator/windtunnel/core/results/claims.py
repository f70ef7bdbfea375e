"""The verdict on a claim, as `windtunnel claims` reports it."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class ClaimVerdict(Result):
    """A stated figure, the modelled one and the physical bound, in ``unit``, with the verdict and its reason.

    ``stated_high`` is None for an open range. ``modelled`` is None if no program or device measures the claim yet.
    ``independent`` is false if a number that affects the modelled value was assumed from the same documents.
    """

    claim: str
    device: str | None
    stated: float | None
    modelled: float | None
    bound: float | None
    unit: str
    verdict: str
    why: str
    group: str
    document: str
    stated_low: float | None
    stated_high: float | None
    modelled_low: float | None
    modelled_high: float | None
    independent: bool | None
