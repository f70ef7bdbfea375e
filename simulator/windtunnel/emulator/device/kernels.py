"""The kernels of an emulated device: checks before a launch, and its execution by thread or on whole arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.core.errors import Deadlock, Finding, InvalidArgument, LaunchError, UninitializedRead, caller
from windtunnel.emulator.device.base import EmulatedDevice
from windtunnel.emulator.device.executable import CompiledKernel, Executable
from windtunnel.emulator.device.launch_footprint import LaunchFootprint
from windtunnel.emulator.device.memory import EmulatedMemory
from windtunnel.emulator.device.occupancy import exceeded_registers, resident_blocks
from windtunnel.emulator.device.tracked_memory import CodeLine, StreamClock
from windtunnel.emulator.races.footprint import FootprintRecorder
from windtunnel.emulator.work.launch import Counting
from windtunnel.language import ir
from windtunnel.language.source import by_thread
from windtunnel.language.stencil import launch_mismatch
from windtunnel.language.types import Scalar
from windtunnel.runtime.buffers import Buffer, Position
from windtunnel.runtime.interface import Dims
from windtunnel.runtime.kernels import ArrayOperation, Kernel
from windtunnel.runtime.steps import Steps

_SEED_STEP = 3 << 32
"""The distance between the seeds of a program's launches: a multiple of 3, so that all have one kind of schedule."""

_NEVER_BESIDE = (
    "; the host shares this memory, but an emulated kernel ends within its launch, so that what the host changes after "
    "the launch comes too late: let the host set it before, or test the loop with a flag that a kernel sets"
)
"""What is added to a deadlock on memory of the host."""


def _has_fences(program: ir.Program) -> bool:
    return any(isinstance(one, ir.Barrier) and one.scope.startswith("fence") for one in ir.walk(program.body))


def _waits_for_host(launch: KernelLaunch, kernel: CompiledKernel, deadlock: Deadlock) -> bool:
    """Return whether threads wait for an array that the host can access, such as one of mapped memory."""
    program = kernel.program
    names = [parameter.name for parameter in program.parameters]
    memories = zip(names, launch.memories, strict=False)
    shared = {name for name, memory in memories if memory is not None and memory.kind != "device"}
    if deadlock.array is not None or not shared:
        return deadlock.array in shared
    # Of a loop that never ends, the arrays are not named.
    loops = [one for one in ir.walk(program.body) if isinstance(one, ir.While) and one.line in deadlock.lines]
    read = (getattr(e, "array", None) for inner in ir.walk(loops) for e in ir.expressions(inner))
    return any(name in shared for name in read)


def _flags(memory: EmulatedMemory | None, view: np.ndarray) -> np.ndarray | None:
    return None if memory is None else memory.flags_of(view)


def _uninitialised_read(
    device: str, operation: ArrayOperation, memory: EmulatedMemory | None, view: np.ndarray, flags: np.ndarray
) -> UninitializedRead:
    """Return the finding that an operation reads an element that nothing has written."""
    file, line = caller()
    index = tuple(int(one) for one in np.argwhere(flags)[0][: view.ndim])
    place = "" if memory is None else f"; the memory is that of {memory.allocated_at[0]}:{memory.allocated_at[1]}"
    which = f"element {index[0] if len(index) == 1 else index}" if index else "the element"
    return UninitializedRead(
        f"{operation.name} on {device}: uninitialised read of {which} of an array of {view.dtype} "
        f"{view.shape}, at line {line} of {file}{place}",
        file=file,
        lines=(line,),
        index=index or None,
    )


@dataclass(frozen=True)
class KernelLaunch:
    """A launch of a kernel.

    ``arguments`` hold buffers, ``arrays`` the same arguments with arrays in their place. ``shared`` is the number of
    bytes of shared arrays without a declared size.
    """

    function: Kernel
    grid: Dims
    block: Dims
    arguments: Sequence[Any]
    arrays: Sequence[Any]
    shared: int
    kernel: CompiledKernel | None
    """The compiled kernel; None for a function of whole arrays."""

    @property
    def passed(self) -> Sequence[Any]:
        """The arguments as arrays of what the program passes, which may be a part of a memory."""
        return [
            given.reshape(-1).view(np.uint8)[argument.start : argument.start + argument.span]
            if isinstance(argument, Position)
            else given
            for argument, given in zip(self.arguments, self.arrays, strict=True)
        ]

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)

    @property
    def memories(self) -> list[EmulatedMemory | None]:
        """The memory of each argument; None for a number."""
        return [a.memory if isinstance(a, Buffer) else None for a in self.arguments]  # type: ignore[misc]


class Kernels:
    """The kernels of a device. Findings are looked for if it is ``checked``; unordered equal writes too if ``strict``.

    ``schedule`` is the seed of the order in which threads are executed; None selects the fastest order.
    """

    def __init__(self, device: EmulatedDevice, *, checked: bool, strict: bool, schedule: int | None) -> None:
        self.device, self.checked, self.strict, self.schedule = device, checked, strict, schedule
        self.steps: Steps | None = None
        """What limits the turns of loops of a launch."""
        self._executables: dict[Kernel, Executable | None] = {}
        self._resident: dict[tuple[Any, ...], int] = {}
        self._trace_hashes: list[str] = []

    def begin_schedule(self, schedule: int | None) -> None:
        """Execute the launches from now on in the order of a seed, as those of a new device."""
        self.schedule = schedule
        self._trace_hashes.clear()

    @property
    def trace_hash(self) -> str:
        """A hash of the visible steps of all launches; empty without a schedule."""
        hashes = self._trace_hashes
        return hashlib.blake2b("".join(hashes).encode(), digest_size=16).hexdigest() if hashes else ""

    def launch(self, function: Kernel, grid: Dims, block: Dims, arguments: Sequence[Any], shared: int) -> KernelLaunch:
        """Return a launch, with the arguments of the kernel's tree. Raises KernelError."""
        if function not in self._executables and not function.once:
            plain = function.function
            numbers = self.device.device.api.numbers
            self._executables[function] = Executable(plain, numbers) if by_thread(plain) else None
        executable = self._executables.get(function)
        arrays = [self.device.as_array(argument) for argument in arguments]
        if executable is None:
            return KernelLaunch(function, grid, block, arguments, arrays, shared, None)
        starts = tuple(argument.start if isinstance(argument, Buffer) else 0 for argument in arguments)
        kernel = executable.specialised(arrays, starts)
        adapted = executable.source.adapted(arrays, starts)
        given = [
            arguments[number] if number is not None and isinstance(arguments[number], Buffer) else value
            for number, value in adapted
        ]
        values = [self.device.as_array(value) for _, value in adapted]
        return KernelLaunch(function, grid, block, given, values, shared, kernel)

    def check(self, launch: KernelLaunch) -> None:
        """Raise LaunchError if a launch is not possible on the device. It takes no virtual time."""
        function, device, problem = launch.function, self.device, None
        executable, kernel = self._executables.get(function), launch.kernel
        if function.registers:
            problem = exceeded_registers(device.device, launch.block, function.registers)
        if problem is None and executable is not None and kernel is not None:
            missing = executable.first_missing_type(kernel)
            if missing is not None:
                raise self._missing_type_error(function, kernel.program, *missing)
            limit = max(device.info.limits.shared_bytes, function.allowed_shared_bytes)
            shared = kernel.shared_bytes + launch.shared
            problem = f"{shared:,} bytes of shared memory, of at most {limit:,}" if shared > limit else None
            self._check_grid_barrier(launch, kernel, shared)
            problem = problem or launch_mismatch(kernel.program, launch.grid, launch.block, launch.arrays)
        if problem is not None:
            raise device.error(LaunchError, f"launch {function.name}", problem, "configuration")

    def _missing_type_error(self, function: Kernel, program: ir.Program, kind: Scalar, line: int) -> LaunchError:
        """Return the error that the API's compiler would report for a type that it does not have."""
        file, number = program.place_of(line)
        at = f"{file}:{number}: {program.text_of(line)}"
        problem = f"the kernel needs {kind}, which the API '{self.device.info.api}' does not have ({at})"
        error: LaunchError = self.device.error(LaunchError, f"launch {function.name}", problem, "source")
        error.file, error.lines = file, (number,)
        return error

    def execute(
        self,
        launch: KernelLaunch,
        stream: StreamClock | None,
        where: CodeLine | None = None,
        counting: Counting | None = None,
    ) -> None:
        """Execute a launch that was checked. Raises a finding; MissingSync only after the execution.

        ``stream`` is the clock of its stream, in which it is enqueued, or None if stream races are not detected.
        ``where`` is the program's line, by default that of the caller. ``counting`` counts its work.
        """
        try:
            self._execute(launch, stream, where, counting)
        except Finding as finding:
            self.device.found(finding)
            raise

    def _execute(
        self, launch: KernelLaunch, stream: StreamClock | None, where: CodeLine | None, counting: Counting | None
    ) -> None:
        function, order, memories = launch.function, self.device.order, launch.memories
        kernel = launch.kernel
        if not memories or order is None or stream is None:
            self._run(launch, kernel, (), counting)
            return
        order.check_host_writes(memories)
        program = None if kernel is None else kernel.program
        is_concurrent = order.may_be_accessed_concurrently
        footprint = LaunchFootprint(function.function, program, memories, launch.arrays, is_concurrent)
        self._run(launch, kernel, footprint.recorders, counting)
        is_viewed = any(memory is not None and memory.tracked.viewed_at is not None for memory in memories)
        publishes = is_viewed and program is not None and _has_fences(program)
        order.record_launch(stream, function.name, footprint.result(), where, publishes=publishes)

    def _run(
        self,
        launch: KernelLaunch,
        kernel: CompiledKernel | None,
        recorders: Sequence[FootprintRecorder | None],
        counting: Counting | None,
    ) -> None:
        if kernel is None:
            self._run_on_arrays(launch)
            return
        uninitialised = [
            memory.uninitialised_mask(array.dtype.itemsize)
            if memory is not None and memory.uninitialised is not False
            else None
            for array, memory in zip(launch.arrays, launch.memories, strict=True)
        ]
        info = self.device.info
        try:
            trace_hash = Executable.launch(
                kernel,
                launch.grid,
                launch.block,
                launch.arrays,
                device=info.name,
                warp=info.limits.warp,
                checked=self.checked,
                strict=self.strict,
                uninitialised=uninitialised,
                recorders=recorders,
                shared_bytes=launch.shared,
                resident=self._resident_blocks(launch, kernel.shared_bytes + launch.shared),
                # Each launch of a program has an order of its own.
                seed=None if self.schedule is None else self.schedule + len(self._trace_hashes) * _SEED_STEP,
                counting=counting,
                steps=self.steps,
            )
        except Finding as finding:
            if isinstance(finding, Deadlock) and _waits_for_host(launch, kernel, finding):
                finding.add(_NEVER_BESIDE)
            if self.schedule is not None:
                finding.under(self.schedule)
            raise
        if self.schedule is not None:
            self._trace_hashes.append(trace_hash)
        for memory in launch.memories:
            if memory is not None:
                memory.recount()

    def _run_on_arrays(self, launch: KernelLaunch) -> None:
        function = launch.function
        if isinstance(function.function, ArrayOperation):
            self._run_operation(launch, function.function)
            return
        result = function.function(*launch.arrays)
        # NumPy's own functions return the array that they are given for their result.
        if result is not None and not any(result is array for array in launch.arrays):
            problem = "it returned a value, but a kernel must write its results to its arrays"
            raise self.device.error(InvalidArgument, f"launch {function.name}", problem)
        for memory in launch.memories:
            if memory is not None:
                memory.uninitialised = False  # which elements it did not write is unknown

    def _run_operation(self, launch: KernelLaunch, operation: ArrayOperation) -> None:
        """Execute a function of whole arrays that states its accesses. Raises UninitializedRead."""
        memories = launch.memories
        copied = None
        if operation.copies:
            number, view, _ = operation.reads[0]
            flags = _flags(memories[number], view)
            copied = flags.copy() if flags is not None and flags.any() else None
        else:
            for number, view, selected in operation.reads if self.checked else ():
                flags = _flags(memories[number], view)
                if flags is not None and (flags if selected is None else flags[selected]).any():
                    raise _uninitialised_read(self.device.info.name, operation, memories[number], view, flags)
        operation.action()
        for number, view, selected in operation.writes:
            memory = memories[number]
            if memory is not None:
                memory.mark_view(view, selected, copied)

    def check_read_back(self, memory: EmulatedMemory, begin: int, end: int, where: CodeLine | None = None) -> None:
        """Raise UninitializedRead if the host copies bytes ``begin`` to ``end`` of memory, and nothing has written any.

        A program may copy a whole array of which it uses the part that was written, so a copy of which only a part has
        no value is a finding with ``strict`` alone.
        """
        unwritten = memory.unwritten_bytes(begin, end) if self.checked else False
        if unwritten is False or memory.tracked.is_shared or not (unwritten is True or self.strict):
            return
        file, line = where or caller()
        which = "which nothing has written"
        if isinstance(unwritten, np.ndarray):
            which = (
                f"of which nothing has written {int(unwritten.sum()):,}, the first at byte {int(unwritten.argmax()):,}"
            )
        allocated, at = memory.allocated_at
        place = f"line {at}" if allocated == file else f"{allocated}:{at}"
        raise self.device.found(
            UninitializedRead(
                f"copy to the host on {self.device.info.name}: uninitialised read: line {line} of {file} copies "
                f"{end - begin:,} bytes, {which}; the memory is that of {place}",
                file=file,
                lines=(line,),
            )
        )

    def _check_grid_barrier(self, launch: KernelLaunch, kernel: CompiledKernel, shared: int) -> None:
        """Raise LaunchError if a grid barrier would wait for blocks that cannot be resident."""
        if not kernel.lockstep.has_grid_barrier:
            return
        resident = self._resident_blocks(launch, shared)
        if launch.blocks > resident:
            problem = (
                f"the grid barrier waits for all {launch.blocks:,} blocks, of which {resident:,} of "
                f"{math.prod(launch.block):,} threads fit on the device at once"
            )
            raise self.device.error(LaunchError, f"launch {launch.function.name}", problem, "cooperative")

    def _resident_blocks(self, launch: KernelLaunch, shared: int) -> int:
        """Return the number of blocks that the device holds at once."""
        registers = launch.function.registers
        key = (launch.block, shared, registers)
        resident = self._resident.get(key)
        if resident is None:
            limits = self.device.info.limits
            resident = resident_blocks(self.device.device, limits, launch.block, shared, registers)
            self._resident[key] = resident
        return resident
