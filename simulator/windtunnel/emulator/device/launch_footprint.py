"""The access footprint of one launch: prepared before it is executed, and read once afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from windtunnel.emulator.device.memory import EmulatedMemory
from windtunnel.emulator.races.findings import READ, WRITE
from windtunnel.emulator.races.footprint import (
    UNCLEAR,
    Extent,
    FootprintRecorder,
    Share,
    access_kinds,
    extent_of,
    extent_within,
    parameter_uses,
)
from windtunnel.language import ir
from windtunnel.runtime.kernels import ArrayOperation


class LaunchFootprint:
    """The memory that a launch accesses.

    Args:
        function: The kernel's Python function.
        program: The typed tree of a kernel written thread by thread; None for a function of whole arrays.
        memories: The memory of each argument; None for a number.
        arguments: The arguments, with arrays in place of buffers.
        is_concurrent: Returns whether others may access memory at the same time, so that its elements matter.
    """

    __slots__ = ("_accesses", "_copies", "_recorded", "recorders")

    def __init__(
        self,
        function: Callable[..., Any],
        program: ir.Program | None,
        memories: Sequence[EmulatedMemory | None],
        arguments: Sequence[Any],
        is_concurrent: Callable[[EmulatedMemory], bool],
    ) -> None:
        self.recorders: list[FootprintRecorder | None] = []
        """For each argument, what must record its accesses; empty for a function of whole arrays."""
        self._accesses: list[tuple[EmulatedMemory, str, Extent]] = []
        self._recorded: dict[EmulatedMemory, tuple[FootprintRecorder, int]] = {}
        self._copies: dict[EmulatedMemory, tuple[np.ndarray, int]] = {}
        if program is not None:
            self._prepare_kernel(program, memories, arguments, is_concurrent)
        else:
            self._prepare_function(function, memories, arguments, is_concurrent)

    def _prepare_kernel(
        self,
        program: ir.Program,
        memories: Sequence[EmulatedMemory | None],
        arguments: Sequence[Any],
        is_concurrent: Callable[[EmulatedMemory], bool],
    ) -> None:
        kinds = access_kinds(program)
        self.recorders = [None] * len(memories)
        for number, (parameter, memory) in enumerate(zip(program.parameters, memories, strict=True)):
            if memory is None:
                continue
            if is_concurrent(memory):
                array = arguments[number]
                recorder, _ = self._recorded.setdefault(memory, (FootprintRecorder(array.size), array.itemsize))
                self.recorders[number] = recorder
            else:
                self._accesses += [(memory, kind, _part_of(memory)) for kind in kinds.get(parameter.name, ())]

    def _prepare_function(
        self,
        function: Callable[..., Any],
        memories: Sequence[EmulatedMemory | None],
        arguments: Sequence[Any],
        is_concurrent: Callable[[EmulatedMemory], bool],
    ) -> None:
        if isinstance(function, ArrayOperation):
            for kind, views in ((READ, function.reads), (WRITE, function.writes)):
                self._accesses += [
                    (memory, kind, extent_within(memory.data, view) if index is None else _part_of(memory))
                    for number, view, index in views
                    if (memory := memories[number]) is not None and view.size
                ]
            return
        uses = parameter_uses(function)
        for number, memory in enumerate(memories):
            if memory is None:
                continue
            use = uses[number] if uses is not None and number < len(uses) else UNCLEAR
            if use.reads:
                extent = memory.full_extent if use.reads == Share.ALL else _part_of(memory)
                self._accesses.append((memory, READ, extent))
            if use.writes == Share.ALL:
                self._accesses.append((memory, WRITE, memory.full_extent))
            elif use.writes and is_concurrent(memory):
                self._copies[memory] = memory.data.copy(), arguments[number].itemsize
            elif use.writes == Share.PART:
                self._accesses.append((memory, WRITE, _part_of(memory)))

    def result(self) -> Sequence[tuple[EmulatedMemory, str, Extent]]:
        """Return (memory, kind of access, accessed bytes), after the launch was executed."""
        accesses = self._accesses
        for memory, (recorder, itemsize) in self._recorded.items():
            for kind, mask in recorder.marks.items():
                extent = extent_of(mask, itemsize)
                if extent is not None:
                    accesses.append((memory, kind, extent))
        for memory, (before, itemsize) in self._copies.items():
            extent = extent_of(_elements(memory.data, itemsize) != _elements(before, itemsize), itemsize)
            if extent is not None:
                accesses.append((memory, WRITE, extent))
        return accesses


def _elements(data: np.ndarray, itemsize: int) -> np.ndarray:
    """Return bytes as elements that compare bit by bit, so that NaN equals itself."""
    kind: Any = f"u{itemsize}" if itemsize in (1, 2, 4, 8) else np.dtype((np.void, itemsize))
    elements: np.ndarray = data.view(kind)
    return elements


def _part_of(memory: EmulatedMemory) -> Extent:
    return Extent(0, memory.size, partial=True)
