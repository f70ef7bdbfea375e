"""`windtunnel plan`: its contract, its explanation, what it refuses, and that workers change nothing."""

from __future__ import annotations

import json
import re
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner
from tests.cases import search_alone
from tests.unit.planning import plan_scenario

import windtunnel
from windtunnel.app import plan as planner
from windtunnel.cli.main import cli
from windtunnel.core.errors import InputError
from windtunnel.core.results.data import result_json
from windtunnel.core.results.plan import Meets, PlanResult
from windtunnel.core.validated import DISAGGREGATED
from windtunnel.planning import evaluation, looks
from windtunnel.planning import workers as plan_workers
from windtunnel.planning.evaluation import shown
from windtunnel.planning.load_curve import knee
from windtunnel.planning.simulate import Case
from windtunnel.report import numbers, plan_answer, plan_page, plan_sensitivity
from windtunnel.report import plan as report
from windtunnel.scenario.read import scenario_from_data
from windtunnel_models.catalogue import Catalogue


def test_the_answer_has_what_outside_scripts_rely_on(found: PlanResult) -> None:
    best = found.fleets[0]
    assert set(found.to_dict()["fleets"][0]) >= {"devices", "cost_usd_per_h", "power_w", "targets"}
    assert all(isinstance(n, int) and sku == "server" for sku, n in best.devices.items())
    costs = [fleet.cost_usd_per_h for fleet in found.fleets]
    assert costs == sorted(costs)
    assert 0 < found.lower_bound.cost_usd_per_h <= costs[0]
    assert found.gap == pytest.approx(1 - found.lower_bound.cost_usd_per_h / costs[0])
    for fleet in found.fleets:
        assert fleet.meets.value and all(target.value <= target.limit for target in fleet.targets)
        assert fleet.meets.confidence == all(target.met and target.high <= target.limit for target in fleet.targets)
    # The first that meets with confidence is recommended; here a cheaper one meets by value.
    assert [f.meets.confidence for f in found.fleets[: found.recommended + 1]] == [False] * found.recommended + [True]
    assert found.recommended > 0
    data = json.loads(result_json(found))
    assert data["fleets"][found.recommended]["meets"] == {"value": True, "confidence": True}
    assert data["fleets"][0]["configuration"] == [
        {"entry": "fast", "device": "server", "count": 1, "group": None, "role": None, "node": None, "settings": {}}
    ]
    assert data["searched"]["count"]["fast"][0] == 0 and data["held"]["policy"] == "shortest-expected-completion"


def test_by_value_and_with_confidence_stand_side_by_side_and_one_sentence_says_why_they_differ(
    found: PlanResult,
) -> None:
    first, *_, second = report.text(found).split("\n\n")[0].split("\n")
    best, cheapest = found.fleets[found.recommended], found.fleets[0]
    assert f"{best.text} (4.70 USD/h) meets the target with 95% confidence" in first
    assert f"{cheapest.text} (2.70 USD/h) meets it by value" in " ".join(report.text(found).split())
    said = found.explanation.price_of_confidence.text
    assert "12.8 ms, 95% CI 7.23 to 47.5 ms, whose upper bound misses the limit" in said and best.text in said
    # One sentence on the difference, and one on what would decide it.
    why, decides = re.split(r"(?<=does\.) ", said)
    assert why.count(".") - len(re.findall(r"\d\.\d", why)) == 1, "more than one sentence"
    assert decides.endswith("; a run 16 times as long may decide it.")
    assert second
    table = report.fleet_table(report.listed(found), found)
    assert any(line.startswith(cheapest.text) and "by value" in line for line in table)
    assert any(line.startswith(best.text) and "at 95%" in line for line in table)
    page = plan_page.render(found)
    assert "By value" in page and "by value" in page


def test_the_recommended_fleet_is_listed_however_many_cheaper_ones_meet_by_value(found: PlanResult) -> None:
    assert evaluation.notable([], 3) == []

    def fleet(counts: tuple[int, ...], certain: bool) -> evaluation.Evaluation:
        meets = Meets(value=True, confidence=certain)
        return dataclass_of(evaluation.Evaluation, counts=counts, meets=meets)

    fleets = [
        fleet((3, 0), False),
        fleet((0, 4), False),
        fleet((4, 0), False),
        fleet((5, 0), True),
        fleet((6, 0), True),
    ]
    assert evaluation.recommended(fleets) == 3
    # Four contain three that are as certain; five are certain, and six contain those.
    assert evaluation.notable(fleets, 5) == [0, 1, 3]
    assert evaluation.notable(fleets, 2) == [0, 3]
    assert evaluation.notable(fleets[:3], 5) == [0, 1]


def dataclass_of(kind: Any, **fields: Any) -> Any:
    """Return an object of a dataclass of which only some fields matter."""
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def test_run_agrees_with_what_the_plan_says_of_its_best_fleet(found: PlanResult) -> None:
    best = found.fleets[found.recommended]
    counts = best.entries
    data = plan_scenario()
    data["fleet"] = [entry | {"count": counts[entry["name"]]} for entry in data["fleet"] if entry["name"] in counts]
    result = windtunnel.run(scenario_from_data(data)).result
    assert result.cost_usd_per_h == pytest.approx(best.cost_usd_per_h)
    assert result.latency_s.p95.high == pytest.approx(best.targets[0].high)
    assert result.average_power_w == pytest.approx(best.power_w)


def test_the_explanation_says_what_binds_what_breaks_and_what_moves_the_answer(found: PlanResult) -> None:
    told = found.explanation
    assert told.binding.text == "latency p95 <= 15 ms"
    assert 0 <= told.binding.headroom < 1
    assert told.next_cheapest.violations
    what = [change.change for change in told.changes]
    assert what[:2] == ["20% more load", "20% less load"]
    assert any("10% slower" in one for one in what)
    for change in told.changes:
        assert change.still_meets or change.violations
    points = found.curve.points
    assert [p.load for p in points] == sorted(p.load for p in points)
    assert points[-1].value_s > points[0].value_s
    times = {f.text: f.time_s for f in found.simulated}
    assert found.time == "latency p95"
    front = [(f.cost_usd_per_h, f.power_w, times[f.text]) for f in found.front]
    for one in front:
        assert not any(all(a <= b for a, b in zip(other, one, strict=True)) and other != one for other in front)


def test_each_change_is_told_with_the_value_and_interval_that_it_rests_on(found: PlanResult) -> None:
    for change in found.explanation.changes:
        sentence = next(s for s in found.explanation.sentences if s.startswith(change.change + ":"))
        bound = change.binding
        if bound is None:
            assert change.lost == "fast" and all(violation in sentence for violation in change.violations)
            continue
        assert evaluation.shown(bound.value, "s") in sentence and "95% CI" in sentence
        if change.still_meets:
            assert f"headroom {evaluation.percent(change.headroom)} at the CI upper bound" in sentence
            assert change.headroom == pytest.approx((bound.limit - bound.high) / bound.limit)


def test_the_loss_of_a_replica_is_that_fleet_without_it_and_with_one_more_the_recommended_one_is_left(
    found: PlanResult,
) -> None:
    best = found.fleets[found.recommended]
    losses = {change.lost: change for change in found.explanation.changes if change.lost}
    assert set(losses) == set(best.entries) == {"slow", "fast"}
    for name, change in losses.items():
        entries = {other: n - (other == name) for other, n in best.entries.items()}
        data = plan_scenario()
        data["fleet"] = [e | {"count": n} for e in data["fleet"] if (n := entries.get(e["name"]))]
        (target,) = windtunnel.run(scenario_from_data(data)).result.targets
        assert change.meets.value == target.met and (change.binding is None or change.binding.value == target.value)
    lost = " ".join(plan_answer.uncertainty(found))
    assert "With one slow out of service it" in lost and "with one fast out of service it misses the target" in lost
    prices = {entry.name: entry.price_usd_per_h for entry in found.entries}
    more = best.cost_usd_per_h + sum(prices[name] for name, change in losses.items() if not change.still_meets)
    assert f"for {more:,.2f} USD/h, a fleet of this size remains after such a loss" in lost
    rows = {row[0]: row[-1] for row in plan_sensitivity.change_rows(found)}
    assert rows["One fast out of service"] == "not sought here (plan.spare: 1 seeks one)"
    # Where the fleet is chosen for it, it is not judged twice.
    spare = planner.plan(scenario_from_data(plan_scenario(plan={"loads": [], "spare": 1})), workers=1)
    assert spare.fleets and not any(change.lost for change in spare.explanation.changes)


def test_of_each_entry_alone_the_best_fleets_are_listed_by_value_and_with_confidence(found: PlanResult) -> None:
    alone = {name: [f for f in found.fleets if list(f.entries) == [name]] for name in ("slow", "fast")}
    assert any(alone.values())
    for name, fleets in alone.items():
        said = plan_page._best_alone(found, name)
        if not fleets:
            assert not said
            continue
        assert said.startswith(f"{report.how(fleets[0].meets, found.confidence)}: {fleets[0].text}, ")
        certain = [fleet for fleet in fleets if fleet.meets.confidence]
        assert f"at 95%: {certain[0].text}, " in said if certain else said.endswith("none of those simulated at 95%")


def test_the_load_curve_has_the_intervals_with_which_the_same_loads_are_judged_as_changes(found: PlanResult) -> None:
    points = {point.load: point for point in found.curve.points}
    for change in found.explanation.changes:
        if change.load != 1.0:
            point = points[change.load]
            assert point.meets == change.meets
            assert (point.value_s, point.high_s) == (change.binding.value, change.binding.high)
    certain = [load for load, point in points.items() if point.meets.confidence]
    assert found.curve.most_certain == max(certain) and {p.load for p in points.values() if p.high_s} >= {0.8, 1.0, 1.2}


def test_a_wider_interval_about_the_same_value_is_called_that(found: PlanResult) -> None:
    before = replace(found.fleets[0].targets[0], value=0.125, worse_end=0.240, limit=1.0)

    def is_wider(value: float, worse_end: float | None) -> bool:
        return evaluation.explained_by_interval(before, replace(before, value=value, worse_end=worse_end))

    assert is_wider(0.135, 0.980)
    assert not is_wider(0.160, 0.980)
    assert not is_wider(0.800, 0.980)
    assert not is_wider(0.130, 0.250)
    assert not is_wider(0.130, None)


def test_under_more_load_the_cheapest_known_fleet_is_named_and_not_just_more_of_the_same() -> None:
    # Five slow ones at 5.00 are the cheapest. With a fifth more load seven of them would do, and one fast one for less.
    data = plan_scenario(plan={"loads": []}, targets=["latency p95 <= 14 ms"])
    data["fleet"][1] |= {"price": "5.2 USD/h", "speed": 6}
    with patch.object(looks, "MOST_RUNS", 0):
        answer = planner.plan(scenario_from_data(data), workers=1)
    assert answer.fleets[0].text == "5 × slow"
    more = answer.explanation.changes[0]
    assert more.change == "20% more load" and not more.still_meets
    assert more.devices == {"fast": 1} and more.objective_text == "5.20 USD/h"
    more_of_the_same = scenario_from_data(data | {"fleet": [data["fleet"][0] | {"count": 7}]})
    scaled = [w.model_copy(update={"arrivals": w.arrivals.scaled(1.2)}) for w in more_of_the_same.workload]
    assert windtunnel.run(more_of_the_same.changed(workload=scaled)).result.latency_s.p95.high <= 0.014


def test_under_more_load_no_larger_fleet_is_proposed_than_is_needed() -> None:
    # Jobs of exactly 10 ms at a steady rate: 24 devices do 2,390 a second, and 29 a fifth more.
    data = plan_scenario(plan={"loads": [], "max": 60, "replications": 2}, targets=["latency p99 <= 10.001 ms"])
    data |= {"fleet": data["fleet"][:1], "policy": "fifo"}
    data["workload"][0] |= {
        "arrivals": {"process": "deterministic", "rate": "2390 /s"},
        "ops": [{"service": {"distribution": "deterministic", "mean": "10 ms"}}],
    }
    answer = planner.plan(scenario_from_data(data), workers=1)
    assert answer.fleets[answer.recommended].devices == {"server": 24}
    more = answer.explanation.changes[0]
    assert more.change == "20% more load" and more.devices == {"slow": 29}


def test_every_dot_has_its_row_and_the_time_is_that_of_the_target_that_binds(found: PlanResult) -> None:
    charts = plan_page.charts(found)
    for name, title in (("time", "Latency p95"), ("power", "Average power")):
        assert charts[name]["title"] == title
        assert charts[name]["names"] == [row[0] for row in plan_page.frontier_rows(found)]
    assert len(charts["time"]["x"]) == sum(f.meets.value for f in found.simulated)
    for dot, row in zip(charts["time"]["front"], plan_page.frontier_rows(found), strict=True):
        assert (dot is None) == (row[-1] == "no")


def test_a_table_too_wide_for_a_terminal_has_its_targets_below_one_another(found: PlanResult) -> None:
    one = found.fleets[found.recommended]
    names = ["a very long name for a target <= 15 ms", "another name as long as that <= 20 ms", "third <= 30 ms"]
    share = {"unit": "1", "value": 0.9234, "low": 0.9, "high": 0.95, "limit": 0.9, "comparison": ">="}
    targets = [replace(one.targets[0], text=name) for name in names]
    targets.append(replace(one.targets[0], text="availability >= 90%", **share))
    lines = report.fleet_table([replace(one, targets=targets)], found)
    assert max(map(len, lines)) <= 120 and len(lines) == 2 + 4
    assert all(re.search(r" \([0-9.]+ to [0-9.]+ ms\) +headroom [0-9.]+%$", line) for line in lines[2:5])
    # A share is a percentage wherever it stands.
    assert "92.3% (90.0 to 95.0%)" in lines[5]


def test_an_overloaded_fleet_is_called_unstable_and_by_how_much(found: PlanResult) -> None:
    failed = [f for f in found.simulated if f.text == "2 × slow"]
    assert failed and "times as much work arrives as the fleet can do" in failed[0].violations[0]
    assert failed[0].violations[0].startswith("unstable: ")
    assert "nothing was measured" not in report.text(found)


def test_the_number_of_workers_changes_nothing(found: PlanResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_workers, "_POOL_ABOVE_S", 0.0)
    with patch.object(looks, "MOST_RUNS", 0):
        side_by_side = planner.plan(scenario_from_data(plan_scenario()), workers=2)
    assert result_json(side_by_side) == result_json(found)


class Inline:
    """An executor of this process."""

    made: ClassVar[list[Inline]] = []

    def __init__(self, _count: int, _context: object, initializer: object, initargs: tuple[Catalogue, Any]) -> None:
        assert initializer is plan_workers.begin
        plan_workers._catalogues[:] = [initargs[0]]
        plan_workers._settings.clear()
        self.made.append(self)
        self.cases: list[tuple[int, Case]] = []

    def submit(self, work: Any, number: int, pickled: bytes, case: Case) -> Future[Any]:
        self.cases.append((number, case))
        future: Future[Any] = Future()
        try:
            future.set_result(work(number, pickled, case))
        except InputError as error:
            future.set_exception(error)
        return future

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        assert cancel_futures


def test_all_choices_of_a_plan_share_their_workers_and_no_case_is_simulated_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"max": 2, "loads": [0.5], "search": {"policy": ["fifo", "shortest-expected-completion"]}}
    scenario = scenario_from_data(plan_scenario(plan=options, stop={"jobs": 1000}))
    alone = planner.plan(scenario, workers=1)
    monkeypatch.setattr(plan_workers, "_POOL_ABOVE_S", 0.0)
    monkeypatch.setattr(plan_workers, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(Inline, "made", [])
    assert planner.plan(scenario, workers=2) == alone
    (pool,) = Inline.made
    assert {number for number, _ in pool.cases} == {0, 1}
    assert len(set(pool.cases)) == len(pool.cases) > alone.search.simulated_fleets


def test_the_report_loads_nothing_and_no_name_in_it_can_run(found: PlanResult, tmp_path: Path) -> None:
    paths = planner.save(found, tmp_path / "out")
    assert [path.name for path in paths] == ["plan.json", "plan.html"]
    assert json.loads(paths[0].read_text()) == json.loads(result_json(found))
    page = paths[1].read_text()
    assert "choice &lt;script&gt;" in page
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:)", page)
    assert "Fleets in the charts" in page and "Values over load" in page
    for fleet in found.fleets:
        assert fleet.text in page
    assert plan_answer.verdict(found) in " ".join(report.text(found).split())


def test_no_fleet_is_exit_1_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps(plan_scenario(targets=["latency p95 <= 1 us"], plan={"max": 2, "loads": []})))
    done = CliRunner().invoke(cli, ["plan", str(path), "--format", "json", "--workers", "1"])
    assert done.exit_code == 1
    answer = json.loads(done.stdout)
    assert answer["fleets"] == [] and answer["gap"] is None and answer["lower_bound"]["cost_usd_per_h"] is None
    assert "no number of them meets latency p95 <= 1 us" in " ".join(answer["explanation"]["sentences"])
    assert [entry["reason"]["kind"] for entry in answer["entries"]] == ["too_slow", "too_slow"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"targets": []}, "no target to plan for"),
        ({"fleet": [{"device": "server", "name": "free"}]}, "price of every candidate.*free"),
        ({"plan": {"max": {"slwo": 3}}}, "no 'slwo'.*did you mean 'slow'"),
        ({"plan": {"objective": "carbon"}}, "needs the carbon intensity"),
        ({"plan": {"confidence": "10%"}}, "50% to 99.9%"),
        ({"plan": {"knids": 1}}, "unknown key 'knids'"),
    ],
)
def test_what_cannot_be_planned_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        planner.plan(scenario_from_data(plan_scenario(**changes)), workers=1)
    assert re.search(problem, str(caught.value))


def test_a_value_beside_its_limit_has_as_many_digits_as_tell_them_apart() -> None:
    assert numbers.quantity(1.002, "s", limit=1.0) == "1.002 s" and numbers.quantity(1.0, "s", limit=1.0) == "1.00 s"
    assert (
        numbers.quantity(1.3, "s", limit=1.0) == "1.30 s" and numbers.quantity(0.99996, "s", limit=1.0) == "0.99996 s"
    )
    assert numbers.value_range(0.0219, 0.035004, "s", 0.035) == "21.9 to 35.004 ms"
    assert shown(0.98996, "1", 0.99) == "98.996%" and shown(0.9, "1", 0.99) == "90.0%"
    # A difference that is only one of rounding shows no digits.
    assert numbers.quantity(35 * 0.001, "s", limit=0.035 * (1 + 1e-15)) == "35.0 ms"


def test_what_published_measurements_show_of_disaggregated_serving_is_what_the_benchmark_wrote(root: Path) -> None:
    known = DISAGGREGATED
    rows = (root / known.source).read_text().splitlines()
    (cells,) = [row.split("|")[1:-1] for row in rows if row.startswith("| stated | all |")]
    figures = [cell.strip() for cell in cells]
    stated = [f"{known.tpot:.0%}", f"{known.e2e:.0%}", f"{known.ttft_median_error:.1%}", f"{known.ttft:.0%}"]
    assert [int(figures[3]), *(figures[i] for i in (6, 9, 10, 12))] == [known.configurations, *stated]


def test_with_a_spare_the_text_says_what_is_out_of_service_and_what_the_rest_does() -> None:
    keys = {"fleet": plan_scenario()["fleet"][:1], "targets": ["latency p95 <= 40 ms"]}
    data = plan_scenario(**keys, plan={"spare": 1, "max": 8, "loads": []})
    with search_alone():
        found = planner.plan(scenario_from_data(data), workers=1)
    best = found.fleets[found.recommended]
    whole, left = [note for note in found.notes if note.startswith(best.text)]
    assert whole.startswith(f"{best.text} with all devices in service: latency p95 <= 40 ms: ")
    assert left.startswith(f"{best.text} without 1 × slow: latency p95 <= 40 ms: ") and "headroom" in left
    assert left in " ".join(report.text(found).replace("≤", "<=").split())
    # What is judged and shown is the worst case, and not the whole fleet.
    assert best.targets[0].out_of_service == "1 × slow" == found.explanation.binding.out_of_service
    assert f"headroom {best.targets[0].headroom * 100:.1f}%" in left and "without 1 × slow" in plan_page.render(found)
    assert "with 1 device out of service" in plan_answer.verdict(found)
    two = replace(best.configuration[0], count=2)

    def said(spare: int, *entries: Any) -> str:
        fleet = replace(best, configuration=list(entries))
        return plan_answer.verdict(replace(found, spare=spare, fleets=[fleet], recommended=0))

    assert "with all devices of any entry out of service" in said(9, two, replace(two, count=1))
    assert "with 1 device or all of any entry" not in said(1, two, two)
    assert "with 2 devices or all of any entry out of service" in said(2, replace(two, count=3), replace(two, count=1))
    assert "with 1 group out of service" in said(1, replace(two, count=8, group={"tensor": 4}))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["compare", "plan-chat.yaml", "--set", "seed=2"], "expected --change seed=2"),
        (["plan", "plan-chat.yaml", "--set", "plan.search={fleet[*].group.tensor: [1, 2]}"], "quotes around a key"),
        (
            ["plan", "plan-chat.yaml", "--set", "fleet[0]={device: l4, count: 8, group: {tensor: 3}}"],
            "or none in a file for `windtunnel plan`, which does not read it",
        ),
    ],
)
def test_an_option_that_is_written_wrong_is_told_the_right_one(command: list[str], said: str, root: Path) -> None:
    name, file, *options = command
    result = CliRunner().invoke(cli, [name, str(root / "scenarios" / file), *options])
    assert result.exit_code == 2 or isinstance(result.exception, InputError)
    assert said in result.output + str(result.exception)


@pytest.mark.parametrize(
    "arguments", [["plan"], ["compare", "--change", "seed=2"], ["sweep", "--over", "seed=1,2", "--out", "OUT"]]
)
def test_a_placement_scenario_is_refused_for_what_it_is(arguments: list[str], root: Path, tmp_path: Path) -> None:
    command, *options = [str(tmp_path / "out") if a == "OUT" else a for a in arguments]
    done = CliRunner().invoke(cli, [command, str(root / "scenarios" / "openb-inflate.yaml"), *options])
    assert isinstance(done.exception, InputError) and done.exception.exit_code == 2
    said = str(done.exception)
    assert "openb-inflate.yaml:8:1: cluster: this is a placement scenario" in said
    assert "not planned, swept or compared" in said and "unknown key" not in said


def test_the_knee_of_a_hyperbola_and_of_a_straight_line() -> None:
    loads = np.linspace(0.05, 0.95, 91)
    # 1 / (1 - x) between a and b is furthest below its chord where its slope is the chord's: (1-x)^2 = (1-a)(1-b).
    assert knee(loads.tolist(), (1 / (1 - loads)).tolist()) == pytest.approx(1 - (0.95 * 0.05) ** 0.5, abs=0.011)
    assert knee(loads.tolist(), loads.tolist()) is None
    # Below its chord, but no steeper after its flat part than before it.
    assert knee([0.0, 0.1, 0.5, 1.0, 1.1], [0.0, 4.0, 4.1, 4.2, 8.2]) is None
    assert knee([0.0, 0.1, 0.5, 1.0, 1.1], [0.0, 3.0, 3.1, 3.2, 8.2]) == 1.0
    assert knee([0.0, 0.1, 0.5, 1.0, 1.1], [3.0, 3.0, 8.0, 3.0, 1.0]) is None
    assert knee([0.5, 1.0], [1.0, 9.0]) is None
