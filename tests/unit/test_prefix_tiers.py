"""Tiers below prefix caches: what a load costs, what waits for it, what is lost by faults, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.test_prefix_cache import SMALL

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.recording import Jobs
from windtunnel.core.results.prefix_tiers import PrefixTier
from windtunnel.core.results.run import RunResult
from windtunnel.scenario.read import scenario_from_data

PER_TOKEN = 1024
"""The KV cache of a token of the small model (bytes): keys and values of 2 layers with 2 heads of 64 in 2 bytes."""
BLOCK = 512 * PER_TOKEN


def scenario(folder: Path, rows: list[tuple[float, list[int], int]], cache: dict[str, Any], **more: Any) -> Any:
    """Return a scenario of requests (ms, ids of blocks, output tokens) to one device with a cache."""
    path = folder / "rows.jsonl"
    path.write_text(
        "\n".join(
            json.dumps({"timestamp": at, "input_length": 512 * len(ids), "output_length": output, "hash_ids": ids})
            for at, ids, output in rows
        )
    )
    generate = {"model": "small", "prompt": "$input_length", "output": "$output_length"}
    arrivals = {"process": "trace", "file": str(path), "format": "mooncake"}
    return {
        "schema": 1,
        "name": "tiers",
        "fleet": [{"device": "l4"}],
        "models": {"small": SMALL},
        "workload": [{"name": "chat", "arrivals": arrivals, "ops": [{"generate": generate}]}],
        "policy": {"name": "fifo", "batch": {"kind": "continuous", "tokens": 8192, "prefix_cache": cache}},
        **more,
    }


def ran(data: Any) -> tuple[RunResult, Jobs]:
    run = windtunnel.run(scenario_from_data(data), engine="process")
    assert isinstance(run.result, RunResult)
    return run.result, run.recording.jobs


def tiers_of(result: RunResult) -> dict[str, PrefixTier]:
    assert result.serving is not None
    return {row.tier: row for row in result.serving.prefix_tiers}


def host(blocks: int = 100, rate: str = "1 GB/s", **more: Any) -> dict[str, Any]:
    """Return a cache of one block beside the memory of the device, and a tier in host memory."""
    return {"blocks": 1, "host": {"size": f"{blocks * BLOCK} B", "bandwidth": rate}, **more}


def first_s(jobs: Jobs) -> np.ndarray:
    return np.asarray(jobs.first - jobs.arrival) / 1e12


def test_a_hit_in_a_lower_tier_takes_the_time_of_its_bytes_before_the_rest_is_prefilled(tmp_path: Path) -> None:
    rows = [(0.0, [1, 2, 3, 4], 1), (100.0, [1, 2, 3, 5], 1)]
    slow, fast = (ran(scenario(tmp_path, rows, host(rate=rate))) for rate in ("1 GB/s", "1000 TB/s"))
    assert slow[1].hit_blocks is not None
    assert slow[1].hit_blocks.tolist() == [0, 3]
    took = first_s(slow[1]) - first_s(fast[1])
    assert took[0] == 0.0
    assert took[1] == pytest.approx(3 * BLOCK / 1e9, rel=1e-5)
    assert tiers_of(slow[0])["host"].hit_tokens == 3 * 512
    assert tiers_of(slow[0])["device"].hit_tokens == 0
    # Without the tier the whole prompt is read.
    whole = ran(scenario(tmp_path, rows, {"blocks": 1}))[1]
    assert whole.hit_blocks is not None and whole.hit_blocks.tolist() == [0, 0]
    assert first_s(fast[1])[1] < first_s(whole)[1]


def test_loads_of_two_requests_follow_each_other_on_the_link(tmp_path: Path) -> None:
    rows = [(0.0, [1, 2], 1), (1.0, [3, 4], 1), (100.0, [1, 2, 9], 1), (100.0, [3, 4, 8], 1)]
    slow, fast = (ran(scenario(tmp_path, rows, host(rate=rate)))[1] for rate in ("1 GB/s", "1000 TB/s"))
    took = first_s(slow) - first_s(fast)
    load_s = 2 * BLOCK / 1e9
    # Without loads both prompts are read in one step, so the times differ by about a step.
    assert took[2] == pytest.approx(load_s, abs=4e-4)
    assert took[3] == pytest.approx(2 * load_s, abs=4e-4)


def test_the_device_continues_with_other_sequences_while_blocks_are_loaded(tmp_path: Path) -> None:
    """A request that decodes during the load of another one ends as if it were alone."""
    rows = [(0.0, [1, 2], 1), (50.0, [7], 400), (51.0, [1, 2, 3], 1)]
    loading = ran(scenario(tmp_path, rows, host(rate="10 MB/s")))[1]
    alone = ran(scenario(tmp_path, rows[:2], host(rate="10 MB/s")))[1]
    assert loading.finish[1] == alone.finish[1]
    assert loading.start[2] < loading.finish[1] < loading.first[2]


def test_a_request_waits_for_blocks_that_another_one_loads_and_loads_them_once(tmp_path: Path) -> None:
    cache = {"host": {"size": f"{100 * BLOCK} B", "bandwidth": "100 MB/s"}, "blocks": 4}
    rows = [(0.0, [1, 2], 1), (20.0, [5, 6, 7, 8], 1), (50.0, [1, 2, 3], 1), (51.0, [1, 2, 4], 1)]
    result, jobs = ran(scenario(tmp_path, rows, cache))
    load_s = 2 * BLOCK / 100e6
    assert jobs.hit_blocks is not None and jobs.hit_blocks.tolist() == [0, 0, 2, 2]
    assert first_s(jobs)[2] >= load_s
    # The second one came 1 ms later and gets the same blocks at the same time.
    assert first_s(jobs)[3] >= load_s - 1e-3
    assert abs(int(jobs.first[3]) - int(jobs.first[2])) < 1e9
    found = tiers_of(result)
    assert found["host"].hit_tokens == 2 * 512 and found["device"].hit_tokens == 2 * 512
    busy_s = (found["host"].loading or 0.0) * float(jobs.finish.max()) / 1e12
    assert busy_s == pytest.approx(load_s, rel=1e-3)


def test_shares_and_tokens_of_the_tiers_add_up_to_those_of_the_cache(tmp_path: Path) -> None:
    rows = [
        (i * 10.0, [1, 2 + k % 3, 100 + k], 3)
        for i, k in enumerate([0, 0, 1, 0, 2, 3, 4, 5, 5, 4, 0, 1, 2, 7, 0, 6, 3] * 3)
    ]
    disk = {"size": f"{100 * BLOCK} B", "bandwidth": "2 GB/s"}
    result, jobs = ran(scenario(tmp_path, rows, {**host(blocks=6), "blocks": 3, "disk": disk}))
    serving = result.serving
    assert serving is not None and serving.prefix_hit_rate is not None and jobs.hits is not None
    found = tiers_of(result)
    assert list(found) == ["device", "host", "disk"]
    assert sum(row.hit_rate or 0.0 for row in found.values()) == pytest.approx(serving.prefix_hit_rate)
    assert sum(row.hit_tokens for row in found.values()) == serving.prefix_hit_tokens
    assert all(row.hit_tokens > 0 for row in found.values())
    assert result.to_dict()["serving"]["prefix_tiers"][2]["bytes_per_s"] == {"l4": 2e9}


def test_a_replica_that_fails_loses_its_host_memory_and_not_its_disks(tmp_path: Path) -> None:
    rows = [(0.0, [1, 2], 1), (400.0, [1, 2], 1)]
    fault = [{"kind": "failure", "at": ["100 ms"], "duration": "50 ms", "on_failure": "retry"}]
    disk = {"size": f"{100 * BLOCK} B", "bandwidth": "1 GB/s"}
    hits = []
    for cache in (host(), host(disk=disk), {"blocks": 1, "disk": disk}):
        jobs = ran(scenario(tmp_path, rows, cache, faults=fault))[1]
        assert jobs.hit_blocks is not None
        hits.append(int(jobs.hit_blocks[1]))
    assert hits == [0, 2, 2]


def test_the_host_link_of_all_devices_of_a_replica_is_the_default_rate(tmp_path: Path) -> None:
    rows = [(0.0, [1], 1)]
    cache: dict[str, Any] = {"host": {"size": "64 GB"}}
    one = ran(scenario(tmp_path, rows, cache, fleet=[{"device": "h100-sxm-80gb"}]))[0]
    four = ran(scenario(tmp_path, rows, cache, fleet=[{"device": "h100-sxm-80gb", "count": 2, "group": {"tensor": 2}}]))
    rate = tiers_of(one)["host"].bytes_per_s["h100-sxm-80gb"]
    assert 40e9 < rate < 64e9  # a PCIe 5 link of 16 lanes
    assert tiers_of(four[0])["host"].bytes_per_s["h100-sxm-80gb"] == pytest.approx(2 * rate)


@pytest.mark.parametrize(
    ("cache", "says"),
    [
        ({"disk": {"size": "1 TB"}}, "the rate at which blocks are loaded from the disks is not stated"),
        ({"host": {"size": "100 kB", "bandwidth": "1 GB/s"}}, "a block of 512 tokens"),
        ({"host": {"size": "1 GB", "speed": "1 GB/s"}}, "unknown key 'speed'"),
    ],
)
def test_tiers_that_cannot_be_are_refused(tmp_path: Path, cache: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        ran(scenario(tmp_path, [(0.0, [1], 1)], cache))


def test_a_device_that_shares_the_memory_of_the_host_needs_a_stated_rate(tmp_path: Path) -> None:
    data = scenario(tmp_path, [(0.0, [1], 1)], {"host": {"size": "8 GB"}}, fleet=[{"device": "apple-m2-ultra"}])
    with pytest.raises(InputError, match="the host link of apple-m2-ultra is not known"):
        ran(data)
