"""Memory whose accesses by streams and by the host are tracked, and the streams' vector clocks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windtunnel.emulator.races.footprint import Extent

CodeLine = tuple[str, int]
"""File and line of the program."""


class StreamClock:
    """A stream's work, numbered from 1, and the work of other streams that it has waited for."""

    __slots__ = ("blocking", "clock", "count", "device", "known", "name")

    def __init__(self, name: str, device: str, *, blocking: bool) -> None:
        self.name, self.device, self.blocking = name, device, blocking
        self.count = self.known = 0
        """Operations enqueued so far; those of them that the host knows to have ended."""
        self.clock: dict[StreamClock, int] = {}
        """For other streams, the operation up to which the next one here waits, beyond what the host knows."""

    def follow(self, clock: Mapping[StreamClock, int]) -> None:
        """Order the next operation after everything that a clock states."""
        own = self.clock
        for stream, number in clock.items():
            if number > stream.known and stream is not self and own.get(stream, 0) < number:
                own[stream] = number

    def current_clock(self) -> dict[StreamClock, int]:
        """Return the clock of a waiter for all operations enqueued so far."""
        return {**self.clock, self: self.count}


class StreamAccess:
    """An access of memory by operation ``number`` of a stream, which the program's line ``where`` enqueued."""

    __slots__ = (
        "_array", "_copy", "_flags", "extent", "has_raced", "kind", "number", "operation", "publishes", "stream",
        "where",
    )  # fmt: skip

    def __init__(
        self, stream: StreamClock, number: int, kind: str, extent: Extent, operation: str, where: CodeLine
    ) -> None:
        self.stream, self.number, self.kind, self.extent = stream, number, kind, extent
        self.operation, self.where = operation, where
        self._array: np.ndarray | None = None
        self._copy: np.ndarray | None = None
        self._flags: np.ndarray | None = None
        self.has_raced = False
        """Whether another access was found that is not ordered with this one."""
        self.publishes = False
        """Whether it is of a kernel with fences, so that the host may poll what it writes."""

    @property
    def has_ended(self) -> bool:
        """Whether the host knows that the operation has ended."""
        return self.number <= self.stream.known

    def watch(self, array: np.ndarray, flags: np.ndarray | None = None) -> None:
        """Keep a copy of host-visible memory that the host must not change until the operation has ended.

        ``flags`` marks the bytes that matter; None stands for all.
        """
        if self.has_raced:
            return  # the other operation may change it, which was reported
        self._array, self._copy, self._flags = array, array.copy(), flags

    def stop_watching(self) -> None:
        """Drop the copy, because a later operation of the stream may change the memory."""
        self._copy = None

    def watch_on(self) -> None:
        """Take a new copy, because another operation has changed the memory."""
        if self._array is not None and self._copy is not None:
            self._copy = self._array.copy()

    def host_has_written(self) -> bool:
        """Return whether the host has changed the watched memory. It is reported once only."""
        if self._array is None or self._copy is None or self.has_ended:
            return False
        differs = _bytes(self._array) != _bytes(self._copy)
        if self._flags is not None:
            differs &= self._flags
        if not differs.any():
            return False
        self._copy = None
        return True


class TrackedBuffer:
    """A memory allocation of a device, or an array of the host, and the accesses that later ones may race with.

    ``allocated_at`` is the program's line that allocated it; the line is 0 for an array of the host.
    """

    __slots__ = ("accesses", "allocated_at", "description", "is_device_memory", "is_shared", "root", "viewed_at")

    def __init__(self, description: str, allocated_at: CodeLine = ("", 0)) -> None:
        self.description, self.allocated_at = description, allocated_at
        self.accesses: list[StreamAccess] = []
        self.viewed_at: CodeLine | None = None
        """The program's line that got a host view of it."""
        self.is_shared = False
        """Whether it is the state of a ring kernel, which host and kernel share by design. It is not checked."""
        self.is_device_memory = False
        """Whether it is a device's memory that the host has a view of."""
        self.root: np.ndarray | None = None
        """The array that owns the memory, if the host can access it."""

    def drop_ended(self) -> None:
        """Drop the accesses that the host knows to have ended."""
        self.accesses = [access for access in self.accesses if not access.has_ended]


def _bytes(array: np.ndarray) -> np.ndarray:
    as_bytes: np.ndarray = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return as_bytes
