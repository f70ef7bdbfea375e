"""The ring queue as a bounded deque of records, for all record types and initial counters."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from windtunnel.core.errors import InputError, InvalidArgument
from windtunnel.runtime.ring_queue import Layout, Outcome, RingQueue, StalledSlot, narrowest, pop_steps, push_steps

STRINGS = hnp.byte_string_dtypes(endianness="=", min_len=1) | hnp.unicode_string_dtypes(endianness="=", min_len=1)
FIELDS = hnp.scalar_dtypes().filter(lambda dtype: dtype.isnative) | STRINGS
DTYPES = FIELDS | hnp.array_dtypes(FIELDS, allow_subarrays=True).filter(lambda dtype: dtype.itemsize > 0)


@st.composite
def layouts(draw: Any) -> tuple[int, int, int]:
    """(capacity, bits, start): often just before a counter wraps around."""
    capacity = 1 << draw(st.integers(1, 5))
    bits = draw(st.sampled_from([32, 64]) | st.integers(narrowest(capacity), 64))
    near = st.integers(-3 * capacity, 0).map(lambda before: (1 << bits) + before)
    return capacity, bits, draw(near | st.integers(0, (1 << bits) - 1))


@given(layouts(), st.lists(st.booleans(), max_size=150))
def test_it_does_what_a_bounded_deque_does(layout: tuple[int, int, int], pushes: list[bool]) -> None:
    capacity, bits, start = layout
    queue, model = RingQueue(capacity, np.uint16, bits=bits, start=start), deque[int]()
    put = got = 0
    for number, push in enumerate(pushes):
        if push and len(model) == capacity:
            assert queue.push(np.uint16(number)) is Outcome.FULL
        elif push:
            assert queue.push(np.uint16(number)) is Outcome.DONE
            model.append(number)
            put += 1
        elif model:
            assert queue.pop() == (Outcome.DONE, model.popleft())
            got += 1
        else:
            assert queue.pop() == (Outcome.EMPTY, None)
        assert (len(queue), queue.pushed, queue.popped, queue.stalled_slots()) == (len(model), put, got, [])


@given(DTYPES, st.data())
def test_records_of_any_fixed_size_come_out_as_they_went_in(dtype: np.dtype[Any], data: st.DataObject) -> None:
    array = data.draw(hnp.arrays(dtype, 4))
    queue = RingQueue(4, dtype)
    for record in array:
        assert queue.try_push(record)
    popped = [queue.try_pop() for _ in range(4)]
    assert np.array(popped, dtype).tobytes() == array.tobytes()


@pytest.mark.parametrize("bits", [32, 64])
def test_counters_pass_through_zero(bits: int) -> None:
    queue = RingQueue(4, np.int64, bits=bits, start=2**bits - 2)
    for lap in range(5):
        for i in range(4):
            assert queue.try_push(np.int64(10 * lap + i))
        assert queue.push(np.int64(-1)) is Outcome.FULL
        assert [queue.try_pop() for _ in range(5)] == [10 * lap + i for i in range(4)] + [None]
    assert queue.counters.dtype == f"u{bits // 8}"
    assert list(queue.counters[:2]) == [18, 18]


def test_a_popped_record_is_a_copy() -> None:
    pair = np.dtype([("a", "i4"), ("b", "f8", 2)])
    queue = RingQueue(2, pair)
    for a in (1, 2):
        assert queue.push(np.array((a, (a, a)), pair)[()])
    first = queue.try_pop()
    assert first is not None
    assert queue.push(np.array((3, (3, 3)), pair))  # into the slot that the first was in
    assert (first["a"], list(first["b"])) == (1, [1, 1])


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (np.float64(1), "float64 of 8 bytes; the queue takes one record of float32, 4 bytes"),
        (np.int32(1), "int32 of 4 bytes"),
        (np.bytes_(b"four"), "S4 of 4 bytes"),
        (np.ones(2, np.float32), "2 records at once"),
        (np.ones(1, np.float32), "1 records at once"),
        (1.0, "float 1.0 is not a record"),
        (None, "NoneType None is not a record"),
    ],
)
def test_what_is_no_record_of_its_type_is_refused_unwritten(message: Any, words: str) -> None:
    queue = RingQueue(2, np.float32, name="inbox of adder", api="cuda")
    with pytest.raises(
        InvalidArgument, match=r"push on inbox of adder: .*cuda error 1 \(cudaErrorInvalidValue\)"
    ) as error:
        queue.push(message)
    assert words in str(error.value)
    assert (len(queue), queue.pushed, queue.slots.any()) == (0, 0, False)


@pytest.mark.parametrize(
    ("capacity", "near"), [(-1, 2), (0, 2), (1, 2), (3, 2), (5, 4), (7, 8), (1000, 1024), (1500, 1024)]
)
def test_a_capacity_that_is_no_power_of_two_names_the_nearest(capacity: int, near: int) -> None:
    with pytest.raises(InputError, match=f"a power of two from 2, such as {near:,}$"):
        RingQueue(capacity, np.int8)


@pytest.mark.parametrize(("capacity", "least"), [(2, 2), (4, 3), (1024, 11)])
def test_counters_too_narrow_to_tell_full_from_empty_are_refused(capacity: int, least: int) -> None:
    Layout(capacity, least)
    for bits in (least - 1, 65):
        with pytest.raises(InputError, match=f"from {least} to 64 bits"):
            Layout(capacity, bits)


@pytest.mark.parametrize("dtype", [object, [("a", "O")], ("f4", 3), "V0", ">i4", [("a", ">f8")]])
def test_types_that_no_device_reads_are_refused(dtype: Any) -> None:
    with pytest.raises(InputError, match="a NumPy type of fixed size"):
        RingQueue(2, dtype)


def test_its_size_in_memory_is_that_of_messages_and_counters() -> None:
    assert RingQueue(8, np.float32, bits=32).nbytes == 8 * 4 + (2 + 8) * 4
    assert RingQueue(8, np.float32).nbytes == 8 * 4 + (2 + 8) * 8


def stopped_after(queue: RingQueue, steps: Any, taken: int) -> None:
    answer = None
    for _ in range(taken):
        answer = queue.apply(steps.send(answer))
    steps.close()


def test_a_message_that_is_never_published_is_named_and_holds_up_those_behind_it() -> None:
    queue = RingQueue(4, np.int64, start=2**64 - 1)
    stopped_after(queue, push_steps(queue.layout, np.int64(1)), 2)
    assert queue.stalled_slots() == []  # it had looked, and claimed nothing
    stopped_after(queue, push_steps(queue.layout, np.int64(1)), 4)
    assert queue.push(np.int64(2))
    assert queue.pop() == (Outcome.BUSY, None)
    assert queue.stalled_slots() == [StalledSlot(position=2**64 - 1, slot=3, by="producer", observations=1)]
    assert queue.stalled_slots(observations=3) == []
    assert queue.stalled_slots(observations=3) == [
        StalledSlot(position=2**64 - 1, slot=3, by="producer", observations=3)
    ]
    assert (len(queue), queue.pushed, queue.popped) == (2, 1, 0)


def test_a_slot_that_is_never_released_is_named_and_stops_producers_when_they_come_round() -> None:
    queue = RingQueue(2, np.int64)
    assert queue.push(np.int64(1))
    stopped_after(queue, pop_steps(queue.layout), 4)
    assert queue.push(np.int64(2))
    assert queue.push(np.int64(3)) is Outcome.BUSY
    assert queue.pop() == (Outcome.DONE, 2)
    assert queue.push(np.int64(3)) is Outcome.BUSY
    assert queue.stalled_slots(observations=1) == [StalledSlot(position=0, slot=0, by="consumer", observations=1)]


def test_looks_are_counted_anew_once_a_position_was_let_go() -> None:
    queue = RingQueue(2, np.int64)
    slow = push_steps(queue.layout, np.int64(1))
    answer: Any = None
    for _ in range(4):
        answer = queue.apply(slow.send(answer))
    assert [held.observations for held in queue.stalled_slots()] == [1]
    queue.apply(slow.send(answer))
    assert queue.stalled_slots() == []
    stopped_after(queue, push_steps(queue.layout, np.int64(2)), 3)
    assert queue.stalled_slots() == [StalledSlot(position=1, slot=1, by="producer", observations=1)]
