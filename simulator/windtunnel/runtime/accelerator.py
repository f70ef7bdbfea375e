"""The accelerator that a program holds: typed buffers, launches, streams and budgets over any back end's context."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from numbers import Number, Real
from operator import index
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import (
    DeviceError,
    InputError,
    InvalidArgument,
    LaunchError,
    Leak,
    UnsupportedOperationError,
    caller,
    nearest,
    one_of,
)
from windtunnel.runtime.armed import Armed
from windtunnel.runtime.budget import Budget
from windtunnel.runtime.buffers import Buffer, leak_of
from windtunnel.runtime.codes import Reason, code_of
from windtunnel.runtime.faults import KINDS, Fault, FaultPlan, fault_from
from windtunnel.runtime.graph import Capture, CompiledGraph, Graph
from windtunnel.runtime.interface import Context, DeviceInfo, Dims, Event, Function, MemoryKind, Stream
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.limits import dims, exceeded, launch_configuration
from windtunnel.runtime.ring import RingKernel, RingSpec, record_type


@dataclass
class Counters:
    """What was asked of an accelerator so far."""

    launches: int = 0
    copied_bytes: int = 0
    allocations: int = 0


class Accelerator:
    """A device under one interface, emulated or real.

    >>> a = accelerator.to_device(np.ones(1000, np.float32))
    >>> accelerator.launch(double, (4,), (256,), a)
    >>> accelerator.to_host(a)
    """

    def __init__(self, context: Context, *, leaks: Literal["ignore", "error"] = "ignore") -> None:
        self.context, self.leaks = context, leaks
        context.before_wait, context.after_wait = self._before_wait, self._hang
        context.before_mark = self._open
        self.counters = Counters()
        self.plan: FaultPlan | None = None
        self.seed = 0
        """Of faults that are armed without one of their own."""
        self.closed = False
        self.ended: list[str] = []
        """What the faults of plans that have ended did."""
        self.left_bytes = 0
        """What was still allocated when it was closed."""
        self.left: Leak | None = None
        """The same by the lines that allocated it, and ring kernels that still ran; None where there was nothing."""
        self._gone: DeviceError | None = None
        self._hung: tuple[float, DeviceError] | None = None
        self._capture: Capture | None = None
        self._functions: dict[Any, Function] = {}
        self._shapes: dict[Any, tuple[Dims, Dims]] = {}
        """Grids and blocks that were found to be within the limits."""

    @property
    def info(self) -> DeviceInfo:
        """What is known of the device."""
        return self.context.info

    @property
    def name(self) -> str:
        """The device's label."""
        return self.context.info.name

    @property
    def injected_faults(self) -> list[str]:
        """What faults did so far, over all plans."""
        return [*self.ended, *(self.plan.log if self.plan is not None else ())]

    def leak(self) -> Leak | None:
        """What is left on it now, as a finding; None where there is nothing. Once closed, what there was then."""
        return self.left if self.closed else leak_of(self.name, self.context.live_allocations(), self.running)

    @property
    def clock_s(self) -> float:
        """The host's clock (s): virtual for an emulated device."""
        return self.context.clock_s

    @property
    def trace_hash(self) -> str:
        """Under a ``schedule``: of all steps that kernels' threads could see of each other, in their order; else ""."""
        return self.context.trace_hash

    @property
    def provenance(self) -> str:
        """Where ``clock_s`` and ``energy_j`` come from: the weakest origin of what entered them so far.

        ``measured``, ``published``, ``datasheet`` or ``assumed``, as in the columns of `windtunnel predict`.
        """
        return self.context.provenance

    def sleep(self, seconds: float) -> None:
        """The host does nothing for so long: virtual time on an emulated device, real time on a real one."""
        if not 0.0 <= seconds < math.inf:
            raise InputError(f"a sleep of {seconds!r} s", expected="seconds from 0")
        self.context.pass_time(seconds)

    @property
    def energy_j(self) -> float:
        """Energy of the device since it was opened (J); NaN of a real one without a counter of it."""
        return self.context.energy_j

    @property
    def allocated_bytes(self) -> int:
        """Device memory in use."""
        return self.context.allocated_bytes

    @property
    def running(self) -> list[str]:
        """The names of ring kernels that have not been terminated."""
        return self.context.running

    # Memory.

    def empty(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32, *, kind: MemoryKind = "device"
    ) -> Buffer:
        """A buffer whose elements are not written yet."""
        try:
            sides = tuple(index(side) for side in (shape if isinstance(shape, Iterable) else (shape,)))
            element = np.dtype(dtype)
        except TypeError as error:
            raise self.make_error(InvalidArgument, "allocate", f"{shape!r} elements of {dtype!r}: {error}") from None
        size = math.prod(sides) * element.itemsize
        if element.hasobject or element.kind in "USMm" or size <= 0 or min(sides, default=0) < 1:
            raise self.make_error(InvalidArgument, "allocate", f"{sides} elements of {element} are no array of numbers")
        if kind not in get_args(MemoryKind):
            raise InputError(
                f"no memory is '{kind}'",
                expected=f"one of {', '.join(get_args(MemoryKind))}",
                nearest=nearest(str(kind), get_args(MemoryKind)),
            )
        self._call("allocate")
        memory = self.context.allocate(size, kind)
        self.counters.allocations += 1
        return Buffer(self, memory, sides, element)

    def to_device(
        self, array: npt.ArrayLike, stream: Stream | None = None, *, pinned: bool = False, kind: MemoryKind = "device"
    ) -> Buffer:
        """A new buffer that holds ``array``. Buffers are given through as they are."""
        if isinstance(array, Buffer):
            self.check_buffer(array, "to device")
            return array
        values = np.asarray(array)
        buffer = self.empty(values.shape or (1,), values.dtype, kind=kind)
        try:
            self.copy_in(buffer, values, stream, pinned=pinned)
        except BaseException:
            # Nobody else knows of it, so nobody else could give it back.
            self._drop([buffer])
            raise
        return buffer

    def to_host(self, buffer: Buffer, stream: Stream | None = None) -> np.ndarray:
        """A new array that holds what ``buffer`` does; the host waits for it."""
        if not isinstance(buffer, Buffer):
            raise self.make_error(InvalidArgument, "copy out", f"{type(buffer).__name__} is no buffer of a device")
        if self._capture is not None:
            raise self.make_error(InvalidArgument, "copy out", "nothing is done while a graph is captured", "capture")
        found = np.empty(buffer.shape, buffer.dtype)
        self.copy_out(found, buffer, stream)
        return found

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: Stream | None = None, *, pinned: bool = False) -> None:
        """Host to device, into an existing buffer."""
        values = np.asarray(array)
        self.check_buffer(buffer, "copy in")
        buffer.check(values, "copy in")
        if self._capture is not None:
            self.context.check_stream(stream)
            node = self._capture.graph.copy_in(buffer, values, after=self._capture.after(stream), pinned=pinned)
            self._capture.follow(stream, node)
            return
        with self._copying("copy_in") as corrupt:
            self.context.copy_in(buffer.memory, values, stream, pinned=pinned)
        self.counters.copied_bytes += values.nbytes
        self._flip(corrupt, buffer, values.nbytes)
        if not pinned:
            self._hang()

    def copy_out(
        self, array: np.ndarray, buffer: Buffer, stream: Stream | None = None, *, pinned: bool = False
    ) -> None:
        """Device to host, into an existing array; from pageable memory the host waits for it."""
        self.check_buffer(buffer, "copy out")
        buffer.check(array, "copy out", written=True)
        if self._capture is not None:
            self.context.check_stream(stream)
            node = self._capture.graph.copy_out(array, buffer, after=self._capture.after(stream), pinned=pinned)
            self._capture.follow(stream, node)
            return
        with self._copying("copy_out") as corrupt:
            self.context.copy_out(array, buffer.memory, stream, pinned=pinned)
        self.counters.copied_bytes += array.nbytes
        if corrupt:
            # A copy, since the bytes of an array with strides cannot be looked at in place.
            target = self.context.pending_copy_view(array)
            found = np.array(target, order="C")
            for place in corrupt:
                assert self.plan is not None  # noqa: S101  a fault struck
                self.plan.corrupt(found.reshape(-1).view(np.uint8), place)
            target[...] = found
        if not pinned:
            self._hang()

    def copy_within(self, to: Buffer, buffer: Buffer, stream: Stream | None = None) -> None:
        """Device to device."""
        self.check_buffer(to, "copy within")
        to.fits(buffer, "copy within")
        if self._capture is not None:
            self.context.check_stream(stream)
            node = self._capture.graph.copy_within(to, buffer, after=self._capture.after(stream))
            self._capture.follow(stream, node)
            return
        with self._copying("copy_within") as corrupt:
            self.context.copy_within(to.memory, buffer.memory, stream)
        self.counters.copied_bytes += buffer.nbytes
        self._flip(corrupt, to, buffer.nbytes)

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
        """Enqueue a kernel. LaunchError for a configuration that the device does not allow."""
        function, sizes, given = self.prepare_launch(kernel, grid, block, arguments, shared_bytes)
        if self._capture is not None:
            self.context.check_stream(stream)
            after = self._capture.after(stream)
            node = self._capture.graph.launch(kernel, grid, block, *arguments, after=after, shared_bytes=shared_bytes)
            self._capture.follow(stream, node)
            return
        struck = self._call("launch", function.name) if self.plan is not None or self._gone is not None else ()
        if struck:
            with self._stretched(struck):
                self.context.launch(function, *sizes, given, stream, shared_bytes)
        else:
            self.context.launch(function, *sizes, given, stream, shared_bytes)
        self.counters.launches += 1

    def compile(self, kernel: Kernel | Callable[..., Any]) -> None:
        """Compile a kernel now, at the API's price (``compile_s``).

        A kernel that is launched without comes as a binary with the program, and takes no time to load.
        """
        self._call("compile")
        marked = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
        self._functions[kernel] = self.context.compile(marked)

    def prepare_launch(
        self,
        kernel: Kernel | Callable[..., Any],
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        shared_bytes: int,
    ) -> tuple[Function, tuple[Dims, Dims], list[Any]]:
        """(function, (grid, block), arguments), checked as a launch of them is."""
        function = self._functions.get(kernel)
        if function is None:
            marked = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
            function = self._functions[kernel] = self.context.compile(marked, shipped=True)
        operation = "launch " + function.name
        # A program launches few shapes, many times: each is checked once. (True is 1, and no size.)
        key: Any = (grid, block, shared_bytes, type(grid), type(block))
        try:
            sizes = self._shapes.get(key)
        except TypeError:  # lists, which change
            key = sizes = None
        if sizes is None:
            sizes = self._shape(operation, grid, block, shared_bytes)
            if key is not None:
                self._shapes[key] = sizes
        return function, sizes, [self._argument(operation, i, argument) for i, argument in enumerate(arguments)]

    def _shape(
        self, operation: str, grid: int | Sequence[int], block: int | Sequence[int], shared_bytes: int
    ) -> tuple[Dims, Dims]:
        try:
            sizes = dims(grid), dims(block)
        except (TypeError, ValueError) as error:
            raise self.make_error(LaunchError, operation, str(error), "configuration") from None
        beyond = exceeded(self.info.limits, *sizes, shared_bytes)
        if beyond is not None:
            raise self.make_error(LaunchError, operation, beyond, "configuration")
        return sizes

    def _argument(self, operation: str, place: int, argument: Any) -> Any:
        if isinstance(argument, Buffer):
            self.check_buffer(argument, operation, f"argument {place} is ")
            return argument
        if isinstance(argument, np.ndarray) and argument.ndim:
            file, line = caller()
            problem = (
                f"argument {place} is an array of the host's ({argument.dtype}, {argument.size:,} elements) at "
                f"{file}:{line}; a kernel takes what to_device() gives"
            )
            raise self.make_error(InvalidArgument, operation, problem)
        if not isinstance(argument, (Number, np.generic, np.ndarray)):
            problem = f"argument {place} is {argument!r}; a kernel takes buffers and numbers"
            raise self.make_error(InvalidArgument, operation, problem)
        return argument

    def check_buffer(self, buffer: Buffer, operation: str, what: str = "") -> None:
        """InvalidArgument for a buffer of another device, and for one that was freed."""
        if buffer.owner.context is not self.context:
            raise self.make_error(InvalidArgument, operation, f"{what}{buffer!r}, of another device")
        buffer.alive(operation, what)

    def configuration(self, elements: int, block: int = 256) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(grid, block) for one thread an element: see ``limits.launch_configuration``."""
        try:
            return launch_configuration(index(elements), self.info.limits, block)
        except (TypeError, ValueError) as error:
            raise self.make_error(InvalidArgument, "launch configuration", str(error)) from None

    def stream(self, *, non_blocking: bool = False) -> Stream:
        """A new stream."""
        self._there("create a stream")
        found: Stream = self.context.stream(non_blocking=non_blocking)
        return found

    def event(self) -> Event:
        """A new event."""
        self._there("create an event")
        found: Event = self.context.event()
        return found

    def synchronize(self) -> None:
        """Wait until all work has ended."""
        self.context.synchronize()

    def _before_wait(self) -> None:
        """What a wait for the device, a stream, an event or unified memory begins with; it ends with ``_hang``."""
        if self._capture is not None:
            raise self.make_error(
                InvalidArgument, "synchronize", "nothing is done while a graph is captured", "capture"
            )
        self._call("synchronize")

    # Graphs.

    def graph(self) -> Graph:
        """An empty graph, to be built node by node."""
        return Graph(self)

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """What is launched and copied within is recorded in the graph, and not done.

        InvalidArgument for a call that cannot wait until the graph is replayed: waiting, and copies that the host waits
        for.
        """
        if self._capture is not None:
            raise self.make_error(InvalidArgument, "capture", "a graph is being captured already")
        graph = Graph(self)
        self._capture = self.context.capturing = Capture(graph)
        try:
            yield graph
        finally:
            self._capture = self.context.capturing = None

    def replay(self, compiled: CompiledGraph, stream: Stream | None = None) -> None:
        """Do what a graph says: see ``graph.CompiledGraph.replay``."""
        if compiled.accelerator is not self:
            raise self.make_error(InvalidArgument, "replay a graph", f"it is of {compiled.accelerator!r}")
        if self._capture is not None:
            raise self.make_error(
                InvalidArgument, "replay a graph", "nothing is done while a graph is captured", "capture"
            )
        for node in compiled.order:
            for argument in (*node.arguments, node.buffer, node.source):
                if isinstance(argument, Buffer):
                    argument.alive(f"replay {node}")
        struck = self._call("launch", None) if self.plan is not None or self._gone is not None else ()
        with self._stretched(struck):
            self.context.replay(compiled.order, stream)
        self.counters.launches += 1
        self.counters.copied_bytes += sum(node.copied_bytes for node in compiled.order)

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

        ``message``, ``reply``: types of records of fixed size; without ``reply`` it gives none. ``capacity``: of each
        queue, a power of two from 2. LaunchError where its blocks cannot all be resident, or others leave no room.
        """
        function, (grid3, block3), given = self.prepare_launch(handler, grid, block, state, 0)
        what = f"launch ring kernel '{function.name}'"
        if self._capture is not None:
            raise self.make_error(InvalidArgument, what, "a kernel that stays cannot be captured in a graph", "capture")

        def refuse(problem: str) -> Exception:
            found: Exception = self.make_error(InvalidArgument, what, problem)
            return found

        types = record_type(message, refuse), None if reply is None else record_type(reply, refuse)
        marked = handler if isinstance(handler, Kernel) else Kernel(handler)
        struck = self._call("launch", function.name)
        with self._stretched(struck):
            started = self.context.ring(RingSpec(marked, grid3, block3, given, *types, capacity))
        self.counters.launches += started.launches
        return RingKernel(self, started)

    def ring_call(self, operation: str, name: str) -> None:
        """What faults do to a call on a ring kernel."""
        self._call(operation, name)
        if operation == "receive":
            self._hang()

    # Whole computations.

    def compute(self, kernel: Kernel | Callable[..., Any], *arrays: npt.ArrayLike) -> np.ndarray:
        """``kernel`` of ``arrays`` and a result like the first of them: copied in, launched, copied back."""
        used: list[Buffer] = []
        try:
            return self.to_host(self._begin(kernel, arrays, used))
        finally:
            self._drop(used)

    async def async_compute(self, kernel: Kernel | Callable[..., Any], *arrays: npt.ArrayLike) -> np.ndarray:
        """The same on a stream of its own: what is awaited together overlaps as far as the device lets it."""
        used: list[Buffer] = []
        stream = self.stream(non_blocking=True)
        try:
            result = self._begin(kernel, arrays, used, stream)
            found = np.empty(result.shape, result.dtype)
            # Enqueued before the others have their turn, and waited for after: a pageable copy would hold them all.
            self.copy_out(found, result, stream, pinned=True)
            await asyncio.sleep(0)
            stream.synchronize()
            return found
        finally:
            self._drop(used)

    def _begin(
        self,
        kernel: Kernel | Callable[..., Any],
        arrays: Sequence[npt.ArrayLike],
        used: list[Buffer],
        stream: Stream | None = None,
    ) -> Buffer:
        """Everything up to the result, which is the last that is ``used``."""
        if not arrays:
            raise self.make_error(InvalidArgument, "compute", "there is no array to compute with")
        # Not a comprehension: what was copied before one fails has to be known, to be given back.
        for array in arrays:
            used += [self.to_device(np.asarray(array), stream, pinned=stream is not None)]
        result = self.empty(used[0].shape, used[0].dtype)
        used.append(result)
        grid, block = self.configuration(result.size)
        self.launch(kernel, grid, block, *used, stream=stream)
        return result

    def _drop(self, buffers: Sequence[Buffer]) -> None:
        """Whatever happened: a computation that fails leaves nothing allocated."""
        for buffer in buffers:
            if not buffer.freed:
                self.context.free(buffer.memory)

    # Faults.

    def faults(self, *stated: Mapping[str, Any] | str | Fault, seed: int | None = None) -> Armed:
        """Arm faults: a context manager, and a decorator. FaultNotFired when one that was to strike did not.

        ``seed``: this accelerator's unless given. See ``runtime.faults``. InputError for what is no fault, and for a
        real device where only an emulated one can be made to fail so.
        """
        found = [fault if isinstance(fault, Fault) else fault_from(fault) for fault in stated]
        for fault in found:
            if not self.info.virtual and KINDS[fault.kind].error is None:
                raise InputError(
                    f"'{fault.kind}' cannot be done to a real device", expected="a fault that raises, or --emulated"
                )
        return Armed(self, found, self.seed if seed is None else seed)

    def clear(self) -> None:
        """Free what a program left behind, and end its ring kernels; reset, where the device failed for good."""
        if self._gone is not None or self._hung is not None:
            self.reset()
            return
        self.context.clear()

    def reset(self) -> None:
        """Begin anew after a sticky error: all memory is gone, and the device is there again."""
        if self.closed:
            self._there("reset")
        self._gone = self._hung = None
        self.context.close()

    def _call(self, operation: str, kernel: str | None = None) -> list[tuple[Fault, int]]:
        """What strikes this call without ending it, with its place in the log; raises the error of what does."""
        what = operation.replace("_", " ") + (f" {kernel}" if kernel else "")
        self._there(what)
        if self.plan is None:
            return []
        effects = []
        for fault, place in self.plan.next_effects(operation, kernel, self.clock_s):
            kind = KINDS[fault.kind]
            if kind.error is None:
                effects.append((fault, place))
                continue
            error = self.make_error(kind.error, what, f"{kind.text} (fault '{fault}', seed {self.plan.seed})")
            if not kind.ends:
                # What hangs already is what is waited for.
                self._hung = self._hung or (self.clock_s + fault.watchdog_timeout_s, error)
                continue
            if kind.error.sticky:
                self._gone = error
            raise error
        return effects

    def _there(self, operation: str) -> None:
        """What ended the device ends this call too, in the call's own words."""
        if self._gone is not None:
            since = f", since {self._gone.operation}" if self._gone.sticky else ""
            raise self.make_error(type(self._gone), operation, self._gone.problem + since)

    def _open(self, operation: str) -> None:
        """Nothing is marked on a device that was closed; that one has failed is told by who waits for the mark."""
        if self.closed:
            self._there(operation)

    def _hang(self) -> None:
        """Whoever waits for a kernel that hangs waits until the watchdog ends it."""
        if self._hung is None:
            return
        until_s, error = self._hung
        self._hung, self._gone = None, error
        self.context.pass_time(max(until_s - self.clock_s, 0.0))
        raise error

    @contextmanager
    def _copying(self, operation: str) -> Iterator[list[int]]:
        struck = self._call(operation)
        with self._stretched(struck):
            yield [place for fault, place in struck if fault.kind == "corrupt_copy"]

    @contextmanager
    def _stretched(self, struck: Sequence[tuple[Fault, int]]) -> Iterator[None]:
        factor = math.prod(fault.factor for fault, _ in struck if "factor" in KINDS[fault.kind].takes)
        if factor == 1.0:
            yield
            return
        self.context.scale_durations(factor)
        try:
            yield
        finally:
            self.context.scale_durations(1.0)

    def _flip(self, corrupt: Sequence[int], buffer: Buffer, size: int) -> None:
        """Flip a bit of the first ``size`` bytes of a buffer for each fault, given by its place in the log."""
        for place in corrupt:
            assert self.plan is not None  # noqa: S101  a fault struck
            self.plan.corrupt(self.context.view(buffer.memory, np.dtype(np.uint8), (size,)), place)

    # Budgets.

    def expect(
        self,
        *,
        time_s: float | None = None,
        energy_j: float | None = None,
        launches: int | None = None,
        copied_bytes: int | None = None,
    ) -> AbstractContextManager[None]:
        """What is done within must not take more than this; BudgetExceeded says which figure did, and by how much.

        Work that was given within counts until it has ended, whether the program waits for it or not. InputError for a
        budget that is no number from 0, and for none at all.
        """
        limits = {"time_s": time_s, "energy_j": energy_j, "launches": launches, "copied_bytes": copied_bytes}
        stated = {name: limit for name, limit in limits.items() if limit is not None}
        for name, limit in stated.items():
            if not isinstance(limit, Real) or not 0 <= limit < math.inf:
                raise InputError(f"a budget of {name} {limit!r}", expected="a number from 0")
        if not stated:
            raise InputError("nothing is expected", expected=one_of(limits))
        if energy_j is not None and math.isnan(self.energy_j):
            raise UnsupportedOperationError(f"{self.name} has no counter of energy, so none can be expected of it")
        return Budget(self, stated)

    def usage(self) -> dict[str, float]:
        """What was spent so far, with what is still under way."""
        clock_s, energy_j = self.context.totals_when_idle()
        return {
            "time_s": clock_s,
            "energy_j": energy_j,
            "launches": self.counters.launches,
            "copied_bytes": self.counters.copied_bytes,
        }

    def start_trace(self) -> list[Any]:
        """A list that fills with what the device does from now on: name, engine, stream, start and end in ticks."""
        return self.context.start_trace()

    def close(self) -> None:
        """Give the device back, with all that is left on it; calls raise InvalidArgument from then on.

        Its clock, its energy and its counts can still be read. Closing twice is closing once. Leak, once it is closed,
        where it was opened with ``leaks="error"`` and memory or a ring kernel is left.
        """
        if not self.closed:
            self.left = self.leak()
            self.closed, self._hung = True, None
            self._gone = self.make_error(InvalidArgument, "close", "the accelerator was closed")
            self.left_bytes = self.context.allocated_bytes
            self.context.close()
            if self.left is not None and self.leaks == "error":
                raise self.left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Leak:
            if kind is None:  # else what went wrong is the news
                raise

    def __repr__(self) -> str:
        return f"<{'emulated' if self.info.virtual else 'real'} {self.name}>"

    def make_error(self, error: type[Any], operation: str, problem: str, reason: Reason | None = None) -> Any:
        """An error of this device, with the API's code for it."""
        return error(problem, operation=operation, device=self.name, code=code_of(self.info.api, error, reason))
