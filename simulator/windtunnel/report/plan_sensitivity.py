"""How the answer of a plan moves with load, errors of models, lengths, failures, prices and assumed inputs, as text."""

from __future__ import annotations

import math

from windtunnel.core.results.plan import ChangeEffect, PlannedFleet, PlanResult
from windtunnel.core.results.target import JudgedTarget
from windtunnel.core.units import parse_unit
from windtunnel.report.numbers import NOTHING, percent, plural, quantity, share
from windtunnel.report.plan_answer import beyond_error
from windtunnel.report.plan_targets import how, measured
from windtunnel.report.targets import WITHIN_ERROR, with_signs

_UNMOVED = 1e-4
"""The relative change of a step that is shown as none."""


def change_rows(plan: PlanResult) -> list[list[str]]:
    """Return a row for each change: what it is, the outcome, the binding target and its value, and what would do."""
    rows = []
    for effect in plan.explanation.changes:
        outcome = how(effect.meets, plan.confidence)
        bound = effect.binding
        value = "; ".join(effect.violations) if bound is None else f"{_of(bound)} {measured(bound, plan)}"
        rows.append([effect.change, outcome, with_signs(value), _found(effect, plan)])
    return rows


def _found(effect: ChangeEffect, plan: PlanResult) -> str:
    """Return the best fleet that was found for a change, or why there is none."""
    if effect.fleet is not None:
        beyond = beyond_error(effect.model_intervals)
        own = f"; {WITHIN_ERROR.replace('the models', 'its own models')} {beyond}" if beyond else ""
        return f"{effect.fleet}, {effect.objective_text}{own}"
    if effect.candidates_tried:
        return "none of those tried" if not effect.still_meets or not effect.increases_load else "this fleet"
    if not effect.still_meets:
        return f"not sought here (plan.spare: {effect.lost_replicas:,} seeks one)" if effect.lost else NOTHING
    certain = effect.meets.confidence or not plan.fleets[plan.recommended].meets.confidence
    return "this fleet" if certain else "not sought: judged by value"


def widths_note(plan: PlanResult) -> str:
    """Return which changes move the headroom mainly by the width of its interval; empty if none does."""
    changes = [effect.change for effect in plan.explanation.changes if effect.explained_by_interval]
    if not changes:
        return ""
    return (
        "Intervals of few runs are sometimes wide and sometimes narrow, so of two similar changes one may leave the "
        "targets met with confidence and the other one not. That, more than the value, moves the headroom under: "
        f"{'; '.join(changes)}."
    )


def _of(target: JudgedTarget) -> str:
    return f"{target.metric.replace('_', ' ')} {target.statistic or ''}".strip()


def prices_note() -> str:
    """Return which fleets the break-even prices leave out."""
    return (
        "Only simulated fleets are compared. Of those that cost more than the best one only a part was simulated, so "
        "another one may be cheaper at a price nearer to today's."
    )


def no_price(plan: PlanResult) -> str:
    """Return that no price of one device makes another fleet as cheap; empty where prices were not compared."""
    fleets = plan.fleets
    compared = plan.objective == "cost" and len(fleets) > 1 and not plan.scenario.get("autoscale")
    if plan.explanation.prices or not compared:
        return ""
    best = fleets[plan.recommended]
    # A fleet that is not as certain is no alternative at any price.
    others = [f for f in fleets if f is not best and (f.meets.confidence or not best.meets.confidence)]
    how_ = f"with {plan.confidence * 100:.3g}% confidence" if best.meets.confidence else "by value"
    if all(_has_only_devices_of(fleet, best, plan) for fleet in others):
        return (
            f"No price is known at which another device would be cheaper: none of the simulated fleets with another "
            f"one meets the targets {how_}. Of the fleets that cost more than this one, only a part was simulated."
        )
    price = "If the price of one device changes alone, the same in all its groups"
    return f"{price}, no other simulated fleet that meets the targets {how_} becomes as cheap as this one."


def _has_only_devices_of(fleet: PlannedFleet, best: PlannedFleet, plan: PlanResult) -> bool:
    """Return whether all devices of a fleet are devices of ``best`` at the same price.

    The plan states the prices of the entries of one choice; an entry of another choice has that of its device.
    """
    prices = {entry.name: entry.price_usd_per_h for entry in plan.entries}
    own = {(entry.device, prices.get(entry.entry)) for entry in best.configuration}
    devices = {device for device, _ in own}
    return all(
        (entry.device, prices[entry.entry]) in own if entry.entry in prices else entry.device in devices
        for entry in fleet.configuration
    )


def price_rows(plan: PlanResult) -> list[list[str]]:
    """Return a row for each price at which another simulated fleet costs as much as the recommended one."""
    return [
        [
            effect.entry,
            f"{effect.price:,.2f} USD/h",
            _beyond(effect.break_even, effect.price),
            percent(effect.change, signed=True),
            effect.fleet,
        ]
        for effect in plan.explanation.prices
    ]


def _beyond(break_even: float, price: float) -> str:
    """Return on which side of a break-even price another fleet is cheaper, rounded so that it holds as it is shown."""
    cents = break_even * 100
    if break_even > price:
        return f"above {math.ceil(cents - 1e-6) / 100:,.2f} USD/h"
    return f"below {math.floor(cents + 1e-6) / 100:,.2f} USD/h"


def assumption_rows(plan: PlanResult) -> list[list[str]]:
    """Return a row for each assumed input that was simulated, that first which moves a step most."""
    found = plan.explanation.assumptions
    if found is None:
        return []
    factor = 1.0 if found.unit == "1" else parse_unit(found.unit).factor

    def shown(value: float | None) -> str:
        return NOTHING if value is None else share(value) if found.unit == "1" else quantity(value * factor, found.unit)

    return [
        [
            f"{row.device} {row.parameter}",
            f"{_short(row.value, row.unit)} ({_short(row.low, row.unit)} to {_short(row.high, row.unit)})",
            share(row.step),
            f"{shown(row.value_low)} to {shown(row.value_high)}",
            "by value" if row.meets else "no",
        ]
        for row in found.inputs
    ]


def _short(value: float, unit: str) -> str:
    """Return a value in ``unit`` with three significant digits."""
    return f"{value:.3g}" if unit == "1" else quantity(value * parse_unit(unit).factor, unit)


def assumptions_summary(plan: PlanResult) -> str | None:
    """Return what the ranked inputs are of, how they were chosen and simulated, and what the others do."""
    found = plan.explanation.assumptions
    if found is None:
        return None
    others = f"each of the other {found.others:,} moves it by at most {share(found.others_step)}"
    if found.others_step < _UNMOVED:
        others = f"the other {found.others:,} do not move it"
    beyond = [row.parameter for row in found.inputs if not row.is_within(found.low, found.high)]
    chance = "all of these values are within the confidence interval with the stated inputs"
    if None in (found.low, found.high):
        chance = "with the stated inputs it has no confidence interval that would tell chance from influence"
    elif beyond:
        which = "all inputs" if len(beyond) == len(found.inputs) else " and ".join(beyond)
        chance = f"those of {which} are beyond the confidence interval with the stated inputs"
    return (
        f"{with_signs(found.target)} with each input at the low and at the high end of its stated range, "
        f"{plural(found.simulations, 'run')} in all. The inputs are ranked by how far they move the time of a "
        f"representative step of the engine; {others}. Other times of steps also change which requests share a step, "
        f"so the values at the ends contain chance: {chance}."
    )
