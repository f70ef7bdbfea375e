"""Messages between workers are copies, and what belongs to one side is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.emulator.workers import ONES, Job, add, device

import windtunnel
from windtunnel.core import errors
from windtunnel.runtime.message import carried
from windtunnel.runtime.worker import (
    AcceleratedWorker,
    ComputeTask,
    Envelope,
    WorkerGroup,
)


def test_what_is_sent_is_copied_so_that_neither_side_sees_what_the_other_writes() -> None:
    kept: list[Any] = []

    class Keeper(AcceleratedWorker):
        def handle_message(self, state: Any, envelope: Envelope) -> Any:
            kept.append(envelope.payload)
            state.append(np.zeros(3))
            return state[-1]

    with WorkerGroup() as group:
        keeper = Keeper(group, "keeper", device)
        a, inner = np.zeros(4), [1, 2]
        reply = keeper.address.send({"a": a, "inner": inner})
        a[...] = 7
        inner.append(3)
        answer = reply.result()
        assert (kept[0]["a"] == 0).all() and kept[0]["inner"] == [1, 2]
        assert not np.shares_memory(a, kept[0]["a"])
        with pytest.raises(ValueError, match="read-only"):
            kept[0]["a"][0] = 1
        assert not np.shares_memory(answer, keeper._state[0])
        keeper.state[0] = "other"
        assert isinstance(keeper.state[0], np.ndarray)


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclass
class Mutable:
    x: int = 1


class Loud(str):
    pass


def closing_over(what: Any) -> Any:
    def f(a: np.ndarray) -> None:
        a += what

    return f


def selfish() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda d: ComputeTask(add, (ONES, d.empty(3))),
            r"the payload\.arrays\[1\] is <float32 3 on l4>, memory that belongs",
        ),
        (lambda d: [d], r"the payload\[0\] is the accelerator <emulated l4>"),
        (lambda d: {"s": d.stream()}, r"the payload\['s'\] is a .*EmulatedStream"),
        (lambda d: (d.event(),), "EmulatedEvent"),
        (lambda d: Pair(1, d.empty(3).memory), r"the payload\.other is a .*EmulatedMemory"),
        (lambda d: d.context, "EmulatedContext"),
        (lambda d: np.array([d], object), r"an array of objects \(object\)"),
        (lambda d: Mutable(), "Mutable"),
        (lambda d: Loud("a"), "Loud"),
        (lambda d: selfish(), r"the payload\[0\] contains itself"),
        (lambda d: closing_over(ONES), "'f' holds a ndarray that it shares"),
        (lambda d: windtunnel.kernel(closing_over([1])), "'f' holds a list"),
        (lambda d: partial(print), "partial"),
        (lambda d: np.ma.array([1, 2], mask=[0, 1]), "MaskedArray"),
    ],
)
def test_what_belongs_to_one_side_or_may_be_shared_is_refused_with_its_place(make: Any, said: str) -> None:
    with WorkerGroup() as group:
        worker = AcceleratedWorker(group, "w", device)
        with pytest.raises(errors.InputError, match=said):
            worker.address.send(make(device()))
        group.run()
        assert worker.handled == 0


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3)
)


KEYS = st.integers() | st.text(max_size=2)


MESSAGES = st.recursive(
    LEAVES | st.lists(st.integers(-9, 9), max_size=4).map(lambda v: np.array(v, np.int64)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Job, st.text(max_size=2), then=st.tuples(inner))
    ),
    max_leaves=8,
)


def same_and_apart(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other) and not np.shares_memory(one, other) and not other.flags.writeable
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one is not other and list(one) == list(other) and all(same_and_apart(one[k], other[k]) for k in one)
    if isinstance(one, Job):
        return one is not other and one.name == other.name and same_and_apart(one.then, other.then)
    if isinstance(one, (list, tuple)):
        apart = one is not other or isinstance(one, tuple)
        return apart and len(one) == len(other) and all(map(same_and_apart, one, other))
    return bool(one == other)


@given(MESSAGES)
def test_whatever_is_carried_is_the_same_and_shares_nothing(message: Any) -> None:
    assert same_and_apart(message, carried(message))


def test_a_record_is_copied_though_it_is_a_scalar() -> None:
    record = np.zeros(1, [("x", float)])[0]
    copy = carried([record])[0]
    record["x"] = 1
    assert copy["x"] == 0
    with pytest.raises(errors.InputError, match=r"the payload\[0\] is a numpy.void"):
        carried([np.zeros(1, [("x", object)])[0]])
