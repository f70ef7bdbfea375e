"""What a device does with the jobs it is given: one at a time, several on streams, or batched step by step.

A station starts work, sets an alarm for its end and records what occupied which engine. It asks the engine for
more when it has room. All times are ticks, all powers watts above idle.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import simpy

from windtunnel.core.ticks import TICKS_PER_SECOND, to_ticks
from windtunnel.engine.programs import WATT_GRAIN, Compiled, Phase, grain

if TYPE_CHECKING:
    from windtunnel.engine.fleet import FleetClass
    from windtunnel.engine.process import ProcessEngine
    from windtunnel.engine.queues import Queue

FINISH, TIMER = 0, 1
"""Kinds of event, in the order in which those of one tick happen; arrivals come after both."""
_ENTITIES = 2**40


def event_order(kind: int, entity: int) -> int:
    """SimPy's priority of an event, so that events of one tick come by kind, then entity, then age."""
    return kind * _ENTITIES + entity


class Alarm(simpy.Event):
    """An event that can be set again once it has rung: no object is made for each of a million jobs."""

    def __init__(self, env: simpy.Environment, ring: Callable[[simpy.Event], None], order: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self._ring = [ring]
        self._order = order

    def set(self, delay: int) -> None:
        """Ring after ``delay`` ticks. An alarm that is set must ring before it is set again."""
        self.callbacks = self._ring
        # What Environment.schedule does, without the call: a seventh of the time of a short job. The names are
        # SimPy's own internals, the same since 3.0; tests/unit/test_stations.py fails should they change.
        env = self.env
        heappush(env._queue, (env._now + delay, self._order, next(env._eid), self))


@dataclass
class Intervals:
    """What occupied which engine of which device, when, and at what power above idle: one row each."""

    device: array[int] = field(default_factory=lambda: array("q"))
    lane: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("q"))
    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    watts: array[float] = field(default_factory=lambda: array("d"))
    words: dict[str, int] = field(default_factory=dict)

    def word(self, text: str) -> int:
        """The number that stands for ``text`` in ``lane`` and ``name``."""
        return self.words.setdefault(text, len(self.words))

    def add(self, device: int, lane: int, name: int, start: int, end: int, watts: float) -> None:
        """One interval; those of no length leave no trace."""
        if end > start:
            self.device.append(device)
            self.lane.append(lane)
            self.name.append(name)
            self.start.append(start)
            self.end.append(end)
            self.watts.append(watts)


class Station:
    """Base of the three kinds of station."""

    def __init__(self, engine: ProcessEngine, number: int, fleet_class: FleetClass) -> None:
        self.engine = engine
        self.number = number
        self.fleet_class = fleet_class
        self.class_number = fleet_class.number
        self.compiled: list[Compiled | None] = [
            engine.prepared.compiled.get((fleet_class.number, w.number)) for w in engine.prepared.workloads
        ]

    def has_room(self) -> bool:
        """Whether the station could start another job now."""
        raise NotImplementedError

    def take(self, queue: Queue) -> bool:
        """Start the next job or batch of ``queue``; False when it must wait for room or company."""
        raise NotImplementedError

    def start(self, job: int) -> None:
        """Start one job that has not been queued; the station must have room."""
        raise NotImplementedError

    def close(self, end: int) -> None:
        """The run has stopped at ``end``: record what was still going on."""

    def _program(self, job: int) -> Compiled:
        compiled = self.compiled[self.engine.workload_of[job]]
        assert compiled is not None  # noqa: S101  routing only offers jobs that the class can run
        return compiled


class SingleStation(Station):
    """One job, or one request-level batch, at a time; its segments one after another."""

    def __init__(self, engine: ProcessEngine, number: int, fleet_class: FleetClass) -> None:
        super().__init__(engine, number, fleet_class)
        order = event_order(FINISH, number)
        self.alarm = Alarm(engine.env, self._rung, order)
        self.quick_alarm = Alarm(engine.env, self._rung_quick, order)
        self.job = -1
        self.jobs: list[int] = []
        self.batch = engine.prepared.policy.batch
        self._rest: list[tuple[str, str, int, float]] = []
        self._current: tuple[int, int, int, float] = (0, 0, 0, 0.0)
        # A program of one segment needs no more than its end: ticks for all, or an array of them by rank.
        self.quick = [
            None
            if c is None or c.single is None or c.decoder is not None or self.batch.kind != "none"
            else engine.quick_ticks(c)
            for c in self.compiled
        ]

    def has_room(self) -> bool:
        return self.job < 0

    def take(self, queue: Queue) -> bool:
        engine = self.engine
        if self.batch.kind == "none":
            self.start(queue.pop())
            return True
        waited = engine.env.now - engine.arrival[queue.head()[1]]
        wait = to_ticks(self.batch.wait_s)
        if len(queue) < self.batch.size and waited < wait:
            engine.look_again(queue.head()[1], wait - waited)
            return False
        jobs: list[int] = []
        memory = 0.0
        while queue and len(jobs) < self.batch.size:
            need = engine.footprint(self, queue.head()[1], shared=bool(jobs))
            if jobs and memory + need > self.fleet_class.device.memory_bytes:
                break
            memory += need
            jobs.append(queue.pop())
        self._start_batch(jobs)
        return True

    def start(self, job: int) -> None:
        engine = self.engine
        now = engine.env._now
        engine.start[job] = now
        engine.device[job] = self.number
        self.job = job
        quick = self.quick[engine.workload_of[job]]
        if quick is not None:
            self.quick_alarm.set(quick if type(quick) is int else quick[engine.rank[job]])  # type: ignore[index]
            return
        compiled = self._program(job)
        rank = engine.rank[job]
        if compiled.first_ticks is not None:
            engine.first[job] = now + int(compiled.first_ticks[rank])
            engine.gap_of_lone(job, compiled, rank)
        self.jobs = [job]
        segments = [segment for phase in compiled.phases(rank) for segment in phase[0]]
        self._rest = [(s.engine, s.name, *s.at(rank)) for s in reversed(segments)]
        self._next()

    def _start_batch(self, jobs: list[int]) -> None:
        engine = self.engine
        now = engine.env.now
        workload = engine.workload_of[jobs[0]]
        ticks, watts, first = engine.batch_cost(self, workload, jobs)
        compiled = self._program(jobs[0])
        for job in jobs:
            engine.start[job] = now
            engine.device[job] = self.number
            if compiled.decoder is not None:
                engine.first[job] = now + first
        if compiled.outputs is not None:
            engine.gaps_of_batch(jobs, compiled, now + first, ticks - first)
        self.job, self.jobs = jobs[0], jobs
        self._rest = [("compute", f"batch of {len(jobs)}", ticks, watts)]
        self._next()

    def _next(self) -> None:
        lane, name, ticks, watts = self._rest.pop()
        words = self.engine.intervals
        self._current = (words.word(lane), words.word(name), self.engine.env.now, watts)
        self.alarm.set(ticks)

    def _rung_quick(self, _event: simpy.Event) -> None:
        job, self.job = self.job, -1
        engine = self.engine
        engine.finish[job] = engine.env._now
        if engine.follows_load:
            engine.dispatcher.left(job, self)
        engine.more(self)

    def _rung(self, _event: simpy.Event) -> None:
        self._record(self.engine.env.now)
        if self._rest:
            self._next()
            return
        engine = self.engine
        jobs, self.jobs, self.job = self.jobs, [], -1
        for job in jobs:
            engine.finished(job, self)
        engine.more(self)

    def _record(self, end: int) -> None:
        lane, name, start, watts = self._current
        self.engine.intervals.add(self.number, lane, name, start, end, watts)
        energy = watts * ((end - start) / TICKS_PER_SECOND) / len(self.jobs)
        for job in self.jobs:
            self.engine.energy[job] += energy

    def close(self, end: int) -> None:
        if self.jobs:
            self._record(end)


Piece = tuple[str, str, int, float, float]
"""A segment of one job: engine, name, ticks, watts above idle, share of the engine."""


@dataclass(eq=False)
class _Task:
    """A body of a job under way on a stream: the segments left, and how far the present one is."""

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
    """A job on a stream: its phases to come, and how many bodies of the present one are open."""

    job: int
    slot: int
    phases: list[Phase]
    memory: float
    open: int = 0


@dataclass(eq=False)
class _Engine:
    """One engine of a device: who waits for it in order of asking, how much of it is taken, and its lanes."""

    waiting: deque[_Task] = field(default_factory=deque)
    used: float = 0.0
    free_lanes: list[int] = field(default_factory=list)
    lanes: int = 0

    def fits(self, share: float) -> bool:
        """Whether ``share`` of the engine is free; shares are reciprocals, whose sums need a little slack."""
        return self.used + share <= 1.0 + 1e-9

    def enter(self, task: _Task) -> None:
        """Take the task's share, on the lowest lane that is free."""
        self.used += task.share
        if self.free_lanes:
            task.lane = heappop(self.free_lanes)
        else:
            task.lane, self.lanes = self.lanes, self.lanes + 1

    def leave(self, task: _Task) -> None:
        """Give back the task's share and lane."""
        heappush(self.free_lanes, task.lane)
        # An engine with nobody on it is free to the last digit, whatever sums of thirds have left behind.
        self.used = 0.0 if len(self.free_lanes) == self.lanes else self.used - task.share


class StreamStation(Station):
    """Several jobs at a time, on streams: each engine of the device serves segments in order of asking.

    A segment takes its share of its engine, most often all of it. What the device draws for being active at all is
    drawn once, on a lane of its own, and shared by the jobs that run. When the engines together would draw more than
    the device may, all of them slow in proportion, so that the device stays at its limit and every segment takes
    the energy it would have taken.
    """

    def __init__(self, engine: ProcessEngine, number: int, fleet_class: FleetClass) -> None:
        super().__init__(engine, number, fleet_class)
        self.slots = list(range(fleet_class.streams))
        self.free_memory = fleet_class.device.memory_bytes
        self.engines: dict[str, _Engine] = {}
        self.running: dict[_Task, None] = {}
        self.demand_w = 0.0
        self.active_w = fleet_class.active_w
        self.headroom_w = max(grain(fleet_class.limit_w) - fleet_class.idle_w - self.active_w, 0.0)
        self.is_active = False
        self.active_from = self.active_since = 0
        self.active_each_j = 0.0
        """Energy of being active that one job has had its share of, all along; jobs keep the difference."""

    def has_room(self) -> bool:
        return bool(self.slots)

    def take(self, queue: Queue) -> bool:
        need = self.engine.footprint(self, queue.head()[1])
        if need > self.free_memory:
            return False
        self._begin(queue.pop(), need)
        return True

    def start(self, job: int) -> None:
        self._begin(job, self.engine.footprint(self, job))

    def _begin(self, job: int, need: float) -> None:
        engine = self.engine
        compiled = self._program(job)
        rank = engine.rank[job]
        engine.start[job] = engine.env.now
        engine.device[job] = self.number
        if compiled.first_ticks is not None:
            engine.first[job] = engine.env.now + int(compiled.first_ticks[rank])
            engine.gap_of_lone(job, compiled, rank)
        self.free_memory -= need
        self._phase(_Run(job, heappop(self.slots), list(compiled.phases(rank))[::-1], need), rank)
        self._balance()

    def _phase(self, run: _Run, rank: int) -> None:
        phase = run.phases.pop()
        run.open = len(phase)
        for body in phase:
            self._ask(_Task(run, [(s.engine, s.name, *s.at(rank), s.share) for s in body][::-1]))

    def _ask(self, task: _Task) -> None:
        """The task's next segment asks for its engine."""
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
        task.since, task.rate = self.engine.env.now, 0.0

    def _share_active(self) -> None:
        """What has been drawn for being active since last time is shared by those that ran."""
        now = self.engine.env.now
        if self.running:
            self.active_each_j += self.active_w * ((now - self.active_since) / TICKS_PER_SECOND) / len(self.running)
        if not self.is_active:
            self.is_active, self.active_from = True, now
        self.active_since = now

    def _record_active(self) -> None:
        words = self.engine.intervals
        now = self.engine.env.now
        self.is_active = False
        if self.active_w:
            words.add(self.number, words.word("board"), words.word("active"), self.active_from, now, self.active_w)

    def _balance(self) -> None:
        """Let everything that runs go on at the rate that the device's limit allows now."""
        demand = self.demand_w
        rate = 1.0 if demand <= self.headroom_w or demand == 0.0 else self.headroom_w / demand
        for task in self.running:
            if task.rate == rate:
                continue
            self._settle(task)
            task.rate = rate
            # Shares of the headroom are rounded down to the grain, so that their sum never exceeds it.
            task.drawn = task.watts if rate == 1.0 else math.floor(task.watts * rate / WATT_GRAIN) * WATT_GRAIN
            task.version += 1
            event = Alarm(self.engine.env, self._rung(task, task.version), event_order(FINISH, self.number))
            event.set(math.ceil(task.left / rate) if rate < 1.0 else round(task.left))

    def _settle(self, task: _Task) -> None:
        """Record what the task did since it was last looked at."""
        now = self.engine.env.now
        if now > task.since and task.rate > 0:
            task.left = max(task.left - (now - task.since) * task.rate, 0.0)
            words = self.engine.intervals
            lane = task.engine if task.lane == 0 else f"{task.engine} {task.lane + 1}"
            words.add(self.number, words.word(lane), words.word(task.name), task.since, now, task.drawn)
            self.engine.energy[task.run.job] += task.drawn * ((now - task.since) / TICKS_PER_SECOND)
        task.since = now

    def _rung(self, task: _Task, version: int) -> Callable[[simpy.Event], None]:
        def ring(_event: simpy.Event) -> None:
            if task.version == version:
                self._end(task)

        return ring

    def _end(self, task: _Task) -> None:
        """The task's segment is done: those who wait for its engine go on, then the task itself."""
        self._settle(task)
        task.version += 1
        self._share_active()
        self.engine.energy[task.run.job] += self.active_each_j - task.active_j
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
                self._phase(run, self.engine.rank[run.job])
        self._balance()
        if not self.running:
            self._record_active()
        if not run.open:
            heappush(self.slots, run.slot)
            self.free_memory += run.memory
            self.engine.finished(run.job, self)
            self.engine.more(self)

    def close(self, end: int) -> None:
        if self.is_active:
            self._share_active()
            self._record_active()
        for task in self.running:
            self._settle(task)
            self.engine.energy[task.run.job] += self.active_each_j - task.active_j


class _Sequence:
    """A generating job in a continuous batch."""

    __slots__ = ("born", "ends_at", "energy_base", "job", "last", "output", "prompt", "ready")

    def __init__(self, job: int, prompt: int, output: int) -> None:
        self.job = job
        self.prompt = prompt
        """Tokens to be read before the next one can be made: the prompt, and after a preemption what was made."""
        self.output = output
        self.ready = 0
        """Tokens of the prompt that have been read."""
        self.born = 0
        """The step after which it began to decode: it has made 1 + steps since tokens."""
        self.last = 0
        self.ends_at = 0
        self.energy_base = 0.0


class ContinuousStation(Station):
    """Generating jobs, batched iteration by iteration as serving engines do.

    Each step takes every sequence that has read its prompt one token further, and fills what is left of the
    step's tokens with chunks of prompts. Memory for keys and values is taken as tokens come; when it runs out the
    youngest sequence is put off and later reads again what it had (recomputation, as in vLLM; Kwon et al., SOSP
    2023, section 4.5). A job is admitted when its prompt fits.
    """

    def __init__(self, engine: ProcessEngine, number: int, fleet_class: FleetClass) -> None:
        super().__init__(engine, number, fleet_class)
        self.batch = engine.prepared.policy.batch
        self.alarm = Alarm(engine.env, self._stepped, event_order(FINISH, number))
        self.reading: deque[_Sequence] = deque()
        self.put_off: deque[_Sequence] = deque()
        self.decoding: dict[_Sequence, None] = {}
        self.decoding_of = [0] * len(engine.prepared.workloads)
        self.ending: dict[int, list[_Sequence]] = {}
        self.context = 0
        self.cached = 0
        self.steps = 0
        self.stepping = False
        """Whether a step is under way; between steps and when idle it is not."""
        self.per_token_j = 0.0
        self.preemptions = 0
        self._step: tuple[int, float, list[tuple[_Sequence, int]]] = (0, 0.0, [])
        # One model a device, so every program that generates here shares its tables (checked when prepared).
        self.costs = next((c.decoder for c in self.compiled if c is not None and c.decoder is not None), None)
        self.capacity = self.costs.cache_tokens(self.batch.memory) if self.costs is not None else 0
        words = engine.intervals
        self._lane = words.word("compute")
        self._names = (words.word("decode"), words.word("prefill"), words.word("prefill + decode"))

    def has_room(self) -> bool:
        return not self.stepping

    def take(self, queue: Queue) -> bool:
        """The station takes what it can at the beginning of its own steps; this begins one."""
        self._begin_step()
        return self.stepping

    def start(self, job: int) -> None:
        self._admit(job)
        self._begin_step()

    def _admit(self, job: int) -> None:
        engine = self.engine
        compiled = self._program(job)
        assert compiled.prompts is not None and compiled.outputs is not None  # noqa: S101
        rank = engine.rank[job]
        sequence = _Sequence(job, int(compiled.prompts[rank]), int(compiled.outputs[rank]))
        engine.start[job] = engine.env.now
        engine.device[job] = self.number
        self.cached += sequence.prompt
        self.reading.append(sequence)

    def _begin_step(self) -> None:
        engine = self.engine
        size = self.batch.size
        while len(self.reading) + len(self.decoding) < size:
            if self.put_off:
                if self.cached + self.put_off[0].prompt + len(self.decoding) > self.capacity:
                    break
                sequence = self.put_off.popleft()
                self.cached += sequence.prompt
                self.reading.append(sequence)
                continue
            queue = engine.queue_for(self)
            if queue is None:
                break
            job = queue.head()[1]
            compiled = self._program(job)
            assert compiled.prompts is not None  # noqa: S101
            if self.cached + int(compiled.prompts[engine.rank[job]]) + len(self.decoding) > self.capacity:
                break
            self._admit(queue.pop())
        while self.cached + len(self.decoding) > self.capacity and (self.reading or len(self.decoding) > 1):
            self._put_off_youngest()
        decoding = len(self.decoding)
        room = self.batch.tokens - decoding
        chunks: list[tuple[_Sequence, int]] = []
        costs = self.costs
        assert costs is not None  # noqa: S101
        seconds = joules = 0.0
        ends = tokens = 0
        for sequence in self.reading:
            if room <= 0:
                break
            chunk = min(room, sequence.prompt - sequence.ready)
            s, j = costs.prompt_attention(sequence.ready, chunk)
            seconds, joules = seconds + s, joules + j
            chunks.append((sequence, chunk))
            room -= chunk
            tokens += chunk
            ends += sequence.ready + chunk == sequence.prompt
        if not chunks and not decoding:
            self.stepping = False
            return
        s, j = costs.linear_and_decode(decoding, self.context, tokens, ends)
        seconds, joules = seconds + s, joules + j
        ticks = to_ticks(seconds)
        self._step = (engine.env.now, grain(joules / seconds), chunks)
        self.stepping = True
        self.alarm.set(ticks)

    def _put_off_youngest(self) -> None:
        """Give back the memory of the sequence that came last; it will read again what it had."""
        self.preemptions += 1
        if self.reading:
            sequence = self.reading.pop()
            self.cached -= sequence.prompt
        else:
            sequence, _ = self.decoding.popitem()
            self.decoding_of[self.engine.workload_of[sequence.job]] -= 1
            made = 1 + self.steps - sequence.born
            held = sequence.prompt + made
            self.ending[sequence.ends_at].remove(sequence)
            self.context -= held
            self.cached -= held
            self.engine.energy[sequence.job] += self.per_token_j - sequence.energy_base
            sequence.last = self.engine.env.now
            sequence.prompt, sequence.output = held, sequence.output - made
        sequence.ready = 0
        self.put_off.appendleft(sequence)

    def _stepped(self, _event: simpy.Event) -> None:
        engine = self.engine
        now = engine.env.now
        began, watts, chunks = self._step
        decoding = len(self.decoding)
        read = sum(chunk for _, chunk in chunks)
        name = self._names[0 if not chunks else (2 if decoding else 1)]
        engine.intervals.add(self.number, self._lane, name, began, now, watts)
        share = watts * ((now - began) / TICKS_PER_SECOND) / (decoding + read)
        self.per_token_j += share
        self.steps += 1
        self.cached += decoding
        self.context += decoding
        for workload, count in enumerate(self.decoding_of):
            if count:
                engine.add_gap(now - began, count, now, workload)
        for sequence in self.ending.pop(self.steps, ()):
            self.decoding.pop(sequence)
            self.decoding_of[engine.workload_of[sequence.job]] -= 1
            held = sequence.prompt + sequence.output
            self.context -= held
            self.cached -= held
            engine.energy[sequence.job] += self.per_token_j - sequence.energy_base
            engine.finished(sequence.job, self)
        for sequence, chunk in chunks:
            sequence.ready += chunk
            engine.energy[sequence.job] += share * chunk
            if sequence.ready == sequence.prompt:
                self.reading.popleft()
                self._first(sequence, now)
        self._begin_step()
        engine.more(self)

    def _first(self, sequence: _Sequence, now: int) -> None:
        """The prompt is read, and with it a token is made."""
        engine = self.engine
        job = sequence.job
        if engine.first[job] < 0:
            engine.first[job] = now
        else:
            engine.add_gap(now - sequence.last, 1, now, engine.workload_of[job])
        self.cached += 1
        if sequence.output == 1:
            self.cached -= sequence.prompt + 1
            engine.finished(job, self)
            return
        self.context += sequence.prompt + 1
        sequence.energy_base = self.per_token_j
        sequence.born = self.steps
        sequence.ends_at = self.steps + sequence.output - 1
        self.decoding[sequence] = None
        self.decoding_of[engine.workload_of[job]] += 1
        self.ending.setdefault(sequence.ends_at, []).append(sequence)

    def close(self, end: int) -> None:
        if self.stepping:
            began, watts, _ = self._step
            self.engine.intervals.add(self.number, self._lane, self._names[0], began, end, watts)


def station_for(engine: ProcessEngine, number: int, fleet_class: FleetClass) -> Station:
    """The station that a device's fleet entry and the policy's batching call for."""
    if engine.prepared.policy.batch.kind == "continuous":
        return ContinuousStation(engine, number, fleet_class)
    programs = [compiled for (c, _), compiled in engine.prepared.compiled.items() if c == fleet_class.number]
    side_by_side = any(len(phase) > 1 for p in programs for variant in p.variants for phase in variant)
    if fleet_class.streams > 1 or side_by_side:
        return StreamStation(engine, number, fleet_class)
    return SingleStation(engine, number, fleet_class)
