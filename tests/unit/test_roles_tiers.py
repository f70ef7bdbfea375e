"""Requests that move where prefix caches have tiers, and the turns of sessions that move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_prefix_tiers import BLOCK, first_s, host, ran, scenario, tiers_of
from tests.unit.test_roles import moved
from tests.unit.test_sessions import POISSON, SESSION, by_session
from tests.unit.test_sessions import run as run_sessions
from tests.unit.test_sessions import scenario as of_sessions

import windtunnel
from windtunnel.scenario.read import scenario_from_data

FLEET = [{"device": "l4", "name": "readers", "role": "prefill"}, {"device": "l4", "name": "writers", "role": "decode"}]
ROWS = [(0.0, [1, 2, 3], 4), (9000.0, [1, 2, 3, 4], 4)]
"""The second prompt finds three blocks, of which a cache of one block on a device has not all."""


def test_each_replica_loads_from_its_own_tiers_and_found_blocks_are_not_sent(tmp_path: Path) -> None:
    slow, fast = (scenario(tmp_path, ROWS, host(rate=rate), fleet=FLEET) for rate in ("1 MB/s", "1000 TB/s"))
    result, jobs = ran(slow)
    took = first_s(jobs) - first_s(ran(fast)[1])
    # The prefill replica loads three blocks before it reads the rest, and then the decode replica loads the same ones.
    # Meanwhile the last block is sent, which takes less time.
    assert took[0] == 0.0
    assert took[1] == pytest.approx(2 * 3 * BLOCK / 1e6, rel=1e-3)
    done = moved(windtunnel.run(scenario_from_data(slow), engine="process"))
    assert (done.count, done.tokens) == (2, 3 * 512 + 512)
    assert done.transfer_s is not None and done.transfer_s.p99 < 0.1 * BLOCK / 1e6
    # A request has found what its prefill replica had.
    assert tiers_of(result)["host"].hit_tokens == 3 * 512 == jobs.hits.sum()
    assert jobs.hit_blocks.tolist() == [0, 3]
    loading = tiers_of(result)["host"].loading
    assert loading == pytest.approx(3 * BLOCK / 1e6 / (jobs.finish.max() / 1e12), rel=1e-3)


def test_a_transfer_that_takes_longer_than_the_load_decides_when_a_request_joins(tmp_path: Path) -> None:
    network = {"bandwidth": "1 MB/s", "latency": "1 us"}
    slow, fast = (
        ran(scenario(tmp_path, ROWS, host(rate=rate), fleet=FLEET, network=network))[1]
        for rate in ("100 MB/s", "1000 TB/s")
    )
    # Only the load on the prefill replica delays the first token.
    assert (first_s(slow) - first_s(fast))[1] == pytest.approx(3 * BLOCK / 1e8, rel=1e-3)


def test_a_decode_replica_that_fails_while_it_loads_gives_the_request_back(tmp_path: Path) -> None:
    """Its disk keeps the blocks, so the second attempt finds them there too."""
    disk = {"size": f"{100 * BLOCK} B", "bandwidth": "1 MB/s"}
    cache = {"blocks": 1, "disk": disk}
    whole = ran(scenario(tmp_path, ROWS, cache, fleet=FLEET))[1]
    failure = {
        "kind": "failure",
        "at": ["10.9 s"],
        "duration": "10 ms",
        "devices": ["writers"],
        "on_failure": "migrate",
    }
    result, jobs = ran(scenario(tmp_path, ROWS, cache, fleet=FLEET, faults=[failure]))
    assert 10.9 < whole.first[1] / 1e12 < 9.0 + 2 * 3 * BLOCK / 1e6 + 0.2
    assert (jobs.starts.tolist(), result.jobs.completed) == ([1, 2], 2)
    # Both replicas load the three blocks again.
    assert jobs.first[1] / 1e12 == pytest.approx(10.9 + 2 * 3 * BLOCK / 1e6, rel=0.05)


def test_the_answer_of_a_session_is_in_the_cache_of_the_replica_that_decoded_it() -> None:
    """The prefill replica reads it with the next prompt, and the decode replica is sent only what is new."""
    data: dict[str, Any] = of_sessions(POISSON, session=SESSION, fleet=FLEET)
    ready, recording = run_sessions(data)
    jobs, sent = recording.jobs, recording.transfers
    assert jobs.prompts is not None and jobs.hit_blocks is not None and sent is not None
    tokens = dict(zip(sent.job.tolist(), sent.tokens.tolist(), strict=True))
    turns = 0
    for session in by_session(ready, recording):
        assert jobs.hit_blocks[session[0]] == 0
        for last, following in zip(session, session[1:], strict=False):
            assert jobs.hit_blocks[following] == jobs.prompts[last] // 16
            if following in tokens and last in tokens:
                turns += 1
                had = (jobs.prompts[last] + jobs.tokens[last] - 1) // 16 * 16
                assert tokens[following] == jobs.prompts[following] - had
    assert turns > 60
