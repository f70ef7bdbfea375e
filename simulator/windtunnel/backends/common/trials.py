"""Single operations by kernels of the kernel language, on any `Accelerator` with a real context.

With ``dispatch: device`` the device's own time of each launch is measured if the driver reports it, otherwise the time
between two marks around all launches; where the API supports graphs, a graph of the launches is replayed. ``eager``
measures the host's time from the first call to the end of the last one, per operation. ``graph`` replays a graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.backends.common import kernels
from windtunnel.backends.common.context import RealContext
from windtunnel.backends.common.host_work import NO_SUSTAINED, SHARE, cold_operands
from windtunnel.backends.common.nvml import Nvml
from windtunnel.backends.common.plans import DTYPES, PLANS, Plan, Step, operand_bytes
from windtunnel.core.columns import Columns
from windtunnel.core.errors import DeviceOutOfMemory, InvalidArgument, UnsupportedOperationError
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.results.validation import Conditions
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.graph import CompiledGraph, Graph, Node
from windtunnel.runtime.interface import DeviceInfo
from windtunnel.runtime.trial import Timer, Trial

_BEYOND_CACHES = 256 << 20
"""Total size (bytes) of cold operands on a device with its own memory.

It exceeds the caches of every device of the catalogue, except MI300X's Infinity Cache, which has the same size.
"""
_CHUNK = 1 << 20
"""Number of elements that are compared at once."""
MAX_SETS = 256
"""Maximum number of sets of operands. Tiny operands fit into caches in any case."""
LARGEST_GRAPH = 1024
"""Maximum number of operations in one graph. A measurement of power repeats an operation for a second, hundreds of
thousands of times, and a graph of that size takes longer to capture than to replay."""


def parts_of(count: int) -> list[int]:
    """Return the sizes of the graphs that are replayed, one after another, for ``count`` operations."""
    whole, rest = divmod(count, LARGEST_GRAPH)
    return [LARGEST_GRAPH] * whole + ([rest] if rest else [])


Timed = Callable[[Callable[[], None]], float]
"""Calls a function that enqueues work on the default stream, and returns the device time of this work (s)."""


def between_events(accelerator: Accelerator) -> Timed:
    """Return a function that measures the time between two events, with the host's time to enqueue the first work."""

    def timed(enqueue: Callable[[], None]) -> float:
        first, last = accelerator.event(), accelerator.event()
        accelerator.synchronize()
        first.record()
        enqueue()
        last.record()
        last.synchronize()
        return float(last.elapsed_s(first))

    return timed


class Replays:
    """Operations on the device's own time: captured in graphs of at most `LARGEST_GRAPH`, which are replayed."""

    def __init__(
        self, accelerator: Accelerator, add: Callable[[Graph, list[Node]], list[Node]], timed: Timed | None = None
    ) -> None:
        """``add`` appends one operation after the given nodes, and returns its last ones."""
        self.accelerator, self._add = accelerator, add
        self._timed = timed or between_events(accelerator)
        self._graphs: dict[int, CompiledGraph] = {}

    def _graph(self, count: int) -> CompiledGraph:
        if count not in self._graphs:
            graph = self.accelerator.graph()
            before: list[Node] = []
            for _ in range(count):
                before = self._add(graph, before)
            self._graphs[count] = graph.compile()
            self._graphs[count].replay()  # the first launch prepares the graph
        return self._graphs[count]

    def run(self, count: int) -> float:
        """Execute ``count`` operations; return the seconds of all of them."""
        graphs = [self._graph(size) for size in parts_of(count)]

        def replay() -> None:
            for graph in graphs:
                graph.replay()

        return self._timed(replay)

    def close(self) -> None:
        """Release the graphs."""
        self._graphs.clear()


@dataclass
class KernelTrial:
    """An operation by kernels. Implements `runtime.trial.Trial`."""

    accelerator: Accelerator
    plan: Plan
    sets: Sequence[Mapping[str, Buffer]]
    dispatch: str
    note: str
    timer: Timer = "device"
    timed: Timed | None = None
    """Measures replays of graphs."""
    _turn: int = 0
    _closed: bool = False

    def __post_init__(self) -> None:
        self._replays = Replays(self.accelerator, self._captured, self.timed)

    def run(self, count: int = 1) -> float:
        """Run the operation ``count`` times; return the mean seconds of one."""
        if self._closed:
            raise self.accelerator.make_error(InvalidArgument, "run", "the trial was closed")
        if self.dispatch == "graph" or (self.dispatch == "device" and "graphs" in self.accelerator.info.features):
            return self._replays.run(count) / count
        context: RealContext[Any, Any] = self.accelerator.context  # type: ignore[assignment]
        context.driver.timed = self.dispatch == "device"
        first, last = self.accelerator.event(), self.accelerator.event()
        marks = []
        self.accelerator.synchronize()
        began = time.perf_counter()
        first.record()
        for _ in range(count):
            for step in self._next():
                self.accelerator.launch(step.kernel, step.grid, step.block, *step.arguments)
                marks.append(context.default.last)
        last.record()
        last.synchronize()
        if self.dispatch == "eager":
            return (time.perf_counter() - began) / count
        return _busy_or_elapsed_s(context, marks, first, last) / count

    def _captured(self, graph: Graph, before: list[Node]) -> list[Node]:
        for step in self._next():
            before = [graph.launch(step.kernel, step.grid, step.block, *step.arguments, after=before)]
        return before

    def _next(self) -> Sequence[Step]:
        operands = self.sets[self._turn % len(self.sets)]
        self._turn += 1
        return self.plan.steps(operands)

    def check(self) -> float:
        """Execute the first set of operands again from the host's values; return the error as share of tolerance."""
        operands = self.sets[0]
        for name in self.plan.result:
            operands[name].copy_from(self.plan.arrays[name])
        for step in self.plan.steps(operands):
            self.accelerator.launch(step.kernel, step.grid, step.block, *step.arguments)
        results = [self.accelerator.to_host(operands[name]) for name in self.plan.result]
        return max(error_share(*pair, self.plan.tolerance) for pair in zip(results, self.plan.expected(), strict=True))

    def close(self) -> None:
        """Release the operands. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._replays.close()
            free_all(self.sets)


def free_all(sets: Sequence[Mapping[str, Buffer]]) -> None:
    """Free the operands of all sets."""
    for operands in sets:
        for buffer in operands.values():
            if not buffer.freed:
                buffer.free()


def _busy_or_elapsed_s(context: RealContext[Any, Any], marks: Sequence[Any], first: Any, last: Any) -> float:
    """Return the device's own time of the marked work if the driver reports it, else the time from first to last."""
    times = [context.driver.busy_s(mark) for mark in marks]
    known = [busy_s for busy_s in times if busy_s is not None]
    return math.fsum(known) if len(known) == len(times) else float(last.elapsed_s(first))


def _max_copy_bytes(info: DeviceInfo) -> float:
    """Return the memory (bytes) that the buffers of copies may take."""
    return min(SHARE * info.memory_bytes, 4 << 30)


def beyond_caches(info: DeviceInfo) -> int | None:
    """Return the total size (bytes) of cold operands; None to exceed the caches of the host's processor."""
    return None if info.kind == "cpu" else _BEYOND_CACHES


def error_share(result: np.ndarray, expected: np.ndarray, tolerance: float) -> float:
    """Return the largest absolute error over ``tolerance`` times the largest expected magnitude.

    The error of a sum of products depends on the size of its terms and not of the sum, so that all elements have the
    same absolute tolerance. Infinity means that a result is not finite.
    """
    largest = worst = 0.0
    for begin in range(0, result.size, _CHUNK):  # in chunks: a large result in float64 would fill the host's memory
        exact = expected[begin : begin + _CHUNK].astype(np.float64)
        error = np.abs(result[begin : begin + _CHUNK].astype(np.float64) - exact)
        largest = max(largest, float(np.max(np.abs(exact))))
        worst = max(worst, float(np.max(error))) if np.isfinite(error).all() else math.inf
    scale = largest * tolerance
    if scale == 0.0:
        return 0.0 if worst == 0.0 else math.inf
    return worst / scale


class KernelOperations:
    """Single operations by kernels on a real context. Implements `runtime.trial.Operations`.

    ``lacks`` maps data types that the API or the device does not support to the reason. ``nvml`` is the device in NVML,
    if it is there.
    """

    def __init__(
        self,
        context: RealContext[Any, Any],
        versions: Mapping[str, str],
        lacks: Mapping[str, str] | None = None,
        nvml: Nvml | None = None,
    ) -> None:
        self.accelerator = Accelerator(context)
        self.timed: Timed | None = None
        self.nvml = nvml
        self.versions = versions
        self.lacks = lacks or {}

    @property
    def info(self) -> DeviceInfo:
        """Description of the device."""
        return self.accelerator.info

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why ``op`` is not supported with these columns, or None."""
        OPERATIONS.find(op)
        if op in ("copy", "launch"):
            if columns["dispatch"] != "device" or columns["clock"] == "sustained":
                return f"{op} is timed without a dispatch: use dispatch=device and clock=burst"
            return self._copy_refusal(columns) if op == "copy" else self._launch_refusal(columns)
        if op not in PLANS:
            return f"{self.info.name} has no kernel for '{op}'; it has {', '.join(sorted({*PLANS, 'copy', 'launch'}))}"
        if columns["dispatch"] == "graph" and "graphs" not in self.info.features:
            return f"the API '{self.info.api}' does not support graphs"
        if columns["clock"] == "sustained":
            return NO_SUSTAINED
        dtype = str(columns.get("dtype", "float32"))
        if dtype not in DTYPES[op]:
            return f"'{op}' has kernels for {', '.join(DTYPES[op])}, not for {dtype}"
        if dtype in self.lacks:
            return self.lacks[dtype]
        if op == "fft" and int(columns["n"]) & (int(columns["n"]) - 1):
            return f"the FFT kernel requires a power of two, not {columns['n']:g} points"
        size, limit = operand_bytes(op, columns), SHARE * self.info.memory_bytes
        return f"one set of operands has {size:,.0f} bytes; the limit is {limit:,.0f}" if size > limit else None

    def _copy_refusal(self, columns: Columns) -> str | None:
        memory = columns["memory"]
        if memory == "unified":
            return "unified memory is not copied: the device reads it directly"
        limit, size = _max_copy_bytes(self.info), 2 * int(columns["bytes"])
        if size > limit:
            return f"two buffers of {columns['bytes']:,.0f} bytes exceed the limit of {limit:,.0f}"
        if columns["direction"] == "d2d" or memory == "pageable" or memory in self.info.features:
            return None
        return f"the API '{self.info.api}' has no pinned memory"

    def _launch_refusal(self, columns: Columns) -> str | None:
        if columns["mode"] == "persistent":
            return "there is no persistent kernel for this API"
        if columns["mode"] == "graph" and "graphs" not in self.info.features:
            return f"the API '{self.info.api}' does not support graphs"
        return None

    def trial(self, op: str, columns: Columns) -> Trial:
        """Prepare ``op``. Raises UnsupportedOperationError where `refusal` gives a reason."""
        if self.accelerator.closed:
            raise self.accelerator.make_error(InvalidArgument, f"prepare '{op}'", "the device was closed")
        refused = self.refusal(op, columns)
        if refused is not None:
            raise UnsupportedOperationError(refused)
        if op == "copy":
            return CopyTrial(self.accelerator, columns, self.timed)
        if op == "launch":
            return LaunchTrial(self.accelerator, columns)
        available = self.available_bytes(op, operand_bytes(op, columns))
        plan = PLANS[op](columns, self.info)
        sets, set_note = self.operands(plan.arrays, columns, available)
        note = f"{plan.note}; {set_note}"
        timer: Timer = "host" if columns["dispatch"] == "eager" else "device"
        return KernelTrial(self.accelerator, plan, sets, str(columns["dispatch"]), note, timer, self.timed)

    def available_bytes(self, op: str, needed: float) -> float:
        """Return the bytes that a trial may take. Raises DeviceOutOfMemory if one set ``needed`` more."""
        available = SHARE * self.info.memory_bytes - self.accelerator.allocated_bytes
        if needed > available:
            problem = f"one set of operands has {needed:,.0f} bytes; {available:,.0f} are available"
            raise self.accelerator.make_error(DeviceOutOfMemory, f"prepare '{op}'", problem)
        return available

    def operands(
        self, arrays: Mapping[str, np.ndarray], columns: Columns, available: float
    ) -> tuple[list[dict[str, Buffer]], str]:
        """Return sets of operands on the device and their description; for cold runs, more than caches hold.

        Raises DeviceOutOfMemory if other trials take the memory: fewer sets would not be cold.
        """
        size = sum(array.nbytes for array in arrays.values())
        beyond, total = beyond_caches(self.info), SHARE * self.info.memory_bytes
        count, required = (
            cold_operands(size, 1, str(columns["cache"]), limit=min(MAX_SETS, bytes_ // size), beyond_bytes=beyond)
            for bytes_ in (available, max(available, total))
        )
        if count < required:
            problem = f"{required} sets of {size:,} bytes exceed the {available:,.0f} bytes that other trials leave"
            raise self.accelerator.make_error(DeviceOutOfMemory, "allocate operands", problem)
        sets: list[dict[str, Buffer]] = []
        try:
            for _ in range(count):
                sets.append({})
                for name, array in arrays.items():
                    sets[-1][name] = self.accelerator.to_device(array)
        except BaseException:
            free_all(sets)
            raise
        return sets, f"{count} set{'' if count == 1 else 's'} of operands, {count * size / 2**20:.3g} MiB"

    def energy_j(self) -> float | None:
        """Return the device's energy counter (J); None if it has none."""
        return None if self.nvml is None else self.nvml.energy_j()

    def conditions(self) -> Conditions:
        """Return what NVML reports of the device; empty if it does not answer."""
        return Conditions() if self.nvml is None else self.nvml.state()

    def close(self) -> None:
        """Close the device."""
        self.accelerator.close()


class LaunchTrial:
    """``count`` launches of an empty kernel and one wait, timed by the host's clock as a program experiences it."""

    timer: Timer = "host"

    def __init__(self, accelerator: Accelerator, columns: Columns) -> None:
        self.accelerator, self.launches = accelerator, int(columns["count"])
        self.note = "empty kernels of one block of one thread, and one wait"
        self._ran = 0
        self._closed = False
        self._graph: Any = None
        if columns["mode"] == "graph":
            graph = accelerator.graph()
            before: list[Any] = []
            for _ in range(self.launches):
                before = [graph.launch(kernels.empty, 1, 1, after=before)]
            self._graph = graph.compile()
            self._graph.replay()
            accelerator.synchronize()

    def run(self, count: int = 1) -> float:
        """Run ``count`` times with a wait after each; return the mean seconds of one."""
        self._require_open()
        total = 0.0
        for _ in range(count):
            began = time.perf_counter()
            if self._graph is not None:
                self._graph.replay()
            else:
                for _ in range(self.launches):
                    self.accelerator.launch(kernels.empty, 1, 1)
            self.accelerator.synchronize()
            total += time.perf_counter() - began
            self._ran += 1
        return total / count

    def check(self) -> float:
        """Return 0 after a launch, else infinity: an empty kernel has no result."""
        return 0.0 if self._ran else math.inf

    def close(self) -> None:
        """Refuse further runs."""
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise self.accelerator.make_error(InvalidArgument, "run", "the trial was closed")


class CopyTrial:
    """A copy. The host's clock times copies of pageable memory, for which it waits; the device's clock all others.

    Where the API has graphs, those are replayed in one: calls from Python, one by one, would take longer than a copy.
    """

    def __init__(self, accelerator: Accelerator, columns: Columns, timed: Timed | None = None) -> None:
        self.accelerator = accelerator
        self.direction, self.memory = str(columns["direction"]), str(columns["memory"])
        size = int(columns["bytes"])
        pinned = self.memory == "pinned" and self.direction != "d2d"
        self.timer: Timer = "device" if pinned or self.direction == "d2d" else "host"
        limit = _max_copy_bytes(accelerator.info)
        pair_bytes = 2 * size
        if pair_bytes > limit:
            problem = f"two buffers of {size:,} bytes exceed the limit of {limit:,.0f}"
            raise accelerator.make_error(DeviceOutOfMemory, "prepare 'copy'", problem)
        beyond, max_sets = beyond_caches(accelerator.info), min(16, limit // pair_bytes)
        count = cold_operands(pair_bytes, 1, str(columns["cache"]), limit=max_sets, beyond_bytes=beyond)
        rng = np.random.default_rng(0)
        self.values = rng.integers(0, 256, size, np.uint8)
        self.buffers = [accelerator.empty(size, np.uint8) for _ in range(count)]
        self.held: list[Buffer] = []
        if self.direction == "d2d":
            self.held = [accelerator.to_device(self.values) for _ in range(count)]
            self.arrays = [self.values]
        elif pinned:
            self.held = [accelerator.empty(size, np.uint8, kind="pinned") for _ in range(count)]
            self.arrays = [buffer.host() for buffer in self.held]
        else:
            self.arrays = [np.empty(size, np.uint8) for _ in range(count)]
        for array in self.arrays:
            array[...] = self.values
        for buffer in self.buffers:
            buffer.copy_from(self.values)
        self.note = f"{self.memory if self.direction != 'd2d' else 'device'} memory, {count} pairs of buffers"
        self._pinned = pinned
        self._turn = 0
        self._replays = Replays(accelerator, self._captured, timed)

    def _place(self) -> int:
        at, self._turn = self._turn % len(self.buffers), self._turn + 1
        return at

    def _captured(self, graph: Graph, before: list[Node]) -> list[Node]:
        at = self._place()
        if self.direction == "h2d":
            return [graph.copy_in(self.buffers[at], self.arrays[at], after=before, pinned=True)]
        if self.direction == "d2h":
            return [graph.copy_out(self.arrays[at], self.buffers[at], after=before, pinned=True)]
        return [graph.copy_within(self.buffers[at], self.held[at], after=before)]

    def _copy(self) -> None:
        at = self._place()
        if self.direction == "h2d":
            self.buffers[at].copy_from(self.arrays[at], pinned=self._pinned)
        elif self.direction == "d2h":
            self.buffers[at].copy_to(self.arrays[at], pinned=self._pinned)
        else:
            self.buffers[at].copy_within(self.held[at])

    def run(self, count: int = 1) -> float:
        """Copy ``count`` times; return the mean seconds of one."""
        context: RealContext[Any, Any] = self.accelerator.context  # type: ignore[assignment]
        self.accelerator.synchronize()
        if self.timer == "host":
            began = time.perf_counter()
            for _ in range(count):
                self._copy()
            self.accelerator.synchronize()
            return (time.perf_counter() - began) / count
        if "graphs" in self.accelerator.info.features:
            return self._replays.run(count) / count
        first, last = self.accelerator.event(), self.accelerator.event()
        marks = []
        first.record()
        for _ in range(count):
            self._copy()
            marks.append(context.default.last)
        last.record()
        last.synchronize()
        return _busy_or_elapsed_s(context, marks, first, last) / count

    def check(self) -> float:
        """Copy again into cleared memory; return 0 if all bytes arrive, else infinity."""
        target = self.arrays[0] if self.direction == "d2h" else None
        if target is not None:
            target[...] = 0
        else:
            self.buffers[0].copy_from(np.zeros_like(self.values))
        self._turn = 0
        self._copy()
        self.accelerator.synchronize()
        result = target if target is not None else self.accelerator.to_host(self.buffers[0])
        return 0.0 if np.array_equal(result, self.values) else math.inf

    def close(self) -> None:
        """Release the buffers."""
        self._replays.close()
        for buffer in (*self.buffers, *self.held):
            if not buffer.freed:
                buffer.free()
