"""What several tests share: one test over many cases, what a device says of itself, and the memory for a decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from windtunnel.app.run import list_policies
from windtunnel.core.decoder_memory import Beside, LargestStep, decoder_memory
from windtunnel.core.errors import Location
from windtunnel.core.group import Group
from windtunnel.core.policy import POLICIES, ROUTES
from windtunnel.runtime.interface import DeviceInfo
from windtunnel.runtime.limits import limits_of
from windtunnel.scenario.decoder import DecoderModel

T = TypeVar("T")

FLEET_POLICIES = [
    name for name in list_policies() if name != "recommendation-matrix" and ROUTES[POLICIES[name][0]].rank_by != "each"
]
"""The policies that need neither use cases nor continuous batching."""


def check_all(cases: Iterable[T], check: Callable[[T], object], name: Callable[[T], object] = str) -> None:
    """Call ``check`` with each case; fail if there is no case, or with the names of all cases that fail."""
    count, failed = 0, []
    for case in cases:
        count += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{name(case)}: {type(error).__name__}: {error}")
    assert count, "there are no cases"
    assert not failed, f"{len(failed)} of {count} cases fail:\n\n" + "\n\n".join(failed)


@contextmanager
def search_alone() -> Iterator[None]:
    """Leave out the runs of a plan under changed loads, prices and assumptions: they take most of its time.

    The search, its bounds and its answer do not read them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("windtunnel.planning.sensitivity.Changes.effects", lambda _changes: [])
        patch.setattr("windtunnel.planning.assumptions.screen", lambda *_: [])
        patch.setattr("windtunnel.planning.assumptions.assumptions", lambda *_: None)
        yield


def memory_of(
    model: Mapping[str, Any], tokens: int, step_tokens: int = 8192, size: int = 256, share: float = 0.9
) -> str:
    """Return the memory of a device that holds a decoder of a scenario and ``tokens`` of its cache, in whole blocks.

    ``step_tokens``, ``size`` and ``share`` are the keys ``tokens``, ``size`` and ``memory`` of its continuous batches.
    """
    stated = DecoderModel(**model)
    decoder = stated.architecture("model", Path(), Location())
    speculation = stated.speculation and stated.speculation.speculation(
        decoder, {"small": decoder}, lambda _: Location()
    )
    adapters = stated.adapters.adapters() if stated.adapters else None
    drafted = speculation.tokens if speculation else 0
    step = LargestStep(step_tokens, size, 1 + drafted)
    memory = decoder_memory(decoder, Group(), 0.0, step, memory_share=share, beside=Beside(speculation, adapters))
    blocks = -(-(tokens + drafted) // memory.block_tokens)
    needed = memory.kv_bytes_per_token * memory.block_tokens * blocks - min(memory.kv_bytes, 0.0)
    within_share = (needed - memory.graph_bytes) / share
    return f"{max(needed, within_share) + 1:.0f} B"


def info(kind: str = "cpu", api: str = "native") -> DeviceInfo:
    """Return what a fake device says of itself."""
    return DeviceInfo("a fake", kind, api, 1e9, limits_of(api), frozenset(), False, True, driver="fake 1")
