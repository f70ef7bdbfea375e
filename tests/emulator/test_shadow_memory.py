"""Shadow memory that logs accesses, compared with the rule applied to every access: random programs of accesses, block
barriers and warp barriers, on arrays of blocks and of the grid, give the same findings and the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from windtunnel.core.errors import DataRace, UninitializedRead
from windtunnel.emulator.common import symbolic
from windtunnel.emulator.common.lanes import Lanes, branch
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.common.layout import Chunk, layout_of
from windtunnel.emulator.common.symbolic import AffineValue
from windtunnel.emulator.lockstep.arrays import GlobalArray, LockstepArray, SharedArray
from windtunnel.emulator.lockstep.barriers import barrier
from windtunnel.emulator.races import records, shadow_memory
from windtunnel.language import ir
from windtunnel.language.types import F32

GRID, WARP, SIZE = (3, 1, 1), 4, 64
PROGRAM = ir.Program("program", "program.py", 1, "", (), [], ())


class Looking(shadow_memory.ShadowMemory):
    """The rule itself, at every access."""

    def _add_to_log(self, *_: Any) -> bool:
        return False


def chosen(lanes: Lanes, who: Any, forms: bool) -> Lanes | None:
    """Some of the threads: a comparison of their index, or one thread in ``who`` from an offset on."""
    if who is None:
        return lanes
    how, limit = who
    if how == "every":
        numbers = np.arange(limit % 4, lanes.chunk.size, limit)
        return Lanes(lanes.chunk, numbers) if len(numbers) else None
    index = lanes.thread(0 if how != "y" else 1)
    index = index if forms else np.asarray(index)
    limit = np.int32(limit)
    condition = {"lt": lambda: index < limit, "ge": lambda: index >= limit, "eq": lambda: index == limit}.get(
        how, lambda: index != limit
    )()
    yes, _ = branch(lanes, condition)
    return None if yes is None else yes[1]


def place(lanes: Lanes, where: Any, forms: bool) -> Any:
    """An index: a formula, or such a one thrown about; in bounds."""
    kind, step, other, start = where
    t, y, b = (lanes.thread(0), lanes.thread(1), lanes.block(0))
    if not forms:
        t, y, b = (np.asarray(one) for one in (t, y, b))
    if kind == "same":
        return np.int32(start)
    if kind == "own":
        return t * np.int32(step) + y * np.int32(other) + np.int32(start)
    if kind == "grid":
        return b * np.int32(8) + t * np.int32(1) + y * np.int32(4 if other else 0) + np.int32(start)
    if kind == "thrown":
        return (b * np.int32(8) + t + y * np.int32(4) + np.int32(start & 8)) ^ np.int32(step)
    return (t * np.int32(step) + y * np.int32(other) + b * np.int32(3) + np.int32(start)) ^ np.int32(1)


def run(program: Any, block: Any, own: bool, *, forms: bool, looking: bool, there: int = SIZE) -> Any:
    """What comes of it: the finding, or the array's elements, the first of which are ``there`` before."""
    launch = Launch(PROGRAM, GRID, block, "device", WARP)
    threads = block[0] * block[1]
    flat, missing = np.zeros(SIZE, np.float32), np.ones(SIZE, bool)
    found = []
    kept: LockstepArray | None = None
    for first, blocks in ((0, 2), (2, 1)):
        chunk = Chunk(launch, first, blocks)
        if own:
            memory: LockstepArray = SharedArray(
                launch, ir.Declare(1, "part", "shared", (SIZE,), F32), chunk, checked=True
            )
            if looking:
                memory.shadow = Looking(memory.flat.size, threads, WARP)
            found.append(memory.flat)
        elif kept is None:
            memory = kept = GlobalArray(launch, "x", (SIZE,), flat)
            made: Any = Looking if looking else shadow_memory.ShadowMemory
            memory.shadow, memory.uninitialised = made(SIZE, threads, WARP), missing
            found.append(flat)
        else:
            memory = kept
        memory.flat[::2] = 1.0
        if memory.uninitialised is not None:
            memory.uninitialised.reshape(-1, SIZE)[:, :there] = False
        try:
            for line, (do, who, where, value) in enumerate(program, 1):
                step(memory, Lanes(chunk), (do, line, who, where, value), forms)
        except (DataRace, UninitializedRead) as error:
            return type(error), str(error), error.lines, error.index, error.threads
    return [one.tolist() for one in found]


def step(memory: LockstepArray, lanes: Lanes, one: Any, forms: bool) -> None:
    do, line, who, where, value = one
    chunk = lanes.chunk
    if do == "barrier":
        barrier(lanes, line, "block")
        return
    if do == "some":  # a barrier that all threads of one block reach, and no other's
        barrier(Lanes(chunk, np.arange(chunk.threads)), line, "block")
        return
    some = chosen(lanes, who, forms)
    if some is None:
        return
    if do == "meet":
        barrier(some, line, "warp")
        return
    index = place(some, where, forms)
    given = np.float32(value) if value < 2 else np.asarray(some.thread(0)).astype(np.float32)
    if do == "read":
        memory.load(some, line, index)
    elif do == "write":
        memory.store(some, line, given, index)
    else:
        memory.atomic(some, line, "add", [given], value == 1, index)


WHO = st.one_of(
    st.none(),
    st.none(),
    st.tuples(st.sampled_from(["lt", "ge", "eq", "ne", "y"]), st.integers(0, 4)),
    st.tuples(st.just("every"), st.integers(1, 5)),
)
WHERE = st.tuples(
    st.sampled_from(["own", "own", "grid", "grid", "mixed", "thrown", "thrown", "same"]),
    st.sampled_from([0, 1, 1, 2]),
    st.sampled_from([0, 4, 4, 8]),
    st.sampled_from([0, 0, 1, 8, 24, 32]),
)
STEP = st.tuples(
    st.sampled_from(["read", "read", "write", "write", "atomic", "barrier", "barrier", "some", "meet"]),
    WHO,
    WHERE,
    st.integers(0, 2),
)
OWN = ("own", 1, 4, 0)

THROWN = ("thrown", 1, 4, 0)


def by(do: str, thread: int, element: int = 0) -> Any:
    """An access of one thread of each block."""
    return (do, ("eq", thread), ("same", 0, 0, element), 2)


MEET, BARRIER = ("meet", None, OWN, 0), ("barrier", None, OWN, 0)


ONE = st.tuples(
    st.sampled_from(["read", "read", "write", "write", "atomic", "some", "meet", "meet"]),
    st.one_of(st.none(), st.tuples(st.sampled_from(["eq", "lt", "every"]), st.integers(1, 6))),
    st.tuples(st.just("same"), st.just(0), st.just(0), st.integers(0, 1)),
    st.integers(0, 2),
)
"""By few threads, of two elements, so that many are in order by chance."""


@pytest.mark.parametrize("compiled", [False, True])
@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.lists(STEP, max_size=9), st.lists(ONE, max_size=9)),
    st.sampled_from([(4, 2, 1), (8, 1, 1)]),
    st.booleans(),
    st.sampled_from([SIZE, SIZE, 4]),
)
# One lane writes what its block reads; the halves of a reduction; a write after reads by others, in one interval.
@example([("write", None, OWN, 2), ("read", None, ("same", 0, 0, 1), 0)], (8, 1, 1), True, SIZE)
@example([("write", None, OWN, 0), ("write", ("lt", 2), ("own", 1, 4, 1), 2)], (8, 1, 1), False, SIZE)
@example([("read", None, ("own", 1, 4, 1), 0), ("some", None, OWN, 0), ("write", None, OWN, 0)], (8, 1, 1), True, SIZE)
@example([("atomic", None, ("same", 0, 0, 1), 1), ("write", ("eq", 1), ("same", 0, 0, 1), 1)], (8, 1, 1), False, SIZE)
# Ordered by a meeting of the warp: what was written, what one has read, what another has; and one of another warp.
@example([by("write", 1), MEET, by("read", 2)], (8, 1, 1), True, SIZE)
@example([by("read", 1), MEET, by("write", 2)], (8, 1, 1), True, SIZE)
@example([by("read", 1), by("read", 2), MEET, by("write", 3)], (8, 1, 1), True, SIZE)
@example([by("write", 1), MEET, by("read", 5)], (8, 1, 1), True, SIZE)
# The same threads have the same elements, and others then.
@example([("read", None, THROWN, 0), ("write", None, THROWN, 2)], (8, 1, 1), False, SIZE)
@example([("read", None, THROWN, 0), ("write", ("every", 2), THROWN, 2)], (8, 1, 1), False, SIZE)
@example([("read", ("every", 2), THROWN, 0), ("write", ("every", 3), THROWN, 2)], (8, 1, 1), False, SIZE)
@example([("read", None, ("thrown", 2, 0, 0), 0), ("write", None, THROWN, 2)], (8, 1, 1), False, SIZE)
# Which of several readers in two blocks is named; what is missing after something was written.
@example([by("read", 1), BARRIER, by("read", 2), by("write", 3)], (8, 1, 1), False, SIZE)
@example([by("write", 1), by("read", 1, 24)], (8, 1, 1), True, 4)
def test_what_is_put_down_is_found_as_what_is_looked_at(
    compiled: bool, program: Any, block: Any, own: bool, there: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_PYTHON_WORK", 0 if compiled else 2**60)
        fast = run(program, block, own, forms=True, looking=False, there=there)
    assert fast == run(program, block, own, forms=False, looking=True, there=there)


@pytest.mark.parametrize("own", [False, True])
def test_what_is_put_down_for_long_is_found_when_it_is_worked_through(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_memory, "_MAX_LOGGED", 3)
    program = [*[("read", None, ("own", 1, 4, 0), 0)] * 5, ("write", ("eq", 1), ("same", 0, 0, 0), 2)]
    fast = run(program, (8, 1, 1), own, forms=True, looking=False)
    assert fast == run(program, (8, 1, 1), own, forms=False, looking=True)
    assert fast[0] is DataRace


def test_an_element_that_nobody_wrote_is_found_when_others_were_written() -> None:
    program = [by("write", 1), by("read", 1, 24)]
    assert run(program, (8, 1, 1), True, forms=True, looking=False, there=4)[0] is UninitializedRead


INDEX = st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-9, 9), st.integers(-5, 5))


@settings(max_examples=200, deadline=None)
@given(INDEX, INDEX, st.integers(0, 2**31 - 1), WHO)
def test_a_formula_is_what_its_numbers_are(one: Any, other: Any, factor: int, who: Any) -> None:
    chunk = Chunk(Launch(PROGRAM, (3, 2, 1), (4, 2, 1), "device", WARP), 1, 4)
    lanes = chosen(Lanes(chunk), who, True)
    if lanes is None:
        return

    def value(given: Any, forms: bool) -> Any:
        names = (lanes.thread(0), lanes.thread(1), lanes.block(0), lanes.block(1))
        return sum(
            ((name if forms else np.asarray(name)) * np.int32(times) for name, times in zip(names, given, strict=True)),
            np.int32(3),
        )

    with np.errstate(all="ignore"):
        for operation in (
            lambda a, b: a + b,
            lambda a, b: a - b,
            lambda a, b: (a * np.int32(factor)) + b,
            lambda a, b: np.int32(factor) - a,
            lambda a, b: a < b,
            lambda a, b: a <= np.int32(2),
            lambda a, b: a > np.int32(0),
            lambda a, b: a >= b,
            lambda a, b: a == np.int32(3),
            lambda a, b: np.int32(3) != b,
            lambda a, b: a // np.int32(3) ^ b,
            lambda a, b: ~a,
        ):
            formula = operation(value(one, True), value(other, True))
            written = np.broadcast_to(operation(value(one, False), value(other, False)), lanes.size)
            assert np.array_equal(np.broadcast_to(np.asarray(formula), lanes.size), written)
            if isinstance(formula, AffineValue):
                low, high = formula.bounds()
                assert low <= written.min() and written.max() <= high


def test_a_layout_forgets_what_grows_without_end() -> None:
    chunk = Chunk(Launch(PROGRAM, (2, 1, 1), (8, 1, 1), "device", WARP), 0, 2)
    for limit in range(100):
        np.asarray(Lanes(chunk).thread(0) * np.int32(100) < np.int32(limit))
    assert len(symbolic._MASKS[layout_of((8, 1, 1), 2)]) < 100
