"""In random programs, the vector clocks find the same races as a search in the graph of all ordered steps.

The oracle knows nothing of clocks: it takes the steps in the order in which they were made, draws an edge for
everything that orders two of them (a thread's own order, barriers, warps' meetings, fences with the atomic operations
that carry them), and asks whether one conflicting step can be reached from the other.
"""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from windtunnel.core.errors import DataRace
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.device.executable import Executable
from windtunnel.emulator.races import records
from windtunnel.emulator.threads import clocks
from windtunnel.emulator.threads.arrays import ThreadArray
from windtunnel.emulator.threads.state import Thread

THREADS, BLOCKS, CELLS = 3, 2, 2
STEPS = ("read", "write", "add", "exch", "load", "store", "fence", "fence_block")
ATOMICS = {"add", "exch", "load", "store"}
BODIES = {
    "read": "seen[me] = a[{cell}]",
    "write": "a[{cell}] = me + 10 * {number}",
    "add": "atomic.add(a, {cell}, 1)",
    "exch": "atomic.exch(a, {cell}, me)",
    "load": "seen[me] = atomic.load(a, {cell})",
    "store": "atomic.store(a, {cell}, me)",
    "fence": "threadfence()",
    "fence_block": "threadfence_block()",
    "barrier": "syncthreads()",
    "warp": "syncwarp()",
}


@dataclass(frozen=True)
class Step:
    """A step of one thread, or a barrier of all."""

    what: str
    cell: int
    number: int

    @property
    def line(self) -> str:
        return BODIES[self.what].format(cell=self.cell, number=self.number)


@st.composite
def programs(draw: st.DrawFn, kinds: Sequence[str] = STEPS, most: int = 3) -> list[list[list[Step]]]:
    """Stretches between barriers; in each, every thread of the grid has its own steps."""
    number = 0
    found = []
    for stretch in range(draw(st.integers(1, most))):
        mine = []
        for _ in range(THREADS * BLOCKS):
            steps = []
            # Most threads do nothing in a stretch: programs of few steps are those that tell rules apart.
            for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))):
                number += 1
                steps.append(Step(draw(st.sampled_from(kinds)), draw(st.integers(0, CELLS - 1)), number))
            mine.append(steps)
        found.append(mine)
        del stretch
    return found


def text_of(program: Sequence[Sequence[Sequence[Step]]], meetings: Sequence[str]) -> tuple[str, dict[int, Step]]:
    """The kernel, and of each of its lines the step that it is."""
    lines = [
        "from windtunnel import atomic, blockIdx, i32, syncthreads, syncwarp, threadfence, threadfence_block, threadIdx",
        "",
        "def kernel(a: i32[:], seen: i32[:]):",
        f"    me = blockIdx.x * {THREADS} + threadIdx.x",
    ]
    where: dict[int, Step] = {}
    for number, stretch in enumerate(program):
        if number:
            lines.append(f"    {BODIES[meetings[number - 1]]}")
        for thread, steps in enumerate(stretch):
            if steps:
                lines.append(f"    if me == {thread}:")
                for step in steps:
                    lines.append(f"        {step.line}")
                    where[len(lines)] = step
    return "\n".join(lines) + "\n", where


class Oracle:
    """Everything that is ordered, as a graph of steps."""

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        """Of each step, all steps that come before it."""
        self.last: dict[int, int] = {}
        self.fenced: dict[tuple[int, str], int] = {}
        """Of each thread, its last step when it fenced, to all or to its block."""
        self.carried: dict[int, list[tuple[int, int | None]]] = {}
        """Of each cell, steps that its atomic operations carry, and the block that alone may take them."""
        self.own_fence: dict[int, int] = {}
        self.touched: list[tuple[int, int, str, int, int | None]] = []
        """Thread, step, what, cell, and of an atomic operation the last fence of its thread."""

    def step(self, thread: int, after: Sequence[int]) -> int:
        """A new step of a thread, after its own last and those given."""
        found: set[int] = set()
        for one in (*after, *([self.last[thread]] if thread in self.last else [])):
            found |= {one} | self.before[one]
        self.before.append(found)
        self.last[thread] = len(self.before) - 1
        return self.last[thread]

    def meet(self, threads: Sequence[int]) -> None:
        """Threads wait for each other."""
        lasts = [self.last[thread] for thread in threads if thread in self.last]
        for thread in threads:
            self.step(thread, lasts)

    def fence(self, thread: int, scope: str) -> None:
        """What came before may be carried."""
        here = self.step(thread, [])
        self.own_fence[thread] = here
        self.fenced[thread, "block"] = here
        if scope == "fence":
            self.fenced[thread, "all"] = here

    def touch(self, thread: int, cell: int, what: str) -> bool:
        """A thread touches a cell; whether that is a race."""
        block = thread // THREADS
        after = []
        if what == "store":
            self.carried[cell] = []
        if what in ATOMICS:
            after = [step for step, only in self.carried.get(cell, []) if only is None or only == block]
        here = self.step(thread, after)
        race = False
        mine = [
            step for other, step, how, number, _ in self.touched if (other, number) == (thread, cell) and how in ATOMICS
        ]
        for other, step, how, number, fence in self.touched:
            if number != cell or other == thread or step in self.before[here]:
                continue
            # What a thread has seen by an atomic operation of its own, and whose fence it knows, is ordered.
            saw = what in ("read", "write") and how in ATOMICS - {"load"} and max(mine, default=-1) > step
            if saw and fence is not None and fence in self.before[here]:
                continue
            race |= not {how, what} <= ATOMICS and not {how, what} <= {"read", "load"}
        if what in ATOMICS - {"load"}:
            carried = self.carried.setdefault(cell, [])
            if (thread, "all") in self.fenced:
                carried.append((self.fenced[thread, "all"], None))
            if (thread, "block") in self.fenced:
                carried.append((self.fenced[thread, "block"], block))
        self.touched.append((thread, here, what, cell, self.own_fence.get(thread)))
        return race


@given(
    program=programs(),
    meetings=st.tuples(*[st.sampled_from(["barrier", "barrier", "warp"])] * 2),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_the_clocks_see_the_races_that_a_search_sees(
    tmp_path_factory: pytest.TempPathFactory, program: Any, meetings: tuple[str, ...], seed: int
) -> None:
    text, where = text_of(program, meetings)
    path = tmp_path_factory.mktemp("races") / "kernel.py"
    path.write_text(text)
    a, seen = np.zeros(CELLS, np.int32), np.zeros(THREADS * BLOCKS, np.int32)
    found = Executable(runpy.run_path(str(path))["kernel"]).specialised([a, seen])
    launch = Launch(found.program, (BLOCKS, 1, 1), (THREADS, 1, 1), "l4", 4)
    met: list[tuple[str, int, int]] = []

    with pytest.MonkeyPatch.context() as patch:
        # What the clocks are told is listened to, in its order; what they make of it is not looked at.
        for name in ("load", "store", "atomic"):
            plain = getattr(ThreadArray, name)

            def step(self: Any, me: Any, line: int, *rest: Any, plain: Any = plain) -> Any:
                if self.name == "a":
                    met.append(("touch", me.id, line))
                return plain(self, me, line, *rest)

            patch.setattr(ThreadArray, name, step)
        fence = Thread.fence
        patch.setattr(Thread, "fence", lambda me, block: (met.append(("fence", me.id, block)), fence(me, block)))
        barrier, synchronise = clocks.barrier, clocks.synchronise
        patch.setattr(clocks, "barrier", lambda b, i, c: barrier(b, i, heard(met, c)))
        patch.setattr(clocks, "synchronise", lambda c: synchronise(heard(met, c)))
        try:
            found.threads.run(launch, [a, seen], resident=BLOCKS, seed=seed)
            raced = None
        except DataRace as race:
            raced = race

    oracle, verdict = Oracle(), False
    for kind, thread, detail in met:
        assert not verdict, "the clocks went on after a race"
        if kind == "touch":
            step_ = where[detail]
            verdict = oracle.touch(thread, step_.cell, step_.what)
        elif kind == "fence":
            oracle.fence(thread, "fence_block" if detail else "fence")
        else:
            oracle.meet(detail)  # type: ignore[arg-type]
    assert verdict == (raced is not None), text


LATE = [
    [[Step("read", 0, 1)], [], [], [], [], []],
    [[], [Step("read", 0, 2)], [Step("write", 0, 3)], [], [], []],
]
"""The warp meets after one has read, and before another does: the write after it is ordered after the first alone."""


@given(
    program=programs(("read", "read", "read", "read", "write", "add", "load", "store"), 5),
    meetings=st.tuples(*[st.sampled_from(["barrier", "warp", "warp"])] * 4),
    width=st.sampled_from([1, 2, 3, 4]),
    compiled=st.booleans(),
)
@example(LATE, ("warp",) * 4, 4, False)
@example(LATE, ("warp",) * 4, 4, True)
@settings(max_examples=200, deadline=None)
def test_side_by_side_the_same_races_are_seen(
    tmp_path_factory: pytest.TempPathFactory, program: Any, meetings: tuple[str, ...], width: int, compiled: bool
) -> None:
    """What barriers and warps' meetings order does not depend on the order of steps: both ways give one verdict."""
    text, where = text_of(program, meetings)
    path = tmp_path_factory.mktemp("races") / "kernel.py"
    path.write_text(text)
    function = runpy.run_path(str(path))["kernel"]
    raced = []
    for side_by_side in (True, False):
        a, seen = np.zeros(CELLS, np.int32), np.zeros(THREADS * BLOCKS, np.int32)
        found = Executable(function).specialised([a, seen])
        grid, block = (BLOCKS, 1, 1), (THREADS, 1, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "_PYTHON_WORK", 0 if compiled else 2**60)
            try:
                if side_by_side:
                    Executable.launch(found, grid, block, [a, seen], device="l4", warp=width)
                else:
                    found.threads.run(Launch(found.program, grid, block, "l4", width), [a, seen], resident=BLOCKS)
                raced.append(False)
            except DataRace as race:
                raced.append(True)
                # What is said of it is so: these threads do conflict there, in these lines.
                steps = [where[line] for line in race.lines]
                assert len({step.cell for step in steps}) == 1, race
                assert {step.what for step in steps} not in ({"read"}, {"read", "load"}), race
                assert not {step.what for step in steps} <= ATOMICS, race
                told = {block[0] * THREADS + thread[0] for block, thread in race.threads}
                made = {number for number in told for step in steps if step in sum(
                    (stretch[number] for stretch in program), []
                )}  # fmt: skip
                assert made == told, race
    assert raced[0] == raced[1], text


def heard(met: list[Any], clocks: Any) -> list[Any]:
    clocks = list(clocks)
    met.append(("meet", -1, [clock.thread for clock in clocks]))
    return clocks
