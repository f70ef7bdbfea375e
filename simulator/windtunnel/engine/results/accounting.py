"""Computes the recording of a run from its event log: power, energy, utilisation and waiting jobs over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush

import numpy as np

from windtunnel.core.recording import (
    COMPLETED,
    DROPPED,
    FAILED,
    QUEUED,
    RUNNING,
    DegradedIntervals,
    DeviceEntry,
    Devices,
    IntArray,
    IntervalTable,
    Jobs,
    LazySlices,
    LazySteps,
    Recording,
    Slices,
    Steps,
)
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, FloatArray, TickArray, to_second_array
from windtunnel.engine.event_log import EventLog
from windtunnel.engine.prepare.fault_schedule import down_ticks, intervals_until
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results.autoscaling import RentalLog, rental_log_of, scaling_of
from windtunnel.engine.results.chips import chip_power

SLICE_LIMIT = 200_000
"""The largest number of intervals on the timeline; of more intervals it shows the first ones, and a note says so."""


# Long: it derives each part of the recording once, from arrays that several parts share.
def record(prepared: PreparedRun, log: EventLog, end: int) -> Recording:
    """Return the recording of a run that stopped at tick ``end``."""
    arrival, start, finish, device = log.arrival, log.start, log.finish, log.device
    status = np.where(finish >= 0, COMPLETED, np.where(start >= 0, RUNNING, QUEUED))
    status[log.lost == 1], status[log.lost >= 2] = FAILED, DROPPED
    # Without interruptions every started job has had exactly one attempt.
    starts = log.starts if prepared.interrupts else (start >= 0).astype(np.int64)
    energy = log.energy.copy()
    table = _intervals(prepared, log, energy, end)
    rent = rental_log_of(prepared, log, end) if prepared.scaled else None
    prompts, outputs = tokens_of(prepared, log.workload_of, log.rank)
    jobs = Jobs(
        workload=log.workload_of,
        arrival=arrival,
        start=start,
        finish=finish,
        first=np.where(log.first > end, -1, log.first),
        tokens=outputs,
        device=device,
        status=status,
        energy_j=energy,
        starts=starts,
        prompts=prompts,
        outside=_outside(prepared, log),
        **_hits(prepared, log),
    )
    shared = chip_power(prepared, table)
    # Most fleets draw one power above idle, so that no array of changes is needed.
    watts = table.watts
    change = float(watts[0]) if len(watts) and watts.min() == watts.max() else watts
    power: list[Change] = [(table.start, change), (table.end, -change)]
    if rent is not None:
        power.append((rent.at, rent.change * prepared.idle_by_device()[rent.device]))
    power += shared.changes
    began, interrupted, count = log.interruptions.start, log.interruptions.end, log.interruptions.jobs
    waiting: list[Change] = [(arrival, 1.0), (start[start >= 0], -1.0), (finish[status == DROPPED], -1.0)]
    if len(count):
        waiting += [(began, -count.astype(np.float64)), (interrupted, count.astype(np.float64))]
    resets = [(on, first, min(last, end)) for on, first, last in log.resets if first < end]
    sampled = len(table) > SLICE_LIMIT
    notes = _notes(prepared, log)
    if sampled:
        notes.append(f"the timeline shows the first {SLICE_LIMIT:,} intervals of {len(table):,}")
    return Recording(
        end=end,
        jobs=jobs,
        devices=_devices(prepared, jobs, table, rent, resets, end, shared.saved_j),
        workloads=[w.workload.name for w in prepared.workloads],
        power=LazySteps(partial(_steps, power, prepared.idle_w, end)),
        waiting=LazySteps(partial(_steps, waiting, 0.0, end)),
        slices=LazySlices(partial(_slices, prepared, log, jobs, table, end)),
        token_gaps=log.gaps,
        intervals=table,
        sampled_slices=sampled,
        notes=notes,
        degraded=degraded_intervals_of(prepared, end, resets),
        returned=int(count.sum()) - (0 if log.progress is None else log.progress.preemptions),
        interrupted_at_end=int(count[(interrupted == end) & (began < end)].sum()),
        progress=log.progress,
        loads=log.loads,
        use=log.use if outputs.any() else None,
        transfers=log.transfers,
        scaling=[] if rent is None else scaling_of(prepared, log, rent, end, _steps),
        fault_occurrences=log.fault_occurrences,
        corrupted=log.corrupted,
        chips=shared.chips,
        saved_j=math.fsum(shared.saved_j.tolist()),
    )


def _hits(prepared: PreparedRun, log: EventLog) -> dict[str, IntArray]:
    """Return what the prefix caches had of the prompts of the jobs that started, if there are any caches."""
    if not prepared.chains:
        return {}
    blocks, tokens = np.zeros(log.count, dtype=np.int64), np.zeros(log.count, dtype=np.int64)
    for number, chains in enumerate(prepared.chains):
        mine = (log.workload_of == number) & (log.start >= 0)
        blocks[mine] = chains.job_blocks[log.rank[mine]]
        prompts = chains.job_tokens[log.rank[mine]]
        # The last token of a prompt is read in any case.
        tokens[mine] = np.minimum(log.hits[mine] * prepared.block_tokens, prompts - 1)
    hit = np.where(log.start >= 0, log.hits, 0)
    return {"hits": tokens, "blocks": blocks, "hit_blocks": hit}


def tokens_of(prepared: PreparedRun, workload: IntArray, rank: IntArray) -> tuple[IntArray, IntArray]:
    """Return the prompt and the output tokens of each job; 0 for jobs that generate none."""
    prompts, outputs = np.zeros(len(workload), dtype=np.int64), np.zeros(len(workload), dtype=np.int64)
    for job_class in prepared.workloads:
        mine = (c for (_, w), c in prepared.compiled.items() if w == job_class.number and c.outputs is not None)
        lengths = next(mine, None)
        if lengths is not None and lengths.prompts is not None and lengths.outputs is not None:
            of_class = workload == job_class.number
            prompts[of_class], outputs[of_class] = lengths.prompts[rank[of_class]], lengths.outputs[rank[of_class]]
    return prompts, outputs


def _outside(prepared: PreparedRun, log: EventLog) -> TickArray | None:
    """Return the ticks that each request spends outside of its engine's steps; None if no engine has such a time.

    The formula is that of ``transitions.jobs.outside_of_steps``.
    """
    found: FloatArray | None = None
    class_of = prepared.class_of_device()
    reader, moved = log.device.copy(), log.transfers
    if moved is not None:
        last = moved.landed > log.start[moved.job]  # not of an attempt that was given up
        reader[moved.job[last]] = moved.sender[last]
    for (cls, work), compiled in prepared.compiled.items():
        engine = None if compiled.decoder is None else compiled.decoder.replica.engine
        if engine is None or prepared.policy.batch.kind != "continuous":
            continue
        frontend_s, late = engine.frontend_s.value, engine.late_prompts.value
        if frontend_s == 0.0 and late == 0.0:
            continue
        mine = np.flatnonzero((log.workload_of == work) & (log.device >= 0))
        read = mine[class_of[reader[mine]] == cls]
        alone_s = compiled.estimate_s if len(compiled.estimate_s) == 1 else compiled.estimate_s[log.rank[read]]
        found = np.zeros(len(log.arrival)) if found is None else found
        found[mine[class_of[log.device[mine]] == cls]] += frontend_s
        found[read] += late * alone_s
    return None if found is None else np.rint(found * TICKS_PER_SECOND).astype(np.int64)


def _intervals(prepared: PreparedRun, log: EventLog, energy: FloatArray, end: int) -> IntervalTable:
    """Return the intervals of the event log, and those of jobs with one segment, whose times are the jobs' own times.

    The energy of the latter jobs is added to ``energy``.
    """
    start, finish, device, workload = log.start, log.finish, log.device, log.workload_of
    written, own = log.intervals, set() if prepared.times_only else log.own_interval
    columns: list[list[np.ndarray]] = [
        [column] if len(column) else []
        for column in (written.device, written.lane, written.name, written.start, written.end, written.watts)
    ]
    class_of = prepared.class_of_device()
    for (class_number, number), compiled in prepared.compiled.items():
        single = compiled.single
        if single is None or (class_number, number) not in own:
            continue
        # Jobs that never started have device -1, and are excluded.
        is_member = (device >= 0) & (workload == number) & (class_of[device] == class_number)
        members = slice(None) if is_member.all() else np.flatnonzero(is_member)
        on, began, ends = device[members], start[members], finish[members]
        ends = np.where(ends >= 0, ends, end)
        watts = np.full(len(on), single.watts) if isinstance(single.watts, float) else single.watts[log.rank[members]]
        energy[members] += watts * to_second_array(ends - began)
        lane, name = written.word(single.engine), written.word(single.name)
        kept = ends > began
        added = (on, np.full(len(on), lane), np.full(len(on), name), began, ends, watts)
        is_complete = bool(kept.all())
        for column, values in zip(columns, added, strict=True):
            column.append(values if is_complete else values[kept])
    empty = np.zeros(0, dtype=np.int64)
    joined = [np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else empty for parts in columns]
    return IntervalTable(
        device=joined[0],
        lane=joined[1],
        name=joined[2],
        start=joined[3],
        end=joined[4],
        watts=joined[5].astype(np.float64, copy=False),
        words=list(written.words),
    )


Change = tuple[TickArray, float | FloatArray]
"""Ticks, and by how much a step function changes at each of them."""
_SHIFT = 4
"""The bits of a sort key that name one of the parts of a step function."""


def _steps(parts: Sequence[Change], base: float, end: int) -> Steps:
    """Return the step function that begins at ``base`` and changes as ``parts`` say; one step a tick."""
    parts = [(ticks, change) for ticks, change in parts if len(ticks)]
    latest = max((int(ticks.max()) for ticks, _ in parts), default=0)
    if all(isinstance(change, float) for _, change in parts) and latest < MAX_TICKS >> _SHIFT:
        # Sorting keys is several times as fast as sorting indices. Sums of the changes are exact in any order.
        keys = np.empty(sum(len(ticks) for ticks, _ in parts), dtype=np.int64)
        first = 0
        for number, (at, _) in enumerate(parts):
            some = keys[first : first + len(at)]
            np.left_shift(at, _SHIFT, out=some)
            some |= number
            first += len(at)
        keys.sort()
        ticks = keys >> _SHIFT
        keys &= (1 << _SHIFT) - 1
        values = np.array([*(change for _, change in parts), 0.0]).take(keys)
    else:
        ticks = np.concatenate([np.zeros(0, dtype=np.int64), *(ticks for ticks, _ in parts)])
        order = np.argsort(ticks, kind="stable")
        ticks = ticks.take(order)
        values = np.concatenate([np.broadcast_to(change, len(t)) for t, change in parts], dtype=np.float64).take(order)
    np.cumsum(values, out=values)
    values += base
    count = int(np.searchsorted(ticks, end))
    last = np.ones(count, dtype=bool)
    np.not_equal(ticks[1:count], ticks[: max(count - 1, 0)], out=last[:-1])
    # `compress` takes a third of the time of an index of booleans.
    ticks, values = ticks[:count].compress(last), values[:count].compress(last)
    if not len(ticks) or ticks[0] > 0:
        ticks, values = np.insert(ticks, 0, 0), np.insert(values, 0, base)
    return Steps(ticks, values, end)


def _devices(
    prepared: PreparedRun,
    jobs: Jobs,
    table: IntervalTable,
    rent: RentalLog | None,
    resets: Sequence[Reset],
    end: int,
    saved_j: FloatArray,
) -> Devices:
    count = prepared.device_count
    seconds = to_second_array(table.end - table.start)
    # The rounding error of one long sum exceeds what the invariant allows; that of sums of short parts does not.
    active_j = np.zeros(count)
    part_size = max(4096, count)
    for begin in range(0, len(table), part_size):
        part = slice(begin, begin + part_size)
        active_j += np.bincount(table.device[part], weights=table.watts[part] * seconds[part], minlength=count)
    done = np.bincount(jobs.device[jobs.status == COMPLETED], minlength=count)
    busy = busy_ticks(table, count)
    rented = np.full(count, end) if rent is None else rent.ticks
    return devices_of(prepared, busy, active_j - saved_j, done, down_of(prepared, end, resets), rented)


def devices_of(
    prepared: PreparedRun, busy: TickArray, active_j: FloatArray, jobs: IntArray, down: TickArray, rented: TickArray
) -> Devices:
    """Return the totals of all devices; ``active_j`` is their energy above idle (J), the times are ticks."""
    entries = [
        DeviceEntry(c.name, c.device.label, c.device.kind.name, c.count, c.limit_w, c.idle_w, c.members)
        for c in prepared.classes
    ]
    idle_w = prepared.idle_by_device()
    return Devices(entries, busy, idle_w * (rented / 1e12) + active_j, jobs, down, rented, idle_w)


Reset = tuple[int, int, int]
"""Device, start and end of an outage that a failed operation caused."""


def down_of(prepared: PreparedRun, end: int, resets: Sequence[Reset] = ()) -> IntArray:
    """Return how long each device was down until ``end``, because it had failed or was being reset (ticks)."""
    if prepared.faults is None:
        return np.zeros(prepared.device_count, dtype=np.int64)
    if not resets:
        return down_ticks(prepared.faults.until(end), end, prepared.device_count)
    down = np.zeros(prepared.device_count, dtype=np.int64)
    for on, cause, start, stop in _degraded_intervals(prepared, end, resets):
        if cause == 0:
            down[on] += stop - start
    return down


def degraded_intervals_of(prepared: PreparedRun, end: int, resets: Sequence[Reset] = ()) -> DegradedIntervals | None:
    """Return the degraded intervals until ``end``; None if no fault affects devices or power."""
    if prepared.faults is None:
        return None
    rows = np.array(_degraded_intervals(prepared, end, resets), dtype=np.int64).reshape(-1, 4)
    return DegradedIntervals(*(np.ascontiguousarray(column) for column in rows.T))


def _degraded_intervals(prepared: PreparedRun, end: int, resets: Sequence[Reset]) -> list[tuple[int, int, int, int]]:
    """Return (device, cause, start, end), sorted; failures and resets that overlap or touch are merged."""
    assert prepared.faults is not None  # noqa: S101  the callers have checked it
    intervals = intervals_until(prepared.faults.until(end), end, prepared.faults.budget_w)
    if not resets:
        return intervals
    others = [interval for interval in intervals if interval[1] != 0]
    down: list[tuple[int, int, int, int]] = []
    for on, start, stop in sorted([(on, a, b) for on, cause, a, b in intervals if cause == 0] + list(resets)):
        if down and down[-1][0] == on and start <= down[-1][3]:
            down[-1] = (on, 0, down[-1][2], max(stop, down[-1][3]))
        else:
            down.append((on, 0, start, stop))
    return sorted(others + down)


def busy_ticks(table: IntervalTable, count: int) -> TickArray:
    """Return, for each device, the time in which at least one of its hardware engines worked (ticks)."""
    device, start, stop = table.by_device
    busy = np.zeros(count, dtype=np.int64)
    if not ((device[1:] == device[:-1]) & (start[1:] < stop[:-1])).any():
        np.add.at(busy, device, stop - start)
        return busy
    until, on = 0, -1
    for number, began, ended in zip(device.tolist(), start.tolist(), stop.tolist(), strict=True):
        if number != on:
            on, until = number, 0
        if ended > until:
            busy[number] += ended - max(began, until)
            until = ended
    return busy


def _slices(prepared: PreparedRun, log: EventLog, jobs: Jobs, table: IntervalTable, end: int) -> Slices:
    """Return what the timeline shows: the intervals of each hardware engine, and overlapping jobs in slots."""
    sampled = len(table) > SLICE_LIMIT
    latest = np.partition(table.start, SLICE_LIMIT)[SLICE_LIMIT] if sampled else MAX_TICKS
    early = np.flatnonzero(table.start <= latest)
    order = early[np.lexsort((table.device[early], table.start[early]))[:SLICE_LIMIT]]
    horizon = int(table.end[order].max()) if sampled else end
    columns = [column[order] for column in (table.device, table.lane, table.name, table.start, table.end)]
    words = list(table.words)
    shared = log.overlapping
    if not shared:
        return Slices.of_columns(columns, words)
    names = [w.workload.name for w in prepared.workloads]
    shown = np.flatnonzero((jobs.start >= 0) & (jobs.start < horizon))
    shown = shown[np.argsort(jobs.start[shown], kind="stable")]
    free: dict[int, list[int]] = {}
    used: dict[int, list[tuple[int, int]]] = {}
    slots: dict[int, int] = {}
    rows: list[tuple[int, int, int, int, int]] = []
    of_jobs = (shown, *(column[shown] for column in (jobs.device, jobs.workload, jobs.start, jobs.finish)))
    for job, device, work, start, stop in zip(*(column.tolist() for column in of_jobs), strict=True):
        if device not in shared or len(order) + len(rows) >= 2 * SLICE_LIMIT:
            continue
        finish = stop if stop >= 0 else end
        open_slots, closed = used.setdefault(device, []), free.setdefault(device, [])
        while open_slots and open_slots[0][0] <= start:
            heappush(closed, heappop(open_slots)[1])
        slot = heappop(closed) if closed else len(open_slots)
        heappush(open_slots, (finish, slot))
        if finish > start:
            if slot not in slots:
                slots[slot] = len(words)
                words.append(f"slot {slot:03d}")
            rows.append((device, slots[slot], len(words), start, finish))
            words.append(f"{names[work]} {job}")
    more = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Slices.of_columns([np.concatenate(both) for both in zip(columns, more, strict=True)], words)


def _notes(prepared: PreparedRun, log: EventLog) -> list[str]:
    notes = []
    if log.preemptions:
        full = f"the KV cache was full {log.preemptions:,} times: sequences were preempted and their tokens recomputed"
        both = (
            f"sequences were preempted {log.preemptions:,} times, because the KV cache was full or for requests that "
            "precede them, and their tokens recomputed"
        )
        notes.append(both if prepared.outranks else full)
    unpowered = [c.name for c in prepared.classes if not c.limit_w]
    if unpowered:
        notes.append(f"the power of {', '.join(unpowered)} is unknown and counts as 0 W")
    return notes
