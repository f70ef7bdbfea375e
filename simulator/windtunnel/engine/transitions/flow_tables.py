"""The tables of fair queueing: the flows of waiting requests, and what each of them was served."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.engine.prepare.prepared import PreparedRun
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
