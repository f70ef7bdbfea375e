"""The offered load: the work that arrives over the work that the fleet can complete, computed before the run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.engine.arrivals.distributions import unit_variates
from windtunnel.engine.prepare.operation_faults import is_eligible
from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun
from windtunnel.engine.prepare.programs import Segment
from windtunnel.engine.prepare.waits import patience_s
from windtunnel.scenario.arrivals import Closed, Deterministic, Think, Trace
from windtunnel.scenario.faults import CorruptCopy, Ending, Failure, Fault, OperationFault
from windtunnel.scenario.scenario import Workload

_MAX_FAILED = 0.01


@dataclass(frozen=True)
class Load:
    """The offered load, and whether nothing is random (``steady``), so that the fleet can be used completely."""

    offered: float
    steady: bool

    @property
    def excessive(self) -> bool:
        """Whether no steady state exists: a random queue grows without bound already at its capacity."""
        return self.offered > 1 + 1e-9 or (self.offered >= 1 - 1e-9 and not self.steady)


@dataclass(frozen=True)
class _Work:
    """The work that arrives, and what the fleet can complete.

    Args:
        rates: Of each workload (1/s); shape (workloads,).
        seconds: For each class and each of its engines, for how long a job of each workload occupies it (s); shape
            (rows, workloads).
        classes: The number of the class of each row; shape (rows,).
        capacities: How many seconds each row can serve in a second; shape (rows,).
    """

    rates: np.ndarray
    seconds: np.ndarray
    classes: np.ndarray
    capacities: np.ndarray


def offered_load(prepared: PreparedRun) -> Load | None:
    """Return the smallest possible load of the busiest part of the fleet; None if it is not known.

    It is the fluid limit: the jobs of each workload, at their mean rate, are divided among the classes that can run
    them such that the largest of (seconds of work a second) / (devices) is minimal (a linear program). A batched job
    counts with its share of the most efficient batch, and a device that fails counts with its availability.

    The load is not known if arrivals change with time, if operations fail at random (the repeated work depends on
    where in a job they fail), if failures end more than ``_MAX_FAILED`` of the jobs (their work is not done), for
    batches that are continuous or of different jobs, and if all workloads are closed. Beside other workloads a closed
    one counts as 0, because it adapts. Loads of designs are not included; where devices load any, the load is known
    only if it is excessive without them.
    """
    work = _work_of(prepared)
    if work is None:
        return None
    steady = all(isinstance(w.workload.arrivals, Deterministic) for w in prepared.workloads) and not any(
        segment.drawn for program in prepared.compiled.values() for segment in program.segments()
    )
    load = Load(_minimal_load(prepared, work), steady)
    return None if prepared.reconfigures and not load.excessive else load


def least_queue(prepared: PreparedRun) -> float:
    """Return about how many jobs are in the queues at least when the arrivals end; 0 if the load is not known.

    It is the fluid limit. Jobs that wait for ever are as many as no order of service can complete (a linear program).
    Where jobs give up waiting the queue is no longer than the arrivals during the longest wait: in order of arrival
    those who would wait longer leave, and the rest is as much as the fleet can complete. A job that has left may keep
    its memory for as long as that.
    """
    work = _work_of(prepared)
    if work is None or _minimal_load(prepared, work) <= 1.0:
        return 0.0
    rate = float(work.rates.sum())
    growing = prepared.expected_jobs * (1.0 - _most_completed(prepared, work) / rate)
    return min(growing, rate * _longest_wait_s(prepared, work, prepared.expected_jobs / rate))


def _longest_wait_s(prepared: PreparedRun, work: _Work, most_s: float) -> float:
    """Return the wait (s, up to ``most_s``) at which as many jobs give up as the fleet cannot complete."""
    patience = [_quantiles_of_patience(w.workload) for w in prepared.workloads]

    def load(wait_s: float) -> float:
        stay = np.array([float(np.mean(p > wait_s)) for p in patience])
        return _minimal_load(prepared, replace(work, rates=work.rates * stay))

    shortest_s, longest_s = 0.0, most_s
    if load(longest_s) > 1.0:
        return most_s
    for _ in range(40):
        wait_s = (shortest_s + longest_s) / 2
        if load(wait_s) > 1.0:
            shortest_s = wait_s
        else:
            longest_s = wait_s
    return longest_s


def _quantiles_of_patience(workload: Workload) -> np.ndarray:
    """Return the sorted patience (s) of representative jobs of a workload, infinite if they wait for ever."""
    mean_s, patience = patience_s(workload), workload.patience
    if mean_s < 0.0:
        return np.full(1, math.inf)
    if not isinstance(patience, Think):
        return np.full(1, mean_s)
    cv = 1.0 if patience.cv is None else patience.cv
    return mean_s * unit_variates(np.random.default_rng(0), patience.distribution, cv, 10_000)


# Long: each early return is one reason why the load is not known.
def _work_of(prepared: PreparedRun) -> _Work | None:
    """Return the work that arrives and what the fleet can complete; None if it is not known (``offered_load``)."""
    if prepared.policy.batch.kind == "continuous":
        return None
    if prepared.policy.batch.kind == "request" and any(prepared.batches(*key) is None for key in prepared.compiled):
        # The cost of a batch of different jobs is known only during the run.
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
    rows: list[list[float]] = []
    classes: list[int] = []
    capacities: list[float] = []
    for fleet_class in prepared.classes:
        works = [_work_s(prepared, fleet_class, w.number) for w in prepared.workloads]
        if (
            max((_failed_share(prepared, fleet_class, work.get("device", 0.0)) for work in works), default=0.0)
            > _MAX_FAILED
        ):
            return None
        for name in sorted({name for work in works for name in work}):
            rows.append([work.get(name, 0.0) for work in works])
            classes.append(fleet_class.number)
            streams = fleet_class.streams if name == "device" else 1
            capacities.append(fleet_class.count * streams * _up(prepared, fleet_class))
    return _Work(rates, np.array(rows), np.array(classes), np.array(capacities))


def _work_s(prepared: PreparedRun, fleet_class: FleetClass, work: int) -> dict[str, float]:
    """Return the mean time for which a job occupies devices, and each engine that serves jobs together (s).

    The time of a job of several devices counts for each of them.
    """
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
    seconds: dict[str, float] = {"device": 0.0}
    gang = prepared.workloads[work].gang
    for weight, phases in zip(share, compiled.variants, strict=True):
        for phase in phases:
            seconds["device"] += gang * weight * max(sum(_mean_s(s) for s in body) for body in phase)
            if fleet_class.streams > 1:
                for segment in (s for body in phase for s in body):
                    occupied_s = weight * _mean_s(segment) * segment.share
                    seconds[segment.engine] = seconds.get(segment.engine, 0.0) + occupied_s
    checkpoint = prepared.workloads[work].workload.checkpoint
    if checkpoint is not None:
        seconds["device"] *= 1.0 + checkpoint.cost / checkpoint.every
    return seconds


def _mean_s(segment: Segment) -> float:
    if segment.drawn is not None:
        return segment.drawn.seconds
    return float(np.mean(segment.ticks)) / TICKS_PER_SECOND


def _failed_share(prepared: PreparedRun, fleet_class: FleetClass, work_s: float) -> float:
    """Return the approximate share of jobs with ``work_s`` seconds of work that fail because of device failures.

    Each attempt is interrupted with probability 1 - exp(-work / MTBF).
    """
    share = 0.0
    for fault in _failures(prepared, fleet_class):
        starts = 1 if fault.on_failure == "fail" else fault.max_attempts
        share += (1.0 - math.exp(-work_s / (fault.mtbf or math.inf))) ** starts
    return share


def max_failed_jobs(prepared: PreparedRun) -> float:
    """Return the expected number of jobs that fail, if each runs on the class where most of its workload fail."""
    expected = 0.0
    for work in prepared.workloads:
        jobs = float(np.count_nonzero(prepared.workload_of == work.number))
        jobs += sum(users.capacity for users in prepared.users if users.work == work.number)
        ended = [
            (_failed_share(prepared, c, _work_s(prepared, c, work.number).get("device", 0.0)), c)
            for c in prepared.classes
        ]
        by_class = [(failed, *_failed_operations(prepared, c, work.number)) for failed, c in ended]
        expected += min(max((jobs * (failed + share) + count for failed, share, count in by_class), default=0.0), jobs)
    return expected


def _failures(prepared: PreparedRun, fleet_class: FleetClass) -> list[Failure]:
    """Return the random failures of devices of the class."""
    entry = prepared.scenario.fleet[fleet_class.number]
    return [
        fault
        for fault in prepared.scenario.faults
        if isinstance(fault, Failure)
        and fault.mtbf is not None
        and (fault.devices is None or entry.device in fault.devices or entry.name in fault.devices)
    ]


def _adds_work(fault: Fault) -> bool:
    """Return whether the fault changes the mean work of jobs, because it occurs again and again."""
    return isinstance(fault, OperationFault) and not isinstance(fault, CorruptCopy) and fault.max_occurrences is None


def _failed_operations(prepared: PreparedRun, fleet_class: FleetClass, work: int) -> tuple[float, float]:
    """Return the largest share of the workload's jobs, and a number of further jobs, that faults of operations end."""
    compiled = prepared.compiled.get((fleet_class.number, work))
    share, count = 0.0, 0.0
    if compiled is None:
        return share, count
    for fault in prepared.scenario.faults:
        if not isinstance(fault, Ending) or not is_eligible(prepared, fault, fleet_class, work):
            continue
        starts = 1 if fault.on_failure == "fail" else fault.max_attempts
        if fault.probability is None:
            count += (fault.max_occurrences or 0) // starts
            continue
        most = max(
            sum(fault.affects(s.name) for phase in phases for body in phase for s in body)
            for phases in compiled.variants
        )
        share += (1.0 - (1.0 - fault.probability) ** most) ** starts
    return share, count


def _up(prepared: PreparedRun, fleet_class: FleetClass) -> float:
    """Return the long-run availability of a device of the class."""
    up = 1.0
    for fault in _failures(prepared, fleet_class):
        if fault.mtbf is not None and fault.mttr is not None:
            up *= fault.mtbf / (fault.mtbf + fault.mttr)
    return up


def _minimal_load(prepared: PreparedRun, work: _Work) -> float:
    """Return the smallest load of the busiest part of the fleet (``offered_load``)."""
    classes, works = len(prepared.classes), len(work.rates)
    if classes == 1:
        return float((work.seconds @ work.rates / work.capacities).max())
    if works == 1 and all(c.streams == 1 for c in prepared.classes) and (work.seconds > 0).all():
        # The optimum loads all classes equally.
        fleets = [
            _up(prepared, c) * c.count / _work_s(prepared, c, 0)["device"]
            for c in prepared.classes
            if (c.number, 0) in prepared.compiled
        ]
        return float(work.rates[0]) / sum(fleets)
    from scipy.optimize import linprog

    # Variables: the rate of workload w on class c (1/s), then the load.
    upper, each, most = _program(prepared, work)
    answer = linprog(
        np.append(np.zeros(classes * works), 1.0),
        A_ub=np.column_stack([upper, -work.capacities]),
        b_ub=np.zeros(len(upper)),
        A_eq=np.column_stack([each, np.zeros(works)]),
        b_eq=work.rates,
        bounds=[(0.0, m) for m in [*most, None]],
        method="highs",
    )
    return float(answer.fun)


def _most_completed(prepared: PreparedRun, work: _Work) -> float:
    """Return the largest rate at which the fleet can complete jobs of those that arrive, in any order (1/s)."""
    if len(work.rates) == 1:
        return float(work.rates[0]) / max(_minimal_load(prepared, work), 1.0)
    from scipy.optimize import linprog

    upper, each, most = _program(prepared, work)
    answer = linprog(
        np.full(upper.shape[1], -1.0),
        A_ub=np.vstack([upper, each]),
        b_ub=np.append(work.capacities, work.rates),
        bounds=[(0.0, m) for m in most],
        method="highs",
    )
    return -float(answer.fun)


def _program(prepared: PreparedRun, work: _Work) -> tuple[np.ndarray, np.ndarray, list[float | None]]:
    """Return what linear programs over the rate of workload w on class c (1/s; at c * workloads + w) have in common.

    Returns:
        The seconds of each row of ``work`` by rate; shape (rows, classes * workloads). The sum of the rates of each
        workload; shape (workloads, classes * workloads). The largest rates: 0 on classes that cannot run the workload.
    """
    classes, works = len(prepared.classes), len(work.rates)
    upper = np.zeros((len(work.seconds), classes * works))
    for row, cls, seconds in zip(upper, work.classes, work.seconds, strict=True):
        row[cls * works : (cls + 1) * works] = seconds
    most = [None if (c, w) in prepared.compiled else 0.0 for c in range(classes) for w in range(works)]
    return upper, np.tile(np.eye(works), classes), most
