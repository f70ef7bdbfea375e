"""Faults of single operations: which of them strike an operation as it starts, and how often each has (process engine).

Whether chance strikes belongs to the fault's place in the list, the workload, the job's place in it, the attempt and
the operation's place in the program. So another fault at the end of the list, or other jobs, change no draw. Numbers of
calls and times count what the run does, over all devices together, in the order in which operations start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.core.rng import Lots
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.prepared import FleetClass, Prepared
from windtunnel.scenario.faults import (
    CopyFailure,
    CorruptCopy,
    EccError,
    Ending,
    Hang,
    OperationFault,
    SlowCopy,
)


@dataclass(frozen=True)
class Strike:
    """What becomes of an operation: ``slowdown`` times as long; ended by ``ending`` after ``ticks`` (None: when its own
    time is over); garbled.
    """

    slowdown: float = 1.0
    ending: Ending | None = None
    ticks: int | None = None
    corrupt: bool = False


@dataclass
class _Armed:
    fault: OperationFault
    lots: dict[int, Lots]
    """By workload, where chance strikes."""
    after: int = 0
    seen: int = 0
    struck: int = 0

    def would_strike(self, work: int, rank: int, attempt: int, place: int, now: int) -> bool:
        self.seen += 1
        fault = self.fault
        if fault.most is not None and self.struck >= fault.most:
            return False
        if fault.probability is not None:
            return self.lots[work].at(rank, attempt, place) < fault.probability
        return now >= self.after if fault.call is None else self.seen >= fault.call


@dataclass
class Strikes:
    """The faults of operations of one run."""

    prepared: Prepared
    _armed: dict[int, _Armed] = field(default_factory=dict)
    _concerned: dict[tuple[int, int, str], list[_Armed]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scenario = self.prepared.scenario
        for number, fault in enumerate(scenario.faults):
            if not isinstance(fault, OperationFault):
                continue
            lots = {}
            if fault.probability is not None:
                lots = {
                    w.number: Lots(scenario.seed, "faults", str(number), fault.kind, w.workload.name)
                    for w in self.prepared.workloads
                }
            self._armed[number] = _Armed(fault, lots, 0 if fault.after is None else to_ticks(fault.after))

    def _concerning(self, cls: int, work: int, operation: str) -> list[_Armed]:
        key = cls, work, operation
        if key not in self._concerned:
            fleet_class = self.prepared.classes[cls]
            self._concerned[key] = [
                armed
                for armed in self._armed.values()
                if armed.fault.strikes(operation) and concerns(self.prepared, armed.fault, fleet_class, work)
            ]
        return self._concerned[key]

    def on(
        self, cls: int, work: int, rank: int, attempt: int, place: int, operation: str, ticks: int, now: int
    ) -> Strike | None:
        """What strikes an operation of ``ticks`` that starts now, on a device of the class; None for nothing.

        Of several that end it the one that does so first, and of equals the one that is stated first; the others have
        not struck then.
        """
        would = [
            armed
            for armed in self._concerning(cls, work, operation)
            if armed.would_strike(work, rank, attempt, place, now)
        ]
        if not would:
            return None
        slow = [armed for armed in would if isinstance(armed.fault, SlowCopy)]
        slowdown = 1.0
        for armed in slow:
            assert isinstance(armed.fault, SlowCopy)  # noqa: S101
            slowdown *= armed.fault.factor
        ends: tuple[float, _Armed, Ending] | None = None
        for armed in would:
            if isinstance(armed.fault, Ending):
                at = _lasts(armed.fault)
                sooner = round(ticks * slowdown) if at is None else at
                if ends is None or sooner < ends[0]:
                    ends = sooner, armed, armed.fault
        garbled = [] if ends is not None else [armed for armed in would if isinstance(armed.fault, CorruptCopy)]
        if ends is not None and _lasts(ends[2]) is not None:
            slow, slowdown = [], 1.0  # it is over before it could be slow
        for armed in [*slow, *garbled, *([] if ends is None else [ends[1]])]:
            armed.struck += 1
        return Strike(
            slowdown, None if ends is None else ends[2], None if ends is None else _lasts(ends[2]), bool(garbled)
        )

    def counts(self) -> dict[int, tuple[int, int]]:
        """For each fault of operations, by its place in the list: how many were concerned, and struck."""
        return {number: (armed.seen, armed.struck) for number, armed in self._armed.items()}


def concerns(prepared: Prepared, fault: OperationFault, fleet_class: FleetClass, work: int) -> bool:
    """Whether a fault strikes jobs of the workload on devices of the class."""
    entry = prepared.scenario.fleet[fleet_class.number]
    return (fault.workloads is None or prepared.workloads[work].workload.name in fault.workloads) and (
        fault.devices is None or entry.device in fault.devices or entry.name in fault.devices
    )


def _lasts(fault: Ending) -> int | None:
    """After how many ticks the fault ends an operation; None for those that let it take its time."""
    if isinstance(fault, Hang):
        return to_ticks(fault.watchdog_timeout)
    return None if isinstance(fault, EccError | CopyFailure) else 0


def strikes_of(prepared: Prepared) -> Strikes | None:
    """What strikes operations in a run; None where nothing does."""
    stated: Sequence[object] = prepared.scenario.faults
    return Strikes(prepared) if any(isinstance(fault, OperationFault) for fault in stated) else None
