"""Serving as a state machine: devices fail, come back, become unreachable, slow and short of power at any moment.

The machine holds one run of the process engine. Its rules process events and cause faults. After every event the books
of the run are counted anew from its lists: no request is lost or in two places, tokens are conserved and never
delivered twice, no KV cache holds more than its memory, and power adds up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.cases import memory_of
from tests.differential.comparison import prepared
from tests.differential.serving_fuzz import MODEL
from tests.differential.watched import Watched

from windtunnel.core.recording import COMPLETED
from windtunnel.engine.prepare.fault_schedule import CAP, FAIL, INTERRUPT, LINK_DOWN, LINK_UP, REPAIR, SPEED
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results import invariants
from windtunnel.engine.transitions.faults import apply_fault

RETRIED, MOVED, FAILED_WITH_IT = 1, 2, 3
"""The rows of the rules of interruptions, which are those of the first faults of every scenario."""
LATER = "1000 s"
IDLE_W, MOST_W = 40.0, 72.0


def _scenario(**changes: Any) -> dict[str, Any]:
    """Return a scenario with two classes of requests on small caches, whose stated faults come after its end."""
    batch = {"kind": "continuous", "size": 6, "tokens": 64, "memory": 1.0, **changes.pop("batch", {})}
    entry = changes.pop("entry", {})
    work = [
        {
            "name": name,
            "priority": priority,
            "arrivals": {"process": "poisson", "rate": "2000 /s"},
            "ops": [{"generate": {"model": "small", "prompt": prompt, "output": output, "shared_prefix": 16}}],
        }
        for name, priority, prompt, output in (("gold", 2, 30, 8), ("free", 1, 70, 40), ("batch", 1, 20, 60))
    ]
    for own, more in zip(work, changes.pop("work", [{}, {}, {}]), strict=True):
        own |= more
    faults: list[dict[str, Any]] = [
        {"kind": "failure", "at": [LATER], "duration": "1 s", "on_failure": becomes, "max_attempts": 4}
        for becomes in ("retry", "migrate", "fail")
    ]
    faults += [{"kind": "link-loss", "at": [LATER], "duration": "1 s"}]
    policy = {"route": "central", "order": "arrival", "batch": batch, **changes.pop("policy", {})}
    memory = memory_of(MODEL, 150, batch["tokens"], batch["size"], 1.0)
    return {
        "schema": 1,
        "name": "machine",
        "models": {"small": MODEL},
        "fleet": [{"device": "l4", "name": "d", "count": 3, "calibration": "none", "memory": memory, **entry}],
        "workload": work,
        "policy": policy,
        "faults": faults,
        "stop": {"jobs": 60},
        **changes,
    }


_PRIORITY = {"order": "priority", "preemption": "resume"}
_CLOSED = {"process": "closed", "users": 8, "think": {"mean": "1 ms"}}
_SCALED = [
    {"entry": "d", "min": 1, "max": 3, "every": "2 ms", "provisioning": "1 ms", "up": {"running_per_device": 3},
     "down": {"running_per_device": 1}}
]  # fmt: skip
SCENARIOS = {
    "central": _scenario(policy={"fair": {}}),
    "classes": _scenario(policy={**_PRIORITY, "fair": {"weights": {"free": 2}}, "route": "least-loaded"}),
    "classes, cache": _scenario(policy=_PRIORITY, batch={"prefix_cache": {}}),
    "cache of its own": _scenario(policy={**_PRIORITY, "route": "kv-aware"}, batch={"prefix_cache": {"blocks": 9}}),
    "cache": _scenario(policy={"route": "prefix-and-load"}, batch={"prefix_cache": {}}, entry={"engine": "sglang"}),
    "whole contexts": _scenario(policy={**_PRIORITY, "route": "least-loaded"}, entry={"engine": "trtllm"}),
    "prompts in steps of their own": _scenario(policy={"route": "least-loaded", "fair": {}}, entry={"engine": "sglang"}),
    "impatient": _scenario(
        policy={"order": "priority", "fair": {}}, work=[{"patience": "1 ms"}, {"max_waiting": 9}, {"patience": "3 ms"}]
    ),
    "limited": _scenario(
        policy={"route": "least-loaded", "fair": {}},
        work=[
            {"rate_limit": {"tokens": 400, "per": "10 ms"}},
            {},
            {"rate_limit": {"tokens": 800, "per": "20 ms", "over": "wait"}},
        ],
    ),
    "closed": _scenario(
        policy={**_PRIORITY, "route": "least-loaded", "fair": {}}, work=[{}, {"arrivals": _CLOSED}, {"tenant": "gold"}]
    ),
    "scaled": _scenario(policy={"route": "least-loaded", **_PRIORITY}, autoscale=_SCALED),
    "short of power": _scenario(
        policy={**_PRIORITY, "fair": {}}, power_budget="190 W",
        entry={"power": {"idle": f"{IDLE_W} W", "max": f"{MOST_W} W"}},
    ),
}  # fmt: skip


@cache
def ready(name: str) -> PreparedRun:
    """Return a scenario by its name, prepared."""
    return prepared(SCENARIOS[name])


class Books(Watched):
    """A run whose books are counted after every event."""

    def __init__(self, prepared: PreparedRun, progress: None = None) -> None:
        super().__init__(prepared, progress)
        self.delivered: dict[int, int] = {}
        """The tokens that each request is known to have delivered."""

    def _consequences(self) -> None:
        super()._consequences()
        self.check()

    def hold_memory(self, device: int) -> None:
        """Check the cache of a device, also of one without a prefix cache."""
        w: Any = self.world
        if w.run[0].caching:
            super().hold_memory(device)

    def check(self) -> None:
        """Count everything anew; AssertionError for what does not agree."""
        w: Any = self.world
        r = w.run[0]
        assert r.arrived == r.completed + r.dropped + r.failed + r.running + r.waiting
        places = Counter(slot for device in range(r.devices) for slot in self.held_by(device))
        assert sum(places.values()) == r.running
        queued = [self.queue(queue) for queue in range(len(w.queues))]
        for queue, slots in enumerate(queued):
            assert w.queues[queue].number == sum(w.slots[slot].starts >= 0 for slot in slots)
        unassigned = list(self.chain(r.unassigned))
        stay = sum(w.slots[slot].starts >= 0 for slot in unassigned)
        assert r.waiting == sum(q.number for q in w.queues) + stay + r.pausing
        places.update(slot for slots in queued for slot in slots)
        places.update(unassigned)
        places.update(self.chain(r.free))
        assert max(places.values(), default=1) == 1  # no slot is in two places
        assert len(places) == len(w.slots) - r.pausing
        for device in range(r.devices):
            self.check_device(device)
        for slot in [*(slot for slots in queued for slot in slots), *unassigned]:
            if w.slots[slot].starts >= 0:
                self.check_tokens(slot, w.sequences[slot].prompt - self.stated(slot)[0], True)
        self.check_shares()
        drawing = sum(d.watts for d in w.devices if d.slot >= 0 and not d.paused and not d.outages)
        assert r.drawing_w == drawing
        if r.gated and not r.draining:
            assert r.drawn_w <= r.cap_w

    def check_device(self, device: int) -> None:
        w: Any = self.world
        r, v, d = w.run[0], w.servers[device], w.devices[device]
        c = w.classes[d.cls]
        held = promised = attended = 0
        by_work: Counter[int] = Counter()
        for slot, is_decoding in self.batch(device):
            q, s = w.sequences[slot], w.slots[slot]
            made = 1 + v.steps - q.born if is_decoding else 0
            held += q.prompt + made + c.state
            promised += q.output - made
            attended += (q.prompt + made) * is_decoding
            assert 0 <= q.read <= q.prompt and (q.read == q.prompt) == is_decoding and 0 <= made < q.output
            by_work[s.work] += is_decoding
            if r.fair and is_decoding:
                flow = w.workloads[s.work].flows
                by_work[r.workloads + (-1 - flow if flow < 0 else w.ints[flow + s.rank])] += 1
            self.check_tokens(slot, q.prompt - self.stated(slot)[0] + made, bool(d.linked))
        for slot in self.chain(v.off):
            self.check_tokens(slot, w.sequences[slot].prompt - self.stated(slot)[0], bool(d.linked))
        assert v.promised == promised and v.attended == attended
        assert v.reading_count == len(list(self.chain(v.reading)))
        assert v.decoding_count == len(list(self.chain(v.decoding)))
        assert v.reading_count + v.decoding_count <= c.most_sequences
        assert w.decoding_of[device].tolist() == [by_work[i] for i in range(w.decoding_of.shape[1])]
        if not r.caching:
            assert v.cached == held
        if d.slot >= 0 and v.reading_count + v.decoding_count > 1:
            assert v.cached + v.decoding_count <= c.capacity

    def check_tokens(self, slot: int, made: int, is_linked: bool) -> None:
        """Check that a request neither loses tokens nor delivers them again."""
        w: Any = self.world
        q, job = w.sequences[slot], w.slots[slot].job
        assert q.prompt + q.output == sum(self.stated(slot))
        assert made >= self.delivered.get(job, 0)
        if is_linked:
            self.delivered[job] = made

    def check_shares(self) -> None:
        w: Any = self.world
        r = w.run[0]
        if not r.fair:
            return
        waiting = [0] * len(w.shares)
        for number, queue in enumerate(w.queues):
            waiting[number if r.routed else number % r.lines] += queue.number
        assert [share.waiting for share in w.shares] == waiting

    # The lists.

    def stated(self, slot: int) -> tuple[int, int]:
        """Return the lengths of prompt and output of a request."""
        w: Any = self.world
        s = w.slots[slot]
        x = w.workloads[s.work]
        return w.ints[x.prompts + s.rank], w.ints[x.outputs + s.rank]

    def chain(self, slot: int) -> Iterator[int]:
        w: Any = self.world
        while slot >= 0:
            yield slot
            slot = w.slots[slot].next

    def batch(self, device: int) -> Iterator[tuple[int, bool]]:
        """Yield the sequences of the batch of a device, and whether they decode."""
        w: Any = self.world
        for first in (w.servers[device].reading, w.servers[device].decoding):
            for slot in self.chain(first):
                yield slot, first == w.servers[device].decoding

    def held_by(self, device: int) -> Iterator[int]:
        w: Any = self.world
        v = w.servers[device]
        for first in (v.reading, v.decoding, v.off, v.undelivered):
            yield from self.chain(first)

    def queue(self, queue: int) -> list[int]:
        """Return the slots of a queue; with a key it is a heap, whose nodes have children and siblings."""
        w: Any = self.world
        if not w.run[0].keyed:
            return list(self.chain(w.queues[queue].head))
        found, remaining = [], [w.queues[queue].head]
        while remaining:
            slot = remaining.pop()
            if slot >= 0:
                found.append(slot)
                remaining += [w.slots[slot].child, w.slots[slot].next]
        return found

    # Faults.

    def cause(self, code: int, on: int, row: int = 0, value: float = 1.0) -> None:
        """Let an event of the schedule of faults happen now."""
        apply_fault(self.world, SimpleNamespace(code=code, on=on, rule=row, value=value))
        self._consequences()


def finished(run: Books, was_cut: bool) -> None:
    """Run to the end, and check the recording."""
    while run.step():
        pass
    w: Any = run.world
    assert w.run[0].running == w.run[0].waiting == 0
    recording = run.finish()
    invariants.check(recording)
    jobs, gaps = recording.jobs, recording.token_gaps
    if (jobs.status == COMPLETED).all() and not was_cut:
        # Every token after the first ends one gap, and the gaps of a request fill the time from its first to its last.
        assert int(gaps.weights.sum()) == int((jobs.tokens - 1).sum())
        assert int((gaps.ticks * gaps.weights).sum()) == int((jobs.finish - jobs.first).sum())


class ServingMachine(RuleBasedStateMachine):
    """The rules. Hypothesis chooses a scenario, and then which of them happens next."""

    @initialize(name=st.sampled_from(sorted(SCENARIOS)))
    def start(self, name: str) -> None:
        self.run = Books(ready(name))
        self.down: set[int] = set()
        self.cut: set[int] = set()
        self.was_cut = False
        self.run.begin()

    @rule(events=st.integers(1, 60))
    def go_on(self, events: int) -> None:
        for _ in range(events):
            if not self.run.step():
                break

    @rule(device=st.integers(0, 2), how=st.sampled_from([RETRIED, MOVED, FAILED_WITH_IT]), events=st.integers(0, 40))
    def fail(self, device: int, how: int, events: int) -> None:
        if device not in self.down:
            self.down.add(device)
            self.run.cause(FAIL, device, how)
            self.run.cause(INTERRUPT, device, how)
        self.go_on(events)

    @precondition(lambda self: self.down)
    @rule(which=st.integers(0, 2), events=st.integers(0, 40))
    def repair(self, which: int, events: int) -> None:
        device = sorted(self.down)[which % len(self.down)]
        self.down.remove(device)
        self.run.cause(REPAIR, device)
        self.go_on(events)

    @rule(device=st.integers(0, 2), events=st.integers(0, 40))
    def turn_link(self, device: int, events: int) -> None:
        """Lose the link of a device, or restore it."""
        self.run.cause(LINK_UP if device in self.cut else LINK_DOWN, device)
        self.cut ^= {device}
        self.was_cut = True
        self.go_on(events)

    @rule(device=st.integers(0, 2), speed=st.sampled_from([0.25, 0.5, 1.0]), events=st.integers(0, 40))
    def slow(self, device: int, speed: float, events: int) -> None:
        self.run.cause(SPEED, device, value=speed)
        self.go_on(events)

    @rule(share=st.sampled_from([0.0, 0.4, 0.7, 1.0]), events=st.integers(0, 40))
    def cap(self, share: float, events: int) -> None:
        w: Any = self.run.world
        if w.run[0].gated:
            self.run.cause(CAP, -1, value=3 * (IDLE_W + share * (MOST_W - IDLE_W)) + 1.0)
        self.go_on(events)

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        w: Any = self.run.world
        for device in range(3):
            self.run.cause(SPEED, device, value=1.0)
        if w.run[0].gated:
            self.run.cause(CAP, -1, value=3 * MOST_W)
        for device in sorted(self.down):
            self.run.cause(REPAIR, device)
        for device in sorted(self.cut):
            self.run.cause(LINK_UP, device)
        finished(self.run, self.was_cut)
