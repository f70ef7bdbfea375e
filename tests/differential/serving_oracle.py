"""An independent simulation of continuous batching, small and slow: what both engines are checked against.

It shares no code with the engines' transitions, and follows docs/scenarios.md (continuous batches, prefix caches, fair
shares, preemption, failures) and docs/engine.md (ties). It knows several replicas with one central queue or the route
least-loaded, budgets of tokens and sequences, chunked and undivided prompts, prompts in steps of their own, admission on
demand and of whole contexts, preemption by memory and by class, prefix caches block by block, fair shares, and failures.

Sequences are objects in lists, sums are counted anew at every step, and time is an integer of ticks. A step costs a toy
amount (`Toy`), which `toy_run` writes into the tables that the engines read.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from windtunnel.core.serving_engine import Admission
from windtunnel.core.step import EngineTimes
from windtunnel.engine.prepare.decoder_tables import CONTEXT_GRAIN
from windtunnel.engine.prepare.fault_schedule import FAIL, INTERRUPT, REPAIR
from windtunnel.engine.prepare.prepared import PreparedRun

MOVE, FAILS = "migrate", "fail"
HORIZON = 10**12
"""The ticks for which the schedule of faults is read; no run of the oracle is longer."""


@dataclass(frozen=True)
class Toy:
    """The ticks of a step: whole numbers, so that sums of floats in the engines round to the same ones."""

    step: int = 50_000_000
    token: int = 110_000
    head: int = 31_000
    context: int = 700

    def ticks(self, tokens: int, heads: int, context: int) -> int:
        return self.step + self.token * tokens + self.head * heads + self.context * context


@dataclass(frozen=True)
class Habits:
    """What the serving engine does, and how large its steps and its cache are."""

    alone: bool = False
    undivided: bool = False
    whole: bool = False


def toy_run(ready: PreparedRun, habits: Habits, toy: Toy) -> PreparedRun:
    """Return a run whose steps cost the toy amount, and whose engine has these habits."""
    programs = {}
    for key, program in ready.compiled.items():
        costs: Any = copy.copy(program.decoder)
        engine = replace(
            costs.replica.engine,
            admission=Admission.WHOLE if habits.whole else Admission.ON_DEMAND,
            chunked_prefill=not habits.undivided,
            prefill_first=habits.alone,
        )
        costs.replica = replace(costs.replica, engine=engine)
        costs.divided = replace(costs.divided, times=EngineTimes())
        costs._flat = {}
        tokens, heads, grid = (
            np.arange(n) for n in (*(t.shape[1] for t in (costs.linear, costs.head)), costs.decode.shape[2])
        )
        linear = np.where(tokens > 0, toy.step + toy.token * tokens, 0) / 1e12
        head = toy.head * heads / 1e12
        decode = toy.context * heads[:, None] * (grid * CONTEXT_GRAIN) / 1e12
        costs.linear, costs.head, costs.decode = (np.stack([t, 100.0 * t]) for t in (linear, head, decode))
        costs.prefill = np.zeros_like(costs.prefill)
        programs[key] = replace(program, decoder=costs)
    return replace(ready, compiled=programs)


@dataclass(eq=False)
class Request:
    """A request, and what became of it."""

    number: int
    work: int
    key: float
    arrival: int
    whole_prompt: int
    whole_output: int
    blocks: list[tuple[int, int]]
    """The blocks of the prompt with their tokens."""
    flow: int = 0
    prompt: int = 0
    """Tokens to read: the prompt, and what was generated before its cache was lost."""
    read: int = 0
    made: int = 0
    """Tokens generated since then."""
    is_decoding: bool = False
    using: list[int] = field(default_factory=list)
    found: int = 0
    """Blocks that were in the cache when it was admitted."""
    hits: int = 0
    noted: int = 0
    """Its hits at its last start."""
    chunk: int = 0
    start: int = -1
    first: int = -1
    finish: int = -1
    device: int = -1
    starts: int = 0
    failed: bool = False

    @property
    def delivered(self) -> int:
        return self.prompt - self.whole_prompt + self.made

    @property
    def rank(self) -> tuple[float, int]:
        return self.key, self.number


@dataclass(eq=False)
class Replica:
    """A replica: its sequences in the order of admission, its cache, and its present step."""

    number: int
    capacity: int
    most_tokens: int
    most_sequences: int
    waiting: list[Request] = field(default_factory=list)
    reading: list[Request] = field(default_factory=list)
    decoding: list[Request] = field(default_factory=list)
    off: list[Request] = field(default_factory=list)
    kept: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """Blocks that no sequence uses with their tokens, the least recently used first."""
    up: bool = True
    end: int | None = None
    pauses: bool = False
    present: int = 0

    @property
    def running(self) -> list[Request]:
        return self.reading + self.decoding


class Oracle:
    """One run. ``cache``: None, 0 for a cache in the KV memory, or the blocks of one of its own."""

    def __init__(
        self, ready: PreparedRun, habits: Habits, toy: Toy, cache: int | None, rules: Sequence[tuple[str, int]]
    ):
        self.habits, self.toy, self.cache, self.rules = habits, toy, cache, rules
        self.routed = ready.policy.route.score is not None
        self.outranks = ready.policy.preemption != "none"
        self.preemptions = 0
        self.served: Counter[tuple[int, int]] = Counter()
        """What each flow was served, by owner (a replica, or 0 for a central queue) and flow."""
        self.latest: dict[tuple[int, float], int] = {}
        self.fair = ready.policy.fair
        names = sorted({w.workload.tenant or w.workload.name for w in ready.workloads})
        self.weights = {
            n: 1.0 if self.fair is None else self.fair.weights.get(name, 1.0) for n, name in enumerate(names)
        }
        decoder = next(iter(ready.compiled.values())).decoder
        assert decoder is not None
        size = decoder.largest
        self.replicas = [
            Replica(n, decoder.capacity_tokens, size.tokens, size.sequences) for n in range(ready.device_count)
        ]
        self.central: list[Request] = []
        self.unassigned: list[Request] = []
        self.requests = []
        by_priority = ready.policy.order.name == "priority"
        for number, (tick, work, rank) in enumerate(
            zip(ready.arrival.tolist(), ready.workload_of.tolist(), ready.rank.tolist(), strict=True)
        ):
            program = next(p for (_, w), p in ready.compiled.items() if w == work)
            assert program.prompts is not None and program.outputs is not None
            prompt, output = (
                int(np.broadcast_to(a, (rank + 1,))[rank]) if a.size == 1 else int(a[rank])
                for a in (program.prompts, program.outputs)
            )
            workload = ready.workloads[work].workload
            key = -float(workload.priority) if by_priority else 0.0
            flow = names.index(workload.tenant or workload.name)
            blocks = self._blocks(ready, work, rank, prompt) if cache is not None else []
            self.requests.append(Request(number, work, key, tick, prompt, output, blocks, flow, prompt))
        end = ready.end if ready.end is not None else 2**62
        self.end = end
        schedule = [] if ready.faults is None else ready.faults.until(min(end, HORIZON)).view(np.recarray)
        self.faults = [(int(event.tick), int(event.on), int(event.code), int(event.rule)) for event in schedule]

    @staticmethod
    def _blocks(ready: PreparedRun, work: int, rank: int, prompt: int) -> list[tuple[int, int]]:
        """Return the blocks of a prompt: a number that only prompts with the same beginning share, and the tokens."""
        chains, size = ready.chains[work], ready.block_tokens
        ids = [
            (work * 2**40 + run * 2**20 + place)
            for run in chains.runs[chains.at[rank] : chains.at[rank + 1]].tolist()
            for place in range(int(chains.blocks[run]))
        ]
        return [(b, min(size, prompt - size * i)) for i, b in enumerate(ids)]

    # The run.

    def run(self) -> list[Request]:
        arrivals = iter(self.requests)
        coming = next(arrivals, None)
        faults = iter(self.faults)
        fault = next(faults, None)
        while True:
            ends = [(r.end, r.number) for r in self.replicas if r.end is not None]
            busy = any(r.running or r.off or r.waiting for r in self.replicas) or self.central or self.unassigned
            if coming is None and not busy:
                break
            times = [min(ends)[0] if ends else None, fault[0] if fault else None, coming.arrival if coming else None]
            now = min((t for t in times if t is not None), default=None)
            if now is None or now > self.end:
                break
            assert now < HORIZON
            self.now = now
            if times[0] == now:
                self._end_step(self.replicas[min(ends)[1]])
            elif fault and times[1] == now:
                self._apply(*fault[1:])
                fault = next(faults, None)
            else:
                assert coming is not None
                self._place(coming)
                coming = next(arrivals, None)
        return self.requests

    def _place(self, request: Request) -> None:
        """Assign a request to a queue."""
        if not self.routed:
            self._wait(self.central, request, 0)
            for replica in self.replicas:
                self._begin(replica)
            return
        able = [r for r in self.replicas if r.up]
        if not able:
            self.unassigned.append(request)
            return
        chosen = min(able, key=lambda r: (r.present, r.number))
        chosen.present += 1
        self._wait(chosen.waiting, request, chosen.number)
        self._begin(chosen)

    # Queues and fair shares.

    def _owner(self, replica: Replica) -> tuple[list[Request], int]:
        return (replica.waiting, replica.number) if self.routed else (self.central, 0)

    def _wait(self, queue: list[Request], request: Request, owner: int) -> None:
        """Add a request to a queue. A tenant that had none there catches up with the others of its priority."""
        alike = [other for other in queue if other.key == request.key]
        if all(other.flow != request.flow for other in alike):
            others = [self.served[owner, other.flow, request.key] for other in alike]
            last = self.latest.get((owner, request.key))
            floor = min(others) if others else 0 if last is None else self.served[owner, last, request.key]
            mine = owner, request.flow, request.key
            self.served[mine] = max(self.served[mine], floor)
        queue.append(request)

    def _next(self, queue: list[Request], owner: int) -> Request | None:
        if self.fair is None:
            return min(queue, key=lambda q: q.rank, default=None)
        return min(
            queue,
            key=lambda q: (
                q.key,
                self.served[owner, q.flow, q.key],
                min(o.number for o in queue if (o.flow, o.key) == (q.flow, q.key)),
                q.number,
            ),
            default=None,
        )

    def _take(self, queue: list[Request], request: Request, owner: int) -> None:
        queue.remove(request)
        if all((other.flow, other.key) != (request.flow, request.key) for other in queue):
            self.latest[owner, request.key] = request.flow

    def _charge(self, replica: Replica, request: Request, kind: str, tokens: int) -> None:
        if self.fair is not None:
            per = round(2**20 * getattr(self.fair, kind) / self.weights[request.flow])
            self.served[self._owner(replica)[1], request.flow, request.key] += per * tokens

    # The cache.

    def _used(self, replica: Replica) -> dict[int, int]:
        """Return the blocks that sequences use with their tokens."""
        tokens = {b: n for q in replica.running for b, n in q.blocks}
        return {b: tokens[b] for q in replica.running for b in q.using}

    def _held(self, replica: Replica) -> int:
        """Return the tokens for which sequences have memory. Blocks count once, however many sequences use them."""
        used = self._used(replica)
        own = 0
        for q in replica.running:
            own += q.prompt + q.made - sum(used[b] for b in q.using)
        return own + sum(used.values())

    def _look_up(self, replica: Replica, q: Request) -> int:
        """Look up the blocks of a prompt; return the tokens for which it needs memory."""
        q.read = q.found = q.hits = 0
        if self.cache is None:
            return q.prompt
        used = self._used(replica)
        hit = fresh = 0
        for block, tokens in q.blocks:
            if block not in used and block not in replica.kept:
                break
            hit += tokens
            fresh += tokens if block not in used else 0
            q.found += 1
        q.hits, q.read = q.found, min(hit, q.prompt - 1)
        return q.prompt if self.cache else q.prompt - hit + fresh

    def _use(self, replica: Replica, q: Request) -> None:
        """Touch the blocks of an admitted prompt from the first to the last."""
        for block, tokens in q.blocks if self.cache is not None else []:
            replica.kept.pop(block, None)
            if self.cache:
                replica.kept[block] = tokens
                while len(replica.kept) > self.cache:
                    replica.kept.popitem(last=False)
            else:
                q.using.append(block)

    def _release(self, replica: Replica, q: Request) -> None:
        """Take a sequence out of its list. Its blocks stay, unless they are not read yet or others use them."""
        (replica.decoding if q.is_decoding else replica.reading).remove(q)
        used = self._used(replica)
        for place, block in enumerate(q.using):
            if block not in used and (q.is_decoding or q.read == q.prompt or place < q.found):
                replica.kept[block] = dict(q.blocks)[block]
        q.using = []

    def _shrink(self, replica: Replica, room: int) -> None:
        while self.cache == 0 and sum(replica.kept.values()) > max(room, 0):
            replica.kept.popitem(last=False)

    # Steps.

    def _fits(self, replica: Replica, q: Request, needs: int, without: Sequence[Request] = ()) -> bool:
        """Return whether there is room for a sequence, and for the next token of those that decode."""
        kept = [o for o in replica.running if o not in without]
        held = self._held(replica) - sum(o.prompt + o.made for o in without)
        if self.habits.whole:
            left = sum(o.whole_output - o.delivered for o in kept)
            return not kept or held + needs + q.whole_output - q.delivered + left <= replica.capacity
        return held + needs + sum(o.is_decoding for o in kept) <= replica.capacity

    def _preempt(self, replica: Replica, q: Request) -> None:
        self.preemptions += 1
        behind = [q]
        if not q.is_decoding and self.outranks and self.cache is not None:
            behind = replica.reading[replica.reading.index(q) :][::-1]
        for other in behind:
            self._release(replica, other)
            other.prompt, other.made, other.read, other.is_decoding = other.prompt + other.made, 0, 0, False
            replica.off.insert(0, other)

    def _fill(self, replica: Replica) -> None:
        queue, owner = self._owner(replica)
        while True:
            waiting = self._next(queue, owner) if replica.up else None
            back = (
                (min(replica.off, key=lambda q: q.rank) if self.outranks else replica.off[0]) if replica.off else None
            )
            room = replica.most_tokens - (0 if self.habits.alone else len(replica.decoding))
            room -= sum(o.prompt - o.read for o in replica.reading)
            if room <= 0 and not self.habits.whole:
                break
            q = back or waiting
            if self.outranks and back and waiting and waiting.key < back.key:
                q = waiting
            if q is None:
                break
            needs = self._look_up(replica, q)
            if len(replica.running) >= replica.most_sequences or not self._fits(replica, q, needs):
                later = [o for o in replica.running if o.key > q.key]
                if not (self.outranks and later):
                    break
                if not (self._fits(replica, q, needs, later) or len(later) == len(replica.running)):
                    break
                self._preempt(replica, max(later, key=lambda o: o.rank))
                continue
            if q is back:
                replica.off.remove(q)
            else:
                self._take(queue, q, owner)
                if q.starts == 0:
                    self._charge(replica, q, "prompt", q.prompt - q.read)
                q.start, q.device, q.starts = self.now, replica.number, q.starts + 1
                q.noted = q.hits
            replica.reading.append(q)
            self._use(replica, q)
            self._shrink(replica, replica.capacity - self._held(replica) - len(replica.decoding))
        while self._held(replica) + len(replica.decoding) > replica.capacity and (
            replica.reading or len(replica.decoding) > 1
        ):
            youngest = (replica.reading or replica.decoding)[-1]
            self._preempt(replica, max(replica.running, key=lambda o: o.rank) if self.outranks else youngest)
        self._shrink(replica, replica.capacity - self._held(replica) - len(replica.decoding))

    def _begin(self, replica: Replica) -> None:
        """Begin a step, if the replica is idle and has work."""
        if replica.end is not None or not replica.up:
            return
        self._fill(replica)
        replica.pauses = self.habits.alone and bool(replica.reading)
        decoding = [] if replica.pauses else replica.decoding
        room = replica.most_tokens - len(decoding)
        for q in replica.reading:
            q.chunk = 0
        for q in replica.reading:
            chunk = min(room, q.prompt - q.read)
            fits_alone = q.prompt <= replica.most_tokens - len(decoding)
            if chunk == 0 or (self.habits.undivided and q.read == 0 and chunk < q.prompt and fits_alone):
                break
            q.chunk, room = chunk, room - chunk
        tokens = len(decoding) + sum(q.chunk for q in replica.reading)
        if tokens:
            heads = len(decoding) + sum(q.read + q.chunk == q.prompt for q in replica.reading)
            context = sum(q.prompt + q.made for q in decoding)
            replica.end = self.now + self.toy.ticks(tokens, heads, context)

    def _end_step(self, replica: Replica) -> None:
        replica.end = None
        produced = [] if replica.pauses else list(replica.decoding)
        for q in produced:
            self._token(replica, q)
        for q in list(replica.reading):
            q.read, q.chunk = q.read + q.chunk, 0
            if q.read == q.prompt:
                replica.reading.remove(q)
                replica.decoding.append(q)
                q.is_decoding = True
                self._token(replica, q)
        self._begin(replica)

    def _token(self, replica: Replica, q: Request) -> None:
        q.made += 1
        self._charge(replica, q, "output", 1)
        if q.first < 0:
            q.first = self.now
        if q.delivered == q.whole_output:
            self._release(replica, q)
            q.finish = self.now
            replica.present -= 1

    # Failures.

    def _apply(self, on: int, code: int, rule: int) -> None:
        replica = self.replicas[on]
        if code == FAIL:
            replica.up, replica.end = False, None
        elif code == INTERRUPT:
            self._lose(replica, *self.rules[rule - 1])
        elif code == REPAIR:
            replica.up = True
            self._begin(replica)
            again, self.unassigned = self.unassigned, []
            for request in again:
                self._place(request)

    def _lose(self, replica: Replica, becomes: str, attempts: int) -> None:
        """Requeue, move or fail what a replica had. Delivered tokens are not generated again."""
        moving = []
        for q in [*replica.decoding, *replica.reading, *replica.off]:
            q.prompt, q.made, q.read, q.is_decoding, q.using = q.prompt + q.made, 0, 0, False, []
            if becomes == FAILS or q.starts >= attempts:
                q.failed, q.finish = True, self.now
                replica.present -= 1
                continue
            q.start = q.device = -1
            if q.delivered == 0:
                q.first = -1
            if becomes == MOVE and self.routed:
                moving.append(q)
                replica.present -= 1
            else:
                self._wait(*self._queue_and(q, replica))
        replica.decoding, replica.reading, replica.off = [], [], []
        replica.kept.clear()
        while becomes == MOVE and self.routed and (q := self._next(replica.waiting, replica.number)) is not None:
            self._take(replica.waiting, q, replica.number)
            replica.present -= 1
            moving.append(q)
        for other in self.replicas if not self.routed else []:
            self._begin(other)
        for q in moving:
            self._place(q)

    def _queue_and(self, q: Request, replica: Replica) -> tuple[list[Request], Request, int]:
        queue, owner = self._owner(replica)
        return queue, q, owner


def rows_of(requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """Return device, start, first token, end, starts and failure of each request, as the engines record them."""
    return [(q.device, q.start, q.first, q.finish, q.starts, int(q.failed)) for q in requests]
