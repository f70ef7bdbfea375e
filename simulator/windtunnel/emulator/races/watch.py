"""What watching an array for races costs where there are none: next to nothing, for what most kernels do.

Nothing can race in an array that is only read, only changed atomically, touched by each thread at elements that
formulas show to be its own, or nowhere twice. What is a block's own begins anew at each barrier of all threads; and
where every block does the same, whether one block's threads meet is worked out once. As long as nothing can race,
accesses are put down, and not looked at. With the first that is otherwise, those since the barrier are worked through,
element by element: by NumPy (`races`) while there is little to do, compiled (`tracks`) from then on. Findings are the
same.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Final

import numpy as np

from windtunnel.emulator.lockstep.forms import Affine, Pattern, one_to_one
from windtunnel.emulator.lockstep.lanes import Lanes
from windtunnel.emulator.races.findings import ATOMIC, READ, WRITE
from windtunnel.emulator.races.rule import Access, Plain, clash, equal

_LONGEST = 4096
"""Accesses that are put down at most before they are worked through."""
_LARGEST = 1 << 20
"""Threads' places that they may hold together."""
_LITTLE = 1_000_000
"""Work of a process that is left to NumPy, in threads that access: some 0.1 s, a fifth of what loading Numba takes."""
_CALL = 4_000
"""What an access takes apart from its threads, in the same measure."""
_REMEMBERED = 1 << 24
"""Bytes of what is known of a layout's blocks, above which it is forgotten."""
_CALLED: Final = ("C", "W")
"""What compiled functions take: contiguous, and not said to be read only."""
_NO_PLACES = np.empty(0, np.int64)
_NO_FLAGS = np.empty(0, bool)
_KEPT = ("writer", "reader", "beside", "other")
_OTHERS = (
    "write_epoch", "read_epoch", "write_warp", "read_warp", "beside_warp", "write_line", "read_line", "beside_line",
    "other_line", "atomic",
)  # fmt: skip

Core = Any
"""``Plain`` or ``Compiled``."""


class _Work:
    """How much a process has watched element by element."""

    done = 0

    @classmethod
    def little(cls, access: Access) -> bool:
        """Whether it is little with one more access."""
        if cls.done < _LITTLE:
            cls.done += access.lanes.size + _CALL
        return cls.done < _LITTLE


class Compiled:
    """The same as ``Plain``, several times as fast."""

    def __init__(self, size: int, threads: int, warp: int) -> None:
        from windtunnel.emulator.races import compiled_rule as tracks

        self.threads, self.warp = threads, warp
        # Each record in a line of the cache of its own.
        line = tracks.TRACK.itemsize
        room = np.zeros((size + 1) * line, np.uint8)
        begin = -room.ctypes.data % line
        self.tracks = room[begin : begin + size * line].view(tracks.TRACK)
        self.race, self.values, self.several = tracks.RACE, tracks.VALUES, tracks.SEVERAL
        self._read, self._write, _ = tracks.functions()
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
            setattr(made, name, self.tracks[name].astype(np.int64) - 1)
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
            found = self._write(*given, atomic, np.require(same, bool, _CALLED))
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
            places = np.require(_listed(access), np.int64, _CALLED)
        numbers, number = _NO_PLACES, 0
        if isinstance(selection, slice):
            number = selection.start
        elif selection is not None:
            numbers = np.require(selection, np.int64, _CALLED)
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


class Own:
    """Formulas by which no two threads ever have the same element: alike but for where they start."""

    def __init__(self, position: Pattern) -> None:
        index, chunk = position.index, position.lanes.chunk
        self.steps, self.jumps, self.first = index.steps, index.jumps, index.start
        self._sides = [*zip(chunk.block, index.steps, strict=True)]
        if not position.size:  # of the grid's array: other blocks' threads count too
            self._sides += zip(chunk.grid, index.jumps, strict=True)
        self._starts = {index.start}
        self._low, self._high, self._gap = index.start, index.start, 0
        self.holds = one_to_one(self._sides)

    def takes(self, index: Affine) -> bool:
        """Whether another is one of them; it is from now on."""
        if index.start in self._starts and index.steps == self.steps and index.jumps == self.jumps:
            return self.holds
        if index.steps != self.steps or index.jumps != self.jumps:
            self.holds = False
            return False
        start = index.start
        self._starts.add(start)
        self._low, self._high = min(self._low, start), max(self._high, start)
        self._gap = gcd(self._gap, start - self.first)
        self.holds = self.holds and one_to_one([*self._sides, ((self._high - self._low) // self._gap + 1, self._gap)])
        return self.holds


_NOBODY, _SEVERAL = -1, -2
_BITS = {READ: 1, WRITE: 2, ATOMIC: 4}


class Stretch:
    """Which elements of its array one block's threads have touched since a barrier, where every block does the same."""

    __slots__ = ("_next", "owner", "touched")

    def __init__(self, owner: np.ndarray, touched: np.ndarray) -> None:
        self.owner, self.touched = owner, touched
        self._next: dict[Any, Stretch | None] = {}

    @staticmethod
    def begun(access: Access, size: int) -> Stretch:
        """Nothing touched yet of ``size`` elements; what comes after is remembered from launch to launch."""
        known = access.lanes.chunk.layout.known
        found: Stretch | None = known.get(size)
        if found is None or known["held"] > _REMEMBERED:
            known.clear()
            known["held"] = 0
            found = known[size] = Stretch(np.full(size, _NOBODY, np.int16), np.zeros(size, np.uint8))
        return found

    def after(self, kind: str, access: Access) -> Stretch | None:
        """With one more access; None where two threads touch an element, and not both to read or both atomically."""
        lanes, position = access.lanes, access.position
        if not isinstance(position, Pattern) or lanes.part is None:
            return None
        key = (kind, position.index.steps, position.index.start, lanes.part)
        if key not in self._next:
            lanes.chunk.layout.known["held"] += self.owner.nbytes + self.touched.nbytes
            self._next[key] = self._with(kind, lanes, position.index)
        return self._next[key]

    def _with(self, kind: str, lanes: Lanes, index: Affine) -> Stretch | None:
        chunk = lanes.chunk
        numbers = lanes.of_each_block if lanes.part else np.arange(chunk.threads)
        places = chunk.layout.steps(index.steps)[numbers] + index.start
        owner, touched = self.owner.copy(), self.touched.copy()
        before = owner[places]
        owner[places] = numbers
        apart = (owner[places] != numbers) | ((before != _NOBODY) & (before != numbers))
        owner[places[apart]] = _SEVERAL
        touched[places] |= _BITS[kind]
        racing = (owner == _SEVERAL) & (touched != _BITS[READ]) & (touched != _BITS[ATOMIC])
        return None if racing.any() else Stretch(owner, touched)


class Once:
    """Which elements of the grid's array were touched at all: nothing can race while none is touched again, unless by
    the very thread that did, in the next access of all.
    """

    def __init__(self, size: int) -> None:
        self._touched = np.zeros(size, bool)
        self._last: tuple[Access, np.ndarray] | None = None

    def takes(self, access: Access) -> bool:
        """Whether an access is so; if not, all ends here."""
        places = np.require(_listed(access), np.int64, _CALLED)
        if self._last is not None and _same_threads(access, self._last[0]) and np.array_equal(places, self._last[1]):
            return True
        self._last = (access, places)
        if _Work.little(access):
            fresh = not self._touched[places].any() and len(np.unique(places)) == len(places)
            self._touched[places] = True
            return fresh
        from windtunnel.emulator.races import compiled_rule as tracks

        return tracks.functions()[2](self._touched, places) == tracks.CLEAN


def _same_threads(one: Access, other: Access) -> bool:
    chosen, others = one.lanes.selection, other.lanes.selection
    if one.lanes.chunk is not other.lanes.chunk:
        return False
    if isinstance(chosen, np.ndarray) and isinstance(others, np.ndarray):
        return chosen is others or np.array_equal(chosen, others)
    return not isinstance(chosen, np.ndarray) and not isinstance(others, np.ndarray) and chosen == others


class Shadow:
    """Who has touched which element of an array since the launch began; of one of a block's ``own``, the block."""

    def __init__(self, size: int, threads: int, warp: int, *, own: int = 0) -> None:
        self.size, self.threads, self.warp = size, threads, warp
        self.own = own
        """Elements of each block's own array; 0: it is the grid's."""
        self._core: Core = None
        self._interval = -1
        self._log: list[tuple[Any, str, Access]] = []
        self._held = 0
        self._kind = ""
        """How all that are put down touch it; empty where some differ."""
        self._own: Own | None = None
        """The formulas by which all of them do; None where they are none, or others."""
        self._stretch: Stretch | None = None
        """What they have touched of a block's array, from when neither of the two tells that they cannot race."""
        self._once: Once | None = None
        """And of the grid's."""
        self._through = False
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
        index = position.index if isinstance(position, Pattern) else None
        if not self._log:
            self._kind, self._stretch = kind, None
            self._own = Own(position) if isinstance(position, Pattern) else None
        else:
            self._kind = kind if kind == self._kind else ""
            if self._own is not None and (index is None or not self._own.takes(index)):
                self._own = None
        if self._kind not in (READ, ATOMIC) and (self._own is None or not self._own.holds):
            if not (self._stretches(kind, access) if self.own else self._is_once(access)):
                return False
        elif index is None or access.lanes.selection is not None:
            self._held += access.lanes.size
        if len(self._log) >= _LONGEST or self._held > _LARGEST:
            return False
        self._log.append((memory, kind, access if self.own else _light(access)))
        return True

    def _stretches(self, kind: str, access: Access) -> bool:
        stretch = self._stretch
        if stretch is None:
            stretch = Stretch.begun(access, self.own)
            for _, how, one in self._log:
                stretch = stretch.after(how, one)
                if stretch is None:
                    return False
        self._stretch = stretch.after(kind, access)
        return self._stretch is not None

    def _is_once(self, access: Access) -> bool:
        if self._once is None:
            self._once = Once(self.size)
            if not all(self._once.takes(one) for _, _, one in self._log):
                return False
        return self._once.takes(access)

    def _worked(self, kind: str, memory: Any, access: Access, value: Any) -> None:
        if isinstance(self._core, Compiled):
            pass
        elif _Work.little(access):
            if self._core is None:
                self._core = Plain(self.size, self.threads, self.warp)
        else:
            former = self._core
            self._core = Compiled(self.size, self.threads, self.warp) if former is None else Compiled.of(former)
        if kind == READ:
            self._core.read(memory, access)
        else:
            self._core.write(memory, access, value, atomic=kind == ATOMIC)


def _light(access: Access) -> Access:
    """The same without what its threads have worked out of their indices, for a launch may put many down."""
    lanes = Lanes(access.lanes.chunk, access.lanes.selection)
    lanes.part = access.lanes.part
    position = access.position
    if isinstance(position, Pattern):
        position = Pattern(position.index.at(lanes), position.size)
    return access._replace(lanes=lanes, position=position)
