"""Sensitivity of an answer to the load and to errors of the device models, found by simulation."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import cast

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import ChangeEffect
from windtunnel.core.results.run import DeviceAccuracy
from windtunnel.core.results.target import ModelInterval
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning import looks
from windtunnel.planning.bounds import Counts
from windtunnel.planning.candidates import Candidates
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.simulate import USUAL, Case, Redraws
from windtunnel.scenario.policy import ContinuousBatch, PolicyParts
from windtunnel.scenario.program import Generate, flattened
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.sources import widest_error

LOAD_CHANGES = (1.2, 0.8)
"""The loads under which the recommended fleet is judged, as factors on the scenario's."""
_STEPS = 4
"""The number of fleets that are one step from the best and are tried for each change."""
_KNOWN = 6
"""The number of fleets tried for each change among those that the search simulated at the scenario's own load."""

_OTHERS = 6
"""The number of other fleets, cheaper than the one that was found, that are tried for each change."""
_BOUNDED = 200
"""The number of them whose lower bound is computed."""
_MOST_FLEETS = 100_000
"""The number of fleets above which these are not listed."""

Fleet = tuple[int, Counts]
"""The number of a choice, and the devices of each of its entries."""
Step = Sequence[tuple[int, Case]]
"""A case of a choice, by its number, and those that a walk asks for next unless the answer to the first ends it."""
Walk = Generator[Step, Evaluation, tuple[Evaluation | None, int]]


class _Unable:
    """The evaluation of a fleet that cannot do the changed work, as far as a walk asks for it."""

    def reaches(self, _goal: str) -> bool:
        return False


@dataclass(frozen=True)
class _Change:
    """A change of the load, of the devices' speeds, or of the lengths of requests, or another window of the trace.

    ``device``: the device whose speed changes, by its label; None for all of them. ``increases_load``: a fleet that
    fails without the change fails with it too, or no cheaper one is sought (``window``, see ``Case``). ``lost``: the
    entry of the best fleet of which ``replicas`` are out of service.
    """

    text: str
    increases_load: bool
    load: float = 1.0
    speed: float = 1.0
    device: str | None = None
    prompt: float = 1.0
    output: float = 1.0
    lost: int | None = None
    replicas: int = 1
    window: tuple[float, float] | None = None

    @property
    def work(self) -> float:
        """The factor on the tokens that are produced, as far as it is known; infinite for another window."""
        return self.load if self.window is None else math.inf

    def speeds(self, candidates: Candidates) -> tuple[float, ...]:
        """Return the factor on the speed of each entry."""
        return tuple(self.speed if self.device in (None, device.label) else 1.0 for device in candidates.devices)

    def affects(self, candidates: Candidates, counts: Counts) -> bool:
        """Return whether anything changes for a fleet."""
        used = [factor for factor, n in zip(self.speeds(candidates), counts, strict=True) if n]
        return self.device is None or any(factor != 1.0 for factor in used)

    def case(self, candidates: Candidates, counts: Counts) -> Case:
        """Return a fleet under the change."""
        speeds: tuple[float, ...] = ()
        steps: tuple[float, ...] = ()
        if self.speed != 1.0 and self.affects(candidates, counts):
            speeds = self.speeds(candidates)
        if self.device is not None and _only_generates(candidates.scenario):
            # The error is that of whole steps, of which a device's speed changes only the operations.
            steps = tuple(1.0 / factor for factor in speeds)
            speeds = ()
        left = tuple(n - self.replicas * (i == self.lost) for i, n in enumerate(counts))
        return Case(left, self.load, speeds, steps, self.prompt, self.output, window=self.window)


def _for_verdict(case: Case) -> Case:
    """Return the case of which only the verdict is asked for; the intervals of one without a change may be shown."""
    return replace(case, until_lost=True, until_unsure=case != Case(case.counts))


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _only_generates(scenario: Scenario) -> bool:
    """Return whether all that jobs do is steps of serving engines."""
    policy = scenario.policy
    continuous = isinstance(policy, PolicyParts) and isinstance(policy.batch, ContinuousBatch)
    return continuous and all(isinstance(s, Generate) for program in scenario.programs for s in flattened(program))


def _fleets_between(candidates: Candidates, least: float, most: float) -> list[Counts]:
    """Return the fleets whose devices add from ``least`` to less than ``most`` to the objective, the cheapest first.

    It is empty where there are too many to list.
    """
    weights, entries = candidates.weights[0], candidates.entries
    if not math.isfinite(most):
        return []
    largest = [
        n if not weight else min(n, math.floor(most / weight))
        for n, weight in zip(candidates.max_counts, weights, strict=True)
    ]
    kept: list[np.ndarray] = []
    listed = 0
    for kinds in range(1, min(candidates.plan.max_entries, entries) + 1):
        for chosen in combinations(range(entries), kinds):
            listed += math.prod(largest[i] for i in chosen)
            if listed > _MOST_FLEETS:
                return []
            grid = np.meshgrid(*(np.arange(1, largest[i] + 1) for i in chosen), indexing="ij")
            fleets = np.zeros((grid[0].size, entries), dtype=np.int64)
            for i, column in zip(chosen, grid, strict=True):
                fleets[:, i] = column.ravel()
            value = fleets @ weights
            kept.append(fleets[(value >= least) & (value < most)])
    rows = [tuple(row) for row in np.concatenate(kept).tolist()]
    return sorted(rows, key=lambda counts: (candidates.objective_lower_bound(counts), sum(counts), counts))


def redraws_of(best: Evaluation) -> Redraws:
    """Return the redrawn runs that judge the recommended fleet under changes and at other loads."""
    return Redraws(looks.EXPLAINING) if best.redrawn_runs >= looks.CONFIRMING else USUAL


class Changes:
    """The best fleet under each change, and the cheapest fleet found that meets the targets under it.

    ``choices`` has the candidates of each choice by its number, ``accuracies`` are the errors of the models of the best
    fleet's devices, and ``simulated`` is what the searches have simulated. Every run has the scenario's seed, so that
    rows differ by the change only, and a fleet is looked at again only if the best one was. Fleets must meet the
    targets as the best one does: with confidence, or by value.
    """

    def __init__(
        self,
        choices: Mapping[int, Candidates],
        accuracies: Sequence[DeviceAccuracy],
        best: Evaluation,
        simulated: Sequence[Evaluation],
    ) -> None:
        self.choices = choices
        self.candidates = choices[best.choice]
        self.accuracies = accuracies
        self.best = best
        self.simulated = simulated
        self.asked = self._asked()

    @property
    def first_cases(self) -> list[Case]:
        """The best fleet under each change."""
        return self._of_best(self.asked)

    def effects(self) -> list[ChangeEffect]:
        """Return the effect of each change. All searches advance together, so that fleets are simulated in parallel."""
        asked = self.asked
        try:
            here = self._judge_best(self.first_cases)
        except InputError:
            asked = [change for change in asked if self._is_possible(change)]
            here = self._judge_best(self._of_best(asked))
        walks = [
            self._walk(change, evaluation.reaches(self._goal_of(change)))
            for change, evaluation in zip(asked, here, strict=True)
        ]
        ends: dict[int, tuple[Evaluation | None, int]] = {}
        answers: dict[int, Evaluation | None] = dict.fromkeys(range(len(walks)))
        while answers:
            steps: dict[int, Step] = {}
            for i, answer in answers.items():
                try:
                    steps[i] = next(walks[i]) if answer is None else walks[i].send(answer)
                except StopIteration as end:
                    ends[i] = end.value
            answers = self._judged(steps)
        found = {i: other for i, (other, _) in ends.items() if other is not None and asked[i].device is not None}
        errors = {i: self.choices[other.choice].model_intervals(other) for i, other in found.items()}
        pairs = enumerate(zip(asked, here, strict=True))
        return [self._effect(change, here, *ends[i], errors.get(i, ())) for i, (change, here) in pairs]

    def _goal_of(self, change: _Change) -> str:
        """Return how the best fleet is judged under a change.

        The error of a device's model is judged by the value, as the intervals of the targets for that error are.
        """
        return self.best.goal if change.device is None else "value"

    def _judge_best(self, cases: Sequence[Case]) -> list[Evaluation]:
        return self.candidates.judge(cases, self.best.judged_for, redraws=redraws_of(self.best))

    def _of_best(self, asked: Sequence[_Change]) -> list[Case]:
        return [change.case(self.candidates, self.best.counts) for change in asked]

    def _judged(self, steps: Mapping[int, Step]) -> dict[int, Evaluation | None]:
        """Simulate a case of a choice for each walk, all of them together."""
        judged: dict[int, Evaluation | None] = {}
        cases = {i: step[0] for i, step in steps.items()}
        by_choice = {
            number: {i: _for_verdict(case) for i, (choice, case) in cases.items() if choice == number}
            for number in sorted({choice for choice, _ in cases.values()})
        }
        likely = [(number, _for_verdict(case)) for step in steps.values() for number, case in step[1:]]
        self.candidates.simulator.workers.expect(
            [task for number, case in likely for task in self.choices[number].unknown([case])]
        )
        for number, own in by_choice.items():
            self.choices[number].announce(list(own.values()))
        for number, own in by_choice.items():
            judged |= dict(zip(own, self._judge_others(number, list(own.values())), strict=True))
        return judged

    def _judge_others(self, choice: int, cases: Sequence[Case]) -> list[Evaluation]:
        """Judge other fleets under changes; one that cannot do the changed work meets no target."""
        try:
            return self.choices[choice].judge(cases, self.best.judged_for)
        except InputError:
            if len(cases) > 1:
                return [self._judge_others(choice, [case])[0] for case in cases]
            return [cast(Evaluation, _Unable())]

    def _is_possible(self, change: _Change) -> bool:
        """Return whether the scenario allows a change; if not, a note says why."""
        try:
            self._judge_best(self._of_best([change]))
        except InputError as error:
            self.candidates.notes.append(f"{change.text}: not known, because then {error.problem}")
            return False
        return True

    def _asked(self) -> list[_Change]:
        more, less = LOAD_CHANGES
        asked = [
            _Change(f"{more - 1:.0%} more load", True, load=more),
            _Change(f"{1 - less:.0%} less load", False, load=less),
            *self._busiest(),
            _Change("Every device 10% slower than its model", True, speed=1 / 1.1),
            _Change("Every device 10% faster than its model", False, speed=1 / 0.9),
        ]
        if self.best.tpot_mean_s is not None:
            asked.append(_Change("Prompts 20% longer", True, prompt=1.2))
            asked.append(_Change("Outputs 20% longer", True, output=1.2))
        asked += self._losses()
        asked = [c for c in asked if self.candidates.may_be_feasible(c.case(self.candidates, self.best.counts))]
        used = dict.fromkeys(
            device.label for device, n in zip(self.candidates.devices, self.best.counts, strict=True) if n
        )
        for label in used:
            error = widest_error(self.accuracies, label)
            if error is not None:
                text = (
                    f"Every time on {label} {error.factor:.3g} times its model's, the upper bound of the 90% interval "
                    f"of {error.op}, its least certain operation"
                )
                asked.append(_Change(text, True, speed=1 / error.factor, device=label))
        return asked

    def _busiest(self) -> list[_Change]:
        """Return the busiest window of the trace in place of the scenario's, if there is one."""
        own = self.candidates.busiest_window
        if own is None:
            return []
        begin, more = own.busiest_from_s, f"with {own.most_rows / own.rows - 1:.1%} more arrivals"
        text = f"The busiest {own.length_s:,.6g} s of the trace, from {begin:,.6g} s on, {more}"
        return [_Change(text, True, window=(begin, begin + own.length_s))]

    def _losses(self) -> list[_Change]:
        """Return the loss of one replica of each entry, and that of a node where it has several."""
        candidates, found = self.candidates, []
        for i, n in enumerate(self.best.counts):
            if not n or candidates.plan.spare or i in candidates.scaled:
                continue
            of_node = min(n, (candidates.node_devices(i) or 0) // candidates.sizes[i])
            for replicas in sorted({1, max(of_node, 1)}):
                text = f"{_capitalized(candidates.replicas_text(i, replicas))} out of service"
                found.append(_Change(text, True, lost=i, replicas=replicas))
        return found

    def _effect(
        self,
        change: _Change,
        here: Evaluation,
        other: Evaluation | None,
        tried: int,
        model_intervals: Sequence[ModelInterval],
    ) -> ChangeEffect:
        names, bound = self.candidates.names, evaluating.binding(here)
        before = None if bound is None else self.best.target(bound.text)
        found = None if other is None else self.choices[other.choice]
        return ChangeEffect(
            change=change.text,
            load=change.load,
            speeds=dict(zip(names, change.speeds(self.candidates), strict=True)),
            prompt=change.prompt,
            output=change.output,
            increases_load=change.increases_load,
            goal=self._goal_of(change),
            still_meets=here.reaches(self._goal_of(change)),
            meets=here.meets,
            headroom=None if bound is None else bound.headroom,
            binding=bound,
            explained_by_interval=(
                bound is not None and before is not None and evaluating.explained_by_interval(before, bound)
            ),
            violations=evaluating.violations(here),
            candidates_tried=tried,
            device=change.device,
            fleet=None if found is None or other is None else found.text(other.counts),
            devices=None if found is None or other is None else found.named(other.counts),
            objective_text=None if found is None or other is None else found.objective_text(other),
            model_intervals=model_intervals,
            lost=None if change.lost is None else names[change.lost],
            lost_replicas=0 if change.lost is None else change.replicas,
            window=change.window,
            lost_devices=0 if change.lost is None else change.replicas * self.candidates.sizes[change.lost],
        )

    def _walk(self, change: _Change, holds: bool) -> Walk:
        """Search the cheapest fleet that meets the targets, among simulated fleets and those one step from the best.

        Yields the next case to simulate and receives its evaluation. Returns the fleet and the number of fleets tried.
        """
        if change.lost is not None or (change.increases_load and holds):
            return None, 0  # no cheaper fleet meets the targets without the change
        tried, limit = 0, math.inf
        cheapest: Evaluation | None = None
        for fleet in self._larger(change) if change.increases_load else self._cheaper(change):
            tried += 1
            evaluation = yield [self._case(change, fleet)]
            if evaluation.reaches(self.best.goal):
                cheapest, limit = evaluation, self._rank(fleet)
                break
        if change.increases_load and cheapest is not None:
            smaller, further_tried = yield from self._between(change, cheapest)
            other, others_tried = yield from self._others(change, smaller or cheapest)
            smaller, further_tried = other or smaller, further_tried + others_tried
        elif change.increases_load or not holds:
            return cheapest, tried
        else:
            smaller, further_tried = yield from self._fewer(change, limit)
        return smaller or cheapest, tried + further_tried

    def _case(self, change: _Change, fleet: Fleet) -> tuple[int, Case]:
        return fleet[0], change.case(self.choices[fleet[0]], fleet[1])

    def _rank(self, fleet: Fleet) -> float:
        """Return what the devices of a fleet add to the objective at least."""
        return self.choices[fleet[0]].objective_lower_bound(fleet[1])

    def _between(self, change: _Change, found: Evaluation) -> Walk:
        """Bisect between the best fleet, which fails under the change, and a larger one that meets the targets."""
        if found.choice != self.best.choice:
            return None, 0
        more = [b - a for a, b in zip(self.best.counts, found.counts, strict=True)]
        low, high, tried = 0, max(more), 0
        smallest: Evaluation | None = None
        while min(more) >= 0 and high - low > 1 and tried < _STEPS:
            middle = (low + high) // 2
            counts = tuple(a + math.ceil(n * middle / max(more)) for a, n in zip(self.best.counts, more, strict=True))
            tried += 1
            evaluation = yield [self._case(change, (self.best.choice, counts))]
            if evaluation.reaches(self.best.goal):
                smallest, high = evaluation, middle
            else:
                low = middle
        return smallest, tried

    def _others(self, change: _Change, found: Evaluation) -> Walk:
        """Try other fleets with the best one's searched values that cost less than ``found``, the cheapest first.

        No fleet that is cheaper than the best meets the targets without the change, so none does with it.
        """
        choice, candidates = self.best.choice, self.candidates
        least, most = (self._rank((e.choice, e.counts)) for e in (self.best, found))
        fleets = _fleets_between(candidates, least * (1 - 1e-12), most * (1 - 1e-12))
        more_load = change.load / (change.speed if change.device is None else 1.0)

        def is_open(counts: Counts) -> bool:
            known = candidates.simulator.found(_for_verdict(change.case(candidates, counts)))
            excluded = not self._ranked([(choice, counts)], change)
            return known is None and not excluded and candidates.bounds.load(counts)[0] * more_load <= 1.0

        tried = 0
        following = (self._case(change, (choice, counts)) for counts in fleets[:_BOUNDED] if is_open(counts))
        steps = list(islice(following, 1))
        while steps and tried < _OTHERS:
            tried += 1
            steps += islice(following, 1 if tried < _OTHERS else 0)
            evaluation = yield steps
            if evaluation.reaches(self.best.goal):
                return evaluation, tried
            del steps[0]
        return None, tried

    def _larger(self, change: _Change) -> list[Fleet]:
        """Return fleets that meet the targets without the change, and the best with more devices, cheapest first.

        The cheapest fleet that a change of one device does not affect is always among them.
        """
        best, choice = self.best.counts, self.best.choice
        steps = [tuple(n + (i == j) for j, n in enumerate(best)) for i in reversed(self._entries_by_price(best))]
        steps += [tuple(math.ceil(n * factor) for n in best) for factor in (1.15, 1.3, 1.6)]
        steps = [s for s in dict.fromkeys(steps) if s != best]
        known = [(e.choice, e.counts) for e in self.simulated if e.reaches(self.best.goal)]
        others = [fleet for fleet in self._ranked(known, change) if fleet != (choice, best)]
        affected = [fleet for fleet in others if change.affects(self.choices[fleet[0]], fleet[1])]
        unaffected = [fleet for fleet in others if fleet not in affected]
        own = [(choice, counts) for counts in steps[:_STEPS]]
        return self._ranked([*unaffected[:1], *affected[:_KNOWN], *own], change)

    def _cheaper(self, change: _Change) -> list[Fleet]:
        """Return cheaper fleets that narrowly fail without the change; the cheapest first."""
        best = self._rank((self.best.choice, self.best.counts))
        known = {(e.choice, e.counts): e for e in self.simulated if not e.reaches(self.best.goal)}

        def nearness(fleet: Fleet) -> tuple[float, float]:
            # Of runs that were ended because a target was lost, those that lasted longer are nearer.
            evaluation = known[fleet]
            if evaluation.stopped_after is not None:
                return 1.0, -evaluation.stopped_after
            return 0.0, -evaluating.least_headroom(evaluation)

        ranked = self._ranked(list(known), change)
        near = sorted((fleet for fleet in ranked if self._rank(fleet) < best * (1 - 1e-12)), key=nearness)
        return self._ranked(near[:_KNOWN], change)

    def _fewer(self, change: _Change, limit: float) -> Walk:
        """Remove devices from the best while it meets the targets; only fleets cheaper than ``limit`` are returned."""
        now: Counts = self.best.counts
        cheapest: Evaluation | None = None
        tried, shrinking = 0, True
        while shrinking and tried < _STEPS:
            shrinking = False
            for i in self._entries_by_price(now):
                step = max(1, now[i] // 8)
                less = self.best.choice, tuple(n - step * (i == j) for j, n in enumerate(now))
                if now[i] < step or not self._ranked([less], change) or tried >= _STEPS:
                    continue
                tried += 1
                evaluation = yield [self._case(change, less)]
                if evaluation.reaches(self.best.goal):
                    now, shrinking = less[1], True
                    if self._rank(less) < limit:
                        cheapest = evaluation
                    break
        return cheapest, tried

    def _entries_by_price(self, counts: Counts) -> list[int]:
        """Return the entries that a fleet has, the most expensive first."""
        return sorted((i for i, n in enumerate(counts) if n), key=lambda i: (-self.candidates.prices[i], i))

    def _ranked(self, fleets: Sequence[Fleet], change: _Change) -> list[Fleet]:
        """Return each fleet once, the cheapest first, without those that the lower bound or their rent excludes."""

        def is_excluded(fleet: Fleet) -> bool:
            candidates, counts = self.choices[fleet[0]], fleet[1]
            # A limit on the cost of tokens allows more rent where more of them are produced.
            max_cost = candidates.max_cost * max(change.work, 1.0) * (1 + 1e-9)
            if not candidates.may_be_feasible(Case(counts)) or float(np.dot(counts, candidates.rents)) > max_cost:
                return True
            return not change.increases_load and candidates.bounds.load(counts)[0] * change.load / change.speed > 1.0

        kept = [fleet for fleet in dict.fromkeys(fleets) if not is_excluded(fleet)]
        return sorted(kept, key=lambda fleet: (self._rank(fleet), sum(fleet[1]), fleet))
