"""A kernel written thread by thread, launched: compiled for its arguments' types, executed some blocks at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from windtunnel.emulator.arrays import Global, Launch, Local, Memory, Shared
from windtunnel.emulator.lanes import Chunk, Lanes
from windtunnel.emulator.lockstep import Compiled, compiled
from windtunnel.emulator.watch import Shadow
from windtunnel.language import ir
from windtunnel.language.expressions import parameters_of
from windtunnel.language.infer import infer, types_of
from windtunnel.language.parse import parse
from windtunnel.language.types import Array, Type
from windtunnel.runtime.interface import Dims

CHUNK = 1 << 15
"""Threads of a chunk: their values stay in a processor's second cache."""


class Executable:
    """A kernel, compiled for each set of argument types that it meets."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._compiled: dict[tuple[Type, ...], Compiled] = {}

    def specialised(self, arguments: Sequence[Any]) -> Compiled:
        """The kernel for arguments of these types."""
        # More arguments than parameters, or fewer, are told of when their types are asked for.
        named = zip(parameters_of(self.function), arguments, strict=False)
        arrays = frozenset(parameter.name for parameter, argument in named if getattr(argument, "shape", ()))
        program = parse(self.function, arrays)
        types = types_of(program, arguments)
        key = tuple(types.values())
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = compiled(infer(program, types))
        return found

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
        shared_bytes: int = 0,
    ) -> None:
        """Run a kernel on arrays and numbers of the types that it was compiled for, in place.

        ``shared_bytes``: of shared arrays that the kernel declares without a size. ``missing``: of each argument,
        which elements nobody has written yet; what the kernel writes is struck out.
        """
        program = found.program
        launch = Launch(program, grid, block, device, warp)
        memories: dict[str, Memory] = {}
        scalars: dict[str, Any] = {}
        absent = list(missing) or [None] * len(arguments)
        for parameter, argument, unwritten in zip(program.parameters, arguments, absent, strict=True):
            kind = program.arrays.get(parameter.name)
            if isinstance(kind, Array):
                made = Global(launch, parameter.name, argument.shape, argument.reshape(-1))
                made.copies = bool(found.written)
                made.missing = unwritten if checked else None
                memories[parameter.name] = made
            else:
                scalars[parameter.name] = program.scalars[parameter.name].dtype.type(argument)
        threads = block[0] * block[1] * block[2]
        if checked:
            _watch(found, memories, grid, block, threads, warp)
        blocks = grid[0] * grid[1] * grid[2]
        step = max(CHUNK // threads, 1)
        with np.errstate(all="ignore"):
            for first in range(0, blocks, step):
                chunk = Chunk(grid, block, first, min(step, blocks - first), warp, launch)
                own: dict[str, Memory] = {
                    name: (Shared if declared.space == "shared" else Local)(
                        launch, _sized(declared, shared_bytes), chunk, checked=checked
                    )
                    for name, declared in program.declared.items()
                }
                if found.waits:
                    for memory in own.values():
                        memory.shadow = None
                found.run(Lanes(chunk), {**memories, **own}, scalars)


def _watch(found: Compiled, memories: dict[str, Memory], grid: Dims, block: Dims, threads: int, warp: int) -> None:
    """Watch the arrays in which threads can meet. Parameters that are one buffer are one array.

    What fences and atomic operations order is not followed yet: kernels that have a fence, or wait for what an atomic
    operation finds, are not watched.
    """
    body = found.program.body
    if found.waits or any(isinstance(one, ir.Barrier) and one.scope.startswith("fence") for one in ir.walk(body)):
        return
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
