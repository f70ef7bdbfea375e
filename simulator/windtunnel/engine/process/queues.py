"""Queues of waiting jobs, and the index of the device with the least load in each class."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice

Key = Callable[[int], float]
NOT_HERE = 2**62
"""The load of an unavailable device, which exceeds all others."""


class Queue:
    """Waiting jobs of one workload: by key, ties by number; without a key, first come first served.

    Jobs are numbered in the order of arrival, so a plain deque is already in order.
    """

    __slots__ = ("_fifo", "_heap", "_key")

    def __init__(self, key: Key | None) -> None:
        self._key = key
        self._fifo: deque[int] = deque()
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._fifo) + len(self._heap)

    def __bool__(self) -> bool:
        return bool(self._fifo or self._heap)

    def push(self, job: int) -> None:
        """Add a job."""
        if self._key is None:
            if self._fifo and job < self._fifo[-1]:
                # A job that returns after a failure takes its position in the order of arrival.
                self._fifo.insert(bisect_left(self._fifo, job), job)
                return
            self._fifo.append(job)
        else:
            heappush(self._heap, (self._key(job), job))

    def head(self) -> tuple[float, int]:
        """Return (key, job) of the next job; the queue must not be empty."""
        return self._heap[0] if self._heap else (0.0, self._fifo[0])

    def first(self, count: int) -> list[int]:
        """Return the next jobs, at most ``count``, without removing them."""
        if self._heap:
            return [job for _, job in nsmallest(count, self._heap)]
        return list(islice(self._fifo, count))

    def pop(self) -> int:
        """Remove and return the next job."""
        return heappop(self._heap)[1] if self._heap else self._fifo.popleft()


class QueueSet:
    """Queues by (signature, workload), from which a device of some class takes the first job it can run."""

    __slots__ = ("_by_class", "_key", "_queues", "_signatures")

    def __init__(self, signatures: list[frozenset[int]], key: Key | None) -> None:
        self._signatures = signatures
        self._key = key
        self._queues: dict[tuple[int, int], Queue] = {}
        self._by_class: dict[int, list[Queue]] = {number: [] for signature in signatures for number in signature}

    def push(self, job: int, signature: int, workload: int) -> Queue:
        """Add a job to its queue, and return the queue."""
        queue = self._queues.get((signature, workload))
        if queue is None:
            queue = self._queues[signature, workload] = Queue(self._key)
            for number in self._signatures[signature]:
                self._by_class[number].append(queue)
        queue.push(job)
        return queue

    def best(self, class_number: int) -> Queue | None:
        """Return the queue from which the class should take a job: the least key, then the earliest arrival."""
        queues = self._by_class.get(class_number, ())
        if len(queues) == 1:
            return queues[0] if queues[0] else None
        best: Queue | None = None
        least: tuple[float, int] | None = None
        for queue in queues:
            if queue:
                head = queue.head()
                if least is None or head < least:
                    best, least = queue, head
        return best

    def take_all(self) -> list[int]:
        """Remove and return all waiting jobs, in order."""
        jobs: list[tuple[float, int]] = []
        for queue in self._queues.values():
            while queue:
                jobs.append(queue.head())
                queue.pop()
        return [job for _, job in sorted(jobs)]

    def waiting_signatures(self) -> list[frozenset[int]]:
        """Return the signatures that waiting jobs have."""
        return [self._signatures[signature] for (signature, _), queue in self._queues.items() if queue]

    def in_order(self, class_number: int) -> list[Queue]:
        """Return the queues with jobs that a device of the class could take, in the order of ``best``."""
        return sorted((queue for queue in self._by_class.get(class_number, ()) if queue), key=Queue.head)

    def waiting(self, class_number: int) -> int:
        """Return the number of waiting jobs that a device of the class could take."""
        return sum(len(queue) for queue in self._by_class.get(class_number, ()))

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())


class LoadIndex:
    """For each class, the device with the least load; of equal loads, the lowest number.

    Every change of load is pushed. Outdated entries are dropped when they reach the root, and a heap that has become a
    few times larger than its class is rebuilt.
    """

    __slots__ = ("_class_of", "_heaps", "_load", "_members")

    def __init__(self, members: list[range], initial: list[int]) -> None:
        self._members = members
        self._load = initial
        self._class_of = [c for c, devices in enumerate(members) for _ in devices]
        self._heaps = [[(initial[d], d) for d in devices] for devices in members]
        for heap in self._heaps:
            heapify(heap)

    def update(self, device: int, load: int) -> None:
        """Set the device's load."""
        if self._load[device] == load:
            return
        self._load[device] = load
        number = self._class_of[device]
        heap = self._heaps[number]
        members = self._members[number]
        if len(heap) > 4 * len(members) + 64:
            heap[:] = [(self._load[d], d) for d in members]
            heapify(heap)
        else:
            heappush(heap, (load, device))

    def absent(self, device: int) -> bool:
        """Return whether the device is unavailable."""
        return self._load[device] == NOT_HERE

    def load(self, device: int) -> int:
        """Return the device's load at its last update."""
        return self._load[device]

    def best(self, class_number: int) -> int:
        """Return the least loaded device of the class."""
        heap = self._heaps[class_number]
        while heap[0][0] != self._load[heap[0][1]]:
            heappop(heap)
        return heap[0][1]
