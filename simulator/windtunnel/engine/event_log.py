"""What a run writes down as it goes: plain numbers in growing arrays, accounted for when it has ended.

A station writes only what cannot be worked out afterwards: when each job started and ended and where, and what
occupied which engine where a job's own times do not say it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from windtunnel.engine.prepare.prepared import Prepared
from windtunnel.engine.prepare.programs import Compiled


def numbers(values: np.ndarray) -> array[int]:
    """An int64 array as one whose elements are plain integers, quick to read one by one."""
    return array("q", values.astype(np.int64, copy=False).tobytes())


@dataclass
class Intervals:
    """What occupied which engine of which device, when, and at what power above idle: one row each."""

    device: array[int] = field(default_factory=lambda: array("q"))
    lane: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("q"))
    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    watts: array[float] = field(default_factory=lambda: array("d"))
    words: dict[str, int] = field(default_factory=dict)

    def word(self, text: str) -> int:
        """The number that stands for ``text`` in ``lane`` and ``name``."""
        return self.words.setdefault(text, len(self.words))

    def add(self, device: int, lane: int, name: int, start: int, end: int, watts: float) -> None:
        """One interval; those of no length leave no trace."""
        if end > start:
            self.device.append(device)
            self.lane.append(lane)
            self.name.append(name)
            self.start.append(start)
            self.end.append(end)
            self.watts.append(watts)


class Books:
    """A run's jobs by number, and what is written down of them. Ticks are -1 where it has not come to that."""

    def __init__(self, prepared: Prepared) -> None:
        self.count = len(prepared.arrival)
        known = (prepared.arrival, prepared.workload_of, prepared.rank, prepared.eligible)
        if prepared.users:
            # Which jobs there are is known as they arrive: room for all there may be.
            known = (np.full(prepared.job_count, -1, dtype=np.int64),) * 4
            self.count = 0
        room = len(known[0])
        self.arrival, self.workload_of, self.rank, self.eligible = (numbers(a) for a in known)
        never = np.full(room, -1, dtype=np.int64)
        self.start, self.finish, self.first, self.device = (numbers(never) for _ in range(4))
        self.starts = array("q", bytes(8 * room))
        """How often each job was started, where that is more than once or not at all."""
        self.lost = bytearray(room)
        """1 for jobs that were given up."""
        self.energy = array("d", bytes(8 * room))
        """Joules above idle; without those of jobs that are their own interval."""
        self.intervals = Intervals()
        self.gap_ticks, self.gap_tokens, self.gap_end, self.gap_workload = (array("q") for _ in range(4))
        self.own_interval: set[tuple[int, int]] = set()
        """(class, workload) whose jobs are of one segment and so are their own interval."""
        self.overlapping: set[int] = set()
        """Devices that have several jobs in hand at a time."""
        self.returned_start, self.returned_end, self.returned_jobs = (array("q") for _ in range(3))
        """From when to when how many jobs were worked on that had to wait again afterwards."""
        self.reset_on, self.reset_start, self.reset_end = (array("q") for _ in range(3))
        """Which device was down from when to when because an operation went wrong there."""
        self.corrupted = 0
        """Jobs that completed with a garbled copy."""
        self.put_off = 0
        """How often memory for keys and values ran out."""
        self.scaled: list[tuple[int, int]] = []
        """For each scaled entry, how often more and how often fewer devices were asked for."""
        self._changes: list[array[int]] = [array("q") for _ in range(4)]

    def cut(self) -> None:
        """Give up the room of jobs that did not arrive."""
        columns = (
            self.arrival, self.workload_of, self.rank, self.eligible, self.start, self.finish, self.first, self.device,
            self.starts, self.lost, self.energy,
        )  # fmt: skip
        for column in columns:
            del column[self.count :]

    def add_change(self, tick: int, device: int, before: int, after: int) -> None:
        """A device of a scaled entry has gone from one state to another."""
        for column, value in zip(self._changes, (tick, device, before, after), strict=True):
            column.append(value)

    def changes_array(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Ticks, devices, states before and after, of all changes in the order they happened."""
        tick, device, before, after = (np.array(column, dtype=np.int64) for column in self._changes)
        return tick, device, before, after

    def add_returned(self, jobs: int, start: int, end: int) -> None:
        """So many jobs were started and interrupted, and wait again."""
        if jobs:
            self.returned_start.append(start)
            self.returned_end.append(end)
            self.returned_jobs.append(jobs)

    def add_gap(self, ticks: int, tokens: int, end: int, workload: int) -> None:
        """``tokens`` tokens of a workload followed the ones before them after ``ticks``."""
        self.gap_ticks.append(ticks)
        self.gap_tokens.append(tokens)
        self.gap_end.append(end)
        self.gap_workload.append(workload)

    def add_gaps_of_lone(self, job: int, compiled: Compiled) -> None:
        """A request served alone, from its start: its following tokens share the time after the first equally."""
        rank = self.rank[job]
        single = compiled.single
        assert compiled.outputs is not None and compiled.first_ticks is not None and single is not None  # noqa: S101
        following = int(compiled.outputs[rank]) - 1
        if following > 0:
            rest = single.at(rank)[0] - int(compiled.first_ticks[rank])
            self.add_gap(rest // following, following, self.start[job], self.workload_of[job])

    def add_gaps_of_batch(self, jobs: Sequence[int], compiled: Compiled, first: int, rest: int) -> None:
        """A static batch: every step gives each of its jobs a token, until the longest is done."""
        assert compiled.outputs is not None  # noqa: S101
        outputs = [int(compiled.outputs[self.rank[job]]) for job in jobs]
        steps = max(outputs) - 1
        following = sum(outputs) - len(outputs)
        if steps and following:
            self.add_gap(rest // steps, following, first, self.workload_of[jobs[0]])
