"""`windtunnel validate` and `claims`: the models compared with measurements and with stated figures."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.console import CATALOG, FORMAT, StatusLine, pairs, print_json, print_written

if TYPE_CHECKING:
    from windtunnel.core.results.validation import OmittedPoints, ValidationResult


class _RecordedCommand(click.Group):
    """A command that keeps its arguments as they were typed, for the environment of a validation."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments, then parse them."""
        ctx.meta["windtunnel.command"] = shlex.join(["windtunnel", "validate", *args])
        return super().parse_args(ctx, args)


@click.group(cls=_RecordedCommand, invoke_without_command=True)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read measurements (.csv, .csv.gz or validation.json) instead of measuring on this host.",
)
@click.option(
    "--op",
    metavar="OP",
    help="The only operation to measure. With --against: the operation, if the file has no column 'op'.",
)
@click.option(
    "--device",
    "device_name",
    metavar="NAME",
    help="The device to measure: opencl:0, SKU or SKU@API. With --against: the device of the rows.",
)
@click.option("--as", "model", metavar="SKU[@API]", help="Compare with this model instead of the model of the device.")
@click.option("--budget", type=float, metavar="SECONDS", help="Total measuring time. Default: 120.")
@click.option("--seed", type=int, metavar="N", help="Seed of the order in which points are measured.")
@click.option(
    "--context",
    multiple=True,
    metavar="KEY=VALUE",
    help="dispatch, clock or cache, if the file does not state it. Repeatable.",
)
@click.option(
    "--calibration", metavar="FILE|none", help="A calibration file to use, or none to ignore the shipped calibration."
)
@click.option(
    "--calibrate", is_flag=True, help="Also fit to half of the shapes, and report the error on the other half."
)
@click.option("--max-mape", type=click.FloatRange(0.0), metavar="PERCENT", help="Exit with 1 if a MAPE exceeds this.")
@click.option("--at-most", "old_max_mape", hidden=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write validation.json, validation.html and the measurements to this folder.",
)
@CATALOG
@FORMAT
@click.pass_context
def validate(
    ctx: click.Context,
    against: Path | None,
    op: str | None,
    device_name: str | None,
    model: str | None,
    budget: float | None,
    seed: int | None,
    context: Sequence[str],
    calibration: str | None,
    calibrate: bool,
    max_mape: float | None,
    old_max_mape: str | None,
    out: Path | None,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Compare the models with measurements, by device and operation, and report the measurement noise.

    Exits with 1 if nothing that was asked for was measured, if --calibrate fitted nothing, or if a limit is missed.

    Measures the devices of this host, each in its own process, or reads a file of measurements.

    \b
    windtunnel validate --device opencl:0 --budget 60 --out validation
    windtunnel validate --against gemm.csv.gz --op gemm
    windtunnel validate --against rows.csv --device h100-sxm-80gb --context dispatch=eager --out validation
    windtunnel validate serving rows.csv
    """  # noqa: D301
    if ctx.invoked_subcommand is not None:
        return
    from windtunnel.app import validate as validating
    from windtunnel.app.run import check_writable
    from windtunnel.report.validation import text

    _not_renamed(old_max_mape)
    if out is not None:
        check_writable(out)
    share = None if max_mape is None else max_mape / 100.0
    omitted: Sequence[OmittedPoints] = ()
    if against is not None:
        _only("--against", {"--budget": budget, "--seed": seed})
        results, paths = validating.validate(
            against,
            op=op,
            device=device_name,
            model=model,
            context=pairs(context),
            calibration=calibration,
            catalogs=catalogs,
            calibrate=calibrate,
            out=out,
            max_mape=share,
            command=ctx.meta["windtunnel.command"],
        )
    else:
        _only("measuring on this host", {"--context": context or None})
        status = StatusLine()
        results, paths, omitted = validating.validate_here(
            device=device_name,
            model=model,
            op=op,
            budget=None if budget is None else validating.Budget(budget),
            seed=seed or 0,
            calibration=calibration,
            catalogs=catalogs,
            calibrate=calibrate,
            out=out,
            max_mape=share,
            progress=status,
            command=ctx.meta["windtunnel.command"],
        )
        status.close()
    if form == "json":
        print_json(results)
    else:
        click.echo(text(results, omitted))
        print_written(paths)
    _judge(results, omitted if against is None else None, calibrate, share)


@validate.command("serving")
@click.argument("measurements", type=click.Path(path_type=Path))
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file of `windtunnel calibrate serving`, or of an operation of the device.",
)
@click.option("--set", "stated", multiple=True, metavar="KEY=VALUE", help="A column that the file lacks. Repeatable.")
@CATALOG
@FORMAT
def validate_serving(
    measurements: Path, calibration: Path | None, stated: Sequence[str], catalogs: Sequence[str], form: str
) -> None:
    """Compare measured serving with simulations, without a fit.

    MEASUREMENTS is a table of closed loops (users) or open loops (rate_per_s), of which each row is simulated: engine,
    model, sku, tensor, pipeline, attention_data, expert, expert_tensor, weights, kv_dtype, prompt_tokens,
    output_tokens, and the measured means ttft_s, tpot_s, e2e_s. Or it is a request log, which is replayed: arrival_s,
    prompt_tokens, output_tokens, first_token_s, last_token_s.

    \b
    windtunnel validate serving rows.csv
    windtunnel validate serving log.csv --set model=llama-3.1-8b --set sku=rtx-4090 --set engine=vllm
    """  # noqa: D301
    from windtunnel.app import serving
    from windtunnel.core.results.measured_serving import ReplayResult
    from windtunnel.library import predict as predict_library
    from windtunnel.report.measured_serving import mean_lines, replay_lines, row_lines

    status = StatusLine()
    result = serving.validate_serving(
        measurements,
        stated=pairs(stated),
        calibration=calibration,
        catalogue=predict_library.catalogue(catalogs),
        progress=lambda done, of: status(f"{done} of {of} rows"),
    )
    status.close()
    if form == "json":
        print_json(result)
    if isinstance(result, ReplayResult):
        lines = [] if form == "json" else list(replay_lines(result))
        click.echo("\n".join(lines), nl=bool(lines))
        return
    if form == "json":
        # Standard output holds the rows alone.
        click.echo("\n".join(mean_lines(serving.means(result))), err=True)
        return
    click.echo("\n".join([*row_lines(result), "", *mean_lines(serving.means(result))]))


def _judge(
    results: Sequence[ValidationResult],
    omitted: Sequence[OmittedPoints] | None,
    calibrate: bool,
    max_mape: float | None,
) -> None:
    """Report what was not measured (unless ``omitted`` is None), not fitted or missed; exit with 1 where it fails."""
    from windtunnel.app import validate as validating

    failed = False
    if omitted is not None:
        _warn(validating.not_measured(results, omitted))
        failed = not results
    if calibrate:
        reasons, none = validating.not_fitted(results)
        _warn(reasons)
        failed = failed or none
    if max_mape is not None:
        missed = validating.missed(results, max_mape)
        _warn(missed)
        failed = failed or bool(missed)
    if failed:
        sys.exit(1)


def _not_renamed(old_max_mape: str | None) -> None:
    from windtunnel.core.errors import InputError, Location

    if old_max_mape is not None:
        raise InputError(
            "--at-most was renamed to --max-mape", where=Location(field="--at-most"), expected="--max-mape"
        )


def _warn(lines: Sequence[str]) -> None:
    """Print a line on standard error for each message."""
    for line in lines:
        click.echo(f"windtunnel: {line}", err=True)


def _only(what: str, options: Mapping[str, object]) -> None:
    """Raise InputError for the first of ``options`` that was given: it cannot be combined with ``what``."""
    from windtunnel.core.errors import InputError, Location

    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"this option cannot be combined with {what}", where=Location(field=name), expected=f"no {name}"
            )


@click.command()
@click.option("--only", metavar="GROUP", help="One group of claims, such as rtx.")
@CATALOG
@FORMAT
def claims(only: str | None, catalogs: Sequence[str], form: str) -> None:
    """Compare every figure of the founding documents with the models and with physical bounds."""
    from windtunnel.app import claims as claims_command
    from windtunnel.app.claims import claims_text
    from windtunnel.library import predict as predict_library

    rows = claims_command.claims(only, predict_library.catalogue(catalogs))
    if form == "json":
        print_json(rows)
        return
    click.echo(claims_text(rows))
