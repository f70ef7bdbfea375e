"""The measurement budget: how long `windtunnel validate` may measure, and by which clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from windtunnel.core.errors import InputError, Location

PATIENCE_SHARE = 0.25
"""The share of the remaining budget that one call may take before it counts as hung, if that is more than the least."""


@dataclass(frozen=True)
class Budget:
    """A time limit for measurements.

    Attributes:
        seconds: The time that all measurements together may take, on ``clock``.
        clock: A function that returns the current time in seconds. The default is the host's monotonic clock. A test
            passes a clock that advances by a fixed step with each reading, so that the set of measured points does not
            depend on the speed of the machine.
        least_patience_s: A call is never abandoned earlier than this (in seconds of real time), because drivers compile
            kernels and hosts are busy.
    """

    seconds: float = 120.0
    clock: Callable[[], float] = time.monotonic
    least_patience_s: float = 5.0

    def check(self) -> None:
        """Raise InputError unless the budget is between one second and one day."""
        if not 1.0 <= self.seconds <= 86_400.0:
            raise InputError(
                f"the budget is {self.seconds:g} s", where=Location(field="--budget"), expected="1 to 86,400 seconds"
            )

    def part(self, share: float) -> Budget:
        """Return a budget of ``share`` (0 to 1) of these seconds, on the same clock."""
        return replace(self, seconds=self.seconds * share)

    def patience_s(self, usual_s: float, left_s: float) -> float:
        """Return how long to wait for a call, in seconds.

        Args:
            usual_s: The longest time that the call takes if nothing hangs.
            left_s: What is left of the budget.
        """
        return max(self.least_patience_s, min(usual_s, PATIENCE_SHARE * left_s))
