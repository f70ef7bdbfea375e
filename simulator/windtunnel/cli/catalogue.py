"""`windtunnel devices`, `models`, `ops` and `doctor`: the catalogues, the operations, and the devices of this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel.cli.console import CATALOG, FORMAT, print_json, print_table

if TYPE_CHECKING:
    from windtunnel.core.results.host import RealDeviceRow


@click.command()
@click.option(
    "--real", is_flag=True, help="List the devices that the drivers of this host report, instead of the catalogue."
)
@CATALOG
@FORMAT
def devices(real: bool, catalogs: Sequence[str], form: str) -> None:
    """List the devices of the catalogue, or with --real the devices of this host."""
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
        [[r.sku, r.kind, ", ".join(r.apis), r.vendor, f"{r.assumed} of {r.numbers}"] for r in rows],
    )


def _real_devices(catalogs: Sequence[str], form: str) -> None:
    from windtunnel.backends.discovery.real_devices import real_devices

    if catalogs:
        from windtunnel.core.errors import InputError, Location

        raise InputError(
            "--catalog cannot be combined with --real", where=Location(field="--catalog"), expected="--real alone"
        )
    rows = real_devices()
    if form == "json":
        print_json(rows)
        return
    for title, header, shown in _real_device_tables(rows):
        click.secho(title, bold=True)
        print_table(header, shown)
    if not rows:
        click.echo("No back end found a device on this host. Run `windtunnel doctor` to see what is missing.")


_SOFTWARE = "software: executed by this host's processor, not an accelerator; lavapipe (llvmpipe) and PoCL are no GPUs"


def _real_device_tables(rows: Sequence[RealDeviceRow]) -> list[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Return (title, header, rows) of the tables of real devices: hardware and software separately."""
    header = ("name", "kind", "api", "device", "SKU", "memory", "driver")
    tables: list[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = []
    for software, title in ((False, "hardware"), (True, _SOFTWARE)):
        cells = [
            (
                row.name,
                row.kind,
                row.api,
                row.label,
                row.model or "none in the catalogue",
                f"{row.memory_bytes / 1e9:,.1f} GB" if row.memory_bytes else "not reported",
                row.driver,
            )
            for row in rows
            if row.software is software
        ]
        if cells:
            tables.append((title, header, cells))
    return tables


@click.command()
@FORMAT
def models(form: str) -> None:
    """List known decoders: parameters, and bytes of weights and KV cache.

    A scenario names one of them as models: {chat: {catalogue: llama-3.1-70b}}.
    """
    from windtunnel.app.models import list_models
    from windtunnel.core.units import format_quantity

    rows = list_models()
    if form == "json":
        print_json(rows)
        return
    print_table(
        ["model", "parameters", "active", "weights", "formats", "KV cache of a token", "longest context"],
        [
            [
                row.model,
                _billions(row.parameters),
                _billions(row.active_parameters),
                format_quantity(row.weight_bytes, "B"),
                row.weights if row.experts in (None, row.weights) else f"{row.weights}, experts {row.experts}",
                format_quantity(row.kv_bytes_per_token, "B"),
                "unknown" if row.max_context is None else f"{row.max_context:,}",
            ]
            for row in rows
        ],
    )


def _billions(count: int) -> str:
    return f"{count / 1e9:,.3g} billion" if count < 1e12 else f"{count / 1e12:.3g} trillion"


@click.command()
@click.argument("name", required=False, metavar="[OP]")
@FORMAT
def ops(name: str | None, form: str) -> None:
    """List the operations: columns, units, defaults, allowed values, and the device kinds that run each one.

    OP: only this operation.
    """
    from windtunnel.app.devices import list_operations
    from windtunnel.core.step_op import PREDICTED

    operations = list_operations()
    if name is not None:
        PREDICTED.find(name)
        operations = [op for op in operations if op.op == name]
    if form == "json":
        print_json(operations)
        return
    for op in operations:
        click.secho(op.op, bold=True, nl=False)
        click.echo(f"  ({', '.join(op.kinds)})")
        click.echo(f"    {' '.join(op.doc.split())}")
        for column in op.columns:
            values = "|".join(column.choices or []) or ", ".join(filter(None, (column.kind, column.unit)))
            default = (
                "required" if column.required else f"default {column.default}" if column.default != "" else "optional"
            )
            click.echo(f"      {column.name:<17} {values}  ({default})")


@click.command()
@click.option(
    "--require", multiple=True, metavar="NAME[,NAME]", help="Exit with 3 if one of these back ends has no device."
)
@FORMAT
def doctor(require: Sequence[str], form: str) -> None:
    """Report which back ends work on this host, what is missing, and what to install.

    \b
    windtunnel doctor --require opencl,wgpu
    """  # noqa: D301
    from windtunnel.app import doctor as doctor_command
    from windtunnel.report.doctor import doctor_lines, missing_text

    report = doctor_command.doctor(doctor_command.names_of(require))
    if form == "json":
        print_json(report)
    else:
        for line in doctor_lines(report):
            click.echo(line)
    if report.missing:
        from windtunnel.core.errors import DeviceNotPresentError

        raise DeviceNotPresentError(missing_text(report))
