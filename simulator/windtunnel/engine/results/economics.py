"""Computes cost and emissions of the energy of a run at its site from the power over time, hour by hour."""

from __future__ import annotations

import numpy as np

from windtunnel.core.recording import Steps
from windtunnel.core.results.run import SiteResult
from windtunnel.core.ticks import TICKS_PER_SECOND, FloatArray, to_second_array
from windtunnel.scenario.site import HOURS, Site

_HOUR = 3600 * TICKS_PER_SECOND
_J_PER_KWH = 3.6e6


def joules_by_hour(power: Steps, start_time_s: int) -> FloatArray:
    """Return the energy (J) in each of the 24 hours of the day; the run begins ``start_time_s`` seconds after midnight.

    The result is exact, because the steps of the power are divided at every full hour.
    """
    offset = start_time_s * TICKS_PER_SECOND
    full = np.arange(_HOUR - offset % _HOUR, power.end, _HOUR, dtype=np.int64)
    # The union of both; faster than np.union1d, because both are sorted and one is short.
    places = np.searchsorted(power.ticks, full)
    new = power.ticks[np.minimum(places, len(power.ticks) - 1)] != full
    ticks = np.insert(power.ticks, places[new], full[new])
    watts = power.values[np.searchsorted(power.ticks, ticks, side="right") - 1]
    joules = watts * to_second_array(np.diff(np.append(ticks, power.end)))
    # Hours are counted from midnight in two parts, because the sum of the ticks could overflow int64.
    hours = (ticks // _HOUR + (offset // _HOUR) + (ticks % _HOUR + offset % _HOUR) // _HOUR) % HOURS
    by_hour: FloatArray = np.bincount(hours, weights=joules, minlength=HOURS).astype(np.float64)
    return by_hour


def economics(
    power: Steps, site: Site | None, rent_usd_per_s: float | None, by_hour_j: FloatArray | None = None
) -> SiteResult | None:
    """Return the section ``site`` of the result, or None without a site; docs/metrics.md defines its keys.

    Figures whose price, carbon intensity or rent is unknown are None.

    Args:
        power: The power of the fleet over time (W).
        site: The site of the scenario.
        rent_usd_per_s: The rent of the fleet, or None if a price is unknown.
        by_hour_j: The result of ``joules_by_hour``, if ``power`` has only means over intervals.
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
    carbon_kg = None if grams is None else grams / 1e3
    return SiteResult(
        pue=site.pue,
        energy_kwh=float(metered.sum()) / _J_PER_KWH,
        energy_cost_usd=cost,
        energy_cost_usd_per_h=hourly(cost),
        carbon_kg=carbon_kg,
        carbon_kg_per_h=hourly(carbon_kg),
        cost_usd=total,
        cost_usd_per_h=hourly(total),
    )
