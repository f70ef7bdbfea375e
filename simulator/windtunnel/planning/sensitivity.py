"""What another load or an error of the models does to an answer, and which fleet would then do: all simulated."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.core.errors import InputError
from windtunnel.planning import explain
from windtunnel.planning.bounds import Counts
from windtunnel.planning.simulate import Case

if TYPE_CHECKING:
    from windtunnel.planning.planner import Planner

_STEPS = 4
"""Fleets tried for each change that differ from the best by a step."""
_KNOWN = 6
"""Fleets tried for each change that the search has simulated at the scenario's own load."""

Speeds = tuple[float, ...]
Evaluation = Mapping[str, Any]


@dataclass(frozen=True)
class _Change:
    """``harder``: a fleet that fails without the change will not do with it."""

    what: str
    load: float
    speeds: Speeds
    harder: bool


class Changes:
    """The best fleet under each change, and the cheapest fleet found that would do there.

    ``looked``: what the search has simulated. Every run has the scenario's seed, so that lines differ by the change.
    """

    def __init__(self, planner: Planner, best: Evaluation, looked: Sequence[Evaluation]) -> None:
        self.planner = planner
        self.best = best
        self.looked = looked

    def rows(self) -> list[dict[str, Any]]:
        """One row a change. All searches go a step at a time, so that their fleets run side by side."""
        judge, counts, asked = self.planner.judge, tuple(self.best["counts"]), self._asked()
        try:
            here = judge([Case(counts, change.load, change.speeds) for change in asked])
        except InputError as error:
            self.planner.notes.append(f"how the answer moves with the load is not known: {error.problem}")
            asked = [change for change in asked if change.load == 1.0]
            here = judge([Case(counts, change.load, change.speeds) for change in asked])
        walks = [self._walk(change, one["met"]) for change, one in zip(asked, here, strict=True)]
        ends: dict[int, tuple[Evaluation | None, int]] = {}
        answers: dict[int, Evaluation | None] = dict.fromkeys(range(len(walks)))
        while answers:
            cases: dict[int, Case] = {}
            for i, answer in answers.items():
                try:
                    cases[i] = next(walks[i]) if answer is None else walks[i].send(answer)
                except StopIteration as end:
                    ends[i] = end.value
            answers = dict(zip(cases, judge(list(cases.values())), strict=True))
        return [self._row(change, one, *ends[i]) for i, (change, one) in enumerate(zip(asked, here, strict=True))]

    def _asked(self) -> list[_Change]:
        everywhere = range(self.planner.entries)
        asked = [
            _Change("20% more load", 1.2, (), True),
            _Change("20% less load", 0.8, (), False),
            _Change("Every device 10% slower than its model", 1.0, tuple(1 / 1.1 for _ in everywhere), True),
            _Change("Every device 10% faster than its model", 1.0, tuple(1 / 0.9 for _ in everywhere), False),
        ]
        for i, n in enumerate(self.best["counts"]):
            spread = self._spread(i) if n else None
            if spread is not None:
                slower = tuple(1 / spread if i == j else 1.0 for j in everywhere)
                name = self.planner.names[i]
                what = f"Every time on {name} {spread:.3g} times its model's, the far end of its 90% interval"
                asked.append(_Change(what, 1.0, slower, True))
        return asked

    def _spread(self, entry: int) -> float | None:
        """The factor by which a device's time may exceed its model's: the widest of the operations that were priced."""
        label = self.planner.devices[entry].label
        widths = []
        for row in self.best["model_accuracy"]:
            if row["device"] == label:
                if row["interval_half_width"] is not None:
                    widths.append(1 + row["interval_half_width"])
                elif row["error_factor"] is not None:
                    widths.append(row["error_factor"])
        return max(widths, default=None)

    def _row(self, change: _Change, here: Evaluation, other: Evaluation | None, tried: int) -> dict[str, Any]:
        bound = explain.binding(here)
        before = None
        if bound is not None:
            before = next(t for t in self.best["targets"] if t["text"] == bound["text"])
        return {
            "what": change.what,
            "load": change.load,
            "speeds": dict(
                zip(self.planner.names, change.speeds or (1.0,) * self.planner.entries, strict=True)
            ),
            "harder": change.harder,
            "holds": here["met"],
            "verdict": here["verdict"],
            "room": None if bound is None else bound["headroom"],
            "binding": None if bound is None else dict(bound),
            "noise": bound is not None and before is not None and explain.only_less_sure(before, bound),
            "breaks": explain.broken(here),
            "tried": tried,
            "fleet": None if other is None else self.planner.text(other["counts"]),
            "devices": None if other is None else self.planner.named(other["counts"]),
            "objective_text": None if other is None else self.planner.value_text(other),
        }  # fmt: skip

    def _walk(self, change: _Change, holds: bool) -> Generator[Case, Evaluation, tuple[Evaluation | None, int]]:
        """To the cheapest fleet that would do, of those that are known and those a step from the best.

        Yields the case to be simulated next and is sent its evaluation; returns the fleet and how many were tried.
        """
        if change.harder and holds:
            return None, 0  # nothing cheaper does without the change
        tried, limit = 0, math.inf
        found: Evaluation | None = None
        for counts in self._dearer(change) if change.harder else self._cheaper(change):
            tried += 1
            one = yield Case(counts, change.load, change.speeds)
            if one["met"]:
                found, limit = one, self.planner.guess(counts)
                break
        if change.harder or not holds:
            return found, tried
        less, more = yield from self._fewer(change, limit)
        return less or found, tried + more

    def _dearer(self, change: _Change) -> list[Counts]:
        """Fleets that do without the change, and more of the best's devices; the cheapest first."""
        best = tuple(self.best["counts"])
        steps = [tuple(n + (i == j) for j, n in enumerate(best)) for i in reversed(self._dear(best))]
        steps += [tuple(math.ceil(n * factor) for n in best) for factor in (1.15, 1.3, 1.6)]
        steps = [s for s in dict.fromkeys(steps) if s != best]
        known = [tuple(e["counts"]) for e in self.looked if e["met"]]
        known = [c for c in self._ranked(known, change) if c != best]
        return self._ranked([*known[:_KNOWN], *steps[:_STEPS]], change)

    def _cheaper(self, change: _Change) -> list[Counts]:
        """Fleets that do not do without the change, nearly do, and are cheaper; the cheapest first."""
        best = self.planner.guess(self.best["counts"])
        known = [tuple(e["counts"]) for e in self.looked if not e["met"]]
        near = sorted(
            (c for c in self._ranked(known, change) if self.planner.guess(c) < best * (1 - 1e-12)),
            key=lambda c: -explain.least_room(next(e for e in self.looked if tuple(e["counts"]) == c)),
        )
        return self._ranked(near[:_KNOWN], change)

    def _fewer(self, change: _Change, limit: float) -> Generator[Case, Evaluation, tuple[Evaluation | None, int]]:
        """The best with fewer and fewer devices, as far as that is cheaper than ``limit`` and does."""
        now: Counts = tuple(self.best["counts"])
        found: Evaluation | None = None
        tried, shrinking = 0, True
        while shrinking and tried < _STEPS:
            shrinking = False
            for i in self._dear(now):
                step = max(1, now[i] // 8)
                less = tuple(n - step * (i == j) for j, n in enumerate(now))
                if now[i] < step or not self._ranked([less], change) or tried >= _STEPS:
                    continue
                tried += 1
                one = yield Case(less, change.load, change.speeds)
                if one["met"]:
                    now, shrinking = less, True
                    if self.planner.guess(less) < limit:
                        found = one
                    break
        return found, tried

    def _dear(self, counts: Counts) -> list[int]:
        """The entries that a fleet has, the dearest first."""
        return sorted((i for i, n in enumerate(counts) if n), key=lambda i: (-self.planner.prices[i], i))

    def _ranked(self, fleets: Sequence[Counts], change: _Change) -> list[Counts]:
        """Each once, the cheapest first, without those that the bound says cannot do the work."""
        slowest = min(change.speeds, default=1.0) if change.harder else max(change.speeds, default=1.0)
        kept = [c for c in dict.fromkeys(fleets) if self.planner.can(Case(c))]
        kept = [c for c in kept if self.planner.bounds.load(c)[0] * change.load / slowest <= 1.0 or change.harder]
        return sorted(kept, key=lambda c: (self.planner.guess(c), sum(c), c))
