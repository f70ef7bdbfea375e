"""Event log: the records that an engine writes during a run, from which the recording is computed.

An engine writes only what cannot be computed afterwards: when and on which device each job started and ended, and what
occupied which hardware engine where the times of the jobs do not show it. All times are ticks.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from windtunnel.core.recording import Progress
from windtunnel.engine.prepare.prepared import PreparedRun


def int_array(values: np.ndarray) -> array[int]:
    """Return a copy of an integer array whose elements are Python integers, which are faster to read one by one."""
    return array("q", values.astype(np.int64, copy=False).tobytes())


def _ints() -> array[int]:
    return array("q")


@dataclass
class Intervals:
    """One row for each interval in which work occupied a hardware engine; ``watts`` are above idle."""

    device: array[int] = field(default_factory=_ints)
    lane: array[int] = field(default_factory=_ints)
    name: array[int] = field(default_factory=_ints)
    start: array[int] = field(default_factory=_ints)
    end: array[int] = field(default_factory=_ints)
    watts: array[float] = field(default_factory=lambda: array("d"))
    words: dict[str, int] = field(default_factory=dict)
    """The number that stands for each text in ``lane`` and ``name``."""

    def word(self, text: str) -> int:
        """Return the number that stands for ``text`` in ``lane`` and ``name``."""
        return self.words.setdefault(text, len(self.words))

    def add(self, device: int, lane: int, name: int, start: int, end: int, watts: float) -> None:
        """Add an interval, unless it has no length."""
        if end > start:
            self.device.append(device)
            self.lane.append(lane)
            self.name.append(name)
            self.start.append(start)
            self.end.append(end)
            self.watts.append(watts)


class EventLog:
    """The jobs of a run by number, and what happened to them. A time is -1 while the event has not happened."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.count = len(prepared.arrival)
        columns = (prepared.arrival, prepared.workload_of, prepared.rank, prepared.eligible)
        if prepared.users:
            # Jobs of users are entered when they arrive, so the columns have space for the largest possible number.
            columns = (np.full(prepared.job_count, -1, dtype=np.int64),) * 4
            self.count = 0
        capacity = len(columns[0])
        self.arrival, self.workload_of, self.rank, self.eligible = (int_array(column) for column in columns)
        never = np.full(capacity, -1, dtype=np.int64)
        self.start, self.finish, self.first, self.device = (int_array(never) for _ in range(4))
        self.starts = array("q", bytes(8 * capacity))
        """The number of attempts of each job that started more than once or not at all; else 0."""
        self.lost = bytearray(capacity)
        """1 for jobs that failed, 2 for jobs that gave up waiting."""
        self.energy = array("d", bytes(8 * capacity))
        """Energy of each job above idle (J), except for the jobs of ``own_interval``."""
        self.intervals = Intervals()
        self.gap_ticks, self.gap_tokens, self.gap_end, self.gap_workload = (_ints() for _ in range(4))
        self.own_interval: set[tuple[int, int]] = set()
        """(class, workload) of jobs that consist of one segment, so that the job's times are the interval's times."""
        self.overlapping: set[int] = set()
        """Devices that execute several jobs at a time."""
        self.interrupted_start, self.interrupted_end, self.interrupted_jobs = (_ints() for _ in range(3))
        """Start and end of each interrupted execution, and the number of jobs that then waited again."""
        self.reset_on, self.reset_start, self.reset_end = (_ints() for _ in range(3))
        """Device, start and end of each outage that a failed operation caused."""
        self.corrupted: int | None = None
        """Jobs that completed after a corrupted copy; None where no fault affects operations."""
        self.fault_occurrences: dict[int, tuple[int, int]] = {}
        """The numbers of eligible and of affected operations of each fault of operations, by its index."""
        self.preemptions = 0
        """Preemptions of sequences because the KV cache was full."""
        self.progress: Progress | None = None
        """What checkpoints and interruptions cost; None without checkpoints and preemption."""
        self.scaled: list[tuple[int, int]] = []
        """For each scaled entry, how often the controller scaled up and down."""
        self._changes: list[array[int]] = [_ints() for _ in range(4)]

    def add_change(self, tick: int, device: int, before: int, after: int) -> None:
        """Record that a device of a scaled entry changed its state (see ``prepare.autoscaling``)."""
        for column, value in zip(self._changes, (tick, device, before, after), strict=True):
            column.append(value)

    def changes_array(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the ticks, devices, previous states and new states of all changes, in the order they happened."""
        tick, device, before, after = (np.array(column, dtype=np.int64) for column in self._changes)
        return tick, device, before, after

    def add_reset(self, device: int, start: int, end: int) -> None:
        """Record that a failed operation took the device down from ``start`` to ``end``."""
        for column, value in zip((self.reset_on, self.reset_start, self.reset_end), (device, start, end), strict=True):
            column.append(value)

    def add_interrupted(self, jobs: int, start: int, end: int) -> None:
        """Record that ``jobs`` jobs were executed from ``start`` to ``end``, were interrupted and wait again."""
        if jobs:
            self.interrupted_start.append(start)
            self.interrupted_end.append(end)
            self.interrupted_jobs.append(jobs)
