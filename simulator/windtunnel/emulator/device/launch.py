"""A kernel written thread by thread, launched: compiled for its arguments' types, executed some blocks at a time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from windtunnel.core.device import Numbers
from windtunnel.core.errors import BarrierDivergence, Unwatched, caller
from windtunnel.emulator.lockstep.arrays import Global, Launch, Local, Memory, Shared, Waits
from windtunnel.emulator.lockstep.compiler import Compiled, compiled
from windtunnel.emulator.lockstep.lanes import Chunk, Lanes
from windtunnel.emulator.lockstep.number_formats import adapted, lacking
from windtunnel.emulator.races.footprint import Trace, Traced
from windtunnel.emulator.races.watch import Shadow
from windtunnel.language import ir
from windtunnel.language.infer import infer
from windtunnel.language.specialise import specialised
from windtunnel.language.types import Array, Scalar, Type
from windtunnel.runtime.interface import Dims

CHUNK = 1 << 15
"""Threads of a chunk: their values stay in a processor's second cache."""
MOST = 1 << 16
"""Threads that are executed one by one because of what they wait for or fence: some ten seconds of them."""
FEW = 1 << 12
"""Threads with locks and flags that are executed so at once, and not only if side by side they cannot go on."""


class Executable:
    """A kernel, compiled for each set of argument types that it meets."""

    def __init__(self, function: Callable[..., Any], numbers: Numbers | None = None) -> None:
        self.function = function
        self.numbers = numbers or Numbers()
        """How the device does numbers."""
        self._compiled: dict[tuple[Type, ...], Compiled] = {}
        self._lacking: dict[int, tuple[Scalar, int] | None] = {}

    def specialised(self, arguments: Sequence[Any]) -> Compiled:
        """The kernel for arguments of these types."""
        program, types = specialised(self.function, arguments)
        key = tuple(types.values())
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = compiled(adapted(infer(program, types), self.numbers))
        return found

    def lacking(self, found: Compiled) -> tuple[Scalar, int] | None:
        """(a type that the kernel needs and the device's API lacks, the kernel's line); None where it lacks none."""
        if id(found) not in self._lacking:
            self._lacking[id(found)] = lacking(found.program, self.numbers.lacks)
        return self._lacking[id(found)]

    @staticmethod
    def launch(
        found: Compiled,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        *,
        device: str,
        warp: int = 32,
        checked: bool = True,
        missing: Sequence[np.ndarray | None] = (),
        traces: Sequence[Trace | None] = (),
        shared_bytes: int = 0,
        resident: int = 1 << 31,
        seed: int | None = None,
    ) -> str:
        """Run a kernel on arrays and numbers of the types that it was compiled for, in place.

        ``shared_bytes``: of shared arrays that the kernel declares without a size. ``missing``: of each argument,
        which elements nobody has written yet; what the kernel writes is struck out. ``traces``: of each argument, what
        is to note the elements that are touched. ``resident``: blocks that the device holds at once. With a ``seed``
        threads are executed one by one in the order that it picks, and the hash of their steps is given; else "".

        Threads are executed one by one, too, where fences order them or locks and flags hold them up.
        """
        launch = Launch(found.program, grid, block, device, warp, checked=checked)
        blocks, threads = math.prod(grid), math.prod(block)

        def one_by_one() -> str:
            return found.threads.run(
                launch,
                arguments,
                resident=resident,
                checked=checked,
                missing=missing,
                traces=traces,
                seed=seed,
                sized=lambda declared: _sized(declared, shared_bytes),
            )

        if seed is not None or (found.spins and (blocks * threads <= FEW or blocks > resident)):
            return one_by_one()
        if checked and found.fences:
            if blocks * threads <= MOST:
                return one_by_one()
            warnings.warn_explicit(
                f"{launch.where()}: data races are not looked for in a launch of {blocks * threads:,} threads with "
                f"fences, which is more than {MOST:,}",
                Unwatched,
                *caller(),
            )
        launch.together = not found.parts or blocks * threads > MOST
        before = _Kept(found, arguments, missing, traces) if found.waits or found.parts else None
        try:
            _side_by_side(found, launch, arguments, checked, missing, traces, shared_bytes)
        except Waits:
            assert before is not None  # noqa: S101  only loops that may wait, and warps that may part, say so
            before.restore()
            return one_by_one()
        except BarrierDivergence:
            # One by one the others are seen to go on, to another barrier or to their end.
            if before is None or blocks * threads > MOST:
                raise
            before.restore()
            one_by_one()
            raise
        return ""


class _Kept:
    """What a launch may change, as it was before."""

    def __init__(
        self,
        found: Compiled,
        arguments: Sequence[Any],
        missing: Sequence[np.ndarray | None],
        traces: Sequence[Trace | None],
    ) -> None:
        self._traces = traces
        named = zip(found.program.parameters, arguments, strict=True)
        self._kept = [(a, a.copy()) for p, a in named if p.name in found.written]
        self._kept += [(a, a.copy()) for a in missing if a is not None]

    def restore(self) -> None:
        """Put it back."""
        for array, kept in self._kept:
            array[...] = kept
        for trace in self._traces:
            if trace is not None:
                trace.marks.clear()


def _side_by_side(
    found: Compiled,
    launch: Launch,
    arguments: Sequence[Any],
    checked: bool,
    missing: Sequence[np.ndarray | None],
    traces: Sequence[Trace | None],
    shared_bytes: int,
) -> None:
    program, grid, block, warp = found.program, launch.grid, launch.block, launch.warp
    memories: dict[str, Memory] = {}
    scalars: dict[str, Any] = {}
    absent, noted = list(missing) or [None] * len(arguments), list(traces) or [None] * len(arguments)
    for parameter, argument, unwritten, trace in zip(program.parameters, arguments, absent, noted, strict=True):
        kind = program.arrays.get(parameter.name)
        if isinstance(kind, Array):
            about = launch, parameter.name, argument.shape, argument.reshape(-1)
            made = Global(*about) if trace is None else Traced(*about, trace)
            made.copies = bool(found.written)
            made.missing = unwritten if checked else None
            memories[parameter.name] = made
        else:
            scalars[parameter.name] = program.scalars[parameter.name].dtype.type(argument)
    blocks, threads = math.prod(grid), math.prod(block)
    # What fences order is followed thread by thread alone.
    watched = checked and not found.fences
    if watched:
        _watch(found, memories, grid, block, threads, warp)
    step = blocks if found.meets else max(CHUNK // threads, 1)
    # Whole rows of the grid, where they fit: their elements are then views of an array of two sides.
    step -= step % grid[0] if grid[0] < step < blocks else 0
    with np.errstate(all="ignore"):
        for first in range(0, blocks, step):
            chunk = Chunk(grid, block, first, min(step, blocks - first), warp, launch)
            own: dict[str, Memory] = {
                name: (Shared if declared.space == "shared" else Local)(
                    launch, _sized(declared, shared_bytes), chunk, checked=checked
                )
                for name, declared in program.declared.items()
            }
            if not watched:
                for memory in own.values():
                    memory.shadow = None
            found.run(Lanes(chunk), {**memories, **own}, scalars)


def _watch(found: Compiled, memories: dict[str, Memory], grid: Dims, block: Dims, threads: int, warp: int) -> None:
    """Watch the arrays in which threads can meet. Parameters that are one buffer are one array."""
    used = frozenset(axis for axis in range(3) if grid[axis] * block[axis] > 1)
    by_place: dict[int, list[str]] = {}
    for name, memory in memories.items():
        by_place.setdefault(memory.flat.__array_interface__["data"][0], []).append(name)
    for names in by_place.values():
        if not any(name in found.written for name in names):
            continue
        axes = [found.private.get(name) for name in names if name in found.written]
        if len(names) == 1 and axes[0] is not None and axes[0] >= used:
            continue
        shadow = Shadow(memories[names[0]].flat.size, threads, warp)
        for name in names:
            memories[name].shadow = shadow


def shared_bytes(found: Compiled) -> int:
    """Bytes of the shared arrays that a kernel declares with a size."""
    declared = found.program.declared.values()
    return sum(math.prod(one.shape) * one.element.dtype.itemsize for one in declared if one.space == "shared")


def _sized(declared: ir.Declare, shared_bytes: int) -> ir.Declare:
    """A declared array, with the size that the launch gives to one that has none."""
    if declared.shape != (0,):
        return declared
    return replace(declared, shape=(shared_bytes // declared.element.dtype.itemsize,))
