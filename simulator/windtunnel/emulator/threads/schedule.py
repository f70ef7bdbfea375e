"""Schedules: which thread continues next. A seed selects one schedule, which is the same in every process."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar


class Runnable(Protocol):
    """What a schedule needs to know of a thread."""

    id: int
    repeated_state: bool
    """Whether a spin loop of the thread has returned to an earlier state since the thread was last picked."""


T = TypeVar("T", bound=Runnable)


class Schedule(Generic[T]):
    """The threads that can continue. ``pick`` removes one; if it can continue after its step, it is added again."""

    def add(self, thread: T) -> None:
        """Add a thread that can continue."""
        raise NotImplementedError

    def pick(self) -> T:
        """Remove and return the next thread. There must be one."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def order_blocks(self, numbers: list[int]) -> list[int]:
        """Return the block numbers in the order in which the blocks begin."""
        return numbers


class RoundRobin(Schedule[T]):
    """Every thread takes ``steps`` steps, in the order of the thread numbers. One step is closest to devices."""

    def __init__(self, steps: int = 1) -> None:
        self._threads: deque[T] = deque()
        self._steps, self._left = steps, 0

    def add(self, thread: T) -> None:
        """Add a thread that can continue."""
        if self._left:
            self._threads.appendleft(thread)
        else:
            self._threads.append(thread)

    def pick(self) -> T:
        """Remove and return the next thread."""
        self._left = (self._left or self._steps) - 1
        return self._threads.popleft()

    def __len__(self) -> int:
        return len(self._threads)


class _Seeded(Schedule[T]):
    """A schedule that draws from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  a schedule needs no secret

    def order_blocks(self, numbers: list[int]) -> list[int]:
        """Return the block numbers in random order."""
        self._random.shuffle(numbers)
        return numbers


class RandomWalk(_Seeded[T]):
    """At each step, every thread is equally likely."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._threads: list[T] = []

    def add(self, thread: T) -> None:
        """Add a thread that can continue."""
        self._threads.append(thread)

    def pick(self) -> T:
        """Remove and return the next thread."""
        threads = self._threads
        at = int(self._random.random() * len(threads))
        threads[at], threads[-1] = threads[-1], threads[at]
        return threads.pop()

    def __len__(self) -> int:
        return len(self._threads)


class RandomPriorities(_Seeded[T]):
    """The thread of the highest priority continues until it waits; at a few random steps it gets the lowest priority.

    A bug that needs d orderings is met with a probability of at least 1 / (n k^(d-1)), for n threads and k steps. The
    steps are drawn from a horizon that doubles as the program continues, because k is not known in advance.

    Source: Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with Probabilistic Guarantees of Finding
    Bugs (ASPLOS 2010).
    """

    def __init__(self, seed: int, changes: int = 3) -> None:
        super().__init__(seed)
        self._threads: list[tuple[float, int, T]] = []
        self._priority: dict[int, float] = {}
        self._step, self._changes, self._lowest = 0, changes, 0.0
        self._horizon = 8
        self._change_points = self._draw(0)

    def _draw(self, first: int) -> set[int]:
        return {first + int(self._random.random() * self._horizon) for _ in range(self._changes)}

    def add(self, thread: T) -> None:
        """Add a thread that can continue."""
        priority = self._priority.get(thread.id)
        if priority is None:
            priority = self._priority[thread.id] = self._random.random()
        heappush(self._threads, (-priority, thread.id, thread))

    def pick(self) -> T:
        """Remove and return the next thread."""
        _, _, thread = heappop(self._threads)
        self._step += 1
        # A thread that spins lets the others continue; otherwise the one of the highest priority would spin for ever.
        if self._step in self._change_points or thread.repeated_state:
            thread.repeated_state = False
            self._lowest -= 1.0
            self._priority[thread.id] = self._lowest
        if self._step >= self._horizon:
            self._change_points |= self._draw(self._step)
            self._horizon *= 2
        return thread

    def __len__(self) -> int:
        return len(self._threads)


class ShuffledRounds(_Seeded[T]):
    """Rounds in which every thread takes one step, in a new random order each: all threads advance at the same pace."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._round: list[T] = []
        self._next_round: list[T] = []

    def add(self, thread: T) -> None:
        """Add a thread that can continue."""
        self._next_round.append(thread)

    def pick(self) -> T:
        """Remove and return the next thread."""
        if not self._round:
            self._round, self._next_round = self._next_round, []
            self._random.shuffle(self._round)
        return self._round.pop()

    def __len__(self) -> int:
        return len(self._round) + len(self._next_round)


_FEW_THREADS, _STEPS = 256, 8
_KINDS: tuple[Callable[[int], Schedule[Any]], ...] = (RandomWalk, RandomPriorities, ShuffledRounds)


def schedule_of(seed: int | None, threads: int) -> Schedule[Any]:
    """Return round robin without a seed; seeds take the three random kinds in turn.

    Each kind finds bugs that the others seldom find. In round robin, each of many threads takes several steps at a
    time: where all threads read and then one succeeds, as with compare-and-swap, the number of single steps would grow
    with the square of the number of threads.
    """
    if seed is None:
        return RoundRobin(1 if threads <= _FEW_THREADS else _STEPS)
    return _KINDS[seed % len(_KINDS)](seed)
