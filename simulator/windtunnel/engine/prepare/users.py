"""Closed workloads made ready to run: users who wait for answers, and room for jobs that nobody can count yet."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.core.errors import InputError, Where
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.arrivals import MAX_JOBS, ThinkTimes
from windtunnel.engine.prepare.fault_schedule import stretches
from windtunnel.scenario.arrivals import Closed
from windtunnel.scenario.scenario import Scenario, Workload

_FIRST_ROOM = 200_000
"""Jobs of a closed workload to draw for at first, at most: how many it will be is known when the run is over."""


@dataclass(frozen=True)
class UserClass:
    """The users of a closed workload: when they submit is known only as the run goes."""

    work: int
    think: ThinkTimes
    room: int
    """Jobs of theirs that there are draws for."""
    signature: int
    """Their jobs' index into ``Prepared.signatures``: all ask for the same memory."""
    stretch: FloatArray | None
    """Each job's slowdown by rank, where stragglers are stated."""


def user_class(scenario: Scenario, work: int, room: int, signature: int) -> UserClass:
    """The users of workload ``work``, with draws for ``room`` jobs, which are all of one ``signature``."""
    workload = scenario.workload[work]
    assert isinstance(workload.arrivals, Closed)  # noqa: S101  only those have users
    names = [w.name for w in scenario.workload]
    mine = np.full(room, work, dtype=np.int64)
    return UserClass(
        work=work,
        think=ThinkTimes(workload.arrivals, scenario.seed, workload.name),
        room=room,
        signature=signature,
        stretch=stretches(scenario.faults, scenario.seed, names, mine, np.arange(room)),
    )


def first_room(workload: Workload, arrivals: Closed, scenario: Scenario, place: Where) -> int:
    """How many jobs of a closed workload to draw for: all there can be, or a guess on the high side."""
    stop = scenario.stop
    if stop is None:
        raise InputError(
            f"the users of '{workload.name}' never end",
            where=place,
            expected="a stop, such as `stop: {jobs: 10000}` or `stop: {time: 10 s}`",
        )
    if stop.jobs is not None:
        if stop.jobs > MAX_JOBS:
            raise InputError(
                f"'{workload.name}' would have more than {MAX_JOBS:,} jobs", where=place, expected="an earlier stop"
            )
        return stop.jobs
    most = arrivals.most_jobs(stop.time or 0.0)
    return round(min(1024 + most + 5 * math.sqrt(most), _FIRST_ROOM)) if math.isfinite(most) else _FIRST_ROOM
