"""How much of what a fleet can do its jobs ask for: the offered load, before anything runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.engine.prepare.operation_faults import is_eligible
from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun
from windtunnel.engine.prepare.programs import Segment
from windtunnel.scenario.arrivals import Closed, Deterministic, Trace
from windtunnel.scenario.faults import CorruptCopy, Ending, Failure, Fault, OperationFault

_MOST_LOST = 0.01


@dataclass(frozen=True)
class Load:
    """``offered`` over what could be done; ``steady``: whether nothing is random, so that all of it can be used."""

    offered: float
    steady: bool

    @property
    def excessive(self) -> bool:
        """Whether no steady state can be: at its capacity a queue that varies at all grows without bound."""
        return self.offered > 1 + 1e-9 or (self.offered >= 1 - 1e-9 and not self.steady)


def offered_load(prepared: PreparedRun) -> Load | None:
    """The least busy that the fleet's busiest part can be, however jobs are shared out; None where that is not known.

    The fluid limit: jobs of each workload, at their mean rate, are divided among the classes that can run them so that
    the largest of (seconds of work a second) / (devices) is least (a linear program). Batches count at what a job
    takes in the best of them, devices that fail for the share of time that they work. Not known where arrivals change
    with time, where chance strikes operations (how much is done again or spared depends on where in a job), where
    failures end more than ``_MOST_LOST`` of the jobs for good (their work is then spared), for batches that are
    continuous or of jobs that differ, and where all jobs come from users who wait for answers; beside other jobs theirs
    count as none, since they give way.
    """
    if prepared.policy.batch.kind == "continuous":
        return None
    if prepared.policy.batch.kind == "request" and any(prepared.batches(*key) is None for key in prepared.compiled):
        # What a batch of jobs that differ takes is known when there is one; reckoned singly they would seem too much.
        return None
    if not all(w.workload.arrivals.stationary for w in prepared.workloads):
        return None
    if any(_adds_work(fault) for fault in prepared.scenario.faults):
        return None
    processes = [w.workload.arrivals for w in prepared.workloads]
    if all(isinstance(process, Closed) for process in processes):
        return None
    rates = np.array(
        [
            0.0 if isinstance(process, Closed) else process.mean_rate_per_s()
            for process in processes
            if not isinstance(process, Trace)
        ]
    )
    rows: list[np.ndarray] = []
    capacities: list[float] = []
    for fleet_class in prepared.classes:
        works = [_work_s(prepared, fleet_class, w.number) for w in prepared.workloads]
        if max((_lost(prepared, fleet_class, work.get("device", 0.0)) for work in works), default=0.0) > _MOST_LOST:
            return None
        for name in sorted({name for work in works for name in work}):
            rows.append(np.array([work.get(name, 0.0) for work in works]))
            streams = fleet_class.streams if name == "device" else 1
            capacities.append(fleet_class.count * streams * _up(prepared, fleet_class))
    steady = all(isinstance(w.workload.arrivals, Deterministic) for w in prepared.workloads) and not any(
        segment.drawn for program in prepared.compiled.values() for segment in program.segments()
    )
    return Load(_least(prepared, rates, rows, capacities), steady)


def _work_s(prepared: PreparedRun, fleet_class: FleetClass, work: int) -> dict[str, float]:
    """Mean seconds that a job of the workload takes of the device, and of each engine that serves jobs side by side."""
    compiled = prepared.compiled.get((fleet_class.number, work))
    if compiled is None:
        return {}
    if prepared.policy.batch.kind == "request":
        table = prepared.batches(fleet_class.number, work)
        if table is not None:
            sizes = np.arange(1, len(table.seconds) + 1)
            return {"device": float((table.seconds / sizes).min())}
    share = np.ones(1)
    if compiled.variant_of is not None:
        share = np.bincount(compiled.variant_of, minlength=len(compiled.variants)) / len(compiled.variant_of)
    found: dict[str, float] = {"device": 0.0}
    for weight, phases in zip(share, compiled.variants, strict=True):
        for phase in phases:
            found["device"] += weight * max(sum(_mean_s(s) for s in body) for body in phase)
            if fleet_class.streams > 1:
                for segment in (s for body in phase for s in body):
                    taken = weight * _mean_s(segment) * segment.share
                    found[segment.engine] = found.get(segment.engine, 0.0) + taken
    return found


def _mean_s(segment: Segment) -> float:
    if segment.drawn is not None:
        return segment.drawn.seconds
    return float(np.mean(segment.ticks)) / TICKS_PER_SECOND


def _lost(prepared: PreparedRun, fleet_class: FleetClass, work_s: float) -> float:
    """The share of jobs of so much work that failures of the class end for good, about.

    Each start of one is struck before its end with probability 1 - exp(-work / MTBF).
    """
    lost = 0.0
    for fault in _failures(prepared, fleet_class):
        starts = 1 if fault.on_failure == "fail" else fault.max_attempts
        lost += (1.0 - math.exp(-work_s / (fault.mtbf or math.inf))) ** starts
    return lost


def max_failed_jobs(prepared: PreparedRun) -> float:
    """How many jobs failures may be expected to end for good, on the classes that lose most of them."""
    expected = 0.0
    for work in prepared.workloads:
        jobs = float(np.count_nonzero(prepared.workload_of == work.number))
        ended = [
            (_lost(prepared, c, _work_s(prepared, c, work.number).get("device", 0.0)), c) for c in prepared.classes
        ]
        struck = [(lost, *_ended_operations(prepared, c, work.number)) for lost, c in ended]
        expected += min(max((jobs * (lost + share) + further for lost, share, further in struck), default=0.0), jobs)
    return expected


def _failures(prepared: PreparedRun, fleet_class: FleetClass) -> list[Failure]:
    """Failures at drawn times that strike devices of the class."""
    entry = prepared.scenario.fleet[fleet_class.number]
    return [
        fault
        for fault in prepared.scenario.faults
        if isinstance(fault, Failure)
        and fault.mtbf is not None
        and (fault.devices is None or entry.device in fault.devices or entry.name in fault.devices)
    ]


def _adds_work(fault: Fault) -> bool:
    """Whether it changes what jobs take on average, by striking operations again and again."""
    return isinstance(fault, OperationFault) and not isinstance(fault, CorruptCopy) and fault.max_occurrences is None


def _ended_operations(prepared: PreparedRun, fleet_class: FleetClass, work: int) -> tuple[float, float]:
    """(share of its jobs, further jobs) of the workload that struck operations end for good on the class, at most."""
    compiled = prepared.compiled.get((fleet_class.number, work))
    share, further = 0.0, 0.0
    if compiled is None:
        return share, further
    for fault in prepared.scenario.faults:
        if not isinstance(fault, Ending) or not is_eligible(prepared, fault, fleet_class, work):
            continue
        starts = 1 if fault.on_failure == "fail" else fault.max_attempts
        if fault.probability is None:
            further += (fault.max_occurrences or 0) // starts
            continue
        most = max(
            sum(fault.affects(s.name) for phase in phases for body in phase for s in body)
            for phases in compiled.variants
        )
        share += (1.0 - (1.0 - fault.probability) ** most) ** starts
    return share, further


def _up(prepared: PreparedRun, fleet_class: FleetClass) -> float:
    """The share of time in which a device of the class has not failed, in the long run."""
    up = 1.0
    for fault in _failures(prepared, fleet_class):
        if fault.mtbf is not None and fault.mttr is not None:
            up *= fault.mtbf / (fault.mtbf + fault.mttr)
    return up


def _least(prepared: PreparedRun, rates: np.ndarray, rows: list[np.ndarray], capacities: list[float]) -> float:
    classes, works = len(prepared.classes), len(rates)
    if classes == 1:
        return max(float(rates @ row) / capacity for row, capacity in zip(rows, capacities, strict=True))
    if works == 1 and all(c.streams == 1 for c in prepared.classes) and all(row[0] > 0 for row in rows):
        # Each class does what it can, all of them to the same extent.
        fleets = [
            _up(prepared, c) * c.count / _work_s(prepared, c, 0)["device"]
            for c in prepared.classes
            if (c.number, 0) in prepared.compiled
        ]
        return float(rates[0]) / sum(fleets)
    from scipy.optimize import linprog

    # Variables: jobs a second of workload w on class c, then the load itself.
    columns = classes * works
    upper: list[np.ndarray] = []
    at = 0
    for fleet_class in prepared.classes:
        named = sorted({n for w in range(works) for n in _work_s(prepared, fleet_class, w)})
        for _ in named:
            row = np.zeros(columns + 1)
            row[fleet_class.number * works : (fleet_class.number + 1) * works] = rows[at]
            row[-1] = -capacities[at]
            upper.append(row)
            at += 1
    equal = np.zeros((works, columns + 1))
    most: list[float | None] = []
    for cls in range(classes):
        for work in range(works):
            equal[work, cls * works + work] = 1.0
            most.append(None if (cls, work) in prepared.compiled else 0.0)
    answer = linprog(
        np.append(np.zeros(columns), 1.0),
        A_ub=np.array(upper),
        b_ub=np.zeros(len(upper)),
        A_eq=equal,
        b_eq=rates,
        bounds=[(0.0, m) for m in [*most, None]],
        method="highs",
    )
    return float(answer.fun)
