"""A real device opened for programs: implements `runtime.interface.Context` with the calls of a `common.driver.Driver`.

A back end supplies the driver calls. The lifetime of memory, the order of streams, the types of kernels and the errors
are the same for all back ends and are implemented here. Kernels are written in the kernel language. They are emitted
for the driver's target when they are first launched with arguments of the given types. Kernels over whole arrays run on
emulated devices and processors only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn

import numpy as np

from windtunnel.backends.common.driver import Driver, M, Q
from windtunnel.codegen import Argument, Emitted, ForArguments, GridSize, Side, Value
from windtunnel.codegen import Buffer as ArrayArgument
from windtunnel.core.errors import (
    CopyError,
    DeviceError,
    DeviceOutOfMemory,
    Finding,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
    caller,
)
from windtunnel.language.source import KernelError, by_thread
from windtunnel.runtime.codes import Reason, code_of
from windtunnel.runtime.interface import DeviceInfo, Dims, MemoryKind
from windtunnel.runtime.kernels import Kernel


@dataclass(eq=False)
class RealMemory:
    """Allocated memory of a real device."""

    kind: MemoryKind
    size: int
    address: int
    handle: Any
    allocated_at: tuple[str, int]
    freed: bool = False
    freed_at: tuple[str, int] | None = None


@dataclass(eq=False)
class RealStream(Generic[Q, M]):
    """A stream: a queue of the driver, and what its next work waits for."""

    context: RealContext[Q, M]
    native: Q
    blocking: bool
    last: M | None = None
    """Mark after its last work; None if that has completed."""
    pending: list[M] = field(default_factory=list)
    """Marks that its next work waits for."""
    kept: list[Any] = field(default_factory=list)
    """Host arrays that asynchronous copies read and write."""

    def synchronize(self) -> None:
        """Wait until all work of the stream has completed."""
        self.context.before_wait()
        with self.context.driving("stream synchronize"):
            self.context.driver.finish(self.native)
        self.context.idle(self)
        self.context.after_wait()

    def wait(self, event: RealEvent[Q, M]) -> None:
        """Make later work of the stream wait for the event."""
        self.context.before_mark("stream wait")
        if not isinstance(event, RealEvent) or event.context is not self.context:
            raise self.context.error(InvalidArgument, "stream wait", "the event belongs to another device")
        if self.context.capturing is not None:
            self.context.capturing.wait(self, event.nodes)
        elif event.mark is not None:
            self.pending.append(event.mark)


@dataclass(eq=False)
class RealEvent(Generic[Q, M]):
    """A point in a stream's work."""

    context: RealContext[Q, M]
    mark: M | None = None
    nodes: Sequence[Any] = ()
    """Graph nodes that it marks during a capture."""

    def record(self, stream: RealStream[Q, M] | None = None) -> None:
        """Record the event after all work that ``stream`` was given so far."""
        self.context.before_mark("event record")
        if self.context.capturing is not None:
            self.nodes = self.context.capturing.after(stream)
            return
        queue = self.context.stream_of(stream)
        with self.context.driving("event record"):
            self.mark = queue.last = self.context.driver.mark(queue.native, self.context.after(queue))

    def synchronize(self) -> None:
        """Wait until the work before the event has completed. Raises InvalidArgument if it was not recorded."""
        self.context.before_wait()
        mark = self._recorded("event synchronize")
        with self.context.driving("event synchronize"):
            self.context.driver.wait(mark)
        self.context.after_wait()

    def elapsed_s(self, since: RealEvent[Q, M]) -> float:
        """Return the seconds since another event. Raises InvalidArgument if either is not complete or comes later."""
        if not isinstance(since, RealEvent) or since.context is not self.context:
            raise self.context.error(InvalidArgument, "event elapsed", "the events belong to two devices")
        mark, start = self._recorded("event elapsed"), since._recorded("event elapsed")
        driver = self.context.driver
        with self.context.driving("event elapsed"):
            if not (driver.reached(mark) and driver.reached(start)):
                problem = "the event has not completed; wait for it first"
                raise self.context.error(InvalidArgument, "event elapsed", problem, "not ready")
            seconds = driver.elapsed_s(mark, start)
        if seconds < 0:
            problem = "the other event is later; use later.elapsed_s(earlier)"
            raise self.context.error(InvalidArgument, "event elapsed", problem)
        return seconds

    def _recorded(self, operation: str) -> M:
        if self.mark is None:
            raise self.context.error(InvalidArgument, operation, "the event was not recorded", "handle")
        return self.mark


class RealFunction:
    """A kernel of a device. It is compiled once for each set of argument types that it is launched with."""

    def __init__(self, kernel: Kernel, target: str) -> None:
        self.kernel, self.name = kernel, kernel.name
        self.texts = ForArguments(kernel.function, target) if target and by_thread(kernel.function) else None
        """None for a kernel over whole arrays."""
        self.built: dict[int, Any] = {}
        """Compiled kernels by the id of the emitted text, which ``texts`` keeps alive."""


def _nothing() -> None:
    pass


class RealContext(Generic[Q, M]):
    """A real device opened for programs. Implements `runtime.interface.Context`."""

    def __init__(self, driver: Driver[Q, M], info: DeviceInfo) -> None:
        self.driver, self.info = driver, info
        self.before_mark: Callable[[str], None] = lambda _: None
        self.before_wait: Callable[[], None] = _nothing
        self.after_wait: Callable[[], None] = _nothing
        self.capturing: Any = None
        self.work: Any = None
        self.findings: list[Finding] = []
        self.memories: dict[int, RealMemory] = {}
        self._variables: dict[tuple[int, int], tuple[Any, np.ndarray]] = {}
        """The memory of the variables of C files, by the address and the size of what they begin with."""
        self._next_address = 1 << 20
        self._began_s = time.perf_counter()
        self._building_s = 0.0
        """The time for which kernels were translated and compiled (s)."""
        self._began_j = driver.energy_j()
        self._busy: set[RealStream[Q, M]] = set()
        """Streams, except the default one, that may have unfinished work, even if the program has dropped them."""
        with self.driving("open"):
            self.default: RealStream[Q, M] = RealStream(self, self.default_queue(), blocking=True)

    def default_queue(self) -> Q:
        """Return the default stream's queue: a new one, if the driver has no default queue."""
        return self.driver.queue(non_blocking=False)

    # Errors.

    def error(self, kind: type[Any], operation: str, problem: str, reason: Reason | None = None) -> Any:
        """Return an error of this device, to be raised."""
        return kind(problem, operation=operation, device=self.info.name, code=code_of(self.info.api, kind, reason))

    @contextmanager
    def driving(self, operation: str, usual: type[DeviceError] = LaunchError) -> Iterator[None]:
        """Raise the driver's exceptions within as device errors, of kind ``usual`` if the driver does not say which."""
        try:
            yield
        except DeviceError:
            raise
        except Exception as error:
            problem = self.driver.problem(error)
            if problem is None:
                raise
            raise self.error(problem.kind or usual, operation, problem.message, problem.reason) from error

    # Memory.

    @property
    def allocated_bytes(self) -> int:
        """Allocated device memory (bytes)."""
        return sum(memory.size for memory in self.memories.values())

    def live_allocations(self) -> Sequence[tuple[int, str, int]]:
        """Return (bytes, file, line) of every allocation that was not freed."""
        return [(memory.size, *memory.allocated_at) for memory in self.memories.values()]

    def allocate(self, size: int, kind: MemoryKind = "device") -> RealMemory:
        """Allocate ``size`` bytes. Raises DeviceOutOfMemory if they are not free, InvalidArgument if size < 1."""
        if size < 1:
            raise self.error(InvalidArgument, "allocate", f"size must be at least 1 byte, got {size:,}")
        if kind != "device" and kind not in self.info.features:
            raise self.error(InvalidArgument, "allocate", f"the API '{self.info.api}' has no {kind} memory")
        operation, free = f"allocate {size:,} bytes", self.info.memory_bytes - self.allocated_bytes
        if size > free:
            problem = f"{free:,.0f} of {self.info.memory_bytes:,.0f} bytes are free"
            raise self.error(DeviceOutOfMemory, operation, problem)
        with self.driving(operation, DeviceOutOfMemory):
            handle = self.driver.allocate(size, kind)
        memory = RealMemory(kind, size, self._next_address, handle, caller())
        self._next_address += -(-size // 256) * 256
        self.memories[memory.address] = memory
        return memory

    def free(self, memory: RealMemory) -> None:
        """Free memory, after all work that was enqueued before has completed, as cudaFree does."""
        if memory.freed or self.memories.get(memory.address) is not memory:
            raise self.error(InvalidArgument, "free", "this memory is not allocated on this device")
        memory.freed, memory.freed_at = True, caller()
        del self.memories[memory.address]
        with self.driving("free"):
            self._finish()
            self.driver.free(memory.handle)

    def view(self, memory: RealMemory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return the driver's own handle, for code that knows the driver."""
        return memory.handle

    def host_view(self, memory: RealMemory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """Wait for the device, and return pinned or unified memory as the host sees it."""
        self.synchronize()
        with self.driving("host access", CopyError):
            data = self.driver.host_view(memory.handle, memory.size)
        return data[: int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)

    # Streams.

    def stream(self, *, non_blocking: bool = False) -> RealStream[Q, M]:
        """Create a stream."""
        with self.driving("create a stream"):
            return RealStream(self, self.driver.queue(non_blocking=non_blocking), blocking=not non_blocking)

    def event(self) -> RealEvent[Q, M]:
        """Create an event."""
        return RealEvent(self)

    def check_stream(self, stream: Any) -> None:
        """Raise InvalidArgument if ``stream`` is not a stream of this device."""
        self.stream_of(stream)

    def stream_of(self, stream: Any) -> RealStream[Q, M]:
        """Return the stream, or the default one for None. Raises InvalidArgument if it is not one of this device."""
        if stream is None:
            return self.default
        if not isinstance(stream, RealStream):
            raise self.error(InvalidArgument, "stream", f"{stream!r} is not a stream", "handle")
        if stream.context is not self:
            raise self.error(InvalidArgument, "stream", f"the stream belongs to {stream.context.info.name}")
        return stream

    def after(self, stream: RealStream[Q, M]) -> list[M]:
        """Return the marks that a stream's next work waits for: of events, and of streams by CUDA's legacy rule."""
        marks = self.events_before(stream)
        if stream is self.default:
            return marks + [other.last for other in self._busy if other.blocking and other.last is not None]
        last = self.default.last
        return marks if not stream.blocking or last is None else [*marks, last]

    def events_before(self, stream: RealStream[Q, M]) -> list[M]:
        """Take the event marks that a stream's next work waits for, and register the stream as busy."""
        marks, stream.pending = stream.pending, []
        if stream is not self.default:
            self._busy.add(stream)
        return marks

    def idle(self, stream: RealStream[Q, M]) -> None:
        """Register that all work of a stream has completed."""
        stream.last = None
        stream.kept.clear()
        self._busy.discard(stream)

    def synchronize(self) -> None:
        """Wait until all work of the device has completed."""
        self.before_wait()
        with self.driving("synchronize"):
            self._finish()
        self.after_wait()

    def _finish(self) -> None:
        for stream in (self.default, *self._busy):
            self.driver.finish(stream.native)
            self.idle(stream)

    # Copies.

    def copy_in(
        self, memory: RealMemory, array: np.ndarray, stream: RealStream[Q, M] | None, *, pinned: bool = False
    ) -> None:
        """Copy from host to device. An array that is not contiguous is gathered, and the host waits for the copy."""
        queue, data = self.stream_of(stream), np.ascontiguousarray(array)
        if not data.nbytes:
            return
        hold = not pinned or data is not array
        with self.driving("copy in", CopyError):
            queue.last = self.driver.write(memory.handle, _bytes(data), queue.native, self.after(queue), hold=hold)
        if not hold:
            queue.kept.append(array)

    def copy_out(
        self, array: np.ndarray, memory: RealMemory, stream: RealStream[Q, M] | None, *, pinned: bool = False
    ) -> None:
        """Copy from device to host. The host waits for a copy into an array that is not contiguous."""
        queue = self.stream_of(stream)
        if not array.nbytes:
            return
        contiguous = bool(array.flags.c_contiguous)
        data = array if contiguous else np.empty(array.shape, array.dtype)
        hold = not pinned or not contiguous
        with self.driving("copy out", CopyError):
            queue.last = self.driver.read(_bytes(data), memory.handle, queue.native, self.after(queue), hold=hold)
        if not contiguous:
            array[...] = data
        elif not hold:
            queue.kept.append(array)

    def copy_within(self, to: RealMemory, memory: RealMemory, stream: RealStream[Q, M] | None) -> None:
        """Copy within the device."""
        queue = self.stream_of(stream)
        with self.driving("copy within", CopyError):
            queue.last = self.driver.copy(to.handle, memory.handle, memory.size, queue.native, self.after(queue))

    # Kernels.

    def compile(self, kernel: Callable[..., Any], *, shipped: bool = False) -> RealFunction:
        """Return the kernel. It is compiled when it is launched, because its arguments' types are needed."""
        return RealFunction(kernel if isinstance(kernel, Kernel) else Kernel(kernel), self.driver.target)

    def launch(
        self,
        function: RealFunction,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        stream: RealStream[Q, M] | None,
        shared: int,
    ) -> None:
        """Enqueue a kernel."""
        queue = self.stream_of(stream)
        kernel, emitted = self.built(function, grid, block, arguments, shared)
        values = self.values(function, emitted, arguments, grid)
        with self.driving(f"launch {function.name}"):
            queue.last = self.driver.launch(kernel, emitted, grid, block, values, queue.native, self.after(queue))

    def built(
        self, function: RealFunction, grid: Dims, block: Dims, arguments: Sequence[Any], shared: int
    ) -> tuple[Any, Emitted]:
        """Return the kernel for arguments of these types, which the driver compiles the first time."""
        began_s = time.perf_counter()
        if function.texts is None:
            self.refuse_array_kernel(function)
        operation = f"launch {function.name}"
        launch_mismatch = function.texts.launch_mismatch(grid, block, arguments)
        if launch_mismatch is not None:
            raise self.error(LaunchError, operation, launch_mismatch, "configuration")
        emitted = function.texts.emitted(arguments, block, shared)
        self._check_warp(function, emitted)
        kernel = function.built.get(id(emitted))
        if kernel is None:
            with self.driving(operation):
                kernel = function.built[id(emitted)] = self.driver.build(emitted)
            self._building_s += time.perf_counter() - began_s
        return kernel, emitted

    def _check_warp(self, function: RealFunction, emitted: Emitted) -> None:
        """Raise KernelError if a kernel is written for warps of another size than this device has."""
        if emitted.warp is None or emitted.warp[0] == self.info.limits.warp:
            return
        threads, where = emitted.warp
        raise KernelError(
            f"'{function.name}' is written for warps of {threads} threads, and {self.info.name} executes "
            f"{self.info.limits.warp} together",
            where=where,
            expected="shared memory and a barrier of the block",
        )

    def refuse_array_kernel(self, function: RealFunction) -> NoReturn:
        """Raise UnsupportedOperationError for a kernel over whole arrays, which is not device code."""
        raise UnsupportedOperationError(
            f"kernel '{function.name}' works on whole arrays, which only emulated devices and processors support; "
            f"{self.info.name} requires a kernel of threads: i = grid(1); a[i] = ..."
        )

    def values(self, function: RealFunction, emitted: Emitted, arguments: Sequence[Any], grid: Dims) -> list[Any]:
        """Return the values of a kernel's arguments as the driver takes them."""
        assert function.texts is not None  # noqa: S101  kernels over whole arrays are not built
        given = function.texts.given(emitted, arguments)
        return [self._value(argument, given, grid) for argument in emitted.signature.arguments]

    def _value(self, argument: Argument, given: Mapping[str, Any], grid: Dims) -> Any:
        match argument:
            case ArrayArgument():
                return self._handle(given[argument.name])
            case Side():
                return np.int32(given[argument.array].shape[argument.side])
            case Value():
                return argument.passed.dtype.type(given[argument.name])
            case GridSize():
                return np.int32(grid[argument.axis])
        return given[argument.name]  # shared memory of a size, or the bytes of a struct

    def _handle(self, given: Any) -> Any:
        """Return the memory of a buffer, or of a variable of a C file; None for a null pointer of its own source."""
        if given is None or hasattr(given, "memory"):
            return None if given is None else given.memory.handle
        # Such a variable lives as long as the device is open, and begins with the value that the file gives it.
        key = (given.__array_interface__["data"][0], given.nbytes)
        if key not in self._variables:
            with self.driving("allocate a variable of the file", DeviceOutOfMemory):
                handle = self.driver.allocate(given.nbytes, "device")
                self.driver.write(handle, _bytes(given), self.default.native, (), hold=True)
            self._variables[key] = handle, given
        return self._variables[key][0]

    def ring(self, spec: Any) -> Any:
        """Raise UnsupportedOperationError: only emulated devices run a ring kernel's Python handler."""
        raise UnsupportedOperationError(
            f"only emulated devices run ring kernels, whose handler is a Python function; {self.info.name} is real"
        )

    def replay(self, nodes: Sequence[Any], stream: RealStream[Q, M] | None) -> None:
        """Raise InvalidArgument: only back ends with native graphs override this."""
        raise self.error(InvalidArgument, "replay a graph", f"the API '{self.info.api}' does not support graphs")

    # Clock, energy and the rest of the interface.

    trace_hash = ""
    provenance = "measured"

    @property
    def clock_s(self) -> float:
        """Host time since the device was opened (s)."""
        return time.perf_counter() - self._began_s

    @property
    def program_clock_s(self) -> float:
        """The clock without the time for which kernels were translated and compiled, at their first launches (s)."""
        return self.clock_s - self._building_s

    @property
    def energy_j(self) -> float:
        """Energy of the device since it was opened (J); NaN if the device has no energy counter."""
        now = self.driver.energy_j()
        return float("nan") if now is None or self._began_j is None else now - self._began_j

    def start_trace(self) -> list[Any]:
        """Return an empty list: real devices do not report their timeline."""
        return []

    def stop_trace(self, spans: list[Any]) -> None:
        """Do nothing: see `start_trace`."""

    def pass_time(self, seconds: float) -> None:
        """Sleep for this time."""
        time.sleep(seconds)

    def scale_durations(self, factor: float) -> None:
        """Do nothing: only emulated devices can be slowed, and such faults are refused before."""

    @property
    def running(self) -> list[str]:
        """Ring kernels that run: none."""
        return []

    def totals_when_idle(self) -> tuple[float, float]:
        """Wait until all work has completed, and return (program clock (s), energy (J))."""
        with self.driving("synchronize"):
            self._finish()
        return self.program_clock_s, self.energy_j

    def pending_copy_view(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself: a real copy writes to it directly."""
        return array

    def clear(self) -> None:
        """Free all memory."""
        for memory in list(self.memories.values()):
            self.free(memory)

    def close(self) -> None:
        """Free all memory and close the driver."""
        self.clear()
        for handle, _ in self._variables.values():
            with self.driving("free"):
                self.driver.free(handle)
        self._variables.clear()
        self.driver.close()


def _bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a contiguous array, as a view."""
    return array.reshape(-1).view(np.uint8)
