"""What a planner asks of an answer: what binds, what the next-cheapest breaks, what is left, where the knee is.

Works on evaluations: what a simulation said of a fleet, as plain data (see ``windtunnel.app.plan``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.core.units import format_quantity, format_share, parse_unit

Evaluation = Mapping[str, Any]


def headroom(target: Mapping[str, Any]) -> float | None:
    """How far the worse end of the interval is from the limit, as a share of the limit; negative where it is missed."""
    worst, limit = target["worst"], target["limit"]
    if worst is None or not limit:
        return None
    room = float((limit - worst) / abs(limit))
    return room if target["comparison"] == "<=" else -room


def binding(evaluation: Evaluation) -> Mapping[str, Any] | None:
    """The target with the least headroom; the first of equals."""
    known = [(t["headroom"], i) for i, t in enumerate(evaluation["targets"]) if t["headroom"] is not None]
    return evaluation["targets"][min(known)[1]] if known else None


def least_room(evaluation: Evaluation) -> float:
    """What is left of the target that binds; without end negative where nothing is known."""
    bound = binding(evaluation)
    return -math.inf if bound is None else float(bound["headroom"])


def broken(evaluation: Evaluation) -> list[str]:
    """What a fleet breaks, or why it cannot be told, in words, the worst first; empty where it meets everything."""
    said = []
    missed = [t for t in evaluation["targets"] if t["verdict"] == "missed"]
    without: dict[str, list[str]] = {}
    for target in missed:
        if target["value"] is None:
            without.setdefault(target["why"], []).append(target["text"])
    said += [f"{why}, so there is no value for {' and '.join(texts)}" for why, texts in without.items()]
    reached_ones = sorted((t for t in missed if t["value"] is not None), key=lambda t: t["headroom"] or -math.inf)
    said += [f"{target['text']}: {_value(target)}{_beyond(target)}" for target in reached_ones]
    # What is missed says enough of a fleet that fails anyhow.
    said += [
        f"{target['text']} cannot be told with confidence: {_value(target)} ({target['why']})"
        for target in evaluation["targets"]
        if target["verdict"] == "unknown" and not missed and evaluation["keeps_up"]
    ]
    if not evaluation["keeps_up"]:
        said.append(f"it falls behind: more than {_s(evaluation['keep_up_s'])} of work is left at the end")
    if evaluation.get("spare_breaks"):
        said.append(evaluation["spare_breaks"])
    return said


def _s(seconds: float) -> str:
    return format_quantity(seconds, "s")


def shown(value: float, unit: str) -> str:
    """A value in its target's own unit; a share as a percentage."""
    if unit == "1":
        return format_share(value)
    factor = parse_unit(unit).factor
    if unit == "USD/h" or factor == 1.0:
        return format_quantity(value * factor, unit)
    return f"{value:.3g} {unit}"


def _value(target: Mapping[str, Any]) -> str:
    """A target's value with its interval."""
    unit, low, high = target["unit"], target["low"], target["high"]
    text = shown(target["value"], unit)
    if target["interval"] == "none":
        return f"{text}, without an interval"
    if target["interval"] == "exact" or low == high:
        return text
    first, last = shown(low, unit), shown(high, unit)
    figure, _, rest = first.partition(" ")
    if rest and rest == last.partition(" ")[2]:
        first = figure
    return f"{text}, {target['confidence'] * 100:.3g}% interval {first} to {last}"


def _end(target: Mapping[str, Any]) -> str:
    """The end of the interval by which a target is judged; empty where the value is exact."""
    if target["interval"] in ("none", "exact") or target["low"] == target["high"]:
        return ""
    return "upper end" if target["comparison"] == "<=" else "lower end"


def _beyond(target: Mapping[str, Any]) -> str:
    """Where the value is within the limit, that the interval is not."""
    value, limit, end = target["value"], target["limit"], _end(target)
    within = value <= limit if target["comparison"] == "<=" else value >= limit
    return f", whose {end} is beyond the limit" if within and end else ""


def _left(target: Mapping[str, Any]) -> str:
    """What is left to the limit, and at which end of what."""
    if target["headroom"] is None:
        return _value(target)
    end = _end(target)
    if target["headroom"] < 0:
        return f"{_value(target)}{_beyond(target)}"
    return f"{_value(target)}: {percent(target['headroom'])} is left to the limit{f' at its {end}' if end else ''}"


def only_less_sure(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether what is left of a target differs mostly by the width of the interval and little by the value."""
    if None in (before["value"], before["worst"], after["value"], after["worst"]):
        return False
    moved = abs(after["value"] - before["value"])
    widened = abs(after["worst"] - before["worst"]) - moved
    return bool(widened > 2 * moved and widened > 0.1 * abs(before["limit"]))


def next_cheapest(evaluations: Sequence[Evaluation], best: Evaluation, objective: str) -> Evaluation | None:
    """Of the simulated fleets that are cheaper and fail, the dearest."""
    failed = [e for e in evaluations if not e["met"] and e[objective] is not None and e[objective] < best[objective]]
    return max(failed, key=lambda e: (e[objective], tuple(e["counts"])), default=None)


def time_that_binds(evaluation: Evaluation | None) -> Mapping[str, Any] | None:
    """The target of a time with the least headroom; None where no target of a time has any."""
    timed = [] if evaluation is None else evaluation["targets"]
    return min(
        (t for t in timed if t["unit"] == "s" and t["headroom"] is not None), key=lambda t: t["headroom"], default=None
    )


def time_s(evaluation: Evaluation, about: Mapping[str, Any] | None) -> float | None:
    """A fleet's value (s) of the target ``about``, or without one its p99 latency."""
    if about is None:
        value: float | None = evaluation["p99_s"]
        return value
    found: float | None = next(t["value"] for t in evaluation["targets"] if t["text"] == about["text"])
    return found


def time_name(about: Mapping[str, Any] | None) -> str:
    """What ``time_s`` is the value of, in words."""
    if about is None:
        return "latency p99"
    of = f" of {about['workload']}" if about["workload"] else ""
    return f"{about['metric'].replace('_', ' ')} {about['statistic']}{of}"


def front(evaluations: Sequence[Evaluation], about: Mapping[str, Any] | None) -> list[Evaluation]:
    """Fleets that meet everything and that no other such fleet beats in cost, power and ``time_s`` together."""
    met = [e for e in evaluations if e["met"] and time_s(e, about) is not None]
    points = np.array([[e["cost_usd_per_h"], e["power_w"], time_s(e, about)] for e in met])
    kept = []
    for i, one in enumerate(met):
        beaten = (points <= points[i]).all(axis=1) & (points < points[i]).any(axis=1)
        if not beaten.any():
            kept.append(one)
    return sorted(kept, key=lambda e: (e["cost_usd_per_h"], e["power_w"], tuple(e["counts"])))


_UNTOLD = 2
"""Fleets that cannot be told, as sentences: the reasons of the others are much the same, and in the table."""

KNEE_RULE = (
    "Kneedle (Satopaa et al., 2011): the load at which the curve, both axes brought to 0..1, is furthest below the "
    "line from its first point to its last"
)
_STRAIGHT = 0.1
"""A curve nowhere further than this below the straight line has no knee."""


def knee(loads: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The load after which a rising curve turns up (see KNEE_RULE); None where it does not, or has no four points."""
    known = sorted((x, y) for x, y in zip(loads, values, strict=True) if y is not None and math.isfinite(y))
    if len(known) < 4:
        return None
    x, y = (np.array(column) for column in zip(*known, strict=True))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    apart = (x - x[0]) / np.ptp(x) - (y - y.min()) / np.ptp(y)
    place = int(np.argmax(apart))
    return float(x[place]) if apart[place] > _STRAIGHT else None


def minimal(evaluations: Sequence[Evaluation], objective: str, most: int) -> list[Evaluation]:
    """The best fleets that meet everything, none of which is another one with more devices."""
    met = sorted(
        (e for e in evaluations if e["met"]),
        key=lambda e: (e[objective], e["cost_usd_per_h"], sum(e["counts"]), tuple(e["counts"])),
    )
    kept: list[Evaluation] = []
    for one in met:
        if not any(all(a <= b for a, b in zip(other["counts"], one["counts"], strict=True)) for other in kept):
            kept.append(one)
    return kept[:most]


def unconfirmed(
    evaluations: Sequence[Evaluation], listed: Sequence[Evaluation], objective: str, most: int
) -> list[Evaluation]:
    """Fleets of which it cannot be told whether they do, the best first; none that holds another such or a good one."""
    kept: list[Evaluation] = []
    unknown = [e for e in evaluations if e["verdict"] == "unknown" and e[objective] is not None]
    for one in sorted(unknown, key=lambda e: (e[objective], e["cost_usd_per_h"], sum(e["counts"]), tuple(e["counts"]))):
        if not any(
            all(a <= b for a, b in zip(other["counts"], one["counts"], strict=True)) for other in (*kept, *listed)
        ):
            kept.append(one)
    return kept[:most]


@dataclass(frozen=True)
class Ranked:
    """How fleets compare by an objective, in words."""

    less: str
    more: str
    least: str


RANKED: Mapping[str, Ranked] = {
    "cost": Ranked("cheaper", "dearer", "cheapest"),
    "power": Ranked("lower-power", "higher-power", "lowest-power"),
    "carbon": Ranked("lower-carbon", "higher-carbon", "lowest-carbon"),
}


def sentences(plan: Mapping[str, Any]) -> list[str]:
    """The explanation in plain sentences, from the finished plan."""
    said: list[str] = []
    ranked = RANKED[plan["objective"]]
    if not plan["fleets"]:
        said.append(
            "Of no fleet that was simulated can it be said that it meets the targets."
            if plan["unconfirmed"]
            else "No fleet that was simulated meets the targets."
            if plan["simulated"]
            else "No fleet can meet the targets, and none was simulated: the bound alone rules all out."
        )
        said += [f"{one}." for one in plan["explanation"]["unreachable"]]
        said += _untold_fleets(plan)
        said += [f"{entry['name']}: {entry['why']}." for entry in plan["entries"] if entry["why"]]
        closest = plan["explanation"]["closest"]
        if closest is not None and not plan["unconfirmed"]:
            said.append(f"The closest, {closest['fleet']}, fails: {'; '.join(closest['breaks'])}.")
        return said
    told = plan["explanation"]
    bound = told["binding"]
    if bound is not None:
        said.append(f"What binds is {bound['text']}: {_left(bound)}.")
    nearest = told["next_cheapest"]
    if nearest is not None:
        said.append(
            f"The next-{ranked.least} fleet that was simulated, {nearest['fleet']} at {nearest['objective_text']}, "
            f"{'fails' if nearest['verdict'] == 'fails' else 'is not confirmed'}: {'; '.join(nearest['breaks'])}."
        )
    said += _untold_fleets(plan)
    if told["changes"]:
        said.append(
            "What is left is measured from the worse end of the interval, and every line below has the same seed; a "
            "load is so many times the jobs in the same time."
        )
    said += [_change(change, ranked) for change in told["changes"]]
    said += told["search"]
    said += [f"{entry['name']}: {entry['why']}." for entry in plan["entries"] if entry["why"]]
    return said


def _untold_fleets(plan: Mapping[str, Any]) -> list[str]:
    fleets = plan["unconfirmed"]
    said = [f"{fleet['text']}: {'; '.join(fleet['breaks'])}." for fleet in fleets[:_UNTOLD]]
    return said + ([f"{len(fleets) - _UNTOLD} more are listed of which it cannot be told."] if fleets[_UNTOLD:] else [])


def percent(share: float | None) -> str:
    """A share of one as a percentage."""
    return "an unknown share" if share is None else format_share(share)


def _change(change: Mapping[str, Any], ranked: Ranked) -> str:
    if change["holds"]:
        text = f"{change['what']}: this fleet still meets everything"
        if change["binding"] is not None:
            text += f"; what binds is {change['binding']['text']}: {_left(change['binding'])}"
    else:
        fails = "fails" if change["verdict"] == "fails" else "can no longer be confirmed"
        text = f"{change['what']}: this fleet {fails} ({'; '.join(change['breaks'])})"
    if change["noise"]:
        text += " (the value moved little: this differs mostly by how wide one run's interval is)"
    number = change["tried"]
    if change["fleet"] is not None and number == 1:
        text += f"; {change['fleet']} would do, at {change['objective_text']}"
    elif change["fleet"] is not None:
        text += f"; of {_fleets(number)} tried, the {ranked.least} that would do is {change['fleet']}"
        text += f", at {change['objective_text']}"
    elif number:
        which = ranked.more if change["harder"] else ranked.less
        text += f"; of {_fleets(number, which)} that {'was' if number == 1 else 'were'} tried, none would do"
    return text + "."


def _fleets(number: int, which: str = "") -> str:
    return f"{number:,} {which}{' ' if which else ''}{'fleet' if number == 1 else 'fleets'}"
