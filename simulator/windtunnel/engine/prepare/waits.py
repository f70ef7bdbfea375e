"""Prepares patience and pauses: how long jobs wait before they leave, and before an interrupted job is tried again."""

from __future__ import annotations

from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.source import ServiceTimeDraws
from windtunnel.scenario.arrivals import Think
from windtunnel.scenario.faults import Ending, Failure
from windtunnel.scenario.scenario import Workload


def patience_draws(workload: Workload, seed: int, count: int) -> ServiceTimeDraws | None:
    """Return the factors on the mean patience of ``count`` jobs of a workload; None if it is the same for all."""
    patience = workload.patience
    if not isinstance(patience, Think) or patience.distribution == "deterministic" or patience.cv == 0.0:
        return None
    cv = 1.0 if patience.cv is None else patience.cv
    return ServiceTimeDraws(seed, (workload.name, "patience"), patience.distribution, cv, count)


def patience_s(workload: Workload) -> float:
    """Return the mean patience of a workload's jobs (s); -1 if they wait for ever."""
    patience = workload.patience
    if patience is None:
        return -1.0
    return patience.mean if isinstance(patience, Think) else patience


def has_waits(prepared: PreparedRun) -> bool:
    """Return whether jobs may be rejected or give up waiting, or pause before they are tried again."""
    limits = ((w.workload.patience, w.workload.max_waiting, w.workload.rate_limit) for w in prepared.workloads)
    if any(limit is not None for stated in limits for limit in stated):
        return True
    return any(isinstance(fault, Failure | Ending) and fault.pause is not None for fault in prepared.scenario.faults)
