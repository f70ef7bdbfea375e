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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


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

    Neither is ever changed: threads share them.
    """

    blocks: dict[int, int]
    threads: dict[int, int]


NOTHING = Known({}, {})


def merged(known: Iterable[Known]) -> Known:
    """All that any of them knows."""
    blocks: dict[int, int] = {}
    threads: dict[int, int] = {}
    seen: set[int] = set()
    # A list, so that all of them are there until the end: what is told apart by `id` must not be replaced meanwhile.
    for one in list(known):
        for mine, theirs in ((blocks, one.blocks), (threads, one.threads)):
            if id(theirs) in seen:
                continue
            seen.add(id(theirs))
            for key, value in theirs.items():
                if mine.get(key, 0) < value:
                    mine[key] = value
    return Known(blocks, threads)


class Clock:
    """A thread's own clock, and what it knows of others."""

    __slots__ = ("block", "interval", "known", "now", "ready", "ready_block", "thread")

    def __init__(self, thread: int, block: int) -> None:
        self.thread, self.block = thread, block
        self.now, self.interval = 1, 0
        self.known = NOTHING
        self.ready: Known | None = None
        """What the next atomic operation releases to all."""
        self.ready_block: Known | None = None
        """And to the block."""

    def knows(self, access: Access) -> bool:
        """Whether an access comes before what this thread does now."""
        return (
            access.thread == self.thread
            or self.known.blocks.get(access.block, 0) > access.interval
            or self.known.threads.get(access.thread, 0) > access.clock
        )

    def told(self) -> Known:
        """What this thread knows, with all that it has done; what it does from now on is not in it."""
        self.now += 1
        return Known(self.known.blocks, {**self.known.threads, self.thread: self.now})

    def fence(self, *, block: bool) -> None:
        """Make what this thread knows ready to be released."""
        told = self.told()
        self.ready_block = told
        if not block:
            self.ready = told

    def learn(self, known: Known) -> None:
        """Acquire."""
        if any(self.known.blocks.get(key, 0) < value for key, value in known.blocks.items()) or any(
            self.known.threads.get(key, 0) < value for key, value in known.threads.items()
        ):
            self.known = merged((self.known, known))


@dataclass
class Released:
    """What an element's atomic operations have released: to all, and to the block of each."""

    to_all: Known = NOTHING
    to_block: dict[int, Known] | None = None

    def meet(self, clock: Clock) -> None:
        """An atomic operation by a thread: it acquires what is there and adds what it has made ready."""
        clock.learn(self.to_all)
        if self.to_block is not None and clock.block in self.to_block:
            clock.learn(self.to_block[clock.block])
        if clock.ready is not None:
            self.to_all = merged((self.to_all, clock.ready))
        if clock.ready_block is not None and clock.ready_block is not clock.ready:
            self.to_block = self.to_block or {}
            before = self.to_block.get(clock.block, NOTHING)
            self.to_block[clock.block] = merged((before, clock.ready_block))


def barrier(block: int, interval: int, clocks: Iterable[Clock]) -> None:
    """All threads of a block meet: each knows all that the others do, and the block's next ``interval`` begins."""
    clocks = list(clocks)
    blocks, threads = merged(clock.known for clock in clocks)
    blocks[block] = interval
    mine = {clock.thread for clock in clocks}
    # What the block's own threads did is covered by the count of its barriers.
    known = Known(blocks, {thread: now for thread, now in threads.items() if thread not in mine})
    for clock in clocks:
        clock.known, clock.interval = known, interval


def together(clocks: Iterable[Clock]) -> None:
    """Some threads meet, a warp's: each knows all that the others do."""
    clocks = list(clocks)
    known = merged(clock.told() for clock in clocks)
    for clock in clocks:
        clock.known = known
