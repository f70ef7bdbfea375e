"""A limit on the steps of a launch, which ends kernels that would run for hours on any machine at the same place."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.core.errors import InputError, Location

_REPORTED = 1 << 10
"""Steps between two reports."""
_PARTS = 32
"""Turns of threads that are executed one by one which are a step: they take about as long as a turn of many at once."""


class StepsExceededError(InputError):
    """A launch takes more steps than it may."""


class Steps:
    """Counts the steps of launches: the turns of loops as the emulator executes them.

    All threads that take a turn together take one step (up to some thousands of them, see `emulator.device`). Where
    threads are executed one by one, 32 turns are a step.

    Args:
        most: The steps that a launch may take; 0 for any number.
        report: Called with the number of steps of the launch from time to time.
    """

    __slots__ = ("_parts", "_report", "most")

    def __init__(self, most: int = 0, report: Callable[[int], None] | None = None) -> None:
        self.most, self._report = most, report
        self._parts = 0

    @property
    def taken(self) -> int:
        """The steps of the launch so far."""
        return self._parts // _PARTS

    def begin(self) -> None:
        """Begin to count those of another launch."""
        self._parts = 0

    def take(self, *, of_thread: bool = False) -> bool:
        """Count a turn, of all threads of a part of the grid or of one thread; return whether it is one too many."""
        self._parts += 1 if of_thread else _PARTS
        if self._report is not None and self._parts % (_REPORTED * _PARTS) == 0:
            self._report(self.taken)
        return 0 < self.most * _PARTS < self._parts

    def exceeded(self, kernel: str, where: Location, text: str) -> StepsExceededError:
        """Return the error of a launch that takes too many. ``text``: the line of the loop."""
        return StepsExceededError(
            f"the launch of {kernel} takes more than {self.most:,} steps, the last of them a turn of this loop"
            + (f" ({text})" if text else ""),
            where=where,
            expected="smaller numbers and sizes",
        )
