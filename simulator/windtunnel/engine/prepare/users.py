"""Prepares the users of closed workloads and sessions, and random draws for a number of jobs not known in advance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.ticks import FloatArray, TickArray
from windtunnel.engine.arrivals import MAX_JOBS, ThinkTimes
from windtunnel.engine.prepare.fault_schedule import straggler_slowdowns
from windtunnel.engine.prepare.source import Sessions, Source
from windtunnel.scenario.arrivals import Closed
from windtunnel.scenario.scenario import Scenario, Workload

_FIRST_CAPACITY = 200_000
"""The largest number of jobs of a closed workload for which the first attempt of a run draws random numbers."""


class CapacityExceededError(Exception):
    """A closed workload submits more jobs than random numbers were drawn for; ``capacity`` is the next number."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.capacity = capacity


@dataclass(frozen=True)
class UserClass:
    """The users of a workload, whose arrivals the engine computes while it runs.

    Of a closed workload each user submits one job, or one session, after the other. Of an open workload with sessions
    each user has one session.
    """

    work: int
    begins: TickArray
    """When each user submits the first job; shape (users,)."""
    think: ThinkTimes | None
    """The think times of a closed workload; None for sessions that arrive."""
    capacity: int
    """The number of jobs for which random numbers are drawn."""
    requested: int
    """The number of jobs for which they were requested; sessions may have fewer."""
    signatures: np.ndarray
    """The index of each job, by rank, into ``PreparedRun.signatures``."""
    slowdown: FloatArray | None
    """The slowdown of each job by rank, if the scenario has stragglers; shape (capacity,)."""
    sessions: Sessions | None = None

    @property
    def users(self) -> int:
        """The number of users."""
        return len(self.begins)


def user_class(
    scenario: Scenario, work: int, source: Source, signatures: np.ndarray, capacity: int | None
) -> UserClass:
    """Return the users of workload number ``work``, with random draws for the jobs of its ``source``.

    ``capacity``: for how many jobs they were requested, if not for the first attempt of a run.
    """
    workload = scenario.workload[work]
    names = [w.name for w in scenario.workload]
    mine = np.full(source.count, work, dtype=np.int64)
    think = None
    if isinstance(workload.arrivals, Closed):
        think = ThinkTimes(workload.arrivals, scenario.seed, workload.name)
    sessions = source.sessions
    assert think is not None or sessions is not None  # noqa: S101  others have no users
    return UserClass(
        work=work,
        begins=source.begins if think is None else think.first(),
        think=think,
        capacity=source.count,
        requested=max(capacity or 0, source.count),
        signatures=signatures,
        slowdown=straggler_slowdowns(scenario.faults, scenario.seed, names, mine, np.arange(source.count)),
        sessions=sessions,
    )


def first_capacity(workload: Workload, arrivals: Closed, scenario: Scenario, place: Location) -> int:
    """Return for how many jobs of a closed workload to draw: the stated number, or a high estimate.

    Raises:
        InputError: if nothing stops the users, or they would submit too many jobs.
    """
    stop = scenario.stop
    if stop is None:
        raise InputError(
            f"the users of '{workload.name}' submit jobs without end",
            where=place,
            expected="a stop, such as `stop: {jobs: 10000}` or `stop: {time: 10 s}`",
        )
    if stop.jobs is not None:
        if stop.jobs > MAX_JOBS:
            raise InputError(
                f"'{workload.name}' would submit more than {MAX_JOBS:,} jobs", where=place, expected="an earlier stop"
            )
        return stop.jobs
    most = arrivals.most_jobs(stop.time or 0.0)
    return round(min(1024 + most + 5 * math.sqrt(most), _FIRST_CAPACITY)) if math.isfinite(most) else _FIRST_CAPACITY
