"""`windtunnel explore`: a local page on which a scenario is varied while it is simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from windtunnel.core.errors import InputError, Location
from windtunnel.core.worker_processes import broken_pipes_are_errors
from windtunnel.explorer.controls import controls, data_of
from windtunnel.explorer.lanes import Lane
from windtunnel.explorer.look import Looker
from windtunnel.explorer.session import Workshop
from windtunnel.report import explore_page
from windtunnel.scenario.changes import read_document
from windtunnel_models.catalogue import Catalogue


def explore(
    path: Path,
    *,
    port: int = 0,
    changes: Sequence[str] = (),
    catalogue: Catalogue,
    outside_code: bool = False,
    options: Sequence[Sequence[str]] = (),
    announce: Callable[[str], None],
) -> None:
    """Serve the page of the scenario ``path`` on this host until the process is interrupted.

    Args:
        path: The scenario.
        port: The port; 0 for a free one.
        changes: Changes to the scenario, with which the page begins.
        catalogue: The devices.
        outside_code: Whether the policy of the scenario may be code in a file outside of its folder.
        options: Further options of the command line that a run of a design needs, each with its value.
        announce: Receives the address of the page.

    Raises:
        InputError: The scenario is not valid or cannot be varied, the port is in use, or Tornado is not installed.
    """
    try:
        from windtunnel.explorer.server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "tornado":
            raise
        raise InputError(
            "the page needs Tornado, which is not installed",
            where=Location(field="explore"),
            expected="pip install 'windtunnel[explore]'",
        ) from None
    document = read_document(path, changes, outside_code=outside_code)
    scenario = Looker(document, catalogue).scenario({})
    offered = controls(scenario, catalogue)
    page, policy = explore_page.render(
        name=scenario.name,
        lead=scenario.description,
        file=str(path),
        options=[*options, *(("--set", change) for change in changes)],
        controls=[data_of(control) for control in offered],
        timed=[f"{target.metric} {target.statistic}" for target in scenario.parsed_targets() if target.is_distributed],
    )

    async def main() -> None:
        thorough = Lane(document, catalogue, niceness=5)  # first looks go first
        workshop = Workshop(Lane(document, catalogue), thorough, offered)
        await serve(port=port, original=document, workshop=workshop, page=page, policy=policy, announce=announce)

    with broken_pipes_are_errors():  # a browser that closes the page ends no server
        asyncio.run(main())
