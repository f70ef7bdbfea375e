"""What a placement run leaves behind: where every task went and when, and how full and fragmented the cluster was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

NANO = 10**9
"""Ticks of a placement run in a second. The openb trace is 149 days; int64 picoseconds end after 106."""


@dataclass(frozen=True)
class PlacedTasks:
    """Every task in order of arrival; one element each. Ticks are nanoseconds; -1 where it did not come to that.

    When inflating there is no time: ``arrival`` counts tasks, and what was placed was so at once.
    """

    names: Sequence[str]
    workload: IntArray
    kind: IntArray
    """The class of task, an index into the run's classes."""
    arrival: IntArray
    start: IntArray
    finish: IntArray
    duration: IntArray
    node: IntArray
    gpu_mask: IntArray
    """A bit for each GPU of the node that it took."""
    status: IntArray
    """As in ``core.result``: COMPLETED, RUNNING, QUEUED, DROPPED."""
    started: IntArray
    """The place of its start among all starts and ends; -1 where there was none."""
    ended: IntArray
    cpu: IntArray
    memory: IntArray
    gpus: IntArray
    milli: IntArray

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class Course:
    """The cluster after each moment at which it changed; ``tick`` increases strictly (tasks arrived, when inflating).

    ``demand`` and ``allocated`` are in GPU thousandths: asked for by all that have arrived and not left, and held.
    ``fragmented`` is in GPU thousandths too, times ``weight``.
    """

    tick: IntArray
    demand: IntArray
    allocated: IntArray
    fragmented: IntArray
    waiting: IntArray
    weight: int


@dataclass(frozen=True)
class PlacementRecording:
    """One run, all of it."""

    mode: Literal["replay", "inflate"]
    backfill: bool
    end: int
    tasks: PlacedTasks
    course: Course
    nodes: Sequence[str]
    models: Sequence[str]
    """The GPU model of each node."""
    gpus: IntArray
    workloads: Sequence[str]
    capacity: int
    """GPU thousandths of the cluster."""
