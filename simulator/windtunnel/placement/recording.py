"""The recording of a placement run: the node and the times of every task, and the state of the cluster over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

NANO = 10**9
"""Ticks per second of a placement run. The openb trace lasts 149 days; int64 picoseconds overflow after 106 days."""


@dataclass(frozen=True)
class PlacedTasks:
    """All tasks in order of arrival, one element for each. Ticks are nanoseconds; -1 if the event did not occur.

    An inflation has no time: ``arrival`` counts tasks, and a task starts as it arrives.
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
    """A bit for each GPU of the node that the task holds."""
    status: IntArray
    """As in ``core.recording``: COMPLETED, RUNNING, QUEUED, DROPPED."""
    started: IntArray
    """The index of the start among all starts and ends; -1 if the task did not start."""
    ended: IntArray
    cpu: IntArray
    memory: IntArray
    gpus: IntArray
    milli: IntArray

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class PlacementTimeline:
    """The state of the cluster after each change. ``tick`` increases strictly (in an inflation: the tasks arrived).

    ``demand`` is requested by tasks that have arrived and not left, ``allocated`` is held by tasks; both are in GPU
    thousandths. ``fragmented`` is in GPU thousandths times ``weight``.
    """

    tick: IntArray
    demand: IntArray
    allocated: IntArray
    fragmented: IntArray
    waiting: IntArray
    weight: int


@dataclass(frozen=True)
class PlacementRecording:
    """The complete data of one run."""

    mode: Literal["replay", "inflate"]
    backfill: bool
    end: int
    tasks: PlacedTasks
    timeline: PlacementTimeline
    nodes: Sequence[str]
    models: Sequence[str]
    """The GPU model of each node."""
    gpus: IntArray
    workloads: Sequence[str]
    capacity: int
    """GPU thousandths of the cluster."""
