"""Answers the questions of the transitions, which need Python.

They concern the costs of mixed batches, faults of the operations of batches, failed operations, and real devices.
`autoscaling` answers those about scaled devices.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import accumulate

from windtunnel.core.executor import Executed
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.batches import BatchCost, batch_cost
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.programs import Segment
from windtunnel.engine.transitions.autoscaling import AutoscaleController
from windtunnel.engine.transitions.clock import set_timer
from windtunnel.engine.transitions.designs import lose_designs
from windtunnel.engine.transitions.faults import fail_job, go_down, return_work
from windtunnel.engine.transitions.operation_faults import affect_operation, consider, decided, note_effect, take_effect
from windtunnel.engine.transitions.tables import (
    BATCH_COST,
    DECISION,
    FAILED_OPERATION,
    OPERATION,
    READINESS,
    REAL_RULE,
    RESET,
    STREAM,
    World,
)
from windtunnel.engine.transitions.work import proceed, way_of
from windtunnel.scenario.faults import Ending

_REAL = 2**20
"""The ending of an operation that a real device could not execute; smaller numbers are faults of the scenario."""


class Answers:
    """Answers the questions of one run."""

    def __init__(self, prepared: PreparedRun) -> None:
        self._prepared = prepared
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
        cls, work = int(d.cls), int(w.slots[slots[0]].work)
        compiled = self._prepared.compiled[cls, work]
        weights = compiled.decoder.reserved_bytes if compiled.decoder is not None else 0.0
        ranks: list[int] = []
        memory = 0.0
        for slot in slots:
            rank = int(w.slots[slot].rank)
            need = compiled.footprint_bytes[0 if compiled.footprint_bytes.size == 1 else rank]
            need = float(need) - (weights if ranks else 0.0)
            if ranks and memory + need > self._prepared.classes[cls].memory_bytes:
                break
            memory += need
            ranks.append(rank)
        cost = self._batch_cost(cls, work, ranks)
        r.answer_ticks, r.answer_w, r.answer_first = cost.ticks, cost.watts, cost.first_ticks
        r.asked_size, r.answered = len(ranks), 1
        r.feeding = device

    def _batch_cost(self, cls: int, work: int, ranks: list[int]) -> BatchCost:
        job_class, device = self._prepared.workloads[work], self._prepared.classes[cls].device
        compiled = self._prepared.compiled[cls, work]
        return batch_cost(job_class.program, device, job_class.source, ranks, compiled)

    # Operations that may fail.

    def _begin_operation(self, w: World, device: int) -> None:
        """Begin an operation of a real device, or a batch whose operations faults may affect."""
        r, d = w.run[0], w.devices[device]
        if r.batch:
            ticks = self._with_faults(w, device)
        else:
            ticks = self._execute(w, device)
            if w.segments[d.segment].faults and w.extras[device].ending != _REAL:
                ticks = affect_operation(w, device, ticks)
        if r.progresses:
            w.progress[d.slot].scheduled = ticks
        proceed(w, device, ticks, float(d.full))

    def _execute(self, w: World, device: int) -> int:
        """Execute the present operation of a real device's job, and return its ticks."""
        d = w.devices[device]
        s = w.slots[d.slot]
        cls, rank = int(d.cls), int(s.rank)
        place = int(d.segment - way_of(w, device, int(d.slot)).first)
        segment = self._segment(cls, int(s.work), rank, place)
        executor = self._prepared.classes[cls].executor
        assert executor is not None  # noqa: S101  only real devices are asked
        executed = executor.execute(segment.name, segment.columns(rank))
        if executed.problem:
            self._failed[device] = executed
            w.extras[device].ending = _REAL
        return to_ticks(executed.duration_s)

    def _with_faults(self, w: World, device: int) -> int:
        """Return the ticks of a request-level batch with the faults that affect it.

        Its operations all count as started with the batch. It is one piece of work, so its data are corrupted if those
        of one operation are.
        """
        d = w.devices[device]
        first = w.slots[d.slot]
        cls, work, slot = int(d.cls), int(first.work), int(d.slot)
        ranks: list[int] = []
        for _ in range(int(d.count)):
            ranks.append(int(w.slots[slot].rank))
            slot = int(w.slots[slot].next)
        parts = self._batch_cost(cls, work, ranks).operations
        whole_s = sum(time_s for _, time_s in parts)
        ends = [round(int(d.left) * total / whole_s) for total in accumulate(time_s for _, time_s in parts)]
        lasts = 0
        for place, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            ticks, ending, timed, corrupted = end - begin, -1, 0, 0
            g = w.segments[way_of(w, device, int(d.slot)).first + place]
            if consider(w, g.faults_at, g.faults, work, int(first.rank), int(first.starts), place):
                ticks, ending, timed, corrupted = take_effect(w, ticks)
            decided(w)
            note_effect(w, device, ending, timed, corrupted)
            lasts += int(ticks)
            if ending >= 0:
                break
        return lasts

    def _segment(self, cls: int, work: int, rank: int, place: int) -> Segment:
        phases = self._prepared.compiled[cls, work].phases(rank)
        return [segment for phase in phases for body in phase for segment in body][place]

    def _fail_operation(self, w: World, device: int) -> None:
        """Retry, migrate or fail the jobs whose operation failed; reset the device if the fault says so."""
        e = w.extras[device]
        ending = int(e.ending)
        if ending == _REAL:
            executed = self._failed.pop(device)
            if executed.gone:
                w.devices[device].outages += 1
                if executed.back_s is not None:
                    self._reset_after(w, device, to_ticks(executed.back_s))
            return_work(w, device, REAL_RULE)
            return
        fault = self._prepared.scenario.faults[ending]
        assert isinstance(fault, Ending)  # noqa: S101  only these end an operation
        rule = 1 + ending
        if w.classes[w.devices[device].cls].kind == STREAM:
            e.ending = -1
            if fault.reset_time is None:
                fail_job(w, device, int(e.failing), rule)
                return
            go_down(w, device)
        elif fault.reset_time is not None:
            w.devices[device].outages += 1
            if w.run[0].reconfigures:
                lose_designs(w, device)
        if fault.reset_time is not None:
            self._reset_after(w, device, to_ticks(fault.reset_time))
        return_work(w, device, rule)

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
            if w.slots[slot].starts >= 0:  # others have given up waiting
                slots.append(slot)
            slot = int(w.slots[slot].next)
        return slots
    # Each job of a pairing heap precedes its children, so the next job is among the children of those before it.
    nodes = [_node(w, int(w.queues[queue].head))]
    while len(slots) < count:
        slot = heappop(nodes)[-1]
        if w.slots[slot].starts >= 0:
            slots.append(slot)
        child = int(w.slots[slot].child)
        while child >= 0:
            heappush(nodes, _node(w, child))
            child = int(w.slots[child].next)
    return slots


def _node(w: World, slot: int) -> tuple[float, int, int]:
    s = w.slots[slot]
    return float(s.key), int(s.job), slot
