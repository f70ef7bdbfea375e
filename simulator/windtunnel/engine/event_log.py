"""Event log: what an engine records during a run, and from which the recording is computed.

An engine records only what cannot be computed afterwards: when and on which device each job started and ended, and what
occupied which hardware engine where the times of the jobs do not show it. All times are ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from windtunnel.core.recording import IntArray, KvTransfers, Loads, Progress, ServingUse, TokenGaps
from windtunnel.core.ticks import FloatArray, TickArray


@dataclass
class Intervals:
    """Intervals in which work occupied a hardware engine, one array element each; ``watts`` are above idle."""

    device: IntArray
    lane: IntArray
    name: IntArray
    start: TickArray
    end: TickArray
    watts: FloatArray
    words: dict[str, int]
    """The number that stands for each text in ``lane`` and ``name``."""

    def word(self, text: str) -> int:
        """Return the number that stands for ``text`` in ``lane`` and ``name``."""
        return self.words.setdefault(text, len(self.words))


@dataclass(frozen=True)
class Interruptions:
    """Interrupted executions, one array element each: start, end, and the number of jobs that then waited again."""

    start: TickArray
    end: TickArray
    jobs: IntArray


@dataclass(frozen=True)
class StateChanges:
    """Changes of the states of devices of scaled entries (see ``prepare.autoscaling``), in the order of time."""

    tick: TickArray
    device: IntArray
    before: IntArray
    after: IntArray


@dataclass(frozen=True, kw_only=True)
class EventLog:
    """The jobs of a run by number, and what happened to them. A time is -1 where the event has not happened."""

    count: int
    arrival: TickArray
    workload_of: IntArray
    rank: IntArray
    start: TickArray
    finish: TickArray
    first: TickArray
    device: IntArray
    starts: IntArray
    """The number of attempts of each job that started more than once or not at all; else 0."""
    hits: IntArray
    """The blocks of each prompt that the prefix cache had when the request last started."""
    lost: IntArray
    """1 for jobs that failed, 2 for jobs that gave up waiting, 3 for jobs that were not admitted."""
    energy: FloatArray
    """Energy of each job above idle (J), except for the jobs of ``own_interval``."""
    intervals: Intervals
    gaps: TokenGaps
    interruptions: Interruptions
    own_interval: set[tuple[int, int]]
    """(class, workload) of jobs that consist of one segment, so that the job's times are the interval's times."""
    overlapping: set[int]
    """Devices that execute several jobs at a time."""
    resets: Sequence[tuple[int, int, int]]
    """Device, start and end of each outage that a failed operation caused."""
    corrupted: int | None
    """Jobs that completed after a corrupted copy; None where no fault affects operations."""
    fault_occurrences: Mapping[int, tuple[int, int]]
    """The numbers of eligible and of affected operations of each fault of operations, by its index."""
    preemptions: int
    """Preemptions of sequences because the KV cache was full."""
    use: ServingUse
    """The use of the devices by requests."""
    transfers: KvTransfers | None
    """The transfers of KV caches; None where no request moves."""
    progress: Progress | None
    """What checkpoints and interruptions cost; None without checkpoints and preemption."""
    loads: Loads | None
    """The loads of designs; None where no job needs a design."""
    scaled: Sequence[tuple[int, int]]
    """For each scaled entry, how often the controller scaled up and down."""
    changes: StateChanges = field(default_factory=lambda: StateChanges(*[np.zeros(0, dtype=np.int64)] * 4))
