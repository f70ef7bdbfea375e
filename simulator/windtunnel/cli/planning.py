"""`windtunnel plan`, `deploy` and `advise`: which devices to choose, and how to configure them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.cli.console import (
    CATALOG,
    FORMAT,
    OUTSIDE_CODE,
    SEED,
    WITH,
    Progress,
    pairs,
    print_json,
    print_written,
    with_changes,
)

if TYPE_CHECKING:
    from windtunnel.scenario.plan import Objective


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write plan.json, plan.html and deploy/ to this folder.")
@SEED
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change the scenario: plan={max_entries: 1}. Repeatable.",
)
@click.option(
    "--objective",
    type=click.Choice(["cost", "power", "carbon", "throughput"]),
    help="What is optimised: cost, power or carbon (the least), or throughput per device. Default: the scenario's.",
)
@click.option("--workers", type=click.IntRange(1, 1024), help="Worker processes. Default: one for each core.")
@WITH
@OUTSIDE_CODE
@CATALOG
@FORMAT
def plan(
    scenario: Path,
    out: Path | None,
    seed: int | None,
    changes: Sequence[str],
    objective: Objective | None,
    hypothetical: Sequence[str],
    workers: int | None,
    allow_outside_code: bool,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Find the best fleets that meet the targets of a scenario: the cheapest, unless --objective says otherwise.

    Exit with 1 if none does.
    """
    from windtunnel.app import plan as planner
    from windtunnel.app.run import check_writable
    from windtunnel.core.forks import usable_processors
    from windtunnel.library import predict as predict_library

    if out is not None:
        check_writable(out)
    progress = Progress("simulations")
    catalogue = predict_library.catalogue(catalogs)
    result = planner.plan(
        scenario,
        seed=seed,
        changes=[*changes, *with_changes(hypothetical)],
        objective=objective,
        catalogue=catalogue,
        workers=workers,
        outside_code=allow_outside_code,
        progress=progress,
        copies=usable_processors(),
    )
    progress.close()
    paths = planner.save(result, out) if out is not None else []
    if form == "json":
        print_json(result)
    else:
        from windtunnel.report.plan import alone, run_command, text

        click.echo(text(result))
        if result.fleets:
            options = [
                *(word for c in changes for word in ("--set", c)),
                *(w for h in hypothetical for w in ("--with", h)),
            ]
            options += [] if seed is None else ["--seed", str(seed)]
            options += [word for folder in catalogs for word in ("--catalog", folder)]
            click.echo(f"{alone(result)}: {run_command(result, str(scenario), options)}")
        print_written(paths)
    if not result.fleets:
        sys.exit(1)


def _open_page(address: str) -> bool:
    """Open a page in the browser of the desktop; return False where there is none, as over SSH."""
    import webbrowser

    on_desktop = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    try:
        # A browser that is named by the user opens without a desktop too.
        found = bool(on_desktop or os.environ.get("BROWSER")) and webbrowser.get() is not None
    except webbrowser.Error:
        return False
    return found and click.launch(address) == 0


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port. Default: a free one.")
@click.option("--no-open", is_flag=True, help="Do not open the page in a browser.")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change the scenario first. Repeatable.")
@OUTSIDE_CODE
@CATALOG
def explore(
    scenario: Path,
    port: int,
    no_open: bool,
    changes: Sequence[str],
    allow_outside_code: bool,
    catalogs: Sequence[str],
) -> None:
    """Open a local page on which a scenario is varied while it is simulated. Ctrl-C ends it.

    The address of the page is printed. The page can be reached from this host only, and makes no request to another.
    """
    from windtunnel.app import explore as explore_command
    from windtunnel.library import predict as predict_library

    def announce(address: str) -> None:
        click.echo(address)
        sys.stdout.flush()
        click.echo("Ctrl-C ends the page.", err=True)
        if not no_open and not _open_page(address):
            click.echo("No browser was found on this host: open the address in one.", err=True)

    try:
        explore_command.explore(
            scenario,
            port=port,
            changes=changes,
            catalogue=predict_library.catalogue(catalogs),
            outside_code=allow_outside_code,
            options=[
                *(("--catalog", folder) for folder in catalogs),
                *([("--allow-outside-code",)] if allow_outside_code else []),
            ],
            announce=announce,
        )
    except KeyboardInterrupt:
        click.echo("ended", err=True)


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the files to deploy/ in this folder.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change the scenario: fleet[0].engine=sglang. Repeatable.",
)
@OUTSIDE_CODE
@CATALOG
@FORMAT
def deploy(
    scenario: Path,
    out: Path | None,
    changes: Sequence[str],
    allow_outside_code: bool,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Print the commands that start the serving engines of a scenario's fleet. Nothing is simulated.

    \b
    windtunnel deploy scenarios/serving/disaggregation.yaml --out deployments
    windtunnel deploy scenarios/llama-70b-h100.yaml --set fleet[0].engine=sglang
    """  # noqa: D301
    from windtunnel.app import deploy as deployer
    from windtunnel.app.run import check_writable
    from windtunnel.library import predict as predict_library

    if out is not None:
        check_writable(out)
    catalogue = predict_library.catalogue(catalogs)
    found, name = deployer.deploy(scenario, changes, catalogue, outside_code=allow_outside_code)
    paths = deployer.save(found, name, out) if out is not None else []
    if form == "json":
        print_json(found)
        return
    from windtunnel.report.deployment import text

    click.echo(text(found))
    print_written(paths)


@click.command()
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--for", "use", metavar="USE", help='A use case, such as "ml training".')
@click.option("--commands-per-s", "rate", type=float, metavar="X", help="Commands per second that the device receives.")
@click.option("--steps-per-command", "steps", type=int, metavar="Y", help="Steps per command. Default: 1.")
@click.option("--upload-bytes", type=float, metavar="N", help="Bytes that a command copies to the device.")
@click.option("--download-bytes", type=float, metavar="N", help="Bytes that a command copies back.")
@click.option("--kernel-us", type=float, metavar="T", help="Time of the kernel of a step, in microseconds.")
@click.option("--op", metavar="OP", help="The kernel of a step as an operation, with its columns as KEY=VALUE.")
@click.option("--memory", type=click.Choice(["pinned", "pageable"]), help="Host memory of the copies. Default: pinned.")
@click.option("--device", "device_name", metavar="SKU", help="The device. Default: rtx-6000-ada.")
@CATALOG
@FORMAT
def advise(
    values: Sequence[str],
    use: str | None,
    rate: float | None,
    steps: int | None,
    upload_bytes: float | None,
    download_bytes: float | None,
    kernel_us: float | None,
    op: str | None,
    memory: str | None,
    device_name: str | None,
    catalogs: Sequence[str],
    form: str,
) -> None:
    """Recommend a device for a use case, or choose between kernel launches and a persistent kernel.

    Without a workload, commands are those of the founding documents' benchmark (two arrays of 1 MiB to upload, two
    kernels in a step). State your own with --upload-bytes, --download-bytes and --kernel-us, or --op.

    \b
    windtunnel advise --for "ml training"
    windtunnel advise --commands-per-s 60 --upload-bytes 4096 --kernel-us 12 --device h100-sxm-80gb
    windtunnel advise --commands-per-s 60 --op gemm m=512 n=512 k=512 dtype=float16
    """  # noqa: D301
    from windtunnel.app.advise import CommandWorkload, advise_launch
    from windtunnel.core.errors import InputError, Location

    workload = CommandWorkload(upload_bytes, download_bytes, kernel_us, op, pairs(values), memory)
    if use is None:
        if rate is None or (steps is None and not workload.stated):
            raise InputError(
                "no use case and no command rate were given",
                where=Location(field="advise"),
                expected="--for USE, or --commands-per-s X and --steps-per-command Y",
            )
        from windtunnel.library import predict as predict_library
        from windtunnel.report.advice import advice_text

        known = predict_library.catalogue(catalogs)
        advice = advise_launch(rate, 1 if steps is None else steps, device_name or "rtx-6000-ada", known, workload)
        print_json(advice.to_dict()) if form == "json" else click.echo(advice_text(advice))
        return
    others = {"--commands-per-s": rate, "--steps-per-command": steps, "--device": device_name}
    for field, value in (*others.items(), ("a workload", workload.stated or None)):
        if value is not None:
            raise InputError(
                f"{field} cannot be combined with --for", where=Location(field=field), expected="--for USE alone"
            )
    from windtunnel.core.recommendation import recommendation

    row = recommendation(use)
    if form == "json":
        places = {"primary": row.primary, "alternative": row.alternative, "fallback": row.fallback}
        print_json({"use": use, **{name: list(choices) for name, choices in places.items()}})
        return
    for name, choices in (("primary", row.primary), ("alternative", row.alternative), ("fallback", row.fallback)):
        click.echo(f"{name:<12} {', '.join(choices) or '-'}")
