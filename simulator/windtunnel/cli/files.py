"""`windtunnel schema`, `trace` and `transpile`: files in other formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from windtunnel.cli.console import FORMAT, pairs, print_json


class _Target(click.Option):
    """An option whose help lists the target languages. They are imported only when the help is printed."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        from windtunnel.app.transpile import targets

        *names, last = targets()
        return f"--to {self.metavar}", f"The target language: {', '.join(names)} or {last}.  [required]"


@click.command()
@click.option(
    "--of",
    type=click.Choice(["fleet", "cluster"]),
    default="fleet",
    help="The kind of scenario: jobs on a fleet, or tasks on a cluster.",
)
def schema(of: str) -> None:
    """Print the JSON Schema of scenario files."""
    from windtunnel.placement import scenario as cluster
    from windtunnel.scenario import read

    print_json(cluster.json_schema() if of == "cluster" else read.json_schema())


@click.command()
@click.argument("source", type=click.Path(path_type=Path), metavar="TRACE")
@click.option("--format", "form", default="csv", show_default=True, help="csv, azure-llm, mooncake or openb-pods.")
@click.option("--time", metavar="COLUMN", help="The column with the arrival time. Required for csv.")
@click.option("--column", "columns", multiple=True, metavar="NAME=COLUMN", help="Rename a column to NAME. Repeatable.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The CSV file to write.")
def trace(source: Path, form: str, time: str | None, columns: Sequence[str], out: Path) -> None:
    """Convert a trace to CSV, sorted by time, with arrival times in seconds after the first arrival.

    \b
    windtunnel trace scenarios/traces/azure_llm_2023_conv.csv.gz --format azure-llm --out conv.csv
    """  # noqa: D301
    from windtunnel.app.trace import import_trace
    from windtunnel.core.units import format_quantity as show

    names = {name: str(column) for name, column in pairs(columns).items()}
    done = import_trace(source, form, time, names, out)
    rate = f", {show(done.mean_rate_per_s, '/s')} on average" if done.span_s else ""
    click.echo(f"{done.rows:,} rows in {show(done.span_s, 's')}{rate}")
    click.echo(f"wrote {out}")


@click.command()
@click.argument("kernel", metavar="FILE.py:KERNEL|FILE.cu[:KERNEL]|FILE.cl[:KERNEL]")
@click.option("--to", "target", required=True, metavar="TARGET", cls=_Target)
@click.option(
    "--block",
    metavar="X,Y,Z",
    help="Block size for targets whose source states it. Default: the stencil's tile, or 256,1,1.",
)
@click.option("--kernel", "name", metavar="NAME", help="The kernel, in the place of :KERNEL.")
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Define a macro of C. Repeatable.")
@click.option("-I", "include", multiple=True, metavar="DIR", help="A folder of headers of C. Repeatable.")
@click.option(
    "--arg", "arguments", multiple=True, metavar="NAME=local:N", help="Elements of a __local parameter. Repeatable."
)
@click.option(
    "--shared-bytes", type=click.IntRange(0), default=0, metavar="N",
    help="Dynamic shared memory, for targets whose source states it.",
)  # fmt: skip
@FORMAT
def transpile(
    kernel: str,
    target: str,
    block: str | None,
    name: str | None,
    defines: Sequence[str],
    include: Sequence[str],
    arguments: Sequence[str],
    shared_bytes: int,
    form: str,
) -> None:
    """Print a kernel in Python, CUDA C or OpenCL C as source in another language.

    A file of Python is executed, as by an import, and every parameter needs a type annotation. The source states its
    compiler options. JSON adds the signature.

    \b
    windtunnel transpile kernels.py:saxpy --to cuda
    windtunnel transpile kernels.py:stencil --to wgsl --block 8,8
    windtunnel transpile reverse.cu -D BLOCK=64 --to opencl
    """  # noqa: D301
    from windtunnel.app import transpile as transpile_command

    given = {key: str(value) for key, value in pairs(arguments, "NAME=SPEC", "such as held=local:64").items()}
    made = transpile_command.transpile(
        transpile_command.TranspileRequest(kernel, target, block, name, defines, include, given, shared_bytes)
    )
    if form == "json":
        print_json({"source": made.source, "options": list(made.options), "signature": made.signature.described()})
        return
    click.echo(made.source, nl=False)
