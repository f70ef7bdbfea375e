"""Fault injection: applies the effects of faults to devices, queues and jobs (process engine)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.core.executor import Executed
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.fault_schedule import CAP, FAIL, JOBS, LINK_DOWN, LINK_UP, LOSE, MIGRATE, SPEED
from windtunnel.engine.process.stations import FAULT, Alarm, RunContext, Station, event_order
from windtunnel.scenario.faults import Ending


class FaultInjector:
    """Applies events of the fault schedule, and the consequences of failed operations and devices."""

    def __init__(self, context: RunContext) -> None:
        self.context = context

    def apply(self, event: np.void) -> None:
        """Apply an event of the schedule now."""
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
                # The device may have been first in line for power, which the following ones can use now.
                gate.drain()
        else:
            if code == LINK_UP:
                station.linked = True
            else:
                _be_up(station)
            self._back(station)

    def operation_failed(self, station: Station, jobs: Sequence[int], ending: Ending) -> None:
        """Retry, migrate or fail the jobs whose operation failed; reset the device if the fault says so."""
        if self.context.gate is not None:
            self.context.gate.release(station)
        if ending.reset_time is not None:
            self._down_for(station, to_ticks(ending.reset_time))
        self._return(station, jobs, JOBS[ending.on_failure], ending.max_attempts)

    def device_failed(self, station: Station, jobs: Sequence[int], executed: Executed, attempts: int) -> None:
        """Retry the jobs that a real device failed to execute, on another device if it is lost."""
        if self.context.gate is not None:
            self.context.gate.release(station)
        if executed.gone and executed.back_s is not None:
            self._down_for(station, to_ticks(executed.back_s))
        elif executed.gone:
            _be_down(station)
        self._return(station, jobs, MIGRATE, attempts)

    def _down_for(self, station: Station, ticks: int) -> None:
        """Take the device down for a reset of this length."""
        _be_down(station)
        now, log = self.context.env.now, self.context.log
        for column, value in zip(
            (log.reset_on, log.reset_start, log.reset_end), (station.number, now, now + ticks), strict=True
        ):
            column.append(value)
        Alarm(self.context.env, lambda _event: self._reset(station), event_order(FAULT, station.number)).set(ticks)

    def _reset(self, station: Station) -> None:
        _be_up(station)
        self._back(station)

    def _fail(self, station: Station, becomes: int, attempts: int) -> None:
        """Take the device down; its jobs are retried, migrated or failed."""
        gate = self.context.gate
        _be_down(station)
        held = station.held
        jobs = station.interrupt()
        if jobs and gate is not None and not held:
            gate.release(station)
        self._return(station, jobs, becomes, attempts)

    def _return(self, station: Station, jobs: Sequence[int], becomes: int, attempts: int) -> None:
        """Retry, migrate or fail the jobs that a device could not complete.

        If the device is down, the jobs that wait for it are migrated too.
        """
        context, log, gate = self.context, self.context.log, self.context.gate
        dispatcher = context.dispatcher
        moving = becomes == MIGRATE and dispatcher.follows_load
        moved: list[int] = []
        given_up = 0
        for job in jobs:
            if becomes == LOSE or log.starts[job] >= attempts:
                context.failed(job, station)
                given_up += 1
                continue
            log.start[job] = log.device[job] = -1
            if moving:
                dispatcher.left(job, station)
                moved.append(job)
            else:
                dispatcher.requeue(job, station)
        log.add_interrupted(len(jobs) - given_up, station.began, context.env.now)
        if moving and not station.up:
            for job in dispatcher.take_all(station):
                dispatcher.left(job, station)
                moved.append(job)
        dispatcher.refresh(station)
        for job in moved:
            dispatcher.place(job)
        if not dispatcher.follows_load:
            dispatcher.offer()
        elif station.up:
            dispatcher.feed(station)
        if gate is not None:
            gate.drain()

    def _back(self, station: Station) -> None:
        """Use the device again, if it is up and reachable."""
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
        for job in dispatcher.take_unassigned():
            dispatcher.place(job)
        if central and context.gate is not None:
            context.gate.drain()


def _be_down(station: Station) -> None:
    station.outages += 1
    station.up = False


def _be_up(station: Station) -> None:
    station.outages -= 1
    station.up = not station.outages
