"""``plan.search``: it gives the best of the plans that a reader could write by hand, and says what it left out."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import search_alone

from windtunnel.app.plan import plan
from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import PlanResult
from windtunnel.planning.planner import Planner
from windtunnel.scenario.read import scenario_from_data
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()
PATH = "fleet[0].speed"


@st.composite
def small(draw: st.DrawFn) -> dict[str, Any]:
    """Two candidates, of which one has a choice of speeds, under a choice of policies."""
    return {
        "schema": 1,
        "name": "tiny",
        "seed": draw(st.integers(0, 1000)),
        "fleet": [
            {"device": "server", "name": name, "speed": speed, "price": f"{draw(st.integers(1, 9))} USD/h"}
            for name, speed in (("first", 1.0), ("second", draw(st.sampled_from([0.5, 2.0]))))
        ],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "poisson", "rate": "200 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "8 ms"}}],
            }
        ],
        "policy": "fifo",
        "stop": {"jobs": 250},
        "targets": [f"latency p95 <= {draw(st.sampled_from([15, 25, 60]))} ms"],
        "plan": {
            "max": 2,
            "max_entries": draw(st.integers(1, 2)),
            "replications": 2,
            "loads": [],
            "search": {
                PATH: draw(st.lists(st.sampled_from([0.5, 1.0, 1.7, 3.0]), min_size=1, max_size=2, unique=True)),
                "policy": draw(st.sampled_from([["fifo", "round-robin"], ["least-loaded"]])),
            },
        },
    }


def by_hand(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the scenario of each policy, with an entry for each speed of the first one."""
    options = {key: value for key, value in data["plan"].items() if key != "search"}
    first, second = data["fleet"]
    fleet = [first | {"name": f"first {speed}", "speed": speed} for speed in data["plan"]["search"][PATH]]
    return [
        data | {"policy": policy, "fleet": [*fleet, second], "plan": options}
        for policy in data["plan"]["search"]["policy"]
    ]


def planned(data: dict[str, Any]) -> PlanResult:
    with search_alone():
        return Planner(scenario_from_data(data), KNOWN, 1, None).run()


def best(result: PlanResult, certain: bool) -> float:
    costs = [f.cost_usd_per_h for f in result.fleets if f.meets.confidence or not certain]
    return min(costs, default=math.inf)


@settings(max_examples=8)
@given(small())
def test_a_search_gives_the_best_of_the_plans_written_by_hand(data: dict[str, Any]) -> None:
    found, others = planned(data), [planned(scenario) for scenario in by_hand(data)]
    for certain in (False, True):
        assert best(found, certain) == min(best(other, certain) for other in others)
    recommended = found.fleets[found.recommended] if found.fleets else None
    if recommended is not None:
        assert recommended.meets.confidence == any(f.meets.confidence for f in found.fleets)
        assert recommended.cost_usd_per_h == best(found, recommended.meets.confidence)
        for entry in recommended.configuration:
            assert entry.settings["policy"] in data["plan"]["search"]["policy"]
            assert (PATH in entry.settings) == entry.entry.startswith("first")
    bounds = [p.lower_bound.cost_usd_per_h for p in others if p.lower_bound.cost_usd_per_h is not None]
    assert found.lower_bound.cost_usd_per_h == (min(bounds) if bounds else None)
    assert found.searched["policy"] == data["plan"]["search"]["policy"] and "policy" not in found.held
    for choice in found.choices:
        if choice.fleet is not None and choice.lower_bound is not None:
            assert found.fleets[choice.fleet].cost_usd_per_h >= choice.lower_bound * (1 - 1e-9)


SERVING: dict[str, Any] = {
    "schema": 1,
    "name": "serving",
    "seed": 1,
    "models": {"chat": {"catalogue": "llama-3.1-70b", "weights": "fp8"}},
    "fleet": [
        {"device": "h100-sxm-80gb", "price": "3 USD/h"},
        {"device": "l40s", "price": "1.5 USD/h"},
    ],
    "workload": [
        {
            "name": "chat",
            "arrivals": {"process": "poisson", "rate": "1 /s"},
            "ops": [{"generate": {"model": "chat", "prompt": 500, "output": 20}}],
        }
    ],
    "policy": {"name": "least-loaded", "batch": {"kind": "continuous"}},
    "stop": {"time": "30 s"},
    "targets": ["ttft p95 <= 2 s"],
    "plan": {"loads": [], "max": 16},
}


def searching(**search: list[Any]) -> dict[str, Any]:
    return SERVING | {"plan": SERVING["plan"] | {"search": search}}


def test_values_that_do_not_divide_or_run_are_left_out_with_a_reason_and_never_simulated() -> None:
    found = planned(searching(**{"fleet[*].group.tensor": [2, 4, 7], "models.chat.weights": ["fp8", "nvfp4"]}))
    reasons = {tuple(e.values.items()): e.reason for e in found.excluded}
    assert any(("fleet[*].group.tensor", 7) in values for values in reasons)
    assert (("models.chat.weights", "nvfp4"),) in reasons
    assert found.simulated
    for fleet in found.simulated:
        for entry in fleet.configuration:
            assert entry.settings["models.chat.weights"] == "fp8"
            assert entry.group is not None and entry.group["tensor"] == entry.settings["fleet[*].group.tensor"] != 7
            assert entry.count % entry.group["tensor"] == 0


def test_of_equally_cheap_fleets_the_one_with_the_most_headroom_is_recommended() -> None:
    found = planned(searching(**{"policy.batch.tokens": [256, 2048], "fleet[0].group.tensor": [2]}))
    cheapest = [f for f in found.fleets if f.cost_usd_per_h == found.fleets[0].cost_usd_per_h and f.meets.confidence]
    assert {f.configuration[0].settings["policy.batch.tokens"] for f in cheapest} == {256, 2048}
    headroom = [min(t.headroom for t in f.targets if t.headroom is not None) for f in cheapest]
    assert headroom == sorted(headroom, reverse=True)
    assert found.fleets[found.recommended] == cheapest[0]


def test_of_fleets_with_the_same_devices_in_other_groups_the_one_with_the_most_headroom_is_recommended() -> None:
    path, rates = "fleet[*].group.tensor", (("24 /s", "ttft p95 <= 300 ms"), ("16 /s", "e2e p95 <= 1 s"))
    data = SERVING | {"fleet": SERVING["fleet"][:1]}
    for (rate, target), groups in product(rates, ([2, 4], [4, 2])):
        work = SERVING["workload"][0] | {"arrivals": {"process": "poisson", "rate": rate}}
        asked = data | {"targets": [target], "workload": [work]}
        plan = {"loads": [], "max": 8, "max_entries": 1}
        found = planned(asked | {"plan": plan | {"search": {path: groups, "policy.batch.tokens": [512, 2048]}}})
        alone = [
            fleet
            for tensor in groups
            for tokens in (512, 2048)
            for fleet in planned(
                asked
                | {"fleet": [data["fleet"][0] | {"group": {"tensor": tensor}}]}
                | {"policy": {"name": "least-loaded", "batch": {"kind": "continuous", "tokens": tokens}}}
                | {"plan": plan}
            ).fleets
            if fleet.meets.confidence
        ]
        cost = min(fleet.cost_usd_per_h for fleet in alone)
        room = [min(t.headroom for t in f.targets) for f in alone if f.cost_usd_per_h == cost]
        recommended = found.fleets[found.recommended]
        assert recommended.cost_usd_per_h == cost and len(room) > 2
        assert min(t.headroom for t in recommended.targets) == max(room), (target, groups)


def test_values_of_an_entry_that_a_rule_names_are_shared_by_the_fleet() -> None:
    rule = {"entry": "h100-sxm-80gb", "min": 4, "max": 8, "every": "5 s", "provisioning": "10 s"}
    rule |= {"up": {"utilisation": "60%"}, "down": {"utilisation": "20%", "for": "10 s"}}
    data = searching(**{"fleet[0].group.tensor": [2, 4]})
    data = data | {"autoscale": [rule], "fleet": [data["fleet"][0] | {"count": 4, "group": {"tensor": 4}}]}
    found = planned(data)
    assert [choice.values for choice in found.choices] == [{"fleet[0].group.tensor": n} for n in (2, 4)]


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"polcy.batch.tokens": [1]}, ["cannot choose 'polcy.batch.tokens'", "policy"]),
        ({"targets": [["ttft p99 <= 1 s"]]}, ["cannot choose 'targets'"]),
        ({"fleet[0].count": [1, 2]}, ["does not search 'fleet[0].count'", "plan.max"]),
        ({"fleet[7].speed": [1]}, ["there is no 'fleet[7]'"]),
        ({"policy.batch.tokens": []}, ["no values"]),
        ({"policy.batch.tokens": [1, 1]}, ["given twice"]),
        ({"policy.batch.tokens": ["many"]}, ["policy.batch.tokens", "many"]),
        ({"policy.batch": [{"kind": "continuous"}], "policy.batch.tokens": [512]}, ["set the same value"]),
        ({"fleet[*].speed": [1.5], "fleet[0].speed": [2]}, ["set the same value"]),
        ({"policy.batch.tokns": [512]}, ["plan.search.policy.batch.tokns: unknown key 'tokns'", "'tokens'"]),
        ({"fleet[*].grup.tensor": [1]}, ["plan.search.fleet[*].grup.tensor: unknown key 'grup'", "'group'"]),
        ({"fleet[0].speed": [1 + i / 2000 for i in range(1001)]}, ["1,002 alternatives"]),
    ],
)
def test_a_search_that_makes_no_sense_is_an_error_that_names_it(search: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(InputError) as error:
        planned(searching(**search))
    assert all(part in str(error.value) for part in said), str(error.value)


def test_where_no_value_runs_the_first_reason_is_the_error() -> None:
    with pytest.raises(InputError, match="nvfp4"):
        planned(searching(**{"models.chat.weights": ["nvfp4"]}))


def test_a_fleet_has_its_cost_by_output_tokens_and_the_objective_may_be_given_beside_the_scenario() -> None:
    data = SERVING | {"stop": {"time": "60 s"}}
    found = plan(scenario_from_data(data), objective="power", workers=1)
    assert found.objective == "power"
    powers = [fleet.power_w for fleet in found.fleets]
    assert powers == sorted(powers)
    for fleet in found.fleets:
        # 20 tokens of one request a second; the run is a minute of about 60 requests.
        assert fleet.usd_per_million_output_tokens == pytest.approx(fleet.cost_usd_per_h / 3600 / 20 * 1e6, rel=0.35)
