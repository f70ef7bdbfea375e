"""Why no fleet at all can meet a target: what the least of it is, from the bounds and the jobs' own times alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.core.ticks import FloatArray
from windtunnel.core.units import format_quantity
from windtunnel.engine.prepare.demand import Demand
from windtunnel.planning.bounds import PERCENTILES, Bound, Replicated
from windtunnel.scenario.target import Target

if TYPE_CHECKING:
    from windtunnel.planning.planner import Planner


def unreachable(planner: Planner, cost: Bound) -> list[str]:
    """Sentences, one for each target that by itself is out of reach; ``cost``: the bound of the rent."""
    said = []
    possible = math.isfinite(cost.value)
    for target in planner.targets:
        if target.comparison != "<=":
            continue
        if target.metric == "cost":
            if target.limit * 3600 < cost.value and possible:
                said.append(
                    f"{target.text} cannot be met: no fleet that does the work costs less than {cost.value:,.2f} USD/h"
                )
        elif not possible:
            least = _least_time(planner, target)
            if least is not None and least[0] > target.limit:
                said.append(f"{target.text} cannot be met by any fleet: {least[1]}")
            if target.metric == "power":
                said += _power(planner, target)
    return said


def _least_time(planner: Planner, target: Target) -> tuple[float, str] | None:
    """The least (s) of a target's statistic, and that in words: of jobs that never wait, each where it is quickest."""
    demand = planner.demand
    if target.metric == "itl":
        classes = np.flatnonzero(demand.gap_s > 0)
        if not len(classes):
            return None
        best = int(classes[np.argmin(demand.gap_s[classes])])
        least = float(demand.gap_s[best])
        return least, f"on {planner.names[best]}, the quickest, a token takes at least {format_quantity(least, 's')}"
    times = {"latency": demand.alone_s, "ttft": demand.alone_first_s}.get(target.metric)
    if times is None or target.statistic is None:
        return None
    able, mine = _jobs(demand, target)
    if not mine.any():
        return None
    own = np.where(able, times, math.inf)[:, mine]
    least = _statistic(own.min(axis=0), target.statistic)
    chosen = np.unique(own.argmin(axis=0))
    where = planner.names[int(chosen[0])] if len(chosen) == 1 else "the candidate that is quickest for it"
    what = "a job" if target.metric == "latency" else "the first token of a job"
    return least, (
        f"{what} that never waits, alone on {where}, takes at least {format_quantity(least, 's')} ({target.statistic})"
    )


def _jobs(demand: Demand, target: Target) -> tuple[np.ndarray, np.ndarray]:
    """What class runs each job, and the jobs that a target speaks of and some class runs."""
    mine = demand.judged & demand.eligible.any(axis=0)
    if target.workload is not None:
        mine &= demand.workload == list(demand.workloads).index(target.workload)
    return demand.eligible, mine


def _statistic(values: FloatArray, name: str) -> float:
    return float(np.mean(values) if name not in PERCENTILES else np.quantile(values, PERCENTILES[name]))


def _power(planner: Planner, target: Target) -> list[str]:
    """That even the least power of any fleet which does the work is above a limit."""
    others: Sequence[Target] = [t for t in planner.targets if t.metric != "power"]
    least = Replicated([planner.demand], others).least(
        planner.demand.idle_w, planner.most, planner.asked.max_entries, work_w=1.0
    )
    if not math.isfinite(least.value) or least.value <= target.limit:
        return []
    return [
        f"{target.text} cannot be met: no fleet that does the work draws less than {format_quantity(least.value, 'W')}"
    ]
