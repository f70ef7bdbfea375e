"""Compiles the loop of events and the functions of policies with Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, typeof, types
from numba.core.errors import NumbaError, UnsupportedBytecodeError

from windtunnel.core.policy import Candidate, JobKey, OwnFunction
from windtunnel.engine.compiled.jit import Variant, object_code
from windtunnel.engine.compiled.machine_code import Native, ObjectCode
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.events import advance
from windtunnel.engine.transitions.tables import HOURS, World, records

_NUMBERS, _COUNTS = (types.float64,), (types.int64,)
_CANDIDATE = types.NamedTuple((*_COUNTS, *_NUMBERS * 6, *_COUNTS, *_NUMBERS * 2, *_COUNTS * 7), Candidate)
_JOB_KEY = types.NamedTuple((types.int64, types.int64, types.int64, types.float64), JobKey)
SIGNATURES = {"score": types.UniTuple(types.float64, 2)(_CANDIDATE), "key": types.float64(_JOB_KEY)}
"""The signatures of the functions of policies."""
ERRORS = (NumbaError, UnsupportedBytecodeError)
"""What is raised for a function that does not compile."""


def compiled_loop(variant: str, features: frozenset[str]) -> ObjectCode:
    """Return the loop of events with the features of a variant."""
    score, key = types.FunctionType(SIGNATURES["score"]), types.FunctionType(SIGNATURES["key"])
    return Variant(variant, features).entry(advance, types.int64(typeof(_empty()), score, key, score))


def compiled_function(use: str, function: Callable[..., Any]) -> ObjectCode:
    """Return a function of a policy that is part of Windtunnel: a route's "score" or an order's "key"."""
    return object_code(function, SIGNATURES[use])


def compiled_here(use: str, function: Callable[..., Any]) -> Native:
    """Return a function of a policy whose machine code is not kept: a user's own, or one with numbers of the run.

    Raises Numba's error for a function that does not compile.
    """
    if isinstance(function, OwnFunction):
        function = _checked_key(function) if use == "key" else _checked_score(function)
    dispatcher = njit(SIGNATURES[use])(function)
    (compiled,) = dispatcher.overloads.values()
    return Native(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name), dispatcher)


def _checked_score(score: OwnFunction) -> Callable[..., tuple[float, float]]:
    compiled, message = njit(score.function), _not_a_number(score)
    if score.numbers == 1:

        def single(device: Candidate) -> tuple[float, float]:
            first = float(compiled(device))
            if first != first:  # noqa: PLR0124  NaN
                raise ValueError(message)
            return first, 0.0

        return single

    def pair(device: Candidate) -> tuple[float, float]:
        first, second = compiled(device)
        if first != first or second != second:  # noqa: PLR0124  NaN
            raise ValueError(message)
        return float(first), float(second)

    return pair


def _checked_key(key: OwnFunction) -> Callable[..., float]:
    compiled, message = njit(key.function), _not_a_number(key)

    def number(job: JobKey) -> float:
        value = float(compiled(job))
        if value != value:  # noqa: PLR0124  NaN
            raise ValueError(message)
        return value

    return number


def _not_a_number(own: OwnFunction) -> str:
    return f"'{own.text}' returned NaN"


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
