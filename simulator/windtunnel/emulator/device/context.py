"""An emulated device: calls compute at once with NumPy, and take the device model's time on a virtual clock.

A program's calls come in an order, and computing in that order gives what a right program gets from any order that its
streams allow. What each takes is the model's best value; how the API divides it between host and device is stated here:

- A launch costs the host ``dispatch_s``; the kernel may begin a latency later, and whoever waits for it is told another
  latency later. The two are such that N empty kernels and one wait take what `predict launch` says.
- A copy from or to pageable memory holds the host until it has ended; from or to pinned memory only its dispatch.
- Kernels of fewer blocks than the device has compute units take as large a share of it, and run side by side.
- Memory comes from the driver for ``allocate_s``, and goes back to a pool of the program's, which gives it out again
  for nothing: what CuPy, PyTorch and cudaMallocAsync do. So freeing waits for nobody.
- A kernel comes as a binary with the program, unless it is compiled by a call, which takes ``compile_s``.
- A device with a clock of its own is open when that clock starts; opened on a host's clock, it takes ``context_s``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.core.device import Device, Parameters
from windtunnel.core.errors import (
    DeviceOutOfMemory,
    InputError,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
    caller,
)
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.provenance import Provenance
from windtunnel.core.ticks import to_seconds, to_ticks
from windtunnel.emulator.device.graphs import Replay
from windtunnel.emulator.device.handles import EmulatedEvent, EmulatedMemory, EmulatedStream
from windtunnel.emulator.device.kernels import Kernels
from windtunnel.emulator.device.ring import EmulatedRing, PersistentRing, RelaunchRing, check_state, refuse_waiting
from windtunnel.emulator.device.stream_order import Order, Place, Queue
from windtunnel.emulator.device.timeline import DEFAULT, DeviceTime, Host, Span, StreamTime
from windtunnel.emulator.races.findings import READ, WRITE
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.codes import Reason, code_of
from windtunnel.runtime.graph import Node
from windtunnel.runtime.interface import DeviceInfo, Dims, Interval, MemoryKind
from windtunnel.runtime.kernels import Kernel, Work
from windtunnel.runtime.limits import limits_of
from windtunnel.runtime.ring import RingSpec


@dataclass(frozen=True)
class Price:
    """What an operation takes: ticks, energy above idle (J), and on which engine."""

    ticks: int
    joules: float
    engine: str


_GRAIN = 512
"""Bytes: blocks of the pool are whole multiples, as CuPy's are."""


def _nothing() -> None:
    pass


_DTYPES = {"float16": "float16", "bfloat16": "bfloat16", "int8": "int8", "fp8": "fp8", "fp4": "nvfp4"}
"""Features that name a type of numbers, and the type as matrix units list it."""


def _features(device: Device) -> frozenset[str]:
    """What the API offers, of the types of numbers those that the silicon has a rate for."""
    rates = {name.partition(".")[2] for name in device.values if name.startswith(("matrix_flops", "vector_flops"))}
    matrix = any(name.startswith("matrix_flops") for name in device.values)
    return frozenset(
        feature
        for feature in device.api.features
        if (feature not in _DTYPES or not rates or _DTYPES[feature] in rates) and (matrix or feature != "matrix")
    )


class EmulatedContext:
    """One emulated device, opened. See the module, and ``runtime.interface.Context``."""

    def __init__(
        self,
        device: Device,
        host: Host | None = None,
        interval: Interval = "best",
        *,
        checked: bool = True,
        schedule: int | None = None,
    ) -> None:
        self.device = device
        self.host = host or Host()
        self.interval = interval
        self.weakest: Provenance | None = None
        """The weakest provenance of what the clock took so far; None as long as nothing took time."""
        if host is not None:
            self._spend("context_s")
        api = device.api
        self.info = DeviceInfo(
            name=device.label,
            kind=device.kind.name,
            api=api.name,
            memory_bytes=device.memory_bytes,
            limits=limits_of(api.name),
            features=_features(device),
            virtual=True,
            compute_units=int(device.number("compute_units") or device.number("cores") or 1),
        )
        self.time = DeviceTime(self.host, device.idle_power_w, born=self.host.now)
        self.order = Order(self.host, self.info.name) if checked else None
        queue = None if self.order is None else self.order.default
        self.default = EmulatedStream(self, self.time.streams[DEFAULT], queue)
        self.memories: dict[int, EmulatedMemory] = {}
        self._allocated = 0
        self._pool: Counter[tuple[MemoryKind, int]] = Counter()
        """Blocks that the program gave back, by kind and size: the next such block costs no call."""
        self._next_address = 1 << 20
        self.slowed = 1.0
        """How many times its time work takes; see ``stretch``."""
        self.capturing: Any = None
        self.rings: list[EmulatedRing] = []
        self.kernels = Kernels(self, checked=checked, schedule=schedule)
        self.before_mark: Callable[[str], None] = lambda _: None
        self.before_wait: Callable[[], None] = _nothing
        self.after_wait: Callable[[], None] = _nothing
        self._prices: dict[tuple[Any, ...], Price] = {}
        self._constant: dict[Kernel, Price] = {}
        """Of kernels whose every launch is the same work."""
        self._launching = Provenance.MEASURED
        self.units = device.number("compute_units") or device.number("cores") or 1.0
        # A processor's own memory is the host's.
        self.shares_memory = device.kind.name == "cpu" or (device.number("unified_memory") or 0.0) >= 0.5
        self._overheads()

    def _overheads(self) -> None:
        """How a round trip divides into the host's part, the way there and the way back.

        At an end of the intervals each part is at its own end, and never on the other side of its best value.
        """
        asked = self.interval
        self.interval = "best"
        best = self._parts()
        self.interval = asked
        further = {"low": min, "best": max, "high": max}[asked]
        parts = [further(one, other) for one, other in zip(best, self._parts(), strict=True)]
        self.dispatch_ticks, self.latency_ticks, self.back_ticks, self.empty_ticks, self.node_ticks = parts

    def _parts(self) -> tuple[int, int, int, int, int]:
        try:
            one, many = (self._launch_s(count) for count in (1, 1001))
        except UnsupportedOperationError:
            one = many = 0.0
        each = to_ticks((many - one) / 1000)
        floor = min(to_ticks(Parameters(self.device).maybe("kernel_floor_s") or 0.0), to_ticks(one))
        # Back to back, the slower of enqueuing and executing sets the pace; where that is the device, the host is free
        # again after the API's own dispatch.
        dispatch = each if each > floor + 1 else min(self.overhead("dispatch_s"), each)
        # A kernel may begin, and end, before the call that enqueues it has returned: then the way there is negative.
        rest = max(to_ticks(one) - dispatch - floor, -dispatch)
        back = min(self.overhead("synchronize_s"), max(rest, 0))
        return dispatch, rest - back, back, floor, self.overhead("graph_node_s")

    def overhead(self, name: str) -> int:
        """A cost of the API (ticks); 0 where its profile has none."""
        found = self.device.api.values.get(name)
        if found is None:
            return 0
        ends = {"low": found.low, "best": found.value, "high": found.high}
        value = ends[self.interval]
        return to_ticks(found.value if value is None else value)

    def _spend(self, name: str) -> None:
        """The host spends a cost of the API."""
        ticks = self.overhead(name)
        if ticks:
            self.host.spend(ticks)
            self._note(name)

    def _note(self, name: str) -> None:
        """A cost of the API has entered the clock."""
        self.weakest = max(self.weakest or Provenance.MEASURED, self.device.api.values[name].provenance)

    def _launch_s(self, count: int) -> float:
        seconds, self._launching = self._cost("launch", {"mode": "stream", "count": count})[:2]
        return seconds

    def _cost(self, op: str, values: Mapping[str, Any]) -> tuple[float, Provenance, float, str]:
        """(seconds, where they come from, power (W), engine) of an operation."""
        rows = one_row(OPERATIONS.find(op), values)
        cost = self.device.cost(rows, intervals=self.interval != "best")
        columns = {"low": cost.duration_low_s, "best": cost.duration_s, "high": cost.duration_high_s}
        seconds = float(columns[self.interval][0])
        return seconds, Provenance(int(cost.provenance[0])), float(cost.power_w[0]), self.device.engine_of(rows)

    # Errors.

    def error(self, kind: type[Any], operation: str, problem: str, reason: Reason | None = None) -> Any:
        """A device error of this device."""
        return kind(problem, operation=operation, device=self.info.name, code=code_of(self.info.api, kind, reason))

    # Memory.

    @property
    def allocated_bytes(self) -> int:
        """Device memory in use."""
        return self._allocated

    def live_allocations(self) -> Sequence[tuple[int, str, int]]:
        """See ``Context``."""
        return [(memory.size, *memory.place.made) for memory in self.memories.values()]

    def allocate(self, size: int, kind: MemoryKind = "device") -> EmulatedMemory:
        """See ``Context``."""
        if size < 1:
            raise self.error(InvalidArgument, "allocate", f"{size:,} bytes are no memory")
        if kind != "device" and kind not in self.info.features:
            raise self.error(InvalidArgument, "allocate", f"the API '{self.info.api}' has no {kind} memory")
        if self._allocated + size > self.info.memory_bytes:
            free = self.info.memory_bytes - self._allocated
            raise self.error(
                DeviceOutOfMemory,
                f"allocate {size:,} bytes",
                f"{free:,.0f} of {self.info.memory_bytes:,.0f} bytes are free",
            )
        block = -(-size // _GRAIN) * _GRAIN
        if self._pool[kind, block]:
            self._pool[kind, block] -= 1
        else:
            self._spend("allocate_s")
        try:
            data = np.zeros(size, np.uint8)
        except MemoryError:
            problem = "this machine, which emulates the device, has not so much memory itself"
            raise self.error(DeviceOutOfMemory, f"allocate {size:,} bytes", problem) from None
        memory = EmulatedMemory(kind, size, self._next_address, data, Place(f"the {size:,} bytes", caller()))
        self._next_address += -(-size // 256) * 256
        self.memories[memory.address] = memory
        self._allocated += size
        return memory

    def free(self, memory: EmulatedMemory) -> None:
        """See ``Context``. The block goes to the pool."""
        if memory.freed or self.memories.get(memory.address) is not memory:
            raise self.error(InvalidArgument, "free", "this memory is not allocated here")
        memory.freed, memory.freed_at = True, caller()
        del self.memories[memory.address]
        if self.order is not None:
            self.order.freed(memory)
        self._allocated -= memory.size
        self._pool[memory.kind, -(-memory.size // _GRAIN) * _GRAIN] += 1

    def view(self, memory: EmulatedMemory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """See ``Context``."""
        return memory.data[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def host_view(self, memory: EmulatedMemory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """See ``Context``: once all work has ended, the pages that the device had move to the host."""
        self._catch_up()
        self.before_wait()
        self.host.wait_until(self.time.last())
        self.after_wait()
        if self.order is not None:
            self.order.all_ended()
            self.order.tell()
            self.order.viewed(memory)
        if memory.kind == "unified" and memory.on_device and not self.shares_memory:
            self._copy(self.default, "d2h", memory.size, "unified", hold=True)
        memory.on_device = False
        memory.unwritten = False  # what the host writes there is not seen
        return self.view(memory, dtype, shape)

    def check_stream(self, stream: Any) -> None:
        """See ``Context``."""
        self._queue(stream)

    def _queue(self, stream: EmulatedStream | None) -> EmulatedStream:
        if stream is not None and not isinstance(stream, EmulatedStream):
            raise self.error(InvalidArgument, "stream", f"{stream!r} is no stream", "handle")
        if stream is not None and stream.context is not self:
            raise self.error(InvalidArgument, "stream", f"it is of {stream.context.info.name}, another device")
        return stream or self.default

    # Copies.

    def copy_in(
        self, memory: EmulatedMemory, array: np.ndarray, stream: EmulatedStream | None, *, pinned: bool = False
    ) -> None:
        """See ``Context``."""
        self._catch_up()
        data = np.ascontiguousarray(array)
        kind = "pinned" if pinned else "pageable"
        queue = self._queue(stream)
        read = queue.copies("copy in", [(memory, WRITE, data.nbytes)], array, holds=not pinned)
        span = self._copy(queue, "h2d", data.nbytes, kind, hold=not pinned)
        self.host.deliver(span.start)
        data = np.ascontiguousarray(array)  # with what has arrived by then
        if read is not None:
            read.keep(array)
        memory.data[: data.nbytes] = data.reshape(-1).view(np.uint8)
        memory.write(data.nbytes)
        queue.told()

    def copy_out(
        self, array: np.ndarray, memory: EmulatedMemory, stream: EmulatedStream | None, *, pinned: bool = False
    ) -> None:
        """See ``Context``."""
        self._catch_up()
        kind = "pinned" if pinned else "pageable"
        queue = self._queue(stream)
        queue.copies("copy out", [(memory, READ, array.nbytes)], array, holds=not pinned)
        span = self._copy(queue, "d2h", array.nbytes, kind, hold=not pinned)
        self.host.expect(span.end, array, self.view(memory, array.dtype, array.shape).copy())
        queue.told()

    def pending_copy_view(self, array: np.ndarray) -> np.ndarray:
        """See ``Context``."""
        return self.host.under_way(array)

    def copy_within(self, to: EmulatedMemory, memory: EmulatedMemory, stream: EmulatedStream | None) -> None:
        """See ``Context``."""
        self._catch_up()
        size = memory.size
        queue = self._queue(stream)
        queue.copies("copy within", [(memory, READ, size), (to, WRITE, size)])
        self._copy(queue, "d2d", size, "pinned", hold=False)
        to.data[:size] = memory.data[:size]
        to.take_over(memory, size)
        queue.told()

    def _copy(self, stream: EmulatedStream, direction: str, size: int, memory: str, *, hold: bool) -> Span:
        price = self._price("copy", {"bytes": max(size, 1), "direction": direction, "memory": memory})
        if not hold:
            self.host.spend(self.dispatch_ticks)
        span = self._enqueue(stream, price, f"copy {direction}", size=size)
        if hold:
            self.host.wait_until(span.end)
            if self.order is not None and stream.queue is not None:
                self.order.caught_up(stream.queue)
        return span

    # Kernels.

    def compile(self, kernel: Callable[..., Any], *, shipped: bool = False) -> Kernel:
        """See ``Context``."""
        if not shipped:
            self._spend("compile_s")
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
        """See ``Context``."""
        self._catch_up()
        buffers = [argument for argument in arguments if isinstance(argument, Buffer)]
        given = [self.given(argument) for argument in arguments]
        queue = self._queue(stream)
        self.kernels.check(function, grid, block, given, shared)
        self._migrate(queue, buffers)
        price = self._constant.get(function)
        if price is None:
            price = self.price(function.work_of(grid, block, given))
            if function.constant:
                self._constant[function] = price
        blocks = grid[0] * grid[1] * grid[2]
        share = min(blocks / self.units, 1.0)
        lead = self.dispatch_ticks + self.latency_ticks
        span = self._enqueue(queue, price, function.name, share=share, latency=lead)
        self.host.spend(self.dispatch_ticks)
        self.host.deliver(span.start)
        if self.order is not None and queue.queue is not None:
            self.order.enter(queue.queue)
        self.kernels.execute(function, grid, block, arguments, given, shared, queue.queue)

    def replay(self, nodes: Sequence[Node], stream: EmulatedStream | None) -> None:
        """See ``Context``. Nodes that may, overlap.

        The first kernel takes its time, and each other its time beyond that of an empty one, and the API's gap between
        nodes: so N empty nodes take what `predict launch mode=graph` says. (What an empty kernel takes by itself is
        mostly starting and draining, which overlap in a graph: gpu-benches' 0.94 us a node are less than it.) A node
        that waits for none begins where the stream is; the stream goes on when all nodes have ended.
        """
        if "graphs" not in self.info.features:
            raise self.error(InvalidArgument, "replay a graph", f"the API '{self.info.api}' has no graphs")
        self._catch_up()
        queue = self._queue(stream)
        for node in nodes:
            if node.what == "launch":
                arguments = [self.given(argument) for argument in node.arguments]
                self.kernels.check(node.function, node.grid, node.block, arguments, node.shared)
        self._migrate(queue, [a for node in nodes for a in node.arguments if isinstance(a, Buffer)])
        self.host.spend(self.dispatch_ticks)
        begin = self.time.enqueue(queue.time, "markers", "graph", 0, after=(self.host.now + self.latency_ticks,)).end
        replay = Replay(self, nodes, queue)
        queue.time.last = max(queue.time.last, replay.run(begin))
        if queue is self.default:
            self.time.enqueue(queue.time, "markers", "graph", 0)
        if replay.found is not None:
            raise replay.found

    def given(self, argument: Any) -> Any:
        if not isinstance(argument, Buffer):
            return argument
        memory = argument.memory
        assert isinstance(memory, EmulatedMemory)  # noqa: S101  the accelerator has seen that it is of this context
        return self.view(memory, argument.dtype, argument.shape)

    def _migrate(self, stream: EmulatedStream, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            memory = buffer.memory
            if memory.kind == "unified" and isinstance(memory, EmulatedMemory) and not memory.on_device:
                if memory.on_device is False and not self.shares_memory:
                    # It is the kernel that a throttled launch slows, not the pages on their way to it.
                    stretch, self.slowed = self.slowed, 1.0
                    self._copy(stream, "h2d", memory.size, "unified", hold=False)
                    self.slowed = stretch
                memory.on_device = True

    def _enqueue(
        self, stream: EmulatedStream, price: Price, name: str, *, share: float = 1.0, latency: int = 0, size: int = 0
    ) -> Span:
        ticks, share = self.fit(price, share, name)
        return self.time.enqueue(
            stream.time,
            price.engine,
            name,
            ticks if self.slowed == 1.0 else round(ticks * self.slowed),
            joules=price.joules,
            share=share,
            after=(self.host.now + latency,),
            size=size,
        )

    def fit(self, price: Price, share: float, name: str) -> tuple[int, float]:
        """(ticks, share) of work beside kernels that stay: on what they leave, for as much longer as that is less."""
        free = self.time.engine(price.engine).free
        if share <= free:
            return price.ticks, share
        if free * self.units < 1.0 - 1e-9:
            staying = ", ".join(f"'{ring.name}'" for ring in self.rings)
            problem = f"it could not begin: ring kernel {staying} holds all {self.units:g} compute units until it ends"
            raise self.error(LaunchError, f"launch {name}", problem)
        return round(price.ticks * share / free), free

    def _price(self, op: str, values: Mapping[str, Any]) -> Price:
        key = (op, *values.items())
        found = self._prices.get(key)
        if found is None:
            seconds, provenance, power_w, engine = self._cost(op, values)
            above_w = max(power_w - self.device.idle_power_w, 0.0)
            found = self._prices[key] = Price(to_ticks(seconds), above_w * seconds, engine)
            self.weakest = max(self.weakest or Provenance.MEASURED, provenance, self._launching)
        return found

    def price(self, works: Sequence[Work]) -> Price:
        """What operations take, one after another, on the engine of the first."""
        prices = []
        if not works:
            raise InputError("a kernel's work is an empty list", expected="one operation, or several")
        for work in works:
            if isinstance(work, tuple):
                op, columns = work[0], dict(work[1])
            else:
                columns = dict(work)
                if "op" not in columns:
                    raise InputError(f"a kernel's work of {sorted(columns)} names no operation", expected="a key 'op'")
                op = columns.pop("op")
            try:
                prices.append(self._price(str(op), columns))
            except UnsupportedOperationError as error:
                raise UnsupportedOperationError(
                    f"a launch was priced as '{op}': {error}; state what the kernel does there: @kernel(work=...)"
                ) from None
        if len(prices) == 1:
            return prices[0]
        return Price(sum(p.ticks for p in prices), sum(p.joules for p in prices), prices[0].engine)

    # Waiting.

    def stream(self, *, non_blocking: bool = False) -> EmulatedStream:
        """See ``Context``."""
        time = self.time.stream(blocking=not non_blocking)
        queue = None if self.order is None else self.order.queue(time.number, blocking=not non_blocking)
        return EmulatedStream(self, time, queue)

    def event(self) -> EmulatedEvent:
        """See ``Context``."""
        return EmulatedEvent(self)

    def enqueue_marker(self, stream: EmulatedStream | None) -> tuple[int, Mapping[Queue, int]]:
        """The tick at which all that ``stream`` was given so far has ended, and what has ended then."""
        found = self._queue(stream)
        span = self.time.enqueue(found.time, "markers", "event", 0)
        return span.end, {} if self.order is None or found.queue is None else self.order.mark(found.queue)

    def wait(self, tick: int) -> None:
        """The host waits until ``tick``, and is told."""
        self.before_wait()
        self.host.wait_until(tick)
        if self.back_ticks:
            self.host.spend(self.back_ticks)
            self._note("synchronize_s")
        self.after_wait()

    def synchronize(self) -> None:
        """See ``Context``. Deadlock where a kernel stays."""
        self._catch_up()
        refuse_waiting(self, "synchronize")
        self.wait(self.time.last())
        if self.order is not None:
            self.order.all_ended()
            self.order.tell()

    # Ring kernels.

    def ring(self, spec: RingSpec) -> EmulatedRing:
        """See ``Context``."""
        check_state(self, spec)
        found = (PersistentRing if "persistent" in self.info.features else RelaunchRing)(self, spec)
        self.rings.append(found)
        if self.order is not None:
            self.order.share(a.memory for a in spec.state if isinstance(a, Buffer))  # type: ignore[misc]
        return found

    @property
    def compute_engine(self) -> str:
        """The engine that kernels run on."""
        try:
            return self._price("kernel", {"threads": 1, "bytes": 1, "flops": 0.0}).engine
        except UnsupportedOperationError:
            return "compute"  # devices whose engines are of one kind

    def ring_launch(self, stream: StreamTime, name: str, ticks: int, joules: float, share: float) -> int:
        """Enqueue a launch of a ring kernel that was dispatched; when it ends."""
        price = Price(ticks, joules, self.compute_engine)
        return self._enqueue(EmulatedStream(self, stream), price, name, share=share, latency=self.latency_ticks).end

    def ring_copy(self, stream: StreamTime, direction: str, size: int, name: str) -> int:
        """Enqueue a copy of a ring kernel's messages or replies; when it ends."""
        price = self._price("copy", {"bytes": max(size, 1), "direction": direction, "memory": "pinned"})
        return self._enqueue(EmulatedStream(self, stream), price, f"{name}: copy {direction}", size=size).end

    def _catch_up(self) -> None:
        """Kernels that stay have done what they do until now; what slows the call that asks is none of theirs."""
        if self.rings:
            stretch, self.slowed = self.slowed, 1.0
            for ring in self.rings:
                ring.advance(self.host.now)
            self.slowed = stretch

    def start_trace(self) -> list[Span]:
        """See ``Context``."""
        spans: list[Span] = []
        self.time.observers.append(spans.append)
        return spans

    def pass_time(self, seconds: float) -> None:
        """See ``Context``."""
        self.host.spend(to_ticks(seconds))

    def scale_durations(self, factor: float) -> None:
        """See ``Context``; the energy of slowed work is its own, as of throttled work in scenarios."""
        self.slowed = factor

    @property
    def provenance(self) -> str:
        """See ``Context``."""
        return "nothing" if self.weakest is None else self.weakest.label

    @property
    def trace_hash(self) -> str:
        """See ``Context``."""
        return self.kernels.trace_hash

    @property
    def clock_s(self) -> float:
        """The host's virtual clock (s)."""
        return to_seconds(self.host.now)

    @property
    def running(self) -> list[str]:
        """See ``Context``."""
        return [ring.name for ring in self.rings]

    def totals_when_idle(self) -> tuple[float, float]:
        """See ``Context``."""
        self._catch_up()
        end = max(self.time.last(), self.host.now)
        return to_seconds(end), self.time.energy_j(end)

    @property
    def energy_j(self) -> float:
        """Energy of the device since it was opened (J), idle power included."""
        return self.time.energy_j()

    def close(self) -> None:
        """Free all that is left, the pool's too; kernels that stay go."""
        self.clear()
        self._pool.clear()

    def clear(self) -> None:
        """See ``Context``."""
        for ring in list(self.rings):
            ring.kill()
        if self.order is not None:
            self.order.forget()
        for memory in list(self.memories.values()):
            self.free(memory)
