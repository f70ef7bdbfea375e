"""What an emulated context gives out: memory, streams and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.errors import InvalidArgument
from windtunnel.emulator.device.timeline import StreamTime
from windtunnel.runtime.interface import MemoryKind

if TYPE_CHECKING:
    from windtunnel.emulator.device.context import EmulatedContext
    from windtunnel.emulator.device.stream_order import Access, Place, Queue
    from windtunnel.emulator.races.footprint import Extent


@dataclass(eq=False)
class EmulatedMemory:
    """A piece of an emulated device's memory."""

    kind: MemoryKind
    size: int
    address: int
    data: np.ndarray
    place: Place
    """Who has touched it, and where the program allocated it."""
    on_device: bool | None = None
    """Where the pages of unified memory are: nowhere, until either side touches them."""
    freed: bool = False
    freed_at: tuple[str, int] | None = None
    """The program's line that gave it back."""
    unwritten: np.ndarray | bool = True
    """Of which elements nobody has written yet: all, none, or (an array of them) some."""
    whole: Extent | None = None
    """All of it, as `touched` says it."""
    _begun: int = 0
    """Bytes at the beginning that were written, as long as the size of the elements is not known."""

    @property
    def allocated_at(self) -> tuple[str, int]:
        """The program's line that allocated it."""
        return self.place.made

    def write(self, size: int) -> None:
        """The first ``size`` bytes were written."""
        if size >= self.size:
            self.unwritten = False
        elif isinstance(self.unwritten, np.ndarray):
            self.unwritten[: size * len(self.unwritten) // self.size] = False
        else:
            self._begun = max(self._begun, size)

    def missing(self, itemsize: int) -> np.ndarray:
        """Element by element, what nobody has written."""
        if isinstance(self.unwritten, bool):
            self.unwritten = np.full(self.size // itemsize, self.unwritten)
            self.unwritten[: self._begun // itemsize] = False
        return self.unwritten

    def take_over(self, other: EmulatedMemory, size: int) -> None:
        """The first ``size`` bytes of another were copied here, written or not."""
        if other.unwritten is False:
            self.write(size)
        elif isinstance(other.unwritten, np.ndarray):
            itemsize = other.size // len(other.unwritten)
            count = size // itemsize
            self.missing(itemsize)[:count] = other.unwritten[:count]
        else:
            self.write(min(size, other._begun))


@dataclass(eq=False)
class EmulatedStream:
    """A stream of an emulated device."""

    context: EmulatedContext
    time: StreamTime
    queue: Queue | None = None
    """Its order; None where that is not watched."""

    def copies(
        self,
        what: str,
        touched: Sequence[tuple[EmulatedMemory, str, int]],
        array: np.ndarray | None = None,
        *,
        holds: bool = False,
    ) -> Access | None:
        """It is given a copy: see ``Order.copied``; None where the order is not watched."""
        order = self.context.order
        if order is None or self.queue is None:
            return None
        order.enter(self.queue)
        return order.copied(self.queue, what, touched, array, holds=holds)

    def told(self) -> None:
        """The copy is made: see ``Order.tell``."""
        if self.context.order is not None:
            self.context.order.tell()

    def synchronize(self) -> None:
        """Wait until all of its work has ended."""
        self.context.wait(self.time.last)
        if self.queue is not None and self.context.order is not None:
            self.context.order.caught_up(self.queue)
            self.context.order.tell()

    def wait(self, event: EmulatedEvent) -> None:
        """Work given from now on begins after the event."""
        self.context.before_mark("stream wait")
        if self.context.capturing is not None:
            self.context.capturing.wait(self, event.nodes)
            return
        if event.context.host is not self.context.host:
            raise self.context.error(InvalidArgument, "stream wait", "the event is of a device with another clock")
        self.time.last = max(self.time.last, event.tick)
        if self.queue is not None:
            self.queue.follow(event.clock)


@dataclass(eq=False)
class EmulatedEvent:
    """A point in a stream's work."""

    context: EmulatedContext
    tick: int = -1
    clock: Mapping[Queue, int] = field(default_factory=dict)
    """What has ended when it is reached."""
    nodes: Sequence[Any] = ()
    """What it marks while a graph is captured."""

    def record(self, stream: EmulatedStream | None = None) -> None:
        """Mark where ``stream`` is now."""
        self.context.before_mark("event record")
        if self.context.capturing is not None:
            self.nodes = self.context.capturing.after(stream)
            return
        self.tick, self.clock = self.context.enqueue_marker(stream)

    def synchronize(self) -> None:
        """Wait until the work before it has ended."""
        self._recorded("event synchronize")
        self.context.wait(self.tick)
        self._reached(self)

    def elapsed_s(self, since: EmulatedEvent) -> float:
        """Seconds from another event to this one."""
        self._recorded("event elapsed")
        since._recorded("event elapsed")
        if since.context is not self.context:
            raise self.context.error(InvalidArgument, "event elapsed", "the events are of two devices")
        if max(self.tick, since.tick) > self.context.host.now:
            problem = "the event was not reached yet, nor waited for"
            raise self.context.error(InvalidArgument, "event elapsed", problem, "not ready")
        if self.tick < since.tick:
            problem = "the other event is the later one: later.elapsed_s(earlier)"
            raise self.context.error(InvalidArgument, "event elapsed", problem)
        self._reached(since, self)  # so the host is told
        return (self.tick - since.tick) / 1e12

    def _reached(self, *events: EmulatedEvent) -> None:
        if self.context.order is not None:
            for event in events:
                self.context.order.ended(event.clock)
            self.context.order.tell()

    def _recorded(self, operation: str) -> None:
        if self.tick < 0:
            raise self.context.error(InvalidArgument, operation, "the event was not recorded", "handle")
