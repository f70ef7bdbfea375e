"""Faults of single operations: which of them take effect on an operation when it starts.

The random decision for a fault is keyed by fault index, workload, job index, attempt and operation index. Another fault
at the end of the list, or other jobs, therefore change no decision. Calls and occurrences are counted over all devices
together, in the order in which operations start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.core.rng import KeyedRandom
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun
from windtunnel.scenario.faults import CopyFailure, CorruptCopy, EccError, Ending, Hang, OperationFault, SlowCopy


@dataclass(frozen=True)
class Operation:
    """An operation that starts: of a job, of a request-level batch, or a step of a continuous batch.

    Attributes:
        cls: The class of the device.
        works: The workloads that take part in it, by number.
        key: What identifies it among the operations of these workloads: the job's rank, its attempt and the operation's
            place in the program. Of a batch, those of its first job; of a step, device, step and 0.
        name: The operation's name; ``generate`` for a step.
        ticks: Its duration without faults.
    """

    cls: int
    works: Sequence[int]
    key: tuple[int, int, int]
    name: str
    ticks: int


@dataclass(frozen=True)
class OperationEffect:
    """The effect of faults on an operation.

    The operation takes ``slowdown`` times as long. The fault ``ending`` ends it after ``ticks``, or at its own end if
    ``ticks`` is None. ``corrupt``: its data are corrupted.
    """

    slowdown: float = 1.0
    ending: Ending | None = None
    ticks: int | None = None
    corrupt: bool = False


@dataclass
class _Counter:
    """A fault, its random numbers by workload, and how many operations were eligible and affected."""

    fault: OperationFault
    draws: dict[int, KeyedRandom]
    after: int = 0
    eligible: int = 0
    injected: int = 0

    def applies(self, work: int, key: tuple[int, int, int], now: int) -> bool:
        """Count an eligible operation, and return whether the fault applies to it."""
        self.eligible += 1
        fault = self.fault
        if fault.max_occurrences is not None and self.injected >= fault.max_occurrences:
            return False
        if fault.probability is not None:
            return self.draws[work].at(*key) < fault.probability
        return now >= self.after if fault.call is None else self.eligible >= fault.call


@dataclass
class OperationFaultInjector:
    """Injects the faults of single operations of one run."""

    prepared: PreparedRun
    _counters: dict[int, _Counter] = field(default_factory=dict)
    _eligible: dict[tuple[int, int, str], list[tuple[int, _Counter]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scenario = self.prepared.scenario
        for number, fault in enumerate(scenario.faults):
            if not isinstance(fault, OperationFault):
                continue
            draws = {}
            if fault.probability is not None:
                draws = {
                    w.number: KeyedRandom(scenario.seed, "faults", str(number), fault.kind, w.workload.name)
                    for w in self.prepared.workloads
                }
            self._counters[number] = _Counter(fault, draws, 0 if fault.after is None else to_ticks(fault.after))

    def _eligible_faults(self, cls: int, work: int, operation: str) -> list[tuple[int, _Counter]]:
        key = cls, work, operation
        if key not in self._eligible:
            fleet_class = self.prepared.classes[cls]
            self._eligible[key] = [
                (number, counter)
                for number, counter in self._counters.items()
                if counter.fault.affects(operation) and is_eligible(self.prepared, counter.fault, fleet_class, work)
            ]
        return self._eligible[key]

    def effect_on(self, operation: Operation, now: int) -> OperationEffect | None:
        """Return the effect on an operation that starts now, or None.

        If several faults would end the operation, the earliest one does, and of equally early ones the one that the
        scenario lists first. The other faults are not counted as injected.
        """
        ticks = operation.ticks
        eligible: dict[int, tuple[_Counter, int]] = {}
        for work in operation.works:
            for number, counter in self._eligible_faults(operation.cls, work, operation.name):
                eligible.setdefault(number, (counter, work))
        applicable = [
            counter for _, (counter, work) in sorted(eligible.items()) if counter.applies(work, operation.key, now)
        ]
        if not applicable:
            return None
        injected: list[_Counter] = []
        slowdown = 1.0
        for counter in applicable:
            if isinstance(counter.fault, SlowCopy):
                injected.append(counter)
                slowdown *= counter.fault.factor
        first: tuple[float, _Counter, Ending] | None = None
        for counter in applicable:
            if isinstance(counter.fault, Ending):
                limit = _time_limit(counter.fault)
                end = round(ticks * slowdown) if limit is None else limit
                if first is None or end < first[0]:
                    first = end, counter, counter.fault
        if first is None:
            corrupting = [counter for counter in applicable if isinstance(counter.fault, CorruptCopy)]
            effect = OperationEffect(slowdown, corrupt=bool(corrupting))
            injected += corrupting
        else:
            limit = _time_limit(first[2])
            if limit is not None:  # the operation ends before a slow copy could take effect
                injected, slowdown = [], 1.0
            effect = OperationEffect(slowdown, first[2], limit)
            injected.append(first[1])
        for counter in injected:
            counter.injected += 1
        return effect

    def counts(self) -> dict[int, tuple[int, int]]:
        """Return the number of eligible and of affected operations of each fault, by its index in the scenario."""
        return {number: (counter.eligible, counter.injected) for number, counter in self._counters.items()}


def is_eligible(prepared: PreparedRun, fault: OperationFault, fleet_class: FleetClass, work: int) -> bool:
    """Return whether a fault may affect jobs of the workload on devices of the class."""
    entry = prepared.scenario.fleet[fleet_class.number]
    return (fault.workloads is None or prepared.workloads[work].workload.name in fault.workloads) and (
        fault.devices is None or entry.device in fault.devices or entry.name in fault.devices
    )


def may_affect(prepared: PreparedRun, fleet_class: FleetClass, work: int, operation: str) -> bool:
    """Return whether a fault may affect operations of this name in jobs of the workload on devices of the class."""
    return any(
        isinstance(fault, OperationFault)
        and fault.affects(operation)
        and is_eligible(prepared, fault, fleet_class, work)
        for fault in prepared.scenario.faults
    )


def _time_limit(fault: Ending) -> int | None:
    """Return after how many ticks the fault ends an operation; None if the operation takes its normal time."""
    if isinstance(fault, Hang):
        return to_ticks(fault.watchdog_timeout)
    return None if isinstance(fault, EccError | CopyFailure) else 0


def operation_faults_of(prepared: PreparedRun) -> OperationFaultInjector | None:
    """Return the injector of a run's operation faults; None if the scenario has none."""
    faults: Sequence[object] = prepared.scenario.faults
    return OperationFaultInjector(prepared) if any(isinstance(fault, OperationFault) for fault in faults) else None
