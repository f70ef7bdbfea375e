"""Prefix caches: both engines alike, hits as an independent count of blocks has them, and memory that adds up."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import memory_of
from tests.differential.comparison import assert_same, prepared
from tests.differential.test_engines import EXPENSIVE, SMALL
from tests.differential.watched import run_watched

from windtunnel.core.recording import Recording
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.engine.transitions import prefix_tables

BLOCK = 512
ROUTES = ["central", "least-loaded", "kv-aware", "prefix-aware", "prefix-and-load", "session-affinity"]
WHOLE_TRACE = Path(__file__).parents[2] / "scenarios" / "traces" / "mooncake_conversation.jsonl.gz"
TIERS: list[dict[str, Any]] = [
    {"host": {"size": "4 MB", "bandwidth": "1 GB/s"}},
    {"disk": {"size": "20 MB", "bandwidth": "2 GB/s"}},
    {"host": {"size": "6 MB"}, "disk": {"size": "9 MB", "bandwidth": "200 MB/s"}},
]
HITS_OF_WHOLE_TRACE = {2**30: 105_710, 10_000: 60_921, 1_000: 12_831}
"""36.64%, 21.12% and 4.45% of its 288,500 blocks."""


def hits_of(prompts: Sequence[Sequence[int]], room: int) -> list[int]:
    """Return how many blocks of each prompt a cache of ``room`` blocks has, one prompt after the other."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = []
    for ids in prompts:
        found = 0
        while found < len(ids) and ids[found] in cache:
            found += 1
        hits.append(found)
        for block in ids:
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > room:
                cache.popitem(last=False)
    return hits


def served(trace: Path, cache: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a scenario of one device that reads the prompts of a trace."""
    return {
        "schema": 1,
        "name": "read",
        "fleet": [{"device": "h100-sxm-80gb"}],
        "models": {"small": SMALL},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "trace", "file": str(trace), "format": "mooncake"},
                "ops": [{"generate": {"model": "small", "prompt": "$input_length", "output": 1}}],
            }
        ],
        "policy": {"name": "fifo", "batch": {"kind": "continuous", "tokens": 131_072, "prefix_cache": cache}},
        **changes,
    }


def test_an_hour_of_real_requests_hits_the_same_blocks_whichever_tier_has_them() -> None:
    """Each tier has the blocks that were used last, so all of them together have those of the largest."""
    size = BLOCK * 1024
    tiers = {
        "blocks": 100,
        "host": {"size": f"{1_000 * size} B", "bandwidth": "100 TB/s"},
        "disk": {"size": f"{10_000 * size} B", "bandwidth": "100 TB/s"},
    }
    recording = compiled.run(prepared(served(WHOLE_TRACE, tiers)))
    assert recording.jobs.hit_blocks is not None and recording.use is not None
    assert int(recording.jobs.hit_blocks.sum()) == HITS_OF_WHOLE_TRACE[10_000]
    of_host, of_disk = recording.use.tier_blocks[:, 0].tolist()
    assert HITS_OF_WHOLE_TRACE[10_000] - of_host - of_disk < HITS_OF_WHOLE_TRACE[1_000] < HITS_OF_WHOLE_TRACE[10_000]
    assert of_host > 0 and of_disk > 0


@pytest.mark.parametrize("room", HITS_OF_WHOLE_TRACE)
def test_an_hour_of_real_requests_hits_the_blocks_that_a_plain_count_hits(room: int) -> None:
    rows = [json.loads(line) for line in gzip.decompress(WHOLE_TRACE.read_bytes()).splitlines()]
    hits = hits_of([row["hash_ids"] for row in rows], room)
    assert sum(hits) == HITS_OF_WHOLE_TRACE[room]
    for engine in (process, compiled):
        jobs = engine.run(prepared(served(WHOLE_TRACE, {"blocks": room}))).jobs
        assert jobs.hit_blocks is not None and jobs.blocks is not None and jobs.hits is not None
        assert jobs.hit_blocks.tolist() == hits
        assert jobs.blocks.sum() == 288_500
        lengths = [row["input_length"] for row in rows]
        assert jobs.hits.tolist() == [min(BLOCK * n, m - 1) for n, m in zip(hits, lengths, strict=True)]


# Generated requests.


@st.composite
def requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of a trace: each prompt continues a beginning of an earlier one, or is new."""
    rows: list[dict[str, Any]] = []
    after = 0
    now = 0
    for _ in range(draw(st.integers(1, 30))):
        earlier = draw(st.sampled_from(rows))["hash_ids"] if rows and draw(st.integers(0, 3)) else []
        ids = earlier[: draw(st.integers(0, len(earlier)))]
        more = draw(st.integers(0 if ids else 1, 4))
        ids, after = [*ids, *range(after, after + more)], after + more
        now += draw(st.sampled_from([0, 0, 1, 2, 9]))
        # Equal ids have equal tokens, so only a block that is new may be partial.
        length = BLOCK * len(ids) - (draw(st.sampled_from([0, 1, 300, 511])) if more else 0)
        output = draw(st.sampled_from([1, 2, 30, 200]))
        rows.append({"timestamp": now, "input_length": length, "output_length": output, "hash_ids": ids})
    partial = {row["hash_ids"][-1]: row["input_length"] for row in rows if row["input_length"] % BLOCK}
    for row in rows:
        if row["hash_ids"][-1] in partial:
            row["input_length"] = partial[row["hash_ids"][-1]]
    return rows


@st.composite
def cached(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A scenario with prefix caches, and the rows of its trace."""
    rows = draw(requests())
    longest = max(row["input_length"] + row["output_length"] for row in rows)
    size, tokens = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([256, 1024, 8192]))
    room = longest + draw(st.sampled_from([0, 100, 700, 3000]))
    fleet = [
        {
            "device": "l4",
            "name": "d0",
            "count": draw(st.integers(1, 3)),
            **draw(st.sampled_from([{}, {"memory": memory_of(SMALL, room, tokens, size, 1.0)}])),
        }
    ]
    other = {
        "name": "other",
        "arrivals": {"process": "poisson", "rate": "2000 /s"},
        "ops": [{"generate": {"model": "small", "prompt": 700, "output": 3, "shared_prefix": 600}}],
    }
    faults = draw(
        st.sampled_from(
            [
                [],
                [],
                [{"kind": "failure", "mtbf": "5 ms", "mttr": "1 ms", "on_failure": "retry"}],
                [{"kind": "failure", "at": ["3 ms"], "duration": "4 ms", "on_failure": "migrate"}],
                [{"kind": "link-loss", "at": ["2 ms", "9 ms"], "duration": "1 ms"}],
            ]
        )
    )
    batch = {"kind": "continuous", "size": size, "tokens": tokens, "memory": 1.0}
    batch["prefix_cache"] = draw(st.sampled_from([{}, {}, {"blocks": 3}, {"blocks": 9, "block": BLOCK}]))
    batch["prefix_cache"] |= draw(st.sampled_from([{}, *TIERS]))
    chat = served(Path("rows.jsonl"), {})["workload"][0]
    chat["ops"][0]["generate"]["output"] = "$output_length"
    return {
        "schema": 1,
        "name": "generated",
        "seed": draw(st.integers(0, 5)),
        "fleet": fleet,
        "models": {"small": SMALL},
        "workload": [chat, other] if draw(st.booleans()) else [chat],
        "policy": {"route": draw(st.sampled_from(ROUTES)), "order": "arrival", "batch": batch},
        "faults": faults,
        "stop": draw(st.sampled_from([{"jobs": 40}, {"time": "8 ms"}, {"jobs": 15}])),
    }, rows


def ready_run(data: dict[str, Any], rows: list[dict[str, Any]]) -> PreparedRun:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        data["workload"][0]["arrivals"]["file"] = str(path)
        return prepared(data)


@settings(max_examples=60, deadline=None, suppress_health_check=EXPENSIVE)
@given(cached())
def test_both_engines_cache_alike_and_memory_adds_up(drawn: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    ready = ready_run(*drawn)
    one, other = run_watched(ready), compiled.run(ready)
    invariants.check(other)
    assert_same(one, other)
    held_to_bounds(other)


def held_to_bounds(recording: Recording) -> None:
    jobs = recording.jobs
    assert jobs.hits is not None and jobs.blocks is not None and jobs.hit_blocks is not None
    assert (jobs.hit_blocks <= jobs.blocks).all()
    assert (jobs.hits >= 0).all()
    first = np.lexsort((np.arange(len(jobs)), jobs.start))[jobs.start[np.argsort(jobs.start, kind="stable")] >= 0][:1]
    if not (jobs.starts > 1).any():
        assert not jobs.hit_blocks[first].any()  # a cache is empty at first


@settings(max_examples=60, deadline=None, suppress_health_check=EXPENSIVE)
@given(requests(), st.sampled_from([1, 2, 3, 5, 9, 2**30]), st.integers(1, 5))
def test_hits_do_not_depend_on_the_speed_of_prefill(rows: list[dict[str, Any]], room: int, size: int) -> None:
    batch = {"kind": "continuous", "size": size, "tokens": 1024, "prefix_cache": {"blocks": room}}
    ready = ready_run(served(Path(), {}, policy={"name": "fifo", "batch": batch}), rows)
    jobs = compiled.run(ready).jobs
    assert jobs.hit_blocks is not None
    assert jobs.hit_blocks.tolist() == hits_of([row["hash_ids"] for row in rows], room)


def test_tables_of_nodes_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_tables, "_NODES", 1)
    rows = [
        {"timestamp": i // 3, "input_length": 700, "output_length": 5, "hash_ids": [0, i % 40 + 1]} for i in range(90)
    ]
    ready = ready_run(
        served(Path(), {}, policy={"name": "fifo", "batch": {"kind": "continuous", "size": 7, "prefix_cache": {}}}),
        rows,
    )
    assert_same(run_watched(ready), compiled.run(ready))


@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_copies_of_the_requests_of_an_hour_hit_about_as_often_as_these(scale: float) -> None:
    """Requests that a redrawn or a scaled hour has twice have other last blocks then.

    As equal copies they would hit 52 to 55% where the hour is redrawn, and 51% where it is scaled.
    """
    data = served(WHOLE_TRACE, {"blocks": 2**30})
    data["workload"][0]["arrivals"]["scale"] = scale
    ready = prepared(data)
    ready = ready if scale > 1.0 else ready.redrawn(2)
    (chains,) = ready.chains
    seen: set[int] = set()
    hits = 0
    for begin, end in zip(chains.at[:-1].tolist(), chains.at[1:].tolist(), strict=True):
        runs = chains.runs[begin:end].tolist()
        found = next((i for i, run in enumerate(runs) if run not in seen), len(runs))
        hits += int(chains.blocks[runs[:found]].sum())
        seen.update(runs)
    assert abs(hits / chains.job_blocks.sum() - 105_710 / 288_500) < 0.04


def test_what_a_preempted_request_has_not_prefilled_is_not_found_later() -> None:
    """B is preempted during its prefill, because A needs its memory, and begins again when A has ended."""
    batch = {"kind": "continuous", "size": 2, "tokens": 256, "memory": 1.0, "prefix_cache": {}}
    a = {"timestamp": 0, "input_length": 512, "output_length": 60, "hash_ids": [1]}
    b = {"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [2, 3]}

    def run(rows: list[dict[str, Any]]) -> Recording:
        data = served(Path(), {}, policy={"name": "fifo", "batch": batch})
        data["workload"][0]["ops"][0]["generate"]["output"] = "$output_length"
        data["fleet"][0] |= {"device": "l4", "memory": memory_of(SMALL, 512 + 1024 + 32, 256, 2, 1.0)}
        return run_watched(ready_run(data, rows))

    alone = run([b]).jobs
    span = int(run([a]).jobs.finish[0]) / 1e9
    cases = 0
    for share in np.linspace(0.1, 0.95, 40):
        recording = run([a, {**b, "timestamp": round(span * float(share), 4)}])
        jobs = recording.jobs
        if jobs.start[1] < jobs.finish[0] < jobs.first[1] and any("KV cache was full" in n for n in recording.notes):
            cases += 1
            assert jobs.first[1] - jobs.finish[0] == alone.first[0] - alone.arrival[0]
    assert cases
