"""Everything the command line does, as functions: the one place that knows all parts.

``run`` simulates a scenario, ``predict`` asks one operation's cost, ``catalogue`` lists devices.
"""

from __future__ import annotations

import csv
import hashlib
import json
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import numpy as np

from windtunnel import __version__, comparing, placing, running
from windtunnel.core.cluster import PlacementScenario, check_placement, is_placement
from windtunnel.core.csvfile import write_whole
from windtunnel.core.device import Cost, Device, DeviceSpec
from windtunnel.core.errors import InputError, Where, WindtunnelError
from windtunnel.core.ops import OPERATIONS, describe, one_row
from windtunnel.core.optable import read_op_table
from windtunnel.core.placed import PlacementRecording
from windtunnel.core.policy import POLICIES
from windtunnel.core.provenance import Provenance
from windtunnel.core.result import Recording
from windtunnel.core.scenario import (
    Scenario,
    check_scenario,
    read_document,
)
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.core.yamlfile import Document
from windtunnel.running import (
    device,
    one_job_s,
    policy_of,
    versions,
)
from windtunnel_models.catalogue import HERE as MODELS
from windtunnel_models.catalogue import HOST, Catalogue, api_names, shipped_overlay
from windtunnel_models.host import host_spec
from windtunnel_models.kinds import find_kind, kind_names

if TYPE_CHECKING:
    from windtunnel.emulator.timeline import Host
    from windtunnel.planning.executors import Task
    from windtunnel.planning.sweep import Inputs, Outcome
    from windtunnel.runtime.accelerator import Accelerator
    from windtunnel.runtime.explore import Exploration
    from windtunnel.runtime.interface import Interval
    from windtunnel.runtime.selection import Choice, KnownBackend
    from windtunnel.transpile import Emitted

SAMPLE_ABOVE = 200_000
"""Jobs above this many are written as a stated sample unless all are asked for."""


def catalogue(folders: Sequence[str | Path] = ()) -> Catalogue:
    """Every device that is known, with a user's own folders of SKU files beside the shipped ones."""
    return Catalogue([Path(folder) for folder in folders])


def list_devices(known: Catalogue) -> list[dict[str, Any]]:
    """What `windtunnel devices` prints: SKU, kind, usual API, vendor, and the weakest provenance of its numbers."""
    return [
        {
            "sku": spec.sku,
            "kind": spec.kind,
            "api": spec.apis[0],
            "apis": list(spec.apis),
            "vendor": spec.vendor,
            "name": spec.name,
            "provenance": spec.provenance.label,
            "numbers": len(spec.values),
            "assumed": sum(value.provenance is Provenance.ASSUMED for value in spec.values.values()),
        }
        for spec in known.specs()
    ]


def list_operations() -> list[dict[str, Any]]:
    """What `windtunnel ops` prints: each operation's columns and the kinds that run it."""
    kinds = {name: find_kind(name) for name in kind_names()}
    return [
        describe(op, [kind for kind, found in kinds.items() if name in found.costs]) for name, op in OPERATIONS.items()
    ]


def known_from(op: str, target: Device) -> str:
    """One line on what an operation's time rests on: this SKU's measurements, other devices', or a formula."""
    known = target.knowledge(op)
    if known.basis != "measured":
        return known.text
    held = (
        "" if known.held_out is None else f"; {known.held_out:.1%} off in the mean on those held back ({known.split})"
    )
    return f"{known.rows:,} measurements of this SKU{held}"


def accelerator(
    name: str,
    *,
    host: Host | None = None,
    known: Catalogue | None = None,
    calibration: str | None = None,
    interval: Interval = "best",
    leaks: Literal["ignore", "error"] = "ignore",
    schedule: int | None = None,
    checked: bool = True,
) -> Accelerator:
    """An emulated accelerator: ``SKU`` or ``SKU@API``. Those of one ``host`` share its virtual clock.

    ``interval``: the clock takes the model's best values, or the ``low`` or ``high`` end of their 90% intervals: what
    is in time at the high end is in time wherever the model holds. ``leaks``: whether closing it while memory is
    allocated or a ring kernel runs is an error (`Leak`). ``schedule``: threads of kernels are executed one by one in
    the order that this seed picks (``explore`` tries many). Without ``checked`` neither kernels nor the order of
    streams are looked at for what is wrong. Raises InputError for a device that is not in the catalogue.
    """
    from windtunnel.emulator.context import EmulatedContext
    from windtunnel.emulator.timeline import Host as Clock
    from windtunnel.runtime.accelerator import Accelerator

    if not isinstance(name, str):
        raise InputError(f"{name!r} is no device", expected="a SKU, or SKU@API")
    if host is not None and not isinstance(host, Clock):
        raise InputError(f"{host!r} is no clock of a host program", expected="windtunnel.Host()")
    if interval not in ("low", "best", "high"):
        raise InputError(f"'{interval}' is no part of an interval", expected="low, best or high")
    if leaks not in ("ignore", "error"):
        raise InputError(f"'{leaks}' is nothing to do with leaks", expected="ignore or error")
    if schedule is not None and (isinstance(schedule, bool) or not isinstance(schedule, int) or schedule < 0):
        raise InputError(f"{schedule!r} is no schedule", expected="a seed: a whole number from 0")
    model = device(name, known or Catalogue(), calibration)
    return Accelerator(EmulatedContext(model, host, interval, checked=checked, schedule=schedule), leaks=leaks)


def explore(
    program: Callable[[Accelerator], Any],
    device: str,
    *,
    schedules: int | Sequence[int] = 64,
    known: Catalogue | None = None,
) -> Exploration:
    """Run ``program(accelerator)`` on a fresh ``device`` for each schedule, which its kernels' threads then follow.

    ``schedules``: how many, or their seeds. What the first failing one raises (a finding, or the program's own
    assertion) has a note with the seed, and how to run it so again. See ``docs/kernels.md``.
    """
    from windtunnel.runtime.explore import explored

    catalogue = known or Catalogue()
    return explored(program, lambda seed: accelerator(device, known=catalogue, schedule=seed), schedules)


def real_accelerator(name: str) -> Accelerator:
    """A real accelerator: ``SKU`` or ``SKU@API``, or ``opencl:0`` as `windtunnel devices --real` calls it.

    InputError for a name that is none; DeviceNotPresentError where it is not here.
    """
    from windtunnel import probing
    from windtunnel.runtime.accelerator import Accelerator

    # A slip in a name is not an absent device.
    usual_api = None if ":" in name else device(name, Catalogue()).spec.apis[0]
    return Accelerator(probing.open_real(name, usual_api))


def select(
    *preferred: str,
    use: str | None = None,
    device: str | None = None,
    machine: Sequence[str] | None = None,
    real: bool = False,
    host: Host | None = None,
    known: Catalogue | None = None,
) -> Choice:
    """Choose a device by back ends in order of preference, or by what the recommendation matrix says for ``use``.

    A back end is an API (``cuda``, ``wgpu`` ...) or a kind (``tpu``, ``cpu`` ...), as in the matrix; ``device`` is the
    ``SKU`` or ``SKU@API`` that it has to be. Emulated is a machine with the SKUs of ``machine``, the whole catalogue
    unless given. With ``real`` it is what back ends reach on this host; ``device`` may be ``opencl:0`` then, with no
    back end beside it. The choice says why (``reason``) and opens the device (``open()``).

    Raises InputError for an unknown name; DeviceNotPresentError, with why for each, where none of it is here.
    """
    from windtunnel.runtime import selection

    if real and device is not None and ":" in device and not preferred and use is None:
        preferred = (device.partition(":")[0],)
    if bool(preferred) == (use is not None):
        raise InputError(
            "a back end is chosen by a preference or by a use", expected="names, or use='...', one of them"
        )
    catalogued = known or Catalogue()
    if device is not None and not (real and ":" in device):
        running.device(device, catalogued)  # a slip in a name is not an absent device
    found: Mapping[str, KnownBackend] = _real_backends() if real else _emulated_backends(machine, host, catalogued)
    if use is not None:
        return selection.select_for(use, found, device=device)
    return selection.select(preferred, found, device=device)


def _emulated_backends(machine: Sequence[str] | None, host: Host | None, known: Catalogue) -> dict[str, KnownBackend]:
    """Every kind and every API, with what it reaches of the machine's devices."""
    from windtunnel.emulator.backend import EmulatedBackend

    specs = list(known.specs()) if machine is None else [known.spec(sku) for sku in machine]
    words = "the catalogue" if machine is None else f"the emulated machine ({', '.join(machine) or 'no devices'})"
    reached = {kind: [f"{spec.sku}@{spec.apis[0]}" for spec in specs if spec.kind == kind] for kind in kind_names()}
    reached |= {api: [f"{spec.sku}@{api}" for spec in specs if api in spec.apis] for api in api_names()}
    make = partial(running.device, known=known)
    return {name: EmulatedBackend(name, devices, make, words, host) for name, devices in reached.items()}


def _real_backends() -> dict[str, KnownBackend]:
    from windtunnel import probing

    return {**probing.real_backends(api_names(), kind_names())}


def predict(
    op: str,
    device_name: str,
    values: Mapping[str, object],
    *,
    known: Catalogue | None = None,
    calibration: str | None = None,
) -> dict[str, Any]:
    """One operation's cost on one device: the cost columns, in SI. Raises InputError for what is wrong."""
    operation = OPERATIONS.find(op)
    target = device(device_name, known or Catalogue(), calibration)
    cost = target.cost(one_row(operation, values))
    return next(_cost_rows(cost))


def _cost_rows(cost: Cost) -> Iterator[dict[str, Any]]:
    columns = [getattr(cost, name).tolist() for name in Cost.COLUMNS[:-1]]
    for row in zip(*columns, cost.provenance_labels(), strict=True):
        yield dict(zip(Cost.COLUMNS, row, strict=True))


def import_trace(source: Path, form: str, time: str | None, columns: Mapping[str, str], out: Path) -> dict[str, Any]:
    """Write the trace ``source`` of format ``form`` as plain CSV with time in seconds; its rows, span and mean rate."""
    from windtunnel.engine.arrivals import export_trace, read_trace

    if out.exists() and source.exists() and out.samefile(source):
        raise InputError("this is the trace itself", where=Where(str(out), field="--out"), expected="another file")
    options = {"format": "--format", "time": "--time", "columns": "--column"}
    rows = read_trace(source, form, time, columns, lambda key, *_: Where(str(source), field=options.get(key)))
    export_trace(rows, out)
    span_s = rows.ticks[-1] / TICKS_PER_SECOND
    return {"rows": len(rows.ticks), "span_s": span_s, "mean_rate_per_s": rows.mean_rate_per_s}


def predict_table(op: str, target: Device, source: Path, out: Path) -> int:
    """Predict every row of a CSV file (plain or .gz), keeping its rows, order and columns; returns the rows.

    A column of the table that is called like a cost column (measured ``power_w``) is kept as ``<name>_given``.
    """
    if out.exists() and out.samefile(source):
        raise InputError("this is the table itself", where=Where(str(out), field="--out"), expected="another file")
    rows = read_op_table(OPERATIONS.find(op), source)
    table = rows.table
    header = [f"{name}_given" if name in Cost.COLUMNS else name for name in table.header]
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(f"the table would have two columns '{twice[0]}'", where=Where(str(source), 1, field=twice[0]))
    cells: list[dict[str, Any]] = [{}] * len(table.rows)
    for places, group in rows.groups():
        try:
            cost = target.cost(group)
        except InputError as error:
            raise error.at(rows.where(int(places[0]))) from None
        for place, row in zip(places.tolist(), _cost_rows(cost), strict=True):
            cells[place] = row

    def write(stream: TextIO) -> None:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*header, *Cost.COLUMNS])
        writer.writerows([*row, *extra.values()] for row, extra in zip(table.rows, cells, strict=True))

    write_whole(out, write)
    return len(table.rows)


def calibrate(
    op: str,
    measurements: Path,
    device_name: str,
    *,
    out: Path | None = None,
    strict: bool = False,
    known: Catalogue | None = None,
) -> dict[str, Any]:
    """Fit a device to a table of measurements of one operation: its columns, ``latency_s`` and optionally ``power_w``.

    Starts from the device's datasheet and what other devices taught. Writes the overlay to ``out``, and returns what
    was learned and how sure it is. Raises InputError for too few rows, and on any outlier if ``strict``.
    """
    from windtunnel_models.learned.calibrate import calibrate as fit
    from windtunnel_models.learned.write import overlay_data, overlay_text

    operation = OPERATIONS.find(op)
    if not operation.hardware:
        raise InputError(f"{op} takes the time that it is told", expected="an operation that runs on hardware")
    if out is not None and out.exists() and measurements.exists() and out.samefile(measurements):
        raise InputError("this is the table itself", where=Where(str(out), field="--out"), expected="another file")
    target = device(device_name, known or Catalogue(), "none")
    table = read_op_table(operation, measurements)
    found = fit(target, table, table.measured("latency_s"), table.measured("power_w", optional=True))
    if strict and found.warnings:
        raise InputError(found.warnings[0], where=Where(str(measurements), field="latency_s"), expected="seconds")
    if strict and found.outliers:
        first = found.outliers[0]
        raise InputError(
            f"{len(found.outliers)} of {found.rows} rows are far from what the others say; the first measured "
            f"{first.measured_s:g} s where they say {first.expected_s:g} s",
            where=Where(str(measurements), first.line, field="latency_s"),
            expected="a time that the others bear out, or no --strict",
        )
    if out is not None:
        note = f"windtunnel {__version__} calibrate, starting from what it knew without measurements of this SKU"
        data = overlay_data(found, f"{found.rows} measurements in {measurements.name}", note)
        text = overlay_text(data)

        def write(stream: TextIO) -> None:
            stream.write(text)

        write_whole(out, write)
    shipped = shipped_overlay(target.spec.sku, target.spec.kind)
    return {**found.report(), "instead_of": sorted(shipped.fits) if shipped is not None else []}


# Running a scenario.


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
    known: Catalogue | None = None,
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
        found, placed = placing.run_placement(scenario, replications, engine, known or Catalogue())
        return Run(found, placed, _sample(found, len(placed.tasks), all_jobs))
    result, recording = running.simulate(scenario, replications, engine, known or Catalogue(), progress)
    if recording.tally is not None:
        return Run(result, recording)
    return Run(result, recording, _sample(result, len(recording.jobs), all_jobs))


def compare(
    one: str | Path,
    other: str | Path | None = None,
    *,
    changes: Sequence[str] = (),
    seed: int | None = None,
    replications: int = 10,
    engine: str = "auto",
    known: Catalogue | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """A scenario beside another, or beside itself with ``changes``, on the same random numbers: see ``comparing``."""
    if (other is None) == (not changes):
        raise InputError(
            "there is nothing to compare with, or there are two things",
            where=Where(field="compare"),
            expected="another scenario, or --change PATH=VALUE",
        )
    first = check_scenario(read_document(Path(one), seed=seed))
    second = check_scenario(read_document(Path(one if other is None else other), changes, seed=seed))
    # What tells them apart, shortest first: their names, their files, the change.
    names = (first.name, second.name)
    if changes:
        names = (first.name, f"{second.name} with {', '.join(changes)}")
    elif first.name == second.name:
        names = (str(one), str(other))
    return comparing.compare(first, second, replications, engine, known or Catalogue(), progress, names=names)


def _sample(result: dict[str, Any], count: int, all_jobs: bool) -> np.ndarray | None:
    """Which of ``count`` jobs are written to jobs.csv, None for all; the result's notes say so."""
    if count <= SAMPLE_ABOVE or all_jobs:
        return None
    result["notes"].append(f"jobs.csv holds {SAMPLE_ABOVE:,} of {count:,} jobs, evenly spaced")
    return np.linspace(0, count - 1, SAMPLE_ABOVE).astype(np.int64)


def claims(only: str | None = None, known: Catalogue | None = None) -> list[dict[str, Any]]:
    """What `windtunnel claims` prints: every figure of the founding documents beside the models' and physics' own.

    ``only`` names one group of them. Raises InputError for a group that is not there.
    """
    from windtunnel.validation.claims import report
    from windtunnel.validation.claims_models import Setting

    catalogued = known or Catalogue()
    return report(Setting(partial(device, known=catalogued), one_job_s, emulate=emulator()), only)


def emulator() -> Callable[[Device], Accelerator]:
    """Opens emulated accelerators on one virtual clock."""
    from windtunnel.emulator.context import EmulatedContext
    from windtunnel.emulator.timeline import Host
    from windtunnel.runtime.accelerator import Accelerator

    host = Host()
    return lambda target: Accelerator(EmulatedContext(target, host))


def claims_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of ``claims`` for people."""
    from windtunnel.validation import claims_text as text

    return text.claims_text(rows)


def advise_launch(
    commands_per_s: float, steps_per_command: int, device_name: str, known: Catalogue | None = None
) -> dict[str, Any]:
    """Launch for each command or keep a kernel running: both sides, the crossovers, and which is recommended."""
    from windtunnel.planning.launch_or_persist import advise

    return advise(device(device_name, known or Catalogue()), commands_per_s, steps_per_command)


def transpile(given: str, target: str, block: str | None) -> Emitted:
    """The kernel that ``FILE.py:KERNEL`` names as source for a target, after executing the file.

    ``block``: threads of a block, ``X``, ``X,Y`` or ``X,Y,Z``; None: a stencil's tile, or else 256,1,1.
    """
    from windtunnel.transpile import transpile as emitted
    from windtunnel.transpile import with_sizes
    from windtunnel.transpile.load import load

    sizes = None if block is None else with_sizes(block)
    return emitted(load(given), target, sizes)


def advice_text(advice: Mapping[str, Any]) -> str:
    """What ``advise_launch`` answers, for people."""
    from windtunnel.planning import launch_or_persist

    return launch_or_persist.advice_text(advice)


def save(finished: Run, folder: Path) -> list[Path]:
    """Write result.json, jobs.csv, report.html and trace.json.gz under ``folder``; nothing half-written stays."""
    from windtunnel.report import html, perfetto, tables

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as scratch:
            made = Path(scratch)
            (made / "result.json").write_text(result_json(finished.result), encoding="utf-8")
            recording = finished.recording
            if isinstance(recording, PlacementRecording):
                placing.write_outputs(finished.result, recording, made, finished.sample)
            else:
                tables.write_jobs_csv(made / "jobs.csv", recording, rows=finished.sample)
                (made / "report.html").write_text(html.render(finished.result, recording), encoding="utf-8")
                perfetto.write_trace(made / "trace.json.gz", recording, name=finished.result["name"])
            names = sorted(path.name for path in made.iterdir())
            in_the_way = [name for name in names if (folder / name).exists() and not (folder / name).is_file()]
            if in_the_way:
                raise InputError(
                    f"'{in_the_way[0]}' is there already and is no file",
                    where=Where(str(folder), field="--out"),
                    expected="another folder",
                )
            for name in names:
                (made / name).replace(folder / name)
    except OSError as error:
        raise InputError(
            f"the output cannot be written: {error.strerror or error}",
            where=Where(str(folder), field="--out"),
            expected="a folder that can be written to",
        ) from None
    return [folder / name for name in names]


def check_writable(folder: Path) -> None:
    """Refuse an output folder that cannot be written to before anything runs."""
    parent = folder
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    where = Where(str(folder), field="--out")
    if not parent.is_dir():
        raise InputError(f"'{parent}' is not a folder", where=where, expected="a folder that can be written to")
    try:
        tempfile.TemporaryDirectory(dir=parent, prefix=".writable-").cleanup()
    except OSError as error:
        raise InputError(
            f"the output folder cannot be written to: {error.strerror}",
            where=where,
            expected="a folder that can be written to",
        ) from None


def result_json(result: Mapping[str, Any]) -> str:
    """``result`` as result.json holds it: the same bytes for the same run."""
    return json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def list_policies() -> list[str]:
    """Every named policy."""
    return list(POLICIES)


# Sweeping a scenario.


@dataclass(frozen=True)
class _Point:
    """What running a point takes, beside its changes and the copies of its input files. Sent to workers."""

    inputs: Inputs
    replications: int
    engine: str
    host: DeviceSpec | None
    """The processor of the machine the sweep was started on, where a fleet names it: the same for every worker."""


def sweep(
    scenario: str | Path,
    over: Sequence[str],
    *,
    changes: Sequence[str] = (),
    replications: int = 1,
    engine: str = "auto",
    catalogs: Sequence[str | Path] = (),
    out: Path | None = None,
    fresh: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Run a scenario at every point of a grid; returns what sweep.json holds.

    ``over`` are axes, "fleet[0].count=1,2,4"; ``changes`` are made at every point. Points run on ``workers`` processes
    (one a processor unless given) or on the Dask cluster whose scheduler is at ``cluster``. With ``out`` every finished
    point is kept there, and a sweep that was ended goes on from what is kept; ``fresh`` throws that away. ``progress``
    is told (points done, points in all). Raises InputError for what is wrong at any point, before any is run. A point
    that fails while it runs has its error in its row and stops no other.
    """
    from windtunnel.planning.sweep import read_grid
    from windtunnel.planning.sweep_run import Places, conduct

    Catalogue([Path(folder) for folder in catalogs])
    whole = read_grid(str(scenario), over, changes, [str(folder) for folder in catalogs], policy_of)
    named = {entry.device.partition("@")[0] for one in whole.scenarios for entry in one.fleet}
    host = host_spec() if HOST in named else None
    real = sorted({name for one in whole.scenarios for name in one.real_devices})
    common = {
        "inputs": whole.inputs.contents(),
        "replications": replications,
        "engine": engine,
        "versions": made_with(),
        "host": None if host is None else hashlib.sha256(repr(host).encode()).hexdigest(),
        **({"real devices": _drivers(real)} if real else {}),
    }
    work = partial(sweep_work, _Point(whole.inputs, replications, engine, host))
    places = Places(out, fresh, _one_at_a_time(real, workers, cluster) if real else workers, cluster, _PRELOAD)
    return conduct(whole, common, work, made_with, places, progress or (lambda _done, _total: None))


def _one_at_a_time(real: Sequence[str], workers: int | None, cluster: str | None) -> int:
    """How many processes run points that measure real devices: one, or each would measure the others too."""
    if cluster is not None:
        raise InputError(f"{real[0]} is a device of this host", where=Where(field="--cluster"), expected="no --cluster")
    if workers not in (None, 1):
        problem = f"{real[0]} is measured by each point, and {workers} at once would measure one another"
        raise InputError(problem, where=Where(field="--workers"), expected="1, or none given")
    return 1


def _drivers(real: Sequence[str]) -> dict[str, str | None]:
    """What real devices of a sweep are, so that no point that another driver measured is taken for one of it."""
    from windtunnel import probing

    here = {row["name"]: f"{row['label']}, {row['driver']}" for row in probing.real_devices()}
    return {name: here.get(name) for name in real}


_PRELOAD = ("windtunnel.app", "windtunnel.engine.process", "windtunnel.engine.metrics", "scipy.special")
"""What running a point imports: once for all local workers."""


def sweep_work(setup: _Point, tree: Path, task: Task) -> Outcome:
    """Check or run one point of a sweep, from the copies of its input files under ``tree``. Never raises."""
    from windtunnel.planning.sweep import Outcome, read_copy

    inputs = setup.inputs
    try:
        scenario = read_copy(inputs, tree, task.changes)
        known = Catalogue(inputs.catalog_folders(tree), setup.host)
        if task.what == "check":
            running.check(scenario, setup.engine, known)
            return Outcome()
        finished = run(scenario, replications=setup.replications, engine=setup.engine, known=known)
        return Outcome(inputs.restore(result_json(finished.result), tree))
    except WindtunnelError as error:
        return Outcome(error=inputs.restore(str(error), tree), code=error.exit_code)
    except Exception as error:
        lines = "".join(traceback.format_exception(error))
        said = inputs.restore(f"{type(error).__name__}: {error}".rstrip(": "), tree)
        return Outcome(error=f"a bug of Windtunnel's: {said}", code=70, traceback=inputs.restore(lines, tree))


@cache
def made_with() -> dict[str, str]:
    """``versions``, and a digest of Windtunnel's own files, which change between releases too.

    Two machines that agree in it give the same results.
    """
    digest = hashlib.sha256()
    for package in (Path(__file__).parent, MODELS):
        for path in sorted(package.rglob("*")):
            if "__pycache__" in path.parts or not path.is_file():
                continue
            digest.update(f"\0{path.relative_to(package).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return {**versions(), "windtunnel's files": digest.hexdigest()[:16]}


__all__ = ["Run", "calibrate", "catalogue", "device", "predict", "run", "save", "sweep"]
