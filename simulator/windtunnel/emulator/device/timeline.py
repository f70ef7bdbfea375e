"""Virtual time: the clock of a host program, and when each hardware engine of its devices is busy.

There is no event loop. A program's calls come in order. When a call comes, everything that it depends on already has
its start and end, so its own follow at once: it starts at the earliest tick at which its stream has reached it, its
dependencies have ended and its engine has room. Work that is enqueued later may still start earlier, in a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.emulator.device.tracked_memory import TrackedBuffer

FULL = 1.0
_ROUNDING = 1e-9

Around = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, eq=False)
class _Landing:
    """The end of a copy to the host."""

    tick: int
    array: np.ndarray
    data: np.ndarray
    around: Around


class Host:
    """The clock of a host program, in ticks. Its calls advance it, and the devices of one program share it.

    A copy changes host memory when it ends. Until then the program reads the old values.
    """

    __slots__ = ("_pending", "now", "tracked")

    def __init__(self) -> None:
        self.now = 0
        self.tracked: dict[int, TrackedBuffer] = {}
        """The memory that the host can access, by the id of the array that owns it, for `stream_order`."""
        self._pending: list[_Landing] = []

    def spend(self, ticks: int) -> None:
        """Advance the clock by ``ticks`` of work on the host."""
        self.now += ticks
        if self._pending:
            self.deliver(self.now)

    def wait_until(self, tick: int) -> None:
        """Advance the clock to ``tick``, if it is not past it."""
        self.now = max(self.now, tick)
        if self._pending:
            self.deliver(self.now)

    def expect(self, tick: int, array: np.ndarray, data: np.ndarray, around: Around = nullcontext) -> None:
        """Write ``data`` to ``array`` at ``tick``, within the context that ``around`` makes then."""
        self._pending.append(_Landing(tick, array, data, around))
        self.deliver(self.now)

    def deliver(self, tick: int) -> None:
        """Write the data of all copies that end by ``tick``."""
        landing = [copy for copy in self._pending if copy.tick <= tick]
        if not landing:
            return
        self._pending = [copy for copy in self._pending if copy.tick > tick]
        for copy in landing:
            with copy.around():
                copy.array[...] = copy.data

    def pending_view(self, array: np.ndarray) -> np.ndarray:
        """Return the data that pending copies will write to ``array``; the array itself if there are none."""
        return next((copy.data for copy in reversed(self._pending) if copy.array is array), array)


class Engine:
    """The share of a hardware engine that is used over time. It never exceeds 1.

    Copies and most kernels use the whole engine; kernels of few blocks leave room for others.
    """

    __slots__ = ("_ticks", "_used", "held")

    def __init__(self) -> None:
        # A step function: _used[i] is used from _ticks[i] to the next tick; the last step has no end.
        self._ticks = [0]
        self._used = [0.0]
        self.held = 0.0
        """The share that persistent kernels hold until they are terminated."""

    def place(self, ready: int, ticks: int, share: float = FULL) -> int:
        """Use ``share`` for ``ticks`` from the earliest possible tick, ``ready`` or later, and return that tick.

        Raises:
            ValueError: If persistent kernels leave less than ``share``, so that the work would never begin.
        """
        if not ticks:
            return ready
        if share > self.free + _ROUNDING:
            raise ValueError(f"{share} of an engine that has {self.free} left")
        times, used = self._ticks, self._used
        i = bisect_right(times, ready) - 1
        start = ready
        most = FULL - share + _ROUNDING
        end = start + ticks
        j = i
        while j < len(times) and times[j] < end:
            if used[j] > most:
                # There is no room in this step: try again where it ends. The last step holds persistent kernels only.
                start = times[j + 1]
                end = start + ticks
                i = j + 1
            j += 1
        self._take(i, start, end, share)
        return start

    def hold(self, ready: int, share: float) -> int:
        """Use ``share`` until it is released, from the earliest possible tick, ``ready`` or later; return that tick.

        Raises:
            ValueError: If other persistent kernels leave less than ``share``.
        """
        if share > self.free + _ROUNDING:
            raise ValueError(f"{share} of an engine that has {self.free} left")
        times, used = self._ticks, self._used
        i = len(times) - 1
        while i and used[i - 1] <= FULL - share + _ROUNDING and times[i] > ready:
            i -= 1
        start = max(times[i], ready)
        self._add(start, share)
        self.held += share
        return start

    def release(self, tick: int, share: float) -> None:
        """Release at ``tick`` a share that was held."""
        self._add(tick, -share)
        self.held -= share

    def _add(self, tick: int, share: float) -> None:
        """Change the used share by ``share`` from ``tick`` on, without end."""
        times, used = self._ticks, self._used
        i = bisect_right(times, tick) - 1
        if i < 0:  # earlier steps were dropped
            i, tick = 0, times[0]
        if times[i] < tick:
            i += 1
            times.insert(i, tick)
            used.insert(i, used[i - 1])
        for k in range(i, len(times)):
            used[k] = max(used[k] + share, 0.0)
        if i > 0 and abs(used[i] - used[i - 1]) < _ROUNDING:
            del times[i], used[i]

    @property
    def free(self) -> float:
        """The share that persistent kernels leave."""
        return max(FULL - self.held, 0.0)

    def _take(self, i: int, start: int, end: int, share: float) -> None:
        times, used = self._ticks, self._used
        if times[i] < start:
            i += 1
            times.insert(i, start)
            used.insert(i, used[i - 1])
        j = i
        while j < len(times) and times[j] < end:
            j += 1
        if j == len(times) or times[j] > end:
            times.insert(j, end)
            used.insert(j, used[j - 1])
        for k in range(i, j):
            used[k] += share
        # Equal neighbours are merged, so that a long queue of full kernels is a single step.
        for k in (j, i):
            if 0 < k < len(times) and abs(used[k] - used[k - 1]) < _ROUNDING:
                del times[k], used[k]

    def forget(self, before: int) -> None:
        """Drop the steps before a tick at which no later work can be ready."""
        i = bisect_right(self._ticks, before) - 1
        if i > 0:
            del self._ticks[:i], self._used[:i]

    def steps(self) -> list[tuple[int, float]]:
        """Return (tick, share used from then on), in order."""
        return list(zip(self._ticks, self._used, strict=True))


@dataclass(slots=True)
class Span:
    """One operation on an engine: start and end in ticks, its stream, and its energy above idle in J."""

    number: int
    name: str
    engine: str
    stream: int
    start: int
    end: int
    joules: float
    bytes: int = 0


@dataclass(slots=True)
class StreamTime:
    """The end of a stream's work. A ``blocking`` stream and the default stream wait for each other, as in CUDA."""

    number: int
    blocking: bool = True
    last: int = 0
    """The tick at which all work enqueued so far ends."""


DEFAULT = 0
"""The number of the default stream."""


@dataclass
class DeviceTime:
    """The engines and streams of one device, and the energy that it has used.

    ``observers`` are called with every span when its times are known. ``opened_at`` is in ticks, ``idle_w`` in W.
    """

    host: Host
    idle_w: float
    engines: dict[str, Engine] = field(default_factory=dict)
    streams: dict[int, StreamTime] = field(default_factory=lambda: {DEFAULT: StreamTime(DEFAULT)})
    observers: list[Callable[[Span], None]] = field(default_factory=list)
    opened_at: int = 0
    _held_w: list[tuple[int, float]] = field(default_factory=list)
    """The changes of the power above idle that persistent kernels draw, and their ticks."""
    _count: int = 0
    _settled_j: float = 0.0
    _open: list[Span] = field(default_factory=list)
    _settle_above: int = 256
    _barrier: int = 0
    """The tick at which the last work of the default stream ends. Blocking streams continue from there."""

    def stream(self, *, blocking: bool = True) -> StreamTime:
        """Return a new stream, which begins now."""
        number = len(self.streams)
        self.streams[number] = StreamTime(number, blocking, self.host.now)
        return self.streams[number]

    def enqueue(
        self,
        stream: StreamTime,
        engine: str,
        name: str,
        ticks: int,
        *,
        joules: float = 0.0,
        share: float = FULL,
        after: Iterable[int] = (),
        size: int = 0,
    ) -> Span:
        """Enqueue an operation and return its span.

        Args:
            stream: Its stream: the operation starts after the work enqueued there.
            engine: Name of its hardware engine.
            name: Its name in traces.
            ticks: Its duration.
            joules: Its energy above idle in J.
            share: The share of the engine that it uses.
            after: Ticks before which it does not start.
            size: Bytes that it copies.
        """
        start = self.engine(engine).place(self.ready(stream, after), ticks, share)
        span = self.record(stream, engine, name, start, start + ticks, joules, size)
        stream.last = span.end
        if stream.number == DEFAULT:
            self._barrier = span.end
        return span

    def ready(self, stream: StreamTime, after: Iterable[int] = ()) -> int:
        """Return the tick from which on an operation may start that is enqueued in a stream now."""
        ready = max(self.host.now, stream.last, *after)
        if stream.number == DEFAULT:
            for other in self.streams.values():
                if other.blocking and other.last > ready:
                    ready = other.last
        elif stream.blocking and self._barrier > ready:
            ready = self._barrier
        return ready

    def engine(self, name: str) -> Engine:
        """Return the engine of that name, which is created at first use."""
        engine = self.engines.get(name)
        if engine is None:
            engine = self.engines[name] = Engine()
        return engine

    def record(
        self, stream: StreamTime, engine: str, name: str, start: int, end: int, joules: float = 0.0, size: int = 0
    ) -> Span:
        """Record an operation whose times are known, such as a message of a persistent kernel."""
        span = Span(self._count, name, engine, stream.number, start, end, joules, size)
        self._count += 1
        if joules:
            self._open.append(span)
            if len(self._open) > self._settle_above:
                self._settle()
        for observe in self.observers:
            observe(span)
        return span

    def last(self) -> int:
        """Return the tick at which all work enqueued so far ends."""
        return max(stream.last for stream in self.streams.values())

    def energy_j(self, at: int | None = None) -> float:
        """Return the energy in J until now or the tick ``at``: idle energy, persistent kernels, and the finished part
        of each span.
        """
        now = self.host.now if at is None else at
        self._settle()
        unfinished = sum(
            span.joules * (now - span.start) / (span.end - span.start) for span in self._open if span.start < now
        )
        held_j = sum(watts * (now - tick) for tick, watts in self._held_w if tick < now) / 1e12
        return self.idle_w * (now - self.opened_at) / 1e12 + self._settled_j + unfinished + held_j

    def hold_power(self, tick: int, watts: float) -> None:
        """Change the power above idle that persistent kernels draw by ``watts`` from ``tick`` on."""
        self._held_w.append((tick, watts))

    def _settle(self) -> None:
        now = self.host.now
        done = sum(span.joules for span in self._open if span.end <= now)
        if done:
            self._settled_j += done
            self._open = [span for span in self._open if span.end > now]
        # So that each span is visited a few times only, however many are unfinished.
        self._settle_above = max(256, 2 * len(self._open))
        for engine in self.engines.values():
            engine.forget(now)
