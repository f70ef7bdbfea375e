"""What the simulation of one fleet gives; headroom, violations, binding target, cost frontier, knee of a curve."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.results.plan import Meets
from windtunnel.core.results.target import JudgedTarget, ModelInterval
from windtunnel.core.units import format_quantity, format_share, parse_unit, told_apart
from windtunnel.planning.bounds import Counts

_OF_SERVICE = ("throughput", "completed", "slo_attainment")
"""The metrics besides times whose targets must be met while spare devices are out of service."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was simulated of one fleet; the same in every process.

    ``decided``: the fleet meets the targets with confidence or does not, and this does not rest on an interval that is
    missing. ``judged_by``: run, longer or replications. Within ``keep_up_s`` after the last arrival a fleet that keeps
    up completes all jobs. Measured values are means over the runs.
    """

    counts: Counts
    meets: Meets
    decided: bool
    judged_by: str
    runs: int
    keeps_up: bool
    keep_up_s: float
    targets: Sequence[JudgedTarget]
    cost_usd_per_h: float
    power_w: float
    peak_power_w: float
    energy_cost_usd_per_h: float | None
    total_cost_usd_per_h: float | None
    carbon_kg_per_h: float | None
    usd_per_million_output_tokens: float | None
    throughput_per_s: float
    """Of output tokens, or of jobs where nothing generates them."""
    devices: float
    """The devices of the fleet: those rented on average for entries that are scaled."""
    tpot_mean_s: float | None
    prefix_hit_rate: float | None
    utilisation: float
    p99_s: float | None
    p50_s: float | None
    engine: str
    drain_share: float = 0.0
    """The share of the first run that follows its last arrival."""
    spare_violations: Sequence[str] = ()
    """What is left without spare devices where it does not complete the work at all."""
    choice: int = 0
    """The number of the plan's choice to which the fleet belongs."""
    model_intervals: Sequence[ModelInterval] = ()
    """The intervals of its targets for the error of the models, where they were asked for."""
    times: int = 1
    """The factor on the length of the run, or on the number of replications, by which the fleet is judged."""
    further: int | None = None
    """The factor (``times``) of a further look that may decide whether it meets the targets with confidence; None if
    that is decided, or if no look may."""
    stopped_after: int | None = None
    """The arrivals after which its run was ended, because it misses a target whatever follows. Values of its targets
    are then lower bounds, and of its other values only the cost is known."""

    looked_again: bool = False
    """Whether a further look judges it."""
    settled: bool = False
    """Whether redrawn runs judge it, and it meets the targets also by their intervals of 99%."""

    @property
    def redrawn_runs(self) -> int:
        """The number of redrawn runs by which the fleet is judged; 0 where it was not redrawn."""
        of_run = [t.interval_runs for t in self.targets if t.interval_source == "run"]
        return max((number for number in of_run if number is not None), default=0)

    @property
    def goal(self) -> str:
        """How the answer is judged if this is the recommended fleet: with ``confidence`` or by ``value``."""
        return "confidence" if self.meets.confidence else "value"

    @property
    def judged_for(self) -> str:
        """How other cases of the recommended fleet are judged: they are looked at again only if the fleet was."""
        return self.goal if self.looked_again else "value"

    def reaches(self, goal: str) -> bool:
        """Return whether the fleet meets every target by ``value``, or with ``confidence``."""
        return self.meets.confidence if goal == "confidence" else self.meets.value

    def objective(self, name: str) -> float:
        """Return what is minimised; infinite if it is unknown.

        It is the cost (USD/h), the power (W), the carbon (kg/h), or for throughput the devices over it (s).
        """
        value = {
            "cost": self.cost_usd_per_h,
            "power": self.power_w,
            "carbon": self.carbon_kg_per_h,
            "throughput": self.devices / self.throughput_per_s if self.throughput_per_s else math.inf,
        }[name]
        return math.inf if value is None else value

    def target(self, text: str) -> JudgedTarget:
        """Return the target with this text."""
        return next(target for target in self.targets if target.text == text)


def judged_again(first: Evaluation, again: Evaluation) -> Evaluation:
    """Return a fleet as a further look judges it.

    Its costs, its power and its throughput stay those of the run that all fleets share, because the lower bounds hold
    for that run.
    """
    keeps_up = first.keeps_up and again.keeps_up
    return replace(
        first,
        targets=again.targets,
        keeps_up=keeps_up,
        meets=Meets(value=keeps_up and again.meets.value, confidence=keeps_up and again.meets.confidence),
        judged_by=again.judged_by,
        runs=again.runs,
        times=again.times,
        looked_again=True,
        further=again.further if keeps_up else None,
        tpot_mean_s=again.tpot_mean_s,
        prefix_hit_rate=again.prefix_hit_rate,
        utilisation=again.utilisation,
        p50_s=again.p50_s,
        p99_s=again.p99_s,
    )


def lacks_intervals(targets: Sequence[JudgedTarget]) -> bool:
    """Return whether a longer run, or replications, may be needed for intervals alone.

    Every target is met by value, and of those that are not met with confidence some have no interval. The others have
    intervals of one run, which the longer run narrows; those of redrawn runs contain changes that replications lack.
    """
    open_ = [t for t in targets if not t.met]
    missing = [t.interval_source == "none" for t in open_]
    of_one_run = [t.interval_source == "run" and t.interval_runs is None for t in open_]
    return any(missing) and all(
        t.verdict == "unknown" and (none or own) for t, none, own in zip(open_, missing, of_one_run, strict=True)
    )


def with_reduced(fleet: Evaluation, reduced: Evaluation | None, lost: str) -> Evaluation:
    """Return a fleet that must also meet its targets on service while the devices ``lost`` are out of service.

    Each of these targets is the worse of both. ``reduced`` is what was simulated of the rest; None if the rest cannot
    do the work. Costs, power and utilisation stay those of the whole fleet.
    """
    if reduced is None:
        problem = f"without {lost} none is left, or the others cannot serve every job in time"
    elif not reduced.keeps_up:
        problem = f"without {lost}: {_not_completed(reduced)}"
    else:
        problem = ""
    targets = list(fleet.targets)
    for i, target in enumerate(targets):
        if reduced is not None and (target.unit == "s" or target.metric in _OF_SERVICE):
            left = replace(reduced.targets[i], out_of_service=lost)
            targets[i] = max(target, left, key=lambda t: t.badness)
    problems = [*fleet.spare_violations, *([problem] if problem else [])]
    works = fleet.keeps_up and not problems
    meets = Meets(
        value=works and all(t.verdict != "missed" for t in targets), confidence=works and all(t.met for t in targets)
    )
    further = fleet.further or (None if reduced is None else reduced.further)
    return replace(
        fleet,
        targets=targets,
        meets=meets,
        settled=reduced is not None and fleet.settled and reduced.settled,
        decided=meets.confidence or not meets.value or not lacks_intervals(targets),
        spare_violations=problems,
        further=further if meets.value else None,
    )


def _not_completed(evaluation: Evaluation) -> str:
    time = format_quantity(evaluation.keep_up_s, "s")
    return f"it does not complete its work: jobs remain {time} after the last arrival that counts"


def headroom(worse_end: float | None, limit: float, comparison: str) -> float | None:
    """Return the distance from the worse end of the interval to the limit, as a share of the limit.

    It is negative where the target is missed, and None where there is no interval or the limit is zero.
    """
    if worse_end is None or not limit:
        return None
    share = float((limit - worse_end) / abs(limit))
    return share if comparison == "<=" else -share


def binding(evaluation: Evaluation) -> JudgedTarget | None:
    """Return the target with the least headroom, the first of equals; None where no target has any."""
    measured = [(t.headroom, i) for i, t in enumerate(evaluation.targets) if t.headroom is not None]
    return evaluation.targets[min(measured)[1]] if measured else None


def least_headroom(evaluation: Evaluation) -> float:
    """Return the headroom of the binding target; minus infinity where no target has any."""
    target = binding(evaluation)
    return -math.inf if target is None or target.headroom is None else target.headroom


def violations(evaluation: Evaluation) -> list[str]:
    """Return in words which targets a fleet misses; if it misses none, which of them it does not meet with confidence.

    The worst is first. The list is empty for a fleet that meets every target with confidence.
    """
    missed = [t for t in evaluation.targets if t.verdict == "missed"]
    if evaluation.stopped_after is not None:
        shown_by = f"as the first {evaluation.stopped_after:,} jobs show"
        return [f"{t.text}: at least {shown(t.value, t.unit, t.limit)}, {shown_by}" for t in missed]
    without_value: dict[str, list[str]] = {}
    for target in missed:
        if target.value is None:
            without_value.setdefault(str(target.reason), []).append(target.text)
    lines = [f"{reason}, so there is no value for {' and '.join(texts)}" for reason, texts in without_value.items()]
    measured = sorted((t for t in missed if t.value is not None), key=lambda t: t.headroom or -math.inf)
    # Without an interval the value alone shows the miss.
    lines += [
        f"{t.text}: {value_text(t) if t.low is not None else shown(t.value, t.unit, t.limit) + t.out_of_service_text}"
        for t in measured
    ]
    # The missed targets are reason enough; those that are met by value only are listed where none is missed.
    if not missed and evaluation.keeps_up:
        lines += [f"{t.text}: {value_text(t)}{doubt(t)}" for t in evaluation.targets if t.verdict == "unknown"]
    if not evaluation.keeps_up:
        lines.append(_not_completed(evaluation))
    return [*lines, *evaluation.spare_violations]


# Words for values.


def shown(value: float | None, unit: str, limit: float | None = None) -> str:
    """Return a value in the unit of its target as text; a share as a percentage, and None as a dash.

    It has as many digits as tell it from ``limit``.
    """
    if value is None:
        return "–"
    factor = parse_unit(unit).factor

    def text(number: float, digits: int) -> str:
        if unit == "1":
            return format_share(number, digits)
        if unit == "USD/h" or factor == 1.0:
            return format_quantity(number * factor, unit, digits)
        return f"{number:.{digits}g} {unit}"

    return told_apart(value, limit, text)


def value_text(target: JudgedTarget) -> str:
    """Return a target's value with its confidence interval as text, and without which devices it has them."""
    unit, low, high = target.unit, target.low, target.high
    text = f"{shown(target.value, unit, target.limit)}{target.out_of_service_text}"
    if target.interval_source == "none":
        return f"{text}, no confidence interval"
    if target.interval_source == "exact" or low == high:
        return text
    first, last = shown(low, unit, target.limit), shown(high, unit, target.limit)
    number, _, rest = first.partition(" ")
    if rest and rest == last.partition(" ")[2]:
        first = number
    # Where all fleets are judged by replications, a note says so once.
    runs = f" from {target.runs_text}" if target.runs_text and target.interval_source == "run" else ""
    return f"{text}, {target.confidence * 100:.3g}% CI {first} to {last}{runs}"


def _judged_end(target: JudgedTarget) -> str:
    """Return the end of the interval by which a target is judged; empty text for an exact value."""
    if target.interval_source in ("none", "exact") or target.low == target.high:
        return ""
    return "upper" if target.comparison == "<=" else "lower"


def doubt(target: JudgedTarget) -> str:
    """Return why a target is met by value only; empty text for one that is met with confidence, or missed."""
    if target.verdict != "unknown":
        return ""
    if target.interval_source == "none":
        return f" ({target.reason})"
    return f", whose {_judged_end(target)} bound misses the limit"


def headroom_text(target: JudgedTarget) -> str:
    """Return a target's value, and its headroom with the bound of the interval at which it is measured."""
    if target.headroom is None:
        return value_text(target)
    if target.headroom < 0:
        return f"{value_text(target)}{doubt(target)}"
    end = _judged_end(target)
    return f"{value_text(target)}; headroom {percent(target.headroom)}{f' at the CI {end} bound' if end else ''}"


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return "an unknown share" if share is None else format_share(share)


def explained_by_interval(before: JudgedTarget, after: JudgedTarget) -> bool:
    """Return whether the headroom of a target changed because of the width of its interval.

    That is so where the value changed little and the interval is wider, or where the value changed for the worse and
    the headroom for the better, or the other way round.
    """
    if before.value is None or before.worse_end is None or after.value is None or after.worse_end is None:
        return False
    moved = abs(after.value - before.value)
    if (after.value - before.value) * (after.worse_end - before.worse_end) < 0:
        return abs(after.worse_end - before.worse_end) > 0.01 * abs(before.limit)
    widened = abs(after.worse_end - before.worse_end) - moved
    little = moved <= 0.1 * abs(before.value)
    return little and widened > 2 * moved and widened > 0.1 * abs(before.limit)


# Choosing among evaluations.


def cheaper_that_fail(
    evaluations: Sequence[Evaluation], best: Evaluation, objective: str, goal: str
) -> list[Evaluation]:
    """Return the simulated fleets that cost less than ``best`` and do not reach ``goal``."""
    return [e for e in evaluations if not e.reaches(goal) and e.objective(objective) < best.objective(objective)]


def excess(evaluation: Evaluation) -> float:
    """Return how far a fleet's worst target is beyond its limit by value, as a share of the limit.

    It is negative for a fleet that meets the targets by value. It is infinite where the fleet does not complete its
    work, fails without its spare devices, or has a target without a value.
    """
    if not evaluation.keeps_up or evaluation.spare_violations:
        return math.inf
    found = [headroom(target.value, target.limit, target.comparison) for target in evaluation.targets]
    return max((math.inf if share is None else -share for share in found), default=math.inf)


def next_cheapest(evaluations: Sequence[Evaluation], best: Evaluation, objective: str, goal: str) -> Evaluation | None:
    """Return the most expensive of the simulated fleets that cost less than ``best`` and do not reach ``goal``."""
    failed = cheaper_that_fail(evaluations, best, objective, goal)
    return max(failed, key=lambda e: (e.objective(objective), e.choice, e.counts), default=None)


def binding_time(evaluation: Evaluation | None) -> JudgedTarget | None:
    """Return the target of a time with the least headroom; None where no target of a time has any.

    Where no interval of a time is known, the headroom is that of the value.
    """
    targets = [t for t in ([] if evaluation is None else evaluation.targets) if t.unit == "s"]
    timed = [(t.headroom, i) for i, t in enumerate(targets) if t.headroom is not None]
    if not timed:
        of_value = [(headroom(t.value, t.limit, t.comparison), i) for i, t in enumerate(targets)]
        timed = [(share, i) for share, i in of_value if share is not None]
    return targets[min(timed)[1]] if timed else None


def time_s(evaluation: Evaluation, target: JudgedTarget | None) -> float | None:
    """Return a fleet's value (s) of ``target``, or its p99 latency where ``target`` is None."""
    return evaluation.p99_s if target is None else evaluation.target(target.text).value


def time_name(target: JudgedTarget | None) -> str:
    """Return the name of what ``time_s`` returns."""
    if target is None:
        return "latency p99"
    of = f" of {target.workload}" if target.workload else ""
    return f"{target.metric.replace('_', ' ')} {target.statistic}{of}"


def front(evaluations: Sequence[Evaluation], target: JudgedTarget | None) -> list[Evaluation]:
    """Return the fleets that meet every target by value and that no other such fleet beats in cost, power and time."""
    met = [e for e in evaluations if e.meets.value and time_s(e, target) is not None]
    points = np.array([[e.cost_usd_per_h, e.power_w, time_s(e, target)] for e in met])
    kept = []
    for i, evaluation in enumerate(met):
        beaten = (points <= points[i]).all(axis=1) & (points < points[i]).any(axis=1)
        if not beaten.any():
            kept.append(evaluation)
    return sorted(kept, key=lambda e: (e.cost_usd_per_h, e.power_w, e.choice, e.counts))


def feasible(evaluations: Sequence[Evaluation], objective: str) -> list[Evaluation]:
    """Return the fleets that meet every target by value, the best first.

    Of fleets with an equal objective and rent the one with the fewest devices is first, then that with the most
    headroom.
    """

    def place(e: Evaluation) -> tuple[float, float, float, float, int, Counts]:
        # The order in which prices were added up must not decide between equal fleets.
        objective_value, rent = (float(f"{v:.12g}") for v in (e.objective(objective), e.cost_usd_per_h))
        return objective_value, rent, e.devices, -least_headroom(e), e.choice, e.counts

    return sorted((e for e in evaluations if e.meets.value), key=place)


def reaches_with(fleet: Evaluation, factor: float, goal: str, texts: Collection[str]) -> bool:
    """Return whether a fleet still reaches ``goal`` if the values of the targets ``texts`` are ``factor`` times theirs.

    Their intervals are scaled likewise.
    """
    targets = [target for target in fleet.targets if target.text in texts]
    ends = [target.worse_end if goal == "confidence" else target.value for target in targets]
    pairs = zip(ends, targets, strict=True)
    return fleet.reaches(goal) and all(end is not None and end * factor <= target.limit for end, target in pairs)


def first_token_targets(intervals: Sequence[ModelInterval]) -> list[str]:
    """Return the targets on the time to the first token; empty if none may be missed within the error of the models."""
    found = [interval for interval in intervals if interval.metric == "ttft" and interval.comparison == "<="]
    return [] if all(interval.within for interval in found) else [interval.text for interval in found]


def recommended(fleets: Sequence[Evaluation]) -> int:
    """Return the index of the first fleet that meets every target with confidence; 0 where there is none."""
    return next((i for i, e in enumerate(fleets) if e.meets.confidence), 0)


def notable(fleets: Sequence[Evaluation], most: int) -> list[int]:
    """Return the indices of at most ``most`` fleets without those that contain an earlier one that is as certain.

    The recommended fleet is always among them, and where it meets the targets with confidence, the next that does too.
    """
    kept: list[int] = []
    for i, e in enumerate(fleets):
        contains = (
            fleets[j].choice == e.choice
            and all(a <= b for a, b in zip(fleets[j].counts, e.counts, strict=True))
            and (fleets[j].meets.confidence or not e.meets.confidence)
            for j in kept
        )
        if not any(contains):
            kept.append(i)
    best = recommended(fleets)
    certain = [i for i in kept if i >= best and fleets[i].meets.confidence]
    needed = (certain or [best])[: min(2, most)] if fleets else []
    others = [i for i in kept if i not in needed]
    return sorted([*needed, *others[: most - len(needed)]])
