"""Converts the tables of a run to the event log from which the recording is computed."""

from __future__ import annotations

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.recording import (
    IntArray,
    KvTransfers,
    Loads,
    Progress,
    ServingUse,
    StepWork,
    TokenGaps,
)
from windtunnel.core.ticks import LONGEST, TickArray
from windtunnel.engine.event_log import EventLog, Interruptions, Intervals, StateChanges
from windtunnel.engine.prepare.prepared import PreparedRun, kind_of_station
from windtunnel.engine.transitions.answers import Answers
from windtunnel.engine.transitions.build import Words, own_intervals
from windtunnel.engine.transitions.tables import LANE_BASE, LANES, Records, World


def event_log(prepared: PreparedRun, world: World, words: Words, answers: Answers) -> EventLog:
    """Return the records of a run as an event log."""
    r = world.run[0]
    arrival, work, rank = prepared.arrival, prepared.workload_of, prepared.rank
    if prepared.users:
        arrival, work, rank = _arrivals(prepared, world)
    jobs, written = world.jobs[: len(arrival)], world.intervals[: r.written]
    start, finish, first, device, lost = (_field(jobs, name) for name in ("start", "finish", "first", "on", "lost"))
    aside = np.flatnonzero(written.view(np.ndarray)["lane"] < 0)
    interrupted = written[aside][written.name[aside] > 0]
    controller, changes = answers.controller, world.changes[: r.changes]
    faults = world.operation_faults
    return EventLog(
        count=len(arrival),
        arrival=arrival,
        workload_of=work,
        rank=rank,
        start=start,
        finish=finish,
        first=first,
        device=device,
        starts=_field(jobs, "starts"),
        hits=_field(jobs, "hits"),
        lost=lost,
        energy=np.ascontiguousarray(jobs.energy),
        intervals=_intervals(prepared, world, words),
        gaps=_gaps_of_servers(world.gaps[: r.gaps])
        if r.serving
        else _gaps(prepared, work, rank, start, finish, first, device, lost),
        interruptions=Interruptions(*(_field(interrupted, name) for name in ("start", "end", "name"))),
        own_interval=own_intervals(prepared),
        overlapping={
            device
            for c in prepared.classes
            if kind_of_station(prepared, c) in ("continuous", "stream")
            for device in range(c.first, c.first + c.count)
        },
        resets=answers.resets,
        corrupted=int(r.corrupted) if len(faults) else None,
        fault_occurrences={int(fault.number): (int(fault.eligible), int(fault.affected)) for fault in faults},
        preemptions=int(r.preemptions),
        use=_use(prepared, world),
        transfers=_transfers(prepared, world),
        progress=progress_of(prepared, world),
        loads=loads_of(prepared, world),
        scaled=[] if controller is None else controller.scaled,
        changes=StateChanges(*(_field(changes, name) for name in ("tick", "on", "before", "after"))),
    )


def _field(rows: Records, name: str) -> IntArray:
    """Return a field of records as a contiguous array of 8-byte integers."""
    return np.ascontiguousarray(rows.view(np.ndarray)[name], dtype=np.int64)


def progress_of(prepared: PreparedRun, world: World) -> Progress | None:
    """Return what checkpoints and interruptions cost; None without checkpoints and preemption."""
    if not prepared.progresses:
        return None
    o = world.overhead[0]
    return Progress(int(o.checkpoint), int(o.restore), int(o.lost), int(o.checkpoints), int(o.preemptions))


def _use(prepared: PreparedRun, world: World) -> ServingUse:
    """Return the use of each device with continuous batching, and what was not served as it arrived."""
    servers, workloads = world.servers, world.workloads
    tiers, devices = max(int(world.run[0].levels) - 1, 0), int(world.run[0].devices)
    busy = _field(world.caches, "busy") if tiers else np.zeros(0, dtype=np.int64)
    return ServingUse(
        peak_tokens=_field(servers, "peak"),
        token_ticks=np.ascontiguousarray(servers["held"]),
        sequence_ticks=np.ascontiguousarray(servers["present"]),
        preemptions=_field(workloads, "preempted"),
        rejected=_field(workloads, "rejected"),
        tier_blocks=_of_tiers(workloads, "blocks", tiers),
        tier_tokens=_of_tiers(workloads, "tokens", tiers),
        tier_busy_ticks=busy[devices:].reshape(tiers, devices) if tiers else busy.reshape(0, devices),
        accepted=world.accepted,
        adapter_hits=_field(workloads, "adapter_hits"),
        adapter_loads=_field(workloads, "adapter_loads"),
        adapter_reads=_field(workloads, "adapter_reads"),
        work=[_work(world, c.number, slice(c.first, c.first + c.count)) for c in prepared.classes]
        if len(servers)
        else [],
    )


def _of_tiers(workloads: Records, name: str, tiers: int) -> IntArray:
    """Return a field that workloads have for each tier; shape (tiers, workloads)."""
    rows = [_field(workloads, f"{name}_{tier + 1}") for tier in range(tiers)]
    return np.array(rows, dtype=np.int64).reshape(tiers, len(workloads))


def _transfers(prepared: PreparedRun, world: World) -> KvTransfers | None:
    """Return the transfers of KV caches; None where no request moves."""
    if not prepared.disaggregated:
        return None
    rows = world.transfers[: world.run[0].transfers]
    names = ("job", "sender", "receiver", "tokens", "asked", "began", "landed")
    return KvTransfers(*(_field(rows, name) for name in names))


def _work(world: World, cls: int, members: slice) -> StepWork:
    """Return what the completed steps of a class did."""
    servers, (tokens, heads) = world.servers[members], world.step_counts[cls]
    names = ("decoded", "contexts", "chunks_read", "prompt_tokens", "spans", "scores")
    sums = (servers[name].sum().item() for name in names)
    return StepWork(np.trim_zeros(tokens, "b"), np.trim_zeros(heads, "b"), *sums)


def _gaps_of_servers(rows: Records) -> TokenGaps:
    """Return the gaps between the tokens of continuous batches; they are views of the rows, of which few are read."""
    cuts = np.zeros((0, 3), dtype=np.int64)
    is_gap = rows.view(np.ndarray)["tokens"] > 0
    if not is_gap.all():
        cuts = np.stack([_field(rows[~is_gap], name) for name in ("of", "ticks", "end")], 1)
        rows = rows[is_gap]
    gaps = rows.view(np.ndarray)
    return TokenGaps(gaps["ticks"], gaps["tokens"], gaps["end"], gaps["work"], gaps["of"], cuts)


def loads_of(prepared: PreparedRun, world: World) -> Loads | None:
    """Return the loads of designs; None where no job needs a design."""
    return Loads(int(world.overhead[0].loads), int(world.overhead[0].loading)) if prepared.designs else None


def _arrivals(prepared: PreparedRun, world: World) -> tuple[TickArray, IntArray, IntArray]:
    """Return arrival, workload and rank of the jobs that arrived, because those of users were not known before.

    Raises:
        InputError: if no job arrives, or fewer than requested because the run lasts too long.
    """
    r = world.run[0]
    count = int(r.arrived)
    if prepared.limit is not None and count < prepared.limit and not r.running + r.waiting:
        raise InputError(
            f"only {count:,} of {prepared.limit:,} jobs would arrive within the {LONGEST} a run may last",
            where=prepared.scenario.where("stop", "jobs"),
            expected="fewer jobs, more users, shorter think times, or stop: {time: ...}",
        )
    if not count:
        raise InputError(
            "no job arrives before the run stops",
            where=prepared.scenario.where("stop"),
            expected="a later stop, or shorter think times",
        )
    jobs = world.jobs[:count]
    return _field(jobs, "arrival"), _field(jobs, "work"), _field(jobs, "rank")


def _intervals(prepared: PreparedRun, world: World, words: Words) -> Intervals:
    """Return the recorded intervals of hardware engines."""
    written = world.intervals[: 0 if prepared.times_only else world.run[0].written]
    is_work = written.view(np.ndarray)["lane"] >= 0
    written = written if is_work.all() else written[is_work]
    table = Intervals(
        device=_field(written, "on"),
        lane=_field(written, "lane"),
        name=_field(written, "name"),
        start=_field(written, "start"),
        end=_field(written, "end"),
        watts=np.ascontiguousarray(written.watts),
        words=dict(words.numbers),
    )
    if prepared.policy.batch.kind == "request":
        batches = table.name < 0  # the other ones are loads of designs
        sizes, which = np.unique(-table.name[batches], return_inverse=True)
        spelled = [table.word(f"batch of {size}") for size in sizes.tolist()]
        table.name[batches] = np.array(spelled, dtype=np.int64)[which]
    numbered = table.lane >= LANE_BASE
    lanes, which = np.unique(table.lane[numbered] - LANE_BASE, return_inverse=True)
    engines = list(words.numbers)
    parts = [divmod(lane, LANES) for lane in lanes.tolist()]
    spelled = [table.word(engines[word] if n == 0 else f"{engines[word]} {n + 1}") for word, n in parts]
    table.lane[numbered] = np.array(spelled, dtype=np.int64)[which]
    return table


def _gaps(
    prepared: PreparedRun,
    work: IntArray,
    rank: IntArray,
    start: TickArray,
    finish: TickArray,
    first: TickArray,
    device: IntArray,
    lost: IntArray,
) -> TokenGaps:
    """Return the gaps between tokens of requests that were served alone or in request-level batches.

    The time of a batch after its first tokens is divided equally among its steps, each of which gives one token to each
    unfinished request; so it is if faults interrupted or slowed the batch. Only complete batches are counted.
    """
    following = np.zeros(len(start), dtype=np.int64)
    class_of = prepared.class_of_device()
    for (cls, number), compiled in prepared.compiled.items():
        if compiled.outputs is not None:
            mine = np.flatnonzero((work == number) & (device >= 0))
            mine = mine[class_of[device[mine]] == cls]
            following[mine] = compiled.outputs[rank[mine]] - 1
    done = np.flatnonzero((finish >= 0) & (lost == 0) & (first >= 0) & (following > 0))
    if not len(done):
        return TokenGaps(*[np.zeros(0, dtype=np.int64)] * 5)
    alone = prepared.policy.batch.kind == "none"
    done = done[np.lexsort((done, start[done], device[done], finish[done]))]
    same = (device[done][1:] == device[done][:-1]) & (start[done][1:] == start[done][:-1]) & (not alone)
    begins = np.flatnonzero(np.append(True, ~same))
    steps = np.maximum.reduceat(following[done], begins)
    tokens = np.add.reduceat(following[done], begins)
    leader = done[begins]
    ticks = (finish[leader] - first[leader]) // steps
    return TokenGaps(ticks, tokens, start[leader], work[leader].astype(np.int64), leader)
