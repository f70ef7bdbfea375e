"""`windtunnel compare`: two scenarios with common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from windtunnel.core.errors import InputError, Location
from windtunnel.core.results.comparison import Comparison
from windtunnel.scenario.changes import read_document
from windtunnel.scenario.read import check_scenario
from windtunnel.simulation import compare as comparing
from windtunnel_models.catalogue import Catalogue, shipped_catalogue


def compare(
    baseline: str | Path,
    candidate: str | Path | None = None,
    *,
    changes: Sequence[str] = (),
    seed: int | None = None,
    replications: int = 10,
    engine: str = "auto",
    catalogue: Catalogue | None = None,
    outside_code: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare two scenarios, or one with and without ``changes``, with common random numbers; see ``comparing``.

    ``outside_code``: policies may be code in files outside of the scenarios' folders.
    """
    if (candidate is None) == (not changes):
        raise InputError(
            "there is nothing to compare with, or there are two things",
            where=Location(field="compare"),
            expected="another scenario, or --change PATH=VALUE",
        )
    read = partial(read_document, seed=seed, outside_code=outside_code)
    first = check_scenario(read(Path(baseline)))
    second = check_scenario(read(Path(baseline if candidate is None else candidate), changes))
    # The shortest labels that differ: the names, the files, or the change.
    names = (first.name, second.name)
    if changes:
        names = (first.name, f"{second.name} with {', '.join(changes)}")
    elif first.name == second.name:
        names = (str(baseline), str(candidate))
    return comparing.compare(
        first, second, replications, engine, catalogue or shipped_catalogue(), progress, names=names
    )
