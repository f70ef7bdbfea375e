"""Makes a plan: the choices, the search of each, and the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from windtunnel.core.errors import InputError
from windtunnel.core.results.objective import OBJECTIVES, Objective
from windtunnel.core.results.plan import (
    ComparedChoice,
    ExcludedValues,
    LowerBound,
    PlanResult,
    SearchSummary,
    SimulatedFleet,
)
from windtunnel.deployment.commands import deployment
from windtunnel.engine.prepare.checks import doubtful_settings
from windtunnel.engine.results.metrics import notes_of_drain
from windtunnel.planning import assumptions, explanation, looks
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning.bounds import Counts
from windtunnel.planning.candidates import Candidates
from windtunnel.planning.choice_search import ChoiceSearch
from windtunnel.planning.choices import Choice, Choices, recommended_changes, values_text
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.judge import change_of_length, draws
from windtunnel.planning.load_curve import first_cases, load_curve, rate_points
from windtunnel.planning.reach import conflicts_by_bound, reaches
from windtunnel.planning.reasons import Reasons
from windtunnel.planning.search import SearchResult
from windtunnel.planning.sensitivity import redraws_of
from windtunnel.planning.simulate import USUAL, Case, Redraws
from windtunnel.planning.workers import Workers
from windtunnel.scenario.arrivals import Trace
from windtunnel.scenario.changes import NodePath, parse_path
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.policy import ContinuousBatch
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation import versions as versions_module
from windtunnel.simulation.redrawn import FIRST_RUNS as FIRST_REDRAWN_RUNS
from windtunnel.simulation.redrawn import RUNS as REDRAWN_RUNS
from windtunnel_models.catalogue import Catalogue

HELD = ("models", "policy", "power_budget", "autoscale", "network", "with")
"""The keys of a scenario that every fleet has in common, as far as they are not searched."""
_PROOFS = ("exhaustive", "monotone", "open")
_LARGER = 4
"""The devices, or replicas, by which the recommended fleet is made larger at most."""
_MANY_JOBS = 5_000
"""The number of jobs from which simulations may take long enough for workers."""


class Planner:
    """Makes one plan. Raises InputError for an invalid scenario before anything runs."""

    candidates: Candidates
    """Those of the choice that the answer is about."""

    def __init__(
        self,
        scenario: Scenario,
        catalogue: Catalogue,
        workers: int,
        progress: Callable[[int], None] | None,
        copies: int = 1,
    ) -> None:
        self.scenario = scenario
        self.options = scenario.plan or Plan()
        self.catalogue, self.workers, self.progress = catalogue, Workers(workers, copies), progress
        self.choices = Choices(scenario)
        self.searches = [self._search_of(choice, number) for number, choice in enumerate(self.choices)]
        self.excluded: dict[str, ExcludedValues] = {}
        self._finished = 0

    def _search_of(self, choice: Choice, number: int) -> ChoiceSearch:
        return ChoiceSearch(choice, number, self.catalogue, self.workers, self._count)

    def _count(self, _of_choice: int) -> None:
        self._finished += 1
        self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            self.progress(self._finished)

    def run(self) -> PlanResult:
        """Compute the bounds, search, and explain."""
        prepared: dict[int, ChoiceSearch] = {}
        try:
            self._prepare(prepared)
            self.searches = list(prepared.values())
            # A fleet of the choice with the lowest bound may rule out most of the others.
            order = sorted(self.searches, key=lambda search: (search.lower.objective.value, search.number))
            replications = order[0].replications()
            for search in self.searches:
                search.replicate(replications)
            self._search(order)
            return self._answer(order[0])
        finally:
            self.workers.close()

    def _prepare(self, prepared: dict[int, ChoiceSearch]) -> None:
        """Prepare each choice; leave out the searched values that do not fit or divide.

        Raises:
            InputError: The scenario is not valid whatever the values, or no combination of the values is.
        """
        first: InputError | None = None
        problems: set[tuple[str, str | None]] = set()
        for whole in self.searches:
            search: ChoiceSearch | None = whole
            while search is not None:
                try:
                    search.prepare()
                    prepared[search.number] = search
                    self._tell()
                    if search.run.job_count >= _MANY_JOBS:
                        self.workers.begin_imports()
                    break
                except InputError as error:
                    first = first or error
                    problems.add((error.problem, error.where.field))
                    search = self._without(search, error, search is whole)
        if first is not None and not prepared:
            if len(problems) == 1:
                raise first  # it does not depend on the values
            why = "; ".join(f"{values_text(e.values)}: {e.reason}" for e in self.excluded.values())
            raise InputError(
                f"no searched value is left: {why}",
                where=self.scenario.where("plan", "search"),
                expected=first.expected,
            )
        self._merge_excluded()

    def _merge_excluded(self) -> None:
        """State values with which nothing runs once, and not with each of the values that make no difference."""
        by_reason: dict[str, list[ExcludedValues]] = {}
        for excluded in self.excluded.values():
            by_reason.setdefault(excluded.reason, []).append(excluded)
        self.excluded = {}
        for reason, group in by_reason.items():
            common = {k: v for k, v in group[0].values.items() if all(e.values.get(k, v) == v for e in group)}
            left = [search for search in self.searches if common.items() <= search.choice.values.items()]
            whole = common and len(group) > 1 and len(left) == len(group)
            for excluded in [ExcludedValues(common, reason)] if whole else group:
                self.excluded[values_text(excluded.values)] = excluded

    def _without(self, search: ChoiceSearch, error: InputError, whole: bool) -> ChoiceSearch | None:
        """Return the search without the alternative that ``error`` is about; None if that leaves nothing of it.

        Raises:
            InputError: ``error``, if it is not about a searched value. If values were left out before (not ``whole``),
                it follows from these, and nothing is left.
        """
        choice, entry = search.choice, _entry_of(error)
        own = {} if entry is None else choice.alternatives[entry].values
        if not own and not choice.values:
            if whole:
                raise error
            return None
        values = {**choice.values, **own}
        self.excluded.setdefault(
            values_text(values) if own else choice.text, ExcludedValues(values=values, reason=error.problem)
        )
        if entry is None or not own or len(choice.alternatives) == 1:
            return None
        return self._search_of(self.choices.without(choice, entry), search.number)

    def _search(self, order: Sequence[ChoiceSearch]) -> None:
        """Search the best fleet by value over all choices, and the best with confidence if that is another one."""
        best = self._by_value(order)
        while math.isfinite(best) and not self._look_again(order, best):
            best = self._by_value(order)
        while math.isfinite(best):
            if not any(search.meets_with_confidence(best) for search in order):
                self._with_confidence(order, best)
            if self._confirm(order):
                break

    def _with_confidence(self, order: Sequence[ChoiceSearch], best: float) -> None:
        """Search the best fleet with confidence over all choices; ``best`` is the value of the best by value."""
        above = 0.0 if any(search.search.proof == "open" for search in order) else best
        certain, surest = math.inf, order[0]
        for search in order:
            search.with_confidence(above, certain)
            if search.confident.value < certain:
                certain, surest = search.confident.value, search
        if surest.confident.best is not None:
            self._like(surest, surest.confident.best)
            self._equal_footing(order, certain)

    def _confirm(self, order: Sequence[ChoiceSearch]) -> bool:
        """Have the best fleets that meet the targets with confidence judged by more redrawn runs, if it is not settled.

        Returns whether one of them still meets them so, or none met them before (see ``looks.CONFIRMING``).
        """
        certain = [row for row in self._met_by_value(order) if row[2].meets.confidence]
        best = [(s, e) for value, s, e in certain if value <= certain[0][0] * (1 + 1e-12)]
        if best and evaluating.feasible([e for _, e in best], self.options.objective)[0].settled:
            return True
        for announced in (True, False):
            if len(best) == 1 and not announced:
                # One worker makes these runs; the others begin with what follows if they confirm the fleet.
                ((search, evaluation),) = best
                likely = first_cases(search.candidates, evaluation)
                search.candidates.announce(likely, redraws=Redraws(looks.EXPLAINING))
            for search, evaluation in best:
                # A further look is a longer run, which is no chance of a few redrawn ones.
                few = FIRST_REDRAWN_RUNS < evaluation.redrawn_runs < looks.CONFIRMING
                if few and not evaluation.looked_again:
                    confirming = Redraws(looks.CONFIRMING, all=True)
                    search.candidates.redraw(evaluation.counts, confirming, announced=announced)
        return not best or any(s.candidates.evaluation(Case(e.counts)).meets.confidence for s, e in best)

    def _by_value(self, order: Sequence[ChoiceSearch]) -> float:
        """Search the best fleet by value over all choices; return its value, which is infinite if there is none."""
        best = math.inf
        for search in order:
            search.by_value(best)
            best = min(best, search.search.value)
        winner = next((search for search in order if search.search.best and search.search.value == best), None)
        if winner is not None and winner.search.best is not None:
            self._like(winner, winner.search.best)
            self._equal_footing(order, best)
        return best

    def _met_by_value(self, order: Sequence[ChoiceSearch]) -> list[tuple[float, ChoiceSearch, Evaluation]]:
        """Return the fleets that meet the targets by value with their objectives and choices, the best first."""
        objective = self.options.objective
        found = [(e.objective(objective), s, e) for s in order for e in s.evaluations() if e.meets.value]
        return sorted(found, key=lambda row: (row[0], row[2].devices, row[2].choice, row[2].counts))

    def _look_again(self, order: Sequence[ChoiceSearch], best: float) -> bool:
        """Look again at the fleets that their intervals leave open, from the best on, until one is certain.

        Returns whether a fleet with the value ``best`` still meets the targets by value.
        """
        for _, search, evaluation in self._met_by_value(order):
            if search.candidates.judge([Case(evaluation.counts)], "confidence")[0].meets.confidence:
                break
        return any(value <= best for value, _, _ in self._met_by_value(order))

    def _equal_footing(self, order: Sequence[ChoiceSearch], best: float) -> None:
        """Have fleets that are as good as each other judged by as many redrawn runs, because headroom orders them."""
        equal = [(s, e) for value, s, e in self._met_by_value(order) if value <= best * (1 + 1e-12)]
        most = max((e.redrawn_runs for _, e in equal), default=0)
        for announced in (True, False):
            for search, evaluation in equal:
                if 0 < evaluation.redrawn_runs < most:
                    search.candidates.redraw(
                        evaluation.counts, Redraws(most, all=True), announced=announced, same_verdict=True
                    )

    def _like(self, search: ChoiceSearch, counts: Counts) -> None:
        """Simulate a fleet's devices with the other values that they may have too, so that the best of them is chosen.

        The search itself does not look for fleets that are as good as the best. These have other values of a whole
        fleet, or all devices of an entry with other values of its own.
        """
        others = [(other, same) for other in self.searches for same in other.alike(search, counts)]
        # If all redrawn runs of the best one were made, those of fleets that are as good would follow; see
        # `_equal_footing`.
        found = search.candidates.evaluation(Case(counts, until_lost=True))
        redraws = Redraws(all=found.redrawn_runs >= REDRAWN_RUNS)
        for announced in (True, False):
            for other, same in others:
                other.consider(same, redraws=redraws, announced=announced)

    def _enlarge(self, by_number: Mapping[int, ChoiceSearch], best: Evaluation) -> bool:
        """Simulate larger versions of the best fleet where longer times to the first token may break a target.

        The search simulates few fleets that cost more than the best one. The first that meets the targets with
        confidence at the longest times that are asked about is the last. Returns whether it was done.
        """
        search = by_number[best.choice]
        texts = evaluating.first_token_targets(
            search.candidates.model_intervals(best) if search.run.step_error_factors() else ()
        )
        if not texts or search.scaled:
            return False
        for more in range(1, _LARGER + 1):
            larger = tuple(n + more * bool(n) for n in best.counts)
            search.consider(larger, redraws=USUAL)
            case = Case(larger, until_lost=True)
            if search.candidates.simulator.found(case) is None:
                continue
            found = search.candidates.evaluation(case)  # with spare devices, also of the fleet without them
            if evaluating.reaches_with(found, explanation.FIRST_TOKENS[-1], "confidence", texts):
                break
        while not best.meets.confidence and not self._confirm([search]):
            pass  # one of them may be the first that meets the targets with confidence
        return True

    # Long: it has one expression for each key of the plan.
    def _answer(self, first: ChoiceSearch) -> PlanResult:
        """Return the plan; ``first`` is the choice that it is about if no fleet was simulated."""
        objective, searches = self.options.objective, self.searches
        by_number = {search.number: search for search in searches}
        choices = {search.number: search.candidates for search in searches}
        evaluations = [e for search in searches for e in search.evaluations()]
        fleets = evaluating.feasible(evaluations, objective)
        if not fleets:
            # What the fleets miss, and by how much, is the answer then.
            for one in searches:
                one.complete()
            evaluations = [e for one in searches for e in one.evaluations()]
        recommended = evaluating.recommended(fleets)
        best = fleets[recommended] if fleets else None
        screened: list[assumptions.Screened] | None = None
        if best is not None and best.meets.confidence:
            # Larger fleets hardly change the answer, so what its explanation needs is simulated beside them.
            screened = self._announce(by_number[best.choice], best)
        if best is not None and self._enlarge(by_number, best):
            evaluations = [e for search in searches for e in search.evaluations()]
            fleets = evaluating.feasible(evaluations, objective)
            recommended = evaluating.recommended(fleets)
            if (best.choice, best.counts) != (fleets[recommended].choice, fleets[recommended].counts):
                screened = None
            best = fleets[recommended]
        closest = best or explanation.closest_to_targets(evaluations)
        about = first if closest is None else by_number[closest.choice]
        self.candidates = about.candidates
        search = _merged([s.search for s in searches])
        confident = _merged([s.confident for s in searches])
        if _PROOFS.index(confident.proof) < _PROOFS.index(search.proof):
            confident = replace(confident, proof=search.proof)
        if screened is None:
            screened = [] if best is None else self._announce(about, best)
        # First, because its last points depend on the others, and follow while other simulations are under way.
        curve = None if best is None else load_curve(about.candidates, best)
        explained = explanation.explain(choices, fleets, evaluations, [search, confident], about.run)
        if best is None:
            reasons = Reasons(about.candidates, about.targets)
            own = about.evaluations()
            conflicts = reasons.by_search(own, about.without_rent_limits) if own else conflicts_by_bound(searches)
            missed = [t.text for t in ([] if closest is None else closest.targets) if t.verdict == "missed"]
            explained = replace(explained, conflicts=conflicts, reach=reaches(searches, missed))
        if best is not None:
            ranked = assumptions.assumptions(about.candidates, screened, best)
            explained = replace(explained, assumptions=ranked)
        # Some runs that were ended before have been simulated whole for the explanation.
        evaluations = [e for one in searches for e in one.evaluations()]
        whole, stopped = [e for e in evaluations if not e.stopped_after], [e for e in evaluations if e.stopped_after]
        planned = {id(e): choices[e.choice].planned(e) for e in whole}
        time, policy = evaluating.binding_time(best), about.scenario.policy
        lower = _lowest([s.lower_bound() for s in searches], objective)
        plan = PlanResult(
            name=self.scenario.name,
            description=self.scenario.description,
            objective=objective,
            seed=self.scenario.seed,
            confidence=self.options.confidence,
            replications=about.simulator.setting.replications,
            spare=self.options.spare,
            engine=whole[0].engine if whole else None,
            fleets=[choices[e.choice].planned(e) for e in fleets],
            recommended=recommended,
            lower_bound=lower,
            gap=_gap(OBJECTIVES[objective], fleets[0].objective(objective), lower.objective) if fleets else None,
            searched=self._searched(),
            held=self._held(),
            choices=[self._compared(s, fleets) for s in searches if s.choice.values],
            excluded=list(self.excluded.values()),
            entries=about.candidate_entries(),
            explanation=explained,
            inputs=about.inputs(),
            work=about.candidates.offered_work(about.run),
            time=evaluating.time_name(time),
            front=[choices[e.choice].planned(e) for e in evaluating.front(evaluations, time)],
            curve=curve,
            rates=rate_points(list(planned.values()), curve),
            search=SearchSummary(
                simulated_fleets=len(evaluations),
                stopped_fleets=len(stopped),
                simulations=sum(e.runs for s in searches for e in s.simulator.evaluations.values()),
                further_runs=self.workers.further_runs,
                rounds=search.rounds + sum(s.confident.rounds for s in searches if s.confident is not s.search),
                proof=search.proof,
                unexplored_cheaper=search.unexplored,
                confidence_proof=confident.proof,
                confidence_unexplored=confident.unexplored,
                considered=search.considered,
                max=dict(zip(about.names, about.candidates.max_devices, strict=True)),
                max_entries=self.options.max_entries,
                limit=explanation.limit_phrase(self.options, about.entries),
            ),
            notes=list(
                dict.fromkeys(
                    [
                        *(note for s in searches for note in s.notes),
                        *doubtful_settings(about.run),
                        *(note for s in searches for note in s.notes_of_search()),
                        *self._notes_of_looks([choices[e.choice].text(e.counts) for e in whole if e.looked_again]),
                        *([] if closest is None else about.notes_of_scaling(closest)),
                        *([] if best is None else about.candidates.notes_of_spare(best)),
                        *(
                            []
                            if best is None
                            else notes_of_drain(best.drain_share, choices[best.choice].text(best.counts))
                        ),
                        *about.candidates.demand.notes,
                    ]
                )
            ),
            simulated=[SimulatedFleet(**vars(planned[id(e)]), time_s=evaluating.time_s(e, time)) for e in whole],
            stopped=[choices[e.choice].stopped(e) for e in stopped],
            deployment=None if best is None else deployment(about.run, dict(enumerate(best.counts))),
            scenario=self.scenario.resolved(),
            versions=versions_module.versions(),
            run_replications=1 if best is None else self._run_replications(about, best),
            changes=[] if best is None else self._changes(about, best),
            has_continuous_batches=not isinstance(policy, str) and isinstance(policy.batch, ContinuousBatch),
            listed=evaluating.notable(fleets, self.options.fleets),
        )
        return replace(plan, explanation=replace(explained, sentences=explanation.sentences(plan)))

    def _changes(self, about: ChoiceSearch, best: Evaluation) -> list[str]:
        """Return the changes with which ``run`` simulates the recommended fleet as it was judged."""
        longer = change_of_length(about.scenario, best.times) if best.judged_by == "longer" else None
        changes = recommended_changes(self.scenario, about.choice, best.counts)
        return changes if longer is None else [*changes, longer]

    @staticmethod
    def _run_replications(about: ChoiceSearch, best: Evaluation) -> int:
        """Return the number of replications with which ``run`` judges the recommended fleet as it was judged."""
        setting = about.simulator.setting
        if best.judged_by == "replications":
            return best.times * (setting.replications if setting.replications > 1 else setting.further)
        # Of a scenario with random numbers, replications are runs with other ones, and no redrawn runs.
        scaled = any(isinstance(w.arrivals, Trace) and w.arrivals.scale != 1.0 for w in about.scenario.workload)
        more = best.redrawn_runs > REDRAWN_RUNS and not draws(about.scenario) and not scaled
        return best.redrawn_runs if more else 1

    def _notes_of_looks(self, fleets: Sequence[str]) -> list[str]:
        """Return which fleets were looked at again, with how many runs, and for which confidence."""
        used = self.workers.further_runs
        if not used:
            return []
        which = (
            f"{', '.join(fleets)} {'was' if len(fleets) == 1 else 'were'}" if fleets else "fleets under changes were"
        )
        later = f"{looks.later(self.options.confidence) * 100:.4g}%"
        return [
            f"{which} looked at again, because the interval of the first run left a target open: further looks took "
            f"{used:,} runs (one 16 times as long counts as 16; at most {looks.MOST_RUNS:,}). Their intervals are for "
            f"{later}, so that all looks together err no more often than one for {self.options.confidence * 100:.4g}%"
        ]

    @staticmethod
    def _announce(about: ChoiceSearch, best: Evaluation) -> list[assumptions.Screened]:
        """Have what the explanation needs at any rate simulated early; return the screened assumptions."""
        about.candidates.announce(first_cases(about.candidates, best), redraws=redraws_of(best))
        screened = assumptions.screen(about.candidates, about.run, best)
        about.candidates.announce(assumptions.cases(best, screened))
        return screened

    def _searched(self) -> dict[str, object]:
        """Return what the plan chooses among: the values of each key, and the numbers of each entry and of entries."""
        most: dict[str, int] = {}
        for search in self.searches:
            for name, n in zip(search.names, search.candidates.max_devices, strict=True):
                most[name] = max(n, most.get(name, 0))
        counts = {name: [0, n] for name, n in most.items()}
        entries = max(search.entries for search in self.searches)
        return {"count": counts, "max_entries": min(self.options.max_entries, entries), **self.options.search}

    def _held(self) -> dict[str, object]:
        """Return the keys of the scenario that stay as they are in every fleet."""
        resolved = self.scenario.resolved()
        held = {key: resolved[key] for key in HELD if _is_stated(resolved.get(key))}
        for text in self.options.search:
            _remove(held, parse_path(text))
        return held

    def _compared(self, search: ChoiceSearch, fleets: Sequence[Evaluation]) -> ComparedChoice:
        """Return what is known of the fleets with the values of a choice."""
        places = [i for i, fleet in enumerate(fleets) if fleet.choice == search.number]
        bound = search.lower.objective.value
        lower = OBJECTIVES[self.options.objective].shown(bound) if math.isfinite(bound) else None
        return ComparedChoice(
            values=search.choice.values,
            text=search.choice.text,
            fleet=next(iter(places), None),
            confident=next((i for i in places if fleets[i].meets.confidence), None),
            lower_bound=lower,
            simulated=len(search.evaluations()),
        )


def _entry_of(error: InputError) -> int | None:
    """Return the fleet entry that an error is about; None if it is about something else."""
    path = parse_path(error.where.field or "")
    return path[1] if path[:1] == ("fleet",) and len(path) > 1 and isinstance(path[1], int) else None


def _merged(searches: Sequence[SearchResult]) -> SearchResult:
    """Return what several searches prove together."""
    return SearchResult(
        proof=max((search.proof for search in searches), key=_PROOFS.index),
        unexplored=sum(search.unexplored for search in searches),
        considered=sum(search.considered for search in searches),
        rounds=sum(search.rounds for search in searches),
    )


def _lowest(bounds: Sequence[LowerBound], objective: str) -> LowerBound:
    """Return the lower bound over several choices: no fleet of any of them is lower."""

    def value(number: float | None) -> float:
        return math.inf if number is None else number

    cost = min(bounds, key=lambda bound: value(bound.cost_usd_per_h))
    shown = OBJECTIVES[objective].shown
    best = min(bounds, key=lambda bound: math.inf if bound.objective is None else shown(bound.objective))
    # Without a bound on what autoscaling costs for one choice there is none for all.
    scaled = min(bounds, key=lambda bound: bound.autoscaler_usd_per_h or 0.0)
    return replace(scaled, cost_usd_per_h=cost.cost_usd_per_h, devices=cost.devices, objective=best.objective)


def _gap(objective: Objective, best: float, bound: float | None) -> float | None:
    """Return the largest possible excess of the best fleet over the optimum, relative to the best fleet.

    ``best`` is the value that a search minimises, and ``bound`` is as it is shown.
    """
    return None if bound is None or not best else max(0.0, 1 - objective.shown(bound) / best)


def _is_stated(value: object) -> bool:
    """Return whether a key of a resolved scenario has a value that is not the default of each of its parts."""
    return bool(value) and not (isinstance(value, dict) and all(inner is None for inner in value.values()))


def _remove(data: dict[str, object], path: NodePath) -> None:
    """Remove the value at ``path``, if there is one."""
    inner: object = data
    for part in path[:-1]:
        inner = inner.get(str(part)) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(str(path[-1]), None)
