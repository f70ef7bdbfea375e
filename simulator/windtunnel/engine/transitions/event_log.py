"""Converts the tables of a run to the event log from which the recording is computed."""

from __future__ import annotations

from array import array
from typing import Any, cast

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.recording import Progress
from windtunnel.core.ticks import LONGEST
from windtunnel.engine.event_log import EventLog
from windtunnel.engine.prepare.prepared import PreparedRun, kind_of_station
from windtunnel.engine.transitions.answers import Answers
from windtunnel.engine.transitions.build import Words, own_intervals
from windtunnel.engine.transitions.tables import LANE_BASE, LANES, World


def event_log(prepared: PreparedRun, world: World, words: Words, answers: Answers) -> EventLog:
    """Return the records of a run as an event log."""
    log = EventLog(prepared)
    if prepared.users:
        _add_arrivals(prepared, world, log)
    jobs, serving = world.jobs[: log.count], bool(world.run[0].serving)
    log.start, log.finish, log.first, log.device = (_plain(a) for a in (jobs.start, jobs.finish, jobs.first, jobs.on))
    log.energy = _plain(jobs.energy)
    log.starts, log.lost = _plain(jobs.starts), bytearray(jobs.lost.astype(np.uint8).tobytes())
    log.own_interval = own_intervals(prepared)
    log.preemptions = int(world.run[0].preemptions)
    if len(world.operation_faults):
        log.corrupted = int(world.run[0].corrupted)
        log.fault_occurrences = {int(f.number): (int(f.eligible), int(f.affected)) for f in world.operation_faults}
    log.progress = progress_of(prepared, world)
    for row in answers.resets:
        log.add_reset(*row)
    if answers.controller is not None:
        log.scaled = answers.controller.scaled
        changes = world.changes[: world.run[0].changes]
        for change in zip(*(changes[name].tolist() for name in ("tick", "on", "before", "after")), strict=True):
            log.add_change(*change)
    for c in prepared.classes:
        if kind_of_station(prepared, c) in ("continuous", "stream"):
            log.overlapping.update(range(c.first, c.first + c.count))
    written = world.intervals[: world.run[0].written]
    for row in written[written.lane < 0]:
        log.add_interrupted(int(row.name), int(row.start), int(row.end))
    written = written[written.lane >= 0]
    table = log.intervals
    table.words = dict(words.numbers)
    names = written.name
    if prepared.policy.batch.kind == "request":
        sizes = np.unique(-names) if len(names) else np.zeros(0, dtype=np.int64)
        spelled = {int(size): table.word(f"batch of {size}") for size in sizes}
        names = np.array([spelled[-int(name)] for name in names], dtype=np.int64)
    lanes = written.lane
    if len(world.tasks):
        lanes = lanes.copy()
        for lane in np.unique(lanes[lanes >= LANE_BASE]).tolist():
            word, number = divmod(lane - LANE_BASE, LANES)
            engine = list(words.numbers)[word]
            lanes[lanes == lane] = table.word(engine if number == 0 else f"{engine} {number + 1}")
    table.device, table.lane, table.name = _plain(written.on), _plain(lanes), _plain(names)
    table.start, table.end, table.watts = _plain(written.start), _plain(written.end), _plain(written.watts)
    if serving:
        gaps = world.gaps[: world.run[0].gaps]
        log.gap_ticks, log.gap_tokens = _plain(gaps.ticks), _plain(gaps.tokens)
        log.gap_end, log.gap_workload = _plain(gaps.end), _plain(gaps.work)
    else:
        _add_gaps(prepared, log)
    return log


def progress_of(prepared: PreparedRun, world: World) -> Progress | None:
    """Return what checkpoints and interruptions cost; None without checkpoints and preemption."""
    if not prepared.progresses:
        return None
    o = world.overhead[0]
    return Progress(int(o.checkpoint), int(o.restore), int(o.lost), int(o.checkpoints), int(o.preemptions))


def _add_arrivals(prepared: PreparedRun, world: World, log: EventLog) -> None:
    """Add the jobs that arrived, because those of users were not known before.

    Raises:
        InputError: if no job arrives, or fewer than requested because the run lasts too long.
    """
    r = world.run[0]
    log.count = int(r.arrived)
    if prepared.limit is not None and log.count < prepared.limit and not r.running + r.waiting:
        raise InputError(
            f"only {log.count:,} of {prepared.limit:,} jobs would arrive within the {LONGEST} a run may last",
            where=prepared.scenario.where("stop", "jobs"),
            expected="fewer jobs, more users, shorter think times, or stop: {time: ...}",
        )
    if not log.count:
        raise InputError(
            "no job arrives before the run stops",
            where=prepared.scenario.where("stop"),
            expected="a later stop, or shorter think times",
        )
    jobs = world.jobs[: log.count]
    log.arrival, log.workload_of, log.rank = _plain(jobs.arrival), _plain(jobs.work), _wide(jobs.rank)
    log.eligible = _wide(jobs.signature)


def _wide(values: np.ndarray) -> array[Any]:
    return _plain(values.astype(np.int64))


def _plain(values: np.ndarray) -> array[Any]:
    """Return a field of records as an array with the interface of Python's ``array`` that the accounting uses."""
    return cast("array[Any]", np.ascontiguousarray(values))


def _add_gaps(prepared: PreparedRun, log: EventLog) -> None:
    """Add the gaps between tokens of requests that were served alone or in request-level batches.

    The time of a batch after its first tokens is divided equally among its steps, each of which gives one token to each
    unfinished request; so it is if faults interrupted or slowed the batch. Only complete batches are counted.
    """
    finish, device = np.asarray(log.finish), np.asarray(log.device)
    start, first = np.asarray(log.start), np.asarray(log.first)
    following = np.zeros(log.count, dtype=np.int64)
    work, rank, class_of = np.asarray(log.workload_of), np.asarray(log.rank), prepared.class_of_device()
    for (cls, number), compiled in prepared.compiled.items():
        if compiled.outputs is not None:
            mine = np.flatnonzero((work[: log.count] == number) & (device >= 0))
            mine = mine[class_of[device[mine]] == cls]
            following[mine] = compiled.outputs[rank[mine]] - 1
    completed = (finish >= 0) & (np.frombuffer(log.lost, dtype=np.uint8) == 0)
    done = np.flatnonzero(completed & (first >= 0) & (following > 0))
    if not len(done):
        return
    alone = prepared.policy.batch.kind == "none"
    done = done[np.lexsort((done, start[done], device[done], finish[done]))]
    same = (device[done][1:] == device[done][:-1]) & (start[done][1:] == start[done][:-1]) & (not alone)
    begins = np.flatnonzero(np.append(True, ~same))
    steps = np.maximum.reduceat(following[done], begins)
    tokens = np.add.reduceat(following[done], begins)
    leader = done[begins]
    log.gap_ticks, log.gap_tokens = _plain((finish[leader] - first[leader]) // steps), _plain(tokens)
    log.gap_end, log.gap_workload = _plain(start[leader]), _wide(work[leader])
