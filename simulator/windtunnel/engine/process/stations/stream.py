"""A device that executes several jobs at a time, on streams, as far as its hardware engines allow."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import simpy

from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.engine.prepare.prepared import FleetClass
from windtunnel.engine.prepare.programs import WATT_GRAIN, Phase, round_power
from windtunnel.engine.process.queues import Queue
from windtunnel.engine.process.stations.base import FINISH, Alarm, RunContext, Station, event_order

Piece = tuple[str, str, int, float, float]
"""A segment of one job: engine, name, ticks, watts above idle, share of the engine."""


@dataclass(eq=False)
class _Task:
    """A job's sequence of segments on a stream: those that remain, and the progress of the present one."""

    run: _Run
    pieces: list[Piece]
    engine: str = ""
    name: str = ""
    left: float = 0.0
    watts: float = 0.0
    share: float = 1.0
    lane: int = 0
    since: int = 0
    rate: float = 0.0
    drawn: float = 0.0
    version: int = 0
    active_j: float = 0.0


@dataclass(eq=False)
class _Run:
    """A job on a stream: its remaining phases, and the number of unfinished tasks of the present one."""

    job: int
    slot: int
    phases: list[Phase]
    memory: float
    open: int = 0


@dataclass(eq=False)
class _Engine:
    """A hardware engine of a device: the tasks that wait for it in order, its used share, and its lanes."""

    waiting: deque[_Task] = field(default_factory=deque)
    used: float = 0.0
    free_lanes: list[int] = field(default_factory=list)
    lanes: int = 0

    def fits(self, share: float) -> bool:
        """Return whether ``share`` of the engine is free; the sum of reciprocal shares needs a small tolerance."""
        return self.used + share <= 1.0 + 1e-9

    def enter(self, task: _Task) -> None:
        """Take the task's share, on the lowest free lane."""
        self.used += task.share
        if self.free_lanes:
            task.lane = heappop(self.free_lanes)
        else:
            task.lane, self.lanes = self.lanes, self.lanes + 1

    def leave(self, task: _Task) -> None:
        """Release the task's share and lane."""
        heappush(self.free_lanes, task.lane)
        # The share of an idle engine is exactly zero, without the rounding errors of earlier sums.
        self.used = 0.0 if len(self.free_lanes) == self.lanes else self.used - task.share


class StreamStation(Station):
    """Several jobs at a time, on streams; each hardware engine serves segments in the order of their requests.

    A segment takes its share of its engine, usually all of it. The power of an active device is counted once, on a lane
    of its own, and divided among the running jobs. If the engines together would exceed the device's power limit, all
    of them slow down in proportion, so that the device stays at its limit and each segment uses the same energy.
    """

    def __init__(self, context: RunContext, number: int, fleet_class: FleetClass) -> None:
        super().__init__(context, number, fleet_class)
        context.log.overlapping.add(number)
        self.slots = list(range(fleet_class.streams))
        self.free_memory = fleet_class.device.memory_bytes
        self.engines: dict[str, _Engine] = {}
        self.running: dict[_Task, None] = {}
        self.demand_w = 0.0
        self.active_w = fleet_class.active_w
        self.headroom_w = max(round_power(fleet_class.limit_w) - fleet_class.idle_w - self.active_w, 0.0)
        self.is_active = False
        self.active_from = self.active_since = 0
        self.active_each_j = 0.0
        """The cumulated energy per job for being active (J); jobs store the difference."""

    def has_room(self) -> bool:
        """Return whether the station can start another job now."""
        return bool(self.slots) and self.up

    def take(self, queue: Queue) -> bool:
        """Start the next job or batch of ``queue``; return False if it must wait."""
        need = self.footprint(queue.head()[1])
        if need > self.free_memory:
            return False
        self._begin(queue.pop(), need)
        return True

    def start(self, job: int) -> None:
        """Start one job that was not queued; the station must have room."""
        self._begin(job, self.footprint(job))

    def _begin(self, job: int, need: float) -> None:
        log = self.log
        compiled = self.program(job)
        rank = log.rank[job]
        log.start[job] = self.env.now
        log.device[job] = self.number
        if self.context.observed:
            self.context.observe_start(self)
        if compiled.first_ticks is not None:
            log.first[job] = self.env.now + int(compiled.first_ticks[rank])
        self.free_memory -= need
        self._phase(_Run(job, heappop(self.slots), list(compiled.phases(rank))[::-1], need), rank)
        self._balance()

    def _phase(self, run: _Run, rank: int) -> None:
        phase = run.phases.pop()
        run.open = len(phase)
        for body in phase:
            self._ask(_Task(run, [(s.engine, s.name, *s.at(rank), s.share) for s in body][::-1]))

    def _ask(self, task: _Task) -> None:
        """Request the hardware engine of the task's next segment."""
        task.engine, task.name, ticks, task.watts, task.share = task.pieces.pop()
        task.watts = max(task.watts - self.active_w, 0.0)
        task.left = float(ticks)
        engine = self.engines.setdefault(task.engine, _Engine())
        if engine.waiting or not engine.fits(task.share):
            engine.waiting.append(task)
        else:
            self._occupy(task, engine)

    def _occupy(self, task: _Task, engine: _Engine) -> None:
        engine.enter(task)
        self._share_active()
        self.running[task] = None
        task.active_j = self.active_each_j
        self.demand_w += task.watts
        task.since, task.rate = self.env.now, 0.0

    def _share_active(self) -> None:
        """Divide the energy for being active since the last call among the jobs that ran."""
        now = self.env.now
        if self.running:
            self.active_each_j += self.active_w * ((now - self.active_since) / TICKS_PER_SECOND) / len(self.running)
        if not self.is_active:
            self.is_active, self.active_from = True, now
        self.active_since = now

    def _record_active(self) -> None:
        words = self.log.intervals
        now = self.env.now
        self.is_active = False
        if self.active_w:
            words.add(self.number, words.word("board"), words.word("active"), self.active_from, now, self.active_w)

    def _balance(self) -> None:
        """Continue all running tasks at the rate that the device's power limit allows now."""
        demand = self.demand_w
        rate = 1.0 if demand <= self.headroom_w or demand == 0.0 else self.headroom_w / demand
        for task in self.running:
            if task.rate == rate:
                continue
            self._settle(task)
            task.rate = rate
            # Shares of the power are rounded down to the grain, so that their sum never exceeds the limit.
            task.drawn = task.watts if rate == 1.0 else math.floor(task.watts * rate / WATT_GRAIN) * WATT_GRAIN
            task.version += 1
            event = Alarm(self.env, self._rung(task, task.version), event_order(FINISH, self.number))
            event.set(math.ceil(task.left / rate) if rate < 1.0 else round(task.left))

    def _settle(self, task: _Task) -> None:
        """Record the task's progress since the last call."""
        now = self.env.now
        if now > task.since and task.rate > 0:
            task.left = max(task.left - (now - task.since) * task.rate, 0.0)
            words = self.log.intervals
            lane = task.engine if task.lane == 0 else f"{task.engine} {task.lane + 1}"
            words.add(self.number, words.word(lane), words.word(task.name), task.since, now, task.drawn)
            self.log.energy[task.run.job] += task.drawn * ((now - task.since) / TICKS_PER_SECOND)
        task.since = now

    def _rung(self, task: _Task, version: int) -> Callable[[simpy.Event], None]:
        def ring(_event: simpy.Event) -> None:
            if task.version == version:
                self._end(task)

        return ring

    def _end(self, task: _Task) -> None:
        """End the task's segment: continue those that wait for its engine, then the task itself."""
        self._settle(task)
        task.version += 1
        self._share_active()
        self.log.energy[task.run.job] += self.active_each_j - task.active_j
        del self.running[task]
        self.demand_w -= task.watts
        engine = self.engines[task.engine]
        engine.leave(task)
        while engine.waiting and engine.fits(engine.waiting[0].share):
            self._occupy(engine.waiting.popleft(), engine)
        run = task.run
        if task.pieces:
            self._ask(task)
        else:
            run.open -= 1
            if not run.open and run.phases:
                self._phase(run, self.log.rank[run.job])
        self._balance()
        if not self.running:
            self._record_active()
        if not run.open:
            heappush(self.slots, run.slot)
            self.free_memory += run.memory
            compiled = self.program(run.job)
            if compiled.first_ticks is not None:
                self.log.add_gaps_of_request(run.job, compiled)
            self.context.finished(run.job, self)
            self.context.dispatcher.feed(self)

    def close(self, end: int) -> None:
        """Record the work that is still in progress at the end of the run (ticks)."""
        if self.is_active:
            self._share_active()
            self._record_active()
        for task in self.running:
            self._settle(task)
            self.log.energy[task.run.job] += self.active_each_j - task.active_j
