"""Requests that move between replicas: both engines alike, memory that adds up, and no request lost."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import memory_of
from tests.differential.comparison import assert_same, prepared
from tests.differential.test_engines import EXPENSIVE, SMALL
from tests.differential.test_prefix_cache import ready_run, requests, served
from tests.differential.watched import run_watched

from windtunnel.core.recording import COMPLETED, Recording
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.results import invariants

ROUTES = ["central", "least-loaded", "round-robin", "kv-aware", "prefix-aware", "session-affinity"]


@st.composite
def moving(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A scenario whose requests move, and the rows of its trace."""
    rows = draw(requests())
    longest = max(row["input_length"] + row["output_length"] for row in rows)
    size, tokens = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([256, 1024, 8192]))
    fleet = []
    engine = draw(st.sampled_from(["generic", "generic", "sglang", "trtllm"]))
    for role in ["prefill", "decode", *draw(st.sampled_from([[], [], ["both"], ["decode"]]))]:
        room = -(-(longest + draw(st.sampled_from([0, 100, 700, 3000]))) // 32) * 32  # whole blocks of every engine
        memory = draw(st.sampled_from([{}, {"memory": memory_of(SMALL, room, tokens, size, 1.0)}]))
        entry = {"device": draw(st.sampled_from(["l4", "h100-sxm-80gb"])), "name": f"{role}{len(fleet)}", "role": role}
        fleet.append({**entry, "count": draw(st.integers(1, 3)), "engine": engine, **memory})
    chat = served(Path("rows.jsonl"), {})["workload"][0]
    chat["ops"][0]["generate"]["output"] = "$output_length"
    other = {
        "name": "other",
        "priority": 1,
        "arrivals": draw(
            st.sampled_from(
                [
                    {"process": "poisson", "rate": "2000 /s"},
                    {"process": "closed", "users": 3, "think": {"distribution": "exponential", "mean": "1 ms"}},
                ]
            )
        ),
        **draw(st.sampled_from([{}, {"session": {"turns": 3, "new_tokens": 90, "think": {"mean": "1 ms"}}}])),
        "ops": [{"generate": {"model": "small", "prompt": 700, "output": 3, "shared_prefix": 600}}],
        **draw(st.sampled_from([{}, {"patience": "2 ms"}, {"max_waiting": 2}])),
    }
    on_failure = draw(st.sampled_from(["retry", "migrate", "fail"]))
    faults = draw(
        st.sampled_from(
            [
                [],
                [],
                [{"kind": "failure", "mtbf": "5 ms", "mttr": "1 ms", "on_failure": on_failure}],
                [{"kind": "failure", "at": ["3 ms"], "duration": "4 ms", "on_failure": on_failure, "pause": "1 ms"}],
                [{"kind": "failure", "at": ["2 ms"], "devices": ["decode1"], "on_failure": on_failure}],
                [{"kind": "link-loss", "at": ["2 ms", "9 ms"], "duration": "1 ms"}],
                [{"kind": "throttle", "at": ["1 ms"], "duration": "5 ms", "speed": 0.5}],
                [{"kind": "launch-failure", "probability": 0.05}],
            ]
        )
    )
    batch = {"kind": "continuous", "size": size, "tokens": tokens, "memory": 1.0}
    host, disk = {"size": "20 MB", "bandwidth": "1 GB/s"}, {"size": "1 GB", "bandwidth": "100 MB/s"}
    few = {"blocks": 9, "block": 512}
    caches = [None, {}, few, {"host": host}, {"host": host, "disk": disk}, {**few, "host": host, "disk": disk}]
    batch |= {} if (cache := draw(st.sampled_from(caches))) is None else {"prefix_cache": cache}
    policy = {"route": draw(st.sampled_from(ROUTES)), "order": draw(st.sampled_from(["arrival", "priority"]))}
    policy |= draw(st.sampled_from([{}, {"decode_route": "kv-aware"}, {"decode_route": "prefix-aware"}]))
    network = draw(st.sampled_from([{}, {"bandwidth": "20 MB/s", "latency": "1 us"}]))
    more = draw(
        st.sampled_from(
            [
                {},
                {},
                {"power_budget": "20 kW"},
                {
                    "autoscale": [
                        {"entry": "decode1", "min": 1, "max": 3, "every": "1 ms", "provisioning": "1 ms",
                         "up": {"queue_per_device": 1}, "down": {"running_per_device": 1, "for": "2 ms"}}
                    ]
                },
            ]
        )
    )  # fmt: skip
    if "autoscale" in more:
        fleet[1]["count"] = 1
        faults = []
    return {
        "schema": 1,
        "name": "generated",
        "seed": draw(st.integers(0, 5)),
        "fleet": fleet,
        "network": network,
        "models": {"small": SMALL},
        "workload": [chat, other] if draw(st.booleans()) else [chat],
        "policy": {**policy, "batch": batch},
        "faults": faults,
        **more,
        "stop": draw(st.sampled_from([{"jobs": 40}, {"time": "8 ms"}, {"jobs": 15}])),
    }, rows


def none_is_lost(ready: PreparedRun, recording: Recording) -> None:
    """Without a stop time, every request that is not rejected, impatient or ended by a fault completes."""
    if ready.end is None and not ready.scenario.faults and not any(w.workload.patience for w in ready.workloads):
        rejected = 0 if recording.use is None else recording.use.rejected.sum()
        assert (recording.jobs.status == COMPLETED).sum() == len(recording.jobs) - rejected


@settings(max_examples=60, deadline=None, suppress_health_check=EXPENSIVE)
@given(moving())
def test_both_engines_move_requests_alike_and_memory_adds_up(
    drawn: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    ready = ready_run(*drawn)
    one, other = run_watched(ready), compiled.run(ready)
    invariants.check(other)
    assert_same(one, other)
    none_is_lost(ready, one)
    for recording in (one, other):
        moved = recording.transfers
        assert moved is not None
        assert (moved.asked <= moved.began).all() and (moved.began < moved.landed).all()


# An independent simulation: one replica that reads prompts, and some that decode, without preemption.


@dataclass
class Writer:
    """A replica that decodes: requests that come to it, in order, and those in its batch."""

    coming: list[int] = field(default_factory=list)
    reserved: int = 0
    landed: int = 0
    batch: dict[int, int] = field(default_factory=dict)
    """The tokens that each request in the batch has produced."""
    cached: int = 0
    free_at: int = 0
    """Until when it receives."""
    busy: bool = False


class Oracle:
    """Plays requests through step costs, and shares no code with the transitions but the cost of a step."""

    def __init__(self, ready: PreparedRun, prompts: list[int], outputs: list[int], writers: int, limit: int) -> None:
        self.costs = [ready.compiled[cls, 0].decoder for cls in (0, 1)]
        self.link = ready.links
        self.prompts, self.outputs, self.limit = prompts, outputs, limit
        self.writers = [Writer() for _ in range(writers)]
        self.waiting: list[int] = []
        self.reading: dict[int, int] = {}
        self.sends_until = 0
        self.is_reading = False
        self.first: dict[int, int] = {}
        self.finish: dict[int, int] = {}
        self.events: list[tuple[int, int, int, Any]] = []
        self.room = self.costs[1].capacity_tokens

    def run(self, arrivals: list[int]) -> None:
        for job, tick in enumerate(arrivals):
            heappush(self.events, (tick, 9, job, job))
        while self.events:
            now, kind, _, what = heappop(self.events)
            if kind == 9:
                self.waiting.append(what)
                self.read(now)
            elif kind == 0:
                self.has_read(now, what)
            elif kind == 1:
                self.has_decoded(now, what)
            else:
                self.writers[what].landed += 1
                self.decode(now, what)

    def at(self, tick: int, kind: int, what: Any) -> None:
        heappush(self.events, (tick, kind, len(self.events) + tick, what))

    def read(self, now: int) -> None:
        """Begin a step of the reader if it is idle."""
        if self.is_reading:
            return
        while self.waiting and len(self.reading) < self.limit:
            self.reading[self.waiting.pop(0)] = 0
        room, chunks = self.costs[0].largest.tokens, {}
        for job, read in self.reading.items():
            chunk = min(room, self.prompts[job] - read)
            if chunk:
                chunks[job], room = chunk, room - chunk
        if chunks:
            ends = sum(self.reading[job] + chunk == self.prompts[job] for job, chunk in chunks.items())
            seconds, _ = self.costs[0].step(0, 0.0, [(self.reading[job], c) for job, c in chunks.items()], ends)
            self.is_reading = True
            self.at(now + round(seconds * 1e12), 0, chunks)

    def has_read(self, now: int, chunks: dict[int, int]) -> None:
        self.is_reading = False
        done = []
        for job, chunk in chunks.items():
            self.reading[job] += chunk
            if self.reading[job] == self.prompts[job]:
                del self.reading[job]
                done.append(job)
        self.read(now)
        for job in done:
            if self.outputs[job] == 1:
                self.first[job] = self.finish[job] = now
                continue
            scores = [
                (w.reserved < len(w.coming) or not self.has_room(w, job), len(w.coming) + len(w.batch), i)
                for i, w in enumerate(self.writers)
            ]
            chosen = min(scores)[2]
            self.writers[chosen].coming.append(job)
            self.decode(now, chosen)

    def has_room(self, w: Writer, job: int) -> bool:
        fits = w.cached + self.prompts[job] + len(w.batch) <= self.room
        return fits and len(w.batch) + w.reserved < self.limit

    def decode(self, now: int, number: int) -> None:
        """Begin a step of a replica that decodes if it is idle: take, reserve, decode."""
        w = self.writers[number]
        if w.busy:
            return
        for _ in range(w.landed):
            job = w.coming.pop(0)
            w.batch[job], self.first[job] = 1, now
            w.cached += 1
            w.reserved -= 1
        w.landed = 0
        while w.reserved < len(w.coming) and self.has_room(w, w.coming[w.reserved]):
            job = w.coming[w.reserved]
            w.cached += self.prompts[job]
            w.reserved += 1
            size = self.prompts[job] * self.link[1].token_bytes
            ends = self.link[0].network, self.link[1].network
            seconds = size / min(e.bytes_per_s for e in ends) + max(e.latency_s for e in ends)
            begins = max(now, self.sends_until, w.free_at)
            self.sends_until = w.free_at = begins + ceil(seconds * 1e12)
            self.at(w.free_at, 2, number)
        if w.batch:
            context = sum(self.prompts[job] + made for job, made in w.batch.items())
            seconds, _ = self.costs[1].step(len(w.batch), float(context), [], 0)
            w.busy = True
            self.at(now + round(seconds * 1e12), 1, number)

    def has_decoded(self, now: int, number: int) -> None:
        w = self.writers[number]
        w.busy = False
        w.cached += len(w.batch)
        for job in list(w.batch):
            w.batch[job] += 1
            if w.batch[job] == self.outputs[job]:
                w.cached -= self.prompts[job] + w.batch.pop(job)
                self.finish[job] = now
        self.decode(now, number)


@settings(max_examples=25, deadline=None, suppress_health_check=EXPENSIVE)
@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 900), st.integers(1, 40)), min_size=1, max_size=25),
    st.integers(1, 3),
    st.sampled_from([2, 6]),
    st.sampled_from(["60 MB/s", "2 GB/s"]),
    st.sampled_from([1_100, 4_000]),
)
def test_requests_move_as_an_independent_simulation_moves_them(
    drawn: list[tuple[int, int, int]], writers: int, limit: int, bandwidth: str, room: int
) -> None:
    ticks = np.cumsum([gap for gap, _, _ in drawn]) * 1_000_003
    prompts, outputs = [p for _, p, _ in drawn], [o for _, _, o in drawn]
    rows = "\n".join(
        ["t,p,g", *(f"{t / 1e12:.12f},{p},{o}" for t, p, o in zip(ticks.tolist(), prompts, outputs, strict=True))]
    )
    batch = {"kind": "continuous", "size": limit, "tokens": 512, "memory": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rows.csv").write_text(rows)
        arrivals = {"process": "trace", "file": str(Path(folder) / "rows.csv"), "time": "t"}
        generate = {"model": "small", "prompt": "$p", "output": "$g"}
        memory = memory_of(SMALL, room, 512, limit, 1.0)
        ready = prepared(
            {
                "schema": 1,
                "name": "moved",
                "fleet": [
                    {"device": "h100-sxm-80gb", "role": "prefill"},
                    {"device": "l4", "role": "decode", "count": writers, "memory": memory},
                ],
                "network": {"bandwidth": bandwidth},
                "models": {"small": SMALL},
                "workload": [{"name": "chat", "arrivals": arrivals, "ops": [{"generate": generate}]}],
                "policy": {"name": "fifo", "batch": batch},
            }
        )
    recording = run_watched(ready)
    if recording.use is not None and recording.use.preemptions.sum():
        return  # the independent simulation has no preemption
    oracle = Oracle(ready, prompts, outputs, writers, limit)
    oracle.run(recording.jobs.arrival.tolist())
    jobs = recording.jobs
    assert [oracle.first[job] for job in range(len(drawn))] == pytest.approx(jobs.first.tolist(), abs=1e3)
    assert [oracle.finish[job] for job in range(len(drawn))] == pytest.approx(jobs.finish.tolist(), abs=1e3)
