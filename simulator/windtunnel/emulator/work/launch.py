"""Counts the work of a launch: executes some of its blocks in lockstep, on copies of the arrays that it writes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from windtunnel.core.errors import Finding
from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.lockstep.arrays import GlobalArray, LocalArray, LockstepArray, SharedArray
from windtunnel.emulator.lockstep.barriers import LockstepStalledError
from windtunnel.emulator.lockstep.compiler import HELPERS, Frame, LockstepGenerator, LockstepKernel, lowered
from windtunnel.emulator.work.counter import CountedArray, CountedChunk, WorkCounter, counted_branch
from windtunnel.emulator.work.operations import operations_of
from windtunnel.language import ir
from windtunnel.language.types import Array
from windtunnel.runtime.work_counts import ArrayTraffic, Traffic, WorkCounts

GROUPS = 8
"""Groups of consecutive blocks that are sampled, evenly spaced over the grid."""
GROUP_THREADS = 2048
"""Threads of a group; at least one block."""


class _CountingGenerator(LockstepGenerator):
    """Emits the same function, which also counts each statement before it executes it."""

    def __init__(self, program: ir.Program, body: list[ir.Stmt]) -> None:
        self._condition: dict[str, float] | None = None
        """The operations of a loop's condition, until its body is emitted."""
        super().__init__(program, body)

    def block(self, body: Sequence[ir.Stmt], frame: Frame) -> None:
        """Emit statements."""
        if self._condition is not None:
            condition, self._condition = self._condition, None
            self._executed(condition, frame)
        super().block(body, frame)

    def statement(self, statement: ir.Stmt, frame: Frame) -> None:
        """Emit a statement."""
        if not isinstance(statement, (ir.Declare, ir.ThreadExit)):
            self._executed(operations_of(statement), frame)
        if isinstance(statement, ir.Barrier):
            self.emit(f"{frame.lanes}.chunk.counter.barrier({frame.lanes})")
        if isinstance(statement, ir.While):
            self._condition = operations_of(statement)
        # What is checked and printed is so when the kernel is executed; a copy is counted as a load and a store.
        if not isinstance(statement, (ir.Require, ir.Print, ir.Flight)):
            super().statement(statement, frame)
        else:
            self.emit("pass")

    def _executed(self, operations: dict[str, float], frame: Frame) -> None:
        self.emit(f"{frame.lanes}.chunk.counter.executed({frame.lanes}, {self._constant(operations)})")


def compile_counted(kernel: LockstepKernel) -> Callable[..., None]:
    """Compile a kernel so that it counts what it does. Its chunks are `CountedChunk`, its arrays `CountedArray`."""
    generator = _CountingGenerator(kernel.program, lowered(kernel.program))
    names: dict[str, Any] = {**HELPERS, "branch": counted_branch, **generator.constants}
    source = generator.source()
    names |= generator.constants
    exec(compile(source, f"<counted {kernel.program.name}>", "exec"), names)  # noqa: S102  as in `compile_lockstep`
    run: Callable[..., None] = names["run"]
    return run


def count_work(
    kernel: LockstepKernel,
    run: Callable[..., None],
    launch: Launch,
    arguments: Sequence[Any],
    sized: Callable[[ir.Declare], ir.Declare],
    *,
    may_change: bool = False,
) -> WorkCounts | None:
    """Return what a launch does; None if its threads wait for each other, so that no sample of blocks can be executed.

    Args:
        kernel: The kernel.
        run: What `compile_counted` returned for it.
        launch: The launch.
        arguments: Arrays and numbers.
        sized: Returns a declared array with the size that the launch gives it.
        may_change: Whether the arrays may be changed; otherwise those that the kernel writes are copied.
    """
    if kernel.has_grid_barrier or kernel.polls_atomically:
        return None
    unchecked = replace(launch, checked=False)
    arrays: dict[str, LockstepArray] = {}
    scalars: dict[str, np.generic] = {}
    for parameter, argument in zip(kernel.program.parameters, arguments, strict=True):
        name = parameter.name
        if isinstance(kernel.program.arrays.get(name), Array):
            copied = argument if may_change or name not in kernel.written else argument.copy()
            arrays[name] = GlobalArray(unchecked, name, copied.shape, copied.reshape(-1))
        else:
            scalars[name] = kernel.program.scalars[name].dtype.type(argument)
    counted: list[tuple[WorkCounter, float]] = []
    try:
        with np.errstate(all="ignore"):
            for groups, blocks in _strata(math.prod(launch.grid), math.prod(launch.block)):
                counter = WorkCounter(WorkCounts(launch.grid, launch.block, blocks, 0))
                for first, count in groups:
                    counter.begin_group()
                    chunk = CountedChunk(unchecked, first, count, counter)
                    own = {
                        name: _declared(unchecked, sized(declared), chunk)
                        for name, declared in kernel.program.declared.items()
                    }
                    used = {name: CountedArray(array, counter) for name, array in {**arrays, **own}.items()}
                    run(Lanes(chunk), used, scalars)
                    counter.counts.sampled += count
                counted.append((counter, blocks / counter.counts.sampled))
    except (Finding, LockstepStalledError):
        return None  # the launch itself will report what is wrong
    return _total(counted)


def _declared(launch: Launch, declared: ir.Declare, chunk: CountedChunk) -> LockstepArray:
    kind = SharedArray if declared.space == "shared" else LocalArray
    return kind(launch, declared, chunk, checked=False)


def _strata(blocks: int, threads: int) -> list[tuple[list[tuple[int, int]], int]]:
    """Return the sampled groups, and the number of blocks that they stand for, in one or two parts of the grid.

    A group is (first block, number of blocks). Few blocks are all sampled. Otherwise the last group stands for itself,
    because the threads at the end of an array are often idle.
    """
    size = max(GROUP_THREADS // threads, 1)
    if blocks <= GROUPS * size:
        return [([(first, min(size, blocks - first)) for first in range(0, blocks, size)], blocks)]
    last = blocks - size
    inner = [(group * (last - size) // (GROUPS - 2), size) for group in range(GROUPS - 1)]
    return [(inner, last), ([(last, size)], size)]


def _total(counted: Sequence[tuple[WorkCounter, float]]) -> WorkCounts:
    """Return the counts of all blocks; each part's counts are multiplied by its factor."""
    first = counted[0][0].counts
    total = WorkCounts(first.grid, first.block, sum(counter.counts.blocks for counter, _ in counted), 0)
    operations: dict[str, float] = defaultdict(float)
    busy: dict[str, np.ndarray] = {}
    for counter, factor in counted:
        counts = counter.counts
        total.sampled += counts.sampled
        for name, count in counter.operations.items():
            operations[name] += count * factor
        for field in fields(counts):
            value, sum_before = getattr(counts, field.name), getattr(total, field.name)
            if isinstance(value, Traffic):
                setattr(total, field.name, sum_before.plus(value, factor))
            elif isinstance(value, float):
                setattr(total, field.name, sum_before + value * factor)
        for name, one in counts.arrays.items():
            known = total.arrays.setdefault(name, ArrayTraffic(one.size))
            known.loaded += one.loaded * factor
            known.stored += one.stored * factor
        for name, turns in counter.busy.items():
            busy[name] = busy.get(name, 0.0) + turns * factor
    total.operations = dict(sorted(operations.items()))
    total.atomic_turns = max((float(turns.max()) for turns in busy.values()), default=0.0)
    return total
