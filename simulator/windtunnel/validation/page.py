"""The data of the charts on the page of a validation: a sample of the points of each comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from windtunnel.core.ops import CONTEXT
from windtunnel.core.results.validation import ChartPoints
from windtunnel.core.step_op import PREDICTED
from windtunnel.validation.compare import Comparison

MOST_POINTS = 20_000
"""The most points of a page, over all comparisons."""

FEWEST_POINTS = 400
"""The number of points that each comparison may have in any case."""


def charts(comparisons: Sequence[Comparison]) -> list[ChartPoints]:
    """Return the points of every comparison that has rows; see ``points``."""
    drawn = [comparison for comparison in comparisons if comparison.rows]
    most = max(FEWEST_POINTS, MOST_POINTS // max(len(drawn), 1))
    return [points(comparison, most) for comparison in drawn]


def points(comparison: Comparison, most: int = MOST_POINTS) -> ChartPoints:
    """Return measured and modelled times (s), sizes and bounds of at most ``most`` points.

    Of more points these are every k-th in the order of the measured times, and the ten with the largest errors.
    """
    of = thinned(comparison, most)
    op = PREDICTED.find(comparison.op)
    words, counts = np.unique(comparison.bound, return_counts=True)
    bounds = [str(words[i]) for i in np.lexsort((words, -counts))]
    context = {column.name: column.default for column in CONTEXT}
    chosen = [
        " ".join(
            str(comparison.rows[i].columns[column.name])
            for column in op.all_columns()
            if not column.is_number and comparison.rows[i].columns[column.name] != context.get(column.name)
        )
        for i in of.tolist()
    ]
    choices = sorted(set(chosen))
    numbers = [column.name for column in op.all_columns() if column.is_number]
    return ChartPoints(
        device=comparison.name,
        op=comparison.op,
        measured=_short(comparison.measured_s[of]),
        modelled=_short(comparison.modelled_s[of]),
        size=_short(comparison.size[of]),
        size_unit=comparison.size_unit,
        bounds=bounds,
        bound=[bounds.index(str(word)) for word in comparison.bound[of]],
        choices=choices,
        choice=[choices.index(word) for word in chosen],
        numbers={
            name: _short(np.array([float(comparison.rows[i].columns[name]) for i in of.tolist()])) for name in numbers
        },
        noise_floor=comparison.figures().noise_floor,
        shown=len(of),
        all=len(comparison.rows),
    )


def thinned(comparison: Comparison, most: int) -> npt.NDArray[np.int64]:
    """Return the indices of the rows that are drawn, in order."""
    count = len(comparison.rows)
    if count <= most:
        return np.arange(count)
    order = np.argsort(comparison.measured_s, kind="stable")
    even = order[np.linspace(0, count - 1, most - 10).astype(np.int64)]
    worst = np.argsort(-np.abs(np.log1p(comparison.errors)), kind="stable")[:10]
    return np.unique(np.concatenate([even, worst]))


def _short(values: npt.NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
