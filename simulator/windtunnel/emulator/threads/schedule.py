"""Which thread goes on next: each in turn, or whichever a seed picks. One seed, one order, wherever it runs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from windtunnel.emulator.threads.machine import Thread


class Schedule(Protocol):
    """Threads that can go on. ``pick`` takes one out; what can still go on after its step is added again."""

    def add(self, thread: Thread) -> None:
        """A thread can go on."""

    def pick(self) -> Thread:
        """The next; there is one."""

    def __len__(self) -> int: ...

    def shuffle(self, numbers: list[int]) -> list[int]:
        """The order in which blocks begin."""


class InTurn:
    """Every thread ``steps`` steps, in the order of their numbers: one is what devices come nearest to."""

    def __init__(self, steps: int = 1) -> None:
        self._threads: deque[Thread] = deque()
        self._steps, self._left = steps, 0

    def add(self, thread: Thread) -> None:
        """See ``Schedule``."""
        if self._left:
            self._threads.appendleft(thread)
        else:
            self._threads.append(thread)

    def pick(self) -> Thread:
        """See ``Schedule``."""
        self._left = (self._left or self._steps) - 1
        return self._threads.popleft()

    def __len__(self) -> int:
        return len(self._threads)

    def shuffle(self, numbers: list[int]) -> list[int]:
        """In order."""
        return numbers


class Walk:
    """Any thread at any step, all alike."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  an order is no secret
        self._threads: list[Thread] = []

    def add(self, thread: Thread) -> None:
        """See ``Schedule``."""
        self._threads.append(thread)

    def pick(self) -> Thread:
        """See ``Schedule``."""
        threads = self._threads
        at = int(self._random.random() * len(threads))
        threads[at], threads[-1] = threads[-1], threads[at]
        return threads.pop()

    def __len__(self) -> int:
        return len(self._threads)

    def shuffle(self, numbers: list[int]) -> list[int]:
        """In any order."""
        self._random.shuffle(numbers)
        return numbers


class Priorities:
    """The thread of the highest priority goes on until it waits; at few, random steps it becomes the lowest.

    Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs
    (ASPLOS 2010): a bug that d orderings make is met with a probability of at least 1 / (n k^(d-1)), for n threads and
    k steps. The steps are drawn from a number that is doubled as the program goes on, since k is not known before.
    """

    def __init__(self, seed: int, changes: int = 3) -> None:
        self._random = random.Random(seed)  # noqa: S311  an order is no secret
        self._threads: list[tuple[float, int, Thread]] = []
        self._priority: dict[int, float] = {}
        self._step, self._changes, self._lowest = 0, changes, 0.0
        self._horizon = 8
        self._points = self._drawn(0)

    def _drawn(self, first: int) -> set[int]:
        return {first + int(self._random.random() * self._horizon) for _ in range(self._changes)}

    def add(self, thread: Thread) -> None:
        """See ``Schedule``."""
        priority = self._priority.get(thread.id)
        if priority is None:
            priority = self._priority[thread.id] = self._random.random()
        heappush(self._threads, (-priority, thread.id, thread))

    def pick(self) -> Thread:
        """See ``Schedule``."""
        _, _, thread = heappop(self._threads)
        self._step += 1
        # Whoever waits actively lets the others go on: else the highest would go round for ever.
        if self._step in self._points or thread.turned:
            thread.turned = False
            self._lowest -= 1.0
            self._priority[thread.id] = self._lowest
        if self._step >= self._horizon:
            self._points |= self._drawn(self._step)
            self._horizon *= 2
        return thread

    def __len__(self) -> int:
        return len(self._threads)

    def shuffle(self, numbers: list[int]) -> list[int]:
        """In any order."""
        self._random.shuffle(numbers)
        return numbers


class Rounds:
    """Rounds in which every thread has a step, each round in another order: all stand at about the same place."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  an order is no secret
        self._now: list[Thread] = []
        self._next: list[Thread] = []

    def add(self, thread: Thread) -> None:
        """See ``Schedule``."""
        self._next.append(thread)

    def pick(self) -> Thread:
        """See ``Schedule``."""
        if not self._now:
            self._now, self._next = self._next, []
            self._random.shuffle(self._now)
        return self._now.pop()

    def __len__(self) -> int:
        return len(self._now) + len(self._next)

    def shuffle(self, numbers: list[int]) -> list[int]:
        """In any order."""
        self._random.shuffle(numbers)
        return numbers


_FEW, _SEVERAL = 256, 8
_KINDS: tuple[Callable[[int], Schedule], ...] = (Walk, Priorities, Rounds)


def schedule_of(seed: int | None, threads: int) -> Schedule:
    """In turn without a seed; seeds take the three kinds in turn, since each finds what the others seldom do.

    Of many threads each takes several steps at a time: where all look at once and then one succeeds, as with
    compare-and-swap, single steps would be as many as the square of the threads.
    """
    if seed is None:
        return InTurn(1 if threads <= _FEW else _SEVERAL)
    return _KINDS[seed % len(_KINDS)](seed)
