"""Loops that never end: a turn that begins as an earlier one did, with nothing changed that it asks, is followed by the
same turns again.

What a loop asks to go on is in variables, and in memory if it looks there. Brent's way: the state of a turn is kept
whenever their number is a power of two, and every later one is compared with it; so circles of several turns are found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.core.errors import Deadlock
from windtunnel.emulator.lockstep.arrays import Waits
from windtunnel.emulator.lockstep.lanes import Lanes, Value

SOON, LONG = 64, 1024
"""Turns before a loop is watched: one that looks at memory that threads change, and another."""


class Turns:
    """The turns of a loop, side by side. ``asks``: whether memory that the kernel changes decides if it goes on."""

    __slots__ = ("_changes", "_first", "_kept", "_size", "asks", "begin", "lanes", "line", "number")

    def __init__(self, lanes: Lanes, line: int, asks: bool) -> None:
        self.lanes, self.line, self.asks, self.number = lanes, line, asks, 0
        self.begin = SOON if asks else LONG
        self._kept: list[np.ndarray] = []
        self._first: list[object] = []
        self._changes, self._size = -1, -1

    def turn(self) -> bool:
        """One more turn. Whether it is to be looked at."""
        self.number += 1
        return self.number >= self.begin

    def look(self, lanes: Lanes, values: Sequence[Value]) -> None:
        """``values``: of the variables that decide. Waits where others may change what is waited for, else Deadlock."""
        chunk = self.lanes.chunk
        chunk.exact = True
        now = [np.asarray(value) for value in values]
        first = [value.flat[0] for value in now]
        changed = self._size != lanes.size or (self.asks and self._changes != chunk.changes)
        if changed or self.number & (self.number - 1) == 0:
            self._kept, self._first = [value.copy() for value in now], first
            self._changes, self._size = chunk.changes, lanes.size
            return
        if first != self._first or not all(map(np.array_equal, self._kept, now)):
            return
        if self.asks:
            raise Waits
        launch, identity = chunk.launch, int(lanes.identities[0])
        others = f", and {lanes.size - 1:,} other threads" if lanes.size > 1 else ""
        raise Deadlock(
            f"{launch.where()}: the loop at {launch.at(self.line)} never ends: it comes to turns that it has made "
            f"before, for {launch.who(identity)}{others}",
            **launch.found_at(self.line),
            threads=(launch.thread(identity),),
        )
