"""The context of an emulated device: calls are computed at once, and take the device model's time on a virtual clock.

A program's calls come in an order. Computing in that order gives what a correct program gets from any order that its
streams allow. The duration of each operation is the model's best value. The API divides it between host and device:

- A launch takes the host ``dispatch_s``. The kernel may begin a latency later, and whoever waits for it is notified
  another latency later. The two are such that N empty kernels and one wait take what `predict launch` says.
- A copy from or to pageable memory blocks the host until it has ended; one from or to pinned memory only for its
  dispatch.
- Kernels of fewer blocks than the device has compute units use the corresponding share of it, and run side by side.
- Memory comes from the driver in ``allocate_s`` and goes back to a pool, which reuses it at no cost, as in CuPy,
  PyTorch and cudaMallocAsync. So freeing waits for nothing.
- A kernel comes as a binary with the program, unless a call compiles it, which takes ``compile_s``.
- A device with a clock of its own is open when that clock starts. Opened on a host's clock, it takes ``context_s``.
- A reconfigurable device holds no design when it is opened. The first launch of a kernel, and one after another design
  took its place, loads it (``base.EmulatedDevice.require_design``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import DeviceOutOfMemory, InvalidArgument, caller
from windtunnel.core.ticks import to_seconds, to_ticks
from windtunnel.emulator.device.base import EmulatedDevice
from windtunnel.emulator.device.costs import Price
from windtunnel.emulator.device.graphs import Replay, launch_of
from windtunnel.emulator.device.kernels import KernelLaunch, Kernels
from windtunnel.emulator.device.launch_work import LaunchWork
from windtunnel.emulator.device.memory import EmulatedMemory
from windtunnel.emulator.device.ring import EmulatedRing, check_can_synchronize, start_ring
from windtunnel.emulator.device.streams import EmulatedEvent, EmulatedStream
from windtunnel.emulator.device.timeline import DEFAULT, Host, Span
from windtunnel.emulator.device.tracked_memory import StreamClock, TrackedBuffer
from windtunnel.emulator.races.findings import READ, WRITE
from windtunnel.emulator.races.footprint import Extent
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.graph import Node
from windtunnel.runtime.interface import Dims, Interval, MemoryKind
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.ring import RingSpec
from windtunnel.runtime.work_counts import WorkCounts

_POOL_BLOCK = 512
"""Size in bytes of which blocks of the pool are multiples, as CuPy's are."""
_ALIGNMENT = 256
"""Bytes of which addresses are multiples."""


class EmulatedContext(EmulatedDevice):
    """One emulated device, opened. It implements ``runtime.interface.Context``.

    Args:
        device: The device model.
        host: The clock of the host program; None for a clock of its own.
        interval: Which values of the device model are used: the best ones, or an end of the 90% interval.
        checked: Whether findings are looked for.
        strict: Whether unordered writes of an equal value are a finding.
        counted: Whether the work of kernels that state none is counted.
        schedule: Seed of the order in which threads are executed; None for the fastest order.
    """

    def __init__(
        self,
        device: Device,
        host: Host | None = None,
        interval: Interval = "best",
        *,
        checked: bool = True,
        strict: bool = False,
        counted: bool = True,
        schedule: int | None = None,
    ) -> None:
        super().__init__(device, host, interval, checked=checked)
        clock = None if self.order is None else self.order.default
        self.default = EmulatedStream(self, self.time.streams[DEFAULT], clock)
        self.kernels = Kernels(self, checked=checked, strict=strict, schedule=schedule)
        self.work = LaunchWork(self, counted=counted)
        self.memories: dict[int, EmulatedMemory] = {}
        """Live allocations by address."""
        self._allocated = 0
        self._pool: Counter[tuple[MemoryKind, int]] = Counter()
        """Freed blocks by kind and size. Allocating one of them again takes no time."""
        self._next_address = 1 << 20

    @contextmanager
    def checking(self, *, strict: bool, counted: bool, schedule: int | None) -> Iterator[None]:
        """Use other values of these arguments for a while. The order of threads begins as on a new device."""
        kernels, work = self.kernels, self.work
        before = kernels.strict, kernels.schedule, work.counted
        kernels.strict, work.counted = strict, counted
        kernels.begin_schedule(schedule)
        try:
            yield
        finally:
            kernels.strict, schedule, work.counted = before
            kernels.begin_schedule(schedule)

    # Memory.

    @property
    def allocated_bytes(self) -> int:
        """Device memory in use, in bytes."""
        return self._allocated

    def live_allocations(self) -> Sequence[tuple[int, str, int]]:
        """Return (bytes, file, line) of every allocation that was not freed."""
        return [(memory.size, *memory.allocated_at) for memory in self.memories.values() if not memory.is_static]

    def allocate(self, size: int, kind: MemoryKind = "device") -> EmulatedMemory:
        """Allocate ``size`` bytes. Raises InvalidArgument, or DeviceOutOfMemory."""
        if size < 1:
            raise self.error(InvalidArgument, "allocate", f"the size must be at least 1 byte, got {size:,}")
        if kind != "device" and kind not in self.info.features:
            raise self.error(InvalidArgument, "allocate", f"the API '{self.info.api}' has no {kind} memory")
        operation = f"allocate {size:,} bytes"
        if self._allocated + size > self.info.memory_bytes:
            free = self.info.memory_bytes - self._allocated
            problem = f"{free:,.0f} of {self.info.memory_bytes:,.0f} bytes are free"
            raise self.error(DeviceOutOfMemory, operation, problem)
        block = (kind, _rounded(size, _POOL_BLOCK))
        if self._pool[block]:
            self._pool[block] -= 1
        else:
            self.spend_overhead("allocate_s")
        try:
            data = np.zeros(size, np.uint8)
        except MemoryError:
            problem = "the host does not have enough memory to emulate this device"
            raise self.error(DeviceOutOfMemory, operation, problem) from None
        tracked = TrackedBuffer(f"the {size:,} bytes", caller())
        memory = EmulatedMemory(kind, size, self._next_address, data, tracked)
        self._next_address += _rounded(size, _ALIGNMENT)
        self.memories[memory.address] = memory
        self._allocated += size
        return memory

    def free(self, memory: EmulatedMemory) -> None:
        """Free memory; its block goes to the pool. Raises InvalidArgument if it is not allocated here."""
        if memory.freed or self.memories.get(memory.address) is not memory:
            raise self.error(InvalidArgument, "free", "this memory is not allocated here")
        memory.freed, memory.freed_at = True, caller()
        del self.memories[memory.address]
        if self.order is not None:
            self.order.freed(memory)
        self._allocated -= memory.size
        self._pool[memory.kind, _rounded(memory.size, _POOL_BLOCK)] += 1

    def host_view(self, memory: EmulatedMemory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """Return unified memory as the host sees it.

        The host waits until all work has ended. Pages that are on the device then move to the host.
        """
        self._catch_up()
        self.before_wait()
        self.host.wait_until(self.time.last())
        self.after_wait()
        if self.order is not None:
            self.order.host_waited_for_all()
            self.raise_pending_finding()
            self.order.host_view_opened(memory)
        if memory.kind == "unified" and memory.on_device and not self.shares_memory:
            self._copy(self.default, "d2h", memory.size, "unified", host_waits=True)
        memory.on_device = False
        memory.uninitialised = False  # what the host writes there cannot be observed
        return self.view(memory, dtype, shape)

    def host_reads(self, memory: EmulatedMemory, array: np.ndarray, *, raises: bool = True) -> None:
        """Raise MissingSync if the host reads a part of memory, a view of it, that an unfinished kernel writes.

        ``raises``: otherwise it is reported at once, and raised where the host next waits.
        """
        finding = None if self.order is None or memory.freed else self.order.find_host_read(memory, array)
        if finding is None:
            return
        self.found(finding)
        if raises:
            raise finding
        assert self.order is not None  # noqa: S101  it has made the finding
        self.order.postpone(finding)

    def host_wrote(self, memory: EmulatedMemory) -> None:
        """Raise MissingSync if what the host has just written to memory is used by an unfinished operation."""
        finding = (
            None if self.order is None or memory.freed else self.order.find_host_write(memory.tracked, by_caller=True)
        )
        if finding is not None:
            raise self.found(finding)

    # Copies.

    def copy_in(
        self,
        memory: EmulatedMemory,
        array: np.ndarray,
        stream: EmulatedStream | None,
        *,
        pinned: bool = False,
        begin: int = 0,
    ) -> None:
        """Copy an array of the host to memory, from byte ``begin`` of it on. Raises MissingSync.

        From pageable memory, the host waits for it.
        """
        self._catch_up()
        size = array.nbytes
        target = self._stream_or_default(stream)
        extent = Extent(begin, begin + size)
        host_access = target.record_copy("copy in", [(memory, WRITE, extent)], array, host_waits=not pinned)
        span = self._copy(target, "h2d", size, "pinned" if pinned else "pageable", host_waits=not pinned)
        self.host.deliver(span.start)
        data = np.ascontiguousarray(array)  # with what other copies have written by then
        if host_access is not None:
            host_access.watch(array)
        memory.data[begin : begin + size] = data.reshape(-1).view(np.uint8)
        memory.mark_written(size, begin)
        self.raise_pending_finding()

    def copy_out(
        self,
        array: np.ndarray,
        memory: EmulatedMemory,
        stream: EmulatedStream | None,
        *,
        pinned: bool = False,
        begin: int = 0,
    ) -> None:
        """Copy memory, from byte ``begin`` of it on, to an array of the host. Raises MissingSync.

        To pageable memory, the host waits for it.
        """
        self._catch_up()
        source, size = self._stream_or_default(stream), array.nbytes
        extent = Extent(begin, begin + size)
        host_access = source.record_copy("copy out", [(memory, READ, extent)], array, host_waits=not pinned)
        span = self._copy(source, "d2h", size, "pinned" if pinned else "pageable", host_waits=not pinned)
        data = memory.copied(begin, begin + size).view(array.dtype).reshape(array.shape)
        self.host.expect(span.end, array, data, self.watching(host_access, array))
        self.kernels.check_read_back(memory, begin, begin + size)
        self.raise_pending_finding()

    def pending_copy_view(self, array: np.ndarray) -> np.ndarray:
        """Return the data that pending copies will write to an array of the host."""
        return self.host.pending_view(array)

    def copy_within(self, to: EmulatedMemory, memory: EmulatedMemory, stream: EmulatedStream | None) -> None:
        """Copy memory to other memory of the device. Raises MissingSync."""
        self._catch_up()
        size = memory.size
        target = self._stream_or_default(stream)
        target.record_copy("copy within", [(memory, READ, Extent(0, size)), (to, WRITE, Extent(0, size))])
        self._copy(target, "d2d", size, "pinned", host_waits=False)
        to.data[:size] = memory.data[:size]
        to.copy_initialisation(memory, size)
        self.raise_pending_finding()

    def _copy(self, stream: EmulatedStream, direction: str, size: int, memory: str, *, host_waits: bool) -> Span:
        price = self.costs.price_of_copy(size, direction, memory)
        if not host_waits:
            self.host.spend(self.costs.dispatch_ticks)
        span = self.enqueue(stream.time, price, f"copy {direction}", size=size)
        if host_waits:
            self.host.wait_until(span.end)
            if self.order is not None and stream.clock is not None:
                self.order.host_waited_for(stream.clock)
        return span

    # Kernels.

    def compile(self, kernel: Callable[..., Any], *, shipped: bool = False) -> Kernel:
        """Return a kernel ready to launch. It takes ``compile_s`` unless the kernel is ``shipped`` as a binary."""
        if not shipped:
            self.spend_overhead("compile_s")
        return kernel if isinstance(kernel, Kernel) else Kernel(kernel)

    def launch(
        self,
        function: Kernel,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        stream: EmulatedStream | None,
        shared: int,
    ) -> None:
        """Enqueue a kernel and execute it. Raises LaunchError, or a finding."""
        self._catch_up()
        launch = self.kernels.launch(function, grid, block, arguments, shared)
        arguments, arrays = launch.arguments, launch.arrays
        target, costs = self._stream_or_default(stream), self.costs
        self.kernels.check(launch)
        self._migrate(target, arguments)
        self.work.require_price(launch)
        self.require_design(target.time, function, arrays)
        counting = self.work.counting(launch)
        if counting is None:
            self._enqueue_launch(target, launch, self.work.counts(launch, None))
        else:
            # What it does decides how long it takes. What ends before it begins is over when it is executed.
            self.fit(Price(0, 0.0, costs.compute_engine), self.share_of(launch.blocks), function.name)
            lead = costs.dispatch_ticks + costs.latency_ticks
            self.host.deliver(self.time.ready(target.time, (self.host.now + lead,)))
        if self.order is not None and target.clock is not None:
            self.order.enqueue(target.clock)
        try:
            self.kernels.execute(launch, target.clock, counting=counting)
        finally:
            if counting is not None:
                self._enqueue_launch(target, launch, self.work.counts(launch, counting))

    def _enqueue_launch(self, stream: EmulatedStream, launch: KernelLaunch, counts: WorkCounts | None) -> None:
        """Give a launch its time."""
        costs, price = self.costs, self.work.price(launch, counts)
        lead, share = costs.dispatch_ticks + costs.latency_ticks, self.share_of(launch.blocks)
        span = self.enqueue(stream.time, price, launch.function.name, share=share, latency=lead)
        self.host.spend(costs.dispatch_ticks)
        self.host.deliver(span.start)
        self.work.record(launch, span, counts)

    def replay(self, nodes: Sequence[Node], stream: EmulatedStream | None) -> None:
        """Execute the nodes of a graph. Independent nodes overlap. Raises LaunchError, or a finding.

        The first kernel takes its time. Each other kernel takes its time beyond that of an empty one, plus the API's
        time from node to node, so that N empty nodes take what `predict launch mode=graph` says. An empty kernel's own
        time is mostly starting and draining, which overlap in a graph: the 0.94 us a node of gpu-benches are less than
        it. A node without dependencies begins where the stream is; the stream continues when all nodes have ended.
        """
        if "graphs" not in self.info.features:
            raise self.error(InvalidArgument, "replay a graph", f"the API '{self.info.api}' has no graphs")
        self._catch_up()
        target, costs = self._stream_or_default(stream), self.costs
        for node in nodes:
            if node.what == "launch":
                self.kernels.check(launch_of(self.kernels, node))
        self._migrate(target, [argument for node in nodes for argument in node.arguments])
        self.host.spend(costs.dispatch_ticks)
        earliest = self.host.now + costs.latency_ticks
        begin = self.time.enqueue(target.time, "markers", "graph", 0, after=(earliest,)).end
        replay = Replay(self, self.kernels, self.work, nodes, target)
        target.time.last = max(target.time.last, replay.run(begin))
        if target is self.default:
            self.time.enqueue(target.time, "markers", "graph", 0)
        if replay.finding is not None:
            raise replay.finding

    def _migrate(self, stream: EmulatedStream, arguments: Sequence[Any]) -> None:
        """Move the pages of unified memory to the device."""
        for argument in arguments:
            memory = argument.memory if isinstance(argument, Buffer) else None
            if isinstance(memory, EmulatedMemory) and memory.kind == "unified" and not memory.on_device:
                if memory.on_device is False and not self.shares_memory:
                    # A throttled launch slows the kernel, not the migration of its pages.
                    scale, self.duration_scale = self.duration_scale, 1.0
                    self._copy(stream, "h2d", memory.size, "unified", host_waits=False)
                    self.duration_scale = scale
                memory.on_device = True

    # Streams and waiting.

    def check_stream(self, stream: Any) -> None:
        """Raise InvalidArgument if ``stream`` is not a stream of this device."""
        self._stream_or_default(stream)

    def _stream_or_default(self, stream: EmulatedStream | None) -> EmulatedStream:
        if stream is not None and not isinstance(stream, EmulatedStream):
            raise self.error(InvalidArgument, "stream", f"{stream!r} is not a stream", "handle")
        if stream is not None and stream.device is not self:
            raise self.error(InvalidArgument, "stream", f"it is of {stream.device.info.name}, another device")
        return stream or self.default

    def stream(self, *, non_blocking: bool = False) -> EmulatedStream:
        """Return a new stream. A blocking one and the default stream wait for each other."""
        time = self.time.stream(blocking=not non_blocking)
        clock = None if self.order is None else self.order.add_stream(time.number, blocking=not non_blocking)
        return EmulatedStream(self, time, clock)

    def event(self) -> EmulatedEvent:
        """Return a new event."""
        return EmulatedEvent(self, self._enqueue_marker)

    def _enqueue_marker(self, stream: EmulatedStream | None) -> tuple[int, Mapping[StreamClock, int]]:
        """Return the tick at which all work enqueued in a stream ends, and the clock of what has ended by then."""
        target = self._stream_or_default(stream)
        span = self.time.enqueue(target.time, "markers", "event", 0)
        return span.end, {} if self.order is None or target.clock is None else self.order.record_event(target.clock)

    def synchronize(self) -> None:
        """Wait until all work has ended. Raises Deadlock if a persistent kernel runs, or MissingSync."""
        self._catch_up()
        check_can_synchronize(self)
        self.wait(self.time.last())
        if self.order is not None:
            self.order.host_waited_for_all()
            self.raise_pending_finding()

    def ring(self, spec: RingSpec) -> EmulatedRing:
        """Start a ring kernel. Raises InvalidArgument, or LaunchError."""
        return start_ring(self, spec)

    def _catch_up(self) -> None:
        """Let ring kernels do what they do until now. A throttled call does not slow them."""
        if self.rings:
            scale, self.duration_scale = self.duration_scale, 1.0
            for ring in self.rings:
                ring.advance(self.host.now)
            self.duration_scale = scale

    def start_trace(self) -> list[Span]:
        """Return a list to which everything is added that is executed from now on."""
        spans: list[Span] = []
        self.time.observers.append(spans.append)
        return spans

    def stop_trace(self, spans: list[Span]) -> None:
        """Add nothing more to a list of `start_trace`."""
        self.time.observers.remove(spans.append)

    def pass_time(self, seconds: float) -> None:
        """Advance the host's clock by a time in s."""
        self.host.spend(to_ticks(seconds))

    def scale_durations(self, factor: float) -> None:
        """Multiply the duration of what is enqueued from now on. Its energy does not change."""
        self.duration_scale = factor

    # Totals.

    @property
    def provenance(self) -> str:
        """The least certain provenance of the times on the clock; "nothing" if nothing took time."""
        return "nothing" if self.costs.provenance is None else self.costs.provenance.label

    @property
    def trace_hash(self) -> str:
        """A hash of the steps that threads could see of each other, in their order; empty without a schedule."""
        return self.kernels.trace_hash

    @property
    def clock_s(self) -> float:
        """The host's virtual clock in s."""
        return to_seconds(self.host.now)

    @property
    def program_clock_s(self) -> float:
        """The same clock: a kernel comes as a binary with the program, and is not compiled on the device."""
        return self.clock_s

    @property
    def running(self) -> list[str]:
        """The names of ring kernels that have not been terminated."""
        return [ring.name for ring in self.rings]

    def totals_when_idle(self) -> tuple[float, float]:
        """Return (clock in s, energy in J) at the end of all work enqueued so far, without waiting for it."""
        self._catch_up()
        end = max(self.time.last(), self.host.now)
        return to_seconds(end), self.time.energy_j(end)

    @property
    def energy_j(self) -> float:
        """Energy of the device since it was opened, including idle power, in J."""
        return self.time.energy_j()

    def close(self) -> None:
        """Free all memory, including the pool's, and end the ring kernels."""
        self.clear()
        self._pool.clear()

    def clear(self) -> None:
        """Free the memory that a program left, and end its ring kernels. The device stays open and keeps its pool."""
        for ring in list(self.rings):
            ring.kill()
        if self.order is not None:
            self.order.forget()
        for memory in list(self.memories.values()):
            self.free(memory)


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
