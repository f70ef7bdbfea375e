"""Prepares closed workloads: their users, and random draws for a number of jobs that is not known in advance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.arrivals import MAX_JOBS, ThinkTimes
from windtunnel.engine.prepare.fault_schedule import straggler_slowdowns
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
    """The users of a closed workload. The engine computes their arrivals while it runs."""

    work: int
    think: ThinkTimes
    capacity: int
    """The number of jobs for which random numbers are drawn."""
    signature: int
    """The index of their jobs into ``PreparedRun.signatures``; all jobs need the same memory."""
    slowdown: FloatArray | None
    """The slowdown of each job by rank, if the scenario has stragglers; shape (capacity,)."""


def user_class(scenario: Scenario, work: int, capacity: int, signature: int) -> UserClass:
    """Return the users of workload number ``work``, with random draws for ``capacity`` jobs of one ``signature``."""
    workload = scenario.workload[work]
    assert isinstance(workload.arrivals, Closed)  # noqa: S101  only those have users
    names = [w.name for w in scenario.workload]
    mine = np.full(capacity, work, dtype=np.int64)
    return UserClass(
        work=work,
        think=ThinkTimes(workload.arrivals, scenario.seed, workload.name),
        capacity=capacity,
        signature=signature,
        slowdown=straggler_slowdowns(scenario.faults, scenario.seed, names, mine, np.arange(capacity)),
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
