"""A kernel written thread by thread: compilation for argument types, and the choice of how a launch is executed."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from windtunnel.core.errors import (
    BarrierDivergence,
    ChecksSkippedWarning,
    DataRace,
    Finding,
    InputError,
    UninitializedRead,
    caller,
)
from windtunnel.core.spec import Numbers
from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.launch import Launch, LockstepStalledError
from windtunnel.emulator.common.layout import Chunk
from windtunnel.emulator.device.number_formats import adapt_numbers, first_missing_type
from windtunnel.emulator.lockstep.arrays import GlobalArray, LocalArray, LockstepArray, SharedArray
from windtunnel.emulator.lockstep.compiler import LockstepKernel, compile_lockstep
from windtunnel.emulator.races.flights import Flights
from windtunnel.emulator.races.footprint import FootprintRecorder
from windtunnel.emulator.races.shadow_memory import ShadowMemory
from windtunnel.emulator.threads.launch import ThreadKernel
from windtunnel.emulator.work.launch import Counting
from windtunnel.language import ir
from windtunnel.language.opencl_words import put_into_opencl
from windtunnel.language.specialise import kernel_source
from windtunnel.language.types import Array, Scalar
from windtunnel.runtime.interface import Dims
from windtunnel.runtime.steps import Steps

CHUNK_THREADS = 1 << 15
"""Threads of a chunk, so that their values stay in a processor's second-level cache."""
MAX_THREADS = 1 << 16
"""Threads that are executed one by one because of fences or waiting: this many take some ten seconds."""
MAX_SPINNING_THREADS = 1 << 12
"""Threads with locks and flags that are executed one by one at once. More are first tried in lockstep."""


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel compiled for some argument types, for both ways of execution."""

    lockstep: LockstepKernel
    threads: ThreadKernel

    @property
    def program(self) -> ir.Program:
        """The typed tree."""
        return self.lockstep.program

    @property
    def shared_bytes(self) -> int:
        """Bytes of the shared arrays that the kernel declares with a size."""
        arrays = [declared for declared in self.program.declared.values() if declared.space == "shared"]
        return sum(math.prod(array.shape) * array.element.dtype.itemsize for array in arrays)


class Executable:
    """A kernel, compiled for each combination of argument types when it is first launched with it.

    ``numbers`` are the number formats of the device's API.
    """

    def __init__(self, function: Callable[..., Any], numbers: Numbers | None = None) -> None:
        self.source = kernel_source(function)
        self.numbers = numbers or Numbers()
        self._compiled: dict[int, CompiledKernel] = {}
        """Compiled kernels by the id of the tree."""
        self._trees: list[ir.Program] = []
        """The trees, which are kept so that no other gets an id of theirs."""
        self._missing_types: dict[int, tuple[Scalar, int] | None] = {}

    def specialised(self, arguments: Sequence[Any], starts: Sequence[int] = ()) -> CompiledKernel:
        """Return the kernel compiled for arguments of these types. Raises KernelError.

        ``starts``: for each argument, the byte of its array that a pointer points to. The default is the first one.
        """
        tree = self.source.typed(arguments, starts)
        kernel = self._compiled.get(id(tree))
        if kernel is None:
            # The tree is changed, and other devices have other number formats.
            lockstep = compile_lockstep(adapt_numbers(deepcopy(tree), self.numbers))
            kernel = self._compiled[id(tree)] = CompiledKernel(
                lockstep, ThreadKernel(lockstep.program, lockstep.written)
            )
            self._trees.append(tree)
        return kernel

    def first_missing_type(self, kernel: CompiledKernel) -> tuple[Scalar, int] | None:
        """Return a type that the kernel needs and the device's API lacks, with its line; None if there is none."""
        if id(kernel) not in self._missing_types:
            self._missing_types[id(kernel)] = first_missing_type(kernel.program, self.numbers.lacks)
        return self._missing_types[id(kernel)]

    # Long: half of it is the signature and the description of its arguments.
    @staticmethod
    def launch(
        kernel: CompiledKernel,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        *,
        device: str,
        warp: int = 32,
        checked: bool = True,
        strict: bool = False,
        uninitialised: Sequence[np.ndarray | None] = (),
        recorders: Sequence[FootprintRecorder | None] = (),
        shared_bytes: int = 0,
        resident: int = 1 << 31,
        seed: int | None = None,
        counting: Counting | None = None,
        steps: Steps | None = None,
    ) -> str:
        """Execute a kernel on arrays, in place.

        It is executed thread by thread with a seed, and where fences order threads or locks and flags make them wait;
        otherwise in lockstep.

        Args:
            kernel: The kernel.
            grid: Blocks along x, y and z.
            block: Threads of a block along x, y and z.
            arguments: Arrays and numbers of the types that the kernel was compiled for.
            device: Name of the device, for messages.
            warp: Threads of a warp.
            checked: Whether findings are looked for.
            strict: Whether unordered writes of an equal value are a finding.
            uninitialised: For each argument, flags of the elements that nothing has written. Writes clear them.
            recorders: For each argument, what records the accessed elements.
            shared_bytes: Bytes of the shared arrays that the kernel declares without a size.
            resident: Blocks that the device holds at once.
            seed: Selects the order in which threads are executed.
            counting: Counts the work of the launch: while it is executed in lockstep, or on copies of the arrays before
                it is executed thread by thread.
            steps: Limits the turns of loops.

        Returns:
            A hash of the steps that are visible to other threads; empty without a seed.

        Raises:
            Finding: The first one.
            StepsExceededError: The launch takes more steps than it may.
        """
        launch = Launch(kernel.program, grid, block, device, warp, checked=checked, strict=strict, steps=steps)
        if steps is not None:
            steps.begin()
        try:
            return _launch(kernel, launch, arguments, uninitialised, recorders, shared_bytes, resident, seed, counting)
        except Finding as found:
            first = found
            if isinstance(found, (DataRace, UninitializedRead)):
                first = _divergence(kernel, launch, found, arguments, shared_bytes, resident, seed) or found
            if first is found and isinstance(found, UninitializedRead):
                first = _race(kernel, launch, found, arguments, shared_bytes, resident) or found
            if kernel.program.is_opencl:
                put_into_opencl(first)
            raise first from None


# Long: one case for each way of execution.
def _launch(
    kernel: CompiledKernel,
    launch: Launch,
    arguments: Sequence[Any],
    uninitialised: Sequence[np.ndarray | None],
    recorders: Sequence[FootprintRecorder | None],
    shared_bytes: int,
    resident: int,
    seed: int | None,
    counting: Counting | None,
) -> str:
    """Execute a kernel. Raises the first finding."""
    checked, warp = launch.checked, launch.warp
    blocks, threads = math.prod(launch.grid), math.prod(launch.block)
    lockstep = kernel.lockstep

    def sized(declared: ir.Declare) -> ir.Declare:
        return with_size(declared, shared_bytes)

    def run_threads() -> str:
        return kernel.threads.run(
            launch,
            arguments,
            resident=resident,
            checked=checked,
            uninitialised=uninitialised,
            recorders=recorders,
            seed=seed,
            sized=sized,
        )

    # Elements of two sizes in one memory have records of their pieces, which lockstep execution does not have.
    mixed = checked and _has_elements_of_two_sizes(lockstep, arguments)
    fits = blocks * threads <= MAX_SPINNING_THREADS or blocks > resident
    by_thread = seed is not None or (lockstep.polls_atomically and fits)
    if by_thread or mixed or (checked and lockstep.has_fences):
        if by_thread or blocks * threads <= MAX_THREADS:
            if counting is not None:
                counting.on_copies(lockstep, arguments, sized, launch.steps)
            return run_threads()
        reason = "parameters that are one buffer" if mixed else "fences"
        warnings.warn_explicit(
            f"{launch}: race detection skipped: {blocks * threads:,} threads with {reason} exceed the limit of "
            f"{MAX_THREADS:,}",
            ChecksSkippedWarning,
            *caller(),
        )
    is_partial = lockstep.may_diverge or lockstep.shuffles_in_part or (lockstep.has_shuffles and threads % warp > 0)
    launch.ignores_partial_warps = not is_partial or blocks * threads > MAX_THREADS
    launch.follows_moved = lockstep.passes_elements and blocks * threads <= MAX_THREADS
    may_stall = lockstep.has_spin_loops or is_partial or launch.follows_moved
    before = _Snapshot(lockstep, arguments, uninitialised, recorders) if may_stall else None
    try:
        _run_lockstep(lockstep, launch, arguments, uninitialised, recorders, sized, counting)
    except LockstepStalledError:
        assert before is not None  # noqa: S101  only spin loops and divergent warps stall
        before.restore()
        return run_threads()
    except BarrierDivergence:
        # Thread by thread, the others are seen to continue: to another barrier, or to their end.
        if before is None or blocks * threads > MAX_THREADS:
            raise
        before.restore()
        run_threads()
        raise
    return ""


def _divergence(
    kernel: CompiledKernel,
    launch: Launch,
    found: Finding,
    arguments: Sequence[Any],
    shared_bytes: int,
    resident: int,
    seed: int | None,
) -> BarrierDivergence | None:
    """Return the divergence at a barrier in a launch that has another finding, which may follow from it.

    It is looked for on copies of the arrays, without checks, and only if not all threads come to all barriers by what
    the kernel's text says.
    """
    body = list(ir.walk(kernel.lockstep.body))
    ends = any(isinstance(one, (ir.Return, ir.ThreadExit)) for one in body)
    within = [one for one in body if isinstance(one, ir.Barrier) and one.scope.startswith("block")]
    if not ends:
        within = [one for one in within if not any(one is outer for outer in kernel.lockstep.body)]
    if not within or math.prod(launch.grid) * math.prod(launch.block) > MAX_THREADS:
        return None
    copies = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            _launch(kernel, replace(launch, checked=False), copies, (), (), shared_bytes, resident, seed, None)
    except BarrierDivergence as divergence:
        text = str(found).removeprefix(f"{launch}: ")
        divergence.args = (f"{divergence}; threads that go on without it have this finding: {text}",)
        return divergence
    except (Finding, InputError):
        return None
    return None


def _race(
    kernel: CompiledKernel,
    launch: Launch,
    found: Finding,
    arguments: Sequence[Any],
    shared_bytes: int,
    resident: int,
) -> DataRace | None:
    """Return the race on a shared array that a thread reads before any write, if another writes it without order.

    It is looked for thread by thread, on copies of the arrays: in lockstep, the read comes before all later writes.
    """
    declared = kernel.lockstep.program.declared.get(found.array or "")
    if declared is None or declared.space != "shared" or math.prod(launch.grid) * math.prod(launch.block) > MAX_THREADS:
        return None
    copies = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            kernel.threads.run(launch, copies, resident=resident, sized=lambda one: with_size(one, shared_bytes))
    except DataRace as race:
        return race if race.array == found.array else None
    except (Finding, InputError):
        return None
    return None


_HUGE, _HUGE_SHIFT = 1 << 28, 7
"""Threads from which on chunks are larger, by a factor of two to the second number: most of such a launch is alike."""


class _Snapshot:
    """The state that a launch may change, as it was before."""

    def __init__(
        self,
        kernel: LockstepKernel,
        arguments: Sequence[Any],
        uninitialised: Sequence[np.ndarray | None],
        recorders: Sequence[FootprintRecorder | None],
    ) -> None:
        self._recorders = recorders
        named = zip(kernel.program.parameters, arguments, strict=True)
        self._arrays = [(array, array.copy()) for p, array in named if p.name in kernel.written]
        self._arrays += [(flags, flags.copy()) for flags in uninitialised if flags is not None]

    def restore(self) -> None:
        """Restore the state."""
        for array, copy in self._arrays:
            array[...] = copy
        for recorder in self._recorders:
            if recorder is not None:
                recorder.marks.clear()


def _run_lockstep(
    kernel: LockstepKernel,
    launch: Launch,
    arguments: Sequence[Any],
    uninitialised: Sequence[np.ndarray | None],
    recorders: Sequence[FootprintRecorder | None],
    sized: Callable[[ir.Declare], ir.Declare],
    counting: Counting | None,
) -> None:
    program, checked = kernel.program, launch.checked
    arrays: dict[str, LockstepArray] = {}
    scalars: dict[str, np.generic] = {}
    nothing = [None] * len(arguments)
    flags, recorders = list(uninitialised) or nothing, list(recorders) or nothing
    for number, parameter in enumerate(program.parameters):
        name, argument = parameter.name, arguments[number]
        if not isinstance(program.arrays.get(name), Array):
            scalars[name] = program.scalars[name].dtype.type(argument)
            continue
        parameter_array = arrays[name] = GlobalArray(launch, name, argument.shape, argument.reshape(-1))
        parameter_array.copies_reads = bool(kernel.written)
        parameter_array.uninitialised = flags[number] if checked else None
        parameter_array.recorder = recorders[number]
    blocks = math.prod(launch.grid)
    # Only execution thread by thread follows the order that fences make.
    finds_races = checked and not kernel.has_fences
    if finds_races:
        _add_shadow_memory(kernel, arrays, launch)
    step = blocks if kernel.has_grid_barrier else _chunk_blocks(launch)
    with np.errstate(all="ignore"):
        for first in range(0, blocks, step):
            count = min(step, blocks - first)
            counted = None if counting is None else counting.chunk(launch, first, count)
            chunk = counted or Chunk(launch, first, count)
            chunk.flights = Flights()
            own = _own_arrays(program, launch, chunk, sized)
            if not finds_races:
                for array in own.values():
                    array.shadow = None
            used = {**arrays, **own}
            for array in used.values():
                array.copies.clear()
                array.counter = None if counted is None else counted.counter
            run = kernel.run if counting is None or counted is None else counting.run
            run(Lanes(chunk), used, scalars)
            chunk.flights.finish(program, checked=checked)
    if counting is not None:
        counting.finish(program, sized)


def _chunk_blocks(launch: Launch) -> int:
    """Return the number of blocks that are executed together."""
    blocks, threads = math.prod(launch.grid), math.prod(launch.block)
    chunk_threads = CHUNK_THREADS if blocks * threads < _HUGE else CHUNK_THREADS << _HUGE_SHIFT
    step = max(chunk_threads // threads, 1)
    # Whole rows of the grid, if they fit: their elements are then views of a two-dimensional array.
    return step - step % launch.grid[0] if launch.grid[0] < step < blocks else step


def _own_arrays(
    program: ir.Program, launch: Launch, chunk: Chunk, sized: Callable[[ir.Declare], ir.Declare]
) -> dict[str, LockstepArray]:
    """Return the arrays that each block, or each thread, of a chunk has its own of."""
    return {
        name: (SharedArray if declared.space == "shared" else LocalArray)(
            launch, sized(declared), chunk, checked=launch.checked
        )
        for name, declared in program.declared.items()
    }


def _add_shadow_memory(kernel: LockstepKernel, arrays: dict[str, LockstepArray], launch: Launch) -> None:
    """Add shadow memory to the arrays in which threads may race. Parameters that are one buffer share it."""
    used = frozenset(axis for axis in range(3) if launch.grid[axis] * launch.block[axis] > 1)
    by_address: dict[int, list[str]] = {}
    for name, array in arrays.items():
        by_address.setdefault(array.flat.__array_interface__["data"][0], []).append(name)
    for names in by_address.values():
        written = [name for name in names if name in kernel.written]
        if not written or len({arrays[name].flat.itemsize for name in names}) > 1:
            continue
        private_axes = kernel.private.get(written[0])
        if len(names) == 1 and private_axes is not None and private_axes >= used:
            continue
        shadow = ShadowMemory(arrays[names[0]].flat.size, math.prod(launch.block), launch.warp)
        for name in names:
            arrays[name].shadow = shadow


def _has_elements_of_two_sizes(kernel: LockstepKernel, arguments: Sequence[Any]) -> bool:
    """Return whether parameters that are one buffer, which the kernel changes, have elements of different sizes."""
    sizes: dict[int, set[int]] = {}
    changed = set()
    for parameter, argument in zip(kernel.program.parameters, arguments, strict=True):
        if isinstance(kernel.program.arrays.get(parameter.name), Array):
            address = int(argument.__array_interface__["data"][0])
            sizes.setdefault(address, set()).add(argument.itemsize)
            if parameter.name in kernel.written:
                changed.add(address)
    return any(len(sizes[address]) > 1 for address in changed)


def with_size(declared: ir.Declare, shared_bytes: int) -> ir.Declare:
    """Return a declared array with the size that the launch gives it, if it is declared without one."""
    if declared.shape != (0,):
        return declared
    return replace(declared, shape=(shared_bytes // declared.element.dtype.itemsize,))
