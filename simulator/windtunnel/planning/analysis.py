"""How an answer is explained: what binds, what moves it, and the best fleet over the load. All of it simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.core.errors import InputError
from windtunnel.planning import explain
from windtunnel.planning.search import Found
from windtunnel.planning.sensitivity import Changes
from windtunnel.planning.simulate import Case

if TYPE_CHECKING:
    from windtunnel.planning.planner import Planner


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
                key=lambda e: (explain.least_room(e), tuple(-n for n in e["counts"])),
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
            "binding": None if bound is None else dict(bound),
            "headroom": {t["text"]: t["headroom"] for t in best["targets"]},
            "next_cheapest": None
            if below is None
            else {
                "fleet": self.planner.text(below["counts"]),
                "objective_text": self.planner.value_text(below),
                "verdict": below["verdict"],
                "breaks": explain.broken(below),
            },
            "changes": Changes(self.planner, best, evaluations).rows(),
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
        failed = [e for e in self.planner.judge([Case(f) for f in fleets]) if not e["met"]]
        return max(failed, key=lambda e: (e[key], tuple(e["counts"])), default=None)

    def _proof(self, found: Found) -> str:
        number, less = len(found.verdicts), explain.RANKED[self.planner.asked.objective].less
        looked = f"{number:,} fleet was simulated" if number == 1 else f"{number:,} fleets were simulated"
        if found.proof == "exhaustive":
            return f"{looked}; every {less} one was simulated or is ruled out by the bound."
        if found.proof == "monotone":
            return (
                f"{looked}; every {less} one was simulated, is ruled out by the bound, or is part of a larger one "
                "that failed (more devices are taken to do no harm)."
            )
        return f"{looked}, as many as were allowed; {found.left:,} {less} ones that the bound lets pass were not."

    def curve(self, best: Mapping[str, Any]) -> dict[str, Any] | None:
        """The best fleet's times over the load, with the knee; about what binds, or the p99 of latency."""
        about = explain.time_that_binds(best)
        counts = tuple(best["counts"])
        loads = sorted(set(self.planner.asked.loads))
        if not loads:
            return None
        try:
            found = self.planner.judge([Case(counts, load) for load in loads])
        except InputError as error:
            self.planner.notes.append(f"there is no curve over the load: {error.problem}")
            return None
        points = []
        least = self.planner.least_load(counts)
        for load, one in zip(loads, found, strict=True):
            target = None
            if about is not None:
                target = next(t for t in one["targets"] if t["text"] == about["text"])
            points.append(
                {
                    "load": load,
                    "value_s": explain.time_s(one, about),
                    "low_s": None if target is None else target["low"],
                    "high_s": None if target is None else target["high"],
                    "utilisation": one["utilisation"],
                    "least_load": None if least is None else least * load,
                    "met": one["met"],
                    "verdict": one["verdict"],
                    "keeps_up": one["keeps_up"],
                }
            )
        return {
            "fleet": self.planner.text(counts),
            "of": explain.time_name(about),
            "limit_s": None if about is None else about["limit"],
            "points": points,
            "knee": explain.knee([p["load"] for p in points], [p["value_s"] for p in points]),
            "rule": explain.KNEE_RULE,
        }
