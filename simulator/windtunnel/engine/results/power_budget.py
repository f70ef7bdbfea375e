"""The section ``power_budget`` of the result: the budget over time, and how many devices can work within it."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.core.recording import Recording
from windtunnel.core.results.run import BudgetResult, BudgetSeries
from windtunnel.core.ticks import to_second_array
from windtunnel.engine.prepare.checks import max_power
from windtunnel.engine.prepare.fault_schedule import CAP
from windtunnel.engine.prepare.prepared import PreparedRun

SERIES = 400
"""The largest number of points of the series; a longer one is replaced by the minimum of each of as many intervals."""


def power_budget(prepared: PreparedRun, recording: Recording) -> BudgetResult | None:
    """Return the section ``power_budget`` of the result, or None if neither a budget nor a brown-out limits power.

    A budget in W is None while no limit applies, if only brown-outs limit it.
    """
    if prepared.budget_w is None:
        return None
    ticks, values = _steps(prepared, recording.end)
    downsampled = len(ticks) > SERIES
    if downsampled:
        edges = np.linspace(0, recording.end, SERIES, endpoint=False).astype(np.int64)
        # The value at each edge counts, as well as every lower value before the next edge.
        at = np.union1d(ticks, edges)
        filled = values[np.searchsorted(ticks, at, side="right") - 1]
        values, ticks = np.minimum.reduceat(filled, np.searchsorted(at, edges)), edges
    levels = [None if math.isinf(value) else float(value) for value in values.tolist()]
    limits = [level for level in levels if level is not None]
    return BudgetResult(
        normal_w=None if math.isinf(prepared.budget_w) else prepared.budget_w,
        min_w=min(limits) if limits else None,
        max_active_devices=_max_active_devices(prepared),
        series=BudgetSeries(to_second_array(ticks).tolist(), levels, downsampled),
    )


def _steps(prepared: PreparedRun, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ticks at which the budget changes, beginning with 0, and the budget from each of them on (W)."""
    steps = {0: float(prepared.budget_w or 0.0)}
    if prepared.faults is not None:
        events = prepared.faults.until(end)
        for event in events[(events["code"] == CAP) & (events["tick"] < end)]:
            steps[int(event["tick"])] = float(event["value"])
    kept = sorted(steps.items())
    return np.array([tick for tick, _ in kept], dtype=np.int64), np.array([value for _, value in kept])


def _max_active_devices(prepared: PreparedRun) -> int | None:
    """Return how many devices can work at the same time within the budget; None if only brown-outs limit power.

    Each device counts with the peak power of its workload with the lowest peak, in increasing order of that power.
    """
    budget_w = float(prepared.budget_w or 0.0)
    if math.isinf(budget_w):
        return None
    headroom_w, active = budget_w - prepared.idle_w, 0
    needs: dict[int, float] = {}
    for cls, work in prepared.compiled:
        needs[cls] = min(needs.get(cls, math.inf), max_power(prepared, cls, work))
    for cls in sorted(needs, key=lambda number: (needs[number], number)):
        count = prepared.classes[cls].count
        # The factor prevents that rounding excludes a device that fits exactly.
        fitting = count if needs[cls] <= 0 else min(count, int(headroom_w / needs[cls] * (1 + 1e-12)))
        active, headroom_w = active + fitting, headroom_w - fitting * needs[cls]
    return active
