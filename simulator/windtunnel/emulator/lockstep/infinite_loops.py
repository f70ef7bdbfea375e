"""Detection of infinite loops: a loop whose state repeats, with unchanged memory, repeats for ever.

The state of a loop is the variables that decide whether it continues and, if it reads memory for that, the memory. By
Brent's cycle detection, the state is kept whenever the number of iterations is a power of two, and every later state is
compared with it, so that cycles of several iterations are found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.emulator.common.lanes import Lanes, Value
from windtunnel.emulator.common.launch import LockstepStalledError
from windtunnel.emulator.races.findings import infinite_loop

_SPIN_LOOP_ITERATIONS, _LOOP_ITERATIONS = 64, 1024
"""Iterations before the state of a spin loop, and of any other loop, is compared."""


class LoopStateTracker:
    """Compares the states of a loop. It ``spins`` if memory that the kernel changes decides whether it continues."""

    __slots__ = (
        "_changes", "_count", "_first_values", "_lanes", "_line", "_size", "_spins", "_start", "_state", "_take_turn",
    )  # fmt: skip

    def __init__(self, lanes: Lanes, line: int, spins: bool) -> None:
        self._lanes, self._line, self._spins, self._count = lanes, line, spins, 0
        self._take_turn = lanes.chunk.launch.take_turn
        self._start = _SPIN_LOOP_ITERATIONS if spins else _LOOP_ITERATIONS
        self._state: list[np.ndarray] = []
        self._first_values: list[object] = []
        self._changes, self._size = -1, -1

    def iteration(self) -> bool:
        """Count an iteration and return whether its state must be compared. Raises StepsExceededError."""
        self._count += 1
        self._take_turn(self._line)
        return self._count >= self._start

    def compare(self, lanes: Lanes, values: Sequence[Value]) -> None:
        """Compare ``values``, the variables that decide whether the loop continues, with the kept ones.

        Raises:
            LockstepStalledError: If the state repeats, but other threads may change the memory that is read.
            Deadlock: If the state repeats for ever.
        """
        chunk = self._lanes.chunk
        chunk.compares_stores = True
        state = [np.asarray(value) for value in values]
        first_values = [value.flat[0] for value in state]
        has_changed = self._size != lanes.size or (self._spins and self._changes != chunk.changes)
        if has_changed or self._count & (self._count - 1) == 0:
            self._state, self._first_values = [value.copy() for value in state], first_values
            self._changes, self._size = chunk.changes, lanes.size
            return
        if first_values != self._first_values or not all(map(np.array_equal, self._state, state)):
            return
        if self._spins:
            raise LockstepStalledError
        raise infinite_loop(chunk.launch, int(lanes.identities[0]), self._line, lanes.size - 1)
