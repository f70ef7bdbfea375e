"""The interface through which a simulation executes operations on real devices.

Modelled devices have no executor: the model gives the duration of their operations. A real device executes each
operation, and its measured duration advances the simulated clock. Routes and orders use only the model's estimates, so
they treat both in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from windtunnel.core.columns import Columns
from windtunnel.core.results.run import RealWork

MOST_REAL_S = 600.0
"""Largest real time of a run on one device (s). A run that the model expects to take longer is an error before it
starts, and a run that takes longer is ended."""


@dataclass(frozen=True)
class Executed:
    """The outcome of an operation, which took ``duration_s`` or failed after that time.

    ``problem``: the error message; empty on success. ``gone``: the device cannot be used any more, or only after
    ``back_s``.
    """

    duration_s: float
    problem: str = ""
    gone: bool = False
    back_s: float | None = None


class Executor(Protocol):
    """A real device that executes operations."""

    name: str
    """Its name in a scenario, such as ``opencl:0``."""

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why the device does not support an operation; None if it does."""

    def execute(self, op: str, columns: Columns) -> Executed:
        """Execute the operation and wait. Failures are reported in the result, not raised."""

    def executed(self) -> Mapping[tuple[str, tuple[tuple[str, float | str], ...]], int]:
        """Return the number of successful executions of each operation, by its name and columns."""

    def report(self) -> RealWork:
        """Return a summary for the result: driver, operations, times and errors."""
