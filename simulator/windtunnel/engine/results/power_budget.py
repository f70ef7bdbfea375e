"""What a budget of power was during a run, and how many devices it feeds at once: for result.json and the reports."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.result import Recording
from windtunnel.core.ticks import to_second_array
from windtunnel.engine.prepare.checks import max_power
from windtunnel.engine.prepare.fault_schedule import CAP
from windtunnel.engine.prepare.prepared import PreparedRun

SERIES = 400
"""Steps of the budget above which the least in each of as many equal times is kept."""


def power_budget(prepared: PreparedRun, recording: Recording) -> dict[str, Any] | None:
    """The budget over time (W, None where only a brown-out limits it), and what it feeds; None without a budget."""
    if prepared.budget_w is None:
        return None
    ticks, values = _steps(prepared, recording.end)
    thinned = len(ticks) > SERIES
    if thinned:
        edges = np.linspace(0, recording.end, SERIES, endpoint=False).astype(np.int64)
        # The value at each edge counts as well as what it falls to before the next.
        at = np.union1d(ticks, edges)
        filled = values[np.searchsorted(ticks, at, side="right") - 1]
        values, ticks = np.minimum.reduceat(filled, np.searchsorted(at, edges)), edges
    levels = [None if math.isinf(value) else float(value) for value in values.tolist()]
    stated = [level for level in levels if level is not None]
    return {
        "normal_w": None if math.isinf(prepared.budget_w) else prepared.budget_w,
        "min_w": min(stated) if stated else None,
        "max_active_devices": _feeds(prepared),
        "series": {"time_s": to_second_array(ticks).tolist(), "budget_w": levels, "downsampled": thinned},
    }


def _steps(prepared: PreparedRun, end: int) -> tuple[np.ndarray, np.ndarray]:
    """(ticks, watts): what the budget was from each tick on, the first being 0."""
    steps = {0: float(prepared.budget_w or 0.0)}
    if prepared.faults is not None:
        events = prepared.faults.until(end)
        for event in events[(events["code"] == CAP) & (events["tick"] < end)]:
            steps[int(event["tick"])] = float(event["value"])
    kept = sorted(steps.items())
    return np.array([tick for tick, _ in kept], dtype=np.int64), np.array([value for _, value in kept])


def _feeds(prepared: PreparedRun) -> int | None:
    """How many devices at most can work at once within the budget; None where there is no limit but in a brown-out.

    The devices whose work draws least count first, each at the most that the least demanding of its workloads draws.
    """
    budget_w = float(prepared.budget_w or 0.0)
    if math.isinf(budget_w):
        return None
    left, fed = budget_w - prepared.idle_w, 0
    needs: dict[int, float] = {}
    for cls, work in prepared.compiled:
        needs[cls] = min(needs.get(cls, math.inf), max_power(prepared, cls, work))
    for cls in sorted(needs, key=lambda one: (needs[one], one)):
        count = prepared.classes[cls].count
        # A whole number of watts must not fall short by a rounding.
        some = count if needs[cls] <= 0 else min(count, int(left / needs[cls] * (1 + 1e-12)))
        fed, left = fed + some, left - some * needs[cls]
    return fed
