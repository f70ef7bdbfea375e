"""The ring queue in every interleaving of small cases, and incorrect queues that fail (docs/decisions/0015-ring-queue.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.emulator.explorer import Cell, Exploration, Operation, Specification, Steps, explore

from windtunnel.runtime.ring_queue import (
    EXCHANGE,
    HEAD,
    LOAD,
    MESSAGE,
    READ,
    SEQUENCE,
    STORE,
    TAIL,
    WRITE,
    Layout,
    Outcome,
    RingQueue,
    narrowest,
    pop_steps,
    push_steps,
)

GARBAGE = "garbage"
NONE = (Outcome.EMPTY, None)
Push = Callable[[Layout, Any], Steps]
Pop = Callable[[Layout], Steps]


BUSY = {("push", Outcome.BUSY): "pop", ("pop", (Outcome.BUSY, None)): "push"}


def fifo(capacity: int, excuses: dict[tuple[str, Any], str]) -> Specification:
    """A bounded queue: full and empty only when it is; excuses only while somebody of the other side is in the middle."""

    def apply(held: tuple[Any, ...], operation: Operation) -> tuple[Any, tuple[Any, ...]]:
        if operation.kind == "push":
            return (Outcome.FULL, held) if len(held) == capacity else (Outcome.DONE, (*held, operation.argument))
        return ((Outcome.DONE, held[0]), held[1:]) if held else (NONE, held)

    return Specification((), apply, excuses)


def cells(layout: Layout, start: int = 0) -> dict[Cell, Any]:
    first, sequences = layout.fresh(start)
    memory: dict[Cell, Any] = {(HEAD, 0): first, (TAIL, 0): first}
    memory |= {(SEQUENCE, slot): number for slot, number in enumerate(sequences)}
    return memory | {(MESSAGE, slot): GARBAGE for slot in range(layout.capacity)}


def explored(
    pushes: Sequence[int],
    pops: Sequence[int],
    *,
    push: Push = push_steps,
    pop: Pop = pop_steps,
    layout: Layout | None = None,
    start: int = 0,
    room: int | None = None,
    excuses: dict[tuple[str, Any], str] = BUSY,
    **options: Any,
) -> Exploration:
    """Producers P1, P2, ... that push so many messages each, and consumers C1, C2, ... that try to pop so often."""
    at = layout or Layout(2, 3)
    processes: dict[str, list[Operation]] = {}
    for number, count in enumerate(pushes):
        messages = [f"{'abcd'[number]}{i}" for i in range(count)]
        processes[f"P{number + 1}"] = [Operation("push", m, lambda m=m: push(at, m)) for m in messages]
    look = Operation("pop", None, lambda: pop(at))
    processes |= {f"C{number + 1}": [look] * count for number, count in enumerate(pops)}
    return explore(cells(at, start), processes, fifo(room or at.capacity, excuses), drain=look, **options)


def caught(found: Exploration) -> str:
    assert found.violation is not None, f"nothing found in {found}"
    print(found.violation)
    return found.violation.problem


@pytest.mark.parametrize(
    ("pushes", "pops"),
    [((1,), (1,)), ((3,), (3,)), ((1, 1), (1,)), ((1, 1), (1, 1)), ((1, 1, 1), (1,)), ((3,), (1, 1)), ((2, 1), (2, 1))],
)
def test_every_interleaving_is_that_of_a_bounded_queue(pushes: tuple[int, ...], pops: tuple[int, ...]) -> None:
    found = explored(pushes, pops)
    print(pushes, pops, found)
    assert found.violation is None, str(found.violation)
    # Counted, so every attempt ends however it is interleaved: the graph of states has no circle.
    assert found.interleavings is not None


@pytest.mark.parametrize(("pushes", "pops"), [((1,), (1,)), ((1, 1), ()), ((2,), (1,)), ((1,), (1, 1))])
def test_as_many_interleavings_as_there_are_schedules_of_the_emulated_queue(
    pushes: tuple[int, ...], pops: tuple[int, ...]
) -> None:
    """Counted without states, frames or specification: every schedule is run from the beginning, on a RingQueue's arrays."""
    processes: list[Callable[[RingQueue], Steps]] = []

    def pushing(count: int) -> Callable[[RingQueue], Steps]:
        def steps(queue: RingQueue) -> Steps:
            done = 0
            while done < count:
                yield from push_steps(queue.layout, np.int8(done))
                done += 1

        return steps

    def popping(count: int) -> Callable[[RingQueue], Steps]:
        def steps(queue: RingQueue) -> Steps:
            done = 0
            while done < count:
                yield from pop_steps(queue.layout)
                done += 1

        return steps

    processes = [*map(pushing, pushes), *map(popping, pops)]

    def complete(schedule: list[int]) -> tuple[list[int], list[list[int]]]:
        """Run it, then always the first who can; the whole schedule, and who could have gone at each step."""
        queue, taken, could = RingQueue(2, np.int8, bits=3), [], []
        running = {number: process(queue) for number, process in enumerate(processes)}
        waiting = {number: next(steps) for number, steps in running.items()}
        while waiting:
            could.append(sorted(waiting))
            number = schedule[len(taken)] if len(taken) < len(schedule) else could[-1][0]
            taken.append(number)
            try:
                waiting[number] = running[number].send(queue.apply(waiting[number]))
            except StopIteration:
                del waiting[number]
        return taken, could

    schedules, prefix = 0, list[int]()
    while True:
        taken, could = complete(prefix)
        schedules += 1
        while taken and taken[-1] == could[len(taken) - 1][-1]:
            taken.pop()
        if not taken:
            break
        others = could[len(taken) - 1]
        prefix = [*taken[:-1], others[others.index(taken[-1]) + 1]]
    assert schedules == explored(pushes, pops).interleavings


@pytest.mark.parametrize("start", range(1, 8))
def test_counters_wrap_around_anywhere(start: int) -> None:
    for pushes, pops in ((1, 1), (1, 1)), ((3,), (1, 1)):
        found, at_zero = explored(pushes, pops, start=start), explored(pushes, pops)
        # What a counter starts at changes nothing: the graph is the same.
        assert (found.states, found.interleavings, found.violation) == (at_zero.states, at_zero.interleavings, None)


def test_states_told_apart_by_frames_are_those_told_apart_by_all_that_was_read() -> None:
    by_frame, by_history = explored((1, 1), (1, 1)), explored((1, 1), (1, 1), merge=False)
    assert by_frame.interleavings == by_history.interleavings
    assert by_frame.states < by_history.states


def test_an_exchange_that_fails_for_nothing_does_no_harm() -> None:
    assert explored((1, 1), (1, 1), weak=True).violation is None


@pytest.mark.parametrize(("capacity", "bits"), [(2, 2), (4, 3)])
def test_an_operation_may_be_overtaken_by_what_narrowest_says_and_no_more(capacity: int, bits: int) -> None:
    """P1 or C1 is held up for as long as one likes, while one producer and one consumer go round."""
    layout, least = Layout(capacity, bits), 2**bits - capacity
    assert narrowest(capacity) <= bits
    assert explored((1, least - 1), (least - 1,), layout=layout).violation is None
    assert (
        caught(explored((1, least), (least,), layout=layout)) == "no order of the operations explains push(a0) = FULL"
    )
    assert explored((least - 1,), (1, least - 1), layout=layout).violation is None


# Who dies


def held_by_the_dead(layout: Layout, memory: dict[Cell, Any], stopped: dict[str, tuple[Any, ...]]) -> str | None:
    """`RingQueue.stalled_slots` must name the slots of those killed between claiming and letting go, and nothing else."""
    queue = RingQueue(layout.capacity, "i8", bits=layout.bits)
    queue.counters[:] = [value for (which, _), value in memory.items() if which != MESSAGE]
    claimed = {
        (index, "producer" if process.startswith("P") else "consumer")
        for process, (what, _, index, *_) in stopped.items()
        if what in (WRITE, READ, STORE)
    }
    found = {(held.slot, held.by) for held in queue.stalled_slots()}
    if found != claimed:
        return f"stalled_slots() names {sorted(found)}, and the dead have {sorted(claimed)}"
    if not claimed:
        while (last := queue.pop()[0]) is Outcome.DONE:
            pass
        if last is not Outcome.EMPTY:
            return f"nobody holds anything, and a consumer alone is told {last.name}"
    return None


@pytest.mark.parametrize(
    ("pushes", "pops", "mortal"),
    [
        ((2, 1), (3,), ["P1"]),
        ((3,), (2, 1), ["C1"]),
        ((1, 1), (1, 1), ["P1", "P2"]),
        ((1, 1), (1, 1), ["C1", "C2"]),
        ((1, 1), (1, 1), ["P1", "C1"]),
    ],
)
def test_whoever_dies_at_whatever_step_no_message_is_doubled_or_invented_and_what_he_holds_is_named(
    pushes: tuple[int, ...], pops: tuple[int, ...], mortal: list[str]
) -> None:
    layout = Layout(2, 3)
    found = explored(
        pushes,
        pops,
        layout=layout,
        mortal=mortal,
        at_end=lambda memory, stopped: held_by_the_dead(layout, memory, stopped),
    )
    print(mortal, found)
    assert found.violation is None, str(found.violation)


def test_a_report_that_named_the_wrong_slots_would_be_found() -> None:
    def nothing_is_held(memory: dict[Cell, Any], stopped: dict[str, tuple[Any, ...]]) -> str | None:
        return held_by_the_dead(Layout(2, 3), memory, {})

    found = explored((1,), (1,), mortal=["P1"], at_end=nothing_is_held)
    assert caught(found) == "stalled_slots() names [(0, 'producer')], and the dead have []"


# Mutants: each differs from the queue in one thing


def publishes_first(layout: Layout, message: Any) -> Steps:
    position = yield LOAD, TAIL, 0
    while True:
        slot = position & layout.mask
        if (yield LOAD, SEQUENCE, slot) == position:
            claimed, position = yield EXCHANGE, TAIL, 0, position, (position + 1) & layout.wrap
            if claimed:
                break
        elif (yield LOAD, HEAD, 0) == (position - layout.capacity) & layout.wrap:
            return Outcome.FULL
        else:
            before, position = position, (yield LOAD, TAIL, 0)
            if position == before:
                return Outcome.BUSY
    yield STORE, SEQUENCE, slot, (position + 1) & layout.wrap
    yield WRITE, MESSAGE, slot, message
    return Outcome.DONE


def pushes_without_looking_at_the_sequence(layout: Layout, message: Any) -> Steps:
    position = yield LOAD, TAIL, 0
    while True:
        if (yield LOAD, HEAD, 0) == (position - layout.capacity) & layout.wrap:
            return Outcome.FULL
        claimed, position = yield EXCHANGE, TAIL, 0, position, (position + 1) & layout.wrap
        if claimed:
            break
    yield WRITE, MESSAGE, position & layout.mask, message
    yield STORE, SEQUENCE, position & layout.mask, (position + 1) & layout.wrap
    return Outcome.DONE


def claims_in_two_steps(layout: Layout, message: Any) -> Steps:
    position = yield LOAD, TAIL, 0
    while True:
        slot = position & layout.mask
        if (yield LOAD, SEQUENCE, slot) == position:
            found = yield LOAD, TAIL, 0
            if found == position:
                yield STORE, TAIL, 0, (position + 1) & layout.wrap
                break
            position = found
        elif (yield LOAD, HEAD, 0) == (position - layout.capacity) & layout.wrap:
            return Outcome.FULL
        else:
            before, position = position, (yield LOAD, TAIL, 0)
            if position == before:
                return Outcome.BUSY
    yield WRITE, MESSAGE, slot, message
    yield STORE, SEQUENCE, slot, (position + 1) & layout.wrap
    return Outcome.DONE


def vyukov_push(layout: Layout, message: Any) -> Steps:
    """The original, whose "full" is the sign of a difference."""
    position = yield LOAD, TAIL, 0
    while True:
        slot = position & layout.mask
        turn = signed((yield LOAD, SEQUENCE, slot) - position, layout)
        if turn == 0:
            claimed, position = yield EXCHANGE, TAIL, 0, position, (position + 1) & layout.wrap
            if claimed:
                break
        elif turn < 0:
            return Outcome.FULL
        else:
            position = yield LOAD, TAIL, 0
    yield WRITE, MESSAGE, slot, message
    yield STORE, SEQUENCE, slot, (position + 1) & layout.wrap
    return Outcome.DONE


def vyukov_pop(layout: Layout) -> Steps:
    position = yield LOAD, HEAD, 0
    while True:
        slot = position & layout.mask
        turn = signed((yield LOAD, SEQUENCE, slot) - position - 1, layout)
        if turn == 0:
            claimed, position = yield EXCHANGE, HEAD, 0, position, (position + 1) & layout.wrap
            if claimed:
                break
        elif turn < 0:
            return NONE
        else:
            position = yield LOAD, HEAD, 0
    message = yield READ, MESSAGE, slot
    yield STORE, SEQUENCE, slot, (position + layout.capacity) & layout.wrap
    return Outcome.DONE, message


def signed(difference: int, layout: Layout) -> int:
    half = (layout.wrap + 1) // 2
    return (difference + half & layout.wrap) - half


def pops_what_is_not_published(layout: Layout) -> Steps:
    position = yield LOAD, HEAD, 0
    while True:
        if (yield LOAD, TAIL, 0) == position:
            return NONE
        claimed, position = yield EXCHANGE, HEAD, 0, position, (position + 1) & layout.wrap
        if claimed:
            break
    message = yield READ, MESSAGE, position & layout.mask
    yield STORE, SEQUENCE, position & layout.mask, (position + layout.capacity) & layout.wrap
    return Outcome.DONE, message


def releases_first(layout: Layout) -> Steps:
    position = yield LOAD, HEAD, 0
    while True:
        slot = position & layout.mask
        if (yield LOAD, SEQUENCE, slot) == (position + 1) & layout.wrap:
            claimed, position = yield EXCHANGE, HEAD, 0, position, (position + 1) & layout.wrap
            if claimed:
                break
        elif (yield LOAD, TAIL, 0) == position:
            return NONE
        else:
            before, position = position, (yield LOAD, HEAD, 0)
            if position == before:
                return Outcome.BUSY, None
    yield STORE, SEQUENCE, slot, (position + layout.capacity) & layout.wrap
    message = yield READ, MESSAGE, slot
    return Outcome.DONE, message


def takes_an_old_tail_for_empty(layout: Layout) -> Steps:
    tail = yield LOAD, TAIL, 0
    position = yield LOAD, HEAD, 0
    if position == tail:
        return NONE
    return (yield from pop_steps(layout))


def never_releases(layout: Layout) -> Steps:
    position = yield LOAD, HEAD, 0
    slot = position & layout.mask
    if (yield LOAD, SEQUENCE, slot) != (position + 1) & layout.wrap:
        return ((yield LOAD, TAIL, 0) == position and NONE) or (Outcome.BUSY, None)
    claimed, position = yield EXCHANGE, HEAD, 0, position, (position + 1) & layout.wrap
    if not claimed:
        return Outcome.BUSY, None
    return Outcome.DONE, (yield READ, MESSAGE, slot)


UNEXPLAINED = "no order of the operations explains"


@pytest.mark.parametrize(
    ("mutant", "pushes", "pops", "problem"),
    [
        ({"push": publishes_first}, (1,), (1,), f"{UNEXPLAINED} pop() = DONE garbage"),
        ({"push": pushes_without_looking_at_the_sequence}, (3,), (1,), f"{UNEXPLAINED} pop() = DONE a2"),
        ({"push": claims_in_two_steps}, (1, 1), (1,), f"afterwards, alone: {UNEXPLAINED} pop() = EMPTY"),
        ({"push": claims_in_two_steps}, (2, 1), (), f"{UNEXPLAINED} push(b0) = DONE"),
        ({"pop": pops_what_is_not_published}, (1,), (1,), f"{UNEXPLAINED} pop() = DONE garbage"),
        ({"pop": releases_first}, (3,), (1,), f"{UNEXPLAINED} pop() = DONE a2"),
        ({"pop": takes_an_old_tail_for_empty}, (2,), (1, 1), f"{UNEXPLAINED} pop() = EMPTY"),
        ({"pop": never_releases}, (3,), (1,), f"{UNEXPLAINED} push(a2) = BUSY"),
        ({"push": vyukov_push}, (3,), (1, 1), f"{UNEXPLAINED} push(a2) = FULL"),
        ({"pop": vyukov_pop}, (1, 1), (1,), f"{UNEXPLAINED} pop() = EMPTY"),
    ],
    ids=lambda value: next(iter(value.values())).__name__ if isinstance(value, dict) else None,
)
def test_a_mutant_is_caught(
    mutant: dict[str, Any], pushes: tuple[int, ...], pops: tuple[int, ...], problem: str
) -> None:
    assert caught(explored(pushes, pops, races=False, **mutant)).startswith(problem)
    assert explored(pushes, pops, races=False).violation is None  # what differs is the mutation alone


@pytest.mark.parametrize(
    ("mutant", "pushes", "pops"),
    [
        ({"push": publishes_first}, (1,), (1,)),
        ({"push": pushes_without_looking_at_the_sequence}, (3,), (1,)),
        ({"push": claims_in_two_steps}, (1, 1), ()),
        ({"pop": pops_what_is_not_published}, (1,), (1,)),
        ({"pop": releases_first}, (3,), (1,)),
    ],
    ids=lambda value: next(iter(value.values())).__name__ if isinstance(value, dict) else None,
)
def test_mutants_that_touch_a_message_at_once_are_races(
    mutant: dict[str, Any], pushes: tuple[int, ...], pops: tuple[int, ...]
) -> None:
    assert "at once, and one writes it" in caught(explored(pushes, pops, **mutant))


def test_vyukovs_queue_is_right_but_for_its_full_and_empty() -> None:
    """The original passes where "full" and "empty" are also right while another is in the middle of its pop or push."""
    original: dict[str, Any] = {"push": vyukov_push, "pop": vyukov_pop}
    excused = {("push", Outcome.FULL): "pop", ("pop", NONE): "push"}
    for pushes, pops in ((1, 1), (1, 1)), ((3,), (1, 1)), ((1, 1), (2,)):
        found = explored(pushes, pops, excuses=excused, **original)
        assert found.violation is None, str(found.violation)
        assert found.interleavings is not None


# The founding document's queue: head and tail alone, both masked


def template_pop(layout: Layout) -> Steps:
    """Its CUDA and Metal templates, line by line."""
    while True:
        head = yield LOAD, HEAD, 0
        tail = yield LOAD, TAIL, 0
        if head == tail:
            return NONE
        claimed, _ = yield EXCHANGE, HEAD, 0, head, (head + 1) & layout.mask
        if claimed:
            break
    return Outcome.DONE, (yield READ, MESSAGE, head)


def claim_then_write(layout: Layout, message: Any) -> Steps:
    """``enqueue_output``, which it does not give, as the mirror image of its pop."""
    while True:
        tail = yield LOAD, TAIL, 0
        if (yield LOAD, HEAD, 0) == (tail + 1) & layout.mask:
            return Outcome.FULL
        claimed, _ = yield EXCHANGE, TAIL, 0, tail, (tail + 1) & layout.mask
        if claimed:
            break
    yield WRITE, MESSAGE, tail, message
    return Outcome.DONE


def write_then_claim(layout: Layout, message: Any) -> Steps:
    """The same, the other way round."""
    while True:
        tail = yield LOAD, TAIL, 0
        if (yield LOAD, HEAD, 0) == (tail + 1) & layout.mask:
            return Outcome.FULL
        yield WRITE, MESSAGE, tail, message
        claimed, _ = yield EXCHANGE, TAIL, 0, tail, (tail + 1) & layout.mask
        if claimed:
            return Outcome.DONE


def write_then_store(layout: Layout, message: Any) -> Steps:
    """The same for a producer who is alone, as a host is."""
    tail = yield LOAD, TAIL, 0
    if (yield LOAD, HEAD, 0) == (tail + 1) & layout.mask:
        return Outcome.FULL
    yield WRITE, MESSAGE, tail, message
    yield STORE, TAIL, 0, (tail + 1) & layout.mask
    return Outcome.DONE


def template(push: Push, pushes: Sequence[int], pops: Sequence[int], capacity: int = 2, **options: Any) -> Exploration:
    """One slot stays free: head equal to tail is empty."""
    at = Layout(capacity)
    return explored(pushes, pops, push=push, pop=template_pop, layout=at, room=capacity - 1, **options)


@pytest.mark.parametrize("push", [write_then_claim, write_then_store])
def test_the_templates_queue_serves_one_producer_and_one_consumer(push: Push) -> None:
    assert template(push, (3,), (3,)).violation is None
    assert template(push, (4,), (4,), capacity=4).violation is None


@pytest.mark.parametrize(
    ("push", "pushes", "pops", "capacity", "length", "problem"),
    [
        (claim_then_write, (1, 1), (1, 1), 2, 7, "pop() = DONE garbage"),
        (write_then_claim, (1, 1), (1, 1), 2, 11, "pop() = DONE b0"),
        (write_then_claim, (1, 1), (1,), 2, 11, "pop() = DONE b0"),
        (write_then_store, (3,), (1, 1), 2, 18, "pop() = DONE a2"),
        (write_then_store, (4,), (2, 1), 4, 21, "pop() = EMPTY"),
    ],
)
def test_the_templates_queue_breaks_with_two_on_a_side(
    push: Push, pushes: tuple[int, ...], pops: tuple[int, ...], capacity: int, length: int, problem: str
) -> None:
    found = template(push, pushes, pops, capacity, races=False)
    assert caught(found) == f"{UNEXPLAINED} {problem}"
    assert found.violation is not None
    assert len(found.violation.schedule) == length


def test_the_templates_consumers_race_with_the_producer_who_reuses_a_slot() -> None:
    assert caught(template(write_then_store, (3,), (1, 1))) == "P1 and C1 access message[0] at once, and one writes it"


def test_the_emulator_and_the_explorer_run_the_same_steps() -> None:
    """A queue that is stepped by hand, interleaved: what was claimed first is popped first, published last though it was."""
    queue = RingQueue(2, np.int64)
    slow = push_steps(queue.layout, np.int64(1))
    answer: Any = None
    for _ in range(3):
        answer = queue.apply(slow.send(answer))
    assert queue.push(np.int64(2))
    assert queue.pop() == (Outcome.BUSY, None)
    with pytest.raises(StopIteration):
        while True:
            answer = queue.apply(slow.send(answer))
    assert [queue.try_pop(), queue.try_pop(), queue.try_pop()] == [1, 2, None]
