"""Further looks at fleets whose intervals leave a target open, headrooms of equal fleets, and what no number mends."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
import yaml
from tests.cases import search_alone
from tests.unit.planning import plan_scenario

import windtunnel
from windtunnel.app.plan import plan
from windtunnel.core.results.data import result_json
from windtunnel.core.results.plan import Meets, PlanResult
from windtunnel.core.results.target import JudgedTarget
from windtunnel.core.student import student
from windtunnel.engine.choice import run_on
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.engine.prepare.prefixes import PromptChains
from windtunnel.planning import looks
from windtunnel.planning import simulate as simulating
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.planner import Planner
from windtunnel.planning.simulate import Case, Setting
from windtunnel.report import plan as report
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run


@pytest.fixture(scope="module")
def decided() -> PlanResult:
    with search_alone():
        return plan(scenario_from_data(plan_scenario()), workers=1)


def test_a_fleet_that_a_wide_interval_leaves_open_is_looked_at_again_and_is_the_answer(decided: PlanResult) -> None:
    # One run of 2,500 jobs leaves 1 × fast open, whose true p95 is ln(20) / (750 - 500) s = 12.0 ms.
    with patch.object(looks, "MOST_RUNS", 0), search_alone():
        once = plan(scenario_from_data(plan_scenario()), workers=1)
    best = decided.fleets[decided.recommended]
    assert best.text == once.fleets[0].text == "1 × fast" and not once.fleets[0].meets.confidence
    assert once.fleets[once.recommended].cost_usd_per_h > best.cost_usd_per_h
    target = best.targets[0]
    assert target.low is not None and target.high is not None and target.low < 0.01198 < target.high <= 0.015
    assert (best.judged_by, best.times, target.run_length) == ("longer", 16, 16)
    assert target.confidence == pytest.approx(0.995)
    assert 16 <= decided.search.further_runs <= looks.MOST_RUNS and once.search.further_runs == 0
    assert f"further looks took {decided.search.further_runs} runs" in " ".join(decided.notes)
    assert "99.5%, a run 16 times as long" in report.text(decided)


def test_the_number_of_workers_changes_nothing(decided: PlanResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.planning.workers._POOL_ABOVE_S", 0.0)
    with search_alone():
        side_by_side = plan(scenario_from_data(plan_scenario()), workers=2)
    assert result_json(side_by_side) == result_json(decided)


def test_run_gives_the_figures_of_a_fleet_that_was_looked_at_again(decided: PlanResult) -> None:
    assert "stop.jobs=40000" in decided.changes
    data = plan_scenario(stop={"jobs": 40000})
    data["fleet"] = [data["fleet"][1] | {"count": 1}]
    longer = windtunnel.run(scenario_from_data(data)).result
    target = decided.fleets[decided.recommended].targets[0]
    assert longer.latency_s.p95.value == pytest.approx(target.value)
    # The cost and the power stay those of the run that all fleets share, for which the lower bounds hold.
    short = windtunnel.run(scenario_from_data(data | {"stop": {"jobs": 2500}})).result
    assert decided.fleets[decided.recommended].power_w == pytest.approx(short.average_power_w)


def test_the_looks_share_the_error_that_the_confidence_allows() -> None:
    for confidence in (0.5, 0.9, 0.95, 0.999):
        errors = [1 - looks.at_first(confidence), *(1 - looks.later(confidence) for _ in looks.TIMES)]
        assert sum(errors) == pytest.approx(1 - confidence)


def _target(high: float, confidence: float = 0.96) -> JudgedTarget:
    return JudgedTarget(
        text="t", value=1.0, low=0.5, high=high, limit=2.0, unit="s", comparison="<=", metric="latency",
        statistic="p99", workload=None, met=False, verdict="unknown", worse_end=high, interval_source="run",
        confidence=confidence, reason=None, headroom=None,
    )  # fmt: skip


def test_a_look_is_as_long_as_it_needs_to_be_and_never_longer_than_is_possible() -> None:
    def following(high: float, times: int = 1, most: int = 16, runs: int | None = None) -> int | None:
        return looks.next_times([_target(high)], 0.95, times=times, most=most, runs=runs)

    assert following(2.01) == 4, "half as wide an interval is predicted to decide it"
    assert following(9.0) == 16
    assert following(2.01, times=4) == 16 and following(2.01, times=16) is None
    assert following(2.01, most=3) is None and following(9.0, most=8) is None
    # Of replications Student's t becomes smaller too.
    assert student(4, 0.96) > student(19, 0.96) and following(2.2, runs=5) == 4


def test_a_fleet_that_the_limit_of_runs_leaves_open_is_told_to_be_that() -> None:
    with patch.object(looks, "MOST_RUNS", 10), search_alone():
        found = plan(scenario_from_data(plan_scenario(plan={"loads": []})), workers=1)
    assert found.search.further_runs <= 10
    assert found.explanation.price_of_confidence is not None
    assert "The 10 runs that a plan makes to decide such fleets were used" in found.explanation.price_of_confidence.text


def test_a_plan_judged_by_replications_makes_more_of_them() -> None:
    data = plan_scenario(stop={"jobs": 150}, plan={"loads": [], "replications": 3, "max": 4})
    with search_alone():
        found = plan(scenario_from_data(data), workers=1)
    best = found.fleets[found.recommended]
    assert found.search.further_runs > 0 and best.judged_by == "replications"
    again = [f for f in found.fleets if f.times > 1]
    assert again and all(t.interval_runs == 3 * f.times for f in again for t in f.targets)
    assert f"--replications {3 * best.times}" in report.run_command(found, "s.yaml")


# Equal fleets.


def traced(folder: Path, **keys: Any) -> dict[str, Any]:
    """A plan of one kind of device for a trace whose rate comes in waves."""
    rng = np.random.default_rng(1)
    waves = 900 + 500 * np.sin(np.arange(3000) / 300)
    arrivals = np.cumsum(rng.exponential(1 / waves))
    (folder / "t.csv").write_text("\n".join(["arrival_s", *(f"{time:.6f}" for time in arrivals)]))
    data = plan_scenario(**keys)
    del data["stop"]
    data["fleet"] = data["fleet"][1:]
    data["workload"][0]["arrivals"] = {"process": "trace", "file": str(folder / "t.csv"), "time": "arrival_s"}
    return data


def test_equal_fleets_are_compared_by_as_many_redrawn_runs(tmp_path: Path) -> None:
    """With `fifo` 3 redrawn runs decide the target, with `least-loaded` 8; 8 of each turn their headrooms round."""
    search = {"policy": ["fifo", "least-loaded"]}
    data = traced(tmp_path, targets=["latency p95 <= 33 ms"], plan={"loads": [], "max": 4, "search": search})
    with search_alone(), patch.object(Planner, "_confirm", lambda *_: True):
        found = plan(scenario_from_data(data), workers=1)
        with patch.object(Planner, "_equal_footing", lambda *_: None):
            uneven = plan(scenario_from_data(data), workers=1)
    assert [f.targets[0].interval_runs for f in uneven.fleets[:2]] == [3, 8]
    assert [f.targets[0].interval_runs for f in found.fleets[:2]] == [8, 8]
    first, second = found.fleets[:2]
    assert first.text == uneven.fleets[1].text and first.meets.confidence and second.meets.confidence
    certain = {"fifo": None, "least-loaded": None}
    for number, fleet in reversed(list(enumerate(found.fleets))):
        if fleet.meets.confidence:
            certain[fleet.text.rpartition("policy ")[2]] = number
    assert {choice.text.removeprefix("policy "): choice.confident for choice in found.choices} == certain
    rows = report.choice_rows(found, with_confidence=True)
    assert [row[3:] for row in rows[1:]] == [["2 × fast", "5.40 USD/h"]] * 2
    headrooms = [f.targets[0].headroom for f in found.fleets[:2]]
    assert headrooms == sorted(headrooms, key=lambda share: -(share or 0.0))


# The recommended fleet.


@pytest.mark.parametrize(("limit_ms", "runs"), [(13, looks.CONFIRMING), (16, 8)])
def test_the_recommended_fleet_is_judged_by_more_redrawn_runs_unless_8_decide_at_99_percent_as_its_command_does(
    limit_ms: int, runs: int, tmp_path: Path
) -> None:
    data = traced(tmp_path, targets=[f"latency p95 <= {limit_ms} ms"], plan={"loads": [1.0, 1.2], "max": 4})
    data["workload"][0]["ops"] = [{"service": {"distribution": "deterministic", "mean": "4 ms"}}]
    found = plan(scenario_from_data(data), workers=1)
    best = found.fleets[found.recommended]
    assert best.meets.confidence and best.targets[0].interval_runs == runs
    replications = re.findall(r"--replications (\d+)", report.run_command(found, "s.yaml"))
    assert replications == ([str(runs)] if runs > 8 else [])
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(data))
    more = int(replications[0]) if replications else 1
    result = windtunnel.run(tmp_path / "s.yaml", changes=found.changes, replications=more).result
    assert (result.targets[0].low, result.targets[0].high) == (best.targets[0].low, best.targets[0].high)


@pytest.mark.parametrize(("limit_ms", "most"), [(22, looks.EXPLAINING), (27, 8)])
def test_changes_of_a_fleet_that_more_redrawn_runs_judge_are_judged_by_more_too(
    limit_ms: int, most: int, tmp_path: Path
) -> None:
    targets = [f"latency p95 <= {limit_ms} ms"]
    data = traced(tmp_path, targets=targets, plan={"loads": [1.0, 1.2], "max": 4})
    found = plan(scenario_from_data(data), workers=1)
    changed = {effect.binding.interval_runs for effect in found.explanation.changes if effect.binding}
    assert changed <= {None, 3, 8, most} and most in changed


def test_a_fleet_that_a_further_look_accepted_is_not_judged_again_by_redrawn_runs() -> None:
    for looked_again in (True, False):
        redrawn: list[object] = []
        found = SimpleNamespace(
            counts=(1,), meets=Meets(value=True, confidence=True), redrawn_runs=8, looked_again=looked_again,
            goal="confidence", settled=False, objective=lambda _name: 1.0, cost_usd_per_h=1.0, devices=1, targets=[],
            choice=0,
        )  # fmt: skip
        candidates = SimpleNamespace(
            redraw=lambda counts, _redraws, *, announced, to=redrawn: None if announced else to.append(counts),
            evaluation=lambda _case, of=found: of, plan=SimpleNamespace(loads=[1.0]), announce=lambda *_, **_keys: None,
        )  # fmt: skip
        rows = [(1.0, SimpleNamespace(candidates=candidates), found)]
        planner = SimpleNamespace(_met_by_value=lambda _order, of=rows: of, options=SimpleNamespace(objective="cost"))
        assert Planner._confirm(cast(Planner, planner), [])
        assert redrawn == ([] if looked_again else [(1,)])


def test_a_fleet_that_more_redrawn_runs_do_not_confirm_is_replaced_by_the_next_one_that_they_do(tmp_path: Path) -> None:
    """Of the cheapest fleets that 8 runs accept, the larger number is made to reject those of 2 devices."""
    simulated = simulating.simulate

    def rejecting(setting: Setting, case: Case) -> Evaluation:
        found = simulated(setting, case)
        if case.counts == (2,) and case.redraws.most == looks.CONFIRMING and case.redraws.all:
            return replace(found, meets=Meets(value=True, confidence=False))
        return found

    data = traced(tmp_path, targets=["latency p95 <= 25 ms"], plan={"loads": [], "max": 4})
    with search_alone():
        before = plan(scenario_from_data(data), workers=1)
        with patch("windtunnel.planning.workers.simulate", rejecting):
            found = plan(scenario_from_data(data), workers=1)
    assert [sum(p.fleets[p.recommended].entries.values()) for p in (before, found)] == [2, 3]
    assert found.fleets[found.recommended].meets.confidence


# What no number of devices mends.


def test_a_prompt_is_read_from_the_first_blocks_on_that_no_earlier_one_has() -> None:
    # Chains: 0-1, 0-1-2, 3, 0-4, 4 (after 0-4, with other blocks before it, which cannot be), and 0-1-2 again.
    chains = PromptChains(
        at=np.array([0, 2, 5, 6, 8, 11]),
        runs=np.array([0, 1, 0, 1, 2, 3, 0, 4, 0, 1, 2]),
        blocks=np.ones(5, dtype=np.int64),
        tokens=np.array([10, 20, 30, 40, 50]),
        home=np.arange(5),
        job_tokens=np.array([30, 60, 40, 60, 60]),
    )
    assert chains.first_read.tolist() == [30, 30, 40, 50, 0]
    assert replace(chains, answers=np.zeros(5)).first_read.tolist() == [0] * 5


def _conversations(folder: Path, **keys: Any) -> dict[str, Any]:
    """A trace of prompts of which most share blocks with earlier ones, on one engine, as a plan of two SKUs."""
    rng = np.random.default_rng(5)
    rows, fresh = [], 0
    known: list[list[int]] = [[]]
    for i in range(160):
        base = known[int(rng.integers(len(known)))]
        more = int(rng.integers(1, 12))
        ids = [*base, *range(fresh, fresh + more)]
        fresh += more
        known.append(ids)
        rows.append({"timestamp": i * 150, "input_length": 512 * len(ids) - 9, "output_length": 20, "hash_ids": ids})
    with gzip.open(folder / "t.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, rows)))
    return {
        "schema": 1,
        "name": "long prompts",
        "fleet": [
            {"device": "h100-sxm-80gb", "price": "3 USD/h", "engine": "vllm", "count": 2},
            {"device": "l4", "price": "1 USD/h", "engine": "vllm", "count": 2},
        ],
        "models": {"chat": {"catalogue": "llama-3.1-8b"}},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "trace", "file": str(folder / "t.jsonl.gz"), "format": "mooncake"},
                "ops": [{"generate": {"model": "chat", "prompt": "$input_length", "output": "$output_length"}}],
            }
        ],
        "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "prefix_cache": {"block": 512}}},
        "targets": ["ttft p95 <= 100 ms", "tpot p95 <= 200 ms"],
    } | keys


@pytest.mark.parametrize("policy", ["least-loaded", "prefix-aware", "round-robin"])
def test_no_request_of_a_run_is_faster_than_one_alone_whose_prompt_is_read_from_what_is_new(
    tmp_path: Path, policy: str
) -> None:
    data = _conversations(tmp_path)
    data["policy"]["name"] = policy
    data["fleet"] = data["fleet"][:1]
    prepared = prepare_run(scenario_from_data(data), windtunnel.catalogue())
    least = minimum_demand(prepared).alone_first_s[0]
    jobs = run_on("process", prepared).jobs
    assert ((jobs.first - jobs.arrival) / 1e12 >= least * (1 - 1e-9)).all()
    # It is the prompts that are long, of which one token alone was reckoned.
    assert np.median(least) > 2 * least.min()


def test_a_plan_says_which_target_no_number_of_devices_meets_and_what_may_help(tmp_path: Path) -> None:
    data = _conversations(tmp_path, plan={"max": 64, "search": {"policy.batch.tokens": [512, 4096]}})
    found = plan(scenario_from_data(data), workers=1)
    assert not found.fleets and found.search.simulations == 0
    (reach,) = found.explanation.reach
    assert reach.text == "ttft p95 <= 100 ms" and reach.least > reach.limit
    assert [row.least for row in reach.entries] == sorted(row.least for row in reach.entries)
    assert reach.least == pytest.approx(reach.entries[0].least) and "h100" in reach.entries[0].entry
    assert "tokens 4096" in reach.entries[0].entry, "larger steps read a long prompt in fewer of them"
    sentences = " ".join(found.explanation.sentences)
    assert "no number of these devices meets it" in sentences and "a larger group" in sentences
    # What is said of every combination of searched values holds for the best of them.
    (conflict,) = found.explanation.conflicts
    assert conflict.targets[0].least == pytest.approx(reach.least)


def test_where_a_request_alone_is_fast_enough_more_devices_may_help(tmp_path: Path) -> None:
    data = _conversations(tmp_path, plan={"max": 1, "loads": []}, targets=["ttft p95 <= 250 ms"])
    with search_alone():
        found = plan(scenario_from_data(data), workers=1)
    assert not found.fleets
    (reach,) = found.explanation.reach
    assert reach.least <= reach.limit < reach.entries[-1].least
    first, able, unable = reach.sentence.split(". ")
    assert first == "ttft p95 <= 250 ms: more devices than were tried may help"
    assert able.startswith("Where no request waits, it is at least ") and able.endswith(" ms on h100-sxm-80gb")
    assert unable.startswith("No number of devices of one of these entries alone meets it: ") and "l4" in unable
