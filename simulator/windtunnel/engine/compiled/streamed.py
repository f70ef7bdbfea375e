"""Computes the recording of a run that is too long to keep every job: sums, histograms, and a sample of the jobs."""

from __future__ import annotations

from functools import partial

import numpy as np

from windtunnel.core.recording import (
    COMPLETED,
    DROPPED,
    FAILED,
    QUEUED,
    RUNNING,
    IntervalTable,
    Jobs,
    LazySlices,
    Recording,
    Slices,
    Steps,
    Tally,
    TokenGaps,
)
from windtunnel.core.ticks import TICKS_PER_SECOND, FloatArray
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results.accounting import degraded_intervals_of, devices_of, down_of
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.build import Words
from windtunnel.engine.transitions.event_log import loads_of, progress_of
from windtunnel.engine.transitions.tables import LEFT, LOST, World


def streamed_recording(prepared: PreparedRun, world: World, words: Words) -> Recording:
    """Return the recording of a run that generated its jobs during the simulation."""
    r = world.run[0]
    end = int(r.end)
    series = len(world.batches) // tables.BATCHES
    counts = np.zeros((len(world.counts), 5), dtype=np.int64)
    completed, failed, running, arrived, dropped = world.counts.T
    counts[:, COMPLETED], counts[:, FAILED], counts[:, RUNNING] = completed, failed, running
    counts[:, DROPPED], counts[:, QUEUED] = dropped, arrived - completed - failed - running - dropped
    jobs = _sample(world)
    empty = np.zeros(0, dtype=np.int64)
    rows = world.devices
    total = int(arrived.sum())
    notes = [f"{total:,} jobs: percentiles come from a sketch with a relative error of at most 0.5%"]
    notes.append("power and waiting jobs over time are means over short intervals; the peak power is exact")
    if len(jobs):
        notes.append(f"the timeline and jobs.csv show {len(jobs):,} jobs of {total:,}, evenly spaced")
    unpowered = [c.name for c in prepared.classes if not c.limit_w]
    if unpowered:
        notes.append(f"the power of {', '.join(unpowered)} is unknown and counts as 0 W")
    progress = progress_of(prepared, world)
    return Recording(
        end=end,
        jobs=jobs,
        devices=devices_of(
            prepared,
            rows.busy.astype(np.int64),
            rows.energy,
            rows.done.astype(np.int64),
            down_of(prepared, end),
            np.full(len(rows), end),
        ),
        workloads=[w.workload.name for w in prepared.workloads],
        power=_means(world, "power", end),
        waiting=_means(world, "waiting", end),
        slices=LazySlices(partial(_slices, prepared, jobs)),
        token_gaps=TokenGaps(*[empty] * 5),
        intervals=IntervalTable(empty, empty, empty, empty, empty, np.zeros(0), list(words.numbers)),
        sampled_slices=True,
        degraded=degraded_intervals_of(prepared, end),
        returned=int(r.returned) - (0 if progress is None else progress.preemptions),
        progress=progress,
        loads=loads_of(prepared, world),
        notes=notes,
        tally=Tally(
            counts=counts,
            batches=world.batches.reshape(series, tables.BATCHES),
            bins=world.bins.reshape(2, series, tables.STRETCHES, tables.BINS),
            width=int(r.batch_width),
            peak_w=float(r.peak_w),
            last_arrival=int(r.last_arrival),
            joules_by_hour=world.hours / TICKS_PER_SECOND,
        ),
    )


def _sample(world: World) -> Jobs:
    r, rows = world.run[0], world.jobs
    count = min(-(-int(r.arrived) // int(r.stride)), len(rows)) if r.stride else 0
    rows = rows[:count]
    status = np.where(rows.finish >= 0, COMPLETED, np.where(rows.start >= 0, RUNNING, QUEUED))
    status[rows.lost == LOST], status[rows.lost >= LEFT] = FAILED, DROPPED
    never = np.full(count, -1, dtype=np.int64)
    return Jobs(
        workload=rows.work.astype(np.int64),
        arrival=rows.arrival.copy(),
        start=rows.start.copy(),
        finish=rows.finish.copy(),
        first=never,
        tokens=np.zeros(count, dtype=np.int64),
        device=rows.on.astype(np.int64),
        status=status,
        energy_j=rows.energy.copy(),
        starts=rows.starts.astype(np.int64),
    )


def _slices(prepared: PreparedRun, jobs: Jobs) -> Slices:
    """Return the times of the jobs of the sample as slices, one lane for each workload."""
    names = [w.workload.name for w in prepared.workloads]
    shown = (jobs.finish > jobs.start) & (jobs.start >= 0)
    lane, start, end = jobs.workload[shown], jobs.start[shown], jobs.finish[shown]
    return Slices(jobs.device[shown], lane, np.full(len(lane), len(names)), start, end, [*names, ""])


def _means(world: World, name: str, end: int) -> Steps:
    """Return means over bins of time, as a step function with the same integral."""
    r = world.run[0]
    count = int(r.span) + 1
    ticks = np.arange(count, dtype=np.int64) * int(r.span_width)
    kept = ticks < end if end else ticks <= 0
    ticks = ticks[kept]
    widths = np.diff(np.append(ticks, max(end, 1))).astype(np.float64)
    sums: FloatArray = world.spans[name][:count][kept]
    return Steps(ticks, sums / widths, end)
