"""Answers the questions of the transitions, which need Python.

They concern the costs of mixed batches, faults of operations, and real devices. `autoscaling` answers those about
scaled devices.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import accumulate

from windtunnel.core.executor import Executed
from windtunnel.core.ticks import to_ticks
from windtunnel.engine.prepare.batches import BatchCost, batch_cost
from windtunnel.engine.prepare.fault_schedule import JOBS, MIGRATE
from windtunnel.engine.prepare.operation_faults import Operation, OperationEffect, operation_faults_of
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.programs import Segment
from windtunnel.engine.transitions.autoscaling import AutoscaleController
from windtunnel.engine.transitions.clock import set_timer
from windtunnel.engine.transitions.consequences import ask
from windtunnel.engine.transitions.faults import fail_job, go_down, return_work
from windtunnel.engine.transitions.tables import (
    BATCH_COST,
    DECISION,
    FAILED_OPERATION,
    OPERATION,
    READINESS,
    RESET,
    STREAM,
    World,
)
from windtunnel.engine.transitions.tasks import balance
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
        cls, work = int(d.cls), int(w.slots[slots[0]].work)
        compiled = self._prepared.compiled[cls, work]
        weights = compiled.decoder.weight_bytes if compiled.decoder is not None else 0.0
        ranks: list[int] = []
        memory = 0.0
        for slot in slots:
            rank = int(w.slots[slot].rank)
            need = compiled.footprint_bytes[0 if compiled.footprint_bytes.size == 1 else rank]
            need = float(need) - (weights if ranks else 0.0)
            if ranks and memory + need > self._prepared.classes[cls].device.memory_bytes:
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
        """Begin an operation, a batch, a step or tasks with the duration that faults or a real device give it."""
        r, d = w.run[0], w.devices[device]
        cls = int(d.cls)
        if w.classes[cls].kind == STREAM:
            self._begin_tasks(w, device)
            return
        if r.serving:
            v = w.servers[device]
            works = [work for work in range(int(r.workloads)) if self._takes_part(w, device, work)]
            operations = [Operation(cls, works, (device, int(v.steps), 0), "generate", int(d.left))]
        else:
            operations = self._operations_of_batch(w, device) if r.batch else [self._operation(w, device)]
        left, e = 0, w.extras[device]
        if e.ending == _REAL:  # a real device could not execute it
            left = operations[0].ticks
        else:
            for operation in operations:
                ticks, effect = self._with_faults(w, operation)
                left += ticks
                if effect is None:
                    continue
                e.corrupted |= effect.corrupt
                # A watchdog's time depends on nothing; a batch is one piece of work, so what precedes is neglected.
                e.timed = int(effect.ticks is not None)
                if e.timed:
                    d.first_left = -1
                if effect.ending is not None:
                    e.ending = self._prepared.scenario.faults.index(effect.ending)
                    break
        if r.progresses:
            w.progress[d.slot].scheduled = left
        proceed(w, device, left, float(d.full))

    def _operation(self, w: World, device: int) -> Operation:
        """Return the present operation of a device's job; a real device executes it now."""
        d = w.devices[device]
        s = w.slots[d.slot]
        cls, work, rank = int(d.cls), int(s.work), int(s.rank)
        place = int(d.segment - way_of(w, device, int(d.slot)).first)
        segment = self._segment(cls, work, rank, place)
        ticks = int(d.left)
        executor = self._prepared.classes[cls].executor
        if executor is not None:
            executed = executor.execute(segment.name, segment.columns(rank))
            ticks = to_ticks(executed.duration_s)
            if executed.problem:
                self._failed[device] = executed
                w.extras[device].ending = _REAL
        return Operation(cls, [work], (rank, int(s.starts), place), segment.name, ticks)

    def _operations_of_batch(self, w: World, device: int) -> list[Operation]:
        """Return the operations of a device's request-level batch, which all count as started with the batch."""
        d = w.devices[device]
        first = w.slots[d.slot]
        cls, work, slot = int(d.cls), int(first.work), int(d.slot)
        ranks: list[int] = []
        for _ in range(int(d.count)):
            ranks.append(int(w.slots[slot].rank))
            slot = int(w.slots[slot].next)
        parts = self._batch_cost(cls, work, ranks).operations
        key, whole_s = (int(first.rank), int(first.starts)), sum(time_s for _, time_s in parts)
        ends = [round(int(d.left) * total / whole_s) for total in accumulate(time_s for _, time_s in parts)]
        return [
            Operation(cls, [work], (*key, place), name, end - begin)
            for place, ((name, _), begin, end) in enumerate(zip(parts, [0, *ends[:-1]], ends, strict=True))
        ]

    def _takes_part(self, w: World, device: int, work: int) -> bool:
        """Return whether a request of the workload is in the present step of a device."""
        if w.decoding_of[device, work]:
            return True
        v = w.servers[device]
        slot = int(v.reading)
        for _ in range(int(v.chunks)):
            if w.slots[slot].work == work:
                return True
            slot = int(w.slots[slot].next)
        return False

    def _begin_tasks(self, w: World, device: int) -> None:
        """Begin the tasks of a device with streams whose time is asked."""
        r, number = w.run[0], int(w.run[0].asked_task)
        r.asked_task = -1
        while number >= 0:
            task = w.tasks[number]
            s, cls = w.slots[task.slot], int(w.devices[device].cls)
            place = int(task.segment - way_of(w, device, int(task.slot)).first)
            name = self._segment(cls, int(s.work), int(s.rank), place).name
            key = int(s.rank), int(s.starts), place
            ticks, effect = self._with_faults(w, Operation(cls, [int(s.work)], key, name, round(float(task.left))))
            if effect is not None:
                r.drawing_w -= task.drawn
                task.left, task.rate, task.drawn = float(ticks), 0.0, 0.0
                task.corrupted, task.timed = int(effect.corrupt), int(effect.ticks is not None)
                if task.timed:
                    task.first_left = -1.0
                if effect.ending is not None:
                    task.ending = self._prepared.scenario.faults.index(effect.ending)
            number = int(task.following)
        balance(w, device)

    def _with_faults(self, w: World, operation: Operation) -> tuple[int, OperationEffect | None]:
        """Return the duration of an operation that starts now, and the effect of faults on it."""
        if self.operation_faults is None:
            return operation.ticks, None
        effect = self.operation_faults.effect_on(operation, int(w.run[0].now))
        if effect is None:
            return operation.ticks, None
        slowed = operation.ticks if effect.slowdown == 1.0 else round(float(operation.ticks) * effect.slowdown)
        return slowed if effect.ticks is None else effect.ticks, effect

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
            return_work(w, device, MIGRATE, ATTEMPTS)
            return
        fault = self._prepared.scenario.faults[ending]
        assert isinstance(fault, Ending)  # noqa: S101  only these end an operation
        becomes, attempts = JOBS[fault.on_failure], fault.max_attempts
        if w.classes[w.devices[device].cls].kind == STREAM:
            e.ending = -1
            if fault.reset_time is None:
                fail_job(w, device, int(e.failing), becomes, attempts)
                if w.run[0].asked_task >= 0:  # the failure was asked first
                    ask(w, OPERATION, device)
                return
            go_down(w, device)
        elif fault.reset_time is not None:
            w.devices[device].outages += 1
        if fault.reset_time is not None:
            self._reset_after(w, device, to_ticks(fault.reset_time))
        return_work(w, device, becomes, attempts)

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
