"""Simulates a scenario: prepares it, chooses an engine, runs it and assembles the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel.core.recommendation import recommendation
from windtunnel.core.recording import Recording
from windtunnel.core.results.run import Measured, RealDevice, RunResult
from windtunnel.core.rng import opened
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.core.yamlfile import Document
from windtunnel.scenario.changes import read_document
from windtunnel.scenario.read import check_scenario, is_placement, scenario_from_data
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.fleet import fleet_devices, fleet_executors, policy_of
from windtunnel.simulation.model_error import ErrorRuns, with_model_error
from windtunnel.simulation.precision import until_precise
from windtunnel.simulation.real_devices import added, chip_notes, real_device_notes, real_devices
from windtunnel.simulation.redrawn import RUNS as REDRAWN_RUNS
from windtunnel.simulation.redrawn import When, replication_seed, with_redrawn_runs
from windtunnel.simulation.sources import model_accuracy, operation_contexts, power_errors, provenance
from windtunnel.simulation.versions import versions
from windtunnel_models.catalogue import Catalogue, shipped_catalogue

if TYPE_CHECKING:
    from windtunnel.core.results.placement import PlacementResult
    from windtunnel.engine.prepare.prepared import PreparedRun
    from windtunnel.placement.recording import PlacementRecording
    from windtunnel.placement.scenario import PlacementScenario


@dataclass(frozen=True)
class Aside:
    """What may be done on other processors, and what is done as soon as the first replication is recorded.

    ``processes``: the number of processes that share the pricing of decoders and repeated runs. ``recorded`` is called
    with the first replication's recording, whose statistics are computed afterwards.
    """

    processes: int = 1
    recorded: Callable[[Recording], None] | None = None

    def keep(self, prepared: PreparedRun, replication: int, recording: Recording) -> None:
        """Call ``recorded`` with the recording of the first replication.

        Not where real devices are open, because a copy of the process must not touch them.
        """
        if self.recorded is not None and replication == 0 and not prepared.real:
            self.recorded(recording)


def prepare_run(
    scenario: Scenario, catalogue: Catalogue, engine: str = "auto", *, coarseness: float = 0.0, processes: int = 1
) -> PreparedRun:
    """Return a scenario prepared for an engine. Raises InputError for errors that are known before anything runs.

    Long runs are prepared for streaming if the compiled engine executes them. ``coarseness`` is that of the tables of
    decoders; see ``core.policy.Batch``. Copies of this process share their pricing if ``processes`` is above 1.
    """
    from windtunnel.engine.choice import unsupported_by_compiled, wants_streaming
    from windtunnel.engine.prepare.scenario import prepare

    def preference(use: str, api: str, kind: str) -> float:
        return recommendation(use).preference(api=api, kind=kind)

    devices, policy = fleet_devices(scenario, catalogue), policy_of(scenario)
    policy = replace(policy, batch=replace(policy.batch, coarseness=coarseness))
    executors = fleet_executors(scenario, devices)
    if executors:
        return prepare(scenario, devices, policy, preference, executors=executors)
    if wants_streaming(scenario, engine):
        prepared = prepare(scenario, devices, policy, preference, streamed=True)
        if unsupported_by_compiled(prepared) is None:
            return prepared
    return prepare(scenario, devices, policy, preference, processes=processes)


def record(scenario: Scenario, catalogue: Catalogue, engine: str = "auto") -> Recording:
    """Run a scenario once, and return its recording without statistics.

    Raises InputError for an invalid scenario, or if ``engine`` does not support it.
    """
    from windtunnel.engine.choice import choose, run_on
    from windtunnel.engine.results import invariants

    prepared = prepare_run(scenario, catalogue, engine)
    recording = run_on(choose(prepared, engine)[0], prepared, waits=engine == "compiled")
    invariants.check(recording)
    return recording


def simulate(
    scenario: Scenario,
    replications: int,
    engine: str,
    catalogue: Catalogue,
    progress: Callable[[int, int], None] | None = None,
    all_devices: bool = False,
    redrawn: When = "short",
    aside: Aside | None = None,
) -> tuple[RunResult, Recording]:
    """Run a scenario; return the result, and the first replication's recording.

    ``all_devices``: the result has an object for each device, also above 10,000 devices. ``redrawn`` is described in
    ``with_redrawn_runs``. Raises InputError for an invalid scenario, or if ``engine`` does not support it.
    """
    how = _How(replications, engine, catalogue, progress, all_devices, redrawn, aside=aside or Aside())
    if scenario.stop is None or scenario.stop.relative_error is None:
        return _simulate(scenario, how)
    if replications > 1:
        raise InputError(
            "a run until precise is a single run",
            where=scenario.where("stop", "relative_error"),
            expected="no --replications, or stop: {jobs: ...}",
        )
    alone = replace(how, redrawn="never", aside=Aside())
    return until_precise(scenario, scenario.stop, lambda longer: _simulate(longer, alone))


@dataclass(frozen=True)
class _How:
    """How a scenario is run, and how much of it is measured.

    Attributes:
        replications: The number of independent runs.
        engine: The engine, or ``auto``.
        catalogue: The devices.
        progress: It is called with the jobs that have arrived, and the jobs in all.
        all_devices: Whether the result has an object for each device, also above 10,000 devices.
        redrawn: When runs are redrawn for intervals; see ``with_redrawn_runs``.
        redrawn_runs: The number of redrawn runs of a single run.
        aside: What other processors do.
        until_lost: Whether the run ends when a target is lost for certain.
        asked_only: Whether no more is measured than the targets ask for.
        step_times: Factors on the times of steps, by the number of the fleet entry.
        begin: It is called with the first replication, prepared, before that is run.
    """

    replications: int
    engine: str
    catalogue: Catalogue
    progress: Callable[[int, int], None] | None = None
    all_devices: bool = False
    redrawn: When = "short"
    redrawn_runs: int = REDRAWN_RUNS
    aside: Aside = Aside()
    until_lost: bool = False
    asked_only: bool = False
    step_times: Mapping[int, float] = field(default_factory=dict)
    begin: Callable[[PreparedRun], None] | None = None


@dataclass(frozen=True)
class _Runs:
    """The replications of a scenario: the first as it was prepared, all recordings, and what they measure."""

    first: PreparedRun
    recordings: Sequence[Recording]
    measured: Measured
    engine: str
    engine_reason: str
    real: Sequence[RealDevice]
    notes: Sequence[str]


# Long: it has one step for each part of the runs.
def _runs(scenario: Scenario, how: _How) -> _Runs:
    from windtunnel.engine.choice import choose, run_on
    from windtunnel.engine.prepare.checks import doubtful_settings
    from windtunnel.engine.results import invariants
    from windtunnel.engine.results.lost import watch_of
    from windtunnel.engine.results.metrics import drain_share, notes_of, notes_of_drain, summarise

    engine, catalogue, progress, aside = how.engine, how.catalogue, how.progress, how.aside
    recordings: list[Recording] = []
    first: PreparedRun | None = None
    chosen = why = ""
    real: list[RealDevice] = []
    drawn = opened()
    for replication in range(how.replications):
        if first is None:
            prepared = prepare_run(scenario, catalogue, engine, processes=aside.processes)
            prepared = first = prepared.with_step_times(how.step_times) if how.step_times else prepared
            chosen, why = choose(prepared, engine)
            if how.begin is not None:
                how.begin(first)
        else:
            seed = replication_seed(scenario.seed, replication)
            prepared = prepare_run(scenario.reseeded(seed), catalogue, engine) if first.real else first.redrawn(seed)
        report = None if progress is None else partial(_report, progress, prepared.job_count)
        watch = watch_of(prepared, scenario.parsed_targets()) if how.until_lost else None
        recording = run_on(chosen, prepared, report, watch, waits=engine == "compiled")
        real = added(real, real_devices(prepared, recording))
        invariants.check(recording, steps=not how.asked_only)
        recordings.append(recording)
        aside.keep(prepared, replication, recording)
        if opened() == drawn and not real:
            break
    assert first is not None  # noqa: S101  replications is at least 1
    measured = summarise(first, recordings, scenario.parsed_targets(), how.all_devices, how.asked_only)
    notes = [note for r in recordings for note in r.notes]
    notes += [*doubtful_settings(first), *notes_of(measured.statistics, measured.workloads)]
    if measured.statistics.unstable_reason is None:
        notes += notes_of_drain(float(np.mean([drain_share(recording) for recording in recordings])))
    if scenario.records in ("sample", "none") and not first.streamed:
        notes.append(
            f"records: {scenario.records} was requested, but every job is kept: only the compiled engine summarises "
            "jobs, and only jobs that do not come from a trace, do not generate tokens, occupy one device, and are not "
            "in a closed loop"
        )
    if len(recordings) == 1:
        measured, more = with_redrawn_runs(
            first, recordings[0], measured, how.redrawn, how.replications, aside.processes, how.redrawn_runs
        )
        notes += more
    return _Runs(first, recordings, measured, chosen, why, real, notes)


def measure(
    scenario: Scenario,
    catalogue: Catalogue,
    *,
    redrawn: When,
    redrawn_runs: int = REDRAWN_RUNS,
    until_lost: bool = False,
    step_times: Mapping[int, float] | None = None,
) -> tuple[Measured, Recording, str]:
    """Run a scenario once; return what ``simulate`` measures, the recording, and the name of the engine.

    It is for studies that run many fleets and need no more of a result than the targets ask for (see ``summarise``).
    The errors of the device models are left out too, and the invariants of step functions are not checked. ``redrawn``
    is described in ``with_redrawn_runs``, and ``redrawn_runs`` is the number of these runs. ``until_lost``: the run
    ends when a target is lost for certain, if that can be told. ``step_times``: factors on the times of steps, by the
    number of the fleet entry.

    Raises InputError for an invalid scenario, and TargetsLostError.
    """
    if scenario.stop is not None and scenario.stop.relative_error is not None:
        result, recording = simulate(scenario, 1, "auto", catalogue)
        return result, recording, result.engine
    how = _How(
        1,
        "auto",
        catalogue,
        redrawn=redrawn,
        redrawn_runs=redrawn_runs,
        until_lost=until_lost,
        asked_only=True,
        step_times=step_times or {},
    )
    runs = _runs(scenario, how)
    return runs.measured, runs.recordings[0], runs.engine


def measure_model_error(scenario: Scenario, catalogue: Catalogue, replications: int) -> tuple[Measured, Recording, str]:
    """Run a scenario as ``simulate`` does; return what ``measure`` returns, with intervals for the models' error.

    Intervals for chance that need redrawn runs are left out. Raises InputError for an invalid scenario.
    """
    if scenario.stop is not None and scenario.stop.relative_error is not None:
        result, recording = simulate(scenario, 1, "auto", catalogue)
        return result, recording, result.engine
    runs = _runs(scenario, _How(replications, "auto", catalogue, redrawn="never"))
    measured, _ = with_model_error(runs.first, runs.recordings[0], runs.measured, ErrorRuns())
    return measured, runs.recordings[0], runs.engine


def _simulate(scenario: Scenario, how: _How) -> tuple[RunResult, Recording]:
    if how.redrawn == "short":
        with ErrorRuns(how.aside.processes) as repeated:
            runs = _runs(scenario, replace(how, begin=repeated.begin))
            measured, more = with_model_error(runs.first, runs.recordings[0], runs.measured, repeated)
    else:
        runs = _runs(scenario, how)
        measured, more = with_model_error(runs.first, runs.recordings[0], runs.measured, None)
    first, recordings = runs.first, runs.recordings
    notes = [*runs.notes, *more]
    if len(recordings) < how.replications and measured.statistics.redrawn is None:
        notes.append(
            f"nothing in this scenario is random: {how.replications:,} replications would all be this run, so its "
            "intervals are those of one run"
        )
    notes += real_device_notes(runs.real)
    notes += chip_notes(measured.chips or ())
    result = RunResult(
        name=scenario.name,
        description=scenario.description,
        engine=runs.engine,
        engine_reason=runs.engine_reason,
        seed=scenario.seed,
        replications=len(recordings),
        policy=first.policy.name,
        **vars(measured),
        contexts=operation_contexts(first),
        provenance=provenance(first.compiled, first.classes, first.designs, first.links),
        model_accuracy=model_accuracy(first.compiled, first.classes),
        power_error=power_errors(first.classes),
        real=list(runs.real) or None,
        notes=list(dict.fromkeys(notes)),
        scenario=resolved(first),
        versions=versions(),
    )
    return result, recordings[0]


def resolved(prepared: PreparedRun) -> dict[str, object]:
    """Return the scenario with all defaults, also those of serving engines, in the format of a file.

    The largest steps and the shares of memory that engines decide are in the policy's batch where all entries that
    serve decoders have the same, and else in the entries.
    """
    data: Any = prepared.scenario.resolved()
    batch = prepared.policy.batch
    if batch.kind != "continuous":
        return dict(data)
    found = {}
    for (cls, _), compiled in prepared.compiled.items():
        if compiled.decoder is not None:
            replica = prepared.classes[cls].replica
            step = replica.largest_step(batch)
            found[cls] = {"size": step.sequences, "tokens": step.tokens, "memory": replica.memory_share(batch)}
    for key in ("size", "tokens", "memory"):
        values = {limits[key] for limits in found.values()}
        if len(values) == 1:
            data["policy"]["batch"][key] = values.pop()
            continue
        for cls, limits in found.items():
            entry = data["fleet"][cls]
            entry["batch"] = {**(entry["batch"] or {}), key: limits[key]}
    return dict(data)


def check(scenario: Scenario, engine: str, catalogue: Catalogue) -> None:
    """Make all checks of ``simulate`` without simulating. Raises InputError for the first error."""
    from windtunnel.engine.choice import choose

    choose(prepare_run(scenario, catalogue, engine), engine)


def _report(progress: Callable[[int, int], None], total: int, done: int) -> None:
    progress(done, total)


def one_job_s(target: Device, ops: Sequence[Mapping[str, object]]) -> float:
    """Return the time (s) of a single job with the program ``ops`` on ``target``, in the process engine."""
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
"""The number of jobs above which a sample is written, unless all are requested."""


@dataclass(frozen=True)
class Run:
    """A finished run of a fleet: its result, and the first replication's recording."""

    result: RunResult
    recording: Recording
    sample: np.ndarray | None = None
    """The jobs that are written to jobs.csv; None for all."""

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return self.result.met


@dataclass(frozen=True)
class PlacementRun:
    """A finished placement of tasks on a cluster: its result, and the first run's recording."""

    result: PlacementResult
    recording: PlacementRecording
    sample: np.ndarray | None = None
    """The tasks that are written to jobs.csv; None for all."""

    @property
    def met(self) -> bool:
        """Whether every target is met."""
        return self.result.met


def checked(document: Document) -> Scenario | PlacementScenario:
    """Return the scenario of a document: placement of tasks if it has a cluster, otherwise jobs of a fleet."""
    if not is_placement(document):
        return check_scenario(document)
    from windtunnel.placement.scenario import check_placement

    return check_placement(document)


def run(
    scenario: Scenario | PlacementScenario | str | Path,
    *,
    seed: int | None = None,
    replications: int = 1,
    engine: str = "auto",
    changes: Sequence[str] = (),
    catalogue: Catalogue | None = None,
    all_jobs: bool = False,
    all_devices: bool = False,
    outside_code: bool = False,
    progress: Callable[[int, int], None] | None = None,
    processes: int = 1,
    recorded: Callable[[str, Recording, np.ndarray | None], None] | None = None,
) -> Run | PlacementRun:
    """Simulate a scenario (or the file it is in).

    ``seed`` replaces that of the scenario. ``changes`` are of the keys of a file, as ``--set`` has them; a `Scenario`
    is changed with its own methods. With ``replications`` above 1 the intervals come from independent runs, otherwise
    from batches of one run. Above 200,000 jobs an evenly spaced sample of them is written, with a note in the result,
    unless ``all_jobs``. Above 10,000 devices the result has an object for each fleet entry instead of each device,
    unless ``all_devices``. With ``outside_code`` the policy of a scenario file may be code in a file outside of its
    folder. ``progress`` is called with (jobs arrived, jobs in all). With ``processes`` above 1, copies of this process
    share repeated runs. ``recorded`` is called with the name, the recording and the sample of the result as soon as
    they are known, unless the scenario is placed, runs until it is precise or has real devices. Raises InputError for
    invalid input.
    """
    if isinstance(scenario, (str, Path)):
        scenario = checked(read_document(Path(scenario), changes, seed=seed, outside_code=outside_code))
    else:
        if changes:
            raise InputError(
                "changes are made to the file of a scenario", expected="the path of a file, not a Scenario"
            )
        if seed is not None:
            scenario = scenario.reseeded(seed)
    if not isinstance(scenario, Scenario):
        from windtunnel.placement.run import run_placement

        placement, placed = run_placement(scenario, replications, engine, catalogue or shipped_catalogue())
        sample, notes = _sample(len(placed.tasks), all_jobs)
        return PlacementRun(replace(placement, notes=[*placement.notes, *notes]), placed, sample)
    known = catalogue or shipped_catalogue()

    def keep(recording: Recording) -> None:
        if recorded is not None:
            recorded(name, recording, _sample_of(recording, all_jobs)[0])

    name, aside = scenario.name, Aside(processes, keep)
    result, recording = simulate(scenario, replications, engine, known, progress, all_devices, aside=aside)
    sample, notes = _sample_of(recording, all_jobs)
    return Run(replace(result, notes=[*result.notes, *notes]), recording, sample)


def _sample_of(recording: Recording, all_jobs: bool) -> tuple[np.ndarray | None, list[str]]:
    """Return ``_sample`` of a recording; all jobs of one that is a sample already."""
    return (None, []) if recording.tally is not None else _sample(len(recording.jobs), all_jobs)


def _sample(count: int, all_jobs: bool) -> tuple[np.ndarray | None, list[str]]:
    """Return which of ``count`` jobs are written to jobs.csv, None for all; and a note if it is a sample."""
    if count <= SAMPLE_ABOVE or all_jobs:
        return None, []
    note = f"jobs.csv contains an evenly spaced sample of {SAMPLE_ABOVE:,} of {count:,} jobs"
    return np.linspace(0, count - 1, SAMPLE_ABOVE).astype(np.int64), [note]
