"""The base of all stations: alarms, the order of events, and the interfaces through which a station sees the run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import heappush
from typing import Protocol

import simpy

from windtunnel.core.executor import Executed
from windtunnel.core.ticks import MAX_TICKS, to_ticks
from windtunnel.engine.event_log import EventLog, int_array
from windtunnel.engine.prepare.operation_faults import operation_faults_of
from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun
from windtunnel.engine.prepare.programs import BatchTable, Compiled, batch_cost, batch_table
from windtunnel.engine.process.queues import Queue
from windtunnel.engine.process.sources import JobSource
from windtunnel.scenario.faults import Ending
from windtunnel.scenario.program import OpStage

FINISH, FAULT, TIMER, SCALE = 0, 1, 2, 3
"""Kinds of event, in the order in which those of one tick are processed; arrivals follow them."""
_ENTITIES = 2**40


def event_order(kind: int, entity: int) -> int:
    """Return SimPy's priority of an event, which orders events of one tick by kind, entity and age."""
    return kind * _ENTITIES + entity


class Alarm(simpy.Event):
    """An event that can be set again after it has fired, so that a million jobs need no objects of their own."""

    def __init__(self, env: simpy.Environment, ring: Callable[[simpy.Event], None], order: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self._ring = [ring]
        self._order = order

    def set(self, delay: int) -> None:
        """Fire after ``delay`` ticks. An alarm must fire before it is set again."""
        self.callbacks = self._ring
        # The content of Environment.schedule without the call, which saves a seventh of the time of a short job. The
        # names are internal to SimPy, unchanged since 3.0; tests/unit/test_stations.py fails if they change.
        env = self.env
        heappush(env._queue, (env._now + delay, self._order, next(env._eid), self))


class Dispatcher(Protocol):
    """Assigns jobs to devices; stations report events to it and request work from it."""

    follows_load: bool
    """Whether it must be notified of every job that ends."""

    def place(self, job: int) -> None:
        """Queue a job that has arrived, or start it."""

    def feed(self, station: Station) -> None:
        """Give a station that may have room the work that it can take."""

    def queue_for(self, station: Station) -> Queue | None:
        """Return the queue whose next job a station should take; None if no job waits."""

    def offer_later(self, job: int, delay: int) -> None:
        """Offer waiting jobs again after ``delay``, when the batch headed by ``job`` starts even if it is not full."""

    def waiting(self, fleet_class: FleetClass) -> int:
        """Return how many jobs wait for devices of the class."""

    def left(self, job: int, station: Station) -> None:
        """Record that a job has left the device."""

    def offer(self) -> None:
        """Give every device with room the work that it can take."""

    def refresh(self, station: Station) -> None:
        """Record that the load or the availability of a device has changed."""

    def requeue(self, job: int, station: Station) -> None:
        """Return an interrupted job to its former place in the queue."""

    def take_all(self, station: Station) -> list[int]:
        """Remove and return the jobs that wait for this device alone."""

    def wait_only_for(self, gone: Sequence[bool]) -> bool:
        """Return whether all waiting jobs can be served only by these devices."""

    def take_unassigned(self) -> list[int]:
        """Remove and return the jobs that arrived while no device was up."""


class PowerBudget(Protocol):
    """Admits work while the power of the whole fleet stays within its budget (implemented by ``power.PowerGate``)."""

    refused: bool
    """Whether work was refused since this flag was last cleared."""
    paused: set[int]
    """The devices whose work is paused."""

    def may_start(self, station: Station, need_w: float) -> bool:
        """Reserve ``need_w`` (W above idle) for the station's next work, and return whether the budget allows it."""

    def release(self, station: Station) -> None:
        """Return the power that the station's work had reserved, because the work ended or stopped."""

    def set_cap(self, cap_w: float) -> None:
        """Change the budget of the whole fleet to ``cap_w`` watts."""

    def drain(self) -> None:
        """Resume paused work and start waiting work, as far as the budget allows it."""


class JobObserver(Protocol):
    """Is notified of every job that starts or ends (implemented by ``autoscaler.AutoscaleController``)."""

    def started(self, station: Station) -> None:
        """Record that the station has taken a job."""

    def ended(self, station: Station) -> None:
        """Record that a job on the station has completed or failed."""

    def close(self) -> None:
        """Write the totals to the event log at the end of the run."""


class FailureHandler(Protocol):
    """Decides what happens to jobs that a device could not complete (implemented by ``faults.FaultInjector``)."""

    def operation_failed(self, station: Station, jobs: Sequence[int], ending: Ending) -> None:
        """Retry, migrate or fail the jobs whose operation failed; reset the device if the fault says so."""

    def device_failed(self, station: Station, jobs: Sequence[int], executed: Executed, attempts: int) -> None:
        """Retry the jobs that a real device failed to execute, on another device if it is lost."""


class RunContext:
    """The state of one run that stations and dispatchers share."""

    dispatcher: Dispatcher
    stations: Sequence[Station]
    gate: PowerBudget | None = None
    job_source: JobSource | None = None
    """The source of jobs, if later jobs depend on how the run proceeds."""
    autoscaler: JobObserver | None = None
    fault_injector: FailureHandler

    def __init__(self, env: simpy.Environment, prepared: PreparedRun, log: EventLog) -> None:
        self.env = env
        self.prepared = prepared
        self.log = log
        self.slowdown = None if prepared.slowdown is None else array("d", prepared.slowdown.tobytes())
        if self.slowdown is not None and prepared.users:
            self.slowdown = array("d", [1.0]) * prepared.job_count
        """The slowdown of each job, if the scenario has stragglers."""
        self.operation_faults = operation_faults_of(prepared)
        """Faults of single operations, if the scenario has any."""
        self.outstanding = 0
        """Jobs that have arrived and neither completed nor failed; only maintained if ``job_source`` is set."""
        self.observed = bool(prepared.users or prepared.scaled)
        """Whether the job source or the autoscaler must be notified of every job that starts and ends."""
        self._quick: dict[int, array[int]] = {}
        self._batch_tables: dict[tuple[int, int], BatchTable | None] = {}

    def finished(self, job: int, station: Station) -> None:
        """Record that a job has ended now."""
        self.log.finish[job] = self.env.now
        if self.observed:
            self.observe_end(job, station)
        else:
            self.outstanding -= 1
        if self.dispatcher.follows_load:
            self.dispatcher.left(job, station)

    def observe_start(self, station: Station) -> None:
        """Record that a station has taken a job."""
        if self.autoscaler is not None:
            self.autoscaler.started(station)

    def observe_end(self, job: int, station: Station) -> None:
        """Record that a job has completed or failed."""
        self.outstanding -= 1
        if self.job_source is not None:
            self.job_source.job_finished(job, self.env.now)
        if self.autoscaler is not None:
            self.autoscaler.ended(station)

    def over(self) -> bool:
        """Return whether no job is present and none will arrive."""
        return self.job_source is not None and self.job_source.tick == MAX_TICKS and not self.outstanding

    def failed(self, job: int, station: Station) -> None:
        """Record that a job has failed now."""
        self.log.failed[job] = 1
        self.finished(job, station)

    def ended(self, station: Station) -> None:
        """Release the room and the power of work that has ended on a station."""
        if self.gate is None:
            self.dispatcher.feed(station)
            return
        self.gate.release(station)
        if self.dispatcher.follows_load:
            self.dispatcher.feed(station)
        else:
            self.dispatcher.refresh(station)
        self.gate.drain()

    def quick_ticks(self, compiled: Compiled) -> int | array[int]:
        """Return the durations of a one-segment program in the form that is fastest to read; cached."""
        single = compiled.single
        assert single is not None  # noqa: S101
        if isinstance(single.ticks, int):
            return single.ticks
        if id(compiled) not in self._quick:
            self._quick[id(compiled)] = int_array(single.ticks)
        return self._quick[id(compiled)]

    def batch_cost(self, station: Station, workload: int, jobs: Sequence[int]) -> tuple[int, float, int]:
        """Return (ticks, watts, ticks to the first token) of a request-level batch."""
        key = (station.class_number, workload)
        job_class, device = self.prepared.workloads[workload], station.fleet_class.device
        if key not in self._batch_tables:
            most = self.prepared.policy.batch.size
            self._batch_tables[key] = batch_table(job_class.program, device, job_class.source, most)
        table = self._batch_tables[key]
        ranks = [self.log.rank[job] for job in jobs]
        if table is None:
            return batch_cost(job_class.program, device, job_class.source, ranks, station.program(jobs[0]))
        seconds = float(table.seconds[len(jobs) - 1])
        if table.drawn:
            (stage,) = job_class.program
            assert isinstance(stage, OpStage)  # noqa: S101  only operations have a table of durations
            seconds *= float(max(job_class.source.variates(stage).values[rank] for rank in ranks))
        return to_ticks(seconds), float(table.watts[len(jobs) - 1]), 0


class Station:
    """The base class of the stations."""

    def __init__(self, context: RunContext, number: int, fleet_class: FleetClass) -> None:
        self.context = context
        self.env = context.env
        self.log = context.log
        self.number = number
        self.fleet_class = fleet_class
        self.class_number = fleet_class.number
        self.compiled: list[Compiled | None] = [
            context.prepared.compiled.get((fleet_class.number, w.number)) for w in context.prepared.workloads
        ]
        self.up = self.linked = True
        self.outages = 0
        """The number of reasons why the device is down: it failed, or it is being reset."""
        self.job = -1
        """The job in progress, or the first one of a batch; -1 if there is none."""
        self.held = False
        """Whether its job has ended but cannot be delivered, because the device is unreachable."""
        self.began = 0
        """The tick at which the present job or batch started."""

    def has_room(self) -> bool:
        """Return whether the station can start another job now."""
        raise NotImplementedError

    def take(self, queue: Queue) -> bool:
        """Start the next job or batch of ``queue``; return False if it must wait."""
        raise NotImplementedError

    def start(self, job: int) -> None:
        """Start one job that was not queued; the station must have room."""
        raise NotImplementedError

    def interrupt(self) -> list[int]:
        """Stop all work because the device has failed, and return its jobs."""
        raise NotImplementedError

    def deliver(self) -> None:
        """Deliver the job that was held while the device was unreachable."""
        raise NotImplementedError

    def set_speed(self, speed: float) -> None:
        """Work at this share of the full speed from now on."""
        raise NotImplementedError

    def pause(self) -> None:
        """Stop for lack of power, and keep the progress."""
        raise NotImplementedError

    def resume(self) -> None:
        """Continue after a pause."""
        raise NotImplementedError

    def close(self, end: int) -> None:
        """Record the work that is still in progress at the end of the run (ticks)."""

    def footprint(self, job: int, *, shared: bool = False) -> float:
        """Return the memory of a job (bytes); with ``shared``, without the weights that it shares with others."""
        compiled = self.program(job)
        need = compiled.footprint_bytes
        own = float(need[0] if need.size == 1 else need[self.log.rank[job]])
        return own - compiled.decoder.weight_bytes if shared and compiled.decoder is not None else own

    def program(self, job: int) -> Compiled:
        """Return the job's program, compiled for this class."""
        compiled = self.compiled[self.log.workload_of[job]]
        assert compiled is not None  # noqa: S101  routing only offers jobs that the class can run
        return compiled
