"""Kernels and host programs with one typical bug each, and the finding that a detector should report.

The guilty lines carry ``# BUG`` at their end. Where a message may name another line just as well (the other of two
loads, a ``return`` that keeps threads from a barrier) that one carries ``# OR``. Everything else about these programs
is right: the one finding is the only one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.corpus import planted_bounds, planted_deadlocks, planted_host, planted_races
from tests.corpus.registry import Arguments, _rng

FINDINGS = (
    "BarrierDivergence", "DataRace", "Deadlock", "DeviceOutOfMemory", "LaunchError", "MissingSync", "OutOfBounds", "UninitializedRead",
    "UseAfterFree",
)  # fmt: skip


def _marked(functions: tuple[Any, ...], mark: str) -> frozenset[int]:
    found = set()
    for function in functions:
        lines, first = inspect.getsourcelines(getattr(function, "function", function))
        found |= {first + at for at, line in enumerate(lines) if line.rstrip().endswith(mark)}
    return frozenset(found)


@dataclass(frozen=True)
class Planted:
    """A program with a bug. ``program(accelerator)`` runs it to its end; where none is given, the kernel is launched once.

    Where ``make`` gives one and the same array for two parameters, they share a buffer.
    """

    name: str
    finding: str
    """Name of the class under ``windtunnel.errors`` that must be raised, at the latest when the device is synchronised."""
    kernel: Any = None
    grid: int | tuple[int, ...] = 1
    block: int | tuple[int, ...] = 1
    make: Callable[..., Arguments] | None = None
    program: Callable[[Any], Any] | None = None
    instead: str = ""
    """Another class that says the same of it, where the order of execution decides which is met first."""
    within: tuple[Any, ...] = ()
    """Where the marked lines are, if not in the kernel or the program: a helper, the kernel that a program launches."""
    notes: str = ""

    @property
    def source(self) -> tuple[Any, ...]:
        return self.within or (self.kernel if self.program is None else self.program,)

    @property
    def file(self) -> str:
        """The file that the finding names."""
        found = inspect.getsourcefile(getattr(self.source[0], "function", self.source[0]))
        assert found is not None
        return found

    @property
    def lines(self) -> frozenset[int]:
        """Numbers of the guilty lines: one or two."""
        return _marked(self.source, "# BUG")

    @property
    def alternatives(self) -> frozenset[int]:
        """Numbers of lines that may be named with or instead of one of them."""
        return _marked(self.source, "# OR")

    def names_the_place(self, lines: Any) -> bool:
        """Whether a finding's lines are the guilty ones: all of them, or, where there are alternatives, any of both."""
        said = set(lines)
        if self.alternatives:
            return bool(said) and said <= self.lines | self.alternatives
        return said == self.lines

    def accepts(self, finding: str, lines: Any) -> bool:
        """Whether class name and lines of a finding are right. An uninitialised read for a race names the read alone."""
        if self.instead and finding == self.instead:
            return len(set(lines)) == 1 and set(lines) <= self.lines
        return finding == self.finding and self.names_the_place(lines)

    def arguments(self, seed: int = 0) -> Arguments:
        assert self.make is not None
        return self.make(_rng(self.name, seed))


@dataclass(frozen=True)
class Control:
    """A right host program near a wrong one: nothing may be raised. ``program(accelerator)`` gives (found, expected)."""

    name: str
    program: Callable[[Any], tuple[Any, Any]]
    notes: str = ""


PLANTED: tuple[Planted, ...] = tuple(
    Planted(**row)
    for module in (planted_races, planted_bounds, planted_deadlocks, planted_host)
    for row in module.PLANTED
)
CONTROLS: tuple[Control, ...] = tuple(Control(**row) for row in planted_host.CONTROLS)
