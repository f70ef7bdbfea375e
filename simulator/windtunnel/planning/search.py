"""The search for the cheapest fleets: branch and bound over counts, with the simulation as the only judge.

Fleets are simulated in rounds. What is asked in a round depends on the verdicts of earlier rounds alone, never on how
many workers there are or which of them is quick, so the answer is the same on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Protocol

import numpy as np

from windtunnel.core.ticks import FloatArray
from windtunnel.planning.bounds import Counts, DualCut

ROUND = 4
"""Fleets asked for at a time. A number of its own: workers only decide how quickly they come back."""

_MOST_FLEETS = 400_000
_GIVE_UP = 1.5
"""A fleet of one entry alone is no longer looked for once it must cost this many times the best."""
_CUTS = 200


@dataclass(frozen=True)
class Verdict:
    """What the simulation says of a fleet: whether it meets everything, and its value of the objective.

    ``conclusive``: whether it says so at all; a fleet of which it does not is not chosen, and rules out no other.
    """

    met: bool
    value: float
    conclusive: bool = True


class Evaluate(Protocol):
    """Simulates fleets; verdicts in their order."""

    def __call__(self, fleets: Sequence[Counts]) -> Sequence[Verdict]:
        """Return the verdict of each fleet."""


@dataclass(frozen=True)
class Space:
    """Fleets to choose from: at most ``max_counts`` of each entry, at most ``max_entries`` entries in one fleet.

    ``lower_bound`` gives, for an array of counts (fleets, entries), the least that the objective can be.
    """

    max_counts: Counts
    max_entries: int
    lower_bound: Callable[[np.ndarray], FloatArray]
    load: Callable[[Sequence[int]], tuple[float, DualCut]]
    """See ``Replicated.load``."""


@dataclass
class SearchResult:
    """What a search has result. ``proof`` says in how far nothing cheaper is left:

    ``exhaustive``: every cheaper fleet was simulated or is ruled out by the bound. ``monotone``: every cheaper fleet
    was, or is part of a larger one that failed. ``open``: ``unexplored`` cheaper fleets were not looked at.
    """

    verdicts: dict[Counts, Verdict] = field(default_factory=dict)
    best: Counts | None = None
    proof: str = "open"
    unexplored: int = 0
    considered: int = 0
    rounds: int = 0
    single_entry_reasons: dict[int, str] = field(default_factory=dict)
    """Why an entry was not found to do it alone."""
    notes: list[str] = field(default_factory=list)
    larger_fleet_fails: Counts | None = None
    """A fleet with one device more than the best that fails where the best does not: more is not always better."""

    @property
    def value(self) -> float:
        """The best fleet's objective; infinite while there is none."""
        return float("inf") if self.best is None else self.verdicts[self.best].value


class Search:
    """One search of ``space``; ``evaluate`` may be asked for at most ``budget`` fleets."""

    def __init__(self, space: Space, evaluate: Evaluate, budget: int) -> None:
        self.space = space
        self.evaluate = evaluate
        self.budget = budget
        self.result = SearchResult()
        self.cuts: list[DualCut] = []
        self.impossible: set[Counts] = set()

    def run(self) -> SearchResult:
        """Fleets of one entry first, by bisection; then whatever may be cheaper than the best of them."""
        self._alone()
        fleets = self._fleets()
        self.result.considered = len(fleets)
        self._mixed(fleets)
        self._neighbours()
        return self.result

    def run_bound_only(self) -> SearchResult:
        """What the bound says of each entry alone, where it rules out every fleet; nothing is simulated."""
        self.budget = 0
        self._alone()
        self.result.proof = "exhaustive"
        return self.result

    # Asking.

    def _ask(self, fleets: Sequence[Counts]) -> None:
        result = self.result
        new = [f for f in dict.fromkeys(fleets) if f not in result.verdicts][: self.budget - len(result.verdicts)]
        if not new:
            return
        result.rounds += 1
        for counts, verdict in zip(new, self.evaluate(new), strict=True):
            result.verdicts[counts] = verdict
            if verdict.met and (
                result.best is None
                or (verdict.value, sum(counts), counts) < (result.value, sum(result.best), result.best)
            ):
                result.best = counts

    @property
    def _spent(self) -> bool:
        return len(self.result.verdicts) >= self.budget

    def _load(self, counts: Counts) -> float:
        """A fleet's load at best; what it says of others is kept."""
        load, cut = self.space.load(counts)
        if load > 1:
            self.impossible.add(counts)
            self.cuts.append(cut)
        return load

    def _lower_bound(self, counts: Counts) -> float:
        return float(self.space.lower_bound(np.array([counts]))[0])

    # One entry alone.

    def _alone(self) -> None:
        entries = range(len(self.space.max_counts))
        low: dict[int, int] = {}
        high: dict[int, int] = {}
        step: dict[int, int] = {}
        for e in entries:
            one = self._load(self._only(e, 1))
            if not np.isfinite(one):
                self.result.single_entry_reasons[e] = "cannot"
                continue
            least = max(1, int(np.ceil(one - 1e-9)))
            if least > self.space.max_counts[e]:
                self.result.single_entry_reasons[e] = "too few allowed"
                continue
            low[e], step[e] = least - 1, max(1, least // 4)
        active = set(low)
        while active and not self._spent:
            probes: dict[int, int] = {}
            for e in sorted(active):
                if e in high and high[e] - low[e] == 1:
                    active.discard(e)
                elif e not in high and low[e] >= self.space.max_counts[e]:
                    self.result.single_entry_reasons[e] = "maximum fails"
                    active.discard(e)
                elif self._lower_bound(self._only(e, low[e] + 1)) > _GIVE_UP * self.result.value:
                    self.result.single_entry_reasons.setdefault(e, "too expensive")
                    active.discard(e)
                elif e in high:
                    probes[e] = (low[e] + high[e]) // 2
                else:
                    probes[e] = min(low[e] + step[e], self.space.max_counts[e])
            self._ask([self._only(e, n) for e, n in probes.items()])
            for e, n in probes.items():
                verdict = self.result.verdicts.get(self._only(e, n))
                if verdict is None:
                    continue
                if verdict.met:
                    high[e] = n
                else:
                    low[e] = n
                    step[e] *= 2

    def _only(self, entry: int, count: int) -> Counts:
        return tuple(count if e == entry else 0 for e in range(len(self.space.max_counts)))

    # Several entries.

    def _fleets(self) -> np.ndarray:
        """Every fleet whose floor is below the best's value, as rows of counts."""
        entries, best = len(self.space.max_counts), self.result.value
        blocks: list[np.ndarray] = []
        total = 0
        for kinds in range(1, min(self.space.max_entries, entries) + 1):
            for chosen in combinations(range(entries), kinds):
                ranges = [np.arange(1, self._most(e, best) + 1) for e in chosen]
                size = int(np.prod([len(r) for r in ranges]))
                if size == 0:
                    continue
                if size > _MOST_FLEETS:
                    # Too many to list: the largest steps that leave few enough, said in the notes.
                    stride = int(np.ceil((size / _MOST_FLEETS) ** (1 / kinds)))
                    ranges = [r[::stride] for r in ranges]
                    self.result.notes.append(
                        f"mixes of {kinds} entries were looked at in steps of {stride} devices: there are too many"
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
        """The most devices of an entry that a cheaper fleet can have."""
        low, high = 0, self.space.max_counts[entry]
        while low < high:
            middle = (low + high + 1) // 2
            if self._lower_bound(self._only(entry, middle)) < best:
                low = middle
            else:
                high = middle - 1
        return low

    def _cheaper(self, fleets: np.ndarray) -> np.ndarray:
        return (
            self.space.lower_bound(fleets) < self.result.value * (1 - 1e-12) if len(fleets) else np.zeros(0, dtype=bool)
        )

    def _open(self, fleets: np.ndarray) -> tuple[np.ndarray, FloatArray]:
        """Those still worth a look, with the least that the load of each can be."""
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
        # The bound is asked about the cheapest until it lets one pass; each refusal rules out many more.
        passed: set[Counts] = set()
        for _ in range(_CUTS):
            order = np.argsort(self.space.lower_bound(fleets), kind="stable").tolist() if len(fleets) else []
            asked = next((c for c in (tuple(fleets[i].tolist()) for i in order) if c not in passed), None)
            if asked is None:
                break
            if self._load(asked) > 1:
                fleets, load = self._open(fleets)
            else:
                passed.add(asked)
        if len(fleets) <= self.budget - len(self.result.verdicts):
            self._exhaust(fleets)
            return
        self._frontier(fleets, load)

    def _exhaust(self, fleets: np.ndarray) -> None:
        """Every fleet in order of its floor until none left can be cheaper."""
        while True:
            fleets, _ = self._open(fleets)
            if not len(fleets):
                self.result.proof = "exhaustive"
                return
            floor = self.space.lower_bound(fleets)
            order = np.lexsort((*fleets.T[::-1], floor))[:ROUND]
            self._ask([tuple(fleets[i].tolist()) for i in order])

    def _frontier(self, fleets: np.ndarray, load: FloatArray) -> None:
        """The largest fleets below the best's value, the least busy first: one that fails rules out all its parts."""
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
            asked: list[Counts] = []
            for i in order.tolist():
                counts = tuple(fleets[i].tolist())
                if self._load(counts) <= 1:
                    asked.append(counts)
                if len(asked) == ROUND:
                    break
            before = self.result.best
            self._ask(asked)
            if self.result.best != before:
                self._shrink()

    def _shrink(self) -> None:
        """The new best with as few of each entry as will do, the dearest first."""
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
                self._ask([less])
                verdict = self.result.verdicts.get(less)
                if verdict is not None and verdict.met:
                    high = middle
                else:
                    low = middle
            best = tuple(high if i == e else n for i, n in enumerate(best))

    def _neighbours(self) -> None:
        """One device more than the best must do as well; where it does not, more is not always better here."""
        best = self.result.best
        if best is None or self.result.proof == "exhaustive":
            return
        more = [tuple(n + (e == i) for e, n in enumerate(best)) for i in range(len(best)) if best[i]]
        self._ask([m for m in more if all(n <= most for n, most in zip(m, self.space.max_counts, strict=True))][:ROUND])
        for m in more:
            verdict = self.result.verdicts.get(m)
            if verdict is not None and verdict.conclusive and not verdict.met:
                self.result.larger_fleet_fails = m
                return


def _maximal(fleets: np.ndarray) -> np.ndarray:
    """Which rows have no other row with one device more of an entry they have."""
    base = int(fleets.max()) + 2
    scale = base ** np.arange(fleets.shape[1], dtype=object)
    if base ** fleets.shape[1] >= 2**62:
        known = {tuple(row) for row in fleets.tolist()}
        return np.array(
            [
                not any(tuple(n + (e == i) for e, n in enumerate(row)) in known for i in range(len(row)) if row[i])
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
    """The best fleet of all, by simulating every one: what a search is held against."""
    every = [c for c in product(*(range(m + 1) for m in most)) if 0 < sum(n > 0 for n in c) <= kinds]
    met = [(v.value, sum(c), c) for c, v in zip(every, evaluate(every), strict=True) if v.met]
    return (min(met)[2], min(met)[0]) if met else None


__all__ = ["Evaluate", "Search", "SearchResult", "Space", "Verdict", "brute_force"]
