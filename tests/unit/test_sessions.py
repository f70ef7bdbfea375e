"""Drawn lengths, prefixes of groups, and sessions whose next prompt holds the last answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.differential.comparison import prepared
from tests.unit.test_prefix_cache import SMALL

from windtunnel.core.errors import InputError, Location
from windtunnel.core.recording import COMPLETED, DROPPED, Recording
from windtunnel.engine.prepare.lengths import request_lengths
from windtunnel.engine.prepare.prepared import PreparedRun, with_capacity
from windtunnel.engine.prepare.source import RequestLengths, drawn_lengths
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.scenario.lengths import Length
from windtunnel.scenario.program import Generate

POISSON = {"process": "poisson", "rate": "3 /s"}
USERS = {"process": "closed", "users": 6, "think": {"mean": "3 s"}}
SESSION: dict[str, Any] = {
    "turns": {"distribution": "geometric", "mean": 4, "max": 12},
    "new_tokens": {"distribution": "uniform", "min": 1, "max": 90},
    "think": {"distribution": "lognormal", "mean": "1 s", "cv": 0.5},
}
DRAWN: dict[str, Any] = {
    "prompt": {"distribution": "lognormal", "mean": 150, "cv": 1.0, "max": 900},
    "output": {"distribution": "gamma", "mean": 40, "cv": 1.0, "max": 300},
}


def scenario(arrivals: Any, generate: Any = None, *, count: int = 1, route: str = "least-loaded", **work: Any) -> Any:
    """Return a scenario of one workload on devices with a prefix cache in blocks of 16 tokens."""
    ops = [{"generate": {"model": "small", **DRAWN, **(generate or {})}}]
    more = {key: work.pop(key) for key in ("stop", "faults", "policy", "fleet") if key in work}
    return {
        "schema": 1,
        "name": "sessions",
        "seed": 5,
        "fleet": [{"device": "l4", "count": count}],
        "models": {"small": SMALL},
        "workload": [{"name": "chat", "arrivals": arrivals, "ops": ops, **work}],
        "policy": {"name": route, "batch": {"kind": "continuous", "prefix_cache": {"block": 16}}},
        "stop": {"jobs": 150},
        **more,
    }


def run(data: Any) -> tuple[PreparedRun, Recording]:
    """Return the prepared run whose random numbers sufficed, and its recording."""
    used: list[PreparedRun] = []

    def once(ready: PreparedRun) -> Recording:
        used[:] = [ready]
        return process._Run(ready, None).execute()

    recording = with_capacity(once, prepared(data))
    invariants.check(recording)
    return used[0], recording


def lengths_of(ready: PreparedRun) -> RequestLengths:
    stage = ready.workloads[0].program[0]
    assert isinstance(stage, Generate)
    return request_lengths(stage, ready.workloads[0].source)


def by_session(ready: PreparedRun, recording: Recording) -> list[list[int]]:
    """Return the jobs of each session that submitted any, turn by turn, found by their prompts and outputs."""
    lengths, jobs = lengths_of(ready), recording.jobs
    assert lengths.sessions is not None and jobs.prompts is not None
    found: dict[int, list[int]] = {}
    ranks = {}
    for rank, pair in enumerate(zip(lengths.prompts.tolist(), lengths.outputs.tolist(), strict=True)):
        ranks.setdefault(pair, []).append(rank)
    for job, pair in enumerate(zip(jobs.prompts.tolist(), jobs.tokens.tolist(), strict=True)):
        found.setdefault(int(lengths.sessions.of_job[ranks[pair].pop(0)]), []).append(job)
    return list(found.values())


# Distributions of lengths.


@pytest.mark.parametrize(
    ("stated", "mean"),
    [
        ({"distribution": "deterministic", "mean": 40}, 40),
        ({"distribution": "exponential", "mean": 400}, 400),
        ({"distribution": "lognormal", "mean": 400, "cv": 0.5}, 400),
        ({"distribution": "gamma", "mean": 400, "cv": 2}, 400),
        ({"distribution": "weibull", "mean": 400, "cv": 0.7}, 400),
        ({"distribution": "geometric", "mean": 5}, 5),
        ({"distribution": "uniform", "min": 3, "max": 9}, 6),
    ],
)
def test_lengths_have_the_stated_mean_and_do_not_depend_on_how_many_are_drawn(stated: Any, mean: float) -> None:
    length = Length.model_validate(stated)
    values = drawn_lengths(length, np.random.default_rng(1), 40_000, Path(), Location())
    assert values.min() >= 1 and (values == np.rint(values)).all()
    spread = float(values.std()) / 200.0
    assert abs(float(values.mean()) - mean) <= 4 * spread + 0.5 * (stated["distribution"] == "exponential")
    fewer = drawn_lengths(length, np.random.default_rng(1), 100, Path(), Location())
    assert fewer.tolist() == values[:100].tolist()
    limited = drawn_lengths(
        length.model_copy(update={"min": 4, "max": 5}), np.random.default_rng(1), 99, Path(), Location()
    )
    assert set(limited.tolist()) <= {4.0, 5.0}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_an_empirical_distribution_has_the_values_of_its_column(tmp_path: Path, name: str) -> None:
    values = [5, 7, 7, 90]
    rows = [json.dumps({"n": n}) for n in values] if name.endswith("jsonl") else ["n", *map(str, values)]
    (tmp_path / name).write_text("\n".join(rows) + "\n")
    length = Length.model_validate({"distribution": "empirical", "file": name, "column": "n"})
    drawn = drawn_lengths(length, np.random.default_rng(2), 4000, tmp_path, Location()).tolist()
    assert set(drawn) == {5.0, 7.0, 90.0}
    assert 0.45 < drawn.count(7.0) / 4000 < 0.55


@pytest.mark.parametrize("arrivals", [POISSON, USERS])
def test_prompts_and_outputs_are_drawn_in_open_and_closed_loops(arrivals: Any) -> None:
    ready, recording = run(scenario(arrivals))
    jobs, lengths = recording.jobs, lengths_of(ready)
    assert jobs.prompts is not None
    assert len(set(jobs.prompts.tolist())) > 50 and int(jobs.prompts.max()) <= 900
    # The i-th request has the i-th lengths, whatever the order in which requests end.
    assert jobs.prompts.tolist() == lengths.prompts[: len(jobs)].tolist()
    assert jobs.tokens.tolist() == lengths.outputs[: len(jobs)].tolist()
    other = run(scenario(arrivals, count=3, route="round-robin"))[1].jobs
    assert other.prompts is not None and other.prompts.tolist() == jobs.prompts.tolist()


@pytest.mark.parametrize("arrivals", [POISSON, USERS])
def test_requests_take_rows_of_a_table_whole(tmp_path: Path, arrivals: Any) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "\n".join(f"{n},{n * 3}" for n in (10, 20, 31, 44)) + "\n")
    rows = {"file": str(tmp_path / "t.csv"), "columns": {"In": "a"}}
    jobs = run(scenario(arrivals, {"prompt": "$In", "output": "$b"}, rows=rows))[1].jobs
    assert jobs.prompts is not None
    assert set(jobs.prompts.tolist()) == {10, 20, 31, 44}
    assert (jobs.tokens == 3 * jobs.prompts).all()


def test_factors_multiply_the_prompts_and_outputs_of_every_request() -> None:
    plain = run(scenario(POISSON))[1].jobs
    longer = run(scenario(POISSON, {"prompt_factor": 1.5, "output_factor": 0.5}))[1].jobs
    assert plain.prompts is not None and longer.prompts is not None
    assert longer.prompts.tolist() == np.rint(plain.prompts * 1.5).astype(int).tolist()
    assert longer.tokens.tolist() == np.maximum(np.rint(plain.tokens * 0.5), 1).astype(int).tolist()
    # Those of the scenario and of a study of sensitivity multiply each other.
    stated = prepared(scenario(POISSON, {"prompt_factor": 1.5})).scenario
    (stage,) = stated.with_lengths(prompt=2.0, output=1.2).programs[0]
    assert isinstance(stage, Generate) and (stage.prompt_factor, stage.output_factor) == (3.0, 1.2)


def test_popular_prefixes_are_shared_by_more_prompts() -> None:
    """With Zipf's law of exponent 1 over three groups, 6, 3 and 2 of 11 prompts have each prefix."""
    shared = {
        "tokens": {"distribution": "uniform", "min": 64, "max": 200},
        "groups": 3,
        "zipf": 1,
        "beside_prompt": True,
    }
    ready = prepared(scenario(POISSON, {"prompt": 10, "shared_prefix": shared}, stop={"jobs": 3000}))
    lengths = lengths_of(ready)
    shares = np.bincount(lengths.groups) / 3000
    assert np.abs(shares - np.array([6, 3, 2]) / 11).max() < 0.03
    assert (lengths.prompts == 10 + lengths.prefixes[lengths.groups]).all()
    assert len(set(lengths.prefixes.tolist())) > 1
    jobs = run(scenario(POISSON, {"prompt": 10, "shared_prefix": shared}, stop={"jobs": 60}))[1].jobs
    assert jobs.hit_blocks is not None
    seen: set[int] = set()
    for group, hits in zip(lengths.groups[:60].tolist(), jobs.hit_blocks.tolist(), strict=True):
        assert hits == (int(lengths.prefixes[group]) // 16 if group in seen else 0)
        seen.add(group)


# Sessions.


@pytest.mark.parametrize("arrivals", [POISSON, USERS])
def test_the_next_prompt_holds_the_last_prompt_and_its_answer_and_finds_them_in_the_cache(arrivals: Any) -> None:
    ready, recording = run(scenario(arrivals, session=SESSION))
    jobs = recording.jobs
    assert jobs.prompts is not None and jobs.hit_blocks is not None and jobs.blocks is not None
    assert (jobs.blocks == -(-jobs.prompts // 16)).all()
    turns = 0
    for session in by_session(ready, recording):
        assert jobs.hit_blocks[session[0]] == 0
        for last, following in zip(session, session[1:], strict=False):
            turns += 1
            new = int(jobs.prompts[following] - jobs.prompts[last] - jobs.tokens[last])
            assert 1 <= new <= 90
            assert jobs.arrival[following] > jobs.finish[last]
            # The last token of an answer is not in the cache when the request ends.
            assert jobs.hit_blocks[following] == (jobs.prompts[last] + jobs.tokens[last] - 1) // 16
    assert turns > 60


def test_a_user_thinks_between_the_turns_of_a_session_and_between_sessions() -> None:
    session = {"turns": 3, "new_tokens": 20, "think": {"distribution": "deterministic", "mean": "2 s"}}
    users = {"process": "closed", "users": 1, "think": {"distribution": "deterministic", "mean": "7 s"}}
    jobs = run(scenario(users, session=session, stop={"jobs": 7}))[1].jobs
    gaps = (jobs.arrival[1:] - jobs.finish[:-1]) / 1e12
    assert gaps.tolist() == [2, 2, 7, 2, 2, 7]
    assert jobs.prompts is not None
    assert int(jobs.prompts[1]) == int(jobs.prompts[0] + jobs.tokens[0]) + 20


def test_sessions_that_arrive_do_not_come_again() -> None:
    ready, recording = run(
        scenario({"process": "deterministic", "rate": "1 /s"}, session=SESSION, stop={"time": "60 s"})
    )
    sessions = lengths_of(ready).sessions
    assert sessions is not None and sessions.count == 59
    jobs = recording.jobs
    first = [session[0] for session in by_session(ready, recording)]
    assert (np.sort(jobs.arrival[first]) == np.arange(1, 60) * 10**12).all()


def test_a_session_ends_before_its_context_would_be_too_long_and_after_a_lost_turn() -> None:
    generate = {"prompt": 100, "output": 50}
    session = {**SESSION, "turns": 10, "new_tokens": 30, "max_context": 400}
    ready, recording = run(scenario(POISSON, generate, session=session))
    sizes = {len(session) for session in by_session(ready, recording)}
    assert max(sizes) == 4  # contexts of 150, 230, 310 and 390 tokens
    batch = {"kind": "continuous", "size": 1, "prefix_cache": {"block": 16}}
    data = scenario(
        {"process": "poisson", "rate": "300 /s"},
        {"prompt": 500, "output": 200},
        session={**SESSION, "turns": 5, "think": {"mean": "1 ms"}},
        patience="20 ms",
        policy={"name": "fifo", "batch": batch},
    )
    jobs = run(data)[1].jobs
    assert jobs.prompts is not None
    assert (jobs.status == DROPPED).any()
    # No turn follows one that was not answered: every later turn belongs to a completed one before.
    later = int((jobs.prompts > 500).sum())
    assert 0 < later <= int((jobs.status == COMPLETED).sum())


def test_a_session_of_one_turn_is_a_request() -> None:
    session = {**SESSION, "turns": 1}
    one, other = (run(scenario(POISSON, **work))[1].jobs for work in ({}, {"session": session}))
    assert one.prompts is not None and other.prompts is not None
    assert one.prompts.tolist() == other.prompts.tolist()
    assert one.finish.tolist() == other.finish.tolist()


def test_answers_stay_on_the_replica_that_gave_them_so_affinity_finds_more() -> None:
    found = {}
    for route in ("session-affinity", "round-robin"):
        jobs = run(scenario(USERS, count=3, route=route, session=SESSION, stop={"jobs": 300}))[1].jobs
        found[route] = jobs.prefix_hit_rate(np.ones(len(jobs), dtype=bool))
    assert found["session-affinity"] > found["round-robin"] + 0.2


TABLE = {"distribution": "empirical", "file": "none.csv", "column": "n"}


@pytest.mark.parametrize(
    ("generate", "work", "says"),
    [
        ({"prompt": {"distribution": "normal", "mean": 5}}, {}, "'normal' is not a valid value"),
        ({"prompt": {"distribution": "gamma"}}, {}, "'mean' is missing, for gamma"),
        ({"prompt": {"distribution": "gamma", "mean": 5, "cvv": 1}}, {}, "unknown key 'cvv'"),
        ({"prompt": {"distribution": "uniform", "max": 5}}, {}, "a uniform distribution lacks min or max"),
        ({"output": {"distribution": "exponential", "mean": 5, "min": 9, "max": 8}}, {}, "max 8 is below min 9"),
        ({"output": TABLE}, {}, "none.csv"),
        ({"shared_prefix": {"tokens": 2000}}, {}, "the prefix that all share 2,000"),
        ({"shared_prefix": {"groups": 3}}, {}, "'tokens' is missing"),
        ({}, {"session": {"turns": 3, "new_tokens": 5}}, "'think' is missing"),
        ({}, {"session": {**SESSION, "new_tokens": "$n"}}, r"'\$n' requires a trace"),
        ({}, {"rows": {"file": "none.csv"}}, "none.csv"),
        ({"prompt": 5_000_000}, {}, "5,0"),
        ({"prompt_factor": 0}, {}, "prompt_factor is 0"),
        ({"output_factor": "2"}, {}, "output_factor is '2'"),
        ({"output_faktor": 2}, {}, "unknown key 'output_faktor'"),
    ],
)
def test_wrong_lengths_and_sessions_are_refused_with_their_place(generate: Any, work: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        prepared(scenario(POISSON, generate, **work))
    assert caught.value.where.field is not None and caught.value.where.field.startswith("workload[0]")


def test_sessions_are_refused_with_a_trace_and_with_other_programs(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("at\n0\n1\n")
    trace = {"process": "trace", "file": str(tmp_path / "t.csv"), "time": "at"}
    with pytest.raises(InputError, match="has a trace and session"):
        prepared(scenario(trace, session=SESSION))
    data = scenario(POISSON, session=SESSION)
    data["workload"][0]["ops"] = [{"vector_add": {"n": 1000}}]
    data["policy"] = "fifo"
    with pytest.raises(InputError, match="are not a single generate"):
        prepared(data)
