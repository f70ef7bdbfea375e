"""Operations by kernels of the kernel language, on any device that is an `Accelerator` of a real context.

What is timed: with ``dispatch: device`` the device's own part of each launch, where the driver tells it, else what lies
between two marks around all of them; with ``eager`` the host's time from the first call to the end of the last, a
launch's share of it; with ``graph`` a graph of them, replayed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.backends.common import kernels
from windtunnel.backends.common.context import RealContext
from windtunnel.backends.common.host_work import NO_SUSTAINED, SHARE, cold_operands
from windtunnel.backends.common.plans import BYTES, DTYPES, PLANS, Plan, Step
from windtunnel.core.errors import DeviceOutOfMemory, InvalidArgument, UnsupportedOperationError
from windtunnel.core.ops import OPERATIONS
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.interface import DeviceInfo
from windtunnel.runtime.trial import Timer, Trial

_BEYOND_CACHES = 256 << 20
"""Bytes of operands that cold runs on a device with memory of its own go through.

More than the caches of any device of the catalogue hold, but for MI300X's Infinity Cache, which is as large.
"""
_PART = 1 << 20
"""Elements that are compared at once."""
MOST_SETS = 256
"""Of operands: those of tiny operations fit into caches whatever is done, and do not show."""


@dataclass
class KernelTrial:
    """An operation by kernels; see ``runtime.trial.Trial``."""

    accelerator: Accelerator
    plan: Plan
    sets: Sequence[Mapping[str, Buffer]]
    dispatch: str
    note: str
    timer: Timer = "device"
    _turn: int = 0
    _closed: bool = False
    _graphs: dict[int, Any] = field(default_factory=dict)

    def run(self, count: int = 1) -> float:
        """See ``Trial``."""
        if self._closed:
            raise self.accelerator.make_error(InvalidArgument, "run", "the trial was closed")
        if self.dispatch == "graph" or (self.dispatch == "device" and self._graphed):
            return self._replay(count)
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
        busy = [context.driver.busy_s(mark) for mark in marks]
        if any(one is None for one in busy):
            return last.elapsed_s(first) / count
        return math.fsum(one for one in busy if one is not None) / count

    @property
    def _graphed(self) -> bool:
        """Whether the device's part alone is what a replayed graph takes: no launch waits for the host in it."""
        return "graphs" in self.accelerator.info.features

    def _replay(self, count: int) -> float:
        if count not in self._graphs:
            graph = self.accelerator.graph()
            before: list[Any] = []
            for _ in range(count):
                for step in self._next():
                    before = [graph.launch(step.kernel, step.grid, step.block, *step.arguments, after=before)]
            self._graphs[count] = graph.compile()
            self._graphs[count].replay()  # a graph is made ready when it is first launched
        first, last = self.accelerator.event(), self.accelerator.event()
        self.accelerator.synchronize()
        first.record()
        self._graphs[count].replay()
        last.record()
        last.synchronize()
        return last.elapsed_s(first) / count

    def _next(self) -> Sequence[Step]:
        held = self.sets[self._turn % len(self.sets)]
        self._turn += 1
        return self.plan.steps(held)

    def check(self) -> float:
        """See ``Trial``: on the first set of operands, run once more from what the host has."""
        held = self.sets[0]
        for name in self.plan.result:
            held[name].copy_from(self.plan.arrays[name])
        for step in self.plan.steps(held):
            self.accelerator.launch(step.kernel, step.grid, step.block, *step.arguments)
        found = [self.accelerator.to_host(held[name]) for name in self.plan.result]
        return max(share_of(*pair, self.plan.tolerance) for pair in zip(found, self.plan.expected(), strict=True))

    def close(self) -> None:
        """See ``Trial``."""
        if not self._closed:
            self._closed = True
            self._graphs.clear()
            free_all(self.sets)


def free_all(sets: Sequence[Mapping[str, Buffer]]) -> None:
    """Give back the operands of all sets."""
    for held in sets:
        for buffer in held.values():
            if not buffer.freed:
                buffer.free()


def _copy_room(info: DeviceInfo) -> float:
    """Bytes that the buffers of copies may take."""
    return min(SHARE * info.memory_bytes, 4 << 30)


def beyond_caches(info: DeviceInfo) -> int | None:
    """Bytes of operands that cold runs go through, where they are not to outgrow this processor's caches."""
    return None if info.kind == "cpu" else _BEYOND_CACHES


def share_of(found: np.ndarray, expected: np.ndarray, tolerance: float) -> float:
    """The largest error, over what is allowed: ``tolerance`` times the largest number that is expected.

    Sums of products err by the size of their terms, not by their own: an element near 0 is as far off as any other.
    """
    largest = worst = 0.0
    for begin in range(0, found.size, _PART):  # in parts: of a large result float64 would take the host's memory
        exact = expected[begin : begin + _PART].astype(np.float64)
        off = np.abs(found[begin : begin + _PART].astype(np.float64) - exact)
        largest = max(largest, float(np.max(np.abs(exact))))
        worst = max(worst, float(np.max(off))) if np.isfinite(off).all() else math.inf
    scale = largest * tolerance
    if scale == 0.0:
        return 0.0 if worst == 0.0 else math.inf
    return worst / scale


class KernelOperations:
    """A device that does operations by kernels: `runtime.trial.Operations` over a real context.

    ``lacks``: types of numbers that there are kernels for and the API's language, or the device, has not; in words.
    """

    def __init__(
        self,
        context: RealContext[Any, Any],
        versions: Mapping[str, str],
        lacks: Mapping[str, str] | None = None,
    ) -> None:
        self.accelerator = Accelerator(context)
        self.versions = versions
        self.lacks = lacks or {}

    @property
    def info(self) -> DeviceInfo:
        """See ``Operations``."""
        return self.accelerator.info

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """See ``Operations``."""
        OPERATIONS.find(op)
        name = self.info.name
        if op in ("copy", "launch"):
            if columns["dispatch"] != "device" or columns["clock"] == "sustained":
                return f"a {op} is timed as it is: ask for dispatch=device and clock=burst"
            return self._no_copy(columns) if op == "copy" else self._no_launch(columns)
        if op not in PLANS:
            return f"{name} has no kernel for '{op}' here; it has {', '.join(sorted({*PLANS, 'copy', 'launch'}))}"
        if columns["dispatch"] == "graph" and "graphs" not in self.info.features:
            return f"the API '{self.info.api}' has no graphs"
        if columns["clock"] == "sustained":
            return NO_SUSTAINED
        dtype = str(columns.get("dtype", "float32"))
        if dtype not in DTYPES[op]:
            return f"{name} does '{op}' in {', '.join(DTYPES[op])} here, and not in {dtype}"
        if dtype in self.lacks:
            return self.lacks[dtype]
        if op == "fft" and int(columns["n"]) & (int(columns["n"]) - 1):
            return f"{columns['n']:g} points are no power of two, which this transform takes"
        return self.too_large(BYTES[op](columns))

    def too_large(self, needed: float) -> str | None:
        """In words, why operands of so many bytes are never to be had; None where they are, while nothing else is."""
        whole = SHARE * self.info.memory_bytes
        return (
            f"one set of operands is {needed:,.0f} bytes; a trial takes at most {whole:,.0f} here"
            if needed > whole
            else None
        )

    def _no_copy(self, columns: Mapping[str, Any]) -> str | None:
        memory = columns["memory"]
        if memory == "unified":
            return "a unified buffer is not copied: the device reads what it touches"
        room, each = _copy_room(self.info), 2 * int(columns["bytes"])
        if each > room:
            return f"two buffers of {columns['bytes']:,.0f} bytes; a trial takes at most {room:,.0f} here"
        if columns["direction"] == "d2d":
            return None
        return (
            None if memory == "pageable" or memory in self.info.features else f"'{self.info.api}' has no pinned memory"
        )

    def _no_launch(self, columns: Mapping[str, Any]) -> str | None:
        if columns["mode"] == "persistent":
            return "no kernel that stays is written for this API"
        if columns["mode"] == "graph" and "graphs" not in self.info.features:
            return f"the API '{self.info.api}' has no graphs"
        return None

    def trial(self, op: str, columns: Mapping[str, Any]) -> Trial:
        """See ``Operations``."""
        if self.accelerator.closed:
            raise self.accelerator.make_error(InvalidArgument, f"make '{op}' ready", "the device was closed")
        refused = self.refusal(op, columns)
        if refused is not None:
            raise UnsupportedOperationError(refused)
        if op == "copy":
            return CopyTrial(self.accelerator, columns)
        if op == "launch":
            return LaunchTrial(self.accelerator, columns)
        room = self.room(op, BYTES[op](columns))
        plan = PLANS[op](columns, self.info)
        sets, said = self.operands(plan.arrays, columns, room)
        note = f"{plan.note}; {said}"
        timer: Timer = "host" if columns["dispatch"] == "eager" else "device"
        return KernelTrial(self.accelerator, plan, sets, str(columns["dispatch"]), note, timer)

    def room(self, op: str, needed: float) -> float:
        """Bytes that a trial may take; DeviceOutOfMemory where they are fewer than the ``needed`` of one set."""
        room = SHARE * self.info.memory_bytes - self.accelerator.allocated_bytes
        if needed > room:
            problem = f"one set of operands is {needed:,.0f} bytes; a trial takes at most {room:,.0f} here"
            raise self.accelerator.make_error(DeviceOutOfMemory, f"make '{op}' ready", problem)
        return room

    def operands(
        self, arrays: Mapping[str, np.ndarray], columns: Mapping[str, Any], room: float
    ) -> tuple[list[dict[str, Buffer]], str]:
        """(sets of operands on the device, in words how many): for cold runs as many as caches do not hold."""
        size = sum(array.nbytes for array in arrays.values())
        beyond, whole = beyond_caches(self.info), SHARE * self.info.memory_bytes
        count, alone = (
            cold_operands(size, 1, str(columns["cache"]), most=min(MOST_SETS, bytes_ // size), beyond_bytes=beyond)
            for bytes_ in (room, max(room, whole))
        )
        if count < alone:
            # Fewer sets would be warmer than was asked for; who keeps others ready gives them up first.
            problem = (
                f"{alone} sets of {size:,} bytes do not fit beside what is held; a trial takes at most {room:,.0f} now"
            )
            raise self.accelerator.make_error(DeviceOutOfMemory, "make operands", problem)
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
        """See ``Operations``."""
        context: RealContext[Any, Any] = self.accelerator.context  # type: ignore[assignment]
        return context.driver.energy_j()

    def close(self) -> None:
        """See ``Operations``."""
        self.accelerator.close()


class LaunchTrial:
    """``count`` empty kernels and one wait: what a program sees, by the host's clock."""

    timer: Timer = "host"

    def __init__(self, accelerator: Accelerator, columns: Mapping[str, Any]) -> None:
        self.accelerator, self.many = accelerator, int(columns["count"])
        self.note = "empty kernels of one block of one thread, and one wait"
        self._ran = 0
        self._closed = False
        self._graph: Any = None
        if columns["mode"] == "graph":
            graph = accelerator.graph()
            before: list[Any] = []
            for _ in range(self.many):
                before = [graph.launch(kernels.empty, 1, 1, after=before)]
            self._graph = graph.compile()
            self._graph.replay()
            accelerator.synchronize()

    def run(self, count: int = 1) -> float:
        """See ``Trial``: a wait after each."""
        self._there()
        total = 0.0
        for _ in range(count):
            began = time.perf_counter()
            if self._graph is not None:
                self._graph.replay()
            else:
                for _ in range(self.many):
                    self.accelerator.launch(kernels.empty, 1, 1)
            self.accelerator.synchronize()
            total += time.perf_counter() - began
            self._ran += 1
        return total / count

    def check(self) -> float:
        """An empty kernel has no numbers: that it was launched is all there is to it."""
        return 0.0 if self._ran else math.inf

    def close(self) -> None:
        """See ``Trial``."""
        self._closed = True

    def _there(self) -> None:
        if self._closed:
            raise self.accelerator.make_error(InvalidArgument, "run", "the trial was closed")


class CopyTrial:
    """A copy: from or to pageable memory by the host's clock, which waits for it; else by the device's."""

    def __init__(self, accelerator: Accelerator, columns: Mapping[str, Any]) -> None:
        self.accelerator = accelerator
        self.direction, self.memory = str(columns["direction"]), str(columns["memory"])
        size = int(columns["bytes"])
        pinned = self.memory == "pinned" and self.direction != "d2d"
        self.timer: Timer = "device" if pinned or self.direction == "d2d" else "host"
        room = _copy_room(accelerator.info)
        each = 2 * size
        if each > room:
            problem = f"two buffers of {size:,} bytes; a trial takes at most {room:,.0f} here"
            raise accelerator.make_error(DeviceOutOfMemory, "make 'copy' ready", problem)
        beyond, most = beyond_caches(accelerator.info), min(16, room // each)
        count = cold_operands(each, 1, str(columns["cache"]), most=most, beyond_bytes=beyond)
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

    def _copy(self) -> None:
        at, self._turn = self._turn % len(self.buffers), self._turn + 1
        if self.direction == "h2d":
            self.buffers[at].copy_from(self.arrays[at], pinned=self._pinned)
        elif self.direction == "d2h":
            self.buffers[at].copy_to(self.arrays[at], pinned=self._pinned)
        else:
            self.buffers[at].copy_within(self.held[at])

    def run(self, count: int = 1) -> float:
        """See ``Trial``."""
        context: RealContext[Any, Any] = self.accelerator.context  # type: ignore[assignment]
        self.accelerator.synchronize()
        if self.timer == "host":
            began = time.perf_counter()
            for _ in range(count):
                self._copy()
            self.accelerator.synchronize()
            return (time.perf_counter() - began) / count
        first, last = self.accelerator.event(), self.accelerator.event()
        marks = []
        first.record()
        for _ in range(count):
            self._copy()
            marks.append(context.default.last)
        last.record()
        last.synchronize()
        busy = [context.driver.busy_s(mark) for mark in marks]
        if any(one is None for one in busy):
            return last.elapsed_s(first) / count
        return math.fsum(one for one in busy if one is not None) / count

    def check(self) -> float:
        """All bytes have to have arrived."""
        target = self.arrays[0] if self.direction == "d2h" else None
        if target is not None:
            target[...] = 0
        else:
            self.buffers[0].copy_from(np.zeros_like(self.values))
        self._turn = 0
        self._copy()
        self.accelerator.synchronize()
        found = target if target is not None else self.accelerator.to_host(self.buffers[0])
        return 0.0 if np.array_equal(found, self.values) else math.inf

    def close(self) -> None:
        """See ``Trial``."""
        for buffer in (*self.buffers, *self.held):
            if not buffer.freed:
                buffer.free()
