"""Continuous batching in both engines, against an independent oracle."""

from __future__ import annotations

from typing import Any

import pytest
from tests.differential.serving_fuzz import check

from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.process import engine as process
from windtunnel.engine.transitions import queues, servers, victims

SEEDS = range(40)


def test_both_engines_batch_as_the_oracle_does() -> None:
    oracles = [check(seed, process.run, compiled.run) for seed in SEEDS]
    # The seeds have what the oracle is for.
    requests = [oracle.requests for oracle in oracles]
    assert sum(oracle.preemptions > 0 for oracle in oracles) >= 8
    assert sum(oracle.outranks and oracle.preemptions > 0 for oracle in oracles) >= 5
    assert sum(oracle.fair is not None for oracle in oracles) >= 8
    assert sum(any(r.noted for r in rows) for rows in requests) >= 8
    assert sum(any(r.starts > 1 and 0 <= r.first < r.start for r in rows) for rows in requests) >= 4


def _no_charge(w: Any, device: int, slot: int) -> None:
    """A prompt counts nothing."""


def _equal(w: Any, slot: int, other: int) -> bool:
    """Of two sequences with equal keys the later one comes first."""
    s, t = w.slots[slot], w.slots[other]
    return bool(s.key < t.key or (s.key == t.key and s.job > t.job))


def _no_victim(w: Any, device: int, slot: int, needs: int) -> int:
    """No sequence is preempted for another one."""
    return -1


def _never_lifted(w: Any, queue: int) -> None:
    """A tenant keeps its counter while it has no waiting request."""
    w.shares[queue if w.run[0].routed else queue % w.run[0].lines].waiting += 1


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [
        (servers, "charge_prompt", _no_charge),
        (victims, "precedes", _equal),
        (servers, "first_victim", _no_victim),
        (queues, "joins", _never_lifted),
    ],
)
def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any) -> None:
    monkeypatch.setattr(module, name, mutant)
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            check(seed, process.run)
