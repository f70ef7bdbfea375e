"""A device that executes one job, or one request-level batch, at a time."""

from __future__ import annotations

import math
from array import array

import simpy

from windtunnel.core.ticks import to_seconds
from windtunnel.engine.prepare.operation_faults import OperationFaultInjector
from windtunnel.engine.prepare.prepared import FleetClass
from windtunnel.engine.prepare.programs import WATT_GRAIN
from windtunnel.engine.process.queues import Queue
from windtunnel.engine.process.stations.base import FINISH, Alarm, RunContext, Station, event_order
from windtunnel.scenario.faults import Ending


class SingleStation(Station):
    """One job, or one request-level batch, at a time; its segments run one after another."""

    def __init__(self, context: RunContext, number: int, fleet_class: FleetClass) -> None:
        super().__init__(context, number, fleet_class)
        order = event_order(FINISH, number)
        self.alarm = Alarm(self.env, self._rung, order)
        self.quick_alarm = Alarm(self.env, self._rung_quick, order)
        self.jobs: list[int] = []
        self.batch = context.prepared.policy.batch
        self._rest: list[tuple[str, str, int, float]] = []
        # The present segment: lane, name, the tick from which it is accounted for, and watts at full speed; then its
        # remaining ticks at full speed.
        self._current: tuple[int, int, int, float] = (0, 0, 0, 0.0)
        self._left = 0
        self._speed = 1.0
        self._slowdown = 1.0
        self._alarms = 0
        # Work that can be interrupted needs alarms that can be cancelled.
        self._paused = False
        # How the present operation ends if a fault affects it.
        self._ending: Ending | None = None
        self._place = 0
        self._timed = self._garbled = False
        self._steady = not context.prepared.interrupts
        # A one-segment program needs only its end: ticks for all jobs, or an array of them by rank.
        self.quick: list[int | array[int] | None] = []
        for workload, compiled in enumerate(self.compiled):
            if compiled is None or not context.prepared.is_own_interval(compiled):
                self.quick.append(None)
            else:
                self.quick.append(context.quick_ticks(compiled))
                self.log.own_interval.add((self.class_number, workload))

    def has_room(self) -> bool:
        """Return whether the station can start another job now."""
        return self.job < 0 and self.up and self.linked

    def take(self, queue: Queue) -> bool:
        """Start the next job or batch of ``queue``; return False if it must wait."""
        log, context = self.log, self.context
        gate = context.gate
        if self.batch.kind == "none":
            if gate is not None and not gate.may_start(self, self._peak(queue.head()[1])):
                return False
            self.start(queue.pop())
            return True
        waited = self.env.now - log.arrival[queue.head()[1]]
        wait = context.prepared.batch_wait_ticks
        if len(queue) < self.batch.size and waited < wait:
            context.dispatcher.offer_later(queue.head()[1], wait - waited)
            return False
        jobs: list[int] = []
        memory = 0.0
        for job in queue.first(self.batch.size):
            need = self.footprint(job, shared=bool(jobs))
            if jobs and memory + need > self.fleet_class.device.memory_bytes:
                break
            memory += need
            jobs.append(job)
        cost = context.batch_cost(self, log.workload_of[jobs[0]], jobs)
        if gate is not None and not gate.may_start(self, cost[1]):
            return False
        for _ in jobs:
            queue.pop()
        self._start_batch(jobs, cost)
        return True

    def _peak(self, job: int) -> float:
        """Return the peak power of the job above idle (W)."""
        rank = self.log.rank[job]
        return max(s.at(rank)[1] for phase in self.program(job).phases(rank) for s in phase[0])

    def start(self, job: int) -> None:
        """Start one job that was not queued; the station must have room."""
        log = self.log
        now = self.env._now
        log.start[job] = now
        log.device[job] = self.number
        if self.context.observed:
            self.context.observe_start(self)
        self.job = job
        quick = self.quick[log.workload_of[job]]
        if quick is not None:
            ticks = quick if type(quick) is int else quick[log.rank[job]]  # type: ignore[index]
            self.quick_alarm.set(ticks if self.context.slowdown is None else self._slowed_down(ticks, job))
            return
        self.began = now
        log.starts[job] += 1
        compiled = self.program(job)
        rank = log.rank[job]
        if compiled.first_ticks is not None:
            log.first[job] = now + int(compiled.first_ticks[rank])
        self.jobs = [job]
        self._slowdown = 1.0 if self.context.slowdown is None else self.context.slowdown[job]
        segments = [segment for phase in compiled.phases(rank) for segment in phase[0]]
        self._rest = [(s.engine, s.name, *s.at(rank)) for s in reversed(segments)]
        self._place, self._garbled = 0, False
        self._next()

    def _start_batch(self, jobs: list[int], cost: tuple[int, float, int]) -> None:
        log = self.log
        now = self.began = self.env.now
        ticks, watts, first = cost
        compiled = self.program(jobs[0])
        for job in jobs:
            log.start[job] = now
            log.device[job] = self.number
            if self.context.observed:
                self.context.observe_start(self)
            log.starts[job] += 1
            if compiled.decoder is not None:
                log.first[job] = now + first
        self.job, self.jobs = jobs[0], jobs
        slowdown = self.context.slowdown
        self._slowdown = 1.0 if slowdown is None else max(slowdown[job] for job in jobs)
        self._rest = [("compute", f"batch of {len(jobs)}", ticks, watts)]
        self._next()

    def _slowed_down(self, ticks: int, job: int) -> int:
        slowdown = self.context.slowdown
        assert slowdown is not None  # noqa: S101
        return ticks if slowdown[job] == 1.0 else round(float(ticks) * slowdown[job])

    def _next(self) -> None:
        lane, name, ticks, watts = self._rest.pop()
        words = self.log.intervals
        self._current = (words.word(lane), words.word(name), self.env.now, watts)
        self._left = ticks if self._slowdown == 1.0 else round(float(ticks) * self._slowdown)
        if self.context.operation_faults is not None:
            self._apply_operation_fault(self.context.operation_faults, name)
        self._go()

    def _apply_operation_fault(self, faults: OperationFaultInjector, operation: str) -> None:
        """Apply a fault of the present operation to its duration and its end."""
        log, job = self.log, self.job
        place, self._place = self._place, self._place + 1
        work, rank, attempt = log.workload_of[job], log.rank[job], log.starts[job]
        effect = faults.effect_on(self.class_number, work, rank, attempt, place, operation, self._left, self.env.now)
        if effect is None:
            return
        self._ending = effect.ending
        self._garbled = self._garbled or effect.corrupt
        if effect.slowdown != 1.0:
            self._left = round(float(self._left) * effect.slowdown)
        if effect.ticks is not None:
            # The watchdog's time does not depend on the device's speed.
            self._left, self._timed = effect.ticks, True

    @property
    def _pace(self) -> float:
        """Return the rate at which the remaining ticks of the present segment pass."""
        return 1.0 if self._timed else self._speed

    def _go(self) -> None:
        """Continue the present segment from now."""
        lane, name, _, watts = self._current
        self._current = (lane, name, self.env.now, watts)
        pace = self._pace
        ticks = self._left if pace == 1.0 else math.ceil(float(self._left) / pace)
        if self._steady:
            self.alarm.set(ticks)
            return
        self._alarms += 1
        number = self._alarms
        Alarm(
            self.env,
            lambda event: self._rung(event) if number == self._alarms else None,
            event_order(FINISH, self.number),
        ).set(ticks)

    def _halt(self) -> None:
        """Stop the present segment and record its progress."""
        now = self.env.now
        self._record(now)
        lane, name, since, watts = self._current
        pace = self._pace
        done = now - since if pace == 1.0 else math.floor(float(now - since) * pace)
        self._left = max(self._left - done, 0)
        self._current = (lane, name, now, watts)
        self._alarms += 1

    def interrupt(self) -> list[int]:
        """Stop all work because the device has failed, and return its jobs."""
        jobs, self.jobs, self.job = self.jobs, [], -1
        if jobs and not self.held and not self._paused:
            self.jobs = jobs
            self._halt()
            self.jobs = []
        self._rest, self.held, self._paused = [], False, False
        self._ending, self._timed = None, False
        return jobs

    def set_speed(self, speed: float) -> None:
        """Work at this share of the full speed from now on."""
        under_way = self.job >= 0 and not self.held and not self._paused
        if under_way:
            self._halt()
        self._speed = speed
        if under_way:
            self._go()

    def pause(self) -> None:
        """Stop for lack of power, and keep the progress."""
        self._halt()
        self._paused = True

    def resume(self) -> None:
        """Continue after a pause."""
        self._paused = False
        self._go()

    def deliver(self) -> None:
        """Complete the job that was held while the device was unreachable."""
        self.held = False
        self._hand_over()

    def _rung_quick(self, _event: simpy.Event) -> None:
        job, self.job = self.job, -1
        log, context = self.log, self.context
        log.finish[job] = self.env._now
        if context.observed:
            context.observe_end(job, self)
        if context.dispatcher.follows_load:
            context.dispatcher.left(job, self)
        if context.gate is None:
            context.dispatcher.feed(self)
        else:
            context.ended(self)

    def _rung(self, _event: simpy.Event) -> None:
        self._record(self.env.now)
        if self._failed_operation():
            return
        if self._rest:
            self._next()
            return
        if self.linked:
            self._hand_over()
            self.context.ended(self)
            return
        self.held = True
        if self.context.gate is not None:
            self.context.gate.release(self)
            self.context.gate.drain()

    def _failed_operation(self) -> bool:
        """Fail the job if a fault affects the present operation, and return whether it does."""
        ending = self._ending
        if ending is None:
            return False
        jobs, self.jobs, self.job = self.jobs, [], -1
        self._rest, self._ending, self._timed = [], None, False
        self.context.fault_injector.operation_failed(self, jobs, ending)
        return True

    def _hand_over(self) -> None:
        """Complete the jobs in progress."""
        log, context = self.log, self.context
        jobs, self.jobs, self.job = self.jobs, [], -1
        log.corrupted += self._garbled
        compiled = self.program(jobs[0])
        if compiled.outputs is not None:
            # Gaps between tokens are counted when all tokens exist, so that a run that stops counts only complete
            # requests.
            if self.batch.kind == "none":
                log.add_gaps_of_request(jobs[0], compiled)
            else:
                first = log.first[jobs[0]]
                log.add_gaps_of_batch(jobs, compiled, first, self.env.now - first)
        for job in jobs:
            context.finished(job, self)

    def _record(self, end: int) -> None:
        lane, name, start, watts = self._current
        if self._speed != 1.0:
            watts = math.floor(watts * self._speed / WATT_GRAIN) * WATT_GRAIN
        self.log.intervals.add(self.number, lane, name, start, end, watts)
        energy = watts * to_seconds(end - start) / len(self.jobs)
        for job in self.jobs:
            self.log.energy[job] += energy

    def close(self, end: int) -> None:
        """Record the work that is still in progress at the end of the run (ticks)."""
        if self.jobs and not self.held and not self._paused:
            self._record(end)
