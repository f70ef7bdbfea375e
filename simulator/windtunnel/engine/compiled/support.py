"""States which scenarios the compiled engine supports; it does not import Numba."""

from __future__ import annotations

from windtunnel.engine.prepare.prepared import PreparedRun, kind_of_station
from windtunnel.scenario.faults import OperationFault


def unsupported_feature(prepared: PreparedRun) -> str | None:
    """Return the feature of a scenario that only the process engine supports; None if there is none.

    A user's own policy may still not compile: ``run.policy_compile_error`` finds that.
    """
    if prepared.real:
        return "devices of this host"
    if prepared.users:
        return "closed-loop users"
    if any(isinstance(fault, OperationFault) for fault in prepared.scenario.faults):
        return "faults of single operations"
    if prepared.scenario.autoscale:
        return "autoscaling"
    for fleet_class in prepared.classes:
        if kind_of_station(prepared, fleet_class) == "stream":
            return f"several jobs, or streams of one job, at a time on {fleet_class.name}"
    if prepared.policy.batch.kind == "request":
        for cls, work in prepared.compiled:
            if prepared.batches(cls, work) is None:
                name = prepared.workloads[work].workload.name
                return f"request-level batches whose jobs differ in more than one draw ('{name}')"
    return None
