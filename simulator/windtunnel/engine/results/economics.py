"""What the energy of a run costs and emits at its site, worked out from the power step function hour by hour."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.core.result import Steps
from windtunnel.core.ticks import TICKS_PER_SECOND, FloatArray, to_second_array
from windtunnel.scenario.site import HOURS, Site

_HOUR = 3600 * TICKS_PER_SECOND
_J_PER_KWH = 3.6e6


def joules_by_hour(power: Steps, start_time_s: int) -> FloatArray:
    """Energy (J) that fell into each of the 24 hours of day, of a run that began ``start_time_s`` after midnight.

    Exact: the steps are cut at every full hour, and each piece is its watts times its seconds.
    """
    offset = start_time_s * TICKS_PER_SECOND
    full = np.arange(_HOUR - offset % _HOUR, power.end, _HOUR, dtype=np.int64)
    # As np.union1d of the two, which knows neither that both increase nor that one is short.
    places = np.searchsorted(power.ticks, full)
    new = power.ticks[np.minimum(places, len(power.ticks) - 1)] != full
    ticks = np.insert(power.ticks, places[new], full[new])
    watts = power.values[np.searchsorted(power.ticks, ticks, side="right") - 1]
    joules = watts * to_second_array(np.diff(np.append(ticks, power.end)))
    # Hours are counted from the start's own midnight in two steps: a sum of ticks could leave int64.
    hours = (ticks // _HOUR + (offset // _HOUR) + (ticks % _HOUR + offset % _HOUR) // _HOUR) % HOURS
    by_hour: FloatArray = np.bincount(hours, weights=joules, minlength=HOURS).astype(np.float64)
    return by_hour


def economics(
    power: Steps, site: Site | None, rent_usd_per_s: float | None, by_hour_j: FloatArray | None = None
) -> dict[str, Any] | None:
    """The result's ``site``: energy at the meter, its cost and carbon, and rent and energy together.

    ``by_hour_j``: as ``joules_by_hour`` gives it, where ``power`` is known as means only.

    None without a site. What was not stated (a price, an intensity, a rent) leaves null. Definitions: docs/metrics.md.
    """
    if site is None:
        return None
    span_s = power.end / TICKS_PER_SECOND
    metered = (joules_by_hour(power, site.start_time_s) if by_hour_j is None else by_hour_j) * site.pue
    cost = None if site.energy_price is None else float(np.dot(metered, site.energy_price))
    grams = None if site.carbon is None else float(np.dot(metered, site.carbon))

    def hourly(amount: float | None) -> float | None:
        return None if amount is None or not span_s else amount / span_s * 3600

    rent = None if rent_usd_per_s is None else rent_usd_per_s * span_s
    total = None if cost is None or rent is None else rent + cost
    return {
        "pue": site.pue,
        "energy_kwh": float(metered.sum()) / _J_PER_KWH,
        "energy_cost_usd": cost,
        "energy_cost_usd_per_h": hourly(cost),
        "carbon_kg": None if grams is None else grams / 1e3,
        "carbon_kg_per_h": None if grams is None else hourly(grams / 1e3),
        "cost_usd": total,
        "cost_usd_per_h": hourly(total),
    }
