"""The compiled loop of events, in one variant for each set of features, and compiled policies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, typeof, types

from windtunnel.core.policy import Candidate, JobKey, OwnFunction
from windtunnel.engine.compiled.jit import Variant
from windtunnel.engine.prepare.prepared import PreparedRun, kind_of_station
from windtunnel.engine.prepare.waits import has_waits
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.events import advance
from windtunnel.engine.transitions.features import FEATURES
from windtunnel.engine.transitions.tables import HOURS, World, records
from windtunnel.scenario.faults import OperationFault

_NUMBERS, _COUNTS = (types.float64,), (types.int64,)
_CANDIDATE = types.NamedTuple((*_COUNTS, *_NUMBERS * 6, *_COUNTS, *_NUMBERS * 2, *_COUNTS * 7), Candidate)
_JOB_KEY = types.NamedTuple((types.int64, types.int64, types.int64, types.float64), JobKey)
SCORE = types.UniTuple(types.float64, 2)(_CANDIDATE)
KEY = types.float64(_JOB_KEY)

_EVERYTHING = frozenset(FEATURES) - {"SIMPY"}
VARIANTS = {
    "fleet": frozenset({"SINGLES", "INTERRUPTS", "TALLIES"}),
    "serving": frozenset({"SERVERS"}),
    "prefixes": frozenset({"SERVERS", "PREFIXES"}),
    "tiers": frozenset({"SERVERS", "PREFIXES", "TIERS"}),
    "disaggregated": frozenset({"SERVERS", "PREFIXES", "TRANSFERS"}),
    "all": _EVERYTHING,
}
"""The features of each variant."""


def variant_of(prepared: PreparedRun) -> str:
    """Return the variant of the kernel that a run needs."""
    if needs_everything(prepared):
        return "all"
    if prepared.policy.batch.kind != "continuous":
        return "fleet"
    if prepared.interrupts or prepared.budget_w is not None:
        return "all"
    if prepared.disaggregated:
        return "all" if prepared.tiers else "disaggregated"
    if prepared.policy.batch.prefix_cache is None:
        return "serving"
    return "tiers" if prepared.tiers else "prefixes"


def needs_everything(prepared: PreparedRun) -> bool:
    """Return whether a run needs rare features, from autoscaling to faults of operations."""
    if prepared.scaled or prepared.real or prepared.users or prepared.progresses or prepared.ganging:
        return True
    if prepared.flows is not None or prepared.outranks:
        return True
    if has_waits(prepared) or prepared.reconfigures or prepared.drafted_tokens or prepared.adapting:
        return True
    if any(isinstance(fault, OperationFault) for fault in prepared.scenario.faults):
        return True
    if any(kind_of_station(prepared, c) == "stream" for c in prepared.classes):
        return True
    batching = prepared.policy.batch.kind == "request"
    return batching and any(prepared.batches(cls, work) is None for cls, work in prepared.compiled)


@cache
def kernel(variant: str) -> Callable[..., int]:
    """Return the loop of events with the features of a variant. Its machine code is cached beside the source."""
    signature = types.int64(
        typeof(_empty()), types.FunctionType(SCORE), types.FunctionType(KEY), types.FunctionType(SCORE)
    )
    return Variant(variant, VARIANTS[variant]).entry(advance, signature)


@cache
def compiled_score(score: Callable[..., tuple[float, float]] | None) -> Callable[..., tuple[float, float]]:
    """Return a route's score for the kernel; raises Numba's error for a function that does not compile."""
    if not isinstance(score, OwnFunction):
        return _cached(SCORE, score or _no_score)
    compiled, message = njit(score.function), _not_a_number(score)
    if score.numbers == 1:

        def single(device: Candidate) -> tuple[float, float]:
            first = float(compiled(device))
            if first != first:  # noqa: PLR0124  NaN
                raise ValueError(message)
            return first, 0.0

        return njit(SCORE)(single)

    def pair(device: Candidate) -> tuple[float, float]:
        first, second = compiled(device)
        if first != first or second != second:  # noqa: PLR0124  NaN
            raise ValueError(message)
        return float(first), float(second)

    return njit(SCORE)(pair)


@cache
def compiled_key(key: Callable[..., float] | None) -> Callable[..., float]:
    """Return an order's key for the kernel; raises Numba's error for a function that does not compile."""
    if not isinstance(key, OwnFunction):
        return _cached(KEY, key or _no_key)
    compiled, message = njit(key.function), _not_a_number(key)

    def number(job: JobKey) -> float:
        value = float(compiled(job))
        if value != value:  # noqa: PLR0124  NaN
            raise ValueError(message)
        return value

    return njit(KEY)(number)


def _cached(signature: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for a signature. The machine code of those that are part of Windtunnel is cached."""
    # The numbers of a closure, such as the weights of a route, differ from run to run.
    cache = function.__module__.startswith("windtunnel.") and function.__closure__ is None
    compiled: Callable[..., Any] = njit(signature, cache=cache)(function)
    return compiled


def _not_a_number(own: OwnFunction) -> str:
    return f"'{own.text}' returned NaN"


def _no_score(device: Candidate) -> tuple[float, float]:
    return 0.0, 0.0


def _no_key(job: JobKey) -> float:
    return 0.0


def _empty() -> World:
    """Return tables without rows, from which Numba derives the kernel's types."""
    return World(
        run=records(1, tables.RUN),
        devices=records(0, tables.DEVICE),
        extras=records(0, tables.EXTRA),
        gangs=records(0, tables.GANG),
        servers=records(0, tables.SERVER),
        stations=records(0, tables.STATION),
        engines=records(0, tables.ENGINE),
        lanes=np.zeros((0, 1), dtype=np.int8),
        tasks=records(0, tables.TASK),
        stream_jobs=records(0, tables.STREAM_JOB),
        slots=records(0, tables.SLOT),
        sequences=records(0, tables.SEQUENCE),
        nodes=records(0, tables.NODE_OF_PREFIX),
        node_index=np.zeros(0, dtype=np.int64),
        caches=records(0, tables.CACHE),
        loads=records(0, tables.LOAD),
        ports=records(0, tables.PORT),
        handovers=records(0, tables.HANDOVER),
        transfers=records(0, tables.TRANSFER),
        waits=records(0, tables.WAIT),
        rules=records(0, tables.RULE),
        progress=records(0, tables.PROGRESS_OF_JOB),
        checkpoints=records(0, tables.CHECKPOINT),
        overhead=records(1, tables.OVERHEAD),
        resident=np.zeros((0, 1), dtype=np.int64),
        draws=np.ones((0, 1)),
        ends=records(0, tables.ENTRY),
        timers=records(0, tables.ENTRY),
        tree=records(0, tables.NODE),
        idle=np.zeros(0, dtype=np.int64),
        classes=records(0, tables.CLASS),
        programs=records(0, tables.PROGRAM),
        ways=records(0, tables.WAY),
        segments=records(0, tables.SEGMENT),
        workloads=records(0, tables.WORKLOAD),
        ints=np.zeros(0, dtype=np.int64),
        numbers=np.zeros(0),
        queues=records(0, tables.QUEUE),
        decoding_of=np.zeros((0, 1), dtype=np.int64),
        adapters=records(0, tables.ADAPTER),
        accepted=np.zeros((0, 1), dtype=np.int64),
        buckets=np.zeros(0, dtype=np.int64),
        step_counts=np.zeros((0, 2, 1), dtype=np.int64),
        flows=records(0, tables.FLOW),
        shares=records(0, tables.SHARE),
        faults=records(0, tables.FAULT),
        operation_faults=records(0, tables.OPERATION_FAULT),
        line=np.zeros(0, dtype=np.int64),
        arrivals=records(0, tables.ARRIVAL),
        arrival_draws=np.ones((0, 1)),
        intervals=records(0, tables.INTERVAL),
        jobs=records(0, tables.JOB),
        gaps=records(0, tables.GAP),
        users=records(0, tables.USER),
        user_of=np.zeros(0, dtype=np.int64),
        submits=records(0, tables.ENTRY),
        think_ticks=np.zeros((0, 1), dtype=np.int64),
        changes=records(0, tables.CHANGE),
        batches=records(0, tables.BATCH_OF_JOBS),
        bins=np.zeros((2, 0, 0), dtype=np.int32),
        counts=np.zeros((0, 5), dtype=np.int64),
        spans=records(0, tables.SPAN),
        hours=np.zeros(HOURS),
    )
