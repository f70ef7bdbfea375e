"""Happens-before order of threads: vector clocks, kept short by counting a block's barriers instead of its threads.

An access happens before what a thread does now if it is the thread's own, if it was made in a barrier interval of its
block that the thread knows to have ended, or if its thread released it and this thread acquired what was released.

- A block's barrier gives each of its threads the knowledge of all of them; `syncwarp` does so for a warp.
- A fence prepares what a thread knows for release: to all threads (`threadfence`) or to its block
  (`threadfence_block`).
- An atomic operation releases what was prepared, and acquires what earlier atomic operations on the same element
  released, as a chain of read-modify-writes does in the PTX and C++ memory models. Without a fence before it, it
  releases nothing: that is CUDA's relaxed order. Acquiring needs no fence here, although PTX requires one, because
  programs omit it. A ``relaxed`` one (C11's relaxed and release orders) does need a fence or a barrier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple


class ClockedAccess(NamedTuple):
    """An access of an element, with the clocks of its thread."""

    thread: int
    clock: int
    block: int
    interval: int
    """Barriers that the block had passed."""
    line: int
    kind: str
    fence: int = 0
    """Of an atomic operation that releases: the clock of the thread at the fence before it."""
    number: int = 0
    """Of an atomic operation: its number among those on the element, from 1."""


class KnownClocks(NamedTuple):
    """What a thread knows of other threads. Instances are never changed, because threads share them.

    Attributes:
        blocks: For each block, the barrier intervals known to have ended.
        threads: For each thread, its clock as far as it is known.
        acquired: For each element's releases, how many of them are known. Their contents are looked up when needed.
    """

    blocks: dict[int, int]
    threads: dict[int, int]
    acquired: dict[Releases, int]

    def covers(self, access: ClockedAccess) -> bool:
        """Return whether an access is known."""
        if self.blocks.get(access.block, 0) > access.interval or self.threads.get(access.thread, 0) > access.clock:
            return True
        if not self.acquired:
            return False
        visited: dict[Releases, int] = {}
        pending = list(self.acquired.items())
        while pending:
            releases, count = pending.pop()
            if visited.get(releases, 0) >= count:
                continue
            visited[releases] = count
            if _value_at(releases.blocks.get(access.block), count) > access.interval:
                return True
            if _value_at(releases.threads.get(access.thread), count) > access.clock:
                return True
            for other, history in releases.acquired.items():
                known = _value_at(history, count)
                if known:
                    pending.append((other, known))
        return False


_History = list[tuple[int, int]]
"""(number of a release, what was known by then), both increasing."""


def _value_at(history: _History | None, count: int) -> int:
    """Return what was known after ``count`` releases; 0 for nothing."""
    if not history:
        return 0
    if history[-1][0] <= count:
        return history[-1][1]
    place = bisect_right(history, count, key=itemgetter(0))
    return history[place - 1][1] if place else 0


def join(clocks: Iterable[KnownClocks]) -> KnownClocks:
    """Return everything that any of several threads knows."""
    blocks: dict[int, int] = {}
    threads: dict[int, int] = {}
    acquired: dict[Releases, int] = {}
    seen: set[int] = set()
    # The list keeps all of them alive, so that no two dictionaries can have the same `id` one after another.
    for known in list(clocks):
        _update(blocks, known.blocks, seen)
        _update(threads, known.threads, seen)
        _update(acquired, known.acquired, seen)
    return KnownClocks(blocks, threads, acquired)


def _update(target: dict[Any, int], source: dict[Any, int], seen: set[int]) -> None:
    if id(source) in seen:
        return
    seen.add(id(source))
    for key, value in source.items():
        if target.get(key, 0) < value:
            target[key] = value


class Clock:
    """A thread's own clock, and what the thread knows of others."""

    __slots__ = ("block", "interval", "known", "last_fence", "now", "prepared", "prepared_for_block", "read", "thread")

    def __init__(self, thread: int, block: int) -> None:
        self.thread, self.block = thread, block
        self.now, self.interval = 1, 0
        self.known = KnownClocks({}, {}, {})
        self.prepared: KnownClocks | None = None
        """What the next atomic operation releases to all threads."""
        self.prepared_for_block: KnownClocks | None = None
        """What the next atomic operation releases to the thread's block."""
        self.last_fence = 0
        """The clock at the last fence; 0 if there was none."""
        self.read: dict[Releases, int] = {}
        """What relaxed atomic operations have read, and the next fence or barrier acquires."""

    def happens_after(self, access: ClockedAccess) -> bool:
        """Return whether an access happens before what this thread does now."""
        return access.thread == self.thread or self.known.covers(access)

    def has_acquired(self, atomic: ClockedAccess) -> bool:
        """Return whether this thread has acquired what an atomic operation of another thread released."""
        return atomic.fence > 0 and self.known.covers(atomic._replace(clock=atomic.fence - 1))

    def release(self) -> KnownClocks:
        """Return what this thread knows and has done. What it does from now on is not included."""
        self.now += 1
        return self.known._replace(threads={**self.known.threads, self.thread: self.now})

    def acquire(self) -> None:
        """Acquire what relaxed atomic operations have read."""
        if self.read:
            self.known = join((self.known, KnownClocks({}, {}, self.read)))
            self.read = {}

    def fence(self, *, block: bool) -> None:
        """Prepare what this thread knows for release: to its block only, or to all threads."""
        self.acquire()
        released = self.release()
        self.last_fence = self.now
        self.prepared_for_block = released
        if not block:
            self.prepared = released


class Releases:
    """What the atomic operations on one element have released, in order: to all threads, and to the block of each."""

    __slots__ = ("_last", "_of_blocks", "acquired", "blocks", "count", "threads")

    def __init__(self) -> None:
        self.count = 0
        """Releases so far."""
        self.blocks: dict[int, _History] = {}
        self.threads: dict[int, _History] = {}
        self.acquired: dict[Releases, _History] = {}
        self._last: dict[int, KnownClocks] = {}
        """For each thread, what it released last."""
        self._of_blocks: dict[int, Releases] = {}

    def apply(self, clock: Clock, *, acquires_only: bool = False, relaxed: bool = False) -> None:
        """Apply an atomic operation: the thread acquires all releases and adds what it has prepared.

        A compare-and-swap that fails ``acquires_only``, because it stores nothing that another thread could find. A
        ``relaxed`` operation acquires only when a fence follows.
        """
        prepared, for_block = clock.prepared, clock.prepared_for_block
        if acquires_only:
            prepared = for_block = None
        self._apply(clock, prepared, relaxed)
        if for_block is not prepared or clock.block in self._of_blocks:
            self._of_blocks.setdefault(clock.block, Releases())._apply(clock, for_block, relaxed)

    def _apply(self, clock: Clock, prepared: KnownClocks | None, relaxed: bool) -> None:
        known = clock.known
        if relaxed:
            if self.count:
                clock.read[self] = self.count
        elif known.acquired.get(self, 0) < self.count:
            clock.known = known._replace(acquired={**known.acquired, self: self.count})
        if prepared is None or self._last.get(clock.thread) is prepared:
            return
        self._last[clock.thread] = prepared
        self.count += 1
        for histories, values in ((self.blocks, prepared.blocks), (self.threads, prepared.threads)):
            for key, value in values.items():
                self._append(histories.setdefault(key, []), value)
        for other, value in prepared.acquired.items():
            if other is not self:
                self._append(self.acquired.setdefault(other, []), value)

    def _append(self, history: _History, value: int) -> None:
        if not history or history[-1][1] < value:
            history.append((self.count, value))


def barrier(block: int, interval: int, clocks: Iterable[Clock]) -> None:
    """Synchronise all threads of a block: each knows what all know, and the block's next ``interval`` begins."""
    clocks = list(clocks)
    for clock in clocks:
        clock.acquire()
    blocks, threads, acquired = join(clock.known for clock in clocks)
    blocks[block] = interval
    own = {clock.thread for clock in clocks}
    _share_fences(clocks)
    # The count of the block's barriers covers what its own threads did.
    known = KnownClocks(blocks, {thread: now for thread, now in threads.items() if thread not in own}, acquired)
    for clock in clocks:
        clock.known, clock.interval = known, interval


def grid_barrier(intervals: dict[int, int], clocks: Iterable[Clock]) -> None:
    """Synchronise all threads of the grid; ``intervals`` are the numbers of those that begin, for each block.

    The counts of the blocks' barriers cover what all threads did, so that all share one record of them.
    """
    clocks = list(clocks)
    known = KnownClocks(intervals, {}, join(clock.known for clock in clocks).acquired)
    for clock in clocks:
        clock.known, clock.interval = known, intervals[clock.block]


def synchronise(clocks: Iterable[Clock]) -> None:
    """Synchronise some threads, such as a warp's: each knows what all know."""
    clocks = list(clocks)
    for clock in clocks:
        clock.acquire()
    _share_fences(clocks)
    known = join(clock.known for clock in clocks)
    for clock in clocks:
        clock.now += 1
        known.threads[clock.thread] = clock.now
    for clock in clocks:
        clock.known = known


def _share_fences(clocks: list[Clock]) -> None:
    """Let an atomic operation of any thread release what all threads fenced before they synchronised.

    Last-block reductions rely on this: all threads fence, all synchronise, one increments a counter. By PTX this is
    ordered if fences are sequentially consistent, as CUDA's are, and the acquiring thread has a fence of its own.
    """
    prepared = [clock.prepared for clock in clocks if clock.prepared is not None]
    for_block = [clock.prepared_for_block for clock in clocks if clock.prepared_for_block is not None]
    if for_block:
        shared = join(prepared) if prepared else None
        shared_in_block = join(for_block)
        for clock in clocks:
            clock.prepared, clock.prepared_for_block = shared, shared_in_block
