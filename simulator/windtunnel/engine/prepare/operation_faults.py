"""Faults of single operations: which jobs they may affect, and when they end an operation."""

from __future__ import annotations

from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun
from windtunnel.scenario.faults import CopyFailure, EccError, Ending, Hang, OperationFault


def is_eligible(prepared: PreparedRun, fault: OperationFault, fleet_class: FleetClass, work: int) -> bool:
    """Return whether a fault may affect jobs of the workload on devices of the class."""
    entry = prepared.scenario.fleet[fleet_class.number]
    return (fault.workloads is None or prepared.workloads[work].workload.name in fault.workloads) and (
        fault.devices is None or entry.device in fault.devices or entry.name in fault.devices
    )


def time_limit(fault: Ending) -> int:
    """Return after how many ticks the fault ends an operation; -1 if the operation takes its normal time."""
    if isinstance(fault, Hang):
        return to_ticks(fault.watchdog_timeout)
    return -1 if isinstance(fault, EccError | CopyFailure) else 0
