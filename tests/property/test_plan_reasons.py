"""Every reason that a plan states is compared with the simulation of all fleets of a small space."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import search_alone

from windtunnel.core.errors import InputError
from windtunnel.core.results.candidates import Conflict, EntryReason
from windtunnel.core.results.plan import PlanResult
from windtunnel.planning import looks
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.planner import Planner
from windtunnel.planning.search import GIVE_UP
from windtunnel.planning.simulate import Case, simulate
from windtunnel.scenario.read import scenario_from_data
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()
SLACK = 1 + 1e-9
Counts = tuple[int, ...]
Truth = Mapping[Counts, Evaluation | None]
"""What the simulation of each fleet gives; None where a job needs more devices of one entry than there are."""


@st.composite
def tight(draw: st.DrawFn) -> dict[str, Any]:
    """Two or three candidates, few of each, with targets of which some or their sum are often out of reach."""
    service = draw(st.sampled_from(["exponential", "deterministic"]))
    ops = [{"service": {"distribution": service, "mean": "8 ms"}}]
    time = draw(st.sampled_from(["latency mean", "latency p50", "latency p95", "latency p99"]))
    targets = [f"{time} <= {draw(st.sampled_from([3, 6, 9, 14, 40]))} ms"]
    for other in ("cost <= {} USD/h", "power average <= {}0 W", "throughput >= {}5 /s", "waiting mean <= {} ms"):
        if draw(st.integers(0, 2)) == 0:
            targets.append(other.format(draw(st.integers(1, 20))))
    entries = [
        {
            "device": "server",
            "name": f"s{i}",
            "speed": draw(st.sampled_from([0.5, 1.0, 1.7, 4.0])),
            "price": f"{draw(st.integers(1, 9))} USD/h",
            "power": {"idle": f"{draw(st.sampled_from([10, 60]))} W", "max": "100 W"},
        }
        for i in range(draw(st.integers(2, 3)))
    ]
    rate = draw(st.sampled_from([60, 200, 500]))
    process = draw(st.sampled_from(["poisson", "deterministic"]))
    return {
        "schema": 1,
        "name": "tight",
        "seed": draw(st.integers(0, 1000)),
        "fleet": entries,
        "workload": [{"name": "calls", "arrivals": {"process": process, "rate": f"{rate} /s"}, "ops": ops}],
        "policy": draw(st.sampled_from(["fifo", "shortest-expected-completion"])),
        "stop": draw(st.sampled_from([{"jobs": 120}, {"time": "1 s"}])),
        "targets": targets,
        "plan": {
            "max": draw(st.integers(1, 3)),
            "max_entries": draw(st.integers(1, 2)),
            "replications": 2,
            "loads": [],
            "objective": draw(st.sampled_from(["cost", "cost", "power"])),
        },
    }


def with_users(data: dict[str, Any], draw: st.DrawFn) -> dict[str, Any]:
    """Replace the arrivals by users."""
    users = {"process": "closed", "users": draw(st.integers(3, 12)), "think": {"mean": "40 ms"}}
    return data | {"workload": [data["workload"][0] | {"arrivals": users}]}


def with_patience(data: dict[str, Any], draw: st.DrawFn) -> dict[str, Any]:
    """Let jobs give up waiting."""
    works = [w | {"patience": draw(st.sampled_from(["5 ms", "30 ms"]))} for w in data["workload"]]
    return data | {"workload": works, "targets": [*data["targets"], "completed >= 80 %"]}


def with_gangs(data: dict[str, Any], draw: st.DrawFn) -> dict[str, Any]:
    """Add jobs of two or three devices, mostly with enough devices for them."""
    data["plan"]["max"] = draw(st.sampled_from([data["plan"]["max"], 3, 3]))
    arrivals = {"process": "poisson", "rate": "20 /s"}
    gang = data["workload"][0] | {"name": "gangs", "gang": draw(st.integers(2, 3)), "arrivals": arrivals}
    return data | {"workload": [data["workload"][0], gang], "policy": "fifo"}


def with_scaling(data: dict[str, Any], draw: st.DrawFn) -> dict[str, Any]:
    """Scale the first entry."""
    rule = {"entry": "s0", "min": 1, "max": data["plan"]["max"], "every": "50 ms", "provisioning": "100 ms"}
    rule |= {"up": {"utilisation": "60%"}, "down": {"utilisation": "20%", "for": "200 ms"}}
    first, *others = data["fleet"]
    return data | {"fleet": [first | {"count": 1}, *others], "autoscale": [rule]}


FEATURES: Sequence[Callable[[dict[str, Any], Any], dict[str, Any]]] = (with_users, with_patience, with_gangs, with_scaling)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _search_alone() -> Iterator[None]:
    # What a reason says is compared with one look at each fleet.
    with search_alone(), patch.object(looks, "MOST_RUNS", 0):
        yield


@settings(max_examples=16)
@given(tight())
def test_each_reason_of_a_plan_holds_for_all_fleets(data: dict[str, Any]) -> None:
    check_plan(data)


def stated(rate: int, targets: list[str], fast: int = 3, together: int = 1, **plan: Any) -> dict[str, Any]:
    """Jobs of exactly 8 ms at a steady rate, ``together`` at a time, on a slow entry and one for ``fast`` USD/h."""
    power = {"idle": "10 W", "max": "100 W"}
    return {
        "schema": 1,
        "name": "stated",
        "seed": 1,
        "fleet": [
            {"device": "server", "name": "slow", "price": "1 USD/h", "power": power},
            {"device": "server", "name": "fast", "speed": 4, "price": f"{fast} USD/h", "power": power},
        ],
        "workload": [
            {
                "name": f"calls{i}",
                "arrivals": {"process": "deterministic", "rate": f"{rate} /s"},
                "ops": [{"service": {"distribution": "deterministic", "mean": "8 ms"}}],
            }
            for i in range(together)
        ],
        "stop": {"jobs": 120},
        "targets": targets,
        "plan": {"max": 3, "replications": 2, "loads": []} | plan,
    }


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        # On a slow device a job takes 8 ms.
        (stated(100, ["latency p99 <= 3 ms"]), ["too_slow"]),
        # 500 jobs of 8 ms a second are the work of four.
        (stated(500, ["latency p99 <= 12 ms"]), ["too_few"]),
        # Two fast ones would do and may be had, but their rent is not allowed: the false reason of the issue.
        (stated(900, ["latency p99 <= 9 ms", "cost <= 5 USD/h"], max=8), ["over_rent", "over_rent", "bound"]),
        # Of four jobs at once the last waits 6 ms on one fast device, and four slow ones are needed.
        (stated(10, ["waiting p99 <= 7 ms"], fast=1, together=4), ["not_searched"]),
        (stated(10, ["waiting p99 <= 1 us"], together=4), ["largest_fails", "largest_fails"]),
        # Either can be met, but not both.
        (stated(100, ["latency p99 <= 3 ms", "cost <= 2 USD/h"]), ["too_slow", "over_rent", "bound"]),
        (stated(100, ["latency p99 <= 3 ms", "power average <= 9 W"]), ["too_slow", "bound"]),
        (stated(600, ["waiting p99 <= 1 us", "cost <= 4 USD/h"]), ["cheapest"]),
        # One device makes the second job wait, and two draw too much.
        (stated(10, ["waiting p99 <= 1 us", "power average <= 15 W"], together=2), ["simulated", "simulated"]),
    ],
)
def test_each_kind_of_reason_is_stated_where_it_holds(data: dict[str, Any], kinds: list[str]) -> None:
    found = check_plan(data)
    missing = Counter(kinds) - Counter(found)
    assert not missing, found


@pytest.mark.parametrize("feature", FEATURES)
@settings(max_examples=4)
@given(data=tight(), draws=st.data())
def test_each_reason_holds_where_a_fleet_changes_its_own_work(
    feature: Callable[[dict[str, Any], Any], dict[str, Any]], data: dict[str, Any], draws: st.DataObject
) -> None:
    check_plan(feature(data, draws.draw))


def check_plan(data: dict[str, Any]) -> list[str]:
    """Check one plan against all fleets of its space; return the kinds of the reasons that it states."""
    scenario = scenario_from_data(data)
    one = Planner(scenario, KNOWN, 1, None)
    found = one.run()
    options, entries = data["plan"], len(data["fleet"])
    setting, simulator = one.candidates.simulator.setting, one.candidates.simulator
    space = allowed((options["max"],) * entries, options.get("max_entries", 2))
    truth = {counts: simulator.evaluations.get(Case(counts)) or judge(setting, counts) for counts in space}
    check_answer(found, truth)
    kinds = []
    for i, entry in enumerate(found.entries):
        if entry.reason is not None:
            check_entry(entry.reason, i, data, found, truth)
            kinds.append(entry.reason.kind)
        elif found.simulated:
            assert any(by_value(e) for c, e in truth.items() if sum(c) == c[i]), "no reason, and no fleet either"
    if not found.fleets:
        assert found.explanation.conflicts or found.simulated
    for conflict in found.explanation.conflicts:
        if conflict.kind == "cheapest":
            texts = [text for text in data["targets"] if not text.startswith("cost")]
            free = replace(setting, scenario=scenario.changed(targets=texts))
            check_conflict(conflict, data, found, {counts: judge(free, counts) for counts in space})
        else:
            check_conflict(conflict, data, found, truth)
        if conflict.kind == "bound" and not conflict.by_counts:
            more = [tuple(6 * (i == j) for i in range(entries)) for j in range(entries)] + [(5,) * entries]
            check_conflict(conflict, data, found, {counts: judge(setting, counts) for counts in more})
        kinds.append(conflict.kind)
    return kinds


def allowed(most: Counts, entries: int) -> list[Counts]:
    return [c for c in product(*(range(m + 1) for m in most)) if 0 < sum(n > 0 for n in c) <= entries]


def judge(setting: Any, counts: Counts) -> Evaluation | None:
    try:
        return simulate(setting, Case(counts))
    except InputError:  # no entry has as many devices as a job occupies
        return None


def by_value(evaluation: Evaluation | None) -> bool:
    return evaluation is not None and evaluation.meets.value


def check_answer(found: PlanResult, truth: Truth) -> None:
    """The first fleet is the best by value, and the recommended one the best with confidence."""
    assert found.search.proof == found.search.confidence_proof == "exhaustive"
    objective = found.objective
    met = {c: e for c, e in truth.items() if e is not None and e.meets.value}
    certain = [e for e in met.values() if e.meets.confidence]
    assert bool(met) == bool(found.fleets)
    if not met:
        assert found.recommended == 0
        return
    values = [e.objective(objective) for e in met.values()]
    name = {"cost": "cost_usd_per_h", "power": "power_w"}[objective]
    assert getattr(found.fleets[0], name) == pytest.approx(min(values), rel=1e-12)
    assert found.lower_bound.objective <= min(values) * SLACK
    recommended = found.fleets[found.recommended]
    assert recommended.meets.confidence == bool(certain)
    if certain:
        least = min(e.objective(objective) for e in certain)
        assert getattr(recommended, name) == pytest.approx(least, rel=1e-12)
        assert not any(fleet.meets.confidence for fleet in found.fleets[: found.recommended])
    else:
        assert found.recommended == 0
    for fleet in found.fleets:
        counts = tuple(fleet.entries.get(entry.name, 0) for entry in found.entries)
        assert fleet.meets == met[counts].meets
        assert [(c.entry, c.count) for c in fleet.configuration] == list(fleet.entries.items())
    texts = {fleet.text: fleet for fleet in found.simulated}
    if found.explanation.next_cheapest is not None and found.explanation.next_cheapest.fleet in texts:
        below, best = texts[found.explanation.next_cheapest.fleet].meets, found.fleets[found.recommended].meets
        assert not (below.confidence if best.confidence else below.value)
    assert (found.explanation.price_of_confidence is None) == found.fleets[0].meets.confidence


def check_entry(reason: EntryReason, entry: int, data: dict[str, Any], found: PlanResult, truth: Truth) -> None:
    """Check every clause of the reason of one entry."""
    alone = {counts[entry]: e for counts, e in truth.items() if sum(counts) == counts[entry]}
    price = float(data["fleet"][entry]["price"].split()[0])
    rent = min((t.limit for t in reason.targets if t.text.startswith("cost")), default=math.inf)
    assert reason.text and reason.count != -1
    if reason.kind != "not_searched":
        assert not any(by_value(e) for e in alone.values()), reason
    if reason.kind == "too_slow":
        assert reason.count is None
        for e in alone.values():
            if e is not None and e.keeps_up:
                assert any(e.target(t.text).verdict == "missed" for t in reason.targets), reason
                for t in reason.targets:
                    value = e.target(t.text).value
                    assert t.least is None or value is None or value >= t.least / SLACK > t.limit / SLACK, reason
    elif reason.kind == "too_few":
        assert reason.count > reason.allowed == data["plan"]["max"]
    elif reason.kind == "over_rent":
        assert reason.targets[0].least == pytest.approx(reason.count * price) and reason.targets[0].least > rent
        assert reason.count <= data["plan"]["max"]
        assert not any(by_value(e) for n, e in alone.items() if n < reason.count)
    elif reason.kind == "largest_fails":
        assert not by_value(alone[reason.count]) and reason.violations
        most = data["plan"]["max"]
        assert reason.count == most == reason.allowed if reason.allowed else (reason.count + 1) * price > rent
    elif reason.kind == "not_searched":
        assert reason.count == 0 or not by_value(alone[reason.count])
        name = found.entries[entry].name
        simulated = [f.entries[name] for f in [*found.simulated, *found.stopped] if set(f.entries) == {name}]
        assert reason.count >= max(simulated, default=0), "a larger fleet of it alone was simulated"
        name = {"cost": "cost_usd_per_h", "power": "power_w"}[found.objective]
        assert reason.objective >= GIVE_UP * getattr(found.fleets[0], name) / SLACK
        more = alone.get(reason.count + 1)
        assert more is None or more.objective(found.objective) >= reason.objective / SLACK
    else:
        raise AssertionError(f"unexpected: {reason}")


def check_conflict(conflict: Conflict, data: dict[str, Any], found: PlanResult, truth: Truth) -> None:
    """Check every clause of the reason why no fleet meets the targets."""
    *others, last = conflict.targets or [None]

    def meets(evaluation: Evaluation, targets: Sequence[Any]) -> bool:
        return all(evaluation.target(t.text).verdict != "missed" for t in targets)

    able = {c: e for c, e in truth.items() if e is not None and e.keeps_up}
    if conflict.kind == "bound":
        assert not any(meets(e, conflict.targets) for e in able.values()), conflict
        if last is not None and last.least is not None:
            assert last.least > last.limit
            values = [e.target(last.text).value for e in able.values() if meets(e, others)]
            assert all(v is None or v >= last.least / SLACK for v in values), (conflict, values)
        return
    counts = tuple(conflict.entries.get(entry["name"], 0) for entry in data["fleet"])
    if conflict.kind == "simulated":
        assert meets(able[counts], others) and not meets(able[counts], [last])
        return
    assert conflict.kind == "cheapest" and meets(able[counts], others)
    assert last.least == pytest.approx(able[counts].cost_usd_per_h) and last.least > last.limit
    assert conflict.proof == "exhaustive"
    assert min(e.cost_usd_per_h for e in able.values() if meets(e, others)) == pytest.approx(last.least)
