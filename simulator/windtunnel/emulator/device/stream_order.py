"""Stream races: operations that access the same memory without any order, reported as `MissingSync`.

Operations are computed in the order of the program's calls (`context`), which is one of the orders that a device may
take. A program that is correct only in this order is found here, whatever the virtual clock says: a copy that happens
to end before a kernel begins is as wrong as one that does not.

Each stream has a vector clock, `StreamClock`: how far it has waited for other streams (happens-before order, Lamport
1978; Mattern 1989). The operations of one stream are ordered. An event carries the clock at which it was recorded to
the streams that wait for it. The default stream and blocking streams wait for each other, as in `timeline`. Everything
that the host has waited for comes before all that it enqueues later; this part is kept once for each stream
(``known``), so that the clocks stay small. The order in which the host enqueues operations orders nothing.

For each `TrackedBuffer` the accesses are kept with which later ones may race. The host's arrays are tracked too while
asynchronous copies use them. The host's own reads and writes of plain arrays cannot be observed. That the
host has written while a kernel or a copy had not ended is found by comparing with a copy of the memory.

Not checked: freeing (a pool may reuse memory at any time), the state of ring kernels, which host and kernel share by
design, and accesses that `races.footprint` cannot determine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from windtunnel.core.errors import MissingSync, caller
from windtunnel.emulator.device.memory import EmulatedMemory
from windtunnel.emulator.device.timeline import Host
from windtunnel.emulator.device.tracked_memory import CodeLine, StreamAccess, StreamClock, TrackedBuffer
from windtunnel.emulator.races.findings import READ, WRITE
from windtunnel.emulator.races.footprint import Extent, extent_within

_MAX_ACCESSES = 64
"""Accesses that are kept for each buffer. Beyond that the oldest are dropped, and races with them are not found."""


class StreamOrder:
    """The order of one device's streams, and their accesses of its memory and of host arrays."""

    def __init__(self, host: Host, device: str) -> None:
        self.host, self.device = host, device
        self.default = StreamClock("the default stream", device, blocking=False)
        self.streams = [self.default]
        self._blocking: list[StreamClock] = []
        self._has_streams = False
        """Whether there are streams beside the default one."""
        self._graph_accesses: list[StreamAccess] | None = None
        """Accesses of the graph that is being replayed."""
        self._pending: MissingSync | None = None

    def add_stream(self, number: int, *, blocking: bool) -> StreamClock:
        """Return the clock of a new stream."""
        stream = StreamClock(f"stream {number}", self.device, blocking=blocking)
        self.streams.append(stream)
        if blocking:
            self._blocking.append(stream)
        self._has_streams = True
        return stream

    # Order.

    def enqueue(self, stream: StreamClock) -> None:
        """Record that an operation is enqueued in a stream."""
        if self._has_streams:
            if stream is self.default:
                for other in self._blocking:
                    if other.count > other.known or other.clock:
                        stream.follow(other.current_clock())
            elif stream.blocking and (self.default.count > self.default.known or self.default.clock):
                stream.follow(self.default.current_clock())
        stream.count += 1

    def record_event(self, stream: StreamClock) -> Mapping[StreamClock, int]:
        """Return the clock of an event that is recorded now."""
        self.enqueue(stream)
        return stream.current_clock()

    def host_knows(self, clock: Mapping[StreamClock, int]) -> None:
        """Record that the host knows everything that a clock states to have ended.

        If the host wrote to memory of operations that had not ended, ``take_finding`` returns the finding.
        """
        tracked = self.host.tracked
        if tracked:
            self._pending = self._pending or self.find_host_write()
        for stream, number in clock.items():
            stream.known = max(stream.known, number)
        self._drop_ended()

    def _drop_ended(self) -> None:
        for key, buffer in list(self.host.tracked.items()):
            buffer.drop_ended()
            if not buffer.accesses and not buffer.is_device_memory:
                del self.host.tracked[key]

    def host_waited_for(self, stream: StreamClock) -> None:
        """Record that the host has waited for a stream; see ``host_knows``."""
        if stream.clock or self.host.tracked:
            clock = stream.current_clock()
            stream.clock.clear()
            self.host_knows(clock)
        else:
            stream.known = stream.count

    def host_waited_for_all(self) -> None:
        """Record that the host has waited for the device; see ``host_knows``."""
        clock: dict[StreamClock, int] = {}
        for stream in self.streams:
            if stream.count > stream.known:
                clock[stream] = stream.count
        for stream in self.streams:
            if stream.clock:
                for other, number in stream.clock.items():
                    clock[other] = max(clock.get(other, 0), number)
                stream.clock.clear()
        if clock or self.host.tracked:
            self.host_knows(clock)

    # Accesses.

    def may_be_accessed_concurrently(self, memory: EmulatedMemory) -> bool:
        """Return whether another stream or the host may access memory at the same time."""
        return not memory.tracked.is_shared and (self._has_streams or memory.tracked.viewed_at is not None)

    def check_host_writes(self, memories: Iterable[EmulatedMemory | None]) -> None:
        """Raise MissingSync if the host has written to memory that an operation still uses."""
        for memory in memories if self.host.tracked else ():
            if memory is not None and memory.tracked.viewed_at is not None:
                finding = self.find_host_write(memory.tracked)
                if finding is not None:
                    raise finding

    def record_launch(
        self,
        stream: StreamClock,
        name: str,
        footprint: Sequence[tuple[EmulatedMemory, str, Extent]],
        where: CodeLine | None = None,
        *,
        publishes: bool = False,
    ) -> None:
        """Record the accesses of a kernel that was enqueued in a stream. Raises MissingSync.

        ``footprint`` lists (memory, kind of access, accessed bytes). ``where`` is the program's line, by default that
        of the caller. ``publishes``: the kernel has fences, so that the host may poll what it writes.
        """
        if not footprint:
            return
        where = where or caller()
        operation, finding = f"kernel '{name}'", None
        for memory, kind, extent in footprint:
            buffer = memory.tracked
            if buffer.is_shared:
                continue
            access = StreamAccess(stream, stream.count, kind, extent, operation, where)
            access.publishes = publishes
            finding = self._add(buffer, access) or finding
            if buffer.viewed_at is not None and not extent.partial:
                access.watch(memory.data[extent.first : extent.end], extent.flags(extent.first, extent.end))
        if finding is not None:
            raise finding

    def record_copy(
        self,
        stream: StreamClock,
        name: str,
        footprint: Sequence[tuple[EmulatedMemory, str, Extent]],
        array: np.ndarray | None = None,
        *,
        host_waits: bool = False,
        where: CodeLine | None = None,
    ) -> StreamAccess | None:
        """Record the accesses of a copy that was enqueued in a stream.

        A finding is kept for ``take_finding``, which is called when the copy is made.

        Args:
            stream: The stream.
            name: Name of the copy.
            footprint: (memory, kind of access, accessed bytes).
            array: The host's array, if there is one.
            host_waits: Whether the host waits for the copy.
            where: The program's line; by default the line of the caller.

        Returns:
            The access of ``array``, if it is tracked, so that its contents can be watched.
        """
        where = where or caller()
        finding: MissingSync | None = None
        for memory, kind, extent in footprint:
            buffer = memory.tracked
            if extent.end > extent.first and not buffer.is_shared:
                if buffer.viewed_at is not None:
                    finding = self.find_host_write(buffer)
                access = StreamAccess(stream, stream.count, kind, extent, name, where)
                finding = self._add(buffer, access) or finding
                if buffer.viewed_at is not None and kind == READ:
                    access.watch(memory.data[extent.first : extent.end])
        host_access = None
        if array is not None and array.size and (self.host.tracked or not host_waits):
            root = _root(array)
            host_buffer = self._host_buffer(root, create=not host_waits)
            if host_buffer is not None and not host_buffer.is_shared:
                finding = finding or self.find_host_write(host_buffer)
                kind = READ if footprint[0][1] == WRITE else WRITE
                host_access = StreamAccess(stream, stream.count, kind, extent_within(root, array), name, where)
                finding = self._add(host_buffer, host_access) or finding
        self._pending = self._pending or finding
        return host_access

    def postpone(self, finding: MissingSync) -> None:
        """Keep a finding that cannot be raised where it was made, until the host next waits."""
        self._pending = self._pending or finding

    def take_finding(self) -> MissingSync | None:
        """Return the finding of a copy that is made now, or of a wait that is over, once; None if there is none."""
        finding, self._pending = self._pending, None
        return finding

    def _host_buffer(self, root: np.ndarray, *, create: bool) -> TrackedBuffer | None:
        buffer = self.host.tracked.get(id(root))
        if buffer is None and create:
            buffer = self.host.tracked[id(root)] = TrackedBuffer(f"the host's array of {root.nbytes:,} bytes")
            buffer.root = root  # keeps it alive, so that no other array gets the same id
        return buffer

    def _add(self, buffer: TrackedBuffer, new: StreamAccess) -> MissingSync | None:
        """Add an access, and return the finding that it is not ordered with an earlier one."""
        stream, kind, extent = new.stream, new.kind, new.extent
        racing = None
        kept: list[StreamAccess] = []
        for old in buffer.accesses:
            if old.has_ended:
                continue
            if old.stream is stream or stream.clock.get(old.stream, 0) >= old.number:
                # What is ordered after the new access is ordered after the old one, and overlaps both or neither.
                if kind in (WRITE, old.kind) and extent.covers(old.extent):
                    continue
                if kind != READ:
                    old.stop_watching()
            elif (kind != old.kind or kind == WRITE) and extent.overlaps(old.extent):
                racing = racing or old
                new.has_raced = True
                continue
            kept.append(old)
        kept.append(new)
        buffer.accesses = kept[-_MAX_ACCESSES:]
        if self._graph_accesses is not None:
            self._graph_accesses.append(new)
        return None if racing is None else self._unordered(buffer, racing, new)

    # The host.

    def host_view_opened(self, memory: EmulatedMemory) -> None:
        """Record that the host gets a view of memory."""
        buffer = memory.tracked
        buffer.viewed_at, buffer.is_device_memory, buffer.root = caller(), True, memory.data
        self.host.tracked[id(memory.data)] = buffer

    def share(self, memories: Iterable[EmulatedMemory]) -> None:
        """Stop checking memory that a ring kernel keeps as its state."""
        for memory in memories:
            memory.tracked.is_shared = True
            memory.tracked.accesses.clear()

    def freed(self, memory: EmulatedMemory) -> None:
        """Record that memory was freed."""
        self.host.tracked.pop(id(memory.data), None)

    def forget(self) -> None:
        """Record that the device was reset or closed, so that its unfinished operations are not waited for."""
        for stream in self.streams:
            stream.known = stream.count
            stream.clock.clear()
        self._drop_ended()

    def find_host_write(self, buffer: TrackedBuffer | None = None, *, by_caller: bool = False) -> MissingSync | None:
        """Return the finding that the host wrote to memory of an unfinished operation: to one buffer, or to any.

        ``by_caller``: the caller's line has just written to it. Otherwise the line of the write is not known.
        """
        for tracked in list(self.host.tracked.values()) if buffer is None else [buffer]:
            for access in tracked.accesses:
                if access.host_has_written():
                    return self._overwritten(tracked, access, by_caller=by_caller)
        return None

    @contextmanager
    def landing(self, array: np.ndarray) -> Iterator[None]:
        """Let a copy change an array of the host that is watched. That the host has changed it before is a finding."""
        buffer = self.host.tracked.get(id(_root(array)))
        if buffer is not None:
            self._pending = self._pending or self.find_host_write(buffer)
        yield
        for access in () if buffer is None else buffer.accesses:
            access.watch_on()

    def find_host_read(self, memory: EmulatedMemory, array: np.ndarray) -> MissingSync | None:
        """Return the finding that the host reads what an unfinished operation writes; ``array`` is a view of memory."""
        unfinished = [a for a in memory.tracked.accesses if a.kind == WRITE and not a.has_ended and not a.publishes]
        if not unfinished:
            return None
        extent = extent_within(memory.data, array)
        return next((self._read_early(memory.tracked, a) for a in unfinished if a.extent.overlaps(extent)), None)

    # Graphs.

    def begin_graph(self, stream: StreamClock) -> None:
        """Begin the replay of a graph on a stream."""
        self.enqueue(stream)
        self._graph_accesses = []

    def graph_branch(self, stream: StreamClock) -> StreamClock:
        """Return the clock of a branch of graph nodes, which continues from a stream."""
        branch = StreamClock(f"{stream.name}, in a graph", self.device, blocking=False)
        branch.follow(stream.current_clock())
        return branch

    def end_graph(self, stream: StreamClock) -> None:
        """End the replay: all nodes end before the stream continues, so their accesses become the stream's."""
        stream.count += 1
        for access in self._graph_accesses or ():
            access.stream, access.number = stream, stream.count
        self._graph_accesses = None

    # Messages.

    def _unordered(self, buffer: TrackedBuffer, old: StreamAccess, new: StreamAccess) -> MissingSync:
        file, line = new.where
        old_line = _at(old.where, file)
        old_stream, new_stream = old.stream.name, new.stream.name
        if old.stream.device != self.device:
            old_stream = f"{old_stream} of {old.stream.device}"
        if self._graph_accesses is not None and old in self._graph_accesses:
            remedy = "order the two nodes: with after=[...], or with an event while the streams are captured"
        elif new.stream is self.default:
            remedy = (
                f"record an event on {old_stream} after {old_line} and wait for it on the host, or for {old_stream}"
            )
        else:
            remedy = (
                f"record an event on {old_stream} after {old_line} and let {new_stream} wait for it, or wait for "
                f"{old_stream} on the host"
            )
        return MissingSync(
            f"{file}:{line}: {new.operation} on {new_stream} of {self.device} {new.kind} {_describe(buffer, file)}, "
            f"which {old.operation} on {old_stream} ({old_line}) {old.kind}, and nothing orders the two; {remedy}",
            file=file,
            lines=_lines(file, old.where, new.where),
        )

    def _overwritten(self, buffer: TrackedBuffer, access: StreamAccess, *, by_caller: bool) -> MissingSync:
        file, line = caller()
        began = _at(access.where, file)
        verb = "writes" if by_caller else f"has written, after {began} and before here,"
        viewed_at = buffer.viewed_at
        view = "" if viewed_at is None else f" through the view made at {_at(viewed_at, file)}"
        uses = "may still read" if access.kind == READ else "may still write"
        stream = access.stream
        return MissingSync(
            f"{file}:{line}: the host {verb}{view} to {_describe(buffer, file)}, which {access.operation} on "
            f"{stream.name} of {stream.device} ({began}) {uses}, because the host has not waited for it; wait for "
            f"{stream.name}, or for an event recorded after the operation, before the host writes",
            file=file,
            lines=_lines(file, access.where, (file, line), *([viewed_at] if viewed_at is not None else [])),
        )

    def _read_early(self, buffer: TrackedBuffer, access: StreamAccess) -> MissingSync:
        file, line = caller()
        stream = access.stream.name
        return MissingSync(
            f"{file}:{line}: the host reads {_describe(buffer, file)}, which {access.operation} on {stream} of "
            f"{self.device} ({_at(access.where, file)}) writes, and the host has not waited for it; wait for {stream}, "
            "or for an event recorded after the operation, before the host reads",
            file=file,
            lines=_lines(file, access.where, (file, line)),
        )


def _describe(buffer: TrackedBuffer, file: str) -> str:
    is_host_array = not buffer.allocated_at[1]
    return buffer.description if is_host_array else f"{buffer.description} of {_at(buffer.allocated_at, file)}"


def _at(where: CodeLine, file: str) -> str:
    return f"line {where[1]}" if where[0] == file else f"{where[0]}:{where[1]}"


def _lines(file: str, *where: CodeLine) -> tuple[int, ...]:
    return tuple(sorted({line for name, line in where if name == file}))


def _root(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of another."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
