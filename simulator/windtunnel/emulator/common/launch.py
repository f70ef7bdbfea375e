"""One launch of a kernel: its configuration, and how findings name its threads and lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TypedDict

from windtunnel.core.errors import CodePlace, Location
from windtunnel.language import ir
from windtunnel.language.opencl_words import SOURCE
from windtunnel.runtime.interface import Dims
from windtunnel.runtime.steps import Steps


class CodePosition(TypedDict):
    """The keyword arguments of a finding that say where it is."""

    file: str
    lines: tuple[int, ...]
    columns: tuple[int, ...]
    places: tuple[CodePlace, ...]


class LockstepStalledError(Exception):
    """Threads cannot continue in lockstep: they wait for threads that come later, or read what is absent."""


@dataclass
class Launch:
    """The configuration of a launch.

    Attributes:
        program: The kernel's typed tree.
        grid: Blocks along x, y and z.
        block: Threads of a block along x, y and z.
        device: Name of the device, for messages.
        warp: Threads of a warp.
        ignores_partial_warps: Whether a warp may synchronise while some of its threads are elsewhere.
        checked: Whether reads of uninitialised variables are detected.
        follows_moved: Whether numbers that were never set are followed where lanes pass them on.
        strict: Whether two unordered writes of an equal value are a data race.
        steps: Counts the turns of loops, if they are limited.
    """

    program: ir.Program
    grid: Dims
    block: Dims
    device: str
    warp: int = 32
    ignores_partial_warps: bool = True
    checked: bool = True
    strict: bool = False
    follows_moved: bool = False
    steps: Steps | None = None

    def take_turn(self, line: int, *, of_thread: bool = False) -> None:
        """Count a turn of the loop at a line, by many threads or by one. Raises StepsExceededError."""
        if self.steps is not None and self.steps.take(of_thread=of_thread):
            file, number = self.program.place_of(line)
            where = Location(file, number, self.program.column_of(line))
            raise self.steps.exceeded(self.program.name, where, self.program.text_of(line))

    def thread(self, identity: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return (``blockIdx``, ``threadIdx``) of a thread, given its number in the launch."""
        per_block = self.block[0] * self.block[1] * self.block[2]
        return _unflatten(identity // per_block, self.grid), _unflatten(identity % per_block, self.block)

    def block_of(self, identity: int) -> int:
        """Return the number of a thread's block."""
        return identity // (self.block[0] * self.block[1] * self.block[2])

    def describe_thread(self, identity: int) -> str:
        """Return the name of a thread for messages, such as ``thread 3 of block 0``."""
        block, thread = self.thread(identity)
        return f"thread {_short(thread, self.block)} of block {_short(block, self.grid)}"

    def describe_block(self, number: int) -> str:
        """Return the name of a block for messages, such as ``block 0``, given its number in the launch."""
        return f"block {_short(_unflatten(number, self.grid), self.grid)}"

    def describe_line(self, line: int) -> str:
        """Return a source line for messages: its number, its file if it is another one, and its text."""
        text = self.program.text_of(line)
        file, number = self.program.place_of(line)
        other, called = "", ""
        if file != self.program.file:
            other = f" of {PurePath(file).name}"
            calls = [str(call) for call in self.program.calls_of(line)]
            called = f", called at {'lines' if len(calls) > 1 else 'line'} {' and '.join(calls)}" if calls else ""
        if text and self.program.is_opencl:
            text = text.join(SOURCE)
        return f"line {number}{other}" + (f" ({text})" if text else "") + called

    def position_of(self, *lines: int) -> CodePosition:
        """Return the file of the first of these lines, those of the lines that are in this file, and all places."""
        places = {CodePlace(*self.program.place_of(line), self.program.column_of(line)) for line in lines}
        file = self.program.place_of(lines[0])[0] if lines else self.program.file
        ordered = sorted(places, key=lambda one: (one.file != file, one.file, one.line, one.column or 0))
        columns = {one.line: one.column for one in reversed(ordered) if one.file == file and one.column is not None}
        return {
            "file": file,
            "lines": tuple(sorted({one.line for one in ordered if one.file == file})),
            "columns": tuple(columns[at] for at in sorted(columns)),
            "places": tuple(ordered),
        }

    def __str__(self) -> str:
        """Return the beginning of every message about the launch: kernel and device."""
        return f"{self.program.name} on {self.device}"


def _unflatten(number: int, sides: Dims) -> tuple[int, int, int]:
    return number % sides[0], number // sides[0] % sides[1], number // (sides[0] * sides[1])


def _short(index: tuple[int, int, int], sides: Dims) -> str:
    used = max((axis + 1 for axis in range(3) if sides[axis] > 1), default=1)
    return str(index[0]) if used == 1 else str(index[:used])
