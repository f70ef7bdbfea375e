"""A launch that is executed thread by thread: the arrays that threads share, and the schedule that a seed selects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.races.footprint import FootprintRecorder
from windtunnel.emulator.threads.arrays import MemoryRange, ThreadArray
from windtunnel.emulator.threads.machine import Machine
from windtunnel.emulator.threads.program import ThreadProgram, compile_thread
from windtunnel.emulator.threads.schedule import schedule_of
from windtunnel.language import ir
from windtunnel.language.types import Array


class ThreadKernel:
    """A typed kernel for execution thread by thread, compiled once for each set of arrays that threads share."""

    def __init__(self, program: ir.Program, written: frozenset[str]) -> None:
        self.program, self.written = program, written
        self._compiled: dict[tuple[frozenset[str], bool], ThreadProgram] = {}

    def run(
        self,
        launch: Launch,
        arguments: Sequence[Any],
        *,
        resident: int,
        checked: bool = True,
        uninitialised: Sequence[np.ndarray | None] = (),
        recorders: Sequence[FootprintRecorder | None] = (),
        seed: int | None = None,
        sized: Callable[[ir.Declare], ir.Declare] = lambda declared: declared,
    ) -> str:
        """Execute the kernel on arrays, in place.

        Args:
            launch: The launch.
            arguments: Arrays and numbers of the types that the kernel was compiled for.
            resident: Blocks that the device holds at once.
            checked: Whether uninitialised reads and races are detected.
            uninitialised: For each argument, flags of the elements that nothing has written.
            recorders: For each argument, what records the accessed elements.
            seed: Selects the schedule; None for round robin.
            sized: Returns a declared array with the size that the launch gives it.

        Returns:
            A hash of the steps that are visible to other threads; empty without a seed.
        """
        ranges: dict[int, MemoryRange] = {}
        named = self._named_arrays(arguments)
        changed = {_address(array) for name, array in named if name in self.written}
        smallest = {address: min(a.itemsize for _, a in named if _address(a) == address) for address in changed}
        shared = frozenset(name for name, array in named if _address(array) in changed)
        arrays: dict[str, ThreadArray] = {}
        scalars: dict[str, np.generic] = {}
        nothing = [None] * len(arguments)
        flags, recorders = list(uninitialised) or nothing, list(recorders) or nothing
        for number, parameter in enumerate(self.program.parameters):
            name, argument = parameter.name, arguments[number]
            if not isinstance(self.program.arrays.get(name), Array):
                scalars[name] = self.program.scalars[name].dtype.type(argument)
                continue
            is_shared = name in shared
            arrays[name] = ThreadArray(
                launch,
                name,
                argument.shape,
                argument.reshape(-1),
                number=number,
                uninitialised=flags[number] if checked else None,
                memory=ranges.setdefault(_address(argument), MemoryRange()) if is_shared else None,
                checked=checked and is_shared,
                recorder=recorders[number],
                parts=argument.itemsize // smallest[_address(argument)] if is_shared else 1,
            )
        machine = Machine(
            self._program_for(shared, every_access=seed is not None),
            launch,
            arrays,
            scalars,
            ready=schedule_of(seed, math.prod(launch.grid) * math.prod(launch.block)),
            resident=resident,
            checked=checked,
            traced=seed is not None,
            sized=sized,
        )
        with np.errstate(all="ignore"):
            machine.run()
        return machine.hash() if seed is not None else ""

    def _named_arrays(self, arguments: Sequence[Any]) -> list[tuple[str, np.ndarray]]:
        named = zip(self.program.parameters, arguments, strict=True)
        return [(p.name, a) for p, a in named if isinstance(self.program.arrays.get(p.name), Array)]

    def _program_for(self, shared: frozenset[str], *, every_access: bool) -> ThreadProgram:
        program = self._compiled.get((shared, every_access))
        if program is None:
            program = compile_thread(self.program, set(shared), every_access=every_access)
            self._compiled[shared, every_access] = program
        return program


def _address(array: np.ndarray) -> int:
    """Return the address of an array. Parameters that begin at one address are one array."""
    return int(array.__array_interface__["data"][0])
