"""`windtunnel predict` and `calibrate`: the cost of operations on one device."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.console import CATALOG, FORMAT, WITH, pairs, print_json, print_notes, print_table, with_changes

if TYPE_CHECKING:
    from windtunnel.core.device import Device
    from windtunnel.core.ops import Rows
    from windtunnel.core.results.catalogue import Prediction


@click.command()
@click.argument("op")
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--device", "device_name", required=True, metavar="SKU[@API]", help="The device to predict for.")
@click.option(
    "--table", type=click.Path(path_type=Path), help="Predict every row of this CSV file (.csv, .csv.gz or .parquet)."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file to write: the table with the cost columns added (.parquet by its name, else CSV).",
)
@click.option(
    "--calibration", metavar="FILE|none", help="A calibration file to use, or none to ignore the shipped calibration."
)
@WITH
@CATALOG
@FORMAT
def predict(
    op: str,
    values: Sequence[str],
    device_name: str,
    table: Path | None,
    out: Path | None,
    calibration: str | None,
    hypothetical: Sequence[str],
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Predict one operation on a device: duration with a 90% interval, power, energy and limiting resource.

    `step` is one iteration of a serving engine with a decoder on a group of such devices.

    \b
    windtunnel predict gemm --device h100-sxm-80gb m=4096 n=4096 k=4096 dtype=bfloat16
    windtunnel predict step --device h100-sxm-80gb model=llama-3.1-70b tensor=8 decode=64 context=2048
    windtunnel predict gemm --device l4 --table shapes.csv --out predicted.csv
    """  # noqa: D301
    from windtunnel.core.errors import InputError, Location
    from windtunnel.core.ops import one_row
    from windtunnel.core.step_op import PREDICTED, Step
    from windtunnel.library import predict as predict_library
    from windtunnel_models.catalogue import device_model

    catalogue = predict_library.catalogue(catalogs)
    target = device_model(device_name, catalogue, calibration, _changes(device_name, hypothetical))
    if table is not None:
        if values:
            raise InputError(
                "KEY=VALUE and --table were both given", where=Location(field="--table"), expected="one of them"
            )
        if out is None:
            raise InputError("--table needs --out", where=Location(field="--out"), expected="--out OUT.csv")
        PREDICTED.find(op)
        if calibration is not None and out.exists() and Path(calibration).exists() and out.samefile(calibration):
            raise InputError(
                "the output is the calibration file itself",
                where=Location(str(out), field="--out"),
                expected="another file",
            )
        _predict_table(op, target, table, out, form)
        return
    if out is not None:
        raise InputError("--out needs --table", where=Location(field="--out"), expected="--table IN.csv --out OUT.csv")
    if op == Step.name:
        _print_step(target.label if hypothetical else device_name, target, pairs(values), form)
        return
    rows = one_row(PREDICTED.find(op), pairs(values))
    cost = next(predict_library.predictions(target.cost(rows)))
    _print_prediction(target.label if hypothetical else device_name, target, rows, cost, form)


def _changes(device_name: str, texts: Sequence[str]) -> dict[str, object]:
    """Return the values of ``--with`` for the device; raises InputError for one of another SKU."""
    from windtunnel.core.errors import InputError, Location
    from windtunnel.core.yamlfile import parse

    sku, found = device_name.partition("@")[0], dict[str, object]()
    for text in with_changes(texts):
        path, _, value = text.removeprefix("with.").partition("=")
        named, _, name = path.partition(".")
        if named != sku:
            raise InputError(f"'{named}' is not the device", where=Location(field="--with"), expected=sku, nearest=sku)
        parameter, _, key = name.partition(".")
        stated = parse(value, f"--with {path}").data
        inner = found.setdefault(parameter, {}) if key else found
        if not isinstance(inner, dict) or (key or parameter) in inner:
            raise InputError(f"'{name}' is given twice", where=Location(field="--with"), expected="each value once")
        inner[key or parameter] = stated
    return found


def _predict_table(op: str, target: Device, table: Path, out: Path, form: str) -> None:
    """Predict a table, and print how many rows were written."""
    from windtunnel.app.predict import predict_table
    from windtunnel.report.numbers import plural

    done = predict_table(op, target, table, out)
    click.echo(f"{plural(done.rows, 'row')} predicted: {out}", err=True)
    print_notes(done.notes)
    if form == "json":
        print_json({"rows": done.rows, "out": str(out), "notes": list(done.notes)})


def _print_prediction(device_name: str, target: Device, rows: Rows, cost: Prediction, form: str) -> None:
    """Print the cost of one operation, with its context and what the duration rests on."""
    from windtunnel.app.predict import design_of, device_duration_s, known_from, memory_note, rates
    from windtunnel.core.ops import CONTEXT

    context = {column.name: rows.choices[column.name] for column in CONTEXT if column.name in rows.choices}
    basis, design, note = known_from(rows.op.name, target), design_of(rows, target), memory_note(rows, target)
    alone_s = device_duration_s(rows, target)
    notes = [] if note is None else [note]
    print_notes(notes)
    if form == "json":
        own = {} if alone_s is None else {"device_duration_s": alone_s}
        loads = {} if design is None else {"design": {"name": design[0], "load_s": design[1]}}
        print_json({**cost.to_dict(), **own, "context": context, "duration_model": basis, **loads, "notes": notes})
        return
    from windtunnel.core.units import format_quantity as show

    low, high = show(cost.duration_low_s, "s"), show(cost.duration_high_s, "s")
    click.echo(f"{rows.op.name} on {device_name}: {show(cost.duration_s, 's')}  (90% interval {low} to {high})")
    if context:
        click.echo(f"  context  {', '.join(f'{name} {word}' for name, word in context.items())}")
    if alone_s is not None:
        host_s = max(cost.duration_s - alone_s, 0.0)
        click.echo(
            f"  device   {show(alone_s, 's')}; the other {show(host_s, 's')} belong to the host and its software"
        )
    click.echo(f"  power    {show(cost.power_w, 'W')}")
    click.echo(f"  energy   {show(cost.energy_j, 'J')}")
    flops_per_s, bytes_per_s = rates(rows, cost.duration_s)
    achieved = [show(rate, unit) for rate, unit in ((flops_per_s, "FLOP/s"), (bytes_per_s, "B/s of operands")) if rate]
    click.echo(f"  bound    {cost.bound}{', achieves ' if achieved else ''}{' and '.join(achieved)}")
    click.echo(f"  least certain input: {cost.provenance} (of time and power together)")
    if design is not None:
        click.echo(f"  design   {design[0]}; a load of it takes {show(design[1], 's')} and is not included")
    click.echo(textwrap.fill(basis, 112, initial_indent="  duration model: ", subsequent_indent="    "))


def _print_step(device_name: str, target: Device, values: Mapping[str, object], form: str) -> None:
    """Print the cost of one step by its parts and by kind of operation."""
    from windtunnel.app.predict import predict_step
    from windtunnel.core.ops import CONTEXT
    from windtunnel.report.steps import operation_rows, part_rows, step_lines

    rows, cost, notes = predict_step(target, values)
    print_notes(notes)
    context = {column.name: rows.choices[column.name] for column in CONTEXT}
    if form == "json":
        print_json({**cost.to_dict(), "context": context, "notes": notes})
        return
    for line in step_lines(device_name, rows, cost):
        click.echo(line)
    click.echo("")
    print_table(["operation", "time", "share", "bytes", "FLOPs", "bound"], operation_rows(cost))
    click.echo("")
    print_table(["part", "operation", "time", "share", "bytes", "FLOPs", "bound"], part_rows(cost))


@click.command()
@click.argument("op")
@click.argument("measurements", type=click.Path(path_type=Path))
@click.option(
    "--device", "device_name", required=True, metavar="SKU[@API]", help="The device that the measurements are from."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The calibration file to write.")
@click.option("--model", metavar="NAME", help="With `serving`: the decoder.")
@click.option("--engine", metavar="NAME", help="With `serving`: the serving engine.")
@click.option(
    "--set", "stated", multiple=True, metavar="KEY=VALUE", help="With `serving`: a column that the table lacks."
)
@click.option("--strict", is_flag=True, help="Exit with 2 if the table has an outlier or a doubtful unit.")
@click.option(
    "--trust-measurements", is_flag=True, help="Also fit rows that are faster than the device's datasheet allows."
)
@CATALOG
@FORMAT
def calibrate(
    op: str,
    measurements: Path,
    device_name: str,
    out: Path,
    model: str | None,
    engine: str | None,
    stated: Sequence[str],
    strict: bool,
    trust_measurements: bool,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Fit a device model to measurements of one operation, and write a file for `predict --calibration`.

    MEASUREMENTS is a table (.csv, .csv.gz or .parquet) with the operation's columns, latency_s and optionally power_w.
    Rows that are over 1.25 times faster than the device's datasheet allows are named and not fitted.

    With `serving` as OP it fits the profile of a serving engine instead; MEASUREMENTS is a table of closed loops as
    `windtunnel validate serving` takes it, and one row is enough.

    \b
    windtunnel calibrate gemm rows.csv --device l4 --out l4.yaml
    windtunnel calibrate serving rows.csv --device h100-sxm-80gb --model qwen3-32b --engine vllm --out mine.yaml
    """  # noqa: D301
    from windtunnel.app import calibrate as calibrate_command
    from windtunnel.library import predict as predict_library
    from windtunnel.report.calibration import lines

    if op == "serving":
        _calibrate_serving(measurements, device_name, out, model, engine, pairs(stated), catalogs, form)
        return
    _only_serving({"--model": model, "--engine": engine, "--set": stated or None})
    report = calibrate_command.calibrate(
        op,
        measurements,
        device_name,
        out=out,
        strict=strict,
        trust=trust_measurements,
        catalogue=predict_library.catalogue(catalogs),
    )
    if form == "json":
        print_json({**report.to_dict(), "out": str(out)})
        return
    for line in lines(report):
        click.echo(line)
    click.echo(f"wrote {out}")


def _only_serving(options: Mapping[str, object]) -> None:
    """Raise InputError for the first of ``options`` that was given: they belong to `calibrate serving`."""
    from windtunnel.core.errors import InputError, Location

    for name, value in options.items():
        if value is not None:
            raise InputError(
                "this option is for `windtunnel calibrate serving`", where=Location(field=name), expected=f"no {name}"
            )


def _calibrate_serving(
    measurements: Path,
    device: str,
    out: Path,
    model: str | None,
    engine: str | None,
    stated: Mapping[str, object],
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Fit the profile of a serving engine, and print what was learned."""
    from windtunnel.app import serving
    from windtunnel.core.errors import InputError, Location
    from windtunnel.library import predict as predict_library
    from windtunnel.report.measured_serving import calibration_lines

    if model is None or engine is None:
        missing = "--model" if model is None else "--engine"
        raise InputError(f"{missing} is missing", where=Location(field=missing), expected=f"{missing} NAME")
    result = serving.calibrate_serving(
        measurements,
        device=device,
        model=model,
        engine=engine,
        out=out,
        stated=stated,
        catalogue=predict_library.catalogue(catalogs),
    )
    if form == "json":
        print_json({**result.to_dict(), "out": str(out)})
        return
    for line in calibration_lines(result):
        click.echo(line)
    click.echo(f"wrote {out}")
