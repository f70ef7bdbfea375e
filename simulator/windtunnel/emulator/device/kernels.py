"""What launches on an emulated device compute: thread by thread where a kernel is written so, else on whole arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.errors import Finding, InvalidArgument, LaunchError
from windtunnel.emulator.device.handles import EmulatedMemory
from windtunnel.emulator.device.launch import Executable, shared_bytes
from windtunnel.emulator.device.residency import registers_beyond, resident_blocks
from windtunnel.emulator.lockstep.compiler import Compiled
from windtunnel.emulator.races.footprint import Touching, Trace
from windtunnel.language import ir
from windtunnel.language.source import by_thread
from windtunnel.language.stencil import misfit
from windtunnel.language.types import Scalar
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.interface import Dims
from windtunnel.runtime.kernels import Kernel

if TYPE_CHECKING:
    from windtunnel.emulator.device.context import EmulatedContext
    from windtunnel.emulator.device.handles import EmulatedMemory
    from windtunnel.emulator.device.stream_order import Queue


_APART = 3 << 32
"""Between the seeds of a program's launches: a multiple of three, so that all take one kind of order."""


class Kernels:
    """The kernels of a context. ``checked``: whether what is wrong with them is looked for.

    ``schedule``: seed of the order in which threads are executed; None for the order that is quickest.
    """

    def __init__(self, context: EmulatedContext, *, checked: bool, schedule: int | None) -> None:
        self.context, self.checked, self.schedule = context, checked, schedule
        self._executables: dict[Kernel, Executable | None] = {}
        self._resident: dict[tuple[Any, ...], int] = {}
        self._traces: list[str] = []
        """Of each launch that followed a schedule, the hash of its steps."""

    @property
    def trace_hash(self) -> str:
        """Of all launches; "" where they followed no schedule."""
        return hashlib.blake2b("".join(self._traces).encode(), digest_size=16).hexdigest() if self._traces else ""

    def check(self, function: Kernel, grid: Dims, block: Dims, given: Sequence[Any], shared: int) -> None:
        """Before anything takes time: LaunchError where a kernel cannot be launched so."""
        if function not in self._executables:
            numbers = self.context.device.api.numbers
            plain = function.function
            self._executables[function] = Executable(plain, numbers) if by_thread(plain) else None
        executable, context, problem = self._executables[function], self.context, None
        if function.registers:
            problem = registers_beyond(context.device, block, function.registers)
        if problem is None and executable is not None:
            found = executable.specialised(given)
            lacked = executable.lacking(found)
            if lacked is not None:
                raise self._untyped(function, found.program, *lacked)
            most = context.info.limits.shared_bytes
            asked = shared_bytes(found) + shared
            problem = f"{asked:,} bytes of shared memory, of at most {most:,}" if asked > most else None
            self._gather(function, found, grid, block, asked)
            problem = problem or misfit(found.program, grid, block, given)
        if problem is not None:
            raise context.error(LaunchError, f"launch {function.name}", problem, "configuration")

    def _untyped(self, function: Kernel, program: ir.Program, kind: Scalar, line: int) -> LaunchError:
        """A type that the API's language lacks: its compiler would say so."""
        file, number = program.place_of(line)
        at = f"{file}:{number}: {program.text_of(line)}"
        problem = f"the kernel needs {kind}, which the API '{self.context.info.api}' does not have ({at})"
        error: LaunchError = self.context.error(LaunchError, f"launch {function.name}", problem, "source")
        error.file, error.lines = file, (number,)
        return error

    def execute(
        self,
        function: Kernel,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        given: Sequence[Any],
        shared: int,
        queue: Queue | None,
        where: tuple[str, int] | None = None,
    ) -> None:
        """Compute what a launch does. ``given``: the arguments, with arrays in place of buffers.

        ``queue``: the order of its stream, which it has entered; ``where``: the program's line, the caller's unless
        given. MissingSync, once it is done.
        """
        executable, order = self._executables[function], self.context.order
        memories: list[Any] = [a.memory if isinstance(a, Buffer) else None for a in arguments]
        found = None if executable is None else executable.specialised(given)
        if not memories or order is None or queue is None:
            self._compute(function, found, grid, block, given, memories, shared, ())
            return
        order.before(memories)
        tree = None if found is None else found.program
        touching = Touching(function.function, tree, memories, given, order.close)
        self._compute(function, found, grid, block, given, memories, shared, touching.traces)
        order.launched(queue, function.name, touching.found(), where)

    def _compute(
        self,
        function: Kernel,
        found: Compiled | None,
        grid: Dims,
        block: Dims,
        given: Sequence[Any],
        memories: Sequence[EmulatedMemory | None],
        shared: int,
        traces: Sequence[Trace | None],
    ) -> None:
        if found is None:
            self._whole(function, given, memories)
            return
        missing = [
            memory.missing(a.dtype.itemsize) if memory is not None and memory.unwritten is not False else None
            for a, memory in zip(given, memories, strict=True)
        ]
        info = self.context.info
        try:
            trace = Executable.launch(
                found,
                grid,
                block,
                given,
                device=info.name,
                warp=info.limits.warp,
                checked=self.checked,
                missing=missing,
                traces=traces,
                shared_bytes=shared,
                resident=self._fits(function, block, shared_bytes(found) + shared),
                # Each launch of a program in an order of its own.
                seed=None if self.schedule is None else self.schedule + len(self._traces) * _APART,
            )
        except Finding as finding:
            if self.schedule is not None:
                finding.under(self.schedule)
            raise
        if self.schedule is not None:
            self._traces.append(trace)
        for memory in memories:
            if memory is not None and isinstance(memory.unwritten, np.ndarray):
                memory.unwritten = memory.unwritten if memory.unwritten.any() else False

    def _whole(self, function: Kernel, given: Sequence[Any], memories: Sequence[EmulatedMemory | None]) -> None:
        result = function.function(*given)
        # NumPy's own functions return the array that they were given for their result.
        if result is not None and not any(result is one for one in given):
            problem = "it returned a value; a kernel's results go into its arrays"
            raise self.context.error(InvalidArgument, f"launch {function.name}", problem)
        for memory in memories:
            if memory is not None:
                memory.unwritten = False  # what it did not write of whole arrays is not known

    def _gather(self, function: Kernel, found: Compiled, grid: Dims, block: Dims, shared: int) -> None:
        """LaunchError where a barrier of the grid would wait for blocks that cannot be there."""
        blocks = math.prod(grid)
        if found.meets and blocks > (fits := self._fits(function, block, shared)):
            problem = (
                f"the grid's barrier waits for all {blocks:,} blocks, of which {fits:,} of {math.prod(block):,} "
                "threads fit on the device at once"
            )
            raise self.context.error(LaunchError, f"launch {function.name}", problem, "cooperative")

    def _fits(self, function: Kernel, block: Dims, shared: int) -> int:
        """Blocks that the device holds at once."""
        key = (block, shared, function.registers)
        found = self._resident.get(key)
        if found is None:
            limits = self.context.info.limits
            found = resident_blocks(self.context.device, limits, block, shared, function.registers)
            self._resident[key] = found
        return found
