"""What a fault does to devices, queues and jobs in the process engine."""

from __future__ import annotations

import numpy as np

from windtunnel.engine.faults import CAP, FAIL, LINK_DOWN, LINK_UP, LOSE, MIGRATE, SPEED
from windtunnel.engine.stations import RunContext, Station


class Incidents:
    """Applies the events of a fault schedule, one after another."""

    def __init__(self, context: RunContext) -> None:
        self.context = context

    def happen(self, event: np.void) -> None:
        """``event`` (a record of the schedule) happens now."""
        code = int(event["code"])
        gate = self.context.gate
        if code == CAP:
            assert gate is not None  # noqa: S101  budgets make a gate
            gate.set_cap(float(event["value"]))
            return
        station = self.context.stations[int(event["on"])]
        if code == FAIL:
            self._fail(station, int(event["jobs"]), int(event["attempts"]))
        elif code == SPEED:
            station.set_speed(float(event["value"]))
        elif code == LINK_DOWN:
            station.linked = False
            self.context.dispatcher.refresh(station)
            if gate is not None:
                # It may have been first in line for power, which falls to those behind it.
                gate.drain()
        else:
            if code == LINK_UP:
                station.linked = True
            else:
                station.up = True
            self._back(station)

    def _fail(self, station: Station, becomes: int, attempts: int) -> None:
        """The device stops: its work is interrupted, and tried again, moved or given up."""
        context, books, gate = self.context, self.context.books, self.context.gate
        dispatcher = context.dispatcher
        moving = becomes == MIGRATE and dispatcher.follows_load
        station.up = False
        held = station.held
        jobs = station.interrupt()
        if jobs and gate is not None and not held:
            gate.release(station)
        moved: list[int] = []
        given_up = 0
        for job in jobs:
            if becomes == LOSE or books.starts[job] >= attempts:
                context.failed(job, station)
                given_up += 1
                continue
            books.start[job] = books.device[job] = -1
            if moving:
                dispatcher.left(job, station)
                moved.append(job)
            else:
                dispatcher.requeue(job, station)
        books.add_returned(len(jobs) - given_up, station.began, context.env.now)
        if moving:
            for job in dispatcher.emptied(station):
                dispatcher.left(job, station)
                moved.append(job)
        dispatcher.refresh(station)
        for job in moved:
            dispatcher.place(job)
        if not dispatcher.follows_load:
            dispatcher.offer()
        if gate is not None:
            gate.drain()

    def _back(self, station: Station) -> None:
        """The device can be used again, if it is up and can be reached."""
        if not (station.up and station.linked):
            return
        context = self.context
        dispatcher = context.dispatcher
        if station.held:
            station.deliver()
        dispatcher.refresh(station)
        central = not dispatcher.follows_load
        if not (central and context.gate is not None):
            dispatcher.feed(station)
        for job in dispatcher.stranded():
            dispatcher.place(job)
        if central and context.gate is not None:
            context.gate.drain()
