"""The tables of faults: what happens to interrupted jobs, and the faults of single operations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.core.rng import key_words
from windtunnel.core.ticks import MAX_TICKS, to_ticks
from windtunnel.engine.prepare.fault_schedule import JOBS, MIGRATE
from windtunnel.engine.prepare.operation_faults import is_eligible, time_limit
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.operation_faults import CORRUPTS, ENDS, SLOWS
from windtunnel.engine.transitions.tables import Records, records
from windtunnel.scenario.faults import BackOff, Ending, Failure, OperationFault, SlowCopy

REAL_ATTEMPTS = 3
"""The largest number of starts of a job that a real device fails to execute; it equals that of modelled devices."""


def faults_of(prepared: PreparedRun, cls: int, work: int, operation: str) -> np.ndarray:
    """Return the faults that may affect an operation of a workload on a class, by their row in the table of faults."""
    faults = [fault for fault in prepared.scenario.faults if isinstance(fault, OperationFault)]
    rows = [
        row
        for row, fault in enumerate(faults)
        if fault.affects(operation) and is_eligible(prepared, fault, prepared.classes[cls], work)
    ]
    return np.array(rows, dtype=np.int64)


def rules_of(prepared: PreparedRun) -> Records:
    """Return what happens to interrupted jobs: of real devices, then of each fault of the scenario."""
    rows = records(1 + len(prepared.scenario.faults), tables.RULE)
    rows.longest, rows.factor = MAX_TICKS, 1.0
    rows[tables.REAL_RULE].becomes, rows[tables.REAL_RULE].attempts = MIGRATE, REAL_ATTEMPTS
    for row, fault in zip(rows[1:], prepared.scenario.faults, strict=True):
        if not isinstance(fault, Failure | Ending):
            continue
        row.becomes, row.attempts = JOBS[fault.on_failure], fault.max_attempts
        if isinstance(fault.pause, BackOff):
            row.first, row.factor = to_ticks(fault.pause.first), fault.pause.factor
            row.longest = MAX_TICKS if fault.pause.max is None else to_ticks(fault.pause.max)
        elif fault.pause is not None:
            row.first = to_ticks(fault.pause)
    return rows


def operation_fault_rows(prepared: PreparedRun, add: Callable[[np.ndarray], int]) -> Records:
    """Return the faults of single operations, which have not affected any operation yet.

    ``add`` stores an array of whole numbers, and returns its offset.
    """
    scenario = prepared.scenario
    faults = [(i, fault) for i, fault in enumerate(scenario.faults) if isinstance(fault, OperationFault)]
    rows = records(len(faults), tables.OPERATION_FAULT)
    for row, (number, fault) in zip(rows, faults, strict=True):
        row.number, row.ticks, row.factor = number, -1, 1.0
        row.limit = -1 if fault.max_occurrences is None else fault.max_occurrences
        row.call, row.after = fault.call or 0, 0 if fault.after is None else to_ticks(fault.after)
        if isinstance(fault, Ending):
            row.kind, row.ticks = ENDS, time_limit(fault)
        elif isinstance(fault, SlowCopy):
            row.kind, row.factor = SLOWS, fault.factor
        else:
            row.kind = CORRUPTS
        if fault.probability is not None:
            row.probability = fault.probability
            keys = [
                key_words(scenario.seed, "faults", str(number), fault.kind, w.workload.name) for w in prepared.workloads
            ]
            row.keys_at = add(np.array(keys, dtype=np.int64).ravel())
    return rows
