"""Further looks at a fleet whose interval, and not its value, keeps it from meeting the targets with confidence.

A second look at a fleet that was not accepted at the first one is a second chance to accept it wrongly. So the looks
share the error that the confidence allows: the first has four fifths of it, and each of the two later ones a tenth.
By the union bound they err together no more often than one look at the plan's confidence, however their data depend on
each other and whether or not a look is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from windtunnel.core.results.target import JudgedTarget
from windtunnel.core.student import student

TIMES = (4, 16)
"""The lengths of the later looks, in runs of the scenario, or in the replications of the first look."""
FIRST, LATER = 0.8, 0.1
"""The share of the error that the first look has, and that each later one has."""
MOST_RUNS = 200
"""The runs that all further looks of a plan may take; a run 16 times as long counts as 16."""
MOST_JOBS = 2_000_000
"""The largest number of jobs of a longer run, which bounds its memory."""
CONFIRMING = 32
"""The redrawn runs that judge the recommended fleet, unless fewer decide the targets by intervals of 99%. It is the
cheapest of those that were accepted, so that one whose first runs happened to differ little is likely to be it, and the
standard deviation of 8 runs errs by a quarter. This only takes back what was accepted, so it needs no share of the
error. Intervals of 99% from 8 runs accept a fleet wrongly less often than those of 95% from 32: at the limit itself the
chances are 0.3% and 1.6%, those of Student's t beyond 1.1 (see ``engine.results.redrawn``) times its quantile."""
EXPLAINING = 16
"""The redrawn runs that judge the recommended fleet under changes and at other loads if ``CONFIRMING`` judge it. With
32 of them the plan of the conversation hour took 0.40 of the time of the commit 647cc8fe, with 16 it took 0.35 (two
alternating pairs each), and Student's t of 32 is 4% smaller."""
_SURE = 0.8
"""A look is left out if its interval is predicted to take more than this share of the distance to the limit. The last
look never is: the interval of a run that is too short narrows by more than the square root of the length."""


def at_first(confidence: float) -> float:
    """Return the confidence of the first look, if others may follow."""
    return 1.0 - FIRST * (1.0 - confidence)


def later(confidence: float) -> float:
    """Return the confidence of each later look."""
    return 1.0 - LATER * (1.0 - confidence)


def widening(to: float, of: float = 0.95) -> float:
    """Return the factor from the width of an interval for ``of`` to one for ``to``.

    It is that of Student's t with the fewest batches, or of the normal distribution, whichever is larger.
    """
    return 1.0 if to == of else max(student(n, to) / student(n, of) for n in (9, 10**6))


def next_times(
    targets: Sequence[JudgedTarget], confidence: float, *, times: int, most: int, runs: int | None
) -> int | None:
    """Return the length of the next look that may decide the ``targets``; None if none may.

    Args:
        targets: Those that are not decided, all of them met by value, with intervals.
        confidence: That of the plan.
        times: The length of the last look.
        most: The largest length that is possible.
        runs: The number of replications of the last look; None where it was one run.
    """
    share = max((_share_of_distance(target) for target in targets), default=0.0)
    for length in TIMES:
        if not times < length <= most:
            continue
        judged = targets[0].confidence
        factor = widening(later(confidence), judged)
        if runs is not None:
            more = runs * length // times
            factor = student(more - 1, later(confidence)) / student(runs - 1, judged)
        predicted = share * factor * math.sqrt(times / length)
        if predicted <= _SURE or length == TIMES[-1]:
            return length
    return None


def _share_of_distance(target: JudgedTarget) -> float:
    """Return the half of an interval towards the limit as a share of the distance from the value to the limit."""
    if target.value is None or target.worse_end is None:
        return math.inf
    distance = abs(target.limit - target.value)
    return abs(target.worse_end - target.value) / distance if distance else math.inf


__all__ = [
    "CONFIRMING",
    "EXPLAINING",
    "LATER",
    "MOST_JOBS",
    "MOST_RUNS",
    "TIMES",
    "at_first",
    "later",
    "next_times",
    "widening",
]
