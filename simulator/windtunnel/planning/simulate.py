"""Simulates a fleet through `simulation.run`, and judges it with confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from windtunnel.core.recommendation import recommendation
from windtunnel.core.recording import QUEUED, RUNNING, Recording
from windtunnel.core.results.plan import Meets
from windtunnel.core.results.run import Measured
from windtunnel.core.results.target import JudgedTarget, ModelInterval, TargetVerdict
from windtunnel.core.spec import changed_name
from windtunnel.engine.prepare.autoscaling import stated_rules
from windtunnel.engine.results.lost import TargetsLostError
from windtunnel.planning import looks
from windtunnel.planning.bounds import Counts, keep_up_s
from windtunnel.planning.evaluation import Evaluation, lacks_intervals
from windtunnel.planning.judge import draws, judged, lengthened, lost, repeats
from windtunnel.scenario.arrivals import Closed
from windtunnel.scenario.policy import PolicyParts
from windtunnel.scenario.scenario import Scenario
from windtunnel.scenario.target import Target
from windtunnel.simulation import run as simulation
from windtunnel.simulation.redrawn import RUNS as REDRAWN_RUNS
from windtunnel.simulation.redrawn import When, replication_seed
from windtunnel_models.catalogue import Catalogue

CONFIDENCE = 0.95
"""The confidence of the intervals by which a run judges its targets."""


@dataclass(frozen=True)
class Redraws:
    """How many redrawn runs judge a fleet: ``most``, or fewer if the first decide the targets, unless ``all``."""

    most: int = REDRAWN_RUNS
    all: bool = False


USUAL = Redraws()


@dataclass(frozen=True)
class Case:
    """A fleet under a load (1: the scenario's), with a speed factor for each entry's devices.

    ``prompt`` and ``output`` are factors on the lengths of all requests. ``counts`` are of devices, or of groups for an
    entry in groups.
    """

    counts: Counts
    load: float = 1.0
    speeds: tuple[float, ...] = ()
    step_times: tuple[float, ...] = ()
    """A factor for each entry on the time of its steps, the engine's own time included."""
    prompt: float = 1.0
    output: float = 1.0
    values: tuple[tuple[str, str, float], ...] = ()
    """Other values of inputs of device models: the device, the path of the parameter, and the value (SI)."""
    window: tuple[float, float] | None = None
    """Where another window of the trace of the only workload begins and ends (s)."""
    intervals: bool = True
    """Whether further runs are made where one run gives a target no interval."""
    until_lost: bool = False
    """Whether only the verdict is asked for, so that a run may end when a target is lost for certain."""
    times: int = 1
    """The length of a further look (see ``looks``); 1 for the first one."""
    redraws: Redraws = USUAL
    until_unsure: bool = False
    """Whether, besides, no interval is asked for, so that no more runs are made where one is beyond a limit anyway."""
    error_of: str | None = None
    """Where the intervals for the error of the models are asked for: by which runs the fleet was judged."""

    @property
    def whole(self) -> Case:
        """The case that is simulated to the end, whatever its verdict."""
        return replace(self, until_lost=False, until_unsure=False)


@dataclass(frozen=True)
class Setting:
    """The common settings of all simulations of a plan, which are sent to each worker once."""

    scenario: Scenario
    catalogue: Catalogue
    confidence: float
    replications: int
    """The number of runs of every fleet."""
    longest_s: float
    further: int = 5
    """The number of further runs, or the factor of a longer run, if ``replications`` is 1 and gives no interval."""
    offered_per_s: float | None = None
    """The throughput of a fleet that keeps up, where jobs arrive by themselves; None where it depends on the fleet."""
    rents: tuple[float, ...] | None = None
    """The rent (USD/h) of a device or group of each entry, if runs may end when a target is lost: the rest of what is
    asked of such a fleet, its cost, must be known without its run. Otherwise None."""


def variant(scenario: Scenario, case: Case) -> Scenario:
    """Return the scenario with a case's fleet, load and speeds, without entries that have no device.

    The count of a scaled entry is the largest number of its devices in service; it begins with its own count.
    """
    rules = stated_rules(scenario)
    counts = [n * entry.group_size for entry, n in zip(scenario.fleet, case.counts, strict=True)]
    fleet = [
        entry.model_copy(
            update={
                "count": count if i not in rules else min(max(entry.count, rules[i].min), count),
                "name": entry_name(scenario, i),
                "speed": entry.speed * (case.speeds[i] if case.speeds else 1.0),
            }
        )
        for i, (entry, count) in enumerate(zip(scenario.fleet, counts, strict=True))
        if count
    ]
    autoscale = [
        rule.model_copy(update={"entry": entry_name(scenario, i), "min": min(rule.min, count), "max": count})
        for i, rule in sorted(rules.items())
        if (count := counts[i])
    ]
    workload = [
        w.model_copy(update={"arrivals": w.arrivals if case.load == 1.0 else w.arrivals.scaled(case.load)})
        for w in scenario.workload
    ]
    if case.window is not None:
        begin, end = case.window
        arrivals = workload[0].arrivals.model_copy(update={"from_": begin, "until": end})
        workload = [workload[0].model_copy(update={"arrivals": arrivals})]
    # Whether a fleet keeps up is determined from jobs, so some of them must be kept.
    records = "sample" if scenario.records == "none" else scenario.records
    changed = scenario.changed(fleet=fleet, workload=workload, records=records, autoscale=autoscale)
    if isinstance(scenario.policy, PolicyParts) and leaves_route_without_use(scenario, case.counts):
        changed = changed.changed(policy=scenario.policy.model_copy(update={"decode_route": None}))
    return changed if case.prompt == case.output == 1.0 else changed.with_lengths(case.prompt, case.output)


def leaves_route_without_use(scenario: Scenario, counts: Sequence[int]) -> bool:
    """Return whether a fleet has no entry with the role prefill, where others have, so that no request moves.

    The policy then chooses no device to which a request moves (``decode_route``).
    """
    roles = [entry.role for entry in scenario.fleet]
    return "prefill" in roles and "prefill" not in [role for role, n in zip(roles, counts, strict=True) if n]


def entry_name(scenario: Scenario, entry: int) -> str:
    """Return the name of an entry in a plan: its name or its device, with a number if several entries share it."""
    names = [e.name or changed_name(e.device, scenario.changes_of(i)) for i, e in enumerate(scenario.fleet)]
    name = names[entry]
    return name if names.count(name) == 1 else f"{name}.{names[: entry + 1].count(name)}"


def fleet_text(names: Sequence[str], numbers: Sequence[str]) -> str:
    """Return a fleet as text, such as ``2 × large + 1 × small``, without entries of which it has none."""
    return " + ".join(f"{number} × {name}" for number, name in zip(numbers, names, strict=True) if number != "0")


def preference(use: str, api: str, kind: str) -> float:
    """Return how far an API and a kind are recommended for a use case, for routes that ask."""
    return recommendation(use).preference(api=api, kind=kind)


# One simulation.


@dataclass(frozen=True)
class _Outcome:
    """One run: its result, the time after the last arrival for completing all jobs, and whether they were completed.

    ``drain_share``: the share of the run after the last arrival.
    """

    result: Measured
    engine: str
    keep_up_s: float
    keeps_up: bool
    drain_share: float

    @property
    def rules_out(self) -> bool:
        """Return whether this run alone excludes the fleet: every run must have all values and keep up."""
        return not self.keeps_up or any(target.value is None for target in self.result.targets)


# Long: a sequence of decisions, each based on the runs so far.
def simulate(setting: Setting, case: Case) -> Evaluation:
    """Simulate a fleet and judge it with confidence.

    One run is enough if it gives every target the interval that it needs. Otherwise a longer run or replications
    follow; see ``_further``. The first run must keep up in any case, because the lower bound is computed for it.
    """
    scenario = variant(setting.scenario, case)
    if case.values:
        replaced: dict[str, dict[str, float]] = {}
        for label, path, value in case.values:
            replaced.setdefault(label, {})[path] = value
        setting = replace(setting, catalogue=setting.catalogue.replaced(replaced))
    speeds = case.speeds or tuple(1.0 / factor for factor in case.step_times)
    slowest = min([speed for speed, n in zip(speeds, case.counts, strict=bool(speeds)) if n], default=1.0)
    if case.error_of is not None:
        return _with_model_errors(setting, case, scenario, setting.longest_s / slowest)
    steps = [factor for factor, n in zip(case.step_times, case.counts, strict=bool(case.step_times)) if n]
    run = partial(
        _run,
        setting,
        longest_s=setting.longest_s / slowest,
        step_times=dict(enumerate(steps)),
        redrawn_runs=case.redraws.most,
    )
    if case.times > 1:
        return _looked_again(setting, case, scenario, run)
    # The interval of replications is that of their values, so they need none of their own.
    # At a higher confidence than that of a run's targets, a few redrawn runs decide nothing.
    decided: When = "decided" if setting.confidence <= CONFIDENCE and not case.redraws.all else "met"
    if case.until_unsure and setting.confidence == CONFIDENCE and not case.redraws.all:
        decided = "unsure"
    until_lost = case.until_lost and setting.rents is not None and setting.replications == 1
    try:
        redrawn: When = decided if setting.replications == 1 and case.intervals else "never"
        outcomes = [run(scenario, redrawn=redrawn, until_lost=until_lost)]
    except TargetsLostError as error:
        return _stopped(setting, case, scenario, error)
    for replica in _replicas(scenario, setting.replications):
        if outcomes[-1].rules_out:
            break
        outcomes.append(run(replica, redrawn="never"))
    results, judged_by, times = [outcome.result for outcome in outcomes], "run", 1
    targets = _judged(scenario, setting, results)
    if setting.replications > 1:
        judged_by = "replications"
        if len(outcomes) < setting.replications:
            # The remaining replications were not made, so the other targets have no verdict.
            targets = [t if t.value is None else _unjudged(t) for t in targets]
    elif case.intervals and setting.further > 1 and outcomes[0].keeps_up and lacks_intervals(targets):
        further, judged_by = _further(scenario, setting.further)
        if further:
            added = [run(another, redrawn=decided if judged_by == "longer" else "never") for another in further]
            results = [o.result for o in (outcomes + added if judged_by == "replications" else added)]
            times = setting.further if judged_by == "longer" else 1
            targets = _judged(scenario, setting, results, times)
            outcomes += added
            if judged_by == "longer":
                factor = f", even in a run {setting.further} times as long"
                targets = [replace(t, reason=t.reason + factor) if t.reason else t for t in targets]
    found = _evaluation(setting, case, scenario, outcomes, results, targets, judged_by, times)
    if not case.intervals:
        return found
    first = _judged(scenario, replace(setting, confidence=looks.at_first(setting.confidence)), results)
    return replace(found, further=_further_look(setting, scenario, found, first, results))


def _looked_again(setting: Setting, case: Case, scenario: Scenario, run: Callable[..., _Outcome]) -> Evaluation:
    """Return a fleet as a further look judges it: a longer run, or more replications."""
    judged_by, runs = _judged_again_by(setting, scenario)
    longer = lengthened(scenario, case.times) if judged_by == "longer" else None
    plan, setting = setting, replace(setting, confidence=looks.later(setting.confidence))
    scenarios = [longer] if longer is not None else [scenario, *_replicas(scenario, runs * case.times)]
    outcomes = [run(another, redrawn="never" if longer is None else "met") for another in scenarios]
    results = [outcome.result for outcome in outcomes]
    targets = _judged(scenario, setting, results, 1 if longer is None else case.times)
    found = _evaluation(setting, case, scenario, outcomes, results, targets, judged_by, case.times)
    return replace(found, further=_further_look(plan, scenario, found, targets, results))


def _judged_again_by(setting: Setting, scenario: Scenario) -> tuple[str, int]:
    """Return how a further look judges a fleet, and the replications of the first look where it replicates."""
    if setting.replications > 1:
        return "replications", setting.replications
    if lengthened(scenario, 2) is not None:
        return "longer", 1
    return "replications", setting.further


def _further_look(
    setting: Setting,
    scenario: Scenario,
    found: Evaluation,
    targets: Sequence[JudgedTarget],
    results: Sequence[Measured],
) -> int | None:
    """Return the length of the next look at a fleet that may decide it, or None.

    ``targets`` are its targets as this look judges them. Where the intervals are those of redrawn runs of one run, no
    number of them makes the intervals narrow: they are as wide as such runs differ.
    """
    unmet = [t for t in targets if not t.met]
    if not found.meets.value or not unmet or any(t.interval_source not in ("run", "replications") for t in unmet):
        return None
    judged_by, _ = _judged_again_by(setting, scenario)
    if judged_by == "replications" and found.judged_by != "replications":
        return None
    runs = len(results) if judged_by == "replications" else None
    most = looks.TIMES[-1]
    if runs is None:
        most = min(most, looks.MOST_JOBS * found.times // max(1, results[0].jobs.arrived))
    return looks.next_times(unmet, setting.confidence, times=found.times, most=most, runs=runs)


# Long: one expression for each value of an evaluation.
def _evaluation(
    setting: Setting,
    case: Case,
    scenario: Scenario,
    outcomes: Sequence[_Outcome],
    results: Sequence[Measured],
    targets: Sequence[JudgedTarget],
    judged_by: str,
    times: int,
) -> Evaluation:
    """Return what all runs of a fleet (``outcomes``) give; ``results`` are those by which it is judged."""
    keeps_up = all(outcome.keeps_up for outcome in outcomes)
    meets = Meets(
        value=keeps_up and all(t.verdict != "missed" for t in targets),
        confidence=keeps_up and all(t.met for t in targets),
    )
    # If some fleets are simulated further, power is taken from the run that all fleets share, because the lower
    # bound of the objective holds for that run.
    shared = results if setting.replications > 1 else [outcomes[0].result]
    first = outcomes[0].result
    # The rent of a constant fleet is the same in each run.
    cost = _mean([r.cost_usd_per_h for r in (shared if scenario.autoscale else [first])])
    redrawn = first.statistics.redrawn
    return Evaluation(
        counts=case.counts,
        meets=meets,
        decided=meets.confidence or not meets.value or not lacks_intervals(targets),
        settled=meets.confidence and redrawn is not None and redrawn.settled and setting.confidence <= CONFIDENCE,
        judged_by=judged_by,
        times=times,
        runs=sum(1 + _redrawn_runs(outcome) for outcome in outcomes),
        keeps_up=keeps_up,
        keep_up_s=outcomes[0].keep_up_s,
        drain_share=outcomes[0].drain_share,
        targets=targets,
        cost_usd_per_h=math.inf if cost is None else cost,
        power_w=float(np.mean([r.average_power_w for r in shared])),
        peak_power_w=max(r.peak_power_w for r in shared),
        energy_cost_usd_per_h=_mean([None if r.site is None else r.site.energy_cost_usd_per_h for r in shared]),
        total_cost_usd_per_h=_mean([None if r.site is None else r.site.cost_usd_per_h for r in shared]),
        carbon_kg_per_h=_mean([None if r.site is None else r.site.carbon_kg_per_h for r in shared]),
        usd_per_million_output_tokens=_mean(
            [None if r.serving is None else r.serving.cost_per_million_usd.output for r in shared]
        ),
        throughput_per_s=_throughput_per_s(setting, case, shared),
        devices=_devices(scenario, shared),
        tpot_mean_s=_mean([_tpot_s(r) for r in results]),
        prefix_hit_rate=_mean([None if r.serving is None else r.serving.prefix_hit_rate for r in results]),
        utilisation=float(np.mean([r.utilisation for r in results])),
        p99_s=_mean([r.latency_s.p99.value for r in results]),
        p50_s=_mean([r.latency_s.p50.value for r in results]),
        engine=outcomes[0].engine,
    )


def _with_model_errors(setting: Setting, case: Case, scenario: Scenario, longest_s: float) -> Evaluation:
    """Return what is known of a fleet with the intervals for the error of the models, as ``run`` gives them.

    They are those of the runs by which the fleet was judged (``case.error_of``).
    """
    replications = 1
    if case.error_of == "replications":
        replications = case.times * (setting.replications if setting.replications > 1 else setting.further)
    elif case.error_of == "longer":
        scenario = lengthened(scenario, case.times) or scenario
    result, recording, engine = simulation.measure_model_error(scenario, setting.catalogue, replications)
    outcome = _outcome(scenario, result, recording, engine, longest_s)
    found = _evaluation(
        setting,
        case,
        scenario,
        [outcome],
        [result],
        _judged(scenario, setting, [result]),
        str(case.error_of),
        case.times,
    )
    intervals = [_model_interval(target) for target in result.targets]
    # Two more runs give the intervals.
    return replace(found, runs=replications + 2, model_intervals=[i for i in intervals if i is not None])


def _model_interval(target: TargetVerdict) -> ModelInterval | None:
    """Return the interval of a target's value for the error of the models; None if the value has none."""
    if target.model_low is None and target.model_high is None:
        return None
    return ModelInterval(
        text=target.text,
        value=target.value,
        low=target.model_low,
        high=target.model_high,
        limit=target.limit,
        unit=target.unit,
        comparison=target.comparison,
        metric=target.metric,
        statistic=target.statistic,
        workload=target.workload,
    )


def _stopped(setting: Setting, case: Case, scenario: Scenario, error: TargetsLostError) -> Evaluation:
    """Return what is known of a fleet whose run was ended, because it misses a target whatever follows."""
    least_s = {target.text: target.least_s for target in error.lost}
    return Evaluation(
        counts=case.counts,
        meets=Meets(value=False, confidence=False),
        decided=True,
        judged_by="run",
        runs=1,
        keeps_up=True,
        keep_up_s=math.nan,
        targets=[lost(t, least_s.get(t.text), error.jobs, setting.confidence) for t in scenario.parsed_targets()],
        cost_usd_per_h=sum(n * rent for n, rent in zip(case.counts, setting.rents or (), strict=True)),
        power_w=math.nan,
        peak_power_w=math.nan,
        energy_cost_usd_per_h=None,
        total_cost_usd_per_h=None,
        carbon_kg_per_h=None,
        usd_per_million_output_tokens=None,
        throughput_per_s=math.nan,
        devices=float(sum(entry.count for entry in scenario.fleet)),
        tpot_mean_s=None,
        prefix_hit_rate=None,
        utilisation=math.nan,
        p99_s=None,
        p50_s=None,
        engine="compiled",
        stopped_after=error.jobs,
    )


def _run(
    setting: Setting,
    scenario: Scenario,
    longest_s: float,
    redrawn: When,
    *,
    step_times: Mapping[int, float],
    redrawn_runs: int,
    until_lost: bool = False,
) -> _Outcome:
    result, recording, engine = simulation.measure(
        scenario,
        setting.catalogue,
        redrawn=redrawn,
        redrawn_runs=redrawn_runs,
        until_lost=until_lost,
        step_times=step_times,
    )
    return _outcome(scenario, result, recording, engine, longest_s)


def _outcome(scenario: Scenario, result: Measured, recording: Recording, engine: str, longest_s: float) -> _Outcome:
    from windtunnel.engine.results.metrics import drain_share

    keep_up_s, keeps_up = _behind_s(scenario, recording, scenario.parsed_targets(), longest_s)
    return _Outcome(result, engine, keep_up_s, keeps_up, drain_share(recording))


def _redrawn_runs(outcome: _Outcome) -> int:
    redrawn = outcome.result.statistics.redrawn
    return 0 if redrawn is None else redrawn.runs


def _judged(scenario: Scenario, setting: Setting, results: Sequence[Measured], times: int = 1) -> list[JudgedTarget]:
    repeated, fixed = repeats(scenario), not draws(scenario)
    return [
        judged(
            target,
            [r.targets[i] for r in results],
            results,
            setting.confidence,
            repeats=repeated,
            fixed=fixed,
            scaled=any(rule.min < rule.max for rule in scenario.autoscale),
            times=times,
        )
        for i, target in enumerate(scenario.parsed_targets())
    ]


def _throughput_per_s(setting: Setting, case: Case, results: Sequence[Measured]) -> float:
    """Return the output tokens, or else the jobs, of a fleet per second.

    Where jobs arrive by themselves it is that of the arrivals, so that fleets do not differ by the time in which the
    last jobs are completed.
    """
    if setting.offered_per_s is not None and case.window is None:
        return setting.offered_per_s * case.load
    return _mean([r.throughput_per_s if r.serving is None else r.serving.output_tokens_per_s for r in results]) or 0.0


def _devices(scenario: Scenario, results: Sequence[Measured]) -> float:
    """Return the number of devices; of entries that are scaled, those that were rented on average."""
    scaled = {rule.entry for rule in scenario.autoscale}
    rented = _mean([sum(entry.mean_rented for entry in r.autoscale) for r in results]) or 0.0
    return rented + sum(entry.count for entry in scenario.fleet if entry.name not in scaled)


def _tpot_s(result: Measured) -> float | None:
    tpot = None if result.serving is None else result.serving.tpot_s
    return None if tpot is None else tpot.mean.value


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _unjudged(target: JudgedTarget) -> JudgedTarget:
    """Return a target without a verdict, because the remaining replications were not made."""
    return replace(
        target,
        met=False,
        verdict="unknown",
        low=None,
        high=None,
        worse_end=None,
        headroom=None,
        interval_source="none",
        interval_runs=None,
        reason="no further replications: another target already fails",
    )


def _replicas(scenario: Scenario, replications: int) -> list[Scenario]:
    """Return the replications after the first."""
    return [scenario.reseeded(replication_seed(scenario.seed, i)) for i in range(1, replications)]


def _further(scenario: Scenario, times: int) -> tuple[list[Scenario], str]:
    """Return the further simulations if one run gives no interval, and their name.

    A run that is too short for a queue near its capacity also starts too empty, and so would its replications. So if
    nothing changes with time, one run ``times`` as long follows. Otherwise replications follow if anything is random;
    otherwise there is nothing to simulate.
    """
    longer = lengthened(scenario, times)
    if longer is not None:
        return [longer], "longer"
    if draws(scenario):
        return _replicas(scenario, times), "replications"
    return [], "run"


def _behind_s(
    scenario: Scenario, recording: Recording, targets: Sequence[Target], longest_s: float
) -> tuple[float, bool]:
    """Return (the time after its arrival within which the last job may complete, whether it did).

    Jobs of users do not count: users wait for their jobs, so no backlog grows.
    """
    jobs, end = recording.jobs, recording.end
    arrival, due, left = jobs.arrival, np.ones(len(jobs), dtype=bool), np.isin(jobs.status, (QUEUED, RUNNING))
    closed = [i for i, w in enumerate(scenario.workload) if isinstance(w.arrivals, Closed)]
    if closed:
        due = ~np.isin(jobs.workload, closed)
        if not due.any():
            return 0.0, True
        arrival, end = arrival[due], int(jobs.finish[due].max())
    last = int(arrival[-1]) if recording.tally is None else recording.tally.last_arrival
    slack = keep_up_s(float(last - arrival[0]) / 1e12, targets, longest_s)
    if scenario.stop is None or scenario.stop.time is None:
        return slack, end / 1e12 <= float(last) / 1e12 + slack
    due &= jobs.arrival <= recording.end - slack * 1e12
    return slack, not bool((due & left).any())
