"""A device that serves a model with continuous batching."""

from __future__ import annotations

from collections import deque

import simpy

from windtunnel.core.ticks import TICKS_PER_SECOND, to_ticks
from windtunnel.engine.prepare.prepared import FleetClass
from windtunnel.engine.prepare.programs import round_power
from windtunnel.engine.process.queues import Queue
from windtunnel.engine.process.stations.base import FINISH, Alarm, RunContext, Station, event_order


class _Sequence:
    """A request in a continuous batch."""

    __slots__ = ("born", "ends_at", "energy_base", "job", "last", "output", "prompt", "ready")

    def __init__(self, job: int, prompt: int, output: int) -> None:
        self.job = job
        self.prompt = prompt
        """Tokens to process before the next output token: the prompt, and after a preemption also the output so far."""
        self.output = output
        self.ready = 0
        """The number of prompt tokens that have been processed."""
        self.born = 0
        """The step after which it began to decode; it has produced one token, and one in each step since."""
        self.last = 0
        self.ends_at = 0
        self.energy_base = 0.0


class ContinuousStation(Station):
    """Requests, batched step by step as serving engines do.

    Each step produces a token for every decoding sequence, and uses the remaining tokens of the step for chunks of
    prompts. KV cache is reserved as tokens are produced. When memory is full, the youngest sequence is preempted, and
    its tokens are recomputed later (as in vLLM; Kwon et al., SOSP 2023, section 4.5). A request is admitted when its
    prompt fits.
    """

    def __init__(self, context: RunContext, number: int, fleet_class: FleetClass) -> None:
        super().__init__(context, number, fleet_class)
        self.batch = context.prepared.policy.batch
        self.alarm = Alarm(self.env, self._stepped, event_order(FINISH, number))
        self.reading: deque[_Sequence] = deque()
        self.preemptions: deque[_Sequence] = deque()
        self.decoding: dict[_Sequence, None] = {}
        self.decoding_of = [0] * len(context.prepared.workloads)
        self.ending: dict[int, list[_Sequence]] = {}
        self.attended = 0
        """The sum of the tokens that the decoding sequences attend to."""
        self.cached = 0
        self.steps = 0
        self.stepping = False
        """Whether a step is in progress; it is False between steps and when idle."""
        self.per_token_j = 0.0
        self._step: tuple[int, float, list[tuple[_Sequence, int]]] = (0, 0.0, [])
        # A device serves one model, so its programs that generate tokens share the tables (checked before the run).
        self.costs = next((c.decoder for c in self.compiled if c is not None and c.decoder is not None), None)
        self.capacity = self.costs.cache_tokens(self.batch.memory) if self.costs is not None else 0
        words = context.log.intervals
        context.log.overlapping.add(number)
        self._lane = words.word("compute")
        self._names = (words.word("decode"), words.word("prefill"), words.word("prefill + decode"))

    def has_room(self) -> bool:
        """Return whether the station can start another job now."""
        return not self.stepping and self.up

    def take(self, queue: Queue) -> bool:
        """Begin a step if none is in progress; each step takes as many jobs of the queue as fit."""
        self._begin_step()
        return self.stepping

    def start(self, job: int) -> None:
        """Start one job that was not queued; the station must have room."""
        self._admit(job)
        self._begin_step()

    def _admit(self, job: int) -> None:
        log = self.log
        compiled = self.program(job)
        assert compiled.prompts is not None and compiled.outputs is not None  # noqa: S101
        rank = log.rank[job]
        sequence = _Sequence(job, int(compiled.prompts[rank]), int(compiled.outputs[rank]))
        log.start[job] = self.env.now
        log.device[job] = self.number
        if self.context.observed:
            self.context.observe_start(self)
        self.cached += sequence.prompt
        self.reading.append(sequence)

    def _begin_step(self) -> None:
        log, context = self.log, self.context
        size = self.batch.size
        while len(self.reading) + len(self.decoding) < size:
            if self.preemptions:
                if self.cached + self.preemptions[0].prompt + len(self.decoding) > self.capacity:
                    break
                sequence = self.preemptions.popleft()
                self.cached += sequence.prompt
                self.reading.append(sequence)
                continue
            queue = context.dispatcher.queue_for(self) if self.up else None
            if queue is None:
                break
            job = queue.head()[1]
            compiled = self.program(job)
            assert compiled.prompts is not None  # noqa: S101
            if self.cached + int(compiled.prompts[log.rank[job]]) + len(self.decoding) > self.capacity:
                break
            self._admit(queue.pop())
        while self.cached + len(self.decoding) > self.capacity and (self.reading or len(self.decoding) > 1):
            self._preempt_youngest()
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
        s, j = costs.linear_and_decode(decoding, self.attended, tokens, ends)
        seconds, joules = seconds + s, joules + j
        ticks = to_ticks(seconds)
        self._step = (self.env.now, round_power(joules / seconds), chunks)
        self.stepping = True
        self.alarm.set(ticks)

    def _preempt_youngest(self) -> None:
        """Preempt the sequence that came last: release its memory; its tokens are recomputed later."""
        self.log.preemptions += 1
        if self.reading:
            sequence = self.reading.pop()
            self.cached -= sequence.prompt
        else:
            sequence, _ = self.decoding.popitem()
            self.decoding_of[self.log.workload_of[sequence.job]] -= 1
            made = 1 + self.steps - sequence.born
            held = sequence.prompt + made
            self.ending[sequence.ends_at].remove(sequence)
            self.attended -= held
            self.cached -= held
            self.log.energy[sequence.job] += self.per_token_j - sequence.energy_base
            sequence.last = self.env.now
            sequence.prompt, sequence.output = held, sequence.output - made
        sequence.ready = 0
        self.preemptions.appendleft(sequence)

    def _draw(self, now: int) -> None:
        """Record the present step up to ``now``, and divide its energy by tokens."""
        began, watts, chunks = self._step
        read = sum(chunk for _, chunk in chunks)
        decoding = len(self.decoding)
        name = self._names[0 if not chunks else (2 if decoding else 1)]
        self.log.intervals.add(self.number, self._lane, name, began, now, watts)
        share = watts * ((now - began) / TICKS_PER_SECOND) / (decoding + read)
        self.per_token_j += share
        for sequence, chunk in chunks:
            self.log.energy[sequence.job] += share * chunk

    def _stepped(self, _event: simpy.Event) -> None:
        log, context = self.log, self.context
        now = self.env.now
        self._draw(now)
        began, _, chunks = self._step
        decoding = len(self.decoding)
        self.steps += 1
        self.cached += decoding
        self.attended += decoding
        for workload, count in enumerate(self.decoding_of):
            if count:
                log.add_gap(now - began, count, now, workload)
        for sequence in self.ending.pop(self.steps, ()):
            self.decoding.pop(sequence)
            self.decoding_of[log.workload_of[sequence.job]] -= 1
            held = sequence.prompt + sequence.output
            self.attended -= held
            self.cached -= held
            log.energy[sequence.job] += self.per_token_j - sequence.energy_base
            context.finished(sequence.job, self)
        for sequence, chunk in chunks:
            sequence.ready += chunk
            if sequence.ready == sequence.prompt:
                self.reading.popleft()
                self._first(sequence, now)
        self._begin_step()
        context.dispatcher.feed(self)

    def _first(self, sequence: _Sequence, now: int) -> None:
        """End the prefill of a sequence, which produces a token."""
        log, context = self.log, self.context
        job = sequence.job
        if log.first[job] < 0:
            log.first[job] = now
        else:
            log.add_gap(now - sequence.last, 1, now, log.workload_of[job])
        self.cached += 1
        if sequence.output == 1:
            self.cached -= sequence.prompt + 1
            context.finished(job, self)
            return
        self.attended += sequence.prompt + 1
        sequence.energy_base = self.per_token_j
        sequence.born = self.steps
        sequence.ends_at = self.steps + sequence.output - 1
        self.decoding[sequence] = None
        self.decoding_of[log.workload_of[job]] += 1
        self.ending.setdefault(sequence.ends_at, []).append(sequence)

    def close(self, end: int) -> None:
        """Record the work that is still in progress at the end of the run (ticks)."""
        if self.stepping:
            self._draw(end)
            for sequence in self.decoding:
                self.log.energy[sequence.job] += self.per_token_j - sequence.energy_base
