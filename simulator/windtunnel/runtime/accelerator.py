"""The accelerator that a program holds: buffers, launches, streams and graphs on any back end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InputError, InvalidArgument, list_choices, nearest
from windtunnel.runtime.buffers import Buffer, begin_of
from windtunnel.runtime.graph import Capture, CompiledGraph, Graph, Node
from windtunnel.runtime.interface import Context, Dims, Event, Function, MemoryKind, Stream
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.launch_checks import LaunchChecks, marked
from windtunnel.runtime.limits import launch_configuration
from windtunnel.runtime.opened import OpenedDevice
from windtunnel.runtime.ring import RingKernel, RingSpec, record_type

_CAPTURING = "this call is not allowed while a graph is captured"


class Accelerator(OpenedDevice):
    """An emulated or real device behind one interface.

    >>> a = accelerator.to_device(np.ones(1000, np.float32))
    >>> accelerator.launch(double, (4,), (256,), a)
    >>> accelerator.to_host(a)

    ``context`` is the opened device. With ``leaks="error"``, closing it raises Leak if memory or a ring kernel is left.
    """

    def __init__(self, context: Context, *, leaks: Literal["ignore", "error"] = "ignore") -> None:
        super().__init__(context, leaks=leaks)
        context.before_wait, context.after_wait = self._before_wait, self.injector.finish_wait
        context.before_mark = self._before_mark
        self._capture: Capture | None = None
        self._launches = LaunchChecks(self)

    # Memory.

    def empty(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32, *, kind: MemoryKind = "device"
    ) -> Buffer:
        """Allocate a buffer with uninitialised elements.

        Raises InvalidArgument if the shape or type is not that of an array of numbers, and DeviceOutOfMemory if the
        device does not have enough free memory.
        """
        try:
            sides = tuple(index(side) for side in (shape if isinstance(shape, Iterable) else (shape,)))
            element = np.dtype(dtype)
        except TypeError as error:
            raise self.make_error(InvalidArgument, "allocate", f"{shape!r} elements of {dtype!r}: {error}") from None
        size = math.prod(sides) * element.itemsize
        if element.hasobject or element.kind in "USMm" or not element.itemsize or not sides or min(sides) < 0:
            problem = f"{sides} elements of {element} are not an array of numbers"
            raise self.make_error(InvalidArgument, "allocate", problem)
        if kind not in get_args(MemoryKind):
            kinds, problem = get_args(MemoryKind), f"'{kind}' is not a kind of memory"
            raise InputError(problem, expected=list_choices(kinds), nearest=nearest(kind, kinds))
        self.injector.before_call("allocate")
        memory = self.context.allocate(max(size, element.itemsize), kind)  # an empty array has an address too
        self.counters.allocations += 1
        return Buffer(self, memory, sides, element)

    def to_device(
        self, array: npt.ArrayLike, stream: Stream | None = None, *, pinned: bool = False, kind: MemoryKind = "device"
    ) -> Buffer:
        """Allocate a buffer and copy ``array`` to it. A buffer of this device is returned unchanged."""
        if isinstance(array, Buffer):
            self.check_buffer(array, "to device")
            return array
        values = np.asarray(array)
        buffer = self.empty(values.shape or (1,), values.dtype, kind=kind)
        try:
            self.copy_in(buffer, values, stream, pinned=pinned)
        except BaseException:
            # The caller never receives the buffer, so it could not free it.
            self._free_all([buffer])
            raise
        return buffer

    def to_host(self, buffer: Buffer, stream: Stream | None = None) -> np.ndarray:
        """Copy ``buffer`` to a new array of the host, and wait for the copy."""
        if not isinstance(buffer, Buffer):
            raise self.make_error(InvalidArgument, "copy out", f"expected a buffer, got {type(buffer).__name__}")
        if self._capture is not None:
            raise self.make_error(InvalidArgument, "copy out", _CAPTURING, "capture")
        array = np.empty(buffer.shape, buffer.dtype)
        self.copy_out(array, buffer, stream)
        return array

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: Stream | None = None, *, pinned: bool = False) -> None:
        """Copy from the host to an existing buffer. From pageable memory the host waits for the copy."""
        values = np.asarray(array)
        self.check_buffer(buffer, "copy in")
        buffer.check(values, "copy in")
        add = lambda graph, after: graph.copy_in(buffer, values, after=after, pinned=pinned)  # noqa: E731
        if not values.size or self._captured(stream, add):
            return
        with self.injector.copying("copy_in") as corrupted:
            self.context.copy_in(buffer.memory, values, stream, pinned=pinned, **begin_of(buffer))
        self.counters.copied_bytes += values.nbytes
        self._corrupt(corrupted, buffer, values.nbytes)
        if not pinned:
            self.injector.finish_wait()

    def copy_out(
        self, array: np.ndarray, buffer: Buffer, stream: Stream | None = None, *, pinned: bool = False
    ) -> None:
        """Copy from a buffer to an existing array of the host. To pageable memory the host waits for the copy."""
        self.check_buffer(buffer, "copy out")
        buffer.check(array, "copy out", written=True)
        add = lambda graph, after: graph.copy_out(array, buffer, after=after, pinned=pinned)  # noqa: E731
        if not array.size or self._captured(stream, add):
            return
        with self.injector.copying("copy_out") as corrupted:
            self.context.copy_out(array, buffer.memory, stream, pinned=pinned, **begin_of(buffer))
        self.counters.copied_bytes += array.nbytes
        if corrupted:
            # The bytes of an array with strides have no view, so a copy is corrupted and written back.
            target = self.context.pending_copy_view(array)
            copied = np.array(target, order="C")
            self.injector.corrupt(corrupted, lambda: copied.reshape(-1).view(np.uint8))
            target[...] = copied
        if not pinned:
            self.injector.finish_wait()

    def copy_within(self, to: Buffer, buffer: Buffer, stream: Stream | None = None) -> None:
        """Copy from one buffer of the device to another."""
        self.check_buffer(to, "copy within")
        to.check_fits(buffer, "copy within")
        if not buffer.size or self._captured(stream, lambda graph, after: graph.copy_within(to, buffer, after=after)):
            return
        with self.injector.copying("copy_within") as corrupted:
            self.context.copy_within(to.memory, buffer.memory, stream)
        self.counters.copied_bytes += buffer.nbytes
        self._corrupt(corrupted, to, buffer.nbytes)

    def _corrupt(self, positions: Sequence[int], buffer: Buffer, size: int) -> None:
        """Flip a bit in the first ``size`` bytes of a buffer for each fault, given by its position in the log."""
        shape, kind = (buffer.start + size,), np.dtype(np.uint8)
        self.injector.corrupt(positions, lambda: self.context.view(buffer.memory, kind, shape)[buffer.start :])

    # Kernels.

    def launch(
        self,
        kernel: Kernel | Callable[..., Any],
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        stream: Stream | None = None,
        shared_bytes: int = 0,
    ) -> None:
        """Enqueue a kernel.

        Args:
            kernel: A function marked with ``@kernel``, or a plain function.
            grid: The number of blocks along x, y and z; one number means x only.
            block: The number of threads of a block along x, y and z.
            *arguments: Buffers and numbers.
            stream: The default stream if None.
            shared_bytes: Dynamic shared memory of a block (bytes).

        Raises:
            LaunchError: If the device does not allow the launch configuration.
        """
        function, sizes, checked = self.prepare_launch(kernel, grid, block, arguments, shared_bytes)
        if self._captured(
            stream,
            lambda graph, after: graph.launch(kernel, grid, block, *arguments, after=after, shared_bytes=shared_bytes),
        ):
            return
        injector = self.injector
        # The common case, a working device without faults, is fast: programs launch many small kernels.
        effects = injector.before_call("launch", function.name) if injector.plan or injector.failure else ()
        if effects:
            with injector.slowed(effects):
                self.context.launch(function, *sizes, checked, stream, shared_bytes)
        else:
            self.context.launch(function, *sizes, checked, stream, shared_bytes)
        self.counters.launches += 1

    def compile(self, kernel: Kernel | Callable[..., Any]) -> None:
        """Compile a kernel now, which takes the API's ``compile_s``.

        A kernel that is launched without a call of ``compile`` is a binary shipped with the program: it loads in no
        time.
        """
        self.injector.before_call("compile")
        self._launches.compile(kernel)

    def prepare_launch(
        self,
        kernel: Kernel | Callable[..., Any],
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        shared_bytes: int,
    ) -> tuple[Function, tuple[Dims, Dims], list[Any]]:
        """Check a launch; return the compiled kernel, (grid, block) and the arguments."""
        return self._launches.prepare(kernel, grid, block, arguments, shared_bytes)

    def check_buffer(self, buffer: Buffer, operation: str, what: str = "") -> None:
        """Raise InvalidArgument for a buffer of another device, and UseAfterFree for a freed one.

        ``what`` are words before the buffer in the message, such as ``"argument 0 is "``.
        """
        if buffer.owner.context is not self.context:
            raise self.make_error(InvalidArgument, operation, f"{what}{buffer!r}, of another device")
        buffer.check_not_freed(operation, what)

    def configuration(self, elements: int, block: int = 256, *, loops: bool = False) -> tuple[Dims, Dims]:
        """Return (grid, block) for one thread per element along x: see ``limits.launch_configuration``."""
        try:
            return launch_configuration(index(elements), self.info.limits, block, loops=loops)
        except (TypeError, ValueError) as error:
            raise self.make_error(InvalidArgument, "launch configuration", str(error)) from None

    def stream(self, *, non_blocking: bool = False) -> Stream:
        """Create a stream. A blocking stream and the default stream wait for each other."""
        self.injector.check_working("create a stream")
        stream: Stream = self.context.stream(non_blocking=non_blocking)
        return stream

    def event(self) -> Event:
        """Create an event."""
        self.injector.check_working("create an event")
        event: Event = self.context.event()
        return event

    def synchronize(self) -> None:
        """Wait until all work has ended."""
        self.context.synchronize()

    def _before_wait(self) -> None:
        """Check and inject faults before the host waits for the device, a stream, an event or unified memory."""
        if self._capture is not None:
            raise self.make_error(InvalidArgument, "synchronize", _CAPTURING, "capture")
        self.injector.before_call("synchronize")

    def _before_mark(self, operation: str) -> None:
        """Refuse to mark an event on a closed device. A failed device reports its error to the host that waits."""
        if self.closed:
            self.injector.check_working(operation)

    # Graphs.

    def graph(self) -> Graph:
        """Return an empty graph, to which nodes can be added."""
        return Graph(self)

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """Record the launches and copies of the block in a graph instead of executing them.

        A call that makes the host wait, such as ``synchronize()`` or ``to_host()``, raises InvalidArgument.
        """
        if self._capture is not None:
            raise self.make_error(InvalidArgument, "capture", "a graph is being captured already")
        graph = Graph(self)
        self._capture = self.context.capturing = Capture(graph)
        try:
            yield graph
        finally:
            self._capture = self.context.capturing = None

    def _captured(self, stream: Stream | None, add: Callable[[Graph, Sequence[Node]], Node]) -> bool:
        """During a capture, add a node that follows ``stream``'s last one; return whether a capture is active."""
        if self._capture is None:
            return False
        self.context.check_stream(stream)
        self._capture.follow(stream, add(self._capture.graph, self._capture.after(stream)))
        return True

    def replay(self, compiled: CompiledGraph, stream: Stream | None = None) -> None:
        """Enqueue a compiled graph: see ``graph.CompiledGraph.replay``."""
        if compiled.accelerator is not self:
            raise self.make_error(InvalidArgument, "replay a graph", f"the graph is of {compiled.accelerator!r}")
        if self._capture is not None:
            raise self.make_error(InvalidArgument, "replay a graph", _CAPTURING, "capture")
        compiled.check_not_freed()
        with self.injector.slowed(self.injector.before_call("launch")):
            self.context.replay(compiled.order, stream)
        self.counters.launches += 1
        self.counters.copied_bytes += compiled.copied_bytes

    # Ring kernels.

    def ring(
        self,
        handler: Kernel | Callable[..., Any],
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *state: Any,
        message: npt.DTypeLike,
        reply: npt.DTypeLike | None = None,
        capacity: int = 64,
    ) -> RingKernel:
        """Start a ring kernel of ``handler(message, *state) -> reply``: see ``ring``.

        Args:
            handler: The function that processes one message.
            grid: The number of blocks; all must be resident at once.
            block: The number of threads of a block.
            *state: Buffers and numbers that the handler receives with each message.
            message: The type of a message, a record of fixed size.
            reply: The type of a reply; None if the handler sends none.
            capacity: The number of messages that each queue holds, a power of two of at least 2.

        Raises:
            LaunchError: If the blocks cannot all be resident, alone or beside other ring kernels.
        """
        function, (grid3, block3), checked = self.prepare_launch(handler, grid, block, state, 0)
        operation = f"launch ring kernel '{function.name}'"
        if self._capture is not None:
            problem = "a persistent kernel cannot be captured in a graph"
            raise self.make_error(InvalidArgument, operation, problem, "capture")

        def refuse(problem: str) -> Exception:
            error: Exception = self.make_error(InvalidArgument, operation, problem)
            return error

        types = record_type(message, refuse), None if reply is None else record_type(reply, refuse)
        with self.injector.slowed(self.injector.before_call("launch", function.name)):
            device = self.context.ring(RingSpec(marked(handler), grid3, block3, checked, *types, capacity))
        self.counters.launches += device.launches
        return RingKernel(self, device)

    def ring_call(self, operation: str, name: str) -> None:
        """Inject faults into a call on a ring kernel."""
        self.injector.before_call(operation, name)
        if operation == "receive":
            self.injector.finish_wait()

    def count_launches(self, launches: int) -> None:
        """Count launches that a ring kernel made."""
        self.counters.launches += launches

    # Whole computations.

    def compute(self, kernel: Kernel | Callable[..., Any], *arrays: npt.ArrayLike) -> np.ndarray:
        """Copy ``arrays`` to the device, launch ``kernel`` on them and on a result like the first, and return it."""
        buffers: list[Buffer] = []
        try:
            return self.to_host(self._begin(kernel, arrays, buffers))
        finally:
            self._free_all(buffers)

    async def async_compute(self, kernel: Kernel | Callable[..., Any], *arrays: npt.ArrayLike) -> np.ndarray:
        """Do the same as ``compute`` on a separate stream. Concurrent calls overlap as far as the device allows."""
        buffers: list[Buffer] = []
        stream = self.stream(non_blocking=True)
        try:
            result = self._begin(kernel, arrays, buffers, stream)
            array = np.empty(result.shape, result.dtype)
            # The copy is pinned, because a pageable copy would block the host before other tasks enqueue their work.
            self.copy_out(array, result, stream, pinned=True)
            await asyncio.sleep(0)
            stream.synchronize()
            return array
        finally:
            self._free_all(buffers)

    def _begin(
        self,
        kernel: Kernel | Callable[..., Any],
        arrays: Sequence[npt.ArrayLike],
        buffers: list[Buffer],
        stream: Stream | None = None,
    ) -> Buffer:
        """Enqueue a computation; append its buffers to ``buffers`` and return the last, the result."""
        if not arrays:
            raise self.make_error(InvalidArgument, "compute", "expected at least one array")
        # Not a comprehension: if one copy fails, the earlier buffers must be in the list to be freed.
        for array in arrays:
            buffers += [self.to_device(np.asarray(array), stream, pinned=stream is not None)]
        result = self.empty(buffers[0].shape, buffers[0].dtype)
        buffers.append(result)
        grid, block = self.configuration(result.size)
        self.launch(kernel, grid, block, *buffers, stream=stream)
        return result

    def _free_all(self, buffers: Sequence[Buffer]) -> None:
        """Free the buffers that are still allocated, also on a failed device."""
        for buffer in buffers:
            if not buffer.freed:
                self.context.free(buffer.memory)
