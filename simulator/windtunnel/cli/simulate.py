"""`windtunnel run`, `compare` and `sweep`: scenarios simulated; and `compile`, which makes their engine ready."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from windtunnel.cli.console import (
    CATALOG,
    ENGINE,
    FORMAT,
    OUTSIDE_CODE,
    PARQUET,
    SEED,
    WITH,
    Progress,
    print_json,
    print_table,
    print_written,
    with_changes,
)
from windtunnel.core.errors import InputError, Location


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write result.json, jobs.csv, report.html and trace.json.gz to this folder.",
)
@SEED
@click.option(
    "--replications", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Independent replications."
)
@ENGINE
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of the scenario, for example fleet[0].count=3. Repeatable.",
)
@WITH
@click.option("--all-jobs", is_flag=True, help="Write every job to jobs.csv instead of a sample.")
@click.option(
    "--all-devices", is_flag=True, help="List every device in the result of a fleet of more than 10,000 devices."
)
@PARQUET
@OUTSIDE_CODE
@CATALOG
@FORMAT
def run(
    scenario: Path,
    out: Path | None,
    seed: int | None,
    replications: int,
    engine: str,
    changes: Sequence[str],
    hypothetical: Sequence[str],
    all_jobs: bool,
    all_devices: bool,
    parquet: bool,
    allow_outside_code: bool,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Simulate a scenario. Exit with 1 if a target is missed."""
    from windtunnel.core.forks import usable_processors

    processes = usable_processors()
    with ExitStack() as ended:
        from windtunnel.app import run as run_command
        from windtunnel.library import predict as predict_library
        from windtunnel.simulation import run as simulation

        run_command.check_parquet(out, parquet)
        if out is not None:
            run_command.check_writable(out)
        progress = Progress("jobs")
        made = None if out is None else run_command.Output(out, parquet=parquet)
        output = None if made is None else ended.enter_context(made)
        finished = simulation.run(
            scenario,
            seed=seed,
            replications=replications,
            engine=engine,
            changes=[*changes, *with_changes(hypothetical)],
            catalogue=predict_library.catalogue(catalogs),
            all_jobs=all_jobs,
            all_devices=all_devices,
            outside_code=allow_outside_code,
            progress=progress,
            processes=processes,
            recorded=output.begin if output is not None and processes > 1 else None,
        )
        progress.close()
        paths = [] if output is None else output.save(finished)
    if form == "json":
        print_json(finished.result)
    else:
        if isinstance(finished, simulation.Run):
            from windtunnel.report.summary import summary

            click.echo(summary(finished.result))
        else:
            from windtunnel.report.placement import placement_summary

            click.echo(placement_summary(finished.result))
        print_written(paths)
    if not finished.met:
        sys.exit(1)


@click.command()
@click.argument("baseline", type=click.Path(path_type=Path))
@click.argument("candidate", type=click.Path(path_type=Path), required=False)
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Compare with the same scenario after this change. Repeatable.",
)
@click.option("--set", "of_run", multiple=True, hidden=True)
@WITH
@click.option("--replications", type=click.IntRange(2, 10_000), default=10, show_default=True, help="Pairs of runs.")
@click.option("--seed", type=click.IntRange(0), help="Replace the seed of both scenarios.")
@ENGINE
@OUTSIDE_CODE
@CATALOG
@FORMAT
def compare(
    baseline: Path,
    candidate: Path | None,
    changes: Sequence[str],
    of_run: Sequence[str],
    hypothetical: Sequence[str],
    replications: int,
    seed: int | None,
    engine: str,
    allow_outside_code: bool,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Compare two scenarios, or one scenario before and after a change, with common random numbers.

    \b
    windtunnel compare scenarios/burst.yaml --change policy.name=fifo
    windtunnel compare baseline.yaml candidate.yaml --replications 30
    """  # noqa: D301
    if of_run:
        raise InputError(
            "compare makes a change to one of the two scenarios, and so has no --set",
            where=Location(f"--set {of_run[0]}"),
            expected=f"--change {of_run[0]}, or a file for each scenario",
        )
    from windtunnel.app import compare as compare_command
    from windtunnel.library import predict as predict_library
    from windtunnel.report.compare import comparison_table, headline

    progress = Progress("pairs")
    comparison = compare_command.compare(
        baseline,
        candidate,
        changes=[*changes, *with_changes(hypothetical)],
        seed=seed,
        replications=replications,
        engine=engine,
        catalogue=predict_library.catalogue(catalogs),
        outside_code=allow_outside_code,
        progress=progress,
    )
    progress.close()
    if form == "json":
        print_json(comparison.to_dict())
        return
    click.echo(headline(comparison))
    print_table(*comparison_table(comparison))


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--over", multiple=True, metavar="PATH=A,B,C", help="An axis of the grid, for example seed=1..8. Repeatable."
)
@click.option("--workers", type=click.IntRange(1, 4096), help="Worker processes. Default: one for each core.")
@click.option("--cluster", metavar="ADDRESS", help="Run on the Dask cluster with this scheduler: tcp://HOST:PORT.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Store every run and the table in this folder, and resume from it."
)
@click.option("--fresh", is_flag=True, help="Throw away what another sweep left in --out.")
@click.option(
    "--replications",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Independent replications of each point.",
)
@ENGINE
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of the scenario at every point. Repeatable.",
)
@WITH
@PARQUET
@OUTSIDE_CODE
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
    hypothetical: Sequence[str],
    parquet: bool,
    allow_outside_code: bool,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Run a scenario at every point of a grid, in parallel. An interrupted sweep resumes where it stopped.

    Exits with 0 if every point was run, whether or not it met its targets. The table shows the targets.

    \b
    windtunnel sweep scenarios/mm64.yaml --over 'fleet[0].count=60..72..4' --over seed=1..3 --out sweeps/mm64
    """  # noqa: D301
    from windtunnel.app import sweep as sweep_command

    sweep_command.begin_imports(cluster)
    from windtunnel.app.run import check_parquet, check_writable

    check_parquet(out, parquet)
    if out is not None:
        check_writable(out)
    progress = Progress("points")
    try:
        result = sweep_command.sweep(
            scenario,
            over,
            changes=[*changes, *with_changes(hypothetical)],
            replications=replications,
            engine=engine,
            catalogs=catalogs,
            out=out,
            fresh=fresh,
            workers=workers,
            cluster=cluster,
            outside_code=allow_outside_code,
            parquet=parquet,
            progress=progress,
        )
    finally:
        progress.close()
    if form == "json":
        print_json(result.to_dict())
    else:
        from windtunnel.report.sweep import headline, points_table, problems

        click.echo(headline(result))
        # If all points were stored already, no progress was reported.
        kept = result.points if progress.first is None else progress.first
        if out is not None and kept:
            click.echo(f"{kept:,} were stored in {out} already, {result.points - kept:,} were run now")
        click.echo()
        print_table(*points_table(result))
        for line in problems(result):
            click.echo(line)
        if out is not None:
            print_written(out / name for name in ("sweep.csv", *(["sweep.parquet"] if parquet else []), "sweep.json"))
    if result.exit_code:
        sys.exit(result.exit_code)


@click.command("compile")
def compile_engine() -> None:
    """Compile the simulation engine now, for runs of every kind.

    A run whose machine code is missing starts uncompiled, while it is compiled in the background. This command does all
    of that in advance, for example while an image of a container is built. It takes some minutes of processor time.
    """
    from windtunnel.app.compile import compile_engine as compile_all

    progress = Progress("functions")
    try:
        folder = compile_all(progress)
    finally:
        progress.close()
    click.echo(f"the machine code of the simulation engine is in {folder}")
