"""The least that a run's jobs ask of each class of devices: what the bounds of a plan are worked out from.

Every figure is at most what the engine will charge, whatever the fleet's counts and however jobs are mixed, so what
cannot be done with these cannot be done at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windtunnel.core.ticks import FloatArray

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Resource:
    """Something of every device of a class that jobs take time of: the device itself, or one of its engines.

    A device offers ``capacity`` seconds of it a second. ``whole_s`` and ``first_s``: the least seconds each job takes
    of it in all, and until its first result; one a job, 0 where the class cannot run the job.
    """

    class_number: int
    name: str
    capacity: float
    whole_s: FloatArray
    first_s: FloatArray


@dataclass(frozen=True)
class Demand:
    """A run's n jobs in order of arrival, on each of c classes of devices (fleet entries).

    ``eligible``, ``alone_s``, ``alone_first_s``, ``energy_j`` have the shape (c, n): whether the class runs the job;
    the least time from its start to its end, and to its first result; the least energy above idle.
    ``gap_s`` and ``idle_w`` have the shape (c,): the least time between two tokens of one job (0 where nothing
    generates) and a device's idle power. ``following``: tokens after the first, of each job. ``end_s``: when a run that
    is stopped by time stops. ``notes``: where no bound is known, and so 0 is taken. ``left_out``: the largest share of
    the jobs, from the first on, that times may leave out as the warm-up.
    """

    arrival_s: FloatArray
    workload: npt.NDArray[np.int64]
    workloads: Sequence[str]
    resources: Sequence[Resource]
    eligible: BoolArray
    alone_s: FloatArray
    alone_first_s: FloatArray
    energy_j: FloatArray
    gap_s: FloatArray
    idle_w: FloatArray
    following: FloatArray
    end_s: float | None
    notes: Sequence[str] = ()
    left_out: float = 0.0

    @property
    def judged(self) -> BoolArray:
        """Jobs whose times count whatever is left out; one a job."""
        return np.arange(len(self)) >= int(len(self) * self.left_out)

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def classes(self) -> int:
        """Classes of devices."""
        return len(self.eligible)
