"""Assigns jobs to devices, from one central queue or from a queue for each device and a route that chooses it.

The state of the fleet that a route reads is updated at every change and not recomputed for each decision.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

import numpy as np

from windtunnel.core.policy import Candidate, JobKey
from windtunnel.core.ticks import TICKS_PER_SECOND, to_seconds
from windtunnel.engine.prepare.prepared import FAR, FleetClass
from windtunnel.engine.process.queues import NOT_HERE, LoadIndex, Queue, QueueSet
from windtunnel.engine.process.stations import TIMER, Alarm, RunContext, SingleStation, Station, event_order
from windtunnel.engine.process.stations.base import PowerBudget


def _job_key(context: RunContext) -> Callable[[int], float] | None:
    """Return the order's key of a job by its number; None for order of arrival."""
    key = context.prepared.policy.order.key
    if key is None:
        return None
    log = context.log
    workloads = context.prepared.workloads
    signatures = context.prepared.signatures
    compiled = context.prepared.compiled

    def of(job: int) -> float:
        number = log.workload_of[job]
        workload = workloads[number]
        sizes = compiled[signatures[log.eligible[job]][0], number].estimate_s
        return key(
            JobKey(
                arrival=log.arrival[job],
                priority=workload.workload.priority,
                deadline=log.arrival[job] + workload.deadline_ticks,
                size_s=float(sizes[0] if sizes.size == 1 else sizes[log.rank[job]]),
            )
        )

    return of


def _take_from(queues: QueueSet, station: Station, batching: bool, gate: PowerBudget | None) -> bool:
    """Let a station take from the first queue, or from a later one if the batch of an earlier queue must wait."""
    if batching:
        for queue in queues.in_order(station.class_number):
            if gate is not None:
                gate.refused = False
            if station.take(queue):
                return True
            if gate is not None and gate.refused:
                return False
        return False
    best = queues.best(station.class_number)
    return best is not None and station.take(best)


class _Dispatcher:
    """The common part of both dispatchers."""

    def __init__(self, context: RunContext, stations: Sequence[Station]) -> None:
        self.context = context
        self.stations = stations
        self._timed: set[int] = set()
        self.batching = context.prepared.policy.batch.kind == "request"

    def offer(self) -> None:
        """Give every device with room the work that it can take."""
        raise NotImplementedError

    def offer_later(self, job: int, delay: int) -> None:
        """Offer waiting jobs again after ``delay``, once for each job that heads a batch."""
        if job not in self._timed:
            self._timed.add(job)
            Alarm(self.context.env, lambda _event: self.offer(), event_order(TIMER, 0)).set(delay)


class CentralDispatcher(_Dispatcher):
    """One central queue: a free device takes the first job that it can run; of several, the lowest number does."""

    follows_load = False

    def __init__(self, context: RunContext, stations: Sequence[Station]) -> None:
        super().__init__(context, stations)
        prepared = context.prepared
        self.queues = QueueSet([frozenset(s) for s in prepared.signatures], _job_key(context))
        # Devices with room, in order: a heap for classes whose jobs start at once, a sorted list for the others. An
        # entry of the heap whose device has no room any more is dropped when it reaches the root.
        self.free: list[list[int]] = [list(range(c.first, c.first + c.count)) for c in prepared.classes]
        self.is_free = bytearray(b"\1" * len(stations))
        # No job waits for a free device that executes one job at a time, so an arrival starts at once.
        self.at_once = [
            prepared.policy.batch.kind == "none"
            and isinstance(stations[c.first], SingleStation)
            and context.gate is None
            and not prepared.interrupts
            and not any(c is scaled for scaled, _ in prepared.scaled)
            for c in prepared.classes
        ]
        self.classes = [sorted(signature) for signature in prepared.signatures]

    def place(self, job: int) -> None:
        """Queue a job that has arrived, or start it."""
        log = self.context.log
        signature = log.eligible[job]
        classes = self.classes[signature]
        for number in classes:
            if not self.at_once[number]:
                break
            device = self._take_free(number)
            if device >= 0:
                self.stations[device].start(job)
                return
        else:
            self.queues.push(job, signature, log.workload_of[job])
            return
        # A class may not start a job at once (memory, batching, power), so the job is offered to each in turn.
        queue = self.queues.push(job, signature, log.workload_of[job])
        self._offer(classes, queue)

    def _take_free(self, number: int) -> int:
        """Remove and return the free device of the class with the lowest number; -1 if there is none."""
        free, is_free = self.free[number], self.is_free
        while free:
            device = heappop(free)
            if is_free[device]:
                is_free[device] = 0
                return device
        return -1

    def offer(self) -> None:
        """Give every device with room the work that it can take."""
        self._offer(range(len(self.free)), None)

    def _offer(self, classes: Iterable[int], queue: Queue | None) -> None:
        """Offer work to the free devices of these classes, in order, until ``queue`` is empty, if one is given.

        If power is refused, the round ends, so that no job overtakes another.
        """
        gate = self.context.gate
        if gate is not None and gate.paused:
            return
        for number in classes:
            if self.at_once[number]:
                device = self._take_free(number)
                if device >= 0:
                    self.feed(self.stations[device])
            else:
                for device in list(self.free[number]):
                    if gate is not None:
                        gate.refused = False
                    self.feed(self.stations[device])
                    if gate is not None and gate.refused:
                        return
                    if queue is not None and not queue:
                        break
            if queue is not None and not queue:
                return

    def feed(self, station: Station) -> None:
        """Give a station that may have room the work that it can take."""
        if self.at_once[station.class_number]:
            # The common case, without further checks: one job at a time, and this station has just ended its own.
            queue = self.queues.best(station.class_number)
            if queue is not None:
                station.start(queue.pop())
            elif not self.is_free[station.number]:
                self.is_free[station.number] = 1
                heappush(self.free[station.class_number], station.number)
            return
        while station.has_room() and _take_from(self.queues, station, self.batching, self.context.gate):
            pass
        self.refresh(station)

    def refresh(self, station: Station) -> None:
        """Record whether a device has room."""
        device, free = station.number, station.has_room()
        if free != bool(self.is_free[device]):
            self.is_free[device] = free
            devices = self.free[station.class_number]
            if free:
                insort(devices, device)
            else:
                del devices[bisect_left(devices, device)]

    def waiting(self, fleet_class: FleetClass) -> int:
        """Return the number of jobs in the central queue that the class can run."""
        return self.queues.waiting(fleet_class.number)

    def queue_for(self, station: Station) -> Queue | None:
        """Return the queue whose next job a station should take; None if no job waits."""
        return self.queues.best(station.class_number)

    def left(self, job: int, station: Station) -> None:
        """Do nothing, because a central queue does not use loads."""

    def requeue(self, job: int, station: Station) -> None:
        """Return an interrupted job to its former place in the queue."""
        log = self.context.log
        self.queues.push(job, log.eligible[job], log.workload_of[job])

    def wait_only_for(self, gone: Sequence[bool]) -> bool:
        """Return whether all waiting jobs can be served only by these devices."""
        lost = _lost_classes(self.context, gone)
        return all(lost.issuperset(signature) for signature in self.queues.waiting_signatures())

    def take_all(self, station: Station) -> list[int]:
        """Return no jobs, because no job waits for one device alone."""
        return []

    def take_unassigned(self) -> list[int]:
        """Return no jobs, because jobs wait in the central queue even if no device is up."""
        return []


class RoutedDispatcher(_Dispatcher):
    """Each device has its own queue; an arriving job goes to the device with the best score of the policy."""

    follows_load = True

    def __init__(self, context: RunContext, stations: Sequence[Station]) -> None:
        super().__init__(context, stations)
        prepared = context.prepared
        route = prepared.policy.route
        assert route.score is not None  # noqa: S101
        self.score = route.score
        self.rank_by = route.rank_by
        count = len(stations)
        members = [range(c.first, c.first + c.count) for c in prepared.classes]
        self.index = LoadIndex(members, list(range(count)) if self.rank_by == "last_chosen" else [0] * count)
        self.turn = count
        self.turns = list(range(count))
        self.present = [0] * count
        self.ready = [0] * count
        key = _job_key(context)
        self.queues = [QueueSet([frozenset({s.class_number})], key) for s in stations]
        self._stranded: list[int] = []

    def place(self, job: int) -> None:
        """Queue a job that has arrived, or start it."""
        log = self.context.log
        prepared = self.context.prepared
        now = self.context.env.now
        number = log.workload_of[job]
        rank = log.rank[job]
        deadline = prepared.workloads[number].deadline_ticks
        slack = to_seconds(deadline) if deadline < FAR else float("inf")
        best: tuple[float, float, float, int] | None = None
        for class_number in prepared.signatures[log.eligible[job]]:
            device = self.index.best(class_number)
            if self.index.absent(device):
                continue
            compiled = prepared.compiled[class_number, number]
            estimate = _value(compiled.estimate_s, rank)
            price = prepared.classes[class_number].price_usd_per_s or 0.0
            score = self.score(
                Candidate(
                    jobs=self.present[device],
                    backlog_s=to_seconds(max(self.ready[device] - now, 0)),
                    estimate_s=estimate,
                    mean_s=compiled.mean_s,
                    cost_usd=price * estimate,
                    energy_j=_value(compiled.energy_j, rank),
                    slack_s=slack,
                    last_chosen=self.index.load(device),
                    preference=prepared.preference[class_number, number],
                )
            )
            rated = (*score, compiled.mean_s, device)
            if best is None or _before(rated, best):
                best, chosen_estimate = rated, estimate
        if best is None:  # no device that can run it is up
            self._stranded.append(job)
            return
        device = best[3]
        self.present[device] += 1
        self.ready[device] = max(self.ready[device], now) + round(chosen_estimate * TICKS_PER_SECOND)
        self.turn += 1
        self.turns[device] = self.turn
        self._reindex(device)
        self.queues[device].push(job, 0, number)
        self.feed(self.stations[device])

    def offer(self) -> None:
        """Give every device with room the jobs that wait for it."""
        for station, queues in zip(self.stations, self.queues, strict=True):
            if len(queues):
                self.feed(station)

    def feed(self, station: Station) -> None:
        """Give a device that may have room the jobs that wait for it."""
        while station.has_room() and _take_from(self.queues[station.number], station, self.batching, self.context.gate):
            pass

    def waiting(self, fleet_class: FleetClass) -> int:
        """Return the number of jobs in the queues of the class's devices."""
        first = fleet_class.first
        return sum(len(self.queues[device]) for device in range(first, first + fleet_class.count))

    def queue_for(self, station: Station) -> Queue | None:
        """Return the queue whose next job a station should take; None if no job waits."""
        return self.queues[station.number].best(station.class_number)

    def left(self, job: int, station: Station) -> None:
        """Record that a job has left the device."""
        device = station.number
        self.present[device] -= 1
        if not self.present[device]:
            self.ready[device] = 0
        if self.rank_by != "last_chosen":
            self._reindex(device)

    def _reindex(self, device: int) -> None:
        station = self.stations[device]
        load = {"jobs": self.present, "backlog": self.ready, "last_chosen": self.turns}[self.rank_by]
        self.index.update(device, load[device] if station.up and station.linked else NOT_HERE)

    def refresh(self, station: Station) -> None:
        """Record the load and the availability of a device."""
        self._reindex(station.number)

    def requeue(self, job: int, station: Station) -> None:
        """Return an interrupted job to the queue of its device."""
        self.queues[station.number].push(job, 0, self.context.log.workload_of[job])

    def wait_only_for(self, gone: Sequence[bool]) -> bool:
        """Return whether all waiting jobs can be served only by these devices."""
        lost, signatures = _lost_classes(self.context, gone), self.context.prepared.signatures
        return all(gone[device] for device, queues in enumerate(self.queues) if len(queues)) and all(
            lost.issuperset(signatures[self.context.log.eligible[job]]) for job in self._stranded
        )

    def take_all(self, station: Station) -> list[int]:
        """Remove and return the jobs that wait for this device, in order."""
        return self.queues[station.number].take_all()

    def take_unassigned(self) -> list[int]:
        """Remove and return the jobs that arrived while no device was up, in order."""
        jobs, self._stranded = self._stranded, []
        return jobs


def _lost_classes(context: RunContext, gone: Sequence[bool]) -> set[int]:
    """Return the classes whose devices have all failed permanently."""
    return {c.number for c in context.prepared.classes if all(gone[c.first : c.first + c.count])}


def _before(first: tuple[float, float, float, int], second: tuple[float, float, float, int]) -> bool:
    """Return whether one rating precedes another; numbers that differ only by rounding are equal.

    Three jobs at speed 3 take as long as one at speed 1, but 3 * (1 / 3) need not be 1.0.
    """
    for left, right in zip(first[:3], second[:3], strict=True):
        if left != right and abs(left - right) > 1e-12 * max(abs(left), abs(right)):
            return left < right
    return first[3] < second[3]


def _value(values: np.ndarray, rank: int) -> float:
    return float(values[0] if values.size == 1 else values[rank])


def dispatcher_for(context: RunContext, stations: Sequence[Station]) -> CentralDispatcher | RoutedDispatcher:
    """Return the dispatcher that the policy's route needs."""
    kind = CentralDispatcher if context.prepared.policy.route.score is None else RoutedDispatcher
    return kind(context, stations)
