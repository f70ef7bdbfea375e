"""Sensitivity of an answer to the load and to errors of the device models, found by simulation."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import ChangeEffect
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning.bounds import Counts
from windtunnel.planning.candidates import Candidates
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.simulate import Case
from windtunnel.simulation.sources import model_accuracy, widest_error

_STEPS = 4
"""The number of fleets that are one step from the best and are tried for each change."""
_KNOWN = 6
"""The number of fleets tried for each change among those that the search simulated at the scenario's own load."""

Speeds = tuple[float, ...]


@dataclass(frozen=True)
class _Change:
    """A change of the load, of the devices' speeds, or of the lengths of requests.

    ``increases_load``: a fleet that fails without the change fails with it too.
    """

    text: str
    load: float
    speeds: Speeds
    increases_load: bool
    prompt: float = 1.0
    output: float = 1.0

    def case(self, counts: Counts) -> Case:
        """Return a fleet under the change."""
        return Case(counts, self.load, self.speeds, self.prompt, self.output)


class Changes:
    """The best fleet under each change, and the cheapest fleet found that meets the targets under it.

    ``prepared`` is the run of the candidates, and ``simulated`` what the search has simulated. Every run has the
    scenario's seed, so that rows differ by the change only. ``goal``: whether fleets must meet the targets by
    ``value``, or with ``confidence``.
    """

    def __init__(
        self,
        candidates: Candidates,
        prepared: PreparedRun,
        best: Evaluation,
        simulated: Sequence[Evaluation],
        goal: str,
    ) -> None:
        self.candidates = candidates
        self.prepared = prepared
        self.best = best
        self.goal = goal
        self.simulated = simulated
        self.asked = self._asked()

    @property
    def first_cases(self) -> list[Case]:
        """The best fleet under each change."""
        return [change.case(self.best.counts) for change in self.asked]

    def effects(self) -> list[ChangeEffect]:
        """Return the effect of each change. All searches advance together, so that fleets are simulated in parallel."""
        judge, asked = self.candidates.judge, self.asked
        try:
            here = judge(self.first_cases)
        except InputError:
            asked = [change for change in asked if self._is_possible(change)]
            here = judge([change.case(self.best.counts) for change in asked])
        walks = [
            self._walk(change, evaluation.reaches(self.goal)) for change, evaluation in zip(asked, here, strict=True)
        ]
        ends: dict[int, tuple[Evaluation | None, int]] = {}
        answers: dict[int, Evaluation | None] = dict.fromkeys(range(len(walks)))
        while answers:
            cases: dict[int, Case] = {}
            for i, answer in answers.items():
                try:
                    cases[i] = next(walks[i]) if answer is None else walks[i].send(answer)
                except StopIteration as end:
                    ends[i] = end.value
            tried = [replace(case, until_lost=True) for case in cases.values()]
            answers = dict(zip(cases, judge(tried), strict=True))
        pairs = enumerate(zip(asked, here, strict=True))
        return [self._effect(change, evaluation, *ends[i]) for i, (change, evaluation) in pairs]

    def _is_possible(self, change: _Change) -> bool:
        """Return whether the scenario allows a change; if not, a note says why."""
        try:
            self.candidates.judge([change.case(self.best.counts)])
        except InputError as error:
            self.candidates.notes.append(f"{change.text}: not known, because {error.problem}")
            return False
        return True

    def _asked(self) -> list[_Change]:
        everywhere = range(self.candidates.entries)
        asked = [
            _Change("20% more load", 1.2, (), True),
            _Change("20% less load", 0.8, (), False),
            _Change("Every device 10% slower than its model", 1.0, tuple(1 / 1.1 for _ in everywhere), True),
            _Change("Every device 10% faster than its model", 1.0, tuple(1 / 0.9 for _ in everywhere), False),
        ]
        if self.best.tpot_mean_s is not None:
            asked.append(_Change("Prompts 20% longer", 1.0, (), True, prompt=1.2))
            asked.append(_Change("Outputs 20% longer", 1.0, (), True, output=1.2))
        run, counts = self.prepared, self.best.counts
        mine = {key: program for key, program in run.compiled.items() if counts[key[0]]}
        accuracies = model_accuracy(mine, run.classes)
        for i, n in enumerate(counts):
            error = widest_error(accuracies, self.candidates.devices[i].label) if n else None
            if error is not None:
                slower = tuple(1 / error.factor if i == j else 1.0 for j in everywhere)
                name = self.candidates.names[i]
                text = (
                    f"Every time on {name} {error.factor:.3g} times its model's, the upper bound of the 90% interval "
                    f"of {error.op}, its least certain operation"
                )
                asked.append(_Change(text, 1.0, slower, True))
        return asked

    def _effect(self, change: _Change, here: Evaluation, other: Evaluation | None, tried: int) -> ChangeEffect:
        names, bound = self.candidates.names, evaluating.binding(here)
        before = None if bound is None else self.best.target(bound.text)
        return ChangeEffect(
            change=change.text,
            load=change.load,
            speeds=dict(zip(names, change.speeds or (1.0,) * self.candidates.entries, strict=True)),
            prompt=change.prompt,
            output=change.output,
            increases_load=change.increases_load,
            goal=self.goal,
            still_meets=here.reaches(self.goal),
            meets=here.meets,
            headroom=None if bound is None else bound.headroom,
            binding=bound,
            explained_by_interval=(
                bound is not None and before is not None and evaluating.explained_by_interval(before, bound)
            ),
            violations=evaluating.violations(here),
            candidates_tried=tried,
            fleet=None if other is None else self.candidates.text(other.counts),
            devices=None if other is None else self.candidates.named(other.counts),
            objective_text=None if other is None else self.candidates.objective_text(other),
        )

    def _walk(self, change: _Change, holds: bool) -> Generator[Case, Evaluation, tuple[Evaluation | None, int]]:
        """Search the cheapest fleet that meets the targets, among simulated fleets and those one step from the best.

        Yields the next case to simulate and receives its evaluation. Returns the fleet and the number of fleets tried.
        """
        if change.increases_load and holds:
            return None, 0  # no cheaper fleet meets the targets without the change
        tried, limit = 0, math.inf
        cheapest: Evaluation | None = None
        for counts in self._larger(change) if change.increases_load else self._cheaper(change):
            tried += 1
            evaluation = yield change.case(counts)
            if evaluation.reaches(self.goal):
                cheapest, limit = evaluation, self.candidates.objective_lower_bound(counts)
                break
        if change.increases_load and cheapest is not None:
            smaller, further_tried = yield from self._between(change, cheapest.counts)
        elif change.increases_load or not holds:
            return cheapest, tried
        else:
            smaller, further_tried = yield from self._fewer(change, limit)
        return smaller or cheapest, tried + further_tried

    def _between(self, change: _Change, found: Counts) -> Generator[Case, Evaluation, tuple[Evaluation | None, int]]:
        """Bisect between the best fleet, which fails under the change, and a larger one that meets the targets."""
        more = [b - a for a, b in zip(self.best.counts, found, strict=True)]
        low, high, tried = 0, max(more), 0
        smallest: Evaluation | None = None
        while min(more) >= 0 and high - low > 1 and tried < _STEPS:
            middle = (low + high) // 2
            counts = tuple(a + math.ceil(n * middle / max(more)) for a, n in zip(self.best.counts, more, strict=True))
            tried += 1
            evaluation = yield change.case(counts)
            if evaluation.reaches(self.goal):
                smallest, high = evaluation, middle
            else:
                low = middle
        return smallest, tried

    def _larger(self, change: _Change) -> list[Counts]:
        """Return fleets that meet the targets without the change, and the best with more devices, cheapest first."""
        best = self.best.counts
        steps = [tuple(n + (i == j) for j, n in enumerate(best)) for i in reversed(self._entries_by_price(best))]
        steps += [tuple(math.ceil(n * factor) for n in best) for factor in (1.15, 1.3, 1.6)]
        steps = [s for s in dict.fromkeys(steps) if s != best]
        counts = [e.counts for e in self.simulated if e.reaches(self.goal)]
        others = [c for c in self._ranked(counts, change) if c != best]
        return self._ranked([*others[:_KNOWN], *steps[:_STEPS]], change)

    def _cheaper(self, change: _Change) -> list[Counts]:
        """Return cheaper fleets that narrowly fail without the change; the cheapest first."""
        best = self.candidates.objective_lower_bound(self.best.counts)
        counts = [e.counts for e in self.simulated if not e.reaches(self.goal)]
        known = {e.counts: e for e in self.simulated}

        def nearness(counts: Counts) -> tuple[float, float]:
            # Of runs that were ended because a target was lost, those that lasted longer are nearer.
            evaluation = known[counts]
            if evaluation.stopped_after is not None:
                return 1.0, -evaluation.stopped_after
            return 0.0, -evaluating.least_headroom(evaluation)

        ranked = self._ranked(counts, change)
        near = sorted(
            (c for c in ranked if self.candidates.objective_lower_bound(c) < best * (1 - 1e-12)), key=nearness
        )
        return self._ranked(near[:_KNOWN], change)

    def _fewer(self, change: _Change, limit: float) -> Generator[Case, Evaluation, tuple[Evaluation | None, int]]:
        """Remove devices from the best while it meets the targets; only fleets cheaper than ``limit`` are returned."""
        now: Counts = self.best.counts
        cheapest: Evaluation | None = None
        tried, shrinking = 0, True
        while shrinking and tried < _STEPS:
            shrinking = False
            for i in self._entries_by_price(now):
                step = max(1, now[i] // 8)
                less = tuple(n - step * (i == j) for j, n in enumerate(now))
                if now[i] < step or not self._ranked([less], change) or tried >= _STEPS:
                    continue
                tried += 1
                evaluation = yield change.case(less)
                if evaluation.reaches(self.goal):
                    now, shrinking = less, True
                    if self.candidates.objective_lower_bound(less) < limit:
                        cheapest = evaluation
                    break
        return cheapest, tried

    def _entries_by_price(self, counts: Counts) -> list[int]:
        """Return the entries that a fleet has, the most expensive first."""
        return sorted((i for i, n in enumerate(counts) if n), key=lambda i: (-self.candidates.prices[i], i))

    def _ranked(self, fleets: Sequence[Counts], change: _Change) -> list[Counts]:
        """Return each fleet once, the cheapest first, without those that the lower bound or their rent excludes."""
        slowest = min(change.speeds, default=1.0) if change.increases_load else max(change.speeds, default=1.0)
        # A limit on the cost of tokens allows more rent where more of them are produced.
        max_cost = self.candidates.max_cost * max(change.load, 1.0)
        kept = [c for c in dict.fromkeys(fleets) if self.candidates.may_be_feasible(Case(c))]
        kept = [c for c in kept if float(np.dot(c, self.candidates.rents)) <= max_cost * (1 + 1e-9)]
        kept = [
            c for c in kept if self.candidates.bounds.load(c)[0] * change.load / slowest <= 1.0 or change.increases_load
        ]
        return sorted(kept, key=lambda c: (self.candidates.objective_lower_bound(c), sum(c), c))
