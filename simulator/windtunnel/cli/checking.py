"""`windtunnel check`: kernels under all detectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel.cli.console import Failure, StatusLine, pairs, print_json, print_notes
from windtunnel.core.units import format_quantity

if TYPE_CHECKING:
    from windtunnel.app.check import Checked
    from windtunnel.app.check_arguments import LaunchRequest


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.cu|FILE.cl|FILE.py|LAUNCHES.yaml")
@click.option("--kernel", metavar="NAME", help="The kernel, where the file has several.")
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Define a macro. Repeatable.")
@click.option("-I", "include", multiple=True, metavar="DIR", help="A folder of headers. Repeatable.")
@click.option("--grid", metavar="X[,Y[,Z]]", help="The number of blocks (groups of OpenCL).")
@click.option("--block", metavar="X[,Y[,Z]]", help="The number of threads of a block.")
@click.option("--arg", "arguments", multiple=True, metavar="NAME=SPEC", help="An argument of the kernel. Repeatable.")
@click.option("--shared-bytes", type=click.IntRange(0), metavar="N", help="Dynamic shared memory of a block.")
@click.option("--device", metavar="SKU", help="The emulated device.  [default: h100-sxm-80gb]")
@click.option(
    "--schedules", type=click.IntRange(0), default=0, metavar="N", help="Also run N other orders of the threads."
)
@click.option(
    "--steps", type=click.IntRange(0), metavar="N",
    help="The most steps of a launch, 0 for any number. A step is a turn of a loop, which up to 32,768 threads take "
    "together.  [default: 1000000]",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Also report unordered writes of one equal value.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "sarif"]), default="text", show_default=True,
    help="The output format.",
)  # fmt: skip
def check(file: Path, grid: str | None, block: str | None, form: str, **options: Any) -> int:
    """Run a kernel under all detectors: data races, bounds, uninitialised reads, barriers, deadlocks.

    SPEC is a number, or zeros:N, ones:N, arange:N, empty:N (uninitialised), random:N[:SEED] (integers from 0 to
    N - 1), local:N (local memory of OpenCL), each with an optional :dtype last. An argument that is not given is made
    from the signature: a pointer to one random element for each thread, the number of threads for an integer, 1 for a
    float.

    Exit codes: 0 if nothing was found, 1 if there is a finding, 2 if the source or an argument is wrong or a launch is
    too large, 70 for a bug of Windtunnel.

    \b
    windtunnel check saxpy.cu --grid 4 --block 256 --arg n=1000 --arg x=random:1000 --arg y=zeros:1000
    windtunnel check launches.yaml --format sarif
    """  # noqa: D301
    from windtunnel.app.check import check as run

    status = StatusLine()
    try:
        requests = _requests(file, grid, block, options)
        checked = run(
            requests,
            options["device"],
            schedules=options["schedules"],
            strict=options["strict"],
            quiet=form != "text",
            steps=options["steps"],
            report=lambda steps: status(f"{steps:,} steps of a launch"),
        )
    except Exception as error:
        status.close()
        _print_failure(error, form)
        raise
    status.close()
    if form == "json":
        print_json(
            [
                {
                    "finding": f.finding,
                    "kernel": f.kernel,
                    "file": f.file,
                    "lines": list(f.lines),
                    "columns": list(f.columns),
                    "message": f.message,
                }
                for f in checked.findings
            ]
        )
    elif form == "sarif":
        from windtunnel.report.sarif import sarif

        print_json(sarif(checked.findings, {"predictedTimes": [vars(one) for one in checked.predicted]}))
    else:
        _print(checked)
    print_notes(checked.notes)
    return 1 if checked.findings else 0


def _print_failure(error: Exception, form: str) -> None:
    """Print, in the format that was asked for, why the check was not done: for a wrong input as for a bug."""
    failure = Failure.of(error)
    if form == "json":
        print_json({"error": failure.message})
    elif form == "sarif":
        from windtunnel.core.errors import InputError
        from windtunnel.report.sarif import sarif

        print_json(sarif((), failure=failure, where=error.where if isinstance(error, InputError) else None))


def _requests(file: Path, grid: str | None, block: str | None, options: dict[str, Any]) -> Sequence[LaunchRequest]:
    from windtunnel.app.check_arguments import LaunchRequest, check_folders
    from windtunnel.app.check_launches import dims, launches_of
    from windtunnel.core.errors import InputError, Location

    if file.suffix in (".yaml", ".yml"):
        stated = {"--grid": grid, "--block": block, "--kernel": options["kernel"], "--arg": options["arguments"]}
        for option, value in stated.items():
            if value:
                raise InputError(
                    f"{option} beside a list of launches", where=Location(field=option), expected="it in the list"
                )
        return launches_of(file)
    for option, value in (("--grid", grid), ("--block", block)):
        if value is None:
            raise InputError(f"{option} is missing", expected=f"{option} X[,Y[,Z]]")
    check_folders(options["include"], Location(field="-I"))
    request = LaunchRequest(
        file,
        options["kernel"],
        dims(str(grid), "--grid"),
        dims(str(block), "--block"),
        {},
        options["shared_bytes"],
        options["defines"],
        options["include"],
    )
    return [replace(request, arguments=_arguments(request, options["arguments"]))]


def _arguments(request: LaunchRequest, texts: Sequence[str]) -> dict[str, str]:
    from windtunnel.app.check_kernels import kernels_of

    expected = ""
    if any(text.partition("=")[1:] == ("", "") or text.startswith("=") for text in texts):
        parameters = kernels_of([request])[0].parameters
        names = [name for one in parameters for name in one.members or (one.name,)]
        expected = f"NAME one of {', '.join(names)}, and SPEC such as 64 or zeros:64" if names else "no arguments"
    return {name: str(value) for name, value in pairs(texts, "NAME=SPEC", expected).items()}


def _print(checked: Checked) -> None:
    for found in checked.findings:
        place = f"{found.file}:{found.lines[0]}" if found.lines else found.file
        if found.columns:
            place += f":{found.columns[0]}"
        click.echo(f"{place}: {found.finding}: {found.message}")
    if not checked.findings:
        launches = "1 launch" if checked.launches == 1 else f"{checked.launches} launches"
        orders = f", {checked.schedules + 1} orders of threads" if checked.schedules else ""
        fewer = "" if checked.elements is None else f", and one with {checked.elements}"
        click.echo(f"nothing found ({launches}{orders}{fewer})")
    for one in checked.predicted:
        best, low, high = (format_quantity(t, "s") for t in (one.duration_s, one.duration_low_s, one.duration_high_s))
        launches = "" if one.launches == 1 else f"{one.launches} launches, "
        click.echo(f"{one.kernel}: {launches}{best} ({low} to {high}) on {one.device}, predicted ({one.provenance})")
