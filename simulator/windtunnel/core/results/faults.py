"""The parts of a result on faults, and on what interruptions of jobs cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class EntryFaults(Result):
    """The faults of the devices of one fleet entry."""

    name: str
    devices: int
    failures: int
    down_s: float
    unreachable_s: float
    throttled_s: float
    availability: float


@dataclass(frozen=True)
class FaultCount(Result):
    """How often a fault of the scenario occurred, and among how many operations. None where it is not known."""

    kind: str
    occurrences: int | None
    eligible_operations: int | None


@dataclass(frozen=True)
class FaultResult(Result):
    """The faults of a run, and the jobs that they affected. ``events`` counts degraded intervals by cause."""

    events: Mapping[str, int]
    stragglers: int | None
    interrupted: int
    restarts: int
    failed: int
    corrupted_jobs: int | None
    entries: Sequence[EntryFaults]
    by_fault: Sequence[FaultCount]


@dataclass(frozen=True)
class ProgressResult(Result):
    """What checkpoints and interruptions cost, in device seconds at full speed."""

    checkpoints: int
    """Complete checkpoints."""
    checkpoint_s: float
    """Time to write checkpoints, including those that an interruption left incomplete."""
    restore_s: float
    lost_s: float
    """Work that interruptions discarded."""
    preemptions: int
