"""No request, token or block is lost or counted twice, whatever happens to a fleet that serves requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.property.serving_machine import SCENARIOS, Books, ServingMachine, finished, ready

from windtunnel.core.errors import InvariantError
from windtunnel.engine.transitions import faults, losses, queues, servers
from windtunnel.engine.transitions.tables import World

STEPS = settings(
    max_examples=25, stateful_step_count=12, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_books_balance_without_faults(name: str) -> None:
    run = Books(ready(name))
    run.begin()
    finished(run, was_cut=False)


def test_books_balance_under_any_mix_of_faults_caps_scaling_and_preemption() -> None:
    run_state_machine_as_test(ServingMachine, settings=STEPS)


# Wrong transitions.


def _leaks(right: Callable[..., Any]) -> Callable[..., Any]:
    """A sequence that ends leaves a token of its memory behind."""
    return lambda w, device, slot, held: right(w, device, slot, held - 1)


def _loses_a_request(right: Callable[..., Any]) -> Callable[..., Any]:
    """Of a lost device's sequences, the second one is forgotten."""

    def take(w: World, device: int) -> tuple[int, int]:
        first: tuple[int, int] = right(w, device)
        if first[0] >= 0 and w.servers[device].decoding >= 0:
            right(w, device)
        return first

    return take


def _delivers_again(right: Callable[..., Any]) -> Callable[..., Any]:
    """A request whose device was lost generates its last token again."""

    def interrupt(w: World, device: int, slot: int) -> int:
        delivered: int = right(w, device, slot)
        if delivered:
            w.sequences[slot].prompt -= 1
            w.sequences[slot].output += 1
        return delivered

    return interrupt


def _forgets_who_waits(right: Callable[..., Any]) -> Callable[..., Any]:
    """A request that leaves its queue still counts as waiting."""
    return lambda w, queue: None


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [
        (servers, "release_memory", _leaks),
        (faults, "take_sequence", _loses_a_request),
        (losses, "_interrupt", _delivers_again),
        (queues, "leaves", _forgets_who_waits),
    ],
)
def test_a_wrong_transition_is_caught(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any) -> None:
    monkeypatch.setattr(module, name, mutant(getattr(module, name)))
    with pytest.raises((AssertionError, InvariantError)):
        run_state_machine_as_test(ServingMachine, settings=settings(STEPS, phases=[Phase.generate]))
