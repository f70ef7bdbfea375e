"""Streams and events of an emulated device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.core.errors import InvalidArgument
from windtunnel.emulator.device.base import EmulatedDevice
from windtunnel.emulator.device.memory import EmulatedMemory
from windtunnel.emulator.device.timeline import StreamTime
from windtunnel.emulator.device.tracked_memory import StreamAccess, StreamClock
from windtunnel.emulator.races.footprint import Extent


@dataclass(eq=False)
class EmulatedStream:
    """A stream of an emulated device. Its vector clock is None if stream races are not detected."""

    device: EmulatedDevice
    time: StreamTime
    clock: StreamClock | None = None

    def record_copy(
        self,
        name: str,
        footprint: Sequence[tuple[EmulatedMemory, str, Extent]],
        array: np.ndarray | None = None,
        *,
        host_waits: bool = False,
    ) -> StreamAccess | None:
        """Record the accesses of a copy; see ``StreamOrder.record_copy``. None if stream races are not detected."""
        order = self.device.order
        if order is None or self.clock is None:
            return None
        order.enqueue(self.clock)
        return order.record_copy(self.clock, name, footprint, array, host_waits=host_waits)

    def synchronize(self) -> None:
        """Wait until all work of the stream has ended."""
        self.device.wait(self.time.last)
        if self.clock is not None and self.device.order is not None:
            self.device.order.host_waited_for(self.clock)
            self.device.raise_pending_finding()

    def wait(self, event: EmulatedEvent) -> None:
        """Let work that is enqueued from now on begin after the event."""
        device = self.device
        device.before_mark("stream wait")
        if device.capturing is not None:
            device.capturing.wait(self, event.nodes)
            return
        if event.device.host is not device.host:
            raise device.error(InvalidArgument, "stream wait", "the event is of a device with another clock")
        self.time.last = max(self.time.last, event.tick)
        if self.clock is not None:
            self.clock.follow(event.clock)


@dataclass(eq=False)
class EmulatedEvent:
    """A point in a stream's work.

    ``mark`` enqueues a marker in a stream (None: the default stream) and returns its tick and its vector clock. While
    streams are captured, the event marks graph ``nodes`` instead. ``tick`` is -1 until it is recorded.
    """

    device: EmulatedDevice
    mark: Callable[[EmulatedStream | None], tuple[int, Mapping[StreamClock, int]]]
    tick: int = -1
    clock: Mapping[StreamClock, int] = field(default_factory=dict)
    nodes: Sequence[Any] = ()

    def record(self, stream: EmulatedStream | None = None) -> None:
        """Mark the end of the work that ``stream`` has now."""
        self.device.before_mark("event record")
        if self.device.capturing is not None:
            self.nodes = self.device.capturing.after(stream)
            return
        self.tick, self.clock = self.mark(stream)

    def synchronize(self) -> None:
        """Wait until the work before the event has ended."""
        self._require_recorded("event synchronize")
        self.device.wait(self.tick)
        self._host_knows(self)

    def elapsed_s(self, since: EmulatedEvent) -> float:
        """Return the time in s from another event to this one. Both must have been reached."""
        device = self.device
        self._require_recorded("event elapsed")
        since._require_recorded("event elapsed")
        if since.device is not device:
            raise device.error(InvalidArgument, "event elapsed", "the events are of two devices")
        if max(self.tick, since.tick) > device.host.now:
            problem = "the event was not reached yet, and nothing has waited for it"
            raise device.error(InvalidArgument, "event elapsed", problem, "not ready")
        if self.tick < since.tick:
            problem = "the other event is the later one; write later.elapsed_s(earlier)"
            raise device.error(InvalidArgument, "event elapsed", problem)
        self._host_knows(since, self)
        return (self.tick - since.tick) / 1e12

    def _host_knows(self, *events: EmulatedEvent) -> None:
        if self.device.order is not None:
            for event in events:
                self.device.order.host_knows(event.clock)
            self.device.raise_pending_finding()

    def _require_recorded(self, operation: str) -> None:
        if self.tick < 0:
            raise self.device.error(InvalidArgument, operation, "the event was not recorded", "handle")
