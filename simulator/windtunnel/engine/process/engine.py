"""The process engine: executes the transitions of a fleet, in time that SimPy keeps.

It is for reading, and for what needs a real clock (devices of this host). The compiled engine executes the same
transitions, compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import simpy

from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.core.ticks import LONGEST, MAX_TICKS
from windtunnel.engine.prepare.fault_schedule import initial_horizon
from windtunnel.engine.prepare.jobs import BLOCK, job_blocks
from windtunnel.engine.prepare.prepared import PreparedRun, with_capacity
from windtunnel.engine.prepare.users import CapacityExceededError
from windtunnel.engine.process.clock import Clock
from windtunnel.engine.process.plain import plain, records_of, rows
from windtunnel.engine.results import accounting
from windtunnel.engine.results.lost import Watch
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.answers import Answers
from windtunnel.engine.transitions.build import Words, build
from windtunnel.engine.transitions.dispatch import arrive
from windtunnel.engine.transitions.event_log import event_log
from windtunnel.engine.transitions.events import (
    check_served,
    close,
    consequence,
    end_work,
    expire,
    has_consequences,
    never_served,
    room,
)
from windtunnel.engine.transitions.faults import apply_fault
from windtunnel.engine.transitions.prefix_tables import index_of, more_nodes
from windtunnel.engine.transitions.prefixes import index_nodes
from windtunnel.engine.transitions.tables import ARRIVAL_EVENT, COMPLETION, DECIDE, ENTITIES, FAULT_EVENT, NEVER
from windtunnel.engine.transitions.user_tables import think_ticks
from windtunnel.engine.transitions.users import next_arrival

Progress = Callable[[int], None]
_REPORT_MASK = 255
_ROWS = 64
"""The initial number of rows of tables that grow with the run."""


def run(prepared: PreparedRun, progress: Progress | None = None, watch: Watch | None = None) -> Recording:
    """Run a prepared scenario to its end, and return its recording.

    ``progress`` is called repeatedly with the number of jobs that have arrived.

    Raises:
        InputError: if the work takes longer than a run may last.
        TargetsLostError: ``watch`` found that a target is lost for certain.
    """
    return with_capacity(lambda run: _Run(run, progress, watch).execute(), prepared)


class _Run:
    """One run: the tables, the clock, and what happens."""

    def __init__(self, prepared: PreparedRun, progress: Progress | None, watch: Watch | None = None) -> None:
        self.prepared = prepared
        self.progress, self.watch = progress, watch
        self.words = Words()
        self.env = simpy.Environment(initial_time=0)
        self.clock = Clock(self.env, prepared.device_count)
        self.world = plain(build(prepared, self.words, _ROWS, _ROWS), self.clock)
        self.answers = Answers(prepared)
        policy = prepared.policy
        self.score, self.key = policy.route.score, policy.order.key
        self.decode_score = prepared.decode_score
        self.blocks = job_blocks(prepared, BLOCK if watch is None else watch.block)
        self.arriving = True
        """Whether jobs will still arrive."""
        self.last_arrival = 0

    def execute(self) -> Recording:
        """Process one event after another, each with all its consequences, and return the recording."""
        self.begin()
        while self.step():
            pass
        return self.finish()

    def begin(self) -> None:
        """Start the sources of events."""
        self.clock.follow_arrivals(self._next_arrival)
        schedule, end = self.prepared.faults, self.prepared.end
        if schedule is not None:
            horizon = initial_horizon(self.prepared.arrival, end)
            last = MAX_TICKS if end is None else end
            self.env.process(self.clock.follow_faults(lambda tick: rows(schedule.until(tick)), horizon, last))
        self.answers.begin(self.world)

    def step(self) -> bool:
        """Process the next event with all its consequences; return whether there was one."""
        r = self.world.run[0]
        event = self.clock.next(int(r.end))
        if event is None:
            return False
        order, subject = event
        r.now = self.env.now
        if order >= ENTITIES and self._is_over(order // ENTITIES):
            return False
        self._happen(order, subject)
        self._consequences()
        return True

    def finish(self) -> Recording:
        """Return the recording, after the last event."""
        if self.world.run[0].end == NEVER - 1 and self.clock.never_ends():
            self._fail_too_long()
        return self._recording()

    def _is_over(self, kind: int) -> bool:
        """Return whether the run is over before an event that does not complete work."""
        r = self.world.run[0]
        if self.arriving or r.running > r.strandeds or r.continues:
            return False
        if r.waiting + r.running == 0:
            return True
        if kind not in (FAULT_EVENT, DECIDE):
            return False
        # Faults of the tick of a decision have happened.
        fault = r.now + (kind == DECIDE)
        return check_served(r, fault) and never_served(self.prepared, self.world, fault)

    def _happen(self, order: int, subject: Any) -> None:
        """Process an event."""
        self._make_room()
        world, kind = self.world, order // ENTITIES
        if kind == COMPLETION:
            end_work(world, order)
        elif kind == FAULT_EVENT:
            if subject is not None:
                apply_fault(world, subject)
        elif kind == ARRIVAL_EVENT:
            self.last_arrival = self.env.now
            arrive(world, self.key)
            self.clock.arrived.succeed()
            if self.progress is not None and not world.run[0].arrived & _REPORT_MASK:
                self.progress(world.run[0].arrived)
        else:
            expire(world, order)

    def _consequences(self) -> None:
        """Execute what the event causes, before anything else happens."""
        world, r = self.world, self.world.run[0]
        while r.asking or has_consequences(world):
            if r.asking:
                self.answers.answer(world)
            else:
                consequence(world, self.score, self.decode_score)
        if r.too_long:
            self._fail_too_long()
        if r.exceeded:
            self._make_room()

    def _fail_too_long(self) -> NoReturn:
        raise InputError(
            f"the work takes longer than the {LONGEST} a run may last",
            where=self.prepared.scenario.where("workload"),
            expected="fewer or shorter jobs, more devices, or stop: {time: ...}",
        )

    # The sources of events.

    def _next_arrival(self) -> int | None:
        """Return the tick of the next arrival; None if none is known."""
        world: Any = self.world
        r = world.run[0]
        while r.next >= len(world.arrivals) and not r.last:
            if self.watch is not None and r.arrived:
                jobs = records_of(world.jobs[: r.arrived], tables.JOB)
                self.watch.check(r.now, jobs, records_of(world.gaps[: r.gaps], tables.GAP))
            block = next(self.blocks, None)
            if block is None:
                r.last = 1
                break
            table = tables.records(len(block.arrival), tables.ARRIVAL)
            table.tick, table.work, table.rank = block.arrival, block.workload, block.rank
            table.signature = block.signature
            table.stretch = 1.0 if block.slowdown is None else block.slowdown
            world.arrivals, world.arrival_draws, r.next = rows(table), block.draws, 0
        tick = next_arrival(self.world)
        self.arriving = tick != NEVER
        return tick if self.arriving else None

    # Tables.

    def _make_room(self) -> None:
        """Enlarge the tables that may be too small for the next event."""
        world: Any = self.world
        r = world.run[0]
        while True:
            match room(world):
                case tables.MORE_INTERVALS:
                    world.intervals += _blank(len(world.intervals), tables.INTERVAL)
                case tables.MORE_GAPS:
                    world.gaps += _blank(len(world.gaps), tables.GAP)
                case tables.MORE_NODES:
                    world.nodes += rows(more_nodes(r, len(world.nodes)))
                    world.node_index = index_of(len(world.nodes)).tolist()
                    index_nodes(world)
                case tables.MORE_TRANSFERS:
                    world.transfers += _blank(len(world.transfers), tables.TRANSFER)
                case tables.MORE_CHANGES:
                    world.changes += _blank(len(world.changes), tables.CHANGE)
                case tables.MORE_THOUGHTS:
                    world.think_ticks = think_ticks(self.prepared, 2 * len(world.think_ticks))
                case tables.MORE_CAPACITY:
                    raise CapacityExceededError(2 * world.workloads[r.exceeded - 1].capacity)
                case tables.MORE_SLOTS:
                    count = len(world.slots)
                    more = _blank(count, tables.SLOT)
                    for place, slot in enumerate(more):
                        slot.next = count + place + 1 if place + 1 < count else -1
                    r.free = count
                    world.slots += more
                    world.draws = np.concatenate([world.draws, np.ones_like(world.draws)])
                    world.sequences += _blank(len(world.sequences), tables.SEQUENCE)
                    world.loads += _blank(len(world.loads), tables.LOAD)
                    world.waits += _blank(len(world.waits), tables.WAIT)
                    world.handovers += _blank(len(world.handovers), tables.HANDOVER)
                    world.stream_jobs += _blank(len(world.stream_jobs), tables.STREAM_JOB)
                    world.progress += _blank(len(world.progress), tables.PROGRESS_OF_JOB)
                    world.user_of += [-1] * len(world.user_of)
                case _:
                    return

    def _recording(self) -> Recording:
        """End the run, and return its recording."""
        world: Any = self.world
        r, prepared = world.run[0], self.prepared
        r.end = max(r.last_finish, self.last_arrival) if prepared.end is None else prepared.end
        close(world)
        world.jobs = records_of(world.jobs, tables.JOB)
        world.intervals = records_of(world.intervals[: r.written], tables.INTERVAL)
        world.gaps = records_of(world.gaps[: r.gaps], tables.GAP)
        world.servers = records_of(world.servers, tables.SERVER)
        world.caches = records_of(world.caches, tables.CACHE)
        world.workloads = records_of(world.workloads, tables.WORKLOAD)
        world.changes = records_of(world.changes[: r.changes], tables.CHANGE)
        world.transfers = records_of(world.transfers[: r.transfers], tables.TRANSFER)
        if self.progress is not None:
            self.progress(r.arrived)
        log = event_log(prepared, world, self.words, self.answers)
        return accounting.record(prepared, log, int(r.end))


def _blank(count: int, layout: np.dtype) -> list[Any]:
    return rows(np.zeros(count, dtype=layout))
