"""Virtual time: one clock for a host program, and what each engine of each of its devices is doing when.

Nothing here is an event loop. A program's calls come in order; when one comes, all that it depends on has been given
its time already, so its own follows at once: the earliest at which its stream has come to it, its dependencies have
ended and its engine has room. Work that comes later may still start earlier, where an engine has a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FULL = 1.0
_ROUNDING = 1e-9


class Host:
    """The clock of a host program (ticks), which its calls move on. Devices of one program share it.

    What a copy to the host's memory brings is there when the copy has ended, and not before: until then the program
    sees what was there.
    """

    __slots__ = ("_arrivals", "now", "places")

    def __init__(self) -> None:
        self.now = 0
        self.places: dict[int, Any] = {}
        """What `order.Order` knows of the memory that the host sees."""
        self._arrivals: list[tuple[int, np.ndarray, np.ndarray]] = []

    def spend(self, ticks: int) -> None:
        """The host works for ``ticks``."""
        self.now += ticks
        if self._arrivals:
            self.deliver(self.now)

    def wait_until(self, tick: int) -> None:
        """The host waits for something that ends at ``tick``, if it has not ended."""
        self.now = max(self.now, tick)
        if self._arrivals:
            self.deliver(self.now)

    def expect(self, tick: int, array: np.ndarray, data: np.ndarray) -> None:
        """``data`` will be in ``array`` at ``tick``."""
        self._arrivals.append((tick, array, data))
        self.deliver(self.now)

    def deliver(self, tick: int) -> None:
        """What ends until ``tick`` is there."""
        if not self._arrivals:
            return
        for end, array, data in self._arrivals:
            if end <= tick:
                array[...] = data
        self._arrivals = [one for one in self._arrivals if one[0] > tick]

    def under_way(self, array: np.ndarray) -> np.ndarray:
        """What will be in ``array``: itself, where nothing is on its way there."""
        return next((data for _, target, data in reversed(self._arrivals) if target is array), array)


class Engine:
    """How much of an engine is taken when: shares of it, that never add up to more than all.

    Copy engines and most kernels take all of it; kernels of few blocks leave room for others.
    """

    __slots__ = ("_ticks", "_used", "held")

    def __init__(self) -> None:
        # A step function: from _ticks[i] on _used[i] is taken, until the next; the last is for ever.
        self._ticks = [0]
        self._used = [0.0]
        self.held = 0.0
        """The share that is taken until further notice, by kernels that stay."""

    def place(self, ready: int, ticks: int, share: float = FULL) -> int:
        """Take ``share`` for ``ticks`` from the earliest tick, ``ready`` or later, that has room for all of it.

        ValueError where kernels that stay leave less than ``share``: it would never begin.
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
                # No room from here on: begin again where this step ends. The last has only what is held: there is one.
                start = times[j + 1]
                end = start + ticks
                i = j + 1
            j += 1
        self._take(i, start, end, share)
        return start

    def hold(self, ready: int, share: float) -> int:
        """Take ``share`` from the earliest tick, ``ready`` or later, that has room for it until it is released.

        ValueError where others that stay leave less.
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
        """Give back at ``tick`` what was held."""
        self._add(tick, -share)
        self.held -= share

    def _add(self, tick: int, share: float) -> None:
        """``share`` more (less, where it is negative) is taken from ``tick`` on, for ever."""
        times, used = self._ticks, self._used
        i = bisect_right(times, tick) - 1
        if i < 0:  # what lies before the oldest step that is kept has been forgotten
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
        """The share that is never held."""
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
        # Neighbours that are alike become one, so that a long queue of full kernels is a single step.
        for k in (j, i):
            if 0 < k < len(times) and abs(used[k] - used[k - 1]) < _ROUNDING:
                del times[k], used[k]

    def forget(self, before: int) -> None:
        """Drop what lies before a tick that no later work can be ready at."""
        i = bisect_right(self._ticks, before) - 1
        if i > 0:
            del self._ticks[:i], self._used[:i]

    def steps(self) -> list[tuple[int, float]]:
        """(tick, share taken from then on), in order."""
        return list(zip(self._ticks, self._used, strict=True))


@dataclass(slots=True)
class Span:
    """One piece of work on an engine: when, on which stream, and the energy it takes above idle."""

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
    """A queue of work in order. ``blocking``: it and the default stream wait for each other (CUDA's legacy rule)."""

    number: int
    blocking: bool = True
    last: int = 0
    """When what it was given so far has ended."""


DEFAULT = 0
"""The number of the default stream."""


@dataclass
class DeviceTime:
    """The engines and streams of one device, and the energy it has taken."""

    host: Host
    idle_w: float
    engines: dict[str, Engine] = field(default_factory=dict)
    streams: dict[int, StreamTime] = field(default_factory=lambda: {DEFAULT: StreamTime(DEFAULT)})
    observers: list[Callable[[Span], None]] = field(default_factory=list)
    """Told of every span as it is given its time."""
    born: int = 0
    _count: int = 0
    _settled_j: float = 0.0
    _open: list[Span] = field(default_factory=list)
    _settle_above: int = 256
    _barrier: int = 0
    """When the last work of the default stream ends: blocking streams go on from there."""

    def stream(self, *, blocking: bool = True) -> StreamTime:
        """A new stream, which begins now."""
        number = len(self.streams)
        found = StreamTime(number, blocking, self.host.now)
        self.streams[number] = found
        return found

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
        """Give a piece of work its time on ``engine``: after what ``stream`` has, and after the ticks ``after``."""
        ready = max(self.host.now, stream.last, *after)
        if stream.number == DEFAULT:
            for other in self.streams.values():
                if other.blocking and other.last > ready:
                    ready = other.last
        elif stream.blocking and self._barrier > ready:
            ready = self._barrier
        taken = self.engine(engine)
        start = taken.place(ready, ticks, share)
        span = Span(self._count, name, engine, stream.number, start, start + ticks, joules, size)
        self._count += 1
        stream.last = span.end
        if stream.number == DEFAULT:
            self._barrier = span.end
        if joules:
            self._open.append(span)
            if len(self._open) > self._settle_above:
                self._settle()
        for tell in self.observers:
            tell(span)
        return span

    def engine(self, name: str) -> Engine:
        """The engine of that name."""
        found = self.engines.get(name)
        if found is None:
            found = self.engines[name] = Engine()
        return found

    def record(self, stream: StreamTime, engine: str, name: str, start: int, end: int, joules: float = 0.0) -> None:
        """Note work that was given its time elsewhere: a message of a kernel that stays."""
        span = Span(self._count, name, engine, stream.number, start, end, joules)
        self._count += 1
        if joules:
            self._open.append(span)
            if len(self._open) > self._settle_above:
                self._settle()
        for tell in self.observers:
            tell(span)

    def last(self) -> int:
        """When all work that was given so far has ended."""
        return max(stream.last for stream in self.streams.values())

    def energy_j(self, at: int | None = None) -> float:
        """Energy from the beginning until now, or ``at``: idle power throughout, and each span's share that is done."""
        now = self.host.now if at is None else at
        self._settle()
        under_way = sum(
            span.joules * (now - span.start) / (span.end - span.start) for span in self._open if span.start < now
        )
        return self.idle_w * (now - self.born) / 1e12 + self._settled_j + under_way

    def _settle(self) -> None:
        now = self.host.now
        done = sum(span.joules for span in self._open if span.end <= now)
        if done:
            self._settled_j += done
            self._open = [span for span in self._open if span.end > now]
        # So that each span is looked at a few times, however many are under way.
        self._settle_above = max(256, 2 * len(self._open))
        for engine in self.engines.values():
            engine.forget(now)
