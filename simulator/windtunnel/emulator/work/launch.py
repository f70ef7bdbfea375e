"""The counted work of a launch: a kernel compiled so that it counts, and the totals for all blocks of a grid."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from windtunnel.core.errors import Finding
from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.launch import Launch, LockstepStalledError
from windtunnel.emulator.lockstep.arrays import GlobalArray, LocalArray, LockstepArray, SharedArray
from windtunnel.emulator.lockstep.compiler import HELPERS, Frame, LockstepGenerator, LockstepKernel
from windtunnel.emulator.races.flights import Flights
from windtunnel.emulator.work.counter import TRAFFIC, CountedChunk, Group, WorkCounter, counted_branch, plan_of
from windtunnel.emulator.work.operations import operations_of
from windtunnel.language import ir
from windtunnel.language.types import Array
from windtunnel.runtime.steps import Steps
from windtunnel.runtime.work_counts import ArrayTraffic, Traffic, WorkCounts

_QUANTILE = 2.92
"""The 95% quantile of Student's distribution with two degrees of freedom: three groups are compared."""
TURN_BYTES = (128, 256, 1024)
"""Bytes that lie in one part of the last-level cache, in which atomic operations take turns: low, best and high number.
The parts of 256 bytes are those of NVIDIA's memory partitions (G. Ruetsch and P. Micikevicius, "Optimizing Matrix
Transpose in CUDA", 2009); newer devices spread addresses by functions that are not published."""


class _CountingGenerator(LockstepGenerator):
    """Emits the same function, which also counts each run of statements before it executes it."""

    def __init__(self, kernel: LockstepKernel) -> None:
        self._condition: Mapping[str, float] = {}
        """The operations of a loop's condition, until its body is emitted."""
        self.runs: list[Mapping[str, float]] = []
        self._branches = 0
        super().__init__(kernel.program, kernel.body, kernel.varying)

    def block(self, body: Sequence[ir.Stmt], frame: Frame) -> None:
        """Emit statements, in runs that end with a branch or a loop."""
        if not body and not self._condition:
            self.emit("pass")
        rest, condition = list(body), self._condition
        self._condition = {}
        while rest or condition:
            run, operations = [], Counter(condition)
            condition = {}
            while rest:
                statement = rest.pop(0)
                run.append(statement)
                if not isinstance(statement, (ir.Declare, ir.ThreadExit, ir.Require, ir.Forget)):
                    operations.update(operations_of(statement))
                if isinstance(statement, (ir.If, ir.While)):
                    break
            if operations:
                self.emit(f"{frame.lanes}.chunk.counter.executed({frame.lanes}, {len(self.runs)})")
                self.runs.append(dict(operations))
            for statement in run:
                self.statement(statement, frame)

    def statement(self, statement: ir.Stmt, frame: Frame) -> None:
        """Emit a statement."""
        if isinstance(statement, ir.Barrier):
            self.emit(f"{frame.lanes}.chunk.counter.barrier({frame.lanes})")
        if isinstance(statement, ir.While):
            self._condition = operations_of(statement)
        super().statement(statement, frame)

    def branch(self, frame: Frame, condition: str) -> str:
        """Return the text of a call that divides the threads at a branch, which has a number."""
        self._branches += 1
        return f"branch({frame.lanes}, {condition}, {self._branches})"


@dataclass(frozen=True)
class CountedKernel:
    """A kernel compiled so that it counts: ``run`` takes a `CountedChunk`; ``runs`` are what it executes."""

    run: Callable[..., None]
    runs: Sequence[Mapping[str, float]]


def compile_counted(kernel: LockstepKernel) -> CountedKernel:
    """Compile a kernel so that it counts what it does."""
    generator = _CountingGenerator(kernel)
    source = generator.source()
    names: dict[str, Any] = {**HELPERS, "branch": counted_branch, **generator.constants}
    exec(compile(source, f"<counted {kernel.program.name}>", "exec"), names)  # noqa: S102  as in `compile_lockstep`
    return CountedKernel(names["run"], generator.runs)


class Counting:
    """Counts one launch, while it is executed or on copies of its arrays.

    Args:
        kernel: The kernel, compiled so that it counts.
        launch: The launch.
        l1_sectors: Sectors that a block's share of the L1 cache holds.
        group_threads: Threads of a counted group; at least one block.
    """

    def __init__(self, kernel: CountedKernel, launch: Launch, l1_sectors: float, group_threads: int) -> None:
        self.run, self._launch = kernel.run, launch
        self._groups = plan_of(math.prod(launch.grid), math.prod(launch.block), group_threads)
        self._counter = WorkCounter(self._groups, kernel.runs, l1_sectors)
        self.counts: WorkCounts | None = None
        """The result; None as long as the launch has not been executed in lockstep to its end."""

    def chunk(self, launch: Launch, first: int, blocks: int) -> CountedChunk | None:
        """Return a chunk of blocks of the launch as it is executed, if some of them are counted."""
        return self._counter.chunk(launch, first, blocks)

    def finish(self, program: ir.Program, sized: Callable[[ir.Declare], ir.Declare]) -> None:
        """Compute the result. ``sized`` returns a declared array with the size that the launch gives it."""
        counts = totals(self._launch, self._groups, self._counter)
        own = [sized(declared) for declared in program.declared.values() if declared.space == "local"]
        counts.local_bytes = float(sum(math.prod(one.shape) * one.element.dtype.itemsize for one in own))
        self.counts = counts

    def on_copies(
        self,
        kernel: LockstepKernel,
        arguments: Sequence[Any],
        sized: Callable[[ir.Declare], ir.Declare],
        steps: Steps | None = None,
        *,
        may_change: bool = False,
    ) -> None:
        """Execute the counted blocks in lockstep, on copies of the arrays that the kernel writes.

        Nothing is counted if its threads wait for each other. ``may_change``: the arrays need not be copied. ``steps``
        limits the turns of loops.
        """
        if kernel.polls_atomically or (kernel.has_grid_barrier and len(self._groups) > 1):
            return
        unchecked = replace(self._launch, checked=False, steps=steps)
        arrays: dict[str, LockstepArray] = {}
        scalars: dict[str, np.generic] = {}
        for parameter, argument in zip(kernel.program.parameters, arguments, strict=True):
            name = parameter.name
            if isinstance(kernel.program.arrays.get(name), Array):
                copied = argument if may_change or name not in kernel.written else argument.copy()
                arrays[name] = GlobalArray(unchecked, name, copied.shape, copied.reshape(-1))
            else:
                scalars[name] = kernel.program.scalars[name].dtype.type(argument)
        try:
            with np.errstate(all="ignore"):
                for group in self._groups:
                    chunk = self._counter.chunk(unchecked, group.first, group.blocks)
                    assert chunk is not None  # noqa: S101  the blocks are those of a group
                    chunk.flights = Flights()
                    own: dict[str, LockstepArray] = {
                        name: (SharedArray if declared.space == "shared" else LocalArray)(
                            unchecked, sized(declared), chunk, checked=False
                        )
                        for name, declared in kernel.program.declared.items()
                    }
                    for array in (*arrays.values(), *own.values()):
                        array.counter = self._counter
                    self.run(Lanes(chunk), {**arrays, **own}, scalars)
        except (Finding, LockstepStalledError):
            return  # the launch itself will report what is wrong
        self.finish(kernel.program, sized)


def totals(launch: Launch, groups: Sequence[Group], counter: WorkCounter) -> WorkCounts:
    """Return the counts of all blocks: those of each group times its weight."""
    weights = np.array([group.weight for group in groups])
    blocks = math.prod(launch.grid)
    counts = WorkCounts(launch.grid, launch.block, blocks, sum(group.blocks for group in groups))
    operations: dict[str, float] = defaultdict(float)
    instructions = np.zeros(len(groups))
    counter.flush()
    for run, site in zip(counter.operations, counter.runs, strict=True):
        threads = _total(site.total[0], weights)
        for name, count in run.items():
            if name != "instructions":
                operations[name] += count * threads
        instructions += run["instructions"] * site.total[1]
        counts.thread_instructions += run["instructions"] * threads
    counts.operations = {name: count for name, count in sorted(operations.items()) if count}
    counts.instructions = _total(instructions, weights)
    for site in counter.branches.values():
        counts.branches += _total(site.total[1], weights)
        counts.divergent_branches += _total(site.total[2], weights)
    counts.barriers = _total(counter.barriers.total[1], weights)
    cache = np.zeros(len(groups))
    for (kind, _, _), (memory, site) in counter.sites.items():
        found = {name: _total(values, weights) for name, values in zip(TRAFFIC, site.total, strict=True)}
        field = "local" if memory == "local" else f"{'shared_' if memory == 'shared' else ''}{_FIELDS[kind]}"
        setattr(counts, field, getattr(counts, field).plus(Traffic(**found), 1.0))
        if memory == "global":
            cache += site.total[TRAFFIC.index("sectors")] - site.total[TRAFFIC.index("hits")]
    moved_bytes = np.zeros(len(groups))
    for name, moved in counter.moved.items():
        of_array = moved.totals()
        counts.arrays[name] = ArrayTraffic(moved.size, *(_total(of_array[key], weights) for key in _MOVED))
        moved_bytes += of_array["fetched"] + of_array["stored"] + of_array["filled"]
    counts.atomic_turns = _turns(counter, weights)
    each = {"instructions": instructions, "cache": cache, "memory": moved_bytes}
    counts.spread = {name: _spread(values, groups, blocks) for name, values in each.items()}
    return counts


_FIELDS = {"load": "loads", "store": "stores", "atomic": "atomics"}
_MOVED = ("loaded", "fetched", "stored", "filled")


def _total(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the sum for all blocks, without the rounding errors of the weights."""
    return round(float(values @ weights), 3)


def _turns(counter: WorkCounter, weights: np.ndarray) -> dict[int, float]:
    """Return the turns of the busiest part of the cache, by the bytes that lie in one part.

    A line at which several groups operate is one at which all blocks do. Others belong to their groups alone.
    """
    most = dict.fromkeys(TURN_BYTES, 0.0)
    for moved in counter.moved.values():
        if moved.turns is None:
            continue
        each = moved.turns
        of_line = each.sum(axis=0)
        if len(weights) > 1:
            of_line = np.where(np.count_nonzero(each, axis=0) > 1, weights @ each, of_line)
        for size in TURN_BYTES:
            lines = size // TURN_BYTES[0]
            padded = np.pad(of_line, (0, -len(of_line) % lines)).reshape(-1, lines).sum(axis=1)
            most[size] = max(most[size], float(padded.max()))
    return most if any(most.values()) else {}


def _spread(values: np.ndarray, groups: Sequence[Group], blocks: int) -> float:
    """Return half the width of the 90% interval of a total, relative to it; two groups stand for themselves."""
    if len(groups) == 1:
        return 0.0
    inner, weight = values[1:-1], groups[1].weight
    total = weight * float(inner.sum()) + float(values[0] + values[-1])
    seen = sum(group.blocks for group in groups) / blocks
    error = _QUANTILE * float(inner.std(ddof=1)) * math.sqrt(len(inner) * (1.0 - seen)) * weight
    return error / total if total else 0.0
