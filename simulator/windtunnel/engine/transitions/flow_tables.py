"""The tables of tenants: the flows of fair queueing with what each of them was served, and rate limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.tenants import tenant_of
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.tables import Records, records


def write_flows(prepared: PreparedRun, add: Callable[[np.ndarray], int], workloads: Records) -> tuple[Records, Records]:
    """Return the tables of flows and of what they were served; write where the flows of a workload's jobs are.

    ``add`` stores an array, and returns its offset in ``ints``.
    """
    if prepared.flows is None:
        return records(0, tables.FLOW), records(0, tables.SHARE)
    stated = prepared.flows.flows
    flows = records(len(stated), tables.FLOW)
    for row, flow in zip(flows, stated, strict=True):
        row.first, row.end, row.prompt, row.output = flow.first, flow.end, flow.prompt, flow.output
    for row, of in zip(workloads, prepared.flows.of, strict=True):
        row.flows = add(of) if of.size > 1 else -1 - int(of[0])
    owners = 1 if prepared.policy.route.score is None else prepared.device_count
    return flows, records(owners * len(flows), tables.SHARE, latest=-1)


def write_limits(prepared: PreparedRun, add: Callable[[np.ndarray], int], workloads: Records) -> np.ndarray:
    """Write the rate limits of the workloads; return the tick at which each of their tenants has all tokens again."""
    count = 0
    for row, job_class in zip(workloads, prepared.workloads, strict=True):
        limit = job_class.workload.rate_limit
        if limit is None:
            continue
        names, of = tenant_of(job_class)
        row.limit_tokens, row.limit_ticks, row.limit_waits = limit.tokens, to_ticks(limit.per), limit.over == "wait"
        row.buckets, row.tenants = count, add(of) if of.size > 1 else -1
        count += len(names)
    return np.zeros(count, dtype=np.int64)
