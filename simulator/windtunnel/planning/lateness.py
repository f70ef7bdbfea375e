"""Targets on times as numbers of late jobs: what the lower bounds of a plan may count on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.engine.prepare.demand import Demand
from windtunnel.scenario.target import Target

PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_MARKOV = (2.0, 4.0, 10.0)


@dataclass(frozen=True)
class LatenessLimit:
    """A target on time in the form of a bound: at most ``most`` of the jobs ``mine`` take longer than ``limit_s``.

    ``until``: the time to completion (``whole``) or to the first token (``first``).
    """

    text: str
    until: str
    limit_s: float
    most: float
    mine: np.ndarray


def until_of(target: Target, demand: Demand) -> str | None:
    """Return whether a target limits the time to completion (``whole``) or to the first token (``first``), or neither.

    The end-to-end latency of requests is the latency of jobs where all jobs that it concerns generate tokens, which is
    known of a workload, and of the only one.
    """
    if target.metric == "e2e" and (target.workload is not None or len(demand.workloads) == 1):
        return "whole"
    return {"latency": "whole", "ttft": "first"}.get(target.metric)


def _attainment_limits(demand: Demand, target: Target, targets: Sequence[Target]) -> list[LatenessLimit]:
    """Return the numbers of late requests that a target on attainment allows, for each limit on single requests."""
    if target.comparison != ">=" or (target.workload is None and len(demand.workloads) > 1):
        return []
    mine = np.ones(len(demand), dtype=bool)
    if target.workload is not None:
        mine = demand.workload == list(demand.workloads).index(target.workload)
    most = math.floor((1.0 - target.limit) * int(mine.sum()) + 1e-9)
    limits = []
    for other in targets:
        until = until_of(replace(other, workload=other.workload or target.workload), demand)
        whose = (None, target.workload) if target.workload is not None else (None, *demand.workloads)
        if other.is_of_requests and other.workload in whose and until is not None:
            limits.append(LatenessLimit(target.text, until, other.limit, most, mine))
    return limits


def most_late(n: int, fraction: float) -> int:
    """Return how many of ``n`` values may be beyond a limit that their percentile (linear between them) is within."""
    return n - 1 - math.floor((n - 1) * fraction)


def lateness_limits(demand: Demand, targets: Sequence[Target]) -> list[LatenessLimit]:
    """Return the numbers of late jobs that the targets on latency and TTFT allow.

    A percentile p of n values (linear between order statistics) is within a limit only if at most
    n - 1 - floor((n - 1) p) of them are beyond it. A mean within L leaves at most n / k beyond k L (Markov).
    """
    limits: list[LatenessLimit] = []
    for target in targets:
        if target.metric == "slo_attainment":
            limits += _attainment_limits(demand, target, targets)
            continue
        until = until_of(target, demand)
        if until is None or target.comparison != "<=":
            continue
        mine = np.ones(len(demand), dtype=bool)
        if target.workload is not None:
            mine = demand.workload == list(demand.workloads).index(target.workload)
        n = int(mine.sum())
        if target.statistic is not None and target.statistic in PERCENTILES:
            most = most_late(n, PERCENTILES[target.statistic])
            limits.append(LatenessLimit(target.text, until, target.limit, most, mine))
        else:
            limits += [LatenessLimit(target.text, until, k * target.limit, n / k, mine) for k in _MARKOV]
    return limits
