"""The process engine: executes a scenario as SimPy events, with all features.

SimPy's costs determine the design: resuming a generator takes 0.03 us, a callback 0.5, starting a process 1.7, and a
resource request 3 (docs/decisions/0005-process-engine.md). So each device has one alarm, which is reused; arrivals are
not in SimPy's heap; and jobs are indices of arrays, not processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import simpy

from windtunnel.core.errors import InputError
from windtunnel.core.result import Recording
from windtunnel.core.ticks import LONGEST, MAX_TICKS
from windtunnel.engine.event_log import EventLog
from windtunnel.engine.prepare.fault_schedule import FaultSchedule, initial_horizon
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.process.autoscaler import AutoscaleController
from windtunnel.engine.process.dispatch import dispatcher_for
from windtunnel.engine.process.faults import FaultInjector
from windtunnel.engine.process.power import PowerGate
from windtunnel.engine.process.sources import NEVER, CapacityExceededError, ClosedLoopSource, JobSource, OpenLoopSource
from windtunnel.engine.process.stations import TIMER, RunContext, event_order, station_for
from windtunnel.engine.results import accounting

Progress = Callable[[int], None]
_REPORT_MASK = 255
_NO_FAULT = MAX_TICKS + 1


def run(prepared: PreparedRun, progress: Progress | None = None) -> Recording:
    """Run a prepared scenario to its end, and return its recording.

    ``progress`` is called repeatedly with the number of jobs that have arrived. If users submit more jobs than random
    numbers were drawn for, the run starts again with twice as many. A draw belongs to its job, so earlier jobs do not
    change.
    """
    while True:
        try:
            return _run(prepared, progress)
        except CapacityExceededError as error:
            assert prepared.with_capacity is not None  # noqa: S101  runs with users are prepared with this function
            prepared = prepared.with_capacity(error.capacity)


def _run(prepared: PreparedRun, progress: Progress | None) -> Recording:
    env = simpy.Environment(initial_time=0)
    log = EventLog(prepared)
    context = RunContext(env, prepared, log)
    stations = [station_for(context, c.first + i, c) for c in prepared.classes for i in range(c.count)]
    context.stations = stations
    if prepared.budget_w is not None:
        context.gate = PowerGate(context, prepared.budget_w, prepared.idle_w)
    context.dispatcher = dispatcher_for(context, stations)
    if prepared.users:
        context.job_source = ClosedLoopSource(prepared, log, context.slowdown)
    elif prepared.scaled or prepared.faults is not None:
        context.job_source = OpenLoopSource(log)
    if prepared.scaled:
        context.autoscaler = AutoscaleController(context)
    injector = context.fault_injector = FaultInjector(context)
    try:
        if context.job_source is None:
            _bring_arrivals(context, progress)
            _drain(env, prepared.end)
        else:
            _bring_all(context, context.job_source, injector, prepared.faults, progress)
    except OverflowError:
        # A tick exceeds the range of the type that stores ticks.
        raise InputError(
            f"the work takes longer than the {LONGEST} a run may last",
            where=prepared.scenario.where("workload"),
            expected="fewer or shorter jobs, more devices, or stop: {time: ...}",
        ) from None
    if prepared.users:
        _end_of_users(context)
    # A drained run ends with its last job, not with an alarm that no job needs any more. Jobs that no device
    # will ever take have arrived too, and may have been started.
    last = max(*log.finish, *log.interrupted_end, log.arrival[-1])
    end = last if prepared.end is None else prepared.end
    if prepared.end is not None:
        env._now = end  # the last event may be earlier, and what runs on streams is recorded up to the present time
    for station in stations:
        station.close(end)
    if context.autoscaler is not None:
        context.autoscaler.close()
    if progress is not None:
        progress(log.count)
    recording = accounting.record(prepared, log, end)
    if context.operation_faults is None:
        return recording
    return replace(recording, fault_occurrences=context.operation_faults.counts(), corrupted=log.corrupted)


def _drain(env: simpy.Environment, end: int | None) -> None:
    """Continue the work in progress, up to and including the tick ``end``."""
    queue, step = env._queue, env.step
    while queue and (end is None or queue[0][0] <= end):
        step()


def _bring_arrivals(context: RunContext, progress: Progress | None) -> None:
    """Advance the clock from arrival to arrival.

    Arrivals are known in order, so they are not in SimPy's heap, which saves a third of the time of a short job. They
    follow all other events of the same tick.
    """
    env, arrival, place = context.env, context.log.arrival, context.dispatcher.place
    queue, step = env._queue, env.step
    for job, tick in enumerate(arrival):
        while queue and queue[0][0] <= tick:
            step()
        env._now = tick
        place(job)
        if progress is not None and not job & _REPORT_MASK:
            progress(job)


def _bring_all(
    context: RunContext,
    arrivals: JobSource,
    injector: FaultInjector,
    schedule: FaultSchedule | None,
    progress: Progress | None,
) -> None:
    """Advance the clock from event to arrival, to fault, until the run is over.

    Work in progress may cause further arrivals, so all events up to a tick precede the search for the next arrival.
    """
    env, end = context.env, context.prepared.end
    queue, step, place = env._queue, env.step, context.dispatcher.place
    horizon = fault = _NO_FAULT
    gone = np.zeros(0, dtype=np.int64)
    if schedule is not None:
        horizon = initial_horizon(context.prepared.arrival, end)
        events = schedule.until(horizon)
        gone = schedule.gone(context.prepared.device_count)
        fault = _first(events, 0, horizon, end)
    number = 0
    before_timers = event_order(TIMER, 0)
    while True:
        tick = arrivals.tick
        if queue:
            head, order = queue[0][:2]
            if head <= tick and (head < fault or (head == fault and order < before_timers)):
                if end is not None and head > end:
                    return
                step()
                continue
        if fault <= tick:
            assert schedule is not None  # noqa: S101  only a schedule has faults
            over = context.over() or (tick == NEVER and _never_served(context, gone < fault))
            if over or fault >= MAX_TICKS:
                _drain(env, end)
                return
            if number == len(events):
                horizon = min(2 * horizon, MAX_TICKS)
                events = schedule.until(horizon)
            else:
                env._now = fault
                injector.apply(events[number])
                number += 1
            fault = _first(events, number, horizon, end)
            continue
        if tick == NEVER:
            return
        env._now = tick
        context.outstanding += 1
        job = arrivals.take()
        place(job)
        if progress is not None and not job + 1 & _REPORT_MASK:
            progress(job + 1)


def _first(events: np.ndarray, number: int, horizon: int, end: int | None) -> int:
    """Return the tick of the next fault, or the tick up to which there is none; the schedule is extended as needed."""
    if number < len(events):
        return int(events[number]["tick"])
    return MAX_TICKS if horizon == end else horizon


def _never_served(context: RunContext, gone: np.ndarray) -> bool:
    """Return whether no device works and all waiting jobs need devices that have failed permanently."""
    if not gone.any() or any(station.job >= 0 for station in context.stations):
        return False
    return context.dispatcher.wait_only_for(gone.tolist())


def _end_of_users(context: RunContext) -> None:
    prepared, log = context.prepared, context.log
    log.truncate()
    if prepared.limit is not None and log.count < prepared.limit and not context.outstanding:
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
