"""The order that a program gives its streams, and work that touches one piece of memory without any: `MissingSync`.

Work is computed in the order of the program's calls (context.py), which is one of the orders that a device may take. A
program that is right only in that one is found here, whatever the virtual clock says: a copy that happens to end before
a kernel begins is as wrong as one that does not.

Each stream is a `Queue` with a vector clock: how far it has waited for other streams (happens-before, Lamport 1978;
Mattern 1989). Work of one stream is in order; an event carries the clock of where it was recorded to who waits for it;
the default stream and blocking ones wait for each other, as in timeline.py. What the host has waited for is before all
that it gives from then on, so that part is kept once, with the queue (``known``), and queues' clocks stay small. That
the host gave one piece of work after another orders nothing.

Of each piece of memory (`Place`) the accesses are kept that later ones may still not be ordered after. The host's
arrays have places too, while copies that do not hold the host are under way. Reads and writes of the host itself cannot
be seen; that it has written is, where a kernel or a copy has not ended: by comparing with what was there when the work
was given.

Not watched: freeing (a pool's memory may be given back at any time), the state of ring kernels, which host and kernel
share by design, and what touched.py cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.errors import MissingSync, caller
from windtunnel.emulator.device.timeline import Host
from windtunnel.emulator.races.findings import READ, WRITE
from windtunnel.emulator.races.footprint import Extent, Touched, extent_of, whole

if TYPE_CHECKING:
    from windtunnel.emulator.device.handles import EmulatedMemory

_MOST = 64
"""Accesses that are remembered of a piece of memory; beyond it the oldest are forgotten, and not found."""


class Queue:
    """A stream as its order goes: work is numbered from 1, in order."""

    __slots__ = ("blocking", "clock", "count", "device", "known", "name")

    def __init__(self, name: str, device: str, *, blocking: bool) -> None:
        self.name, self.device, self.blocking = name, device, blocking
        self.count = self.known = 0
        """Pieces of work given so far; of them, those that the host knows to have ended."""
        self.clock: dict[Queue, int] = {}
        """Of other queues, up to which piece of work this one's next waits for, beyond what the host knows."""

    def follow(self, clock: Mapping[Queue, int]) -> None:
        """The next piece of work comes after all that a clock says."""
        mine = self.clock
        for queue, number in clock.items():
            if number > queue.known and queue is not self and mine.get(queue, 0) < number:
                mine[queue] = number

    def here(self) -> dict[Queue, int]:
        """The clock of who waits for all that it was given so far."""
        return {**self.clock, self: self.count}


class Access:
    """What a piece of work does with a piece of memory: who, how, where, and at which line of the program."""

    __slots__ = ("array", "copy", "extent", "flags", "how", "number", "queue", "raced", "what", "where")

    def __init__(self, queue: Queue, number: int, how: str, extent: Extent, what: str, where: tuple[str, int]) -> None:
        self.queue, self.number, self.how, self.extent, self.what, self.where = queue, number, how, extent, what, where
        self.array: np.ndarray | None = None
        self.copy: np.ndarray | None = None
        """What the host must not change while it is under way, and what was in it."""
        self.flags: np.ndarray | None = None
        """Of which of its bytes that is so, where not of all."""
        self.raced = False
        """Whether another was found that it is not ordered after."""

    def keep(self, array: np.ndarray, flags: np.ndarray | None = None) -> None:
        """Remember what is in an array that the host could write to."""
        if self.raced:
            return  # others may write to it meanwhile, which was told already
        self.array, self.copy, self.flags = array, array.copy(), flags

    def changed(self) -> bool:
        """Whether the host has written to it since; says so once."""
        if self.array is None or self.copy is None or self.number <= self.queue.known:
            return False
        different = _bytes(self.array) != _bytes(self.copy)
        if self.flags is not None:
            different &= self.flags
        if not different.any():
            return False
        self.copy = None
        return True


class Place:
    """A piece of memory, or an array of the host's, and who has touched it."""

    __slots__ = ("accesses", "made", "memory", "root", "seen", "shared", "words")

    def __init__(self, words: str, made: tuple[str, int] = ("", 0)) -> None:
        self.words, self.made = words, made
        """What it is, and where the program allocated it (line 0: an array of the host's)."""
        self.accesses: list[Access] = []
        self.seen: tuple[str, int] | None = None
        """Where the host got a view of it, if it did."""
        self.shared = False
        """Whether a ring kernel has it: not watched."""
        self.memory: EmulatedMemory | None = None
        self.root: np.ndarray | None = None
        """What it is the place of, where the host sees it."""


class Order:
    """The order of one device's streams, and of what is done on the host's arrays. See the module.

    ``places`` of the host: those that the host sees, by the identity of the array that owns the memory.
    """

    def __init__(self, host: Host, device: str) -> None:
        self.host, self.device = host, device
        self.default = Queue("the default stream", device, blocking=False)
        self.queues = [self.default]
        self._blocking: list[Queue] = []
        self.several = False
        """Whether there are streams beside the default one."""
        self._given: list[Access] | None = None
        """Accesses of the graph that is being replayed."""
        self._found: MissingSync | None = None

    def queue(self, number: int, *, blocking: bool) -> Queue:
        """A new stream's."""
        found = Queue(f"stream {number}", self.device, blocking=blocking)
        self.queues.append(found)
        if blocking:
            self._blocking.append(found)
        self.several = True
        return found

    # Order.

    def enter(self, queue: Queue) -> None:
        """A piece of work is given to a stream."""
        if self.several:
            if queue is self.default:
                for other in self._blocking:
                    if other.count > other.known or other.clock:
                        queue.follow(other.here())
            elif queue.blocking and (self.default.count > self.default.known or self.default.clock):
                queue.follow(self.default.here())
        queue.count += 1

    def mark(self, queue: Queue) -> Mapping[Queue, int]:
        """The clock of an event that is recorded now."""
        self.enter(queue)
        return queue.here()

    def ended(self, clock: Mapping[Queue, int]) -> None:
        """The host knows that all that a clock says has ended; for ``tell``, whether it wrote to what was under way."""
        places = self.host.places
        if places:
            self._found = self._found or self.written()
        for queue, number in clock.items():
            queue.known = max(queue.known, number)
        for key, place in list(places.items()):
            place.accesses = [one for one in place.accesses if one.number > one.queue.known]
            if not place.accesses and place.memory is None:
                del places[key]

    def caught_up(self, queue: Queue) -> None:
        """The host has waited for a stream; see ``ended``."""
        if queue.clock or self.host.places:
            clock = queue.here()
            queue.clock.clear()
            self.ended(clock)
        else:
            queue.known = queue.count

    def all_ended(self) -> None:
        """The host has waited for the device; see ``ended``."""
        clock: dict[Queue, int] = {}
        for queue in self.queues:
            if queue.count > queue.known:
                clock[queue] = queue.count
        for queue in self.queues:
            if queue.clock:
                for other, number in queue.clock.items():
                    clock[other] = max(clock.get(other, 0), number)
                queue.clock.clear()
        if clock or self.host.places:
            self.ended(clock)

    # What is touched.

    def close(self, memory: EmulatedMemory) -> bool:
        """Whether somebody else may touch a piece of memory at the same time."""
        return not memory.place.shared and (self.several or memory.place.seen is not None)

    def before(self, memories: Iterable[EmulatedMemory | None]) -> None:
        """Work on pieces of memory is about to be done. MissingSync where the host wrote to one too early."""
        for memory in memories if self.host.places else ():
            if memory is not None and memory.place.seen is not None:
                found = self.written(memory.place)
                if found is not None:
                    raise found

    def launched(self, queue: Queue, name: str, touched: Touched, where: tuple[str, int] | None = None) -> None:
        """A kernel was launched on a stream that it has entered. MissingSync."""
        if not touched:
            return
        where = where or caller()
        what, found = f"kernel '{name}'", None
        for memory, how, extent in touched:
            place = memory.place
            if place.shared:
                continue
            access = Access(queue, queue.count, how, extent, what, where)
            found = self._touch(place, access) or found
            if place.seen is not None and not extent.some:
                access.keep(memory.data[extent.first : extent.end], extent.flags(extent.first, extent.end))
        if found is not None:
            raise found

    def copied(
        self,
        queue: Queue,
        what: str,
        touched: Sequence[tuple[EmulatedMemory, str, int]],
        array: np.ndarray | None = None,
        *,
        holds: bool = False,
        where: tuple[str, int] | None = None,
    ) -> Access | None:
        """A copy was given to a stream, which it has entered.

        ``touched``: pieces of memory, how, and how many of their first bytes; ``array``: the host's. ``holds``: the
        host waits for it. Gives what it does with ``array``, where that may be met, so that what is in it can be kept.
        What is found is for ``tell``, once the copy is made.
        """
        where = where or caller()
        found: MissingSync | None = None
        for memory, how, size in touched:
            place = memory.place
            if size and not place.shared:
                if place.seen is not None:
                    found = self.written(place)
                extent = whole(memory) if size == memory.size else Extent(0, size)
                access = Access(queue, queue.count, how, extent, what, where)
                found = self._touch(place, access) or found
                if place.seen is not None and how == READ:
                    access.keep(memory.data[:size])
        on_host = None
        if array is not None and array.size and (self.host.places or not holds):
            root = _root(array)
            at = self._place(root, new=not holds)
            if at is not None and not at.shared:
                found = found or self.written(at)
                how = READ if touched[0][1] == WRITE else WRITE
                on_host = Access(queue, queue.count, how, _extent(root, array), what, where)
                found = self._touch(at, on_host) or found
        self._found = self._found or found
        return on_host

    def tell(self) -> None:
        """A copy is made, a wait is over. MissingSync where something was found of it."""
        if self._found is not None:
            found, self._found = self._found, None
            raise found

    def _place(self, root: np.ndarray, *, new: bool) -> Place | None:
        place = self.host.places.get(id(root))
        if place is None and new:
            place = self.host.places[id(root)] = Place(f"the host's array of {root.nbytes:,} bytes")
            place.root = root  # kept, so that no other takes its place in memory
        return place

    def _touch(self, place: Place, new: Access) -> MissingSync | None:
        """Note an access; what it is not ordered after, and has to be."""
        queue, how, extent = new.queue, new.how, new.extent
        against = None
        kept: list[Access] = []
        for old in place.accesses:
            if old.number <= old.queue.known:
                continue
            if old.queue is queue or queue.clock.get(old.queue, 0) >= old.number:
                # Who comes after the new one comes after the old one, and meets the new one where it meets the old.
                if how in (WRITE, old.how) and extent.covers(old.extent):
                    continue
                if how != READ:
                    old.copy = None
            elif (how != old.how or how == WRITE) and extent.meets(old.extent):
                against = against or old
                new.raced = True
                continue
            kept.append(old)
        kept.append(new)
        place.accesses = kept[-_MOST:]
        if self._given is not None:
            self._given.append(new)
        return None if against is None else self._unordered(place, against, new)

    # The host.

    def viewed(self, memory: EmulatedMemory) -> None:
        """The host gets a view of a piece of memory."""
        place = memory.place
        place.seen, place.memory, place.root = caller(), memory, memory.data
        self.host.places[id(memory.data)] = place

    def share(self, memories: Iterable[EmulatedMemory]) -> None:
        """A ring kernel keeps pieces of memory for its state."""
        for memory in memories:
            memory.place.shared = True
            memory.place.accesses.clear()

    def freed(self, memory: EmulatedMemory) -> None:
        """A piece of memory was given back."""
        self.host.places.pop(id(memory.data), None)

    def forget(self) -> None:
        """The device was reset or closed: what was under way on it is not waited for."""
        for queue in self.queues:
            queue.known = queue.count
            queue.clock.clear()
        for key, place in list(self.host.places.items()):
            place.accesses = [one for one in place.accesses if one.number > one.queue.known]
            if not place.accesses and place.memory is None:
                del self.host.places[key]

    def written(self, at: Place | None = None) -> MissingSync | None:
        """What the host wrote to while work on it was under way, at one place or any; None where it did not."""
        for place in list(self.host.places.values()) if at is None else [at]:
            for one in place.accesses:
                if one.changed():
                    return self._overwritten(place, one)
        return None

    # Graphs.

    def begin(self, queue: Queue) -> None:
        """A graph is replayed on a stream."""
        self.enter(queue)
        self._given = []

    def branch(self, queue: Queue) -> Queue:
        """A branch of a graph's nodes, which goes on from where a stream is."""
        found = Queue(f"{queue.name}, in a graph", self.device, blocking=False)
        found.follow(queue.here())
        return found

    def end(self, queue: Queue) -> None:
        """All nodes have ended before the stream goes on: what they did is the stream's."""
        queue.count += 1
        for access in self._given or ():
            access.queue, access.number = queue, queue.count
        self._given = None

    # Words.

    def _unordered(self, place: Place, old: Access, new: Access) -> MissingSync:
        file, line = new.where
        before = _at(old.where, file)
        one, other = old.queue.name, new.queue.name
        if old.queue.device != self.device:
            one = f"{one} of {old.queue.device}"
        if self._given is not None and old in self._given:  # nodes of one graph
            remedy = "let the one wait for the other: after=[...], or an event while the streams are captured"
        elif new.queue is self.default:
            remedy = f"record an event on {one} after {before} and wait for it yourself, or for {one}"
        else:
            remedy = f"record an event on {one} after {before} and let {other} wait for it, or wait for {one} yourself"
        return MissingSync(
            f"{file}:{line}: {new.what} on {other} of {self.device} {new.how} {self._words(place, file)}, which "
            f"{old.what} on {one} ({before}) {old.how}, and nothing orders the two; {remedy}",
            file=file,
            lines=_lines(file, old.where, new.where),
        )

    def _overwritten(self, place: Place, one: Access) -> MissingSync:
        file, line = one.where
        view = "" if place.seen is None else f" through the view that host() gave at {_at(place.seen, file)}"
        verb = "may still read" if one.how == READ else "may still write"
        return MissingSync(
            f"{file}:{line}: the host has written{view} to {self._words(place, file)}, which {one.what} on "
            f"{one.queue.name} of {one.queue.device} {verb}: the host has not waited for it; wait for {one.queue.name} "
            "or for an event recorded after the work, before the host writes",
            file=file,
            lines=_lines(file, one.where, *([place.seen] if place.seen is not None else [])),
        )

    @staticmethod
    def _words(place: Place, file: str) -> str:
        return place.words if not place.made[1] else f"{place.words} of {_at(place.made, file)}"


def _at(where: tuple[str, int], file: str) -> str:
    return f"line {where[1]}" if where[0] == file else f"{where[0]}:{where[1]}"


def _lines(file: str, *where: tuple[str, int]) -> tuple[int, ...]:
    return tuple(sorted({line for one, line in where if one == file}))


def _bytes(array: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return found


def _root(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of another."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _extent(root: np.ndarray, array: np.ndarray) -> Extent:
    """Where the elements of an array lie in the memory of the array that owns it."""
    first: int = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return Extent(first, first + array.nbytes)
    # An array of the same strides over a flag a byte.
    flags = np.zeros(root.nbytes, np.uint8)
    element: Any = np.dtype((np.void, array.itemsize))
    np.ndarray(array.shape, element, flags, first, array.strides)[...] = np.void(b"\1" * array.itemsize)
    return extent_of(flags, 1) or Extent(first, first)
