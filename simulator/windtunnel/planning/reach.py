"""What no number of devices can mend where no fleet meets the targets: the times of requests that wait for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windtunnel.core.results.candidates import Conflict
from windtunnel.core.results.reach import EntryReach, TargetReach
from windtunnel.core.units import to_unit
from windtunnel.planning.choice_search import ChoiceSearch
from windtunnel.planning.evaluation import shown
from windtunnel.planning.reasons import Reasons, first_token_error, least_time_s
from windtunnel.scenario.target import Target

_LISTED = 4
"""The most devices that a sentence lists."""
_LEVERS = {
    "first": "a faster device, a larger group, more tokens in a step (batch.tokens), shorter prompts",
    "next": "a faster device, a larger group, weights in a smaller format",
    "whole": "a faster device, a larger group where jobs run on groups, less work in a job",
}
"""What may shorten a time of a request that waits for nothing."""
_OF = {"ttft": "first", "tpot": "next", "itl": "next"}


def conflicts_by_bound(searches: Sequence[ChoiceSearch]) -> list[Conflict]:
    """Return which targets no allowed fleet meets, by the lower bounds of all combinations of searched values.

    What holds for every combination is stated once, with the least value of all of them.
    """
    of_choice = [Reasons(search.candidates, search.targets).by_bound() for search in searches]
    if len(searches) == 1:
        return of_choice[0]
    kept: list[Conflict] = []
    for search, conflicts in zip(searches, of_choice, strict=True):
        for conflict in conflicts:
            same = [[c for c in others if _key(c) == _key(conflict)] for others in of_choice]
            if all(same):
                weakest = min((c for found in same for c in found), key=_least)
                if weakest not in kept:
                    kept.append(weakest)
            else:
                kept.append(replace(conflict, text=f"with {search.choice.text}, {conflict.text}"))
    return kept


def _key(conflict: Conflict) -> tuple[bool, tuple[str, ...]]:
    return conflict.by_counts, tuple(target.text for target in conflict.targets)


def _least(conflict: Conflict) -> float:
    known = [target.least for target in conflict.targets if target.least is not None]
    return known[0] if known else 0.0


def reaches(searches: Sequence[ChoiceSearch], missed: Sequence[str]) -> list[TargetReach]:
    """Return the least value that any number of devices can give each target on a time.

    ``missed`` are the texts of the targets that the fleets found miss; the others are left out unless no number of
    devices meets them.
    """
    found = []
    for i, target in enumerate(searches[0].targets):
        rows: list[EntryReach] = []
        floors: list[float | None] = []
        for search in searches:
            bounds = search.candidates.bounds
            floors.append(least_time_s(bounds, search.targets[i], range(search.entries)))
            for entry, name in enumerate(search.names):
                least = least_time_s(bounds, search.targets[i], [entry])
                if least is not None and bounds.demand.eligible[entry].all():
                    text = f"{name}; {search.choice.text}" if search.choice.values else name
                    rows.append(EntryReach(text, search.devices[entry].label, to_unit(least, target.unit)))
        known = [floor for floor in floors if floor is not None]
        if not rows or len(known) < len(floors):
            continue
        rows.sort(key=lambda row: row.least)
        floor, limit = to_unit(min(known), target.unit), to_unit(target.limit, target.unit)
        if floor > limit or target.text in missed:
            errors = [first_token_error(s.run) for s in searches if target.metric == "ttft"]
            error = max((error.factor for error in errors if error is not None), default=None)
            reach = TargetReach(
                text=target.text, limit=limit, unit=target.unit, least=floor, entries=rows, first_token_error=error
            )
            found.append(replace(reach, sentence=_sentence(reach, target)))
    return found


def _sentence(reach: TargetReach, target: Target) -> str:
    """Return what the least values of a target mean for a plan that found no fleet, without a full stop."""
    unit = reach.unit
    if reach.least > reach.limit:
        least = shown(reach.least, unit, reach.limit)
        levers = _LEVERS[_OF.get(target.metric, "whole")]
        return (
            f"{reach.text}: by the models, no number of these devices meets it. Even where no request waits, it is at "
            f"least {least}: {_listed(reach.entries, unit)}. {_error_of(reach)}. What may help: {levers}, or a limit "
            f"above {least}"
        )
    able = [row for row in reach.entries if row.least <= reach.limit]
    unable = [row for row in reach.entries if row.least > reach.limit]
    text = f"{reach.text}: more devices than were tried may help"
    if able:
        text += f". Where no request waits, it is at least {_listed(able, unit)}"
    else:
        text += ", in fleets of several entries together"
    if unable:
        text += f". No number of devices of one of these entries alone meets it: {_listed(unable, unit)}"
    return text


def _error_of(reach: TargetReach) -> str:
    """Return what the error of the models leaves open of a least value, without a full stop."""
    factor = reach.first_token_error
    if factor is None:
        return "The error of the models is not in these values"
    left = "the target may be met within it" if reach.least <= reach.limit * factor else "it does not change this"
    return (
        f"The error of the models of the first token is not in these values (90% of measured ones are within a factor "
        f"of {factor:.3g}): {left}"
    )


def _listed(rows: Sequence[EntryReach], unit: str) -> str:
    """Return the least value of each device, with the group and the searched values that give it."""
    best = {row.device: row for row in reversed(rows)}
    listed = sorted(best.values(), key=lambda row: row.least)
    parts = [f"{shown(row.least, unit)} on {row.entry.replace('; ', ', ')}" for row in listed[:_LISTED]]
    more = len(listed) - _LISTED
    return "; ".join(parts) + (f"; and {more:,} more" if more > 0 else "")


__all__ = ["conflicts_by_bound", "reaches"]
