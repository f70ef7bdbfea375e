"""How an answer is explained: what binds, what moves it, and the best fleet over the load. All of it simulated."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.core.errors import InputError
from windtunnel.planner.simulating import Case
from windtunnel.planning import explain
from windtunnel.planning.bounds import Counts
from windtunnel.planning.search import Found

if TYPE_CHECKING:
    from windtunnel.planner.answer import Planner

_ADJUSTMENTS = 4
"""Fleets tried beside the best one for each change of load or model."""

Speeds = tuple[float, ...]
Evaluation = Mapping[str, Any]


class Explanation:
    """Explains the answer of one planner, with further simulations where it must."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def of(
        self, best: Mapping[str, Any] | None, evaluations: Sequence[Mapping[str, Any]], found: Found, key: str
    ) -> dict[str, Any]:
        if best is None:
            closest = max(
                evaluations,
                key=lambda e: (_least_room(e), tuple(-n for n in e["counts"])),
                default=None,
            )
            return {
                "binding": None,
                "next_cheapest": None,
                "changes": [],
                "closest": None
                if closest is None
                else {"fleet": self.planner.text(closest["counts"]), "breaks": explain.broken(closest)},
                "search": [],
            }
        bound = explain.binding(best)
        below = explain.next_cheapest(evaluations, best, key) or self._one_less(best, key)
        return {
            "binding": None if bound is None else {"text": bound["text"], "headroom": bound["headroom"]},
            "headroom": {t["text"]: t["headroom"] for t in best["targets"]},
            "next_cheapest": None
            if below is None
            else {
                "fleet": self.planner.text(below["counts"]),
                "objective_text": self.planner.value_text(below),
                "verdict": below["verdict"],
                "breaks": explain.broken(below),
            },
            "changes": self._changes(best),
            "closest": None,
            "search": [self._proof(found)],
        }

    def _one_less(self, best: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
        """The best with one device less, where no cheaper fleet was simulated; None where the bound rules all out."""
        fleets = [
            tuple(n - (i == j) for j, n in enumerate(best["counts"]))
            for i in range(self.planner.entries)
            if best["counts"][i]
        ]
        fleets = [f for f in fleets if any(f) and self.planner.can(Case(f))]
        if not fleets:
            return None
        self.planner.verdicts(fleets)
        failed = [e for e in map(self.planner.evaluation, fleets) if not e["met"]]
        return max(failed, key=lambda e: (e[key], tuple(e["counts"])), default=None)

    def _proof(self, found: Found) -> str:
        looked = f"{len(found.verdicts):,} fleets were simulated"
        if found.proof == "exhaustive":
            return f"{looked}; every cheaper one was simulated or is ruled out by the bound."
        if found.proof == "monotone":
            return (
                f"{looked}; every cheaper one was simulated, is ruled out by the bound, or is part of a larger one "
                "that failed (more devices are taken to do no harm)."
            )
        return f"{looked}, as many as were allowed; {found.left:,} cheaper ones that the bound lets pass were not."

    def _changes(self, best: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The best fleet under another load and with models in error, and what would then do."""
        counts = tuple(best["counts"])
        everywhere = range(self.planner.entries)
        asked: list[tuple[str, float, tuple[float, ...]]] = [
            ("20% more load", 1.2, ()),
            ("20% less load", 0.8, ()),
            ("Every device 10% slower than its model", 1.0, tuple(1 / 1.1 for _ in everywhere)),
            ("Every device 10% faster than its model", 1.0, tuple(1 / 0.9 for _ in everywhere)),
        ]
        for i, n in enumerate(counts):
            spread = self._spread(best, i) if n else None
            if spread is not None:
                slower = tuple(1 / spread if i == j else 1.0 for j in range(self.planner.entries))
                asked.append(
                    (f"{self.planner.names[i]} slower by its model's own 90% interval ({spread - 1:.0%})", 1.0, slower)
                )
        try:
            self.planner.simulator([Case(counts, load, speeds) for _, load, speeds in asked])
        except InputError as error:
            self.planner.notes.append(f"how the answer moves with the load is not known: {error.problem}")
            asked = asked[2:]
        return self._changed(counts, asked)

    def _spread(self, best: Mapping[str, Any], entry: int) -> float | None:
        """The factor by which a device's time may exceed its model's: the widest of the operations that were priced."""
        label = self.planner.devices[entry].label
        widths = []
        for row in best["models"]:
            if row["device"] == label:
                if row["half_width"] is not None:
                    widths.append(1 + row["half_width"])
                elif row["factor"] is not None:
                    widths.append(row["factor"])
        return max(widths, default=None)

    def _changed(self, counts: Counts, asked: Sequence[tuple[str, float, Speeds]]) -> list[dict[str, Any]]:
        """What each change does to the fleet. All walks go a step at a time, so that their fleets run side by side."""
        simulator = self.planner.simulator
        here = simulator([Case(counts, load, speeds) for _, load, speeds in asked])
        walks = [
            self._walk(counts, load, speeds, one["met"]) for (_, load, speeds), one in zip(asked, here, strict=True)
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
            answers = dict(zip(cases, simulator(list(cases.values())), strict=True))
        rows = []
        for i, (what, load, speeds) in enumerate(asked):
            other, tried = ends[i]
            bound = explain.binding(here[i])
            rows.append(
                {
                    "what": what,
                    "load": load,
                    "speeds": dict(zip(self.planner.names, speeds or (1.0,) * self.planner.entries, strict=True)),
                    "holds": here[i]["met"],
                    "room": None if bound is None else bound["headroom"],
                    "breaks": explain.broken(here[i]),
                    "tried": tried,
                    "fleet": None if other is None else self.planner.text(other["counts"]),
                    "devices": None if other is None else self.planner.named(other["counts"]),
                    "objective_text": None if other is None else self.planner.value_text(other),
                }
            )
        return rows

    def _walk(
        self, counts: Counts, load: float, speeds: Speeds, holds: bool
    ) -> Generator[Case, Evaluation, tuple[Evaluation | None, int]]:
        """To a fleet of the same entries that would do: with fewer devices where the best holds, else with more.

        Yields the case to be simulated next and is sent its evaluation; returns the fleet and how many were tried.
        """
        dear = sorted((i for i, n in enumerate(counts) if n), key=lambda i: (-self.planner.prices[i], i))
        found: Evaluation | None = None
        tried = 0
        if not holds:
            steps = [tuple(n + (i == j) for j, n in enumerate(counts)) for i in reversed(dear)]
            steps += [tuple(math.ceil(n * factor) for n in counts) for factor in (1.15, 1.3, 1.6)]
            for more in list(dict.fromkeys(steps))[:_ADJUSTMENTS]:
                tried += 1
                one = yield Case(more, load, speeds)
                if one["met"]:
                    return one, tried
            return None, tried
        now, shrinking = counts, True
        while shrinking and tried < _ADJUSTMENTS:
            shrinking = False
            for i in dear:
                step = max(1, now[i] // 8)
                less = tuple(n - step * (i == j) for j, n in enumerate(now))
                if now[i] < step or not self.planner.can(Case(less)) or tried >= _ADJUSTMENTS:
                    continue
                tried += 1
                one = yield Case(less, load, speeds)
                if one["met"]:
                    found, now, shrinking = one, less, True
                    break
        return found, tried

    def curve(self, best: Mapping[str, Any]) -> dict[str, Any] | None:
        """The best fleet's times over the load, with the knee; about what binds, or the p99 of latency."""
        timed = [t for t in best["targets"] if t["unit"] == "s" and t["headroom"] is not None]
        about = min(timed, key=lambda t: t["headroom"], default=None)
        counts = tuple(best["counts"])
        loads = sorted(set(self.planner.asked.loads))
        if not loads:
            return None
        try:
            found = self.planner.simulator([Case(counts, load) for load in loads])
        except InputError as error:
            self.planner.notes.append(f"there is no curve over the load: {error.problem}")
            return None
        points = []
        for load, one in zip(loads, found, strict=True):
            target = None
            if about is not None:
                target = next(t for t in one["targets"] if t["text"] == about["text"])
            points.append(
                {
                    "load": load,
                    "value_s": one["p99_s"] if target is None else target["value"],
                    "low_s": None if target is None else target["low"],
                    "high_s": None if target is None else target["high"],
                    "utilisation": one["utilisation"],
                    "met": one["met"],
                    "keeps_up": one["keeps_up"],
                }
            )
        return {
            "fleet": self.planner.text(counts),
            "of": "latency p99" if about is None else f"{about['metric']} {about['statistic']}",
            "limit_s": None if about is None else about["limit"],
            "points": points,
            "knee": explain.knee([p["load"] for p in points], [p["value_s"] for p in points]),
            "rule": explain.KNEE_RULE,
        }


def _least_room(evaluation: Mapping[str, Any]) -> float:
    known = [t["headroom"] for t in evaluation["targets"] if t["headroom"] is not None]
    return min(known, default=-math.inf)
