"""Who knows of what: vector clocks of threads, kept short by counting a block's barriers instead of its threads.

An access is known to a thread if it is its own, if it was made in an interval between barriers of its block that the
thread knows to have ended, or if its thread has released it and this one acquired what was released.

- A block's barrier tells all its threads all that each of them knew; `syncwarp` does so for a warp.
- A fence makes what a thread knows ready to be released: to all (`threadfence`), or to its block (`threadfence_block`).
- An atomic operation releases what was made ready, and acquires what those before it on the same element released,
  as a chain of read-modify-writes does in the PTX and C++ memory models. Without a fence before it, it releases
  nothing: that is CUDA's relaxed order. Acquiring needs no fence here, though PTX asks for one: programs leave it out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple


class Access(NamedTuple):
    """Who touched an element, and when by the thread's own clocks."""

    thread: int
    clock: int
    block: int
    interval: int
    """Barriers that the block had passed."""
    line: int
    kind: str


class Known(NamedTuple):
    """``blocks``: intervals of a block that have ended, as far as is known; ``threads``: a thread's clock, likewise.

    ``acquired``: of elements' atomic operations, how many releases of each are known; what those hold is asked for
    where it is needed, and not copied. None of them is ever changed: threads share them.
    """

    blocks: dict[int, int]
    threads: dict[int, int]
    acquired: dict[Released, int]

    def covers(self, access: Access) -> bool:
        """Whether an access is among what is known."""
        if self.blocks.get(access.block, 0) > access.interval or self.threads.get(access.thread, 0) > access.clock:
            return True
        if not self.acquired:
            return False
        asked: dict[Released, int] = {}
        waiting = list(self.acquired.items())
        while waiting:
            one, upto = waiting.pop()
            if asked.get(one, 0) >= upto:
                continue
            asked[one] = upto
            if _at(one.blocks.get(access.block), upto) > access.interval:
                return True
            if _at(one.threads.get(access.thread), upto) > access.clock:
                return True
            for other, entries in one.acquired.items():
                known = _at(entries, upto)
                if known:
                    waiting.append((other, known))
        return False


_History = list[tuple[int, int]]
"""(number of a release, what was known by then), rising."""


def _at(history: _History | None, upto: int) -> int:
    """What was known by a release; 0 for nothing."""
    if not history:
        return 0
    if history[-1][0] <= upto:
        return history[-1][1]
    place = bisect_right(history, upto, key=itemgetter(0))
    return history[place - 1][1] if place else 0


def merged(known: Iterable[Known]) -> Known:
    """All that any of them knows."""
    blocks: dict[int, int] = {}
    threads: dict[int, int] = {}
    acquired: dict[Released, int] = {}
    seen: set[int] = set()
    # A list, so that all of them are there until the end: what is told apart by `id` must not be replaced meanwhile.
    for one in list(known):
        _add(blocks, one.blocks, seen)
        _add(threads, one.threads, seen)
        _add(acquired, one.acquired, seen)
    return Known(blocks, threads, acquired)


def _add(mine: dict[Any, int], theirs: dict[Any, int], seen: set[int]) -> None:
    if id(theirs) in seen:
        return
    seen.add(id(theirs))
    for key, value in theirs.items():
        if mine.get(key, 0) < value:
            mine[key] = value


class Clock:
    """A thread's own clock, and what it knows of others."""

    __slots__ = ("block", "interval", "known", "now", "ready", "ready_block", "thread")

    def __init__(self, thread: int, block: int) -> None:
        self.thread, self.block = thread, block
        self.now, self.interval = 1, 0
        self.known = Known({}, {}, {})
        self.ready: Known | None = None
        """What the next atomic operation releases to all."""
        self.ready_block: Known | None = None
        """And to the block."""

    def knows(self, access: Access) -> bool:
        """Whether an access comes before what this thread does now."""
        return access.thread == self.thread or self.known.covers(access)

    def told(self) -> Known:
        """What this thread knows, with all that it has done; what it does from now on is not in it."""
        self.now += 1
        return self.known._replace(threads={**self.known.threads, self.thread: self.now})

    def fence(self, *, block: bool) -> None:
        """Make what this thread knows ready to be released."""
        told = self.told()
        self.ready_block = told
        if not block:
            self.ready = told


class Released:
    """What an element's atomic operations have released, one after another: to all, and to the block of each."""

    __slots__ = ("_last", "_of_blocks", "acquired", "blocks", "number", "threads")

    def __init__(self) -> None:
        self.number = 0
        """Releases so far."""
        self.blocks: dict[int, _History] = {}
        self.threads: dict[int, _History] = {}
        self.acquired: dict[Released, _History] = {}
        self._last: dict[int, Known] = {}
        """Of each thread, what it released last."""
        self._of_blocks: dict[int, Released] = {}

    def meet(self, clock: Clock) -> None:
        """An atomic operation by a thread: it acquires what is there and adds what it has made ready."""
        self._met(clock, clock.ready)
        if clock.ready_block is not clock.ready or clock.block in self._of_blocks:
            self._of_blocks.setdefault(clock.block, Released())._met(clock, clock.ready_block)

    def _met(self, clock: Clock, ready: Known | None) -> None:
        known = clock.known
        if known.acquired.get(self, 0) < self.number:
            clock.known = known._replace(acquired={**known.acquired, self: self.number})
        if ready is None or self._last.get(clock.thread) is ready:
            return
        self._last[clock.thread] = ready
        self.number += 1
        for mine, theirs in ((self.blocks, ready.blocks), (self.threads, ready.threads)):
            for key, value in theirs.items():
                history = mine.setdefault(key, [])
                if not history or history[-1][1] < value:
                    history.append((self.number, value))
        for other, value in ready.acquired.items():
            history = self.acquired.setdefault(other, []) if other is not self else []
            if not history or history[-1][1] < value:
                history.append((self.number, value))


def barrier(block: int, interval: int, clocks: Iterable[Clock]) -> None:
    """All threads of a block meet: each knows all that the others do, and the block's next ``interval`` begins."""
    clocks = list(clocks)
    blocks, threads, acquired = merged(clock.known for clock in clocks)
    blocks[block] = interval
    mine = {clock.thread for clock in clocks}
    _share_fences(clocks)
    # What the block's own threads did is covered by the count of its barriers.
    known = Known(blocks, {thread: now for thread, now in threads.items() if thread not in mine}, acquired)
    for clock in clocks:
        clock.known, clock.interval = known, interval


def together(clocks: Iterable[Clock]) -> None:
    """Some threads meet, a warp's: each knows all that the others do."""
    clocks = list(clocks)
    _share_fences(clocks)
    known = merged(clock.told() for clock in clocks)
    for clock in clocks:
        clock.known = known


def _share_fences(clocks: list[Clock]) -> None:
    """What some have fenced before they meet, an atomic operation of any of them releases after it.

    So last-block reductions are written: all fence, all meet, one counts. By PTX it is in order where fences are
    sequentially consistent, as CUDA's are, and the one that acquires has its own.
    """
    fenced = [clock.ready for clock in clocks if clock.ready is not None]
    for_block = [clock.ready_block for clock in clocks if clock.ready_block is not None]
    if for_block:
        shared = merged(fenced) if fenced else None
        block = merged(for_block)
        for clock in clocks:
            clock.ready, clock.ready_block = shared, block
