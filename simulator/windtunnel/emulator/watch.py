"""What watching an array for races costs where there are none: next to nothing, for what most kernels do.

Between two barriers of all threads, an array that each block has its own of cannot race while it is only read, only
changed atomically, or touched at each thread's own element alone. As long as that is so, accesses are put down, and
not looked at. With the first that is otherwise, those since the barrier are worked through, element by element: by
NumPy (`races`) while there is little to do, compiled (`tracks`) from then on. Findings are the same in any case.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.emulator.forms import Pattern
from windtunnel.emulator.lanes import Lanes
from windtunnel.emulator.races import ATOMIC, READ, WRITE, Access, Plain, clash, equal

_LONGEST = 4096
"""Accesses that are put down at most before they are worked through."""
_LARGEST = 1 << 20
"""Threads' places that they may hold together."""
_LITTLE = 1_000_000
"""Work of a process that is left to NumPy, in threads that access: some 0.1 s, a fifth of what loading Numba takes."""
_CALL = 4_000
"""What an access takes apart from its threads, in the same measure."""
_NO_PLACES = np.empty(0, np.int64)
_NO_FLAGS = np.empty(0, bool)
_KEPT = ("writer", "reader", "beside", "elsewhere")
_OTHERS = ("write_epoch", "read_epoch", "write_warp", "read_warp", "write_line", "read_line", "atomic")

Core = Any
"""``Plain`` or ``Compiled``."""


class _Work:
    """How much a process has watched element by element."""

    done = 0


class Compiled:
    """The same as ``Plain``, several times as fast."""

    def __init__(self, size: int, threads: int, warp: int) -> None:
        from windtunnel.emulator import tracks

        self.threads, self.warp = threads, warp
        self.tracks = np.zeros(size, tracks.TRACK)
        self.race, self.values, self.several = tracks.RACE, tracks.VALUES, tracks.SEVERAL
        self._read, self._write = tracks.functions()
        self._stamp = 0

    @classmethod
    def of(cls, plain: Plain) -> Compiled:
        """With what another remembers."""
        made = cls(len(plain.writer), plain.threads, plain.warp)
        for name in _KEPT:
            made.tracks[name] = getattr(plain, name) + 1
        for name in _OTHERS:
            made.tracks[name] = getattr(plain, name)
        return made

    def plain(self) -> Plain:
        """The same, as arrays."""
        made = Plain(0, self.threads, self.warp)
        for name in _KEPT:
            setattr(made, name, self.tracks[name] - 1)
        for name in _OTHERS:
            setattr(made, name, self.tracks[name].copy())
        return made

    def read(self, memory: Any, access: Access) -> None:
        """Elements are read."""
        if self._read(*self._given(access), np.empty(access.lanes.size, np.uint8)) == self.race:
            self.plain().read(memory, access)
            raise AssertionError("a race that is none")

    def write(self, memory: Any, access: Access, value: Any, *, atomic: bool) -> None:
        """Elements are written."""
        given = self._given(access)
        found = self._write(*given, atomic, _NO_FLAGS)
        if found == self.values:
            position = access.position.each if isinstance(access.position, Pattern) else access.position
            same = np.broadcast_to(equal(memory.flat[position], value), access.lanes.size)
            found = self._write(*given, atomic, np.require(same, bool, "CW"))
        if found == self.race:
            self.plain().write(memory, access, value, atomic=atomic)
            raise AssertionError("a race that is none")
        if found == self.several:
            places = _listed(access)
            kept = self.tracks["writer"][places] - 1
            if clash(kept, access.lanes.identities, value).any():
                self.plain().together(memory, access, value)

    def _given(self, access: Access) -> tuple[Any, ...]:
        lanes, position, selection = access.lanes, access.position, access.lanes.selection
        places, place = _NO_PLACES, 0
        if isinstance(position, Pattern):
            places, place = position.listed
        elif isinstance(position, slice):
            place = position.start
        else:
            places = np.require(_listed(access), np.int64, "CW")
        numbers, number = _NO_PLACES, 0
        if isinstance(selection, slice):
            number = selection.start
        elif selection is not None:
            numbers = np.require(selection, np.int64, "CW")
        self._stamp += 1
        base = lanes.chunk.first * self.threads
        who = (numbers, number, lanes.size, base, self.threads, self.warp)
        return (self.tracks, places, place, *who, access.epochs, access.meetings, access.line, self._stamp)


def _listed(access: Access) -> np.ndarray:
    """A place for each thread."""
    position = access.position
    if isinstance(position, Pattern):
        return position.each
    if isinstance(position, slice):
        return np.arange(position.start, position.stop)
    return np.full(access.lanes.size, position) if isinstance(position, int) else position


class Shadow:
    """Who has touched which element of an array since the launch began; of one of a block's ``own``, the block."""

    def __init__(self, size: int, threads: int, warp: int, *, own: bool = False) -> None:
        self.size, self.threads, self.warp, self.own = size, threads, warp, own
        self._core: Core = None
        self._interval = -1
        self._log: list[tuple[Any, str, Access]] = []
        self._held = 0
        self._kind = ""
        """How all that are put down touch it; empty where some differ."""
        self._key: Any = None
        """The formula by which all of them do, each thread an element of its own; None where there is none such."""
        self._through = not own
        """Whether what follows is worked through at once."""

    def read(self, memory: Any, lanes: Lanes, line: int, position: Any) -> None:
        """Elements are read."""
        self._touched(READ, memory, self._access(lanes, line, position), None)

    def write(self, memory: Any, lanes: Lanes, line: int, position: Any, value: Any, *, atomic: bool) -> None:
        """Elements are written."""
        self._touched(ATOMIC if atomic else WRITE, memory, self._access(lanes, line, position), value)

    @staticmethod
    def _access(lanes: Lanes, line: int, position: Any) -> Access:
        return Access(lanes, line, position, lanes.chunk.epochs, lanes.chunk.warp_epochs)

    def _touched(self, kind: str, memory: Any, access: Access, value: Any) -> None:
        chunk = access.lanes.chunk
        if self.own and chunk.interval != self._interval:
            # A barrier of all threads: what was before it is in order with all that comes.
            self._interval, self._through, self._held = chunk.interval, False, 0
            self._log.clear()
        if not self._through:
            if self._put_down(kind, memory, access):
                return
            self._through = True
            for former, how, one in self._log:
                # None of these races with another: what they write is not asked for.
                self._worked(how, former, one, None)
            self._log.clear()
        self._worked(kind, memory, access, value)

    def _put_down(self, kind: str, memory: Any, access: Access) -> bool:
        """Put an access down, if with those before it nothing can race."""
        position = access.position
        key = position.key if isinstance(position, Pattern) and position.injective else None
        if self._log:
            kind_of_all = kind if kind == self._kind else ""
            key = key if key == self._key else None
        else:
            kind_of_all = kind
        if kind_of_all not in (READ, ATOMIC) and key is None:
            return False
        if not isinstance(position, Pattern) or access.lanes.selection is not None:
            self._held += access.lanes.size
        if len(self._log) >= _LONGEST or self._held > _LARGEST:
            return False
        self._kind, self._key = kind_of_all, key
        self._log.append((memory, kind, access))
        return True

    def _worked(self, kind: str, memory: Any, access: Access, value: Any) -> None:
        if _Work.done < _LITTLE:
            _Work.done += access.lanes.size + _CALL
            if self._core is None:
                self._core = Plain(self.size, self.threads, self.warp)
        elif not isinstance(self._core, Compiled):
            former = self._core
            self._core = Compiled(self.size, self.threads, self.warp) if former is None else Compiled.of(former)
        if kind == READ:
            self._core.read(memory, access)
        else:
            self._core.write(memory, access, value, atomic=kind == ATOMIC)
