"""The sources of jobs in the process engine: known arrivals, and users of a closed loop.

Jobs are numbered in order of arrival. At one tick the workload that is listed first comes first, and of the users of a
workload the one with the lowest number.
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush
from typing import Protocol

from windtunnel.core.ticks import MAX_TICKS
from windtunnel.engine.event_log import EventLog, int_array
from windtunnel.engine.prepare.prepared import PreparedRun

NEVER = MAX_TICKS
"""The tick of the next arrival if there is none."""


class CapacityExceededError(Exception):
    """A closed workload submits more jobs than random numbers were drawn for; ``capacity`` is the next number."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.capacity = capacity


class JobSource(Protocol):
    """The source of the jobs of a run."""

    tick: int
    """The tick of the next arrival that is known now, or NEVER."""
    taken: int
    """The number of jobs that have arrived."""

    def take(self) -> int:
        """Return the number of the next job, which arrives now."""

    def job_finished(self, job: int, now: int) -> None:
        """Record that a job has completed or failed."""


class OpenLoopSource:
    """Jobs whose arrivals are all known in advance."""

    def __init__(self, log: EventLog) -> None:
        self._arrival = log.arrival
        self.taken = 0
        self.tick = self._arrival[0] if self._arrival else NEVER

    def take(self) -> int:
        """Return the number of the next job, which arrives now."""
        job = self.taken
        self.taken = job + 1
        self.tick = self._arrival[job + 1] if job + 1 < len(self._arrival) else NEVER
        return job

    def job_finished(self, job: int, now: int) -> None:
        """Do nothing, because no arrival depends on it."""


class ClosedLoopSource:
    """Jobs of users, who each submit a job, wait for its end and think, merged with known arrivals.

    Jobs are entered into the event log when they arrive.
    """

    def __init__(self, prepared: PreparedRun, log: EventLog, slowdown: array[float] | None) -> None:
        self._prepared = prepared
        self._log = log
        self._slowdown = slowdown
        self._end = NEVER if prepared.end is None else prepared.end
        self._classes = {users.work: users for users in prepared.users}
        self._known = [int_array(a) for a in (prepared.arrival, prepared.workload_of, prepared.rank, prepared.eligible)]
        self._next_known = 0
        self._rank = dict.fromkeys(self._classes, 0)
        self._thought = {users.work: array("q", bytes(8 * users.think.users)) for users in prepared.users}
        self._waiting: dict[int, tuple[int, int]] = {}
        """The (workload, user) that waits for each job's end."""
        self._submits = [
            (tick, users.work, user)
            for users in prepared.users
            for user, tick in enumerate(users.think.first().tolist())
            if tick < self._end
        ]
        heapify(self._submits)
        self.taken = 0
        self.tick = NEVER
        self._look()

    def _look(self) -> None:
        """Find when the next job arrives."""
        arrival = self._known[0]
        tick = arrival[self._next_known] if self._next_known < len(arrival) else NEVER
        if self._submits:
            tick = min(tick, self._submits[0][0])
        self.tick = NEVER if self._prepared.limit is not None and self.taken >= self._prepared.limit else tick

    def take(self) -> int:
        """Return the number of the next job, which arrives now."""
        log, job = self._log, self.taken
        arrival, workload_of, rank, eligible = self._known
        known = self._next_known
        if known < len(arrival) and (not self._submits or (arrival[known], workload_of[known]) < self._submits[0][:2]):
            work, place, signature = workload_of[known], rank[known], eligible[known]
            slow = self._prepared.slowdown
            slowed = 1.0 if slow is None else float(slow[known])
            self._next_known += 1
        else:
            _, work, user = heappop(self._submits)
            users = self._classes[work]
            place, signature = self._rank[work], users.signature
            if place >= users.capacity:
                raise CapacityExceededError(2 * users.capacity)
            self._rank[work] = place + 1
            slowed = 1.0 if users.slowdown is None else float(users.slowdown[place])
            self._waiting[job] = work, user
        log.arrival[job], log.workload_of[job] = self.tick, work
        log.rank[job], log.eligible[job] = place, signature
        if self._slowdown is not None:
            self._slowdown[job] = slowed
        self.taken = log.count = job + 1
        self._look()
        return job

    def job_finished(self, job: int, now: int) -> None:
        """Let the user who waits for the job think, and submit the next job."""
        waits = self._waiting.pop(job, None)
        if waits is None:
            return
        work, user = waits
        thought = self._thought[work]
        thought[user] += 1
        tick = now + self._classes[work].think.ticks(user, thought[user])
        if tick < self._end:
            heappush(self._submits, (tick, work, user))
            self._look()
