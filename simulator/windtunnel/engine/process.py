"""The process engine: a scenario as SimPy events, in every detail.

Where SimPy's time goes decided the shape of this part: a generator resumed costs 0.03 us, a callback 0.5, a spawned
process 1.7, a resource requested 3 (docs/decisions/0005-process-engine.md). So there is one alarm a device, set again
and again, arrivals stay outside the heap, and jobs are numbers into arrays, not processes.
"""

from __future__ import annotations

from collections.abc import Callable

import simpy

from windtunnel.core.errors import InputError
from windtunnel.core.result import Recording
from windtunnel.core.ticks import MAX_SECONDS
from windtunnel.engine import accounting
from windtunnel.engine.books import Books
from windtunnel.engine.dispatch import dispatcher_for
from windtunnel.engine.fleet import Prepared
from windtunnel.engine.stations import RunContext, station_for

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
    context.dispatcher = dispatcher_for(context, stations)
    try:
        _bring_arrivals(context, progress)
        _drain(env, prepared.end)
    except OverflowError:
        # A tick that no longer fits where ticks are kept.
        raise InputError(
            f"the work takes longer than the {MAX_SECONDS / 86400:.0f} days a run may last",
            where=prepared.scenario.where("workload"),
            expected="fewer or shorter jobs, more devices, or stop: {time: ...}",
        ) from None
    # A drained run ends with its last job, not with some alarm that nobody waited for any more.
    end = max(books.finish) if prepared.end is None else prepared.end
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
