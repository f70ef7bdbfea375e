"""Counts the work of a launch: executes some of its blocks in lockstep, on copies of the arrays that it writes."""

from __future__ import annotations

import math
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
        super().statement(statement, frame)

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
    blocks = math.prod(launch.grid)
    counter = WorkCounter(WorkCounts(launch.grid, launch.block, blocks, 0))
    unchecked = replace(launch, checked=False)
    arrays: dict[str, Any] = {}
    scalars: dict[str, np.generic] = {}
    for parameter, argument in zip(kernel.program.parameters, arguments, strict=True):
        name = parameter.name
        if isinstance(kernel.program.arrays.get(name), Array):
            copied = argument if may_change or name not in kernel.written else argument.copy()
            arrays[name] = CountedArray(GlobalArray(unchecked, name, copied.shape, copied.reshape(-1)), counter)
        else:
            scalars[name] = kernel.program.scalars[name].dtype.type(argument)
    try:
        with np.errstate(all="ignore"):
            for first, count in _samples(blocks, math.prod(launch.block)):
                counter.begin_group()
                chunk = CountedChunk(unchecked, first, count, counter)
                own = {
                    name: CountedArray(_declared(unchecked, sized(declared), chunk), counter)
                    for name, declared in kernel.program.declared.items()
                }
                run(Lanes(chunk), {**arrays, **own}, scalars)
                counter.counts.sampled += count
    except (Finding, LockstepStalledError):
        return None  # the launch itself will report what is wrong
    return _scaled(counter)


def _declared(launch: Launch, declared: ir.Declare, chunk: CountedChunk) -> LockstepArray:
    kind = SharedArray if declared.space == "shared" else LocalArray
    return kind(launch, declared, chunk, checked=False)


def _samples(blocks: int, threads: int) -> list[tuple[int, int]]:
    """Return (first block, number of blocks) of the sampled groups: all blocks if they are few."""
    size = max(GROUP_THREADS // threads, 1)
    if blocks <= GROUPS * size:
        return [(first, min(size, blocks - first)) for first in range(0, blocks, size)]
    return [(group * (blocks - size) // (GROUPS - 1), size) for group in range(GROUPS)]


def _scaled(counter: WorkCounter) -> WorkCounts:
    """Return the counts of all blocks."""
    counts = counter.counts
    factor = counts.blocks / counts.sampled
    counts.operations = {name: count * factor for name, count in sorted(counter.operations.items())}
    counts.atomic_clocks = factor * max((float(busy.max()) for busy in counter.busy.values()), default=0.0)
    for field in fields(counts):
        value = getattr(counts, field.name)
        if isinstance(value, Traffic):
            setattr(counts, field.name, value.scaled(factor))
        elif isinstance(value, float) and field.name not in ("atomic_clocks", "cache_size"):
            setattr(counts, field.name, value * factor)
    counts.arrays = {
        name: ArrayTraffic(one.size, one.loaded * factor, one.stored * factor) for name, one in counts.arrays.items()
    }
    return counts
