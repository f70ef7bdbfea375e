"""Explains the answer of a plan: the binding target, the sensitivity, the load curve, and why nothing is feasible."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from windtunnel.core.results.candidates import FirstTokenError
from windtunnel.core.results.objective import OBJECTIVES, Objective
from windtunnel.core.results.plan import (
    ChangeEffect,
    CheaperFleet,
    ClosestFleet,
    Explanation,
    FirstTokenOutcome,
    PlanResult,
    PriceEffect,
    PriceOfConfidence,
)
from windtunnel.core.results.target import ENGINE_ERROR, ModelInterval
from windtunnel.core.student import student
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning import looks
from windtunnel.planning.candidates import Candidates
from windtunnel.planning.evaluation import Evaluation, violations
from windtunnel.planning.judge import change_of_length, lengthened
from windtunnel.planning.reasons import first_token_error
from windtunnel.planning.search import SearchResult
from windtunnel.planning.sensitivity import Changes, redraws_of
from windtunnel.planning.simulate import Case
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.sources import model_accuracy

FIRST_TOKENS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
"""The factors of measured over modelled times to the first token for which the best fleets are stated."""
_ENDED = 2
"""The fleets whose runs were ended early that are simulated whole to find the one that misses by least."""


def closest_to_targets(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """Return the fleet with the most headroom at its worst target; None if there is none."""
    return max(
        evaluations, key=lambda e: (evaluating.least_headroom(e), -e.choice, [-n for n in e.counts]), default=None
    )


def explain(
    choices: Mapping[int, Candidates],
    fleets: Sequence[Evaluation],
    evaluations: Sequence[Evaluation],
    searches: Sequence[SearchResult],
    prepared: PreparedRun,
) -> Explanation:
    """Return the explanation without its sentences; it simulates more fleets if needed.

    ``fleets`` are those of ``evaluations`` that meet the targets by value, the best first. ``searches`` are that by
    value and that with confidence, over all choices. ``prepared`` is the run of the choice that the answer is about.
    """
    if not fleets:
        closest = closest_to_targets(evaluations)
        return Explanation(
            binding=None,
            price_of_confidence=None,
            next_cheapest=None,
            changes=[],
            closest=None if closest is None else ClosestFleet(_text(choices, closest), violations(closest)),
            search=[],
        )
    best, first = fleets[evaluating.recommended(fleets)], fleets[0]
    goal = best.goal
    objective = choices[best.choice].plan.objective
    mine = {key: program for key, program in prepared.compiled.items() if best.counts[key[0]]}
    changes = Changes(choices, model_accuracy(mine, prepared.classes), best, evaluations)
    choices[best.choice].announce(changes.first_cases, redraws=redraws_of(best))
    with_errors = list(choices[best.choice].model_error_cases(best)) if prepared.step_error_factors() else []
    choices[best.choice].simulator.announce(with_errors)
    intervals = () if not with_errors else choices[best.choice].model_intervals(best)
    below = evaluating.next_cheapest(evaluations, best, objective, goal) or _one_less(choices[best.choice], best, goal)
    below = None if below is None else choices[below.choice].whole(below)
    nearest = nearest_miss(choices, evaluations, best, goal, below)
    return Explanation(
        binding=evaluating.binding(best),
        headroom={target.text: target.headroom for target in best.targets},
        price_of_confidence=_price_of_confidence(choices, first, best),
        next_cheapest=_cheaper(choices, below),
        nearest_miss=_cheaper(choices, nearest),
        changes=changes.effects(),
        model_intervals=intervals,
        first_tokens=_first_tokens(choices, fleets, intervals, first_token_error(prepared, mine)),
        prices=_prices(choices, fleets, best),
        closest=None,
        search=_proofs(choices, fleets, len(evaluations), *searches),
    )


def _cheaper(choices: Mapping[int, Candidates], fleet: Evaluation | None) -> CheaperFleet | None:
    if fleet is None:
        return None
    return CheaperFleet(
        fleet=_text(choices, fleet),
        objective_text=choices[fleet.choice].objective_text(fleet),
        cost_usd_per_h=fleet.cost_usd_per_h,
        targets=fleet.targets,
        meets=fleet.meets,
        violations=violations(fleet),
    )


def nearest_miss(
    choices: Mapping[int, Candidates],
    evaluations: Sequence[Evaluation],
    best: Evaluation,
    goal: str,
    below: Evaluation | None,
) -> Evaluation | None:
    """Return the better fleet that does not reach ``goal`` and whose worst target is least beyond its limit.

    What a fleet misses by is known of a whole run only. Of those whose run was ended, the two that lasted longest
    before a target was lost are simulated whole, because they are mostly the nearest. ``below``: the next cheapest.
    """
    objective = choices[best.choice].plan.objective
    failed = evaluating.cheaper_that_fail(evaluations, best, objective, goal)
    ended = sorted((e for e in failed if e.stopped_after is not None), key=lambda e: -(e.stopped_after or 0))
    whole = [e for e in failed if e.stopped_after is None]
    whole += [choices[e.choice].whole(e) for e in ended[:_ENDED]]
    whole += [] if below is None else [below]
    return min(
        (e for e in whole if evaluating.excess(e) < math.inf),
        # Fleets that meet the targets by value miss them by their intervals.
        key=lambda e: (
            max(evaluating.excess(e), 0.0),
            -evaluating.least_headroom(e),
            e.objective(objective),
            e.choice,
            e.counts,
        ),
        default=None,
    )


def _text(choices: Mapping[int, Candidates], fleet: Evaluation) -> str:
    return choices[fleet.choice].text(fleet.counts)


def _prices(choices: Mapping[int, Candidates], fleets: Sequence[Evaluation], best: Evaluation) -> list[PriceEffect]:
    """Return the price of each entry at which another simulated fleet, as certain, costs as much as ``best``.

    The alternatives of an entry have its price, so they change together.
    """
    mine = choices[best.choice]
    if mine.plan.objective != "cost" or mine.scaled:
        return []
    own = mine.priced(best.counts)
    effects: dict[tuple[str, float], PriceEffect] = {}
    for other in fleets:
        candidates = choices[other.choice]
        theirs = candidates.priced(other.counts)
        if other is best or (best.meets.confidence and not other.meets.confidence):
            continue
        for key in {**own, **theirs}:
            name, usual = key
            more = theirs.get(key, 0) - own.get(key, 0)
            level = usual + (best.cost_usd_per_h - other.cost_usd_per_h) / more if more else 0.0
            # An entry of the best fleet may become dearer, and one of another fleet cheaper; 0 may be a rounding error.
            if level <= 1e-9 * max(usual, other.cost_usd_per_h) or (level > usual) != (more < 0):
                continue
            known = effects.get(key)
            if known is None or abs(level - usual) < abs(known.break_even - usual):
                effects[key] = PriceEffect(name, usual, level, candidates.text(other.counts))
    return sorted(effects.values(), key=lambda effect: math.inf if effect.change is None else abs(effect.change))


def _first_tokens(
    choices: Mapping[int, Candidates],
    fleets: Sequence[Evaluation],
    intervals: Sequence[ModelInterval],
    error: FirstTokenError | None,
) -> list[FirstTokenOutcome]:
    """Return the best fleets for longer times to the first token; empty where no target on them may be missed.

    The error of these times is a factor on each of them, so no run is needed. ``error``: that of the recommended fleet.
    """
    texts = evaluating.first_token_targets(intervals)
    if not texts:
        return []

    def best(factor: float, goal: str) -> Evaluation | None:
        return next((fleet for fleet in fleets if evaluating.reaches_with(fleet, factor, goal, texts)), None)

    def named(fleet: Evaluation | None) -> str | None:
        return None if fleet is None else f"{_text(choices, fleet)}, {choices[fleet.choice].objective_text(fleet)}"

    median = () if error is None or error.median is None else (error.median,)
    rows = []
    for factor in sorted({*FIRST_TOKENS, *median}):
        certain = best(factor, "confidence")
        cost = None if certain is None else certain.cost_usd_per_h
        rows.append(FirstTokenOutcome(factor, named(best(factor, "value")), named(certain), cost))
    return rows


def _price_of_confidence(
    choices: Mapping[int, Candidates], first: Evaluation, best: Evaluation
) -> PriceOfConfidence | None:
    """Return what the recommended fleet ``best`` costs more than the best fleet by value; None if that is certain."""
    if first.meets.confidence:
        return None
    certain = best if best.meets.confidence else None
    price = PriceOfConfidence(
        fleet=_text(choices, first),
        objective_text=choices[first.choice].objective_text(first),
        recommended=None if certain is None else _text(choices, certain),
        recommended_objective_text=None if certain is None else choices[certain.choice].objective_text(certain),
        doubts=violations(first),
    )
    candidates = choices[first.choice]
    return replace(price, text=_difference(price, candidates.plan) + _what_would_decide(candidates.scenario, first))


def _what_would_decide(scenario: Scenario, first: Evaluation) -> str:
    """Return as a sentence, with a blank before it, what was done or can be done to narrow the intervals of a fleet.

    It is empty where no interval keeps the fleet from meeting the targets with confidence.
    """
    wide = [t for t in first.targets if t.verdict == "unknown" and t.interval_source in ("run", "replications")]
    if not wide or any(t.verdict == "unknown" and t.interval_source == "none" for t in first.targets):
        return ""
    longest, possible = looks.TIMES[-1], lengthened(scenario, 2) is not None
    redrawn = max((t.interval_runs or 0 for t in wide if t.interval_source == "run"), default=0)
    if redrawn and not possible:
        narrower = 1.0 - student(10**6, 0.95) / student(redrawn - 1, 0.95)
        return (
            f" More redrawn runs would hardly help: the interval is as wide as such runs differ, and no number of "
            f"them narrows it by more than {narrower * 100:.0f}%."
        )
    further = f"a run {longest} times as long" if possible else f"{longest} times as many runs"
    if first.further is not None:
        return (
            f" The {looks.MOST_RUNS:,} runs that a plan makes to decide such fleets were used before it was decided; "
            f"{further} may decide it."
        )
    if first.times >= longest:
        return f" It was looked at again with {further}, which did not decide it."
    return (
        f" {further[0].upper()}{further[1:]} would have more than {looks.MOST_JOBS:,} jobs, so it was not made; it may "
        f"decide it (--set '{change_of_length(scenario, longest)}')."
    )


def _difference(price: PriceOfConfidence, plan: Plan) -> str:
    """Return in sentences that the best fleet by value is not certain to meet the targets, which fleet is, and why."""
    confidence, least = f"{plan.confidence * 100:.3g}% confidence", OBJECTIVES[plan.objective].least
    text = f"{price.fleet}, at {price.objective_text}, meets the targets by value but not with {confidence}; "
    if price.recommended is None:
        text += "no simulated fleet does."
    else:
        text += f"{price.recommended}, at {price.recommended_objective_text}, is the {least} fleet found that does."
    return f"{text} What {price.fleet} does not meet with confidence: {'; '.join(price.doubts)}."


def _one_less(candidates: Candidates, best: Evaluation, goal: str) -> Evaluation | None:
    """Return the best fleet with one device less, if no cheaper fleet was simulated; None if the bound excludes all."""
    counts, objective = best.counts, candidates.plan.objective
    fleets = [tuple(n - (i == j) for j, n in enumerate(counts)) for i in range(candidates.entries) if counts[i]]
    fleets = [f for f in fleets if any(f) and candidates.may_be_feasible(Case(f))]
    if not fleets:
        return None
    failed = [
        e
        for e in candidates.judge([Case(f) for f in fleets], goal)
        if not e.reaches(goal) and e.objective(objective) < best.objective(objective)
    ]
    return max(failed, key=lambda e: (e.objective(objective), e.counts), default=None)


def limit_phrase(plan: Plan, candidates: int) -> str:
    """Return the limits of the search on the fleets as a phrase; empty if they exclude no fleet."""
    of_entries = " of one entry" if plan.max_entries == 1 else f" of at most {plan.max_entries} entries"
    return (of_entries if plan.max_entries < candidates else "") + (" with the searched values" if plan.search else "")


def _proofs(
    choices: Mapping[int, Candidates],
    fleets: Sequence[Evaluation],
    number: int,
    search: SearchResult,
    confident: SearchResult,
) -> list[str]:
    """Return what is known of fleets that are better than the best by value, and than the recommended one."""
    simulated = f"{number:,} fleet was simulated" if number == 1 else f"{number:,} fleets were simulated"
    recommended = evaluating.recommended(fleets)
    candidates = choices[fleets[recommended].choice]
    if not recommended:
        return [f"{simulated}; {_proof(candidates, search)}."]
    first, best = (_text(choices, fleets[i]) for i in (0, recommended))
    beats = OBJECTIVES[candidates.plan.objective].beats
    return [
        f"{simulated}. For a fleet that meets the targets by value and {beats} {first}: {_proof(candidates, search)}.",
        f"For one that meets them with confidence and {beats} {best}: {_proof(candidates, confident)}.",
    ]


def _proof(candidates: Candidates, search: SearchResult) -> str:
    objective, limit = OBJECTIVES[candidates.plan.objective], limit_phrase(candidates.plan, candidates.entries)
    less, bound = objective.less, objective.bound_name
    if search.proof == "exhaustive":
        return f"every {less} fleet{limit} was simulated or is excluded by the {bound}"
    if search.proof == "monotone":
        return (
            f"every {less} fleet{limit} was simulated, is excluded by the {bound}, or is part of a "
            "larger fleet that failed (this assumes that adding devices never worsens a target)"
        )
    return (
        f"the limit was reached, and {search.unexplored:,} {less} fleets that the {bound} does not exclude were "
        "not simulated"
    )


# The sentences.


def sentences(plan: PlanResult) -> list[str]:
    """Return the explanation as sentences, from the finished plan."""
    entries = [f"{entry.name}: {entry.reason.text}." for entry in plan.entries if entry.reason]
    explanation, comparatives = plan.explanation, OBJECTIVES[plan.objective]
    if not plan.fleets:
        lines = [_nothing_found(plan), *(f"{conflict.text}." for conflict in explanation.conflicts)]
        lines += [*(f"{reach.sentence}." for reach in explanation.reach), *entries]
        closest = explanation.closest
        if closest is not None:
            lines.append(f"The closest fleet, {closest.fleet}, fails: {'; '.join(closest.violations)}.")
        return lines
    lines = []
    bound = explanation.binding
    if bound is not None:
        of = f" of {plan.fleets[plan.recommended].text}" if explanation.price_of_confidence else ""
        lines.append(f"Binding target{of}: {bound.text}: {evaluating.headroom_text(bound)}.")
    below, nearest = explanation.next_cheapest, explanation.nearest_miss
    if below is not None:
        which = f"nearest in {plan.objective} to this one"
        if nearest is not None and nearest.fleet == below.fleet:
            which, nearest = f"{which}, and misses by least", None
        lines.append(_cheaper_sentence(below, comparatives, which))
    if nearest is not None:
        lines.append(_cheaper_sentence(nearest, comparatives, "the one that misses by least"))
    if explanation.model_intervals:
        lines.append(f"{_model_error_sentence(explanation.model_intervals)}.")
        caveat = plan.fleets[plan.recommended].model_error_caveat
        lines += [f"{caveat}."] if caveat else []
    if explanation.changes:
        lines.append(
            "Headroom is measured from the worse bound of the confidence interval. All lines below use the same seed; "
            "a load is a factor on the number of jobs in the same time."
        )
    lines += [_change_sentence(change, comparatives) for change in explanation.changes]
    return [*lines, *explanation.search, *entries]


def _cheaper_sentence(fleet: CheaperFleet, comparatives: Objective, which: str) -> str:
    fails = "It meets the targets by value only" if fleet.meets.value else "It fails"
    return (
        f"Of the {comparatives.less} fleets that were simulated, {fleet.fleet}, at {fleet.objective_text}, is {which}. "
        f"{fails}: {'; '.join(fleet.violations)}."
    )


def _model_error_sentence(intervals: Sequence[ModelInterval]) -> str:
    """Return the intervals of the targets for the error of the models, and which of them are not within the limit."""
    parts = [f"{i.text}: {evaluating.shown(i.value, i.unit, i.limit)}, 90% interval {_ends(i)}" for i in intervals]
    beyond = [i.text for i in intervals if not i.within]
    outcome = f"; may be missed: {'; '.join(beyond)}" if beyond else "; all within their limits"
    of = f"Error of the models, and {ENGINE_ERROR}, for the same requests, judged by the value"
    return f"{of}: {'; '.join(parts)}{outcome}"


def _ends(interval: ModelInterval) -> str:
    low, high = (evaluating.shown(end, interval.unit, interval.limit) for end in (interval.low, interval.high))
    ends = f"from {low}, without an upper end" if interval.high is None else f"{low} to {high}"
    return f"{ends}{interval.out_of_service_text}"


def _nothing_found(plan: PlanResult) -> str:
    if plan.simulated:
        return "No simulated fleet meets the targets."
    none = "None was simulated, because the lower bound excludes all of them."
    return f"By the models, no fleet can meet the targets. {none}"


def _change_sentence(effect: ChangeEffect, comparatives: Objective) -> str:
    if effect.still_meets:
        by_value = "" if effect.meets.confidence else " by value"
        text = f"{effect.change}: this fleet still meets every target{by_value}"
        if effect.binding is not None:
            text += f"; binding target {effect.binding.text}: {evaluating.headroom_text(effect.binding)}"
    else:
        fails = "meets the targets by value only" if effect.meets.value else "fails"
        text = f"{effect.change}: this fleet {fails} ({'; '.join(effect.violations)})"
    if effect.explained_by_interval:
        text += " (the change of the headroom is mainly one of the width of the interval)"
    number = effect.candidates_tried
    if effect.fleet is not None and number == 1:
        text += f"; {effect.fleet} meets the targets, at {effect.objective_text}"
    elif effect.fleet is not None:
        text += f"; of {_fleets(number)} tried, the {comparatives.least} that meets the targets is {effect.fleet}"
        text += f", at {effect.objective_text}"
    elif number:
        which = comparatives.more if effect.increases_load else comparatives.less
        text += (
            f"; none of {_fleets(number, which)} meets the targets"
            if number > 1
            else f"; the one {which} fleet tried does not meet them"
        )
    return text + _own_error(effect.model_intervals) + "."


def _own_error(intervals: Sequence[ModelInterval]) -> str:
    """Return what the error of its own models leaves open of a fleet that was found, as the end of a sentence."""
    if not intervals:
        return ""
    beyond = [f"{i.text} may be missed ({_ends(i)})" for i in intervals if not i.within]
    return (
        f", but within the error of its own models {' and '.join(beyond)}"
        if beyond
        else (", also within the error of its own models")
    )


def _fleets(number: int, which: str = "") -> str:
    return f"{number:,} {which}{' ' if which else ''}{'fleet' if number == 1 else 'fleets'}"
