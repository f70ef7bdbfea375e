"""`windtunnel plan` put together: scenario, bounds, search, simulations side by side, and what the answer rests on.

Beside `app` and like it a place that knows several parts: it asks `app.run` about each fleet, and the planning part,
which knows of no engine, which fleets to ask about.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.core.result import result_json
from windtunnel.planning.planner import Planner
from windtunnel.scenario.scenario import Scenario, read_scenario
from windtunnel_models.catalogue import Catalogue


def plan(
    scenario: Scenario | str | Path,
    *,
    seed: int | None = None,
    changes: Sequence[str] = (),
    catalogue: Catalogue | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """The cheapest fleets of the scenario's candidates that meet its targets, with a bound and an explanation.

    ``workers``: processes; as many as there are cores unless given, with no influence on the answer. ``progress`` is
    told how many simulations are done. Raises InputError for what is wrong with the input.
    """
    if not isinstance(scenario, Scenario):
        scenario = read_scenario(Path(scenario), changes, seed=seed)
    catalogue = catalogue or Catalogue()
    return Planner(scenario, catalogue, workers or os.cpu_count() or 1, progress).run()


def save(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write plan.json and report.html under ``folder``; nothing half-written stays."""
    from windtunnel.core.csvfile import write_whole
    from windtunnel.report.plan import render

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in (("plan.json", result_json(found)), ("report.html", render(found))):
        write_whole(folder / name, lambda stream, content=content: stream.write(content))  # type: ignore[misc]
        paths.append(folder / name)
    return paths


__all__ = ["plan", "save"]
