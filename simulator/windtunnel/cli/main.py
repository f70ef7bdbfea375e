"""The command line: thin, and quick to start. Heavy imports wait until a command needs them."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from windtunnel.cli.console import CATALOG, FORMAT, Counter, Progress, Told, pairs, print_json, print_table
from windtunnel.core.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="windtunnel")
def cli() -> None:
    """Fly a fleet of accelerators before you buy it.

    Discrete-event models of each accelerator's latency, throughput and power drive a scheduler. Exit codes:
    0 done, 1 a target was missed, 2 the input is wrong, 3 a device asked for by name is not here, 70 a bug.
    """


@cli.command()
@click.option("--real", is_flag=True, help="List what is on this host instead, as drivers tell it.")
@CATALOG
@FORMAT
def devices(real: bool, catalogs: Sequence[str], form: str) -> None:
    """List the catalogue of devices, or those of this host."""
    if real:
        _real_devices(catalogs, form)
        return
    from windtunnel.app.devices import list_devices
    from windtunnel.library import predict as predict_library

    rows = list_devices(predict_library.catalogue(catalogs))
    if form == "json":
        print_json(rows)
        return
    print_table(
        ["sku", "kind", "apis", "vendor", "assumed numbers"],
        [[r["sku"], r["kind"], ", ".join(r["apis"]), r["vendor"], f"{r['assumed']} of {r['numbers']}"] for r in rows],
    )


def _real_devices(catalogs: Sequence[str], form: str) -> None:
    from windtunnel.backends.discovery import real_devices as probing

    if catalogs:
        from windtunnel.core.errors import InputError, Where

        raise InputError(
            "what is on this host is in no folder", where=Where(field="--catalog"), expected="--real alone"
        )
    rows = probing.real_devices()
    if form == "json":
        print_json(rows)
        return
    for title, header, shown in probing.devices_tables(rows):
        click.secho(title, bold=True)
        print_table(header, shown)
    if not rows:
        click.echo("No back end reaches a device on this host; windtunnel doctor says what is missing.")


@cli.command()
@click.option("--require", multiple=True, metavar="NAME[,NAME]", help="Exit 3 if one of these back ends is not here.")
@FORMAT
def doctor(require: Sequence[str], form: str) -> None:
    """Say what the host has, what is missing and what to install.

    \b
    windtunnel doctor --require opencl,wgpu
    """  # noqa: D301  as below
    from windtunnel.app import doctor as doctoring

    report = doctoring.doctor(doctoring.names_of(require))
    if form == "json":
        print_json(report)
    else:
        for line in doctoring.lines(report):
            click.echo(line)
    if report["missing"]:
        from windtunnel.core.errors import DeviceNotPresentError

        raise DeviceNotPresentError(doctoring.missing_words(report))


@cli.command()
@FORMAT
def ops(form: str) -> None:
    """List every operation: its columns with units and defaults, and the kinds that run it."""
    from windtunnel.app.devices import list_operations

    found = list_operations()
    if form == "json":
        print_json(found)
        return
    for op in found:
        click.secho(op["op"], bold=True, nl=False)
        click.echo(f"  ({', '.join(op['kinds'])})")
        click.echo(f"    {' '.join(op['doc'].split())}")
        for column in op["columns"]:
            values = "|".join(column["choices"] or []) or f"{column['kind']}, {column['unit']}"
            default = "required" if column["required"] else f"default {column['default']}"
            click.echo(f"      {column['name']:<17} {values}  ({default})")


@cli.command()
@click.argument("op")
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--device", "device_name", required=True, metavar="SKU[@API]", help="What to run it on.")
@click.option("--table", type=click.Path(path_type=Path), help="Predict every row of this CSV file (.csv or .csv.gz).")
@click.option("--out", type=click.Path(path_type=Path), help="Where the table goes, with the cost columns added.")
@click.option("--calibration", metavar="FILE|none", help="Use this overlay, or none that was fitted to this SKU.")
@CATALOG
@FORMAT
def predict(
    op: str,
    values: Sequence[str],
    device_name: str,
    table: Path | None,
    out: Path | None,
    calibration: str | None,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Predict what one operation costs on a device: time with its 90% interval, power, energy, what bounds it.

    \b
    windtunnel predict gemm --device h100-sxm-80gb m=4096 n=4096 k=4096 dtype=bfloat16
    windtunnel predict gemm --device l4 --table shapes.csv --out predicted.csv
    """  # noqa: D301  click's mark for lines to keep
    from windtunnel.app.predict import known_from, predict_table
    from windtunnel.core.errors import InputError, Where
    from windtunnel.library import predict as predict_library
    from windtunnel.simulation.fleet import device_model

    known = predict_library.catalogue(catalogs)
    if table is not None:
        if values:
            raise InputError("values and a table were both given", where=Where(field="--table"), expected="one of them")
        if out is None:
            raise InputError("--table needs --out", where=Where(field="--out"), expected="--out OUT.csv")
        from windtunnel.core.ops import OPERATIONS

        OPERATIONS.find(op)
        if calibration is not None and out.exists() and Path(calibration).exists() and out.samefile(calibration):
            raise InputError(
                "this is the overlay itself", where=Where(str(out), field="--out"), expected="another file"
            )
        count = predict_table(op, device_model(device_name, known, calibration), table, out)
        click.echo(f"{count:,} rows predicted: {out}", err=True)
        if form == "json":
            print_json({"rows": count, "out": str(out)})
        return
    if out is not None:
        raise InputError("--out is for a table", where=Where(field="--out"), expected="--table IN.csv --out OUT.csv")
    cost = predict_library.predict(op, device_name, pairs(values), known=known, calibration=calibration)
    if form == "json":
        print_json(cost)
        return
    from windtunnel.core.units import format_quantity as show

    low, high = show(cost["duration_low_s"], "s"), show(cost["duration_high_s"], "s")
    click.echo(f"{op} on {device_name}: {show(cost['duration_s'], 's')}  (90% within {low} to {high})")
    click.echo(f"  power    {show(cost['power_w'], 'W')}")
    click.echo(f"  energy   {show(cost['energy_j'], 'J')}")
    click.echo(f"  bound by {cost['bound']}")
    click.echo(f"  weakest number that entered: {cost['provenance']}")
    click.echo(f"  time: {known_from(op, device_model(device_name, known, calibration))}")


@cli.command()
@click.argument("op")
@click.argument("measurements", type=click.Path(path_type=Path))
@click.option("--device", "device_name", required=True, metavar="SKU[@API]", help="The device that was measured.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The overlay to write.")
@click.option("--strict", is_flag=True, help="Refuse the table on any outlier or doubt about its unit.")
@CATALOG
@FORMAT
def calibrate(
    op: str, measurements: Path, device_name: str, out: Path, strict: bool, catalogs: Sequence[str], form: str
) -> None:
    """Fit a device to measurements of one operation, and write an overlay for `predict --calibration`.

    MEASUREMENTS is a CSV file with the operation's columns, latency_s and optionally power_w.
    """
    from windtunnel.app import calibrate as calibrate_command
    from windtunnel.library import predict as predict_library
    from windtunnel.report.calibration import lines

    report = calibrate_command.calibrate(
        op, measurements, device_name, out=out, strict=strict, known=predict_library.catalogue(catalogs)
    )
    if form == "json":
        print_json({**report, "out": str(out)})
        return
    for line in lines(report):
        click.echo(line)
    click.echo(f"written: {out}")


@cli.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write result.json, jobs.csv, report.html, trace.json.gz here."
)
@click.option("--seed", type=click.IntRange(0), help="Use this seed instead of the scenario's.")
@click.option("--replications", type=click.IntRange(1, 10_000), default=1, help="Independent repetitions.")
@click.option("--engine", default="auto", help="auto, process or compiled.")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change the scenario: fleet[0].count=3.")
@click.option("--all-jobs", is_flag=True, help="Write every job to jobs.csv, however many.")
@CATALOG
@FORMAT
def run(
    scenario: Path,
    out: Path | None,
    seed: int | None,
    replications: int,
    engine: str,
    changes: Sequence[str],
    all_jobs: bool,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Simulate a scenario; exit 1 when a target is missed."""
    from windtunnel.app import run as run_command
    from windtunnel.app.run import check_writable
    from windtunnel.core.result import result_json
    from windtunnel.library import predict as predict_library
    from windtunnel.simulation import run as simulation

    if out is not None:
        check_writable(out)
    progress = Progress()
    finished = simulation.run(
        scenario,
        seed=seed,
        replications=replications,
        engine=engine,
        changes=changes,
        known=predict_library.catalogue(catalogs),
        all_jobs=all_jobs,
        progress=progress,
    )
    progress.close()
    paths = run_command.save(finished, out) if out is not None else []
    if form == "json":
        click.echo(result_json(finished.result), nl=False)
    else:
        from windtunnel.report.placement import placement_summary
        from windtunnel.report.summary import summary

        click.echo((placement_summary if "placement" in finished.result else summary)(finished.result))
        for path in paths:
            click.echo(f"wrote {path}")
    if not finished.met:
        sys.exit(1)


@cli.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write plan.json and report.html here.")
@click.option("--seed", type=click.IntRange(0), help="Use this seed instead of the scenario's.")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change the scenario: plan={kinds: 1}.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes; as many as there are cores unless given.")
@CATALOG
@FORMAT
def plan(
    scenario: Path,
    out: Path | None,
    seed: int | None,
    changes: Sequence[str],
    workers: int | None,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Find the cheapest fleets of a scenario's candidates that meet its targets; exit 1 when none does."""
    from windtunnel.app import plan as planner
    from windtunnel.app.run import check_writable
    from windtunnel.core.result import result_json
    from windtunnel.library import predict as predict_library

    if out is not None:
        check_writable(out)
    progress = Counter("simulations")
    known = predict_library.catalogue(catalogs)
    found = planner.plan(scenario, seed=seed, changes=changes, known=known, workers=workers, progress=progress)
    progress.close()
    paths = planner.save(found, out) if out is not None else []
    if form == "json":
        click.echo(result_json(found), nl=False)
    else:
        from windtunnel.report.plan import text

        click.echo(text(found))
        for path in paths:
            click.echo(f"wrote {path}")
    if not found["fleets"]:
        sys.exit(1)


@cli.command()
@click.argument("one", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path), required=False)
@click.option("--change", "changes", multiple=True, metavar="PATH=VALUE", help="Compare with this changed instead.")
@click.option("--replications", type=click.IntRange(2, 10_000), default=10, help="Pairs of runs.")
@click.option("--seed", type=click.IntRange(0), help="Use this seed instead of the scenarios'.")
@click.option("--engine", default="auto", help="auto, process or compiled.")
@CATALOG
@FORMAT
def compare(
    one: Path,
    other: Path | None,
    changes: Sequence[str],
    replications: int,
    seed: int | None,
    engine: str,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Compare two scenarios, or one with a change made to it, on the same random numbers.

    \b
    windtunnel compare scenarios/burst.yaml --change policy.name=fifo
    windtunnel compare one.yaml other.yaml --replications 30
    """  # noqa: D301  as above
    from windtunnel.app import compare as compare_command
    from windtunnel.library import predict as predict_library
    from windtunnel.report.compare import comparison_table, headline

    progress = Progress(" pairs")
    found = compare_command.compare(
        one,
        other,
        changes=changes,
        seed=seed,
        replications=replications,
        engine=engine,
        known=predict_library.catalogue(catalogs),
        progress=progress,
    )
    progress.close()
    if form == "json":
        print_json(found)
        return
    click.echo(headline(found))
    print_table(*comparison_table(found))


@cli.command()
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measurements (.csv, .csv.gz or a validation.json), instead of measuring here.",
)
@click.option("--op", metavar="OP", help="What was measured, where the file has no column 'op' that says it.")
@click.option(
    "--device",
    "device_name",
    metavar="NAME",
    help="Measure this one: opencl:0, SKU or SKU@API. Of a file: whose rows to take, or whose they are.",
)
@click.option("--as", "model", metavar="SKU[@API]", help="Compare with this model instead of the device's own.")
@click.option("--budget", type=float, metavar="SECONDS", help="Measure for so long in all; 120 unless told.")
@click.option("--seed", type=int, metavar="N", help="Of the order in which points are measured.")
@click.option(
    "--context", multiple=True, metavar="KEY=VALUE", help="dispatch, clock, cache, if the file is silent. Repeatable."
)
@click.option("--calibration", metavar="FILE|none", help="Use this overlay, or none that was fitted to this SKU.")
@click.option("--calibrate", is_flag=True, help="Fit to one half of the shapes as well, and judge that on the other.")
@click.option("--at-most", type=click.FloatRange(0.0), metavar="PERCENT", help="Exit with 1 where a MAPE is above.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write validation.json, validation.html and the rows here."
)
@CATALOG
@FORMAT
def validate(
    against: Path | None,
    op: str | None,
    device_name: str | None,
    model: str | None,
    budget: float | None,
    seed: int | None,
    context: Sequence[str],
    calibration: str | None,
    calibrate: bool,
    at_most: float | None,
    out: Path | None,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Compare the models with measurements, by device and operation, beside the noise of the measurements.

    Measures the devices of this host, in processes of their own, or takes a file of measurements.

    \b
    windtunnel validate --device opencl:0 --budget 60 --out validation
    windtunnel validate --against gemm.csv.gz --op gemm
    windtunnel validate --against rows.csv --device h100-sxm-80gb --context dispatch=eager --out validation
    """  # noqa: D301  as above
    from windtunnel.app import validate as validating
    from windtunnel.app.run import check_writable
    from windtunnel.report.validation import text

    if out is not None:
        check_writable(out)
    share = None if at_most is None else at_most / 100.0
    both: dict[str, Any] = {
        "calibration": calibration,
        "catalogs": catalogs,
        "calibrate": calibrate,
        "out": out,
        "at_most": share,
    }
    omitted: Sequence[Mapping[str, Any]] = ()
    if against is not None:
        _only("--against", {"--budget": budget, "--seed": seed})
        given: dict[str, Any] = {"op": op, "device": device_name, "model": model, "context": pairs(context)}
        results, paths = validating.validate(against, **given, **both)
    else:
        _only("a measurement here", {"--op": op, "--context": context or None})
        told = Told()
        here: dict[str, Any] = {"device": device_name, "model": model, "seed": seed or 0, "progress": told}
        here |= {} if budget is None else {"budget": validating.Budget(budget)}
        results, paths, omitted = validating.validate_here(**here, **both)
        told.close()
    if form == "json":
        print_json(results)
    else:
        click.echo(text(results, omitted))
        for path in paths:
            click.echo(f"wrote {path}")
    missed = [] if at_most is None else validating.missed(results, at_most / 100.0)
    for line in missed:
        click.echo(f"windtunnel: {line}", err=True)
    if missed:
        sys.exit(1)


def _only(what: str, options: Mapping[str, object]) -> None:
    """InputError for the first of these options that is given: it means nothing beside ``what``."""
    from windtunnel.core.errors import InputError, Where

    for name, value in options.items():
        if value is not None:
            raise InputError(f"it means nothing with {what}", where=Where(field=name), expected=f"{what} without it")


@cli.command()
@click.option("--only", metavar="GROUP", help="One group of claims, such as rtx.")
@CATALOG
@FORMAT
def claims(only: str | None, catalogs: Sequence[str], form: str) -> None:
    """Hold every figure of the founding documents against the models and against physics."""
    from windtunnel.app import claims as claims_command
    from windtunnel.app.claims import claims_text
    from windtunnel.library import predict as predict_library

    rows = claims_command.claims(only, predict_library.catalogue(catalogs))
    if form == "json":
        print_json(rows)
        return
    click.echo(claims_text(rows))


@cli.command()
@click.argument("source", type=click.Path(path_type=Path), metavar="TRACE")
@click.option("--format", "form", default="csv", help="csv, azure-llm or openb-pods.")
@click.option("--time", metavar="COLUMN", help="The column of the arrival; csv needs it.")
@click.option("--column", "columns", multiple=True, metavar="NAME=COLUMN", help="Call a column NAME. Repeatable.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The CSV file to write.")
def trace(source: Path, form: str, time: str | None, columns: Sequence[str], out: Path) -> None:
    """Write a trace as plain CSV, in order of time, with each arrival in seconds after the first.

    \b
    windtunnel trace scenarios/traces/azure_llm_2023_conv.csv.gz --format azure-llm --out conv.csv
    """  # noqa: D301  as above
    from windtunnel.app.trace import import_trace
    from windtunnel.core.units import format_quantity as show

    names = {name: str(column) for name, column in pairs(columns).items()}
    done = import_trace(source, form, time, names, out)
    rate = f", {show(done['mean_rate_per_s'], '/s')} on average" if done["span_s"] else ""
    click.echo(f"{done['rows']:,} rows in {show(done['span_s'], 's')}{rate}")
    click.echo(f"wrote {out}")


@cli.command()
@click.option("--of", type=click.Choice(["fleet", "cluster"]), default="fleet", help="Which kind of scenario.")
def schema(of: str) -> None:
    """Print the JSON Schema of a scenario file: jobs for a fleet, or tasks to place on a cluster."""
    from windtunnel.placement import scenario as cluster
    from windtunnel.scenario import scenario

    print_json(cluster.json_schema() if of == "cluster" else scenario.json_schema())


@cli.command()
@click.argument("kernel", metavar="FILE.py:KERNEL")
@click.option("--to", "target", required=True, metavar="TARGET", help="cuda, hip, opencl, metal, wgsl, glsl or fpga.")
@click.option(
    "--block", metavar="X,Y,Z", help="Threads of a block, where the source says them: a stencil's tile, or 256,1,1."
)
@FORMAT
def transpile(kernel: str, target: str, block: str | None, form: str) -> None:
    """Print a kernel as source for real devices. The file is executed, as importing it would.

    Every parameter needs an annotation. The text says what its compiler must be told. JSON has the arguments, too.

    \b
    windtunnel transpile kernels.py:saxpy --to cuda
    windtunnel transpile kernels.py:stencil --to wgsl --block 8,8
    """  # noqa: D301  as above
    from windtunnel.app import transpile as transpile_command

    made = transpile_command.transpile(kernel, target, block)
    if form == "json":
        print_json({"source": made.source, "options": list(made.options), "signature": made.signature.described()})
        return
    click.echo(made.source, nl=False)


@cli.command()
@click.option("--for", "use", metavar="USE", help='A use case, such as "ml training".')
@click.option("--commands-per-s", "rate", type=float, metavar="X", help="Commands a second that a device is sent.")
@click.option("--steps-per-command", "steps", type=int, metavar="Y", help="Steps of two kernels that each starts.")
@click.option("--device", "device_name", metavar="SKU[@API]", help="For the latter; rtx-6000-ada unless given.")
@CATALOG
@FORMAT
def advise(
    use: str | None, rate: float | None, steps: int | None, device_name: str | None, catalogs: Sequence[str], form: str
) -> None:
    """Which device for a use case, or whether to launch for each command or keep a kernel running.

    \b
    windtunnel advise --for "ml training"
    windtunnel advise --commands-per-s 60 --steps-per-command 5 --device h100-sxm-80gb
    """  # noqa: D301  as above
    from windtunnel.core.errors import InputError, Where

    if use is None:
        if rate is None or steps is None:
            raise InputError(
                "nothing to advise on is described",
                where=Where(field="advise"),
                expected="--for USE, or --commands-per-s X and --steps-per-command Y",
            )
        from windtunnel.app.advise import advice_text, advise_launch
        from windtunnel.library import predict as predict_library

        found = advise_launch(rate, steps, device_name or "rtx-6000-ada", predict_library.catalogue(catalogs))
        print_json(found) if form == "json" else click.echo(advice_text(found))
        return
    for field, value in (("--commands-per-s", rate), ("--steps-per-command", steps), ("--device", device_name)):
        if value is not None:
            raise InputError("a use case has none", where=Where(field=field), expected="--for USE alone")
    from windtunnel.core.recommendation import recommendation

    row = recommendation(use)
    if form == "json":
        places = {"primary": row.primary, "alternative": row.alternative, "fallback": row.fallback}
        print_json({"use": use, **{name: list(choices) for name, choices in places.items()}})
        return
    for name, choices in (("primary", row.primary), ("alternative", row.alternative), ("fallback", row.fallback)):
        click.echo(f"{name:<12} {', '.join(choices) or '-'}")


@cli.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--over", multiple=True, metavar="PATH=A,B,C", help="Values for a path: seed=1..8. Repeatable.")
@click.option("--workers", type=click.IntRange(1, 4096), help="Processes; one for each processor unless given.")
@click.option("--cluster", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler: tcp://HOST:PORT.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Keep every run and the table here; go on from what is kept."
)
@click.option("--fresh", is_flag=True, help="Throw away what another sweep left in --out.")
@click.option("--replications", type=click.IntRange(1, 10_000), default=1, help="Independent repetitions of a point.")
@click.option("--engine", default="auto", help="auto, process or compiled.")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change the scenario at every point.")
@CATALOG
@FORMAT
def sweep(
    scenario: Path,
    over: Sequence[str],
    workers: int | None,
    cluster: str | None,
    out: Path | None,
    fresh: bool,
    replications: int,
    engine: str,
    changes: Sequence[str],
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Run a scenario over a grid of values, side by side; a sweep that was ended goes on where it was.

    Exits 0 when every point was run, whether it met its targets or not; the table says which did.

    \b
    windtunnel sweep scenarios/mm64.yaml --over 'fleet[0].count=60..72..4' --over seed=1..3 --out sweeps/mm64
    """  # noqa: D301  as above
    from windtunnel.app import sweep as sweep_command
    from windtunnel.app.run import check_writable

    if out is not None:
        check_writable(out)
    progress = Progress(" points")
    try:
        found = sweep_command.sweep(
            scenario,
            over,
            changes=changes,
            replications=replications,
            engine=engine,
            catalogs=catalogs,
            out=out,
            fresh=fresh,
            workers=workers,
            cluster=cluster,
            progress=progress,
        )
    finally:
        progress.close()
    if form == "json":
        print_json(found)
    else:
        from windtunnel.report.sweep import headline, points_table, problems

        click.echo(headline(found))
        # Where all points were kept there was no progress to tell of.
        kept = found["points"] if progress.first is None else progress.first
        if out is not None and kept:
            click.echo(f"{kept:,} of them kept from before in {out}, {found['points'] - kept:,} run now")
        click.echo()
        print_table(*points_table(found))
        for line in problems(found):
            click.echo(line)
        if out is not None:
            for name in ("sweep.csv", "sweep.json"):
                click.echo(f"wrote {out / name}")
    if found["exit_code"]:
        sys.exit(found["exit_code"])


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: runs a command and turns errors into exit codes and one clear line."""
    # A reader that has gone ends us as it ends any tool; click would exit with 1, which here means a missed target.
    if hasattr(signal, "SIGPIPE"):
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # A polite request to end is an end like any other: what is half-written is taken away.
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    words = list(arguments) if arguments is not None else None
    _guard(lambda: cli.main(args=words, prog_name="windtunnel", standalone_mode=False))


def _guard(command: Callable[[], Any]) -> None:
    from windtunnel.core.errors import WindtunnelError

    try:
        # Standard output is flushed here, so that a full disk or a closed pipe is noticed while it can be told.
        code = command()
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except WindtunnelError as error:
        click.echo(f"windtunnel: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except OSError as error:
        click.echo(f"windtunnel: {error.filename or 'the output'}: {error.strerror}", err=True)
        sys.exit(2)
    except Exception:
        import traceback

        traceback.print_exc()
        click.echo(
            "windtunnel: this is a bug of Windtunnel's. Please report it with the command, the input and the lines "
            f"above (version {__version__}).",
            err=True,
        )
        sys.exit(70)


if __name__ == "__main__":
    main()
