"""The data of the charts on the page of a validation: a sample of the points of each comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.ops import CONTEXT, OPERATIONS
from windtunnel.validation.compare import Comparison

MOST_POINTS = 20_000
"""The most points of a page, over all comparisons."""

FEWEST_POINTS = 400
"""The number of points that each comparison may have in any case."""


def charts(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the points of every comparison that has rows; see ``points``."""
    drawn = [one for one in comparisons if one.rows]
    most = max(FEWEST_POINTS, MOST_POINTS // max(len(drawn), 1))
    return [points(one, most) for one in drawn]


def points(one: Comparison, most: int = MOST_POINTS) -> dict[str, Any]:
    """Return measured and modelled times (s), sizes and bounds of at most ``most`` points.

    Of more points these are every k-th in the order of the measured times, and the ten with the largest errors.
    ``bound`` has indices into ``bounds`` (the most frequent first), ``choice`` indices into ``choices``; ``numbers``
    are the operation's counts.
    """
    of = thinned(one, most)
    op = OPERATIONS.find(one.op)
    words, counts = np.unique(one.bound, return_counts=True)
    bounds = [str(words[i]) for i in np.lexsort((words, -counts))]
    context = {column.name: column.default for column in CONTEXT}
    chosen = [
        " ".join(
            str(one.rows[i].columns[column.name])
            for column in op.all_columns()
            if column.kind == "choice" and one.rows[i].columns[column.name] != context.get(column.name)
        )
        for i in of.tolist()
    ]
    choices = sorted(set(chosen))
    numbers = [column.name for column in op.all_columns() if column.kind != "choice"]
    return {
        "device": one.name,
        "op": one.op,
        "measured": _short(one.measured_s[of]),
        "modelled": _short(one.modelled_s[of]),
        "size": _short(one.size[of]),
        "size_unit": one.size_unit,
        "bounds": bounds,
        "bound": [bounds.index(str(word)) for word in one.bound[of]],
        "choices": choices,
        "choice": [choices.index(word) for word in chosen],
        "numbers": {
            name: _short(np.array([float(one.rows[i].columns[name]) for i in of.tolist()])) for name in numbers
        },
        "noise_floor": one.figures()["noise_floor"],
        "shown": len(of),
        "all": len(one.rows),
    }


def thinned(one: Comparison, most: int) -> npt.NDArray[np.int64]:
    """Return the indices of the rows that are drawn, in order."""
    count = len(one.rows)
    if count <= most:
        return np.arange(count)
    order = np.argsort(one.measured_s, kind="stable")
    even = order[np.linspace(0, count - 1, most - 10).astype(np.int64)]
    worst = np.argsort(-np.abs(np.log1p(one.errors)), kind="stable")[:10]
    return np.unique(np.concatenate([even, worst]))


def _short(values: npt.NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
