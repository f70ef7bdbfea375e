"""A device of a fleet as the engine sees it: what an operation is estimated to take is the model's, what it takes is
the executor's.

Modelled devices have no executor: their operations take what the model says. A real device executes each, and what was
measured is charged to the simulated clock; routes and orders see estimates alone, and so cannot tell which is which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Columns = Mapping[str, float | str]
"""All of an operation's, parsed: counts and reals are floats, choices are text."""


MOST_REAL_S = 600.0
"""Real time that a run may take on one device: who asks for more by the model is told before it is spent, and a run
that takes longer than its model says is ended."""


@dataclass(frozen=True)
class Executed:
    """What came of an operation: it took ``duration_s``, or went wrong after so long.

    ``problem``: what went wrong, in words; empty where nothing did. ``gone``: the device cannot be used any more, or
    for ``back_s`` from then on.
    """

    duration_s: float
    problem: str = ""
    gone: bool = False
    back_s: float | None = None


class Executor(Protocol):
    """A device that really does what it is given."""

    name: str
    """What a scenario calls it: ``opencl:0``."""

    def refusal(self, op: str, columns: Columns) -> str | None:
        """In words, why it does not do an operation; None where it does."""

    def execute(self, op: str, columns: Columns) -> Executed:
        """Do it, and wait. What goes wrong is in what it gives, and raises nothing."""

    def executed(self) -> Mapping[tuple[str, tuple[tuple[str, Any], ...]], int]:
        """How often it did each operation, by its name and its columns, failures left out."""

    def report(self) -> Mapping[str, Any]:
        """What it was and did so far, for the result: driver, operations, times, what went wrong."""
