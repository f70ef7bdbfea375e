"""Running a scenario of jobs on a fleet: what is needed made ready, an engine chosen, the result put together."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel import __version__, policies
from windtunnel.core.device import Device, configure
from windtunnel.core.errors import InputError
from windtunnel.core.executor import Executor
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.policy import Batch, Policy
from windtunnel.core.provenance import Sourced
from windtunnel.core.recommendation import recommendation
from windtunnel.core.result import Recording
from windtunnel.core.rng import opened
from windtunnel.core.scenario import ContinuousBatch, RequestBatch, Scenario, Stop, scenario_from_data
from windtunnel.core.target import parse_figure
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.core.units import to_unit
from windtunnel_models.catalogue import Catalogue, read_overlay

if TYPE_CHECKING:
    from windtunnel.engine.fleet import Prepared


_SHOWN = 5
"""Failures of a real device that notes tell; the result has all."""
FIRST_JOBS, MOST_JOBS = 20_000, 50_000_000
"""Jobs of the first attempt at a precision, and those after which it is given up."""


def device(name: str, known: Catalogue, calibration: str | None = None) -> Device:
    """The device ``SKU`` or ``SKU@API``; ``calibration`` is an overlay's path, or "none" to ignore the shipped one."""
    if calibration == "none":
        return known.device(name, calibrated=False)
    if calibration is None:
        return known.device(name)
    spec = known.spec(name.partition("@")[0])
    return known.device(name, calibration=read_overlay(Path(calibration), spec.sku, spec.kind))


def policy_of(scenario: Scenario) -> Policy:
    """The scenario's policy with its batching; InputError with its place for an unknown name."""
    stated = scenario.policy
    if isinstance(stated, str):
        return _located(partial(policies.named, stated, folder=scenario.folder), scenario, "policy")
    batch = Batch()
    if isinstance(stated.batch, RequestBatch):
        batch = Batch("request", stated.batch.size, stated.batch.wait)
    elif isinstance(stated.batch, ContinuousBatch):
        batch = Batch("continuous", stated.batch.size, tokens=stated.batch.tokens, memory=stated.batch.memory)
    if stated.name is not None:
        return _located(partial(policies.named, stated.name, batch, scenario.folder), scenario, "policy", "name")
    route, order = stated.route or "central", stated.order or "arrival"
    return _located(
        partial(policies.parts, route, order, batch, scenario.folder),
        scenario,
        "policy",
        "route" if _is_wrong(route, scenario) else "order",
    )


def _is_wrong(route: str, scenario: Scenario) -> bool:
    try:
        policies.parts(route, "arrival", folder=scenario.folder)
    except InputError:
        return True
    return False


def _located(make: Callable[[], Policy], scenario: Scenario, *path: str) -> Policy:
    try:
        return make()
    except InputError as error:
        raise error.at(scenario.where(*path)) from None


def fleet_devices(scenario: Scenario, known: Catalogue) -> list[Device]:
    """Each fleet entry's device, as the entry states it."""
    devices: list[Device] = []
    for i, entry in enumerate(scenario.fleet):
        try:
            found = device(entry.device, known)
        except InputError as error:
            raise error.at(scenario.where("fleet", i, "device")) from None
        try:
            calibration = entry.calibration
            if calibration is not None:
                overlay = calibration if calibration == "none" else str(scenario.folder / calibration)
                found = device(entry.device, known, overlay)
        except InputError as error:
            raise error.at(scenario.where("fleet", i, "calibration")) from None
        try:
            found = configure(
                found,
                speed=entry.speed,
                idle_w=entry.power.idle,
                max_w=entry.power.max,
                memory_bytes=entry.memory,
            )
            if found.power_limit_w < found.idle_power_w:
                raise InputError(
                    f"{found.label} would draw {found.idle_power_w:g} W idle and {found.power_limit_w:g} W at most",
                    expected="power: {idle: ..., max: ...} with idle <= max",
                )
        except InputError as error:
            raise error.at(scenario.where("fleet", i, "device")) from None
        devices.append(found)
    return devices


def fleet_executors(scenario: Scenario, devices: Sequence[Device]) -> dict[int, Executor]:
    """What executes the work of the fleet entries that are devices of this host, by the entry's place.

    DeviceNotPresentError where one is not here; InputError where its model is of another kind.
    """
    found: dict[int, Executor] = {}
    for number, (entry, model) in enumerate(zip(scenario.fleet, devices, strict=True)):
        if entry.real is None:
            continue
        from windtunnel import reals

        where = scenario.where("fleet", number, "real")
        if any(entry.real == other.real for other in scenario.fleet[:number]):
            raise InputError(f"{entry.real} is in the fleet twice", where=where, expected="each real device once")
        try:
            made = reals.executor(entry.real)
        except InputError as error:
            raise error.at(where) from None
        if made.info.kind != model.kind.name:
            # Routes would see the times of another kind of device than does the work.
            raise InputError(
                f"{entry.real} is {made.info.name}, a {made.info.kind}, and its model {model.label} is a "
                f"{model.kind.name}",
                where=where,
                expected=f"device: what it is, a {made.info.kind} behind the API by which it is reached",
            )
        if made.info.api != model.api.name and made.info.api in model.spec.apis:
            raise InputError(
                f"{entry.real} is reached through {made.info.api}, and its model is {model.label}",
                where=where,
                expected=f"device: {model.spec.sku}@{made.info.api}",
            )
        found[number] = made
    return found


def prepare_run(scenario: Scenario, known: Catalogue, engine: str = "auto") -> Prepared:
    """A scenario made ready for an engine; InputError for what can be known to be wrong before anything runs.

    Long runs are made ready to be streamed, where the compiled engine will run them.
    """
    from windtunnel.engine.choice import wants_streaming
    from windtunnel.engine.preparing import prepare

    def preference(use: str, api: str, kind: str) -> float:
        return recommendation(use).preference(api=api, kind=kind)

    devices, policy = fleet_devices(scenario, known), policy_of(scenario)
    executors = fleet_executors(scenario, devices)
    if executors:
        return prepare(scenario, devices, policy, preference, executors=executors)
    if wants_streaming(scenario, engine):
        from windtunnel.engine.compiled.run import refusal

        prepared = prepare(scenario, devices, policy, preference, streamed=True)
        if refusal(prepared) is None:
            return prepared
    return prepare(scenario, devices, policy, preference)


def simulate(
    scenario: Scenario,
    replications: int,
    engine: str,
    known: Catalogue,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Any], Recording]:
    """Run a scenario; what result.json holds, and the first replication's recording.

    Raises InputError for what is wrong with the scenario, or with asking for ``engine``.
    """
    if scenario.stop is not None and scenario.stop.relative_error is not None:
        return _until_precise(scenario, scenario.stop, replications, engine, known, progress)
    return _simulate(scenario, replications, engine, known, progress)


def _until_precise(
    scenario: Scenario,
    stop: Stop,
    replications: int,
    engine: str,
    known: Catalogue,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[str, Any], Recording]:
    """Longer and longer runs of the same jobs, until the figure that was asked for is known as well as was asked."""
    from windtunnel.engine.statistics import Estimate, jobs_needed, observations_needed, relative_error

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
    most = stop.most or MOST_JOBS
    count, attempts = min(FIRST_JOBS, most), 0
    while True:
        attempts += 1
        result, recording = _simulate(scenario.changed(stop=Stop(jobs=count)), 1, engine, known, progress)
        part = next((w for w in result["workloads"] if w["name"] == target.workload), result)
        times = part[f"{target.metric}_s"]
        if times is None:
            raise InputError(f"no job has a {target.metric}", where=where, expected="of: latency mean")
        name = str(target.statistic)
        worth = {key: part["statistics"][key][f"{target.metric}_s"][name] for key in ("effective", "batches")}
        estimate = Estimate(**times[name], **worth)
        needed = jobs_needed(estimate, float(stop.relative_error or 0.0), count)
        if needed <= count or count >= most or result["statistics"]["settled"] == "grows":
            break
        count = min(needed, most)
    reached = relative_error(estimate)
    result["statistics"]["stopped"] = {
        "figure": stop.figure,
        "asked": stop.relative_error,
        "reached": reached,
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
    known: Catalogue,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Any], Recording]:
    from windtunnel.engine import invariants
    from windtunnel.engine.choice import choose, run_on
    from windtunnel.engine.metrics import summarise

    recordings: list[Recording] = []
    first: Prepared | None = None
    chosen = why = ""
    real: list[dict[str, Any]] = []
    drawn = opened()
    for replication in range(replications):
        repeated = scenario if not replication else scenario.reseeded(replication_seed(scenario.seed, replication))
        prepared = prepare_run(repeated, known, engine)
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
    if scenario.records in ("sample", "drop") and not first.streamed:
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
        "models": models(first.compiled, first.classes),
        **({"real": real} if real else {}),
        "notes": list(dict.fromkeys(notes)),
        "scenario": scenario.resolved(),
        "versions": versions(),
    }
    return result, recordings[0]


def _real(prepared: Prepared, recording: Recording) -> list[dict[str, Any]]:
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


def check(scenario: Scenario, engine: str, known: Catalogue) -> None:
    """All of ``simulate`` but the simulation: InputError for what it would refuse before anything is simulated."""
    from windtunnel.engine.choice import choose

    choose(prepare_run(scenario, known, engine), engine)


def _report(progress: Callable[[int, int], None], total: int, done: int) -> None:
    progress(done, total)


def replication_seed(seed: int, replication: int) -> int:
    """An independent seed for each replication after the first, the same on every machine."""
    return int(np.random.SeedSequence(seed, spawn_key=(replication,)).generate_state(1, np.uint64)[0] >> 1)


def versions() -> dict[str, str]:
    """What a result was made with."""
    import simpy

    return {
        "windtunnel": __version__,
        "python": platform.python_version(),
        "numba": metadata.version("numba"),
        "numpy": np.__version__,
        "simpy": simpy.__version__,
    }


def provenance(compiled: Mapping[tuple[int, int], Any], classes: Sequence[Any]) -> list[dict[str, Any]]:
    """Every number that entered a run: device, parameter, value in its unit, where it comes from, its range."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for (number, _), program in compiled.items():
        target: Device = classes[number].device
        for path, sourced in program.sources.items():
            found.setdefault((target.label, path), _source_row(target, path, sourced))
    for fleet_class in classes:
        target = fleet_class.device
        for path in ("idle_power_w", "max_power_w"):
            found.setdefault((target.label, path), _source_row(target, path, target.values[path]))
    return [found[key] for key in sorted(found)]


def models(compiled: Mapping[tuple[int, int], Any], classes: Sequence[Any]) -> list[dict[str, Any]]:
    """How well each operation that a run priced is known on each of its devices."""
    asked = {(number, op) for (number, _), program in compiled.items() for op in program.operations}
    found = {}
    for number, op in sorted(asked):
        target: Device = classes[number].device
        if op != "service":  # a stated time is known by definition
            found[target.label, op] = {"device": target.label, **asdict(target.knowledge(op))}
    return [found[key] for key in sorted(found)]


def _source_row(target: Device, path: str, sourced: Sourced) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    unit = "1" if name == "learned" else _api_unit(rest) if name == "api" else target.kind.parameter(name).unit
    scale = partial(to_unit, unit=unit)
    return {
        "device": target.label,
        "parameter": path,
        "value": scale(sourced.value),
        "unit": unit,
        "provenance": sourced.provenance.label,
        "source": sourced.source,
        "low": None if sourced.low is None else scale(sourced.low),
        "high": None if sourced.high is None else scale(sourced.high),
        "reason": sourced.reason,
    }


def _api_unit(name: str) -> str:
    from windtunnel_models.catalogue import API_PARAMETERS

    return next(parameter.unit for parameter in API_PARAMETERS if parameter.name == name)


def one_job_s(target: Device, ops: Sequence[Mapping[str, Any]]) -> float:
    """How long one job of the program ``ops`` takes on ``target``, alone, in the process engine (s)."""
    from windtunnel.engine import invariants, process
    from windtunnel.engine.preparing import prepare

    job = {"name": "job", "arrivals": {"process": "deterministic", "rate": "1 /s"}, "ops": list(ops)}
    scenario = scenario_from_data(
        {"schema": 1, "name": "one job", "fleet": [{"device": target.label}], "workload": [job], "stop": {"jobs": 1}}
    )
    recording = process.run(prepare(scenario, [target], policy_of(scenario)))
    invariants.check(recording)
    return float(recording.jobs.finish[0] - recording.jobs.arrival[0]) / TICKS_PER_SECOND
