"""The process engine: a scenario as SimPy events, in every detail.

Where SimPy's time goes decided the shape of this part: a generator resumed costs 0.03 us, a callback 0.5, a spawned
process 1.7, a resource requested 3 (docs/decisions/0005-process-engine.md). So there is one alarm a device, set again
and again, arrivals stay outside the heap, and jobs are numbers into arrays, not processes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import simpy

from windtunnel.core.errors import InputError
from windtunnel.core.result import Recording
from windtunnel.core.ticks import MAX_SECONDS, MAX_TICKS
from windtunnel.engine import accounting
from windtunnel.engine.books import Books
from windtunnel.engine.dispatch import dispatcher_for
from windtunnel.engine.faults import FaultSchedule, look_ahead
from windtunnel.engine.fleet import Prepared
from windtunnel.engine.incidents import Incidents
from windtunnel.engine.power import PowerGate
from windtunnel.engine.stations import TIMER, RunContext, event_order, station_for

Progress = Callable[[int], None]
_REPORT_MASK = 255


def run(prepared: Prepared, progress: Progress | None = None) -> Recording:
    """Run a prepared scenario to its end, and account for all of it.

    ``progress`` is told now and then how many jobs have arrived.
    """
    env = simpy.Environment(initial_time=0)
    books = Books(prepared)
    context = RunContext(env, prepared, books)
    stations = [station_for(context, c.first + i, c) for c in prepared.classes for i in range(c.count)]
    context.stations = stations
    if prepared.budget_w is not None:
        context.gate = PowerGate(context, prepared.budget_w, prepared.idle_w)
    context.dispatcher = dispatcher_for(context, stations)
    try:
        if prepared.faults is None:
            _bring_arrivals(context, progress)
            _drain(env, prepared.end)
        else:
            _bring_faults_too(context, prepared.faults, progress)
    except OverflowError:
        # A tick that no longer fits where ticks are kept.
        raise InputError(
            f"the work takes longer than the {MAX_SECONDS / 86400:.0f} days a run may last",
            where=prepared.scenario.where("workload"),
            expected="fewer or shorter jobs, more devices, or stop: {time: ...}",
        ) from None
    # A drained run ends with its last job, not with some alarm that nobody waited for any more.
    # Jobs that no device will ever take have arrived all the same, and may have been started.
    last = max(*books.finish, *books.returned_end, books.arrival[-1])
    end = last if prepared.end is None else prepared.end
    for station in stations:
        station.close(end)
    if progress is not None:
        progress(books.count)
    return accounting.record(prepared, books, end)


def _drain(env: simpy.Environment, end: int | None) -> None:
    """Let what is under way go on, up to and including the tick ``end``."""
    queue, step = env._queue, env.step
    while queue and (end is None or queue[0][0] <= end):
        step()


def _bring_arrivals(context: RunContext, progress: Progress | None) -> None:
    """Let time pass from arrival to arrival.

    Arrivals are known in order, so they need no place in SimPy's heap: a third of the time of a short job. Of the
    events of one tick they come last, so all others up to that tick go first.
    """
    env, arrival, place = context.env, context.books.arrival, context.dispatcher.place
    queue, step = env._queue, env.step
    for job, tick in enumerate(arrival):
        while queue and queue[0][0] <= tick:
            step()
        env._now = tick
        place(job)
        if progress is not None and not job & _REPORT_MASK:
            progress(job)


def _bring_faults_too(context: RunContext, schedule: FaultSchedule, progress: Progress | None) -> None:
    """Let time pass from arrival to arrival and from fault to fault, until the run is over."""
    env, arrival, end = context.env, context.books.arrival, context.prepared.end
    queue, step = env._queue, env.step
    incidents = Incidents(context)
    horizon = look_ahead(context.prepared.arrival, end)
    events = schedule.until(horizon)
    gone = schedule.gone(context.prepared.device_count)
    job = number = 0
    before_timers = event_order(TIMER, 0)
    while True:
        # The schedule is known for so long; no one looks further ahead than the run gets.
        later = MAX_TICKS if horizon == end else horizon
        fault = int(events[number]["tick"]) if number < len(events) else later
        tick = arrival[job] if job < len(arrival) else MAX_TICKS
        if fault <= tick:
            while queue and (queue[0][0] < fault or (queue[0][0] == fault and queue[0][1] < before_timers)):
                if end is not None and queue[0][0] > end:
                    return
                step()
            over = job == len(arrival) and (not context.outstanding or _hopeless(context, gone < fault))
            if over or fault >= MAX_TICKS:
                _drain(env, end)
                return
            if number == len(events):
                horizon = min(2 * horizon, MAX_TICKS)
                events = schedule.until(horizon)
                continue
            env._now = fault
            incidents.happen(events[number])
            number += 1
            continue
        while queue and queue[0][0] <= tick:
            step()
        env._now = tick
        context.outstanding += 1
        context.dispatcher.place(job)
        job += 1
        if progress is not None and not job & _REPORT_MASK:
            progress(job)


def _hopeless(context: RunContext, gone: np.ndarray) -> bool:
    """Whether nothing is under way, and all that wait do so for devices that have failed for good."""
    if not gone.any() or any(station.job >= 0 for station in context.stations):
        return False
    return context.dispatcher.wait_only_for(gone.tolist())
