"""Explains the answer of a plan: the binding target, the sensitivity, the load curve, and why nothing is feasible."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import (
    ChangeEffect,
    CheaperFleet,
    ClosestFleet,
    Explanation,
    LoadCurve,
    LoadPoint,
    PlanResult,
)
from windtunnel.core.ticks import FloatArray
from windtunnel.core.units import format_quantity
from windtunnel.engine.prepare.demand import Demand
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning.bounds import PERCENTILES, Bound, Replicated
from windtunnel.planning.candidates import Candidates
from windtunnel.planning.evaluation import Evaluation, violations
from windtunnel.planning.search import SearchResult
from windtunnel.planning.sensitivity import Changes
from windtunnel.planning.simulate import Case
from windtunnel.scenario.target import Target


@dataclass(frozen=True)
class Comparatives:
    """The words with which fleets are compared by an objective."""

    less: str
    more: str
    least: str


COMPARATIVES: Mapping[str, Comparatives] = {
    "cost": Comparatives("cheaper", "more expensive", "cheapest"),
    "power": Comparatives("lower-power", "higher-power", "lowest-power"),
    "carbon": Comparatives("lower-carbon", "higher-carbon", "lowest-carbon"),
}


def explain(
    candidates: Candidates, best: Evaluation | None, evaluations: Sequence[Evaluation], search: SearchResult
) -> Explanation:
    """Return the explanation without its sentences; it simulates more fleets if needed."""
    if best is None:
        closest = max(evaluations, key=lambda e: (evaluating.least_headroom(e), [-n for n in e.counts]), default=None)
        return Explanation(
            binding=None,
            next_cheapest=None,
            changes=[],
            closest=None if closest is None else ClosestFleet(candidates.text(closest.counts), violations(closest)),
            search=[],
        )
    below = evaluating.next_cheapest(evaluations, best, candidates.plan.objective) or _one_less(candidates, best)
    cheaper = None
    if below is not None:
        text, objective = candidates.text(below.counts), candidates.objective_text(below)
        cheaper = CheaperFleet(text, objective, below.verdict, violations(below))
    return Explanation(
        binding=evaluating.binding(best),
        headroom={target.text: target.headroom for target in best.targets},
        next_cheapest=cheaper,
        changes=Changes(candidates, best, evaluations).effects(),
        closest=None,
        search=[_proof(candidates, search)],
    )


def _one_less(candidates: Candidates, best: Evaluation) -> Evaluation | None:
    """Return the best fleet with one device less, if no cheaper fleet was simulated; None if the bound excludes all."""
    counts, objective = best.counts, candidates.plan.objective
    fleets = [tuple(n - (i == j) for j, n in enumerate(counts)) for i in range(candidates.entries) if counts[i]]
    fleets = [f for f in fleets if any(f) and candidates.may_be_feasible(Case(f))]
    if not fleets:
        return None
    failed = [e for e in candidates.judge([Case(f) for f in fleets]) if not e.met]
    return max(failed, key=lambda e: (e.objective(objective), e.counts), default=None)


def limit_phrase(most: int, candidates: int) -> str:
    """Return the limit on the entries of a fleet as a phrase; empty if it excludes no fleet."""
    if most >= candidates:
        return ""
    return " of one entry" if most == 1 else f" of at most {most} entries"


def _proof(candidates: Candidates, search: SearchResult) -> str:
    number, less = len(search.verdicts), COMPARATIVES[candidates.plan.objective].less
    simulated = f"{number:,} fleet was simulated" if number == 1 else f"{number:,} fleets were simulated"
    limit = limit_phrase(candidates.plan.max_entries, candidates.entries)
    if search.proof == "exhaustive":
        return f"{simulated}; every {less} fleet{limit} was simulated or is excluded by the lower bound."
    if search.proof == "monotone":
        return (
            f"{simulated}; every {less} fleet{limit} was simulated, is excluded by the lower bound, or is part of a "
            "larger fleet that failed (this assumes that adding devices never worsens a target)."
        )
    return (
        f"{simulated}, which is the limit; {search.unexplored:,} {less} fleets that the lower bound does not exclude "
        "were not simulated."
    )


def load_curve(candidates: Candidates, best: Evaluation) -> LoadCurve | None:
    """Return the best fleet's binding time (or p99 latency) over the load, with the knee; None without loads."""
    target = evaluating.binding_time(best)
    loads = sorted(set(candidates.plan.loads))
    if not loads:
        return None
    try:
        evaluations = candidates.judge([Case(best.counts, load) for load in loads])
    except InputError as error:
        candidates.notes.append(f"the load curve cannot be computed: {error.problem}")
        return None
    min_load = candidates.min_load(best.counts)
    points = []
    for load, evaluation in zip(loads, evaluations, strict=True):
        judged = None if target is None else evaluation.target(target.text)
        points.append(
            LoadPoint(
                load=load,
                value_s=evaluating.time_s(evaluation, target),
                low_s=None if judged is None else judged.low,
                high_s=None if judged is None else judged.high,
                utilisation=evaluation.utilisation,
                min_load=None if min_load is None else min_load * load,
                met=evaluation.met,
                verdict=evaluation.verdict,
                keeps_up=evaluation.keeps_up,
            )
        )
    return LoadCurve(
        fleet=candidates.text(best.counts),
        of=evaluating.time_name(target),
        limit_s=None if target is None else target.limit,
        points=points,
        knee=evaluating.knee([p.load for p in points], [p.value_s for p in points]),
        rule=evaluating.KNEE_RULE,
    )


# Why no fleet can meet a target.


def explain_infeasibility(candidates: Candidates, targets: Sequence[Target], cost: Bound) -> list[str]:
    """Return a sentence for each target that no fleet can meet; ``cost`` is the lower bound on the rent."""
    sentences = []
    possible = math.isfinite(cost.value)
    for target in targets:
        if target.comparison != "<=":
            continue
        if target.metric == "cost":
            if target.limit * 3600 < cost.value and possible:
                sentences.append(
                    f"{target.text} cannot be met: no fleet that does the work costs less than {cost.value:,.2f} USD/h"
                )
        elif not possible:
            least = _least_time(candidates, target)
            if least is not None and least[0] > target.limit:
                sentences.append(f"{target.text} cannot be met by any fleet: {least[1]}")
            if target.metric == "power":
                sentences += _least_power(candidates, targets, target)
    return sentences


def _least_time(candidates: Candidates, target: Target) -> tuple[float, str] | None:
    """Return a lower bound (s) on a target's statistic, with a text: each job alone on its fastest entry."""
    demand, names = candidates.demand, candidates.names
    if target.metric == "itl":
        classes = np.flatnonzero(demand.gap_s > 0)
        if not len(classes):
            return None
        best = int(classes[np.argmin(demand.gap_s[classes])])
        least = float(demand.gap_s[best])
        return least, f"on {names[best]}, the fastest, a token takes at least {format_quantity(least, 's')}"
    times = {"latency": demand.alone_s, "ttft": demand.alone_first_s}.get(target.metric)
    if times is None or target.statistic is None:
        return None
    able, judged = _jobs(demand, target)
    if not judged.any():
        return None
    own = np.where(able, times, math.inf)[:, judged]
    least = _statistic(own.min(axis=0), target.statistic)
    chosen = np.unique(own.argmin(axis=0))
    where = names[int(chosen[0])] if len(chosen) == 1 else "the candidate that is fastest for it"
    what = "a job" if target.metric == "latency" else "the first token of a job"
    return least, (
        f"{what} that never waits, alone on {where}, takes at least {format_quantity(least, 's')} ({target.statistic})"
    )


def _jobs(demand: Demand, target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Return which entry can run which job, and the jobs that a target refers to and that some entry can run."""
    judged = demand.judged & demand.eligible.any(axis=0)
    if target.workload is not None:
        judged &= demand.workload == list(demand.workloads).index(target.workload)
    return demand.eligible, judged


def _statistic(values: FloatArray, name: str) -> float:
    return float(np.mean(values) if name not in PERCENTILES else np.quantile(values, PERCENTILES[name]))


def _least_power(candidates: Candidates, targets: Sequence[Target], target: Target) -> list[str]:
    """Return a sentence if the least power of any fleet that completes the work exceeds the target."""
    others = [t for t in targets if t.metric != "power"]
    least = Replicated([candidates.demand], others).lower_bound(
        candidates.demand.idle_w, candidates.max_counts, candidates.plan.max_entries, work_w=1.0
    )
    if not math.isfinite(least.value) or least.value <= target.limit:
        return []
    return [
        f"{target.text} cannot be met: no fleet that does the work draws less than {format_quantity(least.value, 'W')}"
    ]


# The sentences.

_INCONCLUSIVE = 2
"""The number of inconclusive fleets with a sentence of their own; the table has the reasons of the others."""


def sentences(plan: PlanResult) -> list[str]:
    """Return the explanation as sentences, from the finished plan."""
    entries = [f"{entry.name}: {entry.reason}." for entry in plan.entries if entry.reason]
    explanation, comparatives = plan.explanation, COMPARATIVES[plan.objective]
    if not plan.fleets:
        lines = [_nothing_found(plan)]
        lines += [f"{sentence}." for sentence in explanation.unreachable]
        lines += [*_inconclusive_fleets(plan), *entries]
        closest = explanation.closest
        if closest is not None and not plan.inconclusive:
            lines.append(f"The closest fleet, {closest.fleet}, fails: {'; '.join(closest.violations)}.")
        return lines
    lines = []
    bound = explanation.binding
    if bound is not None:
        lines.append(f"Binding target: {bound.text}: {evaluating.headroom_text(bound)}.")
    below = explanation.next_cheapest
    if below is not None:
        lines.append(
            f"The closest {comparatives.less} fleet of those simulated, {below.fleet} at {below.objective_text}, "
            f"{'fails' if below.verdict == 'fails' else 'is inconclusive'}: {'; '.join(below.violations)}."
        )
    lines += _inconclusive_fleets(plan)
    if explanation.changes:
        lines.append(
            "Headroom is measured from the worse bound of the confidence interval. All lines below use the same seed; "
            "a load is a factor on the number of jobs in the same time."
        )
    lines += [_change_sentence(change, comparatives) for change in explanation.changes]
    return [*lines, *explanation.search, *entries]


def _nothing_found(plan: PlanResult) -> str:
    if plan.inconclusive:
        return "No simulated fleet meets the targets conclusively."
    if plan.simulated:
        return "No simulated fleet meets the targets."
    return "No fleet can meet the targets. None was simulated, because the lower bound excludes all of them."


def _inconclusive_fleets(plan: PlanResult) -> list[str]:
    fleets = plan.inconclusive
    lines = [f"{fleet.text}: {'; '.join(fleet.violations)}." for fleet in fleets[:_INCONCLUSIVE]]
    rest = len(fleets) - _INCONCLUSIVE
    return lines + ([f"{rest} more {'fleet is' if rest == 1 else 'fleets are'} inconclusive."] if rest > 0 else [])


def _change_sentence(effect: ChangeEffect, comparatives: Comparatives) -> str:
    if effect.still_meets:
        text = f"{effect.change}: this fleet still meets every target"
        if effect.binding is not None:
            text += f"; binding target {effect.binding.text}: {evaluating.headroom_text(effect.binding)}"
    else:
        fails = "fails" if effect.verdict == "fails" else "becomes inconclusive"
        text = f"{effect.change}: this fleet {fails} ({'; '.join(effect.violations)})"
    if effect.explained_by_interval:
        text += " (the value changed little; the difference is mainly the width of the confidence interval)"
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
    return text + "."


def _fleets(number: int, which: str = "") -> str:
    return f"{number:,} {which}{' ' if which else ''}{'fleet' if number == 1 else 'fleets'}"
