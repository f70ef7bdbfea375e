"""The latency-load curve of a fleet with its knee, and the frontier of tokens per device against tokens per user."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import LoadCurve, LoadPoint, PlannedFleet, RatePoint
from windtunnel.core.results.target import JudgedTarget
from windtunnel.engine.prepare.autoscaling import rules_by_entry
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.engine.prepare.scenario import prepare
from windtunnel.planning import evaluation as evaluating
from windtunnel.planning.candidates import Candidates, offered_per_s
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.sensitivity import LOAD_CHANGES, redraws_of
from windtunnel.planning.simulate import Case, Setting, entry_name, fleet_text, preference
from windtunnel.planning.workers import Simulator, Workers
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.fleet import fleet_devices, policy_of
from windtunnel_models.catalogue import Catalogue, shipped_catalogue

LOADS = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
"""The loads of a curve unless others are stated."""
_FURTHER = 1.25
"""The factor from one load to the next beyond ``LOADS``, up to the first at which a target is missed."""
_MOST_FURTHER = 8
_JUDGED = (1.0, *LOAD_CHANGES)
"""The loads at which the recommended fleet is simulated with its intervals at any rate."""

KNEE_RULE = (
    "Kneedle (Satopaa et al., 2011): the load at which the curve, both axes scaled to 0..1, is furthest below the "
    "line from its first point to its last, if it rises more steeply beyond than anywhere before"
)
_STRAIGHT = 0.1
"""A curve that is nowhere further below the straight line than this has no knee."""


def knee(loads: Sequence[float], values: Sequence[float | None]) -> float | None:
    """Return the load after which a rising curve turns up; None where it does not, or has fewer than four points.

    A curve that rises fast at first, is flat, and rises again is below the line somewhere too; what the rule adds to
    its source excludes it.

    Source: Kneedle (Satopaa et al., 2011), see ``KNEE_RULE``.
    """
    points = sorted((x, y) for x, y in zip(loads, values, strict=True) if y is not None and math.isfinite(y))
    if len(points) < 4:
        return None
    x, y = (np.array(column) for column in zip(*points, strict=True))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    distance = (x - x[0]) / np.ptp(x) - (y - y.min()) / np.ptp(y)
    place = int(np.argmax(distance))
    if distance[place] <= _STRAIGHT or place == len(x) - 1:
        return None
    before = np.diff(y[: place + 1]) / np.diff(x[: place + 1])
    beyond = (y[-1] - y[place]) / (x[-1] - x[place])
    return float(x[place]) if beyond > before.max(initial=0.0) else None


def fleet_load_curve(
    scenario: Scenario,
    loads: Sequence[float] | None = None,
    *,
    catalogue: Catalogue | None = None,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> LoadCurve:
    """Return the curve of the fleet that a scenario states, without a plan.

    Args:
        scenario: The scenario; it needs no price and no target.
        loads: Factors on the number of jobs in the same time; None for ``LOADS`` and further ones.
        catalogue: The known devices; None for those shipped.
        workers: The number of processes, which changes nothing but the time.
        progress: Is called with the number of finished simulations.

    Raises:
        InputError: The scenario is not valid, or its load cannot be changed.
    """
    catalogue = catalogue or shipped_catalogue()
    run = prepare(scenario, fleet_devices(scenario, catalogue), policy_of(scenario), preference)
    demand = minimum_demand(run)
    offered = offered_per_s(demand) if demand.complete and not demand.users else None
    setting = Setting(scenario, catalogue, 0.95, 1, demand.longest_s, 1, offered)
    scaled = rules_by_entry(scenario)
    counts = tuple(scaled[i].max if i in scaled else entry.replicas for i, entry in enumerate(scenario.fleet))
    names = [entry_name(scenario, i) for i in range(len(counts))]
    numbers = [f"{n * entry.group_size:,}" for n, entry in zip(counts, scenario.fleet, strict=True)]
    pool = Workers(workers)
    simulator = Simulator(setting, pool, progress)
    try:
        first = simulator([Case(counts, intervals=False)])[0]
        chosen = _chosen(loads)
        return _curve(simulator, first, chosen, None, fleet_text(names, numbers), (), goes_on=loads is None)
    finally:
        pool.close()


def first_cases(candidates: Candidates, best: Evaluation) -> list[Case]:
    """Return the cases of which the curve of a fleet of a plan consists at least."""
    return _cases(best, _chosen(candidates.plan.loads), _JUDGED)


def load_curve(candidates: Candidates, best: Evaluation) -> LoadCurve | None:
    """Return the curve of a fleet of a plan: of its binding time, or of its p99 latency; None without loads."""
    loads = candidates.plan.loads
    if loads is not None and not loads:
        return None
    try:
        text, least = candidates.text(best.counts), candidates.min_load(best.counts)
        judge = partial(candidates.judge, goal=best.judged_for, redraws=redraws_of(best))
        return _curve(judge, best, _chosen(loads), least, text, _JUDGED, goes_on=loads is None)
    except InputError as error:
        candidates.notes.append(f"the load curve cannot be computed: {error.problem}")
        return None


def _curve(
    judge: Callable[[Sequence[Case]], Sequence[Evaluation]],
    best: Evaluation,
    chosen: list[float],
    least: float | None,
    text: str,
    judged: Sequence[float],
    *,
    goes_on: bool,
) -> LoadCurve:
    """Return the curve of the fleet of ``best``, whose load is at least ``least`` at the scenario's load.

    At the loads ``judged`` a point has the intervals of the fleet there; elsewhere it is one run. ``goes_on``: the
    curve goes on from the loads ``chosen`` to the first at which a target is missed.
    """
    target = evaluating.binding_time(best)
    evaluations = list(judge(_cases(best, chosen, judged)))
    for _ in range(_MOST_FURTHER if goes_on else 0):
        load, last = chosen[-1] * _FURTHER, evaluations[-1]
        # Beyond a missed target, or the load that the lower bound allows, the curve says nothing more.
        if not last.meets.value or not last.keeps_up or (least is not None and load * least > 1.0):
            break
        chosen.append(round(load, 2))
        evaluations += judge(_cases(best, chosen[-1:], judged))
    points = [_point(load, e, target, least) for load, e in zip(chosen, evaluations, strict=True)]
    return LoadCurve(
        fleet=text,
        of=evaluating.time_name(target),
        limit_s=None if target is None else target.limit,
        points=points,
        knee=knee([p.load for p in points], [p.value_s for p in points]),
        rule=KNEE_RULE,
        most=max((p.load for p in points if p.meets.value), default=None),
        most_certain=max((p.load for p in points if p.meets.confidence), default=None),
    )


def _chosen(loads: Sequence[float] | None) -> list[float]:
    return sorted(set(LOADS if loads is None else loads))


def _cases(best: Evaluation, loads: Sequence[float], judged: Sequence[float]) -> list[Case]:
    return [Case(best.counts, load, intervals=load in judged) for load in loads]


def _point(load: float, evaluation: Evaluation, target: JudgedTarget | None, least: float | None) -> LoadPoint:
    judged = None if target is None else evaluation.target(target.text)
    return LoadPoint(
        load=load,
        value_s=evaluating.time_s(evaluation, target),
        low_s=None if judged is None else judged.low,
        high_s=None if judged is None else judged.high,
        utilisation=evaluation.utilisation,
        min_load=None if least is None else least * load,
        meets=evaluation.meets,
        keeps_up=evaluation.keeps_up,
        power_w=evaluation.power_w,
        throughput_per_s=evaluation.throughput_per_s,
        throughput_per_s_per_device=evaluation.throughput_per_s / evaluation.devices,
        output_tokens_per_s_per_user=None if not evaluation.tpot_mean_s else 1 / evaluation.tpot_mean_s,
        targets=evaluation.targets,
    )


def rate_points(fleets: Sequence[PlannedFleet], curve: LoadCurve | None) -> list[RatePoint]:
    """Return tokens per second and device against tokens per second and user.

    The points are the fleets of a search that keep up, and the recommended one under the loads of its curve at which it
    does. Empty where nothing generates several tokens.
    """
    points: list[RatePoint] = []

    def add(of: PlannedFleet | LoadPoint, fleet: str, load: float, *, searched: bool) -> None:
        per_user = of.output_tokens_per_s_per_user
        if per_user is not None and of.keeps_up:
            rate = of.throughput_per_s_per_device
            points.append(RatePoint(fleet, load, rate, per_user, of.meets.value, searched, on_frontier=False))

    for planned in fleets:
        add(planned, planned.text, 1.0, searched=True)
    for point in [] if curve is None else curve.points:
        if curve is not None and point.load != 1.0:
            add(point, curve.fleet, point.load, searched=False)

    def beaten(point: RatePoint) -> bool:
        return any(
            (o.per_device >= point.per_device and o.per_user >= point.per_user)
            and (o.per_device > point.per_device or o.per_user > point.per_user)
            for o in points
        )

    return [replace(point, on_frontier=not beaten(point)) for point in points]
