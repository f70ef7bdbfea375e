"""The explorer itself: it visits every interleaving once, and distinguishes correct objects from incorrect ones."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, prod
from typing import Any

import pytest
from tests.emulator.explorer import Operation, Specification, Steps, explore

CELLS = {("cell", 0): 0, ("cell", 1): 0}
COUNTER = Specification(0, lambda count, operation: (count, count + 1))
"""One operation, next: 0, 1, 2, ..."""
ANYTHING = Specification(None, lambda state, operation: (None, state))


def straight(length: int) -> Callable[[], Steps]:
    """A generator of so many steps that never branch; the cells tell neither who came by nor when."""

    def steps() -> Steps:
        done = 0
        while done < length:
            yield "load", "cell", 0
            done += 1

    return steps


@pytest.mark.parametrize("lengths", [(3,), (1, 1), (2, 3), (4, 4), (2, 2, 2), (5, 3, 1), (1, 2, 3, 4), (8, 8, 8, 8)])
def test_straight_processes_have_as_many_interleavings_as_the_multinomial_says(lengths: tuple[int, ...]) -> None:
    processes = {f"P{i}": [Operation("walk", None, straight(n))] for i, n in enumerate(lengths)}
    found = explore(CELLS, processes, ANYTHING)
    assert found.interleavings == factorial(sum(lengths)) // prod(map(factorial, lengths))
    assert found.states >= prod(n + 1 for n in lengths)
    assert found.violation is None


@pytest.mark.parametrize("split", [(1, 1, 1, 1), (2, 2), (3, 1)])
def test_operations_in_a_row_interleave_as_one_of_all_their_steps(split: tuple[int, ...]) -> None:
    processes = {
        "P": [Operation("walk", None, straight(n)) for n in split],
        "Q": [Operation("walk", None, straight(3))],
    }
    assert explore(CELLS, processes, ANYTHING).interleavings == 35  # 7! / (4! 3!)


def add() -> Steps:
    return (yield "fetch-add", "cell", 0, 1)


def add_by_exchange() -> Steps:
    seen = yield "load", "cell", 0
    while True:
        done, found = yield "compare-exchange", "cell", 0, seen, seen + 1
        if done:
            return seen
        seen = found


def add_in_two() -> Steps:
    seen = yield "load", "cell", 0
    yield "store", "cell", 0, seen + 1
    return seen


def next_of(steps: Callable[[], Steps], processes: int, each: int = 1) -> dict[str, list[Operation]]:
    return {f"P{i}": [Operation("next", None, steps)] * each for i in range(processes)}


@pytest.mark.parametrize("steps", [add, add_by_exchange])
def test_an_atomic_counter_is_linearizable(steps: Callable[[], Steps]) -> None:
    assert explore(CELLS, next_of(steps, 3, each=2), COUNTER).violation is None


def test_a_lost_update_is_found_by_a_shortest_schedule() -> None:
    found = explore(CELLS, next_of(add_in_two, 2), COUNTER).violation
    assert found is not None
    assert str(found).splitlines() == [
        "  1  P0  next()    load cell[0]: 0",
        "  2  P1  next()    load cell[0]: 0",
        "  3  P0            store cell[0] = 1                       next() = 0",
        "  4  P1            store cell[0] = 1                       next() = 0",
        "    no order of the operations explains next() = 0",
    ]


def test_real_time_order_binds() -> None:
    """A register whose reader may see what was there before a write that had ended: right in some order, not in that of time."""

    def write() -> Steps:
        yield "store", "cell", 0, 1
        return None

    def read() -> Steps:
        return (yield "load", "cell", 1)

    def apply(value: int, operation: Operation) -> tuple[Any, int]:
        return (None, 1) if operation.kind == "write" else (value, value)

    processes = {"W": [Operation("write", None, write)], "R": [Operation("read", None, read)]}
    found = explore(CELLS, processes, Specification(0, apply)).violation
    assert found is not None
    assert [line.split()[1] for line in found.schedule] == ["W", "R"]


def test_an_excuse_holds_only_beside_what_excuses_it() -> None:
    def busy() -> Steps:
        yield "load", "cell", 0
        return "busy"

    specification = Specification(0, COUNTER.apply, {("next", "busy"): "other"})
    alone = {"P": [Operation("next", None, busy)]}
    after = {"P": [Operation("other", None, add), Operation("next", None, busy)]}
    # One step of `other` is never in the middle of anything; with two it overlaps unless it comes before or after.
    beside = {"P": [Operation("next", None, busy)], "Q": [Operation("other", None, add)]}
    for processes in (alone, after, beside):
        assert explore(CELLS, processes, specification).violation is not None

    def busy_if_beside() -> Steps:
        before = yield "load", "cell", 1
        return "busy" if before else (yield "fetch-add", "cell", 0, 1)

    def other() -> Steps:
        yield "store", "cell", 1, 1
        number = yield "fetch-add", "cell", 0, 1
        yield "store", "cell", 1, 0
        return number

    processes = {"P": [Operation("next", None, busy_if_beside)], "Q": [Operation("other", None, other)]}
    assert explore(CELLS, processes, specification).violation is None


def test_plain_accesses_that_meet_are_a_race() -> None:
    def write() -> Steps:
        yield "write", "cell", 0, 1

    def read() -> Steps:
        yield "load", "cell", 1
        yield "read", "cell", 0

    walk = {"W": [Operation("walk", None, write)], "R": [Operation("walk", None, read)]}
    found = explore(CELLS, walk, ANYTHING).violation
    assert found is not None
    assert found.problem == "R and W access cell[0] at once, and one writes it"
    assert explore(CELLS, walk, ANYTHING, races=False).interleavings == 3
    readers = {name: [Operation("walk", None, read)] for name in "RS"}
    assert explore(CELLS, readers, ANYTHING).violation is None


def test_processes_die_at_every_step_but_none_before_the_first() -> None:
    processes = {"P": [Operation("walk", None, straight(4))]}
    ends: list[dict[str, Any]] = []
    found = explore(CELLS, processes, ANYTHING, mortal=["P"], at_end=lambda memory, stopped: ends.append(stopped))
    assert found.interleavings == 4
    assert sorted(list(stopped) for stopped in ends) == [[], ["P"], ["P"], ["P"]]


def test_what_died_in_the_middle_may_have_taken_effect_or_not() -> None:
    def half() -> Steps:
        number = yield "fetch-add", "cell", 0, 1
        yield "load", "cell", 1
        return number

    processes = {"P": [Operation("next", None, half)], "Q": [Operation("next", None, add)] * 2}
    assert explore(CELLS, processes, COUNTER, mortal=["P"]).violation is None


def test_waiting_for_another_is_a_circle_and_ends_all_the_same() -> None:
    def wait() -> Steps:
        while (yield "load", "cell", 1) == 0:
            pass

    def signal() -> Steps:
        yield "store", "cell", 1, 1

    processes = {"P": [Operation("walk", None, wait)], "Q": [Operation("walk", None, signal)]}
    found = explore(CELLS, processes, ANYTHING)
    assert (found.interleavings, found.ends, found.violation) == (None, 1, None)


def test_a_weak_exchange_fails_for_nothing() -> None:
    def once() -> Steps:
        done, found = yield "compare-exchange", "cell", 0, 0, 1
        return found if done else None

    processes = {"P": [Operation("next", None, once)]}
    assert explore(CELLS, processes, COUNTER).violation is None
    found = explore(CELLS, processes, COUNTER, weak=True).violation
    assert found is not None
    assert "no, 0" in found.schedule[0]
