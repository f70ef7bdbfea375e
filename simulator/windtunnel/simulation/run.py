"""Simulates a scenario: prepares it, chooses an engine, runs it and assembles the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.recommendation import recommendation
from windtunnel.core.result import Recording, distribution
from windtunnel.core.rng import opened
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.scenario.scenario import Scenario, Stop, scenario_from_data
from windtunnel.scenario.target import parse_figure
from windtunnel.simulation.fleet import fleet_devices, fleet_executors, policy_of
from windtunnel.simulation.sources import model_accuracy, provenance
from windtunnel.simulation.versions import versions
from windtunnel_models.catalogue import Catalogue

if TYPE_CHECKING:
    from windtunnel.engine.prepare.prepared import PreparedRun


from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.core.yamlfile import Document
from windtunnel.placement import run as placing
from windtunnel.placement.recording import PlacementRecording
from windtunnel.placement.scenario import PlacementScenario, check_placement, is_placement
from windtunnel.scenario.scenario import (
    check_scenario,
    read_document,
)

if TYPE_CHECKING:
    pass


_SHOWN = 5
"""Failures of a real device that notes tell; the result has all."""


FIRST_JOBS, MOST_JOBS = 20_000, 50_000_000
"""Jobs of the first attempt at a precision, and those after which it is given up."""


def prepare_run(scenario: Scenario, catalogue: Catalogue, engine: str = "auto") -> PreparedRun:
    """A scenario made ready for an engine; InputError for what can be known to be wrong before anything runs.

    Long runs are made ready to be streamed, where the compiled engine will run them.
    """
    from windtunnel.engine.choice import unsupported_by_compiled, wants_streaming
    from windtunnel.engine.prepare.scenario import prepare

    def preference(use: str, api: str, kind: str) -> float:
        return recommendation(use).preference(api=api, kind=kind)

    devices, policy = fleet_devices(scenario, catalogue), policy_of(scenario)
    executors = fleet_executors(scenario, devices)
    if executors:
        return prepare(scenario, devices, policy, preference, executors=executors)
    if wants_streaming(scenario, engine):
        prepared = prepare(scenario, devices, policy, preference, streamed=True)
        if unsupported_by_compiled(prepared) is None:
            return prepared
    return prepare(scenario, devices, policy, preference)


def simulate(
    scenario: Scenario,
    replications: int,
    engine: str,
    catalogue: Catalogue,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Any], Recording]:
    """Run a scenario; what result.json holds, and the first replication's recording.

    Raises InputError for what is wrong with the scenario, or with asking for ``engine``.
    """
    if scenario.stop is not None and scenario.stop.relative_error is not None:
        return _until_precise(scenario, scenario.stop, replications, engine, catalogue, progress)
    return _simulate(scenario, replications, engine, catalogue, progress)


def _until_precise(
    scenario: Scenario,
    stop: Stop,
    replications: int,
    engine: str,
    catalogue: Catalogue,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[str, Any], Recording]:
    """Longer and longer runs of the same jobs, until the figure that was asked for is known as well as was asked."""
    from windtunnel.engine.results.statistics import Estimate, jobs_needed, observations_needed, relative_error

    where = scenario.where("stop", "relative_error")
    if replications > 1:
        raise InputError("a precision is one run's", where=where, expected="no --replications, or stop: {jobs: ...}")
    for i, workload in enumerate(scenario.workload):
        if not workload.arrivals.stationary:
            raise InputError(
                f"no run of '{workload.name}' is as good as a longer one: its arrivals change with time",
                where=scenario.where("workload", i, "arrivals"),
                expected="stop: {jobs: ...} or {time: ...}, and --replications",
            )
    target = parse_figure(stop.figure)
    most = stop.max or MOST_JOBS
    count, attempts = min(FIRST_JOBS, most), 0
    while True:
        attempts += 1
        result, recording = _simulate(scenario.changed(stop=Stop(jobs=count)), 1, engine, catalogue, progress)
        part = next((w for w in result["workloads"] if w["name"] == target.workload), result)
        times = distribution(part, target.metric)
        if times is None:
            raise InputError(f"no job has a {target.metric}", where=where, expected="metric: latency mean")
        name = str(target.statistic)
        statistics = part["statistics"]
        estimate = Estimate(
            **times[name],
            effective=statistics["effective_sample_size"][f"{target.metric}_s"][name],
            batches=statistics["batches"][f"{target.metric}_s"][name],
        )
        needed = jobs_needed(estimate, float(stop.relative_error or 0.0), count)
        if needed <= count or count >= most or result["statistics"]["steady_state"] == "unstable":
            break
        count = min(needed, most)
    reached = relative_error(estimate)
    result["statistics"]["stopped"] = {
        "metric": stop.figure,
        "requested_error": stop.relative_error,
        "achieved_error": reached,
        "jobs": count,
        "attempts": attempts,
    }
    if needed > count:
        asked = f"{stop.relative_error:.2%} of {stop.figure}"
        if reached is None:
            said = f"no interval for {stop.figure}, of which {asked} was asked"
        elif reached > float(stop.relative_error or 0.0):
            said = f"{reached:.2%}, and not {asked} as asked"
        else:
            rests, least = estimate.effective or 0.0, observations_needed(estimate)
            said = (
                f"{reached:.2%} of {stop.figure}, as asked, yet by chance: "
                f"it rests on {rests:,.0f} independent observations, and {least:,.0f} are needed to trust it"
            )
        result["notes"].append(f"stopped after {count:,} jobs with {said}")
    result["scenario"] = scenario.resolved()
    return result, recording


def _simulate(
    scenario: Scenario,
    replications: int,
    engine: str,
    catalogue: Catalogue,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Any], Recording]:
    from windtunnel.engine.choice import choose, run_on
    from windtunnel.engine.results import invariants
    from windtunnel.engine.results.metrics import summarise

    recordings: list[Recording] = []
    first: PreparedRun | None = None
    chosen = why = ""
    real: list[dict[str, Any]] = []
    drawn = opened()
    for replication in range(replications):
        repeated = scenario if not replication else scenario.reseeded(replication_seed(scenario.seed, replication))
        prepared = prepare_run(repeated, catalogue, engine)
        if first is None:
            first = prepared
            chosen, why = choose(prepared, engine)
        told = None if progress is None else partial(_report, progress, prepared.job_count)
        recording = run_on(chosen, prepared, told)
        real = _with(real, _real(prepared, recording))
        invariants.check(recording)
        recordings.append(recording)
        if opened() == drawn and not real:
            break
    assert first is not None  # noqa: S101  replications is at least 1
    measured = summarise(first, recordings, scenario.parsed_targets())
    notes = [note for r in recordings for note in r.notes] + measured.pop("notes")
    if scenario.records in ("sample", "none") and not first.streamed:
        notes.append(
            f"records: {scenario.records} was asked for, and every job is kept: only the compiled engine sums up, "
            "and only jobs that neither come from a trace, nor generate, nor wait for answers"
        )
    if len(recordings) < replications:
        notes.append(
            f"nothing in this scenario is drawn: {replications:,} replications would all be this run, and its "
            "intervals are those of one run"
        )
    for one in real:
        did = (
            f"the times of its {one['operations']:,} operations were measured, {one['measured_s']:.3g} s where its "
            f"model {one['model']} says {one['modelled_s']:.3g} s; its power is the model's"
            if one["operations"]
            else "no job was done on it, so nothing was measured"
        )
        notes.append(f"'{one['name']}' is {one['real']} ({one['label']}, {one['driver']}): {did}")
        notes += [f"'{one['name']}' failed: {failure}" for failure in one["failures"][:_SHOWN]]
    result = {
        "name": scenario.name,
        "description": scenario.description,
        "engine": chosen,
        "engine_reason": why,
        "seed": scenario.seed,
        "replications": len(recordings),
        "policy": first.policy.name,
        **measured,
        "provenance": provenance(first.compiled, first.classes),
        "model_accuracy": model_accuracy(first.compiled, first.classes),
        **({"real": real} if real else {}),
        "notes": list(dict.fromkeys(notes)),
        "scenario": scenario.resolved(),
        "versions": versions(),
    }
    return result, recordings[0]


def _real(prepared: PreparedRun, recording: Recording) -> list[dict[str, Any]]:
    """Of each device of this host what it did in a run, beside what its model says of the same operations."""
    found = []
    jobs = recording.jobs
    for fleet_class in prepared.classes:
        if fleet_class.executor is None:
            continue
        report = {
            "name": fleet_class.name,
            "model": fleet_class.device.label,
            "jobs": int(((jobs.device == fleet_class.first) & (jobs.finish >= 0)).sum()),
            "modelled_s": _modelled_s(fleet_class.device, fleet_class.executor.executed()),
        }
        found.append({**report, **fleet_class.executor.report()})
    return found


def _modelled_s(model: Device, executed: Mapping[tuple[str, tuple[tuple[str, Any], ...]], int]) -> float:
    """What a model says that operations take, each as often as it was done (s)."""
    alike: dict[tuple[str, ...], list[tuple[dict[str, Any], int]]] = {}
    for (op, columns), count in executed.items():
        choices = tuple(value for _, value in columns if isinstance(value, str))
        alike.setdefault((op, *choices), []).append((dict(columns), count))
    total_s = 0.0
    for (op, *_), each in alike.items():
        first = each[0][0]
        numbers = {
            name: np.array([columns[name] for columns, _ in each], dtype=np.float64)
            for name, value in first.items()
            if not isinstance(value, str)
        }
        rows = Rows(OPERATIONS.find(op), {n: v for n, v in first.items() if isinstance(v, str)}, numbers)
        total_s += float(model.cost(rows, intervals=False).duration_s @ np.array([count for _, count in each]))
    return total_s


def _with(before: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What real devices did in all replications so far; a device that is not there any more said its last before."""
    if not before:
        return more
    return [
        {
            **one,
            **{name: one[name] + two[name] for name in ("jobs", "modelled_s", "operations", "measured_s", "failures")},
        }
        for one, two in zip(before, more, strict=True)
    ]


def check(scenario: Scenario, engine: str, catalogue: Catalogue) -> None:
    """All of ``simulate`` but the simulation: InputError for what it would refuse before anything is simulated."""
    from windtunnel.engine.choice import choose

    choose(prepare_run(scenario, catalogue, engine), engine)


def _report(progress: Callable[[int, int], None], total: int, done: int) -> None:
    progress(done, total)


def replication_seed(seed: int, replication: int) -> int:
    """An independent seed for each replication after the first, the same on every machine."""
    return int(np.random.SeedSequence(seed, spawn_key=(replication,)).generate_state(1, np.uint64)[0] >> 1)


def one_job_s(target: Device, ops: Sequence[Mapping[str, Any]]) -> float:
    """How long one job of the program ``ops`` takes on ``target``, alone, in the process engine (s)."""
    from windtunnel.engine.prepare.scenario import prepare
    from windtunnel.engine.process import engine as process
    from windtunnel.engine.results import invariants

    job = {"name": "job", "arrivals": {"process": "deterministic", "rate": "1 /s"}, "ops": list(ops)}
    scenario = scenario_from_data(
        {"schema": 1, "name": "one job", "fleet": [{"device": target.label}], "workload": [job], "stop": {"jobs": 1}}
    )
    recording = process.run(prepare(scenario, [target], policy_of(scenario)))
    invariants.check(recording)
    return float(recording.jobs.finish[0] - recording.jobs.arrival[0]) / TICKS_PER_SECOND


SAMPLE_ABOVE = 200_000
"""Jobs above this many are written as a stated sample unless all are asked for."""


@dataclass(frozen=True)
class Run:
    """A finished run: what is reported, and the first replication's recording."""

    result: dict[str, Any]
    recording: Recording | PlacementRecording
    sample: np.ndarray | None = None
    """The jobs that are written to jobs.csv; None for all."""

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return all(target["met"] for target in self.result["targets"])


def checked(document: Document) -> Scenario | PlacementScenario:
    """The scenario a document holds: tasks to place where it states a cluster, else jobs for a fleet."""
    return check_placement(document) if is_placement(document) else check_scenario(document)


def run(
    scenario: Scenario | PlacementScenario | str | Path,
    *,
    seed: int | None = None,
    replications: int = 1,
    engine: str = "auto",
    changes: Sequence[str] = (),
    catalogue: Catalogue | None = None,
    all_jobs: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Simulate a scenario (or the file it is in).

    ``replications`` independent repetitions make the intervals; one run makes them from batches. Above 200,000 jobs
    what is written of them is an evenly spaced sample, which the result says, unless ``all_jobs``. ``progress`` is told
    (jobs arrived, jobs in all). Raises InputError for what is wrong with the input.
    """
    if isinstance(scenario, (str, Path)):
        scenario = checked(read_document(Path(scenario), changes, seed=seed))
    if isinstance(scenario, PlacementScenario):
        found, placed = placing.run_placement(scenario, replications, engine, catalogue or Catalogue())
        return Run(found, placed, _sample(found, len(placed.tasks), all_jobs))
    result, recording = simulate(scenario, replications, engine, catalogue or Catalogue(), progress)
    if recording.tally is not None:
        return Run(result, recording)
    return Run(result, recording, _sample(result, len(recording.jobs), all_jobs))


def _sample(result: dict[str, Any], count: int, all_jobs: bool) -> np.ndarray | None:
    """Which of ``count`` jobs are written to jobs.csv, None for all; the result's notes say so."""
    if count <= SAMPLE_ABOVE or all_jobs:
        return None
    result["notes"].append(f"jobs.csv holds {SAMPLE_ABOVE:,} of {count:,} jobs, evenly spaced")
    return np.linspace(0, count - 1, SAMPLE_ABOVE).astype(np.int64)
