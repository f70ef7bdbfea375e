"""What all real devices have in common: a context (``runtime.interface.Context``) over a few calls of a driver.

A back end says how its driver does each (`Driver`); memory's life, the order of streams, kernels' types and errors are
the same everywhere and stand here. Kernels are those of the kernel language, emitted for the driver's target when they
are first launched with arguments of their types; kernels of whole arrays are for emulated devices and processors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import numpy as np

from windtunnel.codegen import Argument, Emitted, ForArguments, GridSize, Side, Value
from windtunnel.codegen import Buffer as ArrayArgument
from windtunnel.core.errors import (
    CopyError,
    DeviceError,
    DeviceOutOfMemory,
    InvalidArgument,
    LaunchError,
    UnsupportedOperationError,
    caller,
)
from windtunnel.language.source import by_thread
from windtunnel.runtime.codes import Reason, code_of
from windtunnel.runtime.interface import DeviceInfo, Dims, MemoryKind
from windtunnel.runtime.kernels import Kernel

Q = TypeVar("Q")
"""A queue of the driver's."""
M = TypeVar("M")
"""A point in a queue's work, as the driver has it."""


class Driver(Protocol[Q, M]):
    """A driver's calls, each on one device. Bytes are one-dimensional, contiguous ``uint8`` arrays.

    Work given to a queue is done in order; ``after``: points of other queues that it waits for, too. Whatever goes
    wrong is raised as the driver raises it; ``problem`` then says what it was.
    """

    target: str
    """Of `windtunnel.codegen`; "" where kernels are not emitted."""
    timed: bool
    """Whether `busy_s` will be asked: some drivers time a launch only for a price. Set by whoever measures."""

    def allocate(self, size: int, kind: MemoryKind) -> Any:
        """``size`` bytes of memory."""

    def free(self, memory: Any) -> None:
        """Give memory back; no work uses it any more."""

    def write(self, memory: Any, data: np.ndarray, queue: Q, after: Sequence[M], *, hold: bool) -> M:
        """Host to device. ``hold``: the host waits until ``data`` may be changed again."""

    def read(self, data: np.ndarray, memory: Any, queue: Q, after: Sequence[M], *, hold: bool) -> M:
        """Device to host. ``hold``: the host waits for it."""

    def copy(self, to: Any, memory: Any, size: int, queue: Q, after: Sequence[M]) -> M:
        """Device to device."""

    def build(self, emitted: Emitted) -> Any:
        """A kernel, compiled."""

    def launch(
        self,
        kernel: Any,
        emitted: Emitted,
        grid: Dims,
        block: Dims,
        values: Sequence[Any],
        queue: Q,
        after: Sequence[M],
    ) -> M:
        """Enqueue a kernel. ``values``: memory or NumPy scalars, in the order of the signature."""

    def queue(self, *, non_blocking: bool) -> Q:
        """A new queue."""

    def mark(self, queue: Q, after: Sequence[M]) -> M:
        """The point after all that the queue was given so far."""

    def reached(self, mark: M) -> bool:
        """Whether the device has come there."""

    def wait(self, mark: M) -> None:
        """The host waits until the device has come there."""

    def finish(self, queue: Q) -> None:
        """The host waits until all that the queue was given is done."""

    def elapsed_s(self, mark: M, since: M) -> float:
        """Seconds from one point to another, both reached; negative where it lies before."""

    def busy_s(self, mark: M) -> float | None:
        """How long the device was at the work that ends with this mark, reached; None where the driver does not say."""

    def host_view(self, memory: Any, size: int) -> np.ndarray:
        """Pinned or unified memory as the host sees it."""

    def problem(
        self, error: Exception
    ) -> tuple[type[DeviceError] | None, str] | tuple[type[DeviceError] | None, str, Reason | None] | None:
        """(what kind of error it is, where the driver says so; in words); None where it is none of the driver's.

        A third: the reason, where it tells the API's code better than the kind does.
        """

    def energy_j(self) -> float | None:
        """Energy that the device's own counter says (J, from any origin); None where it has none."""

    def close(self) -> None:
        """Give back what the driver holds. A reset closes too: what is asked next opens the device anew."""


@dataclass(eq=False)
class RealMemory:
    """A piece of a real device's memory."""

    kind: MemoryKind
    size: int
    address: int
    handle: Any
    allocated_at: tuple[str, int]
    freed: bool = False
    freed_at: tuple[str, int] | None = None


@dataclass(eq=False)
class RealStream(Generic[Q, M]):
    """A stream: a queue of the driver's, and what it has to wait for."""

    context: RealContext[Q, M]
    native: Q
    blocking: bool
    last: M | None = None
    """After what it was given last; None where that is known to have ended."""
    pending: list[M] = field(default_factory=list)
    """What its next work waits for."""
    kept: list[Any] = field(default_factory=list)
    """The host's arrays that copies under way read and write."""

    def synchronize(self) -> None:
        """Wait until all of its work has ended."""
        self.context.before_wait()
        with self.context.driving("stream synchronize"):
            self.context.driver.finish(self.native)
        self.context.idle(self)
        self.context.after_wait()

    def wait(self, event: RealEvent[Q, M]) -> None:
        """Work given from now on begins after the event."""
        self.context.before_mark("stream wait")
        if not isinstance(event, RealEvent) or event.context is not self.context:
            raise self.context.error(InvalidArgument, "stream wait", "the event is of another device")
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
    """What it marks while a graph is captured."""

    def record(self, stream: RealStream[Q, M] | None = None) -> None:
        """Mark where ``stream`` is now."""
        self.context.before_mark("event record")
        if self.context.capturing is not None:
            self.nodes = self.context.capturing.after(stream)
            return
        queue = self.context.stream_of(stream)
        with self.context.driving("event record"):
            self.mark = queue.last = self.context.driver.mark(queue.native, self.context.after(queue))

    def synchronize(self) -> None:
        """Wait until the work before it has ended."""
        self.context.before_wait()
        mark = self._recorded("event synchronize")
        with self.context.driving("event synchronize"):
            self.context.driver.wait(mark)
        self.context.after_wait()

    def elapsed_s(self, since: RealEvent[Q, M]) -> float:
        """Seconds from another event to this one."""
        if not isinstance(since, RealEvent) or since.context is not self.context:
            raise self.context.error(InvalidArgument, "event elapsed", "the events are of two devices")
        mark, other = self._recorded("event elapsed"), since._recorded("event elapsed")
        driver = self.context.driver
        with self.context.driving("event elapsed"):
            if not (driver.reached(mark) and driver.reached(other)):
                problem = "the event was not reached yet, nor waited for"
                raise self.context.error(InvalidArgument, "event elapsed", problem, "not ready")
            seconds = driver.elapsed_s(mark, other)
        if seconds < 0:
            problem = "the other event is the later one: later.elapsed_s(earlier)"
            raise self.context.error(InvalidArgument, "event elapsed", problem)
        return seconds

    def _recorded(self, operation: str) -> M:
        if self.mark is None:
            raise self.context.error(InvalidArgument, operation, "the event was not recorded", "handle")
        return self.mark


class RealFunction:
    """A kernel for a device: built for each set of argument types that it is launched with."""

    def __init__(self, kernel: Kernel, target: str) -> None:
        self.kernel, self.name = kernel, kernel.name
        self.texts = ForArguments(kernel.function, target) if target and by_thread(kernel.function) else None
        """None: a kernel of whole arrays."""
        self.built: dict[int, Any] = {}
        """By the emitted text, which ``texts`` keeps."""


def _nothing() -> None:
    pass


class RealContext(Generic[Q, M]):
    """A real device, opened. See the module, and ``runtime.interface.Context``."""

    def __init__(self, driver: Driver[Q, M], info: DeviceInfo) -> None:
        self.driver, self.info = driver, info
        self.before_mark: Callable[[str], None] = lambda _: None
        self.before_wait: Callable[[], None] = _nothing
        self.after_wait: Callable[[], None] = _nothing
        self.capturing: Any = None
        self.memories: dict[int, RealMemory] = {}
        self._next_address = 1 << 20
        self._began_s = time.perf_counter()
        self._began_j = driver.energy_j()
        self._busy: set[RealStream[Q, M]] = set()
        """Streams, the default one aside, that may have work left: a program may have dropped them long ago."""
        with self.driving("open"):
            self.default: RealStream[Q, M] = RealStream(self, self.default_queue(), blocking=True)

    def default_queue(self) -> Q:
        """The default stream's queue: one of its own, where the driver has none that stands for it."""
        return self.driver.queue(non_blocking=False)

    # Errors.

    def error(self, kind: type[Any], operation: str, problem: str, reason: Reason | None = None) -> Any:
        """A device error of this device."""
        return kind(problem, operation=operation, device=self.info.name, code=code_of(self.info.api, kind, reason))

    @contextmanager
    def driving(self, operation: str, usual: type[DeviceError] = LaunchError) -> Iterator[None]:
        """What the driver raises within is raised as a device error; ``usual``: where it does not say which."""
        try:
            yield
        except DeviceError:
            raise
        except Exception as error:
            found = self.driver.problem(error)
            if found is None:
                raise
            reason = found[2] if len(found) == 3 else None
            raise self.error(found[0] or usual, operation, found[1], reason) from error

    # Memory.

    @property
    def allocated_bytes(self) -> int:
        """Device memory in use."""
        return sum(memory.size for memory in self.memories.values())

    def live_allocations(self) -> Sequence[tuple[int, str, int]]:
        """See ``Context``."""
        return [(memory.size, *memory.allocated_at) for memory in self.memories.values()]

    def allocate(self, size: int, kind: MemoryKind = "device") -> RealMemory:
        """See ``Context``."""
        if size < 1:
            raise self.error(InvalidArgument, "allocate", f"{size:,} bytes are no memory")
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
        """See ``Context``. Work that was given before and uses it is waited for, as cudaFree does."""
        if memory.freed or self.memories.get(memory.address) is not memory:
            raise self.error(InvalidArgument, "free", "this memory is not allocated here")
        memory.freed, memory.freed_at = True, caller()
        del self.memories[memory.address]
        with self.driving("free"):
            self._finish()
            self.driver.free(memory.handle)

    def view(self, memory: RealMemory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """The driver's own handle: whoever takes it has to know the driver."""
        return memory.handle

    def host_view(self, memory: RealMemory, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """See ``Context``."""
        self.synchronize()
        with self.driving("host access", CopyError):
            data = self.driver.host_view(memory.handle, memory.size)
        return data[: int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)

    # Streams.

    def stream(self, *, non_blocking: bool = False) -> RealStream[Q, M]:
        """See ``Context``."""
        with self.driving("create a stream"):
            return RealStream(self, self.driver.queue(non_blocking=non_blocking), blocking=not non_blocking)

    def event(self) -> RealEvent[Q, M]:
        """See ``Context``."""
        return RealEvent(self)

    def check_stream(self, stream: Any) -> None:
        """See ``Context``."""
        self.stream_of(stream)

    def stream_of(self, stream: Any) -> RealStream[Q, M]:
        """The stream, or the default one; InvalidArgument for one of another device, and for what is none."""
        if stream is None:
            return self.default
        if not isinstance(stream, RealStream):
            raise self.error(InvalidArgument, "stream", f"{stream!r} is no stream", "handle")
        if stream.context is not self:
            raise self.error(InvalidArgument, "stream", f"it is of {stream.context.info.name}, another device")
        return stream

    def after(self, stream: RealStream[Q, M]) -> list[M]:
        """What a stream's next work waits for: events, and by CUDA's legacy rule the default stream, or the others."""
        found = self.events_before(stream)
        if stream is self.default:
            return found + [other.last for other in self._busy if other.blocking and other.last is not None]
        last = self.default.last
        return found if not stream.blocking or last is None else [*found, last]

    def events_before(self, stream: RealStream[Q, M]) -> list[M]:
        """Events that a stream's next work waits for, which is given now: whoever waits for all waits for it, too."""
        found, stream.pending = stream.pending, []
        if stream is not self.default:
            self._busy.add(stream)
        return found

    def idle(self, stream: RealStream[Q, M]) -> None:
        """All of a stream's work has ended."""
        stream.last = None
        stream.kept.clear()
        self._busy.discard(stream)

    def synchronize(self) -> None:
        """See ``Context``."""
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
        """See ``Context``. What is not contiguous is gathered first, and then waited for."""
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
        """See ``Context``."""
        queue = self.stream_of(stream)
        if not array.nbytes:
            return
        straight = bool(array.flags.c_contiguous)
        data = array if straight else np.empty(array.shape, array.dtype)
        hold = not pinned or not straight
        with self.driving("copy out", CopyError):
            queue.last = self.driver.read(_bytes(data), memory.handle, queue.native, self.after(queue), hold=hold)
        if not straight:
            array[...] = data
        elif not hold:
            queue.kept.append(array)

    def copy_within(self, to: RealMemory, memory: RealMemory, stream: RealStream[Q, M] | None) -> None:
        """See ``Context``."""
        queue = self.stream_of(stream)
        with self.driving("copy within", CopyError):
            queue.last = self.driver.copy(to.handle, memory.handle, memory.size, queue.native, self.after(queue))

    # Kernels.

    def compile(self, kernel: Callable[..., Any], *, shipped: bool = False) -> RealFunction:
        """See ``Context``. It is built when it is launched: only then its arguments' types are known."""
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
        """See ``Context``."""
        queue = self.stream_of(stream)
        kernel, emitted = self.built(function, grid, block, arguments)
        values = [self._value(one, emitted, arguments, grid) for one in emitted.signature.arguments]
        with self.driving(f"launch {function.name}"):
            queue.last = self.driver.launch(kernel, emitted, grid, block, values, queue.native, self.after(queue))

    def built(self, function: RealFunction, grid: Dims, block: Dims, arguments: Sequence[Any]) -> tuple[Any, Emitted]:
        """The kernel for arguments of these types, compiled by the driver the first time."""
        if function.texts is None:
            self.whole(function)
        operation = f"launch {function.name}"
        misfit = function.texts.misfit(grid, block, arguments)
        if misfit is not None:
            raise self.error(LaunchError, operation, misfit, "configuration")
        emitted = function.texts.emitted(arguments, block)
        found = function.built.get(id(emitted))
        if found is None:
            with self.driving(operation):
                found = function.built[id(emitted)] = self.driver.build(emitted)
        return found, emitted

    def whole(self, function: RealFunction) -> NoReturn:
        """A kernel of whole arrays, which is Python and no device's code: refused."""
        raise UnsupportedOperationError(
            f"kernel '{function.name}' works on whole arrays, which only emulated devices and processors do; "
            f"{self.info.name} takes kernels of threads: i = grid(1); a[i] = ..."
        )

    def _value(self, one: Argument, emitted: Emitted, arguments: Sequence[Any], grid: Dims) -> Any:
        """An argument as the driver takes it."""
        names = emitted.parameters
        match one:
            case ArrayArgument():
                return arguments[names.index(one.name)].memory.handle
            case Side():
                return np.int32(arguments[names.index(one.array)].shape[one.side])
            case Value():
                return one.passed.dtype.type(arguments[names.index(one.name)])
            case GridSize():
                return np.int32(grid[one.axis])

    def ring(self, spec: Any) -> Any:
        """Refused: a ring kernel's handler is Python, which only emulated devices run."""
        raise UnsupportedOperationError(
            f"a ring kernel's handler is a Python function, which only emulated devices run; {self.info.name} is real"
        )

    def replay(self, nodes: Sequence[Any], stream: RealStream[Q, M] | None) -> None:
        """See ``Context``. Only back ends with graphs of their own have this."""
        raise self.error(InvalidArgument, "replay a graph", f"the API '{self.info.api}' has no graphs")

    # What is known.

    trace_hash = ""
    provenance = "measured"

    @property
    def clock_s(self) -> float:
        """The host's clock since the device was opened (s)."""
        return time.perf_counter() - self._began_s

    @property
    def energy_j(self) -> float:
        """See ``Context``; NaN where the device has no counter of energy."""
        now = self.driver.energy_j()
        return float("nan") if now is None or self._began_j is None else now - self._began_j

    def start_trace(self) -> list[Any]:
        """See ``Context``: real devices do not tell."""
        return []

    def pass_time(self, seconds: float) -> None:
        """See ``Context``."""
        time.sleep(seconds)

    def scale_durations(self, factor: float) -> None:
        """Only emulated devices are slowed; faults that would are refused before."""

    @property
    def running(self) -> list[str]:
        """See ``Context``."""
        return []

    def totals_when_idle(self) -> tuple[float, float]:
        """See ``Context``: what has not ended is waited for."""
        with self.driving("synchronize"):
            self._finish()
        return self.clock_s, self.energy_j

    def pending_copy_view(self, array: np.ndarray) -> np.ndarray:
        """See ``Context``."""
        return array

    def clear(self) -> None:
        """See ``Context``."""
        for memory in list(self.memories.values()):
            self.free(memory)

    def close(self) -> None:
        """See ``Context``."""
        self.clear()
        self.driver.close()


def _bytes(array: np.ndarray) -> np.ndarray:
    """A contiguous array's bytes, in place."""
    return array.reshape(-1).view(np.uint8)
