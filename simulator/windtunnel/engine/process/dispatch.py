"""Which job goes to which device, and when: one central queue, or a queue a device and a route that chooses.

The state of the fleet that a route sees is kept up to date at every change, never rebuilt at a decision.
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
    """The order's key of a job by its number; None for order of arrival."""
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
    """Let a station take from the first queue; where jobs are batched, from a later one while an earlier waits."""
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
    """What both dispatchers do alike."""

    def __init__(self, context: RunContext, stations: Sequence[Station]) -> None:
        self.context = context
        self.stations = stations
        self._timed: set[int] = set()
        self.batching = context.prepared.policy.batch.kind == "request"

    def offer(self) -> None:
        """Give every device with room what it can take."""
        raise NotImplementedError

    def look_again(self, job: int, delay: int) -> None:
        """Offer waiting jobs again after ``delay``, once for each job that heads a batch."""
        if job not in self._timed:
            self._timed.add(job)
            Alarm(self.context.env, lambda _event: self.offer(), event_order(TIMER, 0)).set(delay)


class CentralDispatcher(_Dispatcher):
    """One queue for all: a free device takes the first job it can run, the device of lowest number first."""

    follows_load = False

    def __init__(self, context: RunContext, stations: Sequence[Station]) -> None:
        super().__init__(context, stations)
        prepared = context.prepared
        self.queues = QueueSet([frozenset(s) for s in prepared.signatures], _job_key(context))
        # Devices with room, in order. Of classes whose jobs start at once, a heap, from which an entry whose device has
        # no room by now is dropped when it comes up; of the others, a sorted list.
        self.free: list[list[int]] = [list(range(c.first, c.first + c.count)) for c in prepared.classes]
        self.is_free = bytearray(b"\1" * len(stations))
        # A free device that works on one job at a time has nothing waiting for it, so an arrival starts at once.
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
        """A job has arrived."""
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
        # Some class asks questions before it takes a job (for memory, for company, for power): offer to each in its
        # turn.
        queue = self.queues.push(job, signature, log.workload_of[job])
        self._offer(classes, queue)

    def _take_free(self, number: int) -> int:
        """The free device of the class with the lowest number, no longer free; -1 without one."""
        free, is_free = self.free[number], self.is_free
        while free:
            device = heappop(free)
            if is_free[device]:
                is_free[device] = 0
                return device
        return -1

    def offer(self) -> None:
        """Give every device with room what it can take."""
        self._offer(range(len(self.free)), None)

    def _offer(self, classes: Iterable[int], queue: Queue | None) -> None:
        """Offer work to the free devices of these classes, in order, until ``queue`` is empty, if one is given.

        A refusal for power ends the round: nothing overtakes.
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
        """A device may have room: give it what it can take."""
        if self.at_once[station.class_number]:
            # The common case, without the questions: one job at a time, and this station has just ended its own.
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
        """Note whether a device has room."""
        device, free = station.number, station.has_room()
        if free != bool(self.is_free[device]):
            self.is_free[device] = free
            devices = self.free[station.class_number]
            if free:
                insort(devices, device)
            else:
                del devices[bisect_left(devices, device)]

    def waiting(self, fleet_class: FleetClass) -> int:
        """Jobs in the one queue that the class can run."""
        return self.queues.waiting(fleet_class.number)

    def queue_for(self, station: Station) -> Queue | None:
        """Where a station's next job waits."""
        return self.queues.best(station.class_number)

    def left(self, job: int, station: Station) -> None:
        """A central queue does not follow loads."""

    def requeue(self, job: int, station: Station) -> None:
        """A job that was interrupted waits again, in its old place."""
        log = self.context.log
        self.queues.push(job, log.eligible[job], log.workload_of[job])

    def wait_only_for(self, gone: Sequence[bool]) -> bool:
        """Whether every job that waits can be served by none but these devices."""
        lost = _lost_classes(self.context, gone)
        return all(lost.issuperset(signature) for signature in self.queues.waiting_signatures())

    def emptied(self, station: Station) -> list[int]:
        """No job waits for one device alone."""
        return []

    def stranded(self) -> list[int]:
        """Jobs wait in the one queue, whatever is up."""
        return []


class RoutedDispatcher(_Dispatcher):
    """Each device has its own queue; a job goes to the device that the policy's score likes best when it arrives."""

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
        """A job has arrived."""
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
        if best is None:  # nothing that can run it is up
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
        """Give every device with room what waits for it."""
        for station, queues in zip(self.stations, self.queues, strict=True):
            if len(queues):
                self.feed(station)

    def feed(self, station: Station) -> None:
        """A device may have room: give it what waits for it."""
        while station.has_room() and _take_from(self.queues[station.number], station, self.batching, self.context.gate):
            pass

    def waiting(self, fleet_class: FleetClass) -> int:
        """Jobs in the queues of the class's devices."""
        first = fleet_class.first
        return sum(len(self.queues[device]) for device in range(first, first + fleet_class.count))

    def queue_for(self, station: Station) -> Queue | None:
        """Where a station's next job waits."""
        return self.queues[station.number].best(station.class_number)

    def left(self, job: int, station: Station) -> None:
        """A job has ended."""
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
        """Note whether a device can be chosen."""
        self._reindex(station.number)

    def requeue(self, job: int, station: Station) -> None:
        """A job that was interrupted waits again for its device."""
        self.queues[station.number].push(job, 0, self.context.log.workload_of[job])

    def wait_only_for(self, gone: Sequence[bool]) -> bool:
        """Whether every job that waits can be served by none but these devices."""
        lost, signatures = _lost_classes(self.context, gone), self.context.prepared.signatures
        return all(gone[device] for device, queues in enumerate(self.queues) if len(queues)) and all(
            lost.issuperset(signatures[self.context.log.eligible[job]]) for job in self._stranded
        )

    def emptied(self, station: Station) -> list[int]:
        """The jobs that wait for this device, in order, which wait for it no more."""
        return self.queues[station.number].emptied()

    def stranded(self) -> list[int]:
        """The jobs that found no device that is up, in order; they are to be placed anew."""
        jobs, self._stranded = self._stranded, []
        return jobs


def _lost_classes(context: RunContext, gone: Sequence[bool]) -> set[int]:
    """The classes all of whose devices are gone."""
    return {c.number for c in context.prepared.classes if all(gone[c.first : c.first + c.count])}


def _before(first: tuple[float, float, float, int], second: tuple[float, float, float, int]) -> bool:
    """Whether one rating comes before another; two numbers that differ by rounding alone are equal.

    Three jobs at speed 3 take as long as one at speed 1, though 3 * (1 / 3) need not be 1.0.
    """
    for left, right in zip(first[:3], second[:3], strict=True):
        if left != right and abs(left - right) > 1e-12 * max(abs(left), abs(right)):
            return left < right
    return first[3] < second[3]


def _value(values: np.ndarray, rank: int) -> float:
    return float(values[0] if values.size == 1 else values[rank])


def dispatcher_for(context: RunContext, stations: Sequence[Station]) -> CentralDispatcher | RoutedDispatcher:
    """The dispatcher that the policy's route calls for."""
    kind = CentralDispatcher if context.prepared.policy.route.score is None else RoutedDispatcher
    return kind(context, stations)
