"""How `windtunnel plan` bounds and judges fleets: limits, spares, confidence, replications, traces and faults."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner
from tests.unit.planning import plan_scenario

import windtunnel
from windtunnel.app import plan as planner
from windtunnel.cli.main import cli
from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import PlanResult
from windtunnel.core.results.run import Estimate
from windtunnel.planning import evaluation, looks
from windtunnel.planning import judge as judging
from windtunnel.planning import simulate as simulating
from windtunnel.planning.planner import Planner
from windtunnel.report import numbers, plan_answer
from windtunnel.report import plan as report
from windtunnel.scenario.judging import judge
from windtunnel.scenario.read import scenario_from_data
from windtunnel.scenario.target import parse_target


def test_another_objective_has_its_own_bound_and_gap_in_its_own_unit() -> None:
    answer = planner.plan(scenario_from_data(plan_scenario(plan={"loads": [], "objective": "power"})), workers=1)
    least, best = answer.lower_bound.objective, answer.fleets[0].power_w
    assert answer.gap == pytest.approx(1 - least / best)
    text = " ".join(report.text(answer).split())
    assert (
        f"lower bound {numbers.quantity(least, 'W')} on average: no fleet can be lower, and none that draws less power than "
        f"the best fleet ({numbers.quantity(best, 'W')}) meets the targets"
    ) in text
    assert f"no fleet can cost less than {answer.lower_bound.cost_usd_per_h:,.2f} USD/h" in text
    assert "confidence covers the random variation of arrivals and work" in text
    unfinished = replace(answer, search=replace(answer.search, proof="open", limit=" of one entry"))
    text = " ".join(report.text(unfinished).split())
    assert (
        f"no fleet of one entry can be lower. The best fleet ({numbers.quantity(best, 'W')}) can be improved by" in text
    )
    assert "next-cheapest" not in text
    assert "every fleet that draws less power than the best fleet by value was simulated" in report.proof(answer)


def test_a_limit_below_any_jobs_own_time_is_met_with_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    data = plan_scenario(targets=["latency p95 <= 1 ms"], plan={"loads": []}, stop={"jobs": 4000})
    answer = planner.plan(scenario_from_data(data), workers=1)
    (conflict,) = answer.explanation.conflicts
    assert conflict.kind == "bound" and not conflict.by_counts and answer.simulated == []
    # Exponential with a mean of 4 ms, three times as fast. The warm-up may leave out the first half, so that 5% of all
    # jobs are 10% of those that certainly count: -ln(0.1) of that.
    assert conflict.targets[0].least == pytest.approx(4e-3 / 3 * -np.log(0.1), rel=0.06)
    assert conflict.text + "." in answer.explanation.sentences and "even if no job waits" in conflict.text


@pytest.mark.parametrize(
    ("target", "said"), [("cost <= 0.5 USD/h", "costs at least"), ("power average <= 20 W", "draws at least")]
)
def test_a_limit_below_the_bound_is_met_with_the_bound_and_no_search(target: str, said: str) -> None:
    data = plan_scenario(targets=["latency p95 <= 15 ms", target], plan={"loads": []})
    answer = planner.plan(scenario_from_data(data), workers=1)
    assert answer.fleets == [] and answer.search.simulated_fleets == 0
    assert said in answer.explanation.conflicts[0].text


def test_no_fleet_above_a_limit_to_the_rent_is_simulated(found: PlanResult) -> None:
    targets = ["latency p95 <= 15 ms", "cost <= 2.5 USD/h"]
    answer = planner.plan(scenario_from_data(plan_scenario(targets=targets, plan={"loads": []})), workers=1)
    assert answer.fleets == [] and answer.simulated
    assert max(f.cost_usd_per_h for f in answer.simulated) <= 2.5
    # What the others would cost is said, and nothing is blamed on the number of devices.
    conflict = answer.explanation.conflicts[0]
    assert conflict.kind == "cheapest" and conflict.targets[-1].least == found.fleets[0].cost_usd_per_h == 2.7
    assert "cost <= 2.5 USD/h cannot be met together with latency p95 <= 15 ms" in conflict.text
    fast = answer.entries[1].reason
    assert fast.kind == "over_rent" and fast.count == 1 and "2.70 USD/h (cost <= 2.5 USD/h)" in fast.text


def test_a_spare_costs_one_more_where_devices_are_alike() -> None:
    data = plan_scenario(plan={"loads": [], "max": 12}, stop={"jobs": 2000}, targets=["latency p50 <= 6 ms"])
    data["fleet"] = data["fleet"][:1]
    without = planner.plan(scenario_from_data(data), workers=1).fleets[0].devices["server"]
    with_one = planner.plan(scenario_from_data(data | {"plan": {"loads": [], "max": 12, "spare": 1}}), workers=1)
    assert with_one.fleets[0].devices["server"] == without + 1
    # One device less than that is none that anything can be lost from.
    assert all(f.devices["server"] > without for f in with_one.fleets)


def test_with_a_spare_a_change_is_judged_without_it_too() -> None:
    data = plan_scenario(plan={"loads": [0.5, 1.2], "max": 12, "spare": 1}, stop={"jobs": 2000})
    data["fleet"] = data["fleet"][:1]
    with patch.object(looks, "MOST_RUNS", 0):
        answer = planner.plan(scenario_from_data(data), workers=1)
    more = answer.explanation.changes[0]
    count = answer.fleets[answer.recommended].devices["server"]
    assert more.change == "20% more load" and not more.still_meets
    # The whole fleet would do; it is one device short that it does not.
    one = Planner(scenario_from_data(data), windtunnel.catalogue(), 1, None)
    one.run()
    assert simulating.simulate(one.candidates.simulator.setting, simulating.Case((count,), 1.2)).meets.confidence
    assert more.violations[0].startswith("latency p95") and "without 1 × slow" in more.violations[0]
    assert [p.meets.confidence for p in answer.curve.points] == [True, False]


def test_a_higher_confidence_never_accepts_what_a_lower_one_refuses(found: PlanResult) -> None:
    with patch.object(looks, "MOST_RUNS", 0):
        sure = planner.plan(scenario_from_data(plan_scenario(plan={"confidence": "99%", "loads": []})), workers=1)
    best = found.fleets[found.recommended]
    assert sure.fleets[sure.recommended].cost_usd_per_h >= best.cost_usd_per_h
    same = [f for f in sure.simulated if f.text == best.text]
    assert same and same[0].targets[0].high > best.targets[0].high


def test_too_short_a_run_is_judged_by_replications_and_says_so() -> None:
    scenario = scenario_from_data(plan_scenario(stop={"jobs": 150}, plan={"loads": [], "replications": 3}))
    with patch.object(looks, "MOST_RUNS", 0):
        answer = planner.plan(scenario, workers=1)
    assert answer.replications == 3
    assert "one run gives no confidence interval for latency p95" in answer.notes[0]
    assert all(t.interval_source == "replications" for f in answer.fleets for t in f.targets)


def trace_scenario(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Jobs of a fixed time at the regular times of a file: nothing for a seed to draw.

    One device is always ready for the next job. In a redrawn trace some jobs are nearer to each other, and wait.
    """
    times = np.arange(3000) * 0.01
    (tmp_path / "rows.csv").write_text("at\n" + "".join(f"{t:.6f}\n" for t in times))
    data = plan_scenario(targets=["latency p99 <= 40 ms"], plan={"loads": [], "max": 4}, **changes)
    data["workload"][0] |= {
        "arrivals": {"process": "trace", "file": "rows.csv", "time": "at"},
        "ops": [{"service": {"distribution": "deterministic", "mean": "9 ms"}}],
    }
    del data["stop"]
    return data


def _write(tmp_path: Path, data: dict[str, Any]) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps(data))
    return path


def test_a_fleet_that_a_fixed_trace_gives_no_interval_meets_by_value_and_is_not_recommended(tmp_path: Path) -> None:
    # Redrawing the trace changes a lone device's p99 by much more than chance, and that of two hardly at all.
    path = _write(tmp_path, trace_scenario(tmp_path) | {"targets": ["latency p99 <= 1 s"]})
    answer = planner.plan(path, workers=1)
    alone = next(f for f in answer.simulated if f.text == "1 × slow")
    assert alone.targets[0].interval_source == "none" and alone.targets[0].value < 1
    assert alone.meets.value and not alone.meets.confidence
    assert [f.text for f in answer.fleets if not f.meets.confidence] == ["1 × slow", "1 × fast"]
    assert answer.fleets[0].text == "1 × slow"
    # Dearer, but certain.
    best = answer.fleets[answer.recommended]
    assert best.cost_usd_per_h > alone.cost_usd_per_h
    assert all(t.interval_source == "run" for t in best.targets)
    text = report.text(answer)
    assert "(no interval)" in text
    assert "1 × slow, at 1.00 USD/h, meets the targets by value but not with 95% confidence" in text


def test_where_nothing_is_certain_the_answer_says_so_and_a_fleet_by_value_is_enough_for_exit_0(tmp_path: Path) -> None:
    data = trace_scenario(tmp_path) | {"targets": ["latency p99 <= 1 s", "waiting p99 <= 1 s"]}
    data |= {"fleet": [data["fleet"][0]], "plan": {"loads": [], "max": 1}}
    path = _write(tmp_path, data)
    done = CliRunner().invoke(cli, ["plan", str(path), "--format", "json", "--workers", "1"])
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert data["recommended"] == 0 and data["gap"] is not None
    assert [f["meets"] for f in data["fleets"]] == [{"value": True, "confidence": False}]
    answer = planner.plan(path, workers=1)
    assert answer.fleets[0].targets[0].reason.endswith("% higher on average, which is more than chance")
    assert plan_answer.verdict(answer) == (
        "1 × slow meets both targets by value; no fleet found meets them with 95% confidence"
    )
    assert "no simulated fleet does" in answer.explanation.price_of_confidence.text
    # Changes are judged by value too.
    assert all(change.goal == "value" for change in answer.explanation.changes)


def test_a_fleet_too_near_its_capacity_for_its_run_is_judged_by_a_longer_one() -> None:
    scenario = scenario_from_data(
        plan_scenario(stop={"time": "6 s"}, targets=["latency p99 <= 40 ms"], plan={"loads": [], "replications": 6})
    )
    with patch.object(looks, "MOST_RUNS", 0):
        answer = planner.plan(scenario, workers=1)
    longer = [f for f in answer.simulated if f.judged_by == "longer"]
    assert longer and len(longer) < len(answer.simulated)
    counts = longer[0].entries
    data = plan_scenario(stop={"time": "36 s"}, targets=["latency p99 <= 40 ms"])
    data["fleet"] = [e | {"count": counts[e["name"]]} for e in data["fleet"] if e["name"] in counts]
    p99 = windtunnel.run(scenario_from_data(data)).result.latency_s.p99
    target = longer[0].targets[0]
    assert (target.value, target.low, target.high) == pytest.approx((p99.value, p99.low, p99.high))


def test_a_longer_run_judges_a_fleet_of_which_one_interval_is_missing_and_another_too_wide() -> None:
    targets = ["latency mean <= 10 ms", "latency p99 <= 400 ms"]
    setting = simulating.Setting(
        scenario_from_data(plan_scenario(stop={"time": "4 s"}, targets=targets)), windtunnel.catalogue(), 0.95, 1, 1.0
    )
    one = simulating.simulate(replace(setting, further=1), simulating.Case((0, 1)))
    assert [(t.verdict, t.interval_source) for t in one.targets] == [("unknown", "run"), ("unknown", "none")]
    assert not one.decided
    longer = simulating.simulate(setting, simulating.Case((0, 1)))
    assert (longer.judged_by, longer.times) == ("longer", 5) and longer.meets.confidence
    # Replications of a trace do not narrow the interval of its redrawn runs, which contain other changes.
    assert evaluation.lacks_intervals(one.targets)
    assert not evaluation.lacks_intervals([replace(one.targets[0], interval_runs=8), one.targets[1]])


def test_with_faults_a_fleet_without_an_interval_is_judged_by_replications() -> None:
    # A longer run would have more of what happens at fixed times; so not that.
    faults = [{"kind": "throttle", "at": ["1 s"], "duration": "500 ms", "speed": 0.5}]
    scenario = scenario_from_data(plan_scenario(faults=faults))
    assert judging.lengthened(scenario, 5) is None and judging.draws(scenario)
    still = scenario_from_data(plan_scenario())
    assert judging.lengthened(still, 5).stop.jobs == 12_500  # type: ignore[union-attr]


def test_what_no_seed_draws_is_known_and_what_repeats_exactly_is_exact(tmp_path: Path) -> None:
    from windtunnel.scenario.read import read_scenario

    traced = read_scenario(_write(tmp_path, trace_scenario(tmp_path)))
    assert not judging.draws(traced) and not judging.repeats(traced)
    data = plan_scenario(stop={"jobs": 50}, plan={"loads": []})
    data["workload"][0]["arrivals"]["process"] = "deterministic"
    assert judging.draws(scenario_from_data(data))
    data["workload"][0]["ops"][0]["service"]["distribution"] = "deterministic"
    steady = scenario_from_data(data)
    assert judging.repeats(steady)
    answer = planner.plan(steady, workers=1)
    assert answer.fleets and all(t.interval_source == "exact" for f in answer.fleets for t in f.targets)


def test_replications_end_with_the_first_that_rules_a_fleet_out() -> None:
    data = plan_scenario(
        stop={"jobs": 400}, plan={"loads": [], "replications": 4}, targets=["latency p95 <= 15 ms", "completed >= 99%"]
    )
    answer = planner.plan(scenario_from_data(data), workers=1)
    assert answer.replications == 4
    one = Planner(scenario_from_data(data), windtunnel.catalogue(), 1, None)
    one.run()
    overloaded = simulating.simulate(one.candidates.simulator.setting, simulating.Case((1, 0)))
    assert overloaded.runs == 1 and not overloaded.meets.value
    # What it did not look into is no verdict, and is not given as a reason.
    assert {t.verdict for t in overloaded.targets} <= {"missed", "unknown"}
    assert not any("completed" in reason for reason in evaluation.violations(overloaded))
    roomy = simulating.simulate(one.candidates.simulator.setting, simulating.Case((0, 4)))
    assert roomy.runs == 4 and roomy.meets.confidence
    # A share is at most all of it, and its interval too.
    assert roomy.targets[1].high <= 1


def test_targets_that_no_row_reads_do_not_multiply_the_programs_and_a_load_is_worked_out_once() -> None:
    data = plan_scenario(stop={"jobs": 150}, targets=["latency p95 <= 15 ms", "completed >= 90%", "utilisation <= 99%"])
    one = Planner(
        scenario_from_data(data | {"plan": {"loads": [], "replications": 3}}), windtunnel.catalogue(), 1, None
    )
    one.run()
    assert [len(group) for group in one.candidates.bounds.groups] == [3]
    assert one.candidates.bounds.load((2, 1)) is one.candidates.bounds.load((2, 1))


def test_the_shipped_scenario_leaves_out_nobody_for_memory(root: Path) -> None:
    from windtunnel.scenario.read import read_scenario

    one = Planner(read_scenario(root / "scenarios" / "azure-conv-plan.yaml"), windtunnel.catalogue(), 1, None)
    [search] = one.searches
    prepared = search.prepared(one.scenario)
    assert set(prepared.signatures) == {tuple(range(6))}
    assert len(prepared.arrival) == 19_366


def test_a_plan_for_fleets_that_lose_jobs_needs_a_target_on_those_that_complete(tmp_path: Path) -> None:
    """Nothing bounds from below what is left of the work: the cheapest fleet was ruled out by a bound that did not hold."""
    scenario = tmp_path / "lose.yaml"
    scenario.write_text(
        """
schema: 1
name: lose
fleet: [{device: server, name: s, price: 1 USD/h, power: {idle: 60 W, max: 150 W}, count: 4}]
workload:
  - name: w
    arrivals: {process: poisson, rate: 100 /s}
    ops: [{service: {distribution: deterministic, mean: 50 ms}}]
faults: [{kind: failure, mtbf: 50 ms, mttr: 1 ms, on_failure: fail}]
stop: {jobs: 1000}
targets: [latency p99 <= 1 s]
plan: {loads: []}
"""
    )
    with pytest.raises(InputError, match="faults may end about .* of 1,000 jobs for good.*completed >= 99 %"):
        planner.plan(scenario, workers=1)
    found = planner.plan(scenario, changes=["targets=[latency p99 <= 1 s, completed >= 30 %]"], workers=1)
    assert found.fleets and any("no lower bound on it is known" in note for note in found.notes)
    assert not planner.plan(scenario, changes=["targets=[latency p99 <= 1 s, completed >= 99 %]"], workers=1).fleets
    rare = ["faults=[{kind: failure, mtbf: 1000 h, mttr: 1 h}]"]
    assert planner.plan(scenario, changes=rare, workers=1).fleets


def test_what_a_fleet_did_with_a_fixed_trace_is_a_fact_and_its_times_are_a_sample() -> None:
    result = windtunnel.run(scenario_from_data(plan_scenario(stop={"jobs": 100}))).result
    assert result.latency_s.p99.low is None
    share, time = parse_target("completed >= 99 %"), parse_target("latency p99 <= 2 s")
    on_share, on_time = (judge(target, Estimate(1.0)) for target in (share, time))
    assert judging.judged(share, [on_share], [result], 0.95, fixed=True).verdict == "met"
    assert judging.judged(share, [on_share], [result], 0.95).verdict == "unknown"
    assert judging.judged(time, [on_time], [result], 0.95, fixed=True).verdict == "unknown"
