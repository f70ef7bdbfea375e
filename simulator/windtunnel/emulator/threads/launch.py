"""A launch, thread by thread: the arrays that threads can meet in, and the order that a seed picks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.emulator.lockstep.arrays import Launch
from windtunnel.emulator.races.footprint import Trace
from windtunnel.emulator.threads.cells import Cells, Stretch
from windtunnel.emulator.threads.machine import Machine
from windtunnel.emulator.threads.program import Threaded, threaded
from windtunnel.emulator.threads.schedule import schedule_of
from windtunnel.language import ir
from windtunnel.language.types import Array


class ByThread:
    """An inferred kernel for threads that are executed one by one, compiled once for each way that buffers coincide."""

    def __init__(self, program: ir.Program, written: frozenset[str]) -> None:
        self.program, self.written = program, written
        self._compiled: dict[tuple[frozenset[str], bool], Threaded] = {}

    def run(
        self,
        launch: Launch,
        arguments: Sequence[Any],
        *,
        resident: int,
        checked: bool = True,
        missing: Sequence[np.ndarray | None] = (),
        traces: Sequence[Trace | None] = (),
        seed: int | None = None,
        sized: Callable[[ir.Declare], ir.Declare] = lambda one: one,
    ) -> str:
        """Execute it in place. The hash of the steps that threads could see of each other; "" without a ``seed``.

        ``resident``: blocks that the device holds at once. ``missing``, ``traces``: as ``execute.Executable.launch``.
        """
        program = self.program
        stretches: dict[int, Stretch] = {}
        changed = {_begin(a) for p, a in self._arrays(arguments) if p in self.written}
        met = frozenset(p for p, a in self._arrays(arguments) if _begin(a) in changed)
        cells: dict[str, Cells] = {}
        scalars: dict[str, Any] = {}
        absent, noted = list(missing) or [None] * len(arguments), list(traces) or [None] * len(arguments)
        for number, (parameter, argument, unwritten, trace) in enumerate(
            zip(program.parameters, arguments, absent, noted, strict=True)
        ):
            name = parameter.name
            if not isinstance(program.arrays.get(name), Array):
                scalars[name] = program.scalars[name].dtype.type(argument)
                continue
            begin = _begin(argument)
            cells[name] = Cells(
                launch,
                name,
                argument.shape,
                argument.reshape(-1),
                number=number,
                missing=unwritten if checked else None,
                touched=stretches.setdefault(begin, Stretch()) if name in met else None,
                watched=checked and name in met,
                noted=trace,
            )
        machine = Machine(
            self._kernel(met, fine=seed is not None),
            launch,
            cells,
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

    def _arrays(self, arguments: Sequence[Any]) -> list[tuple[str, np.ndarray]]:
        named = zip(self.program.parameters, arguments, strict=True)
        return [(p.name, a) for p, a in named if isinstance(self.program.arrays.get(p.name), Array)]

    def _kernel(self, met: frozenset[str], *, fine: bool) -> Threaded:
        found = self._compiled.get((met, fine))
        if found is None:
            found = self._compiled[met, fine] = threaded(self.program, set(met), fine=fine)
        return found


def _begin(array: np.ndarray) -> int:
    """Where an array lies: parameters that begin at one place are one array."""
    interface: Mapping[str, Any] = array.__array_interface__
    return int(interface["data"][0])
