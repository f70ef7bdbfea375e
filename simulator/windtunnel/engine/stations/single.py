"""A device that works on one job, or one request-level batch, at a time."""

from __future__ import annotations

from array import array

import simpy

from windtunnel.core.ticks import to_seconds
from windtunnel.engine.fleet import FleetClass
from windtunnel.engine.queues import Queue
from windtunnel.engine.stations.base import FINISH, Alarm, RunContext, Station, event_order


class SingleStation(Station):
    """One job, or one request-level batch, at a time; its segments one after another."""

    def __init__(self, context: RunContext, number: int, fleet_class: FleetClass) -> None:
        super().__init__(context, number, fleet_class)
        order = event_order(FINISH, number)
        self.alarm = Alarm(self.env, self._rung, order)
        self.quick_alarm = Alarm(self.env, self._rung_quick, order)
        self.job = -1
        self.jobs: list[int] = []
        self.batch = context.prepared.policy.batch
        self._rest: list[tuple[str, str, int, float]] = []
        self._current: tuple[int, int, int, float] = (0, 0, 0, 0.0)
        # A program of one segment needs no more than its end: ticks for all, or an array of them by rank.
        self.quick: list[int | array[int] | None] = []
        for workload, compiled in enumerate(self.compiled):
            if compiled is None or not context.prepared.is_own_interval(compiled):
                self.quick.append(None)
            else:
                self.quick.append(context.quick_ticks(compiled))
                self.books.own_interval.add((self.class_number, workload))

    def has_room(self) -> bool:
        return self.job < 0

    def take(self, queue: Queue) -> bool:
        books, context = self.books, self.context
        if self.batch.kind == "none":
            self.start(queue.pop())
            return True
        waited = self.env.now - books.arrival[queue.head()[1]]
        wait = context.prepared.batch_wait_ticks
        if len(queue) < self.batch.size and waited < wait:
            context.dispatcher.look_again(queue.head()[1], wait - waited)
            return False
        jobs: list[int] = []
        memory = 0.0
        while queue and len(jobs) < self.batch.size:
            need = self.footprint(queue.head()[1], shared=bool(jobs))
            if jobs and memory + need > self.fleet_class.device.memory_bytes:
                break
            memory += need
            jobs.append(queue.pop())
        self._start_batch(jobs)
        return True

    def start(self, job: int) -> None:
        books = self.books
        now = self.env._now
        books.start[job] = now
        books.device[job] = self.number
        self.job = job
        quick = self.quick[books.workload_of[job]]
        if quick is not None:
            self.quick_alarm.set(quick if type(quick) is int else quick[books.rank[job]])  # type: ignore[index]
            return
        compiled = self.program(job)
        rank = books.rank[job]
        if compiled.first_ticks is not None:
            books.first[job] = now + int(compiled.first_ticks[rank])
        self.jobs = [job]
        segments = [segment for phase in compiled.phases(rank) for segment in phase[0]]
        self._rest = [(s.engine, s.name, *s.at(rank)) for s in reversed(segments)]
        self._next()

    def _start_batch(self, jobs: list[int]) -> None:
        books, context = self.books, self.context
        now = self.env.now
        workload = books.workload_of[jobs[0]]
        ticks, watts, first = context.batch_cost(self, workload, jobs)
        compiled = self.program(jobs[0])
        for job in jobs:
            books.start[job] = now
            books.device[job] = self.number
            if compiled.decoder is not None:
                books.first[job] = now + first
        self.job, self.jobs = jobs[0], jobs
        self._rest = [("compute", f"batch of {len(jobs)}", ticks, watts)]
        self._next()

    def _next(self) -> None:
        lane, name, ticks, watts = self._rest.pop()
        words = self.books.intervals
        self._current = (words.word(lane), words.word(name), self.env.now, watts)
        self.alarm.set(ticks)

    def _rung_quick(self, _event: simpy.Event) -> None:
        job, self.job = self.job, -1
        books, context = self.books, self.context
        books.finish[job] = self.env._now
        if context.dispatcher.follows_load:
            context.dispatcher.left(job, self)
        context.dispatcher.feed(self)

    def _rung(self, _event: simpy.Event) -> None:
        self._record(self.env.now)
        if self._rest:
            self._next()
            return
        books, context = self.books, self.context
        jobs, self.jobs, self.job = self.jobs, [], -1
        compiled = self.program(jobs[0])
        if compiled.outputs is not None:
            # Followed tokens are counted once they are all made, so that a run that stops counts none it did not see.
            if self.batch.kind == "none":
                books.add_gaps_of_lone(jobs[0], compiled)
            else:
                first = books.first[jobs[0]]
                books.add_gaps_of_batch(jobs, compiled, first, self.env.now - first)
        for job in jobs:
            context.finished(job, self)
        context.dispatcher.feed(self)

    def _record(self, end: int) -> None:
        lane, name, start, watts = self._current
        self.books.intervals.add(self.number, lane, name, start, end, watts)
        energy = watts * to_seconds(end - start) / len(self.jobs)
        for job in self.jobs:
            self.books.energy[job] += energy

    def close(self, end: int) -> None:
        if self.jobs:
            self._record(end)
