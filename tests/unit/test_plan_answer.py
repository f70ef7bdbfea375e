"""What a plan says beside its fleets: rates, lengths, prices, assumptions and the load curve; sessions and tiers."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import search_alone
from tests.unit.planning import CHAT, KNOWN

from windtunnel.app.plan import plan
from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import Meets, PlannedFleet, PlanResult, TraceWindow
from windtunnel.core.results.run import TokenEstimate
from windtunnel.core.results.target import ModelInterval
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.planning.bounds import Counts
from windtunnel.planning.explanation import sentences
from windtunnel.planning.load_curve import LOADS, fleet_load_curve
from windtunnel.planning.simulate import Case, variant
from windtunnel.report import plan as report
from windtunnel.report import plan_answer, plan_page, plan_sensitivity, plan_targets, plan_terms, targets
from windtunnel.report.numbers import share
from windtunnel.scenario.changes import apply_change
from windtunnel.scenario.read import check_scenario, scenario_from_data
from windtunnel.simulation.redrawn import replication_seed
from windtunnel.simulation.run import prepare_run, simulate
from windtunnel_models.catalogue import device_model


def searched(objective: str | None = None, **keys: Any) -> PlanResult:
    """A plan without what its explanation simulates beside the search."""
    with search_alone():
        return planned(objective, **keys)


def planned(objective: str | None = None, **keys: Any) -> PlanResult:
    return plan(scenario_from_data({**CHAT, **keys}), workers=1, catalogue=KNOWN, objective=objective)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> PlanResult:
    return planned()


def test_the_rates_are_those_of_the_fleets_and_the_frontier_has_what_nothing_beats(found: PlanResult) -> None:
    assert found.rates and {p.load for p in found.rates} == {0.5, 1.0, 2.0, 4.0}
    for point in (p for p in found.rates if p.searched):
        fleet = next(f for f in found.simulated if f.text == point.fleet)
        devices = sum(fleet.devices.values())
        assert point.per_device == fleet.throughput_per_s_per_device == pytest.approx(6 * 30 / devices, rel=0.2)
    for point in found.rates:
        better = [o for o in found.rates if o.per_device >= point.per_device and o.per_user >= point.per_user]
        assert point.on_frontier == all(
            (o.per_device, o.per_user) == (point.per_device, point.per_user) for o in better
        )
    # More load on a fleet is more per device and less per user.
    of_load = sorted((p for p in found.rates if not p.searched), key=lambda p: p.load)
    assert [p.per_device for p in of_load] == sorted(p.per_device for p in of_load)
    assert of_load[0].per_user > of_load[-1].per_user


def test_the_objective_throughput_counts_devices_and_its_bound_is_from_above() -> None:
    best = searched("throughput", plan={"max": 2, "loads": []}, targets=["ttft p95 <= 1 s"])
    rates = [f.throughput_per_s_per_device for f in best.fleets]
    assert rates == sorted(rates, reverse=True) and sum(best.fleets[0].devices.values()) == 1
    assert best.lower_bound.objective_unit == "tokens/s per device"
    assert best.lower_bound.objective is not None and best.lower_bound.objective >= rates[0] * (1 - 1e-9)
    assert best.gap == pytest.approx(1 - rates[0] / best.lower_bound.objective, abs=1e-6)
    # Of fleets that are as productive the cheapest is first.
    assert best.fleets[0].devices == {"l40s": 1}
    assert "tokens/s per device" in report.text(best) and "can be higher" in report.text(best)


def test_a_page_explains_the_names_of_parameters_and_the_knee_where_it_shows_them(found: PlanResult) -> None:
    page, text = html.unescape(plan_page.render(found)), " ".join(report.text(found).split())
    ranked = found.explanation.assumptions
    assert ranked is not None and ranked.inputs
    for row in ranked.inputs:
        assert len(row.meaning.split()) > 2 and row.meaning in page
        assert f"{row.parameter}: {row.meaning}" in text
    assert "knee, the load from which the curve rises steeply" in page or "no knee, a load from which it rises" in page
    assert "rises steeply from a load" in text or "no knee (a load from which it rises steeply)" in text
    for words in (page, text):
        assert not re.search(r"redraw[in]|keep up|turns up|held:", words)


def test_users_are_served_faster_by_faster_devices_and_the_bound_holds_for_them() -> None:
    users = {
        "name": "chat",
        "arrivals": {"process": "closed", "users": 8, "think": {"mean": "0.1 s"}},
        "ops": CHAT["workload"][0]["ops"],
    }
    keys = {"workload": [users], "targets": ["ttft p95 <= 5 s"], "plan": {"max": 1, "max_entries": 1, "loads": []}}
    best = searched("throughput", **keys)
    assert best.fleets[0].devices == {"h100-sxm-80gb": 1}, "the faster of two single devices produces more"
    assert best.lower_bound.objective is not None
    assert all(f.throughput_per_s_per_device <= best.lower_bound.objective for f in best.simulated)


def test_the_objective_of_the_command_line_holds_for_searched_values_too() -> None:
    searched = CHAT | {"plan": {"max": 1, "search": {"policy.batch.tokens": [512, 1024]}}}
    with pytest.raises(InputError, match="the objective carbon needs the carbon intensity of the site"):
        plan(scenario_from_data(searched), objective="carbon", workers=1)


def test_a_bound_on_the_time_per_token_knows_that_a_step_may_give_several() -> None:
    """With speculation a gap is a whole step, and the mean over the tokens of a request is less."""
    models = {"chat": {"catalogue": "llama-3.1-8b", "speculation": {"draft": "ngram", "tokens": 3, "acceptance": 0.9}}}
    demand = minimum_demand(prepare_run(scenario_from_data(CHAT | {"models": models}), KNOWN))
    assert (demand.gap_s > 0).all()
    assert demand.token_s == pytest.approx(demand.gap_s / 4)
    alone = minimum_demand(prepare_run(scenario_from_data(CHAT), KNOWN))
    assert (alone.token_s == alone.gap_s).all()


def test_a_redrawn_run_is_as_slow_as_the_run_itself() -> None:
    slow = prepare_run(scenario_from_data(CHAT), KNOWN).with_step_times({0: 2.0})
    assert slow.redrawn(7).step_factors == {0: 2.0}


def test_carbon_needs_an_intensity_and_orders_fleets_by_it() -> None:
    with pytest.raises(InputError, match="carbon intensity"):
        planned("carbon")
    best = searched("carbon", site={"carbon": "300 g/kWh"}, plan={"max": 1, "loads": []})
    carbon = [f.carbon_kg_per_h for f in best.fleets]
    assert carbon == sorted(carbon) and best.lower_bound.objective <= carbon[0]  # type: ignore[operator, type-var]


def test_longer_prompts_and_outputs_are_simulated_as_such(found: PlanResult) -> None:
    effects = {effect.change: effect for effect in found.explanation.changes}
    longer = effects["Outputs 20% longer"]
    assert (longer.prompt, longer.output, longer.load) == (1.0, 1.2, 1.0)
    scenario = scenario_from_data(CHAT)
    one, _ = simulate(variant(scenario, Case((1, 0), prompt=1.2, output=1.2)), 1, "process", KNOWN)
    stated = json.loads(json.dumps(CHAT))
    stated["workload"][0]["ops"][0]["generate"] |= {"prompt": 360, "output": 36}
    stated["fleet"] = stated["fleet"][:1]
    same, _ = simulate(scenario_from_data(stated), 1, "process", KNOWN)
    assert one.serving == same.serving and one.latency_s == same.latency_s


def test_a_price_beyond_the_break_even_changes_the_answer_and_one_before_it_does_not(found: PlanResult) -> None:
    assert found.fleets[found.recommended].devices == {"l40s": 1}
    effect = next(e for e in found.explanation.prices if e.entry == "l40s")
    assert effect.break_even > effect.price and effect.fleet == "1 × h100-sxm-80gb"
    for factor, cheapest in ((0.99, "l40s"), (1.01, "h100-sxm-80gb")):
        fleet = [CHAT["fleet"][0], {**CHAT["fleet"][1], "price": f"{effect.break_even * factor} USD/h"}]
        again = searched(fleet=fleet, plan={"max": 1, "max_entries": 1, "loads": []}, targets=["ttft p95 <= 1 s"])
        assert set(again.fleets[0].devices) == {cheapest}
    text, page = " ".join(report.text(found).split()), html.unescape(plan_page.render(found))
    assert found.explanation.prices and "another simulated fleet is cheaper" in text
    assert all("Of those that cost more than the best one only a part was simulated" in words for words in (text, page))


def test_assumed_inputs_are_ranked_by_what_their_ranges_do_to_a_step(found: PlanResult) -> None:
    ranked = found.explanation.assumptions
    assert ranked is not None and ranked.inputs and ranked.simulations == found.replications * 2 * len(ranked.inputs)
    moved = [row.step for row in ranked.inputs]
    assert moved == sorted(moved, reverse=True) and moved[-1] >= ranked.others_step
    # Which values at the ends tell an influence from chance is said.
    within = replace(ranked, low=0.0, high=1e9)
    explained = {
        "all of these values are within the confidence interval": within,
        "it has no confidence interval that would tell": replace(ranked, low=None),
        "those of all inputs are beyond the confidence interval": replace(ranked, low=1e9, high=1e9),
    }
    for words, assumed in explained.items():
        said = replace(found, explanation=replace(found.explanation, assumptions=assumed))
        assert words in str(plan_sensitivity.assumptions_summary(said))
    # The figures are those of a device with that value and no other change.
    first = next(row for row in ranked.inputs if row.value_low is not None)
    sourced = device_model("l40s", KNOWN).values[first.parameter]
    other = KNOWN.replaced({"l40s": {first.parameter: float(sourced.low or 0.0)}})
    changed, _ = simulate(variant(scenario_from_data(CHAT), Case((0, 1))), 1, "auto", other)
    value = next(t.value for t in changed.targets if t.text == ranked.target)
    assert value == first.value_low
    assert device_model("l40s", KNOWN).values[first.parameter] == sourced, "the catalogue itself is as it was"


def test_the_next_cheaper_fleet_names_what_it_breaks_and_by_how_much() -> None:
    tight = searched(targets=["ttft p95 <= 100 ms"], plan={"max": 1, "max_entries": 1, "loads": []})
    below = tight.explanation.next_cheapest
    assert below is not None and below.cost_usd_per_h < tight.fleets[0].cost_usd_per_h
    (target,) = below.targets
    assert target.value is not None and target.value > target.limit
    assert re.fullmatch(r"[\d.]+ times the limit|[\d.]+% beyond the limit", plan_targets.excess(target))
    page = plan_page.render(tight)
    assert "What cheaper fleets break" in page and plan_targets.excess(target) in page
    # Of one device of each kind, the only cheaper fleet is the nearest in cost, and that which misses by least.
    text = " ".join(report.text(tight).split())
    assert tight.explanation.nearest_miss == below and "Nearest in cost, and misses by least" in page
    assert f"{below.fleet}, at {below.objective_text}, is nearest in cost to this one, and misses by least. It" in text
    other = replace(below, fleet="2 × l40s")
    both = " ".join(sentences(replace(tight, explanation=replace(tight.explanation, nearest_miss=other))))
    assert f"{below.fleet}, at {below.objective_text}, is nearest in cost to this one. It fails:" in both
    assert f"2 × l40s, at {other.objective_text}, is the one that misses by least. It fails:" in both


def test_the_page_begins_with_one_sentence_that_has_the_fleet_the_price_and_the_certainty(found: PlanResult) -> None:
    said = plan_answer.recommendation(found)
    assert said == "Rent 1 × l40s, for 1,132 USD a month: it meets both targets with 95% confidence"
    page = plan_page.render(found)
    assert page.index(said) < page.index("Cost a month") < page.index("Average power") < page.index("Binding target")
    headings = re.findall(r"<h2 id=\"(\w+)\"", page)
    order = [
        *("verdict", "figures", "error", "next", "moves", "curve"),
        *("fleets", "rates", "front", "choices", "deploy", "assumptions", "search", "simulated"),
    ]
    # No fleet is cheaper than this one, and no value is searched.
    assert headings == [name for name in order if name not in ("next", "choices")]
    assert plan_page.charts(found)["rates"]["names"]


def test_the_load_curve_of_a_scenarios_own_fleet_needs_no_plan_and_goes_on_to_the_first_miss() -> None:
    alone = {key: value for key, value in CHAT.items() if key != "plan"}
    fleet = [{key: value for key, value in CHAT["fleet"][1].items() if key != "price"}]
    curve = fleet_load_curve(scenario_from_data({**alone, "fleet": fleet, "stop": {"jobs": 150}}), catalogue=KNOWN)
    assert [p.load for p in curve.points][: len(LOADS)] == list(LOADS)
    *met, last = curve.points
    assert all(p.meets.value for p in met) and curve.most == met[-1].load
    assert not last.meets.value or len(curve.points) == len(LOADS) + 8
    stated = fleet_load_curve(scenario_from_data({**alone, "fleet": fleet}), [0.5, 1.0], catalogue=KNOWN)
    assert [p.load for p in stated.points] == [0.5, 1.0] and stated.knee is None


@pytest.mark.parametrize("tiers", [False, True], ids=["sessions", "cache tiers"])
def test_plans_take_sessions_and_tiers_of_prefix_caches_and_agree_with_runs(tiers: bool) -> None:
    cache: dict[str, Any] = {"block": 16, "blocks": 200}
    if tiers:
        cache["host"] = {"size": "20 GB", "bandwidth": "20 GB/s"}
    session = {"turns": 3, "think": {"mean": "2 s"}, "new_tokens": 200}
    workload = {**CHAT["workload"][0], "arrivals": {"process": "poisson", "rate": "3 /s"}, "session": session}
    policy = {"name": "least-loaded", "batch": {**CHAT["policy"]["batch"], "prefix_cache": cache}}
    best = planned(
        workload=[workload],
        policy=policy,
        plan={"max": 1, "max_entries": 1, "loads": [1], "replications": 2},
        stop={"jobs": 120},
    )
    chosen = best.fleets[best.recommended]
    counts: Counts = (chosen.devices.get("h100-sxm-80gb", 0), chosen.devices.get("l40s", 0))
    scenario = scenario_from_data({**CHAT, "workload": [workload], "policy": policy, "stop": {"jobs": 120}})
    seeds = (scenario.seed, replication_seed(scenario.seed, 1))
    runs = [simulate(variant(scenario.reseeded(seed), Case(counts)), 1, "process", KNOWN)[0] for seed in seeds]
    for run in runs:
        assert run.serving is not None and run.serving.prefix_hit_rate and bool(run.serving.prefix_tiers) == tiers
    for i, target in enumerate(chosen.targets):
        assert target.value == pytest.approx(np.mean([run.targets[i].value for run in runs]))
    assert best.lower_bound.cost_usd_per_h is not None and best.lower_bound.cost_usd_per_h <= chosen.cost_usd_per_h
    assert any(effect.change == "Prompts 20% longer" for effect in best.explanation.changes)


def test_a_change_that_the_scenario_does_not_allow_is_named_with_its_reason(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 200 * i, "input_length": 1000, "output_length": 20, "hash_ids": [0, i + 1]} for i in range(250)
    ]
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    generate = {"generate": {"model": "chat", "prompt": "$input_length", "output": "$output_length"}}
    workload = {
        "name": "chat",
        "arrivals": {"process": "trace", "file": str(file), "format": "mooncake"},
        "ops": [generate],
    }
    policy = {"name": "least-loaded", "batch": {**CHAT["policy"]["batch"], "prefix_cache": {"block": 512}}}
    keys = {
        **CHAT,
        "workload": [workload],
        "policy": policy,
        "plan": {"max": 1, "max_entries": 1, "loads": [], "replications": 2},
    }
    del keys["stop"]
    best = plan(scenario_from_data(keys, str(tmp_path / "chat.yaml")), workers=1, catalogue=KNOWN)
    assert any(note.startswith("Prompts 20% longer: not known, because") for note in best.notes)
    changes = [effect.change for effect in best.explanation.changes]
    assert "Outputs 20% longer" in changes and "Prompts 20% longer" not in changes


def test_the_error_of_the_models_is_that_of_a_run_of_the_recommended_fleet_with_the_engines_first_token(
    found: PlanResult,
) -> None:
    best, intervals = found.fleets[found.recommended], found.explanation.model_intervals
    counts = tuple(best.entries.get(name, 0) for name in ("h100-sxm-80gb", "l40s"))
    replications = found.replications if best.judged_by == "replications" else 1
    run, _ = simulate(variant(scenario_from_data(CHAT), Case(counts)), replications, "auto", KNOWN)
    assert run.serving is not None and best.judged_by in ("run", "replications")
    assert [i.text for i in intervals] == CHAT["targets"]
    for interval, times in zip(intervals, (run.serving.ttft_s, run.serving.tpot_s), strict=True):
        assert times is not None
        told = times.p95
        assert isinstance(told, TokenEstimate)
        # The targets are in s.
        assert (interval.value, interval.low, interval.high) == (told.value, told.model_low, told.model_high)
    ttft, tpot = intervals
    assert ttft.high is not None and ttft.value is not None and tpot.high is not None and tpot.value is not None
    # The row of the change and the interval are of the same steps, the engine's own time included.
    (slower,) = [c for c in found.explanation.changes if c.device is not None]
    assert slower.binding is not None and slower.binding.text == tpot.text
    assert slower.binding.value == pytest.approx(tpot.high, rel=1e-9)
    assert ttft.high / ttft.value > 1.5 * tpot.high / tpot.value, "the first token is less certain than a step"
    # A run gives its targets the same ends, so that the state of a target is one thing in both.
    of_run = [(t.model_low, t.model_high, t.may_be_missed) for t in run.targets]
    assert of_run == [(i.low, i.high, not i.within) for i in intervals]
    said = " ".join(plan_answer.uncertainty(found))
    assert "that of an engine's time to the first token (90%, judged by the value), TTFT p95 is" in said
    first = "measured times to the first token are within a factor of 2.97 of those of the models"
    median = "the median of this engine, or of all where it has few measurements, is 1.47 times those."
    assert f"{first}; {median}" in said
    # The error of power stands beside that of time; where power is the objective, what follows from it too.
    assert "are within a factor of 1.5 (assumed: its power was not measured)" in " ".join(
        plan_answer.uncertainty(found)
    )
    assert "so power is known" not in " ".join(plan_answer.uncertainty(found))
    assert "so power is known to such a factor" in " ".join(plan_answer.uncertainty(replace(found, objective="power")))
    assert "power error" in dict(report.bounds(replace(found, objective="power")))
    assert "power error" not in dict(report.bounds(found))
    assert run.power_error and {error.factor for error in run.power_error} == {1.5}
    beyond = replace(ttft, limit=0.9 * ttft.high)
    missed = replace(found, explanation=replace(found.explanation, model_intervals=[beyond, tpot]))
    assert "so TTFT p95 may be missed" in " ".join(plan_answer.uncertainty(missed))
    # A measured time that is longer than the model's by the factor of the limit is just within it.
    assert not plan_answer.before_renting(found)
    factors = re.findall(r"at most ([\d.]+) times", plan_answer.before_renting(missed))
    value, certain = map(float, factors)
    (target,) = (t for t in best.targets if t.text == ttft.text)
    for factor, end in ((value, ttft.value), (certain, target.worse_end)):
        assert factor == pytest.approx(beyond.limit / end, abs=0.01) and factor * end <= beyond.limit
    said = "with 95% confidence; within the error of the models TTFT p95 may be missed ("
    rented = said.replace(";", " if times are as modelled;")
    assert said in plan_answer.verdict(missed) and rented in plan_answer.recommendation(missed)
    page = re.sub(r"</?span[^>]*>", "", plan_page.render(missed))
    assert said in " ".join(report.text(missed).split()) and html.escape(rented) in page
    assert "may be missed" not in plan_answer.verdict(found) + plan_answer.recommendation(found)
    # The page says so in the colour and the words of the page of a run.
    assert (plan_answer.status(found), plan_answer.status(missed)) == ("met", "may-be-missed")
    assert '<section id="answer" class="answer met"' in plan_page.render(found)
    page = plan_page.render(missed)
    assert '<section id="answer" class="answer may-be-missed"' in page and '<li class="may-be-missed">' in page
    line, of_tpot = (plan_targets.target_line_of(target, missed) for target in best.targets)
    assert (line.status, line.label, of_tpot.label) == ("may-be-missed", "met (may be missed)", "met")
    state = replace(run.targets[0], limit=beyond.limit)
    assert targets.target_line(state).label == line.label
    assert targets.verdict([state]).endswith("; within the error of the models it may be missed")
    sentence = next(s for s in found.explanation.sentences if s.startswith("Error of the models"))
    assert "all within their limits" in sentence


def test_with_a_spare_the_error_of_the_models_is_that_of_the_worst_fleet_that_is_left() -> None:
    spare = searched(fleet=[CHAT["fleet"][1]], plan={"max": 3, "spare": 1, "loads": []})
    best = spare.fleets[spare.recommended]
    left = best.entries["l40s"] - 1
    run, _ = simulate(variant(scenario_from_data(CHAT), Case((0, left))), 1, "auto", KNOWN)
    assert best.judged_by == "run" and left > 0
    ends = [(i.text, i.low, i.high, i.out_of_service) for i in spare.explanation.model_intervals]
    assert ends == [(t.text, t.model_low, t.model_high, "1 × l40s") for t in run.targets]
    # Less than that is left of the fleet where the whole of it would be within its limits.
    beyond = [replace(i, limit=0.9 * i.high) for i in spare.explanation.model_intervals if i.high is not None]
    missed = replace(spare, explanation=replace(spare.explanation, model_intervals=beyond))
    assert plan_answer.status(missed) == "may-be-missed" and "without 1 × l40s)" in plan_answer.verdict(missed)


def test_no_fleet_is_called_safer_that_may_miss_a_target_within_the_error_of_its_own_models(found: PlanResult) -> None:
    (slower,) = [c for c in found.explanation.changes if c.device is not None]
    safe = ModelInterval("ttft p95 <= 1 s", 0.4, 0.2, 0.9, 1.0, "s", "<=", "ttft", "p95", None)
    changed: dict[str, Any] = {"goal": "value", "still_meets": False, "meets": Meets(value=False, confidence=False)}
    changed |= {"fleet": "2 × other", "objective_text": "9.00 USD/h", "violations": ["ttft p95 <= 1 s: 2 s"]}
    changed["candidates_tried"] = 2

    def said(*intervals: ModelInterval) -> tuple[str, str]:
        effect = replace(slower, **changed, model_intervals=intervals)
        plan = replace(found, explanation=replace(found.explanation, changes=[effect]))
        (sentence,) = [s for s in sentences(plan) if s.startswith(slower.change)]
        return " ".join(plan_answer.uncertainty(plan)), sentence

    card, sentence = said(safe)
    assert "2 × other, at 9.00 USD/h, is the cheapest found that would do, also within the error of its own" in card
    assert sentence.endswith("is 2 × other, at 9.00 USD/h, also within the error of its own models.")
    card, sentence = said(replace(safe, high=2.25))
    found_one = "2 × other, at 9.00 USD/h, is the cheapest found that would meet them with 95% confidence"
    assert f"{found_one}, but within the error of its own models TTFT p95 may be missed (200 ms to 2.25 s)" in card
    assert "but within the error of its own models ttft p95 <= 1 s may be missed (200 ms to 2.25 s)" in sentence


def test_a_page_defines_the_terms_of_its_first_lines_and_names_the_pue(found: PlanResult) -> None:
    page = plan_page.render(found)
    assert page.index("TTFT: time to first token") < page.index("Cost a month")
    assert "TPOT: time per output token" in page and "p95: 95% of the values are at most this" in page
    assert "tensor N:" not in page, "no group is in the name of these fleets"
    (best,) = [
        replace(found.fleets[found.recommended], text="2 × l40s tensor 2; tokens 512", energy_cost_usd_per_h=0.1)
    ]
    named = replace(found, fleets=[best], recommended=0, listed=[0], scenario={"site": {"pue": 1.2}})
    assert "Tensor N:" not in plan_terms.terms(named) and "tensor N: a replica" in plan_terms.terms(named)
    assert "tokens N: one step" in plan_terms.terms(named)
    of = "73 USD of energy (devices without their hosts"
    assert report.energy_a_month(named) == f"{of}, with the PUE of the site, 1.2)"
    assert report.energy_a_month(replace(named, scenario={"site": {"pue": 1.0}})) == f"{of})"


def test_the_best_fleets_for_longer_times_to_the_first_token_are_those_that_meet_the_targets_with_them(
    found: PlanResult,
) -> None:
    assert not found.explanation.first_tokens, "all targets are within the error of the models"
    # With a limit near the value, a target may be missed, and each factor has the first fleet that still meets it.
    value = next(t.value for t in found.fleets[found.recommended].targets if t.metric == "ttft")
    tight = searched(targets=[f"ttft p95 <= {2 * value * 1000:.4g} ms"])
    rows = tight.explanation.first_tokens
    (median,) = {entry.first_token_error.median for entry in tight.entries if entry.first_token_error}
    assert median is not None
    assert [row.factor for row in rows] == sorted([1.0, 1.1, 1.25, 1.5, 2.0, 3.0, median])
    for row in rows:
        for named, end in ((row.by_value, "value"), (row.with_confidence, "worse_end")):
            able = [
                fleet.text
                for fleet in tight.fleets
                if all(getattr(t, end) is not None and getattr(t, end) * row.factor <= t.limit for t in fleet.targets)
                and (end == "value" or fleet.meets.confidence)
            ]
            # Where none of the listed fleets is, a larger version of the recommended one may be.
            if able:
                assert (named or "").startswith(able[0])
            elif named:
                number = int(named.split()[0].replace(",", ""))
                assert number > max(n for n in tight.fleets[tight.recommended].devices.values())
    assert len({row.by_value for row in rows}) > 1
    assert "The best fleet by measured times to the first token" in plan_page.render(tight)
    assert "by measured times" not in plan_page.render(found)
    (usual,) = [row for row in rows if row.factor == median]
    said = plan_answer.at_the_median(tight)
    assert f"is {median:.3g} times those of the models. At that factor" in said and said in str(
        plan_page._answer(tight)
    )
    assert not plan_answer.at_the_median(found)
    assert (usual.by_value or "no simulated fleet meets the targets") in said


def test_a_fleet_in_groups_that_leaves_part_of_a_node_empty_costs_more_in_whole_nodes(found: PlanResult) -> None:
    best = found.fleets[found.recommended]
    (entry,), (price,) = best.configuration, {e.price_usd_per_h for e in found.entries if e.name in best.entries}

    def said(count: int, tensor: int, *others: PlannedFleet) -> str:
        used = [replace(entry, count=count, group={"tensor": tensor}, node=8)]
        fleets = [replace(best, configuration=used, prefix_hit_rate=0.25), *others]
        plan = replace(found, fleets=fleets, recommended=0)
        assert "Found in prefix caches" in str(plan_page._figures(plan))
        return report.whole_nodes(plan)

    cost = best.cost_usd_per_h + 4 * price
    assert said(12, 4) == (
        f" 12 × l40s are 1.5 nodes of 8: where only whole nodes are for rent, this fleet costs {cost:,.2f} USD/h."
    )
    other = replace(best, text="another one", cost_usd_per_h=cost - 0.5, configuration=[replace(entry, node=None)])
    headroom = min(target.headroom or 0.0 for target in best.targets)
    least = f" is then another one, at {cost - 0.5:,.2f} USD/h, with {share(headroom)} of headroom."
    assert least in said(12, 4, other) and "At that cost" not in said(12, 4, other)
    # The same devices in as many nodes as are paid for.
    same = replace(best, text="16 of them", cost_usd_per_h=cost, configuration=[replace(entry, node=None)])
    filled = f" At that cost 16 of them meets the targets with 95% confidence too, with {share(headroom)} of headroom."
    assert filled in said(12, 4, same) and "At that cost" not in said(12, 4, replace(same, cost_usd_per_h=cost + 1))
    # Single devices are for rent, and full nodes cost no more.
    assert said(12, 1) == said(16, 4) == ""


def test_how_busy_other_windows_of_a_trace_are_stands_beside_the_answer(found: PlanResult) -> None:
    def said(*windows: TraceWindow) -> str:
        return " ".join(plan_answer.uncertainty(replace(found, work=replace(found.work, windows=windows))))

    busier, busiest = TraceWindow("chat", 600.0, 100, 125, 101.0, 30.0), TraceWindow("code", 600.0, 100, 100, 90.0, 0.0)
    assert said().count("a busier time may need more.") == 1 and "The busiest" not in said()
    assert "more. The busiest 10 min of the trace have 25.0% more requests than these (requests are counted" in said(
        busier
    )
    assert "than these; the mean is 12.0% above these (requests" in said(replace(busier, mean_rows=112.0))
    both = said(busier, busiest)
    assert "The busiest 10 min of the trace of chat have 25.0% more requests than these" in both
    assert "No other 10 min of the trace of code have more requests than these." in both


def test_headroom_states_the_runs_of_its_interval_and_tables_have_the_same_words(found: PlanResult) -> None:
    best = found.fleets[found.recommended]
    target = replace(best.targets[0], interval_source="run", interval_runs=3)
    assert "(3 more runs)" in plan_targets.target_line_of(target, found).margin
    binding = replace(found.explanation, binding=target)
    assert "from the worse bound of the interval (3 more runs) to the limit" in plan_page.render(
        replace(found, explanation=binding)
    )
    rows = re.findall(r"<tr>(.*?)</tr>", plan_page.render(found).partition('id="rates"')[2].partition("</section>")[0])
    assert len(rows) > 2 and all(re.search(r">(at 95%|by value|no)<", row) for row in rows[1:])


def test_a_slower_fleet_that_cannot_do_its_work_has_no_upper_end_and_may_miss_its_target() -> None:
    interval = ModelInterval("ttft p95 <= 1 s", 0.4, 0.2, None, 1.0, "s", "<=", "ttft", "p95", None)
    assert not interval.within and replace(interval, high=0.9).within and not replace(interval, high=1.1).within
    assert replace(interval, comparison=">=", low=1.1).within


SEARCH = {
    "policy.batch.tokens": [256, 512],
    "fleet[*].group.tensor": [1, 2],
    "models.chat.weights": ["bfloat16", "fp8"],
}
SCALED = {
    "fleet": [{"device": "server", "name": "small", "price": "1 USD/h"}, {"device": "server", "price": "3 USD/h"}],
    "models": {},
    "workload": [
        {"name": "calls", "arrivals": {"process": "poisson", "rate": "300 /s"},
         "ops": [{"service": {"distribution": "exponential", "mean": "4 ms"}}]}
    ],
    "autoscale": [{"entry": "small", "min": 1, "max": 4, "up": {"queue_per_device": 1}, "every": "1 s", "provisioning": "1 s"}],
    "policy": "fifo", "stop": {"jobs": 3000}, "targets": ["latency p95 <= 40 ms"],
}  # fmt: skip


def test_a_plan_with_scaled_entries_says_with_how_many_they_begin_and_whether_more_would_help() -> None:
    rule = SCALED["autoscale"][0] | {"provisioning": "1 min"}
    keys = SCALED | {"fleet": SCALED["fleet"][:1], "autoscale": [rule], "plan": {"loads": []}}
    none = searched(**keys)
    (begins,) = [n for n in none.notes if "is scaled" in n]
    assert "It begins with 1, the `min` of its rule; `count` states the number at the start" in begins
    (helps,) = [n for n in none.notes if "begins with 4 of small" in n]
    assert not none.fleets and helps.endswith("meets the targets")
    begun = searched(**keys | {"fleet": [keys["fleet"][0] | {"count": 4}]})
    assert begun.fleets and "It begins with 4, the `count` of the entry" in report.text(begun).replace("\n  ", " ")
    assert any("all devices were rented all the time" in n for n in begun.notes)
    shrinks = searched(**keys | {"autoscale": [rule | {"down": {"utilisation": "90%", "for": "2 s"}}]})
    assert not any("all the time" in n for n in shrinks.notes)
    hopeless = searched(**keys | {"targets": ["latency p95 <= 11.9 ms"]})
    assert any("begins with 4 of small (`count` of the entry) fails too (latency p95" in n for n in hopeless.notes)


@pytest.mark.parametrize(
    "keys",
    [{"plan": {**CHAT["plan"], "search": SEARCH, "simulations": 6}}, {**SCALED, "plan": {"loads": []}}],
    ids=["searched", "scaled"],
)
def test_the_command_for_the_recommended_fleet_alone_gives_the_figures_of_the_plan_to_the_digit(
    keys: dict[str, Any],
) -> None:
    answer = searched(**keys)
    best = answer.fleets[answer.recommended]
    words = report.run_command(answer, "chat.yaml", ["--seed", "1"]).split()
    assert words[:5] == ["windtunnel", "run", "chat.yaml", "--seed", "1"] and answer.changes
    document = scenario_from_data({**CHAT, **keys}).document
    for change in answer.changes:
        apply_change(document, change)
    replications = int(words[words.index("--replications") + 1]) if "--replications" in words else 1
    assert (replications > 1) == (best.judged_by == "replications")
    run, _ = simulate(check_scenario(document), replications, "auto", KNOWN)
    assert [t.value for t in best.targets] == [t.value for t in run.targets]
    assert (best.power_w, best.cost_usd_per_h) == (run.average_power_w, run.cost_usd_per_h)
    assert best.usd_per_million_output_tokens == (
        None if run.serving is None else run.serving.cost_per_million_usd.output
    )


def test_without_javascript_the_page_says_before_its_first_chart_that_there_is_none(found: PlanResult) -> None:
    for shown in (found, replace(found, curve=None), replace(found, curve=None, rates=[])):
        text = plan_page.render(shown)
        assert text.count("<noscript>") == text.count("The charts need JavaScript") == 1
        assert text.index("<noscript>") < text.index("<figure")
