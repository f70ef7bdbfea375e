"""Prefix caches in scenarios: what a hit saves, what the result tells, where requests go, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import memory_of

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.engine.arrivals import read_trace
from windtunnel.engine.prepare.checks import doubtful_settings
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run
from windtunnel_models.catalogue import Catalogue

CATALOGUE = Catalogue()
TRACES = Path(__file__).resolve().parents[2] / "scenarios" / "traces"
SMALL: dict[str, Any] = {
    "layers": 2, "width": 256, "heads": 4, "kv_heads": 2, "feed_forward": 512, "vocabulary": 1000, "dtype": "bfloat16"
}  # fmt: skip


def scenario(ops: dict[str, Any], **batch: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "cache",
        "fleet": [{"device": "l4", "count": 1}],
        "models": {"small": SMALL},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "deterministic", "rate": "10 /s"},
                "ops": [{"generate": {"model": "small", "prompt": 1000, "output": 5, **ops}}],
            }
        ],
        "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 8, "tokens": 8192, **batch}},
        "stop": {"jobs": 4},
    }


def recorded(data: dict[str, Any]) -> Recording:
    return windtunnel.run(scenario_from_data(data)).recording


def trace_of(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


def row(at_ms: int, ids: list[int], output: int = 5, missing: int = 0) -> dict[str, Any]:
    return {
        "timestamp": at_ms, "input_length": 512 * len(ids) - missing, "output_length": output, "hash_ids": ids
    }  # fmt: skip


def traced(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    data = scenario({"prompt": "$input_length", "output": "$output_length"}, prefix_cache={})
    arrivals = {"process": "trace", "file": str(trace_of(folder, rows)), "format": "mooncake"}
    data["workload"][0]["arrivals"] = arrivals
    del data["stop"]
    return {**data, **changes}


# What a hit saves.


def test_a_prompt_is_prefilled_from_the_first_token_that_the_cache_does_not_have() -> None:
    """The second request takes as long as one whose prompt continues 992 tokens that are there."""
    jobs = recorded(scenario({"shared_prefix": 1000}, prefix_cache={"block": 16})).jobs
    plain = recorded(scenario({})).jobs
    assert jobs.hits is not None and jobs.hit_blocks is not None and jobs.blocks is not None
    assert jobs.hits.tolist() == [0, 992, 992, 992]
    assert jobs.hit_blocks.tolist() == [0, 62, 62, 62]
    assert jobs.blocks.tolist() == [63] * 4
    ttft, before = jobs.first - jobs.arrival, plain.first - plain.arrival
    assert ttft[0] == before[0]
    assert (ttft[1:] < before[1:]).all()
    # Decoding is as long as without a cache.
    assert (jobs.finish - jobs.first).tolist() == (plain.finish - plain.first).tolist()


def test_the_last_token_of_a_prompt_is_processed_even_if_the_cache_has_it(tmp_path: Path) -> None:
    jobs = recorded(traced(tmp_path, [row(0, [1, 2]), row(500, [1, 2]), row(900, [1, 2], missing=0)])).jobs
    assert jobs.hits is not None and jobs.hit_blocks is not None
    assert jobs.hit_blocks.tolist() == [0, 2, 2]
    assert jobs.hits.tolist() == [0, 1023, 1023]
    assert (jobs.first > jobs.arrival).all()


def test_without_common_tokens_nothing_hits() -> None:
    result = windtunnel.run(scenario_from_data(scenario({}, prefix_cache={}))).result
    assert result.serving is not None
    assert result.serving.prefix_hit_rate == 0.0
    assert result.serving.prefix_hit_tokens == 0


def test_the_result_tells_the_share_of_blocks_and_the_tokens() -> None:
    serving = windtunnel.run(scenario_from_data(scenario({"shared_prefix": 1000}, prefix_cache={}))).result.serving
    assert serving is not None
    assert serving.prefix_hit_rate == 3 * 62 / (4 * 63)
    assert serving.prefix_hit_tokens == 3 * 992
    serving = windtunnel.run(scenario_from_data(scenario({"shared_prefix": 1000}))).result.serving
    assert serving is not None
    assert serving.prefix_hit_rate is None
    assert serving.prefix_hit_tokens is None


def test_an_engine_whose_prefix_cache_is_not_stated_is_a_note_where_prompts_share_beginnings(tmp_path: Path) -> None:
    """The results do not change: a prefix cache is a part of the policy, and a run without one says so."""
    shared, talk = scenario({"shared_prefix": 500}), scenario({})
    talk["workload"][0]["session"] = {"turns": 2, "new_tokens": 10, "think": {"mean": "1 ms"}}
    ids = traced(tmp_path, [row(0, [1, 2]), row(10, [1, 3])])
    del ids["policy"]["batch"]["prefix_cache"]
    alike, stated = scenario({}), scenario({"shared_prefix": 500}, prefix_cache={})
    for engine, data, setting in (
        ("vllm", shared, "--no-enable-prefix-caching"),
        ("vllm", talk, "--no-enable-prefix-caching"),
        ("vllm", ids, "--no-enable-prefix-caching"),
        ("sglang", shared, "--disable-radix-cache"),
        ("trtllm", shared, "enable_block_reuse: false"),
        ("vllm", alike, None),
        ("vllm", stated, None),
        ("generic", shared, None),
    ):
        data["fleet"][0]["engine"] = engine
        data["policy"]["batch"] |= {"tokens": 256}
        noted = [
            note
            for note in doubtful_settings(prepare_run(scenario_from_data(data), CATALOGUE, "process"))
            if "no prefix cache is stated" in note
        ]
        assert len(noted) == (setting is not None)
        assert all(f"{engine} has one unless `{setting}`" in note for note in noted)


def test_memory_is_shared_by_the_sequences_that_have_the_same_beginning() -> None:
    """Memory for 1,300 tokens holds one prompt of 1,000, or five that share 992 tokens."""
    common: dict[str, Any] = {"shared_prefix": 1000, "output": 40}
    found = []
    for cache in ({}, {"prefix_cache": {}}):
        data = scenario(common, memory=1.0, **cache)
        data["fleet"][0]["memory"] = memory_of(SMALL, 1300, 8192, 8, 1.0)
        data["workload"][0]["arrivals"]["rate"] = "1000000 /s"
        jobs = recorded(data).jobs
        order = np.sort(jobs.start)
        found.append(int((order < jobs.finish.min()).sum()))
    assert found == [1, 4]


def test_a_device_that_fails_loses_its_cache(tmp_path: Path) -> None:
    data = traced(tmp_path, [row(0, [1]), row(100, [1]), row(300, [1]), row(400, [1])])
    data["faults"] = [{"kind": "failure", "at": ["200 ms"], "duration": "10 ms", "on_failure": "retry"}]
    jobs = recorded(data).jobs
    assert jobs.hit_blocks is not None
    assert jobs.hit_blocks.tolist() == [0, 1, 0, 1]


# Routes.


def routed(folder: Path, policy: dict[str, Any], rows: list[dict[str, Any]], count: int = 3) -> list[int]:
    batch = {"kind": "continuous", "size": 8, "prefix_cache": {}}
    data = traced(folder, rows, policy={**policy, "batch": batch})
    data["fleet"][0]["count"] = count
    return recorded(data).jobs.device.tolist()


def conversations(turns: int = 6) -> list[dict[str, Any]]:
    """Three conversations, whose turns come one after the other, and which begin with one system prompt."""
    return [
        row(1000 * turn + 100 * chat, [0, *range(100 * (chat + 1), 100 * (chat + 1) + 2 + turn)])
        for turn in range(turns)
        for chat in range(3)
    ]


@pytest.mark.parametrize("name", ["prefix-aware", "session-affinity"])
def test_a_conversation_stays_on_the_replica_that_has_its_prefix(tmp_path: Path, name: str) -> None:
    devices = routed(tmp_path, {"name": name}, conversations())
    assert [set(devices[chat::3]) for chat in range(3)] == [{devices[chat]} for chat in range(3)]


def test_a_short_common_beginning_does_not_attract_all_requests(tmp_path: Path) -> None:
    rows = [row(0, [0, 10 * i, 10 * i + 1, 10 * i + 2], output=200) for i in range(1, 4)]
    assert sorted(routed(tmp_path, {"name": "prefix-aware"}, rows)) == [0, 1, 2]


def test_a_kv_aware_route_counts_tokens_and_not_requests(tmp_path: Path) -> None:
    """One long prompt on a replica, four short ones on the other: the next goes to the latter."""
    rows = [row(0, list(range(100)), output=4000), *(row(1, [1000 + i], output=4000) for i in range(5))]
    devices = routed(tmp_path, {"name": "kv-aware"}, rows, count=2)
    assert devices == [0, 1, 1, 1, 1, 1]


def test_a_weighted_route_is_the_sum_that_it_states(tmp_path: Path) -> None:
    rows = conversations()
    same = {"hit_tokens": -1.0, "kv_tokens": 1.0}
    assert routed(tmp_path, {"route": {"weights": same}}, rows) == routed(tmp_path, {"name": "prefix-and-load"}, rows)
    only = {"turns_from_home": 2.0}
    assert routed(tmp_path, {"route": {"weights": only}}, rows) == routed(tmp_path, {"name": "session-affinity"}, rows)


def test_a_route_of_ones_own_sees_the_caches(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def choose(device):\n    return -device.hit_tokens, device.running\n\n\nchoose.rank_by = 'each'\n"
    )
    rows = [row(0, [1]), row(0, [2]), row(500, [2]), row(600, [1])]
    data = traced(tmp_path, rows)
    data["policy"]["name"] = "mine.py:choose"
    data["fleet"][0]["count"] = 2
    path = tmp_path / "s.json"
    path.write_text(json.dumps(data))
    devices = windtunnel.run(path).recording.jobs.device.tolist()
    assert devices[2:] == [devices[1], devices[0]]


# Traces with hash ids.


def test_the_mooncake_trace_is_read_whole() -> None:
    path = TRACES / "mooncake_conversation.jsonl.gz"
    trace = read_trace(path, "mooncake")
    assert trace.blocks is not None
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert trace.blocks.counts().tolist() == [len(r["hash_ids"]) for r in rows]
    assert [tick // 10**9 for tick in trace.ticks] == [r["timestamp"] for r in rows]
    assert int(trace.blocks.blocks.sum()) == len({i for r in rows for i in r["hash_ids"]})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "rows.jsonl:2: this is not JSON"),
        ("[1]", "rows.jsonl:2: this line is not a JSON object"),
        ('{"timestamp": 5, "input_length": 3, "output_length": 1}', "rows.jsonl:2: this line has no 'hash_ids'"),
        (json.dumps(row(5, [])), "hash_ids: this prompt has no block"),
        (json.dumps(row(5, [7, 2])), "the id 2 has other ids before it than on line 1"),
        (json.dumps(row(5, [2])), "the id 2 has other ids before it than on line 1"),
        (json.dumps({**row(5, [1]), "hash_ids": [1, -2]}), "this list has other elements than ids"),
        (json.dumps({**row(5, [1]), "input_length": None}), "input_length: this is None"),
        (json.dumps({**row(5, [1]), "timestamp": "now"}), "'now' is not a time"),
        (json.dumps({**row(5, [1, 2, 3]), "input_length": 600}), "this prompt has 3 hash ids of 512 tokens, and 600"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place(tmp_path: Path, line: str, says: str) -> None:
    data = traced(tmp_path, [row(0, [1, 2])])
    (tmp_path / "rows.jsonl").write_text(json.dumps(row(0, [1, 2])) + "\n" + line + "\n")
    with pytest.raises(InputError) as error:
        recorded(data)
    assert says in str(error.value)
    assert "rows.jsonl:2" in str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prefix_cache": {"block": 16}}, "blocks of 16 tokens, and the hash ids of the trace of 'chat' stand for 512"),
        ({"prefix_cache": {"blocks": 0}}, "blocks"),
        ({"prefix_cache": {"block_size": 16}}, "block_size"),
    ],
)
def test_a_cache_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    data = traced(tmp_path, [row(0, [1, 2])])
    data["policy"]["batch"] |= change
    with pytest.raises(InputError, match=says):
        recorded(data)


@pytest.mark.parametrize(
    ("ops", "says"),
    [
        ({"shared_prefix": 1001}, "a prompt has 1,000 tokens, and the prefix that all share 1,001"),
        ({"shared_prefix": "$p"}, "this is a column"),
        ({"shared_prefix": -1}, "this is -1"),
    ],
)
def test_a_shared_prefix_that_does_not_fit_is_refused(ops: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        recorded(scenario(ops, prefix_cache={}))
    assert says in str(error.value)


def test_routes_that_see_caches_require_continuous_batches() -> None:
    data = scenario({})
    data["policy"] = {"name": "prefix-aware"}
    with pytest.raises(InputError, match="requires devices with continuous batching"):
        recorded(data)
    data = scenario({})
    data["policy"] = {"route": {"weights": {"hit_token": 1}}, "batch": data["policy"]["batch"]}
    with pytest.raises(InputError, match="hit_tokens"):
        recorded(data)
