"""Answers the questions of the transitions, which need Python.

They concern the costs of mixed batches, faults of operations, and real devices. `autoscaling` answers those about
scaled devices.
"""

from __future__ import annotations

from heapq import heappop, heappush

from windtunnel.core.executor import Executed
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.fault_schedule import JOBS, MIGRATE
from windtunnel.engine.prepare.operation_faults import operation_faults_of
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.programs import Segment, batch_cost
from windtunnel.engine.transitions.autoscaling import AutoscaleController
from windtunnel.engine.transitions.clock import set_timer
from windtunnel.engine.transitions.faults import return_work
from windtunnel.engine.transitions.tables import (
    BATCH_COST,
    DECISION,
    FAILED_OPERATION,
    OPERATION,
    READINESS,
    RESET,
    World,
)
from windtunnel.engine.transitions.work import proceed, way_of
from windtunnel.scenario.faults import Ending

ATTEMPTS = 3
"""The maximum number of starts of a job that a real device fails to execute; it equals that of modelled devices."""
_REAL = 2**20
"""The ending of an operation that a real device could not execute; smaller numbers are faults of the scenario."""


class Answers:
    """Answers the questions of one run."""

    def __init__(self, prepared: PreparedRun) -> None:
        self._prepared = prepared
        self.operation_faults = operation_faults_of(prepared)
        self.controller = AutoscaleController(prepared) if prepared.scaled else None
        self.resets: list[tuple[int, int, int]] = []
        """Device, start and end of each outage that a failed operation caused."""
        self._failed: dict[int, Executed] = {}

    def begin(self, w: World) -> None:
        """Set the first timers."""
        if self.controller is not None:
            self.controller.begin(w)

    def answer(self, w: World) -> None:
        """Answer the question that is asked."""
        r = w.run[0]
        question, device = int(r.asking), int(r.subject)
        r.asking = 0
        if question == OPERATION:
            self._begin_operation(w, device)
        elif question == FAILED_OPERATION:
            self._fail_operation(w, device)
        elif question == BATCH_COST:
            self._price_batch(w, device)
        elif question in (DECISION, READINESS):
            assert self.controller is not None  # noqa: S101  only scaled entries have these timers
            if question == DECISION:
                self.controller.decide(w, device)
            else:
                self.controller.ready(w, device)

    # Request-level batches.

    def _price_batch(self, w: World, device: int) -> None:
        """Determine the size and the cost of a batch of jobs that differ, and offer it to the device again."""
        r, d = w.run[0], w.devices[device]
        slots = _first(w, int(r.asked_queue), int(r.asked_size))
        work = int(w.slots[slots[0]].work)
        compiled, job_class = self._prepared.compiled[int(d.cls), work], self._prepared.workloads[work]
        device_model = self._prepared.classes[int(d.cls)].device
        weights = compiled.decoder.weight_bytes if compiled.decoder is not None else 0.0
        ranks: list[int] = []
        memory = 0.0
        for slot in slots:
            rank = int(w.slots[slot].rank)
            need = compiled.footprint_bytes[0 if compiled.footprint_bytes.size == 1 else rank]
            need = float(need) - (weights if ranks else 0.0)
            if ranks and memory + need > device_model.memory_bytes:
                break
            memory += need
            ranks.append(rank)
        r.answer_ticks, r.answer_w, r.answer_first = batch_cost(
            job_class.program, device_model, job_class.source, ranks, compiled
        )
        r.asked_size, r.answered = len(ranks), 1
        r.feeding = device

    # Operations that may fail.

    def _begin_operation(self, w: World, device: int) -> None:
        """Begin an operation with its duration: as faults change it, or as a real device measures it."""
        r, d, e = w.run[0], w.devices[device], w.extras[device]
        s = w.slots[d.slot]
        cls, work, rank = int(d.cls), int(s.work), int(s.rank)
        place = int(d.segment - way_of(w, device, int(d.slot)).first)
        segment = self._segment(cls, work, rank, place)
        left = int(d.left)
        executor = self._prepared.classes[cls].executor
        if executor is not None:
            executed = executor.execute(segment.name, segment.columns(rank))
            left = to_ticks(executed.duration_s)
            if executed.problem:
                self._failed[device] = executed
                e.ending = _REAL
        if self.operation_faults is not None:
            effect = self.operation_faults.effect_on(
                cls, work, rank, int(s.starts), place, segment.name, left, int(r.now)
            )
            if effect is not None:
                if effect.ending is not None and e.ending < 0:
                    e.ending = self._prepared.scenario.faults.index(effect.ending)
                e.corrupted |= effect.corrupt
                if effect.slowdown != 1.0:
                    left = round(float(left) * effect.slowdown)
                if effect.ticks is not None:
                    # The watchdog's time does not depend on the device's speed.
                    left, e.timed = effect.ticks, 1
        proceed(w, device, left, float(d.full))

    def _segment(self, cls: int, work: int, rank: int, place: int) -> Segment:
        phases = self._prepared.compiled[cls, work].phases(rank)
        return [segment for phase in phases for segment in phase[0]][place]

    def _fail_operation(self, w: World, device: int) -> None:
        """Retry, migrate or fail the jobs whose operation failed; reset the device if the fault says so."""
        ending = int(w.extras[device].ending)
        if ending == _REAL:
            executed = self._failed.pop(device)
            if executed.gone:
                w.devices[device].outages += 1
                if executed.back_s is not None:
                    self._reset_after(w, device, to_ticks(executed.back_s))
            return_work(w, device, MIGRATE, ATTEMPTS)
            return
        fault = self._prepared.scenario.faults[ending]
        assert isinstance(fault, Ending)  # noqa: S101  only these end an operation
        if fault.reset_time is not None:
            w.devices[device].outages += 1
            self._reset_after(w, device, to_ticks(fault.reset_time))
        return_work(w, device, JOBS[fault.on_failure], fault.max_attempts)

    def _reset_after(self, w: World, device: int, ticks: int) -> None:
        now = int(w.run[0].now)
        self.resets.append((device, now, now + ticks))
        set_timer(w, RESET, device, now + ticks)


def _first(w: World, queue: int, count: int) -> list[int]:
    """Return the slots of the first ``count`` jobs of a queue."""
    slots: list[int] = []
    if not w.run[0].keyed:
        slot = int(w.queues[queue].head)
        while len(slots) < count:
            slots.append(slot)
            slot = int(w.slots[slot].next)
        return slots
    # Each job of a pairing heap precedes its children, so the next job is among the children of those before it.
    nodes = [_node(w, int(w.queues[queue].head))]
    while len(slots) < count:
        slot = heappop(nodes)[-1]
        slots.append(slot)
        child = int(w.slots[slot].child)
        while child >= 0:
            heappush(nodes, _node(w, child))
            child = int(w.slots[child].next)
    return slots


def _node(w: World, slot: int) -> tuple[float, int, int]:
    s = w.slots[slot]
    return float(s.key), int(s.job), slot
