"""The search for the cheapest fleets: branch and bound over counts, in which the simulation decides.

A plan searches twice: for the cheapest fleet that meets the targets by value, and from there on for the cheapest that
meets them with confidence.

Fleets are simulated in rounds. The fleets of a round depend only on the verdicts of earlier rounds, not on the number
or the speed of workers, so the result is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Protocol

import numpy as np

from windtunnel.core.results.objective import GIVE_UP
from windtunnel.core.ticks import FloatArray
from windtunnel.planning.bounds import Counts, DualCut

ROUND = 4
"""Fleets simulated in one round. It does not depend on the number of workers."""

_MOST_FLEETS = 400_000
_CUTS = 200


@dataclass(frozen=True)
class Verdict:
    """The result of simulating a fleet: whether it meets all targets, and its value of the objective.

    A fleet that does not meet them rules out the fleets that it contains, unless its verdict is not ``conclusive``.
    """

    met: bool
    value: float
    conclusive: bool = True


class Evaluate(Protocol):
    """Simulates fleets and returns verdicts in their order."""

    def __call__(self, fleets: Sequence[Counts]) -> Sequence[Verdict]:
        """Return the verdict of each fleet."""


@dataclass(frozen=True)
class Space:
    """The search space: at most ``max_counts`` devices of each entry, and at most ``max_entries`` entries in one fleet.

    ``lower_bound`` returns the lower bound of the objective for an array of counts; shape (fleets, entries). It is
    infinite for a fleet that costs more than a target allows.
    """

    max_counts: Counts
    max_entries: int
    lower_bound: Callable[[np.ndarray], FloatArray]
    load: Callable[[Sequence[int]], tuple[float, DualCut]]
    """See ``Replicated.load``."""
    works: Callable[[Sequence[int]], bool] = lambda _: True
    """Whether fleets of these entries are valid: an entry with a role needs another one beside it."""


@dataclass(frozen=True)
class Alone:
    """Why no fleet of one entry alone was selected.

    ``cannot``: no number of devices suffices, by the lower bound. ``too_few`` and ``over_rent``: by the lower bound it
    takes ``count`` devices, which is more than are allowed, or costs more than a target allows. ``largest_fails``:
    ``count`` devices, the most that are allowed and that the rent allows, fail. ``not_searched``: ``count`` devices
    fail, and one more costs much more than the best fleet. ``not_better``: they fail, and one more is no better than
    the best fleet of another space. ``limit``: ``count`` devices fail, and then the search had simulated as many fleets
    as it may. ``count`` devices fail by simulation or by the lower bound.
    """

    kind: str
    count: int = 0


@dataclass
class SearchResult:
    """The result of a search. ``proof`` states what is known about cheaper fleets.

    ``exhaustive``: each was simulated or is ruled out by the lower bound. ``monotone``: each was simulated, is ruled
    out, or is part of a larger fleet that failed. ``open``: ``unexplored`` cheaper fleets were not examined.
    """

    verdicts: dict[Counts, Verdict] = field(default_factory=dict)
    best: Counts | None = None
    proof: str = "open"
    unexplored: int = 0
    considered: int = 0
    rounds: int = 0
    alone: dict[int, Alone] = field(default_factory=dict)
    """Why no fleet of an entry alone was selected, by entry."""
    notes: list[str] = field(default_factory=list)
    larger_fleet_fails: Counts | None = None
    """A fleet with one device more than the best that fails although the best does not, if there is one."""

    @property
    def value(self) -> float:
        """The best fleet's objective; infinite while there is none."""
        return float("inf") if self.best is None else self.verdicts[self.best].value


class Search:
    """A search of ``space`` that evaluates at most ``budget`` fleets.

    ``known`` has the verdicts of fleets that need not be evaluated, and every fleet whose lower bound of the objective
    is below ``above`` is known not to be the answer, unless it is in ``known``. Fleets that are no better than
    ``below``, the value of a fleet of another space, are not sought.
    """

    def __init__(
        self,
        space: Space,
        evaluate: Evaluate,
        budget: int,
        *,
        known: Mapping[Counts, Verdict] | None = None,
        above: float = 0.0,
        below: float = float("inf"),
    ) -> None:
        self.space = space
        self.evaluate = evaluate
        self.budget = budget + len(known or {})
        self.above = above
        self.below = below
        self.result = SearchResult()
        for counts, verdict in (known or {}).items():
            self._keep(counts, verdict)
        self.cuts: list[DualCut] = []
        self.impossible: set[Counts] = set()

    def run(self) -> SearchResult:
        """Search fleets of one entry by bisection, then all fleets that may be cheaper than the best of them."""
        self._alone()
        fleets = self._fleets()
        self.result.considered = len(fleets)
        self._mixed(fleets)
        self._neighbours()
        return self.result

    def run_bound_only(self) -> SearchResult:
        """Return what the lower bound states for each entry alone; no fleet is simulated."""
        self.budget = 0
        self._alone()
        self.result.alone = {e: alone for e, alone in self.result.alone.items() if alone.kind != "limit"}
        self.result.proof = "exhaustive"
        return self.result

    # Evaluation.

    def _evaluate(self, fleets: Sequence[Counts]) -> None:
        result = self.result
        new = [f for f in dict.fromkeys(fleets) if f not in result.verdicts][: self.budget - len(result.verdicts)]
        if not new:
            return
        result.rounds += 1
        for counts, verdict in zip(new, self.evaluate(new), strict=True):
            self._keep(counts, verdict)

    def _keep(self, counts: Counts, verdict: Verdict) -> None:
        result = self.result
        result.verdicts[counts] = verdict
        if verdict.met and (
            result.best is None or (verdict.value, sum(counts), counts) < (result.value, sum(result.best), result.best)
        ):
            result.best = counts

    @property
    def _limit(self) -> float:
        """The value that a fleet must be better than to be the answer."""
        return min(self.result.value, self.below)

    def _gives_up(self, lower_bound: float) -> bool:
        """Return whether a fleet of one entry is not sought, because its value would be at least ``lower_bound``."""
        return lower_bound > GIVE_UP * self.result.value or lower_bound >= self.below

    @property
    def _spent(self) -> bool:
        return len(self.result.verdicts) >= self.budget

    def _load(self, counts: Counts) -> float:
        """Return a fleet's minimum load, and keep the cut that it gives for other fleets."""
        load, cut = self.space.load(counts)
        if load > 1:
            self.impossible.add(counts)
            self.cuts.append(cut)
        return load

    def _lower_bound(self, counts: Counts) -> float:
        return float(self.space.lower_bound(np.array([counts]))[0])

    # Fleets of one entry.

    def _alone(self) -> None:
        low, high, step = self._alone_ranges()
        most = {e: self._most(e, np.inf) for e in low}
        active = set(low)
        while active and not self._spent:
            probes: dict[int, int] = {}
            for e in sorted(active):
                if e in high and high[e] - low[e] == 1:
                    active.discard(e)
                elif e not in high and low[e] >= most[e]:
                    self.result.alone[e] = Alone("largest_fails", most[e])
                    active.discard(e)
                elif self._gives_up(least := self._lower_bound(self._only(e, low[e] + 1))):
                    if e not in high:
                        kind = "not_searched" if least > GIVE_UP * self.result.value else "not_better"
                        self.result.alone[e] = Alone(kind, low[e])
                    active.discard(e)
                elif e in high:
                    probes[e] = (low[e] + high[e]) // 2
                else:
                    probes[e] = min(low[e] + step[e], most[e], self._most_sought(e, low[e] + 1, most[e]))
            # The cheapest first: what meets the targets ends the search of entries that cost much more.
            fleets = [self._only(e, n) for e, n in probes.items()]
            bound = self.space.lower_bound(np.array(fleets)) if fleets else np.zeros(0)
            self._evaluate([fleets[i] for i in np.argsort(bound, kind="stable")[:ROUND].tolist()])
            for e, n in probes.items():
                verdict = self.result.verdicts.get(self._only(e, n))
                if verdict is None:
                    continue
                if verdict.met:
                    high[e] = n
                else:
                    low[e] = n
                    step[e] *= 2
        for e in active - set(high):
            self.result.alone[e] = Alone("limit", low[e])

    def _most_sought(self, entry: int, low: int, high: int) -> int:
        """Return the largest number of devices of an entry, from ``low`` to ``high``, at which its search goes on."""
        while low < high:
            middle = (low + high + 1) // 2
            if self._gives_up(self._lower_bound(self._only(entry, middle))):
                high = middle - 1
            else:
                low = middle
        return low

    def _alone_ranges(self) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        """Return counts of each entry alone that fail, counts that meet the targets, where known, and first steps."""
        low: dict[int, int] = {}
        high: dict[int, int] = {}
        step: dict[int, int] = {}
        for e in range(len(self.space.max_counts)):
            load = self._load(self._only(e, 1))
            if not np.isfinite(load):
                self.result.alone[e] = Alone("cannot")
                continue
            minimum = max(1, int(np.ceil(load - 1e-9)))
            if minimum > self.space.max_counts[e]:
                self.result.alone[e] = Alone("too_few", minimum)
                continue
            if not np.isfinite(self._lower_bound(self._only(e, minimum))):
                self.result.alone[e] = Alone("over_rent", minimum)
                continue
            low[e], step[e] = minimum - 1, max(1, minimum // 4)
            alone = {c[e]: v for c, v in self.result.verdicts.items() if sum(c) == c[e]}
            met = [n for n, verdict in alone.items() if verdict.met]
            if met:
                high[e] = min(met)
            low[e] = max([low[e], *(n for n, v in alone.items() if not v.met and n < high.get(e, n + 1))])
        return low, high, step

    def _only(self, entry: int, count: int) -> Counts:
        return tuple(count if e == entry else 0 for e in range(len(self.space.max_counts)))

    # Fleets of several entries.

    def _fleets(self) -> np.ndarray:
        """Return every fleet whose lower bound is below the best value, as rows of counts."""
        entries, best = len(self.space.max_counts), self._limit
        blocks: list[np.ndarray] = []
        total = 0
        for kinds in range(1, min(self.space.max_entries, entries) + 1):
            for chosen in combinations(range(entries), kinds):
                if not self.space.works(chosen):
                    continue
                ranges = [np.arange(1, self._most(e, best) + 1) for e in chosen]
                size = int(np.prod([len(r) for r in ranges]))
                if size == 0:
                    continue
                if size > _MOST_FLEETS:
                    # There are too many fleets: use a stride, and state it in the notes.
                    stride = int(np.ceil((size / _MOST_FLEETS) ** (1 / kinds)))
                    ranges = [r[::stride] for r in ranges]
                    self.result.notes.append(
                        f"mixes of {kinds} entries were searched in steps of {stride} devices: there are too many"
                    )
                    size = int(np.prod([len(r) for r in ranges]))
                block = np.zeros((size, entries), dtype=np.int64)
                for e, column in zip(chosen, np.meshgrid(*ranges, indexing="ij"), strict=True):
                    block[:, e] = column.ravel()
                block = block[self._cheaper(block)]
                total += len(block)
                blocks.append(block)
        self.result.notes = list(dict.fromkeys(self.result.notes))
        return np.concatenate(blocks) if blocks else np.zeros((0, entries), dtype=np.int64)

    def _most(self, entry: int, best: float) -> int:
        """Return the largest number of devices of an entry that a cheaper fleet can have."""
        low, high = 0, self.space.max_counts[entry]
        while low < high:
            middle = (low + high + 1) // 2
            if self._lower_bound(self._only(entry, middle)) < best:
                low = middle
            else:
                high = middle - 1
        return low

    def _cheaper(self, fleets: np.ndarray) -> np.ndarray:
        """Return which fleets may be better than the best, and are not known not to be."""
        if not len(fleets):
            return np.zeros(0, dtype=bool)
        bound = self.space.lower_bound(fleets)
        return np.asarray((bound < self._limit * (1 - 1e-12)) & (bound >= self.above * (1 - 1e-12)))

    def _open(self, fleets: np.ndarray) -> tuple[np.ndarray, FloatArray]:
        """Return the fleets that are not decided, with the lower bound of the load of each."""
        fleets = fleets[self._cheaper(fleets)]
        load = np.zeros(len(fleets))
        for cut in self.cuts:
            load = np.maximum(load, cut.min_load(fleets))
        kept = load <= 1
        fleets, load = fleets[kept], load[kept]
        done = self.result.verdicts.keys() | self.impossible
        fresh = np.array([tuple(row) not in done for row in fleets.tolist()], dtype=bool)
        return (fleets[fresh], load[fresh]) if len(fleets) else (fleets, load)

    def _mixed(self, fleets: np.ndarray) -> None:
        fleets, load = self._open(fleets)
        # Compute the bound of the cheapest fleet until it is feasible; each infeasible one rules out many more.
        passed: set[Counts] = set()
        for _ in range(_CUTS):
            order = _least(self.space.lower_bound(fleets), len(passed) + 1) if len(fleets) else []
            cheapest = next((c for c in (tuple(fleets[i].tolist()) for i in order) if c not in passed), None)
            if cheapest is None:
                break
            if self._load(cheapest) > 1:
                fleets, load = self._open(fleets)
            else:
                passed.add(cheapest)
        if len(fleets) <= self.budget - len(self.result.verdicts):
            self._exhaust(fleets)
            return
        self._frontier(fleets, load)

    def _exhaust(self, fleets: np.ndarray) -> None:
        """Evaluate the fleets in order of their lower bound until no remaining one can be cheaper."""
        while True:
            fleets, _ = self._open(fleets)
            if not len(fleets):
                self.result.proof = "exhaustive"
                return
            bound = self.space.lower_bound(fleets)
            order = np.lexsort((*fleets.T[::-1], bound))[:ROUND]
            batch = [tuple(fleets[i].tolist()) for i in order]
            self._evaluate([counts for counts in batch if self._load(counts) <= 1])

    def _frontier(self, fleets: np.ndarray, load: FloatArray) -> None:
        """Evaluate the largest fleets below the best value, least loaded first. A failure rules out all parts."""
        while True:
            fleets, load = self._open(fleets)
            for counts, verdict in self.result.verdicts.items():
                if verdict.conclusive and not verdict.met and len(fleets):
                    outside = (fleets > np.array(counts)).any(axis=1)
                    fleets, load = fleets[outside], load[outside]
            if not len(fleets):
                self.result.proof = "monotone"
                return
            if self._spent:
                self.result.unexplored = len(fleets)
                return
            largest = np.flatnonzero(_maximal(fleets))
            order = largest[np.lexsort((*fleets[largest].T[::-1], load[largest]))]
            batch: list[Counts] = []
            for i in order.tolist():
                counts = tuple(fleets[i].tolist())
                if self._load(counts) <= 1:
                    batch.append(counts)
                if len(batch) == ROUND:
                    break
            before = self.result.best
            self._evaluate(batch)
            if self.result.best != before:
                self._shrink()

    def _shrink(self) -> None:
        """Reduce the count of each entry of the new best fleet as far as it still meets, most expensive entry first."""
        best = self.result.best
        if best is None:
            return
        for e in sorted((e for e, n in enumerate(best) if n), key=lambda e: -self._lower_bound(self._only(e, 1))):
            low, high = -1 if sum(n > 0 for n in best) > 1 else 0, best[e]
            while high - low > 1 and not self._spent:
                middle = (low + high) // 2
                less = tuple(middle if i == e else n for i, n in enumerate(best))
                if less in self.impossible or (less not in self.result.verdicts and self._load(less) > 1):
                    low = middle
                    continue
                self._evaluate([less])
                verdict = self.result.verdicts.get(less)
                if verdict is not None and verdict.met:
                    high = middle
                else:
                    low = middle
            best = tuple(high if i == e else n for i, n in enumerate(best))

    def _neighbours(self) -> None:
        """Check that fleets with one device more than the best also meet the targets; record one that fails."""
        best = self.result.best
        if best is None or self.result.proof == "exhaustive":
            return
        larger = [tuple(n + (e == i) for e, n in enumerate(best)) for i in range(len(best)) if best[i]]
        self._evaluate(
            [m for m in larger if all(n <= most for n, most in zip(m, self.space.max_counts, strict=True))][:ROUND]
        )
        for m in larger:
            verdict = self.result.verdicts.get(m)
            if verdict is not None and verdict.conclusive and not verdict.met:
                self.result.larger_fleet_fails = m
                return


def _least(bound: FloatArray, number: int) -> list[int]:
    """Return at least the first ``number`` indices that sort ``bound``; equal values keep their order."""
    highest = np.inf if number >= len(bound) else np.partition(bound, number - 1)[number - 1]
    least = np.flatnonzero(bound <= highest)
    order: list[int] = least[np.argsort(bound[least], kind="stable")].tolist()
    return order


def _maximal(fleets: np.ndarray) -> np.ndarray:
    """Return which rows have no other row with one device more of an entry that they have."""
    base = int(fleets.max()) + 2
    scale = base ** np.arange(fleets.shape[1], dtype=object)
    if base ** fleets.shape[1] >= 2**62:
        rows = {tuple(row) for row in fleets.tolist()}
        return np.array(
            [
                not any(tuple(n + (e == i) for e, n in enumerate(row)) in rows for i in range(len(row)) if row[i])
                for row in map(tuple, fleets.tolist())
            ]
        )
    scale = scale.astype(np.int64)
    codes = fleets @ scale
    largest = np.ones(len(fleets), dtype=bool)
    for e in range(fleets.shape[1]):
        largest &= ~(np.isin(codes + scale[e], codes) & (fleets[:, e] > 0))
    return largest


def brute_force(most: Counts, kinds: int, evaluate: Evaluate) -> tuple[Counts, float] | None:
    """Return the best fleet by simulating all fleets; tests compare a search with it."""
    fleets = [c for c in product(*(range(m + 1) for m in most)) if 0 < sum(n > 0 for n in c) <= kinds]
    met = [(v.value, sum(c), c) for c, v in zip(fleets, evaluate(fleets), strict=True) if v.met]
    return (min(met)[2], min(met)[0]) if met else None


__all__ = ["GIVE_UP", "Alone", "Evaluate", "Search", "SearchResult", "Space", "Verdict", "brute_force"]
