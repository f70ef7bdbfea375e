"""What a plan says of a changed world: other devices and other searched values count, and prices belong to entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
from tests.cases import search_alone
from tests.unit.planning import KNOWN, plan_scenario

from windtunnel.app.plan import plan
from windtunnel.core.device import ModelAccuracy
from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import Meets, PlanResult, TraceWindow
from windtunnel.core.results.run import DeviceAccuracy
from windtunnel.planning import explanation, looks
from windtunnel.planning.bounds import Counts
from windtunnel.planning.candidates import Candidates
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.explanation import nearest_miss
from windtunnel.planning.sensitivity import Changes
from windtunnel.planning.simulate import Case, Setting, simulate
from windtunnel.planning.workers import Workers
from windtunnel.report import plan as report
from windtunnel.report import plan_sensitivity
from windtunnel.scenario.read import scenario_from_data
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.sources import widest_error

SPEEDS: dict[str, Any] = {
    "schema": 1, "name": "speeds", "seed": 1,
    "fleet": [
        {"device": "server", "name": "slow", "price": "1 USD/h"},
        {"device": "server", "name": "fast", "price": "2.4 USD/h", "speed": 4},
    ],
    "workload": [
        {"name": "calls", "arrivals": {"process": "poisson", "rate": "300 /s"},
         "ops": [{"service": {"distribution": "exponential", "mean": "4 ms"}}]}
    ],
    "stop": {"jobs": 400},
    "targets": ["latency mean <= 8 ms"],
    "plan": {
        "max": 3, "max_entries": 1, "loads": [], "replications": 2,
        "search": {"fleet[0].speed": [1, 1.5], "policy": ["fifo", "least-loaded"]},
    },
}  # fmt: skip


def planned(**keys: Any) -> PlanResult:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("windtunnel.engine.choice.unsupported_by_compiled", lambda _prepared: "a short test")
        return plan(scenario_from_data({**SPEEDS, **keys}), workers=1)


def test_the_alternatives_of_an_entry_have_one_price_and_beyond_its_break_even_another_fleet_is_best() -> None:
    found = planned()
    effects = found.explanation.prices
    names = [effect.entry for effect in effects]
    assert set(names) == {"slow", "fast"} and len(set(names)) == len(names)
    best = set(found.fleets[found.recommended].devices)
    for effect in effects:
        number = ("slow", "fast").index(effect.entry)
        above = effect.break_even > effect.price
        for factor in (0.999, 1.001):
            fleet = [dict(entry) for entry in SPEEDS["fleet"]]
            fleet[number]["price"] = f"{effect.break_even * factor} USD/h"
            again = planned(fleet=fleet)
            stays = again.fleets[again.recommended].text == found.fleets[found.recommended].text
            assert stays == ((factor < 1) == above), (effect, best)


def test_a_fleet_of_more_devices_of_one_price_has_no_price_at_which_it_costs_as_much() -> None:
    text = SimpleNamespace(
        plan=SimpleNamespace(objective="cost"), scaled=(), priced=lambda counts: {("b200", 5.49): counts[0]}, text=str
    )
    fleets = [
        cast(Evaluation, SimpleNamespace(counts=(n,), choice=0, meets=Meets(True, True), cost_usd_per_h=n * 5.49))
        for n in (16, 24, 28)
    ]
    assert explanation._prices({0: cast(Candidates, text)}, fleets, fleets[0]) == []


def test_where_no_price_makes_another_fleet_as_cheap_the_text_says_what_was_compared() -> None:
    found = planned()
    slow, more, fast = (
        replace(
            found.fleets[0],
            configuration=[replace(found.fleets[0].configuration[0], entry=name, count=n)],
            text=f"{n} × {name}",
            meets=Meets(True, True),
        )
        for name, n in (("slow speed 1", 4), ("slow speed 1.5", 5), ("fast", 9))
    )
    told = replace(found, recommended=0, explanation=replace(found.explanation, prices=[]))
    said = plan_sensitivity.no_price(replace(told, fleets=[slow, more]))
    assert "none of the simulated fleets with another one meets the targets with 95% confidence" in said
    compared = plan_sensitivity.no_price(replace(told, fleets=[slow, more, fast]))
    assert compared.endswith(
        "no other simulated fleet that meets the targets with 95% confidence becomes as cheap as this one."
    )
    # An entry of another choice, whose price the plan does not state, has devices of the recommended fleet or others.
    unknown = replace(more, configuration=[replace(more.configuration[0], entry="slow speed 2")])
    assert plan_sensitivity.no_price(replace(told, fleets=[slow, unknown])) == said
    # A fleet that is not as certain as the recommended one is none to compare with.
    doubtful = replace(fast, meets=Meets(True, False))
    assert plan_sensitivity.no_price(replace(told, fleets=[slow, more, doubtful])) == said
    assert not plan_sensitivity.no_price(replace(told, fleets=[slow])) and not plan_sensitivity.no_price(found)


def test_a_policy_that_does_not_exist_is_an_error_and_no_value_that_is_left_out() -> None:
    search = {"policy": ["fifo", "fifoo"]}
    with pytest.raises(InputError, match=r"unknown policy 'fifoo'.*did you mean 'fifo'"):
        planned(plan={**SPEEDS["plan"], "search": search})


@pytest.mark.parametrize("objective", ["power", "carbon"])
def test_devices_whose_power_is_unknown_are_not_taken_for_those_with_the_least(objective: str) -> None:
    with pytest.raises(InputError, match=f"the objective {objective} needs the power of every candidate; slow"):
        planned(plan={"max": 1, "loads": [], "objective": objective}, site={"carbon": "350 g/kWh"})


def test_a_searched_group_that_is_larger_than_the_limit_is_left_out_and_the_others_are_searched() -> None:
    models = {"chat": {"catalogue": "llama-3.1-8b"}}
    work = {**SPEEDS["workload"][0], "ops": [{"generate": {"model": "chat", "prompt": 50, "output": 4}}]}
    work["arrivals"] = {"process": "poisson", "rate": "4 /s"}
    fleet = [{"device": "h100-sxm-80gb", "price": "3 USD/h"}]
    options = {"max": 2, "loads": [], "replications": 2, "search": {"fleet[0].group.tensor": [1, 4]}}
    keys = {"models": models, "workload": [work], "fleet": fleet, "plan": options, "stop": {"jobs": 30}}
    policy = {"name": "least-loaded", "batch": {"kind": "continuous", "size": 8, "tokens": 256}}
    with search_alone():
        found = planned(**keys, policy=policy, targets=["ttft p95 <= 1 s"])
    assert found.fleets[0].configuration[0].settings == {"fleet[0].group.tensor": 1}
    (left_out,) = found.excluded
    assert left_out.values == {"fleet[0].group.tensor": 4} and "2 devices are less than a group" in left_out.reason


def _told(counts: Counts, choice: int, *, meets: bool = True, goal: str = "value") -> Evaluation:
    """An evaluation of which only the verdict and the fleet matter."""
    return cast(
        Evaluation,
        SimpleNamespace(
            counts=counts, choice=choice, meets=Meets(meets, meets), targets=[], stopped_after=None, keeps_up=True,
            spare_violations=(), tpot_mean_s=None, judged_for="value", goal=goal, reaches=lambda _goal: meets,
            redrawn_runs=8,
        ),
    )  # fmt: skip


def _accuracy(op: str, basis: str, factor: float) -> ModelAccuracy:
    return ModelAccuracy(op, basis, "a test", error_factor=factor)


def _candidates(
    number: int, devices: Sequence[str], prices: Sequence[float], speed: Mapping[str, float], node: int | None = None
) -> Candidates:
    """Candidates of which a fleet meets the targets if its devices do enough work: ``speed`` each, and 4 in all."""

    def judge(cases: Sequence[Case], _goal: str = "value", **_keys: object) -> list[Evaluation]:
        found = []
        for case in cases:
            factors = case.speeds or (1.0,) * len(devices)
            work = sum(n * speed[name] * f for n, name, f in zip(case.counts, devices, factors, strict=True))
            found.append(_told(case.counts, number, meets=work >= 4 * case.load * (1.25 if case.window else 1)))
        return found

    return cast(
        Candidates,
        SimpleNamespace(
            devices=[SimpleNamespace(label=name) for name in devices], names=devices, prices=prices, rents=prices,
            busiest_window=None, scenario=SimpleNamespace(policy="fifo", programs=[]), max_cost=1e9, judge=judge, notes=[], entries=len(devices), may_be_feasible=lambda _case: True,
            bounds=SimpleNamespace(load=lambda _counts: (0.0, None)),
            objective_lower_bound=lambda counts: sum(n * p for n, p in zip(counts, prices, strict=True)),
            named=lambda counts: {name: n for name, n in zip(devices, counts, strict=True) if n},
            weights=(np.array(prices), 0.0), max_counts=(8,) * len(devices), plan=SimpleNamespace(max_entries=2, spare=0),
            simulator=SimpleNamespace(found=lambda _case: None, workers=Workers(1)),
            scaled={}, replicas_text=lambda entry, n: f"{n} {devices[entry]}", node_devices=lambda _entry: node, sizes=(1,) * len(devices), announce=lambda _cases: None, unknown=lambda _cases: [], model_intervals=lambda e: [f"of {e.counts}"],
            text=lambda counts: f"{counts} of choice {number}", objective_text=lambda e: f"choice {e.choice}",
        ),
    )  # fmt: skip


def test_a_device_slower_than_its_model_is_replaced_by_another_one_of_any_searched_values_if_that_is_cheaper() -> None:
    devices, prices, speed = ("new", "new", "old"), (1.0, 1.0, 1.4), {"new": 1.0, "old": 1.0}
    choices = {n: _candidates(n, devices, prices, speed) for n in (0, 1)}
    best = _told((4, 0, 0), 0)
    accuracies = [DeviceAccuracy("new", _accuracy("step", "transfer", 1.5))]
    # A fleet of the other device meets the targets with the other searched values, as does one of more of the same.
    simulated = [best, _told((0, 0, 4), 1), _told((0, 0, 3), 1, meets=False), _told((0, 4, 0), 1), _told((6, 0, 0), 0)]
    *others, slower = Changes(choices, accuracies, best, simulated).effects()
    assert slower.device == "new" and set(slower.speeds.values()) == {1 / 1.5, 1.0}
    assert not slower.still_meets and slower.fleet == "(0, 0, 4) of choice 1" and slower.objective_text == "choice 1"
    assert all(effect.device is None for effect in others)
    # What is found is judged by the error of its own models too; under the other changes no fleet is.
    assert slower.model_intervals == ["of (0, 0, 4)"] and not any(effect.model_intervals for effect in others)
    # Both alternatives of the device are slower, so that four of the other one do not serve either.
    alone = Changes(choices, accuracies, best, [best, _told((0, 4, 0), 1)]).effects()[-1]
    assert alone.fleet == "(6, 0, 0) of choice 0"


BUSY = TraceWindow("chat", 600.0, 100, 125, 110.0, 900.0)


def test_the_busiest_window_of_the_only_trace_is_a_change() -> None:
    candidates = vars(_candidates(0, ("new",), (1.0,), {"new": 1.0}))
    of_trace = cast(Candidates, SimpleNamespace(**{**candidates, "busiest_window": BUSY}))
    best = _told((4,), 0)
    effects = Changes({0: of_trace}, [], best, [best, _told((5,), 0)]).effects()
    (busiest,) = [effect for effect in effects if effect.window]
    assert busiest.window == (900.0, 1500.0) and busiest.load == 1.0
    assert not busiest.still_meets and busiest.fleet == "(5,) of choice 0"
    assert busiest.change == "The busiest 600 s of the trace, from 900 s on, with 25.0% more arrivals"


def test_a_fleet_that_cannot_do_the_changed_work_is_none_that_is_found() -> None:
    candidates = vars(_candidates(0, ("new",), (1.0,), {"new": 1.0}))
    judge = candidates["judge"]

    def judged(cases: Sequence[Case], goal: str = "value", **keys: object) -> list[Evaluation]:
        if any(case.window and case.counts == (5,) for case in cases):
            raise InputError("a request does not fit any device", expected="a larger device")
        return list(judge(cases, goal, **keys))

    of_trace = cast(Candidates, SimpleNamespace(**{**candidates, "busiest_window": BUSY, "judge": judged}))
    best = _told((4,), 0)
    effects = Changes({0: of_trace}, [], best, [best, _told((5,), 0), _told((6,), 0)]).effects()
    (busiest,) = [effect for effect in effects if effect.window]
    assert busiest.fleet == "(6,) of choice 0"


@pytest.mark.parametrize(("most", "workloads", "busier"), [(125, 1, True), (100, 1, False), (125, 2, False)])
def test_the_busiest_window_is_that_of_the_only_workload_if_it_has_more_rows(
    most: int, workloads: int, busier: bool
) -> None:
    window = replace(BUSY, most_rows=most)
    found = vars(Candidates)["busiest_window"].fget
    scenario = SimpleNamespace(workload=[None] * workloads)
    assert found(SimpleNamespace(windows=[window], scenario=scenario)) == (window if busier else None)
    assert found(SimpleNamespace(windows=[], scenario=scenario)) is None


def test_another_window_is_simulated_as_the_scenario_with_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t\n" + "".join(f"{0.02 * n - 4e-6 * n * n}\n" for n in range(2000)))

    def scenario(begin: float, end: float) -> Scenario:
        data = plan_scenario(targets=["latency p95 <= 100 ms"])
        del data["stop"]
        arrivals = {"process": "trace", "file": str(tmp_path / "t.csv"), "time": "t"}
        data["workload"][0]["arrivals"] = {**arrivals, "from": f"{begin} s", "until": f"{end} s"}
        return scenario_from_data(data)

    def targets(of: Scenario, case: Case) -> Any:
        return simulate(Setting(of, KNOWN, 0.95, 1, 1.0, 1), case).targets

    case = Case((2, 1))
    moved = targets(scenario(0, 5), replace(case, window=(7.0, 12.0)))
    assert moved == targets(scenario(7, 12), case) != targets(scenario(0, 5), case)


def test_the_loss_of_a_node_is_judged_where_it_has_several_replicas_of_the_fleet() -> None:
    for node, lost in ((None, [1]), (1, [1]), (3, [1, 3]), (8, [1])):
        candidates = _candidates(0, ("new",), (1.0,), {"new": 1.0}, node)
        # Of a node that holds the whole fleet nothing is left, which nothing can do the work of.
        left = SimpleNamespace(**{**vars(candidates), "may_be_feasible": lambda case: any(case.counts)})
        best = _told((6,), 0)
        effects = [e for e in Changes({0: cast(Candidates, left)}, [], best, [best]).effects() if e.lost]
        assert [effect.lost_replicas for effect in effects] == lost
        assert [effect.still_meets for effect in effects] == [6 - n >= 4 for n in lost]


def test_the_error_of_a_device_is_judged_by_the_value_and_other_changes_with_the_confidence_asked_for() -> None:
    devices, prices = ("new", "old"), (1.0, 1.4)
    candidates = _candidates(0, devices, prices, {"new": 1.0, "old": 1.0})
    met_by_value = SimpleNamespace(
        **{**vars(candidates), "judge": lambda cases, _goal, **_keys: [_by_value(c.counts) for c in cases]}
    )
    best = _told((4, 0), 0, goal="confidence")
    accuracies = [DeviceAccuracy("new", _accuracy("step", "transfer", 1.5))]
    changes = Changes({0: cast(Candidates, met_by_value)}, accuracies, best, [best])
    *others, slower = changes.effects()
    assert (slower.goal, slower.still_meets, slower.candidates_tried) == ("value", True, 0)
    assert {(other.goal, other.still_meets) for other in others} == {("confidence", False)}


def _by_value(counts: Counts) -> Evaluation:
    told = vars(_told(counts, 0))
    return cast(
        Evaluation,
        SimpleNamespace(
            **{**told, "meets": Meets(value=True, confidence=False), "reaches": lambda goal: goal == "value"}
        ),
    )


def test_of_the_cheaper_fleets_the_one_that_misses_by_least_is_that_whose_worst_target_is_least_beyond_its_limit() -> (
    None
):
    def told(number: int, cost: float, *values: float | None, **keys: Any) -> Evaluation:
        targets = [
            SimpleNamespace(
                value=value, limit=1.0, comparison="<=", text=f"t{i}", headroom=None if value is None else 1.0 - value
            )
            for i, value in enumerate(values)
        ]
        own = {"targets": targets, "objective": lambda _name: cost, "stopped_after": None, **keys}
        return cast(Evaluation, SimpleNamespace(**{**vars(_told((number,), 0, meets=False)), **own}))

    whole = {5: told(5, 3.0, 1.1, 0.5), 6: told(6, 3.0, 4.0, 0.5)}
    candidates = cast(
        Candidates,
        SimpleNamespace(
            plan=SimpleNamespace(objective="cost"),
            whole=lambda e: e if e.stopped_after is None else whole[e.counts[0]],
        ),
    )
    best = told(0, 9.0, 0.5, 0.5)
    nearest_in_price, nearest = told(1, 8.0, 5.0, 0.1), told(2, 4.0, 1.3, 1.2)
    others = [told(3, 4.0, 1.2, 1.5), told(4, 4.0, 1.1, 1.1, keeps_up=False), told(8, 10.0, 1.01, 0.5)]

    def found(*more: Evaluation) -> Counts | None:
        fleet = nearest_miss({0: candidates}, [best, nearest_in_price, nearest, *others, *more], best, "value", None)
        return None if fleet is None else fleet.counts

    assert found() == (2,)
    # What a run that was ended shows of a fleet is not what it misses by: the two that lasted longest run to their end.
    ended = [told(n, 3.0, 1.01, 0.5, stopped_after=jobs) for n, jobs in ((5, 900), (6, 500), (7, 90))]
    assert found(*ended) == (5,)
    assert nearest_miss({0: candidates}, [best, others[1]], best, "value", None) is None
    # Fleets that meet the targets by value miss them by their intervals.
    by_value = [told(9, 4.0, 0.9, 0.8), told(10, 4.0, 0.7, 0.7)]
    for fleet, headroom in zip(by_value, (-0.1, -0.2), strict=True):
        cast(Any, fleet).targets[0].headroom = headroom
    nearest_by_interval = nearest_miss({0: candidates}, [best, *by_value], best, "confidence", None)
    assert nearest_by_interval is not None and nearest_by_interval.counts == (9,)


def test_under_a_change_the_fleet_that_is_named_is_that_of_a_plan_for_the_changed_scenario() -> None:
    """A mix that the search did not simulate, because it costs more than the best fleet, is found under more load."""

    def scenario(rate: float = 1.0, speed: float = 1.0) -> dict[str, Any]:
        servers = [
            {"device": "server", "name": name, "price": f"{price} USD/h", "speed": own * speed}
            for name, price, own in (("e0", 4, 1.5), ("e1", 5, 3.0))
        ]
        arrivals = {"process": "poisson", "rate": f"{250 * rate} /s"}
        calls = {"service": {"distribution": "exponential", "mean": "8 ms"}}
        return {
            "schema": 1, "name": "small", "seed": 832, "fleet": servers, "policy": "shortest-expected-completion", "stop": {"jobs": 3000},
            "workload": [{"name": "c", "arrivals": arrivals, "ops": [calls]}], "targets": ["latency p95 <= 60 ms"],
            "plan": {"max": 5, "max_entries": 2, "replications": 2, "loads": []},
        }  # fmt: skip

    with patch.object(looks, "MOST_RUNS", 0):
        effects = {e.change: e for e in plan(scenario_from_data(scenario()), workers=1).explanation.changes}
    for change, changed in (
        ("20% more load", scenario(rate=1.2)),
        ("Every device 10% slower than its model", scenario(speed=1 / 1.1)),
    ):
        with search_alone(), patch.object(looks, "MOST_RUNS", 0):
            other = plan(scenario_from_data(changed), workers=1)
        best = other.fleets[other.recommended]
        assert other.search.proof == "exhaustive" and len(best.entries) == 2
        assert (effects[change].fleet, effects[change].still_meets) == (best.text, False)


def test_a_step_of_which_operations_were_measured_is_not_said_to_rest_on_nothing() -> None:
    step = DeviceAccuracy("h100", _accuracy("step", "formula", 1.2))
    for bases, said in (
        (("measured", "formula"), "some of its operations were not measured on it"),
        (("transfer", "formula"), "nothing was measured on it"),
    ):
        parts = [DeviceAccuracy("h100", _accuracy(f"op{i}", b, 1.1), part_of="step") for i, b in enumerate(bases)]
        error = widest_error([step, *parts], "h100")
        assert error is not None and error.unmeasured == said
    measured = widest_error([DeviceAccuracy("h100", _accuracy("gemm", "measured", 1.2))], "h100")
    assert measured is not None and not measured.unmeasured


def test_limits_of_many_alternatives_are_stated_once() -> None:
    many = {f"a tensor {n}": 8 for n in range(9)}
    assert report._numbers(many, {}) == "up to 8 of each of 9 entries with their values"
    assert report._numbers({"a": 8, "b": 8}, {"a": "l4", "b": "l40s"}) == "a up to 8; b up to 8"
    alternatives = {"l4 tensor 1": 8, "l4 tensor 2": 16, "l40s": 4}
    of_device = {"l4 tensor 1": "l4", "l4 tensor 2": "l4", "l40s": "l40s"}
    assert report._numbers(alternatives, of_device) == "l4 tensor 1 up to 8, tensor 2 up to 16; l40s up to 4"
