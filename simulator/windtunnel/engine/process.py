"""The process engine: a scenario as SimPy events, in every detail.

Where SimPy's time goes decided the shape of this module: a generator resumed costs 0.03 us, a callback 0.5, a
spawned process 1.7, a resource requested 3 (docs/decisions/0005-process-engine.md). So there is one alarm a
device, set again and again, arrivals stay outside the heap, and jobs are numbers into arrays, not processes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import numpy as np
import simpy

from windtunnel.core.policy import Candidate, JobKey
from windtunnel.core.result import Recording
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.engine import accounting
from windtunnel.engine.fleet import FAR, Prepared
from windtunnel.engine.programs import Compiled, batch_cost, is_uniform
from windtunnel.engine.queues import LoadIndex, Queue, QueueSet
from windtunnel.engine.stations import (
    TIMER,
    Alarm,
    Intervals,
    SingleStation,
    Station,
    event_order,
    station_for,
)

Progress = Callable[[int], None]
_REPORT_MASK = 4095


def _numbers(values: np.ndarray) -> array[int]:
    """An int64 array as one whose elements are plain integers, quick to read one by one."""
    return array("q", values.astype(np.int64, copy=False).tobytes())


class ProcessEngine:
    """One run of a prepared scenario. Use ``run``."""

    def __init__(self, prepared: Prepared, progress: Progress | None = None) -> None:
        self.prepared = prepared
        self.progress = progress
        self.env = simpy.Environment(initial_time=0)
        count = len(prepared.arrival)
        self.count = count
        self.arrival = _numbers(prepared.arrival)
        self.workload_of = _numbers(prepared.workload_of)
        self.rank = _numbers(prepared.rank)
        self.eligible = _numbers(prepared.eligible)
        never = np.full(count, -1, dtype=np.int64)
        self.start, self.finish, self.first, self.device = (_numbers(never) for _ in range(4))
        self.energy = array("d", bytes(8 * count))
        self.intervals = Intervals()
        self.gaps: tuple[array[int], array[int], array[int], array[int]] = (
            array("q"),
            array("q"),
            array("q"),
            array("q"),
        )
        self._batch_costs: dict[tuple[int, int, int], tuple[int, float, int]] = {}
        self._uniform = [is_uniform(w.program) for w in prepared.workloads]
        self._timed: set[int] = set()
        self._quick: dict[int, int | array[int]] = {}
        self.signatures = [frozenset(signature) for signature in prepared.signatures]
        self.stations: list[Station] = []
        for fleet_class in prepared.classes:
            for i in range(fleet_class.count):
                self.stations.append(station_for(self, fleet_class.first + i, fleet_class))
        self.dispatcher: _Central | _Routed = _Central(self) if prepared.policy.route.score is None else _Routed(self)
        self.follows_load = isinstance(self.dispatcher, _Routed)
        self.more = self.dispatcher.feed
        """A station has room: give it what it can take."""

    def run(self) -> Recording:
        """Run to the end, and account for all of it."""
        self._bring_arrivals()
        end = self.prepared.end
        self.env.run(until=end)
        last = int(self.env.now) if end is None else end
        for station in self.stations:
            station.close(last)
        if self.progress is not None:
            self.progress(self.count)
        return accounting.record(self, last)

    def _bring_arrivals(self) -> None:
        """Let time pass from arrival to arrival.

        Arrivals are known in order, so they need no place in SimPy's heap: a third of the time of a short job. Of
        the events of one tick they come last, so all others up to that tick go first.
        """
        env, arrival, place, progress = self.env, self.arrival, self.dispatcher.place, self.progress
        queue, step = env._queue, env.step
        for job in range(self.count):
            tick = arrival[job]
            while queue and queue[0][0] <= tick:
                step()
            env._now = tick
            place(job)
            if progress is not None and not job & _REPORT_MASK:
                progress(job)

    # What stations ask of the engine.

    def finished(self, job: int, station: Station) -> None:
        """A job has ended now."""
        self.finish[job] = self.env.now
        if self.follows_load:
            self.dispatcher.left(job, station)

    def queue_for(self, station: Station) -> Queue | None:
        """The queue whose next job a station should take, if any waits."""
        return self.dispatcher.queue_for(station)

    def look_again(self, job: int, delay: int) -> None:
        """Offer waiting jobs again after ``delay``: a batch headed by ``job`` then goes with what it has."""
        if job not in self._timed:
            self._timed.add(job)
            Alarm(self.env, lambda _event: self.dispatcher.offer(), event_order(TIMER, 0)).set(delay)

    def footprint(self, station: Station, job: int, *, shared: bool = False) -> float:
        """Memory a job needs on a station (bytes); ``shared``: beside another of its model, so without the weights."""
        compiled = station._program(job)
        need = compiled.footprint_bytes
        own = float(need[0] if need.size == 1 else need[self.rank[job]])
        return own - compiled.decoder.weight_bytes if shared and compiled.decoder is not None else own

    def quick_ticks(self, compiled: Compiled) -> int | array[int]:
        """A single-segment program's durations, in the form that is quickest to read; made once a program."""
        single = compiled.single
        assert single is not None  # noqa: S101
        if isinstance(single.ticks, int):
            return single.ticks
        return self._quick.setdefault(id(compiled), _numbers(single.ticks))

    def batch_cost(self, station: Station, workload: int, jobs: Sequence[int]) -> tuple[int, float, int]:
        """(ticks, watts, ticks to the first token) of a request-level batch."""
        key = (station.class_number, workload, len(jobs))
        if self._uniform[workload] and key in self._batch_costs:
            return self._batch_costs[key]
        job_class = self.prepared.workloads[workload]
        ranks = [self.rank[job] for job in jobs]
        compiled = station._program(jobs[0])
        cost = batch_cost(job_class.program, station.fleet_class.device, job_class.source, ranks, compiled)
        if self._uniform[workload]:
            self._batch_costs[key] = cost
        return cost

    def add_gap(self, ticks: int, tokens: int, end: int, workload: int) -> None:
        """``tokens`` tokens of a workload followed the ones before them after ``ticks``."""
        gap, weight, at, number = self.gaps
        gap.append(ticks)
        weight.append(tokens)
        at.append(end)
        number.append(workload)

    def gap_of_lone(self, job: int, compiled: Compiled, rank: int) -> None:
        """A request served alone: its following tokens share the time after the first equally."""
        assert compiled.outputs is not None and compiled.first_ticks is not None  # noqa: S101
        following = int(compiled.outputs[rank]) - 1
        if following > 0:
            segment = compiled.single
            assert segment is not None  # noqa: S101
            rest = segment.at(rank)[0] - int(compiled.first_ticks[rank])
            self.add_gap(rest // following, following, self.env.now, self.workload_of[job])

    def gaps_of_batch(self, jobs: Sequence[int], compiled: Compiled, first: int, rest: int) -> None:
        """A static batch: every step gives each of its jobs a token, until the longest is done."""
        assert compiled.outputs is not None  # noqa: S101
        outputs = [int(compiled.outputs[self.rank[job]]) for job in jobs]
        steps = max(outputs) - 1
        following = sum(outputs) - len(outputs)
        if steps and following:
            self.add_gap(rest // steps, following, first, self.workload_of[jobs[0]])


def _job_key(engine: ProcessEngine) -> Callable[[int], float] | None:
    """The order's key of a job by its number; None for order of arrival."""
    key = engine.prepared.policy.order.key
    if key is None:
        return None
    workloads = engine.prepared.workloads
    signatures = engine.prepared.signatures
    compiled = engine.prepared.compiled

    def of(job: int) -> float:
        number = engine.workload_of[job]
        workload = workloads[number]
        sizes = compiled[signatures[engine.eligible[job]][0], number].estimate_s
        return key(
            JobKey(
                arrival=engine.arrival[job],
                priority=workload.workload.priority,
                deadline=engine.arrival[job] + workload.deadline_ticks,
                size_s=float(sizes[0] if sizes.size == 1 else sizes[engine.rank[job]]),
            )
        )

    return of


class _Central:
    """One queue for all: a free device takes the first job it can run, the device of lowest number first."""

    def __init__(self, engine: ProcessEngine) -> None:
        self.engine = engine
        self.queues = QueueSet(engine.signatures, _job_key(engine))
        # Heaps of devices with room; an entry whose device has none by now is dropped when it comes up.
        self.free: list[list[int]] = [list(range(c.first, c.first + c.count)) for c in engine.prepared.classes]
        self.is_free = bytearray(b"\1" * len(engine.stations))
        # A free device that works on one job at a time has nothing waiting for it, so an arrival starts at once.
        self.at_once = [
            engine.prepared.policy.batch.kind == "none" and isinstance(engine.stations[c.first], SingleStation)
            for c in engine.prepared.classes
        ]
        self.classes = [sorted(signature) for signature in engine.signatures]

    def place(self, job: int) -> None:
        """A job has arrived."""
        engine = self.engine
        signature = engine.eligible[job]
        classes = self.classes[signature]
        for number in classes:
            if not self.at_once[number]:
                break
            device = self._take_free(number)
            if device >= 0:
                engine.stations[device].start(job)
                return
        else:
            self.queues.push(job, signature, engine.workload_of[job])
            return
        # Some class asks questions before it takes a job (for memory, for company): offer to each in its turn.
        queue = self.queues.push(job, signature, engine.workload_of[job])
        for number in classes:
            if self.at_once[number]:
                device = self._take_free(number)
                if device >= 0:
                    self.feed(engine.stations[device])
            else:
                for device in self._free_devices(number):
                    self.feed(engine.stations[device])
                    if not queue:
                        break
            if not queue:
                return

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
        for number in range(len(self.free)):
            for device in self._free_devices(number):
                self.feed(self.engine.stations[device])

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
        while station.has_room():
            queue = self.queues.best(station.class_number)
            if queue is None or not station.take(queue):
                break
        device, free = station.number, station.has_room()
        if free and not self.is_free[device]:
            heappush(self.free[station.class_number], device)
        self.is_free[device] = free

    def queue_for(self, station: Station) -> Queue | None:
        """Where a station's next job waits."""
        return self.queues.best(station.class_number)

    def left(self, job: int, station: Station) -> None:
        """A central queue does not follow loads."""

    def _free_devices(self, number: int) -> list[int]:
        return sorted({device for device in self.free[number] if self.is_free[device]})


class _Routed:
    """Each device has its own queue; a job goes to the device that the policy's score likes best when it arrives."""

    def __init__(self, engine: ProcessEngine) -> None:
        self.engine = engine
        prepared = engine.prepared
        route = prepared.policy.route
        assert route.score is not None  # noqa: S101
        self.score = route.score
        self.by = route.by
        count = len(engine.stations)
        members = [range(c.first, c.first + c.count) for c in prepared.classes]
        self.index = LoadIndex(members, list(range(count)) if self.by == "turn" else [0] * count)
        self.turn = count
        self.present = [0] * count
        self.ready = [0] * count
        key = _job_key(engine)
        self.queues = [QueueSet([frozenset({s.class_number})], key) for s in engine.stations]

    def place(self, job: int) -> None:
        """A job has arrived."""
        engine = self.engine
        prepared = engine.prepared
        now = engine.env.now
        number = engine.workload_of[job]
        rank = engine.rank[job]
        deadline = prepared.workloads[number].deadline_ticks
        slack = deadline / TICKS_PER_SECOND if deadline < FAR else float("inf")
        best: tuple[float, float, float, int] | None = None
        for class_number in prepared.signatures[engine.eligible[job]]:
            device = self.index.best(class_number)
            compiled = prepared.compiled[class_number, number]
            estimate = _value(compiled.estimate_s, rank)
            price = prepared.classes[class_number].price_usd_per_s or 0.0
            score = self.score(
                Candidate(
                    present=self.present[device],
                    backlog_s=max(self.ready[device] - now, 0) / TICKS_PER_SECOND,
                    estimate_s=estimate,
                    mean_s=compiled.mean_s,
                    cost_usd=price * estimate,
                    energy_j=_value(compiled.energy_j, rank),
                    slack_s=slack,
                    turn=self.index.load(device),
                    preference=prepared.preference[class_number, number],
                )
            )
            rated = (*score, compiled.mean_s, device)
            if best is None or rated < best:
                best, chosen_estimate = rated, estimate
        assert best is not None  # noqa: S101  every job has a class that can run it
        device = best[3]
        self.present[device] += 1
        self.ready[device] = max(self.ready[device], now) + round(chosen_estimate * TICKS_PER_SECOND)
        self.turn += 1
        self._reindex(device)
        self.queues[device].push(job, 0, number)
        self.feed(engine.stations[device])

    def offer(self) -> None:
        """Give every device with room what waits for it."""
        for station, queues in zip(self.engine.stations, self.queues, strict=True):
            if len(queues):
                self.feed(station)

    def feed(self, station: Station) -> None:
        """A device may have room: give it what waits for it."""
        while station.has_room():
            queue = self.queue_for(station)
            if queue is None or not station.take(queue):
                return

    def queue_for(self, station: Station) -> Queue | None:
        """Where a station's next job waits."""
        return self.queues[station.number].best(station.class_number)

    def left(self, job: int, station: Station) -> None:
        """A job has ended."""
        device = station.number
        self.present[device] -= 1
        if not self.present[device]:
            self.ready[device] = 0
        if self.by != "turn":
            self._reindex(device)

    def _reindex(self, device: int) -> None:
        load = {"present": self.present, "backlog": self.ready}.get(self.by)
        self.index.update(device, self.turn if load is None else load[device])


def _value(values: np.ndarray, rank: int) -> float:
    return float(values[0] if values.size == 1 else values[rank])


def run(prepared: Prepared, progress: Progress | None = None) -> Recording:
    """Run a prepared scenario; ``progress`` is told now and then how many jobs have arrived."""
    return ProcessEngine(prepared, progress).run()
