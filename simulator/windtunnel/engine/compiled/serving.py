"""Represents a prepared scenario with continuous batching as arrays, and converts the records of its run."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, typeof, types

from windtunnel.engine.compiled import state
from windtunnel.engine.compiled.build import KEY, SCORE, Pool, estimates, queues_by_class, run_record, trees
from windtunnel.engine.compiled.continuous import WORDS, serve
from windtunnel.engine.compiled.state import Records, Serving, records
from windtunnel.engine.compiled.structures import ROOT
from windtunnel.engine.event_log import EventLog
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.prepared import PreparedRun

_ROWS = 2**16


@cache
def serving_kernel() -> Callable[..., int]:
    """Return the kernel, compiled once for all policies. Its machine code is cached beside the source."""
    signature = types.int64(typeof(_empty()), types.FunctionType(SCORE), types.FunctionType(KEY))
    compiled: Callable[..., int] = njit(signature, cache=True, _nrt=False, error_model="numpy")(serve)
    return compiled


def _empty() -> Serving:
    """Return a world without devices, from which Numba derives the kernel's types."""
    return Serving(
        run=records(1, state.RUN),
        devices=records(0, state.SERVER),
        slots=records(0, state.SEQUENCE),
        ends=records(0, state.ENTRY),
        tree=records(0, state.NODE),
        classes=records(0, state.SERVER_CLASS),
        programs=records(0, state.PROGRAM),
        workloads=records(0, state.MODEL),
        ints=np.zeros(0, dtype=np.int64),
        numbers=np.zeros(0),
        queues=records(0, state.QUEUE),
        decoding_of=np.zeros((0, 1), dtype=np.int64),
        arrivals=records(0, state.ARRIVAL),
        intervals=records(0, state.INTERVAL),
        jobs=records(0, state.SERVED),
        gaps=records(0, state.GAP),
    )


def build_serving(prepared: PreparedRun, *, slots: int) -> Serving:
    """Return the world at tick 0, without jobs and without a block of arrivals."""
    devices = prepared.device_count
    ints, numbers = Pool(np.int64), Pool(np.float64)
    queue_at, queues_of, queues = queues_by_class(prepared, batching=False)
    run = run_record(prepared, ints, queue_at, queues_of)
    run[0].stride = 1
    class_rows, tree = trees(prepared, state.SERVER_CLASS)
    works = len(prepared.workloads)
    programs = records(len(prepared.classes) * works, state.PROGRAM)
    models = records(works, state.MODEL)
    for row, job_class in zip(models, prepared.workloads, strict=True):
        row.deadline, row.priority = job_class.deadline_ticks, job_class.workload.priority
    given: set[int] = set()
    for (cls, work), compiled in prepared.compiled.items():
        estimates(prepared, cls, work, programs[cls * works + work], numbers)
        assert compiled.decoder is not None  # noqa: S101  only requests are batched continuously
        _tables(class_rows[cls], compiled.decoder, prepared, numbers)
        if work not in given:  # lengths do not depend on the device
            given.add(work)
            assert compiled.prompts is not None and compiled.outputs is not None  # noqa: S101  as above
            models[work].prompts, models[work].outputs = ints.add(compiled.prompts), ints.add(compiled.outputs)
    rows = records(devices, state.SERVER)
    for name in ("slot", "reading", "reading_end", "off", "decoding", "decoding_end", "ending", "ending_end"):
        rows[name] = -1
    rows.up = rows.linked = 1
    rows.turn = np.arange(devices)
    rows.cls = prepared.class_of_device()
    slot_rows = records(slots, state.SEQUENCE)
    slot_rows.next = np.append(np.arange(1, slots), -1)
    queue_rows = records(queues, state.QUEUE)
    queue_rows.head = queue_rows.tail = -1
    jobs = records(prepared.job_count, state.SERVED)
    jobs.start = jobs.finish = jobs.first = jobs.on = -1
    return Serving(
        run=run,
        devices=rows,
        slots=slot_rows,
        ends=records(ROOT + devices + 2, state.ENTRY),
        tree=tree,
        classes=class_rows,
        programs=programs,
        workloads=models,
        ints=ints.array(),
        numbers=numbers.array(),
        queues=queue_rows,
        decoding_of=np.zeros((devices, works), dtype=np.int64),
        arrivals=records(0, state.ARRIVAL),
        # Memory that is never written is never allocated by the system, so the arrays are large enough for most runs.
        intervals=records(4 * devices + _ROWS, state.INTERVAL),
        jobs=jobs,
        gaps=records(4 * works + _ROWS, state.GAP),
    )


def _tables(row: Records, costs: DecoderCosts, prepared: PreparedRun, numbers: Pool) -> None:
    """Write the tables of step costs of a class, which serves one model."""
    batch = prepared.policy.batch
    assert costs.linear.shape[1] == batch.tokens + 1 and costs.head.shape[1] == batch.size + 1  # noqa: S101
    row.capacity = costs.cache_tokens(batch.memory)
    row.columns = costs.prefill.shape[1]
    row.linear, row.head = numbers.add(costs.flat("linear")), numbers.add(costs.flat("head"))
    row.prefill, row.decode = numbers.add(costs.flat("prefill")), numbers.add(costs.flat("decode"))
    row.above_idle = costs.device.power_limit_w - costs.device.idle_power_w


def serving_event_log(prepared: PreparedRun, world: Serving) -> EventLog:
    """Return the kernel's records as an event log."""
    log = EventLog(prepared)
    r, jobs = world.run[0], world.jobs
    log.start, log.finish, log.first, log.device = (plain(a) for a in (jobs.start, jobs.finish, jobs.first, jobs.on))
    log.energy = plain(jobs.energy)
    log.overlapping = set(range(prepared.device_count))
    log.preemptions = int(r.preemptions)
    written = world.intervals[: r.written]
    table = log.intervals
    for word in WORDS:
        table.word(word)
    table.device, table.lane, table.name = plain(written.on), plain(written.lane), plain(written.name)
    table.start, table.end, table.watts = plain(written.start), plain(written.end), plain(written.watts)
    gaps = world.gaps[: r.gaps]
    log.gap_ticks, log.gap_tokens = plain(gaps.ticks), plain(gaps.tokens)
    log.gap_end, log.gap_workload = plain(gaps.end), plain(gaps.work)
    return log


def plain(values: np.ndarray) -> array[Any]:
    """Return a field of records as an array with the interface of Python's ``array`` that the accounting uses."""
    column: Any = np.ascontiguousarray(values)
    return column
